# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the directory and the devices of a pool on this machine."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed


def obstacle(path: str) -> str | None:
    """The first part of a path that exists and is no directory, such as a dangling link; None if there is none."""
    at = ""
    for part in os.path.normpath(path).split("/")[1:]:
        at = f"{at}/{part}"
        if not os.path.isdir(at):
            return at if os.path.lexists(at) else None
    return None


def directory_id(path: str) -> t.Hashable:
    """A value that is the same for all paths of one directory: through links, and if it is mounted twice."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def content(device: str) -> str | None:
    """Why a device is not an empty one, in words; None if it is. Raises Failed where nobody can tell."""
    try:
        known = os.stat(device)
        if not stat.S_ISBLK(known.st_mode):
            return "is no block device"
        held = os.listdir(f"/sys/dev/block/{os.major(known.st_rdev)}:{os.minor(known.st_rdev)}/holders")
    except FileNotFoundError:
        return "does not exist"
    if held:
        return f"is in use by {', '.join(sorted(held))}"
    try:
        asked = subprocess.run(
            ["wipefs", "--no-act", "--json", device], capture_output=True, encoding="utf-8", check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = str(getattr(error, "stderr", None) or error).strip()
        raise Failed(f"cannot look for content on {device}: {reason}; run this as root, with util-linux") from error
    found = [one["type"] for one in json.loads(asked or "{}").get("signatures", ())]
    return f"holds {', '.join(dict.fromkeys(found))}" if found else None


def closed(path: str, user: tuple[int, int]) -> str | None:
    """The first directory of a path that a user (its number, and that of its group) cannot enter, as `name:directory`.

    None if it can enter all that exist, or if that is unknown. The kernel is asked, as only it knows all that decides.
    """
    if os.geteuid() != 0 or user[0] == 0:
        return None
    parts = [one for one in _ancestors(os.path.realpath(path)) if os.path.isdir(one)]
    name, groups = _account(user)
    asked = subprocess.run(
        ["/bin/sh", "-c", _FIRST_CLOSED, "sh", *parts],
        cwd="/",
        user=user[0],
        group=user[1],
        extra_groups=groups,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    return f"{name}:{asked.stdout[:-1]}" if asked.stdout else None


_FIRST_CLOSED = 'for one; do [ -x "$one" ] || { printf "%s\\n" "$one"; exit; }; done'


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: end + 1]) for end in range(1, len(parts))]


def _account(user: tuple[int, int]) -> tuple[str, list[int]]:
    """The name of a user, and all its groups."""
    try:
        name = pwd.getpwuid(user[0]).pw_name
    except KeyError:
        return str(user[0]), [user[1]]
    return name, os.getgrouplist(name, user[1])
