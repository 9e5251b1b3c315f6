"""Every view of the page in light, in dark and on a phone: it shows what is true, without errors, for everybody, and of
thousands of tasks and many lines a window (R-902)."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Response, expect

from tests.page.conftest import DESK, PHONE, ROOT, Opened, Stage, check_accessible, task

PARSER = '''"""A parser that reads a stream."""


class Parser:
    def __init__(self, stream):
        self.stream = stream

    def parse(self):
        for line in self.stream:
            yield line.strip()


def parse(text):
    return list(Parser(text.splitlines()).parse())
'''
TASKS = 3_000
LINES = 100_000
PAGE_BYTES_MAX = 2_500_000
WINDOW_BYTES_MAX = 200_000
ROWS_MAX = 2_500
REQUEST = "Replace the XML parser with a streaming one, port its tests and update the docs"


@pytest.fixture(scope="module")
def run(stage: Stage) -> str:
    """A run in the middle of its work: a task that waits for a review, one that asks, two at work, two that wait."""
    go = stage.signal("views")
    id = stage.run(
        "parser",
        task("survey", {"say": "reading src/parser.py"}, {"found": "three callers pass the whole document as a string"},
             {"send": ["parser", "Keep parse(text) as a wrapper: three callers use it"]}),
        task("parser", {"write": ["src/parser.py", PARSER]}, {"say": "14 of 14 unit tests pass"}, needs=["survey"],
             gates=[{"person": "Is the new parser good enough to build on?"}], task="Write the streaming parser"),
        task("fixtures", {"write": ["tests/large.xml", "<a>\n  <b/>\n</a>\n"]}, {"say": "12 fixtures written"},
             needs=["survey"], task="Collect the fixtures of the old tests"),
        task("port-tests", {"send": ["docs", "The option strict is gone"]}, {"say": "porting tests/test_parser.py"},
             {"until": go}, needs=["fixtures"], task="Port the tests"),
        task("docs", {"say": "reading docs/parser.md"},
             {"ask": {"question": "Shall the docs keep the section about the option strict?",
                      "choices": ["keep it, marked as removed", "remove it"], "wait_s": 600,
                      "context": "The new parser is always strict.\nTwo pages link to the section."}},
             needs=["survey"], task="Update the docs"),
        task("bench", {"say": "old: 41 MB/s"}, {"say": "new: 212 MB/s"}, {"until": go}, needs=["survey"]),
        task("changelog", needs=["port-tests", "docs", "parser"], task="Write the changelog entry"),
        task("announce", needs=["changelog", "bench"], task="Announce it"),
        request=REQUEST, concurrency=6,
    )  # fmt: skip
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{id}")["pending"]) == 2 and at_work(stage, id) >= 3)
    return id


def at_work(stage: Stage, id: str) -> int:
    agents = stage.api("GET", f"/agents?run={id}&open=true")["agents"]
    return sum(bool(each["activity"]) for each in agents)


def wait_until(stage: Stage, is_so: Callable[[], bool]) -> None:
    position = stage.api("GET", "/health")["position"]
    while not is_so():  # the time limit of the test ends it
        position = stage.api("GET", f"/events?after={position}&limit=500")["position"]


def views(run: str) -> dict[str, str]:
    """Each view, and words that are on it when it is complete."""
    return {
        "#/": "port-tests",
        "#/inbox": "Is the new parser good enough to build on?",
        f"#/run/{run}": "What happened",
        f"#/run/{run}/tasks": "Write the changelog entry",
        f"#/run/{run}/messages": "The option strict is gone",
        f"#/run/{run}/review/parser": "class Parser:",
        f"#/run/{run}/time": "Messages by then",
        f"#/agent/{run}.docs": "reading docs/parser.md",
        f"#/agent/{run}.docs/state": "No state",
        "#/workflows": "Workflows",
        "#/messages": "Keep parse(text)",
        "#/system": "in the journal",
        "#/system/figures": "Agents and models compared",
        "#/system/access": "Who has access",
        "#/system/settings": "serve.plans",
        "#/start": "What should be done?",
    }


def test_every_view_is_complete_and_accessible(stage: Stage, run: str, opened: Opened) -> None:
    """In light, in dark and on a phone; of the colours in the dark, the contrast is checked once more."""
    for theme, size in (("light", DESK), ("dark", DESK), ("light", PHONE)):
        page = opened(f"{stage.url}/", theme=theme, size=size)
        main = page.locator("main")
        for at, words in views(run).items():
            page.goto(f"{stage.url}/{at}")
            expect(main.get_by_text(words).first).to_be_attached()
            expect(main.locator(".loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.dataset.theme") == theme
            wide = page.evaluate(TOO_WIDE)
            assert not wide, f"{at} is wider than the screen: {wide}"
            if size is PHONE:
                check_targets(page, at)
            else:
                check_accessible(page, *(("color-contrast",) if theme == "dark" else ()))
        page.context.close()


TOO_WIDE = """document.documentElement.scrollWidth > innerWidth
    && [...document.querySelectorAll("main *")].filter(each => each.getBoundingClientRect().right > innerWidth + 1)
       .map(each => `${each.tagName}.${each.className} ${each.textContent.slice(0, 60)}`).slice(0, 8)"""


def check_targets(page: Page, at: str) -> None:
    """What is pressed on a phone is large enough for a finger."""
    small = page.evaluate(
        """[...document.querySelectorAll("button.button:not(.small), a.button:not(.small), .choice, .tab, .option")]
           .filter(each => each.offsetParent && each.getBoundingClientRect().height < 43.5)
           .map(each => each.textContent)"""
    )
    assert not small, f"{at}: {small}"


def test_the_fleet_says_what_is_true(
    stage: Stage, run: str, opened: Opened, picture: Callable[[str, Page, str], None]
) -> None:
    page = opened(f"{stage.url}/")
    card = page.get_by_role("article", name=REQUEST)
    for name, words in {
        "survey": "finished", "parser": "waiting for you", "docs": "waiting for you", "bench": "working",
        "port-tests": "working", "changelog": "has not begun",
    }.items():  # fmt: skip
        expect(card.locator(".tile", has=page.get_by_text(name, exact=True))).to_contain_text(words)
    expect(card.locator(".tile", has_text="bench")).to_contain_text("new: 212 MB/s")
    expect(page.locator(".live")).to_contain_text("Live")
    picture("fleet", page, f"article[aria-label='{REQUEST}']")


def test_pictures_of_a_run_and_of_a_review(
    stage: Stage, run: str, opened: Opened, picture: Callable[[str, Page, str], None]
) -> None:
    page = opened(f"{stage.url}/#/run/{run}", theme="dark")
    expect(page.get_by_text("asked: Is the new parser")).to_be_visible()
    expect(page.get_by_text("three callers pass the whole document")).to_be_visible()
    picture("timeline", page, ".timeline .names, .marks")
    page = opened(f"{stage.url}/#/run/{run}/review/parser")
    expect(page.get_by_text("class Parser:")).to_be_visible()
    page.get_by_role("button", name="Comment on line 9").click()
    page.get_by_label("Comment", exact=True).fill("Blank lines should be skipped here")
    picture("review", page, ".review .diff")


def test_keys_move_open_and_explain(stage: Stage, run: str, opened: Opened) -> None:
    page = opened(f"{stage.url}/")
    expect(page.get_by_role("article", name=REQUEST)).to_be_visible()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.matches('[data-card]')")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("/")
    expect(page.get_by_label("Search runs and tasks")).to_be_focused()
    page.keyboard.type("no such run")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("i")
    expect(page.get_by_role("heading", name=re.compile("decisions? waits? for you"))).to_be_visible()


def test_the_theme_can_be_chosen_and_lasts(stage: Stage, opened: Opened) -> None:
    page = opened(f"{stage.url}/")
    page.get_by_role("button", name="Dark").click()
    page.reload()
    expect(page.get_by_role("button", name="Light")).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_backup_is_shown_and_can_be_checked(stage: Stage, opened: Opened) -> None:
    """R-701, R-902."""
    wait_until(stage, lambda: stage.api("GET", "/backups/status")["backup"] is not None)
    page = opened(f"{stage.url}/#/system")
    card = page.locator("[data-backup]")
    expect(card.get_by_text("backups")).to_be_visible()
    card.get_by_role("button", name="Verify").click()
    expect(card.get_by_text("Verification: nothing is wrong up to position")).to_be_visible()
    card.get_by_role("button", name="Test a restoration").click()
    expect(card.get_by_text("Test of a restoration: nothing is wrong up to position")).to_be_visible()
    expect(card.get_by_text("last test")).to_be_visible()
    assert card.get_by_role("button").all_inner_texts() == ["Verify", "Test a restoration"]
    check_accessible(page)
    phone = opened(f"{stage.url}/#/system", size=PHONE)
    expect(phone.locator("[data-backup]").get_by_text("last test")).to_be_visible()


def test_thousands_of_tasks_fold_and_come_in_pages(stage: Stage, opened: Opened) -> None:
    first = task("first", {"until": stage.signal("many")})
    parts = [{"name": f"part-{n:05}", "command": ["true"], "needs": ["first"]} for n in range(TASKS)]
    run = stage.run("many", first, *parts, request="Thousands of parts")
    page = opened("about:blank")
    sizes: list[int] = []
    page.on("response", lambda each: sizes.append(_size(each)))
    page.goto(f"{stage.url}/")
    card = page.get_by_role("article", name="Thousands of parts")
    expect(card).to_contain_text("3,000 waiting")
    assert card.locator(".strip i").count() < 10  # a bar of groups instead of cells
    page.goto(f"{stage.url}/#/run/{run}")
    expect(page.locator(".timeline .names")).to_contain_text("part ×")
    assert page.locator(".timeline .names > a, .timeline .names > button").count() == 2
    page.goto(f"{stage.url}/#/run/{run}/tasks")
    expect(page.get_by_text("1–100 of 3,001")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("101–200 of 3,001")).to_be_visible()
    assert page.get_by_role("row").count() <= 101
    assert sum(sizes) < PAGE_BYTES_MAX
    stage.api("POST", f"/runs/{run}/cancel", json={})


def test_many_lines_are_a_window(stage: Stage, opened: Opened) -> None:
    """As many as an agent prints in hours: recorded as an engine records them, in a part of the time."""
    command = [sys.executable, "-m", "benchmarks.serve_store", "lines", str(stage.database), "r-lines", str(LINES)]
    made = subprocess.run(command, cwd=ROOT, env=stage.environment, stdout=subprocess.PIPE, text=True, check=True)
    page = opened("about:blank")
    sizes: list[int] = []
    page.on("response", lambda each: sizes.append(_size(each) if "/output" in each.url else 0))
    page.goto(f"{stage.url}/#/agent/{made.stdout.strip()}")
    expect(page.locator(".line", has_text=f"line {LINES:07}")).to_be_visible()
    assert 0 < sum(sizes) < WINDOW_BYTES_MAX
    assert page.locator(".line").count() < ROWS_MAX
    page.get_by_role("button", name="Beginning").click()
    expect(page.locator(".line", has_text="line 0000001")).to_be_visible()
    assert page.locator(".line").count() < ROWS_MAX
    output = page.locator(".output")
    for _ in range(2):  # scroll through what follows: it is read in parts, and dropped again
        last = page.locator(".output-foot").inner_text()
        output.evaluate("each => { each.scrollTop = each.scrollHeight }")
        expect(page.locator(".output-foot")).not_to_have_text(last)
    assert page.locator(".line").count() < ROWS_MAX


def _size(response: Response) -> int:
    return int(response.headers.get("content-length", "0"))
