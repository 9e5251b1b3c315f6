"""`maos serve`, and `maos token`: the server, and who may use it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from maos.cli import commands, documents, render, words
from maos.cli.access import ON, ROLES
from maos.cli.commands import LINES, LazyGroup, dry_run_option, json_command, seconds
from maos.cli.database import DatabaseTarget
from maos.cli.failures import note, print_above
from maos.cli.render import Column, Listing, clean
from maos.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from maos.app import Maos
    from maos.model.access import Credential, Grant
    from maos.ops import server_log
    from maos.settings.schema import LogSettings, ServeSettings

Ready = Callable[[str, str], None]
"""Gets the address of a server that accepts requests, and the code that signs a browser in."""
Work = Callable[["Maos", asyncio.Event], Coroutine[Any, Any, None]]
UNIT = """\
# maos serve for {where}
# Save it as ~/.config/systemd/user/{name}.service, then:
#   systemctl --user daemon-reload && systemctl --user enable --now {name}
#   loginctl enable-linger    # to have it run while you are not logged in
# A link to sign in: maos --db {database} token link

[Unit]
Description=maos: runs of coding agents in {where}
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory={folder}
Environment=PATH={path}
ExecStart={command}
Restart=on-failure
RestartSec=2
# Agents have processes of their own, which keep running while the server restarts.
KillMode=process
TimeoutStopSec=60
UMask=0077
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""


@json_command(
    "maos serve",
    "maos serve nightly.py jobs.billing",
    "maos serve --port 0 --no-resume",
    "maos serve --log-format json 2>> serve.log",
    "maos serve --print-systemd > ~/.config/systemd/user/maos.service",
    json=LINES,
)
@click.argument("targets", metavar="[TARGET]...", nargs=-1)
@click.option("--host", default="", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="The port; 0: a free one.  [default: 6267]")
@click.option("--no-resume", is_flag=True, help="Execute nothing: only show, answer and steer.")
@click.option("--no-http", is_flag=True, help="Only execute, without HTTP API and page; needs no extra packages.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="What it logs on standard error.  [default: text]"
)
@click.option("--print-systemd", is_flag=True, help="Print a systemd user unit instead.")
@click.option("--print-openapi", is_flag=True, help="Print the OpenAPI document of the HTTP API instead.")
def serve(
    database: DatabaseTarget, /, targets: tuple[str, ...], host: str, port: int | None, log_format: str | None,
    as_json: bool, **flags: bool,
) -> int:  # fmt: skip
    """Run the server: engine, HTTP API and page in one process.

    It executes every run and workflow run that no engine executes: those that were interrupted, and those that
    `--detach` hands over. It starts the workflows of schedules when they are due. TARGET are files or modules with
    workflows; those of schedules and of workflow runs are found by themselves. Any number of servers may use one
    database: each run is executed by one, and each due time starts one workflow run.

    It prints a link that signs a browser in, once, unless its output is a file or the log of systemd. Programs use a
    token: `maos token create`. Standard error is its log: what its engine does, and what fails.

    Ctrl+C and SIGTERM stop it: by default it detaches, and agents keep running until it is started again
    (serve.on_stop). If it is killed, nothing is lost.
    """
    values = _settings(database, {"host": host or None, "port": port, "resume": False if flags["no_resume"] else None})
    if flags["print_systemd"]:
        click.echo(_unit(database, targets, no_http=flags["no_http"]), nl=False)
        return 0
    if flags["print_openapi"]:
        _print_openapi()
        return 0
    if flags["no_http"] and not values.resume:
        raise InvalidInput("a server without HTTP that executes nothing has nothing to do", hint="leave one out")
    for each in targets:
        from maos.workflows import loader

        loader.load_all(each)
    prepare = _prepare_executing if flags["no_http"] else _prepare_server
    with _logging(database.settings.values.log, log_format):
        work = prepare(values, partial(_show_address, database, as_json=as_json), _tell if as_json else None)
        return database.write(lambda m: _until_stopped(m, work, values.on_stop), create=True, waits=True)


@contextmanager
def _logging(known: LogSettings, format: str | None) -> Iterator[None]:
    """Log to standard error for the time of a block; in JSON, notes are records too, so that every line is one."""
    from maos.ops import server_log

    chosen = cast("server_log.Format", format or known.format)
    if chosen == "json":
        print_above.append(lambda text: server_log.note(" ".join(text.split())))
    try:
        with server_log.logging_to(format=chosen, level=known.level):
            yield
    finally:
        if chosen == "json":
            print_above.pop()


async def _until_stopped(m: Maos, work: Work, on_stop: str) -> int:
    """Serve until a signal stops it; a second one detaches at once."""
    from maos.ops import server_log

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        if not stop.is_set():
            stop.set()
            server_log.write(server_log.STOPPING, reason=f"{on_stop}; a second signal detaches at once")
        else:
            main.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped)
    main = asyncio.create_task(work(m, stop))
    await asyncio.wait([main])
    if not main.cancelled():
        main.result()
    return 0


def _prepare_server(values: ServeSettings, ready: Ready, tell: Callable[[str], None] | None) -> Work:
    """The whole server; InvalidInput for an address that it cannot have, before a database is opened."""
    check_packages()
    from maos.web.endpoints.assets import missing
    from maos.web.server import MaosServer, check_address

    check_address(values)
    if command := missing():
        note(f"there is no page: its third-party JavaScript is not installed; `{command}` fetches it")

    async def work(m: Maos, stop: asyncio.Event) -> None:
        server = MaosServer(m, values, folder=Path.cwd(), is_executing=values.resume)
        code = "" if _is_kept() else await m.access.offer_sign_in()
        await server.serve(stop, lambda url: ready(url, code), tell)

    return work


def _prepare_executing(values: ServeSettings, ready: Ready, tell: Callable[[str], None] | None) -> Work:
    """The part of the server that executes, which needs no packages of the extra `serve`."""

    async def work(m: Maos, stop: asyncio.Event) -> None:
        async with m.supervisor.announced("", on_stop=values.on_stop, tell=tell) as supervising:
            ready("", "")
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([supervising, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if supervising.done():
                supervising.result()  # it failed, and says why

    return work


def _settings(database: DatabaseTarget, given: Mapping[str, Any]) -> ServeSettings:
    import msgspec

    known = database.settings.values.serve
    return msgspec.structs.replace(known, **{name: value for name, value in given.items() if value is not None})


def check_packages() -> None:
    """Raise NotFound when packages of the extra `serve` are not installed."""
    try:
        import maos.web.server  # noqa: F401
    except ImportError as error:
        what = f"the server needs packages that are not installed: {error.name}"
        raise NotFound(what, hint="`pip install 'maos[serve]'`") from error


def _print_openapi() -> None:
    check_packages()
    from maos.web import openapi
    from maos.web.endpoints.table import ENDPOINTS

    documents.show(openapi.document(ENDPOINTS))


def _is_kept() -> bool:
    """Whether standard output is a file or the log of systemd, which no code that signs in may be in (A23)."""
    about = os.fstat(sys.stdout.fileno())
    return stat.S_ISREG(about.st_mode) or os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def _show_address(database: DatabaseTarget, url: str, code: str, *, as_json: bool) -> None:
    """Print that the server is ready; a server without HTTP has no address."""
    from maos.ops import server_log

    server_log.write(server_log.STARTED, url=url)
    sign_in = f"{url}/sign-in?code={code}" if url and code else None
    if as_json:
        documents.show_line({"kind": "serving", "url": url or None, "sign_in": sign_in, "database": str(database.name)})
    elif not url:
        render.line(("maos", "bold"), f" executes what is open in {clean(str(database.name))}")
        render.line(("Ctrl+C stops it", "dim"))
    else:
        render.line(("maos", "bold"), f" serves {clean(str(database.name))} at ", (url, "bold"))
        if sign_in:
            render.line(("sign in with a browser, once, within 10 minutes: ", "dim"))
            render.line(f"  {sign_in}")
        else:
            render.line(("`maos token link` prints a link that signs a browser in", "dim"))
        render.line(("Ctrl+C stops it; `maos token create NAME` is for programs", "dim"))
    sys.stdout.flush()


def _tell(text: str) -> None:
    """Print what the server has started, resumed, or cannot execute, for programs; people read it in the log."""
    documents.show_line({"kind": "told", "text": text})


def _unit(database: DatabaseTarget, targets: Sequence[str], *, no_http: bool) -> str:
    """A systemd user unit that runs the server as it would run here."""
    folder = Path.cwd()
    if "\n" in str(folder) or "%" in str(folder):
        raise InvalidInput(f"{folder} cannot be written into a unit", hint="start it in another folder")
    name = str(database.name) if database.name.is_url else str(Path(str(database.name)).absolute())
    if database.name.is_url and database.name.reveal() != str(database.name):
        note(
            "the password of the database is not in the unit: set MAOS_DB in an EnvironmentFile that only you can read"
        )
    command = [sys.executable, "-P", "-m", "maos", "--db", name, "serve", *(["--no-http"] if no_http else []), *targets]
    readable = "".join(each if each.isalnum() else "-" for each in folder.name.lower()).strip("-")
    return UNIT.format(
        where=folder,
        name=f"maos-{readable or 'serve'}",
        database=shlex.quote(name),
        folder=folder,
        path=os.environ.get("PATH", "/usr/bin:/bin"),
        command=shlex.join(command),
    )


# --- credentials -------------------------------------------------------------------------------------------------


@click.group(
    cls=LazyGroup,
    lazy={
        "create": ("maos.cli.serve:create", "Create a token for a program."),
        "list": ("maos.cli.serve:list_", "List tokens and signed-in browsers."),
        "revoke": ("maos.cli.serve:revoke", "Revoke a token, or sign a browser out."),
        "link": ("maos.cli.serve:link", "Print a link that signs a browser in, once."),
    },
    examples=["maos token create phone --role answerer", "maos token list", "maos token revoke phone"],
)
def token() -> None:
    """Decide who may use `maos serve`.

    A viewer reads everything, an answerer also answers questions, an operator also starts and steers runs, and an admin
    also manages tokens. An auditor reads the audit, and how things run, but not what agents print. A token can be
    limited to projects, runs and agents; `maos access` grants it more later.
    """


def _credential(each: Credential) -> documents.Document:
    names = ("id", "kind", "name", "role", "created_us", "expires_us", "by")
    return {**documents.of(each, *names), "on": list(each.on)}


CREDENTIALS: Listing[Credential] = Listing(
    "credentials",
    (
        Column("id", lambda each: each.id, style="bold"),
        Column("kind", lambda each: each.kind),
        Column("name", lambda each: each.name, yields=1),
        Column("role", lambda each: f"{each.role} on {', '.join(each.on)}" if each.on else each.role, yields=3),
        Column("created", lambda each: render.when(each.created_us)),
        Column("expires", lambda each: render.when(each.expires_us) if each.expires_us else "never"),
        Column("by", lambda each: each.by, style="dim", yields=2),
    ),
    empty="no tokens; `maos token create NAME` creates one",
    of=_credential,
)
role_option = click.option(
    "--role", type=click.Choice(ROLES), default=ROLES[0], show_default=True, help="What it allows."
)
on_option = click.option(
    "--on", multiple=True, metavar="WHAT", help=f"Limit it to {ON.removeprefix('store, ')}; may be repeated."
)


@json_command(
    "maos token create grafana",
    "maos token create phone --role answerer --expires 4w",
    "maos token create lead --role operator --on run/r-1 --on project/.",
)
@click.argument("name")
@role_option
@on_option
@click.option("--expires", type=commands.DURATION, help="It does not count any more after so long.  [default: never]")
def create(
    database: DatabaseTarget, name: str, role: str, on: tuple[str, ...], expires: int | None, as_json: bool
) -> None:
    """Create a token for a program.

    It is printed once, alone on standard output: only its hash is recorded. Programs send it as
    `Authorization: Bearer TOKEN`; commands of maos take it from MAOS_TOKEN, with the address in MAOS_URL.
    """
    expires_s = seconds(expires) or 0.0
    made, secret = database.write(lambda m: m.access.create_token(name, role, on=on, expires_s=expires_s), create=True)
    if as_json:
        documents.show({**_credential(made), "secret": secret})
        return
    where = f" on {', '.join(made.on)}" if made.on else ""
    note(f"the token {made.name} ({made.role}{where}) is shown once; keep it like a password")
    click.echo(secret)


@json_command("maos token list")
def list_(database: DatabaseTarget, as_json: bool) -> None:
    """List tokens and signed-in browsers."""
    CREDENTIALS.show(database.read(lambda m: m.access.all()), as_json=as_json)


@json_command("maos token revoke phone", "maos token revoke phone --dry-run", "maos token revoke 3fa21b07 --json")
@click.argument("id", metavar="NAME|ID")
@dry_run_option
def revoke(database: DatabaseTarget, id: str, dry_run: bool, as_json: bool) -> None:
    """Revoke a token, or sign a browser out.

    Requests with it are refused from now on, by servers that run too. What it was granted since goes with it.
    """

    async def work(m: Maos) -> tuple[Credential, list[Grant]]:
        found = await m.access.revoke(id, dry_run=True)
        grants = [each for each in await m.access.grants(str(found.principal)) if each.id != found.id]
        return await m.access.revoke(found.id, dry_run=dry_run), grants

    gone, grants = database.write(work, dry_run=dry_run)
    also = f", with {len(grants)} grants" if grants else ""
    text = f"{'would revoke' if dry_run else 'revoked'} {words.one_line(gone.name, 60)} ({gone.id}){also}"
    found = {**_credential(gone), "grants": [each.words for each in grants], "dry_run": dry_run}
    render.show(found, text, as_json=as_json)


@json_command("maos token link", "maos token link --role viewer --on run/r-1")
@click.option("--role", type=click.Choice(ROLES), default="admin", show_default=True, help="What it allows.")
@on_option
def link(database: DatabaseTarget, role: str, on: tuple[str, ...], as_json: bool) -> None:
    """Print a link that signs a browser in, once.

    It works within 10 minutes, and when its button is pressed.
    """

    async def work(m: Maos) -> tuple[str, str]:
        server = await m.supervisor.check_server(has_page=True)
        return server.url, await m.access.offer_sign_in(role, on=on)

    url, code = database.write(work)
    render.show({"url": f"{url}/sign-in?code={code}"}, f"{url}/sign-in?code={code}", as_json=as_json)
