# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one image into a pool: fetch facts, plan, gate, report."""

from __future__ import annotations

import contextlib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, storage
from ansible_collections.corral.virt.plugins.module_utils._model.image import (
    Checksum,
    Image,
    Source,
    checksum_in,
    parse_checksum,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans
from ansible_collections.corral.virt.plugins.module_utils._qemu_img import run as qemu_img
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import caps

__all__ = ["OPTIONS", "converge"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "pool": {"type": "str", "default": "default"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "url": {"type": "str"},
    "src": {"type": "path"},
    "checksum": {"type": "str"},
    "format": {"type": "str", "choices": ["qcow2", "raw"]},
}
_KNOWN = ("qcow2", "raw", "vmdk", "vdi", "vhdx", "vpc")
_ENDINGS = {"qcow2": "qcow2", "raw": "raw", "img": "raw"}


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, opener: files.Opener) -> dict[str, t.Any]:
    """Do what the parameters say; `opener` reads an URL."""
    checksum, sums = _checked(params)
    pool = caps.pool(storage.pool_xml(connection, params["pool"]))
    if pool["type"] not in ("dir", "fs", "netfs") or not os.path.isdir(pool["path"] or ""):
        raise Refused(f"cannot keep images in pool {params['pool']}: it is no directory of this machine; use a dir, fs or netfs pool")
    source = Source(params["url"], True) if params["url"] else Source(params["src"], False) if params["src"] else None
    if sums and source:
        checksum = _published(opener, sums, source)
    image = Image(params["name"], pool["path"], _format(params), source, checksum)
    with contextlib.ExitStack() as stack:
        found = files.look(image)
        steps = _steps(connection, params, image, found)
        if gate.open and steps:
            # Somebody else may be at it: wait, and look again.
            stack.enter_context(files.locked(image.directory))
            found = files.look(image)
            steps = _steps(connection, params, image, found)
        fetched: list[str] = []
        gate.run(steps, lambda step: _do(step, opener, fetched))
        if gate.open and steps:
            storage.refresh(connection, params["pool"])
    target = files.look(image).target
    wanted_target = image.content_name(checksum.hex) if checksum else None
    absent = params["state"] == "absent"
    after = None if absent else target if gate.open else wanted_target or found.target
    return {
        "changed": bool(steps),
        "steps": [str(step) for step in steps],
        "diff": _changes.diff([Change("image", found.target, after if absent else after or "(fetched)")] if steps else []),
        "name": image.name,
        "path": os.path.join(image.directory, image.name),
        "content": after,
    }


def _checked(params: t.Mapping[str, t.Any]) -> tuple[Checksum | None, tuple[str, str] | None]:
    problems: list[str] = []
    checksum: Checksum | None = None
    sums: tuple[str, str] | None = None
    try:
        _units.check_name(params["name"], what="name")
    except BadInput as error:
        problems += error.problems
    if params["url"] and params["src"]:
        problems.append("url and src exclude each other; say one place the image comes from")
    if params["checksum"] is None:
        if params["url"] and params["state"] == "present":
            problems.append(f"checksum of {params['name']} is missing: nothing is downloaded unverified; give it, or say checksum: none")
    elif params["checksum"] != "none":
        try:
            checksum, sums = parse_checksum(params["checksum"])
        except BadInput as error:
            problems += error.problems
    if params["url"] and not params["url"].startswith(("http://", "https://")):
        problems.append(f"url: {params['url']!r} must begin with http:// or https://")
    if problems:
        raise BadInput(problems)
    return checksum, sums


def _format(params: t.Mapping[str, t.Any]) -> str:
    form = params["format"] or _ENDINGS.get(params["name"].rpartition(".")[2])
    if form is None and params["state"] == "absent":
        return "qcow2"  # nothing is made
    if form is None:
        raise BadInput(f"format of {params['name']} is unclear: let the name end in .qcow2, .raw or .img, or set format")
    return t.cast(str, form)


def _published(opener: files.Opener, sums: tuple[str, str], source: Source) -> Checksum:
    algorithm, location = sums
    digest = checksum_in(files.read_text(opener, location), source.file, algorithm)
    if digest is None:
        raise Failed(f"cannot verify {source.location}: {location} holds no {algorithm} of {source.file}; is it the right SUMS file?")
    return Checksum(algorithm, digest)


def _steps(connection: t.Any, params: t.Mapping[str, t.Any], image: Image, found: t.Any) -> list[plans.ImageStep]:
    if params["state"] == "present":
        return plans.present(image, found)
    return plans.absent(image, found, users=_users(connection, image) if found.target else {})


def _users(connection: t.Any, image: Image) -> dict[str, str]:
    """Who stands on which file of the image's directory, in whatever pool."""
    users = {}
    for pool in look.pools(connection):
        if not pool["active"]:
            continue
        storage.refresh(connection, pool["name"])  # another host may have made an overlay on shared storage since
        for volume in map(caps.volume, storage.volumes(connection, pool["name"])):
            directory, file = os.path.split(os.path.realpath(volume["backing_path"] or "/"))
            if directory == os.path.realpath(image.directory):
                users[file] = volume["path"]
    return users


def _do(step: plans.ImageStep, opener: files.Opener, fetched: list[str]) -> None:
    image = step.image
    if isinstance(step, plans.Fetch):
        path, digest = files.download(opener, image)
        if image.source and image.source.compression:
            path = files.unpack(path, image.source.compression)
        path = _converted(path, image)
        fetched.append(image.content_name(digest))
        files.publish(path, image, fetched[-1])
    elif isinstance(step, plans.Point):
        files.point(image, step.target or fetched[-1])
    elif isinstance(step, plans.Remove):
        files.remove(os.path.join(image.directory, step.file))


def _converted(path: str, image: Image) -> str:
    """The image in the wanted format; one that leans on another file is refused: it could read any file of the host."""
    info = qemu_img.info(path)
    others = [file for file in _files_read(info) if os.path.realpath(file) != os.path.realpath(path)]
    if others or info["format"] not in _KNOWN:
        files.remove(path)
        reason = f"it refers to another file ({others[0]})" if others else f"its format {info['format']} is none of {', '.join(_KNOWN)}"
        raise Refused(f"refusing image {image.name}: {reason}")
    if info["format"] == image.format:
        return path
    converted = f"{path}.converted"
    files.remove(converted)
    qemu_img.convert(path, converted, from_format=info["format"], to_format=image.format)
    files.remove(path)
    return converted


def _files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for the image: itself, what it stands on, and what its format spreads it over."""
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")] + [data.get("data-file")]
    return [*filter(None, named), *(file for part in spread for file in _files_read(part))]
