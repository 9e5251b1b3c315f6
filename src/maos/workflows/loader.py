"""Loads the definition of a workflow: by what a person types, or by what was recorded."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maos.errors import InvalidInput, NotFound
from maos.plans.source import is_plan_file
from maos.workflows.definition import Workflow, find


def load(target: str) -> Workflow[..., Any]:
    """Load `FILE.py:FUNCTION`, `FILE.py` with one workflow in it, or `MODULE:FUNCTION`."""
    source, _, name = target.partition(":")
    if is_plan_file(source):
        raise InvalidInput(f"{target} is a plan file, and no function", hint="`maos workflow run` executes it")
    if not name and not source.endswith(".py"):
        raise InvalidInput(f"{target!r} names no workflow", hint="use FILE.py:FUNCTION, MODULE:FUNCTION or FILE.yaml")
    return _pick(load_all(source), name, source)


def load_all(target: str) -> Any:
    """Load a file or a module with all workflows that it defines; return the module."""
    source = target.partition(":")[0]
    return _import_file(Path(source)) if source.endswith(".py") else _import_module(source)


def load_recorded(name: str, version: str, where: Mapping[str, Any]) -> Workflow[..., Any]:
    """Load the definition of a workflow that was begun, from the file or module that it came from."""
    try:
        return find(name, version)
    except NotFound:
        pass
    file, module = Path(str(where.get("file", ""))), str(where.get("module", ""))
    source = where.get("file") or "the file"
    gone = NotFound(f"{source} that defines the workflow {name!r} is not there", hint="name it with --from FILE.py")
    if file.suffix == ".py" and file.is_file():
        _import_file(file)
    elif module in ("", "__main__"):
        raise gone
    else:
        try:
            _import_module(module)
        except NotFound as error:
            raise gone from error
    return find(name, version)


def _import_file(file: Path) -> Any:
    if not file.is_file():
        raise NotFound(f"there is no file {file}", hint="check the path")
    file = file.resolve()
    known = next((each for each in list(sys.modules.values()) if _is_from(each, file)), None)
    if known is not None:
        return known
    _look_in(str(file.parent))
    name = _name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InvalidInput(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _look_in(folder: str) -> None:
    """Have modules of a folder found before those that are installed, and after those of Python itself."""
    if folder not in sys.path:
        packages = ("site-packages", "dist-packages")
        installed = (index for index, each in enumerate(sys.path) if each.endswith(packages))
        sys.path.insert(next(installed, len(sys.path)), folder)


def _name(file: Path) -> str:
    """What a file is called as a module: as others in its folder import it, unless that is another module's name."""
    try:
        found = importlib.util.find_spec(file.stem) if "." not in file.stem else None
    except (ImportError, ValueError):
        found = None
    if found is not None and os.path.realpath(found.origin or "") == str(file):
        return file.stem
    return f"maos_file_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"


def _is_from(module: Any, file: Path) -> bool:
    found = getattr(module, "__file__", None)
    return isinstance(found, str) and os.path.realpath(found) == str(file)


def _import_module(name: str) -> Any:
    _look_in(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotFound(f"there is no module {name!r}: {error}", hint="check the name, or name a file") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"the module {name} cannot be loaded: {type(error).__name__}: {error}") from error


def _pick(module: Any, name: str, source: str) -> Workflow[..., Any]:
    found = {key: each for key, each in vars(module).items() if isinstance(each, Workflow)}
    if name:
        if name not in found:
            there = f"it has {', '.join(found)}" if found else "decorate a function with @maos.workflow"
            raise NotFound(f"{source} has no workflow {name!r}", hint=there)
        return found[name]
    own = [each for each in found.values() if each.function.__module__ == module.__name__]
    if len(own) != 1:
        there = f"name one: {', '.join(found)}" if found else "decorate a function with @maos.workflow"
        raise InvalidInput(f"{source} has {len(own)} workflows", hint=there)
    return own[0]
