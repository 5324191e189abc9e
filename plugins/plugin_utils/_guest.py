# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must happen on the controller before guests are described to a host. Pure."""

from __future__ import annotations

import json
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._plan.seed import DOCUMENTS

__all__ = ["PROFILES", "Told", "merged", "prepared", "with_profiles"]

Told = dict[int, dict[str, t.Any]]  # results of guests that the host does not work on, by their place in the list

_HEADER = "#cloud-config\n"
_OPTIONS_OF = {"nic_profile": ("interfaces", "virt_nic_profiles"), "disk_profile": ("disks", "virt_disk_profiles")}
PROFILES = tuple(variable for _items, variable in _OPTIONS_OF.values())  # variables that hold profiles


def with_profiles(guest: t.Mapping[str, t.Any], variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its profiles put into `interfaces` and `disks`: by item name, what the guest says itself
    goes before.

    `variables` holds the lists of each profile. Raises ValueError with every problem.
    """
    options, problems = dict(guest), []
    if "networks" in options and options.get("nic_profile"):
        options["interfaces"] = options.pop("networks")
    for option, (items, variable) in _OPTIONS_OF.items():
        wanted = options.pop(option, None)
        if wanted in (None, ""):
            continue
        known = variables.get(variable) or {}
        if not isinstance(known, dict) or wanted not in known:
            names = ", ".join(sorted(map(str, known))) if isinstance(known, dict) and known else "none"
            problems.append(f"{option} of {guest.get('name')}: {variable} has no profile {wanted!r}; known: {names}")
            continue
        merged: dict[str, dict[str, t.Any]] = {}
        for where, entries in (
            (f"{variable}[{wanted}]", known[wanted]),
            (f"{items} of {guest.get('name')}", options.get(items) or []),
        ):
            if not isinstance(entries, list):
                problems.append(f"{where}: must be a list of dictionaries")
                continue
            for index, item in enumerate(entries):
                if not isinstance(item, dict) or not item.get("name"):
                    problems.append(
                        f"{where}: item {index + 1} has no name; items of profile and guest are matched by name"
                    )
                else:
                    merged[item["name"]] = {**merged.get(item["name"], {}), **item}
        options[items] = list(merged.values())
    if problems:
        raise ValueError("; ".join(problems))
    return options


def prepared(guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The guest's options with its cloud-init documents as JSON, which is YAML too.

    Hosts need no YAML library then, and a document is one secret instead of a hundred words to be hidden. Raises
    ValueError with every problem.
    """
    options, problems = dict(guest), list[str]()
    seed = options.get("cloud_init")
    if not isinstance(seed, dict):
        return options
    options["cloud_init"] = {
        key: _sent(key, value, f"cloud_init.{key} of {options.get('name')}", problems) if key in DOCUMENTS else value
        for key, value in seed.items()
    }
    if problems:
        raise ValueError("; ".join(problems))
    return options


def merged(decided: Told, made: t.Mapping[str, t.Any] | None) -> dict[str, t.Any]:
    """One result for the guests that were worked on and those that were not.

    `made` is the module's, None where it was not needed.
    """
    if made is not None and "results" not in made:
        return dict(made)  # it refused all
    results = list(made["results"]) if made else []
    for place in sorted(decided):
        results.insert(place, {key: value for key, value in decided[place].items() if key != "failed" or value})
    failed = [one["msg"] for one in decided.values() if one["failed"]]
    told_by_module = [made["msg"]] if made and made.get("msg") else []
    return {
        "changed": False,
        "steps": [],
        "pending": {},
        **(made or {}),
        "results": results,
        "failed": bool(failed or (made and made.get("failed"))),
        "msg": "; ".join([*told_by_module, *failed] or [one["msg"] for one in decided.values()]),
    }


def _sent(document: str, value: object, what: str, problems: list[str]) -> object:
    """A document as the host reads it; text that is no cloud-config (a script, a template) as it is."""
    header = _HEADER if document in ("user_data", "vendor_data") else ""
    if isinstance(value, str):
        first, _newline, rest = value.lstrip().partition("\n")
        if header and first.strip() != header.strip():
            return value
        try:
            value = yaml.safe_load(rest if header else value) or {}
        except yaml.YAMLError as error:
            problems.append(f"{what}: cannot be read as YAML: {_place(error)}")
            return value
    return (
        value if value is None else header + json.dumps(value, sort_keys=True, default=str) + ("\n" if header else "")
    )


def _place(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the text itself, which may be secret."""
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{getattr(error, 'problem', None) or type(error).__name__}{where}"
