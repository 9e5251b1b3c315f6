// Where the page is: the part of the address behind "#", such as #/run/r-1/review. The server never sees it.

import { signal } from "./ui.js";

const read = () => {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decode);
  return { view: parts[0] || "fleet", parts: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
};

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal(read());
addEventListener("hashchange", () => {
  route.value = read();
});

/** A link within the page: to("run", id, "review"). */
export function to(view, ...parts) {
  return `#/${[view, ...parts].filter((part) => part !== undefined && part !== "").map(encodeURIComponent).join("/")}`;
}

export function go(hash) {
  location.hash = hash;
}
