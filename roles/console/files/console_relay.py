# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open a console of a guest on this hypervisor for somebody who logs in with a key of the web console.

`connect` is the forced command of that key. It runs as a user without rights and passes one request on to `serve`,
which systemd starts as root for each connection to a socket. The request is a ticket that the console's policy process
has signed: for this host, one guest, one kind of console, once, for seconds. `serve` gets the console from libvirt: the
guest needs no port that listens. The answer is a line, `ok` or `error: ` and the reason, and then the bytes of the
console.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path
from xml.etree import ElementTree

try:
    import libvirt
except ImportError:  # `connect` needs none
    libvirt = None

# Readable by all.
MARK = Path("/var/lib/libvirt/corral-maintenance.json")
PROTECTED = Path("/var/lib/libvirt/corral-protected.json")
FENCING = Path("/var/lib/corral-virt/cluster/fencing.json")
# Of this host; each is readable by all.
CERTIFICATES = {
    "libvirt server": Path("/etc/pki/libvirt/servercert.pem"),
    "libvirt client": Path("/etc/pki/libvirt/clientcert.pem"),
    "QEMU server": Path("/etc/pki/qemu/server-cert.pem"),
    "QEMU client": Path("/etc/pki/qemu/client-cert.pem"),
}
SOCKET = "/run/corral-console-relay.sock"
TRUST = Path("/usr/lib/corral-console/relay")  # `host`, the name of this one, and `ticket.pem`, the key that signs
USED = Path("/run/corral-console-relay")  # a file for each ticket that was shown
REQUEST = re.compile(r"[A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]{64,120}")
_LONGEST = 2200
_CLOCKS_APART_S = 30  # of the console's machine and this one; tickets are good for 15 seconds there
_LIFETIME_S = 15
_CHUNK = 65536
_REQUEST_S = 10.0
_URI = "qemu:///system"
_TAG = "{urn:corral:virt:guest:1}tag"
_NO_TICKET = "this key opens consoles with a ticket of the web console, and nothing else"

Read = t.Callable[[], bytes]
Write = t.Callable[[bytes], object]
Ticket = dict[str, t.Any]


class Refused(Exception):
    """Why there is no console, for people."""


def parsed(request: str, trust: Path) -> Ticket:
    """A ticket's content, when its signature is right and it is for this host and this time; raises Refused."""
    if not REQUEST.fullmatch(request):
        raise Refused(_NO_TICKET)
    try:
        text, signature = (base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in request.split("."))
    except ValueError:
        raise Refused(_NO_TICKET) from None
    if not is_signed(text, signature, trust / "ticket.pem"):
        raise Refused("the ticket is not signed by this host's web console; run the playbook console_server")
    ticket = json.loads(text)
    now, host = time.time(), (trust / "host").read_text().strip()
    if ticket["host"] != host:
        raise Refused(f"the ticket is not for {host}")
    if not now - _CLOCKS_APART_S < ticket["expires"] < now + _CLOCKS_APART_S + _LIFETIME_S:
        raise Refused("the ticket has expired; when it is new, synchronise the clocks of the hosts (chrony)")
    return t.cast(Ticket, ticket)


def is_signed(text: bytes, signature: bytes, key: Path) -> bool:
    """Whether it is, as OpenSSL says."""
    number = os.memfd_create("signature")
    try:
        os.write(number, signature)
        command = ["openssl", "dgst", "-sha256", "-verify", str(key), "-signature", f"/proc/self/fd/{number}"]
        done = subprocess.run(command, input=text, pass_fds=[number], stdout=subprocess.DEVNULL, check=False)
    finally:
        os.close(number)
    return done.returncode == 0


def use(ticket: Ticket, used: Path) -> None:
    """Raises Refused the second time. Notes of tickets that have expired are removed."""
    limit = time.time() - 2 * (_CLOCKS_APART_S + _LIFETIME_S)
    for note in used.iterdir():
        try:
            if note.stat().st_mtime < limit:
                note.unlink()
        except FileNotFoundError:  # another one removes it
            continue
    if not re.fullmatch(r"[0-9a-f]{32}", str(ticket["nonce"])):
        raise Refused(_NO_TICKET)
    try:
        (used / ticket["nonce"]).touch(exist_ok=False)
    except FileExistsError:
        raise Refused("the ticket was used before") from None


def check_identity(ticket: Ticket, domain: t.Any) -> None:
    """Raises Refused when it is another guest than the policy was asked about."""
    metadata = ElementTree.fromstring(domain.XMLDesc()).find("metadata")  # noqa: S314
    tags = sorted({each.text or "" for each in metadata.iter(_TAG)}) if metadata is not None else []
    if domain.name() != ticket["name"] or tags != ticket["tags"]:
        raise Refused("the guest has another name or other tags now; open the console again")


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
    """Between standard input and output and `serve`, which judges the ticket; raises Refused.

    Without a ticket, only what `host` returns is told.
    """
    if request == "host":
        to_file(1)(b"ok\n" + json.dumps(host()).encode())
        return
    if not REQUEST.fullmatch(request):
        raise Refused(_NO_TICKET)
    there = socket.socket(socket.AF_UNIX)
    try:
        there.connect(path)
    except OSError as error:
        raise Refused(f"the relay does not run on this host: {error.strerror}") from None
    there.sendall(f"{request}\n".encode())
    carry([(from_file(0), there.sendall), (lambda: there.recv(_CHUNK), to_file(1))])


def host() -> dict[str, t.Any]:
    """The mark of maintenance, when each certificate ends (seconds since the epoch; None: unreadable), the last test of
    fence devices, and what is noted of protected guests, by UUID.
    """
    maintenance = json.loads(MARK.read_text()) if MARK.exists() else None
    ends = {name: ends_at(path) for name, path in CERTIFICATES.items() if path.exists()}
    noted = {"protected": noted_in(PROTECTED), "fencing": noted_in(FENCING)}
    return {"maintenance": maintenance, "certificates": ends, **noted}


def noted_in(path: Path) -> dict[str, t.Any]:
    """The content of a file; nothing if there is none that this user may read."""
    try:
        return t.cast("dict[str, t.Any]", json.loads(path.read_text()))
    except (FileNotFoundError, PermissionError):
        return {}


def ends_at(certificate: Path) -> int | None:
    """The last second of its validity, as OpenSSL says."""
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(certificate)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return int(ssl.cert_time_to_seconds(done.stdout.strip().partition("=")[2])) if done.returncode == 0 else None


def serve(here: socket.socket, uri: str = _URI, trust: Path = TRUST, used: Path = USED) -> None:
    """Answer one request; raises Refused."""
    here.settimeout(_REQUEST_S)
    request = b""
    while not request.endswith(b"\n") and len(request) < _LONGEST:
        received = here.recv(1)  # not more: what follows is for the guest
        if not received:
            return
        request += received
    ticket = parsed(request.decode(errors="replace").rstrip("\n"), trust)
    use(ticket, used)
    kind = ticket["kind"]
    here.settimeout(None)
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    try:
        domain = libvirt.open(uri).lookupByUUIDString(ticket["guest"])
        check_identity(ticket, domain)
        who = f"{ticket['user']!a}"
        print(f"{kind} of guest {domain.name()!a} ({ticket['guest']}) opened for {who}", file=sys.stderr)  # noqa: T201
        pairs = display(here, domain) if kind == "vnc" else serial(here, domain, ticket["take_over"])
    except libvirt.libvirtError as error:
        raise Refused(explained(error)) from None
    here.sendall(b"ok\n")
    carry(pairs)


def explained(error: t.Any) -> str:
    """libvirt's reason in a line."""
    text = " ".join((error.get_error_message() or str(error)).split())
    if "cannot find character device" in text or "not using a PTY" in text:
        return "the guest has no serial console; add serials: [{port: 0, type: pty}]"
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
