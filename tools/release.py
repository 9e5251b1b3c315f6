"""Makes a release: `make release VERSION=x.y.z`. CONTRIBUTING.md says what comes before and after.

Checks that the tree is clean and the changelog has news, runs `make check` and `make test`, sets the version, builds
maos and the distributions beside it, which have the same version, installs the wheels in a new environment and tries
them out; then commits and tags. Nothing is fetched and nothing is pushed. With --dry-run the project stays as it is:
its checks and tests are not run, and all else happens in a copy.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

UNRELEASED = "## [Unreleased]\n"
BESIDE = ("distributions/maos-demo", "distributions/maos-import-legacy", "distributions/maos-testing")
VERSION_LINES = [
    ("pyproject.toml", 'version = "{}"'),
    ("src/maos/__init__.py", '__version__ = "{}"'),
    *((f"{each}/pyproject.toml", line) for each in BESIDE for line in ('version = "{}"', '    "maos=={}",')),
]

VENDOR = Path("src/maos/web/page/vendor")
"""The third-party JavaScript of the page: fetched, not in git, and a part of the wheel."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return what a command prints; end the release when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_tree(root: Path, version: str) -> str:
    """Refuse what cannot be released; return the present version."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version!r} is not a version: make release VERSION=x.y.z")
    if run("git", "status", "--porcelain", cwd=root):
        sys.exit("the tree has changes that are not committed: commit them, or put them aside with `git stash`")
    if run("git", "tag", "--list", f"v{version}", cwd=root):
        sys.exit(f"there is a tag v{version} already: choose the next version")
    present = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert present is not None
    if _numbers(version) < _numbers(present[1]):
        sys.exit(f"{version} is older than {present[1]}, which pyproject.toml has")
    news = (root / "CHANGELOG.md").read_text().partition(UNRELEASED)[2].partition("\n## ")[0]
    if not news.strip():
        sys.exit(f"CHANGELOG.md has nothing below {UNRELEASED.strip()!r}: say what a user would notice")
    return present[1]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def set_version(root: Path, present: str, version: str) -> list[str]:
    """Write the version into every file that has it, and date the news; return the files."""
    for name, line in VERSION_LINES:
        _replace(root / name, line.format(present) + "\n", line.format(version) + "\n")
    today = datetime.now(UTC).date().isoformat()
    _replace(root / "CHANGELOG.md", UNRELEASED, f"{UNRELEASED}\n## [{version}] - {today}\n")
    return [*dict(VERSION_LINES), "CHANGELOG.md"]


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{path.name} has {old.strip()!r} {text.count(old)} times, not once")
    path.write_text(text.replace(old, new))


@contextlib.contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """Yield a folder with what is committed and the third-party JavaScript, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="maos-release-") as folder:
        archive = Path(folder) / "tree.tar"
        run("git", "archive", "--output", archive, "HEAD", cwd=root)
        copy = Path(folder) / "tree"
        copy.mkdir()
        run("tar", "--extract", "--file", archive, cwd=copy)
        if not (root / VENDOR / ".ready").is_file():
            sys.exit(f"{VENDOR} is not there: run `make {VENDOR}/.ready`")
        shutil.copytree(root / VENDOR, copy / VENDOR)
        yield copy


def build(tree: Path) -> list[Path]:
    """Build the source distributions and the wheels with this environment."""
    for each in (".", *BESIDE):
        run(sys.executable, "-m", "hatchling", "build", "--directory", tree / "dist", cwd=tree / each)
    return sorted((tree / "dist").iterdir())


def check_content(wheels: list[Path], tree: Path) -> None:
    """Refuse a wheel that lacks a file of its package, be it a module or not."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            inside = set(file.namelist())
        [package] = tree.glob(f"**/src/{wheel.name.split('-')[0]}")
        ours = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
        if missing := sorted(ours - inside):
            sys.exit(f"{wheel.name} lacks {', '.join(missing)}")


def try_out(wheels: list[Path], version: str) -> None:
    """Install the wheels in a new environment, with the pinned packages of this one, and use them."""
    with tempfile.TemporaryDirectory(prefix="maos-wheel-") as folder:
        home = Path(folder)
        run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=home)
        python, command = home / "venv/bin/python", home / "venv/bin/maos"
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
        run(*pip, "install", "--quiet", "--no-index", "--no-deps", *wheels, cwd=home)
        # Only the folder is added: its own .pth files, and with them the editable maos, are not followed.
        packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
        (packages / "pinned.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run(*pip, "check", cwd=home)
        for name in ("maos", "maos_demo.command", "maos_import_legacy.importer", "maos_testing.crash"):
            code = f"import importlib; print(importlib.import_module('{name}').__file__)"
            found = run(python, "-P", "-c", code, cwd=home).strip()
            if not Path(found).is_relative_to(packages):
                sys.exit(f"the wheel was not tried, but {found}")
        clean = {"MAOS_HOME": str(home / "home"), "PYTHONPATH": ""}
        if (said := run(command, "--version", cwd=home, **clean).strip()) != f"maos {version}":
            sys.exit(f"`maos --version` says {said!r}")
        said = run(command, "agent", "run", "--name", "smoke", "--", "echo", "it works", cwd=home, **clean)
        if "it works" not in said:
            sys.exit(f"an agent that prints `it works` gave {said!r}")
        (home / "notes.txt").write_text("some text")
        refused = subprocess.run(
            [command, "--db", "other.db", "import", "notes.txt"], cwd=home, capture_output=True, text=True, check=False
        )
        if "maos-cli" not in refused.stderr:
            sys.exit(f"`maos import` did not find the importer for maos-cli: {refused.stderr!r}")
        if "--keep" not in (said := run(command, "demo", "--help", cwd=home, **clean)):
            sys.exit(f"`maos demo` did not find the demo: {said!r}")
        run(command, "state", "verify", cwd=home, **clean)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a release.")
    parser.add_argument("version", help="x.y.z")
    parser.add_argument("--dry-run", action="store_true", help="try it in a copy; change, commit and tag nothing")
    options = parser.parse_args()
    root, version = Path.cwd(), options.version
    say(f"look at the tree and the changelog, for {version}")
    present = check_tree(root, version)
    if not options.dry_run:
        for target in ("check", "test"):
            say(f"make {target}")
            if subprocess.run(["make", "--no-print-directory", target], cwd=root, check=False).returncode:
                sys.exit(f"make {target} failed: nothing was changed")
    with copy_of(root) as copy:
        files = set_version(copy, present, version)
        say("build")
        built = build(copy)
        for each in built:
            say(f"  {each.name}, {each.stat().st_size / 1000:.0f} kB")
        say("install the wheels in a new environment and try them out")
        wheels = [each for each in built if each.suffix == ".whl"]
        check_content(wheels, copy)
        try_out(wheels, version)
        if options.dry_run:
            say(f"this would change {', '.join(files)}, commit them and tag v{version}; nothing was changed")
            return
        for name in files:
            shutil.copy(copy / name, root / name)
        (root / "dist").mkdir(exist_ok=True)
        for each in built:
            shutil.copy(each, root / "dist")
    run("git", "commit", "--quiet", "--message", f"chore(release): {version}", "--", *files, cwd=root)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"maos {version}", cwd=root)
    say(f"committed and tagged v{version}, built into dist/; to publish: git push --follow-tags")


if __name__ == "__main__":
    main()
