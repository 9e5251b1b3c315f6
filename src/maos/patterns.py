"""Regular expressions that are compiled when they are first used.

A command loads a hundred of them and uses a few; compiling the others takes as long as opening the database.
"""

from __future__ import annotations

import re
from typing import Any, cast, overload


class _Uncompiled:
    """What a compiled pattern can do, once it is asked for any of it."""

    def __init__(self, text: Any, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._given)
        for each in ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn"):
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


@overload
def regex(text: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def regex(text: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def regex(text: Any, flags: int = 0) -> Any:
    """Return a regular expression, as `re.compile` does; one that is wrong raises an error when it is first used."""
    return cast("re.Pattern[Any]", _Uncompiled(text, flags))
