"""Changes, what runs, and policy in; steps out."""

from __future__ import annotations

import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change, diff
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    ACTIONS,
    STATES,
    FoundGuest,
    Grafted,
    GuestSpec,
    Volume,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps, plan_live
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan, plan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import completed
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_removal import absent, gone
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power import power_off
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Owner

SYSTEM = plan_guest_steps.CreateVolume("web1", Volume("default", "a", "/a", 1), "<volume/>")
LIMITS = {"vcpus.current": 2, "vcpus.maximum": 4, "memory.maximum_kib": 4096}

OWNER = Owner("web1", "u", "h", ("/a", "/b"))


def found(state: str = "running", **more: t.Any) -> FoundGuest:
    """A guest on the host."""
    return FoundGuest(
        "web1",
        "u",
        state,
        True,
        more.pop("autostart", False),
        "<domain/>",
        "<domain/>" if state != "shutdown" else None,
        **more,
    )


def grafted(*changes: Change, **more: t.Any) -> Grafted:
    """A document after changes."""
    return Grafted("<domain/>", changes, **more)


def planned(
    wanted: GuestSpec,
    here: FoundGuest | None,
    *changes: Change,
    fields: t.Mapping[str, t.Any] | None = None,
    **more: t.Any,
) -> GuestPlan:
    """A plan for the same changes to what is stored and what runs."""
    after, wanted = grafted(*changes), wanted.with_fields(**(fields or {}))
    return plan(
        wanted, here, after, plan_live.Now(wanted, after, after, LIMITS) if here and here.active else None, **more
    )


def texts(result: GuestPlan) -> list[str]:
    """Its steps, readable."""
    return [str(step) for step in result.steps]


OFF, ON, PAUSED = "shutdown", "running", "paused"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("present", []),
        ("running", ["destroy web1", "start web1"]),
        ("rebooted", ["destroy web1", "start web1"]),
        ("paused", ["destroy web1", "start web1 paused"]),
        ("shutdown", ["destroy web1"]),
        ("destroyed", ["destroy web1"]),
        ("reset", ["reset web1"]),
    ],
)
def test_what_crashed_is_kept_unless_forced(state: str, expected: list[str]) -> None:
    crashed = found("crashed")
    assert texts(planned(GuestSpec("web1", state=state, force=True), crashed)) == expected
    if state in ("present", "destroyed", "reset"):
        assert texts(planned(GuestSpec("web1", state=state), crashed)) == expected
        return
    with pytest.raises(Refused, match=f"cannot bring web1 to state {state}: it crashed, .*set force: true"):
        planned(GuestSpec("web1", state=state), crashed)
    with pytest.raises(Refused, match="cannot bring web1 to state absent: it crashed"):
        absent(GuestSpec("web1", state="absent"), crashed, managed_state=(), owned=(), owner=OWNER, in_use={}, disks={})


@pytest.mark.parametrize(("state", "step"), [("shutdown", "shut down web1"), ("destroyed", "destroy web1")])
def test_a_guest_that_goes_off_is_not_changed_live(state: str, step: str) -> None:
    result = planned(
        GuestSpec("web1", state=state), found(), Change("vcpus.current", 2, 3), fields={"vcpus.current": 3}
    )
    assert texts(result) == ["define web1 (vcpus.current)", step]


@pytest.mark.parametrize(
    ("state", "now", "expected"),
    [
        ("running", ON, ["shut down web1", "start web1"]),
        ("present", ON, ["shut down web1", "start web1"]),
        ("running", PAUSED, ["resume web1", "shut down web1", "start web1"]),
        ("rebooted", PAUSED, ["resume web1", "shut down web1", "start web1"]),
        ("present", PAUSED, ["resume web1", "shut down web1", "start web1 paused"]),
        ("paused", PAUSED, ["resume web1", "shut down web1", "start web1 paused"]),
        ("paused", ON, ["shut down web1", "start web1 paused"]),
    ],
)
def test_restart_where_allowed(state: str, now: str, expected: list[str]) -> None:
    wanted = GuestSpec("web1", state=state, allow_restart=True, autostart=True)
    result = planned(
        wanted, found(now), Change("vcpus.current", 2, 3), Change("machine", "a", "b"), fields={"vcpus.current": 3}
    )
    assert texts(result) == ["define web1 (machine, vcpus.current)", "set autostart of web1 on", *expected]
    assert result.pending == ()


@pytest.mark.parametrize(
    ("wish", "has", "step"), [(True, False, "on"), (False, True, "off"), (True, True, None), (None, True, None)]
)
def test_autostart(wish: bool | None, has: bool, step: str | None) -> None:
    result = planned(GuestSpec("web1", autostart=wish), found(OFF, autostart=has))
    assert texts(result) == ([f"set autostart of web1 {step}"] if step else [])


def test_growing_alone_needs_no_definition() -> None:
    grow = plan_guest_steps.GrowRunningDisk("web1", "/a", 2 * 1024**3, "vda")
    assert texts(planned(GuestSpec("web1"), found(), storage=[grow])) == ["grow disk /a to 2 GiB while it runs"]


def test_absent_tells_of_files_left_over() -> None:
    result = gone("web1", ["/web1-data.qcow2"])
    assert result.steps == ()
    command = "virsh --connect qemu:///system vol-delete /web1-data.qcow2"
    assert result.notes == (
        f"disk /web1-data.qcow2 may be left over from web1: no guest uses it; inspect it; to delete it: {command}",
    )


CHANGES = st.lists(
    st.sampled_from(
        ["title", "tags", "vcpus.current", "vcpus.maximum", "memory.current_kib", "machine", "disks[a].cache"]
    ),
    unique=True,
)


@given(
    st.sampled_from(sorted({*STATES, *ACTIONS} - {"absent", "reset"})),
    st.sampled_from([OFF, ON, PAUSED]),
    CHANGES,
    st.booleans(),
    st.booleans(),
)
def test_what_holds_for_every_plan(state: str, now: str, where: list[str], allow: bool, storage: bool) -> None:
    wanted = GuestSpec("web1", state=state, allow_restart=allow)
    more: dict[str, t.Any] = {"storage": [SYSTEM], "unfinished_xml": "<domain/>"} if storage else {}
    fields: dict[str, t.Any] = {"vcpus.current": 3, "memory.current_kib": 9999}
    result = planned(wanted, found(now), *[Change(field, 1, 3) for field in where], fields=fields, **more)
    kinds = [type(step) for step in result.steps]
    assert bool(plan_guest_steps.Define in kinds) == bool(where or storage), (
        "a definition exactly when something changed"
    )
    if storage:
        assert kinds[:3] == [plan_guest_steps.Define, plan_guest_steps.CreateVolume, plan_guest_steps.Define], (
            "what is made is recorded before it is made"
        )
    power = [
        index
        for index, kind in enumerate(kinds)
        if kind
        in (plan_guest_steps.Start, plan_guest_steps.Shutdown, plan_guest_steps.Destroy, plan_guest_steps.Reboot)
    ]
    assert all(index > kinds.index(plan_guest_steps.Define) for index in power if plan_guest_steps.Define in kinds), (
        "power only after the definition"
    )
    if plan_guest_steps.Start in kinds and now != OFF:
        assert allow and plan_guest_steps.Shutdown in kinds, "no restart that was not allowed"
    assert not (allow and result.pending and state not in ("shutdown", "destroyed"))
    if now == OFF:
        assert not result.pending
    assert not {plan_guest_steps.Undefine, plan_guest_steps.DeleteVolume} & set(kinds), "only absent takes away"


@pytest.mark.parametrize(
    ("said", "known", "expected"),
    [
        ({"vcpus.current": 4}, {}, {"vcpus.current": 4, "vcpus.maximum": 4}),
        ({"vcpus.current": 4}, {"vcpus.current": 2, "vcpus.maximum": 2}, {"vcpus.current": 4, "vcpus.maximum": 4}),
        ({"vcpus.current": 1}, {"vcpus.current": 2, "vcpus.maximum": 2}, {"vcpus.current": 1, "vcpus.maximum": 1}),
        ({"vcpus.current": 3}, {"vcpus.current": 2, "vcpus.maximum": 4}, {"vcpus.current": 3, "vcpus.maximum": 4}),
        ({"vcpus.current": 8}, {"vcpus.current": 2, "vcpus.maximum": 4}, {"vcpus.current": 8, "vcpus.maximum": 8}),
        ({"vcpus.maximum": 8}, {"vcpus.current": 2, "vcpus.maximum": 4}, {"vcpus.maximum": 8}),
        ({"vcpus.maximum": 1}, {"vcpus.current": 2, "vcpus.maximum": 4}, {"vcpus.maximum": 1, "vcpus.current": 1}),
        ({"vcpus.maximum": 4}, {"vcpus.current": 4}, {"vcpus.maximum": 4}),
        ({"vcpus.maximum": 4}, {"vcpus.current": None}, {"vcpus.maximum": 4}),
        (
            {"vcpus.current": 1, "vcpus.maximum": 9},
            {"vcpus.current": 2, "vcpus.maximum": 4},
            {"vcpus.current": 1, "vcpus.maximum": 9},
        ),
        (
            {"memory.current_kib": 5},
            {"memory.current_kib": 4, "memory.maximum_kib": 4},
            {"memory.current_kib": 5, "memory.maximum_kib": 5},
        ),
        ({"title": "x"}, {}, {"title": "x"}),
    ],
)
def test_a_maximum_follows(said: dict[str, t.Any], known: dict[str, t.Any], expected: dict[str, t.Any]) -> None:
    assert completed(GuestSpec("web1", fields=said, as_numbers=("vcpus", "memory")), known).fields == expected


def test_policy_rows_are_used_as_they_are_written() -> None:
    assert plan_live.how("disks[a.b]") == plan_live.how("interfaces[x]") == plan_live.ATTACH
    assert plan_live.how("disks[a].cache") == plan_live.how("nothing.like.it") == plan_live.NEXT_BOOT
    assert all(plan_live.how(re.sub(r"\[\]", "[x]", where)) == policy for where, policy in plan_live.POLICY.items())


def test_diff_shows_only_what_changes() -> None:
    changes = [Change("b", None, 1), Change("a", 1, None), Change("c", 1, 2)]
    assert diff(changes) == {"before": {"a": 1, "c": 1}, "after": {"b": 1, "c": 2}}


def test_the_gate() -> None:
    a, b, bad, c = (plan_guest_steps.Suspend(name) for name in ("a", "b", "bad", "c"))
    done: list[plan_guest_steps.GuestStep] = []
    assert Gate(check_mode=True).run([a], done.append) == [] and done == []
    assert Gate(check_mode=False).run([a, b], lambda step: step.guest * 2) == ["aa", "bb"]

    def do(step: plan_guest_steps.GuestStep) -> None:
        if step is bad:
            raise Refused("no")

    with pytest.raises(Refused, match=r"^no$"):
        Gate(check_mode=False).run([bad], do)
    with pytest.raises(Failed, match=r"^no \(already done: suspend a; suspend b\)$") as caught:
        Gate(check_mode=False).run([a, b, bad, c], do)
    assert caught.value.done == ["suspend a", "suspend b"]
    for gate in (Gate(check_mode=False).after([a, b]), Gate(check_mode=False).after([a]).after([b])):
        with pytest.raises(Failed, match=r"^no \(already done: suspend a; suspend b\)$") as caught:
            gate.run([bad], do)
        assert caught.value.done == ["suspend a", "suspend b"]
    gate = Gate(check_mode=False)
    gate.after([a]).run([b], do)
    with pytest.raises(Refused, match=r"^no$"):
        gate.run([bad], do)
    assert Gate(check_mode=True).after([a]).run([bad], do) == []


def test_the_gate_tells_plans_what_only_a_check_run_has() -> None:
    later = [plan_guest_steps.Suspend("a")]
    assert Gate(check_mode=True).foretell(later) == later
    assert list(Gate(check_mode=False).foretell(later)) == []
    for answer in (True, False):
        assert Gate(check_mode=True).assumes(lambda answer=answer: answer) is answer  # type: ignore[misc]
    assert Gate(check_mode=False).assumes(lambda: 1 / 0 > 0) is False, "a real run does not even look"


def test_a_namesake_is_not_removed() -> None:
    here = found()
    other = GuestSpec("web1", state="absent", uuid="00000000-0000-0000-0000-000000000009")
    with pytest.raises(
        Refused, match=f"cannot remove web1: the guest with this name has UUID {here.uuid}, not {other.uuid}"
    ):
        absent(other, here, managed_state=(), owned=(), owner=OWNER, in_use={}, disks={})
    same = GuestSpec("web1", state="absent", uuid=here.uuid)
    assert (
        texts(absent(same, here, managed_state=(), owned=(), owner=OWNER, in_use={}, disks={}))[-1] == "undefine web1"
    )


@pytest.mark.parametrize(
    ("state", "now", "suspends"),
    [("shutdown", PAUSED, True), ("present", PAUSED, True), ("running", PAUSED, False), ("shutdown", ON, False)],
)
def test_only_a_paused_guest_is_paused_again(state: str, now: str, suspends: bool) -> None:
    shutdown = power_off(GuestSpec("web1", state=state), found(now))[-1]
    assert isinstance(shutdown, plan_guest_steps.Shutdown) and shutdown.suspends is suspends
