# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send a running guest: one libvirt call, watched; then both hosts are observed, and the right action is taken."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query, xml_host_bindings
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    plan_migrate,
    plan_outcome,
    run_copy_offline,
    run_migration_files,
    run_reconcile,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import COPY, Move
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_convergence import (
    Action,
    Disks,
    Watch,
    has_lagging_clock,
    progress,
    sent_bytes,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Progress

_INTERRUPTED = "it was interrupted"
_TWIN = "somebody defined a guest with its UUID and name on {} in the meantime"
_TWIN_S = 0.5


def send(endpoints: Endpoints, move: Move, tell: Progress, interrupted: t.Callable[[], bool]) -> dict[str, t.Any]:
    """Send the guest paused, observe both hosts, and act. Returns figures.

    Raises Failed if it did not arrive.
    """
    run_migration_files.opened(endpoints, move.uuid, [disk.dest_path for disk in move.disks if disk.how == COPY])
    paused = threading.Event()  # its owner may suspend it, or let it run, on the way
    if move.paused:
        paused.set()
    with _handed_over(endpoints.or_none("dest"), move, paused):
        seen, error, seconds = watch(endpoints, move, tell, interrupted, paused)
    reason = seen.why or plan_migrate.remedy(error or "libvirt gave no reason")
    try:
        verdict = run_reconcile.reconcile(endpoints, dataclasses.replace(move, paused=paused.is_set()))
    except VirtError as unsettled:
        if error is None and not seen.why:  # it arrived; what is wrong came after that
            raise
        raise plan_outcome.unsettled(move.guest, move.dest, reason, unsettled) from unsettled
    left = run_reconcile.try_clean_up(endpoints, move.uuid) if verdict.end == plan_outcome.STAYED else []
    plan_outcome.check_arrived(verdict, move.guest, move.dest, reason, left)
    return {"seconds": seconds, **_figures(endpoints.or_none("dest"), move, seen)}


def resolve(endpoints: Endpoints, move: Move, tell: Progress, interrupted: t.Callable[[], bool]) -> list[str]:
    """Bring a migration that an earlier run began to its end; returns which files stay, and why.

    Raises Failed.
    """
    if libvirt_migrate.job_active(endpoints.source, move.uuid):
        watch(endpoints, move, tell, interrupted, follow=True)
    seen = run_reconcile.reconcile(endpoints, move, again=True)
    plan_outcome.check_reconciled(seen, move.guest, move.dest)
    return run_reconcile.clean_up(endpoints, move.uuid) if seen.end == plan_outcome.STAYED else []


def _figures(dest: t.Any, move: Move, seen: Watch) -> dict[str, t.Any]:
    """The figures of a guest that arrived; sets its clock if it lags."""
    completed = libvirt_migrate.completed(dest, move.uuid) if dest else {}
    if dest and has_lagging_clock(completed):
        libvirt_migrate.synchronise_clock(dest, move.uuid, xml_host_bindings.has_agent)
    return {**seen.figures(), **completed, **sent_bytes(move.disks, seen.disks, completed)}


def watch(
    endpoints: Endpoints,
    move: Move,
    tell: Progress,
    interrupted: t.Callable[[], bool],
    paused: threading.Event | None = None,
    *,
    follow: bool = False,
) -> tuple[Watch, str | None, float]:
    """Migrate, or follow an active migration, to its end: what was seen, libvirt's error, and seconds. With `follow`,
    no migration begins if none is active any more.

    `paused` is set afterwards if the guest was paused at the end by others than the migration.
    """
    domain, (flags, parameters) = libvirt_query.by_uuid(endpoints.source, move.uuid), plan_migrate.migrate_flags(move)
    if move.firmware or move.renamed:
        running = xml_host_bindings.with_firmware(definition.portable(domain, live=True), dict(move.firmware))
        parameters["destination_xml"] = xml_host_bindings.with_disks(running, move.renamed)
    seen, twin = Watch(move.tuning), _TwinWatch(endpoints, move)

    def tick(seconds: float, figures: t.Mapping[str, t.Any], disks: Disks) -> list[Action]:
        now = libvirt_migrate.paused_by_owner(domain) if paused and not seen.suspends else None
        if paused and now is not None:
            (paused.set if now else paused.clear)()
        broken = _INTERRUPTED if interrupted() else _lost(endpoints, move) or twin.seen(seconds)
        actions = seen.tick(seconds, figures, disks, broken=broken, answers=not endpoints.broken("dest"))
        shown = progress(figures, seen.disks)
        if shown:
            tell(*shown)
        return actions

    cut = functools.partial(_cut, move.guest)
    if follow:
        return seen, *libvirt_migrate.follow(domain, tick, cut)
    return seen, *libvirt_migrate.run(domain, move.dest_uri, flags, parameters, tick, cut)


def abort(endpoints: Endpoints, move: Move) -> None:
    """End the migration that another run watches; raises Refused if it is too late for that."""
    libvirt_migrate.abort(endpoints.source, move.uuid, functools.partial(_cut, move.guest))
    plan_outcome.check_abort(move.guest, libvirt_migrate.state_there(endpoints.source, move.uuid))


@contextlib.contextmanager
def _handed_over(dest: t.Any, move: Move, paused: threading.Event) -> t.Iterator[None]:
    """Meanwhile, resume the guest on the destination as soon as it ended here for good, before libvirt reports it."""
    over = threading.Event()

    def hand_over() -> None:
        if (
            files_qemu.handed_over(move.guest, over.is_set)
            and not paused.is_set()
            and libvirt_migrate.state_there(dest, move.uuid) == "paused"
        ):
            with contextlib.suppress(VirtError):  # who looks at both ends does it then
                run_reconcile.resume_guest(dest, move.uuid)

    worker = threading.Thread(target=hand_over, daemon=True)
    if not (move.paused or plan_migrate.may_switch(move)):
        worker.start()
    try:
        yield
    finally:
        over.set()
        if worker.ident:
            worker.join()


def _lost(endpoints: Endpoints, move: Move) -> str:
    """Why the migration must end: the destination is silent, and a disk copy to it would hang for minutes with its job;
    empty if it answers.

    Post-copy must wait.
    """
    lost = endpoints.broken("dest") and not plan_migrate.may_switch(move) and endpoints.or_none("dest") is None
    return f"{move.dest} no longer answers" if lost else ""


class _TwinWatch:
    """Checks now and then that the definition that reserves the guest's place on the destination is still there:
    libvirt lets anybody replace it, and would replace theirs when the guest arrives.
    """

    def __init__(self, endpoints: Endpoints, move: Move) -> None:
        self._endpoints, self._move, self._next_s = endpoints, move, 0.0

    def seen(self, seconds: float) -> str:
        """Why the migration must end; empty if nothing is wrong."""
        if seconds < self._next_s or self._endpoints.broken("dest"):
            return ""
        self._next_s = seconds + _TWIN_S
        try:
            reserved = run_copy_offline.is_reserved(self._endpoints.dest, self._move.uuid)
        except VirtError:  # its connection broke: the next look tells
            return ""
        return "" if reserved else _TWIN.format(self._move.dest)


def _cut(name: str) -> None:
    files_migration.cut_connections(files_qemu.PID_FILE.format(name))
