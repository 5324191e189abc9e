# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether both hosts have one disk: one file, one block device, one image on the network. Pure.

A path, a device number and the name of a pool prove nothing.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import VolumeFile

_CACHED_S = 60  # a client of a shared filesystem may tell a file's time so late


def may_be_one_file(here: VolumeFile, there: VolumeFile, *, fixed: bool, active: bool) -> bool:
    """True if nothing tells that the hosts see different files. A running guest writes to its file between two looks;
    copies of a file that nobody writes to are as good.
    """
    said = [(one.format, one.capacity_bytes, one.backing_path) for one in (here, there)]
    if said[0] != said[1] or (here.physical_bytes != there.physical_bytes and not active):
        return False
    later_s = there.modified_s - here.modified_s
    return fixed or (later_s >= -_CACHED_S and (active or later_s <= _CACHED_S))


def tell_one_file(first: tuple[int, int], later: tuple[int, int]) -> bool:
    """True if two looks at a file that a guest writes to, from both hosts, prove that they see one: the server tells
    both when it was changed, and a copy has a time of its own, which no user sets and which stands still.
    """
    return later[0] == later[1] or (later[0] > first[0] and later[1] > first[1])


@dataclasses.dataclass(frozen=True)
class Device:
    """A block device, as libvirt of a host knows it."""

    size_bytes: int
    links: tuple[str, ...] = ()  # udev's names
    pool_type: str = ""  # of the pool that holds it
    key: str = ""  # the volume's key


# Numbers that a server assigns itself (NAA 3, T10, no company) are the same on many of them.
_WWN = r"((?!.0{6})[256][0-9a-f]{15}(?:[0-9a-f]{16})?)"
_BY_LINK = (
    ("WWN", re.compile(f"/dev/disk/by-id/(?:wwn-0x|scsi-3|dm-uuid-mpath-3){_WWN}")),
    ("NVMe namespace", re.compile(r"/dev/disk/by-id/nvme-((?:eui|uuid|nvme)\..+)")),
    ("LVM group", re.compile(r"/dev/disk/by-id/dm-uuid-LVM-(\w{32})\w{32}")),
    ("LVM volume", re.compile(r"/dev/disk/by-id/dm-uuid-LVM-\w{32}(\w{32})")),
    ("iSCSI LUN", re.compile(r"/dev/disk/by-path/ip-(?!127\.|\[::1\]|localhost).+-iscsi-(.+-lun-\d+)")),
)
_BY_KEY = {
    "logical": ("LVM volume", re.compile(r"((?:\w+-)+\w+)")),
    **dict.fromkeys(("iscsi", "scsi", "mpath"), ("WWN", re.compile(f"3{_WWN}"))),
}


def identified(device: Device) -> dict[str, str]:
    """What identifies a device beyond its host, by kind."""
    by_link = ((kind, known.fullmatch(link)) for link in device.links for kind, known in _BY_LINK)
    found = {kind: match[1] for kind, match in by_link if match}
    if device.pool_type in _BY_KEY:
        kind, known = _BY_KEY[device.pool_type]
        if match := known.fullmatch(device.key):
            found[kind] = match[1].replace("-", "")
    return found


def other_device(here: Device | None, there: Device | None, *, declared: bool) -> tuple[str, str]:
    """What proves that both hosts have one device, and why they do not or may not; one of them is empty.

    A device that the user has `declared` to be shared needs no proof, but nothing may contradict.
    """
    if here is None or there is None:
        lacking = "the source" if here is None else "the destination"
        return "", "" if declared else f"libvirt of {lacking} does not know it, so it cannot be compared"
    ours, theirs = identified(here), identified(there)
    both = [kind for kind in ours if kind in theirs]
    differ = [
        f"{kind} {ours[kind]} here and {theirs[kind]} on the destination" for kind in both if ours[kind] != theirs[kind]
    ]
    if differ:
        return "", f"it is {', '.join(differ)}"
    if here.size_bytes != there.size_bytes:
        return "", f"it has {here.size_bytes} bytes here and {there.size_bytes} on the destination"
    if both:
        return ", ".join(f"{kind} {ours[kind]}" for kind in both), ""
    known = " and ".join(f"{', '.join(ids) or 'nothing'} {at}" for ids, at in ((ours, "here"), (theirs, "there")))
    return "", "" if declared else f"nothing identifies it on both hosts ({known})"


_OWN = re.compile(r"localhost(\..*)?|ip6-localhost|127\.\d.*|::1|0\.0\.0\.0|::|/.*")


def own_server(servers: t.Collection[str]) -> str:
    """Why the servers of a network disk may be others on the destination; empty if both hosts reach the same."""
    own = next((server for server in servers if _OWN.fullmatch(server)), None)
    if own is not None:
        return f"{own} is another server on each host"
    return "" if servers else "its definition names no server"


@dataclasses.dataclass(frozen=True)
class PoolSource:
    """Where a pool's volumes come from."""

    type: str
    servers: tuple[str, ...]
    name: str  # of the Ceph pool, the Gluster volume or the target

    def __str__(self) -> str:
        return f"{self.type} {','.join(self.servers) or 'of no named server'} {self.name}"


def other_pool(here: PoolSource | None, there: PoolSource | None, *, declared: bool) -> str:
    """Why pools of one name are not one storage; empty if they are, or if nothing contradicts that they are `declared`
    to be.
    """
    if here is None or there is None:
        return f"{'the source' if here is None else 'the destination'} has no such pool"
    if (here.type, here.name) != (there.type, there.name):
        return f"the pool is {here} here and {there} on the destination"
    if declared:
        return ""
    if here.servers and there.servers and not {*here.servers} & {*there.servers}:
        return f"the pool is {here} here and {there} on the destination"
    return own_server([*here.servers, *there.servers])


_FSID = re.compile(r"^\s*fsid\s*=\s*([0-9a-fA-F-]{36})\s*$", re.MULTILINE)


def cluster(configuration: bytes | None) -> str | None:
    """The FSID in the text of a host's ceph.conf; None if it has none."""
    found = _FSID.search((configuration or b"").decode(errors="replace"))
    return found[1].lower() if found else None


def other_cluster(here: str | None, there: str | None) -> str:
    """Why two hosts, with these FSIDs in their ceph.conf, may use different Ceph clusters; empty if it is one."""
    if here and there:
        return "" if here == there else f"the Ceph cluster is {here} here and {there} on the destination"
    lacking = "the source" if not here else "the destination"
    return f"its definition names no server, and /etc/ceph/ceph.conf of {lacking} has no fsid"
