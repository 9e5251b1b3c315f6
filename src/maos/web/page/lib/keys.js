// Keys of the whole page and of the view that is shown. Keys with Ctrl, Alt or Cmd belong to the browser.

import { useEffect, useRef } from "./ui.js";

const stack = [];

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const at = event.target;
  const isTyping = at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName);
  if (isTyping) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  for (let i = stack.length - 1; i >= 0; i--) {
    const action = stack[i].current[event.key];
    if (action) {
      event.preventDefault();
      action(event);
      return;
    }
  }
});

/** Have keys do something while a component is shown; those of inner components count first. */
export function useKeys(actions) {
  const current = useRef(actions);
  current.current = actions;
  useEffect(() => {
    stack.push(current);
    return () => {
      stack.splice(stack.indexOf(current), 1);
    };
  }, []);
}

/** j and k move through the elements that a selector finds; Enter opens. */
export function moveThrough(selector) {
  const move = (by) => () => {
    const all = [...document.querySelectorAll(selector)];
    if (!all.length) return;
    const at = all.indexOf(document.activeElement.closest?.(selector));
    const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  return { j: move(1), k: move(-1) };
}
