"""Moments of a migration, by which a fault is placed: seen at both ends, not waited for with a clock."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.tests.faults.guest import Guest
from ansible_collections.corral.virt.tests.faults.hosts import Host

__all__ = ["PHASES", "SLOW", "TIGHT", "Phase"]


class Phase(t.NamedTuple):
    """When it is, and what makes it long enough to be hit."""

    seen: t.Callable[[Guest, Host, Host], bool]  # guest, source, destination
    options: t.Mapping[str, t.Any] = {}
    tight: bool = False  # the network is made slow when it is reached before: see TIGHT


# 40 MiB of disk and 32 MiB of memory take some seconds each.
SLOW: dict[str, t.Any] = {"bandwidth": 6}
# Memory follows when it runs on the destination already. Debian 12's libvirt has no TLS for that beside a copy of
# disks.
POSTCOPY: dict[str, t.Any] = {"postcopy": True, "postcopy_after": 1, "transport": "plain"}
# The pause at the end is allowed to be long, so it comes at once, and lasts as long as the network takes for all of the
# memory.
TIGHT: dict[str, t.Any] = {"max_downtime": 60000}


def _made(guest: Guest, _source: Host, dest: Host) -> bool:
    return dest.path(guest.disk).exists()


def _sent_in_part(guest: Guest, source: Host, dest: Host) -> bool:
    """Of a disk whose guest is off: a copy is as long as what has come, as soon as a hole has."""
    return (
        _made(guest, source, dest) and 0 < dest.path(guest.disk).stat().st_size < source.path(guest.disk).stat().st_size
    )


def _copied(percent: int) -> t.Callable[[Guest, Host, Host], bool]:
    def seen(guest: Guest, source: Host, _dest: Host) -> bool:
        figures = source.look(guest.uuid)[1]
        total = figures.get("disk_total", 0)
        return bool(total) and figures["disk_processed"] * 100 >= percent * total

    return seen


def _memory(guest: Guest, source: Host, _dest: Host) -> bool:
    return bool(source.look(guest.uuid)[1].get("memory_processed", 0) > 2**20)


def _switching(guest: Guest, source: Host, _dest: Host) -> bool:
    state, figures = source.look(guest.uuid)
    return state == "migrating" and bool(figures)


def _postcopy(guest: Guest, source: Host, dest: Host) -> bool:
    return source.look(guest.uuid)[0] == "post-copy" and dest.look(guest.uuid)[0] == "running"


def _dead_here(guest: Guest, source: Host, dest: Host) -> bool:
    return dest.look(guest.uuid)[0] in ("migrating", "paused") and not source.find("qemu-system", uuid=guest.uuid)


def _arrived(guest: Guest, _source: Host, dest: Host) -> bool:
    return dest.look(guest.uuid)[0] == "paused"


def _resumed(guest: Guest, _source: Host, dest: Host) -> bool:
    return dest.look(guest.uuid)[0] == "running"


def _recorded(guest: Guest, source: Host, _dest: Host) -> bool:
    return "<corral:moving " in source.definition(guest.uuid)


def _reserved(guest: Guest, _source: Host, dest: Host) -> bool:
    return dest.look(guest.uuid)[0] == "off"  # no more: what follows takes a few milliseconds


def _handed_over(guest: Guest, source: Host, _dest: Host) -> bool:
    return source.look(guest.uuid)[0] == "absent"


PHASES: dict[str, Phase] = {
    "record": Phase(_recorded),
    "make": Phase(_made),
    "copying 10 %": Phase(_copied(10), SLOW),
    "copying 50 %": Phase(_copied(50), SLOW),
    "copying 90 %": Phase(_copied(90), SLOW),
    "sent in part": Phase(_sent_in_part, tight=True),
    "copying slowly": Phase(_copied(1), {"bandwidth": 1, **TIGHT}),  # time enough for another run of the playbook
    "memory": Phase(_memory, SLOW),
    "switch-over": Phase(_switching, TIGHT, tight=True),
    "post-copy": Phase(_postcopy, POSTCOPY, tight=True),
    "dead here": Phase(_dead_here, TIGHT, tight=True),
    "arrived, paused": Phase(_arrived),
    "let run": Phase(_resumed),
    "reserved": Phase(_reserved),
    "handed over": Phase(_handed_over),
}
