# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one disk of a pool to the wanted state: fetch facts, plan, gate, report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import changes
from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked, asked_of, forget
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    libvirt_query,
    xml_host,
    xml_sources,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_disk,
    files_header,
    files_image_lock,
    files_qemu_img,
    libvirt_blockjob,
    libvirt_storage,
    plan_clone,
    plan_clone_spec,
    plan_clone_steps,
    run_pool_directory,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_clone import (
    BaseImage,
    CloneSpec,
    Use,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.run_disposal import Disposal
from ansible_collections.corral.virt.plugins.module_utils._system import durable, free_space, timer, work_directory
from ansible_collections.corral.virt.plugins.module_utils._system import locks as guest_locks
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace, reserve_of
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress, Tell

OPTIONS: dict[str, t.Any] = {
    "state": {"type": "str", "choices": ["present", "absent", "rebased", "flattened"], "default": "present"},
    "image": {"type": "str"},
    "image_pool": {"type": "str"},
    "clone": {"type": "str", "choices": ["overlay", "copy"]},
    "size": {"type": "str"},
    "allow_shrink": {"type": "bool", "default": False},
    "remove_storage": {"type": "bool", "default": False},
    "job_timeout": {"type": "int", "default": 1800},
}


def converge(
    connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, progress: Tell | None = None
) -> dict[str, t.Any]:
    """Converge the disk; `progress` receives that of long work; without it, check mode returns the file that will have
    it.
    """
    size_bytes = plan_clone_spec.size_bytes(params)
    plan_clone_spec.check_local(connection.getURI())
    directory = os.path.realpath(run_pool_directory.directory(connection, params["pool"], "disks"))
    with contextlib.ExitStack() as stack:
        wanted = CloneSpec(
            name=params["name"],
            state=params["state"],
            directory=directory,
            format=plan_clone_spec.format_of(params),
            copy=params["clone"] == "copy",
            size_bytes=size_bytes,
            allow_shrink=params["allow_shrink"],
            remove_storage=params["remove_storage"],
            timeout_s=params["job_timeout"],
            reserve_bytes=reserve_of(params["reserve"]),
        )
        image = _held(connection, params, stack) if params["image"] else None
        left = work_directory.wait(wanted)
        host = _Host(connection)
        plan = _plan(wanted, image, host)
        if not plan.steps and not left:
            return _result(wanted, plan)
        return gate.perform(
            lambda: _result(wanted, _done(host, wanted, image, params["pool"], gate, progress, stack)),
            otherwise=lambda: {**_result(wanted, plan), **_progress(wanted, plan)},
        )


def _result(wanted: CloneSpec, plan: plan_clone.ClonePlan) -> dict[str, t.Any]:
    return {
        "changed": bool(plan.steps),
        "steps": [str(step) for step in plan.steps],
        "diff": changes.diff(plan.changes),
        "name": wanted.name,
        "path": wanted.path,
        "size_bytes": plan.size_bytes,
        "backing_file": plan.backing_file,
    }


def _progress(wanted: CloneSpec, plan: plan_clone.ClonePlan) -> dict[str, str]:
    """The file for the progress of long work, as a part of the result."""
    return {"progress": work_directory.path(wanted, "progress")} if any(step.doing for step in plan.steps) else {}


class _Image(t.NamedTuple):
    """The image that the disk is created from, and the path of its content."""

    name: str
    pool: str
    path: str


def _plan(wanted: CloneSpec, image: _Image | None, host: _Host) -> plan_clone.ClonePlan:
    """The plan from what the host answers now, of the image as of the disk."""
    if image:
        plan_clone_spec.check_image(image.name, image.pool, there=os.path.isfile(image.path))
        wanted = dataclasses.replace(wanted, base=plan_clone.base(image.name, image.path, host))
    return plan_clone.plan(wanted, plan_clone.found(wanted, files_disk.hidden(wanted.path), host))


_OF_GUESTS = (plan_clone_steps.Forget, plan_clone_steps.Pull)  # steps that a move of the guest must not cross


def _done(
    host: _Host,
    wanted: CloneSpec,
    image: _Image | None,
    pool: str,
    gate: Gate,
    progress: Tell | None,
    locks: contextlib.ExitStack,
) -> plan_clone.ClonePlan:
    """The plan after its steps; first waits for another run at work on the disk, and looks again."""
    locks.enter_context(work_directory.locked(wanted))
    work_directory.tidy(wanted)
    forget(host)
    plan = _plan(wanted, image, host)
    for guest in dict.fromkeys(step.guest for step in plan.steps if isinstance(step, _OF_GUESTS)):
        locks.enter_context(guest_locks.locked(guest, plan_clone.another_run(wanted.path, guest)))
    tell = progress or locks.enter_context(Progress(work_directory.path(wanted, "progress")))
    gate.run(plan.steps, _Work(host.connection, wanted, plan.size_bytes or 0, tell).do)
    if plan.steps:
        libvirt_storage.refresh(host.connection, pool)
    return plan


def _held(connection: t.Any, params: t.Mapping[str, t.Any], locks: contextlib.ExitStack) -> _Image:
    """The image that the disk is created from, held until `locks` is closed."""
    name, pool = params["image"], params["image_pool"] or params["pool"]
    path = os.path.join(run_pool_directory.directory(connection, pool, "disks"), name)
    return _Image(name, pool, files_image_lock.hold(path, locks))


def _raw_disk_files(connection: t.Any) -> frozenset[str]:
    """The files that guests of this host have as raw disks."""
    guests = libvirt_query.of_all(connection, libvirt_query.found)
    documents = [xml for guest in guests for xml in (guest.xml, guest.live_xml) if xml]
    located = functools.partial(libvirt_storage.path_in, connection)
    return frozenset(os.path.realpath(path) for xml in documents for path in xml_sources.raw_sources(xml, located))


def _uses(connection: t.Any, path: str) -> tuple[Use, ...]:
    """The guests of this host that use a file, anywhere in a backing chain."""
    found: list[Use] = []
    located, resolved = functools.partial(libvirt_storage.path_in, connection), os.path.realpath
    for guest in libvirt_query.of_all(connection, libvirt_query.found):
        live_links = xml_sources.links(guest.live_xml, located, resolved) if guest.live_xml else []
        found += plan_clone.uses(
            guest,
            [link.target for link in live_links if link.path == path],
            is_stored=any(link.path == path for link in xml_sources.links(guest.xml, located, resolved)),
            managed_state=functools.partial(libvirt_query.managed_state, connection, guest.uuid),
            forget_xml=xml_sources.without_below(guest.xml, path, located, resolved) if guest.persistent else None,
        )
    return tuple(found)


def _overlays(connection: t.Any, path: str) -> tuple[str, ...]:
    """The images of all active pools that are backed by a file."""
    volumes = map(xml_host.volume, libvirt_storage.all_volumes(connection))
    overlays = [one for one in volumes if one["backing_path"]]
    return tuple(sorted(one["path"] for one in overlays if os.path.realpath(one["backing_path"]) == path))


def _copied_bytes(base: BaseImage) -> int:
    return sum(map(free_space.allocated, base.chain))


def _info(path: str, form: str) -> plan_clone.DiskInfo:
    """The report of qemu-img; the backing file's directory is resolved, but not its name, which may be a link."""
    info = files_qemu_img.info(path, form)
    backing = info.get("full-backing-filename") or info.get("backing-filename") or None
    if backing:
        backing = os.path.join(os.path.realpath(os.path.dirname(backing)), os.path.basename(backing))
    return plan_clone.DiskInfo(info["virtual-size"], backing, snapshots=bool(info.get("snapshots")))


class _Host:
    """The `CloneHost` behind a connection."""

    kind = asked_of(files_disk.kind)
    header = asked_of(files_header.read)
    is_managed = asked_of(files_image_lock.is_managed)
    is_open = asked_of(files_disk.locked)
    allocated_bytes = asked_of(free_space.allocated)
    flat_bytes = asked_of(files_qemu_img.flat_bytes)
    info = asked_of(_info)

    def __init__(self, connection: t.Any) -> None:
        self.connection = connection

    @asked
    def chain(self, path: str) -> tuple[str, ...]:
        return tuple(files_header.chain(path))

    @asked
    def uses(self, path: str) -> tuple[Use, ...]:
        return _uses(self.connection, path)

    @asked
    def overlays(self, path: str) -> tuple[str, ...]:
        return _overlays(self.connection, path)

    @asked
    def raw_disks(self) -> frozenset[str]:
        return _raw_disk_files(self.connection)

    @asked
    def room(self, directory: str, reserve_bytes: int | None) -> FreeSpace:
        return free_space.measure(directory, reserve_bytes)


@dataclasses.dataclass
class _Work:
    """What the doers need beside their step."""

    connection: t.Any
    wanted: CloneSpec
    size_bytes: int  # of the disk afterwards
    tell: Tell
    disposal: Disposal | None = None  # of the disk that is being removed

    def progress(self, step: plan_clone_steps.CloneStep, whole: int | None = None) -> files_qemu_img.Progress:
        """Passes qemu-img's percents on as bytes, by default of the disk's size."""
        total = self.size_bytes if whole is None else whole
        return lambda percent: self.tell(step.doing, int(total * percent / 100), total)

    def do(self, step: plan_clone_steps.CloneStep) -> None:
        """Do a step with its doer."""
        _DOERS[type(step)](self, step)


def _overlay(_work: _Work, step: plan_clone_steps.Overlay) -> None:
    base = step.base
    with files_disk.new(step.path) as unfinished:
        files_qemu_img.create_overlay(unfinished, base.path, base.format, step.size_bytes)


def _copy(work: _Work, step: plan_clone_steps.Copy) -> None:
    base, wanted = step.base, work.wanted
    with files_disk.new(step.path) as unfinished:
        if not plan_clone.may_share(base, step.format) or not files_disk.reflink(base.path, unfinished):
            place = free_space.measure(wanted.directory, wanted.reserve_bytes)
            place.check(f"create disk {wanted.name}", _copied_bytes(base), wanted.directory)
            tell = work.progress(step, base.size_bytes)
            files_qemu_img.convert(base.path, unfinished, from_format=base.format, to_format=step.format, progress=tell)
        if resize := step.resize(unfinished):
            work.do(resize)


def _look_at_guest(work: _Work, step: plan_clone_steps.Forget) -> None:
    """Check that the guest is still defined as it was read: reading the disks took its time."""
    found = libvirt_query.stored(work.connection, step.uuid)
    plan_clone.check_as_read(step, found.xml if found and found.persistent else None)


def _rebase(work: _Work, step: plan_clone_steps.RebaseDisk) -> None:
    base = step.base
    files_qemu_img.rebase(step.path, base.path, base_format=base.format, progress=work.progress(step))


def _pull(work: _Work, step: plan_clone_steps.Pull) -> None:
    tell = functools.partial(work.tell, step.doing)
    libvirt_blockjob.pull(
        work.connection, step.uuid, step.target, timeout_s=step.timeout_s, progress=tell, armed=timer.armed
    )


def _look(work: _Work, step: plan_clone_steps.Remove) -> contextlib.AbstractContextManager[None] | None:
    """Look at the disk to remove; None for a hidden leftover of an interrupted run, which is nobody's."""
    if step.path != work.wanted.path:
        return None
    work.disposal = Disposal(work.connection, step.path, "", "")
    return work.disposal.look()


def _remove(work: _Work, step: plan_clone_steps.Remove) -> None:
    if work.disposal:
        work.disposal.act()
        work.disposal = None
        return
    durable.remove(step.path)
    durable.fsync(os.path.dirname(step.path))


_DOERS: dict[type[plan_clone_steps.CloneStep], t.Callable[[_Work, t.Any], object]] = {
    plan_clone_steps.Overlay: _overlay,
    plan_clone_steps.Copy: _copy,
    plan_clone_steps.Grow: lambda _work, step: files_qemu_img.resize(step.path, step.format, step.size_bytes),
    plan_clone_steps.Shrink: lambda _work, step: files_qemu_img.resize(
        step.path, step.format, step.size_bytes, shrink=True
    ),
    plan_clone_steps.GrowLive: lambda work, step: libvirt_blockjob.grow(
        libvirt_query.by_uuid(work.connection, step.uuid), step.target, step.size_bytes
    ),
    plan_clone_steps.Forget: Looked(
        _look_at_guest, lambda work, step: definition.define(work.connection, step.guest, step.xml)
    ),
    plan_clone_steps.RebaseDisk: _rebase,
    plan_clone_steps.Flatten: lambda work, step: files_qemu_img.rebase(step.path, None, progress=work.progress(step)),
    plan_clone_steps.Pull: _pull,
    plan_clone_steps.Remove: Looked(_look, _remove),
}
