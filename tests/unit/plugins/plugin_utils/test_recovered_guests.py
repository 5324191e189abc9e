"""Whether a hypervisor counts as dead, and which of its guests others run."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.filter.recovered_guests import FilterModule, recovered_guests

WEB, DB = "1aaa", "2bbb"
DEAD, ALIVE = "dddd", "aaaa"
NEEDS = {
    "vcpus": 2,
    "memory_mib": 512,
    "interfaces": [{"bridge": "br0"}],
    "tags": ["apart-web", "together-shop", "x"],
    "machine": "q35",
    "priority": 0,
    "apart": ["db"],
    "colocate": ["cache"],
    "prefer": ["hyper1", "elsewhere"],
}


def line(name: str = "web1", uuid: str = WEB, **more: t.Any) -> dict[str, t.Any]:
    """What a host that lives tells of a guest of hyper2."""
    owner = {"host": "hyper2", "uuid": DEAD, "since": "2026", "why": "saved"}
    told = {"guest": name, "uuid": uuid, "directory": "/srv", "owner": owner, "saved": "2026", "needs": NEEDS}
    return {**told, "host_uuid": ALIVE, "defined": False, "active": False, **more}


def shown(*lines: dict[str, t.Any]) -> dict[str, t.Any]:
    return {"rc": 0, "stdout": "\n".join(map(json.dumps, lines))}


def told(
    *lines: dict[str, t.Any],
    also: t.Mapping[str, t.Any] | None = None,
    reached: t.Mapping[str, t.Any] | None = None,
    agent: t.Mapping[str, t.Any] | None = None,
    **arguments: t.Any,
) -> dict[str, t.Any]:
    given = {"host": "hyper2", "confirm_dead": "hyper2", **arguments}
    return recovered_guests({"hyper1": shown(*lines), **(also or {})}, reached or {}, given, agent or {})


def test_guests_of_the_dead_host_are_claimed_from_it_the_most_important_first() -> None:
    db = line("db1", DB, needs={**NEEDS, "priority": 9})
    found = told(line(), db, line("x", "3", owner={"host": "hyper3", "uuid": "c", "since": "", "why": "saved"}))
    assert not found["problems"] and not found["stays"]
    assert [(one["name"], one["of"], one["host"], one["defined"]) for one in found["guests"]] == [
        ("db1", DEAD, "", False),
        ("web1", DEAD, "", False),
    ]
    assert found["guests"][1]["place"] == {
        "name": "web1",
        "vcpus": 2,
        "memory": "512MiB",
        "interfaces": [{"name": "eth0", "bridge": "br0"}],
        "disks": [],
        "apart": ["db", "web"],
        "together": ["cache", "shop"],
        "prefer": ["hyper1"],
        "machine": "q35",
    }
    assert told(line(), db, guests=["web1", "mail1"])["stays"] == ["mail1: hyper2 owns no such guest"]
    assert "recovered_guests" in FilterModule().filters()


def test_a_host_that_does_not_see_the_disks_gets_no_guest() -> None:
    found = told(line(), also={"hyper3": shown(), "hyper4": {"rc": 127, "msg": "no such file"}})
    assert found["refused"] == [{"name": "web1", "host": "hyper3", "why": "it does not see /srv"}]
    assert found["stays"] == ["hyper4 cannot tell what is kept: no such file"] and not found["problems"]


@pytest.mark.parametrize("result", [{"rc": 137}, {"rc": 1, "stderr": "libvirt does not answer"}, {"msg": "lost"}])
def test_a_host_that_keeps_definitions_and_does_not_answer_may_run_the_guest(result: dict[str, t.Any]) -> None:
    [problem] = told(line(), also={"hyper3": result})["problems"]
    assert "hyper3 cannot tell what runs there" in problem and "-e gone=hyper3 -e confirm=hyper3" in problem


@pytest.mark.parametrize(
    ("arguments", "reached", "fence", "why"),
    [
        ({"confirm_dead": None}, {}, {}, "nothing proves that hyper2 is dead"),
        ({"confirm_dead": "hyper1"}, {}, {}, "confirm_dead: it is hyper1, and the host is hyper2"),
        ({}, {"hyper1": [{"item": 22, "state": "started"}]}, {}, r"hyper2 answers \(hyper1 reaches its port 22\)"),
        (
            {"confirm_dead": None, "fence": True},
            {"hyper1": [{"item": 22, "state": "started"}]},
            {"agent": "x"},
            "hyper2 answers",
        ),
        ({"fence": True}, {}, {}, "fence: hyper2 has no fence agent; set its variable virt_fence"),
        ({"fence": True}, {}, {"agent": "/usr/sbin/fence_dummy"}, "fence_dummy powers nothing off"),
        ({}, {"hyper1": [{"item": 22, "failed": False, "msg": "Timeout when waiting for 192.0.2.2:22"}]}, {}, ""),
        ({"confirm_dead": None, "fence": True}, {}, {"agent": "x"}, ""),
        ({"fence": True}, {"hyper1": [{"item": 22, "state": "started"}]}, {"agent": "x"}, ""),
    ],
)
def test_a_host_is_dead_only_with_a_proof(
    arguments: dict[str, t.Any], reached: dict[str, t.Any], fence: dict[str, t.Any], why: str
) -> None:
    problems = told(line(), reached=reached, agent=fence, **arguments)["problems"]
    assert len(problems) == bool(why) and all(re.search(why, one) for one in problems), problems


def test_a_guest_that_an_interrupted_run_claimed_goes_on_where_it_was_claimed() -> None:
    owner = {"host": "hyper1", "uuid": ALIVE, "since": "2026", "why": "recovering from hyper2"}
    [one] = told(line(owner=owner, defined=True))["guests"]
    assert (one["host"], one["defined"], one["place"]["host"]) == ("hyper1", True, "hyper1")
    assert not told(line(owner={**owner, "why": "recovered from hyper2"}))["guests"], "it is only off"
    other = told(line(owner={**owner, "host": "hyper3", "uuid": "c"}))
    assert (
        not other["guests"] and "web1: an interrupted run has chosen hyper3, which was not asked" in other["stays"][0]
    )
    for guests in ([], ["web1"]):
        ready = told(line(owner=owner, defined=True, active=True), guests=guests)
        assert not ready["guests"] and not ready["stays"], "it had started the guest, too"


NOBODY = {"host": "", "uuid": "", "since": "2026", "why": "migrated"}


@pytest.mark.parametrize(
    ("owner", "defined", "recovered"),
    [
        (NOBODY, False, ["nobody"]),
        (NOBODY, True, []),
        ({**NOBODY, "why": "released on hyper2"}, False, []),
        ({**NOBODY, "why": "no longer defined on hyper2"}, False, []),
    ],
)
def test_a_guest_that_had_just_migrated_to_the_dead_host_is_claimed_of_nobody(
    owner: dict[str, str], defined: bool, recovered: list[str]
) -> None:
    """Its new host had no time to become its owner; nobody who lives has it."""
    found = told(line(owner=owner), also={"hyper3": shown(line(owner=owner, defined=defined, host_uuid="c"))})
    assert [one["of"] for one in found["guests"]] == recovered


def test_a_guest_may_run_on_a_host_that_is_not_asked() -> None:
    """It may have migrated there a moment before its host died; and one with a backup may always have been there."""
    backups = {"hyper1": {"guests": [backed_up("db1", "1", 60)]}}

    def problems(*lines: dict[str, t.Any], **found: t.Any) -> list[str]:
        given = {"host": "hyper2", "confirm_dead": "hyper2", "from_backup": found.pop("asked", []), "gone": ["hyper9"]}
        return t.cast("list[str]", recovered_guests({"hyper1": shown(*lines)}, {}, given, {}, found)["problems"])

    [problem] = problems(line(), silent=["hyper3"])
    assert problem.startswith("hyper3 does not answer, and may run guests of hyper2")
    assert "-e gone=hyper9,hyper3 -e confirm=hyper9,hyper3" in problem
    assert problems(silent=["hyper3"]) == []
    assert problems(silent=["hyper3"], backups=backups) == [problem], "told before it is asked for"
    assert problems(line(), silent=["hyper3"], asked=["db1"], backups=backups) == [problem], "told once"
    [problem] = problems(line(), silent=["hyper3", "hyper4"])
    assert problem.startswith("hyper3 and hyper4 do not answer") and "=hyper9,hyper3,hyper4 " in problem
    for hidden in (problems(hidden=["hyper3"], backups=backups), problems(hidden=["hyper3"])):
        assert hidden == ["--limit excludes hyper3, which may run guests of hyper2; omit --limit"]
    [problem] = problems(known=False)
    assert "nothing is known of hyper2" in problem and problems(line(), known=False) == []


def test_machines_with_one_uuid_are_told() -> None:
    """libvirt's hook lets the guest of one start on the other."""
    [problem] = told(line(host_uuid=DEAD))["problems"]
    assert problem.startswith("hyper1 and hyper2 are one machine, or clones") and "host_uuid" in problem
    [problem] = told(line(), also={"hyper3": shown(line())})["problems"]
    assert problem.startswith("hyper1 and hyper3 are one machine")


def test_a_guest_that_is_kept_twice_is_left_to_a_person() -> None:
    found = told(line(directory="/b", saved="2026-2"), line(directory="/a b", saved="2026-1"))
    [why] = found["stays"]
    assert not found["guests"] and why == (
        "web1: it is kept in /a b, saved 2026-1 and /b, saved 2026-2, as its disk has moved; if /a b has no disk of it any more: "
        f"rm -r '/a b/.corral/guests/{WEB}'"
    )
    other = {"host": "hyper1", "uuid": ALIVE, "since": "", "why": "saved"}
    assert not told(line(directory="/b", owner=other), line(directory="/a", owner=other))["stays"], (
        "not of the dead one"
    )


def test_old_definitions_and_namesakes_do_not_choose_the_host() -> None:
    def guest(uuid: str, name: str, state: str = "shutdown") -> dict[str, str]:
        return {"uuid": uuid, "name": name, "state": state}

    def found(*of_hyper4: dict[str, str]) -> dict[str, t.Any]:
        there = {"hyper1": [guest(WEB, "web1")], "hyper3": [guest("c", "web1"), guest(DB, "db1")], "hyper4": of_hyper4}
        hosts = {host: {"host": {"uuid": host, "guests": [*guests]}} for host, guests in there.items()}
        shows = {
            "hyper1": shown(line(defined=True)),
            "hyper3": shown(line(host_uuid="c")),
            "hyper4": {"rc": 127, "msg": "no"},
        }
        given = {"host": "hyper2", "confirm_dead": "hyper2"}
        return recovered_guests(shows, {}, given, {}, {"hosts": {**hosts, "hyper5": {"msg": "failed"}}})

    told = found()
    assert [one["name"] for one in told["guests"]] == ["web1"] and not told["problems"]
    assert {host: one.get("host", {}).get("guests") for host, one in told["hosts"].items()} == {
        "hyper1": [],
        "hyper3": [guest("c", "c"), guest(DB, "db1")],
        "hyper4": [],
        "hyper5": None,
    }
    [refused] = told["refused"]
    assert refused["host"] == "hyper3" and "another guest of this name (UUID c); virsh domrename it" in refused["why"]
    running = found(guest(WEB, "web1", "paused"))
    assert (
        not running["guests"]
        and "web1: it runs on hyper4, which does not own it; on hyper4, set" in running["stays"][-1]
    )


def test_what_modules_return_may_not_be_copied() -> None:
    """It is of a kind that ansible-core makes, and does not let others make."""

    class Lazy(dict[str, t.Any]):
        def __init__(self, *_values: object) -> None:
            raise TypeError("Direct construction of lazy containers is not supported.")

    lazy = Lazy.__new__(Lazy)
    lazy.update({"host": {"uuid": ALIVE, "guests": []}})
    given = {"host": "hyper2", "confirm_dead": "hyper2"}
    found = recovered_guests({"hyper1": shown(line())}, {}, given, {}, {"hosts": {"hyper1": lazy}})
    assert [one["name"] for one in found["guests"]] == ["web1"] and found["hosts"]["hyper1"] == lazy


def test_a_guest_that_runs_or_that_cannot_be_read_is_not_started() -> None:
    found = told(line(active=True), {"uuid": DB, "directory": "/srv", "problem": "owner is unreadable"})
    assert not found["guests"] and "web1: it runs on hyper1, which does not own it" in found["stays"][0]
    assert found["stays"][1] == f"{DB}: owner is unreadable"


def test_without_any_host_that_keeps_definitions_nothing_is_done() -> None:
    found = recovered_guests({"hyper1": {"rc": 2, "msg": "none"}}, {}, {"host": "h", "confirm_dead": "h"}, {})
    assert "set hypervisor_keeps_definitions: true" in found["problems"][0]


def test_a_site_that_keeps_no_definitions_can_restore_from_backups() -> None:
    backups = {"hyper1": {"guests": [backed_up("db1", "1", 60)]}}
    found = {"backups": backups, "hosts": {"hyper1": {"host": {"uuid": ALIVE, "guests": []}}}}
    given = {"host": "hyper2", "confirm_dead": "hyper2", "from_backup": ["db1"]}
    for told_by, problems in (({"rc": 127, "msg": "no such file"}, 0), ({"rc": 137, "stderr": "killed"}, 1)):
        recovery = recovered_guests({"hyper1": told_by}, {}, given, {}, found)
        assert len(recovery["problems"]) == problems and not recovery["stays"]
        assert [one["name"] for one in recovery["restored"]] == ["db1"]


def backed_up(name: str, uuid: str, age_s: int, host: str = DEAD, **more: t.Any) -> dict[str, t.Any]:
    """A guest in a repository, with two points."""
    last, before = (
        {"id": f"P{10**9 - age}", "age_s": age, "restorable": True, "proof": None} for age in (age_s, age_s + 60)
    )
    needs = {"vcpus": 2, "memory_mib": 512, "interfaces": [{"bridge": "br0"}], "tags": ["apart-web"]}
    told = {"name": name, "uuid": uuid, "host": host, "age_s": age_s, "last": last["id"], "points": [before, last]}
    return {**told, "needs": needs, **more}


def restored(backups: dict[str, t.Any], *asked: str, lines: t.Sequence[dict[str, t.Any]] = (), **more: t.Any) -> t.Any:
    """What is told of guests that only hyper2 had, beside two living hosts, one of which has a guest."""
    here = {"host": {"uuid": ALIVE, "guests": [{"uuid": "f", "name": "mail1"}]}}
    hosts = {"hyper1": here, "hyper3": {"host": {"uuid": "c", "guests": []}}}
    given = {"host": "hyper2", "confirm_dead": "hyper2", "from_backup": asked}
    found = {"backups": backups, "hosts": hosts, "silent": [], **more}
    return recovered_guests({"hyper1": shown(*lines), "hyper3": shown()}, {}, given, {}, found)


def test_guests_that_only_the_dead_host_had_are_told_with_the_age_of_their_backup() -> None:
    newer, older = backed_up("db1", "1", 7200), backed_up("db1", "1", 86400 * 3)
    proven = backed_up("web2", "2", 300)
    proven["points"][1]["proof"] = {"ok": True}
    others = [
        backed_up("purged", "3", 5, host=ALIVE),  # by a host that lives, and has it no more
        backed_up("mail1", "f", 5),  # it is there
        backed_up("web1", WEB, 5),  # it is on shared storage
        backed_up("db1", "4", 86400 * 9),  # an earlier guest of that name
        backed_up("other", "5", 5, host="eeee"),  # of a host that is gone for long
    ]
    found = restored(
        {"hyper1": {"guests": [newer, proven, *others]}, "hyper3": {"guests": [older]}, "x": {}}, lines=[line()]
    )
    assert found["lost"] == [
        "db1: only hyper2 had it; its backup P999992800 is 2 hours old, not proven, in the repository of hyper1",
        "web2: only hyper2 had it; its backup P999999700 is 5 minutes old, proven, in the repository of hyper1",
        "to restore those that still exist, add -e from_backup=db1,web2",
    ]
    assert not found["restored"] and not found["problems"] and not found["stays"], "nothing is restored by itself"


def test_only_guests_that_are_named_are_restored_where_their_newest_backup_is() -> None:
    backups = {"hyper1": {"guests": [backed_up("db1", "1", 60)]}, "hyper3": {"guests": [backed_up("web2", "2", 60)]}}
    found = restored(backups, "db1")
    [one] = found["restored"]
    assert (one["name"], one["uuid"], one["point"], one["hosts"]) == ("db1", "1", "P999999940", ["hyper1"])
    assert one["place"]["memory"] == "512MiB" and one["place"]["apart"] == ["web"]
    assert found["refused"] == [{"name": "db1", "host": "hyper3", "why": "it has no backup P999999940"}]
    assert found["lost"][-1] == "to restore those that still exist, add -e from_backup=web2"


def test_a_damaged_newest_backup_gives_way_to_the_one_before() -> None:
    damaged = backed_up("db1", "1", 60)
    damaged["points"][1]["restorable"] = False
    assert restored({"hyper1": {"guests": [damaged]}}, "db1")["restored"][0]["point"] == "P999999880"
    for more, why in (
        ({"points": []}, "missing or damaged"),
        ({"needs": None}, "definition of its last one cannot be read"),
    ):
        found = restored({"hyper1": {"guests": [{**damaged, **more}]}}, "db1")
        assert not found["restored"] and [why in one for one in found["problems"]] == [True], found["problems"]


@pytest.mark.parametrize(
    ("backups", "why"),
    [
        ({"hyper1": {"skipped": True}}, "set the repository"),
        ({"hyper1": {"failed": True, "msg": "cannot read backups: /b is none"}}, "cannot read backups: /b is none"),
        ({"hyper1": {"guests": []}}, "db1 is not among the guests that only it had and that have a backup: none"),
    ],
)
def test_nothing_is_restored_if_a_guest_has_no_backup(backups: dict[str, t.Any], why: str) -> None:
    assert any(why in one for one in restored(backups, "db1")["problems"])
    assert not restored(backups)["problems"], "none is asked for"


def test_a_guest_that_is_there_already_is_started_not_restored() -> None:
    [problem] = restored({"hyper1": {"guests": []}}, "mail1")["problems"]
    assert problem == "from_backup: mail1 is on hyper1; start it: ansible-playbook corral.virt.start -e guest=mail1"
