"""A real HTTP server that plays a provider or the hub, on this machine only."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    port: int = 0
    """The client's: the same for what came over one connection."""

    @property
    def body(self) -> Any:
        return json.loads(self.content)


@dataclass
class Answer:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    """Break the connection after so many bytes of the body."""


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def serve(
    answer: Callable[[Asked], Answer], *, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """A server that answers every request by the function."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            content = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, content, self.client_address[1])
            with lock:
                server.asked.append(asked)
            given = answer(asked)
            body = given.body if isinstance(given.body, bytes) else json.dumps(given.body).encode()
            self.send_response(given.status)
            for name, value in {"Content-Length": str(len(body)), **given.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(body[: given.cut_after])
            if given.cut_after is not None:
                self.close_connection = True

        do_POST = do_GET = do_HEAD = _any  # noqa: N815 - named by the base class

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that went away is what some tests are about

    listener = Listener(("127.0.0.1", 0), Handler)
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    server = Server(f"{scheme}://127.0.0.1:{listener.server_address[1]}")
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
