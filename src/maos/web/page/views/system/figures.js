// Figures of the journal: what is unusual, how it grows, how agents and models compare, and what takes the space. All of
// them are computed from the events of the time that is chosen.

import { html, signal } from "../../lib/ui.js";
import { useData } from "../../lib/data.js";
import { withQuery } from "../../lib/api.js";
import { amount, bytes, clock, count, exactSpan, kindWords, money, now } from "../../lib/words.js";
import { Empty, Waiting } from "../../components/parts.js";

const HOUR_US = 3600e6;
const SPANS = [["1 h", HOUR_US], ["24 h", 24 * HOUR_US], ["7 d", 0], ["30 d", 30 * 24 * HOUR_US]];
/** The time that is shown: its label, and since when; 0: the seven days that the server shows by default. */
const chosen = signal({ label: "7 d", since: 0 });

/** The figures of the chosen time; cards that show the same read it once, because the server answers them together. */
function useFigures() {
  return useData(withQuery("/statistics", { since_us: chosen.value.since || "" }), { everyMs: 60000 });
}

const Spans = () => html`<div class="chips" role="group" aria-label="Time">${SPANS.map(([label, span]) => html`<button type="button" class="choice" aria-pressed=${chosen.value.label === label} onClick=${() => (chosen.value = { label, since: span && Math.round(now.peek() - span) })}>${label}</button>`)}</div>`;

export function Unusual() {
  const found = useFigures();
  if (!found.data) return html`<${Waiting} error=${found.error} what="Reading the journal" />`;
  const { anomalies } = found.data;
  return html`<section class="card pad stack"><div class="row between stack-on-phone"><h2>${anomalies.length ? "What is unusual" : "Nothing is unusual"}</h2><${Spans} /></div>
    ${anomalies.map((each) => html`<p class="note tone s-stuck"><b>${each.about}</b> ${each.what}</p>`)}
    ${!anomalies.length && html`<p class="quiet">No burst of events, no rise of failures, no attempt far longer or dearer than others of its kind.</p>`}</section>`;
}

export function Growth() {
  const found = useFigures().data;
  if (!found) return null;
  const { growth, activity, runs } = found;
  const saved = growth.plain_bytes ? 1 - growth.stored_bytes / growth.plain_bytes : 0;
  const isShort = found.until_us - found.since_us < HOUR_US; // a rate of so little says nothing
  const failures = activity.reduce((sum, each) => sum + each.failures, 0);
  return html`<section class="card pad stack"><h2>What was recorded</h2>
    <div class="facts"><span><b>${count(growth.events, "event")}</b></span>${!isShort && html`<span><b>${amount(growth.events_per_hour)}</b> an hour</span><span><b>${bytes(growth.bytes_per_day)}</b> a day</span>`}<span>compression saves <b>${Math.round(saved * 100)} %</b></span>
      ${growth.trend !== null && html`<span><b>${growth.trend.toFixed(1)} ×</b> as much in the second half as in the first</span>`}
      <span><b>${count(runs.count, "run")}</b>${Object.entries(runs.by_status).map(([status, n]) => `, ${n} ${status}`)}</span>${failures > 0 && html`<span class="s-failed"><b>${count(failures, "failure")}</b></span>`}</div>
    <${Bars} periods=${activity} until=${found.until_us} /></section>`;
}

const WIDTH = 900;
const HEIGHT = 96;
const BAR_MAX = 36;

/** Events over time as bars; failures below in red. */
function Bars({ periods, until }) {
  if (!periods.length) return null;
  const most = Math.max(1, ...periods.map((each) => each.events));
  const step = Math.min(BAR_MAX, WIDTH / periods.length);
  return html`<svg class="history" viewBox="0 0 ${WIDTH} ${HEIGHT + 16}" role="img" aria-label="Events over time, at most ${most} in one part">
    ${periods.map((each, i) => {
      const height = each.events ? Math.max(2, (each.events / most) * (HEIGHT - 10)) : 0;
      return html`<g><title>${clock(each.start_us)}: ${count(each.events, "event")}${each.failures ? `, ${count(each.failures, "failure")}` : ""}</title><rect class="events" x=${i * step + 1} y=${HEIGHT - 6 - height} width=${Math.max(1, step - 2)} height=${height} />${each.failures > 0 && html`<rect class="failures" x=${i * step + 1} y=${HEIGHT - 4} width=${Math.max(1, step - 2)} height="4" />`}</g>`;
    })}
    <text x="0" y=${HEIGHT + 13}>${clock(periods[0].start_us)}</text>${periods.length > 3 && html`<text x=${step * periods.length} y=${HEIGHT + 13} text-anchor="end">${clock(until)}</text>`}</svg>`;
}

export function Agents() {
  const found = useFigures().data;
  if (!found) return null;
  return html`<section class="card pad stack"><h2>Agents and models compared</h2>
    ${!found.agents.length && html`<${Empty} title="No attempts in this time" />`}
    ${found.agents.length > 0 &&
    html`<div class="table"><table class="list cards"><thead><tr><th>Agents</th><th>Model</th><th class="end">Attempts</th><th class="end">Success</th><th class="end">Median time</th><th class="end">Longest</th><th class="end">Cost</th><th class="end">Tokens</th><th>Failures</th></tr></thead><tbody>${found.agents.map(
      (each) => html`<tr key=${each.kind + each.model}><td class="strong wide">${kindWords(each.kind)}</td><td>${each.model || "–"}</td><td class="end" data-label="attempts">${each.attempts.toLocaleString("en")}${each.open > 0 && html` <span class="quiet">(${each.open} open)</span>`}</td>
        <td class="end" data-label="success">${each.success === null ? "–" : html`<span class=${each.success < 0.5 ? "s-failed" : ""}>${Math.round(each.success * 100)} %</span>`}</td><td class="end nowrap" data-label="median">${each.median_s === null ? "–" : exactSpan(each.median_s * 1e6)}</td><td class="end nowrap" data-label="longest">${each.longest_s === null ? "–" : exactSpan(each.longest_s * 1e6)}</td>
        <td class="end">${money(each.cost_usd)}</td><td class="end" data-label="tokens">${amount(each.tokens)}</td><td class="small soft">${Object.entries(each.failures).map(([name, n]) => `${name} ${n}`).join(", ")}</td></tr>`,
    )}</tbody></table></div>`}</section>`;
}

export function Storage() {
  const found = useFigures().data;
  if (!found?.usage.length) return null;
  const { cache } = found;
  const reads = cache.hits + cache.refreshes + cache.misses;
  const most = Math.max(...found.usage.map((each) => each.stored_bytes)) || 1;
  return html`<section class="card pad stack"><h2>What takes the space</h2>
    <div class="bars five">${found.usage.map((each) => html`<b>${each.kind}</b><span class="bar-track"><i style=${{ width: `${(each.stored_bytes / most) * 100}%` }}></i></span><span class="num nowrap">${bytes(each.stored_bytes)}</span><span class="num nowrap quiet">${bytes(each.plain_bytes)} before compression</span><span class="num nowrap quiet">${count(each.events, "event")}, ${count(each.streams, "stream")}</span>`)}</div>
    ${reads > 0 && html`<p class="small soft">The cache of states answered ${Math.round(((cache.hits + cache.refreshes) / reads) * 100)} % of ${count(reads, "read")}; it has ${count(cache.entries, "entry", "entries")}, ${bytes(cache.bytes)}.</p>`}</section>`;
}
