# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Fetch an image from where it comes: verified, unpacked and converted, before it is published."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._files import content, fetch, header, room, signature, workplace
from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._files.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Tell
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Manifest, Source, Sums, checksum_in
from ansible_collections.corral.virt.plugins.module_utils._model.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._model.room import Bounds
from ansible_collections.corral.virt.plugins.module_utils._plan import inspect
from ansible_collections.corral.virt.plugins.module_utils._qemu_img import run as qemu_img
from ansible_collections.corral.virt.plugins.module_utils._xml import caps

__all__ = ["Fetching", "World", "published"]


@dataclasses.dataclass(frozen=True)
class World:
    """Ways out of this host: `open_url` reads an address, `open_libvirt` connects to another hypervisor."""

    open_url: fetch.Opener
    open_libvirt: t.Callable[[str], t.ContextManager[t.Any]]


def published(opener: fetch.Opener, sums: Sums, source: Source | None, params: t.Mapping[str, t.Any]) -> tuple[Checksum | None, str]:
    """What the list says of the source's file, after its signature was checked, and why nobody can rely on it (empty: one can)."""
    if source is None:
        return None, ""
    what, signed_by = without_secrets(sums.url), params["signature"]
    listed, origin = fetch.read_bytes(opener, sums.url, retries=params["retries"])
    if signed_by:
        beside = None if signed_by == "inline" else fetch.read_bytes(opener, signed_by, retries=params["retries"])[0]
        listed = signature.signed(listed, signature=beside, keyring=params["keyring"], what=what)
    found = checksum_in(listed.decode(errors="replace"), source, sums)
    if found is None:
        raise Failed(
            f"cannot verify {source.shown}: {what} holds no {sums.algorithm or 'sha512, sha384 or sha256'} of {source.file}; "
            "is it the right SUMS file?"
        )
    return found, inspect.doubt(sums.url, origin, signed=bool(signed_by), certified=params.get("validate_certs", True))


class Fetching:
    """One image on its way into the pool."""

    def __init__(self, image: Image, params: t.Mapping[str, t.Any], world: World, bounds: Bounds) -> None:
        self.image, self.params, self.world, self.bounds = image, params, world, bounds
        self.offered: Manifest | None = None

    @property
    def part(self) -> str:
        """Where what is fetched grows: another place for each source, so that nothing goes on with another's bytes."""
        source = t.cast(Source, self.image.source)
        told = (source.kind, "" if self.offered else source.location, str(self.image.checksum))
        return workplace.path(self.image, f"{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:12]}.part")

    def left(self) -> dict[str, int]:
        """How many bytes an earlier run left of it, and how many it may have in the end, for who sends them."""
        there, place = os.path.exists(self.part), room.look(self.image.directory, self.bounds.reserve_bytes)
        fits = place.free_bytes - place.kept_bytes + (room.allocated(self.part) if there else 0)
        return {"bytes": os.path.getsize(self.part) if there else 0, "max_bytes": max(0, min(fits, self.bounds.max_bytes))}

    def fetch(self, tell: Tell) -> Manifest:
        """Bring it here, and publish it under its content's name."""
        image, source, path = self.image, t.cast(Source, self.image.source), self.part
        workplace.tidy(image, but=path)
        if self.offered:
            self._receive(self.offered, path, source, tell)
            self._inspect(path)
            return self._published(path, t.cast(Checksum, image.checksum), tell, as_published=True)
        checksum, received = self._received(path, source, tell), path
        try:
            if source.compression:
                path = fetch.unpack(path, source.compression, tell, self.bounds)
            path = self._converted(path, tell)
        except Refused:
            remove(received)
            raise
        return self._published(path, checksum, tell, as_published=path == received)

    def _published(self, path: str, checksum: Checksum, tell: Tell, *, as_published: bool) -> Manifest:
        """The finished file under its content's name."""
        manifest = self._manifest(path, checksum, tell, as_published=as_published)
        files.publish(path, self.image, manifest)
        return manifest

    def recognised(self, path: str) -> Manifest | None:
        """A manifest of a file that is, byte for byte, what is wanted."""
        wanted = t.cast(Checksum, self.image.checksum)
        if files.digest_of(path, wanted.algorithm, lambda _done: None) != wanted.hex:
            return None
        return self._manifest(path, wanted, lambda *_phase: None, as_published=True)

    def _manifest(self, path: str, checksum: Checksum, tell: Tell, *, as_published: bool) -> Manifest:
        """Every word of it is our own."""
        image = self.image
        known = checksum.hex if as_published and checksum.algorithm == "sha256" else None  # as it came: not read once more
        return Manifest(
            content=image.content_name(checksum.hex),
            sha256=known or files.digest_of(path, "sha256", lambda done: tell("reading", done, os.path.getsize(path))),
            bytes=os.path.getsize(path),
            source=t.cast(Source, image.source).shown,
            checksum=str(checksum),
            fetched=_now(),
            verified=image.verified,
            as_published=as_published,
        )

    def _inspect(self, path: str) -> None:
        """What another hypervisor calls an image is one, and reads no other file; else it is removed."""
        try:
            form, _size = self._seen(path, t.cast(Source, self.image.source).file)
            if form != self.image.format:
                raise Refused(f"refusing image {self.image.name}: it is {self.image.format} by its name, {form} by its first bytes")
        except Refused:
            remove(path)
            raise

    def _received(self, path: str, source: Source, tell: Tell) -> Checksum:
        """The source's bytes in `path`, verified; returns their digest."""
        wanted, retries = self.image.checksum, self.params["retries"]
        algorithm = wanted.algorithm if wanted else "sha256"
        with fetch.Part(path, algorithm, self.bounds) as part:
            part.expect(part.size)
            begun = part.size > 0
            if wanted and part.digest() == wanted.hex:
                pass  # an earlier run had all of it
            elif source.kind == "url":
                fetch.download(self.world.open_url, source.location, part, retries=retries, tell=tell, trusted=wanted is not None)
            elif source.kind == "file":
                fetch.copy(source.location, part, tell)
            elif not begun:
                raise Failed(f"cannot fetch {source.shown} from the controller: it did not arrive; was the action plugin bypassed?")
            digest = part.finish()
            if wanted and digest != wanted.hex and begun and source.kind == "url":
                part.restart()  # what an earlier run left was of something else
                fetch.download(self.world.open_url, source.location, part, retries=retries, tell=tell, trusted=True)
                digest = part.finish()
        if wanted and digest != wanted.hex:
            remove(path)
            raise Failed(
                f"refusing image {self.image.name}: {source.shown} has {algorithm} {digest}, not {wanted.hex}; the file was changed, "
                "damaged on the way, or the checksum belongs to another version"
            )
        return Checksum(algorithm, digest)

    def ask_origin(self) -> None:
        """Look what the other hypervisor has; raises NotFound or Refused when that is not what is wanted."""
        source, image = t.cast(Source, self.image.source), self.image
        with self.world.open_libvirt(source.location) as origin:
            storage.refresh(origin, self._origin_pool())
            offers = [image.content_name(image.checksum.hex)] if image.checksum else []
            found = [self._offer(origin, name) for name in (*offers, image.name)]
        offered = next((offer for offer in found if offer and inspect.offers(image, offer)), None)
        if offered is None and any(found):
            inspect.refuse_offer(image, source.shown, next(filter(None, found)))
        if offered is None:
            what = offers[0] if offers else image.name
            raise NotFound(
                f"cannot fetch image {image.name} from {source.shown}: its pool {self._origin_pool()} has no {what} that virt_image "
                "brought there"
            )
        self.offered = offered
        doubt = image.doubt if image.checksum else f"only {source.shown} says what it is"
        self.image = dataclasses.replace(image, checksum=image.checksum or offered.of_bytes, doubt=doubt)

    def _offer(self, origin: t.Any, name: str) -> Manifest | None:
        """The manifest of a content, or of that behind a name."""
        text = storage.read(origin, self._origin_pool(), content.manifest_name(name))
        return (text and files.read_manifest(text.decode(errors="replace"), f"{name} on {t.cast(Source, self.image.source).shown}")) or None

    def _receive(self, offered: Manifest, path: str, source: Source, tell: Tell) -> None:
        """The other hypervisor's content in `path`: the very bytes of the checksum, whatever its manifest says of them."""
        image, wanted, pool = self.image, t.cast(Checksum, self.image.checksum), self._origin_pool()
        with fetch.Part(path, wanted.algorithm, self.bounds) as part, self.world.open_libvirt(source.location) as origin:
            if part.size > offered.bytes:
                part.restart()
            volume = storage.volume_in(origin, pool, offered.content)
            part.expect(offered.bytes, caps.volume(volume)["allocation_bytes"] if volume else None)

            def write(piece: bytes) -> None:
                part.write(piece)
                tell("copying", part.size, offered.bytes)

            if part.digest() != wanted.hex:
                storage.receive(origin, pool, offered.content, part.size, write, part.skip)
            digest = part.finish()
        if digest != wanted.hex:
            remove(path)
            raise Failed(
                f"refusing image {image.name}: {offered.content} from {source.shown} has {wanted.algorithm} {digest}, not {wanted.hex}: it "
                "was damaged there or on the way, or it is not what that host says; look at that host's disk, or bring the image from its "
                "source (url, src)"
            )

    def _seen(self, path: str, name: str) -> tuple[str, int]:
        """Format and size of an image that no reader will be led away by: it could read any file of the host; raises Refused."""
        form = inspect.fetched(self.image.name, name, header.read(path))
        info = qemu_img.info(path, form)
        if others := [file for file in _files_read(info) if os.path.realpath(file) != os.path.realpath(path)]:
            raise Refused(f"refusing image {self.image.name}: it refers to another file ({others[0]})")
        self.bounds.check(info["virtual-size"])
        return form, info["virtual-size"]

    def _converted(self, path: str, tell: Tell) -> str:
        """The image in the wanted format; raises Refused."""
        image, source = self.image, t.cast(Source, self.image.source)
        form, size = self._seen(path, source.file.rpartition(".")[0] if source.compression else source.file)
        if form == image.format:
            return path
        converted = f"{path}.converted"
        remove(converted)
        place = room.look(image.directory, self.bounds.reserve_bytes)
        self.bounds.refuse(place.problem(qemu_img.flat_bytes(path, form), "its pool"))
        try:
            qemu_img.convert(
                path,
                converted,
                from_format=form,
                to_format=image.format,
                progress=lambda percent: tell("converting", int(size * percent / 100), size),
            )
        except Failed:
            remove(converted)
            raise
        return converted

    def _origin_pool(self) -> str:
        return t.cast(str, self.params["origin_pool"] or self.params["pool"])


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for the image: itself, what it stands on, and what its format spreads it over."""
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")] + [data.get("data-file")]
    return [*filter(None, named), *(file for part in spread for file in _files_read(part))]
