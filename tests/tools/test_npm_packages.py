"""The script that fetches npm packages: what it fetches is what was pinned, and stays in its folder."""

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tools import npm_packages as install

ROOT = Path(__file__).parents[2]


def archive(path: Path, *members: tarfile.TarInfo) -> str:
    """Write an archive; its hash as npm writes it."""
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            content = b"x" * member.size
            file.addfile(member, io.BytesIO(content))
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def a_file(name: str, **fields: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 4
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def an_npm(folder: Path, brings: Path) -> Path:
    """An npm that brings a file, and counts how often it was asked."""
    npm = folder / "npm"
    npm.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --pack-destination ]; do shift; done\ncp {brings} "$2"/\necho >> {folder}/asked\n'
    )
    npm.chmod(0o755)
    return npm


def test_a_package_is_fetched_once_and_only_programs_can_be_run(tmp_path: Path) -> None:
    packed = tmp_path / "p.tgz"
    integrity = archive(packed, a_file("package/bin/tool", mode=0o4755), a_file("package/readme", mode=0o666))
    package = install.Package("tool", "some-tool", "1.0.0", integrity, "MIT")
    npm = an_npm(tmp_path, packed)
    for _ in range(2):
        install.install(package, tmp_path / "into", npm)
    folder = tmp_path / "into" / "tool"
    assert [(folder / name).stat().st_mode & 0o7777 for name in ("bin/tool", "readme")] == [0o755, 0o644]
    assert (tmp_path / "asked").read_text().count("\n") == 1
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == ["tool"]


def test_another_version_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for version, name in (("1", "old"), ("2", "new")):
        packed = tmp_path / f"{name}.tgz"
        integrity = archive(packed, a_file(f"package/{name}"))
        install.install(
            install.Package("tool", "t", version, integrity, "MIT"), tmp_path / "into", an_npm(tmp_path, packed)
        )
    assert sorted(path.name for path in (tmp_path / "into" / "tool").iterdir()) == [install.DONE, "new"]


@pytest.mark.parametrize("is_altered", [False, True])
def test_a_package_that_was_altered_by_one_bit_is_not_unpacked(tmp_path: Path, is_altered: bool) -> None:
    """A24: and those after it in the list are not fetched; what is there already stays."""
    packed, listed, into = tmp_path / "p.tgz", tmp_path / "list.npm", tmp_path / "into"
    integrity = archive(packed, a_file("package/bin/tool"))
    listed.write_text(f"one some-tool 1.0.0 {integrity} MIT\ntwo some-tool 1.0.0 {integrity} MIT\n")
    command = [sys.executable, install.__file__, "--npm", str(an_npm(tmp_path, packed)), "--into", str(into)]
    first = subprocess.run([*command, str(listed)], capture_output=True, text=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    listed.write_text(listed.read_text().replace("two ", "three ") + f"four some-tool 1.0.0 {integrity} MIT\n")
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= is_altered
    packed.write_bytes(content)
    done = subprocess.run([*command, str(listed)], capture_output=True, text=True, check=False)
    assert (done.returncode, "some-tool 1.0.0 is not what it was" in done.stderr) == (is_altered, is_altered)
    wanted = ["one", "two"] if is_altered else ["four", "one", "three", "two"]
    assert sorted(path.name for path in into.iterdir()) == wanted


@pytest.mark.parametrize(
    "member",
    [
        a_file("../outside"),
        a_file("/outside"),
        a_file("package/../../outside"),
        a_file("package/link", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        a_file("package/link", type=tarfile.LNKTYPE, linkname="../outside", size=0),
        a_file("package/pipe", type=tarfile.FIFOTYPE, size=0),
    ],
)
def test_a_package_cannot_write_elsewhere(tmp_path: Path, member: tarfile.TarInfo) -> None:
    packed = tmp_path / "p.tgz"
    archive(packed, member)
    with pytest.raises(install.Refused):
        install.unpack(packed, tmp_path / "deep" / "into")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "deep" / "outside").exists()


def test_an_npm_that_brings_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(install.Refused, match="network"):
        install.install(
            install.Package("tool", "t", "1", "sha512-x", "MIT"), tmp_path / "into", an_npm(tmp_path, tmp_path / "none")
        )


def test_only_the_files_of_the_list_are_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "p.tgz"
    integrity = archive(packed, a_file("package/dist/it.js"), a_file("package/dist/it.map"), a_file("package/LICENSE"))
    package = install.Package("it", "it", "1.0.0", integrity, "MIT", ("dist/it.js", "LICENSE"))
    install.install(package, tmp_path / "into", an_npm(tmp_path, packed))
    found = {str(path.relative_to(tmp_path / "into" / "it")) for path in (tmp_path / "into").rglob("*.*")}
    assert found == {install.DONE, "dist/it.js"}
    with pytest.raises(install.Refused, match=r"does not hold dist/other\.js"):
        install.unpack(packed, tmp_path / "other", ("dist/other.js",))


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("agents.npm", {"codex", "opencode", "claude-agent-acp", "qwen-code", "gemini-cli"}),
        ("browser.npm", {"chromium", "axe"}),
        ("page.npm", {"preact", "htm", "signals", "signals-core", "dagre"}),
    ],
)
def test_a_list_is_understood_and_names_no_place(name: str, folders: set[str]) -> None:
    text = (ROOT / "requirements" / name).read_text()
    assert {package.folder.rpartition("/")[2] for package in install.read_list(text)} >= folders
    assert "://" not in text


def test_a_line_without_a_hash_or_a_licence_is_refused() -> None:
    for line in ("codex @openai/codex latest", "htm htm 3.1.1 sha512-AAAA"):
        with pytest.raises(install.Refused):
            install.read_list(line)
