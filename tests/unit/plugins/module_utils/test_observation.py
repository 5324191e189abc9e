"""What both hosts are asked about a guest that moves, by the states that they tell."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Observation
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import (
    GuestEnds,
    observation,
)
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.dialogue import Dialogue, Questions, told

ASK = t.cast(GuestEnds, Questions())
JOB, NO_JOB = (ASK.has_job(), True), (ASK.has_job(), False)
TABLE: list[tuple[tuple[str, str], Dialogue, dict[str, t.Any]]] = [
    (("running", "absent"), [NO_JOB], {}),
    (("running", "incoming"), [JOB], {"job_active": True}),
    (("unreachable", "running"), [NO_JOB], {}),
    (("running", "running"), [NO_JOB], {}),
    # It is paused by its owner, or by its migration.
    (("paused", "absent"), [(ASK.is_suspended_by_owner(), True), NO_JOB], {"was_paused": True}),
    (("paused", "absent"), [(ASK.is_suspended_by_owner(), False), NO_JOB], {}),
    (("incoming", "incoming"), [JOB], {"source": "paused", "job_active": True}),
    # It is off here, and runs there.
    (("shutdown", "absent"), [NO_JOB], {}),
    (("shutdown", "paused"), [NO_JOB], {}),
    (("shutdown", "running"), [(ASK.is_superseded(), True), NO_JOB], {"superseded": True}),
    (("crashed", "running"), [(ASK.is_superseded(), False), NO_JOB], {}),
    (("migrated", "running"), [NO_JOB], {}),
    # After a post-copy.
    (("postcopy", "absent"), [NO_JOB], {}),
    (("postcopy", "running"), [NO_JOB, (ASK.has_all_memory(), False)], {}),
    (
        ("postcopy", "running"),
        [NO_JOB, (ASK.has_all_memory(), True), (ASK.takes_disks_back(), False)],
        {"complete": True},
    ),
    (
        ("postcopy", "running"),
        [NO_JOB, (ASK.has_all_memory(), True), (ASK.takes_disks_back(), True)],
        {"complete": True, "takes_back": True},
    ),
    # A copy that is paused on the source is ended there.
    (
        ("paused", "running"),
        [(ASK.is_suspended_by_owner(), False), NO_JOB, (ASK.takes_disks_back(), True)],
        {"takes_back": True},
    ),
    (("incoming", "running"), [NO_JOB, (ASK.takes_disks_back(), False)], {"source": "paused"}),
]


@pytest.mark.parametrize(("states", "dialogue", "expected"), TABLE)
def test_what_is_asked(states: tuple[str, str], dialogue: Dialogue, expected: dict[str, t.Any]) -> None:
    source, dest = states
    with told(dialogue) as hosts:
        seen = observation(source, dest, hosts)
    assert seen == Observation(**{"source": source, "dest": dest, **expected})


def test_who_was_paused_before_is_not_asked_again() -> None:
    with told([NO_JOB]) as hosts:
        seen = observation("paused", "absent", hosts, was_paused=True, again=True)
    assert seen == Observation("paused", "absent", was_paused=True, again=True)
