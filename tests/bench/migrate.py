"""A running guest moves to another host, idle and while it writes memory; beside `virsh migrate` in the best way, and in Salt's."""

from __future__ import annotations

import json
import statistics
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.tests.bench.place import BUILD, LAB_BUILD, NAME, Failed, on, run, say
from ansible_collections.corral.virt.tests.bench.row import Row
from ansible_collections.corral.virt.tests.lab.counter import Counter

HOSTS = 2
CLOUD_IMAGE = True
ROLES: tuple[str, ...] = ("hypervisor", "bridge", "pki", "firewall", "storage")
GUEST, NUMBER, MEMORY_MIB, OWN_MIB, DIRTY_MB_S = "moving", 201, 512, 50, 20
IMAGES = "/var/lib/libvirt/images"
DISK = f"{IMAGES}/{GUEST}-system.qcow2"
TURNS = 3
BOOT_S = 300
OURS, BEST, SALT = "virt_migrate", "virsh migrate, best flags", "virsh migrate, Salt's flags"
FLAGS = "--live --p2p --persistent --undefinesource --tls"

HOW = f"""
A Debian guest of 3 GiB with {OWN_MIB} MiB of data of its own on an image that both hosts have, and {MEMORY_MIB} MiB of memory.
- seconds: the whole command, with whatever it needs before and after (a disk made there, the old one removed here); medians of {TURNS}
- {OURS}: ansible -m virt_migrate, over one kept SSH connection; it looks at both hosts first and after, and tells the progress
- {BEST}: {FLAGS} --auto-converge --copy-storage-inc, with an overlay made there before, over one kept SSH connection
- {SALT}: --live --copy-storage-all, as Salt calls it (peer-to-peer and TLS added, so that it works at all); one measurement
- wire: what the source's network interface sent, as the kernel counted it
- gap: the longest silence of an SSH session in the guest that counts every 0.1 s
"""

WRITE = f"""import time
pages = bytearray({64 << 20})
while True:
    begun = time.monotonic()
    for place in range(0, len(pages), 4096):
        pages[place] = (pages[place] + 1) & 255
    time.sleep(max(0, {(64 << 20) / (DIRTY_MB_S * 10**6):.2f} - (time.monotonic() - begun)))
"""


class Moved(t.NamedTuple):
    """One move."""

    seconds: float
    wire_bytes: int
    gap_s: float


def rows() -> t.Iterator[Row]:
    """Our figures beside everybody's."""
    print(HOW)
    ssh = _guest()
    for load in ("idle", f"writes {DIRTY_MB_S} MB/s"):
        if load != "idle":
            run(*ssh, f"nohup python3 -c '{WRITE}' >/dev/null 2>&1 & sleep 5")
        ours, best = [], []
        for turn in range(TURNS):  # in turns and both ways, so that a busy moment of the machine meets both
            way = ("hyper1", "hyper2") if turn % 2 == 0 else ("hyper2", "hyper1")
            ours.append(_measured(ssh, _ours, *way))
            best.append(_measured(ssh, _best, *reversed(way)))
            say(f"{load}: {OURS} {ours[-1].seconds:.1f} s, {BEST} {best[-1].seconds:.1f} s")
            if turn < TURNS - 1:  # the next turn begins elsewhere
                _measured(ssh, _best, *way)
        yield from _compared(load, ours, best)
    own, memory = _weight()
    yield Row("move: wire, whole", 1, ours[0].wire_bytes / 1e6, "own clusters and memory", (own + memory) / 1e6, "MB", 1 / 1.15)
    here = "hyper1" if "running" in on("hyper1", f"virsh domstate {GUEST} || true").output else "hyper2"
    salt = _measured(ssh, _salt, here, _other(here))
    yield Row("move: seconds", 1, statistics.median(each.seconds for each in ours), SALT, salt.seconds, "s", None, load)
    yield Row("move: wire", 1, statistics.median(each.wire_bytes for each in ours) / 1e6, SALT, salt.wire_bytes / 1e6, "MB", None, load)


def _compared(load: str, ours: list[Moved], best: list[Moved]) -> t.Iterator[Row]:
    mine, theirs = (Moved(*map(statistics.median, zip(*each, strict=True))) for each in (ours, best))
    yield Row("move: seconds", 1, mine.seconds, BEST, theirs.seconds, "s", theirs.seconds / (theirs.seconds * 1.05 + 1.0), load)
    yield Row("move: wire", 1, mine.wire_bytes / 1e6, BEST, theirs.wire_bytes / 1e6, "MB", None, load)
    yield Row("move: longest gap", 1, mine.gap_s, BEST, theirs.gap_s, "s", theirs.gap_s / (theirs.gap_s + 0.1), load)


def _other(host: str) -> str:
    return "hyper2" if host == "hyper1" else "hyper1"


def _measured(ssh: t.Sequence[str], move: t.Callable[[str, str], float], here: str, there: str) -> Moved:
    before = _sent(here)
    with Counter(ssh) as counter:
        seconds = move(here, there)
    seen = counter.seen()
    if not seen.in_order or "running" not in on(there, f"virsh domstate {GUEST}").output:
        raise Failed(f"{GUEST} did not arrive on {there} as it was on {here}")
    return Moved(seconds, _sent(here) - before, seen.longest_gap_s)


def _sent(host: str) -> int:
    return int(Path(f"/sys/class/net/vb-{NAME}-{host}/statistics/rx_bytes").read_text())


def _ours(here: str, there: str) -> float:
    return run("ansible", here, "-m", "corral.virt.virt_migrate", "-a", json.dumps({"name": GUEST, "dest": there})).seconds


def _best(here: str, there: str) -> float:
    base = on(here, f"qemu-img info -U {DISK} | sed -n 's/^backing file: //p'").output.split()[0]
    begun = time.monotonic()
    on(there, f"qemu-img create -q -f qcow2 -F qcow2 -b {base} {DISK} 3G && virsh -q pool-refresh default")
    flags = f"{FLAGS} --auto-converge --copy-storage-inc --migrate-disks vda --migrateuri tcp://{there}"
    on(here, f"virsh migrate {flags} {GUEST} qemu+tls://{there}/system && rm {DISK}")
    return time.monotonic() - begun


def _salt(here: str, there: str) -> float:
    return on(here, f"virsh migrate {FLAGS} --copy-storage-all --migrateuri tcp://{there} {GUEST} qemu+tls://{there}/system").seconds


def _weight() -> tuple[int, int]:
    """Bytes of its own on the disk, and of its memory that are in use."""
    host = next(host for host in ("hyper1", "hyper2") if "running" in on(host, f"virsh domstate {GUEST} || true").output)
    blocks = int(on(host, f"stat -c %b {DISK}").output)
    rss_kib = int(on(host, f"virsh dommemstat {GUEST} | sed -n 's/^rss //p'").output)
    return blocks * 512, min(rss_kib, MEMORY_MIB * 1024) * 1024


def _guest() -> list[str]:
    """A guest that answers, with data of its own and without its seed, so that one disk travels; how to reach it."""
    facts = json.loads(run("ansible-inventory", "-i", f"{LAB_BUILD}/inventory", "--host", "hyper1").output)
    address = f"{facts['virt_lab_guest_prefix']}.{NUMBER}"
    nic = {"match": {"name": "e*"}, "addresses": [f"{address}/24"]}
    seed = {
        "user_data": {"disable_root": False, "users": [{"name": "root", "ssh_authorized_keys": [facts["virt_lab_ssh_public_key"]]}]},
        "network_config": {"version": 2, "ethernets": {"all": nic}},
    }
    image = {"name": "debian-12.qcow2", "url": facts["virt_lab_image_url"], "checksum": facts["virt_lab_image_sums_url"]}
    wish = {
        "name": GUEST, "state": "running", "vcpus": 1, "memory": f"{MEMORY_MIB}MiB", "cloud_init": seed,
        "disks": [{"name": "system", "image": "debian-12.qcow2", "size": "3GiB"}],
    }  # fmt: skip
    book = BUILD / "moving.json"
    tasks = [{"corral.virt.virt_image": image}, {"corral.virt.virt_domain": wish, "when": "inventory_hostname == 'hyper1'"}]
    book.write_text(json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": tasks}]))
    run("ansible-playbook", book)
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=30", "ConnectionAttempts=3")
    ssh = ["ssh", "-n", "-i", str(LAB_BUILD / "id_ed25519"), *(f"-o{option}" for option in options), f"root@{address}"]
    deadline = time.monotonic() + BOOT_S
    while True:
        try:
            run(*ssh, "cloud-init status --wait; true")
            break
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(3)
    run(*ssh, f"dd if=/dev/urandom of=/root/own bs=1M count={OWN_MIB} conv=fsync status=none")
    on("hyper1", f"virsh -q detach-disk {GUEST} vdb --live --config && rm {IMAGES}/{GUEST}-seed.iso && virsh -q pool-refresh default")
    return ssh
