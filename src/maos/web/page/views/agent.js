// One agent: what it prints and does, its attempts, what it asks, its state; and how to speak to it.

import { html, useState } from "../lib/ui.js";
import { identity, may, post, url } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { to } from "../lib/route.js";
import { clock, exactSpan, money, amount, kindWords, shortAgent, toneOf, wordsOf } from "../lib/words.js";
import { Action, Ago, ErrorNote, Glyph, Hint, LongText, State, Waiting } from "../components/parts.js";
import { Output, useOutput } from "../components/output.js";
import { Diff } from "../components/diff.js";
import { StateHistory } from "../components/state.js";
import { Question } from "./inbox.js";

export function Agent({ parts }) {
  const [agent, tab = "output"] = parts;
  const found = useData(url`/agents/${agent}`, { when: (event) => event.agent === agent || event.subject === agent || event.subject.startsWith(`${agent}.`), everyMs: 5000 });
  const [attempt, setAttempt] = useState(0);
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const it = found.data;
  const run = runOf(agent);
  const asks = it.pending.length > 0;
  const reads = may("read_output", `agent/${agent}`);
  const tabs = reads ? [["output", "Output"], ["changes", "Changes", it.files?.length], ["state", "State"]] : [];
  return html`<div class="head">
      <nav class="crumbs" aria-label="Where"><a href=${to("fleet")}>Fleet</a> /${run && html`<a class="mono" href=${to("run", run)}>${run}</a> /`}<span class="clip">${shortAgent(agent, run)}</span></nav>
      <div class="row between stack-on-phone">
        <div class="row"><h1 class="clip">${shortAgent(agent, run)}</h1>${asks ? html`<${State} tone="you" words="waiting for you" />` : html`<${State} state=${it.status} />`}</div>
        <${Buttons} it=${it} />
      </div>
      <div class="facts">
        <span class="clip" title=${it.kind}>${kindWords(it.kind)}</span>
        ${it.attempts.length > 1 && html`<span>attempt <b>${it.attempt}</b></span>`}
        ${it.output_us && html`<span>last output <b><${Ago} us=${it.output_us} /></b></span>`}
        ${it.turns > 0 && html`<span><b>${it.turns}</b> ${it.turns === 1 ? "turn" : "turns"}</span>`}
        ${it.cost_usd > 0 && html`<span><b>${money(it.cost_usd, it.estimated_usd)}</b></span>`}
        ${it.unpriced_tokens > 0 && html`<span>${amount(it.unpriced_tokens)} tokens without a price</span>`}
      </div>
      ${it.task && html`<details class="fold soft"><summary><span class="clip">${it.task.split("\n")[0].slice(0, 200)}</span></summary><pre class="code"><${LongText} text=${it.task} chars=${4000} /></pre></details>`}
    </div>
    ${it.failure && html`<p class="note tone s-failed"><b class="wrap">${it.failure.message || it.failure.name}</b>${it.failure.meaning && html`<br /><span class="soft">${sentence(it.failure.meaning)}</span>`}${it.failure.hint && !/logs/.test(it.failure.hint) && html`<br /><span class="soft"><${Hint} text=${sentence(it.failure.hint)} /></span>`}</p>`}
    <nav class="tabs" aria-label="Parts">
      ${tabs.map(([name, label, n]) => html`<a href=${to("agent", agent, name === "output" ? "" : name)} aria-current=${tab === name ? "page" : null}>${label}${n > 0 && html`<span class="n">${n}</span>`}</a>`)}
    </nav>
    ${!reads && html`<p class="note">Your role is ${identity.value?.role || "limited"}: it does not read what agents print.</p><aside class="side"><${Attempts} it=${it} chosen=${it.attempt} choose=${() => {}} /></aside>`}
    ${tab === "state" && html`<${StateHistory} agent=${agent} />`}
    ${tab === "changes" && html`<${Changes} agent=${agent} />`}
    ${tab === "output" && reads &&
    html`<div class="with-side">
      <div class="stack">
        ${it.pending.map((each) => html`<${Question} key=${each.ref} question=${each} />`)}
        <${OutputCard} key=${attempt} agent=${agent} attempt=${attempt} it=${it} />
      </div>
      <aside class="side"><${Attempts} it=${it} chosen=${attempt || it.attempt} choose=${setAttempt} /><${Discoveries} it=${it} /></aside>
    </div>`}`;
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");
const runOf = (agent) => (agent.includes(".") ? agent.split(".")[0] : "");

function Buttons({ it }) {
  const [stops, steers] = [may("stop", `agent/${it.agent}`), may("steer", `agent/${it.agent}`)];
  const runs = ["running", "planned", "detached"].includes(it.status);
  const run = runOf(it.agent);
  return html`<div class="buttons">
    ${runs && stops && html`<${Action} class="button danger" run=${() => post(url`/agents/${it.agent}/stop`)} done="Stopped; it can be resumed">Stop<//>`}
    ${!runs && it.resumable && run && may("steer", `run/${run}`) && html`<${Action} class="button primary" run=${() => post(url`/runs/${run}/resume`)} done="The run is resumed">Resume the run<//>`}
    ${!runs && it.resumable && !run && steers && html`<${Action} class="button primary" run=${() => post(url`/agents/${it.agent}/resume`)} done="Resumed">Resume<//>`}
  </div>`;
}

function OutputCard({ agent, attempt, it }) {
  const output = useOutput(agent, attempt);
  return html`<section class="card" aria-label="What it prints and does">
    ${output.error && html`<${ErrorNote} error=${output.error} />`}
    <${Output} output=${output} />
    ${may("steer", `agent/${agent}`) && html`<${Composer} agent=${agent} it=${it} />`}
  </section>`;
}

function Composer({ agent, it }) {
  const [text, setText] = useState("");
  const send = async () => {
    const sent = await post(url`/agents/${agent}/messages`, { text });
    setText("");
    return sent;
  };
  const takes = it.kind !== "shell";
  return html`<form class="composer" onSubmit=${(event) => event.preventDefault()}>
    <textarea class="field" rows="1" aria-label="Message to the agent" placeholder=${takes ? "Message to the agent" : "Message to the agent (a command reads it only if it was started with input)"} value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    <${Action} class="button primary" disabled=${!text.trim()} run=${send} done=${(sent) => (sent.running ? "Sent" : "Recorded; the agent gets it when it is resumed")}>Send<//>
  </form>`;
}

function Attempts({ it, chosen, choose }) {
  return html`<section class="card" aria-label="Attempts"><h3>Attempts</h3>
    <div class="stack">${[...it.attempts].reverse().slice(0, 30).map(
      (each) => html`<button type="button" class="attempt" aria-pressed=${each.number === chosen} onClick=${() => choose(each.number === it.attempt ? 0 : each.number)}>
        <${Glyph} tone=${toneOf(each.status)} size="14" /><span class="grow"><b>${each.number}</b> ${wordsOf(each.status)}${each.failure && html`<span class="soft">: ${each.message || each.failure}</span>`}
        <span class="small quiet block">${clock(each.started_us || each.planned_us, true)}${each.ended_us > 0 && html` · ${exactSpan(each.ended_us - (each.started_us || each.planned_us))}`}${each.cost_usd > 0 && html` · ${money(each.cost_usd)}`}${each.model && html` · ${each.model}`}</span></span>
      </button>`,
    )}</div></section>`;
}

const Discoveries = ({ it }) =>
  it.discoveries.length > 0 &&
  html`<section class="card" aria-label="Discoveries"><h3>Discoveries</h3><ul class="stack">${it.discoveries.slice(-20).map((each) => html`<li class="discovery"><${LongText} text=${each.text} chars=${300} /></li>`)}</ul></section>`;

function Changes({ agent }) {
  const found = useData(`${url`/agents/${agent}/diff`}?patch=true`, { when: (event) => event.agent === agent && event.type === "attempt_checkpointed" });
  if (!found.data) return found.error?.status === 400 ? html`<p class="note">${found.error.message}. ${found.error.hint}</p>` : html`<${Waiting} error=${found.error} />`;
  return html`<${Diff} patch=${found.data.patch} cut=${found.data.cut} />`;
}

