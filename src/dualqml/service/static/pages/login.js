// SPDX-License-Identifier: BSD-3-Clause
import { post } from "/static/api.js";
import { byId, onSubmit } from "/static/dom.js";

/** The address to go on to, if it is on this host. */
function wanted() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const url = new URL(next, location.origin);
  return url.origin === location.origin ? url.pathname + url.search : "/";
}

onSubmit(byId("login"), byId("login-errors"), async (data) => {
  await post("/v1/session", { key: data.get("key").trim() });
  location.assign(wanted());
});
byId("key").focus();
