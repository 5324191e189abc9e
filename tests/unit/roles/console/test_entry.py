"""What goes in comes out: nothing is taken that cannot be shown, and what is stored already is shown whatever it is."""

from __future__ import annotations

import json
import math
import time
import typing as t
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, selection
from ansible_collections.corral.virt.plugins.plugin_utils._commands.hosted_guests import HostedGuest
from ansible_collections.corral.virt.roles.console.files.corral_console import policy_server, run
from ansible_collections.corral.virt.roles.console.files.corral_console.history import Sample
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import Jobs
from ansible_collections.corral.virt.roles.console.files.corral_console.site import Site
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.roles.console.files.corral_console.strict import written
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.unit.roles.console.processes import (
    GUEST,
    NAME,
    PASSWORD,
    World,
    browser,
    log_in,
    no_jobs,
    site,
    world,
)

__all__ = ["no_jobs", "site", "world"]

pytestmark = pytest.mark.usefixtures("no_jobs")

JSON = {"content-type": "application/json"}
NO_DOCUMENTS = {
    "a number that is infinite": b'{"action": "create", "arguments": {"guest": "ci-1", "vcpus": 1e999}}',
    "Infinity": b'{"action": "create", "arguments": {"guest": "ci-1", "vcpus": Infinity}}',
    "NaN": b'{"action": "create", "arguments": {"guest": "ci-1", "vcpus": NaN}}',
    "a number with too many digits": b'{"arguments": {"vcpus": ' + b"9" * 5000 + b"}}",
    "a number that browsers round": b'{"arguments": {"vcpus": 9007199254740993}}',
    "half of a character": b'{"user": "\\ud800", "password": "x"}',
    "half of a character in a key": b'{"\\udfff": "x"}',
    "NUL": b'{"user": "a\\u0000b", "password": "x"}',
    "an escape character": b'{"user": "a\\u001b[2Jb", "password": "x"}',
    "a C1 control": b'{"user": "a\\u009bb", "password": "x"}',
    "a key twice": b'{"user": "alice", "user": "bob", "password": "x"}',
    "a byte order mark": b'\xef\xbb\xbf{"user": "alice"}',
    "UTF-16": '{"user": "alice"}'.encode("utf-16"),
    "Latin-1": '{"user": "\xe9"}'.encode("latin-1"),
    "a deep list": b'{"user": ' + b"[" * 40 + b"]" * 40 + b"}",
    "a very deep list": b'{"user": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "a list": b"[]",
    "a long key": b'{"' + b"k" * 300 + b'": 1}',
}


def strict(text: str) -> t.Any:
    """As readers other than Python's see it."""

    def refuse(name: str) -> t.NoReturn:
        raise AssertionError(f"{name} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    text.encode()
    json.dumps(found, ensure_ascii=False).encode()
    return found


@pytest.mark.parametrize("path", ["/api/login", "/api/jobs", "/api/tokens"])
def test_what_cannot_come_out_does_not_go_in(site: tuple[Site, TestClient], world: World, path: str) -> None:
    _site, client = site
    log_in(client)
    for what, content in NO_DOCUMENTS.items():
        answer = client.post(path, content=content, headers=JSON)
        assert answer.status_code == 400 and answer.json()["error"].startswith("cannot take the request: "), what
        assert world.desk.jobs.all() == [], what
        for shown in ("/api/audit", "/api/jobs"):
            assert client.get(shown).status_code == 200 and isinstance(strict(client.get(shown).text), list), what


def test_a_web_process_in_other_hands_cannot_store_it_either(world: World) -> None:
    """The policy process checks by itself what comes over its socket."""
    with TestClient(policy_server.application(world.desk)) as client:
        token = world.desk.sessions.begin(world.desk.accounts.all()[0], address="", agent="")
        known = {**JSON, "cookie": f"__Host-corral={token}"}
        for what, content in NO_DOCUMENTS.items():
            assert client.post("/api/login", content=content, headers=JSON).status_code == 400, what
            inside = b'{"request": ' + content + b', "seen": []}'
            assert client.post("/api/jobs", content=inside, headers=known).status_code == 400, what
    assert all(strict(json.dumps(line)) for line in world.desk.audit.read(None, 100))


def test_a_guest_with_an_odd_tag_can_be_acted_on(site: tuple[Site, TestClient]) -> None:
    """libvirt takes texts that no user may send; one of them must not refuse what is about all guests."""
    made, client = site
    log_in(client)
    uuid = "00000000-0000-0000-0000-0000000000e1"
    known = {"uuid": uuid, "host": "hyper1", "name": "web1", "state": "running", "tags": ["o\x85d\x7f"]}
    made.store.update({f"guest/hyper1/{uuid}": known})
    answer = client.post("/api/jobs", json={"action": "start", "arguments": {"guest": "*"}, "check": True})
    assert answer.status_code == 201, answer.text
    strict(client.get("/api/audit").text)


@pytest.mark.parametrize("value", ["inf", "nan", "1e999", "-inf", "9" * 400, "1e999999999"])
def test_a_text_does_not_become_a_number_that_is_none(site: tuple[Site, TestClient], value: str) -> None:
    """Ansible reads "inf" as a number, and NaN is below every limit of a policy."""
    _site, client = site
    log_in(client)
    for argument in ("tolerance", "max_moves"):
        given = {"action": "rebalance", "arguments": {argument: value}, "check": True}
        answer = client.post("/api/jobs", json=given)
        assert answer.status_code == 400, answer.text
    assert strict(client.get("/api/jobs").text) == []


def test_a_text_of_yaml_does_not_become_larger_than_what_was_sent(site: tuple[Site, TestClient]) -> None:
    """Aliases multiply."""
    _site, client = site
    log_in(client)
    levels = [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 9)]
    text = "\n".join(["l0: &l0 xxxxxxxxx", *levels])
    given = {"action": "create", "arguments": {"guest": "ci-1", "cloud_init": text}, "check": True}
    answer = client.post("/api/jobs", json=given)
    assert answer.status_code == 400 and "cloud_init: has a YAML alias" in answer.json()["error"], answer.text


@pytest.mark.parametrize("query", ["guest=%00", "guest=%1b", "guest=%c2%9b", "guest=%ff", "guest=%ed%a0%80"])
def test_an_odd_query_is_refused(site: tuple[Site, TestClient], query: str) -> None:
    _site, client = site
    log_in(client)
    assert client.get(f"/api/jobs?{query}").status_code == 400
    assert client.get(f"/api/targets?{query}").status_code == 400


def test_a_browser_with_an_odd_name_can_log_in(site: tuple[Site, TestClient]) -> None:
    _site, client = site
    given = {"user": "alice", "password": PASSWORD}
    for agent in (b"Br\xc3\xa9wser", b"\xff\x80", b"x" * 5000):
        headers = {"user-agent": agent}
        assert client.post("/api/login", json=given, headers=t.cast(t.Any, headers)).status_code == 200
        assert strict(client.get("/api/sessions").text)


def test_names_of_a_proxy_are_checked(world: World) -> None:
    object.__setattr__(world.policy_config, "proxy", {"user": "root", "user_header": "X-User", "groups_header": "X-G"})
    client = TestClient(policy_server.proxy_application(world.desk), base_url="https://x", follow_redirects=False)
    for user, groups in ((b"a\x1bb", b""), (b"\xed\xa0\x80", b""), (b"alice", b"x\x00y"), (b"alice", b"\xff")):
        answer = client.get("/api/login/proxy", headers=t.cast(t.Any, {"x-user": user, "x-g": groups}))
        assert answer.status_code in (400, 403), answer.text
    assert client.request("GET", "/api/login/proxy", content=b"x" * 1000).status_code == 413
    strict(json.dumps(world.desk.audit.read(None, 100)))


@pytest.mark.parametrize("content", ['{"nonce": "\\ud800", "session": "\\ud800"}', "[" * 1900, '{"expires": NaN}'])
def test_an_odd_ticket_is_refused(site: tuple[Site, TestClient], content: str) -> None:
    import base64

    from starlette.websockets import WebSocketDisconnect

    _site, client = site
    log_in(client)
    whole = {**dict.fromkeys(("nonce", "session", "user", "host", "guest", "kind"), "x"), "expires": 1}
    text = content if content[0] == "[" else json.dumps({**whole, **json.loads(content)})
    ticket = base64.urlsafe_b64encode(text.encode()).decode()
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(f"wss://{NAME}/api/console?ticket={ticket[:1999]}.x"),
    ):
        pass


# What an earlier version has stored, what a disk has damaged, and what somebody has written by hand.
ODD_LINES = [
    '{"audit": "create", "user": "alice", "arguments": {"vcpus": Infinity}}',
    '{"audit": "login", "user": "\\ud800", "allowed": false}',
    '{"audit": "login", "user"',
    "[]",
    "",
    "null",
    "[" * 100_000,
    '{"audit": "login", "id": "x", "time": "y"}',
]


def test_a_bad_line_of_the_audit_hides_no_other(site: tuple[Site, TestClient], world: World) -> None:
    _site, client = site
    log_in(client)
    with world.desk.audit._database.open() as connection:
        connection.executemany("INSERT INTO audit (time, line) VALUES (1, ?)", [(line,) for line in ODD_LINES])
        connection.execute("INSERT INTO audit (time, line) VALUES ('soon', CAST(x'ff00fe' AS TEXT))")
    answer = client.get("/api/audit?limit=100")
    assert answer.status_code == 200
    lines = strict(answer.text)
    assert len(lines) == len(ODD_LINES) + 2 and lines[-1]["audit"] == "login"
    assert {type(line["id"]) for line in lines} == {type(line["time"]) for line in lines} == {int}
    by_id = sorted(lines, key=lambda line: t.cast(int, line["id"]))[1:]
    assert by_id[0]["arguments"]["vcpus"] == "(unreadable): the number inf" and by_id[0]["user"] == "alice"
    assert [line["audit"] for line in by_id[2:7]] == ["unreadable"] * 5 and by_id[2]["content"] == ODD_LINES[2]


def test_a_user_whose_groups_cannot_be_read_hides_no_other(site: tuple[Site, TestClient], world: World) -> None:
    _site, client = site
    log_in(client)
    bob = browser(client.app)
    log_in(bob, "bob")
    for odd in ("{", "null", '["admins", 1]', '{"admins": 1}', "[" * 100_000):
        world.desk.accounts._write("UPDATE users SET groups = ? WHERE name = 'bob'", odd)
        made, _client = site
        made.forget()
        users = {user["name"]: user["groups"] for user in strict(client.get("/api/users").text)}
        assert users["bob"] == [] and users["alice"] == ["admins"]
        assert bob.get("/api/me").json()["may"] == [], "no right comes of it"


GOOD: dict[str, t.Any] = {
    "action": "start",
    "arguments": {"guest": ["test"]},
    "values": {},
    "secret": [],
    "guests": [{"uuid": GUEST, "name": "test"}],
    "expected": [{"name": "test", "uuid": GUEST, "host": "hyper1", "tags": []}],
    "hosts": [],
    "to": "",
    "creates": "",
    "user": "alice",
    "check": False,
    "created": int(time.time()),
    "exclusive": [],
    "shared": [],
}


@pytest.mark.parametrize("host", ["hyper1", "hyper2"])
def test_an_abort_finds_the_guest_where_the_migration_has_left_it(host: str) -> None:
    request = {**GOOD, "action": "migrate", "values": {"guest": "test", "to": "hyper2"}}
    abort = run._aborting(request)
    assert abort
    selection.check_expected(
        actions.action("migrate"), [HostedGuest(host, "test", GUEST, "running")], abort["expected"]
    )


DONE = {"state": "succeeded", "ended": 2, "changed": True}
ODD_JOBS: dict[str, dict[str, bytes]] = {
    "a request that is half of one": {"request.json": b'{"action": "start", "user": "al'},
    "a request that is a list": {"request.json": b"[]"},
    "a request that is empty": {"request.json": b""},
    "a request without arguments": {"request.json": json.dumps({**GOOD, "arguments": None}).encode()},
    "guests that are texts": {"request.json": json.dumps({**GOOD, "guests": ["test"]}).encode()},
    "a request that is not UTF-8": {"request.json": b"\xff\xfe"},
    "a result that is a list": {"result.json": b"[1]"},
    "a result that is half of one": {"result.json": b'{"state": "succ'},
    "a result without a state": {"result.json": b'{"ended": 3}'},
    "a result that still runs": {"result.json": b'{"state": "running"}'},
    "a result that is a number": {"result.json": b"1e999"},
    "a deep result": {"result.json": b'{"state": "failed", "plan": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"},
}
ODD_PARTS: dict[str, dict[str, bytes]] = {
    "numbers that are infinite": {
        "request.json": json.dumps({**GOOD, "arguments": {"vcpus": math.inf}}).encode(),
        "result.json": json.dumps({**DONE, "plan": {"x": [math.nan]}, "error": "\ud800"}).encode(),
    },
    "progress of another kind": {
        "progress.json": b'{"lines": "many", "sequence": null, "task": ["x"], "started": "y"}',
        "result.json": json.dumps({**DONE, "report": "x"}).encode(),
    },
    "progress that is a list": {"progress.json": b"[]", "result.json": json.dumps(DONE).encode()},
    "a request of an older version": {
        "request.json": json.dumps({name: GOOD[name] for name in GOOD if name not in ("shared", "to")}).encode(),
        "result.json": json.dumps(DONE).encode(),
    },
}


def _write_job(folder: Path, number: int, files: t.Mapping[str, bytes]) -> str:
    directory = folder / "jobs" / f"20261101-120000-{number:08x}"
    directory.mkdir(parents=True)
    for name, content in {
        "request.json": json.dumps(GOOD).encode(),
        "log": b"\xff\x00 log\n",
        "lock": b"",
        **files,
    }.items():
        (directory / name).write_bytes(content)
    return directory.name


def test_a_bad_job_hides_no_other_and_is_shown_as_such(site: tuple[Site, TestClient], world: World) -> None:
    _site, client = site
    log_in(client)
    odd = {what: _write_job(world.folder, number, files) for number, (what, files) in enumerate(ODD_JOBS.items())}
    fine = {
        what: _write_job(world.folder, 100 + number, files) for number, (what, files) in enumerate(ODD_PARTS.items())
    }
    world.desk.jobs = Jobs(world.policy_config, world.desk.store)
    world.desk.jobs.look()
    listed = {job["id"]: job for job in strict(client.get("/api/jobs").text)}
    assert listed.keys() == {*odd.values(), *fine.values()}
    for what, number in odd.items():
        found = strict(client.get(f"/api/jobs/{number}").text)
        assert found["state"] == "unreadable" and "cannot read the job" in found["error"], (what, found)
    for what, number in fine.items():
        found = strict(client.get(f"/api/jobs/{number}").text)
        assert (found["state"], found["ended"]) == ("succeeded", 2), (what, found)
    for number in (*odd.values(), *fine.values()):
        assert strict(client.get(f"/api/jobs/{number}/log").text)["lines"] == ["\ufffd\x00 log"]
    assert len(list((world.folder / "jobs").iterdir())) == len(odd) + len(fine), "evidence is not removed at a start"


def test_what_is_no_job_is_left_alone(world: World) -> None:
    for name in ("lost+found", "notes"):
        (world.folder / "jobs" / name).mkdir(parents=True)
    (world.folder / "jobs" / "file").write_text("x")
    Jobs(world.policy_config, Store()).look()
    assert {path.name for path in (world.folder / "jobs").iterdir()} == {"lost+found", "notes", "file"}


def test_an_infinite_figure_of_the_past_is_shown_as_such(site: tuple[Site, TestClient]) -> None:
    made, client = site
    log_in(client)
    made.history.add([Sample(GUEST, math.inf)])
    answer = client.get(f"/api/history/hyper1/{GUEST}")
    assert answer.status_code == 200 and strict(answer.text)["cpu"] == ["(unreadable): the number inf"]


def test_jobs_are_followed_after_a_message_that_cannot_be_read(
    site: tuple[Site, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the page would show them as they were, for ever."""
    from ansible_collections.corral.virt.roles.console.files.corral_console import site as place

    monkeypatch.setattr(place, "_AGAIN_S", 0.05)
    made, client = site
    told = ["data: {", 'data: {"reset": false, "values": {"job/x": []}, "gone": []}', "data: []"]
    real, asked = made.policy.lines, list[str]()

    async def lines(target: str) -> t.AsyncIterator[str]:
        asked.append(target)
        if told:
            yield told.pop()
        else:
            async for line in real(target):
                yield line

    made.policy.lines = lines  # type: ignore[method-assign]
    log_in(client)
    number = client.post("/api/jobs", json={"action": "start", "guests": [GUEST]}).json()["id"]
    until(lambda: made.store.get(f"job/{number}"))


def test_a_hypervisor_cannot_make_a_job_unreadable(tmp_path: Path) -> None:
    """Texts and numbers of results come from modules on hosts."""
    recorder = run.Recorder(tmp_path, check=True)
    deep: t.Any = 1
    for _level in range(2000):
        deep = [deep]
    odd = {"steps": [math.inf, "\ud800", 10**400, deep], "results": {"\udfff": math.nan}}
    recorder.event({"event": "playbook_on_task_start", "event_data": {"name": "half \ud800 \x1b[2J" + "x" * 10_000}})
    recorder.event(
        {"event": "runner_on_ok", "event_data": {"task_action": "virt_state", "host": "h\ud800", "res": odd}}
    )
    recorder.event(
        {"event": "runner_on_ok", "event_data": {"task_action": "virt_report", "res": {"text": "a\ud800\x9b"}}}
    )
    for number in range(200):
        result = {"msg": f"\ud800 {number} " + "x" * 100_000}
        recorder.event({"event": "runner_on_failed", "event_data": {"host": "h", "res": result}})
    (tmp_path / "result.json").write_bytes(written(run._result(recorder, "")))
    for name in ("result.json", "progress.json"):
        content = (tmp_path / name).read_text()
        assert len(content) < 2_000_000 and strict(content)


@pytest.mark.parametrize("told", ['{"maintenance": {"reason": "\\ud800"}, "certificates": {}}', "[" * 100_000, "NaN"])
def test_a_hostile_relay_tells_nothing_odd(told: str) -> None:
    import sys

    from ansible_collections.corral.virt.roles.console.files.corral_console import mark

    with pytest.raises(mark.Unknown):
        mark.read([sys.executable, "-c", f"import sys; print('ok'); print(sys.stdin.read() or {told!r})"])
