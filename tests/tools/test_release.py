"""`make release`: what it refuses, what a dry run leaves alone, and what a release changes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import release

ROOT = Path(__file__).parents[2]
NEWS = f"# Changelog\n\n{release.UNRELEASED}\n### Added\n\n- Something.\n\n## [0.0.1] - 2026-01-01\n\n- Old.\n"
MAKEFILE = "check test:\n\t@echo $@ >> ../made\n"


def git(folder: Path, *words: str) -> str:
    return release.run("git", "-c", "user.name=x", "-c", "user.email=x@x", *words, cwd=folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package with a changelog and a Makefile of its own, all of it committed."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "x")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "x@x")
    folder = tmp_path / "project"
    for name in ("src", "distributions"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    (folder / "CHANGELOG.md").write_text(NEWS)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".gitignore").write_text("/dist/\n/src/maos/web/page/vendor/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.mark.soak
def test_a_dry_run_builds_and_tries_the_wheel_and_changes_nothing(project: Path) -> None:
    command = [sys.executable, ROOT / "tools" / "release.py", "98.7.6", "--dry-run"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("maos", "maos_demo", "maos_import_legacy", "maos_testing"):
        assert f"{name}-98.7.6-py3-none-any.whl" in done.stdout
        assert f"{name}-98.7.6.tar.gz" in done.stdout
    assert "commit them and tag v98.7.6; nothing was changed" in done.stdout
    assert git(project, "status", "--porcelain", "--ignored") == "!! src/maos/web/page/vendor/\n"
    assert (git(project, "tag"), git(project, "log", "--format=%s")) == ("", "first\n")
    assert not (project.parent / "made").exists()


def test_a_release_is_checked_tested_committed_and_tagged(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building and trying are the same in a dry run, and left out here."""

    def built(tree: Path) -> list[Path]:
        (tree / "dist").mkdir()
        (tree / "dist" / "maos.whl").write_text((tree / "pyproject.toml").read_text())
        return [tree / "dist" / "maos.whl"]

    monkeypatch.setattr(release, "build", built)
    monkeypatch.setattr(release, "check_content", lambda wheels, tree: None)
    monkeypatch.setattr(release, "try_out", lambda wheels, version: None)
    monkeypatch.setattr(sys, "argv", ["release.py", "98.7.6"])
    monkeypatch.chdir(project)
    release.main()
    assert (project.parent / "made").read_text().split() == ["check", "test"]
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "log", "--format=%s") == "chore(release): 98.7.6\nfirst\n"
    assert git(project, "tag", "--points-at", "HEAD") == "v98.7.6\n"
    assert '\nversion = "98.7.6"\n' in (project / "dist" / "maos.whl").read_text()
    assert '\n__version__ = "98.7.6"\n' in (project / "src/maos/__init__.py").read_text()
    for each in release.BESIDE:
        assert {'version = "98.7.6"', '    "maos==98.7.6",'} <= set(
            (project / each / "pyproject.toml").read_text().splitlines()
        )
    news = (project / "CHANGELOG.md").read_text()
    assert news.startswith(f"# Changelog\n\n{release.UNRELEASED}\n## [98.7.6] - 20")
    assert news.endswith(NEWS.partition(release.UNRELEASED)[2])


@pytest.mark.parametrize(
    ("version", "spoil", "why"),
    [
        ("1.2", "true", "'1.2' is not a version"),
        ("0.0.1", "true", "0.0.1 is older than "),
        ("98.7.6", "echo x >> README.md", "not committed"),
        ("98.7.6", "git tag v98.7.6", "a tag v98.7.6 already"),
        ("98.7.6", "sed -i '/Added/d; /Something/d' CHANGELOG.md; git commit -qam x", "CHANGELOG.md has nothing below"),
    ],
)
def test_what_is_not_ready_is_refused(project: Path, version: str, spoil: str, why: str) -> None:
    subprocess.run(["sh", "-c", spoil], cwd=project, check=True)
    with pytest.raises(SystemExit, match=why):
        release.check_tree(project, version)


def test_a_wheel_that_lacks_a_file_is_refused(project: Path) -> None:
    pyproject = project / "pyproject.toml"
    pyproject.write_text(pyproject.read_text() + '\n[tool.hatch.build]\nexclude = ["*.sql"]\n')
    wheels = [each for each in release.build(project) if each.suffix == ".whl"]
    with pytest.raises(SystemExit, match=r"lacks maos/store/queries\.sql"):
        release.check_content(wheels, project)
