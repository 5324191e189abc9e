# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of a request against `at_most` and `arguments` of a rule, at any depth. Pure.

A pattern grants an option if it is for that very option, or for what holds the option and the option reaches nothing
but the guest. What an option reaches is in the collection's `reach.yml`.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands import option_reach
from ansible_collections.corral.virt.plugins.plugin_utils._commands.option_reach import GivenOption

from .policy import EVERYTHING, Request, Rule, is_pattern, is_texts, listed, matches

__all__ = ["beyond", "gives_less", "problems"]

_NAMES = ("guests", "tags", "hosts")  # a rule without these is for all
_MOST_ENTRIES = 16  # of a list of disks, interfaces, … for which a rule has no limit


def problems(rule: t.Mapping[str, t.Any], actions: t.Collection[str]) -> t.Iterator[str]:
    """What is wrong with `at_most` and `arguments` of a rule for some of these actions."""
    for name, value in rule.get("at_most", {}).items():
        if _amount(value, option_reach.bare_unit(str(name))) is None:
            yield f"at_most: {name} must be a number or a size, such as 4 or 8GiB"
    for name, value in rule.get("arguments", {}).items():
        if not is_texts(value):
            yield f"arguments: {name} must be a pattern or a list of patterns"
    yield from _problems_of_places(rule, actions)


def _problems_of_places(rule: t.Mapping[str, t.Any], actions: t.Collection[str]) -> t.Iterator[str]:
    """Options that no action of the rule has, that are named twice, or that are sizes without a limit."""
    may = listed(rule["may"]) if is_texts(rule.get("may")) else (EVERYTHING,)
    tables = [option_reach.table(name) for name in actions if EVERYTHING in may or name in may]
    known = {place: reach for table in tables for place, reach in table.items()}
    for key in ("at_most", "arguments"):
        places: dict[str, str] = {}
        for name in map(str, rule.get(key, {})):
            place = option_reach.canonical(name)
            if place not in known and (place, key) != (EVERYTHING, "arguments"):
                yield f"{key}: no action of the rule has an option {name:.60}"
            elif place in places:
                yield f"{key}: {name} is the same as {places[place]}; give one of them"
            places[place] = name
    limited = set(map(str, rule.get("at_most", {})))
    for name, patterns in {} if EVERYTHING in may else rule.get("arguments", {}).items():
        reach = known.get(option_reach.canonical(str(name)))
        free = is_texts(patterns) and any(map(is_pattern, listed(patterns)))
        if reach and reach.within == "amount" and free and not limited & {name, *option_reach.above(name)}:
            yield f"arguments: {name} is an amount without a limit; write at_most: {{{name}: NUMBER}}"


def _limits(rule: Rule) -> dict[str, t.Any]:
    """Of `at_most`, by the places at which a request is judged."""
    return {option_reach.canonical(place): most for place, most in rule.at_most.items()}


def _grants(rule: Rule) -> dict[str, tuple[str, ...]]:
    """Patterns by the places at which a request is judged; what has a limit may be given."""
    given = {**dict.fromkeys(rule.at_most, (EVERYTHING,)), **rule.arguments}
    return {option_reach.canonical(place): patterns for place, patterns in given.items()}


def beyond(rule: Rule, request: Request) -> str:
    """Limits of arguments, at any depth. A rule does not allow options of modules that it does not name."""
    parts = option_reach.parts(request.action, request.arguments)
    for place, most in _limits(rule).items():
        if reason := _too_much(request, parts, place, most):
            return reason
    reasons = (_too_many(rule, request, part) or _ungranted(rule, request, part) for part in parts)
    return next(filter(None, reasons), "")


def _too_much(request: Request, parts: t.Sequence[GivenOption], place: str, most: t.Any) -> str:
    """Why the request is beyond a limit. An argument with a limit must be given, unless it is a list or in another."""
    hits, unit = [part.value for part in parts if part.place == place], option_reach.bare_unit(place)
    listed = place in option_reach.lists(request.action)
    if not hits and (request.partial or listed or "." in place):
        amounts: list[int | None] = []
    elif listed:
        amounts = [len(hit) if isinstance(hit, list) else None for hit in hits]
    else:
        amounts = [_amount(hit, unit) for hit in hits or [None]]
    amounts += [_amount(each, unit) for each in option_reach.unsaid(parts, place)]
    if None in amounts:
        return f"give {place}, at most {most}"
    total = f"{place} at most {most}{' in total' if len(amounts) > 1 else ''}"
    return total if sum(filter(None, amounts)) > t.cast(int, _amount(most, unit)) else ""


def _too_many(rule: Rule, request: Request, part: GivenOption) -> str:
    """Why a list is too long, for which the rule has no limit."""
    if part.place in _limits(rule) or EVERYTHING in rule.may or part.place not in option_reach.lists(request.action):
        return ""
    most = f"at most {_MOST_ENTRIES} {part.place}; a rule with at_most: {{{part.place}: NUMBER}} would allow more"
    return most if isinstance(part.value, list) and len(part.value) > _MOST_ENTRIES else ""


def _ungranted(rule: Rule, request: Request, part: GivenOption) -> str:
    """Why the rule does not grant an option; empty if it does."""
    place, admin, grants = part.place, EVERYTHING in rule.may, _grants(rule)
    named = next((one for one in (place, *option_reach.above(place), EVERYTHING) if one in grants), None)
    if named is None:
        inside = (*grants, *rule.arguments)
        holds = part.holds and any(one.startswith(f"{place}.") for one in inside)
        own = option_reach.is_own(request.action, place) and place not in map(option_reach.canonical, request.bound)
        return "" if admin or holds or (own and _reaches_little(rule, request, part)) else _not_with(part)
    patterns = grants[named]
    if EVERYTHING not in patterns and (named not in (place, EVERYTHING) or not _all_match(part, patterns)):
        return f"{place} only {' '.join(patterns)}"
    exact = named == place and (part.reach or part.holds)
    return "" if admin or exact or _reaches_little(rule, request, part) else _not_with(part)


def _reaches_little(rule: Rule, request: Request, part: GivenOption) -> bool:
    """Whether a pattern for all that holds an option grants the option, too."""
    if part.holds or part.reach is None:
        return part.holds
    if part.reach.within == "amount":
        known = option_reach.table(request.action)
        holders = [known.get(place) for place in option_reach.above(part.place) if place in _limits(rule)]
        return part.place in _limits(rule) or any(reach and reach.within == "amount" for reach in holders)
    return part.reach.within == "guest" or option_reach.is_harmless(part.place, part.value)


def _not_with(part: GivenOption) -> str:
    if part.reach is None:
        return f"not with {part.place}, which cannot be judged"
    if part.reach.within == "amount":
        return f"not with {part.place}; a rule with at_most: {{{part.place}: NUMBER}} would allow it"
    reaches = "" if part.reach.within == "guest" else f", which reaches {part.reach.text}"
    return f"not with {part.place}{reaches}; a rule with arguments: {{{part.place}: '*'}} would allow it"


def _all_match(part: GivenOption, patterns: t.Sequence[str]) -> bool:
    values = part.value if isinstance(part.value, list) else [part.value]
    if isinstance(part.value, dict) and part.reach and part.reach.name == "pool":
        values = [*part.value.values()]  # a pool for each disk of the guest
    return EVERYTHING in patterns or all(
        isinstance(each, (str, int, float)) and matches(_text(each), patterns) and not _leads_elsewhere(_text(each))
        for each in values
    )


def _leads_elsewhere(value: str) -> bool:
    """Whether it is a path that can leave the directory of a pattern."""
    return ".." in value.split("/") or ("/" in value and ("$" in value or value.startswith("~")))


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _amount(value: t.Any, bare: str = "M") -> int | None:
    """The largest amount in a value: a plain number, or a size in MiB, rounded up. None if there is none.

    A plain number in another unit than MiB is a size, too.
    """
    if isinstance(value, dict):
        inside = [_amount(value[key]) for key in ("current", "maximum", "hotplug_maximum") if key in value]
        inside += [_product(value["topology"])] if "topology" in value else []
        return max((each for each in inside if each is not None), default=None) if None not in inside else None
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if bare != "M" or (isinstance(value, str) and not value.strip().isdecimal()):
        try:
            return -(-units.bytes_of(value, bare=bare, what="limit") // 2**20)
        except BadInput:
            return None
    return int(value)


def _product(topology: t.Any) -> int | None:
    """The number of processors in a topology, which is the guest's if no other number is given."""
    parts = [_amount(part) for part in topology.values()] if isinstance(topology, dict) else [None]
    return math.prod(part for part in parts if part is not None) if None not in parts else None


def gives_less(before: t.Sequence[Rule], after: t.Sequence[Rule]) -> bool:
    """Whether the rules of one user gave something before that no rule gives as a whole now."""
    return any(not any(_contains(now, rule) for now in after) for rule in before)


def _contains(wide: Rule, narrow: Rule) -> bool:
    """What it takes for granted. Patterns are compared as they are written: others may give less."""
    if EVERYTHING not in wide.may and not set(narrow.may) <= set(wide.may):
        return False
    names = [(getattr(wide, name), getattr(narrow, name)) for name in _NAMES]
    if any(mine and not (theirs and set(theirs) <= set(mine)) for mine, theirs in names):
        return False
    if EVERYTHING in wide.may and not wide.at_most and not wide.arguments:
        return True
    mine, theirs = _limits(wide), _limits(narrow)
    return (
        mine.keys() == theirs.keys()
        and all(
            t.cast(int, _most(place, most)) >= t.cast(int, _most(place, theirs[place])) for place, most in mine.items()
        )
        and wide.arguments == narrow.arguments
    )


def _most(place: str, limit: t.Any) -> int | None:
    return _amount(limit, option_reach.bare_unit(place))
