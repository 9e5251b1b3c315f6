"""The summary of a run as Markdown: for a pull request, a message or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maos.cli.agent import words
from maos.cli.plain import clean

if TYPE_CHECKING:
    from maos.cli.orchestrate.ending import FoundWork

RESULT_CHARS_MAX = 4000
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#"})


def document(found: FoundWork) -> str:
    """Everything that a reader needs to know; what agents said is quoted, and cannot pass for ours."""
    from maos.cli.orchestrate import ending

    run = found.run
    title = words.one_line(run.request, 100) or run.id
    lines = [f"# {_plain(title)}", "", f"{run.status} · {' · '.join(ending.figures(run))}", ""]
    if run.why and run.status != "completed":
        lines += [_plain(run.why), ""]
    lines += ["| task | agent | status | took | cost |", "|---|---|---|---|---|"]
    kind = str(run.options.get("kind", ""))
    lines += [f"| {' | '.join(_plain(cell) for cell in ending.row(task, kind)[:5])} |" for task in run.tasks.values()]
    if found.discoveries:
        lines += ["", "## Discoveries", ""]
        lines += [f"- {_plain(each['task'])}: {_plain(str(each.get('text', '')))}" for each in found.discoveries]
    if found.files:
        lines += ["", "## Files", ""]
        for each in found.files:
            counts = "binary" if each.added is None else f"+{each.added} -{each.removed}"
            lines.append(f"- {_plain(each.path)} {counts}")
    said = [task for task in run.tasks.values() if task.result.strip()]
    if said:
        lines += ["", "## Results"]
    for task in said:
        quoted = clean(task.result.strip()[:RESULT_CHARS_MAX], lines=True).splitlines()
        lines += ["", f"### {_plain(task.name)}", "", *(f"> {line}".rstrip() for line in quoted)]
    advice = ending.advice(run)
    if advice:
        lines += ["", "## Next", "", *(f"- {each}" for each in advice)]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A text on one line that Markdown takes for nothing else."""
    return clean(" ".join(text.split())).translate(_SPECIAL)
