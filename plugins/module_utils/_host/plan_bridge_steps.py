# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of a host's bridges, as data with a readable text."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._host.model_bridge import NetworkChange
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep


@dataclasses.dataclass(frozen=True)
class RequirePackages(HostStep):
    """Fail unless packages are installed; this does not install them."""

    packages: tuple[str, ...]

    def __str__(self) -> str:
        return f"require {' '.join(self.packages)}"


@dataclasses.dataclass(frozen=True)
class SetBridgeOption(HostStep):
    """Switch an option of a running bridge off."""

    bridge: str
    field: str
    word: str  # for the user

    def __str__(self) -> str:
        return f"switch off {self.word} of {self.bridge}"


@dataclasses.dataclass(frozen=True)
class SetSysctl(HostStep):
    """Set keys of the running kernel."""

    keys: tuple[str, ...]
    value: str
    why: str

    def __str__(self) -> str:
        return f"set {' '.join(self.keys)} to {self.value} ({self.why})"


@dataclasses.dataclass(frozen=True)
class SwitchToBridge(HostStep):
    """Start a trial of the network with the bridge; it is rolled back unless confirmed in time."""

    change: NetworkChange
    addresses: tuple[str, ...]  # that the bridge takes over
    timeout_s: int

    def __str__(self) -> str:
        change, addresses = self.change, ", ".join(self.addresses) or "the link"
        if change.holder:
            return f"bridge {change.bridge} gets the port {change.port} ({change.manager})"
        return f"bridge {change.bridge} takes over {addresses} from {change.port} ({change.manager})"


@dataclasses.dataclass(frozen=True)
class ConfirmBridge(HostStep):
    """Keep the bridge on trial, also at the next boot."""

    bridge: str

    def __str__(self) -> str:
        return f"keep bridge {self.bridge}"
