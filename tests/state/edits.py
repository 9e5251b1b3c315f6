"""Edits of a state, each as a wish to the agent and as a change to a plain copy: what one does the other must do."""

import copy
from random import Random
from typing import Any

import pytest

import maos
from maos.state import folds

LISTS = ("messages", "memory/facts", "a/b\tc~d", "nul\0🦑")
"""Keys of lists; the second is nested, the others have every character that might get in the way."""

Wish = dict[str, Any]


def start() -> dict[str, Any]:
    return {"messages": [{"role": "user", "parts": []}], "memory": {"facts": [], "n": 0}, "n": 0}


def node_of(state: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The dictionary a list is in, and its key there."""
    return (state.setdefault("memory", {}), "facts") if name == "memory/facts" else (state, name)


def wish_for(name: str, value: Any) -> Wish:
    return {"memory": {"facts": value}} if name == "memory/facts" else {name: value}


def pointer_to(name: str, index: int | None = None) -> str:
    path = "/memory/facts" if name == "memory/facts" else "/" + name.replace("~", "~0").replace("/", "~1")
    return path if index is None else f"{path}/{index}"


def edit(chance: Random, state: dict[str, Any], number: int) -> Wish:
    """Change the state somehow, and say the same as a wish; mostly lists grow, sometimes they suffer."""
    name = chance.choice(LISTS)
    node, key = node_of(state, name)
    items: list[Any] | None = node.get(key)
    what = chance.choices(
        ("extend", "scalar", "item", "inner", "drop item", "shorten", "replace", "insert", "remove", "memory"),
        (40, 12, 6, 4, 6, 4, 4, 4, 3, 2),
    )[0]
    if what == "memory":
        state["memory"] = {"n": number}
        return {"memory": maos.Replace({"n": number})}
    if what == "extend" or not items:
        more = [{"role": f"r{number}", "parts": [number, n]} for n in range(chance.randrange(1, 6))]
        node[key] = [*(items or []), *copy.deepcopy(more)]
        return wish_for(name, maos.Extend(more) if items is not None else more)
    index = chance.randrange(len(items))
    if what == "scalar":
        state["n"] = number
        state["status"] = f"at {number}"
        return {"n": number, "status": f"at {number}"}
    if what == "item":
        items[index] = {"put": number}
        return {pointer_to(name, index): maos.Replace({"put": number})}
    if what == "inner":
        items[index]["seen"] = number
        return {f"{pointer_to(name, index)}/seen": number}
    if what == "drop item":
        del items[index]
        return {pointer_to(name, index): maos.DELETE}
    if what == "shorten":
        del items[index:]
        return wish_for(name, copy.deepcopy(items))
    if what == "replace":
        node[key] = [number] * chance.randrange(12)
        for place, _ in enumerate(node[key]):
            node[key][place] = {"again": number, "place": place}
        return wish_for(name, copy.deepcopy(node[key]))
    if what == "insert":
        items.insert(index, {"inserted": number})
        return wish_for(name, copy.deepcopy(items))
    del node[key]
    return wish_for(name, maos.DELETE)


@pytest.fixture
def small_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds after a few events, lists that are long with a few items, segments of a few items."""
    monkeypatch.setattr(folds, "FOLD_EVERY", 5)
    monkeypatch.setattr(folds, "FOLD_COSTLY_EVERY", 5)
    monkeypatch.setattr(folds, "LONG_LIST", 4)
    monkeypatch.setattr(folds, "SEGMENT_ITEMS_MAX", 3)
