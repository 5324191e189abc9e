# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TLS identities: the files of an endpoint, the facts of a certificate, and the state of a machine."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput

CA_DIR = "~/.config/corral/ca"  # of the controller's user
DAEMONS_PLACE = "/etc/pki"  # the only one where libvirt's daemons look
ORGANIZATION = "corral.virt"
KEY_BITS = 3072  # of RSA keys
# Who signs for whom: QEMU's keys are within reach of its guests, so what vouches for them vouches for nobody else.
AUTHORITIES = ("libvirt", "qemu")
_LABEL = re.compile(r"^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\Z")


@dataclasses.dataclass(frozen=True)
class TlsFile:
    """One file that libvirt or QEMU reads, below the PKI directory. `kind` is ca, crl, cert or key.

    A cert is for one `purpose`.
    """

    path: str
    kind: str
    purpose: str = ""

    @property
    def name(self) -> str:
        """The file's name in its directory."""
        return posixpath.basename(self.path)


@dataclasses.dataclass(frozen=True)
class Identity:
    """One key and the files that use it. `store` has the complete sets, below the PKI directory."""

    name: str
    authority: str  # of AUTHORITIES
    store: str
    places: tuple[TlsFile, ...]
    shared_key: bool = False  # a group may read the key, not only its owner

    @property
    def purposes(self) -> tuple[str, ...]:
        """Purposes with a certificate each: a stolen client certificate cannot serve as a server's."""
        return tuple(place.purpose for place in self.places if place.kind == "cert")

    def mode(self, place: TlsFile) -> int:
        """Permission bits of one of the files."""
        if place.kind != "key":
            return 0o644
        return 0o640 if self.shared_key else 0o600


def _identity(
    name: str,
    authority: str,
    store: str,
    trust: tuple[str, str],
    pairs: t.Mapping[str, tuple[str, str]],
    *,
    shared: bool = False,
) -> Identity:
    places = [TlsFile(trust[0], "ca"), TlsFile(trust[1], "crl")]
    for purpose, (cert, key) in pairs.items():
        places += [TlsFile(cert, "cert", purpose), TlsFile(key, "key", purpose)]
    return Identity(name=name, authority=authority, store=store, places=tuple(places), shared_key=shared)


# Two keys and two names per host: whoever breaks out of QEMU holds none that opens another hypervisor.
IDENTITIES = {
    "libvirt": _identity(
        "libvirt",
        "libvirt",
        "libvirt/corral",
        ("CA/cacert.pem", "CA/cacrl.pem"),
        {
            "server": ("libvirt/servercert.pem", "libvirt/private/serverkey.pem"),
            "client": ("libvirt/clientcert.pem", "libvirt/private/clientkey.pem"),
        },
    ),
    "qemu": _identity(
        "qemu",
        "qemu",
        "qemu/corral",
        ("qemu/ca-cert.pem", "qemu/ca-crl.pem"),
        {
            "server": ("qemu/server-cert.pem", "qemu/server-key.pem"),
            "client": ("qemu/client-cert.pem", "qemu/client-key.pem"),
        },
        shared=True,
    ),
}
# The machine that runs Ansible, as a client of libvirt; below the CA's directory.
CONTROLLER = _identity(
    "controller",
    "libvirt",
    "controller/corral",
    ("controller/cacert.pem", "controller/cacrl.pem"),
    {"client": ("controller/clientcert.pem", "controller/clientkey.pem")},
)


def usages(purpose: str) -> tuple[str, ...]:
    """The usages of a certificate for a purpose.

    Libvirt 9.0 refuses one that does not permit key encipherment.
    """
    return tuple(sorted(("digitalSignature", "keyEncipherment", f"{purpose}Auth (critical)")))


@dataclasses.dataclass(frozen=True)
class Certificate:
    """The facts of one certificate."""

    subject: str  # as libvirt prints it: in the certificate's order
    names: tuple[str, ...]  # sorted
    usages: tuple[str, ...]  # sorted
    not_after: datetime.datetime  # UTC
    serial: str  # hex
    fingerprint: str  # SHA-256, hex
    issuer: str = ""  # fingerprint of the CA among those that are known, SHA-256, hex; empty: another one

    def result(self) -> dict[str, object]:
        """The certificate as a part of the module's result."""
        return {
            "subject": self.subject,
            "names": list(self.names),
            "not_after": self.not_after.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "serial": self.serial,
            "fingerprint": self.fingerprint,
        }


@dataclasses.dataclass(frozen=True)
class Trust:
    """An authority's current state: its trusted CAs, of which one signs, and its revocations.

    All fields are empty if there is no CA yet.
    """

    text: str = ""  # the CAs, PEM
    crl: str = ""  # PEM, of one CA or several
    # fingerprint (SHA-256, hex) -> name, of the CAs in `text`
    trusts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    # fingerprint -> first moment of its validity, UTC
    starts: t.Mapping[str, datetime.datetime] = dataclasses.field(default_factory=dict)
    signer: str = ""  # fingerprint of the one that signs
    # fingerprint -> PEM, of CAs that a host may show, and loses
    retired: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    refuses: tuple[str, ...] = ()  # serials in the CRL, hex, sorted
    # serial in hex -> subject, of certificates that are still valid
    revoked: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TrustFaults:
    """Faults in the texts of an authority."""

    no_certificate: bool = False  # its text holds none
    unreadable: bool = False  # a certificate in it cannot be read,
    unreadable_retired: bool = False  # or one of the retired CAs
    no_crl: bool = False  # the other text is no list of revoked certificates
    crl_end: datetime.datetime | None = None  # until when that is valid


@dataclasses.dataclass(frozen=True)
class FoundTlsFile:
    """One file as found, links followed. `foreign`: from another authority.

    `fault`: any other problem of the content.
    """

    place: TlsFile
    owner: str
    group: str
    mode: int
    foreign: bool = False
    fault: str | None = None


@dataclasses.dataclass(frozen=True)
class FoundTls:
    """The state of one identity's files."""

    files: t.Mapping[str, FoundTlsFile]  # by path
    certificates: t.Mapping[str, Certificate] = dataclasses.field(default_factory=dict)  # by purpose
    # fingerprint of a CA (SHA-256, hex) -> its name
    trusts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    refuses: tuple[str, ...] = ()  # serials in the CRL, hex, sorted
    stands: tuple[str, ...] = ()  # of these, the serials that a CA has revoked that is still trusted
    same_crl: bool = True  # its text is what the authority says
    crl: str = ""  # as found, PEM
    held: tuple[str, ...] = ()  # the certificates as found, PEM
    authorities: tuple[str, ...] = ()  # in words: who vouches for these files and is not our authority


@dataclasses.dataclass(frozen=True)
class NewSet:
    """Files of an identity that are put in place together, and their problems; all by path."""

    contents: t.Mapping[str, bytes] = dataclasses.field(repr=False)
    faults: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # what is wrong with the content
    foreign: frozenset[str] = frozenset()  # certificates of another authority
    unsigned: tuple[str, ...] = ()  # purposes that none of the certificates that were signed for the set is for
    # first and last moment (UTC) of each certificate that was
    validity: tuple[tuple[datetime.datetime, datetime.datetime], ...] = ()
    is_signed: bool = False  # else with the certificates and keys that were in place before
    # What is in place now, and the new set does away with: serials (hex) that a CA of the new set has revoked,
    forgotten: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()  # and CAs that this authority does not know, in words


@dataclasses.dataclass(frozen=True)
class TlsSpec:
    """The desired files of an identity."""

    identity: Identity
    common_name: str
    names: tuple[str, ...]
    renew_before: datetime.timedelta
    owner: str = "root"
    group: str | None = "root"  # None: QEMU is not installed yet
    force: bool = False
    replace_authority: bool = False
    trust: Trust = dataclasses.field(default_factory=Trust)

    @property
    def subject(self) -> str:
        """The distinguished name as libvirt's `tls_allowed_dn_list` compares it: in the certificate's order."""
        return f"O={ORGANIZATION},OU={self.identity.authority},CN={self.common_name}"


def check_names(names: t.Sequence[str], *, what: str) -> tuple[str, ...]:
    """DNS names and addresses in one canonical, sorted form; raises BadInput naming each invalid one."""
    good, problems = set(), []
    for name in names:
        try:
            address = ipaddress.ip_address(name)
            if getattr(address, "scope_id", None):
                problems.append(
                    f"{what}: {name!r} has a scope, which is valid on one host only; omit the scope or the address"
                )
            good.add(str(address))
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
