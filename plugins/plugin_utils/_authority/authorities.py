# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two certificate authorities on the controller, and all that they signed:

libvirt/1/ca-cert.pem, ca-key.pem   a CA; the next one, when its end is near, is libvirt/2
qemu/1/ca-cert.pem, ca-key.pem
ca-cert.pem, ca-key.pem             the CA of an earlier version, which signed for both: libvirt's first one;
                                    QEMU trusts it until no certificate of it is in use
issued/SERIAL.pem                   a certificate in use
superseded/SERIAL.pem               a certificate that a newer one has replaced
revoked/SERIAL.json                 the record of a revoked certificate
crl/FINGERPRINT.pem                 a CA's list of revoked certificates
hosts/NAME.json                     the CAs that a host was seen to trust
controller/                         the controller's own certificate
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import re
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    UNREADABLE,
    is_authority,
    parsed_text,
    signed,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import called, each, fingerprint, refused
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import AUTHORITIES, TlsSpec, Trust
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_authority import due, lacking, trusted
from ansible_collections.corral.virt.plugins.module_utils._tls.run_tls_options import read_trust
from ansible_collections.corral.virt.plugins.plugin_utils._authority import ca as _ca
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authority_records import (
    Issued,
    Records,
    Revoke,
    TakeOver,
    revocation,
)
from ansible_collections.corral.virt.plugins.plugin_utils._authority.ca import ANEW, Pair, Pairs, pem_text
from ansible_collections.corral.virt.plugins.plugin_utils._authority.signed_certificates import (
    Clock,
    SignedCertificates,
)

try:
    from cryptography import x509
except ImportError:
    x509 = None  # type: ignore[assignment]

__all__ = ["Authorities", "HeldRevocations", "MakeAuthority", "ProtectKey", "Revoke", "TakeOver", "now"]

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class MakeAuthority(Step):
    """Make a CA's key and certificate."""

    template = "create a certificate authority for {0.authority} in {0.directory}"
    authority: str
    directory: str


@dataclasses.dataclass(frozen=True)
class ProtectKey(Step):
    """Write a CA's key with the passphrase."""

    template = "protect {0.directory}/ca-key.pem with the passphrase"
    directory: str


class HeldRevocations(t.NamedTuple):
    """Revocations and lists of revoked certificates (PEM, by CA's fingerprint) that only hosts have."""

    steps: tuple[TakeOver, ...] = ()
    lists: t.Mapping[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.steps or self.lists)


class _Held:
    """Revocations in lists that a CA of this directory signed."""

    def __init__(self) -> None:
        self.revoked: dict[str, tuple[str, datetime.datetime, set[str]]] = {}  # by serial: CA, since, hosts
        self.longest: dict[str, str] = {}  # by CA
        self._lengths: dict[str, int] = {}

    def read(self, text: str, hosts: t.Sequence[str], pairs: t.Sequence[Pair]) -> None:
        """Read one list (PEM) of these hosts; a list that none of these CAs signed is ignored."""
        try:
            found = x509.load_pem_x509_crl(text.encode())
        except UNREADABLE:
            return  # whose ever it is, no CA's
        for pair in pairs:
            if not found.is_signature_valid(parsed_text(pair.certificate).public_key()):
                continue
            digest, entries = pair.generation.digest, [*found]
            for entry in entries:
                since, serial = _since(entry), f"{entry.serial_number:x}"
                self.revoked.setdefault(serial, (digest, since, set()))[2].update(hosts)
            if len(entries) >= self._lengths.get(digest, 0):
                self.longest[digest], self._lengths[digest] = text, len(entries)


def _since(entry: t.Any) -> datetime.datetime:
    """The time at which an entry of a list was revoked."""
    if hasattr(entry, "revocation_date_utc"):  # since cryptography 42
        return t.cast(datetime.datetime, entry.revocation_date_utc)
    return t.cast(datetime.datetime, entry.revocation_date.replace(tzinfo=datetime.UTC))


def now() -> datetime.datetime:
    """The time of the controller's clock, in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Authorities:
    """The CAs, certificates and records of one directory.

    With `given` (certificates and key in PEM by authority), only those CAs sign.
    """

    def __init__(
        self,
        directory: str,
        *,
        given: t.Mapping[str, tuple[str, str]] | None = None,
        passphrase: str | None = None,
        retired: str = "",
        clock: Clock = now,
    ) -> None:
        files_tls.need_library(_ca.OLDEST, install=f"pip install 'cryptography>={_ca.OLDEST}' beside ansible-core")
        self._directory = Path(directory)
        self._given = given
        self._passphrase = passphrase
        self._retired = retired
        self._clock = clock
        self._records = Records(self._directory)
        self._cas = Pairs(self._directory, given, passphrase)
        self._signed = SignedCertificates(self._records, self._cas, clock)

    # What is there ---------------------------------------------------------------------------------------------------

    def trust(self, authority: str, *, name: str, gate: Gate) -> Trust:
        """The CAs and revocations that a host of this authority is to have; empty if there is no CA yet.

        A new list of revoked certificates is written to the directory.
        """
        pairs = self._cas.of(authority)
        if not pairs:
            return Trust()
        with self._records.steady():
            by_digest, issued = {pair.generation.digest: pair for pair in pairs}, self._signed.unrevoked()
            chosen = [by_digest[digest] for digest in self._chosen(authority, pairs, issued, name)]
            chosen[0].key()  # a CA that cannot sign is told of before it is needed
            text = "".join(pair.certificate for pair in chosen)
            gone = "".join(pair.certificate for pair in pairs if pair not in chosen) + self._retired
            crl = "".join(self._crl(authority, pair, issued, gate) for pair in chosen)
            moment = self._clock()
            distrusted = self._signed.distrusted(authority, pairs, issued)
            off = {one.serial: one.subject for one in distrusted if one.not_after > moment}
            off.update({serial: entry["subject"] for serial, entry in self._records.revoked().items()})
        return read_trust(text, crl, retired=gone, revoked=off)

    def due(self, authority: str, *, days: int) -> list[MakeAuthority]:
        """The CA to create, if one is due. Raises Refused if the last CA was lost."""
        step = self.another(authority)  # before the look: a CA that another process makes meanwhile is this one
        if self._given is not None or not due(
            self._cas.generations(authority), now=self._clock(), days=datetime.timedelta(days=days)
        ):
            return []
        moment = self._clock()
        holders = sorted(
            {one.holder for one in self._signed.unrevoked() if one.authority == authority and one.not_after > moment}
        )
        if holders and not self._cas.generations(authority):
            raise Refused(
                f"cannot create a CA for {authority} in {self._directory}: there was one, and its certificates are "
                f"still valid, those of {', '.join(holders)}; restore {self._directory / authority} from the backup, "
                f"or {ANEW}"
            )
        return [step]

    def another(self, authority: str) -> MakeAuthority:
        """A step that creates another CA for the authority."""
        numbers = [int(folder.name) for folder in self._cas.folders(authority)]
        return MakeAuthority(authority, str(self._directory / authority / str(max(numbers, default=0) + 1)))

    def unprotected(self) -> list[ProtectKey]:
        """Steps for the CA keys that are not encrypted although a passphrase is given."""
        if not self._passphrase or self._given is not None:
            return []
        keys = [
            folder / "ca-key.pem"
            for folder in (self._directory, *self._cas.folders("libvirt"), *self._cas.folders("qemu"))
        ]
        return [ProtectKey(str(path.parent)) for path in keys if path.exists() and _is_open(path)]

    def rolling(self, *, name: str) -> dict[str, list[str]]:
        """By authority whose CA is being replaced: the hosts that do not yet trust the new CA.

        If all trust it: the hosts that still use the old one.
        """
        found: dict[str, list[str]] = {}
        with self._records.steady():
            issued = self._signed.unrevoked()
        for authority in AUTHORITIES:
            pairs = self._cas.of(authority) if self._given is None else []
            generations = [pair.generation for pair in pairs]
            if len(generations) < 2 or len(self._chosen(authority, pairs, issued, name)) == 1:
                continue
            holders = self._signed.holders(authority, issued)
            # Those who trust it are not late: they wait for the others, too.
            late = lacking(generations[-1], holders, name="")
            found[authority] = sorted(
                late or {holder.name for holder in holders if holder.uses - {generations[-1].digest}}
            )
        return found

    def ends(self) -> dict[str, datetime.datetime]:
        """When the last CA of each authority expires."""
        return {
            name: max(one.not_after for one in found) for name in AUTHORITIES if (found := self._cas.generations(name))
        }

    # What is done ----------------------------------------------------------------------------------------------------

    def make(self, step: MakeAuthority, *, within: t.Sequence[str] = ()) -> None:
        """Make a CA unless another process has just done so."""
        with self._records.locked():
            place = Path(step.directory)
            if (place / "ca-cert.pem").exists():
                return
            for pair in self._cas.of(step.authority)[-1:]:
                # With a wrong or forgotten passphrase the next CA would be lost, or readable by all.
                self._cas.open(pair)
            certificate, key = _ca.make(step.authority, now=self._clock(), passphrase=self._passphrase, within=within)
            for folder in (place.parent, place):
                folder.mkdir(mode=0o700, exist_ok=True)
            # The certificate last: where it is, the key is too.
            files_tls.write(place / "ca-key.pem", key, mode=0o600)
            files_tls.write(place / "ca-cert.pem", certificate, mode=0o644)

    def protect(self, step: ProtectKey) -> None:
        """Encrypt a key with the passphrase, unless another process has just done so."""
        with self._records.locked():
            path = Path(step.directory, "ca-key.pem")
            if not _is_open(path):
                return
            opened = _ca.CertificateAuthority(
                pem_text(path.parent / "ca-cert.pem"),
                pem_text(path),
                passphrase=None,
                named=f"the CA in {path.parent}",
            )
            files_tls.write(path, _ca.encrypted(opened.key, self._passphrase), mode=0o600)

    def sign(self, request: str, wanted: TlsSpec, *, days: int) -> str:
        """The certificates (PEM) of an identity, for the key of the request.

        Raises Refused if a requested name is in another holder's valid certificate.
        """
        authority = wanted.identity.authority
        with self._records.locked():
            issued = self._signed.unrevoked()
            self._signed.refuse_taken(wanted, issued)
            pairs = self._cas.of(authority)
            first = self._chosen(authority, pairs, issued, wanted.common_name)[0]
            (pair,) = [pair for pair in pairs if pair.generation.digest == first]
            texts = self._cas.open(pair).sign(request, wanted, days=days, now=self._clock())
            for serial, text in texts:
                # What was never written down can never be revoked.
                path = self._directory / f"issued/{serial}.pem"
                self._records.write(f"issued/{path.name}", self._signed.read(path, text).line().encode() + text)
        return "".join(text.decode() for _serial, text in texts)

    def learn(self, certificates: t.Mapping[str, t.Iterable[str]]) -> None:
        """Record certificates (PEM, by host) that a CA of ours has signed and this directory lacks.

        Only recorded certificates can be revoked.
        """
        if not certificates:
            return
        with self._records.locked():
            known = {*self._records.revoked(), *(one.serial for one in self._signed.unrevoked())}
            cas = [pair.certificate for name in AUTHORITIES for pair in self._cas.of(name)]
            for host, text in ((host, text) for host, texts in certificates.items() for text in texts):
                found = parsed_text(text)
                if found is None or f"{found.serial_number:x}" in known or not any(signed(found, ca) for ca in cas):
                    continue
                certificate = self._signed.read(self._directory / "issued/fresh.pem", text.encode())
                if certificate.holder == host and not is_authority(found):
                    self._records.write(f"issued/{certificate.serial}.pem", certificate.line().encode() + text.encode())

    def seen(
        self,
        name: str,
        *,
        trusts: t.Mapping[str, t.Sequence[str]],
        serials: t.Mapping[str, t.Sequence[str]],
        **more: t.Any,
    ) -> None:
        """Record which CAs a host trusts, by authority, and that it uses exactly these certificates."""
        with self._records.locked():
            before = self._records.host(name)
            ends: dict[str, str] = {}
            for one in self._signed.unrevoked():
                if one.holder != name or one.authority not in serials:
                    continue
                used = one.serial in serials[one.authority]
                if used:
                    end = one.not_after.isoformat()
                    ends[one.authority] = min(end, ends.get(one.authority, end))
                if used is one.superseded:  # a host may have come back with what it had before
                    folder = self._directory / ("issued" if used else "superseded")
                    folder.mkdir(mode=0o700, exist_ok=True)
                    one.path.rename(folder / one.path.name)
            trusted = {
                key: sorted(filter(_DIGEST.fullmatch, map(str, value)))
                for key, value in trusts.items()
                if key in AUTHORITIES
            }
            host_record = {**more, "ends": ends, "trusts": {**before.get("trusts", {}), **trusted}}
            if host_record != before:
                self._records.write(
                    f"hosts/{name}.json", json.dumps(host_record, sort_keys=True, indent=1).encode() + b"\n"
                )

    def to_revoke(self, *, names: t.Collection[str]) -> list[Revoke]:
        """Steps that revoke all valid certificates of these holders."""
        with self._records.steady():
            moment = self._clock()
            return [Revoke(one) for one in self._signed.unrevoked() if one.holder in names and one.not_after > moment]

    def knows(self, name: str) -> bool:
        """True if a certificate, valid or not, is recorded for that name."""
        with self._records.steady():
            subjects = {entry["subject"].rpartition("CN=")[2] for entry in self._records.revoked().values()}
            return name in subjects or any(one.holder == name for one in self._signed.unrevoked())

    def gone(self, *, stay: t.Collection[str], inventories: t.Collection[str]) -> tuple[list[str], list[str]]:
        """Holders of valid certificates that are in none of the inventories any more.

        The second list has those other holders whose inventory is unknown.
        """
        left, strange = [], []
        for name in sorted({step.certificate.holder for step in self._all_valid()} - {*stay}):
            inventory = self._records.host(name).get("inventory")
            if inventory in inventories:
                left.append(name)
            elif inventory is None:
                strange.append(name)
        return left, strange

    def _all_valid(self) -> list[Revoke]:
        with self._records.steady():
            return self.to_revoke(names={one.holder for one in self._signed.unrevoked()})

    def revoke(self, step: Revoke) -> None:
        """Revoke a certificate."""
        one = step.certificate
        with self._records.locked():
            self._write_off(one.serial, one.issuer, one.subject, self._clock())

    def records_of(self, steps: t.Sequence[Revoke]) -> dict[str, dict[str, str]]:
        """What the records will say of these revocations, by serial."""
        now = self._clock()
        return {one.serial: revocation(one.issuer, one.subject, now) for one in (step.certificate for step in steps)}

    def assume_revoked(self, entries: t.Mapping[str, dict[str, str]]) -> None:
        """In check mode, treat these revocations as written."""
        self._records.assume(entries)

    def _write_off(self, serial: str, issuer: str, subject: str, since: datetime.datetime) -> None:
        """Record a revocation, unless another run has done so, and remove the certificate's file."""
        if serial not in self._records.revoked():
            self._records.revoke(serial, issuer, subject, now=since)
        for folder in ("issued", "superseded"):  # `seen` may have moved it since the plan
            (self._directory / f"{folder}/{serial}.pem").unlink(missing_ok=True)
        holder = subject.rpartition("CN=")[2]
        if holder and not self.to_revoke(names=[holder]):  # until then a run that is killed is to be ended by the next
            (self._directory / f"hosts/{holder}.json").unlink(missing_ok=True)

    # What hosts hold -------------------------------------------------------------------------------------------------

    def unknown(
        self, crls: t.Mapping[str, t.Sequence[str]], authorities: t.Sequence[str] = AUTHORITIES
    ) -> HeldRevocations:
        """Revocations in lists (PEM, with the hosts that have them) that this directory lacks.

        Only lists that a CA of these authorities signed count.
        """
        with self._records.steady():
            held, issued = _Held(), self._signed.unrevoked()
            subjects = {one.serial: one.subject for one in issued}
            known = {*self._records.revoked()}
            for authority in authorities:
                pairs = self._cas.of(authority)
                known |= {one.serial for one in self._signed.distrusted(authority, pairs, issued)}
                for crl, hosts in crls.items():
                    for text in each(crl, "X509 CRL"):
                        held.read(text, hosts, pairs)
            lists = {digest: text for digest, text in held.longest.items() if self._is_longer(digest, text)}
        steps = [
            TakeOver(serial, digest, subjects.get(serial, ""), since, tuple(sorted(holders)))
            for serial, (digest, since, holders) in sorted(held.revoked.items())
            if serial not in known
        ]
        return HeldRevocations(tuple(steps), lists)

    def _is_longer(self, digest: str, text: str) -> bool:
        """True if a list revokes more than the one here. Without the CA's key no other list can be had."""
        here = self._records.crl(digest)
        return here is None or {*(refused(here) or ())} < {*(refused(text) or ())}

    def take_over(self, step: TakeOver) -> None:
        """Record here a revocation that a host's list has."""
        with self._records.locked():
            self._write_off(step.serial, step.issuer, step.subject, step.since)

    def keep_lists(self, lists: t.Mapping[str, str]) -> None:
        """Write those lists of CAs (PEM, by fingerprint) that are longer than those here."""
        with self._records.locked():
            for digest, text in lists.items():
                if self._is_longer(digest, text):
                    self._records.write(f"crl/{digest}.pem", text.encode())

    def assume(self, held: HeldRevocations) -> None:
        """In check mode, treat these revocations as taken over."""
        self._records.assume(
            {one.serial: revocation(one.issuer, one.subject, one.since) for one in held.steps}, held.lists
        )

    def adopt(self, authority: str, crl: str, *, host: str = "") -> HeldRevocations:
        """Take over revocations from a host's list that a CA of this authority signed for another controller."""
        with self._records.locked():
            held = self.unknown({crl: [host]}, [authority])
            for step in held.steps:
                self.take_over(step)
            self.keep_lists(held.lists)
        return held

    def strangers(self, certificates: t.Mapping[str, t.Sequence[str]]) -> dict[str, list[str]]:
        """CAs (in words) among the certificates of hosts (PEM) that this directory lacks, with those hosts."""
        ours = {generation.digest for name in AUTHORITIES for generation in self._cas.generations(name)}
        ours |= {fingerprint(one) for one in map(parsed_text, each(self._retired)) if one}
        found: dict[str, list[str]] = {}
        for host, texts in certificates.items():
            for certificate in filter(None, map(parsed_text, texts)):
                if is_authority(certificate) and fingerprint(certificate) not in ours:
                    found.setdefault(called(certificate), []).append(host)
        return found

    def recorded(self) -> set[str]:
        """Names of the hosts that have a record."""
        return {path.stem for path in self._directory.glob("hosts/*.json")}

    def remembers(self) -> bool:
        """True if the directory should know all revocations; False for a job's directory, which starts empty."""
        folders = ("issued", "superseded", "revoked")
        return self._given is None or any(any(self._directory.glob(f"{folder}/*")) for folder in folders)

    def steady(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other process writes; it creates nothing if the directory does not exist."""
        return self._records.steady()

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """A context that one process at a time may enter; it can be nested."""
        return self._records.locked()

    def _chosen(
        self, authority: str, pairs: t.Sequence[Pair], issued: t.Sequence[Issued], name: str
    ) -> tuple[str, ...]:
        """Fingerprints of the CAs that the named host trusts, the signing one first."""
        generations = [pair.generation for pair in pairs]
        if self._given is not None:
            return tuple(generation.digest for generation in reversed(generations))
        return trusted(generations, self._signed.holders(authority, issued), name=name, now=self._clock())

    def _crl(self, authority: str, pair: Pair, issued: t.Sequence[Issued], gate: Gate) -> str:
        """A CA's list of revoked certificates (PEM); the kept one, or empty, if its key is elsewhere."""
        digest = pair.generation.digest
        entries = {
            serial: entry["since"] for serial, entry in self._records.revoked().items() if entry["issuer"] == digest
        }
        off = self._signed.distrusted(authority, [pair], issued)
        entries.update({one.serial: (one.not_after - _ca.LIFE).isoformat() for one in off})
        kept = self._records.crl(digest)
        listed = refused(kept) if kept and each(kept, "X509 CRL") else None
        if kept and listed == sorted(entries, key=lambda serial: int(serial, 16)):
            return kept
        if not self._cas.can_sign(pair):
            if kept is not None and listed is None:
                place = self._directory / f"crl/{digest}.pem"
                raise Refused(
                    f"cannot read {place}, the list of certificates that {pair.place} has revoked; restore it"
                )
            return kept or ""
        lines = [
            _ca.Revoked(int(serial, 16), datetime.datetime.fromisoformat(since)) for serial, since in entries.items()
        ]
        text = self._cas.open(pair).crl(lines)
        gate.perform(lambda: self._write_down(f"crl/{digest}.pem", text), otherwise=lambda: None)
        return text.decode()

    def _write_down(self, name: str, content: bytes) -> None:
        with self._records.locked():
            self._records.write(name, content)


def _is_open(path: Path) -> bool:
    """True if a private key has no passphrase."""
    return b"ENCRYPTED" not in path.read_bytes()
