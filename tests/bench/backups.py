"""Backups of a running guest, the first and one of a hundredth, beside virtnbdbackup, qemu-img and restic.

The guest runs without an operating system: one vCPU, 64 MiB, one disk of 4 GiB with 1 GiB in it; QEMU writes for it.
"""

from __future__ import annotations

import itertools
import json
import typing as t

from ansible_collections.corral.virt.tests.bench.place import BUILD, medians, on, run
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 1
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "storage")
DISK = "/var/lib/libvirt/images/bench.qcow2"
STORE = "/srv/bench"
CHANGED_MIB = 41  # a hundredth of the disk, in ten places
NBD, CONVERT, RESTIC = "virtnbdbackup", "qemu-img convert -U", "restic"
TENTH, AS_FAST = 10, 1

HOW = f"""
One running guest whose disk of 4 GiB holds 1 GiB. Seconds are those of the command on the host, or of the task, medians; MiB are those that the
repository grows by.
- first: all of the disk
- later: {CHANGED_MIB} MiB were written in ten places since, beside virtnbdbackup -l inc, a whole qemu-img convert, and restic over the disk
"""
DOMAIN = (
    "<domain type='qemu'><name>bench</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>"
    f"<devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{DISK}'/><target dev='vda' bus='virtio'/>"
    "</disk></devices></domain>"
)


def rows() -> t.Iterator[Row]:
    """Our figures beside those of others."""
    print(HOW)
    on("hyper1", "apt-get -q install -y virtnbdbackup restic")
    on(
        "hyper1",
        f"mkdir -p {STORE}/ours {STORE}/nbd {STORE}/restic && qemu-img create -q -f qcow2 {DISK} 4G && head -c 1G /dev/urandom "
        f">/root/data && qemu-img convert -n -f raw -O qcow2 /root/data {DISK}",
    )
    on("hyper1", "virsh -q define /dev/stdin && virsh -q start bench", given=DOMAIN)
    seeds = itertools.count(1)

    def change() -> None:
        """Let the running guest's QEMU write random bytes in ten places."""
        on("hyper1", "head -c 4M /dev/urandom > /root/piece; chmod 644 /root/piece; chmod o+x /root")
        device = "/machine/peripheral/virtio-disk0/virtio-backend"
        base = next(seeds) * 4
        for place in range(10):
            write = f'qemu-io -d {device} "write -s /root/piece {base + place * 90}M 4M"'
            on("hyper1", f"virsh -q qemu-monitor-command bench --hmp '{write}'")

    def ours() -> float:
        return _task({"corral.virt.virt_backup": {"guests": ["bench"], "repository": f"{STORE}/ours"}})

    def nbd(level: str) -> float:
        return on("hyper1", f"virtnbdbackup -d bench -l {level} -o {STORE}/nbd").seconds

    def convert() -> float:
        return on("hyper1", f"qemu-img convert -U -O qcow2 {DISK} {STORE}/convert && rm {STORE}/convert").seconds

    def restic() -> float:
        command = f"RESTIC_PASSWORD=x restic -q -r {STORE}/restic"
        return on(
            "hyper1", f"({command} cat config >/dev/null 2>&1 || {command} init) && {command} backup {DISK}"
        ).seconds

    first = [ours(), nbd("full"), convert(), restic()]
    for peer, seconds in zip((NBD, CONVERT, RESTIC), first[1:], strict=True):
        yield Row("backup, first", 1, first[0], peer, seconds, "s")
    grown: dict[str, list[float]] = {"ours": [], "nbd": [], "restic": []}

    def measured(name: str, do: t.Callable[[], float]) -> t.Callable[[], float]:
        def turn() -> float:
            before = _mib(name)
            if name == "ours":
                change()
            seconds = do()
            grown[name].append(_mib(name) - before)
            return seconds

        return turn

    took = medians(measured("ours", ours), measured("nbd", lambda: nbd("inc")), convert, measured("restic", restic))
    for peer, seconds, least in zip((NBD, CONVERT, RESTIC), took[1:], (AS_FAST, None, None), strict=True):
        yield Row("backup, later", 1, took[0], peer, seconds, "s", least)
    yield Row("backup, later beside the first", 1, took[0], "the first", first[0], "s", TENTH)
    yield Row("backup, later", 1, min(grown["ours"]), "what was changed", float(CHANGED_MIB), "MiB")
    yield Row("backup, later", 1, min(grown["ours"]), RESTIC, min(grown["restic"]), "MiB")


def _mib(name: str) -> float:
    return float(on("hyper1", f"du -sk {STORE}/{name}").output.split()[0]) / 1024


def _task(task: dict[str, t.Any]) -> float:
    playbook = BUILD / "backups.json"
    playbook.write_text(json.dumps([{"hosts": "hyper1", "gather_facts": False, "tasks": [task]}]))
    return run("ansible-playbook", playbook).seconds
