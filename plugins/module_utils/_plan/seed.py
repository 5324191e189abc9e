# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What goes into a NoCloud seed.

Source: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._model.domain import OFFLINE, Seed

__all__ = ["DOCUMENTS", "METHODS", "OFF", "ON_CHANGE", "files", "instance_id", "seed"]

ON_CHANGE = ("ignore", "next_boot", "refuse")
METHODS = ("nocloud", OFFLINE)
DOCUMENTS = ("user_data", "meta_data", "network_config", "vendor_data")
_HEADER = "#cloud-config"
_FIRST_LINE = re.compile(
    r"#!|#include(-once)?\s*$|#part-handler\s*$|#cloud-boothook\s*$|#cloud-config(-archive|-jsonp)?\s*$|## template: "
    r"jinja\s*$"
    r"|(Content-Type|MIME-Version):"
)
_KINDS = ("ed25519", "ecdsa", "rsa")  # of host keys, in the order in which clients like them
OFF = ("false", "no", "off", "0")
# Early at each boot; what it does, it does once. DHCP and the journal tell machines by their ID, and the disk has that
# of the original.
_OWN_MACHINE_ID = """#cloud-boothook
#!/bin/sh
cloud-init-per once machine-id-of-%s sh -c '
  rm -f /etc/machine-id /var/lib/dbus/machine-id
  systemd-machine-id-setup || dbus-uuidgen --ensure=/etc/machine-id
  if [ -d /var/lib/dbus ]; then ln -sf /etc/machine-id /var/lib/dbus/machine-id; fi'
"""


def seed(options: t.Mapping[str, t.Any], *, guest: str) -> Seed:
    """Check and normalise option `cloud_init`; raises BadInput with all problems."""
    problems: list[str] = []
    where = {name: f"cloud_init.{name} of {guest}" for name in DOCUMENTS}
    user_data, config = _document(options.get("user_data"), where["user_data"], problems)
    vendor_data, vendor = _document(options.get("vendor_data"), where["vendor_data"], problems)
    meta_data = _mapping(options.get("meta_data"), where["meta_data"], problems)
    network = _network(options.get("network_config"), where["network_config"], problems)
    method, on_change = options.get("method") or METHODS[0], options.get("on_change") or "ignore"
    if vendor_data.startswith(("Content-Type:", "MIME-Version:")):
        problems.append(
            f"{where['vendor_data']}: it shares its file with the SSH host key; use {_HEADER}-archive instead of MIME"
        )
    if meta_data.get("instance-id") and on_change == "next_boot":
        why = "on_change: next_boot works by a new instance-id; omit the one that never changes"
        problems.append(f"{where['meta_data']}: {why}")
    if method == OFFLINE:
        from ansible_collections.corral.virt.plugins.module_utils._plan import customize

        problems += customize.problems(options, config, meta_data, network, guest=guest)
    keys = _host_keys({**vendor, **config}.get("ssh_keys"), f"ssh_keys in cloud_init of {guest}", problems)
    if not keys and str((_dict(config.get("vendor_data"))).get("enabled")).lower() in OFF:
        why = "vendor_data.enabled: false also disables the SSH host key; omit it, or set ssh_keys"
        problems.append(f"{where['user_data']}: {why}")
    if problems:
        raise BadInput(problems)
    stated = [user_data, meta_data, network, *([vendor_data, method] if vendor_data or method == OFFLINE else [])]
    return Seed(
        user_data=user_data or f"{_HEADER}\n{{}}\n",
        vendor_data=vendor_data,
        config=config,
        vendor_config=vendor,
        meta_data=meta_data,
        network_config=json.dumps(network, sort_keys=True) if network else None,
        on_change=on_change,
        method=method,
        host_keys=keys,
        digest=hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(),
        addresses=tuple(address for address, _given in _addresses(network)),
    )


def instance_id(wanted: Seed, guest: str) -> str:
    """A new one whenever the content changes: that is what makes cloud-init run again.

    A copy's disk may know its name and content already, from a guest that it was copied of.
    """
    digest = wanted.digest
    if wanted.of_a_copy:
        digest = hashlib.sha256(f"{digest}{wanted.of_a_copy}".encode()).hexdigest()
    return str(wanted.meta_data.get("instance-id") or f"{guest}-{digest[:12]}")


def files(wanted: Seed, *, guest: str, host_key: tuple[str, str]) -> dict[str, str]:
    """The seed's files.

    The guest's SSH host key travels as vendor data, so that user data stays as the user wrote it.
    """
    meta_data = {"local-hostname": guest, **wanted.meta_data, "instance-id": instance_id(wanted, guest)}
    private, public = host_key
    ours = {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": private, "ed25519_public": public}}
    result = {
        "user-data": wanted.user_data,
        "meta-data": json.dumps(meta_data, sort_keys=True) + "\n",
        "vendor-data": _vendor_data(wanted, {} if wanted.host_keys else ours),
    }
    if wanted.network_config:
        result["network-config"] = wanted.network_config + "\n"
    return {name: content for name, content in result.items() if content}


def _vendor_data(wanted: Seed, ours: t.Mapping[str, t.Any]) -> str:
    """The user's vendor data and ours: in one cloud-config where that can be.

    Ours is the last line of text after `#cloud-config`.
    """
    parts = []
    if wanted.vendor_data and (not wanted.vendor_config or not ours):
        parts.append(("plain", wanted.vendor_data))
    if ours:
        parts.append(("cloud-config", f"{_HEADER}\n{json.dumps({**wanted.vendor_config, **ours}, sort_keys=True)}\n"))
    if wanted.of_a_copy:
        parts.append(("cloud-boothook", _OWN_MACHINE_ID % wanted.of_a_copy))
    if len(parts) > 1:
        return _mime(parts)
    return parts[0][1] if parts else ""


def _mime(parts: t.Iterable[tuple[str, str]]) -> str:
    """Several documents as one; cloud-init tells the kind of a plain one by its first line.

    A cloud-config-archive, which cloud-init also knows, stops the boot with its release 24.4.
    """
    coded = 'plain; charset="utf-8"\nContent-Transfer-Encoding: base64\n\n'
    written = (
        f"{coded}{base64.encodebytes(text.encode()).decode()}" if kind == "plain" else f"{kind}\n\n{text}"
        for kind, text in parts
    )
    mime = 'Content-Type: multipart/mixed; boundary="corral"\nMIME-Version: 1.0\n\n'
    return f"{mime}{''.join(f'--corral{chr(10)}Content-Type: text/{one}' for one in written)}--corral--\n"


def _document(value: object, what: str, problems: list[str]) -> tuple[str, dict[str, t.Any]]:
    """A cloud-config as JSON, which is YAML, below its header, and what it says; other text as it is."""
    config = value if isinstance(value, dict) else {}
    if isinstance(value, str) and value:
        first, _newline, rest = value.lstrip().partition("\n")
        if first.strip() == _HEADER:
            config = _mapping(rest.strip(), what, problems)
        elif _FIRST_LINE.match(first):
            return value, {}
        else:
            problems.append(
                f"{what}: cloud-init ignores it without a first line such as '{_HEADER}'; add one, or use a mapping"
            )
    elif not isinstance(value, (dict, str)) and value is not None:
        problems.append(f"{what}: must be a mapping or text, not {type(value).__name__}")
    return (f"{_HEADER}\n{json.dumps(config, sort_keys=True)}\n", config) if config else ("", {})


def _mapping(value: object, what: str, problems: list[str]) -> dict[str, t.Any]:
    """A mapping, given as such or as JSON (which is what the controller sends for YAML text)."""
    if value in (None, ""):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            problems.append(f"{what}: must be a mapping, or JSON text (tasks and ansible -m convert YAML to it)")
            return {}
    if isinstance(value, dict):
        return value
    if value is not None:
        problems.append(f"{what}: must be a mapping, not {type(value).__name__}")
    return {}


def _network(value: object, what: str, problems: list[str]) -> dict[str, t.Any]:
    """A network config of version 1 or 2.

    `network:` as the only key is how netplan files and cloud images' docs show it.
    """
    network = _mapping(value, what, problems)
    if set(network) == {"network"}:
        network = _mapping(network["network"], what, problems)
    if not network or network.get("config") == "disabled":
        return network
    if network.get("version") not in (1, 2):
        problems.append(f"{what}: version must be 1 or 2, not {network.get('version')!r}")
    elif network["version"] == 1 and not (
        isinstance(network.get("config"), list) and all(isinstance(i, dict) for i in network["config"])
    ):
        problems.append(f"{what}: version 1 needs config, a list of mappings")
    sections = [name for name in network if name not in ("version", "renderer", "config")]
    wrong = [
        name for name in sections if any(nic is not None and not isinstance(nic, dict) for nic in _nics(network[name]))
    ]
    problems += [f"{what}: {name} must be a mapping of mappings" for name in wrong]
    if not wrong:
        for address, given in _addresses(network):
            try:
                ipaddress.ip_address(address)
            except ValueError:
                problems.append(f"{what}: {given!r} is not an IP address")
    return network


def _nics(section: object) -> t.Iterable[object]:
    return section.values() if isinstance(section, dict) else (section,)


def _dict(value: object) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[t.Any]:
    """Where cloud-init takes one value or a list of them: the list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _addresses(network: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, object]]:
    """Static addresses of a version 1 or 2 network config without their prefix length, and as they are given."""
    nics = [_dict(nic) for kind in ("ethernets", "bonds", "bridges", "vlans") for nic in _nics(network.get(kind))]
    given = [
        next(iter(item), "") if isinstance(item, dict) else item
        for nic in nics
        for item in listed(nic.get("addresses"))
    ]
    subnets = [_dict(one) for entry in listed(network.get("config")) for one in listed(_dict(entry).get("subnets"))]
    for address in [*given, *(one["address"] for one in subnets if one.get("address"))]:
        yield re.sub(r"/\d+$", "", str(address)), address


def _host_keys(value: object, what: str, problems: list[str]) -> dict[str, str]:
    """The private host keys that the user brings by kind, best first."""
    found = {kind: _dict(value).get(f"{kind}_private") for kind in _KINDS}
    keys = {kind: key for kind, key in found.items() if isinstance(key, str)}
    if value not in (None, {}) and not keys:
        problems.append(
            f"{what}: has no private key; set one of {', '.join(f'{kind}_private' for kind in _KINDS)}, or omit it"
        )
    return keys
