// SPDX-License-Identifier: BSD-3-Clause
// Photographs from files, by drag and drop, by paste, or from the camera.

import { byId, el, message, put, say } from "/static/dom.js";

const isPicture = (file) => file.type.startsWith("image/") || /\.(jpe?g|png|webp|heic|heif|bmp|tiff?|pgm)$/i.test(file.name);

/** Connect a drop zone (macro `picker` of the templates). `take` gets a list of files.
 * With `once` the camera is switched off after a picture. */
export function setUpPicker(id, take, { frame = null, once = false } = {}) {
  const zone = byId(`${id}-zone`);
  const input = byId(`${id}-file`);
  const said = byId(`${id}-said`);
  const accept = (files) => {
    const pictures = files.filter(isPicture);
    const others = files.length - pictures.length;
    put(said, others ? message("warn", `${others === 1 ? "One file is" : `${others} files are`} no picture and left out.`) : null);
    if (pictures.length) take(pictures);
  };
  input.addEventListener("change", () => {
    accept([...input.files]);
    input.value = "";
  });
  for (const name of ["dragenter", "dragover"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) {
    zone.addEventListener(name, () => zone.classList.remove("over"));
  }
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    accept([...event.dataTransfer.files]);
  });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length) accept(files);
  });
  setUpCamera(id, (file) => take([file]), { frame, once });
}

function whyNoCamera(error) {
  if (!window.isSecureContext) {
    return "The browser gives the camera only to pages over HTTPS or on this machine itself (http://localhost). Start the service with a certificate (--tls-cert), or choose a file.";
  }
  if (error?.name === "NotAllowedError") {
    return "The camera was not allowed. Allow it for this page in the browser, or choose a file.";
  }
  if (error?.name === "NotFoundError" || error?.name === "OverconstrainedError") {
    return "No camera was found on this machine. Choose a file instead.";
  }
  if (error?.name === "NotReadableError") {
    return "The camera is in use by another program. Close it there, or choose a file.";
  }
  return "The camera is not available in this browser. Choose a file instead.";
}

function setUpCamera(id, take, { frame, once }) {
  const host = byId(`${id}-camera`);
  const opener = byId(`${id}-camera-open`);
  opener.addEventListener("click", async () => {
    if (!navigator.mediaDevices?.getUserMedia) {
      put(host, message("warn", whyNoCamera(null)));
      return;
    }
    opener.disabled = true;
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "user", width: { ideal: 1280 } }, audio: false });
    } catch (error) {
      put(host, message("warn", whyNoCamera(error)));
      opener.disabled = false;
      return;
    }
    const video = el("video", { autoplay: true, playsinline: true, muted: true, "aria-label": "What the camera sees" });
    video.muted = true;
    video.srcObject = stream;
    const shot = el("button", { type: "button", class: "primary" }, "Take the picture");
    const close = el("button", { type: "button", class: "quiet" }, "Close the camera");
    const stop = () => {
      for (const track of stream.getTracks()) track.stop();
      put(host);
      opener.disabled = false;
      opener.focus();
    };
    shot.addEventListener("click", async () => {
      const file = await snapshot(video, frame);
      if (!file) {
        say("The camera shows no picture yet. Wait a moment and try again.");
        return;
      }
      say("The picture is taken.");
      if (once) stop();
      take(file);
    });
    close.addEventListener("click", stop);
    const view = el("div", { class: "camera" }, video);
    if (frame) {
      const guide = el("div", { class: "camera-frame", "aria-hidden": "true" });
      guide.style.aspectRatio = `${frame[1]} / ${frame[0]}`;
      view.append(guide);
    }
    put(host, view, frame && el("p", { class: "quiet-text" }, "Fill the frame with the face. Only what is inside the frame is used."),
      el("div", { class: "actions start" }, shot, close));
    shot.focus();
  });
}

/** What the camera sees now, as a file. With a frame (height, width) only the middle. */
async function snapshot(video, frame) {
  const [wide, high] = [video.videoWidth, video.videoHeight];
  if (!wide) return null;
  let [w, h] = [wide, high];
  if (frame) {
    // The frame of the style sheet has 84 % of the height.
    h = high * 0.84;
    w = Math.min(wide, (h * frame[1]) / frame[0]);
  }
  const canvas = el("canvas", { width: Math.round(w), height: Math.round(h) });
  canvas.getContext("2d").drawImage(video, (wide - w) / 2, (high - h) / 2, w, h, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
  return new File([blob], `camera-${new Date().toISOString().slice(11, 19).replaceAll(":", "-")}.jpg`, { type: "image/jpeg" });
}

/** One face of a photograph with several, with room around it, as a file. */
export async function cutFace(file, box, size) {
  const picture = await createImageBitmap(file);
  const [sx, sy] = [picture.width / size.width, picture.height / size.height];
  const room = 0.45 * Math.max(box.right - box.left, box.bottom - box.top);
  const left = Math.max(0, (box.left - room) * sx);
  const top = Math.max(0, (box.top - room) * sy);
  const right = Math.min(picture.width, (box.right + room) * sx);
  const bottom = Math.min(picture.height, (box.bottom + room) * sy);
  const canvas = el("canvas", { width: Math.round(right - left), height: Math.round(bottom - top) });
  canvas.getContext("2d").drawImage(picture, left, top, right - left, bottom - top, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return new File([blob], "face.png", { type: "image/png" });
}

/** A vector, or several, from pasted JSON. */
export function readVectors(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    throw new Error("This is not JSON. Paste a list of numbers such as [0.12, -0.5, 0.3].");
  }
  const vectors = Array.isArray(given) && given.every(Number.isFinite) ? [given] : given;
  const right = Array.isArray(vectors) && vectors.length > 0 && vectors.every((vector) =>
    Array.isArray(vector) && vector.length > 0 && vector.every(Number.isFinite));
  if (!right) throw new Error("Paste a list of numbers, or a list of such lists.");
  return vectors;
}
