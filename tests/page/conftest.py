"""The page in a real Chromium, against a real `maos serve` with real agents (see worker.py)."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

import maos
from maos.app import Maos
from maos.engine.recorder import Recorder
from maos.engine.streams import ATTEMPT
from maos.model.attempt import Attempt, attempt_id, stream
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import QuotaWindow
from maos.ops.access import Access
from tests.web.conftest import ServerProcess

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
CHROMIUM = ROOT / ".browser" / "chromium"
AXE = ROOT / ".browser" / "axe" / "axe.min.js"
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
REQUEST = "Replace the XML parser with a streaming one, port its tests and update the docs"
COST_USD = 1.10
PEER = f"acp:{sys.executable} {ROOT / 'tests/agents/acp/peer.py'}"
"""An agent that speaks the Agent Client Protocol: it executes steps, tells what it costs and takes messages."""
FLOWS = '''"""Workflows of the page's tests."""

import maos
from maos.workflows import signal


@maos.step
async def reserve(what: str) -> str:
    return f"{what} is reserved"


@maos.step
async def charge(what: str) -> str:
    raise ValueError(f"the card for {what} is refused")


@maos.workflow
async def order(what: str) -> str:
    return f"{await reserve(what)}, {await signal('approved')}"


@maos.workflow
async def refused(what: str) -> str:
    return await charge(what)
'''
WORKER = [sys.executable, "-P", str(Path(__file__).parent / "worker.py")]
ARGUMENTS = [
    "--no-sandbox", "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
WAIT_MS = 30_000
DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=390, height=844)
IDENTITY = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]

expect.set_options(timeout=WAIT_MS)


class Stage(ServerProcess):
    """A server in a repository of its own, with a folder of plan files that the page may start."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "shop"
        self.plans = folder / "plans"
        for each in (self.repository, self.plans, folder / "home/config/maos"):
            each.mkdir(parents=True)
        (folder / "home/config/maos/maos.toml").write_text(
            f"[orchestrate]\nkind = {json.dumps(PEER)}\n"
            f"[serve]\nplans = [{json.dumps(str(self.plans))}]\n[backup]\nto = {json.dumps(str(folder / 'backups'))}\n"
        )
        super().__init__(self.repository, folder / "home")
        self.environment["HOME"] = str(folder / "home")
        self.signals = folder / "signals"
        self.signals.mkdir()
        (self.repository / "src").mkdir()
        (self.repository / "src/parser.py").write_text("def parse(text):\n    return text.split()\n")
        (self.repository / "flows.py").write_text(FLOWS)
        (self.repository / ".gitignore").write_text("maos.db*\n__pycache__\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=first")
        self.token = ""

    def git(self, *arguments: str) -> str:
        """Run git in the repository; its output."""
        command = ["git", *IDENTITY, *arguments]
        return subprocess.run(command, cwd=self.repository, check=True, capture_output=True, text=True).stdout

    def begin(self) -> None:
        """Start the server, with a token for the tests."""
        self.start()
        self.token = self.with_access(lambda access: access.create_token("tests", "admin"))[1]

    def with_access(self, work: Callable[[Access], Awaitable[T]]) -> T:
        """Do something with the credentials of the database."""
        return self.with_maos(lambda m: work(m.access))

    def with_maos(self, work: Callable[[Maos], Awaitable[T]]) -> T:
        """Do something with the database; in a thread, because a browser's loop runs in this one."""

        async def done() -> T:
            async with maos.open(self.database) as m:
                return await work(m)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(done())).result()

    def api(self, method: str, path: str, **options: Any) -> Any:
        """A request to the API."""
        with self.client(self.token) as client:
            reply = client.request(method, f"/api/v1{path}", **options)
        assert reply.is_success, reply.text
        return reply.json()

    def cancel_runs(self) -> None:
        """Cancel every run that is not over, with the questions it asks."""
        for run in self.api("GET", "/runs?limit=500")["runs"]:
            if run["status"] in ("planning", "running"):
                self.api("POST", f"/runs/{run['id']}/cancel", json={})

    def plan(self, name: str, *tasks: dict[str, Any], **more: Any) -> str:
        """Write a plan file that the page may start; its name."""
        (self.plans / f"{name}.json").write_text(json.dumps({"tasks": tasks, **more}))
        return f"{name}.json"

    def run(self, name: str, *tasks: dict[str, Any], **more: Any) -> str:
        """Start a run of some tasks; its id."""
        found: str = self.api("POST", "/runs", json={"plan": self.plan(name, *tasks, **more)})["id"]
        return found

    def signal(self, name: str) -> str:
        """The path of a file that agents wait for."""
        return str(self.signals / name)

    def give(self, name: str) -> None:
        """Let agents that wait for a file continue."""
        (self.signals / name).touch()

    def sign_in_code(self, role: str = "admin", *on: str) -> str:
        """The code of a new sign-in link, of a role, and limited to something."""
        return self.with_access(lambda access: access.offer_sign_in(role, on=on))


def task(name: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task whose agent executes steps."""
    return {"name": name, "command": [*WORKER, json.dumps(steps)], "mcp": True, **more}


def peer_task(name: str, words: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task in words whose agent executes steps, as an agent with a model would."""
    return {"name": name, "task": f"{words}\n{json.dumps(steps)}", "kind": f"{PEER} --quiet", **more}


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The server that the tests of the page share; each starts runs of its own."""
    made = Stage(tmp_path_factory.mktemp("page"))
    made.begin()
    yield made
    made.cancel_runs()
    made.stop()


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
        peer_task("fixtures", "Collect the fixtures of the old tests",
                  {"write": ["tests/large.xml", "<a>\n  <b/>\n</a>\n"]}, {"say": "12 fixtures written"}, {"cost": 0.62},
                  needs=["survey"]),
        task("port-tests", {"send": ["docs", "The option strict is gone"]}, {"say": "porting tests/test_parser.py"},
             {"until": go}, needs=["fixtures"], task="Port the tests"),
        task("docs", {"say": "reading docs/parser.md"}, {"until": stage.signal("asks")},
             {"ask": {"question": "Shall the docs keep the section about the option strict?",
                      "choices": ["keep it, marked as removed", "remove it"], "wait_s": 600,
                      "context": "The new parser is always strict.\nTwo pages link to the section."}},
             needs=["survey"], task="Update the docs"),
        peer_task("bench", "Measure both parsers", {"say": "old: 41 MB/s, new: 212 MB/s\n"}, {"cost": 0.48},
                  {"until": go}, needs=["survey"]),
        task("changelog", needs=["port-tests", "docs", "parser"], task="Write the changelog entry"),
        task("announce", needs=["changelog", "bench"], task="Announce it"),
        request=REQUEST, concurrency=6,
    )  # fmt: skip
    for name, argument in (("order", "tea"), ("refused", "coffee")):
        stage.maos("workflow", "run", f"flows.py:{name}", argument, "--id", f"w-{name}", "--detach")
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{id}")["pending"]) == 1)
    stage.give("asks")  # second, so that what is shown has one order
    wait_until(stage, lambda: is_in_the_middle(stage, id))
    stage.with_maos(lambda m: remember(m, id))
    return id


async def remember(m: Maos, run: str) -> None:
    """Give an agent a state of three versions, and record what the provider of another one said of its account."""
    agent = f"{run}.docs"
    await m.state.create(agent, {"page": "docs/parser.md", "sections": 4})
    await m.state.update(agent, {"sections": 3})
    await m.state.update(agent, {"page": "docs/options.md"})
    begun = [each.event async for each in m.journal.read(stream(attempt_id(f"{run}.survey", 1)))]
    id = attempt_id("release-notes", 1)
    lease = await m.journal.acquire(stream(id))
    assert lease is not None
    recorder = Recorder(m.journal, ATTEMPT, Attempt(id=id), lease, lease_s=30.0)
    told = QuotaWindow("five_hour", 0.41, (begun[0].at_us // 1_000_000 + 7_200) * 1_000_000, "allowed")
    await recorder.append(
        replace(begun[0], agent="release-notes", number=1, agent_kind="claude", task="Write the notes"), begun[1],
        AttemptOutput(offset=0, at_us=begun[-1].at_us, facts=[told]), *begun[-2:],
    )  # fmt: skip
    await recorder.release()


def is_in_the_middle(stage: Stage, id: str) -> bool:
    run = stage.api("GET", f"/runs/{id}")
    agents = stage.api("GET", f"/agents?run={id}&open=true")["agents"]
    busy = {each["agent"].partition(".")[2] for each in agents if each["activity"]}
    return len(run["pending"]) == 2 and busy == {"port-tests", "docs", "bench"} and run["cost_usd"] > COST_USD - 0.01


def wait_until(stage: Stage, is_so: Callable[[], bool]) -> None:
    position = stage.api("GET", "/health")["position"]
    while not is_so():  # the time limit of the test ends it
        position = stage.api("GET", f"/events?after={position}&limit=500")["position"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium. Not for the whole session: while it lives, no other test of this process can run an event loop."""
    if not (CHROMIUM / "chrome").exists():
        pytest.fail("there is no browser: `make .browser/.ready` fetches it")
    os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(ROOT / ".venv-npm/bin/node"))
    home = tmp_path_factory.mktemp("browser")
    environment: dict[str, str | float | bool] = {
        "LD_LIBRARY_PATH": str(CHROMIUM / "lib"), "FONTCONFIG_FILE": str(CHROMIUM / "fonts.conf"), "HOME": str(home),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM / "chrome", env=environment, args=ARGUMENTS, timeout=WAIT_MS
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def session(stage: Stage, browser: Browser) -> Any:
    """The cookie of a browser that has signed in with a link, as a person does."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{stage.url}/sign-in?code={stage.sign_in_code()}")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


class Opened:
    """Pages that tests open; what goes wrong in one fails the test."""

    def __init__(self, browser: Browser, state: Any) -> None:
        self._browser = browser
        self._state = state
        self.contexts: list[BrowserContext] = []
        self.problems: list[str] = []

    def as_role(self, stage: Stage, role: str, *on: str) -> Page:
        """A page of a person who has signed in with a link of a role."""
        page = self(f"{stage.url}/sign-in?code={stage.sign_in_code(role, *on)}", signed_in=False)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("navigation", name="Views")).to_be_visible()
        return page

    def __call__(self, url: str, *, theme: Any = "light", size: ViewportSize = DESK, signed_in: bool = True) -> Page:
        context = self._browser.new_context(
            viewport=size,
            color_scheme=theme,
            reduced_motion="reduce",
            storage_state=self._state if signed_in else None,
            has_touch=size is PHONE,
        )
        context.set_default_timeout(WAIT_MS)
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.on("console", lambda said: self._note(page, said.type, said.text))
        page.goto(url)
        return page

    def _note(self, page: Page, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.problems.append(f"{page.url}: {text}")


@pytest.fixture
def opened(browser: Browser, session: Any) -> Iterator[Opened]:
    """Open pages, signed in; errors of scripts and violations of the content security policy fail the test."""
    made = Opened(browser, session)
    yield made
    for each in made.contexts:
        each.close()
    assert not made.problems


@pytest.fixture
def picture(request: pytest.FixtureRequest, golden: Callable[[str, str], None]) -> Callable[[str, Page], None]:
    """Compare the text of the page with that of a picture in docs/pictures; `make golden` takes it again."""
    update: bool = request.config.getoption("--update-golden")

    def compare(name: str, page: Page) -> None:
        path = ROOT / "docs/pictures" / f"{name}.png"
        if update:
            page.evaluate("document.fonts.ready")
            page.screenshot(path=path, animations="disabled")
        assert path.exists(), f"{path} is missing: `make golden` takes it"
        texts = [without_varying(each) for each in page.locator("main, .rail").all_inner_texts()]
        golden(f"page/{name}.txt", "\n".join(sorted("".join(texts).splitlines())) + "\n")

    return compare


VARYING = (
    (r"\d+\.\d s", "…"), (r"\b\d+ (?:s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?", "…"), (r"\b\d\d:\d\d(?::\d\d)?\b", "…"),
    (r"r-[0-9a-f]{6,}", "r-…"),
    (r"just now|… ago", "…"), (r"\b[0-9a-f]{8,40}\b", "…"), (r"process \d+|engine \d+ on \S+", "…"), (r"\S+@\S+", "…"),
    (r"\d{1,2} %", "…"), (r"events [\d,–]+ of [\d,]+", "events …"),
    (r"(?:\S+ )?(?:tokens )?a minute", "…"), (r"\bof \d+$", "of …"), (r"\d+ tokens", "… tokens"),
    (r"\S+, may do everything", "…, may do everything"),
)  # fmt: skip


def without_varying(text: str) -> str:
    """Text without times and ids."""
    for pattern, instead in VARYING:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line.strip(" …")) + "\n"


def check_accessible(page: Page, *rules: str) -> None:
    """No serious finding of axe, of all its rules or of some. It runs from outside of the page's content security
    policy."""
    if not page.evaluate("'axe' in window"):
        client = page.context.new_cdp_session(page)
        client.send("Page.setBypassCSP", {"enabled": True})
        page.evaluate(AXE.read_text())
    only = {"runOnly": list(rules)} if rules else {}
    found = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
    serious = [
        f"{each['id']}: {each['help']}: {[node['html'][:160] for node in each['nodes'][:4]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert not serious, f"{page.url}\n" + "\n".join(serious)
