"""Snapshots of guests that write meanwhile: judged by virsh, qemu-img, sha256sum and the numbers that the guest wrote."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import random
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("snap")
on = functools.partial(LAB.on, "hyper1")
STATE = f"virsh dumpxml --inactive g | grep -v uuid; virsh snapshot-list --tree g; find {IMAGES} -type f | sort"
FIRMWARE = "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader><nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/srv/g.fd</nvram>"
NODES = "for n in $(seq 0 99); do test -e /dev/loop$n || mknod /dev/loop$n b 7 $n; done; test -e /dev/loop-control || mknod /dev/loop-control c 10 237"
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor."""
    with hypervisors("snap"):
        on(f"base64 -d > /root/boot; mkdir -p {IMAGES}", given=base64.b64encode(boot_sector(1)).decode())
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "virsh -q destroy g; virsh -q undefine g --snapshots-metadata --managed-save --checkpoints-metadata --nvram "
        f"2>/dev/null; find {IMAGES} -mindepth 1 -delete; rm -f /srv/g.fd; virsh -q pool-refresh default; true"
    )


def told(*, check: bool = False, module: str = "virt_snapshot", **options: t.Any) -> dict[str, t.Any]:
    """What the module answers of the guest."""
    task = {f"corral.virt.{module}": {"guests": ["g"], **options}, "register": "told"}
    found = LAB.tell(task, hosts="hyper1", check=check)["hyper1"]
    return t.cast("dict[str, t.Any]", found["results" if module == "virt_snapshot" else "guests"][0])


def done(**options: t.Any) -> dict[str, t.Any]:
    """Check, and do the same; the result."""
    before = on(STATE)
    checked = told(check=True, **options)
    assert on(STATE) == before, "check mode changes nothing"
    made = told(**options)
    assert plain(made) == plain(checked) and made["changed"] == checked["changed"] == bool(made["steps"])
    return made


def plain(told: dict[str, t.Any]) -> list[str]:
    """The steps without sizes, which grow while the guest writes."""
    return [step.partition(" (")[0] if step.startswith("merge") else step for step in told["steps"]]


def again(**options: t.Any) -> None:
    """Check again, do again."""
    for check in (True, False):
        assert told(check=check, **options)["steps"] == []


def refused(**options: t.Any) -> str:
    """Why it is not done."""
    return LAB.module("virt_snapshot", ok=False, guests=["g"], **options)


def guest(*forms: str, os: str = "", devices: str = "", start: bool = True) -> None:
    """A guest that numbers the sectors of its first disk; its other disks hold random bytes."""
    disks = ""
    for number, form in enumerate(forms):
        path = f"{IMAGES}/g-{number}.{form}"
        on(f"qemu-img create -q -f {form} {path} 16M")
        boot = "write -q -s /root/boot 0 512"
        on(
            f"head -c 4M /dev/urandom > /root/data; qemu-io -f {form} -c '{'write -q -s /root/data 1M 4M' if number else boot}' {path}"
        )
        disks += (
            f"<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{path}'/>"
            f"<target dev='vd{'abc'[number]}' bus='virtio'/></disk>"
        )
    machine = f"<os><type arch='x86_64' machine='q35'>hvm</type>{os}</os><features><acpi/></features>"
    xml = (
        f"<domain type='qemu'><name>g</name><memory unit='MiB'>64</memory>{machine}<devices>{disks}<serial type='pty'/>"
        f"{devices}</devices></domain>"
    )
    on("cat > /root/g.xml && virsh -q define /root/g.xml && virsh -q pool-refresh default", given=xml)
    if start:
        on("virsh -q start g")


def disk(target: str = "vda") -> str:
    """The file that the guest writes to."""
    return on(f"virsh domblklist g | awk '$1 == \"{target}\" {{print $2}}'")


def digest(target: str) -> str:
    """Of the content of a disk."""
    path = disk(target)
    form = "raw" if path.endswith("raw") else "qcow2"
    return on(f"qemu-img convert -U -f {form} -O raw {path} /root/raw && sha256sum < /root/raw; rm -f /root/raw")


def numbers(path: str = "", form: str = "qcow2") -> int:
    """How many sectors the guest has written; all of them are right."""
    raw = on(
        f"qemu-img convert -U -f {form} -O raw {path or disk()} /root/raw && head -c 4M /root/raw | gzip | base64 -w0; rm "
        "-f /root/raw"
    )
    return count(gzip.decompress(base64.b64decode(raw)))


def grows(by: int = 5) -> int:
    """Wait until the guest has written more; how many it has then."""
    before = numbers()
    until(lambda: numbers() >= before + by, 60, every_s=0.5)
    return numbers()


def state() -> str:
    return on("virsh domstate g")


def test_a_running_guest_goes_back_and_forward() -> None:
    guest("qcow2", "raw")
    until(lambda: numbers() > 3, 60, every_s=0.5)
    other = digest("vdb")
    made = done(name="before", description="an upgrade")
    assert made["steps"] == [
        "record that snapshot before of g is being taken",
        "take snapshot before of g (external)",
        "record snapshot before of g",
    ]
    assert "no guest agent answers" in made["notes"][0]
    again(name="before")
    then = numbers(f"{IMAGES}/g-0.qcow2")
    assert grows() > then and state() == "running"
    found = told(module="virt_snapshot_info")["snapshots"]
    assert [(one["name"], one["kind"], one["current"]) for one in found] == [("before", "external", True)]
    assert {one["path"] for one in found[0]["disks"]} == {disk("vda"), disk("vdb")}

    options = {"name": "before", "state": "reverted", "run": True}
    assert "this throws away what the guest has written" in refused(**options)
    old = disk()
    made = done(**options, confirm="before")
    assert made["kept"] == [old, *[one["path"] for one in found[0]["disks"] if one["target"] == "vdb"]]
    assert state() == "running" and old != disk()
    assert numbers(f"{IMAGES}/g-0.qcow2") == then and grows() > then, "it goes on after the last sector of then"
    assert digest("vdb") == other and on(f"ls -A {IMAGES}/.corral/.removed | wc -l") == "4"
    assert on("systemctl list-units --all 'corral-*' --no-legend") == ""

    done(name="before", state="absent")
    again(name="before", state="absent")
    assert disk() == f"{IMAGES}/g-0.qcow2" and digest("vdb") == other and grows() > then
    assert on(f"ls {IMAGES}") == "g-0.qcow2\ng-1.raw" and on("virsh snapshot-list --name g") == ""


@pytest.mark.deep
def test_a_guest_that_is_off() -> None:
    guest("qcow2", "raw", start=False)
    content = []
    for name in ("one", "two", "three"):
        content.append((digest("vda"), digest("vdb")))
        done(name=name)
        again(name=name)
        for target in ("vda", "vdb"):
            on(
                f"head -c 1M /dev/urandom > /root/data; qemu-io -f qcow2 -c 'write -q -s /root/data 2M 1M' {disk(target)}"
            )
    now = (digest("vda"), digest("vdb"))
    done(name="two", state="absent")  # in the middle
    assert (digest("vda"), digest("vdb")) == now
    made = done(name="three", state="reverted", run=False, confirm="three", keep_reverted_h=0)
    assert (digest("vda"), digest("vdb")) == content[2] and state() == "shut off" and made["kept"] == []
    done(name="three", state="absent")
    done(name="one", state="reverted", run=False, confirm="one")
    assert (digest("vda"), digest("vdb")) == content[0]
    done(name="one", state="absent")
    assert (digest("vda"), digest("vdb")) == content[0] and disk("vdb") == f"{IMAGES}/g-1.raw"
    assert on(f"ls {IMAGES}") == "g-0.qcow2\ng-1.raw"
    on("virsh -q start g")


@pytest.mark.deep
def test_a_block_device_has_its_new_files_in_a_directory() -> None:
    guest("qcow2", start=False)
    device = on(f"truncate -s 16M /srv/block; {NODES}; losetup -f --show /srv/block")
    try:
        on(f"head -c 4M /dev/urandom > {device}; virsh -q attach-disk g {device} vdb --sourcetype block --config")
        on("virsh -q start g")
        then = on(f"sha256sum < {device}")
        assert f"is the block device {device}" in refused(name="before")
        done(name="before", directory=IMAGES)
        assert disk("vdb").startswith(f"{IMAGES}/g-vdb.before.") and disk().startswith(f"{IMAGES}/g-vda.before.")
        on("virsh -q destroy g")
        on(f"head -c 4M /dev/urandom > /root/data; qemu-io -f qcow2 -c 'write -q -s /root/data 1M 4M' {disk('vdb')}")
        now = digest("vdb")
        done(name="before", state="reverted", run=True, confirm="before")
        assert digest("vdb") == then == on(f"sha256sum < {device}") != now
        on("virsh -q destroy g")
        on(f"qemu-io -f qcow2 -c 'write -q -s /root/data 1M 4M' {disk('vdb')}; virsh -q start g")
        now = digest("vdb")
        done(name="before", state="absent")
        assert disk("vdb") == device and on(f"sha256sum < {device}") == now and on(f"ls {IMAGES}") == "g-0.qcow2"
    finally:
        on(f"virsh -q destroy g; losetup -d {device}; rm /srv/block")


@pytest.mark.deep
def test_variables_and_tpm_go_back_with_the_disks() -> None:
    on("apt-get install -qq -y ovmf swtpm swtpm-tools >/dev/null 2>&1")
    guest("qcow2", os=FIRMWARE, devices=TPM)
    until(lambda: on("test -s /srv/g.fd && ls /var/lib/libvirt/swtpm/*/tpm2/*.permall || true"), 60)
    on("virsh -q destroy g")
    look = "sha256sum /srv/g.fd /var/lib/libvirt/swtpm/*/tpm2/*.permall"
    then = on(look)
    steps = done(name="before")["steps"]
    assert [step.partition(" ")[0] for step in steps] == ["record", "copy", "copy", "take", "record"]
    on("dd if=/dev/urandom of=/srv/g.fd bs=1k seek=9 count=1 conv=notrunc status=none")
    on("for f in /var/lib/libvirt/swtpm/*/tpm2/*.permall; do echo more >> $f; done")
    assert on(look) != then
    assert "its UEFI variables" in refused(name="inside", kind="internal")
    done(name="before", state="reverted", run=False, confirm="before")
    assert on(look) == then
    done(name="before", state="reverted", run=True, confirm="before")
    assert state() == "running"
    done(name="before", state="absent")
    assert on(f"ls {IMAGES}") == "g-0.qcow2"


@pytest.mark.deep
def test_those_of_others_are_deleted_by_name_alone() -> None:
    guest("qcow2")
    for number, name in enumerate(("a b", "-x", "line\\nbreak")):  # libvirt itself cannot read such a name of a file
        on(
            f'printf \'<domainsnapshot><name>{name}</name><disks><disk name="vda"><source file="{IMAGES}/{number}"/></disk>'
            "</disks></domainsnapshot>' > /root/s.xml; "
            "virsh -q snapshot-create g /root/s.xml --disk-only"
        )
    for _number in range(3):
        made = told(keep={"hourly": 1})
        time.sleep(1)
    assert len(made["pruned"]) == 1
    found = [one["name"] for one in told(module="virt_snapshot_info")["snapshots"]]
    assert found == ["a b", "-x", "line\nbreak", made["snapshot"]]
    before = numbers()
    for name in (found[1], found[2], found[0], found[3]):
        done(name=name, state="absent")
    assert on("virsh snapshot-list --name g") == "" and on(f"ls {IMAGES}") == "g-0.qcow2" and numbers() >= before


@pytest.mark.deep
def test_inside_disks_and_with_memory() -> None:
    guest("qcow2")
    until(lambda: numbers() > 3, 60, every_s=0.5)
    assert "set memory: true" in refused(name="inside", kind="internal")
    done(name="inside", kind="internal", memory=True)
    then = grows()
    done(name="inside", state="reverted", run=True, confirm="inside")
    assert state() == "running" and numbers() < then
    done(name="inside", state="absent")
    assert on(f"qemu-img snapshot -U -l {IMAGES}/g-0.qcow2") == ""
    done(name="memory", memory=True)
    assert "libvirt 9.9" in refused(name="memory", state="reverted", run=True, confirm="memory")
    assert state() == "running"
    done(name="memory", state="absent")
    assert on(f"ls {IMAGES}") == "g-0.qcow2" and grows()


@pytest.mark.deep
def test_a_merge_that_is_killed_goes_on() -> None:
    guest("qcow2", "raw")
    done(name="before")
    on("virsh -q destroy g; head -c 8M /dev/urandom > /root/data")
    on(f"qemu-io -f qcow2 -c 'write -q -s /root/data 6M 8M' {disk()}")
    on("virsh -q start g")
    before = grows()
    killed({"name": "before", "state": "absent", "bandwidth": 1}, "virsh blockjob g vda --raw | grep -q cur=")
    assert "can only be deleted" in refused(name="before", state="absent", bandwidth=1, job_timeout=1)
    assert "its deletion was begun" in refused(name="before", state="reverted", run=True, confirm="before")
    found = told(module="virt_snapshot_info")["snapshots"]
    assert found[0]["deleting"]
    told(name="before", state="absent")
    assert grows() > before and state() == "running"
    assert on("virsh snapshot-list --name g") == "" and on(f"ls {IMAGES}") == "g-0.qcow2\ng-1.raw"


def killed(options: dict[str, t.Any], when: str = "true", after_s: float = 0) -> None:
    """Kill the module while it works, once a command on the host succeeds."""
    LAB.start("ansible", "hyper1", "-m", "virt_snapshot", "-a", json.dumps({"guests": ["g"], **options}))
    at_work = "pgrep -x virt_snapshot"
    on(
        f"for n in $(seq 6000); do {at_work} >/dev/null && {when} && break; sleep 0.01; done; sleep {after_s}; "
        f"kill -9 $({at_work}) || true"
    )
    until(lambda: not on(f"{at_work} || true"), 60)


@pytest.mark.deep
@pytest.mark.parametrize("what", ["take", "merge", "revert"])
def test_killed_at_any_moment(what: str) -> None:
    """Whatever is killed, and when: the guest runs or can start, with one of two contents, and the next run finishes."""
    seed = random.randrange(1000)
    print(f"seed {seed}")
    moments = random.Random(seed)
    guest("qcow2", "raw")
    until(lambda: numbers() > 3, 60, every_s=0.5)
    for number in range(7):
        if what != "take":
            told(name="s")
        then = numbers()
        every: dict[str, dict[str, t.Any]] = {
            "take": {"name": "s"},
            "merge": {"name": "s", "state": "absent"},
            "revert": {"name": "s", "state": "reverted", "run": True, "confirm": "s"},
        }
        options = every[what]
        if number % 3 == 2:
            LAB.start("ansible", "hyper1", "-m", "virt_snapshot", "-a", json.dumps({"guests": ["g"], **options}))
            on("for n in $(seq 6000); do pgrep -x virt_snapshot >/dev/null && break; sleep 0.01; done")
            on(f"sleep {moments.uniform(0, 1.5)}; kill -9 $(cat /run/libvirt/qemu/g.pid) || true")
            until(lambda: not on("pgrep -x virt_snapshot || true"), 120)
        else:
            killed(options, after_s=moments.uniform(0, 1.5))
            if number % 3 == 1:
                on("kill -9 $(pidof libvirtd); systemctl reset-failed libvirtd; systemctl start libvirtd")
        if number % 3 != 2:  # a killed guest is started by its administrator
            until(lambda: state() == "running", 90, every_s=1)
        told(**options)
        on("virsh -q start g 2>/dev/null || true")
        assert state() == "running"
        assert numbers() >= (then if what != "revert" else 1), f"round {number}"
        grows(2)
        if what != "merge":
            told(name="s", state="absent")
        assert numbers() and on("virsh snapshot-list --name g") == "" and on(f"ls {IMAGES}") == "g-0.qcow2\ng-1.raw"


def test_a_snapshot_before_a_change() -> None:
    guest("qcow2")
    options = {"name": "g", "title": "new", "snapshot": "before", "allow_duplicates": True}
    task = {"corral.virt.virt_domain": options, "register": "told"}
    checked, made, later = (LAB.tell(task, hosts="hyper1", check=check)["hyper1"] for check in (True, False, False))
    assert on("virsh desc --title g") == "new"
    assert [step.replace(checked["snapshot"], made["snapshot"]) for step in checked["steps"]] == made["steps"]
    assert (
        made["steps"][1] == f"take snapshot {made['snapshot']} of g (external)" and "define g (title)" in made["steps"]
    )
    assert on("virsh snapshot-list g --name") == made["snapshot"]
    assert not later["changed"] and "snapshot" not in later
    done(name=made["snapshot"], state="reverted", run=True, confirm=made["snapshot"])
    assert on("virsh desc --title g") == "No title for domain: g" and state() == "running"
