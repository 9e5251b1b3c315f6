// How times, amounts and states are written. Times of the API are microseconds since 1970, by the server's clock.

import { signal } from "./ui.js";

/** How far the server's clock is ahead of this device's, in milliseconds: a phone's clock may be wrong. */
export const skew = signal(0);
/** The server's time in microseconds; ticks once a second. */
export const now = signal(Date.now() * 1000);

let isFrozen = false;

/** Have it be one time for good: a report shows a run as it was then. */
export function freeze(us) {
  isFrozen = true;
  now.value = us;
}

const tick = () => {
  if (!isFrozen) now.value = (Date.now() + skew.value) * 1000;
};
setInterval(() => document.hidden || tick(), 1000);
document.addEventListener("visibilitychange", () => document.hidden || tick());

export function learnTime(header) {
  const server = Date.parse(header || "");
  if (Number.isNaN(server)) return;
  const difference = server + 500 - Date.now(); // the header has whole seconds
  if (Math.abs(difference - skew.value) > 2000) skew.value = Math.abs(difference) > 2000 ? difference : 0;
}

export function span(us) {
  const s = Math.max(0, Math.round(us / 1e6));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** Short durations with tenths, for bars and rows: 0.4 s, 12 s, 3 min 20 s. */
export function exactSpan(us) {
  if (us >= 60e6) us = 1e6 * Math.round(us / 1e6);
  const s = Math.max(0, us / 1e6);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return span(us);
}

export function ago(us) {
  if (!us) return "never";
  const past = now.value - us;
  return past < 1.5e6 ? "just now" : `${span(past)} ago`;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(us, seconds = false) {
  if (!us) return "";
  const d = new Date(us / 1000);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
  const today = new Date(now.value / 1000).toDateString() === d.toDateString();
  return today ? time : `${d.getDate()} ${d.toLocaleString("en", { month: "short" })} ${time}`;
}

export const moment = (us) => (us ? new Date(us / 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }) : "");

export function money(usd, estimated = 0) {
  if (!usd) return "$0";
  const about = estimated > usd * 0.01 ? "≈ " : "";
  if (usd < 0.01) return `${about}< $0.01`;
  return `${about}$${usd < 100 ? usd.toFixed(2) : Math.round(usd).toLocaleString("en")}`;
}

export function amount(n) {
  if (n < 1000) return String(Math.round(n));
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)}k`;
  if (n < 1e9) return `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M`;
  return `${(n / 1e9).toFixed(1)}B`;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  const unit = Math.min(4, Math.floor(Math.log2(n) / 10));
  return `${(n / 2 ** (10 * unit)).toFixed(n / 2 ** (10 * unit) < 10 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export const count = (n, one, many = `${one}s`) => `${Number(n).toLocaleString("en")} ${n === 1 ? one : many}`;
export const firstLine = (text) => (text || "").trim().split("\n", 1)[0];
export const ordinal = (n) => (n === 1 ? "first" : n === 2 ? "second" : n === 3 ? "third" : `${n}th`);
/** A kind of agent in short: of a program that speaks ACP, its name. */
export const kindWords = (kind) => (kind === "shell" ? "command" : (kind || "").split(" ")[0].replace(/^acp:.*\//, "acp: "));
/** The name of an agent without that of its run. */
export const shortAgent = (agent, run) => (run && agent.startsWith(`${run}.`) ? agent.slice(run.length + 1) : agent);

// --- states ---------------------------------------------------------------------------------------------------

/** What the API calls a state: the tone that it is shown in, and its words. */
const STATES = {
  // runs
  initializing: ["waiting", "starting"],
  working: ["working", "working"],
  waiting_for_user: ["you", "waiting for you"],
  waiting_for_tasks: ["waiting", "waiting"],
  blocked: ["stuck", "blocked"],
  idle: ["paused", "paused"],
  interrupted: ["stuck", "interrupted"],
  completed: ["done", "finished"],
  failed: ["failed", "failed"],
  cancelled: ["off", "cancelled"],
  // agents
  planned: ["waiting", "about to start"],
  running: ["working", "working"],
  stopping: ["waiting", "stopping"],
  detached: ["working", "working, detached"],
  done: ["done", "finished"],
  stopped: ["off", "stopped"],
  // tasks
  waiting: ["waiting", "waiting"],
  gated: ["working", "being checked"],
  skipped: ["off", "skipped"],
  // cards of the fleet
  waiting_for_you: ["you", "waiting for you"],
  quiet: ["stuck", "no output"],
  stuck: ["stuck", "stuck"],
  paused: ["paused", "paused"],
  finished: ["done", "finished"],
  changed: ["stuck", "code has changed"],
  unknown: ["stuck", "outcome unknown"],
};

export const toneOf = (state) => (STATES[state] || ["waiting"])[0];
export const wordsOf = (state) => (STATES[state] || [0, String(state).replaceAll("_", " ")])[1];

/** The state of a run as a person needs it: one that works and also asks is shown as waiting for that person. */
export function runState(run) {
  if (run.needs_person && run.state === "working") return { tone: "you", words: "waiting for you" };
  return { tone: toneOf(run.state), words: wordsOf(run.state) };
}
