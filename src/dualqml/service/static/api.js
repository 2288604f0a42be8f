// SPDX-License-Identifier: BSD-3-Clause
// Requests to the API of the same host, with the cookie of the session.

const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";

/** A refusal of the API (problem+json), or no answer at all (status 0). */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The service answered ${status}.`);
    this.status = status;
    this.code = problem.code ?? "";
    this.problem = problem;
  }
}

/** An id for the Idempotency-Key header. crypto.randomUUID needs HTTPS, this does not. */
export function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The path of something in a gallery: parts are escaped. */
export function path(gallery, ...parts) {
  return ["/v1/galleries", gallery, ...parts].map((part, place) =>
    place ? encodeURIComponent(part) : part).join("/");
}

async function send(method, url, { json, form, etag, once } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET" && csrf) headers["X-CSRF-Token"] = csrf;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = etag;
  if (once) headers["Idempotency-Key"] = randomId();
  const body = json !== undefined ? JSON.stringify(json) : form;
  let response;
  try {
    response = await fetch(url, { method, headers, body, credentials: "same-origin" });
  } catch {
    throw new ApiError(0, { detail: "The service does not answer. Is it still running?" });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && document.body.dataset.screen !== "login") {
    const here = location.pathname + location.search;
    location.assign(`/login?next=${encodeURIComponent(here)}`);
  }
  throw new ApiError(response.status, problem);
}

async function content(response) {
  return response.status === 204 ? null : response.json();
}

export async function get(url) {
  return content(await send("GET", url));
}

/** What is there, and the tag that protects a change of it against lost updates. */
export async function getTagged(url) {
  const response = await send("GET", url);
  return [await content(response), response.headers.get("ETag")];
}

export async function getBlob(url) {
  return (await send("GET", url)).blob();
}

export async function post(url, json, options = {}) {
  return content(await send("POST", url, { json: json ?? {}, ...options }));
}

/** Send files or other form fields: [[name, value, file name], ...]. */
export async function upload(url, fields, options = {}) {
  const form = new FormData();
  for (const [name, value, filename] of fields) {
    if (value instanceof Blob) form.append(name, value, filename ?? value.name ?? "photo.jpg");
    else form.append(name, value);
  }
  return content(await send("POST", url, { form, ...options }));
}

export async function patch(url, json, etag) {
  return content(await send("PATCH", url, { json, etag }));
}

export async function remove(url, etag) {
  return content(await send("DELETE", url, { etag }));
}

/** All items of a list, page after page, up to a limit. */
export async function getAll(url, most = 1000) {
  const items = [];
  let after = null;
  do {
    const full = new URL(url, location.origin);
    full.searchParams.set("limit", "200");
    if (after !== null) full.searchParams.set("after", after);
    const page = await get(full.pathname + full.search);
    items.push(...page.items);
    after = page.next;
  } while (after !== null && after !== undefined && items.length < most);
  return items;
}

const ENDED = new Set(["done", "failed", "cancelled"]);

/** Wait for a job. `onChange` gets each state of it. */
export async function watchJob(job, onChange) {
  onChange(job);
  while (!ENDED.has(job.state)) {
    await new Promise((resume) => setTimeout(resume, 400));
    job = await get(path(job.gallery_id, "jobs", job.id));
    onChange(job);
  }
  if (job.state === "done") return job;
  const said = job.state === "cancelled" ? "The job was cancelled." : "The job failed.";
  throw new ApiError(0, { detail: job.detail ? `${said} ${job.detail}` : said });
}
