"""What steps say they do, and what is said when the time is over."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import size_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import (
    Reboot,
    Seen,
    Shutdown,
    WaitForAddress,
)

FIRMWARE = "so it is still in its firmware or has nothing to boot from"


@pytest.mark.parametrize(
    ("seen", "source", "expected"),
    [
        (Seen(agent="connected"), "", "guest agent: connected"),
        (Seen(), "", "guest agent: no channel"),
        (Seen(agent="disconnected"), "", "guest agent: not connected (still booting, or not installed)"),
        (
            Seen(state="paused by an I/O error", agent="connected"),
            "",
            "it is paused by an I/O error; guest agent: connected",
        ),
        (Seen(acpi=False, agent="connected"), "", "no ACPI in its definition; guest agent: connected"),
        (Seen(acpi=False, agent="connected"), "agent", "guest agent: connected"),
        (Seen(disk_reads=0), "", f"disk reads since its start: 0, {FIRMWARE}; guest agent: no channel"),
        (Seen(disk_reads=50), "", f"disk reads since its start: 50, {FIRMWARE}; guest agent: no channel"),
        (Seen(disk_reads=51), "", "guest agent: no channel"),
        (Seen(packets_sent=0, leases={"lan": 2}), "", "guest agent: no channel"),
        (Seen(packets_sent=0), "agent", "guest agent: no channel; packets sent since its start: 0"),
        (Seen(agent="connected", leases={"lan": 2}), "agent", "guest agent: connected"),
        (
            Seen(agent="connected", leases={"lan": 2}),
            "any",
            "guest agent: connected; leases of network lan: none for it, 2 for others",
        ),
        (
            Seen(agent="connected", leases={"lan": 2}),
            "lease",
            "guest agent: connected; leases of network lan: none for it, 2 for others",
        ),
        (Seen(agent="connected"), "lease", "guest agent: connected; no libvirt network gives it leases (use any)"),
        (Seen(agent="connected"), "any", "guest agent: connected"),
        (Seen(agent="connected", console=("a", "b")), "", "guest agent: connected; last lines of its console: a | b"),
        (Seen(state="shutdown", console=("panic",)), "", "last lines of its console: panic"),
        (Seen(state="absent"), "", "it is absent"),
        (Seen(unseen="cannot inspect guest web1: busy"), "any", "cannot inspect guest web1: busy"),
    ],
)
def test_facts(seen: Seen, source: str, expected: str) -> None:
    assert seen.facts(source) == expected


def test_what_is_said_ends_with_a_remedy() -> None:
    seen = Seen(agent="connected", packets_sent=0)
    assert Shutdown("web1", timeout_s=60).timeout_message(seen) == (
        "cannot shut down web1: it did not do so within 60 s (guest agent: connected); set force: true to destroy it "
        "then, or raise wait_timeout"
    )
    assert Reboot("web1", timeout_s=60).timeout_message(seen) == (
        "cannot reboot web1: it did not do so within 60 s (guest agent: connected); set force: true to reset it then, "
        "or raise wait_timeout"
    )
    refused = ["192.0.2.1 (arp): it is this hypervisor's own"]
    assert WaitForAddress("web1", "any", 60).timeout_message(
        seen, tried=["packets at vnet0", "its agent"], refused=refused
    ) == (
        "no address of web1 within 60 s (tried: packets at vnet0, its agent; rejected: 192.0.2.1 (arp): it is "
        "this hypervisor's own; guest agent: connected; packets sent since its start: 0); see `virsh console web1`, "
        "give it a static address (cloud_init.network_config), or raise wait_timeout"
    )
    assert WaitForAddress("web1", "any", 60).timeout_message(Seen(state="shutdown", console=("panic",))) == (
        "no address of web1: it powered off in the meantime (last lines of its console: panic); start it again"
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen(state="shutdown"), "it powered off in the meantime; start it again"),
        (
            Seen(state="absent"),
            "it was removed in the meantime, or was transient and powered off; run again to create it",
        ),
        (Seen(unseen="cannot inspect guest web1: End of file"), "cannot inspect guest web1: End of file; run again"),
    ],
)
def test_only_what_is_known_of_a_guest_is_said(seen: Seen, expected: str) -> None:
    assert WaitForAddress("web1", "any", 60).timeout_message(seen) == f"no address of web1: {expected}"


GIB = 1024**3
VOLUME = Volume("default", "a.qcow2", "/p/a.qcow2", 8 * GIB)
TEXTS: list[tuple[plan_guest_steps.GuestStep, str]] = [
    (plan_guest_steps.Define("web1", "<a/>"), "define web1"),
    (plan_guest_steps.Define("web1", "<a/>", "title"), "define web1 (title)"),
    (plan_guest_steps.Rename("web1", "web2"), "rename web1 to web2"),
    (plan_guest_steps.CreateVolume("web1", VOLUME, "<a/>"), "create disk /p/a.qcow2 (8 GiB, qcow2)"),
    (
        plan_guest_steps.CreateVolume("web1", dataclasses.replace(VOLUME, backing_path="/p/b"), "<a/>"),
        "create disk /p/a.qcow2 (8 GiB, qcow2, on /p/b)",
    ),
    (
        plan_guest_steps.CreateVolume("web1", dataclasses.replace(VOLUME, copy_of="/p/c", format="raw"), "<a/>"),
        "create disk /p/a.qcow2 (8 GiB, raw, copy of /p/c)",
    ),
    (
        plan_guest_steps.CreateLogicalVolume("web1", Volume("lvm", "a", "/dev/vg/a", 8 * GIB, "raw"), "vg"),
        "create disk /dev/vg/a (8 GiB, logical volume in pool lvm)",
    ),
    (
        plan_guest_steps.CreateLogicalVolume(
            "web1", Volume("lvm", "a", "/dev/vg/a", 8 * GIB, "raw", copy_of="/p/b.qcow2"), "vg", "qcow2", 2 * GIB
        ),
        "create disk /dev/vg/a (8 GiB, logical volume in pool lvm), and copy /p/b.qcow2 (2 GiB) onto it",
    ),
    (
        plan_guest_steps.GrowLogicalVolume("web1", "/dev/vg/a", "lvm", 8 * GIB, 9 * GIB),
        "grow logical volume /dev/vg/a to 9 GiB",
    ),
    (
        plan_guest_steps.GrowThinVolume("web1", "/dev/vg/a", "lvm", 8 * GIB, 9 * GIB),
        "grow thin volume /dev/vg/a to 9 GiB",
    ),
    (plan_guest_steps.WriteSeed("web1", VOLUME, {}), "write cloud-init seed /p/a.qcow2"),
    (
        plan_guest_steps.Customize("web1", "default", "a.making", "/p/a.qcow2", ()),
        "apply cloud-init seed to disk /p/a.qcow2 (virt-customize)",
    ),
    (plan_guest_steps.GrowDisk("web1", "/p/a", 9 * GIB), "grow disk /p/a to 9 GiB"),
    (plan_guest_steps.GrowRunningDisk("web1", "/p/a", 9 * GIB, "vda"), "grow disk /p/a to 9 GiB while it runs"),
    (plan_guest_steps.DeleteVolume("web1", "/p/a"), "delete disk /p/a"),
    (plan_guest_steps.DeleteVolume("web1", "/p/a", keep_h=24), "delete disk /p/a, after 24 h in /p/.corral/.removed"),
    (
        plan_guest_steps.FinishRemoval("web1", "/p/.corral/.removed/a.1.disk", "/p/a"),
        "delete disk /p/a, which was moved to /p/.corral/.removed/a.1.disk",
    ),
    (plan_guest_steps.Attach("web1", "disks[a]", "<a/>"), "attach disks[a] to running web1"),
    (plan_guest_steps.Detach("web1", "disks[a]", "<a/>"), "detach disks[a] from running web1"),
    (plan_guest_steps.SetVcpus("web1", 3), "set 3 vcpus on running web1"),
    (plan_guest_steps.SetMemory("web1", 2048), "set memory of running web1 to 2 MiB"),
    (plan_guest_steps.SetMetadata("web1", "a"), "set metadata of running web1"),
    (
        plan_guest_steps.UpdateDevice("web1", "graphics", "<a/>", "password"),
        "update graphics of running web1 (password)",
    ),
    (
        plan_guest_steps.SetParameters("web1", "scheduler", {"cpu_shares": 2048, "vcpu_quota": -1}),
        "set scheduler of running web1 (cpu_shares=2048, vcpu_quota=-1)",
    ),
    (
        plan_guest_steps.SetParameters("web1", "memory", {"hard_limit": 1048576}),
        f"set memory of running web1 (hard_limit={size_text(1048576)})",
    ),
    (
        plan_guest_steps.SetParameters("web1", "memory", {"hard_limit": "unlimited"}),
        "set memory of running web1 (hard_limit=unlimited)",
    ),
    (
        plan_guest_steps.SetParameters("web1", "iotune", {"read_iops": 1}, target="vda"),
        "set iotune of vda of running web1 (read_iops=1)",
    ),
    (plan_guest_steps.Pin("web1", "vcpu", 3, "0-1"), "pin vcpu 3 of running web1 to 0-1"),
    (plan_guest_steps.Pin("web1", "emulator", 0, "2"), "pin emulator of running web1 to 2"),
    (plan_guest_steps.SetIothreads("web1", 1, 2), "set 2 iothreads on running web1"),
    (plan_guest_steps.SetLifecycle("web1", "crash", "preserve"), "set on_crash of running web1 to preserve"),
    (plan_guest_steps.SetStatsPeriod("web1", 5), "set the balloon of running web1 to report every 5 s"),
    (plan_guest_steps.SetAutostart("web1", on=True), "set autostart of web1 on"),
    (plan_guest_steps.SetAutostart("web1", on=False), "set autostart of web1 off"),
    (plan_guest_steps.Start("web1"), "start web1"),
    (plan_guest_steps.Start("web1", paused=True), "start web1 paused"),
    (plan_guest_steps.Shutdown("web1", 300), "shut down web1"),
    (plan_guest_steps.Shutdown("web1", 300, wait=False), "ask to shut down web1"),
    (plan_guest_steps.Shutdown("web1", 60, force=True), "shut down web1, destroy it after 60 s"),
    (plan_guest_steps.Reboot("web1", 60, force=True), "reboot web1, reset it after 60 s"),
    (plan_guest_steps.Reboot("web1", 60), "reboot web1"),
    (plan_guest_steps.Destroy("web1"), "destroy web1"),
    (plan_guest_steps.Suspend("web1"), "suspend web1"),
    (plan_guest_steps.Resume("web1"), "resume web1"),
    (plan_guest_steps.Reset("web1"), "reset web1"),
    (plan_guest_steps.Undefine("web1"), "undefine web1"),
    (plan_guest_steps.Undefine("web1", ("nvram", "snapshots")), "undefine web1 with its nvram, snapshots"),
    (plan_guest_steps.RecordAddresses("web1", (), ""), "remove the recorded addresses of web1"),
    (
        plan_guest_steps.RecordAddresses("web1", ("192.0.2.7", "192.0.2.8"), "<a/>"),
        "record that web1 was seen at 192.0.2.7 and 192.0.2.8",
    ),
]


@pytest.mark.parametrize(("step", "text"), TEXTS, ids=lambda value: str(value)[:60])
def test_a_step_says_what_is_done_to_which_guest(step: plan_guest_steps.GuestStep, text: str) -> None:
    assert str(step) == text and step.changes
    assert "<a/>" not in repr(step), "documents hold secrets, and are long"


def test_each_step_has_its_text_here() -> None:
    known = {type(step) for step, _text in TEXTS}
    assert {
        kind
        for kind in vars(plan_guest_steps).values()
        if isinstance(kind, type) and issubclass(kind, plan_guest_steps.GuestStep)
    } == (known | {plan_guest_steps.GuestStep})


VOLUME_SHOWN = (
    "Volume(pool='default', name='a.qcow2', path='/p/a.qcow2', capacity_bytes=8589934592, format='qcow2', "
    "backing_path=None, backing_format=None, copy_of=None, allocation_bytes=None)"
)


@pytest.mark.parametrize(
    ("kind", "said", "text", "shown"),
    [
        (plan_guest_steps.Define, ["<a/>"], "define web1", "Define(guest='web1', why='')"),
        (
            plan_guest_steps.CreateVolume,
            [VOLUME, "<a/>"],
            "create disk /p/a.qcow2 (8 GiB, qcow2)",
            f"CreateVolume(guest='web1', volume={VOLUME_SHOWN}, replace=False)",
        ),
        (
            plan_guest_steps.WriteSeed,
            [VOLUME, {"user-data": "secret"}],
            "write cloud-init seed /p/a.qcow2",
            f"WriteSeed(guest='web1', volume={VOLUME_SHOWN}, replace=True)",
        ),
        (
            plan_guest_steps.Customize,
            ["default", "a.making", "/p/a.qcow2", (("write", "secret"),)],
            "apply cloud-init seed to disk /p/a.qcow2 (virt-customize)",
            "Customize(guest='web1', pool='default', source='a.making', path='/p/a.qcow2', replace=False)",
        ),
        (
            plan_guest_steps.SetMemory,
            [2048],
            "set memory of running web1 to 2 MiB",
            "SetMemory(guest='web1', kib=2048)",
        ),
        (
            plan_guest_steps.SetMetadata,
            [],
            "set metadata of running web1",
            "SetMetadata(guest='web1', title=None, description=None, osinfo=None)",
        ),
        (
            plan_guest_steps.UpdateDevice,
            ["graphics", "<a/>"],
            "update graphics of running web1 ()",
            "UpdateDevice(guest='web1', what='graphics', fields='')",
        ),
        (
            plan_guest_steps.SetParameters,
            ["numa", {"nodeset": "0"}],
            "set numa of running web1 (nodeset=0)",
            "SetParameters(guest='web1', kind='numa', values={'nodeset': '0'}, target='')",
        ),
        (plan_guest_steps.Undefine, [], "undefine web1", "Undefine(guest='web1', managed_state=())"),
    ],
)
def test_what_a_step_means_where_nothing_more_is_said(
    kind: t.Callable[..., plan_guest_steps.GuestStep], said: list[t.Any], text: str, shown: str
) -> None:
    step = kind("web1", *said)
    assert (str(step), repr(step)) == (text, shown), "documents hold secrets, and are long"
    assert getattr(step, "record", "") == ""
