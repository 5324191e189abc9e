# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which certificates must be issued anew, which files only need other permissions. The caller brings the time."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._model.tls import USAGES, File, Found, Identity, Place, Wanted

__all__ = ["Install", "Plan", "Request", "SetMode", "decide", "refuse_foreign"]

_DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Request:
    """Make a private key, and a request for its certificate."""

    identity: Identity
    why: str

    def __str__(self) -> str:
        return f"issue {self.identity.name} certificate ({self.why})"


@dataclasses.dataclass(frozen=True)
class Install:
    """Put a signed certificate and its key in place."""

    wanted: Wanted
    certificate: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"install {self.wanted.identity.name} certificate"


@dataclasses.dataclass(frozen=True)
class SetMode:
    """Set owner, group and permissions of one file."""

    place: Place
    owner: str
    group: str | None
    mode: int

    def __str__(self) -> str:
        return f"set {self.owner}:{self.group} {self.mode:04o} on {self.place.path}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done for one identity, and how that shows."""

    steps: tuple[Request | SetMode, ...]
    changes: tuple[Change, ...]


def decide(wanted: Wanted, found: Found, *, now: datetime.datetime) -> Plan:
    """A new certificate where anything about it is wrong; other permissions where only those are."""
    changes = list(_changes(wanted, found, now))
    if changes:
        why = ", ".join(sorted({change.where.split(".", 1)[1] for change in changes}, key=_ORDER.index))
        return Plan((Request(wanted.identity, "missing" if not found.files else why),), tuple(changes))
    steps = tuple(_modes(wanted, found))
    return Plan(steps, tuple(_mode_change(found.files[step.place.path], step) for step in steps))


def refuse_foreign(found: t.Sequence[tuple[Wanted, Found]], *, ours: str | None) -> None:
    """A host that belongs to another authority stays its own: replaced, it would admit nobody who is admitted now. Raises Refused."""
    theirs = sorted({authority for wanted, state in found if not wanted.replace_authority for authority in state.authorities})
    if theirs:
        name = found[0][0].common_name
        raise Refused(
            f"cannot give {name} certificates: it belongs to another authority. There: {', '.join(theirs)}. Here: {ours or 'none yet'}. "
            "Bring that authority's ca-cert.pem and ca-key.pem into the directory of the CA on this controller (ca_dir; pki_ca_dir of role "
            "pki), or say replace_authority: true (pki_replace_authority), which shuts out every client and hypervisor of the other one"
        )


_ORDER = ["authority", "files", "subject", "names", "usage", "not_after", "key", "renewal"]


def _changes(wanted: Wanted, found: Found, now: datetime.datetime) -> t.Iterator[Change]:
    """Everything that only a new certificate mends, in texts that can be said before it exists: check mode does."""
    prefix, certificate = wanted.identity.name, found.certificate

    def change(where: str, before: object, after: object) -> t.Iterator[Change]:
        if before != after:
            yield Change(f"{prefix}.{where}", before, after)

    if any(file.foreign for file in found.files.values()):
        yield Change(f"{prefix}.authority", ", ".join(found.authorities) or "another authority", "this authority")
    faults = {path: file.fault for path, file in found.files.items() if file.fault}
    missing = [place.path for place in wanted.identity.places if place.path not in found.files]
    if missing or faults:
        before = [f"{path} {fault}" for path, fault in sorted(faults.items())]
        yield Change(f"{prefix}.files", before or None, sorted([*missing, *faults]))
    yield from change("subject", certificate and certificate.subject, wanted.subject)
    yield from change("names", certificate and list(certificate.names), list(wanted.names))
    yield from change("usage", certificate and list(certificate.usages), list(USAGES))
    if certificate and certificate.not_after - now < wanted.renew_before:
        left = (certificate.not_after - now) // _DAY
        yield Change(f"{prefix}.not_after", f"{certificate.not_after:%Y-%m-%d} ({left} days left)", "renewed")
    if wanted.force and certificate:
        yield Change(f"{prefix}.renewal", "not asked for", "asked for")
    for path, file in sorted(found.files.items()):
        if file.place.kind == "key" and file.mode & 0o077 & ~wanted.identity.mode(file.place):
            yield Change(f"{prefix}.key", f"{path} could be read by others ({file.mode:04o})", "a new key")


def _modes(wanted: Wanted, found: Found) -> t.Iterator[SetMode]:
    for place in wanted.identity.places:
        file, mode = found.files[place.path], wanted.identity.mode(place)
        group = wanted.group if place.kind == "key" else "root" if wanted.owner == "root" else wanted.group
        if (file.owner, file.group, file.mode) != (wanted.owner, group, mode):
            yield SetMode(place, wanted.owner, group, mode)


def _mode_change(file: File, step: SetMode) -> Change:
    after = f"{step.owner}:{step.group} {step.mode:04o}"
    return Change(f"{file.place.path}", f"{file.owner}:{file.group} {file.mode:04o}", after)
