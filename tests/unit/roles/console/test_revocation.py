"""What is revoked ends everywhere: sessions, tokens and pages."""

from __future__ import annotations

import json
import typing as t

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.roles.console.files.corral_console import limits, policy
from ansible_collections.corral.virt.roles.console.files.corral_console.accounts import User
from ansible_collections.corral.virt.roles.console.files.corral_console.database import Database
from ansible_collections.corral.virt.roles.console.files.corral_console.desk import Desk
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.roles.console.files.corral_console.tokens import Tokens
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    NAME,
    POLICY,
    USERS,
    World,
    browser,
    log_in,
    site,
    world,
)

__all__ = ["site", "world"]

CAROL: dict[str, t.Any] = USERS[2]
TOTP = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
DAY = 86400


def program(client: TestClient, name: str = "script") -> TestClient:
    """One with a token of the user who is logged in."""
    value = client.post("/api/tokens", json={"name": name}).json()["token"]
    return TestClient(client.app, base_url=f"https://{NAME}", headers={"authorization": f"Bearer {value}"})


def entered(site: tuple[Site, TestClient], user: str) -> tuple[TestClient, TestClient]:
    client = browser(site[1].app)
    log_in(client, user)
    return client, program(client)


def is_in(site: tuple[Site, TestClient], *clients: TestClient) -> list[bool]:
    site[0].forget()  # what is asked again after seconds
    return [each.get("/api/me").json() != {} for each in clients]


@pytest.mark.parametrize(
    "change", [{"password": "another battery"}, {"totp": TOTP}, {"groups": []}, {"state": "absent"}], ids=str
)
def test_a_change_of_a_user_ends_sessions_and_tokens(
    world: World, site: tuple[Site, TestClient], change: dict[str, t.Any]
) -> None:
    page, script = entered(site, "carol")
    others = entered(site, "bob")
    assert is_in(site, page, script, *others) == [True] * 4
    world.desk.accounts.converge([{**CAROL, **change}], write=False)
    assert is_in(site, page, script) == [True] * 2, "a check writes nothing"
    world.desk.accounts.converge([{**CAROL, **change}], write=True)
    assert is_in(site, page, script, *others) == [False, False, True, True]


def test_a_further_group_ends_nothing(world: World, site: tuple[Site, TestClient]) -> None:
    clients = entered(site, "carol")
    world.desk.accounts.converge([{**CAROL, "groups": ["web-team", "watchers"]}], write=True)
    assert is_in(site, *clients) == [True, True]


def test_a_group_that_a_proxy_tells_no_more_ends_what_was_begun_with_it(
    world: World, site: tuple[Site, TestClient]
) -> None:
    desk = world.desk
    dora = desk.accounts.admit("dora", ["admins", "ops"])
    session, token = desk.sessions.begin(dora, address="", agent=""), desk.tokens.make(dora, "x", 1)
    desk.accounts.admit("dora", ["admins", "ops", "more"])
    assert desk.sessions.find(session) and desk.tokens.find(token)
    desk.accounts.admit("dora", ["ops"])
    assert desk.sessions.find(session) is None and desk.tokens.find(token) is None


def test_a_policy_that_gives_less_ends_sessions_and_tokens_of_those(
    world: World, site: tuple[Site, TestClient]
) -> None:
    carol, bob = entered(site, "carol"), entered(site, "bob")
    wider = {**POLICY[2], "may": [*POLICY[2]["may"], "reboot"], "guests": ["web*", "db*"]}
    world.policy.write_text(json.dumps([*POLICY[:2], wider]))
    until(lambda: "reboot" in carol[0].get("/api/me").json()["may"])
    held = world.folder / "rights.json"
    until(lambda: "reboot" in held.read_text())
    assert is_in(site, *carol, *bob) == [True] * 4
    world.policy.write_text("{")
    assert is_in(site, *carol, *bob) == [True] * 4, "of one that is wrong, the one before holds"
    world.policy.write_text(json.dumps(POLICY))
    until(lambda: is_in(site, *carol, *bob) == [False, False, True, True])
    assert [line["user"] for line in world.desk.audit.read(None, 20) if line["audit"] == "rights lowered"] == ["carol"]


def test_nor_is_a_policy_forgotten_that_changed_while_nothing_ran(world: World) -> None:
    carol = User("carol", ("web-team",))
    world.desk.apply_policy()
    token = world.desk.tokens.make(carol, "x", 1)
    world.policy.write_text(json.dumps(POLICY[:2]))
    again = Desk(world.policy_config)
    again.apply_policy()
    assert again.tokens.find(token) is None


@pytest.mark.parametrize(
    ("before", "after", "less"),
    [
        ({"may": ["start"]}, {"may": "*"}, False),
        ({"may": "*"}, {"may": ["start"]}, True),
        ({"may": ["start"], "guests": "a*"}, {"may": ["start"]}, False),
        ({"may": ["start"]}, {"may": ["start"], "guests": "a*"}, True),
        ({"may": ["start"], "tags": "a"}, {"may": ["start"], "tags": "b"}, True),
        ({"may": ["create"], "at_most": {"vcpus": 4}}, {"may": ["create"], "at_most": {"vcpus": 2}}, True),
        ({"may": ["create"], "at_most": {"vcpus": 4}}, {"may": ["create"], "at_most": {"vcpus": 8}}, False),
        ({"may": ["create"], "at_most": {"memory": "8GiB"}}, {"may": ["create"], "at_most": {"memory": 8193}}, False),
        ({"may": ["create"], "at_most": {"memory": "8GiB"}}, {"may": ["create"], "at_most": {"memory": 8191}}, True),
        ({"may": ["create"], "at_most": {"vcpus": 4}}, {"may": ["create"]}, True),
        ({"may": ["create"]}, {"may": ["create"], "at_most": {"vcpus": 4}}, True),
        ({"may": ["create"], "arguments": {"image": "*"}}, {"may": ["create"]}, True),
        ({"may": ["create"], "arguments": {"image": "*"}}, {"may": "*"}, False),
        ({"may": ["create"]}, {"may": "*", "at_most": {"vcpus": 2}}, True),
    ],
)
def test_whether_a_rule_gives_less(before: dict[str, t.Any], after: dict[str, t.Any], less: bool) -> None:
    old, new = (policy.parsed([{"who": "user:a", **each}]) for each in (before, after))
    assert limits.gives_less(old, new) is less
    assert not limits.gives_less(old, [*new, *old]) and not limits.gives_less([], new)


def test_no_token_lives_longer_than_the_limit_whenever_it_was_made(world: World) -> None:
    now = [1_700_000_000.0]
    database = Database(world.folder / "console.db")
    earlier = Tokens(database, most_days=3650, clock=lambda: now[0])
    tokens = Tokens(database, most_days=90, clock=lambda: now[0])
    carol = User("carol", ("web-team",))
    old, new = earlier.make(carol, "old", 3650), tokens.make(carol, "new", 3650)
    assert {each["expires"] for each in tokens.of(carol)} == {int(now[0]) + 90 * DAY}
    now[0] += 89 * DAY
    assert tokens.find(old) and tokens.find(new)
    now[0] += DAY
    assert tokens.find(old) is None and tokens.find(new) is None and tokens.of(carol) == []
    assert tokens.make(carol, "again", 1) and len(tokens.of(carol)) == 1


def test_a_token_is_not_made_for_ten_years(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "carol")
    answer = client.post("/api/tokens", json={"name": "x", "days": 3650})
    assert answer.status_code == 400 and "1 to 90" in answer.json()["errors"]["days"]
    object.__setattr__(world.policy_config, "token_days", 7)
    assert Desk(world.policy_config).tokens.most_days == 7


def test_who_has_the_right_sees_and_ends_sessions_and_tokens_of_others(site: tuple[Site, TestClient]) -> None:
    admin, _script = entered(site, "alice")
    page, script = entered(site, "carol")
    other = program(page, "other")
    listed = {user["name"]: user for user in admin.get("/api/users").json()}["carol"]
    tokens = {token["name"]: token for token in listed["tokens"]}
    assert tokens.keys() == {"script", "other"} and len(listed["sessions"]) == 1
    assert admin.post("/api/tokens/end", json={"id": tokens["other"]["id"]}).status_code == 200
    assert is_in(site, page, script, other) == [True, True, False]
    assert admin.post("/api/tokens/end", json={"user": "carol"}).json() == {"ended": 1}
    assert admin.post("/api/sessions/end", json={"user": "carol"}).json() == {"ended": 1}
    assert is_in(site, page, script, admin) == [False, False, True]
    assert {(line["audit"], line.get("of")) for line in admin.get("/api/audit?limit=3").json()} == {
        ("end token", "carol"),
        ("end all tokens", "carol"),
        ("end all sessions", "carol"),
    }


def test_who_has_not_ends_only_their_own(site: tuple[Site, TestClient]) -> None:
    carol, script = entered(site, "carol")
    bob, his = entered(site, "bob")
    for kind in ("sessions", "tokens"):
        assert bob.post(f"/api/{kind}/end", json={"user": "carol"}).status_code == 403
        assert bob.post(f"/api/{kind}/end", json={"id": carol.get(f"/api/{kind}").json()[0]["id"]}).status_code == 404
    second, _more = entered(site, "bob")
    assert bob.post("/api/sessions/end", json={"user": "bob"}).json() == {"ended": 1}
    assert bob.post("/api/tokens/end", json={"user": "bob"}).json() == {"ended": 2}
    assert is_in(site, carol, script, bob, his, second) == [True, True, True, False, False], "not the one that asks"
