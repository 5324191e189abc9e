# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Refuse a start, or a device for a running guest, that libvirt would refuse on each run. Pure."""

from __future__ import annotations

import dataclasses
import functools
import operator
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._errors import NotFound
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import (
    UNFINISHED_SUFFIX,
    Missing,
    Prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import power_steps

__all__ = ["autostart_notes", "check", "check_steps", "combined"]


def combined(each: t.Iterable[Prerequisites], *, made: t.Collection[str] = ()) -> Prerequisites:
    """All that is needed, but for files that are made before."""
    every = functools.reduce(operator.or_, each, Prerequisites())
    return dataclasses.replace(every, files=every.files.difference(made))


def check_steps(
    guest: str, made: t.Iterable[power_steps.GuestStep], ask: t.Callable[[], tuple[Prerequisites, Missing]]
) -> None:
    """Refuse the start among the steps of a guest, as `check` does; the host is asked only where there is one."""
    if any(isinstance(step, power_steps.Start) for step in made):
        check("start", guest, *ask())


def check(verb: str, guest: str, needed: Prerequisites, missing: Missing) -> None:
    """Raise NotFound with all that the host lacks, and what mends it."""
    problems = [*_networks(missing), *_links(missing), *_files(needed, missing), *_volumes(missing)]
    if problems:
        reasons, remedies = (dict.fromkeys(texts) for texts in zip(*problems))
        raise NotFound(f"cannot {verb} {guest}: {', and '.join(reasons)}; {'; '.join(remedies)}")


def autostart_notes(guest: str, missing: Missing) -> tuple[str, ...]:
    """What keeps a guest from starting with the host: libvirt starts no network for it."""
    return tuple(
        f"{guest} starts with the host, and network {name}, which it needs, does not; set autostart: true with "
        f"virt_network (or `{shlex.join(['virsh', 'net-autostart', name])}`)"
        for name in sorted(missing.no_autostart)
    )


Problems = t.Iterator["tuple[str, str]"]  # reason and remedy


def _networks(missing: Missing) -> Problems:
    for name, there in sorted(missing.networks.items()):
        if there:
            start = shlex.join(["virsh", "net-start", name])
            yield f"network {name} is not active", f"start it with virt_network (state: active) or `{start}`"
        else:
            yield f"this host has no network {name}", "create the network with virt_network, or choose another"


def _links(missing: Missing) -> Problems:
    for name in sorted(missing.links):
        remedy = "create the bridge with role corral.virt.bridge, or choose another for the interface"
        yield f"this host has no network device {name}", remedy


def _files(needed: Prerequisites, missing: Missing) -> Problems:
    made = {template for template, variables in needed.templates.items() if variables not in missing.paths}
    for path in sorted(missing.paths & (needed.files | (needed.templates.keys() - made))):
        if path.endswith(UNFINISHED_SUFFIX):
            remedy = "list its disks again with virt_domain to finish creating them, or remove the guest"
            yield f"an interrupted run left {path[: -len(UNFINISHED_SUFFIX)]} incomplete", remedy
        else:
            yield f"{path} does not exist", "put it there, or take it out of the guest's definition"


def _volumes(missing: Missing) -> Problems:
    for (pool, name), reason in sorted(missing.volumes.items()):
        remedy = (
            f"create the volume, or start or refresh its pool (`{shlex.join(['virsh', 'pool-start', pool])}`, "
            f"`{shlex.join(['virsh', 'pool-refresh', pool])}`)"
        )
        yield f"volume {name} of pool {pool} is not found ({reason})", remedy
