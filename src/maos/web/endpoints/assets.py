"""The files of the page: its markup, style sheets, modules, and the third-party JavaScript and fonts in `vendor`.

They hold no data of any run, so they need no credential: a link of a notification opens the page from anywhere, and
what it then reads needs one. Nothing outside the folder of the page is ever read.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from functools import cache
from pathlib import Path

from starlette.responses import Response

from maos.errors import NotFound
from maos.patterns import regex
from maos.tuples import NamedTuple
from maos.web.api import GZIP, Call, accepts_gzip
from maos.web.guard import HEADERS, PART
from maos.web.problems import RequestRefused

FOLDER = Path(__file__).parent.parent / "page"
VENDOR = "vendor"
COMMAND = "make src/maos/web/page/vendor/.ready"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""The files that are given out, by their endings."""
PARTS = (".css", ".js", ".mjs", ".woff2")
"""Files that a browser shows as text when it is sent to them, and never as a document."""
_INLINE = regex(r'<script type="importmap">(.*?)</script>', re.DOTALL)


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    type: str
    tag: str
    packed: bytes
    """The content compressed by gzip; empty when that is no shorter."""


def missing() -> str:
    """Which command fetches the third-party JavaScript of the page; empty when it is there."""
    return "" if (FOLDER / VENDOR / "preact").is_dir() else COMMAND


async def show_home(call: Call) -> Response:
    """The page. It holds nothing but the addresses of its files; what it shows, it reads from the API."""
    if command := missing():
        raise NotFound("the third-party JavaScript of the page is not installed", hint=f"`{command}` fetches it")
    response = _response(call, "index.html")
    response.headers["Content-Security-Policy"] = policy()
    return response


async def show_file(call: Call) -> Response:
    """A file of the page."""
    name = call.params["path"]
    response = _response(call, name)
    if name.endswith(PARTS):
        call.request.scope[PART] = True
    return response


def policy() -> str:
    """The content security policy of the page: that of every response, and the one inline script, the import map."""
    markup = _file("index.html").content.decode()
    found = _INLINE.search(markup)
    assert found is not None
    digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
    return HEADERS["Content-Security-Policy"].replace("script-src 'self'", f"script-src 'self' 'sha256-{digest}'")


def _response(call: Call, name: str) -> Response:
    file = _file(name)
    headers = {"ETag": f'"{file.tag}"', "Cache-Control": "no-cache"}  # kept by the browser, and compared each time
    if call.request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if file.packed and accepts_gzip(call.request):
        return Response(file.packed, 200, {**headers, **GZIP}, file.type)
    return Response(file.content, 200, headers, file.type)


def _file(name: str) -> PageFile:
    path = _paths().get(name)
    if path is None:
        raise RequestRefused(404, f"the page has no file {name!r:.100}")
    return _read(path, path.stat().st_mtime_ns)


@cache
def _paths() -> dict[str, Path]:
    """Every file that is given out, by its name: a name that is not here names no file, whatever it contains."""
    files = [each for each in FOLDER.rglob("*") if each.is_file() and each.suffix in TYPES]
    return {each.relative_to(FOLDER).as_posix(): each for each in files}


@cache
def _read(path: Path, _changed_ns: int) -> PageFile:
    content = path.read_bytes()
    packed = gzip.compress(content, mtime=0)
    is_shorter = len(packed) < 0.9 * len(content)
    return PageFile(
        content, TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:32], packed if is_shorter else b""
    )
