// The questions of a paused run in a panel: the user decides, and the client passes the decision on to the server.

import { plainText, visible } from "./ansi.js";
import { decisionButtons, enable, questionText } from "./decisions.js";
import { h } from "./dom.js";

/** Shows what a run waits for. `done` is called with the result of the tool that a decision was passed on to. */
export function questionList(run, host, done) {
  const canDecide = Boolean(host.capabilities.serverTools && run.run);
  const asked = run.questions.map((question) => (canDecide && question.token ? open(run, question, host, done) : questionText(question.message)));
  return h("section", { class: "question", "aria-label": "Questions" },
    h("h3", {}, canDecide ? "Waits for approval" : "Waits for an answer"), asked,
    canDecide ? null : h("p", { class: "hint" }, visible(plainText(run.hint))));
}

function open(run, { number, message, token }, host, done) {
  const problem = h("p", { class: "problem", role: "alert" });
  const actions = decisionButtons(async (decision) => {
    enable(actions, false);
    problem.textContent = "";
    try {
      const result = await host.request("tools/call", { name: "answer_question", arguments: { run_id: run.run, question: number, token, decision } });
      if (result?.isError) throw new Error(String(result.content?.[0]?.text ?? "The server refused this."));
      tellModel(run, decision, host);
      done(result);
    } catch (error) {
      problem.textContent = plainText(error.message);
      enable(actions, true);
    }
  });
  return h("div", { class: "asked" }, questionText(message), h("div", { class: "row wrap" }, actions), problem);
}

/** Lets the model know, in its next turn, that it can fetch the result. */
function tellModel(run, decision, host) {
  if (!host.capabilities.updateModelContext) return;
  const text = `The user has ${decision === "deny" ? "denied" : "approved"} a call of run ${run.run}. Call resume_run with this run_id for its result.`;
  host.request("ui/update-model-context", { content: [{ type: "text", text }] }).catch(() => {});
}
