# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Tells our firewall rules by their comment. Pure."""

from __future__ import annotations

import re
import shlex

from ansible_collections.corral.virt.plugins.module_utils._host.model_firewall import MARK

__all__ = ["comment_in", "is_ours"]

_OURS = re.compile(rf"{re.escape(MARK)}(?: nobody| [0-9a-f]{{8}})?")


def is_ours(comment: str) -> bool:
    """True if a comment is exactly one of ours."""
    return _OURS.fullmatch(comment) is not None


def comment_in(rule: str, option: str) -> str:
    """The value of an option such as `--comment` in a printed rule; empty if there is none."""
    try:
        words = shlex.split(rule)
    except ValueError:  # no firewall prints it
        return ""
    return words[words.index(option) + 1] if option in words[:-1] else ""
