// A curve that only grows, such as what a run has cost by when, with its end as text.

import { html } from "../lib/ui.js";
import { clock, money } from "../lib/words.js";

const W = 640;
const H = 132;
const LEFT = 46;
const BOTTOM = 20;
const SHORT_US = 600e6;

export function CostCurve({ points, begin, end, total }) {
  if (!points.length) return null;
  const all = [[begin, 0], ...points.map(([us, usd]) => [us, usd]), [end, total]];
  const top = Math.max(total, ...points.map(([, usd]) => usd)) || 1;
  const x = (us) => LEFT + ((us - begin) / Math.max(1, end - begin)) * (W - LEFT - 8);
  const y = (usd) => 8 + (1 - usd / top) * (H - BOTTOM - 12);
  const line = all.map(([us, usd], i) => (i ? `H${x(us)} V${y(usd)}` : `M${x(us)} ${y(usd)}`)).join(" ");
  const seconds = end - begin < SHORT_US;
  return html`<svg class="curve" viewBox="0 0 ${W} ${H}" width="100%" role="img" aria-label="Cost: ${money(total)} from ${clock(begin)} to ${clock(end)}">
    ${[0, 0.5, 1].map((part) => html`<line x1=${LEFT} x2=${W - 8} y1=${y(top * part)} y2=${y(top * part)} /><text x=${LEFT - 6} y=${y(top * part) + 4} text-anchor="end">${money(top * part)}</text>`)}
    <path class="area" d="${line} V${y(0)} H${x(begin)} Z" /><path class="line-path" d=${line} />
    <text x=${LEFT} y=${H - 4}>${clock(begin, seconds)}</text><text x=${W - 8} y=${H - 4} text-anchor="end">${clock(end, seconds)}</text>
  </svg>`;
}
