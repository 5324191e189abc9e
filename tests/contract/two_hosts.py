"""Two hypervisors of libvirt's test driver, with guests in states that only a migration makes."""

from __future__ import annotations

import dataclasses
import typing as t

import libvirt

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration import run_migrate, run_migration_options
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.tests.golden.case import HOST_URI

__all__ = ["NAMESPACE", "STATES", "Host", "converge", "ends", "options", "two_hosts"]

NAMESPACE = "urn:corral:virt:guest:1"
PAUSED, SHUTOFF = libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_SHUTOFF
STATES = {
    "running": (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED),
    "complete": (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED),
    "in part": (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY),
    "in part, broken": (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED),
    "paused": (PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER),
    "stands still": (PAUSED, libvirt.VIR_DOMAIN_PAUSED_UNKNOWN),
    "incoming": (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
    "postcopy": (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY),
    "shutdown": (SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN),
    "reserved": (SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN),
    "migrated": (SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED),
    "crashed": (libvirt.VIR_DOMAIN_CRASHED, 0),
}


@dataclasses.dataclass
class Guest:
    """A virDomain that tells the state it was given until somebody changes it."""

    domain: t.Any
    told: list[int]
    real: list[int]

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.domain, name)

    def state(self) -> list[int]:
        now = t.cast("list[int]", self.domain.state())
        return self.told if now == self.real else now

    def undefineFlags(self, _flags: int) -> None:  # noqa: N802  as libvirt names it
        """The test driver knows no flags."""
        self.domain.undefine()


class Host:
    """A connection whose guests are those."""

    def __init__(self, connection: t.Any, uuid: str) -> None:
        self.connection, self.uuid = connection, uuid
        self.states: dict[str, tuple[list[int], list[int]]] = {}

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.connection, name)

    def _guest(self, domain: t.Any) -> Guest:
        state = domain.state()
        return Guest(domain, *self.states.get(domain.UUIDString(), (state, state)))

    def lookupByName(self, name: str) -> Guest:  # noqa: N802  as libvirt names it
        return self._guest(self.connection.lookupByName(name))

    def lookupByUUIDString(self, uuid: str) -> Guest:  # noqa: N802  as libvirt names it
        return self._guest(self.connection.lookupByUUIDString(uuid))

    def listAllDomains(self) -> list[Guest]:  # noqa: N802  as libvirt names it
        return [self._guest(domain) for domain in self.connection.listAllDomains()]

    def add(self, name: str, uuid: str, state: str, **memory: t.Any) -> None:
        """A guest in that state, with `of_os` in its `<os>`, and with what the collection remembers of it."""
        of_os = memory.pop("of_os", "")
        disk = "<disk type='file'><source file='/srv/web1.qcow2.arriving'/><target dev='vda'/></disk>"
        kernel = "<kernel>/.arriving</kernel>"
        domain = self.connection.defineXML(
            f"<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>65536</memory><os><type "
            f"arch='i686'>hvm</type>{kernel if state == 'reserved' else ''}{of_os}</os>"
            f"<devices>{disk if state == 'reserved' else ''}</devices></domain>"
        )
        if STATES[state][0] in (libvirt.VIR_DOMAIN_RUNNING, PAUSED):
            domain.create()
        if STATES[state][0] == PAUSED:
            domain.suspend()
        if memory:
            text = fields_record.update(domain.XMLDesc(), memory)
            for flag in (2, *([1] if domain.isActive() else [])):
                domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, text, "corral", NAMESPACE, flag)
        self.states[uuid] = (list(STATES[state]), domain.state())

    def look(self, uuid: str) -> object:
        """All that can be seen of a guest; None where there is none."""
        for domain in self.connection.listAllDomains():
            if domain.UUIDString() == uuid:
                return (
                    domain.name(),
                    domain.state(),
                    domain.autostart(),
                    domain.XMLDesc(),
                    domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE),
                )
        return None


def two_hosts() -> t.Iterator[tuple[Host, Host]]:
    """Source and destination, each with one pool and no guests."""
    with opened(HOST_URI) as source, opened(HOST_URI) as dest:
        yield Host(source, "1111"), Host(dest, "2222")


def ends(source: Host, dest: Host) -> Endpoints:
    """Both."""
    known: dict[str, t.Any] = {"here": source, "there": dest}
    return Endpoints("here", "there", known.__getitem__)


def options(**more: t.Any) -> dict[str, t.Any]:
    """Of virt_migrate."""
    result = {key: option.get("default") for key, option in run_migration_options.OPTIONS.items()}
    return {**result, "name": "web1", "dest": "hyper2", **more}


def checked(source: Host, dest: Host) -> str:
    """The same in check mode."""
    return converge(source, dest, check_mode=True)


def converge(source: Host, dest: Host, *, check_mode: bool = False, **more: t.Any) -> str:
    """A run, whatever comes of it; why it failed."""
    try:
        run_migrate.converge(ends(source, dest), options(**more), Gate(check_mode=check_mode), ProgressWatch("web1"))
    except VirtError as error:
        return str(error)
    return ""
