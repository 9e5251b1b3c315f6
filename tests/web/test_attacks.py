"""Attacks on the server, by their numbers in docs/explanation/security.md."""

import asyncio
import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

import maos
from maos.model.access import Role
from maos.settings.schema import ServeSettings
from maos.web import guard
from maos.web.guard import RateLimit, Site
from maos.web.problems import RequestRefused
from maos.web.server import MaosServer
from maos_testing.manual_clock import ManualClock
from tests.web.conftest import MAOS, ServerProcess

EVIL = "http://evil.example"


def signed_in(server: ServerProcess) -> dict[str, str]:
    """The cookie of a browser that has signed in."""
    code = server.maos("token", "link", "--json")
    url = json.loads(code.stdout)["url"]
    with server.client() as http:
        form = http.get(url.removeprefix(server.url))
        assert "<form method='post'" in form.text
        found = re.search(r"value='(maos_[^']+)'", form.text)
        assert found
        headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
        response = http.post("/sign-in", content=f"code={found[1]}", headers=headers)
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    return {"Cookie": cookie.partition(";")[0]}


def test_a1_it_listens_on_this_machine_alone_and_nowhere_else_without_tls(
    server: ServerProcess, tmp_path: Path
) -> None:
    """A1."""
    port = int(server.url.rpartition(":")[2])
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    addresses = {line.split()[1] for line in listening.splitlines() if line.split()[1].endswith(f":{port:04X}")}
    assert addresses == {f"0100007F:{port:04X}"}
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        refused = server.maos("serve", "--host", host, "--port", "0")
        assert refused.returncode == 2
        assert "there is no TLS" in refused.stderr


def test_a3_another_host_or_origin_is_refused_with_every_credential(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    """A3."""
    cookie = signed_in(server)
    for credential in (cookie, {"Authorization": f"Bearer {tokens['admin']}"}):
        with server.client() as http:
            for host in ("evil.example", f"evil.example:{server.url.rpartition(':')[2]}", "127.0.0.1", "localhost:1"):
                assert http.get("/api/v1/overview", headers={**credential, "Host": host}).status_code == 403
            for origin in (EVIL, "null", server.url + ".evil.example", server.url.replace("http", "https"), ""):
                assert http.get("/api/v1/overview", headers={**credential, "Origin": origin}).status_code == 403
                assert http.get("/api/v1/stream", headers={**credential, "Origin": origin}).status_code == 403
            same = {**credential, "Origin": server.url}
            assert http.get("/api/v1/overview", headers=same).status_code == 200
            response = http.get("/api/v1/overview", headers={**credential, "Sec-Fetch-Site": "cross-site"})
            assert response.status_code == 403
            assert "access-control-allow-origin" not in response.headers


def test_a3_a_host_at_the_default_port_is_known_without_it() -> None:
    """A3."""
    site = Site.of("Build.example", 443, "", tls=True)
    assert site.hosts == {"build.example", "build.example:443"}
    assert site.origins == {"https://build.example", "https://build.example:443"}
    assert "127.0.0.1" not in Site.of("127.0.0.1", 443, "", tls=False).hosts  # http has another one


def test_a3_a_stream_with_a_cookie_must_come_from_the_page(server: ServerProcess) -> None:
    """A3."""
    cookie = signed_in(server)
    with server.client() as http:
        assert http.get("/api/v1/stream", headers=cookie).status_code == 403
        with http.stream("GET", "/api/v1/stream", headers={**cookie, "Sec-Fetch-Site": "same-origin"}) as response:
            assert response.status_code == 200


def test_a4_a_form_of_another_page_changes_nothing(server: ServerProcess) -> None:
    """A4."""
    cookie, path = signed_in(server), "/api/v1/state/reviewer"
    with server.client() as http:
        before = http.get(path, headers=cookie).json()
        body = json.dumps({"changes": {"status": "stolen"}})
        for headers in (
            {},
            {"Origin": EVIL},
            {"Origin": "null"},
            {"Origin": server.url, "Content-Type": "text/plain"},
            {"Content-Type": "application/json"},
            {"Content-Type": "application/json", "Origin": EVIL},
            {"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"},
        ):
            response = http.patch(path, content=body, headers={**cookie, **headers})
            assert response.status_code in (403, 415), headers
        for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
            response = http.post("/api/v1/runs", content=body, headers={**cookie, **headers, "Origin": EVIL})
            assert response.status_code == 403
        assert http.get(path, headers=cookie).json() == before


@pytest.mark.parametrize(
    "query",
    ["x') OR '1'='1=1", "limit=1;DROP TABLE events", "limit=-1", "limit=100000", "limit=1e3", "order=created_us",
     "cursor=%00", "status[$ne]=x", "limit=1&limit=2", "after=1' OR 1=1", "status=completed'--"],
)  # fmt: skip
def test_a5_only_parameters_with_known_names_and_values_are_used(
    server: ServerProcess, tokens: dict[str, str], query: str
) -> None:
    """A5."""
    with server.client(tokens["viewer"]) as http:
        response = http.get(f"/api/v1/runs?{query}")
        known = [each["id"] for each in http.get("/api/v1/runs").json()["runs"]]
    assert response.status_code in (200, 400, 404)
    if response.status_code == 200:
        assert [each["id"] for each in response.json()["runs"]] in ([], known)
    else:
        assert response.json()["hint"]


def test_a11_what_does_not_exist_and_what_is_not_yours_look_the_same(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    """A11."""
    with server.client() as http:
        known, unknown = (http.get(f"/api/v1/runs/{id}") for id in ("r-done", "r-none"))
        assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    with server.client(tokens["admin"]) as http:
        listed = http.get("/api/v1/credentials").json()["credentials"]
        assert listed
        assert not {"proof", "secret", "hash"} & {name for each in listed for name in each}
        for path in ("/api/v1/events?limit=500", "/api/v1/overview", "/api/v1/settings"):
            assert "proof" not in http.get(path).text.replace('"proof":""', "").partition("credential")[2]


def test_a15_pages_run_no_inline_script_and_agents_text_is_escaped(server: ServerProcess) -> None:
    """A15."""
    cookie = signed_in(server)
    with server.client() as http:
        for path in ("/", "/sign-in?code=<script>alert(1)</script>", "/answer?code=<script>", "/health", "/nothing"):
            response = http.get(path, headers=cookie)
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["referrer-policy"] == "same-origin"
            assert "<script>" not in response.text
        for name in ("app.js", "css/base.css", "icon.svg"):  # a part of a page has no policy, and is never a document
            response = http.get(f"/page/{name}")
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cross-origin-resource-policy"] == "same-origin"
            assert ("content-security-policy" in response.headers) == name.endswith(".svg")
            assert response.headers["content-type"].startswith(("text/javascript", "text/css", "image/svg+xml"))


def test_a20_large_and_deep_requests_are_refused(server: ServerProcess, tokens: dict[str, str]) -> None:
    """A20."""
    with server.client(tokens["operator"]) as http:
        assert http.post("/api/v1/runs", content=b"x" * (guard.BODY_BYTES_MAX + 1),
                         headers={"Content-Type": "application/json"}).status_code == 413  # fmt: skip

        def chunks() -> object:
            for _ in range(40):
                yield b" " * 65_536

        with contextlib.suppress(httpx2.TransportError):  # it does not wait for the rest
            response = http.post("/api/v1/runs", content=chunks(), headers={"Content-Type": "application/json"})
            assert response.status_code == 413
        for body in (b"[" * 500_000, b'{"request":' * 50_000, b'{"a":1}', b"\xff\xfe", b"null", b'"x"', b""):
            response = http.post("/api/v1/runs", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code in (400, 413), body[:20]
            assert response.json()["hint"]
        many = {f"X-{number}": "x" * 1_000 for number in range(100)}
        assert http.get("/health", headers=many).status_code in (400, 431)
        assert http.get("/health").status_code == 200


async def test_a20_clients_that_send_slowly_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A20."""
    monkeypatch.setattr("maos.web.server.HEADER_S_MAX", 0.2)
    monkeypatch.setattr("maos.web.guard.BODY_S_MAX", 0.2)
    async with maos.open(tmp_path / "maos.db", home=tmp_path) as m:
        _token, secret = await m.access.create_token("op", Role.OPERATOR)
        server = MaosServer(m, ServeSettings(port=0), folder=tmp_path, is_executing=False)
        stop, ready = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(server.serve(stop, lambda _url: ready.set()))
        await ready.wait()
        host, port = server.url.removeprefix("http://").split(":")
        head = f"Host: {host}:{port}\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        for begun, expected in (
            ("", b""),
            ("GET / HTTP/1.1\r\nHost", b""),
            (f"POST /api/v1/runs HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{", b"HTTP/1.1 408"),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(begun.encode())
            assert (await reader.read()).startswith(expected)
            writer.close()
            await writer.wait_closed()
        stop.set()
        await serving


def test_a20_too_many_requests_of_one_caller_are_refused_and_others_are_not() -> None:
    """A20."""
    clock = ManualClock(1_000_000)
    limit = RateLimit(clock, per_s=2, burst=3)
    for _ in range(3):
        limit.check("flood")
    with pytest.raises(RequestRefused) as refused:
        limit.check("flood")
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "1"
    limit.check("calm")
    clock.advance(1)
    limit.check("flood")
    for number in range(guard.CALLERS_MAX + 10):  # what is counted stays bounded
        limit.check(f"caller-{number}")
    assert len(limit._buckets) == guard.CALLERS_MAX


CLIENTS = 300
"""How many of each kind connect at once."""
GROWTH_MB_MAX = 50.0
STREAMS_MAX = 16


async def test_a20_hundreds_of_clients_at_once_are_bounded_and_others_are_served(
    new_server: Callable[[], ServerProcess],
) -> None:
    """A20. Streams of one caller beyond its limit are refused, clients that send nothing hold little, and another
    caller is served while all of them are connected."""
    server = new_server()
    server.start("--no-resume")
    tokens = await asyncio.to_thread(server.tokens)
    host, port = server.netloc.split(":")
    before_mb = resident_mb(server)

    async def connect(text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(60):
            while True:
                try:
                    reader, writer = await asyncio.open_connection(host, int(port))
                    break
                except (ConnectionError, TimeoutError):  # more at once than the kernel queues: it tries again
                    await asyncio.sleep(0.05)
        writer.write(text.encode())
        return reader, writer

    stream = f"GET /api/v1/stream HTTP/1.1\r\nHost: {server.netloc}\r\nAuthorization: Bearer {tokens['viewer']}\r\n\r\n"
    begun = f"GET /api/v1/overview HTTP/1.1\r\nHost: {server.netloc}\r\nX-Slow: "
    clients = await asyncio.gather(*(connect(text) for text in [stream, begun] * CLIENTS))
    try:
        async with asyncio.timeout(60):
            statuses = [int((await reader.readline()).split()[1]) for reader, _writer in clients[::2]]
        assert sorted(set(statuses)) == [200, 429]
        assert statuses.count(200) == STREAMS_MAX
        async with httpx2.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as http:
            headers = {"Authorization": f"Bearer {tokens['operator']}"}
            for path in ("/health", "/api/v1/overview", "/api/v1/health"):
                assert (await http.get(path, headers=headers)).status_code == 200
            assert (await http.get("/api/v1/health", headers=headers)).json()["streams"] == STREAMS_MAX
        assert resident_mb(server) - before_mb < GROWTH_MB_MAX
    finally:
        for _reader, writer in clients:
            writer.close()
    assert server.stop() == 0


def resident_mb(server: ServerProcess) -> float:
    """How much memory a server uses."""
    [line] = [each for each in Path(f"/proc/{server.pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_a23_secrets_are_nowhere_but_in_the_reply_that_creates_them(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    """A23."""
    with server.client(tokens["admin"]) as http:
        made = http.post("/api/v1/credentials", json={"name": "canary", "role": "viewer"})
        assert made.status_code == 201
        secret = made.json()["secret"]
        assert http.post("/api/v1/credentials", json={"name": "canary"}).status_code == 400
        http.get(f"/api/v1/runs?status={secret}")
        assert secret not in http.get("/api/v1/credentials").text
        assert secret not in http.get("/api/v1/events?limit=500").text
    for file in server.folder.iterdir():
        if file.is_file():
            stored = file.read_bytes()
            assert secret.encode() not in stored
            assert all(token.encode() not in stored for token in tokens.values())
    command = Path(f"/proc/{server.pid}/cmdline").read_bytes() + Path(f"/proc/{server.pid}/environ").read_bytes()
    assert b"maos_" not in command


def test_a23_no_file_has_a_code_that_signs_in(server: ServerProcess, tmp_path: Path) -> None:
    """A23."""
    command = [*MAOS, "--db", str(tmp_path / "maos.db"), "serve", "--port", "0", "--no-resume"]
    with open(tmp_path / "out.log", "w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=server.environment, stdout=log, stderr=log)
    try:
        until_s = time.monotonic() + 60
        while "Ctrl+C" not in (told := (tmp_path / "out.log").read_text()) and time.monotonic() < until_s:
            assert process.poll() is None, told
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait()
    assert "maos token link" in told
    assert "code=" not in told
    assert "maos_" not in told


def test_a23_a_sign_in_link_works_once_and_opening_it_uses_nothing_up(server: ServerProcess) -> None:
    """A23."""
    url = json.loads(server.maos("token", "link", "--json", "--role", "viewer").stdout)["url"]
    code = url.partition("code=")[2]
    with server.client() as http:
        for _ in range(3):  # programs that look at links
            assert http.get(f"/sign-in?code={code}").status_code == 200
        headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
        assert http.post("/sign-in", content=f"code={code}", headers={**headers, "Origin": EVIL}).status_code == 403
        statuses = [http.post("/sign-in", content=f"code={code}", headers=headers).status_code for _ in range(2)]
        assert statuses == [303, 401]
        assert http.post("/api/v1/session", json={"code": code}).status_code == 401
        assert http.get("/api/v1/overview", headers={"Authorization": f"Bearer {code}"}).status_code in (401, 429)


@pytest.mark.parametrize(
    ("to", "leads"),
    [("run/r-done", "/#/run/r-done"), ("//evil.example", "/#///evil.example"), ("a%0d%0aSet-Cookie:b", "/")],
)
def test_a_sign_in_link_leads_to_a_view_of_the_page_and_nowhere_else(
    server: ServerProcess, to: str, leads: str
) -> None:
    url = json.loads(server.maos("token", "link", "--json", "--role", "viewer").stdout)["url"]
    with server.client() as http:
        headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
        reply = http.post("/sign-in", content=f"code={url.partition('code=')[2]}&to={to}", headers=headers)
    assert (reply.status_code, reply.headers["location"]) == (303, leads)
    assert "b" not in reply.cookies


def test_a_session_has_the_role_of_its_link_and_ends_when_it_signs_out(server: ServerProcess) -> None:
    url = json.loads(server.maos("token", "link", "--json", "--role", "viewer").stdout)["url"]
    with server.client() as http:
        opened = http.post("/api/v1/session", json={"code": url.partition("code=")[2]})
        assert opened.json()["role"] == Role.VIEWER
        headers = {"Cookie": opened.headers["set-cookie"].partition(";")[0], "Origin": server.url}
        assert http.post("/api/v1/runs", json={"request": "x"}, headers=headers).status_code == 403
        assert http.post("/sign-out", headers=headers).status_code == 303
        assert http.get("/api/v1/overview", headers=headers).status_code in (401, 429)
