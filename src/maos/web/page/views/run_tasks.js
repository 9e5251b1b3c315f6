// The tasks of a run, a page at a time: ten thousand are as quick as ten.

import { html, useState } from "../lib/ui.js";
import { may, post, url, withQuery } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { moveThrough, useKeys } from "../lib/keys.js";
import { isOf } from "../lib/stream.js";
import { go, to } from "../lib/route.js";
import { clock, exactSpan, firstLine, money, now, toneOf, wordsOf } from "../lib/words.js";
import { Action, Dialog, Empty, Glyph, LongText, State, Waiting } from "../components/parts.js";

const PAGE = 100;
/** What a filter of tasks is called: one that is in progress may be at work, or wait for a person. */
const PARTS = { running: "in progress", gated: "in review" };
const ORDER = ["running", "gated", "failed", "waiting", "done", "skipped"];

/** How long its agents have worked, without waiting for a person; of a task that has not ended, since when it goes. */
const took = (task) => (task.ended_us ? (task.worked_us ? exactSpan(task.worked_us) : "") : task.started_us ? exactSpan(now.value - task.started_us) : "");

export function Tasks({ run, asking, chosen }) {
  const [status, setStatus] = useState("");
  const [cursors, setCursors] = useState([""]);
  useKeys(moveThrough("[data-task]"));
  const cursor = cursors.at(-1);
  const found = useData(withQuery(url`/runs/${run.id}/tasks`, { limit: PAGE, status, cursor }), { when: isOf(run.id) });
  const choose = (value) => {
    setStatus(value);
    setCursors([""]);
  };
  const counts = run.tasks;
  const total = Object.values(counts).reduce((a, b) => a + b, 0);
  const page = found.data;
  const first = (cursors.length - 1) * PAGE;
  return html`<div class="stack">
    <div class="chips" role="group" aria-label="Show">
      <button type="button" class="choice" aria-pressed=${!status} onClick=${() => choose("")}>All <span class="quiet num">${total.toLocaleString("en")}</span></button>
      ${ORDER.filter((each) => counts[each]).map((each) => html`<button type="button" class="choice" aria-pressed=${status === each} onClick=${() => choose(each)}><${Glyph} tone=${toneOf(each)} size="14" />${PARTS[each] || wordsOf(each)} <span class="quiet num">${counts[each].toLocaleString("en")}</span></button>`)}
    </div>
    ${!page && html`<${Waiting} error=${found.error} />`}
    ${page && !page.tasks.length && html`<div class="card"><${Empty} title="No tasks" /></div>`}
    ${page?.tasks.length > 0 &&
    html`<div class="card table"><table class="list cards">
      <thead><tr><th>Task</th><th>State</th><th>Needs</th><th class="end">Tries</th><th class="end">Cost</th><th class="end">Took</th></tr></thead>
      <tbody>${page.tasks.map(
        (task) => html`<tr key=${task.name}>
          <td class="wide"><a class="strong" data-task href=${to("run", run.id, "tasks", task.name)}>${task.name}</a><div class="small quiet clip-2">${firstLine(task.why || task.result || wordsFor(task))}</div></td>
          <td>${asking.has(task.name) ? html`<${State} tone="you" words="waiting for you" />` : html`<${State} state=${task.status} />`}</td>
          <td class="small quiet" data-label="needs">${needs(task.needs)}</td>
          <td class="end" data-label="tries">${task.attempts || ""}</td>
          <td class="end nowrap">${task.cost_usd > 0 ? money(task.cost_usd, task.estimated_usd) : ""}</td>
          <td class="end nowrap">${took(task)}</td>
        </tr>`,
      )}</tbody></table></div>
      ${page.total > PAGE &&
      html`<div class="row between"><span class="quiet num">${(first + 1).toLocaleString("en")}–${(first + page.tasks.length).toLocaleString("en")} of ${page.total.toLocaleString("en")}</span>
        <div class="buttons"><button type="button" class="button" disabled=${cursors.length < 2} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous</button>
        <button type="button" class="button" disabled=${!page.next} onClick=${() => setCursors([...cursors, page.next])}>Next</button></div></div>`}`}
    ${chosen && html`<${TaskDialog} run=${run} name=${chosen} close=${() => go(to("run", run.id, "tasks"))} />`}
  </div>`;
}

/** What it is to do; of a command without words, the program. */
const wordsFor = (task) => (task.is_command ? `runs ${task.description.split(" ")[0].split("/").at(-1)}` : task.description);

const needs = (names) => (names.length > 3 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", "));

/** Everything about one task, and what can be done with it. */
export function TaskDialog({ run, name, close }) {
  const found = useData(url`/runs/${run.id}/tasks/${name}`, { when: isOf(run.id) });
  const task = found.data;
  const act = (what, body = {}) => async () => {
    await post(what === "retry" ? url`/runs/${run.id}/retry` : url`/runs/${run.id}/tasks/${name}/` + what, what === "retry" ? { tasks: [name] } : body);
    found.reload();
  };
  const isOpen = task && ["running", "waiting", "gated"].includes(task.status);
  const on = `run/${run.id}`;
  const foot = task && html`${may("steer", on) && task.status === "failed" && html`<${Action} run=${act("retry")} done="It is retried">Retry<//>`}
    ${may("steer", on) && task.status !== "done" && task.status !== "skipped" && html`<${Action} run=${act("skip")} done="Skipped">Skip<//>`}
    ${may("stop", on) && isOpen && html`<${Action} class="button danger" run=${act("cancel")} done="Cancelled">Cancel<//>`}
    ${task.attempts > 0 && may("read_output", on) && html`<a class="button" href=${to("run", run.id, "review", name)}>Review</a><a class="button primary" href=${to("agent", task.agent)}>Output</a>`}`;
  return html`<${Dialog} title=${name} close=${close} foot=${foot}>
    ${!task && html`<${Waiting} error=${found.error} />`}
    ${task &&
    html`<div class="facts"><${State} state=${task.status} />${task.kind && html`<span>${task.kind}</span>`}${task.attempts > 0 && html`<span>try <b>${task.attempts}</b></span>`}
        ${task.gates > 0 && html`<span><b>${task.gates_passed}</b> of ${task.gates} checks passed</span>`}
        ${task.started_us > 0 && html`<span>${clock(task.started_us, true)} · ${took(task)}</span>`}
        ${task.cost_usd > 0 && html`<span><b>${money(task.cost_usd, task.estimated_usd)}</b></span>`}</div>
      ${task.not_before_us > now.value && html`<p class="note">Starts at ${clock(task.not_before_us, true)} at the earliest.</p>`}
      ${task.why && html`<p class="note tone s-${task.status === "failed" ? "failed" : "waiting"} wrap">${task.why}</p>`}
      ${task.conflict.length > 0 && html`<p class="note tone s-you">In conflict: <span class="mono">${task.conflict.join(", ")}</span></p>`}
      ${task.description && html`<div class="stack"><h3>${task.is_command ? "Command" : "Task"}</h3><pre class="code"><${LongText} text=${task.description} chars=${4000} /></pre></div>`}
      ${task.result && html`<div class="stack"><h3>Result</h3><pre class="code"><${LongText} text=${task.result} chars=${4000} /></pre></div>`}
      ${task.needs.length > 0 && html`<p class="soft">Needs ${task.needs.slice(0, 40).join(", ")}</p>`}`}
  <//>`;
}
