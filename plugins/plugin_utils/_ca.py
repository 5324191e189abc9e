# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate authority on the controller: made once, kept safe, signs for names that the controller chose."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import ipaddress
import stat
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._files import tls as files
from ansible_collections.corral.virt.plugins.module_utils._model.tls import ORGANIZATION, Wanted

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    x509 = None  # type: ignore[assignment]

__all__ = ["OLDEST", "Authority", "MakeAuthority"]

OLDEST = "38.0.4"  # cryptography, as in requirements.txt

LIFE = datetime.timedelta(days=3650)
SKEW = datetime.timedelta(days=1)  # a host's clock may be behind
KEY_BITS = 3072
_ANEW = "move the directory away to start anew (replace_authority: true then gives every host new certificates)"


@dataclasses.dataclass(frozen=True)
class MakeAuthority:
    """Make the CA's key and certificate."""

    directory: str

    def __str__(self) -> str:
        return f"make a certificate authority in {self.directory}"


class Authority:
    """A CA in a directory: `ca-cert.pem`, `ca-key.pem` and, below `issued/`, every certificate it signed.

    With `given`, the texts of certificate and key, the directory holds only what it signed.
    """

    def __init__(self, directory: str, *, given: tuple[str, str] | None = None) -> None:
        files.need_library(OLDEST, install=f"pip install 'cryptography>={OLDEST}' beside ansible-core")
        self._directory = Path(directory)
        self._given = given
        self._inside = False
        self._certificate = self._directory / "ca-cert.pem"
        self._key = self._directory / "ca-key.pem"
        self._issued = self._directory / "issued"

    def certificate(self) -> str | None:
        """The CA's certificate (PEM), or None when there is no CA yet. Raises Refused when it cannot be used."""
        if self._given is None and not self._certificate.exists():
            return None
        text = self._given[0] if self._given else self._certificate.read_text()
        try:
            x509.load_pem_x509_certificate(text.encode())
        except ValueError as error:
            raise Refused(f"cannot use {self}: its certificate cannot be read; restore it") from error
        if self._given is None and not self._key.exists():
            raise Refused(f"cannot use {self}: ca-key.pem is missing; restore it, or {_ANEW}")
        return text

    def __str__(self) -> str:
        return "the CA of ca_certificate and ca_key" if self._given else f"the CA in {self._directory}"

    def make(self) -> None:
        """Make the CA unless another process has just done so."""
        with self.locked():
            if self._certificate.exists():
                return
            key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
            serial = x509.random_serial_number()
            name = x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
                    x509.NameAttribute(NameOID.COMMON_NAME, f"{ORGANIZATION} CA {serial:x}"[:64]),
                ]
            )
            now = datetime.datetime.now(datetime.UTC)
            draft = _draft(name, name, key.public_key(), key.public_key(), now=now, until=now + LIFE, serial=serial)
            draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            draft = draft.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            # The certificate last: where it is, the key is too.
            files.write(self._key, files.pem(key), mode=0o600)
            files.write(self._certificate, _text(draft.sign(key, hashes.SHA256())), mode=0o644)

    def sign(self, request: str, wanted: Wanted, *, days: int) -> str:
        """A certificate (PEM) for the key of the request.

        Subject and names are what the controller wants: a host that asks for others does not get them. Nor does one get a name that
        stands in another one's certificate, as long as that is valid.
        """
        key, issuer = self._open()
        csr = x509.load_pem_x509_csr(request.encode())
        public = csr.public_key()
        if not csr.is_signature_valid or not isinstance(public, rsa.RSAPublicKey) or public.key_size < KEY_BITS:
            raise Refused(f"cannot sign for {wanted.common_name}: its request is not signed by an RSA key of {KEY_BITS} bits")
        now = datetime.datetime.now(datetime.UTC)
        end = files.describe(issuer).not_after
        until = min(now + datetime.timedelta(days=days), end)
        if until - now <= wanted.renew_before:
            raise Refused(f"cannot sign for {wanted.common_name}: {self} is valid only until {end:%Y-%m-%d}; {_ANEW}")
        serial, subject = x509.random_serial_number(), files.name(wanted.subject)
        draft = _draft(subject, issuer.subject, public, key.public_key(), now=now, until=until, serial=serial)
        draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        draft = draft.add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
        extended = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        draft = draft.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        names = x509.SubjectAlternativeName([_general(name) for name in wanted.names])
        draft = draft.add_extension(names, critical=False)
        certificate = draft.sign(key, hashes.SHA256())
        text = _text(certificate)
        with self.locked():
            self._refuse_taken(wanted, now)
            self._issued.mkdir(mode=0o700, exist_ok=True)
            # What was never written down can never be revoked.
            files.write(self._issued / f"{certificate.serial_number:x}.pem", text, mode=0o644)
        return text.decode()

    def _refuse_taken(self, wanted: Wanted, now: datetime.datetime) -> None:
        """Raises Refused with every name that another one has."""
        taken = []
        for path in sorted(self._issued.glob("*.pem")):
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            seen = files.describe(certificate)
            holder = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
            both = sorted({*seen.names} & {*wanted.names})
            if holder != wanted.common_name and both and seen.not_after > now:
                taken.append(f"{', '.join(both)} is {holder}'s until {seen.not_after:%Y-%m-%d} ({path})")
        if taken:
            raise Refused(
                f"cannot sign for {wanted.common_name}: {'; '.join(taken)}. Two hosts with one name could play each other: "
                "correct the names, or remove the file if its host is gone and its key with it"
            )

    @contextlib.contextmanager
    def locked(self) -> t.Iterator[None]:
        """Ansible runs the hosts' actions in parallel processes: one at a time in here; whoever is in may enter again."""
        if self._inside:
            yield
            return
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = self._directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Nothing here belongs into version control.\n*\n")
        with (self._directory / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._inside = True
            try:
                yield
            finally:
                self._inside = False

    def _open(self) -> tuple[t.Any, t.Any]:
        if self._given:
            certificate_text, key_text = (text.encode() for text in self._given)
        else:
            mode = stat.S_IMODE(self._key.stat().st_mode)
            if mode & 0o077:
                raise Refused(f"cannot use {self}: others can read ca-key.pem ({mode:04o}); if nobody did, chmod 0600 it, else {_ANEW}")
            certificate_text, key_text = self._certificate.read_bytes(), self._key.read_bytes()
        try:
            key = serialization.load_pem_private_key(key_text, password=None)
        except (ValueError, TypeError) as error:
            raise Refused(f"cannot use {self}: its key is no private key in PEM without a passphrase; restore it") from error
        certificate = x509.load_pem_x509_certificate(certificate_text)
        if files.public_bytes(key.public_key()) != files.public_bytes(certificate.public_key()):
            raise Refused(f"cannot use {self}: its key does not belong to its certificate; restore both")
        return key, certificate


def _draft(
    subject: t.Any,
    issuer: t.Any,
    public: t.Any,
    signer: t.Any,
    *,
    now: datetime.datetime,
    until: datetime.datetime,
    serial: int,
) -> t.Any:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(now - SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(**on: bool) -> t.Any:
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    names += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**{name: on.get(name, False) for name in names})


def _general(name: str) -> t.Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _text(certificate: t.Any) -> bytes:
    return t.cast(bytes, certificate.public_bytes(serialization.Encoding.PEM))
