"""The record of the console through its real services: what may be in it, where its copies go, and what is damaged."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.console_services import (
    Services,
)
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path)
    try:
        made.prepare()
        yield made
    finally:
        made.close()


def post(services: Services, path: str, body: bytes, *more: bytes) -> bytes:
    address = f"127.0.0.1:{services.port}".encode()
    lines = [
        b"POST %s HTTP/1.1" % path.encode(),
        b"Host: " + address,
        b"Origin: https://" + address,
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
        *more,
    ]
    return services.send(b"\r\n".join([*lines, b"", body])).partition(b"\r\n")[0]


def test_no_request_makes_the_record_unreadable(services: Services) -> None:
    services.start()
    cookie = services.log_in()
    session = b"Cookie: " + cookie.encode()
    for body in (
        b'{"user": "\\ud800"}',
        b'{"user": NaN}',
        b'{"user": 1e999}',
        b'{"user": "a\\u0000"}',
        b"\xff",
        b"[" * 9999,
    ):
        assert b" 400 " in post(services, "/api/login", body), body
        assert b" 400 " in post(services, "/api/jobs", b'{"action": "create", "arguments": ' + body + b"}", session)
    login = json.dumps({"user": "alice", "password": "correct horse battery"}).encode()
    assert b" 200 " in post(services, "/api/login", login, b"User-Agent: Br\xc3\xa9wser \xff")
    assert b" 400 " in post(services, "/api/login", login, b"User-Agent: a\x1bb")
    assert b" 400 " in post(services, "/api/login?x=%ff", login)
    for path in ("/api/audit", "/api/jobs", "/api/sessions"):
        assert services.ask("GET", path, cookie=cookie).status == 200
    assert "Traceback" not in services.log("policy") + services.log("serve")


def test_the_services_start_with_damaged_files(services: Services) -> None:
    services.start()
    cookie = services.log_in()
    job = services.start_job(cookie).content["id"]
    services.go.touch()
    until(lambda: services.ask("GET", f"/api/jobs/{job}", cookie=cookie).content["state"] == "succeeded")
    services.stop()
    (services.jobs / "jobs" / job / "result.json").write_text('{"state": "succ')
    (services.jobs / "jobs" / "lost+found").mkdir()
    (services.web / "history.db").write_bytes(b"no database " * 1000)
    services.start()
    found = services.ask("GET", f"/api/jobs/{job}", cookie=cookie).content
    assert found["state"] == "unreadable" and str(services.jobs / "jobs" / job) in found["error"]
    until(lambda: any("history.db" in each for each in services.problems(cookie)))
    assert (services.jobs / "jobs" / "lost+found").is_dir()


def test_each_line_of_the_audit_goes_to_the_copies(services: Services) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        services.start(audit_file=services.folder / "missing" / "audit.log", audit_syslog=target)
        cookie = services.log_in()
        server.settimeout(20)
        connection = server.accept()[0]
        connection.settimeout(20)
        assert b'"audit": "login", "user": "alice"' in connection.recv(65536)
        until(lambda: any("audit.log" in each for each in services.problems(cookie)))
        assert services.ask("GET", "/api/audit", cookie=cookie).content[0]["audit"] == "login", "its own is not lost"
        (services.folder / "missing").mkdir()
        until((services.folder / "missing" / "audit.log").exists)
        until(lambda: services.problems(cookie) == [])
        assert '"login"' in (services.folder / "missing" / "audit.log").read_text()
        connection.close()
