"""What snapshots of a guest mean for its disks, its name, its copies and its removal."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk
from ansible_collections.corral.virt.plugins.module_utils._domain.plan_snapshot_names import named, remedy
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_changes,
    plan_cloning,
    plan_import,
    plan_removal,
)

TOP, BASE = "/i/web1.s1", "/i/web1"
EXTERNAL = Snapshot("s1", disks=(SnapshotDisk("vda", "external", overlay=TOP, base=BASE),))
INTERNAL = Snapshot("in", disks=(SnapshotDisk("vda", "internal", base=TOP),))


def test_a_disk_grows_above_its_snapshots() -> None:
    assert plan_changes.grown("web1", [TOP], []) == plan_changes.grown("web1", [], [EXTERNAL, INTERNAL]) == []
    [note] = plan_changes.grown("web1", [TOP], [EXTERNAL])
    assert note == f"snapshot s1 of web1 keeps the size of then; what grows is {TOP}"
    with pytest.raises(Refused, match=r"snapshot in inside it .*`virsh snapshot-delete web1 in`"):
        plan_changes.grown("web1", [TOP], [EXTERNAL, INTERNAL])
    assert plan_changes.grown("web1", ["/i/other"], [EXTERNAL, INTERNAL]), "it is not inside that disk"


def test_a_disk_that_snapshots_lack_or_need() -> None:
    def notes(added: dict[str, str], removed: set[str]) -> list[str]:
        return plan_changes.attached("web1", added, [EXTERNAL, INTERNAL], removed=removed)

    assert notes({}, set()) == notes({}, {"/i/data"}) == []
    assert notes({"vdb": "/i/data"}, set()) == ["snapshots s1, in of web1 were taken without it: /i/data"]
    assert notes({}, {BASE}) == [f"snapshot s1 of web1 needs {BASE}: keep the file until they are deleted"]
    assert notes({}, {TOP}) == [f"snapshots s1, in of web1 need {TOP}: keep the file until they are deleted"]


def test_a_guest_with_snapshots_keeps_its_name() -> None:
    former = FoundGuest("old", "u", "shutdown", persistent=True, autostart=False, xml="<domain/>")
    wish = GuestSpec("new", renamed_from="old")
    assert plan_changes.rename(wish, None, former, managed_state=(), recorded={})
    with pytest.raises(Refused, match="cannot rename old to new") as refused:
        plan_changes.rename(
            wish, None, former, managed_state=("managed_save", "snapshots"), recorded={}, snapshots=[EXTERNAL, INTERNAL]
        )
    said = str(refused.value)
    assert "libvirt keeps its managed save and snapshots s1, in under its name; remove that first: " in said
    assert "virsh managedsave-remove old; " in said and "`virsh snapshot-delete old s1`, and so on" in said


def test_a_copy_has_none() -> None:
    assert plan_cloning.without_snapshots("web1", "web2", ["s1"]) == ["snapshot s1 of web1 is not copied to web2"]


def test_an_import_tells_of_snapshots() -> None:
    assert plan_import.of_snapshots([]) == []
    [told] = plan_import.of_snapshots(["s1"])
    assert told["why"].startswith("snapshot s1: ")


@pytest.mark.parametrize(
    ("chains", "kept", "expected"),
    [
        ([], ["/s1"], {}),
        ([["/s1", "/a"]], [], {}),
        ([["/s2", "/s1", "/a"]], ["/s2"], {"/s1": "/s2", "/a": "/s1"}),
        ([["/s2", "/s1", "/a"]], ["/s1"], {"/a": "/s1"}),
        ([["/s1", "/a"], ["/branch", "/a"]], ["/branch"], {"/a": "/branch"}),
    ],
)
def test_what_is_below_a_file_that_stays_stays(
    chains: list[list[str]], kept: list[str], expected: dict[str, str]
) -> None:
    assert plan_removal.below(chains, kept) == expected


def test_names_of_snapshots_are_quoted_and_few() -> None:
    assert named(["a"]) == "snapshot a" and named(list("abcdefg")) == "snapshots a, b, c, d, e and 2 more"
    assert "`virsh snapshot-delete web1 'with space'`" in remedy("web1", ["with space"])
