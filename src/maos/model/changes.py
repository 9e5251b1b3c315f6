"""Changes to a state: computed from what is wanted, applied to what is there, and shown as path, old, new and kind.

A state is plain JSON data whose root is a dictionary. Paths are JSON pointers (RFC 6901): `/messages/3/text`. Applying
changes copies only what lies on their paths; everything else is shared with the state before, which is never altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, overload

from maos.errors import Corrupt, InvalidInput
from maos.tuples import NamedTuple

Kind = Literal["create", "update", "delete"]
Path = tuple[str | int, ...]
Op = list[Any]
"""A stored change: ["set", path, value], ["del", path] or ["ext", path, index of the first item, items]."""

INDEX_DIGITS_MAX = 18
"""What has more digits is no index of any list, and Python refuses to read very long numbers."""


class _Marker:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


DELETE: Final = _Marker("maos.DELETE")
"""In an update: remove this field.

Example::

    await m.state.update("reviewer", {"error": maos.DELETE})
"""

MISSING: Final = _Marker("maos.MISSING")
"""In a change: there was, or is, nothing at this path.

Example::

    changes = await m.state.diff("reviewer", 1, 3)
    added = [change.path for change in changes if change.old is maos.MISSING]
"""


class Extend:
    """In an update: add these items to the end of a list.

    Example::

        await m.state.update("reviewer", {"messages": maos.Extend([{"text": "hello"}])})
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)


class Replace:
    """In an update: replace a dictionary by this value instead of merging the two.

    Example::

        await m.state.update("reviewer", {"configuration": maos.Replace({"model": "small"})})
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Change(NamedTuple):
    """One path of a state that became, changed or went.

    Example::

        for path, old, new, kind in await m.state.diff("reviewer", 1, 3):
            print(kind, path, old, new)
    """

    path: str
    old: Any
    new: Any
    kind: Kind


# --- paths -------------------------------------------------------------------------------------------------------


def pointer(path: Path) -> str:
    """The path as text."""
    text = ""
    for part in path:
        name = str(part)
        text += "/" + (name.replace("~", "~0").replace("/", "~1") if "~" in name or "/" in name else name)
    return text


def parse_pointer(text: str, state: Any) -> Path:
    """The parts of a pointer; numbers are list indexes where the state has a list."""
    if text == "":
        return ()
    if not text.startswith("/"):
        raise InvalidInput(f"{text!r} is not a path", hint="a path looks like /memory/facts/0")
    parts: list[str | int] = []
    for raw in text[1:].split("/"):
        part: str | int = raw.replace("~1", "/").replace("~0", "~") if "~" in raw else raw
        if type(state) is list:
            if raw.isascii() and raw.isdigit() and len(raw) <= INDEX_DIGITS_MAX:
                part = int(raw)
            state = _child(state, part)
        elif type(state) is dict:
            state = state.get(part, MISSING)
        parts.append(part)
    return tuple(parts)


def find(state: dict[str, Any], text: str) -> Any:
    """What is at a pointer, or MISSING."""
    if text.rfind("/") == 0 and "~" not in text:
        return state.get(text[1:], MISSING)  # a field of the root: most pointers there are
    return lookup(state, parse_pointer(text, state))


def lookup(state: Any, path: Path) -> Any:
    """What is at a path, or MISSING."""
    for part in path:
        state = _child(state, part)
        if state is MISSING:
            return MISSING
    return state


def meet(one: str, other: str) -> bool:
    """Whether two pointers are the same, or one of them leads to something inside what the other leads to."""
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def _child(node: Any, part: str | int) -> Any:
    if isinstance(node, dict):
        return node.get(part, MISSING)
    if isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node):
        return node[part]
    return MISSING


# --- from what is wanted to operations ---------------------------------------------------------------------------


def operations(state: dict[str, Any], wanted: Mapping[str, Any]) -> list[Op]:
    """The operations that bring about a partial update; none for what is so already.

    Nested dictionaries merge. A key that starts with "/" is a path. A list is compared item by item. The operations
    share nothing with what is wanted, so the caller may keep altering that.
    """
    found: list[Op] = []
    try:
        for key, value in wanted.items():
            if type(key) is not str:
                raise InvalidInput(f"the key {key!r} is a {type(key).__name__}", hint="keys are strings in JSON")
            path = parse_pointer(key, state) if key.startswith("/") else (key,)
            _merge(found, path, lookup(state, path), value, state)
        return [copied(op) for op in found]
    except RecursionError:
        raise InvalidInput("the update is nested too deep, or contains itself") from None


def _merge(found: list[Op], path: Path, old: Any, new: Any, root: dict[str, Any]) -> None:
    if new is DELETE:
        if old is not MISSING:
            _delete(found, path, root)
    elif type(new) is Extend:
        _check_parent(path, root)
        _extend(found, path, old, new)
    elif type(new) is Replace:
        _check_parent(path, root)
        _compare(found, path, old, new.value)
    elif type(new) is dict and type(old) is dict:
        for key, value in new.items():
            if type(key) is not str:
                raise InvalidInput(
                    f"{pointer(path)}: the key {key!r} is a {type(key).__name__}", hint="keys are strings"
                )
            _merge(found, (*path, key), old.get(key, MISSING), value, root)
    else:
        _check_parent(path, root)
        _compare(found, path, old, _resolved(new))


def _resolved(value: Any) -> Any:
    """A value for a place where nothing was: markers inside it mean what they would mean there."""
    if type(value) is Extend:
        return value.items
    if type(value) is Replace:
        return value.value
    if type(value) is dict:
        return {key: _resolved(item) for key, item in value.items() if item is not DELETE}
    return value


def _check_parent(path: Path, root: dict[str, Any]) -> None:
    if len(path) == 1:
        return  # the root may get any field
    parent = lookup(root, path[:-1])
    if not isinstance(parent, (dict, list)):
        raise InvalidInput(f"{pointer(path[:-1])} is not there or holds no fields", hint="create it first")
    if isinstance(parent, list) and not (isinstance(path[-1], int) and path[-1] <= len(parent)):
        raise InvalidInput(f"{pointer(path)} is beyond the end of a list of {len(parent)} items")


def _extend(found: list[Op], path: Path, old: Any, new: Extend) -> None:
    if old is MISSING:
        found.append(["set", pointer(path), new.items])
    elif type(old) is list:
        if new.items:
            found.append(["ext", pointer(path), len(old), new.items])
    else:
        raise InvalidInput(f"{pointer(path)} is not a list", hint="only lists can be extended")


def _delete(found: list[Op], path: Path, root: dict[str, Any]) -> None:
    parent = lookup(root, path[:-1])
    if isinstance(parent, list):  # what follows moves up: say it as the list that results
        index = path[-1]
        assert isinstance(index, int)
        _compare(found, path[:-1], parent, [*parent[:index], *parent[index + 1 :]])
    else:
        found.append(["del", pointer(path)])


def _compare(found: list[Op], path: Path, old: Any, new: Any) -> None:
    """The operations from one value to another, as deep as the two are alike."""
    if old is MISSING:
        found.append(["set", pointer(path), new])
    elif type(old) is dict and type(new) is dict:
        for key in old:
            if key not in new:
                found.append(["del", pointer((*path, key))])
        for key, value in new.items():
            _compare(found, (*path, key), old.get(key, MISSING), value)
    elif type(old) is list and type(new) is list:
        _compare_lists(found, path, old, new)
    elif type(old) is not type(new) or old != new:
        found.append(["set", pointer(path), new])


def _compare_lists(found: list[Op], path: Path, old: list[Any], new: list[Any]) -> None:
    shared = min(len(old), len(new))
    for index in range(len(old) - 1, shared - 1, -1):  # from the end, so that each is the last when it goes
        found.append(["del", pointer((*path, index))])
    for index in range(shared):
        if old[index] is not new[index]:
            _compare(found, (*path, index), old[index], new[index])
    if len(new) > shared:
        found.append(["ext", pointer(path), shared, new[shared:]])


def difference(old: dict[str, Any], new: dict[str, Any]) -> list[Op]:
    """The operations from one state to another."""
    found: list[Op] = []
    _compare(found, (), old, new)
    return found


def describe(wanted: Any) -> Any:
    """A wanted update as plain data, markers included: equal for equal updates."""
    if type(wanted) is Extend:
        return {"extend": wanted.items}
    if type(wanted) is Replace:
        return {"replace": wanted.value}
    if wanted is DELETE:
        return {"delete": True}
    if isinstance(wanted, Mapping):
        return {"fields": {key: describe(value) for key, value in wanted.items()}}
    return {"value": wanted}


# --- from operations to states and changes -----------------------------------------------------------------------


def well_formed(op: Any) -> bool:
    """Whether something read from outside is an operation; whether it fits a state is another question."""
    if type(op) is not list or len(op) < 2 or type(op[1]) is not str:
        return False
    verb, path = op[0], op[1]
    if path == "":
        return verb == "set" and len(op) == 3 and type(op[2]) is dict
    if path[0] != "/":
        return False
    if verb == "ext":
        return len(op) == 4 and type(op[2]) is int and type(op[3]) is list
    return len(op) == 3 if verb == "set" else verb == "del" and len(op) == 2


class StateDraft:
    """A state being changed: copies what lies on the paths of the operations, shares the rest with the original."""

    __slots__ = ("_fresh", "_kept", "root")

    def __init__(self, state: dict[str, Any]) -> None:
        self.root = dict(state)
        self._fresh = {id(self.root)}
        self._kept: list[Any] = []  # keeps every copy alive, so that no id is used twice

    def apply(self, op: Op) -> None:
        """Execute one operation; Corrupt if it does not fit."""
        try:
            verb, text = op[0], op[1]
            if verb == "set" and text.rfind("/") == 0 and "~" not in text:
                self.root[text[1:]] = op[2]  # a field of the root: most operations there are
                return
            path = parse_pointer(text, self.root)
            if not path:
                self.root = dict(op[2])
                self._fresh.add(id(self.root))
                self._kept.append(self.root)
            elif verb == "ext":
                node = self._own(path)
                if len(node) != op[2]:
                    raise ValueError(f"the list has {len(node)} items, expected {op[2]}")
                node.extend(op[3])
            else:
                _set_or_drop(self._own(path[:-1]), verb, path[-1], op)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, InvalidInput) as error:
            raise Corrupt(f"operation {str(op)[:80]} does not fit the state: {error}") from error

    def _own(self, path: Path) -> Any:
        """The container at a path, copied if it is still shared."""
        node: Any = self.root
        for part in path:
            child = node[part]
            if id(child) not in self._fresh:
                child = child.copy()
                self._fresh.add(id(child))
                self._kept.append(child)
                node[part] = child
            node = child
        return node


def _set_or_drop(node: Any, verb: str, part: str | int, op: Op) -> None:
    if verb == "del":
        if type(node) is list and part != len(node) - 1:
            raise ValueError("only the last item of a list can go")
        del node[part]
    elif verb == "set":
        if type(node) is list and part == len(node):
            node.append(op[2])
        else:
            node[part] = op[2]
    else:
        raise ValueError(f"unknown operation {verb!r}")


def apply(state: dict[str, Any], ops: Iterable[Op]) -> dict[str, Any]:
    """The state after some operations; the given one stays as it is."""
    draft = StateDraft(state)
    for op in ops:
        draft.apply(op)
    return draft.root


def changes(state: dict[str, Any], ops: Iterable[Op]) -> Iterator[Change]:
    """What operations change in a state, one path at a time; the values are copies, the caller's own."""
    draft = StateDraft(state)
    for op in ops:
        verb, path = op[0], op[1]
        if verb == "ext":
            yield from (_change(f"{path}/{op[2] + offset}", MISSING, item) for offset, item in enumerate(op[3]))
        elif path == "":
            for key, value in op[2].items():
                yield _change(pointer((key,)), draft.root.get(key, MISSING), value)
        else:
            old = lookup(draft.root, parse_pointer(path, draft.root))
            yield _change(path, old, MISSING if verb == "del" else op[2])
        draft.apply(op)


def _change(path: str, old: Any, new: Any) -> Change:
    kind: Kind = "delete" if new is MISSING else "create" if old is MISSING else "update"
    return Change(path, copied(old), copied(new), kind)


# --- states to be read -------------------------------------------------------------------------------------------


class _View:
    """States are shared: by the cache, by later versions, by several readers. A view can be read and not altered, and
    copies nothing."""

    __slots__ = ("_data",)
    __hash__ = None  # type: ignore[assignment]  # equal to the list or dictionary it shows, which has none either

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, item: object) -> bool:
        return plain(item) in self._data

    def __eq__(self, other: object) -> bool:
        return bool(self._data == plain(other))

    def __repr__(self) -> str:
        return repr(self._data)


class MapView(_View, Mapping[str, Any]):
    """A dictionary that can only be read."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return view(self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)


class ListView(_View, Sequence[Any]):
    """A list that can only be read."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> ListView: ...

    def __getitem__(self, index: int | slice) -> Any:
        return view(self._data[index])

    def __iter__(self) -> Iterator[Any]:
        return map(view, self._data)


def view(value: Any) -> Any:
    """The value itself if it cannot be altered, else a view of it."""
    if type(value) is dict:
        return MapView(value)
    return ListView(value) if type(value) is list else value


def plain(value: Any) -> Any:
    """What a view looks at; anything else as it is."""
    return value._data if isinstance(value, _View) else value


def copied(value: Any) -> Any:
    """A copy of plain data that is the caller's own, however deep."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value
