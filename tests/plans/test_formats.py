"""One plan in YAML, TOML or JSON: the same tasks, and problems named by line and column in each."""

import io
import json
from pathlib import Path

import pytest

import maos
from maos.errors import InvalidInput
from maos.model.plan import BadPlan, Plan, Task
from maos.plans import parser, source
from maos.plans.source import JSON, TOML, YAML, Source

IN_YAML = """\
request: Open the shop
variables: {apples: 1.10, day: 2026-01-02}
concurrency: 2
tasks:
  - name: prices
    command: echo {{ apples }} {{ day }} {{ matrix.in }}
    matrix: {in: [eur, usd]}
    gates:
      - command: "true"
  - name: page
    task: Write the page
    agent: developer
    needs: [prices]
    mcp: true
    time_limit_s: 60
"""
IN_TOML = """\
request = "Open the shop"
variables = {apples = 1.10, day = 2026-01-02}
concurrency = 2

[[tasks]]
name = "prices"
command = "echo {{ apples }} {{ day }} {{ matrix.in }}"
matrix = {in = ["eur", "usd"]}
[[tasks.gates]]
command = "true"

[[tasks]]
name = "page"
task = "Write the page"
agent = "developer"
needs = ["prices"]
mcp = true
time_limit_s = 60
"""
IN_JSON = """\
{"request": "Open the shop",
 "variables": {"apples": 1.10, "day": "2026-01-02"},
 "concurrency": 2,
 "tasks": [
  {"name": "prices", "command": "echo {{ apples }} {{ day }} {{ matrix.in }}",
   "matrix": {"in": ["eur", "usd"]}, "gates": [{"command": "true"}]},
  {"name": "page", "task": "Write the page", "agent": "developer",
   "needs": ["prices"], "mcp": true, "time_limit_s": 60}
]}
"""
TEXTS = {YAML: IN_YAML, TOML: IN_TOML, JSON: IN_JSON}


def problems(text: str, format: str, **variables: str) -> list[str]:
    with pytest.raises(BadPlan) as raised:
        parser.parse(Source(text, format, "f", variables), agents=["developer"])
    return [str(each) for each in raised.value.problems]


@pytest.mark.parametrize("format", TEXTS)
def test_the_same_plan_in_each_format(format: str) -> None:
    parsed = parser.parse(Source(TEXTS[format], format, "shop"))
    prices, more, page = parsed.plan.tasks
    assert (prices.name, prices.command) == ("prices-eur", ["echo", "1.10", "2026-01-02", "eur"])
    assert (more.name, more.command) == ("prices-usd", ["echo", "1.10", "2026-01-02", "usd"])
    needs = ["prices-eur", "prices-usd"]
    assert page == Task(
        name="page", task="Write the page", agent="developer", needs=needs, mcp=True, time_limit_s=60.0
    )  # fmt: skip
    assert (parsed.plan.request, parsed.options) == ("Open the shop", {"concurrency": 2})


@pytest.mark.parametrize("format", TEXTS)
def test_every_problem_is_named_at_once_with_its_position(format: str) -> None:
    text = (
        TEXTS[format].replace("developer", "develper").replace("prices]", "prizes]").replace('"prices"]', '"prizes"]')
    )
    text = text.replace("mcp", "mpc").replace("60", '"soon"').replace("{{ day }}", "{{ dya }}")
    found = dict(each.removeprefix("f:").partition(": ")[::2] for each in problems(text, format))
    expected = {
        "there is no variable 'dya' (did you mean 'day'?)": {YAML: "6:14", TOML: "7:11", JSON: "5:33"},
        "there is no type of agent called 'develper' (did you mean 'developer'?)":
            {YAML: "12:12", TOML: "15:9", JSON: "7:55"},
        "needs 'prizes', which does not exist (did you mean 'prices'?)": {YAML: "13:13", TOML: "16:10", JSON: "8:14"},
        "nothing is called 'mpc' here (did you mean 'mcp'?)": {YAML: "14:5", TOML: "17:1", JSON: "8:25"},
        "expected a number, got text": {YAML: "15:19", TOML: "18:16", JSON: "8:54"},
    }  # fmt: skip
    assert {what: where for where, what in found.items()} == {what: at[format] for what, at in expected.items()}


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"tasks": 1}', JSON), ("\n {}", JSON), ("[[tasks]]", TOML), ('# x\n\n  name = "x"\n', TOML),
        ('"a b" = 3', TOML), ("a.b = 3", TOML), ("tasks:\n- a", YAML), ("---\na: b", YAML), ("name: x = y", YAML),
        ("", YAML), ("# x\ntasks: []", YAML), ("\n" * 100_000 + "tasks: []", YAML), ("'a b' = 3", TOML),
    ],
)  # fmt: skip
def test_a_text_without_a_known_name_is_recognised(text: str, format: str) -> None:
    assert source.receive(io.BytesIO(text.encode()), "standard input").format == format


@pytest.mark.parametrize("ending", ["", ".plan"])
@pytest.mark.parametrize("format", TEXTS)
def test_a_file_without_a_known_ending_is_recognised(tmp_path: Path, ending: str, format: str) -> None:
    path = tmp_path / f"shop{ending}"
    path.write_bytes(b"\xef\xbb\xbf" + TEXTS[format].replace("\n", "\r\n").encode())
    loaded = source.load(path)
    assert loaded.format == format
    assert len(parser.parse(loaded).plan.tasks) == 3


def test_a_command_in_words_is_split_without_a_shell_and_a_list_stays_as_it_is() -> None:
    data = {"tasks": [{"name": "a", "command": "echo 'a b' $HOME"}, {"name": "b", "command": ["echo 'a b'", ""]}]}
    first, second = parser.parse_data(data).plan.tasks
    assert first.command == ["echo", "a b", "$HOME"]
    assert second.command == ["echo 'a b'", ""]


def test_braces_that_are_meant_as_such_can_be_written_and_are_kept_when_a_plan_is_edited() -> None:
    plan = Plan(tasks=[Task(name="a", task="use {{ x }}, {{{ y }}} and {{ '{{' }}")], request="r")
    made = parser.to_source(plan, "the plan of the agent")
    assert made.suffix == ".json"
    assert parser.parse(made).plan == plan
    assert problems("tasks: [{name: a, task: '{{ x }}'}]", YAML) == [
        "f:1:25: there is no variable 'x' (there are none; write {{ '{{' }} for two braces)"
    ]


@pytest.mark.parametrize("text", ['{"steps": []}', '{"steps": [{"name": "a", "task": "x"}]}'])
def test_steps_are_called_tasks(text: str) -> None:
    assert problems(text, JSON) == ["f:1:2: nothing is called 'steps' here (did you mean 'tasks'?)"]


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ('"task": "jobs:look"', "f:1:34: it names no function"),
        ('"command": ["jobs.look"]', "f:1:55: 'jobs.look' does not name a function"),
        ('"command": ["jobs:look", "x"]', "f:1:55: 'jobs:look x' does not name a function"),
    ],
)
def test_a_task_of_the_kind_python_names_a_function_before_anything_is_started(way: str, told: str) -> None:
    text = f'{{"tasks": [{{"name": "a", "kind": "python", {way}}}]}}'
    assert problems(text, JSON) == [f"{told} (write `python: module:function`, and its arguments into `with`)"]


def test_a_key_that_is_there_twice_is_not_overwritten() -> None:
    text = '{"tasks": [{"name": "a", "command": "x",\n "name": "b"}], "tasks": []}'
    assert problems(text, JSON) == ["f:2:2: 'name' is there twice", "f:2:17: 'tasks' is there twice"]


def test_a_task_says_what_to_do_in_one_way() -> None:
    """A command may have a text beside it that says what it is for."""
    described = {"name": "c", "task": "x", "command": "y"}
    data = {"tasks": [{"name": "a", "python": "x:y", "command": "y"}, {"name": "b"}, described]}
    with pytest.raises(BadPlan) as raised:
        parser.parse_data(data)
    assert [str(each) for each in raised.value.problems] == [
        "task 1 (a): a task has one of task, command and python: it has command and python",
        "task 2 (b): a task has one of task, command and python: it has none",
    ]


def test_a_variable_that_the_file_does_not_have_is_a_problem_and_others_still_count() -> None:
    text = "variables: {day: x}\ntasks: [{name: a, task: '{{ dey }}'}]"
    assert problems(text, YAML, dya="x") == [
        "f:1:12: it has no variable 'dya' (did you mean 'day'?)",
        "f:2:25: there is no variable 'dey' (did you mean 'day'?)",
    ]


async def test_a_run_is_started_from_a_path_from_data_and_from_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("concurrency: 3\ntasks: [{name: a, command: echo one, matrix: {n: [1, 2]}}]")
    async with maos.open(":memory:") as m:
        run = await m.runs.start(path, folder=tmp_path, options={"in_place": True})
        assert (list(run.tasks), run.options["concurrency"], run.request) == (["a-1", "a-2"], 3, "shop")
        run = await m.runs.create({"concurrency": 3, "tasks": [{"name": "a", "command": "echo one"}]})
        assert (run.tasks["a"].plan["command"], run.options["concurrency"]) == (["echo", "one"], 3)
        literal = Plan(tasks=[Task(name="a", task="{{ x }}")])
        assert (await m.runs.create(literal)).tasks["a"].plan["task"] == "{{ x }}"
        path.write_text("tasks: [{name: a, task: x, agent: develper}]")
        with pytest.raises(BadPlan, match=r"shop\.yaml:1:35: there is no type of agent called 'develper'"):
            await m.runs.start(str(path), folder=tmp_path)
        with pytest.raises(InvalidInput, match="cannot be read"):
            await m.runs.start(tmp_path / "nothing.yaml", folder=tmp_path)


def test_the_data_of_a_text_is_what_its_parser_says() -> None:
    assert (
        parser.parse_data(json.loads(IN_JSON)).plan.tasks[2] == parser.parse(Source(IN_JSON, JSON, "f")).plan.tasks[2]
    )
