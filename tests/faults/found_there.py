"""Faults that are there before the run: what the destination has, or lacks.

Undone, they are the remedy that the run asked for.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import typing as t

from ansible_collections.corral.virt.tests.faults.hosts import IMAGES, Host, until
from ansible_collections.corral.virt.tests.faults.scene import Scene, Violation

__all__ = [
    "bridge_missing",
    "clock_an_hour_off",
    "corrupt_base",
    "disk_full",
    "file_there",
    "foreign_base",
    "host_uuid_clash",
    "leftover",
    "meanwhile",
    "name_clash",
    "namesake_runs",
    "read_only_disk",
    "second_pool",
    "small_pool",
    "stale_definition",
    "stale_listing",
]

SECOND = "/srv/second"  # a pool on both
SMALL = "/srv/small"  # a pool; on the destination, a filesystem of its own
_SMALL_MIB = 80
_BRIDGE = "br7"
_FAKETIME = "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1"
_ENVIRONMENT, _SUDO = "/etc/environment", "/etc/sudoers.d/faketime"
_CONF = "/etc/libvirt/libvirtd.conf"


def leftover(size_mib: int) -> t.Callable[[Scene], None]:
    """A file of the disk's name that nobody of ours made."""

    def do(scene: Scene) -> None:
        scene.dest.run(f"qemu-img create -q -f qcow2 {scene.guest.disk} {size_mib}M")
        scene.foreign["dest"].keep(scene.guest.disk)
        scene.undo.callback(scene.dropped, scene.guest.disk)

    return do


def stale_listing(scene: Scene) -> None:
    """A volume that libvirt still lists although its file is gone."""
    scene.dest.run(
        f"qemu-img create -q -f qcow2 {scene.guest.disk} 1M; virsh -q pool-refresh default; rm {scene.guest.disk}"
    )


def bridge_missing(scene: Scene) -> None:
    """The guest is on a bridge that only the source has."""
    scene.options["reserve"] = "0"
    scene.guest.remove(scene.source)
    scene.guest = dataclasses.replace(scene.guest, bridge=_BRIDGE)
    _bridge(scene, scene.source)
    scene.guest.make(scene.source)
    scene.undo.callback(_bridge, scene, scene.dest)


def _bridge(scene: Scene, host: Host) -> None:
    host.network("ip", "link", "add", _BRIDGE, "up", "type", "bridge")
    scene.after.callback(host.network, "ip", "link", "delete", _BRIDGE)


def name_clash(scene: Scene) -> None:
    """Another guest of that name."""
    other = scene.foreign["dest"].guest(scene.guest.name, "/srv/other/other.raw")
    scene.undo.callback(scene.dropped, other)


def file_there(scene: Scene) -> None:
    """A file of the disk's name, which the preflight has not seen."""
    if scene.dest.path(scene.guest.disk).exists():
        raise RuntimeError("the move has made its disk already")
    scene.foreign["dest"].file(scene.guest.disk)
    scene.undo.callback(scene.dropped, scene.guest.disk)


def meanwhile(fault: t.Callable[[Scene], None]) -> t.Callable[[Scene], None]:
    """It comes about in the middle of the move: the module stands still for that moment."""

    def do(scene: Scene) -> None:
        if not scene.source.kill(scene.module, signal.SIGSTOP):
            raise RuntimeError("there was no module to stop")
        try:
            fault(scene)
        finally:
            scene.source.kill(scene.module, signal.SIGCONT)

    return do


def namesake_runs(scene: Scene) -> None:
    """The module dies, the guest's owner suspends it, another guest of its name runs on the destination, and
    somebody says `aborted`.
    """
    scene.source.kill(scene.module)
    scene.left_alone()
    scene.source.virsh(f"suspend {scene.guest.uuid}")
    foreign = scene.foreign["dest"]
    foreign.file("/srv/base/namesake.raw")
    other = foreign.guest(scene.guest.name, "/srv/base/namesake.raw", start="")
    foreign.keep("/srv/base/namesake.raw")  # libvirt has given it to QEMU
    scene.undo.callback(scene.dropped, other)
    scene.undo.callback(scene.dropped, "/srv/base/namesake.raw")  # before libvirt takes it back from QEMU
    run = scene.start(state="aborted")
    if not run.wait():
        raise RuntimeError(f"state: aborted failed: {run.reason()}")
    if scene.states() != {scene.source.name: "paused"}:
        raise Violation(f"state: aborted beside a guest of its name: {scene.states()}")


def stale_definition(scene: Scene) -> None:
    """The same guest, off, left by who knows what."""
    scene.dest.run("virsh -q define /dev/stdin", given=scene.guest.xml())
    scene.undo.callback(scene.dest.virsh, f"undefine {scene.guest.uuid}")


def host_uuid_clash(scene: Scene) -> None:
    """Two hosts that say they are the same one."""
    theirs = scene.source.run(f"grep ^host_uuid {_CONF}")
    ours = scene.dest.run(f"grep ^host_uuid {_CONF}")
    _identity(scene.dest, theirs)
    scene.undo.callback(_identity, scene.dest, ours)


def _identity(host: Host, line: str) -> None:
    host.run(f"sed -i 's/^host_uuid.*/{line}/' {_CONF} && systemctl restart libvirtd")
    until(lambda: host.virsh("uri", ok=False), 20)


def corrupt_base(scene: Scene) -> None:
    """Somebody wrote into the image on the destination."""
    path = scene.dest.path(scene.guest.base)
    content, before = path.read_bytes(), path.stat()
    scene.dest.run(
        f"chmod u+w {scene.guest.base}; printf x | dd of={scene.guest.base} bs=1 seek=300000 conv=notrunc status=none"
    )
    scene.after.callback(_restored, scene.dest, scene.guest.base, content, before)


def foreign_base(scene: Scene) -> None:
    """Somebody else's file has the name of the content that the guest stands on, and other bytes."""
    base, aside = scene.guest.base, "/srv/base/aside"
    manifest = f"{IMAGES}/.{base.rpartition('/')[2]}.json"
    scene.dest.run(f"mv {base} {aside} && mv {manifest} {aside}.json")
    scene.after.callback(
        scene.dest.run, f"mv -f {aside} {base} && mv -f {aside}.json {manifest}; virsh -q pool-refresh default"
    )
    foreign = scene.foreign["dest"]
    scene.after.callback(foreign.remove)  # it goes before what was put aside comes back
    foreign.file(base)


def read_only_disk(scene: Scene) -> None:
    """The guest has a disk that it only reads: that is copied before libvirt begins, which takes a while."""
    scene.guest.reads_second = True
    second_pool(scene)


def second_pool(scene: Scene) -> None:
    """The guest has a second disk, in a pool of its own."""
    scene.guest.remove(scene.source)
    scene.guest = dataclasses.replace(scene.guest, second=f"{SECOND}/data.qcow2")
    for host in (scene.source, scene.dest):
        host.run(f"mkdir -p {SECOND} && virsh -q pool-create-as second dir --target {SECOND}")
        scene.after.callback(host.run, f"virsh -q pool-destroy second; rm -rf {SECOND}")
    scene.guest.make(scene.source)


def _restored(host: Host, path: str, content: bytes, before: os.stat_result) -> None:
    """As if nobody had written to it: a base with a later time is another one, and guests are copied whole."""
    file = host.path(path)
    file.write_bytes(content)
    file.chmod(before.st_mode & 0o7777)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    host.run("virsh -q pool-refresh default")


def small_pool(scene: Scene) -> None:
    """The guest's disk is in a pool that has just room for it on the destination."""
    scene.options["reserve"] = "0"
    scene.guest.remove(scene.source)
    scene.guest = dataclasses.replace(scene.guest, directory=SMALL)
    for host in (scene.source, scene.dest):
        host.run(f"mkdir -p {SMALL}")
        if host is scene.dest:
            host.run(f"mount -t tmpfs -o size={_SMALL_MIB}m tmpfs {SMALL}")
        host.run(f"virsh -q pool-create-as small dir --target {SMALL}")
        end = f"virsh -q pool-destroy small; umount {SMALL} 2>/dev/null; rm -rf {SMALL}"
        scene.after.callback(host.run, end)
    scene.guest.make(scene.source)


def disk_full(scene: Scene) -> None:
    """While it is copied, others take the room."""
    scene.dest.run(f"cat /dev/zero > {SMALL}/others 2>/dev/null", ok=False)
    scene.undo.callback(scene.dest.run, f"rm {SMALL}/others")


def clock_an_hour_off(scene: Scene) -> None:
    """Hosts of a lab share one clock: whoever comes by SSH to the destination is shown another one."""
    scene.dest.run(
        "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install libfaketime >/dev/null 2>&1"
    )
    scene.undo.callback(_sessions_anew, scene.dest)
    scene.undo.callback(scene.dest.run, f"sed -i /faketime/Id {_ENVIRONMENT}; rm {_SUDO}")
    scene.dest.run(f'printf "LD_PRELOAD=%s\\nFAKETIME=+1h\\n" {_FAKETIME} >>{_ENVIRONMENT}')
    scene.dest.run(f"echo 'Defaults env_file={_ENVIRONMENT}' >{_SUDO}")  # modules run as root
    _sessions_anew(scene.dest)


def _sessions_anew(host: Host) -> None:
    """Ansible keeps its sessions for a minute, each with the environment that it began with."""
    host.kill(host.find("sshd"))
    host.run("systemctl restart ssh")
