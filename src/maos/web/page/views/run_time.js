// A slider over the history of a run: everything as it was at a moment, and the way back to it.

import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { may, mayStart, post, url } from "../lib/api.js";
import { askingTasks } from "../lib/answers.js";
import { useData } from "../lib/data.js";
import { axisOf } from "../lib/plan.js";
import { isOf, position } from "../lib/stream.js";
import { go, to } from "../lib/route.js";
import { clock, count, exactSpan, firstLine, moment, money, runState, shortAgent, toneOf, wordsOf } from "../lib/words.js";
import { Action, Dialog, Empty, ErrorNote, Glyph, LongText, State, Waiting, say } from "../components/parts.js";
import { Output, useOutput } from "../components/output.js";
import { Diff } from "../components/diff.js";
import { toneOfSpan } from "../components/timeline.js";
import { isOver } from "./run_review.js";

const REST_MS = 120;
const PLAY_S = 30;
const TICK_MS = 250;
const ROWS_MAX = 48;
const HEIGHT = 72;
/** Changes so close together are one step: an event has the time of the engine, and a moment later that of the database. */
const STEP_US_MIN = 50e3;
const TASKS_SHOWN = 200;

export function Time({ run }) {
  // Where the slider is: null for the end, else {us} or {version}. Between two versions of the run, agents kept working.
  const [at, setAt] = useState(null);
  const [asked, setAsked] = useState("");
  const [agent, setAgent] = useState(null);
  const [showsFiles, setShowsFiles] = useState(false);
  const on = `run/${run.id}`;
  const timeline = useData(url`/runs/${run.id}/timeline`, { when: isOf(run.id) });
  const end = useMemo(() => (isOver(run) ? String(run.version) : `@${position.peek()}`), [run.version]);
  const named = at === null ? end : at.version ? String(at.version) : new Date(Math.ceil(at.us / 1000)).toISOString();
  const read = useRested(named);
  const found = useData(`${url`/runs/${run.id}/moment`}?at=${encodeURIComponent(read)}`);
  const last = useRef(null);
  if (found.data) last.current = found.data;
  const then = last.current;
  const us = at?.us ?? (at === null ? timeline.data?.end_us : then?.point.time_us) ?? run.updated_us;
  const marks = timeline.data?.marks || [];
  const where = then && (at?.version || isOver(run) ? String(then.point.version) : `@${then.point.position}`);
  return html`<div class="stack loose">
    <div class="card scrub">
      <div class="row between stack-on-phone">
        <h2 class="num">${clock(us, true)} <span class="quiet">${us > run.created_us ? `${exactSpan(us - run.created_us)} after it began` : "when it began"}${then?.point.name ? ` · ${then.point.name}` : ""}</span></h2>
        <label class="row small quiet">version <${VersionField} shown=${then?.point.version ?? run.version} max=${run.version} move=${(version) => setAt({ version })} /> of ${run.version}</label>
      </div>
      ${timeline.data && html`<${Scrubber} data=${timeline.data} us=${us} move=${(moved) => setAt({ us: moved })} toEnd=${() => setAt(null)} />`}
      <div class="row between stack-on-phone"><span class="small soft clip grow">${lastMark(marks, us)}</span>
      <div class="buttons">${may("rollback", on) && html`<button type="button" class="button" disabled=${!then} onClick=${() => setAsked("rollback")}>Roll back to here</button>`}${mayStart() && html`<button type="button" class="button" disabled=${!then} onClick=${() => setAsked("fork")}>Fork from here</button>`}</div></div>
    </div>
    ${(!then || found.error) && html`<${Waiting} error=${found.error} />`}
    ${then && html`<${Then} run=${run} then=${then} showOutput=${setAgent} showFiles=${() => setShowsFiles(true)} />`}
    ${asked && html`<${Travel} kind=${asked} run=${run} where=${where} version=${then.point.version} close=${() => setAsked("")} />`}
    ${agent && html`<${OutputThen} at=${agent} close=${() => setAgent(null)} />`}
    ${showsFiles && html`<${FilesThen} run=${run} where=${where} close=${() => setShowsFiles(false)} />`}
  </div>`;
}

/** The version that is shown, as a field to type another into. What is typed stays while the view around it is drawn again. */
function VersionField({ shown, max, move }) {
  const [typed, setTyped] = useState(null);
  const enter = (event) => {
    setTyped(null);
    move(Math.min(max, Math.max(1, Number(event.target.value) || 1)));
  };
  return html`<input class="field version" type="number" aria-label="Version" min="1" max=${max} value=${typed ?? shown} onInput=${(event) => setTyped(event.target.value)} onChange=${enter} />`;
}

/** A value once it has rested for a moment, so that a slider that moves does not ask for every pixel. */
function useRested(value) {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), REST_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

/** The work of all tasks as thin bars, a slider over them, and a player. Long idle times are short here too. */
function Scrubber({ data, us, move, toEnd }) {
  const [width, setWidth] = useState(800);
  const [plays, setPlays] = useState(false);
  const box = useRef();
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(160, Math.floor(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const spans = data.tasks.flatMap((task) => task.spans);
  const axis = useMemo(() => axisOf(spans, data.begin_us, data.end_us, width), [data, width]);
  const times = useMemo(() => [...new Set([data.begin_us, ...spans.flatMap(([from, until]) => [from, until || data.end_us]), ...data.marks.map((each) => each.at_us), data.end_us])].sort((a, b) => a - b), [data]);
  const x = axis.x(us);
  const step = (by) => {
    setPlays(false);
    const next = by > 0 ? times.find((each) => each > us + STEP_US_MIN) : times.filter((each) => each < us - STEP_US_MIN).at(-1);
    if (next === undefined || next >= data.end_us) toEnd();
    else move(next);
  };
  const moved = useRef();
  moved.current = () => {
    const next = x + (width / PLAY_S) * (TICK_MS / 1000);
    if (next < width) return move(axis.at(next));
    setPlays(false);
    return toEnd();
  };
  useEffect(() => {
    if (!plays) return undefined;
    const timer = setInterval(() => moved.current(), TICK_MS);
    return () => clearInterval(timer);
  }, [plays]);
  const play = () => {
    if (!plays && x >= width - 1) move(data.begin_us);
    setPlays(!plays);
  };
  const rows = data.tasks.filter((task) => task.spans.length).slice(0, ROWS_MAX);
  const row = Math.min(8, (HEIGHT - 8) / Math.max(1, rows.length));
  return html`<div class="scrubber">
    <div class="buttons">
      <button type="button" class="button icon" aria-label="To the change before" title="To the change before" onClick=${() => step(-1)}>‹</button>
      <button type="button" class="button icon" aria-label=${plays ? "Stop" : "Play"} aria-pressed=${plays} onClick=${play}>${plays ? "❚❚" : "▶"}</button>
      <button type="button" class="button icon" aria-label="To the next change" title="To the next change" onClick=${() => step(1)}>›</button>
    </div>
    <div class="track" ref=${box}>
      <svg height=${HEIGHT} viewBox="0 0 ${width} ${HEIGHT}" aria-hidden="true">
        ${axis.gaps.map((gap) => html`<rect class="gap" x=${gap.x} y="0" width=${gap.width} height=${HEIGHT} />`)}
        ${rows.map((task, i) => task.spans.map(([from, until, outcome]) => html`<rect class="bar s-${toneOfSpan(outcome)}" x=${axis.x(from)} y=${4 + i * row} width=${Math.max(2, axis.x(until || data.end_us) - axis.x(from))} height=${Math.max(1, row - 2)} rx="1.5" />`))}
        ${data.marks.filter((each) => MARKED[each.kind]).map((each) => html`<line class="mark s-${MARKED[each.kind]}" x1=${axis.x(each.at_us)} x2=${axis.x(each.at_us)} y1="0" y2=${HEIGHT}><title>${each.text}</title></line>`)}
        <line class="head" x1=${x} x2=${x} y1="0" y2=${HEIGHT} />
      </svg>
      <input type="range" aria-label="Moment" aria-valuetext=${clock(us, true)} min="0" max=${width} value=${Math.round(x)} onInput=${(event) => { setPlays(false); Number(event.target.value) >= width ? toEnd() : move(axis.at(Number(event.target.value))); }} />
    </div>
  </div>`;
}

const MARKED = { asked: "you", paused: "waiting", blocked: "stuck", limited: "stuck", rolled_back: "stuck", checkpoint: "working" };

function lastMark(marks, us) {
  const last = [...marks].reverse().find((each) => each.at_us <= us);
  return last ? `${last.kind.replaceAll("_", " ")}: ${last.text}` : "";
}

/** Tasks, files and messages as they were. */
function Then({ run, then, showOutput, showFiles }) {
  const asking = askingTasks(then.run);
  const outputs = new Map(then.agents.map((each) => [each.task, each]));
  return html`<div class="facts"><${State} ...${runState(then.run)} /><span><b>${then.run.progress} %</b></span>${then.run.cost_usd > 0 && html`<span><b>${money(then.run.cost_usd, then.run.estimated_usd)}</b></span>`}<span><b>${then.messages.length}</b> ${then.messages.length === 1 ? "message" : "messages"}</span>${then.files && html`<span><b>${then.files.length}</b> ${then.files.length === 1 ? "file" : "files"} changed</span>`}</div>
    <div class="thens">
      <section class="card" aria-label="Tasks then"><ul class="then-tasks">${then.tasks.slice(0, TASKS_SHOWN).map((task) => {
        const at = outputs.get(task.name);
        const asks = asking.has(task.name) && !["done", "skipped"].includes(task.status);
        const does = task.why || (task.status === "done" ? firstLine(task.result) : at?.activity);
        return html`<li key=${task.name}><${Glyph} tone=${asks ? "you" : toneOf(task.status)} size="14" /><b class="clip">${task.name}</b><span class="clip soft small">${does || ""}</span>
          <span class="small quiet nowrap">${asks ? "waiting for you" : wordsOf(task.status)}</span>${at && html`<button type="button" class="button plain small" onClick=${() => showOutput(at)}>Output then</button>`}</li>`;
      })}</ul>${then.tasks.length > TASKS_SHOWN && html`<p class="quiet pad-line">${then.tasks.length - TASKS_SHOWN} more</p>`}</section>
      <div class="stack loose">
        <section class="card pad stack"><div class="row between"><h3>Files then</h3>${then.files?.length > 0 && html`<button type="button" class="button plain small" onClick=${showFiles}>Show lines</button>`}</div>
          ${then.files === null ? html`<p class="quiet">They are not kept apart for this run.</p>` : then.files.length ? html`<ul class="mono small">${then.files.slice(0, 60).map((file) => html`<li class="row between"><span class="clip">${file.path}</span><span class="nowrap"><span class="plus">+${file.added ?? "?"}</span> <span class="minus">−${file.removed ?? "?"}</span></span></li>`)}</ul>` : html`<p class="quiet">None was changed and merged by then.</p>`}</section>
        <section class="card pad stack"><h3>Messages by then</h3>${then.messages.length ? html`<ul class="stack">${then.messages.slice(-12).map((each) => html`<li class="small"><b>${shortAgent(each.sender, run.id)} → ${recipients(each.to, run.id)}</b> <span class="quiet num">${clock(each.at_us, true)}</span><br /><${LongText} text=${each.text} chars=${240} /></li>`)}</ul>` : html`<p class="quiet">None.</p>`}</section>
      </div>
    </div>`;
}

const recipients = (names, run) => (names.length > 3 ? count(names.length, "agent") : names.map((name) => shortAgent(name, run)).join(", "));

/** What an agent had printed by then. */
function OutputThen({ at, close }) {
  const output = useOutput(at.agent, at.attempt, at.version);
  return html`<${Dialog} title="${at.task || at.agent}, as it was then" close=${close}><div class="then-output"><${Output} output=${output} /></div><//>`;
}

function FilesThen({ run, where, close }) {
  const found = useData(`${url`/runs/${run.id}/comparison`}?before=1&after=${encodeURIComponent(where)}&patch=true`);
  return html`<${Dialog} title="What was changed by then" close=${close}>${found.data ? html`<${Diff} patch=${found.data.patch} cut=${found.data.cut} />` : html`<${Waiting} error=${found.error} />`}<//>`;
}

const WORDS = {
  rollback: { title: "Roll back", verb: "Roll back", does: "The run continues from that moment. What came after stays recorded, and rolling back can be undone." },
  fork: { title: "Fork", verb: "Fork", does: "A second run starts from that moment, with files and conversations of its own. This run is not touched." },
};

/** First what would happen, task by task; then the button. */
function Travel({ kind, run, where, version, close }) {
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const body = kind === "rollback" ? { to: where } : { at: where };
  const path = url`/runs/${run.id}/` + kind;
  const look = () => {
    setError(null);
    post(path, { ...body, dry_run: true }).then(setPlan, setError);
  };
  useEffect(look, []);
  const isGoing = kind === "rollback" && run.engine?.alive && ["running", "planning"].includes(run.status);
  const pause = async () => {
    await post(url`/runs/${run.id}/pause`);
    look();
  };
  const travel = async () => {
    const done = await post(path, body);
    close();
    if (kind === "fork") go(to("run", done.run));
    say(kind === "fork" ? `${done.run} starts from version ${version}. Resume it when you are ready.` : `Rolled back to version ${version}. Resume the run to continue from there.`);
  };
  const words = WORDS[kind];
  const acts = plan ? plan.steps.filter((step) => step.what !== "kept") : [];
  return html`<${Dialog} title="${words.title} to version ${version}?" close=${close} foot=${html`<button type="button" class="button" onClick=${close}>Close</button><${Action} class="button primary" disabled=${!plan || (isGoing && error)} run=${travel}>${words.verb}<//>`}>
    <p>${words.does}</p>
    ${error && html`<${ErrorNote} error=${error} />`}
    ${isGoing && error && html`<${Action} run=${pause} done="Paused">Pause the run first<//>`}
    ${plan &&
    html`<h3>What happens</h3>
      <p class="soft">${moment(plan.point.time_us)}. ${count(plan.steps.length - acts.length, "task keeps", "tasks keep")} what they have${acts.length ? "; these change:" : "."}</p>
      ${acts.length > 0 && html`<table class="list"><thead><tr><th>Task</th><th>Now</th><th>Then</th><th>What is done</th></tr></thead><tbody>${acts.slice(0, 100).map((step) => html`<tr><td><b>${step.task}</b></td><td><${State} state=${step.now} /></td><td>${step.then ? html`<${State} state=${step.then} />` : "–"}</td><td class="small">${step.what.replaceAll("_", " ")}${step.checkpoint && html`, files of ${step.checkpoint}`}</td></tr>`)}</tbody></table>`}
      ${plan.questions.length > 0 && html`<p class="soft">Asked again: ${plan.questions.join(", ")}</p>`}
      ${plan.cost_usd > 0 && html`<p class="soft">What came after has cost ${money(plan.cost_usd)}.</p>`}
      ${plan.notes.map((note) => html`<p class="note small">${note}</p>`)}
      ${!plan.steps.length && html`<${Empty} title="Nothing changes" />`}`}
    ${!plan && !error && html`<${Waiting} what="Working out what would happen" />`}
  <//>`;
}
