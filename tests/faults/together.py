"""Others who move guests at the same time."""

from __future__ import annotations

from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import until
from ansible_collections.corral.virt.tests.faults.scene import RUN_S, Run, Scene, Violation
from ansible_collections.corral.virt.tests.faults.twice import Twice

__all__ = ["another_there", "opposite", "rival"]


def rival(scene: Scene) -> None:
    """Another controller wants the guest on a third host; it is refused, and touches nothing."""
    run = scene.start(scene.third)
    if run.wait() or not any(reason in run.reason() for reason in ("another run", "its migration to")):
        raise RuntimeError(f"a second run to {scene.third.name} was not refused as it should: {run.reason()}")


def _other(scene: Scene) -> Guest:
    return Guest("full", scene.guest.base, name="other", uuid="5c1b0a52-90c4-4c8e-9a35-6a9f3d1d0008")


def another_there(scene: Scene) -> None:
    """The destination has a guest, too."""
    for host in (scene.source, scene.dest):
        scene.after.callback(_other(scene).remove, host)
    _other(scene).make(scene.dest)


def opposite(scene: Scene) -> None:
    """That one goes to the source at the same time; it arrives, and has lost nothing."""
    other = _other(scene)
    with Twice([other], scene.hosts) as twice:
        other.noted(scene.dest)
        run = Run(scene.lab, "migrate", {"guest": other.name, "to": scene.source.name})
        scene.after.callback(run.stop)
        moves = until(lambda: other.uuid in scene.dest.records() or run.ended, RUN_S)
        if not moves or scene.run is None or scene.run.ended:
            raise RuntimeError("they did not move at the same time")
        arrived = run.wait()
    if twice.seen or not arrived or scene.states(other) != {scene.source.name: "running"}:
        raise Violation(f"the other guest: {run.reason()}, {scene.states(other)}, twice: {twice.seen}")
    written, count = other.written, other.stopped(scene.source)
    if count < max(written, other.written):
        raise Violation(
            f"the other guest's disk went back: {count} sectors, and {max(written, other.written)} had been written"
        )
