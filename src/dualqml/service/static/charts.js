// SPDX-License-Identifier: BSD-3-Clause
// Charts as inline SVG. Colours are classes of the style sheet, so they follow light
// and dark. Each chart is drawn for the width that it gets, so its text keeps its size.

import { el, put, svg } from "/static/dom.js";
import { score } from "/static/words.js";

/** Draw now, and again when the width changes. Returns a function that draws again. */
function responsive(host, draw) {
  let drawn = 0;
  const again = () => {
    const width = Math.floor(host.clientWidth);
    if (width > 0) {
      drawn = width;
      put(host, draw(width));
    }
  };
  new ResizeObserver(() => {
    if (Math.floor(host.clientWidth) !== drawn) again();
  }).observe(host);
  again();
  return again;
}

/** Round numbers between two numbers. */
function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

/** The range of scores that all that is shown needs. */
function scoreRange(distributions, threshold, scores) {
  const all = scores.filter(Number.isFinite);
  if (Number.isFinite(threshold)) all.push(threshold);
  if (distributions) {
    // Empty bins at the ends would only push everything together.
    const { edges, strangers, enrolled } = distributions;
    const used = strangers.map((number, k) => number + enrolled[k] > 0);
    const first = Math.max(0, used.indexOf(true));
    const last = Math.max(first, used.lastIndexOf(true));
    all.push(edges[first], edges[last + 1]);
  }
  if (!all.length) return [0, 1];
  const low = Math.min(...all);
  const high = Math.max(...all);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - room, high + room];
}

/** The outline of a histogram as a path of steps. */
function outline(edges, counts, x, base, height) {
  const peak = Math.max(...counts);
  if (!(peak > 0)) return "";
  let text = "";
  let open = false;
  counts.forEach((number, k) => {
    if (number > 0) {
      const y = base - (number / peak) * height;
      text += `${open ? "L" : `M${x(edges[k]).toFixed(1)},${base}L`}${x(edges[k]).toFixed(1)},${y.toFixed(1)}L${x(edges[k + 1]).toFixed(1)},${y.toFixed(1)}`;
      open = true;
    }
    if (open && (number === 0 || k === counts.length - 1)) {
      text += `L${x(edges[number === 0 ? k : k + 1]).toFixed(1)},${base}Z`;
      open = false;
    }
  });
  return text;
}

function describe({ threshold, candidates, distributions }) {
  const parts = [];
  if (Number.isFinite(threshold)) parts.push(`The threshold is ${score(threshold)}.`);
  if (candidates.length) {
    parts.push(`Scores: ${candidates.map((one) => `${one.name} ${score(one.score)}`).join(", ")}.`);
  }
  const shown = groupsOf(distributions);
  if (shown.length) parts.push(`Histograms show the scores of ${shown.map(([, text]) => text).join(" and of ")}.`);
  return parts.join(" ");
}

/** The histograms that have something to show, as classes and words. */
function groupsOf(distributions) {
  const groups = [["strangers", "strangers"], ["enrolled", "enrolled people"]];
  return groups.filter(([name]) => distributions?.[name].some((number) => number > 0));
}

/**
 * A scale of scores: the two distributions of the calibration, the threshold as a line,
 * and candidates as dots below. Returns a function that changes some of it.
 */
export function scoreScale(host, given) {
  const state = { distributions: null, threshold: null, candidates: [], height: 84, ...given };
  const draw = (width) => {
    const { distributions, threshold, candidates } = state;
    const left = 6;
    const top = 24;
    const ridge = distributions ? state.height : 12;
    const base = top + ridge;
    const row = 30;
    const rowsEnd = base + candidates.length * row;
    const axis = rowsEnd + 8;
    const height = axis + 42;
    const [low, high] = scoreRange(distributions, threshold, candidates.map((one) => one.score));
    const x = linear(low, high, left, width - left);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe(state) });
    if (distributions) {
      root.append(
        svg("path", { class: "area strangers", d: outline(distributions.edges, distributions.strangers, x, base, ridge) }),
        svg("path", { class: "area enrolled", d: outline(distributions.edges, distributions.enrolled, x, base, ridge) }));
    }
    root.append(svg("line", { class: "axis", x1: left, x2: width - left, y1: base, y2: base }));
    if (Number.isFinite(threshold)) {
      root.append(svg("line", { class: "threshold", x1: x(threshold), x2: x(threshold), y1: top - 6, y2: axis }));
    }
    candidates.forEach((one, k) => {
      const y = base + row * (k + 0.5) + 4;
      const at = x(one.score);
      const above = Number.isFinite(threshold) && one.score >= threshold;
      const toLeft = at > width * 0.5;
      root.append(
        svg("line", { class: "guide", x1: left, x2: width - left, y1: y, y2: y }),
        svg("circle", { class: `dot${above ? " above" : ""}`, cx: at, cy: y, r: above ? 7 : 5.5 }),
        svg("text", {
          class: `dot-label${above ? " strong" : ""}`, x: at + (toLeft ? -13 : 13), y: y + 4.5,
          "text-anchor": toLeft ? "end" : "start",
        }, `${shorten(one.name, width)}  ${score(one.score)}`));
    });
    root.append(svg("line", { class: "axis", x1: left, x2: width - left, y1: axis, y2: axis }));
    for (const value of ticks(low, high, Math.max(5, Math.floor(width / 80)))) {
      const at = x(value);
      if (at < 14 || at > width - 14) continue;
      root.append(
        svg("line", { class: "axis", x1: at, x2: at, y1: axis, y2: axis + 5 }),
        svg("text", { class: "tick", x: at, y: axis + 19, "text-anchor": "middle" }, String(value).replace("-", "\u2212")));
    }
    root.append(svg("text", { class: "axis-label", x: width - left, y: axis + 37, "text-anchor": "end" }, "score: higher is more alike →"));
    if (Number.isFinite(threshold)) {
      const at = x(threshold);
      const anchor = at < 110 ? "start" : at > width - 110 ? "end" : "middle";
      const near = anchor === "start" ? Math.max(left, at - 4) : anchor === "end" ? Math.min(width - left, at + 4) : at;
      root.append(svg("text", { class: "threshold-label", x: near, y: top - 11, "text-anchor": anchor }, `threshold ${score(threshold)}`));
    }
    return root;
  };
  const plot = el("div", { class: "chart" });
  host.append(plot);
  const legend = el("p", { class: "legend" });
  host.append(legend);
  const tell = () => {
    const shown = groupsOf(state.distributions);
    put(legend, shown.map(([name, text]) => [el("span", { class: `key ${name}` }, text), " "]).flat(),
      shown.length > 1 ? el("span", { class: "quiet-text" }, "Both are drawn to the same height.") : null);
  };
  const again = responsive(plot, draw);
  tell();
  return (change) => {
    Object.assign(state, change);
    tell();
    again();
  };
}

function shorten(name, width) {
  const most = Math.max(10, Math.floor(width / 18));
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** A table with all numbers of a chart, folded away. */
export function tableOf(caption, heads, rows) {
  return el("details", { class: "numbers" }, el("summary", {}, "The same as a table"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      el("table", { class: "plain" }, el("caption", {}, caption),
        el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", class: "number" }, head)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, k) =>
          k ? el("td", { class: "number" }, cell) : el("th", { scope: "row", class: "number" }, cell))))))));
}

/** Positions of an axis, linear or logarithmic. Zeros of a logarithmic axis lie on its end. */
function scaleOf({ log, low, high }, from, to) {
  if (!log) return linear(low, high, from, to);
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  return (value) => inner(Math.log10(Math.min(high, Math.max(low, value))));
}

function axisTicks({ log, low, high, whole }, wanted) {
  if (!log) {
    const found = ticks(low, high, wanted);
    // Ranks begin with 1, which no round step meets.
    return whole ? [low, ...found.filter((value) => Number.isInteger(value) && value - low > (high - low) / 15)] : found;
  }
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of wanted > 8 ? [1, 2, 5] : [1]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

/**
 * A line chart with axes and labels. x, y: {label, low, high, log, whole, format};
 * points: [[x, y], ...]; marks: [{x, y, text}]. A pointer reads off values.
 */
export function lineChart(host, { title, x, y, points, marks = [], steps = false }) {
  const draw = (width) => {
    const height = Math.round(Math.min(320, Math.max(230, width * 0.6)));
    const [left, right, top, bottom] = [78, 24, 14, 50];
    const px = scaleOf(x, left, width - right);
    const py = scaleOf(y, height - bottom, top);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const below = (axis, k) => axis.log && points.some((point) => point[k] < axis.low);
    // What is below a logarithmic axis, such as a zero, lies on its edge. The edge says so.
    const named = (axis, k) => (value) => (value === axis.low && below(axis, k) ? "≤\u00a0" : "") + axis.format(value);
    const [nameX, nameY] = [named(x, 0), named(y, 1)];
    for (const value of axisTicks(y, 5)) {
      root.append(
        svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
        svg("text", { class: "tick", x: left - 8, y: py(value) + 4, "text-anchor": "end" }, nameY(value)));
    }
    for (const value of axisTicks(x, Math.floor(width / 80))) {
      root.append(
        svg("line", { class: "grid", x1: px(value), x2: px(value), y1: top, y2: height - bottom }),
        svg("text", { class: "tick", x: px(value), y: height - bottom + 18, "text-anchor": "middle" }, nameX(value)));
    }
    root.append(
      svg("path", { class: "axis", fill: "none", d: `M${left},${top}V${height - bottom}H${width - right}` }),
      svg("text", { class: "axis-label", x: (left + width - right) / 2, y: height - 10, "text-anchor": "middle" }, x.label),
      svg("text", {
        class: "axis-label", "text-anchor": "middle",
        transform: `translate(13 ${(top + height - bottom) / 2}) rotate(-90)`,
      }, y.label));
    const path = points.map(([a, b], k) => {
      const [u, v] = [px(a).toFixed(1), py(b).toFixed(1)];
      return k === 0 ? `M${u},${v}` : steps ? `H${u}V${v}` : `L${u},${v}`;
    }).join("");
    root.append(svg("path", { class: "line", d: path }));
    if (points.length <= 25) {
      for (const [a, b] of points) root.append(svg("circle", { class: "point", cx: px(a), cy: py(b), r: 3.2 }));
    }
    for (const mark of marks) {
      const [u, v] = [px(mark.x), py(mark.y)];
      const toLeft = u > width * 0.55;
      root.append(
        svg("circle", { class: "mark", cx: u, cy: v, r: 6 }),
        svg("text", { class: "mark-label", x: u + (toLeft ? -11 : 11), y: v - 9 < top + 10 ? v + 22 : v - 9, "text-anchor": toLeft ? "end" : "start" }, mark.text));
    }
    addReadout(root, { width, height, left, right, top, bottom, px, py, points, x, y });
    return root;
  };
  const plot = el("div", { class: "chart" });
  host.append(plot);
  responsive(plot, draw);
}

function addReadout(root, { width, height, left, right, top, bottom, px, py, points, x, y }) {
  if (!points.length) return;
  const line = svg("line", { class: "reading", y1: top, y2: height - bottom });
  const dot = svg("circle", { class: "mark", r: 5 });
  const text = svg("text", { class: "mark-label" });
  const group = svg("g", { visibility: "hidden", "aria-hidden": "true" }, line, dot, text);
  root.append(group);
  root.addEventListener("pointermove", (event) => {
    const at = event.clientX - root.getBoundingClientRect().left;
    const nearest = points.reduce((best, point) =>
      Math.abs(px(point[0]) - at) < Math.abs(px(best[0]) - at) ? point : best);
    const [u, v] = [px(nearest[0]), py(nearest[1])];
    const toLeft = u > (left + width - right) / 2;
    line.setAttribute("x1", u);
    line.setAttribute("x2", u);
    dot.setAttribute("cx", u);
    dot.setAttribute("cy", v);
    text.setAttribute("x", u + (toLeft ? -9 : 9));
    text.setAttribute("y", Math.min(height - bottom - 8, Math.max(top + 12, v + 20)));
    text.setAttribute("text-anchor", toLeft ? "end" : "start");
    text.textContent = `${x.format(nearest[0])} → ${y.format(nearest[1])}`;
    group.setAttribute("visibility", "visible");
  });
  root.addEventListener("pointerleave", () => group.setAttribute("visibility", "hidden"));
}

/** Bars to the right (for) or left (against), with their names and numbers in a list. */
export function partBars(parts) {
  const most = Math.max(...parts.map((part) => Math.abs(part.value)), 1e-12);
  return el("ul", { class: "parts" }, parts.map((part) => {
    const bar = el("span", { class: `part-bar${part.value < 0 ? " against" : ""}` });
    bar.style.width = `${Math.max(1, (50 * Math.abs(part.value)) / most).toFixed(1)}%`;
    return el("li", {}, el("span", { class: "part-name" }, part.name),
      el("span", { class: "part-track", "aria-hidden": "true" }, bar),
      el("span", { class: "part-value" }, score(part.value)));
  }));
}
