# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that exist as files of variables: what a host answered in, YAML out. Pure.

A host may be anybody's: its texts are never templates, and its arguments are those of `virt_domain` or refused.
"""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._variables import (
    Placeholder,
    placeholders,
    untagged,
    word,
    written,
)

__all__ = ["Guest", "differences", "files", "guest", "notes"]

Guest = dict[str, t.Any]

_SECRETS = {"graphics": "password"}  # the secret of each argument that may be withheld


def guest(name: str, answer: t.Mapping[str, t.Any]) -> Guest:
    """The arguments of one guest, with a placeholder for each secret; raises BadInput for an answer that is none."""
    arguments, withheld = answer.get("arguments"), answer.get("withheld_arguments") or {}
    if not isinstance(arguments, dict) or arguments.get("name") != name or not isinstance(withheld, dict):
        raise BadInput(f"cannot import {name}: its host does not answer with arguments of it")
    wrong = ArgumentSpecValidator(GUEST_OPTIONS).validate(untagged({**arguments, **withheld})).error_messages
    if wrong or not set(withheld) <= set(_SECRETS):
        raise BadInput(f"cannot import {name}: its host answers with what are no arguments ({'; '.join(wrong)})")
    variable = f"vault_{word(name)}"
    secrets = {
        option: {**value, _SECRETS[option]: Placeholder.of(f"{variable}_{option}_{_SECRETS[option]}")}
        for option, value in withheld.items()
    }
    return {**untagged(arguments), **untagged(secrets)}


def differences(name: str, compared: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Why the arguments of a guest do not describe it, from what they would do to it."""
    for one in compared.get("results") or ():
        if not isinstance(one, dict) or one.get("name") != name:
            continue
        if one.get("failed"):
            yield f"cannot import {name}: its host refuses the arguments: {one.get('msg')}"
        elif one.get("changed"):
            changes = ", ".join(map(str, (one.get("diff") or {}).get("after") or ())) or "unknown"
            remedy = "name the guests without it: -e guest=..."
            yield f"cannot import {name}: the arguments would change it ({changes}); {remedy}"


def files(guests: t.Sequence[Guest], dest: str, form: str) -> dict[str, str]:
    """Texts by path: one file with `virt_guests`, or a file with `virt_guest` for each guest below `host_vars`."""
    if form == "list":
        return {dest: written({"virt_guests": list(guests)})}
    return {f"{dest.rstrip('/')}/{one['name']}.yml": written({"virt_guest": one}) for one in guests}


def notes(name: str, answer: t.Mapping[str, t.Any], described: Guest) -> list[str]:
    """What is yet to be done for one guest: secrets to set, and what no argument describes."""
    found = [f"{name}: set {variable} (ansible-vault)" for variable in placeholders(described)]
    left = [one for one in answer.get("not_imported") or () if isinstance(one, dict)]
    told_of = {option for option in _SECRETS if isinstance(described.get(option), dict)}
    return found + [
        f"{name}: {one.get('path')}: {one.get('why')}"
        for one in left
        if not any(str(one.get("path")).startswith(f"/domain/devices/{option}") for option in told_of)
    ]
