"""Where the guests of a group are restored: each on one hypervisor, from its newest backup, and all problems at once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.filter.restored_group import FilterModule, restored_group

WEB, DB = "1aaa", "2bbb"
OLD, NEW = "20261125T030000Z-00000001", "20261126T030000Z-00000002"


def backups(**points: str) -> dict[str, t.Any]:
    """What a repository has."""
    names = {"web1": WEB, "db1": DB}
    return {"guests": [{"name": name, "uuid": names[name], "last": point} for name, point in points.items()]}


def found(*names: str, **renamed: str) -> dict[str, t.Any]:
    """What a hypervisor has."""
    uuids = {"web1": WEB, "db1": DB}
    there = {name: uuids.get(name, name) for name in names} | {new: uuids[old] for old, new in renamed.items()}
    return {"domains": [{"name": name, "uuid": uuid} for name, uuid in there.items()]}


BOTH = {"hyper1": backups(web1=NEW, db1=NEW), "hyper2": backups(web1=NEW, db1=NEW)}
HERE = {"hyper1": found("web1", "other"), "hyper2": found("db1")}
TAG: dict[str, t.Any] = {"tag": "shop"}


def test_each_guest_goes_where_it_is_in_the_order_that_is_asked_for() -> None:
    told = restored_group(BOTH, HERE, {**TAG, "confirm": 2, "start_order": ["web1"]})
    assert told["problems"] == []
    assert [(one["name"], one["host"], one["in_place"], one["point"]) for one in told["guests"]] == [
        ("web1", "hyper1", True, NEW),
        ("db1", "hyper2", True, NEW),
    ]
    assert set(FilterModule().filters()) == {"restored_group"}


def test_a_guest_that_was_renamed_is_the_same() -> None:
    there = {"hyper1": found(web1="front"), "hyper2": found("db1")}
    [db, web] = restored_group(BOTH, there, {**TAG, "confirm": 2})["guests"]
    assert (web["guest"], web["name"], web["in_place"], db["name"]) == ("web1", "front", True, "db1")


def test_other_guests_beside_them() -> None:
    told = restored_group(BOTH, HERE, {**TAG, "suffix": "-then", "host": "hyper2"})
    assert told["problems"] == []
    assert [(one["name"], one["host"], one["in_place"]) for one in told["guests"]] == [
        ("db1-then", "hyper2", False),
        ("web1-then", "hyper2", False),
    ]
    told = restored_group(BOTH, HERE, {**TAG, "suffix": "-then"})
    assert [one["host"] for one in told["guests"]] == ["hyper2", "hyper1"]


def test_guests_that_no_hypervisor_has() -> None:
    told = restored_group(BOTH, {"hyper1": found(), "hyper2": found("db1")}, {**TAG, "confirm": 2})
    assert told["problems"] == ["web1: no hypervisor has it; choose one: -e host=HOST"]
    there = {"hyper1": found(), "hyper2": found("db1")}
    told = restored_group(BOTH, there, {**TAG, "confirm": 2, "host": "hyper1"})
    assert told["problems"] == []
    assert [(one["name"], one["host"], one["in_place"]) for one in told["guests"]] == [
        ("db1", "hyper2", True),
        ("web1", "hyper1", False),
    ]


@pytest.mark.parametrize(
    ("made", "there", "asked", "told"),
    [
        (
            {"hyper1": backups(), "hyper2": {"failed": False, "msg": "no directory"}},
            HERE,
            {},
            ["tag: no guest has the tag shop in its last backup until then, in the repository of hyper1"],
        ),
        ({"hyper1": {"msg": "no directory"}, "hyper2": {"msg": "no directory"}}, HERE, {}, ["no directory"]),
        (
            {"hyper1": backups(web1=NEW)},
            {"hyper1": found(), "hyper2": found("web1")},
            {"confirm": 1},
            [
                "web1: the repository of hyper2 has no such backup of it, but that of hyper1; mount it on hyper2, or copy it there"
            ],
        ),
        (
            {"hyper1": backups(web1=NEW), "hyper2": backups(web1=OLD)},
            {"hyper1": found(), "hyper2": found("web1")},
            {"confirm": 1},
            [
                (
                    f"web1: the repository of hyper1 has a newer backup of it ({NEW}) than that of hyper2 ({OLD}); mount it on "
                    "hyper2, or copy it there"
                )
            ],
        ),
        (
            BOTH,
            {"hyper1": found("web1", "db1"), "hyper2": found("web1")},
            {"confirm": 2},
            ["web1: it is defined on hyper1 and hyper2; undefine it on one of them first"],
        ),
        (
            BOTH,
            {"hyper1": found("web1", "db1", "web1-then"), "hyper2": found()},
            {"suffix": "-then", "start_order": ["db1", "mail"]},
            [
                "web1: hyper1 has a guest web1-then; choose another suffix",
                "start_order: mail is not in the group; it has db1, web1",
            ],
        ),
        (
            BOTH,
            HERE,
            {"confirm": 3},
            [
                (
                    "confirm: of 2 guests, this replaces the disks of db1 (hyper2), web1 (hyper1); to confirm it, add -e confirm=2; "
                    "or restore other guests beside them: -e suffix=-then"
                )
            ],
        ),
    ],
)
def test_what_cannot_be(made: t.Any, there: t.Any, asked: dict[str, t.Any], told: list[str]) -> None:
    assert restored_group(made, there, {**TAG, **asked})["problems"] == told


def test_another_guest_with_the_name_of_one_that_is_gone() -> None:
    there = {"hyper1": {"domains": [{"name": "web1", "uuid": "9zzz"}]}, "hyper2": found("db1")}
    [problem] = restored_group(BOTH, there, {**TAG, "confirm": 2, "host": "hyper2"})["problems"]
    assert problem == "web1: hyper1 has a guest web1; rename it"


def test_two_guests_of_one_name() -> None:
    made = {"hyper1": {"guests": [{"name": "web1", "uuid": uuid, "last": NEW} for uuid in (WEB, DB)]}}
    [problem] = restored_group(made, {"hyper1": found()}, {**TAG, "host": "hyper1"})["problems"]
    assert (
        problem == f"web1: several guests of the group get this name; restore each alone (-e guest=UUID): {WEB}, {DB}"
    )
