"""Runs the test suite on each Python that pyproject.toml names: `make test-pythons`.

An interpreter is taken from PATH or from the versions that pyenv has installed. Each gets an environment of its own,
.venv-3.X, built from requirements/dev.txt as .venv is. Arguments are given to pytest.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ONLY_VERSION = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def supported() -> list[str]:
    """Return the versions of Python that the project supports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [found[1] for each in project["classifiers"] if (found := ONLY_VERSION.fullmatch(each))]


def interpreter(version: str) -> Path | None:
    """Return an interpreter of this version that starts; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(pyenv.glob(f"{version}.*/bin/python"), key=_number, reverse=True)
    on_path = shutil.which(f"python{version}")
    for candidate in ([Path(on_path)] if on_path else []) + installed:
        # A shim of pyenv is on PATH even when its version is not selected; then it only prints an error.
        says = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        said = subprocess.run(says, capture_output=True, check=False)
        if said.returncode == 0 and said.stdout.decode().strip() == version:
            return candidate
    return None


def _number(python: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", python.parents[1].name)]


def test_on(version: str, python: Path, arguments: list[str]) -> bool:
    """Run the suite on one interpreter; return whether it passes."""
    venv = f".venv-{version}"
    made = ["make", "--no-print-directory", f"PYTHON={python}", f"VENV={venv}", f"{venv}/.ready"]
    tested = [f"{venv}/bin/python", "-m", "pytest", *arguments]
    return all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in (made, tested))


def main(arguments: list[str]) -> int:
    """Test on each version; return 0 when at least one was found and the suite passed on all of them."""
    outcomes: dict[str, str] = {}
    for version in supported():
        python = interpreter(version)
        if python is None:
            outcomes[version] = "not found, neither on PATH nor among the versions of pyenv"
            continue
        print(f"==> Python {version}: {python}", flush=True)
        began = time.monotonic()
        passed = test_on(version, python, arguments)
        outcomes[version] = f"{'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s"
    for version, outcome in outcomes.items():
        print(f"==> Python {version}: {outcome}")
    found = [outcome for outcome in outcomes.values() if not outcome.startswith("not found")]
    return 0 if found and all(outcome.startswith("passed") for outcome in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
