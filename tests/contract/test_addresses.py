"""Guests are found at their addresses: on libvirt's test driver, and on a bridge of this machine's kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._address import run_addresses
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    run_guest,
    run_guest_options,
    run_guests,
    run_query,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.model_state import Doing
from ansible_collections.corral.virt.tests.tools import payload

NIC = [{"name": "eth0", "type": "bridge", "bridge": "br0"}]


def converged(connection: t.Any, *guests: dict[str, t.Any], check_mode: bool = False) -> list[dict[str, t.Any]]:
    """Results of guests, as `virt_domains` makes them."""
    common = {"state": "running", "vcpus": 1, "memory": "64MiB", "disks": [], "interfaces": NIC, "wait_timeout": 1}
    options = dict.fromkeys(run_guest_options.GUEST_OPTIONS)
    wanted = run_guest_options.all_wanted(
        [{**options, "wait": True, "apply": "both", "virt_type": "auto", **common, **one} for one in guests]
    )
    gate = Gate(check_mode=check_mode)
    return run_guest.waited(connection, run_guests.each(wanted, lambda one: run_guest.converge(connection, one, gate)))


def test_address_is_found_recorded_and_known_then(connection: t.Any) -> None:
    [made] = converged(connection, {"name": "web2", "wait_for_ip": "unknown"})
    assert made["addresses"], made
    domain = libvirt_query.lookup(connection, "web2")
    (entry,) = fields_record.read(domain.XMLDesc())["seen"]
    assert entry.split()[1:3] == [made["addresses"][0], "lease"]
    [again] = converged(connection, {"name": "web2", "wait_for_ip": "unknown"})
    assert not again["changed"] and "addresses" not in again, "its address is known"
    [asked] = converged(connection, {"name": "web2", "wait_for_ip": "lease"})
    assert not asked["changed"] and asked["addresses"] == made["addresses"]
    assert fields_record.read(domain.XMLDesc())["seen"] == (entry,), "the same is not written again"
    domain.destroy()
    [started] = converged(connection, {"name": "web2", "wait_for_ip": "unknown"})
    assert started["addresses"], "what was seen before the start may have changed with it"


def test_check_mode_waits_for_nobody(connection: t.Any) -> None:
    [result] = converged(connection, {"name": "web2", "wait_for_ip": "arp"}, check_mode=True)
    assert result["changed"] and "failed" not in result and "awaits" not in result


def test_all_wait_at_once_and_one_that_fails_stops_nobody(connection: t.Any) -> None:
    silent = [{"name": f"silent{number}", "wait_for_ip": "agent"} for number in range(20)]
    begun_s = time.monotonic()
    *failed, other = converged(connection, *silent, {"name": "web2", "wait_for_ip": "any"})
    assert time.monotonic() - begun_s < 10
    assert other["addresses"] and not other.get("failed")
    assert all(one["failed"] and one["changed"] for one in failed)
    assert failed[0]["msg"].startswith("no address of silent0 within 1 s (tried: agent; ")
    assert "static address (cloud_init.network_config)" in failed[0]["msg"]
    assert failed[0]["msg"].endswith("; start silent0)"), "what was done already"


@pytest.mark.parametrize("lost", ["at once", "in the end", "the guest"])
def test_a_lost_connection_is_no_guest_that_powered_off(
    connection: t.Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """And what was done before is told, of each guest."""
    find = run_addresses.find

    def broken(*_arguments: object) -> t.NoReturn:
        raise libvirt.libvirtError("End of file while reading data: Input/output error")

    def breaks(*arguments: t.Any, **more: t.Any) -> t.Any:
        if lost == "at once":
            monkeypatch.setattr(connection, "getAllDomainStats", broken)
        outcomes = find(*arguments, **more)
        if lost == "in the end":
            monkeypatch.setattr(connection, "lookupByUUIDString", broken)
        elif lost == "the guest":
            domain = libvirt_query.lookup(connection, "silent")
            domain.destroy()
            domain.undefine()
        return outcomes

    monkeypatch.setattr(run_addresses, "find", breaks)
    silent, quiet = converged(connection, {"name": "silent", "wait_for_ip": "agent"}, {"name": "quiet"})
    assert silent["failed"] and silent["changed"] and "awaits" not in silent and not quiet.get("failed")
    reason = "it was removed in the meantime" if lost == "the guest" else "cannot .*: End of file while reading data"
    assert re.match(
        rf"no address of silent: {reason}.*; run again.* \(already done: .*; start silent\)$", silent["msg"]
    )


def test_a_guest_that_boots_slowly_has_more_time_and_a_search_has_not(
    connection: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets half of a processor, and has not sent anything yet."""
    now_s = [0.0]

    def sleeps(seconds: float) -> None:
        now_s[0] += seconds

    def doing(_connection: object, guests: t.Sequence[t.Any]) -> dict[str, Doing]:
        return {one.UUIDString(): Doing(now_s[0] / 2, 0, 0) for one in guests}

    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", sleeps)
    monkeypatch.setattr(states, "doing", doing)
    [silent] = converged(connection, {"name": "silent", "wait_for_ip": "agent", "wait_timeout": 60})
    assert silent["failed"] and 120 <= now_s[0] < 130
    now_s[0] = 0
    run_addresses.refresh(connection, ["silent"], 60, Gate(check_mode=True))
    assert now_s[0] < 70


def test_who_has_no_interface_is_not_waited_for_long(connection: t.Any) -> None:
    begun_s = time.monotonic()
    [result] = converged(connection, {"name": "web2", "wait_for_ip": "any", "interfaces": [], "wait_timeout": 60})
    assert "it has no network interface" in result["msg"]
    assert result["failed"] and time.monotonic() - begun_s < 10


def test_refresh_predicts_then_records_and_then_has_nothing_to_do(connection: t.Any) -> None:
    converged(connection, {"name": "web2"}, {"name": "off", "state": "shutdown"})
    result = [
        run_addresses.refresh(connection, ["web2", "off", "nobody"], 1, Gate(check_mode=check))
        for check in (True, False, False)
    ]
    assert [one["changed"] for one in result] == [True, True, False]
    assert result[0]["steps"] == result[1]["steps"] and result[0]["steps"][0].startswith(
        "record that web2 was seen at "
    )
    assert [one["name"] for one in result[0]["guests"]] == ["web2"]
    assert result[0]["diff"] == result[1]["diff"] and result[0]["diff"]["before"] == {"web2": []}
    assert result[0]["diff"]["after"]["web2"][0].endswith(" (lease)") and result[2]["diff"] == {
        "before": {},
        "after": {},
    }


def test_nothing_is_written_into_guests_of_others_until_they_are_named(connection: t.Any) -> None:
    converged(connection, {"name": "web2"})  # nothing is kept with it, as with one made by hand
    domain = libvirt_query.lookup(connection, "web2")
    before = domain.XMLDesc()
    found = run_addresses.refresh(connection, None, 1, Gate(check_mode=False))
    assert [one["addresses"] for one in found["guests"] if one["name"] == "web2"] != [[]] and not found["changed"]
    assert domain.XMLDesc() == before
    converged(connection, {"name": "web2", "tags": ["front"]})
    steps = run_addresses.refresh(connection, None, 1, Gate(check_mode=False))["steps"]
    assert [step.partition(" at ")[0] for step in steps] == ["record that web2 was seen"]


def test_a_report_records_what_it_shows(connection: t.Any) -> None:
    converged(connection, {"name": "web2", "tags": ["front"]}, {"name": "off", "state": "shutdown"})
    result = [
        run_query.guests(connection, run_query.Search(None, 1), gate, load=load)
        for gate, load in ((Gate(check_mode=True), False), (Gate(check_mode=False), True), (None, False))
    ]
    assert [one["changed"] for one in result] == [True, True, False]
    assert result[0]["steps"] == result[1]["steps"] != [] and result[2]["steps"] == []
    shown = [{guest["name"]: guest for guest in one["domains"]} for one in result]
    assert all({"web2", "off"} <= found.keys() for found in shown)
    assert shown[0]["web2"]["addresses"] == shown[1]["web2"]["addresses"] == shown[2]["web2"]["addresses"] != []
    assert shown[1]["web2"].keys() - shown[0]["web2"].keys() == {"cpu_percent"}
    assert ["host" in one for one in result] == [False, True, False] and result[1]["host"]["cpus"] > 0
    [one] = run_query.guests(connection, run_query.Search(["off"], 1), None, load=False)["domains"]
    assert (one["name"], one["state"], one["addresses"]) == ("off", "shutdown", [])
    similar = [
        run_query.guests(connection, run_query.Search([name], 1), None, load=False)["similar"]
        for name in ("off", "web3", "x")
    ]
    assert similar[0] == similar[2] == [] and "web2" in similar[1], "of a name that is not there"


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "true"], check=False).returncode != 0, reason="network namespaces take root"
)
def test_guests_on_a_bridge(tmp_path: Path) -> None:
    """A guest that says nothing by itself is found, and a liar neither takes its address nor is believed until that
    has gone.
    """
    command = [
        "unshare",
        "-n",
        sys.executable,
        str(Path(__file__).with_name("bridge_of_guests.py")),
        str(tmp_path / "node.xml"),
    ]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=1200,
        env={"PYTHONPATH": str(payload.ROOT / ".cache"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["first"]["idle"] == [["192.0.2.10"], [], False], "it was there before: nothing is written"
    assert result["first"]["liar"] == [[], ["192.0.2.10 (packets): idle uses it"], False]
    assert result["first"]["mute"] == [[], [], False]
    if result["vlan"]:
        assert result["first"]["tagged"] == [[], [], False], "what it says in another VLAN is not for this bridge"
    assert result["seconds"] < 10, "all wait at once"
    assert result["moved"]["liar"] == [["192.0.2.10"], []]
    assert result["notes"] == ["192.0.2.10, recorded for idle, now belongs to liar"]
    assert result["steps"] == ["record that liar was seen at 192.0.2.10", "remove the recorded addresses of idle"]
    assert result["twice"] == []
