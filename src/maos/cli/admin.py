"""`maos admin`: look after the database, this machine and what runs did to others; backups, and runs that move."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import maos
from maos.cli import documents, render, words
from maos.cli.commands import LINES, LazyGroup, complete_ids, complete_runs, dry_run_option, json_command, yes_option
from maos.cli.database import DatabaseTarget, ask, need_yes, show_asked
from maos.cli.failures import FAILED, note
from maos.cli.progress import progress_bar
from maos.cli.render import Column, Listing, clean
from maos.cli.runs.start import check_addresses
from maos.errors import InvalidInput, MaosError

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.read_models import ExternalEffect
    from maos.ops.doctor import Finding
    from maos.runs.consent import Act
    from maos.transfer.bundle_import import Imported
    from maos.transfer.importers import ImportedRun
    from maos.transfer.service import Exported

SUFFIX = ".maos"
WORDS = {"new": "imported", "more": "brought up to date", "same": "already here", "moved_on": "resumed here since"}
STYLES = {"ok": "green", "note": "dim", "look": "bold yellow", "bad": "bold red"}

EFFECTS: Listing[ExternalEffect] = Listing(
    "effects",
    (
        Column("by", lambda each: each.by, style="bold", yields=1),
        Column("id", lambda each: each.id, yields=4),
        Column("what", lambda each: each.what),
        Column("outcome", lambda each: each.outcome),
        Column("begun", lambda each: render.when(each.begun_us)),
        Column("given", lambda each: words.one_line(each.given, None), style="dim", yields=3),
    ),
)


# --- whose database it is ----------------------------------------------------------------------------------------


@json_command("maos admin trust", "maos --db copy.db admin trust --yes --json")
@yes_option
def trust(database: DatabaseTarget, yes: bool, as_json: bool) -> None:
    """Agree to use a database, or settings of a project, that came from elsewhere.

    A database that you did not make on this machine, such as one in a cloned repository, a copy or a restored file, can
    be read, but nothing of it is executed, cleaned up or written. This lists what resuming its runs, agents and
    workflow runs would start here, and asks you. Nothing is started.

    A project's `maos.toml` can have commands, variables and files for the workspaces of agents. They take effect when
    you have seen and agreed to them, as they are now.
    """
    from maos.cli.runs.plans import show_acts

    need_yes("agreeing lets maos execute what is in the database and the project's settings", yes=yes, as_json=as_json)
    asked = database.settings.loaded.asked
    if asked is not None:
        if not as_json:
            show_asked(asked)
        if not yes:
            ask("Use these settings for agents, from now on?")
        asked.agree()
        if not database.exists:
            settings = {"path": str(asked.path), "values": {name: asked.values[name] for name in asked.values}}
            render.show({"settings": settings, "trusted": True}, "they are used from now on", as_json=as_json)
            return

    async def work(m: Maos) -> None:
        found = await m.would_start()
        if not as_json:
            for id, acts in found.items():
                show_acts(id, acts)
            if not found:
                render.line("it has nothing that could be resumed")
        if not yes:
            ask(f"Use {database.name} from now on?")
        await m.trust()
        if as_json:
            starts = {id: documents.of(acts) for id, acts in found.items()}
            documents.show({"database": str(database.name), "trusted": True, "starts": starts})
        else:
            render.line(f"{clean(str(database.name))} can be used")

    database.write(work, foreign=True)


# --- doctor ------------------------------------------------------------------------------------------------------


@json_command("maos admin doctor", "maos admin doctor --fix", "maos admin doctor --fix --yes --json")
@click.option("--fix", is_flag=True, help="End processes and remove files that were left behind, after asking.")
@yes_option
def doctor(database: DatabaseTarget, fix: bool, yes: bool, as_json: bool) -> int:
    """Check the installation, the database, and leftovers.

    The database, agents and their holders, stray processes, folders and worktrees, and the programs of agents. `look`
    is for a person to decide, `bad` is wrong; exits with 1 if anything bad remains. Nothing is changed without --fix,
    and never what belongs to an agent that can be resumed, or to another database.
    """
    from maos.ops.doctor import without_database

    if fix:
        need_yes("fixing ends processes and removes files", yes=yes, as_json=as_json)
    findings: list[Finding] = []

    async def examine(found: Awaitable[list[Finding]]) -> int:
        findings.extend(await found)
        return await _treat(findings, fix=fix, yes=yes, as_json=as_json)

    async def examine_all(m: Maos) -> list[Finding]:
        with progress_bar("checking the journal", count=True) as progress:
            return await m.doctor(progress=progress)

    try:
        return database.read(lambda m: examine(examine_all(m)))
    except MaosError as error:
        if findings:
            raise
        import asyncio

        found = without_database(str(database.name), error, lambda: database.settings, version=maos.__version__)
        return asyncio.run(examine(found))


async def _treat(findings: Sequence[Finding], *, fix: bool, yes: bool, as_json: bool) -> int:
    """Print findings, and repair what a person agrees to; the exit code says whether anything bad is left."""
    width = max(len(each.about) for each in findings)
    for each in () if as_json else findings:
        indent = " " * (width + 8)
        what = render.wrap(clean(each.what), sys.stdout, indent=indent, used=len(indent))
        render.line((f"{each.level:<4}  ", STYLES[each.level]), f"{each.about:<{width}}  ", what)
        if each.hint:
            render.line((render.wrap(f"{indent}{clean(each.hint)}", sys.stdout, indent=indent), "dim"))
    is_fixed = [fix and await _repair(each, yes=yes, as_json=as_json) for each in findings]
    bad = [each for each, fixed in zip(findings, is_fixed, strict=True) if each.level == "bad" and not fixed]
    if as_json:
        rows = [
            {"level": each.level, "about": each.about, "what": each.what, "hint": each.hint or None,
             "fixable": each.fix is not None, "fixed": fixed}
            for each, fixed in zip(findings, is_fixed, strict=True)
        ]  # fmt: skip
        documents.show({"ok": not bad, "findings": rows})
    elif bad:
        fixable = sum(each.fix is not None for each in bad)
        it = "it" if fixable == 1 else fixable
        how = f"; `maos admin doctor --fix` can fix {it}" if fixable and not fix else ""
        render.line(("bad", "bold red"), f": {render.many(len(bad), 'thing')}{how}")
    return FAILED if bad else 0


async def _repair(finding: Finding, *, yes: bool, as_json: bool) -> bool:
    """Repair something if there is a way and a person agrees; whether that was done."""
    if finding.fix is None or finding.question is None:
        return False
    if not yes and not click.confirm(clean(finding.question), err=True):
        return False
    done = await finding.fix()
    if not as_json:
        render.line(("fixed", "bold green"), f"  {clean(done)}")
    return True


# --- notify ------------------------------------------------------------------------------------------------------


@click.group(
    cls=LazyGroup,
    lazy={
        "test": ("maos.cli.admin:test", "Send a test notification to every address."),
        "list": ("maos.cli.admin:list_notices", "List notifications, and whether each was sent."),
    },
    examples=["maos admin notify test json://127.0.0.1:8080", "maos admin notify list"],
)
def notify() -> None:
    """Test notifications, and list those that were sent.

    A run notifies you when it needs you or has ended, at the addresses in MAOS_NOTIFY and --notify, by apprise: mail,
    chats, push messages.
    """


@json_command("maos admin notify test", "maos admin notify test json://127.0.0.1:8080 --json")
@click.argument("urls", metavar="[URL]...", nargs=-1)
def test(database: DatabaseTarget, urls: tuple[str, ...], as_json: bool) -> int:
    """Send a test notification to every address.

    The addresses are those in MAOS_NOTIFY, and each URL. Exits with 1 if one of them could not be reached.
    """
    from maos.runs import notify as notices

    found = check_addresses(database, urls)
    if not found:
        raise InvalidInput("there is no address to send to", hint="export MAOS_NOTIFY='mailto://…', or give a URL")
    tested = []
    for address in found:
        why = notices.test(address)
        tested.append({"address": address.name, "sent": not why, "why": why or None})
        if not as_json:
            said = ("not sent", "bold red") if why else ("sent", "green")
            render.line(f"address {address.name}  ", said, f"  {clean(why)}" if why else "")
    is_ok = all(each["sent"] for each in tested)
    if as_json:
        documents.show({"ok": is_ok, "addresses": tested})
    return 0 if is_ok else FAILED


@json_command("maos admin notify list", "maos admin notify list --json", json=LINES)
def list_notices(database: DatabaseTarget, as_json: bool) -> None:
    """List notifications, and whether each was sent.

    `unknown` is one that was about to be sent when its process died: it is not sent again.
    """
    found = database.read(lambda m: m.runs.notices())
    for each in found:
        if as_json:
            documents.show_line(documents.of(each))
            continue
        states = ", ".join(f"{address} {state}" for address, state in each.addresses.items())
        render.line((render.when(each.time_us), "dim"), f"  {clean(each.title)}  ", (states, "dim"))
    if not found and not as_json:
        render.line(("no notifications", "dim"))


# --- effects -----------------------------------------------------------------------------------------------------


@json_command("maos admin effects --unknown", "maos admin effects r-1a2b3c", "maos admin effects order-7 --json")
@click.argument("id", metavar="[ID]", required=False, default="", shell_complete=complete_ids)
@click.option("--unknown", is_flag=True, help="Only those whose outcome is unknown.")
def effects(database: DatabaseTarget, id: str, unknown: bool, as_json: bool) -> None:
    """List side effects: tool calls, commands and workflow steps.

    ID is RUN, RUN/TASK, an agent or a workflow run; without it, everything. Each effect is recorded before it starts
    and when it has ended; the outcome of one that started and did not end is unknown. The prompt of a resumed agent
    names which of its tool calls are; a command is started again; of a step you are asked (`maos workflow resolve`).
    """
    found = database.read(lambda m: m.effects(id, unknown=unknown))
    empty = "no outcome is unknown" if unknown else "no side effects"
    EFFECTS.show(found, as_json=as_json, empty=empty)


# --- copies and runs that move between machines -------------------------------------------------------------------


@json_command("maos admin copy backup.db", "maos --db /srv/agents.db admin copy backup.db --json")
@click.argument("target", metavar="TARGET")
def copy(database: DatabaseTarget, target: str, as_json: bool) -> None:
    """Copy the database to a new file while it is in use.

    The copy is of one point in time, and complete or not there at all. A SQLite database becomes another SQLite
    database that maos can open; a PostgreSQL database becomes one line of JSON for each row. TARGET must not exist yet.
    """
    path = Path(target)
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{target} exists already", hint="name a file that does not, or move that one away")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no folder {path.parent}", hint="create it first")

    position = database.read(lambda m: m.copy_to(path))
    size = path.stat().st_size
    copied = f"copied everything up to position {position} to {clean(target)} ({render.size(size)})"
    render.show({"target": target, "position": position, "bytes": size}, copied, as_json=as_json)


@json_command(
    "maos admin export r-1a2b3c",
    "maos admin export r-1a -o parser.maos --json",
    "maos admin export r-1a -o - | ssh other 'cd project && maos admin import -'",
)
@click.argument("id", metavar="ID", shell_complete=complete_runs)
@click.option("-o", "--output", metavar="FILE", default="", help="The file; - is standard output.  [default: ID.maos]")
@click.option("--to-stdout", is_flag=True, help="The same as -o -.")
@click.option("--without-files", is_flag=True, help="Without the commits of its files: only what is in the journal.")
def export(database: DatabaseTarget, id: str, output: str, to_stdout: bool, without_files: bool, as_json: bool) -> None:
    """Export a run or a workflow run to one file.

    The file holds the events of the run and its agents, their messages and conversations, and the commits of their
    files with the history that these need, all as of one point in time; the run may continue meanwhile. Keep the file
    and its copies private: it holds what agents said and did, without keys and passwords. `maos admin import` reads it.
    """
    is_piped = to_stdout or output == "-"
    if is_piped and (as_json or output not in ("", "-")):
        raise InvalidInput("standard output is for the bundle itself", hint="give one of -o FILE, --to-stdout, --json")
    if is_piped and sys.stdout.isatty():
        raise InvalidInput("a terminal cannot show a bundle", hint="send it to a file or a program: `… > FILE`")

    async def work(m: Maos) -> tuple[str, Exported]:
        found = (await m.ids.find(id, "run", "workflow")).id
        if is_piped:
            made = await m.transfer.export(found, sys.stdout.buffer, files=not without_files)
            sys.stdout.buffer.flush()
            return "-", made
        path = Path(output or f"{found}{SUFFIX}")
        return str(path), await m.transfer.export(found, path, files=not without_files)

    target, made = database.read(work)
    manifest = made.manifest
    streams, refs = len(manifest.streams), len(manifest.refs)
    if as_json:
        document = {**documents.of(manifest), "streams": streams, "refs": refs, "events": made.events}
        documents.show({"file": target, **document, "bytes": made.bytes, "sha256": made.sha256})
    elif not is_piped:
        counts = f"{render.many(made.events, 'event')} of {render.many(streams, 'stream')}"
        counts += f", {render.many(refs, 'commit')}" if refs else ""
        render.line((clean(manifest.id), "bold"), f": {counts} → {clean(target)} ({render.size(made.bytes)})")
    for text in manifest.left_out:
        note(f"left out: {clean(text)}")
    if manifest.carried_out:
        note(f"an engine executes {manifest.id}: what it does from now on is not in the file; pause it to move it")


@json_command(
    "maos admin import r-1a2b3c.maos --dry-run",
    "maos admin import r-1a2b3c.maos --cwd ~/project",
    "maos --db runs.db admin import maos.db --dry-run",
    "maos --db runs.db admin import ~/project/maos.db --orchestration 7a0d8a68 --json",
)
@click.argument("source", metavar="FILE")
@click.option(
    "--orchestration", "wanted", metavar="ID", default="",
    help="Only this one, of a maos.db; a unique prefix of its id is enough.",
)  # fmt: skip
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), metavar="DIRECTORY",
              help="The folder that its agents work in: in a git repository, if their files were in one.  "
              "[default: the current one; that of FILE for a maos.db]")  # fmt: skip
@dry_run_option
def import_(database: DatabaseTarget, source: str, wanted: str, cwd: str | None, dry_run: bool, as_json: bool) -> None:
    """Import a run from another machine, or the runs of maos-cli.

    FILE is what `maos admin export` wrote, or - for standard input; or a maos.db of maos-cli 0.8.9 to 0.9.4. It is only
    read, and need not be trusted: nothing that it brings is executed before you agree to it, in `maos resume`. Finished
    tasks are finished here too, and interrupted ones resume their own conversations. Importing it again adds what is
    new in it, and is harmless otherwise; a run that was resumed here stays as it is.
    """
    from maos.transfer import importers
    from maos.transfer.bundle import is_bundle

    if source == "-" or is_bundle(Path(source).expanduser()):
        if wanted:
            raise InvalidInput("a bundle has one run", hint="leave out --orchestration")
        _import_bundle(database, source, cwd or ".", dry_run=dry_run, as_json=as_json)
        return
    path = Path(source).expanduser()
    target = Path(database.name)
    if not database.name.is_url and target.exists() and path.exists() and target.samefile(path):
        command = f"`maos --db runs.db admin import {path}`"  # both programs call theirs maos.db
        hint = f"name another one, which will be created: {command}; or rename the first"
        raise InvalidInput(f"{path} is also the database to import into", hint=hint)
    found = importers.read(path)
    folder = Path(cwd).absolute() if cwd else path.absolute().parent

    brought = database.write(
        lambda m: m.transfer.import_runs(found, folder=folder, wanted=wanted, dry_run=dry_run),
        create=True,
        dry_run=dry_run,
    )
    if as_json:
        rows = [_row(each) for each in brought]
        documents.show({"file": str(path), "dry_run": dry_run, "orchestrations": rows, "left_out": found.left_out})
        return
    if brought:
        _imported(dry_run=dry_run).table(brought)
    else:
        render.line(f"{clean(str(path))} has no orchestrations")
    for what, count in found.left_out.items():
        render.line((f"left out: {what} ({count})", "dim"))
    _show_what_next(brought, dry_run=dry_run)


def _row(each: ImportedRun) -> documents.Document:
    run = each.run
    known = {"id": run.id, **documents.of(each, "original_id", "what", "sessions", "messages")}
    known |= {"original_status": each.original_status or None, "interrupted": each.unfinished}
    known |= {
        **documents.of(run, "status", "request", "done", "cost_usd", "estimated_usd", "unpriced_tokens"),
        "created_us": run.created_us,
    }
    return {**known, "tasks": len(run.tasks), "messages_waiting": each.waiting}


def _imported(*, dry_run: bool) -> Listing[ImportedRun]:
    return Listing(
        "orchestrations",
        (
            Column("id", lambda each: each.run.id, style="bold"),
            Column("status", lambda each: each.run.status),
            Column("tasks", lambda each: f"{each.run.done}/{len(each.run.tasks)}", right=True),
            Column("messages", lambda each: str(each.messages), right=True),
            Column("waiting", lambda each: str(each.waiting), right=True),
            Column("cost", lambda each: words.cost(each.run), right=True),
            Column("begun", lambda each: render.when(each.run.created_us)),
            Column("request", lambda each: words.one_line(each.run.request, 60), yields=2),
            Column("now", lambda each: _now(each.what, dry_run=dry_run), style="dim", yields=1),
        ),
    )


def _show_what_next(brought: list[ImportedRun], *, dry_run: bool) -> None:
    open_ones = [each for each in brought if each.run.status != "completed" and each.what != "moved_on"]
    if not open_ones:
        return
    begun = sum(each.unfinished for each in open_ones)
    if begun:
        kept = sum(each.sessions for each in open_ones)
        render.line(
            f"{render.many(begun, 'agent')} can resume: {kept} in their conversations, which are on this machine; "
            f"{begun - kept} with what is known of their work"
        )
    if not dry_run:
        render.line(f"`maos resume {open_ones[0].run.id} --dry-run` shows what resuming it would do")


def _now(what: str, *, dry_run: bool) -> str:
    return ("would be " if dry_run and what in ("new", "more") else "") + WORDS[what]


# --- bundles -----------------------------------------------------------------------------------------------------


def _import_bundle(database: DatabaseTarget, source: str, cwd: str, *, dry_run: bool, as_json: bool) -> None:
    """Import a bundle, or show what is in it."""
    from maos.model.run import Run
    from maos.runs import consent

    if source == "-" and sys.stdin.isatty():
        hint = "`maos admin import FILE`, or `… | maos admin import -`"
        raise InvalidInput("standard input is a terminal, not a bundle", hint=hint)
    path, folder = Path("/dev/stdin") if source == "-" else Path(source).expanduser(), Path(cwd).absolute()

    brought = database.write(
        lambda m: m.transfer.import_(path, folder=folder, dry_run=dry_run), create=True, dry_run=dry_run
    )
    root, manifest = brought.root, brought.manifest
    acts = consent.of_run(root, brought.attempts, brought.commands) if isinstance(root, Run) else []
    if as_json:
        streams = {each.name: each.events for each in manifest.streams}
        found = {**documents.of(manifest), "streams": streams, **documents.of(brought, "what", "sha256", "events")}
        more = {"refs_new": brought.refs, "starts": documents.of(acts)}
        documents.show({"file": source, "dry_run": dry_run, **found, **more})
    else:
        _show_bundle(brought, acts, dry_run=dry_run)


def _show_bundle(brought: Imported, acts: Sequence[Act], *, dry_run: bool) -> None:
    from maos.cli.runs.plans import show_acts
    from maos.model.run import Run

    manifest, root = brought.manifest, brought.root
    tasks = f", {root.done} of {len(root.tasks)} tasks done" if isinstance(root, Run) else ""
    what = f"  {manifest.kind}, {clean(manifest.status)}{tasks}: {words.one_line(manifest.title, 60)}  "
    render.line((clean(manifest.id), "bold"), what, (_now(brought.what, dry_run=dry_run), "dim"))
    render.line(f"  written by {clean(manifest.made_by)}, {render.when(manifest.made_us)}; sha256 {brought.sha256}")
    total = sum(each.events for each in manifest.streams)
    new = f", {brought.events} of them new here" if brought.what == "more" else ""
    commits = f"; {render.many(len(manifest.refs), 'commit')}" if manifest.refs else "; no commits"
    events, streams = render.many(total, "event"), render.many(len(manifest.streams), "stream")
    render.line(f"  {events} in {streams}{new}{commits}")
    if dry_run:
        for each in manifest.streams:
            render.line((f"    {clean(each.name)} ({each.events})", "dim"))
    for text in manifest.left_out:
        render.line((f"  left out: {clean(text)}", "dim"))
    if manifest.carried_out:
        render.line(("  an engine executed it then, and may have continued: resume only one copy", "yellow"))
    if isinstance(root, Run) and brought.what in ("new", "more"):
        show_acts(root.id, acts)
    if dry_run or brought.what == "same":
        return
    command = "maos resume" if manifest.kind == "run" else "maos workflow resume"
    more = "" if manifest.kind == "run" else " --from FILE.py"
    if brought.what != "moved_on" and root.status not in ("completed", "cancelled"):
        render.line(f"`{command} {manifest.id}{more}` resumes it, after asking you to agree to what it starts")
