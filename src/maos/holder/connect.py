"""The way to a holder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from maos.holder.server import SOCKET


def connect(folder: Path) -> socket.socket:
    """A connection to the socket in a folder, however long its path is: a socket's own may have 107 characters."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{fd}/{SOCKET}")
        finally:
            os.close(fd)
    except BaseException:
        sock.close()
        raise
    return sock
