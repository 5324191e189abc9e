"""What a hypervisor says is not believed: one that lies, tells too much or hangs takes nothing from the others."""

from __future__ import annotations

import threading
import time
import types
import typing as t
from collections.abc import Iterator

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._guest.run_summary import block_sizes
from ansible_collections.corral.virt.plugins.module_utils._libvirt import events, statistics
from ansible_collections.corral.virt.roles.console.files.corral_console import watch
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.roles.console.files.corral_console.watch import Watcher
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

MANY = 2**32 - 1
GUEST = """<domain type='test'><name>{name}</name><title>{title}</title><memory unit='MiB'>512</memory><vcpu>1</vcpu>
<os><type>hvm</type></os><metadata><c:guest xmlns:c='urn:corral:virt:guest:1'>{tags}</c:guest></metadata></domain>"""


def liar(**told: int) -> t.Any:
    """A connection whose host counts far more than it lists."""
    figures = {key.replace("_", "."): value for key, value in told.items()}
    domain = types.SimpleNamespace(UUIDString=lambda: "u")
    return types.SimpleNamespace(
        getType=lambda: "QEMU",
        getURI=lambda: "test:///liar",
        getAllDomainStats=lambda _kinds, _flags: [(domain, figures)],
    )


def test_numbers_that_nobody_can_count_to_are_not_counted_to() -> None:
    began = time.process_time()
    counts = {"vcpu_maximum": MANY, "block_count": MANY, "net_count": MANY}
    host = liar(
        state_state=1, vcpu_current=2, vcpu_0_time=3, vcpu_7_time=4, block_3_rd_bytes=5, net_9_tx_bytes=6, **counts
    )
    (one,), (used,) = events.figures(host), events.counters(host)
    assert (one.cpu_ns, used.cpu_ns, used.read, used.sent) == (7, 7, 5, 6)
    told: dict[str, t.Any] = {"block.count": MANY, "block.3.name": "vda", "block.3.capacity": 8}
    assert block_sizes(told) == {"vda": {"capacity_bytes": 8}}
    assert time.process_time() - began < 1


@pytest.fixture
def host() -> Iterator[t.Any]:
    connection = libvirt.open("test:///default")
    yield connection
    connection.close()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def watcher(host: t.Any, store: Store) -> Iterator[Watcher]:
    made = Watcher("hyper1", "test:///default", store, poll_s=0.05)
    made.start()
    until(lambda: (store.get("host/hyper1") or {}).get("state") == "connected")
    yield made
    made.stop()


def test_a_text_of_megabytes_goes_to_no_page(host: t.Any, store: Store, watcher: Watcher) -> None:
    tags = "".join(f"<c:tag>{number}{'y' * 1000}</c:tag>" for number in range(2000))
    domain = host.defineXML(GUEST.format(name="n" * 200, title="x" * 2_000_000, tags=tags))
    key = f"guest/hyper1/{domain.UUIDString()}"
    try:
        until(lambda: store.get(key))
        card = t.cast("dict[str, t.Any]", store.get(key))
        assert card["title"] == "x" * 1000 and card["name"] == "n" * 200
        assert len(card["tags"]) == 100 and max(map(len, card["tags"])) == 255
    finally:
        domain.undefine()


def test_of_a_host_that_hangs_only_one_question_waits_on(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(watch, "_TURN_S", 0.1)
    monkeypatch.setattr(statistics, "networks", lambda _connection: goes_on.wait(20) and [])
    first = threading.Thread(target=watcher.host)
    first.start()
    until(watcher._calls.locked)
    for question in (watcher.host, watcher.volumes):
        with pytest.raises(Failed, match="hyper1: it does not answer an earlier question"):
            question()
    goes_on.set()
    first.join(20)
    assert watcher.host()["pools"]


def test_a_host_that_keeps_the_connection_and_answers_nothing_is_shown_as_such(
    store: Store, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, real = threading.Event(), events.figures

    def hangs(connection: t.Any) -> list[events.Figures]:
        goes_on.wait(20)
        return real(connection)

    def state() -> tuple[str, str]:
        watcher.look()
        told = t.cast("dict[str, t.Any]", store.get("host/hyper1"))
        return told["state"], told["reason"]

    assert state() == ("connected", "")
    monkeypatch.setattr(watch, "_SILENT_S", 0.5)
    monkeypatch.setattr(events, "figures", hangs)
    until(lambda: state()[0] == "unreachable")
    assert "has not answered" in state()[1]
    goes_on.set()
    until(lambda: state() == ("connected", ""))
