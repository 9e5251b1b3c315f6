"""Deterministic texts of the kind agents write: prose, code and tool output, with realistic entropy.

Nothing is copied from anywhere: a seeded generator draws words from ``words.txt`` (frequent ones far more
often than rare ones, as in real text), builds identifiers out of them, and adds the hashes, numbers and paths
that make real transcripts hard to compress. ``python -m benchmarks.workload`` prints how well the texts
compress, so that the claim can be checked.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Message = dict[str, Any]
State = dict[str, Any]

EVENT_BYTES = 300
MESSAGE_BYTES = 1_000
RECENT = 5
WORD_REPEATS = 0.4
RARITY_REPEATS = 0.5
SYLLABLES = "ka lo mi ren tar vel sho dri gan pol ith mar den qua zel bor fin hul jas cro wen ny".split()


class Note(NamedTuple):
    """One event to append: its data, and the JSON of that data for peers that store bytes."""

    data: dict[str, str]
    raw: bytes


class Vocabulary(NamedTuple):
    """The words of one part of speech with the running sums of their frequencies."""

    words: tuple[str, ...]
    weights: tuple[float, ...]


@cache
def vocabulary(kind: str) -> Vocabulary:
    """The words of `kind`, frequent and rare ones mixed: the n-th most frequent weighs 1/(n+8)^0.7."""
    lines = Path(__file__).with_name("words.txt").read_text(encoding="utf-8").splitlines()
    words = next(line.split(":", 1)[1].split() for line in lines if line.startswith(kind + ":"))
    random.Random(kind).shuffle(words)  # the file is alphabetical, frequency must not be
    return Vocabulary(tuple(words), tuple(accumulate(1 / (n + 8) ** 0.7 for n in range(len(words)))))


class Writer:
    """A seeded author of agent messages; equal seeds give equal texts."""

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(f"maos {seed}")
        self.recent: dict[str, deque[str]] = {}

    def again(self, kind: str, fresh: Callable[[], str], share: float) -> str:
        """Something of `kind`: `share` of the time one used lately, as texts keep to their subject."""
        recent = self.recent.setdefault(kind, deque(maxlen=RECENT))
        if recent and self.rng.random() < share:
            return self.rng.choice(recent)
        recent.append(fresh())
        return recent[-1]

    def word(self, kind: str) -> str:
        """One word of a part of speech, drawn by frequency."""
        words, weights = vocabulary(kind)
        return self.again(kind, lambda: self.rng.choices(words, cum_weights=weights)[0], WORD_REPEATS)

    def rarity(self) -> str:
        """What no dictionary knows: a proper name, a number, a hash, a path, an identifier."""
        return self.again("rarity", self._rarity, RARITY_REPEATS)

    def identifier(self) -> str:
        """A name as found in code: two or three words, in one of the usual spellings."""
        parts = [self.word("verb"), self.word("noun")]
        if self.rng.random() < 0.3:
            parts.insert(1, self.word("adj"))
        style = self.rng.random()
        if style < 0.6:
            return "_".join(parts)
        if style < 0.85:
            return "".join(part.capitalize() for part in parts[-2:])
        return parts[-1] + "." + parts[0]

    def path(self) -> str:
        """A file of some repository."""
        top = self.rng.choice(("src", "tests", "docs", "lib", "app", "tools"))
        ending = self.rng.choice((".py", ".py", ".py", ".md", ".sql", ".toml", ".ts"))
        return f"{top}/{self.word('noun')}/{self.word('adj')}_{self.word('noun')}{ending}"

    def digits(self, alphabet: str, length: int) -> str:
        """`length` characters of pure chance: hashes, ids."""
        return "".join(self.rng.choices(alphabet, k=length))

    def _rarity(self) -> str:
        pick = self.rng.random()
        if pick < 0.25:
            return "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(2, 3))).capitalize()
        if pick < 0.45:
            return str(self.rng.randint(2, 20_000))
        if pick < 0.55:
            return self.digits("0123456789abcdef", 8)
        if pick < 0.7:
            return f"`{self.path()}`"
        return f"`{self.identifier()}`"

    def phrase(self) -> str:
        """A noun with what stands before it."""
        article = self.rng.choice(("the", "the", "a", "this", "each", "its", "our", "no", "that", "every"))
        if self.rng.random() < 0.12:
            return f"{article} {self.rarity()} {self.word('noun')}"
        adjective = self.word("adj") + " " if self.rng.random() < 0.5 else ""
        return f"{article} {adjective}{self.word('noun')}" + ("s" if self.rng.random() < 0.25 else "")

    def clause(self) -> str:
        """Someone does something somewhere."""
        subject = self.rng.choice(("I", "we", "it", "they", "you")) if self.rng.random() < 0.4 else self.phrase()
        helper = self.rng.choice(("", "", "can ", "will ", "must ", "did not ", "should ", "would ", "may "))
        adverb = self.word("adverb") + " " if self.rng.random() < 0.3 else ""
        tail = f" {self.word('prep')} {self.phrase()}" if self.rng.random() < 0.7 else ""
        return f"{subject} {helper}{adverb}{self.word('verb')} {self.phrase()}{tail}"

    def sentence(self) -> str:
        """One or two clauses, punctuated."""
        text = self.clause()
        if self.rng.random() < 0.55:
            text += self.rng.choice((", ", " ", "; ")) + f"{self.word('link')} {self.clause()}"
        if self.rng.random() < 0.5:
            text = f"{self.word('opener')} {text}"
        return text[0].upper() + text[1:] + self.rng.choice((".", ".", ".", ".", ":", "?", "!"))

    def prose(self) -> str:
        """A paragraph, sometimes a list."""
        lines = [self.sentence() for _ in range(self.rng.randint(2, 5))]
        return "\n".join(f"- {line}" for line in lines) if self.rng.random() < 0.25 else " ".join(lines)

    def expression(self) -> str:
        """The right-hand side of an assignment."""
        pick = self.rng.random()
        if pick < 0.4:
            return f"{self.identifier()}({self.word('noun')}, {self.word('noun')}={self.rng.randint(0, 999)})"
        if pick < 0.6:
            return f'"{self.word("adj")} {self.word("noun")} {self.digits("0123456789abcdef", 6)}"'
        if pick < 0.8:
            return f"[{self.word('noun')[0]}.{self.word('noun')} for {self.word('noun')} in {self.identifier()}]"
        return f"{self.word('noun')}[{self.rng.randint(-9, 99)}] {self.rng.choice('+-*/%')} {self.identifier()}"

    def code(self) -> str:
        """A fenced function of a few lines."""
        lines = [f"def {self.identifier().replace('.', '_')}({self.word('noun')}, *, {self.word('noun')}=None):"]
        for _ in range(self.rng.randint(3, 8)):
            pick = self.rng.random()
            if pick < 0.2:
                lines.append(
                    f"    if {self.identifier()} {self.rng.choice(('<', '>=', '!=', 'is not'))} "
                    f"{self.word('noun')}:\n        return {self.expression()}"
                )
            elif pick < 0.3:
                lines.append(f"    # {self.sentence()}")
            else:
                lines.append(f"    {self.word('noun')} = {self.expression()}")
        return "```python\n" + "\n".join(lines) + "\n```"

    def tool_output(self) -> str:
        """What a command printed: a listing, a log, or the result of a search or a test run."""
        return "\n".join(self.rng.choice(TOOL_LINES)(self) for _ in range(self.rng.randint(3, 8)))

    def text(self, size: int) -> str:
        """Exactly `size` characters of mixed agent output."""
        parts: list[str] = []
        while sum(map(len, parts)) + len(parts) <= size:
            kind = self.rng.random()
            parts.append(self.prose() if kind < 0.6 else self.code() if kind < 0.8 else self.tool_output())
        return "\n".join(parts)[:size]

    def tool(self) -> dict[str, Any]:
        """One use of a tool: what it was given and how it went."""
        given: dict[str, Any] = {"path": self.path(), "line": self.rng.randint(1, 900)}
        if self.rng.random() < 0.5:
            given["pattern"] = self.identifier()
        name = self.rng.choice(("read_file", "edit_file", "search", "run_tests", "list_files"))
        return {"name": name, "input": given, "ok": self.rng.random() < 0.9, "ms": self.rng.randint(1, 9_000)}

    def message(self, size: int = MESSAGE_BYTES) -> Message:
        """One message of a conversation, about `size` bytes as JSON."""
        seconds = self.rng.uniform(0, 60)
        message = {
            "id": "msg_" + self.digits("0123456789abcdefghjkmnpqrstvwxyz", 16),
            "role": self.rng.choice(("user", "assistant", "assistant")),
            "time": f"2026-11-15T{self.rng.randint(0, 23):02}:{self.rng.randint(0, 59):02}:{seconds:06.3f}Z",
            "content": "",
            "tools": [self.tool() for _ in range(self.rng.randint(0, 3))],
            "usage": {"input": self.rng.randint(900, 90_000), "output": self.rng.randint(10, 4_000)},
        }
        room = size - len(msgspec.json.encode(message))
        message["content"] = self.text(int(room * 0.975))  # the rest goes to escaped line breaks and quotes
        return message


def _grep_line(w: Writer) -> str:
    return f"{w.path()}:{w.rng.randint(1, 900)}:    {w.identifier()} = {w.expression()}"


def _log_line(w: Writer) -> str:
    moment = f"{w.rng.randint(0, 23):02}:{w.rng.randint(0, 59):02}:{w.rng.uniform(0, 60):06.3f}"
    level = w.rng.choice(("INFO", "INFO", "DEBUG", "WARNING", "ERROR"))
    place = f"{w.word('noun')}.{w.word('noun')}"
    return f"{moment} {level} {place} {w.clause()} id={w.digits('0123456789abcdef', 12)}"


def _test_line(w: Writer) -> str:
    outcome = w.rng.choice(("PASSED", "PASSED", "FAILED", "SKIPPED"))
    return f"{w.path()}::test_{w.identifier()} {outcome} [{w.rng.randint(1, 100)}%] {w.rng.uniform(0, 9):.2f}s"


def _listing_line(w: Writer) -> str:
    owner = f"{w.word('noun')} {w.word('noun')} {w.rng.randint(40, 90_000):>7}"
    moment = f"Nov {w.rng.randint(1, 30):>2} {w.rng.randint(0, 23):02}:{w.rng.randint(0, 59):02}"
    return f"-rw-r--r-- 1 {owner} {moment} {w.path()}"


TOOL_LINES: Sequence[Callable[[Writer], str]] = (_grep_line, _log_line, _log_line, _test_line, _listing_line)


def notes(count: int, seed: object = "events", size: int = EVENT_BYTES) -> list[Note]:
    """`count` events whose JSON is `size` bytes each."""
    writer = Writer(seed)
    result = []
    for _ in range(count):
        data = {"text": writer.text(size)}
        excess = len(msgspec.json.encode(data)) - size  # escaped characters count twice
        while excess > 0:
            data["text"] = data["text"][:-excess]
            excess = len(msgspec.json.encode(data)) - size
        data["text"] += "." * -excess
        result.append(Note(data, msgspec.json.encode(data)))
    return result


def messages(count: int, seed: object = "messages") -> list[Message]:
    """`count` messages of about 1 KB."""
    writer = Writer(seed)
    return [writer.message() for _ in range(count)]


def state(kilobytes: int, seed: object = "state") -> State:
    """The state of an agent after a conversation: `kilobytes` messages of 1 KB and a few small fields."""
    return {
        "status": "idle",
        "step": 0,
        "model": "careful-1",
        "messages": messages(kilobytes, f"{seed} {kilobytes}"),
    }


def report() -> str:
    """How well the texts compress alone and with a trained dictionary."""
    import zstandard

    encode = msgspec.json.encode
    samples = {
        "300 B event": [note.raw for note in notes(2_000, "check")],
        "1 KB message": [encode(message) for message in messages(1_000, "check")],
        "10 KB state": [encode(state(10, n)) for n in range(60)],
        "200 KB state": [encode(state(200, n)) for n in range(4)],
    }
    training = [encode(message) for message in messages(6_000, "training")]
    dictionary = zstandard.train_dictionary(64 * 1024, training)
    lines = [f"{'sample':<14}{'bytes':>9}{'zstd-3':>9}{'zstd-3 + 64K dictionary':>26}"]
    for name, items in samples.items():
        total = sum(map(len, items))
        alone = sum(len(zstandard.ZstdCompressor(3).compress(item)) for item in items)
        shared = sum(len(zstandard.ZstdCompressor(3, dict_data=dictionary).compress(item)) for item in items)
        lines.append(f"{name:<14}{total // len(items):>9}{total / alone:>9.2f}{total / shared:>26.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
