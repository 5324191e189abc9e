"""Who has the disks of guests that a lock keeps from starting."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands import lock_holders

LEASE = "cannot start web1: resource busy: Lockspace resource '3f6a' is locked"
QEMU = 'cannot start web1: internal error: process exited: Failed to get "write" lock'


def guest(name: str, state: str, *sources: str, uuid: str = "") -> dict[str, t.Any]:
    return {"name": name, "uuid": uuid or name, "state": state, "disks": [{"source": one} for one in (*sources, None)]}


@pytest.mark.parametrize("msg", [LEASE, QEMU])
@pytest.mark.parametrize(
    ("elsewhere", "told"),
    [
        (guest("web1", "running", "/srv/web1.qcow2"), "its disks are held by web1 on hyper2 (running)"),
        (guest("copy", "paused", "/srv/web1.qcow2"), "its disks are held by copy on hyper2 (paused)"),
        (guest("moved", "running", "/other", uuid="web1"), "its disks are held by moved on hyper2 (running)"),
        (guest("web1", "shutdown", "/srv/web1.qcow2"), "its holder is unknown"),
        (guest("db1", "running", "/srv/db1.qcow2"), "its holder is unknown"),
    ],
)
def test_who_has_a_disk_is_named(msg: str, elsewhere: dict[str, t.Any], told: str) -> None:
    result = {"results": [{"name": "web1", "failed": True, "msg": msg}, {"name": "web2"}]}
    queried = {
        "hyper1": {"domains": [guest("web1", "shutdown", "/srv/web1.qcow2")]},
        "hyper2": {"domains": [elsewhere]},
    }
    assert lock_holders.holders(result, "hyper1", {**queried, "hyper3": None}).startswith(f"; web1: {told}")


def test_other_failures_name_nobody() -> None:
    result = {"results": [{"name": "web1", "failed": True, "msg": "cannot start web1: out of memory"}]}
    assert lock_holders.holders(result, "hyper1", {}) == ""
    assert lock_holders.holders(None, "hyper1", {}) == ""
