# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What the user says of one migration: the options, what cannot be meant, and how it is handed on."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _units
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.move import COPIED, Tuning
from ansible_collections.corral.virt.plugins.module_utils._model.room import reserve_of
from ansible_collections.corral.virt.plugins.module_utils._plan.convergence import SCHEDULES

__all__ = ["OPTIONS", "check", "dest_uri", "tuning"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "dest": {"type": "str", "required": True},
    "dest_uri": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "aborted"], "default": "present"},
    "transport": {"type": "str", "choices": ["tls", "tunnelled", "plain"], "default": "tls"},
    "storage": {"type": "str", "choices": ["auto", "shared", "delta", "full"], "default": "auto"},
    "disk_storage": {"type": "dict", "default": {}},
    "bandwidth": {"type": "int"},
    "max_downtime": {"type": "int"},
    "auto_converge": {"type": "bool", "default": True},
    "postcopy": {"type": "bool", "default": False},
    "postcopy_after": {"type": "int"},
    "postcopy_after_passes": {"type": "int", "no_log": False},
    "parallel": {"type": "int"},
    "compression": {"type": "list", "elements": "str", "choices": ["xbzrle", "zlib", "zstd"], "default": []},
    "schedule": {"type": "str", "choices": sorted(SCHEDULES)},
    "timeout": {"type": "int", "default": 1800},
    "timeout_action": {"type": "str", "choices": ["abort", "suspend", "postcopy"], "default": "abort"},
    "stall_timeout": {"type": "int", "default": 120},
    "keep_source_storage": {"type": "bool", "default": False},
    "reserve": {"type": "str"},
    "assume_images": {"type": "bool", "default": False},
}


def dest_uri(params: t.Mapping[str, t.Any]) -> str:
    """Where the destination's libvirt is, as the source reaches it."""
    return params["dest_uri"] or f"qemu+tls://{params['dest']}/system"


def check(params: t.Mapping[str, t.Any]) -> str:
    """The guest's name; raises BadInput with everything that is wrong."""
    problems = []
    for key in ("name", "dest"):
        try:
            _units.check_name(params[key], what=key)
        except BadInput as error:
            problems += error.problems
    try:
        reserve_of(params["reserve"])
    except BadInput as error:
        problems += error.problems
    numbers = ("bandwidth", "max_downtime", "timeout", "stall_timeout", "postcopy_after", "postcopy_after_passes", "parallel")
    problems += [f"{key}: must be at least 1, not {params[key]}" for key in numbers if params[key] is not None and params[key] < 1]
    modes = OPTIONS["storage"]["choices"]
    wrong = {key: value for key, value in params["disk_storage"].items() if value not in modes}
    problems += [f"disk_storage: {key} cannot be {value!r}; one of {', '.join(modes)}" for key, value in wrong.items()]
    after = [key for key in ("postcopy_after", "postcopy_after_passes") if params[key] is not None]
    copies = [mode for mode in (params["storage"], *params["disk_storage"].values()) if mode in COPIED]
    tunnelled = params["transport"] == "tunnelled"
    switches = [key for key in ("schedule", "timeout_action") if params[key] == "postcopy"] + ["postcopy"] * params["postcopy"]
    rules = {
        "transport: a tunnel carries no storage copy; use tls, or shared storage": tunnelled and copies,
        "parallel: a tunnel has one connection; use tls, or leave it out": tunnelled and params["parallel"],
        f"{' and '.join(switches)}: a tunnel cannot carry post-copy; use tls, or leave it out": tunnelled and switches,
        f"{' and '.join(after)}: they say when postcopy follows; set postcopy: true": after and not params["postcopy"],
        "compression: zlib and zstd are for parallel connections; give parallel": (
            {"zlib", "zstd"} & set(params["compression"]) and not params["parallel"]
        ),
        "compression: zlib and zstd do not go together; leave out one": {"zlib", "zstd"} <= set(params["compression"]),
        "compression: xbzrle does not go with parallel; leave out one": "xbzrle" in params["compression"] and params["parallel"],
    }
    problems += [text for text, met in rules.items() if met]
    if problems:
        raise BadInput(problems)
    return t.cast(str, params["name"])


def tuning(params: t.Mapping[str, t.Any]) -> Tuning:
    """How a running guest is sent."""
    return Tuning(
        transport=params["transport"],
        bandwidth_mib_s=params["bandwidth"],
        max_downtime_ms=params["max_downtime"],
        auto_converge=params["auto_converge"],
        postcopy=params["postcopy"],
        postcopy_after_s=params["postcopy_after"],
        postcopy_after_passes=params["postcopy_after_passes"],
        parallel=params["parallel"],
        compression=tuple(params["compression"]),
        schedule=params["schedule"],
        timeout_s=params["timeout"],
        timeout_action=params["timeout_action"],
        stall_timeout_s=params["stall_timeout"],
    )
