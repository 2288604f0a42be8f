// SPDX-License-Identifier: BSD-3-Clause
// Elements without innerHTML: all text goes in as text.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function put(host, ...children) {
  host.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return host;
}

/** A box with a message. kind: "bad", "warn", "good" or "info". */
export function message(kind, ...content) {
  return el("div", { class: `message ${kind}` }, ...content.map((part) =>
    typeof part === "string" ? el("p", {}, part) : part));
}

/** Say what the API answered, in a place that screen readers watch. */
export function showError(host, error) {
  if (!(error instanceof Error)) throw error;
  put(host, el("div", { class: "message bad", role: "alert" }, el("p", {}, error.message)));
  host.hidden = false;
}

/** Say something shortly at the foot of the window. */
export function say(text) {
  const host = byId("notices");
  const note = el("p", {}, text);
  put(host, note);
  setTimeout(() => note.remove(), 8000);
}

/** Do something while the button is disabled; its refusal is shown in `errors`. */
export async function busy(button, errors, action) {
  const focused = document.activeElement === button;
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  if (errors) put(errors);
  try {
    return await action();
  } catch (error) {
    if (!errors) throw error;
    showError(errors, error);
    return undefined;
  } finally {
    button.disabled = false;
    button.removeAttribute("aria-busy");
    if (focused && document.activeElement === document.body && button.isConnected) button.focus();
  }
}

/** Run the action of a form when it is sent, with its button disabled meanwhile. */
export function onSubmit(form, errors, action) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter ?? form.querySelector('button[type="submit"], button:not([type])');
    busy(button, errors, () => action(new FormData(form)));
  });
}

/** A dialog with a heading. It is removed from the page when it is closed. */
export function openDialog(title, content, { wide = false } = {}) {
  const id = `dialog-${Math.random().toString(36).slice(2)}`;
  const dialog = el("dialog", { class: wide ? "wide" : null, "aria-labelledby": id },
    el("h2", { id, tabindex: "-1" }, title), ...[content].flat());
  document.body.append(dialog);
  // What has begun goes on, so its outcome must not be missed.
  dialog.addEventListener("cancel", (event) => {
    if (dialog.querySelector("[aria-busy]")) event.preventDefault();
  });
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
  dialog.showModal();
  return { dialog, closed };
}

/** Ask before something is done; the action runs while the dialog is open.
 * Returns what the action gave, or undefined if it was cancelled. */
export async function confirmed({ title, text, yes, danger = true, typed = null }, action) {
  const errors = el("div", { "aria-live": "assertive" });
  const sure = el("button", { type: "button", class: danger ? "danger" : "primary" }, yes);
  const cancel = el("button", { type: "button", class: "quiet" }, "Cancel");
  const content = [text].flat().map((part) => typeof part === "string" ? el("p", {}, part) : part);
  let input = null;
  if (typed !== null) {
    input = el("input", { type: "text", id: "typed-name", autocomplete: "off" });
    content.push(el("div", { class: "field" },
      el("label", { for: "typed-name" }, `Type “${typed}” to confirm`), input));
    sure.disabled = true;
    input.addEventListener("input", () => { sure.disabled = input.value.trim() !== typed.trim(); });
  }
  const { dialog, closed } = openDialog(title, [...content, errors, el("div", { class: "actions" }, cancel, sure)]);
  let result;
  cancel.addEventListener("click", () => dialog.close());
  sure.addEventListener("click", async () => {
    cancel.disabled = true;
    await busy(sure, errors, async () => {
      result = await action();
      if (result === undefined || result === null) result = true;
      dialog.close();
    });
    cancel.disabled = false;
  });
  (input ?? cancel).focus();
  await closed;
  return result;
}

/** A table that becomes a list of cards on a narrow screen. It keeps its roles there.
 * columns: [{label, cell: (item) => node or text, head, number}] */
export function table(caption, columns, items, { hiddenCaption = false } = {}) {
  const body = el("tbody", { role: "rowgroup" });
  const node = el("table", { role: "table" },
    el("caption", { class: hiddenCaption ? "for-readers" : null }, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map((column) =>
      el("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, column.label)))),
    body);
  const add = (more) => {
    for (const item of more) {
      body.append(el("tr", { role: "row" }, columns.map((column) => {
        const cell = [column.cell(item)].flat();
        return column.head
          ? el("th", { scope: "row", role: "rowheader", "data-label": column.label }, ...cell)
          : el("td", { role: "cell", "data-label": column.label, class: column.number ? "number" : null }, ...cell);
      })));
    }
  };
  add(items);
  return { node, add };
}

/** Call the function when nothing has happened for a while. */
export function settled(action, milliseconds = 250) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), milliseconds);
  };
}
