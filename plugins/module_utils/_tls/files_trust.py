# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An authority's PEM texts: CAs and lists of revoked certificates."""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    CAN_READ,
    UNREADABLE,
    parsed_text,
    validity,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import Trust, TrustFaults

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
except ImportError:  # who reads certificates says so
    x509 = None  # type: ignore[assignment]

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


def each(text: str, kind: str = "CERTIFICATE") -> list[str]:
    """Every certificate (or CRL: `X509 CRL`) of a PEM text.

    The library's own reader of several came with version 39.
    """
    return [found[0] + "\n" for found in _BLOCK.finditer(text) if found[1] == kind]


def trust(
    text: str, crl: str = "", *, retired: str = "", revoked: t.Mapping[str, str] | None = None
) -> tuple[Trust, TrustFaults]:
    """The trust from an authority's PEM texts, and their faults; the first of its CAs signs."""
    if not CAN_READ:
        # a bare host has nothing to compare it with; who makes something says what is missing
        return Trust(text=text, crl=crl), TrustFaults()
    serials = refused(crl)
    listed = serials is not None and bool(each(crl, "X509 CRL") or not crl.strip())
    now, unreadable = _by_fingerprint(each(text))
    gone, unreadable_retired = _by_fingerprint(each(retired))
    faults = TrustFaults(
        no_certificate=bool(text.strip()) and not each(text),
        unreadable=unreadable,
        unreadable_retired=unreadable_retired,
        no_crl=not listed,
        crl_end=_ended(crl) if listed else None,
    )
    found = Trust(
        text="".join(now.values()),
        crl=crl,
        trusts={digest: called(parsed_text(pem)) for digest, pem in now.items()},
        starts={digest: validity(parsed_text(pem))[0] for digest, pem in now.items()},
        signer=next(iter(now), ""),
        retired={digest: pem for digest, pem in gone.items() if digest not in now},
        refuses=tuple(sorted(serials or ())),
        revoked=revoked or {},
    )
    return found, faults


def _by_fingerprint(texts: t.Iterable[str]) -> tuple[dict[str, str], bool]:
    """Certificates by fingerprint (PEM), and True if one cannot be read."""
    certificates = [(parsed_text(pem), pem) for pem in texts]
    found = {fingerprint(certificate): pem for certificate, pem in certificates if certificate is not None}
    return found, any(certificate is None for certificate, _pem in certificates)


def refused(crl: str, *, by: t.Sequence[str] | None = None) -> list[str] | None:
    """The serials (hex) in the CRLs of a text, with `by` only in those of these CAs (PEM).

    None if one cannot be read; with `by`, such a CRL is skipped.
    """
    lists = [_read_list(text) for text in each(crl, "X509 CRL")]
    if by is not None:
        keys = [parsed_text(text).public_key() for text in by]
        lists = [found for found in lists if found is not None and any(found.is_signature_valid(key) for key in keys)]
    if None in lists:
        return None
    return [f"{entry.serial_number:x}" for found in lists for entry in found]


def _read_list(text: str) -> t.Any:
    """The CRL from PEM; None if it is none."""
    try:
        return x509.load_pem_x509_crl(text.encode())
    except UNREADABLE:
        return None


def _ended(crl: str) -> datetime.datetime | None:
    """When the first of the CRLs of a text expires; None: never."""
    lists = [x509.load_pem_x509_crl(text.encode()) for text in each(crl, "X509 CRL")]
    ends = [_next_update(found) for found in lists]
    return min((end for end in ends if end), default=None)


def _next_update(found: t.Any) -> datetime.datetime | None:
    if hasattr(found, "next_update_utc"):  # since cryptography 42
        return t.cast("datetime.datetime | None", found.next_update_utc)
    end = found.next_update
    return end.replace(tzinfo=datetime.timezone.utc) if end else None


def fingerprint(certificate: t.Any) -> str:
    """The certificate's SHA-256 fingerprint, hex."""
    return t.cast(str, certificate.fingerprint(hashes.SHA256()).hex())


def called(certificate: t.Any) -> str:
    """A CA's name and fingerprint, for messages."""
    return f"{certificate.subject.rfc4514_string()} (SHA-256 {fingerprint(certificate)})"
