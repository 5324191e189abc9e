"""What users share: nobody takes it all."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import typing as t
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from ansible_collections.corral.virt.roles.console.files.corral_console import order, work
from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import User
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.shares import Full, Shares
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    GUEST,
    NAME,
    World,
    browser,
    log_in,
    world,
)
from ansible_collections.corral.virt.tests.unit.roles.console.test_web import SOCKET, get_ticket, site

__all__ = ["site", "world"]


def test_who_has_the_most_gives_way_and_nobody_else() -> None:
    shares = Shares(most=4, of_one=3)
    first, second, third = (shares.take("alice") for _each in range(3))
    with pytest.raises(Full, match="3 of yours are open"):
        shares.take("alice")
    assert not first.given_up
    bob = shares.take("bob")
    bobs = shares.take("bob")
    assert (first.given_up, second.given_up, bob.given_up) == (True, False, False), (
        "alice's oldest, for the second of bob"
    )
    with pytest.raises(Full, match="all are taken"):
        shares.take("alice")
    carol = shares.take("carol")
    assert second.given_up or bob.given_up
    for each in (second, third, bob, bobs, carol, carol):
        shares.leave(each)
    assert len(shares) == 0


def test_the_oldest_of_a_user_can_give_way() -> None:
    shares = Shares(most=10, of_one=2)
    taken = [shares.take("alice", anew=True) for _each in range(3)]
    assert [each.given_up for each in taken] == [True, False, False] and len(shares) == 2


class Listening:
    """A page that listens to the live state, through the application itself: the test client reads streams to their end."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self.status, self.text, self._ends = 0, "", threading.Event()
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        headers = [(b"host", NAME.encode()), (b"cookie", cookies.encode())]
        self._scope = {"type": "http", "method": "GET", "path": "/api/events", "headers": headers, "query_string": b""}
        self._done = client.portal.start_task_soon(self._run)  # type: ignore[union-attr]
        until(lambda: self.status)

    async def _run(self) -> None:
        begun = [{"type": "http.request", "body": b""}]

        async def receive() -> dict[str, t.Any]:
            if begun:
                return begun.pop()
            await asyncio.get_running_loop().run_in_executor(None, self._ends.wait)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, t.Any]) -> None:
            self.text += message.get("body", b"").decode()
            self.status = message.get("status", self.status)

        more = {"http_version": "1.1", "scheme": "https", "client": ("192.0.2.1", 1)}
        await t.cast(t.Any, self._client.app)({**self._scope, **more}, receive, send)

    @property
    def is_over(self) -> bool:
        return self._done.done()

    def end(self) -> None:
        self._ends.set()
        self._done.result(10)


@pytest.fixture
def pages() -> Iterator[list[Listening]]:
    made: list[Listening] = []
    yield made
    for each in made:
        each.end()


def of_the_same_server(client: TestClient, user: str) -> TestClient:
    other = browser(client.app)
    other.portal = client.portal
    log_in(other, user)
    return other


def test_many_logins_of_one_user_do_not_fill_all_streams(site: tuple[Site, TestClient], pages: list[Listening]) -> None:
    made, client = site
    made.streams.most, made.streams.of_one = 4, 3
    for _each in range(5):
        pages.append(Listening(of_the_same_server(client, "bob")))
    assert [each.status for each in pages] == [200] * 5
    until(lambda: [each.is_over for each in pages] == [True, True, False, False, False])
    assert "event: ended" in pages[0].text and "too many pages" in pages[0].text
    admin = [Listening(of_the_same_server(client, "alice")) for _each in range(2)]
    pages += admin
    until(lambda: pages[2].is_over)
    assert [each.status for each in admin] == [200, 200] and not any(each.is_over for each in admin)


def test_a_user_does_not_take_all_consoles(site: tuple[Site, TestClient]) -> None:
    made, client = site
    made.consoles.of_one = 1
    log_in(client)
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        assert socket.receive_text() == "ok"
        with pytest.raises(WebSocketDisconnect) as end:
            with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as other:
                other.receive_text()
        assert end.value.code == 4429 and "1 of yours are open" in end.value.reason
    until(lambda: len(made.consoles) == 0)


def test_questions_to_a_host_that_hangs_do_not_take_all_threads(
    site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, client = site
    made.asking.of_one = 1
    waits, asked = threading.Event(), threading.Event()

    def hangs() -> dict[str, t.Any]:
        asked.set()
        waits.wait(10)
        return {}

    monkeypatch.setattr(made.watchers["hyper1"], "host", hangs)
    slow = threading.Thread(target=lambda: client.get("/api/hosts/hyper1"))
    log_in(client)
    slow.start()
    assert asked.wait(5)
    answer = client.get(f"/api/hosts/hyper1/guests/{GUEST}")
    assert answer.status_code == 429 and "1 of yours" in answer.json()["error"]
    waits.set()
    slow.join(10)
    assert client.get(f"/api/hosts/hyper1/guests/{GUEST}").status_code == 200


def test_requests_that_take_long_to_judge_keep_nobody_else_waiting(
    world: World, site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    _site, client = site
    goes_on, real = threading.Event(), order.order
    log_in(client, "carol")
    admin = of_the_same_server(client, "alice")

    def slow(given: dict[str, t.Any], *rest: t.Any) -> t.Any:
        if given["action"] == "rebalance":
            goes_on.wait(20)
        return real(given, *rest)

    monkeypatch.setattr(work, "order", slow)
    answers: list[int] = []
    ask = {"action": "rebalance", "check": True}
    waiting = [
        threading.Thread(target=lambda: answers.append(client.post("/api/jobs", json=ask).status_code))
        for _each in range(4)
    ]
    for each in waiting:
        each.start()
    until(lambda: len(world.desk.judging) == 4)
    refused = client.post("/api/jobs", json=ask)
    assert refused.status_code == 429 and "4 of yours" in refused.json()["error"]
    assert admin.get("/api/jobs").status_code == 200 and not answers
    goes_on.set()
    for each in waiting:
        each.join(20)
    assert answers == [403] * 4
    assert client.post("/api/jobs", json=ask).status_code == 403


def test_sessions_of_a_user_are_few_and_the_one_unused_longest_goes(world: World) -> None:
    sessions, carol = world.desk.sessions, User("carol", ("web-team",))
    values = [sessions.begin(carol, address="", agent=str(number)) for number in range(25)]
    dave = sessions.begin(User("dave"), address="", agent="")
    assert len(sessions.of(carol)) == 20 and sessions.find(dave)
    assert [bool(sessions.find(value)) for value in values] == [False] * 5 + [True] * 20


def test_who_has_too_many_jobs_is_told_so(
    world: World, site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "_start", lambda _jobs, _job: None)
    object.__setattr__(world.policy_config, "jobs_of_a_user", 2)
    _site, client = site
    log_in(client)
    given = {"action": "start", "guests": [GUEST], "check": True}
    answers = [client.post("/api/jobs", json=given) for _each in range(3)]
    assert [each.status_code for each in answers] == [201, 201, 429]
    assert "2 previews of alice have not ended" in answers[2].json()["error"]
    dave = of_the_same_server(client, "dave")
    assert dave.post("/api/jobs", json=given).status_code == 201
    again = client.post(f"/api/jobs/{answers[0].json()['id']}/again", json={})
    assert again.status_code == 429, "nor by doing it again"


def test_a_job_of_a_user_without_the_right_any_more_is_not_begun(
    world: World, site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "_start", lambda _jobs, _job: None)
    _site, client = site
    log_in(client, "carol")
    made, _client = site
    known = {"uuid": GUEST, "host": "hyper1", "name": "web1", "state": "running", "tags": []}
    made.store.update({f"guest/hyper1/{GUEST}": known})
    given = {"action": "start", "guests": [GUEST]}
    number = client.post("/api/jobs", json=given).json()["id"]
    world.policy.write_text(json.dumps([{"who": "group:admins", "may": "*"}]))
    job = t.cast(t.Any, world.desk.jobs.get(number))
    until(lambda: job.state == "failed")
    assert "carol may not start" in job.summary()["error"]


def test_tickets_that_are_made_up_keep_nobody_from_consoles(site: tuple[Site, TestClient]) -> None:
    """The web process cannot check their signature."""
    made, client = site
    log_in(client)
    thief = of_the_same_server(client, "bob")
    digest = thief.get("/api/sessions").json()[0]["id"]

    def made_up(number: int) -> str:
        content = {**dict.fromkeys(("session", "user", "host", "guest", "kind"), "x"), "nonce": str(number)}
        text = json.dumps({**content, "expires": time.time() + 50}).encode()
        return base64.urlsafe_b64encode(text).decode()

    for number in range(12_000):
        made.tickets.take(made_up(number), digest)
    for number in range(3):
        with (
            pytest.raises(WebSocketDisconnect),
            browser(client.app).websocket_connect(f"{SOCKET}?ticket={made_up(-number)}"),
        ):
            pass
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        assert socket.receive_text() == "ok"
