// Small parts that every view uses: states, times, errors, dialogs, toasts.

import { html, signal, useEffect, useRef, useState } from "../lib/ui.js";
import { to } from "../lib/route.js";
import { ago, exactSpan, moment, now, span, toneOf, wordsOf } from "../lib/words.js";

const GLYPHS = {
  working: html`<circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" stroke-width="2" opacity=".25" />
    <path class="turn" d="M8 2.4a5.6 5.6 0 0 1 5.6 5.6" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" />`,
  you: html`<circle cx="8" cy="8" r="7" fill="currentColor" /><path d="M8 4.2v4.6M8 11.4v.2" stroke="var(--surface)" stroke-width="2" stroke-linecap="round" />`,
  stuck: html`<path d="M8 1.8 15 14H1z" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linejoin="round" /><path d="M8 6.4v3.2M8 11.7v.1" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" />`,
  failed: html`<circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="m5.7 5.7 4.6 4.6m0-4.6-4.6 4.6" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" />`,
  done: html`<path d="m2.8 8.6 3.4 3.5 7-7.6" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" />`,
  waiting: html`<circle cx="8" cy="8" r="5.4" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.6 2.2" />`,
  paused: html`<path d="M5.5 3.5v9m5-9v9" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />`,
  off: html`<path d="M3.5 8h9" stroke="currentColor" stroke-width="2" stroke-linecap="round" />`,
};

export const Glyph = ({ tone, size = 16 }) =>
  html`<svg class="glyph s-${tone}" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true">${GLYPHS[tone] || GLYPHS.waiting}</svg>`;

/** A state as a glyph and words. */
export function State({ state, tone, words }) {
  const kind = tone || toneOf(state);
  return html`<span class="state s-${kind}"><${Glyph} tone=${kind} />${words || wordsOf(state)}</span>`;
}

/** A time as "5 min ago"; the exact one on hover. Counts up by itself. */
export const Ago = ({ us, empty = "never" }) =>
  us ? html`<time dateTime=${new Date(us / 1000).toISOString()} title=${moment(us)} class="num nowrap">${ago(us)}</time>` : html`<span>${empty}</span>`;

/** How long something takes, counting until it has ended. */
export const Lasting = ({ from, until }) => html`<span class="num nowrap">${from ? (until ? exactSpan(until - from) : span(now.value - from)) : "–"}</span>`;

export function ErrorNote({ error }) {
  if (!error) return null;
  return html`<div class="error" role="alert">
    <div>${sentence(error.message)}</div>
    ${(error.problems || []).slice(0, 20).map((each) => html`<div class="small">${each.where ? `${each.where}: ` : ""}${each.what || each.message || JSON.stringify(each)}</div>`)}
    ${error.hint && html`<div class="hint"><${Hint} text=${sentence(error.hint)} /></div>`}
  </div>`;
}

const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

const COMMAND = /`([^`]+)`/g;
const LOGS = /^maos (?:agent )?logs ([\w-]+)\/([\w-]+)$/;

/** A hint of the server: a command that the page has a view for is a link to it, others are shown as commands. */
export function Hint({ text }) {
  const parts = (text || "").split(COMMAND);
  return parts.map((part, i) => {
    if (i % 2 === 0) return part;
    const [, run, task] = LOGS.exec(part) || [];
    return run ? html`<a class="link" href=${to("run", run, "tasks", task)}>what ${task} printed</a>` : html`<code>${part}</code>`;
  });
}

/** What a view shows before its data has come, or when it did not come. */
export function Waiting({ error, what = "Loading" }) {
  return error ? html`<${ErrorNote} error=${error} />` : html`<p class="loading" role="status">${what} …</p>`;
}

export const Empty = ({ title, children }) => html`<div class="empty"><div class="big">${title}</div><div>${children}</div></div>`;

/** Text of an agent: long ones are cut, and can be shown further piece by piece. */
export function LongText({ text, chars = 2000, step = 20000, mono }) {
  const [shown, setShown] = useState(chars);
  const all = String(text ?? "");
  const left = all.length - shown;
  return html`<span class=${mono ? "mono wrap" : "wrap"}>${left > 0 ? all.slice(0, shown) : all}${left > 0 &&
  html` <button type="button" class="button plain small" onClick=${() => setShown(shown + step)}>… ${left.toLocaleString("en")} more characters</button>`}</span>`;
}

// --- acting -----------------------------------------------------------------------------------------------------

const toasts = signal([]);
let toastId = 0;

/** Say something for some seconds, in a corner. */
export function say(text, bad = false) {
  const toast = { id: ++toastId, text, bad };
  toasts.value = [...toasts.value.slice(-3), toast];
  setTimeout(() => {
    toasts.value = toasts.value.filter((each) => each !== toast);
  }, bad ? 9000 : 5000);
}

export const Toasts = () =>
  html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((each) => html`<div key=${each.id} class=${each.bad ? "toast bad" : "toast"}>${each.text}</div>`)}</div>`;

/** A button that does one thing at a time, and says what came of it. */
export function Action({ run, children, class: kind = "button", title, disabled, done }) {
  const [busy, setBusy] = useState(false);
  const act = async (event) => {
    event.preventDefault();
    event.stopPropagation();
    setBusy(true);
    try {
      const result = await run();
      if (done) say(typeof done === "function" ? done(result) : done);
    } catch (error) {
      say(`${sentence(error.message)}${error.hint ? `. ${sentence(error.hint)}` : ""}`, true);
    }
    setBusy(false);
  };
  return html`<button type="button" class=${kind} title=${title} disabled=${disabled || busy} aria-busy=${busy} onClick=${act}>${children}</button>`;
}

/** A dialog; Escape and a click beside it close it. */
export function Dialog({ title, close, children, foot }) {
  const element = useRef();
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  const outside = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} aria-label=${title} onClose=${close} onClick=${outside}>
    <div class="dialog-head"><h2>${title}</h2><button type="button" class="button plain icon" aria-label="Close" onClick=${close}>✕</button></div>
    <div class="dialog-body">${children}</div>
    ${foot && html`<div class="dialog-foot">${foot}</div>`}
  </dialog>`;
}
