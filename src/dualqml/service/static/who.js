// SPDX-License-Identifier: BSD-3-Clause
// Who it is: a new person, or somebody who is already in the gallery.

import { path, post } from "/static/api.js";
import { busy, el, openDialog, put, settled } from "/static/dom.js";
import { galleryId, getPage } from "/static/layout.js";
import { count } from "/static/words.js";

let used = 0;

/** Fields for a choice. `read()` gives {name} or {subject_id, name}, or throws. */
export function whoFields({ subject = null, name = "" } = {}) {
  used += 1;
  const id = (part) => `who-${used}-${part}`;
  const fresh = el("input", { type: "radio", name: id("kind"), id: id("new"), value: "new" });
  const known = el("input", { type: "radio", name: id("kind"), id: id("known"), value: "known" });
  const text = el("input", { type: "text", id: id("name"), maxlength: "200", autocomplete: "off", value: name });
  const search = el("input", { type: "search", id: id("search"), autocomplete: "off" });
  const list = el("select", { id: id("list"), size: "5" });
  const found = el("p", { class: "quiet-text", "aria-live": "polite" });
  const newPart = el("div", { class: "field" }, el("label", { for: id("name") }, "Name of the new person"), text);
  const knownPart = el("div", {},
    el("div", { class: "field" }, el("label", { for: id("search") }, "Search for a name"), search),
    el("div", { class: "field" }, el("label", { for: id("list") }, "Person"), list, found));
  const node = el("fieldset", { class: "who" }, el("legend", {}, "Who is it?"),
    el("div", { class: "choices" },
      el("label", { class: "choice" }, fresh, el("span", {}, "A new person")),
      el("label", { class: "choice" }, known, el("span", {}, "Somebody already here"))),
    newPart, knownPart);

  const find = async () => {
    const page = await getPage(path(galleryId, "subjects"), { limit: 50, q: search.value.trim() });
    put(list, page.items.map((one) => el("option", { value: one.id }, one.name)));
    if (subject && page.items.some((one) => one.id === subject.id)) list.value = subject.id;
    else if (page.items.length === 1) list.selectedIndex = 0;
    const more = page.next ? ` The first ${page.items.length} are shown; search to find the others.` : "";
    found.textContent = page.items.length ? `${count(page.total ?? page.items.length, "person", "people")}.${more}` : "Nobody has such a name.";
  };
  const show = () => {
    newPart.hidden = !fresh.checked;
    knownPart.hidden = !known.checked;
    if (known.checked && !list.options.length) find().catch((error) => put(found, error.message));
  };
  search.addEventListener("input", settled(() => find().catch((error) => put(found, error.message))));
  fresh.addEventListener("change", show);
  known.addEventListener("change", show);
  (subject ? known : fresh).checked = true;
  if (subject) search.value = subject.name;
  show();

  return {
    node,
    focus: () => (fresh.checked ? text : list).focus(),
    /** From now on the person is in the gallery. */
    settle(one) {
      subject = one;
      known.checked = true;
      text.value = "";
      search.value = one.name;
      put(list);
      show();
    },
    /** The next one is a new person. */
    clear() {
      subject = null;
      fresh.checked = true;
      search.value = "";
      put(list);
      show();
      text.focus();
    },
    read() {
      if (fresh.checked) {
        const given = text.value.trim();
        if (!given) {
          text.focus();
          throw new Error("Type the name of the new person.");
        }
        return { name: given };
      }
      const option = list.selectedOptions[0];
      if (!option) {
        list.focus();
        throw new Error("Choose a person from the list.");
      }
      return { subject_id: option.value, name: option.textContent };
    },
  };
}

/** The same refusal, with what to do on this page if the name is taken. */
function explained(error, choice) {
  if (error.code !== "conflict" || choice.subject_id) return error;
  return new Error(`“${choice.name}” is already in this gallery. If it is the same person, choose “Somebody already here”. If not, give another name.`);
}

/** The person of a choice; a new one is created. */
export async function ensurePerson(choice) {
  if (choice.subject_id) return { id: choice.subject_id, name: choice.name };
  try {
    return await post(path(galleryId, "subjects"), { name: choice.name });
  } catch (error) {
    throw explained(error, choice);
  }
}

/** Give a stranger the name of a choice. The kept faces become samples. */
export async function nameStranger(id, choice) {
  const body = choice.subject_id ? { subject_id: choice.subject_id } : { name: choice.name };
  try {
    return await post(path(galleryId, "strangers", id, "name"), body);
  } catch (error) {
    throw explained(error, choice);
  }
}

/** Ask who it is. `action` gets the choice while the dialog is open. */
export async function askWho({ title, text, yes, subject = null }, action) {
  const errors = el("div", {});
  const who = whoFields({ subject });
  const sure = el("button", { class: "primary" }, yes);
  const cancel = el("button", { type: "button", class: "quiet" }, "Cancel");
  const form = el("form", {}, text ? el("p", {}, text) : null, who.node, errors, el("div", { class: "actions" }, cancel, sure));
  const { dialog, closed } = openDialog(title, form);
  let result;
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    busy(sure, errors, async () => {
      result = (await action(who.read())) ?? true;
      dialog.close();
    });
  });
  who.focus();
  await closed;
  return result;
}
