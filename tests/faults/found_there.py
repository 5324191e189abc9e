"""Faults that are there before the run: what the destination has, or lacks. Undone, they are the remedy that the run asked for."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = [
    "bridge_missing",
    "clock_an_hour_off",
    "corrupt_base",
    "disk_full",
    "host_uuid_clash",
    "leftover",
    "name_clash",
    "small_pool",
    "stale_definition",
    "stale_listing",
]

SMALL = "/srv/small"  # a pool; on the destination, a filesystem of its own
_SMALL_MIB = 80
_BRIDGE = "br7"
_FAKETIME = "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1"
_ENVIRONMENT = "/etc/environment"
_CONF = "/etc/libvirt/libvirtd.conf"


def leftover(size_mib: int) -> t.Callable[[Scene], None]:
    """A file of the disk's name that nobody of ours made."""

    def do(scene: Scene) -> None:
        scene.dest.run(f"qemu-img create -q -f qcow2 {scene.guest.disk} {size_mib}M")
        scene.undo.callback(scene.dest.run, f"rm {scene.guest.disk}")

    return do


def stale_listing(scene: Scene) -> None:
    """A volume that libvirt still lists although its file is gone."""
    scene.dest.run(f"qemu-img create -q -f qcow2 {scene.guest.disk} 1M; virsh -q pool-refresh default; rm {scene.guest.disk}")


def bridge_missing(scene: Scene) -> None:
    """The guest is on a bridge that only the source has."""
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
    other = dataclasses.replace(scene.guest, uuid=scene.guest.uuid[:-1] + "2", directory="/srv/other")
    scene.dest.run("virsh -q define /dev/stdin", given=other.xml())
    scene.undo.callback(scene.dest.virsh, f"undefine {other.name}")


def stale_definition(scene: Scene) -> None:
    """The same guest, off, left by who knows what."""
    scene.dest.run("virsh -q define /dev/stdin", given=scene.guest.xml())
    scene.undo.callback(scene.dest.virsh, f"undefine {scene.guest.name}")


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
    content = scene.dest.path(scene.guest.base).read_bytes()
    scene.dest.run(f"chmod u+w {scene.guest.base}; printf x | dd of={scene.guest.base} bs=1 seek=300000 conv=notrunc status=none")
    scene.after.callback(_restored, scene.dest, scene.guest.base, content)


def _restored(host: Host, path: str, content: bytes) -> None:
    before = host.path(path).stat()
    host.path(path).write_bytes(content)
    host.run(f"touch -d '1 hour ago' {path}; chmod {before.st_mode & 0o7777:o} {path}; virsh -q pool-refresh default")


def small_pool(scene: Scene) -> None:
    """The guest's disk is in a pool that has just room for it on the destination."""
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
    scene.dest.run("apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install libfaketime >/dev/null 2>&1")
    scene.undo.callback(_sessions_anew, scene.dest)
    scene.undo.callback(scene.dest.run, f"sed -i /faketime/Id {_ENVIRONMENT}")
    scene.dest.run(f'printf "LD_PRELOAD=%s\\nFAKETIME=+1h\\n" {_FAKETIME} >>{_ENVIRONMENT}')
    _sessions_anew(scene.dest)


def _sessions_anew(host: Host) -> None:
    """Ansible keeps its sessions for a minute, each with the environment that it began with."""
    host.kill(host.find("sshd"))
    host.run("systemctl restart ssh")
