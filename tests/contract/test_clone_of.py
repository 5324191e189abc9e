"""A copy of a guest, on libvirt's test driver: check mode, the run, the second run, an interrupted one, and what is
refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    libvirt_domain,
    plan_guest_steps,
    run_guest,
    run_guest_options,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed, run_seeds
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import HOST_KEY, options

OLD: dict[str, t.Any] = {
    "name": "old",
    "vcpus": 2,
    "memory": "64MiB",
    "tags": ["front"],
    "interfaces": [{"name": "eth0", "network": "lan"}],
    "disks": [{"name": "system", "size": "1GiB"}, {"name": "data", "size": "2GiB"}],
}
COPY: dict[str, t.Any] = {"name": "new", "clone_of": "old"}


@pytest.fixture(autouse=True)
def host_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test driver takes no uploads, and a new key would differ each time."""
    monkeypatch.setattr(files_seed, "host_key", lambda: HOST_KEY)


def run(connection: t.Any, said: dict[str, t.Any], *, check_mode: bool = False) -> dict[str, t.Any]:
    return run_guest.converge(
        connection, dataclasses.replace(options(said), virt_type="auto"), Gate(check_mode=check_mode)
    )


@pytest.fixture
def old(connection: t.Any) -> t.Any:
    """The guest that is copied."""
    run(connection, OLD)
    return connection.lookupByName("old")


def test_check_mode_says_what_is_done(connection: t.Any, old: t.Any) -> None:
    before = snapshot(connection)
    checked = run(connection, COPY, check_mode=True)
    assert snapshot(connection) == before
    assert checked["steps"][0].startswith("define new ")
    made = [step for step in checked["steps"] if step.startswith("create disk")]
    assert [step.split("/")[-1] for step in made] == ["old-system.qcow2)", "old-data.qcow2)"], made
    assert any(step.startswith("write cloud-init seed") for step in checked["steps"])
    assert old.name() == "old"


@pytest.mark.parametrize(
    ("said", "kind", "why"),
    [
        ({"disks": [{"name": "data", "pool": "nowhere"}]}, NotFound, "nowhere"),
        ({"cloud_init": {"method": "virt_customize"}}, Refused, "use method: nocloud"),
    ],
)
def test_what_is_refused_changes_nothing(
    connection: t.Any, old: t.Any, said: dict[str, t.Any], kind: type[VirtError], why: str
) -> None:
    before = snapshot(connection)
    for check_mode in (True, False):
        with pytest.raises(kind, match=why):
            run(connection, {**COPY, **said}, check_mode=check_mode)
    assert snapshot(connection) == before and old.name() == "old"


def test_the_seed_is_for_the_interfaces_that_the_copy_has(
    connection: t.Any, old: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those that are said for it, or added to it; and it lies where the disks do."""
    written: list[plan_guest_steps.WriteSeed] = []
    monkeypatch.setattr(run_seeds, "do", lambda _connection, step: written.append(step))
    monkeypatch.setattr(libvirt_domain, "do", lambda *_arguments: None)
    monkeypatch.setattr(libvirt_domain, "create_volume", lambda *_arguments: None)
    monkeypatch.setattr(definition, "claimed", lambda *_arguments, **_record: contextlib.nullcontext())
    nics = [{"name": "eth0", "mac": "52:54:00:aa:bb:cc"}, {"name": "eth1", "network": "lan"}]
    run(connection, {**COPY, "interfaces": nics})
    [step] = written
    found = json.loads(step.files["network-config"])["ethernets"]
    macs = [nic["match"]["macaddress"] for nic in found.values()]
    assert macs[0] == "52:54:00:aa:bb:cc" and len(macs) == 2 and step.volume.pool == "default" and old.name() == "old"


def test_a_guest_that_is_there_is_not_made_again(connection: t.Any, old: t.Any) -> None:
    """Whatever there is of the original by then, and with the disks and the seed that it has."""
    run(connection, {**OLD, "name": "new"})
    before = snapshot(connection)
    result = run(connection, COPY)
    assert not result["changed"] and result["steps"] == [] and snapshot(connection) == before
    old.undefine()
    assert not run(connection, COPY)["changed"]


@pytest.fixture
def half(connection: t.Any, old: t.Any, monkeypatch: pytest.MonkeyPatch) -> t.Any:
    """A copy whose run was killed after its definition."""

    def killed(*_arguments: t.Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_seeds, "do", killed)
        with pytest.raises(KeyboardInterrupt):
            run(connection, COPY)
    found = connection.lookupByName("new")
    assert found.XMLDesc().count(".making'") == 2 and "old-system" not in found.XMLDesc()
    assert old.UUIDString() != found.UUIDString()
    return found


def test_an_interrupted_copy_is_made_whole(connection: t.Any, half: t.Any) -> None:
    again = run(connection, COPY, check_mode=True)
    assert len([step for step in again["steps"] if step.startswith("create disk") and "copy of" in step]) == 2
    assert half.name() == "new"


@pytest.mark.parametrize(
    "said",
    [
        {"name": "new", "title": "New"},
        {"name": "new", "vcpus": 1, "memory": "64MiB", "state": "running"},
        {"name": "new", "disks": [{"name": "system", "size": "1GiB"}]},
    ],
)
def test_half_a_copy_becomes_nothing_else(connection: t.Any, half: t.Any, said: dict[str, t.Any]) -> None:
    before = snapshot(connection)
    with pytest.raises(
        Refused, match="an interrupted run was creating it as a copy of another guest; set clone_of again"
    ):
        run(connection, said)
    assert snapshot(connection) == before and half.name() == "new"


def test_half_a_copy_is_completed_with_its_own_original_only(connection: t.Any, old: t.Any, half: t.Any) -> None:
    old.create()
    with pytest.raises(Refused, match="old is running, and would write to its disks"):
        run(connection, COPY, check_mode=True)
    old.destroy()
    xml = old.XMLDesc()
    old.undefine()
    connection.defineXML(xml.replace(old.UUIDString(), "6695eb01-f6a4-8304-79aa-97f2502e1999"))
    with pytest.raises(Refused, match=r"and old has UUID 6695eb01-.*1999; remove new, and run this again"):
        run(connection, COPY)
    removed = run(connection, {"name": "new", "state": "absent", "remove_storage": True}, check_mode=True)
    assert removed["changed"] and half.name() == "new"


def test_a_copy_and_its_original_in_one_task_are_refused() -> None:
    items = [
        ArgumentSpecValidator(run_guest_options.GUEST_OPTIONS).validate(one).validated_parameters for one in (OLD, COPY)
    ]
    with pytest.raises(
        BadInput, match=r"clone_of of new: this task also describes old; create the copy in a separate task"
    ):
        run_guest_options.all_wanted(items)
