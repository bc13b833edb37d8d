// What a session has: files and variables.

import { plainText, visible } from "./ansi.js";
import { download, get } from "./api.js";
import { append, button, fill, h, icon } from "./dom.js";
import { bytes } from "./format.js";

/** Shows the files of a session in an element. */
export async function files(element, path) {
  try {
    const { files: list } = await get(`${path}/files`);
    if (!list.length) return fill(element, h("p", { class: "empty" }, "The session has no files."));
    const rows = list.map((file) => {
      const save = async (event) => {
        const pressed = event.currentTarget;
        pressed.disabled = true;
        try {
          const blob = await download(`${path}/files/content?path=${encodeURIComponent(file.path)}`);
          const url = URL.createObjectURL(blob);
          const link = document.createElement("a");
          link.download = file.path.split("/").at(-1);
          link.href = url;
          link.click();
          setTimeout(() => URL.revokeObjectURL(url), 10_000);
        } catch (error) {
          problem.textContent = error.message;
        }
        pressed.disabled = false;
      };
      const problem = h("span", { class: "problem" });
      return h("tr", {}, h("td", { class: "mono" }, visible(plainText(file.path)), problem), h("td", {}, plainText(file.mime)),
        h("td", { class: "amount" }, bytes(file.size)), h("td", {}, append(button("", save, { "aria-label": `Download ${file.path}`, class: "quiet" }), [icon("down")])));
    });
    fill(element, table(["Name", "Type", "Size", ""], rows));
  } catch (error) {
    fill(element, h("p", { class: "empty" }, error.message));
  }
}

/** Shows the variables of a session in an element. */
export async function variables(element, path) {
  try {
    const { variables: list, omitted } = await get(`${path}/variables`);
    if (!list.length) return fill(element, h("p", { class: "empty" }, "The session has no variables."));
    const rows = list.map((variable) => h("tr", {}, h("td", { class: "mono" }, visible(plainText(variable.name))), h("td", {}, plainText(variable.type)),
      h("td", { class: "amount" }, bytes(variable.size)), h("td", { class: "mono value" }, visible(plainText(variable.value)))));
    fill(element, table(["Name", "Type", "Size", "Value"], rows), omitted ? h("p", { class: "hint" }, `${omitted} further variables`) : null);
  } catch (error) {
    fill(element, h("p", { class: "empty" }, error.message));
  }
}

function table(names, rows) {
  const heads = names.map((name) => h("th", { scope: "col", class: name === "Size" ? "amount" : null }, name));
  return h("div", { class: "scroll" }, h("table", { class: "grid" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)));
}
