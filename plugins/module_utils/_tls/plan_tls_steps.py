# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Steps that bring the TLS files of a host to their state, as data."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import Identity, TlsFile, TlsSpec

__all__ = ["Install", "Load", "Remember", "Request", "SetMode", "SetTrust"]


@dataclasses.dataclass(frozen=True)
class Request(Step):
    """Make a private key, and a request for its certificate."""

    identity: Identity
    why: str

    def __str__(self) -> str:
        return f"issue {self.identity.name} certificate ({self.why})"


@dataclasses.dataclass(frozen=True)
class Install(Step):
    """Put signed certificates (PEM) and their key in place."""

    wanted: TlsSpec
    certificate: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"install {self.wanted.identity.name} certificate"


@dataclasses.dataclass(frozen=True)
class SetTrust(Step):
    """Trust and refuse whom the authority says, with the key and the certificates in place."""

    wanted: TlsSpec
    why: str

    def __str__(self) -> str:
        return f"set whom {self.wanted.identity.name} trusts ({self.why})"


@dataclasses.dataclass(frozen=True)
class SetMode(Step):
    """Set owner, group and permissions of one file."""

    place: TlsFile
    owner: str
    group: str | None
    mode: int

    def __str__(self) -> str:
        return f"set {self.owner}:{self.group} {self.mode:04o} on {self.place.path}"


@dataclasses.dataclass(frozen=True)
class Load(Step):
    """Let the daemon that serves TLS read its files, and part with clients whose certificates were revoked."""

    daemon: str

    def __str__(self) -> str:
        return f"let {self.daemon} read its certificates"


@dataclasses.dataclass(frozen=True)
class Remember(Step):
    """Note that no daemon runs that could have read anything else: one that starts later reads what is in place
    then.
    """

    changes = False

    def __str__(self) -> str:
        return "record that no daemon has read other certificates"
