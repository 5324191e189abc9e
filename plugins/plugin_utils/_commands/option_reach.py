# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each option of an action can reach, at any depth: the table `reach.yml`, and the options of a request. Pure.

A place is the path of an option: `disks.source` is the source of each disk.
"""

from __future__ import annotations

import functools
import os
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import Argument, PlaybookAction, Spec

FILE = os.path.join(os.path.dirname(__file__), "reach.yml")


class Reach(t.NamedTuple):
    """What an option reaches: a kind's name, its scope (`guest`, `site`, `host`, `amount`) and a text."""

    name: str
    within: str
    text: str


class GivenOption(t.NamedTuple):
    """An option of a request."""

    place: str
    value: t.Any
    reach: Reach | None  # None: an option that holds others, or one that nobody knows
    holds: bool = False  # others


def _file() -> dict[str, t.Any]:
    return actions.table(FILE)


@functools.cache
def kinds() -> dict[str, Reach]:
    """The kinds of reach by name."""
    return {name: Reach(name, **entry) for name, entry in _file()["kinds"].items()}


def canonical(place: str) -> str:
    """The place by which an option is judged: some options mean the same as another one."""
    for other, place_of in _file()["same"].items():
        if place == other or place.startswith(f"{other}."):
            return str(place_of) + place[len(other) :]
    return place


def bare_unit(place: str) -> str:
    """The unit of a size without one at that place: M or G."""
    return str(_file()["bare"].get(place, "M"))


def above(place: str) -> list[str]:
    """The places that contain this one, the nearest first."""
    names = place.split(".")
    return [".".join(names[:length]) for length in range(len(names) - 1, 0, -1)]


@functools.cache
def _declared(section: str) -> dict[str, str]:
    """Names of kinds by place, for a module or for `arguments`."""
    part = _file()["arguments"] if section == "arguments" else _file()["others"][section]
    return {
        f"{parent}.{name}" if parent else name: kind
        for kind, several in part.items()
        for parents, names in several.items()
        for parent in parents.split(", ")
        for name in names
    }


def places(spec: t.Mapping[str, Spec], inside: str = "") -> t.Iterator[tuple[str, Spec, bool]]:
    """Every option at any depth: its place, its specification, and True if it only holds others."""
    for name, option in spec.items():
        place, options = f"{inside}{name}", option.get("options")
        yield place, option, bool(options) and option["type"] != "raw"
        if options:
            yield from places(options, f"{place}.")


@functools.cache
def _options(module: str) -> dict[str, Spec]:
    """The module's options, with the keys of those that take a number or a dictionary."""
    found = actions.options(module)
    if module != "virt_domain":
        return found
    from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import DICTS

    return {**found, **{name: {"type": "raw", "options": keys} for name, keys in DICTS.items()}}


@functools.cache
def _of_module(module: str) -> dict[str, Reach | None]:
    """Kinds by place; None for an option that holds others. Raises KeyError for an option that the table lacks."""
    names, found = _declared(module), dict[str, Reach | None]()
    for place, spec, holds in places(_options(module)):
        if canonical(place) == place:
            if not (holds or _is_path(spec) or place in names):
                raise KeyError(f"reach.yml does not say what {place} of {module} reaches")
            kind = "path" if _is_path(spec) else names.get(place, "")
            found[place] = None if holds else kinds()[kind]
    return {**found, **{place: kinds()[names[place]] for place in map(canonical, _file()["same"]) if place in names}}


def _is_path(spec: Spec) -> bool:
    return "path" in (spec.get("type"), spec.get("elements"))


def _of_argument(action: PlaybookAction, argument: Argument) -> Reach | None:
    if argument.options_of:
        return None
    if _is_path(argument.spec):
        return kinds()["controller"]
    names = _declared("arguments")
    return kinds()[names.get(f"{action.name}.{argument.name}") or names[argument.name]]


def _modules(action: PlaybookAction) -> list[str]:
    """Modules whose options the action takes."""
    if action.entry:
        return ["virt_domain"]
    inside = [one.options_of for one in action.arguments.values()]
    return sorted({*filter(None, inside), *([action.options_of["module"]] if action.options_of else [])})


@functools.cache
def lists(name: str) -> frozenset[str]:
    """Places of the action's lists of dictionaries, whose entries can be counted."""
    found = [each for module in _modules(actions.action(name)) for each in places(_options(module))]
    return frozenset(canonical(place) for place, spec, holds in found if holds and spec["type"] == "list")


def unsaid(found: t.Sequence[GivenOption], place: str) -> list[t.Any]:
    """The defaults of an option in the entries of a list that do not give it."""
    default, (listed, _dot, name) = _file()["unsaid"].get(place), place.rpartition(".")
    lists_of_dicts = [part.value for part in found if part.place == listed and isinstance(part.value, list)]
    entries = [entry for several in lists_of_dicts if default is not None for entry in several]
    return [default for entry in entries if name not in entry and entry.get("state") != "absent"]


@functools.cache
def table(name: str) -> dict[str, Reach | None]:
    """What each option of the action reaches, by place. Raises KeyError for an option that the table lacks."""
    action = actions.action(name)
    made = action.entry.options if action.entry else ()
    own = {
        one.name: _of_argument(action, one)
        for one in action.arguments.values()
        if not one.option and one.name not in made
    }
    reached = {place: kind for module in _modules(action) for place, kind in _of_module(module).items()}
    if action.entry:
        besides = [canonical(f"{action.entry.of}.{name}") for name in action.entry.fixed]
        taken = {action.entry.of, *besides, *(place for name in made for place in places_of(action, name))}
        reached = {place: kind for place, kind in reached.items() if place in taken}
    return reached | own


def is_own(name: str, place: str) -> bool:
    """True if an option belongs to the action itself, and not to a module whose options it also takes."""
    entry = actions.action(name).entry
    return "." not in place or bool(entry and entry.of in above(place))


def place_of(action: PlaybookAction, name: str) -> str:
    """The place at which an argument is judged; the first of a medium's several places."""
    return places_of(action, name)[0]


def places_of(action: PlaybookAction, name: str) -> list[str]:
    """All places at which an argument may be judged."""
    entry = action.entry if action.entry and name in action.entry.options else None
    return [*map(canonical, entry.places(name) if entry else [name])]


def harmless(place: str) -> tuple[t.Any, ...]:
    """Values of an option that reach nothing, whatever its other values reach."""
    return tuple(_file()["harmless"].get(place, ()))


def is_harmless(place: str, value: object) -> bool:
    """True if the value is a harmless one, and of the same type: in Python, True equals 1."""
    return any(value == one and type(value) is type(one) for one in harmless(place))


def reaches_host(action: PlaybookAction, name: str) -> bool:
    """True if an argument, or anything that it can hold, reaches a hypervisor or the controller."""
    argument, known = action.arguments[name], table(action.name)
    if argument.options_of:
        inside = list(_of_module(argument.options_of).values())
    else:
        among = places_of(action, name)
        inside = [kind for other, kind in known.items() if {other, *above(other)} & {*among}]
        if argument.spec.get("type") == "raw":  # a text is no dictionary
            inside = [known[place] for place in among]
    return any(kind and kind.within == "host" for kind in inside)


def parts(name: str, arguments: t.Mapping[str, t.Any]) -> list[GivenOption]:
    """Every option of a request for the action, at any depth, with its place."""
    entry = actions.action(name).entry
    given = entry.folded(arguments) if entry else arguments
    return [part for place, value in given.items() for part in _inside(name, canonical(place), value)]


@functools.cache
def _holders(name: str) -> frozenset[str]:
    """Places of the action's options that hold others."""
    return frozenset(holder for place in table(name) for holder in above(place))


def _inside(name: str, place: str, value: t.Any) -> t.Iterator[GivenOption]:
    known, holds = table(name), place in _holders(name)
    several = value if isinstance(value, list) else [value]
    if not holds or (known.get(place) and not isinstance(value, dict)):
        yield GivenOption(place, value, known.get(place))
    elif all(isinstance(each, dict) for each in several):
        yield GivenOption(place, value, None, holds=True)
        for each in several:
            for key, inner in each.items():
                yield from _inside(name, canonical(f"{place}.{key}"), inner)
    else:
        yield GivenOption(place, value, None)


def read(module: str, said: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Options as the module would read them, texts converted at any depth; and problems, by option.

    Options that are not given, or null, are left out.
    """
    found, problems = dict[str, t.Any](), dict[str, str]()
    for name, value in said.items():
        spec = _options(module)[name]
        if spec["type"] == "raw" and spec.get("options") and isinstance(value, dict):
            spec = {**spec, "type": "dict"}
        result = ArgumentSpecValidator({name: _silent(spec)}).validate({name: value})
        if result.error_messages:
            problems[name] = "; ".join(result.error_messages)
        found[name] = _given(result.validated_parameters.get(name))
    return {name: value for name, value in found.items() if value is not None}, problems


def entries(module: str, given: t.Mapping[str, t.Any]) -> int:
    """The number of entries of these options in lists of dictionaries, at any depth and in any spelling.

    `read` takes a millisecond for each.
    """
    return sum(_entries(_options(module)[name], value) for name, value in given.items())


def _entries(spec: Spec, value: t.Any) -> int:
    inside = spec.get("options")
    if not inside or value is None:
        return 0
    kind = {"type": "list", "elements": "dict"} if spec["type"] == "list" else {"type": "dict"}
    result = ArgumentSpecValidator({"it": kind}).validate({"it": value})
    found = result.validated_parameters["it"]
    several = found if isinstance(found, list) else [found]
    deeper = [
        (inside[key], each[key]) for each in several if isinstance(each, dict) for key in inside.keys() & each.keys()
    ]
    return len(several) + sum(_entries(option, inner) for option, inner in deeper)


def _silent(spec: Spec) -> Spec:
    """The specification without defaults, and without the expansion of paths, which is the hypervisor's."""
    kept = {key: value for key, value in spec.items() if key not in ("default", "aliases")}
    kept |= {key: "str" for key in ("type", "elements") if spec.get(key) == "path"}
    if "options" not in spec:
        return {**kept, "no_log": False}
    if spec["type"] == "raw":
        return {"type": "raw"}
    return {**kept, "no_log": False, "options": {name: _silent(each) for name, each in spec["options"].items()}}


def _given(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: inner for key, each in value.items() if (inner := _given(each)) is not None}
    return [_given(each) for each in value] if isinstance(value, list) else value
