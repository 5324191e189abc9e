# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Open a libvirt connection; turn libvirt's errors into ours, with the verb that failed."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, NotFound, Unsupported, VirtError

try:
    import libvirt
except ImportError:  # the front says how to install it
    libvirt = None

__all__ = ["Connection", "libvirt", "opened", "said"]

_KEEPALIVE_S, _KEEPALIVES = 5, 3
_CONNECT_S = 10
_PORTS = {"tls": 16514, "tcp": 16509}

Connection = t.Any  # libvirt.virConnect; the binding ships no types


@contextlib.contextmanager
def opened(uri: str, *, readonly: bool = False, events: bool = False, watched: bool = False) -> t.Iterator[Connection]:
    """A connection for the length of a `with` block; with `events`, one that can wait for them.

    One that is `watched` breaks when its other end is silent for 15 s; without, calls to a host that died meanwhile never return.

    Raises Unsupported without the binding, Failed when the daemon cannot be reached.
    """
    if libvirt is None:
        raise Unsupported("talking to libvirt needs its Python binding; install python3-libvirt (libvirt-python) here")
    libvirt.registerErrorHandler(lambda _context, _error: None, None)  # libvirt would print to stderr
    if events or watched:
        libvirt.virEventRegisterDefaultImpl()  # must come before the connection
    _reach(uri)
    with said("connect to", uri, "is the libvirt daemon installed and running there, and may this user use it?"):
        connection = libvirt.openReadOnly(uri) if readonly else libvirt.open(uri)
    if watched:
        _watch()
        connection.setKeepAlive(_KEEPALIVE_S, _KEEPALIVES)
    try:
        yield connection
    finally:
        connection.close()


def _reach(uri: str) -> None:
    """libvirt waits as long as the kernel does, minutes for each address, for a host that is off or drops packets; we do not."""
    parts = urllib.parse.urlsplit(uri)
    port = parts.port or _PORTS.get(parts.scheme.partition("+")[2])
    if not parts.hostname or port is None:
        return
    try:
        socket.create_connection((parts.hostname, port), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = f"no answer within {_CONNECT_S} s" if isinstance(error, socket.timeout) else error.strerror or str(error)
        remedy = f"is it up, is libvirt installed there, and does its firewall let port {port} through?"
        raise Failed(f"cannot connect to {uri}: {reason}; {remedy}") from error


@functools.cache  # one loop serves all connections; libvirt knows no second
def _watch() -> None:
    threading.Thread(target=_run_events, daemon=True).start()


def _run_events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


@contextlib.contextmanager
def said(verb: str, what: str, remedy: str = "") -> t.Iterator[None]:
    """Translate libvirt's exception: what was tried, on what, why it failed."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise _translated(error, verb, what, remedy) from error


def _translated(error: t.Any, verb: str, what: str, remedy: str) -> VirtError:
    missing = {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
        libvirt.VIR_ERR_NO_STORAGE_VOL,
        libvirt.VIR_ERR_NO_NETWORK,
    }
    unsupported = {libvirt.VIR_ERR_NO_SUPPORT, libvirt.VIR_ERR_CONFIG_UNSUPPORTED, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED}
    code = error.get_error_code()
    kind = NotFound if code in missing else Unsupported if code in unsupported else Failed
    message = f"cannot {verb} {what}: {error.get_error_message() or error}"
    return kind(f"{message}; {remedy}" if remedy else message)
