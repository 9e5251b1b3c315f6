"""What an author writes, functions that are workflows and functions that are their steps; what a program holds of a
workflow run that it has started; and what can go wrong with one."""

from __future__ import annotations

import ast
import asyncio
import functools
import hashlib
import inspect
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from maos.errors import InvalidInput, MaosError, NotFound
from maos.model.workflow import CHANGED, COMPLETED, PAUSED, WorkflowChanged, WorkflowRun
from maos.tuples import NamedTuple
from maos.workflows import values

P = ParamSpec("P")
R = TypeVar("R")

BACKOFF_S, BACKOFF_S_MAX = 1.0, 300.0

_UNSPELLED = ("ctx", "kind", "type_comment")
"""Fields of syntax nodes that follow from where a node stands, or are comments."""


class StepFailed(MaosError):
    """A step, a child or an agent that a workflow called has failed for good; the workflow may catch it."""

    def __init__(self, name: str, error: Mapping[str, Any], *, step_id: str = "") -> None:
        self.name = name
        self.step_id = step_id
        self.type = str(error.get("type", ""))
        """The name of what was raised, as recorded: after a crash nothing else is left of it."""
        self.message = str(error.get("message", ""))
        self.traceback = str(error.get("traceback", ""))
        """The traceback of what was raised, as recorded."""
        super().__init__(f"{name} failed: {self.type}: {self.message}" if self.type else f"{name}: {self.message}")


def failed_step(error: BaseException | None) -> str:
    """The id of the step whose failure led to an error: it was raised itself, or while it was handled; or empty."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        each = todo.pop(0)
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, StepFailed) and each.step_id:
            return each.step_id
        todo += [each.__cause__, each.__context__]
        todo += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    return ""


class WorkflowFailed(MaosError):
    """A workflow has ended without a result.

    Example::

        try:
            await m.workflows.run(shout, "hello", id="greeting-1")
        except maos.workflows.WorkflowFailed as error:
            print(error.step_id, error.type, error.traceback)
    """

    def __init__(self, what: str, *, hint: str = "", error: Mapping[str, Any] | None = None) -> None:
        super().__init__(what, hint=hint)
        error = error or {}
        self.type, self.message = str(error.get("type", "")), str(error.get("message", ""))
        """The name and the message of what its function raised; empty when it was cancelled or paused."""
        self.step_id = str(error.get("step", ""))
        """The id of the step whose failure ended it; empty when its own code failed."""
        self.traceback = str(error.get("traceback", ""))
        """The traceback of what its function raised, as recorded by the process that executed it."""
        if self.traceback:
            self.add_note(f"In the workflow:\n{self.traceback}")


class NotWaiting(MaosError):
    """Something was sent to a workflow that has ended."""


class Found(NamedTuple):
    """What a probe says: the step did take effect, and this is its result."""

    result: Any = None


NOT_DONE = "not done"
"""What a probe returns when the step did not take effect."""


@dataclass(eq=False)
class StepDefinition(Generic[P, R]):
    """A function with effects outside: its result is recorded, and it is not called again for it."""

    function: Callable[P, Any]
    name: str
    retries: int
    backoff_s: float
    timeout_s: float
    idempotent: bool
    probe: Callable[P, Any] | None

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff_s < 0 or self.timeout_s < 0:
            raise InvalidInput(f"a limit of step {self.name!r} is negative")
        functools.update_wrapper(self, self.function)

    @functools.cached_property
    def returns(self) -> Any:
        """The type that the function is annotated to return."""
        return values.annotation(self.function, "return")

    def pause_s(self, failures: int) -> float:
        """How long to wait after that many tries that failed."""
        return float(min(self.backoff_s * 2 ** (failures - 1), BACKOFF_S_MAX))

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Execute the step: in a workflow once, whatever is killed; elsewhere as a call of the plain function."""
        current = executor.get()
        working = call(self.function, args, kwargs) if current is None else current.run_step(self, args, kwargs)
        result: R = await working
        return result


class Executor(Protocol):
    """Executes the steps of the workflow function that runs now, and records their outcomes."""

    async def run_step(self, step: StepDefinition[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the recorded outcome of the step, or that of executing it now."""
        ...


executor: ContextVar[Executor | None] = ContextVar("maos_executor", default=None)
"""None outside of workflows and inside of steps."""


class Workflow(Generic[P, R]):
    """A function whose steps are recorded, so that it can be resumed after a crash."""

    def __init__(self, function: Callable[P, Awaitable[R]], *, name: str, version: str) -> None:
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(f"the workflow {name!r} is not an async function", hint="write `async def`")
        self.function = function
        self.name = name
        self.version = version
        functools.update_wrapper(self, function)

    @functools.cached_property
    def returns(self) -> Any:
        """The type that the function is annotated to return."""
        return values.annotation(self.function, "return")

    @functools.cached_property
    def code(self) -> str:
        """A digest of what the function takes and does."""
        return source_digest(self.function)

    @property
    def where(self) -> dict[str, str]:
        """Where the function is to be found by another process."""
        file = getattr(self.function.__code__, "co_filename", "")
        return {"module": self.function.__module__, "function": self.function.__qualname__, "file": file}

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function: in a workflow its steps are steps of that workflow; elsewhere nothing is recorded."""
        return await self.function(*args, **kwargs)


class StartRequest(NamedTuple):
    """A workflow with its arguments, to be started."""

    workflow: Workflow[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    id: str = ""
    options: Mapping[str, Any] = {}
    parent: str = ""


_workflows: dict[tuple[str, str], Workflow[..., Any]] = {}


class StepDecorator(Protocol):
    """Makes a step of an `async def` or of a plain `def`; the step has the result type of the function."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> StepDefinition[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepDefinition[P, R]: ...


@overload
def step(function: Callable[P, Awaitable[R]], /) -> StepDefinition[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> StepDefinition[P, R]: ...
@overload
def step(
    *,
    name: str = "",
    retries: int = 0,
    backoff_s: float = BACKOFF_S,
    timeout_s: float = 0.0,
    idempotent: bool = False,
    probe: Callable[..., Any] | None = None,
) -> StepDecorator: ...


def step(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    retries: int = 0,
    backoff_s: float = BACKOFF_S,
    timeout_s: float = 0.0,
    idempotent: bool = False,
    probe: Callable[..., Any] | None = None,
) -> Any:
    """Make a function a step: its result is recorded, and a resumed workflow run does not call it again.

    One that was interrupted is called again only if it is `idempotent`; else its `probe`, called with the same
    arguments, says `Found(result)` or `NOT_DONE`, or a person is asked. A step that raises is tried `retries` times
    more, after pauses that double. A plain `def` runs in a thread.

    Example::

        shouted = maos.step(retries=3, idempotent=True)(str.upper)  # or `@maos.step(…)` above a function
        print(await shouted("hello"))
    """

    def made(function: Callable[..., Any]) -> StepDefinition[..., Any]:
        return StepDefinition(function, name or function.__name__, retries, backoff_s, timeout_s, idempotent, probe)

    return made if function is None else made(function)


@overload
def workflow(function: Callable[P, Awaitable[R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str = "", version: str = "") -> Callable[[Callable[P, Awaitable[R]]], Workflow[P, R]]: ...


def workflow(function: Callable[..., Awaitable[Any]] | None = None, *, name: str = "", version: str = "") -> Any:
    """Make an async function a workflow: side effects go into steps, everything else is free.

    Several versions of one name can be defined: a workflow run is finished with the version it was started with.

    Example::

        whisper = maos.workflow(fetch.function)  # or `@maos.workflow` above a function
        print(await m.workflows.run(whisper, "hello"))
    """

    def made(function: Callable[..., Awaitable[Any]]) -> Workflow[..., Any]:
        defined: Workflow[..., Any] = Workflow(function, name=name or function.__name__, version=version)
        known = _workflows.setdefault((defined.name, version), defined)
        if known.where != defined.where:
            there = f"{known.where['module']}.{known.where['function']}"
            hint = "give one of them another name or version"
            raise InvalidInput(f"there is a workflow {defined.name!r} already, in {there}", hint=hint)
        _workflows[defined.name, version] = defined
        return defined

    return made if function is None else made(function)


def find(name: str, version: str = "") -> Workflow[..., Any]:
    """A definition by its name, in this process."""
    found = _workflows.get((name, version))
    if found is None:
        others = sorted(each or "(none)" for known, each in _workflows if known == name)
        which = f" version {version!r}" if version else ""
        raise NotFound(
            f"no workflow {name!r}{which} is defined in this process",
            hint=f"it has versions {', '.join(others)}" if others else "import the module that defines it first",
        )
    return found


class Handle(Generic[R]):
    """A workflow run that this process executes; or one that had ended, or stays paused, and has only its result."""

    def __init__(
        self,
        run: WorkflowRun,
        definition: Workflow[..., R],
        task: asyncio.Task[WorkflowRun] | None = None,
        stop: Callable[..., None] = lambda status, why, by="": None,
    ) -> None:
        self.run = run
        """What is recorded of it by now."""
        self._definition = definition
        self._task = task
        self.stop = stop
        """Has it paused, or ended as cancelled, with a reason, once the steps that run have ended."""

    @property
    def id(self) -> str:
        """Its id."""
        return self.run.id

    async def wait(self) -> WorkflowRun:
        """Return when it has ended or is paused."""
        return self.run if self._task is None else await asyncio.shield(self._task)

    async def result(self) -> R:
        """Return its result; raise WorkflowFailed when it fails, is cancelled or is paused."""
        return result_of(await self.wait(), self._definition)

    async def pause(self, why: str = "") -> WorkflowRun:
        """Let the steps that run end, and pause it; it can be resumed at any time."""
        self.stop(PAUSED, why)
        return await self.wait()


def result_of(run: WorkflowRun, definition: Workflow[..., R]) -> R:
    """Return the result of a workflow run that has ended; raise the error that it has ended with instead."""
    if run.status == COMPLETED:
        result: R = values.typed(run.result, definition.returns, f"what the workflow {run.name} returned")
        return result
    if run.status == CHANGED:
        raise WorkflowChanged(run.why, hint="fix the code, or resume it with the old version")
    why = f"{run.error.get('type')}: {run.error.get('message')}" if run.error else run.why or "it was detached"
    hint = f"`maos retry {run.id}` executes it again from there, with finished steps kept"
    if run.status == PAUSED:
        hint = f"`maos workflow resume {run.id}`"
    raise WorkflowFailed(f"the workflow {run.id} is {run.status}: {why}", hint=hint, error=run.error)


async def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of either kind; a plain `def` in a thread, so that the event loop stays free."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def source_digest(function: Callable[..., Any]) -> str:
    """Digest what a function takes and does. Comments, file names, its docstring and the version of Python do not
    count. Nor do the types of its arguments: recorded arguments are checked against them when a run is resumed.
    """
    try:
        tree = _parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        compiled = function.__code__
        takes = compiled.co_varnames[: compiled.co_argcount + compiled.co_kwonlyargcount]
        return hashlib.sha256(compiled.co_code + repr((compiled.co_names, takes)).encode()).hexdigest()[:16]
    definition: Any = tree.body[0]  # a function's own source is one definition
    body = definition.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    for each in ast.walk(definition.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return hashlib.sha256(_spell([definition.args, body]).encode()).hexdigest()[:16]


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:
        # Python 3.11 counts the depth of all trees together: a finaliser that ran meanwhile and printed a traceback,
        # which parses the line it shows, makes the count wrong.
        return ast.parse(source)


def _spell(part: Any) -> str:
    """Render a part of a program as text that every version of Python writes alike, which neither `ast.dump` nor
    `ast.unparse` does: fields that are empty, or that only some versions know, are left out.
    """
    if isinstance(part, ast.AST):
        fields = sorted((name, each) for name, each in ast.iter_fields(part) if name not in _UNSPELLED)
        said = ",".join(f"{name}={_spell(each)}" for name, each in fields if each is not None and each != [])
        return f"{type(part).__name__}({said})"
    if isinstance(part, list):
        return f"[{','.join(map(_spell, part))}]"
    return ascii(part)
