// SPDX-License-Identifier: BSD-3-Clause
import { get, getAll, getTagged, patch, path, post, remove, upload } from "/static/api.js";
import { busy, byId, confirmed, el, message, onSubmit, openDialog, put, say, showError, table } from "/static/dom.js";
import { galleryId, isGlobal, may, screen, showGalleryName, signOut, today } from "/static/layout.js";
import { showReceipt } from "/static/receipt.js";
import { count, day, sampleWord } from "/static/words.js";

let galleries = [];

const KINDS = { photographs: "takes photographs", crops: "takes face crops", vectors: "takes vectors" };

function numberField(id, label, value, help) {
  return el("div", { class: "field" }, el("label", { for: id }, label),
    el("input", { type: "number", id, name: id.split("-")[0], min: "1", step: "1", value: value ?? "", "aria-describedby": `${id}-help` }),
    el("span", { class: "quiet-text", id: `${id}-help` }, help));
}

const checkField = (name, checked, strong, text) => el("label", { class: "choice" },
  Object.assign(el("input", { type: "checkbox", name }), { checked }), el("span", {}, el("strong", {}, strong), ` ${text}`));

function galleryForm(gallery) {
  const id = (name) => `${name}-${gallery.id}`;
  const errors = el("div", {});
  const form = el("form", {},
    el("div", { class: "field" }, el("label", { for: id("name") }, "Name"), el("input", { type: "text", id: id("name"), name: "name", required: true, maxlength: "200", value: gallery.name })),
    el("fieldset", {}, el("legend", {}, "What may it keep?"),
      gallery.inputs === "photographs" ? checkField("keep_photographs", gallery.keep_photographs, "Keep the photographs", "of new samples.") : null,
      checkField("keep_strangers", gallery.keep_strangers, "Keep strangers", "for a while, so that they can be named later.")),
    el("div", { class: "pair" },
      numberField(id("stranger_days"), "Days that strangers are kept", gallery.stranger_days, "Counted from when they were last seen."),
      numberField(id("retention_days"), "Days that samples are kept", gallery.retention_days, "Empty means for ever. Older samples are erased by themselves.")),
    errors, el("button", { class: "primary" }, "Save"));
  onSubmit(form, errors, async (data) => {
    const number = (name) => data.get(name) ? Number(data.get(name)) : null;
    const changes = {
      name: data.get("name").trim(),
      keep_strangers: data.has("keep_strangers"),
      retention_days: number("retention_days"),
    };
    if (number("stranger_days")) changes.stranger_days = number("stranger_days");
    if (gallery.inputs === "photographs") changes.keep_photographs = data.has("keep_photographs");
    const save = async () => {
      const [, etag] = await getTagged(path(gallery.id));
      await patch(path(gallery.id), changes, etag);
      return true;
    };
    const days = changes.retention_days;
    const erases = days && gallery.n_samples && days < (gallery.retention_days ?? Infinity);
    const saved = erases ? await confirmed({
      title: "Erase older samples?",
      text: `Samples that are older than ${count(days, "day")} are erased soon. Later samples are erased at that age too. This cannot be undone.`,
      yes: "Save, and erase older samples",
    }, save) : await save();
    if (!saved) return;
    say("Saved.");
    await loadGalleries();
    byId("galleries-title").focus();
  });
  return form;
}

async function eraseGallery(gallery) {
  const receipt = await confirmed({
    title: `Erase the gallery ${gallery.name}?`,
    text: `${count(gallery.n_subjects, "person", "people")} and ${count(gallery.n_samples, "sample")} are erased for good. Keys of this gallery end. This cannot be undone.`,
    yes: "Erase the gallery", typed: gallery.name,
  }, () => remove(path(gallery.id)));
  if (!receipt) return;
  if (receipt !== true) await showReceipt(receipt);
  if (gallery.id === galleryId) location.assign("/settings");
  else await loadGalleries();
}

function galleryCard(gallery) {
  const address = `/g/${encodeURIComponent(gallery.id)}/${may("enrol") ? "people" : "try"}`;
  const facts = [KINDS[gallery.inputs], count(gallery.n_subjects, "person", "people"), sampleWord(gallery, gallery.n_samples),
    gallery.keep_photographs ? "photographs are kept" : null, gallery.keep_strangers ? "strangers are kept" : null,
    gallery.retention_days ? `samples are erased after ${count(gallery.retention_days, "day")}` : null, gallery.demo ? "demo" : null];
  return el("article", { class: "card" },
    el("h3", {}, el("a", { href: address }, gallery.name)),
    el("p", { class: "quiet-text" }, facts.filter(Boolean).join(" · ")),
    el("p", { class: "quiet-text" }, "Id for the API: ", el("code", {}, gallery.id)),
    may("admin") ? el("details", {}, el("summary", {}, "Edit ", el("span", { class: "for-readers" }, gallery.name)),
      galleryForm(gallery),
      el("div", { class: "actions start" }, el("button", { type: "button", class: "danger", onclick: () => eraseGallery(gallery) }, "Erase this gallery…"))) : null);
}

async function loadGalleries() {
  galleries = await getAll("/v1/galleries");
  const here = galleries.find((gallery) => gallery.id === galleryId);
  if (here) showGalleryName(here.name);
  put(byId("galleries"), galleries.length ? galleries.map(galleryCard) : el("p", {}, "There is no gallery yet."));
  put(byId("exports"), galleries.map((gallery) => el("li", {},
    el("a", { href: path(gallery.id, "export"), download: "" }, `Export ${gallery.name}`))));
  put(byId("key-gallery"), isGlobal() ? el("option", { value: "" }, "All galleries") : null,
    galleries.map((gallery) => el("option", { value: gallery.id }, gallery.name)));
}

const galleryNamed = (id) => id === null ? "all galleries" : galleries.find((gallery) => gallery.id === id)?.name ?? id;

async function revoke(key) {
  const done = await confirmed({ title: `Revoke the key ${key.label}?`, text: "Programs that use it are refused from now on. If it is the key with which you signed in, you are signed out. This cannot be undone.", yes: "Revoke" },
    () => remove(`/v1/keys/${encodeURIComponent(key.id)}`));
  if (!done) return;
  await loadKeys();
  say(`The key ${key.label} is revoked.`);
  byId("keys-title").focus();
}

async function loadKeys() {
  const { items } = await get("/v1/keys?limit=200");
  put(byId("keys"), table("Keys", [
    { label: "Label", head: true, cell: (key) => key.label },
    { label: "May", cell: (key) => key.scopes.join(", ") },
    { label: "Gallery", cell: (key) => galleryNamed(key.gallery_id) },
    { label: "Made", cell: (key) => day(key.created_at) },
    { label: "Ends", cell: (key) => day(key.expires_at) },
    { label: "Action", cell: (key) => el("button", { type: "button", class: "small danger", "aria-label": `Revoke ${key.label}`, onclick: () => revoke(key) }, "Revoke") },
  ], items, { hiddenCaption: true }).node);
}

async function showKey(key) {
  const copy = el("button", { type: "button", class: "quiet" }, "Copy");
  const close = el("button", { type: "button", class: "primary" }, "I have it");
  const { dialog, closed } = openDialog(`The key “${key.label}”`, [
    el("p", {}, "Copy it now and keep it in a safe place. It is not shown again."),
    el("code", { class: "secret", tabindex: "0" }, key.key), el("div", { class: "actions" }, copy, close)]);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(key.key);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(dialog.querySelector(".secret"));
      copy.textContent = "Selected: press Ctrl+C";
    }
  });
  close.addEventListener("click", () => dialog.close());
  await closed;
}

function setUpKeys() {
  byId("keys-section").hidden = false;
  byId("key-expires").min = today();
  const form = byId("new-key");
  onSubmit(form, byId("new-key-errors"), async (data) => {
    const scopes = data.getAll("scopes");
    if (!scopes.length) throw new Error("Choose at least one thing that the key may do.");
    const expires = data.get("expires");
    const key = await post("/v1/keys", {
      label: data.get("label").trim(), scopes, gallery_id: data.get("gallery_id") || null,
      expires_at: expires ? `${expires}T23:59:59Z` : null,
    });
    form.reset();
    await loadKeys();
    await showKey(key);
  });
}

function setUpImport() {
  const form = byId("import");
  form.hidden = !isGlobal();
  onSubmit(form, byId("import-errors"), async (data) => {
    const file = data.get("file");
    const gallery = await upload("/v1/imports", [["file", file, file.name]]);
    put(byId("import-said"), message("good", el("p", {}, "Imported as ", el("a", { href: `/g/${encodeURIComponent(gallery.id)}/people` }, gallery.name), ".")));
    form.reset();
    await loadGalleries();
  });
}

screen(async () => {
  byId("sign-out").addEventListener("click", () => signOut(byId("sign-out")));
  const { scopes, gallery_id: only } = await get("/v1/session");
  byId("session-said").textContent = `Your key may: ${scopes.join(", ")}; ${only ? "in one gallery" : "in all galleries"}.`;
  await loadGalleries();
  if (!may("admin")) return;
  byId("new-gallery").hidden = !isGlobal();
  byId("backup").hidden = false;
  setUpKeys();
  setUpImport();
  await loadKeys().catch((error) => showError(byId("key-errors"), error));
});
