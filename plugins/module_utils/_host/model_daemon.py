# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemons of libvirt on a host, and their state."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import HOOK, Unit

_ETC = "/etc/libvirt/"
QEMU_CONF = _ETC + "qemu.conf"
# Of libvirt's lock manager, which the QEMU driver uses if its own settings tell it to.
LOCKD_CONF = _ETC + "qemu-lockd.conf"
LOCKD_SOCKET = "virtlockd.socket"
RESTART_TIMEOUT_S = 600  # where the user sets none
PRIVATE = (QEMU_CONF,)  # files that may hold passwords
# A daemon that finds no AppArmor when it starts does without.
SECURITY_DRIVER = "/usr/sbin/apparmor_parser"
# A mount of huge pages by the role `tuning`: a daemon finds mounts when it starts.
PAGES = "/etc/systemd/system/dev-hugepages1G.mount"


@dataclasses.dataclass(frozen=True)
class Daemons:
    """Daemons that serve one host: `reads` has the files that each reads at its start.

    `sockets` has the daemon that each socket starts.
    """

    server: str  # that listens for TLS, as virt-admin calls it
    settings: tuple[str, ...]  # files that take the settings of a daemon
    tls_settings: str  # the one of the server
    tls_socket: str
    reads: t.Mapping[str, tuple[str, ...]]
    sockets: t.Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """All files that can hold a block of settings."""
        return (*self.settings, QEMU_CONF, LOCKD_CONF)


def _sockets(**kinds: str) -> dict[str, str]:
    """Socket units by daemon, `libvirtd="- -ro"` for two sockets, as socket -> service."""
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
    reads={"libvirtd.service": (_ETC + "libvirtd.conf", QEMU_CONF, LOCKD_CONF, SECURITY_DRIVER, HOOK, PAGES)},
    sockets=_sockets(libvirtd="- -ro -admin"),
)
MODULAR = Daemons(
    server="virtproxyd",
    settings=(_ETC + "virtqemud.conf", _ETC + "virtproxyd.conf"),
    tls_settings=_ETC + "virtproxyd.conf",
    tls_socket="virtproxyd-tls.socket",
    reads={
        "virtqemud.service": (_ETC + "virtqemud.conf", QEMU_CONF, LOCKD_CONF, SECURITY_DRIVER, HOOK, PAGES),
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
    dict.fromkeys(
        unit for kind in KINDS for unit in (*kind.sockets, kind.tls_socket, LOCKD_SOCKET, *kind.sockets.values())
    )
)


@dataclasses.dataclass(frozen=True)
class DaemonSpec:
    """The requested settings; None: not specified."""

    block: str
    modular: bool = False
    daemon_settings: t.Mapping[str, t.Any] | None = None
    machine_uuid: bool = False
    qemu_settings: t.Mapping[str, t.Any] | None = None
    leases: str | None = None  # a directory; empty: no leases
    clients: tuple[str, ...] | None = None
    purge_clients: bool = True
    promised: tuple[str, ...] = ()
    sockets: bool = False
    tls_port: bool = False


@dataclasses.dataclass(frozen=True)
class LeaseFacts:
    """What leases need of a host: libvirt's plugin, and the directory, on this kind of shared filesystem."""

    plugin: bool
    directory: bool
    filesystem: str | None


@dataclasses.dataclass(frozen=True)
class DaemonFacts:
    """Units by name, texts of files by path, and their inodes' change times, which no copy sets back."""

    units: t.Mapping[str, Unit]
    texts: t.Mapping[str, str]
    changed: t.Mapping[str, float]
    leases: LeaseFacts | None = None  # if they are wanted
    only_machine_uuid: bool = False  # if it is wanted: no UUID of the firmware, but a machine ID
