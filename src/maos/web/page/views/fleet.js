// Everything that runs, at a glance: one card for each run, with its agents; what needs a person comes first.

import { html, signal, useState } from "../lib/ui.js";
import { may, mayStart } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { moveThrough, useKeys } from "../lib/keys.js";
import { to } from "../lib/route.js";
import { amount, clock, count, firstLine, kindWords, money, now, runState, shortAgent, span, toneOf, wordsOf } from "../lib/words.js";
import { Ago, Empty, Glyph, Hint, Lasting, State, Waiting } from "../components/parts.js";
import { Icon } from "../components/icons.js";
import { Strip, TONES } from "../components/strip.js";

const FOLD_AGENTS = 200;
const search = signal("");
const chosen = signal("all");

const FILTERS = [
  ["all", "All runs", null],
  ["you", "Waiting for you", "you"],
  ["working", "Working", "working"],
  ["stuck", "Stuck", "stuck"],
  ["failed", "Failed", "failed"],
];

export function Fleet() {
  const fleet = useData("/fleet", { when: (event) => event.kind !== "messages", everyMs: 2500 });
  useKeys(moveThrough("[data-card]"));
  if (!fleet.data) return html`<${Waiting} error=${fleet.error} />`;
  const { runs, agents, recent, ended, recent_agents: left, quotas } = fleet.data;
  const totals = totalsOf(runs, agents, [...recent, ...left]);
  const wanted = search.value.trim().toLowerCase();
  const shown = runs.filter((run) => matches(run, wanted) && isChosen(runTones(run)));
  const alone = agents.filter((card) => (!wanted || card.agent.toLowerCase().includes(wanted)) && isChosen([toneOf(card.state)]));
  const fold = totals.agents >= FOLD_AGENTS;
  const isEmpty = !runs.length && !agents.length;
  const over = recent.filter((run) => (!wanted || `${run.id} ${run.request}`.toLowerCase().includes(wanted)) && isChosen([toneOf(run.state)]));
  const overAlone = left.filter((agent) => (!wanted || agent.agent.toLowerCase().includes(wanted)) && isChosen([toneOf(agent.status)]));
  const isNothing = !shown.length && !alone.length && !over.length && !overAlone.length;
  return html`<div class="head">
      <div class="row between top">
        <h1><${Headline} totals=${totals} isEmpty=${isEmpty} /></h1>
        ${mayStart() && html`<a class="button primary" href=${to("start")}><${Icon} name="plus" size="16" />New run</a>`}
      </div>
      ${(!isEmpty || quotas.length > 0) && html`<${Rates} totals=${totals} isEmpty=${isEmpty} quotas=${quotas} />`}
    </div>
    ${(!isEmpty || ended > 0) &&
    html`<div class="toolbar">
      <div class="chips" role="group" aria-label="Show runs and agents">
        ${FILTERS.filter(([name, , tone]) => !tone || totals.by[tone] || chosen.value === name).map(
          ([name, label, tone]) => html`<button type="button" class="choice" aria-pressed=${chosen.value === name} onClick=${() => (chosen.value = name)}>
            ${tone && html`<${Glyph} tone=${tone} size="14" />`}${label}${tone && html`<span class="quiet num">${totals.by[tone] || 0}</span>`}
          </button>`,
        )}
      </div>
      <input class="field search" data-search type="search" placeholder="Search runs and tasks  /" aria-label="Search runs and tasks"
        value=${search.value} onInput=${(event) => (search.value = event.target.value)} />
    </div>`}
    ${shown.length > 0 && html`<div class="runs">${shown.map((run) => html`<${RunCard} key=${run.id} run=${run} fold=${fold} />`)}</div>`}
    ${alone.length > 0 &&
    html`<section class="card run-card"><div class="run-head"><h2>Agents without a run</h2></div><div class="tiles">${alone.map((card) => html`<${Tile} key=${card.agent} card=${card} />`)}</div></section>`}
    ${isNothing && (!isEmpty || ended > 0) && (wanted || chosen.value !== "all") && html`<div class="card"><${Empty} title="Nothing matches">Choose another filter, or clear the search.<//></div>`}
    ${isEmpty && !ended && !left.length &&
    html`<div class="card"><${Empty} title="No agent is at work">
      <p>A run is a request that several coding agents work on, each in a git worktree of its own. You see here what they do, and decide what they ask.</p>
      ${mayStart() && html`<p><a class="button primary" href=${to("start")}><${Icon} name="plus" size="16" />Start the first run</a></p>`}
      <p class="small quiet">Or in a terminal: <code>maos run "…" --detach</code>. It appears on this page at once.</p>
    <//></div>`}
    <${Recent} runs=${over} agents=${overAlone} total=${ended} isFiltered=${wanted || chosen.value !== "all"} />`;
}

function totalsOf(runs, agents, over) {
  const by = {};
  const add = (tone, n = 1) => (by[tone] = (by[tone] || 0) + n);
  let working = 0;
  let tasks = 0;
  for (const run of runs) {
    for (const tone of new Set(runTones(run))) add(tone);
    for (const [state, n] of Object.entries(run.states)) {
      tasks += n;
      if (toneOf(state) === "working") working += n;
    }
  }
  for (const each of over) add(toneOf(each.state || each.status));
  for (const card of agents) {
    add(toneOf(card.state));
    if (toneOf(card.state) === "working") working += 1;
  }
  const sum = (name) => [...runs, ...agents].reduce((total, each) => total + (each[name] || 0), 0);
  return {
    by, working, agents: tasks + agents.length, questions: runs.reduce((n, run) => n + run.questions, 0) + agents.filter((each) => each.state === "waiting_for_you").length,
    stuck: runs.filter((run) => runTones(run).includes("stuck")).length + agents.filter((each) => toneOf(each.state) === "stuck").length, cost: sum("cost_usd"), estimated: sum("estimated_usd"), tokens: sum("tokens"), perMin: sum("tokens_per_min"), usdPerMin: sum("usd_per_min"),
  };
}

const runTones = (run) => [runState(run).tone, ...Object.keys(run.states).map(toneOf)];
const isChosen = (tones) => chosen.value === "all" || tones.includes(chosen.value);
const matches = (run, wanted) => !wanted || `${run.id} ${run.request} ${run.cards.map((card) => card.task).join(" ")}`.toLowerCase().includes(wanted);

/** The whole fleet in one sentence. */
function Headline({ totals, isEmpty }) {
  if (isEmpty) return html`All quiet`;
  const parts = [];
  if (totals.questions) parts.push(html`<a class="ask" href=${to("inbox")}>${count(totals.questions, "decision waits", "decisions wait")} for ${may("answer") ? "you" : "a person"}</a>`);
  if (totals.working) parts.push(html`${count(totals.working, "agent")} at work`);
  if (totals.stuck) parts.push(html`${count(totals.stuck, "run is", "runs are")} stuck`);
  if (!parts.length) parts.push("Nothing is at work right now");
  return parts.map((part, i) => html`${i > 0 && html`<span class="sep"> · </span>`}${part}`);
}

const Rates = ({ totals, isEmpty, quotas }) => html`<div class="facts">
  ${(totals.cost > 0 || totals.tokens > 0) && html`<span><b>${money(totals.cost, totals.estimated)}</b> so far</span>`}
  ${totals.usdPerMin > 0.0005 && html`<span><b>${money(totals.usdPerMin)}</b> a minute</span>`}
  ${totals.tokens > 0 && html`<span><b>${amount(totals.tokens)}</b> tokens</span>`}
  ${totals.perMin >= 1 && html`<span><b>${amount(totals.perMin)}</b> tokens a minute</span>`}
  ${!isEmpty && html`<span><b>${totals.agents.toLocaleString("en")}</b> ${totals.agents === 1 ? "task or agent" : "tasks and agents"}</span>`}
  ${quotas.slice(0, 4).map((each) => html`<${Quota} key=${each.kind + each.window} quota=${each} />`)}
</div>`;

const FULL = 0.9;
const WARNING = 0.7;

/** What is used of a window of the account that agents use, and when it begins anew. */
function Quota({ quota }) {
  const words = `${quota.kind} ${quota.window.replace("five_hour", "5 h").replace("seven_day", "7 d").replaceAll("_", " ")}`;
  const isOver = quota.status === "rejected";
  const tone = isOver || quota.used >= FULL ? "failed" : quota.used >= WARNING ? "you" : "done";
  const when = quota.reset_us ? `begins anew ${clock(quota.reset_us)}` : "";
  if (quota.used === null && !isOver) return when && html`<span>${words} window ${when}</span>`;
  return html`<span class="quota" title="As the provider said ${clock(quota.told_us)}">${words}
    ${quota.used !== null && html`<span class="meter s-${tone}"><i style=${{ width: `${Math.min(100, quota.used * 100)}%` }}></i></span>`}
    <b>${isOver ? "used up" : `${Math.round(quota.used * 100)} %`}</b>${when && html` <span class="quiet">${when}</span>`}</span>`;
}

function RunCard({ run, fold }) {
  const { tone, words } = runState(run);
  const [open, setOpen] = useState(null);
  const big = run.strip.length > run.cards.length || run.cards.length > 12;
  const showTiles = open ?? !(fold && big);
  const more = run.strip.length - run.cards.length;
  return html`<article class="card run-card" aria-label=${firstLine(run.request) || run.id}>
    <a class="run-head" data-card href=${to("run", run.id)}>
      <div class="row between top">
        <h2 class="clip-2">${firstLine(run.request) || `Run ${run.id}`}</h2>
        <${State} tone=${tone} words=${words} />
      </div>
      <div class="facts small">
        <span class="mono">${run.id}</span>
        <span><b>${run.progress} %</b> · ${doneOf(run).toLocaleString("en")} of ${count(run.strip.length, "task")}</span>
        ${(run.cost_usd > 0 || run.tokens > 0) && html`<span>${money(run.cost_usd, run.estimated_usd)}</span>`}
        ${run.left_usd !== null && html`<span>${money(run.left_usd)} left</span>`}
        ${run.tokens_per_min >= 1 && html`<span>${amount(run.tokens_per_min)} tokens/min</span>`}
        <span><${Lasting} from=${run.created_us} /></span>
        ${run.output_us > 0 && html`<span>last output <${Ago} us=${run.output_us} /></span>`}
        ${run.until_us > now.value && html`<span>continues at ${clock(run.until_us)}, in ${span(run.until_us - now.value)}</span>`}
      </div>
      <${Strip} text=${run.strip} />
    </a>
    ${(run.error || run.to_do) && html`<p class="note tone s-${run.states.failed ? "failed" : tone} small run-note"><span class="wrap">${run.error || run.activity}</span>${run.to_do && html`<br /><span class="soft"><${Hint} text=${run.to_do} /></span>`}</p>`}
    ${showTiles && html`<div class="tiles">${run.cards.map((card) => html`<${Tile} key=${card.task} card=${card} run=${run.id} />`)}</div>`}
    ${big &&
    html`<div class="row between run-foot small">
      <span class="chips">${groups(run.states).map(([words_, n, tone_]) => html`<span class="chip tone s-${tone_}"><b class="num">${n.toLocaleString("en")}</b> ${words_}</span>`)}</span>
      ${fold && html`<button type="button" class="button plain small" aria-expanded=${showTiles} onClick=${() => setOpen(!showTiles)}>${showTiles ? "Fold" : `Show ${count(run.cards.length, "agent")}`}</button>`}
      ${!fold && more > 0 && html`<a class="link" href=${to("run", run.id, "tasks")}>All ${run.strip.length.toLocaleString("en")} tasks</a>`}
    </div>`}
  </article>`;
}

const doneOf = (run) => (run.states.done || 0) + (run.states.skipped || 0);
const groups = (states) => Object.entries(states).map(([state, n]) => [wordsOf(state), n, toneOf(state)]).sort((a, b) => TONES.indexOf(a[2]) - TONES.indexOf(b[2]));

/** One agent: what it does, and since when. */
function Tile({ card, run }) {
  const tone = toneOf(card.state);
  const begun = card.state !== "waiting" && card.state !== "stuck";
  const link = begun || !run ? to("agent", card.agent) : to("run", run);
  return html`<a class="tile s-${tone}" data-card href=${link}>
    <div class="row between"><span class="clip name">${card.task && run ? card.task : shortAgent(card.agent, run)}</span><${Glyph} tone=${tone} size="14" /></div>
    <div class="clip-2 does">${firstLine(card.activity) || (card.state === "waiting" ? "has not begun" : card.state === "working" ? "has printed nothing yet" : " ")}</div>
    <div class="row between small meta">
      <span class="clip">${wordsOf(card.state)}${sinceOf(card)}</span>
      <span class="num nowrap">${card.cost_usd > 0 ? money(card.cost_usd, card.estimated_usd) : kindWords(card.kind)}</span>
    </div>
  </a>`;
}

function sinceOf(card) {
  if (card.until_us > now.value) return ` until ${clock(card.until_us)}`;
  if (card.state === "quiet") return ` for ${span(now.value - card.since_us)}`;
  if (!card.since_us || card.state === "done") return "";
  return ` · ${span(now.value - card.since_us)}`;
}

function Recent({ runs, agents, total, isFiltered }) {
  if ((!total && !agents.length) || (isFiltered && !runs.length && !agents.length)) return null;
  return html`<section class="recent">
    <div class="row between base"><h2>Ended</h2><span class="quiet small">${runs.length || agents.length ? "in the last 24 hours" : `${count(total, "run")}, none in the last 24 hours`}</span></div>
    ${(runs.length > 0 || agents.length > 0) &&
    html`<div class="card table"><table class="list cards"><thead><tr><th>Run or agent</th><th>State</th><th class="end">Tasks</th><th class="end">Cost</th><th class="end">Took</th><th class="end">Ended</th></tr></thead>
      <tbody>${runs.map(
        (run) => html`<tr key=${run.id}>
          <td class="wide"><a class="clip-2 strong" data-card href=${to("run", run.id)}>${firstLine(run.request) || run.id}</a></td>
          <td><${State} state=${run.state} /></td>
          <td class="end nowrap">${doneOf({ states: run.tasks })} of ${Object.values(run.tasks).reduce((a, b) => a + b, 0)}</td>
          <td class="end nowrap">${money(run.cost_usd, run.estimated_usd)}</td>
          <td class="end nowrap"><${Lasting} from=${run.created_us} until=${run.ended_us || run.updated_us} /></td>
          <td class="end"><${Ago} us=${run.ended_us} /></td>
        </tr>`,
      )}${agents.map(
        (agent) => html`<tr key=${agent.agent}>
          <td class="wide"><a class="clip-2 strong" data-card href=${to("agent", agent.agent)}>${agent.agent}</a></td>
          <td><${State} state=${agent.status} /></td>
          <td class="end nowrap">${kindWords(agent.kind)}</td>
          <td class="end nowrap">${money(agent.cost_usd, agent.estimated_usd)}</td>
          <td class="end nowrap"><${Lasting} from=${agent.started_us} until=${agent.ended_us} /></td>
          <td class="end"><${Ago} us=${agent.ended_us} /></td>
        </tr>`,
      )}</tbody></table></div>`}
  </section>`;
}
