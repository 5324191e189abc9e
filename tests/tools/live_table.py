"""The table of how each option reaches a running guest, for the guide: made from the table that decides it.

`--write` puts it there.
"""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._front.options import option_of
from ansible_collections.corral.virt.plugins.module_utils._plan import live
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]

WORDS = {
    live.METADATA: "at once",
    live.VCPUS: "at once, up to the maximum; fewer at the next boot",
    live.MEMORY: "at once by the balloon, up to the maximum",
    live.ATTACH: "plugged and unplugged at once",
    live.UPDATE: "at once",
    live.SCHEDULER: "at once",
    live.MEMTUNE: "at once",
    live.IOTUNE: "at once",
    live.NUMATUNE: "at once; a removal waits for the next boot",
    live.PIN: "at once; a removal waits for the next boot",
    live.IOTHREADS: "at once",
    live.LIFECYCLE: "at once",
    live.STATS: "at once",
    live.FIXED: "never: it is fixed when the guest is created",
}


def rows() -> list[tuple[str, str]]:
    """In the order of the policy; then what holds for all that is not in it."""
    found = [(f"``{option_of(field)}``", WORDS[policy]) for field, policy in live.POLICY.items()]
    return [*found, ("everything else", "at the next boot; listed in ``pending`` until then")]


TABLE = Table("live_table", GUIDES / "guide_guests.rst", ("Option", "While the guest runs"), rows)

if __name__ == "__main__":
    TABLE.main()
