// SPDX-License-Identifier: BSD-3-Clause
import { path, post } from "/static/api.js";
import { currentCalibration } from "/static/calibration.js";
import { byId, el, message, onSubmit, put, say, settled } from "/static/dom.js";
import { scoreScale } from "/static/charts.js";
import { cautions, promise } from "/static/health.js";
import { galleryId, loadGallery, may, screen } from "/static/layout.js";
import { count, oneIn, percent, score, withMinus } from "/static/words.js";

let current = null;
let curve = [];
let redraw = null;

/** The place of the threshold in use on the slider: the nearest rate, or the nearest score. */
function placeInUse() {
  const distance = (one) => current.kind === "given" || current.target === null
    ? Math.abs(one.threshold - current.threshold)
    : Math.abs(Math.log(one.target / current.target));
  return curve.reduce((best, one, k) => distance(one) < distance(curve[best]) ? k : best, 0);
}

function interval(one) {
  if (one.low === null || one.low === undefined || one.high === null || one.high === undefined) return "";
  return `between ${percent(one.low)} and ${percent(one.high)} (95\u00a0% interval)`;
}

const speak = settled((text) => { byId("rate-said").textContent = text; }, 500);

function showPlace() {
  const one = curve[Number(byId("rate").value)];
  const rate = one.achieved ?? one.target;
  const isFmr = one.kind === "fmr";
  byId("figure-rate-name").textContent = isFmr ? "Two people taken for one" : "Strangers taken for somebody";
  byId("rate-label").textContent = `${isFmr ? "False match rate" : "False positive rate"}: at most ${percent(one.target)}, ${oneIn(one.target)}`;
  byId("rate").setAttribute("aria-valuetext", `${percent(one.target)}, ${oneIn(one.target)}`);
  byId("figure-rate").textContent = percent(rate);
  byId("figure-interval").textContent = interval(one);
  byId("figure-missed").textContent = percent(one.missed);
  byId("figure-missed-of").textContent = one.n_mated ? `measured on ${count(one.n_mated, "search", "searches")}` : "expected";
  byId("figure-threshold").textContent = score(one.threshold);
  const inUse = score(current.threshold);
  byId("figure-applied").textContent = score(one.threshold) === inUse ? "in use now" : `in use now: ${inUse}`;
  redraw({ threshold: one.threshold });
  speak(`Threshold ${score(one.threshold)}. Strangers taken for somebody: ${percent(rate)}, ${interval(one)}. Enrolled people missed: ${percent(one.missed)}.`);
}

function showWarnings(gallery) {
  const host = byId("warnings");
  if (!current) {
    const why = gallery.model.reason ?? "The gallery is too small to measure a threshold.";
    const add = may("enrol") ? [" ", el("a", { href: `/g/${encodeURIComponent(galleryId)}/add` }, "Add people"), "."] : [];
    put(host, message("warn", el("p", {}, "There is no threshold yet. ", gallery.n_samples ? why : "The gallery is empty.", add)));
    return;
  }
  put(host, el("p", {}, promise(current)),
    cautions(current).map((text) => message("warn", text)),
    current.reason ? message("info", current.reason) : null,
    curve.length || current.curve !== null ? null : el("p", { class: "quiet-text" }, "Other rates are being measured. The slider comes in a moment."),
    el("details", { class: "numbers" }, el("summary", {}, "How it was measured"), el("p", {}, withMinus(current.text))));
}

async function load() {
  const { gallery } = await loadGallery();
  const later = (calibration) => show(gallery, calibration, byId("choice").hidden);
  show(gallery, gallery.calibration ? await currentCalibration(later) : null, true);
}

/** Show a calibration. While its rates are measured, those of before stay.
 * `place`: move the slider to the threshold in use. */
function show(gallery, calibration, place) {
  current = calibration;
  if (current?.curve) curve = [...current.curve].sort((a, b) => a.target - b.target);
  else if (!current) curve = [];
  showWarnings(gallery);
  byId("choice").hidden = !curve.length;
  byId("given").hidden = !current || !may("admin");
  if (!current) return;
  byId("given-threshold").value = String(Number(current.threshold.toPrecision(6)));
  if (!curve.length) return;
  const slider = byId("rate");
  slider.max = String(curve.length - 1);
  if (place) slider.value = String(placeInUse());
  const plot = byId("plot");
  if (!redraw) redraw = scoreScale(plot, { distributions: current.distributions, threshold: current.threshold, height: 150 });
  else if (current.distributions) redraw({ distributions: current.distributions });
  showPlace();
}

screen(async () => {
  await load();
  byId("rate").addEventListener("input", showPlace);
  byId("back").addEventListener("click", () => {
    byId("rate").value = String(placeInUse());
    showPlace();
  });
  byId("apply").hidden = !may("admin");
  onSubmit(byId("slider-form"), byId("apply-errors"), async () => {
    const one = curve[Number(byId("rate").value)];
    await post(path(galleryId, "calibrations"), one.kind === "fmr" ? { fmr: one.target } : { fpir: one.target });
    await load();
    say(`Applied: the threshold is ${score(current.threshold)} now.`);
  });
  onSubmit(byId("given-form"), byId("given-errors"), async (data) => {
    await post(path(galleryId, "calibrations"), { threshold: Number(data.get("threshold")) });
    await load();
    say(`The threshold is ${score(current.threshold)} now, set by hand.`);
  });
});
