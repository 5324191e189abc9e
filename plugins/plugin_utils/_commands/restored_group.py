# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the guests of a group are restored, from which backup, and what must not be so. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

Result = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class RestoredGuest:
    """A guest of the group: `guest` is its name then, `name` the one that it gets, `point` the ID of its backup."""

    guest: str
    uuid: str
    name: str
    host: str
    point: str
    in_place: bool


def restored(
    backups: t.Mapping[str, Result], found: t.Mapping[str, Result], arguments: t.Mapping[str, t.Any]
) -> tuple[list[RestoredGuest], list[str]]:
    """The guests, in the order in which they are started, and every problem.

    `backups` are the results of `virt_backup_info` with the tag, `found` those of `virt_state_info`, by host.
    """
    points = _points(backups)
    problems = [] if points else [_none(backups, arguments["tag"])]
    guests = [_placed(uuid, made, found, arguments, problems) for uuid, made in points.items()]
    problems += _clashes(guests, found)
    problems += _strangers(guests, arguments)
    if arguments.get("confirm") != len(guests) and (replaced := [one for one in guests if one.in_place]):
        names = ", ".join(sorted(f"{one.name} ({one.host})" for one in replaced))
        problems.append(
            f"confirm: of {len(guests)} guests, this replaces the disks of {names}; to confirm it, add "
            f"-e confirm={len(guests)}; or restore other guests beside them: -e suffix=-then"
        )
    order = arguments.get("start_order") or []
    guests.sort(key=lambda one: (order.index(one.guest) if one.guest in order else len(order), one.name))
    return guests, problems


def _points(backups: t.Mapping[str, Result]) -> dict[str, dict[str, Result]]:
    """The guests that each repository has, by UUID and host."""
    found: dict[str, dict[str, Result]] = {}
    for host, result in backups.items():
        for guest in result.get("guests") or ():
            found.setdefault(guest["uuid"], {})[host] = guest
    return found


def _none(backups: t.Mapping[str, Result], tag: str) -> str:
    failed = [str(result["msg"]) for result in backups.values() if "guests" not in result and result.get("msg")]
    if failed and not any("guests" in result for result in backups.values()):
        return "; ".join(dict.fromkeys(failed))
    readers = ", ".join(host for host, result in backups.items() if "guests" in result)
    return f"tag: no guest has the tag {tag} in its last backup until then, in the repository of {readers}"


def _placed(
    uuid: str,
    made: t.Mapping[str, Result],
    found: t.Mapping[str, Result],
    arguments: t.Mapping[str, t.Any],
    problems: list[str],
) -> RestoredGuest:
    """Where a guest is restored; adds the problems."""
    newest = max(made.values(), key=lambda guest: str(guest["last"]))
    name, suffix = str(newest["name"]), str(arguments.get("suffix") or "")
    holders = {host: one["name"] for host, result in found.items() for one in result["domains"] if one["uuid"] == uuid}
    asked = str(arguments.get("host") or "")
    host = asked if asked and (suffix or not holders) else next(iter(holders), "")
    if len(holders) > 1 and not suffix:
        problems.append(f"{name}: it is defined on {' and '.join(sorted(holders))}; undefine it on one of them first")
    elif not host:
        problems.append(f"{name}: no hypervisor has it; choose one: -e host=HOST")
    elif host not in made:
        problems.append(
            f"{name}: the repository of {host} has no such backup of it, but that of {', '.join(sorted(made))}; mount "
            f"it on {host}, or copy it there"
        )
    elif made[host]["last"] != newest["last"]:
        other = next(one for one, guest in sorted(made.items()) if guest is newest)
        problems.append(
            f"{name}: the repository of {other} has a newer backup of it ({newest['last']}) than that of {host} "
            f"({made[host]['last']}); mount it on {host}, or copy it there"
        )
    known = name if suffix else holders.get(host, name)
    return RestoredGuest(name, uuid, known + suffix, host, str(newest["last"]), bool(holders) and not suffix)


def _clashes(guests: t.Sequence[RestoredGuest], found: t.Mapping[str, Result]) -> t.Iterator[str]:
    """A problem for each name that another guest has."""
    there = {one["name"]: host for host, result in found.items() for one in result["domains"]}
    names = [one.name for one in guests]
    for one in guests:
        if not one.in_place and one.name in there:
            choose = "rename it" if one.name == one.guest else "choose another suffix"
            yield f"{one.guest}: {there[one.name]} has a guest {one.name}; {choose}"
    for name in sorted({name for name in names if names.count(name) > 1}):
        uuids = ", ".join(one.uuid for one in guests if one.name == name)
        yield f"{name}: several guests of the group get this name; restore each alone (-e guest=UUID): {uuids}"


def _strangers(guests: t.Sequence[RestoredGuest], arguments: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Names in `start_order` that no guest has."""
    known = sorted({one.guest for one in guests})
    for name in arguments.get("start_order") or ():
        if guests and name not in known:
            yield f"start_order: {name} is not in the group; it has {', '.join(known)}"
