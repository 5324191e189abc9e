# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check and convert the request for a job against the action catalogue. Pure.

The web process reports the guests, and may lie. The job passes its report to the playbook as `virt_expected`, where a
guest that differs from it is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import json
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.plugin_utils._commands import (
    action_arguments,
    actions,
    option_reach,
    selection,
)
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction

from . import offers, policy

__all__ = ["NOT_AVAILABLE", "BadOrder", "Order", "Others", "Seen", "order", "seen_guests"]

NOT_AVAILABLE = "that name is not available"  # whoever has it, and whether the user may know

_NAMED = 10  # in one message
_MOST_ENTRIES, _LONGEST_YAML = 1000, 4096  # reading them takes a second


class BadOrder(Exception):
    """The problems of a request, by argument."""

    def __init__(self, errors: t.Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" if name else text for name, text in errors.items()))
        self.errors = dict(errors)


@dataclasses.dataclass(frozen=True)
class Seen:
    """A guest as the web process reports it."""

    uuid: str
    name: str
    host: str
    state: str
    tags: tuple[str, ...]

    @property
    def guest(self) -> policy.Guest:
        """The guest as the policy's rules see it."""
        return policy.Guest(self.name, self.tags, self.host)


@dataclasses.dataclass(frozen=True)
class Others:
    """Guests that the request names, but not as those that it acts on."""

    taken: frozenset[str] = frozenset()  # names of guests, also of those that the user may not view
    originals: tuple[Seen, ...] | None = None  # that the user may view; None: not looked for


@dataclasses.dataclass(frozen=True)
class Order:
    """A valid action, to run if the policy allows `request`."""

    action: str
    check: bool
    arguments: dict[str, t.Any]  # as they were given
    values: dict[str, t.Any]  # for the playbook
    guests: tuple[Seen, ...]
    hosts: tuple[str, ...]
    creates: str  # the name of the guest that it creates
    unavailable: str  # the argument with a name that another guest has: told only to whom the policy allows the rest
    request: policy.Request
    secret: tuple[str, ...]  # names of arguments whose values are hidden
    exclusive: tuple[str, ...]  # locks: no other job may have them, exclusive or shared
    shared: tuple[str, ...]  # locks: no other job may have them exclusive
    originals: tuple[Seen, ...] = ()  # the guest that is copied
    omitted: tuple[str, ...] = ()  # names of guests that a pattern matches, and that no argument can name


def seen_guests(given: object) -> tuple[Seen, ...]:
    """The guests that the web process reports; raises BadOrder if they are malformed."""
    try:
        return tuple(map(_seen, t.cast("list[dict[str, t.Any]]", given)))
    except (TypeError, KeyError) as error:
        raise BadOrder({"guests": "cannot be read"}) from error


def _seen(each: t.Mapping[str, t.Any]) -> Seen:
    uuid, name, host, state = (str(each[part]) for part in ("uuid", "name", "host", "state"))
    return Seen(uuid, name, host, state, tuple(map(str, each["tags"])))


def order(
    given: t.Mapping[str, t.Any], seen: tuple[Seen, ...], hosts: t.Collection[str], others: Others | None = None
) -> Order:
    """The order of a request; raises BadOrder with all problems.

    `seen` are the guests that it acts on and that the user may view, `hosts` the hypervisors.
    """
    others = others or Others()
    name = given.get("action")
    if name not in offers.names():
        raise BadOrder({"action": f"there is no action {name!s:.40}"})
    action, check = actions.action(str(name)), given.get("check") is True
    guests = () if action.creates or action.kind != "guest" else seen
    omitted = _unnamed(guests) if given.get("guests") is None else ()
    guests = tuple(one for one in guests if one not in omitted)
    if errors := dict(_errors_of_guests(action, given, guests)):
        raise BadOrder(errors)
    arguments = _named(action, given, guests)
    if errors := dict(_errors_of_texts(action, arguments)):
        raise BadOrder(errors)
    values = _values(action, arguments)
    if errors := dict(_errors_of_size(action, values)):
        raise BadOrder(errors)
    values, errors = _read(action, values)
    errors |= {**_errors_of_hosts(action, values, hosts), **_errors_of_options(action, arguments, values)}
    if action.counts_guests and not check and not _confirms(given.get("confirm"), len(guests)):
        errors["confirm"] = f"confirm with the number of guests: {len(guests)}"
    flat, bound = _flat(action, values)
    original, missing = _original(flat, others)
    errors |= {"clone_of": missing} if missing else {}
    if errors:
        raise BadOrder(errors)
    named = tuple(_hosts(action, values))
    return Order(
        action=action.name,
        check=check,
        arguments=arguments,
        values={key: value for key, value in values.items() if key in arguments},
        guests=guests,
        hosts=named,
        creates=values["guest"] if action.creates else "",
        unavailable=action.new_name if action.new_name and values[action.new_name] in others.taken else "",
        request=policy.Request(
            action.name,
            guests=_policy_guests(action, values, flat, original or guests),
            hosts=_policy_hosts(action, values, named, guests),
            arguments=flat,
            bound=bound,
            everywhere=action.everywhere,
            partial=action.partial,
        ),
        secret=tuple(action_arguments.withheld(action, arguments)),
        exclusive=_exclusive(action, values, guests, hosts),
        originals=original,
        omitted=tuple(one.name for one in omitted),
        shared=tuple(sorted({f"host:{host}" for host in (*named, *(one.host for one in guests))})),
    )


def _confirms(value: object, count: int) -> bool:
    """Whether it is that very number: to Python, true is 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value == count


def _unnamed(guests: t.Sequence[Seen]) -> tuple[Seen, ...]:
    """Guests with names that no argument takes, so that one of them does not refuse a pattern that matches all."""
    return tuple(one for one in guests if not _is_name(one.name))


def _is_name(name: str) -> bool:
    with contextlib.suppress(BadInput):
        return bool(units.check_existing_name(name, what="guest"))
    return False


def _named(action: PlaybookAction, given: t.Mapping[str, t.Any], guests: t.Sequence[Seen]) -> dict[str, t.Any]:
    """The arguments, with guests and hosts by name."""
    arguments = given.get("arguments")
    found = dict(arguments) if isinstance(arguments, dict) else {}
    if strange := sorted(map(str, found.keys() - offers.arguments(action).keys())):
        raise BadOrder(dict.fromkeys(strange, f"{action.name} has no such argument"))
    if guests:
        names = list(dict.fromkeys(one.name for one in guests))
        many = action.arguments["guest"].spec["type"] == "list"
        found["guest"] = [selection.escaped(name) for name in names] if many else names[0]
    hosts = given.get("hosts")
    if action.kind == "host" and "host" in action.arguments and isinstance(hosts, list) and len(hosts) == 1:
        found["host"] = hosts[0]
    return found


def _values(action: PlaybookAction, arguments: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    try:
        return action_arguments.asked(action, arguments)
    except action_arguments.BadArguments as error:
        texts: dict[str, list[str]] = {}
        for problem in error.found:
            texts.setdefault(problem.argument, []).append(problem.about_option)
        raise BadOrder({name: "; ".join(several) for name, several in texts.items()}) from error


def _errors_of_texts(action: PlaybookAction, arguments: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """Problems of texts that stand for a structure: YAML is read a hundred times more slowly than JSON."""
    for name, value in arguments.items():
        structured = action.arguments[name].spec.get("type") in ("list", "dict")
        if structured and isinstance(value, str) and len(value) > _LONGEST_YAML and not _is_json(value):
            yield name, f"a text of more than {_LONGEST_YAML} characters must be JSON"


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


def _errors_of_size(action: PlaybookAction, values: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """Problems of arguments that are too long to read."""
    for name, value in values.items():
        argument, many = action.arguments[name], 0
        if argument.options_of and isinstance(value, dict):
            many = option_reach.entries(argument.options_of, value)
        elif argument.option:
            many = option_reach.entries(action.options_of["module"], {name: value})
        if many > _MOST_ENTRIES:
            yield name, f"has {many} entries in lists; a request can have {_MOST_ENTRIES}"


def _read(action: PlaybookAction, values: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """The values with options as their module reads them, so that the policy judges what will be done; and problems."""
    found, problems = dict(values), dict[str, str]()
    module = action.options_of.get("module")
    for name, value in values.items():
        argument = action.arguments[name]
        if argument.options_of and isinstance(value, dict):
            found[name], wrong = option_reach.read(argument.options_of, value)
            problems |= {name: "; ".join(f"{option}: {text}" for option, text in wrong.items())} if wrong else {}
        elif argument.option and module:
            read, wrong = option_reach.read(module, {name: value})
            found[name] = read.get(name)
            problems |= wrong
    return {name: value for name, value in found.items() if value is not None}, problems


def _errors_of_guests(
    action: PlaybookAction, given: t.Mapping[str, t.Any], guests: t.Sequence[Seen]
) -> t.Iterator[tuple[str, str]]:
    wanted = given.get("guests")
    if action.creates or action.kind != "guest":
        return
    if isinstance(wanted, list) and (missing := set(map(str, wanted)) - {one.uuid for one in guests}):
        yield "guests", _missing("guest", missing)
    elif guests and (missing := _unmatched(given, guests)):
        yield "guest", _missing("guest", missing)
    elif not guests:
        yield "guests", "name a guest"
    elif len({one.uuid for one in guests}) > 1 and action.arguments["guest"].spec["type"] != "list":
        yield "guests", f"{action.name} acts on one guest at a time"


def _missing(what: str, names: t.Iterable[str]) -> str:
    """All that are not there, the first few of many by name."""
    return f"there is no {what} {some_of([f'{name:.63}' for name in sorted(set(names))], _NAMED)}"


def _unmatched(given: t.Mapping[str, t.Any], guests: t.Sequence[Seen]) -> set[str]:
    """Names and patterns of a request without UUIDs for which there is no guest."""
    arguments = given.get("arguments")
    named = _list(arguments.get("guest")) if isinstance(arguments, dict) and given.get("guests") is None else []
    names = {one.name for one in guests}
    missing = {name for name in map(str, named) if name not in names}
    return {
        name
        for name in missing
        if not (policy.is_pattern(name) and any(fnmatch.fnmatchcase(each, name) for each in names))
    }


def _errors_of_hosts(action: PlaybookAction, values: t.Mapping[str, t.Any], hosts: t.Collection[str]) -> dict[str, str]:
    """Problems of host names: a job connects to hypervisors only."""
    found = {}
    for name in _arguments_of_hosts(action):
        if unknown := [each for each in _list(values.get(name)) if each not in hosts]:
            found[name] = _missing("hypervisor", map(str, unknown))
    return found


def _errors_of_options(
    action: PlaybookAction, arguments: t.Mapping[str, t.Any], values: t.Mapping[str, t.Any]
) -> dict[str, str]:
    """Problems of options that are given twice: the playbook would merge them, and the policy would judge only one."""
    said, found = set(arguments), dict[str, str]()
    objects = {name for name, argument in action.arguments.items() if argument.kind in ("guest", "host")}
    for place in _inside(values):
        for option in values[place]:
            if option in said:
                found[option] = f"give {option} once: it is also in {place}"
            elif option in objects or option in action.options_of.get("own", ()):
                found[option] = f"not in {place}: {action.name} has an argument for it"
        said |= set(values[place])
    return found


def _inside(values: t.Mapping[str, t.Any]) -> list[str]:
    """Arguments that hold options of a module, in the order in which a playbook merges them."""
    return [name for name in ("options", "domain") if isinstance(values.get(name), dict)]


def _arguments_of_hosts(action: PlaybookAction) -> list[str]:
    return [name for name, argument in action.arguments.items() if argument.kind == "host"]


def _hosts(action: PlaybookAction, values: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for name in _arguments_of_hosts(action):
        yield from _list(values.get(name))


def _policy_hosts(
    action: PlaybookAction, values: t.Mapping[str, t.Any], named: tuple[str, ...], guests: t.Sequence[Seen]
) -> tuple[str, ...]:
    """The hosts that it names and those on which it acts; the empty name is a host that the playbook will choose."""
    if action.kind == "host":
        return named
    goal = action.picks_host
    acts = [values.get(goal) or ""] if goal else [one.host for one in guests]
    return tuple(dict.fromkeys((*named, *acts)))


def _list(value: t.Any) -> list[t.Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _flat(action: PlaybookAction, values: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], tuple[str, ...]]:
    """All arguments and options by name, and the names that are options of a module."""
    inside = _inside(values)
    flat = {name: value for name, value in values.items() if name not in inside}
    bound = [name for name in flat if action.arguments[name].option]
    for name in inside:
        flat.update(values[name])
        bound += values[name]
    objects = {"guest", *_arguments_of_hosts(action), *actions.not_offered()}
    return {name: value for name, value in flat.items() if name not in objects}, tuple(bound)


def _original(flat: t.Mapping[str, t.Any], others: Others) -> tuple[tuple[Seen, ...], str]:
    """The guest that is copied, and why it cannot be: one that the user may not view is not there."""
    name = flat.get("clone_of")
    if not name or others.originals is None:
        return (), ""
    found = tuple(one for one in others.originals if one.name == name)
    return found, "" if found else _missing("guest", [str(name)])


def _policy_guests(
    action: PlaybookAction, values: t.Mapping[str, t.Any], flat: t.Mapping[str, t.Any], guests: t.Sequence[Seen]
) -> tuple[policy.Guest, ...]:
    """The guests that it acts on, and those that it creates."""
    if action.creates:  # a copy gets the tags of its original
        given = _list(flat["tags"]) if "tags" in flat else [tag for one in guests[:1] for tag in one.tags]
        tags = tuple(map(str, given))
        return (policy.Guest(values["guest"], tags, values.get("host") or ""),)
    made = [values[action.new_name]] if action.new_name else []
    return (*(one.guest for one in guests), *(policy.Guest(name, guests[0].tags, guests[0].host) for name in made))


def _exclusive(
    action: PlaybookAction, values: t.Mapping[str, t.Any], guests: t.Sequence[Seen], hosts: t.Collection[str]
) -> tuple[str, ...]:
    if action.creates:
        return (f"name:{values['guest']}",)
    if action.everywhere:
        return tuple(f"host:{host}" for host in sorted(hosts))
    if action.kind == "host":
        return tuple(_volumes(action, values)) or (f"host:{values['host']}",)
    made = [f"name:{values[action.new_name]}"] if action.new_name else []
    return (*(f"guest:{uuid}" for uuid in dict.fromkeys(one.uuid for one in guests)), *made)


def _volumes(action: PlaybookAction, values: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """The lock of the volume that it acts on: other jobs of the host go on meanwhile."""
    for name, argument in action.arguments.items():
        if argument.kind == "volume":
            yield f"volume:{values['host']}/{values['pool']}/{values[name]}"
