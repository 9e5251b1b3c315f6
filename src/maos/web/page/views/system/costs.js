// What runs cost, the most expensive first.

import { html } from "../../lib/ui.js";
import { useData } from "../../lib/data.js";
import { to } from "../../lib/route.js";
import { money } from "../../lib/words.js";

const SHOWN = 10;

export function Costs() {
  const found = useData("/cost", { everyMs: 30000 }).data;
  const top = (found?.runs || []).filter((each) => each.cost_usd > 0).slice(0, SHOWN);
  if (!top.length) return null;
  const most = top[0].cost_usd;
  return html`<section class="card pad stack"><h2>What runs cost</h2><div class="bars">${top.map((each) => html`<a class="mono small link" href=${to("run", each.id)}>${each.id}</a><span class="bar-track"><i style=${{ width: `${(each.cost_usd / most) * 100}%` }}></i></span><span class="num nowrap">${money(each.cost_usd, each.estimated_usd)}</span>`)}</div></section>`;
}
