// Requests to the API of the server that this page comes from. Every change carries a key, so that a request that is
// repeated after a lost reply does nothing twice.

import { signal } from "./ui.js";
import { learnTime } from "./words.js";

const API = "/api/v1";

/** Who the server takes this browser for: {principal, role, verbs, …}; null until it is known. */
export const identity = signal(null);
/** Set when the server does not know this browser any more. */
export const signedOut = signal(false);

/** What may be done with one thing, as the server said: verbs by "store", "run/ID" or "agent/NAME". */
const allowed = signal(new Map());
const asked = new Set();

/** Learn who is signed in, and what that person may do with everything. */
export async function identify() {
  const [me, everywhere] = await Promise.all([get("/identity"), get("/identity?on=store")]);
  allowed.value = new Map([["store", everywhere.verbs]]);
  identity.value = me;
}

/**
 * Whether the person who is signed in may use a verb on something: "run/ID", "agent/NAME", or anything at all.
 *
 * The page shows only what may be done; the server decides. What is not known yet is asked for, and shown then.
 */
export function may(verb, on = "") {
  if (allowed.value.get("store")?.includes(verb)) return true;
  if (!identity.value?.verbs.includes(verb)) return false;
  if (!on) return true;
  const known = allowed.value.get(on);
  if (known) return known.includes(verb);
  if (!asked.has(on)) {
    asked.add(on);
    get(withQuery("/identity", { on })).then(
      ({ verbs }) => (allowed.value = new Map(allowed.value).set(on, verbs)),
      () => asked.delete(on),
    );
  }
  return false;
}

/** Whether runs can be started: in the whole store or in a project, not with access to single runs. */
export const mayStart = () => may("start") && (!identity.value.on.length || identity.value.on.some((each) => each === "store" || each.startsWith("project/")));

/** What a request was refused with: what happened, and what to do about it. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `the server replied ${status}`);
    this.status = status;
    this.hint = document.hint || "";
    this.problems = document.problems || [];
  }
}

async function request(method, path, { body, version, key, signal: stop } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (version !== undefined) headers["If-Match"] = `"${version}"`;
  if (key) headers["Idempotency-Key"] = key;
  let reply;
  try {
    reply = await fetch(API + path, { method, headers, body: body && JSON.stringify(body), signal: stop, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the server cannot be reached", hint: "`maos serve` starts it; this page reconnects by itself" });
  }
  learnTime(reply.headers.get("date"));
  const isJson = (reply.headers.get("content-type") || "").includes("json");
  const document = isJson ? await reply.json() : {};
  if (reply.status === 401) signedOut.value = true;
  if (!reply.ok) throw new Problem(reply.status, document);
  return document;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body = {}, options = {}) => request("POST", path, { body, key: newKey(), ...options });

/** A path with its parts escaped: url`/runs/${id}/tasks`. */
export function url(parts, ...values) {
  return parts.reduce((path, part, i) => path + encodeURIComponent(values[i - 1]) + part);
}

/** Parameters of a request, without those that are empty. */
export function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

export function newKey() {
  return crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}
