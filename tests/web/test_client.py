"""The client, with and without asyncio, and the commands that use it when MAOS_URL is set."""

import asyncio
import inspect
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from click.testing import CliRunner, Result

import maos
from maos.cli.program import program
from maos.web.api import API, Endpoint
from maos.web.client import Client
from maos.web.documents import RunEntry
from maos.web.endpoints.table import ENDPOINTS
from tests.web.conftest import MAOS, ServerProcess, write_plan
from tests.workspaces.repositories import repository

FLOW = """
import maos
from maos.workflows import signal

@maos.workflow
async def wait_for_word() -> str:
    return await signal("word")
"""


async def test_the_client_reads_typed_documents_and_raises_the_errors_of_maos(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    async with maos.Client(server.url, token=tokens["viewer"]) as client:
        runs = await client.runs(status="completed")
        assert isinstance(runs.runs[0], RunEntry)
        assert [each.id for each in runs.runs] == ["r-done"]
        assert (await client.run("r-done")).progress == 100
        assert [each.name for each in (await client.tasks("r-done")).tasks] == ["hello"]
        output = await client.output("r-done.hello", limit=10)
        assert any("<script>" in str(each.data) for each in output.events)
        assert (await client.output("r-done.hello", after=0, limit=1)).first == 1  # 0 is a version like any other
        assert [each.type async for each in _first(client, 2)] == ["instance_created", "status_changed"]
        with pytest.raises(maos.NotFound, match="there is no run"):
            await client.run("r-none")
        with pytest.raises(maos.NotPermitted, match="may not stop"):
            await client.pause("r-done")
        assert (await client.statistics()).agents[0].kind == "shell"
    async with maos.Client(server.url, token=tokens["operator"]) as client:
        with pytest.raises(maos.InvalidInput, match="completed"):
            await client.resume("r-done")
        with pytest.raises(maos.Conflict, match="expected 1"):
            await client.cancel("r-done", expected=1)
    async with maos.Client(server.url, token="maos_wrong") as client:
        with pytest.raises(maos.NotPermitted):
            await client.overview()


BY_HAND = {
    "cancelRun": "`cancel` sends it, or that of a task",
    "stream": "`follow` reads it, and connects again",
    "openSession": "it is for browsers: a program has a token",
}
"""Endpoints that no method of the client declares, and why."""
OTHERWISE = {"expected", "key"}
"""Parameters that are headers."""


def declared() -> dict[tuple[str, str], Any]:
    """The methods of the client that are declared, by what they send."""
    found = [each for each in vars(Client).values() if hasattr(each, "form")]
    return {(each.form.method, normal(each.form.path)): each for each in found}


def normal(path: str) -> str:
    """A path with other names of its parameters."""
    return re.sub(r"\{\w+", "{", path.removeprefix(f"{API}/"))


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.name not in BY_HAND], ids=lambda it: it.name)
def test_every_endpoint_has_a_method_with_its_parameters_and_types(endpoint: Endpoint) -> None:
    method = declared().get((endpoint.method, normal(endpoint.path)))
    assert method is not None, f"no method of the client sends {endpoint.name}"
    assert (get_type_hints(method)["return"], method.form.body) == (endpoint.result, endpoint.body)
    taken = inspect.signature(method).parameters
    in_path = set(re.findall(r"\{(\w+)", method.form.path))
    names = set(taken) - in_path - OTHERWISE - {"self"}
    fields = endpoint.body or endpoint.query
    expected = set(fields.__struct_fields__) if fields is not None else set()
    if "options" in names:  # all others
        assert names - {"options"} < expected
    else:
        assert names == expected
    assert len(in_path) == endpoint.path.count("{")


def test_the_client_declares_nothing_else_and_what_is_left_out_is_known() -> None:
    sent = {(each.method, normal(each.path)) for each in ENDPOINTS}
    assert declared().keys() <= sent
    assert BY_HAND.keys() <= {each.name for each in ENDPOINTS}


async def test_every_reading_method_decodes_what_the_server_sends(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    named = {"id": "r-done", "task": "hello", "name": "r-done.hello", "agent": "r-done.hello", "first": 1, "second": 2,
             "principal": "token:the-viewer", "verb": "read"}  # fmt: skip
    left_out = {"workflow", "backups", "agent_diff", "diff", "task_files"}  # there is none, or it has no worktree
    async with maos.Client(server.url, token=tokens["admin"]) as client:
        for (method, path), each in declared().items():
            if method != "GET" or each.__name__ in left_out:
                continue
            required = [
                parameter.name
                for parameter in inspect.signature(each).parameters.values()
                if parameter.default is parameter.empty and parameter.name != "self"
            ]
            given = {name: named[name] for name in required} | ({"agent": "reviewer"} if "state/" in path else {})
            found = await getattr(client, each.__name__)(**given)
            assert isinstance(found, get_type_hints(each)["return"])
        with pytest.raises(maos.NotFound):
            await client.workflow("w-none")
        assert (await client.state("reviewer", version=1)).data == {"status": "idle"}
        assert [each.path for each in (await client.state_diff("reviewer", 1, 2)).changes] == ["/status"]
        assert [each.version for each in (await client.state_versions("reviewer")).versions] == [1, 2]


async def _first(client: Client, count: int) -> object:
    async for event in client.follow(after=0, agent="reviewer"):
        yield event
        count -= 1
        if not count:
            return


def test_the_client_works_without_asyncio(server: ServerProcess, tokens: dict[str, str]) -> None:
    with maos.Client.connect(server.url, token=tokens["viewer"]) as client:
        assert [each.id for each in client.runs().runs] == ["r-done"]
        for event in client.follow(after=0):
            assert event.position == 1
            break
        with pytest.raises(maos.NotFound):
            client.agent("nobody")


def test_a_token_is_not_sent_in_the_clear_or_to_what_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAOS_URL", raising=False)
    monkeypatch.delenv("MAOS_TOKEN", raising=False)
    for url in ("http://maos.example.org", "ftp://127.0.0.1", "127.0.0.1:6267", "", "http://user:pw@127.0.0.1"):
        with pytest.raises(maos.InvalidInput):
            Client(url, token="maos_x")
    with pytest.raises(maos.InvalidInput, match="no token"):
        Client("http://127.0.0.1:1")
    for wrong in ("…", "maos_a\nHost: elsewhere"):
        with pytest.raises(maos.InvalidInput, match="that is no token"):
            Client("http://127.0.0.1:1", token=wrong)


async def test_a_server_that_is_away_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maos.web.client.PAUSE_S", 0.01)
    async with maos.Client("http://127.0.0.1:1", token="maos_x") as client:
        with pytest.raises(maos.StoreUnavailable, match="cannot be reached") as error:
            await client.overview()
    assert error.value.written is False


def remote(server: ServerProcess, token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of maos that has an address and a token, and no database."""
    return server.maos(*arguments, environment={"MAOS_URL": server.url, "MAOS_TOKEN": token})


def test_commands_use_the_server_that_maos_url_names(server: ServerProcess, tokens: dict[str, str]) -> None:
    listed = remote(server, tokens["viewer"], "ps", "--json")
    assert [each["id"] for each in json.loads(listed.stdout)["runs"]] == ["r-done"], listed.stderr
    assert "r-done" in remote(server, tokens["viewer"], "status", "done").stdout
    assert remote(server, tokens["viewer"], "inbox").stdout == "no open questions\n"
    assert "alert(1)" in remote(server, tokens["viewer"], "logs", "r-done/hello").stdout
    assert "shell" in remote(server, tokens["viewer"], "stats").stdout
    refused = remote(server, tokens["viewer"], "cancel", "r-done")
    assert refused.returncode == 2
    assert "may not stop" in refused.stderr
    local = remote(server, tokens["viewer"], "state", "verify", "reviewer")
    assert local.returncode == 2
    assert "needs the database itself" in local.stderr
    assert "state list|show|history" in local.stderr
    option = remote(server, tokens["viewer"], "agent", "list", "--all")
    assert option.returncode == 2
    assert "--all needs the database itself" in option.stderr
    started = remote(server, tokens["operator"], "run", "--detach", "--kind", "shell", "do it")
    assert started.returncode == 2
    assert "kind" in started.stderr


SAME = [
    ("state", "list"), ("state", "list", "--json"), ("state", "list", "--prefix", "none"),
    ("state", "show", "reviewer"), ("state", "show", "reviewer", "--json"),
    ("state", "show", "reviewer", "--path", "/status"),
    ("state", "history", "reviewer"), ("state", "history", "reviewer", "--last", "1"),
    ("state", "history", "reviewer", "--json"),
    ("agent", "logs", "r-done.hello"), ("agent", "logs", "r-done.hello", "-n", "1"), ("logs", "done/hello"),
    ("agent", "logs", "r-done.hello", "-f"),
    ("diff", "r-done"), ("diff", "r-done", "--from", "2"), ("message", "list"), ("message", "list", "--json"),
    ("workflow", "list"), ("workflow", "show", "w-none"), ("fork", "r-done", "--dry-run"),
    ("rollback", "r-done", "--to", "2", "--dry-run"), ("agent", "stop", "r-done.hello"), ("agent", "show", "none"),
]  # fmt: skip


@pytest.fixture(scope="module")
def told(server: ServerProcess) -> None:
    """A message between agents."""

    async def sent() -> None:
        async with maos.open(server.database) as m:
            await m.bus.send("person", "reviewer", "Look again\nand again")

    asyncio.run(sent())


@pytest.mark.parametrize("command", SAME, ids=" ".join)
def test_a_command_prints_of_a_server_what_it_prints_of_its_database(
    server: ServerProcess, tokens: dict[str, str], told: None, command: tuple[str, ...]
) -> None:
    ours = invoke("--db", str(server.database), *command)
    theirs = invoke(*command, MAOS_URL=server.url, MAOS_TOKEN=tokens["operator"])
    assert (theirs.exit_code, theirs.stdout) == (ours.exit_code, ours.stdout), theirs.stderr
    assert theirs.stdout or theirs.exit_code


def invoke(*arguments: str, **environment: str) -> Result:
    """A command in this process; what is not an expected failure is raised."""
    found = CliRunner(env={"MAOS_URL": None, **environment}).invoke(program, arguments, prog_name="maos")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_runs_are_steered_from_afar(new_server: Callable[[], ServerProcess], tmp_path: Path) -> None:
    """In a repository of its own: look at it, send a message, merge, roll back, fork, signal a workflow run."""
    server = new_server()
    server.folder.rmdir()
    repository(server.folder, {"readme.txt": "hello\n"})
    (server.folder / "flow.py").write_text(FLOW)
    change = ["sh", "-c", "echo fixed > fixed.txt"]
    write_plan(server.folder, {"name": "fix", "command": change}, {"name": "wait", "command": ["sleep", "600"]})
    server.start("flow.py")
    token = server.tokens()["operator"]

    def maos_(*arguments: str, code: int = 0) -> str:
        done = invoke(*arguments, MAOS_URL=server.url, MAOS_TOKEN=token)
        assert done.exit_code == code, (arguments, done.output)
        return done.output

    handed = server.maos("run", "--detach", "-f", "plan.json", "--auto", "--json")
    id = json.loads(handed.stdout.splitlines()[-1])["run"]
    server.maos("workflow", "run", "--detach", "flow.py:wait_for_word", "--id", "w-1")
    server.wait_for_run(id, lambda run: run.tasks["fix"].status == "done" and run.tasks["wait"].status == "running")
    assert f"{id}.wait" in maos_("agent", "list")
    assert "running" in maos_("agent", "show", f"{id}/wait")
    assert "started without input" in maos_("message", "send", f"{id}.wait", "Take your time", code=2)
    server.maos("agent", "run", "--detach", "--name", "listener", "--input", "--in-place", "--", "cat")
    assert "message 1 for listener; delivered as soon" in maos_("message", "send", "listener", "hello")
    assert "message 2 for listener" in maos_("agent", "send", "listener", "hello again")
    assert "listener" in maos_("agent", "stop", "listener")
    assert "hello again" in maos_("agent", "logs", "listener", "-f")
    maos_("agent", "stop", f"{id}.wait")
    server.wait_for_run(id, lambda run: not run.is_open)
    assert "fixed.txt" in maos_("diff", id, "--stat")
    assert "+fixed" in maos_("diff", id, "--patch")
    assert maos_("diff", f"{id}/fix", "--name-only") == "fixed.txt\n"
    assert "would be merged as 1 commit" in maos_("merge", id, "--dry-run")
    assert "1 file" in maos_("merge", id)
    assert (server.folder / "fixed.txt").read_text() == "fixed\n"
    assert "nothing to merge" in maos_("merge", id)
    assert "the work of a run is merged" in maos_("merge", f"{id}.fix", code=2)
    assert "no person can be asked" in maos_("rollback", id, "--to", "2", code=2)
    assert "is now at version" in maos_("rollback", id, "--to", "2", "--yes")
    assert "r-again starts with the state of" in maos_("fork", id, "--id", "r-again")
    assert "word" in maos_("workflow", "show", "w-1")
    assert "sent 'word'" in maos_("workflow", "signal", "w-1", "word", '"hello"')
    for _ in range(600):
        if "result:" in (shown := maos_("workflow", "show", "w-1")):
            break
        time.sleep(0.05)
    assert 'result: "hello"' in shown
    assert "w-1" in maos_("workflow", "list")


def test_the_unit_for_systemd_names_this_program_folder_and_database(server: ServerProcess) -> None:
    unit = server.maos("serve", "--print-systemd").stdout
    assert f"WorkingDirectory={server.folder}" in unit
    assert f"ExecStart={MAOS[0]} -P -m maos --db {server.database} serve" in unit
    assert "KillMode=process" in unit
    assert "maos_" not in unit
