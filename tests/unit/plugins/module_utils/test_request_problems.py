"""What is wrong with one request is told at once, before anything is looked at."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, contradictions
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone_spec
from ansible_collections.corral.virt.plugins.module_utils._tls import plan_tls

HOST: dict[str, t.Any] = {
    "name": "hyper1",
    "names": ["192.0.2.1"],
    "days": 365,
    "renew_before": 30,
    "identities": ["server"],
}


@pytest.mark.parametrize(
    ("said", "problems"),
    [
        ({}, []),
        ({"renew_before": 364}, []),
        ({"renew_before": 0}, []),
        ({"renew_before": 365}, ["renew_before (365) must be less than days (365), or each run would renew"]),
        ({"renew_before": -1}, ["renew_before (-1) must be less"]),
        ({"days": 900}, []),
        ({"days": 901}, ["days (901) must be at most 900"]),
        ({"identities": []}, ["identities: name at least one of"]),
        ({"name": "a/b", "names": ["?"], "days": 0}, ["name", "names of a/b", "renew_before (30)"]),
    ],
)
def test_a_hosts_certificates(said: dict[str, t.Any], problems: list[str]) -> None:
    if not problems:
        assert plan_tls.certificate_names({**HOST, **said}) == ("192.0.2.1",)
        return
    with pytest.raises(BadInput, match=problems[0].partition(" ")[0]) as caught:
        plan_tls.certificate_names({**HOST, **said})
    assert len(caught.value.problems) == len(problems)
    assert all(found.startswith(begin) for found, begin in zip(caught.value.problems, problems)), caught.value.problems


def test_a_certificate_without_names_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^names of hyper1: a certificate needs at least one name or address"):
        plan_tls.certificate_names({**HOST, "names": None})


@pytest.mark.parametrize(
    ("uri", "ours"), [("qemu:///system", True), ("test:///default", True), ("qemu+ssh://hyper1/system", False)]
)
def test_disks_are_files_of_this_machine(uri: str, ours: bool) -> None:
    if ours:
        plan_clone_spec.check_local(uri)
        return
    with pytest.raises(Refused, match=r"they are files there; run the module on that hypervisor"):
        plan_clone_spec.check_local(uri)


def test_an_image_has_to_be_there() -> None:
    plan_clone_spec.check_image("debian-12.qcow2", "default", there=True)
    with pytest.raises(NotFound, match=r"no image debian-12\.qcow2 in pool default; import it"):
        plan_clone_spec.check_image("debian-12.qcow2", "default", there=False)


def test_many_guests() -> None:
    assert [*contradictions(["web1", "db1"], 1)] == []
    assert [*contradictions(["web1", "db1", "web1"], 0)] == [
        "at_once: must be at least 1, not 0",
        "domains: guest web1 is given twice",
    ]
    assert [*contradictions(["web2"], 1, {"web2": "web1"})] == []
    assert [*contradictions(["web1", "web2"], 1, {"web2": "web1"})] == [
        "clone_of of web2: this task also describes web1; create the copy in a separate task, afterwards"
    ]


def test_nothing_wrong_refuses_nothing() -> None:
    problems = Problems()
    assert problems.tried(lambda: 1) == 1
    problems.refuse()
    Problems([]).refuse()
    problems = Problems(["first"])
    assert problems.tried(lambda: plan_tls.certificate_names({**HOST, "names": None})) is None
    with pytest.raises(BadInput, match=r"^first; names of hyper1: "):
        problems.refuse()
