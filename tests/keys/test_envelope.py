"""A sealed body is opened at its place only, with its key only, and unchanged only."""

import os
from pathlib import Path

import pytest

from maos.errors import Corrupt
from maos.keys import envelope
from maos.store.contract import RawEvent, Recorded
from tests.keys.vaults import new_key, note, open_with

STORE = bytes(16)
KEY = bytes(range(32))
PLACE = envelope.place_of(STORE, b"note", b"run/r-1", 3, 1)
ELSEWHERE = {
    "another store": envelope.place_of(b"\1" * 16, b"note", b"run/r-1", 3, 1),
    "another type": envelope.place_of(STORE, b"not", b"run/r-1", 3, 1),
    "another stream": envelope.place_of(STORE, b"note", b"run/r-2", 3, 1),
    "a longer type, and a shorter stream": envelope.place_of(STORE, b"noter", b"un/r-1", 3, 1),
    "another version": envelope.place_of(STORE, b"note", b"run/r-1", 4, 1),
    "another format": envelope.place_of(STORE, b"note", b"run/r-1", 3, 2),
}


@pytest.mark.parametrize("body", [b"", b"{}", os.urandom(5000)])
def test_a_body_comes_back(body: bytes) -> None:
    cipher = envelope.cipher_of(KEY)
    sealed = envelope.seal(cipher, b"12345678", body, PLACE)
    assert envelope.is_sealed(sealed)
    assert envelope.key_id_of(sealed) == b"12345678"
    assert envelope.unseal(cipher, sealed, PLACE) == body


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_body_that_was_moved_is_refused(place: str) -> None:
    """I38, A17."""
    cipher = envelope.cipher_of(KEY)
    sealed = envelope.seal(cipher, b"12345678", b"{}", PLACE)
    with pytest.raises(Corrupt, match="cannot be opened"):
        envelope.unseal(cipher, sealed, ELSEWHERE[place])


def test_a_body_that_was_changed_anywhere_is_refused() -> None:
    cipher = envelope.cipher_of(KEY)
    sealed = envelope.seal(cipher, b"12345678", b"{}", PLACE)
    for index in range(len(sealed)):
        changed = bytearray(sealed)
        changed[index] ^= 1
        with pytest.raises(Corrupt):
            envelope.unseal(cipher, bytes(changed), PLACE)
    for length in range(len(sealed)):
        with pytest.raises(Corrupt):
            envelope.unseal(cipher, sealed[:length], PLACE)
    with pytest.raises(Corrupt):
        envelope.unseal(envelope.cipher_of(bytes(32)), sealed, PLACE)


def test_the_same_body_is_never_sealed_the_same_way_twice() -> None:
    """Nonces are random: a restored database has the same positions again."""
    cipher = envelope.cipher_of(KEY)
    assert len({envelope.seal(cipher, b"12345678", b"{}", PLACE) for _ in range(100)}) == 100


@pytest.mark.parametrize("begins", [b"{", b"[", b'"', b"\x28\xb5\x2f\xfd", b"\x37\xa4\x30\xec", b"n", b"0"])
def test_no_other_body_begins_like_a_sealed_one(begins: bytes) -> None:
    assert not envelope.is_sealed(begins)
    assert envelope.MAGIC[0] >= 0x80, "JSON begins with ASCII"


@pytest.mark.parametrize("change", ["stream", "version", "type"])
async def test_an_event_in_another_place_is_not_opened(change: str, tmp_path: Path) -> None:
    """I38, A17: also when whoever moved it has computed the hashes anew."""
    async with open_with(tmp_path / "maos.db", new_key(tmp_path)) as m:
        await m.journal.append("run/r-1", [note("one"), note("two")])
        [first, second] = await m.journal.store.read("run/r-1")
        moved: Recorded = {
            "stream": first._replace(stream="inbox/r-1"),
            "version": first._replace(version=2),
            "type": first._replace(type="attempt_output"),
        }[change]
        assert m.journal.vault is not None
        assert RawEvent("note", 1, m.journal.vault.open_event(first)).body == b'{"text":"one"}'
        with pytest.raises(Corrupt):
            m.journal.vault.open_event(moved)
        with pytest.raises(Corrupt):
            await m.journal.decode(second._replace(body=first.body))
