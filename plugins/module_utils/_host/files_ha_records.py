# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host notes of its protected guests (`corral-keep`), and of the fence devices of others (`corral-cluster`)."""

from __future__ import annotations

import json
import typing as t

PATH = "/var/lib/libvirt/corral-protected.json"
FENCING = "/var/lib/corral-virt/cluster/fencing.json"


def kept(path: str = PATH) -> dict[str, dict[str, t.Any]]:
    """By UUID, where the definition of a guest is kept (`directory`), who owns it, the `resource` of Pacemaker, the
    `problem`, and the `history` of owners, the oldest first; a text that does not apply is empty.
    """
    return of_guests(_read(path))


def of_guests(found: t.Mapping[str, t.Any]) -> dict[str, dict[str, t.Any]]:
    """What `guests` returns, from the content of such a file."""
    return {uuid: _guest(one) for uuid, one in found.items()}


def _guest(one: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    texts = {key: str(one.get(key) or "") for key in ("directory", "owner", "resource", "problem")}
    history = [{key: str(each.get(key, "")) for key in ("at", "from", "to", "why")} for each in one.get("history", [])]
    return {**texts, "history": history}


def fencing(path: str = FENCING) -> dict[str, t.Any] | None:
    """When the devices were `tested`, and by member whether that `ok`, what it `says`, and `why` it is of no use.

    None if the host is in no cluster.
    """
    found = _read(path)
    return of_devices(found) if found else None


def of_devices(found: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What `devices` returns, from the content of such a file."""
    devices = {
        name: {"ok": bool(one.get("ok")), **{key: str(one.get(key) or "") for key in ("says", "why")}}
        for name, one in found["devices"].items()
    }
    return {"tested": str(found["tested"]), "devices": devices}


def _read(path: str) -> dict[str, t.Any]:
    """The content of a file, which is replaced whole; nothing if there is none that this user may read."""
    try:
        with open(path, encoding="utf-8") as stream:
            return dict(json.load(stream))
    except (FileNotFoundError, PermissionError):
        return {}
