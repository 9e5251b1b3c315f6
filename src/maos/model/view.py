"""Read-only views of plain data.

States are shared: by the cache, by later versions, by several readers. A view can be read and not
altered, and copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload


class MapView(Mapping[str, Any]):
    """A dictionary that can only be read."""

    __slots__ = ("_data",)

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def __getitem__(self, key: str) -> Any:
        return view(self._data[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __eq__(self, other: object) -> bool:
        return bool(self._data == plain(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._data)


class ListView(Sequence[Any]):
    """A list that can only be read."""

    __slots__ = ("_data",)

    def __init__(self, data: list[Any]) -> None:
        self._data = data

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> ListView: ...

    def __getitem__(self, index: int | slice) -> Any:
        return view(self._data[index])

    def __iter__(self) -> Iterator[Any]:
        return map(view, self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return bool(self._data == plain(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._data)


def view(value: Any) -> Any:
    """The value itself if it cannot be altered, else a view of it."""
    if type(value) is dict:
        return MapView(value)
    if type(value) is list:
        return ListView(value)
    return value


def plain(value: Any) -> Any:
    """What a view looks at; anything else as it is."""
    return value._data if isinstance(value, (MapView, ListView)) else value


def copied(value: Any) -> Any:
    """A copy of plain data that is the caller's own, however deep."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    return value
