// SPDX-License-Identifier: BSD-3-Clause
import { getAll, getTagged, patch, path, remove } from "/static/api.js";
import { byId, confirmed, el, message, onSubmit, put, say } from "/static/dom.js";
import { badges } from "/static/health.js";
import { galleryId, hasRun, loadGallery, may, screen, today } from "/static/layout.js";
import { showReceipt } from "/static/receipt.js";
import { count, day, percent, sampleWord, score, when } from "/static/words.js";

const subjectId = document.body.dataset.subject;
const own = (...parts) => path(galleryId, "subjects", subjectId, ...parts);
let gallery;
let subject;
let etag;
let checked = false;

async function load() {
  [subject, etag] = await getTagged(own());
  document.title = `${subject.name} · dualqml`;
  byId("name").textContent = subject.name;
  byId("new-name").value = subject.name;
  byId("expires").value = subject.expires_at ? subject.expires_at.slice(0, 10) : "";
  byId("facts").textContent = [
    sampleWord(gallery, subject.n_samples), `added ${day(subject.created_at)}`,
    subject.expires_at ? `erased by itself on ${day(subject.expires_at)}` : "no expiry",
  ].join(" · ");
  showFindings();
}

function showFindings() {
  put(byId("findings"), subject.findings.map((finding) =>
    message(finding.kind === "few samples" ? "info" : "warn", el("p", {}, badges([finding]), " ", finding.text))));
  const others = new Map();
  for (const finding of subject.findings) {
    if (finding.other_id && finding.other_id !== subjectId) others.set(finding.other_id, finding);
  }
  put(byId("alike"), others.size
    ? el("ul", {}, [...others.values()].map((finding) => el("li", {},
      el("a", { href: `/g/${encodeURIComponent(galleryId)}/people/${encodeURIComponent(finding.other_id)}` }, finding.other_name ?? "Somebody"),
      finding.score !== null && finding.score !== undefined ? ` (score ${score(finding.score)})` : "", ": ", finding.text)))
    : el("p", { class: "quiet-text" }, checked
      ? "The last check of the gallery found nobody who could be mixed up with this person."
      : ["There is no check of the gallery yet. Start one on the screen ", el("a", { href: `/g/${encodeURIComponent(galleryId)}/people` }, "People"), "."]));
}

async function eraseSample(sample) {
  const receipt = await confirmed({
    title: "Erase this sample?",
    text: subject.n_samples === 1
      ? "It is the only sample of this person. Without it the person cannot be recognised."
      : "It is removed from the database and from the model. This cannot be undone.",
    yes: "Erase the sample",
  }, () => remove(path(galleryId, "samples", sample.id)));
  if (!receipt) return;
  if (receipt !== true) await showReceipt(receipt);
  await load();
  await loadSamples();
  // The button is gone with its sample.
  byId("samples-title").focus();
}

function sampleCard(sample) {
  // A sample of a folder has the name "PERSON/FILE".
  const name = sample.name.split("/").at(-1);
  const picture = sample.has_image
    ? el("div", { class: "face" }, el("img", { src: path(galleryId, "samples", sample.id, "image"), alt: `Sample ${name}`, loading: "lazy" }))
    : el("div", { class: "face" }, gallery.inputs === "vectors" ? "A vector has no picture" : "No picture is kept");
  const fit = sample.fit === null || sample.fit === undefined ? "Fit: not checked yet" : `Fit: ${score(sample.fit)}`;
  return el("li", {}, picture, el("div", { class: "what" },
    el("p", {}, el("strong", {}, fit)),
    el("p", { class: "quiet-text" }, [name, sample.quality !== null && sample.quality !== undefined ? `quality ${percent(sample.quality)}` : "", when(sample.created_at)].filter(Boolean).join(" · ")),
    badges(sample.findings),
    may("enrol") ? el("div", { class: "actions" }, el("button", {
      type: "button", class: "small danger", "aria-label": `Erase sample ${name}`, onclick: () => eraseSample(sample),
    }, "Erase")) : null));
}

async function loadSamples() {
  const samples = await getAll(own("samples"), 500);
  const known = (sample) => sample.fit !== null && sample.fit !== undefined;
  samples.sort((a, b) => (known(b) - known(a)) || (known(a) ? a.fit - b.fit : 0));
  put(byId("samples"), samples.map(sampleCard));
  byId("fit-help").hidden = samples.length === 0;
  byId("no-samples").hidden = samples.length > 0;
}

async function erase() {
  const receipt = await confirmed({
    title: `Erase ${subject.name}?`,
    text: [
      `The name, ${count(subject.n_samples, "sample")} and all pictures are removed from the database and from the model. Strangers that look like this person are removed too.`,
      "This cannot be undone. You get a receipt.",
    ],
    yes: `Erase ${subject.name}`,
  }, () => remove(own(), etag));
  if (!receipt) return;
  if (receipt !== true) await showReceipt(receipt);
  location.assign(`/g/${encodeURIComponent(galleryId)}/people`);
}

screen(async () => {
  ({ gallery } = await loadGallery());
  checked = await hasRun("health");
  await load();
  await loadSamples();
  byId("expires").min = today();
  byId("erase").addEventListener("click", erase);
  byId("erase").disabled = false;
  onSubmit(byId("rename"), byId("edit-errors"), async (data) => {
    const changes = {};
    const name = data.get("name").trim();
    const expires = data.get("expires");
    if (name !== subject.name) changes.name = name;
    if (expires !== (subject.expires_at ?? "").slice(0, 10)) changes.expires_at = expires ? `${expires}T23:59:59Z` : null;
    if (!Object.keys(changes).length) {
      say("Nothing has changed.");
      return;
    }
    try {
      await patch(own(), changes, etag);
      say("Saved.");
    } catch (error) {
      if (error.status !== 412) throw error;
      await load();
      throw new Error("Somebody else has changed this person in the meantime. You see the newest state now.");
    }
    await load();
  });
});
