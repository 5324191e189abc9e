"""The modules as a host runs them: one process, JSON in, JSON out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.golden.case import HOST_URI

ROOT = Path(__file__).parents[2]
SECRETS = ("hunter2-in-user-data", "vncpw123")


def run(module: str, *, check_mode: bool = False, uri: str = HOST_URI, **arguments: t.Any) -> dict[str, t.Any]:
    """The module's answer."""
    output = {"uri": uri, **arguments, "_ansible_check_mode": check_mode, "_ansible_diff": True}
    done = subprocess.run(
        [sys.executable, str(ROOT / f"plugins/modules/{module}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": output}),
        env={**os.environ, "PYTHONPATH": str(ROOT / ".cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr, done.stderr
    return t.cast("dict[str, t.Any]", json.loads(done.stdout))


def guest(name: str, **more: object) -> dict[str, t.Any]:
    """The least that makes a guest."""
    return {"name": name, "vcpus": 1, "memory": 64, **more}


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_guest_is_made(check_mode: bool) -> None:
    result = run("virt_domain", check_mode=check_mode, **guest("app1", image="debian-12.qcow2", state="running"))
    assert result["changed"] is True
    assert result["steps"] == [
        "define app1 (disks to be created)",
        (
            "create disk /var/lib/libvirt/images/app1-system.qcow2 (8 GiB, qcow2, on "
            "/var/lib/libvirt/images/debian-12.qcow2)"
        ),
        "define app1 (complete)",
        "start app1",
    ]
    assert result["diff"]["before"] == {"state": "absent"}
    assert result["diff"]["after"]["state"] == "running"


def test_every_problem_is_told_at_once() -> None:
    result = run(
        "virt_domain",
        **guest("a/b", vcpus=0, memory="much", uuid="nope", image="<x/>", title="two\nlines"),
        disks=[{"name": "../x"}],
        interfaces=[{"name": "eth0", "mac": "zz"}],
        graphics={"port": 80},
    )
    assert result["failed"] is True
    answer = " ".join(result["problems"])
    for about in ("name:", "uuid of", "image of", "disks[].name of", "mac of", "graphics.port", "vcpus.current of"):
        assert about in answer, about


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing required arguments: name"),
        (guest("a", state="on"), "value of state must be one of"),
        (guest("a", disks=[{"size": 1}]), "missing required arguments: name found in disks"),
        (guest("a", disks=[{"name": "d", "bus": "nvme"}]), "value of bus must be one of"),
        (guest("a", colour="red"), "Unsupported parameters"),
        (
            {"name": "a", "state": "running"},
            "cannot create a: there is no such guest here, and creating it requires vcpus and memory",
        ),
        (guest("a", virt_type="kvm"), "cannot create a: this host offers test"),
        (
            guest("a", disks=[{"name": "d", "pool": "fast"}]),
            "cannot find storage pool fast: .*; create it, or choose another with `pool`",
        ),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, t.Any], message: str) -> None:
    result = run("virt_domain", **options)
    assert result["failed"] is True
    assert re.search(message, result["msg"]), result["msg"]


def test_no_daemon_is_said() -> None:
    result = run("virt_domain", uri="qemu:///system?socket=/nowhere", **guest("a"))
    assert result["msg"].startswith("cannot connect to qemu:///system?socket=/nowhere: ")
    assert "is the libvirt daemon installed" in result["msg"]


@pytest.mark.parametrize(
    "user_data", [f'#cloud-config\n{{"p": "{SECRETS[0]}"}}\n', {"p": SECRETS[0]}], ids=["text", "mapping"]
)
@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("many", [True, False])
def test_secrets_stay_secret(user_data: object, check_mode: bool, many: bool) -> None:
    """In results, diffs, invocation, and in the failure of a driver that cannot write seeds."""
    one = guest("app1", cloud_init={"user_data": user_data}, graphics={"type": "vnc", "password": SECRETS[1]})
    result = (
        run("virt_domains", check_mode=check_mode, domains=[one])
        if many
        else run("virt_domain", check_mode=check_mode, **one)
    )
    assert bool(result.get("failed")) is not check_mode
    assert "write cloud-init seed" in json.dumps(result) or not check_mode
    for secret in SECRETS:
        assert secret not in json.dumps(result)


def test_secrets_stay_secret_in_bad_input() -> None:
    display = {"type": "vnc", "password": SECRETS[1] + "-too-long"}
    result = run("virt_domain", **guest("a", graphics=display, cloud_init={"user_data": SECRETS[0]}))
    assert len(result["problems"]) == 2
    for secret in SECRETS:
        assert secret not in json.dumps(result)


def test_one_failing_guest_does_not_stop_the_others() -> None:
    result = run("virt_domains", domains=[guest("a"), guest("b", image="missing.qcow2"), guest("c", state="running")])
    assert result["failed"] is True
    assert result["changed"] is True
    assert [(one["name"], bool(one.get("failed")), one["changed"]) for one in result["results"]] == [
        ("a", False, True),
        ("b", True, False),
        ("c", False, True),
    ]
    assert result["msg"].startswith("cannot create b: there is no image missing.qcow2 in pool default")
    assert result["steps"][-1] == "start c"
    assert [one["after_header"] for one in result["diff"]] == ["a", "c"]


def test_bad_input_of_any_guest_stops_all_before_anything_is_touched() -> None:
    result = run("virt_domains", domains=[guest("a"), guest("b/c"), guest("d", memory=0), guest("a")])
    assert "results" not in result
    assert len(result["problems"]) == 3


NODE = """<node>{devices}<domain type='test'><name>gpu1</name><memory>65536</memory><os><type machine='q35'>hvm</type></os>
<devices><hostdev mode='subsystem' type='pci'><source><address domain='0' bus='0x06' slot='0' function='0'/></source></hostdev>
</devices></domain></node>"""
USB = """<device><name>usb_1_4</name><parent>computer</parent><capability type='usb_device'><bus>1</bus><device>4</device>
<product id='0x0002'/><vendor id='0x1d6b'/></capability></device>"""
PCI = """<device><name>pci_0000_06_00_0</name><parent>computer</parent><capability type='pci'><domain>0</domain><bus>6</bus>
<slot>0</slot><function>0</function><product id='0x1'/><vendor id='0x2'/></capability></device>"""


def test_devices_of_a_host_and_its_guests(tmp_path: Path) -> None:
    (tmp_path / "node.xml").write_text(NODE.format(devices=USB + PCI))
    host = run("virt_host_info", uri=f"test://{tmp_path}/node.xml")["host"]
    assert host["devices"] == ["pci 0000:06:00.0", "usb 0x1d6b:0x0002", "usb 1.4"]
    [guest] = host["guests"]
    assert (guest["devices"], guest["networks"]) == (["pci 0000:06:00.0"], [])
    assert host["kernel_version"] is None or host["kernel_version"] == os.uname().release


def test_info_of_a_host_and_its_guests() -> None:
    host = run("virt_host_info", uri="test:///default")["host"]
    assert [one["name"] for one in host["guests"]] == ["test"]
    assert host["memory_free_mib"] <= host["memory_mib"] - host["memory_reserved_mib"]
    found = run("virt_domain_info", uri="test:///default")["domains"]
    assert [(one["name"], one["state"], one["vcpus"]) for one in found] == [
        ("test", "running", {"current": 2, "maximum": 2})
    ]
    assert run("virt_domain_info", uri="test:///default", name="nobody")["domains"] == []


TAGGED = """<node><domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><metadata>
<c:guest xmlns:c='urn:corral:virt:guest:1'><c:tag>front</c:tag><c:seed sha256='a'/><c:tag>a &lt; b</c:tag></c:guest>
</metadata></domain><domain type='test'><name>by-hand</name><memory>65536</memory><os><type>hvm</type></os><metadata>
<o:guest xmlns:o='urn:other'><o:tag>not ours</o:tag></o:guest></metadata></domain></node>"""


def test_states_of_guests(tmp_path: Path) -> None:
    """In one call, and the tags only where they are asked for."""
    (tmp_path / "node.xml").write_text(TAGGED)
    uri = f"test://{tmp_path}/node.xml"
    result = run("virt_state_info", uri=uri)
    assert not result["changed"] and abs(result["clock"] - time.time()) < 60
    assert [sorted(guest) for guest in result["domains"]] == [["name", "protected", "state", "uuid"]] * 2
    assert [(guest["name"], guest["state"]) for guest in result["domains"]] == [
        ("by-hand", "running"),
        ("web1", "running"),
    ]
    tagged = run("virt_state_info", uri=uri, tags=True)["domains"]
    assert {guest["name"]: guest["tags"] for guest in tagged} == {"by-hand": [], "web1": ["front", "a < b"]}
    assert [guest["name"] for guest in run("virt_state_info", uri=uri, name="web1")["domains"]] == ["web1"]
    assert run("virt_state_info", uri=uri, name="nobody")["domains"] == []
    assert "links" not in result and run("virt_state_info", uri=uri, links=True)["links"] is None, "nobody's host"


def test_info_of_what_guests_do() -> None:
    """The test driver's host has clocks that stand, and its guests use one processor.

    The host's memory is that of all of them.
    """
    result = run("virt_domain_info", uri="test:///default", name="nobody", load=True)
    assert result["domains"] == [] and result["host"] == {
        "cpus": 16,
        "cpu_percent": None,
        "memory_mib": 3072,
        "memory_used_mib": 8192,
    }
    [guest] = run("virt_domain_info", uri="test:///default", load=True)["domains"]
    assert (
        guest["vcpus"]["current"] == 2
        and 40 < guest["cpu_percent"] < 60
        and "host" not in run("virt_domain_info", uri="test:///default")
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"cloud_init": {"user_dta": {"chpasswd": [{"password": "Geheim-17"}]}}},
        {"cloud_init": {"user_data": "#cloud-config\n{}", "pasword": "Geheim-17"}},
        {"cloud_int": {"user_data": "#cloud-config\npassword: Geheim-17\n"}},
        {"graphics": {"type": "vnc", "pasword": "Geheim-17"}},
        {"disks": [{"name": "a", "network": {"auth": {"key": ["Geheim-17"]}}}]},
        {"graphics": {"type": "vnc", "pasword": 61726354}},
    ],
    ids=str,
)
@pytest.mark.parametrize("module", ["virt_domain", "virt_domains"])
def test_a_secret_below_a_misspelt_option_is_not_shown(module: str, wrong: dict[str, t.Any]) -> None:
    one = guest("app1", **wrong)
    result = run(module, **(one if module == "virt_domain" else {"domains": [one]}))
    assert result["failed"] and "Unsupported parameters" in result["msg"]
    assert "Geheim-17" not in str(result) and "61726354" not in str(result) and "app1" in str(result["invocation"])
