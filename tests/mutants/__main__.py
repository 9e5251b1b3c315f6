"""Plants the bugs of the list, one at a time, each in a copy of the project, and tells which the tests caught.

The working tree is never touched. First the named tests run without any bug; then each bug gets a fresh copy.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TextIO

from tests.mutants.planted import PROJECT, Mutant, Wrong, chosen, read
from tests.mutants.trial import BASELINE_S_MAX, FAILED, PASSED, Copy, Verdict, end_processes, try_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", usage='make mutants [ARGS="[options] [name ...]"]')
    parser.description = "plant the bugs of tests/mutants/*.toml one by one and see that the tests notice each"
    parser.add_argument("name", nargs="*", help="of a bug or of a part, such as store; all when none is given")
    parser.add_argument("--list", action="store_true", help="only tell what is in the list")
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time (default 2)")
    asked = parser.parse_args()
    try:
        mutants = chosen(read(), asked.name)
        if asked.list:
            return show(mutants, asked.json)
        verdicts = execute(PROJECT, mutants, asked.jobs, sys.stderr if asked.json else sys.stdout)
    except Wrong as wrong:
        print(f"make mutants: {wrong}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if asked.json:
        print(json.dumps([_plain(verdict) for verdict in verdicts], indent=1))
    return 0 if all(verdict.good for verdict in verdicts) else 1


def show(mutants: Sequence[Mutant], as_json: bool) -> int:
    if as_json:
        print(json.dumps([vars(mutant) for mutant in mutants], indent=1))
    else:
        for mutant in mutants:
            print(f"{mutant.name:42}  {mutant.breaks}")
    return 0


def execute(project: Path, mutants: Sequence[Mutant], jobs: int, out: TextIO = sys.stdout) -> list[Verdict]:
    """Try out all of them, so many at a time; one line for each as it is known, then a summary."""

    def say(text: str) -> None:
        print(text, file=out, flush=True)

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as root:
        whole = Copy(project, Path(root) / "0")
        try:
            whole.check()
            tests = sorted({test for mutant in mutants for test in mutant.tests})
            say(f"==> without a bug: {len(tests)} tests or groups of tests, {jobs} at a time")
            baseline = whole.test(tests, BASELINE_S_MAX, *(("-n", str(jobs)) if jobs > 1 else ()))
            if baseline.code not in (PASSED, FAILED):
                raise Wrong(f"the tests could not be run without a bug:\n{baseline.said[-2000:]}")
            say(f"==> {len(mutants)} planted bugs, {jobs} at a time")
            verdicts = []
            with ThreadPoolExecutor(jobs) as pool:
                try:
                    trials = [
                        pool.submit(try_out, mutant, whole, baseline, Path(root) / str(number))
                        for number, mutant in enumerate(mutants, 1)
                    ]
                    for number, trial in enumerate(as_completed(trials), 1):
                        verdicts.append(verdict := trial.result())
                        say(f"{number:3}/{len(mutants)}  {_line(verdict)}")
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    end_processes(Path(root))  # else the pool would wait for them
                    raise
        finally:
            whole.remove()
    counts = Counter(verdict.outcome for verdict in verdicts)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    say(f"==> {summary} (of {len(mutants)}, in {time.monotonic() - began:.0f} s)")
    for verdict in verdicts:
        if not verdict.good:
            say(f"    {verdict.outcome}: {verdict.mutant.name}: {verdict.said}")
    return verdicts


def _line(verdict: Verdict) -> str:
    return f"{verdict.outcome:14}  {verdict.mutant.name:42}  {verdict.took_s:5.1f} s  {verdict.said}"


def _plain(verdict: Verdict) -> dict[str, object]:
    return {
        **vars(verdict.mutant),
        "outcome": verdict.outcome,
        "said": verdict.said,
        "took_s": round(verdict.took_s, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
