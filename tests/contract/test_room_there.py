"""Room for a migration: what there is now, not what libvirt saw when it last looked into the pool."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
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
