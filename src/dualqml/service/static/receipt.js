// SPDX-License-Identifier: BSD-3-Clause
// The receipt of an erasure.

import { el, openDialog } from "/static/dom.js";
import { count, when } from "/static/words.js";

const KINDS = {
  subject: "A person", sample: "One sample", stranger: "A stranger", gallery: "A whole gallery",
  retention: "What was past its time",
};

const REFITTED = "It is gone from the database and from the model. The model after was fitted without it: whoever has the gallery can fit it again and compare the hash.";
const MEANINGS = {
  stranger: "It is gone from the database. Strangers are never part of a model.",
  gallery: "The gallery is gone, with its database rows and its model.",
};

export const kindOf = (erasure) => KINDS[erasure.kind] ?? erasure.kind;

const THINGS = {
  subjects: ["person", "people"], samples: ["sample", "samples"],
  photographs: ["photograph", "photographs"], strangers: ["stranger", "strangers"],
};

/** "1 person, 5 samples". */
export function countsOf(erasure) {
  const parts = Object.entries(erasure.counts ?? {}).filter(([, number]) => number > 0)
    .map(([name, number]) => count(number, ...(THINGS[name] ?? [name, name])));
  return parts.length ? parts.join(", ") : "nothing";
}

function model(state) {
  if (!state || !state.sha256) return "no model";
  return [`revision ${state.revision}`, el("br"), el("code", {}, state.sha256)];
}

const row = (name, value) => [el("dt", {}, name), el("dd", {}, ...[value].flat())];

/** All that a receipt says. */
export function receiptView(erasure) {
  const storage = Object.entries(erasure.storage ?? {}).map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`);
  return [
    el("p", {}, MEANINGS[erasure.kind] ?? REFITTED),
    el("dl", { class: "facts receipt" },
      row("What", kindOf(erasure)),
      row("Erased", countsOf(erasure)),
      row("Asked", when(erasure.requested_at)),
      row("Completed", when(erasure.completed_at)),
      row("Model before", model(erasure.model_before)),
      row("Model after", model(erasure.model_after)),
      storage.length ? row("Storage", storage.join("; ")) : [],
      row("Digest of this receipt", el("code", {}, erasure.digest ?? "none")),
      row("Receipt number", el("code", {}, erasure.id))),
  ];
}

function download(erasure) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(erasure, null, 2)], { type: "application/json" }));
  const link = el("a", { href: url, download: `receipt-${erasure.id}.json` });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Show a receipt until it is closed. */
export async function showReceipt(erasure, title = "Erased. Here is the receipt") {
  const save = el("button", { type: "button", class: "quiet", onclick: () => download(erasure) }, "Download receipt");
  const close = el("button", { type: "button", class: "primary" }, "Close");
  const { dialog, closed } = openDialog(title, [...receiptView(erasure), el("div", { class: "actions" }, save, close)], { wide: true });
  close.addEventListener("click", () => dialog.close());
  close.focus();
  await closed;
}
