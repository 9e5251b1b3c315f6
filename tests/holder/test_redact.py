"""No secret gets through, however it is written and however it is cut (A16)."""

import json
import os
import re
import sys
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maos import redact
from maos.holder.client import start
from maos.holder.held_agent import Intake
from maos.redact import Redactor, forms
from tests.holder.agents import lines, py, to_the_end


def mixed(count: int) -> str:
    """Some characters as in a key, digits among them."""
    return (("aB3xY9kQ7" * 30) + "z")[:count]


PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "\n".join([mixed(64)] * 12) + "\nshort==\n-----END RSA PRIVATE KEY-----"

KEYS = {
    "anthropic-key": "sk-ant-api03-" + mixed(80),
    "openai-key": "sk-proj-" + mixed(48),
    "github-token": "ghp_" + mixed(36),
    "aws-key-id": "AKIAIOSFODNN7EXAMPLE",
    "google-key": "AIza" + mixed(35),
    "google-token": "ya29." + mixed(60),
    "slack-token": "xoxb-123456789012-" + mixed(24),
    "stripe-key": "sk_live_" + mixed(24),
    "stripe-secret": "whsec_" + mixed(32),
    "slack-webhook": "hooks.slack.com/services/T00000000/B00000000/" + mixed(24),
    "npm-token": "npm_" + mixed(36),
    "pypi-token": "pypi-AgEIcHlwaS5vcmc" + mixed(80),
    "gitlab-token": "glpat-" + mixed(20),
    "huggingface-token": "hf_" + mixed(34),
    "google-secret": "GOCSPX-" + mixed(28),
    "jwt": f"eyJ{mixed(30)}.eyJ{mixed(50)}.{mixed(43)}",
    "private-key": PEM,
}
AROUND = [
    "{}",
    "the key is {} and that was it",
    "KEY={}",
    'export KEY="{}"',
    "line one\nKEY: {}\nline three",
    "({})",
    "x\t{}\ty",
]


def mark(name: str) -> str:
    return f"[redacted:{name}]"


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", KEYS)
def test_every_known_shape_goes(name: str, around: str) -> None:
    text = around.format(KEYS[name])
    assert Redactor({}).text(text) == around.format(mark(name))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", KEYS)
def test_in_json_too(name: str, around: str) -> None:
    """As agent CLIs print it: newlines are two characters there, and the second one is a letter."""
    for text in (around.format(KEYS[name]), "\n" + around.format(KEYS[name])):
        line = json.dumps({"type": "user", "content": text})
        assert json.loads(Redactor({}).text(line))["content"].count(mark(name)) == 1
        again = Redactor({}).text(json.dumps({"inner": line}))
        assert KEYS[name][-20:-6] not in again
        assert mark(name) in again


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefgh12345678", "Authorization: Bearer [redacted:authorization]"),
        ("authorization: bearer abcdefgh12345678.x", "authorization: bearer [redacted:authorization]"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', '{"Authorization": "Basic [redacted:authorization]"}'),
        ("-H 'Authorization: token 0123456789abcdef'", "-H 'Authorization: token [redacted:authorization]'"),
        ("postgresql://me:hunter2@db/x", "postgresql://me:[redacted:url-password]@db/x"),
        ("https://:p%40ss@host:80/a@b and", "https://:[redacted:url-password]@host:80/a@b and"),
        (f"aws_secret_access_key = {mixed(40)}", "aws_secret_access_key = [redacted:aws-secret]"),
        (f"AWS_SECRET_ACCESS_KEY={mixed(40)}", "AWS_SECRET_ACCESS_KEY=[redacted:aws-secret]"),
        (f'"SecretAccessKey": "{mixed(40)}"', '"SecretAccessKey": "[redacted:aws-secret]"'),
    ],
)
def test_what_is_secret_by_its_surroundings_goes(text: str, clean: str) -> None:
    assert Redactor({}).text(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "a risk-averse-behaviour-in-markets-2026 and task-2026-01-01-something-long",
        "sk-circle-fade-dot-animation",
        "the bearer of this letter; Bearer token; bearer authentication-required",
        "https://example.com/a@b:c https://user@host/ git@github.com:a/b.git http://[::1]:80/",
        "session 0b2f4d8e-8d2b-4d4e-9f0a-1b2c3d4e5f60 in msg_01XFDUDYJgAACzvnptvVoYEL",
        "npm_config_cache hf_hub AKIA AIza xoxb- ghp_ eyJ -----BEGIN CERTIFICATE----- -----BEGIN ",
        "authorization: required; Authorization header missing; secret_access_key is not set",
        "d41d8cd98f00b204e9800998ecf8427e AKIAIOSFODNN7EXAMPLETOOLONGTOBEONE",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor({"EMPTY": "", "SHORT": "the", "SPACE": "        "}).text(text) == text


def test_a_private_key_goes_line_by_line() -> None:
    """However slowly it is printed, and whatever stands before its lines."""
    for indent in ("", "    ", "  12\t", "     7→", "> "):
        redactor = Redactor({})
        found = [redactor.lines(f"{indent}{line}\n".encode()) for line in ["before", *PEM.split("\n"), "", "after it"]]
        text = b"".join(found).decode()
        assert mixed(64) not in text
        assert "short" not in text
        assert mark("private-key") in text
        assert f"{indent}after it\n" in text
        assert text.startswith(f"{indent}before\n")


def test_a_private_key_that_never_ends_does_not_swallow_what_follows() -> None:
    redactor = Redactor({})
    said = redactor.lines(b"the header is -----BEGIN PRIVATE KEY-----\n")
    assert redactor.lines(b"and that is all there is to say, isn't it?\n").startswith(b"and that is")
    assert b"redacted" in said
    cut = Redactor({}).text(json.dumps({"a": PEM[:300], "b": "next"}))
    assert mixed(20) not in cut
    assert '"b": "next"' in cut


VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=6, max_size=60).filter(
    lambda text: len(text.strip()) >= 6
)


@given(value=VALUES)
@settings(max_examples=150, deadline=None)
def test_a_value_goes_in_every_form(value: str) -> None:
    """As it is, in JSON, in JSON in JSON, in a URL."""
    redactor = Redactor({"KEY": value})
    inner = json.dumps({"k": value})
    for form in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(inner),
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        re.sub("%..", lambda code: code[0].lower(), quote(value, safe="")),
    ):
        assert form in inner or mark("KEY") in redactor.text(f"<<{form}>>"), form
    assert value not in redactor.text(f"a {value} b {value}{value} c")
    assert Redactor({"KEY": value}).lines(f"{inner}\n".encode()) == f'{{"k": "{mark("KEY")}"}}\n'.encode()


def test_a_value_of_several_lines_goes_line_by_line() -> None:
    value = "first line of it\nsecond line of it\n}\n"
    redactor = Redactor({"KEY": value})
    assert b"line of it" not in redactor.lines(b"x first line of it\n") + redactor.lines(b"second line of it\n")
    assert redactor.text(json.dumps(value)) in (f'"{mark("KEY")}"', f'"{mark("KEY")}\\n"')


def test_the_longest_of_overlapping_values_is_removed_whole() -> None:
    redactor = Redactor({"SHORT": "abcdef", "LONG": "abcdefghij", "OTHER": "ghijklmnop"})
    assert redactor.text("1 abcdefghij 2") == f"1 {mark('LONG')} 2"
    assert redactor.text("1 abcdefghijklmnop 2") == f"1 {mark('LONG')} 2"
    assert redactor.text(f"in {KEYS['jwt']}") == f"in {mark('jwt')}"


CANARIES = [
    'pass word/with "quotes" & ünï',
    *(key for name, key in KEYS.items() if name != "private-key"),
    PEM.replace("\n", "\\n"),
]


@given(
    canary=st.sampled_from(CANARIES),
    before=st.integers(0, 70_000),
    after=st.integers(0, 70_000),
    chunks=st.lists(st.sampled_from([1, 100, 4096, 30_000, 65_536]), min_size=1, max_size=4),
    newline=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_no_cut_lets_a_secret_through(canary: str, before: int, after: int, chunks: list[int], newline: bool) -> None:
    """A line of any length, read in pieces of any size, recorded in parts: the canary is in none, nor across."""
    data = b"x y " * (before // 4) + canary.encode() + b" z w" * (after // 4) + b"\n" * newline
    intake = Intake(-1, 2, Redactor({"PASS": CANARIES[0]}), 65_536)
    records: list[tuple[int, bytes]] = []
    at = number = 0
    while at < len(data):
        size = max(chunks[number % len(chunks)], len(data) // 300)
        records += intake._split(data[at : at + size])
        at += size
        number += 1
    records += intake._flush()
    joined = b"".join(part for _flags, part in records)
    assert joined.count(b"[redacted:") == 1
    assert canary.encode()[4:] not in joined
    assert joined.count(b"x y ") == before // 4
    assert joined.count(b" z w") == after // 4
    assert joined.endswith(b"\n") == newline


@pytest.mark.parametrize("canary", CANARIES)
def test_a_secret_across_the_end_of_a_part_is_in_neither_half(canary: str) -> None:
    """A16: a long line is recorded in parts, and the first one is due in the middle of the secret."""
    whole, limit = canary.encode(), 65_536
    for inside in {1, 4, len(whole) // 2, len(whole) - 1}:
        before = (b"x y " * (limit // 4))[inside:]
        intake = Intake(-1, 2, Redactor({"PASS": CANARIES[0]}), limit)
        records = intake._split(before + whole[:inside]) + intake._split(whole[inside:] + b" z w\n")
        joined = b"".join(part for _flags, part in records)
        assert len(records) > 1
        assert joined.startswith(before + b"[redacted:")
        assert joined.endswith(b"] z w\n")
        assert joined.count(b"[redacted:") == 1


@given(
    st.lists(
        st.sampled_from([*CANARIES, "text ", "\n", "eyJ", "sk-", "-----BEGIN ", "://", "@", "a.b", "ghp_"]), max_size=30
    )
)
@settings(max_examples=150, deadline=None)
def test_any_mixture_is_clean_in_one_go_and_in_pieces(pieces: list[str]) -> None:
    text = " ".join(pieces)
    clean = Redactor({"PASS": CANARIES[0]}).text(text)
    redactor = Redactor({"PASS": CANARIES[0]})
    by_line = b"".join(redactor.lines(line) for line in text.encode().splitlines(keepends=True)).decode()
    for canary in CANARIES:
        assert canary not in clean
        assert canary not in by_line
    assert Redactor({}).text(clean) == clean


def test_a_key_longer_than_what_is_held_back_stays_redacted_to_its_end() -> None:
    redactor = Redactor({})
    key = b"sk-ant-" + b"a1B2" * 50_000
    data = b"key " + key + b" rest"
    found, at = b"", 0
    while at < len(data):
        piece = data[at : at + 70_000]
        if len(piece) < 70_000:
            found += redactor.lines(piece)
            break
        clean, used = redactor.part(piece)
        found += clean
        at += used
    assert found == b"key [redacted:anthropic-key] rest"


@pytest.mark.parametrize(
    "piece",
    [
        b"eyJ",
        b"sk-",
        b"a://b:@",
        b"a://b:c@d ",
        b"-----BEGIN ",
        b"-----BEGIN PRIVATE KEY-----(",
        b"ghp_",
        b"authorization: bearer ",
    ],
)
def test_hostile_output_costs_no_more_than_its_length(piece: bytes) -> None:
    """Twice as much text takes about twice as long: counted in calls, not in seconds."""

    def calls(data: bytes) -> int:
        count = 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            Redactor({}).lines(data)
        finally:
            sys.setprofile(None)
        return count

    once, twice = calls(piece * 2_000 + b"\n"), calls(piece * 4_000 + b"\n")
    assert twice < 2.5 * once + 200


def test_every_shape_can_be_found_where_it_is_looked_for() -> None:
    """Long words only are searched: each shape must be one."""
    word = redact._WORD + b"."
    for shape in redact._SHAPES:
        assert all(len(each) + shape.count_min >= redact.WORD_CHARS_MIN for each in shape.prefixes), shape.prefixes
        assert not "".join(shape.prefixes).encode().strip(word), shape.prefixes
        assert not shape.chars.strip(word), shape.prefixes


def test_short_values_are_no_secrets() -> None:
    assert forms("abc") == set()
    assert b"abcdef" in forms("abcdef")


async def test_nothing_secret_reaches_the_spool(root: Path) -> None:
    """I-A16: the canaries are in no file of the attempt, and not in what the engine sees."""
    secret = 'hunter2/with "quotes"'
    code = (
        "import sys, time, json\n"
        "keys = json.loads(sys.stdin.readline())\n"
        "for key in keys:\n"
        "    print('one', key); print(json.dumps({'two': key})); print('three', key, file=sys.stderr)\n"
        "sys.stdout.write('x ' * 33_000 + keys[0] + ' y' * 33_000 + '\\n')\n"
        "for piece in keys[0]: sys.stdout.write(piece); sys.stdout.flush()\n"
    )
    keys = [secret, *KEYS.values()]
    spec = py(code, first_input=json.dumps(keys).encode() + b"\n", secrets={"PASS": secret}, line_bytes_max=65_536)
    process = await start(root / "a", spec)
    records = await to_the_end(process)
    stored = b"".join(path.read_bytes() for path in (root / "a").iterdir() if path.is_file())
    seen = b"\n".join(record.data for record in records)
    for key in keys:
        for found in (stored, seen):
            assert key.encode() not in found
            assert json.dumps(key)[1:-1].encode() not in found
            assert key.split("\n")[-2 if "\n" in key else 0].encode() not in found
    assert lines(records)[-1] == b"[redacted:PASS]"
    assert os.fsencode(secret) not in Path(f"/proc/{process.holder_pid}/cmdline").read_bytes()
    assert os.fsencode(secret) not in Path(f"/proc/{process.holder_pid}/environ").read_bytes()
    await process.finish()
