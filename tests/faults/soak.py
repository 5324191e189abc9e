"""Cases put together at random: moment x fault x storage. The same seed gives the same ones."""

from __future__ import annotations

import random
import secrets
import time
import typing as t

from ansible_collections.corral.virt.tests.faults import killed, network
from ansible_collections.corral.virt.tests.faults.cases import EITHER, Case, Fault

__all__ = ["cases"]

WHEN = ("make", "copying 10 %", "copying 50 %", "copying 90 %", "memory", "switch-over", "arrived, paused")
FAULTS: dict[str, Fault] = {
    "controller killed": killed.controller,
    "module killed": killed.module,
    "target libvirtd killed": killed.libvirtd("dest"),
    "source libvirtd killed": killed.libvirtd("source"),
    "target qemu killed": killed.qemu("dest"),
    "network cut 5 s": network.cut(5),
    "network cut 10 s": network.cut(10),
    "replies dropped 10 s": network.replies_dropped(10),
    "ctrl-c": killed.ctrl_c,
    "nothing": lambda _scene: None,
}


def cases(minutes: float, seed: str | None) -> t.Iterator[Case]:
    """As many as begin in this time."""
    seed = seed or str(secrets.randbelow(10**6))
    print(f"SEED={seed}", flush=True)
    chance, end, number = random.Random(seed), time.monotonic() + minutes * 60, 0
    while time.monotonic() < end:
        number += 1
        when, (what, fault), kind = chance.choice(WHEN), chance.choice(list(FAULTS.items())), chance.choice(("delta", "full"))
        yield Case(f"{number}: {what}, {when}, {kind}", when, fault, EITHER, kind=kind)
