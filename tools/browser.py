"""Unpacks the Chromium of requirements/browser.npm: `browser.py --node NODE FOLDER`.

The package has the browser, its libraries, a font and a software renderer as Brotli archives. node decompresses them,
because Python's standard library cannot. What is there already is left as it is.
"""

import argparse
import io
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

DONE = ".unpacked"
_DECOMPRESS = """
const zlib = require("node:zlib"), fs = require("node:fs");
fs.createReadStream(process.argv[1]).pipe(zlib.createBrotliDecompress()).pipe(process.stdout);
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>{more}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


def main() -> int:
    """Unpack the browser; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--node", type=Path, required=True)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    unpack(arguments.folder.absolute(), arguments.node.absolute())
    return 0


def unpack(folder: Path, node: Path) -> None:
    """Write `chrome`, its libraries (`lib`) and fonts into the folder of the package."""
    if (folder / DONE).is_file():
        return
    packed = folder / "bin"
    chrome = folder / "chrome"
    chrome.write_bytes(_decompressed(packed / "chromium.br", node))
    chrome.chmod(0o755)
    for name in ("al2023", "fonts", "swiftshader"):
        _unpack(_decompressed(packed / f"{name}.tar.br", node), folder)
    fonts = _FONTS.format(fonts=folder / "fonts", more=folder.parent / "fonts", cache=folder / "font-cache")
    (folder / "fonts.conf").write_text(fonts, encoding="utf-8")
    (folder / DONE).touch()


def _decompressed(path: Path, node: Path) -> bytes:
    return subprocess.run([node, "-e", _DECOMPRESS, path], check=True, stdout=subprocess.PIPE).stdout


def _unpack(archive: bytes, into: Path) -> None:
    """Write the plain files of an archive; links become copies, as the libraries' names are links."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                sys.exit(f"the browser's archive holds {member.name!r}, which is outside")
            if member.isdir():
                continue
            source = members.extractfile(member)
            if source is None:
                sys.exit(f"the browser's archive holds {member.name!r}, which is no file")
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read())
            target.chmod(0o755 if member.mode & 0o111 else 0o644)


if __name__ == "__main__":
    sys.exit(main())
