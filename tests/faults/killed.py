"""Faults of processes and hosts: what dies, and comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
import typing as t

from corral_lab import processes

from ansible_collections.corral.virt.tests.faults.hosts import until
from ansible_collections.corral.virt.tests.faults.scene import Scene
from ansible_collections.corral.virt.tests.lab import hypervisors

__all__ = [
    "aborted",
    "aborted_too_late",
    "controller",
    "ctrl_c",
    "guest_ends",
    "libvirtd",
    "libvirtd_stands_still",
    "module",
    "qemu",
    "rival",
    "source_host",
]

HANDED_OVER_S = 10

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
    """The guest's process on the source is dead, and its libvirtd does not come to tell that: the guest is let run on the destination."""
    daemons = scene.source.find("libvirtd")
    scene.source.kill(daemons, signal.SIGSTOP)
    try:
        if not until(lambda: scene.dest.look(scene.guest.name)[0] == "running", HANDED_OVER_S):
            raise RuntimeError(f"nobody let it run: {scene.dest.look(scene.guest.name)[0]}")
    finally:
        scene.source.kill(daemons, signal.SIGCONT)


def qemu(end: str) -> t.Callable[[Scene], None]:
    """The guest's own process."""

    def do(scene: Scene) -> None:
        host = scene.source if end == "source" else scene.dest
        if not host.kill(host.find("qemu-system")):
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
    """Somebody else says `state: aborted` when the guest runs on the destination already: refused while its memory still comes."""
    scene.slow(POSTCOPY_RATE)
    run = scene.start(state="aborted")
    if run.wait() or "post-copy" not in run.reason():
        raise RuntimeError(f"state: aborted was not refused as it should: {run.reason()}")
    if scene.source.look(scene.guest.name)[0] != "post-copy":
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


def _switch_on(scene: Scene) -> None:
    lab = scene.source.lab
    done = [sys.executable, str(hypervisors.HERE / "lab.py"), "up", "--name", lab, "--hosts", "3", "--no-image"]
    subprocess.run(done, check=True, capture_output=True)
    if not until(lambda: scene.source.run("virsh -q list", ok=False) is not None and scene.source.virsh("uri", ok=False), 60):
        raise RuntimeError(f"libvirt of {scene.source.name} did not come back")


def rival(scene: Scene) -> None:
    """Another controller wants the guest on a third host; it is refused, and touches nothing."""
    run = scene.start(scene.third)
    if run.wait() or not any(reason in run.reason() for reason in ("another run", "its migration to")):
        raise RuntimeError(f"a second run to {scene.third.name} was not refused as it should: {run.reason()}")
