"""Disks and definitions that others take, change or copy while a guest is being removed; judged by virsh, stat and
sha256sum.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    Hypervisors,
    hypervisors,
)

pytestmark = pytest.mark.lab

LAB = Hypervisors("disposal")
on = functools.partial(LAB.on, "hyper1")
ASIDE = f"{IMAGES}/.corral/.removed"
WAIT_S = 40  # on a busy machine, a command of the test takes long
# 1: hlt; jmp 1b: it hears nothing, so a removal waits until it is switched off by force
DEAF = b"\xfb\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa"


def module(*flags: str, ok: bool = True, **arguments: t.Any) -> str:
    """Call virt_domain: what it says, in one line."""
    return LAB.module("virt_domain", *flags, ok=ok, timeout_s=200, **arguments)


def gone(name: str, **more: t.Any) -> dict[str, t.Any]:
    """The arguments that remove it with its disks."""
    return {"name": name, "state": "absent", "remove_storage": True, "force": True, "wait_timeout": WAIT_S, **more}


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor."""
    with hypervisors("disposal"):
        on(f"echo {base64.b64encode(DEAF).decode()} | base64 -d > /tmp/deaf")
        yield


@pytest.fixture
def guest(request: pytest.FixtureRequest) -> Iterator[str]:
    """A guest that our module made, off; whatever is left of the test's goes."""
    name = f"g{abs(hash(request.node.name)) % 10**6}"
    disk = {"name": "system", "size": "2MiB", "format": "raw"}
    module(name=name, state="shutdown", vcpus=1, memory="64MiB", interfaces=[], disks=[disk])
    on(f"dd if=/tmp/deaf of={path(name)} conv=notrunc status=none")
    yield name
    on(
        f"for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine --snapshots-metadata $g; done "
        f"2>/dev/null; rm -rf {IMAGES}/{name}* {IMAGES}/.corral {IMAGES}/other*; virsh -q pool-refresh default"
    )


def path(name: str) -> str:
    """Of the guest's disk."""
    return f"{IMAGES}/{name}-system.img"


def identity(name: str) -> str:
    """Inode, time of birth and content of its disk."""
    return on(f"stat -c '%i %W' {path(name)}; sha256sum < {path(name)}")


def define(name: str, disk: str, form: str = "raw") -> str:
    """The command that defines another guest with that disk."""
    xml = (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><os><type>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{disk}'/>"
        f"<target dev='vda' bus='virtio'/></disk></devices></domain>"
    )
    return f"cat > /tmp/{name}.xml <<'X'\n{xml}\nX\nvirsh -q define /tmp/{name}.xml"


@contextlib.contextmanager
def removing(name: str, **more: t.Any) -> Iterator[list[str]]:
    """While the removal waits for the guest to shut down; afterwards the list has what it said."""
    on(f"virsh -q start {name}")
    said: list[str] = []
    command = (
        "ansible",
        "hyper1",
        *LAB.ask_nobody,
        "-m",
        "corral.virt.virt_domain",
        "-a",
        json.dumps(gone(name, **more)),
    )
    # it has planned when it asks the guest to power off
    asks = f"virsh -q qemu-monitor-event {name} --event POWERDOWN --timeout 300"
    watch = LAB.start("ssh", "-F", str(LAB.folder / "ssh_config"), "--", "hyper1", asks)
    run = LAB.start(*command)
    assert "POWERDOWN" in (watch.communicate(timeout=310)[0] or "")
    try:
        yield said
    finally:
        said.append(" ".join((run.communicate(timeout=180)[0] or "").split()))


@pytest.mark.parametrize("how", ["overlay", "attached"])
def test_a_disk_that_somebody_takes_while_its_guest_shuts_down_is_not_deleted(guest: str, how: str) -> None:
    before = identity(guest)
    with removing(guest) as said:
        if how == "overlay":
            on(f"qemu-img create -q -f qcow2 -b {path(guest)} -F raw {IMAGES}/other.qcow2")
        else:
            on(define("other", path(guest)))
    assert f"cannot delete disk {path(guest)} of {guest}" in said[0] and "uses it by now; it is kept" in said[0]
    assert identity(guest) == before and guest not in on("virsh list --all --name").split()
    assert on(f"ls {ASIDE} 2>/dev/null; true") == ""
    assert path(guest) in on("virsh vol-list default")
    if how == "overlay":
        assert path(guest) in on(f"qemu-img info --backing-chain {IMAGES}/other.qcow2")


@pytest.mark.deep
def test_a_guest_that_gets_a_snapshot_while_it_shuts_down_is_not_undefined(guest: str) -> None:
    before = on(f"stat -c %i {path(guest)}")
    with removing(guest) as said:
        on(f"virsh -q snapshot-create-as {guest} s1 --disk-only --no-metadata")
    assert "somebody has changed its definition (devices/disk)" in said[0]
    assert guest in on("virsh list --all --name").split() and on(f"stat -c %i {path(guest)}") == before


def test_no_file_of_a_snapshot_is_left_without_a_word(guest: str) -> None:
    """The overlays, the file with the memory, and the disk that they stand on; each with what deletes it."""
    on(f"virsh start {guest} && mkdir -p /srv/memory")
    memory = f"/srv/memory/{guest}"
    on(f"virsh snapshot-create-as {guest} s1 --memspec {memory} --diskspec vda,file={IMAGES}/{guest}.s1")
    on(f"virsh snapshot-create-as {guest} s2 --no-metadata --disk-only --diskspec vda,file={IMAGES}/{guest}.s2")
    on(f"virsh snapshot-create-as {guest} s3 --disk-only --diskspec vda,file={IMAGES}/{guest}.s3")
    told = module(**gone(guest, force_off=True))
    left = on(f"ls {IMAGES}/{guest}* {memory}").split()
    assert {*left} == {*(f"{IMAGES}/{guest}{end}" for end in ("-system.img", ".s1", ".s2", ".s3")), memory}
    assert all(f" {one} of {guest}" in told and f"vol-delete {one}" in told for one in left), told
    on(f"rm {memory}")


@pytest.mark.deep
def test_a_guest_without_a_system_is_not_waited_for(guest: str) -> None:
    """It hears nothing, and has read no more than firmware reads: that is told."""
    on(f"virsh start {guest}")
    began = time.monotonic()
    told = module(**gone(guest, wait_timeout=300))
    assert time.monotonic() - began < 150
    assert f"{guest} did not shut down (" in told and "so this run did destroy it" in told
    assert guest not in on("virsh list --all --name")


@pytest.mark.parametrize(
    "every", [pytest.param("", id="its UUID"), pytest.param("g", id="every such text", marks=pytest.mark.deep)]
)
def test_a_copied_definition_does_not_take_the_disk_of_its_original(guest: str, every: str) -> None:
    before, uuid = identity(guest), on(f"virsh domuuid {guest}")
    other = "11111111-f6a4-8304-79aa-97f2502e193f"
    where = "" if every else "/<uuid>/"
    on(
        f"virsh dumpxml --inactive {guest} | sed '{where}s/{uuid}/{other}/{every};s/>{guest}</>other</' > /tmp/copy.xml; "
        f"virsh -q undefine {guest}; virsh -q define /tmp/copy.xml"
    )
    said = module(**gone("other"))
    assert identity(guest) == before and ("its entry was edited" if every else "this definition is a copy") in said


@pytest.mark.deep
def test_the_same_definition_on_another_host_does_not_take_the_disk(guest: str) -> None:
    """The other host is this one under another UUID."""
    before = identity(guest)
    conf, other = "/etc/libvirt/libvirtd.conf", "11111111-f6a4-8304-79aa-97f2502e193f"
    on(
        f"cp {conf} /tmp/conf; sed -i '/^host_uuid/d' {conf}; echo 'host_uuid = \"{other}\"' >> {conf}; systemctl restart libvirtd"
    )
    try:
        said = module(**gone(guest))
    finally:
        on(f"cp /tmp/conf {conf}; systemctl restart libvirtd")
    assert identity(guest) == before and "created on the host with UUID" in said


@pytest.mark.skipif(
    Path("/sys/class/dmi/id/product_uuid").exists(), reason="the hosts have the UUID of the firmware here"
)
def test_a_host_without_a_uuid_of_its_firmware_is_the_same_after_a_restart() -> None:
    conf, disk = "/etc/libvirt/libvirtd.conf", {"name": "system", "size": "2MiB"}
    on(f"cp {conf} /tmp/conf; sed -i '/^host_uuid/d' {conf}")
    try:
        settings: dict[str, t.Any] = {"block": "uuid", "daemon_settings": {}, "machine_uuid": True}
        assert 'host_uuid_source = "machine-id"' in LAB.module("virt_daemon", "--diff", **settings)
        assert "CHANGED" not in LAB.module("virt_daemon", **settings)
        module(name="kept", state="shutdown", vcpus=1, memory="64MiB", interfaces=[], disks=[disk])
        on("systemctl restart libvirtd")
        assert on("virsh capabilities | sed -n 's,.*<uuid>\\(.*\\)</uuid>.*,\\1,p' | tr -d -") == on(
            "cat /etc/machine-id"
        )
        assert "created on the host" not in module(**gone("kept")) and not on(
            "virsh list --all --name | grep kept; true"
        )
        assert on(f"ls {IMAGES} | grep kept; true") == ""
    finally:
        on(f"cp /tmp/conf {conf}; systemctl restart libvirtd")


@pytest.mark.deep
def test_another_file_that_has_the_name_of_a_detached_disk_is_not_deleted(guest: str) -> None:
    on(f"mv {path(guest)} {path(guest)}.mine; echo theirs > {path(guest)}")
    said = module(**gone(guest))
    assert "another file than the one that was created" in said and on(f"cat {path(guest)}") == "theirs"


def test_a_run_that_is_killed_before_it_deletes_is_finished_by_the_next(guest: str) -> None:
    inode = on(f"stat -c %i {path(guest)}")
    # libvirt stands still as soon as the disk is aside, so the run cannot go on before it is killed
    killer = LAB.start(
        *("ssh", "-F", LAB.folder / "ssh_config", "--", "hyper1"),
        f"libvirt=$(pidof libvirtd); set -- {ASIDE}/*.disk; "
        f"touch /tmp/ready; while [ ! -e $1 ]; do set -- {ASIDE}/*.disk; done; kill -STOP $libvirt; "
        f"kill -9 $(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' {ASIDE}/*.json); kill -CONT $libvirt",
    )
    until(lambda: on("ls /tmp/ready 2>/dev/null; true"))
    module(ok=False, **gone(guest))
    killer.communicate(timeout=60)
    assert on(f"stat -c %i {ASIDE}/*.disk") == inode and on(f"ls {path(guest)} 2>/dev/null; true") == ""
    assert f"mv -n {ASIDE}/" in LAB.module("virt_host_info", uri="qemu:///system")
    assert f"delete disk {path(guest)}, which was moved to" in module("--check", **gone(guest))
    assert on(f"stat -c %i {ASIDE}/*.disk") == inode
    assert "CHANGED" in module(**gone(guest)) and on(f"ls -A {IMAGES} | grep -e {guest} -e corral; true") == ""
    assert "CHANGED" not in module(**gone(guest))


def test_a_removed_disk_is_kept_for_its_time_and_comes_back_by_the_command_of_its_note(guest: str) -> None:
    before = identity(guest)
    kept = gone(guest, keep_removed_h=1)
    assert "CHANGED" in module("--check", **kept) and identity(guest) == before
    assert "CHANGED" in module(**kept) and on(f"ls {path(guest)} 2>/dev/null; true") == ""
    for flags in (["--check"], []):
        assert "CHANGED" not in module(*flags, **kept)
    told = LAB.module("virt_host_info", uri="qemu:///system")
    assert "it is kept until" in told
    place = on(f"ls {ASIDE}/*.disk")
    assert f"mv -n {place} {path(guest)}" in told
    on(f"mv -n {place} {path(guest)}; virsh -q pool-refresh default")
    assert identity(guest) == before and path(guest) in on("virsh vol-list default")


@pytest.mark.deep
def test_a_record_of_an_older_version_is_completed_once_and_then_counts(guest: str) -> None:
    on(
        f"virsh dumpxml --inactive {guest} | sed 's/<corral:volume [^>]*>/<corral:volume>/' > /tmp/old.xml; "
        "virsh -q define /tmp/old.xml"
    )
    assert "is of an older version" in module("--check", **gone(guest))
    assert "CHANGED" in module("--check", name=guest) and "CHANGED" in module(name=guest)
    for flags in (["--check"], []):
        assert "CHANGED" not in module(*flags, name=guest)
    assert f"inode='{on(f'stat -c %i {path(guest)}')}'" in on(f"virsh dumpxml --inactive {guest}").replace('"', "'")
    module(**gone(guest))
    assert on(f"ls {path(guest)} 2>/dev/null; true") == ""
