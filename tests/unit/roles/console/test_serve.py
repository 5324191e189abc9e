"""The server, those who keep it waiting, and those who are too many."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import typing as t
from collections.abc import Iterator

import pytest
import uvicorn

from ansible_collections.corral.virt.roles.console.files.corral_console import serve
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience, until

LATE_S = 0.3


async def app(scope: t.Any, _receive: t.Any, send: t.Any) -> None:
    """Answers in parts, more slowly than requests may come."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _part in range(4):
        await send({"type": "http.response.body", "body": b"part ", "more_body": True})
        await asyncio.sleep(LATE_S)
    await send({"type": "http.response.body", "body": b"end"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(serve, "_REQUEST_S", LATE_S)
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(app, http=serve.Prompt, lifespan="off", log_level="critical", loop="asyncio")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    until(lambda: server.started)
    yield listening.getsockname()
    server.should_exit = True
    thread.join(10)


def is_ended(client: socket.socket, *parts: bytes) -> bool:
    """Whether the server closes the connection of one who sends a little now and then."""
    client.settimeout(LATE_S / 5)
    patience = Patience(10 * LATE_S)
    sent = list(parts)
    while not patience.is_over:
        try:
            if client.recv(1000) == b"":
                return True
        except TimeoutError:
            pass
        except ConnectionResetError:  # it had not read all when it closed
            return True
        with contextlib.suppress(OSError):
            client.send(sent.pop(0) if sent else b"x")
    return False


def test_a_request_that_does_not_come_is_not_waited_for(address: tuple[str, int]) -> None:
    for parts in ((b"",), (b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",)):
        with socket.create_connection(address) as client:
            assert is_ended(client, *parts)


def test_nor_is_the_next_one_on_the_same_connection(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        client.settimeout(5)
        told = b""
        while b"end" not in told:
            told += client.recv(1000)
        assert told.count(b"part") == 4, "an answer takes its time"
        assert is_ended(client, b"GET / HTTP/1.1\r\nX-Slow: ")


def test_a_connection_beyond_the_limit_ends_and_others_make_room() -> None:
    with serve.Listening(socket.create_server(("127.0.0.1", 0)), serve.Connections(2)) as listening:
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


def test_one_network_with_all_connections_keeps_nobody_out() -> None:
    connections = serve.Connections(6)
    pairs: list[tuple[socket.socket, socket.socket]] = []

    def admit(address: str) -> bool:
        pairs.append(socket.socketpair())
        return connections.admit(pairs[-1][0], address)

    def is_ended(number: int) -> bool:
        pairs[number][1].setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return pairs[number][1].recv(1) == b""
        return False

    assert all(admit(f"2001:db8::{number}") for number in range(6)) and not admit("2001:db8::ffff")
    assert admit("192.0.2.1") and is_ended(0) and not is_ended(1), "the oldest of the network with the most"
    assert (
        admit("192.0.2.1") and admit("192.0.2.1") and [is_ended(number) for number in (1, 2, 3)] == [True, True, False]
    )
    assert not admit("192.0.2.1") and not admit("2001:db8::1"), "both have as many"
    assert admit("127.0.0.1") and sum(map(is_ended, range(len(pairs)))) == 4
    for each in (one for pair in pairs for one in pair):
        each.close()


def test_connections_of_this_machine_are_a_proxys_and_give_way_to_nobody() -> None:
    connections = serve.Connections(3)
    pairs = [socket.socketpair() for _number in range(7)]
    assert all(connections.admit(here, "127.0.0.1") for here, _there in pairs[:3])
    assert not any(
        connections.admit(here, address)
        for address, (here, _there) in zip(("192.0.2.1", "::1"), pairs[3:5], strict=True)
    )
    for each in (one for pair in pairs for one in pair):
        each.close()


def test_all_addresses_share_one_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    sockets = serve.listening("", port, 1)
    assert {each.family for each in sockets} >= {socket.AF_INET}
    assert len({id(each._connections) for each in sockets}) == 1
    for each in sockets:
        each.close()
    (only,) = serve.listening("127.0.0.1", port, 1)
    assert only.getsockname()[0] == "127.0.0.1"
    with pytest.raises(OSError, match="in use"):
        serve.listening("127.0.0.1", port, 1)
    only.close()
