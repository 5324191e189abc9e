# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which certificates must be issued anew, which files only change trust, and which need other permissions.

The caller passes the time.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import step
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_name
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    DAEMONS_PLACE,
    IDENTITIES,
    FoundTls,
    FoundTlsFile,
    Identity,
    NewSet,
    TlsFile,
    TlsSpec,
    TrustFaults,
    check_names,
    usages,
)


@dataclasses.dataclass(frozen=True)
class Request(Step):
    """Create a private key, and a request for its certificate."""

    template = "issue {0.identity.name} certificate ({0.why})"
    identity: Identity
    why: str


@dataclasses.dataclass(frozen=True)
class Install(Step):
    """Put signed certificates (PEM) and their key in place."""

    template = "install {0.wanted.identity.name} certificate"
    wanted: TlsSpec
    certificate: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class SetTrust(Step):
    """Trust and refuse as the authority does, with the key and the certificates in place."""

    template = "set whom {0.wanted.identity.name} trusts ({0.why})"
    wanted: TlsSpec
    why: str


@dataclasses.dataclass(frozen=True)
class SetMode(Step):
    """Set owner, group and permissions of one file."""

    template = "set {0.owner}:{0.group} {0.mode:04o} on {0.place.path}"
    place: TlsFile
    owner: str
    group: str | None
    mode: int


@dataclasses.dataclass(frozen=True)
class Load(Step):
    """Reload the files of the daemon that serves TLS, and disconnect clients with revoked certificates."""

    template = "let {0.daemon} read its certificates"
    daemon: str


@dataclasses.dataclass(frozen=True)
class Remember(Step):
    """Record that no daemon runs with other files: one that starts later reads those in place."""

    template = "record that no daemon has read other certificates"
    changes = False


# What a call says of a host's certificates, checked before anything is looked at. Pure.

_MOST_DAYS = 900  # a quarter of a CA's life


def check_trust(faults: TrustFaults, *, what: str, now: datetime.datetime) -> None:
    """Raises BadInput for unusable texts of an authority (`what`: the option of its certificates)."""
    crl, end, problems = what.replace("certificate", "crl"), faults.crl_end, Problems()
    if faults.no_certificate:
        problems.found.append(f"{what}: it contains no certificate in PEM")
    for option, unreadable in ((what, faults.unreadable), ("retired_ca_certificates", faults.unreadable_retired)):
        if unreadable:
            problems.found.append(f"{option}: a certificate in it cannot be read")
    if faults.no_crl:
        problems.found.append(f"{crl}: not a list of revoked certificates in PEM")
    elif end is not None and end < now:
        problems.found.append(
            f"{crl}: it is valid until {end:%Y-%m-%d %H:%M} UTC, and libvirt refuses everybody after that; provide a "
            "newer one"
        )
    problems.refuse()


def certificate_names(params: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """The other names and addresses of the host; raises BadInput with every problem of the call."""
    problems = Problems()
    problems.tried(lambda: check_name(params["name"], what="name"))
    found = problems.tried(lambda: check_names(params["names"] or [], what=f"names of {params['name']}"))
    if not 0 <= params["renew_before"] < params["days"]:
        problems.found.append(
            f"renew_before ({params['renew_before']}) must be less than days ({params['days']}), or each run would "
            "renew"
        )
    if params["days"] > _MOST_DAYS:
        problems.found.append(
            f"days ({params['days']}) must be at most {_MOST_DAYS}: a CA is replaced when certificates could outlive it"
        )
    if not params["identities"]:
        problems.found.append("identities: name at least one of " + ", ".join(IDENTITIES))
    problems.refuse()
    return t.cast("tuple[str, ...]", found)


_DAY = datetime.timedelta(days=1)
_TAKE_OVER = (
    "run again to take them over, or, without the CA's key here, provide a list that has them (ca_crl, qemu_ca_crl)"
)


@dataclasses.dataclass(frozen=True)
class TlsPlan(step.Plan[Step]):
    """Steps for identities, and their changes."""


class Reading(t.NamedTuple):
    """Steps that reload the daemon's files: `later`, if certificates come with another call."""

    now: tuple[Step, ...] = ()
    later: tuple[Step, ...] = ()


def check_state(state: str) -> None:
    """Raises BadInput for a state that only the controller implements."""
    if state == "revoked":
        raise BadInput(["state: revoked is for the controller; a host has nothing to revoke"])


def plan(
    wanted: t.Mapping[str, TlsSpec],
    found: t.Mapping[str, FoundTls],
    signed: t.Mapping[str, str],
    *,
    now: datetime.datetime,
) -> TlsPlan:
    """The plan for one host, by identity: certificates that were `signed` (PEM) are installed, the rest is decided.

    Raises Refused.
    """
    refuse_foreign([(goal, found[name]) for name, goal in wanted.items()])
    for name, goal in wanted.items():
        if name in signed and goal.trust.crl and (forgotten := _unknown(goal, found[name])):
            raise Refused(f"cannot install the {name} certificates: {_shorter(forgotten)}; {_TAKE_OVER}")
        if name in signed:
            _refuse_future(goal, now)
    plans = [
        TlsPlan((Install(goal, signed[name]),)) if name in signed else decide(goal, found[name], now=now)
        for name, goal in wanted.items()
    ]
    return TlsPlan(
        tuple(step for one in plans for step in one.steps), tuple(change for one in plans for change in one.changes)
    )


def is_read(wanted: t.Mapping[str, TlsSpec], root: str) -> bool:
    """True if libvirt's daemon reads the files below `root`."""
    return root == DAEMONS_PLACE and "libvirt" in wanted


def reading(steps: t.Sequence[Step], serving: str | None, *, has_files: bool, is_loaded: bool) -> Reading:
    """Steps by which libvirt's daemon, if one is `serving`, reads the files in place after the other steps."""
    if serving is None:
        read: tuple[Step, ...] = (Remember(),)
    else:
        read = (Load(serving),) if any(map(_is_libvirts, steps)) or (has_files and not is_loaded) else ()
    comes = any(isinstance(step, Request) for step in steps)
    return Reading(later=read) if comes else Reading(now=read)


def _is_libvirts(step: Step) -> bool:
    """True if a step replaces libvirt's files, or starts that."""
    if isinstance(step, Request):
        return step.identity.name == "libvirt"
    return isinstance(step, (Install, SetTrust)) and step.wanted.identity.name == "libvirt"


def decide(wanted: TlsSpec, found: FoundTls, *, now: datetime.datetime) -> TlsPlan:
    """New certificates if any is wrong; else the CAs and the CRL; else permissions.

    New certificates fix the rest, too.
    """
    anew, trust = list(_changes(wanted, found, now)), list(_trust(wanted, found))
    if _unknown(wanted, found):
        trust = []  # what another controller revoked stays so: this one has yet to learn of it
    if anew or trust:
        _refuse_future(wanted, now)
    if anew:
        why = "missing" if not found.files else _why(anew)
        return TlsPlan((Request(wanted.identity, why),), (*anew, *trust))
    if trust:
        return TlsPlan((SetTrust(wanted, _why(trust)),), tuple(trust))
    steps = tuple(_modes(wanted, found))
    return TlsPlan(steps, tuple(_mode_change(found.files[step.place.path], step) for step in steps))


def _refuse_future(wanted: TlsSpec, now: datetime.datetime) -> None:
    """Raises Refused for a CA that is not valid yet by this clock: libvirt and QEMU load no list with such a one."""
    trust = wanted.trust
    early = [
        f"{trust.trusts[digest]} is valid from {start:%Y-%m-%d %H:%M} UTC on"
        for digest, start in trust.starts.items()
        if start > now
    ]
    if early:
        raise Refused(
            f"cannot let {wanted.common_name} trust the CAs of {wanted.identity.authority}: {', '.join(early)}, and "
            f"the clock there says {now:%Y-%m-%d %H:%M}; set the clocks of this host and of the controller"
        )


def _unknown(wanted: TlsSpec, found: FoundTls) -> list[str]:
    """Serials that the CRL in place revokes, and the authority's does not."""
    return sorted({*found.stands} - {*wanted.trust.refuses})


def unknown_crls(wanted: t.Mapping[str, TlsSpec], found: t.Mapping[str, FoundTls]) -> dict[str, str]:
    """CRLs in place with revocations unknown to the authority, by identity: the controller adopts them."""
    return {name: state.crl for name, state in found.items() if _unknown(wanted[name], state)}


def renewed(steps: t.Sequence[Step]) -> list[str]:
    """Identities that get new certificates."""
    return [step.identity.name for step in steps if isinstance(step, Request)]


def requests(steps: t.Sequence[Step], answers: t.Sequence[object]) -> dict[str, object]:
    """The request (PEM) of each identity whose step was carried out."""
    return {step.identity.name: answer for step, answer in zip(steps, answers) if isinstance(step, Request)}


def check_set(wanted: TlsSpec, new: NewSet, *, now: datetime.datetime | None = None) -> None:
    """Raises Refused for a set with a file that is missing, does not match its key, is foreign, or not valid `now`."""
    for reason in _set_problems(wanted, new, now):
        raise Refused(f"cannot install the {wanted.identity.name} certificates: {reason}")


def _set_problems(wanted: TlsSpec, new: NewSet, now: datetime.datetime | None) -> t.Iterator[str]:
    for purpose in new.unsigned:
        yield f"none of the given ones is for {purpose}Auth; issue one for that purpose too"
    for start, end in new.validity:
        if now and not start <= now <= end:
            yield (
                f"they are valid from {start:%Y-%m-%d %H:%M} until {end:%Y-%m-%d %H:%M} UTC, and it is "
                f"{now:%Y-%m-%d %H:%M} here; set the clocks of this host and of the controller"
            )
    for place in wanted.identity.places:
        if place.path not in new.contents and place.kind != "crl":
            yield f"{place.name} is missing; run again to have it issued"
        fault = new.faults.get(place.path) or ("is not signed by this authority" if place.path in new.foreign else None)
        if fault:
            yield f"{place.name} {fault}; another run may be in progress"
    # What was planned from is looked at again: another controller may have been here meanwhile.
    if new.forgotten:
        yield f"{_shorter(new.forgotten)}; {_TAKE_OVER}"
    if new.strangers and not wanted.replace_authority:
        yield (
            f"the host has come to trust {', '.join(new.strangers)}, which this authority does not know; run again, "
            "or restore the newest backup of the CAs (ca_dir)"
        )


def _shorter(serials: t.Sequence[str]) -> str:
    """Why a list of revoked certificates is not replaced."""
    return f"the list in place has revoked certificates that the new one lacks ({', '.join(serials)})"


def renewal(
    identity: str, name: str, *, renew_before: datetime.timedelta, days: datetime.timedelta
) -> datetime.timedelta:
    """How long before its end a certificate is renewed: up to twice `renew_before`, spread over the hosts."""
    spread = min(renew_before, (days - renew_before) / 2)
    turn = int(hashlib.sha256(f"{identity} {name}".encode()).hexdigest(), 16) % 1000
    return renew_before + spread * turn / 1000


def refuse_foreign(found: t.Sequence[tuple[TlsSpec, FoundTls]]) -> None:
    """Raises Refused for a host of another authority: with other CAs, it would shut out all current clients."""
    theirs = sorted(
        {authority for wanted, state in found if not wanted.replace_authority for authority in state.authorities}
    )
    if theirs:
        name = found[0][0].common_name
        ours = sorted({called for wanted, _state in found for called in wanted.trust.trusts.values()})
        raise Refused(
            f"cannot issue certificates to {name}: it belongs to another authority. There: {', '.join(theirs)}. Here: "
            f"{', '.join(ours) or 'none yet'}. Copy the directory of that authority to this controller (ca_dir; "
            "pki_ca_dir of role pki), or set replace_authority: true (pki_replace_authority), which shuts out every "
            "client and hypervisor of the other one"
        )


_ORDER = [
    "authority",
    "files",
    "subject",
    "names",
    "usage",
    "revoked",
    "issuer",
    "not_after",
    "key",
    "renewal",
    "trusts",
    "refuses",
]


def _why(changes: t.Iterable[Change]) -> str:
    return ", ".join(sorted({change.where.rpartition(".")[2] for change in changes}, key=_ORDER.index))


def _changes(wanted: TlsSpec, found: FoundTls, now: datetime.datetime) -> t.Iterator[Change]:
    """All changes that require new certificates, in words that are the same in check mode."""
    prefix = wanted.identity.name
    if any(file.foreign for file in found.files.values()):
        yield Change(f"{prefix}.authority", ", ".join(found.authorities) or "another authority", "this authority")
    parts = [place for place in wanted.identity.places if place.kind in ("cert", "key")]
    faults = {
        place.path: found.files[place.path].fault
        for place in parts
        if place.path in found.files and found.files[place.path].fault
    }
    missing = [place.path for place in parts if place.path not in found.files]
    if missing or faults:
        before = [f"{path} {fault}" for path, fault in sorted(faults.items())]
        yield Change(f"{prefix}.files", before or None, sorted([*missing, *faults]))
    for purpose in wanted.identity.purposes:
        yield from _of_one(wanted, found, purpose, now)
    for path, file in sorted(found.files.items()):
        if file.place.kind == "key" and file.mode & 0o077 & ~wanted.identity.mode(file.place):
            yield Change(f"{prefix}.key", f"{path} could be read by others ({file.mode:04o})", "a new key")
    if wanted.force and found.certificates:
        yield Change(f"{prefix}.renewal", "not asked for", "asked for")


def _of_one(wanted: TlsSpec, found: FoundTls, purpose: str, now: datetime.datetime) -> t.Iterator[Change]:
    """Changes to the certificate for one purpose."""
    prefix, certificate, trust = f"{wanted.identity.name}.{purpose}", found.certificates.get(purpose), wanted.trust

    def change(where: str, before: object, after: object) -> t.Iterator[Change]:
        if before != after:
            yield Change(f"{prefix}.{where}", before, after)

    yield from change("subject", certificate and certificate.subject, wanted.subject)
    yield from change("names", certificate and list(certificate.names), list(wanted.names))
    yield from change("usage", certificate and list(certificate.usages), list(usages(purpose)))
    if certificate is None:
        return
    if certificate.serial in trust.revoked or certificate.serial in trust.refuses:
        yield Change(f"{prefix}.revoked", f"{certificate.serial} is revoked", "another one")
    if certificate.issuer != trust.signer and certificate.issuer in {**trust.trusts, **trust.retired}:
        known = {**dict.fromkeys(trust.retired, "a retired CA"), **trust.trusts}
        yield Change(f"{prefix}.issuer", known[certificate.issuer], known[trust.signer])
    if certificate.not_after - now < wanted.renew_before:
        left = (certificate.not_after - now) // _DAY
        yield Change(f"{prefix}.not_after", f"{certificate.not_after:%Y-%m-%d} ({left} days left)", "renewed")


def _trust(wanted: TlsSpec, found: FoundTls) -> t.Iterator[Change]:
    """Changes to trusted CAs and revocations that differ from the authority's."""
    prefix, trust = wanted.identity.name, wanted.trust
    before, after = sorted(found.trusts.values()), sorted(trust.trusts.values())
    if before != after:
        yield Change(f"{prefix}.trusts", before or None, after)
    if not found.same_crl:
        yield Change(f"{prefix}.refuses", list(found.refuses), list(trust.refuses))


def _modes(wanted: TlsSpec, found: FoundTls) -> t.Iterator[SetMode]:
    for place in wanted.identity.places:
        file, mode = found.files.get(place.path), wanted.identity.mode(place)
        if file is None:
            continue  # no authority need have a CRL
        group = "root" if wanted.owner == "root" and place.kind != "key" else wanted.group
        if (file.owner, file.group, file.mode) != (wanted.owner, group, mode):
            yield SetMode(place, wanted.owner, group, mode)


def _mode_change(file: FoundTlsFile, step: SetMode) -> Change:
    after = f"{step.owner}:{step.group} {step.mode:04o}"
    return Change(f"{file.place.path}", f"{file.owner}:{file.group} {file.mode:04o}", after)
