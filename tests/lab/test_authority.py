"""Two controllers and the hypervisors of one of them, judged by virsh, openssl and the hosts' files."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import ROOT, Hypervisors, guide, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

Options = t.Mapping[str, t.Any]
# The authorities' files, by what the guide calls their texts.
PARTS = {
    "ca_certificate": "libvirt/1/ca-cert.pem",
    "ca_key": "libvirt/1/ca-key.pem",
    "qemu_ca_certificate": "qemu/1/ca-cert.pem",
    "qemu_ca_key": "qemu/1/ca-key.pem",
}
CERTIFICATES = ("libvirt/servercert.pem", "libvirt/clientcert.pem", "qemu/server-cert.pem", "qemu/client-cert.pem")
FILES = (
    "find /etc/pki /etc/libvirt /etc/hosts -type f -exec sha256sum {} + | sort -k 2; find /etc/pki -type l "
    "-printf '%p %l\\n' | sort"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Two hypervisors of the lab's own controller."""
    with hypervisors("trust", hosts=2) as lab:
        yield lab


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Where another controller looks for its authority."""
    return tmp_path / "second/ca"


def certify(
    lab: Hypervisors, ca_dir: Path, *flags: str, ok: bool = True, options: Options | None = None, **play: t.Any
) -> str:
    """What role pki says; `play` holds more keywords of its play."""
    book = lab.folder / "pki.json"
    book.write_text(json.dumps([{"hosts": "hyper", "roles": ["corral.virt.pki"], **play}]))
    output = json.dumps({"pki_ca_dir": str(ca_dir), **(options or {})})
    return lab.run("ansible-playbook", book, "-e", output, *flags, ok=ok)


def reached(lab: Hypervisors, ca_dir: Path, host: str = "hyper2", *, ok: bool = True) -> str:
    """Whether a controller is admitted by libvirt's port."""
    address = lab.on(host, "hostname -I").split()[0]
    return lab.run("virsh", "-c", f"qemu+tls://{address}/system?pkipath={ca_dir}/controller", "hostname", ok=ok)


def unchanged(output: str) -> bool:
    return "changed=0 " in output and not re.search(r"changed=[1-9]", output)


def names(extension: str) -> set[str]:
    """Of a certificate, as openssl shows them."""
    return set(re.findall(r"(?:DNS|IP Address):([^,\s]+)", extension))


def test_a_second_controller_is_refused_by_a_host_whose_turn_is_later(lab: Hypervisors, second: Path) -> None:
    lab.on("hyper1", "mv /etc/pki /etc/pki.away")
    try:
        before = {host: lab.on(host, FILES) for host in ("hyper1", "hyper2")}
        assert "Here: none yet" in certify(lab, second, ok=False, serial=1)
        assert {host: lab.on(host, FILES) for host in ("hyper1", "hyper2")} == before
        assert not second.parent.exists()
    finally:
        lab.on("hyper1", "rm -rf /etc/pki; mv /etc/pki.away /etc/pki")


@pytest.mark.deep
def test_a_dead_host_of_a_later_batch_keeps_nobody_from_certificates(lab: Hypervisors, second: Path) -> None:
    """It may have an authority; without serial it is not asked either."""
    dead = lab.folder / "inventory/host_vars/hyper2/dead.yml"
    dead.parent.mkdir(parents=True, exist_ok=True)
    dead.write_text("ansible_port: 1\n")
    lab.on("hyper1", "mv /etc/pki /etc/pki.away")
    try:
        output = certify(lab, second, ok=False, serial=1, gather_facts=False)
        assert re.search(r"hyper1 .*unreachable=0 +failed=0", output)
        assert re.search(r"hyper2 .*unreachable=1", output)
        ours = lab.run("openssl", "x509", "-in", second / "libvirt/1/ca-cert.pem", "-noout", "-pubkey")
        assert lab.on("hyper1", "openssl x509 -in /etc/pki/CA/cacert.pem -noout -pubkey") == ours.strip()
    finally:
        dead.unlink()
        lab.on("hyper1", "rm -rf /etc/pki; mv /etc/pki.away /etc/pki; systemctl restart libvirtd")
    certify(lab, lab.folder / "ca")
    assert reached(lab, lab.folder / "ca").strip() == "hyper2"


@pytest.mark.parametrize("flags", [["--check"], []], ids=["check", "run"])
def test_a_second_controller_is_refused_and_shuts_nobody_out(lab: Hypervisors, second: Path, flags: list[str]) -> None:
    before = {host: lab.on(host, FILES) for host in ("hyper1", "hyper2")}
    output = certify(lab, second, *flags, ok=False)
    ours = lab.run(
        "openssl", "x509", "-in", lab.folder / "ca/libvirt/1/ca-cert.pem", "-noout", "-fingerprint", "-sha256"
    )
    assert ours.strip().partition("=")[2].replace(":", "").lower() in output and "Here: none yet" in output
    assert not second.parent.exists()
    assert {host: lab.on(host, FILES) for host in ("hyper1", "hyper2")} == before
    assert reached(lab, lab.folder / "ca").strip() == "hyper2"


def test_the_files_of_the_first_controller_let_the_second_in(lab: Hypervisors, second: Path) -> None:
    for name in PARTS.values():
        (second / name).parent.mkdir(parents=True, exist_ok=True)
        (second / name).write_bytes((lab.folder / "ca" / name).read_bytes())
        (second / name).chmod(0o600)
    before = lab.on("hyper2", FILES)
    certify(lab, second)
    assert lab.on("hyper2", FILES) == before
    assert unchanged(certify(lab, second))
    assert reached(lab, second).strip() == reached(lab, lab.folder / "ca").strip() == "hyper2"


def test_the_texts_of_the_authority_let_a_job_in(lab: Hypervisors, second: Path) -> None:
    (output,) = (item for item in guide("tls") if "pki_ca_key" in item)
    vault = {f"vault_{option}": (lab.folder / "ca" / path).read_text() for option, path in PARTS.items()}
    (lab.folder / "vault.json").write_text(json.dumps(vault))
    given = ("-e", f"@{lab.folder / 'vault.json'}")  # Ansible shows what stands on its command line
    shown = certify(lab, second, "-vvvv", "--diff", *given, options=output)
    secret = [line for name, text in vault.items() if name.endswith("key") for line in text.splitlines()[1:-1]]
    assert not [line for line in secret if line in shown]
    assert unchanged(certify(lab, second, *given, options=output))
    assert reached(lab, second).strip() == "hyper2"
    assert not list(second.rglob("ca-key.pem"))


def test_with_the_texts_of_the_authority_a_host_is_revoked(lab: Hypervisors, second: Path) -> None:
    """One that no machine is: the lists on the others name its certificate."""
    texts = {option: (lab.folder / "ca" / path).read_text() for option, path in PARTS.items()}
    options = {"name": "hyper9", "names": ["hyper9"], "pki_dir": "/srv/hyper9", "ca_dir": str(second), **texts}
    lab.run("ansible", "hyper1", "-m", "corral.virt.virt_tls", "-a", json.dumps(options))
    serials = {
        lab.on("hyper1", f"openssl x509 -in /srv/hyper9/{path} -noout -serial").partition("=")[2]
        for path in CERTIFICATES
    }
    output = {
        "pki_ca_dir": str(second),
        "revoke": "hyper9",
        **{f"pki_{option}": text for option, text in texts.items()},
    }
    lab.run("ansible-playbook", "corral.virt.rotate_certificates", "-e", json.dumps(output))
    shown = lab.on(
        "hyper2", "for each in CA/cacrl.pem qemu/ca-crl.pem; do openssl crl -in /etc/pki/$each -noout -text; done"
    )
    assert serials <= set(re.findall(r"Serial Number: (\w+)", shown))


@pytest.mark.deep
def test_a_host_has_the_names_that_the_inventory_says(lab: Hypervisors) -> None:
    (output,) = (item for item in guide("tls") if "pki_extra_names" in item)
    show = "openssl x509 -in /etc/pki/libvirt/servercert.pem -noout -ext subjectAltName"
    address = lab.on("hyper1", "hostname -I").split()[0]
    assert names(lab.on("hyper1", show)) == {address, "hyper1"}
    certify(lab, lab.folder / "ca", "--limit", "hyper1", options=output)
    assert names(lab.on("hyper1", show)) == {address, "hyper1", *output["pki_extra_names"]}
    taken = lab.on("hyper2", "hostname -I").split()[0]
    refused = certify(lab, lab.folder / "ca", "--limit", "hyper1", ok=False, options={"pki_extra_names": [taken]})
    assert f"{taken} belongs to hyper2 in the inventory" in refused


@pytest.mark.deep
def test_who_replaces_the_authority_shuts_out_the_first(lab: Hypervisors, second: Path) -> None:
    certify(lab, second, options={"pki_replace_authority": True})
    assert reached(lab, second).strip() == "hyper2"
    assert "certificate" in reached(lab, lab.folder / "ca", ok=False)
    for host in ("hyper1", "hyper2"):
        other = {"hyper1": "hyper2", "hyper2": "hyper1"}[host]
        assert lab.on(host, f"virsh -c qemu+tls://{other}/system hostname") == other
        assert "FAIL" not in lab.on(host, "virt-pki-validate")


@pytest.mark.deep  # the tests above ask the same of the modules
def test_commands_of_the_guide_work_also_when_the_authority_is_lost(lab: Hypervisors) -> None:
    text = (ROOT / "docs/docsite/rst/guide_tls.rst").read_text().replace("~/.config/corral/ca", str(lab.folder / "ca"))
    text = text.replace("revoke=hyper3", "revoke=hyper2")  # which is in the inventory, and gets new ones
    blocks = re.findall(r"\.\. code-block:: shell\n\n((?: +.*\n|\n)+)", text)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if line and not line.startswith(("export", "read"))]
    assert len(commands) == 8
    certify(lab, lab.folder / "ca", options={"pki_replace_authority": True})
    no_guests = """ -e '{"virt_images": [], "virt_guests": []}'"""  # the inventory of all labs has some
    shown = [lab.run("sh", "-c", command + no_guests * command.startswith("ansible-playbook")) for command in commands]
    assert len([*(lab.folder / "ca.lost/revoked").iterdir()]) >= 4, "server and client, of libvirt and of QEMU"
    assert "FAIL" not in shown[6] and shown[7].count("subject=O = corral.virt, OU = libvirt, CN = hyper") == 2
    assert reached(lab, lab.folder / "ca").strip() == "hyper2"
