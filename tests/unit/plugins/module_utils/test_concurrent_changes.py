"""What others do while a guest is on its way, and what only a look tells: each comparison, both ways."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host, xml_host_bindings
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._image import plan_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_concurrent_changes
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import DiskMove
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_moves import deletable, ways
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    MigratingDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import (
    check_all,
    check_local,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.xml_directory import new_pool

SEEN = {"modified_s": 5.0, "physical_bytes": 10, "allocation_bytes": 3}
# A comparison, and what it tells; empty where it lets the move go on.
CASES: list[tuple[t.Callable[[], object], str]] = [
    (lambda: plan_concurrent_changes.check_wanted("web1", interrupted=False), ""),
    (
        lambda: plan_concurrent_changes.check_wanted("web1", interrupted=True),
        "cannot migrate web1: interrupted, and the guest has not moved; run again to migrate it",
    ),
    (lambda: plan_concurrent_changes.check_begun("web1", interrupted=False), ""),
    (
        lambda: plan_concurrent_changes.check_begun("web1", interrupted=True),
        "cannot migrate web1: all migrations were interrupted before it began; run again to migrate it",
    ),
    (lambda: plan_concurrent_changes.check_there("/a", SEEN), ""),
    (lambda: plan_concurrent_changes.check_there("/a", None), "cannot copy /a: it is gone from its pool"),
    (lambda: plan_concurrent_changes.check_unchanged("/a", SEEN, {**SEEN, "allocation_bytes": 4}), ""),
    (
        lambda: plan_concurrent_changes.check_unchanged("/a", SEEN, {**SEEN, "modified_s": 5.5}),
        "it was written to in the meantime",
    ),
    (
        lambda: plan_concurrent_changes.check_unchanged("/a", SEEN, {**SEEN, "physical_bytes": 9}),
        "it was written to in the meantime",
    ),
    (lambda: plan_concurrent_changes.check_path_free("/a", user=None, taken=False), ""),
    (
        lambda: plan_concurrent_changes.check_path_free("/a", user="db1", taken=False),
        "guest db1 on the destination uses a file with this name",
    ),
    (
        lambda: plan_concurrent_changes.check_path_free("/a", user=None, taken=True),
        "no migration of this guest created; inspect it",
    ),
    (lambda: plan_concurrent_changes.check_definition("web1", "5eed", "5eed"), ""),
    (lambda: plan_concurrent_changes.check_definition("web1", "5eed", "0bad"), "somebody changed its definition"),
    (
        lambda: plan_concurrent_changes.check_definition("web1", "5eed", None),
        "it is gone after the migration was planned",
    ),
    (lambda: plan_concurrent_changes.check_in_place("web1", {"/a": "", "/b": ""}), ""),
    (
        lambda: plan_concurrent_changes.check_in_place("web1", {"/a": "", "/b": "it was replaced"}),
        "/b: it was replaced. Not",
    ),
    (lambda: plan_concurrent_changes.check_name_kept("/a", in_place=True), ""),
    (lambda: plan_concurrent_changes.check_name_kept("/a", in_place=False), "another file took this name"),
    (lambda: plan_concurrent_changes.check_reserved("web1", reserved=True), ""),
    (lambda: plan_concurrent_changes.check_reserved("web1", reserved=False), "undefine it there (virsh undefine web1)"),
    (lambda: plan_concurrent_changes.check_is_there("web1", there=True), ""),
    (lambda: plan_concurrent_changes.check_is_there("web1", there=False), "is no longer on the destination; they stay"),
    (lambda: plan_concurrent_changes.check_not_written("web1", []), ""),
    (lambda: plan_concurrent_changes.check_not_written("web1", ["/a", "/b"]), "a process has /a, /b open for writing"),
    (lambda: plan_concurrent_changes.check_same_content("web1", []), ""),
    (lambda: plan_concurrent_changes.check_same_content("web1", ["/a"]), "/a was written to after being copied"),
    (lambda: plan_concurrent_changes.check_off("web1", "shutdown"), ""),
    (lambda: plan_concurrent_changes.check_off("web1", "crashed"), ""),
    (
        lambda: plan_concurrent_changes.check_off("web1", "running"),
        "cannot migrate web1: it was started in the meantime",
    ),
    (lambda: plan_concurrent_changes.check_off("web1", "paused"), "it was started in the meantime"),
    (lambda: check_local("web1", "qemu:///system"), ""),
    (lambda: check_local("web1", "qemu+tls://hyper1/system"), "uri: web1 can be migrated only by the host that has it"),
    (
        lambda: check_all([("a", {}, ["x is wrong"]), ("b", {}, ["y is wrong"])], 1),
        "guests: a: x is wrong; guests: b: y is wrong",
    ),
    (
        lambda: check_all([("a", {}, ["x"]), ("a", {}, ["x"])], 0),
        "guests: a is given twice; at_once: must be at least 1, not 0",
    ),
]


@pytest.mark.parametrize(("compare", "told"), CASES, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_what_is_compared_is_told(compare: t.Callable[[], object], told: str) -> None:
    reason = ""
    try:
        compare()
    except VirtError as error:
        reason = str(error)
    assert told in reason and bool(reason) == bool(told)


def test_problems_of_the_input_are_its_own_kind() -> None:
    with pytest.raises(BadInput, match="delegate_to"):
        check_local("web1", "qemu+ssh://hyper1/system")


def test_every_disk_that_cannot_travel_is_told_at_once() -> None:
    shared = MigratingDisk("vda", "/srv/a", "shared", shared_on="nfs4")
    bad = MigratingDisk("vdb", "/srv/b", "auto", shareable=True)
    moves, problems = ways([shared, bad], active=True, waiting=["/b", "/a"], wrong=["the guest has no disk vdx"])
    assert [move.how for move in moves] == ["shared"]
    starts = (
        "disk /a is pending until",
        "disk /b is pending",
        "the guest has no disk vdx",
        "disk vdb: it is shareable",
    )
    assert len(problems) == len(starts) and all(map(str.startswith, problems, starts))
    assert ways([shared], active=True)[1] == []


def test_what_is_only_read_goes_only_when_it_was_made_for_the_guest() -> None:
    disk, cdrom, iso = (
        DiskMove(name, f"/{name}", "copy", "", Volume("p", name, f"/{name}", 1)) for name in ("disk", "cdrom", "iso")
    )
    shared = DiskMove("vdb", "/shared", "shared", "")
    assert deletable([disk, cdrom, iso, shared], fixed={"/cdrom", "/iso"}, owned=["/cdrom"]) == ["/disk", "/cdrom"]


def test_nothing_is_held_or_waited_for_but_by_who_does_it() -> None:
    kept: list[str] = []

    @contextlib.contextmanager
    def lock() -> t.Iterator[str]:
        kept.append("held")
        yield "web1"
        kept.append("released")

    with contextlib.ExitStack() as stack:
        Gate(check_mode=True).hold(stack, lock)
        assert kept == []
        Gate(check_mode=False).hold(stack, lock)
        assert kept == ["held"]
    assert kept == ["held", "released"]
    Gate(check_mode=True).rehearse(lambda: kept.append("looked"))
    Gate(check_mode=False).rehearse(lambda: kept.append("not looked"))
    assert kept == ["held", "released", "looked"]


def test_an_agent_is_there_when_its_channel_says_so() -> None:
    channel = "<domain><devices><channel type='unix'><target type='virtio' name='a'{}/></channel></devices></domain>"
    assert xml_host_bindings.has_agent(channel.format(" state='connected'"))
    assert not xml_host_bindings.has_agent(channel.format(" state='disconnected'"))
    assert not xml_host_bindings.has_agent(channel.format("")) and not xml_host_bindings.has_agent("<domain/>")


def test_a_directory_is_a_pool_of_a_name_that_is_no_ones() -> None:
    first, second = new_pool("/srv/a & b"), new_pool("/srv/b")
    assert xml_host.pool(first) == {"type": "dir", "path": "/srv/a & b"}
    assert "<name>corral-" in first and first.partition("</name>")[0] != second.partition("</name>")[0]


def test_an_image_that_somebody_has_come_to_use_is_not_removed() -> None:
    image = Image("debian.qcow2", "/images", "qcow2")
    plan_image.check_unused(image, "debian.1a2b3c4d5e6f.qcow2", None)
    with pytest.raises(
        Refused, match=r"cannot remove a\.qcow2 of image debian\.qcow2: guest web1 uses it by now; it is"
    ):
        plan_image.check_unused(image, "a.qcow2", "guest web1")
