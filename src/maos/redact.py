"""Removes secrets from text before it is written: known values, and text that has the shape of a key.

The holder uses it on all output of an agent, and the engine on everything it records. So it needs nothing but builtins
(`_json` is the C part of `json` alone), and makes one pass per kind of secret at the speed of `str.find`.
`[redacted:name]` replaces each secret.

A line that comes in parts may have a secret across two parts. So `Redactor.part` holds back the end of its input, and
remembers when it stopped inside a secret.
"""

from __future__ import annotations

from _json import encode_basestring, encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

VALUE_CHARS_MIN = 6
"""Shorter values occur in any text; without them it would be unreadable."""
VALUE_CHARS_MAX = 8 << 10
HOLD_BYTES = 4 << 10
"""More than the longest prefix by which a shape is recognized."""

_DIGITS = b"0123456789"
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALNUM = _UPPER + _UPPER.lower() + _DIGITS
_WORD = _ALNUM + b"_-"
_TOKEN = _ALNUM + b"_-.~+/="
_BASE64 = _ALNUM + b"+/="
_KEY_TEXT = _BASE64 + b"\\-,: \r"
_BETWEEN = b" \t:=\"'\\"
_HOST_ENDS = b"/?# \t\r\n\"'<>\\`"
_LONG = 256
WORD_CHARS_MIN = 20
_WORD_MASK = bytes(0x78 if byte in _WORD + b"." else 0x20 for byte in range(256))
_LONG_WORD = b"x" * WORD_CHARS_MIN
_HOST_MASK = bytes(0x20 if byte in _HOST_ENDS else byte for byte in range(256))
_KEY_BYTES_MAX = 16 << 10
_KEY_LINE_BYTES_MAX = 200

REDACTED = "[redacted:"
"""The beginning of the text that replaces a secret."""
Span = tuple[int, int, bytes, bytes]
"""Start, end, replacement, and the characters with which the secret may continue after the end of the data."""


class Shape:
    """A kind of key, recognized by one of several prefixes and the characters after it."""

    __slots__ = ("chars", "count_max", "count_min", "digit", "free", "marker", "prefixes")

    def __init__(
        self, name: str, prefixes: str, chars: bytes, count_min: int, count_max: int = 1 << 30, *, free: bool = False,
        digit: bool = False,
    ) -> None:  # fmt: skip
        self.marker = _marker(name)
        self.prefixes = prefixes.split()
        self.chars = chars
        self.count_min = count_min
        self.count_max = count_max
        """At least, and at most, this many of the characters follow the prefix."""
        self.free = free
        """Whether the prefix counts only at the beginning of a word, because it is short."""
        self.digit = digit
        """Whether the key must have a digit."""


def _marker(name: str) -> bytes:
    return f"{REDACTED}{name}]".encode()


_SHAPES = [
    Shape("anthropic-key", "sk-ant-", _WORD, 16),
    Shape("openai-key", "sk-", _WORD, 20, free=True, digit=True),
    Shape("stripe-key", "sk_live_ sk_test_ rk_live_", _ALNUM, 16),
    Shape("github-token", "ghp_ gho_ ghu_ ghr_", _ALNUM, 30),
    Shape("github-token", "ghs_", _WORD + b".", 30),
    Shape("github-token", "github_pat_", _ALNUM + b"_", 30),
    Shape("gitlab-token", "glpat-", _WORD + b".", 20),
    Shape("aws-key-id", "AKIA ASIA", _UPPER + _DIGITS, 16, 16),
    Shape("google-key", "AIza", _WORD, 35),
    Shape("google-token", "ya29.", _WORD + b".", 20),
    Shape("google-secret", "GOCSPX-", _WORD, 20),
    Shape("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs-", _WORD, 15),
    Shape("slack-token", "xapp-", _WORD, 20),
    Shape("npm-token", "npm_", _ALNUM, 36, free=True),
    Shape("pypi-token", "pypi-AgE", _WORD, 40),
    Shape("huggingface-token", "hf_", _ALNUM, 30, free=True),
]
"""Keys without a break; searched for only in words of at least WORD_CHARS_MIN characters."""
_BROKEN_SHAPES = [
    Shape("stripe-secret", "whsec_", _BASE64, 20),
    Shape("slack-webhook", "hooks.slack.com/services/", _ALNUM + b"/", 20),
]
_SCHEMES = (b"Bearer ", b"bearer ", b"Basic ", b"basic ", b"Token ", b"token ")
_PRIVATE_KEY = _marker("private-key")


class Redactor:
    """Removes secrets from one stream of text, which comes in lines, or in parts of lines that are too long."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        found = {form: _marker(name) for name, value in secrets.items() for form in forms(value)}
        by_length = sorted(found.items(), key=lambda item: -len(item[0]))
        self._values = [(form.decode("latin-1"), form, marker) for form, marker in by_length]
        self._hold = max([HOLD_BYTES, *(len(form) for form in found)])
        self._continues = b""
        """The characters of a secret that continues in the next part; empty: none does."""
        self._in_key = False
        """Whether the next line may belong to a private key that has begun."""

    def text(self, text: str) -> str:
        """Return a text without its secrets, independent of the stream."""
        data = text.encode("utf-8", "surrogatepass")
        spans = self._spans(data)
        return _replace(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def lines(self, block: bytes) -> bytes:
        """Return complete lines, or the last part of a line, without secrets."""
        if self._continues:
            block = self._skip(block)
            self._continues = b""
        begin = 0
        if self._in_key:
            begin, self._in_key = _end_of_key(block, 0, inside_a_line=False)
            if not self._in_key and block[begin : begin + 1] == b"\n" and begin:
                begin += 1  # the line is removed with its newline
            if begin == len(block):
                return b""
            block = block[begin:]
        spans = self._spans(block)
        if not spans:
            return block
        start, end, marker, more = spans[-1]
        if marker is _PRIVATE_KEY and end == len(block) and more:
            self._in_key = True
            if block.endswith(b"\n"):
                spans[-1] = (start, end - 1, marker, more)
        return _replace(block, spans)

    def part(self, begin: bytes) -> tuple[bytes, int]:
        """Return the beginning of an incomplete line without secrets, and how many bytes of the input that covers."""
        skipped = 0
        if self._continues:
            rest = self._skip(begin)
            skipped = len(begin) - len(rest)
            if not rest:
                return b"", skipped
            self._continues = b""
            begin = rest
        cut = max(0, len(begin) - self._hold)
        spans = self._spans(begin)
        for start, end, _marker, more in spans:
            if start < cut < end or (start < cut and end == len(begin)):
                cut = end
                if end == len(begin):
                    self._continues = more
        kept = [span for span in spans if span[1] <= cut]
        return _replace(begin[:cut], kept), skipped + cut

    def _skip(self, data: bytes) -> bytes:
        return data[_run_end(data, 0, self._continues) :]

    def _spans(self, data: bytes) -> list[Span]:
        """Return the spans to replace, in order and without overlap.

        What each kind of secret must have is looked for in a `str` first: that is several times faster than in `bytes`.
        """
        found: list[Span] = []
        text = data.decode("latin-1")  # a character for each byte
        for hint, value, marker in self._values:
            if hint in text:
                found.extend((at, at + len(value), marker, b"") for at in _find_all(data, value))
        words = _long_words(data)
        if words:
            found.extend(_keys(data, words, _SHAPES))
            if "eyJ" in words:
                found.extend(_each(_jwt, data, b"eyJ"))
        found.extend(_keys(data, text, _BROKEN_SHAPES))
        for hint, find in _AFTER_MARKS:
            if hint in text:
                found.extend(_each(find, data, hint.encode()))
        if "@" in text:
            found.extend(_each(_url_password, data, b"://"))
        if "-----BEGIN " in text:
            found.extend(_private_keys(data))
        return _merge(found) if found else found


def without_secrets(text: str, values: Mapping[str, str]) -> str:
    """Text as it may be written down: without key shapes, and without the given values."""
    return Redactor(values).lines(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def clean(value: Any, redact: Callable[[str], str]) -> Any:
    """Return plain data as it may be stored: each text redacted, and halves of characters escaped."""
    if isinstance(value, str):
        return redact(value if value.isascii() else value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, dict):
        return {clean(key, redact): clean(item, redact) for key, item in value.items()}
    return [clean(item, redact) for item in value] if isinstance(value, list) else value


def forms(value: str) -> set[bytes]:
    """Return the forms in which a secret can appear: plain, in JSON, in JSON inside JSON, in a URL, line by line."""
    if len(value) < VALUE_CHARS_MIN:
        return set()
    texts = {value, value.strip()}
    if "\n" in value:
        texts.update(line.strip() for line in value.splitlines() if len(line.strip()) >= 2 * VALUE_CHARS_MIN)
    found = set()
    for text in texts:
        if len(text) < VALUE_CHARS_MIN:
            continue
        found.add(text.encode("utf-8", "surrogatepass"))
        for quote in (encode_basestring, encode_basestring_ascii):
            once = quote(text)[1:-1]
            for form in (once, once.replace("/", "\\/"), quote(once)[1:-1]):
                found.add(form.encode("utf-8", "surrogatepass"))
        for safe in (b"-._~", b"-._~/", b"-._~!*'()"):
            quoted = _percent_encode(text, safe)
            found.update((quoted, _lower_hex(quoted), quoted.replace(b"%20", b"+")))
    return found


def _percent_encode(text: str, safe: bytes) -> bytes:
    """Return a text with percent-encoding, as in a URL."""
    return b"".join(
        bytes((byte,)) if byte in _ALNUM or byte in safe else b"%%%02X" % byte
        for byte in text.encode("utf-8", "surrogatepass")
    )


def _lower_hex(quoted: bytes) -> bytes:
    first, *others = quoted.split(b"%")
    return b"%".join([first, *(part[:2].lower() + part[2:] for part in others)])


def _find_all(data: bytes, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + len(mark))


def _run_end(data: bytes, at: int, chars: bytes) -> int:
    """Return where a run of these characters ends."""
    while True:
        piece = data[at : at + _LONG]
        count = len(piece) - len(piece.lstrip(chars))
        at += count
        if count < _LONG:
            return at


def _each(find: Callable[[bytes, int], Iterator[Span]], data: bytes, mark: bytes) -> Iterator[Span]:
    """Yield the spans that `find` finds behind each occurrence of a mark."""
    for at in _find_all(data, mark):
        yield from find(data, at + len(mark))


def _begins_a_word(data: bytes, at: int) -> bool:
    """Return whether a word begins here; the n of an escaped newline in JSON is not part of it."""
    if at == 0 or data[at - 1] not in _ALNUM:
        return True
    return data[at - 1] in b"nrtbf" and at >= 2 and data[at - 2] == 0x5C


def _has_digit(data: bytes) -> bool:
    return len(data.translate(None, _DIGITS)) < len(data)


def _long_words(data: bytes) -> str:
    """Return all different words that are long enough to be a key: few in most text, so searching them is fast."""
    find = (data.translate(_WORD_MASK) + b" ").find
    words: set[bytes] = set()
    add = words.add
    begin = find(_LONG_WORD)
    while begin >= 0:
        end = find(b" ", begin + WORD_CHARS_MIN)
        add(data[begin:end])
        begin = find(_LONG_WORD, end)
    return b" ".join(words).decode("latin-1")


def _keys(data: bytes, text: str, shapes: list[Shape]) -> Iterator[Span]:
    """Find keys of some shapes; their prefixes are looked for in the text first."""
    for shape, hint in [(each, hint) for each in shapes for hint in each.prefixes if hint in text]:
        prefix = hint.encode()
        at = data.find(prefix)
        while at >= 0:
            end = at + len(prefix)
            if not shape.free or _begins_a_word(data, at):
                end = _run_end(data, end, shape.chars)
                is_long_enough = shape.count_min <= end - at - len(prefix) <= shape.count_max
                if is_long_enough and (not shape.digit or _has_digit(data[at:end])):
                    yield at, end, shape.marker, shape.chars
            at = data.find(prefix, end)


def _aws_secret(data: bytes, at: int) -> Iterator[Span]:
    begin = _run_end(data, at, _BETWEEN)
    if at < begin <= at + 16:
        end = _run_end(data, begin, _BASE64)
        if end - begin >= 16 and _has_digit(data[begin:end]):
            yield begin, end, _marker("aws-secret"), _BASE64


def _jwt(data: bytes, at: int) -> Iterator[Span]:
    """Find a JSON Web Token: three runs of base64 with dots between, the first beginning like JSON."""
    at -= 3
    if at and data[at - 1] in _WORD and not _begins_a_word(data, at):
        return
    first = _run_end(data, at, _WORD)
    if first - at < 10 or data[first : first + 1] != b".":
        return
    second = _run_end(data, first + 1, _WORD)
    if second - first < 10 or data[second : second + 1] != b".":
        return
    yield at, _run_end(data, second + 1, _WORD + b"."), _marker("jwt"), _WORD + b"."


def _token(data: bytes, at: int, count_min: int = 16, *, digit: bool = True) -> Iterator[Span]:
    end = _run_end(data, at, _TOKEN)
    if end - at >= count_min and (not digit or _has_digit(data[at:end])):
        yield at, end, _marker("authorization"), _TOKEN


def _authorization(data: bytes, at: int) -> Iterator[Span]:
    begin = _run_end(data, at, _BETWEEN)
    for scheme in _SCHEMES:
        if at < begin <= at + 16 and data.startswith(scheme, begin):
            yield from _token(data, begin + len(scheme), 8, digit=False)
            return


def _url_password(data: bytes, at: int) -> Iterator[Span]:
    """Find the password between the first colon and the last @ before the path."""
    host = data[at : at + 2 * _LONG].translate(_HOST_MASK).split(b" ", 1)[0]
    end = host.rfind(b"@")
    begin = host.find(b":", 0, end) + 1 if end > 0 else 0
    if 0 < begin < end:
        yield at + begin, at + end, _marker("url-password"), b""


def _private_keys(data: bytes) -> Iterator[Span]:
    at = data.find(b"-----BEGIN ")
    while at >= 0:
        end = at + 11
        head = data.find(b"-----", end, at + 80)
        if head > 0 and b"PRIVATE KEY" in data[at:head]:
            end, continues = _end_of_key(data, head + 5, inside_a_line=True)
            yield at, end, _PRIVATE_KEY, _KEY_TEXT if continues else b""
        at = data.find(b"-----BEGIN ", end)


def _end_of_key(data: bytes, at: int, *, inside_a_line: bool) -> tuple[int, bool]:
    """Return where a private key ends, and whether it continues after this data.

    A key ends with its END line, or before the first line that cannot belong to it. The whole key may be in one line,
    with its newlines escaped.
    """
    begin = at
    while at < len(data):
        newline = data.find(b"\n", at)
        end = len(data) if newline < 0 else newline
        mark = data.find(b"-----END ", at, min(end, at + _KEY_BYTES_MAX))
        if mark >= 0:
            close = data.find(b"-----", mark + 9, end)
            return (close + 5 if close >= 0 else end), False
        if end - at > _KEY_LINE_BYTES_MAX or not _may_be_key(data[at:end]):
            if at > begin or not inside_a_line:
                return at, False
            stop = min(_run_end(data, at, _KEY_TEXT), end)
            return stop, stop == len(data)
        at = end + 1
    return len(data), True


def _may_be_key(line: bytes) -> bool:
    """Return whether a line can belong to a private key: base64, perhaps after a line number, or a header."""
    words = line.strip(b" \t\r\"',>|+").split()
    if not words:
        return True
    if words[0] in (b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:"):
        return True
    return len(words) <= 2 and not words[-1].split("→".encode())[-1].replace(b"\\n", b"").strip(_BASE64)


_AFTER_MARKS: list[tuple[str, Callable[[bytes, int], Iterator[Span]]]] = [
    ("earer ", _token),
    ("uthorization", _authorization),
    ("ecret_access_key", _aws_secret),
    ("ECRET_ACCESS_KEY", _aws_secret),
    ("ecretAccessKey", _aws_secret),
]
"""Secrets that are recognized by the text before them."""


def _merge(found: list[Span]) -> list[Span]:
    """Sort spans by position, and merge those that overlap."""
    found.sort(key=lambda span: (span[0], -span[1]))
    spans: list[Span] = []
    for span in found:
        if spans and span[0] < spans[-1][1]:
            start, end, marker, _ = spans[-1]
            if span[1] > end:
                spans[-1] = (start, span[1], marker, span[3])
        else:
            spans.append(span)
    return spans


def _replace(data: bytes, spans: Iterable[Span]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, marker, _more in spans:
        pieces += (data[at:start], marker)
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)
