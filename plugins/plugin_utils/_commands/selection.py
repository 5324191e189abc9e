# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests an action affects, and on which hosts they are. Pure."""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands.actions import PlaybookAction
from ansible_collections.corral.virt.plugins.plugin_utils._commands.hosted_guests import SHOWN, HostedGuest, Hosts
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import inventory_guests
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable, templated
from ansible_collections.corral.virt.plugins.plugin_utils._report.wording import enumerated

_CLOCKS_APART_S = 300
_ESCAPE = re.compile(r"\[([*?\[])\]")
_TYPED = re.compile(r"[\w.-]+")  # what `-e guest=` takes as it is


def is_pattern(name: str) -> bool:
    """True if the name is a pattern."""
    return any(sign in _ESCAPE.sub("", name) for sign in "*?[")


def escaped(name: str) -> str:
    """A pattern that matches only this name, which could itself be read as a pattern."""
    return re.sub(r"[*?\[]", r"[\g<0>]", name)


def literal(name: str) -> str:
    """The guest's name that an escaped name stands for."""
    return _ESCAPE.sub(r"\1", name)


def found(
    action: PlaybookAction,
    arguments: t.Mapping[str, t.Any],
    there: t.Sequence[HostedGuest],
    hosts: Hosts,
    ask: t.Callable[[str], list[str]] = lambda question: [question],
) -> list[HostedGuest]:
    """The guests that an action affects; raises BadInput with every problem.

    `ask` returns the problems that remain if nobody has confirmed the number of guests.
    """
    if action.creates:
        _check_creatable(arguments, arguments.get(action.picks_host), there, hosts)
        return [copy for copy in there if copy.name == arguments["guest"]]
    if action.moves:
        ends = {**arguments, **(arguments.get("options") or {})}.get("state") == "aborted"
        gone = (arguments.get("gone") or ()) if ends else ()
        to = arguments.get(action.picks_host)
        return [_source(arguments["guest"], to, there, hosts, must_be_told=ends, gone=gone)]
    hit = _renamed(arguments, there, hosts) if action.renames else _chosen(arguments, there, hosts)
    _check_states(action, arguments, hit, ask)
    return hit


def namesakes(hit: t.Iterable[HostedGuest], there: t.Sequence[HostedGuest]) -> list[str]:
    """Names of chosen guests that other guests have, too."""
    return sorted({copy.name for copy in hit if sum(other.name == copy.name for other in there) > 1})


def missing(arguments: t.Mapping[str, t.Any], there: t.Sequence[HostedGuest]) -> list[str]:
    """Names and patterns that no guest has."""
    names, patterns = _names_and_patterns(arguments)
    absent = [one for one in names if not any(copy.name == one for copy in there)]
    return absent + [one for one in patterns if not any(copy.name == one or _matches(copy, one) for copy in there)]


def _names_and_patterns(arguments: t.Mapping[str, t.Any]) -> tuple[list[str], list[str]]:
    """The guests that are asked for; an action on one guest takes no pattern."""
    asked = arguments.get("guest") or ()
    if isinstance(asked, str):
        return [asked], []
    return [literal(one) for one in asked if not is_pattern(one)], [one for one in asked if is_pattern(one)]


def check_name(action: PlaybookAction, arguments: t.Mapping[str, t.Any], there: t.Sequence[HostedGuest]) -> None:
    """Raises BadInput if the name that a guest is to get is taken.

    The message tells nothing of its owner, for users who may not view all guests.
    """
    name = arguments[action.new_name] if action.new_name else None
    if any(copy.name == name for copy in there):
        raise BadInput(printable([f"cannot {action.verb}: the name {name} is not available; choose another one"]))


def check_expected(
    action: PlaybookAction, hit: t.Sequence[HostedGuest], expected: t.Sequence[t.Mapping[str, t.Any]]
) -> None:
    """Raises BadInput if the guests are not the `expected` ones: a name may belong to another guest by now."""
    wanted = {(one.get("name"), one.get("uuid"), one.get("host"), frozenset(one.get("tags") or ())) for one in expected}
    found = {(copy.name, copy.uuid, copy.host, frozenset(copy.tags)): copy for copy in hit}
    problems = [
        f"cannot {action.verb} {copy.name}: the guest of that name is not the one that was chosen, with its UUID, host "
        "and tags; look again, and repeat it"
        for is_it, copy in found.items()
        if is_it not in wanted
    ]
    problems += [
        f"cannot {action.verb} {name}: it is not on {host} as it was when it was chosen; look again, and repeat it"
        for name, uuid, host, _tags in sorted(wanted - found.keys(), key=str)
        if not any(copy.uuid == uuid or copy.name == name for copy in hit)
    ]
    if problems:
        raise BadInput(printable(problems))


def _chosen(arguments: t.Mapping[str, t.Any], there: t.Sequence[HostedGuest], hosts: Hosts) -> list[HostedGuest]:
    """The guests that the arguments name, each on the one host that has it; raises BadInput with every problem."""
    named, patterns = _names_and_patterns(arguments)
    may_miss = arguments.get("missing_ok") and hosts.answered and not hosts.silent and not hosts.hidden
    absent = [] if may_miss else missing(arguments, there)
    problems = [unknown(name, there, hosts) for name in named if name in absent]
    problems += [f"no guest matches {one!r}: {hosts}" for one in patterns if one in absent]
    hit = [copy for copy in there if copy.name in named or any(_matches(copy, one) for one in patterns)]
    if tag := arguments.get("tag"):
        hit = [copy for copy in there if tag in copy.tags]
        problems += [] if hit or may_miss else [_untagged(tag, there, hosts)]
    problems += [*_ambiguous(hit), *_known_by_two_names(hit, there)]
    if problems:
        raise BadInput(printable(problems))
    return hit


def _check_states(
    action: PlaybookAction,
    arguments: t.Mapping[str, t.Any],
    hit: t.Sequence[HostedGuest],
    ask: t.Callable[[str], list[str]],
) -> None:
    """Raises BadInput if a guest's state does not allow the action, or if it must be confirmed."""
    states = action.from_states
    how = (
        "shut it down: ansible-playbook corral.virt.shutdown"
        if "shutdown" in states
        else "start it: ansible-playbook corral.virt.start"
    )
    problems = [
        f"cannot {action.verb} {copy.name}: it is {_off(copy.state)} on {copy.host}; {how} -e guest={copy.name}"
        for copy in hit
        if states and copy.state not in states
    ]
    if action.destructive and _is_broad(arguments) and arguments.get("confirm") != len(hit):
        question = _unconfirmed(action, arguments, hit)
        problems += ask(question) if arguments.get("confirm") is None else [question]
    if problems:
        raise BadInput(printable(problems))


def _check_creatable(
    arguments: t.Mapping[str, t.Any], host: str | None, there: t.Sequence[HostedGuest], hosts: Hosts
) -> None:
    """Raises BadInput if a guest of that name cannot be created, or is on another host than `host`."""
    name = arguments["guest"]
    every = (*hosts.answered, *hosts.silent, *hosts.hidden)
    here = [copy for copy in there if copy.name == name]
    problems = list(_ambiguous(here))
    if host is not None and host not in every:
        problems.append(
            f"host: {host} is not a host of the group {hosts.group}; choose one of {', '.join(sorted(every))}"
        )
    elif host is not None and host not in hosts.answered:
        problems.append(f"cannot create {name} on {host}: {_why_not(host, hosts)}")
    elif host is not None and here and here[0].host != host:
        move = f"ansible-playbook corral.virt.migrate -e guest={name} -e to={host}"
        problems.append(f"cannot create {name} on {host}: it is on {here[0].host}; move it: {move}")
    if not here and (hosts.silent or hosts.hidden) and not problems:
        problems.append(f"cannot create {name}: {hosts}{where_dead(hosts, arguments)}")
    if problems:
        raise BadInput(printable(problems))


def _renamed(arguments: t.Mapping[str, t.Any], there: t.Sequence[HostedGuest], hosts: Hosts) -> list[HostedGuest]:
    """The guest to rename; raises BadInput if it is not unique, or if the new name may be taken."""
    name, to, host = arguments["guest"], arguments["to"], arguments.get("host")
    what = f"cannot rename {name} to {to}"
    namesakes, others = (
        [copy for copy in there if copy.name == name],
        [copy for copy in there if copy.name == to != name],
    )
    uuids = {copy.uuid for copy in namesakes if host in (None, copy.host)}  # of one that moves, both copies count
    here = [copy for copy in namesakes if copy.uuid in uuids]
    problems = [] if namesakes else [unknown(name, there, hosts)]
    if namesakes and not here:
        problems.append(f"{what}: it is on {enumerated([copy.host for copy in namesakes])}, and not on {host}")
    if others and not namesakes:
        renamed = f"{others[0].host} has {to}, so it may already have been renamed"
        problems = [f"cannot find {name}: {hosts}; {renamed}"]
    problems += _ambiguous(here, "-e host=HOST")
    if name == to:
        problems.append(f"{what}: that is its current name; choose another name")
    if others and here:
        problems.append(
            f"{what}: {enumerated([copy.host for copy in others])} has a guest with this name; choose another name"
        )
    if owner := hosts.strangers.get(inventory_guests.destination(to)):
        group = inventory_guests.GROUP
        problems.append(f"{what}: {owner} is a host of this inventory outside the group {group}; choose another name")
    if here and not others and (hosts.silent or hosts.hidden):
        problems.append(f"{what}: for {to}, {hosts}{where_dead(hosts, arguments)}")
    if problems:
        raise BadInput(printable(problems))
    return here


def _source(
    name: str,
    to: str | None,
    there: t.Sequence[HostedGuest],
    hosts: Hosts,
    *,
    must_be_told: bool,
    gone: t.Collection[str],
) -> HostedGuest:
    """The copy of a guest to migrate; raises BadInput if there is none, or more than one candidate.

    `must_be_told` is True if the destination must be given, which may be one that is `gone`.
    """
    here = [copy for copy in there if copy.name == name]
    every = (*hosts.answered, *hosts.silent, *hosts.hidden)
    problems = [] if here else [f"cannot migrate {unknown(name, there, hosts).removeprefix('cannot find ')}"]
    if to is None and must_be_told:
        problems.append("to: state=aborted ends the migration to one host; write -e to=HOST")
    elif to is not None and to not in (*every, *gone):
        problems.append(f"to: {to} is not a host of the group {hosts.group}; choose one of {', '.join(sorted(every))}")
    elif to is not None and to not in (*hosts.answered, *gone):
        problems.append(f"cannot migrate {name} to {to}: {_why_not(to, hosts)}")
    running = [copy for copy in here if copy.state == "running"]
    if len(running) > 1:
        problems.append(f"cannot migrate {name}: {_running_twice(running)}")
    # A running copy before a paused one: the paused one is on its way, or dead. Of others, one that moves.
    most = running or [copy for copy in here if copy.state == "paused"] or here
    best = next(iter([copy for copy in most if copy.moving] or most), None)
    if best and len(most) > 1 and not running and not best.moving:
        problems += [
            f"cannot migrate {text.replace(' is', ': it is', 1)}" for text in _ambiguous(most, is_moving=False)
        ]
    if best and to in hosts.answered:
        problems += _clocks_apart(best, str(to), hosts)
    if problems or best is None:
        raise BadInput(printable(problems))
    return best


def _clocks_apart(copy: HostedGuest, to: str, hosts: Hosts) -> t.Iterator[str]:
    """The problem of two hosts whose clocks differ: certificates and the guest's clock are unreliable then."""
    clocks_s = [hosts.clocks[host] for host in (copy.host, to) if host in hosts.clocks]
    apart_s = max(clocks_s, default=0.0) - min(clocks_s, default=0.0)
    if apart_s >= _CLOCKS_APART_S:
        yield (
            f"cannot migrate {copy.name}: the clocks of {copy.host} and {to} are {apart_s:.0f} seconds apart, so "
            "certificates and the guest's clock are not reliable; synchronise them (chrony)"
        )


def _matches(copy: HostedGuest, pattern: str) -> bool:
    return fnmatch.fnmatchcase(copy.name, pattern)


def _is_broad(arguments: t.Mapping[str, t.Any]) -> bool:
    """True if guests are chosen by tag or pattern."""
    return bool(arguments.get("tag") or _names_and_patterns(arguments)[1])


def unknown(name: str, there: t.Sequence[HostedGuest], hosts: Hosts) -> str:
    """The message that no guest has that name, with similar names."""
    near = difflib.get_close_matches(name, sorted({copy.name for copy in there}), 3)
    alternatives = ", ".join(f"{copy.name} on {copy.host}" for copy in there if copy.name in near)
    if alternatives:
        return f"cannot find {name}: {hosts}; did you mean {alternatives}?{_as_json(near)}"
    is_all = hosts.answered and not hosts.silent and not hosts.hidden
    return f"cannot find {name}: {hosts}{'; to see all: ansible-playbook corral.virt.list' if is_all else ''}"


def _as_json(names: t.Iterable[str]) -> str:
    """How to write a name that `-e guest=` does not take as JSON; empty for a template, which Ansible would render."""
    odd = next((name for name in names if not _TYPED.fullmatch(name) and not templated(name)), None)
    written = shlex.quote(json.dumps({"guest": [odd]}, ensure_ascii=False))
    return f" Write such a name as JSON: -e {written}" if odd else ""


def _untagged(tag: str, there: t.Sequence[HostedGuest], hosts: Hosts) -> str:
    tags = sorted({tag for copy in there for tag in copy.tags})
    return f"no guest has the tag {tag}: {hosts}; existing tags: {', '.join(tags[:SHOWN]) or 'none'}"


def _ambiguous(hit: t.Sequence[HostedGuest], remedy: str = "--limit", *, is_moving: bool = True) -> t.Iterator[str]:
    for name in dict.fromkeys(copy.name for copy in hit):
        places = [copy for copy in hit if copy.name == name]
        if len(places) > 1:
            hosts_text = " and on ".join(f"{copy.host} ({_off(copy.state)})" for copy in places)
            same = "its migration is in progress or was interrupted: finish it with playbook migrate, or "
            other = "these are different guests: "
            why = same if len({copy.uuid for copy in places}) == 1 else other
            if not is_moving and why == same:
                why = "they have the same UUID, and no migration of it is recorded: undefine the wrong one, or "
            yield f"{name} is on {hosts_text}; {why}name the host with {remedy}"


def _known_by_two_names(hit: t.Sequence[HostedGuest], there: t.Sequence[HostedGuest]) -> t.Iterator[str]:
    """Problems of guests that another host has under another name."""
    for copy in hit:
        for twin in there:
            if twin.uuid == copy.uuid and twin.name != copy.name and twin.host != copy.host:
                yield (
                    f"{copy.name} is on {copy.host} ({_off(copy.state)}) and, as {twin.name}, on {twin.host} "
                    f"({_off(twin.state)}): both have the UUID {copy.uuid}; compare them and undefine the wrong one, "
                    "or name the host with --limit"
                )


def _unconfirmed(action: PlaybookAction, arguments: t.Mapping[str, t.Any], hit: t.Sequence[HostedGuest]) -> str:
    hosts = dict.fromkeys(copy.host for copy in hit)
    names_text = "; ".join(f"{host}: {', '.join(copy.name for copy in hit if copy.host == host)}" for host in hosts)
    given = arguments.get("confirm")
    wrong = f", not {given}" if given is not None else ""
    count = f"{len(hit)} guest{'s' if len(hit) != 1 else ''}"
    return f"{action.name} would affect {count}{wrong} ({names_text}); to confirm: -e confirm={len(hit)}"


def _running_twice(running: t.Sequence[HostedGuest]) -> str:
    hosts = " and ".join(copy.host for copy in running)
    if len({copy.uuid for copy in running}) > 1:
        return f"{hosts} have different guests with this name; rename one of them (virsh domrename)"
    return f"it runs on {hosts} at once; nothing was touched: compare both copies, then destroy the wrong one"


def where_dead(hosts: Hosts, arguments: t.Mapping[str, t.Any], confirm: str = "confirm") -> str:
    """The remedy where silent hosts are dead; it repeats those that were declared so before."""
    names = ",".join([*(arguments.get("gone") or ()), *hosts.silent])
    return f"; where it is dead: -e gone={names} -e {confirm}={names}" if hosts.silent else ""


def _why_not(host: str, hosts: Hosts) -> str:
    return f"--limit excludes {host}; omit --limit" if host in hosts.hidden else f"{host} was not reached"


def _off(state: str) -> str:
    return "off" if state == "shutdown" else state
