// What an agent prints and does, as rows of text. A window of it is in memory: older parts are read when they are
// scrolled to, newer ones come with the stream. Each event of an attempt has a version without gaps, so a line is
// shown once, also after a lost connection.

import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { get, url, withQuery } from "../lib/api.js";
import { isReset, listen, wantOutput } from "../lib/stream.js";
import { clock, firstLine } from "../lib/words.js";
import { LongText } from "./parts.js";
import { Prose } from "./prose.js";
import { ToolInput, brief } from "./tools.js";

const PAGE_EVENTS = 80;
const EVENTS_MAX = 1600;
const ROWS_MAX = 2000;
const CHARS_MAX = 20000;
const PAGE_FACTS = 300;

/** A window of the output of an attempt: {events, newest, attempt, attempts, …} and how to move it. */
export function useOutput(agent, attempt, until) {
  const [state, setState] = useState({ events: [], newest: 0, loading: true, error: null });
  const latest = useRef(state);
  latest.current = state;
  const busy = useRef(false);
  const read = (query) => get(withQuery(url`/agents/${agent}/output`, { attempt: attempt || "", limit: PAGE_EVENTS, facts_max: PAGE_FACTS, text_chars_max: CHARS_MAX, ...query }));

  const following = useRef(true);
  const turn = useRef(0);
  const show = async (query, join, isJump = false) => {
    if (busy.current && !isJump) return;
    busy.current = true;
    const mine = ++turn.current;
    try {
      const page = await read(query);
      if (mine !== turn.current) return; // a jump elsewhere came first
      busy.current = false;
      setState((old) => {
        const grown = old.attempt === page.attempt ? Math.max(old.newest, page.newest) : page.newest;
        const events = trimmed(join(old.events, page.events), query);
        const newest = until || grown;
        if ((events.at(-1)?.version ?? 0) >= newest) following.current = true;
        else if (query.before !== undefined && !until) following.current = false;
        return { ...old, attempt: page.attempt, attempts: page.attempts, newest, events, loading: false, error: null };
      });
    } catch (error) {
      if (mine !== turn.current) return;
      busy.current = false;
      setState((old) => ({ ...old, loading: false, error }));
    }
  };
  const first = () => latest.current.events[0]?.version ?? 0;
  const last = () => latest.current.events.at(-1)?.version ?? 0;
  const append = (old, page) => [...old, ...page.filter((each) => each.version > (old.at(-1)?.version ?? 0) && (!until || each.version <= until))];
  const toEnd = useCallback(() => {
    following.current = true;
    return show(until ? { before: until + 1 } : {}, (_old, page) => page, true);
  }, [agent, attempt, until]);
  const toStart = () => {
    following.current = false;
    return show({ after: 0 }, (_old, page) => page, true);
  };
  const older = () => first() > 1 && show({ before: first() }, (old, page) => [...page.filter((each) => each.version < (old[0]?.version ?? Infinity)), ...old]);
  const newer = () => last() < latest.current.newest && show({ after: last() }, append);

  useEffect(() => {
    if (following.current && state.events.length && last() < state.newest) newer();
  }, [state.events, state.newest]);

  useEffect(() => {
    setState({ events: [], newest: 0, loading: true, error: null });
    busy.current = false;
    toEnd();
    if (until) return undefined;
    wantOutput(agent);
    return listen((events) => {
      const isNewAttempt = events.some((each) => each.agent === agent && each.type === "attempt_planned");
      if (isNewAttempt && !attempt) return void toEnd();
      if (events.some(isReset)) return void show({ after: last() }, append);
      const id = `${agent}.${latest.current.attempt}`;
      const coming = events.filter((each) => each.kind === "attempt" && each.subject === id);
      if (!coming.length) return;
      setState((old) => {
        let end = old.events.at(-1)?.version ?? 0;
        const added = [];
        for (const each of following.current && end >= old.newest ? coming : []) {
          if (each.version !== end + 1) continue;
          added.push({ version: each.version, type: each.type, data: each.data, at_us: each.data.at_us || each.time_us, messages: {} });
          end += 1;
        }
        return { ...old, newest: Math.max(old.newest, coming.at(-1).version), events: added.length ? trimmed([...old.events, ...added], {}) : old.events };
      });
      const isTold = coming.some((each) => (each.data.facts || []).some((fact) => fact.kind === "input"));
      if (isTold) setTimeout(() => show({ after: Math.max(0, coming[0].version - 1) }, rejoin), 80); // with the texts of messages
    });
  }, [agent, attempt, until]);
  return { ...state, first: first(), last: last(), older, newer, toStart, toEnd };
}

/** Events that were read again replace those that came without the texts of messages. */
const rejoin = (old, page) => {
  const read = new Map(page.map((each) => [each.version, each]));
  return old.map((each) => read.get(each.version) || each);
};

/** At most so many events, and rows of facts; those at the far end are dropped, and read again when needed. One event can
 * have more rows than that, so what was asked for first, such as the beginning, is what stays. */
function trimmed(events, query) {
  let rows = 0;
  const sizes = events.map((each) => each.data.facts?.length || 1);
  if (query.before !== undefined || query.after === 0) {
    let end = 0;
    while (end < events.length && end < EVENTS_MAX && rows < ROWS_MAX) rows += sizes[end++];
    return events.slice(0, end);
  }
  let begin = events.length;
  while (begin > 0 && events.length - begin < EVENTS_MAX && rows < ROWS_MAX) rows += sizes[--begin];
  return events.slice(begin);
}

// --- rows -------------------------------------------------------------------------------------------------------

/** Rows of events: texts in parts are joined, and the outcome of a tool belongs to its use. */
export function rowsOf(events) {
  const rows = [];
  const tools = new Map();
  let shown = "";
  const add = (event, n, kind, more) => {
    const at = clock(event.at_us, true);
    rows.push({ key: `${event.version}.${n}`, version: event.version, at: at === shown ? "" : at, kind, ...more }); // a time is shown once
    shown = at;
  };
  for (const event of events) {
    if (event.type !== "attempt_output") {
      const text = mark(event);
      if (text) add(event, 0, "mark", { text });
      continue;
    }
    event.data.facts.forEach((fact, n) => {
      const before = rows.at(-1);
      switch (fact.kind) {
        case "text":
        case "thought":
          if (before?.kind === fact.kind && (fact.part || before.version === event.version)) before.text += `${fact.part ? "" : "\n"}${fact.text || ""}`;
          else add(event, n, fact.kind, { text: fact.text || "" });
          break;
        case "tool_use": {
          const known = tools.get(fact.id);
          if (known) Object.assign(known, { name: fact.name || known.name, input: fact.input ?? known.input });
          else {
            add(event, n, "tool", { id: fact.id, name: fact.name, input: fact.input, status: "running", output: "" });
            tools.set(fact.id, rows.at(-1));
          }
          break;
        }
        case "tool_progress":
        case "tool_result": {
          const known = tools.get(fact.id);
          const outcome = { output: fact.output || "", status: fact.kind === "tool_progress" ? "running" : fact.failed ? "failed" : "done" };
          if (known) Object.assign(known, outcome);
          else add(event, n, "tool", { id: fact.id, name: "result", input: null, ...outcome });
          break;
        }
        case "line":
        case "unknown":
        case "diagnostic":
          add(event, n, fact.stderr ? "stderr" : fact.kind, { text: fact.text || "" });
          break;
        case "discovery":
          add(event, n, "discovery", { text: fact.text });
          break;
        case "trouble":
          add(event, n, "trouble", { text: fact.message || fact.failure });
          break;
        case "retry":
          add(event, n, "mark", { text: `asks its model again${fact.error ? `: ${fact.error}` : ""}` });
          break;
        case "permission_requested":
          add(event, n, "ask", { text: `asks to use ${fact.tool || "a tool"}: ${brief(fact.input)}` });
          break;
        case "permission_denied":
          add(event, n, "mark", { text: `may not use ${fact.tool || "a tool"}${fact.message ? `: ${fact.message}` : ""}` });
          break;
        case "input": {
          const [, version] = /^inbox\/(\d+)$/.exec(fact.id) || [];
          if (version) add(event, n, "input", { text: event.messages?.[version] || "a message" });
          break;
        }
        case "plan":
          add(event, n, "mark", { text: `plan: ${fact.entries.map((each) => `${each.status === "completed" ? "✓" : "·"} ${each.content}`).join("  ")}` });
          break;
        case "turn_ended":
          add(event, n, "mark", { text: fact.failed ? `ended its turn: ${fact.reason || "failed"}` : "ended its turn" });
          break;
        case "session":
          add(event, n, "mark", { text: [fact.version, fact.model, fact.instead_of && "with a new session: the earlier one is lost"].filter(Boolean).join(" · ") || "session" });
          break;
        case "spool":
          add(event, n, "trouble", { text: fact.text || fact.what });
          break;
      }
    });
  }
  return rows;
}

function mark(event) {
  const { data } = event;
  switch (event.type) {
    case "attempt_started":
      return `started, process ${data.pid}`;
    case "attempt_claimed":
      return "another engine records it from here on";
    case "attempt_ended":
      return `${data.status}${data.message ? `: ${data.message}` : ""}`;
    case "attempt_stopping":
      return `is being stopped: ${data.why}`;
    case "attempt_answered":
      return `${data.allow ? "allowed" : "denied"} by ${(data.by || "").replace(/^\w+:/, "") || "a person"}${data.why ? `: ${data.why}` : ""}`;
    case "attempt_checkpointed":
      return data.commit ? `files saved as ${data.commit.slice(0, 8)} (${data.trigger})` : "";
    case "attempt_moved":
      return "its files were moved";
    default:
      return "";
  }
}

function Row({ row }) {
  return html`<div class=${`line ${row.kind}`} data-key=${row.key}><span class="at">${row.at}</span>${row.kind === "tool" ? html`<${Tool} row=${row} />` : html`<div class="said">${row.kind === "text" ? html`<${Prose} text=${row.text} />` : html`<${LongText} text=${row.text || "\u00a0"} chars=${2000} />`}</div>`}</div>`;
}

const Tool = ({ row }) => html`<details class="tool fold"><summary>
    <b>${row.name || "tool"}</b><span class="arg clip grow">${brief(row.input)}</span>
    <span class=${`small s-${row.status === "failed" ? "failed" : row.status === "done" ? "done" : "working"}`}>${row.status === "done" ? "✓" : row.status === "failed" ? "failed" : "runs"}</span>
  </summary>
  <div class="stack tool-body"><${ToolInput} name=${row.name} input=${row.input} />${row.output && html`<pre class="code"><${LongText} text=${row.output} chars=${3000} /></pre>`}</div>
</details>`;

/** The first row that is visible, and how far it is from the upper edge. */
function firstVisible(box) {
  const rows = box.children;
  let low = 0;
  let high = rows.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].offsetTop + rows[middle].offsetHeight < box.scrollTop) low = middle + 1;
    else high = middle;
  }
  const row = rows[low];
  return row ? { key: row.dataset.key, delta: row.offsetTop - box.scrollTop } : null;
}

/** The output of an agent, with the newest at the bottom. */
export function Output({ output }) {
  const box = useRef();
  const stick = useRef(true);
  const rows = useMemo(() => rowsOf(output.events), [output.events]);
  const anchor = useRef(null);
  const top = useRef(0);
  const isJumping = useRef(false); // the beginning is being read: what scrolls meanwhile is not the person
  useLayoutEffect(() => {
    const at = box.current;
    if (stick.current) {
      // Rows that were not visible have guessed heights: the end moves while they come into view.
      const toEnd = (left) => {
        if (!stick.current || !box.current) return;
        box.current.scrollTop = box.current.scrollHeight;
        if (left > 0) requestAnimationFrame(() => toEnd(left - 1));
      };
      toEnd(4);
    } else if (anchor.current) {
      const row = at.querySelector(`[data-key="${anchor.current.key}"]`); // what was read stays where it was
      if (row) at.scrollTop = row.offsetTop - anchor.current.delta;
    }
    top.current = at.scrollTop;
    if (at.scrollHeight <= at.clientHeight && output.events.length && output.first > 1) output.older();
  }, [rows]);
  const scrolled = () => {
    if (isJumping.current) return;
    const at = box.current;
    const isUp = at.scrollTop < top.current - 2;
    top.current = at.scrollTop;
    const isEnd = at.scrollHeight - at.scrollTop - at.clientHeight < 40;
    if (isUp || !stick.current) stick.current = isEnd && output.last >= output.newest;
    anchor.current = firstVisible(at);
    if (isUp && at.scrollTop < 300) output.older();
    else if (isEnd && !stick.current) output.newer();
  };
  const behind = output.newest - output.last;
  return html`<div class="output" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label="Output" aria-live="off">
      ${rows.map((row) => html`<${Row} key=${row.key} row=${row} />`)}
      ${!rows.length && !output.loading && html`<p class="quiet pad-line">It has printed nothing yet.</p>`}
    </div>
    <div class="output-foot"><span class="num">${output.newest ? `events ${output.first.toLocaleString("en")}–${output.last.toLocaleString("en")} of ${output.newest.toLocaleString("en")}` : firstLine(output.error?.message) || ""}</span>
      <span class="buttons"><button type="button" class="button plain small" disabled=${output.first <= 1} onClick=${() => { stick.current = false; anchor.current = null; isJumping.current = true; output.toStart().then(() => { box.current.scrollTop = top.current = 0; }).finally(() => requestAnimationFrame(() => (isJumping.current = false))); }}>Beginning</button>
      <button type="button" class="button plain small" disabled=${behind <= 0} onClick=${() => { stick.current = true; output.toEnd(); }}>${behind > 0 ? `${behind.toLocaleString("en")} newer` : "Newest"}</button></span>
    </div>`;
}
