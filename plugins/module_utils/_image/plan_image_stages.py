# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what must be known of an image, in which order, and the resulting steps. Pure.

The stages ask `ImageHost`, and only what decides something.
"""

from __future__ import annotations

import dataclasses
import os.path
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._image import plan_image, plan_image_checks
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Checksum, Image, Manifest, Present


class ImageHost(t.Protocol):
    """The host of an image. Its answers are those of one decision: the next one asks anew."""

    def look(self) -> Present:
        """What is in the pool's directory, and where the name points."""

    def manifest(self, content: str) -> Manifest | None:
        """What the manifest of a content says; None if there is none."""

    def offered(self) -> Image:
        """The image with what the other hypervisor has of it."""

    def user_of_name(self, path: str) -> str | None:
        """The disk that is based on the name itself, and so on its target; None if there is none."""

    def users_inside(self, directory: str) -> t.Mapping[str, str]:
        """Who uses which file in a directory."""

    def opener(self, content: str) -> str | None:
        """Who has a content open, perhaps on another host; None if nobody is known to."""

    def shared(self) -> str | None:
        """The kind of filesystem that holds the pool's directory, if other hosts may mount it; None for a local one."""

    def digest(self, content: str, algorithm: str) -> str:
        """The digest of a content, which is read in full."""

    def is_recorded(self, content: str) -> bool:
        """True if the manifest of a content says that this very file was verified."""

    def compared(self, content: str) -> Manifest | None:
        """The manifest of this very file; None if it differs. A file that was not verified is read in full."""

    def compared_with_requested(self, content: str) -> Manifest | None:
        """The manifest that the requested image would have; None if this very file differs."""

    def claimed(self, contents: tuple[str, ...]) -> t.Collection[str]:
        """The contents of which disks are being created now; if steps follow, no run starts to until they are done."""


@dataclasses.dataclass(frozen=True)
class Bringing:
    """Steps until the name points to the requested content, and related findings."""

    steps: tuple[plan_image.ImageStep, ...] = ()
    before: str | None = None  # where the name points
    vouch: tuple[
        plan_image.Vouch, ...
    ] = ()  # what was read, so that the next run need not read it: no change of the image
    read_again: bool = False  # a content that was verified before


@dataclasses.dataclass(frozen=True)
class Removing:
    """Steps that remove unused files, and notes on the others."""

    steps: tuple[plan_image.ImageStep, ...] = ()
    notes: tuple[str, ...] = ()


def bringing(image: Image, host: ImageHost, *, absent: bool = False) -> Bringing:
    """Steps until the name points to the requested content; raises a VirtError if that is refused."""
    found = host.look()
    if absent:
        return Bringing(before=found.target)
    image, steps = _until_present(image, found, host)
    if content := plan_image.moves_from(found, steps):
        user = host.user_of_name(os.path.join(image.directory, image.name))
        plan_image.check_name(image, content, user)
    if content := plan_image.stranger(image, found):
        vouch = _recognised(image, content, host)
        return Bringing(tuple(steps), found.target, vouch)
    if plan_image.was_compared(image, found):
        return Bringing(tuple(steps), found.target)
    return dataclasses.replace(_compared_again(image, host), before=found.target)


def _until_present(image: Image, found: Present, host: ImageHost) -> tuple[Image, list[plan_image.ImageStep]]:
    """The image and the steps; another hypervisor is queried first if something is to be fetched from it."""
    steps = _present(image, found, host)
    if not plan_image.needs_origin(image, steps):
        return image, steps
    image = host.offered()
    return image, _present(image, found, host)


def _present(image: Image, found: Present, host: ImageHost) -> list[plan_image.ImageStep]:
    if image.checksum:
        plan_image_checks.refuse_namesake(image, host.manifest(image.content_name(image.checksum.hex)))
    return plan_image.present(image, found)


def _recognised(image: Image, content: str, host: ImageHost) -> tuple[plan_image.Vouch, ...]:
    """The record of a file without a manifest that has exactly the requested bytes; raises Unverified."""
    checksum = t.cast(Checksum, image.checksum)
    same = host.digest(content, checksum.algorithm) == checksum.hex
    manifest = host.compared_with_requested(content) if same and image.source else None
    plan_image.refuse_stranger(image, content, same=same if image.source is None else manifest is not None)
    return _vouched(image, manifest, host)


def _compared_again(image: Image, host: ImageHost) -> Bringing:
    """Verifies the requested content again before disks are based on it; a changed one is replaced."""
    content = image.content_name(t.cast(Checksum, image.checksum).hex)
    if host.is_recorded(content):
        return Bringing()
    if manifest := host.compared(content):
        return Bringing(vouch=_vouched(image, manifest, host), read_again=True)
    if image.source and image.source.kind == "origin":
        image = host.offered()
    steps = plan_image.replaced(image, host.users_inside(image.directory))
    return Bringing(tuple(steps), read_again=True)


def _vouched(image: Image, manifest: Manifest | None, host: ImageHost) -> tuple[plan_image.Vouch, ...]:
    """The step that records that a file was verified, unless it is recorded."""
    if manifest is None or host.is_recorded(manifest.content):
        return ()
    return (plan_image.Vouch(image, manifest),)


def removing(
    image: Image,
    host: ImageHost,
    brought: t.Sequence[plan_image.ImageStep] = (),
    *,
    absent: bool = False,
    prune: bool = False,
    elsewhere: t.Mapping[str, str] | None = None,
) -> Removing:
    """Steps that remove unused files after the steps that are carried out before, `brought`; raises Refused.

    `elsewhere` are users on other hosts, by content, which count on a shared filesystem; None: nobody has asked them.
    """
    if not (absent or prune):
        return Removing()
    found = host.look()
    old = plan_image.old(image, found, brought, every=absent)
    users = _users(image, old, host) if old else {}
    shared = host.shared() if any(content not in users for content in old) else None
    if shared:
        users = {**(elsewhere or {}), **users}
    unasked = shared if elsewhere is None else None
    notes = plan_image.strangers(found)
    if absent:
        return Removing(tuple(plan_image.absent(image, found, users, unasked)), tuple(notes))
    steps, kept = plan_image.superseded(image, old, users, unasked)
    return Removing(tuple(steps), (*notes, *kept))


def _users(image: Image, contents: t.Sequence[str], host: ImageHost) -> t.Mapping[str, str]:
    """Who uses which of these contents, including disks that are being created."""
    claimed = host.claimed(tuple(contents))  # before it is asked who uses them: none begins then
    users = {**host.users_inside(image.directory), **dict.fromkeys(claimed, "a disk that is being created")}
    openers = {content: host.opener(content) for content in contents if content not in users}
    return {**users, **{content: user for content, user in openers.items() if user}}
