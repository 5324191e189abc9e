"""Hypervisors of an earlier version, which had one CA for libvirt and QEMU, get two; judged by virsh, openssl and
guests that migrate.

The files of that version are written here, as it wrote them: one CA in the controller's directory, certificates for
servers and clients.
"""

from __future__ import annotations

import io
import ipaddress
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509

from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors
from ansible_collections.corral.virt.tests.lab.trust import (
    HOSTS,
    Pair,
    address,
    admitted,
    certificate,
    changes,
    everybody_reaches,
    role,
    save,
    served,
    travelling,
    trusted,
)

pytestmark = [pytest.mark.lab, pytest.mark.deep]

# By identity: where libvirt or QEMU looks, and what stands in a set: the CA, a certificate or a key.
PLACES = {
    "libvirt": {
        "CA/cacert.pem": "ca",
        "libvirt/servercert.pem": "cert",
        "libvirt/private/serverkey.pem": "key",
        "libvirt/clientcert.pem": "cert",
        "libvirt/private/clientkey.pem": "key",
    },
    "qemu": {
        "qemu/ca-cert.pem": "ca",
        "qemu/server-cert.pem": "cert",
        "qemu/server-key.pem": "key",
        "qemu/client-cert.pem": "cert",
        "qemu/client-key.pem": "key",
    },
}
BOTH = ("SERVER_AUTH", "CLIENT_AUTH")
REPLACE = """set -e; rm -rf /etc/pki/CA /etc/pki/libvirt /etc/pki/qemu; base64 -d | tar -C /etc/pki -xf -
chgrp -R libvirt-qemu /etc/pki/qemu/corral/*/*-key.pem; virt-admin -c libvirtd:///system server-update-tls libvirtd"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Three hypervisors."""
    with hypervisors("certsup", "hypervisor", "pki", "firewall", hosts=3) as lab:
        yield lab


@pytest.fixture
def old(lab: Hypervisors) -> Mapping[str, Pair]:
    """QEMU's certificates of the earlier version, by host.

    All hosts have that version's files, and so has the controller.
    """
    shared, ca, kept = certificate("O=corral.virt,CN=corral.virt CA 5f0c", days=(-1, 3650)), lab.folder / "ca", {}
    shutil.rmtree(ca)
    (ca / "issued").mkdir(parents=True)
    _write(ca / "ca-cert.pem", shared.text)
    _write(ca / "ca-key.pem", shared.secret)
    for host in HOSTS:
        names = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address(address(lab, host)))]
        pairs = {unit: _issued(ca, shared, unit, host, names) for unit in PLACES}
        lab.on(host, REPLACE, given=_files(shared, pairs))
        kept[host] = pairs["qemu"]
    client = _issued(ca, shared, "libvirt", "controller", [x509.DNSName("controller")])
    store = ca / "controller/corral" / f"{client.certificate.serial_number:x}"
    save(store, client, shared.text)
    store.chmod(0o755)
    (store / "clientkey.pem").chmod(0o600)
    (store.parent / "current").symlink_to(store.name)
    for name in ("cacert.pem", "clientcert.pem", "clientkey.pem"):
        (ca / "controller" / name).symlink_to(f"corral/current/{name}")
    assert everybody_reaches(lab, ca_dir=ca)
    return kept


def _issued(ca: Path, shared: Pair, unit: str, holder: str, names: list[x509.GeneralName]) -> Pair:
    pair = certificate(f"O=corral.virt,OU={unit},CN={holder}", shared, names=names, purposes=BOTH, critical=False)
    _write(ca / "issued" / f"{pair.certificate.serial_number:x}.pem", pair.text)
    return pair


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def _files(shared: Pair, pairs: Mapping[str, Pair]) -> str:
    """What goes to /etc/pki."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for unit, pair in pairs.items():
            store, serial = f"{unit}/corral", f"{pair.certificate.serial_number:x}"
            contents = {"ca": shared.text, "cert": pair.text, "key": pair.secret}
            for path, kind in PLACES[unit].items():
                file = tarfile.TarInfo(f"{store}/{serial}/{Path(path).name}")
                file.mode, file.size = (
                    0o644 if kind != "key" else 0o640 if unit == "qemu" else 0o600,
                    len(contents[kind]),
                )
                archive.addfile(file, io.BytesIO(contents[kind].encode()))
                up = "../" * (path.count("/") - 1) if path.startswith(unit) else f"../{unit}/"
                link = tarfile.TarInfo(path)
                link.type, link.linkname = tarfile.SYMTYPE, f"{up}corral/current/{Path(path).name}"
                archive.addfile(link)
            current = tarfile.TarInfo(f"{store}/current")
            current.type, current.linkname = tarfile.SYMTYPE, serial
            archive.addfile(current)
    done = subprocess.run(["base64"], input=packed.getvalue(), capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("first", [(), ("--limit", "hyper1,hyper2")], ids=["all", "two-first"])
def test_one_authority_becomes_two_while_a_guest_goes_round(
    lab: Hypervisors, old: Mapping[str, Pair], first: tuple[str, ...], tmp_path: Path
) -> None:
    """No migration fails; then QEMU's hosts trust no CA of libvirt's, and what QEMU had opens nothing of libvirt's."""
    ca, before = lab.folder / "ca", lab.on("hyper3", "cat /etc/pki/CA/cacert.pem")
    client = save(tmp_path / "client", old["hyper3"], before)
    with travelling(lab, *HOSTS, least=6):
        if first:
            output = role(lab, *first)
            assert "waits for hyper3" in " ".join(output.split())
            assert everybody_reaches(lab, ca_dir=ca)
        role(lab)
    after = trusted(lab)
    assert len(after) == 2 and all(len(one) == 1 for one in after)
    for host in HOSTS:
        assert not lab.on(host, "grep -xFf /etc/pki/CA/cacert.pem /etc/pki/qemu/ca-cert.pem | grep -v -e -----; true")
        assert "FAIL" not in lab.on(host, "virt-pki-validate")
        assert not admitted(address(lab, host), client)
    for path, text in (("ca.pem", before), ("cert.pem", old["hyper2"].text), ("key.pem", old["hyper2"].secret)):
        lab.on("hyper2", f"mkdir -p /srv/kept && cat >/srv/kept/{path}", given=text)
    output = served(lab, "hyper2", "/srv/kept/ca.pem", "/srv/kept/cert.pem", "/srv/kept/key.pem")
    assert "running" not in output and "revoked" in output, output
    assert everybody_reaches(lab, ca_dir=ca)
    assert changes(role(lab)) == 0
