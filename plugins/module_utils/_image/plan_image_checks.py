# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a fetched or offered image is the requested one. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Refused, Unverified
from ansible_collections.corral.virt.plugins.module_utils._core.output import without_secrets
from ansible_collections.corral.virt.plugins.module_utils._image.model_checksum_list import (
    algorithms_in,
    checksum_in,
    decoded,
    document_kind,
)
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import (
    LENGTHS,
    Checksum,
    Image,
    ImageSpec,
    Manifest,
    Source,
    Sums,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_image_trust
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_image_trust import STANDALONE


def chosen(image: Image, source: Source, pool: str, found: t.Sequence[Manifest | None]) -> Manifest:
    """The requested one of another hypervisor's contents; raises Refused or NotFound."""
    there = [offer for offer in found if offer]
    if fits := [offer for offer in there if offers(image, offer)]:
        return fits[0]
    if there:
        raise _refused(image, source.shown, there[0])
    what = image.content_name(image.checksum.hex) if image.checksum else image.name
    raise NotFound(
        f"cannot fetch image {image.name} from {source.shown}: its pool {pool} contains no {what} imported by "
        "virt_image; import it there first, or set url or src"
    )


def offered(image: Image, source: Source, offer: Manifest) -> Image:
    """The image with the other hypervisor's checksum, in doubt if the user gave none."""
    if image.checksum:
        return image
    return dataclasses.replace(image, checksum=offer.of_bytes, doubt=f"only {source.shown} vouches for it")


def _refused(image: Image, origin: str, offer: Manifest) -> Refused:
    """Why the content of another hypervisor is refused."""
    if offer.checksum == str(image.checksum):
        return Unverified(
            f"refusing image {image.name} from {origin}: it was unpacked or converted there, so its bytes cannot be "
            f"compared with {image.checksum}; import it from its source (url, src), or set checksum to the sha256 of "
            "the file itself, computed where you trust it"
        )
    return Refused(
        f"refusing image {image.name} from {origin}: it is {offer.content} made from {offer.checksum}, not what was "
        "requested; import it from its source (url, src), or set another origin"
    )


def listed(text: str, sums: Sums, source: Source) -> Checksum:
    """The digest of the source's file in a published list; raises Failed if there is none."""
    found, place = checksum_in(text, source, sums), without_secrets(sums.url)
    if found is None and (kind := document_kind(text)):
        raise Failed(
            f"cannot verify {source.shown}: {place} is {kind}, not a list of checksums; set checksum to the URL of a "
            "list, or to sha256:<hex>"
        )
    if found is None:
        has = _lacking(text, sums, source)
        raise Failed(
            f"cannot verify {source.shown}: {place} contains {has}; check that it is the right list, or set checksum "
            "to sha256:<hex>"
        )
    return found


def _lacking(text: str, sums: Sums, source: Source) -> str:
    """What a list contains instead of one digest of the source's file."""
    there, wanted = algorithms_in(text, source, sums), [sums.algorithm] if sums.algorithm else [*LENGTHS]
    if {*there} & {*wanted}:
        return f"several {source.file} that differ"
    only = f", only {', '.join(there)}" if there else ""
    return f"no {sums.algorithm or 'sha512, sha384 or sha256'} of {source.file}{only}"


def unread(location: str, error: object) -> Failed:
    """The error for an address that cannot be read."""
    return Failed(
        f"cannot fetch {without_secrets(location)}: {error}; check the address, and that this host reaches it"
    )


def refuse_unsent(source: Source, *, size_bytes: int) -> None:
    """Raises Failed if nothing was uploaded from the controller."""
    if not size_bytes:
        raise Failed(
            f"cannot fetch {source.shown} from the controller: it did not arrive; run virt_image as a task or with "
            "ansible -m"
        )


def starts_over(image: Image, source: Source, digest: str) -> bool:
    """True if a resumed download must start over: the earlier part was of another file."""
    return image.checksum is not None and digest != image.checksum.hex and source.kind == "url"


def refuse_other_bytes(image: Image, source: Source, got: Checksum) -> None:
    """Raises Failed if the source's digest is not the requested one."""
    if image.checksum and got.hex != image.checksum.hex:
        raise Failed(
            f"refusing image {image.name}: {source.shown} has {got.algorithm} {got.hex}, not {image.checksum.hex}; the "
            "file was changed or damaged in transit, or the checksum belongs to another version"
        )


def refuse_empty(image: Image, source: Source, size_bytes: int) -> None:
    """Raises Failed if the source is empty."""
    if not size_bytes:
        raise Failed(f"cannot fetch image {image.name}: {source.shown} is empty; check what the source offers")


def refuse_other_copy(image: Image, source: Source, offered: Manifest, got: Checksum) -> None:
    """Raises Failed if another hypervisor sent other bytes than its manifest says."""
    if image.checksum and got.hex != image.checksum.hex:
        raise Failed(
            f"refusing image {image.name}: {offered.content} from {source.shown} has {got.algorithm} {got.hex}, not "
            f"{image.checksum.hex}: it was damaged there or in transit, or it is not what that host reports; check "
            "that host's disk, or import the image from its source (url, src)"
        )


def refuse_other_format(image: Image, form: str) -> None:
    """Raises Refused if another hypervisor's image is not of the format that its name says."""
    if form != image.format:
        raise Refused(
            f"refusing image {image.name}: its name says {image.format}, but its first bytes say {form}; import it "
            "from its source (url, src), or set another origin"
        )


def refuse_more_files(image: Image, others: t.Sequence[str]) -> None:
    """Raises Refused if the image refers to other files, which QEMU would open."""
    if others:
        raise Refused(f"refusing image {image.name}: it refers to another file ({others[0]}); {STANDALONE}")


def refuse_corrupt(image: Image, corruptions: int) -> None:
    """Raises Refused if an image is truncated or corrupt."""
    if corruptions:
        raise Refused(
            f"refusing image {image.name}: it is truncated or corrupt (qemu-img check finds {corruptions} errors); "
            "fetch it again, or repair a copy with qemu-img check -r all"
        )


def offers(image: Image, offer: Manifest) -> bool:
    """True if another hypervisor reports the requested content: with a checksum, the very bytes."""
    if image.checksum is None:
        return image.owns(offer.content)
    return image.owns(offer.content) and image.checksum in (offer.of_bytes, ("sha256", offer.sha256))


def refuse_namesake(image: Image, known: Manifest | None) -> None:
    """Raises Refused for a content of the same name with another checksum: twelve digits can be forged."""
    if known and image.checksum and known.checksum != str(image.checksum):
        raise Refused(
            f"refusing image {image.name}: {known.content} was made from {known.checksum}, not from {image.checksum}, "
            "which begins with the same digits; remove it (state: absent), and find out who imported it"
        )


# Decide which checksum an image must have, and why it may prove nothing. Pure.


class Downloaded(t.NamedTuple):
    """A small file, and the URL it came from after all redirects."""

    content: bytes
    url: str


class ChecksumHost(t.Protocol):
    """What reads and verifies published lists of checksums for an image."""

    def read(self, url: str) -> Downloaded:
        """What is at a URL."""

    def signed_part(self, content: bytes, signature: bytes | None) -> bytes:
        """The part of a file that a key of the keyring signed; `signature` is a detached one, None if the file contains
        its signature.
        """


def requested_checksum(spec: ImageSpec, host: ChecksumHost) -> tuple[Checksum | None, str]:
    """The requested checksum, and why it is not reliable (empty: it is); of a signed list, only the signed part."""
    sums = spec.checksum
    if not isinstance(sums, Sums):
        return sums, ""
    if spec.source is None:
        return None, ""
    content, origin = host.read(sums.url)
    if spec.signature:
        detached = None if spec.signature == "inline" else host.read(spec.signature).content
        content = host.signed_part(content, detached)
    found = listed(decoded(content), sums, spec.source)
    return found, plan_image_trust.doubt(sums.url, origin, signed=bool(spec.signature), certified=spec.certified)
