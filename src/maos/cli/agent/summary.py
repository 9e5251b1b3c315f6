"""The last words about an attempt: how it ended, what it took, what it changed, and how to go on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from maos.cli.agent import words
from maos.cli.agent.feed import styled
from maos.cli.failures import FAILED, LIMIT_REACHED, MAY_PASS, NEEDS_PERSON, STOPPED
from maos.cli.plain import clean
from maos.errors import MaosError
from maos.model import failure as failures

if TYPE_CHECKING:
    from maos.cli.agent.standing import AgentStanding
    from maos.cli.documents import Document
    from maos.model.attempt import Attempt

LIMITS = ("timed_out", "silent", "turns_reached", "budget_reached")


def exit_code(attempt: Attempt) -> int:
    """What a script is told: whether it worked, and if not, who can do something about it."""
    return 0 if attempt.status == "done" else code_of(attempt.failure)


def code_of(failure: str) -> int:
    """What a script is told of a failure."""
    if failure in LIMITS:
        return LIMIT_REACHED
    known = failures.TABLE.get(failure)
    action = known.action if known else failures.GIVE_UP
    by_action = {failures.NOTHING: STOPPED, failures.ASK: NEEDS_PERSON, failures.GIVE_UP: FAILED}
    return by_action.get(action, MAY_PASS)


def show(now: AgentStanding, files: list[Document] | None) -> None:
    """A line about how it ended, and what a person can do next."""
    attempt = now.attempt
    styles = {"done": "good", "failed": "bad"}
    parts = [words.ending(_as_data(attempt)), _took(attempt), *figures(now)]
    text = styled(clean(parts[0]), styles.get(attempt.status, "warning"), sys.stderr)
    _tell(f"{text}{''.join(f' · {part}' for part in parts[1:] if part)}")
    for line in changes(attempt, files):
        _tell(line)
    advice = hint(attempt)
    if advice and not (now.go_on and "resume" in advice):
        _tell(f"  {advice}")
    if attempt.reset_us:
        _tell(f"  it can go on from {words.when(attempt.reset_us)}")
    if attempt.tools_open:
        _tell(f"  unknown whether they took effect: {', '.join(tools_unknown(attempt))}")
    _tell(f"  {'to go on: ' + now.go_on if now.go_on else 'more: maos agent show ' + attempt.agent}")


def hint(attempt: Attempt) -> str:
    """What a person can do about a failure, with the agent's name in the commands."""
    known = failures.TABLE.get(attempt.failure)
    advice = known.hint if known else ""
    for command in ("logs", "resume"):
        advice = advice.replace(f"`maos agent {command}`", f"`maos agent {command} {attempt.agent}`")
    return advice


def place(attempt: Attempt) -> list[str]:
    """Where an agent works, and what a person should know of that."""
    where = f"{attempt.agent} runs in {attempt.order.get('cwd', '?')}"
    workspace = attempt.workspace or {}
    if workspace.get("repository"):
        return [f"{where}, a git worktree of its own", *workspace.get("notes", ())]
    return [where, *(() if attempt.kind == "shell" else workspace.get("notes", ()))]


def figures(now: AgentStanding) -> list[str]:
    """What it took, as far as its program says so."""
    total = words.tokens(now.tokens)
    found = []
    if now.cost_usd:
        found.append(words.money(now.cost_usd))
    if total:
        found.append(f"{words.count(total)} tokens")
    return found


def tools_unknown(attempt: Attempt) -> list[str]:
    """Tools of which nobody knows whether they took effect (I31)."""
    return [words.tool(each["name"], each["input"]) for each in attempt.tools_open.values()]


async def files(attempt: Attempt) -> list[Document] | None:
    """What the agent changed up to its last checkpoint, one entry a file; None when its files are not kept."""
    from maos import workspaces as workspaces

    commit = saved(attempt)
    if not attempt.workspace or commit is None:
        return None
    workspace = workspaces.Workspace.from_data(attempt.workspace)
    if workspace.in_place or workspace.base is None:
        return None
    try:
        changed = await workspaces.diff(workspace, workspace.base, commit)
    except (MaosError, OSError):
        return None  # it is on another machine, or somebody has moved it; the rest is worth showing all the same
    return [each._asdict() for each in changed]


def saved(attempt: Attempt) -> str | None:
    """The commit with the newest files of an agent; None where none are kept."""
    return next((each.commit for each in reversed(attempt.checkpoints) if each.commit), None)


def changes(attempt: Attempt, files: list[Document] | None) -> list[str]:
    """What became of the files, for people."""
    if not files:
        return []
    from maos.cli import render

    added, removed = (sum(each[key] or 0 for each in files) for key in ("added", "removed"))
    lines = [f"  {render.many(len(files), 'file')} changed, +{added} -{removed}"]
    if not attempt.is_open:
        lines.append(f"  to look: maos agent diff {attempt.agent}, to take them: maos agent merge {attempt.agent}")
    return lines


def _took(attempt: Attempt) -> str:
    if not attempt.ended_us or not attempt.started_us:
        return ""
    return words.duration(max(0, attempt.ended_us - attempt.started_us) / 1e6)


def _as_data(attempt: Attempt) -> dict[str, str]:
    return {"status": attempt.status, "failure": attempt.failure, "message": attempt.message}


def _tell(text: str) -> None:
    click.echo(text, err=True)
