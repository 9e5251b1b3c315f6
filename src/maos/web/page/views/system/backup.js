// How far the backup is, its last test, and what was asked for here. Nothing is restored from a page.

import { html } from "../../lib/ui.js";
import { may, post } from "../../lib/api.js";
import { useData } from "../../lib/data.js";
import { bytes, count, exactSpan, span } from "../../lib/words.js";
import { Action, Ago } from "../../components/parts.js";

const LATE_S = 60;

export function Backup() {
  const found = useData("/backups/status", { everyMs: 5000 });
  const it = found.data;
  if (!it) return null;
  const check = (kind) => async () => {
    await post(`/backups/${kind}`);
    found.reload();
  };
  const going = it.checks.filter((each) => !each.ended_us);
  const failed = it.checks.filter((each) => each.ended_us && each.problem);
  const bad = Boolean(it.problem || failed.length || it.behind_s > LATE_S || it.tested?.problem);
  return html`<section class="card pad stack" data-backup><div class="row between stack-on-phone"><h2>Backup</h2>
      ${it.backup && may("steer", "store") && html`<div class="row"><${Action} class="button" disabled=${going.some((each) => each.kind === "verify")} run=${check("verify")} done="The verification is started">Verify<//><${Action} class="button" disabled=${going.some((each) => each.kind === "test")} run=${check("test")} done="The test is started">Test a restoration<//></div>`}</div>
    <p class=${bad ? "note tone s-stuck" : ""}><b>${stateOf(it)}</b>${it.problem && html`<br /><span class="soft">${it.problem}</span>`}</p>
    ${!it.location && html`<p class="small quiet">Name a folder or a bucket in the setting <code>backup.to</code>: the server then writes a backup within a second of each event.</p>`}
    ${it.backup && html`<div class="facts"><span class="mono clip" title=${it.location}>${it.location}</span><span><b>${bytes(it.backup.bytes)}</b></span><span>written <b><${Ago} us=${it.backup.written_us} /></b></span>
      ${it.tested ? html`<span>last test <b><${Ago} us=${it.tested.at_us} /></b>: ${it.tested.problem ? "failed" : `${bytes(it.tested.bytes)} in ${exactSpan(it.tested.took_us)}`}</span>` : html`<span>never restored for a test</span>`}</div>`}
    ${it.tested?.problem && html`<p class="note tone s-stuck">The last test failed: ${it.tested.problem}</p>`}
    ${it.backup?.left_out.map((each) => html`<p class="note">Not in the backup: ${each}</p>`)}
    ${it.checks.map((each) => html`<p class="small" key=${each.kind}>${each.kind === "test" ? "Test of a restoration" : "Verification"}: ${!each.ended_us ? `position ${each.position.toLocaleString("en")} of ${each.of.toLocaleString("en")}` : each.problem ? html`<b>${each.problem}</b>` : html`nothing is wrong up to position ${each.position.toLocaleString("en")}, <${Ago} us=${each.ended_us} />`}</p>`)}
  </section>`;
}

function stateOf(it) {
  if (!it.location) return "No backup is written";
  if (it.problem) return "The backup cannot be reached";
  if (!it.backup) return "Nothing was backed up yet";
  return it.missing ? `${span(it.behind_s * 1e6)} behind, ${count(it.missing, "position")}` : "Everything is in the backup";
}
