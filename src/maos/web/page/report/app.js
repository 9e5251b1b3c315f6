// The frame of a report: one run, as it was when the report was made, from a file and without a server.

import { html, render, useEffect } from "../lib/ui.js";
import { made, run } from "../lib/api.js";
import { route, to } from "../lib/route.js";
import { freeze, moment } from "../lib/words.js";
import { Toasts } from "../components/parts.js";
import { Mark } from "../components/icons.js";
import { Run } from "../views/run.js";
import { Agent } from "../views/agent.js";

function Frame() {
  const { view, parts } = route.value;
  const agent = view === "agent";
  const shown = view === "run" || agent ? parts : [run];
  useEffect(() => scrollTo(0, 0), [view, parts.join("/")]);
  return html`<div class="report">
      <header class="row between report-head"><a class="brand" href=${to("run", run)}><${Mark} />maos</a><span class="quiet small">A report of ${run}, made ${moment(made.at_us)} by maos ${made.version}. It holds everything that it shows.</span></header>
      <main id="main" tabindex="-1"><div class="view">${agent ? html`<${Agent} key=${shown[0]} parts=${shown} />` : html`<${Run} key=${shown[0]} parts=${shown} />`}</div></main>
    </div><${Toasts} />`;
}

freeze(made.at_us);
document.getElementById("page").replaceChildren();
render(html`<${Frame} />`, document.getElementById("page"));
