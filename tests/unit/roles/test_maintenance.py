"""Whom role maintenance moves where, what it brings before, and when a host is rebooted."""

from __future__ import annotations

import base64
import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, each, value, values

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


# A case is a host, and of the others nothing is asked.
ALONE = {
    "maintenance_host": "{{ inventory_hostname }}",
    "maintenance_group": "all",
    "maintenance_gone": "{{ groups.all }}",
}


def notes_of(content: object) -> dict[str, str]:
    """What `slurp` returns of the notes beside the mark."""
    return {"content": base64.b64encode(json.dumps(content).encode()).decode()}


@pytest.mark.parametrize("by", ENDED)
def test_guests_start_that_could_not_when_the_host_booted_and_no_other(tmp_path: Path, by: str) -> None:
    """An upgrade ends no maintenance that somebody else began."""
    hosts = [{"host": {"boot_id": "b1", "guests": GUESTS, "maintenance": mark}} for mark, _names, _foreign in ENDED[by]]
    left = notes_of(["manual-uuid", "runs-uuid", "gone"])
    known = [{**ALONE, "__maintenance_undrained": undrained} for undrained in hosts]
    interrupted = [{**one, "__maintenance_left": left} for one in known]
    another = {**known[0], "maintenance_host": "case1"}
    expression = "[__maintenance_to_start, __maintenance_is_foreign]"
    *found, other = each(tmp_path, expression, FILES, [*known, *interrupted, another], ("-e", f"__maintenance_by={by}"))
    assert other == [[], ENDED[by][1][2]]
    firsts, seconds = found[: len(known)], found[len(known) :]
    for (_mark, names, foreign), first, [again, _foreign] in zip(ENDED[by], firsts, seconds, strict=True):
        assert first == [[{"name": name, "uuid": f"{name}-uuid", "state": "running"} for name in names], foreign]
        expected = {*names} if foreign else {*names, "manual"}
        assert {one["name"] for one in again} == expected, "those that an interrupted run has not started"


def test_a_guest_that_cannot_start_when_a_maintenance_ends_is_not_forgotten(tmp_path: Path) -> None:
    """It is on its way, or not complete, at that moment: a later run starts it, but not at the end of a later maintenance."""
    stopped = ["stopped-uuid", "moving-uuid", "half-uuid", "gone-uuid", "runs-uuid"]
    undrained = {"host": {"boot_id": "b1", "guests": GUESTS, "maintenance": {**MARK, "stopped": stopped}}}
    off = ["moving-uuid", "half-uuid"]
    left, complete = notes_of({"off": off}), [{**one, "moving": None, "unfinished": False} for one in GUESTS]
    ended = {"host": {"boot_id": "b1", "guests": GUESTS, "maintenance": None}}
    finished = {"host": {"boot_id": "b1", "guests": complete, "maintenance": None}}
    later = {"host": {"boot_id": "b1", "guests": complete, "maintenance": MARK}}
    notes = [
        task("undrain", name)["ansible.builtin.copy"]["content"].removeprefix("{{").removesuffix("}}")
        for name in ("Note the guests that will start", "Note the guests that stay off")
    ]
    cases: list[dict[str, t.Any]] = [
        {**ALONE, "__maintenance_undrained": undrained},
        *({**ALONE, "__maintenance_undrained": one, "__maintenance_left": left} for one in (ended, finished, later)),
    ]
    expression = f"[{', '.join(notes)}, __maintenance_forgotten]"
    found = each(tmp_path, expression, FILES, cases, ("-e", "__maintenance_by=drain"))
    assert [[json.loads(note) if isinstance(note, str) else note for note in one] for one in found] == [
        [["stopped-uuid", *off], {"off": off}, []],
        [off, {"off": off}, []],
        [off, {"off": []}, []],
        [["stopped-uuid"], {"off": []}, ["moving", "half"]],
    ]
    assert "__maintenance_left_off | length == 0" in task("undrain", "Forget them")["when"]


@pytest.mark.parametrize(("by", "kept"), [("upgrade", ["stopped-uuid", "manual-uuid"]), ("drain", [])])
def test_an_upgrade_that_runs_again_leaves_those_where_they_are_that_it_has_stopped(
    tmp_path: Path, by: str, kept: list[str]
) -> None:
    """Moved while they are off, they would stay off, and nobody would start them."""
    seen = {"host": {"boot_id": "b1", "uuid": "1", "guests": GUESTS, "maintenance": MARK}}
    left = notes_of(["manual-uuid"])
    inventory = json.dumps({"hyper": {"hosts": {"h1": {"virt_host": seen, "__maintenance_left": left}, "h2": {}}}})
    known = {"maintenance_host": "h1", "maintenance_group": "hyper"}
    arguments = ("-e", f"__maintenance_by={by}")
    assert (
        value(tmp_path, "__maintenance_kept", FILES, known, host="h2", inventory=inventory, arguments=arguments) == kept
    )
    place = task("place", "Choose where its guests go")
    assert place["corral.virt.virt_place"]["stay"] == "{{ __maintenance_kept }}"


def test_an_upgrade_starts_none_that_stayed_off_and_a_check_promises_none(tmp_path: Path) -> None:
    """In check mode there is no mark that would tell that a maintenance has begun since."""
    undrained = {"host": {"boot_id": "b1", "guests": GUESTS, "maintenance": None}}
    case = {**ALONE, "__maintenance_undrained": undrained, "__maintenance_left": notes_of({"off": ["manual-uuid"]})}
    for by, wanted in (("upgrade", []), ("drain", ["manual-uuid"])):
        assert each(tmp_path, "__maintenance_wanted", FILES, [case], ("-e", f"__maintenance_by={by}")) == [wanted]


def test_a_guest_that_runs_elsewhere_does_not_start_when_a_maintenance_ends(tmp_path: Path) -> None:
    """Somebody has restored it there while its host was dead. Nobody knows that of a host which does not answer."""
    undrained = {"host": {"boot_id": "b1", "guests": GUESTS[:1], "maintenance": BEFORE}}
    restored = {"domains": [{"name": "auto", "uuid": "auto-uuid", "state": "running", "protected": False}]}
    expression = "[__maintenance_to_start | map(attribute='name'), __maintenance_left_off | map(attribute='why')]"
    stopped = {"results": [{"name": "auto"}]}

    def found(other: dict[str, t.Any], **more: t.Any) -> t.Any:
        hosts = {"h1": {"__maintenance_undrained": undrained, **more}, "h2": {"__maintenance_elsewhere": other}}
        known = {"maintenance_host": "h1", "maintenance_group": "hyper", "maintenance_gone": [], **more}
        inventory = json.dumps({"hyper": {"hosts": hosts}})
        arguments = ("-e", "__maintenance_by=drain")
        return value(tmp_path, expression, FILES, known, host="h1", inventory=inventory, arguments=arguments)

    assert found({"domains": []}) == [["auto"], []]
    (names, [why]) = found(restored)
    assert names == [] and "it is running on h2" in why
    (names, [why]) = found({"unreachable": True})
    assert names == [] and "-e gone=h2 -e confirm=h2" in why
    assert found({"unreachable": True}, maintenance_gone=["h2"]) == [["auto"], []]
    assert found({"unreachable": True}, __maintenance_shut_down=stopped) == [["auto"], []], "it ran here just now"


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


@pytest.mark.parametrize(
    ("mark", "guests", "left", "is_asked"),
    [
        ({**BEFORE, "stopped": []}, ["auto"], None, True),
        ({**BEFORE, "stopped": []}, ["runs", "manual", "moving", "half"], None, False),
        ({**MARK, "stopped": []}, ["auto"], None, False),
        (MARK, ["stopped"], None, True),
        (MARK, ["auto"], None, True),  # one that was stopped is on another host by now
        ({**MARK, "stopped": []}, ["manual"], ["manual-uuid"], True),
        ({**MARK, "stopped": []}, ["manual"], {"off": ["manual-uuid"]}, False),
        (None, ["manual"], {"off": ["manual-uuid"]}, True),
        (None, ["auto", "manual"], None, False),
    ],
)
def test_other_hosts_are_connected_to_only_if_a_guest_is_to_start(
    tmp_path: Path, mark: dict[str, t.Any] | None, guests: list[str], left: object, is_asked: bool
) -> None:
    """A dead one is no matter of a maintenance after which nothing starts."""
    there = [guest for guest in GUESTS if guest["name"] in guests]
    own: dict[str, t.Any] = {
        "__maintenance_undrained": {"host": {"boot_id": "b1", "guests": there, "maintenance": mark}}
    }
    own.update({} if left is None else {"__maintenance_left": notes_of(left)})
    known = {"maintenance_host": "h1", "maintenance_group": "hyper", "maintenance_gone": []}
    inventory = json.dumps({"hyper": {"hosts": {"h1": own, "h2": {}}}})
    look, ask = task("undrain", "Look at the host"), task("undrain", "Ask the other hypervisors which guests run there")
    expression = f"[{look['when']}, {ask['when']}]"
    found = values(tmp_path, expression, FILES, known, inventory, ("-e", "__maintenance_by=drain"))
    assert found == {"h1": [True, False], "h2": [False, is_asked]}
    assert ask["ignore_unreachable"] is True and ask["failed_when"] is False, "the end tells what was not done"


def test_an_undrain_that_may_not_have_started_all_fails_at_its_end(tmp_path: Path) -> None:
    """With `--limit`, too, which is named; a guest that runs elsewhere is no failure."""
    undrained = {"host": {"boot_id": "b1", "guests": GUESTS[:1], "maintenance": BEFORE}}
    *_before, last = yaml.safe_load((ROLES / "maintenance/tasks/undrain.yml").read_text())
    check = last["ansible.builtin.assert"]
    assert check["fail_msg"] == "{{ __maintenance_off_text }}", "what can be done is done"
    runs = {"domains": [{"name": "auto", "uuid": "auto-uuid", "state": "running"}]}

    def found(other: dict[str, t.Any], *arguments: str) -> tuple[str, bool]:
        hosts = {"h1": {"__maintenance_undrained": undrained}, "h2": {"__maintenance_elsewhere": other}}
        known = {"maintenance_host": "h1", "maintenance_group": "hyper", "maintenance_gone": []}
        inventory = json.dumps({"hyper": {"hosts": hosts}})
        expression = f"[__maintenance_off_text | join(' | '), not ({check['that']})]"
        arguments = ("-e", "__maintenance_by=drain", *arguments)
        told, failed = value(tmp_path, expression, FILES, known, host="h1", inventory=inventory, arguments=arguments)
        return told, failed

    told, failed = found({"unreachable": True})
    assert failed and "-e gone=h2" in told
    told, failed = found({}, "--limit", "h1")
    assert failed and "omit --limit, which excludes h2" in told and "gone=" not in told
    told, failed = found(runs)
    assert not failed and "it is running on h2" in told


def test_a_host_that_limit_excludes_is_refused(tmp_path: Path) -> None:
    """Otherwise a play ended without a word."""
    (check,) = yaml.safe_load((ROLES / "maintenance/tasks/check_host.yml").read_text())
    asked = check["ansible.builtin.assert"]
    known = {**check["vars"], "maintenance_group": "hyper", "told": asked["fail_msg"]}
    inventory = json.dumps({"hyper": {"hosts": {"h1": {}, "h2": {}}}})
    expression = f"[[{', '.join(f'({one})' for one in asked['that'])}], told]"
    for host, holds, text in [
        ("h1", True, ""),
        ("h2", False, "--limit excludes h2; omit --limit"),
        ("h3", False, "Specify"),
    ]:
        known["maintenance_host"] = host
        found, told = value(
            tmp_path, expression, [], known, host="h1", inventory=inventory, arguments=["--limit", "h1"]
        )
        assert all(found) is holds and (holds or told.startswith(text)), host
