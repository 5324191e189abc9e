"""What is said when the time is over: facts that were seen, each where it matters, and what to do."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._plan.steps import Reboot, Seen, Shutdown, WaitForAddress

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
    ],
)
def test_facts(seen: Seen, source: str, expected: str) -> None:
    assert seen.facts(source) == expected


def test_what_is_said_ends_with_a_remedy() -> None:
    seen = Seen(agent="connected", packets_sent=0)
    assert Shutdown("web1", timeout_s=60).too_late(seen) == (
        "cannot shut down web1: it did not do so within 60 s (guest agent: connected); set force: true to destroy it "
        "then, or raise wait_timeout"
    )
    assert Reboot("web1", timeout_s=60).too_late(seen) == (
        "cannot reboot web1: it did not do so within 60 s (guest agent: connected); set force: true to reset it then, "
        "or raise wait_timeout"
    )
    refused = ["192.0.2.1 (arp): it is this hypervisor's own"]
    assert WaitForAddress("web1", "any", 60).too_late(
        seen, tried=["packets at vnet0", "its agent"], refused=refused
    ) == (
        "no address of web1 within 60 s (tried: packets at vnet0, its agent; rejected: 192.0.2.1 (arp): it is "
        "this hypervisor's own; guest agent: connected; packets sent since its start: 0); see `virsh console web1`, "
        "give it a static address (cloud_init.network_config), or raise wait_timeout"
    )
    assert WaitForAddress("web1", "any", 60).too_late(Seen(state="shutdown", console=("panic",))) == (
        "no address of web1: it powered off in the meantime (last lines of its console: panic); start it again"
    )
