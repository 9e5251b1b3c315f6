"""Copies of the project, and trials: one copy, one bug, the tests that must notice.

Each copy has a Python environment of its own that finds `maos` in the copy and everything else where the project's own
environment has it. A path in PYTHONPATH would not do: some processes start with a clean environment.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import heard
from tests.mutants.planted import Mutant, Wrong

TEST_S_MAX = 120
TRIAL_S_MAX = 180
BASELINE_S_MAX = 1_800
ENDED_S_MAX = 10
FAILED, PASSED = 1, 0
"""Exit codes of pytest; all others mean that it could not run the tests."""


@dataclass(frozen=True)
class Verdict:
    """What came of one bug: caught, SURVIVED, or why nobody can tell."""

    mutant: Mutant
    outcome: str
    said: str
    took_s: float = 0.0

    @property
    def good(self) -> bool:
        return self.outcome in ("caught", "skipped")


class Copy:
    """A copy of the project in a folder of its own, where anything may be broken."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "p"  # short names: sockets below this folder have a path of at most 107 bytes
        self._temporary = folder / "t"
        self._temporary.mkdir(parents=True)
        shutil.copytree(project, self.project, ignore=shutil.ignore_patterns(".*", "build", "dist", "maos.db*"))
        environment = folder / "v"
        venv.create(environment, symlinks=True)
        self.python = environment / "bin" / "python"
        scheme = {"base": str(environment), "platbase": str(environment)}
        packages = Path(sysconfig.get_path("purelib", "venv", scheme))
        ours = [self.project / "src", *self.project.glob("distributions/*/src")]
        (packages / "copy.pth").write_text("".join(f"{each}\n" for each in (*ours, sysconfig.get_path("purelib"))))

    def check(self) -> None:
        """Wrong unless processes import maos from here, whatever their environment."""
        code = "import maos; print(maos.__file__)"
        argv = [str(self.python), "-P", "-c", code]
        file = subprocess.run(argv, env={}, cwd="/", capture_output=True, text=True, check=True).stdout.strip()
        if not Path(file).is_relative_to(self.project):
            raise Wrong(f"a process of the copy imports {file}")

    def test(self, tests: Sequence[str], limit_s: float, *options: str) -> "Tested":
        """Run some tests in the copy, and end whatever they leave behind."""
        notes = self.folder / "heard"
        notes.unlink(missing_ok=True)
        argv = [str(self.python), "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
        argv += ["-p", "no:maos"]  # a copy need not have the test kit, whose plugin the environment names
        argv += ["-p", heard.__name__, f"--timeout={TEST_S_MAX}", *options, *tests]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAOS_"))}
        environment.pop("PYTHONPATH", None)
        environment |= {heard.INTO: str(notes), "TMPDIR": str(self._temporary)}
        with (self.folder / "output").open("w+b") as output:
            process = subprocess.Popen(
                argv, cwd=self.project, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end_processes(self.folder)
                process.wait()
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        said = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
        return Tested(code, [json.loads(line) for line in lines], said)

    def remove(self) -> None:
        """End everything that runs in it, then remove it."""
        end_processes(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Tested:
    """What one run of tests came to; `code` is None when it took too long as a whole."""

    code: int | None
    reports: list[dict[str, str | bool]]
    said: str

    def those(self, outcome: str, tests: Sequence[str]) -> list[str]:
        """The ids of tests with an outcome, among those that some ids stand for."""
        return [
            str(each["test"])
            for each in self.reports
            if each["outcome"] == outcome and any(_stands_for(id_, str(each["test"])) for id_ in tests)
        ]

    def has(self, test: str) -> bool:
        """Whether anything was heard of what an id stands for."""
        return any(_stands_for(test, str(each["test"])) for each in self.reports)

    @property
    def late(self) -> bool:
        return self.code is None or any(each["late"] for each in self.reports)

    @property
    def called(self) -> list[str]:
        """The tests that failed themselves; not those whose preparations did."""
        return [str(each["test"]) for each in self.reports if each["outcome"] == "failed" and each["when"] == "call"]

    def last_words(self) -> str:
        return next((line for line in reversed(self.said.splitlines()) if line.strip()), "it said nothing")


def try_out(mutant: Mutant, whole: Copy, baseline: Tested, folder: Path) -> Verdict:
    """Plant one bug in a fresh copy and see whether its tests notice."""
    if failed := baseline.those("failed", mutant.tests):
        return Verdict(mutant, "no verdict", f"fails without the bug: {failed[0]}")
    if unknown := [test for test in mutant.tests if not baseline.has(test)]:
        return Verdict(mutant, "does not apply", f"there is no test {unknown[0]}")
    if not baseline.those("passed", mutant.tests):
        return Verdict(mutant, "skipped", f"its tests are skipped here: {mutant.tests[0]}")
    began = time.monotonic()
    copy = Copy(whole.project, folder)
    try:
        mutant.apply(copy.project)
        tested = copy.test(mutant.tests, TRIAL_S_MAX, "-x")
        if tested.late:
            outcome, said = "timed out", (tested.called or [f"after {TRIAL_S_MAX} s"])[0]
        elif tested.code == FAILED and tested.called:
            outcome, said = "caught", tested.called[0]
        elif tested.code == PASSED:
            outcome, said = "SURVIVED", mutant.breaks
        else:
            outcome, said = "broken", tested.last_words()
    except Wrong as wrong:
        outcome, said = "does not apply", str(wrong)
    finally:
        copy.remove()
    return Verdict(mutant, outcome, said, time.monotonic() - began)


def end_processes(folder: Path) -> None:
    """End every process of the copies in a folder, by its id: a bug may have left some that nobody else ends."""
    until = time.monotonic() + ENDED_S_MAX
    while (pids := list(_processes(folder))) and time.monotonic() < until:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes(folder: Path) -> Iterable[int]:
    """Those whose program, environment or working folder is in there."""
    ours = os.fsencode(folder) + b"/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            if int(process.name) != os.getpid() and "\nState:\tZ" not in (process / "status").read_text():
                about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if ours in about + os.fsencode((process / "cwd").readlink()) + b"/":
                    yield int(process.name)


def _stands_for(id_: str, test: str) -> bool:
    return test.startswith(id_) and test[len(id_) : len(id_) + 1] in ("", "[", ":", "/")
