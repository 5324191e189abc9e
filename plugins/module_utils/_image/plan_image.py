# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which steps bring an image into a pool. Pure."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, Unverified
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Step
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, Image, Manifest, Present

_ASK_ALL = "to ask all of them: ansible-playbook corral.virt.images -e do=prune"
_PROOF = "set checksum to the digest itself, or to a list that is fetched over https or signed (signature, keyring)"


@dataclasses.dataclass(frozen=True)
class ImageStep(Step):
    """One change of a pool's directory."""

    image: Image


@dataclasses.dataclass(frozen=True)
class Fetch(ImageStep):
    """Fetch the source, verify, unpack and convert it, and publish it under its content's name."""

    def __str__(self) -> str:
        name, checksum, doubt = self.image.name, self.image.checksum, self.image.doubt
        if checksum is None or doubt:
            return f"fetch image {name}, NOT verified{f' ({doubt})' if doubt else ''}"
        return f"fetch image {name}, verified by {checksum.algorithm} {checksum.hex[:12]}"


@dataclasses.dataclass(frozen=True)
class Symlink(ImageStep):
    """Point the stable name to a content file, or (None) to the one just fetched."""

    look: t.ClassVar[Look | None] = Look(
        at="that nothing but a link has the name; which disk is based on the name itself",
        holds="the lock of the image's name; a name that nothing had is not replaced",
        leaves="the name as it is, and the fetched content",
        by=("image",),
    )

    target: str | None

    def __str__(self) -> str:
        return f"point {self.image.name} to {self.target or 'the fetched content'}"


@dataclasses.dataclass(frozen=True)
class Remove(ImageStep):
    """Remove a name or a content file."""

    template = "remove {0.file}"
    look: t.ClassVar[Look | None] = Look(
        at="who uses the file: definitions of all guests of the host, running, stored and saved, with their snapshots, "
        "backup jobs and backing chains; volumes; loop devices; QEMU's locks, also of other hosts",
        holds="the lock of the image's name, and the manifests of its contents: no run makes a disk from them",
        leaves="the file; its user",
        by=("file",),
    )

    file: str  # a name, or a content, which has its digest in its name


def check_not_taken(step: Symlink | Remove, found: Present) -> None:
    """Raises Refused if a file of somebody else has the stable name by now, perhaps since the fetch began."""
    if found.foreign:
        raise Refused(
            f"cannot {step}: {step.image.directory}/{step.image.name} is a regular file by now, which this collection "
            "did not create; it is kept; move it away, or choose another name, and run again"
        )


def check_unused(image: Image, file: str, user: str | None) -> None:
    """Raises Refused if somebody now uses a file that is to be removed."""
    if user:
        raise Refused(
            f"cannot remove {file} of image {image.name}: {user} uses it by now; it is kept; remove or flatten that, "
            "and run again"
        )


@dataclasses.dataclass(frozen=True)
class Vouch(ImageStep):
    """Record that a content matches its manifest: no change of the image."""

    template = "record that {0.manifest.content} was verified"
    manifest: Manifest


@dataclasses.dataclass(frozen=True)
class ImageOutcome:
    """The name's target after the steps (None: none, or unknown before the fetch), and the changes."""

    content: str | None
    changes: t.Sequence[Change]


def present(image: Image, found: Present) -> list[ImageStep]:
    """Steps until the name points to the requested content; raises Refused or BadInput."""
    if image.kept:
        return []
    if found.foreign and image.current:
        raise Refused(
            f"cannot manage image {image.name}: {image.directory}/{image.name} is a regular file that this collection "
            "did not create; move it away, or choose another name"
        )
    if image.checksum is None:
        if found.target is not None:
            return []
        if image.source is None:
            raise BadInput(f"image {image.name} is not in the pool; set its source with url, src or origin")
        return [Fetch(image), Symlink(image, None)]
    content = image.content_name(image.checksum.hex)
    if content in found.files:
        return [Symlink(image, content)] if image.current and found.target != content else []
    if image.source is None:
        raise BadInput(f"image {image.name} is not in the pool as {content}; set its source with url, src or origin")
    return [Fetch(image), Symlink(image, content)] if image.current else [Fetch(image)]


def is_there(found: Present) -> bool:
    """True if the pool has something of that name."""
    return found.foreign or found.target is not None


def moves_from(found: Present, steps: t.Sequence[ImageStep]) -> str | None:
    """The content that the name pointed to, if the steps point it elsewhere; else None."""
    return found.target if any(isinstance(step, Symlink) for step in steps) else None


def check_name(image: Image, content: str, user: str | None) -> None:
    """Raises Refused if a disk is based on the name itself: it would get other data."""
    if user:
        raise Refused(
            f"cannot point image {image.name} to another content: {user} is based on the name {image.name}, not on "
            f"{content}, and would get other data; while nobody uses it, base it on "
            f"{image.directory}/{content} (qemu-img rebase -u), or set another name"
        )


def needs_origin(image: Image, steps: t.Sequence[ImageStep]) -> bool:
    """True if another hypervisor must be queried before the steps are known."""
    return bool(image.source and image.source.kind == "origin" and steps and isinstance(steps[0], Fetch))


def stranger(image: Image, found: Present) -> str | None:
    """A file with the requested content's name but without a manifest; None if there is none."""
    content = image.content_name(image.checksum.hex) if image.checksum else None
    return content if content in found.strangers else None


def refuse_stranger(image: Image, content: str, *, same: bool) -> None:
    """Raises Unverified if a file has the requested content's name, but other bytes."""
    if not same:
        raise Unverified(
            f"cannot verify image {content}: {image.directory}/{content} has other content, and this collection did "
            "not import it; inspect it, and move it away"
        )


def was_compared(image: Image, found: Present) -> bool:
    """True if the requested content need not be verified again before disks are based on it.

    A file without a manifest has been compared; the name's target is verified when it is set, a fetched content when it
    arrives.
    """
    if image.current or image.checksum is None:
        return True
    content = image.content_name(image.checksum.hex)
    return content not in found.files or content in found.strangers


def replaced(image: Image, users: t.Mapping[str, str]) -> list[ImageStep]:
    """Steps for a content that was changed after it was verified.

    Raises Unverified if it is in use, or without a source.
    """
    content = image.content_name(t.cast(Checksum, image.checksum).hex)
    if content in users:
        raise Unverified(
            f"cannot verify image {content}: it was changed after it was imported, and {users[content]} uses it; "
            "compare it with the same image on another hypervisor, and restore it from there while no guest uses it"
        )
    if image.source is None:
        remedy = "set its source with url, src or origin"
        raise Unverified(f"cannot verify image {content}: it was changed after it was imported; {remedy}")
    return [Fetch(image)]


def old(image: Image, found: Present, steps: t.Sequence[ImageStep], *, every: bool = False) -> list[str]:
    """Contents of the image that this collection imported.

    Without `every`, only those that its name does not point to after the steps.
    """
    points = [step.target for step in steps if isinstance(step, Symlink)]
    current = points[-1] if points else found.target
    return sorted(file for file in found.files - found.strangers if image.owns(file) and (every or file != current))


def strangers(found: Present) -> list[str]:
    """Notes on files with a content's name that stay."""
    return [f"kept {file}: no manifest says that this collection imported it" for file in sorted(found.strangers)]


def superseded(
    image: Image, files: t.Sequence[str], users: t.Mapping[str, str], unasked: str | None = None
) -> tuple[list[ImageStep], list[str]]:
    """Steps that remove unused old contents, and notes on the others.

    `users` is content file -> who uses it. `unasked` is the kind of the pool's filesystem, if it is shared with hosts
    that nobody has asked.
    """
    kept = [f"kept {file}: {users[file]} uses it" for file in files if file in users]
    unused = [file for file in files if file not in users]
    if unasked:
        why = f"it is on {unasked}, and guests of other hosts may use it; {_ASK_ALL}"
        return [], [*kept, *(f"kept {file}: {why}" for file in unused)]
    return [Remove(image, file) for file in unused], kept


def absent(image: Image, found: Present, users: t.Mapping[str, str], unasked: str | None = None) -> list[ImageStep]:
    """Steps until neither name nor contents are there; raises Refused if one is, or may be, in use."""
    if found.foreign:
        raise Refused(
            f"cannot remove image {image.name}: {image.directory}/{image.name} is a regular file, not an image of this "
            "collection; to remove it as a disk, with its data, set remove_storage: true"
        )
    contents = old(image, found, (), every=True)
    used = [f"{users[file]} uses {file}" for file in contents if file in users]
    if used:
        raise Refused(f"cannot remove image {image.name}: {', '.join(used)}; remove or flatten that first")
    if contents and unasked:
        raise Refused(
            f"cannot remove image {image.name}: it is on {unasked}, and guests of other hosts may use it; {_ASK_ALL} "
            "-e unused=true, or set used_elsewhere: {} if no other host does"
        )
    name = [image.name] if image.name in found.files else []
    return [Remove(image, file) for file in (*name, *contents)]


def is_verified(image: Image, manifest: Manifest | None) -> bool:
    """True if a trustworthy checksum proves what the image is.

    Without a manifest, it is yet to be fetched.
    """
    if manifest is None:
        return image.verified
    return manifest.verified or (image.verified and manifest.checksum == str(image.checksum))


def warnings(image: Image) -> list[str]:
    """Warnings about an image that is not verified."""
    return [f"image {image.name} is NOT verified: {image.doubt}; {_PROOF}"] if image.doubt else []


def outcome(
    image: Image, steps: t.Sequence[ImageStep], before: str | None, *, absent: bool, fetched: str | None
) -> ImageOutcome:
    """The outcome of the steps; `before` is the name's previous target, `fetched` the new content."""
    points = [step.target for step in steps if isinstance(step, Symlink)]
    after = fetched or _after(image, points, before, absent=absent)
    shown = after or "(fetched)" if points else after
    changes = [Change("image", before, shown)] if before != shown and image.current else []
    if steps and not image.current and not absent:
        changes.append(Change(f"content {after}", "absent", "present"))
    removed = [step.file for step in steps if isinstance(step, Remove) and step.file != image.name]
    changes += [Change(f"content {file}", "present", "absent") for file in removed if file != before]
    return ImageOutcome(after, changes)


def _after(image: Image, points: t.Sequence[str | None], before: str | None, *, absent: bool) -> str | None:
    if absent:
        return None
    if image.checksum and not image.current:
        return image.content_name(image.checksum.hex)
    return points[-1] if points else before
