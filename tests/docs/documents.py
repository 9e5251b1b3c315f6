"""Runs what a document tells its reader to type, and compares what happens with what the document shows.

In a Markdown file these fenced blocks mean something:

* `console`: lines with `$ ` are commands (continued on lines with `> `), what follows is their output. All commands of
  a document run in one shell and one new folder, in order. A command must succeed, unless the next one is `echo $?`.
* `python`: a program. If its first line is a comment with a file name (`# count.py`) it is saved under that name for
  the commands to come, otherwise it is run; an `output` block right after it is what it prints.
* any other: not run.

A comment `<!-- not run: reason -->` before a block leaves it out, and says why. `<!-- with: postgresql -->` gives the
document a server, whose address takes the place of the one in the text.

Outputs are compared loosely: runs of spaces count as one, `...` stands for anything (alone on a line, for any lines), a
time stands for any time, a duration for any duration, a random id for any id, and alice@build-3 for this user on this
machine.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from maos.engine.principals import person

ROOT = Path(__file__).parents[2]
PERSON_IN_THE_TEXT = "alice@build-3"
SERVER_IN_THE_TEXT = "postgresql://maos:secret@localhost/maos"
DOCUMENT_S_MAX = 100

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: .+ -->")
_FILE_NAME = re.compile(r"# ([\w.-]+\.py)$")
_END = re.compile(r"\x1e(\d+)\x1e\n")

_VARYING = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+\d\d:?\d\d)?", "times"),
    (r"\d+(\.\d+)? (µs|ms|s)\b", "durations"),
    (r"v\d+-[0-9a-f]{8}", "ids of snapshots"),
)


class Step(NamedTuple):
    """Something to do, and what it should show."""

    line: int
    command: str
    expected: str | None
    may_fail: bool = False


class Document:
    """A Markdown file as a list of steps."""

    def __init__(self, text: str) -> None:
        self.steps: list[Step] = []
        self.wants_postgresql = "<!-- with: postgresql -->" in text
        for line, language, content in _blocks(text):
            if language == "console":
                self.steps += _console(line, content)
            elif language == "python":
                self._add_program(line, content)
            elif language == "output":
                self.steps[-1] = self.steps[-1]._replace(expected=content)

    def _add_program(self, line: int, content: str) -> None:
        name = _FILE_NAME.match(content.partition("\n")[0])
        file = name[1] if name else f"program_in_line_{line}.py"
        self.steps.append(Step(line, f"cat > {file} <<'END OF {file}'\n{content}END OF {file}", ""))
        if not name:
            self.steps.append(Step(line, f"python {file}", None))

    def run(self, folder: Path, *, path: Path, server: str = "") -> None:
        """Do all of it in a folder, with the programs of `path` at hand; AssertionError where it differs."""
        script = "".join(_scripted(step) for step in self.steps).replace(SERVER_IN_THE_TEXT, server)
        outputs = _in_one_shell(script, folder, _environment(path, folder))
        for step, (output, status) in zip(self.steps, outputs, strict=True):
            shown = output.replace(server, SERVER_IN_THE_TEXT) if server else output
            shown = shown.replace(str(person()), PERSON_IN_THE_TEXT)
            assert step.may_fail or status == 0, f"line {step.line}: $ {step.command}\nexit status {status}\n{shown}"
            if step.expected is not None and not matches(step.expected, shown):
                raise AssertionError(
                    f"line {step.line}: $ {step.command}\n--- shown\n{step.expected}\n--- but it says\n{shown}"
                )


def matches(expected: str, output: str) -> bool:
    """Whether an output is what a document shows, loosely."""
    pattern = ""
    for line in _tidy(expected):
        if line == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(_loosely(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _tidy(output))) is not None


def _loosely(text: str) -> str:
    """A pattern for the text in which times, durations and random ids may be others."""
    for varying, _what in _VARYING:
        match = re.search(varying, text)
        if match:
            return _loosely(text[: match.start()]) + varying + _loosely(text[match.end() :])
    return re.escape(text)


def _tidy(text: str) -> list[str]:
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.strip("\n").split("\n")]
    return [] if lines == [""] else lines


def _blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, language and content of every fenced block that is to be run."""
    left_out = False
    language: str | None = None
    content: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None:
            if fence:
                language, content, start = fence[1], [], number
            elif line.strip():
                left_out = bool(_NOT_RUN.search(line))
        elif fence:
            if not left_out:
                yield start, language, "\n".join(content) + "\n"
            language, left_out = None, False
        else:
            content.append(line)


def _console(line: int, content: str) -> list[Step]:
    steps: list[Step] = []
    for number, text in enumerate(content.splitlines(), line + 1):
        if text.startswith("$ "):
            if steps and text == "$ echo $?":
                steps[-1] = steps[-1]._replace(may_fail=True)
            steps.append(Step(number, text[2:], ""))
        elif text.startswith("> ") and not steps[-1].expected:
            steps[-1] = steps[-1]._replace(command=f"{steps[-1].command}\n{text[2:]}")
        else:
            steps[-1] = steps[-1]._replace(expected=f"{steps[-1].expected}{text}\n")
    return steps


def _scripted(step: Step) -> str:
    # The status is given on, so that `echo $?` shows it.
    return f"{step.command}\n__status=$?; printf '\\x1e%d\\x1e\\n' $__status; (exit $__status)\n"


def _environment(path: Path, folder: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAOS_")}
    return {
        **kept,
        "PATH": f"{path}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "XDG_STATE_HOME": str(folder / ".state"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def _in_one_shell(script: str, folder: Path, environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """Output and status of each command; what commands left running in the background is ended."""
    file = folder / ".script.sh"
    file.write_text(script)
    output = folder / ".output.txt"
    with output.open("wb") as shown:
        shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", str(file)],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=shown, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(DOCUMENT_S_MAX)
        finally:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            shell.wait()
    text = output.read_text()
    parts = _END.split(text)
    assert not parts[-1], f"the shell stopped before the end:\n{text}"
    return [(said, int(status)) for said, status in zip(parts[:-1:2], parts[1::2], strict=True)]
