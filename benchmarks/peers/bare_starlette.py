"""The limit of the server: Starlette handlers on uvicorn that return ready-made bytes, to every caller.

    python -m benchmarks.peers.bare_starlette PORT FOLDER

GET /NAME returns the file FOLDER/NAME. GET /stream is a broadcast of server-sent events: what each client has not
received yet waits in a queue. POST /stream starts the broadcast of the file FOLDER/event, so many times a second for so
many seconds, in groups; the time of each event replaces the first word of its lines.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

NAME = "bare Starlette"
TIME = b"0000000000.000000"
"""What stands for the time of an event in the file."""
GROUP_S = 0.02


def app(folder: Path) -> Starlette:
    """The application."""
    files = {each.name: each.read_bytes() for each in folder.iterdir()}
    clients: set[asyncio.Queue[bytes]] = set()

    async def show(request: Request) -> Response:
        return Response(files[request.path_params["name"]], media_type="application/json")

    async def follow(_request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            clients.add(queue)
            try:
                while True:
                    yield await queue.get()
            finally:
                clients.discard(queue)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def broadcast(request: Request) -> Response:
        per_s, seconds = float(request.query_params["per_s"]), float(request.query_params["seconds"])
        began, done = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * per_s) - done
            event = files["event"].replace(TIME, b"%017.6f" % time.monotonic())
            for queue in clients if due else ():
                queue.put_nowait(event * due)
            done += due
            await asyncio.sleep(GROUP_S)
        return Response(str(done))

    return Starlette(
        routes=[
            Route("/stream", follow),
            Route("/stream", broadcast, methods=["POST"]),
            Route("/{name}", show),
        ]
    )


if __name__ == "__main__":
    served = app(Path(sys.argv[2]))
    uvicorn.run(
        served, port=int(sys.argv[1]), http="h11", loop="asyncio", ws="none", lifespan="off", access_log=False,
        log_level="error", timeout_keep_alive=600,
    )  # fmt: skip
