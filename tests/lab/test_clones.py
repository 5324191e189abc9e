"""Disks made from images on a real hypervisor: made, grown, rebased, flattened; judged by qemu-img, virsh and cmp,
never by our modules.

The guests have no operating system: QEMU holds their disks all the same.
"""

from __future__ import annotations

import functools
import json
import re
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, guide, hypervisors
from ansible_collections.corral.virt.tests.lab.test_images import end_group

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("clones")
on = functools.partial(LAB.on, "hyper1")
module = functools.partial(LAB.module, "virt_image")
OLD, NEW = "tiny.0123456789ab.qcow2", "tiny.ba9876543210.qcow2"
GONE = """for guest in $(virsh list --name); do virsh destroy $guest; done
for guest in $(virsh list --all --name); do virsh undefine $guest; done"""
CONTENTS = f"""{GONE}; cd {IMAGES} && rm -rf ./* .*.clone .corral
qemu-img create -q -f qcow2 {OLD} 64M && qemu-io -c 'write -P 1 64k 40M' {OLD} >/dev/null
qemu-img create -q -f qcow2 {NEW} 64M && qemu-io -c 'write -P 2 1M 30M' {NEW} >/dev/null
for content in tiny.*; do echo '{{}}' >.$content.json; done; chmod 444 tiny.*; ln -s {OLD} tiny.qcow2; virsh pool-refresh default"""
GUEST = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>32</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{path}'/>{below}<target dev='vda' bus='virtio'/></disk>
</devices></domain>"""
BELOW = "<backingStore type='file'><format type='qcow2'/><source file='{}'/><backingStore/></backingStore>"


def cycle(**arguments: t.Any) -> str:
    """Check, do, check again, do again."""
    before = on(f"ls -lAR --time-style=full-iso {IMAGES} /srv")
    assert "CHANGED" in module("--check", **arguments)
    assert on(f"ls -lAR --time-style=full-iso {IMAGES} /srv") == before, "check mode wrote something"
    done = module(**arguments)
    assert "CHANGED" in done
    for flags in (["--check"], []):
        assert "CHANGED" not in module(*flags, **arguments)
    return done


def info(path: str) -> dict[str, t.Any]:
    """What qemu-img says."""
    return t.cast("dict[str, t.Any]", json.loads(on(f"qemu-img info -U --output=json {path}")))


def define(name: str, path: str, *, below: str = "", form: str = "qcow2", start: bool = True) -> None:
    """A guest with that disk."""
    xml = GUEST.format(name=name, path=path, below=below, form=form)
    command = f"cat >/tmp/{name}.xml && virsh define /tmp/{name}.xml{f' && virsh start {name}' if start else ''}"
    on(command, given=xml)


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """One host, set up by the collection's own roles."""
    with hypervisors("clones"):
        yield


@pytest.fixture(autouse=True)
def contents() -> Iterator[None]:
    """A pool in which `tiny.qcow2` points to OLD; NEW is there too, and differs."""
    on(CONTENTS)
    yield
    on(GONE)


def test_an_overlay_grows_off_and_while_its_guest_runs() -> None:
    disk = f"{IMAGES}/web1-data.qcow2"
    cycle(name="web1-data.qcow2", image="tiny.qcow2", size="1GiB")
    assert (info(disk)["backing-filename"], info(disk)["virtual-size"]) == (f"{IMAGES}/{OLD}", 2**30)
    # `size` would be the file's, by Ansible
    assert "size_bytes: 1073741824" in module(name="web1-data.qcow2", image="tiny.qcow2")
    cycle(name="web1-data.qcow2", size="2GiB")
    define("web1", disk)
    cycle(name="web1-data.qcow2", size="3GiB")
    assert "3221225472" in on("virsh domblkinfo web1 vda")
    assert "guest web1 (running) uses it" in module(name="web1-data.qcow2", size="1GiB", allow_shrink=True, ok=False)
    assert "guest web1 (running) uses it" in module(name="web1-data.qcow2", image=NEW, state="rebased", ok=False)
    assert "guest web1 uses it" in module(name="web1-data.qcow2", state="absent", remove_storage=True, ok=False)
    on("virsh destroy web1")
    cycle(name="web1-data.qcow2", size="64MiB", allow_shrink=True)
    on(f"qemu-img check -q {disk} && qemu-img compare {disk} {IMAGES}/{OLD}")


def test_rebased_and_flattened_it_keeps_its_content() -> None:
    disk, reference = f"{IMAGES}/web1-data.qcow2", "/var/tmp/reference.raw"
    cycle(name="web1-data.qcow2", image="tiny.qcow2")
    on(f"qemu-io -c 'write -P 7 5M 1M' {disk} && qemu-img convert -O raw {disk} {reference}")
    define("web1", disk, below=BELOW.format(f"{IMAGES}/{OLD}"), start=False)
    on(f"ln -sfn {NEW} {IMAGES}/tiny.qcow2")
    cycle(name="web1-data.qcow2", image="tiny.qcow2", state="rebased")
    assert info(disk)["backing-filename"] == f"{IMAGES}/{NEW}"
    on(f"qemu-img check -q {disk} && qemu-img compare {disk} {reference}")
    assert OLD not in on("virsh start web1 && virsh dumpxml web1") and NEW in on("virsh dumpxml web1")
    on("virsh destroy web1")
    cycle(name="web1-data.qcow2", state="flattened")
    on(f"rm {IMAGES}/tiny.* && qemu-img check -q {disk} && qemu-img compare {disk} {reference} && virsh start web1")


@pytest.mark.parametrize(
    "below",
    [
        pytest.param("", id="silent", marks=pytest.mark.deep),
        pytest.param(BELOW.format(f"{IMAGES}/{OLD}"), id="explicit"),
    ],
)
def test_a_running_guest_flattens_its_disk(below: str) -> None:
    disk, reference = f"{IMAGES}/web1-data.qcow2", "/var/tmp/reference.raw"
    module(name="web1-data.qcow2", image="tiny.qcow2")
    on(f"qemu-io -c 'write -P 7 5M 1M' {disk} && qemu-img convert -O raw {disk} {reference}")
    define("web1", disk, below=below)
    cycle(name="web1-data.qcow2", state="flattened")
    assert "backing-filename" not in info(disk)
    assert OLD not in on("virsh dumpxml web1; virsh dumpxml --inactive web1")
    on(
        f"virsh destroy web1 && rm {IMAGES}/tiny.* && qemu-img check -q {disk} && qemu-img compare {disk} {reference} "
        "&& virsh start web1"
    )


@pytest.mark.deep
def test_flattening_that_takes_too_long_is_given_up_and_goes_on_later() -> None:
    disk = f"{IMAGES}/web1-data.qcow2"
    module(name="web1-data.qcow2", image="tiny.qcow2")
    define("web1", disk)
    on("virsh blockpull web1 vda --bandwidth 1")  # as a killed run would leave it, but slow
    output = module(name="web1-data.qcow2", state="flattened", job_timeout=2, ok=False)
    assert "within 2 s; its backing file is unchanged" in output
    assert (
        "No current block job" in on("virsh blockjob web1 vda") and info(disk)["backing-filename"] == f"{IMAGES}/{OLD}"
    )
    cycle(name="web1-data.qcow2", state="flattened")


@pytest.mark.deep
def test_a_filesystem_that_can_shares_the_blocks_of_a_copy() -> None:
    """And one that is full takes none of it."""
    loops = "for i in 0 1 2 3 4 5 6 7; do test -e /dev/loop$i || mknod /dev/loop$i b 7 $i; done"
    control = "test -e /dev/loop-control || mknod /dev/loop-control c 10 237"
    made = "truncate -s 400M /var/tmp/small.img && mkfs.xfs -qf /var/tmp/small.img && mkdir -p /srv/small"
    on("which mkfs.xfs >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get -qq install xfsprogs >/dev/null")
    if "mounted" not in on(
        f"({control}; {loops}; {made} && mount -o loop /var/tmp/small.img /srv/small) 2>&1 && echo mounted; true"
    ):
        pytest.skip("this machine lets the lab's hosts mount no loop device")
    try:
        on("virsh pool-create-as small dir --target /srv/small")
        on("head -c 150M /dev/urandom >/srv/small/big.0123456789ab.raw")
        for copy in ("one.img", "two.img"):  # 150 MiB three times are more than there is
            cycle(name=copy, pool="small", image="big.0123456789ab.raw", clone="copy", reserve="0")
            on(f"cmp /srv/small/{copy} /srv/small/big.0123456789ab.raw")
        before = on("ls -lA --time-style=full-iso /srv/small")
        on(
            f"qemu-img convert -O qcow2 /srv/small/one.img {IMAGES}/large.0123456789ab.qcow2 && fallocate -l 100M "
            "/srv/small/ballast"
        )
        three: dict[str, t.Any] = {
            "image": "large.0123456789ab.qcow2",
            "image_pool": "default",
            "clone": "copy",
            "reserve": "0",
        }
        output = module(name="three.img", pool="small", ok=False, **three)
        assert "more is needed, and 0 MiB must stay free (reserve)" in output
        on("rm /srv/small/ballast")
        assert on("ls -lA --time-style=full-iso /srv/small") == before, "nothing is left of it"
    finally:
        on("virsh pool-destroy small; umount /srv/small; rm -rf /srv/small /var/tmp/small.img")


@pytest.mark.deep
def test_a_copy_killed_half_way_is_made_by_the_next_run() -> None:
    on(f"head -c 600M /dev/urandom >{IMAGES}/big.0123456789ab.raw")
    arguments: dict[str, t.Any] = {"name": "db1.qcow2", "image": "big.0123456789ab.raw", "clone": "copy"}
    with LAB.start("ansible", "hyper1", "-m", "virt_image", "-a", json.dumps(arguments)) as dying:
        on(
            f"for i in $(seq 600); do test -s {IMAGES}/.db1.qcow2.*.clone && break; sleep 0.1; done; "
            "kill -9 $(ps -o ppid= -p $(pidof qemu-img)) && sleep 1 && ! pidof qemu-img"
        )
        dying.communicate()
    assert dying.returncode
    assert on(f"ls -A {IMAGES} | grep db1").endswith(".clone"), "nothing is visible under its name"
    module(**arguments)
    on(f"qemu-img compare {IMAGES}/db1.qcow2 {IMAGES}/big.0123456789ab.raw")
    assert on(f"ls -A {IMAGES} | grep db1") == "db1.qcow2"


def test_a_guest_with_a_copy_of_its_own() -> None:
    disks = [{"name": "system", "image": "tiny.qcow2", "clone": "copy", "format": "raw", "size": "1GiB"}]
    arguments: dict[str, t.Any] = {
        "name": "app1",
        "vcpus": 1,
        "memory": "32MiB",
        "interfaces": [],
        "disks": disks,
        "state": "running",
    }
    assert "CHANGED" in LAB.module("virt_domain", **arguments)
    assert "CHANGED" not in LAB.module("virt_domain", **arguments)
    found = info(f"{IMAGES}/app1-system.img")
    assert (found["format"], found["virtual-size"]) == ("raw", 2**30)
    on(f"virsh destroy app1 && qemu-img compare {IMAGES}/app1-system.img {IMAGES}/{OLD}")


def macs(guest: str) -> list[str]:
    """Of its interfaces, as virsh tells them."""
    return re.findall(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", on(f"virsh domiflist {guest} --inactive"))


def test_a_copy_of_a_guest_has_disks_and_an_identity_of_its_own() -> None:
    """Of one that others made, with a raw disk in another pool, snapshots and a fixed port; it is not touched."""
    on(
        f"mkdir -p /srv/other && cd {IMAGES} && qemu-img create -q -f qcow2 -F qcow2 -b {IMAGES}/{OLD} o.qcow2 100M "
        "&& qemu-io -c 'write -P 7 90M 64k' o.qcow2 >/dev/null && qemu-img snapshot -c inside o.qcow2 "
        "&& truncate -s 10M /srv/other/data.img && qemu-io -f raw -c 'write -P 3 0 64k' /srv/other/data.img >/dev/null "
        "&& virsh -q pool-create-as other dir --target /srv/other && virsh -q pool-refresh default"
    )
    define("orig", f"{IMAGES}/o.qcow2", start=False)
    on(
        "virsh -q attach-disk orig /srv/other/data.img vdb --driver qemu --subdriver raw --config && virsh -q "
        'attach-interface orig bridge br0 --config && virsh dumpxml orig --inactive | sed "s#</devices>#<graphics '
        "type='vnc' port='5999' autoport='no'/></devices>#\" >/tmp/o.xml && virsh -q define /tmp/o.xml"
    )
    look = (
        f"virsh dumpxml orig --inactive; md5sum {IMAGES}/o.qcow2 /srv/other/data.img; stat -c '%n %a %U' "
        f"{IMAGES}/o.qcow2"
    )
    before, names = on(look), f"virsh list --all --name; ls -A {IMAGES} /srv/other"
    arguments: dict[str, t.Any] = {
        "name": "twin",
        "clone_of": "orig",
        "memory": "48MiB",
        "disks": [{"name": "vda", "size": "200MiB"}],
    }
    there = on(names)
    assert "CHANGED" in LAB.module("virt_domain", "--check", **arguments) and on(names) == there
    assert "CHANGED" in LAB.module("virt_domain", **arguments)
    for flags in ((), ("--check",)):
        assert "CHANGED" not in LAB.module("virt_domain", *flags, **arguments)
    assert on(look) == before
    disk = info(f"{IMAGES}/twin-vda.qcow2")
    assert (disk["virtual-size"], "backing-filename" in disk, disk.get("snapshots")) == (200 * 2**20, False, None)
    on(f"qemu-img compare {IMAGES}/twin-vda.qcow2 {IMAGES}/o.qcow2 && cmp /srv/other/twin-vdb.img /srv/other/data.img")
    found = on("virsh dumpxml twin --inactive --security-info")
    assert "port='5999'" not in found and "49152" in found and "orig" not in found.replace("origin", "")
    assert on("virsh domuuid twin") != on("virsh domuuid orig")
    assert len(macs("twin")) == 1 and macs("twin") != macs("orig")
    on("virsh -q start twin && virsh -q start orig && virsh destroy orig")
    busy = LAB.module("virt_domain", ok=False, name="third", clone_of="twin")
    assert "cannot create third as a copy of twin: twin is running, and would write to its disks" in busy
    on("virsh destroy twin")
    gone = LAB.module("virt_domain", name="twin", state="absent", remove_storage=True)
    assert "CHANGED" in gone and on(names) == there and on(look) == before
    on("virsh pool-destroy other; rm -r /srv/other")


def test_a_guest_is_not_started_while_its_disk_is_copied() -> None:
    """Killed half-way, too: nothing can be started then, and the next run makes it whole."""
    on(f"head -c 300M /dev/urandom >{IMAGES}/b.img && virsh -q pool-refresh default")
    define("big", f"{IMAGES}/b.img", form="raw", start=False)
    arguments: dict[str, t.Any] = {"name": "twin", "clone_of": "big", "state": "present"}
    with LAB.start("ansible", "hyper1", "-m", "virt_domain", "-a", json.dumps(arguments)) as dying:
        # It stands still as soon as it copies, however slow this machine is.
        found = "for it in $(pgrep python); do ls -l /proc/$it/fd | grep -q /b.img && echo $it; done"
        copying = f"until test -e {IMAGES}/twin-vda.img; do sleep 0.05; done; {found}"
        pids = on(f"for pid in $({copying}); do kill -STOP $pid; echo $pid; done").split()
        assert pids and "lock" in on("virsh start big 2>&1", ok=False)
        on(f"kill -9 {' '.join(pids)}")
        dying.communicate()
    assert "Cannot access storage file" in on("virsh start twin 2>&1", ok=False)
    LAB.module("virt_domain", **arguments)
    on(f"cmp {IMAGES}/twin-vda.img {IMAGES}/b.img && virsh -q start twin && virsh -q start big")


@pytest.mark.deep  # the tests above ask each of them by itself
def test_tasks_of_the_guide_work() -> None:
    """As they stand there, in their order; and nothing is left of what they made."""
    tasks = guide("clones")
    assert len(tasks) >= 9
    on(f"cd {IMAGES} && cp {OLD} debian-12.0123456789ab.qcow2 && ln -s debian-12.0123456789ab.qcow2 debian-12.qcow2")
    on(f"echo '{{}}' >{IMAGES}/.debian-12.0123456789ab.qcow2.json")
    before = on(f"virsh list --all --name | sort; ls -A {IMAGES}")
    LAB.play(*tasks)
    assert on(f"virsh list --all --name | sort; ls -A {IMAGES}") == before


SLOW = """#!/bin/sh
test "$1" = convert && shift && set -- convert -r 20M "$@"
exec /usr/bin/qemu-img "$@"
"""
PROGRESS = r"^hyper1: {}: {} (\d+) %, [\d.]+ of [\d.]+ MiB, [\d.]+ MiB/s"


@pytest.fixture
def slow_copies() -> Iterator[None]:
    """200 MiB that take ten seconds to copy."""
    on("cat >/usr/local/bin/qemu-img && chmod 755 /usr/local/bin/qemu-img", given=SLOW)
    on(f"head -c 200M /dev/urandom >{IMAGES}/big.0123456789ab.raw")
    yield
    on("rm /usr/local/bin/qemu-img")


def percents(output: str, name: str, doing: str) -> list[int]:
    """What was told on the terminal of that work."""
    return [int(percent) for percent in re.findall(PROGRESS.format(re.escape(name), doing), output, re.MULTILINE)]


@pytest.mark.deep
@pytest.mark.usefixtures("slow_copies")
def test_progress_of_a_copy_is_shown() -> None:
    arguments = {"name": "db1.qcow2", "image": "big.0123456789ab.raw", "clone": "copy"}
    output = LAB.run("ansible", "hyper1", "-m", "virt_image", "-a", json.dumps(arguments))
    result = percents(output, "db1.qcow2", "copying")
    assert result and result == sorted(result) and any(0 < percent < 100 for percent in result), output
    assert on(f"ls -A {IMAGES} | grep -e db1 -e corral") == "db1.qcow2"


@pytest.mark.deep
def test_progress_of_a_flattening_guest_is_shown() -> None:
    module(name="web1-data.qcow2", image="tiny.qcow2")
    define("web1", f"{IMAGES}/web1-data.qcow2")
    on("virsh blockpull web1 vda --bandwidth 5")  # an earlier run's: it is waited for
    arguments = {"name": "web1-data.qcow2", "state": "flattened"}
    output = LAB.run("ansible", "hyper1", "-m", "virt_image", "-a", json.dumps(arguments))
    assert percents(output, "web1-data.qcow2", "flattening"), output
    assert "backing-filename" not in info(f"{IMAGES}/web1-data.qcow2")


@pytest.mark.deep
@pytest.mark.usefixtures("slow_copies")
def test_a_copy_goes_on_when_its_controller_dies() -> None:
    arguments: dict[str, t.Any] = {"name": "db1.qcow2", "image": "big.0123456789ab.raw", "clone": "copy"}
    controller = LAB.start("ansible", "hyper1", "-m", "virt_image", "-a", json.dumps(arguments))
    on(f"for i in $(seq 600); do test -s {IMAGES}/.db1.qcow2.*.clone && exit; sleep 0.1; done; exit 1")
    end_group(controller)
    assert on(f"pidof qemu-img; ls -A {IMAGES} | grep db1").endswith(".clone"), "it is still at work"
    assert "CHANGED" not in module(**arguments), "the next run waits for its end, and finds all done"
    on(f"qemu-img compare {IMAGES}/db1.qcow2 {IMAGES}/big.0123456789ab.raw")
    assert on(f"ls -A {IMAGES} | grep -e db1 -e corral") == "db1.qcow2"
