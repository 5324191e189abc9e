# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may do what to which guests, with which arguments. Pure; what no rule allows is refused.

The policy process decides by it. The web process uses the same rules to filter what it shows.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import typing as t

__all__ = [
    "EVERYTHING",
    "RIGHTS",
    "BadPolicy",
    "Guest",
    "Request",
    "Rule",
    "Who",
    "is_pattern",
    "is_texts",
    "listed",
    "matches",
    "parsed",
    "refusal",
    "rules_of",
]

# Beside the actions that are jobs.
RIGHTS = ("view", "console", "audit", "users")
_SILENT = {"audit", "users"}  # a rule with only these rights shows no guests
_KEYS = {"who", "may", "guests", "tags", "hosts", "at_most", "arguments"}
EVERYTHING = "*"


class BadPolicy(Exception):
    """All problems of a policy, one on each line."""


@dataclasses.dataclass(frozen=True)
class Who:
    """The user of a request, with their groups."""

    name: str
    groups: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Guest:
    """The fields of a guest that rules match. A new guest has a host only if the request names one."""

    name: str
    tags: tuple[str, ...] = ()
    host: str = ""


@dataclasses.dataclass(frozen=True)
class Request:
    """An action with its objects, and its arguments as modules read them. `bound` are the options of a module."""

    action: str
    guests: tuple[Guest, ...] = ()
    hosts: tuple[str, ...] = ()
    arguments: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    bound: tuple[str, ...] = ()
    everywhere: bool = False  # acts on guests or hosts that nobody named
    partial: bool = False  # what is not given stays as it is


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. Patterns match names as in a shell; without patterns, all names match."""

    who: str
    may: tuple[str, ...]
    guests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    at_most: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    arguments: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def shows_guests(self) -> bool:
        """Whether it lets somebody see the guests that it is about."""
        return bool(set(self.may) - _SILENT)

    def written(self) -> dict[str, t.Any]:
        """As in the policy."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value}


def parsed(given: object, actions: t.Collection[str] | None = None) -> list[Rule]:
    """The rules of a policy; raises BadPolicy with everything that is wrong. `actions`: names that `may` may have."""
    if not isinstance(given, list):
        raise BadPolicy("a policy is a list of rules")
    problems = [f"rule {number}: {text}" for number, each in enumerate(given, 1) for text in _problems(each, actions)]
    if problems:
        raise BadPolicy("\n".join(problems))
    return [
        Rule(
            who=each["who"],
            may=listed(each["may"]),
            guests=listed(each.get("guests")),
            tags=listed(each.get("tags")),
            hosts=listed(each.get("hosts")),
            at_most=dict(each.get("at_most") or {}),
            arguments={name: listed(value) for name, value in (each.get("arguments") or {}).items()},
        )
        for each in given
    ]


def listed(value: t.Any) -> tuple[str, ...]:
    """One text, or several, as a rule may have them."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _problems(rule: t.Any, actions: t.Collection[str] | None) -> t.Iterator[str]:
    if not isinstance(rule, dict):
        yield "must be a dictionary"
        return
    unknown_keys = sorted(map(str, rule.keys() - _KEYS))
    yield from (f"{key:.40} is not a part of a rule; use {', '.join(sorted(_KEYS))}" for key in unknown_keys)
    who = rule.get("who")
    if not isinstance(who, str) or who.partition(":")[0] not in ("user", "group") or not who.partition(":")[2]:
        yield "who must be user:NAME or group:NAME"
    if not rule.get("may"):
        yield "may is required: names of actions, or '*'"
    for key in ("may", "guests", "tags", "hosts"):
        if key in rule and not is_texts(rule[key]):
            yield f"{key} must be a text or a list of texts, and not empty"
    if actions is not None and is_texts(rule.get("may")):
        unknown = sorted(set(listed(rule["may"])) - {*actions, *RIGHTS, EVERYTHING})
        yield from (f"may: there is no action {name:.40}" for name in unknown)
    for key in ("at_most", "arguments"):
        if not isinstance(rule.get(key, {}), dict):
            yield f"{key} must be a dictionary"
            return
    if actions is not None:
        from . import limits  # not in the web process, which has no action catalogue

        yield from limits.problems(rule, actions)


def is_texts(value: t.Any) -> bool:
    """Whether it is a text, or a list of texts, and not empty."""
    values = [value] if isinstance(value, str) else value
    return isinstance(values, list) and bool(values) and all(isinstance(each, str) and each for each in values)


def rules_of(rules: t.Sequence[Rule], who: Who) -> list[Rule]:
    """The rules of a user and of their groups."""
    names = {f"user:{who.name}", *(f"group:{group}" for group in who.groups)}
    return [rule for rule in rules if rule.who in names]


def refusal(rules: t.Sequence[Rule], who: Who, request: Request) -> str:
    """The reason for a refusal; empty if a rule allows the request."""
    reasons = []
    for rule in rules_of(rules, who):
        if request.action in rule.may or EVERYTHING in rule.may or (request.action == "view" and rule.shows_guests):
            reason = _unfit(rule, request)
            if not reason:
                return ""
            reasons.append(reason)
    if not reasons:
        return f"user {who.name} may not {request.action}; no rule of console_policy allows it"
    return f"user {who.name} may not {request.action} here: {'; or '.join(dict.fromkeys(reasons))}"


def _unfit(rule: Rule, request: Request) -> str:
    """Why the rule does not allow the request; empty if it does."""
    if request.everywhere and (rule.guests or rule.tags or rule.hosts):
        return "it acts on all hosts, and the rule is for some"
    for guest in request.guests:
        if rule.guests and not matches(guest.name, rule.guests):
            return f"only guests {' '.join(rule.guests)}, not {guest.name}"
        if rule.tags and not any(matches(tag, rule.tags) for tag in guest.tags):
            return f"only guests with the tag {' '.join(rule.tags)}, not {guest.name}"
    if not request.guests and (rule.guests or rule.tags) and request.hosts and request.action != "view":
        return "it acts on a host and not on its guests alone, and the rule is for some guests"
    if rule.hosts and (reason := _elsewhere(rule, request)):
        return reason
    if request.action in RIGHTS:
        return ""
    from . import limits  # not in the web process

    return limits.beyond(rule, request)


def _elsewhere(rule: Rule, request: Request) -> str:
    """The hosts that count: those that the action names, or else those where the guests are."""
    hosts = request.hosts or tuple(guest.host for guest in request.guests)
    for host in hosts:
        if not host:
            return f"choose one of the hosts {' '.join(rule.hosts)}"
        if not matches(host, rule.hosts):
            return f"only hosts {' '.join(rule.hosts)}, not {host}"
    return "" if hosts or request.action in _SILENT else f"choose one of the hosts {' '.join(rule.hosts)}"


def matches(name: str, patterns: t.Sequence[str]) -> bool:
    """Whether one of the patterns is for the name."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def is_pattern(name: str) -> bool:
    """Whether it can match another name."""
    return any(letter in name for letter in "*?[")
