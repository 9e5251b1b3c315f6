"""A run as one HTML file that opens from disk: the page's own modules, and the documents that they would have read.

The file needs no server and can reach none: its content security policy allows nothing but what is in it, and of
scripts only those that were written into it, by their hashes. Texts of the journal have no secrets; changed lines,
which come from files, are cleaned here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec

import maos
from maos.app import Maos
from maos.errors import UNREADABLE, MaosError, NotFound
from maos.patterns import regex
from maos.redact import without_secrets
from maos.settings.schema import ServeSettings
from maos.tuples import NamedTuple
from maos.web import page_documents as p
from maos.web import requests as r
from maos.web.api import Call, ServerContext, Tagged, encode
from maos.web.conversion import task_info
from maos.web.endpoints import agents, assets, glance, runs

MOMENTS_MAX = 40
TASKS_MAX = 2_000
AGENTS_MAX = 200
EVENTS_MAX = 300
"""Of each agent, the newest so many events."""
TEXT_CHARS_MAX = 4_000
_IMPORT = regex(r'(from\s+|import\s+)"(\.{1,2}/[^"]+)"')
_FONT = regex(r'url\("\.\./(vendor/[^"]+)"\)')
_REPLACED = {"lib/api.js": "report/api.js", "lib/stream.js": "report/stream.js"}
_POLICY = "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; font-src data:; img-src data:"
_MODULE = 'import "page/report/app.js";'
_START = (
    'const start = document.createElement("script"); start.type = "module"; '
    f"start.textContent = '{_MODULE}'; document.head.append(start);"
)
"""A script with a hash adds the module: what it imports is then trusted by 'strict-dynamic', also from data URLs. In a
module that the parser has inserted, it would not be. Browsers that do not know that word use `data:`, others ignore
it beside that word."""
_VENDOR = {
    "preact": "preact/dist/preact.mjs",
    "preact/hooks": "preact/hooks/dist/hooks.mjs",
    "htm": "htm/dist/htm.mjs",
    "@preact/signals": "signals/dist/signals.mjs",
    "@preact/signals-core": "signals-core/dist/signals-core.mjs",
    "dagre": "dagre/dist/dagre.esm.js",
}


class RunReport(NamedTuple):
    """A report that was written."""

    run: str
    path: Path
    bytes: int
    agents: int
    moments: int


async def write(m: Maos, id: str, path: Path) -> RunReport:
    """Write the report of a run to a file, which is replaced.

    Example::

        from maos.web import report
        print((await report.write(m, "r-1", Path("r-1.html"))).bytes)
    """
    if command := assets.missing():
        raise NotFound("the third-party JavaScript of the page is not installed", hint=f"`{command}` fetches it")
    documents = await _Reader(m, id).read()
    text = _html(documents)
    await asyncio.to_thread(path.write_text, text, encoding="utf-8")
    return RunReport(documents["run"], path, len(text.encode()), len(documents["outputs"]), len(documents["moments"]))


class _Reader:
    """Reads what the page would read of a run, through the same endpoints."""

    def __init__(self, m: Maos, id: str) -> None:
        self._m = m
        self._id = id
        self._server = ServerContext(m, ServeSettings(), folder=Path.cwd(), is_executing=False)

    async def read(self) -> dict[str, Any]:
        run = await self._m.runs.get(self._id)
        names = list(run.tasks)[:TASKS_MAX]
        root = f"/runs/{run.id}"
        tasks = [task_info(run, name) for name in names]
        by_path: dict[str, Any] = {
            root: await self._get(runs.get_run, r.AtQuery()),
            f"{root}/timeline": await self._get(glance.show_timeline),
            f"{root}/discoveries": await self._get(glance.list_discoveries),
            f"{root}/diff": await self._patch(runs.diff_run),
            "/messages": await self._get(agents.list_messages, r.MessagesQuery(run=run.id, limit=500)),
            **{f"{root}/tasks/{each.name}": each for each in tasks},
        }
        outputs: dict[str, Any] = {}
        for each in [task for task in tasks if task.attempts][:AGENTS_MAX]:
            by_path |= await self._agent(each.agent)
            query = r.OutputQuery(limit=EVENTS_MAX, text_chars_max=TEXT_CHARS_MAX)
            outputs[each.agent] = await self._get(agents.read_output, query, id=each.agent)
        return {
            "run": run.id,
            "made": {"at_us": self._m.clock.now_us(), "version": maos.__version__},
            "by_path": {name: each for name, each in by_path.items() if each is not None},
            "tasks": tasks,
            "outputs": {name: each for name, each in outputs.items() if each is not None},
            "moments": await self._moments(run.version),
        }

    async def _agent(self, name: str) -> dict[str, Any]:
        return {
            f"/agents/{name}": await self._get(agents.get_agent, id=name),
            f"/agents/{name}/diff": await self._patch(agents.diff_agent, id=name),
        }

    async def _moments(self, newest: int) -> list[p.MomentInfo]:
        """Versions that are spread over the history, the newest among them."""
        count = min(MOMENTS_MAX, newest)
        versions = sorted({1 + round(n * (newest - 1) / max(1, count - 1)) for n in range(count)})
        found = [await self._get(glance.show_moment, r.AtQuery(at=str(each))) for each in versions]
        return [each for each in found if each is not None]

    async def _patch(self, handle: Any, **params: str) -> Any:
        found = await self._get(handle, r.PatchQuery(patch=True), **params)
        if found is not None:
            found.patch = without_secrets(found.patch, {})
        return found

    async def _get(self, handle: Any, query: Any = None, **params: str) -> Any:
        """A document as the API returns it; None when there is none, such as the files of a run on another machine."""
        call = Call(None, self._server, self._m, None, {"id": self._id, **params}, query, None)  # type: ignore[arg-type]
        try:
            found = await handle(call)
        except UNREADABLE:
            raise
        except (MaosError, OSError):
            return None
        return found.document if isinstance(found, Tagged) else found


# --- the file ----------------------------------------------------------------------------------------------------


def _html(documents: dict[str, Any]) -> str:
    imports = {name: _data_url((assets.FOLDER / "vendor" / path).read_text()) for name, path in _VENDOR.items()}
    for folder in ("lib", "components", "views", "report"):
        for path in sorted((assets.FOLDER / folder).glob("*.js")):
            name = path.relative_to(assets.FOLDER).as_posix()
            source = assets.FOLDER / _REPLACED.get(name, name)
            imports[f"page/{name}"] = _data_url(_with_names(source.read_text(), source))
    style = "\n".join(
        (assets.FOLDER / "css" / f"{name}.css").read_text() for name in ("base", "parts", "views", "charts")
    )
    style = _FONT.sub(lambda found: f'url("{_font(found[1])}")', style)
    data = msgspec.json.decode(encode(documents))
    theme, names = _script((assets.FOLDER / "theme.js").read_text()), _json({"imports": imports})
    hashes = " ".join(_hash(each) for each in (theme, names, _START, _MODULE))
    policy = _POLICY.format(scripts=f"'strict-dynamic' {hashes} data:")
    title = (data["by_path"].get(f"/runs/{data['run']}") or {}).get("request", "").strip().partition("\n")[0]
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        f"<title>{_text(title or data['run'])} · maos</title>\n"
        f"<script>{theme}</script>\n<style>\n{style}\n</style>\n"
        f'<script type="application/json" id="documents">{_json(data)}</script>\n'
        f'<script type="importmap">{names}</script>\n'
        f"<script>{_START}</script>\n"
        '</head>\n<body><div id="page"><noscript>This report needs JavaScript.</noscript></div></body>\n</html>\n'
    )


def _with_names(source: str, path: Path) -> str:
    """A module whose relative imports are names of the import map: data has no folder that they are relative to."""

    def named(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve().relative_to(assets.FOLDER.resolve()).as_posix()
        return f'{found[1]}"page/{target}"'

    return _IMPORT.sub(named, source)


def _data_url(source: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(source.encode()).decode()


def _font(path: str) -> str:
    return "data:font/woff2;base64," + base64.b64encode((assets.FOLDER / path).read_bytes()).decode()


def _json(data: Any) -> str:
    """JSON that ends no element that it is in, whatever its texts contain."""
    return (
        json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    )


def _script(source: str) -> str:
    return source.replace("</", "<\\/")


def _hash(script: str) -> str:
    """A script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
