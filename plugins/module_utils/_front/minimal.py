# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Arguments of a guest without what it has anyway: by the defaults of `virt_domain`, or of libvirt."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._xml.domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import holds
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["minimal"]

Said = dict[str, t.Any]

# What libvirt writes where nobody says anything.
_LIBVIRT: t.Mapping[str, t.Any] = {
    "on_poweroff": "destroy",
    "on_reboot": "restart",
    "on_crash": "destroy",
    "balloon": {"model": "virtio"},
    "autostart": False,
    "consoles": [],
}
_INSIDE = (("vcpus", "placement", "static"), ("serials", "target", "isa-serial"))
_INPUTS = ({"type": "mouse", "bus": "ps2"}, {"type": "keyboard", "bus": "ps2"})
_CONTROLLERS = ("ide", "sata", "fdc")  # it makes them for the disks that hang on them
_SPARE = [("0", "pcie-root"), *((str(number), "pcie-root-port") for number in range(1, 17))]  # of a bare guest
_STAY = ("name", "virt_type", "machine", "disks", "interfaces", "xml", "uuid")
_NUMBERS = ("vcpus", "memory")


def minimal(said: Said, make: t.Callable[[Said], Element]) -> Said:
    """Without each option that changes nothing in the document that `make` gives."""
    said = _without_libvirts(copy.deepcopy(said))
    for option in _NUMBERS:
        sizes = said.get(option)
        if isinstance(sizes, dict) and set(sizes) == {"current", "maximum"} and sizes["current"] == sizes["maximum"]:
            said[option] = sizes["current"]
    whole = make(said)

    def needed(rest: Said) -> bool:
        less = make(rest)
        return not (holds(less, whole) and holds(whole, less))

    for option in [option for option in said if option not in (*_STAY, *_NUMBERS)]:
        rest = {key: value for key, value in said.items() if key != option}
        if needed(rest):
            _prune(said, option, said[option], needed)
        else:
            said = rest
    for option in ("disks", "interfaces"):
        _prune(said, option, said[option], needed)
    return said


def _identities(table: Table) -> t.Iterator[tuple[str, t.Collection[str]]]:
    """The options that tell the entries of each list apart."""
    for field, row in table.items():
        if isinstance(row, Items):
            yield field.rpartition(".")[2], {*row.keys, "state"}
            yield from _identities(row.table)


_IDENTITIES = dict(_identities(DOMAIN))
_IDENTITIES["disks"] = {*_IDENTITIES["disks"], "device", *PLACES}  # else a new disk is meant


def _prune(said: Said, option: str, inside: t.Any, needed: t.Callable[[Said], bool]) -> None:
    """Take away what is not needed from a dictionary, or from the entries of a list."""
    if isinstance(inside, list):
        for entry in inside:
            _prune(said, option, entry, needed)
    if not isinstance(inside, dict):
        return
    kept = _IDENTITIES.get(option, ())
    for key in [key for key, value in inside.items() if key not in kept or (key, value) == ("device", "disk")]:
        value = inside.pop(key)
        if needed(said):
            inside[key] = value
            _prune(said, key, value, needed)


def _without_libvirts(said: Said) -> Said:
    """What libvirt adds by itself."""
    for option, value in _LIBVIRT.items():
        if said.get(option) == value:
            said.pop(option)
    for option, key, value in _INSIDE:
        for entry in said[option] if isinstance(said.get(option), list) else [said.get(option) or {}]:
            if entry.get(key) == value:
                del entry[key]
    said["inputs"] = [entry for entry in said.get("inputs", []) if entry not in _INPUTS]
    controllers = said.get("controllers", []) if "<controller" not in said.get("xml", "") else []
    ports = [entry for entry in controllers if entry["type"] == "pci"]
    spare = [(str(entry["index"]), entry.get("model")) for entry in ports if set(entry) <= {"type", "index", "model"}]
    used = {disk.get("bus") for disk in said.get("disks", [])} & set(_CONTROLLERS)
    used |= {"virtio-serial"} if any(one.get("state") != "absent" for one in said.get("channels", [])) else set()
    added = [entry for entry in controllers if entry["type"] in used and len(entry) == 2]
    if (spare == _SPARE[: len(spare)] and len(spare) in (0, len(_SPARE))) or spare == [("0", "pci-root")]:
        added += ports
    said["controllers"] = [entry for entry in said.get("controllers", []) if entry not in added]
    return {option: value for option, value in said.items() if value != [] or option in _STAY}
