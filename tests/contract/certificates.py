"""Authorities and certificates as a test needs them: expired, not yet valid, for another name, of another authority."""

from __future__ import annotations

import datetime
import ipaddress
import typing as t
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "write_directory"]

DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM
# keys take their time: all certificates share one
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Authority:
    """A CA in memory."""

    def __init__(self, name: str) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.name = _name(name)
        key_id = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        draft = _draft(self.name, self.name, self.key.public_key(), first_day=-9, last_day=9).add_extension(
            key_id, critical=False
        )
        self.certificate = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            self.key, hashes.SHA256()
        )
        self.pem = self.certificate.public_bytes(_PEM)

    def issue(self, name: str, *names: str, first_day: int = -9, last_day: int = 9) -> x509.Certificate:
        """A certificate for DNS names and addresses, valid between two days counted from today."""
        draft = _draft(_name(name), self.name, _KEY.public_key(), first_day=first_day, last_day=last_day)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        draft = draft.add_extension(issuer, critical=False)
        if names:
            draft = draft.add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
        return draft.sign(self.key, hashes.SHA256())

    def revoke(self, certificate: x509.Certificate) -> bytes:
        """A revocation list with that certificate on it."""
        today = datetime.datetime.now(datetime.UTC)
        entry = (
            x509.RevokedCertificateBuilder()
            .serial_number(certificate.serial_number)
            .revocation_date(today - DAY)
            .build()
        )
        draft = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(today - DAY)
            .next_update(today + DAY)
        )
        return draft.add_revoked_certificate(entry).sign(self.key, hashes.SHA256()).public_bytes(_PEM)


def write_directory(directory: Path, role: str, authority: Authority, certificate: x509.Certificate) -> Path:
    """What libvirt reads below a `pkipath`; `role` is client or server."""
    directory.mkdir(exist_ok=True)
    (directory / "cacert.pem").write_bytes(authority.pem)
    (directory / f"{role}cert.pem").write_bytes(certificate.public_bytes(_PEM))
    key = _KEY.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / f"{role}key.pem").write_bytes(key)
    return directory


def _draft(
    subject: x509.Name, issuer: x509.Name, public: t.Any, *, first_day: int, last_day: int
) -> x509.CertificateBuilder:
    today = datetime.datetime.now(datetime.UTC)
    draft = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    draft = draft.serial_number(x509.random_serial_number())
    return draft.not_valid_before(today + first_day * DAY).not_valid_after(today + last_day * DAY)


def _name(common: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "cloud"), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
