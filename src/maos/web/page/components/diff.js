// Patches as rows of text. A line can be commented; the comments go back to the agent as a message.

import { html, useMemo, useState } from "../lib/ui.js";
import { count } from "../lib/words.js";

const ROWS_SHOWN = 400;
const LINE_CHARS = 1000;

/** The files of a patch: [{path, from, rows, added, removed, note}]; a row is {kind, text, old, new}. */
export function parsePatch(patch) {
  const files = [];
  let file = null;
  let before = 0;
  let after = 0;
  for (const line of (patch || "").split("\n")) {
    if (line.startsWith("diff --git ")) {
      file = { path: pathOf(line), rows: [], added: 0, removed: 0, note: "" };
      files.push(file);
      before = -1;
      continue;
    }
    if (!file) continue;
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    if (hunk) {
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
      file.rows.push({ kind: "hunk", text: hunk[3].trim(), old: before, new: after });
    } else if (before < 0) {
      if (line.startsWith("new file")) file.note = "new";
      else if (line.startsWith("deleted file")) file.note = "deleted";
      else if (line.startsWith("rename from ")) file.note = `renamed from ${line.slice(12)}`;
      else if (line.startsWith("Binary files")) file.note = "binary";
      else if (line.startsWith("+++ b/")) file.path = line.slice(6);
    } else if (line.startsWith("+")) {
      file.rows.push({ kind: "add", text: line.slice(1), old: 0, new: after++ });
      file.added += 1;
    } else if (line.startsWith("-")) {
      file.rows.push({ kind: "del", text: line.slice(1), old: before++, new: 0 });
      file.removed += 1;
    } else if (line.startsWith(" ")) {
      file.rows.push({ kind: "same", text: line.slice(1), old: before++, new: after++ });
    } else if (line.startsWith("\\")) {
      file.rows.push({ kind: "hunk", text: line.slice(2), old: 0, new: 0 });
    }
  }
  return files;
}

function pathOf(line) {
  const found = / b\/(.+)$/.exec(line);
  return found ? found[1] : line.slice(11);
}

/** Rows that show how one text became another, without what both have at their beginning and end. */
export function rowsOfTexts(old, replaced) {
  const a = old.split("\n");
  const b = replaced.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (text, i) => ({ kind: "same", text, old: i + 1, new: i + 1 });
  return [
    ...a.slice(Math.max(0, head - 3), head).map((text, i) => same(text, Math.max(0, head - 3) + i)),
    ...a.slice(head, a.length - tail).map((text, i) => ({ kind: "del", text, old: head + i + 1, new: 0 })),
    ...b.slice(head, b.length - tail).map((text, i) => ({ kind: "add", text, old: 0, new: head + i + 1 })),
    ...a.slice(a.length - tail, a.length - tail + 3).map((text, i) => ({ kind: "same", text, old: a.length - tail + i + 1, new: b.length - tail + i + 1 })),
  ];
}

const SIGNS = { add: "+", del: "−", same: " ", hunk: "" };

/** Rows of a diff; with `onComment`, a click on a line number opens a field for a comment. */
export function DiffRows({ rows, comments = {}, onComment }) {
  const [shown, setShown] = useState(ROWS_SHOWN);
  const [open, setOpen] = useState(null);
  return html`<div class="diff-rows" role="table" aria-label="Changed lines">
    ${rows.slice(0, shown).map((row, i) => {
      if (row.kind === "hunk") return html`<div key=${i} class="d hunk" role="row"><span role="cell" class="n"></span><span role="cell" class="n"></span><span role="cell" class="t">${row.text || "⋯"}</span></div>`;
      const line = row.new || row.old;
      const name = `${row.kind === "del" ? "-" : "+"}${line}`;
      const comment = comments[name];
      return html`<div key=${i} class=${`d ${row.kind}`} role="row">
          <span role="cell" class="n">${row.old || ""}</span>
          <span role="cell" class="n">${onComment && row.kind !== "del" ? html`<button type="button" class="n-button" aria-label="Comment on line ${line}" onClick=${() => setOpen(open === name ? null : name)}>${row.new}</button>` : row.new || ""}</span>
          <span role="cell" class="t"><span class="sign" aria-hidden="true">${SIGNS[row.kind]}</span>${row.text.length > LINE_CHARS ? `${row.text.slice(0, LINE_CHARS)} … ${count(row.text.length - LINE_CHARS, "more character")}` : row.text || "\u00a0"}</span>
        </div>
        ${comment && open !== name && html`<button type="button" class="d comment" onClick=${() => setOpen(name)}><b>Your comment</b> ${comment}</button>`}
        ${open === name && html`<${CommentField} text=${comment || ""} save=${(text) => { onComment(name, text, row); setOpen(null); }} close=${() => setOpen(null)} />`}`;
    })}
    ${rows.length > shown && html`<button type="button" class="d more" onClick=${() => setShown(shown + 2000)}>Show ${count(rows.length - shown, "more line")}</button>`}
  </div>`;
}

function CommentField({ text, save, close }) {
  const [value, setValue] = useState(text);
  const keys = (event) => {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) save(value.trim());
    if (event.key === "Escape") close();
  };
  return html`<div class="comment-field">
    <textarea class="field" rows="2" autofocus ref=${(element) => element && !element.dataset.seen && ((element.dataset.seen = "1"), element.focus())} aria-label="Comment" value=${value} onInput=${(event) => setValue(event.target.value)} onKeyDown=${keys} placeholder="What should the agent change here?"></textarea>
    <div class="buttons"><button type="button" class="button primary small" disabled=${!value.trim()} onClick=${() => save(value.trim())}>Keep the comment</button><button type="button" class="button plain small" onClick=${() => (text ? save("") : close())}>${text ? "Remove" : "Cancel"}</button></div>
  </div>`;
}

/** The files of a patch, each with its rows; large ones are folded. */
export function Diff({ patch, cut, comments = {}, onComment }) {
  const files = useMemo(() => parsePatch(patch), [patch]);
  if (!files.length) return html`<p class="quiet">No lines were changed.</p>`;
  return html`<div class="stack">
    ${files.map(
      (file) => html`<details key=${file.path} class="card diff fold" open=${file.rows.length <= ROWS_SHOWN}>
        <summary><span class="mono clip grow">${file.path}</span>${file.note && html`<span class="chip">${file.note}</span>`}<span class="num nowrap"><span class="plus">+${file.added}</span> <span class="minus">−${file.removed}</span></span></summary>
        ${file.rows.length > 0 && html`<${DiffRows} rows=${file.rows} comments=${comments[file.path]} onComment=${onComment && ((name, text, row) => onComment(file.path, name, text, row))} />`}
      </details>`,
    )}
    ${cut && html`<p class="note small">The patch is longer and was cut. <code>maos diff</code> shows all of it.</p>`}
  </div>`;
}
