"""Virtual networks against libvirt's own test driver, which updates what runs."""

from __future__ import annotations

import dataclasses
import types
import typing as t
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    Refused,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._network import plan_network
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import NETWORK_KIND
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._network.run_network_verbs import API
from ansible_collections.corral.virt.plugins.module_utils._noun import (
    libvirt_api,
    libvirt_type,
    run_noun,
    run_noun_options,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import (
    Define,
    NounStep,
    SetAutostart,
    Start,
    Stop,
    Undefine,
    Update,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_info import arguments
from ansible_collections.corral.virt.tests.contract.test_modules import run as module
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import Case

EVERYTHING = Case("networks/nat_every_field").data("wanted.yml")
GIVEN = "192.168.122.1"  # the address of libvirt's own example, which runs, with a guest


@pytest.fixture
def host() -> Iterator[t.Any]:
    """libvirt's own example: a network that runs, and a running guest that is on it."""
    with opened("test:///default") as connection:
        yield connection


def run(
    host: t.Any,
    *,
    check_mode: bool = False,
    meanwhile: t.Callable[[Step], object] = lambda _step: None,
    **output: t.Any,
) -> dict[str, t.Any]:
    """Converge; options as Ansible hands them over."""
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NETWORK.schema)).validate(output)
    assert not result.error_messages, result.error_messages
    gate = Gate(check_mode=check_mode, meanwhile=meanwhile)
    return run_noun.converge(host, NETWORK, API, result.validated_parameters, gate)


def values(host: t.Any, path: str, name: str = "default") -> list[str]:
    """What libvirt says at a path of the document."""
    root = etree.fromstring(host.networkLookupByName(name).XMLDesc())
    return [str(found) for found in t.cast("list[t.Any]", root.xpath(path))]


@pytest.mark.parametrize("state", ["active", "present", "inactive"])
def test_check_mode_says_what_a_real_run_does(host: t.Any, state: str) -> None:
    output = {**EVERYTHING, "state": state}
    before = snapshot(host)
    predicted = run(host, check_mode=True, **output)
    assert snapshot(host) == before
    assert run(host, **output) == predicted
    network = host.networkLookupByName("lab")
    assert (network.isActive(), network.autostart()) == (state == "active", True)
    again = run(host, **output)
    assert (again["changed"], again["steps"], again["pending"]) == (False, [], [])
    assert again["network"] == predicted["network"]
    assert run(host, check_mode=True, name="lab", state="absent")["changed"]
    run(host, name="lab", state="absent")
    assert "lab" not in host.listNetworks() + host.listDefinedNetworks()
    assert snapshot(host) == before


def test_what_runs_is_updated(host: t.Any) -> None:
    first, last = f"{GIVEN[:-1]}50", f"{GIVEN[:-1]}99"
    dhcp: dict[str, t.Any] = {"ranges": [{"start": f"{GIVEN[:-1]}2", "end": f"{GIVEN[:-1]}254", "state": "absent"}]}
    dhcp["ranges"].append({"start": first, "end": last})
    dhcp["hosts"] = [{"ip": f"{GIVEN[:-1]}10", "mac": "52:54:00:00:00:10"}]
    output: dict[str, t.Any] = {"name": "default", "ips": [{"address": GIVEN, "dhcp": dhcp}]}
    output["dns"] = {"hosts": [{"ip": GIVEN, "hostnames": ["gateway"]}]}
    uuid = host.networkLookupByName("default").UUIDString()
    assert not run(host, **output)["pending"]
    assert values(host, "//range/@start") == [first]
    assert values(host, "//dhcp/host/@mac") == ["52:54:00:00:00:10"]
    assert values(host, "//dns/host/hostname/text()") == ["gateway"]
    assert not run(host, **output)["changed"]
    dhcp["hosts"][0]["mac"] = "52:54:00:00:00:11"
    output["portgroups"] = [{"name": "slow", "bandwidth": {"inbound": {"average": 100}}}]
    run(host, **output)
    assert values(host, "//dhcp/host/@mac") == ["52:54:00:00:00:11"]
    output["portgroups"][0]["bandwidth"]["inbound"]["average"] = 200
    run(host, **output)
    assert values(host, "//portgroup//inbound/@average") == ["200"]
    dhcp["hosts"][0]["state"] = "absent"
    output["portgroups"][0] = {"name": "slow", "state": "absent"}
    run(host, **output)
    assert values(host, "//dhcp/host/@ip | //portgroup/@name") == []
    assert host.networkLookupByName("default").UUIDString() == uuid


def test_an_update_that_libvirt_refuses_leaves_the_definition(host: t.Any) -> None:
    """Else it would come with the next start, unasked."""

    def refused(_network: t.Any, _step: NounStep) -> None:
        raise Failed("it takes no update")

    run(host, name="default", state="active", dns={"hosts": [{"ip": GIVEN, "state": "absent"}]})
    before, api = snapshot(host), dataclasses.replace(API, own={Update: refused})
    with pytest.raises(Failed, match=r"^it takes no update$"):
        converged(host, api, name="default", dns={"hosts": [{"ip": GIVEN, "hostnames": ["gateway"]}]})
    assert snapshot(host) == before


def test_a_reservation_moves_to_another_address(host: t.Any) -> None:
    """In whatever order it is told; a second one of the same client is refused before anything is changed."""

    def kept_for(last: int, **more: t.Any) -> dict[str, t.Any]:
        return {"ip": f"{GIVEN[:-1]}{last}", "mac": "52:54:00:00:00:10", **more}

    def reserve(*hosts: dict[str, t.Any]) -> None:
        run(host, name="default", ips=[{"address": GIVEN, "dhcp": {"hosts": list(hosts)}}])

    reserve(kept_for(10))
    before = snapshot(host)
    with pytest.raises(BadInput, match=r"hosts\[.*11\] of network default: mac .*:10 has reservation .*10 already"):
        reserve(kept_for(11))
    assert snapshot(host) == before
    reserve(kept_for(11), {"ip": f"{GIVEN[:-1]}10", "state": "absent"})
    assert snapshot(host) != before


@pytest.mark.parametrize("place", NETWORK.live)
def test_libvirt_knows_every_section(place: str) -> None:
    assert hasattr(libvirt, f"VIR_NETWORK_SECTION_{plan_network.LIVE[place].section}")


def test_guests_are_not_cut_off(host: t.Any) -> None:
    before = snapshot(host)
    refused: list[dict[str, t.Any]] = [{"state": "inactive"}, {"state": "absent"}, {"mtu": 9000, "allow_restart": True}]
    for output in refused:
        for check_mode in (True, False):
            with pytest.raises(Refused, match=r"running guests would lose it: test; .* force: true"):
                run(host, name="default", check_mode=check_mode, **output)
    assert snapshot(host) == before
    result = run(host, name="default", state="inactive", force=True)
    assert result["notes"] == ["guests lose network default until they are restarted: test"]
    assert not host.networkLookupByName("default").isActive()


def guest(name: str, plugged: str) -> str:
    """The document of one with an interface."""
    nic = f"<devices><interface {plugged}</interface></devices>"
    return f"<domain type='test'><name>{name}</name><memory>1</memory><os><type>hvm</type></os>{nic}</domain>"


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[t.Any]:
    """A network that runs, and no guest."""
    (tmp_path / "node.xml").write_text(
        "<node><network><name>default</name><forward/><bridge name='virbr0'/>"
        f"<ip address='{GIVEN}' netmask='255.255.255.0'/></network></node>"
    )
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        yield connection


def test_guests_are_read_only_where_one_may_lose_its_network(alone: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libvirt_query, "of_all", lambda *_all: pytest.fail("a few calls for each guest"))
    assert not run(alone, name="default")["changed"]
    assert run(alone, name="default", dns={"txts": [{"name": "a", "value": "b"}]})["changed"]
    assert run(alone, name="another", bridge="virbr9", ips=[{"address": "192.168.77.1", "prefix": 24}])["changed"]


@pytest.mark.parametrize(
    "plugged",
    [
        "type='bridge'><source bridge='virbr0'/>",
        "type='direct'><source dev='virbr0' mode='bridge'/>",
        "type='network'><source network='default'/>",
    ],
)
def test_a_guest_on_the_bridge_of_a_network_is_on_the_network(alone: t.Any, plugged: str) -> None:
    """Whatever it calls it."""
    alone.defineXML(guest("off", plugged))
    for output in ({"state": "inactive"}, {"mode": "isolated", "allow_restart": True}):
        assert run(alone, check_mode=True, name="default", **output)["changed"], "nobody is cut off"
    notes = run(alone, check_mode=True, name="default", state="absent")["notes"]
    assert notes == ["guests that use network default cannot start without it: off"]
    alone.createXML(guest("on", plugged))
    with pytest.raises(Refused, match="running guests would lose it: on; "):
        run(alone, check_mode=True, name="default", state="inactive")
    forced = run(alone, name="default", state="inactive", force=True)
    assert forced["notes"] == ["guests lose network default until they are restarted: on"]


def test_a_guest_on_another_bridge_is_not_on_the_network(alone: t.Any) -> None:
    """Of a network that uses a bridge of the host, only guests that name the network are."""
    for bridge in ("br0", "virbr1"):
        alone.createXML(guest(bridge, f"type='bridge'><source bridge='{bridge}'/>"))
    assert run(alone, name="default", state="inactive")["notes"] == []
    run(alone, name="lan", mode="bridge", bridge="br0")
    assert run(alone, name="lan", state="absent")["notes"] == []


def test_a_network_is_described_by_arguments_that_change_nothing(host: t.Any) -> None:
    run(host, **{**EVERYTHING, "state": "active"})
    for name in ("default", "lab"):
        found = libvirt_type.find(host, API.of, NETWORK_KIND.ref(name))
        assert found is not None
        output = arguments(NETWORK.schema, name, found)
        assert output["ips"] and output["bridge"]
        result = run(host, **output)
        assert (result["changed"], result["pending"]) == (False, [])


def test_modules() -> None:
    [seen] = module("virt_network_info", uri="test:///default", arguments=True)["networks"]
    assert (seen["name"], seen["mode"], seen["active"], seen["leases"]) == ("default", "nat", True, [])
    assert seen["arguments"]["ips"][0]["address"] == GIVEN
    assert module("virt_network_info", uri="test:///default", name="nobody")["networks"] == []
    result = module("virt_network", uri="test:///default", name="lan", vlan=[5000], mtu=1)
    assert len(result["problems"]) == 2


@pytest.mark.parametrize(
    "make",
    [Stop, lambda ref: SetAutostart(ref, on=True), Undefine],
    ids=["stop", "autostart", "undefine"],
)
def test_a_network_that_has_taken_the_name_meanwhile_is_left_alone(
    host: t.Any, make: t.Callable[[Ref], NounStep]
) -> None:
    do = libvirt_api.doer(host, API, Spec("default", "active"))
    found = libvirt_type.find(host, API.of, NETWORK_KIND.ref("default"))
    step = make(NETWORK_KIND.ref("default", uuid=found.uuid if found else None))
    host.networkLookupByName("default").destroy()
    host.networkLookupByName("default").undefine()
    host.networkDefineXML("<network><name>default</name><ip address='192.0.2.1' prefix='24'/></network>").create()
    before = snapshot(host)
    with pytest.raises(NotFound, match="default"):
        do(step)
    assert snapshot(host) == before


def test_steps_act_on_what_they_defined(host: t.Any) -> None:
    do = libvirt_api.doer(host, API, Spec("new", "active"))
    do(Define(NETWORK_KIND.ref("new"), "<network><name>new</name></network>"))
    uuid = host.networkLookupByName("new").UUIDString()
    host.networkLookupByName("new").undefine()
    host.networkDefineXML("<network><name>new</name></network>")
    with pytest.raises(NotFound, match=uuid):
        do(Start(NETWORK_KIND.ref("new")))
    assert not host.networkLookupByName("new").isActive()


@pytest.mark.parametrize(("uri", "asked"), [("qemu:///system", True), ("qemu+tls://hyper2/system", False)])
def test_ports_of_bridges_are_those_of_the_same_machine(
    monkeypatch: pytest.MonkeyPatch, uri: str, *, asked: bool
) -> None:
    """A bridge here may have the name of one there."""
    ports = {"br0": ("eth0",)}
    monkeypatch.setattr(libvirt_query, "links", lambda _connection: ({"br0"}, set()))
    monkeypatch.setattr(libvirt_query, "ports", lambda _bridges: ports)
    there = types.SimpleNamespace(getURI=lambda: uri, listAllNetworks=list, getLibVersion=lambda: 9000000)
    assert API.host(there, Spec("lan", "active")).ports == (ports if asked else {})


@pytest.mark.parametrize(
    "given", [{"state": "present", "mtu": 1400}, {"state": "absent"}], ids=lambda one: one["state"]
)
def test_a_network_that_somebody_changed_in_the_meantime_is_left_as_it_is(host: t.Any, given: dict[str, t.Any]) -> None:
    name = f"free-{given['state']}"  # libvirt's example lives as long as any connection to it
    host.networkDefineXML(f"<network><name>{name}</name></network>")

    def changed(step: Step) -> None:
        if str(step).startswith(("define", "undefine")):
            there = host.networkLookupByName(name).XMLDesc(0)
            host.networkDefineXML(there.replace("</uuid>", "</uuid><domain name='theirs'/>"))

    with pytest.raises(Refused, match=f"network {name}: somebody has changed its definition in the meantime"):
        run(host, meanwhile=changed, name=name, **given)
    assert "theirs" in host.networkLookupByName(name).XMLDesc(0)


def test_a_network_that_somebody_came_to_need_in_the_meantime_stays(host: t.Any) -> None:
    host.networkDefineXML("<network><name>needed</name></network>").create()
    guest = (
        "<domain type='test'><name>comer</name><memory>1024</memory><os><type>hvm</type></os><devices>"
        "<interface type='network'><source network='needed'/></interface></devices></domain>"
    )
    with pytest.raises(Refused, match="comer"):
        run(host, name="needed", state="absent", meanwhile=lambda _step: host.createXML(guest))
    assert host.networkLookupByName("needed").isActive()


@pytest.mark.parametrize("given", [{"state": "inactive"}, {"mtu": 1400, "allow_restart": True}], ids=str)
def test_a_network_that_a_guest_is_started_on_in_the_meantime_is_not_stopped(
    alone: t.Any, given: dict[str, t.Any]
) -> None:
    """Also not by a run that has changed its definition since the plan."""
    comer = guest("comer", "type='network'><source network='default'/>")

    def started(step: Step) -> None:
        if isinstance(step, Stop):
            alone.createXML(comer)

    with pytest.raises(VirtError, match="running guests would lose it: comer; shut them down first"):
        run(alone, name="default", meanwhile=started, **given)
    assert alone.networkLookupByName("default").isActive()
    done = run(alone, name="default", force=True, **given)
    assert done["notes"] == ["guests lose network default until they are restarted: comer"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("given", [{"state": "inactive"}, {"state": "absent"}], ids=str)
def test_a_guest_that_comes_before_a_forced_stop_is_named(
    alone: t.Any, given: dict[str, t.Any], *, first: bool
) -> None:
    """Beside those that were there, and once."""
    plugged = "type='network'><source network='default'/>"
    if first:
        alone.createXML(guest("before", plugged))

    def started(step: Step) -> None:
        if isinstance(step, Stop):
            alone.createXML(guest("comer", plugged))

    done = run(alone, name="default", force=True, meanwhile=started, **given)
    names = "before, comer" if first else "comer"
    lost = f"guests lose network default until they are restarted: {names}"
    gone = f"guests that use network default cannot start without it: {names}"
    assert done["notes"] == ([lost, gone] if given["state"] == "absent" else [lost])


def test_a_network_that_others_have_stopped_or_restarted_is_looked_at_anew(alone: t.Any) -> None:
    network = alone.networkLookupByName("default")
    with pytest.raises(Refused, match="somebody has stopped or started it anew in the meantime; run again"):
        run(alone, name="default", state="inactive", meanwhile=lambda _step: network.destroy())
    assert not run(alone, name="default", state="inactive")["changed"]


def refusing(first: list[str]) -> t.Any:
    """libvirt, which starts no network as long as there are reasons."""

    def start(network: t.Any, _step: NounStep) -> None:
        if first:
            raise Failed(first.pop())
        network.create()

    return dataclasses.replace(API, own={**API.own, Start: start})


def converged(host: t.Any, api: t.Any, **output: t.Any) -> dict[str, t.Any]:
    """As `run` does, with that libvirt."""
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NETWORK.schema)).validate(output)
    return run_noun.converge(host, NETWORK, api, result.validated_parameters, Gate(check_mode=False))


def test_a_new_network_that_does_not_start_is_not_left_behind(alone: t.Any) -> None:
    before = snapshot(alone)
    reason = "Network is already in use by interface br0"
    with pytest.raises(
        Failed, match=rf"{reason}; it is as before \(undefine network clash\): mend the reason"
    ) as error:
        converged(alone, refusing([reason]), name="clash", ips=[{"address": "10.86.2.200", "prefix": 24}])
    assert snapshot(alone) == before
    assert "already done" not in str(error.value), "it is not done any more"


def test_a_network_that_does_not_start_again_goes_on_as_it_was(alone: t.Any) -> None:
    before = snapshot(alone)
    with pytest.raises(
        Failed, match=r"no; it is as before \(define network default \(as it was\); .*; start network default"
    ):
        converged(alone, refusing(["no"]), name="default", mtu=1400, autostart=True, allow_restart=True)
    assert snapshot(alone) == before
    found = alone.networkLookupByName("default")
    assert (found.isActive(), found.autostart()) == (1, 0)


def test_what_could_not_be_brought_back_is_told(alone: t.Any) -> None:
    with pytest.raises(
        Failed, match=r"^first; bringing back what was there before failed as well: second.*; inspect default$"
    ):
        converged(alone, refusing(["second", "first"]), name="default", mtu=1400, allow_restart=True)


def test_a_network_that_was_there_and_off_stays_so(alone: t.Any) -> None:
    alone.networkDefineXML("<network><name>off</name></network>")
    with pytest.raises(Failed, match=r"^no$"):
        converged(alone, refusing(["no"]), name="off")
    assert "off" in alone.listDefinedNetworks()
