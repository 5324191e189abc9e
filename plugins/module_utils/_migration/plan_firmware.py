# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find UEFI firmware that two hosts have under different paths, by its firmware descriptors. Pure."""

from __future__ import annotations

import fnmatch
import json
import typing as t

DIRECTORIES = ("/etc/qemu/firmware", "/usr/share/qemu/firmware")
# What a guest relies on, or its variables were made for. Others tell of power states, processors and log output.
_BINDING = frozenset({"secure-boot", "requires-smm", "enrolled-keys", "amd-sev-es", "amd-sev-snp", "intel-tdx"})


class Descriptor(t.NamedTuple):
    """One firmware of a host, from its descriptor."""

    loader: str
    template: str  # of its variables
    kind: tuple[t.Any, ...]  # how it is mapped, its formats, its interfaces and its binding features
    targets: tuple[tuple[str, str], ...]  # architectures, and patterns of machine types


class Build(t.NamedTuple):
    """The firmware in a guest's definition."""

    loader: str
    template: str
    arch: str
    machine: str


def descriptors(texts: t.Iterable[bytes]) -> list[Descriptor]:
    """Descriptors of flash firmware; texts that are not valid descriptors are skipped."""
    found = []
    for text in texts:
        try:
            found.append(_descriptor(json.loads(text)))
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


def _descriptor(said: t.Mapping[str, t.Any]) -> Descriptor:
    mapping = said["mapping"]
    code, variables = mapping["executable"], mapping["nvram-template"]
    formats = (code["format"], variables["format"])
    features = tuple(sorted(_BINDING.intersection(said["features"])))
    return Descriptor(
        str(code["filename"]),
        str(variables["filename"]),
        (mapping["device"], mapping.get("mode", "split"), formats, tuple(sorted(said["interface-types"])), features),
        tuple((one["architecture"], machine) for one in said["targets"] for machine in one["machines"]),
    )


def translation(
    build: Build,
    here: t.Iterable[Descriptor],
    there: t.Iterable[Descriptor],
    sizes: t.Callable[[Descriptor, Descriptor], bool],
) -> dict[str, str]:
    """Maps the firmware paths of this host to those of the other; empty if the other has no such firmware.

    `sizes` returns True if the files of both have the same lengths: variables of firmware with another flash layout (2
    MiB, 4 MiB) do not fit.
    """
    mine = [one for one in here if one.loader == build.loader and build.template in ("", one.template)]
    for one in there:
        for own in mine:
            if one.kind == own.kind and _serves(one, build) and sizes(own, one):
                return {own.loader: one.loader, own.template: one.template}
    return {}


def _serves(one: Descriptor, build: Build) -> bool:
    return any(arch == build.arch and fnmatch.fnmatchcase(build.machine, machine) for arch, machine in one.targets)
