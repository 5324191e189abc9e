# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run iproute2's `ip`."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system.command import run


def ip(*words: str) -> list[dict[str, t.Any]]:
    """The output of `ip -j` as data; raises Failed."""
    try:
        return [row for row in json.loads(run("ip", "-j", *words) or "[]") if row]
    except ValueError as error:
        raise Failed(f"ip -j {' '.join(words)} did not return JSON; update iproute2") from error
