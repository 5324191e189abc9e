# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The daemons that libvirt is on a host, and what is known of them."""

from __future__ import annotations

import dataclasses
import typing as t

__all__ = [
    "HOOK",
    "HOOKED",
    "KINDS",
    "MODULAR",
    "MONOLITHIC",
    "PRIVATE",
    "QEMU_CONF",
    "RESTART_TIMEOUT_S",
    "SECURITY_DRIVER",
    "UNITS",
    "DaemonFacts",
    "DaemonSpec",
    "Daemons",
    "DueRestart",
    "Unit",
]

_ETC = "/etc/libvirt/"
QEMU_CONF = _ETC + "qemu.conf"
RESTART_TIMEOUT_S = 600  # where the user sets none
PRIVATE = (QEMU_CONF,)  # files that may hold passwords
# A daemon that finds no AppArmor when it starts does without.
SECURITY_DRIVER = "/usr/sbin/apparmor_parser"
# The role `hypervisor` installs it. libvirt looks for hooks only when it starts, in this directory since 6.5.
HOOK = _ETC + "hooks/qemu.d/50-corral"
HOOKED = ("libvirtd.service", "virtqemud.service")  # daemons that run it


@dataclasses.dataclass(frozen=True)
class Daemons:
    """Daemons that serve one host: `reads`, which files each reads when it starts.

    `sockets`, which daemon each of them starts.
    """

    server: str  # that listens for TLS, as virt-admin calls it
    settings: tuple[str, ...]  # files that take the settings of a daemon
    tls_settings: str  # the one of the server
    tls_socket: str
    reads: t.Mapping[str, tuple[str, ...]]
    sockets: t.Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """All that a block of settings may stand in."""
        return (*self.settings, QEMU_CONF)


def _sockets(**kinds: str) -> dict[str, str]:
    """`libvirtd="- -ro"`: two sockets of that daemon."""
    return {
        f"{name}{kind[1:] if kind == '-' else kind}.socket": f"{name}.service"
        for name, all_ in kinds.items()
        for kind in all_.split()
    }


MONOLITHIC = Daemons(
    server="libvirtd",
    settings=(_ETC + "libvirtd.conf",),
    tls_settings=_ETC + "libvirtd.conf",
    tls_socket="libvirtd-tls.socket",
    reads={"libvirtd.service": (_ETC + "libvirtd.conf", QEMU_CONF, SECURITY_DRIVER, HOOK)},
    sockets=_sockets(libvirtd="- -ro -admin"),
)
MODULAR = Daemons(
    server="virtproxyd",
    settings=(_ETC + "virtqemud.conf", _ETC + "virtproxyd.conf"),
    tls_settings=_ETC + "virtproxyd.conf",
    tls_socket="virtproxyd-tls.socket",
    reads={
        "virtqemud.service": (_ETC + "virtqemud.conf", QEMU_CONF, SECURITY_DRIVER, HOOK),
        "virtproxyd.service": (_ETC + "virtproxyd.conf",),
    },
    sockets=_sockets(
        virtqemud="- -ro -admin",
        virtproxyd="- -admin",
        virtnetworkd="- -ro",
        virtnodedevd="- -ro",
        virtnwfilterd="- -ro",
        virtsecretd="- -ro",
        virtstoraged="- -ro",
    ),
)
KINDS = (MONOLITHIC, MODULAR)
UNITS = tuple(
    dict.fromkeys(unit for kind in KINDS for unit in (*kind.sockets, kind.tls_socket, *kind.sockets.values()))
)


@dataclasses.dataclass(frozen=True)
class DaemonSpec:
    """What the user asked for; None is silence."""

    block: str
    modular: bool = False
    daemon_settings: t.Mapping[str, t.Any] | None = None
    qemu_settings: t.Mapping[str, t.Any] | None = None
    clients: tuple[str, ...] | None = None
    purge_clients: bool = True
    promised: tuple[str, ...] = ()
    sockets: bool = False
    tls_port: bool = False


@dataclasses.dataclass(frozen=True)
class Unit:
    """What systemd says of a unit.

    `started`: when its process began, in seconds since the epoch by the clock of now.
    """

    exists: bool = False
    enabled: bool = False
    masked: bool = False
    active: str = "inactive"  # systemd's ActiveState
    started: float = 0.0

    @property
    def runs(self) -> bool:
        """Whether there is a process, or may be."""
        return self.active not in ("inactive", "failed")


@dataclasses.dataclass(frozen=True)
class DaemonFacts:
    """Units by name, texts of files by path, and when their inodes were changed: unlike the content's time, no copy
    sets that back.
    """

    units: t.Mapping[str, Unit]
    texts: t.Mapping[str, str]
    changed: t.Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class DueRestart:
    """A daemon that is to start again, why, and the sockets that it is to have from then on."""

    unit: str
    reason: str
    active: str
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether guests may have jobs in it."""
        return Unit(active=self.active).runs

    def __str__(self) -> str:
        return f"{self.unit}, which {self.reason}"
