// SPDX-License-Identifier: BSD-3-Clause
import { get, path, post, upload } from "/static/api.js";
import { busy, byId, el, message, put, say } from "/static/dom.js";
import { galleryId, loadGallery, screen } from "/static/layout.js";
import { readVectors, setUpPicker } from "/static/photos.js";
import { ensurePerson, whoFields } from "/static/who.js";
import { count, percent, reason } from "/static/words.js";

// Most files and bytes of one request. Outcomes come after each.
const FILES = 8;
const BYTES = 24e6;

let gallery;
let who;
let chosen = [];

/** Files in portions that are not too large for a request. */
function portions(files) {
  const found = [];
  let size = Infinity;
  for (const file of files) {
    if (size + file.size > BYTES || found.at(-1).length === FILES) {
      found.push([]);
      size = 0;
    }
    found.at(-1).push(file);
    size += file.size;
  }
  return found;
}

function leaveOut(one) {
  const place = chosen.indexOf(one);
  URL.revokeObjectURL(one.url);
  chosen.splice(place, 1);
  showChosen();
  say(`${one.file.name} is left out.`);
  // The button is gone. The keyboard goes on with the next picture.
  const buttons = byId("chosen").querySelectorAll("button");
  (buttons[Math.min(place, buttons.length - 1)] ?? byId("add-file")).focus();
}

function showChosen() {
  put(byId("chosen"), chosen.map((one) => el("li", {},
    el("img", { src: one.url, alt: one.file.name, title: one.file.name }),
    el("button", { type: "button", "aria-label": `Leave out ${one.file.name}`, onclick: () => leaveOut(one) }, "×"))));
  const enrol = byId("enrol");
  enrol.disabled = gallery.inputs !== "vectors" && chosen.length === 0;
  enrol.textContent = chosen.length ? `Add ${count(chosen.length, "picture")}` : "Add";
  byId("clear").hidden = chosen.length === 0;
}

function outcomeLine(outcome, url) {
  const refused = outcome.status !== "enrolled";
  const details = refused
    ? [el("p", {}, reason(outcome))]
    : [outcome.quality !== null && outcome.quality !== undefined ? el("p", { class: "quiet-text" }, `Quality ${percent(outcome.quality)}.`) : null,
      ...(outcome.remarks ?? []).map((remark) => el("p", {}, remark))];
  return el("li", {},
    url ? el("span", { class: "face" }, el("img", { src: url, alt: "", onerror: (event) => event.target.remove() })) : null,
    el("div", {}, el("span", { class: "file-name" }, outcome.name),
      el("span", { class: `badge ${refused ? "bad" : "good"}` }, refused ? "Refused" : "Added"), ...details));
}

/** What one request gave. It is a refusal as a whole if nothing could be enrolled. */
async function outcomesOf(request) {
  try {
    return (await request).outcomes;
  } catch (error) {
    if (Array.isArray(error.problem?.outcomes)) return error.problem.outcomes;
    throw error;
  }
}

function startOutcomes() {
  byId("outcomes").hidden = false;
  put(byId("outcome-list"));
  put(byId("outcomes-said"), el("p", { class: "quiet-text" }, "Working…"));
}

function tell(name, outcomes, subject, isNew = false) {
  const added = outcomes.filter((one) => one.status === "enrolled").length;
  const refused = outcomes.length - added;
  const vectors = gallery.inputs === "vectors";
  const text = `${added ? `${count(added, "sample")} of ${name} ${added === 1 ? "was" : "were"} added.` : `Nothing was added to ${name}.`}${refused ? ` ${vectors ? count(refused, "vector was", "vectors were") : count(refused, "file was", "files were")} refused; the reasons are below.` : ""}`;
  const more = !added && isNew ? el("p", {}, `${name} is in the gallery, but cannot be recognised without samples. Add others, or erase the person.`) : null;
  const next = subject ? el("div", { class: "actions start" },
    el("button", { type: "button", class: "quiet", onclick: () => who.clear() }, "Add another person"),
    el("a", { class: "button quiet", href: `/g/${encodeURIComponent(galleryId)}/people/${encodeURIComponent(subject.id)}` }, `See ${subject.name}`),
    el("a", { class: "button quiet", href: `/g/${encodeURIComponent(galleryId)}/try` }, vectors ? "Try a vector" : "Try a photo")) : null;
  put(byId("outcomes-said"), message(added === 0 ? "bad" : refused ? "warn" : "good", el("p", {}, text), more, next));
  byId("outcomes-title").focus();
}

async function enrolPictures(person) {
  const all = [];
  const address = path(galleryId, "subjects", person.id, "samples");
  startOutcomes();
  for (const files of portions(chosen.map((one) => one.file))) {
    const outcomes = await outcomesOf(upload(address, files.map((file) => ["files", file, file.name]), { once: true }));
    outcomes.forEach((outcome, k) => {
      const one = chosen.find((other) => other.file === files[k]);
      byId("outcome-list").append(outcomeLine(outcome, one?.url));
    });
    all.push(...outcomes);
  }
  chosen = [];
  showChosen();
  return all;
}

async function enrolVectors(person) {
  const vectors = readVectors(byId("vectors").value);
  startOutcomes();
  const outcomes = await outcomesOf(post(path(galleryId, "subjects", person.id, "samples"), { vectors }, { once: true }));
  byId("outcome-list").append(...outcomes.map((outcome, k) =>
    outcomeLine({ ...outcome, name: outcome.name || `Vector ${k + 1}` }, null)));
  byId("vectors").value = "";
  return outcomes;
}

async function enrol() {
  const choice = who.read();
  const vectors = gallery.inputs === "vectors";
  if (vectors) readVectors(byId("vectors").value);
  const person = await ensurePerson(choice);
  who.settle(person);
  const outcomes = await (vectors ? enrolVectors(person) : enrolPictures(person));
  tell(person.name, outcomes, person, !choice.subject_id);
}

/** Files of a folder of people: "Ann/1.jpg". */
function setUpFolder() {
  const input = byId("folder");
  byId("many").hidden = false;
  input.addEventListener("change", async () => {
    const files = [...input.files].filter((file) => file.webkitRelativePath.split("/").length >= 3 && !file.name.startsWith("."));
    input.value = "";
    if (!files.length) {
      put(byId("many-said"), message("warn", "This folder has no folders with files inside. Choose the folder that holds the folders of the people."));
      return;
    }
    input.disabled = true;
    await busy(byId("enrol"), byId("many-errors"), async () => {
      const all = [];
      startOutcomes();
      for (const part of portions(files)) {
        put(byId("many-said"), el("p", {}, `${all.length} of ${files.length} files…`));
        const outcomes = await outcomesOf(upload(path(galleryId, "samples"),
          part.map((file) => ["files", file, file.webkitRelativePath.split("/").slice(-2).join("/")]), { once: true }));
        byId("outcome-list").append(...outcomes.map((outcome) => outcomeLine(outcome, null)));
        all.push(...outcomes);
      }
      put(byId("many-said"));
      tell("these people", all, null);
    });
    input.disabled = false;
    showChosen();
  });
}

screen(async () => {
  ({ gallery } = await loadGallery());
  const given = new URLSearchParams(location.search).get("subject");
  const subject = given ? await get(path(galleryId, "subjects", given)) : null;
  who = whoFields({ subject });
  byId("who").append(who.node);
  byId("add-waiting").hidden = true;
  byId("add").hidden = false;
  if (gallery.inputs === "vectors") {
    byId("give-pictures").hidden = true;
    byId("give-vectors").hidden = false;
    byId("give-title").textContent = "2. The vectors";
    byId("add-help").textContent = "Three to five different vectors of a person make a good start.";
  } else {
    const frame = gallery.inputs === "crops" ? gallery.size : null;
    if (frame) byId("add-help").textContent = "This gallery takes face crops: pictures that show one face, from chin to hair, and nothing else. Three to five of a person make a good start.";
    setUpPicker("add", (files) => {
      chosen.push(...files.map((file) => ({ file, url: URL.createObjectURL(file) })));
      showChosen();
    }, { frame });
    setUpFolder();
  }
  showChosen();
  byId("enrol").addEventListener("click", async () => {
    await busy(byId("enrol"), byId("add-errors"), enrol);
    showChosen();
  });
  byId("clear").addEventListener("click", () => {
    for (const one of chosen) URL.revokeObjectURL(one.url);
    chosen = [];
    showChosen();
  });
});
