# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units: their state, their due restarts, and libvirt's hook, which some of them run."""

from __future__ import annotations

import dataclasses

# The role `hypervisor` installs it. libvirt looks for hooks only when it starts, in this directory since 6.5.
HOOK = "/etc/libvirt/hooks/qemu.d/50-corral"
HOOKED = ("libvirtd.service", "virtqemud.service")  # daemons that run it


@dataclasses.dataclass(frozen=True)
class Unit:
    """The state of a systemd unit.

    `started`: when its process started, in seconds since the epoch by the current clock.
    """

    exists: bool = False
    enabled: bool = False
    masked: bool = False
    active: str = "inactive"  # systemd's ActiveState
    started: float = 0.0

    @property
    def runs(self) -> bool:
        """True unless the unit is inactive or failed."""
        return self.active not in ("inactive", "failed")


@dataclasses.dataclass(frozen=True)
class DueRestart:
    """A daemon to restart, the reason, and the sockets that it lacks."""

    unit: str
    reason: str
    active: str
    files: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """True if guests may have jobs in the daemon."""
        return Unit(active=self.active).runs

    def __str__(self) -> str:
        return f"{self.unit}, which {self.reason}"
