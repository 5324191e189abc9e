"""When libvirt's event loop runs, which each call wakes: only for who waits for events, or takes more than a moment."""

from __future__ import annotations

import threading
import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._libvirt import connection, events
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, opened
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_wait

GUEST = "test"


def follows(host: Connection) -> t.ContextManager[object]:
    return events.subscribed(host, lambda _uuid: None)


def waits(host: Connection) -> t.ContextManager[object]:
    return libvirt_wait._events(host, host.lookupByName(GUEST), {"LIFECYCLE": lambda *_what: True})


@pytest.fixture
def needed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    event = threading.Event()
    monkeypatch.setattr(connection, "_needed", event)
    return event


@pytest.mark.parametrize("hears", [follows, waits])
def test_who_waits_for_events_hears_them_at_once(
    hears: t.Callable[[Connection], t.ContextManager[object]], needed: threading.Event
) -> None:
    with opened("test:///default", events=True) as host:
        host.lookupByName(GUEST)
        assert not needed.is_set()
        with hears(host):
            assert needed.is_set()


def test_a_connection_that_is_watched_is_listened_to(needed: threading.Event) -> None:
    """Before it is told to break when its other end is silent, which the test driver cannot do."""
    with pytest.raises(libvirt.libvirtError, match="virConnectSetKeepAlive"), opened("test:///default", watched=True):
        pytest.fail("the test driver can do it")
    assert needed.is_set()
