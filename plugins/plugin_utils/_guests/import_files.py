# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Existing guests as files of variables, from a host's answer. Pure.

A host may be anybody's: its texts are never templates, and its arguments must be valid for `virt_domain`.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_existing_name
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import (
    Placeholder,
    placeholders,
    untagged,
    word,
    written,
)

Guest = dict[str, t.Any]

_ORDERS = {
    "state", "apply", "allow_restart", "force", "force_off", "remove_storage", "keep_shared", "keep_removed_h", "wait",
    "wait_timeout", "wait_for_ip", "renamed_from", "clone_of", "cloud_init", "image", "nic_profile", "disk_profile",
}  # fmt: skip
_MAKING = {"image", "image_pool", "clone", "size", "pool", "thin_pool"}
_SECRETS = {"graphics": "password"}  # the secret of each argument that may be withheld


def guest(name: str, answer: t.Mapping[str, t.Any]) -> Guest:
    """The arguments of one guest, with a placeholder for each secret; raises BadInput for an invalid answer."""
    arguments, withheld = answer.get("arguments"), answer.get("withheld_arguments") or {}
    check_existing_name(name, what="guest")
    if answer and arguments is None:
        reasons = "; ".join(str(one.get("why")) for one in _not_imported(answer))
        raise BadInput(f"cannot import {name}: its host cannot describe it ({reasons})")
    if not isinstance(arguments, dict) or arguments.get("name") != name or not isinstance(withheld, dict):
        raise BadInput(f"cannot import {name}: its host returned no arguments for it")
    wrong = ArgumentSpecValidator(GUEST_OPTIONS).validate(untagged({**arguments, **withheld})).error_messages
    wrong += [f"{option} does not describe an existing guest" for option in sorted(_orders(arguments))]
    if wrong or not set(withheld) <= set(_SECRETS):
        raise BadInput(f"cannot import {name}: its host returned invalid arguments ({'; '.join(wrong)})")
    variable = f"vault_{word(name)}"
    secrets = {
        option: {**value, _SECRETS[option]: Placeholder.of(f"{variable}_{option}_{_SECRETS[option]}")}
        for option, value in withheld.items()
    }
    return {**untagged(arguments), **untagged(secrets)}


def _orders(arguments: t.Mapping[str, t.Any]) -> set[str]:
    """Options in a host's answer that would change or create something instead of describing the guest."""
    disks = [one for one in arguments.get("disks") or () if isinstance(one, dict)]
    making = {f"disks[].{option}" for disk in disks for option in _MAKING.intersection(disk)}
    return _ORDERS.intersection(arguments) | making


def twins(chosen: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[str]:
    """Problems of names that guests on several hosts share: their variables would be the same."""
    by_name: dict[str, list[str]] = {}
    for one in chosen:
        by_name.setdefault(one["name"], []).append(one["host"])
    for name, those in by_name.items():
        if len(those) > 1:
            hosts = " and ".join(sorted(those))
            yield f"cannot import {name}: {hosts} each have a guest of that name; exclude one: --limit"


def differences(name: str, compared: t.Mapping[str, t.Any] | None) -> t.Iterator[str]:
    """Why the arguments do not describe the guest, from a check of their changes; empty if `compared` is None."""
    if compared is None:
        return
    results = compared.get("results") or ()
    answer = [one for one in results if isinstance(one, dict) and one.get("name") == name]
    if not answer:
        yield f"cannot import {name}: its host did not check whether the arguments would change it"
    for one in answer:
        if one.get("failed"):
            yield f"cannot import {name}: its host refuses the arguments: {one.get('msg')}"
        elif one.get("changed"):
            changes = ", ".join(map(str, (one.get("diff") or {}).get("after") or ())) or "unknown"
            remedy = "name the guests without it: -e guest=..."
            yield f"cannot import {name}: the arguments would change it ({changes}); {remedy}"


def files(guests: t.Sequence[Guest], dest: str, form: str) -> dict[str, str]:
    """Texts by path: one file with `virt_guests`, or a file with `virt_guest` for each guest below `dest`."""
    if form == "list":
        return {dest: written({"virt_guests": list(guests)})}
    return {f"{dest.rstrip('/')}/{one['name']}.yml": written({"virt_guest": one}) for one in guests}


def notes(name: str, answer: t.Mapping[str, t.Any], described: Guest) -> list[str]:
    """What remains to be done for one guest: secrets to set, and what no argument describes."""
    found = [f"{name}: set {variable} (ansible-vault)" for variable in placeholders(described)]
    withheld = answer.get("withheld_arguments") or {}
    return found + [
        f"{name}: {one.get('path')}: {one.get('why')}"
        for one in _not_imported(answer)
        if one.get("option") not in withheld
    ]


def _not_imported(answer: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    return [one for one in answer.get("not_imported") or () if isinstance(one, dict)]
