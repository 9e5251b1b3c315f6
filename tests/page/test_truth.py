"""The page loses no line when the server is killed, shows hostile output as text, and no other page can use it."""

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Opened, Stage, task, wait_until
from tests.page.test_steering import at_version

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "javascript:alert(1) [click](javascript:alert(2)) ![](http://evil.example/pixel.png)",
    "</span></div><iframe srcdoc='<script>parent.hacked = 3</script>'></iframe>",
    "\u202etxt.exe\u202c {{constructor.constructor('window.hacked = 4')()}} ${window.hacked = 5}",
]


def test_every_line_is_shown_once_when_the_server_is_killed(stage: Stage, opened: Opened) -> None:
    more, last = stage.signal("more"), stage.signal("last")
    steps = [{"say": f"before {n:03}"} for n in range(40)], [{"say": f"during {n:03}"} for n in range(40)]
    run = stage.run(
        "killed", task("printer", *steps[0], {"until": more}, *steps[1], {"until": last}, {"say": "the end"})
    )
    page = opened(f"{stage.url}/#/agent/{run}.printer")
    expect(page.locator(".line", has_text="before 039")).to_be_visible()
    port = int(stage.url.rpartition(":")[2])
    stage.kill()
    expect(page.get_by_role("alert")).to_contain_text("Not connected")
    stage.give("more")  # the agent goes on without a server
    stage.start(port=port)
    expect(page.locator(".line", has_text="during 039")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    stage.give("last")
    expect(page.locator(".line", has_text="the end")).to_be_visible()
    shown = [text for text in page.locator(".line .said").all_text_contents() if text[:6] in ("before", "during")]
    assert shown == [each["say"] for part in steps for each in part]


def test_hostile_output_is_text_everywhere(stage: Stage, opened: Opened) -> None:
    request = f"{HOSTILE[0]} {HOSTILE[1]}"
    go = stage.signal("hostile")
    run = stage.run(
        "hostile",
        task("evil", *({"say": each} for each in HOSTILE), {"write": ["x.html", "\n".join(HOSTILE)]},
             {"send": ["other", HOSTILE[1]]}, {"found": HOSTILE[4]},
             {"ask": {"question": HOSTILE[0], "choices": HOSTILE[:2], "context": "\n".join(HOSTILE)}}),
        task("other", {"long": 50 << 20}, {"say": "after the long line"}, {"until": go}),
        request=request,
    )  # fmt: skip
    wait_until(stage, lambda: len(stage.api("GET", f"/runs/{run}")["pending"]) == 1)
    page = opened(f"{stage.url}/")
    asked: list[str] = []
    page.on("request", lambda each: asked.append(each.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    page.goto(f"{stage.url}/#/agent/{run}.evil")
    for each in HOSTILE:
        expect(page.get_by_text(each.partition("\x1b")[0] or "red", exact=False).first).to_be_attached()
    wait_until(stage, lambda: stage.api("GET", f"/agents/{run}.other")["activity"] == "after the long line")
    ref = stage.api("GET", f"/runs/{run}")["pending"][0]["ref"]
    for at in (
        "",
        f"run/{run}",
        f"run/{run}/tasks",
        f"run/{run}/messages",
        f"run/{run}/time",
        f"inbox/{ref}",
        "messages",
    ):
        page.goto(f"{stage.url}/#/{at}")
        expect(page.locator("main .loading")).to_have_count(0)
        expect(
            page.get_by_text("<script>", exact=False).or_(page.get_by_text("onerror", exact=False)).first
        ).to_be_attached()
    page.goto(f"{stage.url}/#/agent/{run}.other")
    expect(page.get_by_text("after the long line").first).to_be_visible()
    expect(page.get_by_text("more characters").first).to_be_visible()
    assert page.evaluate("document.querySelector('.output').textContent.length") < 30_000
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.querySelectorAll('main script, main iframe, main img').length") == 0
    assert not [each for each in asked if not each.startswith(stage.url)]
    stage.give("hostile")
    stage.api("POST", f"/runs/{run}/cancel", json={})


ATTACK = """<!doctype html><title>evil</title><script>
const target = TARGET;
window.results = {};
const attempt = async (name, work) => {
  try { results[name] = await work(); } catch (error) { results[name] = "refused"; }
};
(async () => {
  await attempt("read", async () => (await fetch(target + "/api/v1/overview", {credentials: "include"})).text());
  await attempt("blind", async () => (await fetch(target + "/api/v1/overview",
    {credentials: "include", mode: "no-cors"})).type);
  await attempt("post", async () => (await fetch(target + "/api/v1/runs/RUN/cancel",
    {method: "POST", credentials: "include", mode: "no-cors", body: "{}"})).type);
  await attempt("json", async () => (await fetch(target + "/api/v1/runs/RUN/cancel",
    {method: "POST", credentials: "include", headers: {"Content-Type": "application/json"}, body: "{}"})).status);
  await attempt("stream", () => new Promise((resolve, reject) => {
    const source = new EventSource(target + "/api/v1/stream?after=0", {withCredentials: true});
    source.addEventListener("recorded", () => resolve("leaked"));
    source.onerror = () => { source.close(); reject(); };
  }));
  await attempt("frame", () => new Promise((resolve, reject) => {
    const frame = document.createElement("iframe");
    frame.onload = () => resolve("loaded");
    frame.src = target + "/"; document.body.append(frame);
  }));
  const form = document.createElement("form");
  form.method = "POST"; form.action = target + "/api/v1/runs/RUN/cancel";
  form.enctype = "text/plain";
  form.target = "gone";
  const sink = document.createElement("iframe"); sink.name = "gone"; sink.onload = () => { window.done = true; };
  document.body.append(sink, form); form.submit();
})();
</script><body></body>"""


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """A server of pages of another origin."""
    pages: dict[str, str] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield pages, server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_can_neither_read_nor_act(
    stage: Stage, opened: Opened, elsewhere: Any, host: str
) -> None:
    pages, port = elsewhere
    run = stage.run("victim", task("works", {"say": "at work"}, {"until": stage.signal(f"victim-{host}")}))
    pages["/evil"] = ATTACK.replace("TARGET", f'"{stage.url}"').replace("RUN", run)
    page = opened(f"{stage.url}/")
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()  # signed in, in the same browser
    problems = len(opened.problems)
    evil = page.context.new_page()
    evil.goto(f"http://{host}:{port}/evil")
    evil.wait_for_function("window.done === true")
    results = evil.evaluate("window.results")
    del opened.problems[problems:]  # what the other page is refused with
    assert {name: results[name] for name in ("read", "json", "stream")} == dict.fromkeys(
        ("read", "json", "stream"), "refused"
    )
    assert all(not frame.url.startswith(stage.url) for frame in evil.frames)
    state = stage.api("GET", f"/runs/{run}")
    assert state["status"] == "running"
    assert state["state"] == "working"
    stage.give(f"victim-{host}")


def test_without_a_session_the_page_shows_nothing(stage: Stage, opened: Opened) -> None:
    page = opened(f"{stage.url}/", signed_in=False)
    expect(page.get_by_role("alert")).to_contain_text("No credential was sent")
    assert page.locator("article, .tile, table").count() == 0


SECRET = "ghp_" + "aB3dE5gH7j" * 3 + "k9mN2p"
INJECTED = """
<script>window.hacked = 2</script>
<script type="module">window.hacked = 3</script>
<script src="data:text/javascript,window.hacked=4"></script>
<script type="module" src="data:text/javascript,window.hacked=5"></script>
<img src="data:image/png,none" onerror="window.hacked = 6">
"""
"""What would run in a report if a text of it became an element."""


def test_a_report_opens_from_disk_and_reaches_no_network(stage: Stage, opened: Opened) -> None:
    run = stage.run(
        "reported",
        task("write", {"say": "</script><script>window.hacked = 1</script>"}, {"leak": ["report.txt", SECRET[::-1]]}),
        request="Write <b>two</b> lines",
    )
    wait_until(stage, lambda: stage.api("GET", f"/runs/{run}")["status"] == "completed")
    made = stage.maos("report", run, "-o", "report.html")
    assert "wrote report.html" in made.stdout, made.stderr
    asked: list[str] = []
    page = opened("about:blank", signed_in=False)
    page.on("request", lambda each: asked.append(each.url))
    page.goto((stage.repository / "report.html").as_uri())
    expect(page.get_by_role("heading", name="Write <b>two</b> lines")).to_be_visible()
    expect(page.locator(".timeline .names")).to_contain_text("write")
    page.get_by_role("link", name="Review").click()
    expect(page.locator(".diff-rows")).to_contain_text("two")
    page.get_by_role("link", name="Time").click()
    at_version(page, 2)
    page.goto(f"{(stage.repository / 'report.html').as_uri()}#/agent/{run}.write")
    expect(page.locator(".line", has_text="</script><script>")).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert page.get_by_role("button", name="Cancel").count() == 0
    assert [each for each in asked if not each.startswith(("file:", "data:"))] == []

    text = (stage.repository / "report.html").read_text()
    assert SECRET not in text
    assert "the token is [redacted" in text
    assert "'unsafe-inline'" not in text.partition("script-src")[2].partition(";")[0]
    (stage.repository / "injected.html").write_text(text.replace("<body>", f"<body>{INJECTED}"))
    hostile = page.context.new_page()  # its violations of the policy are expected
    hostile.goto((stage.repository / "injected.html").as_uri())
    expect(hostile.get_by_role("heading", name="Write <b>two</b> lines")).to_be_visible()
    assert hostile.evaluate("window.hacked") is None
