"""A web server that does what servers do on bad days: on loopback or a lab's bridge, for one test at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import ssl
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Server", "serving"]

STALL_S = 5


@dataclasses.dataclass
class Server:
    """What it serves, how it misbehaves, and what it was asked."""

    url: str
    files: dict[str, bytes]
    asked: list[tuple[str, str | None]] = dataclasses.field(default_factory=list)  # path and Range of each request
    sent_bytes: int = 0
    etag: str | None = '"1"'
    ranges: bool = True  # whether it understands them
    lengthless: bool = False  # whether it says nothing of the length of what it sends
    # How often from now on: an error instead of an answer, half of what is missing, nothing more after half.
    errors: list[int] = dataclasses.field(default_factory=list)
    truncated: int = 0
    stalled: int = 0
    damaged: int = 0
    shifted: int = 0  # ranges that begin elsewhere than asked
    slow_s: float = 0.0  # before every answer
    rate_bytes_s: int = 0  # of every answer; 0: as fast as it can

    def ranges_asked(self, path: str) -> list[str | None]:
        """Of the requests for that path."""
        return [asked for known, asked in self.asked if known == path]


class _Site(ThreadingHTTPServer):
    """The server, with what is said of it."""

    def __init__(self, files: dict[str, bytes], address: str, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__((address, port), _Handler)
        self.state = Server(f"http://{address}:{self.server_port}", files)
        self.tls = tls
        self.lock, self.over = threading.Lock(), threading.Event()


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    origin = ""  # of what is asked inside a tunnel

    def do_CONNECT(self) -> None:
        """Be the proxy on the way to a server, and that server."""
        if self.site.tls is None:
            self.send_error(501)
            return
        self.send_response(200)
        self.end_headers()
        self.request = self.site.tls.wrap_socket(self.request, server_side=True)
        self.setup()
        self.origin = f"https://{self.path.removesuffix(':443')}"
        self.close_connection = False

    def do_GET(self) -> None:
        self.path = self.origin + self.path
        with self.site.lock:
            self.site.state.asked.append((self.path, self.headers["Range"]))
            error = self.site.state.errors.pop(0) if self.site.state.errors else None
        self.site.over.wait(self.site.state.slow_s)
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path[len("/moved") :])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif error or self.path not in self.site.state.files:
            self.send_error(error or 404)
        else:
            self.answer(self.site.state.files[self.path])

    def answer(self, body: bytes) -> None:
        start = self.start_of(body)
        if start is None:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        partial = start > 0
        if partial and self.site.state.shifted:
            self.site.state.shifted -= 1
            start -= 1
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.site.state.etag:
            self.send_header("ETag", self.site.state.etag)
        if self.site.state.lengthless:
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.send(body[start:])

    def start_of(self, body: bytes) -> int | None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        condition = self.headers["If-Range"]
        if not asked or not self.site.state.ranges or (condition and condition != self.site.state.etag):
            return 0
        start = int(asked.group(1))
        return start if start < len(body) else None

    def send(self, body: bytes) -> None:
        half = len(body) // 2
        if self.site.state.damaged:
            self.site.state.damaged -= 1
            body = body[:half] + bytes([body[half] ^ 255]) + body[half + 1 :]
        if self.site.state.truncated or self.site.state.stalled:
            self.write(body[:half])
            if self.site.state.stalled:
                self.site.state.stalled -= 1
                self.site.over.wait(STALL_S)
            else:
                self.site.state.truncated -= 1
            self.close_connection = True
            return
        self.write(body)

    def write(self, body: bytes) -> None:
        piece = self.site.state.rate_bytes_s // 10 or len(body) or 1
        with contextlib.suppress(OSError):  # whoever asked has gone
            for start in range(0, len(body), piece):
                self.wfile.write(body[start : start + piece])
                self.wfile.flush()
                with self.site.lock:
                    self.site.state.sent_bytes += len(body[start : start + piece])
                if self.site.state.rate_bytes_s:
                    self.site.over.wait(0.1)

    def log_message(self, *_words: object) -> None:
        """Say nothing."""

    @property
    def site(self) -> _Site:
        """Whose request it is."""
        return t.cast(_Site, self.server)


@contextlib.contextmanager
def serving(
    files: dict[str, bytes], address: str = "127.0.0.1", *, port: int = 0, tls: ssl.SSLContext | None = None
) -> t.Iterator[Server]:
    """A server for the length of a `with` block.

    It is a proxy too: whole addresses among the files are those of other servers, over HTTPS where `tls` has a
    certificate for them.
    """
    site = _Site(files, address, port, tls)
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site.state
    finally:
        site.over.set()
        site.shutdown()
        site.server_close()
        thread.join()
