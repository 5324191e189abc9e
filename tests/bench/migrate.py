"""A running guest moves to another host, idle and while it writes memory.

Beside `virsh migrate` in the best way, and in Salt's.
"""

from __future__ import annotations

import json
import statistics
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.tests.bench.place import BUILD, LAB_BUILD, NAME, Failed, on, run, say
from ansible_collections.corral.virt.tests.bench.row import Row
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience
from ansible_collections.corral.virt.tests.lab.counter import Counter

HOSTS = 2
CLOUD_IMAGE = True
ROLES: tuple[str, ...] = ("hypervisor", "bridge", "pki", "firewall", "storage")
GUEST, NUMBER, MEMORY_MIB, OWN_MIB, DIRTY_MB_S = "moving", 201, 512, 50, 20
IMAGES = "/var/lib/libvirt/images"
DISK = f"{IMAGES}/{GUEST}-system.qcow2"
TURNS = 3
MANY, AT_ONCE = 10, 4
PROMISE = "maintenance_cpu_overcommit=6"  # ten guests on a host with two processors
BOOT_S = 300
OURS, BEST, SALT = "virt_migrate", "virsh migrate, best flags", "virsh migrate, Salt's flags"
PLAYED = "best flags, by a playbook"
FLAGS = "--live --p2p --persistent --undefinesource --tls"

HOW = f"""
A Debian guest of 3 GiB with {OWN_MIB} MiB of data of its own on an image that both hosts have, and {MEMORY_MIB} MiB of memory.
- seconds: the whole command, with whatever it needs before and after (a disk made there, the old one removed here); medians of {TURNS}
- {OURS}: ansible -m virt_migrate, over one kept SSH connection; it looks at both hosts first and after, and tells the progress
- {BEST}: {FLAGS} --auto-converge --copy-storage-inc, with an overlay made there before, over one kept SSH connection
- {PLAYED}: the same in four tasks, as somebody would write them who has Ansible and not this module
- {SALT}: --live --copy-storage-all, as Salt calls it (with p2p, TLS and an empty disk there, so that it works at all); measured once
- wire: what the source's network interface sent, as the kernel counted it
- drain: playbook drain, which looks at the hosts, places, asks and moves; the peer moves each guest with a task of its own
- gap: the longest silence of an SSH session in the guest that counts every 0.1 s
"""

# Pages that do not compress, copied in the kernel: a guest that is emulated must not spend itself on that.
WRITE = f"""cd /dev/shm && head -c {DIRTY_MB_S}000000 /dev/urandom >source && cp source pages
while :; do dd if=source of=pages bs=1M conv=notrunc status=none; sleep 1; done"""


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
            run(*ssh, f"nohup sh -c '{WRITE}' >/dev/null 2>&1 & sleep 5")
        ours: list[Moved] = []
        best: list[Moved] = []
        played: list[Moved] = []
        # in turns, so that a busy moment of the machine meets all; three there and back, so both ways
        for _turn in range(TURNS):
            ours.append(_measured(ssh, _ours))
            best.append(_measured(ssh, _best))
            played.append(_measured(ssh, _played))
            say(f"{load}: {OURS} {ours[-1].seconds:.1f} s, {BEST} {best[-1].seconds:.1f} s")
        yield from _compared(load, ours, best)
        yield Row("move: seconds", 1, _seconds(ours), PLAYED, _seconds(played), "s", None, load)
    own, memory = _weight()
    yield Row(
        "move: wire, whole",
        1,
        ours[0].wire_bytes / 1e6,
        "own clusters and memory",
        (own + memory) / 1e6,
        "MB",
        1 / 1.15,
    )
    salt = _measured(ssh, _salt)
    yield Row("move: seconds", 1, _seconds(ours), SALT, salt.seconds, "s", None, load)
    yield Row(
        "move: wire",
        1,
        statistics.median(each.wire_bytes for each in ours) / 1e6,
        SALT,
        salt.wire_bytes / 1e6,
        "MB",
        None,
        load,
    )
    on(_where(), f"virsh -q destroy {GUEST} && virsh -q undefine {GUEST} && rm {DISK}")
    yield _drained()


def _drained() -> Row:
    """Small guests without an operating system leave a host, and come back one after another."""
    names = [f"small{number}" for number in range(MANY)]
    wish = {"vcpus": 1, "memory": "64MiB", "disks": [{"name": "system", "size": "64MiB"}], "state": "running"}
    _play("hyper1", {"corral.virt.virt_domains": {"domains": [{"name": name, **wish} for name in names]}})
    pair = BUILD / "pair.json"  # other benches need more hosts, and a drain would use them all
    pair.write_text(json.dumps({"pair": {"hosts": {"hyper1": {}, "hyper2": {}}}}))
    both = ("-i", LAB_BUILD / "inventory/hosts.yml", "-i", pair, "-e", "virt_group=pair", "-e", "host=hyper1")
    ours = run("ansible-playbook", "corral.virt.drain", *both, "-e", f"at_once={AT_ONCE}", "-e", PROMISE).seconds
    run("ansible-playbook", "corral.virt.undrain", *both)
    each = {"corral.virt.virt_migrate": {"name": "{{ item }}", "dest": "hyper1"}, "loop": names}
    peer = _play("hyper2", each)
    back = on("hyper1", "virsh list --name").output.split()
    if sorted(back) != names:
        raise Failed(f"of {MANY} guests these came back: {', '.join(back)}")
    return Row("drain", MANY, ours, "virt_migrate in a loop", peer, "s", None, f"{AT_ONCE} at once")


def _play(hosts: str, *tasks: dict[str, t.Any]) -> float:
    book = BUILD / "moving.json"
    book.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "tasks": tasks}]))
    return run("ansible-playbook", book).seconds


def _compared(load: str, ours: list[Moved], best: list[Moved]) -> t.Iterator[Row]:
    mine, theirs = (Moved(*map(statistics.median, zip(*each, strict=True))) for each in (ours, best))
    yield Row(
        "move: seconds",
        1,
        mine.seconds,
        BEST,
        theirs.seconds,
        "s",
        theirs.seconds / (theirs.seconds * 1.05 + 1.0),
        load,
    )
    yield Row("move: wire", 1, mine.wire_bytes / 1e6, BEST, theirs.wire_bytes / 1e6, "MB", None, load)
    yield Row("move: longest gap", 1, mine.gap_s, BEST, theirs.gap_s, "s", theirs.gap_s / (theirs.gap_s + 0.1), load)


def _where() -> str:
    (host,) = [host for host in ("hyper1", "hyper2") if "running" in on(host, f"virsh domstate {GUEST} || true").output]
    return host


def _measured(ssh: t.Sequence[str], move: t.Callable[[str, str], float]) -> Moved:
    here = _where()
    there = "hyper2" if here == "hyper1" else "hyper1"
    before = _sent(here)
    with Counter(ssh) as counter:
        seconds = move(here, there)
    seen = counter.seen()
    if not seen.in_order or _where() != there:
        raise Failed(f"{GUEST} did not arrive on {there} as it was on {here}")
    return Moved(seconds, _sent(here) - before, seen.longest_gap_s)


def _sent(host: str) -> int:
    return int(Path(f"/sys/class/net/vb-{NAME}-{host}/statistics/rx_bytes").read_text())


def _ours(here: str, there: str) -> float:
    return run(
        "ansible", here, "-m", "corral.virt.virt_migrate", "-a", json.dumps({"name": GUEST, "dest": there})
    ).seconds


def _best(here: str, there: str) -> float:
    create, refresh, migrate = _by_hand(here, there)
    begun = time.monotonic()
    on(there, f"{create} && {refresh}")
    on(here, f"{migrate} && rm {DISK}")
    return time.monotonic() - begun


def _played(here: str, there: str) -> float:
    create, refresh, migrate = _by_hand(here, there)
    before = [{"ansible.builtin.command": command, "delegate_to": there} for command in (create, refresh)]
    return _play(
        here, *before, {"ansible.builtin.command": migrate}, {"ansible.builtin.file": {"path": DISK, "state": "absent"}}
    )


def _by_hand(here: str, there: str) -> tuple[str, str, str]:
    base = on(here, f"qemu-img info -U {DISK} | sed -n 's/^backing file: //p'").output.split()[0]
    flags = f"{FLAGS} --auto-converge --copy-storage-inc --migrate-disks vda --migrateuri tcp://{there}"
    create = f"qemu-img create -q -f qcow2 -F qcow2 -b {base} {DISK} 3G"
    return create, "virsh -q pool-refresh default", f"virsh migrate {flags} {GUEST} qemu+tls://{there}/system"


def _seconds(moves: t.Sequence[Moved]) -> float:
    return statistics.median(each.seconds for each in moves)


def _salt(here: str, there: str) -> float:
    # libvirt makes none for a disk on an image
    on(there, f"qemu-img create -q -f qcow2 {DISK} 3G && virsh -q pool-refresh default")
    return on(
        here, f"virsh migrate {FLAGS} --copy-storage-all --migrateuri tcp://{there} {GUEST} qemu+tls://{there}/system"
    ).seconds


def _weight() -> tuple[int, int]:
    """Bytes of its own on the disk, and of its memory that are in use."""
    host = _where()
    blocks = int(on(host, f"stat -c %b {DISK}").output)
    rss_kib = int(on(host, f"virsh dommemstat {GUEST} | sed -n 's/^rss //p'").output)
    return blocks * 512, min(rss_kib, MEMORY_MIB * 1024) * 1024


def _guest() -> list[str]:
    """A guest that answers, with data of its own and without its seed, so that one disk travels; how to reach it."""
    facts = json.loads(run("ansible-inventory", "-i", f"{LAB_BUILD}/inventory", "--host", "hyper1").output)
    address = f"{facts['virt_lab_guest_prefix']}.{NUMBER}"
    nic = {"match": {"name": "e*"}, "addresses": [f"{address}/24"]}
    seed = {
        "user_data": {
            "disable_root": False,
            "users": [{"name": "root", "ssh_authorized_keys": [facts["virt_lab_ssh_public_key"]]}],
        },
        "network_config": {"version": 2, "ethernets": {"all": nic}},
    }
    image = {
        "name": "debian-12.qcow2",
        "url": facts["virt_lab_image_url"],
        "checksum": facts["virt_lab_image_sums_url"],
    }
    wish = {
        "name": GUEST, "state": "running", "vcpus": 1, "memory": f"{MEMORY_MIB}MiB", "cloud_init": seed,
        "disks": [{"name": "system", "image": "debian-12.qcow2", "size": "3GiB"}],
    }  # fmt: skip
    _play(
        "hyper",
        {"corral.virt.virt_image": image},
        {"corral.virt.virt_domain": wish, "when": "inventory_hostname == 'hyper1'"},
    )
    options = (
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "ConnectTimeout=30",
        "ConnectionAttempts=3",
    )
    ssh = [
        "ssh",
        "-n",
        "-i",
        str(LAB_BUILD / "id_ed25519"),
        *(f"-o{option}" for option in options),
        "--",
        f"root@{address}",
    ]
    patience = Patience(BOOT_S)
    while True:
        try:
            run(*ssh, "cloud-init status --wait; true")
            break
        except Failed:
            if patience.is_over:
                raise
            time.sleep(3)
    run(*ssh, f"dd if=/dev/urandom of=/root/own bs=1M count={OWN_MIB} conv=fsync status=none")
    on(
        "hyper1",
        f"virsh -q detach-disk {GUEST} vdb --live --config && rm {IMAGES}/{GUEST}-seed.iso && virsh -q pool-refresh "
        "default",
    )
    return ssh
