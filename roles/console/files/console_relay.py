# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open a console of a guest on this hypervisor for somebody who logs in with a key of the web console.

`connect` is the forced command of that key. It runs as a user without rights and passes one request on to `serve`,
which systemd starts as root for each connection to a socket. `serve` gets the console from libvirt: the guest needs no
port that listens. The request names a guest by its UUID; the answer is a line, `ok` or `error: ` and the reason, and
then the bytes of the console.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import typing as t
from xml.etree import ElementTree

try:
    import libvirt
except ImportError:  # `connect` needs none
    libvirt = None

SOCKET = "/run/corral-console-relay.sock"
REQUEST = re.compile(r"(vnc|serial) ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})( take-over)?")
_CHUNK = 65536
_REQUEST_S = 10.0
_URI = "qemu:///system"

Read = t.Callable[[], bytes]
Write = t.Callable[[bytes], object]


class Refused(Exception):
    """Why there is no console, for people."""


def parsed(request: str) -> tuple[str, str, bool]:
    """Kind, UUID and whether to take the console over; raises Refused."""
    match = REQUEST.fullmatch(request)
    if not match:
        raise Refused("this key opens consoles of guests, and nothing else")
    return match[1], match[2], bool(match[3])


def carry(pairs: t.Sequence[tuple[Read, Write]]) -> None:
    """Copy each way in a thread of its own, until one of them ends."""
    ended = threading.Event()

    def copy(read: Read, write: Write) -> None:
        try:
            while data := read():
                write(data)
        except (OSError, RuntimeError) as error:
            print(f"the connection broke: {error}", file=sys.stderr)  # noqa: T201
        finally:
            ended.set()

    for read, write in pairs:
        threading.Thread(target=copy, args=(read, write), daemon=True).start()
    ended.wait()


def from_file(number: int) -> Read:
    """Read what there is."""
    return lambda: os.read(number, _CHUNK)


def to_file(number: int) -> Write:
    """Write all of it."""

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(number, data) :]

    return write


def connect(request: str, path: str = SOCKET) -> None:
    """Between standard input and output and `serve`; raises Refused."""
    parsed(request)
    there = socket.socket(socket.AF_UNIX)
    try:
        there.connect(path)
    except OSError as error:
        raise Refused(f"the relay does not run on this host: {error.strerror}") from None
    there.sendall(f"{request}\n".encode())
    carry([(from_file(0), there.sendall), (lambda: there.recv(_CHUNK), to_file(1))])


def serve(here: socket.socket, uri: str = _URI) -> None:
    """Answer one request; raises Refused."""
    here.settimeout(_REQUEST_S)
    request = b""
    while not request.endswith(b"\n") and len(request) < 100:
        received = here.recv(1)  # not more: what follows is for the guest
        if not received:
            return
        request += received
    kind, uuid, take_over = parsed(request.decode(errors="replace").rstrip("\n"))
    here.settimeout(None)
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        domain = libvirt.open(uri).lookupByUUIDString(uuid)
        print(f"{kind} of guest {domain.name()!a} ({uuid}) opened", file=sys.stderr)  # noqa: T201
        pairs = display(here, domain) if kind == "vnc" else serial(here, domain, take_over)
    except libvirt.libvirtError as error:
        raise Refused(explained(error)) from None
    here.sendall(b"ok\n")
    carry(pairs)


def explained(error: t.Any) -> str:
    """libvirt's reason in a line."""
    text = " ".join((error.get_error_message() or str(error)).split())
    return "the console is in use" if "ctive console session exists" in text else text


def display(here: socket.socket, domain: t.Any) -> list[tuple[Read, Write]]:
    """QEMU's VNC server, by a socket that libvirt hands over. No password is asked for: the key is enough."""
    kinds = [each.get("type") for each in ElementTree.fromstring(domain.XMLDesc()).findall("devices/graphics")]  # noqa: S314
    if "vnc" not in kinds:
        raise Refused("the guest has no VNC display; set graphics: {type: vnc}")
    number = domain.openGraphicsFD(kinds.index("vnc"), libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH)
    there = socket.socket(fileno=number)
    return [(lambda: here.recv(_CHUNK), there.sendall), (lambda: there.recv(_CHUNK), here.sendall)]


def serial(here: socket.socket, domain: t.Any, take_over: bool) -> list[tuple[Read, Write]]:
    """The first console. Who has it open keeps it, unless it is taken over."""
    stream = domain.connect().newStream()
    flags = libvirt.VIR_DOMAIN_CONSOLE_FORCE if take_over else libvirt.VIR_DOMAIN_CONSOLE_SAFE
    domain.openConsole(None, stream, flags)

    def read() -> bytes:
        data = stream.recv(_CHUNK)
        return data if isinstance(data, bytes) else b""  # a number says that there is no more

    def write(data: bytes) -> None:
        while data:
            data = data[stream.send(data) :]

    return [(lambda: here.recv(_CHUNK), write), (read, here.sendall)]


def main(words: t.Sequence[str]) -> int:
    """The exit code."""
    here = None
    try:
        if list(words) == ["connect"]:
            connect(os.environ.get("SSH_ORIGINAL_COMMAND", ""))
        elif list(words) == ["serve"]:
            here = socket.socket(fileno=0)
            serve(here)
        else:
            print("usage: console_relay.py connect|serve", file=sys.stderr)  # noqa: T201
            return 2
    except (Refused, OSError) as error:
        (here.sendall if here else to_file(1))(f"error: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may wait for a side that says nothing
