# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide whether a guest is still as a plan has seen it, before its definition is replaced or removed. Pure."""

from __future__ import annotations

import dataclasses
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused

__all__ = ["DefinitionSight", "check"]


@dataclasses.dataclass(frozen=True)
class DefinitionSight:
    """What libvirt has by now of the guest with a UUID."""

    exists: bool
    expected: bool  # whether the plan was made for a guest that exists
    active: bool = False
    persistent: bool = True
    differs: t.Sequence[str] = ()  # parts of its definition that the plan did not see like this


def check(verb: str, guest: str, sight: DefinitionSight, *, must_be_off: bool = False) -> None:
    """Raises Refused where somebody has changed it since: that change is not overwritten, and not lost."""
    reason = _reason(sight, must_be_off=must_be_off)
    if reason:
        raise Refused(
            f"cannot {verb} {guest}: {reason} since this run has read it, so it is left as it is; inspect it "
            f"(`{shlex.join(['virsh', 'dumpxml', '--inactive', guest])}`), and run again"
        )


def _reason(sight: DefinitionSight, *, must_be_off: bool) -> str:
    if not sight.exists:
        return "it was removed" if sight.expected else ""
    if not sight.expected:
        return "a guest with its UUID was defined"
    if not sight.persistent and must_be_off:
        return "its definition was removed, and it still runs,"
    if sight.differs:
        return f"somebody has changed its definition ({', '.join(sight.differs)})"
    return "it was started" if must_be_off and sight.active else ""
