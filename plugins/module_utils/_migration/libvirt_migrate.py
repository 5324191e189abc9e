# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out a migration: one libvirt call, watched. Its outcome is judged elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition, host_memory, states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import SavedSnapshot

# What is asked of both ends of a migration before it begins: read-only, in plain values.


def endpoint_facts(connection: Connection) -> dict[str, t.Any]:
    """Versions (9000000 is 9.0.0), free memory, and network interfaces (None if unknown) of a host."""
    with explained("read", connection.getURI()):
        return {
            "libvirt_version": connection.getLibVersion(),
            "qemu_version": connection.getVersion(),
            "memory_free_mib": host_memory.available_and_total_kib(connection)[0] // 1024,
            "links": _links(connection),
        }


def _links(connection: Connection) -> frozenset[str] | None:
    """Names of network interfaces; None without libvirt's interface driver (Debian 13's libvirt has none)."""
    with contextlib.suppress(libvirt.libvirtError):
        return frozenset(item.name() for item in connection.listAllInterfaces())
    return None


def guest_job(domain: t.Any, targets: t.Iterable[str]) -> str:
    """The libvirt job on a running guest or its disks, as text; empty if there is none."""
    with explained("read the jobs of", domain.name()):
        if domain.jobInfo()[0] != libvirt.VIR_DOMAIN_JOB_NONE:
            return "a job"
        blocks = [target for target in targets if domain.blockJobInfo(target)]
    return f"a block job on {', '.join(blocks)}" if blocks else ""


def cpu_incompatibility(
    connection: Connection, *, arch: str, machine: str | None, virt_type: str, cpu: str
) -> str | None:
    """Why a host cannot provide this CPU to a guest, or None; libvirt compares feature by feature."""
    flags = libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE
    try:
        answer = connection.compareHypervisorCPU(None, arch, machine, virt_type, cpu, flags)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_CPU_INCOMPATIBLE:
            return error.get_error_message().partition(": ")[2] or str(error)
        return None  # it cannot compare; QEMU then says whether it fits
    return "its processor lacks features" if answer == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE else None


_TICK_S = 0.1
_ASK_S, _CUT_AFTER_S = 1, 5
_MEND_S = 130  # TCP tries again every two minutes, at the latest
_REMOVE_S = 15
_END_S = 60  # an aborted job that has not ended by then is left to the next run

Disks = dict[str, tuple[int, int]]
# Seconds, libvirt's figures, and of each disk that is being copied the bytes gone through and in all -> what is done
# (`verb`, `value`).
Tick = t.Callable[[float, t.Mapping[str, t.Any], Disks], t.Sequence[t.Any]]
Cut = t.Callable[[], None]


class _Begun:
    """A migration started here: one libvirt call in a thread."""

    def __init__(self, domain: t.Any, dest_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any]) -> None:
        self.error: str | None = None
        value = 0
        for flag in flags:
            value |= getattr(libvirt, f"VIR_MIGRATE_{flag}")

        def call() -> None:
            try:
                domain.migrateToURI3(dest_uri, dict(parameters), value)
            except libvirt.libvirtError as error:
                self.error = error.get_error_message() or str(error)

        self._worker = threading.Thread(target=call, daemon=True)
        self._worker.start()

    def goes_on(self) -> bool:
        """True if the call is still running after a moment."""
        self._worker.join(_TICK_S)
        return self._worker.is_alive()


class _Followed:
    """A migration job that a killed run began. A broken post-copy stays a job until somebody resumes it."""

    error: str | None = None  # nobody hears it

    def __init__(self, domain: t.Any) -> None:
        self._domain, self._unbroken_s = domain, time.monotonic()  # when it was last seen to go on by itself

    def goes_on(self) -> bool:
        """True if the job is still active after a moment."""
        time.sleep(_TICK_S)
        if not _broken(self._domain):
            self._unbroken_s = time.monotonic()
        return time.monotonic() - self._unbroken_s < _MEND_S and _active(self._domain)


def run(
    domain: t.Any, dest_uri: str, flags: t.Sequence[str], parameters: t.Mapping[str, t.Any], tick: Tick, cut: Cut
) -> tuple[str | None, float]:
    """Migrate with libvirt's flags and parameters by name, to the end. Returns libvirt's error and the seconds; the
    caller must inspect both hosts.

    If a job is active already, begun by a killed run, it is followed instead. `cut` closes the connections of a job
    that does not abort.
    """
    driver = _Followed(domain) if _active(domain) else _Begun(domain, dest_uri, flags, parameters)
    return _watched(domain, driver, parameters.get("migrate_disks", ()), tick, cut)


def follow(domain: t.Any, tick: Tick, cut: Cut) -> tuple[str | None, float]:
    """As `run`, but begins nothing: follow the job that a killed run began, which may have ended by now."""
    return _watched(domain, _Followed(domain), (), tick, cut)


def _watched(
    domain: t.Any, driver: _Begun | _Followed, targets: t.Iterable[str], tick: Tick, cut: Cut
) -> tuple[str | None, float]:
    began, over, ended = time.monotonic(), threading.Event(), 0.0  # when the end was asked for
    while driver.goes_on() and not (ended and time.monotonic() - ended > _END_S):
        if ended:
            continue
        figures = _figures(domain)
        disks = _disks(domain, targets) if figures else {}
        for action in tick(time.monotonic() - began, figures, disks):
            if action.verb == "abort":
                ended = time.monotonic()
                _end(domain, cut, over)
            else:
                _take(domain, action)
    over.set()
    return driver.error, round(time.monotonic() - began, 2)


def _end(domain: t.Any, cut: Cut, over: threading.Event) -> None:
    """Ask libvirt to abort the job until it is `over`, in threads: the job may not have begun, or may wait for a silent
    host and block the caller too.
    """

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(libvirt.libvirtError):
                if not _postcopy(domain):  # there the guest runs on the other side already, and would be lost
                    domain.abortJob()
            over.wait(_ASK_S)

    def insist() -> None:
        while not over.wait(_CUT_AFTER_S):
            if _postcopy(domain) is False:
                cut()

    for body in (ask, insist):
        threading.Thread(target=body, daemon=True).start()


def _postcopy(domain: t.Any) -> bool | None:
    """True if the guest runs on the destination before all its memory is there; None if unknown.

    The query does not wait for the job.
    """
    with contextlib.suppress(libvirt.libvirtError):
        return _word(*domain.state()) == "postcopy"
    return None


def _broken(domain: t.Any) -> bool:
    """True if the guest is in a post-copy migration that failed."""
    with contextlib.suppress(libvirt.libvirtError):
        return bool(domain.state() == [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED])
    return False


def _active(domain: t.Any) -> bool:
    """True if the guest is leaving; a backup, a save or a snapshot of it is a job, too, and none of a migration."""
    leaves = libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT
    try:
        job = domain.jobStats()
        return bool(job.get("type")) and job.get("operation", leaves) == leaves
    except libvirt.libvirtError as error:
        # it is busy; or it is off or gone: no job
        return bool(error.get_error_code() == libvirt.VIR_ERR_OPERATION_TIMEOUT)


def _figures(domain: t.Any) -> dict[str, t.Any]:
    """libvirt's statistics of the job; empty if there is no job."""
    try:
        figures = domain.jobStats()
    except libvirt.libvirtError:
        return {}
    return t.cast("dict[str, t.Any]", figures) if figures.get("type") else {}


def _disks(domain: t.Any, targets: t.Iterable[str]) -> Disks:
    """Bytes copied and bytes in total of each disk that is being copied; empty before and after."""
    with contextlib.suppress(libvirt.libvirtError):
        jobs = {target: domain.blockJobInfo(target) for target in targets}
        return {target: (job["cur"], job["end"]) for target, job in jobs.items() if job}
    return {}


def _take(domain: t.Any, action: t.Any) -> None:
    """Apply one measure. Errors are ignored, as the job may have ended meanwhile: its end tells."""
    with contextlib.suppress(libvirt.libvirtError):
        if action.verb == "downtime":
            domain.migrateSetMaxDowntime(action.value)
        elif action.verb == "postcopy":
            domain.migrateStartPostCopy()
        elif action.verb == "suspend":
            domain.suspend()


def paused_by_owner(domain: t.Any) -> bool | None:
    """True if somebody suspended the guest, or it waits for something; False if it runs.

    None if a migration holds it, or if that is unknown.
    """
    migration = (
        libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        libvirt.VIR_DOMAIN_PAUSED_POSTCOPY,
        libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED,
        libvirt.VIR_DOMAIN_PAUSED_STARTING_UP,
        # QEMU stood still when a daemon that was started anew looked; an owner's pause has a reason
        libvirt.VIR_DOMAIN_PAUSED_UNKNOWN,
    )
    with contextlib.suppress(libvirt.libvirtError):
        code, reason = domain.state()
        if code == libvirt.VIR_DOMAIN_PAUSED:
            return None if reason in migration else True
        if code in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED):
            return False
    return None


def abort(connection: Connection, uuid: str, cut: Cut) -> None:
    """Abort the guest's migration; if that hangs (a copy to a silent host), cut its connections."""
    domain, begun, over = libvirt_query.by_uuid(connection, uuid), time.monotonic(), threading.Event()
    _end(domain, cut, over)
    while _active(domain) and not _postcopy(domain) and time.monotonic() - begun < _END_S:
        time.sleep(_TICK_S)
    over.set()


def measure_dirtying(domain: t.Any) -> None:
    """Start to measure, for one second, how much memory the guest writes.

    No effect with libvirt before 7.2 and with other hypervisors.
    """
    with contextlib.suppress(libvirt.libvirtError, AttributeError):
        domain.startDirtyRateCalc(1, 0)


def dirty_mib_s(connection: Connection, domain: t.Any) -> int | None:
    """The measured rate at which the guest writes memory, in MiB/s; None if there is none (yet)."""
    with contextlib.suppress(libvirt.libvirtError, AttributeError):
        _domain, figures = connection.domainListGetStats([domain], libvirt.VIR_DOMAIN_STATS_DIRTYRATE)[0]
        if figures.get("dirtyrate.calc_status") == libvirt.VIR_DOMAIN_DIRTYRATE_MEASURED:
            return int(figures["dirtyrate.megabytes_per_second"])
    return None


def completed(connection: Connection, uuid: str) -> dict[str, t.Any]:
    """libvirt's statistics of the finished migration, which stay on the destination."""
    try:
        found = connection.lookupByUUIDString(uuid).jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)
    except libvirt.libvirtError:
        return {}
    fields = {"downtime_ms": "downtime", "memory_bytes": "memory_processed"}
    return {key: found[field] for key, field in fields.items() if field in found}


def job_active(connection: Connection | None, uuid: str) -> bool:
    """True if libvirt migrates the guest away, or is busy with it; False if it is absent, or without a connection.

    Raises Failed.
    """
    if connection is None:
        return False
    with contextlib.suppress(NotFound), explained("find the job of guest", uuid):
        return _active(connection.lookupByUUIDString(uuid))
    return False


def _word(code: int, reason: int) -> str:
    """The state as a word, refined: incoming while it arrives, postcopy if it left before its memory, migrated after
    that, crashed if QEMU ended by itself.
    """
    more = {
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION): "incoming",
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY): "postcopy",
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED): "postcopy",
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED): "migrated",
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED): "crashed",
    }
    return more.get((code, reason)) or states.word(code)


def has_all_memory(connection: Connection, uuid: str) -> bool:
    """True if the guest runs on the destination of a completed post-copy while the source is still in post-copy.

    libvirt sets this reason when QEMU has completed the migration, and not before. Later the owner can change it.
    """
    migrated = [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]
    with contextlib.suppress(libvirt.libvirtError):
        return bool(connection.lookupByUUIDString(uuid).state() == migrated)
    return False


def runs_whole(connection: Connection, uuid: str) -> bool:
    """True if the guest runs, and no part of its memory is on another host (post-copy)."""
    in_part = (
        libvirt.VIR_DOMAIN_RUNNING_POSTCOPY,
        getattr(libvirt, "VIR_DOMAIN_RUNNING_POSTCOPY_FAILED", None),  # libvirt 8.5
    )
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained("read the state of", domain.name()):
        code, reason = domain.state()
    return code == libvirt.VIR_DOMAIN_RUNNING and reason not in in_part


def state_there(
    connection: Connection | None, uuid: str, *, reserved: t.Callable[[str], bool] = lambda _xml: False
) -> str:
    """A state of `_word`, or absent, unreachable, or reserved if `reserved` returns True for a guest that is off.

    A guest of the same name with another UUID is another guest: this one is then absent.
    """
    if connection is None:
        return "unreachable"
    try:
        domain = connection.lookupByUUIDString(uuid)
        word = _word(*domain.state())
        off = word in ("shutdown", "crashed", "migrated") and domain.isPersistent()
        return "reserved" if off and reserved(domain.XMLDesc()) else word
    except libvirt.libvirtError as error:
        return "absent" if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN else "unreachable"


def resume(connection: Connection, uuid: str) -> None:
    """Resume the vCPUs; no error if the guest runs already: a restarted libvirt may have resumed it by itself."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained("resume", domain.name()):
        try:
            domain.resume()
        except libvirt.libvirtError:
            if domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
                raise


def touch(connection: Connection, uuid: str, target: str) -> None:
    """Let QEMU set the length of a disk's file to its current length, which changes only the file's time."""
    domain = libvirt_query.by_uuid(connection, uuid)
    with explained("look at disk", f"{target} of {domain.name()}"):
        size_bytes = domain.blockInfo(target)[0]
        domain.blockResize(target, size_bytes, libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES)


def synchronise_clock(connection: Connection, uuid: str, has_agent: t.Callable[[str], bool]) -> None:
    """Let the guest agent set the guest's clock, which stood still during the migration.

    No effect unless `has_agent` returns True for the guest's XML.
    """
    domain = libvirt_query.by_uuid(connection, uuid)
    with contextlib.suppress(libvirt.libvirtError):
        if has_agent(domain.XMLDesc()):
            domain.setTime(flags=libvirt.VIR_DOMAIN_TIME_SYNC)


def discard(connection: Connection, uuid: str, kept: t.Collection[str] = ()) -> None:
    """Remove a dead copy of a guest: process and definition, never its storage, nor the `kept` kinds of state; raises
    Failed if it runs.

    libvirt may be removing it at the same time, and then refuses: it is asked again until nothing is left.
    """
    deadline = time.monotonic() + _REMOVE_S
    while True:
        try:
            domain = libvirt_query.by_uuid(connection, uuid)
            _remove(domain, kept)
        except NotFound:
            return
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return
            if time.monotonic() > deadline or not connection.isAlive():
                with explained("remove the copy of", domain.name()):
                    raise
        else:
            return
        time.sleep(_TICK_S)


def _remove(domain: t.Any, kept: t.Collection[str]) -> None:
    if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
        raise Failed(f"cannot remove the copy of {domain.name()}: it is running now, so it is not dead; run again")
    if domain.isActive():
        domain.destroy()
    flags = definition.undefine_flags(domain, ("keep_nvram", "snapshots", *kept))
    domain.undefineFlags(flags)  # a transient one went with its process


def saved_snapshots(domain: t.Any) -> tuple[SavedSnapshot, ...]:
    """The snapshots of a guest, parents first."""
    with contextlib.suppress(Unsupported), explained("read the snapshots of guest", domain.name()):
        return tuple(
            SavedSnapshot(
                one.getName(), one.getXMLDesc(libvirt.VIR_DOMAIN_SNAPSHOT_XML_SECURE), current=bool(one.isCurrent())
            )
            for one in domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)
        )
    return ()


def define_snapshots(domain: t.Any, snapshots: t.Iterable[SavedSnapshot]) -> None:
    """Define snapshots, parents first, whose files exist, or will."""
    for one in snapshots:
        flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
        with explained(f"define snapshot {one.name} of guest", domain.name()):
            domain.snapshotCreateXML(one.xml, flags | (libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT * one.current))


def forget_checkpoints(domain: t.Any, names: t.Collection[str]) -> None:
    """Remove libvirt's metadata of checkpoints, children first; bitmaps stay in the disks."""
    with explained("remove the metadata of the checkpoints of guest", domain.name()):
        for one in reversed(domain.listAllCheckpoints(libvirt.VIR_DOMAIN_CHECKPOINT_LIST_TOPOLOGICAL)):
            if one.getName() in names:
                one.delete(libvirt.VIR_DOMAIN_CHECKPOINT_DELETE_METADATA_ONLY)


def forget_snapshots(domain: t.Any) -> None:
    """Remove libvirt's metadata of all snapshots, children first."""
    with explained("remove the metadata of the snapshots of guest", domain.name()):
        for one in reversed(domain.listAllSnapshots(libvirt.VIR_DOMAIN_SNAPSHOT_LIST_TOPOLOGICAL)):
            one.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
