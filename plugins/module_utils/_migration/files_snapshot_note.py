# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A note with the snapshots of a guest that migrates: libvirt migrates no guest whose snapshots it keeps."""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import SavedSnapshot
from ansible_collections.corral.virt.plugins.module_utils._system import durable, private

FOLDER = "/var/lib/libvirt/corral-snapshots"  # it survives a reboot


def path(uuid: str) -> str:
    """The path of a guest's note."""
    return os.path.join(FOLDER, f"{uuid}.json")


def write(uuid: str, snapshots: t.Iterable[SavedSnapshot]) -> None:
    """Write the note; it is on disk when this returns."""
    private.make(FOLDER)
    part = f"{path(uuid)}.part"
    with open(private.opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8") as stream:
        json.dump([one._asdict() for one in snapshots], stream)
    durable.replace(part, path(uuid))
    durable.fsync(os.path.dirname(FOLDER))


def read(uuid: str) -> tuple[SavedSnapshot, ...]:
    """The snapshots in the note; none without one. Raises OSError, or ValueError if it is damaged."""
    with contextlib.suppress(FileNotFoundError):
        with open(private.opened(path(uuid), os.O_RDONLY), encoding="utf-8") as stream:
            try:
                return tuple(SavedSnapshot(**one) for one in json.load(stream))
            except TypeError as error:
                raise ValueError(str(error)) from error
    return ()


def remove(uuid: str) -> None:
    """Remove the note, if there is one."""
    durable.remove(path(uuid))
