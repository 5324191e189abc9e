# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches an image: verifies, unpacks and converts it before it is published."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.cached_answers import asked
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host
from ansible_collections.corral.virt.plugins.module_utils._image import (
    files_fetch,
    files_image,
    files_signature,
    files_unpack,
    plan_image_checks,
)
from ansible_collections.corral.virt.plugins.module_utils._image.files_fetch import Part
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    Checksum,
    Image,
    ImageSpec,
    Manifest,
    Source,
    Sums,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    files_image_lock,
    files_qemu_img,
    libvirt_storage,
    plan_image_trust,
)
from ansible_collections.corral.virt.plugins.module_utils._system import free_space, work_directory
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.progress import Tell


@dataclasses.dataclass(frozen=True)
class World:
    """Connections out of this host: `open_url` reads an address, `open_libvirt` connects to another hypervisor."""

    open_url: files_fetch.Opener
    open_libvirt: t.Callable[[str], t.ContextManager[t.Any]]


@dataclasses.dataclass(frozen=True)
class ChecksumLists:
    """The `ChecksumHost` of one image."""

    opener: files_fetch.Opener
    spec: ImageSpec

    @asked
    def read(self, url: str) -> plan_image_checks.Downloaded:
        return plan_image_checks.Downloaded(*files_fetch.read_bytes(self.opener, url, retries=self.spec.retries))

    @asked
    def signed_part(self, content: bytes, signature: bytes | None) -> bytes:
        keyring, what = t.cast(str, self.spec.keyring), without_secrets(t.cast(Sums, self.spec.checksum).url)
        return files_signature.signed(content, signature=signature, keyring=keyring, what=what)


class Fetching:
    """Fetches one image into the pool."""

    def __init__(self, image: Image, spec: ImageSpec, world: World) -> None:
        self.image, self.world, self.bounds = image, world, spec.bounds
        self.retries, self.origin_pool = spec.retries, spec.origin_pool
        self.offered: Manifest | None = None

    @property
    def source(self) -> Source:
        """The image's source; an image to fetch always has one."""
        return t.cast(Source, self.image.source)

    @property
    def part(self) -> str:
        """The path of the partial download, different for each source, so that sources never mix."""
        source = self.source
        origin = (source.kind, "" if self.offered else source.location, str(self.image.checksum))
        return work_directory.path(self.image, f"{hashlib.sha256(chr(10).join(origin).encode()).hexdigest()[:12]}.part")

    def left(self) -> dict[str, int]:
        """Bytes of the partial download, and its size limit, for the upload from the controller."""
        there, place = os.path.exists(self.part), free_space.measure(self.image.directory, self.bounds.reserve_bytes)
        taken = free_space.allocated(self.part) if there else 0
        return {
            "bytes": os.path.getsize(self.part) if there else 0,
            "max_bytes": self.bounds.most_bytes(place, taken_bytes=taken),
        }

    def fetch(self, tell: Tell) -> Manifest:
        """Fetch the image, and publish it under its content's name."""
        path = self.part
        work_directory.tidy(self.image, but=path)
        if self.offered:
            self._receive(self.offered, path, tell)
            self._inspect(path)
            return self._published(path, t.cast(Checksum, self.image.checksum), tell, as_published=True)
        checksum, received = self._received(path, tell), path
        with _removed_upon(Refused, received):
            path, name = self._unpacked(path, tell)
            path = self._converted(path, name, tell)
        return self._published(path, checksum, tell, as_published=path == received)

    def _published(self, path: str, checksum: Checksum, tell: Tell, *, as_published: bool) -> Manifest:
        """Publish the finished file under its content's name."""
        manifest = self._manifest(path, checksum, tell, as_published=as_published)
        files_image.publish(path, self.image, manifest)
        return manifest

    def requested(self, path: str) -> Manifest:
        """The manifest of a file with the requested digest."""
        return self._manifest(path, t.cast(Checksum, self.image.checksum), lambda *_phase: None, as_published=True)

    def _manifest(self, path: str, checksum: Checksum, tell: Tell, *, as_published: bool) -> Manifest:
        """The manifest of a file; nothing in it comes from others."""
        image = self.image
        # as it came: not read once more
        known = checksum.hex if as_published and checksum.algorithm == "sha256" else None
        return Manifest(
            content=image.content_name(checksum.hex),
            sha256=known
            or files_image.digest_of(path, "sha256", lambda done: tell("reading", done, os.path.getsize(path))),
            bytes=os.path.getsize(path),
            source=self.source.shown,
            checksum=str(checksum),
            fetched=_now(),
            verified=image.verified,
            as_published=as_published,
        )

    def _inspect(self, path: str) -> None:
        """Raises Refused, and removes the file, unless another hypervisor's image is a standalone one of its format."""
        with _removed_upon(Refused, path):
            plan_image_checks.refuse_other_format(self.image, self._seen(path, self.source.file)[0])

    def _received(self, path: str, tell: Tell) -> Checksum:
        """Receive the source's bytes in `path`, verified; returns their digest."""
        wanted = self.image.checksum
        algorithm = wanted.algorithm if wanted else "sha256"
        with Part(path, algorithm, self.bounds) as part:
            part.expect(part.size)
            begun = part.size > 0
            if not (wanted and part.digest() == wanted.hex):  # else an earlier run had all of it
                self._take(part, tell)
            digest = part.finish()
            if begun and plan_image_checks.starts_over(self.image, self.source, digest):
                part.restart()
                self._take(part, tell)
                digest = part.finish()
        with _removed_upon(Failed, path):
            plan_image_checks.refuse_other_bytes(self.image, self.source, Checksum(algorithm, digest))
        plan_image_checks.refuse_empty(self.image, self.source, part.size)
        return Checksum(algorithm, digest)

    def _take(self, part: Part, tell: Tell) -> None:
        """Receive the rest of the source; the action plugin has uploaded what comes from the controller."""
        if self.source.kind == "url":
            trusted = self.image.checksum is not None
            files_fetch.download(
                self.world.open_url, self.source.location, part, retries=self.retries, tell=tell, trusted=trusted
            )
        elif self.source.kind == "file":
            files_fetch.copy(self.source.location, part, tell)
        else:
            plan_image_checks.refuse_unsent(self.source, size_bytes=part.size)

    def check(self) -> None:
        """Raises Failed if a local source cannot be read."""
        if self.source.kind == "file":
            files_fetch.check(self.source.location)

    def ask_origin(self) -> None:
        """Read what the other hypervisor has; raises NotFound or Refused if that is not the requested image."""
        source, image = self.source, self.image
        with self.world.open_libvirt(source.location) as origin:
            libvirt_storage.refresh(origin, self.origin_pool)
            names = [*([image.content_name(image.checksum.hex)] if image.checksum else []), image.name]
            found = [self._offer(origin, name) for name in names]
        self.offered = plan_image_checks.chosen(image, source, self.origin_pool, found)
        self.image = plan_image_checks.offered(image, source, self.offered)

    def _offer(self, origin: t.Any, name: str) -> Manifest | None:
        """The manifest of a content, or of a name's target; None if there is none."""
        text = libvirt_storage.read(origin, self.origin_pool, files_image_lock.manifest_name(name))
        return (
            text and files_image.read_manifest(text.decode(errors="replace"), f"{name} on {self.source.shown}")
        ) or None

    def _receive(self, offered: Manifest, path: str, tell: Tell) -> None:
        """Receive the other hypervisor's content in `path`, verified by the checksum, not by its manifest."""
        wanted, pool = t.cast(Checksum, self.image.checksum), self.origin_pool
        with (
            Part(path, wanted.algorithm, self.bounds) as part,
            self.world.open_libvirt(self.source.location) as origin,
        ):
            if part.size > offered.bytes:
                part.restart()
            volume = libvirt_storage.volume_in(origin, pool, offered.content)
            part.expect(offered.bytes, xml_host.volume(volume)["allocation_bytes"] if volume else None)

            def write(piece: bytes) -> None:
                part.write(piece)
                tell("copying", part.size, offered.bytes)

            if part.digest() != wanted.hex:
                libvirt_storage.receive(origin, pool, offered.content, part.size, write, part.skip)
            digest = part.finish()
        with _removed_upon(Failed, path):
            plan_image_checks.refuse_other_copy(self.image, self.source, offered, Checksum(wanted.algorithm, digest))

    def _seen(self, path: str, name: str) -> tuple[str, int]:
        """Format and virtual size of a standalone image; another one could make QEMU read any file of the host.

        Raises Refused.
        """
        form = plan_image_trust.fetched(self.image.name, name, files_header.read(path))
        info = files_qemu_img.info(path, form)
        plan_image_checks.refuse_more_files(
            self.image,
            [file for file in plan_image_trust.files_read(info) if os.path.realpath(file) != os.path.realpath(path)],
        )
        self.bounds.check(info["virtual-size"])
        if form == "qcow2":
            plan_image_checks.refuse_corrupt(self.image, files_qemu_img.corruptions(path))
        return form, info["virtual-size"]

    def _unpacked(self, path: str, tell: Tell) -> tuple[str, str]:
        """The path of the unpacked source, and its name without packing; raises Refused."""
        source = self.source
        packing = plan_image_trust.archive_compression(files_header.read(path)) if source.is_archive else None
        if packing is not None:
            path, members = files_unpack.extract(path, packing, tell, self.bounds, plan_image_trust.is_disk)
            return path, plan_image_trust.only_disk(self.image.name, source.file, members)
        if source.compression:
            path = files_unpack.decompress(path, source.compression, tell, self.bounds)
            return path, source.file.rpartition(".")[0]
        return path, source.file

    def _converted(self, path: str, name: str, tell: Tell) -> str:
        """The path of the image in the requested format; raises Refused."""
        image = self.image
        form, size = self._seen(path, name)
        if form == image.format:
            return path
        converted = f"{path}.converted"
        remove(converted)
        place = free_space.measure(image.directory, self.bounds.reserve_bytes)
        self.bounds.refuse(place.problem(files_qemu_img.flat_bytes(path, form), "its pool"))

        def percent(done: float) -> None:
            tell("converting", int(size * done / 100), size)

        files_qemu_img.convert(path, converted, from_format=form, to_format=image.format, progress=percent)
        return converted


@contextlib.contextmanager
def _removed_upon(refusal: type[VirtError], path: str) -> t.Iterator[None]:
    """Remove the file if its content is refused."""
    try:
        yield
    except refusal:
        remove(path)
        raise


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
