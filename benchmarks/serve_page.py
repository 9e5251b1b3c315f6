"""The page of the server in the Chromium of the tests: on a run with many events, and on many lines of output.

Beside it Temporal's own page, on a workflow with as many events in its history. Every page is opened by a browser that
has nothing of it: first the address, then what it loads by itself until it has been at rest for a while.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maos
from benchmarks import serve_store
from benchmarks.measure import Figures, Missing, Rounds, Row, Subject, interleave, progress
from benchmarks.peers import temporal_page
from benchmarks.scratch import REPOSITORY, Scratch
from benchmarks.serve_process import OURS, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser

CHROMIUM = REPOSITORY / ".browser" / "chromium"
NODE = REPOSITORY / ".venv-npm" / "bin" / "node"
ARGUMENTS = [
    "--no-sandbox", "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
WAIT_MS = 60_000
REST_S = 1.5
REST_S_MAX = 90.0
USABLE = "s until usable"
BYTES = "KB"
LONGEST = "ms longest task"
TIMELINE = ".timeline .names > a, .timeline .names > button"
OUTPUT = ".output .line"
WATCH = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.tasks.push([each.startTime, each.duration]);
}).observe({ type: "longtask", buffered: true });
"""
SHOWN = """(selector) => new Promise((resolve) => {
  const look = () => {
    const found = document.querySelector(selector);
    if (found && found.getClientRects().length) resolve(performance.now());
    else requestAnimationFrame(look);
  };
  look();
})"""


def absent() -> str:
    """Why the page cannot be measured here; empty when it can."""
    if find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if (CHROMIUM / "chrome").exists() else "there is no browser: `make .browser/.ready` fetches it"


@asynccontextmanager
async def browser(home: Path) -> AsyncIterator[Browser]:
    """The Chromium of the tests."""
    from playwright.async_api import async_playwright

    os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(NODE))
    environment: dict[str, str | float | bool] = {
        "LD_LIBRARY_PATH": str(CHROMIUM / "lib"), "FONTCONFIG_FILE": str(CHROMIUM / "fonts.conf"), "HOME": str(home),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(
            executable_path=CHROMIUM / "chrome", env=environment, args=ARGUMENTS, timeout=WAIT_MS
        )
        yield opened
        await opened.close()


async def opened(browser: Browser, url: str, selector: str, state: Any = None) -> Figures:
    """Open a page in a browser that has nothing of it, and wait until it is at rest.

    It is usable when what was asked for is visible and no task of the main thread that takes 50 ms or more is left.
    """
    context = await browser.new_context(storage_state=state, viewport={"width": 1280, "height": 860})
    try:
        context.set_default_timeout(WAIT_MS)
        page = await context.new_page()
        await page.add_init_script(WATCH)
        client = await context.new_cdp_session(page)
        await client.send("Network.enable")
        sizes: list[float] = []
        client.on("Network.loadingFinished", lambda each: sizes.append(each["encodedDataLength"]))
        await page.goto(url, wait_until="commit")
        shown_ms = await page.evaluate(SHOWN, selector)
        until_s = time.monotonic() + REST_S_MAX
        while time.monotonic() < until_s:
            before = len(sizes), await page.evaluate("window.tasks.length")
            await page.wait_for_timeout(REST_S * 1e3)
            if (len(sizes), await page.evaluate("window.tasks.length")) == before:
                break
        tasks = await page.evaluate("window.tasks")
    finally:
        await context.close()
    usable_ms = max([shown_ms, *(start + taken for start, taken in tasks)])
    return {
        USABLE: usable_ms / 1e3,
        "s until shown": shown_ms / 1e3,
        BYTES: sum(sizes) / 1e3,
        LONGEST: max((taken for _start, taken in tasks), default=0.0),
    }


async def sign_in(browser: Browser, url: str) -> Any:
    """The cookie of a browser that has signed in with a link, as a person does."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("navigation", name="Views").wait_for()
    state = await context.storage_state()
    await context.close()
    return state


async def measure_page(scratch: Scratch, quick: bool) -> tuple[list[Rounds], list[Row]]:
    """The run with many events beside Temporal's page, and the agent that printed many lines."""
    events, lines, rounds = (5_000, 100_000, 3) if quick else (20_000, 1_000_000, 3)
    titles = (f"serve, the page on {events:,} events", f"serve, the page on {lines:,} lines")
    rows = [("events.usable_s", USABLE, "<= 1", 1.0), ("events.longest_task_s", LONGEST, "<= 0.1", 1e-3),
            ("lines.usable_s", USABLE, "<= 1", 1.0), ("lines.longest_task_s", LONGEST, "<= 0.1", 1e-3)]  # fmt: skip
    if why := absent():
        return [], [Row(f"serve.page.{name}", None, goal, note=f"not measured: {why}") for name, _, goal, _ in rows]
    found: list[Rounds] = []
    with scratch.directory() as directory:
        database = directory / "maos.db"
        progress(f"serve: a run with {events:,} events, and an agent that printed {lines:,} lines")
        async with maos.open(database) as m:
            await serve_store.add_run(m, "r-many", events // 2, "A run with many events")
            agent = await serve_store.add_lines(m, "r-lines", lines, directory)
        async with AsyncExitStack() as stack:
            chromium = await stack.enter_async_context(browser(directory))
            server = stack.enter_context(serving(database))
            state = await sign_in(chromium, server.sign_in)

            async def on_events() -> Figures:
                return await opened(chromium, f"{server.url}/#/run/r-many", TIMELINE, state)

            async def on_lines() -> Figures:
                return await opened(chromium, f"{server.url}/#/agent/{agent}", OUTPUT, state)

            peer: Subject | Missing = Missing(temporal_page.NAME, temporal_page.absent())
            if not temporal_page.absent():
                progress(f"serve: a workflow with {events:,} events in Temporal")
                url = stack.enter_context(temporal_page.serving(directory, events))

                async def theirs() -> Figures:
                    return await opened(chromium, url, temporal_page.ROW)

                peer = Subject(temporal_page.NAME, theirs)
            found.append(await interleave(titles[0], [Subject(OURS, on_events), peer], rounds))
            found.append(await interleave(titles[1], [Subject(OURS, on_lines)], rounds))
    measured = [
        Row.of(f"serve.page.{name}", [each[figure] * unit for each in table.figures[OURS]], goal)
        for (name, figure, goal, unit), table in zip(rows, (found[0], found[0], found[1], found[1]), strict=True)
    ]
    return found, [
        *measured,
        found[0].row("serve.page.events.bytes_vs_temporal", OURS, temporal_page.NAME, BYTES, "<= 0.1"),
    ]
