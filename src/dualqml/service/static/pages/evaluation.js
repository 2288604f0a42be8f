// SPDX-License-Identifier: BSD-3-Clause
import { get, path, post } from "/static/api.js";
import { busy, byId, el, message, put } from "/static/dom.js";
import { lineChart, tableOf } from "/static/charts.js";
import { galleryId, hasRun, loadGallery, may, screen, showJob } from "/static/layout.js";
import { count, percent, when } from "/static/words.js";

const zip = (first, second) => first.map((value, k) => [value, second[k]]);

/** The low end of a logarithmic axis of rates. */
function lowEnd(values) {
  const least = Math.min(...values.filter((value) => value > 0), 0.1);
  return Math.max(1e-5, 10 ** Math.floor(Math.log10(least)));
}

/** Some rows of a long table, spread over it. */
function thinned(rows, most = 40) {
  if (rows.length <= most) return rows;
  return Array.from({ length: most }, (_, k) => rows[Math.round((k * (rows.length - 1)) / (most - 1))]);
}

function showCmc(cmc) {
  const host = put(byId("cmc"));
  const points = cmc.map((rate, k) => [k + 1, rate]);
  const least = Math.min(...cmc);
  const low = least >= 0.9 ? 0.9 : least >= 0.5 ? 0.5 : 0;
  lineChart(host, {
    title: `Cumulative match curve: the right person is first in ${percent(cmc[0])} and among the first ${cmc.length} in ${percent(cmc.at(-1))} of searches.`,
    x: { label: "rank: among the first …", low: 1, high: Math.max(2, cmc.length), whole: true, format: String },
    y: { label: "right person found", low, high: 1, format: percent },
    points, marks: [{ x: 1, y: cmc[0], text: `first: ${percent(cmc[0])}` }],
  });
  host.append(tableOf("How often the right person is among the first few", ["Rank", "Found"], points.map(([rank, rate]) => [String(rank), percent(rate)])));
}

function showRates(id, { title, caption, xLabel, yLabel, heads, points, logY }) {
  const host = put(byId(id));
  if (!points.length) {
    host.append(el("p", { class: "quiet-text" }, "There is not enough data for this curve."));
    return;
  }
  const ordered = [...points].sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const highest = Math.max(...ordered.map((point) => point[1]), 0.01);
  const y = logY
    ? { label: yLabel, log: true, low: lowEnd(ordered.map((point) => point[1])), high: 1, format: percent }
    : { label: yLabel, low: 0, high: Math.min(1, highest * 1.1), format: percent };
  lineChart(host, {
    title, y, points: ordered,
    x: { label: xLabel, log: true, low: lowEnd(ordered.map((point) => point[0])), high: 1, format: percent },
  });
  host.append(tableOf(caption, heads, thinned(ordered).map((point) => point.map(percent))));
}

function show(evaluation) {
  byId("charts").hidden = !evaluation;
  byId("run").textContent = evaluation ? "Run it again" : "Run the evaluation";
  if (!evaluation) {
    put(byId("summary"), el("p", { class: "quiet-text" }, "There is no result yet. Run the evaluation to see the curves. An erasure also takes older results away."));
    return;
  }
  put(byId("summary"),
    el("p", {}, `The right person was first in ${percent(evaluation.cmc[0])} of the searches for people of the gallery.`),
    el("p", { class: "quiet-text" }, `Run ${when(evaluation.created_at)}, with ${count(evaluation.n_mated, "search", "searches")} for people of the gallery and ${count(evaluation.n_strangers, "search", "searches")} for strangers.`),
    evaluation.current ? null : message("warn", "The gallery has changed since then. Run it again to see the newest state."));
  showCmc(evaluation.cmc);
  showRates("open", {
    title: "Open-set curve: misses of enrolled people for each rate of strangers taken for somebody.",
    caption: "Strangers taken for somebody, and enrolled people missed",
    xLabel: "strangers taken for somebody (FPIR)", yLabel: "enrolled people missed (FNIR)", heads: ["FPIR", "FNIR"],
    points: zip(evaluation.open_set.fpir, evaluation.open_set.fnir),
  });
  showRates("det", {
    title: "Detection error tradeoff: false non-match rate for each false match rate.",
    caption: "False matches and false non-matches",
    xLabel: "false match rate (FMR)", yLabel: "false non-match rate (FNMR)", heads: ["FMR", "FNMR"], logY: true,
    points: zip(evaluation.det.fmr, evaluation.det.fnmr),
  });
}

async function load() {
  show(may("enrol") && await hasRun("evaluation") ? await get(path(galleryId, "evaluation")) : null);
}

screen(async () => {
  const { gallery } = await loadGallery();
  const run = byId("run");
  run.hidden = !may("enrol") || gallery.n_samples === 0;
  if (gallery.n_samples) await load();
  else put(byId("summary"), message("info", el("p", {}, "This gallery is empty. ", el("a", { href: `/g/${encodeURIComponent(galleryId)}/add` }, "Add somebody first"), ".")));
  run.addEventListener("click", () => busy(run, byId("run-errors"), async () => {
    const job = await post(path(galleryId, "evaluation"));
    await showJob(byId("run-job"), "Evaluating the gallery", job);
    await load();
  }));
});
