# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate that this machine uses as a client of libvirt, and problems with its files."""

from __future__ import annotations

import dataclasses
import datetime
import os
import ssl
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import OWNER, remedy
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    CAN_READ,
    authority_key,
    parsed,
    signed,
    spelled,
    validity,
)

_ISSUE = "the role corral.virt.pki issues a new one"
_MAKES_IT = "the role corral.virt.pki creates it"
_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclasses.dataclass(frozen=True)
class Credentials:
    """Paths of a client's TLS files. `revoked` is a CRL, which need not exist."""

    authority: str
    certificate: str
    key: str
    revoked: str


def of(uri: str) -> Credentials | None:
    """The files that libvirt reads here to reach a URI over TLS; None for another transport."""
    place = urllib.parse.urlsplit(uri)
    if not place.hostname or place.scheme.partition("+")[2] not in ("tls", ""):  # libvirt takes TLS where none is named
        return None
    directories = urllib.parse.parse_qs(place.query).get("pkipath")
    if directories:
        return _below(directories[-1])
    system = Credentials(
        "/etc/pki/CA/cacert.pem",
        "/etc/pki/libvirt/clientcert.pem",
        "/etc/pki/libvirt/private/clientkey.pem",
        "/etc/pki/CA/cacrl.pem",
    )
    if os.geteuid() == 0:
        return system
    own = _below(os.path.expanduser("~/.pki/libvirt"))
    authority = own.authority if os.path.exists(own.authority) else system.authority
    revoked = own.revoked if os.path.exists(own.revoked) else system.revoked
    pair = own if os.path.exists(own.certificate) and os.path.exists(own.key) else system  # libvirt takes both or none
    return Credentials(authority, pair.certificate, pair.key, revoked)


def missing(own: Credentials) -> str:
    """The message about a missing file; empty if all exist."""
    for path in (own.authority, own.certificate, own.key):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return f"this machine has no {path} yet; {_MAKES_IT}"
        except OSError:
            break  # it is there, or nobody can tell
    return ""


def is_missing(reason: str) -> bool:
    """True if that reason is the message of `missing`."""
    return reason.endswith(_MAKES_IT)


def fault(own: Credentials) -> str:
    """A problem with the files, and its remedy; empty if there is none, or without cryptography."""
    try:
        texts = {path: _text(path) for path in (own.authority, own.certificate, own.key)}
    except OSError as error:
        return (
            missing(own)
            or f"this user (uid {os.geteuid()}) cannot read {error.filename}: {error.strerror}; "
            f"{remedy(error, denied=OWNER)}"
        )
    if not CAN_READ:
        return ""
    for path in (own.authority, own.certificate):
        wrong = _dates(path, parsed(texts[path].encode()))
        if wrong:
            return wrong
    try:
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), own)
    except ssl.SSLError as error:
        other = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        reason = f"does not match {own.certificate}" if other else f"cannot be read without a passphrase ({error})"
        return f"{own.key} {reason}; {_ISSUE}"
    authorities = [_BEGIN + part for part in texts[own.authority].split(_BEGIN)[1:]]
    certificate, chain = parsed(texts[own.certificate].encode()), texts[own.certificate].count(_BEGIN) > 1
    if chain or any(signed(certificate, authority) for authority in authorities):
        return ""
    issuer, key = spelled(certificate.issuer), authority_key(certificate) or "unknown"
    return f"the certificate {own.certificate} is not signed by {own.authority} but by {issuer} (key {key}); {_ISSUE}"


def load(context: ssl.SSLContext, own: Credentials) -> None:
    """Load the certificate into a context; raises SSLError if the key does not match."""
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # libvirt takes short keys
    context.load_cert_chain(own.certificate, own.key, password="")  # without, it asks on the terminal


def _below(directory: str) -> Credentials:
    return Credentials(
        *(os.path.join(directory, name) for name in ("cacert.pem", "clientcert.pem", "clientkey.pem", "cacrl.pem"))
    )


def _text(path: str) -> str:
    with open(path, errors="replace") as stream:
        return stream.read()


def _dates(path: str, certificate: t.Any) -> str:
    if certificate is None:
        return f"{path} is not a certificate; {_ISSUE}"
    (start, end), now = validity(certificate), datetime.datetime.now(datetime.timezone.utc)
    if now > end:
        return f"the certificate {path} expired on {end:%Y-%m-%d}; {_ISSUE}"
    if now < start:
        return (
            f"the certificate {path} is valid only from {start:%Y-%m-%d %H:%M} UTC on, and it is "
            f"{now:%Y-%m-%d %H:%M} here: set the clock"
        )
    return ""
