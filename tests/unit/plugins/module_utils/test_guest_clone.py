"""A guest that is a clone: its options with their defaults, its document and its seed, of a host that answers little."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import derived_mac
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk, fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Known
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.golden.case import look_alike, options

UUID, OLD = "6695eb01-f6a4-8304-79aa-97f2502e193f", "11111111-f6a4-8304-79aa-97f2502e193f"
MAC = "52:54:00:00:00:01"
SEED = "<disk type='file' device='cdrom'><source file='/p/web1-seed.iso'/><target dev='sda'/><alias name='ua-seed'/></disk>"
XML = (
    "<domain type='kvm'><name>{name}</name><uuid>{uuid}</uuid><memory unit='KiB'>1048576</memory>"
    "<vcpu current='2'>4</vcpu><metadata xmlns:corral='urn:corral:virt:guest:1'><corral:guest>{record}</corral:guest>"
    "</metadata><devices><disk type='file'><driver type='qcow2'/><source file='/p/{name}-system.qcow2'/>"
    "<target dev='vda'/><alias name='ua-system'/></disk>{devices}<interface type='bridge'>"
    f"<mac address='{MAC}'/><source bridge='br0'/><alias name='ua-eth0'/></interface>"
    "<serial type='file'><source path='/log'/></serial></devices></domain>"
)
SEEDED = "<corral:seed sha256='a' instance-id='i-1'/>"
ORIGINAL = look_alike(XML.format(name="web1", uuid=OLD, record=SEEDED, devices=SEED))
COPY = f"<corral:copy of='{OLD}'/>"
COPYING = "".join(f"<corral:{what}>/p/web3-system.qcow2</corral:{what}>" for what in ("making", "copying"))
SAME = {"meta_data": {"instance-id": "i-1"}}


class Host:
    """One with a bridge and some guests."""

    def __init__(self, *guests: FoundGuest, kept: t.Sequence[str] = ()) -> None:
        self.guests, self.kept = {one.name: one for one in guests}, kept

    def find(self, name: str) -> FoundGuest | None:
        return self.guests.get(name)

    def managed_state(self, uuid: str) -> t.Sequence[str]:
        return self.kept if uuid == OLD else ()

    def links(self) -> tuple[set[str] | None, set[str]]:
        return {"br0"}, set()


def created(host: Host, **more: t.Any) -> tuple[GuestSpec, str, FoundGuest]:
    spec = options({"name": "web3", "clone_of": "web1", **more})
    return plan_guest.created_clone(spec, UUID, t.cast(GuestHost, host))


def existing(kept: str, *guests: FoundGuest, **more: t.Any) -> tuple[GuestSpec, FoundGuest | None]:
    """Of a clone of which the collection keeps that."""
    found = look_alike(XML.format(name="web3", uuid=UUID, record=kept, devices=""))
    recorded = fields_record.read(found.xml)
    known = Known.of(fields_disk.by_name(found.xml), recorded, running=(), active=False)
    spec = options({"name": "web3", **more})
    return plan_guest.existing_clone(spec, found, recorded, known, t.cast(GuestHost, Host(*guests)))


def macs(spec: GuestSpec) -> list[str]:
    """Those that its seed tells it."""
    assert spec.seed is not None and isinstance(spec.seed.network_config, str)
    nics = json.loads(spec.seed.network_config)["ethernets"]
    return [nic["match"]["macaddress"] for nic in nics.values()]


def test_a_new_clone_is_seeded_for_its_own_interfaces() -> None:
    spec, base, original = created(Host(ORIGINAL), interfaces=[{"name": "eth1", "bridge": "br0"}])
    assert original is ORIGINAL and parse(base).findtext("name") == "web3"
    assert macs(spec) == [derived_mac(UUID, "eth0"), derived_mac(UUID, "eth1")]
    assert spec.seed and spec.seed.of_a_copy == UUID
    assert macs(created(Host(ORIGINAL))[0]) == [derived_mac(UUID, "eth0")]


def test_its_sizes_follow_those_of_its_original() -> None:
    """A guest with room to grow keeps it."""
    for spec in (created(Host(ORIGINAL), vcpus=3)[0], existing(COPY, vcpus=3)[0]):
        assert spec.fields["vcpus.maximum"] == 4


@pytest.mark.parametrize(
    ("host", "more", "error", "said"),
    [
        (Host(), {}, NotFound, "there is no guest web1 here"),
        (
            Host(ORIGINAL),
            {"interfaces": [{"name": "eth1", "bridge": "br7"}]},
            NotFound,
            r"cannot create web3: this host has no bridge br7 \(interface eth1\)",
        ),
        (Host(ORIGINAL), {"cloud_init": SAME}, BadInput, "web1 has the instance-id i-1"),
        (Host(ORIGINAL, kept=["managed_save"]), {}, Refused, "web1 has a managed save"),
        (
            Host(dataclasses.replace(ORIGINAL, xml=ORIGINAL.xml.replace(SEED, ""))),
            {},
            Refused,
            "cloud-init is disabled in web1",
        ),
    ],
)
def test_what_is_not_cloned(host: Host, more: dict[str, t.Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        created(host, **more)


def test_a_clone_that_exists_keeps_what_it_was_told() -> None:
    """Its original may be gone by then."""
    spec, original = existing(COPY, clone_of="web1")
    assert (spec.seed, original) == (None, None)


def test_what_a_clone_is_told_anew_is_still_for_a_clone() -> None:
    nics = [{"name": "eth1", "bridge": "br0"}]
    spec, original = existing(COPY, cloud_init=SAME, interfaces=nics)
    assert macs(spec) == [MAC, derived_mac(UUID, "eth1")]
    assert original is None and spec.seed and spec.seed.of_a_copy == UUID


def test_half_a_clone_is_completed_with_its_original() -> None:
    spec, original = existing(COPY + COPYING, ORIGINAL, clone_of="web1")
    assert original is ORIGINAL and [one.name for one in spec.disks or ()] == ["system"]
    assert spec.seed and spec.seed.of_a_copy == UUID
    with pytest.raises(BadInput, match="web1 has the instance-id i-1"):
        existing(COPY + COPYING, ORIGINAL, clone_of="web1", cloud_init=SAME)
    with pytest.raises(Refused, match="set clone_of again to finish it"):
        existing(COPY + COPYING, ORIGINAL)
