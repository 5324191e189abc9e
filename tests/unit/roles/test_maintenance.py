"""Whom role maintenance moves where, what it brings before, and when a host is rebooted."""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, each, value

FILES = [ROLES / "maintenance/vars/main.yml"]
BASE = {"name": "a.qcow2", "pool": "default", "checksum": "sha256:00", "content": "a-00"}
MOVES = [
    {"name": "web1", "source": "h1", "dest": "h2", "state": "running"},
    {"name": "web2", "source": "h1", "dest": "h3", "state": "shutdown"},
    {"name": "db1", "source": "h3", "dest": "h2", "state": "paused"},
]


def task(path: str, name: str) -> dict[str, t.Any]:
    """A task of the role."""
    tasks = yaml.safe_load((ROLES / f"maintenance/tasks/{path}.yml").read_text())
    return t.cast("dict[str, t.Any]", next(each for each in tasks if each["name"] == name))


@pytest.mark.parametrize(
    ("host", "mine", "images"),
    [
        ("h1", [{"name": "web1", "dest": "h2"}, {"name": "web2", "dest": "h3"}], []),
        ("h2", [], [{**BASE, "origin": "h1"}, {**BASE, "origin": "h3"}]),
        ("h3", [{"name": "db1", "dest": "h2"}], []),
    ],
)
def test_a_host_moves_its_own_guests_and_brings_images_of_those_that_come(
    tmp_path: Path, host: str, mine: list[dict[str, str]], images: list[dict[str, str]]
) -> None:
    told = {
        "h1": {"results": [{"dest": "h2", "images": [BASE]}, {"dest": "h2", "images": [BASE]}, {"dest": "h3"}]},
        "h2": {"skipped": True},
        "h3": {"results": [{"dest": "h2", "images": [BASE]}]},
    }
    inventory = json.dumps({"hyper": {"hosts": {name: {"__maintenance_told": each} for name, each in told.items()}}})
    known = {"maintenance_moves": MOVES, "maintenance_options": {"bandwidth": 50, "assume_images": False}}
    expression = "[__maintenance_mine, __maintenance_images, __maintenance_options]"
    options = {"bandwidth": 50, "assume_images": False}
    found = value(tmp_path, expression, FILES, known, host=host, inventory=inventory)
    assert found == [mine, images, options]
    assert value(tmp_path, "__maintenance_options", FILES, {"maintenance_options": {}}) == {"assume_images": True}


def test_a_host_is_rebooted_when_it_is_wanted(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, bool], bool]] = [
        ("always", {}, True),
        ("never", {}, False),
        ("auto", {"__maintenance_wants_reboot": True}, True),
        ("auto", {"__maintenance_wants_reboot": False}, False),
    ]
    known = [{"maintenance_reboot": reboot, **wants} for reboot, wants, _reboots in cases]
    found = each(tmp_path, f"({task('packages', 'Reboot')['when']})", [], known)
    assert found == [reboots for *_case, reboots in cases]


def test_whether_a_reboot_is_wanted(tmp_path: Path) -> None:
    """dnf ends with 1 when it is, but also when it failed; the role tuning marks a host that has new kernel arguments."""
    cases = [
        ("Reboot is required to fully utilize these updates.", False, False, True),
        ("Reboot should not be necessary.", False, False, False),
        ("Reboot should not be necessary.", True, False, True),
        ("", False, True, False),
    ]
    fails = task("reboot_redhat", "Check whether a reboot is needed (Enterprise Linux)")["failed_when"]
    results = [task(f"reboot_{name}", "Record the result")["ansible.builtin.set_fact"] for name in ("redhat", "debian")]
    known = [
        {
            **{f"wants{number}": result["__maintenance_wants_reboot"] for number, result in enumerate(results)},
            "__maintenance_restarting": {"stdout": stdout},
            "__maintenance_marked_for_reboot": {"stat": {"exists": marked}},
            "__maintenance_newer": {"stdout": "/run/reboot-required" if wants else ""},
        }
        for stdout, marked, _failed, wants in cases
    ]
    found = each(tmp_path, f"[({fails}), wants0, wants1]", [], known)
    assert found == [[failed, wants, wants] for *_known, failed, wants in cases]


@pytest.mark.parametrize(
    ("marked", "arguments", "told"),
    [
        (None, (), False),
        ({"skipped": True}, (), False),
        ({"changed": True}, (), True),
        ({"changed": True}, ("--check",), False),
    ],
)
def test_a_host_that_was_marked_stays_in_maintenance(
    tmp_path: Path, marked: dict[str, bool] | None, arguments: tuple[str, ...], told: bool
) -> None:
    inventory = json.dumps({"hyper": {"hosts": {"h1": {"__maintenance_marked": marked} if marked else {}, "h2": {}}}})
    known = {"maintenance_host": "h1"}
    found = value(
        tmp_path, "__maintenance_is_marked", FILES, known, host="h2", inventory=inventory, arguments=arguments
    )
    assert found is told


def _guest(name: str, state: str = "shutdown", **more: t.Any) -> dict[str, t.Any]:
    other = {"autostart": True, "moving": None, "unfinished": False}
    return {"name": name, "uuid": f"{name}-uuid", "state": state, **other, **more}


GUESTS = [
    _guest("auto"),
    _guest("runs", "running"),
    _guest("manual", autostart=False),
    _guest("stopped", autostart=False),
    _guest("moving", moving="h2"),
    _guest("half", unfinished=True),
]
MARK: dict[str, t.Any] = {"by": "drain", "boot": "b1", "stopped": ["stopped-uuid"], "reason": "fan", "id": "a"}


BEFORE = {**MARK, "boot": "b0"}
# Who ends it, the mark; the guests that start, and whether another began it.
ENDED: dict[str, list[tuple[dict[str, t.Any] | None, list[str], bool]]] = {
    "drain": [
        (MARK, ["stopped"], False),
        (BEFORE, ["auto", "stopped"], False),
        ({**MARK, "boot": ""}, ["stopped"], False),  # of an earlier version
        ({**BEFORE, "by": "upgrade"}, ["auto", "stopped"], False),
        (None, [], False),
    ],
    "upgrade": [
        ({**BEFORE, "by": "upgrade"}, ["auto", "stopped"], False),
        (BEFORE, [], True),
        (None, [], False),
    ],
}


@pytest.mark.parametrize("by", ENDED)
def test_guests_start_that_could_not_when_the_host_booted_and_no_other(tmp_path: Path, by: str) -> None:
    """An upgrade ends no maintenance that somebody else began."""
    hosts = [{"host": {"boot_id": "b1", "guests": GUESTS, "maintenance": mark}} for mark, _names, _foreign in ENDED[by]]
    left = {"content": base64.b64encode(json.dumps(["manual-uuid", "runs-uuid", "gone"]).encode()).decode()}
    known = [{"__maintenance_undrained": undrained} for undrained in hosts]
    interrupted = [{**one, "__maintenance_left": left} for one in known]
    skipped = {"__maintenance_undrained": {"skipped": True}}  # all other hosts
    expression = "[__maintenance_to_start, __maintenance_is_foreign]"
    *found, other = each(tmp_path, expression, FILES, [*known, *interrupted, skipped], ("-e", f"__maintenance_by={by}"))
    assert other == [[], False]
    firsts, seconds = found[: len(known)], found[len(known) :]
    for (_mark, names, foreign), first, [again, _foreign] in zip(ENDED[by], firsts, seconds, strict=True):
        assert first == [[{"name": name, "uuid": f"{name}-uuid", "state": "running"} for name in names], foreign]
        expected = {*names} if foreign else {*names, "manual"}
        assert {one["name"] for one in again} == expected, "those that an interrupted run has not started"


def test_a_guest_is_not_sent_again_where_it_could_not_go(tmp_path: Path) -> None:
    results = {"h1": [{"name": "web1", "dest": "h2", "failed": True}, {"name": "web2", "dest": "h3"}], "h3": []}
    inventory = json.dumps(
        {"hyper": {"hosts": {name: {"__maintenance_results": each} for name, each in results.items()}}}
    )
    known = {"__maintenance_placed": {"moves": [*MOVES, {**MOVES[0], "dest": "h3"}]}}
    found = value(tmp_path, "__maintenance_untried", FILES, known, host="h1", inventory=inventory)
    assert [(each["name"], each["dest"]) for each in found] == [("web2", "h3"), ("db1", "h2"), ("web1", "h3")]


@pytest.mark.parametrize(
    ("host", "change", "again"),
    [
        ("h1", {}, False),
        ("h1", {"maintenance": {"id": "mine"}}, False),  # its own mark
        ("h2", {"maintenance": {"id": "another"}}, True),
        ("h1", {"guests": [*GUESTS, _guest("late", "running")]}, True),
        ("h1", {"guests": [*GUESTS[1:], _guest("auto", "running")]}, True),
        ("h2", {"guests": [*reversed(GUESTS)]}, False),
    ],
)
def test_what_other_runs_change_is_planned_for_again(
    tmp_path: Path, host: str, change: dict[str, t.Any], again: bool
) -> None:
    def picture(**more: t.Any) -> t.Any:
        hosts = {name: {"guests": GUESTS, "maintenance": None} for name in ("h1", "h2")}
        hosts[host].update(more)
        seen = {name: {"virt_host": {"host": each}} for name, each in hosts.items()}
        inventory, known = json.dumps({"hyper": {"hosts": seen}}), {"maintenance_host": "h1"}
        return value(tmp_path, "__maintenance_picture", FILES, known, host="h1", inventory=inventory)

    assert (picture(**change) != picture()) is again
