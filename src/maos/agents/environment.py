"""The environment of an agent's program: the little it needs, and nothing it was not given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from maos.agents.contract import AgentMissing, LaunchOrder
from maos.files import private_folder
from maos.redact import is_secret_name, is_secret_value

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

VERSION_S_MAX = 30.0
_PLACES = ("/", "~", "./", "http://", "https://", "file://")


def of_child(order: LaunchOrder, environment: Mapping[str, str], variables: Sequence[str] = ()) -> dict[str, str]:
    """The whole environment of a program: a home of its own, the variables it needs, and what the user gave it.

    Nothing else of the engine's environment is passed on: what is not there cannot be leaked (A12, A16).
    """
    temporary = order.home / "tmp"
    private_folder(temporary)
    fixed = {
        "PATH": environment.get("PATH") or PATH_DEFAULT,
        "HOME": str(order.home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    }
    needed = {name: environment[name] for name in variables if environment.get(name)}
    return {**fixed, **needed, **order.values, **order.env}


def secrets_of(
    order: LaunchOrder, environment: Mapping[str, str], secret_variables: Sequence[str] = ()
) -> dict[str, str]:
    """What must never be written down, by name: the program's keys, and the variables that the person passes on.

    Paths and addresses among those stay readable, unless their names say that they are secret; the password in an
    address is recognised by its form.
    """
    given = {name: environment.get(name, "") for name in secret_variables}
    given |= {
        name: value
        for name, value in order.env.items()
        if name in given or is_secret_name(name) or not value.startswith(_PLACES)
    }
    for server in order.mcp:
        given |= {name: value for name, value in server.env.items() if is_secret_name(name)}
    return {name: value for name, value in given.items() if is_secret_value(value)}


def program_path(name: str, environment: Mapping[str, str], *, hint: str) -> Path:
    """Where the program of that name is, found as a shell would find it; a name with a slash is left as it is."""
    if "/" in name:
        return Path(name)  # relative to the folder the agent works in, which is looked at when it starts
    import shutil  # it loads four compression libraries, and most kinds never come here

    path = environment.get("PATH") or PATH_DEFAULT
    found = shutil.which(name, path=path)
    if found is None:
        raise AgentMissing(f"there is no program {name!r} on the PATH", hint=hint)
    return Path(os.path.abspath(found))


def version_told(program: Path, env: Mapping[str, str]) -> str | None:
    """What a program says when it is asked for its version; None when it cannot be asked.

    The only thing that is started outside a holder: it must be known before there is one.
    """
    import subprocess

    try:
        done = subprocess.run(
            [program, "--version"],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace")
