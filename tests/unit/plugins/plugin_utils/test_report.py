"""Reports, to the letter: people and scripts know this text."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, report_text

TUNNEL = "ssh -L 5901:127.0.0.1:5900 hyper6"
CENTOS: dict[str, t.Any] = {
    "name": "centos",
    "state": "running",
    "vcpus": {"current": 2, "maximum": 4},
    "memory": {"current_mib": 512, "maximum_mib": 1024},
    "graphics": [{"type": "vnc", "port": 5900, "listen": "127.0.0.1", "connect": [TUNNEL, "vncviewer localhost:5901"]}],
    "console": True,
    "console_command": "ssh -t hyper6 virsh --connect qemu:///system console centos",
    "disks": [
        {
            "name": "system",
            "target": "vda",
            "capacity_bytes": 2 * 1024**3,
            "source": "/srv/images/centos/system.qcow2",
            "format": "qcow2",
        }
    ],
    "interfaces": [{"name": "eth0", "mac": "ac:de:48:98:08:77", "bridge": "br0", "type": "bridge"}],
}
BARE: dict[str, t.Any] = {
    "name": "bare",
    "state": "shutdown",
    "vcpus": {"current": 1, "maximum": 1},
    "memory": {"current_mib": 64, "maximum_mib": 64},
    "graphics": [{"type": "spice"}],
    "disks": [{"target": "sda"}],
    "interfaces": [{"mac": "52:54:00:00:00:01", "type": "user"}],
}
HOSTS: dict[str, dict[str, t.Any]] = {"hyper6": {"domains": [CENTOS, BARE]}, "hyper1": {"domains": []}}

QUERY = """\
hyper6
  centos
    CPU: 2
    Memory: 524288
    State: running
    Graphics: vnc - hyper6:5900
      Open: ssh -L 5901:127.0.0.1:5900 hyper6; vncviewer localhost:5901
    Disk - vda:
      Size: 2.0G
      File: /srv/images/centos/system.qcow2
      File Format: qcow2
    Nic - ac:de:48:98:08:77:
      Source: br0
      Type: bridge"""
QUERY_BARE = """\
hyper6
  bare
    CPU: 1
    Memory: 65536
    State: shutdown
    Graphics: spice - nothing listens
    Disk - sda:
      Size: unknown
      File: -
      File Format: raw
    Nic - 52:54:00:00:00:01:
      Source: -
      Type: user"""


def test_query() -> None:
    assert report_text.text("query", {"hyper6": {"domains": [CENTOS]}}, [], None) == QUERY


@pytest.mark.parametrize(("guest", "text"), [("centos", QUERY), ("bare", QUERY_BARE)])
def test_query_of_one_guest_shows_only_its_host(guest: str, text: str) -> None:
    assert report_text.text("query", HOSTS, [], [guest]) == text


def test_query_of_nobody() -> None:
    assert report_text.text("query", HOSTS, [], ["nobody"]) == ""


def test_hosts_are_sorted_and_the_unreached_are_shown() -> None:
    text = report_text.text("query", HOSTS, ["hyper2"], None)
    assert text.startswith("hyper1\nhyper2\n  (not reached: its guests are not shown)\nhyper6\n  centos\n")


def test_console() -> None:
    assert report_text.text("console", HOSTS, [], ["centos"]) == (
        f"hyper6\n  centos: ssh -t hyper6 virsh --connect qemu:///system console centos\n  centos: {TUNNEL}; "
        "vncviewer localhost:5901"
    )
    assert (
        report_text.text("console", HOSTS, [], ["bare"])
        == "hyper6\n  bare: it has no serial console\n  bare: nothing listens"
    )


def test_steps() -> None:
    results = [
        {"name": "web1", "changed": True, "steps": ["start \x1bweb1"]},
        {"name": "web2", "changed": False, "steps": []},
        {"name": "web3", "failed": True, "msg": "cannot start \x1bweb3", "steps": []},
    ]
    text = report_text.text("steps", {"h1": {"results": results}, "h2": {"skipped": True}}, [], None)
    assert text == "h1\n  start \\x1bweb1\n  web2 is already in that state", (
        "why web3 was not started, the end of the run says"
    )


def test_steps_tell_what_waits() -> None:
    """A guest that goes on as it was is not in the wanted state."""
    first = {"name": "web1", "changed": True, "steps": ["define web1"], "pending": ["memory.maximum: 1GiB -> 2GiB"]}
    again = {**first, "name": "web2", "changed": False, "steps": []}
    assert report_text.text("steps", {"h1": {"results": [first, again]}}, [], None).splitlines() == [
        "h1",
        "  define web1",
        "  waits for the next start of web1: memory.maximum: 1GiB -> 2GiB",
        "  waits for the next start of web2: memory.maximum: 1GiB -> 2GiB",
    ]


MOVED = {"name": "web1", "dest": "h2", "changed": True, "mode": "live", "steps": ["migrate web1"]}


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ({}, "web1 is on h2"),
        (
            {"seconds": 1.2, "downtime_ms": 35, "bytes_sent": 13107200},
            "web1 is on h2, after 1.2 s; downtime 35 ms, 12.5 MiB sent",
        ),
        ({"bytes_sent": 3 * 1024**3 // 2}, "web1 is on h2; 1.5 GiB sent"),
        ({"seconds": 1.2, "downtime_ms": 0}, "web1 is on h2, after 1.2 s; downtime 0 ms"),
    ],
)
def test_a_move_ends_with_one_line(figures: dict[str, t.Any], line: str) -> None:
    assert report_text.moved({**MOVED, **figures}) == line


def test_migrations() -> None:
    disk = {"target": "vda", "how": "delta", "bytes_to_move": 2 * 1024**2, "why": "the image is there"}
    written = {**MOVED, "dirty_rate_mib_s": 7, "bytes_to_move": 3 * 1024**3}
    plan = {**MOVED, "disks": [disk], "bytes_to_move": 2 * 1024**2, "notes": ["it writes much"]}
    stays = {"name": "db1", "failed": True, "msg": "cannot migrate db1 to h2: no room", "steps": []}
    there = {"name": "web2", "dest": "h2", "changed": False, "steps": []}
    text = report_text.text(
        "migrations", {"h1": {"results": [plan, written, stays, there]}, "h3": {"skipped": True}}, [], None
    )
    assert text.splitlines() == [
        "h1",
        "  web1: to h2, live, 2.0 MiB of disk",
        "    vda: delta, 2.0 MiB (the image is there)",
        "    migrate web1",
        "    it writes much",
        "  web1: to h2, live, 3.0 GiB of disk, writes 7 MiB/s of memory",
        "    migrate web1",
        "  db1: cannot migrate db1 to h2: no room",
        "  web2: to h2",
    ]


def test_list() -> None:
    assert report_text.text("list", HOSTS, [], None) == "hyper1\nhyper6\n  running\n    centos\n  shutdown\n    bare"


def test_host_info() -> None:
    host = {
        "cpus": 8,
        "vcpus_used": 3,
        "cpu_model": "EPYC",
        "sockets": 1,
        "cores": 4,
        "threads": 2,
        "cpu_mhz": 3400,
        "memory_mib": 32768,
        "memory_free_mib": 16000,
        "virt_types": ["qemu", "kvm"],
        "libvirt_version": "9.0.0",
        "hypervisor_version": "7.2.22",
        "pools": [{"name": "default", "path": "/srv", "available_bytes": 1536 * 1024**2}],
        "bridges": None,
        "guests": [1, 2],
    }
    assert report_text.text("host_info", {"hyper1": {"host": host}}, [], None) == (
        "hyper1\n  cpus: 8 (3 vcpus in use)\n  cpu_model: EPYC\n  topology: 1 sockets, 4 cores each, 2 threads each, "
        "3400 MHz\n"
        "  memory_mib: 32768 (16000 free)\n  virt_types: qemu, kvm\n  libvirt: 9.0.0\n"
        "  hypervisor: 7.2.22\n  pools:\n    default: /srv (1.5G free)\n  bridges: ''\n  guests: 2"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.0B"),
        (1023, "1023.0B"),
        (1024, "1.0K"),
        (196 * 1024, "196.0K"),
        (2 * 1024**3, "2.0G"),
        (5 * 1024**5, "5120.0T"),
        (None, "unknown"),
    ],
)
def test_sizes(size: int | None, text: str) -> None:
    assert report_text._size(size) == text


@pytest.mark.parametrize("kind", ["query", "list"])
def test_control_characters_reach_no_terminal(kind: str) -> None:
    """They may come from guests and from hypervisors."""
    bad = {**CENTOS, "name": "a\x1b[2J\x9b31m\nfake", "disks": [{"target": "v\x07", "source": "/\x1b]0;t\x07"}]}
    shown = report_text.text(kind, {"hyper1": {"domains": [bad]}}, [], None)
    assert "a\\x1b[2J\\x9b31m\\nfake" in shown
    assert not [char for char in shown if not char.isprintable() and char != "\n"]


REMEDIES = [
    ("cannot pause a: it is off on h1; start it: x", "cannot pause a: it is off on h1", "start it: x"),
    (
        "guest: start requires a guest or a tag; write -e guest=NAME",
        "guest: start requires a guest or a tag",
        "write -e guest=NAME",
    ),
    (
        "purge would affect 2 guests; to confirm: -e confirm=2",
        "purge would affect 2 guests",
        "to confirm: -e confirm=2",
    ),
    (
        "cannot find a: none of h1 has it; did you mean b on h1?",
        "cannot find a: none of h1 has it",
        "did you mean b on h1?",
    ),
    ("wait: start does not take it; it belongs to create", "wait: start does not take it; it belongs to create", None),
    ("vcpus of a: must be a whole number, not 'x'", "vcpus of a: must be a whole number, not 'x'", None),
]


@pytest.mark.parametrize(("text", "problem", "remedy"), REMEDIES)
def test_a_problem_and_its_remedy_are_told_apart(text: str, problem: str, remedy: str | None) -> None:
    (found,) = report_data.problems("h1", {"msg": text}, (), failed=True)
    assert (found["problem"], found["remedy"]) == (problem, remedy)


def test_what_failed_is_told_of_whom_it_is_about() -> None:
    told = {
        "results": [{"name": "a", "failed": True, "msg": "no; wait"}, {"name": "b", "steps": ["start b"]}],
        "msg": "1 failed",
    }
    assert [one["object"] for one in report_data.problems("h1", told, (), failed=True)] == ["a"]
    assert [one["object"] for one in report_data.problems("h1", told, (), failed=False)] == ["a"]
    assert report_data.problems("h1", {"msg": "x"}, (), failed=False) == []
    about = {"disk: x": "disk", "cannot find web1: x": "web1", "cannot find web10: x": "h1"}
    for text, what in about.items():
        (found,) = report_data.problems("h1", {"msg": text}, ("web1",), failed=True)
        assert (found["object"], found["host"]) == (what, "h1")
    (found,) = report_data.problems(None, {"msg": "cannot do it"}, (), failed=True)
    assert (found["object"], found["host"]) == ("run", None)


def test_what_a_host_tells_of_its_guests_is_always_json() -> None:
    odd = {
        "name": 7,
        "steps": [float("nan"), {"a": float("inf")}, b"x", "start"],
        "seconds": float("inf"),
        "changed": True,
    }
    (told,) = report_data.changes({"results": [odd, "x", {"no": "name"}]})
    assert told == {
        "name": "7", "changed": True, "steps": [None, {"a": None}, "b'x'", "start"], "seconds": None, "failed": False,
    }  # fmt: skip
    json.dumps(told, allow_nan=False)


DISK_MOVE: dict[str, t.Any] = {
    "disk": "data",
    "pool": "fast",
    "source": "/fast/a.img",
    "moved_from": "/old/a.img",
    "old_file": "deleted",
    "size_bytes": 3 * 1024**2,
    "steps": ["create disk /fast/a.img"],
    "notes": [],
}
LEFT = {"path": "/old/base.img", "size_bytes": 1024**2, "why": "/fast/a.img stands on it"}


def test_moves_of_disks_are_told_in_words() -> None:
    failed = {"disk": "system", "pool": "fast", "source": "/old/b.img", "failed": True, "steps": [], "notes": []}
    done = {"results": [{"name": "db1", "disks": [{**DISK_MOVE, "seconds": 1.5}, failed]}], "left": [LEFT]}
    planned = {"results": [{"name": "db1", **DISK_MOVE}]}
    there = {"results": [{"name": "db1", **DISK_MOVE, "steps": []}]}
    told: dict[str, dict[str, t.Any]] = {
        "h1": done,
        "h2": planned,
        "h3": there,
        "h4": {"results": [], "left": []},
        "h5": {"results": []},
    }
    assert report_text.text("disk_moves", told, [], None) == (
        "h1\n"
        "  disk data of db1 is in pool fast (/fast/a.img), after 1.5 s; 3.0 MiB copied, the old file /old/a.img is deleted\n"
        "  disk system of db1 is not moved\n"
        "  stays: /old/base.img (1.0 MiB): /fast/a.img stands on it\n"
        "h2\n"
        "  disk data of db1 to pool fast (/fast/a.img), 3.0 MiB\n"
        "    create disk /fast/a.img\n"
        "h3\n"
        "  disk data of db1 is already in pool fast\n"
        "h4\n"
        "  nothing stays"
    )
    broken: list[dict[str, t.Any]] = [{"results": [{"name": "db1"}]}, {"results": 5}, {"results": [], "left": [{}]}]
    for odd in broken:
        assert report_text.unreadable("disk_moves", {"h1": odd}, None) == ["h1"]


def test_moves_of_disks_are_data() -> None:
    (one,) = report_data.changes({"name": "db1", **DISK_MOVE, "seconds": 1.5})
    (disk,) = one["disks"]
    assert (disk["disk"], disk["moved_from"], disk["old_file"], disk["seconds"]) == (
        "data",
        "/old/a.img",
        "deleted",
        1.5,
    )
    (one,) = report_data.changes(
        {"results": [{"name": "db1", "steps": [], "disks": [DISK_MOVE, DISK_MOVE, {"target": "vda"}]}]}
    )
    assert [each["pool"] for each in one["disks"]] == ["fast", "fast"]
    (one,) = report_data.changes({"name": "db1", "steps": [], "disks": [{"target": "vda"}]})
    assert "disks" not in one
