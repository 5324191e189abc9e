# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a guest's disk, checked before anything is looked at. Pure."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.uri import is_here
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import reserve_of

_SECTOR_BYTES = 512  # QEMU rounds sizes up to these
# What only a disk that is there or made has to do with, by state.
_SPOKEN = {
    "present": ("image", "image_pool", "clone", "size", "format", "allow_shrink"),
    "rebased": ("image", "image_pool"),
    "flattened": (),
    "absent": ("remove_storage",),
}


def concerns(params: t.Mapping[str, t.Any]) -> bool:
    """True if the task is about a disk, not about an image to import into the pool."""
    return params["state"] in ("rebased", "flattened") or any(
        params[option] for option in ("image", "size", "clone", "remove_storage")
    )


def check_local(uri: str) -> None:
    """Raise Refused for libvirt on another machine: disks are files."""
    if not is_here(uri):
        raise Refused(f"cannot manage disks over {uri}: they are files there; run the module on that hypervisor")


def check_image(name: str, pool: str, *, there: bool) -> None:
    """Raise NotFound for an image that does not exist."""
    if not there:
        raise NotFound(f"there is no image {name} in pool {pool}; import it with virt_image")


def size_bytes(params: t.Mapping[str, t.Any]) -> int | None:
    """The requested size, None if there is none; raises BadInput with every problem of the options."""
    problems, size = Problems(), None
    for option in ("name", "image"):
        if params[option] is not None:
            problems.tried(functools.partial(units.check_name, params[option], what=option))
    problems.tried(functools.partial(reserve_of, params["reserve"]))
    if params["size"] is not None:
        size = problems.tried(functools.partial(units.bytes_of, params["size"], bare="G", what="size"))
    problems.found += _contradictions(params)
    problems.refuse()
    return None if size is None else -(-size // _SECTOR_BYTES) * _SECTOR_BYTES


def _contradictions(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Contradictions between the options."""
    name, state, image, form = params["name"], params["state"], params["image"], format_of(params)
    present = state == "present"
    for option in ("url", "src", "origin", "checksum", "prune"):
        if params.get(option):
            yield f"{option}: it imports an image into the pool; create a disk from that image in a separate task"
    for option in sorted({option for options in _SPOKEN.values() for option in options} - set(_SPOKEN[state])):
        if params[option]:
            yield f"{option}: it does not apply to state {state}; omit it"
    for option in ("clone", "image_pool"):
        if present and params[option] and not image:
            yield f"{option}: it says how a disk is created from image; set image too"
    rules = {
        f"name: {name} is the content of an image, which may back other disks and never changes; choose another name": (
            units.is_content(name)
        ),
        f"image: a disk cannot be created from itself; name and image are both {name}": image == name
        and params["image_pool"] in (None, params["pool"]),
        "image: state rebased requires it as the new backing file": state == "rebased" and not image,
        "allow_shrink: it allows a smaller size; set size too": present
        and params["allow_shrink"]
        and not params["size"],
        f"format of {name} is unclear: end the name in .qcow2, .raw or .img, or set format": state != "absent"
        and not form,
        "format: only qcow2 can have a backing file; set clone: copy for a raw disk": (
            present and image and form == "raw" and params["clone"] != "copy"
        ),
        f"job_timeout: {params['job_timeout']} must be at least 1 second": params["job_timeout"] < 1,
    }
    yield from (problem for problem, holds in rules.items() if holds)


def format_of(params: t.Mapping[str, t.Any]) -> str:
    """The format from the option or the name's ending, else empty: a disk that a guest wrote is never probed."""
    return str(params["format"] or units.format_of(params["name"]) or "")
