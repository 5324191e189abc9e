"""When a session counts as used."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.roles.console.files.corral_console import site as place
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.unit.roles.console.processes import GUEST, World, log_in, started, world
from ansible_collections.corral.virt.tests.unit.roles.console.test_shares import Listening

__all__ = ["world"]

IDLE_S = 1000


@pytest.fixture
def clock(world: World) -> list[float]:
    now = [1_700_000_000.0]
    sessions = t.cast(t.Any, world.desk.sessions)
    sessions._clock, sessions._idle_s = (lambda: now[0]), IDLE_S
    return now


@pytest.fixture
def site(world: World, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, TestClient]]:
    monkeypatch.setattr(place, "_CHECK_S", 0)
    for made, client in started(world.config()):
        log_in(client)
        yield made, client


JOB_LOG = "/api/jobs/x/log"
BACKGROUND = {"x-corral-background": "1"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "keeps"),
    [
        ("GET", "/api/me", {}, False),
        ("GET", JOB_LOG, {}, False),
        ("GET", f"/api/hosts/hyper1/guests/{GUEST}", BACKGROUND, False),
        ("GET", "/api/history/hyper1", BACKGROUND, False),
        ("GET", "/api/jobs", BACKGROUND, False),
        ("GET", f"/api/hosts/hyper1/guests/{GUEST}", {}, True),
        ("GET", "/api/history/hyper1", {}, True),
        ("GET", "/api/jobs", {}, True),
        ("POST", "/api/me", {}, True),
        ("POST", "/api/jobs", {}, True),
        ("POST", "/api/tickets", {}, True),
    ],
)
def test_an_open_page_alone_does_not_keep_a_session_alive(
    site: tuple[Site, TestClient], clock: list[float], method: str, path: str, headers: dict[str, str], keeps: bool
) -> None:
    _site, client = site
    given = {"action": "start", "guests": [GUEST], "uuid": GUEST, "check": True}
    for _each in range(3):
        clock[0] += 0.45 * IDLE_S
        client.request(method, path, headers=headers, json=None if method == "GET" else given)
    assert (client.get("/api/me").json() != {}) is keeps


def test_nor_do_its_streams(site: tuple[Site, TestClient], clock: list[float]) -> None:
    _site, client = site
    page = Listening(client)
    for _each in range(3):
        clock[0] += 0.45 * IDLE_S
        client.get("/api/me")
    page.end()
    assert client.get("/api/me").json() == {}
