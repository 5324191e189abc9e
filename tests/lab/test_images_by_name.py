"""The first guest of a newcomer: one command, an image by its name, from a mirror on the lab's bridge. Judged by virsh,
by what the mirror was asked, and from inside the guest.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, IMAGES, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("byname")
FOLDER = "/images/cloud/trixie/latest"
FILE = "debian-13-genericcloud-amd64.qcow2"
INSTALLER = "/debian/dists/trixie/main/installer-amd64/current/images"
ISO = bytes(32769) + b"CD001" + bytes(1 << 20)


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """One host, set up by the collection's own roles, with an empty pool."""
    with hypervisors(LAB.test):
        yield


@pytest.fixture(scope="module")
def mirror() -> Iterator[Server]:
    """What Debian publishes, on a server of the site."""
    body = Path(LAB.run(sys.executable, HERE / "lab.py", "image").split()[-1]).read_bytes()
    sums = f"{hashlib.sha512(body).hexdigest()}  {FILE}\n".encode()
    # Debian's list has files of one name in several directories.
    isos = f"{'0' * 64}  ./netboot/gtk/mini.iso\n{hashlib.sha256(ISO).hexdigest()}  ./netboot/mini.iso\n".encode()
    files = {
        f"{FOLDER}/{FILE}": body,
        f"{FOLDER}/SHA512SUMS": sums,
        f"{INSTALLER}/netboot/mini.iso": ISO,
        f"{INSTALLER}/SHA256SUMS": isos,
    }
    with serving(files, LAB.gateway) as server:
        yield server


def create(mirror: Server, place: Path, *flags: str, **more: t.Any) -> str:
    """The one line, on the lab's hosts and with what the inventory plugin finds; what was printed, in one line."""
    (place / "virt.yml").write_text(json.dumps({"plugin": "corral.virt.virt"}))
    words = {"guest": "web1", "image": "debian-13", "virt_images_mirror": mirror.url, **more}
    keys = {"guests_authorized_keys": ["{{ virt_lab_ssh_public_key }}"]}  # the lab's, instead of those of whoever tests
    arguments = [word for name, value in words.items() for word in ("-e", f"{name}={value}")] + ["-e", json.dumps(keys)]
    inventory = (*LAB.ask_nobody, "-i", str(place / "virt.yml"))
    output = LAB.run("ansible-playbook", "corral.virt.create", *inventory, *arguments, *flags, timeout_s=1500)
    return re.sub(r"\s+", " ", output)


def test_the_first_guest_is_one_line(mirror: Server, tmp_path: Path) -> None:
    """Nothing was said of its size, its system, its user, or how to verify its image."""
    output = create(mirror, tmp_path, "--check")
    assert f"hyper1 would fetch debian-13 from {mirror.url}{FOLDER}/{FILE}." in output
    assert LAB.on("hyper1", f"virsh list --all --name; ls {IMAGES}") == ""
    create(mirror, tmp_path, state="present")
    xml = LAB.on("hyper1", "virsh dumpxml web1").replace('"', "'")
    assert "<libosinfo:os id='http://debian.org/debian/13'/>" in xml and "<corral:login user='debian'/>" in xml
    assert re.search(r"machine='pc-q35-[^']+'", xml) and xml.count("bus='virtio'") == 2  # its disk and its seed
    assert "<memory unit='KiB'>1048576</memory>" in xml and ">1</vcpu>" in xml
    backing = LAB.on("hyper1", f"qemu-img info -U {IMAGES}/web1-system.qcow2")
    digest = hashlib.sha512(mirror.files[f"{FOLDER}/{FILE}"]).hexdigest()
    assert f"{IMAGES}/debian-13.{digest[:12]}.qcow2" in backing


@pytest.mark.deep
def test_it_starts_and_knows_its_user(mirror: Server, tmp_path: Path) -> None:
    create(mirror, tmp_path)
    inside = ("-i", str(tmp_path / "virt.yml"), "web1", "-m", "ansible.builtin.command", "-a", "id -un")
    assert "debian" in LAB.run("ansible", *LAB.ask_nobody, *inside).splitlines()[-1:]


def test_a_second_run_changes_nothing_and_an_image_with_a_guest_stays(mirror: Server, tmp_path: Path) -> None:
    """The mirror is asked nothing more; what no guest is based on goes."""
    off = {"guest": "web2", "state": "present"}
    create(mirror, tmp_path, **off)
    mirror.asked.clear()
    assert not re.search(r"changed=[1-9]", create(mirror, tmp_path, **off))
    assert mirror.asked == []
    LAB.module("corral.virt.virt_image", name="idle.qcow2", url=f"{mirror.url}{FOLDER}/{FILE}", checksum="none")
    prune = ("ansible-playbook", "corral.virt.images", *LAB.ask_nobody, "-e", "do=prune", "-e", "unused=true")
    before = LAB.on("hyper1", f"ls {IMAGES}")
    assert "remove idle.qcow2" in LAB.run(*prune, "--check") and LAB.on("hyper1", f"ls {IMAGES}") == before
    LAB.run(*prune)
    kept = LAB.on("hyper1", f"ls {IMAGES}")
    assert "debian-13.qcow2" in kept and "idle" in before and "idle" not in kept


@pytest.mark.deep
def test_an_iso_is_inserted_by_its_name_and_one_in_a_drive_is_not_removed(mirror: Server) -> None:
    """It is imported where it is missing, and verified; a second run asks the mirror nothing."""
    about = ("-e", "guest=web2", "-e", "iso=debian-13-netboot", "-e", f"virt_images_mirror={mirror.url}")
    insert = ("ansible-playbook", "corral.virt.insert_iso", *LAB.ask_nobody, *about)
    output = re.sub(r"\s+", " ", LAB.run(*insert, "--check"))
    assert f"hyper1 would fetch debian-13-netboot from {mirror.url}{INSTALLER}/netboot/mini.iso." in output
    assert "mini" not in LAB.on("hyper1", f"virsh domblklist web2; ls {IMAGES}")
    LAB.run(*insert)
    digest = hashlib.sha256(ISO).hexdigest()
    drive = LAB.on("hyper1", "virsh dumpxml web2")
    assert "volume='debian-13-netboot.iso'" in drive and "device='cdrom'" in drive
    assert digest in LAB.on("hyper1", f"sha256sum {IMAGES}/debian-13-netboot.iso")
    mirror.asked.clear()
    assert not re.search(r"changed=[1-9]", LAB.run(*insert)) and mirror.asked == []
    LAB.run("ansible-playbook", "corral.virt.start", *LAB.ask_nobody, "-e", "guest=web2")
    LAB.run("ansible-playbook", "corral.virt.images", *LAB.ask_nobody, "-e", "do=prune", "-e", "unused=true")
    assert digest in LAB.on("hyper1", f"sha256sum {IMAGES}/debian-13-netboot.iso")
    for action in ("force_off", "eject"):
        LAB.run("ansible-playbook", f"corral.virt.{action}", *LAB.ask_nobody, "-e", "guest=web2")
    LAB.run("ansible-playbook", "corral.virt.images", *LAB.ask_nobody, "-e", "do=prune", "-e", "unused=true")
    assert "netboot" not in LAB.on("hyper1", f"ls {IMAGES}")
