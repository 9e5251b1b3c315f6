"""`make` installs what was pinned, and no package that was altered or that no list names (A24)."""

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLING = ("bench", "pins", "test", "test-agents", "test-projects")
"""Targets that between them need every environment and every folder of fetched packages."""
PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,-]+\])?==[^\s;]+( ?; [^\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+")
FETCHING = {"pip", "npm", "npx", "curl", "wget"}
LOCAL = ("--no-build-isolation", "--no-deps", "--editable")
"""How maos itself is installed, from this directory."""


def commands() -> list[list[str]]:
    """What `make` would run, to install everything, that can fetch something."""
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", *INSTALLING, "PYTHON=python3", "VENV=.venv"],
        cwd=ROOT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = shown.stdout.replace("\\\n", " ").splitlines()
    parts = [shlex.split(line) for line in lines if not line.startswith("echo ") and "pip compile" not in line]
    return [words for words in parts if FETCHING & {Path(word).name for word in words}]


def from_lists() -> list[list[str]]:
    """Commands that install or fetch packages of others from a list, with pip."""
    found = [each for each in commands() if "pip" in each and {"install", "download"} & set(each)]
    return [each for each in found if not set(LOCAL) <= set(each)]


def requirements(path: Path) -> list[str]:
    lines = path.read_text().replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def test_every_list_that_make_installs_from_has_a_version_and_a_hash_for_each_package() -> None:
    """A24."""
    lists = {each[each.index("-r") + 1] for each in from_lists()}
    assert lists == {str(path.relative_to(ROOT)) for path in (ROOT / "requirements").glob("*.txt")}
    for name in lists:
        packages = requirements(ROOT / name)
        assert packages, name
        assert [each for each in packages if not PINNED.fullmatch(each)] == [], name


def test_make_fetches_nothing_but_from_lists_with_hashes() -> None:
    """A24: pip only with hashes, npm only through the script that compares them, nothing else."""
    assert [each for each in from_lists() if "--require-hashes" not in each] == []
    others = [each for each in commands() if "pip" not in each]
    assert {each[1] for each in others} == {"tools/npm_packages.py"}
    assert {each[-1] for each in others} == {str(path.relative_to(ROOT)) for path in ROOT.glob("requirements/*.npm")}


def a_wheel(folder: Path, name: str, *, needs: str = "") -> Path:
    """A package with one module, whose bytes are stored as they are."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    required = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": "KIND = 'pinned'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{required}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    recorded = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*recorded, f"{info}/RECORD,,", ""])
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as file:
        for path, text in files.items():
            file.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def pinned(wheel: Path) -> str:
    return f"{wheel.name.partition('-')[0]}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def install(tmp_path: Path, lines: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Install a list as `make` installs the one of the tests, from a folder of wheels; what it said, and what is
    installed then."""
    [command] = [each for each in from_lists() if "requirements/dev.txt" in each]
    listed, into = tmp_path / "list.txt", tmp_path / "into"
    listed.write_text(lines)
    options = [str(listed) if each == "requirements/dev.txt" else each for each in command[1:] if each != "--quiet"]
    offline = ["--no-index", "--no-cache-dir", "--find-links", str(tmp_path / "wheels"), "--target", str(into)]
    done = subprocess.run(
        [sys.executable, *options, *offline],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": os.defpath, "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull},
    )  # fmt: skip
    return done, {path.name for path in into.glob("*.py")}


def test_a_package_as_it_was_pinned_is_installed_and_none_that_it_asks_for_besides(tmp_path: Path) -> None:
    """A24: a dependency that no list names does not come along."""
    a_wheel(tmp_path / "wheels", "stranger")
    done, installed = install(tmp_path, pinned(a_wheel(tmp_path / "wheels", "tool", needs="stranger")))
    assert (done.returncode, installed) == (0, {"tool.py"}), done.stderr


@pytest.mark.parametrize("attack", ["altered", "swapped", "without a hash"])
def test_a_package_that_is_not_the_pinned_one_is_not_installed(tmp_path: Path, attack: str) -> None:
    """A24: one byte is another, another package has its name, or the list does not say what it must be."""
    wheel = a_wheel(tmp_path / "wheels", "tool")
    lines = pinned(a_wheel(tmp_path / "wheels", "first")) + pinned(wheel)
    if attack == "altered":
        content = wheel.read_bytes()
        wheel.write_bytes(content.replace(b"'pinned'", b"'Pinned'", 1))
        assert len(wheel.read_bytes()) == len(content)
    elif attack == "swapped":
        a_wheel(tmp_path / "wheels", "tool", needs="first")
    else:
        lines = re.sub(r"(tool==1\.0) .*", r"\1", lines)
    done, installed = install(tmp_path, lines)
    wanted = "Hashes are required" if attack == "without a hash" else "DO NOT MATCH THE HASHES"
    assert wanted in done.stderr
    assert (done.returncode, installed) == (1, set())
