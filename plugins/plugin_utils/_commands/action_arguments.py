# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and convert the arguments of a playbook against the action catalogue. Pure."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import re
import typing as t

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, selection
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument, PlaybookAction

# Variables of Ansible, of what starts it, and of this collection's inventory.
_PASSING = ("ansible_", "awx_", "tower_", "semaphore_", "virt_", "corral_")
_PRIVATE = "_"  # private names, of the user or of the playbooks themselves
_NEAR = 0.8
_MISTYPED = 0.9  # for names with a prefix that others use, too
_STRUCTURES: dict[str, type] = {"list": list, "dict": dict}
_NO_NUMBER = re.compile(r"\s*[+-]?(inf(inity)?|s?nan\d*|[\d._]*e[+-]?[\d_]{3,})\s*", re.ASCII | re.IGNORECASE)
_PATTERN = re.compile(r"[A-Za-z0-9._*?!\[\]-]{1,63}", re.ASCII)

Given = t.Mapping[str, t.Any]


class ArgumentProblem(t.NamedTuple):
    """What is wrong with an argument; without `argument`, with all of them together."""

    argument: str
    text: str
    option: str = ""  # of the module whose options the argument holds
    remedy: str = ""  # on a command line

    @property
    def about_option(self) -> str:
        """The text without the argument's name, for a reader who sees that elsewhere."""
        return f"{self.option}: {self.text}" if self.option else self.text

    def __str__(self) -> str:
        where = ".".join(name for name in (self.argument, self.option) if name)
        return f"{where}{where and ': '}{self.text}{self.remedy and '; '}{self.remedy}"


# What a run prints is its callback's business.
_OF_ANY = (("format", "seed"), ("format", "json"))


class BadArguments(BadInput):
    """A playbook's arguments are invalid."""

    def __init__(self, found: t.Sequence[ArgumentProblem]) -> None:
        super().__init__([str(problem) for problem in found])
        self.found = tuple(found)


def asked(action: PlaybookAction, given: Given, known: t.Callable[[], t.Collection[str]] = tuple) -> dict[str, t.Any]:
    """The arguments, converted, with defaults; raises BadArguments with every problem.

    `given` are the variables of the run, `known` returns those of the inventory.
    """
    provided = {name: value for name, value in given.items() if name in action.arguments and not _is_empty(value)}
    strange = [name for name in given if name not in action.arguments and (name, given[name]) not in _OF_ANY]
    values, mistyped = _converted(action, provided)
    problems = [*_strangers(action, strange, known), *mistyped]
    for name, value in values.items():
        problems += _misfits(action, action.arguments[name], value)
    problems += [*_missing(action, values), *_choice_of_guests(action, values)]
    if problems:
        raise BadArguments(problems)
    return values


def _is_empty(value: object) -> bool:
    """True if the argument counts as not given: web forms send an empty text for an unanswered question."""
    return value is None or (isinstance(value, str) and not value.strip())


def unknown_hosts(
    action: PlaybookAction, values: Given, members: t.Sequence[str], reachable: t.Collection[str]
) -> t.Iterator[ArgumentProblem]:
    """Problems of hosts that must be in the group.

    `members` are the hosts of the group, `reachable` those that `--limit` leaves in the run.
    """
    for name, argument in action.arguments.items():
        host = values.get(name)
        if argument.kind != "host" or not argument.existing or host is None or host in reachable:
            continue
        if host in members:
            yield ArgumentProblem(name, f"--limit excludes {host}", remedy="omit --limit")
            continue
        near = difflib.get_close_matches(host, members, 1)
        remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(sorted(members))}"
        text = f"{host} is not a host of the group {values['virt_group']}"
        yield ArgumentProblem(name, text, remedy=remedy)


def withheld(action: PlaybookAction, arguments: Given) -> list[str]:
    """Names of arguments that may hold a secret, and so are not shown."""
    return sorted(name for name in arguments if action.arguments[name].confidential)


def converted(action: PlaybookAction, given: Given) -> dict[str, t.Any]:
    """Convert arguments that `asked` accepted; raises BadArguments for what cannot be converted."""
    values, problems = _converted(action, given)
    if problems:
        raise BadArguments(problems)
    return values


def _strangers(
    action: PlaybookAction, strange: t.Sequence[str], known: t.Callable[[], t.Collection[str]]
) -> t.Iterator[ArgumentProblem]:
    """Problems of variables that are not arguments; variables of the inventory or of a role have none."""
    passing = actions.role_variables()
    unclear = [problem for name in strange if name not in passing and (problem := _meant(action, name))]
    theirs = known() if unclear else ()
    yield from (problem for problem in unclear if problem.argument not in theirs)


def _meant(action: PlaybookAction, name: str) -> ArgumentProblem | None:
    """The problem of a name that is not an argument; None if it seems to be another program's variable."""
    if name in action.only_inside:
        inside = f"""write -e '{{"{action.inside}": {{"{name}": ...}}}}'"""
        return ArgumentProblem(name, "Ansible reserves that name", remedy=inside)
    if name.startswith(_PRIVATE):
        return None
    if name.startswith(_PASSING):
        return _mistyped(action, name)
    if other := actions.elsewhere().get(name):
        takers = _takers(other["argument"])
        whose = "" if action.name in takers else f"it belongs to {', '.join(takers)}: "
        return ArgumentProblem(name, f"{action.name} does not take it; {whose}write {other['write']}")
    near = _near(name, list(action.arguments))
    if near is None and (takers := _takers(name)):
        return ArgumentProblem(name, f"{action.name} does not take it; it belongs to {', '.join(takers)}")
    meant = near or next(iter(difflib.get_close_matches(name, actions.role_variables(), 1, _NEAR)), None)
    return ArgumentProblem(name, f"{action.name} has no such argument; did you mean {meant}?") if meant else None


def _mistyped(action: PlaybookAction, name: str) -> ArgumentProblem | None:
    """The problem of a misspelt name with a prefix that other variables share; None if nothing is similar."""
    ours = [one for one in (*action.arguments, *actions.role_variables()) if one.startswith(_PASSING)]
    meant = next(iter(difflib.get_close_matches(name, ours, 1, _MISTYPED)), None)
    return ArgumentProblem(name, f"{action.name} has no such argument; did you mean {meant}?") if meant else None


def _takers(argument: str) -> list[str]:
    return [name for name in actions.names() if argument in actions.action(name).arguments]


def _near(name: str, names: t.Sequence[str]) -> str | None:
    """The name that this one is a misspelling or a beginning of; None if there is none."""
    longer = [one for one in names if len(name) > 2 and one.startswith(name)]
    return next(iter([*difflib.get_close_matches(name, names, 1, _NEAR), *longer]), None)


def _parsed(argument: Argument, value: object) -> object:
    """A list or dictionary from its JSON or YAML text, as web forms and `-e name=value` write it."""
    kind = _STRUCTURES.get(argument.spec.get("type", ""))
    if kind is None or not isinstance(value, str):
        return value
    try:
        parsed = _read(value)
    except RecursionError as error:
        raise BadArguments([ArgumentProblem(argument.name, "is nested too deeply")]) from error
    except _AliasFound as error:
        why = "has a YAML alias; write out what it stands for"
        raise BadArguments([ArgumentProblem(argument.name, why)]) from error
    return parsed if isinstance(parsed, kind) else value  # the conversion takes other forms, or reports the type


class _AliasFound(Exception):
    pass


class _Loader(yaml.SafeLoader):
    """YAML without aliases, by which a few lines can stand for billions of values."""

    def compose_node(self, parent: t.Any, index: t.Any) -> t.Any:
        """The next node; raises _AliasFound for an alias."""
        if self.check_event(yaml.AliasEvent):
            raise _AliasFound
        return super().compose_node(parent, index)


def _read(text: str) -> object:
    """The value of JSON or YAML; None if the text is neither."""
    try:
        return json.loads(text)
    except ValueError:
        with contextlib.suppress(ValueError, yaml.YAMLError):
            return yaml.load(text, Loader=_Loader)  # noqa: S506 (it is a SafeLoader)
    return None


def _converted(action: PlaybookAction, given: Given) -> tuple[dict[str, t.Any], list[ArgumentProblem]]:
    """Converted values with the catalogue's defaults, and problems of those that cannot be converted.

    Values that a module checks itself stay as they are.
    """
    provided = {name: _parsed(action.arguments[name], value) for name, value in given.items()}
    spec = {name: {**argument.spec, "no_log": False} for name, argument in action.arguments.items()}
    flat = {name: _flat(each) for name, each in spec.items() if name in provided or not action.arguments[name].option}
    numbers = {name for name, each in flat.items() if each.get("type") in ("int", "float")}
    odd = [name for name in provided if name in numbers and not _is_finite(provided[name])]
    result = ArgumentSpecValidator(flat).validate({name: each for name, each in provided.items() if name not in odd})
    values = {name: value for name, value in result.validated_parameters.items() if value is not None}
    deep = {name: value for name, value in provided.items() if isinstance(value, (dict, list)) and _is_deep(spec[name])}
    problems = [ArgumentProblem(name, f"{str(provided[name])[:40]!r} is not a finite number") for name in odd]
    return {**values, **deep}, problems + [ArgumentProblem("", message) for message in result.error_messages]


def _is_finite(value: object) -> bool:
    """True if Ansible may convert the value: it fails on an infinite number, and takes minutes for a large exponent."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or not _NO_NUMBER.fullmatch(value)


def _flat(spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The specification without suboptions and dependencies on other options, which the module checks."""
    return {key: spec[key] for key in ("type", "elements", "choices", "default", "no_log") if key in spec}


def _is_deep(spec: t.Mapping[str, t.Any]) -> bool:
    return bool(spec.get("options")) or spec.get("type") in ("dict", "raw")


def _misfits(action: PlaybookAction, argument: Argument, value: t.Any) -> t.Iterator[ArgumentProblem]:
    if argument.minimum is not None and isinstance(value, int) and value < argument.minimum:
        yield ArgumentProblem(argument.name, f"must be at least {argument.minimum}, not {value}")
    if argument.options_of and isinstance(value, dict):
        options = actions.options(argument.options_of)
        for key in map(str, value):
            if key in (*action.refused, *argument.refused):
                yield ArgumentProblem(argument.name, f"{action.name} does not take it", option=key)
            elif key not in options:
                near = _near(key, list(options))
                meant = f"; did you mean {near}?" if near else ""
                yield ArgumentProblem(argument.name, f"{argument.options_of} has no such option{meant}", option=key)
    if argument.kind == "guest":
        yield from _misnamed(argument, value)


def _misnamed(argument: Argument, value: t.Any) -> t.Iterator[ArgumentProblem]:
    """Problems of guest names. An argument that takes several names also takes patterns."""
    check = units.check_existing_name if argument.existing else units.check_name
    for name in value if isinstance(value, list) else [value]:
        many = argument.name == "guest" and isinstance(value, list)
        if many and selection.is_pattern(str(name)):
            if not _PATTERN.fullmatch(str(name)):
                why = f"{name!r} is not a pattern; use letters, digits, '.', '_', '-', '*', '?' and '[...]'"
                yield ArgumentProblem(argument.name, why)
            continue
        try:
            check(selection.literal(name) if many and isinstance(name, str) else name, what=argument.name)
        except BadInput as error:
            yield ArgumentProblem(argument.name, str(error).removeprefix(f"{argument.name}: "))


def _says_options(action: PlaybookAction, values: Given) -> bool:
    return bool(values.get("domain")) or any(action.arguments[name].option for name in values)


def _missing(action: PlaybookAction, values: Given) -> t.Iterator[ArgumentProblem]:
    for name, argument in action.arguments.items():
        if argument.required and values.get(name) in (None, ""):
            yield ArgumentProblem(
                name, f"{action.name} requires this argument", remedy=f"write -e {name}={name.upper()}"
            )
    if action.partial and not action.entry and not _says_options(action, values):
        remedy = "write -e memory=4GiB, or another option of virt_domain"
        yield ArgumentProblem("", f"{action.name} requires an option to change", remedy=remedy)


def _choice_of_guests(action: PlaybookAction, values: Given) -> t.Iterator[ArgumentProblem]:
    """Problems of the choice between guest and tag in actions that take both."""
    by_name, by_tag = bool(values.get("guest")), bool(values.get("tag"))
    if {"guest", "tag"} <= set(action.arguments) and not by_name and not by_tag:
        remedy = "write -e guest=NAME, -e guest=NAME,NAME, -e guest='PATTERN*' or -e tag=TAG"
        yield ArgumentProblem("guest", f"{action.name} requires a guest or a tag", remedy=remedy)
    if by_name and by_tag:
        yield ArgumentProblem("tag", "tag and guest are mutually exclusive; omit one")
