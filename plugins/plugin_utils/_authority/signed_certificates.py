# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificates that the authorities have signed, by their records."""

from __future__ import annotations

import datetime
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import agree
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import parsed, signed
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import AUTHORITIES, TlsSpec
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_authority import Holder
from ansible_collections.corral.virt.plugins.plugin_utils._authority.authority_records import Issued, Records
from ansible_collections.corral.virt.plugins.plugin_utils._authority.ca import Pair, Pairs

try:
    from cryptography.x509.oid import NameOID
except ImportError:
    NameOID = None  # type: ignore[assignment,misc]

Clock = t.Callable[[], datetime.datetime]


class SignedCertificates:
    """The signed certificates that are not revoked. Callers hold the lock of the records."""

    def __init__(self, records: Records, cas: Pairs, clock: Clock) -> None:
        self._records, self._cas, self._clock = records, cas, clock

    def unrevoked(self) -> list[Issued]:
        """Certificates that were signed here and are not revoked."""
        return self._records.issued(self.read)

    def read(self, path: Path, text: bytes) -> Issued:
        """A certificate (PEM), with who holds it and which CA signed it."""
        certificate = parsed(text)
        if certificate is None:
            raise Refused(
                f"cannot read {path}, a certificate that was signed here; restore it, or remove it if its holder is "
                "gone"
            )
        description = files_tls.describe(certificate)
        holder, unit = (
            str(certificate.subject.get_attributes_for_oid(oid)[0].value)
            for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME)
        )
        cas = {
            pair.certificate: pair.generation.digest for authority in AUTHORITIES for pair in self._cas.of(authority)
        }
        issuer = next((digest for pem, digest in cas.items() if signed(certificate, pem)), "")
        return Issued(
            path,
            description.serial,
            holder,
            unit,
            issuer,
            description.subject,
            description.names,
            description.not_after,
        )

    @staticmethod
    def distrusted(authority: str, pairs: t.Sequence[Pair], issued: t.Sequence[Issued]) -> list[Issued]:
        """Certificates to refuse though not revoked: an earlier version's CA signed them for QEMU, as servers, too."""
        own = {pair.generation.digest for pair in pairs if not pair.generation.shared}
        return [one for one in issued if one.superseded and one.authority != authority and one.issuer in own]

    def holders(self, authority: str, issued: t.Sequence[Issued]) -> list[Holder]:
        """Holders of valid certificates. Without a record, a holder trusts the CAs that signed its certificates."""
        moment, uses = self._clock(), t.cast(dict[str, set[str]], {})
        for one in issued:
            if one.authority == authority and one.not_after > moment and not one.superseded:
                uses.setdefault(one.holder, set()).add(one.issuer)
        return [Holder(name, self._recorded_trust(name, authority) or used, used) for name, used in uses.items()]

    def _recorded_trust(self, name: str, authority: str) -> set[str]:
        return {*self._records.host(name).get("trusts", {}).get(authority, [])}

    def refuse_taken(self, wanted: TlsSpec, issued: t.Sequence[Issued]) -> None:
        """Raises Refused with every name that is in another holder's valid certificate."""
        moment, taken = self._clock(), []
        for one in issued:
            both = sorted({*one.names} & {*wanted.names})
            if one.holder != wanted.common_name and both and one.not_after > moment:
                belong = agree(len(both), "belongs", "belong")
                taken.append(f"{', '.join(both)} {belong} to {one.holder} until {one.not_after:%Y-%m-%d} ({one.path})")
        if taken:
            raise Refused(
                f"cannot sign for {wanted.common_name}: {'; '.join(taken)}, and two hosts with one name could "
                "impersonate each other; correct the names, or revoke the other one's certificates if that host is "
                "gone (virt_tls with state: revoked)"
            )
