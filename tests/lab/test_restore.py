# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restores of a guest that numbers its sectors: judged by virsh, qemu-img and sha256sum."""

from __future__ import annotations

import base64
import functools
import gzip
import random
import re
import time
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector, count
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, ROOT, Hypervisors, hypervisors

pytestmark = pytest.mark.lab

LAB = Hypervisors("resta")
on = functools.partial(LAB.on, "hyper1")
REPOSITORY = "/srv/backup"
FIRMWARE = (
    "<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>"
    "<nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/var/lib/libvirt/qemu/nvram/u_VARS.fd</nvram>"
)
TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"
STATE = (
    f"virsh list --all --uuid --name; virsh dumpxml --inactive g; find {IMAGES} -type f -printf '%p %s %i\\n' | sort"
)


def restore(host: str = "hyper1", *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What the module answers."""
    task = {"corral.virt.virt_restore": {"repository": REPOSITORY, "guest": "g", **options}, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts=host, check=check)[host])


def done(**options: t.Any) -> dict[str, t.Any]:
    """Check, and do the same; the result."""
    before = on(STATE)
    checked = restore(check=True, **options)
    assert on(STATE) == before, "check mode changes nothing"
    made = restore(**options)
    assert made["steps"] == checked["steps"] and made["changed"] and checked["changed"]
    return made


def refused(**options: t.Any) -> str:
    """Why it is not done."""
    return LAB.module("virt_restore", ok=False, **{"repository": REPOSITORY, "guest": "g", **options})


def back_up() -> str:
    """The ID of a new point."""
    task = {"corral.virt.virt_backup": {"repository": REPOSITORY, "guests": ["g"]}, "register": "told"}
    return t.cast("str", LAB.tell(task, hosts="hyper1")["hyper1"]["results"][0]["point"])


def link(point: str, target: str) -> str:
    """The file of a disk in a point."""
    return on(f"ls {REPOSITORY}/*/{point}/{target}.qcow2")


def same(point: str, name: str, host: str = "hyper1") -> None:
    """The disks of a guest have the content of a point."""
    for target in ("vda", "vdb"):
        path = LAB.on(host, f"virsh domblklist {name} | awk '$1 == \"{target}\" {{print $2}}'")
        form = "raw" if path.endswith("raw") else "qcow2"
        told = LAB.on(host, f"qemu-img compare -f qcow2 -F {form} {REPOSITORY}/*/{point}/{target}.qcow2 {path}")
        assert told == "Images are identical.", told
        assert "backing" not in LAB.on(host, f"qemu-img info -f {form} {path}")


def numbers(path: str) -> int:
    """How many sectors the guest has written to a file; all of them are right."""
    raw = on(
        f"qemu-img convert -U -f qcow2 -O raw {path} /root/raw && head -c 4M /root/raw | gzip | base64 -w0; rm /root/raw"
    )
    return count(gzip.decompress(base64.b64decode(raw)))


def define(name: str = "g", *, os: str = "", devices: str = "") -> None:
    """A guest that numbers the sectors of a qcow2 with a backing file, and has a raw disk."""
    on(
        f"qemu-img create -q -f qcow2 {IMAGES}/base 16M; qemu-io -f qcow2 -c 'write -q -s /root/boot 0 512' {IMAGES}/base; "
        f"qemu-img create -q -f qcow2 -b {IMAGES}/base -F qcow2 {IMAGES}/{name}.qcow2; "
        f"truncate -s 16M {IMAGES}/{name}.raw; head -c 2M /dev/urandom | dd of={IMAGES}/{name}.raw bs=1M seek=3 conv=notrunc "
        "status=none"
    )
    disks = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{IMAGES}/{name}.{form}'/>"
        f"<target dev='{target}' bus='virtio'/></disk>"
        for target, form in (("vda", "qcow2"), ("vdb", "raw"))
    )
    machine = f"<os><type arch='x86_64' machine='q35'>hvm</type>{os}</os><features><acpi/></features>"
    network = "<interface type='user'><mac address='52:54:00:11:22:33'/></interface>"
    xml = (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>{machine}<devices>{disks}{network}"
        f"<serial type='pty'/>{devices}</devices></domain>"
    )
    on("cat > /root/g.xml && virsh -q define /root/g.xml && virsh -q pool-refresh default", given=xml)


def remove(*names: str, host: str = "hyper1") -> None:
    """Guests and their disks are gone."""
    for name in names:
        LAB.on(
            host,
            f"for path in $(virsh domblklist {name} | awk '/images/ {{print $2}}'); do rm -f $path; done; "
            f"virsh -q destroy {name}; virsh -q undefine {name} --nvram --checkpoints-metadata; true",
        )


LOGIN = (
    bytes.fromhex("31c08ed8be157cbaf803ac84c07403eeebf8f4ebfd") + b"\r\nDebian GNU/Linux 12 p ttyS0\r\n\r\np login: \0"
)
# All frames of all interfaces: which address sent one, and where it was seen.
SNIFF = """import socket
seen, s = set(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
while True:
    where = s.recvfrom(64)[1]
    if (one := (where[0], where[4].hex(":"))) not in seen:
        seen.add(one)
        print(*one, flush=True)
"""


def define_login(nic: str = "") -> None:
    """A guest `p`, off and backed up, that shows a login prompt on its serial port."""
    path = f"{IMAGES}/p.qcow2"
    sector = base64.b64encode(LOGIN.ljust(510, b"\0") + b"\x55\xaa").decode()
    on("base64 -d > /root/login", given=sector)
    on(f"qemu-img create -q -f qcow2 {path} 16M && qemu-io -f qcow2 -c 'write -q -s /root/login 0 512' {path}")
    xml = (
        "<domain type='qemu'><name>p</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>"
        f"<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/>"
        f"<target dev='vda' bus='virtio'/><boot order='2'/></disk>{nic}<serial type='pty'/>"
        "<filesystem type='mount'><source dir='/srv'/><target dir='x'/></filesystem></devices></domain>"
    )
    on("cat > /root/p.xml && virsh -q define /root/p.xml && virsh -q pool-refresh default", given=xml)
    LAB.module("virt_backup", repository=REPOSITORY, guests=["p"])


PROVE: dict[str, t.Any] = {"repository": REPOSITORY, "guests": ["p"], "timeout": 120}
LEFT = (
    "virsh list --all --name | grep corral-proof; virsh net-list --all --name | grep corral-proof; ip -br link | grep crlp; "
    f"ls -A {IMAGES} | grep corral-proof; ls /var/log/libvirt/qemu | grep 'corral-proof.*console'; true"
)


def has_more_than(least: int) -> bool:
    """True if the guest has written that many sectors."""
    return numbers(f"{IMAGES}/g.qcow2") > least


def clean() -> None:
    """No guest, no disk, no backup."""
    on(
        "for name in $(virsh list --all --name); do virsh -q destroy $name; virsh -q undefine $name --nvram "
        f"--checkpoints-metadata; done 2>/dev/null; find {IMAGES} {REPOSITORY} -mindepth 1 -delete; true"
    )


@pytest.fixture(scope="module", autouse=True)
def points() -> Iterator[tuple[str, str, str]]:
    """A hypervisor with a guest, a full backup of it and two increments; it is off since."""
    with hypervisors("resta", hosts=2):
        clean()
        on(f"base64 -d > /root/boot; mkdir -p {IMAGES} {REPOSITORY}", given=base64.b64encode(boot_sector(1)).decode())
        define()
        on("virsh -q start g")
        made = []
        for least in (3, 8, 13):
            until(functools.partial(has_more_than, least), 60, every_s=0.5)
            made.append(back_up())
        on("virsh -q destroy g")
        assert made[1] in on(f"qemu-img info {link(made[2], 'vda')}"), "an increment"
        yield made[0], made[1], made[2]
        clean()


def test_each_point_under_other_names(points: tuple[str, str, str]) -> None:
    seen = []
    for number, point in enumerate(points):
        name = f"g{number}"
        made = done(name=name) if number == 2 else restore(name=name, point=point)
        assert made["point"] == point and made["kept"] == []
        same(point, name)
        seen.append(numbers(f"{IMAGES}/{name}-vda.qcow2"))
        assert on(f"virsh domuuid {name}") == made["uuid"] != on("virsh domuuid g")
        assert "52:54:00:11:22:33" not in on(f"virsh dumpxml {name}")
    assert seen == sorted(set(seen)) and len(seen) == 3
    on("virsh -q start g0")
    until(lambda: numbers(f"{IMAGES}/g0-vda.qcow2") > seen[0] + 3, 60, every_s=0.5)
    assert "a guest with that name is here" in refused(name="g0", point=points[0])
    remove("g0", "g1", "g2")


def test_in_place(points: tuple[str, str, str]) -> None:
    """The damaged disks are replaced and kept aside; what is bound to them is refused before."""
    on(f"dd if=/dev/urandom of={IMAGES}/g.raw bs=1M count=2 seek=3 conv=notrunc status=none")
    damaged = on(f"sha256sum < {IMAGES}/g.raw").split()[0]
    assert "to confirm it, set confirm: g" in refused()
    on("virsh -q start g")
    assert "it is running; shut it down (ansible-playbook corral.virt.shutdown -e guest=g)" in refused(confirm="g")
    on("virsh -q destroy g")
    before = on("virsh dumpxml --inactive g | sed '/<metadata>/,/<.metadata>/d'")
    made = done(confirm="g", point=points[1])
    assert made["kept"] == [f"{IMAGES}/g.qcow2", f"{IMAGES}/g.raw"]
    same(points[1], "g")
    assert on("virsh dumpxml --inactive g | sed '/<metadata>/,/<.metadata>/d'") == before
    assert on("virsh checkpoint-list g --name") == ""
    assert damaged in on(f"find {IMAGES}/.corral/.removed -type f -exec sha256sum {{}} +"), "it is kept aside"
    assert not on(f"ls {IMAGES} | grep -e restored -e replaced || true")
    one = done(confirm="g", disks=["vdb"], point=points[2], run=True)
    assert len(one["kept"]) == 1 and on("virsh domstate g") == "running"
    again = back_up()
    assert "backing" not in on(f"qemu-img info -f qcow2 {link(again, 'vda')}"), "its changes are unknown: a full"
    on(f"virsh -q destroy g; rm -rf $(dirname {link(again, 'vda')})")


POINTS_OWN = (
    f"find {REPOSITORY} -mindepth 2 -maxdepth 3 -printf '%u %m %f\\n' | grep -e ^root.700 -e ^root.400.vd | wc -l"
)


def stands(name: str) -> str:
    """The files of the repository that the disks of a running guest stand on."""
    return on(f"virsh dumpxml {name} | grep -o '{REPOSITORY}/[^<]*qcow2' | sort -u; true")


@pytest.mark.deep
def test_instant_under_another_name(points: tuple[str, str, str]) -> None:
    """It runs on the point, is copied while it runs, and then stands on nothing; the repository is as it was."""
    before = on(POINTS_OWN)
    made = done(name="i", point=points[2], instant=True)
    assert on("virsh domstate i") == "running" and made["running_after_s"] < 30
    assert stands("i") == "" and "corral-backup" not in on("virsh dumpxml i | grep stands-on; true")
    assert "error_policy" not in on("virsh dumpxml --inactive i")
    assert on(POINTS_OWN) == before and on(f"find {REPOSITORY} -name 'instant-*'") == ""
    first = numbers(f"{IMAGES}/i-vda.qcow2")
    assert first >= 13, "it goes on where the point ends"
    until(lambda: numbers(f"{IMAGES}/i-vda.qcow2") > first, 60, every_s=0.5)
    told = on(f"qemu-img compare -U -f qcow2 -F qcow2 {link(points[2], 'vdb')} {IMAGES}/i-vdb.qcow2")
    assert told == "Images are identical."
    remove("i")


@pytest.mark.deep
def test_instant_in_place_is_killed_at_random(points: tuple[str, str, str]) -> None:
    """Whatever is killed, the same command goes on to the end, and what must wait meanwhile is refused."""
    define("k")
    on(f"qemu-img resize -q {IMAGES}/k.qcow2 1G; qemu-io -f qcow2 -c 'write -q -P 7 100M 400M' {IMAGES}/k.qcow2")
    LAB.module("virt_backup", repository=REPOSITORY, guests=["k"])
    remove("k")
    restore(guest="k", instant=True)
    on("virsh -q destroy k")
    [point] = on(f"ls {REPOSITORY}/$(virsh domuuid k)").split()
    chance, stood = random.Random(9), 0
    words = f"repository={REPOSITORY} guest=k confirm=k instant=true point={point}"
    for turn in range(12):
        on("virsh -q destroy k; true")
        running = LAB.start("ansible", "hyper1", "-m", "corral.virt.virt_restore", "-a", words)
        on("for try in $(seq 600); do pgrep -x virt_restore && break; sleep 0.05; done; true")
        time.sleep(chance.uniform(0, 2.5))
        on(("pkill -9 -x virt_restore", "pkill -9 libvirtd", "pkill -9 -f guest=[k],")[turn % 3] + "; true")
        running.wait(120)
        on("systemctl start libvirtd; until virsh list >/dev/null; do sleep 0.2; done")
        if not running.returncode:
            continue  # it was done before
        if stands("k") and on("virsh domstate k") == "running":
            stood += 1
            why = LAB.module("virt_backup", ok=False, repository=REPOSITORY, guests=["k"])
            assert "it runs on a backup until that is copied" in why and f"-e point={point}" in why
            kept = LAB.module("virt_backup", ok=False, repository=REPOSITORY, guests=["k"], state="absent", point=point)
            assert "k runs on it until all of it is copied" in kept
            assert "it runs on a backup" in LAB.module("virt_snapshot", ok=False, guests=["k"], name="s")
            assert "it runs on a backup" in LAB.module("virt_migrate", ok=False, name="k", dest="hyper2")
        restore(guest="k", confirm="k", instant=True, point=point)
        assert on("virsh domstate k") == "running" and stands("k") == ""
        assert "backing" not in on("qemu-img info -U -f qcow2 $(virsh domblklist k | awk '/vda/ {print $2}')")
    assert stood > 2
    remove("k")
    on(f"rm -rf {REPOSITORY}/*/{point}")


# Reads a sector of each 64 KiB of its disk, one after another with the timer's ticks, and sends E when that fails.
READER = bytes.fromhex(
    "31c0 8ed8 8ed0 bc007c fb f4 b442 b280 be287c cd13 7306 baf803 b045 ee 668106307c80000000 ebe3 90"
    "1000010000800000 0000000000000000"
)


@pytest.mark.deep
def test_instant_waits_for_a_repository_that_is_gone(points: tuple[str, str, str]) -> None:
    """The guest pauses, is shown as that, and no program in it sees an error; then the same command goes on."""
    on("DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends python3-fuse fuse3 >/dev/null")
    define("k")
    sector = base64.b64encode(READER.ljust(510, b"\0") + b"\x55\xaa").decode()
    on("base64 -d > /root/reader", given=sector)
    on(
        f"qemu-img resize -q {IMAGES}/k.qcow2 64M; qemu-io -f qcow2 -c 'write -q -P 7 0 32M' -c 'write -q -s /root/reader 0 512' "
        f"{IMAGES}/k.qcow2"
    )
    serial = "/var/log/libvirt/k.serial"
    on(
        f'virsh -q undefine k; sed \'s,<serial[^>]*>,<serial type="file"><source path="{serial}"/></serial>,\' /root/g.xml | virsh -q define /dev/stdin'
    )
    LAB.module("virt_backup", repository=REPOSITORY, guests=["k"])
    content = on(f"qemu-img convert -O raw {IMAGES}/k.qcow2 /root/raw; sha256sum </root/raw; rm /root/raw")
    remove("k")
    share, flags = "/srv/share", "/run/flags"
    on(f"mkdir -p {share} {flags}; chmod 755 {share}; touch {flags}/slow; rm -f {serial}")
    program = (ROOT / "tests/lab/failing_filesystem.py").read_text()
    on(
        f"cat > /root/failing.py; python3 /root/failing.py {share} {REPOSITORY} {flags} && mountpoint -q {share}",
        given=program,
    )
    words = f"repository={share} guest=k instant=true"
    running = LAB.start("ansible", "hyper1", "-m", "corral.virt.virt_restore", "-a", words)
    on(
        f"for try in $(seq 1200); do virsh domstate k 2>/dev/null | grep -q running && break; sleep 0.05; done; touch {flags}/gone"
    )
    assert running.poll() is None
    until(lambda: "paused (I/O error)" in on("virsh domstate --reason k"), 60, every_s=0.5)
    said = " ".join(running.communicate(timeout=120)[0].split())
    assert running.returncode and "k stands on backup" in said and f"see to it that {share} can be read" in said, said
    on(f"rm {flags}/*")
    restore(repository=share, guest="k", instant=True)
    assert on("virsh domstate k") == "running" and stands("k") == "" and on(f"cat {serial}") == ""
    on("virsh -q destroy k")
    path = on("virsh domblklist k | awk '/vda/ {print $2}'")
    assert on(f"qemu-img convert -O raw {path} /root/raw; sha256sum </root/raw; rm /root/raw") == content
    remove("k")
    on(f"umount {share}; rm -rf {share}")


@pytest.mark.deep
def test_anew_here_and_elsewhere(points: tuple[str, str, str]) -> None:
    """A guest that is gone comes back with its UUID and MAC, also on another host, from a copy of the repository."""
    uuid = on("virsh domuuid g")
    remove("g")
    made = done(point=points[2], run=True)
    same_uuid = on("virsh domuuid g") == uuid == made["uuid"]
    assert same_uuid and "52:54:00:11:22:33" in on("virsh dumpxml g")
    assert on("virsh domblklist g | grep -c images") == "2"
    on("virsh -q destroy g")
    LAB.module("virt_domain", name="g", state="absent", remove_storage=True)
    assert on(f"ls {IMAGES}") == "base", "the restored disks are its own"
    archive = on(f"tar -C {REPOSITORY} -c . | gzip | base64 -w0")
    LAB.on("hyper2", f"mkdir -p {REPOSITORY} {IMAGES} && base64 -d | tar -C {REPOSITORY} -xz", given=archive)
    there = restore("hyper2")
    assert there["uuid"] == uuid
    same(points[2], "g", "hyper2")
    remove("g", host="hyper2")
    LAB.on("hyper2", f"rm -rf {REPOSITORY}")
    restore(point=points[2])


def test_what_is_damaged_is_refused(points: tuple[str, str, str]) -> None:
    path = link(points[1], "vda")
    on(
        f"cp -p {path} /root/kept && chmod u+w {path} && printf x | dd of={path} bs=1 seek=300000 conv=notrunc status=none"
    )
    before = on(STATE)
    said = refused(name="other")
    assert f"{path} is damaged: its SHA-256 is another one" in said and f"(point: {points[0]})" in said
    assert on(STATE) == before
    assert restore(name="other", point=points[0])["point"] == points[0]
    remove("other")
    on(f"cp -p /root/kept {path}")


def test_a_backup_is_proven() -> None:
    """By a guest that boots; nothing is left, and the proof is beside the backup."""
    define_login()
    before = on(STATE)
    made = LAB.tell({"corral.virt.virt_prove": PROVE, "register": "told"}, hosts="hyper1")["hyper1"]
    [one] = made["results"]
    assert (one["name"], one["evidence"]) == ("p", "login") and one["seconds"] > 0
    assert one["notes"] == ["proof of p: filesystem (mount) is left out"]
    assert on(LEFT) == "" and on(STATE) == before
    assert '"why": ""' in on(f"cat {REPOSITORY}/*/{one['point']}/proof.json")
    remove("p")


@pytest.mark.deep
def test_no_frame_of_a_proof_gets_out() -> None:
    """The guest asks for an address by DHCP when it starts: on br0 as itself, and to nobody when it proves a backup."""
    define_login("<interface type='bridge'><source bridge='br0'/><model type='virtio'/><boot order='1'/></interface>")
    on(
        "cat > /root/sniff.py; systemd-run -q --unit=sniff -p StandardOutput=file:/root/frames python3 /root/sniff.py",
        given=SNIFF,
    )
    mac = on("virsh domiflist p | awk '/br0/ {print $5}'")
    on("virsh -q start p")
    until(lambda: f"br0 {mac}" in on("cat /root/frames"), 60)
    on("virsh -q destroy p; virsh -q dumpxml p > /root/was.xml")
    before = on(STATE)
    checked = LAB.tell({"corral.virt.virt_prove": PROVE, "register": "told"}, hosts="hyper1", check=True)["hyper1"]
    made = LAB.tell({"corral.virt.virt_prove": PROVE, "register": "told"}, hosts="hyper1")["hyper1"]
    assert made["steps"] == checked["steps"]
    frames = [line.split() for line in on("cat /root/frames; systemctl stop sniff").splitlines()]
    own = {address for where, address in frames if where.startswith("vnet") and address.startswith("52:54:00")} - {mac}
    assert len(own) == 1, "the proof did send frames"
    assert {where[:4] for where, address in frames if address in own} == {"vnet"}, "and nobody got them"
    assert on(LEFT) == "" and on(STATE) == before
    remove("p")


# The firmware's shell runs it. Only the first start, before the backup, writes the variable.
START = """@echo -off
if exist fs0:\\first then
  rm -q fs0:\\first
  setvar Corral -guid 2f0c1a3e-6a52-4a41-9a63-6a2f0e9b7c22 -nv -bs =L"kept"
endif
setvar Corral -guid 2f0c1a3e-6a52-4a41-9a63-6a2f0e9b7c22
if %lasterror% eq 0x0 then
  echo "u login:"
endif
"""


@pytest.mark.deep
def test_a_proof_has_the_uefi_variables_and_the_tpm_of_then() -> None:
    """A guest that logs in only with a variable that is in no disk; its TPM has the certificate that it was made with."""
    console, disk = "/var/log/libvirt/qemu/u-serial", f"{IMAGES}/u.raw"
    on("apt-get install -qq -y --no-install-recommends mtools >/dev/null 2>&1; cat >/root/startup.nsh", given=START)
    on(
        f"mformat -C -i {disk} -T 32768 ::; touch /root/first; mcopy -i {disk} /root/startup.nsh /root/first ::; "
        f"qemu-img convert -f raw -O qcow2 {disk} {IMAGES}/u.qcow2; rm {disk}; cat >/root/u.xml && virsh -q define /root/u.xml",
        given="<domain type='qemu'><name>u</name><memory unit='MiB'>192</memory>"
        f"<os><type arch='x86_64' machine='q35'>hvm</type>{FIRMWARE}</os><features><acpi/></features><devices>"
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{IMAGES}/u.qcow2'/>"
        f"<target dev='vda' bus='virtio'/></disk><serial type='file'><source path='{console}'/></serial>{TPM}"
        "</devices></domain>",
    )
    on("virsh -q start u")
    until(lambda: "u login:" in on(f"cat {console}"), 240)
    LAB.module("virt_backup", repository=REPOSITORY, guests=["u"])
    on("virsh -q destroy u; virsh -q pool-refresh default")
    before, prove = on(STATE), {**PROVE, "guests": ["u"], "timeout": 300}
    task = {"corral.virt.virt_prove": {**prove, "evidence": "login"}, "register": "told"}
    told, printed = LAB.tell_all(task, hosts="hyper1")
    assert told["hyper1"]["results"][0]["evidence"] == "login" and told["hyper1"]["results"][0]["seconds"] > 2
    assert re.search(r"waiting for a login prompt on the console of u \(started \d+ s ago\)", printed)
    state = "/var/lib/libvirt/swtpm/$CORRAL_UUID/tpm2/tpm2-00.permall"
    LAB.module("virt_prove", **prove, probe=f"grep -aqF u:{on('virsh domuuid u')} {state}")
    assert on(LEFT) == "" and on(STATE) == before and on("ls /var/lib/libvirt/swtpm") == on("virsh domuuid u")
    on(f"rm -r {REPOSITORY}/$(virsh domuuid u)")  # the next guest of this name is another one
    remove("u")


@pytest.mark.deep
def test_a_proof_that_fails_or_is_killed_leaves_nothing() -> None:
    define_login()
    before = on(STATE)
    failed = LAB.module("virt_prove", ok=False, **{**PROVE, "probe": "echo no database; false", "timeout": 1})
    assert "success of the probe did not come within" in failed and "the probe exited with 1: no database" in failed
    assert on(LEFT) == "" and on(STATE) == before
    book = ("ansible-playbook", "corral.virt.backups", f"-erepository={REPOSITORY}", "-eguest=p", "--limit", "hyper1")
    assert "was not proven on" in LAB.run(*book, ok=False) and "proven=7d" not in LAB.run(
        *book, "-eproven=7d", ok=False
    )
    chance = random.Random(12)
    for turn in range(8):
        words = f"repository={REPOSITORY} guests=p timeout=120"
        running = LAB.start("ansible", "hyper1", "-m", "corral.virt.virt_prove", "-a", words)
        on("for try in $(seq 600); do pgrep -x virt_prove && break; sleep 0.05; done; true")
        time.sleep(chance.uniform(0, 4))
        on("pkill -9 -x virt_prove; pkill -9 -x qemu-img; true")
        running.wait(120)
        if turn % 2:
            LAB.module("virt_prove", **PROVE)
            assert on(LEFT) == "" and on(STATE) == before
    LAB.module("virt_prove", **PROVE)
    assert on(LEFT) == "" and on(STATE) == before
    printed = LAB.run(*book, "-eproven=7d")  # others were never proven
    assert "login" in printed and "of g was" not in printed
    assert "there is no backup of nobody, and no hypervisor has it" in " ".join(
        LAB.run(*book, "-eguest=nobody", ok=False).split()
    )
    remove("p")


@pytest.mark.deep
def test_the_playbook(points: tuple[str, str, str]) -> None:
    """It finds the guest, and never brings up a second one of its UUID."""

    def book(ok: bool, *more: str) -> str:
        given = [f"-e{one}" for one in (f"repository={REPOSITORY}", "guest=g", *more)]
        return " ".join(LAB.run("ansible-playbook", "corral.virt.restore", *given, ok=ok).split())

    assert "hyper1 has it; restore it there" in book(False, "host=hyper2")
    assert "set confirm: g (playbook restore: -e confirm_guest=g)" in book(False)
    assert "put the restored disks of g in place" in book(True, "confirm_guest=g", f"point={points[0]}")
    same(points[0], "g")
    assert "there is a guest g; choose another name" in book(False, "new_name=g")
    book(True, "new_name=k")
    same(points[2], "k")
    remove("k", "g")
    assert "no hypervisor has it; choose one: -e host=HOST" in book(False)
    book(True, "host=hyper1")
    same(points[2], "g")


GROUP = (("a", "hyper1", "52:54:00:aa:00:01"), ("b", "hyper2", "52:54:00:aa:00:02"))


def define_tagged(name: str, host: str, mac: str) -> None:
    """A guest with a tag on br0, off and backed up, whose disk has been overwritten since."""
    path = f"{IMAGES}/{name}.qcow2"
    xml = (
        f"<domain type='qemu'><name>{name}</name><metadata><c:guest xmlns:c='urn:corral:virt:guest:1'><c:tag>shop</c:tag>"
        "</c:guest></metadata><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{path}'/><target dev='vda' bus='virtio'/>"
        f"</disk><interface type='bridge'><mac address='{mac}'/><source bridge='br0'/></interface></devices></domain>"
    )
    LAB.on(
        host,
        f"mkdir -p {REPOSITORY} {IMAGES}; qemu-img create -q -f qcow2 {path} 16M; qemu-io -f qcow2 -c 'write -q -P 65 0 1M' {path}; "
        "cat > /root/tagged.xml && virsh -q define /root/tagged.xml && virsh -q pool-refresh default",
        given=xml,
    )
    LAB.tell({"corral.virt.virt_backup": {"repository": REPOSITORY, "guests": [name]}, "register": "told"}, hosts=host)
    LAB.on(host, f"qemu-io -f qcow2 -c 'write -q -P 90 0 1M' {path}")


def holds_what_was_backed_up(path: str, host: str = "hyper1") -> bool:
    """True if the disk has what it had at the backup."""
    return "errors" not in LAB.on(
        host, f"qemu-io -r -U -f qcow2 -c 'read -q -P 65 0 1M' {path} && echo same || echo errors"
    )


@pytest.mark.deep
def test_a_group() -> None:
    """All of its guests or none, in order; and all of them beside the present ones, where they reach only each other."""
    for name, host, mac in GROUP:
        define_tagged(name, host, mac)

    def book(ok: bool, *more: str, check: bool = False) -> str:
        words = [
            *(["--check"] if check else []),
            f"-erepository={REPOSITORY}",
            "-etag=shop",
            *(f"-e{one}" for one in more),
        ]
        return " ".join(LAB.run("ansible-playbook", "corral.virt.restore_group", *words, ok=ok).split())

    try:
        assert "this replaces the disks of a (hyper1), b (hyper2); to confirm it, add -e confirm=2" in book(False)
        LAB.on("hyper2", "virsh -q start b")
        said = book(False, "confirm=2")
        assert "nothing was restored: cannot restore b from backup" in said and "it is running; shut it down" in said
        assert not holds_what_was_backed_up(f"{IMAGES}/a.qcow2")
        LAB.on("hyper2", "virsh -q destroy b")
        planned = book(True, "confirm=2", "run=true", "start_order=b", check=True)
        assert "put the restored disks of a in place" in planned and "start b" in planned
        book(True, "confirm=2", "run=true", "start_order=b")
        for name, host, _mac in GROUP:
            assert LAB.on(host, f"virsh domstate {name}") == "running"
            assert holds_what_was_backed_up(f"{IMAGES}/{name}.qcow2", host)
        started = [LAB.on(host, f"stat -c %.9Y /run/libvirt/qemu/{name}.pid") for name, host, _mac in GROUP]
        assert float(started[1]) < float(started[0]), "b starts first"
        beside = ("suffix=-then", "host=hyper1", "network=alone", "run=true")
        assert "b: the repository of hyper1 has no such backup of it, but that of hyper2" in book(False, *beside)
        archive = LAB.on("hyper2", f"cd {REPOSITORY}; tar -c $(virsh domuuid b) | gzip | base64 -w0")
        on(f"base64 -d | tar -C {REPOSITORY} -xz", given=archive)
        said = book(False, *beside)
        assert said.count("there is no network alone; create it (virt_network)") == 2
        LAB.module("virt_network", name="alone", mode="isolated")
        book(True, *beside)
        for name, _host, mac in GROUP:
            assert re.search(f"network +alone .* {mac}", on(f"virsh domiflist {name}-then"))
            assert on(f"virsh domuuid {name}-then") != on(f"ls {REPOSITORY}")
            assert holds_what_was_backed_up(f"{IMAGES}/{name}-then-vda.qcow2")
        assert "no guest has the tag shop" in book(False, "at=2020-01-01T00:00:00Z", *beside)
    finally:
        for name, host, _mac in GROUP:
            remove(name, host=host)
        remove("a-then", "b-then")
        on("virsh net-destroy alone; virsh net-undefine alone; true")
        LAB.on("hyper2", f"rm -rf {REPOSITORY}")


@pytest.mark.deep
def test_uefi_and_tpm(points: tuple[str, str, str]) -> None:
    define("u", os=FIRMWARE, devices=TPM)
    on("virsh -q start u")
    LAB.module("virt_backup", repository=REPOSITORY, guests=["u"])
    on("virsh -q destroy u")
    variables = on("sha256sum < /var/lib/libvirt/qemu/nvram/u_VARS.fd")
    LAB.module("virt_restore", repository=REPOSITORY, guest="u", name="v", run=True)
    assert on("virsh domstate v") == "running"
    copy = on(f"ls {REPOSITORY}/*/*/nvram.fd")
    assert on(f"sha256sum < {copy}") == variables
    tpm = on(f"tar -tf $(dirname {copy})/tpm.tar | grep -c permall")
    assert on("ls /var/lib/libvirt/swtpm/$(virsh domuuid v)/tpm2 | grep -c permall") == tpm == "1"
    remove("u", "v")
    made = restore(guest="u", run=True)
    assert on("virsh domstate u") == "running" and made["notes"] == []
    remove("u")


# By libguestfs itself: a root filesystem in a volume group on both disks, with a directory on a partition.
DISKS_OF_A_SYSTEM = """
import guestfs, sys
g = guestfs.GuestFS(python_return_dict=True)
g.set_backend("direct")
for name in sys.argv[1:]:
    g.disk_create(name, "qcow2", 128 << 20)
    g.add_drive_opts(name, format="qcow2")
g.launch()
g.part_init("/dev/sda", "mbr")
g.part_add("/dev/sda", "p", 2048, 65535)
g.part_add("/dev/sda", "p", 65536, -64)
for device in ("/dev/sda2", "/dev/sdb"):
    g.pvcreate(device)
g.vgcreate("vg", ["/dev/sda2", "/dev/sdb"])
g.lvcreate_free("root", "vg", 100)
for device in ("/dev/vg/root", "/dev/sda1"):
    g.mkfs("ext4", device)
g.mount("/dev/vg/root", "/")
for path in ("/bin", "/etc/nginx", "/srv"):
    g.mkdir_p(path)
g.write("/etc/debian_version", "12.5")
g.write("/etc/fstab", "/dev/vg/root / ext4 defaults 0 0\\n/dev/sda1 /srv ext4 defaults 0 0\\n")
g.mount("/dev/sda1", "/srv")
g.write("/srv/shop", "sold")
g.write("/etc/nginx/nginx.conf", "worker 1;")
g.chown(33, 33, "/etc/nginx/nginx.conf")
g.chmod(0o4640, "/etc/nginx/nginx.conf")
for name in ("-rf", "a\\nb", "q'\\"u", "conf.d"):
    g.write(f"/etc/nginx/{name}", name)
g.ln_s("nginx.conf", "/etc/nginx/default")
g.ln_s("/etc/passwd", "/etc/nginx/absolute")
g.ln_s("../../../../etc/passwd", "/etc/nginx/out")
g.mknod_b(0o600, 8, 0, "/etc/nginx/sda")
g.shutdown()
"""


@pytest.mark.deep
def test_files(points: tuple[str, str, str]) -> None:
    """They come out of a system on LVM, and nothing that its users have put there leads out of the directory."""
    define("f")
    LAB.module("virt_backup", repository=REPOSITORY, guests=["f"])
    if not on("dpkg-query -W python3-guestfs 2>&1 | grep -v no.packages || true"):
        said = LAB.module("virt_backup_files", ok=False, repository=REPOSITORY, guest="f", list="/")
        assert "install them (Debian and Ubuntu: apt-get install python3-guestfs;" in said
    on("apt-get install -y -q --no-install-recommends python3-guestfs linux-image-cloud-amd64 >/root/apt 2>&1")
    on("cat > /root/disks.py; python3 /root/disks.py /root/a /root/b", given=DISKS_OF_A_SYSTEM)
    on(f"mv /root/a {IMAGES}/f.qcow2; qemu-img convert -O raw /root/b {IMAGES}/f.raw; rm /root/b")
    LAB.module("virt_backup", repository=REPOSITORY, guests=["f"])
    sums = on(f"sha256sum {REPOSITORY}/*/*/*")

    def book(ok: bool, *more: str, check: bool = False) -> str:
        words = [
            *(["--check"] if check else []),
            f"-erepository={REPOSITORY}",
            "-eguest=f",
            *(f"-e{one}" for one in more),
        ]
        return " ".join(LAB.run("ansible-playbook", "corral.virt.restore_files", *words, ok=ok).split())

    listed = book(True, "list=/etc/nginx")
    assert "4640 file 9 B" in listed and "a\\nb" in listed and "0600 other" in listed
    wanted = '{"paths": ["/etc/nginx", "/srv/shop"]}'
    assert "restore /etc/nginx, /srv/shop of f" in book(True, wanted, "dest=/root/restored", check=True)
    assert on("ls -A /root | grep restored || true") == ""
    book(True, wanted, "dest=/root/restored", "keep_owners=true")
    found = on("cd /root/restored && find . -printf '%m %U %y %P %l\\0' | sort -z | tr '\\0' '|'")
    assert found == (
        "640 33 f etc/nginx/nginx.conf |644 0 f etc/nginx/-rf |644 0 f etc/nginx/a\nb |644 0 f etc/nginx/conf.d |"
        "644 0 f etc/nginx/q'\"u |644 0 f srv/shop |700 0 d  |700 0 d etc |700 0 d srv |755 0 d etc/nginx |"
        "777 0 l etc/nginx/default nginx.conf|"
    )
    assert on("cat /root/restored/srv/shop /root/restored/etc/nginx/nginx.conf") == "soldworker 1;"
    assert "/root/restored is there already" in book(False, wanted, "dest=/root/restored")
    assert on(f"sha256sum {REPOSITORY}/*/*/*") == sums, "a backup is only read"
    assert on("ls -A /root | grep part || true") == ""
    on(f"rm -rf /root/restored {REPOSITORY}/$(virsh domuuid f)")
    remove("f")


@pytest.mark.deep
def test_killed_anywhere(points: tuple[str, str, str]) -> None:
    """The guest stands on its present disks or on those of the point, and the next run restores them."""
    chance = random.Random(11)
    for turn in range(12):
        in_place = turn % 2 == 0
        options: dict[str, t.Any] = {"confirm": "g"} if in_place else {"name": "k"}
        command = ["ansible", "hyper1", "-m", "corral.virt.virt_restore", "-a"]
        words = " ".join(f"{key}={value}" for key, value in {"repository": REPOSITORY, "guest": "g", **options}.items())
        running = LAB.start(*command, words)
        begun = "for try in $(seq 600); do pgrep -x virt_restore && break; sleep 0.05; done; true"
        on(begun)
        time.sleep(chance.uniform(0, 2.5))
        on("pkill -9 -x virt_restore; pkill -9 -x qemu-img; true")
        running.wait(120)
        if in_place:
            assert on(f"qemu-img check -f qcow2 {IMAGES}/g.qcow2 && stat -c %s {IMAGES}/g.raw").endswith(
                str(16 * 1024**2)
            )
            restore(**options)
            same(points[2], "g")
        else:
            if "k" not in on("virsh list --all --name").split():
                restore(**options)
            same(points[2], "k")
            remove("k")
        assert not on(f"ls -A {IMAGES} | grep -e restored -e replaced -e clone || true")
