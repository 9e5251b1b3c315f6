"""The text of a settings file: a template for a new one, and writing it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from maos.faults import crash_point
from maos.files import sync_folder
from maos.settings import schema


def write(path: Path, text: str) -> None:
    """Replace the text of a file atomically: readers, also after a crash, find the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a symbolic link stays one
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
    sync_folder(target.parent)


def template(*, is_project: bool) -> str:
    """Return the text of a new file: every setting with its default, commented out."""
    lines = [f"version = {schema.VERSION}"]
    for section, about in schema.sections().items():
        settings = [
            each
            for each in schema.fields().values()
            if each.name.startswith(f"{section}.") and each.variable and not (is_project and each.personal)
        ]
        if settings:
            lines += ["", f"# {about}", f"[{section}]"]
            lines += [f"# {each.name.partition('.')[2]} = {to_toml(each.default)}" for each in settings]
    return "\n".join(lines) + "\n"


def to_toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)
