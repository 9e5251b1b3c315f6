"""Where a run came from that was begun elsewhere, in the stream `bundle/<id>`: brought by a file, and agreed to or not.

A stream of its own: nothing in the file can write to it, so nothing in the file can agree in a person's place.
"""

from __future__ import annotations

from collections.abc import Iterator


def stream(id: str) -> str:
    """The stream of what brought a run or a workflow here."""
    return f"bundle/{id}"


def owners(name: str) -> Iterator[str]:
    """The runs and workflows that an agent of that name can belong to, itself among them."""
    yield name
    yield name.removesuffix("-plan")
    while "." in name:
        name = name.rpartition(".")[0]
        yield name
