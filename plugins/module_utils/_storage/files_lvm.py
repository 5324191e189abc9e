# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask LVM for volume groups, thin pools, and who has a logical volume open."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._system import command, identity
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import LOGICAL

_FORM = ("--reportformat", "json", "--units", "b", "--nosuffix")
_UUIDS = "vg_uuid,lv_uuid"
_OWN = (["sata"], ["ata"], ["nvme"], ["usb"])  # transports of disks, as lsblk names them
_FIELDS = "lv_name,lv_size,data_percent,metadata_percent,segtype,zero,pool_lv"


def has_group(name: str) -> bool:
    """True if the host has a volume group of this name, active or not."""
    return bool(command.answer("vgs", "--noheadings", "--options", "vg_name", "--", name))


def thin_pools(group: str, but: str = "") -> list[dict[str, t.Any]]:
    """The thin pools with the fields of `ThinPool`, without what the volume `but` takes; empty if nobody may ask."""
    volumes = rows("lv", "lvs", _FIELDS, "--", group)
    pools = [row for row in volumes if row["segtype"] == "thin-pool"]
    return [_thin_pool(row, [one for one in volumes if one["pool_lv"] == row["lv_name"]], but) for row in pools]


def thin_pool_of(path: str) -> str | None:
    """The name of the thin pool that a volume is in; None of one that is not thin."""
    found = rows("lv", "lvs", "pool_lv,segtype", "--", path)
    return next((row["pool_lv"] for row in found if row["segtype"] == "thin"), None)


def volumes(group: str, directory: str) -> dict[str, int]:
    """Paths of the volumes of a group, which are below this directory, and their sizes in bytes; without thin pools."""
    found = rows("lv", "lvs", "lv_name,lv_size,segtype", "--", group)
    shown = [row for row in found if row["segtype"] != "thin-pool"]
    return {f"{directory}/{row['lv_name']}": int(float(row["lv_size"])) for row in shown}


def size_bytes(path: str) -> int:
    """The size of a logical volume; 0 if there is none."""
    return next((_number(row["lv_size"]) for row in rows("lv", "lvs", "lv_size", "--", path)), 0)


def tags(path: str) -> tuple[str, ...]:
    """The tags of a logical volume; none of one that does not exist."""
    return tuple(tag for row in rows("lv", "lvs", "lv_tags", "--", path) for tag in row["lv_tags"].split(",") if tag)


def uuid_of(path: str) -> str | None:
    """The UUIDs of a logical volume's group and of itself, as device mapper writes them; None if there is none."""
    active = identity.logical_volume(path)
    return active or next((_uuid(row) for row in rows("lv", "lvs", _UUIDS, "--", path)), None)


def paths_of(uuid: str) -> list[str]:
    """The paths of the logical volume with these UUIDs, active or not; empty if this host does not see it."""
    found = [row for row in rows("lv", "lvs", f"{_UUIDS},lv_path,lv_dm_path") if _uuid(row) == uuid]
    return [row[name] for row in found for name in ("lv_path", "lv_dm_path") if row[name]]


def may_be_shared(group: str) -> bool:
    """True unless all disks below a volume group are of kinds that one machine alone has."""
    devices = [row["pv_name"] for row in rows("vg", "vgs", "pv_name", "--", group)]
    told = command.answer("lsblk", "--inverse", "--list", "--noheadings", "--output", "TYPE,TRAN", *devices)
    disks = [line.split()[1:] for line in told.splitlines() if line.split()[:1] == ["disk"]] if devices else []
    return not disks or any(transport not in _OWN for transport in disks)


def _uuid(row: t.Mapping[str, str]) -> str:
    return LOGICAL + f"{row['vg_uuid']}{row['lv_uuid']}".replace("-", "")


def exists(path: str) -> bool:
    """True if there is a logical volume with this path, active or not."""
    return path.startswith("/dev/") and bool(rows("lv", "lvs", "lv_name", "--", path))


def is_open(path: str) -> bool:
    """True if a process, a filesystem or another device has a logical volume of this machine open."""
    if not path.startswith("/dev/") or not _is_open(path):
        return False
    command.answer("udevadm", "settle", "--timeout=5")  # udev itself looks at what was just written and closed
    return _is_open(path)


def _is_open(path: str) -> bool:
    return any(row["lv_device_open"] for row in rows("lv", "lvs", "lv_device_open", "--", path))


def rows(kind: str, program: str, fields: str, *rest: str) -> list[dict[str, str]]:
    """What `lvs` (kind `lv`) or `vgs` (`vg`) tells, sizes in bytes; empty if nobody may ask."""
    told = command.answer(program, *_FORM, "--options", fields, *rest)
    return [row for report in json.loads(told)["report"] for row in report[kind]] if told else []


def _thin_pool(row: t.Mapping[str, str], volumes: t.Sequence[t.Mapping[str, str]], but: str) -> dict[str, t.Any]:
    size, data = _number(row["lv_size"]), _percent(row["data_percent"])
    if data is not None:
        apart = (
            _number(one["lv_size"]) * (_percent(one["data_percent"]) or 0) for one in volumes if one["lv_name"] == but
        )
        data = max(0.0, data - sum(apart) / size)
    return {
        "name": row["lv_name"],
        "size_bytes": size,
        "virtual_bytes": sum(_number(one["lv_size"]) for one in volumes if one["lv_name"] != but),
        "data_percent": data,
        "metadata_percent": _percent(row["metadata_percent"]),
        "zeroes": bool(row["zero"]),
    }


def _number(size: str) -> int:
    return int(float(size))


def _percent(text: str) -> float | None:
    return float(text) if text else None
