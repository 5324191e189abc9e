# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The tags by which guests are known to stay apart or together."""

from __future__ import annotations

import typing as t

__all__ = ["APART", "TOGETHER", "words"]

APART, TOGETHER = "apart-", "together-"


def words(tags: t.Iterable[str], prefix: str) -> frozenset[str]:
    """The groups that tags with this prefix name."""
    return frozenset(tag[len(prefix) :] for tag in tags if tag.startswith(prefix))
