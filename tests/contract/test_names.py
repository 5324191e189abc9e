"""One guest of a name: the hosts of a play ask each other before one of them makes it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.contract.play import Play, deep
from ansible_collections.corral.virt.tests.contract.test_inventory import guest
from ansible_collections.corral.virt.tests.golden.case import GOLDEN

pytestmark = pytest.mark.slow

HOST = (GOLDEN / "host.xml").read_text().replace("web1-", "other-")


class Hypervisors(Play):
    """Hosts h1, h2, ... of the group hyper, each with a libvirt of its own."""

    def have(self, *guests: t.Sequence[str] | None, **variables: t.Any) -> None:
        """The names of the guests of each host; None for one whose libvirt does not answer."""
        hosts = {}
        for number, names in enumerate(guests, 1):
            path = self.place / f"h{number}.xml"
            path.unlink(missing_ok=True)
            if names is not None:
                there = "".join(guest(place, name, "shutdown") for place, name in enumerate(names))
                path.write_text(HOST.replace("</node>", f"{there}</node>"))
            hosts[f"h{number}"] = {"libvirt": f"test://{path}"}
        self.hosts(hyper=hosts, **variables)

    def make(
        self,
        *,
        loop: t.Any = None,
        when: t.Any = True,
        options: t.Sequence[str] = (),
        many: bool = False,
        **arguments: t.Any,
    ) -> t.Any:
        """What each host says: `changed`, `failed` or nothing, and its message."""
        name = "corral.virt.virt_domains" if many else "corral.virt.virt_domain"
        task = {name: {"uri": "{{ libvirt }}", **arguments}, "register": "told", "ignore_errors": True, "when": when}
        self.told = self.run({**task, **({"loop": loop} if loop else {})}, options=options)
        return {host: _short(result) for host, result in self.told.items()}


def _short(told: dict[str, t.Any]) -> tuple[str, str]:
    state = (
        "failed"
        if told.get("failed")
        else "changed"
        if told.get("changed")
        else "skipped"
        if told.get("skipped")
        else ""
    )
    return state, str(told.get("msg", ""))


@pytest.fixture
def hypervisors(tmp_path: Path) -> Hypervisors:
    return Hypervisors(tmp_path)


WEB1: dict[str, t.Any] = {"name": "web1", "vcpus": 1, "memory": 64}


@pytest.mark.parametrize("options", [[], ["--check"], deep(["--forks", "1"])], ids=["run", "check", "one at a time"])
def test_no_second_guest_of_a_name_is_made(hypervisors: Hypervisors, options: list[str]) -> None:
    hypervisors.have(["web1"], ["db1"], [])
    result = hypervisors.make(**WEB1, title="new", options=options)
    assert result["h1"][0] == "changed" and result["h2"] == result["h3"] == ("", "web1 is on h1")


def test_nobody_makes_what_several_would_make(hypervisors: Hypervisors) -> None:
    hypervisors.have([], ["db1"])
    result = hypervisors.make(**WEB1)
    assert [state for state, _msg in result.values()] == ["failed", "failed"]
    assert (
        "none of h1 and h2 has it, and 2 hosts would create it; select a host with --limit, or use playbook "
        "corral.virt.create" in result["h1"][1]
    )


def test_a_host_that_does_not_answer_may_have_it(hypervisors: Hypervisors) -> None:
    hypervisors.have([], None, ["old"])
    result = hypervisors.make(name="agent-{{ inventory_hostname }}", vcpus=1, memory=64)
    assert [state for state, _msg in result.values()] == ["failed", "failed", "failed"]
    assert (
        "cannot create agent-h1 on h1: h2 could not be queried and may have it (h2: cannot connect to test://"
        in result["h1"][1]
    )
    assert hypervisors.make(name="old", title="new")["h3"][0] == "changed"


@pytest.mark.parametrize("options", [[], deep(["--forks", "1"])])
def test_names_that_differ_are_made_everywhere(hypervisors: Hypervisors, options: list[str]) -> None:
    hypervisors.have([], ["db1"], [])
    result = hypervisors.make(name="agent-{{ inventory_hostname }}", vcpus=1, memory=64, options=options)
    assert [state for state, _msg in result.values()] == ["changed"] * 3


def test_an_option_that_a_task_omits_says_nothing(hypervisors: Hypervisors) -> None:
    hypervisors.have([], ["db1"])
    result = hypervisors.make(
        name="agent-{{ inventory_hostname }}", vcpus=1, memory=64, state="{{ nothing | default(omit) }}"
    )
    assert [state for state, _msg in result.values()] == ["changed"] * 2
    result = hypervisors.make(**WEB1, state="{{ nothing | default(omit) }}")
    assert "none of h1 and h2 has it, and 2 hosts would create it" in result["h1"][1]


def test_the_only_host_of_a_task_makes_it(hypervisors: Hypervisors) -> None:
    hypervisors.have([], ["db1"])
    assert hypervisors.make(**WEB1, options=["--limit", "h2,localhost"])["h2"][0] == "changed"
    result = hypervisors.make(**WEB1, when="inventory_hostname == 'h2'")
    assert (result["h1"][0], result["h2"][0]) == ("skipped", "changed")
    assert hypervisors.make(name="{{ item.name }}", vcpus=1, memory=64, loop=[{"name": "a", "on": "h1"}, {"name": "b", "on": "h2"}],
                            when="item.on == inventory_hostname")["h1"][0] == "changed"  # fmt: skip


def test_what_the_inventory_shows_elsewhere_is_told_to_a_single_host(hypervisors: Hypervisors) -> None:
    hypervisors.have(["old"], ["web1"], guests={"web1": {"virt_hypervisor": "h2"}, "old": {"virt_hypervisor": "h2"}})
    state, msg = hypervisors.make(**WEB1, options=["--limit", "h1,localhost"])["h1"]
    assert (state, msg.partition("; ")[0]) == ("failed", "cannot create web1 on h1: the inventory shows it on h2")
    assert hypervisors.make(name="old", title="new", options=["--limit", "h1,localhost"])["h1"][0] == "changed"


def test_nobody_chooses_between_two_of_a_name(hypervisors: Hypervisors) -> None:
    hypervisors.have(["web1"], ["web1"], [])
    result = hypervisors.make(name="web1", state="running")
    assert result["h1"] == result["h2"] and result["h1"][0] == "failed"
    assert result["h1"][1].startswith("cannot tell which web1 is meant: it is on h1 and h2; select a host with --limit")
    assert result["h3"] == ("", "web1 is on h1 and h2")


def test_who_means_it_makes_as_many_as_there_are_hosts(hypervisors: Hypervisors) -> None:
    hypervisors.have(["web1"], [])
    result = hypervisors.make(**WEB1, title="new", allow_duplicates=True)
    assert [state for state, _msg in result.values()] == ["changed", "changed"]


def test_of_many_guests_each_is_judged_by_itself(hypervisors: Hypervisors) -> None:
    hypervisors.have(["a"], ["b"])
    domains = [{**WEB1, "name": name, "title": "new"} for name in ("a", "b", "c")]
    result = hypervisors.make(domains=domains, many=True)
    assert [state for state, _msg in result.values()] == ["failed", "failed"]
    results = hypervisors.told["h1"]["results"]
    assert [(one["name"], bool(one.get("failed")), one["changed"]) for one in results] == [
        ("a", False, True),
        ("b", False, False),
        ("c", True, False),
    ]
    assert results[1]["msg"] == "b is on h1" or results[1]["msg"] == "b is on h2"


def test_absent_is_done_everywhere(hypervisors: Hypervisors) -> None:
    hypervisors.have(["web1"], ["web1"], [])
    result = hypervisors.make(name="web1", state="absent")
    assert [state for state, _msg in result.values()] == ["changed", "changed", ""]


def test_what_is_wrong_is_still_said(hypervisors: Hypervisors) -> None:
    hypervisors.have([], [])
    result = hypervisors.make(name="a/b", vcpus=1)
    assert result["h1"][0] == "failed" and "not a valid name" in result["h1"][1]
    result = hypervisors.make(name="{{ inventory_hostname }}", vcpus=1, memory=64, allow_duplicates="perhaps")
    assert result["h1"][0] == "failed" and "allow_duplicates" in result["h1"][1]


def test_what_is_no_list_of_guests_is_refused(hypervisors: Hypervisors) -> None:
    """By the module, after the action has looked at it; an empty list is one."""
    hypervisors.have([])
    wrong: list[t.Any] = ["x", {"name": "a"}, ["x"], [{}], [{"name": None}], [None], 7, True]
    hypervisors.make(many=True, domains="{{ item }}", loop=[*wrong, []])
    *refused, nothing = hypervisors.told["h1"]["results"]
    for given, one in zip(wrong, refused, strict=True):
        assert one.get("failed") and one["msg"] not in ("", "'name'"), (given, one)
    assert not nothing.get("failed") and nothing["results"] == []
