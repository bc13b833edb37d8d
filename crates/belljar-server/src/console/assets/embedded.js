// HTML of code in frames of a panel, which has no server: a document of its own without scripts and without requests.

import { h } from "./dom.js";
import { rowsOf } from "./outputs.js";

// As `admin/frames.rs` has them: a policy does not hold back all of what these elements do.
const REACHING_OUT = /<(\/?(?:script|link|meta|base|iframe|frame|frameset|object|embed|applet|form|portal|video|audio|source|track|fencedframe))/gi;
const HEAD = "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'\">" +
  "<meta name=\"referrer\" content=\"no-referrer\"><style>html{color-scheme:light dark}body{margin:0;font:13px/1.5 system-ui,sans-serif;overflow:auto}" +
  "table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:3px 10px;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}" +
  "th{font-weight:600}a{pointer-events:none;color:inherit}img,svg{max-width:100%}</style>";
const policy = globalThis.trustedTypes?.createPolicy("belljar-frame", { createHTML: (html) => html });

/** Returns a frame with HTML. The frame has an origin of its own, and inherits the policy of the panel, too. */
export function embedded(html) {
  const element = document.createElement("iframe");
  element.setAttribute("sandbox", "");
  element.setAttribute("referrerpolicy", "no-referrer");
  element.setAttribute("title", "HTML of the code");
  element.style.setProperty("height", `${rowsOf(html) * 27 + 20}px`);
  const page = HEAD + html.replace(REACHING_OUT, "&lt;$1");
  element.srcdoc = policy ? policy.createHTML(page) : page;
  return h("div", { class: "frame" }, element);
}
