"""What a running guest gets at once, by which step, and what waits for its next boot."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps, plan_live

CD = {"name": "cd", "device": "cdrom", "target": "sda"}
SYSTEM = {"name": "system", "device": "disk", "target": "vda", "iotune.read_iops": 100, "iotune.total_bytes": 7}
LIMITS = {
    "vcpus.current": 2,
    "vcpus.maximum": 4,
    "memory.maximum_kib": 4096,
    "disks": [CD, SYSTEM],
}
DEVICES = {
    "disks[cd]": "<cd/>",
    "disks[fd]": "<fd/>",
    "disks[system]": "<system/>",
    "interfaces[eth0]": "<eth0/>",
    "graphics": "<graphics/>",
}
UPDATED = {name: f"<u>{xml}</u>" for name, xml in DEVICES.items()}


def now(
    *changes: tuple[str, object, object],
    limits: t.Mapping[str, t.Any] | None = None,
    updated: t.Mapping[str, str] | None = None,
    asked: str = "",
    **fields: t.Any,
) -> plan_live.Now:
    """A guest that lacks these changes; `fields` are what is wanted of it."""
    running = Grafted("", tuple(Change(*change) for change in changes), DEVICES, "<record/>")
    named = {key.replace("__", "."): value for key, value in fields.items()}
    return plan_live.Now(
        GuestSpec("web1", fields=named),
        running,
        Grafted("", (), UPDATED if updated is None else updated),
        {**LIMITS, **(limits or {})},
        asked,
    )


def parameters(kind: str, values: dict[str, t.Any], target: str = "") -> plan_guest_steps.SetParameters:
    return plan_guest_steps.SetParameters("web1", kind, values, target=target)


WRITTEN = plan_guest_steps.SetMetadata("web1", "Web", None, "<record/>")
CASES: dict[str, tuple[plan_live.Now, list[plan_guest_steps.GuestStep] | None]] = {
    "a title": (now(("title", "a", "Web"), title="Web"), [WRITTEN]),
    "a title and tags, in one step": (now(("title", "a", "Web"), ("tags", (), ("x",)), title="Web"), [WRITTEN]),
    "a description": (
        now(("description", "a", "b"), description="b"),
        [plan_guest_steps.SetMetadata("web1", None, "b", "<record/>")],
    ),
    "more vCPUs": (now(("vcpus.current", 2, 3), vcpus__current=3), [plan_guest_steps.SetVcpus("web1", 3)]),
    "all vCPUs": (now(("vcpus.current", 2, 4), vcpus__current=4), [plan_guest_steps.SetVcpus("web1", 4)]),
    "as many vCPUs as run": (now(("vcpus.current", 1, 2), vcpus__current=2), None),
    "fewer vCPUs": (now(("vcpus.current", 2, 1), vcpus__current=1), None),
    "more vCPUs than its maximum": (now(("vcpus.current", 2, 5), vcpus__current=5), None),
    "less memory": (
        now(("memory.current_kib", 4096, 2048), memory__current_kib=2048, asked="<asked/>"),
        [plan_guest_steps.SetMemory("web1", 2048, "<asked/>")],
    ),
    "all its memory": (
        now(("memory.current_kib", 2048, 4096), memory__current_kib=4096),
        [plan_guest_steps.SetMemory("web1", 4096)],
    ),
    "more memory than its maximum": (now(("memory.current_kib", 4096, 4097), memory__current_kib=4097), None),
    "memory, without a balloon": (
        now(("memory.current_kib", 4096, 2048), memory__current_kib=2048, limits={"balloon.model": "none"}),
        None,
    ),
    "memory, with a balloon that says its model": (
        now(("memory.current_kib", 4096, 2048), memory__current_kib=2048, limits={"balloon.model": "virtio"}),
        [plan_guest_steps.SetMemory("web1", 2048)],
    ),
    "memory that it was asked for in vain": (
        now(("memory.current_kib", 4096, 2048), memory__current_kib=2048, limits={"asked_kib": 2048}),
        None,
    ),
    "memory, after it was asked for another amount": (
        now(("memory.current_kib", 4096, 2048), memory__current_kib=2048, limits={"asked_kib": 1024}),
        [plan_guest_steps.SetMemory("web1", 2048)],
    ),
    "a disk that comes": (
        now(("disks[system]", None, "8GiB")),
        [plan_guest_steps.Attach("web1", "disks[system]", "<system/>")],
    ),
    "a disk that goes": (
        now(("disks[system]", "8GiB", None)),
        [plan_guest_steps.Detach("web1", "disks[system]", "<system/>")],
    ),
    "a medium": (
        now(("disks[cd].source", "/a", "/b")),
        [plan_guest_steps.UpdateDevice("web1", "disks[cd]", "<u><cd/></u>", "source")],
    ),
    "a medium in a floppy drive, by its volume and policy": (
        now(
            ("disks[fd].volume", "/a", "/b"),
            ("disks[fd].startup_policy", None, "optional"),
            limits={"disks": [{"name": "fd", "device": "floppy"}]},
        ),
        [plan_guest_steps.UpdateDevice("web1", "disks[fd]", "<u><fd/></u>", "volume, startup_policy")],
    ),
    "the source of a disk": (now(("disks[system].source", "/a", "/b")), None),
    "a medium that no update carries": (now(("disks[cd].source", "/a", "/b"), updated={}), None),
    "the bridge and cable of an interface": (
        now(("interfaces[eth0].bridge", "br0", "br1"), ("interfaces[eth0].link", "up", "down")),
        [plan_guest_steps.UpdateDevice("web1", "interfaces[eth0]", "<u><eth0/></u>", "bridge, link")],
    ),
    "an address of a filter": (
        now(("interfaces[eth0].filterref.parameters[IP]", "1", "2")),
        [plan_guest_steps.UpdateDevice("web1", "interfaces[eth0]", "<u><eth0/></u>", "filterref.parameters[IP]")],
    ),
    "another model of an interface": (now(("interfaces[eth0].model", "e1000", "virtio")), None),
    "another password": (
        now(("graphics.password", "set", "another")),
        [plan_guest_steps.UpdateDevice("web1", "graphics", "<u><graphics/></u>", "password")],
    ),
    "a first password": (now(("graphics.password", None, "set")), None),
    "limits of the scheduler, in one step": (
        now(("vcpus.shares", 1, 2), ("vcpus.period_us", None, 5), ("vcpus.emulator_quota_us", None, -1)),
        [parameters("scheduler", {"cpu_shares": 2, "vcpu_period": 5, "emulator_quota": -1})],
    ),
    "limits of memory": (now(("memory.hard_limit_kib", None, 9)), [parameters("memory", {"hard_limit": 9})]),
    "a node of NUMA": (now(("numa.nodeset", "0", "0-1")), [parameters("numa", {"numa_nodeset": "0-1"})]),
    "limits of a disk, with those that stay": (
        now(
            ("disks[system].iotune.read_iops", 100, 50),
            disks=(
                Disk("cd", fields={"iotune.read_iops": 1}),
                Disk("system", fields={"iotune.read_iops": 50, "cache": "none"}),
            ),
        ),
        [parameters("iotune", {"read_iops": 50, "total_bytes": 7}, "vda")],
    ),
    "limits of a disk that only its definition has": (now(("disks[new].iotune.read_iops", None, 1)), None),
    "limits of a disk whose target is not known": (
        now(("disks[x].iotune.read_iops", None, 1), limits={"disks": [{"name": "x", "device": "disk"}]}),
        None,
    ),
    "pins": (
        now(
            ("vcpus.pinning[3].cpuset", "0", "1"),
            ("vcpus.emulator_cpuset", None, "2-3"),
            ("vcpus.iothread_pinning[2].cpuset", None, "4"),
        ),
        [
            plan_guest_steps.Pin("web1", "vcpu", 3, "1"),
            plan_guest_steps.Pin("web1", "emulator", 0, "2-3"),
            plan_guest_steps.Pin("web1", "iothread", 2, "4"),
        ],
    ),
    "a pin that is taken away": (now(("vcpus.emulator_cpuset", "2-3", None)), None),
    "a vCPU's pin that is taken away": (now(("vcpus.pinning[0]", "2-3", None)), None),
    "nodes of NUMA that are taken away": (now(("numa.nodeset", "0-1", None)), None),
    "a password that is taken away": (now(("graphics.password", "(hidden)", None)), None),
    "a title that is taken away": (
        now(("title", "a", None), title=""),
        [plan_guest_steps.SetMetadata("web1", "", None, "<record/>")],
    ),
    "a filter that is taken away": (
        now(("interfaces[eth0].filterref.name", "clean-traffic", None)),
        [plan_guest_steps.UpdateDevice("web1", "interfaces[eth0]", "<u><eth0/></u>", "filterref.name")],
    ),
    "more IO threads": (
        now(("vcpus.iothreads", 1, 3), vcpus__iothreads=3),
        [plan_guest_steps.SetIothreads("web1", 1, 3)],
    ),
    "first IO threads": (
        now(("vcpus.iothreads", None, 2), vcpus__iothreads=2),
        [plan_guest_steps.SetIothreads("web1", 0, 2)],
    ),
    "what follows its end": (
        now(("on_poweroff", "destroy", "restart"), ("on_crash", None, "preserve")),
        [
            plan_guest_steps.SetLifecycle("web1", "poweroff", "restart"),
            plan_guest_steps.SetLifecycle("web1", "crash", "preserve"),
        ],
    ),
    "statistics of its balloon": (
        now(("balloon.stats_period_s", None, 5)),
        [plan_guest_steps.SetStatsPeriod("web1", 5)],
    ),
    "what only a boot can bring": (now(("machine", "a", "b")), None),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_running_guest_gets(case: str) -> None:
    guest, wanted = CASES[case]
    waiting = [str(change) for change in guest.running.changes]
    assert plan_live.live_steps(guest, record_changed=False) == ((wanted, []) if wanted is not None else ([], waiting))


def test_what_can_be_done_is_done_and_the_rest_waits() -> None:
    guest = now(("machine", "a", "b"), ("title", "a", "Web"), ("disks[system].cache", None, "none"), title="Web")
    made, pending = plan_live.live_steps(guest, record_changed=False)
    assert made == [WRITTEN] and pending == ["machine: a -> b", "disks[system].cache: (unset) -> none"]


def test_a_pin_that_is_taken_away_holds_up_no_other() -> None:
    guest = now(("vcpus.emulator_cpuset", "2-3", None), ("vcpus.pinning[0].cpuset", "0", "1"))
    made, pending = plan_live.live_steps(guest, record_changed=False)
    assert made == [plan_guest_steps.Pin("web1", "vcpu", 0, "1")] and pending == [
        "vcpus.emulator_cpuset: 2-3 -> (unset)"
    ]


def test_each_device_is_a_step_of_its_own() -> None:
    guest = now(("disks[cd].source", "/a", "/b"), ("interfaces[eth0].link", "up", "down"), ("disks[system]", None, "x"))
    made, pending = plan_live.live_steps(guest, record_changed=False)
    assert [(type(step), t.cast(t.Any, step).what) for step in made] == [
        (plan_guest_steps.UpdateDevice, "disks[cd]"),
        (plan_guest_steps.UpdateDevice, "interfaces[eth0]"),
        (plan_guest_steps.Attach, "disks[system]"),
    ]
    assert pending == []


def test_a_new_record_is_written_once() -> None:
    """With the title, or alone."""
    assert plan_live.live_steps(now(), record_changed=False) == ([], [])
    assert plan_live.live_steps(now(), record_changed=True) == (
        [plan_guest_steps.SetMetadata("web1", None, None, "<record/>")],
        [],
    )
    assert plan_live.live_steps(now(("title", "a", "Web"), title="Web"), record_changed=True) == ([WRITTEN], [])
    machine = now(("machine", "a", "b"))
    assert plan_live.live_steps(machine, record_changed=True)[1] == ["machine: a -> b"]


def test_an_update_carries_only_what_can_be_updated() -> None:
    cd = Disk("cd", fields={"source": "/b", "startup_policy": "optional", "cache": "none"}, size_bytes=5)
    eth0 = Item("eth0", fields={"link": "down", "model": "e1000", "filterref.name": "x"})
    gone = Item("eth1", "absent")
    wanted = GuestSpec(
        "web1",
        fields={"disks": (cd,), "interfaces": (eth0, gone), "machine": "q35", "hostdevs": (Item("gpu"),)},
        graphics={"type": "vnc", "password": "secret", "listen": "127.0.0.1"},
        xml="<a/>",
    )
    carried = plan_live.updates(wanted)
    assert carried.fields == {
        "disks": (dataclasses.replace(cd, fields={"source": "/b", "startup_policy": "optional"}),),
        "interfaces": (dataclasses.replace(eth0, fields={"link": "down", "filterref.name": "x"}),),
    }
    assert carried.graphics == {"type": "vnc", "password": "secret"} and carried.xml is None
    silent = plan_live.updates(GuestSpec("web1"))
    assert silent.fields == {} and silent.graphics is None


AT_ONCE: dict[str, set[str]] = {
    plan_live.METADATA: {
        "title",
        "description",
        "tags",
        "osinfo",
        "login_user",
        *(f"ha.{field}" for field in ("mode", "priority", "group", "max_restarts", "monitor_agent")),
        *(f"ha.{field}" for field in ("colocate", "apart", "prefer")),
    },
    plan_live.VCPUS: {"vcpus.current"},
    plan_live.MEMORY: {"memory.current_kib"},
    plan_live.SCHEDULER: {
        "vcpus.shares",
        "vcpus.period_us",
        "vcpus.quota_us",
        "vcpus.global_period_us",
        "vcpus.global_quota_us",
        "vcpus.emulator_period_us",
        "vcpus.emulator_quota_us",
        "vcpus.iothread_period_us",
        "vcpus.iothread_quota_us",
    },
    plan_live.MEMTUNE: {"memory.hard_limit_kib", "memory.soft_limit_kib", "memory.swap_hard_limit_kib"},
    plan_live.NUMATUNE: {"numa.nodeset"},
    plan_live.PIN: {
        "vcpus.emulator_cpuset",
        "vcpus.pinning[]",
        "vcpus.pinning[].cpuset",
        "vcpus.iothread_pinning[]",
        "vcpus.iothread_pinning[].cpuset",
    },
    plan_live.IOTHREADS: {"vcpus.iothreads"},
    plan_live.LIFECYCLE: {"on_poweroff", "on_reboot", "on_crash"},
    plan_live.STATS: {"balloon.stats_period_s"},
    plan_live.ATTACH: {"disks[]", "interfaces[]", "hostdevs[]", "controllers[]"},
    plan_live.IOTUNE: {"disks[].iotune"},
    plan_live.UPDATE: {
        *(f"disks[].{option}" for option in ("source", "volume", "url", "network", "startup_policy")),
        *(f"interfaces[].{option}" for option in ("link", "bridge", "network", "type", "portgroup", "vlan")),
        *(f"interfaces[].{option}" for option in ("filterref.name", "filterref.parameters", "bandwidth")),
        "graphics.password",
    },
    plan_live.FIXED: {"firmware", "secure_boot", "loader.path", "loader.type", "loader.secure"},
}


def test_the_policy_is_what_the_guide_promises() -> None:
    """A word that is wrong here would let a change wait, or fail, without another test."""
    found: dict[str, set[str]] = {}
    for field, policy in plan_live.POLICY.items():
        found.setdefault(policy, set()).add(field)
    for policy in {*found, *AT_ONCE}:
        differing = found.get(policy, set()) ^ AT_ONCE.get(policy, set())
        assert not differing, f"POLICY and AT_ONCE differ in {policy}: {', '.join(sorted(differing))}"
    assert plan_live.how("machine") == plan_live.NEXT_BOOT


@pytest.mark.parametrize("field", sorted(AT_ONCE[plan_live.SCHEDULER] - {"vcpus.shares"}))
def test_limits_of_threads_have_libvirts_names(field: str) -> None:
    who, _dash, what = field.removeprefix("vcpus.").removesuffix("_us").rpartition("_")
    [step], _pending = plan_live.live_steps(now((field, None, 5000)), record_changed=False)
    assert step == parameters("scheduler", {f"{who or 'vcpu'}_{what}": 5000})


@pytest.mark.parametrize("limit", ["hard_limit", "soft_limit", "swap_hard_limit"])
def test_limits_of_memory_have_libvirts_names(limit: str) -> None:
    [step], _pending = plan_live.live_steps(now((f"memory.{limit}_kib", None, 9)), record_changed=False)
    assert step == parameters("memory", {limit: 9})


@pytest.mark.parametrize(
    ("field", "wanted", "limits", "expected"),
    [
        ("vcpus.current", 1, {}, []),
        ("vcpus.current", 1, {"vcpus.maximum": 4}, [plan_guest_steps.SetVcpus("web1", 1)]),
        ("memory.current_kib", 1, {}, []),
        ("memory.current_kib", 1, {"memory.maximum_kib": 1}, [plan_guest_steps.SetMemory("web1", 1)]),
        ("disks[system].iotune.read_iops", 1, {}, []),
    ],
)
def test_what_is_not_known_of_a_guest_is_not_there(
    field: str, wanted: int, limits: dict[str, int], expected: list[plan_guest_steps.GuestStep]
) -> None:
    spec, running = GuestSpec("web1", fields={field: wanted}), Grafted("", (Change(field, None, wanted),))
    made, pending = plan_live.live_steps(plan_live.Now(spec, running, Grafted("", ()), limits), record_changed=False)
    assert made == expected and bool(pending) is not bool(expected)
