"""Disks that move to another pool: judged by virsh, qemu-img, sha256sum and the files themselves."""

from __future__ import annotations

import functools
import json
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("diskmove")
on = functools.partial(LAB.on, "hyper1")
OLD, NEW = f"{IMAGES}/g-system.qcow2", "/srv/fast/g-system.qcow2"
GUEST: dict[str, t.Any] = {
    "name": "g",
    "vcpus": 1,
    "memory": "64MiB",
    "interfaces": [],
    "state": "present",
    "disks": [{"name": "system", "size": "16MiB"}],
}
MOVE: dict[str, t.Any] = {"guest": "g", "disk": "system", "pool": "fast"}


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor with a second pool and a third, small one."""
    with hypervisors("diskmove"):
        on(
            "mkdir -p /srv/small && mount -t tmpfs -o size=4m none /srv/small && virsh -q pool-create-as small dir --target /srv/small"
        )
        told("virt_pool", name="fast", path="/srv/fast")
        yield
        on("virsh -q pool-destroy small; umount /srv/small")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "for g in $(virsh list --all --name); do virsh -q destroy $g; virsh -q undefine $g --snapshots-metadata --managed-save; "
        f"done 2>/dev/null; find {IMAGES} /srv/fast /srv/small -mindepth 1 -delete; for p in default fast small; do virsh -q "
        "pool-refresh $p; done"
    )


def told(module: str, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What a module answers."""
    task = {f"corral.virt.{module}": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def moved(**more: t.Any) -> dict[str, t.Any]:
    """Check, do, check again, do again; the result."""
    look = f"virsh dumpxml --inactive g; ls {IMAGES} /srv/fast"
    done, *again = LAB.four_steps("virt_disk_move", {**MOVE, **more}, look)
    assert [one["source"] for one in again] == [done["source"]] * 2
    return done


def refused(**more: t.Any) -> str:
    """Why it does not move."""
    return LAB.module("virt_disk_move", ok=False, **{**MOVE, **more})


def made(**more: t.Any) -> str:
    """A guest with content in its disk; the digest of that."""
    told("virt_domain", **{**GUEST, **more})
    on("head -c 8M /dev/urandom > /root/data")
    filled_alike(OLD)
    return content(OLD)


def filled_alike(path: str) -> None:
    """Put the same content into an image."""
    on(f"qemu-io -f qcow2 -c 'write -q -s /root/data 1M 8M' {path}")


def content(path: str, form: str = "qcow2") -> str:
    """The digest of what a guest sees of an image."""
    return on(f"qemu-img convert -U -f {form} -O raw {path} /root/raw && sha256sum < /root/raw; rm /root/raw")


def disk(*flags: str) -> str:
    """The file that the guest has, by its definition, or as it runs."""
    return on(f"virsh domblklist g {' '.join(flags)} | awk '/vda/ {{print $2}}'")


def test_a_disk_moves_while_its_guest_is_off_and_back_while_it_runs() -> None:
    before = made()
    steps = moved()["steps"]
    assert steps[0] == f"create disk {NEW}" and steps[1].startswith(f"copy disk {OLD} (")
    assert steps[2:] == [
        "define g (disk system in pool fast)",
        f"delete disk {OLD}",
        "record that g-system.qcow2 of pool fast is complete",
    ]
    assert disk("--inactive") == NEW and content(NEW) == before
    assert on(f"ls {IMAGES}") == "" and on("ls /srv/fast") == "g-system.qcow2"
    on("virsh -q start g --paused")
    steps = moved(pool="default")["steps"]
    assert steps[0] == f"create disk {OLD}" and steps[1].startswith("copy disk vda of running g (")
    assert steps[2:] == [
        f"switch disk vda of running g to {OLD}",
        f"record that disk {OLD} is of g",
        f"delete disk {NEW}",
        "record that g-system.qcow2 of pool default is complete",
    ]
    assert disk() == disk("--inactive") == OLD and content(OLD) == before
    assert on("ls /srv/fast") == "" and on(f"ls {IMAGES}") == "g-system.qcow2"
    assert "Copy" not in on("virsh blockjob g vda --raw")
    told("virt_domain", name="g", state="absent", remove_storage=True, force_off=True)
    assert on(f"ls {IMAGES}") == "", "it is the guest's own"


@pytest.mark.parametrize("running", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_disk_on_an_image_stays_on_it(running: bool) -> None:
    on(
        f"qemu-img create -q -f qcow2 {IMAGES}/base.qcow2 16M && qemu-io -f qcow2 -c 'write -q 0 12M' {IMAGES}/base.qcow2"
    )
    on("virsh -q pool-refresh default")
    before = made(disks=[{"name": "system", "image": "base.qcow2", "size": "16MiB"}])
    if running:
        on("virsh -q start g --paused")
    moved()
    info = json.loads(on(f"qemu-img info -U --output=json {NEW}"))
    assert info["full-backing-filename"] == f"{IMAGES}/base.qcow2" and content(NEW) == before
    assert on(f"ls {IMAGES}") == "base.qcow2"


@pytest.mark.deep
def test_a_copy_that_was_cut_goes_on() -> None:
    before = made()
    on("virsh -q start g --paused")
    killer = (
        "for i in $(seq 6000); do virsh blockjob g vda --raw | grep -q Copy && break; sleep 0.05; done; sleep 1; "
        "pkill -9 -f [v]irt_disk_move; pkill -9 -f ^/usr/bin/python3$"
    )
    on(f"nohup sh -c '{killer}' > /dev/null 2>&1 &")
    LAB.module("virt_disk_move", ok=False, **MOVE, bandwidth=2)
    assert disk() == disk("--inactive") == OLD
    assert "Copy" in on("virsh blockjob g vda --raw")
    assert refused(pool="small")
    checked = told("virt_disk_move", check=True, **MOVE)
    assert checked["steps"][0].startswith("go on copying disk vda")
    assert told("virt_disk_move", **MOVE, bandwidth=1000)["steps"] == checked["steps"]
    assert disk() == NEW and content(NEW) == before and on(f"ls {IMAGES}") == ""
    assert not told("virt_disk_move", **MOVE)["changed"]


@pytest.mark.deep
def test_a_copy_that_was_left_is_made_again() -> None:
    before = made()
    on("virsh -q start g --paused")
    killer = (
        "for i in $(seq 6000); do virsh blockjob g vda --raw | grep -q Copy && break; sleep 0.05; done; sleep 1; "
        "pkill -9 -f [v]irt_disk_move; pkill -9 -f ^/usr/bin/python3$; virsh destroy g"
    )
    on(f"nohup sh -c '{killer}' > /dev/null 2>&1 &")
    LAB.module("virt_disk_move", ok=False, **MOVE, bandwidth=2)
    until(lambda: on("virsh domstate g") == "shut off", 30)
    done = told("virt_disk_move", **MOVE)
    assert done["steps"][0] == f"create disk {NEW} (again: an interrupted run has left a part)"
    assert disk("--inactive") == NEW and content(NEW) == before and on(f"ls {IMAGES}") == ""


@pytest.mark.deep
def test_a_copy_that_takes_too_long_leaves_the_disk_where_it_is() -> None:
    made()
    on("virsh -q start g --paused")
    assert "within 2 s; the guest has its old disk" in refused(bandwidth=1, job_timeout=2)
    assert disk() == disk("--inactive") == OLD and "Copy" not in on("virsh blockjob g vda --raw")
    moved()
    assert disk() == NEW


def test_what_cannot_move_is_refused() -> None:
    made()
    assert "it has no such disk; choose one of system" in refused(disk="nix")
    assert "no such guest" in refused(guest="nix")
    assert "bandwidth: must be from 0" in refused(bandwidth=-1)
    assert "there is no pool nix here; choose one of" in refused(pool="nix")
    assert "are free there; make room" in refused(pool="small")
    on(f"printf theirs > {NEW}")
    assert f"{NEW} exists, and is no part of this move" in refused()
    assert on(f"cat {NEW}; rm {NEW}") == "theirs"
    on("virsh -q snapshot-create-as g s1")
    assert "it has snapshots, which name the file" in refused()
    on("virsh -q snapshot-delete g s1; virsh -q start g; virsh -q managedsave g")
    assert "its saved state names the file" in refused()
    on("virsh -q managedsave-remove g; virsh -q start g")
    on("virsh -q blockcopy g vda --dest /srv/fast/theirs.qcow2 --transient-job --bandwidth 1")
    assert "a block job (copy) works on it" in refused()
    on("virsh -q blockjob g vda --abort; virsh -q destroy g")
    assert disk("--inactive") == OLD
    on(
        "virsh -q dumpxml --inactive g | sed 's/<name>g</<name>h</; /<uuid>/d; /corral/d' > /root/h.xml; virsh -q define /root/h.xml"
    )
    assert f"guest h uses {OLD}, too" in refused()


def test_a_disk_that_is_not_the_guests_own_is_kept() -> None:
    on(f"qemu-img create -q -f qcow2 {IMAGES}/theirs.qcow2 16M")
    told(
        "virt_domain", **{**GUEST, "disks": [{"name": "system", "source": f"{IMAGES}/theirs.qcow2", "format": "qcow2"}]}
    )
    (note,) = moved()["notes"]
    assert f"{IMAGES}/theirs.qcow2 was not made for g" in note and on(f"ls {IMAGES}") == "theirs.qcow2"
    assert disk("--inactive") == "/srv/fast/theirs.qcow2"


RAW = f"{IMAGES}/g-system.img"


def seen(target: str, path: str, form: str) -> list[str]:
    """Where a disk is, by the definition and as the guest runs; the format that both say; the digest of its content."""
    return on(
        f"for how in --inactive ''; do virsh domblklist g $how | awk '/{target}/ {{print $2}}'; done | sort -u; "
        f"(virsh dumpxml g; virsh dumpxml g --inactive) | grep -B3 {path} | grep -o \"type='[rq][a-z0-9]*'\" | sort -u; "
        f"qemu-img convert -U -f {form} -O raw {path} /root/raw && sha256sum < /root/raw; rm /root/raw; ls {IMAGES}"
    ).splitlines()


@pytest.mark.deep
def test_disks_become_raw_beside_themselves_and_qcow2_elsewhere() -> None:
    """One while the guest is off, the other while it runs."""
    base = f"{IMAGES}/base.qcow2"
    on(
        f"qemu-img create -q -f qcow2 {base} 16M && qemu-io -f qcow2 -c 'write -q 12M 3M' {base}; "
        "virsh -q pool-refresh default"
    )
    on_base: dict[str, t.Any] = {"image": "base.qcow2", "size": "16MiB"}
    before = made(disks=[{"name": "system", **on_base}, {"name": "data", **on_base}])
    filled_alike(f"{IMAGES}/g-data.qcow2")
    assert f"with what it reads of {base}, and" in refused(pool="small", format="raw")
    there = ["base.qcow2", "g-data.qcow2", "g-system.qcow2"]
    for name, target in (("data", "vdb"), ("system", "vda")):
        raw, back = f"{IMAGES}/g-{name}.img", f"/srv/fast/g-{name}.qcow2"
        to_raw = {"disk": name, "pool": "default", "format": "raw"}
        if name == "system":
            on("virsh -q start g --paused")
        done = moved(**to_raw) if name == "system" else told("virt_disk_move", **{**MOVE, **to_raw})
        there.remove(f"g-{name}.qcow2")
        assert f"with what it reads of {base}) to {raw} as raw" in done["steps"][1]
        assert seen(target, raw, "raw") == [raw, "type='raw'", before, *sorted([*there, f"g-{name}.img"])]
        assert int(on(f"du -m {raw} | cut -f1")) <= 13, "holes stay holes"
        steps = told("virt_disk_move", **{**MOVE, "disk": name}, format="qcow2")["steps"]
        assert steps[1].endswith(f"{back} as qcow2" + (", and compare" if name == "data" else ""))
        assert seen(target, back, "qcow2") == [back, "type='qcow2'", before, *there]
        assert "backing" not in on(f"qemu-img info -U {back}")
    told("virt_domain", name="g", state="absent", remove_storage=True, force_off=True)
    assert on("ls /srv/fast") == "", "they are the guest's own"


@pytest.mark.deep
def test_a_disk_that_becomes_raw_and_is_killed_is_raw_or_what_it_was() -> None:
    before = made()
    on("virsh -q start g --paused")
    killer = (
        "for i in $(seq 6000); do virsh blockjob g vda --raw | grep -q Copy && break; sleep 0.05; done; sleep 1; "
        "pkill -9 -f [v]irt_disk_move; pkill -9 -f ^/usr/bin/python3$"
    )
    on(f"nohup sh -c '{killer}' > /dev/null 2>&1 &")
    raw = {**MOVE, "pool": "default", "format": "raw"}
    LAB.module("virt_disk_move", ok=False, **raw, bandwidth=2)
    assert disk() == disk("--inactive") == OLD and "a block job (copy) works on it" in refused()
    assert told("virt_disk_move", **raw, bandwidth=1000)["steps"][0].startswith("go on copying disk vda")
    assert disk() == RAW and content(RAW, "raw") == before and on(f"ls {IMAGES}") == "g-system.img"
