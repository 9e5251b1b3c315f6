"""The setup of workspaces: commands that run before an agent starts, once for all agents that need the same.

The commands run as an agent of their own, in a holder, in a template that no other agent works in: what they print and
how they end is recorded, and an engine that was killed meanwhile leaves them running. Agents that need the same setup
wait for it, in this process and in others. What a template is made from is in its name: the commands and variables, the
files of the commit that they depend on, and the ignored files that are copied. A template that is not complete is used
by no agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from maos import workspaces
from maos.engine import ownership
from maos.engine.ownership import Held
from maos.engine.streams import ATTEMPT
from maos.errors import MaosError
from maos.faults import crash_point
from maos.files import private_folder, replace_file
from maos.journal.journal import Journal, Record
from maos.model.attempt import Attempt
from maos.model.events.attempt import AttemptOutput
from maos.model.events.facts import Line
from maos.model.preparation import Preparation
from maos.model.status import AttemptStatus
from maos.tuples import NamedTuple
from maos.workspaces import Workspace, products
from maos.workspaces.git import LockedFile, lock_file
from maos.workspaces.products import Products

if TYPE_CHECKING:
    from maos.engine.attempt_spec import ResumeOptions, StartOptions
    from maos.engine.live import LiveAttempt

ROOT = "templates"
"""The folder of all templates below that of a database for the files of agents."""
WAIT_S = 7 * 86_400.0
"""How long an engine waits for the setup that another one runs: its own time limit ends it before."""
LINES_SHOWN = 20
OWN_CHARS_MAX = 58
_PROMPT = "$ "
_FORMAT = 1
"""Part of the name of every template: another one makes all of them anew."""
_AGENT, _LOCK = "agent", ".setup.lock"
T = TypeVar("T")


class SetupFailed(MaosError):
    """The setup commands of a workspace failed, so that no agent was started in it."""

    def __init__(self, attempt: Attempt, command: str, lines: Sequence[str]) -> None:
        how = "exited with code " + attempt.message.removeprefix("exit code ") if attempt.failure == "failed" else ""
        what = f"setup failed: `{command}` {how}" if how else f"setup failed at `{command}`: {attempt.message}"
        super().__init__("\n".join([what, *lines]), hint=f"`maos agent logs {attempt.agent}` shows all of its output")


class SetupStopped(MaosError):
    """The agent was stopped while its workspace was prepared."""


class Engine(Protocol):
    """What runs the commands: the engine whose agents need the setup."""

    folder: Path
    journal: Journal

    async def newest(self, agent: str) -> Attempt | None:
        """The newest attempt of an agent; None when it was never started."""

    async def get(self, agent: str) -> Attempt:
        """The newest attempt of an agent."""

    def records(self, agent: str) -> AsyncIterator[Record]:
        """Everything that is recorded of an agent."""

    async def start(self, task: str = "", *, name: str = "", **options: Unpack[StartOptions]) -> LiveAttempt:
        """Start a new agent's first attempt."""

    async def resume(self, agent: str, **options: Unpack[ResumeOptions]) -> LiveAttempt:
        """Resume an agent."""

    async def adopt(self, agent: str) -> LiveAttempt | None:
        """Adopt an attempt whose engine has exited."""


class Setups:
    """Prepares the workspaces of agents."""

    def __init__(self, attempts: Engine) -> None:
        self._attempts = attempts
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        """Setups that this engine runs, or waits for, by the names of their agents."""
        self._waiting: dict[str, set[str]] = {}
        """The agents that wait for each of them."""
        self._stops: dict[str, asyncio.Event] = {}
        self._running: dict[str, LiveAttempt] = {}
        self._begun: set[str] = set()
        """The setups whose commands this engine starts or runs."""

    async def prepare(
        self,
        workspace: Workspace,
        source: Path,
        wanted: Preparation,
        *,
        agent: str,
        run: str = "",
        time_limit_s: float,
    ) -> tuple[str, ...]:
        """Prepare the workspace of an agent, unless it was prepared before; returns what a person should know.

        `source` is the person's folder.
        """
        if (
            workspace.in_place
            or not (wanted.setup or wanted.copy_ignored)
            or await asyncio.to_thread(products.is_prepared, workspace)
        ):
            return ()
        files = await products.ignored_files(source, wanted.copy_ignored) if wanted.copy_ignored else []
        if not wanted.setup:
            await products.copy_ignored(source, workspace, files, key="copied")
            return ()
        key = await self._key(workspace, source, wanted, files)
        name = f"{run}.setup-{key[:8]}" if run else f"setup-{key[:8]}"
        setup = _Setup(wanted, source, files, key, name, time_limit_s)
        found = await self._waited(name, agent, lambda: self._in_template(setup, workspace.base))
        if not found.bound:
            await products.apply(found, workspace, key)
            return _notes(found, found.changed)
        own = setup._replace(name=_own_name(agent))
        changed = await self._waited(own.name, agent, lambda: self._in_workspace(own, workspace, agent))
        return _notes(found, changed)

    async def stop(self, agent: str) -> None:
        """Have an agent not start whose workspace is prepared; the commands are stopped if no other waits for them."""
        if agent in self._stops:
            self._stops[agent].set()

    async def close(self) -> None:
        """Detach from all setups; they keep running."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def remove_unused(self, before_us: int, *, dry_run: bool = False) -> list[tuple[Path, int]]:
        """Remove templates that no agent has needed since a time; returns their folders and sizes."""
        root = self._attempts.folder / ROOT
        found = []
        for used in await asyncio.to_thread(lambda: sorted(root.glob(f"*{_LOCK}"))):
            if used.stat().st_mtime_ns // 1000 >= before_us:
                continue
            key = used.name.removesuffix(_LOCK)
            try:
                async with lock_file(used, wait_s=0):
                    found.append((root / key, await asyncio.to_thread(products.bytes_below, root / key)))
                    if not dry_run:
                        await products.discard(root, key)
                        used.unlink()
            except LockedFile:  # it is being used
                continue
        return found

    async def _key(self, workspace: Workspace, source: Path, wanted: Preparation, files: Sequence[str]) -> str:
        """The name of the template with everything that its content depends on; values that are passed on are not
        part of it."""
        assert workspace.repository is not None
        assert workspace.base is not None
        words = {word for command in wanted.setup or () for word in command}
        inputs = await products.inputs(workspace.repository, workspace.base, wanted.setup_inputs, words)
        start = str(workspace.path.relative_to(workspace.tree))
        copied = await products.signature(source, files)
        made_from = [_FORMAT, str(workspace.repository), start, wanted.setup, sorted(wanted.of_setup), inputs, copied]
        return products.to_key(made_from)

    async def _waited(self, name: str, agent: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a setup, which the first agent that needs it starts, while the others wait."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(make())
            self._tasks[name].add_done_callback(lambda done: self._forget(name, done))
        task: asyncio.Task[T] = self._tasks[name]
        waiting = self._waiting.setdefault(name, set())
        waiting.add(agent)
        stop = self._stops[agent] = asyncio.Event()
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.discard(agent)
            stopping.cancel()
            self._stops.pop(agent, None)
        if task.done():
            return task.result()
        if not waiting and name in self._begun:
            if name in self._running:  # one that is being started stops when it finds that no agent waits for it
                await self._running[name].stop()
            await asyncio.wait({task})
        raise SetupStopped(f"{agent} was stopped while its workspace was prepared", hint="resume it")

    def _forget(self, name: str, done: asyncio.Task[Any]) -> None:
        self._tasks.pop(name, None)
        self._waiting.pop(name, None)
        if not done.cancelled():
            done.exception()  # agents that waited have it; all of them may have been stopped

    # --- running ---------------------------------------------------------------------------------------------

    async def _in_template(self, setup: _Setup, base: str | None) -> Products:
        """The products of a template, made if there is none that is complete. Other engines wait meanwhile."""
        root = self._attempts.folder / ROOT
        await asyncio.to_thread(private_folder, root)
        async with lock_file(root / f"{setup.key}{_LOCK}", wait_s=WAIT_S):
            template = await workspaces.prepare(setup.source, setup.key, root=root, base=base)
            found = await asyncio.to_thread(products.read_products, template)
            if found is None:
                await self._run(setup, template, is_new=True)
                found = await products.seal(template)
            await asyncio.to_thread(os.utime, root / f"{setup.key}{_LOCK}")  # when it was last used
            return found

    async def _in_workspace(self, setup: _Setup, workspace: Workspace, agent: str) -> list[str]:
        """Run the commands in the workspace of an agent itself; returns the tracked files that they have changed."""
        known = await self._attempts.newest(agent)
        await self._run(setup, workspace, is_new=known is None)
        return await products.finish(workspace, setup.key)

    async def _run(self, setup: _Setup, workspace: Workspace, *, is_new: bool) -> None:
        """Run the commands in a workspace until they end; SetupFailed unless they succeed."""
        noted = products.private_folder_of(workspace) / _AGENT
        attempt = await self._adopted(noted)
        if attempt is None:
            if is_new:
                await products.reset(workspace)
            await products.copy_ignored(setup.source, workspace, setup.files)
            await asyncio.to_thread(replace_file, noted, setup.name.encode())
            crash_point("setup: begun")
            self._begun.add(setup.name)
            try:
                attempt = await self._wait(setup.name, await self._start(setup, workspace))
            finally:
                self._begun.discard(setup.name)
        crash_point("setup: ended")
        if attempt.status != AttemptStatus.DONE:
            raise await self._failed(attempt)
        await asyncio.to_thread(noted.unlink, missing_ok=True)

    async def _start(self, setup: _Setup, workspace: Workspace) -> LiveAttempt:
        assert setup.wanted.setup is not None
        if await self._attempts.newest(setup.name) is not None:
            return await self._attempts.resume(setup.name, time_limit_s=setup.time_limit_s)
        return await self._attempts.start(
            " && ".join(map(shlex.join, setup.wanted.setup)),
            name=setup.name,
            kind="shell",
            argv=("sh", "-c", script(setup.wanted.setup)),
            cwd=workspace.path,
            in_place=True,
            env=setup.wanted.of_setup,
            time_limit_s=setup.time_limit_s,
        )

    async def _adopted(self, noted: Path) -> Attempt | None:
        """The attempt that an engine which has exited left running in a workspace, when it has ended; None when there
        is none, or what it has written may not be on disk."""
        try:
            name = (await asyncio.to_thread(noted.read_text)).strip()
        except FileNotFoundError:
            return None
        known = await self._attempts.newest(name)
        if known is None or not known.is_open:
            return None
        try:
            running = await self._attempts.adopt(name)
            ended = await self._attempts.get(name) if running is None else await self._wait(name, running)
        except Held:  # a person has attached to it
            await ATTEMPT.until(self._attempts.journal, known, lambda each: not each.is_open)
            ended = await self._attempts.get(name)
        is_kept = ended.status == AttemptStatus.DONE and ownership.liveness(ended.owner).is_here
        return ended if is_kept else None

    async def _wait(self, name: str, running: LiveAttempt) -> Attempt:
        self._running[name] = running
        try:
            if name in self._waiting and not self._waiting[name]:  # all that needed it were stopped meanwhile
                await running.stop()
            return await running.wait()
        finally:
            self._running.pop(name, None)

    async def _failed(self, attempt: Attempt) -> MaosError:
        """The failure of a setup, with the command that failed and the last lines of output."""
        if attempt.failure == "stopped":
            return SetupStopped(f"the setup {attempt.agent} was stopped", hint="resume the run or the agent")
        command = ""
        lines: list[str] = []
        async for record in self._attempts.records(attempt.agent):
            for fact in record.event.facts if isinstance(record.event, AttemptOutput) else ():
                if isinstance(fact, Line) and fact.text.startswith(_PROMPT):
                    command, lines = fact.text.removeprefix(_PROMPT), []
                elif isinstance(fact, Line):
                    lines = [*lines[1 - LINES_SHOWN :], fact.text]
        return SetupFailed(attempt, command, lines)


class _Setup(NamedTuple):
    wanted: Preparation
    source: Path
    files: Sequence[str]
    key: str
    name: str
    """The agent that runs the commands."""
    time_limit_s: float


def _own_name(agent: str) -> str:
    """The name of the agent that sets up the workspace of one agent alone; names have at most 64 characters."""
    digest = hashlib.sha256(agent.encode()).hexdigest()[:8]
    return f"{agent}-setup" if len(agent) < OWN_CHARS_MAX else f"{agent[: OWN_CHARS_MAX - 9]}-{digest}-setup"


def script(commands: Sequence[Sequence[str]]) -> str:
    """A script for sh that runs commands in order, and prints each before; the first that fails ends it."""
    lines = [shlex.join(each) for each in commands]
    return "\n".join(["set -e", *(f"echo {shlex.quote(_PROMPT + each)}\n{each}" for each in lines)])


def _notes(found: Products, changed: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if changed:
        shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        notes.append(f"the setup changed tracked files, which have their content again: {shown}")
    if found.bound:
        notes.append(f"the setup is not shared between workspaces: {found.bound} contains the path of its folder")
    return tuple(notes)
