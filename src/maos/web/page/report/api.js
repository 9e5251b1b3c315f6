// In a report there is no server: requests are answered from the documents that the report was made with. It has the
// names of lib/api.js, whose place it takes.

import { signal } from "../lib/ui.js";

const documents = JSON.parse(document.getElementById("documents").textContent);

export const identity = signal({ principal: "report", role: "viewer", verbs: ["read", "read_output"] });
export const signedOut = signal(false);
export const run = documents.run;
export const made = documents.made;
export const may = (verb) => verb === "read_output";
export const mayStart = () => false;

export class Problem extends Error {
  constructor(status, { detail, hint = "" }) {
    super(detail);
    this.status = status;
    this.hint = hint;
    this.problems = [];
  }
}

export async function get(path) {
  const [name, query = ""] = decodeURIComponent(path).split("?");
  const given = Object.fromEntries(new URLSearchParams(query));
  const output = /^\/agents\/(.+)\/output$/.exec(name);
  if (output) return window_(output[1], given);
  if (/^\/runs\/[^/]+\/moment$/.test(name)) return moment(given.at);
  if (/^\/runs\/[^/]+\/tasks$/.test(name)) return tasks(given);
  const found = documents.by_path[name];
  if (found !== undefined) return found;
  throw new Problem(404, { detail: "this is not part of the report", hint: "`maos serve` shows everything" });
}

/** The newest kept moment that is not after a version, or a time. */
function moment(at) {
  const us = Date.parse(at) * 1000;
  const isBy = (each) => (/^\d+$/.test(at) ? each.point.version <= Number(at) : each.point.time_us <= us);
  const kept = documents.moments.filter(isBy).at(-1) || documents.moments[0];
  if (!kept) throw new Problem(404, { detail: "the report has no moments" });
  return kept;
}

function tasks({ status, cursor, limit = 100 }) {
  const all = documents.tasks.filter((each) => !status || each.status === status);
  const first = cursor ? all.findIndex((each) => each.name === cursor) + 1 : 0;
  const chosen = all.slice(first, first + Number(limit));
  return { tasks: chosen, total: all.length, next: first + chosen.length < all.length ? chosen.at(-1).name : null };
}

function window_(agent, { attempt, after, before, limit = 80 }) {
  const kept = documents.outputs[agent];
  if (!kept) throw new Problem(404, { detail: "the report has no output of this agent" });
  if (attempt && Number(attempt) !== kept.attempt) throw new Problem(404, { detail: `the report has the output of attempt ${kept.attempt} only` });
  let events = kept.events;
  if (after !== undefined) events = events.filter((each) => each.version > Number(after)).slice(0, Number(limit));
  else if (before !== undefined) events = events.filter((each) => each.version < Number(before)).slice(-Number(limit));
  else events = events.slice(-Number(limit));
  return { ...kept, events };
}

export const post = async () => {
  throw new Problem(0, { detail: "a report can only be read", hint: "`maos serve` steers runs" });
};

export function url(parts, ...values) {
  return parts.reduce((path, part, i) => path + encodeURIComponent(values[i - 1]) + part);
}

export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export const newKey = () => "";
