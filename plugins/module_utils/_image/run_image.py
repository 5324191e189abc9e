# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one image into a pool: read facts, plan, run the steps, return the result."""

from __future__ import annotations

import contextlib
import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._image import (
    files_image,
    plan_image,
    plan_image_checks,
    plan_image_spec,
    plan_image_stages,
)
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Image,
    ImageSpec,
    Manifest,
    Present,
    Source,
)
from ansible_collections.corral.virt.plugins.module_utils._image.run_fetch import ChecksumLists, Fetching, World
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_image_lock,
    libvirt_storage,
    run_file_users,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._system import locks, work_directory
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import MAX_SIZE
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress

__all__ = ["OPTIONS", "World", "converge"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "pool": {"type": "str", "default": POOL},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "url": {"type": "str"},
    "src": {"type": "path"},
    "remote_src": {"type": "bool", "default": False},
    "origin": {"type": "str"},
    "origin_uri": {"type": "str"},
    "origin_pool": {"type": "str"},
    "checksum": {"type": "str"},
    "signature": {"type": "str"},
    "keyring": {"type": "str", "no_log": False},
    "format": {"type": "str", "choices": ["qcow2", "raw"]},
    "current": {"type": "bool", "default": True},
    "prune": {"type": "bool", "default": False},
    "used_elsewhere": {"type": "dict"},
    "update": {"type": "bool", "default": True},
    "retries": {"type": "int", "default": 4},
    "max_size": {"type": "str", "default": MAX_SIZE},
    "reserve": {"type": "str"},
}


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, world: World) -> dict[str, t.Any]:
    """Converge the image to the parameters."""
    spec = plan_image_spec.spec(params)
    directory = run_pool_directory.directory(connection, spec.pool, "images")
    work = _Work(connection, spec, _fetching(spec, directory, world), gate)
    steps = work.plan()
    return work.result(gate.perform(work.carry_out, otherwise=lambda: steps) if steps else [])


def _fetching(spec: ImageSpec, directory: str, world: World) -> Fetching:
    """The image and its source; neither source nor checksum of one that is there and is kept as it is."""
    kept = not spec.update and plan_image.is_there(files_image.look(Image(spec.name, directory, spec.format)))
    lists = ChecksumLists(world.open_url, spec)
    checksum, doubt = (None, "") if kept else plan_image_checks.requested_checksum(spec, lists)
    source = None if kept else spec.source
    image = Image(spec.name, directory, spec.format, source, checksum, current=spec.current, doubt=doubt, kept=kept)
    return Fetching(image, spec, world)


@dataclasses.dataclass(frozen=True)
class _Host:
    """The `ImageHost` of one decision; if steps are carried out, claimed contents are held until `locks` is closed."""

    connection: t.Any
    fetching: Fetching
    locks: contextlib.ExitStack | None

    @property
    def _directory(self) -> str:
        return self.fetching.image.directory

    def _path(self, content: str) -> str:
        return os.path.join(self._directory, content)

    @asked
    def look(self) -> Present:
        return files_image.look(self.fetching.image)

    @asked
    def manifest(self, content: str) -> Manifest | None:
        return files_image.manifest_of(self._directory, content)

    @asked
    def offered(self) -> Image:
        self.fetching.ask_origin()
        return self.fetching.image

    @asked
    def user_of_name(self, path: str) -> str | None:
        return run_file_users.users(self.connection).based_on(path)

    @asked
    def users_inside(self, directory: str) -> dict[str, str]:
        return run_file_users.users(self.connection).inside(directory)

    @asked
    def opener(self, content: str) -> str | None:
        return files_disk.opener(self._path(content))

    @asked
    def shared(self) -> str | None:
        return locks.shared_filesystem(self._directory)

    @asked
    def digest(self, content: str, algorithm: str) -> str:
        return files_image.digest_of(self._path(content), algorithm, lambda _done: None)

    @asked
    def is_recorded(self, content: str) -> bool:
        return files_image.verified(self._directory, content)

    @asked
    def compared(self, content: str) -> Manifest | None:
        return files_image.verify(self._directory, content, None)

    @asked
    def compared_with_requested(self, content: str) -> Manifest | None:
        return files_image.verify(self._directory, content, self.fetching.requested(self._path(content)))

    @asked
    def claimed(self, contents: tuple[str, ...]) -> frozenset[str]:
        taken = files_image_lock.claim(map(self._path, contents), self.locks) if self.locks else set()
        return frozenset(map(os.path.basename, taken))


class _Work:
    """The work on one image: facts and steps."""

    def __init__(self, connection: t.Any, spec: ImageSpec, fetching: Fetching, gate: Gate) -> None:
        self.connection, self.spec, self.gate = connection, spec, gate
        self.fetching = fetching
        self.absent = spec.state == "absent"
        self.before: str | None = None
        self.notes: list[str] = []
        self.read_again = False
        self.fetched: Manifest | None = None
        self.locks: contextlib.ExitStack | None = None  # while steps are carried out

    @property
    def image(self) -> Image:
        """The image, with what is known of it so far."""
        return self.fetching.image

    def plan(self) -> list[plan_image.ImageStep]:
        """The steps from the current state."""
        work_directory.check(self.image)  # before the action uploads anything there
        steps = self.bringing()
        if any(isinstance(step, plan_image.Fetch) for step in steps):
            self.fetching.check()
        return [*steps, *self.removing(steps)]

    def carry_out(self) -> list[plan_image.ImageStep]:
        """Read the state again under the lock, as another run may have changed it, and run the steps.

        No disk can be based on what is removed until the stack is closed.
        """
        with contextlib.ExitStack() as self.locks:
            self.locks.enter_context(work_directory.locked(self.image))
            if self.image.kept:  # it was there before the lock
                self.fetching = _fetching(self.spec, self.image.directory, self.fetching.world)
            steps = self.bringing()
            self.gate.run(steps, self.do)
            gone = self.removing([])
            self.gate.after(steps).run(gone, self.do)
            work_directory.tidy(self.image)
        libvirt_storage.refresh(self.connection, self.spec.pool)
        return [*steps, *gone]

    def bringing(self) -> list[plan_image.ImageStep]:
        """Steps until the name points to the requested content.

        A verified content is reported as `read_again` and is no step: no image changes by it, and a run that finds all
        in place takes no lock. It needs none: what is recorded is the file as it was before it was read, so one that
        changed since is read again.
        """
        decided = plan_image_stages.bringing(self.image, self._host(), absent=self.absent)
        self.gate.run(decided.vouch, self.do)
        self.before, self.read_again = decided.before, self.read_again or decided.read_again
        return [*decided.steps]

    def removing(self, steps: t.Sequence[plan_image.ImageStep]) -> list[plan_image.ImageStep]:
        """Steps that remove files that are unused after the other steps."""
        decided = plan_image_stages.removing(
            self.image,
            self._host(),
            steps,
            absent=self.absent,
            prune=self.spec.prune,
            elsewhere=self.spec.used_elsewhere,
        )
        self.notes = [*decided.notes]
        return [*decided.steps]

    def _host(self) -> _Host:
        """A host that is asked anew: steps were done since the last decision, or the lock was taken."""
        return _Host(self.connection, self.fetching, self.locks)

    def do(self, step: plan_image.ImageStep) -> None:
        """Perform a step."""
        with explained(str(step)):
            _DOERS[type(step)](self, step)

    def fetch(self) -> None:
        """Fetch the content and report progress; a part that can be resumed stays after an error."""
        try:
            with Progress(work_directory.path(self.image, "progress")) as tell:
                self.fetched = self.fetching.fetch(tell)
        except VirtError:
            if not os.path.exists(self.fetching.part):
                work_directory.tidy(self.image)
            raise

    def result(self, steps: t.Sequence[plan_image.ImageStep]) -> dict[str, t.Any]:
        """The module's result; in check mode the same, as far as it can be known."""
        image, fetched = self.image, self.fetched.content if self.fetched else None
        outcome = plan_image.outcome(image, steps, self.before, absent=self.absent, fetched=fetched)
        fetches = any(isinstance(step, plan_image.Fetch) for step in steps)
        result = {
            "changed": bool(steps),
            "steps": [str(step) for step in steps],
            "notes": self.notes,
            "warnings": plan_image.warnings(image),
            "diff": changes.diff(outcome.changes),
            "name": image.name,
            "path": os.path.join(image.directory, image.name),
            "content": outcome.content,
            **({"read_again": True} if self.read_again else {}),
            **({"checksum": str(image.checksum)} if image.checksum else {}),
            **(self._fetching() if fetches else {}),
        }
        if not self.absent:
            result["verified"] = plan_image.is_verified(image, self._manifest(outcome.content, fetches))
        return result

    def _manifest(self, content: str | None, fetches: bool) -> Manifest | None:
        """The manifest of the content after the steps; None if it is yet to be fetched."""
        if self.fetched or fetches or content is None:
            return self.fetched
        return files_image.manifest_of(self.image.directory, content)

    def _fetching(self) -> dict[str, t.Any]:
        """The source; and the path and size of the part until it is fetched."""
        details: dict[str, t.Any] = {"fetched_from": t.cast(Source, self.image.source).shown}
        return details if self.fetched else {**details, "part": {"path": self.fetching.part, **self.fetching.left()}}


def _content(work: _Work, step: plan_image.Symlink) -> str:
    return step.target or t.cast(Manifest, work.fetched).content


def _check_name(work: _Work, step: plan_image.Symlink) -> None:
    """Raises Refused if somebody has taken the name since the plan: a download may take hours."""
    found = files_image.look(work.image)
    plan_image.check_not_taken(step, found)
    if found.target and found.target != _content(work, step):
        path = os.path.join(work.image.directory, work.image.name)
        plan_image.check_name(work.image, found.target, run_file_users.users(work.connection).based_on(path))


def _check_unused(work: _Work, step: plan_image.Remove) -> None:
    """Raises Refused if somebody now uses the file, perhaps since the fetch began."""
    if step.file == work.image.name:
        plan_image.check_not_taken(step, files_image.look(work.image))
    users = run_file_users.users(work.connection)
    path = os.path.join(work.image.directory, step.file)
    user = users.based_on(path)
    if not os.path.islink(path):  # a name is used by who names it; where it points to stays
        user = user or users.of(path) or files_disk.opener(path)
    plan_image.check_unused(work.image, step.file, user)


def _remove(work: _Work, step: plan_image.Remove) -> None:
    for name in (step.file, files_image_lock.manifest_name(step.file)):
        remove(os.path.join(work.image.directory, name))


_DOERS: dict[type[plan_image.ImageStep], t.Callable[[_Work, t.Any], object]] = {
    plan_image.Vouch: lambda work, step: files_image.vouch(work.image.directory, step.manifest),
    plan_image.Fetch: lambda work, _step: work.fetch(),
    plan_image.Symlink: Looked(_check_name, lambda work, step: files_image.point(work.image, _content(work, step))),
    plan_image.Remove: Looked(_check_unused, _remove),
}
