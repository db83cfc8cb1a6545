"""A WSGI application on a loopback socket that misbehaves when told to: real bytes, real resets, real silence."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

App = Callable[..., Any]


@dataclass
class Fault:
    """What happens instead of an answer: `kind` is one of the names below, `times` how often, -1 for ever.

    status (with `status` and `headers`), hang (until the server stops), reset (before a byte), cut (the connection
    closed in mid-body), torn (a JSON body cut short with a matching length), html (a sign-in page with status 200),
    empty (an empty body with 200), body (`body` with 200), slow (a byte at a time, until the server stops),
    drip (so its head).
    """

    kind: str
    times: int = 1
    path: str = ".*"
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class FaultyServer:
    """`url` is where it listens; `requests` what it was asked, as `GET /path?query`; `faults` are tried in order."""

    def __init__(self, app: App, ssl_context: Any = None) -> None:
        self.app = app
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.stopping = threading.Event()
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, True, 1, _handler(self), ssl_context=ssl_context)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"{'https' if ssl_context else 'http'}://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fail(self, kind: str, **more: Any) -> None:
        self.faults.append(Fault(kind, **more))

    def asked(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]

    def forget(self) -> None:
        self.requests.clear()
        self.headers.clear()

    def _answer(self, environ: dict[str, Any], start_response: App) -> Any:
        query = environ.get("QUERY_STRING", "")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        with self._lock:
            self.requests.append(f"{environ['REQUEST_METHOD']} {path}")
            self.headers.append({k[5:]: v for k, v in environ.items() if k.startswith("HTTP_")})
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            fault = next((f for f in self.faults if f.times and re.search(f.path, path)), None)
            if fault:
                fault.times -= 1
        try:
            if fault is None:
                return list(self.app(environ, start_response))
            return self._misbehave(fault, environ, start_response)
        finally:
            with self._lock:
                self._at_once -= 1

    def _misbehave(self, fault: Fault, environ: dict[str, Any], start_response: App) -> list[bytes]:
        connection: socket.socket = environ["werkzeug.socket"]
        match fault.kind:
            case "status":
                start_response(f"{fault.status} Said So", list(fault.headers.items()))
                return [fault.body]
            case "html":
                start_response("200 OK", [("Content-Type", "text/html")])
                return [b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please</body></html>"]
            case "empty" | "body":
                start_response("200 OK", [("Content-Type", "application/json")])
                return [fault.body]
            case "hang":
                self.stopping.wait(30)
            case "slow":
                with contextlib.suppress(OSError):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                    while not self.stopping.wait(0.02):
                        connection.sendall(b" ")
            case "drip":
                with contextlib.suppress(OSError):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                    while not self.stopping.wait(0.02):
                        connection.sendall(b".")
            case "torn":
                said: list[Any] = []
                body = b"".join(self.app(environ, lambda *head: said.extend(head[:2])))
                start_response(said[0], [(k, v) for k, v in said[1] if k.lower() != "content-length"])
                return [body[: len(body) // 2]]
            case "cut":
                body = b"".join(self.app(environ, lambda *_: None))
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body[: len(body) // 2])
            case "reset":
                pass
            case other:
                raise AssertionError(f"no such fault: {other}")
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError


def _handler(server: FaultyServer) -> type[WSGIRequestHandler]:
    class Handler(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            return

        def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
            return

    return Handler


@contextlib.contextmanager
def serving(app: App, ssl_context: Any = None) -> Iterator[FaultyServer]:
    server = FaultyServer(app, ssl_context)
    try:
        yield server
    finally:
        server.stop()
