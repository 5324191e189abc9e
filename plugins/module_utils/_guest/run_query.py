# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests of a host for a report, after a search for their addresses."""

from __future__ import annotations

import difflib
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._address import run_addresses
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.uri import has_files_here
from ansible_collections.corral.virt.plugins.module_utils._guest import run_host_load, run_summary
from ansible_collections.corral.virt.plugins.module_utils._host import files_ha_records


class Search(t.NamedTuple):
    """Which guests to search for addresses (None: all), and for how many seconds at most."""

    names: t.Collection[str] | None
    timeout_s: int


def guests(connection: t.Any, search: Search, gate: Gate | None, *, load: bool) -> dict[str, t.Any]:
    """The result of the module; with `load` also of the host. Without a gate nothing is recorded."""
    recorded: dict[str, t.Any] = {}
    kept = files_ha_records.kept() if has_files_here(connection.getURI()) else {}

    def read() -> list[dict[str, t.Any]]:
        recorded.update(
            run_addresses.leased(connection, search.names)
            if gate is None
            else run_addresses.refresh(connection, search.names, search.timeout_s, gate)
        )
        return run_summary.guests(
            connection,
            more=lambda root: {"backup": run_summary.backup(root), "ha": run_summary.protection(root, kept)},
            asked=lambda item: _snapshots(item, search.names),
        )

    found, host = run_host_load.measured(connection, read) if load else (read(), None)
    seen = {guest["uuid"]: guest["addresses"] for guest in recorded.pop("guests")}
    shown = [guest for guest in found if search.names is None or guest["name"] in search.names]
    for guest in shown:
        guest["addresses"] = list(dict.fromkeys([*guest["addresses"], *seen.get(guest["uuid"], ())]))
    similar = _similar(search.names or (), [guest["name"] for guest in found])
    return {**recorded, "domains": shown, "similar": similar, **({"host": host} if load else {})}


def _snapshots(item: t.Any, names: t.Collection[str] | None) -> dict[str, t.Any]:
    """The snapshots of a guest, if it is one of those that are shown."""
    return {"snapshots": run_summary.snapshots(item)} if names is None or item.name() in names else {}


def _similar(names: t.Collection[str], there: t.Collection[str]) -> list[str]:
    """Names of existing guests that resemble the names that no guest has."""
    lacking = [name for name in names if name not in there]
    return sorted({near for name in lacking for near in difflib.get_close_matches(name, there, 3)})
