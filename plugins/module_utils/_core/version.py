# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as libvirt encodes them: 9000000 is 9.0.0."""

from __future__ import annotations

import typing as t


def number(major: int, minor: int) -> int:
    """The number of a release's first version, for comparisons."""
    return major * 1_000_000 + minor * 1000


def text(version: int) -> str:
    """A version as text: 9.0.0."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


# Fields that the host's libvirt is too old for: it drops them without a word, and each run would write them again.


def too_old(what: str, recent: t.Iterable[tuple[str, tuple[int, int]]], libvirt: int) -> list[str]:
    """A problem for each place of `what` that requires a newer libvirt than this one (9000000 is 9.0.0)."""
    return [
        f"{place} of {what}: it requires libvirt {major}.{minor}, and this host has {text(libvirt)}; upgrade "
        "libvirt, or leave it out"
        for place, (major, minor) in recent
        if libvirt < number(major, minor)
    ]
