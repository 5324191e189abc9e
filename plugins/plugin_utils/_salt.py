# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Salt Virt has in states, pillars and minions' configuration, as an inventory. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front import domain_options, noun, noun_options
from ansible_collections.corral.virt.plugins.module_utils._model.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._noun.network import NETWORK
from ansible_collections.corral.virt.plugins.plugin_utils import _salt_guest, _salt_hosts, _salt_states
from ansible_collections.corral.virt.plugins.plugin_utils._salt_devices import Cloud
from ansible_collections.corral.virt.plugins.plugin_utils._salt_part import SaltNote, SaltPart, merged
from ansible_collections.corral.virt.plugins.plugin_utils._salt_top import EVERYWHERE, Hosts
from ansible_collections.corral.virt.plugins.plugin_utils._variables import Placeholder, placeholders, untagged, written

__all__ = ["REPORT", "Converted", "SaltSource", "convert"]

REPORT = "from_salt.txt"  # no inventory plugin reads a file with this ending

_DEFAULT_POOL = {"name": POOL, "path": "/var/lib/libvirt/images"}


@dataclasses.dataclass(frozen=True)
class SaltSource:
    """One file, or what Salt has rendered for one minion."""

    file: str
    kind: str  # states, pillar or minion
    data: t.Mapping[str, t.Any]
    hosts: Hosts = EVERYWHERE


@dataclasses.dataclass
class Converted:
    """Texts by path in the inventory, and what is yet to be done."""

    files: dict[str, str]
    notes: list[SaltNote]
    guests: list[str]


class _Variables:
    """Variables of all hypervisors, and of single ones."""

    def __init__(self) -> None:
        self.cloud = Cloud()
        self.notes: list[SaltNote] = []
        self.all: dict[str, t.Any] = {}
        self.hosts: dict[str, dict[str, t.Any]] = {}
        self.guests: dict[str, dict[str, t.Any]] = {}

    def set(self, hosts: Hosts, values: t.Mapping[str, t.Any]) -> None:
        """A later value replaces an earlier one; dictionaries are merged."""
        for place in [self.all] if hosts is EVERYWHERE else [self.hosts.setdefault(host, {}) for host in hosts or ()]:
            for key, value in values.items():
                both = isinstance(value, dict) and isinstance(place.get(key), dict)
                place[key] = {**place[key], **value} if both else value

    def add(self, hosts: Hosts, key: str, item: dict[str, t.Any]) -> None:
        """An item of a list; one of the same name is replaced."""
        for place in [self.all] if hosts is EVERYWHERE else [self.hosts.setdefault(host, {}) for host in hosts or ()]:
            kept = [one for one in place.get(key, []) if one["name"] != item["name"]]
            place[key] = [*kept, item]


def convert(
    sources: t.Sequence[SaltSource],
    notes: t.Sequence[SaltNote],
    hypervisors: t.Sequence[str],
    named: t.Iterable[str],
    image: t.Callable[[str], str | None],
) -> Converted:
    """The inventory of all sources.

    `notes` are those of files that nobody could read. `named` are the minions that a top file names. `image` finds the
    file on the controller for the path of a `salt://` address.
    """
    found = _Variables()
    found.notes += notes
    for kind, read in (("minion", _minion), ("pillar", _pillar), ("states", _states)):  # profiles before guests
        for source in sources:
            if source.kind == kind:
                read(source, found)
    _images(found, image)
    return _inventory(found, hypervisors, named)


def _part(source: SaltSource, found: _Variables, path: str, values: t.Mapping[str, t.Any]) -> SaltPart:
    return SaltPart(found.notes, source.file, path, values)


def _dotted(data: t.Mapping[str, t.Any], word: str) -> dict[str, t.Any]:
    """`virt:` and the older `virt.nic:`, `virt.disk:`, ..."""
    inner = merged(data.get(word))
    merged_settings = dict(inner) if isinstance(inner, dict) else {}
    for key, value in data.items():
        if key.startswith(word + "."):
            merged_settings.setdefault(key[len(word) + 1 :], value)
    return merged_settings


def _minion(source: SaltSource, found: _Variables) -> None:
    _settings(source, found)
    others = [key for key in source.data if key != "virt" and not key.startswith("virt.")]
    if others:
        found.notes.append(SaltNote(source.file, "", f"{len(others)} other settings are Salt's own, and are left out"))


def _settings(source: SaltSource, found: _Variables) -> None:
    if settings := _dotted(source.data, "virt"):
        found.set(source.hosts, _salt_hosts.settings(_part(source, found, "virt", settings), found.cloud))


def _pillar(source: SaltSource, found: _Variables) -> None:
    _settings(source, found)
    part = _part(source, found, "", source.data)
    for key in part.untaken():
        if key == "virt" or key.startswith("virt."):
            part.raw(key)
        elif key == "include":
            part.raw(key)  # followed where the tree is read
        elif key == "libvirt" and part.is_mapping(key):
            below = part.part(key)
            values, pools = _salt_hosts.formula(below) if below else ({}, [])
            found.set(source.hosts, values)
            for pool in pools:
                found.add(source.hosts, "storage_pools", pool)
        elif key == "salt" and part.is_mapping(key):
            _control(part.part(key), found)
    part.left("it does not belong to Salt Virt")


def _control(salt: SaltPart | None, found: _Variables) -> None:
    """`salt:control` of the formula salt: guests by cluster, of sizes that have names."""
    control = salt.part("control") if salt else None
    if salt:
        salt.left("it does not belong to Salt Virt")
    if not control:
        return
    sizes = {name: {key: size.raw(key) for key in size.untaken()} for name, size in control.named("size")}
    for key in ("enabled", "virt_enabled"):
        control.raw(key)
    for _cluster, cluster in control.named("cluster"):
        domain = cluster.text("domain")
        common = {key: cluster.raw(key) for key in ("enable_vnc", "seed", "rng", "cloud_init", "config")}
        if (engine := cluster.text("engine")) not in (None, "virt"):
            cluster.note("engine", f"{engine} creates no guests on hypervisors; the cluster is left out")
            cluster.drop()
        for name, node in cluster.named("node"):
            _node(node, name, domain, common, sizes, found)
        cluster.left()
    control.left()


def _node(
    node: SaltPart,
    name: str,
    domain: str | None,
    common: t.Mapping[str, t.Any],
    sizes: t.Mapping[str, t.Mapping[str, t.Any]],
    found: _Variables,
) -> None:
    """One guest of a cluster; the size that it names says how large it is."""
    own = {key: node.raw(key) for key in node.untaken()}
    size = sizes.get(str(own.pop("size", None)), {})
    if not size:
        node.note("size", "there is no such size, so its vcpus and memory are missing")
    cpu = {"maximum": size.get("cpu"), "cpuset": own.pop("cpuset", None), "mode": own.pop("cpu_mode", None)}
    macs, host = own.pop("mac", None), own.pop("provider", None)
    profiles = {"disk": size.get("disk_profile") or "default", "nic": size.get("net_profile") or "default"}
    values = {
        **common,
        "pool": own.pop("img_dest", None),
        "interfaces": [{"name": nic, "mac": mac} for nic, mac in macs.items()] if isinstance(macs, dict) else None,
        **own,
        **profiles,
        "cpu": cpu,
        "mem": size.get("ram"),
    }
    short = values.pop("name", None) or name
    part = SaltPart(found.notes, node.file, node.path, values)
    hosts: Hosts = (str(host),) if host else EVERYWHERE
    _guest(part, f"{short}.{domain}" if domain else str(short), hosts, found, state="running")


def _states(source: SaltSource, found: _Variables) -> None:
    for identity, body in source.data.items():
        if identity in ("include", "extend", "exclude") or identity.startswith("__"):
            if identity in ("extend", "exclude"):
                found.notes.append(SaltNote(source.file, identity, "it changes other files; render the states"))
            continue
        for module, function, arguments in _salt_states.calls(body):
            if module is None:
                found.notes.append(SaltNote(source.file, identity, "it is not a state, and is left out"))
                continue
            for name, values in _salt_states.instances(identity, arguments):
                part = SaltPart(found.notes, source.file, f"{identity}:{module}.{function}", values)
                _salt_states.requisites(part)
                _state(part, module, function, name, source.hosts, found)


def _state(part: SaltPart, module: str, function: str, name: str, hosts: Hosts, found: _Variables) -> None:
    what = f"{module}.{function}"
    if what in ("virt.running", "virt.defined"):
        _guest(part, name, hosts, found, state="running" if function == "running" else "present")
    elif what in ("virt.network_running", "virt.network_defined"):
        _network(part, name, hosts, found, active=function == "network_running")
    elif what in ("virt.pool_running", "virt.pool_defined"):
        if pool := _salt_hosts.pool(part, name, active=function == "pool_running"):
            found.add(hosts, "storage_pools", pool)
        part.left()
    elif what == "virt.pool_deleted":
        if part.truth("purge"):
            part.note("purge", f"files are never removed; by hand: virsh pool-delete {name}")
        found.add(hosts, "storage_pools", {"name": name, "state": "absent"})
        part.left()
    elif what in ("virt.keys", "libvirt.keys"):
        found.set(hosts, _salt_hosts.keys(part))
        part.left()
    elif what == "network.managed":
        found.set(hosts, _salt_hosts.bridge(part, name))
        part.left()
    elif what == "module.run":
        _module_run(part, name, hosts, found)
    else:
        _salt_states.elsewhere(part, module, function, name)


def _module_run(part: SaltPart, name: str, hosts: Hosts, found: _Variables) -> None:
    """`virt.init`, called by a state; of the older and of the newer form."""
    init = next((key for key in ("virt.init", "virtng.init") if key in part), None)
    if init is not None:
        arguments = merged(part.raw(init))
    elif name in ("virt.init", "virtng.init"):
        kwargs = part.raw("kwargs")
        arguments = {key: part.raw(key) for key in part.untaken()} | (kwargs if isinstance(kwargs, dict) else {})
        arguments["name"] = arguments.pop("m_name", None)
    else:
        part.note("", "a function is not a state; the guide Coming from Salt Virt has its counterpart")
        return
    guest = arguments.pop("name", None) if isinstance(arguments, dict) else None
    if not isinstance(guest, str):
        part.note("", "it names no guest, and is left out")
        return
    below = SaltPart(part.notes, part.file, part.path, {"disk": "default", "nic": "default", **arguments})
    _guest(below, guest, hosts, found, state="present" if below.truth("start") is False else "running")


def _guest(part: SaltPart, name: str, hosts: Hosts, found: _Variables, *, state: str) -> None:
    options = _salt_guest.guest(part, name, found.cloud)
    part.left()
    options = {"name": options.pop("name"), "state": state, **options}
    if hosts is not None:
        for host in hosts:
            found.hosts.setdefault(host, {})
        if len(hosts) == 1:
            options["host"] = hosts[0]
        else:
            part.note("", f"{', '.join(hosts)} each had a guest {name}; one is created, on one of them")
    if problems := _problems(options):
        part.note("", f"the guest {name} is not written: {'; '.join(problems)}")
    elif found.guests.get(name, options) != options:
        part.note("", f"the guest {name} is described twice; this description is not written")
    else:
        found.guests[name] = options


def _problems(given: t.Mapping[str, t.Any]) -> list[str]:
    """What virt_domain would refuse."""
    options = {**domain_options.GUEST_OPTIONS, "host": {"type": "str"}}
    result = ArgumentSpecValidator(options).validate(_with_secrets(untagged(dict(given))))
    if result.error_messages:
        return list(result.error_messages)
    try:
        domain_options.wanted({**result.validated_parameters, "disk_profile": None, "nic_profile": None})
    except BadInput as error:
        return list(error.problems)
    return [f"{option} is missing" for option in ("vcpus", "memory") if option not in given]


def _with_secrets(value: t.Any) -> t.Any:
    """With a secret where a placeholder is."""
    if isinstance(value, dict):
        return {key: _with_secrets(one) for key, one in value.items()}
    return "secret" if isinstance(value, Placeholder) else value


def _network(part: SaltPart, name: str, hosts: Hosts, found: _Variables, *, active: bool) -> None:
    network = _salt_hosts.network(part, name, active=active)
    part.left()
    result = ArgumentSpecValidator(noun_options.argument_spec(NETWORK.schema)).validate(untagged(network))
    problems = list(result.error_messages)
    if not problems:
        try:
            noun.spec(NETWORK, result.validated_parameters)
        except BadInput as error:
            problems = list(error.problems)
    if problems:
        part.note("", f"the network {name} is not written: {'; '.join(problems)}")
    else:
        found.add(hosts, "virt_networks", network)


def _images(found: _Variables, image: t.Callable[[str], str | None]) -> None:
    """Where images of Salt's file server are on the controller; and those that no guest refers to are none."""
    for (source, _pool), entry in found.cloud.images.items():
        if source.startswith("salt://"):
            place = image(source.removeprefix("salt://").split("?", 1)[0])
            entry["src"] = place or entry["name"]
            if place is None:
                found.notes.append(SaltNote("", source, f"it is not below salt_root; set src of {entry['name']}"))
        found.all.setdefault("virt_images", []).append(entry)
    for name, path in found.cloud.pools.items():
        found.add(EVERYWHERE, "storage_pools", {"name": name, "path": path})


def _inventory(found: _Variables, hypervisors: t.Sequence[str], named: t.Iterable[str]) -> Converted:
    names = list(dict.fromkeys(hypervisors)) or sorted(found.hosts)
    for host in sorted(set(found.hosts) - set(names)):
        found.notes.append(
            SaltNote("", host, "it is none of the hypervisors of -e hypervisors; its variables are left out")
        )
    if not names:
        others = ", ".join(sorted(named)) or "none"
        found.notes.append(
            SaltNote("", "hosts.yml", f"name the hypervisors: -e hypervisors=... (minions in the top files: {others})")
        )
    common = _with_default_pool(found.all)
    guests = list(found.guests.values())
    files = {
        "hosts.yml": written({"all": {"children": {"hyper": {"hosts": {name: {} for name in names}}}}}),
        "group_vars/hyper/settings.yml": written(common),
        "group_vars/hyper/guests.yml": written({"virt_guests": guests}),  # which the playbook import replaces
    }
    for host in names:
        if own := found.hosts.get(host):
            files[f"host_vars/{host}.yml"] = written(_with_values_of_group(own, common))
    if common.get("virt_networks") or any("virt_networks" in found.hosts.get(host, {}) for host in names):
        found.notes.append(
            SaltNote("", "virt_networks", "no role reads it; the guide Coming from Salt Virt has the play")
        )
    variables = dict.fromkeys(one for value in (common, guests, found.hosts) for one in placeholders(value))
    notes = [str(note) for note in dict.fromkeys(found.notes)]
    files[REPORT] = _report(notes, list(variables))
    return Converted(files, list(dict.fromkeys(found.notes)), sorted(found.guests))


def _with_default_pool(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A list replaces the role's default, which is that pool."""
    common = dict(values)
    pools = common.get("storage_pools")
    if pools and not any(pool["name"] == POOL for pool in pools):
        common["storage_pools"] = [_DEFAULT_POOL, *pools]
    return common


def _with_values_of_group(own: t.Mapping[str, t.Any], common: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A host's variable replaces that of its group: with what the group has."""
    found = dict(own)
    for key, value in own.items():
        if isinstance(value, dict):
            found[key] = {**common.get(key, {}), **value}
        elif isinstance(value, list):
            names = {one["name"] for one in value}
            found[key] = [*(one for one in common.get(key, []) if one["name"] not in names), *value]
    return _with_default_pool(found)


def _report(notes: t.Sequence[str], variables: t.Sequence[str]) -> str:
    lines = ["Converted from Salt. Not converted, or yet to be done:", ""]
    lines += [f"- {note}" for note in notes] or ["- nothing"]
    if variables:
        lines += ["", "Variables to set, secrets with ansible-vault:", "", *(f"- {name}" for name in variables)]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"
