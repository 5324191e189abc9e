# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Arguments of a guest without what it has anyway: by the defaults of `virt_domain`, or of libvirt.

It starts from a guest of which nearly nothing is said, and adds, round by round, what its document lacks.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import signature_of
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element

__all__ = ["minimal"]

Given = dict[str, t.Any]
Entries = list[Given]

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
_STAY = ("name", "virt_type", "machine", "osinfo", "disks", "interfaces", "xml", "uuid")
_NUMBERS = ("vcpus", "memory")
_PLACE = ("device", "bus", *PLACES)  # without them, another disk is meant
_DISK = (("device", "disk"), ("bus", "virtio"))  # as a disk is anyway
_FIRST = ("type", "driver", "model", "mode", "bus")  # what others have anyway depends on them
_ROUNDS = 9  # an option inside an entry inside an option takes four


def minimal(given: Given, make: t.Callable[[Given], Element], told: t.Callable[[Element], Given]) -> Given:
    """Without options that change nothing in the document that `make` gives, and of which `told` are the options.

    All of them where nothing less makes the same.
    """
    given = _without_libvirts(copy.deepcopy(given))
    for option in _NUMBERS:
        sizes = given.get(option)
        if isinstance(sizes, dict) and set(sizes) == {"current", "maximum"} and sizes["current"] == sizes["maximum"]:
            given[option] = sizes["current"]
    complete = make(given)
    said, signature = told(complete), signature_of(complete)
    least = {option: _cores(option, value) for option, value in given.items() if option in _stay(given)}
    for _round in range(_ROUNDS):
        try:
            made = make(least)
        except BadInput:
            break
        if signature_of(made) == signature:
            return {option: least[option] for option in given if option in least}
        more = _with_lacking(least, given, said, told(made))
        if more == least:
            break
        least = more
    return given


def _stay(given: Given) -> tuple[str, ...]:
    """What is never left out: others hang on it. With a port of PCI, a guest has none but those that are said."""
    ports = any(entry["type"] == "pci" for entry in given.get("controllers", ()))
    return (*_STAY, "controllers") if ports else _STAY


def _with_lacking(least: Given, given: Given, said: Given, told: Given) -> Given:
    """`least` with the options of `given` where a document tells something else than is to be said."""
    more: Given = {}
    lacking = [option for option in given if said.get(option) != told.get(option)]
    first = [option for option in lacking if option in _FIRST and option not in least] or lacking
    for option, value in given.items():
        wanted, found = said.get(option), told.get(option)
        if option not in first:
            if option in least:
                more[option] = least[option]
        elif isinstance(value, dict):
            inner = [one if isinstance(one, dict) else {} for one in (least.get(option), wanted, found)]
            more[option] = _with_lacking(inner[0], value, *inner[1:])
        elif option in _LISTS and isinstance(value, list):
            lists = [one or [] for one in (least.get(option), wanted, found)]
            more[option] = _with_lacking_entries(option, lists[0], value, *lists[1:])
        else:
            more[option] = value
    return more


def _with_lacking_entries(option: str, least: Entries, given: Entries, said: Entries, told: Entries) -> Entries:
    """The same of a list: an entry that lacks comes with what makes it an entry first."""
    keys = _LISTS[option].keys
    chosen, wanted, found = ({_name(keys, one): one for one in entries} for entries in (least, said, told))
    more = []
    for entry in given:
        name = _name(keys, entry)
        if wanted.get(name) == found.get(name):
            more += [chosen[name]] if name in chosen else []
        elif name in chosen:
            part = _with_lacking(chosen[name], entry, wanted.get(name, {}), found.get(name, {}))
            more.append({key: part[key] for key in entry if key in part})
        else:
            more.append(_core(option, entry))
    return more


def _name(keys: t.Iterable[str], entry: Given) -> tuple[t.Any, ...]:
    return tuple(entry.get(key) for key in keys)


def _cores(option: str, value: t.Any) -> t.Any:
    return [_core(option, entry) for entry in value] if option in _LISTS else value


def _core(option: str, entry: Given) -> Given:
    """What tells an entry apart, and without which none can be made."""
    one = _LISTS[option]
    kept = {*one.keys, *one.needed, "state", *(_PLACE if option == "disks" else ())}
    return {key: value for key, value in entry.items() if key in kept and (key, value) not in _DISK}


def _rows(table: Table) -> t.Iterator[tuple[str, Items]]:
    """The lists of entries."""
    for field, one in table.items():
        if isinstance(one, Items):
            yield field.rpartition(".")[2], one
            yield from _rows(one.table)


_LISTS: t.Mapping[str, Items] = dict(_rows(DOMAIN))


def _without_libvirts(given: Given) -> Given:
    """What libvirt adds by itself."""
    for option, value in _LIBVIRT.items():
        if given.get(option) == value:
            given.pop(option)
    for option, key, value in _INSIDE:
        for entry in given[option] if isinstance(given.get(option), list) else [given.get(option) or {}]:
            if entry.get(key) == value:
                del entry[key]
    if "inputs" in given:  # none beside those: Windows would have a tablet where nothing is said
        given["inputs"] = [entry for entry in given["inputs"] if entry not in _INPUTS]
    added = _added_controllers(given) if "<controller" not in given.get("xml", "") else []
    given["controllers"] = [entry for entry in given.get("controllers", []) if entry not in added]
    return {option: value for option, value in given.items() if value != [] or option in (*_STAY, "inputs")}


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
