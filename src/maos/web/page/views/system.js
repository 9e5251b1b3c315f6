// The server and its database, as cards: each card is a file in system/, reads what it shows itself, and is left out for
// a person who may not see it. To add one, write the file and name it in PARTS.

import { html } from "../lib/ui.js";
import { may } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { to } from "../lib/route.js";
import { count } from "../lib/words.js";
import { Lasting, Waiting } from "../components/parts.js";
import { Access } from "./system/access.js";
import { Backup } from "./system/backup.js";
import { Costs } from "./system/costs.js";
import { Agents, Growth, Storage, Unusual } from "./system/figures.js";
import { Notes, Problems, Totals, Versions } from "./system/health.js";
import { Settings } from "./system/settings.js";

/** Parts of the view: name, label, and cards, each with the verb that it needs on the store. */
const PARTS = [
  ["health", "Health", [[Totals], [Problems], [Notes, "read"], [Backup, "read"], [Versions, "read"]]],
  ["figures", "Figures", [[Unusual, "read"], [Growth, "read"], [Agents, "read"], [Costs], [Storage, "read"]]],
  ["access", "Access", [[Access, "grant"]]],
  ["settings", "Settings", [[Settings, "read"]]],
];

const isShown = ([, verb]) => !verb || may(verb, "store");

export function System({ parts: [chosen] }) {
  const health = useData("/health", { everyMs: 5000 });
  if (!health.data) return html`<${Waiting} error=${health.error} />`;
  const it = health.data;
  const parts = PARTS.filter(([, , cards]) => cards.some(isShown));
  const [name, , cards] = parts.find(([each]) => each === chosen) || parts[0];
  return html`<div class="head"><h1>${it.status !== "ok" ? "The server is being stopped" : it.problems.length ? `${count(it.problems.length, "run")} cannot be executed` : "The server is in order"}</h1>
      <div class="facts"><span>maos <b>${it.version}</b></span><span>up <b><${Lasting} from=${it.started_us} /></b></span><span>executes <b>${count(it.executing.length, "run")}</b></span><span><b>${it.streams}</b> ${it.streams === 1 ? "page is" : "pages are"} open</span></div></div>
    <nav class="tabs" aria-label="Parts">${parts.map(([each, label]) => html`<a href=${to("system", each === "health" ? "" : each)} aria-current=${each === name ? "page" : null}>${label}</a>`)}</nav>
    ${cards.filter(isShown).map(([Card]) => html`<${Card} key=${Card.name} health=${it} />`)}`;
}
