"""The client, with and without asyncio, and the commands that use it when MAOS_URL is set."""

import json
import subprocess

import pytest

import maos
from maos.web.client import Client
from maos.web.documents import RunEntry
from tests.web.conftest import MAOS, ServerProcess


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
    local = remote(server, tokens["viewer"], "state", "list")
    assert local.returncode == 2
    assert "needs the database itself" in local.stderr
    started = remote(server, tokens["operator"], "run", "--detach", "--kind", "shell", "do it")
    assert started.returncode == 2
    assert "kind" in started.stderr


def test_the_unit_for_systemd_names_this_program_folder_and_database(server: ServerProcess) -> None:
    unit = server.maos("serve", "--print-systemd").stdout
    assert f"WorkingDirectory={server.folder}" in unit
    assert f"ExecStart={MAOS[0]} -P -m maos --db {server.database} serve" in unit
    assert "KillMode=process" in unit
    assert "maos_" not in unit
