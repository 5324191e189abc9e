# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the file of a disk that nobody writes."""

from __future__ import annotations

import subprocess

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system import durable


def copy(path: str, to: str) -> None:
    """Copy the content of a file into an existing one, holes as holes, and compare both; raises Failed."""
    for command in (
        ["cp", "--sparse=always", "--reflink=auto", "--", path, to],
        ["cmp", "--", path, to],
    ):
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            reason = " ".join((done.stderr or done.stdout).split())
            raise Failed(f"cannot copy {path} to {to}: {reason}; the disk is where it was; mend that, and run again")
    durable.fsync(to)
