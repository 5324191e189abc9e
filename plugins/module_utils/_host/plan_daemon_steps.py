# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The vocabulary of change of libvirt's daemons: plain data with a readable text."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import DueRestart
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep

__all__ = ["EnableSockets", "RestartDaemons"]


@dataclasses.dataclass(frozen=True)
class EnableSockets(HostStep):
    """Let systemd listen from the next boot on."""

    units: tuple[str, ...]

    def __str__(self) -> str:
        return f"enable {', '.join(self.units)}"


@dataclasses.dataclass(frozen=True)
class RestartDaemons(HostStep):
    """Start daemons again while no guest has a job that would break; start the sockets that they lack."""

    due: tuple[DueRestart, ...]

    @property
    def breaks_jobs(self) -> bool:
        """Whether one of them runs."""
        return any(each.runs for each in self.due)

    @property
    def what(self) -> str:
        """The daemons, and why."""
        return " and ".join(map(str, self.due))

    def __str__(self) -> str:
        return f"restart {self.what}"
