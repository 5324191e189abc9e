"""A guest that is removed or powered off, as tables: which disks are deleted, and what is refused."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    FoundGuest,
    Grafted,
    GuestSpec,
    OwnedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps, plan_live
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan, plan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_removal import (
    absent,
    shared,
    unrecorded,
    with_shared_variables,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Owner
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume

OFF_STATES = ("shutdown", "crashed and off")
OWNER = Owner("web1", "u", "h", ("/a", "/b", "/c", "/a b"))


def own(*paths: str) -> tuple[OwnedVolume, ...]:
    """Entries of the guest's record."""
    return tuple(map(OWNER.made, paths))


THERE = OwnedDisk(volume=True, pool="default", active=True)


def found(state: str, *, persistent: bool = True, autostart: bool = False) -> FoundGuest:
    """A guest."""
    return FoundGuest(
        "web1", "u", state, persistent, autostart, "<domain/>", None if state in OFF_STATES else "<domain/>"
    )


def shown(step: plan_guest_steps.GuestStep) -> str:
    """A step with what matters of it."""
    if isinstance(step, plan_guest_steps.Shutdown):
        return f"{type(step).__name__} {step.timeout_s} force={step.force} wait={step.wait}"
    if isinstance(step, plan_guest_steps.Undefine):
        return f"Undefine {' '.join(step.managed_state)}".strip()
    return f"{type(step).__name__} {getattr(step, 'path', '')}".strip()


def result(state: str, *, force: bool = False, remove: bool = True, persistent: bool = True) -> str:
    """Steps of a removal, and the disks that are kept."""
    wish = GuestSpec("web1", state="absent", remove_storage=remove, force=force, wait=False, wait_timeout_s=7)
    here = found(state, persistent=persistent)
    try:
        made = absent(
            wish,
            here,
            managed_state=("nvram", "tpm"),
            owned=own("/a", "/b"),
            owner=OWNER,
            in_use={"/b": "web2", "/c": "web3"},
            disks={"/a": THERE},
        )
    except Refused:
        return "refused"
    return "; ".join([*map(shown, made.steps), *(text.split()[2].rstrip(":") + " kept" for text in made.notes)])


OFF = "Undefine nvram tpm; DeleteVolume /a; /b kept"
REMOVALS: list[tuple[str, dict[str, bool], str]] = [
    ("shutdown", {}, OFF),
    ("shutdown", {"remove": False}, "Undefine nvram tpm; /a kept; /b kept"),
    ("running", {}, f"Shutdown 7 force=False wait=True; {OFF}"),
    ("running", {"force": True}, f"Shutdown 7 force=True wait=True; {OFF}"),
    ("running", {"persistent": False}, "Shutdown 7 force=False wait=True; DeleteVolume /a; /b kept"),
    ("paused", {}, f"Resume; Shutdown 7 force=False wait=True; {OFF}"),
    ("crashed", {}, "refused"),
    ("crashed", {"force": True}, f"Destroy; {OFF}"),
]


def test_a_removal_deletes_what_it_owns_and_nobody_uses() -> None:
    wrong = [
        (state, more, result(state, **more)) for state, more, expected in REMOVALS if result(state, **more) != expected
    ]
    assert not wrong


def test_uefi_variables_that_another_guest_uses_stay() -> None:
    """libvirt would delete them by their path: a definition that was copied by hand names them, too."""
    for user, kinds, notes in (
        ("guest web2", ("keep_nvram", "tpm"), ("kept UEFI variables /vars.fd: guest web2 uses them",)),
        ("", ("nvram", "tpm"), ()),
    ):
        made = absent(
            GuestSpec("web1", state="absent"),
            found("shutdown"),
            managed_state=("nvram", "tpm"),
            owned=(),
            owner=OWNER,
            in_use={},
            disks={},
        )
        made = with_shared_variables(made, {"/vars.fd": user} if user else {})
        assert [step.managed_state for step in made.steps if isinstance(step, plan_guest_steps.Undefine)] == [kinds]
        assert made.notes == notes
        assert str(made.steps[-1]) == f"undefine web1 with its {'tpm' if user else 'nvram, tpm'}"


def test_a_disk_that_a_guest_of_another_host_may_use_stays() -> None:
    answer = absent(
        GuestSpec("web1", state="absent", remove_storage=True, keep_shared=True),
        found("shutdown"),
        managed_state=(),
        owned=own("/a", "/b"),
        owner=OWNER,
        in_use={},
        disks={"/a": THERE, "/b": THERE},
        shared={"/b": "nfs4"},
    )
    assert [shown(step) for step in answer.steps] == ["Undefine", "DeleteVolume /a"]
    [note] = answer.notes
    assert note.startswith("kept disk /b of web1: it is on nfs4, and a guest of a host that was not asked may use it; ")
    assert note.endswith("; to delete it: virsh --connect qemu:///system vol-delete /b")


def test_kept_disks_are_named_with_the_reason() -> None:
    wish = GuestSpec("web1", state="absent", remove_storage=True)
    answer = absent(
        wish,
        found("shutdown"),
        managed_state=(),
        owned=own("/a", "/b"),
        owner=OWNER,
        in_use={"/b": "web2"},
        disks={"/a": THERE},
    ).notes
    assert len(answer) == 1 and "/b" in answer[0] and "web1" in answer[0] and "web2" in answer[0]
    wish = GuestSpec("web1", state="absent")
    answer = absent(
        wish,
        found("shutdown"),
        managed_state=(),
        owned=own("/a b", "/c"),
        owner=OWNER,
        in_use={"/c": "web2"},
        disks={},
        uri="qemu:///session",
    ).notes
    assert answer == (
        "kept disk /a b of web1; to delete it: virsh --connect qemu:///session vol-delete '/a b'",
        "kept disk /c of web1: web2 uses it",
    )


@pytest.mark.parametrize(
    ("chains", "others"),
    [
        ([["/a", "/image"]], []),
        ([["/a.s2", "/a.s1", "/a", "/image"]], ["/a.s2", "/a.s1"]),  # snapshots without metadata
        ([["/a.s2", "/a.s1", "/a"], ["/a.s1", "/a"], ["/memory"]], ["/a.s2", "/a.s1", "/memory"]),
        ([["/a.s1", "/a"], ["/a.branch", "/a"]], ["/a.s1", "/a.branch"]),
        ([["/by-hand", "/below"], ["/below"]], ["/by-hand", "/below"]),
        ([["/by-hand", "/image"]], ["/by-hand"]),
    ],
)
def test_no_file_of_a_snapshot_is_left_without_a_word(chains: list[list[str]], others: list[str]) -> None:
    """Those that stand between its files; an image below its disk is not its own."""
    assert unrecorded(chains, ["/a", "/b"]) == others


def test_every_file_that_stays_is_named_with_the_command_that_deletes_it() -> None:
    """Its own disk, too: a file of a snapshot stands on it."""
    answer = absent(
        GuestSpec("web1", state="absent", remove_storage=True),
        found("shutdown"),
        managed_state=(),
        owned=own("/a"),
        owner=OWNER,
        in_use={"/a": "/a.s1", "/memory": "web2"},
        disks={"/a": THERE},
        others=["/a.s1", "/memory"],
    )
    kept = "of web1, which is not in its record (made by a snapshot, or by hand)"
    assert answer.notes == (
        f"kept file /a.s1 {kept}; to delete it: virsh --connect qemu:///system vol-delete /a.s1",
        f"kept file /memory {kept}: web2 uses it",
        "kept disk /a of web1; to delete it: virsh --connect qemu:///system vol-delete /a",
    )
    assert not [step for step in answer.steps if isinstance(step, plan_guest_steps.DeleteVolume)]


INACTIVE = "storage pool data of disk /a is not active (start it: virsh --connect qemu:///session pool-start data)"
LOOSE = "disk /a is in no storage pool (create one for its directory with virt_pool)"
REMEDY = "; or set remove_storage: false and delete the files by hand"


@pytest.mark.parametrize(
    ("disk", "outcome"),
    [
        (THERE, "deleted"),
        (OwnedDisk(volume=True), "deleted"),  # in a subdirectory that a pool lists
        (OwnedDisk(volume=True, exists=True), "deleted"),
        (OwnedDisk(pool="default", active=True, exists=True), "deleted"),  # a pool that was not refreshed
        (OwnedDisk(pool="default", active=True), "deleted"),  # it is gone, which its doer sees, too
        (OwnedDisk(pool="data"), INACTIVE),
        (OwnedDisk(pool="data", exists=False), INACTIVE),  # its filesystem may not be mounted
        (OwnedDisk(exists=True), LOOSE),
        (OwnedDisk(exists=False), "gone"),
        (OwnedDisk(exists=None), "unknown"),
    ],
)
def test_no_disk_stays_without_its_owner(disk: OwnedDisk, outcome: str) -> None:
    wish = GuestSpec("web1", state="absent", remove_storage=True)
    told: dict[str, t.Any] = {"managed_state": (), "owned": own("/a"), "owner": OWNER, "uri": "qemu:///session"}
    if outcome in (INACTIVE, LOOSE):
        text = f"cannot remove web1 with its disks: {outcome}{REMEDY}"
        with pytest.raises(Refused, match=f"^{re.escape(text)}$"):
            absent(wish, found("shutdown"), in_use={}, disks={"/a": disk}, **told)
        answer = absent(wish, found("shutdown"), in_use={"/a": "web2"}, disks={"/a": disk}, **told)
        assert answer.notes == ("kept disk /a of web1: web2 uses it",), "it is not to be removed"
        return
    answer = absent(wish, found("shutdown"), in_use={}, disks={"/a": disk}, **told)
    assert [step.path for step in answer.steps if isinstance(step, plan_guest_steps.DeleteVolume)] == ["/a"] * (
        outcome == "deleted"
    )
    assert [note.startswith("disk /a of web1 is not deleted: ") for note in answer.notes] == [True] * (
        outcome == "unknown"
    )
    assert disk.gone is (outcome == "gone" or (disk.active and not disk.volume))


def test_all_disks_that_cannot_be_removed_are_named() -> None:
    wish = GuestSpec("web1", state="absent", remove_storage=True)
    disks = {"/a": OwnedDisk(pool="data"), "/b": THERE, "/c": OwnedDisk(exists=True)}
    with pytest.raises(Refused, match=r"of disk /a is not active .*; disk /c is in no storage pool"):
        absent(wish, found("shutdown"), managed_state=(), owned=own(*disks), owner=OWNER, in_use={}, disks=disks)


def planned(
    wish: GuestSpec, here: FoundGuest | None, *changes: Change, seed_changed: bool = False, record_changed: bool = False
) -> GuestPlan:
    """A plan for changes that the stored definition and the running guest lack alike."""
    after = Grafted("<domain/>", changes)
    now = plan_live.Now(wish, after, after, {}) if here and here.active else None
    return plan(wish, here, after, now, seed_changed=seed_changed, record_changed=record_changed)


def test_power_states_ask_and_wait_as_told() -> None:
    cases = [
        (
            GuestSpec("web1", state="shutdown", wait=False, wait_timeout_s=9),
            "running",
            "Shutdown 9 force=False wait=False",
        ),
        (
            GuestSpec("web1", state="shutdown", wait_timeout_s=9, force=True),
            "running",
            "Shutdown 9 force=True wait=True",
        ),
        (GuestSpec("web1", state="shutdown"), "paused", "Resume; Shutdown 300 force=False wait=True"),
        (GuestSpec("web1", state="rebooted", wait=False), "running", "Reboot 300 force=False wait=False"),
        (
            GuestSpec("web1", state="rebooted", wait_timeout_s=9, force=True),
            "running",
            "Reboot 9 force=True wait=True",
        ),
        (GuestSpec("web1"), "paused", ""),
        (GuestSpec("web1", state="running"), "crashed and off", "Start"),
        (GuestSpec("web1", state="destroyed"), "crashed and off", ""),
    ]
    texts = ["; ".join(map(shown, planned(wish, found(now)).steps)) for wish, now, _expected in cases]
    assert texts == [expected for _wish, _now, expected in cases]


def test_a_definition_is_written_only_for_a_reason() -> None:
    wish = GuestSpec("web1")
    assert [shown(step) for step in planned(wish, None).steps] == ["Define"]
    assert planned(wish, found("shutdown")).steps == ()
    remembered = planned(wish, found("shutdown"), record_changed=True).steps
    assert [shown(step) for step in remembered] == ["Define"] and "its record" in str(remembered[0])
    changes = [Change(f"disks[{name}].cache", None, "none") for name in "edcba"]
    shortened = "disks[a].cache, disks[b].cache, disks[c].cache, disks[d].cache and 1 more"
    assert shortened in str(planned(wish, found("shutdown"), *changes).steps[0])
    assert "more" not in str(planned(wish, found("shutdown"), *changes[1:]).steps[0])


def test_disks_that_the_guest_does_not_own_alone() -> None:
    disks = [
        {"name": "a", "source": "/a", "shareable": True},
        {"name": "b", "source": "/b", "readonly": True},
        {"name": "c", "source": "/c"},
        {"name": "seed", "source": "/seed", "readonly": True},
        {"name": "empty", "source": None, "readonly": True},
    ]
    found = shared(t.cast("list[dict[str, t.Any]]", disks))
    assert sorted(found) == ["/a", "/b"]
    assert "shareable" in found["/a"] and "read-only" in found["/b"]


@pytest.mark.parametrize(("state", "kept"), [("shutdown", ["/a"]), ("running", [])])
def test_a_disk_that_somebody_has_open_is_kept(state: str, kept: list[str]) -> None:
    """Of a guest that runs it is the guest itself."""
    wish, disks = (
        GuestSpec("web1", state="absent", remove_storage=True, force=True),
        {"/a": replace(THERE, opened=True)},
    )
    made = absent(wish, found(state), managed_state=(), owned=own("/a"), owner=OWNER, in_use={}, disks=disks)
    assert [step.path for step in made.steps if isinstance(step, plan_guest_steps.DeleteVolume)] == [
        path for path in ("/a",) if path not in kept
    ]
    why = "kept disk {} of web1: a process that libvirt does not know (see `fuser -v {}`) uses it"
    assert list(made.notes) == [why.format(path, path) for path in kept]
