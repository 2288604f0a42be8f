// SPDX-License-Identifier: BSD-3-Clause
import { get, getAll, path } from "/static/api.js";
import { busy, byId, el, message, put, showError, table } from "/static/dom.js";
import { galleryId, getPage, isGlobal, loadGallery, may, pager, screen } from "/static/layout.js";
import { countsOf, kindOf, showReceipt } from "/static/receipt.js";
import { count, shortHash, when } from "/static/words.js";

const ERASURES = [
  { label: "When", head: true, cell: (erasure) => when(erasure.completed_at) },
  { label: "What", cell: kindOf },
  { label: "Erased", cell: countsOf },
  { label: "Model before", cell: (erasure) => el("code", {}, shortHash(erasure.model_before?.sha256)) },
  { label: "Model after", cell: (erasure) => el("code", {}, shortHash(erasure.model_after?.sha256)) },
  {
    label: "Receipt",
    cell: (erasure) => el("button", {
      type: "button", class: "small quiet", "aria-label": `Show receipt of ${when(erasure.completed_at)}`,
      onclick: () => showReceipt(erasure, "Receipt of an erasure"),
    }, "Show"),
  },
];

/** A value of an entry; ids and hashes are shortened. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(" and ");
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return /^[0-9a-f]{32,}$/.test(value) ? shortHash(value) : String(value);
}

const details = (entry) => {
  const parts = Object.entries(entry.details ?? {}).filter(([, value]) => value !== 0).map(([name, value]) => `${name}: ${plain(value)}`);
  if (!entry.target_id && !parts.length) return "–";
  return [entry.target_id ? el("code", {}, shortHash(entry.target_id)) : "", parts.length ? ` ${parts.join(", ")}` : ""];
};

/** What was done, in words. The log itself has the short names. */
const ACTIONS = {
  "session.open": "Somebody signed in", "key.create": "A key was made", "key.revoke": "A key was revoked",
  "gallery.create": "The gallery was made", "gallery.change": "The gallery was changed", "gallery.export": "The gallery was exported",
  "gallery.import": "The gallery was imported", "demo.load": "The demo was loaded", "subject.create": "A person was added",
  "subject.change": "A person was changed", "subject.merge": "Two people were joined", "subject.erase": "A person was erased",
  "sample.enrol": "Samples were added", "sample.erase": "A sample was erased", "stranger.name": "A stranger got a name",
  "stranger.not-this-person": "A match was called wrong", "stranger.erase": "A stranger was erased",
  "retention.erase": "Old data was erased", "erasure.complete": "An erasure was completed", "calibration.set": "The threshold was set",
  "health.done": "The gallery was checked", "evaluation.done": "The gallery was evaluated",
};

let keyLabels = new Map();

/** Who did it: a key by its label, if it still exists. */
function actor(entry) {
  if (keyLabels.has(entry.actor)) return `key “${keyLabels.get(entry.actor)}”`;
  return entry.actor.length > 20 ? ["key ", el("code", {}, shortHash(entry.actor))] : `the ${entry.actor}`;
}

const action = (entry) => ACTIONS[entry.action]
  ? [`${ACTIONS[entry.action]} `, el("span", { class: "quiet-text" }, `(${entry.action})`)] : entry.action;

const AUDIT = [
  { label: "Number", head: true, cell: (entry) => String(entry.seq) },
  { label: "When", cell: (entry) => when(entry.at) },
  { label: "Who", cell: actor },
  { label: "What", cell: action },
  { label: "Of what", cell: details },
  { label: "Hash", cell: (entry) => el("code", {}, shortHash(entry.hash)) },
];

/** A table that grows page by page. */
async function grow(host, moreHost, { caption, columns, url, query = {}, empty }) {
  const first = await getPage(url, { limit: 25, ...query });
  if (!first.items.length) {
    put(host, el("p", { class: "quiet-text" }, empty));
    return;
  }
  const grown = table(caption, columns, first.items, { hiddenCaption: true });
  put(host, grown.node);
  pager(moreHost, async (after) => {
    const page = await getPage(url, { limit: 25, after, ...query });
    grown.add(page.items);
    return page.next;
  })(first.next);
}

function setUpCheck() {
  const button = byId("check-chain");
  const host = byId("chain");
  button.addEventListener("click", () => busy(button, host, async () => {
    const checked = await get("/v1/audit/check");
    put(host, checked.ok
      ? message("good", el("p", {}, `The chain holds: ${count(checked.entries, "entry", "entries")}. The last hash is `, el("code", {}, checked.head), ". Note it elsewhere, and you can show later that nothing before it has changed."))
      : message("bad", `The chain is broken${checked.first_wrong ? ` at entry ${checked.first_wrong}` : ""}. Somebody has changed the log.`));
  }));
}

screen(async () => {
  await loadGallery();
  setUpCheck();
  if (may("admin")) keyLabels = new Map((await getAll("/v1/keys")).map((key) => [key.id, key.label]));
  const refused = (host) => (error) => showError(host, error);
  await Promise.all([
    grow(byId("erasures"), byId("more-erasures"), {
      caption: "Receipts of erasures", columns: ERASURES, url: path(galleryId, "erasures"), empty: "Nothing has been erased in this gallery.",
    }).catch(refused(byId("erasures"))),
    may("admin") ? grow(byId("audit"), byId("more-audit"), {
      caption: "Audit log of this gallery", columns: AUDIT, url: "/v1/audit", query: { gallery_id: galleryId }, empty: "Nothing has happened yet.",
    }).catch(refused(byId("audit"))) : put(byId("audit"), el("p", {}, "The audit log needs an admin key.")),
  ]);
  byId("check-chain").hidden = !may("admin") || !isGlobal();
});
