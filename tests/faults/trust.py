"""Faults of certificates: an authority nobody trusts, a certificate that has ended."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from ansible_collections.corral.virt.tests.faults.hosts import Host
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = ["expired_certificate", "wrong_ca"]

_CA = "/etc/pki/CA/cacert.pem"
_CLIENT = "/etc/pki/libvirt/clientcert.pem"


def wrong_ca(scene: Scene) -> None:
    """The source trusts another authority than the one that vouches for the destination."""
    made = "openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -subj /CN=stranger -days 2 2>/dev/null"
    _replace(scene, scene.source, _CA, scene.source.run(made) + "\n")


def expired_certificate(scene: Scene) -> None:
    """That of the source ended yesterday; a libvirtd whose own has ended does not even start."""
    folder = scene.lab.folder / "ca"
    key = serialization.load_pem_private_key((folder / "libvirt/1/ca-key.pem").read_bytes(), None)
    old = x509.load_pem_x509_certificate(scene.source.path(_CLIENT).read_bytes())
    today = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=old.issuer,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=today - datetime.timedelta(days=9),
        not_valid_after=today - datetime.timedelta(days=1),
        extensions=list(old.extensions),
    )
    new = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # the lab's own key is RSA
    _replace(scene, scene.source, _CLIENT, new.public_bytes(serialization.Encoding.PEM).decode())


def _replace(scene: Scene, host: Host, path: str, text: str) -> None:
    host.run(f"mv {path} {path}.before && cat > {path}", given=text)
    scene.undo.callback(host.run, f"mv {path}.before {path}")
