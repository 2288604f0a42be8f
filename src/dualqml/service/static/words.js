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

/** A day, which is not broken into lines. */
export function day(text) {
  if (!text) return "never";
  return new Date(text).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" }).replaceAll(" ", NBSP);
}

export function when(text) {
  if (!text) return "never";
  return `${day(text)}, ${new Date(text).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })}`;
}

export function shortHash(text) {
  return text ? `${text.slice(0, 12)}…` : "none";
}

/** What the samples of a gallery are called. */
export function sampleWord(gallery, number) {
  const one = { photographs: "photograph", crops: "picture", vectors: "vector" }[gallery?.inputs] ?? "sample";
  return count(number, one);
}

/** The minus sign of numbers in a sentence of the API, as the page writes it. */
export const withMinus = (text) => text.replace(/(^|[\s(])-(?=\d)/g, "$1\u2212");

/** Reasons of refusals in which the API speaks to programs: the page has its own words. */
const REASONS = {
  "no-face": "No face was found. Use a photograph in which the face is well lit, not too small, and turned to the camera.",
  "several-faces": "The photograph shows several faces, and it is not clear which one you mean. Crop it to one face. Or use “Try a photo”: there you can enrol each face alone.",
};

/** Why a file was refused, as a sentence. */
export function reason({ code, detail, name }) {
  if (REASONS[code]) return REASONS[code];
  if (!detail) return "It was refused without a reason.";
  // The name of the file stands beside it already.
  const start = [`${name}: `, "the image: "].find((one) => detail.startsWith(one)) ?? "";
  const text = detail.slice(start.length);
  const whole = code === "bad-image" && start ? `The file cannot be read: ${text}` : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}
