"""Every golden case against a real libvirt: check mode says what the real run does, writes nothing, and a second run
changes nothing.
"""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    run_describe,
    run_describe_host,
    run_guest,
    run_summary,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import CASES, Case, options

ACTIONS = ("reset", "rebooted")
# What libvirt lets pass and the test driver does not keep.
FORGOTTEN = ("newer_libvirt", "xml_for_qemu")
BEYOND = ("attach ", "detach ", "grow ", "update ", "pin ", "set scheduler ", "set iotune ", "set 2 iothreads ")


def beyond(steps: t.Sequence[str]) -> list[str]:
    """Steps that the test driver knows nothing of; the lab carries these out."""
    return [step for step in steps if step.startswith(BEYOND) or step.endswith(" paused")]


def prepare(connection: t.Any, case: Case) -> None:
    """Bring the guest of the case into being, as far as the test driver goes: it has no machine types and one
    architecture.
    """
    found = case.found
    if found is None:
        return
    root = parse(found.xml)
    root.set("type", "test")
    kind = root.find("os/type")
    kind.set("arch", "i686")
    kind.attrib.pop("machine")
    domain = connection.defineXML(text(root))
    if found.state != "shutdown":
        domain.create()
    if found.state == "paused":
        domain.suspend()


def wanted_here(case: Case) -> GuestSpec:
    """What the user says, without what only a KVM host has."""
    wanted = case.wanted
    fields = {key: value for key, value in wanted.fields.items() if key != "machine"}
    return dataclasses.replace(wanted, fields=fields, virt_type="auto", wait_for_ip=wanted.wait_for_ip and "lease")


def run(connection: t.Any, wanted: GuestSpec, *, check_mode: bool) -> dict[str, t.Any]:
    """The result, or the error; without what is random."""
    try:
        result = run_guest.converge(connection, wanted, Gate(check_mode=check_mode))
    except VirtError as error:
        return {"error": str(error), "done": getattr(error, "done", [])}
    return {key: value for key, value in result.items() if key not in ("ssh_host_key", "awaits")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check_mode_tells_the_truth(case: Case, connection: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_storage, "write", lambda *_arguments: None)  # the test driver has no streams
    prepare(connection, case)
    wanted, before = wanted_here(case), snapshot(connection)

    checked = run(connection, wanted, check_mode=True)
    assert snapshot(connection) == before, "check mode wrote something"

    done = run(connection, wanted, check_mode=False)
    if "error" not in checked and beyond(checked["steps"]):
        assert done["done"] == checked["steps"][: len(done["done"])], "a real run went another way than check mode said"
        assert checked["steps"][len(done["done"])] in beyond(checked["steps"])
        return
    assert done == checked
    if case.name in FORGOTTEN:
        return
    changed = snapshot(connection) != before
    assert changed == bool(done.get("changed") and wanted.state not in ACTIONS) or (
        changed and wanted.state == "rebooted"
    )

    if "error" in done:
        assert not changed, "an error left something behind"
    elif wanted.state not in ACTIONS:
        again = run(connection, wanted, check_mode=False)
        assert (again["changed"], again["steps"], again["diff"]) == (False, [], {"before": {}, "after": {}})


def test_most_cases_run_to_their_end() -> None:
    """What the test driver cannot do must stay the exception."""
    cut = [case for case in CASES if beyond(case.data("steps.yml").get("steps", []))]
    assert len(cut) * 4 < len(CASES)


def test_a_stranger_is_described_without_secrets(connection: t.Any) -> None:
    prepare(connection, next(case for case in CASES if case.name == "stranger_nothing_said"))
    [seen] = run_describe.describe_guests(connection)
    assert "geheim" not in str(seen)
    assert (seen["name"], seen["state"], seen["vcpus"], seen["memory"]) == (
        "desk",
        "shutdown",
        {"current": 2, "maximum": 4},
        {"current_mib": 2048, "maximum_mib": 4096},
    )
    assert [one["name"] for one in seen["disks"]] == ["vda", "vdb", "sda"]
    assert [one["type"] for one in seen["graphics"]] == ["spice", "vnc"]


def test_an_overview_says_a_part_of_the_description(connection: t.Any) -> None:
    prepare(connection, next(case for case in CASES if case.name == "stranger_nothing_said"))
    [full], [part] = run_describe.describe_guests(connection), run_summary.guests(connection)
    for name in ("disks", "interfaces", "graphics"):
        full[name] = [
            {key: item[key] for key in own if key in item} for own, item in zip(part[name], full[name], strict=True)
        ]
    assert part == {key: full[key] for key in part}


def test_a_host_is_described(connection: t.Any) -> None:
    prepare(connection, next(case for case in CASES if case.name == "state_running_to_running"))
    seen = run_describe_host.describe_host(connection)
    assert [one["name"] for one in seen["pools"]] == ["default"] and seen["pools"][0][
        "path"
    ] == "/var/lib/libvirt/images"
    assert [one["name"] for one in seen["guests"]] == ["web1"]
    assert (seen["vcpus_used"], seen["memory_used_mib"]) == (2, 1024)
    assert seen["memory_free_mib"] == seen["memory_mib"] - seen["memory_reserved_mib"] - 1024


def test_pools_that_a_guest_needs_are_told_however_its_disks_name_them(connection: t.Any) -> None:
    """Placement offers it only hosts that have them."""
    disks = (
        "<disk type='file' device='disk'><source file='/var/lib/libvirt/images/a.img'/><target dev='vda'/></disk>",
        "<disk type='volume' device='disk'><source pool='fast' volume='b.img'/><target dev='vdb'/></disk>",
        (
            "<disk type='network' device='disk'><source protocol='rbd' name='p/c'><host name='m'/></source>"
            "<target dev='vdc'/></disk>"
        ),
        *(
            f"<disk type='block' device='disk'><source dev='{path}'/><target dev='vda'/></disk>"
            for path in ("/dev/vg/a", "/dev/disk/by-path/a", "/dev/sdx")
        ),
    )
    for kind, name in (("logical", "vg"), ("iscsi", "san"), ("iscsi", "old")):
        source = (
            "<name>vg</name>"
            if name == "vg"
            else f"<host name='{name}'/><device path='iqn.2024-01.org.example:{name}'/>"
        )
        connection.storagePoolCreateXML(
            f"<pool type='{kind}'><name>{name}</name><source>{source}</source><target><path>/dev/disk/by-path</path></target></pool>"
        )
    for number, disk in enumerate(disks):
        connection.defineXML(
            f"<domain type='test'><name>box{number}</name><memory>1024</memory><os><type>hvm</type></os>"
            f"<devices>{disk}</devices></domain>"
        )
    seen = {one["name"]: one["pools"] for one in run_describe_host.describe_host(connection)["guests"]}
    assert seen == {
        "box0": ["default"],
        "box1": ["fast"],
        "box2": [],
        "box3": ["vg"],
        "box4": [],  # of one of two pools, and nothing tells of which
        "box5": [],
    }


@pytest.mark.parametrize("state", ["shutdown", "running"])
def test_no_guest_is_plugged_into_a_bridge_that_is_missing(
    connection: t.Any, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a new one nor one that exists; what it is plugged into already is not asked for again."""
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: ({"br0"}, {"lan"}))
    output = {"name": "box1", "memory": 512, "vcpus": 1, "disks": []}
    nic = {"name": "eth0", "type": "bridge"}
    run_guest.converge(
        connection,
        options({**output, "interfaces": [{**nic, "bridge": "br0"}], "state": state}),
        Gate(check_mode=False),
    )
    before = snapshot(connection)
    for interfaces in ([{**nic, "bridge": "br7"}], [{**nic, "name": "eth1", "bridge": "br7"}]):
        for check_mode in (True, False):
            with pytest.raises(NotFound, match="cannot change box1: this host has no bridge br7"):
                run_guest.converge(
                    connection, options({**output, "interfaces": interfaces}), Gate(check_mode=check_mode)
                )
    assert snapshot(connection) == before
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: (set(), set()))
    run_guest.converge(
        connection,
        options({**output, "interfaces": [{**nic, "bridge": "br0"}], "title": "new"}),
        Gate(check_mode=False),
    )


def test_a_live_update_that_fails_leaves_the_definition(connection: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test driver updates no device of a running guest, as a host may refuse it: nothing waits for the next boot
    then.
    """
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: ({"br0", "br1"}, set()))
    output = {"name": "box1", "memory": 512, "vcpus": 1, "disks": [], "state": "running"}
    there, elsewhere = (
        options({**output, "interfaces": [{"name": "eth0", "type": "bridge", "bridge": name}]})
        for name in ("br0", "br1")
    )
    run_guest.converge(connection, there, Gate(check_mode=False))
    before = snapshot(connection)
    with pytest.raises(VirtError, match="cannot update interfaces"):
        run_guest.converge(connection, elsewhere, Gate(check_mode=False))
    assert snapshot(connection) == before
