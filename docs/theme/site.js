// Search, the menu of narrow windows, and copying of code. Everything comes from the folder of the site.
"use strict";

const way = document.currentScript.dataset.way;
const field = document.getElementById("search");
const list = document.getElementById("found");
const FOUND_MAX = 20;

// The index is a script and not a file of data, so that a page opened from the disk can read it.
let loading = null;
function sections() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${way}/search.js`;
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

// A whole word counts more than its beginning, and that more than its middle.
function nearness(text, word) {
  const padded = ` ${text.replace(/[^\p{L}\p{N}_-]+/gu, " ")} `;
  if (padded.includes(` ${word} `)) return 1;
  return padded.includes(` ${word}`) ? 0.7 : text.includes(word) ? 0.3 : 0;
}

function worth(section, words) {
  const [, page, title, text] = section.map((each) => each.toLowerCase());
  let sum = 0;
  for (const word of words) {
    const here = 20 * nearness(title, word) + 8 * nearness(page, word) + 3 * nearness(text, word);
    if (!here) return 0;
    sum += here + Math.min(text.split(word).length - 1, 4);
  }
  return sum + (title === words.join(" ") ? 20 : 0);
}

function around(text, word) {
  const at = Math.max(text.toLowerCase().indexOf(word) - 50, 0);
  return (at ? "… " : "") + text.slice(at, at + 150) + (text.length > at + 150 ? " …" : "");
}

async function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.hidden = words.length === 0;
  if (list.hidden) return;
  const found = (await sections())
    .map((section) => [worth(section, words), section])
    .filter(([sum]) => sum)
    .sort((one, other) => other[0] - one[0])
    .slice(0, FOUND_MAX);
  list.replaceChildren(...found.map(([, [where, page, title, text]]) => {
    const link = document.createElement("a");
    link.href = `${way}/${where}`;
    link.textContent = title === page ? page : `${page} › ${title}`;
    const words_around = document.createElement("small");
    words_around.textContent = around(text, words[0]);
    link.append(words_around);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (!found.length) {
    const item = document.createElement("li");
    item.className = "none";
    item.textContent = "Nothing found";
    list.append(item);
  }
  choose(0);
}

function choose(step) {
  const links = [...list.querySelectorAll("a")];
  const at = links.findIndex((each) => each.classList.contains("chosen"));
  const next = Math.min(Math.max(at + step, 0), links.length - 1);
  links.forEach((each, index) => each.classList.toggle("chosen", index === next));
  if (step) links[next]?.scrollIntoView({ block: "nearest" });
}

field.addEventListener("focus", sections);
field.addEventListener("input", search);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") list.querySelector("a.chosen")?.click();
  if (event.key === "Escape") field.blur();
  if (event.key === "ArrowDown") choose(1);
  if (event.key === "ArrowUp") choose(-1);
  if (event.key.startsWith("Arrow") && event.key.length < 10 && !/Left|Right/.test(event.key)) event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  }
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".search")) list.hidden = true;
  if (event.target.closest("#found a")) list.hidden = true;
});

const menu = document.getElementById("menu");
menu.addEventListener("click", () => {
  const shown = document.getElementById("navigation").classList.toggle("shown");
  menu.setAttribute("aria-expanded", String(shown));
});
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest" });

// Of a terminal, only what a reader types is copied.
function typed(text) {
  const lines = text.split("\n").filter((line) => /^[$>] /.test(line));
  return lines.map((line) => line.slice(2)).join("\n");
}
for (const block of document.querySelectorAll("pre.console, pre.python, pre.toml, pre.yaml, pre.sql")) {
  const text = block.textContent;
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.classList.contains("console") ? typed(text) : text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  block.append(button);
}
