"""What two observed ends of a migration mean: nothing is ever done that could make two of one guest, or none."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_verdict
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DELTA,
    FULL,
    DiskMove,
    Move,
    Observation,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrate import migrate_flags, steps

STATES = [
    "running",
    "paused",
    "shutdown",
    "crashed",
    "absent",
    "unreachable",
    "unknown",
    "incoming",
    "reserved",
    "postcopy",
    "migrated",
]
DEAD = {"shutdown", "crashed", "absent", "migrated"}
NEVER_RAN = {"incoming", "reserved"}
ENDS = list(itertools.product(STATES, STATES, [False, True]))


def judge(source: str, dest: str, **more: t.Any) -> plan_verdict.Verdict:
    """What two states mean."""
    return plan_verdict.judge(Observation(source, dest, **more))


@pytest.mark.parametrize(("source", "dest", "was_paused"), ENDS)
def test_no_pair_of_states_leads_to_harm(source: str, dest: str, was_paused: bool) -> None:
    verdict = judge(source, dest, was_paused=was_paused)
    assert verdict.meaning
    if verdict.action in ("resume_dest", "resume_source"):
        resumed, other = (dest, source) if verdict.action == "resume_dest" else (source, dest)
        assert resumed == "paused" and other in DEAD, "resumed while the other may run"
        assert not was_paused, "resumed what its owner had paused"
    elif verdict.action == "clean_dest":
        assert dest not in ("running", "unreachable", "unknown"), "discarded what may run"
        assert source in ("running", "paused") or (source in DEAD - {"absent"} and dest in NEVER_RAN), (
            "discarded the last copy"
        )
    elif verdict.action == "clean_source":
        arrived = dest == "running" or (dest == "paused" and was_paused)
        assert (source, dest, was_paused) == ("paused", "running", False) or (source == "migrated" and arrived)
    elif verdict.action == "finish_dest":
        assert (source, dest) == ("absent", "reserved"), "let a guest start that is still elsewhere"
    elif verdict.action == "done":
        assert source == "absent" and dest in ("running", "paused")
    elif verdict.action == "rolled_back":
        assert source not in ("absent", "migrated") and dest == "absent"
    else:
        assert verdict.action == "nothing"


@pytest.mark.parametrize(("source", "dest", "was_paused"), ENDS)
def test_while_libvirt_is_at_work_nothing_is_done(source: str, dest: str, was_paused: bool) -> None:
    verdict = judge(source, dest, was_paused=was_paused, job_active=True)
    assert verdict.action == "nothing" and verdict.wait


@pytest.mark.parametrize(
    ("source", "dest", "was_paused", "action"),
    [
        ("absent", "paused", False, "resume_dest"),
        ("absent", "paused", True, "done"),
        ("absent", "running", False, "done"),
        ("absent", "reserved", False, "finish_dest"),
        ("absent", "incoming", False, "nothing"),
        ("absent", "absent", False, "nothing"),
        ("running", "absent", False, "rolled_back"),
        ("running", "paused", False, "clean_dest"),
        ("running", "incoming", False, "clean_dest"),
        ("running", "shutdown", False, "nothing"),
        ("running", "crashed", False, "nothing"),
        ("running", "reserved", False, "clean_dest"),
        ("running", "running", False, "nothing"),
        ("paused", "absent", False, "resume_source"),
        ("paused", "absent", True, "rolled_back"),
        ("paused", "shutdown", False, "nothing"),
        ("paused", "paused", False, "clean_dest"),
        ("paused", "running", False, "clean_source"),
        ("paused", "running", True, "nothing"),
        ("paused", "unreachable", False, "nothing"),
        ("shutdown", "absent", False, "rolled_back"),
        ("shutdown", "incoming", False, "clean_dest"),
        ("shutdown", "reserved", False, "clean_dest"),
        ("shutdown", "paused", False, "nothing"),
        ("crashed", "shutdown", False, "nothing"),
        ("unreachable", "running", False, "nothing"),
        ("postcopy", "running", False, "nothing"),
        ("postcopy", "absent", False, "nothing"),
        ("migrated", "running", False, "clean_source"),
        ("migrated", "absent", False, "nothing"),
        ("migrated", "incoming", False, "nothing"),
        ("migrated", "paused", False, "resume_dest"),
        ("migrated", "paused", True, "clean_source"),
        ("migrated", "reserved", False, "clean_dest"),
        ("migrated", "shutdown", False, "nothing"),
        ("postcopy", "crashed", False, "nothing"),
    ],
)
def test_judge(source: str, dest: str, was_paused: bool, action: str) -> None:
    assert judge(source, dest, was_paused=was_paused).action == action


def disk(how: str, *, flatten: bool = False) -> DiskMove:
    return DiskMove(
        "vda", "/images/a.qcow2", how, "", Volume("default", "a.qcow2", "/images/a.qcow2", 1024), flatten=flatten
    )


def move(*disks: DiskMove, active: bool = True, autostart: bool = False, **tuning: t.Any) -> Move:
    result = Tuning(**tuning)
    return Move(
        "web1", "aaaa", "hyper2", "qemu+tls://hyper2/system", result, active=active, autostart=autostart, disks=disks
    )


def test_a_running_guest_arrives_paused_over_tls() -> None:
    flags, parameters = migrate_flags(move(disk(DELTA)))
    assert {"LIVE", "PEER2PEER", "PAUSED", "TLS", "UNDEFINE_SOURCE", "NON_SHARED_INC"} <= set(flags)
    assert not {"POSTCOPY", "UNSAFE", "PERSIST_DEST"} & {*flags}
    assert parameters == {"migrate_uri": "tcp://hyper2", "tls.destination": "hyper2", "migrate_disks": ["vda"]}


@pytest.mark.parametrize(
    "tuning", [{"postcopy": True}, {"schedule": "postcopy"}, {"timeout_action": "postcopy"}], ids=str
)
def test_what_may_switch_to_postcopy_cannot_arrive_paused(tuning: dict[str, t.Any]) -> None:
    flags, _parameters = migrate_flags(move(**tuning))
    assert "POSTCOPY" in flags and "PAUSED" not in flags


def test_a_tunnel_needs_no_address_of_its_own_and_no_certificate() -> None:
    flags, parameters = migrate_flags(move(transport="tunnelled"))
    assert "TUNNELLED" in flags and "TLS" not in flags and not parameters


def test_a_disk_without_its_base_travels_whole() -> None:
    assert "NON_SHARED_DISK" in migrate_flags(move(disk(FULL, flatten=True)))[0]


def test_a_running_guest_is_recorded_before_anything_is_made_and_the_sources_disks_go_last() -> None:
    verbs = [step.verb for step in steps(move(disk(DELTA), autostart=True))]
    assert verbs == [
        "record", "disableautostart", "makedisk", "reserve", "migrate", "defineondest", "setautostartondest", "removedisk",
        "forget",
    ]  # fmt: skip


def test_a_guest_that_is_off_cannot_be_started_in_two_places() -> None:
    verbs = [step.verb for step in steps(move(disk("copy"), active=False))]
    assert verbs == ["record", "copydisk", "reserve", "undefineonsource", "defineondest", "removedisk", "forget"]


def test_libvirt_is_told_to_trust_only_where_the_user_vouches_for_a_disk() -> None:
    shared = DiskMove("vda", "/srv/a.qcow2", "shared", "")
    assert "UNSAFE" not in migrate_flags(move(shared, disk(DELTA)))[0]
    assert "UNSAFE" in migrate_flags(move(dataclasses.replace(shared, vouched=True), disk(DELTA)))[0]
