# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and convert the arguments of a playbook against the action catalogue. Pure."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils import _units
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils import _actions
from ansible_collections.corral.virt.plugins.plugin_utils import _selection as selection
from ansible_collections.corral.virt.plugins.plugin_utils._actions import Action, Argument

__all__ = ["asked", "converted", "withheld"]

# Variables of Ansible, of what starts it, and of this collection's inventory.
_PASSING = ("ansible_", "awx_", "tower_", "semaphore_", "virt_", "corral_")
_PRIVATE = "_"  # private names, of the user or of the playbooks themselves
_NEAR = 0.8
_MISTYPED = 0.9  # for names with a prefix that others use, too
_STRUCTURES: dict[str, type] = {"list": list, "dict": dict}
_PATTERN = re.compile(r"[A-Za-z0-9._*?!\[\]-]{1,63}", re.ASCII)

Given = t.Mapping[str, t.Any]


def asked(action: Action, given: Given, known: t.Callable[[], t.Collection[str]] = tuple) -> dict[str, t.Any]:
    """The arguments, converted, with defaults; raises BadInput with every problem.

    `given` are the variables of whoever runs the playbook, `known` those that the inventory has.
    """
    provided = {name: value for name, value in given.items() if name in action.arguments and not _is_empty(value)}
    strange = [name for name in given if name not in action.arguments]
    problems = _strangers(action, strange, known)
    values = _converted(
        action, {name: _parsed(action.arguments[name], value) for name, value in provided.items()}, problems
    )
    for name, value in values.items():
        problems += _misfits(action, action.arguments[name], value)
    problems += _missing(action, values)
    if problems:
        raise BadInput(problems)
    return values


def _is_empty(value: object) -> bool:
    """Whether the argument counts as not given: web forms send an empty text for an unanswered question."""
    return value is None or (isinstance(value, str) and not value.strip())


def withheld(action: Action, arguments: Given) -> list[str]:
    """Names of arguments that may hold a secret, and so are not shown."""
    return sorted(name for name in arguments if action.arguments[name].confidential)


def converted(action: Action, given: Given) -> dict[str, t.Any]:
    """Convert arguments that `asked` has checked before."""
    return _converted(action, {name: _parsed(action.arguments[name], value) for name, value in given.items()}, [])


def _strangers(action: Action, strange: t.Sequence[str], known: t.Callable[[], t.Collection[str]]) -> list[str]:
    """Problems of variables that are not arguments; variables that the inventory or a role has are none."""
    passing = _actions.role_variables()
    unclear = {name: why for name in strange if name not in passing and (why := _meant(action, name))}
    theirs = known() if unclear else ()
    return [f"{name}: {why}" for name, why in unclear.items() if name not in theirs]


def _meant(action: Action, name: str) -> str | None:
    """A suggestion for the name; None if it seems to be a variable of somebody else."""
    if name in action.only_inside:
        return f"""Ansible reserves that name; write -e '{{"{action.inside}": {{"{name}": ...}}}}'"""
    if name.startswith(_PRIVATE):
        return None
    if name.startswith(_PASSING):
        return _mistyped(action, name)
    if other := _actions.elsewhere().get(name):
        takers = _takers(other["argument"])
        whose = "" if action.name in takers else f"it belongs to {', '.join(takers)}: "
        return f"{action.name} does not take it; {whose}write {other['write']}"
    near = _near(name, list(action.arguments))
    if near is None and (takers := _takers(name)):
        return f"{action.name} does not take it; it belongs to {', '.join(takers)}"
    meant = near or next(iter(difflib.get_close_matches(name, _actions.role_variables(), 1, _NEAR)), None)
    return f"{action.name} has no such argument; did you mean {meant}?" if meant else None


def _mistyped(action: Action, name: str) -> str | None:
    """A suggestion for a name with a prefix that variables of others have, too."""
    ours = [one for one in (*action.arguments, *_actions.role_variables()) if one.startswith(_PASSING)]
    meant = next(iter(difflib.get_close_matches(name, ours, 1, _MISTYPED)), None)
    return f"{action.name} has no such argument; did you mean {meant}?" if meant else None


def _takers(argument: str) -> list[str]:
    return [name for name in _actions.names() if argument in _actions.action(name).arguments]


def _near(name: str, names: t.Sequence[str]) -> str | None:
    """The name of which this one is a misspelling or a beginning."""
    longer = [one for one in names if len(name) > 2 and one.startswith(name)]
    return next(iter([*difflib.get_close_matches(name, names, 1, _NEAR), *longer]), None)


def _parsed(argument: Argument, value: object) -> object:
    """Lists and dictionaries may be written as JSON or YAML, as a web form and `-e name=value` do."""
    kind = _STRUCTURES.get(argument.spec.get("type", ""))
    if kind is None or not isinstance(value, str):
        return value
    parsed = _read(value)
    return parsed if isinstance(parsed, kind) else value  # the conversion takes other forms, or reports the type


def _read(text: str) -> object:
    """JSON, or else YAML; None for what is neither."""
    try:
        return json.loads(text)
    except ValueError:
        with contextlib.suppress(ValueError, yaml.YAMLError):
            return yaml.safe_load(text)
    return None


def _converted(action: Action, provided: Given, problems: list[str]) -> dict[str, t.Any]:
    """Converted values with the catalogue's defaults; values that a module checks itself stay as they are."""
    spec = {name: {**argument.spec, "no_log": False} for name, argument in action.arguments.items()}
    flat = {name: _flat(each) for name, each in spec.items() if name in provided or not action.arguments[name].option}
    result = ArgumentSpecValidator(flat).validate(dict(provided))
    problems += map(str, result.error_messages)
    values = {name: value for name, value in result.validated_parameters.items() if value is not None}
    return {
        **values,
        **{name: value for name, value in provided.items() if isinstance(value, (dict, list)) and _is_deep(spec[name])},
    }


def _flat(spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The specification without suboptions and dependencies on other options, which the module checks."""
    return {key: spec[key] for key in ("type", "elements", "choices", "default", "no_log") if key in spec}


def _is_deep(spec: t.Mapping[str, t.Any]) -> bool:
    return bool(spec.get("options")) or spec.get("type") in ("dict", "raw")


def _misfits(action: Action, argument: Argument, value: t.Any) -> t.Iterator[str]:
    if argument.minimum is not None and isinstance(value, int) and value < argument.minimum:
        yield f"{argument.name}: must be at least {argument.minimum}, not {value}"
    if argument.options_of and isinstance(value, dict):
        options = _actions.options(argument.options_of)
        for key in value:
            if key in action.refused:
                yield f"{argument.name}.{key}: {action.name} does not take it"
            elif key not in options:
                near = _near(str(key), list(options))
                yield (
                    f"{argument.name}.{key}: {argument.options_of} has no such "
                    f"option{f'; did you mean {near}?' if near else ''}"
                )
    if argument.kind == "guest":
        yield from _misnamed(argument, value)


def _misnamed(argument: Argument, value: t.Any) -> t.Iterator[str]:
    """Problems of guest names. An argument that takes several names also takes patterns."""
    for name in value if isinstance(value, list) else [value]:
        if argument.name == "guest" and isinstance(value, list) and selection.is_pattern(str(name)):
            if not _PATTERN.fullmatch(str(name)):
                yield f"guest: {name!r} is not a pattern; use letters, digits, '.', '_', '-', '*', '?' and '[...]'"
            continue
        try:
            check = _units.check_given_name if argument.existing else _units.check_name
            check(name, what=argument.name)
        except BadInput as error:
            yield from error.problems


def _says_options(action: Action, values: Given) -> bool:
    return bool(values.get("domain")) or any(action.arguments[name].option for name in values)


def _missing(action: Action, values: Given) -> t.Iterator[str]:
    for name, argument in action.arguments.items():
        if argument.required and values.get(name) in (None, ""):
            yield f"{name}: {action.name} requires it; write -e {name}={name.upper()}"
    if action.partial and not _says_options(action, values):
        yield f"{action.name}: it has nothing to {action.name}; write -e memory=4GiB, or another option of virt_domain"
    if "tag" not in action.arguments:
        return
    if not values.get("guest") and not values.get("tag"):
        yield (
            f"guest: {action.name} requires it; write -e guest=NAME, -e guest=NAME,NAME, -e guest='PATTERN*' or -e "
            "tag=TAG"
        )
    elif values.get("guest") and values.get("tag"):
        yield "tag: tag and guest are mutually exclusive; omit one"
