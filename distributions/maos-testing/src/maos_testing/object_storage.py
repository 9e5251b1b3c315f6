"""A real object store: SeaweedFS with its S3 gateway, on loopback, from its wheel."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

START_S_MAX = 90.0
PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
         "s3.port", "s3.port.grpc")  # fmt: skip


class ObjectStorage(NamedTuple):
    """A bucket of a running server, and the variables by which a client reaches it."""

    url: str
    variables: dict[str, str]
    process: subprocess.Popen[bytes]


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that no process listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return found


@contextmanager
def object_storage(folder: Path) -> Iterator[ObjectStorage]:
    """A server with one bucket, whose files are in a folder, for the time of a block."""
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    person = {
        "name": "maos",
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [person]}))
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    argv = [
        str(Path(sys.executable).parent / "weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        "-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0",
        "-master.telemetry=false", "-volume.max=8", "-master.volumeSizeLimitMB=64",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=folder, env={"HOME": str(folder)})
    variables = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3.port']}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
    found = ObjectStorage("s3://backups/maos", variables, process)
    try:
        make_bucket(found, folder)
        yield found
    finally:
        process.kill()  # it needs longer than a test may take to end by itself
        process.wait()


def make_bucket(storage: ObjectStorage, folder: Path) -> None:
    """Create the bucket as soon as the server answers."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            put_bucket(storage)
            return
        except OSError:
            if time.monotonic() > deadline or storage.process.poll() is not None:
                raise AssertionError((folder / "log").read_text(errors="replace")[-3000:]) from None
            time.sleep(0.2)


def put_bucket(storage: ObjectStorage) -> None:
    """Create the bucket through a signed URL: the client of objects has no call for it."""
    import obstore
    from obstore.store import S3Store

    given = storage.variables
    store = S3Store(
        "backups",
        access_key_id=given["AWS_ACCESS_KEY_ID"],
        secret_access_key=given["AWS_SECRET_ACCESS_KEY"],
        endpoint=given["AWS_ENDPOINT_URL"],
        region=given["AWS_REGION"],
        client_options={"allow_http": True},
    )
    url = obstore.sign(store, "PUT", "", timedelta(minutes=1))
    request = urllib.request.Request(url, method="PUT")  # noqa: S310 - of loopback
    urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
