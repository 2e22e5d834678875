"""S3 as it is on a bad day: a server in front of moto's that refuses, or does not answer."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Mood = Literal["fine", "throttling", "broken", "forbidden", "silent"]

_ANSWERS = {
    "throttling": (503, "SlowDown", "Please reduce your request rate."),
    "broken": (500, "InternalError", "We encountered an internal error. Please try again."),
    "forbidden": (403, "AccessDenied", "Access Denied"),
}
_UNFORWARDED = {"connection", "transfer-encoding", "content-length", "server", "date"}


class FaultyS3:
    """The server.

    Args:
        host: Host of the S3 that it is in front of.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.mood: Mood = "fine"
        self.stored: list[str] = []
        self.refused = 0
        self.woken = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if server.mood == "silent":
                    server.woken.wait(30)
                    self.close_connection = True
                elif server.mood == "fine":
                    self._forward(body)
                else:
                    server.refused += 1
                    self._refuse(*_ANSWERS[server.mood])

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_one  # noqa: N815

            def _forward(self, body: bytes) -> None:
                connection = http.client.HTTPConnection(host, port, timeout=30)
                connection.request(self.command, self.path, body, dict(self.headers.items()))
                answer = connection.getresponse()
                data = answer.read()
                if self.command == "PUT" and answer.status == 200:
                    server.stored.append(self.path)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _UNFORWARDED:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") or str(len(data))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(data)
                connection.close()

            def _refuse(self, status: int, code: str, message: str) -> None:
                text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
                data = b"" if self.command == "HEAD" else text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self.woken.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)
