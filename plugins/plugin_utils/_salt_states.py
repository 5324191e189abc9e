# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states of a file of Salt: which functions they call, for which objects, and what has no counterpart. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._salt_part import SaltPart, merged

__all__ = ["calls", "elsewhere", "instances", "requisites"]

_ORDER = "the roles and playbooks run in their own order"
_CONDITION = "states have no conditions here; use `when` in a playbook"
_REQUISITES = frozenset(
    f"{word}{end}"
    for word in ("require", "watch", "prereq", "use", "onchanges", "onfail", "listen")
    for end in ("", "_in", "_any", "_all")
) | {"failhard", "fire_event", "parallel", "reload_modules", "retry", "timeout"}
_CONDITIONS = ("onlyif", "unless", "check_cmd")
_HINTS = {
    "pkg": "the role hypervisor installs libvirt and QEMU; add others to hypervisor_extra_packages",
    "service": "the role hypervisor enables libvirt's daemons",
    "file": "the role hypervisor writes hypervisor_libvirtd_conf and hypervisor_qemu_conf; use ansible.builtin.copy",
    "mount": "use ansible.posix.mount, and name the directory in storage_pools",
    "sysctl": "use ansible.posix.sysctl; the role bridge sets those of bridges",
    "iptables": "the role firewall opens the ports of libvirt and of migration",
    "firewalld": "the role firewall opens the ports of libvirt and of migration",
}
_COMMANDS = {
    "stopped": "ansible-playbook corral.virt.shutdown -e guest={name}",
    "powered_off": "ansible-playbook corral.virt.force_off -e guest={name}",
    "rebooted": "ansible-playbook corral.virt.reboot -e guest={name}",
    "snapshot": "virsh snapshot-create-as {name}",
    "saved": "virsh snapshot-create-as {name}",
    "reverted": "virsh snapshot-revert {name} SNAPSHOT",
    "unpowered": "ansible-playbook corral.virt.shutdown -e guest={name}",
    "volume_defined": "virsh vol-create-as; a guest's disk is created with the guest",
}


def calls(body: t.Any) -> t.Iterator[tuple[str | None, str, list[t.Any]]]:
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
    """A state for each of `names`."""
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
    """Order and conditions, which are left out with a note."""
    part.raw("order")
    for key in part.untaken():
        if key in _REQUISITES:
            part.skip(_ORDER, key)
    part.skip(_CONDITION, *_CONDITIONS)


def elsewhere(part: SaltPart, module: str, function: str, name: str) -> None:
    """A state of which no variable tells."""
    command = _COMMANDS.get(function) if module == "virt" else None
    part.note("", command.format(name=name) if command else _HINTS.get(module, "it does not belong to Salt Virt"))
