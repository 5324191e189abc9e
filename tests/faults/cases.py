"""The faults that are tried, one row each."""

from __future__ import annotations

import dataclasses
import random
import typing as t

from ansible_collections.corral.virt.tests.faults import found_there, killed, network, together, trust
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = ["CASES", "Case", "drains"]

Fault = t.Callable[[Scene], None]
ARRIVES, FAILS, EITHER = "arrives", "fails", "either"
KILLED = "it was killed on the host; run again"
STALLS, STALLED = {"stall_timeout": 12}, "nothing was sent for 12 s"


@dataclasses.dataclass(frozen=True)
class Case:
    """Guests move, and at some moment something is done to the lab. Afterwards the run is repeated, and arrives."""

    name: str
    when: str | None  # a phase; None: before the run
    fault: Fault
    ends: str = FAILS  # what becomes of the run itself
    says: str = ""  # and what it says, as a regular expression
    kind: str = "delta"  # of the guest's storage; of several guests, separated by blanks
    before: Fault | None = None  # what the fault needs
    finally_: str = "running"  # state of the guest after the second run
    options: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # of the migration
    book: str = "migrate"  # the playbook: migrate, or drain or rebalance with several guests
    after_s: float = 0  # between the moment and the fault
    may_miss: bool = False  # it may be over before the fault comes


def nothing(_scene: Scene) -> None:
    """No fault."""


CASES = [
    # Who gives the order dies.
    Case("controller killed while copying", "copying 50 %", killed.controller),
    Case("controller killed at switch-over", "switch-over", killed.controller, kind="full"),
    Case("module killed at record", "record", killed.module, says=KILLED),
    Case("module killed at make", "make", killed.module, says=KILLED),
    Case("module killed while copying", "copying 50 %", killed.module, says=KILLED, kind="full"),
    Case("module killed in memory phase", "memory", killed.module, says=KILLED),
    Case("module killed at switch-over", "switch-over", killed.module, says=KILLED),
    Case("module killed between migrate and resume", "arrived, paused", killed.module, says=KILLED),
    Case("cold: module killed after reserve", "reserved", killed.module, says=KILLED, kind="cold", finally_="shut off"),
    Case(
        "cold: module killed after undefine",
        "handed over",
        killed.module,
        says=KILLED,
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "cold: module killed while copying",
        "sent in part",
        killed.module,
        says=KILLED,
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "cold: source libvirtd killed while copying",
        "sent in part",
        killed.libvirtd("source"),
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "cold: target libvirtd killed while copying",
        "sent in part",
        killed.libvirtd("dest"),
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "cold: target libvirtd killed after reserve",
        "reserved",
        killed.libvirtd("dest"),
        EITHER,
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "cold: source libvirtd killed after undefine",
        "handed over",
        killed.libvirtd("source"),
        EITHER,
        kind="cold",
        finally_="shut off",
    ),
    Case("target libvirtd killed at record", "record", killed.libvirtd("dest"), EITHER, kind="full"),
    Case("ctrl-c while copying", "copying 50 %", killed.ctrl_c),
    Case("aborted while copying", "copying slowly", killed.aborted, says="abort|cancel"),
    Case("aborted at switch-over", "switch-over", killed.aborted, EITHER),
    Case("aborted in post-copy", "post-copy", killed.aborted_too_late, ARRIVES),
    # Daemons and processes die.
    Case("target libvirtd killed at 10 %", "copying 10 %", killed.libvirtd("dest")),
    Case("target libvirtd killed at 50 %", "copying 50 %", killed.libvirtd("dest"), kind="full"),
    Case("target libvirtd killed at 90 %", "copying 90 %", killed.libvirtd("dest")),
    Case("target libvirtd killed at switch-over", "switch-over", killed.libvirtd("dest"), EITHER),
    Case("source libvirtd killed while copying", "copying 50 %", killed.libvirtd("source")),
    Case("source libvirtd killed at switch-over", "switch-over", killed.libvirtd("source"), EITHER),
    Case("source libvirtd stands still when it is dead there", "dead here", killed.libvirtd_stands_still, ARRIVES),
    Case("target qemu killed while copying", "copying 50 %", killed.qemu("dest")),
    Case("target qemu killed at switch-over", "switch-over", killed.qemu("dest"), kind="full"),
    Case("source qemu killed while copying", "copying 50 %", killed.qemu("source"), finally_="shut off"),
    Case("guest shuts itself down", "copying 50 %", killed.guest_ends, finally_="shut off"),
    Case("source host dies and comes back", "copying 50 %", killed.source_host, finally_="shut off"),
    Case(
        "source loses power when it is let run elsewhere",
        "dead here",
        killed.power_when_let_run,
        before=killed.autostarts,
    ),
    Case(
        "source loses power as it is let run elsewhere", "let run", killed.source_host, EITHER, before=killed.autostarts
    ),
    # They live, and do nothing.
    Case("target libvirtd stands still 10 s", "copying 50 %", killed.stands_still("dest", "libvirtd", 10), EITHER),
    Case(
        "target libvirtd stands still 45 s",
        "copying 50 %",
        killed.stands_still("dest", "libvirtd", 45),
        EITHER,
        kind="full",
    ),
    Case(
        "target libvirtd stands still 10 s at switch-over",
        "switch-over",
        killed.stands_still("dest", "libvirtd", 10),
        EITHER,
    ),
    Case("source libvirtd stands still 10 s", "copying 50 %", killed.stands_still("source", "libvirtd", 10), EITHER),
    Case("source libvirtd stands still 45 s", "memory", killed.stands_still("source", "libvirtd", 45), EITHER),
    Case("source qemu stands still 10 s", "copying 50 %", killed.stands_still("source", "qemu-system", 10), EITHER),
    Case(
        "source qemu stands still 10 s in memory phase",
        "memory",
        killed.stands_still("source", "qemu-system", 10),
        EITHER,
    ),
    # The network.
    Case("network cut 5 s, storage", "copying 50 %", network.cut(5), ARRIVES),
    Case("network cut 5 s, memory", "memory", network.cut(5), ARRIVES, kind="full"),
    Case("network cut 10 s, storage", "copying 50 %", network.cut(10), EITHER),
    Case("network cut 10 s, switch-over", "switch-over", network.cut(10), EITHER),
    Case("network cut for good, storage", "copying 50 %", network.cut(None)),
    Case("network cut for good, memory", "memory", network.cut(None)),
    Case("network cut for good, switch-over", "switch-over", network.cut(None)),
    Case("network cut 5 s, post-copy", "post-copy", network.cut(5), ARRIVES),
    Case("network cut for good, post-copy", "post-copy", network.cut(None)),
    Case("return path cut for good, post-copy", "post-copy", network.return_path_cut, EITHER),
    Case("connection reset, post-copy", "post-copy", network.reset, says="--postcopy-resume"),
    Case("replies dropped 10 s, storage", "copying 50 %", network.replies_dropped(10), EITHER),
    Case("replies dropped 10 s, memory", "memory", network.replies_dropped(10), EITHER, kind="full"),
    Case("replies dropped 10 s, switch-over", "switch-over", network.replies_dropped(10), EITHER),
    Case("replies dropped for good, storage", "copying 50 %", network.replies_dropped(None)),
    Case("replies dropped for good, memory", "memory", network.replies_dropped(None)),
    Case("replies dropped for good, switch-over", "switch-over", network.replies_dropped(None)),
    # Some QEMUs wait 10 s for the handshake of a copy and then give up themselves.
    Case(
        "large packets lost from the start",
        None,
        network.large_lost,
        says=f"{STALLED}|lost large packets",
        options=STALLS,
    ),
    Case("large packets lost, storage", "copying 50 %", network.large_lost, says=STALLED, options=STALLS),
    Case("large packets lost, memory", "memory", network.large_lost, says=STALLED, options=STALLS),
    Case("only the Finish reply lost", "switch-over", network.only_the_finish_reply_lost, EITHER),
    # What the destination has, or lacks.
    Case("file at its path after the preflight", "record", found_there.meanwhile(found_there.file_there), says="exist"),
    Case(
        "name taken after the preflight",
        "make",
        found_there.meanwhile(found_there.name_clash),
        says="exist",
        before=found_there.read_only_disk,
    ),
    Case(
        "cold: name taken after the preflight",
        "make",
        found_there.meanwhile(found_there.name_clash),
        says="exist",
        kind="cold",
        finally_="shut off",
    ),
    Case(
        "aborted while another guest has its name", "record", found_there.namesake_runs, says=KILLED, finally_="paused"
    ),
    Case("base image of others on target", None, found_there.foreign_base, ARRIVES, says="did not import it"),
    Case("target disk full", "copying 10 %", found_there.disk_full, kind="full", before=found_there.small_pool),
    Case(
        "leftover image of the same size", None, found_there.leftover(256), says="no migration of this guest created it"
    ),
    Case(
        "leftover image of other size",
        None,
        found_there.leftover(300),
        says="no migration of this guest created it",
        kind="full",
    ),
    Case("stale pool listing", None, found_there.stale_listing, ARRIVES),
    Case("base image on target corrupted", None, found_there.corrupt_base, ARRIVES, says="was written to"),
    Case("target without the bridge", None, found_there.bridge_missing, says="has no network device br7"),
    Case("name clash", None, found_there.name_clash, says="another guest with this name"),
    Case("stale inactive definition", None, found_there.stale_definition, says="already has this guest"),
    Case("host uuid clash", None, found_there.host_uuid_clash, says="the same host UUID"),
    Case("clock an hour off", None, found_there.clock_an_hour_off, says="seconds apart"),
    # Trust.
    Case("wrong CA", None, trust.wrong_ca, says="certificate"),
    Case("expired certificate", None, trust.expired_certificate, says="certificate"),
    # Two at once.
    Case("two controllers, two hosts", "copying slowly", together.rival, ARRIVES),
    Case(
        "another guest comes the opposite way",
        "copying slowly",
        together.opposite,
        ARRIVES,
        before=together.another_there,
    ),
    # Disks in two pools.
    Case("two pools", "copying 50 %", nothing, ARRIVES, before=found_there.second_pool),
    Case("two pools, module killed", "copying 50 %", killed.module, says=KILLED, before=found_there.second_pool),
    Case("two pools, target qemu killed", "copying 50 %", killed.qemu("dest"), before=found_there.second_pool),
    # Several guests.
    Case("rebalance, module killed", "copying 50 %", killed.module, EITHER, kind="delta full", book="rebalance"),
]
DRAIN_MOMENTS = (
    "record",
    "make",
    "copying 10 %",
    "copying 50 %",
    "copying 90 %",
    "memory",
    "switch-over",
    "arrived, paused",
)
_LONG = ("copying 10 %", "copying 50 %")


def drains(count: int, chance: random.Random) -> list[Case]:
    """A host is emptied, and its module killed at so many moments that chance chooses."""
    cases = []
    for number in range(1, count + 1):
        when = chance.choice(DRAIN_MOMENTS)
        after_s = round(chance.uniform(0, 2), 2) if when in _LONG else 0
        name = f"drain, module killed {number} of {count}: {when} + {after_s} s"
        cases.append(Case(name, when, killed.module, EITHER, kind="delta full", book="drain", after_s=after_s))
    return cases
