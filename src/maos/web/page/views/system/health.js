// How large everything is, what cannot be executed, and what was noticed when the database was opened.

import { html } from "../../lib/ui.js";
import { may } from "../../lib/api.js";
import { useData } from "../../lib/data.js";
import { amount, bytes, count, money, now, span } from "../../lib/words.js";
import { Ago, Hint } from "../../components/parts.js";

const NUMBERS_MS = 30000;

export function Totals({ health }) {
  const store = useData(may("read", "store") ? "/store" : null, { everyMs: NUMBERS_MS }).data;
  const cost = useData("/cost", { everyMs: NUMBERS_MS }).data;
  const numbers = [
    ["Events", health.position.toLocaleString("en"), "in the journal"],
    store && ["Database", store.bytes ? bytes(store.bytes) : "PostgreSQL", store.database],
    store && ["Runs", store.runs.toLocaleString("en"), `${count(store.agents, "agent")}, ${count(store.workflows, "workflow run")}`],
    cost && ["Cost", money(cost.cost_usd, cost.estimated_usd), `${amount(cost.tokens)} tokens in all`],
  ].filter(Boolean);
  return html`<div class="numbers">${numbers.map(([label, value, more]) => html`<div class="card number"><span class="quiet small">${label}</span><b class="num">${value}</b><span class="quiet small clip" title=${more}>${more}</span></div>`)}</div>`;
}

/** What it is made of, and which servers execute its runs. */
export function Versions() {
  const store = useData("/store", { everyMs: NUMBERS_MS }).data;
  if (!store) return null;
  const { versions, servers } = store;
  return html`<section class="card pad stack"><h2>Versions and servers</h2>
    <div class="facts">${Object.entries(versions).map(([name, version]) => html`<span>${name} <b>${version}</b></span>`)}</div>
    ${servers.length > 0 &&
    html`<div class="table"><table class="list cards"><thead><tr><th>Server</th><th>Machine</th><th class="end">Process</th><th class="end">Started</th></tr></thead><tbody>${servers.map(
      (each) => html`<tr key=${each.host + each.pid}><td class="mono small wide">${each.url || "without a page"}</td><td data-label="on">${each.host}</td><td class="end num" data-label="process">${each.pid}</td><td class="end"><${Ago} us=${each.started_us} /></td></tr>`,
    )}</tbody></table></div>`}</section>`;
}

export function Problems({ health }) {
  if (!health.problems.length) return null;
  return html`<section class="card pad stack"><h2>What cannot be executed</h2>${health.problems.map(
    (each) => html`<div class="note tone s-stuck" key=${each.id}><b class="mono">${each.id}</b> ${each.what}<br /><span class="soft"><${Hint} text=${each.hint} />${each.hint && " · "}tried ${count(each.tries, "time")}, again ${each.again_us > now.value ? `in ${span(each.again_us - now.value)}` : "now"}</span></div>`,
  )}</section>`;
}

export function Notes() {
  const found = useData("/store", { everyMs: NUMBERS_MS }).data?.findings || [];
  if (!found.length) return null;
  return html`<section class="card pad stack"><h2>Notes</h2>${found.map((each) => html`<p class="note">${each.what}</p>`)}</section>`;
}
