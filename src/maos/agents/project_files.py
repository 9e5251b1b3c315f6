"""What a project has for the programs of agents: instructions, skills and MCP servers.

A repository may be hostile, so nothing here is used unless the person says so. Links are not followed out of the
project, and variables in a file stand only for variables that the person has given to the agents.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maos.agents.contract import McpServer
from maos.errors import InvalidInput
from maos.files import private_folder, read_bounded
from maos.patterns import regex

TEXTS = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md")
SERVERS = ".mcp.json"
TEXT_BYTES_MAX = 256 << 10
SERVERS_BYTES_MAX = 1 << 20
_VARIABLE = regex(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def root_of(folder: Path) -> Path:
    """The root of the worktree that a folder is in; the folder itself outside of one."""
    return next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), folder)


def present(folder: Path) -> list[str]:
    """The names of the files that a project has for agents."""
    root = root_of(folder)
    return [name for name in (*TEXTS, SERVERS, ".claude", ".codex") if os.path.lexists(root / name)]


def read_instructions(folder: Path) -> str:
    """The instructions that a project has for agents: each different text of its files, below its name."""
    root = root_of(folder)
    found: dict[bytes, str] = {}
    for place in dict.fromkeys((root, folder)):
        for name in TEXTS:
            content = _read(place / name, root, TEXT_BYTES_MAX)
            if content is not None and content.strip():
                found.setdefault(content.strip(), str((place / name).relative_to(root)))
    texts = [f"The project's {name} says:\n\n{text.decode('utf-8', 'replace')}" for text, name in found.items()]
    return "\n\n".join(texts)


def read_servers(folder: Path, variables: Mapping[str, str]) -> list[McpServer]:
    """The MCP servers in the project's `.mcp.json`; InvalidInput when it names one that cannot be given to an agent."""
    root = root_of(folder)
    content = _read(root / SERVERS, root, SERVERS_BYTES_MAX)
    if content is None:
        return []
    try:
        data = json.loads(content)
        entries = data["mcpServers"]
        return [_server(name, entry, variables) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{SERVERS} of the project is not valid: {error}", hint="fix it, or leave out mcp"
        ) from error


def _server(name: str, entry: Mapping[str, Any], variables: Mapping[str, str]) -> McpServer:
    if not isinstance(entry.get("command"), str):
        raise InvalidInput(
            f"the server {name!r} of {SERVERS} is no command", hint="only commands can be given to agents"
        )

    def filled(text: object) -> str:
        def value(found: re.Match[str]) -> str:
            if found[1] not in variables and found[2] is None:
                raise InvalidInput(
                    f"the server {name!r} of {SERVERS} needs the variable {found[1]}", hint=f"give it: --env {found[1]}"
                )
            return variables.get(found[1], found[2] or "")

        return _VARIABLE.sub(value, str(text))

    argv = [filled(each) for each in (entry["command"], *entry.get("args", ()))]
    env = {str(key): filled(value) for key, value in (entry.get("env") or {}).items()}
    return McpServer(str(name), argv, env, is_allowed=False)


def copy_skills(folder: Path, into: Path, names: Iterable[Sequence[str]]) -> None:
    """Copy folders of the project to where a program looks for those of the user; links are left out.

    `names` are pairs: the path in the project, and the name below `into`.
    """
    root = root_of(folder)
    for theirs, ours in names:
        source, target = root / theirs, into / ours
        shutil.rmtree(target, ignore_errors=True)
        if source.is_dir() and not source.is_symlink() and source.resolve().is_relative_to(root.resolve()):
            private_folder(into)
            shutil.copytree(source, target, ignore=_links)


def _links(folder: str, names: list[str]) -> list[str]:
    return [each for each in names if os.path.islink(os.path.join(folder, each))]


def _read(path: Path, root: Path, bytes_max: int) -> bytes | None:
    """The content of a file within the project; None when there is none, or it leads elsewhere."""
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            return None
        content = read_bounded(path, bytes_max)
    except OSError:
        return None
    if len(content) > bytes_max:
        raise InvalidInput(f"{path} has more than {bytes_max >> 10} KB", hint="shorten it, or leave it out")
    return content
