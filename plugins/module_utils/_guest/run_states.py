# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, UUIDs, states and tags of guests, and the links of their host: without the guest model, so that little code
travels to a host.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._host import files_ha_records, files_maintenance
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._system import interfaces
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader


def described(connection: t.Any, params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guests, and with `links` the host's links and maintenance reason."""
    here = has_files_here(connection.getURI())
    kept = files_ha_records.kept() if here else {}
    guests = [
        {**guest, "protected": guest["uuid"] in kept and not kept[guest["uuid"]]["problem"]}
        for guest in of_guests(connection, name=params["name"], tags=params["tags"])
    ]
    if not params["links"]:
        return {"domains": guests}
    mark = files_maintenance.read() if here else None
    return {
        "domains": guests,
        "links": interfaces.names() if here else None,
        "maintenance": str(mark["reason"]) if mark else None,
    }


def of_guests(connection: t.Any, *, name: str | None = None, tags: bool = False) -> list[dict[str, t.Any]]:
    """Guests sorted by name; `name` limits them to one. A guest that is removed meanwhile is left out."""
    found = []
    for item, state in states.of_all(connection):
        if name in (None, item.name()):
            with contextlib.suppress(NotFound):
                more: dict[str, t.Any] = {}
                if tags:
                    record = states.record(item)
                    more = {
                        "tags": stdlib_reader.tags(record),
                        "moving": stdlib_reader.moving(record, item.UUIDString()),
                    }
                found.append({"name": item.name(), "uuid": item.UUIDString(), "state": state, **more})
    return sorted(found, key=lambda guest: str(guest["name"]))
