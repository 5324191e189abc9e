# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A seed for an image without cloud-init, as commands of virt-customize.

Secrets stand only in scripts, never in a command's words.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.yaml_text import yaml_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Seed

_CONFIG = (
    "hostname",
    "fqdn",
    "timezone",
    "users",
    "ssh_authorized_keys",
    "ssh_keys",
    "ssh_deletekeys",
    "write_files",
    "package_update",
    "packages",
    "runcmd",
)
_WORDS = ("hostname", "fqdn", "timezone", "local-hostname")
_META = ("local-hostname", "instance-id")
_NIC = ("match", "dhcp4", "dhcp6", "addresses", "gateway4", "gateway6", "routes", "nameservers", "mtu", "optional")
_ENTRIES = {
    "users": (
        "name",
        "gecos",
        "groups",
        "shell",
        "uid",
        "sudo",
        "lock_passwd",
        "passwd",
        "hashed_passwd",
        "plain_text_passwd",
        "ssh_authorized_keys",
    ),
    "write_files": ("path", "content", "encoding", "owner", "permissions", "append", "defer"),
}
_INSIDE = {"match": ("name", "macaddress"), "nameservers": ("addresses", "search")}
_WORD = re.compile(r"/?[A-Za-z0-9_][A-Za-z0-9_.+:/-]*")
_PLAIN = ("", "text/plain")


def problems(
    cloud_init: t.Mapping[str, t.Any],
    config: t.Mapping[str, t.Any],
    meta: t.Mapping[str, t.Any],
    network: t.Mapping[str, t.Any],
    *,
    guest: str,
) -> t.Iterator[str]:
    """Everything in the seed that cannot be done without cloud-init.

    `config`, `meta` and `network` are its parsed documents.
    """
    where = f"of {guest}: with method virt_customize"
    if cloud_init.get("on_change") == "next_boot":
        yield f"cloud_init.on_change {where} the disk is written once, before the first start; choose ignore or refuse"
    if cloud_init.get("vendor_data"):
        yield f"cloud_init.vendor_data {where} it is not read; use user_data instead"
    if cloud_init.get("user_data") and not config:
        yield f"cloud_init.user_data {where} it must be a #cloud-config"
    if network.get("version", 2) != 2:
        network = {}
        yield f"cloud_init.network_config {where} it must be of version 2"
    unknown = {
        *_unknown("", config, _CONFIG),
        *_unknown("meta_data.", meta, _META),
        *_unknown_inside(config),
        *_unknown_of_nics(network),
    }
    if unknown:
        yield f"cloud_init {where} these cannot be applied: {', '.join(sorted(unknown))}"
    entries = [
        (entry, known[0])
        for option, known in _ENTRIES.items()
        for entry in listed(config.get(option))
        if isinstance(entry, dict)
    ]
    words = [{**config, **meta}[key] for key in _WORDS if {**config, **meta}.get(key)]
    for word in [*words, *listed(config.get("packages")), *(entry.get(name) for entry, name in entries)]:
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            yield f"cloud_init {where} {word!r} must be a word of letters, digits and ./_+:-"


def _unknown(place: str, value: object, known: t.Collection[str]) -> list[str]:
    return (
        [f"{place}{name}" for name in value if name not in known] if isinstance(value, dict) else [f"{place}{value!r}"]
    )


def _unknown_inside(config: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for option, known in _ENTRIES.items():
        for entry in listed(config.get(option)):
            yield from _unknown(f"{option}[].", entry, known)
            if isinstance(entry, dict) and entry.get("encoding", "") not in (*_PLAIN, "b64", "base64"):
                yield f"{option}[].encoding {entry['encoding']}"


def _unknown_of_nics(network: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    nics = network.get("ethernets")
    yield from _unknown("network_config.", network, ("version", "renderer", "ethernets"))
    for nic in nics.values() if isinstance(nics, dict) else []:
        yield from _unknown("network_config.ethernets.*.", nic or {}, _NIC)
        for key, known in _INSIDE.items():
            yield from _unknown(f"network_config.ethernets.*.{key}.", (nic or {}).get(key) or {}, known)


def commands(seed: Seed, *, guest: str, keys: t.Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Options of virt-customize in order; the values of `run` and `firstboot` are scripts.

    `keys` are host keys by kind.
    """
    config, network = seed.config, json.loads(seed.network_config or "{}")
    name = config.get("hostname") or config.get("fqdn") or seed.meta_data.get("local-hostname") or guest
    customizations = [("hostname", str(name))]
    if config.get("timezone"):
        customizations.append(("timezone", str(config["timezone"])))
    if config.get("packages"):
        customizations.append(("firstboot-install", ",".join(listed(config["packages"]))))
    if config.get("runcmd"):
        customizations.append(("firstboot", "\n".join(["#!/bin/sh", *map(_line, listed(config["runcmd"])), ""])))
    script = [_START, *(["rm -f /etc/ssh/ssh_host_*"] if config.get("ssh_deletekeys", True) else [])]
    script += [_file(f"/etc/ssh/ssh_host_{kind}_key", key, mode="600") for kind, key in keys.items()]
    for user in listed(config.get("users")):
        script += _user(user)
    script += _authorized("root", config.get("ssh_authorized_keys"))
    for entry in listed(config.get("write_files")):
        plain = entry.get("encoding", "") in _PLAIN
        content, mode = str(entry.get("content") or ""), entry.get("permissions") or "644"
        coded = _coded(content) if plain else shlex.quote(content)
        mode = f"{mode:o}" if isinstance(mode, int) else str(mode)  # YAML's 0644 is a number
        script.append(
            _file(
                entry["path"], coded, mode=mode, owner=entry.get("owner"), append=bool(entry.get("append")), coded=True
            )
        )
    return (*customizations, ("run", "\n".join([*script, *_network(network), ""])))


# Cloud-init would do all of it again, with other host keys; what runs at the first boot may hold secrets.
_START = (
    "#!/bin/sh\nset -eu\n[ ! -d /etc/cloud ] || touch /etc/cloud/cloud-init.disabled\nchmod -f 700 "
    "/usr/lib/virt-sysprep || :"
)


def _user(user: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    name = user["name"]
    flags = [
        f"{option} {shlex.quote(str(user[key]))}"
        for key, option in (("gecos", "-c"), ("shell", "-s"), ("uid", "-u"))
        if user.get(key)
    ]
    yield f"id {name} >/dev/null 2>&1 || useradd -m {' '.join(flags)} {name}"
    groups = user.get("groups") or []
    for group in groups.replace(" ", "").split(",") if isinstance(groups, str) else groups:
        yield (
            f"getent group {shlex.quote(group)} >/dev/null || groupadd {shlex.quote(group)}; usermod -aG "
            f"{shlex.quote(group)} {name}"
        )
    hashed, plain = user.get("hashed_passwd") or user.get("passwd"), user.get("plain_text_passwd")
    if hashed or plain:
        yield f"printf '%s\\n' {shlex.quote(f'{name}:{hashed or plain}')} | chpasswd{' -e' if hashed else ''}"
    if user.get("lock_passwd", True):
        yield f"usermod -L {name}"
    rules = "".join(f"{name} {rule}\n" for rule in listed(user.get("sudo") or None))
    if rules:
        yield _file(f"/etc/sudoers.d/90-corral-{name}", rules, mode="440")
    yield from _authorized(name, user.get("ssh_authorized_keys"))


def _authorized(user: str, keys: object) -> t.Iterator[str]:
    if keys:
        text = "".join(f"{key}\n" for key in listed(keys))
        yield f"home=$(getent passwd {user} | cut -d: -f6)"
        yield _file('"$home/.ssh/authorized_keys"', text, mode="600", append=True, quoted=True)
        yield f'chmod 700 "$home/.ssh"; chown -R {user}: "$home/.ssh"'


def _network(network: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Script lines that write the network config for netplan or NetworkManager, in place of the image's own.

    Without a network config, the image's own stays, which mostly is DHCP.
    """
    if not network:
        return
    yield "if command -v netplan >/dev/null; then rm -f /etc/netplan/*.yaml"
    yield _file("/etc/netplan/50-corral.yaml", yaml_text({"network": network}), mode="600")
    yield "elif command -v NetworkManager >/dev/null; then"
    for number, (name, nic) in enumerate((network.get("ethernets") or {}).items()):
        place = f"/etc/NetworkManager/system-connections/corral-{number}.nmconnection"
        yield _file(place, _keyfile(name, nic or {}), mode="600")
    yield "else echo 'no netplan or NetworkManager in the image' >&2; exit 1; fi"


def _keyfile(name: str, nic: t.Mapping[str, t.Any]) -> str:
    match, names = nic.get("match") or {"name": name}, nic.get("nameservers") or {}
    lines = ["[connection]", f"id=corral {name}", "type=ethernet", "autoconnect-priority=100"]
    lines += ["[match]", f"interface-name={match['name']}"] if match.get("name") else []
    ethernet = (("mac-address", match.get("macaddress")), ("mtu", nic.get("mtu")))
    lines += ["[ethernet]", *(f"{key}={value}" for key, value in ethernet if value)]
    for six, family, dhcp, none in ((False, "ipv4", "dhcp4", "disabled"), (True, "ipv6", "dhcp6", "ignore")):
        own = [one for one in listed(nic.get("addresses")) if (":" in str(one)) == six]
        static = "manual" if own else none
        lines += [f"[{family}]", f"method={'auto' if nic.get(dhcp) else static}"]
        lines += [f"address{i}={one}" for i, one in enumerate(own, 1)]
        routes = [route for route in _routes(nic) if (":" in route[1]) == six]
        lines += [
            f"route{i}={to},{via}{f',{metric}' if metric else ''}" for i, (to, via, metric) in enumerate(routes, 1)
        ]
        servers = [str(one) for one in listed(names.get("addresses")) if (":" in str(one)) == six]
        lines += [f"dns={';'.join(servers)};"] if servers else []
        lines += [f"dns-search={';'.join(names['search'])};"] if names.get("search") and own else []
    return "\n".join([*lines, ""])


def _routes(nic: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str, object]]:
    """Destination, gateway and metric of each route."""
    gateways = [{"via": nic[key]} for key in ("gateway4", "gateway6") if nic.get(key)]
    for route in [*gateways, *listed(nic.get("routes"))]:
        via, to = str(route.get("via", "")), str(route.get("to", "default"))
        if to == "default":
            to = "::/0" if ":" in via else "0.0.0.0/0"
        yield to, via, route.get("metric")


def _file(
    path: str,
    content: str,
    *,
    mode: str,
    owner: object = None,
    append: bool = False,
    coded: bool = False,
    quoted: bool = False,
) -> str:
    """Shell lines that write a file.

    `quoted`: the path is shell code already; `coded`: the content is base64.
    """
    place, data = path if quoted else shlex.quote(path), content if coded else _coded(content)
    lines = [
        (
            f'(umask 022; mkdir -p "$(dirname {place})"); (umask 077; echo {data} | base64 -d '
            f">{'>' if append else ''}{place})"
        )
    ]
    return "\n".join(
        [*lines, f"chmod {shlex.quote(mode)} {place}", *([f"chown {shlex.quote(str(owner))} {place}"] if owner else [])]
    )


def _line(command: object) -> str:
    return shlex.join(map(str, command)) if isinstance(command, list) else str(command)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def listed(value: object) -> list[t.Any]:
    """A list from one value or a list, as cloud-init takes both."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
