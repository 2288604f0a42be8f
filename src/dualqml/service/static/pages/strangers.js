// SPDX-License-Identifier: BSD-3-Clause
import { getTagged, patch, path, remove } from "/static/api.js";
import { busy, byId, confirmed, el, message, put, say, showError } from "/static/dom.js";
import { galleryId, getPage, loadGallery, may, pager, screen } from "/static/layout.js";
import { hasPictures } from "/static/pictures.js";
import { askWho, nameStranger } from "/static/who.js";
import { count, score, when } from "/static/words.js";

let gallery;
let more;

const address = (cluster, ...parts) => path(galleryId, "strangers", cluster.id, ...parts);

function showKeeping() {
  const host = byId("keeping");
  const days = count(Math.round(gallery.stranger_days), "day");
  if (gallery.keep_strangers) {
    const unseen = gallery.inputs === "photographs" && !gallery.keep_photographs ? "Their pictures are not kept, so you cannot see them here. " : "";
    put(host, el("p", { class: "quiet-text" }, `Unknown faces of this gallery are kept for ${days} after they were last seen. ${unseen}`,
      may("admin") ? el("a", { href: `/settings?g=${encodeURIComponent(galleryId)}` }, "Change that in the settings") : null));
    return;
  }
  const errors = el("div", {});
  const on = el("button", { type: "button", class: "primary" }, "Keep strangers from now on");
  on.addEventListener("click", () => busy(on, errors, async () => {
    const [, etag] = await getTagged(path(galleryId));
    gallery = await patch(path(galleryId), { keep_strangers: true }, etag);
    showKeeping();
    say("Strangers are kept from now on.");
  }));
  put(host, message("info", "Keeping is off: a face that nobody knows is forgotten at once.",
    `If you switch it on, unknown faces are kept for ${days}${hasPictures(gallery) ? ", with pictures" : " as numbers, without pictures"}. Then you can name them here. Check that the law where you are allows it.`,
    may("admin") ? el("div", { class: "actions start" }, on) : el("p", {}, "Somebody with an admin key can switch it on."), errors));
}

async function reload() {
  put(byId("new-list"));
  put(byId("ignored-list"));
  more(await load());
}

/** After a change. The button that was pressed is gone, so the keyboard goes on at the top. */
async function changed(text) {
  say(text);
  await reload();
  byId("new-title").focus();
}

function card(cluster) {
  const errors = el("div", {});
  const title = cluster.n_seen === 1 ? "Seen once" : `Seen ${cluster.n_seen} times`;
  const label = `stranger, ${title.toLowerCase()}, last ${when(cluster.last_seen)}`;
  const name = el("button", { type: "button", class: "small primary", "aria-label": `Name the ${label}` }, "Name …");
  const isNew = cluster.state === "new";
  const ignore = el("button", { type: "button", class: "small quiet", "aria-label": `${isNew ? "Ignore" : "Do not ignore"} the ${label}` }, isNew ? "Ignore" : "Do not ignore");
  const discard = el("button", { type: "button", class: "small danger", "aria-label": `Discard the ${label}` }, "Discard");
  name.addEventListener("click", async () => {
    const named = await askWho({
      title: "Who is this stranger?", text: "The kept faces become samples of the person.", yes: "Give the name",
    }, (choice) => nameStranger(cluster.id, choice));
    if (named) await changed(`This is ${named.name} from now on.`);
  });
  ignore.addEventListener("click", () => busy(ignore, errors, async () => {
    await patch(address(cluster), { state: isNew ? "ignored" : "new" });
    await changed(isNew ? "Ignored." : "No longer ignored.");
  }));
  discard.addEventListener("click", async () => {
    const done = await confirmed({ title: "Discard this stranger?", text: "What is kept of this face is erased. A receipt is written.", yes: "Discard" }, () => remove(address(cluster)));
    if (done) await changed("Discarded. The receipt is under Erasures.");
  });
  const { nearest, not_subject: not } = cluster;
  return el("li", {},
    cluster.has_image
      ? el("div", { class: "face" }, el("img", { src: address(cluster, "image"), alt: `A ${label}`, loading: "lazy" }))
      : el("div", { class: "face" }, "No picture is kept"),
    el("div", { class: "what" },
      el("h3", {}, title),
      el("p", { class: "quiet-text" }, `${cluster.n_seen === 1 ? when(cluster.last_seen) : `First ${when(cluster.first_seen)}, last ${when(cluster.last_seen)}`}. Forgotten by itself ${when(cluster.expires_at)}.`),
      not ? el("p", {}, el("span", { class: "badge warn" }, `Not ${not.name}`)) : null,
      nearest ? el("p", {}, `Nearest: ${nearest.name} (${score(nearest.score)})`) : null,
      may("enrol") ? el("div", { class: "actions" }, name, ignore, discard) : null, errors));
}

async function load(after = null) {
  const page = await getPage(path(galleryId, "strangers"), { limit: 60, after });
  for (const cluster of page.items) {
    byId(cluster.state === "ignored" ? "ignored-list" : "new-list").append(card(cluster));
  }
  byId("ignored").hidden = byId("ignored-list").children.length === 0;
  put(byId("new-said"), byId("new-list").children.length ? null
    : el("p", { class: "quiet-text" }, gallery.keep_strangers ? "No strangers. They appear here when somebody unknown is tried." : "Nobody."));
  return page.next;
}

screen(async () => {
  ({ gallery } = await loadGallery());
  showKeeping();
  more = pager(byId("more"), load);
  await reload().catch((error) => showError(byId("stranger-errors"), error));
});
