# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a migration: contradictions, and what follows from them. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, tls
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPIED,
    DELTA,
    FULL,
    SHARED,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import reserve_of

MODES = ("auto", SHARED, DELTA, FULL)  # of option `storage`

MigrateParams = t.Mapping[str, t.Any]  # options of virt_migrate


def dest_uri(params: MigrateParams) -> str:
    """The URI of the destination's libvirt, as the source reaches it."""
    return t.cast(str, params["dest_uri"] or tls(params["dest"]))


def dest_links(params: MigrateParams, listed: frozenset[str] | None) -> frozenset[str] | None:
    """Network interfaces of the destination: from the option, else as its libvirt lists them; None if unknown."""
    return listed if params["dest_links"] is None else frozenset(params["dest_links"])


def check(params: MigrateParams) -> str:
    """The guest's name; raises BadInput with every problem of the options."""
    problems = _problems(params)
    if problems:
        raise BadInput(problems)
    return t.cast(str, params["name"])


_FROM_ONE = (
    *("bandwidth", "max_downtime", "timeout", "stall_timeout"),
    *("postcopy_after", "postcopy_after_passes", "parallel"),
)


def _problems(params: MigrateParams) -> list[str]:
    problems: list[str] = []
    for key, check_named in (("name", units.check_existing_name), ("dest", units.check_name)):
        try:
            check_named(params[key], what=key)
        except BadInput as error:
            problems += error.problems
    try:
        reserve_of(params["reserve"])
    except BadInput as error:
        problems += error.problems
    low = [key for key in _FROM_ONE if params[key] is not None and params[key] < 1]
    problems += [f"{key}: must be at least 1, not {params[key]}" for key in low]
    wrong = {key: value for key, value in params["disk_storage"].items() if value not in MODES}
    problems += [
        f"disk_storage: {key} cannot be {value!r}; choose one of {', '.join(MODES)}" for key, value in wrong.items()
    ]
    unnamed = [key for key, value in params["disk_pool"].items() if not (isinstance(value, str) and value)]
    problems += [f"disk_pool: {key} must be the name of a storage pool" for key in unnamed]
    problems += ["pool: must be the name of a storage pool"] * (params["pool"] == "")
    return problems + _contradictions(params)


def _contradictions(params: MigrateParams) -> list[str]:
    after = [key for key in ("postcopy_after", "postcopy_after_passes") if params[key] is not None]
    copies = [mode for mode in (params["storage"], *params["disk_storage"].values()) if mode in COPIED]
    tunnelled = params["transport"] == "tunnelled"
    switches = [key for key in ("schedule", "timeout_action") if params[key] == "postcopy"]
    switches += ["postcopy"] * params["postcopy"]
    rules = {
        "transport: a tunnel cannot carry a storage copy; use tls, or shared storage": tunnelled
        and (copies or params["disk_pool"]),
        "dest_gone: valid only with state: aborted, which ends what was begun": params["dest_gone"]
        and params["state"] != "aborted",
        "parallel: a tunnel has one connection; use tls, or omit it": tunnelled and params["parallel"],
        f"{' and '.join(switches)}: a tunnel cannot carry post-copy; use tls, or omit it": tunnelled and switches,
        f"{' and '.join(after)}: valid only with postcopy: true": after and not params["postcopy"],
        "compression: zlib and zstd require parallel connections; set parallel": (
            {"zlib", "zstd"} & set(params["compression"]) and not params["parallel"]
        ),
        "compression: zlib and zstd are mutually exclusive; omit one": {"zlib", "zstd"} <= set(params["compression"]),
        "compression: xbzrle and parallel are mutually exclusive; omit one": "xbzrle" in params["compression"]
        and params["parallel"],
    }
    return [text for text, met in rules.items() if met]


def check_local(name: str, uri: str) -> None:
    """Raise BadInput unless the source is this host: only it can tell what a migration must know."""
    if not is_here(uri):
        raise BadInput(
            f"uri: {name} can be migrated only by the host that has it; run this there (delegate_to) with a local uri"
        )


def check_all(guests: t.Sequence[tuple[t.Any, MigrateParams, t.Sequence[str]]], at_once: int) -> None:
    """Check the options of several guests: names as given, options, and Ansible's errors.

    Raises BadInput with the problems of all.
    """
    names = [name for name, _wish, _errors in guests]
    problems = [f"guests: {name}: {text}" for name, params, errors in guests for text in errors or _problems(params)]
    problems += [
        f"guests: {name} is given twice" for name in sorted({str(name) for name in names if names.count(name) > 1})
    ]
    if at_once < 1:
        problems.append(f"at_once: must be at least 1, not {at_once}")
    if problems:
        raise BadInput(problems)


def tuning(params: MigrateParams) -> Tuning:
    """How a running guest is sent, from the options."""
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
