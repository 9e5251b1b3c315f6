"""Explains a merge conflict: who changed a file on each side since they parted, and the lines that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from maos.tuples import NamedTuple
from maos.workspaces.git import Git, decode_path

FILES_MAX = 10
CHANGES_MAX = 5
LINES_MAX = 40
"""How many lines of a file are shown."""
LINE_CHARS_MAX = 200
CONTEXT_LINES = 2
OURS, BETWEEN, THEIRS = b"<<<<<<< ", b"=======", b">>>>>>> "
TASK_TRAILER = "Maos-Task"


class SideChange(NamedTuple):
    """A commit that changed a file on one side."""

    commit: str
    subject: str
    task: str
    """The task whose work it is; empty for a commit of another kind."""


class FileConflict(NamedTuple):
    """A file that both sides changed."""

    path: str
    ours: tuple[SideChange, ...]
    """The newest commits that changed it on the side that is merged into."""
    theirs: tuple[SideChange, ...]
    """The newest commits that changed it on the side of the work."""
    lines: str
    """The lines that differ, between conflict markers: first those that are merged into, then those of the work. Empty
    when it is no text, or one side has deleted it."""
    left_out: int
    """How many lines are not shown."""


async def explain(
    git: Git, files: Sequence[bytes], *, since: str, ours: str, theirs: str, tree: str
) -> tuple[FileConflict, ...]:
    """Explain the conflicts in the first so many files of a merged tree, which has conflict markers in them."""
    found = []
    for path in files[:FILES_MAX]:
        by_us, by_them = [
            await changes(git, "-n", str(CHANGES_MAX), f"{since}..{side}", "--", path) for side in (ours, theirs)
        ]
        blob = await git.run("cat-file", "blob", tree.encode() + b":" + path, allowed=(0, 128))
        lines = [] if blob.status or b"\0" in blob.output else list(_hunks(blob.output.split(b"\n")))
        shown = b"\n".join(lines[:LINES_MAX]).decode("utf-8", "backslashreplace")
        found.append(FileConflict(decode_path(path), by_us, by_them, shown, max(0, len(lines) - LINES_MAX)))
    return tuple(found)


async def changes(git: Git, *what: str | bytes) -> tuple[SideChange, ...]:
    """Return commits as `git log` lists them, the newest first."""
    form = f"--format=%H%x00%s%x00%(trailers:key={TASK_TRAILER},valueonly,unfold,separator=%x2c)"
    listed = await git.run("log", form, *what)
    rows = (line.split("\0") for line in listed.output.decode("utf-8", "replace").split("\n") if line)
    return tuple(SideChange(*row) for row in rows)


def _hunks(lines: list[bytes]) -> Iterator[bytes]:
    """The lines between conflict markers, with a few around them; the markers without the ids that git gives them."""
    inside = [False] * len(lines)
    is_open = False
    for number, line in enumerate(lines):
        is_open = is_open or line.startswith(OURS)
        if is_open:
            around = slice(max(0, number - CONTEXT_LINES), number + CONTEXT_LINES + 1)
            inside[around] = [True] * len(inside[around])
        if line.startswith(THEIRS):
            is_open = False
    was_inside, is_first = False, True
    for is_inside, line in zip(inside, lines, strict=True):
        if is_inside and not was_inside and not is_first:
            yield b"..."
        if is_inside:
            is_first = False
            marker = next((each for each in (OURS, THEIRS) if line.startswith(each)), b"")
            yield marker.strip() if marker else line[:LINE_CHARS_MAX]
        was_inside = is_inside
