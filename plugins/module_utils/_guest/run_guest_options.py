# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of `virt_domain`, parsed to a `GuestSpec`. Docs: plugins/doc_fragments/domain.py.

Options that rows define come from the rows; the others, and checks across options, are here.
"""

from __future__ import annotations

import difflib
import functools
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import bounded
from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._core.problems import (
    Problems,
    contradictions,
    control_characters,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN, SHAPE
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_graphics import GRAPHICS, check
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import ACTIONS, APPLY, STATES, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_options
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power import state_problems
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed
from ansible_collections.corral.virt.plugins.module_utils._xml import constraints, overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.run_arguments import fields_of, spec

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
            **{document: {"type": "raw", "no_log": True} for document in plan_seed.DOCUMENTS},
            "method": {"type": "str", "choices": list(plan_seed.METHODS), "default": "nocloud"},
            "on_change": {"type": "str", "choices": list(plan_seed.ON_CHANGE), "default": "ignore"},
            "schema": {"type": "str", "choices": ["warn", "refuse", "ignore"], "default": "warn"},  # the controller's
        },
    },
    "apply": {"type": "str", "choices": list(APPLY), "default": "both"},
    "allow_restart": {"type": "bool", "default": False},
    "move_disks": {"type": "bool", "default": False},
    "snapshot": {"type": "str", "choices": ["before"]},  # the controller's
    "force": {"type": "bool", "default": False},
    "force_off": {"type": "bool", "default": False},
    "remove_storage": {"type": "bool", "default": False},
    "keep_shared": {"type": "bool", "default": False},
    "keep_removed_h": {"type": "int", "default": 0},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_for_ip": {"type": "str", "choices": ["any", "lease", "arp", "packets", "agent", "unknown", "none"]},
}
GUEST_OPTIONS["disks"]["options"].update(
    size={"type": "raw"},
    pool=_STR,
    image=_STR,
    image_pool=_STR,
    thin_pool=_STR,
    clone={"type": "str", "choices": ["overlay", "copy"]},
)
GUEST_OPTIONS["interfaces"]["aliases"] = ["networks"]

_MOST_VCPUS = (DOMAIN["vcpus.maximum"].kind.ends or (1, 1))[1]
_SAME = (
    "state", "virt_type", "autostart", "apply", "allow_restart", "move_disks", "force", "force_off", "remove_storage",
    "keep_shared", "keep_removed_h", "wait", "wait_for_ip",
)  # fmt: skip


def all_wanted(items: t.Sequence[t.Mapping[str, t.Any]], at_once: int = 1) -> list[GuestSpec]:
    """Every guest as wanted; raises BadInput with the problems of all of them."""
    problems = Problems()
    found = [problems.tried(functools.partial(wanted, item)) for item in items]
    originals = {item["name"]: item["clone_of"] for item in items if item.get("clone_of")}
    problems.found += contradictions([item["name"] for item in items], at_once, originals)
    problems.refuse()
    return [one for one in found if one]


def wanted(params: t.Mapping[str, t.Any]) -> GuestSpec:
    """The options of one guest; raises BadInput with every problem."""
    name, problems = params["name"], Problems()
    problems.tried(lambda: units.check_existing_name(name, what="name"))
    problems.found += _control_characters(params, name)
    given = {**params, **{option: _dictionary(option, params.get(option), name, problems.found) for option in DICTS}}
    fields = fields_of(DOMAIN, given, name, problems.found)
    graphics = params.get("graphics") and fields_of(GRAPHICS, params["graphics"], name, problems.found, "graphics.")
    if params.get("disks") is not None:
        fields["disks"] = plan_guest_options.disks(fields.get("disks", ()), params["disks"], name, problems)
    problems.found += plan_guest_options.origin_problems(params)
    uuid = params.get("uuid") and problems.tried(lambda: units.uuid_of(params["uuid"], what=f"uuid of {name!r}"))
    image = params.get("image") and problems.tried(lambda: units.check_image(params["image"], what=f"image of {name}"))
    cloud_init = params.get("cloud_init")
    seed = None if cloud_init is None else problems.tried(lambda: plan_seed.seed(cloud_init, guest=name))
    xml = params.get("xml") and problems.read(f"xml of {name}", lambda: overlay.checked(params["xml"], SHAPE))
    problems.found += plan_guest_options.conflicts(fields, params.get("stop_on_reboot"), name, most_vcpus=_MOST_VCPUS)
    fields = plan_guest_options.implied(fields, params.get("stop_on_reboot"))
    graphics = plan_guest_options.implied_graphics(graphics)
    problems.found += [*plan_guest_options.limit_problems(fields, name), *state_problems(params, name)]
    misplaced = [*constraints.violations(DOMAIN, fields), *_of_graphics(graphics or {})]
    problems.found += [f"{place} of {name}: {reason}" for place, reason in misplaced]
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
    return plan_guest_options.with_image(guest)


def _control_characters(params: t.Mapping[str, t.Any], name: str) -> list[str]:
    texts = {option: params.get(option) for option in ("title", "description")}
    stated = {key: value for key, value in params.items() if key not in ("name", "cloud_init", "xml", *texts)}
    return [*control_characters(stated, name), *control_characters(texts, name, allowed="\n\t")]


def _of_graphics(graphics: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    return [*constraints.violations(GRAPHICS, graphics, where="graphics."), *check(graphics)]


def _dictionary(option: str, value: object, guest: str, problems: list[str]) -> dict[str, t.Any] | None:
    """The value of `vcpus` or `memory` as a dictionary: `2` means `{current: 2}`.

    Ansible checks only dictionaries that are declared, so this one is checked here.
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
    """What Ansible found wrong with a dictionary of options, each with its place; `way` leads to the dictionary."""
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
