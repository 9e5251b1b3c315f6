// The plan as a graph: what needs what, from left to right. dagre finds the places; the drawing is plain SVG.

import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { to } from "../lib/route.js";
import { rowsOfPlan } from "../lib/plan.js";
import { wordsOf } from "../lib/words.js";
import { Waiting } from "./parts.js";
import { toneOfGroup, toneOfTask } from "./timeline.js";

const WIDTH = 156;
const HEIGHT = 46;
const NODES_MAX = 300;
const SCALE_MIN = 0.72;

let dagre = null; // loaded when a graph is first shown

export function Graph(props) {
  const [error, setError] = useState(null);
  const [isLoaded, setLoaded] = useState(dagre !== null);
  useEffect(() => {
    if (isLoaded) return;
    import("dagre").then((loaded) => {
      dagre = loaded.default;
      setLoaded(true);
    }, setError);
  }, []);
  return isLoaded ? html`<${Drawing} ...${props} />` : html`<${Waiting} error=${error} />`;
}

function Drawing({ run, data, asking, stuck, choose }) {
  const [opened] = useState(new Set());
  const rows = useMemo(() => rowsOfPlan(data.tasks, opened, data.left_out).slice(0, NODES_MAX), [data.tasks]);
  const layout = useMemo(() => {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 52, marginx: 4, marginy: 4 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const row of rows) graph.setNode(row.name, { width: WIDTH, height: HEIGHT });
    for (const row of rows) for (const need of row.needs) if (graph.hasNode(need.name)) graph.setEdge(need.name, row.name);
    dagre.layout(graph);
    return graph;
  }, [rows.map((row) => `${row.name}<${row.needs.map((need) => need.name)}`).join()]);
  const { width, height } = layout.graph();
  const box = useRef();
  const [room, setRoom] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setRoom(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  // It is made smaller to fit as long as its words can be read; then it scrolls.
  const scale = Math.max(SCALE_MIN, Math.min(1, room ? room / width : 1));
  return html`<section class="card graph" aria-label="Plan as a graph" tabindex="0" ref=${box}>
    <svg width=${width * scale} height=${height * scale} viewBox="0 0 ${width} ${height}">
      ${layout.edges().map((edge) => html`<path class="edge" d=${path(layout.edge(edge).points)} />`)}
      ${rows.map((row) => {
        const { x, y } = layout.node(row.name);
        const tone = row.isGroup ? toneOfGroup(row, asking, stuck) : toneOfTask(row.tasks[0], asking, stuck);
        const done = row.tasks.filter((task) => task.status === "done").length;
        const words = row.isGroup ? (data.total > data.tasks.length ? wordsOf(row.tasks[0].status) : `${done} of ${row.tasks.length} finished`) : tone === "you" ? "waiting for you" : tone === "stuck" ? "cannot begin" : wordsOf(row.tasks[0].status);
        const pick = (event) => {
          event.preventDefault();
          if (!row.isGroup) choose(row.tasks[0]);
        };
        return html`<a href=${row.isGroup ? to("run", run, "tasks") : to("run", run, "tasks", row.name)} onClick=${pick}><g class="node s-${tone}" transform="translate(${x - WIDTH / 2} ${y - HEIGHT / 2})">
          <rect width=${WIDTH} height=${HEIGHT} rx="8" /><circle cx="15" cy="17" r="4.5" fill="var(--c)" />
          <text x="27" y="21">${short(row.name, 17)}</text><text class="sub" x="27" y="37">${short(words, 20)}</text><title>${row.name}: ${words}</title></g></a>`;
      })}
    </svg>
  </section>`;
}

const short = (text, chars) => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);

function path(points) {
  const [first, ...rest] = points;
  let d = `M${first.x} ${first.y}`;
  for (let i = 0; i < rest.length - 1; i++) d += ` Q${rest[i].x} ${rest[i].y} ${(rest[i].x + rest[i + 1].x) / 2} ${(rest[i].y + rest[i + 1].y) / 2}`;
  const last = rest.at(-1);
  return `${d} L${last.x} ${last.y}`;
}
