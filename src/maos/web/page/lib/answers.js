// What can be answered to a question, and what each answer does: the same rules as `maos answer`.

import { post } from "./api.js";

const KINDS = { question: "Question", gate: "Check", permission: "Permission", plan: "Plan", workflow: "Workflow", unknown: "Outcome unknown", conflict: "Conflict" };

export const isConflict = (question) => question.ref.includes("/merge/");
export const kindOf = (question) => (isConflict(question) ? KINDS.conflict : KINDS[question.kind] || question.kind);

const everywhere = (question) => (question.owner.includes(".") ? "for every agent of the run" : "for this agent");

/** The choices of a question: {answer, label, does, key}. Without any, a text is the answer. */
export function choicesOf(question) {
  if (question.kind === "permission") {
    return [
      { answer: "yes", label: "Allow once", does: "The agent uses the tool now, and asks again the next time.", key: "a" },
      { answer: "always", label: "Always allow", does: `A rule allows it from now on, ${everywhere(question)}.`, takesRule: true },
      { answer: "no", label: "Deny once", does: "The agent is told no, with your reason, and continues without it.", key: "r", takesReason: true },
      { answer: "never", label: "Never allow", does: `A rule denies it from now on, ${everywhere(question)}.`, takesRule: true, takesReason: true },
    ];
  }
  if (question.kind === "gate") {
    return [
      { answer: "yes", label: "Accept", does: "The task is done, and tasks that need it can start.", key: "a" },
      { answer: "no", label: "Send back", does: "The agent gets your reason and works on it again.", key: "r", takesReason: true },
    ];
  }
  if (question.kind === "plan") {
    return [
      { answer: "yes", label: "Approve", does: "The tasks of the plan start.", key: "a" },
      { answer: "no", label: "Reject", does: "The plan is dropped, and the run ends.", key: "r" },
    ];
  }
  if (question.kind === "unknown") {
    return [
      { answer: "done", label: "It took effect", does: "The step counts as done and is not repeated.", key: "a" },
      { answer: "again", label: "Do it again", does: "The step is run once more." },
      { answer: "failed", label: "It did not", does: "The step counts as failed.", key: "r" },
    ];
  }
  return question.choices.map((choice, i) => ({ answer: choice, label: choice, does: sentence(question.meanings?.[i] || "") }));
}

const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "");

/** Whether a text of one's own is an answer too. */
export const takesText = (question) => question.kind === "plan" || (["question", "workflow"].includes(question.kind) && !question.choices.length);

/** Answer a question; the first answer of all people counts. */
export function answer(question, said, why = "", pattern = "") {
  const path = question.ref.split("/").map(encodeURIComponent).join("/");
  if (question.kind === "unknown") {
    const step = question.ref.slice(question.owner.length + 1);
    return post(`/workflows/${encodeURIComponent(question.owner)}/steps/${encodeURIComponent(step)}/resolution`, { outcome: said, why });
  }
  return post(`/questions/${path}/answer`, { answer: said, ...(why && { why }), ...(pattern && { pattern }) });
}

/** The tasks that wait for a person. */
export function askingTasks(run) {
  const found = new Set();
  for (const question of run.pending) {
    const [, task] = /\/(?:gate|merge)\/([^/]+)/.exec(question.ref) || [];
    if (task) found.add(task);
    for (const agent of [...question.asked_by, question.owner]) if (agent.startsWith(`${run.id}.`)) found.add(agent.slice(run.id.length + 1).replace(/-gate\d+-\d+$|-merge\d+$/, ""));
  }
  return found;
}
