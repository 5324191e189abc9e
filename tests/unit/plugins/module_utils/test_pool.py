"""Storage pools: what is decided, and that libvirt's own test driver ends up there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._front import noun
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._libvirt.pool import LIBRARY
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Facts, Found
from ansible_collections.corral.virt.plugins.module_utils._noun.noun import plan
from ansible_collections.corral.virt.plugins.module_utils._noun.pool import POOL
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

XML = "<pool type='{}'><name>a</name><target><path>{}</path></target></pool>"


def found(*, active: bool, kind: str = "dir", path: str = "/srv/a") -> Found:
    """A pool as libvirt has it; it starts with the host when it runs."""
    xml = XML.format(kind, path)
    return Found("u", True, active, xml, xml if active else None)


HERE, OFF = found(active=True), found(active=False)


def params(path: str | None = None, state: str = "active", autostart: bool | None = None) -> dict[str, t.Any]:
    """As Ansible hands them over."""
    return {"name": "a", "path": path, "state": state, "autostart": autostart}


@pytest.mark.parametrize(
    ("wanted", "there", "steps"),
    [
        (params("/srv/a"), None, ["define pool a in /srv/a", "set autostart of pool a on", "start pool a"]),
        (params("/srv/a", "inactive"), None, ["define pool a in /srv/a"]),
        (params("/srv/a"), HERE, []),
        (params("/srv/a/"), HERE, []),
        (params(), HERE, []),
        (params(), OFF, ["start pool a"]),
        (params(autostart=True), OFF, ["set autostart of pool a on", "start pool a"]),
        (params(state="inactive"), HERE, ["stop pool a"]),
        (params(state="absent"), HERE, ["stop pool a", "undefine pool a"]),
        (params(state="absent"), None, []),
    ],
)
def test_steps(wanted: dict[str, t.Any], there: Found | None, steps: list[str]) -> None:
    planned = plan(POOL, noun.spec(POOL, wanted), Facts(there))
    assert [str(step) for step in planned.steps] == steps
    assert bool(planned.changes) == bool(steps)


def test_what_goes_is_told() -> None:
    planned = plan(POOL, noun.spec(POOL, params(state="absent")), Facts(HERE))
    assert sorted((change.where, change.before, change.after) for change in planned.changes) == [
        ("active", True, None),
        ("autostart", True, None),
        ("path", "/srv/a", None),
    ]


@pytest.mark.parametrize(
    ("wanted", "there", "error", "reason"),
    [
        (params(), None, BadInput, "path of pool a: it is required for a new pool"),
        (params("srv/a"), None, BadInput, "path of pool a: must be an absolute path"),
        (params("/srv/b"), HERE, Refused, "disks of guests would stay behind"),
        (params(), found(active=True, kind="logical"), Refused, "of type logical"),
        (params("/srv/b"), found(active=True, kind="logical"), Refused, "of type logical[^;]*; choose another name$"),
    ],
)
def test_refusals(wanted: dict[str, t.Any], there: Found | None, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        plan(POOL, noun.spec(POOL, wanted), Facts(there))


@pytest.mark.parametrize("state", ["active", "inactive"])
def test_check_mode_says_what_a_real_run_does(state: str) -> None:
    wanted: dict[str, t.Any] = {"name": "extra", "path": "/srv/extra", "state": state, "autostart": None}
    with opened("test:///default") as connection:

        def run(*, check_mode: bool = False, **more: str) -> dict[str, t.Any]:
            return noun.converge(connection, POOL, LIBRARY, {**wanted, **more}, Gate(check_mode=check_mode))

        predicted = run(check_mode=True)
        assert "extra" not in connection.listStoragePools() + connection.listDefinedStoragePools()
        assert run() == predicted
        again = run()
        assert (again["changed"], again["pool"]) == (False, predicted["pool"])
        assert again["pool"] == {
            "name": "extra",
            "path": "/srv/extra",
            "active": state == "active",
            "autostart": state == "active",
        }
        gone = run(state="absent")
        assert (gone["changed"], gone["pool"]) == (True, None)
