"""Images: a hundred disks on one, a large one downloaded, and one brought to 2, 4 and 8 hosts.

Beside others who can do that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import typing as t
from pathlib import Path

from corral_lab import life

from ansible_collections.corral.virt.tests.bench.place import (
    BUILD,
    ENOUGH_S,
    NAME,
    Failed,
    medians,
    on,
    run,
    say,
    undefine_all,
)
from ansible_collections.corral.virt.tests.bench.row import Row
from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving

HOSTS = 8
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "pki", "firewall", "storage")
IMAGES = "/var/lib/libvirt/images"
MIB = 1024**2

GUESTS, BASE = 100, f"{IMAGES}/base.0123456789ab.qcow2"
# As virt_image leaves an image: content, and a name that points to it.
MAKE_BASE = (
    f"qemu-img create -q -f qcow2 {BASE} 8G && ln -s {BASE} {IMAGES}/base.qcow2 && virsh -q pool-refresh default"
)
LARGE_MIB, SPREAD_MIB = 1024, 300
COUNTS = (2, 4, 8)
# Ansible lets SSH compress: with these images it would be measured how long that takes for nothing.
UNCOMPRESSED = {"ansible_ssh_args": "-o ControlMaster=auto -o ControlPersist=60s"}
LINK = ("tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms")
# The least ratio of source bytes, theirs to ours, for each host: beside the image, modules are sent.
SPARED = 0.95

DOMAINS, RAW, SHELL = "virt_domains", "qemu-img create, shell loop", "qemu-img create, virsh define, shell loop"
IMAGE, GET_URL, COPY = "virt_image", "ansible.builtin.get_url", "ansible.builtin.copy"
CURL, OPENSSL = "curl | tee | sha256sum, sync", "curl | tee | openssl dgst, sync"

HOW = f"""
Seconds are those of the whole command: the median of what fits into {ENOUGH_S:.0f} s; where the image is brought to several hosts, of one.
Before each measurement all that an earlier one left is removed, and the machine has written out what it had to write.
- disks: {GUESTS} qcow2 overlays on one image, each for a guest that is defined, not started; qemu-img and virsh must know them as that.
  {RAW}: makes no guests.
- download: {LARGE_MIB} MiB that no compression makes smaller, over the lab's bridge, verified, on the host's disk (fsync; {GET_URL}
  does not wait for the disk). Debian's sha256sum does without the processor's instructions for it, openssl does not.
- spread: {SPREAD_MIB} MiB to n hosts by one task. This machine and every host have a link of 1 Gbit/s each (tc tbf) to a switch; otherwise
  the hosts share this machine's processors and disk. Only {IMAGE} waits for the disk. Source bytes are all that this machine sent to the
  hosts, modules included, as its kernel counted them.
openssl on the hosts must find every copy right. Nobody's SSH compresses, as Ansible's would: these images it cannot make smaller.
"""

OVERLAY = f"qemu-img create -q -f qcow2 -F qcow2 -b {BASE} $guest-system.qcow2"
LOOP = (
    f"cd {IMAGES} && for guest in {' '.join(f'bench{number:03}' for number in range(1, GUESTS + 1))}; do {{}} || "
    "exit 1; done"
)
DEFINE = f"""{OVERLAY} && virsh -q define /dev/stdin <<END
<domain type='qemu'><name>$guest</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os><devices>
<disk type='file'><driver name='qemu' type='qcow2'/><source file='{IMAGES}/$guest-system.qcow2'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>
END
test $? = 0"""


def rows() -> t.Iterator[Row]:
    """Our figures beside everybody's."""
    print(HOW)
    lab = life.find(NAME)
    on("hyper1", "apt-get install -y -qq curl > /dev/null")
    yield from _disks()
    large = os.urandom(LARGE_MIB * MIB)
    with serving({"/large.img": large}, lab.gateway) as server:
        yield from _download(server)
    local = BUILD / "spread.img"
    local.write_bytes(large[: SPREAD_MIB * MIB])
    try:
        with serving({"/spread.img": local.read_bytes()}, lab.gateway) as server, _links(lab.bridge):
            for n in COUNTS:
                yield from _spread(n, server, local, lab.bridge)
    finally:
        local.unlink()


def _disks() -> t.Iterator[Row]:
    guest = {"vcpus": 1, "memory": 64, "disks": [{"name": "system", "image": "base.qcow2"}], "interfaces": []}
    guests = [{"name": f"bench{number:03}", **guest} for number in range(1, GUESTS + 1)]

    def measured(make: t.Callable[[], float], defined: bool = True) -> t.Callable[[], float]:
        def turn() -> float:
            undefine_all()
            _clean("hyper1")
            on("hyper1", MAKE_BASE)
            seconds = make()
            _judge_disks(defined)
            return seconds

        return turn

    ours_s, raw_s, shell_s = medians(
        measured(lambda: _play({"corral.virt.virt_domains": {"domains": guests}}, 1)),
        measured(lambda: on("hyper1", LOOP.format(OVERLAY)).seconds, defined=False),
        measured(lambda: on("hyper1", LOOP.format(DEFINE)).seconds),
    )
    undefine_all()
    yield Row(f"disks, {DOMAINS}", GUESTS, ours_s, RAW, raw_s, "s", note="peer defines no guests")
    yield Row(f"disks, {DOMAINS}", GUESTS, ours_s, SHELL, shell_s, "s")


def _judge_disks(defined: bool) -> None:
    """qemu-img must know every disk as an overlay; virsh, where guests were asked for, one guest for each."""
    said = on("hyper1", f"cd {IMAGES} && for disk in bench*.qcow2; do qemu-img info --output=json $disk; done").output
    disks = json.loads(f"[{said.replace('}' + chr(10) + '{', '},{')}]")
    right = [disk for disk in disks if (disk["format"], disk.get("full-backing-filename")) == ("qcow2", BASE)]
    if len(right) != GUESTS or len(disks) != GUESTS:
        raise Failed(
            f"qemu-img knows {len(right)} of {len(disks)} disks as overlays on {BASE}, not the {GUESTS} asked for"
        )
    known = (
        on("hyper1", "virsh -q list --all --name | sed -n 's/^..*/domblklist &/p' | virsh -q").output if defined else ""
    )
    used = set(re.findall(rf"{IMAGES}/bench\S+", known))
    if defined and used != {f"{IMAGES}/{disk['filename']}" for disk in disks}:
        raise Failed(f"virsh knows guests with {len(used)} of {GUESTS} disks")


def _download(server: Server) -> t.Iterator[Row]:
    content, url = server.files["/large.img"], f"{server.url}/large.img"
    digest = hashlib.sha256(content).hexdigest()

    def measured(fetch: t.Callable[[], float]) -> t.Callable[[], float]:
        def turn() -> float:
            _clean("hyper1")
            seconds = fetch()
            _judge_copy("hyper1", "large.img", digest)
            return seconds

        return turn

    def piped(program: str) -> float:
        file = f"{IMAGES}/large.img"
        return on(
            "hyper1", f"set -o pipefail; curl -sSf {url} | tee {file} | {program} | grep -q ^{digest} && sync {file}"
        ).seconds

    ours_s, *theirs_s = medians(
        measured(lambda: _play(_virt_image("large.img", digest, url=url), 1)),
        measured(lambda: piped("sha256sum")),
        measured(lambda: piped("openssl dgst -sha256 -r")),
        measured(lambda: _play(_get_url("large.img", digest, url), 1)),
    )
    for peer, seconds in zip((CURL, OPENSSL, GET_URL), theirs_s, strict=True):
        rates = (f"{len(content) / 1e6 / each:.0f}" for each in (ours_s, seconds))
        yield Row(f"download, {IMAGE}", 1, ours_s, peer, seconds, "s", note=" and ".join(rates) + " MB/s")


def _spread(n: int, server: Server, local: Path, bridge: str) -> t.Iterator[Row]:
    url = f"{server.url}/spread.img"
    digest = hashlib.sha256(local.read_bytes()).hexdigest()

    def measured(task: dict[str, t.Any]) -> tuple[float, float]:
        hosts = [f"hyper{number}" for number in range(1, n + 1)]
        _clean(*hosts)
        before = _sent_bytes(bridge)
        seconds = _play(task, n)
        sent_mb = (_sent_bytes(bridge) - before) / 1e6
        for host in hosts:
            _judge_copy(host, "spread.img", digest)
        say(f"{n} hosts, {next(iter(task))}: {seconds:.1f} s, {sent_mb:.0f} MB from the source")
        return seconds, sent_mb

    for kind, ours, peer, theirs in (
        ("url", _virt_image("spread.img", digest, url=url, fan_out=True), GET_URL, _get_url("spread.img", digest, url)),
        ("src", _virt_image("spread.img", digest, src=str(local), fan_out=True), COPY, _copy(local)),
    ):
        (ours_s, ours_mb), (theirs_s, theirs_mb) = measured(ours), measured(theirs)
        yield Row(f"spread from {kind}, source bytes", n, ours_mb, peer, theirs_mb, "MB", target=n * SPARED)
        yield Row(f"spread from {kind}", n, ours_s, peer, theirs_s, "s")


def _virt_image(name: str, digest: str, **more: t.Any) -> dict[str, t.Any]:
    return {"corral.virt.virt_image": {"name": name, "checksum": f"sha256:{digest}", **more}}


def _get_url(name: str, digest: str, url: str) -> dict[str, t.Any]:
    return {GET_URL: {"url": url, "dest": f"{IMAGES}/{name}", "checksum": f"sha256:{digest}", "mode": "0444"}}


def _copy(local: Path) -> dict[str, t.Any]:
    return {COPY: {"src": str(local), "dest": f"{IMAGES}/{local.name}", "mode": "0444"}}


def _play(task: t.Mapping[str, t.Any], n: int) -> float:
    """Seconds of a playbook with one task for the first n hosts."""
    playbook = BUILD / "images.json"
    hosts = [f"hyper{number}" for number in range(1, n + 1)]
    playbook.write_text(json.dumps([{"hosts": hosts, "gather_facts": False, "vars": UNCOMPRESSED, "tasks": [task]}]))
    return run("ansible-playbook", playbook).seconds


def _clean(*hosts: str) -> None:
    """Have empty pools, and a disk that has nothing to do: the hosts have this machine's."""
    for host in hosts:
        on(host, f"find {IMAGES} -mindepth 1 -delete && virsh -q pool-refresh default")
    os.sync()


def _judge_copy(host: str, name: str, digest: str) -> None:
    found = on(host, f"openssl dgst -sha256 -r {IMAGES}/{name}").output.split()[0]
    if found != digest:
        raise Failed(f"{name} on {host} has sha256 {found}, not {digest}")


@contextlib.contextmanager
def _links(bridge: str) -> t.Iterator[None]:
    """As if this machine and every host were on a switch: what each is sent, and what this machine sends, is slowed
    down.
    """
    devices = [bridge, *(port.name for port in Path(f"/sys/class/net/{bridge}/brif").iterdir())]
    try:
        for device in devices:
            run("tc", "qdisc", "replace", "dev", device, "root", *LINK)
        yield
    finally:
        for device in devices:
            run("tc", "qdisc", "del", "dev", device, "root")


def _sent_bytes(bridge: str) -> int:
    """What this machine itself has sent into the lab.

    What hosts send each other does not go through its side of the bridge.
    """
    return int(Path(f"/sys/class/net/{bridge}/statistics/tx_bytes").read_text())
