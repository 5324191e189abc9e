"""What the guest's owner does on the way is theirs to decide.

Why a migration failed is told, whatever fails after it.
"""

from __future__ import annotations

import typing as t

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._migration import (
    libvirt_migrate,
    run_reconcile,
    run_send_guest,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Move, Tuning
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, converge, ends

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
BROKEN = ("Connection reset by peer", 0.0)


@pytest.mark.parametrize(("before", "during"), [("running", "suspend"), ("paused", "resume")])
@pytest.mark.parametrize("arrives", [True, False])
def test_what_the_owner_does_on_the_way_is_kept(
    hosts: tuple[Host, Host], before: str, during: str, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = hosts
    source.add("web1", UUID, before)

    def run(domain: t.Any, *given: t.Any) -> tuple[str | None, float]:
        tick = given[3]
        tick(0.1, {}, {})
        getattr(domain, during)()
        tick(0.2, {}, {})
        if arrives:
            domain.destroy()
            domain.undefine()
            dest.add("web1", UUID, "paused")
        return (None, 0.0) if arrives else BROKEN

    monkeypatch.setattr(libvirt_migrate, "run", run)
    reason = converge(*hosts)
    assert ("Connection reset" in reason) is not arrives
    state = (dest if arrives else source).lookupByUUIDString(UUID).state()[0]
    assert state == (libvirt.VIR_DOMAIN_PAUSED if during == "suspend" else libvirt.VIR_DOMAIN_RUNNING)


def test_the_migrations_own_pause_is_no_wish_of_the_owner(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _dest = hosts
    source.add("web1", UUID, "running")

    def run(domain: t.Any, *_told: object) -> tuple[str | None, float]:
        domain.suspend()  # as `timeout_action: suspend` does it
        return BROKEN

    monkeypatch.setattr(libvirt_migrate, "run", run)
    assert "Connection reset" in converge(*hosts, timeout_action="suspend")
    assert source.lookupByUUIDString(UUID).state()[0] == libvirt.VIR_DOMAIN_RUNNING


@pytest.mark.parametrize(
    ("state", "owners"),
    [("running", False), ("paused", True), ("incoming", None), ("stands still", None), ("shutdown", None)],
)
def test_only_a_pause_with_a_reason_is_the_owners(hosts: tuple[Host, Host], state: str, owners: bool | None) -> None:
    """A daemon that was started anew in the middle of the switch-over has no reason for what stands still: left so,
    the guest is lost.
    """
    hosts[0].add("web1", UUID, state)
    assert libvirt_migrate.paused_by_owner(hosts[0].lookupByUUIDString(UUID)) is owners


@pytest.mark.parametrize("fails", ["reconcile", "clean_up"])
def test_why_it_failed_is_told_although_clearing_away_fails_too(
    hosts: tuple[Host, Host], fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts[0].add("web1", UUID, "running")
    monkeypatch.setattr(libvirt_migrate, "run", lambda *_told: ("keepalive timeout", 0.0))

    def fail(*_told: object) -> t.NoReturn:
        raise Failed("cannot remove the copy of web1: it is busy; run again")

    monkeypatch.setattr(run_reconcile, fails, fail)
    move = Move("web1", UUID, "hyper2", "there", tuning=Tuning())
    with pytest.raises(Failed, match=r"keepalive timeout.*cannot remove the copy of web1: it is busy; run again"):
        run_send_guest.send(ends(*hosts), move, t.cast(t.Any, lambda *_told: None), lambda: False)


def test_a_copy_that_libvirt_is_removing_is_removed_in_the_end(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    _source, dest = hosts
    dest.add("web1", UUID, "paused")
    destroy, refused = dest.lookupByUUIDString(UUID).domain.destroy, [2]
    monkeypatch.setattr(libvirt_migrate, "_REMOVE_S", 15)

    def busy(domain: t.Any, _kept: object) -> None:
        if refused[0]:
            refused[0] -= 1
            domain.domain.create()  # libvirt refuses that, as it refuses what it has half done
        destroy()
        domain.domain.undefine()

    monkeypatch.setattr(libvirt_migrate, "_remove", busy)
    libvirt_migrate.discard(dest, UUID)
    assert dest.look(UUID) is None and refused == [0]


def test_a_copy_that_runs_by_now_is_not_dead(hosts: tuple[Host, Host]) -> None:
    _source, dest = hosts
    dest.add("web1", UUID, "running")
    with pytest.raises(Failed, match="it is running now"):
        libvirt_migrate.discard(dest, UUID)
    assert dest.look(UUID)
