"""No secret gets through, however it is written and however it is cut (A16)."""

import json
import os
import re
import sys
import time
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
HEX = "0123456789abcdef" * 4
SHAPES = {
    **KEYS,
    "stripe-key (restricted)": "rk_live_" + mixed(24),
    "github-token (fine-grained)": "github_pat_" + mixed(22) + "_" + mixed(59),
    "gitlab-token (runner)": "glrt-" + mixed(20),
    "sendgrid-key": f"SG.{mixed(22)}.{mixed(43)}",
    "twilio-key": "SK" + HEX[:32],
    "digitalocean-token": "dop_v1_" + HEX[:64],
    "shopify-token": "shpat_" + HEX[:32],
    "databricks-token": "dapi" + HEX[:32],
    "vault-token": "hvs." + mixed(90),
    "groq-key": "gsk_" + mixed(52),
    "xai-key": "xai-" + mixed(80),
    "replicate-token": "r8_" + mixed(37),
    "perplexity-key": "pplx-" + mixed(48),
    "openai-key (old)": "sk-" + mixed(48),
    "openai-key (service account)": "sk-svcacct-" + mixed(20) + "-_" + mixed(30),
    "mailchimp-key": "md-" + mixed(22),
    "fireworks-key": "fw_" + mixed(24),
    "openai-key (openrouter)": "sk-or-v1-" + HEX[:64],
    "linear-key": "lin_api_" + mixed(40),
    "atlassian-token": "ATATT3" + mixed(180) + "=" + HEX[:8].upper(),
    "telegram-token": "123456789:AA" + mixed(33),
    "discord-token": f"MT{mixed(24)}.G{mixed(5)}.{mixed(38)}",
    "azure-secret": f"abc8Q~{mixed(34)}",
    "supabase-key": "sbp_" + HEX[:40],
    "age-key": "AGE-SECRET-KEY-1" + mixed(58).upper(),
    "mailgun-key": "key-" + HEX[:32],
    "slack-token (app)": "xapp-1-A0123456789-" + mixed(60),
    "docker-token": "dckr_pat_" + mixed(27),
    "notion-key": "ntn_" + mixed(46),
    "figma-token": "figd_" + mixed(40),
    "grafana-token": "glsa_" + mixed(32) + "_" + HEX[:8],
    "new-relic-key": "NRAK-" + mixed(27).upper(),
    "postman-key": f"PMAK-{HEX[:24]}-{HEX[:34]}",
    "pulumi-token": "pul-" + HEX[:40],
    "planetscale-token": "pscale_tkn_" + mixed(43),
    "doppler-token": "dp.pt." + mixed(43),
    "tailscale-key": "tskey-auth-" + mixed(32),
    "nvidia-key": "nvapi-" + mixed(64),
    "langsmith-key": f"lsv2_pt_{HEX[:32]}_{HEX[:10]}",
    "rubygems-key": "rubygems_" + HEX[:48],
}
"""Made-up keys of the shapes in the rules of gitleaks, put together here so that no scanner takes them for real."""
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
@pytest.mark.parametrize("name", SHAPES)
def test_every_known_shape_goes(name: str, around: str) -> None:
    text = around.format(SHAPES[name])
    clean = around.format(mark(name.partition(" ")[0]))
    assert Redactor({}).text(text) == clean
    assert Redactor({}).text(clean) == clean


def test_the_list_of_shapes_is_long_enough() -> None:
    assert len(SHAPES) >= 50


COLOURS = {"reset": "\x1b[0m", "bold red": "\x1b[1;38;5;196m", "title": "\x1b]0;title\x07", "charset": "\x1b(B"}


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("name", [each for each in SHAPES if each != "private-key"])
def test_colours_inside_a_key_do_not_hide_it(name: str, colour: str) -> None:
    """Wherever the escape sequence is; what is around the key stays, with its colours."""
    key, escape = SHAPES[name], COLOURS[colour]
    marked = mark(name.partition(" ")[0])
    for at in {1, 3, len(key) // 2, len(key) - 1}:
        text = f"{escape}see {key[:at]}{escape}{key[at:]}{escape} and {escape}"
        assert Redactor({}).text(text) == f"{escape}see {marked}{escape} and {escape}"
        if colour != "title":  # JSON has no end of a title that a terminal would find
            line = json.dumps({"text": text})
            assert json.loads(Redactor({}).text(line))["text"] == f"{escape}see {marked}{escape} and {escape}"
            assert marked in Redactor({}).text(json.dumps({"inner": line}))


def test_a_coloured_key_goes_line_by_line_and_in_parts() -> None:
    redactor = Redactor({})
    coloured = [f"\x1b[32m{line}\x1b[0m\n".encode() for line in PEM.split("\n")]
    assert mixed(20).encode() not in b"".join(redactor.lines(each) for each in [*coloured, b"after it\n"])
    redactor = Redactor({})
    key = b"sk-ant-" + b"a1B2\x1b[0m" * 20_000
    clean, used = redactor.part(b"x " + key[:70_001])
    found = clean + redactor.lines((b"x " + key + b" rest\n")[used:])
    assert b"a1B2" not in found
    assert found.endswith(b" rest\n")


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
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfi9", "AWS_SECRET_ACCESS_KEY=[redacted:aws-secret]"),
        (f'"SecretAccessKey": "{mixed(40)}"', '"SecretAccessKey": "[redacted:aws-secret]"'),
        ("password: hunter2", "password: [redacted:password]"),
        ("DB_PASSWORD='correct1horse!'", "DB_PASSWORD='[redacted:password]'"),
        ('{"password": "correct1horse", "n": 1}', '{"password": "[redacted:password]", "n": 1}'),
        ("MYSQL_PASS=s3cr3t99", "MYSQL_PASS=[redacted:password]"),
        (f"x-api-key: {mixed(32)}", "x-api-key: [redacted:key]"),
        (f"x-api-key: {HEX[:32]}", "x-api-key: [redacted:key]"),
        (f"AccountKey={mixed(86)}==;Endpoint", "AccountKey=[redacted:key];Endpoint"),
        (f'client_secret = "{mixed(30)}"', 'client_secret = "[redacted:key]"'),
        (f"context_token: {mixed(24)}", "context_token: [redacted:key]"),
        (f"X-Vault-Token: {mixed(24)}", "X-Vault-Token: [redacted:key]"),
        (f"Cookie: session={mixed(24)}; theme=dark\nnext", "Cookie: [redacted:cookie]\nnext"),
        (f"Set-Cookie: id={mixed(24)}; Path=/", "Set-Cookie: [redacted:cookie]"),
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
        "password: see the vault page; the password is required. Password: not set, passwd: unchanged",
        "password = get_password() and passwd=os.environ['DB1'] or password=$PASSWORD1 with --password=${PW1}",
        "password: str = field(default=None), password: <your-password-1>, password=****1234****",
        "token = next_token(1); tokens: 123456; token: abc-123; key: value1; primary_key=abcdefgh12345678abcd",
        f"nextToken={mixed(40)} next_page_token: {mixed(40)} 'pageToken': '{mixed(40)}' page_token={mixed(40)}",
        f"continuation_token={mixed(40)} Continuation-Token: {mixed(40)} syncToken={mixed(40)} sync_token: {mixed(40)}",
        "api_key = settings.load_key(), cookie: yes=1, cookies are set, secret: keep it",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b tree 9b2f4d8e-8d2b-4d4e-9f0a-1b2c3d4e5f60",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 sha512-" + "aB3/" * 21 + "==",
        "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ" * 20,
        "task-manager-component-2026-final, sk-learn, hf_hub_download_with_retries_2, key-value-store-for-2026-things",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor({"EMPTY": "", "SHORT": "the", "SPACE": "        "}).text(text) == text


UUID = "0b2f4d8e-8d2b-4d4e-9f0a-1b2c3d4e5f60"


@pytest.mark.parametrize(
    "name",
    [
        "/home/u/sk-learn-experiments-2024",
        "/home/u/sk-learn-experiments-2024/src/main.py",
        "/tmp/sk-0b2f4d8e8d2b4d4e9f0a",
        "translate-sk-release-messages-2024",
        "python-sk-learn-contrib-0-24-2-py3",
        "task-ant-colony-optimization-2024-final",
        "tests/task_test_authenticationflow2024.py",
        "refs/heads/feature/sk-1234-add-login-form-for-users",
        "origin/sk-2024-release-candidate-one",
        "feature/sk-admin-page-rework-2024-for-users",
        "sk-proj-ects-overview-page-2024-version",
        "@scope/sk-design-system-components@2.14.0",
        "sk-design-system-components-2.14.0.tgz",
        "registry.example.com/team/sk-service-api-gateway:2024.01.01-alpine",
        "ghcr.io/acme/sk-image-processing-worker:sha-3f78685",
        "pod/sk-service-api-gateway-7d9f8b6c5d-x2x9z",
        f"sess_{UUID}",
        f"sk-{UUID}",
        f"session-{UUID}",
        "3f786850e387550fdab836ed7e6dc881de23001b",
        "v1.2.3-45-g3f786850e387",
        "md-converter-for-notes-v1",
        f"cache/key-{HEX[:32]}",
        f"cache-key-{HEX[:32]}",
        f"key-{HEX[:32]}.json",
        f"branch-pul-{HEX[:40]}",
        f"/objects/SK{HEX[:32]}",
        f"model/dapi{HEX[:32]}",
        "fw_update2024releasecandidate",
        "lib/fw_firmwareimage20240101build",
        "xai-explainable-models-for-medical-imaging-2024-final",
        "npm_config_cache_folder_of_the_user_2024",
        "npm_packagemanagerconfigurationdirectory2024",
        "hf_transformersmodelbertbaseuncased2024",
        "nvapi-explorer-component-with-a-long-name-2024-12",
        "tvly-search-results-for-my-query-2024",
        "sbp_migration_of_the_old_database_2024_01",
        "figd_export_of_the_design_file_2024_01",
        "glc_landcover_map_2024_01_01_version_final",
        "hvs.high-voltage-system-2024-plan",
        "gldt-release-2024-01-01-something",
        "ghs_build-output-2024-01-01-for-the-new-release",
        "fm2_models_of_the_factorization_machine_2024_01",
        "dp.st.architecture_of_the_system_2024_with_a_long_name",
        "r8_someverylongmodelnamewithoutbreaks20241",
    ],
)
def test_paths_branches_packages_images_and_ids_stay(name: str) -> None:
    """A path that is changed cannot be opened any more."""
    for text in (name, f"see {name} there", f"path={name}", json.dumps({"path": f"\n{name}"})):
        assert Redactor({}).text(text) == text


@pytest.mark.parametrize("before", ["", "-", "+", "key: ", "key=", "'", "\n", "..."])
def test_a_short_prefix_counts_where_a_word_begins(before: str) -> None:
    """A line of a diff begins with a sign, which makes no name of the key."""
    for key in (mixed(48), HEX[:32]):
        assert Redactor({}).text(f"{before}sk-{key}") == f"{before}{mark('openai-key')}"
        assert Redactor({}).text(f"{before}sk-{key}. Then") == f"{before}{mark('openai-key')}. Then"


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


PREFIXES = [prefix.encode() for shape in redact._SHAPES + redact._WEBHOOKS for prefix in shape.prefixes]
NAMES = ["password", "passwd", "passphrase", "db_pass", "secret", "token", "api_key", "cookie", "authorization"]
REPEATED = [
    *(b"".join(PREFIXES[at : at + 8]) for at in range(0, len(PREFIXES), 8)),
    *(
        f"{name}{value}".encode()
        for name in [*NAMES, "secret_access_key", "secretaccesskey"]
        for value in ("=", ":1a/")
    ),
    b"Q~",
    b"9Q~",
    b"1:AA",
    b"eyJabcdefghij1.",
    b"-eyJ1",
    b"password:http://",
    b"secret:aaaaaaaaaaaaaaaaaaaaa1/",
    b"cookie: a=bcdefgh1; ",
    b"authorization=basic ",
    b"a bearer a1",
    b"a://b:c@",
    b"://",
    b"-----BEGIN PRIVATE KEY-----",
    b"-----BEGIN PRIVATE KEY-----(",
    b"-----BEGIN PRIVATE KEY----- -----END ",
    b"MT" + mixed(24).encode() + b".Gaaaaa.",
    b"\x1b[32mok\x1b[0m src/main.c\n",
    b"\\u001b[32mok\\u001b[0m src/main.c ",
    b"\\u001c",
    b"\\u00\x1b[0m1b",
    b"\x1b]",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_four_times_as_much_text_does_not_take_sixteen_times_as_long(piece: bytes) -> None:
    """Also where one call reads the rest of the text, which counting calls does not show."""

    def seconds(size: int) -> float:
        data = b"x1" * 20 + b" " + (piece * (size // len(piece) + 1))[:size] + b"\n"  # the long word is looked for
        begin = time.process_time()
        Redactor({}).lines(data)
        return time.process_time() - begin

    pairs = [(seconds(64 << 10), seconds(256 << 10)) for _ in range(3)]
    assert min(pair[1] for pair in pairs) < 10 * min(pair[0] for pair in pairs) + 0.01


def test_every_shape_can_be_found_where_it_is_looked_for() -> None:
    """Long words only are searched: each shape must be one."""
    word = redact._WORD + b"."
    for shape in redact._SHAPES:
        assert all(len(each) + shape.count_min >= redact.WORD_CHARS_MIN for each in shape.prefixes), shape.prefixes
        assert not "".join(shape.prefixes).encode().strip(word), shape.prefixes
        assert not shape.chars.strip(word + b"+/="), shape.prefixes


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("STRIPE_KEY", True),
        ("GITHUBTOKEN", True),
        ("auth-token", True),
        ("ACCESS_TOKENS", True),
        ("DB_PASS", True),
        ("MAX_THINKING_TOKENS", False),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", False),
        ("DISABLE_AUTH", False),
        ("SORT_KEY", False),
        ("MONKEY", False),
        ("AUTHOR", False),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str, is_secret: bool) -> None:
    assert redact.is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    ("value", "is_secret"),
    [
        ("128000", False),
        ("123456789012345", False),
        ("1234567890123456", True),
        ("postgres", False),
        ("abc12", False),
        ("hunter2", True),
        ("two words", True),
        ("Postgres", True),
        ("correcthorsebatterystaple", True),
    ],
)
def test_a_number_or_a_word_is_not_removed_from_all_text(value: str, is_secret: bool) -> None:
    assert redact.is_secret_value(value) is is_secret


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
