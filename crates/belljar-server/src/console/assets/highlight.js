// Shows Python with colours: a scanner of tokens, without a parser.

import { h } from "./dom.js";
import { visible } from "./ansi.js";

const KEYWORDS = new Set(("False None True and as assert async await break case class continue def del elif else except finally for from " +
  "global if import in is lambda match nonlocal not or pass raise return try type while with yield").split(" "));
const TOKENS = /(#[^\n]*)|((?:[rbfuRBFU]{1,2})?(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*(?:"|$|(?=\n))|'(?:\\.|[^'\\\n])*(?:'|$|(?=\n))))|(\b\d[\w.]*)|([^\W\d]\w*)|(@[\w.]+)/gu;
const MAX_HIGHLIGHTED = 20_000;

/** Returns nodes that show code. */
export function highlighted(code) {
  if (code.length > MAX_HIGHLIGHTED) return visible(code);
  const nodes = [];
  let last = 0;
  let previous = "";
  for (const match of code.matchAll(TOKENS)) {
    const [token, comment, string, number, name, decorator] = match;
    let kind = null;
    if (comment) kind = "h-comment";
    else if (string) kind = "h-string";
    else if (number) kind = "h-number";
    else if (decorator) kind = "h-name";
    else if (name && KEYWORDS.has(name)) kind = "h-keyword";
    else if (name && (previous === "def" || previous === "class")) kind = "h-name";
    if (name) previous = name;
    if (!kind) continue;
    nodes.push(...visible(code.slice(last, match.index)), h("span", { class: kind }, visible(token)));
    last = match.index + token.length;
  }
  nodes.push(...visible(code.slice(last)));
  return nodes;
}
