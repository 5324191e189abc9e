# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Which disk images a guest needs, which exist, and which must be made: questions to the host, answers as data."""

from __future__ import annotations

import contextlib
import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import content as contents
from ansible_collections.corral.virt.plugins.module_utils._files import header
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, storage
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Disk, Found, Volume, Wanted
from ansible_collections.corral.virt.plugins.module_utils._model.image import Header
from ansible_collections.corral.virt.plugins.module_utils._plan import inspect, steps
from ansible_collections.corral.virt.plugins.module_utils._units import CONTENT_NAME, gib_text
from ansible_collections.corral.virt.plugins.module_utils._xml import caps
from ansible_collections.corral.virt.plugins.module_utils._xml import disk as disk_rows
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources

__all__ = ["UNSEEDED", "Making", "plan", "with_seed"]

DEFAULT_POOL = "default"
DEFAULT_SIZE_BYTES = 8 * 1024**3  # the seeds' default profile
_UNMADE = ".making"  # after the path of a disk that is not complete: libvirt finds no such file, and does not start the guest
UNSEEDED = ".unseeded"  # after that of one to which the seed is being applied: such a file there is, so no definition names it
_SEED = "-seed.iso"
_FILE_POOLS = ("dir", "fs", "netfs", "gluster")


@dataclasses.dataclass
class Making:
    """Disks with their sources filled in, and the steps that make or grow their images."""

    disks: tuple[Disk, ...] | None
    steps: list[steps.Step] = dataclasses.field(default_factory=list)
    making: tuple[str, ...] = ()  # paths that do not exist, or not completely, before the steps are done
    changes: list[Change] = dataclasses.field(default_factory=list)
    left: tuple[str, ...] = ()  # of an interrupted run, and not made by this one either
    seed: Volume | None = None
    replace_seed: bool = False

    def unmade(self) -> tuple[Disk, ...]:
        """The disks of a guest that nobody can start before the steps are done."""
        making = {path: path + _UNMADE for path in self.making if not path.endswith(_SEED)}
        sources = [(disk, disk.fields.get("source") or "") for disk in self.disks or ()]
        return tuple(_placed(disk, making[path]) if path in making else disk for disk, path in sources)

    def remember(self, memory: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """What must be remembered of the guest: which images are ours, and that none is unfinished any more."""
        owned = tuple(memory.get("volumes") or ())
        made = tuple(path for path in self.making if path not in owned)
        done: dict[str, t.Any] = {"making": self.left} if tuple(memory.get("making") or ()) != self.left else {}
        return {**done, **({"volumes": owned + made} if made else {})}


def plan(
    connection: t.Any, wanted: Wanted, base: str, found: Found | None, memory: t.Mapping[str, t.Any], held: contextlib.ExitStack
) -> Making:
    """Look at every wanted disk; raises BadInput, NotFound or Refused before anything is touched.

    Images that disks are made from stay until `held` is closed.
    """
    there = disk_rows.by_name(base) if found else {}
    for known in there.values():
        known["source"] = (known.get("source") or "").removesuffix(_UNMADE)
    unfinished, result = _unfinished(found, memory), Making(None)
    system = there.get("system")
    if wanted.disks is None and system and system.get("source") in unfinished and (wanted.image or _whole(wanted)):
        # It was made without `disks`, and is described so again: the one disk of the default profile.
        wanted = wanted.with_fields(disks=(Disk("system", image=wanted.image),))
    if wanted.disks is None:
        if unfinished and wanted.state in ("running", "paused", "rebooted") and found is not None and not found.active:
            raise Refused(
                f"cannot start {wanted.name}: an interrupted run left {', '.join(unfinished)} incomplete; say its disks again, to have "
                "them made, or remove the guest"
            )
        result.left = unfinished
        return result
    done: list[Disk] = []
    for item in wanted.disks:
        device = there.get(item.name)
        if item.state == "absent" or _as_it_is(item):
            done.append(item)
        elif device is None or device.get("source") in unfinished:
            done.append(_made(connection, wanted, item, unfinished, memory, result, held))
        else:
            _grown(connection, wanted, item, device, found, result)
            done.append(item)
    result.disks = tuple(done)
    result.left = tuple(path for path in unfinished if path not in result.making and not path.endswith(_SEED))
    return result


def _as_it_is(item: Disk) -> bool:
    """Whether the disk names what is there, or a drive that needs no medium."""
    return any(item.fields.get(way) for way in ("source", "volume", "url")) or item.fields.get("device", "disk") != "disk"


def _whole(wanted: Wanted) -> bool:
    """Whether the guest is described well enough to be made, not only to be changed."""
    return {"vcpus.current", "memory.current_kib"} <= set(wanted.fields)


def _unfinished(found: Found | None, memory: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Images that an interrupted run was making; one that the running guest has is kept as it is, whatever the record says."""
    in_use = set(sources(found.live_xml)) if found is not None and found.live_xml else set()
    return tuple(path for path in memory.get("making") or () if path.endswith(_SEED) or path not in in_use)


def with_seed(connection: t.Any, wanted: Wanted, making: Making, base: str) -> Making:
    """Add the cloud-init seed: a read-only virtio disk, because cloud kernels have no driver for SATA."""
    pool = next((item.pool for item in making.disks or () if item.pool), DEFAULT_POOL)
    device = disk_rows.by_name(base).get("seed")
    path = device.get("source") if device else None
    name = os.path.basename(path) if path else f"{wanted.name}{_SEED}"
    path = path or _path(connection, pool, name)
    exists = storage.volume_in(connection, pool, name) is not None
    ours = device is not None
    if exists and not ours:
        raise Refused(f"cannot make the seed of {wanted.name}: {path} exists and belongs to no guest of ours; remove it first")
    item = Disk("seed", fields={"source": path, "format": "raw", "bus": "virtio", "readonly": True})
    disks = [item, *(disk for disk in making.disks or () if disk.name != "seed")]
    return dataclasses.replace(
        making,
        disks=tuple(disks[1:] + disks[:1]),
        making=(*making.making, path),
        seed=Volume(pool=pool, name=name, path=path, capacity_bytes=1, format="raw"),
        replace_seed=ours,
    )


def _made(
    connection: t.Any,
    wanted: Wanted,
    item: Disk,
    unfinished: tuple[str, ...],
    memory: t.Mapping[str, t.Any],
    result: Making,
    held: contextlib.ExitStack,
) -> Disk:
    """A disk whose image must be made; one that was made for this guest and taken away from it comes back as it is."""
    pool, form = item.pool or DEFAULT_POOL, item.fields.get("format") or "qcow2"
    name = f"{wanted.name}-{item.name}.{'img' if form == 'raw' else form}"
    path = _path(connection, pool, name)
    size = item.size_bytes
    origin: dict[str, t.Any] = {}
    copied = item.clone == "copy"
    if item.image:
        origin = _image(connection, pool, item.image, wanted.name, held, copied=copied)
        if form != "qcow2" and not copied:
            raise BadInput(f"disk {item.name} of {wanted.name}: only qcow2 can stand on an image; set clone: copy, or format: qcow2")
        if size is not None and size < origin["capacity_bytes"]:
            raise BadInput(
                f"disk {item.name} of {wanted.name}: size {gib_text(size)} is smaller than its image {item.image} "
                f"({gib_text(origin['capacity_bytes'])})"
            )
        size = size or max(DEFAULT_SIZE_BYTES, origin["capacity_bytes"])
    exists = storage.volume_in(connection, pool, name) is not None
    if exists and path not in unfinished and path in (memory.get("volumes") or ()):
        _grown(connection, wanted, item, {"source": path}, None, result)
        return _placed(item, path, format=form)
    if exists and path not in unfinished:
        raise Refused(
            f"cannot make disk {item.name} of {wanted.name}: {path} exists already; remove it, or use it as it is with "
            f"disks[].source: {path}"
        )
    volume = Volume(
        pool=pool,
        name=name,
        path=path,
        capacity_bytes=size or DEFAULT_SIZE_BYTES,
        format=form,
        **({"copy_of": origin["path"]} if copied else {"backing_path": origin.get("path"), "backing_format": origin.get("format")}),
    )
    result.steps.append(steps.CreateVolume(wanted.name, volume, caps.new_volume(volume), replace=path in unfinished))
    result.making = (*result.making, path)
    return _placed(item, path, format=form)


def _placed(item: Disk, path: str, **more: str) -> Disk:
    return dataclasses.replace(item, fields={**item.fields, "source": path, **more})


def _grown(connection: t.Any, wanted: Wanted, item: Disk, device: t.Mapping[str, t.Any], found: Found | None, result: Making) -> None:
    """A disk that exists: grow it when asked, never shrink it."""
    path = device.get("source")
    if item.size_bytes is None or not path:
        return
    xml = storage.volume_at(connection, path)
    if xml is None:
        raise NotFound(f"cannot read the size of disk {item.name} of {wanted.name}: {path} is in no active storage pool")
    have = caps.volume(xml)["capacity_bytes"]
    if have > item.size_bytes:
        raise Refused(
            f"cannot shrink disk {item.name} of {wanted.name} from {gib_text(have)} to {gib_text(item.size_bytes)}: data would be lost; "
            "shrink what is in it, shut the guest down, and use virt_image with allow_shrink: true"
        )
    if have < item.size_bytes:
        grow = (wanted.name, path, item.size_bytes)
        running = found is not None and found.active
        result.steps.append(steps.GrowRunningDisk(*grow, device["target"]) if running else steps.GrowDisk(*grow))
        result.changes.append(Change(f"disks[{item.name}].size", gib_text(have), gib_text(item.size_bytes)))


def _image(connection: t.Any, pool: str, image: str, guest: str, held: contextlib.ExitStack, *, copied: bool) -> dict[str, t.Any]:
    xml = storage.volume_in(connection, pool, image)
    if xml is None:
        raise NotFound(f"cannot create {guest}: there is no image {image} in pool {pool}; bring it there with virt_image")
    found = caps.volume(xml)
    here = ":///" in connection.getURI()  # no host in it: this machine
    # A name like debian-12.qcow2 points to the current content; an overlay must stand on the content itself.
    content = contents.hold(found["path"], held) if here else found["path"]
    if not (here or copied or CONTENT_NAME.search(image)):
        raise Refused(
            f"cannot create {guest} on image {image} over {connection.getURI()}: from here the content behind that name cannot be told; "
            "name the content (as virt_image returns it), say clone: copy, or run the module on the hypervisor"
        )
    _no_guests_disk(connection, content, guest, image)
    # What libvirt calls the format is read from the first bytes, too: they have to be what the name says.
    seen = header.read(content) if here and os.path.isfile(content) else Header(found["format"], found["backing_path"])
    below = header.chain(content)[1:] if here else []
    form = inspect.base(f"create {guest} from image", content, seen, managed=bool(below) and all(map(contents.is_managed, below)))
    if form != found["format"]:
        raise Refused(f"cannot create {guest} from image {content}: libvirt takes it for {found['format']}; refresh pool {pool} and look")
    return {**found, "format": form} if copied else {**found, "path": content, "format": form}


def _no_guests_disk(connection: t.Any, path: str, guest: str, image: str) -> None:
    """A disk on another guest's disk would break when that guest writes."""
    if CONTENT_NAME.search(path):
        return  # immutable: nobody's disk
    for other, xml in look.of_all(connection, lambda other: (other.name(), other.XMLDesc())):
        if path in sources(xml):
            raise Refused(f"cannot create {guest} on image {image}: it is a disk of guest {other}; use an image from virt_image")


def _path(connection: t.Any, pool: str, name: str) -> str:
    found = caps.pool(storage.pool_xml(connection, pool))
    if found["type"] not in _FILE_POOLS or not found["path"]:
        raise Refused(f"cannot make {name} in pool {pool}: it is of type {found['type']}; disks are files, so use a dir, fs or netfs pool")
    return os.path.join(found["path"], name)
