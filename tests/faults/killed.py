"""Faults of processes and hosts: what dies, and comes back."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import subprocess
import sys
import time
import typing as t

from corral_lab import processes

from ansible_collections.corral.virt.tests.faults.foreign import definition
from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Missed, Scene, Violation
from ansible_collections.corral.virt.tests.lab import hypervisors

__all__ = [
    "aborted",
    "aborted_too_late",
    "autostarts",
    "controller",
    "ctrl_c",
    "guest_ends",
    "libvirtd",
    "libvirtd_stands_still",
    "module",
    "power_when_let_run",
    "qemu",
    "source_host",
    "stands_still",
]

HANDED_OVER_S = 10
_WITNESS = Guest("", "", "/srv/base", "witness", uuid="5c1b0a52-90c4-4c8e-9a35-6a9f3d1d0009")

POSTCOPY_RATE = "1mbit"  # what is missing then takes longer than another run of the playbook


def controller(scene: Scene) -> None:
    """The machine that runs Ansible loses power; the module goes on."""
    if scene.run:
        scene.run.signal(signal.SIGKILL)


def module(scene: Scene) -> None:
    """The module on the source."""
    if not scene.source.kill(scene.module):
        raise RuntimeError("there was no module to kill")


def libvirtd(end: str) -> t.Callable[[Scene], None]:
    """The daemon of `source` or `dest`; systemd starts it again."""

    def do(scene: Scene) -> None:
        host = scene.source if end == "source" else scene.dest
        host.kill(host.find("libvirtd"))
        host.run("systemctl start libvirtd.socket libvirtd")

    return do


def libvirtd_stands_still(scene: Scene) -> None:
    """The guest's process on the source is dead, and its libvirtd does not come to tell that: the guest is let run
    on the destination.
    """
    with _stopped(scene.source, scene.source.find("libvirtd")):
        _let_run(scene)


def _let_run(scene: Scene) -> None:
    if not until(lambda: scene.dest.look(scene.guest.uuid)[0] == "running", HANDED_OVER_S):
        raise RuntimeError(f"nobody let it run: {scene.dest.look(scene.guest.uuid)[0]}")


@contextlib.contextmanager
def _stopped(host: Host, pids: t.Sequence[int]) -> t.Iterator[None]:
    """Processes that neither work nor end."""
    if not host.kill(pids, signal.SIGSTOP):
        raise Missed(f"{host.name} has none to stop")
    try:
        yield
    finally:
        host.kill(pids, signal.SIGCONT)


def stands_still(end: str, program: str, seconds: float) -> t.Callable[[Scene], None]:
    """libvirtd, or the guest's qemu-system, of `source` or `dest` neither works nor ends for a while."""

    def do(scene: Scene) -> None:
        host = scene.source if end == "source" else scene.dest
        with _stopped(host, host.find(program, uuid=scene.guest.uuid if program != "libvirtd" else "")):
            time.sleep(seconds)

    return do


def qemu(end: str) -> t.Callable[[Scene], None]:
    """The guest's own process."""

    def do(scene: Scene) -> None:
        host = scene.source if end == "source" else scene.dest
        if not host.kill(host.find("qemu-system", uuid=scene.guest.uuid)):
            raise RuntimeError("there was no QEMU to kill")

    return do


def guest_ends(scene: Scene) -> None:
    """The guest switches itself off."""
    scene.guest.ends(scene.source)


def aborted(scene: Scene) -> None:
    """Somebody else says `state: aborted`."""
    run = scene.start(state="aborted")
    if not run.wait():
        raise RuntimeError(f"state: aborted failed: {run.reason()}")


def aborted_too_late(scene: Scene) -> None:
    """Somebody else says `state: aborted` when the guest runs on the destination already: refused while its memory
    still comes.
    """
    scene.slow(POSTCOPY_RATE)
    run = scene.start(state="aborted")
    if run.wait() or "post-copy" not in run.reason():
        raise RuntimeError(f"state: aborted was not refused as it should: {run.reason()}")
    if scene.source.look(scene.guest.uuid)[0] != "post-copy":
        raise RuntimeError(f"state: aborted was refused only when the guest had arrived: {scene.states()}")
    scene.fast()


def ctrl_c(scene: Scene) -> None:
    """The user has changed their mind."""
    if scene.run:
        scene.run.signal(signal.SIGINT)


def source_host(scene: Scene) -> None:
    """The source loses power, and is switched on again when the run has ended."""
    processes.end(scene.source.lab, scene.source.name)
    scene.undo.callback(_switch_on, scene)


def autostarts(scene: Scene) -> None:
    """The guest starts with its host, and so does another one, which tells whether that works there at all."""
    scene.guest.remove(scene.source)
    scene.guest = dataclasses.replace(scene.guest, autostart=True)
    scene.guest.make(scene.source)
    scene.source.path(_WITNESS.disk).write_bytes(bytes(2**20))
    scene.source.run("virsh -q define /dev/stdin", given=definition(_WITNESS.name, _WITNESS.disk, _WITNESS.uuid))
    scene.source.virsh(f"autostart {_WITNESS.uuid}")
    scene.after.callback(_WITNESS.remove, scene.source)


def power_when_let_run(scene: Scene) -> None:
    """The source loses power when the guest runs on the destination, and before libvirt has removed its definition
    here.
    """
    with _stopped(scene.source, scene.source.find("libvirtd")):
        if not scene.source.path(f"/etc/libvirt/qemu/{scene.guest.name}.xml").exists():
            raise RuntimeError("its definition is gone already")
        _let_run(scene)
        processes.end(scene.source.lab, scene.source.name)
    scene.undo.callback(_started_by_itself, scene)
    scene.undo.callback(_switch_on, scene)


def _started_by_itself(scene: Scene) -> None:
    """libvirt has started what is to start with the host; the guest runs once."""
    if not until(lambda: scene.source.state(_WITNESS.uuid) == "running", 60):
        raise RuntimeError("libvirt starts no guests with that host: the case shows nothing")
    running = [
        host.name for host in scene.hosts if scene.guest.uuid in host.virsh("list --uuid --state-running").split()
    ]
    if running != [scene.dest.name]:
        raise Violation(f"after the source's boot it runs on {running}: {scene.states()}")


def _switch_on(scene: Scene) -> None:
    lab = scene.source.lab
    done = [sys.executable, str(hypervisors.HERE / "lab.py"), "up", "--name", lab, "--hosts", "3", "--no-image"]
    subprocess.run(done, check=True, capture_output=True)
    if not until(
        lambda: scene.source.run("virsh -q list", ok=False) is not None and scene.source.virsh("uri", ok=False), 60
    ):
        raise RuntimeError(f"libvirt of {scene.source.name} did not come back")
