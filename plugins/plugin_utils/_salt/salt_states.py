# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of Salt's files, in Salt's order: the functions that they call, and notes on those without a counterpart.

Pure.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import (
    SaltNote,
    SaltPart,
    is_about,
    merged,
)
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_top import Hosts

_ORDER = "the roles and playbooks run in their own order"
_CONDITION = "states have no conditions here; use `when` in a playbook"
_FIREWALL = "the role firewall opens the ports of libvirt and of migration"
_BEFORE = ("require", "watch", "onchanges", "onfail", "listen")
_REQUISITES = frozenset(
    f"{word}{end}" for word in (*_BEFORE, "prereq", "use") for end in ("", "_in", "_any", "_all")
) | {"failhard", "fire_event", "parallel", "reload_modules", "retry", "timeout"}
_CONDITIONS = ("onlyif", "unless", "check_cmd")
_HINTS = {
    "pkg": "the role hypervisor installs libvirt and QEMU; add others to hypervisor_extra_packages",
    "service": "the role hypervisor enables libvirt's daemons",
    "file": "the role hypervisor writes hypervisor_libvirtd_conf and hypervisor_qemu_conf; use ansible.builtin.copy",
    "mount": "huge pages go to tuning_hugepages, storage of guests to storage_mounts (without a line of /etc/fstab)",
    "sysctl": "set it in tuning_sysctl",
    "bootloader": "set the kernel's parameter in tuning_kernel_arguments",
    "ssh_auth": "tuning_ssh_keys makes a key on each hypervisor, if they need to reach each other; migrations do not",
    "kmod": "use community.general.modprobe",
    "cmd": "a command is not converted; what it does by virsh, a role or module does here",
    "iptables": _FIREWALL,
    "firewalld": _FIREWALL,
    "virt_utils": "Uyuni's own state; the roles start networks and pools",
}
_OTHER = "no role does it; use a task of Ansible"
_COMMANDS = {
    "rebooted": "ansible-playbook corral.virt.reboot -e guest={name}",
    "snapshot": "ansible-playbook corral.virt.snapshot -e guest={name}",
    "saved": "ansible-playbook corral.virt.snapshot -e guest={name}",
    "reverted": "ansible-playbook corral.virt.revert -e guest={name} -e snapshot=SNAPSHOT -e run=true -e "
    "confirm_snapshot=SNAPSHOT",
    "volume_defined": "virsh vol-create-as; a guest's disk is created with the guest",
}


@dataclasses.dataclass
class Call:
    """A function that a state calls. `arguments` include those that other files extend it by."""

    file: str
    hosts: Hosts
    identity: str
    module: str
    function: str
    arguments: list[t.Any]
    order: float = 0

    @property
    def path(self) -> str:
        """The call's path in the file."""
        return f"{self.identity}:{self.module}.{self.function}"

    def names(self) -> set[str]:
        """Names by which requisites refer to the call."""
        own = [one.get("name") for one in self.arguments if isinstance(one, dict)]
        return {self.identity, *(one for one in own if isinstance(one, str))}

    def value(self, word: str) -> t.Any:
        """The last argument of that name."""
        return next((one[word] for one in reversed(self.arguments) if isinstance(one, dict) and word in one), None)


class States:
    """The calls of all files, in order of reading."""

    def __init__(self, notes: list[SaltNote]) -> None:
        self.notes = notes
        self.calls: list[Call] = []
        self._extensions: list[tuple[str, dict[str, t.Any]]] = []
        self._exclusions: list[tuple[str, str]] = []

    def read(self, file: str, hosts: Hosts, data: t.Mapping[str, t.Any]) -> None:
        """Add the states of one file."""
        for identity, body in data.items():
            if identity == "extend" and isinstance(body, dict):
                self._extensions.append((file, body))
            elif identity == "exclude" and isinstance(body, list):
                self._exclusions += [(file, one) for entry in body if (one := _excluded(entry))]
            elif identity in ("extend", "exclude"):
                self.notes.append(SaltNote(file, identity, "it cannot be read, and is left out"))
            elif identity != "include" and not identity.startswith("__"):
                self._declared(file, hosts, identity, body)

    def low(self, file: str, hosts: Hosts, entries: t.Sequence[t.Any]) -> None:
        """Add the calls that `state.show_lowstate` and `state.show_low_sls` print."""
        for one in entries:
            if isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("state", "fun", "__id__")):
                own = {key: value for key, value in one.items() if not key.startswith("__")}
                module, function = own.pop("state"), own.pop("fun")
                self._add(file, hosts, one["__id__"], module, function, [own])

    def _declared(self, file: str, hosts: Hosts, identity: str, body: t.Any) -> None:
        for module, function, arguments in _calls(body):
            if module is None:
                about = is_about(f"{identity} {body}")
                why = "it is not a state, and is left out" if about else "no state"
                self.notes.append(SaltNote(file, identity, why, about=about))
            else:
                self._add(file, hosts, identity, module, function, arguments)

    def _add(self, file: str, hosts: Hosts, identity: str, module: str, function: str, arguments: list[t.Any]) -> None:
        call = Call(file, hosts, identity, module, function, arguments)
        call.order = _order(call.value("order"), len(self.calls))
        self.calls.append(call)

    def in_order(self) -> list[Call]:
        """The calls in Salt's order: extended, without excluded ones, and after what they require."""
        self._extend()
        self._exclude()
        calls = sorted(self.calls, key=lambda call: call.order)
        known: dict[tuple[str, str], list[int]] = {}
        for number, call in enumerate(calls):
            for name in call.names():
                known.setdefault((call.module, name), []).append(number)
                known.setdefault(("", name), []).append(number)
        before: list[list[int]] = [[] for _call in calls]
        for number, call in enumerate(calls):
            for word in _BEFORE:
                before[number] += _named(call.value(word), known)
                for other in _named(call.value(word + "_in"), known):
                    before[other].append(number)
            for other in _named(call.value("prereq"), known):
                before[other].append(number)
        return [calls[number] for number in after(before)]

    def _extend(self) -> None:
        for file, body in self._extensions:
            for identity, more in body.items():
                for key, arguments in more.items() if isinstance(more, dict) else [("", None)]:
                    module = key.partition(".")[0]
                    hit = [call for call in self.calls if call.identity == identity and call.module == module]
                    listed = arguments if isinstance(arguments, list) else [arguments]
                    for call in hit:
                        call.arguments = [*call.arguments, *(one for one in listed if isinstance(one, dict))]
                    if not hit:
                        self.notes.append(SaltNote(file, f"extend:{identity}", "there is no such state to extend"))

    def _exclude(self) -> None:
        for file, identity in self._exclusions:
            hit = [call for call in self.calls if call.identity == identity]
            self.calls = [call for call in self.calls if call.identity != identity]
            why = "it is left out, as in Salt" if hit else "there is no such state to leave out; render the states"
            self.notes.append(SaltNote(file, f"exclude:{identity}", why))


def _excluded(entry: t.Any) -> str | None:
    if isinstance(entry, dict):
        entry = entry.get("id", entry.get("sls"))
    return entry if isinstance(entry, str) else None


def _order(value: t.Any, number: int) -> float:
    """The sort key of Salt's `order`: `first`, `last`, a number, or the place in the files."""
    if value in ("first", "last"):
        return -1 if value == "first" else float("inf")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if value >= 0 else 1e9 + value
    return 10_000 + number


def _named(requisite: t.Any, known: t.Mapping[tuple[str, str], list[int]]) -> list[int]:
    """Numbers of the calls that a requisite names: `- virt: web1`, or `- web1`."""
    found: list[int] = []
    for one in requisite if isinstance(requisite, list) else []:
        pairs = one.items() if isinstance(one, dict) else [("", one)]
        for module, name in pairs:
            if isinstance(name, str):
                found += known.get((module.partition(".")[0], name), [])
    return found


def after(before: t.Sequence[t.Sequence[int]]) -> list[int]:
    """All numbers in order, but each after its predecessors `before` it. A cycle is cut."""
    found: list[int] = []
    entered: set[int] = set()
    for start in range(len(before)):
        waiting = [(start, False)]
        while waiting:
            number, is_done = waiting.pop()
            if is_done:
                found.append(number)
            elif number not in entered:
                entered.add(number)
                waiting += [(number, True), *((one, False) for one in reversed(before[number]) if one not in entered)]
    return found


def _calls(body: t.Any) -> t.Iterator[tuple[str | None, str, list[t.Any]]]:
    """Module, function and arguments of a state: `virt.running: [...]`, `virt: [running, ...]`, or `virt.keys`."""
    if isinstance(body, str):
        body = {body: []}
    if not isinstance(body, dict):
        yield None, "", []
        return
    for key, arguments in body.items():
        if key.startswith("__"):
            continue
        entries = [arguments] if isinstance(arguments, dict) else arguments
        listed = entries if isinstance(entries, list) else []
        module, dot, function = key.partition(".")
        if not dot:
            function = next((one for one in listed if isinstance(one, str)), "")
        yield (module, function, listed) if function else (None, "", [])


def instances(identity: str, arguments: t.Sequence[t.Any]) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """Name and arguments of each instance: one for each of `names`."""
    shared: dict[str, t.Any] = {}
    for one in arguments:
        if isinstance(one, dict):
            shared.update(one)
    names = shared.pop("names", None)
    name = shared.pop("name", None)
    if not isinstance(names, list):
        yield str(name if name is not None else identity), shared
        return
    for one in names:
        key, own = one, None
        if isinstance(one, dict) and one:
            key = [*one][0]  # noqa: RUF015 - pylint takes no next() in a generator
            own = merged(one[key]) if len(one) == 1 else None
        yield str(key), {**shared, **(own if isinstance(own, dict) else {})}


def requisites(part: SaltPart) -> None:
    """Drop order and conditions of a state, with a note."""
    part.raw("order")
    for key in part.untaken():
        if key in _REQUISITES:
            part.skip(_ORDER, key)
    part.skip(_CONDITION, *_CONDITIONS)


def elsewhere(call: Call, name: str, notes: list[SaltNote]) -> None:
    """Report a state without a counterpart; one that is not about virtualization is only counted."""
    if call.module == "virt" and (command := _COMMANDS.get(call.function)):
        notes.append(SaltNote(call.file, call.path, command.format(name=name)))
    elif call.module in ("virt", "virt_utils", "libvirt") or is_about(f"{call.identity} {call.arguments}"):
        notes.append(SaltNote(call.file, call.path, _HINTS.get(call.module, _OTHER)))
    else:
        notes.append(SaltNote(call.file, call.path, f"{call.module}.{call.function}", about=False))
