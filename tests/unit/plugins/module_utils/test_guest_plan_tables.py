"""How the plan of a guest shows in a diff, what is awaited afterwards, and what cannot be done live."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    FoundGuest,
    Grafted,
    GuestSpec,
    Volume,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_changes,
    plan_guest_options,
    plan_guest_steps,
    plan_live,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_disk import DiskPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_seeding import Seeding
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed

RUNNING = FoundGuest("web1", "u", "running", persistent=True, autostart=False, xml="<domain/>", live_xml="<domain/>")
OFF = dataclasses.replace(RUNNING, state="shutdown", live_xml=None)
DISK = plan_guest_steps.CreateVolume("web1", Volume("default", "a", "/a", 2**30), "<volume/>")
TITLE, MACHINE, CACHE = Change("title", "a", "b"), Change("machine", "a", "b"), Change("disks[x].cache", None, "none")
SILENT = Seeding(DiskPlan())
WEB1, NOTHING = GuestSpec("web1"), GuestPlan()
STARTED = GuestPlan((plan_guest_steps.Start("web1"),))
SEED = plan_seed.seed({}, guest="web1")


def grafted(*changes: Change) -> Grafted:
    return Grafted("<domain/>", changes)


def now(*changes: Change) -> plan_live.Now:
    return plan_live.Now(GuestSpec("web1"), grafted(*changes), grafted(*changes), {})


def shown(
    *stored: Change,
    wanted: GuestSpec = WEB1,
    found: FoundGuest | None = RUNNING,
    running: t.Sequence[Change] | None = None,
    plan: GuestPlan = NOTHING,
    seeding: Seeding = SILENT,
    recorded: str | None = None,
) -> list[tuple[str, object, object]]:
    """The diff, place by place."""
    here = None if running is None else now(*running)
    changes = plan_changes.changes(wanted, found, grafted(*stored), here, plan, seeding, recorded)
    return [(change.where, change.before, change.after) for change in changes]


def test_what_is_stored_shows_once() -> None:
    plan = GuestPlan((plan_guest_steps.Define("web1", "<domain/>"),))
    assert shown(TITLE) == [("title", "a", "b")]
    assert shown(TITLE, running=[TITLE], plan=plan) == [("title", "a", "b")]


def test_what_only_the_running_guest_lacked_shows_unless_it_waits() -> None:
    done = GuestPlan((plan_guest_steps.SetVcpus("web1", 3),), pending=(str(MACHINE),))
    assert shown(TITLE, running=[TITLE, CACHE, MACHINE], plan=done) == [
        ("title", "a", "b"),
        ("disks[x].cache", None, "none"),
    ]
    assert shown(TITLE, running=[TITLE, CACHE], plan=GuestPlan()) == [("title", "a", "b")], "nothing is done"


def test_with_apply_live_only_what_runs_changes() -> None:
    wanted, plan = GuestSpec("web1", apply="live"), GuestPlan((plan_guest_steps.SetVcpus("web1", 3),))
    assert shown(TITLE, MACHINE, wanted=wanted, running=[TITLE], plan=plan) == [("title", "a", "b")]
    assert shown(TITLE, wanted=wanted, running=None, plan=plan) == []


def test_disks_and_seeds_show() -> None:
    grown = Seeding(DiskPlan(changes=(Change("disks[x].size", "8GiB", "9GiB"),)))
    assert shown(seeding=grown) == [("disks[x].size", "8GiB", "9GiB")]
    wanted, digest = GuestSpec("web1", seed=SEED), SEED.digest
    rewritten = Seeding(DiskPlan(), rewritten=True)
    assert shown(wanted=wanted, seeding=rewritten, recorded="0123456789abcdef") == [
        ("cloud_init", "0123456789ab", digest[:12])
    ]
    assert shown(wanted=wanted) == [] and shown(seeding=rewritten) == []


def test_a_new_guest_had_nothing_before() -> None:
    made = shown(TITLE, MACHINE, found=None, plan=STARTED)
    assert made == [("title", None, "b"), ("machine", None, "b"), ("state", "absent", "running")]


def test_autostart_shows() -> None:
    plan = GuestPlan((plan_guest_steps.SetAutostart("web1", on=True),))
    assert shown(plan=plan) == [("autostart", False, True)]
    assert ("autostart", None, True) in shown(found=None, plan=plan)


@pytest.mark.parametrize(
    ("said", "starts", "assigned", "seen", "source"),
    [
        ({"state": "running", "wait_for_ip": "agent"}, False, (), (), "agent"),
        ({"state": "rebooted", "wait_for_ip": "any"}, False, ("192.0.2.1",), ("x",), "any"),
        ({"state": "running", "wait_for_ip": "none"}, True, (), (), None),
        ({"state": "running"}, True, (), (), None),
        ({"state": "present", "wait_for_ip": "any"}, False, (), (), None),
        ({"state": "paused", "wait_for_ip": "unknown"}, True, (), (), None),
        ({"state": "running", "wait_for_ip": "unknown"}, True, (), (), "any"),
        ({"state": "running", "wait_for_ip": "unknown"}, False, (), (), "any"),
        ({"state": "running", "wait_for_ip": "unknown"}, True, ("192.0.2.1",), (), None),
        ({"state": "running", "wait_for_ip": "unknown"}, False, (), ("x",), None),
        ({"state": "running", "wait_for_ip": "unknown"}, True, (), ("x",), "any"),
    ],
)
def test_whether_an_address_is_awaited(
    said: dict[str, t.Any], starts: bool, assigned: tuple[str, ...], seen: tuple[str, ...], source: str | None
) -> None:
    plan = STARTED if starts else GuestPlan((plan_guest_steps.Resume("web1"),))
    wait = plan_changes.awaited(GuestSpec("web1", wait_timeout_s=7, **said), plan, assigned=assigned, seen=seen)
    assert wait == (None if source is None else plan_guest_steps.WaitForAddress("web1", source, 7))


def test_what_cannot_be_done_live_is_refused() -> None:
    wanted = GuestSpec("web1", apply="live")
    with pytest.raises(Refused, match="cannot change web1 live: it is not running; use apply: both"):
        plan_changes.plan(wanted, OFF, grafted(TITLE), None)
    with pytest.raises(Refused, match=r"cannot create disk /a .* with apply: live"):
        plan_changes.plan(wanted, RUNNING, grafted(), now(), storage=[DISK])
    with pytest.raises(Refused, match=r"cannot change machine: a -> b of web1 while it runs; use apply: both"):
        plan_changes.plan(wanted, RUNNING, grafted(MACHINE), now(MACHINE))
    assert plan_changes.plan(wanted, RUNNING, grafted(TITLE), now(TITLE)).steps == (
        plan_guest_steps.SetMetadata("web1", None, None, ""),
    )


def test_a_new_seed_waits_for_the_next_boot() -> None:
    waiting = ("cloud_init: the new seed is read at the next boot",)
    assert plan_changes.plan(GuestSpec("web1"), RUNNING, grafted(), now(), seed_changed=True).pending == waiting
    assert plan_changes.plan(GuestSpec("web1"), OFF, grafted(), None, seed_changed=True).pending == ()
    assert (
        plan_changes.plan(GuestSpec("web1", state="shutdown"), RUNNING, grafted(), now(), seed_changed=True).pending
        == ()
    )
    restarts = GuestSpec("web1", allow_restart=True, wait=False)
    assert [str(step) for step in plan_changes.plan(restarts, RUNNING, grafted(), now(), seed_changed=True).steps] == [
        "shut down web1",
        "start web1",
    ]


def test_a_record_that_changes_is_stored_and_reaches_what_runs() -> None:
    made = plan_changes.plan(GuestSpec("web1"), RUNNING, grafted(), now(), record_changed=True).steps
    assert [type(step) for step in made] == [plan_guest_steps.Define, plan_guest_steps.SetMetadata]
    assert plan_changes.plan(GuestSpec("web1"), RUNNING, grafted(), now()).steps == ()


def test_of_a_guest_that_waits_for_its_next_boot_nothing_is_done_live() -> None:
    wanted = GuestSpec("web1", apply="next_boot")
    plan = plan_changes.plan(wanted, RUNNING, grafted(TITLE, MACHINE), now(TITLE, MACHINE))
    assert [type(step) for step in plan.steps] == [plan_guest_steps.Define]
    assert plan.pending == ("title: a -> b", "machine: a -> b")


@pytest.mark.parametrize(
    ("plain", "known", "expected"),
    [
        ((), {"vcpus.current": 2, "vcpus.maximum": 2}, 2),
        (("vcpus",), {"vcpus.current": 2, "vcpus.maximum": 2}, 1),
        (("vcpus",), {"vcpus.current": 2, "vcpus.maximum": 4}, 4),
        (("vcpus",), {"vcpus.maximum": 4}, 4),
        (("memory",), {"vcpus.current": 2, "vcpus.maximum": 2}, 2),
        ((), {}, 1),
    ],
)
def test_a_count_told_by_its_name_leaves_the_maximum_alone(
    plain: tuple[str, ...], known: dict[str, int], expected: int
) -> None:
    wanted = plan_guest_options.completed(GuestSpec("web1", fields={"vcpus.current": 1}, as_numbers=plain), known)
    assert wanted.fields == {"vcpus.current": 1, "vcpus.maximum": expected}
