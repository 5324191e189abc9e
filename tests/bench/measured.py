"""Run a command and tell what all its processes used: measured.py FILE COMMAND...

FILE gets the exit code, processor seconds in user and kernel mode, the MiB of the largest process, and the largest sum
of all processes at a time; what processes share is counted once (PSS, proc(5)).
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

INTERVAL_S = 0.5


def family(pid: int) -> set[int]:
    """The process and all that it began."""
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
    found, added = set[int](), {pid}
    while added:
        found |= added
        added = {child for child, parent in parents.items() if parent in added} - found
    return found


def shared_mib(pid: int) -> float:
    """Memory of a process and its share of what it shares with others; 0 when it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main(file: str, *command: str) -> None:
    """Run it."""
    together = 0.0
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            together = max(together, sum(map(shared_mib, family(process.pid))))
            time.sleep(INTERVAL_S)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = [process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, together]
    Path(file).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
