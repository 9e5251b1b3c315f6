"""`maos agent list`, `show`, `diff`, `merge` and `kinds`: what agents are, what they changed, and how they ended."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from maos.cli import documents, remote, render, words
from maos.cli.commands import WHEN, agent_argument, full_option, json_command, options
from maos.cli.database import DatabaseTarget
from maos.cli.failures import CONFLICT, FAILED, LIMIT_REACHED, MAY_PASS, NEEDS_PERSON, STOPPED, report
from maos.cli.render import Column, Listing, clean, wrap
from maos.model import failure as failures
from maos.model.status import AgentState
from maos.tuples import NamedTuple

if TYPE_CHECKING:
    from maos.agents.kinds import Installed
    from maos.app import Maos
    from maos.model.attempt import Attempt
    from maos.model.read_models import AgentStatus
    from maos.runs.pull_request import PullRequest
    from maos.runs.results import Blocked, Conflicted, FileChange, Merged
    from maos.views.agents import AgentDetails
    from maos.web.client import Client
    from maos.web.documents import AgentDetailsInfo, FileChangeInfo

T = TypeVar("T")

LABEL_WIDTH = 12
TIME_LEAST = len("today 12:00:00")
"""Characters of a time: less says nothing."""
SHOWN_MAX = 10
ABILITIES = ("resume", "steer", "cost", "mcp", "permission")
ENDINGS = {AgentState.DONE: "good", AgentState.FAILED: "bad"}
LIMITS = ("timed_out", "silent", "turns_reached", "budget_reached")
RECORDED = (
    "owner", "pid", "folder", "session", "model", "order", "workspace", "lines", "retries", "troubles", "tools_done",
)  # fmt: skip
"""What the document about an agent has of its newest attempt."""
ATTEMPT = (
    "number", "status", "failure", "message", "turns", "cost_usd", "estimated_usd", "unpriced_tokens", "tokens",
    "planned_us", "started_us", "ended_us", "checkpoints",
)  # fmt: skip
"""What it has of each attempt."""
BAR_WIDTH = 30
PATCH_STYLES = (
    ("diff ", "bold"), ("index ", "bold"), ("--- ", "bold"), ("+++ ", "bold"), ("new file", "bold"),
    ("deleted file", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"),
)  # fmt: skip
"""How lines of a patch look, by how they begin."""
SIGNS = {"added": ("+", "green"), "deleted": ("-", "red")}

STYLES = {
    AgentState.PLANNED: "dim", AgentState.RUNNING: "green", AgentState.STOPPING: "yellow",
    AgentState.DETACHED: "bold yellow", AgentState.INTERRUPTED: "bold red", AgentState.FAILED: "red",
    AgentState.STOPPED: "dim",
}  # fmt: skip


def _doing(each: AgentStatus) -> str:
    text = each.activity if each.is_open else ending(each).partition(": ")[2] or each.result
    return words.one_line(text, 60)


def _left(each: AgentStatus) -> str:
    from maos.runs.budgets import Allowance

    return words.left(Allowance(each.left_usd, None, each.left_s))


def _tokens(each: AgentStatus) -> str:
    spent = each.tokens
    total = spent.input + spent.output + spent.cache_read + spent.cache_write
    return words.count(total) if total else ""


AGENTS: Listing[AgentStatus] = Listing(
    "agents",
    (
        Column("agent", lambda each: each.agent, style="bold"),
        Column("kind", lambda each: each.kind, yields=1),
        Column("status", lambda each: each.status),
        Column("since", lambda each: render.when(each.since_us), yields=4, least=TIME_LEAST),
        Column("cost", words.cost, right=True, yields=2),
        Column("tokens", _tokens, right=True, yields=3),
        Column("left", _left, yields=4),
        Column("doing", _doing, style="dim", yields=5),
    ),
)


def _able(ability: str, each: Installed) -> str:
    return ("some" if each.capabilities.varies else "yes") if getattr(each.capabilities, ability) else ""


def _kind(each: Installed) -> documents.Document:
    said = {name: getattr(each, name) or None for name in ("found", "missing", "hint")}
    return {"kind": each.name, "summary": each.summary, **said, **documents.of(each.capabilities, *ABILITIES, "varies")}


KINDS: Listing[Installed] = Listing(
    "kinds",
    (
        Column("kind", lambda each: each.name, style="bold"),
        *(Column(name, partial(_able, name)) for name in ABILITIES),
        Column("here", lambda each: "missing" if each.missing else each.found or "yes", yields=2),
        Column("what it is", lambda each: each.summary, style="dim", yields=1),
    ),
    of=_kind,
)


log_options = options(
    click.option("-f", "--follow", is_flag=True, help="Continue until it has ended, whichever process runs it."),
    click.option(
        "-n",
        "--lines",
        "count",
        type=click.IntRange(min=0),
        metavar="N",
        help="Only the last N lines of what is recorded.",
    ),
    click.option("--attempt", "number", type=click.IntRange(min=1), metavar="N", help="Only this attempt of an agent."),
    click.option("--since", type=WHEN, help="Only what happened since a time: ISO 8601, or 15m, 2h, 3d ago."),
    click.option("--raw", is_flag=True, help="Exactly the bytes that an agent printed; not for terminals."),
)


def on_agent(agent: str, act: Callable[[Maos, str], Awaitable[T]]) -> Callable[[Maos], Awaitable[T]]:
    """Work on the agent of a name or of a unique prefix of one."""

    async def work(m: Maos) -> T:
        return await act(m, await m.agents.find(agent))

    return work


def remote_agent(agent: str, act: Callable[[Client, str], Awaitable[T]]) -> Callable[[Client], Awaitable[T]]:
    """Work on the agent of a server, by its name, a unique prefix of it, or RUN/TASK."""

    async def work(client: Client) -> T:
        return await act(client, await remote.find_agent(client, agent))

    return work


@json_command("maos agent list", "maos agent list --all --json", "maos agent list --checks")
@click.option("--all", "everything", is_flag=True, help="Also those that ended more than a day ago.")
@click.option("--checks", is_flag=True, help="Also those that checked the work of another agent, or merged it.")
def list_(database: DatabaseTarget, everything: bool, checks: bool, as_json: bool) -> None:
    """List the agents that run, and those that ran.

    Beside running, done, failed and stopped, an agent can be detached (it works, and no engine records it: `maos agent
    attach`) or interrupted (it has exited, and so has its engine: `maos agent resume`).
    """

    async def work(m: Maos) -> tuple[list[AgentStatus], int, int]:
        return *await m.views.agents.statuses(everything=everything, checks=checks), await m.views.agents.never_run()

    if database.is_remote:
        remote.refuse(everything="--all", checks="--checks")
        found, older, never_run = remote.call(_list_remote), 0, 0
    else:
        found, older, never_run = database.read(work)
    if as_json:
        AGENTS.show(found, as_json=True, older=older, never_run=never_run)
    else:
        show_list(found, older=older)
        if never_run:
            have = "agent has a state and has" if never_run == 1 else "agents have a state and have"
            render.line((f"{never_run} {have} not run (`maos state list`)", "dim"))


async def _list_remote(client: Client) -> list[AgentStatus]:
    return await remote.all_of(lambda cursor: client.agents(limit=remote.PAGE, cursor=cursor), "agents")


def show_list(found: Sequence[AgentStatus], *, older: int = 0) -> None:
    """Print agents, one a line, and how to continue with those that no engine records."""
    if found:
        AGENTS.table(found)
    elif not older:
        render.line("no agents; `maos agent run -- COMMAND` runs one")
    for each in found:
        if each.status in (AgentState.DETACHED, AgentState.INTERRUPTED) and each.resumable:
            render.line((clean(each.agent), "bold"), f" is {each.status}; {words.continue_with(each.resumable)}")
    if older:
        render.line((f"{render.many(older, 'agent')} ended more than a day ago (--all shows them)", "dim"))


# --- the page ----------------------------------------------------------------------------------------------------


@json_command("maos agent show nightly", "maos agent show nightly --json")
@agent_argument
@full_option
def show(database: DatabaseTarget, agent: str, full: bool, as_json: bool) -> None:
    """Show everything that is known of an agent.

    Its attempts, what it does and waits for, why it failed and what to do about it, tools whose outcome is unknown,
    its files and checkpoints, and what it cost.
    """
    if database.is_remote:
        known = remote.call(remote_agent(agent, lambda client, name: client.agent(name)))
        if as_json:
            documents.show(known)
        else:
            _show_page(known, known.attempts[-1].model, _remote_rows(known, None if full else SHOWN_MAX), full=full)
        return
    found = database.read(on_agent(agent, lambda m, name: m.agents.details(name)))
    if as_json:
        documents.show(agent_document(found))
    else:
        show_agent(found, full=full)


def agent_document(found: AgentDetails) -> documents.Document:
    """Everything that is known of an agent, for programs."""
    import msgspec

    newest = found.newest
    return {
        **documents.of(found.now),
        **documents.of(newest, *RECORDED),
        "tools_open": msgspec.to_builtins(newest.known.unknown),
        "permissions": msgspec.to_builtins(newest.permissions),
        "files": documents.of(found.files),
        "discoveries": [each.data for each in found.discoveries],
        "state_version": found.state_version,
        "attempts": [documents.of(each, *ATTEMPT) for each in found.attempts],
    }


def show_agent(found: AgentDetails, *, full: bool = False, to_merge: bool = True) -> None:
    """Print the page about an agent; `to_merge` is whether its work may be merged."""
    rows = _rows(found, None if full else SHOWN_MAX, to_merge=to_merge)
    _show_page(found.now, found.newest.model, rows, full=full)


def _show_page(now: AgentStatus, model: str, rows: Iterable[PageRow], *, full: bool) -> None:
    status = (now.status, STYLES.get(now.status, ""))
    heading = f"  {clean(now.kind)}{clean(f' with {model}' if model else '')}  "
    render.line((clean(now.agent), "bold"), heading, status, f" since {render.when(now.since_us)}")
    for label, text, whole in rows:
        room = None if full or whole else render.room_for_value(LABEL_WIDTH + 2)
        if text:
            indent = LABEL_WIDTH + 2
            shown = render.wrap(words.one_line(text, room), sys.stdout, indent=" " * indent, used=indent)
            render.line((f"{label:<{LABEL_WIDTH}}  ", "dim"), shown)


class PageRow(NamedTuple):
    """A line of the page about an agent; one that is to be copied is printed whole, and an empty one not at all."""

    label: str
    text: str
    whole: bool = False


def _rows(found: AgentDetails, most: int | None, *, to_merge: bool) -> Iterator[PageRow]:
    """The page about an agent, with at most so many lines of each list."""
    now, newest = found.now, found.newest
    ended = not now.is_open
    yield PageRow("", now.status.meaning)
    yield PageRow("next", now.resumable or "", whole=True)
    yield PageRow("task", now.task)
    yield PageRow("doing", "" if ended else now.activity)
    yield PageRow("result", now.result if ended else "")
    if now.status is AgentState.FAILED:
        yield PageRow("failed", ending(now).partition(": ")[2])
        yield from _list("at", newest.traceback.splitlines()[-render.TRACEBACK_LINES_MAX :], None)
        yield PageRow("to do", _hint(now), whole=True)
        yield PageRow("not before", render.when(now.failure.reset_us) if now.failure and now.failure.reset_us else "")
    if now.status not in (AgentState.RUNNING, AgentState.STOPPING, AgentState.DETACHED):  # else it still runs them
        yield from _list("unknown", [f"{each} (may have taken effect)" for each in _tools_unknown(newest)], most)
    for asked in newest.permissions.values():
        if asked.is_open:
            yield PageRow("asks", words.tool(asked.tool, asked.input))
            yield PageRow("", f"maos agent answer {now.agent} {asked.id} <yes|no>", whole=True)
    engine = newest.owner
    processes = f"agent {newest.pid}, recorded by {engine.get('pid')} on {engine.get('host')}"
    yield PageRow("processes", "" if ended else processes)
    yield PageRow("left", _left(now))
    yield PageRow("works in", str(newest.order.get("cwd", "")), whole=True)
    yield from (PageRow("", line, whole=True) for line in _changes(found, to_merge=to_merge))
    state = f"version {found.state_version}: maos state show {now.agent}" if found.state_version else ""
    yield PageRow("state", state, whole=True)
    yield PageRow("session", newest.session if now.kind != "shell" else "")
    yield from _list("found", [f"{each.keyword}: {each.text}" for each in found.discoveries], most)
    points = [
        f"attempt {attempt.number}  {each.name}  {render.when(each.at_us)}  {(each.commit or 'no files')[:12]}"
        for attempt in reversed(found.attempts)
        for each in reversed(attempt.checkpoints)
    ]
    yield from _list("checkpoints", points, most)
    attempts = [
        f"{each.number}  {render.when(each.started_us or each.planned_us)}  "
        f"{words.ending(each.status, each.failure, each.message)}"
        for each in reversed(found.attempts)
    ]
    yield from _list("attempts", attempts if len(attempts) > 1 else [], most)
    yield PageRow("took", " · ".join([*_counts(now, newest), *_figures(now)]))


def _remote_rows(found: AgentDetailsInfo, most: int | None) -> Iterator[PageRow]:
    """The page about an agent of a server: what its API tells."""
    ended = not found.is_open
    yield PageRow("", found.status.meaning)
    yield PageRow("next", found.resumable or "", whole=True)
    yield PageRow("task", found.task)
    yield PageRow("doing", "" if ended else found.activity)
    yield PageRow("result", found.result if ended else "")
    if found.status is AgentState.FAILED:
        yield PageRow("failed", ending(found).partition(": ")[2])
        yield PageRow("to do", _hint(found), whole=True)
    for asked in found.pending:
        yield PageRow("asks", asked.text)
        yield PageRow("", f"maos answer {asked.ref} {'|'.join(asked.choices) or 'yes|no'}", whole=True)
    yield PageRow("left", _left(found))
    yield from (PageRow("", line, whole=True) for line in _changed_lines(found, found.files))
    state = f"version {found.state_version}: maos state show {found.agent}" if found.state_version else ""
    yield PageRow("state", state, whole=True)
    said = [f"{each.get('keyword', '')}: {each.get('text', '')}" for each in found.discoveries]
    yield from _list("found", said, most)
    tried = [
        f"{each.number}  {render.when(each.started_us or each.planned_us)}  "
        f"{words.ending(each.status, each.failure, each.message)}"
        for each in reversed(found.attempts)
    ]
    yield from _list("attempts", tried if len(tried) > 1 else [], most)
    yield PageRow("took", " · ".join(_figures(found)))


def _list(label: str, lines: list[str], most: int | None) -> Iterator[PageRow]:
    for index, line in enumerate(lines[:most]):
        yield PageRow("" if index else label, line)
    if most is not None and len(lines) > most:
        yield PageRow("", f"… and {len(lines) - most} more (--full shows all)")


def _hint(now: AgentStatus) -> str:
    """What a person can do about a failure, with the agent's name in the commands."""
    advice = now.failure.hint if now.failure else ""
    for verb in ("logs", "resume"):
        advice = advice.replace(f"`maos agent {verb}`", f"`maos agent {verb} {now.agent}`")
    return advice


def _tools_unknown(newest: Attempt) -> list[str]:
    """Tools that may or may not have taken effect (I31)."""
    return [words.tool(each.name, each.input) for each in newest.known.unknown.values()]


def _changes(found: AgentDetails, *, to_merge: bool = True) -> list[str]:
    """What an agent did to the files."""
    return _changed_lines(found.now, found.files, to_merge=to_merge)


def _changed_lines(
    now: AgentStatus, files: Sequence[FileChange | FileChangeInfo] | None, *, to_merge: bool = True
) -> list[str]:
    if not files:
        return []
    lines = [words.changed(files)]
    if not now.is_open:
        lines += [f"to look: maos agent diff {now.agent}"]
        lines += [f"to merge them: maos agent merge {now.agent}"] if to_merge else []
    return lines


def _counts(now: AgentStatus, newest: Attempt) -> list[str]:
    until_us = now.ended_us or now.output_us
    counted = (
        (now.turns, "turn"), (newest.tools_done, "tool call"), (newest.lines, "line"),
        (newest.retries, "retry", "retries"),
    )  # fmt: skip
    took = words.duration((until_us - now.started_us) / 1e6) if until_us else ""
    return [each for each in (took, *(render.many(*each) for each in counted if each[0])) if each]


def _figures(now: AgentStatus) -> list[str]:
    """What it took, as far as its program says so."""
    tokens = _tokens(now)
    cost = [words.cost(now)] if words.cost(now) else []
    return [*cost, f"{tokens} tokens"] if tokens else cost


diff_options = options(
    click.option("--stat", is_flag=True, help="The files, with the number of lines that were added and removed."),
    click.option("--name-only", is_flag=True, help="Only the names of the files, one a line."),
    click.option("--patch", is_flag=True, help="The changes themselves, as a patch that git can apply."),
)


@json_command("maos agent diff fixer", "maos agent diff fixer --patch | less", "maos agent diff fixer --json")
@agent_argument
@diff_options
def diff(database: DatabaseTarget, agent: str, stat: bool, name_only: bool, patch: bool, as_json: bool) -> None:
    """Show which files an agent has changed, up to its last checkpoint."""
    found: Any
    if database.is_remote:
        found = remote.call(remote_agent(agent, lambda client, name: client.agent_diff(name, patch=patch)))
    else:
        found = database.read(on_agent(agent, lambda m, name: m.agents.diff(name, patch=patch)))
    if as_json:
        documents.show(found)
    elif name_only:
        show_names(found.files)
    elif patch:
        show_patch(found.patch)
    elif not found.files:
        render.line((clean(agent), "bold"), " has changed no files")
    elif stat:
        show_stat(found.files)
    else:
        show_files(found.files)


def show_files(files: Sequence[FileChange | FileChangeInfo]) -> None:
    """Print which files were changed, one a line."""
    for each in files:
        sign, style = SIGNS.get(each.kind, ("~", "yellow"))
        render.line((f"{sign} ", style), clean(each.path), (f"  {words.counts(each)}", "dim"))


def show_names(files: Sequence[FileChange | FileChangeInfo]) -> None:
    """Print the names of files, each once."""
    for path in dict.fromkeys(each.path for each in files):
        render.line(clean(path))


def show_stat(files: Sequence[FileChange | FileChangeInfo]) -> None:
    """Print files with a bar for the lines that were added and removed, and the sum, as git does."""
    width = min(
        max((len(clean(each.path)) for each in files), default=0), max(20, render.room_for_value(BAR_WIDTH + 10))
    )
    largest = max(((each.added or 0) + (each.removed or 0) for each in files), default=0)
    scale = min(1.0, BAR_WIDTH / largest) if largest else 1.0
    for each in files:
        path = clean(each.path)
        path = path if len(path) <= width else "…" + path[1 - width :]
        if each.added is None or each.removed is None:
            render.line(f"  {path:<{width}}  binary")
            continue
        plus, minus = (math.ceil(count * scale) for count in (each.added, each.removed))
        render.line(f"  {path:<{width}}  {each.added + each.removed:>4} ", ("+" * plus, "green"), ("-" * minus, "red"))
    render.line(f"  {words.changed(files)}")


def show_patch(patch: str) -> None:
    """Print a patch: as it is, or on a terminal in colours and with what is not seen spelled out."""
    if not sys.stdout.isatty():
        sys.stdout.write(patch)
        return
    for line in clean(patch, lines=True).splitlines():
        style = next((found for start, found in PATCH_STYLES if line.startswith(start)), "")
        sys.stdout.write(render.styled(line, style, sys.stdout) + "\n")


merge_options = options(
    click.option("--branch", default="", metavar="NAME", help="Merge into this branch, without touching your files."),
    click.option("--message", default="", help="The message, of one commit.  [default: what was asked for]"),
    click.option("--dry-run", is_flag=True, help="Only show what would be merged, and what prevents it."),
)


@json_command("maos agent merge fixer", "maos agent merge fixer --message 'Fix the parser' --json")
@agent_argument
@merge_options
@click.option("--into", type=click.Path(exists=True, file_okay=False), default=".", help="The folder to merge into.")
def merge(database: DatabaseTarget, /, agent: str, as_json: bool, **given: Any) -> int:
    """Merge the work of an agent into the branch checked out here.

    As one commit, all of it or nothing: files that both sides changed are shown with both sides, and changes of yours
    that are in the way are named.
    """

    async def work(m: Maos) -> tuple[str, Merged | Conflicted | Blocked]:
        name = await m.agents.find(agent)
        return name, await m.agents.merge(name, **given)

    name, done = database.write(work)
    by_hand = [
        f"maos agent merge {name} --branch NAME: puts the work on a branch of its own, where nothing conflicts",
        f"maos agent resume {name}: tell the agent what changed",
        f"maos agent diff {name} --patch: its patch, to apply by hand",
    ]
    return show_merge("agent", name, done, by_hand, as_json=as_json)


def show_merge(
    noun: str,
    name: str,
    done: Any,
    by_hand: Sequence[str],
    *,
    as_json: bool,
    pull_request: PullRequest | None = None,
    text_file: str = "",
) -> int:
    """Print what merging the work of an agent or a run did, and return the exit code; `by_hand` is for a conflict."""
    outcome = type(done).__name__.lower()
    code = 0 if outcome == "merged" else CONFLICT
    if as_json:
        unknown = {"commit": "", "messages": (), "conflicts": (), "commits": (), "why": "", "hint": "", "branch": ""}
        known = {noun: name, "outcome": outcome, "files": done.files, **unknown, **documents.of(done)}
        documents.show({**known, **({"pull_request": documents.of(pull_request)} if pull_request else {})})
        return code
    if outcome == "blocked":
        report(f"{done.why}: {', '.join(done.files)}" if done.files else done.why, done.hint)
        return code
    if outcome == "conflicted":
        _report_conflict(done, by_hand)
        return code
    to_stdout = pull_request is not None and text_file == "-"
    for line in _merged_lines(name, done, pull_request, text_file):
        if to_stdout:
            click.echo("".join(part if isinstance(part, str) else part[0] for part in line), err=True)
        else:
            render.line(*line)
    if pull_request is not None and to_stdout:
        click.echo(pull_request.body, nl=False)
    return code


def _report_conflict(done: Conflicted, by_hand: Sequence[str]) -> None:
    from maos.runs.merges import explain

    report(f"both sides changed {', '.join(done.files)}; nothing was merged")
    for text in explain(done.conflicts, ours="your branch", theirs="the work"):
        style = {"<<<<": "bold", "====": "bold", ">>>>": "bold"}.get(text.strip()[:4], "")
        click.echo(render.styled(f"  {clean(text)}", style, sys.stderr), err=True)
    click.echo("what you can do:", err=True)
    for text in by_hand:
        click.echo(wrap(f"  {clean(text)}", sys.stderr, indent="    "), err=True)


def _merged_lines(
    name: str, done: Merged, pull_request: PullRequest | None, text_file: str
) -> Iterator[Sequence[str | render.Part]]:
    if not done.files:
        yield ("nothing to merge: your branch has everything already",)
        return
    would = "would be " if done.dry_run else ""
    where = f" on {clean(done.branch)}" if done.branch else ""
    made = f"{render.many(len(done.commits), 'commit')}{where}, {render.many(len(done.files), 'file')}"
    yield ((clean(name), "bold"), f": {would}merged as {made}")
    for each in done.commits:
        files = render.many(len(each.files), "file")
        subject = render.wrap(f"{clean(each.subject)}  {files}", sys.stdout, indent=" " * 15, used=15)
        yield ("  ", (each.commit[:12], "yellow"), f" {subject}")
    if done.dry_run:
        return
    if done.remote and done.branch:
        yield ("to push: ", (shlex.join(["git", "push", "-u", done.remote, done.branch]), "bold"))
    if pull_request is not None and text_file != "-":
        create = ["gh", "pr", "create", "--head", done.branch, "--title", pull_request.title, "--body-file", text_file]
        yield ("to open a pull request: ", (clean(shlex.join(create)), "bold"))


# --- the end of an attempt ---------------------------------------------------------------------------------------


def code_of(failure: str) -> int:
    """The exit code for a failure: it says who can do something about it."""
    if failure in LIMITS:
        return LIMIT_REACHED
    known = failures.TABLE.get(failure)
    action = known.action if known else failures.GIVE_UP
    by_action = {failures.NOTHING: STOPPED, failures.ASK: NEEDS_PERSON, failures.GIVE_UP: FAILED}
    return by_action.get(action, MAY_PASS)


def exit_code(now: AgentStatus) -> int:
    """The exit code for an agent that has ended."""
    return 0 if now.status is AgentState.DONE else code_of(now.failure.name if now.failure else "")


def ending(each: AgentStatus) -> str:
    """How an agent ended, in a few words."""
    failure = each.failure
    return words.ending(each.status, failure.name, failure.message) if failure else words.ending(each.status)


def show_end(found: AgentDetails) -> None:
    """Print on standard error how an agent in the foreground ended, and what a person can do next."""
    now, unknown = found.now, ", ".join(_tools_unknown(found.newest))
    took = words.duration(max(0, now.ended_us - now.started_us) / 1e6) if now.ended_us else ""
    text = render.styled(clean(ending(now)), ENDINGS.get(now.status, "warning"), sys.stderr)
    click.echo("".join([text, *(f" · {part}" for part in [took, *_figures(now)] if part)]), err=True)
    advice, failure = _hint(now), now.failure
    for said_below in (", then resume", f", then `maos agent resume {now.agent}`"):
        advice = advice.removesuffix(said_below) if now.resumable else advice
    lines = [
        *_changes(found),
        "" if advice.startswith("`maos agent resume ") or (failure and failure.reset_us) else advice,
        f"it can be resumed from {render.when(failure.reset_us)}" if failure and failure.reset_us else "",
        f"unknown whether they took effect: {unknown}" if unknown else "",
        words.continue_with(now.resumable) if now.resumable else f"more: maos agent show {now.agent}",
    ]
    for line in lines:
        if line:
            click.echo(wrap(f"  {line}", sys.stderr, indent="    "), err=True)


def place_of(attempt: Attempt) -> list[str]:
    """Where an agent works, and what a person should know of that."""
    where = f"{attempt.agent} runs in {attempt.order.get('cwd', '?')}"
    workspace = attempt.workspace or {}
    if workspace.get("repository"):
        return [f"{where}, a git worktree of its own", *workspace.get("notes", ())]
    return [where, *(() if attempt.kind == "shell" else workspace.get("notes", ()))]


@json_command("maos agent kinds", "maos agent kinds --json")
def kinds(_database: DatabaseTarget, as_json: bool) -> None:
    """List the kinds of agents, and which are on this machine.

    resume: resumes its own session after it was killed. steer: accepts messages while it works. cost: reports what it
    costs. mcp: can be given tools. permission: asks before it does something, and can be answered. some: it depends on
    the program.
    """
    from maos.agents import kinds as known  # loads what finds each kind's program

    found = known.installed()
    KINDS.show(found, as_json=as_json)
    for each in found:
        if each.missing and not as_json:
            render.line((f"{each.name}: {each.missing}; ", "dim"), each.hint)
