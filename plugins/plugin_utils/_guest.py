# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must happen on the controller before guests are described to a host. Pure."""

from __future__ import annotations

import json
import typing as t

import yaml

__all__ = ["prepared"]


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
