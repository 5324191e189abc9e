# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is done with disks that were moved aside to be deleted, and describe it. Pure."""

from __future__ import annotations

import dataclasses
import math
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import (
    DiskAside,
    Moment,
    RemovedDisk,
)

_SKEW_S = 300  # a clock that is set right by so much does not jump


def unfinished(found: t.Iterable[DiskAside], host_uuid: str, now: Moment) -> list[DiskAside]:
    """The disks that this host finishes: only the host that began a removal can ask its guests about the disk."""
    return [
        one
        for one in found
        if one.note and not one.alive and one.note.host_uuid == host_uuid and (one.note.is_due(now) or not one.moved)
    ]


def kept(one: DiskAside, host_uuid: str, now: Moment) -> str:
    """A note on a disk that was moved aside, with what can be done about it."""
    note = one.note
    if note is None:
        return f"{one.place} has no readable note; find out what it is, and move it away or delete it"
    disk = f"{one.place} is disk {note.path} of {note.guest}, removed {note.since}"
    if one.alive:
        return f"{disk}; its removal is at work"
    if not one.moved:
        return f"the removal of disk {note.path} of {note.guest} was interrupted {note.since}; only its note is left"
    if one.taken:
        return f"{disk}; another file has its name by now: compare the two, and delete one of them"
    back = f"to bring it back: {shlex.join(['mv', '-n', one.place, note.path])}"
    if note.host_uuid != host_uuid:
        return f"{disk} by host {note.host_uuid}, which finishes it; {back}"
    if note.is_due(now):
        when = "the next removal of a guest with its disks, restore in place or revert on this host"
        return f"{disk}; {when} deletes it unless it is in use; {back}"
    return f"{disk}; {_time(note, now)}; {back}"


def _time(note: RemovedDisk, now: Moment) -> str:
    """How long the disk is kept, as text."""
    by_clock = dataclasses.replace(note, uptime_s=None).left_s(now)
    left_s = note.left_s(now)
    if left_s <= by_clock + _SKEW_S:
        return f"it is kept until {note.keep_until}"
    since = "it was removed" if note.boot_id == now.boot_id else "its last boot"
    return f"it is kept for {math.ceil(left_s / 3600)} more h, as this host has counted only the time since {since}"
