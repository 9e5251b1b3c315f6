"""Plans in YAML: what they become, and problems named by line and column."""

import json
from xml.etree import ElementTree

import msgspec
import pytest

from maos.model.plan import BadPlan, Plan
from maos.plans import graph, parser
from maos.plans.source import YAML, Scalar, Source

RELEASE = """\
name: release
variables:
  version: "1.2"
  greeting: hello world
tasks:
  - name: test
    command: sh -c 'echo testing on {{ matrix.python }}'
    matrix:
      python: ["3.11", "3.12"]
  - name: note
    command: echo {{ greeting }} {{version}}
    needs: test
  - name: look
    python: jobs:look
    with: {version: "{{ version }}", deep: [1, "{{ greeting }}"]}
    needs: [note]
  - name: ship
    task: Ship {{ version }}
    agent: developer
    needs: [note, look]
    time_limit_s: 60
    gates:
      - command: "true"
      - person: Ship {{ version }}?
"""


def parse(text: str, **variables: Scalar) -> Plan:
    return parser.parse(Source(text, YAML, "release.yaml", variables)).plan


def test_a_file_becomes_a_plan() -> None:
    """R-1001: run by the same engine as orchestrations."""
    plan = parse(RELEASE)
    tasks = {task.name: task for task in plan.tasks}
    assert list(tasks) == ["test-3-11", "test-3-12", "note", "look", "ship"]
    assert tasks["test-3-11"].command == ["sh", "-c", "echo testing on 3.11"]
    assert tasks["note"].command == ["echo", "hello world", "1.2"]  # a value with a space is one word
    assert tasks["note"].needs == ["test-3-11", "test-3-12"]
    assert (tasks["look"].kind, tasks["look"].command) == ("python", ["jobs:look"])
    assert json.loads(tasks["look"].task) == {"version": "1.2", "deep": [1, "hello world"]}
    assert tasks["ship"].task == "Ship 1.2"
    assert [msgspec.to_builtins(each) for each in tasks["ship"].gates] == [
        {"command": ["true"]},
        {"person": "Ship 1.2?"},
    ]


def test_variables_are_given_on_the_command_line() -> None:
    plan = parse(RELEASE, version=9)
    assert plan.tasks[2].command == ["echo", "hello world", "9"]


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("needs: test", "needs: tset", "release.yaml:12:12: needs 'tset', which does not exist (did you mean 'test'?)"),
        ("{{version}}", "{{versoin}}", "11:14: there is no variable 'versoin' (did you mean 'version'?)"),
        ("    needs: [note, look]", "    neds: [note]", "20:5: nothing is called 'neds' here (did you mean 'needs'?)"),
        ('- command: "true"', '- command: "true"\n        person: x', "23:9: a gate is one of"),
        ("name: ship", "name: note", "17:11: task 3 has the same name"),
        ("  - name: ship", "  - name: [a", "not YAML"),
        ("    needs: test", "    needs: ship", "12:12: tasks wait for each other: note → ship → note"),
        ("    matrix:", "    command: x\n    matrix:", "8:5: 'command' is there twice"),
        ("command: echo", "python: x:y\n    command: echo", "10:5: a task has one of task, command and python"),
        ("time_limit_s: 60", "time_limit_s: soon", "21:19: expected"),
        ("name: release", "version: 2", "1:10: format 2 is newer than this maos knows (1) (use a newer maos)"),
        ("name: release", "name: !!python/object/apply:os.getcwd []", "1:7:"),
        ("tasks:", "taskz:", "5:1: nothing is called 'taskz' here (did you mean 'tasks'?)"),
        ("tasks:", "steps:", "5:1: nothing is called 'steps' here (did you mean 'tasks'?)"),
        ("name: release", "description: x", "1:1: nothing is called 'description' here (did you mean 'summary'?)"),
        ("    needs: test", "    concurrency: 2", "12:5: nothing is called 'concurrency' here (give it once for all"),
        (
            "    needs: test",
            "    include_uncommitted: true",
            "12:5: nothing is called 'include_uncommitted' here (give it once for all tasks, beside `tasks`: they "
            "start from one commit)",
        ),
        (
            "    needs: test",
            "    depends_on: test",
            "12:5: nothing is called 'depends_on' here (did you mean 'needs'?)",
        ),
        ("time_limit_s: 60", "timeout: 60", "21:5: nothing is called 'timeout' here (did you mean 'time_limit_s'?)"),
        ("time_limit_s: 60", "retries: 3", "21:5: nothing is called 'retries' here (how often is decided by why"),
        ("python: jobs:look", "python: jobs look", "'jobs look' does not name a function (write"),
        ("name: test", "name: a b", "6:11: expected"),
        ('["3.11", "3.12"]', "[]", "9:7: a row of the matrix is empty"),
        ("command: sh -c '", "command: sh -c ", "7:14: the command cannot be read"),
    ],
)
def test_a_problem_is_named_by_line_and_column(right: str, wrong: str, told: str) -> None:
    assert RELEASE.count(right) >= 1
    with pytest.raises(BadPlan) as raised:
        parse(RELEASE.replace(right, wrong, 1))
    assert told in str(raised.value)


def test_all_problems_are_named_at_once() -> None:
    text = RELEASE.replace("needs: test", "needs: tset").replace("Ship {{ version }}?", "Ship {{ it }}?")
    with pytest.raises(BadPlan) as raised:
        parse(text)
    assert [each.position and each.position.line for each in raised.value.problems] == [12, 24]


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: &a [*a]\n", "42", "\x00", "{" * 2000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(BadPlan):
        parse(text)


def test_a_small_file_that_stands_for_billions_is_refused() -> None:
    """A8: aliases that double eighty times."""
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    with pytest.raises(BadPlan, match="stands for more"):
        parse("\n".join(rows))


def test_yes_and_on_are_words_and_dates_too() -> None:
    text = (
        "variables: {a: yes, b: on, c: 2026-01-02, d: true}\ntasks: [{name: x, command: 'echo {{a}}{{b}}{{c}}{{d}}'}]"
    )
    assert parse(text).tasks[0].command == ["echo", "yeson2026-01-02true"]


def test_the_picture_has_every_task_and_every_line() -> None:
    plan = parse(RELEASE.replace("name: release", "name: <release & more>"))
    drawn = ElementTree.fromstring(graph.svg(plan))
    kinds = [each.tag.rpartition("}")[2] for each in drawn.iter()]
    assert kinds.count("rect") == len(plan.tasks)
    assert kinds.count("path") == sum(len(task.needs) for task in plan.tasks)
    assert graph.lines(plan)[0].endswith("test-3-11")


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("22:22", "22:22"), ("1_000", "1_000"), ("0b11", "0b11"), ("yes", "yes"), ("2026-01-02", "2026-01-02"),
        ("<<", "<<"), ("=", "="), ("010", 10), ("-7", -7), ("0o17", 15), ("0x1F", 31), ("1.10", 1.1), ("12e4567", None),
        ("+.5e1", 5.0), ("1.", 1.0), ("True", True), ("FALSE", False), ("nULL", "nULL"), ("1e", "1e"), (".", "."),
    ],
)  # fmt: skip
def test_words_and_numbers_are_those_of_yaml_1_2_and_are_put_in_as_written(written: str, number: object) -> None:
    text = (
        f"variables: {{v: {written}}}\n"
        f"tasks:\n- {{name: x, command: 'echo {{{{v}}}}'}}\n- {{name: y, python: 'a:b', with: {{v: {written}}}}}\n"
        f"- {{name: z, command: 'echo {{{{matrix.m}}}}', matrix: {{m: [{written}]}}}}\n"
    )
    first, second, third = parse(text).tasks
    assert (first.command, third.command) == (["echo", written], ["echo", written])
    found = json.loads(second.task)["v"]
    assert found == (number if number is not None else float("inf"))
    assert type(found) is (type(number) if number is not None else float)


@pytest.mark.parametrize("written", ["null", "Null", "~", ""])
def test_nothing_is_no_variable(written: str) -> None:
    with pytest.raises(BadPlan, match=r"1:2[12]: expected"):
        parse(f"variables: {{u: 1, v: {written}}}\ntasks: [{{name: x, command: echo}}]")
