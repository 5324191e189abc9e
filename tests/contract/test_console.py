"""The console follows libvirt's test driver: what changes there is in the store."""

from __future__ import annotations

import functools
import itertools
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._libvirt import events
from ansible_collections.corral.virt.roles.console.files.corral_console.history import History
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.roles.console.files.corral_console.watch import Watcher
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

GUEST = """<domain type='test'><name>{name}</name><title>A title</title><memory unit='MiB'>512</memory><vcpu>3</vcpu>
<os><type>hvm</type></os><metadata><c:guest xmlns:c='urn:corral:virt:guest:1'><c:tag>web</c:tag></c:guest></metadata>
</domain>"""


@pytest.fixture
def host() -> Iterator[t.Any]:
    """The test driver's default host, which all connections of a process share."""
    connection = libvirt.open("test:///default")
    yield connection
    connection.close()


@pytest.fixture
def following(host: t.Any) -> Iterator[tuple[Store, Watcher]]:
    """Polling takes far longer than the tests: what they see comes from events."""
    store = Store()
    watcher = Watcher("hyper1", "test:///default", store, poll_s=60)
    watcher.start()
    until(lambda: (store.get("host/hyper1") or {}).get("state") == "connected")
    yield store, watcher
    watcher.stop()


def test_a_guest_comes_changes_and_goes(host: t.Any, following: tuple[Store, Watcher]) -> None:
    store, _watcher = following
    domain = host.defineXML(GUEST.format(name="web1"))
    key = f"guest/hyper1/{domain.UUIDString()}"
    until(lambda: store.get(key))
    expected = {
        "host": "hyper1",
        "uuid": domain.UUIDString(),
        "name": "web1",
        "title": "A title",
        "state": "shutdown",
        "vcpus": 3,
        "memory_mib": 512,
        "maximum_mib": 512,
        "tags": ["web"],
        "moving": False,
        "persistent": True,
        "autostart": False,
        "snapshots": {"count": 0, "oldest_s": None},
        "backup": {"at_s": None, "proven_s": None, "every_s": None, "proven_every_s": None},
    }
    assert store.get(key) == expected
    domain.create()
    until(lambda: store.get(key) == {**expected, "state": "running"})
    domain.suspend()
    until(lambda: store.get(key) == {**expected, "state": "paused"})
    assert domain.UUIDString() in t.cast("dict[str, t.Any]", store.get("figures/hyper1"))["guests"]
    domain.destroy()
    host.defineXML(
        GUEST.format(name="web1")
        .replace("A title", "Another")
        .replace("<name>", f"<uuid>{domain.UUIDString()}</uuid><name>")
    )
    until(lambda: store.get(key) == {**expected, "title": "Another"})
    domain.undefine()
    until(lambda: store.get(key) is None)


def test_snapshots_are_counted_without_an_event(host: t.Any) -> None:
    domain = host.defineXML(GUEST.format(name="web1"))
    store = Store()
    watcher = Watcher("hyper1", "test:///default", store, poll_s=0.02)
    watcher.start()
    key = f"guest/hyper1/{domain.UUIDString()}"
    until(lambda: store.get(key))
    for name in ("one", "two"):
        domain.snapshotCreateXML(f"<domainsnapshot><name>{name}</name></domainsnapshot>")
    oldest = ElementTree.fromstring(domain.snapshotLookupByName("one").getXMLDesc()).findtext("creationTime")
    counted = {"count": 2, "oldest_s": int(str(oldest))}
    until(lambda: (store.get(key) or {}).get("snapshots") == counted)
    for name in ("two", "one"):
        domain.snapshotLookupByName(name).delete()
    until(lambda: (store.get(key) or {}).get("snapshots") == {"count": 0, "oldest_s": None})
    watcher.stop()


def test_the_host_is_described(following: tuple[Store, Watcher]) -> None:
    store, watcher = following
    found = t.cast("dict[str, t.Any]", store.get("host/hyper1"))
    assert (found["cpus"], found["memory_mib"], found["reason"]) == (16, 3072, "")
    assert [pool["name"] for pool in watcher.host()["pools"]] == ["default-pool"]
    (guest,) = (each for each in store.below("guest/").values() if each["name"] == "test")
    asked = watcher.guest(guest["uuid"])
    assert (asked["disks"][0]["source"], asked["snapshots"]) == ("/guest/diskimage1", [])
    with pytest.raises(NotFound, match="UUID"):
        watcher.guest("00000000-0000-0000-0000-000000000000")


def test_a_migration_is_a_part_of_its_guest_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the test driver has none of; that a guest has a job is noticed in one of ten rounds."""
    found: list[dict[str, t.Any] | None] = [{"data_processed": 1, "disks": {}}]
    asked: list[tuple[str, ...]] = []

    def job(_domain: t.Any, targets: tuple[str, ...]) -> dict[str, t.Any] | None:
        asked.append(targets)
        return found[0]

    monkeypatch.setattr(events, "job", job)
    store = Store()
    watcher = Watcher("hyper1", "test:///default", store, poll_s=0.02)
    watcher.start()
    guests = functools.partial(store.below, "guest/hyper1/")
    until(lambda: any(guest.get("migration") == found[0] for guest in guests().values()))
    until(lambda: ("hda",) in asked or ("vda",) in asked)
    found[0] = None
    until(lambda: guests() and not any("migration" in guest for guest in guests().values()))
    watcher.stop()


def test_what_guests_use_goes_into_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.corral.virt.roles.console.files.corral_console import samples

    monkeypatch.setattr(samples, "SAMPLE_S", 0.1)
    numbers = itertools.count()
    monkeypatch.setattr(
        events, "counters", lambda _connection: [events.Counters("a", None, 1, 0, 1000 * next(numbers), 0, 0)]
    )
    history = History(tmp_path / "db")
    watcher = Watcher("hyper1", "test:///default", Store(), history=history, poll_s=0.02)
    watcher.start()
    until(lambda: history.read("a", "hour")["written"])
    watcher.stop()
    found = history.read("a", "hour")
    assert found["written"][0] > 0 and found["cpu"] == [None] and found["received"] == [0.0]
    assert history.read("host/hyper1", "hour")["at"]


def test_the_connection_only_reads(following: tuple[Store, Watcher]) -> None:
    _store, watcher = following
    domain = watcher._connection.lookupByName("test")
    with pytest.raises(libvirt.libvirtError, match="read only access"):
        domain.destroy()


def faulty(_connection: t.Any) -> t.NoReturn:
    raise ValueError("a fault")


def test_an_unreachable_host_keeps_what_was_seen_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.corral.virt.roles.console.files.corral_console import watch

    monkeypatch.setattr(watch, "backoff_s", lambda _failures, _chance: 0.05)
    node, store = tmp_path / "node.xml", Store()
    watcher = Watcher("hyper1", f"test://{node}", store)
    watcher.start()
    until(lambda: (store.get("host/hyper1") or {})["state"] == "unreachable")
    first = t.cast("dict[str, t.Any]", store.get("host/hyper1"))
    assert str(node) in first["reason"] and first["since"] <= time.time()
    with pytest.raises(NotFound, match="unreachable"):
        watcher.host()
    node.write_text(f"<node>{GUEST.format(name='web1')}</node>")
    until(lambda: store.below("guest/hyper1/"))
    until(lambda: (store.get("host/hyper1") or {})["state"] == "connected")
    kept = store.below("guest/hyper1/")
    monkeypatch.setattr(events, "figures", faulty)
    until(lambda: "internal error: ValueError" in (store.get("host/hyper1") or {})["reason"], 10)
    assert store.below("guest/hyper1/") == kept
    watcher.stop()
