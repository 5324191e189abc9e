"""A guest moves: every mode by every kind of storage, there and back between hosts of two Debian releases.

Each guest writes numbers with checksums to its disk all the time, and counts over the network; judged by these, by
virsh and qemu-img.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import re
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.counter import Counter
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    HERE,
    IMAGES,
    ROOT,
    Hypervisors,
    allowed_to_fault,
    hypervisors,
)

pytestmark = pytest.mark.lab

SHARED = "/srv/shared"
BOOT_S = 60
# of a session in the guest: what a busy machine that emulates its processor may need; TCP goes on after that
GAP_S = 30.0
NUMBERS = "/disk/numbers"
GUESTS = {"delta": 131, "full": 132, "shared": 133}


def there(host: str) -> str:
    """The other one."""
    return "hyper2" if host == "hyper1" else "hyper1"


class Guest:
    """One that writes and counts."""

    def __init__(self, lab: Hypervisors, name: str, address: str) -> None:
        self.lab, self.name, self.address = lab, name, address
        self.written = 0

    @property
    def ssh(self) -> list[str]:
        """Into the guest; its host key was made before its first boot."""
        folder = self.lab.folder
        options = (f"UserKnownHostsFile={folder}/{self.name}.known", f"HostKeyAlias={self.name}", "ConnectTimeout=5")
        return [
            "ssh",
            "-n",
            "-i",
            f"{folder}/id_ed25519",
            *(f"-o{option}" for option in options),
            "--",
            f"root@{self.address}",
        ]

    def up(self) -> None:
        """Wait until it answers."""
        ask = [*self.ssh, f"test -s {NUMBERS}"]
        until(
            lambda: subprocess.run(ask, capture_output=True, check=False, timeout=60).returncode == 0, timeout_s=BOOT_S
        )

    def on(self) -> dict[str, str]:
        """State by host, as virsh says it; of the hosts that have it."""
        states = {
            host: self.lab.on(host, f"virsh domstate {self.name} 2>/dev/null || true") for host in ("hyper1", "hyper2")
        }
        return {host: state for host, state in states.items() if state}

    def move(self, to: str, *, ok: bool = True, **options: t.Any) -> str:
        """By the playbook; what was printed, in one line."""
        arguments = json.dumps({"guest": self.name, "to": to, **options})
        command = ("ansible-playbook", "corral.virt.migrate", *self.lab.ask_nobody, "-v", "-e", arguments)
        return re.sub(r"\s+", " ", self.lab.run(*command, ok=ok))

    def stays(self, host: str) -> None:
        """It is there: nothing is to be done."""
        printed = self.move(host)
        assert "changed=0" in printed and not re.search(r"changed=[1-9]", printed), printed[-2000:]

    def intact(self) -> None:
        """It goes on writing, and every number stands there once, in order, with its checksum."""
        until(lambda: len(self._lines()) > self.written, timeout_s=60)
        lines = self._lines()
        wrong = [line for number, line in enumerate(lines, 1) if line != f"{number} {_sum(number)}"]
        assert not wrong, f"{self.name}: {wrong[:3]} of {len(lines)}"
        self.written = len(lines)

    def _lines(self) -> list[str]:
        return self.lab.run(*self.ssh, f"cat {NUMBERS}").splitlines()[:-1]  # the last may be on its way


def _sum(number: int) -> str:
    return hashlib.md5(f"number {number}\n".encode(), usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def lab() -> Iterator[Hypervisors]:
    """Two hypervisors, of Debian 12 and 13, with GlusterFS between them.

    Guests are made on the older one: it knows no newer machines.
    """
    with hypervisors("moves", hosts=2, more=("--host", "hyper2=trixie")) as lab:
        if not lab.kept:
            share_storage(lab)
        yield lab


def share_storage(lab: Hypervisors) -> None:
    """A volume that both hosts keep, and a pool on it."""
    ports = {"firewall_ports": ["16514/tcp", "24007-24008/tcp", "49152-60999/tcp"]}
    lab.play({"ansible.builtin.include_role": {"name": "corral.virt.firewall"}, "vars": ports}, hosts="hyper")
    for host in ("hyper1", "hyper2"):
        lab.on(host, f"systemctl enable --now glusterd && mkdir -p /srv/brick {SHARED}")
    lab.on("hyper1", "gluster peer probe hyper2")
    until(lambda: "Connected" in lab.on("hyper1", "gluster peer status"))
    lab.on(
        "hyper1", "gluster --mode=script volume create shared replica 2 hyper1:/srv/brick/a hyper2:/srv/brick/a force"
    )
    lab.on("hyper1", "gluster volume start shared")
    for host in ("hyper1", "hyper2"):
        lab.on(host, f"mount -t glusterfs {host}:/shared {SHARED}")
        lab.on(
            host,
            f"virsh pool-define-as shared dir --target {SHARED} && virsh pool-start shared && virsh pool-autostart "
            "shared",
        )


@pytest.fixture(scope="module")
def guests(lab: Hypervisors) -> dict[str, Guest]:
    """One for each kind of storage, all on hyper1."""
    small = Path(lab.run(sys.executable, HERE / "lab.py", "small-image", "--name", lab.name).strip())
    image = {"name": "small.qcow2", "src": str(small)}
    tasks: list[dict[str, t.Any]] = [
        {"corral.virt.virt_image": image},
        {"corral.virt.virt_image": {**image, "pool": "shared"}, "when": "inventory_hostname == 'hyper1'"},
    ]
    lab.play(*tasks, hosts="hyper")
    prefix, host_key = lab.variable("virt_lab_guest_prefix"), small.with_name("host_key.pub").read_text().strip()
    made = {}
    for name, number in GUESTS.items():
        disk = {"name": "system", "image": "small.qcow2", "pool": "shared" if name == "shared" else "default"}
        _make(lab, name, number, {**disk, **({"clone": "copy"} if name == "full" else {})})
        made[name] = Guest(lab, name, f"{prefix}.{number}")
        (lab.folder / f"{name}.known").write_text(f"{name} {host_key}\n")
    for guest in made.values():
        guest.up()
    return made


def _make(lab: Hypervisors, name: str, number: int, disk: dict[str, t.Any]) -> None:
    """It reads no seed, but has one, which travels too."""
    nic = {"name": "eth0", "bridge": "br0", "mac": f"52:54:00:00:00:{number:02x}"}
    wish = {"name": name, "state": "running", "vcpus": 1, "memory": "96MiB", "disks": [disk], "interfaces": [nic]}
    seed = {"user_data": {"disable_root": False}}
    lab.play({"corral.virt.virt_domain": {**wish, "autostart": name == "delta", "cloud_init": seed}}, hosts="hyper1")


LIVE: dict[str, dict[str, t.Any]] = {
    "tls": {},
    "plain": {"transport": "plain"},
    "tunnelled": {"transport": "tunnelled"},
    "postcopy": {"postcopy": True, "transport": "plain"},
}
FIRST = {("delta", "tls"), ("shared", "tunnelled")}
MATRIX = [
    pytest.param(kind, mode, marks=[] if (kind, mode) in FIRST else pytest.mark.deep)
    for kind in GUESTS
    for mode in LIVE
    if kind == "shared" or mode not in ("tunnelled", "plain")
]


@pytest.mark.parametrize(("kind", "mode"), MATRIX)
def test_it_moves_live_there_and_back(guests: dict[str, Guest], kind: str, mode: str) -> None:
    """No number is lost or doubled, neither on the disk nor in the session."""
    guest = guests[kind]
    for to in ("hyper2", "hyper1"):
        with allowed_to_fault() if mode == "postcopy" else contextlib.nullcontext(), Counter([*guest.ssh]) as counter:
            guest.move(to, **LIVE[mode])
        seen = counter.seen()
        print(f"{kind} {mode} to {to}: longest gap {seen.longest_gap_s:.2f} s")
        assert seen.in_order and seen.longest_gap_s < GAP_S
        assert guest.on() == {to: "running"}
        guest.intact()
    guest.stays("hyper1")


GUIDE = (ROOT / "docs/docsite/rst/guide_migration.rst").read_text()
BY_HAND = re.findall(r"^    (hyper[12])# (.*)$", GUIDE, re.MULTILINE)
FILTER = """table inet silence
delete table inet silence
table inet silence {
  chain input { type filter hook input priority -300; }
  chain output { type filter hook output priority -300; }
}
"""
GIVES_UP_S = 40  # libvirt's keepalive, after 30 s


@contextlib.contextmanager
def source_learns_nothing(lab: Hypervisors) -> Iterator[None]:
    """Around a post-copy from hyper1 to hyper2: it completes there, and neither QEMU nor libvirt here hear of it."""

    def silence() -> None:
        until(lambda: "post-copy" in lab.on("hyper2", "virsh domstate --reason shared 2>&1 || true"), timeout_s=90)
        # GlusterFS goes on.
        (port,) = set(re.findall(r":(49\d+)\s+users:\(\(\"qemu", lab.on("hyper1", "ss -Htnp state established")))
        all_of_it = [
            f"{hook} tcp {end} {{ 16514, {port} }}" for hook in ("input", "output") for end in ("sport", "dport")
        ]
        drop(all_of_it)
        time.sleep(GIVES_UP_S)
        drop([f"input tcp sport {port} tcp flags & psh == psh"])

    def drop(what: list[str]) -> None:
        rules = "".join(f"add rule inet silence {each} drop\n" for each in what)
        lab.on("hyper1", "nft -f -", given=FILTER + rules)

    lab.on("hyper1", "tc qdisc replace dev host0 root tbf rate 40mbit burst 64kb latency 400ms")
    try:
        with allowed_to_fault(), concurrent.futures.ThreadPoolExecutor() as pool:
            silenced = pool.submit(silence)
            yield
            silenced.result()
    finally:
        drop([])
        lab.on("hyper1", "tc qdisc delete dev host0 root")


@pytest.mark.deep
def test_a_dead_copy_is_left_where_its_end_would_take_the_disks(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    """It is ended as the guide says; libvirt gives the disk to root then, under the guest that runs elsewhere."""
    guest, owner = guests["shared"], f"stat -c %u:%g {SHARED}/shared-system.qcow2"
    before = lab.on("hyper1", owner)
    with source_learns_nothing(lab):
        output = guest.move("hyper2", ok=False, postcopy=True, postcopy_after=1, transport="plain")
    assert (
        "it may change the owner or the label of the shared disks, so that the guest can no longer write to them"
        in output
    )
    assert guest.on() == {"hyper1": "paused", "hyper2": "running"}
    assert lab.on("hyper1", owner) == before
    guest.intact()
    owners = []
    for host, command in BY_HAND:
        lab.on(host, command.partition("  #")[0].replace("web1", "shared"))
        owners.append(lab.on("hyper1", owner))  # where libvirt changes it; hyper2 may have it cached
    assert "0:0" in owners
    assert owners[-1] == before
    guest.move("hyper2")
    assert guest.on() == {"hyper2": "running"}
    guest.intact()
    guest.move("hyper1")
    guest.intact()


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["delta", "full", "shared"])
def test_paused_it_stays_paused(lab: Hypervisors, guests: dict[str, Guest], kind: str) -> None:
    guest = guests[kind]
    lab.on("hyper1", f"virsh suspend {kind}")
    for to in ("hyper2", "hyper1"):
        guest.move(to)
        assert guest.on() == {to: "paused"}
    lab.on("hyper1", f"virsh resume {kind}")
    guest.intact()


@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("full", marks=pytest.mark.deep), pytest.param("shared", marks=pytest.mark.deep)]
)
def test_off_it_moves_with_its_disks(lab: Hypervisors, guests: dict[str, Guest], kind: str) -> None:
    """Its definition, its seed, its autostart; the disk is whole there, and not here.

    Then it goes on where it ended.
    """
    guest = guests[kind]
    lab.on("hyper1", f"virsh shutdown {kind}")
    until(lambda: guest.on() == {"hyper1": "shut off"}, timeout_s=120)
    definition = lab.on("hyper1", f"virsh dumpxml --inactive {kind}")
    pool = SHARED if kind == "shared" else IMAGES
    for to in ("hyper2", "hyper1"):
        result = guest.move(to)
        assert ("mode: offline" if kind == "shared" else "mode: cold") in result
        assert guest.on() == {to: "shut off"}
        lab.on(to, f"qemu-img check {pool}/{kind}-system.qcow2")
        if kind != "shared":
            assert kind not in lab.on(there(to), f"ls {pool}")
        assert lab.on(to, f"virsh dominfo {kind} | grep Autostart:").split()[1] == (
            "enable" if kind == "delta" else "disable"
        )
        guest.stays(to)
    assert lab.on("hyper1", f"virsh dumpxml --inactive {kind}") == definition
    lab.on("hyper1", f"virsh start {kind}")
    guest.up()
    guest.intact()


def test_what_is_sparse_stays_sparse(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    """And an overlay stays one, on the same image. The tests after this one find both guests on hyper2."""
    for kind in ("delta", "full"):
        before = int(lab.on("hyper1", f"stat -c %b {IMAGES}/{kind}-system.qcow2"))
        guests[kind].move("hyper2")
        after = int(lab.on("hyper2", f"stat -c %b {IMAGES}/{kind}-system.qcow2"))
        assert after < 1.3 * before + 20480
        info = lab.on("hyper2", f"qemu-img info -U {IMAGES}/{kind}-system.qcow2")
        assert ("backing file" in info) == (kind == "delta")


def test_an_image_that_is_missing_there_is_brought_first(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    """So that the guest's own clusters travel, and no more; the name of the image is not touched there."""
    lab.on("hyper1", f"rm -f {IMAGES}/small* {IMAGES}/.small*; virsh pool-refresh default")
    result = guests["delta"].move("hyper1")
    assert "how: delta" in result
    names = lab.on("hyper1", f"ls {IMAGES}").split()
    assert [name for name in names if name.startswith("small.")] and "small.qcow2" not in names
    guests["delta"].intact()


def test_a_base_that_was_written_to_there_is_not_stood_on(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    content = lab.on("hyper2", f"ls {IMAGES} | grep -E '^small[.][0-9a-f]{{12}}'")
    lab.on(
        "hyper2",
        f"chmod u+w {IMAGES}/{content}; printf x | dd of={IMAGES}/{content} bs=1 seek=9000000 conv=notrunc status=none",
    )
    result = guests["delta"].move("hyper2")
    assert "how: full" in result and "was written to" in result
    guests["delta"].intact()
    lab.on("hyper2", f"qemu-img info -U {IMAGES}/delta-system.qcow2 | grep -c backing | grep -qx 0")


def test_check_mode_tells_what_would_be_moved_and_touches_nothing(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    # Not the sizes: guests write on.
    look = f"virsh list --all; virsh pool-list --all; ls -iU {IMAGES} | sort; virsh dumpxml full 2>/dev/null || true"
    before = [lab.on(host, look) for host in ("hyper1", "hyper2")]
    arguments = json.dumps({"guest": "full", "to": there(*guests["full"].on())})
    printed = lab.run("ansible-playbook", "corral.virt.migrate", "--check", "-v", "-e", arguments)
    assert "bytes_to_move" in printed and "dirty_rate_mib_s" in printed
    assert [lab.on(host, look) for host in ("hyper1", "hyper2")] == before


def test_a_disk_that_another_backing_file_is_left_behind(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    """A linked clone made by hand, of which libvirt knows nothing, still has what it is made of."""
    guest, (here,) = guests["full"], guests["full"].on()
    disk, linked = f"{IMAGES}/full-system.qcow2", f"{IMAGES}/linked.qcow2"
    lab.on(here, f"qemu-img create -q -u -f qcow2 -b {disk} -F qcow2 {linked} 3G")
    guest.move(there(here))
    assert guest.on() == {there(here): "running"}
    lab.on(here, f"qemu-img check {linked} && rm {linked} {disk}")
    guest.intact()


def test_everything_that_speaks_against_it_is_said_at_once(lab: Hypervisors, guests: dict[str, Guest]) -> None:
    """No bridge, no room, a machine that is not known there; and nothing was made."""
    (here,) = guests["full"].on()
    wish = {
        "name": "odd",
        "state": "present",
        "vcpus": 1,
        "memory": "64MiB",
        "interfaces": [{"name": "eth0", "bridge": "br9"}],
    }
    lab.on(here, "ip link add br9 type bridge")
    lab.play({"corral.virt.virt_domain": wish}, hosts=here)
    lab.on(there(here), f"touch {IMAGES}/odd-system.qcow2")
    arguments = json.dumps({"guest": "odd", "to": there(here)})
    printed = lab.run("ansible-playbook", "corral.virt.migrate", "-e", arguments, ok=False)
    assert "no migration of this guest created it" in printed
    lab.on(there(here), f"rm {IMAGES}/odd-system.qcow2")
    printed = lab.run("ansible-playbook", "corral.virt.migrate", "-e", arguments, ok=False)
    assert "has no network device br9; create the bridge with role corral.virt.bridge" in printed
    options = json.dumps({"name": "odd", "dest": there(here), "dest_links": ["br0", "lo"]})
    assert "has no network device br9" in lab.run(
        "ansible", here, "-m", "corral.virt.virt_migrate", "-a", options, ok=False
    )
    options = json.dumps({"name": "odd", "dest": there(here), "dest_maintenance": "new fan"})
    printed = lab.run("ansible", here, "-m", "corral.virt.virt_migrate", "-a", options, "--check", ok=False)
    assert f"{there(here)} is in maintenance (new fan) and takes no guests" in printed
    assert "odd" not in lab.on(there(here), f"ls {IMAGES}; virsh list --all --name")


def test_uefi_variables_and_tpm_state_travel_with_a_guest_that_is_off(lab: Hypervisors) -> None:
    """Byte for byte; the guest starts with them there, and nothing of them is left here.

    A directory that is missing there is made as libvirt makes it.
    """
    wish = {"name": "uefi", "state": "running", "vcpus": 1, "memory": "256MiB", "disks": [], "interfaces": []}
    lab.play({"corral.virt.virt_domain": {**wish, "firmware": "efi", "tpm": {"model": "tpm-crb"}}}, hosts="hyper1")
    places = "/var/lib/libvirt/qemu/nvram /var/lib/libvirt/swtpm"
    look = f"find {places} -type f ! -name '*.lock' ! -path '*/.*' | sort | xargs -r sha256sum"
    until(lambda: lab.on("hyper1", look).count("\n") >= 1, timeout_s=60)
    lab.on("hyper1", "virsh destroy uefi")
    before = lab.on("hyper1", look)
    assert "uefi_VARS" in before and "tpm2-00" in before
    guest, whose = Guest(lab, "uefi", ""), "stat -c '%a %U' /var/lib/libvirt/qemu/nvram"
    made_by_libvirt = lab.on("hyper2", f"{whose} && rmdir /var/lib/libvirt/qemu/nvram")
    guest.move("hyper2")
    assert guest.on() == {"hyper2": "shut off"}
    assert lab.on("hyper2", look) == before
    assert lab.on("hyper2", whose) == made_by_libvirt == "755 libvirt-qemu"
    assert lab.on("hyper1", look) == ""
    lab.on("hyper2", "virsh start uefi && virsh destroy uefi && virsh undefine uefi --nvram")
    assert "corral-" not in lab.on("hyper1", "virsh pool-list --all") + lab.on("hyper2", "virsh pool-list --all")


@pytest.mark.deep  # emulated firmware takes minutes; the test before it moves the variables, too
@pytest.mark.parametrize("store", ["/var/lib/libvirt/qemu/nvram/live_VARS.fd", f"{SHARED}/live_VARS.fd"])
def test_the_variables_of_a_running_guest_are_on_its_host_or_on_shared_storage(lab: Hypervisors, store: str) -> None:
    """libvirt leaves them on the source; the guest on the destination goes on with a file that both hosts see."""
    wish = {"name": "live", "state": "running", "vcpus": 1, "memory": "256MiB", "disks": [], "interfaces": []}
    nvram = {"nvram": {"path": store}} if store.startswith(SHARED) else {}
    lab.play({"corral.virt.virt_domain": {**wish, "firmware": "efi", **nvram}}, hosts="hyper1")
    guest, inode = Guest(lab, "live", ""), lab.on("hyper1", f"stat -c %i {store}")
    try:
        told = guest.move("hyper2")
        assert guest.on() == {"hyper2": "running"}
        assert f">{store}</nvram>" in lab.on("hyper2", f"test -s {store} && virsh dumpxml live")
        if nvram:
            assert f"the UEFI variables in {store} stay on the source: it is on shared storage (fuse.glusterfs)" in told
            assert lab.on("hyper2", f"stat -c %i {store}") == inode
        else:
            assert f"remove {store} from the source" in told
            assert lab.on("hyper1", f"ls -A {Path(store).parent}") == ""
    finally:
        lab.on("hyper2", "virsh destroy live && virsh undefine live --nvram")


NAMED, SERVED = f"{IMAGES}/named.qcow2", "/srv/served.img"
# It needs no system: its firmware runs.
BY_NAME = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><devices>
<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/><source pool='{pool}' volume='{name}.qcow2'/>
<target dev='vda' bus='virtio'/></disk>{more}</devices></domain>"""
ON_NETWORK = """<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>
<source protocol='nbd' name='disk'><host name='hyper1' port='10810'/></source><target dev='vdb' bus='virtio'/></disk>"""


@pytest.fixture
def by_name(lab: Hypervisors) -> Iterator[None]:
    """A disk that is served over the network, and two guests whose disks are named by pool and volume."""
    lab.on("hyper1", f"truncate -s 16M {SERVED} && nft insert rule inet filter input tcp dport 10810 accept")
    lab.on("hyper1", f"qemu-nbd --fork --pid-file /run/served.pid -t -e 4 -f raw -x disk -p 10810 {SERVED}")
    for name, directory, pool, more in (("named", IMAGES, "default", ""), ("served", SHARED, "shared", ON_NETWORK)):
        path = f"{directory}/{name}.qcow2"
        lab.on("hyper1", f"qemu-img create -q -f qcow2 {path} 16M && qemu-io -c 'write -P 7 0 1M' {path}")
        lab.on("hyper1", f"virsh pool-refresh {pool}")
        xml = BY_NAME.format(name=name, pool=pool, more=more)
        lab.on("hyper1", f"virsh define /dev/stdin && virsh start {name}", given=xml)
    yield
    for host in ("hyper1", "hyper2"):
        lab.on(host, "for guest in named served; do virsh destroy $guest; virsh undefine $guest; done || true")
        lab.on(
            host, f"rm -f {IMAGES}/named.* {SHARED}/served.qcow2; virsh pool-refresh default; virsh pool-refresh shared"
        )
    lab.on("hyper1", f"kill $(cat /run/served.pid); rm {SERVED}")


@pytest.mark.deep
def test_a_disk_that_is_named_by_its_volume_is_not_left_behind(lab: Hypervisors, by_name: None) -> None:
    guest = Guest(lab, "named", "")
    for to, state in (("hyper2", "running"), ("hyper1", "running"), ("hyper2", "shut off")):
        if state == "shut off":
            lab.on(there(to), "virsh destroy named")
        result = guest.move(to)
        assert ("libvirt copies such a disk only in full" in result) == (state == "running")
        assert guest.on() == {to: state}
        lab.on(there(to), f"test ! -e {NAMED}")
    assert "verification failed" not in lab.on("hyper2", f"qemu-io -r -c 'read -P 7 0 1M' {NAMED}")
    lab.on("hyper2", "virsh start named && virsh destroy named")
    lab.on("hyper1", f"truncate -s 1M {NAMED} && virsh pool-refresh default")  # somebody else's of that name
    assert f"{NAMED} already exists on the destination" in guest.move("hyper1", ok=False)
    lab.on("hyper1", f"rm {NAMED} && virsh pool-destroy default && virsh pool-undefine default")
    lab.on("hyper1", f"virsh pool-define-as other dir --target {IMAGES} && virsh pool-start other")
    try:
        assert f"is {NAMED} on the source, and is missing on the destination; create" in guest.move("hyper1", ok=False)
    finally:
        lab.on("hyper1", "virsh pool-destroy other && virsh pool-undefine other")
        define = f"virsh pool-define-as default dir --target {IMAGES}"
        lab.on("hyper1", f"{define} && virsh pool-start default && virsh pool-autostart default")
    data = f"{IMAGES}/named.raw"
    lab.on("hyper2", f"rm {NAMED}; qemu-img create -q -f qcow2 -o data_file={data},data_file_raw=on {NAMED} 16M")
    lab.on("hyper2", "virsh pool-refresh default")
    assert f"disk vda: its data is in {data}, which is not copied" in guest.move("hyper1", ok=False)
    assert guest.on() == {"hyper2": "shut off"}


@pytest.mark.deep
def test_disks_on_shared_storage_and_on_the_network_stay_while_their_guest_moves(
    lab: Hypervisors, by_name: None
) -> None:
    guest = Guest(lab, "served", "")
    for to in ("hyper2", "hyper1"):
        result = guest.move(to)
        assert "on the network (nbd)" in result and "glusterfs" in result and "how: full" not in result
        assert guest.on() == {to: "running"}
    lab.on("hyper1", f"test -e {SERVED} && test -e {SHARED}/served.qcow2")
    assert "is not copied; set disk_storage" in guest.move("hyper2", ok=False, options={"storage": "full"})
    lab.on(
        "hyper2", f"virsh pool-destroy shared; umount {SHARED}; touch {SHARED}/served.qcow2; virsh pool-start shared"
    )
    try:
        refused = "glusterfs, and pool shared of the destination has another file there; mount the same"
        assert refused in guest.move("hyper2", ok=False)
        lab.on("hyper1", "virsh destroy served")
        assert refused in guest.move("hyper2", ok=False)
    finally:
        lab.on(
            "hyper2", f"virsh pool-destroy shared; rm {SHARED}/served.qcow2; mount -t glusterfs hyper2:/shared {SHARED}"
        )
        lab.on("hyper2", "virsh pool-start shared")
    assert guest.on() == {"hyper1": "shut off"}
    guest.move("hyper2")
    assert guest.on() == {"hyper2": "shut off"}
    lab.on("hyper2", "virsh start served && virsh destroy served")
