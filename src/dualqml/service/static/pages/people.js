// SPDX-License-Identifier: BSD-3-Clause
import { get, path, post } from "/static/api.js";
import { busy, byId, el, message, put, settled, showError } from "/static/dom.js";
import { galleryId, getPage, hasRun, loadGallery, may, pager, screen, showJob } from "/static/layout.js";
import { badges, statusLines } from "/static/health.js";
import { faceOf, hasPictures } from "/static/pictures.js";
import { count, sampleWord, when } from "/static/words.js";

const PAGE = 30;
let gallery;
let query = "";
let asked = 0;

const personAddress = (id) => `/g/${encodeURIComponent(galleryId)}/people/${encodeURIComponent(id)}`;

/** Show a picture of each person. The list does not name one, so samples are asked for. */
async function addPictures(waiting) {
  const next = async () => {
    const one = waiting.shift();
    if (!one) return;
    const samples = await getPage(path(galleryId, "subjects", one.subject.id, "samples"), { limit: 10 });
    const kept = samples.items.find((sample) => sample.has_image);
    if (kept) one.face.replaceWith(faceOf(kept, "", one.subject.name));
    await next();
  };
  await Promise.all([next(), next(), next()]).catch(() => null);
}

function row(subject, face) {
  return el("li", {}, face, el("div", {},
    el("a", { href: personAddress(subject.id) }, subject.name),
    el("div", { class: "more-of-it" }, sampleWord(gallery, subject.n_samples)),
    el("div", { class: "badges" }, subject.n_samples ? badges(subject.findings) : el("span", { class: "badge warn" }, "Nothing to recognise yet"))));
}

function show(page) {
  const waiting = [];
  for (const subject of page.items) {
    const face = faceOf(null, subject.name);
    byId("people").append(row(subject, face));
    if (hasPictures(gallery) && subject.n_samples) waiting.push({ subject, face });
  }
  addPictures(waiting);
}

async function list(after = null) {
  const turn = (asked += 1);
  const page = await getPage(path(galleryId, "subjects"), { limit: PAGE, after, q: query });
  if (turn !== asked) return undefined;
  if (after === null) put(byId("people"));
  show(page);
  const found = byId("found");
  if (page.total) found.textContent = query ? `${count(page.total, "person", "people")} found.` : `${count(page.total, "person", "people")}.`;
  else if (query) found.textContent = "Nobody has such a name.";
  else put(found);
  return page.next;
}

function showHealth(health) {
  const host = byId("health");
  const check = byId("check");
  check.textContent = health ? "Check again" : "Check the gallery";
  if (!health) {
    put(host, el("p", { class: "quiet-text" }, "There is no check yet. A check looks for samples that do not fit, for people who may be entered twice, and for people with few samples."));
    return;
  }
  const age = health.current ? `Checked ${when(health.created_at)}.` : `Checked ${when(health.created_at)}, before the last changes.`;
  if (!health.findings.length) {
    put(host, message("good", `Nothing to worry about. ${age}`));
    return;
  }
  const sorted = [...health.findings].sort((a, b) => b.severity - a.severity);
  // Most texts begin with the name, which is the link.
  const rest = ({ name, text }) => text.startsWith(name) ? text.slice(name.length) : `: ${text}`;
  const line = (finding) => el("li", {}, badges([finding]), " ",
    el("a", { href: personAddress(finding.subject_id) }, finding.name), rest(finding));
  const [first, others] = [sorted.slice(0, 5), sorted.slice(5)];
  put(host, el("p", { class: "quiet-text" }, `${count(health.findings.length, "thing")} to look at. ${age}`),
    el("ul", { class: "plain findings" }, first.map(line)),
    others.length ? el("details", {}, el("summary", {}, `${others.length} more`), el("ul", { class: "plain findings" }, others.map(line))) : null);
}

async function loadHealth() {
  showHealth(may("enrol") && await hasRun("health") ? await get(path(galleryId, "health")) : null);
}

screen(async () => {
  ({ gallery } = await loadGallery());
  const isEmpty = gallery.n_subjects === 0;
  const first = message("info", "Nobody is here yet. Add the first person, with three to five different samples. Add others in the same way. Then try a photo.",
    el("div", { class: "actions start" }, el("a", { class: "button primary", href: `/g/${encodeURIComponent(galleryId)}/add` }, "Add the first person")));
  put(byId("status"), isEmpty ? first : statusLines(gallery));
  for (const id of ["health-section", "list-section"]) byId(id).hidden = isEmpty;
  byId("add-person").hidden = isEmpty;
  const more = pager(byId("more"), list);
  const again = () => list().then(more).catch((error) => showError(byId("page-errors"), error));
  byId("search").addEventListener("input", settled(() => {
    query = byId("search").value.trim();
    again();
  }));
  byId("search-form").addEventListener("submit", (event) => event.preventDefault());
  const check = byId("check");
  check.hidden = !may("enrol");
  check.addEventListener("click", () => busy(check, byId("health-errors"), async () => {
    const job = await post(path(galleryId, "health"));
    await showJob(byId("health-job"), "Checking the gallery", job);
    await loadHealth();
    await again();
  }));
  more(await list());
  await loadHealth();
});
