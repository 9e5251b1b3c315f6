"""Mutations of files that people write and of streams that agents write: structure first, then bytes."""

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

CASES = int(os.environ.get("MAOS_FUZZ_CASES", "870"))
"""For each kind of file and of stream."""
CASE_S_MAX = 30
"""A case that takes more processor time hangs. One that waits for ever is ended by the time limit of the test."""

VALUES: list[Any] = [
    None, True, False, 0, -1, 1 << 31, 1 << 63, 1 << 64, 10**400, -(10**400), 0.1, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), "", " ", "\x00", "\ud800", "\x1b[31mred\x1b[0m", "\u202egnp.exe", "a" * 70_000,
    "../../../../etc/passwd", "$(id)", "{{ x }}", "{{ matrix.x }}", "{{", "yes", "0x10", "1_000", "2026-13-45", "~",
    "💥",
    [], {}, [[]], [None], {"": None}, [[[[[[]]]]]], {"a": {"b": {"c": {}}}}, ["a"] * 2000, {"\ud800": 1},
    1794816000000, "1794816000000", -5, "NaN", "00000000-0000-0000-0000-000000000000",
]  # fmt: skip

TOKENS = [
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\xed\xa0\x80", b"\\ud800", b"\x1b[2J", b"[", b"]", b"{",
    b"}",
    b'"', b"'", b'"""', b"'''", b"=", b":", b"#", b"---\n", b"...\n", b"&a ", b"*a ", b"!!python/object:os.system ",
    b"!!binary ", b"<<: *a\n", b"- ", b"? ", b"| \n", b"> \n", b"%YAML 9.9\n", b"nan", b"inf", b".nan", b"-.inf", b"0x",
    b"0x" + b"f" * 5000, b"9" * 5000, b"1e999", b"1" + b"_0" * 3000, b"a." * 15_000 + b"a = 1\n", b"[" * 20_000,
    b"{" * 20_000, b"[[a]]\n" * 500, b"a = {b = " * 500, b"- - - - " * 500, b"&a [*a]\n", b"\t", b"\xc2\x85",
    b"\xe2\x80\xa8",
    b'{"a":' * 3000, b"null", b"true", b"-0", b"+", b"'\\''", b"\\x", b"\\U00110000", b"?" * 300,
]  # fmt: skip


def mutate_value(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """Data with something in it replaced, removed, doubled or nested."""
    if depth > 6 or chance.random() < 0.25 or not isinstance(value, (dict, list)) or not value:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        name = chance.choice(list(value))
        match chance.randrange(5):
            case 0:
                return {key: each for key, each in value.items() if key != name}
            case 1:
                return {
                    **value,
                    chance.choice(["", "x", name + "s", "\ud800", "a.b", "__class__"]): chance.choice(VALUES),
                }
        return {**value, name: mutate_value(value[name], chance, depth + 1)}
    index = chance.randrange(len(value))
    if chance.random() < 0.2:
        return [*value, value[index]]
    return [*value[:index], mutate_value(value[index], chance, depth + 1), *value[index + 1 :]]


def mutate_bytes(text: bytes, chance: random.Random) -> bytes:
    """A text with tokens put in, parts removed, doubled, swapped or changed by a bit."""
    found = bytearray(text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found) + 1)
        end = min(len(found), at + chance.randint(1, 40))
        match chance.randrange(5):
            case 0 | 1:
                found[at:at] = chance.choice(TOKENS)
            case 2:
                del found[at:end]
            case 3:
                found[at:at] = found[at:end]
            case 4 if found:
                found[min(at, len(found) - 1)] ^= 1 << chance.randrange(8)
    return bytes(found)


def as_json(value: Any) -> bytes:
    """Data as JSON in the way that careless programs write it: NaN, lone surrogates, long numbers."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


@contextlib.contextmanager
def hang_is_noticed(case: object) -> Iterator[None]:
    """Raise when a case does not come to an end."""

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError(f"it does not end: {case!r}")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, CASE_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
