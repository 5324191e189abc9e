# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a TLS connection to libvirt fails: problems here, of the peer, or with either's certificate.

libvirt's client says "Failed to verify peer's certificate" whatever is wrong with it, and "Unable to read TLS
confirmation" when its own is refused. So the files here are examined, and the peer is queried as libvirt does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import socket
import ssl
import threading
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import LIBVIRT_TLS
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._tls import files_credentials
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import (
    CAN_READ,
    UNREADABLE,
    authority_key,
    extension,
    spelled,
    validity,
)
from ansible_collections.corral.virt.plugins.module_utils._tls.files_credentials import Credentials

try:
    from cryptography import x509
except ImportError:  # then only libvirt's own words are known
    x509 = None  # type: ignore[assignment]

_ANSWER_S, _HANDSHAKE_S = 3, 6
_LOG = "journalctl -u libvirtd -u virtproxyd"
_CONFIRMED = b"\x01"  # what libvirt sends when it takes the client's certificate
_SHOWN = 200  # characters of what others say
# OpenSSL's numbers of what is wrong with a certificate: X509_V_ERR_...
_NOT_YET, _EXPIRED, _REVOKED = 9, 10, 23
_UNTRUSTED, _OTHER_NAME = (2, 18, 19, 20, 21), (62, 64)


@dataclasses.dataclass(frozen=True)
class _Peer:
    """The peer. `takes_ours`: True if it accepts our certificate; None if unknown."""

    address: str
    certificate: t.Any
    takes_ours: bool | None


def why(uri: str) -> str:
    """Why libvirt cannot be reached at a URI over TLS, and the remedy; empty if unknown.

    Takes at most 20 s.
    """
    own = files_credentials.of(uri)
    if own is None:
        return ""
    if not CAN_READ:
        return files_credentials.fault(own)
    place = urllib.parse.urlsplit(uri)
    host = place.hostname or ""
    checked = urllib.parse.parse_qs(place.query).get("no_verify", ["0"])[-1] == "0"
    with contextlib.suppress(*UNREADABLE):
        fault = files_credentials.fault(own) or _cause(host, place.port or LIBVIRT_TLS, own, checked=checked)
        return t.cast(str, printable(fault))
    return ""  # a certificate that cannot be read, here or there, or a port that is no number


def _cause(host: str, port: int, own: Credentials, *, checked: bool) -> str:
    try:
        peer = _handshake(host, port, own, checked=False)
        if peer is None:
            return ""
        flaw = _flaw(host, peer, own, _verdict(host, port, own, peer)) if checked else ""
    except socket.gaierror as error:
        return f"this machine cannot resolve {host} ({error.strerror}): add it to DNS or /etc/hosts"
    except ConnectionRefusedError:
        sockets = "systemctl start libvirtd-tls.socket, or virtproxyd-tls.socket"
        return (
            f"port {port} of {host} refuses connections: libvirt does not listen there, or a firewall rejects them; on "
            f"{host}: {sockets}"
        )
    except socket.timeout:
        return (
            f"port {port} of {host} does not answer within {_ANSWER_S} s: the machine is off or hangs, or a "
            "firewall drops packets"
        )
    except ssl.SSLError as error:
        reason = (error.reason or str(error))[:_SHOWN]
        return (
            f"port {port} of {host} does not complete the TLS handshake ({reason}); on {host}, `{_LOG}` shows whether "
            "libvirt listens there"
        )
    except OSError:
        return ""  # libvirt says the same
    return flaw or (_refusal(host, own) if peer.takes_ours is False else "")


def _handshake(host: str, port: int, own: Credentials, *, checked: bool) -> _Peer | None:
    """The peer, after a handshake as libvirt does it; None if it does not complete in time.

    Raises SSLCertVerificationError if `checked` and its certificate is invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    files_credentials.load(context, own)
    if checked:
        context.load_verify_locations(own.authority)
    else:
        # it is only described, and nothing of it trusted
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=_ANSWER_S) as plain:
        address = plain.getpeername()[0]
        with context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False) as secured:
            # Who sends a byte now and then is silent for none of the timeouts.
            timer = threading.Timer(_HANDSHAKE_S, socket.socket.shutdown, (secured, socket.SHUT_RDWR))
            timer.daemon = True
            timer.start()
            try:
                secured.do_handshake()
                content = secured.getpeercert(binary_form=True)  # like the address: gone once the other end has closed
                takes_ours = None if checked else _takes_ours(secured)
                if not content or not timer.is_alive():
                    return None
                return _Peer(address, x509.load_der_x509_certificate(content), takes_ours)
            finally:
                timer.cancel()


def _takes_ours(secured: ssl.SSLSocket) -> bool | None:
    try:
        answer = secured.recv(1)
    except socket.timeout:
        return None
    except OSError:
        return False
    if answer == _CONFIRMED:
        return True
    return None if answer else False


def _verdict(host: str, port: int, own: Credentials, peer: _Peer) -> int:
    """OpenSSL's code for the problem with the peer's certificate; 0 if there is none."""
    try:
        _handshake(host, port, own, checked=True)
    except ssl.SSLCertVerificationError as error:
        return error.verify_code
    return _REVOKED if _revokes(own, peer.certificate) else 0


def _revokes(own: Credentials, certificate: t.Any) -> bool:
    """True if the local CRL revokes a certificate of our authority."""
    with contextlib.suppress(OSError, ValueError):
        with open(own.revoked, "rb") as stream:
            return (
                x509.load_pem_x509_crl(stream.read()).get_revoked_certificate_by_serial_number(
                    certificate.serial_number
                )
                is not None
            )
    return False


def _flaw(host: str, peer: _Peer, own: Credentials, verdict: int) -> str:
    """What is wrong with the peer's certificate; empty if that need not be the cause."""
    start, end = validity(peer.certificate)
    subject = spelled(peer.certificate.subject)[:_SHOWN]
    its = f"{host} is {peer.address} here, and the machine there has a certificate for {subject}"
    renew = f"run the role corral.virt.pki on {host}"
    if verdict in _UNTRUSTED:
        return (
            f"{its} from another authority: {_authorities(peer.certificate, own)}; {renew} with the CA of this machine"
        )
    if verdict in _OTHER_NAME:
        mend = (
            f"correct the address of {host}, or if that is the right machine add {host} to its pki_names and run the "
            "role corral.virt.pki"
        )
        return f"{its}, valid for {_names(peer.certificate)} but not for {host}: {mend}"
    if verdict == _EXPIRED:
        return f"{its} that expired on {end:%Y-%m-%d}: {renew}"
    if verdict == _NOT_YET:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            f"{its} that is valid only from {start:%Y-%m-%d %H:%M} UTC on, and it is {now:%Y-%m-%d %H:%M} here: "
            "set the clocks"
        )
    if verdict == _REVOKED:
        return f"{its} that {own.revoked} revokes: issue a new one there with virt_tls and force: true"
    return ""  # OpenSSL is stricter than libvirt: this need not be the cause


def _authorities(certificate: t.Any, own: Credentials) -> str:
    """The CA that signed the certificate and the CA trusted here, with the fingerprints of their keys."""
    with open(own.authority, "rb") as stream:
        trusted = x509.load_pem_x509_certificate(stream.read())
    key = x509.SubjectKeyIdentifier.from_public_key(trusted.public_key()).digest.hex()
    issuer = spelled(certificate.issuer)[:_SHOWN]
    its = f"{issuer} (key {authority_key(certificate) or 'unknown'})"
    return f"{its} signed it, and {own.authority} here is {spelled(trusted.subject)} (key {key})"


def _names(certificate: t.Any) -> str:
    names = extension(certificate, x509.SubjectAlternativeName) or ()
    return ", ".join(str(name.value) for name in names)[:_SHOWN] or "no name"


def _refusal(host: str, own: Credentials) -> str:
    """The message that the peer refuses our valid certificate."""
    with open(own.certificate, "rb") as stream:
        certificate = x509.load_pem_x509_certificate(stream.read())
    its = f"{host} refuses the certificate {own.certificate} of this machine, {spelled(certificate.subject)}"
    if _revokes(own, certificate):
        return f"{its}, which {own.revoked} revokes: issue a new one with virt_tls and force: true"
    may = (
        f"its name is not in tls_allowed_dn_list there (pki_allowed), {host} trusts another authority, revokes it, "
        "or has a different date"
    )
    return f"{its}: {may}; on {host}, `{_LOG}` shows which"
