// HTML of code in frames of the console: behind an address that works once and a policy without scripts.

import { post } from "./api.js";
import { fill, h } from "./dom.js";
import { rowsOf } from "./outputs.js";

/** Returns a frame with the HTML of an output, whose path in the API is `path`. */
export function framed(path, html) {
  const holder = h("div", { class: "frame" });
  const load = () => post(path).then((frame) => {
    if (!/^\/console\/frame\/[0-9a-f]{32}$/.test(frame.path)) return;
    const element = document.createElement("iframe");
    element.setAttribute("sandbox", "");
    element.setAttribute("referrerpolicy", "no-referrer");
    element.setAttribute("title", "HTML of the code");
    element.style.setProperty("height", `${rowsOf(html) * 27 + 20}px`);
    element.src = frame.path;
    // A frame that is shown again, after another view of the session, requests its address once more.
    element.addEventListener("load", () => element.addEventListener("load", load, { once: true }), { once: true });
    fill(holder, element);
  }).catch((error) => fill(holder, h("p", { class: "hint" }, error.message)));
  load();
  return holder;
}
