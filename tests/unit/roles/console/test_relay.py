"""The relay on a hypervisor: one request opens one console, and nothing else opens anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.roles.console.files import console_relay
from ansible_collections.corral.virt.roles.console.files.console_relay import Refused, parsed, serve

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # of libvirt's test driver
PROGRAM = Path(console_relay.__file__)


def test_requests_are_parsed() -> None:
    assert parsed(f"vnc {UUID}") == ("vnc", UUID, False)
    assert parsed(f"serial {UUID} take-over") == ("serial", UUID, True)


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "id",
        f"vnc  {UUID}",
        f"vnc {UUID} ",
        f"vnc {UUID}\n",
        f"vnc {UUID};id",
        f"vnc {UUID.upper()}",
        f"vnc {UUID[:-1]}",
        f"-vnc {UUID}",
        f"vnc {UUID}\nserial {UUID}",
        f"ssh {UUID}",
        "vnc web1",
    ],
)
def test_everything_else_is_refused(request_: str) -> None:
    with pytest.raises(Refused, match="opens consoles of guests, and nothing else"):
        parsed(request_)


@given(st.text())
def test_what_is_parsed_is_harmless(text: str) -> None:
    try:
        kind, uuid, take_over = parsed(text)
    except Refused:
        return
    assert text == f"{kind} {uuid}{' take-over' * take_over}"


def answer(request: bytes) -> str:
    """What `serve` says to a request, with libvirt's test driver behind it."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(request)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(Refused) as error:
            serve(here, "test:///default")
        return str(error.value)


def test_serve_tells_why_not() -> None:
    assert "nothing else" in answer(b"id\n")
    assert "nothing else" in answer(b"x" * 1000)
    assert "has no VNC display; set graphics" in answer(f"vnc {UUID}\n".encode())
    assert "not supported" in answer(f"serial {UUID}\n".encode())
    assert "omain" in answer(f"vnc {UUID[:-1]}0\n".encode())


def test_serve_says_nothing_to_who_says_nothing() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        serve(here, "test:///default")


def test_the_error_of_a_console_in_use_is_plain() -> None:
    error = libvirt.libvirtError("x")
    error.err = (38, 10, "operation failed: Active console session exists for this domain", 2, "", None, None, 0, 0)
    assert console_relay.explained(error) == "the console is in use"


def test_bytes_are_carried_until_a_side_ends() -> None:
    near, near_end = socket.socketpair()
    far, far_end = socket.socketpair()
    pairs = [
        (lambda: near_end.recv(65536), far_end.sendall),
        (lambda: far_end.recv(65536), near_end.sendall),
    ]
    carrying = threading.Thread(target=console_relay.carry, args=(pairs,))
    carrying.start()
    sent = os.urandom(1_000_000)
    threading.Thread(target=near.sendall, args=(sent,)).start()
    received = b""
    while len(received) < len(sent):
        received += far.recv(65536)
    assert received == sent
    far.sendall(b"back")
    assert near.recv(10) == b"back"
    far.close()
    carrying.join(5)
    assert not carrying.is_alive()


CODE = """
import sys, console_relay
console_relay.connect.__defaults__ = (sys.argv[1],)
code = console_relay.main(["connect"])
console_relay.os._exit(code)
"""


def connect(request: str, path: Path) -> tuple[int, bytes]:
    """The forced command, with the socket elsewhere: its exit code, and what it prints."""
    env = {**os.environ, "SSH_ORIGINAL_COMMAND": request}
    command = [sys.executable, "-c", CODE, str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=PROGRAM.parent, env=env, stdin=pipe, stdout=pipe) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"hello\n")
        process.stdin.flush()  # and not closed: a browser that says nothing is there all the same
        printed = process.stdout.read()
        return process.wait(20), printed


def test_connect_passes_a_request_on(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        heard = []

        def once() -> None:
            there, _address = listening.accept()
            with there, there.makefile("rwb") as stream:
                heard.extend([stream.readline(), stream.readline()])
                stream.write(b"ok\n" + b"x" * 200_000)

        serving = threading.Thread(target=once)
        serving.start()
        done = connect(f"vnc {UUID}", path)
        serving.join(5)
    assert heard == [f"vnc {UUID}\n".encode(), b"hello\n"]
    assert done == (0, b"ok\n" + b"x" * 200_000)


def test_connect_refuses_before_it_connects(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert connect("id", path) == (1, b"error: this key opens consoles of guests, and nothing else\n")
    assert b"the relay does not run on this host" in connect(f"vnc {UUID}", path)[1]
