# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What goes into a NoCloud seed. Source: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Seed

__all__ = ["files", "instance_id", "seed"]

ON_CHANGE = ("ignore", "next_boot", "refuse")
_HEADERS = (
    "#cloud-config",
    "#!",
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "Content-Type:",
    "MIME-Version:",
    "## template:",
)


def seed(options: t.Mapping[str, t.Any], *, guest: str) -> Seed:
    """Check and normalise option `cloud_init`; raises BadInput with all problems."""
    problems: list[str] = []
    user_data = _document(options.get("user_data"), header="#cloud-config\n")
    if user_data and not user_data.startswith(_HEADERS):
        problems.append(f"cloud_init.user_data of {guest}: cloud-init ignores it without a first line such as '#cloud-config'")
    meta_data = _mapping(options.get("meta_data"), f"cloud_init.meta_data of {guest}", problems)
    network = _mapping(options.get("network_config"), f"cloud_init.network_config of {guest}", problems)
    if problems:
        raise BadInput(problems)
    network_text = json.dumps(network, sort_keys=True) if network else None
    spoken = json.dumps([user_data, meta_data, network], sort_keys=True)
    return Seed(
        user_data=user_data or "#cloud-config\n{}\n",
        meta_data=meta_data,
        network_config=network_text,
        on_change=options.get("on_change") or "ignore",
        digest=hashlib.sha256(spoken.encode()).hexdigest(),
        addresses=tuple(_addresses(network)),
    )


def instance_id(wanted: Seed, guest: str) -> str:
    """A new one whenever the content changes: that is what makes cloud-init run again."""
    return str(wanted.meta_data.get("instance-id") or f"{guest}-{wanted.digest[:12]}")


def files(wanted: Seed, *, guest: str, host_key: tuple[str, str]) -> dict[str, str]:
    """The seed's files. The guest's SSH host key travels as vendor data, so that user data stays as the user wrote it."""
    meta_data = {"local-hostname": guest, **wanted.meta_data, "instance-id": instance_id(wanted, guest)}
    private, public = host_key
    vendor_data = {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": private, "ed25519_public": public}}
    result = {
        "user-data": wanted.user_data,
        "meta-data": json.dumps(meta_data, sort_keys=True) + "\n",
        "vendor-data": "#cloud-config\n" + json.dumps(vendor_data) + "\n",
    }
    if wanted.network_config:
        result["network-config"] = wanted.network_config + "\n"
    return result


def _document(value: object, *, header: str) -> str:
    """Text as it is; a mapping as JSON, which is YAML, below its header."""
    if value in (None, ""):
        return ""
    if isinstance(value, str):
        return value
    return header + json.dumps(value, sort_keys=True) + "\n"


def _mapping(value: object, what: str, problems: list[str]) -> dict[str, t.Any]:
    """A mapping, given as such or as JSON (which is what the controller sends for YAML text)."""
    if value in (None, ""):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            problems.append(f"{what}: must be a mapping or JSON text on the host")
            return {}
    if not isinstance(value, dict):
        problems.append(f"{what}: must be a mapping, not {type(value).__name__}")
        return {}
    # `network:` as the only key is how netplan files and cloud images' docs show it.
    return t.cast("dict[str, t.Any]", value.get("network", value) if set(value) == {"network"} else value)


def _addresses(network: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Static addresses of a version 1 or 2 network config, without their prefix length."""
    nics = [nic for kind in ("ethernets", "bonds", "bridges", "vlans") for nic in (network.get(kind) or {}).values()]
    for nic in nics:
        for item in nic.get("addresses") or []:
            yield re.sub(r"/.*", "", str(next(iter(item), "") if isinstance(item, dict) else item))
    for entry in network.get("config") or []:
        for subnet in entry.get("subnets") or []:
            if subnet.get("address"):
                yield re.sub(r"/.*", "", str(subnet["address"]))
