"""Defaults of a guest that is made now, and what its host must have."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_options
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power

VCPUS, MEMORY = {"vcpus.current": 1}, {"memory.current_kib": 1024}
CELLS = (Item("0", fields={"memory_kib": 512}), Item("1", fields={"memory_kib": 256}), Item("2"))


@pytest.mark.parametrize(
    ("said", "follows"),
    [
        ({**VCPUS, **MEMORY}, {}),
        ({"vcpus.maximum": 4, **MEMORY}, {"vcpus.current": 4}),
        ({"vcpus.maximum": 4, "vcpus.current": 2, **MEMORY}, {}),
        ({**VCPUS, "memory.maximum_kib": 2048}, {"memory.current_kib": 2048}),
        ({**VCPUS, "numa.cells": CELLS}, {"memory.maximum_kib": 768, "memory.current_kib": 768}),
        ({**VCPUS, "numa.cells": CELLS, "memory.maximum_kib": 9}, {"memory.current_kib": 9}),
    ],
)
def test_what_runs_at_first_follows_the_maximum(said: dict[str, t.Any], follows: dict[str, t.Any]) -> None:
    assert plan_guest_options.described(GuestSpec("web1", fields=said)).fields == {**said, **follows}


@pytest.mark.parametrize(("said", "lacks"), [(VCPUS, "memory"), (MEMORY, "vcpus"), ({}, "vcpus and memory")])
def test_its_size_must_be_said(said: dict[str, t.Any], lacks: str) -> None:
    with pytest.raises(BadInput, match=f"no such guest here, and creating it requires {lacks}"):
        plan_guest_options.described(GuestSpec("web1", fields=said))


@pytest.mark.parametrize(
    ("asked", "offered", "taken"),
    [
        ("auto", {"x86_64": ["qemu", "kvm"]}, "kvm"),
        ("auto", {"x86_64": ["qemu"], "aarch64": ["kvm"]}, "qemu"),
        ("auto", {"aarch64": ["test"]}, "test"),
        ("auto", {"x86_64": ["xen", "hvf"]}, "xen"),
        ("auto", {"x86_64": ["xen", "qemu"]}, "qemu"),
        ("auto", {}, "qemu"),
        ("qemu", {"x86_64": ["qemu", "kvm"]}, "qemu"),
        ("kvm", {"x86_64": ["qemu"]}, None),
    ],
)
def test_it_is_run_by_what_the_host_offers(asked: str, offered: dict[str, list[str]], taken: str | None) -> None:
    wanted = GuestSpec("web1", virt_type=asked)
    if taken:
        assert plan_guest_options.virt_type(wanted, offered, "x86_64") == taken
        return
    with pytest.raises(Refused, match="this host offers qemu, not kvm; set virt_type: auto"):
        plan_guest_options.virt_type(wanted, offered, "x86_64")


def test_its_machine() -> None:
    assert plan_guest_options.machine(GuestSpec("web1"), ["pc", "q35"]) == "q35"
    assert plan_guest_options.machine(GuestSpec("web1"), ["pc"]) == ""
    assert plan_guest_options.machine(GuestSpec("web1", fields={"machine": "pc"}), ["q35"]) == "pc"


def test_its_disk_and_interface() -> None:
    made = plan_guest_options.equipped(GuestSpec("web1", image="debian-12.qcow2"))
    assert made.disks == (Disk("system", image="debian-12.qcow2"),)
    assert made.interfaces == (Item("eth0", fields={"type": "bridge", "bridge": "br0"}),)
    bare = plan_guest_options.equipped(GuestSpec("web1").with_fields(disks=(), interfaces=()))
    assert (bare.disks, bare.interfaces) == ((), ())


@pytest.mark.parametrize(
    ("bridges", "networks", "lacks"),
    [
        ({"br0"}, {"default"}, ""),
        (None, {"default"}, ""),  # another machine's, which nobody can see from here
        ({"br1"}, {"default"}, r"no bridge br0 \(interface a\); create it with role corral\.virt\.bridge, or"),
        ({"br0"}, set(), r"no network default \(interface b\); create it with virt_network, or"),
        (
            set(),
            set(),
            r"no bridge br0 \(interface a\) and no network default \(interface b\); .*, create it with virt_network",
        ),
    ],
)
def test_what_it_is_plugged_into_is_there(bridges: set[str] | None, networks: set[str], lacks: str) -> None:
    nics = [Item("a", fields={"bridge": "br0"}), Item("b", fields={"network": "default"}), Item("c")]
    if not lacks:
        plan_guest_options.check_links("create web1", nics, bridges, networks)
        return
    with pytest.raises(NotFound, match=f"^cannot create web1: this host has {lacks}"):
        plan_guest_options.check_links("create web1", nics, bridges, networks)


def test_the_kernel_does_not_know_bridges_of_open_vswitch() -> None:
    nic = Item("eth0", fields={"type": "bridge", "bridge": "ovs0", "virtualport": "openvswitch"})
    plan_guest_options.check_links("create web1", [nic], set(), set())


IMAGE, OTHER = "debian-12.qcow2", "centos.qcow2"
GIVEN, DRIVE = Disk("given", fields={"source": "/srv/x"}), Disk("drive", fields={"device": "cdrom"})


@pytest.mark.parametrize(
    ("image", "disks", "images"),
    [
        (None, (), None),
        (IMAGE, (), None),
        (IMAGE, (Disk("system"), Disk("data")), [IMAGE, None]),
        (IMAGE, (GIVEN, DRIVE, Disk("gone", "absent"), Disk("system", image=IMAGE)), [None, None, None, IMAGE]),
        (None, (Disk("system", image=OTHER, clone="copy"),), [OTHER]),
        (IMAGE, (Disk("system", clone="copy"),), [IMAGE]),
    ],
)
def test_image_is_short_for_that_of_the_first_disk(
    image: str | None, disks: tuple[Disk, ...], images: list[str | None] | None
) -> None:
    made = plan_guest_options.with_image(GuestSpec("web1", image=image).with_fields(disks=disks or None)).disks
    assert (made and [disk.image for disk in made]) == images


@pytest.mark.parametrize(
    ("image", "disks", "problem"),
    [
        (IMAGE, (GIVEN,), "none of its disks is created"),
        (IMAGE, (Disk("system", image=OTHER),), "disk system has its own image, centos.qcow2; omit one"),
        (
            IMAGE,
            (Disk("system"), Disk("data", clone="copy")),
            "disk data of web1: clone says how it is created from image",
        ),
    ],
)
def test_an_image_for_nothing_is_refused(image: str, disks: tuple[Disk, ...], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        plan_guest_options.with_image(GuestSpec("web1", image=image).with_fields(disks=disks))


@pytest.mark.parametrize("state", ["present", "running", "shutdown", "absent", "reset", "rebooted"])
def test_a_guest_that_is_moved_is_left_alone(state: str) -> None:
    off, on = (
        FoundGuest("web1", "u", now, persistent=True, autostart=False, xml="<domain/>")
        for now in ("shutdown", "running")
    )
    plan_power.check_state(GuestSpec("web1", state=state), on, moving=True)
    plan_power.check_state(GuestSpec("web1", state=state), off, moving=False)
    if state not in ("reset", "rebooted"):
        plan_power.check_state(GuestSpec("web1", state=state), None, moving=True)
    if state == "present":
        plan_power.check_state(GuestSpec("web1", state=state), off, moving=True)
        return
    with pytest.raises(
        Refused, match=f"cannot bring web1 to state {state}: its migration is in progress or was interrupted"
    ):
        plan_power.check_state(GuestSpec("web1", state=state), off, moving=True)


@pytest.mark.parametrize(
    ("state", "verb"), [("reset", "reset"), ("rebooted", "reboot"), ("running", None), ("absent", None)]
)
def test_only_what_is_there_starts_anew(state: str, verb: str | None) -> None:
    if verb is None:
        plan_power.check_state(GuestSpec("web1", state=state), None, moving=False)
        return
    with pytest.raises(NotFound, match=f"cannot {verb} web1: there is no such guest here"):
        plan_power.check_state(GuestSpec("web1", state=state), None, moving=False)
