# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One certificate authority: creates or opens it, and signs certificates and lists of revoked certificates."""

from __future__ import annotations

import datetime
import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._tls import files_tls
from ansible_collections.corral.virt.plugins.module_utils._tls.files_certificate import extension, parsed, validity
from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import fingerprint
from ansible_collections.corral.virt.plugins.module_utils._tls.model_tls import (
    KEY_BITS,
    ORGANIZATION,
    TlsSpec,
    check_names,
)

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    x509 = None  # type: ignore[assignment]
import stat
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._tls.files_trust import each
from ansible_collections.corral.virt.plugins.module_utils._tls.plan_authority import Generation

OLDEST = "38.0.4"  # cryptography, as in requirements.txt
LIFE = datetime.timedelta(days=3650)
SKEW = datetime.timedelta(days=1)  # a host's clock may be behind
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PURPOSES = {"server": "SERVER_AUTH", "client": "CLIENT_AUTH"}
_LOOK = "find out what answers on that host, as virt_tls sends a better one"


class Revoked(t.NamedTuple):
    """One line of a list of revoked certificates."""

    serial: int
    since: datetime.datetime


def make(
    unit: str, *, now: datetime.datetime, passphrase: str | None = None, within: t.Sequence[str] = ()
) -> tuple[bytes, bytes]:
    """A new CA's certificate and key, PEM. `within`: the domains and networks that its certificates may name.

    If empty, they may name any.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    serial = x509.random_serial_number()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, f"{ORGANIZATION} {unit} CA {serial:x}"[:64]),
        ]
    )
    draft = _draft(name, name, key.public_key(), key.public_key(), now=now, until=now + LIFE, serial=serial)
    draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    draft = draft.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    if within:
        # RFC 5280, 4.2.1.10
        domains, networks = subtrees(within)
        permitted = x509.NameConstraints(
            [*map(x509.DNSName, domains), *map(x509.IPAddress, networks)], excluded_subtrees=None
        )
        draft = draft.add_extension(permitted, critical=True)
    return _text(draft.sign(key, hashes.SHA256())), encrypted(key, passphrase)


def encrypted(key: t.Any, passphrase: str | None) -> bytes:
    """A private key in PEM, encrypted if there is a passphrase."""
    if not passphrase:
        return files_tls.pem(key)
    locked = serialization.BestAvailableEncryption(passphrase.encode())
    return t.cast(bytes, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))


def subtrees(texts: t.Iterable[str]) -> tuple[list[str], list[Network]]:
    """The domains and the networks among the texts of `ca_constraints`. Raises BadInput for any other text."""
    domains: list[str] = []
    networks: list[Network] = []
    problems = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
            continue
        except ValueError:
            pass
        try:
            domains += check_names([text], what="ca_constraints")
        except BadInput:
            problems.append(
                f"ca_constraints: {text!r} is neither a domain, such as cloud.example.com, nor a network, such as "
                "192.0.2.0/24"
            )
    if problems:
        raise BadInput(problems)
    return domains, networks


class CertificateAuthority:
    """A CA with its key. `named` describes it in messages."""

    def __init__(self, certificate: str, key: str, *, passphrase: str | None, named: str) -> None:
        self._named = named
        self._certificate = parsed(certificate.encode())
        self.digest = fingerprint(self._certificate)
        self._key = self._opened(key.encode(), passphrase)
        if files_tls.public_bytes(self._key.public_key()) != files_tls.public_bytes(self._certificate.public_key()):
            raise Refused(f"cannot use {named}: its key does not match its certificate; restore both")

    @property
    def key(self) -> t.Any:
        """The private key."""
        return self._key

    def _opened(self, key: bytes, passphrase: str | None) -> t.Any:
        try:
            return serialization.load_pem_private_key(key, password=passphrase.encode() if passphrase else None)
        except TypeError as error:
            if passphrase:  # one was given, and none is needed
                return serialization.load_pem_private_key(key, password=None)
            raise Refused(
                f"cannot use {self._named}: its key has a passphrase; set it with ca_passphrase (pki_ca_passphrase of "
                "role pki), or in the environment variable CORRAL_VIRT_CA_PASSPHRASE"
            ) from error
        except ValueError as error:
            reason = (
                "its key is not a private key in PEM"
                if not passphrase
                else "its key cannot be decrypted with this passphrase"
            )
            raise Refused(f"cannot use {self._named}: {reason}; restore it, or set the right ca_passphrase") from error

    def sign(self, request: str, wanted: TlsSpec, *, days: int, now: datetime.datetime) -> list[tuple[str, bytes]]:
        """Serial (hex) and certificate (PEM) for each purpose of an identity, for the key of the request.

        Subject and names come from the controller; those in the request are ignored.
        """
        try:
            csr = x509.load_pem_x509_csr(request.encode())
        except ValueError as error:
            raise Refused(f"cannot sign for {wanted.common_name}: it did not send a request in PEM; {_LOOK}") from error
        public, issuer = csr.public_key(), self._certificate
        if not csr.is_signature_valid or not isinstance(public, rsa.RSAPublicKey) or public.key_size < KEY_BITS:
            raise Refused(
                f"cannot sign for {wanted.common_name}: its request is not signed by an RSA key of {KEY_BITS} bits; "
                f"{_LOOK}"
            )
        end = validity(issuer)[1]
        until = min(now + datetime.timedelta(days=days), end)
        if until - now <= wanted.renew_before:
            raise Refused(
                f"cannot sign for {wanted.common_name}: {self._named} is valid only until {end:%Y-%m-%d}; provide a "
                "new one"
            )
        self._refuse_outside(wanted)
        subject, key = files_tls.name(wanted.subject), self._key
        names = x509.SubjectAlternativeName([files_tls.general(name) for name in wanted.names])
        signed = []
        for purpose in wanted.identity.purposes:
            serial = x509.random_serial_number()
            draft = _draft(subject, issuer.subject, public, key.public_key(), now=now, until=until, serial=serial)
            draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            draft = draft.add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
            # Critical: libvirt only warns about a certificate for another purpose otherwise.
            extended = x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, _PURPOSES[purpose])])
            draft = draft.add_extension(extended, critical=True).add_extension(names, critical=False)
            signed.append((f"{serial:x}", _text(draft.sign(key, hashes.SHA256()))))
        return signed

    def _refuse_outside(self, wanted: TlsSpec) -> None:
        """Raises Refused with each name outside the CA's name constraints."""
        limits = extension(self._certificate, x509.NameConstraints)
        permitted = [subtree.value for subtree in (limits and limits.permitted_subtrees) or []]
        domains = [value for value in permitted if isinstance(value, str)]
        networks = [value for value in permitted if not isinstance(value, str)]

        def inside(name: str) -> bool:
            value = files_tls.general(name).value
            if isinstance(value, str):
                return not domains or any(f".{value}".endswith(f".{domain}") for domain in domains)
            return not networks or any(value in network for network in networks)

        outside = [name for name in wanted.names if not inside(name)]
        if outside:
            raise Refused(
                f"cannot sign for {wanted.common_name}: {self._named} is restricted to "
                f"{', '.join(map(str, permitted))}, which excludes {', '.join(outside)}; correct the names, or create "
                "a CA with other ca_constraints (new_authority: true)"
            )

    def crl(self, revoked: t.Iterable[Revoked]) -> bytes:
        """The list of revoked certificates (PEM), the same bytes for the same content.

        It is valid as long as the CA: GnuTLS refuses all peers when a list has expired.
        """
        start, end = validity(self._certificate)
        lines = sorted(revoked)
        draft = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(start)
            .next_update(end)
        )
        draft = draft.add_extension(x509.CRLNumber(len(lines)), critical=False)
        draft = draft.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        for line in lines:
            entry = x509.RevokedCertificateBuilder().serial_number(line.serial).revocation_date(line.since)
            draft = draft.add_revoked_certificate(entry.build())
        return draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


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


def _text(certificate: t.Any) -> bytes:
    return t.cast(bytes, certificate.public_bytes(serialization.Encoding.PEM))


def pem_text(path: Path) -> str:
    """The text of a PEM file; bytes that are no text, as in a damaged file, are replaced."""
    return path.read_bytes().decode(errors="replace")


ANEW = "move the directory away to start over (replace_authority: true then issues new certificates to every host)"


class Pair(t.NamedTuple):
    """A CA from the directory or from options; `place` describes it in messages.

    `key` returns PEM, or an empty text if only the certificate is known.
    """

    generation: Generation
    certificate: str
    place: str
    key: t.Callable[[], str]


class Pairs:
    """All CAs of a directory; with `given` (certificates and key in PEM by authority), only those."""

    def __init__(self, directory: Path, given: t.Mapping[str, tuple[str, str]] | None, passphrase: str | None) -> None:
        self._directory, self._given, self._passphrase = directory, given, passphrase

    def of(self, authority: str) -> list[Pair]:
        """The CAs of an authority, oldest first. Raises Refused if one cannot be used."""
        if self._given is not None:
            return self._given_pairs(authority)
        pairs = [self._kept(folder, shared=False) for folder in self.folders(authority)]
        if (self._directory / "ca-cert.pem").exists():
            pairs.insert(0, self._kept(self._directory, shared=authority != "libvirt"))
        return pairs

    def folders(self, authority: str) -> list[Path]:
        """The folders of an authority's CAs, oldest first."""
        found = [
            path.parent for path in self._directory.glob(f"{authority}/*/ca-cert.pem") if path.parent.name.isdecimal()
        ]
        return sorted(found, key=lambda folder: int(folder.name))

    def _kept(self, folder: Path, *, shared: bool) -> Pair:
        named, path, text = f"the CA in {folder}", folder / "ca-key.pem", pem_text(folder / "ca-cert.pem")
        certificate = parsed(text.encode())
        if certificate is None:
            raise Refused(f"cannot use {named}: its certificate cannot be read; restore it")

        def key() -> str:
            if not path.exists():
                raise Refused(f"cannot use {named}: ca-key.pem is missing; restore it, or {ANEW}")
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise Refused(
                    f"cannot use {named}: others can read ca-key.pem ({mode:04o}); if nobody has, chmod 0600 it, else "
                    f"{ANEW}"
                )
            return pem_text(path)

        generation = Generation(fingerprint(certificate), files_tls.describe(certificate).not_after, shared=shared)
        return Pair(generation, text, named, key)

    def _given_pairs(self, authority: str) -> list[Pair]:
        """The CAs that options give: the last one has the key, the others are only trusted."""
        certificates, key = (self._given or {}).get(authority, ("", ""))
        named = f"the CA given for {authority}"
        pairs = []
        for text in each(certificates):
            certificate = parsed(text.encode())
            if certificate is None:
                raise Refused(f"cannot use {named}: a certificate in it cannot be read; provide the right one")
            generation = Generation(fingerprint(certificate), files_tls.describe(certificate).not_after)
            fits = key and files_tls.public_of(key.encode(), self._passphrase) == files_tls.public_bytes(
                certificate.public_key()
            )
            pairs.append(Pair(generation, text, named, (lambda: key) if fits else str))
        fitting = [pair for pair in pairs if pair.key()]
        if pairs and not fitting:
            # says what is wrong with it
            CertificateAuthority(pairs[0].certificate, key, passphrase=self._passphrase, named=named)
        return [*(pair for pair in pairs if pair not in fitting), *fitting]

    def generations(self, authority: str) -> list[Generation]:
        """Fingerprint and end of each of the authority's CAs, oldest first."""
        return [pair.generation for pair in self.of(authority)]

    @staticmethod
    def can_sign(pair: Pair) -> bool:
        """True if the CA's key is here and readable; a replaced CA's key may be elsewhere."""
        try:
            return bool(pair.key())
        except Refused:
            return False

    def open(self, pair: Pair) -> CertificateAuthority:
        """The CA, ready to sign; raises Refused if its key cannot be used."""
        return CertificateAuthority(pair.certificate, pair.key(), passphrase=self._passphrase, named=pair.place)


def _missing_halves(name: str, certificate: str, key: str, *, needed: bool) -> list[str]:
    """Options that are missing for a needed, or only partly given, authority."""
    prefix = "qemu_" if name == "qemu" else ""
    halves = {f"{prefix}ca_certificate": certificate, f"{prefix}ca_key": key}
    return [option for option, text in halves.items() if not text and (needed or any(halves.values()))]


def given(params: t.Mapping[str, t.Any]) -> dict[str, tuple[str, str]] | None:
    """Certificates and key (PEM) of each authority from the options; None: use those of the directory.

    Raises BadInput if an authority is given in part.
    """
    texts = {
        "libvirt": (params["ca_certificate"] or "", params["ca_key"] or ""),
        "qemu": (params["qemu_ca_certificate"] or "", params["qemu_ca_key"] or ""),
    }
    if not any(key for _certificate, key in texts.values()):
        return None
    needed = {*params["identities"], *(["libvirt"] if params["controller"] else [])}
    problems = [
        f"{option} is missing: the authority of {name} requires both its certificate and its key"
        for name in texts
        for option in _missing_halves(name, *texts[name], needed=name in needed)
    ]
    problems += [
        f"{option}: with ca_key, the list of revoked certificates is created here"
        for option in ("ca_crl", "qemu_ca_crl")
        if params[option]
    ]
    if params["new_authority"]:
        problems.append(
            "new_authority: with ca_key, add the new CA to the old one in ca_certificate, and set ca_key to its key"
        )
    if problems:
        raise BadInput(problems)
    return texts
