# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mount units of this machine, and what is mounted."""

from __future__ import annotations

import contextlib
import os
import re

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._host import files_systemd
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import MADE_BY, Mounted, UnitFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.command import answer, run
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import explained

_UNITS = "/etc/systemd/system"
_MOUNTS = "/proc/self/mountinfo"
_FSTAB = "/etc/fstab"


def unit(path: str) -> UnitFile:
    """The mount unit of a path."""
    name = run("systemd-escape", "--path", "--suffix=mount", "--", path).rstrip("\n")
    shown = answer("systemctl", "show", "--property=FragmentPath", "--", name)
    enabled = answer("systemctl", "is-enabled", "--", name).strip()
    file = f"{_UNITS}/{name}"
    return UnitFile(name, file, text(file), shown.strip().partition("=")[2], enabled == "enabled")


def text(file: str) -> str | None:
    """The text of a unit's file; None if there is none. A link, such as a masked unit, reads as what it leads to."""
    return configuration.read(file) if os.path.lexists(file) else None


def mounted(path: str, table: str = _MOUNTS) -> Mounted | None:
    """What is mounted at a path; the last of several, which hides the others."""
    found = None
    with open(table, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _dash, after = line.rstrip("\n").partition(" - ")
            fields, (kind, source, _super) = before.split(" "), after.split(" ", 2)
            if _unescaped(fields[4]) == path:
                part = fields[3] if source.startswith("/dev/") and kind != "btrfs" else "/"  # another one: a bind mount
                told = _unescaped(source) + (f"[{_unescaped(part)}]" if part != "/" else "")
                found = Mounted(told, kind, "ro" in fields[5].split(","))
    return found


def mount_point(path: str) -> str:
    """Where the filesystem of a directory is mounted. Asks only the kernel's table, not a server."""
    path = os.path.normpath(path)
    while path != "/" and mounted(path) is None:
        path = os.path.dirname(path)
    return path


def fstab(path: str, table: str = _FSTAB) -> int | None:
    """The number of the first line of /etc/fstab that mounts something at a path."""
    for number, line in enumerate(configuration.read(table).splitlines(), 1):
        words = line.split()
        if len(words) > 1 and not words[0].startswith("#") and os.path.normpath(_unescaped(words[1])) == path:
            return number
    return None


def _unescaped(word: str) -> str:
    """A word of fstab(5) or of the kernel's table, where a space is `\\040`."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), word)


def entries(path: str) -> list[str] | None:
    """Names in a directory; None if it does not exist."""
    with explained(f"mount at {path}", path), contextlib.suppress(FileNotFoundError):
        return os.listdir(path)
    return None


def device(src: str) -> str | None:
    """The device that a source names; None if there is none."""
    path = answer("findfs", src).strip() if "=" in src.partition("/")[0] else src
    return path if path and os.path.exists(path) else None


def filesystem(path: str) -> str | None:
    """The type of the filesystem on a device, as its own bytes tell."""
    return answer("blkid", "--probe", "--output=value", "--match-tag=TYPE", "--", path).strip() or None


def make_filesystem(path: str, fstype: str) -> None:
    """Make a filesystem; the programs are not told to overwrite one."""
    run(*MADE_BY[fstype], path)


def make_mount_point(path: str) -> str | None:
    """Create a directory into which nobody can write until something is mounted there; a note where it can."""
    with explained(f"create {path}", path):
        os.makedirs(path, mode=0o755, exist_ok=True)
    try:
        run("chattr", "+i", "--", path)
    except Failed:
        return (
            f"the filesystem of {path} has no immutable directories: while nothing is mounted there, files of guests "
            "are written into the directory itself"
        )
    return None


def write_unit(file: str, content: str) -> None:
    """Write a unit, and have systemd read it."""
    configuration.write(file, content, mode=0o644)
    run("systemctl", "daemon-reload")


def mount(name: str) -> None:
    """Mount it now."""
    run("systemctl", "daemon-reload")  # a run that was killed may have written the unit
    files_systemd.start(name)


def remove_unit(name: str, file: str, path: str) -> None:
    """Remove a unit; the directory can be written into again."""
    run("systemctl", "disable", "--", name)
    answer("chattr", "-i", "--", path)
    remove(file)
    run("systemctl", "daemon-reload")
