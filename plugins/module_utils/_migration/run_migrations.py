# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Migrate many guests from a host: all checked first, then a few at a time, with one result for all."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._guest import run_guests
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import check_all
from ansible_collections.corral.virt.plugins.module_utils._migration.run_migration_options import (
    OPTIONS as OPTIONS_OF_ONE,
)

OPTIONS: dict[str, t.Any] = {
    "guests": {"type": "list", "elements": "dict", "required": True},
    "options": {"type": "dict", "default": {}},
    "at_once": {"type": "int", "default": 2},
}

MigrateParams = dict[str, t.Any]  # options of virt_migrate


def requested(params: t.Mapping[str, t.Any]) -> list[MigrateParams]:
    """The virt_migrate options of each guest; raises BadInput with the problems of all."""
    asked = [ArgumentSpecValidator(OPTIONS_OF_ONE).validate({**params["options"], **item}) for item in params["guests"]]
    found = [answer.validated_parameters for answer in asked]
    names = [item.get("name") for item in params["guests"]]
    check_all(list(zip(names, found, (answer.error_messages for answer in asked))), params["at_once"])
    return found


def each(
    wanted: t.Sequence[MigrateParams], at_once: int, move: t.Callable[[MigrateParams], dict[str, t.Any]]
) -> list[dict[str, t.Any]]:
    """A result for each guest, started in the given order; a failure does not stop the others."""
    return run_guests.outcomes(wanted, move, lambda one: {"name": one["name"], "dest": one["dest"]}, at_once=at_once)


def summary(results: t.Sequence[dict[str, t.Any]]) -> dict[str, t.Any]:
    """The module's result: changed if one guest changed, failed with all reasons if one failed."""
    failed = [one for one in results if one.get("failed")]
    return {
        "changed": any(one["changed"] for one in results),
        "results": list(results),
        "steps": [step for one in results for step in one["steps"]],
        "diff": run_guests.diffs(results),
        **({"failed": True, "msg": "; ".join(str(one["msg"]) for one in failed)} if failed else {}),
    }
