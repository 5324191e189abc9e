# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a certificate: its signer, its extensions and its validity."""

from __future__ import annotations

import datetime
import typing as t

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
except ImportError:  # who reads certificates says so
    x509 = None  # type: ignore[assignment]

CAN_READ = x509 is not None
# What the library raises for a damaged certificate, or list of revoked ones.
UNREADABLE: tuple[type[Exception], ...] = (
    (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
    if CAN_READ
    else ()
)


def signed(certificate: t.Any, authority: str) -> bool:
    """True if that CA (PEM) issued the certificate."""
    issuer = x509.load_pem_x509_certificate(authority.encode())
    signature, content, algorithm = (
        certificate.signature,
        certificate.tbs_certificate_bytes,
        certificate.signature_hash_algorithm,
    )
    key = issuer.public_key()
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, content, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, content, ec.ECDSA(algorithm))
        else:
            return False
    except InvalidSignature:
        return False
    return bool(certificate.issuer == issuer.subject)


def parsed(content: bytes) -> t.Any:
    """The certificate from PEM bytes; None if it is none, or damaged."""
    try:
        certificate = x509.load_pem_x509_certificate(content)
        # The library looks at most parts only when they are asked for.
        _parts = certificate.subject, certificate.issuer, certificate.extensions, certificate.public_key()
        _algorithm = certificate.signature_hash_algorithm
    except UNREADABLE:
        return None
    return certificate


def parsed_text(text: str) -> t.Any:
    """The certificate from a PEM text; None if it is none."""
    return parsed(text.encode())


def extension(certificate: t.Any, kind: t.Any) -> t.Any:
    """The value of a certificate's extension; None without it."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def is_authority(certificate: t.Any) -> bool:
    """True if the certificate is a CA's."""
    constraints = extension(certificate, x509.BasicConstraints)
    return bool(constraints and constraints.ca)


def spelled(name: t.Any) -> str:
    """A distinguished name as libvirt's `tls_allowed_dn_list` compares it: in the certificate's order."""
    return ",".join(rdn.rfc4514_string() for rdn in name.rdns)


def validity(certificate: t.Any) -> tuple[datetime.datetime, datetime.datetime]:
    """The first and the last moment of a certificate's validity, in UTC."""
    if hasattr(certificate, "not_valid_after_utc"):  # since cryptography 42
        return certificate.not_valid_before_utc, certificate.not_valid_after_utc
    zone = datetime.timezone.utc
    return certificate.not_valid_before.replace(tzinfo=zone), certificate.not_valid_after.replace(tzinfo=zone)


def authority_key(certificate: t.Any) -> str:
    """The identifier (SHA-1, hex) of the key that signed a certificate, from its extension; empty without that.

    It is all that a host's certificate tells of its CA's key; `openssl x509 -noout -ext subjectKeyIdentifier` shows
    that of a CA.
    """
    found = extension(certificate, x509.AuthorityKeyIdentifier)
    return found.key_identifier.hex() if found and found.key_identifier else ""
