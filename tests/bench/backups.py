"""Backups of a running guest, the first and one of a hundredth, beside virtnbdbackup, qemu-img and restic; restores.

The guests run without an operating system: one vCPU, 64 MiB, one full disk of 4 GiB; QEMU writes for them.
"""

from __future__ import annotations

import base64
import concurrent.futures
import itertools
import json
import statistics
import typing as t

from ansible_collections.corral.virt.tests.bench.place import BUILD, LAB_BUILD, Failed, medians, on, run
from ansible_collections.corral.virt.tests.bench.row import Row
from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector

HOSTS = 2
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "bridge", "pki", "firewall", "storage")
IMAGES, STORE = "/var/lib/libvirt/images", "/srv/bench"
OURS, THEIRS, SYNCED = (
    "bench",
    "bench-nbd",
    "bench-sync",
)  # virtnbdbackup backs up no guest that has checkpoints of another program
PLACES, PIECE_MIB = 10, 4  # what is changed: a hundredth of the disk
CHANGED_MIB = PLACES * PIECE_MIB
LIMIT_MIB = 1.1 * CHANGED_MIB + 1
NBD, CONVERT, RESTIC = "virtnbdbackup", "qemu-img convert -U", "restic"
TENTH, AS_FAST, WITHIN = 10, 1, 1
THROTTLE_MIB_S, SYNCED_MIB, WRITES_S, SLOWER = 5, 150, 8, 1.5
INSTANT_S = 5.0

HOW = f"""
A running guest whose disk of 4 GiB is full, and its twin for virtnbdbackup. Seconds are those of the command on the host, or those that the module
reports, medians; the whole playbook is a row of its own. MiB are those that the repository grows by.
- first: all of the disk
- later: {CHANGED_MIB} MiB were written in ten places since, beside virtnbdbackup -l inc, a whole qemu-img convert, and restic over the disk
- after a migration: the same, when the guest has moved to another host that has the repository
- synced write: the mean of the writes of a guest that numbers sectors with cache=writethrough, while {SYNCED_MIB} MiB of it are backed up
  with bandwidth: {THROTTLE_MIB_S}, beside the same of the guest when nothing else happens
- instant: from the start of the module until the guest runs, beside a limit and a whole restore
"""
DOMAIN = (
    "<domain type='qemu'><name>{0}</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>"
    f"<devices><disk type='file'><driver name='qemu' type='qcow2'/><source file='{IMAGES}/{{0}}.qcow2'/>"
    "<target dev='vda' bus='virtio'/></disk></devices></domain>"
)


def rows() -> t.Iterator[Row]:
    """Our figures beside those of others."""
    print(HOW)
    on("hyper1", "apt-get -q install -y virtnbdbackup restic")
    on("hyper1", "head -c 4000M /dev/urandom > /root/data && chmod o+x /root")
    for host in ("hyper1", "hyper2"):
        on(host, f"mkdir -p {STORE}/ours {STORE}/nbd {STORE}/restic")
    for guest in (OURS, THEIRS):
        disk = f"{IMAGES}/{guest}.qcow2"
        on("hyper1", f"qemu-img create -q -f qcow2 {disk} 4G && qemu-img convert -n -f raw -O qcow2 /root/data {disk}")
        on("hyper1", f"virsh -q define /dev/stdin && virsh -q start {guest}", given=DOMAIN.format(guest))
    yield from _beside_others()
    yield from _beside_the_guest()
    yield from _after_a_migration()
    yield from _instant()


_SEEDS = itertools.count(1)
PLAYED: list[float] = []  # seconds of whole playbooks


def _change(guest: str, host: str = "hyper1") -> None:
    """Let the running guest's QEMU write random bytes in ten places."""
    on(host, f"head -c {PIECE_MIB}M /dev/urandom > /root/piece; chmod 644 /root/piece; chmod o+x /root")
    base = next(_SEEDS) * PIECE_MIB
    for place in range(PLACES):
        _qemu_io(host, guest, f"write -s /root/piece {base + place * 390}M {PIECE_MIB}M")


def _qemu_io(host: str, guest: str, *commands: str) -> str:
    device = "/machine/peripheral/virtio-disk0/virtio-backend"
    lines = (f"virsh -q qemu-monitor-command {guest} --hmp 'qemu-io -d {device} \"{one}\"'" for one in commands)
    return on(host, "; ".join(lines)).output


def _back_up(host: str = "hyper1", **options: t.Any) -> float:
    task = {"corral.virt.virt_backup": {"guests": [OURS], "repository": f"{STORE}/ours", **options}, "register": "told"}
    return _told(host, task, "results.0.seconds")


def _beside_others() -> t.Iterator[Row]:
    disk = f"{IMAGES}/{OURS}.qcow2"

    def nbd(level: str) -> float:
        return on("hyper1", f"virtnbdbackup -d {THEIRS} -l {level} -o {STORE}/nbd").seconds

    def convert() -> float:
        return on("hyper1", f"qemu-img convert -U -O qcow2 {disk} {STORE}/convert && rm {STORE}/convert").seconds

    def restic() -> float:
        command = f"RESTIC_PASSWORD=x restic -q -r {STORE}/restic"
        return on(
            "hyper1", f"({command} cat config >/dev/null 2>&1 || {command} init) && {command} backup {disk}"
        ).seconds

    first = [_back_up(), nbd("full"), convert(), restic()]
    for peer, seconds in zip((NBD, CONVERT, RESTIC), first[1:], strict=True):
        yield Row("backup, first", 1, first[0], peer, seconds, "s")
    grown: dict[str, list[float]] = {"ours": [], "nbd": [], "restic": []}

    def measured(name: str, do: t.Callable[[], float], guest: str | None) -> t.Callable[[], float]:
        def turn() -> float:
            if guest:
                _change(guest)
            before = _mib(name)
            seconds = do()
            grown[name].append(_mib(name) - before)
            return seconds

        return turn

    took = medians(
        measured("ours", _back_up, OURS),
        measured("nbd", lambda: nbd("inc"), THEIRS),
        convert,
        measured("restic", restic, None),
    )
    for peer, seconds, least in zip((NBD, CONVERT, RESTIC), took[1:], (AS_FAST, None, None), strict=True):
        yield Row("backup, later", 1, took[0], peer, seconds, "s", least)
    yield Row("backup, later", 1, took[0], "the first", first[0], "s", TENTH)
    yield Row("backup, later", 1, took[0], "its whole playbook", statistics.median(PLAYED[1:]), "s")
    yield Row("backup, later", 1, max(grown["ours"]), "limit", LIMIT_MIB, "MiB", WITHIN)
    for name, peer in (("nbd", NBD), ("restic", RESTIC)):
        yield Row("backup, later", 1, max(grown["ours"]), peer, min(grown[name]), "MiB")


def _beside_the_guest() -> t.Iterator[Row]:
    """Writes of a guest that numbers sectors, each of them synced."""
    disk = f"{IMAGES}/{SYNCED}.qcow2"
    sector = base64.b64encode(boot_sector(1)).decode()
    on("hyper1", "base64 -d > /root/sector", given=sector)
    on(
        "hyper1",
        f"qemu-img create -q -f qcow2 {disk} 1G && qemu-io -f qcow2 -c 'write -q -s /root/sector 0 512' -c 'write -q -P 7 "
        f"400M {SYNCED_MIB}M' {disk} && mkdir -p {STORE}/synced",
    )
    xml = DOMAIN.format(SYNCED).replace("type='qcow2'/>", "type='qcow2' cache='writethrough'/>")
    on("hyper1", f"virsh -q define /dev/stdin && virsh -q start {SYNCED} && sleep 20", given=xml)
    idle = _write_ms()
    words = f"guests={SYNCED} repository={STORE}/synced bandwidth={THROTTLE_MIB_S}"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(run, "ansible", "hyper1", "-m", "corral.virt.virt_backup", "-a", words)
        on(
            "hyper1",
            f"for n in $(seq 600); do virsh domjobinfo {SYNCED} | grep -q Backup && exit; sleep 0.1; done; false",
        )
        beside = _write_ms()
        if running.done():
            raise Failed("the backup has ended before the writes")
        running.result()
    on("hyper1", f"virsh -q destroy {SYNCED}")
    yield Row("synced write during a backup", 1, beside, "idle", idle, "ms", 1 / SLOWER)


def _write_ms() -> float:
    """What a write of the guest has taken in the next seconds, in the mean, as QEMU counts."""
    ask = f"virsh domstats --block {SYNCED} | awk -F= '/block.0.wr.(reqs|times)/ {{print $2}}'"
    reqs, times, reqs_then, times_then = map(int, on("hyper1", f"{ask}; sleep {WRITES_S}; {ask}").output.split())
    if reqs_then == reqs:
        raise Failed(f"{SYNCED} does not write")
    return (times_then - times) / (reqs_then - reqs) / 1e6


def _after_a_migration() -> t.Iterator[Row]:
    """The next backup on another host, to which the repository was copied: a share is not in the lab."""
    ssh = f"ssh -F {LAB_BUILD}/ssh_config"
    _task("hyper1", {"corral.virt.virt_migrate": {"name": OURS, "dest": "hyper2"}})
    run("sh", "-c", f"{ssh} hyper1 tar -C {STORE}/ours -c . | {ssh} hyper2 tar -C {STORE}/ours -x")
    _change(OURS, "hyper2")
    before = _mib("ours", "hyper2")
    _back_up("hyper2")
    yield Row("backup after a migration", 1, _mib("ours", "hyper2") - before, "limit", LIMIT_MIB, "MiB", WITHIN)


def _instant() -> t.Iterator[Row]:
    """Restores of the last point as other guests."""
    task = {"repository": f"{STORE}/ours", "guest": OURS, "run": True}
    whole = _task("hyper2", {"corral.virt.virt_restore": {**task, "name": "whole"}})
    play = {"corral.virt.virt_restore": {**task, "name": "instant", "instant": True}, "register": "told"}
    runs = _told("hyper2", play, "running_after_s")
    yield Row("restore, instant: it runs", 1, runs, "limit", INSTANT_S, "s", WITHIN)
    yield Row("restore, instant: it runs", 1, runs, "whole restore", whole, "s")


def _mib(name: str, host: str = "hyper1") -> float:
    return float(on(host, f"du -sk {STORE}/{name}").output.split()[0]) / 1024


def _told(host: str, task: dict[str, t.Any], name: str) -> float:
    """A number of the result of a task."""
    keep = {"content": f"{{{{ told.{name} }}}}", "dest": "/root/told"}
    PLAYED.append(_task(host, task, {"ansible.builtin.copy": keep}))
    return float(on(host, "cat /root/told").output)


def _task(host: str, *tasks: dict[str, t.Any]) -> float:
    playbook = BUILD / "backups.json"
    playbook.write_text(json.dumps([{"hosts": host, "gather_facts": False, "tasks": tasks}]))
    return run("ansible-playbook", playbook).seconds
