# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Options of `virt_domain`, and what they mean: parameters in, one `GuestSpec` out. Docs:
plugins/doc_fragments/domain.py.

What is in the XML has its option from its row; here is the rest, and what fields say together.
"""

from __future__ import annotations

import difflib
import functools
import math
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils import _units
from ansible_collections.corral.virt.plugins.module_utils._changes import shown
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.numbers import bounded
from ansible_collections.corral.virt.plugins.module_utils._front.options import fields_of, option_of, spec
from ansible_collections.corral.virt.plugins.module_utils._model.domain import ACTIONS, APPLY, STATES, Disk, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._model.item import Item
from ansible_collections.corral.virt.plugins.module_utils._model.output import printable
from ansible_collections.corral.virt.plugins.module_utils._plan import new_guest, power
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems, contradictions
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.domain import DOMAIN, SHAPE
from ansible_collections.corral.virt.plugins.module_utils._xml.graphics import GRAPHICS, check

__all__ = ["DICTS", "GUEST_OPTIONS", "NAMING", "all_wanted", "spec_problems", "wanted"]

NAMING: dict[str, t.Any] = {"allow_duplicates": {"type": "bool", "default": False}}  # the action has decided by it

_STR = {"type": "str"}
_ROWS = spec(DOMAIN, without=("title", "description"))
# also a number, which is the current value
DICTS = {option: _ROWS.pop(option)["options"] for option in ("vcpus", "memory")}

GUEST_OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "uuid": _STR,
    "renamed_from": _STR,
    "clone_of": _STR,
    "state": {"type": "str", "choices": [*STATES, *ACTIONS], "default": "present"},
    "virt_type": {"type": "str", "choices": ["auto", "kvm", "qemu"], "default": "auto"},
    "title": _STR,
    "description": _STR,
    "vcpus": {"type": "raw"},
    "memory": {"type": "raw"},
    **_ROWS,
    "graphics": {
        "type": "dict",
        "options": {**spec(GRAPHICS, without=("autoport",)), "allow_unprotected": {"type": "bool", "default": False}},
    },
    "stop_on_reboot": {"type": "bool"},
    "autostart": {"type": "bool"},
    "image": _STR,
    "nic_profile": _STR,
    "disk_profile": _STR,
    "xml": {"type": "str", "no_log": True},
    "cloud_init": {
        "type": "dict",
        "options": {
            **{document: {"type": "raw", "no_log": True} for document in seeds.DOCUMENTS},
            "method": {"type": "str", "choices": list(seeds.METHODS), "default": "nocloud"},
            "on_change": {"type": "str", "choices": list(seeds.ON_CHANGE), "default": "ignore"},
        },
    },
    "apply": {"type": "str", "choices": list(APPLY), "default": "both"},
    "allow_restart": {"type": "bool", "default": False},
    "force": {"type": "bool", "default": False},
    "remove_storage": {"type": "bool", "default": False},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_for_ip": {"type": "str", "choices": ["any", "lease", "arp", "packets", "agent", "unknown", "none"]},
}
GUEST_OPTIONS["disks"]["options"].update(
    size={"type": "raw"}, pool=_STR, image=_STR, clone={"type": "str", "choices": ["overlay", "copy"]}
)
GUEST_OPTIONS["interfaces"]["aliases"] = ["networks"]

_MAKING = ("image", "clone", "size")
_SAME = ("state", "virt_type", "autostart", "apply", "allow_restart", "force", "remove_storage", "wait", "wait_for_ip")


def all_wanted(items: t.Sequence[t.Mapping[str, t.Any]], at_once: int = 1) -> list[GuestSpec]:
    """Every guest as wanted; raises BadInput with the problems of all of them."""
    problems = Problems()
    found = [problems.tried(functools.partial(wanted, item)) for item in items]
    originals = {item["name"]: item["clone_of"] for item in items if item.get("clone_of")}
    problems.found += contradictions([item["name"] for item in items], at_once, originals)
    problems.refuse()
    return [one for one in found if one]


def wanted(params: t.Mapping[str, t.Any]) -> GuestSpec:
    """What the user said about one guest; raises BadInput with every problem."""
    name, problems = params["name"], Problems()
    problems.tried(lambda: _units.check_given_name(name, what="name"))
    problems.found += _control_characters(params, name)
    given = {**params, **{option: _dictionary(option, params.get(option), name, problems.found) for option in DICTS}}
    fields = fields_of(DOMAIN, given, name, problems.found)
    graphics = params.get("graphics") and fields_of(GRAPHICS, params["graphics"], name, problems.found, "graphics.")
    if params.get("disks") is not None:
        fields["disks"] = _disks(fields.get("disks", ()), params["disks"], name, problems)
    problems.found += _kin_problems(params)
    uuid = params.get("uuid") and problems.tried(lambda: _units.uuid_of(params["uuid"], what=f"uuid of {name!r}"))
    image = params.get("image") and problems.tried(lambda: _units.check_image(params["image"], what=f"image of {name}"))
    cloud_init = params.get("cloud_init")
    seed = None if cloud_init is None else problems.tried(lambda: seeds.seed(cloud_init, guest=name))
    xml = params.get("xml") and problems.tried(lambda: _checked_xml(params["xml"], name))
    _complete(fields, graphics, params.get("stop_on_reboot"), name, problems.found)
    problems.found += [*_limits(fields, name), *_state_problems(params, name)]
    misfits = [*constraints.misfits(DOMAIN, fields), *constraints.misfits(GRAPHICS, graphics or {}, where="graphics.")]
    problems.found += [f"{place} of {name}: {reason}" for place, reason in (*misfits, *check(graphics or {}))]
    Problems(printable(problems.found)).refuse()
    guest = GuestSpec(
        name=name,
        fields=fields,
        graphics=graphics or None,
        allow_unprotected=bool((params.get("graphics") or {}).get("allow_unprotected")),
        xml=xml or None,
        image=image or None,
        seed=seed,
        uuid=uuid or None,
        renamed_from=params.get("renamed_from") or None,
        clone_of=params.get("clone_of") or None,
        as_numbers=tuple(option for option in DICTS if not isinstance(params.get(option), (dict, type(None)))),
        wait_timeout_s=params.get("wait_timeout") or 300,
        **{key: params[key] for key in _SAME if params.get(key) is not None},
    )
    return new_guest.with_image(guest)


def _control_characters(params: t.Mapping[str, t.Any], name: str) -> t.Iterator[str]:
    spoken = {
        key: value for key, value in params.items() if key not in ("name", "title", "description", "cloud_init", "xml")
    }
    texts = {"title": params.get("title"), "description": params.get("description")}
    for found in (*_units.control_characters(spoken), *_units.control_characters(texts, allowed="\n\t")):
        yield found.replace(": ", f" of {name}: ", 1)


def _kin_problems(params: t.Mapping[str, t.Any]) -> list[str]:
    """What is wrong with the other name that it had, or with the other guest that it is a copy of."""
    problems = Problems()
    for option, further in (("renamed_from", _former_problems), ("clone_of", _original_problems)):
        if params.get(option):
            what = f"{option} of {params['name']}"
            problems.tried(functools.partial(_units.check_given_name, params[option], what=what))
            problems.found += further(params, what)
    return problems.found


def _former_problems(params: t.Mapping[str, t.Any], what: str) -> t.Iterator[str]:
    if params["renamed_from"] == params["name"]:
        yield f"{what}: it is the guest's current name; omit it, or specify another name"
    if params.get("state") == "absent":
        yield f"{what}: a guest that is removed needs no new name; omit it to remove {params['name']}"


def _original_problems(params: t.Mapping[str, t.Any], what: str) -> t.Iterator[str]:
    if params["clone_of"] == params["name"]:
        yield f"{what}: a guest cannot be a copy of itself; specify another one"
    given = {option: params.get(option) for option in ("image", "renamed_from")}
    given["virt_type"] = params.get("virt_type") not in (None, "auto")
    given["state: absent"] = params.get("state") == "absent"
    for option in [option for option, value in given.items() if value]:
        yield f"{what}: clone_of and {option} are mutually exclusive; omit one of them"


def _checked_xml(xml: str, guest: str) -> str:
    try:
        return overlay.checked(xml, SHAPE)
    except ValueError as error:
        raise BadInput(f"xml of {guest}: {error}") from error


def _dictionary(option: str, value: object, guest: str, problems: list[str]) -> dict[str, t.Any] | None:
    """`vcpus: 2` and `vcpus: {current: 2}` are the same.

    Ansible checks dictionaries that are declared, so this one is checked here.
    """
    if value is None:
        return None
    entries = {str(key): one for key, one in value.items()} if isinstance(value, dict) else {"current": value}
    entries = bounded(DICTS[option], entries)
    result = ArgumentSpecValidator(DICTS[option]).validate(entries)
    if result.error_messages and not isinstance(value, dict):
        kind = {"int": "a whole number"}.get(DICTS[option]["current"]["type"], "a text")
        problems.append(f"{option} of {guest}: must be {kind} or a dictionary, not {entries['current']!r}")
    else:
        problems += spec_problems(result, DICTS[option], guest, option)
    return {} if result.error_messages else t.cast("dict[str, t.Any]", result.validated_parameters)


def spec_problems(result: t.Any, spec: t.Mapping[str, t.Any], guest: str, *way: str) -> t.Iterator[str]:
    """What Ansible found wrong with a dictionary of options, each with its place; `way` leads to it."""
    for unknown in sorted((name,) if isinstance(name, str) else name for name in result.unsupported_parameters):
        known: t.Any = {"options": spec}
        for step in unknown[:-1]:
            known = known["options"][step]
        place, options = ".".join((*way, *unknown)), sorted(known["options"])
        near = difflib.get_close_matches(unknown[-1], options, 1)
        remedy = f"did you mean {near[0]}?" if near else f"options are {', '.join(options)}"
        yield f"{place} of {guest}: no such option; {remedy}"
    where = f"{'.'.join(way)} of {guest}" if way else guest
    yield from (f"{where}: {message}" for message in result.error_messages if "Supported parameters" not in message)


def _disks(
    items: t.Sequence[Item], given: t.Sequence[t.Mapping[str, t.Any]], guest: str, problems: Problems
) -> tuple[Disk, ...]:
    """Disks with what is said of their volumes."""
    found = []
    for item, entry in zip(items, given):
        what = f"disk {item.name} of {guest}"
        size = entry.get("size")
        size_bytes = (
            None
            if size is None
            else problems.tried(functools.partial(_units.bytes_of, size, bare="G", what=f"size of {what}"))
        )
        for option, check_word in (("image", _units.check_image), ("pool", _units.check_name)):
            if entry.get(option) is not None:
                problems.tried(functools.partial(check_word, entry[option], what=f"{option} of {what}"))
        if item.name == "seed":
            problems.found.append(
                f"disk of {guest}: the name 'seed' is reserved for the cloud-init seed; choose another"
            )
        made: dict[str, t.Any] = {option: entry.get(option) for option in ("pool", "image", "clone")}
        disk = Disk(item.name, item.state, item.fields, size_bytes=size_bytes, **made)
        problems.found += [f"{what}: {reason}" for reason in _place_problems(disk, entry)]
        found.append(disk)
    return tuple(found)


_TWO_PARTS = {"rbd": "pool/image", "iscsi": "target/LUN (iqn.2026-01.org.example:disk/0)"}


def _place_problems(disk: Disk, entry: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """What is wrong with how the place of its bytes is told."""
    places, fields = disk.places, disk.fields
    if len(places) > 1 or (places and any(entry.get(option) is not None for option in _MAKING)):
        yield f"{places[0]} uses what exists as it is; it excludes {', '.join([*places[1:], *_MAKING])}"
    if entry.get("network") is not None and not entry["network"].get("protocol"):
        yield "network requires protocol; set it also to change another option of it"
    if entry.get("nvme") is not None and not entry["nvme"].get("address"):
        yield "nvme requires address; set it also to change another option of it"
    protocol, name = fields.get("network.protocol"), fields.get("network.name")
    if protocol in _TWO_PARTS and name and not all(name.partition("/")):
        yield f"network.name must be {_TWO_PARTS[protocol]} for protocol {protocol}, not {name}"
    if fields.get("network.socket") and any(host.state == "present" for host in fields.get("network.hosts", ())):
        yield "network.socket and network.hosts are mutually exclusive; omit one of them"
    if fields.get("network.auth.secret_uuid") and fields.get("network.auth.secret_usage"):
        yield "network.auth.secret_uuid and network.auth.secret_usage are mutually exclusive; omit one of them"


def _complete(
    fields: dict[str, t.Any],
    graphics: dict[str, t.Any] | None,
    stop_on_reboot: bool | None,
    guest: str,
    problems: list[str],
) -> None:
    """What follows from what was said."""
    if stop_on_reboot is not None:
        if "on_reboot" in fields:
            problems.append(f"stop_on_reboot of {guest}: it is short for on_reboot: destroy; set only one of them")
        fields["on_reboot"] = "destroy" if stop_on_reboot else "restart"
    topology = [f"vcpus.topology.{part}" for part in ("sockets", "cores", "threads")]
    spoken = [field for field in fields if field.startswith("vcpus.topology.")]
    if spoken:
        fields.update({field: fields.get(field, 1) for field in topology})
        product = math.prod(fields[field] for field in {*topology, *spoken})
        if product > _MOST_VCPUS:
            problems.append(f"vcpus.topology of {guest}: it has {product} vcpus; a guest has at most {_MOST_VCPUS}")
        elif fields.setdefault("vcpus.maximum", product) != product:
            problems.append(
                f"vcpus of {guest}: the topology has {product} vcpus, but maximum is {fields['vcpus.maximum']}; make "
                "them equal"
            )
    if "tags" in fields:
        fields["tags"] = tuple(sorted(set(fields["tags"])))
    if "memory.hugepage_size_kib" in fields:
        fields.setdefault("memory.hugepages", True)
    ports = {port: number for port, number in (graphics or {}).items() if port in ("port", "tls_port")}
    if graphics and ports:  # -1 is libvirt's choice
        graphics.update(
            autoport=set(ports.values()) == {-1},
            **{port: None if number == -1 else number for port, number in ports.items()},
        )
    if "interfaces" in fields:
        fields["interfaces"] = tuple(map(_typed, fields["interfaces"]))


_MOST_VCPUS = (DOMAIN["vcpus.maximum"].kind.ends or (1, 1))[1]
_TYPES = {"bridge": "bridge", "network": "network", "device": "direct", "address": "hostdev"}


def _typed(item: Item) -> Item:
    """An interface's type follows from what it is plugged into."""
    kind = next((kind for place, kind in _TYPES.items() if item.fields.get(place)), None)
    return item if kind is None or item.fields.get("type") else item.with_fields(type=kind)


def _limits(fields: t.Mapping[str, t.Any], guest: str) -> t.Iterator[str]:
    limits = {
        "vcpus.current": "vcpus.maximum",
        "memory.current_kib": "memory.maximum_kib",
        "memory.maximum_kib": "memory.hotplug_maximum_kib",
    }
    for low, high in limits.items():
        if fields.get(low, 0) > fields.get(high, 2**62):
            yield (
                f"{option_of(low)} of {guest}: {shown(low, fields[low])} is above {option_of(high)}, "
                f"{shown(high, fields[high])}"
            )


def _state_problems(params: t.Mapping[str, t.Any], guest: str) -> list[str]:
    problems = [
        f"{option} of {guest}: profiles are merged on the controller; run the module as a task or with ansible -m"
        for option in ("nic_profile", "disk_profile")
        if params.get(option)
    ]
    waits = params.get("wait_for_ip") not in (None, "none")
    wait, timeout_s = params.get("wait") is not False, params.get("wait_timeout")
    problems += power.waiting_problems(guest, wait=wait, force=bool(params.get("force")), timeout_s=timeout_s)
    if waits and not wait:
        problems.append(f"wait of {guest}: wait_for_ip requires waiting; omit one of wait: false and wait_for_ip")
    if waits and params["state"] not in ("running", "rebooted"):
        problems.append(f"wait_for_ip of {guest}: it requires state: running or state: rebooted, not {params['state']}")
    if params.get("apply") == "live" and params.get("allow_restart"):
        problems.append(
            f"apply of {guest}: live changes only the running guest, which a restart would undo; choose one of apply "
            "and allow_restart"
        )
    return problems
