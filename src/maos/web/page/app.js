// The frame of the page: navigation, the connection, keys, and the view that the address names.

import { html, render, signal, useEffect, useState } from "./lib/ui.js";
import { Problem, get, identify, identity, may, signedOut } from "./lib/api.js";
import { useData } from "./lib/data.js";
import { connection, follow, poll, position, wantOutput } from "./lib/stream.js";
import { go, route, to } from "./lib/route.js";
import { useKeys } from "./lib/keys.js";
import { clock, skew } from "./lib/words.js";
import { Dialog, ErrorNote, Toasts, Waiting } from "./components/parts.js";
import { Icon, Mark } from "./components/icons.js";

/** The views; the module of each is loaded when it is first shown. */
const VIEWS = {
  fleet: viewOf(() => import("./views/fleet.js"), "Fleet"),
  inbox: viewOf(() => import("./views/inbox.js"), "Inbox"),
  run: viewOf(() => import("./views/run.js"), "Run"),
  agent: viewOf(() => import("./views/agent.js"), "Agent"),
  workflows: viewOf(() => import("./views/workflows.js"), "Workflows"),
  messages: viewOf(() => import("./views/messages.js"), "Messages"),
  system: viewOf(() => import("./views/system.js"), "System"),
  start: viewOf(() => import("./views/start.js"), "Start"),
};

function viewOf(load, name) {
  let View = null;
  return function Loaded(props) {
    const [error, setError] = useState(null);
    const [, setLoaded] = useState(View !== null);
    useEffect(() => {
      if (View) return;
      load().then((module) => {
        View = module[name];
        setLoaded(true);
      }, () => setError(new Problem(0, { detail: "the view cannot be loaded", hint: "the server cannot be reached: open it again when it is back" })));
    }, []);
    return View ? html`<${View} ...${props} />` : html`<${Waiting} error=${error} />`;
  };
}
const TABS = [
  ["fleet", "Fleet"],
  ["inbox", "Inbox"],
  ["messages", "Messages", "read_output"],
  ["workflows", "Workflows"],
  ["system", "System"],
];

/** What waits for a person, in all runs; the number is beside "Inbox". */
export const openQuestions = signal([]);

const CHANGES_INBOX = /^(question_|run_|task_|plan_|attempt_|permission_|step_|workflow_|resolve_)/;

function Frame() {
  const { view, parts } = route.value;
  const asked = useData("/questions", { when: (event) => CHANGES_INBOX.test(event.type) });
  useEffect(() => {
    if (asked.data) openQuestions.value = asked.data.questions;
  }, [asked.data]);
  useEffect(() => {
    if (view !== "agent") wantOutput("none");
    document.getElementById("main")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [view, parts.join("/")]);
  const waiting = openQuestions.value.length;
  document.title = `${waiting ? `(${waiting}) ` : ""}${title(view, parts)} · maos`;
  const View = VIEWS[view] || VIEWS.fleet;
  return html`<a class="hidden-text" href="#main">Skip to the content</a>
    <div class="frame">
      <header class="rail">
        <a class="brand" href=${to("fleet")}><${Mark} />maos</a>
        <nav aria-label="Views">
          ${TABS.filter(([, , verb]) => !verb || may(verb)).map(
            ([name, label]) => html`<a key=${name} class="tab" href=${to(name)} aria-current=${isIn(name, view) ? "page" : null}>
              <${Icon} name=${name} />${label}${name === "inbox" && waiting > 0 && html`<span class="count" aria-label="${waiting} waiting">${waiting}</span>`}
            </a>`,
          )}
        </nav>
        <div class="bottom">
          <${Connection} />
          <${Who} />
          <div class="rail-tools"><${ThemeSwitch} /><${KeysButton} /></div>
        </div>
      </header>
      <main id="main" tabindex="-1">
        <${Banner} />
        <div class="view"><${View} key=${view + (parts[0] || "")} parts=${parts} /></div>
      </main>
    </div>
    <${Toasts} />
    <${Keys} />`;
}

const isIn = (name, view) => name === view || (name === "fleet" && ["run", "agent", "start"].includes(view));
const title = (view, parts) => ({ fleet: "Fleet", inbox: "Inbox", messages: "Messages", workflows: "Workflows", system: "System", start: "New run" })[view] || parts[0] || "";

function Connection() {
  const { state, since } = connection.value;
  if (state === "live") {
    return html`<div class="live" title="Every event up to position ${position.value.toLocaleString("en")} of the journal has arrived"><span class="dot"></span>Live</div>`;
  }
  if (state === "polling") return html`<div class="live" title="Your role does not read what agents print, so this page looks for changes every five seconds. Position ${position.value.toLocaleString("en")} of the journal"><span class="dot"></span>Up to date</div>`;
  if (state === "connecting") return html`<div class="live connecting"><span class="dot"></span>Connecting …</div>`;
  return html`<div class="live off"><span class="dot"></span>Not connected since ${clock((since + skew.value) * 1000, true)}</div>`;
}

function Banner() {
  const { state, since } = connection.value;
  if (signedOut.value) {
    return html`<div class="banner" role="alert">This browser is not signed in any more.<span class="soft">Open the link that <code>maos token link</code> prints.</span></div>`;
  }
  if (state !== "off") return null;
  return html`<div class="banner" role="alert">
    Not connected. What you see is as of ${clock((since + skew.value) * 1000, true)}.
    <span class="soft">The page reconnects by itself and misses nothing. Agents keep running.</span>
  </div>`;
}

const ROLES = { admin: "may do everything", operator: "may steer runs", answerer: "may answer", viewer: "may look", auditor: "may audit" };

/** Who is signed in, in words; the whole name on hover. */
function Who() {
  if (!identity.value) return null;
  const { principal, role } = identity.value;
  return html`<div class="small quiet clip" title="${principal}, role ${role}">${principal.replace(/^\w+:/, "").split("@")[0]}, ${ROLES[role] || role}</div>`;
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const change = () => {
    const next = theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("maos.theme", next);
    } catch {
      // it lasts until the page is closed
    }
    setTheme(next);
  };
  return html`<button type="button" class="button plain small" onClick=${change}><${Icon} name=${theme === "dark" ? "sun" : "moon"} />${theme === "dark" ? "Light" : "Dark"}</button>`;
}

const keysShown = signal(false);
const KeysButton = () => html`<button type="button" class="button plain small" onClick=${() => (keysShown.value = true)}><kbd>?</kbd> Keys</button>`;

function Keys() {
  useKeys({
    "?": () => (keysShown.value = !keysShown.value),
    "/": () => document.querySelector("[data-search]")?.focus(),
    f: () => go(to("fleet")),
    i: () => go(to("inbox")),
    m: () => go(to("messages")),
    n: () => go(to("start")),
  });
  if (!keysShown.value) return null;
  const rows = [
    [["j", "k"], "next, previous"],
    [["Enter"], "open"],
    [["a"], "allow, accept, approve"],
    [["r"], "deny, send back, reject"],
    [["x"], "select for a batch answer"],
    [["/"], "search in this view"],
    [["f"], "fleet"],
    [["i"], "inbox"],
    [["m"], "messages"],
    [["n"], "new run"],
    [["?"], "this list"],
    [["Esc"], "close, leave a field"],
  ];
  return html`<${Dialog} title="Keys" close=${() => (keysShown.value = false)}>
    <div class="keys">${rows.map(([keys, does]) => html`<span>${keys.map((key) => html`<kbd>${key}</kbd> `)}</span><span>${does}</span>`)}</div>
  <//>`;
}

/** What a browser sees that is not signed in, or cannot reach the server. */
const Outside = ({ error }) => html`<main class="outside"><div class="brand"><${Mark} />maos</div>
  ${error.status === 401 ? html`<h1>Sign in</h1><p class="soft">This browser is not signed in. Open the link that <code>maos serve</code> printed when it started, or have another one printed in a terminal:</p><pre class="code">maos token link</pre>` : html`<h1>Not connected</h1>`}
  ${error.status === 401 ? html`<p class="small quiet" role="alert">${error.message[0].toUpperCase()}${error.message.slice(1)}.</p>` : html`<${ErrorNote} error=${error} />`}</main>`;

async function start() {
  const root = document.getElementById("page");
  try {
    const [health] = await Promise.all([get("/health"), identify()]);
    if (may("read_output")) follow(health.position);
    else poll(health.position, async () => (await get("/health")).position);
  } catch (error) {
    root.replaceChildren();
    render(html`<${Outside} error=${error} />`, root);
    if (error.status !== 401) setTimeout(start, 2000);
    return;
  }
  root.replaceChildren();
  render(html`<${Frame} />`, root);
}

start();
