"""Network filters on a host: judged by virsh."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.plugins.module_utils._nwfilter.model_nwfilter import BUILT_IN, MATCHES
from ansible_collections.corral.virt.tests.lab.hypervisors import Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("filters")
on = functools.partial(LAB.on, "hyper1")
SSH = {"action": "accept", "direction": "in", "protocol": "tcp", "match": {"dstportstart": 22}}
REST = {"action": "drop", "direction": "in", "priority": 1000, "protocol": "all"}
GUEST = (
    "<domain type='qemu'><name>nw-g</name><memory unit='MiB'>64</memory><os><type>hvm</type></os><devices><interface "
    "type='network'><source network='default'/><filterref filter='nw-a'/></interface></devices></domain>"
)


@pytest.fixture(scope="module", autouse=True)
def hypervisor() -> Iterator[None]:
    """A hypervisor."""
    with hypervisors("filters"):
        yield


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test makes goes with it."""
    yield
    on(
        "virsh -q undefine nw-g 2>/dev/null; "
        "for f in $(virsh nwfilter-list | awk '$2 ~ /^nw-/ {print $2}'); do virsh -q nwfilter-undefine $f; done"
    )


def told(*, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
    """What virt_nwfilter answers."""
    task = {"corral.virt.virt_nwfilter": options, "register": "told"}
    return t.cast("dict[str, t.Any]", LAB.tell(task, hosts="hyper1", check=check)["hyper1"])


def listed(**options: t.Any) -> list[dict[str, t.Any]]:
    """What virt_nwfilter_info finds."""
    task = {"corral.virt.virt_nwfilter_info": options, "register": "told"}
    return t.cast("list[dict[str, t.Any]]", LAB.tell(task, hosts="hyper1")["hyper1"]["nwfilters"])


def refused(**options: t.Any) -> str:
    """Why virt_nwfilter refuses."""
    return LAB.module("virt_nwfilter", ok=False, **options)


def four_steps(**options: t.Any) -> list[str]:
    """Check, do, check again, do again; the steps."""
    names = on("virsh nwfilter-list")
    checked = told(check=True, **options)
    assert checked["changed"] and on("virsh nwfilter-list") == names
    done = told(**options)
    assert done["steps"] == checked["steps"] and done["diff"] == checked["diff"]
    for check in (True, False):
        again = told(check=check, **options)
        assert not again["changed"] and not again["steps"], again
    return t.cast("list[str]", done["steps"])


def test_a_filter_is_defined_changed_and_removed() -> None:
    assert four_steps(name="nw-a", filterrefs=["clean-traffic"], rules=[SSH, REST]) == ["define nwfilter nw-a"]
    uuid = on("virsh nwfilter-dumpxml nw-a | grep uuid")
    assert four_steps(name="nw-a", rules=[REST, SSH]) == ["define nwfilter nw-a (rules)"]
    assert four_steps(name="nw-a", chain="ipv4-a", filterrefs=[], rules=[{**REST, "protocol": "ip"}])
    xml = on("virsh nwfilter-dumpxml nw-a")
    assert uuid in xml and "chain='ipv4-a' priority='-700'" in xml and "filterref" not in xml
    assert four_steps(name="nw-a", state="absent") == ["undefine nwfilter nw-a"]
    on("virsh nwfilter-dumpxml nw-a", ok=False)


def test_libvirt_takes_rules_of_every_protocol() -> None:
    match = {"srcmacaddr": "AA:BB:CC:DD:EE:FF"}
    rules = [{"action": "drop", "direction": "in", "protocol": one, "match": match} for one in MATCHES]
    four_steps(name="nw-a", rules=rules)
    mask = {"srcipaddr": "192.0.2.0", "srcipmask": "255.255.255.0", "match": False}
    four_steps(name="nw-a", rules=[{**SSH, "match": mask, "statematch": False}])
    piece = "<filter><filterref filter='nw-b'><parameter name='P' value='22'/></filterref></filter>"
    assert "nw-b, which this host does not have" in told(name="nw-a", xml=piece)["notes"][0]
    assert not told(name="nw-a", xml=piece)["changed"] and not told(name="nw-a", filterrefs=["nw-b"])["changed"]


def test_one_that_is_named_stays() -> None:
    told(name="nw-a")
    told(name="nw-b", filterrefs=["nw-a"])
    on("virsh -q define /dev/stdin", given=GUEST)
    assert "named by guest nw-g" in refused(name="nw-a", state="absent")
    on("virsh -q undefine nw-g")
    assert "named by nwfilter nw-b" in refused(name="nw-a", state="absent")
    assert "would include itself" in refused(name="nw-a", filterrefs=["nw-b"])
    told(name="nw-b", state="absent")
    assert told(name="nw-a", state="absent")["changed"]


def test_those_of_libvirt_are_read_and_stay() -> None:
    before = on("cat /etc/libvirt/nwfilter/*")
    found = listed(arguments=True)
    assert {one["name"] for one in found} == BUILT_IN
    for one in found:
        assert not told(**one["arguments"])["changed"]
    assert "it comes with libvirt" in refused(name="clean-traffic", rules=[])
    assert "it comes with libvirt" in refused(name="no-mac-broadcast", state="absent")
    assert told(check=True, name="clean-traffic", rules=[], force=True)["changed"]
    assert on("cat /etc/libvirt/nwfilter/*") == before
