"""A server that hears what apprise sends, over real HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "s3cr3t-t0ken"


class Server:
    """Keeps what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        """What the next requests are answered with; 200 when there is none."""
        self.gate = threading.Event()
        self.gate.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.gate.wait(30)
                status = server.statuses.pop(0) if server.statuses else 200
                server.heard.append({**body, "status": status})
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        """An address with a secret in it."""
        return f"json://user:{SECRET}@127.0.0.1:{self._server.server_port}/{SECRET}"

    def titles(self) -> list[str]:
        return [str(each["title"]).partition(": ")[2] for each in self.heard]

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
