"""What holder and engine agree on: file names, records of the spool, frames of the socket, and the spec.

A record is a header and data. The same bytes are in the spool and on the socket, so the holder never decodes what it
has written, and the engine verifies the checksum that was made before the first write.

    length of data: 4 | checksum: 4 | kind: 1 | flags: 1 | time in µs: 8 | data

The checksum covers everything behind it and the offset of the record, so neither a torn end nor a record in the wrong
place passes for a good one. Output is recorded in blocks of whole lines, one record for all lines that were read
together; the offset of a line is where it ends within its record.
"""

from __future__ import annotations

from binascii import crc32
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Mapping
    from dataclasses import dataclass
    from typing import Any
else:

    def dataclass(kind):
        """Let a class be made from its fields by name; the module `dataclasses` would be larger than the holder."""
        kind.__init__ = lambda self, **fields: self.__dict__.update(fields)
        return kind


HEADER = Struct("<IIBBQ")
HEADER_BYTES = HEADER.size
_CHECKED = Struct("<BBQ")

STARTED, STDOUT, STDERR, INPUT, STOPPING, EXIT = 1, 2, 3, 4, 5, 6
KINDS = {STARTED: "started", STDOUT: "stdout", STDERR: "stderr", INPUT: "input", STOPPING: "stopping", EXIT: "exit"}

PARTIAL = 1
"""The line continues in the next record of this kind."""
NO_NEWLINE = 2
"""The output ended without a newline."""

IDENTITY = "holder"
"""The file in an attempt's folder that names its holder."""
SOCKET = "s"
"""The socket in an attempt's folder at which its holder listens."""
SPEC_S_MAX = 10.0
"""How long an engine may take to send the spec to the holder it has started."""
INPUT_BYTES_MAX = 16 << 20
"""How much input may wait for an agent that does not read. The longest task and the longest message fit in, whatever is
in them: a character takes up to six bytes in the JSON that agents read."""

FRAME = Struct("<IB")
FRAME_BYTES = FRAME.size
FRAME_BYTES_MAX = 64 << 20
"""Neither side sends a longer frame; a larger length is not from maos."""

# From the engine.
START, HELLO, CONFIRM, WRITE, STOP, KILL, STATUS, FINISH, LIMIT = 1, 2, 3, 4, 5, 6, 7, 8, 9
SUSPENDED, COUNTS = b"suspended", b"counts"
"""What LIMIT says: that the time limit rests or counts; else it is the limit itself, in seconds."""
# From the holder.
ATTACHED, REFUSED, DATA, WRITTEN, STATE, TROUBLE, REPLACED, FINISHED = 33, 34, 35, 36, 37, 38, 39, 40

OLD_TOKEN, BAD_OFFSET, START_FAILED, NOT_OVER, TAKEN = b"token", b"offset", b"start", b"not over", b"taken"
"""Why a holder refuses a request."""
ACCEPTED, CLOSED, FULL = b"accepted", b"closed", b"full"
"""How a holder replies to an input."""


def record(offset: int, kind: int, flags: int, time_us: int, data: bytes) -> bytes:
    """Return the bytes of a record that begins at an offset."""
    checksum = crc32(data, crc32(_CHECKED.pack(kind, flags, time_us), offset & 0xFFFFFFFF))
    return HEADER.pack(len(data), checksum, kind, flags, time_us) + data


def intact(offset: int, checksum: int, kind: int, flags: int, time_us: int, data: bytes) -> bool:
    """Return whether these are the fields of the record that was written at this offset."""
    return kind in KINDS and checksum == crc32(data, crc32(_CHECKED.pack(kind, flags, time_us), offset & 0xFFFFFFFF))


def frame(kind: int, *parts: bytes) -> bytes:
    """Return a frame that holds a list of byte strings."""
    body = pack(parts)
    return FRAME.pack(len(body), kind) + body


def pack(parts: tuple[bytes, ...] | list[bytes]) -> bytes:
    """Encode a list of byte strings as one."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpack(body: bytes) -> list[bytes]:
    """Decode the list of byte strings that `pack` encoded."""
    parts = []
    at = 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "little")
        at += 4
        if at + length > len(body):
            raise ValueError("the list ends inside its last item")
        parts.append(body[at : at + length])
        at += length
    return parts


def pack_map(values: Mapping[str, str]) -> bytes:
    """Encode names and values as one byte string."""
    return pack([part.encode("utf-8", "surrogateescape") for item in values.items() for part in item])


def unpack_map(body: bytes) -> dict[str, str]:
    """Decode the names and values that `pack_map` encoded."""
    parts = [part.decode("utf-8", "surrogateescape") for part in unpack(body)]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def take_frames(buffer: bytearray, bytes_max: int) -> list[tuple[int, bytes]]:
    """Remove the complete frames from a buffer and return their kinds and bodies; ValueError when one is too long."""
    frames = []
    at = 0
    while len(buffer) - at >= FRAME_BYTES:
        length, kind = FRAME.unpack_from(buffer, at)
        if length > bytes_max:
            raise ValueError("the frame is too long")
        end = at + FRAME_BYTES + length
        if end > len(buffer):
            break
        frames.append((kind, bytes(buffer[at + FRAME_BYTES : end])))
        at = end
    del buffer[:at]
    return frames


def receive_frame(sock: socket) -> tuple[int, bytes]:
    """Return the kind and body of the one frame that the other side sends before it waits; EOFError when it is not
    complete, ValueError when it is too long."""
    buffer = bytearray()
    while not (frames := take_frames(buffer, FRAME_BYTES_MAX)):
        more = sock.recv(1 << 16)
        if not more:
            raise EOFError
        buffer += more
    return frames[0]


@dataclass
class HolderSpec:
    """What to run, and how."""

    argv: list[str]
    env: Mapping[str, str]
    """The whole environment of the agent; nothing is inherited. MAOS_ATTEMPT and MAOS_ATTEMPT_FOLDER are added."""
    cwd: str
    attempt: str
    token: int
    """The token of the lease under which the engine acts."""
    secrets: Mapping[str, str]
    """Values that must not be written anywhere, by the name that replaces them."""
    first_input: bytes = b""
    keeps_input_open: bool = False
    """Whether more input may follow; if not, the agent sees the end of its input after the first."""
    time_limit_s: float | None = None
    """How long the agent may run, without the time in which an engine has suspended the limit."""
    stop_grace_s: float = 10.0
    """What the agent gets between TERM and KILL when a limit ends it."""
    unattended_limit_s: float = 86_400.0
    """The agent is ended when no engine has been attached for this long."""
    linger_s: float = 3600.0
    """How long the holder stays after the agent has ended with no engine attached; then only the spool stays."""
    spool_bytes_max: int = 256 << 20
    """How much unconfirmed output is kept on disk; above this the agent's output is not read."""
    line_bytes_max: int = 1 << 20
    """Longer lines are recorded in parts."""
    umask: int = 0o022

    def frame(self) -> bytes:
        """Encode the spec as the first frame of a connection."""
        numbers = {
            name: value for name, value in vars(self).items() if value is None or isinstance(value, (int, float))
        }
        return frame(
            START,
            pack([part.encode("utf-8", "surrogateescape") for part in (self.attempt, self.cwd, *self.argv)]),
            pack_map(self.env),
            pack_map(self.secrets),
            self.first_input,
            pack_map({name: "" if value is None else repr(+value) for name, value in numbers.items()}),
        )

    @staticmethod
    def from_body(body: bytes) -> HolderSpec:
        """Decode the spec from the body of that frame."""
        words, env, secrets, first_input, numbers = unpack(body)
        attempt, cwd, *argv = (part.decode("utf-8", "surrogateescape") for part in unpack(words))
        values: dict[str, Any] = {"env": unpack_map(env), "secrets": unpack_map(secrets)}
        for name, text in unpack_map(numbers).items():
            number = int if text.isdigit() else float
            values[name] = number(text) if text else None
        return HolderSpec(argv=argv, cwd=cwd, attempt=attempt, first_input=first_input, **values)
