# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What a migration leaves in two places, brought to one: observed, judged, done; and the record that tells what is ours."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._front import carry
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, migrate, storage
from ansible_collections.corral.virt.plugins.module_utils._model.move import Move
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate import Verdict, judge
from ansible_collections.corral.virt.plugins.module_utils._xml import record, tied

__all__ = ["begin", "clean_up", "forget", "seen", "settled", "undo"]

_PATIENCE_S = 45  # libvirt notices after 30 s that its other end is gone
_LOOK_S = 0.5


def begin(source: t.Any, move: Move) -> None:
    """Before anything is made: what will be, whose it is, and what goes when the guest has arrived."""
    fields: dict[str, t.Any] = {"moving": move.dest, "moving_from": move.source_uuid}
    fields.update(moving_paused="yes" if move.paused else "", moving_autostart="yes" if move.autostart else "")
    fields["moving_made"] = tuple(disk.path for disk in move.disks if disk.volume)
    fields["moving_goes"] = () if move.keep_source_storage else tuple(disk.path for disk in move.disks if disk.volume and disk.goes)
    _remember(look.lookup(source, move.guest), fields)


def forget(connection: t.Any, name: str) -> None:
    """It moves no more."""
    _remember(look.lookup(connection, name), {"moving": "", "moving_made": (), "moving_goes": ()})


def _remember(guest: t.Any, fields: t.Mapping[str, t.Any]) -> None:
    now = look.found(guest)
    stored = record.update(now.xml, fields) if now.persistent else None
    migrate.set_record(guest, stored, now.live_xml and record.update(now.live_xml, fields))


def seen(ends: Ends, name: str, *, was_paused: bool) -> Verdict:
    """One look at both ends."""
    source, dest = ends.or_none("source"), ends.or_none("dest")
    here = migrate.state_there(source, name)
    there = migrate.state_there(dest, name, reserved=tied.is_reserved)
    here = "paused" if here == "incoming" else here  # of the source: paused by its migration
    return judge(here, there, was_paused=was_paused, job_active=migrate.job_active(source, name))


def settled(ends: Ends, move: Move) -> Verdict:
    """Look until both ends agree, or libvirt has had its time; then do the one thing that is right."""
    deadline = time.monotonic() + _PATIENCE_S
    verdict = seen(ends, move.guest, was_paused=move.paused)
    while verdict.wait and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        verdict = seen(ends, move.guest, was_paused=move.paused)
    if verdict.action == "resume_dest":
        migrate.resume(ends.dest, move.guest)
    elif verdict.action == "finish_dest":
        carry.release(ends.dest, move.guest)
    elif verdict.action == "clean_dest":
        migrate.discard(ends.dest, move.guest)
        if seen(ends, move.guest, was_paused=move.paused).action == "resume_source":
            migrate.resume(ends.source, move.guest)
    elif verdict.action == "clean_source":
        migrate.discard(ends.source, move.guest)
        return verdict._replace(action="done")
    elif verdict.action == "resume_source":
        migrate.resume(ends.source, move.guest)
    return verdict


def clean_up(ends: Ends, name: str, made: t.Iterable[str]) -> None:
    """The guest stayed: remove the images that were made for it on the destination, and the record."""
    dest, source = ends.or_none("dest"), ends.or_none("source")
    if dest is None or source is None:
        return  # the record stays, and the next run does it
    for path in made:
        storage.delete(dest, path)
    if migrate.state_there(source, name) != "absent":
        forget(source, name)


def undo(ends: Ends, move: Move) -> None:
    """As `clean_up`, of a move that did not come about."""
    clean_up(ends, move.guest, [disk.path for disk in move.disks if disk.volume])
