"""Attempts to log in: who guesses is stopped, and nobody else is."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.roles.console.files.corral_console import throttle
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    ORIGIN,
    PASSWORD,
    USERS,
    World,
    log_in,
    site,
    started,
    world,
)

__all__ = ["site", "world"]

CHANGED = f"{PASSWORD} 2"


def at(client: TestClient, address: str) -> TestClient:
    """A browser of its own, at an address."""
    headers = {"origin": ORIGIN}
    return TestClient(client.app, base_url=ORIGIN, headers=headers, client=(address, 50000))


def guess(client: TestClient, *addresses: str, user: str = "alice", times: int = 20) -> list[int]:
    return [log_in(at(client, address), user, "wrong") for address in addresses for _each in range(times)]


def test_two_who_guess_do_not_lock_out_the_user_at_a_third_address(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    assert guess(client, "192.0.2.1", "198.51.100.2", times=15) == [403] * 30
    assert log_in(at(client, "203.0.113.3")) == 200


def test_attempts_that_are_refused_unseen_are_told_once_with_their_number(
    world: World, site: tuple[Site, TestClient]
) -> None:
    """Each line of the audit waits for the disk, and so would everybody."""
    _site, client = site
    assert guess(client, "192.0.2.1", times=40) == [403] * 20 + [429] * 20
    told = [line for line in world.desk.audit.read(None, 100) if line.get("reason") == "too many attempts"]
    assert [line["times"] for line in told] == [1]
    now = 0.0
    refused = throttle.Refused(keys=2, clock=lambda: now)
    assert [refused.count("192.0.2.1") for _each in range(4)] == [1, 0, 0, 0]
    assert refused.count("198.51.100.1") == 1
    now = 61.0
    assert [refused.count("192.0.2.1") for _each in range(2)] == [4, 0]
    assert [refused.count(f"2001:db8::{number}") for number in (1, 2)] == [1, 0]
    assert refused.count("198.51.100.1") == 1, "only so many are remembered"


def test_many_who_guess_are_stopped_and_known_devices_and_addresses_are_not(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    device, home = at(client, "192.0.2.10"), "2001:db8:1:2::5"
    assert log_in(device) == log_in(at(client, home)) == 200
    guess(client, *(f"198.51.100.{number}" for number in range(5)))
    assert guess(client, "203.0.113.1", times=1) == [429], "the account is guessed at from everywhere"
    moved = at(client, "203.0.113.3")
    moved.cookies.update(device.cookies)
    moved.post("/api/logout", json={})
    assert log_in(moved) == 200, "a device that was logged in before"
    assert log_in(at(client, "2001:db8:1:2:ffff::9")) == 200, "the network of an address that was"
    assert log_in(at(client, "2001:db8:1:3::5")) == 429
    assert log_in(at(client, "203.0.113.4"), "bob") == 200, "other accounts are apart"


def test_guesses_at_one_address_do_not_stop_a_known_device_there(site: tuple[Site, TestClient]) -> None:
    """Behind a proxy, everybody comes from one address."""
    _site, client = site
    device = at(client, "127.0.0.1")
    assert log_in(device, "bob") == 200
    assert guess(client, "127.0.0.1", times=21)[-1] == 429
    assert log_in(device, "bob") == 200
    assert log_in(device, "carol") == 429, "it is known of one user"


def test_a_known_device_may_not_guess_on(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    device = at(client, "192.0.2.10")
    assert log_in(device) == 200
    tries = [log_in(device, "alice", "wrong") for _each in range(30)]
    assert tries[0] == 403 and tries[-1] == 429 and log_in(device) == 429
    assert log_in(at(client, "203.0.113.3")) == 200


def test_a_device_is_forgotten_with_a_new_password(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    device = at(client, "192.0.2.10")
    assert log_in(device) == 200
    world.desk.accounts.converge([{**USERS[0], "password": CHANGED}], write=True)
    guess(client, *(f"198.51.100.{number}" for number in range(5)))
    moved = at(client, "203.0.113.3")
    moved.cookies.update(device.cookies)
    assert log_in(moved, "alice", CHANGED) == 429
    assert log_in(at(client, "192.0.2.10"), "alice", CHANGED) == 429, "nor is its address known any more"


def test_a_device_that_is_made_up_is_none(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    device = at(client, "192.0.2.10")
    assert log_in(device, "bob") == 200
    value = device.cookies["__Host-corral-device"]
    guess(client, *(f"198.51.100.{number}" for number in range(5)))
    for number, odd in enumerate((value, f"{value}x", "x", "", ".", "a.b.c", "9" * 5000)):
        forged = at(client, f"203.0.113.{number}")
        forged.headers["cookie"] = f"__Host-corral-device={odd}"
        assert log_in(forged) == 429, odd


def test_a_proxy_tells_who_guesses_and_nobody_else_does(world: World) -> None:
    """Else all browsers behind it would be stopped with the one that guesses; nor may a browser say who it is."""
    config = dataclasses.replace(world.config(), address_header="X-Forwarded-For")
    for _site, client in started(config):
        near, far = (TestClient(client.app, base_url=ORIGIN, client=(each, 1)) for each in ("127.0.0.1", "192.0.2.9"))

        def tried(browser: TestClient, told: str) -> int:
            headers = {"origin": ORIGIN, "x-forwarded-for": told}
            given = {"user": "alice", "password": "wrong"}
            return browser.post("/api/login", json=given, headers=headers).status_code

        assert [tried(near, "203.0.113.1, 198.51.100.1") for _each in range(21)][-1] == 429
        assert tried(near, "203.0.113.1, 198.51.100.2") == 403
        assert [tried(near, odd) for odd in ("x", "", "1.2.3", "::g")] == [403] * 4
        assert [tried(far, f"198.51.100.{number}") for number in range(21)][-1] == 429


def test_logins_that_wait_leave_threads_to_users(
    world: World, site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is hashed at a time: attempts from everywhere would take all threads of the policy process."""
    _site, client = site
    log_in(client)
    waits = threading.Event()
    monkeypatch.setattr(world.desk.accounts, "check", lambda *_given: waits.wait(20) and None)
    guesses = [
        threading.Thread(target=guess, args=(client, f"198.51.100.{number}"), kwargs={"times": 1})
        for number in range(60)
    ]
    for each in guesses:
        each.start()
    time.sleep(1)
    started_at = time.monotonic()
    assert client.get("/api/jobs").status_code == 200  # in a thread of the policy process
    assert time.monotonic() - started_at < 5
    waits.set()
    for each in guesses:
        each.join(20)


def test_the_cookie_of_a_device_logs_nobody_in(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    answer = at(client, "192.0.2.10").post("/api/login", json={"user": "alice", "password": PASSWORD})
    (words,) = (each for each in answer.headers.get_list("set-cookie") if "-device=" in each)
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= set(words.lower().split("; "))
    device = at(client, "192.0.2.10")
    device.headers["cookie"] = words.partition(";")[0]
    assert device.get("/api/me").json() == {} and device.get("/api/jobs").status_code == 401


def test_what_is_known_of_attempts_is_bounded() -> None:
    attempts = throttle.Attempts(keys=50)
    for number in range(1000):
        attempt = throttle.Attempt(f"user{number}", f"192.0.2.{number}", "")
        attempts.count(attempt)
        attempts.succeeded(attempt)
    assert max(len(attempts.known), *map(len, attempts.limits)) <= 50
