"""Every view of the page in light, in dark and on a phone: it shows what is true, without errors, for everybody, and of
thousands of tasks and many lines a window (R-902)."""

import re
import subprocess
import sys

from playwright.sync_api import Page, Response, ViewportSize, expect

from tests.page.conftest import DESK, PHONE, REQUEST, ROOT, Opened, Stage, check_accessible, task, wait_until

TASKS = 3_000
LINES = 100_000
PAGE_BYTES_MAX = 2_500_000
WINDOW_BYTES_MAX = 200_000
ROWS_MAX = 2_500


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
        f"#/agent/{run}.parser/changes": "class Parser:",
        f"#/agent/{run}.docs/state": "Changed since version 2",
        f"#/agent/{run}.survey/state": "No state",
        "#/workflows": "w-order",
        "#/workflows/w-order": "tea is reserved",
        "#/workflows/w-refused": "the card for coffee is refused",
        "#/messages": "Keep parse(text)",
        "#/system": "Versions and servers",
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
            check_looks(page, at, theme, size)
        page.goto(f"{stage.url}/#/run/{run}")
        page.get_by_role("button", name="Graph").click()
        graph = page.get_by_role("region", name="Plan as a graph")
        expect(graph.get_by_role("link", name="changelog: waiting")).to_be_attached()
        check_looks(page, "the graph", theme, size)
        graph.get_by_role("link", name="docs: waiting for you").press("Enter")
        expect(page.get_by_role("dialog", name="docs")).to_contain_text("Update the docs")
        page.context.close()


def check_looks(page: Page, at: str, theme: str, size: ViewportSize) -> None:
    wide = page.evaluate(TOO_WIDE)
    assert not wide, f"{at} is wider than the screen: {wide}"
    if size is PHONE:
        check_targets(page, at)
    else:
        check_accessible(page, *(("color-contrast",) if theme == "dark" else ()))


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


def test_the_fleet_says_what_is_true(stage: Stage, run: str, opened: Opened) -> None:
    """R-208, R-902: what waits for a person is shown at once."""
    page = opened(f"{stage.url}/")
    card = page.get_by_role("article", name=REQUEST)
    for name, words in {
        "survey": "finished", "parser": "waiting for you", "docs": "waiting for you", "bench": "working",
        "port-tests": "working", "changelog": "has not begun",
    }.items():  # fmt: skip
        expect(card.locator(".tile", has=page.get_by_text(name, exact=True))).to_contain_text(words)
    expect(card.locator(".tile", has_text="bench")).to_contain_text("new: 212 MB/s")
    expect(page.locator(".live")).to_contain_text("Live")


def test_what_agents_cost_and_may_use_is_shown(stage: Stage, run: str, opened: Opened) -> None:
    """R-903: of the fleet what it takes, each minute too, and of the account; of a run its cost over time."""
    page = opened(f"{stage.url}/")
    facts = page.locator("main .head .facts")
    expect(facts).to_contain_text(re.compile(r"\$1\.\d\d so far"))
    expect(facts).to_contain_text(re.compile(r"\d+ tokens"))
    expect(facts.locator(".quota")).to_contain_text("claude 5 h")
    expect(facts.locator(".quota")).to_contain_text("41 %")
    expect(page.get_by_role("article", name=REQUEST).locator(".tile", has_text="bench")).to_contain_text("$0.48")
    page.goto(f"{stage.url}/#/run/{run}")
    expect(page.get_by_role("img", name="Cost: $1.10")).to_be_visible()
    expect(page.get_by_role("img", name="Cost: $1.10")).to_contain_text("$1.10")


def test_versions_of_a_state_are_compared_with_a_slider(stage: Stage, run: str, opened: Opened) -> None:
    """R-902: every version of what an agent keeps, and what each changed."""
    page = opened(f"{stage.url}/#/agent/{run}.docs/state")
    slider = page.get_by_role("slider", name="Version 3 of 3")
    expect(page.locator(".change")).to_contain_text("docs/options.md")
    slider.fill("2")
    expect(page.get_by_role("heading", name="State at version 2")).to_be_visible()
    expect(page.locator(".halves pre.code")).to_contain_text('"sections": 3')
    expect(page.locator(".halves pre.code")).to_contain_text("docs/parser.md")
    expect(page.locator(".change pre.del")).to_have_text("4")
    page.get_by_role("slider").fill("1")
    expect(page.get_by_role("heading", name="Created")).to_be_visible()


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
    last = task("checked", {"write": ["part.txt", "the last part\n"]}, gates=[{"person": "Is the last part good?"}])
    run = stage.run("many", first, *parts, last, request="Thousands of parts")
    page = opened("about:blank")
    sizes: list[int] = []
    page.on("response", lambda each: sizes.append(_size(each)))
    page.goto(f"{stage.url}/")
    card = page.get_by_role("article", name="Thousands of parts")
    expect(card).to_contain_text("3,000 waiting")
    assert card.locator(".strip i").count() < 10  # a bar of groups instead of cells
    page.goto(f"{stage.url}/#/run/{run}")
    expect(page.locator(".timeline .names")).to_contain_text("part ×")
    assert page.locator(".timeline .names > a, .timeline .names > button").count() == 3
    page.goto(f"{stage.url}/#/run/{run}/tasks")
    expect(page.get_by_text("1–100 of 3,002")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("101–200 of 3,002")).to_be_visible()
    assert page.get_by_role("row").count() <= 101
    assert sum(sizes) < PAGE_BYTES_MAX
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1)
    page.goto(f"{stage.url}/#/run/{run}/review")  # what waits is found, however many tasks are before it
    expect(page.get_by_role("heading", name="checked")).to_be_visible()
    expect(page.locator("b", has_text="Is the last part good?")).to_be_visible()
    expect(page.locator(".diff-rows")).to_contain_text("the last part")
    page.goto(f"{stage.url}/#/run/{run}/review/part-02999")
    expect(page.get_by_role("heading", name="part-02999")).to_be_visible()
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
