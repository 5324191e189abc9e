# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What makes a storage pool as wanted. Never moves a pool: the disks of guests would stay behind."""

from __future__ import annotations

import dataclasses
import posixpath

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._model.pool import Found, Wanted

__all__ = ["Define", "SetAutostart", "Start", "Step", "Stop", "Undefine", "decide"]


@dataclasses.dataclass(frozen=True)
class Step:
    """One change of one pool."""

    pool: str

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} pool {self.pool}"


@dataclasses.dataclass(frozen=True)
class Define(Step):
    """Make the pool known."""

    path: str

    def __str__(self) -> str:
        return f"define pool {self.pool} in {self.path}"


@dataclasses.dataclass(frozen=True)
class Start(Step):
    """Make its directory where there is none, and look what is in it."""


@dataclasses.dataclass(frozen=True)
class Stop(Step):
    """Look no longer. Files and running guests stay."""


@dataclasses.dataclass(frozen=True)
class SetAutostart(Step):
    """Start with the host, or not."""

    on: bool

    def __str__(self) -> str:
        return f"set autostart of pool {self.pool} {'on' if self.on else 'off'}"


@dataclasses.dataclass(frozen=True)
class Undefine(Step):
    """Forget the pool. Its directory stays, and all that is in it."""


def decide(wanted: Wanted, found: Found | None) -> tuple[list[Step], list[Change]]:
    """Steps and what they change; raises BadInput and Refused."""
    _check(wanted, found)
    name, path = wanted.name, wanted.path or (found.path if found else None)
    if wanted.state == "absent":
        after = None
    else:
        was = found.autostart if found else wanted.state == "active"
        on = was if wanted.autostart is None else wanted.autostart
        after = Found("dir", path, wanted.state == "active", on)
    return list(_steps(name, found, after)), list(_changes(found, after))


def _check(wanted: Wanted, found: Found | None) -> None:
    name, path = wanted.name, wanted.path
    if path is not None and not posixpath.isabs(path):
        raise BadInput(f"path of pool {name}: {path!r} must be absolute")
    if wanted.state == "absent":
        return
    if found is None and path is None:
        raise BadInput(f"path of pool {name}: say where its files shall be; there is no such pool yet")
    if found and found.kind != "dir":
        raise Refused(f"cannot use pool {name}: it is of type {found.kind}, not a directory; choose another name")
    if found and path and posixpath.normpath(path) != posixpath.normpath(found.path or ""):
        raise Refused(
            f"cannot move pool {name} from {found.path} to {path}: the disks of guests would stay behind; choose another "
            "name, or remove the pool first (state: absent leaves the files)"
        )


def _steps(name: str, found: Found | None, after: Found | None) -> list[Step]:
    if after is None:
        return [] if found is None else [*([Stop(name)] if found.active else []), Undefine(name)]
    steps: list[Step] = [] if found else [Define(name, after.path or "")]
    if after.autostart != (found.autostart if found else False):
        steps.append(SetAutostart(name, after.autostart))
    if after.active != (found.active if found else False):
        steps.append(Start(name) if after.active else Stop(name))
    return steps


def _changes(found: Found | None, after: Found | None) -> list[Change]:
    before_row = dataclasses.asdict(found) if found else {}
    after_row = dataclasses.asdict(after) if after else {}
    keys = ("path", "active", "autostart")
    if before_row:  # a path that is only written differently is no change
        after_row["path"] = before_row["path"] if after else None
    rows = [Change(key, before_row.get(key), after_row.get(key)) for key in keys]
    return [row for row in rows if row.before != row.after]
