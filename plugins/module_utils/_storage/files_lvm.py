# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Ask LVM for the thin pools of a volume group."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import command

__all__ = ["has_group", "thin_pools"]

_FIELDS = "lv_name,lv_size,data_percent,metadata_percent"


def has_group(name: str) -> bool:
    """True if the host has a volume group of this name, active or not."""
    return bool(command.answer("vgs", "--noheadings", "--options", "vg_name", "--", name))


def thin_pools(group: str) -> list[dict[str, t.Any]]:
    """Name, size in bytes, and use in percent of each thin pool; empty if there is none, or nobody may ask."""
    form = ("--reportformat", "json", "--units", "b", "--nosuffix")
    told = command.answer("lvs", *form, "--options", _FIELDS, "--select", "segtype=thin-pool", "--", group)
    return [_of_row(row) for report in json.loads(told)["report"] for row in report["lv"]] if told else []


def _of_row(row: t.Mapping[str, str]) -> dict[str, t.Any]:
    percents = {field: float(row[field]) if row[field] else None for field in ("data_percent", "metadata_percent")}
    return {"name": row["lv_name"], "size_bytes": int(float(row["lv_size"])), **percents}
