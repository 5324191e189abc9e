# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions that are offered, described for forms: from the action catalogue and the options of modules."""

from __future__ import annotations

import functools
import re
import typing as t

import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, option_reach
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument, PlaybookAction

__all__ = ["arguments", "described", "names"]

_KEYS = ("elements", "choices", "default")
_GUEST_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


@functools.cache
def names() -> tuple[str, ...]:
    """Of the actions, in the catalogue's order."""
    return tuple(actions.offered())


def arguments(action: PlaybookAction) -> dict[str, Argument]:
    """Those that a request may give."""
    hidden = actions.not_offered()
    return {name: argument for name, argument in action.arguments.items() if name not in hidden}


@functools.cache
def described(name: str) -> dict[str, t.Any]:
    """An action, for whoever draws a form."""
    action = actions.action(name)
    return {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "description": action.description,
        "object": "cluster" if action.everywhere else action.kind,
        "destructive": action.destructive,
        "confirm": action.counts_guests,
        "from": list(action.from_states),
        "arguments": [_argument(action, each) for each in arguments(action).values()],
    }


def _argument(action: PlaybookAction, argument: Argument) -> dict[str, t.Any]:
    text = _texts().get(argument.name, "") if argument.option else argument.description
    found = {"name": argument.name, "required": argument.required, "description": text, **_spec(argument.spec)}
    if argument.kind:
        found["object"] = argument.kind
    if argument.minimum is not None:
        found["minimum"] = argument.minimum
    if argument.name == action.new_name:
        found["pattern"] = _GUEST_NAME
    if argument.options_of:
        found["options_of"] = argument.options_of
    if reaches := _reaches(action, argument):
        found["reaches"] = reaches
    return found


def _reaches(action: PlaybookAction, argument: Argument) -> dict[str, str]:
    """What an argument, and the options in it, reach beyond the guest: a rule must name these, or limit them."""
    among = {*option_reach.places_of(action, argument.name)}
    known = {} if argument.options_of else option_reach.table(action.name)
    return {
        other: reach.text
        for other, reach in known.items()
        if reach and reach.within != "guest" and {other, *option_reach.above(other)} & among
    }


def _spec(spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A type, and what is inside it."""
    found = {"type": spec.get("type", "str"), **{key: spec[key] for key in _KEYS if spec.get(key) is not None}}
    if spec.get("no_log"):
        found["secret"] = True
    if inside := spec.get("options"):
        found["options"] = [
            {"name": name, "required": bool(each.get("required")), **_spec(each)} for name, each in inside.items()
        ]
    return found


@functools.cache
def _texts() -> dict[str, str]:
    """The first sentence on each option of a module."""
    from ansible_collections.corral.virt.plugins.doc_fragments.domain import ModuleDocFragment
    from ansible_collections.corral.virt.plugins.modules import virt_migrate

    found = {}
    for documentation in (virt_migrate.DOCUMENTATION, vars(ModuleDocFragment)["DOCUMENTATION"]):
        for name, option in yaml.safe_load(documentation)["options"].items():
            text = option["description"]
            plain = re.sub(r"\b[A-Z]\(([^)]*)\)", r"\1", text if isinstance(text, str) else text[0])
            found[name] = re.split(r"(?<=\.)\s", plain)[0]
    return found
