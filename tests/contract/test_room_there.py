"""Room for a migration: what there is now, not what libvirt saw when it last looked into the pool. Memory that is free."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._backup import libvirt_proof
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt import events, host_memory
from ansible_collections.corral.virt.plugins.module_utils._migration import libvirt_migrate
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, checked, two_hosts

IMAGES = "/var/lib/libvirt/images"
VOLUME = (
    "<volume><name>fresh.qcow2</name><capacity unit='MiB'>64</capacity><target><format type='qcow2'/></target></volume>"
)
GUEST = f"""<domain type='test'><name>web1</name><uuid>33333333-0000-0000-0000-000000000001</uuid><memory>65536</memory>
<os><type arch='i686'>hvm</type></os><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{IMAGES}/fresh.qcow2'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def hosts() -> t.Iterator[tuple[Host, Host]]:
    yield from two_hosts()


@pytest.mark.parametrize(
    ("stale", "now", "refused"), [(0, 10**12, False), (10**12, 0, True)], ids=["room was made", "room is gone"]
)
def test_it_is_what_there_is_now(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch, stale: int, now: int, refused: bool
) -> None:
    source, dest = hosts
    source.connection.storagePoolLookupByName("default").createXML(VOLUME)
    source.connection.defineXML(GUEST)
    monkeypatch.setattr(Host, "getMemoryStats", lambda *_which: {"free": 10**7, "total": 10**7}, raising=False)
    monkeypatch.setattr(dest, "getHostname", lambda: "hyper2", raising=False)
    looked: list[object] = []
    refresh, pools = libvirt_storage.refresh, libvirt_query.pools

    def look_anew(connection: object, pool: str) -> None:
        looked.append(connection)
        refresh(connection, pool)

    def result(connection: object) -> list[dict[str, t.Any]]:
        return [{**pool, "available_bytes": now if connection in looked else stale} for pool in pools(connection)]

    monkeypatch.setattr(libvirt_storage, "refresh", look_anew)
    monkeypatch.setattr(libvirt_query, "pools", result)
    assert ("its disks: pool default of hyper2 has " in checked(source, dest)) is refused


GIB_KIB = 1024**2
REMOTE = "qemu+tls://hyper2/system"


@pytest.mark.parametrize(
    ("uri", "guests", "free_gib"),
    [
        ("qemu:///system", [{"balloon.rss": 12 * GIB_KIB}], 3),
        (REMOTE, [{"balloon.rss": 10 * GIB_KIB, "balloon.current": 15 * GIB_KIB}, {"balloon.rss": GIB_KIB}], 5),
        (REMOTE, [{"balloon.rss": 2 * GIB_KIB}], 13),
        (REMOTE, [{"balloon.current": 12 * GIB_KIB}, {}], 4),
        (REMOTE, [{"balloon.rss": 20 * GIB_KIB}], 1),
    ],
    ids=["the kernel says", "in shared memory", "in memory of its own", "a busy guest", "pages that guests share"],
)
def test_memory_that_guests_share_is_not_free(
    hosts: tuple[Host, Host],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    uri: str,
    guests: list[dict[str, int]],
    free_gib: int,
) -> None:
    """A guest with a shared memory backing is in the page cache, which cannot give it back."""
    host, _dest = hosts
    seen = {"total": 16 * GIB_KIB, "free": GIB_KIB, "buffers": 0, "cached": 12 * GIB_KIB}
    monkeypatch.setattr(host, "getMemoryStats", lambda *_which: seen, raising=False)
    monkeypatch.setattr(host, "getURI", lambda: uri, raising=False)
    monkeypatch.setattr(host, "getAllDomainStats", lambda *_which: [(None, each) for each in guests], raising=False)
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 * GIB_KIB} kB\nMemAvailable:    {3 * GIB_KIB} kB\n")
    monkeypatch.setattr(host_memory, "MEMINFO", str(tmp_path / "meminfo"))
    assert libvirt_proof.memory_free_bytes(host) == free_gib * 1024**3
    assert libvirt_migrate.endpoint_facts(host)["memory_free_mib"] == free_gib * 1024
    assert events.host_memory_kib(host) == ((16 - free_gib) * GIB_KIB, 16 * GIB_KIB)
