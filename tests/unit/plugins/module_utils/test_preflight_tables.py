"""Preflight failures as a table: at each limit, just within and just beyond it."""

from __future__ import annotations

import dataclasses
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPY,
    DELTA,
    FULL,
    SHARED,
    DiskMove,
    MigratingGuest,
    MigrationHost,
    Move,
    Pool,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_preflight import check, findings, uses_ports

UUID = "11111111-2222-3333-4444-555555555555"

GIB = 1024**3
SOURCE = MigrationHost(
    "hyper1",
    "1111",
    "x86_64",
    11_000_000,
    10_001_000,
    4000,
    "<cpu/>",
    ("q35",),
    ("kvm",),
    {"web1": ("aaaa", "running")},
)
DEST = MigrationHost(
    "hyper2", "2222", "x86_64", 11_000_000, 10_001_000, 512, "<cpu/>", ("q35", "q36"), ("qemu", "kvm"), {"db1": ("dddd", "running")},
    pools=(Pool("default", "/images", 3 * GIB, 10 * GIB), Pool("fast", "/fast", 3 * GIB, 40 * GIB)),
    links=frozenset({"br0", "br1"}),
)  # fmt: skip
GUEST = MigratingGuest("web1", "aaaa", "running", 512, "q35", "kvm", "custom", bridges=("br0",))


def disk(target: str, how: str = FULL, pool: str = "default", room: int = GIB) -> DiskMove:
    """A disk of 1 GiB."""
    volume = None if how == SHARED else Volume(pool, target, f"/images/{target}", 1)
    return DiskMove(target, f"/images/{target}", how, "", volume, room_bytes=room)


TLS, PLAIN, TUNNEL = {"transport": "tls"}, {"transport": "plain"}, {"transport": "tunnelled"}
OLD, OLDER = {"libvirt_version": 10_002_000}, {"libvirt_version": 9_003_000}
Parts = dict[str, dict[str, t.Any]]  # what differs of guest, source, dest, tuning and move
CASES: list[tuple[Parts, list[str]]] = [
    ({}, []),
    (
        {"dest": {"maintenance": "new fan"}},
        ["hyper2 is in maintenance (new fan) and takes no guests; end that with playbook undrain"],
    ),
    # one identity, one guest
    ({"dest": {"uuid": "1111"}}, ["hyper1 and hyper2", "host UUID 1111"]),
    ({"dest": {"guests": {"web1": ("aaaa", "running")}}}, ["already has this guest", "(running)"]),
    (
        {"dest": {"guests": {"web1": ("eeee", "shutdown")}}},
        ["another guest", "(shutdown, UUID eeee); rename one of them (virsh domrename)"],
    ),
    ({"dest": {"guests": {"web2": ("aaaa", "shutdown")}}}, ["web2", "same UUID aaaa"]),
    # memory and room
    ({"guest": {"memory_mib": 513}}, ["512 MiB", "513 MiB"]),
    ({"guest": {"memory_mib": 513}, "move": {"active": False}}, []),
    ({"move": {"disks": (disk("a"), disk("b"))}}, []),
    ({"move": {"disks": (disk("a"), disk("b", room=GIB + 1))}}, ["pool default of hyper2", "2 GiB"]),
    ({"dest": {"pools": (Pool("default", "/images", 0, 10 * GIB),)}, "move": {"disks": (disk("a", SHARED),)}}, []),
    # a pool keeps the larger of 1 GiB and 5 %, or what was asked for
    ({"move": {"disks": (disk("a", room=3 * GIB),), "reserve_bytes": 0}}, []),
    ({"move": {"disks": (disk("a", room=GIB),), "reserve_bytes": 2 * GIB}}, []),
    ({"move": {"disks": (disk("a", room=GIB + 1),), "reserve_bytes": 2 * GIB}}, ["2 GiB must stay free"]),
    ({"move": {"disks": (disk("a", pool="fast"),)}}, []),
    ({"move": {"disks": (disk("a", pool="fast", room=GIB + 1),)}}, ["2 GiB must stay free (reserve)"]),
    ({"move": {"disks": (disk("a"), disk("b"), disk("c", pool="fast"), disk("d", SHARED))}}, []),
    ({"move": {"disks": (disk("a", pool="fast"), disk("b", pool="fast"))}}, ["pool fast"]),
    ({"move": {"disks": (disk("a", COPY, room=3 * GIB),), "active": False}}, ["pool default"]),
    # what it runs on
    ({"guest": {"virt_type": "xen"}}, ["xen", "qemu, kvm"]),
    ({"guest": {"machine": "q37"}}, ["q37; choose a host that provides it"]),
    (
        {"guest": {"machine": "pc-q35-10.1"}, "dest": {"machines": ("pc-q35-9.2", "pc-q35-10.0", "pc-i440fx-10.0")}},
        ["pc-q35-10.1; upgrade QEMU there"],
    ),
    (
        {
            "guest": {"machine": "pc-q35-2.4"},
            "source": {"machines": ("pc-q35-2.4", "pc-q35-9.2", "pc-q35-8.0")},
            "dest": {"machines": ("pc-q35-10.0", "pc-q35-9.2", "pc-q35-8.0")},
        },
        ["newer versions have dropped it: set machine: pc-q35-9.2, which both hosts provide"],
    ),
    (
        {"guest": {"machine": "pc-q35-rhel9.2.0"}, "dest": {"machines": ("pc-q35-9.2",)}},
        ["pc-q35-rhel9.2.0; choose a host that provides it, or set a machine type that both"],
    ),
    ({"guest": {"machine": "q37"}, "dest": {"machines": ()}}, []),
    ({"guest": {"machine": ""}}, []),
    ({"guest": {"cpu_mode": "host-passthrough"}}, []),
    (
        {"guest": {"cpu_mode": "host-passthrough"}, "dest": {"cpu_xml": "<other/>"}},
        ["host-passthrough", "hyper1", "hyper2"],
    ),
    ({"guest": {"cpu_mode": "host-passthrough"}, "dest": {"cpu_xml": "<other/>"}, "move": {"active": False}}, []),
    ({"guest": {"cpu_mode": "host-model"}, "dest": {"cpu_xml": "<other/>"}}, []),
    # what it is tied to
    ({"guest": {"devices": ("a pci device", "a usb device")}}, ["a pci device, a usb device of hyper1"]),
    ({"guest": {"devices": ("a pci device",)}, "move": {"active": False}}, []),
    ({"guest": {"local_state": (("/m", None),)}}, []),
    ({"guest": {"local_state": (("/n", "nfs4"),)}, "move": {"active": False}}, []),
    (
        {"guest": {"local_state": (("/m", None), ("/n", "nfs4"), ("/t", None))}, "move": {"active": False}},
        [
            "it keeps data in /m, /t, which is not copied; put that on shared storage, or create it on hyper2 and migrate"
        ],
    ),
    ({"guest": {"managed_state": ("managed_save",)}, "move": {"active": False}}, ["managedsave-remove web1"]),
    ({"guest": {"managed_state": ("snapshots",)}}, []),
    ({"guest": {"managed_state": ("checkpoints",)}}, ["checkpoint-list web1"]),
    ({"guest": {"managed_state": ("checkpoints",), "backups": ("corral-1",)}}, []),
    ({"guest": {"job": "a backup"}}, ["(a backup)", "domjobabort web1"]),
    # versions
    (
        {"dest": OLD, "tuning": {"parallel": 2, **TLS}},
        ["10.3", "10.2.0", "parallel with tls and disks to copy (the name in the certificate is lost)"],
    ),
    ({"source": OLD, "tuning": {"parallel": 2, **TLS}}, ["10.3", "10.2.0", "parallel with tls"]),
    ({"dest": {"libvirt_version": 10_003_000}, "tuning": {"parallel": 2, **TLS}}, []),
    ({"dest": OLD, "tuning": {"parallel": 2, **PLAIN}}, []),
    ({"dest": OLD, "tuning": {**TLS}}, []),
    ({"dest": OLD, "tuning": {"parallel": 2, **TLS}, "move": {"disks": (disk("a", SHARED), disk("b", COPY))}}, []),
    (
        {"dest": OLD, "tuning": {"parallel": 2, **TLS}, "move": {"disks": (disk("a", SHARED), disk("b", DELTA))}},
        ["parallel with tls"],
    ),
    ({"dest": OLD, "tuning": {"parallel": 2, **TLS}, "move": {"active": False}}, []),
    ({"dest": OLD, "tuning": {"postcopy": True, **TLS}}, ["10.3", "postcopy with tls"]),
    ({"dest": OLD, "tuning": {"postcopy": True, **PLAIN}}, []),
    ({"dest": {"libvirt_version": 10_003_000}, "tuning": {"postcopy": True, **TLS}}, []),
    ({"dest": OLD, "tuning": {"postcopy": True, **TLS}, "move": {"disks": ()}}, []),
    ({"dest": OLDER, "tuning": {"parallel": 2, "compression": ("zstd",), **PLAIN}}, ["9.4", "9.3.0", "compression"]),
    ({"dest": OLDER, "tuning": {"parallel": 2, "compression": ("zlib",), **PLAIN}}, ["compression"]),
    ({"dest": OLDER, "tuning": {"compression": ("xbzrle",), **PLAIN}}, []),
    ({"dest": {"libvirt_version": 9_004_000}, "tuning": {"parallel": 2, "compression": ("zstd",), **PLAIN}}, []),
    (
        {"dest": {"qemu_version": 10_000_005}, "tuning": {"postcopy": True, "parallel": 2, **PLAIN}},
        ["QEMU before 10.1 (here 10.0.5) loses the guest with postcopy and parallel together; omit one"],
    ),
    (
        {"source": {"qemu_version": 10_000_005}, "tuning": {"postcopy": True, "parallel": 2, **PLAIN}},
        ["QEMU before 10.1"],
    ),
    (
        {"dest": {"qemu_version": 10_000_005}, "tuning": {"timeout_action": "postcopy", "parallel": 2, **PLAIN}},
        ["QEMU before 10.1"],
    ),
    ({"dest": {"qemu_version": 10_000_005}, "tuning": {"parallel": 2, **PLAIN}}, []),
    (
        {
            "dest": {"qemu_version": 10_000_005},
            "tuning": {"postcopy": True, **TUNNEL},
            "move": {"disks": (disk("a", SHARED),)},
        },
        [],
    ),
    # what a tunnel carries
    ({"tuning": TUNNEL}, ["vda would have to be copied", "transport: tls"]),
    ({"tuning": TUNNEL, "move": {"disks": (disk("a", SHARED), disk("b", COPY))}}, []),
    ({"tuning": TUNNEL, "move": {"active": False}}, []),
    ({"tuning": {"postcopy": True, "parallel": 2, **PLAIN}}, []),
]


def found(parts: Parts) -> list[str]:
    """Failures of a migration that differs so from a good one."""
    wish = Move(
        "web1",
        UUID,
        "hyper2",
        "qemu+tls://hyper2/system",
        disks=(disk("vda"),),
        tuning=Tuning(**parts.get("tuning", {})),
    )
    return findings(
        dataclasses.replace(wish, **parts.get("move", {})),
        dataclasses.replace(GUEST, **parts.get("guest", {})),
        dataclasses.replace(SOURCE, **parts.get("source", {})),
        dataclasses.replace(DEST, **parts.get("dest", {})),
    )


def test_each_limit_is_kept_and_nothing_else_is_refused() -> None:
    wrong = []
    for parts, words in CASES:
        texts = found(parts)
        if len(texts) != bool(words) or not all(word in texts[0] for word in words):
            wrong.append((parts, words, texts))
    assert not wrong


def test_all_of_it_is_refused_at_once() -> None:
    move = Move("web1", "aaaa", "hyper2", "", Tuning())
    check(move, GUEST, SOURCE, DEST)
    silent, lacking = (
        "port 49152 of hyper2 cannot be reached",
        "cannot provide its CPU: no avx; set a CPU model that both hosts support",
    )
    cpu: dict[str, t.Any] = {"lacks": "no avx"}
    ports: dict[str, t.Any] = {"ports_filtered": silent}
    missing: dict[str, t.Any] = {"missing": [("no a", "put it there"), ("no b", "make b"), ("no c", "put it there")]}
    told = "no a, and no c; put it there; no b; make b"
    with pytest.raises(Refused, match=f"to hyper2: {told}; {silent}$"):
        check(move, GUEST, SOURCE, DEST, **missing, **ports)
    for more, result in [(cpu, lacking), (ports, silent), ({**cpu, **ports}, f"{lacking}; {silent}")]:
        with pytest.raises(Refused, match=f"^cannot migrate web1 to hyper2: (hyper2 )?{re.escape(result)}$"):
            check(move, GUEST, SOURCE, DEST, **more)
    disks = dataclasses.replace(move, refused=("disk vda: it is shareable",))
    with pytest.raises(Refused, match=f"to hyper2: disk vda: it is shareable; {silent}$"):
        check(disks, GUEST, SOURCE, DEST, **ports)
    taken = dataclasses.replace(DEST, guests={"web1": ("cccc", "running")})
    with pytest.raises(Refused, match=r"another guest with this name .*; port 49152"):
        check(move, GUEST, SOURCE, taken, **ports)


def test_only_qemu_to_qemu_needs_ports() -> None:
    ways = [Tuning(transport=way) for way in ("tls", "plain", "tunnelled")]
    moves = [Move("web1", "aaaa", "hyper2", "", way, active=active) for way in ways for active in (True, False)]
    assert [uses_ports(move) for move in moves] == [True, False, True, False, False, False]
