"""Connections beyond the server's limit end before they cost anything."""

from __future__ import annotations

import socket
import weakref

import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import serve


def test_a_connection_beyond_the_limit_ends_and_others_make_room() -> None:
    known: weakref.WeakSet[socket.socket] = weakref.WeakSet()
    with serve.Listening(socket.create_server(("127.0.0.1", 0)), 2, known) as listening:
        clients = [socket.create_connection(listening.getsockname(), timeout=10) for _number in range(3)]
        taken = [listening.accept()[0] for _number in range(2)]
        with pytest.raises(ConnectionAbortedError):
            listening.accept()
        assert clients[2].recv(1) == b"", "it has ended"
        taken[1].close()  # and is not collected yet
        clients.append(socket.create_connection(listening.getsockname(), timeout=10))
        taken.append(listening.accept()[0])
        taken[-1].sendall(b"x")
        assert clients[3].recv(1) == b"x"
        for each in (*clients, *taken):
            each.close()


def test_all_addresses_share_one_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    sockets = serve.listening("", port, 1)
    assert {each.family for each in sockets} >= {socket.AF_INET}
    assert len({id(each._known) for each in sockets}) == 1
    for each in sockets:
        each.close()
    (only,) = serve.listening("127.0.0.1", port, 1)
    assert only.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match="in use"):
        serve.listening("127.0.0.1", port, 1)
    only.close()
