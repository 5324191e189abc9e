# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Decide what is mounted for pools, and refuse what would hide or lose data."""

from __future__ import annotations

import dataclasses
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Plan, Step
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import (
    MADE_BY,
    MARK,
    Mounted,
    MountHost,
    MountSpec,
    UnitFile,
)

__all__ = [
    "EnableUnit",
    "MakeFilesystem",
    "MakeMountPoint",
    "Mount",
    "MountStep",
    "RemoveUnit",
    "Unmount",
    "WriteUnit",
    "check_empty",
    "check_mounted",
    "check_ours",
    "check_unused",
    "decide",
    "specs",
]

_NETWORK = ("ceph", "cifs", "glusterfs", "nfs", "nfs4", "smb3")
# What a source of a network filesystem looks like; all others are devices.
_SOURCES = {
    "cifs": (r"//[^/]+/.+", "//SERVER/SHARE"),
    "smb3": (r"//[^/]+/.+", "//SERVER/SHARE"),
    "glusterfs": (r"[^/:]+:/?[^/]+.*", "SERVER:/VOLUME"),
    "nfs": (r"([^/:]+|\[[0-9a-fA-F:]+\]):/.*", "SERVER:/EXPORT"),
    "nfs4": (r"([^/:]+|\[[0-9a-fA-F:]+\]):/.*", "SERVER:/EXPORT"),
}
_DEVICE = (r"/dev/.+|(UUID|LABEL|PARTUUID|PARTLABEL)=.+", "a device below /dev, or UUID=... or LABEL=...")
_SECRET = re.compile("pass(word)?(2)?=")
_LINE = re.compile(r"[^\x00-\x1f\x7f\\]+")  # a line of a unit; a backslash begins an escape or continues the line
# Before the kill of our own wait (a minute), and as long as a dead server holds up the start of a host.
_TIMEOUT_S = 45
_UNIT = """{mark}
[Unit]
Description=Storage of guests in {path}
# Pools and guests start after it, also with the option nofail.
Before=libvirtd.service virtstoraged.service virtqemud.service

[Mount]
What={src}
Where={path}
Type={fstype}
{options}TimeoutSec={timeout}

[Install]
# Wanted, not required: without its storage, a host starts all the same.
WantedBy={target}
"""


@dataclasses.dataclass(frozen=True)
class MountStep(Step):
    """One change of what is mounted."""

    path: str


@dataclasses.dataclass(frozen=True)
class MakeFilesystem(MountStep):
    """Make a filesystem on an empty device."""

    look: t.ClassVar[Look | None] = Look(
        at="signatures on the device (filesystems, partition tables, members of a volume group), and who holds it",
        holds="",
        leaves="the device and its content",
        by=("device",),
    )

    device: str
    fstype: str

    def __str__(self) -> str:
        return f"make filesystem {self.fstype} on {self.device}"


@dataclasses.dataclass(frozen=True)
class MakeMountPoint(MountStep):
    """Create the directory, which nobody can write into while nothing is mounted there."""

    def __str__(self) -> str:
        return f"make mount point {self.path}"


@dataclasses.dataclass(frozen=True)
class WriteUnit(MountStep):
    """Write a mount unit."""

    file: str
    text: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"write {self.file}"


@dataclasses.dataclass(frozen=True)
class EnableUnit(MountStep):
    """Mount it when the host starts."""

    unit: str

    def __str__(self) -> str:
        return f"enable {self.unit}"


@dataclasses.dataclass(frozen=True)
class Mount(MountStep):
    """Mount it now."""

    unit: str
    src: str

    def __str__(self) -> str:
        return f"mount {self.src} at {self.path}"


@dataclasses.dataclass(frozen=True)
class Unmount(MountStep):
    """Unmount it; the kernel refuses where a process uses it."""

    look: t.ClassVar[Look | None] = Look(
        at="pools and guests with files there; the kernel unmounts nothing that a process uses",
        holds="",
        leaves="the mount; its user",
        by=("path",),
    )

    unit: str

    def __str__(self) -> str:
        return f"unmount {self.path}"


@dataclasses.dataclass(frozen=True)
class RemoveUnit(MountStep):
    """Remove a mount unit of ours; its directory stays, and can be written into."""

    look: t.ClassVar[Look | None] = Look(
        at="the text of the unit", holds="", leaves="the unit as others have changed it", by=("file", "text")
    )

    unit: str
    file: str
    text: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"remove {self.file}"


Findings = t.Iterator[str]


def specs(mounts: t.Sequence[t.Mapping[str, t.Any]]) -> list[MountSpec]:
    """The mounts of the options, in an order in which one can be in another; raises BadInput with all problems."""
    found = [_spec(one) for one in mounts]
    problems = [problem for one in found for problem in _problems(one)]
    paths = [one.path for one in found]
    problems += [f"mounts: {path} is given twice" for path in sorted({path for path in paths if paths.count(path) > 1})]
    if problems:
        raise BadInput(problems)
    return sorted(found, key=lambda one: one.path.count("/") * (-1 if one.absent else 1))


def _spec(given: t.Mapping[str, t.Any]) -> MountSpec:
    return MountSpec(
        posixpath.normpath(given["path"]),
        given.get("src") or "",
        given.get("fstype") or "",
        tuple(given.get("options") or ()),
        build=bool(given.get("build")),
        absent=given.get("state") == "absent",
    )


def _problems(spec: MountSpec) -> Findings:
    of = f"of mount {spec.path!r}" if not _LINE.fullmatch(spec.path) else f"of mount {spec.path}"
    if not spec.path.startswith("/") or spec.path == "/" or not _LINE.fullmatch(spec.path):
        yield f"path {of}: must be an absolute path below /, without control characters and backslashes"
    if spec.absent:
        return
    for field in ("src", "fstype"):
        value = getattr(spec, field)
        if not value:
            yield f"{field} {of}: it is required unless state is absent"
        elif not _LINE.fullmatch(value):
            yield f"{field} {of}: must have no control characters and backslashes"
    pattern, form = _SOURCES.get(spec.fstype, (r".+", "") if spec.fstype in _NETWORK else _DEVICE)
    if spec.src and spec.fstype and not re.fullmatch(pattern, spec.src):
        yield f"src {of}: must be {form} for fstype {spec.fstype}, not {spec.src}"
    if spec.build and spec.fstype not in MADE_BY:
        yield f"build {of}: it makes {' or '.join(MADE_BY)}, not {spec.fstype or 'nothing'}"
    if spec.fstype == "glusterfs" and " " in spec.path:
        yield f"path {of}: the mount program of glusterfs fails with a space; choose another path"
    yield from _bad_options(spec, of)


def _bad_options(spec: MountSpec, of: str) -> Findings:
    for option in spec.options:
        if _SECRET.match(option):
            yield f"options {of}: every user of the host can read a unit; use credentials=FILE instead of a password"
        elif not _LINE.fullmatch(option) or option.startswith("x-systemd."):
            yield f"options {of}: {option!r} cannot be in a unit; x-systemd options are for /etc/fstab only"


def decide(wanted: t.Sequence[MountSpec], host: MountHost) -> Plan[MountStep]:
    """The plan; raises Refused with all that speaks against it, before anything is touched."""
    refusals = [refusal for spec in wanted for refusal in _refusals(spec, host)]
    if refusals:
        raise Refused("; ".join(refusals))
    each = [_absent(spec, host) if spec.absent else _present(spec, host) for spec in wanted]
    return Plan(
        tuple(step for one in each for step in one.steps),
        tuple(change for one in each for change in one.changes),
        tuple(text for one in each for text in one.pending),
        tuple(note for spec in wanted for note in _notes(spec)),
    )


def _refusals(spec: MountSpec, host: MountHost) -> Findings:
    unit, line, found = host.unit(spec.path), host.fstab(spec.path), host.mounted(spec.path)
    verb = "unmount" if spec.absent else "mount"
    real = host.real(spec.path)
    if real != spec.path:
        yield f"cannot {verb} {spec.path}: a symbolic link leads to {real}; set path: {real}"
    elif line is not None:
        yield f"cannot {verb} {spec.path}: line {line} of /etc/fstab mounts it; remove that line (or do it there)"
    elif unit.foreign:
        yield f"cannot {verb} {spec.path}: {unit.foreign} defines it, and is not ours; remove it (or do it there)"
    elif spec.absent:
        yield from _unremovable(spec, host, unit, found)
    elif found is not None:
        if not _same(spec, found, host):
            yield (
                f"cannot mount {spec.src} at {spec.path}: {found.source} ({found.fstype}) is mounted there; choose "
                "another path, or unmount that first"
            )
    else:
        yield from _unmountable(spec, host)


def _unremovable(spec: MountSpec, host: MountHost, unit: UnitFile, found: Mounted | None) -> Findings:
    if found is not None and not unit.ours:
        yield (
            f"cannot unmount {spec.path}: {found.source} is mounted there, and not by a unit of ours; unmount it "
            f"yourself (umount '{spec.path}')"
        )
    elif found is not None and (users := host.users(spec.path)):
        yield _used(spec.path, users)


def _used(path: str, users: t.Sequence[str]) -> str:
    return f"cannot unmount {path}: {some_of(users, 4)} use it; move or remove these first"


def _unmountable(spec: MountSpec, host: MountHost) -> Findings:
    entries = host.entries(spec.path)
    if entries:
        yield (
            f"cannot mount {spec.src} at {spec.path}: the directory is not empty ({some_of(sorted(entries), 3)}), and "
            "the mount would hide what is in it; move it away, or choose another path"
        )
    if _is_remote(spec):
        return
    device = host.device(spec.src)
    if device is None:
        yield f"cannot mount {spec.src} at {spec.path}: there is no such device"
        return
    kind = host.filesystem(device)
    if kind == spec.fstype:
        return
    content = host.content(device)
    if spec.build and content:
        yield _not_empty(spec.src, content)
    elif not spec.build:
        told = f"holds {kind}, not {spec.fstype}" if kind else content or "is empty; build: true makes a filesystem"
        yield f"cannot mount {spec.src} at {spec.path}: it {told}"


def _not_empty(device: str, content: str) -> str:
    return (
        f"cannot make a filesystem on {device}: it {content}; to use what is there, omit build; build only writes on "
        "empty devices, so to give up what is there, erase it yourself (wipefs)"
    )


def _is_remote(spec: MountSpec) -> bool:
    return spec.fstype in _NETWORK


def _same(spec: MountSpec, found: Mounted, host: MountHost) -> bool:
    if _is_remote(spec):
        return _plain(spec.src) == _plain(found.source)
    device = host.device(spec.src)
    return device is not None and host.real(device) == host.real(found.source)


def _plain(source: str) -> str:
    """A source without slashes that mean nothing: `host:/vms` is the Gluster volume `host:vms`."""
    return source.rstrip("/").replace(":/", ":", 1)


def _notes(spec: MountSpec) -> Findings:
    if re.match("/dev/(sd|vd|hd|xvd|nvme|loop)", spec.src):
        yield (
            f"{spec.src} of mount {spec.path} can be another disk after a restart of the host; use its name below "
            "/dev/disk/by-id, or UUID=..."
        )


def _present(spec: MountSpec, host: MountHost) -> Plan[MountStep]:
    unit, found = host.unit(spec.path), host.mounted(spec.path)
    text = _text(spec)
    steps: list[MountStep] = []
    if found is None and not _is_remote(spec) and host.filesystem(str(host.device(spec.src))) is None:
        steps.append(MakeFilesystem(spec.path, spec.src, spec.fstype))
    if found is None:
        steps.append(MakeMountPoint(spec.path))
    if unit.text != text:
        steps.append(WriteUnit(spec.path, unit.path, text))
    if not unit.enabled:
        steps.append(EnableUnit(spec.path, unit.name))
    if found is None:
        steps.append(Mount(spec.path, unit.name, spec.src))
    waits = found is not None and unit.text not in (None, text)
    return Plan(
        tuple(steps),
        tuple(_changes(spec, unit, found)),
        (f"options of {spec.path} apply when it is mounted again: systemctl restart '{unit.name}'",) if waits else (),
    )


def _absent(spec: MountSpec, host: MountHost) -> Plan[MountStep]:
    unit, found = host.unit(spec.path), host.mounted(spec.path)
    if unit.text is None:
        return Plan()
    steps: list[MountStep] = [Unmount(spec.path, unit.name)] if found else []
    steps.append(RemoveUnit(spec.path, unit.name, unit.path, unit.text))
    return Plan(tuple(steps), tuple(_changes(spec, unit, found)))


def _text(spec: MountSpec) -> str:
    remote = _is_remote(spec) or "_netdev" in spec.options
    options = (*spec.options, *(("_netdev",) if _is_remote(spec) and "_netdev" not in spec.options else ()))
    doubled = {field: getattr(spec, field).replace("%", "%%") for field in ("src", "path", "fstype")}
    return _UNIT.format(
        mark=MARK,
        options="Options={}\n".format(",".join(options).replace("%", "%%")) if options else "",
        timeout=_TIMEOUT_S,
        target="remote-fs.target" if remote else "local-fs.target",
        **doubled,
    )


_SHOWN = {"src": "What", "fstype": "Type", "options": "Options"}


def _changes(spec: MountSpec, unit: UnitFile, found: Mounted | None) -> t.Iterator[Change]:
    """Of the unit's settings, and of what is mounted."""
    before, after = unit.text or "", "" if spec.absent else _text(spec)
    for field, key in _SHOWN.items():
        old, new = _setting(before, key), _setting(after, key)
        if old != new:
            yield Change(f"mounts[{spec.path}].{field}", old, new)
    is_mounted, will_be = found is not None, not spec.absent
    if is_mounted != will_be:
        yield Change(f"mounts[{spec.path}].mounted", is_mounted, will_be)


def _setting(text: str, key: str) -> str | None:
    found = re.search(f"^{key}=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else None


def check_empty(device: str, content: str | None) -> None:
    """Raise Refused if the device on which a filesystem is to be made is not empty."""
    if content:
        raise Refused(_not_empty(device, content))


def check_unused(path: str, users: t.Sequence[str]) -> None:
    """Raise Refused if somebody has come to use what is to be unmounted."""
    if users:
        raise Refused(_used(path, users))


def check_ours(step: RemoveUnit, text: str | None) -> None:
    """Raise Refused if the unit that is to be removed is not the one that was planned with."""
    if text != step.text:
        raise Refused(f"cannot remove {step.file}: it has changed since it was looked at; run this again")


def check_mounted(step: Mount, found: Mounted | None) -> None:
    """Raise Failed if nothing is mounted, although systemd says so."""
    if found is None:
        raise Failed(f"mounted {step.src}, but nothing is at {step.path}; look at `systemctl status '{step.unit}'`")
