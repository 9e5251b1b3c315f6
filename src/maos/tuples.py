"""`NamedTuple`, which costs a tenth of `typing.NamedTuple` to define.

A command defines some two hundred of them while it loads. `typing.NamedTuple` compiles each annotation, and a
constructor for each class; here annotations stay as they are, and a constructor is compiled when its class is first
called. For type checkers it is `typing.NamedTuple`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature
    from typing import NamedTuple as NamedTuple
    from typing import Self
else:
    from _collections import _tuplegetter
    from collections import namedtuple

    class _NamedTupleType(type):
        """Makes a tuple of each class whose annotated names are its items."""

        def __new__(
            metatype, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **more: Any
        ) -> _NamedTupleType:
            namespace.setdefault("__slots__", ())
            fields = tuple(namespace.get("__annotations__", ()))
            if fields and not any(getattr(base, "_fields", ()) for base in bases):
                defaults = {field: namespace[field] for field in fields if field in namespace}
                if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                    raise TypeError(f"{name}: an item without a default follows one with a default")
                namespace |= {field: _tuplegetter(number, None) for number, field in enumerate(fields)}
                namespace |= {"_fields": fields, "__match_args__": fields, "_field_defaults": defaults}
                namespace["__new__"] = _compile_constructor
            return super().__new__(metatype, name, bases, namespace, **more)

        @property
        def __signature__(cls) -> Signature | None:
            """How it is called, for `help` and editors."""
            from inspect import Parameter, Signature

            defaults, hints = getattr(cls, "_field_defaults", {}), cls.__annotations__
            return Signature(
                Parameter(
                    each,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=defaults.get(each, Parameter.empty),
                    annotation=hints.get(each, Parameter.empty),
                )
                for each in cls._fields
            )

    class NamedTuple(tuple, metaclass=_NamedTupleType):
        """The base of classes whose annotated names are the items of a tuple."""

        _fields = ()

        @classmethod
        def _make(cls, items: Iterable[Any]) -> Self:
            made = tuple.__new__(cls, items)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} items, not {len(made)}")
            return made

        def _replace(self, **changed: Any) -> Self:
            made = self._make(map(changed.pop, self._fields, self))
            if changed:
                raise ValueError(f"{type(self).__name__} has no {', '.join(changed)}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            items = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({items})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    def _compile_constructor(cls: type[NamedTuple], *args: Any, **more: Any) -> NamedTuple:
        """Give the class its constructor, which takes the place of this one, and call it."""
        owner = next(each for each in cls.__mro__ if "_fields" in vars(each))
        new = namedtuple(owner.__name__, owner._fields, defaults=owner._field_defaults.values()).__new__
        owner.__new__ = new
        return new(cls, *args, **more)
