# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of the audit elsewhere, as it is written: in a file, and in a syslog.

Each has a thread and a queue of its own: one that fails or hangs delays no decision. Its lines wait in memory, and the
page says so.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import queue
import re
import socket
import stat
import threading
import time
import typing as t

__all__ = ["SYSLOG", "Copies"]

SYSLOG = re.compile(r"/[^\0]{1,100}|(udp|tcp)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII)
_MOST_WAITING = 10_000
_AGAIN_S = 5.0
_SEND_S = 5.0
_LARGEST_DATAGRAM = 60_000
_PRIORITY = 86  # authpriv.info
_LOG = logging.getLogger(__name__)

Send = t.Callable[[float, str], None]


class Copies:
    """Of lines of JSON."""

    def __init__(self, *, file: str = "", syslog: str = "") -> None:
        targets = {file: _File(file).send if file else None, syslog: _Syslog(syslog).send if syslog else None}
        self._copies = [_Copy(name, send) for name, send in targets.items() if send]

    def add(self, when: float, line: str) -> None:
        """Send a line as soon as that is possible."""
        for copy in self._copies:
            copy.add(when, line)

    def problems(self) -> list[str]:
        """Why copies are not where they should be."""
        return [copy.problem for copy in self._copies if copy.problem]

    def close(self) -> None:
        """Send what waits, for a few seconds at most. What is left then is in the journal and the database alone."""
        for copy in self._copies:
            copy.end()
        until = time.monotonic() + _SEND_S
        for copy in self._copies:
            copy.join(max(0.0, until - time.monotonic()))


class _Copy:
    def __init__(self, name: str, send: Send) -> None:
        self._name, self._send = name, send
        self._waiting: queue.Queue[tuple[float, str] | None] = queue.Queue(_MOST_WAITING)
        self._failure, self._missing = "", 0
        self._ended = threading.Event()
        thread = threading.Thread(target=self._run, name=f"copies the audit to {name}", daemon=True)
        thread.start()
        self.join = thread.join

    def add(self, when: float, line: str) -> None:
        try:
            self._waiting.put_nowait((when, line))
        except queue.Full:
            self._missing += 1

    @property
    def problem(self) -> str:
        missing = f"{self._missing} lines are missing there; the audit of the server has them" if self._missing else ""
        if self._failure:
            return (
                f"the audit is not copied to {self._name}: {self._failure}; its lines wait; {missing or 'none is lost'}"
            )
        return f"the audit was not copied to {self._name} for a time: {missing}" if missing else ""

    def end(self) -> None:
        """Let the thread end when nothing waits, or with the next failure."""
        self._ended.set()
        with contextlib.suppress(queue.Full):  # then it does not wait for a line
            self._waiting.put_nowait(None)

    def _run(self) -> None:
        while not (self._ended.is_set() and self._waiting.empty()):
            item = self._waiting.get()
            while item and not self._sent(*item):
                if self._ended.wait(_AGAIN_S):
                    return

    def _sent(self, when: float, line: str) -> bool:
        try:
            self._send(when, line)
        except (OSError, UnicodeError) as error:
            if not self._failure:
                _LOG.error("cannot copy the audit to %s: %s", self._name, error)
            self._failure = str(error)
            return False
        self._failure = ""
        return True


class _File:
    """It is opened for each line, so that programs may rotate it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._half = False  # the last line there is half of one

    def send(self, when: float, line: str) -> None:
        """Append the line whole. What is half of one, for lack of room, is ended by the next."""
        at = datetime.datetime.fromtimestamp(when, datetime.UTC).isoformat()
        content = b"\n" * self._half + f"{at} {line}\n".encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.closing(_Descriptor(os.open(self._path, flags, 0o600))) as file:
            if not stat.S_ISREG(os.fstat(file.number).st_mode):
                raise OSError(f"{self._path} is no file")
            written = os.write(file.number, content)
        self._half = 0 < written < len(content)
        if written < len(content):
            raise OSError("there is no room for a line")


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


class _Syslog:
    """A socket of this machine (/dev/log), or a server: `udp://HOST:514` or `tcp://HOST:514` (RFC 5424)."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._socket: socket.socket | None = None

    def send(self, when: float, line: str) -> None:
        """Send the line; a connection that broke is opened again."""
        try:
            self._send(when, line)
        except OSError:
            self._close()
            self._send(when, line)

    def _send(self, when: float, line: str) -> None:
        opened = self._socket = self._socket or self._opened()
        try:
            if self._target.startswith("/"):
                opened.send(f"<{_PRIORITY}>corral-console: {line}".encode())
                return
            at = datetime.datetime.fromtimestamp(when, datetime.UTC).isoformat(timespec="milliseconds")
            content = f"<{_PRIORITY}>1 {at} {socket.gethostname()[:255]} corral-console - audit - {line}".encode()
            if self._target.startswith("udp:"):
                opened.send(content[:_LARGEST_DATAGRAM])
            else:
                opened.sendall(b"%d %s" % (len(content), content))  # RFC 6587: a message may hold an end of line
        except OSError:
            self._close()
            raise

    def _opened(self) -> socket.socket:
        if self._target.startswith("/"):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            made.settimeout(_SEND_S)
            made.connect(self._target)
            return made
        kind, _slashes, place = self._target.partition("://")
        host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        address = ((host if colon else place).strip("[]"), int(port) if colon else 514)
        if kind == "tcp":
            return socket.create_connection(address, timeout=_SEND_S)
        (family, *_rest, where), *_others = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.settimeout(_SEND_S)
        made.connect(where)
        return made

    def _close(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = None
