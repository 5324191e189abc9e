"""Where guests can be moved: placement's reasons on the live state."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Policy
from ansible_collections.corral.virt.roles.console.files.corral_console import targets

POOLS = [{"name": "default", "active": True, "path": "/images", "capacity_bytes": 1, "allocation_bytes": 0}]


def host(name: str, **more: t.Any) -> dict[str, t.Any]:
    found = {"name": name, "state": "connected", "since": 0, "cpus": 4, "memory_mib": 8192 + 512, "pools": POOLS}
    return {**found, "arch": "x86_64", **more}


def guest(name: str, on: str, **more: t.Any) -> dict[str, t.Any]:
    found = {"name": name, "uuid": f"uuid of {name}", "host": on, "state": "running", "vcpus": 1, "maximum_mib": 1024}
    return {**found, "autostart": False, "tags": [], **more}


def needs(card: dict[str, t.Any], *, pool: str = "default", bridge: str = "br0") -> targets.Needs:
    details = {"disks": [{"source": "/images/a.qcow2"}], "interfaces": [{"bridge": bridge}]}
    return targets.guest_needs(card, details, [{"name": pool, "path": "/images"}])


def refusals(
    moved: t.Sequence[targets.Needs], hosts: t.Sequence[dict[str, t.Any]], guests: t.Sequence[dict[str, t.Any]]
) -> dict[str, str | None]:
    found = targets.targets(moved, {each["name"]: each for each in hosts}, guests)
    return {str(each["host"]): each["refusal"] for each in found}


def test_each_host_gives_its_reason() -> None:
    web = guest("web1", "a", tags=["apart-web"])
    hosts = [
        host("a"),
        host("away", state="unreachable"),
        host("drained", maintenance="new fan"),
        host("other", arch="aarch64"),
        host("poor", pools=[]),
        host("roomy"),
        host("small", memory_mib=1000),
        host("taken"),
    ]
    found = refusals([needs(web)], hosts, [web, guest("web2", "taken", tags=["apart-web"])])
    assert found.pop("roomy") is None
    assert {name: (text or "").split(",")[0] for name, text in found.items()} == {
        "a": "web1 is there",
        "away": "cannot be reached",
        "drained": "is in maintenance: new fan",
        "other": "has processors of another kind: aarch64",
        "poor": "has no active storage pool default",
        "small": "488 MiB of memory left",
        "taken": "has a guest of group web",
    }


def test_what_a_guest_is_plugged_into_is_needed() -> None:
    card = guest("web1", "a", tags=["apart-web", "together-app", "front"], vcpus=3)
    details = {
        "disks": [{"source": "/images/a.qcow2"}, {"volume": "fast/web1/x"}, {}],
        "interfaces": [{"bridge": "br0"}, {"network": "lan"}],
    }
    pools = [{"name": "default", "path": "/images"}, {"name": "other", "path": "/other"}]
    source, found = targets.guest_needs(card, details, pools)
    assert (source, found.name, found.uuid, found.vcpus, found.memory_mib) == ("a", "web1", "uuid of web1", 3, 1024)
    assert (set(found.pools), set(found.bridges)) == ({"default", "fast"}, {"br0"})
    assert (set(found.apart), set(found.together)) == ({"web"}, {"app"})


def test_processors_that_are_promised_count_by_the_policy() -> None:
    web, busy = guest("web1", "a", vcpus=2), guest("busy", "b", vcpus=3)
    names = {"b": host("b", cpus=4)}
    assert targets.targets([needs(web)], names, [web, busy], Policy(cpu_overcommit=1.0)) == [
        {"host": "b", "refusal": "1 vcpus left"}
    ]
    assert targets.targets([needs(web)], names, [web, busy], Policy(cpu_overcommit=1.25))[0]["refusal"] is None
    paused = {**busy, "state": "paused"}
    assert targets.targets([needs(web)], names, [web, paused], Policy(cpu_overcommit=1.0))[0]["refusal"]


def test_guests_that_stay_together_move_together() -> None:
    cards = [guest(f"app{number}", "a", tags=["together-app"]) for number in (1, 2)]
    hosts = [host("a"), host("b")]
    assert refusals([needs(cards[0])], hosts, cards)["b"] == "guests of group app stay together on a"
    assert refusals([needs(card) for card in cards], hosts, cards)["b"] is None
    alone = [needs(guest("db1", "a", tags=["together-db"]))]
    assert refusals(alone, hosts, [guest("db1", "a", tags=["together-db"])])["b"] is None


def test_several_guests_must_fit_together() -> None:
    cards = [guest(f"db{number}", "a", maximum_mib=5000) for number in (1, 2)]
    assert refusals([needs(cards[0])], [host("b")], cards) == {"b": None}
    assert refusals([needs(card) for card in cards], [host("b")], cards) == {"b": "db2: 3192 MiB of memory left"}


def test_what_starts_with_its_host_is_counted_and_a_namesake_is_told() -> None:
    web = guest("web1", "a", maximum_mib=5000)
    off = guest("db1", "b", state="shutdown", maximum_mib=5000)
    assert refusals([needs(web)], [host("b")], [web, off]) == {"b": None}
    assert "memory" in str(refusals([needs(web)], [host("b")], [web, {**off, "autostart": True}])["b"])
    other = guest("web1", "b", uuid="another", state="shutdown")
    assert "has another guest named web1" in str(refusals([needs(web)], [host("b")], [web, other])["b"])
