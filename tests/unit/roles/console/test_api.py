"""Jobs, tokens, users and the audit through both processes: the policy holds whoever asks, and however."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, selection
from ansible_collections.corral.virt.plugins.plugin_utils._commands.hosted_guests import HostedGuest, Hosts
from ansible_collections.corral.virt.roles.console.files.corral_console import (
    answers,
    offers,
    order,
    policy,
    policy_server,
    work,
)
from ansible_collections.corral.virt.roles.console.files.corral_console.answers import COOKIE
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.order import NOT_AVAILABLE
from ansible_collections.corral.virt.roles.console.files.corral_console.policy import Who
from ansible_collections.corral.virt.roles.console.files.corral_console.policy_client import PolicyClient, Unavailable
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.roles.console.files.corral_console.view import HIDDEN, View
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    GUEST,
    NAME,
    PASSWORD,
    POLICY,
    World,
    browser,
    log_in,
    no_jobs,
    started,
    world,
)

__all__ = ["no_jobs", "world"]

WEB, SECRET = "00000000-0000-0000-0000-0000000000e1", "00000000-0000-0000-0000-0000000000e2"


@pytest.fixture
def site(world: World, no_jobs: None) -> Iterator[tuple[Site, TestClient]]:
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
    **{key: {"arguments": {"disk": "data"}} for key in ("add_disk", "remove_disk")},
    **{key: {"arguments": {"nic": "eth1"}} for key in ("add_nic", "remove_nic")},
    "insert_iso": {"arguments": {"iso": "/srv/a.iso"}},
    "create_volume": {"hosts": ["hyper1"], "arguments": {"volume": "a.qcow2", "size": "1GiB"}},
    "resize_volume": {"hosts": ["hyper1"], "arguments": {"volume": "a.qcow2", "size": "2GiB"}},
    "delete_volume": {"hosts": ["hyper1"], "arguments": {"volume": "a.qcow2"}},
    "move_disk": {"arguments": {"disk": "data", "pool": "fast"}},
    "revert": {"arguments": {"snapshot": "a", "run": True, "confirm_snapshot": "a"}},
    "delete_snapshot": {"arguments": {"snapshot": "a"}},
    "drain_pool": {"hosts": ["hyper1"], "arguments": {"pool": "old", "to": ["fast"]}},
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
        guests = [] if action == "create" or actions.action(action).kind != "guest" else [WEB]
        status, answer = ask(client, action, *guests, check=True, **MORE.get(action, {}))
        assert status == (201 if action in allowed else 403), (action, answer)
    if user == "carol":
        assert ask(client, "start", GUEST)[0] == 400, "a guest that the rule is not for"
        assert ask(client, "start", WEB, GUEST)[0] == 400


def hide(made: Site, world: World) -> None:
    """A guest on hyper2, of which carol does not know; on hyper1 she may do some more."""
    secret = {"uuid": SECRET, "host": "hyper2", "name": "db-secret", "state": "running", "tags": ["pay"]}
    made.store.update({f"guest/hyper2/{SECRET}": secret, "host/evil": {"name": "evil", "state": "connected"}})
    more = {"who": "group:web-team", "may": ["create", "rename", "purge"], "hosts": "hyper1"}
    copies = {"arguments": {"clone_of": "*"}}
    world.policy.write_text(json.dumps([*POLICY, {**more, **copies}]))
    world.desk.apply_policy()


def test_no_refusal_tells_that_a_hidden_guest_is_there(world: World, site: tuple[Site, TestClient]) -> None:
    """Whatever names it, the answer is that for a guest that nobody has."""
    made, client = site
    hide(made, world)
    log_in(client, "carol")

    def answers_to(name: str, uuid: str) -> list[t.Any]:
        found: list[t.Any] = [ask(client, action, uuid) for action in ("start", "purge", "rename", "migrate")]
        found += [ask(client, "start", WEB, uuid)]
        for arguments in ({"guest": name}, {"guest": ["web1", name]}, {"guest": f"{name[:5]}*"}, {"tag": "pay"}):
            found.append(client.post("/api/jobs", json={"action": "start", "arguments": arguments}))
        copy = {"guest": "ci-1", "host": "hyper1", "clone_of": name}
        found.append(client.post("/api/jobs", json={"action": "create", "arguments": copy}))
        found.append(client.post("/api/tickets", json={"uuid": uuid, "kind": "vnc"}))
        found.append(client.get(f"/api/targets?guest={uuid}"))
        found.append(client.get(f"/api/hosts/hyper2/guests/{uuid}"))
        told = [each if isinstance(each, tuple) else (each.status_code, each.json()) for each in found]
        return t.cast(
            "list[t.Any]",
            json.loads(json.dumps(told).replace(name[:5], "NAME").replace(name[5:], "").replace(uuid, "UUID")),
        )

    assert answers_to("db-secret", SECRET) == answers_to("no-such-1", "00000000-0000-0000-0000-0000000000e9")


def test_a_pattern_is_for_the_guests_that_the_user_may_view(world: World, site: tuple[Site, TestClient]) -> None:
    """Neither refused because of others, nor about them."""
    _made, client = site
    world.policy.write_text(json.dumps([POLICY[0], {**POLICY[2], "may": ["start"]}]))
    world.desk.apply_policy()
    log_in(client, "carol")
    answer = client.post("/api/jobs", json={"action": "start", "arguments": {"guest": ["*"]}})
    assert answer.status_code == 201
    assert client.get(f"/api/jobs/{answer.json()['id']}").json()["guests"] == [{"uuid": WEB, "name": "web1"}]


def test_a_name_that_is_not_available_is_so_for_one_reason(world: World, site: tuple[Site, TestClient]) -> None:
    """A guest that the user views has it, one that is hidden, or a job of another user gives it."""
    made, client = site
    hide(made, world)
    admin = browser(client.app)
    log_in(client, "carol")
    log_in(admin)
    assert ask(admin, "create", arguments={"guest": "ci-9", "host": "hyper2"})[0] == 201
    cases: list[tuple[str, str, dict[str, t.Any]]] = [
        ("create", "guest", {"arguments": {"host": "hyper1"}}),
        ("create", "guest", {"arguments": {"host": "hyper1"}, "guests": []}),
        ("rename", "to", {"guests": [GUEST]}),
    ]
    for action, argument, given in cases:
        told = []
        for name in ("web1", "db-secret", "ci-9"):
            arguments = {**given.get("arguments", {}), argument: name}
            answer = client.post("/api/jobs", json={"action": action, **given, "arguments": arguments})
            told.append((answer.status_code, answer.json()))
        assert told == [(400, {"error": f"{argument}: {NOT_AVAILABLE}", "errors": {argument: NOT_AVAILABLE}})] * 3
    out_of_reach = {"arguments": {"guest": "db-secret", "host": "hyper2"}}
    assert ask(client, "create", **out_of_reach)[0] == ask(client, "create", arguments={"guest": "x"})[0] == 403


def test_a_job_that_the_user_does_not_see_is_not_named(world: World, site: tuple[Site, TestClient]) -> None:
    made, client = site
    hide(made, world)
    admin = browser(client.app)
    log_in(admin)
    number = ask(admin, "drain", hosts=["hyper1"])[1]["id"]
    log_in(client, "carol")
    status, answer = ask(client, "start", WEB)
    assert status == 409 and number not in answer["error"] and "alice" not in answer["error"]


def test_what_a_job_tells_names_nobody_whom_its_user_may_not_view(world: World, site: tuple[Site, TestClient]) -> None:
    """Ansible sees all hosts and guests, and prints them."""
    made, client = site
    hide(made, world)
    made.store.update({"guest/hyper2/w": {"uuid": "w", "host": "hyper2", "name": "web", "state": "running"}})
    rule = {**POLICY[2], "guests": "web?*", "hosts": "hyper*"}  # a guest called web is hidden, too
    world.policy.write_text(json.dumps([*POLICY[:2], rule]))
    world.desk.apply_policy()
    log_in(client, "carol")
    number = ask(client, "start", WEB)[1]["id"]
    job = t.cast(t.Any, world.desk.jobs.get(number))
    (job.directory / "log").write_text(
        "TASK [Read the guests]\nok: [hyper1]\nok: [evil]\nMAC 52:54:00:00:00:01 belongs to db-secret on evil.\n"
        "fatal: guests web1, db-secret.\nused: /images/db-secret-data.qcow2\nmade: /images/web1-data.qcow2\n"
        "changed: web1\n"
    )
    job.result = {
        "error": "hyper1: web1 cannot start: port 5901 is that of db-secret\nsee the log",
        "report": ["web1 on evil"],
        "plan": {"virt_place": {"evil": {"explained": {"web1": "db-secret is apart"}}}},
    }
    job.state = "failed"
    assert client.get(f"/api/jobs/{number}/log").json()["lines"] == [
        "TASK [Read the guests]",
        "ok: [hyper1]",
        "ok: [(host)]",
        HIDDEN,
        HIDDEN,
        HIDDEN,
        "made: /images/web1-data.qcow2",
        "changed: web1",
    ]
    told = client.get(f"/api/jobs/{number}").json()
    assert told["error"] == f"{HIDDEN}\nsee the log" and told["report"] == ["web1 on (host)"]
    assert "db-secret" not in json.dumps([told, client.get("/api/jobs").json()])
    assert "evil" not in json.dumps([told, client.get("/api/jobs").json()])
    made.store.update({f"job/{number}": {**job.summary(), "error": "db-secret on evil"}})
    view = View(Who("carol", ("web-team",)), policy.parsed([rule]))
    seen = view.of(f"job/{number}", t.cast(t.Any, made.store.get(f"job/{number}")), made.store)
    assert seen is not None and seen["error"] == HIDDEN
    log_in(client, "alice")
    assert "db-secret" in client.get(f"/api/jobs/{number}").json()["error"]


def test_long_words_of_a_log_are_read_in_a_moment() -> None:
    """Guests have a part in logs, and meanwhile nobody else would be served."""
    store = Store()
    store.update({"guest/hyper1/x": {"uuid": "x", "host": "hyper1", "name": "db-secret", "state": "running"}})
    view = View(Who("carol"), policy.parsed([{"who": "user:carol", "may": "view", "guests": "web*"}]))
    plain = ["-" * 64_000, "a." * 32_000, "a-" * 32_000, f"db-{'x-' * 30_000}"]
    began = time.process_time()
    told = view.cleaned({"lines": [*plain, f"db-secret{'.x' * 30_000}"], "user": "alice"}, store)
    assert told["lines"] == [*plain, HIDDEN]
    assert time.process_time() - began < 1


def test_a_job_of_others_does_not_tell_what_they_asked_for(world: World, site: tuple[Site, TestClient]) -> None:
    made, client = site
    hide(made, world)
    made.store.update({"host/hyper2": {"name": "hyper2", "state": "connected"}})
    world.policy.write_text(json.dumps([*POLICY[:2], {**POLICY[2], "hosts": "hyper1"}]))
    world.desk.apply_policy()
    admin = browser(client.app)
    log_in(admin)
    log_in(client, "carol")
    number = ask(admin, "migrate", WEB, arguments={"to": "hyper2"})[1]["id"]
    other = ask(admin, "change", WEB, arguments={"description": "beside db-secret"}, check=True)[1]["id"]
    told = [client.get(f"/api/jobs{path}").json() for path in ("", f"/{number}", f"/{other}")]
    assert number in json.dumps(told) and "hyper2" not in json.dumps(told) and "db-secret" not in json.dumps(told)


def test_a_job_does_not_tell_whether_a_guessed_name_is_one(world: World, site: tuple[Site, TestClient]) -> None:
    """What its user wrote is shown as it is, whoever is called so."""
    made, client = site
    world.policy.write_text(json.dumps([*POLICY[:2], {**POLICY[2], "may": "change", "arguments": {"title": "*"}}]))
    world.desk.apply_policy()
    hidden = {"uuid": SECRET, "host": "hyper2", "name": "db-secret", "state": "running", "tags": []}
    made.store.update({f"guest/hyper2/{SECRET}": hidden})
    log_in(client, "carol")
    number = ask(client, "change", WEB, arguments={"title": "is db-secret there"})[1]["id"]
    job = t.cast(t.Any, world.desk.jobs.get(number))
    (job.directory / "log").write_text("title: is db-secret there\n")
    job.result, job.state = {"error": "title is db-secret there", "report": []}, "failed"
    assert client.get(f"/api/jobs/{number}/log").json()["lines"] == ["title: is db-secret there"]
    assert client.get(f"/api/jobs/{number}").json()["error"] == "title is db-secret there"


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


def test_guests_can_be_named_by_a_pattern_and_each_counts(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    world.policy.write_text(json.dumps([*POLICY, {"who": "group:web-team", "may": "view"}]))
    world.desk.apply_policy()
    log_in(client, "carol")
    assert client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "web*"}, "check": True}).is_success
    assert (
        client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "*"}, "check": True}).status_code
        == 403
    )


ODD = {"a\tb": False, "x\u202ey": False, "web[1]": True, "*": True, "db*\u00e9 z": True, " lead": True, "-dash": True}


def test_one_odd_name_does_not_refuse_all(site: tuple[Site, TestClient]) -> None:
    """What no argument can name is left out, and told."""
    made, client = site
    known = {"host": "hyper1", "state": "shutdown", "tags": []}
    for number, name in enumerate(ODD):
        uuid = f"00000000-0000-0000-0000-0000000001{number:02}"
        made.store.update({f"guest/hyper1/{uuid}": {**known, "uuid": uuid, "name": name}})
    log_in(client)
    answer = client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "*"}})
    assert answer.status_code == 201, answer.text
    job = client.get(f"/api/jobs/{answer.json()['id']}").json()
    assert {guest["name"] for guest in job["guests"]} >= {name for name, named in ODD.items() if named}
    assert set(job["omitted"]) == {name for name, named in ODD.items() if not named}
    found = selection.found(
        actions.action("start"),
        job["arguments"],
        [HostedGuest("hyper1", name, f"uuid-{name}", "shutdown") for name in (*ODD, "web1", "test")],
        Hosts("hyper", ("hyper1",)),
    )
    assert {copy.name for copy in found} == {guest["name"] for guest in job["guests"]}, "each by name, and only these"
    bob = browser(client.app)
    log_in(bob, "bob")
    assert bob.get(f"/api/jobs/{answer.json()['id']}").status_code == 200
    assert client.post(f"/api/jobs/{answer.json()['id']}/cancel", json={}).status_code == 202
    assert client.post(f"/api/jobs/{answer.json()['id']}/again", json={}).status_code == 201


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
    assert ask(client, "start", WEB, check=True)[0] in (400, 401, 403), "the right is gone; the session ends with it"


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


def test_a_copy_is_made_again_and_not_over_a_guest(site: tuple[Site, TestClient]) -> None:
    """The earlier job's arguments name the original, and the name that may be taken by now."""
    made, client = site
    log_in(client)
    number = ask(client, "create", arguments={"guest": "ci-1", "host": "hyper1", "clone_of": "web1"})[1]["id"]
    assert client.post(f"/api/jobs/{number}/cancel", json={}).status_code == 202
    answer = client.post(f"/api/jobs/{number}/again", json={})
    assert answer.status_code == 201, answer.json()
    assert client.post(f"/api/jobs/{answer.json()['id']}/cancel", json={}).status_code == 202
    made.store.update({"guest/hyper1/new": {"uuid": "new", "host": "hyper1", "name": "ci-1", "state": "running"}})
    assert client.post(f"/api/jobs/{number}/again", json={}).json()["errors"] == {"guest": NOT_AVAILABLE}
    assert client.post("/api/jobs/nothing/again", json={}).status_code == 404


def test_a_copy_begins_by_the_rule_that_allowed_it(world: World, site: tuple[Site, TestClient]) -> None:
    """Its tags are those of the guest that is copied."""
    made, client = site
    tagged = {"uuid": WEB, "host": "hyper1", "name": "web1", "state": "running", "tags": ["team-a"]}
    made.store.update({f"guest/hyper1/{WEB}": tagged})
    rule = {"who": "group:web-team", "may": ["create", "view"], "arguments": {"clone_of": "*"}}
    log_in(client, "carol")
    for tag, refusal in (("team-a", ""), ("team-b", "only guests with the tag team-b, not ci-1")):
        world.policy.write_text(json.dumps([*POLICY, {**rule, "tags": tag}]))
        world.desk.apply_policy()
        if not refusal:
            arguments = {"guest": "ci-1", "host": "hyper1", "clone_of": "web1"}
            status, answer = ask(client, "create", arguments=arguments)
            job = world.desk.jobs.get(answer["id"])
        assert status == 201 and job
        told = world.desk._may_begin(job)
        assert told is not None and (refusal in told if refusal else told == "")


def test_no_refusal_tells_that_a_hidden_host_is_there(world: World, site: tuple[Site, TestClient]) -> None:
    _made, client = site
    rule = {"who": "group:web-team", "may": ["create", "migrate", "drain"], "hosts": "hyper1"}
    world.policy.write_text(json.dumps([*POLICY[:2], rule]))
    world.desk.apply_policy()
    log_in(client, "carol")

    def answers_to(host: str) -> str:
        told = [
            ask(client, "migrate", WEB, arguments={"to": host}),
            ask(client, "create", arguments={"guest": "ci-1", "host": host}),
            ask(client, "drain", hosts=[host]),
        ]
        return json.dumps(told).replace(host, "HOST")

    assert answers_to("hyper2") == answers_to("hyper9") and "201" not in answers_to("hyper2")
