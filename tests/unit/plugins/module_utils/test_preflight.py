"""Everything that speaks against a move is found, at once and with a remedy."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    DiskMove,
    MigratingGuest,
    MigrationHost,
    Move,
    Pool,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_preflight import check, findings, outsider

SOURCE = MigrationHost(
    "hyper1", "1111", "x86_64", 9_000_000, 7_002_022, 4000, "<cpu/>", ("pc-q35-7.2",), ("qemu", "kvm"), {}
)
DEST = MigrationHost(
    "hyper2", "2222", "x86_64", 11_003_000, 10_000_002, 4000, "<cpu/>", ("pc-q35-7.2", "pc-q35-10.0"), ("qemu", "kvm"),
    {"db1": ("dddd", "running")}, pools=(Pool("default", "/images", 10 * 1024**3),), links=frozenset({"br0"}),
)  # fmt: skip
GUEST = MigratingGuest("web1", "aaaa", "running", 512, "pc-q35-7.2", "kvm", "custom", bridges=("br0",))
DISK = DiskMove(
    "vda", "/images/a.qcow2", "full", "", Volume("default", "a.qcow2", "/images/a.qcow2", 1), room_bytes=1024**3
)
MOVE = Move("web1", "aaaa", "hyper2", "qemu+tls://hyper2/system", disks=(DISK,))


def test_nothing_speaks_against_a_good_move() -> None:
    assert findings(MOVE, GUEST, SOURCE, DEST) == []


MEMBERS = {"hyper1": ["10.0.0.1"], "hyper2": ["10.0.0.2", "fd00::2"]}


@pytest.mark.parametrize(
    ("known_as", "refused"),
    [
        ({"hyper2", "hyper2.example.com"}, False),
        ({"10.0.0.2"}, False),
        ({"fd00::2", "elsewhere"}, False),
        ({"hyper9", "10.0.0.9"}, True),
        ({"hyper"}, True),
    ],
)
def test_a_guest_of_pacemaker_stays_in_its_cluster(known_as: set[str], refused: bool) -> None:
    """A member is known by its name, or by an address; another host is refused, with the members and both ways out."""
    why = outsider("guest-web1", "hyper9", known_as, MEMBERS)
    assert (why is not None) == refused
    if refused:
        with pytest.raises(
            Refused, match=r"guest-web1.*hyper9.*members: hyper1, hyper2\).*choose a member.*ha: \{mode: none\}"
        ):
            check(MOVE, GUEST, SOURCE, DEST, outsider=why)


CASES: dict[str, tuple[dict[str, t.Any], ...]] = {
    "same host UUID": ({}, {"uuid": "1111"}, {}, {}),
    "already has this guest": ({}, {"guests": {"web1": ("aaaa", "shutdown")}}, {}, {}),
    "another guest with this name": ({}, {"guests": {"web1": ("eeee", "shutdown")}}, {}, {}),
    "guest other with the same UUID": ({}, {"guests": {"other": ("aaaa", "shutdown")}}, {}, {}),
    "memory free": ({}, {"memory_free_mib": 100}, {}, {}),
    "more is needed, and 1 GiB must stay free": ({}, {"pools": (Pool("default", "/images", 1000),)}, {}, {}),
    "cannot run kvm": ({}, {"virt_types": ("qemu",)}, {}, {}),
    "machine type": ({}, {"machines": ("pc-q35-6.0",)}, {}, {}),
    "host-passthrough": ({"cpu_mode": "host-passthrough"}, {"cpu_xml": "<cpu><model>other</model></cpu>"}, {}, {}),
    "cannot be migrated": ({"devices": ("a pci device",)}, {}, {}, {}),
    "managedsave-remove": ({"managed_state": ("managed_save",)}, {}, {}, {}),
    "it runs on a backup until that is copied; wait": ({"held": "wait"}, {}, {}, {}),
    "domjobabort": ({"job": "a block job on vda"}, {}, {}, {}),
    "a tunnel cannot carry a storage copy": ({}, {}, {}, {"transport": "tunnelled"}),
    "does not support parallel": ({}, {}, {}, {"parallel": 2}),
    "does not support postcopy with tls": ({}, {}, {}, {"postcopy": True}),
    "QEMU before 10.1": ({}, {}, {}, {"postcopy": True, "parallel": 2, "transport": "plain"}),
    "loses the guest with postcopy and parallel": (
        {},
        {},
        {},
        {"schedule": "postcopy", "parallel": 2, "transport": "plain"},
    ),
    "compression of parallel": ({}, {}, {}, {"parallel": 2, "compression": ("zstd",), "transport": "plain"}),
}


@pytest.mark.parametrize("said", CASES)
def test_each_thing_is_found(said: str) -> None:
    guest, dest, move, tuning = CASES[said]
    found = findings(
        dataclasses.replace(MOVE, tuning=Tuning(**tuning), **move),
        dataclasses.replace(GUEST, **guest),
        SOURCE,
        dataclasses.replace(DEST, **dest),
    )
    assert any(said in text for text in found), found


def test_all_are_told_at_once() -> None:
    bad = dataclasses.replace(DEST, uuid="1111", memory_free_mib=1)
    assert len(findings(MOVE, GUEST, SOURCE, bad)) == 2


def test_a_guest_that_is_off_needs_no_memory_and_leaves_its_devices() -> None:
    off = dataclasses.replace(MOVE, active=False)
    guest = dataclasses.replace(GUEST, state="shutdown", devices=("a pci device",), cpu_mode="host-passthrough")
    assert (
        findings(
            off, guest, SOURCE, dataclasses.replace(DEST, memory_free_mib=1, cpu_xml="<cpu><model>x</model></cpu>")
        )
        == []
    )
