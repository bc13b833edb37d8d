// Creates elements. Text is always a text node: nothing here makes HTML of a string.

/** Returns an element. Properties that begin with `on` are listeners; `class`, `data-…`, `aria-…` and others are attributes. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (ATTRIBUTE.test(name)) element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

// Attributes that load or run something (src, href, srcdoc, style, on…) are set by name where they are needed.
const ATTRIBUTE = /^(class|id|role|title|type|name|for|tabindex|placeholder|rows|scope|colspan|open|hidden|spellcheck|autocomplete|autocapitalize|inputmode|data-[a-z-]+|aria-[a-z]+)$/;
const PROPERTIES = new Set(["value", "disabled", "checked", "textContent"]);

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Returns a button with an icon's name as its class. */
export function button(label, action, properties) {
  return h("button", { type: "button", onclick: action, ...properties }, label);
}

const SVG = "http://www.w3.org/2000/svg";

/** Returns an icon of one path, which is constant text of these files. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

const ICONS = {
  stop: "M4.5 4.5h7v7h-7z",
  restart: "M12.5 8a4.5 4.5 0 1 1-1.4-3.3M12.5 2.5v3h-3",
  fork: "M5 3v4a3 3 0 0 0 3 3h3M5 7v6M9 8l2 2-2 2",
  sleep: "M12.5 9.8A5 5 0 0 1 6.2 3.5a5 5 0 1 0 6.3 6.3z",
  end: "M4 4l8 8M12 4l-8 8",
  back: "M10 3 5 8l5 5",
  play: "M5 3.5v9l7-4.5z",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  down: "M8 3v7M5 7.5 8 10.5l3-3M3.5 13h9",
  out: "M6.5 3h-3v10h3M10 5l3 3-3 3M13 8H6",
  plus: "M8 3.5v9M3.5 8h9",
};
