// The plan and its execution on one time axis: a bar for each time a task was worked on, curves for what needs what,
// what has not begun right of the line "now". Long idle times are short, fan-outs are folded.

import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { to } from "../lib/route.js";
import { axisOf, rowsOfPlan, ticksOf } from "../lib/plan.js";
import { clock, exactSpan, now, span, toneOf, wordsOf } from "../lib/words.js";
import { Glyph } from "./parts.js";

const ROW = 30;
const BAR = 14;
const HEAD = 26;

const OUTCOMES = { done: "done", skipped: "off", failed: "failed", running: "working", gated: "working", waiting: "waiting", asked: "you" };
export const toneOfSpan = (outcome) => OUTCOMES[outcome] || "stuck";

export function toneOfTask(task, asking, stuck) {
  if (asking.has(task.name) && task.status !== "done" && task.status !== "skipped") return "you";
  if (stuck.has(task.name)) return "stuck";
  return toneOf(task.status);
}

export function Timeline({ run, data, asking, stuck, choose }) {
  const [opened, setOpened] = useState(new Set());
  const [lit, setLit] = useState("");
  const [width, setWidth] = useState(800);
  const box = useRef();
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(180, Math.floor(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const rows = useMemo(() => rowsOfPlan(data.tasks, opened, data.left_out), [data.tasks, opened]);
  const isGoing = data.tasks.some((task) => task.spans.some(([, until]) => !until));
  const end = isGoing ? Math.max(data.end_us, now.value) : data.end_us;
  const future = rows.filter((row) => row.start === Infinity);
  const depths = [...new Set(future.map((row) => row.depth))].sort((a, b) => a - b);
  const ahead = depths.length ? Math.min(width * 0.42, 84 * depths.length + 24) : 12;
  const spans = data.tasks.flatMap((task) => task.spans);
  const axis = useMemo(() => axisOf(spans, data.begin_us, end, width - ahead - 10), [data, end, width, ahead]);
  const { ticks, seconds } = ticksOf(axis);
  const height = HEAD + rows.length * ROW + 8;
  const nowX = axis.x(end);
  const place = new Map();
  rows.forEach((row, i) => {
    const y = HEAD + i * ROW + ROW / 2;
    if (row.start === Infinity) {
      const x = nowX + 20 + depths.indexOf(row.depth) * ((ahead - 30) / depths.length);
      place.set(row, { y, from: x, until: x + Math.min(60, (ahead - 30) / depths.length - 14) });
    } else {
      const last = Math.max(...row.tasks.map((task) => task.spans.at(-1)?.[1] || (task.spans.length ? end : 0)));
      place.set(row, { y, from: axis.x(row.start), until: Math.max(axis.x(last), axis.x(row.start) + 3) });
    }
  });
  const toggle = (name) => {
    const next = new Set(opened);
    if (!next.delete(name)) next.add(name);
    setOpened(next);
  };
  return html`<section class="card timeline" aria-label="Timeline of the tasks">
    <div class="timeline-body">
      <div class="names"><div style=${{ height: `${HEAD}px` }}></div>
        ${rows.map((row) => {
          const tone = row.isGroup ? toneOfGroup(row, asking, stuck) : toneOfTask(row.tasks[0], asking, stuck);
          const on = { onMouseEnter: () => setLit(row.name), onMouseLeave: () => setLit("") };
          if (row.isGroup) return html`<button type="button" key=${row.name} ...${on} aria-expanded="false" onClick=${() => toggle(row.name)}><${Glyph} tone=${tone} size="14" /><span class="clip grow">${row.name}</span><span class="quiet small">▸</span></button>`;
          return html`<a key=${row.name} ...${on} href=${to("run", run, "tasks", row.name)} onClick=${choose && ((event) => { event.preventDefault(); choose(row.tasks[0]); })}><${Glyph} tone=${tone} size="14" /><span class="clip grow">${row.name}</span>
            ${row.ofGroup && html`<button type="button" class="button plain small" aria-label="Fold ${row.ofGroup}" onClick=${(event) => { event.preventDefault(); event.stopPropagation(); toggle(row.ofGroup); }}>▾</button>`}</a>`;
        })}
      </div>
      <div class="plot" ref=${box}>
        <svg height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${summary(data, asking)}>
          ${rows.map((row, i) => html`<rect class=${`band${lit === row.name ? " on" : ""}`} x="0" y=${HEAD + i * ROW} width=${width} height=${ROW} />`)}
          <g class="grid">${ticks.map(({ us, x }) => html`<line x1=${x} x2=${x} y1=${HEAD - 4} y2=${height} />${(!isGoing || nowX - x > 84) && html`<text x=${x + 4} y="15">${clock(us, seconds)}</text>`}`)}</g>
          ${axis.gaps.map((gap) => html`<rect class="gap" x=${gap.x} y="0" width=${gap.width} height=${height} /><text class="gap-text" x=${gap.x + gap.width / 2} y=${height - 4} text-anchor="middle">${span(gap.us)}</text>`)}
          ${rows.flatMap((row) => row.needs.map((need) => edge(place.get(need), place.get(row), lit === row.name || lit === need.name)))}
          ${isGoing && html`<line class="now" x1=${nowX} x2=${nowX} y1=${HEAD - 6} y2=${height} /><text class="now-text" x=${nowX - 4} y="15" text-anchor="end">now</text>`}
          ${rows.map((row) => html`<${Bars} row=${row} at=${place.get(row)} axis=${axis} end=${end} asking=${asking} stuck=${stuck} />`)}
        </svg>
      </div>
    </div>
    <div class="legend">
      ${[["done", "finished"], ["working", "working"], ["you", "waiting for you"], ["failed", "failed"], ["stuck", "stuck"]].map(([tone, words]) => html`<span><i class="s-${tone}" style=${tone === "you" ? { background: "var(--you-fill)" } : {}}></i>${words}</span>`)}
      ${axis.gaps.length > 0 && html`<span>grey: idle time, shortened</span>`}
      ${data.total > data.tasks.length && html`<span>${data.tasks.length} of ${data.total.toLocaleString("en")} tasks, those that failed or worked last</span>`}
    </div>
  </section>`;
}

const summary = (data, asking) => {
  const counts = {};
  for (const task of data.tasks) counts[task.status] = (counts[task.status] || 0) + 1;
  return `${data.tasks.length} tasks: ${Object.entries(counts).map(([status, n]) => `${n} ${wordsOf(status)}`).join(", ")}${asking.size ? `; ${asking.size} wait for you` : ""}`;
};

function edge(from, until, isLit) {
  if (!from || !until) return null;
  const x1 = from.until;
  const x2 = until.from;
  const bend = Math.max(10, Math.min(46, (x2 - x1) / 2));
  return html`<path class=${`edge${isLit ? " lit" : ""}`} d="M${x1} ${from.y} C${x1 + bend} ${from.y} ${x2 - bend} ${until.y} ${x2} ${until.y}" />`;
}

export function toneOfGroup(row, asking, stuck) {
  const tones = new Set(row.tasks.map((task) => toneOfTask(task, asking, stuck)));
  return ["you", "failed", "stuck", "working", "waiting", "done", "off"].find((tone) => tones.has(tone)) || "waiting";
}

function Bars({ row, at, axis, end, asking, stuck }) {
  if (row.start === Infinity) {
    const tone = row.tasks.some((task) => stuck.has(task.name)) ? "stuck" : "waiting";
    return html`<rect class="ghost s-${tone}" x=${at.from} y=${at.y - BAR / 2} width=${Math.max(6, at.until - at.from)} height=${BAR} rx="4"><title>${row.name}: has not begun</title></rect>`;
  }
  return row.tasks.flatMap((task) =>
    task.spans.map(([from, until, outcome], i) => {
      const x = axis.x(from);
      const isLast = i === task.spans.length - 1;
      const tone = isLast && !until && asking.has(task.name) ? "you" : toneOfSpan(outcome);
      const width = Math.max(3, axis.x(until || end) - x);
      return html`<rect class="bar s-${tone}" x=${x} y=${at.y - BAR / 2} width=${width} height=${BAR} rx="4" opacity=${row.isGroup ? 0.45 : 1}><title>${task.name}: ${outcome === "asked" ? "waiting for you" : isLast ? wordsOf(task.status) : wordsOf(outcome)}, ${exactSpan((until || end) - from)}</title></rect>`;
    }),
  );
}
