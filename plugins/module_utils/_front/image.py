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
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import content as contents
from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._files import workplace
from ansible_collections.corral.virt.plugins.module_utils._files.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Progress
from ansible_collections.corral.virt.plugins.module_utils._front import pool_directory
from ansible_collections.corral.virt.plugins.module_utils._front.fetching import Fetching, World, published
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Manifest, Source, Sums, parse_checksum
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

__all__ = ["OPTIONS", "World", "converge"]

OPTIONS: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "pool": {"type": "str", "default": "default"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "url": {"type": "str"},
    "src": {"type": "path"},
    "remote_src": {"type": "bool", "default": False},
    "origin": {"type": "str"},
    "origin_uri": {"type": "str"},
    "origin_pool": {"type": "str"},
    "checksum": {"type": "str"},
    "signature": {"type": "str"},
    "keyring": {"type": "str", "no_log": False},
    "format": {"type": "str", "choices": ["qcow2", "raw"]},
    "current": {"type": "bool", "default": True},
    "prune": {"type": "bool", "default": False},
    "retries": {"type": "int", "default": 4},
}
_SOURCES = ("url", "src", "origin")


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, world: World) -> dict[str, t.Any]:
    """Do what the parameters say."""
    given, source = _checked(params), _source(params)
    directory = pool_directory.directory(connection, params["pool"], "images")
    checksum = published(world.open_url, given, source, params) if isinstance(given, Sums) else given
    image = Image(params["name"], directory, _format(params), source, checksum, current=params["current"])
    work = _Work(connection, params, image, world)
    steps = work.plan()
    before = work.found.target
    if gate.open and steps:
        with contextlib.ExitStack() as stack:
            # Somebody else may be at it: wait, and look again.
            stack.enter_context(workplace.locked(image))
            steps = work.bringing()
            before = work.found.target
            gate.run(steps, work.do)
            gone = work.removing([], stack)
            gate.run(gone, work.do)
            steps += gone
            workplace.tidy(image)
        storage.refresh(connection, params["pool"])
    return work.result(steps, before, gate)


class _Work:
    """One image: what is found, and the steps on it."""

    def __init__(self, connection: t.Any, params: t.Mapping[str, t.Any], image: Image, world: World) -> None:
        self.connection, self.params = connection, params
        self.fetching, self.found = Fetching(image, params, world), files.look(image)
        self.absent = params["state"] == "absent"
        self.notes: list[str] = []
        self.fetched: Manifest | None = None

    @property
    def image(self) -> Image:
        """What is known of it; the other hypervisor tells more."""
        return self.fetching.image

    def plan(self) -> list[plans.ImageStep]:
        """The steps from what is there now."""
        steps = self.bringing()
        return [*steps, *self.removing(steps)]

    def bringing(self) -> list[plans.ImageStep]:
        """Steps until the name points to the wanted content."""
        self.found = files.look(self.image)
        if self.absent:
            return []
        steps = plans.present(self.image, self.found)
        if steps and self.image.source and self.image.source.kind == "origin" and isinstance(steps[0], plans.Fetch):
            self.fetching.ask_origin()
            steps = plans.present(self.image, self.found)
        return steps

    def removing(self, bringing: t.Sequence[plans.ImageStep], stack: contextlib.ExitStack | None = None) -> list[plans.ImageStep]:
        """Steps that remove what nobody stands on. With a stack nobody begins to, until it is closed."""
        if not (self.absent or self.params["prune"]):
            return []
        self.found = files.look(self.image)
        old = plans.old(self.image, self.found, bringing, every=self.absent)
        claimed = contents.claim([os.path.join(self.image.directory, file) for file in old], stack) if stack else set()
        users = pool_directory.users(self.connection, self.image.directory) if old else {}
        users.update({os.path.basename(path): "a disk that is being made" for path in claimed})
        if self.absent:
            return plans.absent(self.image, self.found, users)
        steps, self.notes = plans.superseded(self.image, old, users)
        return steps

    def do(self, step: plans.ImageStep) -> None:
        """Hand a step to the room that knows how."""
        if isinstance(step, plans.Fetch):
            try:
                with Progress(workplace.path(self.image, "progress")) as tell:
                    self.fetched = self.fetching.fetch(tell)
            except VirtError:
                if not os.path.exists(self.fetching.part):  # nothing that another run could go on with
                    workplace.tidy(self.image)
                raise
        elif isinstance(step, plans.Point):
            files.point(self.image, step.target or t.cast(Manifest, self.fetched).content)
        elif isinstance(step, plans.Remove):
            for name in (step.file, contents.manifest_name(step.file)):
                remove(os.path.join(self.image.directory, name))

    def result(self, steps: t.Sequence[plans.ImageStep], before: str | None, gate: Gate) -> dict[str, t.Any]:
        """What the module returns; in check mode the same as afterwards, as far as it can be known."""
        points = [step.target for step in steps if isinstance(step, plans.Point)]
        after = None if self.absent else points[-1] if points else before
        if self.image.checksum and not self.image.current and not self.absent:
            after = self.image.content_name(self.image.checksum.hex)
        if self.fetched:
            after = self.fetched.content
        told: dict[str, t.Any] = {"name": self.image.name, "path": os.path.join(self.image.directory, self.image.name), "content": after}
        if self.image.checksum:
            told["checksum"] = str(self.image.checksum)
        if any(isinstance(step, plans.Fetch) for step in steps):
            part = self.fetching.part
            told["fetched_from"] = t.cast(Source, self.image.source).location
            told["part"] = {"path": part, "bytes": os.path.getsize(part) if os.path.exists(part) else 0} if not gate.open else None
        shown = after or "(fetched)" if points else after
        changes = [Change("image", before, shown)] if before != shown and self.image.current else []
        if steps and not self.image.current and not self.absent:
            changes.append(Change(f"content {after}", "absent", "present"))
        removed = [step.file for step in steps if isinstance(step, plans.Remove) and step.file != self.image.name]
        changes += [Change(f"content {file}", "present", "absent") for file in removed if file != before]
        return {
            "changed": bool(steps),
            "steps": [str(step) for step in steps],
            "notes": self.notes,
            "diff": _changes.diff(changes),
            **{key: value for key, value in told.items() if value is not None or key == "content"},
        }


def _checked(params: t.Mapping[str, t.Any]) -> Checksum | Sums | None:
    """The checksum that is asked for; raises BadInput with every problem."""
    problems: list[str] = []
    checksum: Checksum | Sums | None = None
    try:
        _units.check_name(params["name"], what="name")
    except BadInput as error:
        problems += error.problems
    given = [option for option in _SOURCES if params[option]]
    if given[1:]:
        problems.append(f"{' and '.join(given)} exclude each other; say one place the image comes from")
    if params["checksum"] is None:
        if params["url"] and params["state"] == "present":
            problems.append(f"checksum of {params['name']} is missing: nothing is downloaded unverified; give it, or say checksum: none")
    elif params["checksum"] != "none":
        try:
            checksum = parse_checksum(params["checksum"])
        except BadInput as error:
            problems += error.problems
    if params["url"] and not params["url"].startswith(("http://", "https://")):
        problems.append(f"url: {params['url']!r} must begin with http:// or https://")
    if not params["current"] and (checksum is None or params["state"] == "absent" or params["prune"]):
        problems.append("current: false brings one content and lets the name be; say with checksum which, and leave out state and prune")
    if params["retries"] < 0:
        problems.append(f"retries: must not be below 0, it is {params['retries']}")
    problems += _about_signature(params, isinstance(checksum, Sums))
    if problems:
        raise BadInput(problems)
    return checksum


def _about_signature(params: t.Mapping[str, t.Any], sums: bool) -> t.Iterator[str]:
    said, keyring = params["signature"], params["keyring"]
    if said and not sums:
        yield "signature: a list of checksums is signed; give its URL as checksum"
    if said and not keyring:
        yield "signature: say with keyring whose signature is trusted"
    if keyring and not said:
        yield "keyring: say with signature where the list's signature is (a URL, or inline)"
    if said and said != "inline" and not said.startswith(("http://", "https://")):
        yield f"signature: {said!r} must be inline, or begin with http:// or https://"


def _source(params: t.Mapping[str, t.Any]) -> Source | None:
    if params["url"]:
        return Source("url", params["url"])
    if params["src"]:
        return Source("file" if params["remote_src"] else "upload", params["src"])
    if params["origin"]:
        return Source("origin", params["origin_uri"] or f"qemu+tls://{params['origin']}/system")
    return None


def _format(params: t.Mapping[str, t.Any]) -> str:
    form = params["format"] or _units.format_of(params["name"])
    if form is None and params["state"] == "absent":
        return "qcow2"  # nothing is made
    if form is None:
        raise BadInput(f"format of {params['name']} is unclear: let the name end in .qcow2, .raw or .img, or set format")
    return t.cast(str, form)
