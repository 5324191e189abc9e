"""Storage pools: what is decided, and that libvirt's own test driver ends up there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._model.pool import Found, Wanted
from ansible_collections.corral.virt.plugins.module_utils._plan.pool import decide
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.modules import virt_pool

HERE = Found("dir", "/srv/a", active=True, autostart=True)
OFF = Found("dir", "/srv/a", active=False, autostart=False)


@pytest.mark.parametrize(
    ("wanted", "found", "steps"),
    [
        (Wanted("a", "/srv/a"), None, ["define pool a in /srv/a", "set autostart of pool a on", "start pool a"]),
        (Wanted("a", "/srv/a", "inactive"), None, ["define pool a in /srv/a"]),
        (Wanted("a", "/srv/a"), HERE, []),
        (Wanted("a", "/srv/a/"), HERE, []),
        (Wanted("a"), HERE, []),
        (Wanted("a"), OFF, ["start pool a"]),
        (Wanted("a", autostart=True), OFF, ["set autostart of pool a on", "start pool a"]),
        (Wanted("a", state="inactive"), HERE, ["stop pool a"]),
        (Wanted("a", state="absent"), HERE, ["stop pool a", "undefine pool a"]),
        (Wanted("a", state="absent"), None, []),
    ],
)
def test_steps(wanted: Wanted, found: Found | None, steps: list[str]) -> None:
    planned, changes = decide(wanted, found)
    assert [str(step) for step in planned] == steps
    assert bool(changes) == bool(steps)


@pytest.mark.parametrize(
    ("wanted", "found", "error", "reason"),
    [
        (Wanted("a"), None, BadInput, "say where"),
        (Wanted("a", "srv/a"), None, BadInput, "must be absolute"),
        (Wanted("a", "/srv/b"), HERE, Refused, "disks of guests would stay behind"),
        (Wanted("a"), Found("logical", "/dev/a", active=True, autostart=True), Refused, "of type logical"),
    ],
)
def test_refusals(wanted: Wanted, found: Found | None, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        decide(wanted, found)


@pytest.mark.parametrize("state", ["active", "inactive"])
def test_check_mode_says_what_a_real_run_does(state: str) -> None:
    params: dict[str, t.Any] = {"name": "extra", "path": "/srv/extra", "state": state, "autostart": None}
    with opened("test:///default") as connection:
        predicted = virt_pool.run(params, connection, Gate(check_mode=True))
        assert "extra" not in connection.listStoragePools() + connection.listDefinedStoragePools()
        assert virt_pool.run(params, connection, Gate(check_mode=False)) == predicted
        again = virt_pool.run(params, connection, Gate(check_mode=False))
        assert (again["changed"], again["pool"]) == (False, predicted["pool"])
        gone = virt_pool.run({**params, "state": "absent"}, connection, Gate(check_mode=False))
        assert (gone["changed"], gone["pool"]) == (True, None)
