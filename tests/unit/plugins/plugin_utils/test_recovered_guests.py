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
    assert "hyper3 cannot tell what runs there" in problem and "--limit '!hyper3'" in problem


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
    assert not told(line(owner={**owner, "uuid": "c"}))["guests"], "on a host that does not answer"


def test_a_guest_that_runs_or_that_cannot_be_read_is_not_started() -> None:
    found = told(line(active=True), {"uuid": DB, "directory": "/srv", "problem": "owner is unreadable"})
    assert not found["guests"] and "web1: it runs on hyper1, which does not own it" in found["stays"][0]
    assert found["stays"][1] == f"{DB}: owner is unreadable"


def test_without_any_host_that_keeps_definitions_nothing_is_done() -> None:
    found = recovered_guests({"hyper1": {"rc": 2, "msg": "none"}}, {}, {"host": "h", "confirm_dead": "h"}, {})
    assert "set hypervisor_keeps_definitions: true" in found["problems"][0]
