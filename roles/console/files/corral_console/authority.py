# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate authority of the console's own, which signs its certificate and nothing else."""

from __future__ import annotations

import datetime
import ipaddress
import typing as t
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    extension,
    parsed,
    signed,
    validity,
)

from .config import BadConfig
from .durable import replace

__all__ = ["converge"]

_CA_DAYS, _DAYS, _RENEW_DAYS = 3650, 397, 30
_EARLIER = datetime.timedelta(hours=1)  # clocks differ


def converge(
    directory: Path, names: t.Sequence[str], *, write: bool, now: datetime.datetime | None = None
) -> list[str]:
    """Make `ca.crt`, `ca.key`, `server.crt` and `server.key` where they are missing or end soon, or do not fit.

    A certificate that begins in the future is made anew: browsers refuse it until that day. The clock was wrong when it
    was made, or is wrong now: an authority of which that is true stays, as browsers trust it.
    Returns what it makes. Keys are of mode 0600 and belong to who runs this. Raises BadConfig before it writes.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    steps = []
    _check_time(directory / "ca.crt", now)
    if not _lasts(directory / "ca.crt", now):
        steps.append("create a certificate authority")
        if write:
            _make_authority(directory, now)
    if steps or not _good(directory, names, now):
        if not steps:
            _check_authority(directory)
        steps.append(f"create a certificate for {', '.join(names)}")
        if write:
            _make_certificate(directory, names, now)
    return steps


def _read(path: Path) -> t.Any:
    return parsed(path.read_bytes()) if path.exists() else None


def _lasts(path: Path, now: datetime.datetime) -> bool:
    found = _read(path)
    if not found:
        return False
    first, last = validity(found)
    return first <= now and last > now + datetime.timedelta(days=_RENEW_DAYS)


def _check_time(authority: Path, now: datetime.datetime) -> None:
    found = _read(authority)
    if found and validity(found)[0] > now:
        raise BadConfig(
            f"cannot use {authority}: it is valid only from {validity(found)[0]:%Y-%m-%d} on; set the clock of this "
            "machine, or, if it was wrong on that day, remove that file to make a new authority, which browsers do not "
            "trust yet"
        )


def _is_pair(certificate: t.Any, key: Path) -> bool:
    """Whether a key is that of a certificate; False for what is none. A run may have been killed between the two."""
    try:
        found = serialization.load_pem_private_key(key.read_bytes(), None)
    except (FileNotFoundError, TypeError, ValueError):
        return False
    return _public(found.public_key()) == _public(certificate.public_key())


def _public(key: t.Any) -> bytes:
    """Keys cannot be compared before cryptography 40."""
    return t.cast(bytes, key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def _check_authority(directory: Path) -> None:
    """Never replace an authority that browsers trust without being told to."""
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if not _is_pair(_read(certificate), key):
        what = f"is not the key of {certificate}" if key.exists() else "is missing"
        raise BadConfig(
            f"cannot sign a certificate: {key} {what}; restore it from a backup, or remove {certificate} to make a new "
            "authority, which browsers do not trust yet"
        )


def _good(directory: Path, names: t.Sequence[str], now: datetime.datetime) -> bool:
    found = _read(directory / "server.crt")
    if not found or not _lasts(directory / "server.crt", now) or not _is_pair(found, directory / "server.key"):
        return False
    named = extension(found, x509.SubjectAlternativeName)
    return list(named or ()) == _general(names) and signed(found, (directory / "ca.crt").read_text())


def _general(names: t.Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(now: datetime.datetime, days: int, key: t.Any, subject: str, issuer: str) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=_name(subject), issuer_name=_name(issuer))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _EARLIER).not_valid_after(now + datetime.timedelta(days=days))


_CA_NAME = "corral.virt console"


def _make_authority(directory: Path, now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = _builder(now, _CA_DAYS, key, _CA_NAME, _CA_NAME)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = builder.add_extension(subject_key, critical=False).sign(key, hashes.SHA256())
    replace(directory / "ca.key", _pem(key), 0o600)
    replace(directory / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _make_certificate(directory: Path, names: t.Sequence[str], now: datetime.datetime) -> None:
    authority = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)  # noqa: S101 (made above)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(now, _DAYS, key, names[0][:64], _CA_NAME)
    builder = builder.add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    certificate = builder.add_extension(issuer, critical=False).sign(authority, hashes.SHA256())
    replace(directory / "server.key", _pem(key), 0o600)
    replace(directory / "server.crt", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
