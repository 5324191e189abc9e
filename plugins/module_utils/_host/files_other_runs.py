# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Finds guests that other runs on this host work on, and keeps further runs from starting."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._system import locks as local
from ansible_collections.corral.virt.plugins.module_utils._system import private

__all__ = ["held_by_others"]


def held_by_others(names: t.Collection[str], locks: contextlib.ExitStack) -> list[str]:
    """Lock these guests, and all that were ever locked, while `locks` is open.

    Returns the names that other runs hold.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a file for each guest
    known = {name[: -len(local.LOCK)] for name in os.listdir(private.folder()) if name.endswith(local.LOCK)}
    found = []
    for name in sorted({*names, *known}):
        try:
            locks.enter_context(local.flocked(name, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            found.append(name)
        except (OSError, Refused):
            continue  # no run can lock such a name either
    return found
