// Everything that waits for a person, in all runs, with what is needed to decide; and what was decided before.

import { html, signal, useEffect, useState } from "../lib/ui.js";
import { identity, may, url } from "../lib/api.js";
import { answer, choicesOf, kindOf, takesText } from "../lib/answers.js";
import { useData } from "../lib/data.js";
import { useKeys } from "../lib/keys.js";
import { go, to } from "../lib/route.js";
import { clock, count, firstLine, now, shortAgent, span } from "../lib/words.js";
import { Ago, Empty, ErrorNote, LongText, Waiting, say } from "../components/parts.js";
import { Diff } from "../components/diff.js";
import { ToolInput, brief } from "../components/tools.js";

const selected = signal(new Set());
const showsHistory = signal(false);

export function Inbox({ parts }) {
  const asked = useData("/questions", { when: (event) => event.kind !== "messages" && event.kind !== "agent" });
  const questions = asked.data?.questions;
  const wanted = parts.join("/");
  const current = questions?.find((each) => each.ref === wanted) || (!wanted && !isNarrow() ? questions?.[0] : undefined);
  const at = questions?.indexOf(current) ?? -1;
  const open = (i) => questions?.[i] && go(to("inbox", ...questions[i].ref.split("/")));
  useKeys({
    j: () => open(Math.min(questions.length - 1, at + 1)),
    k: () => open(Math.max(0, at - 1)),
    x: () => current && toggle(current.ref),
  });
  if (!questions) return html`<${Waiting} error=${asked.error} />`;
  const oldest = questions[0];
  return html`<div class=${wanted && current ? "head wide-only" : "head"}>
      <div class="row between stack-on-phone">
        <h1>${questions.length ? html`${count(questions.length, "decision waits", "decisions wait")} for ${may("answer") ? "you" : "a person"}` : `Nothing waits for ${may("answer") ? "you" : "a person"}`}</h1>
        <div class="chips" role="group" aria-label="Show">
          <button type="button" class="choice" aria-pressed=${!showsHistory.value} onClick=${() => (showsHistory.value = false)}>Open <span class="quiet num">${questions.length}</span></button>
          <button type="button" class="choice" aria-pressed=${showsHistory.value} onClick=${() => (showsHistory.value = true)}>Decided</button>
        </div>
      </div>
      ${oldest && html`<div class="facts"><span>The oldest has waited <b>${span(now.value - oldest.asked_us)}</b>.</span>${may("answer") && html`<span class="wide-only">Answer here, on a phone or in a terminal: the first answer counts.</span>`}</div>`}
    </div>
    ${showsHistory.value
      ? html`<${History} />`
      : !questions.length
        ? html`${wanted && html`<p class="note">The question that the link names was answered already.</p>`}<div class="card"><${Empty} title="Inbox empty">Questions, permission requests, checks and conflicts of all runs appear here.<//></div>`
        : html`<div class=${`inbox ${wanted ? "detail" : "list"}`}>
            <div class="asks-side">
              <div class="card asks" role="list">${questions.map((each) => html`<${Row} key=${each.ref} question=${each} isCurrent=${each === current} />`)}</div>
              <${Batch} questions=${questions.filter((each) => selected.value.has(each.ref))} />
            </div>
            <div class="ask-side">
              ${wanted && html`<p class="phone-only back"><a class="link" href=${to("inbox")}>← ${questions.length > 1 ? `All ${count(questions.length, "decision")}` : "Inbox"}</a></p>`}
              ${current
                ? html`<${Question} key=${current.ref} question=${current} next=${() => (questions.length > 1 ? open(at + 1 < questions.length ? at + 1 : at - 1) : go(to("inbox")))} />`
                : wanted && html`<p class="note">The question that the link names was answered already. Choose one that is open.</p>`}
            </div>
          </div>`}`;
}

const isNarrow = () => matchMedia("(max-width: 860px)").matches;

function toggle(ref) {
  const next = new Set(selected.value);
  if (!next.delete(ref)) next.add(ref);
  selected.value = next;
}

function Row({ question, isCurrent }) {
  return html`<div class=${`ask-row${isCurrent ? " chosen" : ""}`} role="listitem">
    ${may("answer") ? html`<input type="checkbox" aria-label="Select for a batch answer" checked=${selected.value.has(question.ref)} onChange=${() => toggle(question.ref)} />` : html`<span></span>`}
    <a href=${to("inbox", ...question.ref.split("/"))} aria-current=${isCurrent ? "true" : null}>
      <span class="row between base small"><span class="kind s-you">${kindOf(question)}</span><span class="quiet num nowrap">${span(now.value - question.asked_us)}</span></span>
      <span class="what clip-2">${titleOf(question)}</span>
      <span class="small quiet clip">${[taskOf(question), question.about || question.owner].filter(Boolean).join(" · ")}</span>
    </a>
  </div>`;
}

const titleOf = (question) => (question.kind === "permission" ? [question.tool, brief(question.input)].filter((each) => each && each !== "{}").join(": ") || kindOf(question) : firstLine(question.text) || kindOf(question));
const agentsOf = (question) => (question.kind === "permission" ? [question.owner] : question.asked_by.filter((each) => each !== question.run));
/** The task whose work a check or a conflict is about; else who asks. */
const gateOf = (question) => /\/(?:gate|merge)\/([^/]+)/.exec(question.ref)?.[1];
const taskOf = (question) => gateOf(question) || agentsOf(question).map((each) => shortAgent(each, question.run)).join(", ");
/** What an answer is given to, for the check whether this person may. */
const objectOf = (question) => (question.kind === "permission" && !question.run ? `agent/${question.owner}` : `run/${question.run || question.owner}`);

/** One question with everything that is needed to decide it. */
export function Question({ question, next = () => {} }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const choices = choicesOf(question);
  const [pattern, setPattern] = useState("");
  const give = async (said, why = "", rule = "") => {
    setBusy(true);
    setError(null);
    try {
      const given = await answer(question, said, why, rule);
      say(`Answered: ${given.answer || said}${given.running === false ? ". No engine runs; it counts when the run is resumed." : ""}`);
      next();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const isAllowed = may(question.kind === "unknown" ? "steer" : "answer", objectOf(question));
  const choose = (choice) => !busy && isAllowed && give(choice.answer, choice.takesReason ? text : "", choice.takesRule ? pattern : "");
  useKeys(Object.fromEntries(choices.filter((each) => each.key).map((each) => [each.key, () => choose(each)])));
  const hasReason = choices.some((each) => each.takesReason);
  return html`<section class="card ask-view" aria-label="Decision">
    <div class="stack">
      <div class="row between"><span class="chip tone s-you">${kindOf(question)}</span><span class="small quiet">asked <${Ago} us=${question.asked_us} /></span></div>
      <h2>${question.kind === "permission" ? html`May ${shortAgent(question.owner, question.run)} use ${question.tool || "this tool"}?` : question.text ? html`<${LongText} text=${question.text} chars=${600} />` : kindOf(question)}</h2>
      <${Origin} question=${question} />
    </div>
    ${question.kind === "permission" && html`<${ToolInput} name=${question.tool} input=${question.input} />`}
    ${question.kind === "plan" ? html`<${PlanLines} text=${question.context} />` : question.context && question.kind !== "unknown" && html`<div class="stack"><h3>${question.kind === "gate" ? "What the agent says" : "Context"}</h3><pre class="code"><${LongText} text=${question.context} chars=${6000} /></pre></div>`}
    ${question.kind === "gate" && may("read_output", `run/${question.run}`) && html`<${Changes} run=${question.run} task=${gateOf(question)} />`}
    <${ErrorNote} error=${error} />
    ${question.default !== null && question.expires_us > 0 && html`<p class="small soft">Without an answer, “${question.default}” counts at ${clock(question.expires_us)}, in ${span(question.expires_us - now.value)}.</p>`}
    ${!isAllowed && html`<p class="note small">Your role is ${identity.value?.role || "limited"}: you can look at this decision, and not make it.</p>`}
    ${isAllowed && (hasReason || takesText(question)) &&
    html`<label class="stack">${hasReason ? "Reason, for the agent" : question.kind === "plan" ? "What to change" : "Your answer"}
      <textarea class="field" rows="2" value=${text} onInput=${(event) => setText(event.target.value)} placeholder=${hasReason ? "Optional. The agent gets it with a no." : ""}></textarea></label>`}
    ${isAllowed && question.suggestions?.length > 0 &&
    html`<label class="stack">“Always” and “never” are for
      <select class="field mono" value=${pattern} onChange=${(event) => setPattern(event.target.value)}><option value="">exactly this</option>${question.suggestions.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>`}
    ${isAllowed && html`<div class="options">
      ${choices.map(
        (choice) => html`<button type="button" class=${choice.key === "a" ? "option primary" : "option"} disabled=${busy} onClick=${() => choose(choice)}>
          <b>${choice.label}</b><span class="does">${choice.does}</span>${choice.key && html`<kbd>${choice.key}</kbd>`}
        </button>`,
      )}
      ${takesText(question) && html`<button type="button" class="button primary" disabled=${busy || !text.trim()} onClick=${() => give(text)}>${question.kind === "plan" ? "Have it changed" : "Answer"}</button>`}
    </div>`}
  </section>`;
}

function Origin({ question }) {
  const { run } = question;
  const task = gateOf(question);
  return html`<div class="facts small">
    ${run ? html`<span class="clip"><a class="link" href=${to("run", run)}>${question.about || run}</a></span>` : question.kind !== "permission" && html`<span>Workflow run <a class="link mono" href=${to("workflows", question.owner)}>${question.owner}</a></span>`}
    ${task ? html`<span>task <a class="link" href=${to("run", run, "tasks", task)}>${task}</a></span>` : agentsOf(question).map((agent) => html`<span>agent <a class="link" href=${to("agent", agent)}>${shortAgent(agent, run)}</a></span>`)}
    ${task && question.kind !== "plan" && may("read_output", `run/${run}`) && html`<span><a class="link" href=${to("run", run, "review", task)}>Review what it changed</a></span>`}
  </div>`;
}

/** The lines that the work of a task changes, so that it can be judged here. Comments on lines are made in the review. */
function Changes({ run, task }) {
  const of = useData(url`/runs/${run}/tasks/${task}`);
  const found = useData(of.data ? `${url`/agents/${of.data.agent}/diff`}?patch=true` : null);
  if (!found.data?.patch) return null;
  const { files, patch, cut } = found.data;
  return html`<details class="fold changes" open=${files.length <= 3}><summary><h3>${count(files.length, "file")} changed</h3></summary><${Diff} patch=${patch} cut=${cut} /></details>`;
}

const PlanLines = ({ text }) => html`<ol class="plan-lines code">${(text || "").split("\n").map((line) => {
  const [, name, rest] = /^([\w-]+(?: after [^:]+)?): (.*)$/.exec(line) || [0, "", line];
  return html`<li><b>${name}</b><span>${rest}</span></li>`;
})}</ol>`;

/** The same answer to several questions at once. */
function Batch({ questions }) {
  const [busy, setBusy] = useState(false);
  if (!questions.length) return null;
  const labels = questions.map((each) => choicesOf(each));
  const shared = labels[0].filter((choice) => labels.every((each) => each.some((other) => other.answer === choice.answer && other.label === choice.label)));
  const all = async (choice) => {
    setBusy(true);
    let done = 0;
    for (const question of questions) {
      try {
        await answer(question, choice.answer);
        done += 1;
      } catch (error) {
        say(`${question.ref}: ${error.message}`, true);
      }
    }
    say(`${choice.label}: ${count(done, "decision")}`);
    selected.value = new Set();
    setBusy(false);
  };
  return html`<div class="card batch row between"><b class="num">${questions.length} selected</b>
    <div class="buttons">
      ${shared.map((choice) => html`<button type="button" class="button" disabled=${busy || !may("answer")} onClick=${() => all(choice)}>${choice.label}</button>`)}
      ${!shared.length && html`<span class="small quiet">they have no answer in common</span>`}
      <button type="button" class="button plain" onClick=${() => (selected.value = new Set())}>Clear</button>
    </div>
  </div>`;
}

function History() {
  const [limit, setLimit] = useState(50);
  const found = useData(`/decisions?limit=${limit}`, { when: (event) => /answered/.test(event.type) });
  useEffect(() => () => (showsHistory.value = false), []);
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const { decisions } = found.data;
  if (!decisions.length) return html`<div class="card"><${Empty} title="No decisions yet">What people answer is kept here, with who answered.<//></div>`;
  return html`<div class="card table"><table class="list cards">
    <thead><tr><th>Question</th><th>Answer</th><th>By</th><th class="end">When</th></tr></thead>
    <tbody>${decisions.map(
      (each) => html`<tr key=${each.ref + each.answered_us}>
        <td class="wide"><div class="clip-2">${each.kind === "permission" ? `Permission for ${shortAgent(each.agent, each.run)}` : firstLine(each.text)}</div><a class="small quiet mono" href=${each.kind === "permission" ? to("agent", each.agent) : to("run", each.run)}>${each.run || each.agent}</a></td>
        <td class="wide"><div class="clip-2"><b>${each.answer}</b></div></td>
        <td class="small">${each.by.replace(/^\w+:/, "") || "–"}</td>
        <td class="end small"><${Ago} us=${each.answered_us} /></td>
      </tr>`,
    )}</tbody></table></div>
    ${decisions.length >= limit && limit < 500 && html`<p><button type="button" class="button" onClick=${() => setLimit(500)}>Show more</button></p>`}`;
}
