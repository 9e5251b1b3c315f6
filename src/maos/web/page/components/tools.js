// Tools of agents as text: the argument that tells most in one line, the rest folded.

import { html } from "../lib/ui.js";
import { firstLine } from "../lib/words.js";
import { LongText } from "./parts.js";
import { DiffRows, rowsOfTexts } from "./diff.js";

const TELLING = ["command", "file_path", "path", "pattern", "url", "query", "description", "prompt", "question", "text"];

/** What a tool is used for, in one line. */
export function brief(input) {
  if (input === null || input === undefined) return "";
  if (typeof input === "string") return firstLine(input);
  const name = TELLING.find((each) => typeof input[each] === "string");
  if (name) return firstLine(input[name]);
  return firstLine(JSON.stringify(input));
}

/** Everything that a tool was given: a command as text, an edit as a diff. */
export function ToolInput({ name, input }) {
  if (input === null || input === undefined) return null;
  if (typeof input === "string") return html`<pre class="code"><${LongText} text=${input} chars=${4000} /></pre>`;
  if (typeof input.old_string === "string" && typeof input.new_string === "string") {
    return html`<div class="stack"><div class="mono small">${input.file_path || input.path || name}</div><div class="card diff"><${DiffRows} rows=${rowsOfTexts(input.old_string, input.new_string)} /></div></div>`;
  }
  const command = input.command;
  if (typeof command === "string" || Array.isArray(command)) {
    const { command: _shown, ...rest } = input;
    return html`<div class="stack"><pre class="code"><${LongText} text=${Array.isArray(command) ? command.join(" ") : command} chars=${4000} /></pre>
      ${Object.keys(rest).length > 0 && html`<${Pairs} data=${rest} />`}</div>`;
  }
  return html`<${Pairs} data=${input} />`;
}

/** Plain data as names and values. */
export function Pairs({ data }) {
  if (typeof data !== "object" || data === null) return html`<pre class="code"><${LongText} text=${JSON.stringify(data)} /></pre>`;
  return html`<dl class="pairs">${Object.entries(data).slice(0, 60).map(([name, value]) => html`<dt>${name}</dt><dd class="mono"><${LongText} text=${typeof value === "string" ? value : JSON.stringify(value, null, 1)} chars=${1500} /></dd>`)}</dl>`;
}
