# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The content of a NoCloud seed.

Source: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.yaml_text import unkept, yaml_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import OFFLINE, Seed
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_customize
from ansible_collections.corral.virt.plugins.module_utils._seed.plan_customize import listed

ON_CHANGE = ("ignore", "next_boot", "refuse")
METHODS = ("nocloud", OFFLINE)
DOCUMENTS = ("user_data", "meta_data", "network_config", "vendor_data")
_HEADER = "#cloud-config"
# The beginnings that cloud-init and cloudbase-init take, in any case, with words after them.
_FIRST_LINE = re.compile(
    r"#!|## template: jinja\b|(#include(-once)?|#part-handler|#cloud-boothook|#cloud-config(-archive|-jsonp)?"
    r"|#ps1(_sysnative|_x86)?|rem cmd)(\s|$)|<(powershell|script)>|(Content-Type|MIME-Version):",
    re.IGNORECASE,
)
_CLOUD_CONFIG = re.compile(rf"{_HEADER}(\s|$)", re.IGNORECASE)
_MIME_BEGIN = 4096  # characters within which cloud-init looks for a MIME-Version
# A cloud-config as the controller sends it: the user's text, and what it says.
_SENT = "#corral-sent\n"
_MAC = re.compile(r"([0-9a-f]{2}:){5}(([0-9a-f]{2}:){14})?[0-9a-f]{2}", re.IGNORECASE)  # InfiniBand: twenty octets
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
    if _is_mime(vendor_data):
        problems.append(
            f"{where['vendor_data']}: it shares its file with the SSH host key and cannot be MIME; "
            f"write it as {_HEADER}, or give MIME in user_data"
        )
    problems += _instance_id_problems(meta_data, on_change, where["meta_data"])
    if method == OFFLINE:
        problems += plan_customize.problems(options, config, meta_data, network, guest=guest)
    keys = _host_keys({**vendor, **config}.get("ssh_keys"), f"ssh_keys in cloud_init of {guest}", problems)
    if not keys and str((_dict(config.get("vendor_data"))).get("enabled")).lower() in OFF:
        why = "vendor_data.enabled: false also disables the SSH host key; omit it, or set ssh_keys"
        problems.append(f"{where['user_data']}: {why}")
    if problems:
        raise BadInput(problems)
    stated = [_cloud_config(config) or user_data, meta_data, network]
    stated += [vendor_data, method] if vendor_data or method == OFFLINE else []
    return Seed(
        user_data=user_data or f"{_HEADER}\n{{}}\n",
        vendor_data=vendor_data,
        config=config,
        vendor_config=vendor,
        meta_data=meta_data,
        network_config=yaml_text(network) if network else None,
        on_change=on_change,
        method=method,
        host_keys=keys,
        digest=hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest(),
        addresses=tuple(address for address, _given in _addresses(network)),
    )


def _instance_id_problems(meta_data: t.Mapping[str, t.Any], on_change: str, what: str) -> t.Iterator[str]:
    if meta_data.get("instance-id") and on_change == "next_boot":
        yield f"{what}: on_change: next_boot works by a new instance-id; omit the one that never changes"


def instance_id(wanted: Seed, guest: str) -> str:
    """The instance-id, a new one for each content: cloud-init then runs again.

    A copied disk may already know the ID of the same name and content, so a copy's has a part of its own.
    """
    digest = wanted.digest
    if wanted.of_a_copy:
        digest = hashlib.sha256(f"{digest}{wanted.of_a_copy}".encode()).hexdigest()
    return str(wanted.meta_data.get("instance-id") or f"{guest}-{digest[:12]}")


def files(wanted: Seed, *, guest: str, host_key: tuple[str, str]) -> dict[str, str]:
    """The seed's files.

    The guest's SSH host key is in the vendor data, so that user data stays as the user wrote it.
    """
    meta_data = {"local-hostname": guest, **wanted.meta_data, "instance-id": instance_id(wanted, guest)}
    private, public = host_key
    ours = {"ssh_deletekeys": True, "ssh_keys": {"ed25519_private": private, "ed25519_public": public}}
    result = {
        "user-data": wanted.user_data,
        "meta-data": yaml_text(meta_data) + "\n",
        "vendor-data": _vendor_data(wanted, {} if wanted.host_keys else ours),
    }
    if wanted.network_config:
        result["network-config"] = wanted.network_config + "\n"
    return {name: content for name, content in result.items() if content}


def _vendor_data(wanted: Seed, ours: t.Mapping[str, t.Any]) -> str:
    """The user's vendor data and ours, in one cloud-config if possible.

    Ours is the last line of text after `#cloud-config`.
    """
    parts = []
    if wanted.vendor_data and (not wanted.vendor_config or not ours):
        parts.append(("plain", wanted.vendor_data))
    if ours:
        parts.append(("cloud-config", _cloud_config({**wanted.vendor_config, **ours})))
    if wanted.of_a_copy:
        parts.append(("cloud-boothook", _OWN_MACHINE_ID % wanted.of_a_copy))
    if len(parts) > 1:
        return _mime(parts)
    return parts[0][1] if parts else ""


def _mime(parts: t.Iterable[tuple[str, str]]) -> str:
    """Several documents as one MIME message; cloud-init tells the kind of a plain one by its first line.

    A cloud-config-archive, which cloud-init also knows, stops the boot with its release 24.4.
    """
    coded = 'plain; charset="utf-8"\nContent-Transfer-Encoding: base64\n\n'
    written = (
        f"{coded}{base64.encodebytes(text.encode()).decode()}" if kind == "plain" else f"{kind}\n\n{text}"
        for kind, text in parts
    )
    mime = 'Content-Type: multipart/mixed; boundary="corral"\nMIME-Version: 1.0\n\n'
    return f"{mime}{''.join(f'--corral{chr(10)}Content-Type: text/{one}' for one in written)}--corral--\n"


def is_cloud_config(text: str) -> bool:
    """True if cloud-init reads a text as a cloud-config."""
    return bool(_CLOUD_CONFIG.match(text.lstrip()))


def sent(text: str, config: object) -> str:
    """A cloud-config for the host, which has no YAML library: the user's text, and its content as JSON."""
    return _SENT + json.dumps({"text": text, "config": config}, sort_keys=True)


def _received(value: str, what: str, problems: list[str]) -> tuple[str, dict[str, t.Any]]:
    """Text and content of a document from `sent`; a user's own text may begin like one."""
    try:
        found = json.loads(value[len(_SENT) :])
        text, config = str(found["text"]), found["config"]
    except (ValueError, TypeError, KeyError, RecursionError):
        problems.append(f"{what}: {_unknown_text(value)}")
        return "", {}
    return text, _mapping(config, what, problems)


def _document(value: object, what: str, problems: list[str]) -> tuple[str, dict[str, t.Any]]:
    """A document's text for the seed, and its content if it is a cloud-config."""
    if isinstance(value, str) and value.startswith(_SENT):
        text, config = _received(value, what, problems)
        return (text, config) if config else ("", {})
    config = value if isinstance(value, dict) else {}
    if isinstance(value, str) and value:
        if is_cloud_config(value):
            config = _mapping(value.lstrip().partition("\n")[2].strip(), what, problems)
        elif _FIRST_LINE.match(value.lstrip()) or _is_mime(value):
            problems += [f"{what}: {reason}" for reason in unkept(value)]
            return value, {}
        else:
            problems.append(f"{what}: {_unknown_text(value)}")
    elif isinstance(value, dict):
        config = _mapping(value, what, problems)
    elif not isinstance(value, str) and value is not None:
        problems.append(f"{what}: must be a mapping or text, not {type(value).__name__}")
    if config.keys() & {"ignition", "variant"}:
        problems.append(f"{what}: {_IGNITION}")
    return _cloud_config(config), config


_IGNITION = "it is an Ignition or Butane config, which cloud-init does not read; use an image with cloud-init"


def _unknown_text(value: str) -> str:
    if re.match(r'\{\s*"ignition"|variant:', value.lstrip()):
        return _IGNITION
    return f"cloud-init ignores it without a first line such as '{_HEADER}'; add one, or use a mapping"


def _is_mime(text: str) -> bool:
    """True if cloud-init parses the text as a MIME message: the header need not come first."""
    begin = text[:_MIME_BEGIN].lower()
    return begin.lstrip().startswith("content-type:") or re.search(r"^mime-version:", begin, re.MULTILINE) is not None


def _cloud_config(config: t.Mapping[str, t.Any]) -> str:
    """The text of a cloud-config; empty without content."""
    return f"{_HEADER}\n{yaml_text(config)}\n" if config and not [*unkept(config)] else ""


def _mapping(value: object, what: str, problems: list[str]) -> dict[str, t.Any]:
    """A mapping, from a mapping or from JSON (which the controller sends for YAML text)."""
    if value in (None, ""):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            problems.append(f"{what}: must be a mapping, or JSON text (tasks and ansible -m convert YAML to it)")
            return {}
    if isinstance(value, dict):
        problems += [f"{what}: {reason}" for reason in unkept(value)]
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
        problems += [f"{what}: {reason}" for reason in _wrong_addresses(network)]
    return network


def _wrong_addresses(network: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Invalid IP addresses and MACs. YAML reads some unquoted MACs as numbers."""
    for address, given in _addresses(network):
        if not _is_ip(address):
            yield f"{given!r} is not an IP address"
    for place, key, value in _scalars(network):
        if key in _MAC_KEYS and not _is_mac(value):
            yield f"{place}: {value!r} is not a MAC address such as '52:54:00:12:34:56'; write it in quotes"
        elif key in _IP_KEYS and value not in _WORDS and not all(map(_is_ip, _ips_in(value))):
            yield f"{place}: {value!r} is not an IP address; write it in quotes"


_MAC_KEYS = ("macaddress", "mac_address")
_IP_KEYS = ("gateway", "gateway4", "gateway6", "via", "to", "dns_nameservers", "nameservers.addresses")
_WORDS = ("default", "random", "permanent", "preserve", "stable", None)  # that stand instead of addresses


def _ips_in(value: object) -> list[str]:
    """IP addresses in a value, without prefix length and TLS server name."""
    return [re.sub(r"(/\d+|#.*)$", "", word) for word in re.split(r"[\s,]+", str(value).strip())]


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_mac(value: object) -> bool:
    return value in _WORDS or (isinstance(value, str) and _MAC.fullmatch(value) is not None)


def _scalars(node: object, place: str = "", key: str = "") -> t.Iterator[tuple[str, str, object]]:
    """Each scalar of a document: its place, its key (after that of nameservers), and itself."""
    if isinstance(node, dict):
        for name, item in node.items():
            under = "nameservers.addresses" if (key, name) == ("nameservers", "addresses") else str(name)
            yield from _scalars(item, f"{place}.{name}" if place else str(name), under)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _scalars(item, f"{place}[{index}]", key)
    else:
        yield place, key, node


def _nics(section: object) -> t.Iterable[object]:
    return section.values() if isinstance(section, dict) else (section,)


def _dict(value: object) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _addresses(network: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, object]]:
    """Static addresses of a version 1 or 2 network config, without prefix length, and as given."""
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
    """The user's private host keys by kind, best first."""
    found = {kind: _dict(value).get(f"{kind}_private") for kind in _KINDS}
    keys = {kind: key for kind, key in found.items() if isinstance(key, str)}
    if value not in (None, {}) and not keys:
        problems.append(
            f"{what}: has no private key; set one of {', '.join(f'{kind}_private' for kind in _KINDS)}, or omit it"
        )
    return keys
