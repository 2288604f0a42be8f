// SPDX-License-Identifier: BSD-3-Clause
// The threshold in use, with thresholds for other rates and histograms of scores.

import { get, path } from "/static/api.js";
import { galleryId } from "/static/layout.js";

const ADDRESS = path(galleryId, "calibrations", "current");
// Milliseconds between two questions, and how many are asked.
const PAUSE = 700;
const QUESTIONS = 150;

let waiting = 0;

/** The calibration. Rates and histograms are measured a moment later than the threshold:
 * then `later` gets the calibration again, with them. */
export async function currentCalibration(later) {
  const turn = (waiting += 1);
  const found = await get(ADDRESS);
  if (found.curve === null) waitForCurve(turn, later).catch(() => null);
  return found;
}

async function waitForCurve(turn, later) {
  for (let asked = 0; asked < QUESTIONS; asked += 1) {
    await new Promise((resume) => setTimeout(resume, PAUSE));
    if (turn !== waiting) return;
    const found = await get(ADDRESS);
    if (turn !== waiting) return;
    if (found.curve !== null) {
      later(found);
      return;
    }
  }
}
