# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running nftables rules of this host."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._system.command import answer, run


def ruleset() -> list[dict[str, t.Any]]:
    """The ruleset as `nft -j` prints it; raises Failed."""
    return _parsed(run("nft", "-j", "list", "ruleset"))


def if_any() -> list[dict[str, t.Any]]:
    """The ruleset; empty if nft is not installed, or prints nothing for this user."""
    printed = answer("nft", "-j", "list", "ruleset")
    return _parsed(printed) if printed else []


def _parsed(printed: str) -> list[dict[str, t.Any]]:
    try:
        return list(json.loads(printed)["nftables"])
    except (ValueError, KeyError) as error:
        raise Failed("cannot read the ruleset: nft -j did not return JSON; update nftables") from error
