// Who talks to whom: messages between agents and people as a sequence, the newest at the bottom.

import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { useData } from "../lib/data.js";
import { isReset } from "../lib/stream.js";
import { to } from "../lib/route.js";
import { clock, count, firstLine, shortAgent } from "../lib/words.js";
import { Empty, LongText, Waiting } from "../components/parts.js";

const LANE_MIN = 118;
const LANE_MAX = 190;
const ROW = 40;
const LEFT = 66;
const LANES_MAX = 24;
/** A message to more than so many is one line. */
const CROWD = 3;

export function Messages() {
  const when = (event) => isReset(event) || event.kind === "messages" || event.kind === "inbox";
  return html`<div class="head"><h1>Messages</h1><div class="facts"><span>What agents tell each other, and what people tell them, in all runs.</span></div></div><${Sequence} path="/messages?limit=200" when=${when} run="" />`;
}

export function Sequence({ path, when, run }) {
  const found = useData(path, { when });
  const [chosen, setChosen] = useState(null);
  const [search, setSearch] = useState("");
  const all = found.data?.messages || [];
  const wanted = search.trim().toLowerCase();
  const shown = useMemo(() => all.filter((each) => !wanted || `${each.sender} ${each.to.join(" ")} ${each.text} ${each.topic}`.toLowerCase().includes(wanted)), [all, wanted]);
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  if (!all.length) return html`<div class="card"><${Empty} title="No messages">What agents tell each other, and what people tell them, appears here.<//></div>`;
  const current = shown.find((each) => each.id === chosen) || shown.at(-1);
  return html`<div class="stack">
    <div class="row between stack-on-phone"><span class="quiet small">${found.data.earlier > 0 ? `The newest ${all.length}; ${found.data.earlier.toLocaleString("en")} earlier ones are not shown` : count(all.length, "message")}</span>
      <input class="field search" data-search type="search" placeholder="Search messages  /" aria-label="Search messages" value=${search} onInput=${(event) => setSearch(event.target.value)} /></div>
    ${!shown.length && html`<div class="card"><${Empty} title="Nothing matches">Clear the search.<//></div>`}
    ${shown.length > 0 && html`<div class="talk"><${Lanes} messages=${shown} run=${run} current=${current} choose=${setChosen} /><${Details} message=${current} run=${run} /></div>`}
  </div>`;
}

/** A lane for each participant, a row for each message: who said what to whom, from top to bottom. */
function Lanes({ messages, run, current, choose }) {
  const box = useRef();
  const [room, setRoom] = useState(640);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setRoom(Math.floor(entry.contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    box.current.scrollTop = box.current.scrollHeight;
  }, [messages.length]);
  // Those who speak come first: a message to everybody needs no lane for each who hears it.
  const names = useMemo(() => [...new Set([...messages.map((each) => each.sender), ...messages.filter((each) => each.to.length <= CROWD).flatMap((each) => each.to)])], [messages]);
  const lanes = names.slice(0, LANES_MAX);
  const lane = Math.max(LANE_MIN, Math.min(LANE_MAX, (room - LEFT - 12) / Math.max(1, lanes.length)));
  const x = (name) => LEFT + lane / 2 + lanes.indexOf(name) * lane;
  const width = Math.max(room - 2, LEFT + lanes.length * lane);
  const head = run ? 40 : 52;
  const height = head + messages.length * ROW + 12;
  const pick = (event) => {
    const row = Math.floor((event.clientY - event.currentTarget.getBoundingClientRect().top - head) / ROW);
    if (messages[row]) choose(messages[row].id);
  };
  return html`<div class="card sequence" ref=${box} tabindex="0" role="group" aria-label="Sequence of messages">
    <svg width=${width} height=${height} role="img" aria-label="${count(messages.length, "message")} between ${count(names.length, "participant")}" onClick=${pick}>
      ${lanes.map((name) => html`<line class="lane" x1=${x(name)} x2=${x(name)} y1=${head - 6} y2=${height} />`)}
      ${messages.map((each, i) => html`<${Arrow} key=${each.id} message=${each} run=${run} y=${head + i * ROW} x=${x} lanes=${lanes} width=${width} isOn=${each === current} />`)}
      <g class="who">${lanes.map((name) => html`<g transform="translate(${x(name)} 18)"><${Participant} name=${name} run=${run} lane=${lane} /></g>`)}</g>
    </svg>
  </div>`;
}

/** A participant above its lane: the task, and in the view of all runs the run below it. */
function Participant({ name, run, lane }) {
  const [of, ...task] = run ? [] : name.split(".");
  const label = task.length ? task.join(".") : shortAgent(name, run);
  return html`<rect x=${8 - lane / 2} y="-14" width=${lane - 16} height=${run ? 24 : 36} rx="6" />
    <text y=${run || task.length ? 3 : 9}>${clipTo(label, Math.floor(lane / 8.5))}</text>${task.length > 0 && html`<text class="of" y="17">${of}</text>`}<title>${name}</title>`;
}

/** One message: an arrow to each who has a lane; one to many is a line along all lanes, and says to how many. */
function Arrow({ message, run, y, x, lanes, width, isOn }) {
  const from = x(message.sender);
  const line = y + ROW - 12;
  const isCrowd = message.to.length > CROWD;
  const ends = isCrowd ? [] : message.to.filter((name) => lanes.includes(name)).map(x);
  const left = Math.min(from, ...ends);
  const right = isCrowd ? width - 14 : Math.max(from, ...ends);
  const isDead = Object.values(message.receivers).includes("dead");
  // The words begin where the arrow does, and may continue beyond it: nothing else is in the row.
  const chars = Math.max(16, Math.floor((width - left - 20) / 6.6));
  const whom = isCrowd ? ` → ${count(message.to.length, "agent")}` : "";
  return html`<g class=${isOn ? "on" : ""}>
    <rect class="row-band" x="0" y=${y} width=${width} height=${ROW} />
    <text class="at" x="10" y=${y + ROW / 2 + 4}>${clock(message.at_us, true)}</text>
    <text x=${left + 8} y=${line - 7}>${clipTo(firstLine(message.text), chars - whom.length)}<tspan class="whom">${whom}</tspan></text>
    ${isCrowd ? html`<path class=${`arrow crowd${isDead ? " s-failed" : ""}`} d="M${from} ${line} H${right}" /><path class="head" d="M${right} ${line} l-8 -4 v8 z" />` : ends.map((until) => {
      const way = until >= from ? 1 : -1;
      return html`<path class=${`arrow${isDead ? " s-failed" : ""}`} d="M${from} ${line} H${until - 7 * way}" /><path class="head" d="M${until - way} ${line} l${-8 * way} -4 v8 z" />`;
    })}
    <circle cx=${from} cy=${line} r="3" class="head" />
  </g>`;
}

const clipTo = (text, chars) => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);

const WORDS = { waiting: "not received yet", acknowledged: "received", dead: "could not be delivered" };
const RECEIVERS_SHOWN = 12;

/** The message that is chosen, whole, and what came of it at each recipient. */
function Details({ message, run }) {
  const receivers = Object.entries(message.receivers);
  return html`<aside class="card pad stack" aria-label="Message">
    <div class="row between base"><b class="clip">${shortAgent(message.sender, run || message.run)}</b><span class="quiet small num nowrap">${clock(message.at_us, true)}</span></div>
    <p class="wrap"><${LongText} text=${message.text} chars=${3000} /></p>
    <dl class="pairs small">${receivers.slice(0, RECEIVERS_SHOWN).map(([name, status]) => html`<dt>to ${shortAgent(name, run || message.run)}</dt><dd>${WORDS[status] || status}</dd>`)}
      ${receivers.length > RECEIVERS_SHOWN && html`<dt></dt><dd>and ${receivers.length - RECEIVERS_SHOWN} more</dd>`}
      ${message.topic && html`<dt>topic</dt><dd>${message.topic}</dd>`}<dt>kind</dt><dd>${message.type}</dd>
      ${!run && message.run && html`<dt>run</dt><dd><a class="link mono" href=${to("run", message.run, "messages")}>${message.run}</a></dd>`}</dl></aside>`;
}
