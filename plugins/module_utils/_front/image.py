# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one image into a pool: fetch facts, plan, gate, report."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils import _changes, _units
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._files import fetch, signature
from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Progress, Tell
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, storage
from ansible_collections.corral.virt.plugins.module_utils._model.image import (
    Checksum,
    Image,
    Manifest,
    Source,
    Sums,
    checksum_in,
    parse_checksum,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import image as plans
from ansible_collections.corral.virt.plugins.module_utils._qemu_img import run as qemu_img
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._xml import caps
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources

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
    "prune": {"type": "bool", "default": False},
    "retries": {"type": "int", "default": 4},
}
_SOURCES = ("url", "src", "origin")
_KNOWN = ("qcow2", "raw", "vmdk", "vdi", "vhdx", "vpc")
_ENDINGS = {"qcow2": "qcow2", "raw": "raw", "img": "raw"}


@dataclasses.dataclass(frozen=True)
class World:
    """Ways out of this host: `open_url` reads an address, `open_libvirt` connects to another hypervisor."""

    open_url: fetch.Opener
    open_libvirt: t.Callable[[str], t.ContextManager[t.Any]]


def converge(connection: t.Any, params: t.Mapping[str, t.Any], gate: Gate, world: World) -> dict[str, t.Any]:
    """Do what the parameters say."""
    given, source = _checked(params), _source(params)
    pool = caps.pool(storage.pool_xml(connection, params["pool"]))
    if pool["type"] not in ("dir", "fs", "netfs") or not os.path.isdir(pool["path"] or ""):
        raise Refused(f"cannot keep images in pool {params['pool']}: it is no directory of this machine; use a dir, fs or netfs pool")
    checksum = _published(world.open_url, given, source, params) if isinstance(given, Sums) else given
    image = Image(params["name"], pool["path"], _format(params), source, checksum)
    work = _Work(connection, params, image, world)
    with contextlib.ExitStack() as stack:
        steps = work.plan()
        if gate.open and steps:
            # Somebody else may be at it: wait, and look again.
            stack.enter_context(files.locked(image))
            steps = work.plan()
        before = work.found.target
        gate.run(steps, work.do)
        if gate.open and steps:
            files.tidy(image)
            storage.refresh(connection, params["pool"])
    return work.result(steps, before, gate)


class _Work:
    """One image: what is found, and the steps on it."""

    def __init__(self, connection: t.Any, params: t.Mapping[str, t.Any], image: Image, world: World) -> None:
        self.connection, self.params, self.world = connection, params, world
        self.image, self.found = image, files.look(image)
        self.notes: list[str] = []
        self.fetched: Manifest | None = None
        self.offered: Manifest | None = None

    def plan(self) -> list[plans.ImageStep]:
        """The steps from what is there now."""
        self.found, self.notes = files.look(self.image), []
        if self.params["state"] == "absent":
            return plans.absent(self.image, self.found, self._users() if self.found.files else {})
        steps = plans.present(self.image, self.found)
        if steps and self.image.source and self.image.source.kind == "origin" and isinstance(steps[0], plans.Fetch):
            self._ask_origin(self.image.source)
            steps = plans.present(self.image, self.found)
        if self.params["prune"]:
            more, self.notes = plans.superseded(self.image, self.found, steps, self._users())
            steps += more
        return steps

    def do(self, step: plans.ImageStep) -> None:
        """Hand a step to the room that knows how."""
        if isinstance(step, plans.Fetch):
            part = self._part()
            try:
                with Progress(files.work_path(self.image, "progress")) as tell:
                    self.fetched = self._fetch(part, tell)
            except VirtError:
                if not os.path.exists(part):  # nothing that another run could go on with
                    files.tidy(self.image)
                raise
        elif isinstance(step, plans.Point):
            files.point(self.image, step.target or t.cast(Manifest, self.fetched).content)
        elif isinstance(step, plans.Remove):
            for name in (step.file, files.manifest_name(step.file)):
                files.remove(os.path.join(self.image.directory, name))

    def result(self, steps: t.Sequence[plans.ImageStep], before: str | None, gate: Gate) -> dict[str, t.Any]:
        """What the module returns; in check mode the same as afterwards, as far as it can be known."""
        points = [step.target for step in steps if isinstance(step, plans.Point)]
        after = None if self.params["state"] == "absent" else points[-1] if points else before
        if self.fetched:
            after = self.fetched.content
        told: dict[str, t.Any] = {"name": self.image.name, "path": os.path.join(self.image.directory, self.image.name), "content": after}
        if self.image.checksum:
            told["checksum"] = str(self.image.checksum)
        if any(isinstance(step, plans.Fetch) for step in steps):
            part = self._part()
            told["fetched_from"] = t.cast(Source, self.image.source).location
            told["part"] = {"path": part, "bytes": os.path.getsize(part) if os.path.exists(part) else 0} if not gate.open else None
        shown = after or "(fetched)" if points else after
        changes = [Change("image", before, shown)] if before != shown else []
        removed = [step.file for step in steps if isinstance(step, plans.Remove) and step.file != self.image.name]
        changes += [Change(f"content {file}", "present", "absent") for file in removed if file != before]
        return {
            "changed": bool(steps),
            "steps": [str(step) for step in steps],
            "notes": self.notes,
            "diff": _changes.diff(changes),
            **{key: value for key, value in told.items() if value is not None or key == "content"},
        }

    def _part(self) -> str:
        """Where what is fetched grows: another place for each source, so that nothing goes on with another's bytes."""
        source = t.cast(Source, self.image.source)
        offered = self.offered.sha256 if self.offered else self.image.checksum
        told = (source.kind, "" if self.offered else source.location, str(offered))
        return files.work_path(self.image, f"{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:12]}.part")

    def _fetch(self, path: str, tell: Tell) -> Manifest:
        image, source = self.image, t.cast(Source, self.image.source)
        files.tidy(image, but=path)
        if self.offered:
            self._receive(self.offered, path, source, tell)
            files.publish(path, image, self.offered)
            return self.offered
        checksum = self._received(path, source, tell)
        if source.compression:
            path = fetch.unpack(path, source.compression, tell)
        path = _converted(path, image, tell)
        content = Manifest(
            content=image.content_name(checksum.hex),
            sha256=files.digest_of(path, "sha256", lambda done: tell("reading", done, os.path.getsize(path))),
            bytes=os.path.getsize(path),
            source=source.location,
            checksum=str(checksum),
            fetched=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        )
        files.publish(path, image, content)
        return content

    def _received(self, path: str, source: Source, tell: Tell) -> Checksum:
        """The source's bytes in `path`, verified; returns their digest."""
        wanted, retries = self.image.checksum, self.params["retries"]
        algorithm = wanted.algorithm if wanted else "sha256"
        with fetch.Part(path, algorithm) as part:
            begun = part.size > 0
            if wanted and part.digest() == wanted.hex:
                pass  # an earlier run had all of it
            elif source.kind == "url":
                fetch.download(self.world.open_url, source.location, part, retries=retries, tell=tell, trusted=wanted is not None)
            elif source.kind == "file":
                fetch.copy(source.location, part, tell)
            elif not begun:
                raise Failed(f"cannot fetch {source.location} from the controller: it did not arrive; was the action plugin bypassed?")
            digest = part.finish()
            if wanted and digest != wanted.hex and begun and source.kind == "url":
                part.restart()  # what an earlier run left was of something else
                fetch.download(self.world.open_url, source.location, part, retries=retries, tell=tell, trusted=True)
                digest = part.finish()
        if wanted and digest != wanted.hex:
            files.remove(path)
            raise Failed(
                f"refusing image {self.image.name}: {source.location} has {algorithm} {digest}, not {wanted.hex}; the file was changed, "
                "damaged on the way, or the checksum belongs to another version"
            )
        return Checksum(algorithm, digest)

    def _ask_origin(self, source: Source) -> None:
        """What the other hypervisor has; raises NotFound when that is not what is wanted."""
        pool, wanted = self._origin_pool(), self.image.checksum
        name = self.image.content_name(wanted.hex) if wanted else self.image.name
        with self.world.open_libvirt(source.location) as origin:
            storage.refresh(origin, pool)
            text = storage.read(origin, pool, files.manifest_name(name))
        if text is None:
            raise NotFound(
                f"cannot fetch image {self.image.name} from {source.location}: its pool {pool} has no {name} that virt_image brought there"
            )
        self.offered = files.read_manifest(text.decode(), f"{name} on {source.location}")
        algorithm, _colon, digest = self.offered.checksum.partition(":")
        if not self.image.owns(self.offered.content) or (wanted and wanted != (algorithm, digest)):
            offered = f"{self.offered.content} made from {self.offered.checksum}"
            raise Refused(f"refusing image {name} of {source.location}: it is {offered}, not what was asked for")
        self.image = dataclasses.replace(self.image, checksum=Checksum(algorithm, digest))

    def _receive(self, offered: Manifest, path: str, source: Source, tell: Tell) -> None:
        """The other hypervisor's content in `path`, verified."""
        with fetch.Part(path, "sha256") as part, self.world.open_libvirt(source.location) as origin:
            if part.size > offered.bytes:
                part.restart()

            def write(piece: bytes) -> None:
                part.write(piece)
                tell("copying", part.size, offered.bytes)

            if part.digest() != offered.sha256:
                storage.receive(origin, self._origin_pool(), offered.content, part.size, write, part.skip)
            digest = part.finish()
        if digest != offered.sha256:
            files.remove(path)
            raise Failed(
                f"refusing image {self.image.name}: {offered.content} from {source.location} has sha256 {digest}, not {offered.sha256} as "
                "when it was brought there: it was damaged there or on the way; look at that host's disk"
            )

    def _origin_pool(self) -> str:
        return t.cast(str, self.params["origin_pool"] or self.params["pool"])

    def _users(self) -> dict[str, str]:
        """Who stands on which file of the image's directory: volumes of whatever pool, and guests' disks wherever they are."""
        here, users, known = os.path.realpath(self.image.directory), {}, set()
        for pool in look.pools(self.connection):
            if not pool["active"]:
                continue
            storage.refresh(self.connection, pool["name"])  # another host may have made an overlay on shared storage since
            for volume in map(caps.volume, storage.volumes(self.connection, pool["name"])):
                known.add(volume["path"])
                directory, file = os.path.split(os.path.realpath(volume["backing_path"] or "/"))
                if directory == here:
                    users[file] = volume["path"]
        for guest in look.all_guests(self.connection):
            found = look.found(guest)
            for path in {*sources(found.xml), *(sources(found.live_xml) if found.live_xml else ())}:
                chain = [path] if path in known or not os.path.isfile(path) else _chain(path)
                for directory, file in (os.path.split(os.path.realpath(each)) for each in chain):
                    if directory == here:
                        users.setdefault(file, f"guest {found.name}")
        return users


def _chain(path: str) -> list[str]:
    """The files that a guest's disk stands on, itself first."""
    return [each["filename"] for each in qemu_img.chain(path, qemu_img.info(path)["format"])]


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
    form = params["format"] or _ENDINGS.get(params["name"].rpartition(".")[2])
    if form is None and params["state"] == "absent":
        return "qcow2"  # nothing is made
    if form is None:
        raise BadInput(f"format of {params['name']} is unclear: let the name end in .qcow2, .raw or .img, or set format")
    return t.cast(str, form)


def _published(opener: fetch.Opener, sums: Sums, source: Source | None, params: t.Mapping[str, t.Any]) -> Checksum | None:
    """What the list says of the source's file, after its signature was checked."""
    if source is None:
        return None
    content, signed_by = fetch.read_bytes(opener, sums.url, retries=params["retries"]), params["signature"]
    if signed_by:
        beside = None if signed_by == "inline" else fetch.read_bytes(opener, signed_by, retries=params["retries"])
        content = signature.signed(content, signature=beside, keyring=params["keyring"], what=sums.url)
    found = checksum_in(content.decode(errors="replace"), source, sums)
    if found is None:
        raise Failed(
            f"cannot verify {source.location}: {sums.url} holds no {sums.algorithm or 'sha512, sha384 or sha256'} of {source.file}; "
            "is it the right SUMS file?"
        )
    return found


def _converted(path: str, image: Image, tell: Tell) -> str:
    """The image in the wanted format; one that leans on another file is refused: it could read any file of the host."""
    info = qemu_img.info(path)
    others = [file for file in _files_read(info) if os.path.realpath(file) != os.path.realpath(path)]
    if others or info["format"] not in _KNOWN:
        files.remove(path)
        reason = f"it refers to another file ({others[0]})" if others else f"its format {info['format']} is none of {', '.join(_KNOWN)}"
        raise Refused(f"refusing image {image.name}: {reason}")
    if info["format"] == image.format:
        return path
    converted, size = f"{path}.converted", info["virtual-size"]
    files.remove(converted)
    try:
        qemu_img.convert(
            path,
            converted,
            from_format=info["format"],
            to_format=image.format,
            progress=lambda percent: tell("converting", int(size * percent / 100), size),
        )
    except Failed:
        files.remove(converted)
        raise
    return converted


def _files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for the image: itself, what it stands on, and what its format spreads it over."""
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")] + [data.get("data-file")]
    return [*filter(None, named), *(file for part in spread for file in _files_read(part))]
