"""The table of how each option reaches a running guest, for the guide: made from the table that decides it. `--write` puts it there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._front.options import option_of
from ansible_collections.corral.virt.plugins.module_utils._plan import live

GUIDE = Path(__file__).parents[2] / "docs/docsite/rst/guide_guests.rst"
MARKS = ("..\n  The table is made by tests/tools/live_table.py.\n\n", "\n..\n  End of the table.\n")
WORDS = {
    live.METADATA: "at once",
    live.VCPUS: "at once, up to the maximum and never down",
    live.MEMORY: "at once by the balloon, up to the maximum",
    live.ATTACH: "plugged and unplugged at once",
    live.UPDATE: "at once",
    live.SCHEDULER: "at once",
    live.MEMTUNE: "at once",
    live.IOTUNE: "at once",
    live.NUMATUNE: "at once",
    live.PIN: "at once; a pin that is taken away waits for the next boot",
    live.IOTHREADS: "at once",
    live.LIFECYCLE: "at once",
    live.STATS: "at once",
    live.FIXED: "never: it is fixed when the guest is made",
}


def table() -> str:
    """The rows in the order of the policy, then what holds for all that is not in it."""
    rows = [(f"``{option_of(field)}``", WORDS[policy]) for field, policy in live.POLICY.items()]
    rows.append(("everything else", "at the next boot; listed in ``pending`` until then"))
    width = max(len(field) for field, _how in rows)
    line = f"{'=' * width}  {'=' * max(len(how) for _field, how in rows)}"
    head = f"{'Option':{width}}  While the guest runs"
    return "\n".join([line, head, line, *(f"{field:{width}}  {how}" for field, how in rows), line]) + "\n"


def written(text: str) -> str:
    """A guide with the table as it is now."""
    start, end = MARKS
    return re.sub(re.escape(start) + ".*?" + re.escape(end), lambda _match: start + table() + end, text, flags=re.DOTALL)


if __name__ == "__main__":
    if "--write" in sys.argv:
        GUIDE.write_text(written(GUIDE.read_text()))
    else:
        print(table(), end="")
