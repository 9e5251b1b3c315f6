"""Where settings come from, which one counts, and what is said about wrong ones (R-1007, R-1009)."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maos.settings import DatabaseName, SettingsSource, find_files, loader, schema
from maos.settings.loader import BadSettings, check
from maos.settings.positions import find_positions
from maos.settings.schema import Settings
from tests.settings.conftest import Files, Refused


def test_without_any_file_the_defaults_of_the_documents_count(files: Files) -> None:
    """R-1009."""
    values = files.current().values
    assert values == Settings()
    assert str(values.database.path) == "maos.db"
    assert values.engine.lease_s == 30
    assert values.checkpoint.interval_s == 120
    assert (values.checkpoint.enabled, values.checkpoint.frequency) == (True, "every_step")
    assert values.discovery.keywords == ("discovery:", "found:", "result:", "error:")
    assert values.recovery.lookback_days == 0, "here it is unlimited"


def test_the_project_outweighs_the_user_and_variables_outweigh_both(files: Files) -> None:
    files.user.write_text("[checkpoint]\ninterval_s = 10\nsteps = 2\n[agent]\nsilence_s = 5\n")
    files.project.write_text("version = 1\n\n[checkpoint]\ninterval_s = 20\nenabled = false\n")
    loaded = files.current(MAOS_CHECKPOINT_ENABLED="yes").loaded
    assert loaded.values.checkpoint.interval_s == 20
    assert loaded.values.checkpoint.steps == 2
    assert loaded.values.checkpoint.enabled
    assert loaded.values.agent.silence_s == 5
    assert loaded.origins == {
        "checkpoint.interval_s": ("file", f"{files.project}:4"),
        "checkpoint.enabled": ("variable", "MAOS_CHECKPOINT_ENABLED"),
        "checkpoint.steps": ("file", f"{files.user}:3"),
        "agent.silence_s": ("file", f"{files.user}:5"),
    }


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("MAOS_CHECKPOINT_INTERVAL", "7", "checkpoint.interval_s", 7.0),
        ("MAOS_CHECKPOINT_ENABLED", "off", "checkpoint.enabled", False),
        ("MAOS_CHECKPOINT_FREQUENCY", "on_gates", "checkpoint.frequency", "on_gates"),
        ("MAOS_DISCOVERY_KEYWORDS", "bug: idea:", "discovery.keywords", ["bug:", "idea:"]),
        ("MAOS_NOTIFY", "json://a json://b", "notify.urls", ["json://a", "json://b"]),
        ("MAOS_DB", "other.db", "database.path", "other.db"),
        ("MAOS_ORCHESTRATE_CONCURRENCY", "9", "orchestrate.concurrency", 9),
    ],
)
def test_a_variable_says_a_setting(files: Files, variable: str, text: str, name: str, value: Any) -> None:
    assert (
        list(schema.value_of(files.current(**{variable: text}).values, name)) == list(value)
        if isinstance(value, list)
        else schema.value_of(files.current(**{variable: text}).values, name) == value
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MAOS_CHECKPOINT_INTERVAL", "often"),
        ("MAOS_CHECKPOINT_INTERVAL", "nan"),
        ("MAOS_CHECKPOINT_ENABLED", "maybe"),
        ("MAOS_ORCHESTRATE_CONCURRENCY", "3.5"),
        ("MAOS_CHECKPOINT_FREQUENCY", "daily"),
    ],
)
def test_a_wrong_variable_is_named_with_what_it_can_be(files: Files, variable: str, text: str) -> None:
    with pytest.raises(BadSettings, match=f"^{variable}: cannot be '{text}' .it can be "):
        files.current(**{variable: text})


def test_a_variable_that_nobody_knows_is_noted_when_it_looks_like_one(files: Files) -> None:
    loaded = files.current(MAOS_CHECKPOINT_INTERVL="3", MAOS_HOME="/x", MAOS_FOO="1").loaded
    assert loaded.notes == ["MAOS_CHECKPOINT_INTERVL is not a variable of maos; did you mean MAOS_CHECKPOINT_INTERVAL?"]


def test_a_path_counts_from_the_folder_of_the_file_that_says_it(files: Files) -> None:
    files.project.write_text('database = {path = "data/maos.db"}')
    assert str(files.current().values.database.path) == str(files.project.parent / "data" / "maos.db")
    files.project.write_text('database.path = ":memory:"')
    assert str(files.current().values.database.path) == ":memory:"


# --- what is wrong, and where ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[checkpoint]\ninterval_s = 0.5", "2:14: checkpoint.interval_s is 0.5 (it can be a number from 1 to 86_400)"),
        ('[checkpoint]\nenabled = "yes"', "2:11: checkpoint.enabled is 'yes' (it can be true or false)"),
        ("checkpoint.steps = '7'", "1:20: checkpoint.steps is '7' (it can be a whole number from 1 to 10_000)"),
        ("checkpoint.steps = 1.5", "1:20: checkpoint.steps is 1.5 (it can be a whole number from 1 to 10_000)"),
        ("[orchestrate]\nconcurency = 8", "2:1: there is no setting orchestrate.concurency (did you mean "
         "orchestrate.concurrency?)"),
        ("[checkpoints]\nsteps = 3", "2:1: there is no setting checkpoints.steps (did you mean checkpoint.steps?)"),
        ("interval_s = 3", "1:1: there is no setting interval_s (did you mean checkpoint.interval_s?)"),
        ("[budget]\ntoken = 3", "2:1: there is no setting budget.token (did you mean budget.tokens?)"),
        ("[engine]\nzzz = 3", "2:1: there is no setting engine.zzz (there are engine.lease_s)"),
        ("checkpoint = 3", "1:14: checkpoint is 3 (it is a table: [checkpoint])"),
        ("[discovery]\n# words\nkeywords = [\n  'a',\n  3\n]", "3:12: discovery.keywords is ['a', 3] (it can be a list "
         "of texts, at most 100)"),
        ("[cleanup.of]\nx = 3", "2:1: there is no setting cleanup.of.x (a table [cleanup.of.NAME] can have "
         "older_than_days, keep_runs, size_mb)"),
        ("[cleanup.of.nightly]\nkeep = 3", "2:1: there is no setting cleanup.of.nightly.keep (a table "
         "[cleanup.of.NAME] can have older_than_days, keep_runs, size_mb)"),
        ("version = 'new'", "1:11: version is 'new' (this maos writes version = 1)"),
        ("[checkpoint\ninterval_s = 3", "1:12: not TOML: expected ']' at the end of a table declaration"),
        ("a = 1\na = 2", "2:6: not TOML: cannot overwrite a value"),
        ("a = [", "1:6: not TOML: invalid value"),
        (f"\na = {5_000 * '1'}", "2:1: a number has more than 4300 digits"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(refused: Refused, text: str, said: str) -> None:
    """R-1007: file, line and column, what is allowed, the nearest right name."""
    assert refused(text) == [said]


def test_all_mistakes_are_found_at_once(refused: Refused) -> None:
    said = refused("[checkpoint]\ninterval_s = 0\nsteps = 0\n[oops]\n")
    assert [each.partition(": ")[0] for each in said] == ["2:14", "3:9", "4:2"]


def test_a_file_of_a_newer_maos_is_refused_by_its_version(refused: Refused) -> None:
    """R-1004, R-1007."""
    (said,) = refused("version = 7\n[future]\nx = 1")
    assert said.startswith("1:11: settings of version 7; this maos knows up to 1 (use a newer maos")


def test_a_file_of_an_older_version_is_upgraded_on_reading(files: Files) -> None:
    """R-1007: version 0 has the names of the original."""
    files.project.write_text(
        "version = 0\nauto_save_interval = 45\ncheckpoint_interval = 60\ndiscovery_keywords = ['idea:']\n"
        "recovery_lookback_days = 7\ndb_path = 'old.db'\n"
    )
    loaded = files.current().loaded
    assert loaded.values.engine.lease_s == 45
    assert loaded.values.checkpoint.interval_s == 60
    assert loaded.values.discovery.keywords == ("idea:",)
    assert loaded.values.recovery.lookback_days == 7
    assert str(loaded.values.database.path) == str(files.project.with_name("old.db"))
    assert loaded.notes[1] == f"{files.project}:3:1: checkpoint_interval of version 0 is checkpoint.interval_s now"


def test_names_of_an_older_version_are_not_those_of_this_one(refused: Refused) -> None:
    assert refused("checkpoint_interval = 60")[0].startswith("1:1: there is no setting checkpoint_interval")
    assert refused("version = 0\ncheckpoint_interval = 0") == [
        "2:23: checkpoint.interval_s is 0 (it can be a number from 1 to 86_400)"
    ]


@pytest.mark.parametrize("key", ["api_key", "token", "github_token", "password", "client-secret", "credentials"])
def test_a_secret_is_never_in_a_file(refused: Refused, key: str) -> None:
    (said,) = refused(f"[agent]\n{key} = 'abc'")
    assert said.startswith(f"2:1: agent.{key} looks like a secret (files must not have secrets: ")


def test_a_secret_in_a_value_is_refused_and_not_shown(files: Files) -> None:
    files.user.write_text("[notify]\nurls = ['mailto://me:geheim1234@example.org']\n")
    with pytest.raises(BadSettings) as raised:
        files.current()
    assert "looks like a secret" in str(raised.value)
    assert "MAOS_NOTIFY" in str(raised.value)
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "[notify]\nurls = ['json://elsewhere']",
        "[orchestrate]\nkind = 'acp:./evil.sh'",
        "[database]\npath = 'postgresql://elsewhere/db'",
        "[cleanup]\nolder_than_days = 0.001",
        "[cleanup]\nenabled = true",
        "[cleanup.of.orchestration]\nkeep_runs = 1",
    ],
)
def test_a_project_which_may_come_from_strangers_cannot_say_everything(
    files: Files, refused: Refused, text: str
) -> None:
    """A12, A25: programs to run, where to send things, and what of the user's other runs goes are not for it to say."""
    assert "project" in refused(text)[0]
    files.project.unlink()
    files.user.write_text(text)
    assert files.current().loaded.origins


def test_a_file_above_that_belongs_to_a_stranger_is_passed_over(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.project.write_text("[oops]")
    real = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        found = real(path, **more)
        return os.stat_result((*found[:4], 4242, *found[5:])) if Path(path) == files.project else found

    monkeypatch.setattr(os, "stat", stat)
    found = find_files(Path.cwd(), files.user.parent)
    assert (found.project, found.passed_over) == (None, files.project)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"a = '" + b"x" * (65 << 10) + b"'",
        b"[" * 5000,
        b"[" + b".".join([b"a"] * 15_000) + b"]\nx = 1",
        b".".join([b"a"] * 15_000) + b" = 1",
        b"[budget]\ntokens = " + b"9" * 5000,
        b"[budget]\ntokens = 0x" + b"f" * 5000,
    ],
    ids=["no text", "too large", "deep", "deep table", "deep key", "digits", "hexadecimal digits"],
)
def test_a_hostile_file_is_refused(files: Files, content: bytes) -> None:
    files.project.write_bytes(content)
    with pytest.raises(BadSettings):
        files.current()


def test_a_folder_in_the_place_of_a_file_is_refused(files: Files) -> None:
    files.user.mkdir()
    with pytest.raises(BadSettings, match="cannot be read: Is a directory"):
        files.current()


# --- each setting is said once -----------------------------------------------------------------------------------


def test_every_setting_is_complete(files: Files) -> None:
    names = schema.fields()
    assert len({each.variable for each in names.values() if each.variable}) == len(names) - len(schema.TABLES)
    for each in names.values():
        assert each.description, f"{each.name} says nothing"
        assert each.allowed
        assert each.variable.startswith("MAOS_") or each.name in schema.TABLES
        assert schema.value_of(Settings(), each.name) == each.default
        assert each.default is None or each.convert(each.default) is not None


def test_a_new_file_says_what_counts_anyway(files: Files) -> None:
    for is_project in (True, False):
        text = loader.template(is_project=is_project)
        with_defaults = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.M)
        layer = check(with_defaults, SettingsSource(files.project, is_project=is_project))
        assert layer.problems == []
        of_users = {"notify.urls", "workspace.project_settings"}
        sections = ("backup.", "encryption.", "serve.", "cleanup.", "log.")
        of_users |= {name for name in schema.fields() if name.startswith(sections)}
        hidden = {*schema.TABLES, "database.wait_s"} | (of_users if is_project else set())
        assert layer.values.keys() == schema.fields().keys() - hidden
        assert tomllib.loads(text)["version"] == schema.VERSION


def test_a_policy_for_one_kind_has_what_it_does_not_say_from_the_general_one(files: Files) -> None:
    files.user.write_text("[cleanup]\nolder_than_days = 9\n[cleanup.of.'my.flow']\nkeep_runs = 5\n")
    cleanup = files.current().values.cleanup
    assert cleanup.of == {"my.flow": schema.PolicySettings(older_than_days=9, keep_runs=5)}


def test_prices_are_in_the_users_own_file(files: Files) -> None:
    """A project may come from someone else: with its prices, a limit of money would hold nothing."""
    text = "[prices.of.'gpt-4.1']\ninput = 2\noutput = 8\ncache_read = 0.5\n"
    files.user.write_text(text)
    assert files.current().values.prices.of == {"gpt-4.1": schema.PriceSettings(input=2, output=8, cache_read=0.5)}
    files.user.unlink()
    files.project.write_text(text)
    with pytest.raises(BadSettings, match=r"prices\.of\.gpt-4\.1\.input is not allowed in a project's file"):
        files.current()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[prices.of.x]\ninput = 2", "2: prices.of.x has no output (a price is in dollars for a million tokens)"),
        ("[prices.of.x]\ncache_read = 2", "2: prices.of.x has no input and no output (a price is in dollars for a "
         "million tokens)"),
        ("[prices.of.x]\ninput = -1\noutput = 2", "2:9: prices.of.x.input is -1 (it can be a number from 0 to "
         "1_000_000)"),
        ("[prices.of.x]\ncache_read = 'no'\ninput = 1\noutput = 2", "2:14: prices.of.x.cache_read is 'no' (it can be "
         "a number from 0 to 1_000_000)"),
        ("[prices.of.x]\nin = 2", "2:1: there is no setting prices.of.x.in (a table [prices.of.NAME] can have input, "
         "output, cache_write, cache_write_1h, cache_read)"),
    ],
)  # fmt: skip
def test_a_price_that_is_not_one_is_named_with_its_place(files: Files, text: str, said: str) -> None:
    files.user.write_text(text)
    with pytest.raises(BadSettings) as refused:
        files.current()
    [problem] = refused.value.problems
    assert f"{problem.where}: {problem.what} ({problem.hint})" == f"{files.user}:{said}"


# --- places ------------------------------------------------------------------------------------------------------

NAMES = st.text("abc-_0 .\"'é#=[]\\", min_size=1, max_size=5)
VALUES = st.recursive(
    st.one_of(
        st.integers(-1000, 1000), st.booleans(), st.floats(allow_nan=False, allow_infinity=False),
        st.text("ab\"'\\#\n=[]{},é", max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip


def toml(value: Any) -> str:
    import json

    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[ # comment ]\n" + ",\n ".join(map(toml, value)) + "\n]"
    if isinstance(value, str) and "'" not in value and "\n" not in value:
        return f"'{value}'"
    if isinstance(value, str) and "\n" in value and "\\" not in value and '"' not in value:
        return f'"""\n{value}"""'
    return json.dumps(value)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_every_key_and_value_is_found_where_it_stands(document: dict[str, dict[str, Any]]) -> None:
    import json

    lines = ["# [not a table]"]
    for table, entries in document.items():
        lines.append(f" [ {json.dumps(table)} ] # comment")
        lines += [f"{json.dumps(key)}\t= {toml(value)}  # a = 1" for key, value in entries.items()]
    text = "\n".join(lines) + "\n"
    assert tomllib.loads(text).keys() == document.keys()
    found = find_positions(text)
    by_line = text.split("\n")
    for table, entries in document.items():
        for key, value in entries.items():
            line, column = found.keys[table, key]
            assert by_line[line - 1][column - 1 :].startswith(f"{json.dumps(key)}\t= ")
            line, column = found.values[table, key]
            assert by_line[line - 1][column - 1 :].startswith(toml(value).partition("\n")[0])


@pytest.mark.parametrize(
    ("url", "passwords"),
    [
        ("postgresql://me:hunter2x@db.example/maos", {"hunter2x"}),
        ("postgresql://me@db.example/maos?password=hunter2x", {"hunter2x"}),
        ("postgresql://maos-01:maos-01@db.example/x", set()),
        ("postgresql://me:maos-01@db.example/maos-01?sslmode=disable", set()),
        ("postgresql://me:db.example@db.example:5432/maos", set()),
        ("postgresql:///x?user=maos-01&password=maos-01", set()),
        ("postgresql://me:pw-1@db.example/maos", set()),
        ("postgresql://me:postgres@db.example/maos", set()),
        ("postgresql://me:20240101@db.example/maos", set()),
    ],
)
def test_a_database_password_that_is_in_ordinary_text_is_not_removed_from_it(url: str, passwords: set[str]) -> None:
    assert set(DatabaseName(url).secrets.values()) == passwords


# --- what a project's file asks for --------------------------------------------------------------------------------


def test_commands_variables_and_files_of_a_projects_file_wait_for_consent(files: Files, tmp_path: Path) -> None:
    """A12: what was agreed to is what was seen, in the file where it was seen."""
    home = {"MAOS_HOME": str(tmp_path / "home")}
    files.user.write_text('[workspace]\nsetup = ["make mine"]\n')
    files.project.write_text('[workspace]\nsetup = ["make deps"]\nenv = ["TOKEN", "CI=1"]\n[budget]\ntokens = 5\n')
    found = files.current(**home)
    assert found.values.workspace == schema.WorkspaceSettings(setup=("make mine",))
    assert found.values.budget.tokens == 5
    assert found.loaded.asked is not None
    assert found.loaded.asked.values == {"workspace.setup": ("make deps",), "workspace.env": ("TOKEN", "CI=1")}
    assert any("maos admin trust" in each for each in found.loaded.notes)
    with pytest.raises(loader.NotAgreedTo, match=r"workspace\.setup, workspace\.env"):
        found.loaded.check_agreed()

    found.loaded.asked.agree(home)
    agreed = files.current(**home)
    agreed.loaded.check_agreed()
    assert agreed.values.workspace == schema.WorkspaceSettings(setup=("make deps",), env=("TOKEN", "CI=1"))
    assert files.current(MAOS_HOME=str(tmp_path / "another")).loaded.asked is not None

    files.project.write_text('[workspace]\nsetup = ["make deps; curl evil"]\nenv = ["TOKEN", "CI=1"]\n')
    assert files.current(**home).loaded.asked is not None
    files.project.write_text("[workspace]\nsetup = []\n[budget]\ntokens = 6\n")
    assert files.current(**home).loaded.asked is None


def test_the_users_own_file_needs_no_consent_and_names_mcp_servers(files: Files) -> None:
    files.user.write_text('[workspace]\nproject_settings = ["mcp"]\n[mcp.of.notes]\ncommand = ["notes", "--serve"]\n')
    found = files.current()
    assert found.loaded.asked is None
    assert found.values.mcp.of == {"notes": schema.McpServerSettings(command=("notes", "--serve"))}
    assert files.current(MAOS_WORKSPACE_SETUP="npm ci\nnpm run build").values.workspace.setup == (
        "npm ci",
        "npm run build",
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[mcp.of.evil]\ncommand = ["sh"]\n', "mcp.of.evil.command is not allowed in a project's file"),
        (
            '[workspace]\nproject_settings = ["hooks"]\n',
            "workspace.project_settings is not allowed in a project's file",
        ),
    ],
)
def test_a_projects_file_turns_on_nothing_of_the_project(refused: Refused, text: str, what: str) -> None:
    """A12."""
    assert what in refused(text)[0]


def test_a_server_without_a_command_is_refused(files: Files) -> None:
    files.user.write_text('[mcp.of.notes]\nenv = ["A=1"]\n')
    with pytest.raises(loader.BadSettings, match=r"mcp\.of\.notes has no command"):
        files.current()
