# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that open a guest's consoles from the user's machine. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t
import urllib.parse

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where what listens on all addresses is reached on its host
_VIEWERS = {
    ("vnc", "port"): "vncviewer {}:{}",
    ("spice", "port"): "remote-viewer spice://{}:{}",
    ("spice", "tls_port"): "remote-viewer 'spice://{}?tls-port={}'",
}


@dataclasses.dataclass(frozen=True)
class Way:
    """How the user reaches a hypervisor: by ssh, unless it is `local`."""

    host: str  # name or address
    user: str | None = None
    port: int | None = None
    key: str | None = None
    options: tuple[str, ...] = ()  # further ones of ssh
    local: bool = False
    sudo: bool = False

    def ssh(self, *options: str) -> list[str]:
        """The words of an ssh command, up to and including the host."""
        words = ["ssh", *options, *self.options]
        words += ["-p", str(self.port)] if self.port not in (None, 22) else []
        words += ["-i", self.key] if self.key else []
        return [*words, f"{self.user}@{self.host}" if self.user else self.host]


def serial(way: Way, uri: str, guest: str) -> str:
    """The command that opens the serial console."""
    there = [*(["sudo"] if way.sudo else []), "virsh", "--connect", uri, "console", guest]
    # The host's shell splits them once more.
    return shlex.join(there if way.local else [*way.ssh("-t"), *map(shlex.quote, there)])


def display(way: Way, found: t.Mapping[str, t.Any]) -> list[str]:
    """The commands that open a display; empty if it does not listen, or if its data is invalid."""
    ports = [name for name in ("port", "tls_port") if _is_port(found.get(name))]
    viewer = _VIEWERS.get((str(found.get("type")), ports[0])) if ports else None
    if viewer is None:
        return []
    port, address = int(found[ports[0]]), str(found.get("listen") or "127.0.0.1")
    listen = _EVERYWHERE.get(address, address)
    there = f"[{listen}]" if ":" in listen else listen
    if way.local:
        return [viewer.format("localhost" if listen == "127.0.0.1" else there, port)]
    # Through ssh always: firewalls let nobody in to a display, and a name of ssh's configuration is none for a viewer.
    near = port + 1 if port + 1 < 2**16 else port - 1  # another number: the user's own display may listen there
    return [shlex.join(way.ssh("-L", f"{near}:{there}:{port}")), viewer.format("localhost", near)]


def beyond(way: Way, uri: str) -> Way:
    """How the user reaches the host of a libvirt URI, where the displays listen."""
    place = urllib.parse.urlsplit(uri)
    if not place.hostname or place.hostname in ("localhost", "127.0.0.1", "::1"):
        return way
    ssh = place.scheme.endswith("+ssh")
    return Way(place.hostname, user=place.username if ssh else None, port=place.port if ssh else None)


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**16
