# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow a host over one open, read-only connection: events of its guests, and changing figures."""

from __future__ import annotations

import contextlib
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._libvirt import host_memory, states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import (
    Connection,
    explained,
    libvirt,
    listen,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_EVENTS = ("LIFECYCLE", "REBOOT", "METADATA_CHANGE", "DEVICE_ADDED", "DEVICE_REMOVED", "BALLOON_CHANGE")
_VCPU_TIME = re.compile(r"vcpu\.\d+\.time")
_JOB = ("data_processed", "data_total", "memory_processed", "memory_total", "memory_bps", "memory_iteration")


class Figures(t.NamedTuple):
    """Figures of one guest. Its processor time is the sum of all its processors."""

    domain: t.Any
    uuid: str
    state: str
    vcpus: int
    memory_kib: int
    memory_used_kib: int | None  # None where the guest does not run, or has no balloon driver that reports
    cpu_ns: int | None


class Counters(t.NamedTuple):
    """A guest's usage since its start, in bytes and nanoseconds."""

    uuid: str
    cpu_ns: int | None
    vcpus: int
    read: int
    written: int
    received: int
    sent: int


@contextlib.contextmanager
def subscribed(connection: Connection, changed: t.Callable[[str], None]) -> t.Iterator[None]:
    """Call `changed` with a guest's UUID for each of its events, from another thread, inside a `with` block.

    The connection must have been opened with `events`.
    """

    def of_domain(_connection: t.Any, domain: t.Any, *_details: t.Any) -> None:
        changed(domain.UUIDString())

    registered = []
    listen()
    try:
        for name in _EVENTS:
            with contextlib.suppress(libvirt.libvirtError):  # not every driver has every event
                number = getattr(libvirt, f"VIR_DOMAIN_EVENT_ID_{name}")
                registered.append(connection.domainEventRegisterAny(None, number, of_domain, None))
        yield
    finally:
        for number in registered:
            with contextlib.suppress(libvirt.libvirtError):  # the connection may be broken
                connection.domainEventDeregisterAny(number)


def figures(connection: Connection) -> list[Figures]:
    """Figures of all guests, in one call that waits for no guest."""
    kinds = (
        libvirt.VIR_DOMAIN_STATS_STATE
        | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_BALLOON
        | libvirt.VIR_DOMAIN_STATS_VCPU
    )
    flags = _nowait(connection)
    with explained("read the guests of", connection.getURI()):
        return [_figures(domain, found) for domain, found in connection.getAllDomainStats(kinds, flags)]


def counters(connection: Connection) -> list[Counters]:
    """Counters of all running guests, in one call that waits for no guest."""
    kinds = (
        libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
        | libvirt.VIR_DOMAIN_STATS_VCPU
        | libvirt.VIR_DOMAIN_STATS_BLOCK
        | libvirt.VIR_DOMAIN_STATS_INTERFACE
    )
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | _nowait(connection)
    with explained("read the guests of", connection.getURI()):
        return [
            Counters(
                domain.UUIDString(),
                _cpu_ns(found),
                found.get("vcpu.current", 0),
                _sum(found, "block", "rd.bytes"),
                _sum(found, "block", "wr.bytes"),
                _sum(found, "net", "rx.bytes"),
                _sum(found, "net", "tx.bytes"),
            )
            for domain, found in connection.getAllDomainStats(kinds, flags)
        ]


def _sum(found: t.Mapping[str, t.Any], device: str, figure: str) -> int:
    """The sum of a figure over the listed devices: a host may report a count far above what it lists."""
    return sum(value for name, value in found.items() if name.startswith(f"{device}.") and name.endswith(f".{figure}"))


def _nowait(connection: Connection) -> int:
    """The NOWAIT flag if the driver is QEMU's, which alone knows it; else 0."""
    return libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT if connection.getType() == "QEMU" else 0


def job(domain: t.Any, targets: t.Iterable[str] = ()) -> dict[str, t.Any] | None:
    """The progress of the guest's migration and of its disks; None without a job of known size.

    A guest that is gone meanwhile has no job.
    """
    try:
        found = domain.jobStats()
        if not found.get("type") or "memory_total" not in found:
            return None
        copied = {target: domain.blockJobInfo(target) for target in targets}
    except libvirt.libvirtError:
        return None
    disks = {target: [each["cur"], each["end"]] for target, each in copied.items() if each and each["end"]}
    return {**{name: found.get(name, 0) for name in _JOB}, "disks": disks}


def targets(domain: t.Any) -> tuple[str, ...]:
    """Targets of the guest's disks. Raises NotFound."""
    with explained("read guest", domain.name()):
        return tuple(stdlib_reader.targets(domain.XMLDesc()))


def _figures(domain: t.Any, found: t.Mapping[str, t.Any]) -> Figures:
    usable, available = found.get("balloon.usable"), found.get("balloon.available")
    return Figures(
        domain=domain,
        uuid=domain.UUIDString(),
        state=states.word(found["state.state"]),
        vcpus=found.get("vcpu.current", 0),
        memory_kib=found.get("balloon.current") or found.get("balloon.maximum", 0),
        memory_used_kib=available - usable if usable is not None and available is not None else None,
        cpu_ns=_cpu_ns(found),
    )


def _cpu_ns(found: t.Mapping[str, t.Any]) -> int | None:
    """CPU time of QEMU; of the vCPUs alone if the host does not account for more. None if unknown."""
    times = [value for name, value in found.items() if _VCPU_TIME.fullmatch(name)]
    return t.cast("int | None", found.get("cpu.time", sum(times) if times else None))


def card(domain: t.Any) -> dict[str, t.Any]:
    """Facts of a guest that rarely change: name, title, size, autostart, and our record.

    Raises NotFound.
    """
    with explained("read guest", domain.name()):
        persistent = bool(domain.isPersistent())
        _state, maximum_kib, memory_kib, vcpus, _time = domain.info()
        return {
            "name": domain.name(),
            "title": _title(domain),
            "vcpus": vcpus,
            "memory_mib": memory_kib // 1024,
            "maximum_mib": maximum_kib // 1024,
            "persistent": persistent,
            "autostart": bool(persistent and domain.autostart()),
            "record": states.record(domain),
        }


def _title(domain: t.Any) -> str:
    try:
        return t.cast(str, domain.metadata(libvirt.VIR_DOMAIN_METADATA_TITLE, None))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN_METADATA:
            return ""
        raise


def host_cpu_ns(connection: Connection) -> tuple[int, int] | None:
    """Busy and total time of the host's processors since its start; None if the driver does not report it."""
    with contextlib.suppress(libvirt.libvirtError):
        times = connection.getCPUStats(libvirt.VIR_NODE_CPU_STATS_ALL_CPUS)
        busy = times.get("kernel", 0) + times.get("user", 0)
        return busy, busy + times.get("idle", 0) + times.get("iowait", 0)
    return None


def host_memory_kib(connection: Connection) -> tuple[int, int] | None:
    """Used and total memory of the host; None if the driver does not report it."""
    with contextlib.suppress(libvirt.libvirtError):
        available, total = host_memory.available_and_total_kib(connection)
        return total - available, total
    return None
