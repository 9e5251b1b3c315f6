// Documents of the API that stay up to date: read when a view opens, and again when the stream says that they changed.
// What is shown is always what the server computed from its journal; the page computes no states of its own.

import { useCallback, useEffect, useRef, useState } from "./ui.js";
import { get } from "./api.js";
import { isReset, listen } from "./stream.js";

const REST_MS = 350;

/**
 * Read a document and keep it up to date.
 *
 * `when(event)` says which events change it; `everyMs` reads it again from time to time while the page is visible.
 * Until the first reply `data` is undefined. After an error the last data stays, and `error` says what happened.
 */
export function useData(path, { when, everyMs } = {}) {
  const [state, setState] = useState({ path, data: undefined, error: null, at: 0 });
  const control = useRef({ busy: false, again: false, timer: 0, path: null, last: 0 });
  const matches = useRef(when);
  matches.current = when;

  const load = useCallback(async () => {
    const c = control.current;
    if (path === null) return;
    if (c.busy) {
      c.again = true;
      return;
    }
    c.busy = true;
    c.again = false;
    c.last = Date.now();
    try {
      const data = await get(path);
      if (c.path === path) setState({ path, data, error: null, at: Date.now() });
    } catch (error) {
      if (c.path === path && error.name !== "AbortError") setState((old) => ({ ...old, path, data: old.path === path ? old.data : undefined, error }));
    }
    c.busy = false;
    if (c.again && c.path) schedule();
  }, [path]);

  const schedule = () => {
    const c = control.current;
    if (c.timer) return;
    const wait = Math.max(0, REST_MS - (Date.now() - c.last));
    c.timer = setTimeout(() => {
      c.timer = 0;
      if (c.path) loadNow.current();
    }, wait);
  };
  const loadNow = useRef(load);
  loadNow.current = load;

  useEffect(() => {
    const c = control.current;
    c.path = path;
    c.busy = false;
    load();
    const stop = listen((events) => {
      if (events.some((event) => isReset(event) || (matches.current && matches.current(event)))) schedule();
    });
    const timer = everyMs && setInterval(() => document.hidden || schedule(), everyMs);
    return () => {
      stop();
      clearInterval(timer);
      clearTimeout(c.timer);
      c.timer = 0;
      c.path = null;
    };
  }, [path, everyMs]);

  const isOld = state.path !== path;
  return { data: isOld ? undefined : state.data, error: isOld ? null : state.error, at: state.at, reload: load };
}

/** Read a list page by page: {items, total, more(), error}. */
export function usePages(path, name, { when, key = "id", limit = 100 } = {}) {
  const [pages, setPages] = useState(1);
  const [state, setState] = useState({ path, items: undefined, total: 0, next: null, error: null });
  const [round, setRound] = useState(0);
  const matches = useRef(when);
  matches.current = when;
  useEffect(() => setPages(1), [path]);
  useEffect(() => {
    let stopped = false;
    (async () => {
      const items = [];
      let next = "";
      let total = 0;
      try {
        for (let n = 0; n < pages && next !== null; n++) {
          const parameters = new URLSearchParams({ limit, ...(next && { cursor: next }) });
          const page = await get(`${path}${path.includes("?") ? "&" : "?"}${parameters}`);
          if (stopped) return;
          items.push(...page[name]);
          total = page.total ?? items.length;
          next = page.next;
        }
        setState({ path, items, total, next, error: null });
      } catch (error) {
        if (!stopped) setState((old) => ({ ...old, path, error }));
      }
    })();
    return () => {
      stopped = true;
    };
  }, [path, pages, round]);
  useEffect(() => {
    let timer = 0;
    const stop = listen((events) => {
      if (!events.some((event) => isReset(event) || (matches.current && matches.current(event)))) return;
      timer ||= setTimeout(() => {
        timer = 0;
        setRound((n) => n + 1);
      }, REST_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  const isOld = state.path !== path;
  return { ...state, items: isOld ? undefined : state.items, more: () => setPages((n) => n + 1), reload: () => setRound((n) => n + 1) };
}
