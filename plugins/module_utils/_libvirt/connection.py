# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open a libvirt connection; raise libvirt's errors as ours, with the verb that failed."""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
import threading
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    Failed,
    NotFound,
    NotOffered,
    Unsupported,
    VirtError,
)

try:
    import libvirt
except ImportError:  # the front says how to install it
    libvirt = None

__all__ = ["Connection", "explained", "libvirt", "listen", "opened"]


_KEEPALIVE_S, _KEEPALIVES = 5, 3
_CONNECT_S = 30
_LISTEN_S = 1.0  # well below the 5 s after which libvirt's daemon wants its first sign of life
_needed = threading.Event()

Connection = t.Any  # libvirt.virConnect; the binding ships no types


@contextlib.contextmanager
def opened(uri: str, *, readonly: bool = False, events: bool = False, watched: bool = False) -> t.Iterator[Connection]:
    """A connection for the length of a `with` block; with `events`, one that can wait for them.

    A `watched` connection breaks when its peer is silent for 15 s; otherwise calls to a host that died never return.

    Raises Unsupported without the binding, Failed if the daemon cannot be reached.
    """
    if libvirt is None:
        raise Unsupported(
            "connecting to libvirt requires its Python binding; install python3-libvirt (libvirt-python) here"
        )
    libvirt.registerErrorHandler(lambda _context, _error: None, None)  # libvirt would print to stderr
    if events or watched:
        _watch()  # must come before the connection
    with explained("connect to", uri, _remedy(uri)):
        connection = _open(uri, readonly=readonly)
    if watched:
        listen()
        connection.setKeepAlive(_KEEPALIVE_S, _KEEPALIVES)
    try:
        yield connection
    finally:
        connection.close()


def _remedy(uri: str) -> str:
    place = urllib.parse.urlsplit(uri)
    if place.hostname and place.scheme.partition("+")[2] in ("tls", ""):
        return f"`virt-pki-validate` here and `journalctl -u libvirtd -u virtproxyd` on {place.hostname} show more"
    running = "is the libvirt daemon installed and running there?"
    if os.geteuid() == 0 or place.path != "/system" or place.hostname:
        return running
    user = _user()
    return (
        f"this runs as {user}, not as root: set become: true (ansible_become: true), or add {user} to the group "
        f"libvirt; {running}"
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _open(uri: str, *, readonly: bool) -> Connection:
    """Connect to libvirt; raises Failed after 30 s for a remote host.

    libvirt itself waits as long as the kernel, minutes for each address of a host that is off or drops packets.
    """
    outcome: list[t.Any] = []

    def body() -> None:
        try:
            outcome.append(libvirt.openReadOnly(uri) if readonly else libvirt.open(uri))
        except libvirt.libvirtError as error:
            outcome.append(error)

    worker = threading.Thread(target=body, daemon=True)
    worker.start()
    worker.join(_CONNECT_S if urllib.parse.urlsplit(uri).hostname else None)
    if not outcome:
        remedy = "is the host up, and does its firewall let libvirt's port through?"
        raise Failed(f"cannot connect to {uri}: no answer within {_CONNECT_S} s; {remedy}")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def listen() -> None:
    """From now on, deliver events to their callbacks at once."""
    _needed.set()


@functools.cache  # one loop serves all connections; of two, each would take the other's events
def _watch() -> None:
    libvirt.virEventRegisterDefaultImpl()
    threading.Thread(target=_run_events, daemon=True).start()


def _run_events() -> None:
    """Run libvirt's event loop, after a pause: each libvirt call wakes it twice, so short connections do without."""
    _needed.wait(_LISTEN_S)
    while True:
        libvirt.virEventRunDefaultImpl()


# How libvirt says that a connection ended; it has no error code for that.
_ENDED = ("client socket is closed", "End of file while reading data", "Broken pipe", "Connection reset")
_RUN_AGAIN = "its libvirt daemon was restarted or has crashed (journalctl -u libvirtd -u virtqemud); run again"
_NO_BACKEND = "missing backend for pool type"
# The lock manager, or QEMU itself, found a disk in use.
_IN_USE = re.compile("""Lockspace resource '.*' is locked|Failed to get "write" lock""")
_HOLDER = "run ansible-playbook corral.virt.query to find the guest, here or on another host, that has its disk in use"
# Of a guest that ends as its migration begins, libvirt 9.0 keeps a job that nobody ends.
_HELD = "remoteDispatchDomainMigratePerform"
_LET_GO = "if nobody migrates it, restart the libvirt daemon of that host (guests go on running), and run again"


@contextlib.contextmanager
def explained(verb: str, what: str, remedy: str = "") -> t.Iterator[None]:
    """Raise libvirt's exception as ours, with the verb, the object and the reason."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise _translated(error, verb, what, remedy) from error
    except UnicodeDecodeError as error:
        said = error.object.decode(errors="backslashreplace")
        raise Failed(
            f"cannot {verb} {what}: libvirt tells a text that is not UTF-8; rename what it names: {said[:200]}"
        ) from error


def _translated(error: t.Any, verb: str, what: str, remedy: str) -> VirtError:
    missing = {
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_NODE_DEVICE,
        libvirt.VIR_ERR_NO_STORAGE_POOL,
        libvirt.VIR_ERR_NO_STORAGE_VOL,
        libvirt.VIR_ERR_NO_NETWORK,
    }
    unsupported = {libvirt.VIR_ERR_CONFIG_UNSUPPORTED, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED}
    kinds = {**dict.fromkeys(missing, NotFound), **dict.fromkeys(unsupported, Unsupported)}
    kinds[libvirt.VIR_ERR_NO_SUPPORT] = NotOffered
    kind = kinds.get(error.get_error_code(), Failed)
    message = f"cannot {verb} {what}: {error.get_error_message() or error}"
    if error.get_error_domain() == libvirt.VIR_FROM_RPC and any(text in message for text in _ENDED):
        remedy = remedy or _RUN_AGAIN
    elif _HELD in message:
        remedy = remedy or _LET_GO
    elif _IN_USE.search(message):
        remedy = remedy or _HOLDER
    elif _NO_BACKEND in message:
        remedy = "install libvirt's driver for it (libvirt-daemon-driver-storage-...), and restart libvirtd"
    return kind(f"{message}; {remedy}" if remedy else message)
