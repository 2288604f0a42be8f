// SPDX-License-Identifier: BSD-3-Clause
// Numbers and times in words.

const NBSP = "\u00a0";

export function percent(rate) {
  if (rate === null || rate === undefined) return "not known";
  const value = rate * 100;
  const digits = value === 0 || value >= 99.95 ? 0 : value < 0.1 ? 2 : value < 10 ? 1 : 0;
  const text = value > 99 && value < 99.95 ? value.toFixed(1) : value.toFixed(digits);
  return `${text.replace(/\.0+$/, "")}${NBSP}%`;
}

/** "1 in 100" for 0.01. */
export function oneIn(rate) {
  if (!(rate > 0)) return "none";
  return rate >= 0.5 ? `${Math.round(rate * 10)} in 10` : `1 in ${Math.round(1 / rate).toLocaleString("en")}`;
}

export function score(value) {
  if (value === null || value === undefined) return "none";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3).replace(/^-(0(\.0+)?)$/, "$1").replace("-", "\u2212");
}

/** "1 picture", "2 pictures". */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")}${NBSP}${number === 1 ? one : many}`;
}

export function when(text) {
  if (!text) return "never";
  return new Date(text).toLocaleString("en-GB", {
    day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
  });
}

export function day(text) {
  if (!text) return "never";
  return new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

export function shortHash(text) {
  return text ? `${text.slice(0, 12)}…` : "none";
}

/** What the samples of a gallery are called. */
export function sampleWord(gallery, number) {
  const one = { photographs: "photograph", crops: "picture", vectors: "vector" }[gallery?.inputs] ?? "sample";
  return count(number, one);
}

/** The reasons for which a photograph is refused, by their code. */
const REASONS = {
  "no-face": "No face was found. Use a photograph in which the face is well lit and turned to the camera.",
  "several-faces": "There is more than one face, and it is not clear whose name to use. Crop it to one face.",
  "poor-face": "The face is too small, too blurred or turned too far away.",
  "bad-image": "The file is not a picture that can be read, or it is damaged.",
  "too-large": "The file is too large.",
  "too-many-pixels": "The picture has too many pixels. Make it smaller.",
  "wrong-kind": "This gallery takes another kind of input.",
};

export function reason(outcome) {
  return outcome.detail || REASONS[outcome.code] || "It was refused without a reason.";
}
