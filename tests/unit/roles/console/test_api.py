"""Jobs, tokens, users and the audit through both processes: the policy holds whoever asks, and however."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.roles.console.files.corral_console import (
    answers,
    offers,
    order,
    policy_server,
    work,
)
from ansible_collections.corral.virt.roles.console.files.corral_console.answers import COOKIE
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.policy_client import PolicyClient, Unavailable
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    GUEST,
    NAME,
    PASSWORD,
    POLICY,
    World,
    browser,
    log_in,
    started,
    until,
    world,
)

__all__ = ["world"]

WEB = "00000000-0000-0000-0000-0000000000e1"


def _stay(_jobs: Jobs, _job: t.Any) -> None:
    """No job begins: its process is another test's."""


@pytest.fixture
def site(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, TestClient]]:
    monkeypatch.setattr(Jobs, "_start", _stay)
    for made, client in started(world.config()):
        known = {"uuid": WEB, "host": "hyper1", "name": "web1", "state": "running", "tags": []}
        made.store.update({f"guest/hyper1/{WEB}": known})
        yield made, client


def ask(client: TestClient, action: str, *guests: str, **more: t.Any) -> tuple[int, dict[str, t.Any]]:
    given = {"action": action, "guests": list(guests), "confirm": len(guests), **more}
    answer = client.post("/api/jobs", json=given)
    return answer.status_code, answer.json()


MORE: dict[str, dict[str, t.Any]] = {
    "create": {"arguments": {"guest": "ci-1"}},
    "rename": {"arguments": {"to": "web9"}},
    "change": {"arguments": {"memory": "1GiB"}},
    "drain": {"hosts": ["hyper1"]},
    "undrain": {"hosts": ["hyper1"]},
    "rebalance": {},
}


@pytest.mark.parametrize("user", ["alice", "bob", "carol"])
def test_each_action_for_each_user(site: tuple[Site, TestClient], user: str) -> None:
    """alice is an admin, bob may look, carol may start and stop web*."""
    _site, client = site
    log_in(client, user)
    offered = {each["name"] for each in client.get("/api/actions").json()}
    allowed = {"alice": set(offers.names()), "bob": set(), "carol": {"start", "shutdown"}}[user]
    assert offered == allowed
    for action in offers.names():
        guests = [] if action in ("create", "drain", "undrain", "rebalance") else [WEB]
        status, answer = ask(client, action, *guests, check=True, **MORE.get(action, {}))
        assert status == (201 if action in allowed else 403), (action, answer)
    if user == "carol":
        assert ask(client, "start", GUEST)[0] == 403, "a guest that the rule is not for"
        assert ask(client, "start", WEB, GUEST)[0] == 403


def test_a_job_is_listed_shown_and_cancelled(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client, "carol")
    number = ask(client, "start", WEB)[1]["id"]
    (listed,) = client.get(f"/api/jobs?guest={WEB}&state=waiting&limit=5").json()
    assert (listed["id"], listed["user"], listed["guests"]) == (number, "carol", [{"uuid": WEB, "name": "web1"}])
    assert client.get(f"/api/jobs?guest={GUEST}").json() == client.get(f"/api/jobs?before={number}").json() == []
    assert client.get(f"/api/jobs/{number}").json()["arguments"] == {"guest": ["web1"]}
    assert client.get(f"/api/jobs/{number}/log?since=0").json() == {"lines": [], "next": 0, "ended": False}
    until(lambda: made.store.get(f"job/{number}"))  # the live state has it, too
    status, answer = ask(client, "shutdown", WEB)
    assert status == 409 and number in answer["error"]
    other = browser(client.app)
    log_in(other, "bob")
    assert other.get(f"/api/jobs/{number}").status_code == 200, "who may view the guest sees its jobs"
    assert other.post(f"/api/jobs/{number}/cancel", json={}).status_code == 403
    assert client.post(f"/api/jobs/{number}/cancel", json={}).status_code == 202
    assert client.get(f"/api/jobs/{number}").json()["state"] == "cancelled"
    assert client.post(f"/api/jobs/{number}/cancel", json={}).status_code == 409
    assert client.post(f"/api/jobs/{number}/again", json={}).status_code == 201
    assert len(client.get("/api/jobs").json()) == 2


def test_jobs_without_a_guest_are_for_those_who_may_do_the_same(world: World, site: tuple[Site, TestClient]) -> None:
    """What they plan and log names guests of everybody."""
    keeper = {"who": "group:web-team", "may": ["drain", "create"], "hosts": "hyper1"}
    _made, client = site
    log_in(client)
    made = [ask(client, "create", check=True, arguments={"guest": "db-7", "host": "hyper1"})[1]["id"]]
    made += [ask(client, action, check=True, **MORE[action])[1]["id"] for action in ("drain", "rebalance")]
    bob, carol = browser(client.app), browser(client.app)
    log_in(bob, "bob")
    log_in(carol, "carol")
    assert {job["id"] for job in bob.get("/api/jobs").json()} == set(made), "who may view everything"
    assert carol.get("/api/jobs").json() == []
    assert {carol.get(f"/api/jobs/{number}{more}").status_code for number in made for more in ("", "/log")} == {404}
    world.policy.write_text(json.dumps([*POLICY, keeper]))
    assert {job["id"] for job in carol.get("/api/jobs").json()} == set(made[:2])
    object.__setattr__(world.policy_config, "hosts", ("hyper2",))
    assert carol.get("/api/jobs").json() == [], "nor of a host that is none any more"


def test_a_list_of_jobs_is_soon_there(site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job asks is worked out once, not by each list of hundreds of them."""
    worked_out: list[object] = []

    def counted(*arguments: t.Any) -> t.Any:
        worked_out.append(arguments)
        return order.order(*arguments)

    _site, client = site
    log_in(client)
    for index in range(3):
        ask(client, "create", check=True, arguments={"guest": f"ci-{index}"})
    carol = browser(client.app)
    log_in(carol, "carol")
    monkeypatch.setattr(work, "order", counted)
    assert carol.get("/api/jobs").json() == carol.get("/api/jobs").json() == []
    assert len(worked_out) == 3


def test_jobs_are_looked_after_when_a_disk_had_no_room(
    site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, real = list[Jobs](), Jobs.look

    def look(jobs: Jobs) -> None:
        looks.append(jobs)
        if len(looks) == 1:
            raise OSError("no space left on device")
        real(jobs)

    monkeypatch.setattr(Jobs, "look", look)
    until(lambda: len(looks) > 2)
    assert site[1].get("/api/me").status_code == 200


def test_jobs_of_guests_that_one_may_not_see_are_hidden(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    number = ask(client, "reset", GUEST)[1]["id"]
    until(lambda: made.store.get(f"job/{number}"))
    carol = browser(client.app)
    log_in(carol, "carol")
    assert carol.get("/api/jobs").json() == []
    for path in (f"/api/jobs/{number}", f"/api/jobs/{number}/log", "/api/jobs/%2e%2e", "/api/jobs/x%0ay"):
        assert carol.get(path).status_code == 404
    assert carol.get(f"/api/hosts/hyper1/guests/{GUEST}").status_code == 404


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "action"),
        ({"action": "start"}, "guests"),
        ({"action": "start", "guests": ["x"]}, "guests"),
        ({"action": "start", "guests": {"a": 1}}, "guests"),
        ({"action": "start", "guests": [WEB], "arguments": {"ansible_user": "root"}}, "ansible_user"),
        ({"action": "migrate", "guests": [WEB], "arguments": {"to": "192.0.2.66"}}, "to"),
        ({"action": "purge", "guests": [WEB]}, "confirm"),
        ({"action": "create", "arguments": {"guest": "web1"}}, "guest"),
        ({"action": "create", "arguments": {"guest": "{{ x }}"}}, "guest"),
        ({"action": "start", "arguments": {"guest": ["web1", "wbe2"]}}, "guest"),
        ({"action": "start", "arguments": {"guest": ["web*", "db*"]}}, "guest"),
    ],
)
def test_errors_are_told_by_argument(site: tuple[Site, TestClient], given: dict[str, t.Any], where: str) -> None:
    _site, client = site
    log_in(client)
    answer = client.post("/api/jobs", json=given)
    assert answer.status_code == 400 and where in answer.json()["errors"], answer.text


def test_guests_can_be_named_by_a_pattern_and_each_counts(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "carol")
    assert client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "web*"}, "check": True}).is_success
    assert (
        client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "*"}, "check": True}).status_code
        == 403
    )


def test_a_secret_is_not_shown(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client)
    arguments = {"guest": "ci-1", "cloud_init": {"user_data": "a secret"}}
    number = ask(client, "create", arguments=arguments)[1]["id"]
    assert client.get(f"/api/jobs/{number}").json()["arguments"]["cloud_init"] == "(hidden)"
    shown = client.get("/api/jobs").text + client.get(f"/api/jobs/{number}").text + client.get("/api/audit").text
    assert "a secret" not in shown


def test_a_job_with_a_secret_is_run_again_by_its_user_only(site: tuple[Site, TestClient]) -> None:
    """Else the secret would be in a guest of somebody else, who may not see it."""
    _site, client = site
    log_in(client)
    arguments = {"guest": "ci-1", "cloud_init": {"user_data": "a secret"}}
    numbers = {
        name: ask(client, "create", check=True, arguments=given)[1]["id"]
        for name, given in {"secret": arguments, "open": {"guest": "ci-1"}}.items()
    }
    other = browser(client.app)
    log_in(other, "dave")
    assert other.get(f"/api/jobs/{numbers['secret']}").status_code == 200
    status = {name: other.post(f"/api/jobs/{number}/again", json={}) for name, number in numbers.items()}
    assert (status["open"].status_code, status["secret"].status_code) == (201, 403)
    assert "of alice" in status["secret"].json()["error"]
    assert client.post(f"/api/jobs/{numbers['secret']}/again", json={}).status_code == 201


def test_patterns_of_guests_are_few(site: tuple[Site, TestClient]) -> None:
    """Each is compared with each guest: thousands of them would stop the server for everybody."""
    _site, client = site
    log_in(client, "bob")
    many = [f"{index:x}*" for index in range(5000)]
    answer = client.post("/api/jobs", json={"action": "start", "arguments": {"guest": many}, "check": True})
    assert answer.status_code == 400 and "at most 20 patterns" in answer.json()["errors"]["guest"]
    names = [f"web{index}" for index in range(5000)]
    answer = client.post("/api/jobs", json={"action": "start", "arguments": {"guest": names}, "check": True})
    assert answer.status_code == 400 and "there is no guest web" in answer.json()["errors"]["guest"]


def test_a_token_is_for_programs(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "carol")
    assert client.post("/api/tokens", json={"name": ""}).status_code == 400
    assert client.post("/api/tokens", json={"name": "x", "days": 0}).status_code == 400
    value = client.post("/api/tokens", json={"name": "script", "days": 1}).json()["token"]
    program = TestClient(client.app, base_url=f"https://{NAME}", headers={"authorization": f"Bearer {value}"})
    assert program.get("/api/me").json()["user"] == "carol"
    assert ask(program, "start", WEB, check=True)[0] == 201 and ask(program, "reset", WEB)[0] == 403
    assert program.post("/api/tokens", json={"name": "more"}).status_code == 403, "a token makes no tokens"
    evil = {"origin": "https://evil.example"}
    assert program.post("/api/logout", json={}, headers=evil).status_code == 403, "not from a page of another site"
    (listed,) = client.get("/api/tokens").json()
    other = browser(client.app)
    log_in(other, "bob")
    assert other.post("/api/tokens/end", json={"id": listed["id"]}).status_code == 404
    assert client.post("/api/tokens/end", json={"id": listed["id"]}).status_code == 200
    assert program.get("/api/me").json() == {} and program.get("/api/jobs").status_code == 401


def test_users_and_the_audit_are_for_who_has_the_right(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client)
    bob = browser(client.app)
    log_in(bob, "bob")
    assert bob.get("/api/users").status_code == bob.get("/api/audit").status_code == 403
    users = {user["name"]: user for user in client.get("/api/users").json()}
    assert users["bob"]["groups"] == ["watchers"] and len(users["bob"]["sessions"]) == 1
    lines = client.get("/api/audit?limit=2").json()
    assert [(line["audit"], line["user"], line["allowed"]) for line in lines] == [
        ("audit", "bob", False),
        ("users", "bob", False),
    ]
    assert client.get(f"/api/audit?before={lines[-1]['id']}&limit=1").json()[0]["audit"] == "login"
    assert client.post("/api/sessions/end", json={"id": users["bob"]["sessions"][0]["id"]}).status_code == 200
    assert bob.get("/api/me").json() == {}


def test_a_policy_that_is_wrong_changes_nothing(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "carol")
    for wrong in ("{", '[{"who": "x"}]', json.dumps([{"who": "user:carol", "may": "everything"}])):
        world.policy.write_text(wrong)
        assert ask(client, "start", WEB, check=True)[0] == 201 and ask(client, "reset", WEB)[0] == 403
    world.policy.write_text("[]")
    assert ask(client, "start", WEB, check=True)[0] == 403


def test_a_login_by_a_header_is_none(site: tuple[Site, TestClient]) -> None:
    """Headers of a proxy are heard on the proxy's own socket only."""
    _site, client = site
    for name in ("x-remote-user", "remote-user", "x-corral-user", "x-forwarded-user"):
        assert client.get("/api/me", headers={name: "alice"}).json() == {}
        assert client.post("/api/login/proxy", json={}, headers={name: "alice"}).status_code in (404, 405)
    log_in(client, "bob")
    client.post("/api/logout", json={}, headers={"x-corral-address": "192.0.2.1"})
    assert "192.0.2.1" not in client.get("/api/audit").text


class Proxied:
    """The policy process as a proxy sees it."""

    def __init__(self, world: World) -> None:
        object.__setattr__(
            world.policy_config, "proxy", {"user": "root", "user_header": "X-User", "groups_header": "X-G"}
        )
        self.client = TestClient(
            policy_server.proxy_application(world.desk), base_url="https://x", follow_redirects=False
        )

    def log_in(self, **headers: str) -> t.Any:
        return self.client.get(
            "/api/login/proxy", headers={name.replace("_", "-"): value for name, value in headers.items()}
        )


def test_a_proxy_logs_users_in(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    proxy = Proxied(world)
    answer = proxy.log_in(x_user="dora", x_g="web-team, others")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].partition(";")[0].partition("=")[2]
    client.cookies.set(COOKIE, cookie, domain=NAME)
    me = client.get("/api/me").json()
    assert (me["user"], me["groups"]) == ("dora", ["others", "web-team"]) and "start" in me["may"]
    assert proxy.log_in().status_code == proxy.log_in(x_user="a b").status_code == 403
    assert client.post("/api/login", json={"user": "dora", "password": ""}).status_code == 403
    assert [route.path for route in t.cast(t.Any, proxy.client.app).routes] == ["/api/login/proxy"]


def test_only_the_web_process_is_heard(tmp_path: Path, world: World) -> None:
    path = tmp_path / "other"

    async def told() -> None:
        await PolicyClient(path).ask("GET", "/api/me")

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        server = policy_server.server(world.desk, {os.getuid() + 1: policy_server.application(world.desk)})
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        until(lambda: server.started)
        with pytest.raises(Unavailable):
            asyncio.run(told())
        server.should_exit = True
        thread.join(10)


def test_without_the_policy_process_nothing_is_allowed(world: World, site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    made.policy._path = world.folder / "missing"
    made.forget()
    assert client.get("/api/jobs").status_code == client.get("/api/events").status_code == 503
    assert client.post("/api/login", json={"user": "alice", "password": PASSWORD}).status_code == 503
    assert client.get("/").status_code == 200, "the page can say so"


def test_a_slow_request_ends(site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that never ends does not keep a handler for ever."""
    monkeypatch.setattr(answers, "BODY_S", 0.1)

    async def dribble() -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, t.Any]:
            await asyncio.sleep(0.05)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: dict[str, t.Any]) -> None:
            statuses.append(message.get("status", 0))

        headers = [
            (b"host", NAME.encode()),
            (b"origin", f"https://{NAME}".encode()),
            (b"content-type", b"application/json"),
        ]
        scope = {"type": "http", "method": "POST", "path": "/api/login", "headers": headers, "query_string": b""}
        await asyncio.wait_for(
            t.cast(t.Any, client.app)({**scope, "http_version": "1.1", "scheme": "https"}, receive, send), 5
        )
        return statuses[0]

    _made, client = site
    assert asyncio.run(dribble()) == 408
