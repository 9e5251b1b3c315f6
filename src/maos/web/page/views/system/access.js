// Tokens, sessions and links that count.

import { html } from "../../lib/ui.js";
import { identity } from "../../lib/api.js";
import { useData } from "../../lib/data.js";
import { clock } from "../../lib/words.js";
import { Ago, Waiting } from "../../components/parts.js";

export function Access() {
  const found = useData("/credentials", { everyMs: 30000 });
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  return html`<section class="card pad stack"><div class="row between stack-on-phone"><h2>Who has access</h2><span class="quiet small">You are <span class="mono">${identity.value?.principal}</span></span></div>
    <div class="table"><table class="list cards"><thead><tr><th>Name</th><th>Kind</th><th>Role</th><th>On</th><th>Created</th><th class="end">Expires</th></tr></thead><tbody>${found.data.credentials.map((each) => html`<tr key=${each.id}><td class="wide strong">${each.name}</td><td>${each.kind.replaceAll("_", " ")}</td><td>${each.role}</td><td class="mono small">${each.on.join(", ") || "everything"}</td><td data-label="created"><${Ago} us=${each.created_us} /></td><td class="end" data-label="expires">${each.expires_us ? clock(each.expires_us) : "never"}</td></tr>`)}</tbody></table></div>
    <p class="small quiet"><code>maos token create</code> and <code>maos token revoke</code> change this.</p></section>`;
}
