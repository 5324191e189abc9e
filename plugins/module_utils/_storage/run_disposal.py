# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Delete a disk for good: moved aside, checked there by identity and users, and only then removed."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here, is_system
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_logical,
    files_lvm,
    files_removal_notes,
    files_removed_disks,
    libvirt_storage,
    plan_disposal,
    plan_removed_disks,
    run_file_users,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import DiskAside, RemovedDisk
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory, holder
from ansible_collections.corral.virt.plugins.module_utils._storage.run_removed_disks import (
    host_uuid,
    moved_aside,
    now,
    pools,
)
from ansible_collections.corral.virt.plugins.module_utils._system import identity, locks
from ansible_collections.corral.virt.plugins.module_utils._system.locks import DISKS
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity


@dataclasses.dataclass
class Disposal:
    """One disk to delete on the connection's host."""

    connection: t.Any
    path: str
    guest: str
    uuid: str  # of that guest
    expected: FileIdentity | None = None  # which file was created for the guest; None: nobody recorded it
    without: t.Collection[str] = ()  # other volumes that go with it, and so do not count as its users
    left: t.Sequence[str] = ()  # disks of the guest that are to be deleted after it: a refusal names them
    keep_h: int = 0  # how long it stays aside, hours
    key: str | None = None  # of the volume, where it is no file of this machine; None: nobody asked
    verb: str = "delete"  # or replace, where another one is made then
    pooled: bool = True  # whether it is in a pool; UEFI variables are in none
    quarantine: files_removed_disks.Quarantine | None = None
    logical: bool = False  # it is a logical volume of this machine
    wipe: bool = False  # its content is overwritten first

    @contextlib.contextmanager
    def look(self) -> t.Iterator[None]:
        """Move the disk aside, and check that it is the right one and nobody uses it; else it is given back.

        Raises Refused or Failed. If it is no file of this machine nothing is moved: libvirt is asked again.
        """
        pool = self._pool()
        with contextlib.ExitStack() as stack:
            if self.verb == "delete":  # what replaces one may itself hold the lock of who takes disks
                _alone(self.connection, stack)
            if pool is None and not self._is_beside_pools():
                self._check_device()
                yield
                return
            self.quarantine = files_removed_disks.begin(stack, self.path, self._described)
            if pool is not None:
                stack.callback(libvirt_storage.refresh, self.connection, pool)
            with _given_back(self.quarantine):
                self._check(_sight(self.connection, self.quarantine, self.without), self.quarantine)
            yield

    def act(self) -> None:
        """Delete the disk, or let it stay aside for its time."""
        if self.wipe and self.quarantine:
            files_disk.overwrite(self.quarantine.path)
        elif self.wipe:
            self.connection.storageVolLookupByPath(self.path).wipe()
        if self.quarantine is None and self.logical:  # libvirt does not know thin ones
            files_logical.remove(self.path)
            if pool := run_pool_directory.pool_with(self.connection, self.path):
                libvirt_storage.refresh(self.connection, pool)
        elif self.quarantine is None:
            libvirt_storage.delete(self.connection, self.path)
        elif not self.keep_h:
            self.quarantine.delete()

    def _check_device(self) -> None:
        """Check a disk that cannot be moved aside: its identity, who uses it, and that nobody has it open."""
        opened, here = False, is_here(self.connection.getURI())
        self.logical = here and identity.logical_volume(self.path) is not None
        if here and (found := identity.of_path(self.path)):
            plan_disposal.check_identity(self.path, self.guest, self.expected, found, verb=self.verb)
            opened = files_lvm.is_open(self.path)
        self._check(plan_disposal.DiskSight(self._user(), opened, same=self._same_volume()))

    def _pool(self) -> str | None:
        """The active pool in whose directory the file is, on this machine; else None."""
        if not is_here(self.connection.getURI()) or not os.path.lexists(self.path):
            return None
        found = holder(pools(self.connection), os.path.dirname(self.path))
        return found.name if found and found.active else None

    def _is_beside_pools(self) -> bool:
        """True if the disk is a file of this machine in no pool, and may be."""
        if self.pooled or not is_here(self.connection.getURI()):
            return False
        held = holder(pools(self.connection), os.path.dirname(self.path))
        return held is None and (self.quarantine is not None or os.path.isfile(self.path))

    def _same_volume(self) -> bool:
        """True if libvirt has no other volume at the path now; one that is gone counts as the same."""
        now = libvirt_storage.volume_key(self.connection, self.path) if self.key else None
        return now is None or now == self.key

    def _user(self) -> str | None:
        return run_file_users.users(self.connection, without=self.without, removed_with=self.uuid).of(self.path)

    def _described(self, found: FileIdentity, size_bytes: int) -> RemovedDisk:
        plan_disposal.check_identity(self.path, self.guest, self.expected, found, verb=self.verb)
        since = now()
        return RemovedDisk(
            path=self.path,
            guest=self.guest,
            guest_uuid=self.uuid,
            host_uuid=host_uuid(self.connection),
            size_bytes=size_bytes,
            boot_id=since.boot_id,
            pid=os.getpid(),
            since=since.utc,
            keep_until=since.later(self.keep_h) if self.keep_h else None,
            uptime_s=since.uptime_s,
            **dataclasses.asdict(found),
        )

    def _check(self, sight: plan_disposal.DiskSight, quarantine: files_removed_disks.Quarantine | None = None) -> None:
        uri = self.connection.getURI()
        plan_disposal.check_sight(
            self.path,
            self.guest,
            sight,
            uri=uri,
            pooled=self.pooled or not self._is_beside_pools(),
            left=self.left,
            verb=self.verb,
            place=quarantine.path if quarantine else "",
            give_back=quarantine.give_back if quarantine else None,
        )


def dispose(disposal: Disposal) -> None:
    """Delete a disk; raises Refused and keeps it if somebody uses it now, or another file has its name."""
    Looked(Disposal.look, Disposal.act)(disposal)


def replaced(connection: t.Any, path: str, guest: str, uuid: str, expected: FileIdentity | None) -> None:
    """Delete what an interrupted run has left where a disk of a guest is made anew; raises as `dispose`."""
    dispose(Disposal(connection, path, guest, uuid, expected, verb="replace"))


def _alone(connection: t.Any, stack: contextlib.ExitStack) -> None:
    """Keep other runs on this host from taking existing disks into use until the stack is closed."""
    if is_system(connection.getURI()):
        stack.enter_context(locks.flocked(DISKS, fcntl.LOCK_EX))


@contextlib.contextmanager
def _given_back(quarantine: files_removed_disks.Quarantine) -> t.Iterator[None]:
    """Give the disk back if the look fails, so that a living run leaves none aside."""
    try:
        yield
    except BaseException:
        if quarantine.is_moved:
            quarantine.give_back()
        raise


def _sight(
    connection: t.Any, quarantine: files_removed_disks.Quarantine, without: t.Collection[str]
) -> plan_disposal.DiskSight:
    """What is seen of the disk; its users by its old name and by the file, which may have other names."""
    users = run_file_users.users(connection, without=without, removed_with=quarantine.note.guest_uuid)
    old = os.path.join(quarantine.directory, quarantine.name)
    return plan_disposal.DiskSight(
        user=users.of(old) or users.of(quarantine.path),
        opened=quarantine.is_locked(),
        same=quarantine.note.identity.is_same(quarantine.identity()),
    )


def unfinished(connection: t.Any, paths: t.Iterable[str] = ()) -> list[DiskAside]:
    """Removals that this host finishes now, each with its user: in its pools, and in the directories of `paths`."""
    beside = [PoolDirectory("", "dir", os.path.dirname(path)) for path in paths]
    aside = moved_aside(connection.getURI(), [*pools(connection), *beside])
    found = plan_removed_disks.unfinished(aside, host_uuid(connection), now()) if aside else []
    if not found:
        return []
    by_guest = {uuid: run_file_users.users(connection, removed_with=uuid) for uuid in {_guest_of(one) for one in found}}
    return [one._replace(user=_user_of(one, by_guest[_guest_of(one)])) for one in found]


def _guest_of(one: DiskAside) -> str:
    return one.note.guest_uuid if one.note else ""


def _user_of(one: DiskAside, users: run_file_users.Users) -> str | None:
    """A user of a disk that is aside; those that were removed with the same guest go with it."""
    return (users.of(one.note.path) if one.note else None) or users.of(one.place)


@dataclasses.dataclass
class Finishing:
    """One disk that an interrupted run moved aside, or whose time is over."""

    connection: t.Any
    place: str
    expected: FileIdentity | None = None  # of the disk, as its note told
    quarantine: files_removed_disks.Quarantine | None = None
    needed: bool = False
    wipe: bool = False  # its content is overwritten before it is deleted

    @contextlib.contextmanager
    def look(self) -> t.Iterator[None]:
        """Take the disk over, unless another run is at work on it, and check whether somebody uses it."""
        directory, key = files_removal_notes.located(self.place)
        with contextlib.ExitStack() as stack:
            _alone(self.connection, stack)
            self.quarantine = found = files_removed_disks.resume(stack, directory, key)
            if found:
                plan_disposal.check_note(self.place, self.expected, found.note.identity)
            if found and found.is_moved:
                sight = _sight(self.connection, found, ())
                self.needed = plan_disposal.is_given_back(sight, returned=found.returned)
            yield

    def act(self) -> None:
        """Delete the disk, or give it back."""
        found = self.quarantine
        if found is None:
            return
        if self.needed:
            plan_disposal.check_given_back(self.place, found.note.path, done=found.give_back())
        else:
            if self.wipe and found.is_moved:
                files_disk.overwrite(found.path)
            found.delete()
        pool = holder(pools(self.connection), found.directory)
        if pool and pool.active:
            libvirt_storage.refresh(self.connection, pool.name)


def finish(connection: t.Any, place: str, expected: FileIdentity | None = None) -> None:
    """Finish the removal of the disk at this place, or undo it if somebody uses the disk."""
    Looked(Finishing.look, Finishing.act)(Finishing(connection, place, expected))
