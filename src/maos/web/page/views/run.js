// One run: its plan on a time axis, tasks, messages, review, and the way back in time.

import { html, useState } from "../lib/ui.js";
import { may, post, url } from "../lib/api.js";
import { askingTasks, kindOf } from "../lib/answers.js";
import { useData } from "../lib/data.js";
import { isOf } from "../lib/stream.js";
import { to } from "../lib/route.js";
import { amount, clock, count, firstLine, money, now, runState, span, toneOf } from "../lib/words.js";
import { Action, Dialog, Empty, Hint, Lasting, LongText, State, Waiting } from "../components/parts.js";
import { Timeline } from "../components/timeline.js";
import { Graph } from "../components/graph.js";
import { CostCurve } from "../components/curve.js";
import { TaskDialog, Tasks } from "./run_tasks.js";
import { Review, isMerged, isOver, useMerge } from "./run_review.js";
import { Time } from "./run_time.js";
import { Sequence } from "./messages.js";

export function Run({ parts }) {
  const [id, tab = "plan", ...rest] = parts;
  const found = useData(url`/runs/${id}`, { when: isOf(id), everyMs: 5000 });
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const run = found.data;
  const asking = askingTasks(run);
  const total = Object.values(run.tasks).reduce((a, b) => a + b, 0);
  const reads = may("read_output", `run/${id}`);
  const tabs = [["plan", "Plan"], ["tasks", "Tasks", total], ...(reads ? [["messages", "Messages", run.messages], ["review", "Review"], ["time", "Time"]] : [])];
  return html`<div class="head run-top">
      <nav class="crumbs" aria-label="Where"><a href=${to("fleet")}>Fleet</a> / <span class="mono">${run.id}</span></nav>
      <h1 class="clip-2">${firstLine(run.request) || run.id}</h1>
      <${Buttons} run=${run} reload=${found.reload} />
      <div class="facts">
        <${State} ...${runState(run)} />
        <span><b>${run.progress} %</b></span>
        ${(run.cost_usd > 0 || run.tokens > 0) && html`<span><b>${money(run.cost_usd, run.estimated_usd)}</b></span>`}
        ${run.left_usd !== null && html`<span>${money(run.left_usd)} left</span>`}
        ${run.tokens > 0 && html`<span class="wide-only"><b>${amount(run.tokens)}</b> tokens</span>`}
        <span><b><${Lasting} from=${run.created_us} until=${isOver(run) ? run.ended_us || run.updated_us : 0} /></b></span>
        <span class="wide-only" title=${engineWords(run)}>began ${clock(run.created_us)}</span>
        ${run.restored > 0 && html`<span class="wide-only" title="How often an engine has resumed it">resumed <b>${count(run.restored, "time")}</b></span>`}
        ${run.engine && !run.engine.alive && !isOver(run) && html`<span title=${engineWords(run)}>nothing executes it right now</span>`}
      </div>
      ${run.request.trim().includes("\n") && html`<details class="fold soft"><summary>The whole request</summary><pre class="code"><${LongText} text=${run.request} chars=${8000} /></pre></details>`}
    </div>
    ${run.tasks.failed > 0 && reads && tab === "plan" && html`<${FailedTasks} run=${run} />`}
    ${(run.error || run.why) && !(run.tasks.failed > 0 && reads) && html`<p class="note tone s-${run.tasks.failed ? "failed" : runState(run).tone}"><span class="wrap">${run.error || run.why}</span>${run.to_do && html`<br /><span class="soft"><${Hint} text=${run.to_do} /></span>`}</p>`}
    ${run.until_us > now.value && html`<p class="note">Continues by itself at ${clock(run.until_us)}, in ${span(run.until_us - now.value)}.</p>`}
    ${run.pending.length > 0 && html`<${Decisions} questions=${run.pending} isWhole=${tab === "plan"} />`}
    ${tab !== "review" && reads && html`<${Work} run=${run} />`}
    <nav class="tabs" aria-label="Parts of the run">
      ${tabs.map(([name, label, n]) => html`<a href=${to("run", id, name === "plan" ? "" : name)} aria-current=${tab === name ? "page" : null}>${label}${n > 0 && html`<span class="n">${n.toLocaleString("en")}</span>`}</a>`)}
    </nav>
    ${tab === "plan" && html`<${Plan} run=${run} asking=${asking} reads=${reads} />`}
    ${tab === "tasks" && html`<${Tasks} run=${run} asking=${asking} chosen=${rest[0]} />`}
    ${tab === "messages" && html`<${Sequence} path=${`/messages?run=${encodeURIComponent(id)}&limit=200`} when=${isOf(id)} run=${id} />`}
    ${tab === "review" && html`<${Review} run=${run} chosen=${rest[0]} />`}
    ${tab === "time" && html`<${Time} run=${run} />`}`;
}

const FAILED_SHOWN = 5;

/** The tasks that failed: why, and the last line that each agent printed. */
function FailedTasks({ run }) {
  const found = useData(`${url`/runs/${run.id}/tasks`}?status=failed&limit=${FAILED_SHOWN}`, { when: isOf(run.id) });
  const { tasks = [], total = 0 } = found.data || {};
  if (!tasks.length) return null;
  return html`<section class="note tone s-failed decisions" aria-label="Failed tasks">
    <b>${count(total, "task")} failed${run.why && `: ${run.why}`}</b>
    <ul>${tasks.map((task) => html`<${FailedTask} key=${task.name} task=${task} />`)}</ul>
    ${total > tasks.length && html`<a class="link small" href=${to("run", run.id, "tasks")}>${count(total - tasks.length, "more")}</a>`}
  </section>`;
}

function FailedTask({ task }) {
  const agent = useData(task.attempts > 0 ? url`/agents/${task.agent}` : null).data;
  const last = firstLine((agent?.result || "").trim().split("\n").at(-1));
  return html`<li class="failed-task"><span><a class="link" href=${task.attempts > 0 ? to("agent", task.agent) : to("run", task.agent.split(".")[0], "tasks", task.name)}>${task.name}</a> <span class="soft">${task.why}</span></span>${last && last !== task.why && html`<code class="clip-2">${last}</code>`}</li>`;
}

/** The process that executes a run, for those who want to know. */
const engineWords = ({ engine }) => (engine ? `${engine.alive ? "Executed" : "Last executed"} by process ${engine.pid} on ${engine.host}` : "");

const DECISIONS_SHOWN = 4;

/** What waits for a person in this run, each a step away from its answer; in one line on a phone, and beside the plan. */
function Decisions({ questions, isWhole }) {
  const more = questions.length - DECISIONS_SHOWN;
  const title = `${count(questions.length, "decision waits", "decisions wait")} for ${may("answer") ? "you" : "a person"}`;
  const linkOf = (each) => to("inbox", ...each.ref.split("/"));
  const wordsOf = (each) => firstLine(each.text) || `${kindOf(each)}: ${each.tool || each.ref}`;
  return html`<a class=${`note tone s-you decision-line${isWhole ? " phone-only" : ""}`} href=${questions.length > 1 ? to("inbox") : linkOf(questions[0])}><b class="nowrap">${title}</b><span class="clip soft">${questions.map(wordsOf).join(" · ")}</span><span aria-hidden="true">›</span></a>
  ${isWhole && html`<section class="note tone s-you decisions wide-only" aria-label="Decisions">
    <b>${title}</b>
    <ul>${questions.slice(0, DECISIONS_SHOWN).map((each) => html`<li><a class="link clip-2" href=${linkOf(each)}>${wordsOf(each)}</a></li>`)}</ul>
    ${more > 0 && html`<a class="link small" href=${to("inbox")}>${count(more, "more decision")}</a>`}
  </section>`}`;
}

/** Whether the work of a run that has completed is merged; else how to merge it. */
function Work({ run }) {
  const [merge] = useMerge(run);
  if (run.status !== "completed" || !merge) return null;
  if (isMerged(merge)) return html`<p class="note tone s-done">Its work is merged: ${merge.branch || "your branch"} has all of it.</p>`;
  return html`<p class="note tone s-you"><b>${merge.outcome === "merged" ? `${count(merge.files.length, "changed file is", "changed files are")} not merged yet.` : "Its work cannot be merged as it is."}</b> <a class="link" href=${to("run", run.id, "review", "all")}>${merge.outcome === "merged" ? "Review and merge" : "See why"}</a></p>`;
}

function Buttons({ run, reload }) {
  const [asked, setAsked] = useState(null);
  const on = `run/${run.id}`;
  const act = (name, body) => async () => {
    await post(url`/runs/${run.id}/` + name, body);
    reload();
  };
  const goes = run.status === "running" || run.status === "planning";
  const failed = (run.tasks.failed || 0) > 0;
  const canResume = run.resumable || (goes && run.engine && !run.engine.alive);
  const needsMore = run.limit === "cost_usd" || run.limit === "tokens";
  return html`<div class="buttons">
      ${failed && goes && run.engine?.alive && may("steer", on) && html`<${Action} run=${act("retry", {})} done="Failed tasks are retried">Retry failed<//>`}
      ${goes && run.engine?.alive && may("stop", on) && html`<${Action} run=${act("pause")} done="Paused; agents were stopped">Pause<//>`}
      ${canResume && may("steer", on) && (needsMore ? html`<button type="button" class="button primary" onClick=${() => setAsked("more")}>Resume with more</button>` : html`<${Action} class="button primary" run=${act("resume")} done=${run.status === "failed" ? "Failed tasks are retried" : "Resumed"}>${run.status === "failed" ? "Retry failed" : "Resume"}<//>`)}
      ${!isOver(run) && may("stop", on) && html`<button type="button" class="button danger" onClick=${() => setAsked("cancel")}>Cancel</button>`}
    </div>
    ${asked === "more" && html`<${More} run=${run} act=${act} close=${() => setAsked(null)} />`}
    ${asked === "cancel" &&
    html`<${Dialog} title="Cancel this run?" close=${() => setAsked(null)} foot=${html`<button type="button" class="button" onClick=${() => setAsked(null)}>Keep it</button>
      <${Action} class="button danger primary" run=${async () => { await act("cancel", {})(); setAsked(null); }} done="Cancelled">Cancel the run<//>`}>
      <p>${count(run.agents_at_work, "agent is", "agents are")} stopped, and what has not begun is not started. What was done stays; it can be resumed later.</p>
    <//>`}`;
}

/** A new limit for a run that has used up its budget: without one it would be paused again at once. */
function More({ run, act, close }) {
  const [{ limit: name, why, cost_usd, tokens }] = useState(run); // as it was when this was opened: a new limit clears the reason
  const isMoney = name === "cost_usd";
  const used = isMoney ? cost_usd : tokens;
  const [limit, setLimit] = useState(String(Number((2 * used).toPrecision(2))));
  const resume = async () => {
    await act("limits", { [name]: Number(limit) })();
    await act("resume")();
    close();
  };
  return html`<${Dialog} title="Resume with a larger budget" close=${close} foot=${html`<button type="button" class="button" onClick=${close}>Not now</button>
    <${Action} class="button primary" disabled=${!(Number(limit) > used)} run=${resume} done="Resumed">Resume<//>`}>
    <p>${why[0].toUpperCase()}${why.slice(1)}. The new budget counts from the beginning of the run.</p>
    <label class="stack">${isMoney ? "Spend at most, in $, in all" : "Use at most, in tokens, in all"}<input class="field" type="number" min="0" step=${isMoney ? 0.5 : 1000} inputmode="decimal" value=${limit} onInput=${(event) => setLimit(event.target.value)} /></label>
  <//>`;
}

function Plan({ run, asking, reads }) {
  const found = useData(url`/runs/${run.id}/timeline`, { when: isOf(run.id) });
  const [shape, setShape] = useState("time");
  const [task, setTask] = useState(null);
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const data = found.data;
  if (!data.tasks.length) return html`<div class="card"><${Empty} title="No plan yet">${run.activity || "An agent is planning."}<//></div>`;
  const stuck = new Set(run.stuck);
  const View = shape === "time" ? Timeline : Graph;
  return html`<div class="stack loose">
    <div class="row between"><h2>${shape === "time" ? "Who works on what, and when" : "What needs what"}</h2>
      <div class="chips" role="group" aria-label="Shape"><button type="button" class="choice" aria-pressed=${shape === "time"} onClick=${() => setShape("time")}>Timeline</button><button type="button" class="choice" aria-pressed=${shape === "graph"} onClick=${() => setShape("graph")}>Graph</button></div></div>
    <${View} run=${run.id} data=${data} asking=${asking} stuck=${stuck} choose=${setTask} />
    <div class="halves">
      <${Marks} marks=${data.marks} />
      <div class="stack loose">
        ${data.cost.length > 0 && html`<section class="card pad stack"><div class="row between base"><h2>Cost</h2><b class="num">${money(run.cost_usd, run.estimated_usd)}</b></div><${CostCurve} points=${data.cost} begin=${data.begin_us} end=${data.end_us} total=${run.cost_usd} /></section>`}
        ${reads && html`<${Discoveries} run=${run} />`}
      </div>
    </div>
    ${task && html`<${TaskDialog} run=${run} name=${task.name} close=${() => setTask(null)} />`}
  </div>`;
}

const MARK_TONES = { asked: "you", answered: "done", paused: "paused", blocked: "stuck", limited: "stuck", rolled_back: "stuck", checkpoint: "off", created: "off", claimed: "off", planned: "off", resumed: "off", forked: "off" };

const MARK_WORDS = { asked: "asked: ", answered: "answered: ", checkpoint: "checkpoint " };

const toneOfMark = ({ kind, text }) => (kind === "ended" ? toneOf(text.split(":")[0]) : MARK_TONES[kind]) || "off";

/** What happened to the run as a whole, the newest first. */
function Marks({ marks }) {
  const [all, setAll] = useState(false);
  const newest = [...marks].reverse();
  return html`<section class="card pad stack"><h2>What happened</h2>
    <ol class="marks">${(all ? newest : newest.slice(0, 12)).map(
      (each) => html`<li><span class="dot s-${toneOfMark(each)}"></span><span class="clip-2">${MARK_WORDS[each.kind] && each.text ? MARK_WORDS[each.kind] : ""}${each.text || each.kind.replaceAll("_", " ")}${each.by && !/^engine/.test(each.by) && html`<span class="quiet"> · ${each.by.replace(/^\w+:/, "")}</span>`}</span><span class="quiet small nowrap num">${clock(each.at_us, true)}</span></li>`,
    )}</ol>
    ${newest.length > 12 && !all && html`<button type="button" class="button plain small" onClick=${() => setAll(true)}>Show all ${newest.length}</button>`}
  </section>`;
}

function Discoveries({ run }) {
  const found = useData(url`/runs/${run.id}/discoveries`, { when: (event) => isOf(run.id)(event) && (event.type === "tool_called" || event.type === "attempt_output" || event.type === "task_finished") });
  const list = found.data?.discoveries || [];
  if (!list.length) return null;
  return html`<section class="card pad stack"><h2>Discoveries</h2><ul class="stack">${list.slice(-30).map((each) => html`<li class="discovery"><${LongText} text=${each.text} chars=${400} /><span class="quiet small block">${each.task}</span></li>`)}</ul></section>`;
}

