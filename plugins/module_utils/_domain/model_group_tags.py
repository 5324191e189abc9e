# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tags by which later runs know where a guest may be: apart, together, in which host groups."""

from __future__ import annotations

import typing as t

APART, TOGETHER, HOST_GROUPS, REQUIRES = "apart-", "together-", "host_groups-", "requires-"


def after_prefix(tags: t.Iterable[str], prefix: str) -> frozenset[str]:
    """The rest of the tags with this prefix: groups or requirements."""
    return frozenset(tag[len(prefix) :] for tag in tags if tag.startswith(prefix))


def versions(tags: t.Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Required programs and their oldest sufficient version, from tags such as `requires-qemu-8.2`."""
    pairs = (word.partition("-") for word in after_prefix(tags, REQUIRES))
    return tuple(sorted((program, version) for program, _dash, version in pairs if version))
