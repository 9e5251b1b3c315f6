"""Plan files that were made to break the reader: each is refused with a clear problem, soon, without a traceback."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maos.errors import InvalidInput
from maos.model.plan import BadPlan, Plan, Task, check
from maos.plans import parser, source
from maos.plans.source import JSON, TOML, YAML, Source
from tests.cli.conftest import Invoke

LONG = "1" * 5_000
TASK = '{"name": "a", "command": "x", %s}'
HOSTILE = [
    (TOML, "x = " + "[" * 10_000 + "]" * 10_000, "1:1: it is nested too deeply"),
    (JSON, '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "1:1: it is nested too deeply"),
    (JSON, '{"x": ' + "[" * 500 + "]" * 500 + "}", "nested too deeply (at most 64 levels)"),
    (YAML, "[" * 5_000, "it is nested too deeply"),
    (TOML, "a." * 100_000 + "a = 1", "1:1: a key has more than 32 parts"),
    (TOML, "x = 1\n[" + "'a' . " * 50 + "a]", "2:1: a key has more than 32 parts"),
    (TOML, '[[tasks]]\nname="a"\ncommand="x"\ntime_limit_s = nan', "4:16: expected a number >= 0.0"),
    (TOML, '[[tasks]]\nname="a"\ncommand="x"\ntime_limit_s = inf', "4:16: expected a number <= 1000000000.0"),
    (YAML, "tasks: [{name: a, command: x, budget_usd: .nan}]", "1:43: expected a number >= 0.0"),
    (JSON, '{"tasks": [' + TASK % '"time_limit_s": NaN' + "]}", "1:58: expected a number >= 0.0"),
    (JSON, '{"tasks": [' + TASK % '"time_limit_s": -Infinity' + "]}", "1:58: expected a number >= 0.0"),
    (JSON, '{"tasks": [' + TASK % f'"priority": {LONG}' + "]}", "1:54: the number has more than 4300 digits"),
    (JSON, '{"tasks": [' + TASK % f'"priority": {LONG[:99]}' + "]}", "1:54: expected a whole number <= 2147483647"),
    (JSON, '{"tasks": [' + TASK % f'"time_limit_s": 1{LONG[:999]}' + "]}", "1:58: number out of range"),
    (TOML, f"y = 1\nx = {LONG}", "2:1: a number has more than 4300 digits"),
    (TOML, f"x = 0x{LONG}", "1:5: the number has more than 4300 digits"),
    (YAML, f"tasks: [{{name: a, command: x, priority: 0x{LONG}}}]", "1:41: the number has more than 4300 digits"),
    (YAML, f"tasks: [{{name: a, python: 'a:b', with: {{x: 0x{LONG}}}}}]", "1:44: the number has more than 4300 digits"),
    (YAML, f"variables: {{v: 0x{LONG}}}\ntasks: [{{name: a, command: x}}]", "1:16: the number has more than 4300"),
    (YAML, f"variables: {{v: {LONG}}}\ntasks: [{{name: a, command: x}}]", "1:16: '1111"),
    (JSON, '{"tasks": [{"name": "a", "command": "\\ud800"}]}', "1:37: U+D800 is not a character of text"),
    (JSON, '{"tasks": [{"name": "a", "\\udfff": "x"}]}', "1:12: a key has a character that is not text"),
    (YAML, 'tasks: [{name: a, command: "\\uD800"}]', "1:28: U+D800 is not a character of text"),
    (YAML, 'tasks: [{name: a, command: "\\UFFFFFFFF"}]', "not YAML"),
    (TOML, '[[tasks]]\nname = "\\ud800"', "2:15: not TOML"),
    (JSON, '{"tasks": [{"name": "a", "command": "\\u00000\\u0000"}]}', "1:37: U+0000 is not a character of text"),
    (JSON, '{"tasks": [{"name": "a", "task": "x", "needs": ["' + "b" * 100_000 + '"]}]}', "b…', which does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "said"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_is_refused_with_its_position(format: str, text: str, said: str) -> None:
    with pytest.raises(BadPlan) as raised:
        parser.parse(Source(text, format, "f"))
    assert said in str(raised.value)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(("format", "text", "said"), HOSTILE[::5], ids=range(0, len(HOSTILE), 5))
def test_the_command_ends_with_2_and_no_traceback(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, format: str, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(f"plan.{format.lower()}")
    path.write_text(text)
    for args in (["orchestrate", "--plan", path.name, "--auto"], ["workflow", "run", path.name, "--auto"]):
        done = invoke(*args)
        assert (done.exit_code, done.stdout) == (2, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_many_unknown_names_take_no_longer_than_a_few() -> None:
    tasks = [{"name": f"t{n}", "command": "x", "needs": [f"u{n}"] if n < 2_000 else []} for n in range(20_000)]
    began = time.process_time()
    with pytest.raises(BadPlan) as raised:
        parser.parse(Source(json.dumps({"tasks": tasks}), JSON, "f"))
    assert len(raised.value.problems) == 2_000
    found = check(Plan(tasks=[Task(name=each["name"], task="x", needs=each["needs"]) for each in tasks]))  # type: ignore[arg-type]
    assert len(found) == 2_000
    assert time.process_time() - began < 30, "comparing each with all names would take minutes"


def test_a_circle_of_many_tasks_is_found_and_told_shortly() -> None:
    tasks = [Task(name=f"t{n}", task="x", needs=[f"t{(n + 1) % 50_000}"]) for n in range(50_000)]
    (problem,) = check(Plan(tasks=tasks))
    assert len(problem.what) < 200


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(source.BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("p.json", _fifo, "p.json is not a file"),
        ("p.yaml", Path.mkdir, "p.yaml is not a file"),
        ("p.toml", lambda path: path.symlink_to("/dev/zero"), "p.toml is not a file"),
        ("p.json", _large, "p.json is larger than a plan can be (at most 32 MB in JSON)"),
        ("p", _large, "p is larger than a plan can be"),
        ("p.yaml", lambda path: path.write_text("a" * (1 << 20) + "b"), "(at most 1 MB in YAML, or write it as JSON)"),
        ("p.toml", lambda path: path.write_bytes(b"\xff\xfe"), "p.toml is not text in UTF-8"),
        ("p.toml", lambda path: None, "p.toml cannot be read: No such file"),
        ("p\x00", lambda path: None, "names no file"),
    ],
)
def test_what_is_no_file_of_text_is_refused_and_not_waited_for(
    tmp_path: Path, name: str, make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(InvalidInput) as raised:
        source.load(f"{tmp_path}/{name}")
    assert said in str(raised.value)


def test_standard_input_without_end_is_refused(tmp_path: Path) -> None:
    with open("/dev/zero", "rb") as stream, pytest.raises(InvalidInput, match="larger than a plan can be"):
        source.receive(stream, "standard input")


def test_a_plan_that_a_program_made_cannot_have_what_cannot_be_recorded() -> None:
    tasks = [
        Task(name="a", task="\ud800"),
        Task(name="b", task="x", time_limit_s=float("nan")),
        Task(name="c", task="x", tokens_max=1 << 70),
    ]
    assert [each.path for each in check(Plan(tasks=tasks))] == [("tasks", 0), ("tasks", 1), ("tasks", 2)]
    endless: dict[str, object] = {"tasks": []}
    endless["more"] = endless
    with pytest.raises(BadPlan, match="nested too deeply"):
        parser.parse_data(endless)
