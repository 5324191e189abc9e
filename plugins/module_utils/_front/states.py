# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Names, UUIDs and states of guests, and their tags: without the model of a guest, so that little travels to a host."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._xml import brief

__all__ = ["of_guests"]


def of_guests(connection: t.Any, *, name: str | None = None, tags: bool = False) -> list[dict[str, t.Any]]:
    """Guests by name; `name` limits them to one. A guest that is removed meanwhile is left out."""
    found = []
    for item, state in states.of_all(connection):
        if name in (None, item.name()):
            with contextlib.suppress(NotFound):
                more = {"tags": brief.tags(states.record(item))} if tags else {}
                found.append({"name": item.name(), "uuid": item.UUIDString(), "state": state, **more})
    return sorted(found, key=lambda guest: str(guest["name"]))
