// SPDX-License-Identifier: BSD-3-Clause
// The state of a gallery and of its people, in words.

import { el, message } from "/static/dom.js";
import { galleryId } from "/static/layout.js";
import { count, oneIn, percent, sampleWord, score } from "/static/words.js";

/** Kinds of findings: the colour of the badge, and its words. */
const BADGES = {
  "same person": ["bad", (finding) => finding.other_name ? `Same person as ${finding.other_name}?` : "Entered twice?"],
  "fits another": ["bad", (finding) => finding.other_name ? `A sample fits ${finding.other_name} better` : "A sample fits somebody else"],
  outlier: ["warn", () => "A sample stands out"],
  "few samples": ["", () => "Few samples"],
};

/** A badge for each different finding. */
export function badges(findings) {
  const shown = new Map();
  for (const finding of findings ?? []) {
    const [kind, text] = BADGES[finding.kind] ?? ["", () => finding.kind];
    shown.set(text(finding), kind);
  }
  return [...shown].map(([text, kind]) => el("span", { class: `badge ${kind}` }, text));
}

const link = (screen, text) => el("a", { href: `/g/${encodeURIComponent(galleryId)}/${screen}` }, text);

/** What the threshold promises, in one sentence. */
export function promise(calibration) {
  const { kind, target, achieved, threshold } = calibration;
  // An erasure leaves only the number, until it is measured without the person.
  if (kind === "given" && calibration.stale) return `The threshold is ${score(threshold)}, as it was before the last erasure.`;
  if (kind === "given") return `The threshold is ${score(threshold)}, set by hand.`;
  const rate = target ?? achieved;
  return kind === "fmr"
    ? `The threshold is ${score(threshold)}: about ${oneIn(rate)} comparisons of two different people is taken for a match (${percent(rate)}).`
    : `The threshold is ${score(threshold)}: about ${oneIn(rate)} strangers is taken for somebody (${percent(rate)}).`;
}

/** What one should know about the threshold before one trusts it. */
export function cautions(calibration) {
  const said = [];
  if (calibration.prior) said.push("The threshold is a first guess from other people’s data. This gallery is too small to measure its own. Add more people, with at least two samples each.");
  if (calibration.stale) said.push("The gallery has changed since the threshold was measured. It is measured again by itself after a quiet moment, or when you apply a rate.");
  if (calibration.missed > 0.2) said.push(`With this threshold ${percent(calibration.missed)} of the searches for enrolled people end with “unknown”. Add more samples of each person, or allow a higher rate.`);
  if (calibration.target && calibration.high > Math.max(0.05, 5 * calibration.target)) said.push(`It was measured on few comparisons. The true rate of strangers who are taken for somebody may be up to ${percent(calibration.high)}. It gets surer with more people.`);
  return said;
}

/** The lines below the title of a screen: model and threshold. */
export function statusLines(gallery) {
  const lines = [];
  const { model, calibration } = gallery;
  if (gallery.n_subjects) lines.push(el("p", {}, `${count(gallery.n_subjects, "person", "people")}, ${sampleWord(gallery, gallery.n_samples)}.`));
  if (gallery.n_samples && model.reason) lines.push(message("warn", `It cannot recognise anybody yet. ${model.reason}`));
  else if (gallery.n_samples && !model.current) lines.push(el("p", {}, "The model is being fitted to the last changes. Answers come from the one before until then."));
  if (calibration) {
    lines.push(el("p", {}, promise(calibration), " ", link("threshold", "Change it")));
    for (const caution of cautions(calibration)) lines.push(message("warn", caution));
  } else if (gallery.n_samples && !model.reason) {
    lines.push(message("warn", el("p", {}, "There is no threshold yet, so nobody can be called unknown. ", link("threshold", "See why"))));
  }
  return lines;
}
