"""A guest's host is asked nothing twice: each question is a round trip, and its answer holds until the plan is made.

Nor is a document parsed twice.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import typing as t

import pytest
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_host_prerequisites
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import Capacity
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._xml import tree
from ansible_collections.corral.virt.tests.golden.case import HOST_KEY, options

OLD: dict[str, t.Any] = {
    "name": "old",
    "vcpus": 1,
    "memory": "64MiB",
    "interfaces": [{"name": "eth0", "network": "lan"}],
    "disks": [{"name": "system", "size": "1GiB"}],
}
STARTS = {"name": "new", "state": "running", "autostart": True}
NIC = {"name": "eth1", "network": "lan"}
QUESTIONS = ("find", "managed_state", "capabilities", "committed", "links", "filters")

Asked = t.Counter[tuple[t.Any, ...]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """How often libvirt is asked what."""
    seen: Asked = collections.Counter()

    def counted(module: t.Any, name: str) -> None:
        real = getattr(module, name)

        def ask(_connection: t.Any, *arguments: t.Any, **more: t.Any) -> t.Any:
            seen[name, *arguments, *more.items()] += 1
            return real(_connection, *arguments, **more)

        monkeypatch.setattr(module, name, ask)

    for name in QUESTIONS:
        counted(libvirt_query, name)
    counted(libvirt_storage, "path_in")
    counted(run_host_prerequisites, "inactive_networks")
    counted(run_host_prerequisites, "networks_without_autostart")
    monkeypatch.setattr(files_seed, "host_key", lambda: HOST_KEY)
    return seen


def run(connection: t.Any, said: dict[str, t.Any], *, check_mode: bool = False) -> dict[str, t.Any]:
    wanted, limit = dataclasses.replace(options(said), virt_type="auto"), Capacity(10**6, 10**6)
    return run_guest.converge(connection, wanted, Gate(check_mode=check_mode), limit)


@pytest.mark.parametrize(
    ("said", "running", "expected"),
    [
        (
            {**OLD, **STARTS},
            False,
            {"find", "capabilities", "links", "committed", "inactive_networks", "networks_without_autostart"},
        ),
        (OLD, False, {"find"}),
        ({**OLD, "autostart": True}, False, {"find", "inactive_networks", "networks_without_autostart"}),
        ({**OLD, "title": "Old", "interfaces": [*OLD["interfaces"], NIC]}, False, {"find", "links", "managed_state"}),
        (
            {**OLD, "title": "Old", "interfaces": [*OLD["interfaces"], NIC]},
            True,
            {"find", "links", "inactive_networks", "networks_without_autostart"},
        ),
        ({"name": "new", "renamed_from": "old"}, False, {"find", "managed_state"}),
        ({"name": "new", "renamed_from": "old", "title": "New"}, False, {"find", "managed_state"}),
        ({"name": "new", "clone_of": "old", "interfaces": [NIC]}, False, {"find", "managed_state", "links"}),
        ({"name": "old", "state": "absent", "remove_storage": True}, False, {"find", "managed_state"}),
        ({"name": "gone", "state": "absent", "remove_storage": True}, False, {"find"}),
    ],
)
def test_no_question_is_asked_twice(
    connection: t.Any, asked: Asked, said: dict[str, t.Any], running: bool, expected: set[str]
) -> None:
    run(connection, OLD)
    if running:
        connection.lookupByName("old").create()
    asked.clear()
    run(connection, said, check_mode=True)
    assert {question: times for question, times in asked.items() if times > 1} == {}
    assert {question[0] for question in asked} - {"path_in"} == expected


class _Counting:
    """lxml, which counts how often it parses what."""

    def __init__(self) -> None:
        self.parsed: t.Counter[bytes] = collections.Counter()

    def __getattr__(self, name: str) -> t.Any:
        return getattr(etree, name)

    def fromstring(self, xml: bytes, parser: t.Any) -> t.Any:
        self.parsed[xml] += 1
        return etree.fromstring(xml, parser)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("more", [{}, {"title": "Old"}, {"interfaces": [*OLD["interfaces"], NIC]}])
def test_no_document_is_parsed_twice(
    connection: t.Any, monkeypatch: pytest.MonkeyPatch, more: dict[str, t.Any], running: bool
) -> None:
    run(connection, OLD)
    if running:
        connection.lookupByName("old").create()
    lxml = _Counting()
    monkeypatch.setattr(tree, "etree", lxml)
    tree._parsed.cache_clear()
    run(connection, {**OLD, **more}, check_mode=True)
    assert lxml.parsed
    assert set(lxml.parsed.values()) == {1}


def test_another_guest_is_asked_for_anew(connection: t.Any) -> None:
    with contextlib.ExitStack() as locks:
        hosts = [run_guest._Host(connection, locks, Gate(check_mode=True), None) for _guest in range(2)]
        assert hosts[0].find("old") is None is hosts[1].find("old")
        run(connection, OLD)
        assert hosts[0].find("old") is None, "the answer holds"
        found = run_guest._Host(connection, locks, Gate(check_mode=True), None).find("old")
        assert found and found.name == "old" and hosts[0].managed_state(found.uuid) == ()
