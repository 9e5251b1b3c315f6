// Workflow runs: what each waits for, its steps, signals, and schedules.

import { html, useState } from "../lib/ui.js";
import { may, post, url } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { to } from "../lib/route.js";
import { clock, count, exactSpan, firstLine, now, span } from "../lib/words.js";
import { Action, Ago, Empty, LongText, State, Waiting } from "../components/parts.js";

const changes = (event) => event.kind === "workflow" || event.kind === "schedules" || event.kind === "run";

export function Workflows({ parts }) {
  return parts[0] ? html`<${Details} id=${parts[0]} />` : html`<${List} />`;
}

function List() {
  const [limit, setLimit] = useState(50);
  const found = useData(`/workflows?limit=${limit}`, { when: changes });
  const schedules = useData("/schedules", { when: (event) => event.kind === "schedules", everyMs: 60000 });
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const { workflows, total } = found.data;
  const upcoming = schedules.data?.schedules || [];
  return html`<div class="head"><h1>Workflows</h1><div class="facts"><span><b>${count(workflows.filter((each) => each.is_open).length, "run")}</b> open</span><span><b>${total}</b> in all</span></div></div>
    ${upcoming.length > 0 && html`<section class="card pad stack"><h2>Schedules</h2><table class="list"><thead><tr><th>Name</th><th>Workflow</th><th>When</th><th class="end">Next</th></tr></thead><tbody>${upcoming.map((each) => html`<tr><td><b>${each.name}</b></td><td>${each.workflow}</td><td class="mono">${each.cron} ${each.zone}</td><td class="end">${each.next_us ? html`${clock(each.next_us)} <span class="quiet">in ${span(each.next_us - now.value)}</span>` : "–"}</td></tr>`)}</tbody></table></section>`}
    ${!workflows.length && html`<div class="card"><${Empty} title="No workflow runs">Workflows are Python functions whose steps are recorded, or plan files: <code>maos workflow run</code>.<//></div>`}
    ${workflows.length > 0 &&
    html`<div class="card table"><table class="list cards"><thead><tr><th>Workflow</th><th>State</th><th>Does</th><th class="end">Steps</th><th class="end">Changed</th></tr></thead>
      <tbody>${workflows.map(
        (each) => html`<tr key=${each.id}><td class="wide"><a class="strong" href=${each.of === "file" ? to("run", each.id) : to("workflows", each.id)}>${each.workflow}</a><div class="small quiet mono">${each.id}</div></td>
          <td><${State} state=${each.unknown.length ? "unknown" : each.state} /></td><td class="wide"><span class="clip-2 soft">${firstLine(each.why || each.activity)}</span></td>
          <td class="end nowrap">${each.steps_done} of ${each.steps}</td><td class="end"><${Ago} us=${each.changed_us} /></td></tr>`,
      )}</tbody></table></div>
      ${total > workflows.length && html`<p><button type="button" class="button" onClick=${() => setLimit(Math.min(500, limit * 4))}>Show more</button></p>`}`}`;
}

function Details({ id }) {
  const found = useData(url`/workflows/${id}`, { when: (event) => event.subject === id || event.subject.startsWith(`${id}.`), everyMs: 5000 });
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const flow = found.data;
  const act = (name) => () => post(url`/workflows/${id}/` + name, {}).then(() => found.reload());
  return html`<div class="head"><nav class="crumbs" aria-label="Where"><a href=${to("workflows")}>Workflows</a> / <span class="mono">${id}</span></nav>
      <div class="row between stack-on-phone"><div class="row"><h1>${flow.workflow}</h1><${State} state=${flow.state} /></div>
      ${may("stop", `run/${id}`) && flow.is_open && html`<div class="buttons"><${Action} run=${act("pause")} done="It pauses after its current steps">Pause<//><${Action} class="button danger" run=${act("cancel")} done="It is cancelled after its current steps">Cancel<//></div>`}</div>
      <div class="facts"><span>${flow.steps_done} of ${count(flow.steps, "step")}</span><span>began ${clock(flow.started_us)}</span>${flow.version && html`<span>code <code>${flow.version.slice(0, 12)}</code></span>`}</div>
      ${reasonsOf(flow).map((each) => html`<p class=${`note wrap${flow.error ? " tone s-failed" : ""}`}>${each}</p>`)}
      ${flow.unknown.length > 0 && html`<p class="note tone s-stuck">It is unknown whether ${flow.unknown.join(", ")} took effect. <a class="link" href=${to("inbox")}>Resolve it in the inbox</a></p>`}
    </div>
    ${flow.is_open && may("steer", `run/${id}`) && html`<${Signal} id=${id} />`}
    <div class="card table"><table class="list cards"><thead><tr><th>Step</th><th>State</th><th>Given</th><th>Result</th><th class="end">Tries</th><th class="end">Took</th></tr></thead>
      <tbody>${flow.step_list.slice(-300).map(
        (step) => html`<tr key=${step.id}><td class="wide"><b class="nowrap">${step.name}</b> <span class="quiet small nowrap">${step.id} · ${step.kind}</span></td><td><${State} state=${step.status} /></td>
          <td class="wide mono small" data-label="given"><${LongText} text=${step.given} chars=${160} /></td><td class="wide mono small" data-label="result">${step.error ? html`<${StepError} error=${step.error} />` : html`<${LongText} text=${short(step.result)} chars=${240} />`}</td>
          <td class="end" data-label="tries">${step.tries || ""}</td><td class="end nowrap">${step.ended_us ? exactSpan(step.ended_us - step.at_us) : step.at_us ? span(now.value - step.at_us) : ""}</td></tr>`,
      )}</tbody></table></div>
    ${flow.result !== null && flow.result !== undefined && html`<section class="card pad stack"><h2>Result</h2><pre class="code"><${LongText} text=${JSON.stringify(flow.result, null, 2)} chars=${6000} /></pre></section>`}`;
}

/** Why it is in its state, and the error of the step that ended it; once when one says what the other does. */
function reasonsOf(flow) {
  const error = flow.error ? flow.error.message || short(flow.error) : "";
  const said = [flow.why || "", error].filter(Boolean);
  return said.filter((each, i) => !said.some((other, j) => i !== j && other.includes(each) && (other !== each || j < i)));
}

/** What a step failed with; where in the code, if a person wants to know. */
function StepError({ error }) {
  if (!error.message) return html`<${LongText} text=${short(error)} chars=${240} />`;
  return html`<${LongText} text=${error.type ? `${error.type}: ${error.message}` : error.message} chars=${240} />
    ${error.traceback && html`<details class="fold"><summary class="quiet">Where</summary><pre class="code"><${LongText} text=${error.traceback} chars=${4000} /></pre></details>`}`;
}

const short = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

function Signal({ id }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const send = async () => {
    let data = value;
    try {
      data = value ? JSON.parse(value) : null;
    } catch {
      // it is meant as text
    }
    await post(url`/workflows/${id}/signals`, { name, value: data });
    setName("");
    setValue("");
  };
  return html`<details class="fold card pad"><summary>Send a signal</summary><div class="row stack-on-phone pad-top"><input class="field" aria-label="Name of the signal" placeholder="name" value=${name} onInput=${(event) => setName(event.target.value)} /><input class="field" aria-label="Value" placeholder="value, text or JSON" value=${value} onInput=${(event) => setValue(event.target.value)} /><${Action} class="button primary" disabled=${!name.trim()} run=${send} done="Sent">Send<//></div></details>`;
}
