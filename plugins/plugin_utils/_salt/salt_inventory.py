# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Salt Virt's states, pillars and minion configuration as an inventory. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options
from ansible_collections.corral.virt.plugins.plugin_utils._guests.variable_files import (
    Placeholder,
    placeholders,
    untagged,
    written,
)
from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_cluster, salt_guest, salt_hosts, salt_pillar
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_devices import Cloud
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import (
    Placed,
    SaltNote,
    SaltPart,
    merged,
    overlaid,
)
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_states import (
    Call,
    States,
    elsewhere,
    instances,
    requisites,
)
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_top import EVERYWHERE, Hosts

REPORT = "from_salt.txt"  # no inventory plugin reads a file with this ending

_ALL = None  # hypervisors, beside the name of one
_LATER = "another value comes later in Salt's order:"
_DEFAULT_POOL = {"name": POOL, "path": "/var/lib/libvirt/images"}


@dataclasses.dataclass(frozen=True)
class SaltSource:
    """One file, or Salt's rendered data for one minion."""

    file: str
    kind: str  # states, low (a list of calls), pillar or minion
    data: t.Any
    hosts: Hosts = EVERYWHERE


@dataclasses.dataclass
class Converted:
    """Texts by path in the inventory, and notes on what remains to be done."""

    files: dict[str, str]
    notes: list[SaltNote]
    guests: list[str]


@dataclasses.dataclass
class _Guest:
    """A guest as all states together describe it, on the hypervisors of the first state."""

    name: str
    hosts: Hosts
    part: SaltPart  # the place of the first
    values: Placed
    state: str | None = None  # that Salt leaves it in

    def described(self, part: SaltPart, values: t.Mapping[str, t.Any], state: str | None) -> None:
        """Add the description of one more state; missing arguments change nothing."""
        given = {key: value for key, value in values.items() if value is not None}
        self.values = overlaid(self.values, given, part.file, part.path, part.notes, _LATER)
        self.state = state or self.state


class _Variables:
    """Variables of all hypervisors, and of single ones."""

    def __init__(self) -> None:
        self.clouds: dict[str | None, Cloud] = {_ALL: Cloud()}
        self.notes: list[SaltNote] = []
        self.all: dict[str, t.Any] = {}
        self.hosts: dict[str, dict[str, t.Any]] = {}
        self.bridges: dict[str | None, dict[str, salt_hosts.Bridge]] = {}
        self.kernel: list[tuple[Call, str, dict[str, t.Any]]] = []  # states of any machine
        self.described: list[_Guest] = []
        self.guests: dict[str, dict[str, t.Any]] = {}
        self._places: dict[tuple[int, str, str], SaltNote] = {}

    def cloud(self, hosts: Hosts) -> Cloud:
        """The profiles, images and pools that guests of these hypervisors refer to."""
        own = [self.clouds[host] for host in hosts or () if host in self.clouds]
        return own[0] if own else self.clouds[_ALL]

    def _targets(self, hosts: Hosts) -> list[dict[str, t.Any]]:
        return [self.all] if hosts is EVERYWHERE else [self.hosts.setdefault(host, {}) for host in hosts or ()]

    def with_earlier(self, hosts: Hosts, key: str, value: t.Any) -> t.Any:
        """A list of texts behind that of an earlier state; another value as it is."""
        before = (
            [one for place in self._targets(hosts) for one in place.get(key, ())] if isinstance(value, list) else []
        )
        return [*dict.fromkeys([*before, *value])] if isinstance(value, list) else value

    def set(self, hosts: Hosts, values: t.Mapping[str, t.Any], part: SaltPart | None = None) -> None:
        """Set variables. A later value replaces an earlier one; dictionaries are merged."""
        for place in self._targets(hosts):
            for key, value in values.items():
                both = isinstance(value, dict) and isinstance(place.get(key), dict)
                if part:
                    self._replaced(place, key, "", place.get(key, value) != value, part)
                place[key] = {**place[key], **value} if both else value

    def add(self, hosts: Hosts, key: str, item: dict[str, t.Any], part: SaltPart | None = None) -> None:
        """Add an item to a list in place of one of the same name; one for all hosts replaces theirs, too."""
        for place in self.hosts.values() if hosts is EVERYWHERE else ():
            old = [one for one in place.get(key, []) if one["name"] == item["name"]]
            if old and part:
                self._replaced(place, key, item["name"], old != [item], part)
                place[key] = [one for one in place[key] if one not in old]
        for place in self._targets(hosts):
            old = [one for one in place.get(key, []) if one["name"] == item["name"]]
            kept = [one for one in place.get(key, []) if one["name"] != item["name"]]
            if part:
                self._replaced(place, key, item["name"], bool(old) and old != [item], part)
            place[key] = [*kept, item]

    def _replaced(self, place: dict[str, t.Any], key: str, name: str, is_changed: bool, part: SaltPart) -> None:
        before = self._places.get((id(place), key, name))
        if is_changed and before:
            self.notes.append(dataclasses.replace(before, why=f"{_LATER} {part.file}: {part.path}"))
        self._places[id(place), key, name] = SaltNote(part.file, part.path, "")

    def guest(self, part: SaltPart, name: str, hosts: Hosts) -> _Guest:
        """The guest of that name on the same hypervisors; a new one if there is none."""
        for one in self.described:
            if one.name == name and (not one.hosts or not hosts or set(one.hosts) & set(hosts)):
                one.hosts = one.hosts or hosts
                return one
        self.described.append(_Guest(name, hosts, part, Placed({}, part.file, part.path)))
        return self.described[-1]


def convert(
    sources: t.Sequence[SaltSource],
    notes: t.Sequence[SaltNote],
    hypervisors: t.Sequence[str],
    named: t.Iterable[str],
    image: t.Callable[[str], str | None],
) -> Converted:
    """The inventory of all sources, which are in Salt's order.

    `notes` are those of unreadable files. `named` are the minions that a top file names. `image` finds the file on the
    controller for the path of a `salt://` address.
    """
    found = _Variables()
    found.notes += notes
    _pillars([source for source in sources if source.kind in ("pillar", "minion")], found)
    states = States(found.notes)
    for source in sources:
        if source.kind == "states":
            states.read(source.file, source.hosts, source.data)
        elif source.kind == "low":
            states.low(source.file, source.hosts, source.data)
    for call in states.in_order():
        for name, values in instances(call.identity, call.arguments):
            _state(call, name, values, found)
    for host, bridges in found.bridges.items():
        shared = {} if host is _ALL else found.bridges.get(_ALL, {})
        found.set(_hosts(host), salt_hosts.written_bridges({**shared, **bridges}))
    for guest in found.described:
        _write(guest, found)
    _kernel(found, {*hypervisors, *found.hosts})
    _images(found, image)
    _pools_of_guests(found)
    return _inventory(found, hypervisors, named)


def _hosts(host: str | None) -> Hosts:
    return EVERYWHERE if host is _ALL else (host,)


def _pillars(sources: t.Sequence[SaltSource], found: _Variables) -> None:
    """Read the pillars of all hypervisors, and those of single ones."""
    common = {source.file for source in sources if source.hosts is EVERYWHERE}
    for host in (_ALL, *sorted({host for source in sources for host in source.hosts or ()})):
        if host is not _ALL:
            found.clouds[host] = found.clouds[_ALL].beside()
        merged, notes = Placed({}, "", ""), list[SaltNote]()
        for kind, over in (("pillar", salt_pillar.beside), ("minion", salt_pillar.under)):
            for source in sources:
                if source.kind == kind and (source.hosts is None or host in source.hosts):
                    merged = over(merged, source.data, source.file, notes)
        # What one hypervisor has otherwise than all stays with the others.
        kept = [note for note in notes if not note.about or salt_pillar.is_read(note.path)]
        found.notes += [note for note in kept if host is _ALL or note.file not in common or not note.about]
        _said(salt_pillar.read(merged, found.notes, found.clouds[host]), host, found)


def _said(pillar: salt_pillar.Pillar, host: str | None, found: _Variables) -> None:
    hosts, shared = _hosts(host), {} if host is _ALL else found.all
    found.set(hosts, {key: value for key, value in pillar.variables.items() if shared.get(key) != value})
    for part, item in pillar.pools:
        if item not in shared.get("storage_pools", []):
            found.add(hosts, "storage_pools", item, part)
    for part, item in pillar.networks:
        if item not in shared.get("virt_networks", []):
            _network(part, item, hosts, found)
    for part, name, provider, values in pillar.guests:
        if host is _ALL or provider in (None, host):
            found.guest(part, name, _hosts(provider or host)).described(part, values, "running")


def _state(call: Call, name: str, values: t.Mapping[str, t.Any], found: _Variables) -> None:
    module = "module" if (call.module, call.function) == ("mgrcompat", "module_run") else call.module
    what = f"{module}.{'run' if module == 'module' else call.function}"
    read = _READ.get(what)
    if what in salt_hosts.OF_KERNEL or salt_cluster.lines(call, name, values):
        found.kernel.append((call, name, dict(values)))
        return
    if read is None:
        elsewhere(call, name, found.notes)
        return
    part = SaltPart(found.notes, call.file, call.path, values)
    requisites(part)
    read(part, name, call, found)


def _kernel(found: _Variables, hypervisors: t.Collection[str]) -> None:
    """Set variables of the roles tuning and cluster from states of hypervisors; those of other machines are counted."""
    for call, name, values in found.kernel:
        hosts = call.hosts if call.hosts is EVERYWHERE else tuple(one for one in call.hosts or () if one in hypervisors)
        part = SaltPart(found.notes, call.file, call.path, values)
        made, by_host = (None, {}) if hosts is not EVERYWHERE and not hosts else _made(part, call, name, values)
        if made is None:
            elsewhere(call, name, found.notes)
            continue
        requisites(part)
        for host, own in by_host.items():
            if host in hypervisors or not hypervisors:
                found.set((host,), own, part)
            else:
                part.note("", f"{host} is no hypervisor of the inventory; set there: {', '.join(own)}")
        part.left()
        found.set(hosts, {key: found.with_earlier(hosts, key, value) for key, value in made.items()}, part)


def _made(
    part: SaltPart, call: Call, name: str, values: t.Mapping[str, t.Any]
) -> tuple[dict[str, t.Any] | None, dict[str, dict[str, t.Any]]]:
    """The variables of all hosts of a state, if it is one of those that are read, and of single ones."""
    read = salt_hosts.OF_KERNEL.get(f"{call.module}.{call.function}")
    return (read(part, name), {}) if read else salt_cluster.converted(part, call, name, values)


def _domain(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    """Read `virt.running`, `virt.defined`, `virt.stopped` and `virt.powered_off`."""
    values = {key: part.raw(key) for key in part.untaken()}
    found.guest(part, name, call.hosts).described(part, values, _POWER[call.function])


def _networks(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    network = salt_hosts.network(part, name, active=call.function == "network_running")
    part.left()
    _network(part, network, call.hosts, found)


def _pools(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    if pool := salt_hosts.pool(part, name, active=call.function == "pool_running"):
        found.add(call.hosts, "storage_pools", pool, part)
    part.left()


def _no_pool(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    if part.truth("purge"):
        part.note("purge", f"files are never removed; by hand: virsh pool-delete {name}")
    found.add(call.hosts, "storage_pools", {"name": name, "state": "absent"}, part)
    part.left()


def _keys(part: SaltPart, _name: str, call: Call, found: _Variables) -> None:
    found.set(call.hosts, salt_hosts.keys(part), part)
    part.left()


def _bridge(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    bridge = salt_hosts.bridge(part, name)
    for host in [_ALL] if call.hosts is EVERYWHERE else call.hosts or ():
        if bridge:
            known = found.bridges.setdefault(host, {}).setdefault(bridge.name, bridge)
            known.ports = list(dict.fromkeys([*known.ports, *bridge.ports]))
            known.part.refused = list(dict.fromkeys([*known.part.refused, *bridge.part.refused]))


def _module_run(part: SaltPart, name: str, call: Call, found: _Variables) -> None:
    """Read `virt.init`, called by a state in the older or the newer form."""
    init = next((key for key in ("virt.init", "virtng.init") if key in part), None)
    if init is not None:
        arguments = merged(part.raw(init))
    elif name in ("virt.init", "virtng.init"):
        kwargs = part.raw("kwargs")
        arguments = {key: part.raw(key) for key in part.untaken()} | (kwargs if isinstance(kwargs, dict) else {})
        arguments["name"] = arguments.pop("m_name", None)
    else:
        virt = [key for key in (name, *part.untaken()) if key.startswith(("virt.", "virtng."))]
        why = "a function is not a state; the guide Coming from Salt Virt has its counterpart"
        if virt:
            part.note("" if virt[0] == name else virt[0], why)
        else:
            elsewhere(call, name, found.notes)
        return
    guest = arguments.pop("name", None) if isinstance(arguments, dict) else None
    if not isinstance(guest, str):
        part.note("", "it names no guest, and is left out")
        return
    below = SaltPart(part.notes, part.file, part.path, {"disk": "default", "nic": "default", **arguments})
    state = "present" if below.truth("start") is False else "running"
    values = {key: below.raw(key) for key in below.untaken()}
    found.guest(below, guest, call.hosts).described(below, values, state)


_POWER = {
    "running": "running",
    "defined": None,
    "stopped": "shutdown",
    "unpowered": "shutdown",
    "powered_off": "destroyed",
}
_READ: dict[str, t.Callable[[SaltPart, str, Call, _Variables], None]] = {
    **{f"virt.{function}": _domain for function in _POWER},
    **{f"virt.network_{state}": _networks for state in ("running", "defined")},
    **{f"virt.pool_{state}": _pools for state in ("running", "defined")},
    "virt.pool_deleted": _no_pool,
    "virt.keys": _keys,
    "libvirt.keys": _keys,
    "network.managed": _bridge,
    "module.run": _module_run,
}
_ALONE = {
    "running": "it only starts a guest that exists; to have it here: ansible-playbook corral.virt.import -e guest={}",
    "shutdown": "ansible-playbook corral.virt.shutdown -e guest={}",
    "destroyed": "ansible-playbook corral.virt.force_off -e guest={}",
    "present": "it describes nothing",
}


def _write(guest: _Guest, found: _Variables) -> None:
    """Add a guest as arguments of virt_domain, or report why it would not be the same."""
    name, state = guest.name, guest.state or "present"
    if not guest.values:
        guest.part.note("", _ALONE[state].format(name))
        return
    cloud = found.cloud(guest.hosts)
    part = SaltPart(found.notes, guest.part.file, guest.part.path, guest.values)
    if cloud.foreign:
        part.refuse("", f"its hypervisor is {cloud.foreign}; only kvm and qemu are supported")
    options = salt_guest.guest(part, name, cloud)
    part.left()
    options = {"name": options.pop("name"), "state": state, **options}
    for host in guest.hosts or ():
        found.hosts.setdefault(host, {})
    if guest.hosts and len(guest.hosts) == 1:
        options["host"] = guest.hosts[0]
    elif guest.hosts:
        part.note("", f"{', '.join(guest.hosts)} each had a guest {name}; one is created, on one of them")
    if name in found.guests:
        part.refuse("", "another hypervisor has a guest of that name, and names are unique here")
    elif problems := _problems(options):
        part.refuse("", "; ".join(problems))
    found.notes += [dataclasses.replace(one, why=f"the guest {name} is not written: {one.why}") for one in part.refused]
    if not part.refused:
        found.guests[name] = options


def _problems(given: t.Mapping[str, t.Any]) -> list[str]:
    """Problems that virt_domain would report."""
    options = {**run_guest_options.GUEST_OPTIONS, "host": {"type": "str"}}
    result = ArgumentSpecValidator(options).validate(_with_secrets(untagged(dict(given))))
    if result.error_messages:
        return list(result.error_messages)
    try:
        run_guest_options.wanted({**result.validated_parameters, "disk_profile": None, "nic_profile": None})
    except BadInput as error:
        return list(error.problems)
    return [f"{option} is missing" for option in ("vcpus", "memory") if option not in given]


def _with_secrets(value: t.Any) -> t.Any:
    """The value with a dummy secret in place of each placeholder."""
    if isinstance(value, dict):
        return {key: _with_secrets(one) for key, one in value.items()}
    return "secret" if isinstance(value, Placeholder) else value


def _network(part: SaltPart, network: dict[str, t.Any], hosts: Hosts, found: _Variables) -> None:
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NETWORK.schema)).validate(untagged(network))
    for problem in result.error_messages:
        part.refuse("", problem)
    if not result.error_messages:
        try:
            run_noun.spec(NETWORK, result.validated_parameters)
        except BadInput as error:
            part.refuse("", "; ".join(error.problems))
    why = f"the network {network['name']} is not written"
    found.notes += [dataclasses.replace(one, why=f"{why}: {one.why}") for one in part.refused]
    if not part.refused:
        found.add(hosts, "virt_networks", network, part)


def _images(found: _Variables, image: t.Callable[[str], str | None]) -> None:
    """Write the images that guests refer to, with their places on the controller, and the pools they need."""
    cloud = found.clouds[_ALL]
    for (source, _pool), entry in cloud.images.items():
        if source.startswith("salt://"):
            place = image(source.removeprefix("salt://").split("?", 1)[0])
            entry["src"] = place or entry["name"]
            if place is None:
                found.notes.append(SaltNote("", source, f"it is not below salt_root; set src of {entry['name']}"))
        found.all.setdefault("virt_images", []).append(entry)
    listed = [pool for values in (found.all, *found.hosts.values()) for pool in values.get("storage_pools", [])]
    known = {pool["path"]: pool["name"] for pool in reversed(listed) if "path" in pool}
    names = {name: known.get(path, name) for name, path in cloud.pools.items()}
    for name, path in cloud.pools.items():
        if not any(pool["name"] == names[name] for pool in found.all.get("storage_pools", [])):
            found.add(EVERYWHERE, "storage_pools", {"name": names[name], "path": path})
    for values in (found.all, found.hosts, found.guests):
        _in_pools(values, names)


def _pools_of_guests(found: _Variables) -> None:
    """Report pools that guests name, but that nothing in Salt's files defines."""
    listed = [pool for values in (found.all, *found.hosts.values()) for pool in values.get("storage_pools", [])]
    known = {POOL, *(pool["name"] for pool in listed)}
    for name, options in found.guests.items():
        missing = {str(disk["pool"]) for disk in options.get("disks", []) if disk.get("pool", POOL) not in known}
        for pool in sorted(missing):
            found.notes.append(SaltNote("", name, f"its hypervisor needs the pool {pool}, which is not written"))


def _in_pools(value: t.Any, names: t.Mapping[str, str]) -> None:
    """Rename pools in the value: one directory is one pool, under Salt's name."""
    if isinstance(value, list):
        for one in value:
            _in_pools(one, names)
    for one in value.values() if isinstance(value, dict) else ():
        _in_pools(one, names)
    if isinstance(value, dict) and isinstance(value.get("pool"), str):
        value["pool"] = names.get(value["pool"], value["pool"])


def _inventory(found: _Variables, hypervisors: t.Sequence[str], named: t.Iterable[str]) -> Converted:
    names = list(dict.fromkeys(hypervisors)) or sorted(found.hosts)
    for host in sorted(set(found.hosts) - set(names)):
        found.notes.append(
            SaltNote("", host, "it is none of the hypervisors of -e hypervisors; its variables are left out")
        )
    if not names:
        minions = ", ".join(sorted(named)) or "none"
        found.notes.append(
            SaltNote("", "hosts.yml", f"name the hypervisors: -e hypervisors=... (minions in the top files: {minions})")
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
    variables = dict.fromkeys(one for value in (common, guests, found.hosts) for one in placeholders(value))
    notes = [note for note in dict.fromkeys(found.notes) if note.about]
    others = _counted(found.notes)
    files[REPORT] = _report(_contents(found, common, names), notes, list(variables), others)
    return Converted(files, [*notes, *others], sorted(found.guests))


def _with_default_pool(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The variables with the default pool in `storage_pools`, as a list replaces the role's default."""
    common = dict(values)
    pools = common.get("storage_pools")
    if pools and not any(
        _DEFAULT_POOL["name"] == pool["name"] or _DEFAULT_POOL["path"] == pool.get("path") for pool in pools
    ):
        common["storage_pools"] = [_DEFAULT_POOL, *pools]
    return common


def _with_values_of_group(own: t.Mapping[str, t.Any], common: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A host's variables merged with those of its group, which they would replace."""
    found = dict(own)
    for key, value in own.items():
        if isinstance(value, dict):
            found[key] = {**common.get(key, {}), **value}
        elif isinstance(value, list):
            names = {_named(one) for one in value}
            found[key] = [*(one for one in common.get(key, []) if _named(one) not in names), *value]
    return _with_default_pool(found)


def _named(item: t.Any) -> str:
    """The name of an item of a list; a text is its own."""
    return str(item.get("name")) if isinstance(item, dict) else str(item)


def _contents(found: _Variables, common: t.Mapping[str, t.Any], names: t.Sequence[str]) -> list[str]:
    """Lines with the number and names of what is written, by kind."""
    guests = [f"guests: {len(found.guests)} ({', '.join(found.guests)})"] if found.guests else []
    lines = []
    for where, values in (("", common), *((f"{host}: ", found.hosts.get(host, {})) for host in names)):
        for key, value in values.items():
            listed = [_named(one) for one in value] if isinstance(value, list) else value
            shown = f": {len(value)} ({', '.join(listed)})" if isinstance(value, (list, dict)) else ""
            lines.append(f"{where}{key}{shown}")
    return guests + lines


def _counted(notes: t.Iterable[SaltNote]) -> list[SaltNote]:
    """Notes with the number of entries that are not about virtualization, by file and kind."""
    kinds: dict[str, dict[str, int]] = {}
    for note in dict.fromkeys(notes):
        if not note.about:
            kind = kinds.setdefault(note.file, {})
            kind[note.why] = kind.get(note.why, 0) + 1
    return [
        SaltNote(
            file,
            "",
            f"{sum(kind.values())} not about virtualization: "
            + ", ".join(f"{what} {number}" for what, number in sorted(kind.items())),
            about=False,
        )
        for file, kind in kinds.items()
    ]


def _report(
    contents: t.Sequence[str], notes: t.Sequence[SaltNote], variables: t.Sequence[str], others: t.Sequence[SaltNote]
) -> str:
    sections: dict[str, t.Sequence[object]] = {
        "Converted from Salt": contents,
        "Not converted or changed, or yet to be done, with its place": notes,
        "Variables to set, secrets with ansible-vault": variables,
        "Not about virtualization": others,
    }
    lines: list[str] = []
    for title, entries in sections.items():
        if entries or not lines or entries is notes:
            lines += ["", f"{title}:", "", *([f"- {entry}" for entry in entries] or ["- nothing"])]
    return "\n".join(line.replace("\n", " ") for line in lines[1:]) + "\n"
