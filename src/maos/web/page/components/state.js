// The versioned state of an agent: a slider over its versions, the state at one, and what changed since the one before.

import { html, useState } from "../lib/ui.js";
import { url } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { moment } from "../lib/words.js";
import { Empty, LongText, Waiting } from "./parts.js";

export function StateHistory({ agent }) {
  const [chosen, setChosen] = useState(0);
  const newest = useData(url`/state/${agent}`, { when: (event) => event.kind === "agent" && event.subject === agent });
  const last = newest.data?.version || 0;
  const version = chosen || last;
  const then = useData(last ? `${url`/state/${agent}`}?version=${version}` : null);
  const diff = useData(last && version > 1 ? `${url`/state/${agent}/diff`}?first=${version - 1}&second=${version}` : null);
  if (newest.error?.status === 404) return html`<div class="card"><${Empty} title="No state">This agent has kept none. Agents save what they must remember with the tool <code>save_state</code>.<//></div>`;
  if (!newest.data) return html`<${Waiting} error=${newest.error} />`;
  const shown = then.data || newest.data;
  return html`<div class="stack loose">
    <div class="card pad stack">
      <label class="stack">Version ${version} of ${last}<input type="range" min="1" max=${last} value=${version} onInput=${(event) => setChosen(Number(event.target.value) === last ? 0 : Number(event.target.value))} /></label>
      <span class="quiet small">${shown.type} · ${moment(shown.time_us)}${shown.source && html` · by ${shown.source}`}</span>
    </div>
    <div class="halves">
      <section class="card pad stack"><h3>State at version ${version}</h3><pre class="code"><${LongText} text=${JSON.stringify(shown.data, null, 2)} chars=${20000} /></pre></section>
      <section class="card pad stack"><h3>${version > 1 ? `Changed since version ${version - 1}` : "Created"}</h3>
        ${(diff.data?.changes || []).slice(0, 200).map((each) => html`<div class="change"><code class="small">${each.path}</code>
          ${each.before !== null && each.kind !== "create" && html`<pre class="d del"><${LongText} text=${JSON.stringify(each.before)} /></pre>`}
          ${each.kind !== "delete" && html`<pre class="d add"><${LongText} text=${JSON.stringify(each.after)} /></pre>`}</div>`)}
        ${version > 1 && diff.data && !diff.data.changes.length && html`<p class="quiet">Nothing.</p>`}
      </section>
    </div>
  </div>`;
}
