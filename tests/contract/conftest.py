"""A host for each test: libvirt's own test driver, prepared from a file; nothing of it outlives the connection."""

from __future__ import annotations

import dataclasses
import struct
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    files_migration,
    libvirt_migrate,
    run_endpoints,
    run_reconcile,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, two_hosts
from ansible_collections.corral.virt.tests.golden.case import HOST_URI

QCOW2 = struct.pack(">4sI", b"QFI\xfb", 3).ljust(100, b"\0") + struct.pack(">III", 104, 0, 0)
FACTS = {
    "libvirt_version": 9_000_000,
    "qemu_version": 7_002_000,
    "memory_free_mib": 4096,
    "links": None,
}


@pytest.fixture
def connection() -> t.Iterator[t.Any]:
    """A hypervisor with one pool (default), one network (lan) and no guests."""
    with opened(HOST_URI, events=True) as opened_connection:
        yield opened_connection


@pytest.fixture(autouse=True)
def first_bytes(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The first bytes of volumes, by name: the test driver has no streams."""
    known: dict[str, bytes] = {}

    def read_part(_connection: object, _pool: str, name: str, _offset: int, length: int) -> bytes:
        return known.get(name, QCOW2).ljust(length, b"\0")[:length]

    monkeypatch.setattr(libvirt_storage, "read_part", read_part)
    write = libvirt_storage.write

    def written(connection: t.Any, pool: str, name: str, data: bytes) -> None:
        if not data.startswith(QCOW2[:4]):
            write(connection, pool, name, data)
        known[name] = data

    monkeypatch.setattr(libvirt_storage, "write", written)
    return known


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> t.Iterator[tuple[Host, Host]]:
    """Source and destination of a move; nobody waits, and what the test driver cannot tell is told."""
    monkeypatch.setattr(run_reconcile, "_PATIENCE_S", 0)
    monkeypatch.setattr(libvirt_migrate, "_REMOVE_S", 0, raising=False)
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "private"))
    monkeypatch.setattr(libvirt_migrate, "endpoint_facts", lambda _connection: FACTS)
    monkeypatch.setattr(libvirt_migrate, "guest_job", lambda _domain, _targets: "")
    monkeypatch.setattr(files_migration, "filtered_ports", lambda _dest: None)
    host = run_endpoints.host
    monkeypatch.setattr(
        run_endpoints, "host", lambda connection: dataclasses.replace(host(connection), uuid=connection.uuid)
    )
    monkeypatch.setattr(run_endpoints, "identity", lambda connection: (connection.uuid, "hyper"))
    yield from two_hosts()
