"""Writes a file of settings: whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from maos.faults import crash_point
from maos.settings import schema


def write(path: Path, text: str) -> None:
    """Put a text in the place of a file; whoever reads it meanwhile, or after a crash, finds the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays one
    try:
        mode = target.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644
    new = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(new, "w", encoding="utf-8") as file:
            os.chmod(new, mode)
            crash_point("settings: begun")
            file.write(text)
            file.flush()
            crash_point("settings: written")
            os.fsync(file.fileno())
        crash_point("settings: synced")
        os.replace(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    crash_point("settings: in place")
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def template(*, is_project: bool) -> str:
    """A new file: every setting with its default, commented out."""
    lines = [f"version = {schema.VERSION}"]
    for section, about in schema.sections().items():
        there = [
            each
            for each in schema.fields().values()
            if each.name.startswith(f"{section}.") and each.variable and not (is_project and each.personal)
        ]
        if there:
            lines += ["", f"# {about}", f"[{section}]"]
            lines += [f"# {each.name.partition('.')[2]} = {toml(each.default)}" for each in there]
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)
