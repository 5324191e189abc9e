"""The faults that are tried, one row each."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.tests.faults import found_there, killed, network, trust
from ansible_collections.corral.virt.tests.faults.scene import Scene

__all__ = ["CASES", "Case"]

Fault = t.Callable[[Scene], None]
ARRIVES, FAILS, EITHER = "arrives", "fails", "either"
KILLED = "it was killed on the host; run again"


@dataclasses.dataclass(frozen=True)
class Case:
    """A guest moves, and at some moment something is done to the lab. Afterwards the run is repeated, and arrives."""

    name: str
    when: str | None  # a phase; None: before the run
    fault: Fault
    ends: str = FAILS  # what becomes of the run itself
    says: str = ""  # and what it says, as a regular expression
    kind: str = "delta"
    before: Fault | None = None  # what the fault needs
    finally_: str = "running"  # state of the guest after the second run


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
    Case("cold: module killed after undefine", "given away", killed.module, says=KILLED, kind="cold", finally_="shut off"),
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
    Case("connection reset, post-copy", "post-copy", network.reset, says="--postcopy-resume"),
    Case("replies dropped 10 s, storage", "copying 50 %", network.replies_dropped(10), EITHER),
    Case("replies dropped 10 s, memory", "memory", network.replies_dropped(10), EITHER, kind="full"),
    Case("replies dropped 10 s, switch-over", "switch-over", network.replies_dropped(10), EITHER),
    Case("replies dropped for good, storage", "copying 50 %", network.replies_dropped(None)),
    Case("replies dropped for good, memory", "memory", network.replies_dropped(None)),
    Case("replies dropped for good, switch-over", "switch-over", network.replies_dropped(None)),
    Case("only the Finish reply lost", "switch-over", network.only_the_finish_reply_lost, EITHER),
    # What the destination has, or lacks.
    Case("target disk full", "copying 10 %", found_there.disk_full, kind="full", before=found_there.small_pool),
    Case("leftover image of the same size", None, found_there.leftover(256), says="no migration of ours made it"),
    Case("leftover image of other size", None, found_there.leftover(300), says="no migration of ours made it", kind="full"),
    Case("stale pool listing", None, found_there.stale_listing, ARRIVES),
    Case("base image on target corrupted", None, found_there.corrupt_base, ARRIVES, says="was written to"),
    Case("target without the bridge", None, found_there.bridge_missing, says="has no bridge br7"),
    Case("name clash", None, found_there.name_clash, says="another guest of that name"),
    Case("stale inactive definition", None, found_there.stale_definition, says="the same guest already"),
    Case("host uuid clash", None, found_there.host_uuid_clash, says="the same host UUID"),
    Case("clock an hour off", None, found_there.clock_an_hour_off, says="seconds apart"),
    # Trust.
    Case("wrong CA", None, trust.wrong_ca, says="certificate"),
    Case("expired certificate", None, trust.expired_certificate, says="certificate"),
    # Two at once.
    Case("two controllers, two hosts", "copying slowly", killed.rival, ARRIVES),
]
