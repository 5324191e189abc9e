"""The relay on a hypervisor: one request opens one console, and nothing else opens anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.roles.console.files import console_relay
from ansible_collections.corral.virt.roles.console.files.console_relay import Refused, parsed, serve, use
from ansible_collections.corral.virt.roles.console.files.corral_console.signing import Signer
from ansible_collections.corral.virt.tests.unit.roles.console.processes import ticket_key

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # of libvirt's test driver
PROGRAM = Path(console_relay.__file__)
SHAPE = "e30." + "A" * 94


NAME = "test"  # of that guest


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    """Of the console; its public key is on the host."""
    key = ticket_key(tmp_path / "ticket.key")
    command = ["openssl", "pkey", "-pubout", "-in", str(key), "-out", str(tmp_path / "ticket.pem")]
    subprocess.run(command, check=True)
    (tmp_path / "host").write_text("hyper1\n")
    (tmp_path / "used").mkdir()
    return Signer(key)


def ticket(signer: Signer, **other: t.Any) -> str:
    what = {
        "host": "hyper1",
        "guest": UUID,
        "name": NAME,
        "tags": [],
        "kind": "vnc",
        "take_over": False,
        "user": "alice",
    }
    return signer.ticket(**{**what, **other})


def test_a_ticket_is_parsed(signer: Signer, tmp_path: Path) -> None:
    found = parsed(ticket(signer, take_over=True), tmp_path)
    assert (found["guest"], found["kind"], found["take_over"]) == (UUID, "vnc", True)


@pytest.mark.parametrize(
    "request_", ["", "id", f"vnc {UUID}", "a.b", "-oX.y", "x" * 5000, "../etc", "a.b\nc.d", "\xe4"]
)
def test_everything_else_is_refused(signer: Signer, tmp_path: Path, request_: str) -> None:
    with pytest.raises(Refused, match=r"with a ticket of the web console, and nothing else"):
        parsed(request_, tmp_path)


def test_a_ticket_that_others_made_is_refused(signer: Signer, tmp_path: Path) -> None:
    mine = ticket(signer)
    forged = ticket(Signer(ticket_key(tmp_path / "other.key")))
    changed = ticket(signer, guest=UUID[:-1] + "0").partition(".")[0] + "." + mine.partition(".")[2]
    for text in (forged, changed, mine[:-4] + "AAAA", mine.partition(".")[0] + "." + "A" * 94):
        with pytest.raises(Refused, match="is not signed by"):
            parsed(text, tmp_path)


def test_a_ticket_is_for_one_host_and_time(signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="is not for hyper1"):
        parsed(ticket(signer, host="hyper2"), tmp_path)
    text, now = ticket(signer), time.time()
    for apart_s, ok in ((29, True), (44, True), (46, False), (-29, True), (-31, False)):
        monkeypatch.setattr(time, "time", lambda apart_s=apart_s: now + apart_s)
        if ok:
            assert parsed(text, tmp_path)
        else:
            with pytest.raises(Refused, match="has expired; when it is new, synchronise"):
                parsed(text, tmp_path)


def test_a_ticket_is_used_once_and_its_note_goes(signer: Signer, tmp_path: Path) -> None:
    used, found = tmp_path / "used", parsed(ticket(signer), tmp_path)
    use(found, used)
    with pytest.raises(Refused, match="was used before"):
        use(found, used)
    (note,) = used.iterdir()
    os.utime(note, (0, 0))
    use(parsed(ticket(signer), tmp_path), used)
    assert not note.exists()
    for nonce in ("../x", "", "x"):
        with pytest.raises(Refused):
            use({"nonce": nonce}, used)


@given(st.text())
def test_no_text_is_a_request_by_chance(text: str) -> None:
    with pytest.raises(Refused):
        parsed(text, Path("/nowhere"))


def answer(request: bytes, folder: Path) -> str:
    """What `serve` says to a request, with libvirt's test driver behind it."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(request)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(Refused) as error:
            serve(here, "test:///default", folder, folder / "used")
        return str(error.value)


def test_serve_tells_why_not(signer: Signer, tmp_path: Path) -> None:
    def of(**other: t.Any) -> str:
        return answer(f"{ticket(signer, **other)}\n".encode(), tmp_path)

    assert "nothing else" in answer(b"id\n", tmp_path)
    assert "nothing else" in answer(b"x" * 3000, tmp_path)
    assert "has no VNC display; set graphics" in of()
    assert "not supported" in of(kind="serial")
    assert "omain" in of(guest=UUID[:-1] + "0")
    assert "another name or other tags" in of(name="web1")
    assert "another name or other tags" in of(tags=["front"])
    text = f"{ticket(signer)}\n".encode()
    assert "VNC" in answer(text, tmp_path) and "used before" in answer(text, tmp_path)


def test_serve_says_nothing_to_who_says_nothing() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        serve(here, "test:///default")


@pytest.mark.parametrize(
    "text", ["internal error: cannot find character device <null>", "character device serial0 is not using a PTY"]
)
def test_the_error_of_a_console_that_is_not_there_begins_as_the_server_expects(text: str) -> None:
    error = libvirt.libvirtError("x")
    error.err = (1, 10, text, 2, "", None, None, 0, 0)
    assert console_relay.explained(error).startswith("the guest has no serial console; add serials")


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
        done = connect(SHAPE, path)
        serving.join(5)
    assert heard == [f"{SHAPE}\n".encode(), b"hello\n"]
    assert done == (0, b"ok\n" + b"x" * 200_000)


def test_connect_refuses_before_it_connects(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert connect("id", path) == (
        1,
        b"error: this key opens consoles with a ticket of the web console, and nothing else\n",
    )
    assert b"the relay does not run on this host" in connect(SHAPE, path)[1]
