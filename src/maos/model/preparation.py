"""How the workspace of an agent is prepared before the agent starts: commands, files that are copied, variables.

It can be given for one agent, a type of agents, a task, a plan and a whole run. `combine` makes one of them all.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from maos.errors import InvalidInput
from maos.patterns import regex
from maos.redact import REDACTED, Redactor, clean, is_secret_name, is_secret_value

if TYPE_CHECKING:
    from maos.settings.schema import WorkspaceSettings

FIELDS = ("setup", "setup_inputs", "setup_env", "copy_ignored", "env")
INSTRUCTIONS, SKILLS, MCP, SETTINGS, HOOKS, ALL = "instructions", "skills", "mcp", "settings", "hooks", "all"
PROJECT_SETTINGS = (INSTRUCTIONS, SKILLS, MCP, SETTINGS, HOOKS)
"""What of a project reaches the agents' programs if the person says so; nothing by default."""
BY_NAME = "pass it on by name (`NAME` without a value), from a variable that you have set"

_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_REDACTOR = Redactor({})


class Preparation(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one place says about the workspaces of agents."""

    setup: list[list[str]] | None = None
    """Commands; None when it says nothing about them, which an empty list does."""
    setup_inputs: list[str] = []
    """Patterns of the files that the result of these commands depends on."""
    setup_env: list[str] | None = None
    """The variables of these commands, if they are not those of the agent: commands that are given for several agents
    have only variables that are given for all of them."""
    copy_ignored: list[str] = []
    """Patterns of ignored files of the person's folder that are copied."""
    env: list[str] = []
    """Variables: `NAME=VALUE`, or `NAME` for one of the person's environment that is passed on."""

    @property
    def of_setup(self) -> list[str]:
        """The variables of the setup commands."""
        return self.env if self.setup_env is None else self.setup_env

    @property
    def values(self) -> dict[str, str]:
        """The variables that are given with a value."""
        pairs = (each.partition("=") for each in self.env)
        return {name: value for name, equals, value in pairs if equals}

    @property
    def names(self) -> list[str]:
        """The variables of the person's environment that are passed on."""
        return [each for each in self.env if "=" not in each]


def of_options(options: Mapping[str, Any]) -> Preparation:
    """What options of a run or an agent say."""
    given = {name: options[name] for name in FIELDS if options.get(name) is not None}
    if "env" in given:
        given["env"] = variables(given["env"])
    return msgspec.convert({name: msgspec.to_builtins(each) for name, each in given.items()}, Preparation)


def of_settings(values: WorkspaceSettings) -> Preparation:
    """What the settings say."""
    try:
        setup = [shlex.split(each) for each in values.setup]
    except ValueError as error:
        raise InvalidInput(f"workspace.setup has no command: {error}", hint="check its quotes") from error
    return Preparation(
        setup=setup or None,
        setup_inputs=list(values.setup_inputs),
        copy_ignored=list(values.copy_ignored),
        env=list(values.env),
    )


def combine(parts: Iterable[Preparation]) -> Preparation:
    """Several together: of commands and their inputs the last that are given count; files and variables add up."""
    found = Preparation()
    for each in parts:
        env = list({name_of(one): one for one in (*found.env, *each.env)}.values())
        found = Preparation(
            setup=found.setup if each.setup is None else each.setup,
            setup_inputs=each.setup_inputs or found.setup_inputs,
            setup_env=(each.setup_env or env) if each.setup is not None else found.setup_env,
            copy_ignored=list(dict.fromkeys([*found.copy_ignored, *each.copy_ignored])),
            env=env,
        )
    return found


def to_options(preparation: Preparation) -> dict[str, Any]:
    """The options that say this; what it does not say is left out."""
    found: dict[str, Any] = msgspec.to_builtins(preparation)
    return found


def variables(given: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Variables as `Preparation` has them; in a mapping, None passes one on."""
    if isinstance(given, Mapping):
        return [name if value is None else f"{name}={value}" for name, value in given.items()]
    return list(given)


def name_of(variable: str) -> str:
    """The name of a variable that is given as NAME or NAME=VALUE."""
    return variable.partition("=")[0]


def check(part: Preparation) -> Iterator[tuple[str, str, str]]:
    """What is wrong with it: for each mistake the field, what is wrong, and what to do."""
    for each in (*part.env, *(part.setup_env or ())):
        if problem := check_variable(each):
            yield "env", *problem
    for field in ("copy_ignored", "setup_inputs"):
        for pattern in getattr(part, field):
            if not pattern or pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
                yield field, f"{pattern!r} is no pattern of files", "it is relative to the root of the repository"
    for command in part.setup or ():
        if not command or not command[0]:
            yield "setup", "a command is empty", "give it a program"
        elif REDACTED in _REDACTOR.text(" ".join(command)):
            yield "setup", "a command contains a secret, which is never recorded", f"in `env`, {BY_NAME}"


def check_variable(given: str) -> tuple[str, str] | None:
    """What is wrong with a variable, and what to do; None when nothing is."""
    name, equals, value = given.partition("=")
    if not _VARIABLE.fullmatch(name):
        return f"{name[:60]!r} cannot name a variable", "give NAME=VALUE, or NAME to pass one of yours on"
    if name.startswith("MAOS_"):
        return f"{name} is a variable of maos itself", "give it another name"
    if equals and (is_secret_name(name) and is_secret_value(value)):
        return f"the value of {name} looks like a secret, and values are recorded", BY_NAME
    if equals and clean({name: value}, _REDACTOR.text) != {name: value}:
        return f"the value of {name} contains a secret, and values are recorded", BY_NAME
    if "\0" in value:
        return f"the value of {name} has a NUL byte, which no variable can have", "leave it out"
    return None


def checked(part: Preparation) -> Preparation:
    """The preparation itself; InvalidInput when something is wrong with it."""
    for _field, what, hint in check(part):
        raise InvalidInput(what, hint=hint)
    return part


def project_settings(given: Iterable[str]) -> list[str]:
    """What of a project reaches its agents, in a fixed order; InvalidInput for a word that is none of these."""
    wanted = {word.strip() for each in given for word in each.split(",") if word.strip()}
    if unknown := sorted(wanted - {*PROJECT_SETTINGS, ALL}):
        known = ", ".join((*PROJECT_SETTINGS, ALL))
        raise InvalidInput(f"{unknown[0]!r} is nothing that a project can give to agents", hint=f"there are: {known}")
    return [each for each in PROJECT_SETTINGS if ALL in wanted or each in wanted]
