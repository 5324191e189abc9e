# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List files that were changed since a systemd service began: it has not read them yet.

    changed_since_start.py UNIT FILE ...

Runs on the machine of the console, without the collection. A link is a file of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import typing as t

__all__ = ["main"]


def main(words: t.Sequence[str]) -> None:
    """Print the files, one a line."""
    unit, *files = words
    command = ["systemctl", "show", "--value", "--property=ExecMainStartTimestampMonotonic", "--", unit]
    began = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if began in ("", "0"):  # it reads them when it begins
        return
    now = time.time()
    began_s = now - time.monotonic() + int(began) / 1e6  # by the clock as it is now: somebody may have set it since
    for path in files:
        if began_s < _changed_s(path) <= now:
            print(path)  # noqa: T201


def _changed_s(path: str) -> float:
    """When the inode was changed; 0 if there is no file."""
    try:
        return os.lstat(path).st_ctime
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1:])
