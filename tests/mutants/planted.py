"""The list of planted bugs: one file of TOML for each part of maos, one table for each bug."""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LISTS = Path(__file__).parent


class Wrong(Exception):
    """An entry of the list that cannot be carried out, or a name that is not in it."""


@dataclass(frozen=True)
class Mutant:
    """One bug: what it breaks, which text becomes which, and the tests that must notice."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, project: Path) -> None:
        """Plant the bug in a copy of the project."""
        path = project / self.file
        if not path.is_file():
            raise Wrong(f"there is no {self.file}")
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise Wrong(f"its old text is {count} times in {self.file}, not once")
        made_s = path.stat().st_mtime
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        # Python takes byte code of a file of the same size and the same second for that of the file.
        os.utime(path, (made_s + 10, made_s + 10))


def read(folder: Path = LISTS) -> list[Mutant]:
    """Every bug of the list, in the order of the files."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            try:
                found.append(Mutant(f"{path.stem}/{name}", **{**entry, "tests": tuple(entry["tests"])}))
            except (KeyError, TypeError) as error:
                raise Wrong(f"{path.name}: {name}: {error}") from error
    return found


def chosen(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Those with a name, or of a part, that was asked for; all when nothing was."""
    if not words:
        return list(mutants)
    for word in words:
        if not any(_is(mutant, word) for mutant in mutants):
            raise Wrong(f"no planted bug is called {word}: --list shows their names")
    return [mutant for mutant in mutants if any(_is(mutant, word) for word in words)]


def _is(mutant: Mutant, word: str) -> bool:
    part, name = mutant.name.split("/")
    return word in (mutant.name, part, name)
