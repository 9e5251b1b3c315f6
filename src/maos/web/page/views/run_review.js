// What each task changed, line by line. A comment on a line goes back to the agent; a task is accepted or sent back.

import { html, useEffect, useState } from "../lib/ui.js";
import { may, post, url } from "../lib/api.js";
import { answer, askingTasks } from "../lib/answers.js";
import { useData } from "../lib/data.js";
import { moveThrough, useKeys } from "../lib/keys.js";
import { isOf } from "../lib/stream.js";
import { go, to } from "../lib/route.js";
import { count, toneOf, wordsOf } from "../lib/words.js";
import { Action, Empty, Glyph, LongText, State, Waiting, say } from "../components/parts.js";
import { Diff } from "../components/diff.js";

const TASKS_LISTED = 500;
const ENDED = ["done", "skipped", "failed"];

export function Review({ run, chosen }) {
  const found = useData(`${url`/runs/${run.id}/tasks`}?limit=${TASKS_LISTED}`, { when: isOf(run.id) });
  useKeys(moveThrough("[data-review]"));
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const begun = new Map(found.data.tasks.filter((task) => task.attempts > 0).map((task) => [task.name, task.status]));
  // What waits for a review comes first, also when it is not among the tasks that are listed; of a run that has ended,
  // what there is to merge.
  const gated = [...new Set(run.pending.filter((each) => each.kind === "gate").map(taskOf))];
  const named = chosen && chosen !== "all" ? [chosen] : [];
  const names = [...new Set([...gated, ...named.filter((name) => !begun.has(name)), ...begun.keys()])];
  const current = named[0] || (chosen === "all" || (isOver(run) && !gated.length) ? "" : names[0]);
  if (!names.length) return html`<div class="card"><${Empty} title="Nothing to review yet">What tasks change appears here once they have begun.<//></div>`;
  const asking = askingTasks(run);
  const rows = names.map((name) => {
    const status = begun.get(name);
    if (gated.includes(name)) return { name, tone: "you", words: "waits for your review" };
    if (asking.has(name) && !ENDED.includes(status)) return { name, tone: "you", words: "waiting for you" };
    return { name, tone: toneOf(status), words: status ? wordsOf(status) : "" };
  });
  const more = found.data.total - found.data.tasks.length;
  const open = (event) => go(to("run", run.id, "review", event.target.value || "all"));
  return html`<div class="review">
    <select class="field phone-only" aria-label="What to review" value=${current} onChange=${open}><option value="">Everything together</option>${rows.map((row) => html`<option key=${row.name} value=${row.name}>${row.name}${row.words && ` · ${row.words}`}</option>`)}</select>
    <div class="card asks wide-only">
      <a class=${`review-row${current ? "" : " chosen"}`} data-review href=${to("run", run.id, "review", "all")}><b>Everything together</b><span class="small quiet">what the run would merge</span></a>
      ${rows.map(
        (row) => html`<a key=${row.name} data-review class=${`review-row${row.name === current ? " chosen" : ""}`} href=${to("run", run.id, "review", row.name)}>
          <span class="row between"><b class="clip">${row.name}</b><${Glyph} tone=${row.tone} size="14" /></span>
          <span class="small quiet clip">${row.words}</span>
        </a>`,
      )}
      ${more > 0 && html`<a class="review-row link small" href=${to("run", run.id, "tasks")}>${count(more, "more task")}: open one in Tasks</a>`}
    </div>
    ${!current ? html`<${Everything} run=${run} />` : html`<${TaskReview} key=${current} run=${run} name=${current} />`}
  </div>`;
}

const taskOf = (question) => /\/gate\/([^/]+)/.exec(question.ref)?.[1];

/** What one task changed. It is read by its name: a run may have more tasks than are listed. */
function TaskReview({ run, name }) {
  const found = useData(url`/runs/${run.id}/tasks/${name}`, { when: isOf(run.id) });
  const gate = run.pending.find((each) => each.kind === "gate" && taskOf(each) === name);
  return found.data ? html`<${TaskWork} run=${run} task=${found.data} gate=${gate} />` : html`<${Waiting} error=${found.error} />`;
}

function TaskWork({ run, task, gate }) {
  const found = useData(`${url`/agents/${task.agent}/diff`}?patch=true`, { when: (event) => event.agent === task.agent && event.type === "attempt_checkpointed" });
  const [comments, setComments] = useState({});
  const [general, setGeneral] = useState("");
  const list = Object.entries(comments).flatMap(([path, lines]) => Object.entries(lines).map(([name, each]) => ({ path, name, ...each })));
  const keep = (path, name, text, row) => {
    const lines = { ...comments[path] };
    if (text) lines[name] = { text, line: row.text };
    else delete lines[name];
    setComments({ ...comments, [path]: lines });
  };
  const words = [general.trim(), ...list.map((each) => `${each.path}:${each.name.slice(1)}: ${each.text}\n> ${each.line.trim()}`)].filter(Boolean).join("\n\n");
  const accept = () => answer(gate, "yes");
  const sendBack = async () => {
    await answer(gate, "no", words || "not yet");
    setComments({});
    setGeneral("");
  };
  const send = async () => {
    const sent = await post(url`/agents/${task.agent}/messages`, { text: words });
    setComments({});
    setGeneral("");
    return sent;
  };
  const act = (work, done) => () => work().then(() => say(done), (error) => say(error.message, true));
  const on = `run/${run.id}`;
  const [answers, steers] = [gate && may("answer", on), may("steer", on)];
  useKeys(answers ? { a: act(accept, `${task.name}: accepted`), r: act(sendBack, `${task.name}: sent back`) } : {});
  const shown = Object.fromEntries(Object.entries(comments).map(([path, lines]) => [path, Object.fromEntries(Object.entries(lines).map(([name, each]) => [name, each.text]))]));
  return html`<div class="stack">
    <div class="card pad stack">
      <div class="row between"><div class="row"><h2>${task.name}</h2>${gate ? html`<${State} tone="you" words="waits for your review" />` : html`<${State} ...${askingTasks(run).has(task.name) && !ENDED.includes(task.status) ? { tone: "you", words: "waiting for you" } : { state: task.status }} />`}</div><a class="link small" href=${to("agent", task.agent)}>Output</a></div>
      ${gate && html`<p><b>${gate.text}</b></p>`}
      ${task.result && html`<p class="soft"><${LongText} text=${task.result} chars=${600} /></p>`}
      ${(gate ? answers : steers) &&
      html`<textarea class="field" rows="2" aria-label="Comment on the whole" placeholder=${gate ? "What should be different? Comments on lines are added." : "A message to the agent. Comments on lines are added."} value=${general} onInput=${(event) => setGeneral(event.target.value)}></textarea>
      <div class="buttons">
        ${answers && html`<${Action} class="button primary" run=${accept} done="${task.name}: accepted">Accept <kbd>a</kbd><//><${Action} class="button" run=${sendBack} done="${task.name}: sent back">Send back${list.length > 0 && html` with ${count(list.length, "comment")}`} <kbd>r</kbd><//>`}
        ${!gate && html`<${Action} class="button" disabled=${!words} run=${send} done=${(sent) => (sent.running ? "Sent" : "Recorded; the agent gets it when it is resumed")}>Send to the agent${list.length > 0 && html` · ${count(list.length, "comment")}`}<//>`}
        <span class="small quiet">click a line number to comment on it</span>
      </div>`}
    </div>
    ${!found.data ? (found.error ? html`<p class="note">${found.error.message}. ${found.error.hint}</p>` : html`<${Waiting} />`) : html`<${Diff} patch=${found.data.patch} cut=${found.data.cut} comments=${shown} onComment=${(answers || (!gate && steers)) && keep} />`}
  </div>`;
}

/** What merging a run would do now: null while that is not known, or for a person who may not merge. */
export function useMerge(run) {
  const [found, setFound] = useState(null);
  const asks = may("steer", `run/${run.id}`) && Boolean(run.commit) && !isGoing(run);
  useEffect(() => {
    let isCurrent = true;
    if (asks) post(url`/runs/${run.id}/merge`, { dry_run: true }).then((seen) => isCurrent && setFound(seen), () => isCurrent && setFound(null)); // the button says what is wrong
    return () => (isCurrent = false);
  }, [run.id, run.version, asks]);
  return [asks ? found : null, setFound];
}

export const isOver = (run) => ["completed", "failed", "cancelled"].includes(run.status);
export const isMerged = (merge) => merge?.outcome === "merged" && !merge.commits;
const isGoing = (run) => run.engine?.alive && ["running", "planning"].includes(run.status);

function Everything({ run }) {
  const found = useData(`${url`/runs/${run.id}/diff`}?patch=true`, { when: (event) => isOf(run.id)(event) && event.kind === "run" });
  const [ahead, setAhead] = useMerge(run);
  const [merged, setMerged] = useState(null);
  const merge = async () => {
    const done = await post(url`/runs/${run.id}/merge`, {});
    setMerged(done);
    if (done.outcome === "merged") setAhead({ ...done, commits: 0 });
    return done;
  };
  if (!found.data) return html`<${Waiting} error=${found.error} />`;
  const { files, patch, cut } = found.data;
  const said = (done) => (done.outcome !== "merged" ? done.why : done.commits ? `Merged as ${count(done.commits, "commit")}${done.branch && ` on ${done.branch}`}` : "Your branch has everything already");
  return html`<div class="stack">
    <div class="card pad stack">
      <div class="row between stack-on-phone"><div><h2>${files === null ? "Its agents work in your folder itself" : `${count(files.length, "file")} changed`}</h2><span class="quiet small mono">${run.folder}</span></div>
        ${may("steer", `run/${run.id}`) && files?.length > 0 && !isMerged(ahead) && html`<${Action} class="button primary" disabled=${isGoing(run)} run=${merge} done=${said}>Merge into your branch<//>`}</div>
      ${isGoing(run) && files?.length > 0 && html`<p class="small quiet">It is being executed: wait, or pause it, then merge.</p>`}
      ${!merged && ahead && ahead.outcome !== "merged" && html`<p class="note tone s-stuck"><b>It cannot be merged as it is.</b><br /><span class="wrap">${ahead.why}</span>${ahead.hint && html`<br /><span class="soft">${ahead.hint}</span>`}</p>`}
      ${merged ? html`<p class="note tone s-${merged.outcome === "merged" ? "done" : "stuck"}"><b>${said(merged)}</b>${merged.hint && html`<br /><span class="soft">${merged.hint}</span>`}${merged.files.length > 0 && html`<br /><span class="mono small">${merged.files.slice(0, 20).join(", ")}</span>`}</p>` : isMerged(ahead) && html`<p class="note tone s-done">Merged: ${ahead.branch || "your branch"} has all of it.</p>`}
    </div>
    ${patch ? html`<${Diff} patch=${patch} cut=${cut} />` : files?.length === 0 && html`<p class="quiet">Nothing was changed and merged so far.</p>`}
  </div>`;
}
