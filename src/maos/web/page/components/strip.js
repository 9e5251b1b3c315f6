// A run as a strip: one cell for each task, in the order of the plan; from some hundreds on, groups as parts of a bar.

import { html, useMemo } from "../lib/ui.js";

const CELLS_MAX = 240;
const LETTERS = { y: "you", b: "stuck", x: "failed", r: "working", d: "done", s: "off", w: "waiting" };
export const TONES = ["you", "stuck", "failed", "working", "done", "off", "waiting"];
const WORDS = { you: "waiting for you", stuck: "stuck", failed: "failed", working: "working", done: "finished", off: "skipped", waiting: "waiting" };

export function Strip({ text }) {
  const counts = useMemo(() => {
    const found = {};
    for (const letter of text) found[LETTERS[letter]] = (found[LETTERS[letter]] || 0) + 1;
    return found;
  }, [text]);
  if (!text) return null;
  const label = TONES.filter((tone) => counts[tone]).map((tone) => `${counts[tone]} ${WORDS[tone]}`).join(", ");
  if (text.length <= CELLS_MAX) {
    return html`<div class=${`strip${text.length > 60 ? " dense" : ""}`} role="img" aria-label=${label}>${[...text].map((letter) => html`<i class="s-${LETTERS[letter]}"></i>`)}</div>`;
  }
  return html`<div class="strip bar" role="img" aria-label=${label}>
    ${["done", "off", "working", "you", "stuck", "failed", "waiting"].map((tone) => counts[tone] && html`<i class="s-${tone}" style=${{ flexGrow: counts[tone] }} title="${counts[tone]} ${WORDS[tone]}"></i>`)}
  </div>`;
}
