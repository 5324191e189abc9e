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
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import signature_of
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["minimal"]

Given = dict[str, t.Any]

# What libvirt writes where nobody says anything.
_LIBVIRT: t.Mapping[str, t.Any] = {
    "on_poweroff": "destroy",
    "on_reboot": "restart",
    "on_crash": "destroy",
    "balloon": {"model": "virtio"},
    "autostart": False,
}
_INSIDE = (("vcpus", "placement", "static"), ("serials", "target", "isa-serial"))
_INPUTS = ({"type": "mouse", "bus": "ps2"}, {"type": "keyboard", "bus": "ps2"})
_CONTROLLERS = ("ide", "sata", "fdc")  # it makes them for the disks that hang on them
_SPARE = [("0", "pcie-root"), *((str(number), "pcie-root-port") for number in range(1, 17))]  # of a bare guest
_FEW = 16  # entries of a list, of which each is looked at on its own
_DEPTH = 2
_STAY = ("name", "virt_type", "machine", "disks", "interfaces", "xml", "uuid")
_NUMBERS = ("vcpus", "memory")


def minimal(given: Given, make: t.Callable[[Given], Element]) -> Given:
    """Without each option that changes nothing in the document that `make` gives."""
    given = _without_libvirts(copy.deepcopy(given))
    for option in _NUMBERS:
        sizes = given.get(option)
        if isinstance(sizes, dict) and set(sizes) == {"current", "maximum"} and sizes["current"] == sizes["maximum"]:
            given[option] = sizes["current"]
    complete = signature_of(make(given))

    def needed(rest: Given) -> bool:
        return signature_of(make(rest)) != complete

    for option in [option for option in given if option not in (*_STAY, *_NUMBERS)]:
        rest = {key: value for key, value in given.items() if key != option}
        if needed(rest):
            _prune(given, option, given[option], needed)
        else:
            given = rest
    for option in ("disks", "interfaces"):
        _prune(given, option, given.get(option), needed)
    return given


def _identities(table: Table) -> t.Iterator[tuple[str, t.Collection[str]]]:
    """The options that tell the entries of each list apart."""
    for field, row in table.items():
        if isinstance(row, Items):
            option = field.rpartition(".")[2]
            place = ("device", *PLACES) if option == "disks" else ()  # else a new disk is meant
            yield option, {*row.keys, "state", *place}
            yield from _identities(row.table)


_IDENTITIES = dict(_identities(DOMAIN))


def _prune(given: Given, option: str, inside: t.Any, needed: t.Callable[[Given], bool]) -> None:
    """Take away what is not needed from a dictionary, or from the entries of a list."""
    entries = [one for one in (inside if isinstance(inside, list) else [inside]) if isinstance(one, dict)]
    kept = _IDENTITIES.get(option, ())
    few = len(entries) <= _FEW
    for key in dict.fromkeys(key for one in entries for key in one):
        having = [one for one in entries if key in one and (key not in kept or (key, one[key]) == ("device", "disk"))]
        for one in _drop(having, key, lambda: needed(given), len(having) if few else _DEPTH):
            if few:
                _prune(given, key, one[key], needed)


def _drop(entries: list[Given], key: str, needed: t.Callable[[], bool], depth: int) -> list[Given]:
    """Take a key away from all entries, or else from each half of them; those that need it keep it.

    Deeper than that nobody looks: of many entries, it is in all or in none.
    """
    if not entries:
        return []
    before = [dict(one) for one in entries]
    for one in entries:
        del one[key]
    if not needed():
        return []
    for one, former in zip(entries, before):
        one.clear()
        one.update(former)  # in its order
    if len(entries) == 1 or depth == 0:
        return entries
    half = len(entries) // 2
    return [one for part in (entries[:half], entries[half:]) for one in _drop(part, key, needed, depth - 1)]


def _without_libvirts(given: Given) -> Given:
    """What libvirt adds by itself."""
    for option, value in _LIBVIRT.items():
        if given.get(option) == value:
            given.pop(option)
    for option, key, value in _INSIDE:
        for entry in given[option] if isinstance(given.get(option), list) else [given.get(option) or {}]:
            if entry.get(key) == value:
                del entry[key]
    given["inputs"] = [entry for entry in given.get("inputs", []) if entry not in _INPUTS]
    added = _added_controllers(given) if "<controller" not in given.get("xml", "") else []
    given["controllers"] = [entry for entry in given.get("controllers", []) if entry not in added]
    return {option: value for option, value in given.items() if value != [] or option in _STAY}


def _added_controllers(given: Given) -> list[Given]:
    """Those that libvirt adds: for disks and channels, and the ports of a guest of which nobody says any."""
    controllers = given.get("controllers", [])
    used = {disk.get("bus") for disk in given.get("disks", [])} & set(_CONTROLLERS)
    used |= {"virtio-serial"} if any(one.get("state") != "absent" for one in given.get("channels", [])) else set()
    added = [entry for entry in controllers if entry["type"] in used and len(entry) == 2]
    ports = [entry for entry in controllers if entry["type"] == "pci"]
    return [*added, *ports] if _are_spare(ports) else added


def _are_spare(ports: t.Sequence[Given]) -> bool:
    """Whether they are those of a guest that was just made."""
    spare = [(str(entry["index"]), entry.get("model")) for entry in ports if "state" not in entry]
    return spare in ([], [("0", "pci-root")], _SPARE)
