// Icons of the navigation, drawn by hand in one weight.

import { html } from "../lib/ui.js";

const PATHS = {
  fleet: "M3 3h5.5v6H3zM11.5 3H17v4h-5.5zM11.5 10H17v7h-5.5zM3 12h5.5v5H3z",
  inbox: "M3 11.5 5.2 4h9.6L17 11.5V16H3zM3 11.5h4l1 2h4l1-2h4",
  messages: "M3 4.5h14v9H9l-3.5 3v-3H3z",
  workflows: "M4 3.5h5v4H4zM11 12.5h5v4h-5zM6.5 7.5v7H11",
  system: "M3 10h3l2-5 4 10 2-5h3",
  sun: "M10 6.4a3.6 3.6 0 1 0 0 7.2 3.6 3.6 0 0 0 0-7.2zM10 1.8v1.6M10 16.6v1.6M1.8 10h1.6M16.6 10h1.6M4.2 4.2l1.1 1.1M14.7 14.7l1.1 1.1M4.2 15.8l1.1-1.1M14.7 5.3l1.1-1.1",
  moon: "M16.5 12.3A7 7 0 0 1 7.7 3.5a7 7 0 1 0 8.8 8.8z",
  plus: "M10 4v12M4 10h12",
  pause: "M7 4v12M13 4v12",
  play: "M6 4l10 6-10 6z",
  stop: "M5 5h10v10H5z",
  fork: "M6 3v14M6 8c0 4 8 1 8 5v4M6 3m-1.6 0",
  back: "M8 5 3.5 9.5 8 14M3.5 9.5H12a4.5 4.5 0 0 1 0 9",
};

export const Icon = ({ name, size = 18 }) => html`<svg width=${size} height=${size} viewBox="0 0 20 20" fill="none" stroke="currentColor"
  stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

/** The mark of maos: two lines that continue in one. */
export const Mark = () => html`<svg width="24" height="24" viewBox="0 0 24 24" aria-hidden="true">
  <rect width="24" height="24" rx="6" fill="var(--ink)" />
  <g fill="none" stroke="var(--paper)" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round"><path d="M5.6 17V8.4l4.2 5.2L14 8.4" /><path d="M14 8.4c3.6 1 4.4 4.4 4.4 8.6" /></g>
  <circle cx="18.2" cy="6.6" r="2.1" fill="var(--you-fill)" />
</svg>`;
