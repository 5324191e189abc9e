"""Guests with snapshots move between Debian 12 and 13, and go back to them there; judged by virsh, qemu-img and sha256sum.

Older QEMUs lack newer machine types, so each guest is made on the older host, and moves there and back.
"""

from __future__ import annotations

import json
import subprocess
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import COUNTER, boot_sector
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors, until
from ansible_collections.corral.virt.tests.lab.test_migrate import there

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("releases")
HOSTS = {"hyper1": "libvirt 9.0", "hyper2": "libvirt 11.3"}
MIB = 1 << 20
GUEST: dict[str, t.Any] = {"name": "g", "vcpus": 1, "memory": "64MiB", "interfaces": []}
DISK = {"name": "system", "size": "32MiB", "image": "tiny.qcow2"}
NVRAM = "/var/lib/libvirt/qemu/nvram/g_VARS.fd"
STATE = f"{NVRAM} /var/lib/libvirt/swtpm/*/tpm2/*.permall"


@pytest.fixture(scope="module", autouse=True)
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two hypervisors with different libvirts, and the image of the guest on both."""
    raw = tmp_path_factory.mktemp("image") / "tiny.raw"
    raw.write_bytes(boot_sector(8).ljust(32 * MIB, b"\0"))
    image = raw.with_suffix(".qcow2")
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, image], check=True)
    with hypervisors("releases", hosts=2, more=("--host", "hyper2=trixie")):
        LAB.play({"corral.virt.virt_image": {"name": "tiny.qcow2", "src": str(image)}}, hosts="hyper")
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    for host in HOSTS:
        LAB.on(
            host,
            "virsh -q destroy g; virsh -q undefine g --snapshots-metadata --managed-save --nvram --tpm; "
            f"rm -f {NVRAM}; find {IMAGES} -mindepth 1 -name 'g[.-]*' -delete; rm -rf {IMAGES}/.corral/.removed; "
            "virsh -q pool-refresh default; true",
        )


def snapshot(host: str, **options: t.Any) -> dict[str, t.Any]:
    """What the module answers."""
    told = {"corral.virt.virt_snapshot": {"guests": ["g"], **options}, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(told, hosts=host)[host]["results"][0])


def migrated(host: str) -> str:
    """Move the guest to the other host, which has it then as this one had it; that host."""
    to, before = there(host), seen(host)
    arguments = json.dumps({"name": "g", "dest": to})
    LAB.run("ansible", host, "-m", "corral.virt.virt_migrate", "-a", arguments, *LAB.ask_nobody)
    assert seen(to) == before and LAB.on(host, "virsh list --all --name; ls " + IMAGES + " | grep ^g || true") == ""
    return to


def seen(host: str) -> tuple[str, str, dict[str, str]]:
    """Whether it runs, its snapshots, and digests of all its files but the one that it writes."""
    top = LAB.on(host, "virsh domblklist g | awk '/vda/ {print $2}'")
    lines = LAB.on(host, f"sha256sum {IMAGES}/g[.-]*").splitlines()
    files = {path: digest for digest, path in (line.split(maxsplit=1) for line in lines) if path != top}
    tree = LAB.on(host, "virsh snapshot-list g --parent; virsh snapshot-current g --name || true")
    return LAB.on(host, "virsh domstate g"), tree, files


def written(host: str) -> int:
    """The number of the sector that the running guest writes next, from its memory."""
    output = LAB.on(host, f"virsh qemu-monitor-command g --hmp 'xp /1wx {COUNTER:#x}'")
    return int(output.rpartition(":")[2], 16)


def test_a_running_guest_with_disks_and_memory_of_then() -> None:
    """There and back, and on the newer host back to its memory of then."""
    LAB.play({"corral.virt.virt_domain": {**GUEST, "disks": [DISK], "state": "running"}})
    until(lambda: written("hyper1") > 1)
    for name in ("one", "two"):
        snapshot("hyper1", name=name)
    snapshot("hyper1", name="memory", memory=True)
    then = written("hyper1")
    until(lambda: written("hyper1") > then + 20)
    assert migrated("hyper1") == "hyper2"
    assert written("hyper2") > then + 20
    assert migrated("hyper2") == "hyper1"
    now = written("hyper1")
    until(lambda: written("hyper1") > now)
    migrated("hyper1")
    snapshot("hyper2", name="memory", state="reverted", run=True, confirm="memory")
    assert LAB.on("hyper2", "virsh domstate g") == "running" and written("hyper2") < now
    for name in ("two", "memory", "one"):
        snapshot("hyper2", name=name, state="absent")
    assert LAB.on("hyper2", f"ls {IMAGES} | grep '^g[.-]'") == "g-system.qcow2"


@pytest.mark.parametrize("taken_on", HOSTS)
def test_uefi_variables_and_tpm_of_then(taken_on: str) -> None:
    """Taken on one of the hosts, while the guest is off; the guest goes back to it on the other one."""
    LAB.play(
        {
            "corral.virt.virt_domain": {
                **GUEST,
                "disks": [DISK],
                "state": "running",
                "firmware": "efi",
                "tpm": {"model": "tpm-crb"},
            }
        }
    )
    until(lambda: LAB.on("hyper1", f"ls {STATE} 2>/dev/null | wc -l") == "2", 60)
    LAB.on("hyper1", "virsh -q destroy g")
    if taken_on == "hyper2":
        migrated("hyper1")
    then = LAB.on(taken_on, f"sha256sum {STATE}")
    for name in ("one", "two"):
        snapshot(taken_on, name=name)
    LAB.on(
        taken_on, f"for f in {STATE}; do dd if=/dev/urandom of=$f bs=64 seek=9 count=1 conv=notrunc status=none; done"
    )
    other = LAB.on(taken_on, f"sha256sum {STATE}")
    host = migrated(taken_on)
    assert LAB.on(host, f"sha256sum {STATE}") == other != then
    snapshot(host, name="two", state="reverted", run=False, confirm="two")
    assert LAB.on(host, f"sha256sum {STATE}") == then
    LAB.on(host, "virsh -q start g && virsh -q destroy g")
    assert migrated(host) == taken_on
    for name in ("one", "two"):
        snapshot(taken_on, name=name, state="absent")
    assert LAB.on(taken_on, f"ls {IMAGES} | grep '^g[.-]'") == "g-system.qcow2"
