"""Where the bytes of a disk are: each way to say it replaces each other one, and comes back from an import."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_disk
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples

UUID = "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"
WAYS: dict[str, dict[str, t.Any]] = {
    "file": {"source": "/srv/a.img"},
    "block": {"source": "/dev/sdx"},
    "volume": {"volume": "default/a.img"},
    "http": {"url": "https://h.example.org/a.img"},
    "nbd by url": {"url": "nbd://h.example.org/a"},
    "rbd": {
        "network": {
            "protocol": "rbd",
            "name": "pool/a",
            "hosts": [{"name": "m1"}, {"name": "m2", "port": 3300}],
            "snapshot": "s",
            "config": "/etc/ceph/c.conf",
            "auth": {"username": "u", "secret_uuid": UUID},
        }
    },
    "nbd": {"network": {"protocol": "nbd", "name": "a", "hosts": [{"name": "h", "port": 10810}], "tls": True}},
    "nbd on a socket": {"network": {"protocol": "nbd", "name": "a", "socket": "/run/nbd.sock"}},
    "iscsi": {
        "network": {
            "protocol": "iscsi",
            "name": "iqn.x:y/1",
            "hosts": [{"name": "h", "port": 3260}],
            "initiator": "iqn.x:z",
            "auth": {"username": "u", "secret_usage": "n"},
        }
    },
    "nvme": {"nvme": {"address": "0000:01:00.0", "namespace": 1, "managed": True}},
    "nvme of the user": {"nvme": {"address": "0000:02:00.0", "namespace": 2, "managed": False}},
}


def guest(way: str) -> t.Any:
    """A guest with such a disk, as options."""
    return option_samples.understood({"disks": [{"name": "a", "format": "raw", **WAYS[way]}]})


def place(xml: str) -> dict[str, t.Any]:
    """What an import says of where the bytes are."""
    [entry] = imported(xml, autostart=False).arguments["disks"]
    return {option: entry[option] for option in PLACES if option in entry}


# Within a protocol, what is not said stays (tls).
PAIRS = [pair for pair in itertools.permutations(WAYS, 2) if pair != ("nbd", "nbd on a socket")]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_another_way_replaces_all_of_the_former(before: str, after: str) -> None:
    found = option_samples.grafted(guest(before), option_samples.bases()["bare"]).xml
    found = found.replace(
        "<target ", "<backingStore type='file'><format type='raw'/><source file='/b'/></backingStore><target ", 1
    )
    told = option_samples.grafted(guest(after), found)
    assert place(told.xml) == WAYS[after]
    assert not option_samples.grafted(guest(after), option_samples.stored(told.xml)).changes
    [disk] = parse(told.xml).findall("devices/disk")
    assert len(disk.findall("source")) == 1 and disk.find("backingStore") is None
    assert len(disk.findall(".//auth")) == ("auth" in WAYS[after].get("network", {}))


def test_within_a_protocol_what_is_not_said_stays() -> None:
    found = option_samples.grafted(guest("nbd"), option_samples.bases()["bare"]).xml
    told = option_samples.grafted(guest("nbd on a socket"), found)
    assert place(told.xml)["network"] == {**WAYS["nbd on a socket"]["network"], "tls": True}
    assert [str(change) for change in told.changes] == ["disks[a].network.socket: (unset) -> /run/nbd.sock"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"protocol": "nbd"}, "network.protocol nbd requires one host, not 0; set network.hosts or network.socket"),
        (
            {"protocol": "iscsi", "name": "a/1", "hosts": [{"name": "h"}, {"name": "i"}]},
            "network.protocol iscsi requires one host, not 2; set network.hosts",
        ),
        ({"protocol": "rbd"}, "network.name of .*network.protocol rbd requires it"),
        (
            {"protocol": "rbd", "name": "a/b", "auth": {"username": "u"}},
            "network.auth.username requires network.auth.secret_uuid or network.auth.secret_usage; store the secret",
        ),
        (
            {"protocol": "rbd", "name": "a/b", "auth": {"secret_usage": "u"}},
            "network.auth.secret_usage.* it requires network.auth.username",
        ),
    ],
)
def test_what_is_incomplete_is_refused(options: dict[str, t.Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        option_samples.grafted(
            option_samples.understood({"disks": [{"name": "a", "network": options}]}), option_samples.bases()["new"]
        )


def test_a_lun_on_the_network_is_of_iscsi() -> None:
    for way, taken in (("iscsi", True), ("rbd", False), ("http", False)):
        wanted = option_samples.understood({"disks": [{"name": "a", "device": "lun", **WAYS[way]}]})
        if taken:
            assert option_samples.grafted(wanted, option_samples.bases()["new"])
        else:
            with pytest.raises(BadInput, match="a lun on the network must be of protocol iscsi; use device: disk"):
                option_samples.grafted(wanted, option_samples.bases()["new"])


def test_an_nvme_device_is_one_of_its_namespaces() -> None:
    wanted = option_samples.understood({"disks": [{"name": "a", "nvme": {"address": "0000:01:00.0"}}]})
    with pytest.raises(BadInput, match=r"nvme.address requires nvme.namespace; the first one is 1"):
        option_samples.grafted(wanted, option_samples.bases()["new"])


def test_servers_and_login_go_when_that_is_said() -> None:
    found = option_samples.grafted(guest("rbd"), option_samples.bases()["new"]).xml
    less = {"protocol": "rbd", "hosts": [], "snapshot": "", "config": "", "auth": {"username": ""}}
    told = option_samples.grafted(option_samples.understood({"disks": [{"name": "a", "network": less}]}), found)
    assert place(told.xml) == {"network": {"protocol": "rbd", "name": "pool/a"}}
    [source] = parse(option_samples.stored(told.xml)).findall("devices/disk/source")
    assert not len(source)


@pytest.mark.parametrize("way", WAYS)
def test_a_new_disk_comes_back_from_an_import(way: str) -> None:
    made = option_samples.grafted(guest(way), option_samples.bases()["new"]).xml
    assert place(option_samples.stored(made)) == WAYS[way]
    assert "<disk" not in (imported(made, autostart=False).arguments.get("xml") or "")


@pytest.mark.parametrize("option", ["source", "volume", "url"])
@pytest.mark.parametrize("way", WAYS)
def test_an_empty_text_ejects_a_medium_wherever_it_is(way: str, option: str) -> None:
    drive = {"name": "a", "format": "raw", "device": "cdrom"}
    found = option_samples.grafted(
        option_samples.understood({"disks": [{**drive, **WAYS[way]}]}), option_samples.bases()["bare"]
    ).xml
    wanted = option_samples.understood({"disks": [{**drive, option: ""}]})
    told = option_samples.grafted(wanted, found)
    assert [(change.where, change.after) for change in told.changes] == [(f"disks[a].{option}", "")]
    [disk] = parse(told.xml).findall("devices/disk")
    assert disk.find("source") is None and disk.find(".//auth") is None and disk.get("type") == "file"
    assert not option_samples.grafted(wanted, option_samples.stored(told.xml)).changes


@pytest.mark.parametrize("policy", ["", "optional"])
def test_an_empty_drive_of_a_running_guest_has_nothing_to_eject(policy: str) -> None:
    """libvirt prints a source without a place for it, with the number of its node in QEMU."""
    drive = {"name": "a", "device": "cdrom", **({"startup_policy": policy} if policy else {})}
    wanted = option_samples.understood({"disks": [{**drive, "source": ""}]})
    full = option_samples.grafted(
        option_samples.understood({"disks": [{**drive, "source": "/srv/a.iso"}]}), option_samples.bases()["bare"]
    ).xml
    told = option_samples.grafted(wanted, full)
    assert [(change.where, change.after) for change in told.changes] == [("disks[a].source", "")]
    root = parse(told.xml)
    [disk] = root.findall("devices/disk")
    source = disk.find("source")
    assert (None if source is None else dict(source.attrib)) == ({"startupPolicy": policy} if policy else None)
    for old in disk.findall("source"):
        disk.remove(old)
    disk.append(disk.makeelement("source", {"index": "2", **({"startupPolicy": policy} if policy else {})}))
    assert not option_samples.grafted(wanted, text(root)).changes


@pytest.mark.parametrize(
    ("source", "kind", "medium"),
    [
        ("", "file", None),
        ("<source index='2'/>", "file", None),  # an empty drive of a running guest
        ("<source startupPolicy='optional'/>", "file", None),
        ("<source file='/a'/>", "file", {"source": "/a", "protocol": None}),
        ("<source dev='/dev/a'/>", "block", {"source": "/dev/a", "protocol": None}),
        ("<source pool='p' volume='v'/>", "volume", {"pool": "p", "volume": "v", "protocol": None}),
        ("<source protocol='nbd'><host name='h'/></source>", "network", {"protocol": "nbd"}),
        ("<source protocol='gluster' name='v/a'><host name='h'/></source>", "network", {"protocol": "gluster"}),
        ("<source dir='/d'/>", "dir", {"protocol": None}),
    ],
)
def test_what_is_in_a_drive(source: str, kind: str, medium: dict[str, t.Any] | None) -> None:
    root = parse(f"<domain><devices><disk type='{kind}'>{source}<target dev='vda'/></disk></devices></domain>")
    found = fields_disk.media(root)
    assert bool(found) == bool(medium)
    for one in found:
        assert {**one, **(medium or {}), "type": kind, "target": "vda"} == one
