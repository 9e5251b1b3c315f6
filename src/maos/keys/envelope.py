"""The envelope: how a body is sealed with AES-256-GCM.

    magic    2 bytes, with which neither JSON nor a zstd frame nor a dictionary begins
    key      8 bytes, the id of the data key
    nonce    12 random bytes; never derived from a position, because a restored database has the same positions again
    content  the ciphertext and its tag of 16 bytes

The tag also covers the place of the body: the store, the stream, the version, the type and the format of an event, or
the kind, the key and the version of a document. So a body that was moved to another place cannot be opened.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from maos.errors import Corrupt, InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAGIC = b"\xe7\x01"
KEY_BYTES = 32
ID_BYTES = 8
NONCE_BYTES = 12
_CONTENT = len(MAGIC) + ID_BYTES + NONCE_BYTES
_LENGTHS = struct.Struct(">IIqq")


def cipher_of(key: bytes) -> AESGCM:
    """Return the cipher of a key; raise InvalidInput when the package for it is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        hint = "install it with `pip install maos[encrypt]`"
        raise InvalidInput("encryption needs the package cryptography", hint=hint) from error
    return AESGCM(key)


def is_sealed(body: bytes) -> bool:
    """Return whether a body is sealed."""
    return body.startswith(MAGIC)


def key_id_of(sealed: bytes) -> bytes:
    """Return the id of the key that a body was sealed with."""
    return sealed[len(MAGIC) : len(MAGIC) + ID_BYTES]


def place_of(store: bytes, kind: bytes, name: bytes, version: int, format_: int = 0) -> bytes:
    """Return what a body is bound to: an event by its type and stream, a document by its kind and key."""
    # Lengths come first, so that two different places never have the same bytes.
    return _LENGTHS.pack(len(kind), len(name), version, format_) + store + kind + name


def seal(cipher: AESGCM, key_id: bytes, body: bytes, place: bytes) -> bytes:
    """Return a body sealed for a place."""
    nonce = os.urandom(NONCE_BYTES)
    head = MAGIC + key_id
    return head + nonce + cipher.encrypt(nonce, body, head + place)


def unseal(cipher: AESGCM, sealed: bytes, place: bytes) -> bytes:
    """Return the body of an envelope; raise Corrupt when it was changed, or sealed for another place."""
    from cryptography.exceptions import InvalidTag

    head = sealed[: len(MAGIC) + ID_BYTES]
    try:
        return cipher.decrypt(sealed[len(head) : _CONTENT], sealed[_CONTENT:], head + place)
    except (InvalidTag, ValueError) as error:
        raise Corrupt("it cannot be opened: it was changed, or sealed for another place") from error
