# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that open a guest's consoles from where the user sits. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

__all__ = ["Way", "display", "serial"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_VIEWERS = {
    ("vnc", "port"): "vncviewer {}:{}",
    ("spice", "port"): "remote-viewer spice://{}:{}",
    ("spice", "tls_port"): "remote-viewer 'spice://{}?tls-port={}'",
}


@dataclasses.dataclass(frozen=True)
class Way:
    """How the user reaches a hypervisor: by ssh, or he is there already."""

    host: str  # name or address
    user: str | None = None
    port: int | None = None
    key: str | None = None
    options: tuple[str, ...] = ()  # further ones of ssh
    local: bool = False
    sudo: bool = False

    def ssh(self, *options: str) -> list[str]:
        """The words of an ssh command up to the host."""
        words = ["ssh", *options, *self.options]
        words += ["-p", str(self.port)] if self.port not in (None, 22) else []
        words += ["-i", self.key] if self.key else []
        return [*words, f"{self.user}@{self.host}" if self.user else self.host]


def serial(way: Way, uri: str, guest: str) -> str:
    """The command for the serial console."""
    there = [*(["sudo"] if way.sudo else []), "virsh", "--connect", uri, "console", guest]
    # The host's shell splits them once more.
    return shlex.join(there if way.local else [*way.ssh("-t"), *map(shlex.quote, there)])


def display(way: Way, found: t.Mapping[str, t.Any]) -> list[str]:
    """The commands for a display that listens; none for one that does not, or of which the host tells nonsense."""
    ports = [name for name in ("port", "tls_port") if _is_port(found.get(name))]
    viewer = _VIEWERS.get((str(found.get("type")), ports[0])) if ports else None
    if viewer is None:
        return []
    port = int(found[ports[0]])
    listen = str(found.get("listen") or "127.0.0.1")
    if way.local:
        return [viewer.format("localhost", port)]
    if listen not in _LOOPBACK:
        return [viewer.format(way.host, port)]
    # Not the same number: the user's own display may listen there.
    return [shlex.join(way.ssh("-L", f"{port + 1}:{listen}:{port}")), viewer.format("localhost", port + 1)]


def _is_port(told: object) -> bool:
    return isinstance(told, int) and 0 < told < 2**16
