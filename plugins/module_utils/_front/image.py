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
from ansible_collections.corral.virt.plugins.module_utils._model.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._model.room import MAX_SIZE, Bounds, reserve_of
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans
from ansible_collections.corral.virt.plugins.module_utils._plan import inspect
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
    "max_size": {"type": "str", "default": MAX_SIZE},
    "reserve": {"type": "str"},
}
_SOURCES = ("url", "src", "origin")
_PROOF = "give as checksum the digest itself, or a list that comes over https or is signed (signature, keyring)"


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, world: World) -> dict[str, t.Any]:
    """Do what the parameters say."""
    (given, bounds), source = _checked(params), _source(params)
    directory = pool_directory.directory(connection, params["pool"], "images")
    checksum, doubt = published(world.open_url, given, source, params) if isinstance(given, Sums) else (given, "")
    image = Image(params["name"], directory, _format(params), source, checksum, current=params["current"], doubt=doubt)
    work = _Work(connection, params, Fetching(image, params, world, bounds), gate)
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

    def __init__(self, connection: t.Any, params: t.Mapping[str, t.Any], fetching: Fetching, gate: Gate) -> None:
        self.connection, self.params, self.gate = connection, params, gate
        self.fetching, self.found = fetching, files.look(fetching.image)
        self.absent = params["state"] == "absent"
        self.notes: list[str] = []
        self.read_again = False
        self.fetched: Manifest | None = None

    @property
    def image(self) -> Image:
        """What is known of it; the other hypervisor tells more."""
        return self.fetching.image

    def plan(self) -> list[plans.ImageStep]:
        """The steps from what is there now."""
        workplace.check(self.image)  # before the action uploads anything there
        steps = self.bringing()
        return [*steps, *self.removing(steps)]

    def bringing(self) -> list[plans.ImageStep]:
        """Steps until the name points to the wanted content."""
        self.found = files.look(self.image)
        if self.absent:
            return []
        steps = self._present()
        from_origin = bool(self.image.source and self.image.source.kind == "origin")
        if steps and from_origin and isinstance(steps[0], plans.Fetch):
            self.fetching.ask_origin()
            steps = self._present()
        if self._stranger():
            plans.refuse_stranger(self.image)
        if not steps and not self.image.current and not self._verified(from_origin):
            return plans.replaced(self.image, pool_directory.users(self.connection, self.image.directory))
        return steps

    def _stranger(self) -> bool:
        """Whether the file with the name of the content that was asked for is another one: no manifest calls it so, nor do its bytes."""
        if not self.image.checksum or self._content not in self.found.strangers:
            return False
        path = os.path.join(self.image.directory, self._content)
        if self.image.source is None:
            return files.digest_of(path, self.image.checksum.algorithm, lambda _done: None) != self.image.checksum.hex
        own = self.fetching.recognised(path)
        return not (own and files.verify(self.image.directory, self._content, own, write=self.gate.open))

    @property
    def _content(self) -> str:
        """Name of the content that was asked for."""
        return self.image.content_name(t.cast(Checksum, self.image.checksum).hex)

    def _present(self) -> list[plans.ImageStep]:
        if self.image.checksum:
            inspect.refuse_namesake(self.image, files.manifest_of(self.image.directory, self._content))
        return plans.present(self.image, self.found)

    def _verified(self, from_origin: bool) -> bool:
        """Whether the content that was asked for is what it was, so that disks may stand on it."""
        content = self._content
        if content not in self.found.files or content in self.found.strangers or files.verified(self.image.directory, content):
            return True  # the bytes of a stranger were compared
        self.read_again = True
        if files.verify(self.image.directory, content, None, write=self.gate.open):
            return True
        if from_origin:
            self.fetching.ask_origin()
        return False

    def removing(self, bringing: t.Sequence[plans.ImageStep], stack: contextlib.ExitStack | None = None) -> list[plans.ImageStep]:
        """Steps that remove what nobody stands on. With a stack nobody begins to, until it is closed."""
        if not (self.absent or self.params["prune"]):
            return []
        self.found = files.look(self.image)
        self.notes = plans.strangers(self.found)
        old = plans.old(self.image, self.found, bringing, every=self.absent)
        claimed = contents.claim([os.path.join(self.image.directory, file) for file in old], stack) if stack else set()
        users = pool_directory.users(self.connection, self.image.directory) if old else {}
        users.update({os.path.basename(path): "a disk that is being made" for path in claimed})
        if self.absent:
            return plans.absent(self.image, self.found, users)
        steps, kept = plans.superseded(self.image, old, users)
        self.notes += kept
        return steps

    def _is_verified(self, steps: t.Sequence[plans.ImageStep], content: str | None) -> bool:
        """Whether the image is what a checksum says that nobody on the way can have written."""
        manifest = self.fetched or (files.manifest_of(self.image.directory, content) if content else None)
        if manifest is None or (not self.fetched and any(isinstance(step, plans.Fetch) for step in steps)):
            return self.image.verified
        return manifest.verified or (self.image.verified and manifest.checksum == str(self.image.checksum))

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
        if not self.absent:
            told["verified"] = self._is_verified(steps, after)
        if any(isinstance(step, plans.Fetch) for step in steps):
            part = self.fetching.part
            told["fetched_from"] = t.cast(Source, self.image.source).shown
            told["part"] = {"path": part, **self.fetching.left()} if not gate.open else None
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
            "warnings": [f"image {self.image.name} is NOT verified: {self.image.doubt}; {_PROOF}"] if self.image.doubt else [],
            **({"read_again": True} if self.read_again else {}),
            "diff": _changes.diff(changes),
            **{key: value for key, value in told.items() if value is not None or key == "content"},
        }


def _checked(params: t.Mapping[str, t.Any]) -> tuple[Checksum | Sums | None, Bounds]:
    """The checksum that is asked for, and how large the image may be; raises BadInput with every problem."""
    problems: list[str] = []
    checksum: Checksum | Sums | None = None
    bounds = Bounds(params["name"], 0)
    try:
        _units.check_name(params["name"], what="name")
    except BadInput as error:
        problems += error.problems
    try:
        most = _units.bytes_of(params["max_size"], bare="G", what="max_size")
        bounds = Bounds(params["name"], most, reserve_of(params["reserve"]))
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
        problems.append(f"url: {without_secrets(params['url'])!r} must begin with http:// or https://")
    if not params["current"] and (checksum is None or params["state"] == "absent" or params["prune"]):
        problems.append("current: false brings one content and lets the name be; say with checksum which, and leave out state and prune")
    if params["retries"] < 0:
        problems.append(f"retries: must not be below 0, it is {params['retries']}")
    problems += _about_signature(params, isinstance(checksum, Sums))
    if problems:
        raise BadInput(problems)
    return checksum, bounds


def _about_signature(params: t.Mapping[str, t.Any], sums: bool) -> t.Iterator[str]:
    said, keyring = params["signature"], params["keyring"]
    if said and not sums:
        yield "signature: a list of checksums is signed; give its URL as checksum"
    if said and not keyring:
        yield "signature: say with keyring whose signature is trusted"
    if keyring and not said:
        yield "keyring: say with signature where the list's signature is (a URL, or inline)"
    if said and said != "inline" and not said.startswith(("http://", "https://")):
        yield f"signature: {without_secrets(said)!r} must be inline, or begin with http:// or https://"


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
