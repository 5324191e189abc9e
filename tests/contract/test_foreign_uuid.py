"""A guest is its UUID: whatever both ends hold, a guest with another UUID is absent, and nothing is ever done to it."""

from __future__ import annotations

import contextlib
import itertools
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._migration import libvirt_migrate, run_reconcile
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Move
from ansible_collections.corral.virt.tests.contract.two_hosts import STATES, Host, converge, ends

OURS, FOREIGN = "6695eb01-f6a4-8304-79aa-97f2502e193f", "6695eb01-f6a4-8304-79aa-97f2502e1940"


def of_a_move(*, was_paused: bool) -> dict[str, t.Any]:
    return {"moving": "hyper2", "moving_from": "1111", "moving_paused": "yes" if was_paused else ""}


EVERY = list(itertools.product(STATES, STATES, [False, True]))


@pytest.mark.parametrize("state", ["present", "aborted"])
@pytest.mark.parametrize(("here", "there", "was_paused"), EVERY)
def test_a_foreign_guest_on_the_destination_is_never_changed(
    hosts: tuple[Host, Host], here: str, there: str, was_paused: bool, state: str
) -> None:
    source, dest = hosts
    source.add("web1", OURS, here, **of_a_move(was_paused=was_paused))
    dest.add("web1", FOREIGN, there)
    before = dest.look(FOREIGN)
    converge(source, dest, state=state)
    assert dest.look(FOREIGN) == before
    assert source.look(OURS), "the only copy"


@pytest.mark.parametrize("here", ["running", "paused", "shutdown"])
@pytest.mark.parametrize("there", STATES)
def test_a_foreign_guest_that_appears_after_the_preflight_is_never_changed(
    hosts: tuple[Host, Host], here: str, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = hosts
    source.add("web1", OURS, here)
    begin, before = run_reconcile.begin, []

    def begin_and_be_late(*result: t.Any) -> None:
        begin(*result)
        dest.add("web1", FOREIGN, there)
        before.append(dest.look(FOREIGN))

    monkeypatch.setattr(run_reconcile, "begin", begin_and_be_late)
    monkeypatch.setattr(libvirt_migrate, "run", lambda *_told: ("domain 'web1' already exists", 0.0))
    reason = converge(source, dest)
    assert before == [dest.look(FOREIGN)], reason
    assert source.look(OURS), "the only copy"


@pytest.mark.parametrize("end", ["source", "dest"])
@pytest.mark.parametrize(("ours", "foreign", "was_paused"), EVERY)
def test_settling_touches_no_foreign_guest(
    hosts: tuple[Host, Host], end: str, ours: str, foreign: str, was_paused: bool
) -> None:
    other, its = hosts if end == "source" else hosts[::-1]
    other.add("web1", FOREIGN, foreign)
    its.add("web1", OURS, ours, **of_a_move(was_paused=was_paused))
    before, move = (
        other.look(FOREIGN),
        Move(guest="web1", uuid=OURS, dest="hyper2", dest_uri="there", paused=was_paused),
    )
    with contextlib.suppress(VirtError):
        verdict = run_reconcile.reconcile(ends(*hosts), move)
        assert "destroy the wrong one" not in verdict.meaning
        if verdict.end == "stayed":
            run_reconcile.clean_up(ends(*hosts), OURS)
    assert other.look(FOREIGN) == before
    assert its.look(OURS), "the only copy"


def test_a_suspended_guest_is_not_undefined_because_a_namesake_runs_on_the_destination(
    hosts: tuple[Host, Host],
) -> None:
    source, dest = hosts
    source.add("web1", OURS, "paused", **of_a_move(was_paused=False))
    dest.add("web1", FOREIGN, "running")
    converge(source, dest, state="aborted")
    assert source.look(OURS) and dest.look(FOREIGN)
