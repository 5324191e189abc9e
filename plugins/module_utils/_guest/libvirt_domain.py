# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out the steps on a guest: one verb each, no choices."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Timeout
from ansible_collections.corral.virt.plugins.module_utils._core.units import cpus_of
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, libvirt_wait
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_blockjob, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

_DETACH_S, _BALLOON_S = 20, 5


def do(
    connection: Connection,
    uuid: str,
    step: plan_guest_steps.GuestStep,
    before_force: t.Callable[[], None] | None = None,
) -> object:
    """Do one step on the guest with this UUID, never on another guest that has its name by now.

    `before_force` is called before a guest is forced off, and may raise to forbid that.
    """
    if type(step) in _ON_HOST:
        return _ON_HOST[type(step)](connection, step)
    with explained("find guest", f"{step.guest} ({uuid})"):
        domain = connection.lookupByUUIDString(uuid)
    forcing = () if before_force is None or type(step) not in libvirt_power.FORCING else (before_force,)
    return _ON_GUEST[type(step)](domain, step, *forcing)


def _rename(domain: t.Any, step: plan_guest_steps.Rename) -> None:
    with explained("rename", f"{step.guest} to {step.to}"):
        domain.rename(step.to, 0)


def _attach(domain: t.Any, step: plan_guest_steps.Attach) -> None:
    with explained("attach", f"{step.what} to {step.guest}"):
        domain.attachDeviceFlags(step.xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _detach(domain: t.Any, step: plan_guest_steps.Detach) -> None:
    """Ask the guest to release the device, and wait until it does; raises Timeout."""
    alias = stdlib_reader.alias(step.xml)
    with (
        explained("detach", f"{step.what} from {step.guest}"),
        libvirt_wait.removal(domain.connect(), domain, alias=alias) as gone,
    ):
        domain.detachDeviceFlags(step.xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        answered = gone(_DETACH_S)
    if not answered:
        raise Timeout(
            f"cannot detach {step.what} from {step.guest}: the guest did not release it within {_DETACH_S} s; it may "
            "still be booting or using it. It is removed from the definition, so it is gone at the next boot"
        )


def _set_vcpus(domain: t.Any, step: plan_guest_steps.SetVcpus) -> None:
    with explained("set vcpus of", step.guest):
        domain.setVcpusFlags(step.count, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _set_memory(domain: t.Any, step: plan_guest_steps.SetMemory) -> None:
    """Set the balloon; if the guest does not follow in time, store `step.record`."""
    with explained("set memory of", step.guest), libvirt_wait.balloon(domain.connect(), domain, kib=step.kib) as moved:
        domain.setMemoryFlags(step.kib, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        if not moved(_BALLOON_S) and step.record:
            flags = libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_AFFECT_CONFIG
            definition.write_metadata(domain, step.record, flags)


def _set_metadata(domain: t.Any, step: plan_guest_steps.SetMetadata) -> None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained("set metadata of", step.guest):
        if step.title is not None:
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_TITLE, step.title or None, None, None, live)
        if step.description is not None:
            domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_DESCRIPTION, step.description or None, None, None, live)
        if step.osinfo is not None:
            definition.write_metadata(domain, step.osinfo, live, "libosinfo")
        if step.record:
            definition.write_metadata(domain, step.record, live)


def _update_device(domain: t.Any, step: plan_guest_steps.UpdateDevice) -> None:
    with explained("update", f"{step.what} of {step.guest}"):
        domain.updateDeviceFlags(step.xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _set_parameters(domain: t.Any, step: plan_guest_steps.SetParameters) -> None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained(f"set {step.kind} of", step.guest):
        if step.kind == "iotune":
            domain.setBlockIoTune(step.target, dict(step.values), live)
        else:
            verb = {
                "scheduler": "setSchedulerParametersFlags",
                "memory": "setMemoryParameters",
                "numa": "setNumaParameters",
            }[step.kind]
            getattr(domain, verb)(dict(step.values), live)


def _pin(domain: t.Any, step: plan_guest_steps.Pin) -> None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained(f"pin {step.kind} of", step.guest):
        cpus = cpus_of(step.cpuset)
        wanted = tuple(cpu in cpus for cpu in range(max(max(cpus) + 1, domain.connect().getCPUMap()[0])))
        if step.kind == "vcpu":
            domain.pinVcpuFlags(step.number, wanted, live)
        elif step.kind == "iothread":
            domain.pinIOThread(step.number, wanted, live)
        else:
            domain.pinEmulator(wanted, live)


def _set_iothreads(domain: t.Any, step: plan_guest_steps.SetIothreads) -> None:
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    with explained("set iothreads of", step.guest):
        for number in range(step.before + 1, step.count + 1):
            domain.addIOThread(number, live)
        for number in range(step.before, step.count, -1):
            domain.delIOThread(number, live)


def _set_lifecycle(domain: t.Any, step: plan_guest_steps.SetLifecycle) -> None:
    event = getattr(libvirt, f"VIR_DOMAIN_LIFECYCLE_{step.event.upper()}")
    action = getattr(libvirt, f"VIR_DOMAIN_LIFECYCLE_ACTION_{step.action.upper().replace('-', '_')}")
    with explained(f"set on_{step.event} of", step.guest):
        domain.setLifecycleAction(event, action, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _set_stats_period(domain: t.Any, step: plan_guest_steps.SetStatsPeriod) -> None:
    with explained("set balloon statistics of", step.guest):
        domain.setMemoryStatsPeriod(step.period_s, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def create_volume(connection: Connection, step: plan_guest_steps.CreateVolume) -> None:
    """Create a disk image; raises NotMade if it exists, unless it is to be replaced."""
    volume = step.volume
    how: dict[str, t.Any] = {
        "replace": step.replace,
        "copy_of": volume.copy_of,
        "capacity_bytes": volume.capacity_bytes,
    }
    libvirt_storage.create(connection, volume.pool, step.xml, name=volume.name, **how)


def _grow(connection: Connection, step: plan_guest_steps.GrowDisk) -> None:
    with explained("grow disk", step.path):
        connection.storageVolLookupByPath(step.path).resize(step.size_bytes)


_ON_HOST: dict[type[plan_guest_steps.GuestStep], t.Callable[[Connection, t.Any], object]] = {
    plan_guest_steps.GrowDisk: _grow,
}
_ON_GUEST: dict[type[plan_guest_steps.GuestStep], t.Callable[..., object]] = {
    **libvirt_power.DOERS,
    plan_guest_steps.Rename: _rename,
    plan_guest_steps.Attach: _attach,
    plan_guest_steps.Detach: _detach,
    plan_guest_steps.SetVcpus: _set_vcpus,
    plan_guest_steps.SetMemory: _set_memory,
    plan_guest_steps.SetMetadata: _set_metadata,
    plan_guest_steps.SetAutostart: lambda domain, step: definition.set_autostart(domain, on=step.on),
    plan_guest_steps.UpdateDevice: _update_device,
    plan_guest_steps.SetParameters: _set_parameters,
    plan_guest_steps.Pin: _pin,
    plan_guest_steps.SetIothreads: _set_iothreads,
    plan_guest_steps.SetLifecycle: _set_lifecycle,
    plan_guest_steps.SetStatsPeriod: _set_stats_period,
    plan_guest_steps.GrowRunningDisk: lambda domain, step: libvirt_blockjob.grow(domain, step.target, step.size_bytes),
    plan_guest_steps.RecordAddresses: lambda domain, step: definition.set_everywhere(domain, step.xml, "corral-seen"),
}
