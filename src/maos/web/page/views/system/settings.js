// All settings, and where each comes from. They are changed in files, not here.

import { html, useState } from "../../lib/ui.js";
import { useData } from "../../lib/data.js";
import { Waiting } from "../../components/parts.js";

export function Settings() {
  const found = useData("/settings");
  const [search, setSearch] = useState("");
  const [all, setAll] = useState(false);
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const wanted = search.trim().toLowerCase();
  const shown = found.data.settings.filter((each) => (wanted ? `${each.name} ${each.description}`.toLowerCase().includes(wanted) : all || each.source !== "default"));
  return html`<section class="card pad stack"><div class="row between stack-on-phone"><h2>${all || wanted ? "All settings" : "Settings that were changed"}</h2>
      <div class="row"><button type="button" class="choice" aria-pressed=${all} onClick=${() => setAll(!all)}>All</button><input class="field search" data-search type="search" placeholder="Search settings  /" aria-label="Search settings" value=${search} onInput=${(event) => setSearch(event.target.value)} /></div></div>
    ${!shown.length && html`<p class="quiet">${wanted ? "No setting matches." : "All settings have their defaults."}</p>`}
    ${shown.length > 0 && html`<div class="table"><table class="list cards"><thead><tr><th>Name</th><th>Value</th><th>From</th><th>Means</th></tr></thead><tbody>${shown.map((each) => html`<tr key=${each.name}><td class="mono small nowrap">${each.name}</td><td class="mono small">${JSON.stringify(each.value)}</td><td class="small">${each.source}</td><td class="small soft wide">${each.description}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}
