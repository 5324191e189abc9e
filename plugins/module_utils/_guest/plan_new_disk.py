# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what the image of a disk is made of, and refuse what it cannot be made of. Pure."""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, check_name, is_content
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, Original, Volume
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_inspect, plan_pool_files
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import DiskOrigin, Site, SiteOf

__all__ = ["file_name", "format_of", "site", "volume"]

_DEFAULT_SIZE_BYTES = 8 * 1024**3  # the seeds' default profile


def format_of(item: Disk) -> str:
    """The format of a disk that is made."""
    return item.fields.get("format") or "qcow2"


def file_name(guest: str, item: Disk) -> str:
    """The name that its file has in its pool."""
    form = format_of(item)
    check_name(guest, what=f"a new file for disk {item.name} is named after its guest")
    return f"{guest}-{item.name}.{'img' if form == 'raw' else form}"


def site(guest: str, item: Disk) -> SiteOf:
    """What must be known before the image is planned. A copy goes where its original is."""
    if item.copy_of:
        return SiteOf(item.pool, file_name(guest, item), copy_of=item.copy_of.path)
    return SiteOf(item.pool or POOL, file_name(guest, item), item.image)


def volume(guest: str, item: Disk, site: Site) -> Volume:
    """The image of a disk as it would be made; raises BadInput, NotFound or Refused for one that cannot be."""
    name, form = file_name(guest, item), format_of(item)
    path, size = plan_pool_files.file_in(site.pool, name), item.size_bytes or _DEFAULT_SIZE_BYTES
    below: dict[str, t.Any] = {}
    if item.copy_of:
        origin = _checked_original(guest, item, item.copy_of, site)
        size, below = item.size_bytes or origin.capacity_bytes, {"copy_of": origin.path}
    elif item.image:
        origin = _checked_origin(guest, item, item.image, site)
        size = item.size_bytes or max(_DEFAULT_SIZE_BYTES, origin.capacity_bytes)
        below = {"backing_path": origin.content, "backing_format": origin.format}
        if item.clone == "copy":
            below = {"copy_of": origin.path}
    return Volume(pool=site.pool.name, name=name, path=path, capacity_bytes=size, format=form, **below)


def _checked_origin(guest: str, item: Disk, image: str, site: Site) -> DiskOrigin:
    """The image, with its format as its first bytes say; raises what speaks against making the disk from it."""
    copied, size = item.clone == "copy", item.size_bytes
    origin = _usable(guest, image, site, copied=copied)
    if format_of(item) != "qcow2" and not copied:
        raise BadInput(
            f"disk {item.name} of {guest}: only qcow2 can have a backing file; set clone: copy, or format: qcow2"
        )
    if size is not None and size < origin.capacity_bytes:
        raise BadInput(
            f"disk {item.name} of {guest}: size {bytes_text(size)} is smaller than its image {image} "
            f"({bytes_text(origin.capacity_bytes)})"
        )
    return origin


def _checked_original(guest: str, item: Disk, original: Original, site: Site) -> DiskOrigin:
    """The disk to be copied; raises what speaks against it.

    What a guest wrote into a raw disk is data, whatever it looks like. libvirt may have looked at the file before, or
    look again before it copies: so its word and the first bytes must both agree with the definition.
    """
    origin, size, what = site.origin, item.size_bytes, f"disk {item.name} of {original.guest}"
    cannot = f"cannot copy {what} for {guest}"
    if origin is None:
        raise NotFound(f"{cannot}: {original.path} does not exist; check that guest's disks")
    if not origin.here:
        remedy = (
            f"from here {original.guest} cannot be kept from starting in the meantime; run the module on the hypervisor"
        )
        raise Refused(f"{cannot} over {origin.uri}: {remedy}")
    if origin.written:
        who = f"a QEMU process, perhaps on another host, writes to {origin.path}"
        raise Refused(f"{cannot}: {who}; on this host `fuser -v {shlex.quote(origin.path)}` shows which")
    other = {origin.format, origin.header.format} - {original.format}
    if other:
        raise Refused(
            f"{cannot}: {original.guest} uses it as {original.format}, and its first bytes say "
            f"{', '.join(sorted(other))}; copy it manually with qemu-img convert -f {original.format}, and set that "
            f"copy as disks[].source of {guest}"
        )
    if size is not None and size < origin.capacity_bytes:
        have = bytes_text(origin.capacity_bytes)
        raise BadInput(f"disk {item.name} of {guest}: size {bytes_text(size)} is smaller than {what} ({have})")
    return origin


def _usable(guest: str, image: str, site: Site, *, copied: bool) -> DiskOrigin:
    """An image that guests can have; raises what it is instead."""
    origin, pool = site.origin, site.pool.name
    if origin is None:
        raise NotFound(f"cannot create {guest}: there is no image {image} in pool {pool}; import it with virt_image")
    if not (origin.here or copied or is_content(image)):
        raise Refused(
            f"cannot create {guest} on image {image} over {origin.uri}: from here the content behind that name cannot "
            "be determined; name the content (as virt_image returns it), set clone: copy, or run the module on the "
            "hypervisor"
        )
    if origin.guest is not None:  # it would break when that guest writes
        raise Refused(
            f"cannot create {guest} on image {image}: it is a disk of guest {origin.guest}; use an image from "
            "virt_image"
        )
    form = plan_inspect.base(f"create {guest} from image", origin.content, origin.header, managed=origin.managed)
    if form != origin.format:
        raise Refused(
            f"cannot create {guest} from image {origin.content}: libvirt detects it as {origin.format}; refresh pool "
            f"{pool} and check it"
        )
    return origin
