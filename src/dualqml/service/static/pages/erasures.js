// SPDX-License-Identifier: BSD-3-Clause
import { get, path } from "/static/api.js";
import { busy, byId, el, message, put, showError, table } from "/static/dom.js";
import { galleryId, getPage, loadGallery, may, pager, screen } from "/static/layout.js";
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
  const parts = Object.entries(entry.details ?? {}).map(([name, value]) => `${name}: ${plain(value)}`);
  if (!entry.target_id && !parts.length) return "–";
  return [entry.target_id ? el("code", {}, shortHash(entry.target_id)) : "", parts.length ? ` ${parts.join(", ")}` : ""];
};

const AUDIT = [
  { label: "Number", head: true, cell: (entry) => String(entry.seq) },
  { label: "When", cell: (entry) => when(entry.at) },
  { label: "Who", cell: (entry) => entry.actor.length > 20 ? el("code", {}, shortHash(entry.actor)) : entry.actor },
  { label: "What", cell: (entry) => entry.action },
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
  const refused = (host) => (error) => showError(host, error);
  await Promise.all([
    grow(byId("erasures"), byId("more-erasures"), {
      caption: "Receipts of erasures", columns: ERASURES, url: path(galleryId, "erasures"), empty: "Nothing has been erased in this gallery.",
    }).catch(refused(byId("erasures"))),
    may("admin") ? grow(byId("audit"), byId("more-audit"), {
      caption: "Audit log of this gallery", columns: AUDIT, url: "/v1/audit", query: { gallery_id: galleryId }, empty: "Nothing has happened yet.",
    }).catch(refused(byId("audit"))) : put(byId("audit"), el("p", {}, "The audit log needs an admin key.")),
  ]);
  byId("check-chain").hidden = !may("admin");
});
