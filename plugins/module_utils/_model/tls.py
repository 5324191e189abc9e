# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""TLS identities: which files an endpoint reads, what a certificate says, what stands on a machine."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput

__all__ = ["CONTROLLER", "IDENTITIES", "ORGANIZATION", "USAGES"]
__all__ += ["Certificate", "File", "Found", "Identity", "Place", "Wanted", "check_names"]

ORGANIZATION = "corral.virt"
# libvirt 9.0 refuses a certificate that does not permit key encipherment.
USAGES = ("clientAuth", "digitalSignature", "keyEncipherment", "serverAuth")
_LABEL = re.compile(r"^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$")


@dataclasses.dataclass(frozen=True)
class Place:
    """One file that libvirt or QEMU looks for, below the PKI directory. `kind` is ca, cert or key."""

    path: str
    kind: str

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


@dataclasses.dataclass(frozen=True)
class Identity:
    """One key pair and the places that show it. `store` keeps the complete sets, below the PKI directory."""

    name: str
    unit: str  # OU of the certificate
    store: str
    places: tuple[Place, ...]
    shared_key: bool = False  # a group may read the key, not only its owner

    def mode(self, place: Place) -> int:
        """Permission bits of one of the places."""
        return 0o644 if place.kind != "key" else 0o640 if self.shared_key else 0o600


def _identity(name: str, unit: str, store: str, ca: str, pairs: t.Sequence[tuple[str, str]], *, shared: bool = False) -> Identity:
    places = [Place(ca, "ca")]
    for cert, key in pairs:
        places += [Place(cert, "cert"), Place(key, "key")]
    return Identity(name=name, unit=unit, store=store, places=tuple(places), shared_key=shared)


# Two keys and two names per host: whoever breaks out of QEMU holds none that opens another hypervisor.
IDENTITIES = {
    "libvirt": _identity(
        "libvirt",
        "libvirt",
        "libvirt/corral",
        "CA/cacert.pem",
        [
            ("libvirt/servercert.pem", "libvirt/private/serverkey.pem"),
            ("libvirt/clientcert.pem", "libvirt/private/clientkey.pem"),
        ],
    ),
    "qemu": _identity(
        "qemu",
        "qemu",
        "qemu/corral",
        "qemu/ca-cert.pem",
        [("qemu/server-cert.pem", "qemu/server-key.pem"), ("qemu/client-cert.pem", "qemu/client-key.pem")],
        shared=True,
    ),
}
# The machine that runs Ansible, as a client of libvirt; below the CA's directory.
CONTROLLER = _identity(
    "controller",
    "libvirt",
    "controller/corral",
    "controller/cacert.pem",
    [("controller/clientcert.pem", "controller/clientkey.pem")],
)


@dataclasses.dataclass(frozen=True)
class Certificate:
    """What one certificate says."""

    subject: str  # as libvirt prints it: in the certificate's order
    names: tuple[str, ...]  # sorted
    usages: tuple[str, ...]  # sorted
    not_after: datetime.datetime  # UTC
    serial: str  # hex
    fingerprint: str  # SHA-256, hex

    def result(self) -> dict[str, object]:
        """For the module's result."""
        return {
            "subject": self.subject,
            "names": list(self.names),
            "not_after": self.not_after.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "serial": self.serial,
            "fingerprint": self.fingerprint,
        }


@dataclasses.dataclass(frozen=True)
class File:
    """One place as found, links followed. `foreign`: from another CA; `fault`: what else is wrong with the content."""

    place: Place
    owner: str
    group: str
    mode: int
    foreign: bool = False
    fault: str | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """One identity as it stands: its files by path, its (first) certificate, and who else than our CA vouches for them."""

    files: t.Mapping[str, File]
    certificate: Certificate | None = None
    authorities: tuple[str, ...] = ()  # foreign ones, in words


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What an identity's files shall be."""

    identity: Identity
    common_name: str
    names: tuple[str, ...]
    renew_before: datetime.timedelta
    owner: str = "root"
    group: str | None = "root"  # None: QEMU is not installed yet
    force: bool = False
    replace_authority: bool = False

    @property
    def subject(self) -> str:
        """The distinguished name as libvirt's `tls_allowed_dn_list` compares it: in the certificate's order."""
        return f"O={ORGANIZATION},OU={self.identity.unit},CN={self.common_name}"


def check_names(names: t.Sequence[str], *, what: str) -> tuple[str, ...]:
    """DNS names and addresses in one canonical, sorted form; raises BadInput naming each bad one."""
    good, problems = set(), []
    for name in names:
        try:
            good.add(str(ipaddress.ip_address(name)))
            continue
        except ValueError:
            pass
        if len(name) > 253 or not all(map(_LABEL.match, name.split("."))):
            problems.append(f"{what}: {name!r} is neither a host name nor an IP address")
        good.add(name.lower())
    if not names:
        problems.append(f"{what}: a certificate needs at least one name or address, or nobody can verify it")
    if problems:
        raise BadInput(problems)
    return tuple(sorted(good))
