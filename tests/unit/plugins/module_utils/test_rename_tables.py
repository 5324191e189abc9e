"""When a guest gets another name, and when not."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import rename
from ansible_collections.corral.virt.tests.golden.case import options

OFF = FoundGuest("web1", "u1", "shutdown", persistent=True, autostart=True, xml="<domain/>")
OTHER = FoundGuest("web2", "u2", "shutdown", persistent=True, autostart=False, xml="<domain/>")
RENAMED = GuestSpec("web2", renamed_from="web1")


def test_a_guest_is_renamed_once() -> None:
    assert rename(RENAMED, None, OFF, managed_state=["nvram"], recorded={}) == plan_guest_steps.Rename("web1", "web2")
    assert (
        rename(dataclasses.replace(RENAMED, uuid="u1"), None, OFF, managed_state=(), recorded={"seed": "x"}) is not None
    )
    assert rename(RENAMED, OTHER, None, managed_state=(), recorded={}) is None


@pytest.mark.parametrize(
    ("wanted", "found", "former", "more", "said"),
    [
        (RENAMED, None, None, {}, "there is no guest web1 here"),
        (RENAMED, OTHER, OFF, {}, r"another guest has this name \(UUID u2\)"),
        (dataclasses.replace(RENAMED, uuid="u9"), None, OFF, {}, "has UUID u1, not u9"),
        (
            RENAMED,
            None,
            dataclasses.replace(OFF, state="paused", live_xml="<domain/>"),
            {},
            "it is paused; shut it down first",
        ),
        (RENAMED, None, OFF, {"recorded": {"moving": "h2"}}, "its migration is in progress or was interrupted"),
        (RENAMED, None, OFF, {"recorded": {"making": ["/a"]}}, "left /a incomplete"),
        (
            RENAMED,
            None,
            OFF,
            {"managed_state": ["managed_save"]},
            "its managed save under its name; .*: virsh managedsave-remove web1",
        ),
        (
            RENAMED,
            None,
            OFF,
            {"managed_state": ["managed_save", "checkpoints"]},
            "its managed save and checkpoints under its name",
        ),
    ],
)
def test_what_is_not_renamed(
    wanted: GuestSpec, found: FoundGuest | None, former: FoundGuest | None, more: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(VirtError, match=f"^cannot rename web1 to web2: .*{said}"):
        rename(wanted, found, former, **{"managed_state": (), "recorded": {}, **more})


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"name": "web2", "renamed_from": "a/b"}, "renamed_from of web2: 'a/b' is not a valid name"),
        ({"name": "web2", "renamed_from": "web2"}, "renamed_from of web2: it is the guest's current name"),
        ({"name": "web2", "renamed_from": "web1", "state": "absent"}, "omit it to remove web2"),
    ],
)
def test_what_cannot_be_meant(said: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        options(said)
