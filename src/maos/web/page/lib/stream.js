// One stream of server-sent events for the whole page. The id of an event is its position in the journal, so after a
// lost connection the stream continues exactly behind the last event that arrived: nothing is missed, nothing repeated.

import { signal } from "./ui.js";

const COLLECT_MS = 60;
const RETRY_MS = 1000;
const LAG_MAX = 5000;
const POLL_MS = 5000;

/** How the page is connected: {state: "connecting" | "live" | "polling" | "off", since (ms)}. */
export const connection = signal({ state: "connecting", since: Date.now() });
/** Everything up to this position of the journal has arrived. */
export const position = signal(0);

const listeners = new Set();
let source = null;
let outputOf = "none";
let collected = [];
let timer = 0;
let retry = 0;

/** Have a function called with lists of events as they arrive; returns how to stop that. */
export function listen(heard) {
  listeners.add(heard);
  return () => listeners.delete(heard);
}

/** Begin to follow after a position. */
export function follow(after) {
  position.value = after;
  open();
}

/** For a person who may not read what agents print, and so no stream of it: read everything again when it has changed. */
export function poll(after, readPosition) {
  position.value = after;
  const look = async () => {
    try {
      const now = document.hidden ? position.value : await readPosition();
      setState("polling");
      if (now !== position.value) deliver(RESET);
      position.value = now;
    } catch {
      setState("off");
    }
    setTimeout(look, POLL_MS);
  };
  look();
}

/** Receive the output of one agent too; "none" for that of no agent. Output of all agents would be a flood. */
export function wantOutput(agent) {
  if (outputOf === agent) return;
  outputOf = agent;
  if (source) open();
}

export function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function open() {
  close();
  const parameters = new URLSearchParams({ after: position.value, output: outputOf, lag_max: LAG_MAX });
  source = new EventSource(`/api/v1/stream?${parameters}`);
  source.onopen = () => setState("live");
  source.onerror = () => {
    setState("off");
    if (source && source.readyState === EventSource.CLOSED) retry = setTimeout(open, RETRY_MS); // the server refused it
  };
  source.addEventListener("recorded", (message) => {
    const event = JSON.parse(message.data);
    if (event.position <= position.value) return; // a server may repeat events, never leave one out
    position.value = event.position;
    deliver(event);
  });
  source.addEventListener("position", (message) => {
    position.value = Math.max(position.value, Number(message.lastEventId));
  });
  source.addEventListener("snapshot", (message) => {
    position.value = Math.max(position.value, Number(message.lastEventId));
    deliver(RESET);
  });
}

function setState(state) {
  if (connection.value.state === state) return;
  const wasOff = connection.value.state === "off";
  connection.value = { state, since: Date.now() };
  if (state !== "off" && wasOff) deliver(RESET);
}

function deliver(event) {
  collected.push(event);
  timer ||= setTimeout(() => {
    const events = collected;
    collected = [];
    timer = 0;
    for (const heard of [...listeners]) heard(events);
  }, COLLECT_MS);
}

/** In the place of events that were not sent: everything shown must be read again. */
const RESET = { type: "reset", kind: "", subject: "", agent: "" };
export const isReset = (event) => event === RESET;
/** Whether an event is about a run: itself, its agents, its messages or its inbox. */
export const isOf = (run) => (event) => isReset(event) || event.subject === run || event.subject.startsWith(`${run}.`);
