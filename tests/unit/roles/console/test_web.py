"""Requests to the console, with libvirt's test driver behind it: who gets which answer."""

from __future__ import annotations

import json
import logging
import sys
import typing as t
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from ansible_collections.corral.virt.roles.console.files.corral_console import consoles, openapi
from ansible_collections.corral.virt.roles.console.files.corral_console import site as place
from ansible_collections.corral.virt.roles.console.files.corral_console.answers import COOKIE
from ansible_collections.corral.virt.roles.console.files.corral_console.config import Host
from ansible_collections.corral.virt.roles.console.files.corral_console.guard import HEADERS
from ansible_collections.corral.virt.roles.console.files.corral_console.history import Sample
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    GUEST,
    NAME,
    PASSWORD,
    World,
    browser,
    log_in,
    started,
    world,
)

__all__ = ["world"]

SOCKET = f"wss://{NAME}/api/console"
ECHO = """
import os, sys
os.write(1, b"ok\\n")
os.write(1, sys.argv[1].encode() + b"\\n")
while (line := os.read(0, 100)) not in (b"end\\n", b""):
    os.write(1, line)
"""
FAILS = "import sys; print('error: the display is in use')"
LACKS = "print('error: the guest has no VNC display; set graphics: {type: vnc}')"
BREAKS = "import sys; print('Permission denied', file=sys.stderr); sys.exit(255)"


@pytest.fixture
def site(world: World) -> Iterator[tuple[Site, TestClient]]:
    yield from started(world.config((sys.executable, "-c", ECHO)))


def get_ticket(client: TestClient, kind: str = "vnc", uuid: str = GUEST) -> tuple[int, dict[str, t.Any]]:
    answer = client.post("/api/tickets", json={"uuid": uuid, "kind": kind})
    return answer.status_code, answer.json()


FREE = {"/", "/static/{path:path}", "/api/login", "/api/me", "/api/console"}


def test_nothing_without_a_session(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    for route in client.app.routes:  # type: ignore[attr-defined]
        if route.path in FREE:
            continue
        path = route.path.format(host="hyper1", uuid=GUEST, id="x")
        for method in route.methods - {"HEAD"}:
            answer = client.request(method, path, json={})
            assert answer.status_code == 401 and answer.json() == {"error": "log in first"}, path
    assert client.get("/api/me").json() == {}
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"{SOCKET}?ticket=x"):
        pass


def test_the_description_has_every_request(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    routes = {
        (method.lower(), route.path)
        for route in client.app.routes  # type: ignore[attr-defined]
        for method in getattr(route, "methods", ())
    }
    described = {operation[:2] for operation in openapi.OPERATIONS}
    assert {(method, path) for method, path in routes if path.startswith("/api/") and method != "head"} == described
    log_in(client)
    assert client.get("/api/openapi.json").json()["components"]["schemas"]["migrate"]["properties"]["to"]


def test_targets_history_and_images_of_the_live_state(site: tuple[Site, TestClient]) -> None:
    server, client = site
    log_in(client)
    (target,) = client.get(f"/api/targets?guest={GUEST}").json()
    assert target == {"host": "hyper1", "refusal": "test is there"}
    assert client.get("/api/targets?guest=nobody").status_code == 404
    server.history.add([Sample(GUEST, 12.5)])
    assert client.get(f"/api/history/hyper1/{GUEST}?span=hour").json()["cpu"] == [12.5]
    assert client.get(f"/api/history/hyper1/{GUEST}?span=year").status_code == 404
    assert client.get("/api/history/hyper9").status_code == 404
    assert client.get("/api/images").json() == []


def test_every_answer_has_the_headers(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    for answer in (client.get("/"), client.get("/nothing"), client.post("/api/login", content="x")):
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_the_cookie_is_the_strictest(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    answer = client.post("/api/login", json={"user": "alice", "password": PASSWORD})
    words = answer.headers["set-cookie"].lower().split("; ")
    assert words[0].startswith("__host-corral=") and {"httponly", "secure", "samesite=strict", "path=/"} <= set(words)
    assert not any(word.startswith("domain") for word in words)


def test_requests_of_other_sites_are_refused(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client)
    for origin in ("https://evil.example", f"http://{NAME}", f"https://{NAME}:444", "null", ""):
        assert client.post("/api/logout", json={}, headers={"origin": origin}).status_code == 403
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"{SOCKET}", headers={"origin": origin}):
            pass
    del client.headers["origin"]
    assert client.post("/api/logout", json={}).status_code == 403
    assert client.get("/api/me").json()["user"] == "alice"


def test_another_name_is_refused(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    for name in ("evil.example", f"{NAME}.evil.example", ""):
        assert client.get("/", headers={"host": name}).status_code == 421


def test_a_browser_is_told_to_stay_with_https_and_to_keep_its_devices(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    headers = client.get("/").headers
    assert int(headers["strict-transport-security"].removeprefix("max-age=")) >= 180 * 86400
    assert {"camera=()", "microphone=()", "geolocation=()"} <= set(headers["permissions-policy"].split(", "))


def test_links_that_lead_nowhere_end_in_words(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    for path in ("/nothing", f"/guest/hyper1/{GUEST}", "/static/none.js", "/<script>x"):
        answer = client.get(path)
        assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html")
        assert '<a href="/">' in answer.text and "There is no page" in answer.text and "script>" not in answer.text
    for method, path, status in (
        ("GET", "/api/nothing", 404),
        ("GET", "/api/login", 405),
        ("POST", "/api/jobs/x/log", 405),
    ):
        answer = client.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == status and answer.json()["error"], path
    assert "POST" in client.get("/api/login").headers["allow"]


@pytest.mark.parametrize("path", ["%2e%2e", "%2e%2e/web.py", "../web.py", "lib/../../web.py", "/etc/passwd", "%00"])
def test_no_path_leads_out(site: tuple[Site, TestClient], path: str) -> None:
    _site, client = site
    answer = client.get(f"/static/{path}")
    assert answer.status_code == 404 and "import" not in answer.text


def test_files_are_not_sent_twice(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    for path in ("/", "/static/page.js", "/static/lib/some.js"):
        answer = client.get(path)
        assert answer.status_code == 200
        again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 403),
        (b"[]", 400),
        (b"{", 400),
        (b'{"user": {"a": 1}, "password": ["x"]}', 403),
        (b"[" * 10_000, 400),
        (b'{"user": "' + b"x" * 70_000 + b'"}', 413),
    ],
)
def test_odd_bodies(site: tuple[Site, TestClient], content: bytes, status: int) -> None:
    _site, client = site
    given = {"content-type": "application/json"}
    assert client.post("/api/login", content=content, headers=given).status_code == status
    chunks = iter([content[:5], content[5:]])  # without a length
    assert client.post("/api/login", content=chunks, headers=given).status_code == status
    assert client.post("/api/login", content=content, headers={"content-type": "text/plain"}).status_code == 415


def test_login_is_limited(site: tuple[Site, TestClient], caplog: pytest.LogCaptureFixture) -> None:
    _site, client = site
    with caplog.at_level(logging.INFO):
        tries = [log_in(client, "alice", "wrong") for _each in range(21)]
    assert tries == [403] * 20 + [429]
    assert log_in(client) == 429
    lines = [json.loads(record.message) for record in caplog.records if "audit" in record.message]
    assert len(lines) == 21 and not any(line["allowed"] for line in lines) and "wrong" not in caplog.text


def test_many_may_log_in_from_one_address_but_not_to_guess_on(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    assert [log_in(client) for _each in range(25)] == [200] * 25
    tries = [(log_in(client, "alice", "wrong"), log_in(client)) for _each in range(20)]
    assert tries[:19] == [(403, 200)] * 19
    assert log_in(client, "alice", "wrong") == 429, "a success takes back no failure"


def test_a_login_is_a_new_session_and_logout_ends_it(world: World, site: tuple[Site, TestClient]) -> None:
    _site, client = site
    client.cookies.set(COOKIE, "chosen by somebody else", domain=NAME)
    assert log_in(client) == 200
    first = client.cookies[COOKIE] if len(client.cookies) == 1 else dict(client.cookies)[COOKIE]
    assert first != "chosen by somebody else"
    assert log_in(client) == 200
    assert world.desk.sessions.find(first) is None, "the earlier one ends"
    assert len(client.get("/api/sessions").json()) == 1
    client.post("/api/logout", json={})
    assert client.get("/api/me").json() == {}


def test_sessions_are_ended_by_their_user_only(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "carol")
    other = browser(client.app)
    log_in(other, "bob")
    (session,) = other.get("/api/sessions").json()
    assert client.post("/api/sessions/end", json={"id": session["id"]}).status_code == 404
    assert other.post("/api/sessions/end", json={"id": session["id"]}).status_code == 200
    assert other.get("/api/me").json() == {} and "console" in client.get("/api/me").json()["may"]


def test_hosts_and_guests_are_described(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client, "bob")
    guest = client.get(f"/api/hosts/hyper1/guests/{GUEST}").json()
    assert (guest["name"], guest["disks"][0]["target"], guest["snapshots"]) == ("test", "vda", [])
    host = client.get("/api/hosts/hyper1").json()
    assert host["pools"][0]["name"] == "default-pool" and "xml" not in host["pools"][0]
    for path in ("hyper2", "hyper1/guests/x", f"hyper2/guests/{GUEST}", "..%2f..", f"hyper1/guests/{GUEST[:-1]}0"):
        assert client.get(f"/api/hosts/{path}").status_code == 404


def test_a_console_carries_bytes_both_ways(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client)
    status, answer = get_ticket(client, "serial")
    assert (status, answer["host"]) == (200, "hyper1")
    with client.websocket_connect(f"{SOCKET}?ticket={answer['ticket']}") as socket:
        assert socket.receive_text() == "ok"
        assert socket.receive_bytes() == f"{answer['ticket']}\n".encode()
        socket.send_bytes(b"hello\n")
        assert socket.receive_bytes() == b"hello\n"
        socket.send_bytes(b"end\n")
        with pytest.raises(WebSocketDisconnect) as end:
            socket.receive_bytes()
    assert end.value.code == 4000


def refused(client: TestClient, secret: str) -> bool:
    try:
        with client.websocket_connect(f"{SOCKET}?ticket={secret}"):
            return False
    except WebSocketDisconnect:
        return True


def test_a_ticket_opens_nothing_for_others_and_nothing_twice(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    log_in(client)
    thief = browser(client.app)
    log_in(thief)
    secret = get_ticket(client)[1]["ticket"]
    assert refused(thief, secret) and refused(client, secret)
    secret = get_ticket(client)[1]["ticket"]
    assert not refused(client, secret) and refused(client, secret)


def test_who_may_not_open_consoles_gets_no_ticket(
    site: tuple[Site, TestClient], caplog: pytest.LogCaptureFixture
) -> None:
    _site, client = site
    log_in(client, "bob")
    with caplog.at_level(logging.INFO):
        status, answer = get_ticket(client)
    assert status == 403 and "no rule of console_policy allows it" in answer["error"]
    (line,) = (record.message for record in caplog.records if "audit" in record.message)
    assert json.loads(line)["allowed"] is False


def test_no_ticket_for_what_is_not_there(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    assert get_ticket(client, "ssh")[0] == 400
    assert get_ticket(client, uuid="x")[0] == 409
    made.store.update({f"guest/hyper1/{GUEST}": {"uuid": GUEST, "host": "hyper1", "name": "x", "state": "shutdown"}})
    assert get_ticket(client)[0] == 409


@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        (FAILS, 4503, "the display is in use"),
        (BREAKS, 4503, "Permission denied"),
        (LACKS, 4404, "the guest has no VNC display; set graphics: {type: vnc}"),
    ],
)
def test_why_a_console_does_not_open_is_told(
    site: tuple[Site, TestClient], program: str, code: int, reason: str
) -> None:
    """A page does not try again what a code of its own says is so until the guest is changed."""
    made, client = site
    t.cast("dict[str, Host]", made.config.hosts)["hyper1"] = Host("test:///default", (sys.executable, "-c", program))
    log_in(client)
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        with pytest.raises(WebSocketDisconnect) as end:
            socket.receive_text()
    assert (end.value.code, end.value.reason) == (code, reason)


def test_a_host_that_says_something_else_and_stays_is_left(
    site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its ssh would stay with the place of its user, for each console that is tried."""
    made, client = site
    monkeypatch.setattr(consoles, "_ERRORS_S", 0.2)
    stays = "import time; print('hello', flush=True); time.sleep(60)"
    t.cast("dict[str, Host]", made.config.hosts)["hyper1"] = Host("test:///default", (sys.executable, "-c", stays))
    log_in(client)
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        with pytest.raises(WebSocketDisconnect) as end:
            socket.receive_text()
    assert (end.value.code, end.value.reason) == (4503, "the host closed the connection")
    until(lambda: len(made.consoles) == 0)


def _read_all(socket: WebSocketTestSession) -> None:
    while True:
        socket.receive_bytes()


def test_a_console_ends_with_its_session(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        assert socket.receive_text() == "ok"
        client.post("/api/logout", json={})
        with pytest.raises(WebSocketDisconnect):
            _read_all(socket)
    until(lambda: len(made.consoles) == 0)


def test_a_console_ends_with_the_right_to_it(
    world: World, site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_CHECK_S", 0.1)
    _made, client = site
    log_in(client)
    with client.websocket_connect(f"{SOCKET}?ticket={get_ticket(client)[1]['ticket']}") as socket:
        assert socket.receive_text() == "ok"
        world.policy.write_text(json.dumps([{"who": "user:alice", "may": "view"}]))
        with pytest.raises(WebSocketDisconnect):
            _read_all(socket)
    until(lambda: client.get("/api/me").json() == {})
    assert log_in(client) == 200 and client.get("/api/me").json()["may"] == ["view"]


def test_streams_are_bounded(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    made.streams.most = 3
    for user in ("bob", "carol", "dave"):
        made.streams.take(user)
    answer = client.get("/api/events")
    assert answer.status_code == 503 and "all are taken" in answer.json()["error"]
