"""Cases put together at random: moment x fault x storage. The same seed gives the same ones."""

from __future__ import annotations

import random
import time
import typing as t

from ansible_collections.corral.virt.tests.faults import killed, network
from ansible_collections.corral.virt.tests.faults.cases import EITHER, Case, Fault, nothing

__all__ = ["cases"]

COLD = ("sent in part", "reserved", "handed over")
EARLY = ("record", "make")
POST = ("post-copy",)
COPYING = ("copying 10 %", "copying 50 %", "copying 90 %", "memory", "switch-over")
LATE = ("arrived, paused",)
FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "nothing": (nothing, (*EARLY, *COPYING, *POST, *LATE, *COLD)),
    "controller killed": (killed.controller, (*EARLY, *COPYING, *POST, *LATE, *COLD)),
    "module killed": (killed.module, (*EARLY, *COPYING, *POST, *LATE, *COLD)),
    "ctrl-c": (killed.ctrl_c, (*EARLY, *COPYING, *POST, *LATE)),
    "target libvirtd killed": (killed.libvirtd("dest"), (*EARLY, *COPYING, *LATE, *COLD)),
    "source libvirtd killed": (killed.libvirtd("source"), (*EARLY, *COPYING, *LATE, *COLD)),
    "target qemu killed": (killed.qemu("dest"), COPYING),  # later it would be the guest itself
    "source qemu stands still": (killed.stands_still("source", "qemu-system", 5), COPYING),
    "source libvirtd stands still": (killed.stands_still("source", "libvirtd", 10), (*EARLY, *COPYING, *POST, *LATE)),
    "target libvirtd stands still": (
        killed.stands_still("dest", "libvirtd", 10),
        (*EARLY, *COPYING, *POST, *LATE, *COLD),
    ),
    "network cut 5 s": (network.cut(5), (*EARLY, *COPYING, *POST, *LATE, *COLD)),
    "network cut 10 s": (network.cut(10), (*COPYING, *LATE)),
    "network cut for good": (network.cut(None), (*COPYING, *LATE)),
    "replies dropped 10 s": (network.replies_dropped(10), (*EARLY, *COPYING, *LATE, *COLD)),
}


def cases(minutes: float, seed: str) -> t.Iterator[Case]:
    """As many as begin in this time."""
    chance, end, number = random.Random(seed), time.monotonic() + minutes * 60, 0
    while time.monotonic() < end:
        number += 1
        what, (fault, moments) = chance.choice(list(FAULTS.items()))
        when, stored = chance.choice(moments), chance.choice(("delta", "full"))
        kind, state = ("cold", "shut off") if when in COLD else (stored, "running")
        yield Case(f"{number}: {what}, {when}, {kind}", when, fault, EITHER, kind=kind, finally_=state, may_miss=True)
