// SPDX-License-Identifier: BSD-3-Clause
// The bar at the top, and what every screen of a gallery needs.

import { get, getAll, getTagged, path, remove, watchJob } from "/static/api.js";
import { busy, byId, el, message, put, showError } from "/static/dom.js";

const data = document.body.dataset;

export const galleryId = data.gallery ?? "";
const scopes = new Set((data.scopes ?? "").split(" "));

/** Whether the key of this session may do something: identify, enrol or admin. */
export const may = (scope) => scopes.has("admin") || scopes.has(scope);
/** Whether the key is for all galleries. */
export const isGlobal = () => !data.keyGallery;

/** This day, as a field for dates wants it. */
export const today = () => new Date().toISOString().slice(0, 10);

const REMEMBERED = "dualqml.gallery";

export function rememberGallery(id) {
  try {
    localStorage.setItem(REMEMBERED, id);
  } catch { /* A browser that keeps nothing shows the first gallery. */ }
}

export function rememberedGallery() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null;
  }
}

export async function signOut(button) {
  await busy(button, byId("page-errors"), async () => {
    await remove("/v1/session");
    location.assign("/login");
  });
}

function setUpBar() {
  const toggle = byId("menu-toggle");
  const menu = byId("menu");
  toggle?.addEventListener("click", () => {
    const open = toggle.getAttribute("aria-expanded") !== "true";
    toggle.setAttribute("aria-expanded", String(open));
    menu.classList.toggle("open", open);
  });
  const choice = byId("gallery-switch");
  if (!choice) return;
  choice.addEventListener("toggle", () => choice.open && listGalleries());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && choice.open) {
      choice.open = false;
      choice.querySelector("summary").focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (!choice.contains(event.target)) choice.open = false;
  });
}

async function listGalleries() {
  const host = byId("gallery-list");
  try {
    const galleries = await getAll("/v1/galleries");
    const screen = byId("menu")?.querySelector("[aria-current]")?.dataset.screen ?? "people";
    put(host,
      galleries.map((gallery) => el("li", {}, el("a", {
        href: `/g/${encodeURIComponent(gallery.id)}/${screen === "settings" ? "people" : screen}`,
        "aria-current": gallery.id === galleryId ? "true" : null,
      }, gallery.name))),
      may("admin") && isGlobal() && el("li", { class: "apart" }, el("a", { href: "/people?new" }, "New gallery…")));
  } catch (error) {
    showError(host, error);
  }
}

export function showGalleryName(name) {
  const label = byId("gallery-name");
  if (label) label.textContent = name;
}

/** The gallery of this screen, its name in the bar, and its tag. */
export async function loadGallery() {
  const [gallery, etag] = await getTagged(path(galleryId));
  showGalleryName(gallery.name);
  rememberGallery(gallery.id);
  return { gallery, etag };
}

/** Start a screen. A refusal is shown at the top of it. */
export async function screen(start) {
  setUpBar();
  const errors = byId("page-errors");
  try {
    await start();
    document.body.dataset.ready = "yes";
  } catch (error) {
    showError(errors, error);
    if (error.status === 404 && galleryId) {
      errors.append(message("info", el("p", {}, "It may have been erased, or your key may not see it. ",
        el("a", { href: "/people" }, "Choose another gallery"), ".")));
    }
    for (const waiting of document.querySelectorAll(".waiting")) waiting.remove();
    document.body.dataset.ready = error.status === 404 ? "missing" : "failed";
  }
}

/** Show the progress of a job until it ends. */
export async function showJob(host, title, job) {
  const bar = el("progress", { "aria-label": title });
  const said = el("p", { class: "quiet-text" }, "Waiting…");
  const cancel = el("button", { type: "button", class: "small quiet" }, "Cancel");
  const live = el("p", { class: "for-readers", "aria-live": "polite" }, `${title}: started.`);
  cancel.addEventListener("click", () => busy(cancel, null, () =>
    remove(path(job.gallery_id, "jobs", job.id)).catch(() => null)));
  put(host, el("div", { class: "job" }, el("p", {}, el("strong", {}, title)), bar, said, live, cancel));
  let quarter = 0;
  try {
    const ended = await watchJob(job, (state) => {
      if (state.total) {
        bar.max = state.total;
        bar.value = state.done;
        const now = Math.floor((4 * state.done) / state.total);
        if (now > quarter) live.textContent = `${title}: ${now * 25} percent.`;
        quarter = Math.max(now, quarter);
      }
      const counted = state.total ? `${state.done} of ${state.total}` : "";
      const words = { queued: "Waiting for its turn", running: "Working", done: "Done" }[state.state] ?? state.state;
      said.textContent = [words, counted, state.state === "failed" ? "" : state.detail].filter(Boolean).join(" · ");
    });
    put(host);
    return ended;
  } catch (error) {
    put(host);
    throw error;
  }
}

/** A button that fetches the next page of a list, if there is one. */
export function pager(host, load) {
  const more = el("button", { type: "button", class: "quiet" }, "Show more");
  const errors = el("div", {});
  let next = null;
  put(host, more, errors);
  const update = (cursor) => {
    next = cursor ?? null;
    more.hidden = next === null;
  };
  update(null);
  more.addEventListener("click", () => busy(more, errors, async () => update(await load(next))));
  return update;
}

export async function getPage(url, { limit = 50, after = null, ...query } = {}) {
  const full = new URL(url, location.origin);
  full.searchParams.set("limit", String(limit));
  if (after !== null) full.searchParams.set("after", after);
  for (const [name, value] of Object.entries(query)) if (value) full.searchParams.set(name, value);
  return get(full.pathname + full.search);
}

/** Whether there is a result of such a job to ask for. An erasure takes results away. */
export async function hasRun(kind) {
  const [jobs, erasures] = await Promise.all([
    getPage(path(galleryId, "jobs"), { limit: 200 }), getPage(path(galleryId, "erasures"), { limit: 50 })]);
  const last = erasures.items.find((erasure) => erasure.kind !== "stranger")?.requested_at ?? "";
  return jobs.items.some((job) => job.kind === kind && job.state === "done" && job.created_at > last);
}
