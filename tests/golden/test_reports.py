"""Each report in each format, to the letter: people and programs know these texts."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, report_text, tables
from ansible_collections.corral.virt.tests.golden.case import GOLDEN

GIB = 1024**3
WEB1: dict[str, t.Any] = {
    "name": "web1",
    "uuid": "00000000-0000-0000-0000-000000000001",
    "state": "running",
    "vcpus": {"current": 2, "maximum": 4},
    "cpu_percent": 12.5,
    "memory": {"current_mib": 2048, "maximum_mib": 4096},
    "graphics": [
        {"type": "vnc", "port": 5900, "connect": ["ssh -L 5901:127.0.0.1:5900 hyper1", "vncviewer localhost:5901"]}
    ],
    "console_command": "ssh -t hyper1 virsh --connect qemu:///system console web1",
    "disks": [
        {"target": "vda", "capacity_bytes": 8 * GIB, "source": "/srv/web1-system.qcow2", "format": "qcow2"},
        {"target": "vdb", "capacity_bytes": GIB // 2, "volume": "default/data", "format": "raw"},
    ],
    "interfaces": [{"mac": "52:54:00:00:00:01", "bridge": "br0", "type": "bridge"}],
    "addresses": ["192.0.2.7", "2001:db8::7"],
    "tags": ["front", "apart-web"],
    "snapshots": {"count": 3, "oldest_age_s": 9 * 86400},
    "backup": {"age_s": 7200, "proven_age_s": 9 * 86400, "every_s": 86400, "proven_every_s": 7 * 86400, "late": True},
    "ha": {
        "mode": "restart",
        "priority": 100,
        "group": "shop",
        "kept": {
            "directory": "/srv/vms",
            "owner": "hyper1 since 2026-11-30T07:00:00Z (recovered from hyper2)",
            "resource": "guest-web1",
            "problem": "",
            "history": [
                {"at": "2026-11-29T07:00:00Z", "from": "", "to": "hyper2", "why": "saved"},
                {"at": "2026-11-30T07:00:00Z", "from": "hyper2", "to": "hyper3", "why": "recovered from hyper2"},
                {"at": "2026-11-30T09:00:00Z", "from": "hyper3", "to": "hyper1", "why": "migrated"},
            ],
        },
    },
    "protected": True,
}
OFF: dict[str, t.Any] = {
    "name": "a-guest-that-is-off",
    "uuid": "00000000-0000-0000-0000-000000000002",
    "state": "shutdown",
    "vcpus": {"current": 16, "maximum": 16},
    "cpu_percent": None,
    "memory": {"current_mib": 512, "maximum_mib": 512},
    "graphics": [{"type": "spice"}],
    "disks": [{"target": "sda"}],
    "interfaces": [{"mac": "52:54:00:00:00:02", "type": "user"}],
    "addresses": [],
    "tags": [],
    "ha": {"mode": "restart", "priority": 0, "kept": None},
}
LOAD = {"cpus": 8, "cpu_percent": 71.4, "memory_mib": 32768, "memory_used_mib": 29696}
INFO: dict[str, t.Any] = {
    **LOAD,
    "sockets": 1,
    "cores": 4,
    "threads": 2,
    "cpu_mhz": 3400,
    "vcpus_used": 12,
    "memory_free_mib": 2560,
    "cpu_model": "EPYC",
    "virt_types": ["qemu", "kvm"],
    "libvirt_version": "9.0.0",
    "hypervisor_version": "7.2.22",
    "pools": [{"name": "default", "path": "/srv", "available_bytes": 3 * GIB // 2, "capacity_bytes": 100 * GIB}],
    "bridges": ["br0"],
    "domain_capabilities": {"platform": ["efi", "tpm"]},
    "guests": [{}, {}],
    "maintenance": {"reason": "new memory"},
    "fencing": {
        "tested": "2026-11-30T07:00:00+00:00",
        "devices": {
            "hyper2": {"ok": True, "says": "on", "why": ""},
            "hyper3": {"ok": False, "says": "", "why": "no answer within 60 s"},
        },
    },
}
BARE = {
    **INFO,
    "cpu_model": "",
    "bridges": None,
    "pools": [],
    "guests": [],
    "maintenance": None,
    "fencing": None,
    "vcpus_used": 0,
    "memory_used_mib": 0,
}
GUESTS: dict[str, dict[str, t.Any]] = {"hyper1": {"domains": [WEB1, OFF], "host": LOAD}, "hyper2": {"domains": []}}
POOLS: dict[str, t.Any] = {
    "pools": [
        {
            "name": "images",
            "type": "dir",
            "active": True,
            "autostart": True,
            "path": "/srv/images",
            "capacity_bytes": 100 * GIB,
            "allocation_bytes": 92 * GIB,
            "available_bytes": 8 * GIB,
        },
        {
            "name": "backup",
            "type": "logical",
            "source": {"name": "backup", "devices": ["/dev/sdb"], "hosts": None},
            "active": False,
            "autostart": False,
            "path": "/dev/backup",
            "capacity_bytes": None,
            "allocation_bytes": None,
            "available_bytes": None,
        },
    ]
}
VOLUME: dict[str, t.Any] = {
    "name": "web1-system.qcow2",
    "pool": "images",
    "path": "/srv/images/web1-system.qcow2",
    "capacity": "20GiB",
    "format": "qcow2",
    "backing": {"path": "/srv/images/debian-13.qcow2", "format": "qcow2"},
    "capacity_bytes": 20 * GIB,
    "allocation_bytes": 3 * GIB // 2,
}
LOCKED = {
    **{key: value for key, value in VOLUME.items() if key != "backing"},
    "name": "accounts.luks",
    "format": "raw",
    "encryption": "luks",
}
DEVICE = {"name": "old", "pool": "backup", "path": "/dev/backup/old", "capacity_bytes": GIB, "allocation_bytes": GIB}
HOSTS: dict[str, dict[str, dict[str, t.Any]]] = {
    "query": GUESTS,
    "list": GUESTS,
    "host_info": {"hyper1": {"host": INFO}, "hyper2": {"host": BARE}},
    "pools": {"hyper1": POOLS, "hyper2": {"pools": []}},
    "volumes": {"hyper1": {"volumes": [VOLUME, LOCKED, DEVICE]}, "hyper2": {"volumes": []}},
}
CASES = [
    (kind, form) for kind in HOSTS for form in ("seed", "table", "json") if form != "seed" or kind in report_text.KINDS
]


def reported(kind: str, form: str, hosts: t.Mapping[str, t.Any]) -> str:
    """What stands in the file of a report."""
    if form == "seed":
        return report_text.text(kind, hosts, ["hyper10"], None) + "\n"
    report = report_data.data(kind, hosts, ["hyper10"], None)
    return (json.dumps(report, indent=2) if form == "json" else tables.text(report)) + "\n"


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_a_report_is_as_it_was(kind: str, form: str, request: pytest.FixtureRequest) -> None:
    file, text = GOLDEN / "reports" / f"{kind}.{form}", reported(kind, form, HOSTS[kind])
    if request.config.getoption("--regenerate"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("kind", HOSTS)
def test_colours_change_nothing_else(kind: str) -> None:
    report = report_data.data(kind, HOSTS[kind], ["hyper10"], None)
    painted = tables.text(report, lambda text, colour: f"<{colour}>{text}</>")
    assert "<red>not reached</>" in painted
    for mark in ("<red>", "<yellow>", "<green>", "</>"):
        painted = painted.replace(mark, "")
    assert painted == tables.text(report)


@pytest.mark.parametrize(
    ("used", "shown", "colour"),
    [
        (0, "....................", "green"),
        (4, "#...................", "green"),
        (69, "##############......", "green"),
        (70, "##############......", "yellow"),
        (90, "##################..", "red"),
        (100, "####################", "red"),
        (250, "####################", "red"),
    ],
)
def test_bars(used: int, shown: str, colour: str) -> None:
    assert tables._bar(used, 100) == (f"[{shown}]", colour, False)
    assert tables._bar(used * 3, 300) == (f"[{shown}]", colour, False)
    assert (
        tables._bar(None, 100).text
        == tables._bar(used, None).text
        == tables._bar(used, 0).text
        == "[         ?          ]"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (GIB - 1, "1024.0 MiB"),
        (GIB, "1.0 GiB"),
        (5 * 1024**5, "5120.0 TiB"),
    ],
)
def test_sizes(size: int | None, text: str) -> None:
    assert tables.size(size) == text


BROKEN: list[t.Any] = [
    {},
    {"domains": None},
    {"domains": ["web1"]},
    {"domains": [{**WEB1, "memory": 5}]},
    {"domains": [{**WEB1, "vcpus": {"current": "2\n"}}]},
    {"domains": [{**WEB1, "cpu_percent": True}]},
    {"domains": [{**WEB1, "disks": [{"capacity_bytes": "8"}]}]},
    {"domains": [WEB1], "host": {"cpus": []}},
    {"domains": [WEB1], "host": "host"},
]


@pytest.mark.parametrize("answer", BROKEN, ids=range(len(BROKEN)))
def test_an_answer_that_is_none_hides_no_other_host(answer: t.Any) -> None:
    report = report_data.data("query", {"hyper1": answer, "hyper2": GUESTS["hyper1"]}, [], None)
    assert [(host["name"], host["reached"]) for host in report["hosts"]] == [("hyper1", False), ("hyper2", True)]
    assert "not reached" in tables.text(report).splitlines()[0] and "web1" in tables.text(report)
    result = report_text.text("list", {"hyper1": {"domains": None}, "hyper2": GUESTS["hyper1"]}, [], None)
    assert result.startswith("hyper1\n  (its answer cannot be read)\nhyper2\n  running\n    web1")


def test_only_the_guests_that_are_asked_for() -> None:
    for kind in ("query", "list"):
        report = report_data.data(kind, GUESTS, [], ["web1"])
        assert [(host["name"], [guest["name"] for guest in host["guests"]]) for host in report["hosts"]] == [
            ("hyper1", ["web1"])
        ]
    assert report_data.data("query", GUESTS, ["hyper10"], ["nobody"])["hosts"] == [
        {"name": "hyper10", "reached": False}
    ]


def test_nothing_in_a_table_is_obeyed_by_a_terminal() -> None:
    bad = copy.deepcopy(WEB1)
    bad.update(name="a\x1b[2J\nfake", tags=["\x9b31m"], addresses=["\x07"])
    shown = tables.text(report_data.data("query", {"h1": {"domains": [bad], "host": LOAD}}, [], None))
    assert "a\\x1b[2J\\nfake" in shown and not [char for char in shown if not char.isprintable() and char != "\n"]


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (86090137, 199229440, "82.1 of 190.0 MiB"),
        (1288490189, 8 * 1024**3, "1.2 of 8.0 GiB"),
        (0, 1024**3, "0.0 of 1.0 GiB"),
        (1024**3 - 1, 0, "1024.0 MiB"),
        (3 * 1024**3, 0, "3.0 GiB"),
    ],
)
def test_amounts(done: int, total: int, text: str) -> None:
    assert tables.amount(done, total) == text
