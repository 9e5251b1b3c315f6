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
INPUT_BYTES_MAX = 1 << 20
"""How much input may wait for an agent that does not read."""

FRAME = Struct("<IB")
FRAME_BYTES = FRAME.size
FRAME_BYTES_MAX = 64 << 20
"""Neither side sends a longer frame; a larger length is not from maos."""

# From the engine.
START, HELLO, CONFIRM, WRITE, STOP, KILL, STATUS, FINISH = 1, 2, 3, 4, 5, 6, 7, 8
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


def pack_map(values: dict[str, str]) -> bytes:
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


class HolderSpec:
    """The spec as it is sent to the holder: what to run, and how. `client.Spec` says what the fields mean."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    attempt: str
    first_input: bytes
    secrets: dict[str, str]
    token: int
    keep_stdin_open: int
    time_limit_s: float | None
    stop_grace_s: float
    unattended_limit_s: float
    linger_s: float
    spool_bytes_max: int
    line_bytes_max: int
    umask: int

    def __init__(self, values: dict[str, object]) -> None:
        self.__dict__.update(values)

    def frame(self) -> bytes:
        """Encode the spec as the first frame of a connection."""
        numbers = {
            name: value for name, value in vars(self).items() if value is None or isinstance(value, (int, float))
        }
        return frame(
            START,
            pack([part.encode("utf-8", "surrogateescape") for part in self.argv]),
            pack_map(self.env),
            self.cwd.encode("utf-8", "surrogateescape"),
            self.attempt.encode(),
            self.first_input,
            pack_map(self.secrets),
            pack_map({name: "" if value is None else repr(+value) for name, value in numbers.items()}),
        )

    @staticmethod
    def from_body(body: bytes) -> HolderSpec:
        """Decode the spec from the body of that frame."""
        argv, env, cwd, attempt, first_input, secrets, numbers = unpack(body)
        values: dict[str, object] = {
            "argv": [part.decode("utf-8", "surrogateescape") for part in unpack(argv)],
            "env": unpack_map(env),
            "cwd": cwd.decode("utf-8", "surrogateescape"),
            "attempt": attempt.decode(),
            "first_input": first_input,
            "secrets": unpack_map(secrets),
        }
        for name, text in unpack_map(numbers).items():
            number = int if text.isdigit() else float
            values[name] = number(text) if text else None
        return HolderSpec(values)
