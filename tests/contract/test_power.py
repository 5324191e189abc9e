"""`virt_state` beside `virt_domain`: the same steps, states, refusals and texts, for guests of any name."""

from __future__ import annotations

import functools
import itertools
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_power
from ansible_collections.corral.virt.plugins.module_utils._libvirt import states
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._power import libvirt_power, plan_power
from ansible_collections.corral.virt.plugins.module_utils._xml.names import CORRAL, sealed
from ansible_collections.corral.virt.tests.contract.test_modules import run

UUID, OTHER = "6695eb01-f6a4-8304-79aa-97f2502e193f", "1f8e2a55-0c5e-4d7c-8a4f-57c1fd6a1f02"
STATES = run_power.OPTIONS["state"]["choices"]
NOW = ("running", "paused", "shutdown")
NAMES = ("web1", "Windows 10", "büro", "_x", "-x", "a'b\"c $(x)", "{{ x }}")


def host(place: Path, *names: str, moving: bool = False) -> str:
    """The URI of a host with these guests, all running."""
    record = f"<metadata><c:guest xmlns:c='{CORRAL}'><c:moving>h2</c:moving></c:guest></metadata>" if moving else ""
    there = "".join(
        f"<domain type='test'><name>{name.replace('&', '&amp;')}</name><uuid>{uuid}</uuid><memory>65536</memory>"
        f"<os><type>hvm</type></os>{record}</domain>"
        for name, uuid in zip(names, (UUID, OTHER), strict=False)
    )
    (place / "node.xml").write_text(f"<node>{there}</node>", encoding="utf-8")
    return f"test://{place}/node.xml"


def bring(connection: t.Any, name: str, state: str) -> t.Any:
    """The guest, in a state."""
    domain = connection.lookupByName(name)
    if state == "paused":
        domain.suspend()
    elif state == "shutdown":
        domain.destroy()
    return domain


def told(make: t.Callable[[], t.Mapping[str, t.Any]]) -> object:
    """What it answers, or how it refuses."""
    try:
        result = make()
    except VirtError as error:
        return type(error), str(error)
    return {key: result[key] for key in ("name", "changed", "steps", "pending", "notes", "diff")}


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(("now", "wish"), list(itertools.product(NOW, STATES)))
def test_it_does_what_virt_domain_does(tmp_path: Path, now: str, wish: str, check_mode: bool) -> None:
    wanted, gate = GuestSpec("web1", state=wish, uuid=UUID, wait_timeout_s=5), Gate(check_mode=check_mode)
    answers, after = [], []
    for converge in (run_guest.converge, run_power.converge):
        with opened(host(tmp_path, "web1"), events=True) as connection:
            domain = bring(connection, "web1", now)
            answers.append(told(functools.partial(converge, connection, wanted, gate)))
            after.append(states.of(domain))
    assert answers[0] == answers[1] and after[0] == after[1]
    assert not check_mode or after[1] == now


@pytest.mark.parametrize("wish", [wish for wish in STATES if wish != "running"])
def test_a_guest_that_is_being_moved_is_left_alone(tmp_path: Path, wish: str) -> None:
    gate = Gate(check_mode=False)
    with opened(host(tmp_path, "web1", moving=True), events=True) as connection:
        domain = bring(connection, "web1", "paused")
        with pytest.raises(Refused, match=f"cannot bring web1 to state {wish}: its migration is in progress"):
            run_power.converge(connection, GuestSpec("web1", state=wish), gate)
        assert states.of(domain) == "paused"


@pytest.mark.parametrize("converge", [run_guest.converge, run_power.converge], ids=["virt_domain", "virt_state"])
def test_a_copied_definition_does_not_move(tmp_path: Path, converge: t.Callable[..., t.Any]) -> None:
    """Somebody copied the one of a guest under migration: virt_migrate has nothing to finish there."""
    copied = host(tmp_path, "web1", moving=True)
    node = tmp_path / "node.xml"
    node.write_text(node.read_text(encoding="utf-8").replace("<c:moving>", f"<c:moving seal='{sealed(OTHER)}'>"))
    with opened(copied, events=True) as connection:
        domain = bring(connection, "web1", "paused")
        converge(connection, GuestSpec("web1", state="running"), Gate(check_mode=False))
        assert states.of(domain) == "running"


@pytest.mark.parametrize("name", NAMES)
def test_a_guest_that_exists_may_have_any_name(tmp_path: Path, name: str) -> None:
    with opened(host(tmp_path, name), events=True) as connection:
        wanted = run_power.all_wanted([item(name, "paused", uuid=UUID)], 1)[0]
        assert run_power.converge(connection, wanted, Gate(check_mode=False))["steps"] == [f"suspend {name}"]
        assert states.of(connection.lookupByName(name)) == "paused"


def test_the_uuid_says_which_guest_it_is(tmp_path: Path) -> None:
    gate = Gate(check_mode=False)
    with opened(host(tmp_path, "web1", "web2"), events=True) as connection:
        with pytest.raises(Refused, match=f"the guest with UUID {OTHER} is called web2 now"):
            run_power.converge(connection, GuestSpec("web1", state="destroyed", uuid=OTHER), gate)
        with pytest.raises(NotFound, match=r"cannot bring web1 to state paused: there is no such guest with UUID 9"):
            run_power.converge(connection, GuestSpec("web1", state="paused", uuid="9" + UUID[1:]), gate)
        with pytest.raises(
            NotFound,
            match=r"cannot bring web9 to state running: there is no such guest here; `ansible-playbook corral\.virt\.list` ",
        ):
            run_power.converge(connection, GuestSpec("web9", state="running"), gate)
        assert {states.of(domain) for domain in connection.listAllDomains()} == {"running"}


def item(name: str, state: str, **more: t.Any) -> dict[str, t.Any]:
    """A guest as the module's arguments have it."""
    return {
        "name": name,
        "state": state,
        "uuid": None,
        "force": False,
        "wait": True,
        "wait_timeout": 300,
        **more,
    }


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = [
        item("a", "shutdown", wait_timeout=0),
        item("b", "shutdown", wait=False, force=True),
        item("c", "reset", uuid="nope"),
        item("c", "running"),
    ]
    with pytest.raises(BadInput, match="at_once") as refused:
        run_power.all_wanted(wrong, 0)
    assert refused.value.problems == [
        "at_once: must be at least 1, not 0",
        "domains: guest c is given twice",
        "wait_timeout of a: must be at least 1 s, not 0",
        "wait of b: force requires waiting; omit one of wait: false and force: true",
        "uuid of c: 'nope' is not a UUID; write it as 6695eb01-f6a4-8304-79aa-97f2502e193f",
    ]


def test_the_module_tells_of_each_guest(tmp_path: Path) -> None:
    """One that fails does not stop the others, and the test driver forgets all of it with the process."""
    uri = host(tmp_path, "web1", "web2")
    domains = [{"name": name, "state": "paused"} for name in ("web1", "web9", "web2")]
    answer = run("virt_state", uri=uri, domains=domains)
    assert answer["failed"] and answer["changed"] and answer["steps"] == ["suspend web1", "suspend web2"]
    assert (
        answer["msg"]
        == "cannot bring web9 to state paused: there is no such guest here; `ansible-playbook corral.virt.list` shows which host has it"
    )
    assert [one.get("failed", False) for one in answer["results"]] == [False, True, False]
    assert answer["diff"][0]["before"] == {"state": "running"} and answer["diff"][0]["after"] == {"state": "paused"}
    same = run("virt_state", uri=uri, domains=[{"name": "web1", "state": "running"}])
    assert not same["changed"] and same["diff"] == [] and same["results"][0]["steps"] == []


def test_a_guest_that_is_gone_meanwhile_is_told(tmp_path: Path) -> None:
    """Between the look and the step: the step says so."""
    with opened(host(tmp_path, "web1"), events=True) as connection:
        domain = connection.lookupByName("web1")
        look = libvirt_power.find

        def then_gone(*arguments: t.Any) -> t.Any:
            found = look(*arguments)
            domain.destroy()
            domain.undefine()
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(libvirt_power, "find", then_gone)
            with pytest.raises(NotFound, match=rf"cannot find guest web1 \({UUID}\)"):
                run_power.converge(connection, GuestSpec("web1", state="paused"), Gate(check_mode=False))
        with pytest.raises(libvirt.libvirtError):
            connection.lookupByName("web1")


IO_ERROR, SLEEPS, BY_USER = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR),
    (libvirt.VIR_DOMAIN_PMSUSPENDED, 0),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER),
)


@pytest.mark.parametrize(("now", "itself"), [(IO_ERROR, True), (SLEEPS, True), (BY_USER, False)])
@pytest.mark.parametrize(
    "find", [lambda one, name: libvirt_power.find(one, name, None), libvirt_query.find], ids=["state", "domain"]
)
def test_a_guest_that_nobody_paused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: t.Any, now: tuple[int, int], itself: bool
) -> None:
    with opened(host(tmp_path, "web1")) as connection:
        assert not find(connection, "web1").stopped_itself, "it runs"
        answers = iter([now])  # one call says both, and no state comes between
        monkeypatch.setattr(libvirt.virDomain, "state", lambda _domain: next(answers))
        found = find(connection, "web1")
        assert found.state == "paused" and found.stopped_itself is itself
        wanted = GuestSpec("web1", state="shutdown")
        assert [getattr(step, "suspends", None) for step in plan_power.state_steps(wanted, found)] == [None, not itself]
