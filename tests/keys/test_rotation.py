"""After a rotation the old key opens nothing, and everything is read with the new one."""

import stat
import subprocess
import sys
from pathlib import Path

import keyring
import keyring.backend
import pytest

import maos
from maos.errors import InvalidInput, Locked
from maos.keys import sources
from tests.keys.vaults import TYPES, files_with, new_key, note, open_with


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "maos.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


async def test_a_rotation_changes_the_key_and_new_events_get_new_data_keys(database: str, tmp_path: Path) -> None:
    old, new = new_key(tmp_path), new_key(tmp_path, "new")
    async with open_with(database, old) as m:
        await m.journal.append("run/r-1", note("one"), key="one")
        reported: list[tuple[int, int]] = []
        done = await m.keys.rotate(f"file:{new}", lambda *counts: reported.append(counts))
        assert (done.source, done.finished) == ("file", False)
        assert reported[-1] == (2, 2)
        await m.journal.append("run/r-1", note("two"))
    with pytest.raises(maos.Locked, match="key is not the key"):
        await open_with(database, old)
    async with open_with(database, new) as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-1")] == ["one", "two"]
        found = {each.scope: each.keys for each in (await m.keys.list()).scopes}
        assert found["r-1"] == 2, "a new one for what came after"
        assert (await m.journal.append("run/r-1", note("one"), key="one")).repeated
        assert (await m.verify()).ok


async def test_a_process_with_the_old_key_writes_nothing_that_no_key_opens(database: str, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    async with open_with(database, key) as m, open_with(database, key) as other:
        await other.journal.append("run/r-1", note("one"))
        await m.keys.rotate(f"file:{new_key(tmp_path, 'new')}")
        await other.journal.append("run/r-1", note("two"))  # with the data key that it knows
        with pytest.raises(maos.Locked, match="rotated meanwhile"):
            await other.journal.append("run/r-2", note("three"))
    async with open_with(database, tmp_path / "new") as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-1")] == ["one", "two"]
        assert await m.journal.version("run/r-2") == 0
        assert (await m.verify()).ok


async def test_wrapped_keys_are_exported_once(tmp_path: Path) -> None:
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        await m.journal.append("run/r-1", note("one"))
        assert await m.keys.export(tmp_path / "export") == 2
        assert stat.S_IMODE((tmp_path / "export").stat().st_mode) == 0o600
        with pytest.raises(InvalidInput, match="exists"):
            await m.keys.export(tmp_path / "export")


# --- sources ---------------------------------------------------------------------------------------------------

SERVICE = """
import base64, sys
content = base64.b64decode(sys.stdin.buffer.read())
verb = sys.argv[-1]
if verb not in ("wrap", "unwrap") or (verb == "unwrap" and not content.startswith(b"wrapped")):
    sys.exit("what is this?")
turned = bytes(byte ^ 0x5A for byte in (content if verb == "wrap" else content[7:]))
sys.stdout.write(base64.b64encode(b"wrapped" + turned if verb == "wrap" else turned).decode())
"""


class DictKeyring(keyring.backend.KeyringBackend):
    """A keyring that keeps its entries in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[service, username]


@pytest.fixture
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ARGON2_MEMORY_KIB", 64)
    monkeypatch.setattr(sources, "ARGON2_ROUNDS", 1)


def source_named(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return a source, and another one of the same kind that does not fit."""
    match kind:
        case "passphrase":
            monkeypatch.setenv(sources.PASSPHRASE, "correct horse")
            return "passphrase", "passphrase"
        case "age":
            sources.generate(f"age:{folder}/identity")
            sources.generate(f"age:{folder}/other")
            return f"age:{folder}/identity", f"age:{folder}/other"
        case "keyring":
            monkeypatch.setattr(keyring, "get_password", (entries := DictKeyring()).get_password)
            monkeypatch.setattr(keyring, "set_password", entries.set_password)
            sources.generate("keyring:one")
            sources.generate("keyring:two")
            with pytest.raises(InvalidInput, match="no key is overwritten"):
                sources.generate("keyring:one")
            return "keyring:one", "keyring:two"
        case "command":
            (folder / "service.py").write_text(SERVICE)
            return (
                f"command:{sys.executable} '{folder}/service.py'",
                f"command:{sys.executable} -c 'import sys; sys.exit(3)'",
            )
    sources.generate(f"file:{folder}/one")
    sources.generate(f"file:{folder}/two")
    return f"file:{folder}/one", f"file:{folder}/two"


@pytest.mark.usefixtures("cheap_passphrases")
@pytest.mark.parametrize("kind", ["file", "passphrase", "age", "keyring", "command"])
async def test_every_source_unlocks_what_it_has_locked(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other = source_named(kind, tmp_path, monkeypatch)
    async with open_with(tmp_path / "maos.db", source) as m:
        await m.journal.append("run/r-1", note("one"))
        assert (await m.keys.list()).source == kind
    async with open_with(tmp_path / "maos.db", source) as m:
        assert [record.data["text"] async for record in m.journal.read("run/r-1")] == ["one"]
    if kind == "passphrase":
        monkeypatch.setenv(sources.PASSPHRASE, "wrong horse")
    with pytest.raises(Locked):
        await open_with(tmp_path / "maos.db", other)
    if kind == "passphrase":
        monkeypatch.delenv(sources.PASSPHRASE)
        with pytest.raises(Locked, match="MAOS_PASSPHRASE"):
            await open_with(tmp_path / "maos.db", source)
    assert files_with(["correct horse"], tmp_path) == {}


@pytest.mark.parametrize("wrong", ["", "file:", "key", "passphrase:secret", "command:", "vault:x"])
def test_what_names_no_source_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="does not name"):
        sources.parse_source(wrong)


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    sources.generate(f"file:{tmp_path}/key")
    before = (tmp_path / "key").read_bytes()
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match="exists"):
        sources.generate(f"file:{tmp_path}/key")
    assert (tmp_path / "key").read_bytes() == before
    (tmp_path / "key").write_text("nonsense")
    with pytest.raises(Locked, match="is not a key file"):
        sources.parse_source(f"file:{tmp_path}/key").wrap(bytes(32))


def test_nothing_of_encryption_is_loaded_without_it(tmp_path: Path) -> None:
    """Databases without encryption need neither the packages nor the time."""
    program = (
        "import asyncio, sys, maos\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        "        async with maos.open(sys.argv[1]) as m:\n"
        "            await m.state.create(f'a{await m.journal.head()}', {})\n"
        "asyncio.run(main())\n"
        "assert not {'cryptography', 'pyrage', 'keyring'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "maos.db")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- encryption of a database that exists ------------------------------------------------------------------------


async def fill(path: Path) -> None:
    async with maos.open(path, types=TYPES) as m:
        for number in range(80):  # enough for a dictionary
            await m.journal.append("run/r-1", note(f"canary {number} " * 60), key=f"{number}")
        await m.state.create("a", {"items": ["canary"] * 10})
        for number in range(30):
            await m.state.update("a", {"n": number})
        await m.state.snapshot("a", name="half")
        await m.state.compact("a", keep_last=2)


async def content_of(m: maos.Maos) -> list[object]:
    found: list[object] = [
        (record.position, record.stream, record.version, record.spans, record.time_us, record.token, record.data)
        for name in [name async for name in m.journal.streams() if not name.startswith("journal/")]
        async for record in m.journal.read(name)
    ]
    return [*found, (await m.state.get("a")).data, [each.name for each in await m.state.snapshots("a")]]


async def test_a_database_that_exists_is_encrypted(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    await fill(tmp_path / "maos.db")
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        before = await content_of(m)
        head = await m.journal.head()
        lease = await m.journal.acquire("somebody", ttl_s=0.01)
        assert lease is not None
        assert [name async for name in m.journal.streams("journal/")], "bodies are compressed with a dictionary"
    assert await maos.encrypt(tmp_path / "maos.db", f"file:{key}", types=TYPES) == head
    assert files_with(["canary"], tmp_path) == {}
    async with open_with(tmp_path / "maos.db", key) as m:
        assert await content_of(m) == before
        report = await m.verify()
        assert report.ok, report.damage
        assert (await m.journal.append("run/r-1", note("canary 7 " * 60), key="7")).repeated
        assert (await m.journal.append("run/r-1", note("new"))).position == await m.journal.head()
        again = await m.journal.acquire("somebody")
        assert again is not None
        assert again.token > lease.token
    with pytest.raises(InvalidInput, match="encrypted already"):
        await maos.encrypt(tmp_path / "maos.db", f"file:{key}")


async def test_a_database_in_use_is_not_encrypted(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    await fill(tmp_path / "maos.db")
    async with maos.open(tmp_path / "maos.db", types=TYPES) as m:
        with pytest.raises(maos.StoreUnavailable, match="a process has"):
            await maos.encrypt(tmp_path / "maos.db", f"file:{key}", types=TYPES)
        await m.journal.append("run/r-1", note("still here"))
        assert m.journal.vault is None


async def test_a_process_that_opened_it_before_writes_nothing_plain(tmp_path: Path) -> None:
    await fill(tmp_path / "maos.db")
    key = new_key(tmp_path)
    m = await maos.open(tmp_path / "copy.db", types=TYPES)  # has no connection for writing yet
    try:
        await maos.encrypt(tmp_path / "maos.db", f"file:{key}", types=TYPES)
        (tmp_path / "maos.db").replace(tmp_path / "copy.db")
        with pytest.raises(maos.StoreUnavailable, match="encrypted meanwhile"):
            await m.journal.append("run/r-1", note("plain"))
    finally:
        await m.close()
