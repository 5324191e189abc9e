"""Jobs of the console, by ansible-runner and the collection's own playbooks, on libvirt's test driver."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.roles.console.files.corral_console import offers, order, run
from ansible_collections.corral.virt.roles.console.files.corral_console.config import PolicyConfig
from ansible_collections.corral.virt.roles.console.files.corral_console.jobs import ACTIVE, Busy, Job, Jobs, TooMany
from ansible_collections.corral.virt.roles.console.files.corral_console.order import Order, Seen
from ansible_collections.corral.virt.roles.console.files.corral_console.store import Store
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

ROOT = Path(__file__).parents[2]
TEST = Seen("6695eb01-f6a4-8304-79aa-97f2502e193f", "test", "hyper1", "running", ())  # of libvirt's test driver
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "virt_uri": "test:///default"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PolicyConfig:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / ".cache"))
    monkeypatch.setenv("A_SECRET", "of the service")
    project = tmp_path / "project"
    project.mkdir()
    (project / "ansible.cfg").write_text("[defaults]\ninventory = hosts.yml\n")
    (project / "hosts.yml").write_text(json.dumps({"hyper": {"hosts": {"hyper1": LOCAL}}}))
    (tmp_path / "variables.json").write_text("{}")
    return PolicyConfig(
        directory=tmp_path,
        policy=tmp_path / "policy.json",
        hosts=("hyper1", "hyper2"),
        web_user="root",
        group="hyper",
        project=project,
        ansible=ROOT / ".venv/bin",
        variables=tmp_path / "variables.json",
    )


def ordered(action: str, *guests: Seen, check: bool = False, **arguments: t.Any) -> Order:
    given = {"action": action, "arguments": arguments, "check": check, "confirm": len(guests)}
    return order.order(given, guests, ("hyper1", "hyper2"))


def state(jobs: Jobs, job: Job) -> str:
    jobs.look()
    return job.state


def ended(jobs: Jobs, job: Job) -> dict[str, t.Any]:
    until(lambda: state(jobs, job) not in ACTIVE)
    return job.details()


@pytest.mark.slow
def test_a_job_does_what_its_playbook_does(config: PolicyConfig) -> None:
    store = Store()
    jobs = Jobs(config, store)
    job = jobs.add(ordered("shutdown", TEST), "alice")
    assert job.state == "running"
    found = ended(jobs, job)
    assert (found["state"], found["changed"], found["error"]) == ("succeeded", True, ""), job.log(0)
    assert found["report"] == ["hyper1", "  shut down test"] and found["user"] == "alice"
    log = job.log(0)
    assert any("TASK [Bring the guests to the state]" in line for line in log["lines"]) and log["ended"]
    assert job.log(log["next"]) == {"lines": [], "next": log["next"], "ended": True}
    assert store.get(f"job/{job.id}") == job.summary()
    assert job.directory.stat().st_mode & 0o777 == 0o700
    assert "of the service" not in "".join(path.read_text() for path in job.directory.rglob("*") if path.is_file())
    assert not (job.directory / "runner").exists(), "ansible-runner wrote its environment there"


@pytest.mark.slow
def test_a_preview_changes_nothing_and_tells_the_plan(config: PolicyConfig) -> None:
    jobs = Jobs(config, Store())
    found = ended(jobs, jobs.add(ordered("pause", TEST, check=True), "alice"))
    (one,) = found["plan"]["virt_state"]["hyper1"]["results"]
    assert (found["state"], one["name"], one["steps"]) == ("succeeded", "test", ["suspend test"])


@pytest.mark.slow
def test_another_guest_of_that_name_is_refused(config: PolicyConfig) -> None:
    jobs = Jobs(config, Store())
    other = Seen(TEST.uuid[:-1] + "0", "test", "hyper1", "running", ())
    tagged = Seen(TEST.uuid, "test", "hyper1", "running", ("front",))
    for guest in (other, tagged):
        found = ended(jobs, jobs.add(ordered("reset", guest), "alice"))
        assert found["state"] == "failed" and "is not the one that was chosen" in found["error"], found


@pytest.mark.slow
def test_a_guest_that_the_page_did_not_know_is_not_converged(config: PolicyConfig) -> None:
    """The policy was asked about a new guest with the tags that the request gives it."""
    jobs = Jobs(config, Store())
    job = jobs.add(ordered("create", guest="test", host="hyper1", domain={"title": "taken"}), "alice")
    found = ended(jobs, job)
    assert found["state"] == "failed" and found["error"] == (
        "cannot create: the name test is not available; choose another one"
    ), found
    assert not found["changed"]


def test_each_playbook_compares_what_it_found_with_what_was_chosen() -> None:
    tasks = [
        task["corral.virt.virt_find"]
        for path in (ROOT / "playbooks").rglob("*.yml")
        for play in yaml.safe_load(path.read_text())
        for task in play.get("tasks", [play])
        if "corral.virt.virt_find" in task
    ]
    assert len(tasks) > 1 and all("virt_expected" in task.get("expected", "") for task in tasks)


@pytest.mark.slow
def test_no_text_is_a_template(config: PolicyConfig) -> None:
    """ansible-runner's own extra variables are templates, on the machine that has Ansible's key."""
    made = config.directory / "made"
    text = f"{{{{ lookup('pipe', 'touch {made}') }}}}"
    jobs = Jobs(config, Store())
    job = jobs.add(ordered("create", guest="ci-1", host="hyper1", vcpus=1, memory="64MiB", description=text), "alice")
    ended(jobs, job)
    assert not made.exists() and job.log(0)["lines"]
    values = {"guest": text, "list": [text, {"key": text}]}
    written = run.variables({"values": values, "expected": []}, "hyper")
    nodes = [node for node in _scalars(t.cast(yaml.Node, yaml.compose(written))) if "lookup" in node.value]
    assert len(nodes) == 3 and {node.tag for node in nodes} == {"!unsafe"}


REQUIRED: dict[str, dict[str, t.Any]] = {
    "create": {"guest": "ci-1"},
    "rename": {"to": "ci-2"},
    "change": {"vcpus": 2},
    "drain": {"host": "hyper1"},
    "undrain": {"host": "hyper1"},
    **{key: {"disk": "data"} for key in ("add_disk", "remove_disk")},
    **{key: {"nic": "eth1"} for key in ("add_nic", "remove_nic")},
    "insert_iso": {"iso": "/srv/a.iso"},
    "create_volume": {"host": "hyper1", "volume": "a.qcow2", "size": "1GiB"},
    "resize_volume": {"host": "hyper1", "volume": "a.qcow2", "size": "2GiB"},
    "delete_volume": {"host": "hyper1", "volume": "a.qcow2"},
    "move_disk": {"disk": "data", "pool": "fast"},
    "revert": {"snapshot": "a", "run": True},
    "delete_snapshot": {"snapshot": "a"},
    "drain_pool": {"host": "hyper1", "pool": "old", "to": ["fast"]},
}


def _texts(action: str) -> Iterator[tuple[str, t.Any]]:
    """Each argument that can hold a text, with a template in it."""
    text = "{{ lookup('pipe', 'id') }}"
    for name, argument in offers.arguments(actions.action(action)).items():
        kind = argument.spec.get("type", "str")
        if kind == "list" and argument.spec.get("elements", "str") == "str":
            yield name, [text, "x"]
        elif kind == "dict":
            yield name, {"description": text}
        elif kind in ("str", "raw", "path"):
            yield name, text


@pytest.mark.parametrize("action", offers.names())
def test_no_argument_of_the_catalogue_is_a_template(action: str) -> None:
    """It is refused as what it is to be, or it is a text for Ansible, too."""
    rest = REQUIRED.get(action, {})
    tried = list(_texts(action))
    for name, value in tried:
        guests = () if action == "create" else (TEST,)
        given: dict[str, t.Any] = {"action": action, "arguments": {**rest, name: value}, "check": True}
        if guests:
            given["guests"] = [TEST.uuid]
        try:
            made = order.order(given, guests, ("hyper1", "hyper2"))
        except order.BadOrder as problem:
            assert name in problem.errors or any(name in each for each in problem.errors.values()), (name, problem)
            continue
        written = run.variables({"values": made.values, "expected": []}, "hyper")
        nodes = [node for node in _scalars(t.cast(yaml.Node, yaml.compose(written))) if "{{" in node.value]
        assert {node.tag for node in nodes} <= {"!unsafe"}, name
        assert nodes or name == "guest", f"{name} is lost"  # the page's guests are those that were seen
    assert tried


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _scalars(each)
    elif isinstance(node, yaml.MappingNode):
        for _key, each in node.value:
            yield from _scalars(each)


def _run(config: PolicyConfig, monkeypatch: pytest.MonkeyPatch, playbook: str) -> dict[str, t.Any]:
    """The result of a job's process, with a program in place of ansible-playbook."""
    programs, directory = config.directory / "bin", config.directory / "job"
    for folder in (programs, directory):
        folder.mkdir()
    (programs / "ansible-playbook").write_text(f"#!/bin/sh\n{playbook}\n")
    (programs / "ansible-playbook").chmod(0o755)
    request = {"action": "start", "values": {}, "expected": [], "check": False}
    (directory / "request.json").write_text(json.dumps(request))
    for name, value in {"PROJECT": config.project, "GROUP": "hyper", "VARIABLES": config.variables}.items():
        monkeypatch.setenv(f"CORRAL_{name}", str(value))
    monkeypatch.setenv("TMPDIR", os.environ.get("TMPDIR", "/tmp"))  # so that it is restored
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    before = os.umask(0o077)
    try:
        assert run.main([str(directory), str(os.open(directory / "lock", os.O_CREAT | os.O_RDWR))]) == 0
    finally:
        os.umask(before)
    return t.cast("dict[str, t.Any]", json.loads((directory / "result.json").read_text()))


@pytest.mark.parametrize(("playbook", "why"), [("kill -9 $$", "ended with 137"), ("exit 3", "ended with 3")])
def test_a_playbook_that_dies_without_a_word_has_failed(
    config: PolicyConfig, monkeypatch: pytest.MonkeyPatch, playbook: str, why: str
) -> None:
    found = _run(config, monkeypatch, playbook)
    assert found["state"] == "failed" and why in found["error"], found


def test_half_a_character_is_logged(tmp_path: Path) -> None:
    recorder = run.Recorder(tmp_path, check=False)
    recorder.event({"event": "verbose", "stdout": "half \ud800 of one"})
    assert (tmp_path / "log").read_text() == "half ? of one\n"


# In place of the job's process: it lives until it is told to end.
SLEEPS = """
import json, os, pathlib, sys, time
folder, lock = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(folder / "progress.json").write_text(json.dumps({"started": 1, "task": "Sleep", "lines": 0, "sequence": 1}))
while not (folder / "end").exists():
    time.sleep(0.05)
(folder / "result.json").write_text(json.dumps({"state": "succeeded", "ended": 2, "changed": True}))
"""


@pytest.fixture
def sleeping(config: PolicyConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[PolicyConfig]:
    program, pids, real = config.directory / "sleeps.py", list[int](), subprocess.Popen
    program.write_text(SLEEPS)

    def started(words: list[str], **more: t.Any) -> t.Any:
        process = real([sys.executable, str(program), *words[-2:]], **more)
        pids.append(process.pid)
        (config.directory / "pids").write_text(" ".join(map(str, pids)))
        return process

    monkeypatch.setattr(subprocess, "Popen", started)
    yield config
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_job_is_found_again_after_a_restart(sleeping: PolicyConfig) -> None:
    first = Jobs(sleeping, Store())
    job = first.add(ordered("start", TEST), "alice")
    until((job.directory / "progress.json").exists)
    store = Store()
    again = Jobs(sleeping, store)
    found = again.get(job.id)
    assert found and found.state == "running" and t.cast(t.Any, store.get(f"job/{job.id}"))["state"] == "running"
    with pytest.raises(Busy, match=job.id):
        again.add(ordered("shutdown", TEST), "bob")
    (job.directory / "end").touch()
    assert ended(again, found)["state"] == "succeeded"


def test_a_job_whose_process_is_gone_is_lost(sleeping: PolicyConfig) -> None:
    jobs = Jobs(sleeping, Store())
    job = jobs.add(ordered("start", TEST), "alice")
    until((job.directory / "progress.json").exists)
    (pid,) = Path(sleeping.directory / "pids").read_text().split()
    os.kill(int(pid), signal.SIGKILL)
    found = ended(jobs, job)
    assert (found["state"], found["error"]) == ("lost", "its process is gone")
    assert jobs.add(ordered("start", TEST), "alice"), "it holds nothing any more"


def test_one_job_at_a_time(sleeping: PolicyConfig) -> None:
    jobs = Jobs(sleeping, Store())
    other = Seen("uuid-2", "other", "hyper2", "running", ())
    jobs.add(ordered("start", TEST), "alice")
    for busy in (ordered("migrate", TEST, to="hyper2"), ordered("rebalance"), _drain("hyper1")):
        with pytest.raises(Busy, match=r"start of alice\) is not done; wait for it, or cancel it"):
            jobs.add(busy, "bob")
    assert jobs.add(ordered("start", TEST, check=True), "bob"), "a preview disturbs nobody"
    assert jobs.add(ordered("start", other), "bob")
    with pytest.raises(Busy):
        jobs.add(_drain("hyper2"), "bob")


def test_a_job_that_cannot_be_started_has_failed(sleeping: PolicyConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_words: t.Any, **_more: t.Any) -> t.NoReturn:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", none)
    jobs = Jobs(sleeping, Store())
    job = jobs.add(ordered("start", TEST), "alice")
    assert (job.state, job.summary()["error"]) == ("failed", "cannot start the job: no more processes")


def test_a_job_goes_on_with_what_it_began_with(sleeping: PolicyConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update changes links."""
    told: list[dict[str, str]] = []
    real = subprocess.Popen

    def started(words: list[str], **more: t.Any) -> t.Any:
        told.append(more["env"])
        return real(words, **more)

    monkeypatch.setattr(subprocess, "Popen", started)
    links = {name: sleeping.directory / name for name in ("collections", "project-link")}
    links["collections"].symlink_to(ROOT / ".cache")
    links["project-link"].symlink_to(sleeping.project)
    monkeypatch.setenv("PYTHONPATH", str(links["collections"]))
    object.__setattr__(sleeping, "project", links["project-link"])
    Jobs(sleeping, Store()).add(ordered("start", TEST), "alice")
    (environment,) = told
    assert environment["PYTHONPATH"] == str((ROOT / ".cache").resolve())
    assert environment["CORRAL_PROJECT"] == str(links["project-link"].resolve())


def _drain(host: str) -> Order:
    return order.order({"action": "drain", "hosts": [host]}, (), ("hyper1", "hyper2"))


def test_jobs_wait_for_room_and_can_be_cancelled_there(sleeping: PolicyConfig) -> None:
    jobs = Jobs(sleeping, Store())
    t.cast(t.Any, jobs)._config = type("Small", (), {**vars(sleeping), "at_once": 1})
    guests = [Seen(f"uuid-{number}", f"g{number}", "hyper1", "running", ()) for number in range(3)]
    first, second, third = (jobs.add(ordered("start", guest), "alice") for guest in guests)
    assert (first.state, second.state, third.state) == ("running", "waiting", "waiting")
    jobs.cancel(second)
    assert second.details()["state"] == "cancelled"
    (first.directory / "end").touch()
    ended(jobs, first)
    until(lambda: state(jobs, third) == "running")


def test_old_jobs_are_removed(sleeping: PolicyConfig) -> None:
    store = Store()
    jobs = Jobs(sleeping, store)
    t.cast(t.Any, jobs)._config = type("Small", (), {**vars(sleeping), "kept_jobs": 1})
    made = [jobs.add(ordered("start", TEST, check=True), "alice") for _each in range(3)]
    for job in made:
        (job.directory / "end").touch()
        ended(jobs, job)
    jobs.look()
    assert len(jobs.all()) == 1 and len(list((sleeping.directory / "jobs").iterdir())) == 1
    assert len(store.below("job/")) == 1


@pytest.mark.slow
def test_a_running_job_is_cancelled_as_by_ctrl_c(config: PolicyConfig) -> None:
    """Ansible gets the signal, which ends migrations on their hosts; nothing of it is left."""
    slow = {**LOCAL, "ansible_python_interpreter": str(config.project / "python.sh")}
    (config.project / "python.sh").write_text(f'#!/bin/sh\nsleep 5\nexec {sys.executable} "$@"\n')
    (config.project / "python.sh").chmod(0o755)
    (config.project / "hosts.yml").write_text(json.dumps({"hyper": {"hosts": {"hyper1": slow}}}))
    jobs = Jobs(config, Store())
    job = jobs.add(ordered("start", TEST), "alice")
    until(lambda: state(jobs, job) and job.summary()["task"] == "Read the guests")
    started = time.monotonic()
    jobs.cancel(job)
    assert job.summary()["cancelling"] or job.state != "running"
    found = ended(jobs, job)
    assert (found["state"], found["error"]) == ("cancelled", "") and time.monotonic() - started < 20
    assert (
        str(job.directory)
        not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    )


def _guest(number: int) -> Seen:
    return Seen(f"uuid-{number}", f"g{number}", "hyper1", "running", ())


def test_previews_of_one_user_hold_up_neither_jobs_nor_previews_of_others(sleeping: PolicyConfig) -> None:
    jobs = Jobs(sleeping, Store())
    flood = [jobs.add(ordered("start", TEST, check=True), "alice") for _each in range(60)]
    running = [job for job in flood if job.state == "running"]
    assert 0 < len(running) < sleeping.previews_at_once, "a place is left for others"
    assert jobs.add(ordered("start", TEST), "alice").state == "running", "nor one's own jobs"
    assert jobs.add(ordered("start", _guest(1)), "bob").state == "running"
    assert jobs.add(ordered("start", _guest(1), check=True), "bob").state == "running"


def test_users_take_turns_for_the_only_place(sleeping: PolicyConfig) -> None:
    jobs = Jobs(dataclasses.replace(sleeping, at_once=1), Store())
    made = [jobs.add(ordered("start", _guest(number)), "alice") for number in range(4)]
    made += [
        jobs.add(ordered("start", _guest(number)), user) for number, user in ((4, "bob"), (5, "bob"), (6, "carol"))
    ]
    turns = []
    for _each in made:
        (now,) = (job for job in made if job.state == "running")
        turns.append(now.request["user"])
        (now.directory / "end").touch()
        ended(jobs, now)
        jobs.look()
    assert turns == ["alice", "bob", "carol", "alice", "bob", "alice", "alice"]


def test_nobody_has_more_jobs_waiting_than_the_quota(sleeping: PolicyConfig) -> None:
    jobs = Jobs(dataclasses.replace(sleeping, jobs_of_a_user=3), Store())
    made = [jobs.add(ordered("start", _guest(number)), "alice") for number in range(3)]
    with pytest.raises(TooMany, match="3 jobs of alice have not ended; wait until one ends, or cancel one"):
        jobs.add(ordered("start", _guest(3)), "alice")
    assert jobs.add(ordered("start", _guest(3), check=True), "alice"), "previews have a quota of their own"
    assert jobs.add(ordered("start", _guest(3)), "bob")
    jobs.cancel(made[2])
    (made[0].directory / "end").touch()
    until(lambda: state(jobs, made[0]) not in ACTIVE)
    assert jobs.add(ordered("start", _guest(4)), "alice")


def test_a_job_that_waited_is_not_begun_when_its_user_has_lost_the_right(sleeping: PolicyConfig) -> None:
    """A queue would carry out what was revoked; where nobody can tell, it waits."""
    said: list[str | None] = [""]
    jobs = Jobs(dataclasses.replace(sleeping, at_once=1), Store(), may_begin=lambda _job: said[0])
    first, second = (jobs.add(ordered("start", _guest(number)), "alice") for number in range(2))
    said[0] = None
    (first.directory / "end").touch()
    ended(jobs, first)
    jobs.look()
    assert second.state == "waiting"
    said[0] = "user alice may not start"
    found = ended(jobs, second)
    assert (found["state"], found["error"]) == ("failed", "not begun: user alice may not start")
