"""Listing ten thousand guests of a hundred hypervisors, and a thousand of one, beside others who read them too.

The hypervisors are libvirt's own test drivers in the reading process, so that nothing but the reading is measured.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import socket
import sys
import typing as t
import uuid
from pathlib import Path

from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.bench.place import BUILD, Failed, medians, run, say
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 0
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ()

RAW, COMMUNITY, LIMIT = "libvirt in threads + static hosts", "community.libvirt", "limit"
# The least ratio, theirs to ours.
RAW_TARGET, COMMUNITY_TARGET = 1 / 1.5, 1.0
DEAD, TIMEOUT_S, SLACK_S = 10, 8.0, 4.0

HOW = """
Processor seconds of the whole command, in user and kernel mode, median. All print every guest.
- libvirt in threads: names, UUIDs, states and documents of all guests, by 32 threads, and nothing else
- static hosts: ansible-inventory prints the hosts, groups and variables that ours printed from a file
- community.libvirt: a source for each hypervisor, as it needs it
"""

GUEST = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><title>Guest {name}</title>
<memory unit='MiB'>2048</memory><vcpu>2</vcpu><metadata><corral:guest xmlns:corral="urn:corral:virt:guest:1">
<corral:tag>web</corral:tag><corral:tag>rack{rack}</corral:tag><corral:address>{address}</corral:address>
<corral:ssh-host-key>ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGolden5guest5guest5guest5guest5guest5guests</corral:ssh-host-key></corral:guest></metadata>
<os><type arch='x86_64'>hvm</type></os><devices>
<disk type='file' device='disk'><source file='/images/{name}.qcow2'/><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'><source file='/images/{name}-data.qcow2'/><target dev='vdb' bus='virtio'/></disk>
<interface type='bridge'><mac address='52:54:00:{mac}'/><source bridge='br0'/><model type='virtio'/></interface>
<interface type='bridge'><mac address='52:54:01:{mac}'/><source bridge='br1'/><model type='virtio'/></interface>
<serial type='pty'/><graphics type='vnc' port='-1'/></devices></domain>
"""
RAW_SCRIPT = """\
import concurrent.futures, json, libvirt, sys
def read(uri):
    connection = libvirt.openReadOnly(uri)
    return [(one.name(), one.UUIDString(), one.state(), one.XMLDesc()) for one in connection.listAllDomains()]
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(sum(map(len, pool.map(read, json.load(open(sys.argv[1]))))))
"""


@dataclasses.dataclass(frozen=True)
class Cloud:
    """Hypervisors and their guests, and the sources that read them."""

    place: Path
    uris: t.Mapping[str, str]
    guests: int

    @classmethod
    def made(cls, place: Path, hosts: int, each: int) -> Cloud:
        """With that many guests on each hypervisor."""
        place.mkdir(parents=True)
        uris = {}
        for host in range(hosts):
            document = place / f"h{host:03d}.xml"
            guests = [_guest(host * each + number + 1, host % 10) for number in range(each)]
            document.write_text(f"<node>{''.join(guests)}</node>")
            uris[document.stem] = f"test://{document}"
        return cls(place, uris, hosts * each)

    def ours(self, **more: t.Any) -> Path:
        """One source."""
        return _written(self.place / "ours.virt.yml", {"plugin": "corral.virt.virt", "hypervisors": self.uris, **more})

    def theirs(self) -> Path:
        """A directory with a source for each hypervisor."""
        for name, uri in self.uris.items():
            _written(self.place / f"community/{name}.libvirt.yml", {"plugin": "community.libvirt.libvirt", "uri": uri})
        return self.place / "community"

    def static(self, printed: str) -> Path:
        """What a source has printed as a source of its own."""
        found = json.loads(printed)
        variables = found.pop("_meta")["hostvars"]
        groups: dict[str, t.Any] = {
            name: {kind: {key: {} for key in group.get(kind, ())} for kind in ("hosts", "children")}
            for name, group in found.items()
        }
        return _written(self.place / "static.json", {**groups, "all": {"hosts": variables}})

    def raw(self) -> tuple[str, ...]:
        """The command that reads with libvirt alone."""
        uris = _written(self.place / "uris.json", list(self.uris.values()))
        return (sys.executable, "-c", RAW_SCRIPT, str(uris))


def rows() -> t.Iterator[Row]:
    """Measure all clouds."""
    print(HOW, flush=True)
    peers.collection("community.libvirt")
    for hosts, each in ((100, 100), (1, 1000)):
        yield from _read(Cloud.made(BUILD / f"inventory-{hosts}x{each}", hosts, each))
    yield _dead(Cloud.made(BUILD / "inventory-dead", 100 - DEAD, 10))


def _read(cloud: Cloud) -> t.Iterator[Row]:
    say(f"{cloud.guests} guests on {len(cloud.uris)} hypervisors")
    ours = ("ansible-inventory", "--list", "-i", str(cloud.ours()))
    printed = run(*ours).output
    shown = len(json.loads(printed)["guests_running"]["hosts"])
    if shown != cloud.guests:
        raise Failed(f"{shown} of {cloud.guests} guests are shown")
    static = ("ansible-inventory", "--list", "-i", str(cloud.static(printed)))
    theirs = ("ansible-inventory", "--list", "-i", str(cloud.theirs()))
    commands = (ours, cloud.raw(), static, theirs)
    mine, raw, printing, community = medians(*(lambda command=command: _cpu_s(*command) for command in commands))
    name, note = f"inventory, {len(cloud.uris)} hypervisors", "CPU"
    yield Row(name, cloud.guests, mine, RAW, raw + printing, "s", RAW_TARGET, note)
    yield Row(name, cloud.guests, mine, COMMUNITY, community, "s", COMMUNITY_TARGET, note)


def _dead(cloud: Cloud) -> Row:
    """A tenth of the hypervisors takes connections and never says a word."""
    say(f"{DEAD} of {len(cloud.uris) + DEAD} hypervisors are silent")
    alone = run("ansible-inventory", "--list", "-i", str(cloud.ours())).seconds
    with contextlib.ExitStack() as stack:
        mute = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _number in range(DEAD)]
        uris = {f"mute{port}": f"qemu+tcp://127.0.0.1:{port}/system" for port in (s.getsockname()[1] for s in mute)}
        ran = run("ansible-inventory", "--list", "-i", str(cloud.ours(hypervisors={**cloud.uris, **uris})))
    if len(json.loads(ran.output)["guests_running"]["hosts"]) != cloud.guests:
        raise Failed("guests of hypervisors that answer are missing")
    limit = alone + TIMEOUT_S + SLACK_S
    return Row(f"inventory, {DEAD} of 100 silent", cloud.guests, ran.seconds, LIMIT, limit, "s", 1.0, "wall")


def _cpu_s(*command: str) -> float:
    """Processor seconds of a command and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def guest_name(number: int) -> str:
    """Of the first, number is 1."""
    return f"guest{number:05d}"


def _guest(number: int, rack: int) -> str:
    tail = (number >> 16, number >> 8 & 255, number & 255)
    return GUEST.format(
        name=guest_name(number),
        uuid=uuid.UUID(int=number),
        rack=rack,
        address=f"10.{tail[0]}.{tail[1]}.{tail[2]}",
        mac=":".join(f"{byte:02x}" for byte in tail),
    )


def _written(path: Path, content: t.Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path
