"""The script behind `make test-agents`: what it fetches is what was pinned, and stays in its folder."""

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tests.agents_large import install

ROOT = Path(__file__).parents[3]


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
    package = install.Package("tool", "some-tool", "1.0.0", integrity)
    npm = an_npm(tmp_path, packed)
    for _ in range(2):
        install.install(package, tmp_path / "into", npm)
    folder = tmp_path / "into" / "tool" / "package"
    assert [(folder / name).stat().st_mode & 0o7777 for name in ("bin/tool", "readme")] == [0o755, 0o644]
    assert (tmp_path / "asked").read_text().count("\n") == 1
    assert sorted(path.name for path in (tmp_path / "into").iterdir()) == ["tool"]


def test_another_version_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for version, name in (("1", "old"), ("2", "new")):
        packed = tmp_path / f"{name}.tgz"
        integrity = archive(packed, a_file(f"package/{name}"))
        install.install(install.Package("tool", "t", version, integrity), tmp_path / "into", an_npm(tmp_path, packed))
    assert [path.name for path in (tmp_path / "into" / "tool" / "package").iterdir()] == ["new"]


def test_a_package_with_another_hash_is_not_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "p.tgz"
    archive(packed, a_file("package/bin/tool"))
    package = install.Package("tool", "some-tool", "1.0.0", "sha512-AAAA")
    with pytest.raises(install.Refused, match="not what it was"):
        install.install(package, tmp_path / "into", an_npm(tmp_path, packed))
    assert not list((tmp_path / "into").iterdir())


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
            install.Package("tool", "t", "1", "sha512-x"), tmp_path / "into", an_npm(tmp_path, tmp_path / "none")
        )


def test_the_list_is_understood_and_names_no_place() -> None:
    text = (ROOT / "requirements" / "agents.npm").read_text()
    assert {package.folder for package in install.read_list(text)} == {"codex", "opencode"}
    assert "://" not in text
    with pytest.raises(install.Refused):
        install.read_list("codex @openai/codex latest")
