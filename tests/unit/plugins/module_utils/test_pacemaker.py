"""Guests that Pacemaker runs: what a run does about that, and the program that keeps Pacemaker from acting."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Undefine
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._power import files_pacemaker, plan_power, run_pacemaker
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import (
    Destroy,
    Entrust,
    GuestStep,
    Resource,
    Shutdown,
    Start,
    Suspend,
)
from ansible_collections.corral.virt.plugins.module_utils._system import command

UUID = "2f1c8a5e-7d0b-4a55-9a1c-3f5b0c7e9d42"
RESOURCE = Resource("guest-web1", UUID, "Started")


@pytest.mark.parametrize(
    ("state", "role", "entrusts"),
    [
        ("running", "Started", ""),
        ("running", "Stopped", "Started"),
        ("paused", "Stopped", "Started"),
        ("rebooted", "Stopped", "Started"),
        ("shutdown", "Started", "Stopped"),
        ("destroyed", "Started", "Stopped"),
        ("shutdown", "Stopped", ""),
        ("present", "Stopped", ""),
        ("reset", "Started", ""),
    ],
)
def test_pacemaker_is_to_keep_the_state(state: str, role: str, entrusts: str) -> None:
    before = Plan((Destroy("web1"),))
    plan = plan_power.entrusted(before, GuestSpec("web1", state=state), Resource("guest-web1", UUID, role))
    assert [step.role for step in plan.steps if isinstance(step, Entrust)] == ([entrusts] if entrusts else [])
    assert plan.steps[:1] == before.steps and bool(plan.changes) == bool(entrusts)


GONE = GuestSpec("web1", state="absent")


def test_pacemaker_forgets_a_guest_that_is_removed() -> None:
    plan = Plan((Destroy("web1"),))
    assert plan_power.entrusted(plan, GONE, None) is plan
    removal = plan_power.entrusted(plan, GONE, RESOURCE)
    assert [str(step) for step in removal.steps] == ["destroy web1", "have Pacemaker forget web1 (guest-web1)"]
    listed = Resource("guest-web1", UUID, "Stopped", listed=True)
    with pytest.raises(Refused, match=r"cannot remove web1: cluster_guests lists it.*remove it there, run the role"):
        plan_power.entrusted(plan, GONE, listed)
    assert plan_power.entrusted(plan, GuestSpec("web1", state="shutdown"), listed) is plan


def test_a_guest_that_is_undefined_is_forgotten_whatever_becomes_of_its_disks(program: Path) -> None:
    """Else another member starts it from what is kept."""
    undefine = Undefine("web1")
    plan = Plan((Destroy("web1"), undefine, Start("web1")))
    steps = plan_power.entrusted(plan, GONE, RESOURCE, (Undefine,)).steps
    assert [*map(type, steps)] == [Destroy, Undefine, Entrust, Start]

    for kind, told in ((Start, "Removed"), (Undefine, "")):

        def do(step: GuestStep, kind: type = kind) -> None:
            if isinstance(step, kind):
                raise Failed("in use; mend it")

        with pytest.raises(Failed, match="in use"):
            run_pacemaker.run(Gate(check_mode=False), RESOURCE, steps, do)
        assert (program.parent / "told").read_text().splitlines()[-1] == f"{UUID} [{told}]"


def test_pacemaker_switches_no_guest_off_that_is_only_asked() -> None:
    asked = Shutdown("web1", timeout_s=60, force=False, wait=False, suspends=False)
    wanted = GuestSpec("web1", state="shutdown")
    with pytest.raises(Refused, match=r"without waiting for it: Pacemaker runs it.*; set wait: true, or force: true"):
        plan_power.entrusted(Plan((asked,)), wanted, RESOURCE)
    assert plan_power.entrusted(Plan((asked,)), wanted, None).steps == (asked,)
    for step in (dataclasses.replace(asked, wait=True), dataclasses.replace(asked, force=True)):
        assert len(plan_power.entrusted(Plan((step,)), wanted, RESOURCE).steps) == 2


@pytest.mark.parametrize(
    ("role", "runs", "told"),
    [("Started", True, ""), ("Started", False, "Stopped"), ("Stopped", True, "Started"), ("Stopped", False, "")],
)
def test_pacemaker_keeps_a_guest_as_it_is_left(role: str, runs: bool, told: str) -> None:
    starts = (Start,) if runs else None
    started, goes_on = (Destroy("web1"), Start("web1"), Suspend("web1")), (Suspend("web1"),)
    for steps, at in ((started, 2 if runs else 3), (goes_on, int(not runs))):
        assert run_pacemaker.as_left("web1", None, steps, starts=starts) == steps
        entrusts = [Entrust("web1", "guest-web1", told)] if told else []
        found = run_pacemaker.as_left("web1", Resource("guest-web1", UUID, role), steps, starts=starts)
        assert [*found] == [*steps[:at], *entrusts, *steps[at:]]


def test_what_mends_a_failure_is_done_before_pacemaker_looks(program: Path) -> None:
    told: list[bool] = []

    @contextlib.contextmanager
    def within() -> t.Iterator[None]:
        try:
            yield
        finally:
            told.append((program.parent / "told").exists())

    def do(_step: GuestStep) -> None:
        raise Failed("in use; mend it")

    with pytest.raises(Failed, match="in use"):
        run_pacemaker.run(Gate(check_mode=False), RESOURCE, [Start("web1")], do, within=within())
    assert (program.parent / "told").read_text() == f"{UUID} []\n"
    assert told == [False], "while the hold went on"


SAID = {
    "crm_node": "hyper1\n",
    "crm_mon": '<pacemaker-result><nodes><node name="hyper1" online="true" unclean="false"/><node name="hyper2" {}/>'
    "</nodes></pacemaker-result>",
}


@pytest.mark.parametrize(
    ("there", "steps", "refused"),
    [
        ("running", [], r"it is off here, and hyper2 has it running; remove it on the host that runs it"),
        ("silent", [], r"hyper2 does not say whether it runs there: no answer; mend it; remove it"),
        ("shutdown", [], None),
        ("unknown to it", [], None),
        ("silent", [Destroy("web1")], None),
    ],
)
def test_a_guest_that_another_member_may_run_is_not_removed(
    there: str, steps: list[GuestStep], refused: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that runs here runs nowhere else, and nobody is asked."""
    asked: list[str] = []

    @contextlib.contextmanager
    def opened(uri: str) -> t.Iterator[str]:
        asked.append(uri)
        if there == "silent":
            raise Failed("no answer; mend it")
        yield uri

    def of_all(_uri: str) -> list[tuple[types.SimpleNamespace, str]]:
        found = UUID if there != "unknown to it" else UUID.replace("2", "3")
        return [(types.SimpleNamespace(UUIDString=lambda: found), there)]

    monkeypatch.setattr(command, "run", lambda program, *_words: SAID[program].format('online="true" unclean="false"'))
    monkeypatch.setattr(files_pacemaker, "settle", lambda: asked.append("settled"))
    monkeypatch.setattr(run_pacemaker, "opened", opened)
    monkeypatch.setattr(states, "of_all", of_all)
    asks = ["qemu+tls://hyper2/system"]
    if refused:
        with pytest.raises(Refused, match=refused):
            run_pacemaker.entrusted(Plan(tuple(steps)), GONE, RESOURCE)
        assert asked == asks
        return
    plan, again = run_pacemaker.entrusted(Plan(tuple(steps)), GONE, RESOURCE)
    assert plan.steps[-1] == Entrust("web1", "guest-web1", "Removed")
    assert asked == ([] if steps else asks) and bool(again) is not bool(steps)
    if again:  # Pacemaker was starting it there
        there = "running"
        with pytest.raises(Refused, match="hyper2 has it running"):
            again()
        assert asked == [*asks, "settled", *asks]


@pytest.mark.parametrize(
    ("node", "asked"),
    [
        ('online="true" unclean="false"', True),
        ('online="false" unclean="true"', True),
        ('online="false" unclean="false"', False),
    ],
    ids=["seen", "lost", "fenced"],
)
def test_members_that_may_run_a_guest_are_asked(node: str, asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is lost runs on until it is fenced."""
    uris: list[str] = []

    @contextlib.contextmanager
    def opened(uri: str) -> t.Iterator[str]:
        uris.append(uri)
        yield uri

    monkeypatch.setattr(command, "run", lambda program, *_words: SAID[program].format(node))
    monkeypatch.setattr(run_pacemaker, "opened", opened)
    monkeypatch.setattr(states, "of_all", lambda _connection: [])
    run_pacemaker.entrusted(Plan(()), GONE, RESOURCE)
    assert uris == (["qemu+tls://hyper2/system"] if asked else [])


def test_the_look_is_made_again_while_pacemaker_looks_away(program: Path) -> None:
    def again() -> None:
        assert not (program.parent / "told").exists(), "the hold goes on"
        raise Refused("hyper2 has it running; mend it")

    with pytest.raises(Refused, match="hyper2 has it running"):
        run_pacemaker.run(
            Gate(check_mode=False), RESOURCE, [Entrust("web1", "guest-web1", "Removed")], print, again=again
        )
    assert (program.parent / "told").read_text() == f"{UUID} []\n", "nothing is removed, and Pacemaker takes over"
    assert run_pacemaker.run(Gate(check_mode=True), RESOURCE, [Destroy("web1")], print, again=again) == []


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in the place of `corral-cluster` that writes what it was told to `told`; the place of `program`."""
    path = tmp_path / "corral-cluster"
    path.write_text(
        f"#!/bin/sh\ncase $1 in\nguests) cat {tmp_path}/guests ;;\nhold) [ ! -e {tmp_path}/down ] || {{ echo no CIB >&2; exit 1; }}"
        f"\necho held; read -r role; echo $2 [$role] >>{tmp_path}/told; [ ! -e {tmp_path}/late ] || {{ echo lost >&2; exit 1; }} ;;\nesac\n"
    )
    path.chmod(0o755)
    (tmp_path / "guests").write_text(json.dumps(vars(RESOURCE)) + "\n")
    monkeypatch.setattr(files_pacemaker, "PROGRAM", str(path))
    monkeypatch.setattr(files_pacemaker, "MEMBER", str(path))
    files_pacemaker._resources.cache_clear()
    return path


def run(*steps: GuestStep, fails: bool = False, check_mode: bool = False) -> list[str]:
    """Pass steps to the gate; those that were done."""
    done: list[str] = []

    def do(step: GuestStep) -> None:
        done.append(str(step))
        if fails:
            raise Failed("broken; mend it")

    run_pacemaker.run(Gate(check_mode=check_mode), RESOURCE, steps, do)
    return done


def test_who_pacemaker_runs_is_read_from_its_configuration(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files_pacemaker.resource(UUID) == RESOURCE
    assert files_pacemaker.resource(UUID.replace("2", "3")) is None
    monkeypatch.setattr(files_pacemaker, "MEMBER", str(program.with_name("nothing")))
    assert files_pacemaker.resource(UUID) is None


def test_it_looks_away_while_a_guest_stops(program: Path) -> None:
    told = program.with_name("told")
    assert run(Destroy("web1"), Entrust("web1", "guest-web1", "Stopped")) == ["destroy web1"]
    assert told.read_text() == f"{UUID} [Stopped]\n"


def test_nobody_tells_it_of_what_leaves_the_guest_where_it_is(program: Path) -> None:
    assert run(Suspend("web1")) == ["suspend web1"]
    assert run(Destroy("web1"), check_mode=True) == []
    assert not program.with_name("told").exists()


def test_what_failed_is_not_what_it_is_to_keep(program: Path) -> None:
    with pytest.raises(Failed, match="broken"):
        run(Destroy("web1"), Entrust("web1", "guest-web1", "Stopped"), fails=True)
    assert program.with_name("told").read_text() == f"{UUID} []\n"


def test_nothing_is_done_while_it_may_act(program: Path) -> None:
    program.with_name("down").touch()
    with pytest.raises(Failed, match=r"cannot keep Pacemaker from acting on guest-web1: no CIB; start Pacemaker"):
        run(Destroy("web1"))


def test_a_guest_that_it_does_not_get_back_is_told(program: Path) -> None:
    program.with_name("late").touch()
    with pytest.raises(Failed, match=r"cannot give guest-web1 back to Pacemaker: lost; crm_resource --refresh"):
        run(Destroy("web1"))


def test_a_guest_that_pacemaker_starts_elsewhere_meanwhile_stays(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is off on all members when the removal is planned, and runs on another one when Pacemaker is held."""
    (tmp_path / "node.xml").write_text("<node/>")
    said = iter([[], ["hyper2 has it running"]])
    monkeypatch.setattr(run_pacemaker, "resource", lambda *_: RESOURCE)
    monkeypatch.setattr(run_pacemaker, "_elsewhere", lambda _uuid: next(said))
    monkeypatch.setattr(files_pacemaker, "settle", lambda: None)
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        connection.defineXML(
            "<domain type='test'><name>web1</name><memory>1</memory><os><type>hvm</type></os></domain>"
        )
        with pytest.raises(Refused, match=r"cannot remove web1: .*hyper2 has it running"):
            run_guest.converge(connection, GuestSpec("web1", state="absent"), Gate(check_mode=False))
        assert connection.lookupByName("web1").isPersistent()
    assert (program.parent / "told").read_text() == f"{UUID} []\n"
