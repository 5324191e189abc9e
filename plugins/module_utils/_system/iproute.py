# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Run iproute2's `ip`."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system.command import run

__all__ = ["ip"]


def ip(*words: str) -> list[dict[str, t.Any]]:
    """The output of `ip -j` as data; raises Failed."""
    try:
        return [row for row in json.loads(run("ip", "-j", *words) or "[]") if row]
    except ValueError as error:
        raise Failed(f"ip -j {' '.join(words)} did not return JSON; update iproute2") from error
