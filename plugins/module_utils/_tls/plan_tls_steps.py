# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps for the TLS files of a host, as data."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import Identity, TlsFile, TlsSpec


@dataclasses.dataclass(frozen=True)
class Request(Step):
    """Create a private key, and a request for its certificate."""

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
    """Trust and refuse as the authority does, with the key and the certificates in place."""

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
    """Reload the files of the daemon that serves TLS, and disconnect clients with revoked certificates."""

    daemon: str

    def __str__(self) -> str:
        return f"let {self.daemon} read its certificates"


@dataclasses.dataclass(frozen=True)
class Remember(Step):
    """Record that no daemon runs with other files: one that starts later reads those in place."""

    changes = False

    def __str__(self) -> str:
        return "record that no daemon has read other certificates"
