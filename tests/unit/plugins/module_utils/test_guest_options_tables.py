"""What the options of a guest say together: every contradiction, and what follows from what was said."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, control_characters
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_options
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power

MOST = 4096


Told = t.Callable[[], list[str]]


def kin(**params: t.Any) -> Told:
    return lambda: plan_guest_options.origin_problems({"name": "web1", **params})


def conflicts(stop_on_reboot: bool | None = None, **fields: t.Any) -> Told:
    return lambda: list(plan_guest_options.conflicts(dotted(fields), stop_on_reboot, "web1", most_vcpus=MOST))


def limits(**fields: t.Any) -> Told:
    return lambda: list(plan_guest_options.limit_problems(dotted(fields), "web1"))


def state(**params: t.Any) -> Told:
    return lambda: plan_power.state_problems({"state": "present", **params}, "web1")


def disk(name: str = "a", fields: t.Mapping[str, t.Any] | None = None, **entry: t.Any) -> Told:
    def told() -> list[str]:
        problems = Problems()
        plan_guest_options.disks([Item(name, fields=dict(fields or {}))], [entry], "web1", problems)
        return problems.found

    return told


def dotted(fields: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {key.replace("__", "."): value for key, value in fields.items()}


NAME_IT = "name what is there: volume: POOL/NAME, or source: /PATH"
RBD = {"protocol": "rbd", "name": "pool/a"}
CASES: dict[str, tuple[Told, list[str]]] = {
    "another name": (kin(renamed_from="web0"), []),
    "its own name": (
        kin(renamed_from="web1"),
        ["renamed_from of web1: it is the guest's current name; omit it, or specify another name"],
    ),
    "no name": (
        kin(renamed_from="a/b"),
        ["renamed_from of web1: 'a/b' is not a valid name; no guest has '/' or control characters in its name"],
    ),
    "a new name for a guest that goes": (
        kin(renamed_from="web0", state="absent"),
        ["renamed_from of web1: a guest that is removed needs no new name; omit it to remove web1"],
    ),
    "a copy": (kin(clone_of="web0", virt_type="auto"), []),
    "a copy of itself": (
        kin(clone_of="web1"),
        ["clone_of of web1: a guest cannot be a copy of itself; specify another one"],
    ),
    "a copy with all that excludes it": (
        kin(clone_of="web0", image="a.qcow2", virt_type="kvm", state="absent"),
        [
            "clone_of of web1: clone_of and image are mutually exclusive; omit one of them",
            "clone_of of web1: clone_of and virt_type are mutually exclusive; omit one of them",
            "clone_of of web1: clone_of and state: absent are mutually exclusive; omit one of them",
        ],
    ),
    "what a reboot does": (conflicts(True), []),
    "what a reboot does, in libvirt's words": (conflicts(on_reboot="restart"), []),
    "what a reboot does, twice": (
        conflicts(False, on_reboot="restart"),
        ["stop_on_reboot of web1: it is short for on_reboot: destroy; set only one of them"],
    ),
    "a topology and its vCPUs": (conflicts(vcpus__topology__cores=2, vcpus__maximum=2), []),
    "as many vCPUs as there can be": (conflicts(vcpus__topology__cores=MOST), []),
    "a topology and other vCPUs": (
        conflicts(vcpus__topology__cores=2, vcpus__maximum=3),
        ["vcpus of web1: the topology has 2 vcpus, but maximum is 3; make them equal"],
    ),
    "a topology with dies and other vCPUs": (
        conflicts(vcpus__topology__cores=2, vcpus__topology__dies=3, vcpus__maximum=2),
        ["vcpus of web1: the topology has 6 vcpus, but maximum is 2; make them equal"],
    ),
    "a topology that no guest can have": (
        conflicts(vcpus__topology__cores=MOST, vcpus__topology__threads=2, vcpus__maximum=1),
        ["vcpus.topology of web1: it has 8192 vcpus; a guest has at most 4096"],
    ),
    "vCPUs up to their maximum": (limits(vcpus__current=2, vcpus__maximum=2), []),
    "vCPUs above their maximum": (
        limits(vcpus__current=3, vcpus__maximum=2),
        ["vcpus.current of web1: 3 is above vcpus.maximum, 2"],
    ),
    "memory above its maximum, and that above the other one": (
        limits(memory__current_kib=3072, memory__maximum_kib=2048, memory__hotplug_maximum_kib=1024),
        [
            "memory.current of web1: 3MiB is above memory.maximum, 2MiB",
            "memory.maximum of web1: 2MiB is above memory.hotplug_maximum, 1MiB",
        ],
    ),
    "a limit alone": (limits(vcpus__maximum=2, memory__current_kib=1), []),
    "a profile": (
        state(nic_profile="office", disk_profile="fast"),
        [
            f"{option} of web1: profiles are merged on the controller; run the module as a task or with ansible -m"
            for option in ("nic_profile", "disk_profile")
        ],
    ),
    "no wait, with force": (
        state(wait=False, force=True, wait_timeout=0),
        [
            "wait_timeout of web1: must be at least 1 s, not 0",
            "wait of web1: force requires waiting; omit one of wait: false and force: true",
        ],
    ),
    "force, and the shortest wait": (state(force=True, wait_timeout=1), []),
    "a restart that both changes need": (state(apply="both", allow_restart=True), []),
    "a restart for a change of what runs": (
        state(apply="live", allow_restart=True),
        [
            (
                "apply of web1: live changes only the running guest, which a restart would undo; choose one of apply "
                "and allow_restart"
            )
        ],
    ),
    "an address of a guest that runs": (state(state="running", wait_for_ip="any"), []),
    "an address of a guest that is rebooted": (state(state="rebooted", wait_for_ip="any"), []),
    "no address": (state(wait_for_ip="none", wait=False), []),
    "an address without waiting": (
        state(state="running", wait_for_ip="any", wait=False),
        ["wait of web1: wait_for_ip requires waiting; omit one of wait: false and wait_for_ip"],
    ),
    "an address of a guest that is removed": (
        state(state="absent", wait_for_ip="agent"),
        ["wait_for_ip of web1: it requires state: running or state: rebooted, not absent"],
    ),
    "live, and not restarted": (state(apply="live", allow_restart=False), []),
    "a disk": (disk(size="1GiB", pool="fast", image="a.qcow2", clone="copy"), []),
    "a disk with a size that is none": (
        disk(size="much"),
        ["size of disk a of web1: cannot read 'much' as a size; write 512MiB, 8GiB or a number of GiB"],
    ),
    "a disk with names that are none": (
        disk(image="../x", pool="a b"),
        [
            "image of disk a of web1: '../x' is a path, and an image is named as in its pool",
            "pool of disk a of web1: 'a b' is not a valid name",
        ],
    ),
    "the seed's disk": (
        disk("seed"),
        ["disk of web1: the name 'seed' is reserved for the cloud-init seed; choose another"],
    ),
    "a place and how it is made": (
        disk(fields={"source": "/a"}, clone="copy"),
        ["disk a of web1: source uses existing storage; it excludes image, image_pool, clone, size, thin_pool"],
    ),
    "two places": (
        disk(fields={"source": "/a", "nvme.address": "0000:01:00.0"}, nvme={"address": "0000:01:00.0"}),
        ["disk a of web1: source uses existing storage; it excludes nvme, image, image_pool, clone, size, thin_pool"],
    ),
    "a network disk and its size": (
        disk(fields={"network.protocol": "rbd", "network.name": "a/b"}, network=RBD, size=1),
        ["disk a of web1: network uses existing storage; it excludes image, image_pool, clone, size, thin_pool"],
    ),
    "a drive that is to be made": (
        disk(fields={"device": "cdrom"}, image="debian.iso", pool="iso", size=1),
        [f"disk a of web1: a cdrom is not created, and so takes no image, size, pool; {NAME_IT}"],
    ),
    "an empty drive with a format": (
        disk(fields={"device": "floppy", "format": "qcow2"}),
        ["disk a of web1: an empty floppy has no format, and that of its medium is not known yet; omit format"],
    ),
    "a network disk without a protocol": (
        disk(fields={"network.name": "a/b"}, network={"name": "a/b"}),
        ["disk a of web1: network requires protocol; set it also to change another option of it"],
    ),
    "an NVMe disk without an address": (
        disk(fields={"nvme.namespace": 1}, nvme={"namespace": 1}),
        ["disk a of web1: nvme requires address; set it also to change another option of it"],
    ),
    "a name of one part": (
        disk(fields={"network.protocol": "rbd", "network.name": "b"}, network=RBD),
        ["disk a of web1: network.name must be pool/image for protocol rbd, not b"],
    ),
    "an image without a pool": (
        disk(fields={"network.protocol": "rbd", "network.name": "/a/b"}, network=RBD),
        ["disk a of web1: network.name must be pool/image for protocol rbd, not /a/b"],
    ),
    "a target without a LUN": (
        disk(fields={"network.protocol": "iscsi", "network.name": "iqn.x:y/"}, network=RBD),
        [
            "disk a of web1: network.name must be target/LUN (iqn.2026-01.org.example:disk/0) for protocol iscsi, not iqn"
        ],
    ),
    "an export of one part": (disk(fields={"network.protocol": "nbd", "network.name": "b"}, network=RBD), []),
    "a socket and hosts": (
        disk(fields={"network.protocol": "nbd", "network.socket": "/s", "network.hosts": (Item("h"),)}, network=RBD),
        ["disk a of web1: network.socket and network.hosts are mutually exclusive; omit one of them"],
    ),
    "a socket in place of hosts": (
        disk(
            fields={"network.protocol": "nbd", "network.socket": "/s", "network.hosts": (Item("h", "absent"),)},
            network=RBD,
        ),
        [],
    ),
    "a secret, told in two ways": (
        disk(fields={"network.protocol": "rbd", "network.auth.secret_uuid": "u", "network.auth.secret_usage": "s"}),
        ["disk a of web1: network.auth.secret_uuid and network.auth.secret_usage are mutually exclusive; omit one"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_contradicts_itself_is_told(case: str) -> None:
    tell, expected = CASES[case]
    told = tell()
    assert len(told) == len(expected)
    assert [problem for problem, begin in zip(told, expected) if not problem.startswith(begin)] == []


def test_texts_that_nothing_can_hold_are_located() -> None:
    params = {"title": "a\nb", "description": "\x1b", "tags": ["a\n"]}
    assert [problem.partition(": ")[0] for problem in control_characters(params, "web1", allowed="\n")] == [
        "description of web1"
    ]
    assert len(control_characters(params, "web1")) == 3


TOPOLOGY = {"vcpus.topology.sockets": 1, "vcpus.topology.cores": 2, "vcpus.topology.threads": 1}


@pytest.mark.parametrize(
    ("fields", "stop_on_reboot", "expected"),
    [
        ({}, None, {}),
        ({}, True, {"on_reboot": "destroy"}),
        ({}, False, {"on_reboot": "restart"}),
        ({"vcpus.topology.cores": 2}, None, {**TOPOLOGY, "vcpus.maximum": 2}),
        (
            {"vcpus.topology.cores": 2, "vcpus.topology.dies": 3},
            None,
            {**TOPOLOGY, "vcpus.topology.dies": 3, "vcpus.maximum": 6},
        ),
        ({"vcpus.maximum": 2}, None, {"vcpus.maximum": 2}),
        ({"tags": ["b", "a", "b"]}, None, {"tags": ("a", "b")}),
        ({"memory.hugepage_size_kib": 4}, None, {"memory.hugepage_size_kib": 4, "memory.hugepages": True}),
        (
            {"memory.hugepage_size_kib": 4, "memory.hugepages": False},
            None,
            {"memory.hugepage_size_kib": 4, "memory.hugepages": False},
        ),
    ],
)
def test_what_follows(fields: dict[str, t.Any], stop_on_reboot: bool | None, expected: dict[str, t.Any]) -> None:
    before = dict(fields)
    assert plan_guest_options.implied(fields, stop_on_reboot) == expected
    assert fields == before


@pytest.mark.parametrize(
    ("place", "kind"), [("bridge", "bridge"), ("network", "network"), ("device", "direct"), ("address", "hostdev")]
)
def test_the_type_of_an_interface_follows_from_its_place(place: str, kind: str) -> None:
    said = Item("eth0", fields={place: "x", "type": "user"}), Item("eth1", fields={place: "x"}), Item("eth2")
    found = plan_guest_options.implied({"interfaces": said}, None)["interfaces"]
    assert found == (said[0], said[1].with_fields(type=kind), said[2])


@pytest.mark.parametrize(
    ("name", "derived"),
    [("eth0", {"mac": units.derived_mac("u", "eth0")}), ("52:54:00:12:34:56", {})],  # the other's name is its MAC
)
def test_a_new_interface_has_the_mac_of_its_name(name: str, derived: dict[str, str]) -> None:
    [item] = plan_guest_options.with_macs(GuestSpec("web1", fields={"interfaces": (Item(name),)}), "u").interfaces or ()
    assert item == Item(name, initial=derived)
    assert plan_guest_options.with_macs(GuestSpec("web1"), "u").interfaces is None, "nothing is said of them"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, None),
        ({"type": "vnc"}, {"type": "vnc"}),
        ({"port": -1}, {"port": None, "autoport": True}),
        ({"port": 5901}, {"port": 5901, "autoport": False}),
        ({"port": 5901, "tls_port": -1}, {"port": 5901, "tls_port": None, "autoport": False}),
        ({"port": -1, "tls_port": -1}, {"port": None, "tls_port": None, "autoport": True}),
    ],
)
def test_a_port_of_a_display_is_libvirts_choice_or_ours(said: t.Any, expected: t.Any) -> None:
    assert plan_guest_options.implied_graphics(said) == expected


@pytest.mark.parametrize(
    ("fields", "devices"),
    [
        ({}, set()),
        ({"rng.model": "virtio"}, set()),
        ({"rng.model": "none"}, {"rng"}),
        ({"serials": (Item("0", state="absent"), Item("1", state="absent"))}, {"serial"}),
        ({"serials": (Item("0"),)}, set()),
        ({"channels": (Item("org.qemu.guest_agent.0", state="absent"),)}, {"org.qemu.guest_agent.0"}),
        ({"channels": (Item("other", state="absent"),)}, set()),
        ({"serials": (Item("0", state="absent"),), "rng.model": "none"}, {"serial", "rng"}),
    ],
)
def test_default_devices_that_a_guest_must_not_have(fields: dict[str, t.Any], devices: set[str]) -> None:
    assert plan_guest_options.unwanted_devices(GuestSpec("web1", fields=fields)) == devices


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("interfaces[eth1]", ["eth1"]),
        ("interfaces[eth1].bridge", ["eth1"]),
        ("interfaces[eth1].network", ["eth1"]),
        ("interfaces[eth1].model", []),
        ("interfaces[eth10]", []),
    ],
)
def test_interfaces_that_are_plugged_in(place: str, found: list[str]) -> None:
    wanted = GuestSpec("web1", fields={"interfaces": (Item("eth0"), Item("eth1"))})
    assert [item.name for item in plan_guest_options.newly_connected(wanted, [Change(place, None, "x")])] == found
