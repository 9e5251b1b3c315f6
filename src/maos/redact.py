"""Removes secrets from text before it is written: known values, and text that has the shape of a key.

The holder uses it on all output of an agent, and the journal on every event it writes. So it needs nothing but builtins
(`_json` is the C part of `json` alone), and makes one pass per kind of secret at the speed of `str.find`.
`[redacted:name]` replaces each secret. What was redacted once is not changed by a second time.

The shapes follow the public rules of gitleaks (version 8.28, August 2025), with expressions of our own.

A line that comes in parts may have a secret across two parts. So `Redactor.part` holds back the end of its input, and
remembers when it stopped inside a secret. Escape sequences of a terminal, such as colours, are passed over: a secret
is found with them inside, as a byte or as JSON writes it.
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
_LETTERS = _UPPER + _UPPER.lower()
_ALNUM = _LETTERS + _DIGITS
_HEX = _DIGITS + b"abcdefABCDEF"
_HASH = _DIGITS + b"abcdef-"
_WORD = _ALNUM + b"_-"
_TOKEN = _ALNUM + b"_-.~+/="
_BASE64 = _ALNUM + b"+/="
_KEY_TEXT = _BASE64 + b"\\-,: \r"
_BETWEEN = b" \t:=\"'\\"
_VALUE = bytes(range(0x21, 0x7F)).translate(None, b"\"'\\,;<>(){}[]`&|")
"""The characters of a value that is given to a name; others end it."""
_STRONG = b"0123456789!#%*+?@^~"
"""A password has one of these; a word of a sentence has none."""
_HOST_ENDS = b"/?# \t\r\n\"'<>\\`"
_BETWEEN_BYTES = frozenset(bytes((byte,)) for byte in _BETWEEN)
_LONG = 256
_GAP_MAX = 16
"""The most characters between a name and its value."""
_ANY_COUNT = 1 << 30
_WORD_BYTES = frozenset(bytes((byte,)) for byte in _WORD)
WORD_CHARS_MIN = 20
_WORD_MASK = bytes(0x78 if byte in _WORD + b"." else 0x20 for byte in range(256))
_WORD_OR_SPACE = bytes(byte if byte in _WORD + b"." else 0x20 for byte in range(256))
_LONG_WORD = b"x" * WORD_CHARS_MIN
_HOST_MASK = bytes(0x20 if byte in _HOST_ENDS else byte for byte in range(256))
_KEY_BYTES_MAX = 16 << 10
_KEY_LINE_BYTES_MAX = 200

REDACTED = "[redacted:"
"""The beginning of the text that replaces a secret."""
_REDACTED = REDACTED.encode()
Span = tuple[int, int, bytes, bytes]
"""Start, end, replacement, and the characters with which the secret may continue after the end of the data."""


class Shape:
    """A kind of key, recognized by one of several prefixes and the characters after it."""

    __slots__ = ("alone", "chars", "count_max", "count_min", "digit", "free", "marker", "mixed", "prefixes")

    def __init__(
        self, name: str, prefixes: str, chars: bytes, count_min: int, count_max: int = _ANY_COUNT, *,
        free: bool = False, alone: bool = False, digit: bool = False, mixed: bool = False,
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
        self.alone = alone
        """Whether the key counts only if it is no part of a path or of a name with dashes, which look like it."""
        self.mixed = mixed
        """Whether letters of both cases follow the prefix: so they do in random text, and not in most names."""


def _marker(name: str) -> bytes:
    return f"{REDACTED}{name}]".encode()


_SHAPES = [
    Shape("anthropic-key", "sk-ant-", _WORD, 16, free=True),
    Shape("openai-key", "sk-", _ALNUM, 20, alone=True, digit=True),
    Shape("openai-key", "sk-proj- sk-svcacct- sk-admin-", _WORD, 20, free=True, digit=True, mixed=True),
    Shape("openai-key", "sk-or-v1-", _ALNUM, 32, free=True, digit=True),
    Shape("stripe-secret", "whsec_", _BASE64, 20, mixed=True),
    Shape("stripe-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", _ALNUM, 16, mixed=True),
    Shape("github-token", "ghp_ gho_ ghu_ ghr_", _ALNUM, 30),
    Shape("github-token", "ghs_", _WORD + b".", 30, mixed=True),
    Shape("github-token", "github_pat_", _ALNUM + b"_", 30),
    Shape(
        "gitlab-token",
        "glpat- gldt- glrt- glptt- glft- glcbt- glimt- glsoat- glagent- gloas-",
        _WORD + b".",
        20,
        mixed=True,
    ),
    Shape("aws-key-id", "AKIA ASIA ABIA ACCA", _UPPER + _DIGITS, 16, 16, free=True),
    Shape("google-key", "AIza", _WORD, 35, 35, free=True),
    Shape("google-token", "ya29.", _WORD + b".", 20),
    Shape("google-secret", "GOCSPX-", _WORD, 20),
    Shape("slack-token", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xoxe.xox", _WORD, 15),
    Shape("slack-token", "xapp-", _WORD, 20, mixed=True),
    Shape("npm-token", "npm_", _ALNUM, 36, free=True, mixed=True),
    Shape("pypi-token", "pypi-AgE", _WORD, 40),
    Shape("huggingface-token", "hf_ api_org_", _ALNUM, 30, free=True, mixed=True),
    Shape("sendgrid-key", "SG.", _WORD + b".", 60, free=True, digit=True, mixed=True),
    Shape("sendinblue-key", "xkeysib-", _WORD, 60),
    Shape("mailgun-key", "key- pubkey-", _HEX, 32, 32, alone=True),
    Shape("mailchimp-key", "md-", _WORD, 22, 22, alone=True, digit=True, mixed=True),
    Shape("twilio-key", "SK", _HEX, 32, 32, alone=True),
    Shape("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 40),
    Shape("shopify-token", "shpat_ shpca_ shppa_ shpss_", _HEX, 32),
    Shape("databricks-token", "dapi", _HEX + b"-", 32, 34, alone=True),
    Shape("vault-token", "hvs. hvb. hvr.", _WORD, 24, free=True, mixed=True),
    Shape("groq-key", "gsk_", _ALNUM, 40, free=True, mixed=True),
    Shape("xai-key", "xai-", _WORD, 40, free=True, mixed=True),
    Shape("replicate-token", "r8_", _ALNUM, 35, free=True, mixed=True),
    Shape("perplexity-key", "pplx-", _ALNUM, 40, free=True),
    Shape("nvidia-key", "nvapi-", _WORD, 40, free=True, mixed=True),
    Shape("fireworks-key", "fw_", _ALNUM, 22, free=True, digit=True, mixed=True),
    Shape("tavily-key", "tvly-", _WORD, 24, free=True, mixed=True),
    Shape("langsmith-key", "lsv2_pt_ lsv2_sk_", _ALNUM + b"_", 32),
    Shape("linear-key", "lin_api_ lin_oauth_", _ALNUM, 32),
    Shape("atlassian-token", "ATATT3 ATCTT3", _WORD + b"=", 60, free=True),
    Shape("supabase-key", "sbp_", _HEX, 40, free=True),
    Shape("supabase-key", "sb_secret_", _WORD, 30, free=True, mixed=True),
    Shape("age-key", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", _UPPER + _DIGITS, 50),
    Shape("docker-token", "dckr_pat_ dckr_oat_", _WORD, 20),
    Shape("rubygems-key", "rubygems_", _HEX, 40),
    Shape("notion-key", "ntn_", _ALNUM, 40, free=True),
    Shape("figma-token", "figd_", _WORD, 30, free=True, mixed=True),
    Shape("grafana-token", "glsa_ glc_", _ALNUM + b"_+/=", 32, free=True, mixed=True),
    Shape("sentry-token", "sntrys_ sntryu_", _BASE64 + b"_", 40),
    Shape("new-relic-key", "NRAK- NRJS-", _ALNUM, 19),
    Shape("postman-key", "PMAK-", _WORD, 50),
    Shape("pulumi-token", "pul-", _HEX, 40, 40, alone=True),
    Shape("planetscale-token", "pscale_tkn_ pscale_oauth_ pscale_pw_", _WORD + b".", 30),
    Shape("doppler-token", "dp.pt. dp.st. dp.sa.", _ALNUM + b"_.", 40, free=True, mixed=True),
    Shape("tailscale-key", "tskey-", _WORD, 20),
    Shape("heroku-key", "HRKU-", _WORD, 30),
    Shape("netlify-token", "nfp_", _ALNUM, 36, free=True),
    Shape("flyio-token", "fo1_ fm1r_ fm2_", _WORD + b"+/=", 40, free=True, mixed=True),
    Shape("square-token", "sq0atp- sq0csp-", _WORD, 22),
    Shape("easypost-key", "EZAK EZTK", _ALNUM, 54, 54, free=True),
    Shape("onepassword-token", "ops_eyJ", _WORD + b"=", 100),
    Shape("maos-token", "maos_", _WORD, 40, free=True, mixed=True),
]
"""Keys without a break; searched for only in words of at least WORD_CHARS_MIN characters."""
_WEBHOOKS = [
    Shape("slack-webhook", "hooks.slack.com/services/ hooks.slack.com/workflows/", _ALNUM + b"/", 20),
    Shape("discord-webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", _WORD + b"/", 40),
]
_SCHEMES = (b"bearer ", b"basic ", b"token ")
_SERVICE_KEYS = tuple(
    each + b"key" for each in (b"api", b"access", b"account", b"secret", b"auth", b"master", b"signing", b"encryption")
)
_PLACE_TOKENS = (b"nexttoken", b"pagetoken", b"paginationtoken", b"continuationtoken", b"synctoken")
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
        spans = self.spans(data)
        return _replace(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def lines(self, block: bytes) -> bytes:
        """Return complete lines, or the last part of a line, without secrets."""
        if self._continues:
            block = self._skip(block)
            self._continues = b""
        begin = 0
        if self._in_key:
            plain, back = _without_escapes(block)
            begin, self._in_key = _end_of_key(plain, 0, inside_a_line=False)
            begin = back(begin)
            if not self._in_key and block[begin : begin + 1] == b"\n" and begin:
                begin += 1  # the line is removed with its newline
            if begin == len(block):
                return b""
            block = block[begin:]
        spans = self.spans(block)
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
        spans = self.spans(begin)
        for start, end, _marker, more in spans:
            if start < cut < end or (start < cut and end == len(begin)):
                cut = end
                if end == len(begin):
                    self._continues = more
        kept = [span for span in spans if span[1] <= cut]
        return _replace(begin[:cut], kept), skipped + cut

    def _skip(self, data: bytes) -> bytes:
        plain, back = _without_escapes(data)
        return data[back(_run_end(plain, 0, self._continues)) :]

    def spans(self, data: bytes) -> list[Span]:
        """Return the spans to replace, in order and without overlap.

        What each kind of secret must have is looked for in a `str` first: that is several times faster than in `bytes`.
        """
        lower = data.lower()
        text = lower.decode("latin-1")  # a character for each byte
        if "\x1b" in text or ("\\" in text and "\\u001b" in text):
            plain, back = _without_escapes(data)
            lower = plain.lower()
            spans = self._plain_spans(plain, lower, lower.decode("latin-1"))
            return [(back(span[0]), back(span[1] - 1) + 1, *span[2:]) for span in spans]
        return self._plain_spans(data, lower, text)

    def _plain_spans(self, data: bytes, lower: bytes, text: str) -> list[Span]:
        """Return the spans of data without escape sequences; `lower` and `text` are the same in lower case."""
        masked = data.translate(_WORD_MASK)
        if not (
            _LONG_WORD in masked or "pass" in text or "@" in text or "~" in text or "-----begin " in text
            or ("z" in text and "authorization" in text) or self._values
        ):  # fmt: skip
            return []
        found: list[Span] = []
        if self._values:
            exact = data.decode("latin-1")
            for hint, value, marker in self._values:
                if hint in exact:
                    found.extend((at, at + len(value), marker, b"") for at in _find_all(data, value))
        if "@" in text:
            found.extend(_each(_url_password, data, b"://"))
        if "~" in text:
            found.extend(_azure_secrets(data))
        if "-----begin " in text:
            found.extend(_private_keys(data))
        if "pass" in text:
            for name in (b"password", b"passwd", b"passphrase", b"_pass"):
                found.extend(_after_name(_password, data, lower, name))
        if "authorization" in text:
            found.extend(_after_name(_authorization, data, lower, b"authorization"))
        if _LONG_WORD in masked:
            for name in (b"secret_access_key", b"secretaccesskey") if "access" in text else ():
                found.extend(_after_name(_aws_secret, data, lower, name))
            words = _long_words(data, masked + b" ")
            if words is not None:
                found.extend(_long_secrets(data, lower, text, words))
        return _merge(data, found) if found else found


def without_secrets(text: str, values: Mapping[str, str]) -> str:
    """Text as it may be written down: without key shapes, and without the given values."""
    return Redactor(values).lines(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def clean(value: Any, redact: Callable[[str], str]) -> Any:
    """Return plain data as it may be stored: each text redacted, and halves of characters escaped.

    The key that a text belongs to counts as the name before it: `{"password": "…"}` is redacted as `password=…` is.
    """
    if isinstance(value, str):
        return redact(value if value.isascii() else value.encode("utf-8", "backslashreplace").decode())
    if isinstance(value, dict):
        return {clean(key, redact): _clean_named(key, item, redact) for key, item in value.items()}
    return [clean(item, redact) for item in value] if isinstance(value, list) else value


def _clean_named(key: Any, value: Any, redact: Callable[[str], str]) -> Any:
    value = clean(value, redact)
    if isinstance(value, str) and isinstance(key, str):
        named = redact(f"{key}={value}")
        if named.startswith(f"{key}="):
            return named[len(key) + 1 :]
    return value


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name has a secret as its value."""
    parts = name.upper().replace("-", "_").split("_")
    if name.upper() in _NOT_SECRET_NAMES or (parts[-1] == "TOKENS" and "MAX" in parts):
        return False
    return any(each.endswith(_SECRET_NAMES) for each in parts) or (len(parts) > 1 and parts[-1] in _SECRET_LAST_NAMES)


_SECRET_NAMES = tuple(
    "KEY KEYS TOKEN TOKENS SECRET SECRETS PASSWORD PASSWORDS PASSWD PASSPHRASE PASSCODE CREDENTIAL CREDENTIALS "
    "AUTH DSN COOKIE COOKIES".split()
)
"""A name is secret if a part of it ends with one of these: `STRIPE_KEY`, `GITHUBTOKEN`; AUTHOR does not."""
_SECRET_LAST_NAMES = ("PASS", "PWD", "PW", "PAT")
"""Short words that count as the last part of a name only: `DB_PASS`, and not `PASS_COUNT` or `PWD`."""
_NOT_SECRET_NAMES = ("SSH_AUTH_SOCK", "DISABLE_AUTH", "SORT_KEY", "MONKEY")


def is_secret_value(value: str) -> bool:
    """Return whether a value with a secret name is removed from all text.

    A short one, a number and a single word in lower case are not: they occur in ordinary text, which would become
    unreadable, and in JSON, which would be none any more.
    """
    if len(value) < VALUE_CHARS_MIN:
        return False
    if value.isdecimal():
        return len(value) >= 16
    return len(value) >= WORD_CHARS_MIN or not (value.isalpha() and value.islower())


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


def _run_end(data: bytes, at: int, chars: bytes, count_max: int = _ANY_COUNT) -> int:
    """Return where a run of these characters ends, or where it has had as many as asked for."""
    stop = at + count_max
    while True:
        piece = data[at : min(at + _LONG, stop)]
        count = len(piece) - len(piece.lstrip(chars))
        at += count
        if count < _LONG:
            return at


def _without_escapes(data: bytes) -> tuple[bytes, Callable[[int], int]]:
    """Return a text without the escape sequences of a terminal, and what maps its places to those of the text."""
    if 0x1B not in data and b"u001" not in data:
        return data, int
    pieces: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = removed = 0
    for begin, end in _escapes(data):
        pieces.append(data[at:begin])
        removed += end - begin
        at = end
        places.append((at - removed, removed))
    if not places:
        return data, int
    pieces.append(data[at:])

    def back(place: int) -> int:
        if place >= len(data) - removed:
            return len(data)
        low, high = 0, len(places)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if places[middle][0] <= place else (low, middle)
        return place + (places[low - 1][1] if low else 0)

    return b"".join(pieces), back


def _escapes(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each escape sequence begins and ends; ESC is one byte, or `\\u001b` in JSON.

    Each of the two is searched for again only when its last place was passed: so the text is read once.
    """
    at = 0
    raw, quoted = data.find(b"\x1b"), _quoted_escape(data, 0)
    while raw >= 0 or quoted >= 0:
        begin, end = (quoted, quoted + 6) if raw < 0 or 0 <= quoted < raw else (raw, raw + 1)
        if begin == quoted:
            while begin > at and data[begin - 1] == 0x5C:  # JSON inside JSON
                begin -= 1
        at = _escape_end(data, end)
        yield begin, at
        if 0 <= raw < at:
            raw = data.find(b"\x1b", at)
        if 0 <= quoted < at:
            quoted = _quoted_escape(data, at)


def _quoted_escape(data: bytes, at: int) -> int:
    quoted = data.find(b"\\u001", at)
    while quoted >= 0 and data[quoted + 5 : quoted + 6] not in (b"b", b"B"):
        quoted = data.find(b"\\u001", quoted + 5)
    return quoted


def _escape_end(data: bytes, at: int) -> int:
    """Return where an escape sequence ends; `at` is behind its ESC."""
    kind = data[at : at + 1]
    if kind == b"[":
        return _run_end(data, _run_end(data, at + 1, b"0123456789:;<=>?"), b" !\"#$%&'()*+,-./") + 1
    if kind == b"]":
        bell = data.find(b"\x07", at, at + _LONG)
        return bell + 1 if bell >= 0 else at + 1
    return at + (2 if kind in b"()#%*+" else 1)


def _each(find: Callable[[bytes, int], Iterator[Span]], data: bytes, mark: bytes) -> Iterator[Span]:
    """Yield the spans that `find` finds behind each occurrence of a mark."""
    at = data.find(mark)
    while at >= 0:
        at += len(mark)
        for span in find(data, at):
            yield span
            at = span[1]
        at = data.find(mark, at)


def _after_name(find: Callable[[bytes, int], Iterator[Span]], data: bytes, lower: bytes, name: bytes) -> Iterator[Span]:
    """Yield the spans that `find` finds behind a name that is followed by a colon, an equals sign or a quote."""
    at = lower.find(name)
    while at >= 0:
        at += len(name)
        if data[at : at + 1] in _BETWEEN_BYTES:
            for span in find(data, at):
                yield span
                at = span[1]
        at = lower.find(name, at)


def _begins_a_word(data: bytes, at: int) -> bool:
    """Return whether a word begins here; the n of an escaped newline in JSON, or `%3D` in a URL, is not part of it."""
    if at == 0 or data[at - 1] not in _ALNUM:
        return True
    if data[at - 1] in b"nrtbf" and at >= 2 and data[at - 2] == 0x5C:
        return True
    return data[at - 3 : at - 2] == b"%" or data[max(0, at - 6) : at - 2] == b"\\u00"


def _has_digit(data: bytes) -> bool:
    return len(data.translate(None, _DIGITS)) < len(data)


def _long_words(data: bytes, masked: bytes) -> str | None:
    """Return all different words with digits that are long enough to be a key: few in most text, so they are searched
    fast. Hashes and UUIDs, which have the digits of a hexadecimal number alone, are left out. None if there is no word
    with digits."""
    begin = masked.find(_LONG_WORD)
    words: set[bytes] = set()
    is_found = False
    while begin >= 0:
        end = masked.find(b" ", begin + WORD_CHARS_MIN)
        word = data[begin:end]
        if _has_digit(word):
            is_found = True
            if word.strip(_HASH):
                words.add(word)
        begin = masked.find(_LONG_WORD, end)
    return b" ".join(words).decode("latin-1") if is_found else None


def _may_have_prefix(words: str) -> bool:
    """Return whether a prefix of a shape may be among the words: they are compared at their breaks, all at once."""
    parts = words.replace("-", " ").replace("_", " ").replace(".", " ").split()
    return not _STEM_ENDS.isdisjoint([each[-2:] for each in parts]) or any(map(words.__contains__, _WHOLE_PREFIXES))


_PREFIXES = [
    prefix.replace("-", " ").replace("_", " ").replace(".", " ") for shape in _SHAPES for prefix in shape.prefixes
]
_STEM_ENDS = {prefix.rpartition(" ")[0].rstrip()[-2:] for prefix in _PREFIXES if " " in prefix}
"""The two characters before the last break of each prefix."""
_WHOLE_PREFIXES = [prefix for prefix in _PREFIXES if " " not in prefix]


def _keys(data: bytes, text: str, shapes: list[Shape]) -> Iterator[Span]:
    """Find keys of some shapes; their prefixes are looked for in the text first."""
    for shape, hint in [(each, hint) for each in shapes for hint in each.prefixes if hint in text]:
        prefix = hint.encode()
        at = data.find(prefix)
        while at >= 0:
            end = at + len(prefix)
            if not (shape.free or shape.alone) or _begins_a_word(data, at):
                end = _run_end(data, end, shape.chars)
                if _fits(data, at, end, len(prefix), shape):
                    yield at, end, shape.marker, shape.chars
            at = data.find(prefix, end)


def _fits(data: bytes, at: int, end: int, prefix_length: int, shape: Shape) -> bool:
    """Return whether what has the prefix and the characters of a shape is a key."""
    if not shape.count_min <= end - at - prefix_length <= shape.count_max:
        return False
    if shape.count_max != _ANY_COUNT and data[end : end + 1] in _WORD_BYTES:
        return False
    if shape.alone and (_continues_a_name(data[max(0, at - 2) : at][::-1]) or _continues_a_name(data[end : end + 2])):
        return False
    random = data[at + prefix_length : end]
    if shape.mixed and (random.islower() or random.isupper()):
        return False
    return not shape.digit or _has_digit(random)


def _continues_a_name(beside: bytes) -> bool:
    """Return whether the two characters beside a word, the nearest first, make it a part of a path or a name."""
    return beside[:1] == b"/" or (beside[:1] in (b"-", b"_", b".") and beside[1:].isalnum())


def _aws_secret(data: bytes, at: int) -> Iterator[Span]:
    begin = _run_end(data, at, _BETWEEN, _GAP_MAX + 1)
    if at < begin <= at + _GAP_MAX:
        end = _run_end(data, begin, _BASE64, _LONG)
        if end - begin >= 16 and _has_digit(data[begin:end]):
            yield begin, _run_end(data, end, _BASE64), _marker("aws-secret"), _BASE64


def _value_of(data: bytes, at: int) -> tuple[int, int]:
    """Return where the value begins and ends that a name before has, as in `name: value`; an empty one if it has none.

    A call, a variable, a placeholder and what was redacted are no values. The beginning of a long value is returned:
    it is enough to tell whether the value is a secret, and names that follow each other are not read many times.
    """
    begin = _run_end(data, at, _BETWEEN, _GAP_MAX + 1)
    gap = data[at:begin]
    if len(gap) > _GAP_MAX or not (b":" in gap or b"=" in gap):
        return at, at
    end = _run_end(data, begin, _VALUE, _LONG)
    if data[end : end + 1] in (b"(", b"{", b"[", b"<") or data[begin : begin + 1] in (b"$", b"*", b"%"):
        return at, at
    return begin, end


def _password(data: bytes, at: int) -> Iterator[Span]:
    begin, end = _value_of(data, at)
    value = data[begin:end].rstrip(b".:!?")
    if len(value) >= VALUE_CHARS_MIN and len(value.translate(None, _STRONG)) < len(value) and b"://" not in value:
        yield begin, _run_end(data, end, _VALUE), _marker("password"), b""


def _named_key(data: bytes, at: int) -> Iterator[Span]:
    """Find a key or token by its name; an id has letters or digits alone, or is shorter."""
    begin, end = _value_of(data, at)
    end = _run_end(data, begin, _TOKEN, end - begin)
    value = data[begin:end]
    if len(value) >= WORD_CHARS_MIN and _has_digit(value) and len(value.translate(None, _LETTERS)) < len(value):
        yield begin, _run_end(data, end, _TOKEN), _marker("key"), _TOKEN


def _key_of_a_service(data: bytes, at: int) -> Iterator[Span]:
    """Find the key that an API, an account or the like has; a key of a table or a cache is no secret."""
    name = data[max(0, at - 16) : at].lower().translate(None, b"-_ ")
    return _named_key(data, at) if name.endswith(_SERVICE_KEYS) else iter(())


def _token_of_access(data: bytes, at: int) -> Iterator[Span]:
    """Find a token by its name; the place in a list of results, which many APIs call a token too, is no secret."""
    name = data[max(0, at - 24) : at].lower().translate(None, b"-_ ")
    return iter(()) if name.endswith(_PLACE_TOKENS) else _named_key(data, at)


def _cookie(data: bytes, at: int) -> Iterator[Span]:
    """Find the cookies of a header: everything up to the end of the line."""
    begin, end = _value_of(data, at)
    name = _run_end(data, begin, _WORD + b".%", end - begin)
    if begin < name < end - 5 and data[name : name + 1] == b"=":
        end = _run_end(data, end, _VALUE)
        while data[end : end + 2] == b"; " or (data[end : end + 1] == b";" and data[end + 1 : end + 2] in _WORD_BYTES):
            end = _run_end(data, end + 2, _VALUE)
        yield begin, end, _marker("cookie"), b""


def _azure_secrets(data: bytes) -> Iterator[Span]:
    for at in _find_all(data, b"Q~"):
        end = _run_end(data, at + 2, _WORD + b"~.", 35)
        if (
            31 <= end - at - 2 <= 34
            and at >= 4
            and data[at - 1] in _DIGITS
            and not data[at - 4 : at].strip(_WORD + b"~.")
        ):
            yield at - 4, end, _marker("azure-secret"), b""


def _telegram_tokens(data: bytes) -> Iterator[Span]:
    for at in _find_all(data, b":AA"):
        number = data[max(0, at - 16) : at]
        count = len(number) - len(number.rstrip(_DIGITS))
        end = _run_end(data, at + 1, _WORD, 36)
        if 5 <= count <= 15 and end - at - 1 == 35:
            yield at - count, end, _marker("telegram-token"), b""


def _discord_tokens(data: bytes, words: str) -> Iterator[Span]:
    tokens = {word.encode("latin-1") for word in words.split() if _is_discord_token(word)}
    at = 0
    for word in data.translate(_WORD_OR_SPACE).split(b" ") if tokens else ():
        if word in tokens:
            yield at, at + len(word), _marker("discord-token"), b""
        at += len(word) + 1


def _is_discord_token(word: str) -> bool:
    lengths = [len(each) for each in word.split(".")] if word[0] in "MNO" else ()
    return len(lengths) == 3 and 23 <= lengths[0] <= 28 and lengths[1] == 6 and lengths[2] >= 27


def _jwts(data: bytes) -> Iterator[Span]:
    """Find JSON Web Tokens: three runs of base64 with dots between, the first beginning like JSON.

    A run is not looked at again from its middle, where it would end at the same place.
    """
    at = data.find(b"eyJ")
    while at >= 0:
        end = at + 3
        if not at or data[at - 1] not in _WORD or _begins_a_word(data, at):
            end = second = _run_end(data, at, _WORD)
            if end - at >= 10 and data[end : end + 1] == b".":
                second = _run_end(data, end + 1, _WORD)
            if second - end >= 10 and data[second : second + 1] == b".":
                end = _run_end(data, second + 1, _WORD + b".")
                yield at, end, _marker("jwt"), _WORD + b"."
        at = data.find(b"eyJ", end)


def _token(data: bytes, at: int, count_min: int = 16, *, digit: bool = True) -> Iterator[Span]:
    end = _run_end(data, at, _TOKEN)
    if end - at >= count_min and (not digit or _has_digit(data[at:end])):
        yield at, end, _marker("authorization"), _TOKEN


def _authorization(data: bytes, at: int) -> Iterator[Span]:
    begin = _run_end(data, at, _BETWEEN, _GAP_MAX + 1)
    for scheme in _SCHEMES:
        if at < begin <= at + _GAP_MAX and data[begin : begin + len(scheme)].lower() == scheme:
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
        newline = data.find(b"\n", at, at + _KEY_BYTES_MAX)
        end = min(len(data), at + _KEY_BYTES_MAX) if newline < 0 else newline
        mark = data.find(b"-----END ", at, end)
        if mark >= 0:
            close = data.find(b"-----", mark + 9, end)
            return (close + 5 if close >= 0 else end), False
        if end - at > _KEY_LINE_BYTES_MAX or not _may_be_key(data[at:end]):
            if at > begin or not inside_a_line:
                return at, False
            stop = _run_end(data, at, _KEY_TEXT)
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


_AFTER_NAMES: dict[str, Callable[[bytes, int], Iterator[Span]]] = {
    "secret": _named_key,
    "key": _key_of_a_service,
    "token": _token_of_access,
    "cookie": _cookie,
}
"""Secrets that are recognized by the name before them, in lower case here."""


def _long_secrets(data: bytes, lower: bytes, text: str, words: str) -> Iterator[Span]:
    """Find the secrets that have a long word with digits; `text` is in lower case."""
    if words:
        if _may_have_prefix(words):
            yield from _keys(data, words, _SHAPES)
        if "eyJ" in words:
            yield from _jwts(data)
        if "." in words:
            yield from _discord_tokens(data, words)
        if "hooks" in text:
            yield from _keys(data, text, _WEBHOOKS)
        if ":aa" in text:
            yield from _telegram_tokens(data)
    if "bearer " in text:
        for at in _find_all(lower, b"bearer "):
            yield from _token(data, at + 7, WORD_CHARS_MIN)
    for name in filter(text.__contains__, _AFTER_NAMES):
        yield from _after_name(_AFTER_NAMES[name], data, lower, name.encode())


def _merge(data: bytes, found: list[Span]) -> list[Span]:
    """Sort spans by position, and merge those that overlap; what was redacted before stays as it is."""
    found.sort(key=lambda span: (span[0], -span[1]))
    spans: list[Span] = []
    for span in found:
        if data.startswith(_REDACTED, span[0]):
            continue
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
