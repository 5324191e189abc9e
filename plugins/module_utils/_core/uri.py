# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt's connection URIs, and which of them lead to this machine."""

from __future__ import annotations

SYSTEM = "qemu:///system"
_SESSION = "qemu:///session"


def tls(host: str) -> str:
    """The URI of another host's libvirt, over TLS."""
    return f"qemu+tls://{host}/system"


def is_here(uri: str) -> bool:
    """True if the daemon is on this machine, whatever its driver."""
    return ":///" in uri


def is_system(uri: str) -> bool:
    """True for the system's libvirt of this machine: the locks, settings and packets here are those of its guests."""
    return uri == SYSTEM


def has_files_here(uri: str) -> bool:
    """True if bridges, sockets and logs of this machine are those of the connection's guests."""
    return uri in (SYSTEM, _SESSION)
