# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take files out of a backup: facts, plan, gate, result."""

from __future__ import annotations

import contextlib
import functools
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_extracted,
    files_repository,
    plan_backup_files,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import Repository
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_files import (
    Content,
    Inside,
    Mounts,
    NameInside,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import ExtractFiles
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.output import printable
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress

_NAMED, _MOST = 5, 1000  # of what is left out: in a note, and in all


def read(params: t.Mapping[str, t.Any], gate: Gate) -> dict[str, t.Any]:
    """List a directory of a point, or write files of it."""
    spec = plan_backup_files.checked(params)
    with contextlib.ExitStack() as stack:
        tell = Progress(os.path.join(private.place(), f"{spec.guest}.files.progress"))
        gate.hold(stack, lambda: tell)
        host = _Host(stack, tell)
        made = plan_backup_files.plan(plan_backup_files.scene(spec, host))
        told = gate.run(made.steps, lambda step: _DOERS[type(step)](host, step))
    result: dict[str, t.Any] = {
        "name": made.name,
        "uuid": made.uuid,
        "point": made.point,
        "changed": bool(made.steps),
        "steps": [str(step) for step in made.steps],
        "entries": [entry._asdict() for entry in made.entries],
        "notes": list(made.notes),
    }
    for one in told:
        result.update(_extracted(t.cast(files_extracted.Extraction, one), result["notes"]))
    return result


def _extracted(made: files_extracted.Extraction, notes: list[str]) -> dict[str, t.Any]:
    left = [f"{printable(name)}: {printable(why)}" for name, why in made.left_out]
    if left:
        more = f"; and {len(left) - _NAMED} more (left_out)" if len(left) > _NAMED else ""
        notes.append(f"left out: {'; '.join(left[:_NAMED])}{more}")
    return {"files": made.files, "size_bytes": made.bytes, "left_out": left[:_MOST]}


class _Host:
    """The `FilesHost` that this machine is, with an appliance that reads a point."""

    facts = asked_of(files_repository.look)
    has_reader = staticmethod(files_extracted.has_reader)
    destination = asked_of(files_extracted.look)

    def __init__(self, stack: contextlib.ExitStack, tell: Progress) -> None:
        self._stack, self._tell = stack, tell
        self._handle: t.Any = None

    @asked
    def repository(self, path: str) -> Repository:
        return files_repository.read(path, str(self.facts(path).marker))

    @asked
    def sha256(self, path: str) -> str:
        try:
            size = os.stat(path).st_size
            return files_repository.digest(path, lambda done: self._tell("check", done, size))
        except OSError:
            return ""

    @asked
    def content(self, disks: tuple[str, ...]) -> Content:
        self._handle = self._stack.enter_context(files_extracted.opened(disks))
        return files_extracted.content(self._handle)

    @asked
    def unmounted(self, mounts: Mounts) -> tuple[str, ...]:
        return files_extracted.mount(self._handle, mounts)

    @asked
    def inside(self, path: str) -> Inside | None:
        return files_extracted.inside(self._handle, path)

    @asked
    def entries(self, path: str) -> tuple[tuple[NameInside, ...], int]:
        return files_extracted.entries(self._handle, path)

    def extract(self, step: ExtractFiles) -> files_extracted.Extraction:
        """Write files to a new directory."""
        done = 0

        def told(more: int) -> None:
            nonlocal done
            done += more
            self._tell("copy", done, step.size_bytes)

        with files_extracted.new(step.dest) as part:
            made = files_extracted.Extraction(part, keep_owners=step.keep_owners, tell=told)
            for path in step.paths:
                found = self.inside(path)
                if found and found.kind == "directory":
                    files_extracted.stream(self._handle, path, functools.partial(made.unpack, path))
                else:
                    to = made.place(path)
                    made.finished(to, files_extracted.download(self._handle, path, to))
            made.finish()
        return made


_DOERS: dict[type[GuestStep], t.Callable[[t.Any, t.Any], object]] = {ExtractFiles: _Host.extract}
