"""What the first version of virt_tls left: one CA for libvirt and QEMU, and certificates for both purposes."""

from __future__ import annotations

import datetime
import ipaddress
import typing as t
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = datetime.timedelta(days=365)
# Where a set is kept -> the CA, and the pairs, that link into it.
_SETS = {
    "libvirt": ("CA/cacert.pem", ["libvirt/servercert.pem", "libvirt/clientcert.pem"]),
    "qemu": ("qemu/ca-cert.pem", ["qemu/server-cert.pem", "qemu/client-cert.pem"]),
    "controller": ("controller/cacert.pem", ["controller/clientcert.pem"]),
}


def lay(place: Path, hosts: t.Sequence[str], *, now: datetime.datetime) -> None:
    """The controller's directory `ca` and one for each host, as they were."""
    ca = _Ca(place / "ca", now)
    ca.identity(place / "ca", "controller", "libvirt", "controller", ["controller"])
    for host in hosts:
        for unit in ("libvirt", "qemu"):
            ca.identity(place / host, unit, unit, host, [host, f"10.0.0.{host[1:]}"])


class _Ca:
    def __init__(self, place: Path, now: datetime.datetime) -> None:
        self._place, self._now, self._key = place, now, _key()
        (place / "issued").mkdir(parents=True)
        place.chmod(0o700)
        self._name = x509.Name([_attribute("O", "corral.virt"), _attribute("CN", "corral.virt CA 1")])
        draft = self._draft(self._name, self._key, 10 * _YEAR).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._text = _pem(
            draft.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True).sign(
                self._key, hashes.SHA256()
            )
        )
        (place / "ca-cert.pem").write_bytes(self._text)
        (place / "ca-key.pem").write_bytes(_private(self._key))
        (place / "ca-key.pem").chmod(0o600)

    def identity(self, root: Path, kept: str, unit: str, name: str, names: t.Sequence[str]) -> None:
        """One key with its certificate, as set and links."""
        key = _key()
        subject = x509.Name([_attribute("O", "corral.virt"), _attribute("OU", unit), _attribute("CN", name)])
        draft = self._draft(subject, key, _YEAR).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        draft = draft.add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        draft = draft.add_extension(both, critical=False)
        draft = draft.add_extension(x509.SubjectAlternativeName([_general(one) for one in names]), critical=False)
        certificate = draft.sign(self._key, hashes.SHA256())
        serial = f"{certificate.serial_number:x}"
        (self._place / f"issued/{serial}.pem").write_bytes(_pem(certificate))
        ca, pairs = _SETS[kept]
        fresh = root / kept / "corral" / serial
        fresh.mkdir(parents=True)
        (fresh.parent / "current").symlink_to(serial)
        files = {ca: self._text}
        for cert in pairs:
            private = (
                cert.replace("cert", "key")
                if kept != "libvirt"
                else cert.replace("libvirt/", "libvirt/private/").replace("cert", "key")
            )
            files.update({cert: _pem(certificate), private: _private(key)})
        for path, content in files.items():
            (fresh / Path(path).name).write_bytes(content)
            (fresh / Path(path).name).chmod(0o644 if "key" not in path else 0o640 if kept == "qemu" else 0o600)
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            up = "../" * (path.count("/") - (not path.startswith("CA"))) if not path.startswith("CA") else "../libvirt/"
            (root / path).symlink_to(f"{up}corral/current/{Path(path).name}")

    def _draft(self, subject: t.Any, key: t.Any, life: datetime.timedelta) -> t.Any:
        draft = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        draft = draft.serial_number(x509.random_serial_number()).not_valid_before(
            self._now - datetime.timedelta(days=1)
        )
        draft = draft.not_valid_after(self._now + life)
        draft = draft.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return draft.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )


def _key() -> t.Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _attribute(kind: str, value: str) -> t.Any:
    oids = {"CN": NameOID.COMMON_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME}
    return x509.NameAttribute(oids[kind], value)


def _general(name: str) -> t.Any:
    return x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)


def _usage(**on: bool) -> t.Any:
    names = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    names += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**{name: on.get(name, False) for name in names})


def _pem(certificate: t.Any) -> bytes:
    return t.cast(bytes, certificate.public_bytes(serialization.Encoding.PEM))


def _private(key: t.Any) -> bytes:
    plain = serialization.NoEncryption()
    return t.cast(bytes, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
