"""A machine that answers as libvirt does over TLS: one byte for a client whose certificate it takes, and an end for
others.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import typing as t
from pathlib import Path

__all__ = ["drip", "hang", "plain", "served", "tls"]

Answer = t.Callable[[socket.socket], None]


def tls(directory: Path, *, takes: bool = True) -> Answer:
    """With the server's files below a directory; whether it takes what its authority signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "servercert.pem", directory / "serverkey.pem")
    context.load_verify_locations(directory / "cacert.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    def answer(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secured:
            if takes:
                secured.sendall(b"\x01")
                secured.recv(1)

    return answer


def plain(client: socket.socket) -> None:
    """Something else than TLS."""
    client.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def hang(client: socket.socket) -> None:
    """Nothing, until the other end gives up."""
    while client.recv(4096):
        pass


def drip(client: socket.socket) -> None:
    """A TLS record that takes an hour."""
    client.sendall(b"\x16\x03\x03\x40\x00\x02")
    while True:
        time.sleep(0.1)
        client.sendall(b"\x00")


@contextlib.contextmanager
def served(answer: Answer) -> t.Iterator[int]:
    """The port on loopback where all who come are answered so."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def one(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                answer(client)

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
