"""A guest gets another name, on libvirt's test driver: check mode, the run, the second run, and what is refused."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import options

NEW: dict[str, t.Any] = {
    "name": "old",
    "vcpus": 1,
    "memory": "64MiB",
    "interfaces": [],
    "disks": [{"name": "system", "size": "1GiB"}],
}


def run(connection: t.Any, said: dict[str, t.Any], *, check_mode: bool = False) -> dict[str, t.Any]:
    return run_guest.converge(
        connection, dataclasses.replace(options(said), virt_type="auto"), Gate(check_mode=check_mode)
    )


@pytest.fixture
def uuid(connection: t.Any) -> str:
    """Of a guest that is called old, and has a disk."""
    run(connection, NEW)
    return t.cast(str, connection.lookupByName("old").UUIDString())


def test_a_guest_has_another_name_and_all_that_it_had(connection: t.Any, uuid: str) -> None:
    before, output = snapshot(connection), {"name": "new", "renamed_from": "old", "uuid": uuid}
    checked = run(connection, output, check_mode=True)
    assert snapshot(connection) == before
    done = run(connection, output)
    assert done == checked and done["steps"] == ["rename old to new"]
    assert done["diff"] == {"before": {"name": "old"}, "after": {"name": "new"}}
    assert connection.lookupByName("new").UUIDString() == uuid
    assert "old" not in [domain.name() for domain in connection.listAllDomains()]
    again = run(connection, output)
    assert not again["changed"] and again["steps"] == []
    assert not run(connection, {**NEW, "name": "new"})["changed"], "its disk is the one that it had"
    removed = run(connection, {"name": "new", "state": "absent", "remove_storage": True})
    assert any(step.endswith("old-system.qcow2") for step in removed["steps"])


def test_it_changes_and_starts_under_its_new_name(connection: t.Any, uuid: str) -> None:
    output = {"name": "new", "renamed_from": "old", "title": "The new one", "state": "running"}
    checked = run(connection, output, check_mode=True)
    done = run(connection, output)
    assert done == checked and done["steps"] == ["rename old to new", "define new (title)", "start new"]
    domain = connection.lookupByName("new")
    assert domain.UUIDString() == uuid and domain.isActive() and "The new one" in domain.XMLDesc()
    assert not run(connection, output)["changed"]


def test_what_is_refused_changes_nothing(connection: t.Any, uuid: str) -> None:
    run(connection, {**NEW, "name": "other", "state": "running"})
    before = snapshot(connection)
    for output, kind, why in (
        ({"name": "other", "renamed_from": "old"}, Refused, "another guest has this name"),
        ({"name": "new", "renamed_from": "other"}, Refused, "it is running; shut it down first"),
        ({"name": "new", "renamed_from": "nobody"}, NotFound, "there is no guest nobody here"),
        (
            {"name": "new", "renamed_from": "old", "uuid": "00000000-0000-4000-8000-000000000001"},
            Refused,
            f"has UUID {uuid}, not 0000",
        ),
    ):
        for check_mode in (True, False):
            with pytest.raises(kind, match=why):
                run(connection, output, check_mode=check_mode)
    assert snapshot(connection) == before
