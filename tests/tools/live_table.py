"""The table of how each option reaches a running guest, for the guide: made from the table that decides it.

`--write` puts it there.
"""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._guest import plan_live
from ansible_collections.corral.virt.plugins.module_utils._xml.run_arguments import option_of
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]

WORDS = {
    plan_live.METADATA: "at once",
    plan_live.VCPUS: "at once, up to the maximum; fewer at the next boot",
    plan_live.MEMORY: "at once by the balloon, up to the maximum",
    plan_live.ATTACH: "plugged and unplugged at once",
    plan_live.UPDATE: "at once",
    plan_live.SCHEDULER: "at once",
    plan_live.MEMTUNE: "at once",
    plan_live.IOTUNE: "at once",
    plan_live.NUMATUNE: "at once; a removal waits for the next boot",
    plan_live.PIN: "at once; a removal waits for the next boot",
    plan_live.IOTHREADS: "at once",
    plan_live.LIFECYCLE: "at once",
    plan_live.STATS: "at once",
    plan_live.FIXED: "never: it is fixed when the guest is created",
}


def rows() -> list[tuple[str, str]]:
    """In the order of the policy; then what holds for all that is not in it."""
    found = [(f"``{option_of(field)}``", WORDS[policy]) for field, policy in plan_live.POLICY.items()]
    return [*found, ("everything else", "at the next boot; listed in ``pending`` until then")]


TABLE = Table("live_table", GUIDES / "guide_guests.rst", ("Option", "While the guest runs"), rows)

if __name__ == "__main__":
    TABLE.main()
