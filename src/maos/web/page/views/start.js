// Start a run: a request that an agent plans, or a plan file that the server's settings allow.

import { html, useState } from "../lib/ui.js";
import { identity, mayStart, newKey, post } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { go, to } from "../lib/route.js";
import { Action, Waiting } from "../components/parts.js";

export function Start() {
  const options = useData("/start-options");
  const [key] = useState(newKey);
  const [form, setForm] = useState({ request: "", plan: "", folder: "", kind: "", permission: "", budget_usd: "", approved: false });
  if (!mayStart()) return html`<p class="note">Your role is ${identity.value?.role || "limited"}: it does not start runs.</p>`;
  if (!options.data) return html`<${Waiting} error=${options.error} />`;
  const { folders, plans, kinds, kind, executes } = options.data;
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const start = async () => {
    const { budget_usd, request, plan, approved, ...rest } = form;
    const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value));
    const what = plan ? { plan } : { request: request.trim(), approved };
    const run = await post("/runs", { ...given, ...what, ...(Number(budget_usd) > 0 && { budget_usd: Number(budget_usd) }) }, { key });
    go(to("run", run.id));
  };
  return html`<div class="head"><h1>New run</h1><div class="facts"><span>Agents work in git worktrees of their own; your files stay as they are until you merge.</span></div></div>
    ${!executes && html`<p class="note tone s-stuck">This server executes nothing: it was started with --no-resume.</p>`}
    <form class="form" onSubmit=${(event) => event.preventDefault()}>
      ${plans.length > 0 &&
      html`<label class="stack">Plan <select class="field" value=${form.plan} onChange=${set("plan")}><option value="">an agent plans my request</option>${plans.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>`}
      ${!form.plan &&
      html`<label class="stack">What should be done?<textarea class="field" rows="6" placeholder="Replace the XML parser, port its tests, update the docs" value=${form.request} onInput=${set("request")}></textarea></label>
        <label class="row"><input type="checkbox" checked=${form.approved} onChange=${set("approved")} />Start the plan without asking me</label>`}
      <div class="two">
        <label class="stack">Folder<select class="field" value=${form.folder} onChange=${set("folder")}>${folders.map((each, i) => html`<option value=${i ? each : ""}>${each}</option>`)}</select></label>
        <label class="stack">Agents<select class="field" value=${form.kind} onChange=${set("kind")}><option value="">${kind} (default)</option>${kinds.filter((each) => each !== kind && each !== "acp").map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
        <label class="stack">Agents may<select class="field" value=${form.permission} onChange=${set("permission")}><option value="">as the settings say</option><option value="ask">ask before everything</option><option value="edits">edit files, and ask for the rest</option><option value="deny">use only what is allowed, and never ask</option></select></label>
        <label class="stack">Spend at most, in $<input class="field" type="number" min="0" step="0.5" inputmode="decimal" placeholder="no limit" value=${form.budget_usd} onInput=${set("budget_usd")} /></label>
      </div>
      <div class="buttons"><${Action} class="button primary" disabled=${!executes || (!form.plan && !form.request.trim())} run=${start} done="The run starts">Start<//><a class="button plain" href=${to("fleet")}>Back</a></div>
    </form>`;
}
