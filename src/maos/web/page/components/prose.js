// What an agent says, as text with code and emphasis. It is built from elements, never parsed as HTML: whatever an agent
// writes, it is text.

import { html, useState } from "../lib/ui.js";

const FENCE = /^\s*```/;
const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*)/;

/** Text with `code`, **emphasis** and blocks of code between fences; long ones are cut, and can be shown further. */
export function Prose({ text, chars = 4000, step = 20000 }) {
  const [shown, setShown] = useState(chars);
  const all = String(text ?? "");
  const left = all.length - shown;
  return html`<div class="prose">${blocksOf(left > 0 ? all.slice(0, shown) : all).map((block, i) =>
      block.isCode ? html`<pre key=${i} class="code">${block.lines.join("\n")}</pre>` : html`<p key=${i} class="wrap">${inline(block.lines.join("\n"))}</p>`,
    )}${left > 0 && html`<button type="button" class="button plain small" onClick=${() => setShown(shown + step)}>… ${left.toLocaleString("en")} more characters</button>`}</div>`;
}

function blocksOf(text) {
  const blocks = [];
  let block = { isCode: false, lines: [] };
  const end = (isCode) => {
    if (block.lines.some((line) => line.trim())) blocks.push(block);
    block = { isCode, lines: [] };
  };
  for (const line of text.split("\n")) {
    if (FENCE.test(line)) end(!block.isCode);
    else if (!block.isCode && !line.trim()) end(false);
    else block.lines.push(line);
  }
  end(false);
  return blocks;
}

const inline = (text) => text.split(INLINE).map((part, i) => (i % 2 === 0 ? part : part[0] === "`" ? html`<code>${part.slice(1, -1)}</code>` : html`<b>${part.slice(2, -2)}</b>`));
