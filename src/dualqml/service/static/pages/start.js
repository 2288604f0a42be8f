// SPDX-License-Identifier: BSD-3-Clause
import { getAll, post } from "/static/api.js";
import { busy, byId, onSubmit } from "/static/dom.js";
import { isGlobal, may, rememberedGallery, rememberGallery, screen, showJob } from "/static/layout.js";

const homeOf = (id) => `/g/${encodeURIComponent(id)}/${may("enrol") ? "people" : "try"}`;

function setUpDemo() {
  const button = byId("load-demo");
  button.addEventListener("click", () => busy(button, byId("demo-errors"), async () => {
    const job = await post("/v1/demo");
    await showJob(byId("demo-job"), "Loading the demo gallery", job);
    rememberGallery(job.gallery_id);
    location.assign(`/g/${encodeURIComponent(job.gallery_id)}/try`);
  }));
}

function setUpForm() {
  const form = byId("new-gallery");
  const show = () => {
    const inputs = new FormData(form).get("inputs");
    byId("crop-size").hidden = inputs !== "crops";
    byId("keep-photographs-choice").hidden = inputs !== "photographs";
  };
  form.addEventListener("change", show);
  show();
  onSubmit(form, byId("new-errors"), async (data) => {
    const inputs = data.get("inputs");
    const body = {
      name: data.get("name").trim(),
      inputs,
      keep_photographs: inputs === "photographs" && data.has("keep_photographs"),
      keep_strangers: data.has("keep_strangers"),
    };
    if (inputs === "crops") body.size = [Number(data.get("height")), Number(data.get("width"))];
    const gallery = await post("/v1/galleries", body);
    rememberGallery(gallery.id);
    location.assign(homeOf(gallery.id));
  });
}

screen(async () => {
  const asked = new URLSearchParams(location.search).has("new");
  const galleries = await getAll("/v1/galleries");
  if (galleries.length && !asked) {
    const last = galleries.find((gallery) => gallery.id === rememberedGallery()) ?? galleries[0];
    location.replace(homeOf(last.id));
    return;
  }
  byId("start-waiting").hidden = true;
  if (!may("admin") || !isGlobal()) {
    byId("start-nothing").hidden = false;
    return;
  }
  if (galleries.length) byId("start-title").textContent = "Another gallery";
  byId("start-back").hidden = !galleries.length;
  if (galleries.some((gallery) => gallery.demo)) byId("load-demo").textContent = "Open the demo gallery";
  byId("start").hidden = false;
  setUpDemo();
  setUpForm();
});
