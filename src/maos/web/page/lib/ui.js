// The few functions that every component uses, from one place. Text of agents reaches the page as text nodes only:
// there is no function here, or elsewhere, that turns a string into elements.

import { h, render, Fragment } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback } from "preact/hooks";
import { signal, computed, effect, batch } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);
export { render, Fragment, signal, computed, effect, batch };
export { useEffect, useLayoutEffect, useMemo, useRef, useState, useCallback };
