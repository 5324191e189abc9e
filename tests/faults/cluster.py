"""Kill, freeze and cut off the members of a cluster while they run guests, on a lab made for it; print a table and leave
build/cluster.json. Usage: cluster.py [REGULAR EXPRESSION OF NAMES]

CLUSTER_DEATHS=20: so many deaths of hosts instead. CLUSTER_MINUTES=60 SEED=1: the same faults at random, one after the
other, for so long. CLUSTER_MEMBERS=4: cases of four members, and with CLUSTER_DEVICE=1 of those with a quorum device.

The storage is a Gluster volume of one more host, which is no member, and may be the quorum device. A guest is judged by its QEMU processes, seen from
outside at short intervals, by what their virtual CPU does, and by the sectors that it has written. Never by Pacemaker.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
import typing as t
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path

import yaml

from ansible_collections.corral.virt.tests.faults.boot_sector import COUNTER, boot_sector, count
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Violation
from ansible_collections.corral.virt.tests.lab.hypervisors import HERE, ROOT, Hypervisors, hypervisors
from ansible_collections.corral.virt.tests.tools.beside import Beside

LAB = os.environ.get("CORRAL_LAB_KEPT") or "deaths"
REPORT = ROOT / "build/cluster.json"
COUNT, DEVICE = int(os.environ.get("CLUSTER_MEMBERS") or 3), bool(os.environ.get("CLUSTER_DEVICE"))
MEMBERS, STORE = tuple(f"hyper{number}" for number in range(1, COUNT + 1)), f"hyper{COUNT + 1}"
SHARED, BRICK = "/srv/shared", "/srv/brick"
PORT = "8765"
TOKEN_MS = 5000
# What Gluster's `group virt` has that a volume of one brick takes: without the first, writes that are confirmed to a guest
# get lost with its host.
VOLUME = (
    *("performance.strict-o-direct on", "network.remote-dio disable", "performance.quick-read off"),
    *(
        "performance.read-ahead off",
        "performance.io-cache off",
        "network.ping-timeout 20",
        "server.tcp-user-timeout 20",
    ),
    *("server.keepalive-time 10", "server.keepalive-interval 2", "server.keepalive-count 5"),
)
JOURNAL_MIB = 16
# What the virtual CPU of a QEMU that waits for a guest uses altogether: 0.5 ms at its start, 0.3 ms when the state arrives.
WAITS_NS = 2_000_000
MOVES, STAYS, DOWN, EITHER = "moves", "stays", "down", "either"
WHOLE_S = 240
# What a machine takes before it boots: longer than the members need to see that it is gone. Pacemaker of one that is back
# before is told of its own fencing, and stays down.
FIRMWARE_S = 8
TOLD = re.compile(
    r"UNCLEAN|OFFLINE|pending|FAILED|Failed|exitreason|Stopped|blocked|WITHOUT quorum|returned|unknown", re.I
)
WHEN = re.compile(r" last (failed|completed|pending).*$| at \w+ \w+ .*$")
GUESTS = {"g1": "2f1c8a5e-7d0b-4a55-9a1c-3f5b0c7e9d41", "g2": "2f1c8a5e-7d0b-4a55-9a1c-3f5b0c7e9d42"}
DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'><corral:ha priority='1'/></corral:guest></metadata>
<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none' error_policy='stop'/><source file='{disk}'/>
<target dev='vda' bus='virtio'/></disk><serial type='pty'/></devices></domain>"""


def disk(name: str) -> str:
    """Path of a guest's disk."""
    return f"{SHARED}/{name}.qcow2"


# What runs, seen from outside.


class Watch(Beside):
    """Looks at all QEMUs of the guests until the block ends; `twice` says what must never be."""

    EVERY_S = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._did: dict[int, int] = {}  # by process, what its CPU has done
        self._both: dict[str, int] = {}
        self.alive: dict[str, dict[str, bool]] = {name: {} for name in GUESTS}  # host: whether it executes
        self.executed: dict[str, tuple[float, str]] = {}
        self.most: dict[str, int] = {}
        self.begun: dict[
            str, tuple[float, float]
        ] = {}  # when it last began on another host or anew; how long it did not execute
        self.twice: list[str] = []
        self.refused: dict[str, list[str]] = {}
        self.looks = 0

    def run(self) -> None:
        """Until the block ends."""
        while not self.over.wait(self.EVERY_S):
            found: dict[str, list[tuple[str, int, bool]]] = {name: [] for name in GUESTS}
            for name, host, pid, came in self._qemus():
                found[name].append((host, pid, came))
            now, self.looks = time.monotonic(), self.looks + 1
            for name, qemus in found.items():
                self.judge(name, qemus, now)
            pids = {pid for qemus in found.values() for _host, pid, _came in qemus}
            self._did = {pid: done for pid, done in self._did.items() if pid in pids}

    def judge(self, name: str, qemus: list[tuple[str, int, bool]], now: float) -> None:
        """One look at the QEMUs of a guest: host, process, and whether it came by a migration."""
        ran: dict[str, int] = {}  # by host, nanoseconds since the last look
        for host, pid, _came in qemus:
            done = cpu_time(pid)
            if done > WAITS_NS:
                ran[host] = ran.get(host, 0) + done - self._did.get(pid, done)
            self._did[pid] = done
        alive = {host: ran.get(host, 0) > 0 for host, _pid, _came in qemus}
        executing = [host for host, does in alive.items() if does]
        for host in executing:
            last, where = self.executed.get(name, (now, ""))
            if where != host or now - last > 3:
                self.begun[name] = now, now - last
            self.executed[name] = now, host
        self.alive[name] = alive
        self.most[name] = max(self.most.get(name, 0), len(qemus))
        self._both[name] = self._both.get(name, 0) + 1 if len(executing) > 1 else 0
        if self._both[name] > 1:
            came = {host for host, _pid, came in qemus if came}
            told = (f"{host} ({ran[host] / 1e6:.2f} ms{', came' * (host in came)})" for host in sorted(executing))
            self.twice.append(f"{name} executes on {' and '.join(told)}")
        if sum(not came for _host, _pid, came in qemus) > 1:
            self.refused[name] = sorted(alive)  # the lock of its disk did

    def _qemus(self) -> t.Iterator[tuple[str, str, int, bool]]:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it ends
                if not entry.name.isdigit() or not (entry / "comm").read_text().startswith("qemu-system"):
                    continue
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                name = next((name for name, uuid in GUESTS.items() if uuid in words), "")
                # Not by its namespaces, whose numbers are given again: other labs may run guests of the same UUIDs.
                host = re.search(rf"/corral-lab-{LAB}/([^/\n]+)", (entry / "cgroup").read_text())
                if name and host:
                    yield name, host[1], int(entry.name), "-incoming" in words

    def where(self, name: str) -> str:
        """The host that executes a guest now; empty if none does."""
        when, host = self.executed.get(name, (0.0, ""))
        return host if time.monotonic() - when < 1 else ""


def cpu_time(pid: int) -> int:
    """Nanoseconds that the virtual CPU of a QEMU has had."""
    with contextlib.suppress(OSError):  # it ends
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "comm").read_text().startswith("CPU 0"):
                return int((task / "schedstat").read_text().split()[0])
    return 0


# The place.


@dataclasses.dataclass
class Scene:
    """The lab, what a fault has to undo, and what was seen."""

    lab: Hypervisors
    hosts: dict[str, Host]
    watch: Watch
    undo: contextlib.ExitStack
    told: list[str] = dataclasses.field(default_factory=list)
    hurt: set[str] = dataclasses.field(default_factory=set)
    drained: set[str] = dataclasses.field(default_factory=set)

    def switch(self, host: str, verb: str) -> str:
        """Tell the power switch, as its owner."""
        return told(self.lab, host, verb)

    def device(self, host: str, how: str) -> None:
        """Let the fence device of a host behave like that until the fault is over."""
        self.switch(host, how)
        self.undo.callback(self.switch, host, "works")

    def others(self, host: str) -> list[str]:
        """The other members."""
        return [each for each in MEMBERS if each != host]

    def well(self) -> Host:
        """A member that no fault has hit."""
        return next(self.hosts[name] for name in MEMBERS if name not in self.hurt)

    def ask(self, command: str, host: Host | None = None) -> str:
        """What a member says, or nothing."""
        with contextlib.suppress(RuntimeError, OSError, subprocess.SubprocessError):
            return (host or self.well()).run(f"timeout 60 {command}", ok=False)
        return ""

    def listen(self) -> None:
        """Note what a user would see."""
        host = next((self.hosts[name] for name in MEMBERS if name not in self.hurt), None)
        for line in self.ask("crm_mon --one-shot 2>&1", host).splitlines() if host else []:
            said = WHEN.sub("", line.strip(" *"))
            if TOLD.search(said) and said not in self.told:
                self.told.append(said)

    def counter(self, name: str) -> int:
        """The number of the sector that a guest writes next."""
        host = self.watch.where(name)
        if not host:
            return 0
        said = self.ask(f"virsh -q qemu-monitor-command {name} --hmp 'xp /1wx {COUNTER:#x}'", self.hosts[host])
        word = said.rpartition(":")[2].strip()
        number = int(word, 16) if word.startswith("0x") else 0
        return number if number <= JOURNAL_MIB * 2048 else 0

    def role(self, name: str, role: str) -> None:
        """Have Pacemaker start or stop a guest."""
        self.ask(f"crm_resource --resource guest-{name} --meta --set-parameter target-role --parameter-value {role}")

    def writes(self, name: str) -> bool:
        """Whether a guest gets on with its disk."""
        before = self.counter(name)
        return until(lambda: self.counter(name) > before, 30, every_s=1)

    def whole(self, *, guests: bool = True) -> str:
        """What the cluster lacks; empty if nothing."""
        if down := [name for name in MEMBERS if self.switch(name, "status") != "on"]:
            return f"{down} are off"
        said = self.ask("crm_mon --one-shot --output-as=xml")
        if not said:
            return "crm_mon does not answer"
        root = ET.fromstring(said)
        odd = {"pending", "unclean", "standby", "maintenance"}
        bad = [
            str(node.get("name"))
            for node in root.iterfind("nodes/node")
            if node.get("online") != "true" or any(node.get(each) == "true" for each in odd)
        ]
        for resource in root.iterfind("resources/resource"):
            wrong = resource.get("role") != "Started" or any(
                resource.get(each) == "true" for each in ("failed", "blocked", "orphaned")
            )
            if wrong and (guests or not str(resource.get("id")).startswith("guest-")):
                bad.append(str(resource.get("id")))
        bad += [f"{name} is not executed" for name in GUESTS if guests and not self.watch.where(name)]
        mounted = f"mountpoint -q {SHARED} && echo yes"
        bad += [
            f"{SHARED} of {name}" for name in MEMBERS if "yes" not in self.ask(f"sh -c '{mounted}'", self.hosts[name])
        ]
        return ", ".join(bad)

    def heal(self) -> str:
        """Undo the fault, switch on what is off, and wait until all is as before; what that took."""
        self.undo.close()
        for name in MEMBERS:
            if self.switch(name, "status") == "off":
                time.sleep(FIRMWARE_S)
            switched_on(self.lab, name)
        self.hurt.clear()
        begun, why = time.monotonic(), ""
        until(lambda: "Online" in self.ask("crm_mon --one-shot"), WHOLE_S, every_s=1)
        while self.drained and until(lambda: self._in_use_again(min(self.drained)), WHOLE_S, every_s=1):
            self.drained.remove(min(self.drained))
        for name in GUESTS:  # a check that found something has left them stopped
            self.role(name, "Started")
        if not until(lambda: not self.whole(), WHOLE_S, every_s=1):
            self.listen()
            why = f"whole only after crm_resource --cleanup, it lacked {self.whole()}"
            self.ask("crm_resource --cleanup")
            if not until(lambda: not self.whole(), WHOLE_S, every_s=1):
                raise Violation(f"the cluster does not become whole: {self.whole()}")
        self.ask("crm_resource --cleanup")
        self.ask("crm_resource --wait --timeout=60")
        return f"{why or 'whole'} {time.monotonic() - begun:.0f} s after healing"

    def _in_use_again(self, name: str) -> bool:
        with contextlib.suppress(RuntimeError):  # it boots, or its cluster has no quorum yet
            self.hosts[name].run(
                "rm -f /var/lib/libvirt/corral-maintenance*.json; /usr/local/sbin/corral-cluster standby off"
            )
            return True
        return False

    def checked(self, least: t.Mapping[str, int]) -> str:
        """Stop the guests, judge their disks, and start them with empty ones; how many sectors they had written."""
        for name in GUESTS:
            if not self.writes(name):
                why = self.ask(f"virsh -q domstate --reason {name}", self.hosts[self.watch.where(name) or STORE])
                raise Violation(f"{name} does not write: {why}")
        for name in GUESTS:
            self.role(name, "Stopped")
        if not until(lambda: not any(self.watch.alive.values()), 240):
            raise Violation(f"guests do not stop: {self.watch.alive}")
        counts = []
        store = self.hosts["hyper1"]
        for name in GUESTS:
            checked = self.ask(f"qemu-img check {disk(name)} 2>&1", store)
            if "No errors were found" not in checked:
                raise Violation(f"{name}: {checked}")
            store.run(f"qemu-img convert -T none -O raw {disk(name)} /tmp/head")
            with store.path("/tmp/head").open("rb") as head:
                content = head.read(JOURNAL_MIB * 2**20)
            try:
                counts.append(count(content))
            except ValueError as error:
                store.run(f"cp {disk(name)} {SHARED}/{name}.bad")
                first = content[512:528].hex()
                raise Violation(f"{name}, that had come to {least[name]}: {error}, begins with {first}") from None
            if counts[-1] < least[name] - 1:
                raise Violation(f"the disk of {name} went back: {counts[-1]} sectors, {least[name]} were written")
            make_disk(store, name)
        for name in GUESTS:
            self.role(name, "Started")
        if not until(lambda: not self.whole(), WHOLE_S, every_s=1):
            raise Violation(f"guests do not start: {self.whole()}")
        return f"{' and '.join(map(str, counts))} sectors, clean"

    def drop(self, host: str, *rules: str) -> None:
        """Let the network of a host lose what the rules name, in `input` or `output`, until the fault is over."""
        table = "table inet faults"
        chains = "\n".join(f"chain {hook} {{ type filter hook {hook} priority -300; }}" for hook in ("input", "output"))
        lines = "\n".join(f"add rule inet faults {rule} drop" for rule in rules)
        self.hosts[host].network(
            "nft", "-f", "-", given=f"{table}\ndelete {table}\n{table} {{\n{chains}\n}}\n{lines}\n"
        )
        self.undo.callback(self._pass_again, host)

    def _pass_again(self, host: str) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, RuntimeError):  # it was switched off
            self.hosts[host].network("nft", "-f", "-", given="table inet faults\ndelete table inet faults\n")


def told(lab: Hypervisors, host: str, verb: str) -> str:
    """What the power switch answers."""
    return str(urllib.request.urlopen(f"http://{lab.gateway}:{PORT}/{host}/{verb}").read(), "ascii")


def switched_on(lab: Hypervisors, host: str) -> None:
    """Have a host on; the kernel may still hold the network link of a machine that has just ended."""

    def on() -> bool:
        with contextlib.suppress(OSError):
            return told(lab, host, "on") == "on"
        return False

    if not until(on, 60, every_s=1):
        raise RuntimeError(f"{host} cannot be switched on")


def make_disk(host: Host, name: str) -> None:
    """A disk that boots, with room that is allocated: a host that dies forgets which clusters QEMU had just taken."""
    boot = base64.b64encode(boot_sector(1)).decode()
    host.run(
        f"base64 -d >/tmp/boot && truncate -s 64M /tmp/boot && qemu-img convert -t none -O qcow2 /tmp/boot {disk(name)}.new && "
        f"qemu-io -n -c 'write -q -P 0 512 {JOURNAL_MIB * 2**20 - 512}' {disk(name)}.new && mv {disk(name)}.new {disk(name)}",
        given=boot,
    )


# Faults: each has the host that runs the first guest, and undoes itself by the scene's stack.


def killed(scene: Scene, host: str) -> None:
    """Its machine ends; the kernel closes its connections."""
    scene.hurt.add(host)
    scene.switch(host, "crash")


def without_power(scene: Scene, host: str) -> None:
    """The same, and nobody hears of it: nothing that it sends on its end arrives."""
    index = scene.hosts[host].path("/sys/class/net/host0/iflink").read_text()
    port = next(each.parent.name for each in Path("/sys/class/net").glob("*/ifindex") if each.read_text() == index)
    subprocess.run(["ip", "link", "set", port, "down"], check=True)
    killed(scene, host)
    # Its connections, which nobody answers, would keep it for minutes.
    scene.undo.callback(subprocess.run, ["ip", "link", "delete", port], check=False, capture_output=True)


def frozen(scene: Scene, host: str) -> None:
    """No process of it does anything, and then all go on."""
    scene.hurt.add(host)
    machine = scene.hosts[host].apart()
    pids = machine.find("")
    machine.kill(pids, signal.SIGSTOP)
    scene.undo.callback(machine.kill, pids, signal.SIGCONT)


def stopped(program: str) -> t.Callable[[Scene, str], None]:
    """One of its programs does nothing."""

    def do(scene: Scene, host: str) -> None:
        machine = scene.hosts[host].apart()
        pids = machine.find(program)
        machine.kill(pids, signal.SIGSTOP)
        scene.undo.callback(machine.kill, pids, signal.SIGCONT)

    return do


def ended(program: str) -> t.Callable[[Scene, str], None]:
    """One of its programs is killed."""

    def do(scene: Scene, host: str) -> None:
        machine = scene.hosts[host].apart()
        machine.kill(machine.find(program, uuid=GUESTS["g1"] if program.startswith("qemu") else ""))

    return do


def third(fault: t.Callable[[Scene, str], None]) -> t.Callable[[Scene, str], None]:
    """The same to a host that does not run the first guest."""
    return lambda scene, host: fault(scene, scene.others(host)[1])


def cut(*rules: str, others: bool = True) -> t.Callable[[Scene, str], None]:
    """What the rules name is lost; with `{peers}` and `{store}` in them."""

    def do(scene: Scene, host: str) -> None:
        if others:
            scene.hurt.add(host)
        peers = ", ".join(scene.hosts[each].address for each in scene.others(host))
        known = {"peers": f"{{ {peers} }}", "store": scene.hosts[STORE].address}
        scene.drop(host, *(rule.format(**known) for rule in rules))

    return do


def device(how: str) -> t.Callable[[Scene, str], None]:
    """The fence device of the host behaves like that."""

    def do(scene: Scene, host: str) -> None:
        scene.device(host, how)

    return do


def two_die(scene: Scene, host: str) -> None:
    """It and the next one, at the same time."""
    killed(scene, host)
    killed(scene, scene.others(host)[0])


def full_share(scene: Scene, host: str) -> None:
    """The storage has no room."""
    store = scene.hosts[STORE]
    store.run(f"dd if=/dev/zero of={BRICK}/filler bs=64k 2>/dev/null; true")
    scene.undo.callback(store.run, f"rm -f {BRICK}/filler")


def full_var(scene: Scene, host: str) -> None:
    """Where Pacemaker, libvirt and logs write there is no room."""
    machine = scene.hosts[host].apart()
    for place in ("/var/lib/pacemaker", "/var/lib/libvirt/qemu", "/var/lib/corosync", "/run/corral"):
        machine.run(
            f"[ -d {place} ] || exit 0; cp -a {place} /tmp/var && mount -t tmpfs -o size=4M,mode=755 var {place} && "
            f"cp -a --sparse=always /tmp/var/. {place}/ 2>/dev/null; chown --reference /tmp/var {place}; rm -rf /tmp/var; "
            f"dd if=/dev/zero of={place}/filler 2>/dev/null; true"
        )
        scene.undo.callback(_unmount, machine, place)


def _unmount(machine: Host, place: str) -> None:
    with contextlib.suppress(RuntimeError):  # it was switched off
        machine.run(f"mountpoint -q {place} && umount -l {place}", ok=False)


def moved(
    then: t.Callable[[Scene, str], None], *, target: bool = False, after_s: float = 0.7
) -> t.Callable[[Scene, str], None]:
    """Pacemaker moves the guest, and meanwhile its source or its target is hurt."""

    def do(scene: Scene, host: str) -> None:
        to = scene.others(host)[0]
        scene.hosts[host].run(f"crm_resource --move --resource guest-g1 --node {to}")
        time.sleep(after_s)
        then(scene, to if target else host)
        scene.undo.callback(scene.ask, "crm_resource --clear --resource guest-g1", scene.hosts[scene.others(host)[1]])

    return do


def drained(
    then: t.Callable[[Scene, str], None], *, target: bool = False, after_s: float = 8
) -> t.Callable[[Scene, str], None]:
    """The playbook moves the guests, and meanwhile its host or another one is hurt."""

    def do(scene: Scene, host: str) -> None:
        run = book(scene, "drain", f"host={host}")
        scene.undo.callback(_undrained, scene, host, run)
        time.sleep(after_s)
        then(scene, scene.others(host)[0] if target else host)

    return do


def book(scene: Scene, name: str, *options: str, hosts: t.Sequence[str] = MEMBERS) -> subprocess.Popen[str]:
    """A playbook of the collection, for members."""
    members = scene.lab.folder / "members.yml"
    members.write_text(yaml.safe_dump({"members": {"hosts": dict.fromkeys(hosts)}}))
    given = [word for option in ("virt_group=members", *options) for word in ("-e", option)]
    return scene.lab.start(
        "ansible-playbook", *scene.lab.ask_nobody, "-i", str(members), f"playbooks/{name}.yml", *given
    )


def tell(scene: Scene, run: subprocess.Popen[str]) -> None:
    """Wait for a playbook, and note what a user sees of its failures; once."""
    if run.stdout is None or run.stdout.closed:
        return
    said = run.communicate(timeout=600)[0]
    lines = [line.strip() for line in said.splitlines() if re.search("fatal|msg: |UNREACHABLE!", line)][:4]
    scene.told += [f"{'playbook' if line.startswith('fatal') else ''} {line}".strip()[:300] for line in lines]


BROKEN = "/etc/apt/sources.list.d/broken.list"


def target_dies(name: str, *options: str) -> t.Callable[[Scene, str], None]:
    """While a playbook moves a guest, the host to which it moves is killed."""

    def do(scene: Scene, host: str) -> None:
        to = scene.others(host)[0]
        if name == "rebalance":  # two guests on one host, of two
            tell(scene, book(scene, "migrate", "guest=g2", f"to={host}"))
        hosts = (host, to) if name == "rebalance" else MEMBERS
        run = book(scene, name, *(option.format(to=to) for option in options), hosts=hosts)
        scene.undo.callback(tell, scene, run)
        homes = {guest: {*scene.watch.alive[guest]} for guest in GUESTS}

        def arriving() -> set[str]:
            return {there for guest, home in homes.items() for there in {*scene.watch.alive[guest]} - home}

        if not until(arriving, 60, every_s=0.05):
            raise Violation(f"{name} moves no guest: {scene.told}")
        killed(scene, arriving().pop())

    return do


def updated(
    then: t.Callable[[Scene, str, subprocess.Popen[str]], None], *, packages: bool = True
) -> t.Callable[[Scene, str], None]:
    """Its host and the next one are updated; something happens when the first is drained, which may have no valid list of
    `packages`. The same command ends it.
    """

    def do(scene: Scene, host: str) -> None:
        if not packages:
            scene.hosts[host].run(f"echo broken >{BROKEN}")
        command = ("rolling_update", f"host={host},{scene.others(host)[0]}", "reboot=never")
        run = book(scene, *command)
        scene.undo.callback(_updated_again, scene, command)
        scene.undo.callback(switched_on, scene.lab, host)
        scene.undo.callback(tell, scene, run)
        drained = f"crm_attribute --node {host} --name standby --query --quiet --default off"
        if not until(lambda: scene.ask(drained, scene.hosts[scene.others(host)[0]]) == "on", 120, every_s=0.2):
            raise Violation(f"{host} is not drained")
        then(scene, host, run)

    return do


def _updated_again(scene: Scene, command: tuple[str, ...]) -> None:
    until(lambda: {*MEMBERS} <= {*scene.ask("crm_node --partition").split()}, WHOLE_S, every_s=2)
    run = book(scene, *command)
    said = run.communicate(timeout=900)[0]
    scene.told.append(f"the same command again: exit code {run.returncode}")
    if run.returncode:
        raise Violation(f"the same command fails: {said[-1500:]}")


def controller_killed(_scene: Scene, _host: str, run: subprocess.Popen[str]) -> None:
    """Ansible is, with all that it has started here."""
    os.killpg(run.pid, signal.SIGKILL)


def fails(scene: Scene, host: str, run: subprocess.Popen[str]) -> None:
    """The playbook fails there, and then its packages can be had again."""
    tell(scene, run)
    scene.hosts[host].run(f"rm {BROKEN}")
    if not run.returncode:
        raise Violation("the playbook does not fail")


def dies_updated(scene: Scene, host: str, _run: subprocess.Popen[str]) -> None:
    """It is killed."""
    killed(scene, host)


def split(how: str = "works") -> t.Callable[[Scene, str], None]:
    """Its host and the next one on one side, the others on the other one; all fence devices behave like that."""

    def do(scene: Scene, host: str) -> None:
        side = [host, *scene.others(host)[: COUNT // 2 - 1]]
        rest = ", ".join(scene.hosts[name].address for name in MEMBERS if name not in side)
        for name in MEMBERS if how != "works" else ():
            scene.device(name, how)
        for name in side:
            scene.hurt.add(name)
            scene.drop(name, f"input ip saddr {{ {rest} }}", f"output ip daddr {{ {rest} }}")

    return do


# The clock of a host is this machine's. Its programs see another one by libfaketime, all but the monotonic one, as when it is set.
FAKED = "/run/faketime"
FAKE = {
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "FAKETIME_TIMESTAMP_FILE": FAKED,
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
}
SEEN = " ".join(f"{name}={value}" for name, value in FAKE.items())


def faked(scene: Scene) -> None:
    """Have corosync, Pacemaker, libvirt and corral-keep of all members see the clock of a file."""
    if all(
        "faketime" in scene.ask("cat /etc/systemd/system.conf.d/faketime.conf", scene.hosts[name]) for name in MEMBERS
    ):
        return
    first = scene.hosts[MEMBERS[0]]
    first.run("crm_attribute --name maintenance-mode --update true")
    for verb in ("stop", "start"):
        for name in MEMBERS:
            host = scene.hosts[name]
            if verb == "stop":
                host.run("dpkg -s libfaketime >/dev/null 2>&1 || apt-get install -qq -y libfaketime")
                host.run(
                    f"mkdir -p /etc/systemd/system.conf.d; echo +0 >{FAKED}; echo 'F {FAKED} 0644 root root - +0' >/etc/tmpfiles.d/faketime.conf;"
                    f"printf '[Manager]\\nDefaultEnvironment={SEEN}\\n' >/etc/systemd/system.conf.d/faketime.conf; systemctl daemon-reexec"
                )
                host.run("systemctl stop pacemaker corosync; systemctl restart libvirtd")
            else:
                host.run("systemctl start corosync pacemaker")
    if not until(lambda: set(scene.ask("crm_node --partition").split()) == {*MEMBERS}, 120, every_s=1):
        raise RuntimeError("members do not come back with another clock")
    scene.ask("crm_resource --wait --timeout=60")
    first.run("crm_attribute --name maintenance-mode --delete")
    time.sleep(10)


def clock(shift: str, *, everywhere: bool = False) -> t.Callable[[Scene, str], None]:
    """The clock of the host, or of all members, is set to another time."""

    def do(scene: Scene, host: str) -> None:
        faked(scene)
        for name in MEMBERS if everywhere else (host,):
            scene.hosts[name].run(f"echo {shift} >{FAKED}.new && mv {FAKED}.new {FAKED}")
            scene.undo.callback(scene.hosts[name].run, f"echo +0 >{FAKED}")
        scene.told.append(f"clocks: {[scene.ask(f'env {SEEN} date +%H:%M', scene.hosts[name]) for name in MEMBERS]}")

    return do


def _undrained(scene: Scene, host: str, run: subprocess.Popen[str]) -> None:
    tell(scene, run)
    scene.drained.add(host)


def nothing(scene: Scene, host: str) -> None:
    """For a move without a fault: it ends. Pacemaker starts a guest anew whose preference is cleared while it migrates."""
    scene.ask("crm_resource --wait --timeout=60", scene.hosts[host])


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault, how long it lasts at most, and what the guest on its host must have done before it is over."""

    name: str
    do: tuple[t.Callable[[Scene, str], None], ...]
    then: str
    lasts_s: float = 120
    check: bool = True  # disks, which stops the guests
    of: tuple[str, ...] = tuple(GUESTS)
    members: int = 3
    quorum_device: bool = False


ALL = ("input", "output")
CASES = (
    Case("killed", (killed,), MOVES),
    Case("without power", (without_power,), MOVES),
    Case("frozen 90 s", (frozen,), MOVES, 90),
    Case("frozen 2 s", (frozen,), STAYS, 2),
    Case("frozen 90 s, device refuses", (device("refuses"), frozen), DOWN, 90),
    Case("frozen 90 s, device says off, status on", (device("claims"), frozen), DOWN, 90),
    Case("frozen 90 s, device lies", (device("lies"), frozen), EITHER, 90),
    Case("killed, device refuses", (device("refuses"), killed), DOWN, 60),
    Case("killed, device slow", (device("slow"), killed), MOVES, 180),
    Case("cut off from all", (cut("input iifname host0", "output oifname host0"),), MOVES),
    Case("cut off from members", (cut("input ip saddr {peers}", "output ip daddr {peers}"),), MOVES),
    Case("hears no member", (cut("input ip saddr {peers}"),), MOVES),
    Case("is not heard by members", (cut("output ip daddr {peers}"),), MOVES),
    Case("cluster link cut", (cut("input udp dport 5405", "output udp dport 5405"),), MOVES),
    Case(
        "cluster link cut, device lies",
        (device("lies"), cut("input udp dport 5405", "output udp dport 5405")),
        EITHER,
        90,
    ),
    Case(
        "cluster link cut, device refuses",
        (device("refuses"), cut("input udp dport 5405", "output udp dport 5405")),
        EITHER,
        90,
    ),
    Case("storage cut 90 s", (cut("input ip saddr {store}", "output ip daddr {store}", others=False),), EITHER, 90),
    Case("two of three die", (two_die,), DOWN, 60),
    Case("share full", (full_share,), STAYS, 30),
    Case("killed, share full", (full_share, killed), DOWN, 60),
    Case("full /var", (full_var,), STAYS, 60),
    Case("libvirtd stands still 120 s", (stopped("libvirtd"),), EITHER, 120),
    Case("killed, libvirtd of a third stands still", (third(stopped("libvirtd")), killed), EITHER, 120),
    Case("corosync killed", (ended("corosync"),), MOVES),
    Case("pacemakerd killed", (ended("pacemakerd"),), EITHER, 30),
    Case("controller killed", (ended("pacemaker-contr"),), EITHER, 30),
    Case("QEMU killed", (ended("qemu-system"),), EITHER, 50),
    Case("moved", (moved(nothing),), MOVES, 30, of=("g1",)),
    Case("moved, source dies", (moved(killed),), EITHER, 45),
    Case("moved, target dies", (moved(killed, target=True),), EITHER, 45),
    Case("drained", (drained(nothing),), EITHER, 45),
    Case("drained, source dies", (drained(killed),), EITHER, 90),
    Case("drained, target dies", (drained(killed, target=True),), EITHER, 90),
    Case("migrate, target dies", (target_dies("migrate", "guest=g1", "to={to}"),), EITHER, 60),
    Case("rebalance, target dies", (target_dies("rebalance", "tolerance=0.01"),), EITHER, 60),
    Case("rolling_update, controller killed", (updated(controller_killed),), EITHER, 30),
    Case("rolling_update, packages fail", (updated(fails, packages=False),), EITHER, 60),
    Case("rolling_update, host dies", (updated(dies_updated),), EITHER, 60),
    Case("split 2|2", (split(),), DOWN, 60, members=4),
    Case("split 2|2, quorum device", (split(),), EITHER, 90, members=4, quorum_device=True),
    Case("split 2|2, quorum device, no fencing", (split("refuses"),), EITHER, 90, members=4, quorum_device=True),
    Case("clock of its host +1 h", (clock("+1h"),), STAYS, 60, check=False),
    Case("clock of its host -1 h", (clock("-1h"),), STAYS, 60, check=False),
    Case("clocks of all +1 h", (clock("+1h", everywhere=True),), STAYS, 60, check=False),
    Case("clocks of all -1 h", (clock("-1h", everywhere=True),), STAYS, 60, check=False),
)
DEATH = dataclasses.replace(CASES[1], check=False)


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of a case."""

    name: str
    ok: bool
    host: str
    down_s: float  # the longest that a guest of the host was not executed
    most: int  # QEMUs of one guest that lived at a time
    detail: str
    told: list[str]


def hurt(scene: Scene, case: Case, homes: dict[str, str], least: dict[str, int]) -> dict[str, str]:
    """Do it, and wait until the guests have done what they should, or its time is over; where they are then."""
    begun, host, moves = time.monotonic(), homes["g1"], False
    for step in case.do:
        step(scene, host)
    while time.monotonic() < begun + case.lasts_s and not (case.then == MOVES and moves):
        time.sleep(0.5)
        scene.listen()
        moves = all(scene.watch.where(name) not in ("", host) for name in case.of if homes[name] == host)
    after = {name: scene.watch.where(name) for name in GUESTS}
    least.update({name: max(number, scene.counter(name)) for name, number in least.items()})
    if (case.then == MOVES and not moves) or (case.then == DOWN and after["g1"]):
        raise Violation(f"'{case.then}' is not so: {after}")
    return after


def tried(scene: Scene, case: Case, *, check: bool) -> Row:
    """The row of a case; the cluster is whole after it."""
    watch = scene.watch
    for seen in (watch.most, watch.twice, watch.refused, scene.told):
        seen.clear()
    homes, least = {name: watch.where(name) for name in GUESTS}, {name: scene.counter(name) for name in GUESTS}
    host, begun, ok, again = homes["g1"], time.monotonic(), True, (0.0, 0.0)
    details = [f"of {sorted(name for name, home in homes.items() if home == host)}"]
    try:
        after = hurt(scene, case, homes, least)
        details += [f"after {time.monotonic() - begun:.0f} s: {after}", scene.heal()]
        settled = {name: watch.where(name) for name in GUESTS}
        if settled != {MOVES: after, STAYS: homes}.get(case.then, settled):
            raise Violation(f"guests moved after the fault: {homes}, {after}, {settled}")
        again = watch.begun["g1"]
        details += [scene.checked(least)] if check else []
    except (Violation, RuntimeError, ValueError, OSError) as error:
        ok = False
        details.append(f"{type(error).__name__}: {error}")
        with contextlib.suppress(Violation):
            details.append(scene.heal())
    if not watch.is_alive():
        raise RuntimeError("nobody watches any more")
    if watch.refused:
        details.append(f"another QEMU began, and executed nothing: {watch.refused}")
    if watch.twice:
        ok = False
        details.append(f"TWICE, in {len(watch.twice)} looks: {watch.twice[:5]}")
    down_s = again[1] if again[0] > begun else 0.0
    return Row(case.name, ok, host, round(down_s, 1), max(watch.most.values()), "; ".join(details), list(scene.told))


def table(rows: t.Sequence[Row]) -> str:
    """For people."""
    width = max(len(row.name) for row in rows)
    return "\n".join(
        f"{'ok' if row.ok else 'FAILED':6}  {row.name:{width}}  {row.host}  {row.down_s:6.1f} s  {row.most} QEMU  {row.detail}"
        + "".join(f"\n{'':10}{line}" for line in row.told)
        for row in rows
    )


# The lab.


@contextlib.contextmanager
def switch(lab: Hypervisors) -> t.Iterator[str]:
    """The hosts' power switch, all of it on; the text of its agent."""
    agent = lab.folder / "fence_lab"
    agent.unlink(missing_ok=True)
    with (lab.folder / "switch.log").open("a") as stream:
        program: list[str | Path] = [sys.executable, HERE / "power_switch.py", lab.name, PORT, agent]
        process = subprocess.Popen(program, stdout=stream, stderr=subprocess.STDOUT)
        try:
            until(agent.exists, 20)
            for host in MEMBERS:
                switched_on(lab, host)
            yield agent.read_text()
        finally:
            process.kill()
            process.wait()


def made(lab: Hypervisors, hosts: t.Mapping[str, Host], agent: str) -> None:
    """The share, the guests and the cluster; again: nothing changes."""
    store = hosts[STORE]
    for name in MEMBERS:
        hosts[name].run("cat >/usr/sbin/fence_lab && chmod 755 /usr/sbin/fence_lab", given=agent)
        hosts[name].run("systemctl is-system-running --wait", ok=False)
    ports = ["16514/tcp", "5403/tcp", "24007-24008/tcp", "49152-60999/tcp"]  # with those of Gluster
    keeps = {"hypervisor_keeps_definitions": True, "hypervisor_packages": [], "hypervisor_security_packages": []}
    fencing = {"agent": "fence_lab", "options": {"plug": "{{ inventory_hostname }}", "pcmk_reboot_action": "off"}}
    guests = [{"name": name, "uuid": uuid, "store": SHARED, "stop_timeout": 60} for name, uuid in GUESTS.items()]
    known = {
        "cluster_token_ms": TOKEN_MS,
        "cluster_fencing": fencing,
        "cluster_hosts": [*MEMBERS],
        "cluster_quorum_device": STORE if DEVICE else "",
        "firewall_ports": ports,
    }
    variables = lab.folder / "inventory/group_vars/hyper/cluster.yml"
    variables.write_text(yaml.safe_dump({**known, **keeps}))
    facts: dict[str, t.Any] = {"gather_facts": True, "gather_subset": ["!all", "network"]}
    lab.play(hosts="hyper", roles=["corral.virt.firewall", "corral.virt.hypervisor"], **facts)
    gluster = "gluster --mode=script volume"
    store.run(
        f"systemctl start glusterd; mkdir -p {BRICK}; mountpoint -q {BRICK} || mount -t tmpfs -o size=512M brick {BRICK}; "
        f"{gluster} info vms >/dev/null 2>&1 || {gluster} create vms {STORE}:{BRICK} force; "
        f"{gluster} set vms {' '.join(VOLUME)} && {gluster} start vms force"
    )
    line = f"{STORE}:/vms {SHARED} glusterfs defaults,_netdev 0 0"
    for name in MEMBERS:
        hosts[name].run(
            f"mkdir -p {SHARED}; grep -q glusterfs /etc/fstab || echo '{line}' >>/etc/fstab; mountpoint -q {SHARED} || mount {SHARED}"
        )
    first = hosts[MEMBERS[0]]
    for name, uuid in GUESTS.items():
        kept = first.path(f"{SHARED}/.corral/guests/{uuid}/domain.xml")
        if not kept.exists():
            make_disk(first, name)
            first.run("virsh -q define /dev/stdin", given=DOMAIN.format(name=name, uuid=uuid, disk=disk(name)))
    first.run("/usr/local/sbin/corral-keep save")
    variables.write_text(yaml.safe_dump({**known, **keeps, "cluster_guests": guests}))
    lab.play(hosts="hyper", roles=["corral.virt.cluster"], **facts)


def chosen(part: str, seed: str) -> t.Iterator[Case]:
    """Cases by name; or deaths, and then cases at random."""
    minutes, deaths = (float(os.environ.get(each) or 0) for each in ("CLUSTER_MINUTES", "CLUSTER_DEATHS"))
    cases = [
        case for case in CASES if re.search(part, case.name) and case.members <= COUNT and case.quorum_device == DEVICE
    ]
    yield from [DEATH] * int(deaths)
    if not minutes and not deaths:
        yield from cases
    chance, end = random.Random(seed), time.monotonic() + minutes * 60
    while minutes and time.monotonic() < end:
        yield chance.choice(cases)


def main(part: str = "") -> int:
    """Exit code 0 when nothing was violated."""
    seed = os.environ.get("SEED") or str(secrets.randbelow(10**6))
    print(f"SEED={seed}", flush=True)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: sys.exit("Interrupted"))
    rows: list[Row] = []
    begun = time.monotonic()
    with hypervisors(LAB, "hypervisor", "firewall", "pki", hosts=COUNT + 1) as lab, switch(lab) as agent:
        inventory = json.loads(lab.run("ansible-inventory", "-i", lab.folder / "inventory/hosts.yml", "--list"))
        known = inventory["_meta"]["hostvars"]
        hosts = {name: Host(lab.name, name, known[name]["ansible_host"]) for name in (*MEMBERS, STORE)}
        made(lab, hosts, agent)
        with Watch() as watch, contextlib.ExitStack() as undo:
            scene = Scene(lab, hosts, watch, undo)
            scene.ask("crm_resource --cleanup")
            print(scene.heal(), flush=True)
            for number, case in enumerate(chosen(part, seed), 1):
                rows.append(tried(scene, case, check=case.check or number % 5 == 0))
                print(table(rows[-1:]), flush=True)
                REPORT.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")
    bad = [row.name for row in rows if not row.ok]
    print(
        f"\n{len(rows)} cases in {(time.monotonic() - begun) / 60:.0f} minutes, {watch.looks} looks, {len(bad)} violations: {bad}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
