// Results of tools in the form that panels show: one list of outputs, whatever the result has.

// The entry of a result's `_meta` for panels: see `apps/result.rs`.
const PANEL = "io.github.belljar/panel";
const STATES = new Set(["ok", "error", "timed-out", "died"]);

/** Returns what a result says: `{ state, outputs, error, files, calls, … }`. All of it is untrusted. */
export function shownResult(result) {
  const images = list(result.content).filter((block) => block?.type === "image" && typeof block.data === "string");
  const panel = result._meta?.[PANEL];
  if (panel && typeof panel === "object") return ofPanel(panel, images);
  const text = list(result.content).filter((block) => block?.type === "text").map((block) => String(block.text)).join("\n");
  const fields = result.structuredContent ?? parsed(text);
  if (fields?.status === "running" && fields.run_id) return complete({ state: "running" });
  if (!fields) return complete({ state: result.isError ? "error" : "ok", outputs: text ? [stream(text)] : [] });
  if (fields.status === "paused") return complete({ state: "waiting", questions: list(fields.pending).map(question), hint: String(fields.hint ?? "") });
  const hasFailed = result.isError || fields.success === false || (fields.status !== undefined && fields.status !== "success");
  const lines = list(fields.output).map(String);
  const outputs = lines.length ? [stream(lines.join("return_value" in fields || fields.status ? "\n" : ""))] : [];
  list(fields.html).forEach((html) => outputs.push({ type: "display", data: { "text/html": String(html) } }));
  images.forEach((image) => outputs.push(display(image)));
  const value = fields.result ?? fields.return_value;
  if (value !== null && value !== undefined) outputs.push({ type: "result", data: { "text/plain": typeof value === "string" ? value : JSON.stringify(value) } });
  const traceback = list(fields.traceback).map(String);
  const error = fields.error ? { name: "", message: String(fields.error), traceback } : null;
  return complete({ ...fields, state: hasFailed ? "error" : "ok", outputs, error });
}

function question(one) {
  return { number: Number(one?.number ?? one?.question), message: String(one?.message ?? ""), token: String(one?.token ?? "") };
}

function ofPanel(panel, images) {
  if (panel.state === "waiting") return complete({ state: "waiting", run: String(panel.run_id ?? ""), questions: list(panel.questions).map(question), hint: String(panel.hint ?? "") });
  const outputs = list(panel.outputs).filter((output) => output && typeof output === "object").map((output) => {
    const image = Number.isInteger(output.image) ? images[output.image] : null;
    const data = image ? { ...output.data, ...display(image).data } : output.data;
    return output.type === "stream" ? { ...stream(String(output.text ?? "")), name: output.name } : { type: output.type, data };
  });
  const { error } = panel;
  const shown = error ? { name: String(error.name ?? ""), message: String(error.message ?? ""), traceback: list(error.traceback).map(String) } : null;
  return complete({ ...panel, state: STATES.has(panel.state) ? panel.state : "error", outputs, error: shown });
}

function complete(fields) {
  const objects = (value) => list(value).filter((one) => one && typeof one === "object");
  return {
    state: fields.state, outputs: fields.outputs ?? [], error: fields.error ?? null, run: fields.run ?? "", questions: fields.questions ?? [], hint: fields.hint ?? "",
    files: objects(fields.files), calls: objects(fields.calls), connections: objects(fields.connections),
    installed: list(fields.installed ?? fields.dependencies).map(String), omitted: Number(fields.omitted) || 0, omitted_calls: Number(fields.omitted_calls) || 0,
  };
}

function list(value) {
  return Array.isArray(value) ? value : [];
}

function stream(text) {
  return { type: "stream", name: "stdout", text };
}

function display(image) {
  // Jupyter has SVG as text, MCP as base64.
  const isSvg = image.mimeType === "image/svg+xml";
  return { type: "display", data: { [image.mimeType]: isSvg ? decoded(image.data) : image.data } };
}

function decoded(base64) {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
  } catch {
    return "";
  }
}

function parsed(text) {
  if (!text.startsWith("{")) return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
