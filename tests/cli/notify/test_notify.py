"""A person is told elsewhere when a run needs them or has ended: once, whatever dies in between."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.agent.conftest import Call, Start, wait_until
from tests.cli.notify.server import SECRET, Server
from tests.cli.orchestrate.conftest import Plan, begun, documents, waits

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise looks for it


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def nothing_secret_is_kept_or_shown(
    repository: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[None]:
    yield
    kept = b"".join(path.read_bytes() for path in repository.glob("maos.db*") if path.is_file())
    shown = b"".join(path.read_bytes() for path in tmp_path.glob("command-*/std*"))
    assert SECRET.encode() not in kept + shown
    assert SECRET not in "".join(capfd.readouterr())


def _notices(call: Call) -> list[tuple[str, dict[str, str]]]:
    return [(each["what"], each["addresses"]) for each in documents(call("notify", "list", "--json").stdout)]


def test_a_test_is_sent_to_every_address(call: Call, server: Server) -> None:
    server.statuses = [200, 403]
    other = server.url.replace("user:", "other:")
    done = call("notify", "test", other, "--json", MAOS_NOTIFY=server.url)
    assert done.returncode == 1
    found = json.loads(done.stdout)["addresses"]
    assert [(each["address"], each["sent"]) for each in found] == [("1 (json)", True), ("2 (json)", False)]
    assert "403" in found[1]["why"]
    assert SECRET not in done.stdout + done.stderr
    assert call("notify", "test", server.url).stdout == "address 1 (json)  sent\n"
    assert server.heard[-1]["message"].startswith("maos can send you notifications")


def test_an_address_that_makes_no_sense_is_named_without_being_shown(
    call: Call,
    plan: Plan,
    server: Server,
) -> None:
    """Before anything begins."""
    wrong = f"nosuch://user:{SECRET}@127.0.0.1"
    done = call("run", "-f", str(plan(a="true")), "--auto", "--notify", server.url, "--notify", wrong)
    assert done.returncode == 2
    assert "address 2 (nosuch) for notifications is not one that apprise knows" in done.stderr
    assert SECRET not in done.stderr
    assert not Path("maos.db").exists()
    assert call("notify", "test").returncode == 2


def test_without_the_extra_it_says_what_to_install(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    done = call("notify", "test", "json://127.0.0.1")
    assert done.returncode == 3
    assert "pip install 'maos[notify]'" in done.stderr


def test_a_question_and_the_end_are_told(
    repository: Path, plan: Plan, start: Start, call: Call, server: Server
) -> None:
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    engine = start("run", "-f", str(plan(a=gated)), "--auto", "--notify", server.url)
    wait_until(lambda: server.heard)
    assert server.heard[0]["message"].startswith("Is it good?\nyes | no\nmaos answer r-")
    command = server.heard[0]["message"].splitlines()[-1].split()[1:-1]
    assert call(*command, "yes").returncode == 0
    assert engine.end() == 0
    assert server.titles() == ["a check asks you", "completed, 1 of 1 tasks done"]
    assert "http" not in "".join(each["message"] for each in server.heard)  # no page is known
    assert _notices(call) == [("question", {"1 (json)": "sent"}), ("completed", {"1 (json)": "sent"})]


def test_a_link_opens_the_question_on_the_page(
    repository: Path, plan: Plan, start: Start, call: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAOS_SERVE_URL", "https://maos.example.org/")
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    engine = start("run", "-f", str(plan(a=gated)), "--auto", "--notify", server.url)
    wait_until(lambda: server.heard)
    *_words, command, link = server.heard[0]["message"].splitlines()
    ref = command.split()[2]
    assert link == f"https://maos.example.org/#/inbox/{ref}"
    assert call("answer", ref, "yes").returncode == 0
    assert engine.end() == 0
    assert server.heard[-1]["message"].splitlines()[-1] == f"https://maos.example.org/#/run/{ref.partition('/')[0]}"


def test_a_failure_and_a_limit_are_told(repository: Path, plan: Plan, call: Call, server: Server) -> None:
    told = ("--auto", "--notify", server.url)
    assert call("run", "-f", str(plan(a="exit 3")), *told).returncode == 1
    late = plan(a=waits(repository, "a"))
    assert call("run", "-f", str(late), *told, "--run-time", "1s").returncode == 7
    assert server.titles() == ["failed, 0 of 1 tasks done", "paused: the time limit of 1 s is reached"]


def test_ctrl_c_is_told_to_nobody(repository: Path, plan: Plan, start: Start, server: Server) -> None:
    engine = start("run", "-f", str(plan(a=waits(repository, "a"))), "--auto", "--notify", server.url)
    wait_until(lambda: begun(repository, "a"))
    engine.signal(signal.SIGINT)
    assert engine.end() == 130
    assert server.heard == []


def test_a_server_that_fails_is_asked_again_and_no_run_waits_for_it(
    repository: Path,
    plan: Plan,
    start: Start,
    call: Call,
    server: Server,
) -> None:
    server.statuses = [500]
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    path = plan(a=gated, b="echo 1 > b.txt", c=("cat b.txt", "b"), d=waits(repository, "d"))
    engine = start("run", "-f", str(path), "--auto", "--notify", server.url)
    engine.wait_for("c  ✓ done")
    wait_until(lambda: len(server.heard) == 2)
    assert [each["status"] for each in server.heard] == [500, 200]
    assert "not sent to address 1 (json): maos r-" in engine.stdout
    wait_until(lambda: _notices(call) == [("question", {"1 (json)": "sent"})])  # the engine records it after the reply
    engine.signal(signal.SIGINT)
    assert engine.end() == 130


def test_a_server_that_never_works_is_given_up_and_said(
    repository: Path,
    plan: Plan,
    call: Call,
    server: Server,
) -> None:
    server.statuses = [500] * 10
    done = call("run", "-f", str(plan(a="true")), "--auto", "--notify", server.url, "--json")
    assert done.returncode == 0
    warned = [each["text"] for each in documents(done.stdout) if each["kind"] == "warning"]
    assert "not sent to address 1 (json): maos r-" in warned[-1]
    assert "500" in warned[-1]
    assert _notices(call) == [("completed", {"1 (json)": "failed"})]


@pytest.mark.parametrize(("point", "sent"), [("notify:before", 0), ("notify:after", 1)])
def test_what_was_under_way_in_a_crash_is_unknown_and_not_sent_again(
    repository: Path,
    plan: Plan,
    start: Start,
    call: Call,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    sent: int,
) -> None:
    """Killed before or after it was sent: nobody can tell, so nobody is told twice."""
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    with monkeypatch.context() as patch:
        patch.setenv("MAOS_CRASH_AT", "1")
        patch.setenv("MAOS_CRASH_ONLY", point)
        engine = start("run", "-f", str(plan(a=gated)), "--auto", "--notify", server.url)
        assert engine.end() == -signal.SIGKILL
    assert len(server.heard) == sent
    assert _notices(call) == [("question", {"1 (json)": "unknown"})]
    again = start("resume", "--notify", server.url)
    again.wait_for("unknown whether this was sent to address 1 (json): maos r-")
    run = again.stdout.split()[0] if again.stdout.startswith("r-") else again.stdout.partition("maos r-")[2][:6]
    assert call("answer", f"r-{run.removeprefix('r-')[:6]}/gate", "yes").returncode == 0
    assert again.end() == 0
    assert [title for title in server.titles() if "asks you" in title] == ["a check asks you"] * sent
    assert _notices(call)[0] == ("question", {"1 (json)": "unknown"})
    assert _notices(call)[1] == ("completed", {"1 (json)": "sent"})


def test_a_question_that_was_asked_before_anybody_could_be_told_is_told_on_resuming(
    repository: Path,
    plan: Plan,
    start: Start,
    call: Call,
    server: Server,
) -> None:
    gated = {"command": ["true"], "gates": [{"person": "Is it good?"}]}
    engine = start("run", "-f", str(plan(a=gated)), "--auto")
    engine.wait_for("? Is it good?")
    engine.kill()
    again = start("resume", "--notify", server.url)
    wait_until(lambda: server.heard)
    assert server.titles() == ["a check asks you"]
    again.signal(signal.SIGINT)
    assert again.end() == 130
