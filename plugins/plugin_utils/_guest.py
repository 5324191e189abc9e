# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must happen on the controller before guests are described to a host. Pure."""

from __future__ import annotations

import json
import typing as t

import yaml

__all__ = ["prepared", "with_profiles"]

_PROFILES = {"nic_profile": ("interfaces", "virt_nic_profiles"), "disk_profile": ("disks", "virt_disk_profiles")}


def with_profiles(guest: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its profiles put into `interfaces` and `disks`: by item name, what the guest says itself goes before.

    `variables` holds the lists of each profile. Raises ValueError with every problem.
    """
    options, problems = dict(guest), []
    if "networks" in options and options.get("nic_profile"):
        options["interfaces"] = options.pop("networks")
    for option, (items, variable) in _PROFILES.items():
        wanted = options.pop(option, None)
        if wanted in (None, ""):
            continue
        known = variables.get(variable) or {}
        if not isinstance(known, dict) or wanted not in known:
            names = ", ".join(sorted(map(str, known))) if isinstance(known, dict) and known else "none"
            problems.append(f"{option} of {guest.get('name')}: there is no profile {wanted!r} in {variable}; known: {names}")
            continue
        merged: dict[str, dict[str, t.Any]] = {}
        for where, entries in ((f"{variable}[{wanted}]", known[wanted]), (f"{items} of {guest.get('name')}", options.get(items) or [])):
            if not isinstance(entries, list):
                problems.append(f"{where}: must be a list of dictionaries")
                continue
            for index, item in enumerate(entries):
                if not isinstance(item, dict) or not item.get("name"):
                    problems.append(f"{where}: item {index + 1} has no name; names are how the items of profile and guest are matched")
                else:
                    merged[item["name"]] = {**merged.get(item["name"], {}), **item}
        options[items] = list(merged.values())
    if problems:
        raise ValueError("; ".join(problems))
    return options


def prepared(guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its cloud-init documents as texts.

    Hosts need no YAML library then, and a document is one secret instead of a hundred words to be hidden from every log. Raises
    ValueError with object and reason.
    """
    options = dict(guest)
    seed = options.get("cloud_init")
    if not isinstance(seed, dict):
        return options
    seed = dict(seed)
    if isinstance(seed.get("user_data"), (dict, list)):
        seed["user_data"] = "#cloud-config\n" + json.dumps(seed["user_data"], sort_keys=True) + "\n"
    for key in ("meta_data", "network_config"):
        if isinstance(seed.get(key), str):
            seed[key] = _read(seed[key], f"cloud_init.{key} of {options.get('name')}")
        if isinstance(seed.get(key), (dict, list)):
            seed[key] = json.dumps(seed[key], sort_keys=True)
    options["cloud_init"] = seed
    return options


def _read(text: str, what: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{what}: cannot be read as YAML: {error}") from error
