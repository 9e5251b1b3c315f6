"""Where the key comes from that a database is unlocked with.

    file:PATH           a file with the key, as `maos key generate` writes it, readable by its owner only
    passphrase          a passphrase, from the variable MAOS_PASSPHRASE or asked for at a terminal (Argon2id)
    age:IDENTITY        a file with an age identity
    keyring:NAME        an entry of the keyring of the operating system
    command:ARGV…       a program, for a key service: called with `wrap` or `unwrap` as its last argument, it reads
                        bytes in base64 from standard input and writes the result in base64 to standard output

A source wraps and unwraps one key of 32 bytes, the root key of a database. The root key wraps the data keys.
"""

from __future__ import annotations

import base64
import binascii
import getpass
import os
import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from maos.errors import Corrupt, InvalidInput, Locked
from maos.files import open_regular, sync_folder
from maos.keys import envelope

PASSPHRASE = "MAOS_PASSPHRASE"  # noqa: S105 - the name of the variable
FILE_HEAD = "maos-key-1 "
FILE_BYTES_MAX = 4096
COMMAND_S = 30.0
SALT_BYTES = 16
ARGON2_MEMORY_KIB = 64 << 10
ARGON2_ROUNDS = 3
ARGON2_LANES = 4
_SERVICE = "maos"
_HINT = "name where the key comes from with encryption.source in your settings, such as file:~/.config/maos/key"


class KeySource(ABC):
    """Wraps and unwraps the root key of a database."""

    kind: str

    @abstractmethod
    def wrap(self, root: bytes) -> bytes:
        """Return the root key, wrapped."""

    @abstractmethod
    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the root key; raise Locked when this is not the source that has wrapped it."""


def parse_source(text: str) -> KeySource:
    """Return the source that a setting names; it is not opened yet."""
    kind, _, rest = text.partition(":")
    match kind:
        case "file" if rest:
            return KeyFile(Path(rest).expanduser())
        case "passphrase" if not rest:
            return Passphrase()
        case "age" if rest:
            return AgeIdentity(Path(rest).expanduser())
        case "keyring" if rest:
            return SystemKeyring(rest)
        case "command" if rest.strip():
            return KeyCommand(shlex.split(rest))
    raise InvalidInput(
        f"{text!r} does not name where a key comes from",
        hint="use file:PATH, passphrase, age:IDENTITY_FILE, keyring:NAME or command:PROGRAM ARGUMENTS…",
    )


def generate(source: str) -> None:
    """Generate the key that a source names: a key file, an age identity, or an entry of the keyring."""
    kind, _, rest = source.partition(":")
    match kind:
        case "file" if rest:
            generate_key_file(Path(rest).expanduser())
        case "age" if rest:
            identity = _import_pyrage().x25519.Identity.generate()
            write_new(Path(rest).expanduser(), f"# public key: {identity.to_public()}\n{identity}\n".encode())
        case "keyring" if rest:
            generate_keyring_entry(rest)
        case _:
            hint = "name file:PATH, age:PATH or keyring:NAME; a passphrase or a key service needs no key from maos"
            raise InvalidInput(f"no key can be generated for {source!r}", hint=hint)


def generate_key_file(path: Path) -> None:
    """Write a new key to a file that does not exist yet, readable by its owner only."""
    write_new(path, f"{FILE_HEAD}{base64.b64encode(os.urandom(envelope.KEY_BYTES)).decode()}\n".encode())


def write_new(path: Path, content: bytes) -> None:
    """Write keys to a file that does not exist yet, readable by its owner only; on disk when this returns."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise InvalidInput(f"{path} exists", hint="name another file; a key is never overwritten") from error
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", hint="name a file in a folder of yours"
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.absolute().parent)


def generate_keyring_entry(name: str) -> None:
    """Write a new key to the keyring of the operating system, under a name that has none yet."""
    keyring = _import_keyring()
    try:
        if keyring.get_password(_SERVICE, name) is not None:
            hint = "choose another name; no key is overwritten"
            raise InvalidInput(f"the keyring has a key {name} already", hint=hint)
        keyring.set_password(_SERVICE, name, base64.b64encode(os.urandom(envelope.KEY_BYTES)).decode())
    except keyring.errors.KeyringError as error:
        raise InvalidInput(f"the keyring cannot be used: {error}", hint="use file:PATH") from error


class _SymmetricSource(KeySource):
    """A source that is a key itself."""

    @abstractmethod
    def key(self, salt: bytes) -> bytes:
        """Return the key; a passphrase becomes one with a salt."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, for messages."""

    def wrap(self, root: bytes) -> bytes:
        salt = os.urandom(SALT_BYTES)
        return salt + envelope.seal(envelope.cipher_of(self.key(salt)), b"\0" * envelope.ID_BYTES, root, salt)

    def unwrap(self, wrapped: bytes) -> bytes:
        salt = wrapped[:SALT_BYTES]
        try:
            return envelope.unseal(envelope.cipher_of(self.key(salt)), wrapped[SALT_BYTES:], salt)
        except Corrupt as error:
            raise Locked(f"{self.what} is not the key of this database", hint=_HINT) from error


class KeyFile(_SymmetricSource):
    """A file with the key."""

    kind = "file"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def what(self) -> str:
        return str(self.path)

    def key(self, salt: bytes) -> bytes:
        try:
            with open_regular(self.path) as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise Locked(f"{self.path} can be read by other users", hint=f"chmod 600 {self.path}")
                content = file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise Locked(f"{self.path} cannot be read: {error.strerror}", hint=_HINT) from error
        text = content.decode("ascii", "replace").strip()
        key = _from_base64(text.removeprefix(FILE_HEAD))
        if not text.startswith(FILE_HEAD) or len(key) != envelope.KEY_BYTES:
            raise Locked(f"{self.path} is not a key file", hint="`maos key generate` writes one")
        return key


class Passphrase(_SymmetricSource):
    """A passphrase, from a variable or a terminal."""

    kind = what = "passphrase"

    def __init__(self) -> None:
        self._given: str | None = None

    def key(self, salt: bytes) -> bytes:
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        if self._given is None:
            self._given = os.environ.get(PASSPHRASE) or self._ask()
        derive = Argon2id(
            salt=salt,
            length=envelope.KEY_BYTES,
            iterations=ARGON2_ROUNDS,
            lanes=ARGON2_LANES,
            memory_cost=ARGON2_MEMORY_KIB,
        )
        return derive.derive(self._given.encode())

    def _ask(self) -> str:
        if not sys.stdin.isatty():
            raise Locked("the database is locked with a passphrase", hint=f"give it in the variable {PASSPHRASE}")
        given = getpass.getpass("Passphrase of the database: ")
        if not given:
            raise Locked("no passphrase was given")
        return given


class SystemKeyring(_SymmetricSource):
    """An entry of the keyring of the operating system."""

    kind = "keyring"

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def what(self) -> str:
        return f"the entry {self._name} of the keyring"

    def key(self, salt: bytes) -> bytes:
        keyring = _import_keyring()
        try:
            found = keyring.get_password(_SERVICE, self._name)
        except keyring.errors.KeyringError as error:
            raise Locked(f"the keyring cannot be used: {error}") from error
        key = _from_base64(found or "")
        if len(key) != envelope.KEY_BYTES:
            what = f"the keyring has no key {self._name}" if found is None else f"{self.what} is not a key"
            raise Locked(what, hint=f"`maos key generate keyring:{self._name}` makes one for a new database")
        return key


class AgeIdentity(KeySource):
    """A file with an age identity: the root key is encrypted for it."""

    kind = "age"

    def __init__(self, path: Path) -> None:
        self._path = path

    def wrap(self, root: bytes) -> bytes:
        pyrage, identity = self._identity()
        return bytes(pyrage.encrypt(root, [identity.to_public()]))

    def unwrap(self, wrapped: bytes) -> bytes:
        pyrage, identity = self._identity()
        try:
            return bytes(pyrage.decrypt(wrapped, [identity]))
        except pyrage.DecryptError as error:
            raise Locked(f"{self._path} is not the identity of this database", hint=_HINT) from error

    def _identity(self) -> tuple[Any, Any]:
        pyrage = _import_pyrage()
        try:
            with open_regular(self._path) as file:
                lines = file.read(FILE_BYTES_MAX).decode("utf-8", "replace").splitlines()
        except OSError as error:
            raise Locked(f"{self._path} cannot be read: {error.strerror}", hint=_HINT) from error
        found = [line.strip() for line in lines if line.startswith("AGE-SECRET-KEY-")]
        if len(found) != 1:
            raise Locked(f"{self._path} is not a file with one age identity", hint="age-keygen writes one")
        try:
            return pyrage, pyrage.x25519.Identity.from_str(found[0])
        except pyrage.IdentityError as error:
            raise Locked(f"{self._path} is not a valid age identity: {error}") from error


class KeyCommand(KeySource):
    """A program that wraps and unwraps, such as the client of a key service."""

    kind = "command"

    def __init__(self, argv: list[str]) -> None:
        self._argv = argv

    def wrap(self, root: bytes) -> bytes:
        return self._run("wrap", root)

    def unwrap(self, wrapped: bytes) -> bytes:
        root = self._run("unwrap", wrapped)
        if len(root) != envelope.KEY_BYTES:
            raise Locked(f"{self._argv[0]} returned {len(root)} bytes, and not a key")
        return root

    def _run(self, verb: str, content: bytes) -> bytes:
        try:
            done = subprocess.run(
                [*self._argv, verb],
                input=base64.b64encode(content) + b"\n",
                capture_output=True,
                timeout=COMMAND_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Locked(f"{self._argv[0]} {verb}: {error}", hint="check encryption.source in your settings") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-200:]
            raise Locked(f"{self._argv[0]} {verb} ended with {done.returncode}: {said}")
        return _from_base64(done.stdout.decode("ascii", "replace").strip())


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _import_pyrage() -> Any:
    try:
        import pyrage  # type: ignore[import-untyped]
    except ImportError as error:
        hint = "install it with `pip install maos[encrypt]`"
        raise InvalidInput("age identities need the package pyrage", hint=hint) from error
    return pyrage


def _import_keyring() -> Any:
    try:
        import keyring
        import keyring.errors
    except ImportError as error:
        hint = "install it with `pip install maos[encrypt]`"
        raise InvalidInput("the keyring of the operating system needs the package keyring", hint=hint) from error
    return keyring
