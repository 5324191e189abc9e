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

from ansible_collections.corral.virt.plugins.module_utils._files.certificate import extension, parsed, signed, validity

from .durable import replace

__all__ = ["converge"]

_CA_DAYS, _DAYS, _RENEW_DAYS = 3650, 397, 30
_EARLIER = datetime.timedelta(hours=1)  # clocks differ


def converge(
    directory: Path, names: t.Sequence[str], *, write: bool, now: datetime.datetime | None = None
) -> list[str]:
    """Make `ca.crt`, `ca.key`, `server.crt` and `server.key` where they are missing, end soon or name others.

    Returns what it makes. Keys are of mode 0600 and belong to who runs this.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    steps = []
    if not _lasts(directory / "ca.crt", now):
        steps.append("create a certificate authority")
        if write:
            _make_authority(directory, now)
    if steps or not _good(directory, names, now):
        steps.append(f"create a certificate for {', '.join(names)}")
        if write:
            _make_certificate(directory, names, now)
    return steps


def _read(path: Path) -> t.Any:
    return parsed(path.read_bytes()) if path.exists() else None


def _lasts(path: Path, now: datetime.datetime) -> bool:
    found = _read(path)
    return bool(found and validity(found)[1] > now + datetime.timedelta(days=_RENEW_DAYS))


def _good(directory: Path, names: t.Sequence[str], now: datetime.datetime) -> bool:
    found = _read(directory / "server.crt")
    if not found or not _lasts(directory / "server.crt", now) or not (directory / "server.key").exists():
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
