// SPDX-License-Identifier: BSD-3-Clause
// Pictures of samples, and what stands in their place.

import { path } from "/static/api.js";
import { el } from "/static/dom.js";
import { galleryId } from "/static/layout.js";

/** Whether samples of a gallery may have pictures. */
export const hasPictures = (gallery) => gallery.inputs === "crops" || gallery.keep_photographs || gallery.demo;

function initials(name) {
  const words = name.match(/\p{L}+/gu) ?? [name.trim()];
  const text = words.length > 1 ? words[0][0] + words.at(-1)[0] : words[0].slice(0, 2);
  return text.toUpperCase();
}

/** The picture of a sample, or the initials of a name. */
export function faceOf(sample, name, description = "") {
  if (!sample) return el("span", { class: "face", "aria-hidden": "true" }, initials(name || "?"));
  return el("span", { class: "face" }, el("img", {
    src: path(galleryId, "samples", sample.id, "image"), alt: name ? description || name : "", loading: "lazy",
  }));
}
