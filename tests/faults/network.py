"""Faults of the network between source and destination; the controller still reaches both."""

from __future__ import annotations

import functools
import time
import typing as t

from ansible_collections.corral.virt.tests.faults.hosts import Host, until
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = ["cut", "large_lost", "only_the_finish_reply_lost", "replies_dropped", "reset", "return_path_cut"]

LIBVIRT = 16514
MIGRATION = "49152-49215"
_TABLE = "table inet faults"
_MTU = 1200
_GIVES_UP_S = 40  # libvirt's keepalive, after 30 s
_LARGE = 250  # bytes: of what libvirt sends, a keepalive's answer is smaller, the answer to Finish larger


def _drop(scene: Scene, rules: t.Sequence[str], seconds: float | None, host: Host | None = None) -> None:
    """Let the source's network (or another host's) drop what the rules say, for some seconds, or until the run has
    ended.
    """
    host = host or scene.source
    chains = "\n".join(f"chain {hook} {{ type filter hook {hook} priority -300; }}" for hook in ("input", "output"))
    text = f"{_TABLE}\ndelete {_TABLE}\n{_TABLE} {{\n{chains}\n}}\n" + "\n".join(
        f"add rule inet faults {rule} drop" for rule in rules
    )
    host.network("nft", "-f", "-", given=text)
    heal = functools.partial(_heal, host)
    if seconds is None:
        scene.undo.callback(heal)
        return
    try:
        time.sleep(seconds)
    finally:
        heal()


def _heal(host: Host) -> None:
    host.network("nft", "-f", "-", given=f"{_TABLE}\ndelete {_TABLE}\n")


def cut(seconds: float | None) -> t.Callable[[Scene], None]:
    """Nothing passes between the two."""

    def do(scene: Scene) -> None:
        _drop(scene, [f"input ip saddr {scene.dest.address}", f"output ip daddr {scene.dest.address}"], seconds)

    return do


def replies_dropped(seconds: float | None) -> t.Callable[[Scene], None]:
    """What the destination's libvirt answers is lost; what it is sent arrives, and so does all that QEMU sends."""

    def do(scene: Scene) -> None:
        _drop(scene, [f"input ip saddr {scene.dest.address} tcp sport {LIBVIRT}"], seconds)

    return do


def large_lost(scene: Scene) -> None:
    """Of what QEMU sends to the other end, large packets are lost until the run has ended, as where the MTU is
    smaller on the way.
    """
    _drop(
        scene, [f"input ip saddr {scene.source.address} tcp dport {MIGRATION} meta length > {_MTU}"], None, scene.dest
    )


def return_path_cut(scene: Scene) -> None:
    """Nothing passes for so long that libvirt gives up. After that the source's pages and their acknowledgements pass,
    but nothing that the destination's QEMU says: it completes, and the source does not learn of it.
    """
    cut(_GIVES_UP_S)(scene)
    _drop(scene, [f"input ip saddr {scene.dest.address} tcp sport {MIGRATION} tcp flags & psh == psh"], None)


def reset(scene: Scene) -> None:
    """The connection that the memory goes over breaks; afterwards its administrator goes on, as virt_migrate says."""
    scene.source.run("ss -Htn -K dport ge :49152 and dport le :49215")
    scene.undo.callback(_resume, scene)


def _resume(scene: Scene) -> None:
    flags = "--live --p2p --persistent --undefinesource --postcopy --postcopy-resume"
    uuid, dest = scene.guest.uuid, scene.dest.name
    # It goes on, but libvirt 9.0 may report a failure.
    scene.source.virsh(f"migrate {flags} {uuid} qemu+tls://{dest}/system tcp://{dest}", ok=False)


def only_the_finish_reply_lost(scene: Scene) -> None:
    """Of the connection between the two libvirts, what is as large as the answer to Finish is lost from the
    switch-over on.
    """
    result = scene.source.run(f"ss -Htnp state established dport = :{LIBVIRT} | grep -E 'libvirtd|rpc-'")
    ports = [line.split()[2].rpartition(":")[2] for line in result.splitlines()]
    where = f"input ip saddr {scene.dest.address} tcp sport {LIBVIRT} tcp dport {{ {', '.join(ports)} }}"
    _drop(scene, [f"{where} meta length > {_LARGE}"], None)
    until(lambda: scene.dest.state(scene.guest.uuid) in ("paused", "running"), 30)
