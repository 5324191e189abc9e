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
from ansible_collections.corral.virt.plugins.module_utils._files import content, fetch, signature, workplace
from ansible_collections.corral.virt.plugins.module_utils._files import image as files
from ansible_collections.corral.virt.plugins.module_utils._files.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Tell
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage
from ansible_collections.corral.virt.plugins.module_utils._model.image import Checksum, Image, Manifest, Source, Sums, checksum_in
from ansible_collections.corral.virt.plugins.module_utils._qemu_img import run as qemu_img

__all__ = ["Fetching", "World", "published"]

_KNOWN = ("qcow2", "raw", "vmdk", "vdi", "vhdx", "vpc")


@dataclasses.dataclass(frozen=True)
class World:
    """Ways out of this host: `open_url` reads an address, `open_libvirt` connects to another hypervisor."""

    open_url: fetch.Opener
    open_libvirt: t.Callable[[str], t.ContextManager[t.Any]]


def published(opener: fetch.Opener, sums: Sums, source: Source | None, params: t.Mapping[str, t.Any]) -> Checksum | None:
    """What the list says of the source's file, after its signature was checked."""
    if source is None:
        return None
    listed, signed_by = fetch.read_bytes(opener, sums.url, retries=params["retries"]), params["signature"]
    if signed_by:
        beside = None if signed_by == "inline" else fetch.read_bytes(opener, signed_by, retries=params["retries"])
        listed = signature.signed(listed, signature=beside, keyring=params["keyring"], what=sums.url)
    found = checksum_in(listed.decode(errors="replace"), source, sums)
    if found is None:
        raise Failed(
            f"cannot verify {source.location}: {sums.url} holds no {sums.algorithm or 'sha512, sha384 or sha256'} of {source.file}; "
            "is it the right SUMS file?"
        )
    return found


class Fetching:
    """One image on its way into the pool."""

    def __init__(self, image: Image, params: t.Mapping[str, t.Any], world: World) -> None:
        self.image, self.params, self.world = image, params, world
        self.offered: Manifest | None = None

    @property
    def part(self) -> str:
        """Where what is fetched grows: another place for each source, so that nothing goes on with another's bytes."""
        source = t.cast(Source, self.image.source)
        offered = self.offered.sha256 if self.offered else self.image.checksum
        told = (source.kind, "" if self.offered else source.location, str(offered))
        return workplace.path(self.image, f"{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:12]}.part")

    def fetch(self, tell: Tell) -> Manifest:
        """Bring it here, and publish it under its content's name."""
        image, source, path = self.image, t.cast(Source, self.image.source), self.part
        workplace.tidy(image, but=path)
        if self.offered:
            self._receive(self.offered, path, source, tell)
            manifest = dataclasses.replace(self.offered, fetched=_now())
            files.publish(path, image, manifest)
            return manifest
        checksum, received = self._received(path, source, tell), path
        if source.compression:
            path = fetch.unpack(path, source.compression, tell)
        path = _converted(path, image, tell)
        known = checksum.hex if path == received and checksum.algorithm == "sha256" else None  # as it came: not read once more
        manifest = Manifest(
            content=image.content_name(checksum.hex),
            sha256=known or files.digest_of(path, "sha256", lambda done: tell("reading", done, os.path.getsize(path))),
            bytes=os.path.getsize(path),
            source=source.location,
            checksum=str(checksum),
            fetched=_now(),
        )
        files.publish(path, image, manifest)
        return manifest

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
            remove(path)
            raise Failed(
                f"refusing image {self.image.name}: {source.location} has {algorithm} {digest}, not {wanted.hex}; the file was changed, "
                "damaged on the way, or the checksum belongs to another version"
            )
        return Checksum(algorithm, digest)

    def ask_origin(self) -> None:
        """Look what the other hypervisor has; raises NotFound when that is not what is wanted."""
        source, pool, wanted = t.cast(Source, self.image.source), self._origin_pool(), self.image.checksum
        name = self.image.content_name(wanted.hex) if wanted else self.image.name
        with self.world.open_libvirt(source.location) as origin:
            storage.refresh(origin, pool)
            text = storage.read(origin, pool, content.manifest_name(name))
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
            remove(path)
            raise Failed(
                f"refusing image {self.image.name}: {offered.content} from {source.location} has sha256 {digest}, not {offered.sha256} as "
                "when it was brought there: it was damaged there or on the way; look at that host's disk"
            )

    def _origin_pool(self) -> str:
        return t.cast(str, self.params["origin_pool"] or self.params["pool"])


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _converted(path: str, image: Image, tell: Tell) -> str:
    """The image in the wanted format; one that leans on another file is refused: it could read any file of the host."""
    info = qemu_img.info(path)
    others = [file for file in _files_read(info) if os.path.realpath(file) != os.path.realpath(path)]
    if others or info["format"] not in _KNOWN:
        remove(path)
        reason = f"it refers to another file ({others[0]})" if others else f"its format {info['format']} is none of {', '.join(_KNOWN)}"
        raise Refused(f"refusing image {image.name}: {reason}")
    if info["format"] == image.format:
        return path
    converted, size = f"{path}.converted", info["virtual-size"]
    remove(converted)
    try:
        qemu_img.convert(
            path,
            converted,
            from_format=info["format"],
            to_format=image.format,
            progress=lambda percent: tell("converting", int(size * percent / 100), size),
        )
    except Failed:
        remove(converted)
        raise
    return converted


def _files_read(info: t.Mapping[str, t.Any]) -> list[str]:
    """Every file that QEMU would open for the image: itself, what it stands on, and what its format spreads it over."""
    data = info.get("format-specific", {}).get("data", {})
    spread = [*data.get("extents", ()), *(child["info"] for child in info.get("children", ()))]  # children: newer QEMUs
    named = [info.get(key) for key in ("backing-filename", "full-backing-filename", "filename")] + [data.get("data-file")]
    return [*filter(None, named), *(file for part in spread for file in _files_read(part))]
