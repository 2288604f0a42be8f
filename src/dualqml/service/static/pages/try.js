// SPDX-License-Identifier: BSD-3-Clause
import { get, getBlob, path, post, upload } from "/static/api.js";
import { currentCalibration } from "/static/calibration.js";
import { partBars, scoreScale } from "/static/charts.js";
import { busy, byId, el, message, onSubmit, put, say, showError, svg } from "/static/dom.js";
import { statusLines } from "/static/health.js";
import { galleryId, loadGallery, may, screen } from "/static/layout.js";
import { cutFace, readVectors, setUpPicker } from "/static/photos.js";
import { faceOf } from "/static/pictures.js";
import { askWho, ensurePerson, nameStranger } from "/static/who.js";
import { percent, reason, score, withMinus } from "/static/words.js";

let gallery;
let distributions = null;
let scales = [];
let shownUrl = null;
let turn = 0;

/** The name of a person, with a link for those who may see the person. */
const personLink = (id, name) => may("enrol")
  ? el("a", { href: `/g/${encodeURIComponent(galleryId)}/people/${encodeURIComponent(id)}` }, name) : name;
const strangersLink = (text, type = null) => el("a", { class: type, href: `/g/${encodeURIComponent(galleryId)}/strangers` }, text);

/** What was tried: a file or a vector, and how to send it. */
const fileProbe = (file) => ({
  file,
  send: (address, fields = {}) => upload(address, [["file", file, file.name], ...Object.entries(fields)]),
});
const vectorProbe = (vector) => ({
  vector,
  send: (address, fields = {}) => post(address, { vector, ...fields }),
});

/** The probe for one face alone, where the photograph shows several. */
async function probeOf(probe, face, answer) {
  if (!probe.file || answer.faces.length < 2 || !face.box) return probe;
  return fileProbe(await cutFace(probe.file, face.box, answer));
}

const decisionOf = (face) => face.decision === "match" ? face.subject.name : "Unknown";

function sentenceOf(face, answer) {
  const best = face.candidates[0];
  if (face.decision === "match") {
    return `The score ${score(face.score)} reaches the threshold ${score(answer.threshold)}.`;
  }
  return best
    ? `Nobody in the gallery reaches the threshold ${score(answer.threshold)}. The nearest is ${best.name} with ${score(best.score)}.`
    : "There is nobody to compare with.";
}

function showPhoto(probe, answer) {
  if (shownUrl) URL.revokeObjectURL(shownUrl);
  shownUrl = null;
  const host = byId("photo");
  put(host);
  if (!probe.file) return;
  shownUrl = URL.createObjectURL(probe.file);
  const { width, height } = answer;
  const boxed = width && height && answer.faces.some((face) => face.box);
  const small = Math.max(width ?? 0, height ?? 0) < 260;
  const frame = el("div", { class: `photo${small ? " tiny" : ""}` }, el("img", { src: shownUrl, alt: "The photo that you tried" }));
  if (boxed) {
    const overlay = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    answer.faces.forEach((face, k) => {
      if (!face.box) return;
      const { left, top, right, bottom } = face.box;
      const kind = face.decision === "match" ? "match" : "";
      overlay.append(svg("g", { class: kind, onclick: () => byId(`face-${k}`).scrollIntoView({ behavior: "smooth" }) },
        svg("rect", { x: left, y: top, width: right - left, height: bottom - top })));
      // A single face needs no number: its answer stands beside the photo.
      if (answer.faces.length === 1) return;
      const inside = top < 0.1 * height ? " inside" : "";
      const tag = el("span", { class: `tag ${kind}${inside}`, "aria-hidden": "true" }, `${k + 1}`, el("span", {}, `. ${decisionOf(face)}`));
      if (left > 0.6 * width) tag.style.right = `${Math.max(0, 100 - (100 * right) / width)}%`;
      else tag.style.left = `${Math.max(0, (100 * left) / width)}%`;
      tag.style.top = `${Math.max(0, (100 * top) / height)}%`;
      frame.append(tag);
    });
    frame.append(overlay);
  }
  host.append(frame);
}

function candidateTable(candidates) {
  return el("details", { class: "numbers" }, el("summary", {}, "The same as a table"),
    el("table", { class: "plain" }, el("caption", { class: "for-readers" }, "The most similar people"),
      el("thead", {}, el("tr", {}, ["Person", "Score", "Probability"].map((head, k) => el("th", { scope: "col", class: k ? "number" : null }, head)))),
      el("tbody", {}, candidates.map((one) => el("tr", {},
        el("th", { scope: "row" }, personLink(one.subject_id, one.name)),
        el("td", { class: "number" }, score(one.score)),
        el("td", { class: "number" }, one.probability === null ? "–" : percent(one.probability)))))));
}

/** Why this match: the words and parts of the explanation, and the nearest sample. */
function why(face) {
  const { explanation } = face;
  if (!explanation) return null;
  const nearestFace = el("span", { hidden: true });
  const { nearest, parts } = explanation;
  if (nearest && may("enrol")) showNearest(nearestFace, nearest).catch(() => null);
  return el("div", { class: "why" },
    el("h4", {}, face.decision === "match" ? "Why this match" : "Why nobody"),
    el("div", { class: "head" }, nearestFace, el("div", {},
      explanation.text ? el("p", {}, withMinus(explanation.text)) : null,
      nearest ? el("p", { class: "quiet-text" }, "The nearest sample is of ", personLink(nearest.subject_id, nearest.name), ` (cosine ${score(nearest.cosine)}; 1 is the same ${gallery.inputs === "vectors" ? "vector" : "picture"}).`) : null)),
    parts?.length ? [el("p", { class: "quiet-text" }, "What the score is made of. Bars to the right speak for it, bars to the left against it."), partBars(parts)] : null);
}

async function showNearest(host, nearest) {
  const page = await get(`${path(galleryId, "subjects", nearest.subject_id, "samples")}?limit=200`);
  const sample = page.items.find((one) => one.id === nearest.sample_id);
  if (sample?.has_image) host.replaceWith(faceOf(sample, nearest.name, `The nearest sample of ${nearest.name}`));
}

function buttons(probe, face, answer, said) {
  if (!may("enrol")) return null;
  const found = [];
  const errors = el("div", {});
  const enrol = el("button", { type: "button", class: "quiet" }, "Enrol as …");
  enrol.addEventListener("click", () => enrolAs(probe, face, answer, said));
  if (face.decision === "match") {
    const wrong = el("button", { type: "button", class: "quiet" }, `Not ${face.subject.name}`);
    wrong.addEventListener("click", () => busy(wrong, errors, async () => {
      if (!gallery.keep_strangers) {
        put(said, message("info", el("p", {}, "This gallery keeps no strangers, so the face cannot be put aside. Give it the right name with “Enrol as …”, or ", strangersLink("keep strangers"), " and try the photo again.")));
        return;
      }
      const one = await probeOf(probe, face, answer);
      await one.send(path(galleryId, "strangers"), { not_subject: face.subject.id });
      put(said, message("good", el("p", {}, `Noted: this is not ${face.subject.name}. The face is kept among the `, strangersLink("strangers"), ", where you can name it.")));
      wrong.remove();
      enrol.focus();
    }));
    found.push(wrong);
  }
  if (face.stranger_id) found.push(strangersLink("See among the strangers", "button quiet"));
  found.push(enrol);
  return [el("div", { class: "actions start" }, found), errors];
}

async function enrolSample(probe, person) {
  const address = path(galleryId, "subjects", person.id, "samples");
  const request = probe.file
    ? upload(address, [["files", probe.file, probe.file.name]], { once: true })
    : post(address, { vectors: [probe.vector] }, { once: true });
  const { outcomes: [outcome] } = await request.catch((error) => error.problem?.outcomes ? error.problem : Promise.reject(error));
  if (outcome.status !== "enrolled") throw new Error(reason(outcome));
}

async function enrolAs(probe, face, answer, said) {
  const guess = face.decision === "match" ? face.subject : null;
  const kept = face.stranger_id;
  const text = kept ? "It becomes a sample of the person, with the other kept faces of this stranger." : "It becomes a sample of the person.";
  await askWho({ title: "Enrol this face", text, yes: "Enrol", subject: guess }, async (choice) => {
    const person = kept ? await nameStranger(kept, choice) : await ensurePerson(choice);
    if (!kept) await enrolSample(await probeOf(probe, face, answer), person);
    face.stranger_id = null;
    put(said, message("good", el("p", {}, "Enrolled as ", personLink(person.id, person.name), ".")));
    say(`Enrolled as ${person.name}.`);
  });
}

function faceCard(probe, face, answer, k) {
  const said = el("div", { "aria-live": "polite" });
  const scale = el("div", {});
  const isMatch = face.decision === "match";
  const facts = [];
  if (face.unknown_probability !== null) facts.push(`Probability that it is a stranger: ${percent(face.unknown_probability)}.`);
  if (!isMatch && face.unknown_probability !== null && face.unknown_probability < 0.5) facts.push("It is low, but the threshold is strict: better “unknown” than a wrong name.");
  if (face.quality !== null) facts.push(`Quality of the face: ${percent(face.quality)}.`);
  const card = el("article", { class: `card answer-card${isMatch ? " match" : ""}`, id: `face-${k}`, "aria-labelledby": `face-${k}-title` },
    answer.faces.length > 1 ? el("p", { class: "quiet-text" }, `Face ${k + 1} of ${answer.faces.length}, from the left`) : null,
    el("h3", { class: "decision", id: `face-${k}-title` }, isMatch ? `This is ${face.subject.name}` : "Unknown"),
    el("p", {}, sentenceOf(face, answer)),
    facts.length ? el("p", { class: "quiet-text" }, facts.join(" ")) : null,
    scale, face.candidates.length ? candidateTable(face.candidates) : null,
    why(face), said, buttons(probe, face, answer, said));
  return { card, draw: () => scoreScale(scale, { distributions, threshold: answer.threshold, candidates: face.candidates, height: 70 }) };
}

function show(probe, answer) {
  answer.faces.sort((a, b) => (a.box?.left ?? 0) - (b.box?.left ?? 0));
  showPhoto(probe, answer);
  const cards = answer.faces.map((face, k) => faceCard(probe, face, answer, k));
  put(byId("faces"), cards.map((one) => one.card));
  byId("result").classList.toggle("beside", Boolean(probe.file) && answer.faces.length === 1);
  scales = cards.map((one) => one.draw());
  if (!answer.faces.length) put(byId("faces"), message("warn", "No face was found in this photo. Use one in which the face is well lit, not too small, and turned to the camera."));
  byId("answer-said").textContent = answer.faces.length
    ? answer.faces.map((face) => face.decision === "match" ? `This is ${face.subject.name}.` : "Unknown.").join(" ")
    : "No face was found.";
  const { calibration } = answer;
  const rate = calibration.kind === "given"
    ? `The threshold ${calibration.stale ? "is that of before the last erasure" : "was set by hand"}.`
    : `The threshold is for a ${calibration.kind === "fmr" ? "false match" : "false positive"} rate of ${percent(calibration.target)}${calibration.low !== null && calibration.high !== null ? ` (measured: between ${percent(calibration.low)} and ${percent(calibration.high)})` : ""}.`;
  byId("used").textContent = `Answered with revision ${answer.revision} of the gallery, model ${answer.model_id}. ${rate}${calibration.prior ? " It is a first guess." : ""}`;
}

/** Ask who it is. Only the last question is shown if several overlap. */
async function identify(probe) {
  const mine = (turn += 1);
  byId("answer").hidden = false;
  put(byId("try-errors"));
  put(byId("faces"), el("p", { class: "quiet-text", role: "status" }, "Looking…"));
  put(byId("photo"));
  put(byId("used"));
  try {
    const answer = await probe.send(`${path(galleryId, "identify")}?top=5&explain=true&wait=model`);
    if (mine !== turn) return;
    show(probe, answer);
    // The first answer may be that of a model that was not there before.
    if (!distributions) loadState().catch(() => null);
  } catch (error) {
    if (mine !== turn) return;
    put(byId("faces"));
    showError(byId("try-errors"), error.code ? new Error(reason({ code: error.code, detail: error.message, name: probe.file?.name })) : error);
  }
  byId("answer-title").scrollIntoView({ behavior: "smooth", block: "start" });
  byId("answer-title").focus({ preventScroll: true });
}

/** One stop of the Tab key for many buttons; the arrow keys go from one to the next. */
function useArrows(row) {
  const all = [...row.children];
  const choose = (chosen) => all.forEach((one) => { one.tabIndex = one === chosen ? 0 : -1; });
  const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  choose(all[0]);
  row.addEventListener("focusin", (event) => choose(event.target));
  row.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    const place = all.indexOf(document.activeElement) + steps[event.key];
    all[Math.max(0, Math.min(all.length - 1, place))].focus();
  });
}

async function showDemo() {
  const { items } = await get(path(galleryId, "demo-probes"));
  const host = byId("demo-strip");
  const strip = (title, probes) => {
    const row = el("div", { class: "strip", role: "toolbar", "aria-label": title });
    for (const one of probes) {
      const address = path(galleryId, "demo-probes", one.id, "image");
      const button = el("button", { type: "button", "aria-pressed": "false" },
        el("img", { src: address, alt: one.enrolled ? `${one.person}, enrolled, picture ${one.id}` : `${one.person}, a stranger, picture ${one.id}`, loading: "lazy", width: 92, height: 112 }));
      button.addEventListener("click", () => busy(button, byId("try-errors"), async () => {
        for (const other of host.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", String(other === button));
        const blob = await getBlob(address);
        await identify(fileProbe(new File([blob], `${one.id}.png`, { type: "image/png" })));
      }));
      row.append(button);
    }
    useArrows(row);
    host.append(el("p", { class: "strip-title" }, title), row);
  };
  strip("People of the gallery", items.filter((one) => one.enrolled));
  strip("Strangers", items.filter((one) => !one.enrolled));
  byId("demo").hidden = false;
}

function useScores(calibration) {
  distributions = calibration.distributions;
  for (const change of scales) change({ distributions });
}

/** What the gallery is like now, and the scores that its threshold was measured on. */
async function loadState() {
  ({ gallery } = await loadGallery());
  put(byId("status"), statusLines(gallery).slice(1),
    gallery.n_samples ? null : message("info", el("p", {}, "This gallery is empty. ", may("enrol") ? [el("a", { href: `/g/${encodeURIComponent(galleryId)}/add` }, "Add somebody first"), "."] : null)));
  if (gallery.calibration) useScores(await currentCalibration(useScores));
}

screen(async () => {
  await loadState();
  if (gallery.keep_strangers) byId("try-help").textContent = "Who is it? Nothing that you try here is enrolled. Unknown faces are kept among the strangers.";
  if (gallery.inputs === "vectors") {
    byId("give-pictures").hidden = true;
    byId("give-vectors").hidden = false;
    byId("try-title").textContent = "Try a vector";
    onSubmit(byId("vector-form"), byId("try-errors"), async () => {
      byId("answer").hidden = false;
      await identify(vectorProbe(readVectors(byId("vector").value)[0]));
    });
  } else {
    setUpPicker("try", ([file]) => identify(fileProbe(file)), { frame: gallery.inputs === "crops" ? gallery.size : null, once: true });
  }
  if (gallery.demo) await showDemo();
});
