// The plan of a run as rows: in the order in which tasks can run, with fan-outs of many alike tasks folded into one row.

const FOLD_MIN = 7;

/** Rows of tasks: [{name, tasks, needs, depth, isGroup}]; `opened` has the names of groups that are shown whole, and
 * `leftOut` how many tasks with names of a kind are not among the tasks. */
export function rowsOfPlan(tasks, opened, leftOut = {}) {
  const byName = new Map(tasks.map((task) => [task.name, task]));
  const needed = new Map(tasks.map((task) => [task.name, []]));
  for (const task of tasks) for (const need of task.needs) needed.get(need)?.push(task.name);
  const alike = new Map();
  for (const task of tasks) {
    const key = `${[...task.needs].sort().join("\n")}\n→\n${[...needed.get(task.name)].sort().join("\n")}`;
    alike.set(key, [...(alike.get(key) || []), task]);
  }
  const rowOf = new Map();
  const rows = [];
  for (const members of alike.values()) {
    const name = groupName(members, leftOut);
    const isGroup = members.length >= FOLD_MIN;
    if (isGroup && !opened.has(name)) {
      const row = { name, tasks: members, isGroup: true };
      rows.push(row);
      for (const task of members) rowOf.set(task.name, row);
      continue;
    }
    members.forEach((task, i) => {
      const row = { name: task.name, tasks: [task], isGroup: false, ofGroup: isGroup && i === 0 ? name : "" };
      rows.push(row);
      rowOf.set(task.name, row);
    });
  }
  for (const row of rows) {
    const found = new Set();
    for (const task of row.tasks) for (const need of task.needs) if (rowOf.has(need) && rowOf.get(need) !== row) found.add(rowOf.get(need));
    row.needs = [...found];
  }
  const depth = new Map();
  const depthOf = (row, seen = new Set()) => {
    if (depth.has(row)) return depth.get(row);
    if (seen.has(row)) return 0;
    seen.add(row);
    const found = row.needs.length ? 1 + Math.max(...row.needs.map((need) => depthOf(need, seen))) : 0;
    depth.set(row, found);
    return found;
  };
  for (const row of rows) {
    row.depth = depthOf(row);
    row.start = Math.min(...row.tasks.map((task) => task.spans[0]?.[0] ?? Infinity));
    row.index = tasks.indexOf(byName.get(row.tasks[0].name));
  }
  return rows.sort((a, b) => (a.start === b.start ? a.depth - b.depth || a.index - b.index : a.start - b.start));
}

/** What the names of alike tasks begin with, and how many there are. */
function groupName(members, leftOut) {
  let prefix = members[0].name;
  for (const { name } of members) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  prefix = prefix.replace(/[-_.\d]+$/, "");
  return `${prefix || members[0].name} × ${(members.length + (leftOut[prefix] || 0)).toLocaleString("en")}`;
}

/** An axis on which long times without any work are short: {x(us), at(x), gaps, parts, scale}. */
export function axisOf(spans, begin, end, width) {
  const busy = spans.map(([from, until]) => [from, until || end]).sort((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [from, until] of [[begin, begin], ...busy, [end, end]]) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], until);
    else merged.push([from, until]);
  }
  const active = merged.reduce((sum, [from, until]) => sum + until - from, 0);
  const long = Math.max(30e6, active * 0.25);
  const parts = [];
  for (let i = 0; i < merged.length; i++) {
    const [from, until] = merged[i];
    const last = parts.at(-1);
    if (last && from - last.until <= long) last.until = until;
    else parts.push({ from, until });
  }
  const gapWidth = 34;
  const gapsWidth = gapWidth * (parts.length - 1);
  const total = parts.reduce((sum, part) => sum + part.until - part.from, 0) || 1;
  const scale = Math.max(1, width - gapsWidth) / total;
  let x = 0;
  const gaps = [];
  parts.forEach((part, i) => {
    if (i > 0) {
      gaps.push({ x, width: gapWidth, us: part.from - parts[i - 1].until });
      x += gapWidth;
    }
    part.x = x;
    x += (part.until - part.from) * scale;
  });
  const place = (us) => {
    let at = parts[0];
    for (const part of parts) if (part.from <= us) at = part;
    return at.x + Math.min(Math.max(0, us - at.from), at.until - at.from) * scale;
  };
  /** The time at a place; within a gap, the end of it. */
  const at = (x) => {
    let found = parts[0];
    for (const part of parts) if (part.x <= x) found = part;
    return Math.round(Math.min(found.until, found.from + (x - found.x) / scale));
  };
  return { x: place, at, gaps, parts, scale };
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800].map((s) => s * 1e6);

/** Round times for the labels of an axis, some 90 pixels apart. */
export function ticksOf(axis) {
  const step = STEPS.find((each) => each * axis.scale >= 88) || STEPS.at(-1);
  const found = [];
  for (const part of axis.parts) {
    const before = found.length;
    for (let us = Math.ceil(part.from / step) * step; us <= part.until; us += step) found.push({ us, x: axis.x(us) });
    if (found.length === before && (part.until - part.from) * axis.scale > 60) found.push({ us: part.from, x: part.x });
  }
  return { ticks: found, seconds: step < 60e6 };
}
