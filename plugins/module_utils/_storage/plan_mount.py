# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what is mounted for pools, and refuse what would hide or lose data."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Plan, Step
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_of, bytes_text
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import (
    MADE_BY,
    MARK,
    Luks,
    Mounted,
    MountHost,
    MountSpec,
    UnitFile,
)

_NETWORK = ("ceph", "cifs", "glusterfs", "nfs", "nfs4", "smb3")
# What a source of a network filesystem looks like; all others are devices.
_SOURCES = {
    "cifs": (r"//[^/]+/.+", "//SERVER/SHARE"),
    "smb3": (r"//[^/]+/.+", "//SERVER/SHARE"),
    "glusterfs": (r"[^/:]+:/?[^/]+.*", "SERVER:/VOLUME"),
    "nfs": (r"([^/:]+|\[[0-9a-fA-F:]+\]):/.*", "SERVER:/EXPORT"),
    "nfs4": (r"([^/:]+|\[[0-9a-fA-F:]+\]):/.*", "SERVER:/EXPORT"),
}
_IMAGE = (r"/.+|(UUID|LABEL|PARTUUID|PARTLABEL)=.+", "a device, or the path of an image file")  # of LUKS
_DEVICE = (r"/dev/.+|(UUID|LABEL|PARTUUID|PARTLABEL)=.+", "a device below /dev, or UUID=... or LABEL=...")
_SECRET = re.compile("pass(word)?(2)?=")
_LINE = re.compile(r"[^\x00-\x1f\x7f\\]+")  # a line of a unit; a backslash begins an escape or continues the line
# Before the kill of our own wait (a minute), and as long as a dead server holds up the start of a host.
_TIMEOUT_S = 45
_LUKS = "crypto_LUKS"  # as blkid calls it
_PASSPHRASE = re.compile(r"[^\x00-\x1f\x7f]{1,512}")  # what cryptsetup also takes from a keyboard
_LEAST_BYTES = 320 * 1024**2  # xfs wants 300 MiB, and the header of LUKS 16
_SPARE_BYTES = 64 * 1024**2
_MAPPED = "/dev/mapper/corral-"
_UNIT = """{mark}
[Unit]
Description=Storage of guests in {path}
# Pools and guests start after it, also with the option nofail.
Before=libvirtd.service virtstoraged.service virtqemud.service
{below}
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

    template = "make filesystem {0.fstype} on {0.device}"
    look: t.ClassVar[Look | None] = Look(
        at="signatures on the device (filesystems, partition tables, members of a volume group), and who holds it",
        holds="",
        leaves="the device and its content",
        by=("device",),
    )

    device: str
    fstype: str
    luks: str = ""  # the LUKS device below, whose header tells that it has no filesystem yet


@dataclasses.dataclass(frozen=True)
class CreateImage(MountStep):
    """Create an encrypted image file under an unused name."""

    file: str
    size_bytes: int
    passphrase: str = dataclasses.field(repr=False)

    def __str__(self) -> str:
        return f"create encrypted image {self.file} ({bytes_text(self.size_bytes)})"


@dataclasses.dataclass(frozen=True)
class EncryptDevice(MountStep):
    """Write a LUKS header on an empty device."""

    template = "encrypt {0.device} (LUKS2)"
    look: t.ClassVar[Look | None] = Look(
        at="signatures on the device, and who holds it; a header of LUKS must be ours, without a filesystem and keys",
        holds="",
        leaves="the device and its content",
        by=("device",),
    )

    device: str
    passphrase: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class OpenDevice(MountStep):
    """Open a LUKS device."""

    template = "open {0.device} as {0.mapped}"
    device: str
    mapped: str
    passphrase: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class CloseDevice(MountStep):
    """Close a LUKS device; the kernel forgets its key."""

    template = "close {0.mapped}"
    mapped: str


@dataclasses.dataclass(frozen=True)
class MakeMountPoint(MountStep):
    """Create the directory, which nobody can write into while nothing is mounted there."""

    template = "make mount point {0.path}"


@dataclasses.dataclass(frozen=True)
class WriteUnit(MountStep):
    """Write a mount unit."""

    template = "write {0.file}"
    file: str
    text: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class EnableUnit(MountStep):
    """Mount it when the host starts."""

    template = "enable {0.unit}"
    unit: str


@dataclasses.dataclass(frozen=True)
class Mount(MountStep):
    """Mount it now."""

    template = "mount {0.src} at {0.path}"
    unit: str
    src: str


@dataclasses.dataclass(frozen=True)
class Unmount(MountStep):
    """Unmount it; the kernel refuses where a process uses it."""

    template = "unmount {0.path}"
    look: t.ClassVar[Look | None] = Look(
        at="pools and guests with files there; the kernel unmounts nothing that a process uses",
        holds="",
        leaves="the mount; its user",
        by=("path",),
    )

    unit: str


@dataclasses.dataclass(frozen=True)
class RemoveUnit(MountStep):
    """Remove a mount unit of ours; its directory stays, and can be written into."""

    template = "remove {0.file}"
    look: t.ClassVar[Look | None] = Look(
        at="the text of the unit", holds="", leaves="the unit as others have changed it", by=("file", "text")
    )

    unit: str
    file: str
    text: str = dataclasses.field(repr=False)


Findings = t.Iterator[str]


def specs(mounts: t.Sequence[t.Mapping[str, t.Any]]) -> list[MountSpec]:
    """The mounts of the options, in an order in which one can be in another; raises BadInput with all problems."""
    tried = Problems(_unencrypted(mounts))
    found = [spec for one in mounts if (spec := tried.tried(functools.partial(_spec, one)))]
    problems = [*tried.found, *(problem for one in found for problem in _problems(one))]
    paths = [one.path for one in found]
    problems += [f"mounts: {path} is given twice" for path in sorted({path for path in paths if paths.count(path) > 1})]
    if problems:
        raise BadInput(problems)
    return sorted(found, key=lambda one: one.path.count("/") * (-1 if one.absent else 1))


def _unencrypted(mounts: t.Sequence[t.Mapping[str, t.Any]]) -> Findings:
    """A variable that is empty by mistake must not make a filesystem that everybody can read."""
    for one in mounts:
        if one.get("passphrase") == "" and one.get("state") in (None, "mounted"):
            yield f"passphrase of mount {one['path']}: it is empty; set one, or leave it out to encrypt nothing"


def _spec(given: t.Mapping[str, t.Any]) -> MountSpec:
    return MountSpec(
        posixpath.normpath(given["path"]),
        given.get("src") or "",
        given.get("fstype") or "",
        tuple(given.get("options") or ()),
        build=bool(given.get("build")),
        absent=given.get("state") in ("absent", "closed"),
        closed=given.get("state") == "closed",
        passphrase=given.get("passphrase") or "",
        size_bytes=bytes_of(given["size"], bare="G", what=f"size of mount {given['path']}") if given.get("size") else 0,
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
            yield f"{field} {of}: it is required if state is mounted"
        elif not _LINE.fullmatch(value):
            yield f"{field} {of}: must have no control characters and backslashes"
    local = _IMAGE if spec.passphrase else _DEVICE
    pattern, form = _SOURCES.get(spec.fstype, (r".+", "") if spec.fstype in _NETWORK else local)
    if spec.src and spec.fstype and not re.fullmatch(pattern, spec.src):
        yield f"src {of}: must be {form} for fstype {spec.fstype}, not {spec.src}"
    if spec.build and spec.fstype not in MADE_BY:
        yield f"build {of}: it makes {' or '.join(MADE_BY)}, not {spec.fstype or 'nothing'}"
    yield from _bad_encryption(spec, of)
    if spec.fstype == "glusterfs" and " " in spec.path:
        yield f"path {of}: the mount program of glusterfs fails with a space; choose another path"
    yield from _bad_options(spec, of)


def _bad_encryption(spec: MountSpec, of: str) -> Findings:
    if spec.passphrase and not _PASSPHRASE.fullmatch(spec.passphrase):
        yield f"passphrase {of}: must be one line of at most 512 characters, without control characters"
    if spec.passphrase and _is_remote(spec):
        yield f"passphrase {of}: it encrypts a device or a file, not {spec.fstype}; set src to a file in such a mount"
    if spec.size_bytes and not (spec.is_image and spec.build):
        yield f"size {of}: it is for an image file that is made: requires build: true, passphrase, and a path in src"
    if spec.size_bytes and spec.size_bytes < _LEAST_BYTES:
        yield f"size {of}: must be at least {bytes_text(_LEAST_BYTES)}, as xfs is not smaller"


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
        if not _same(spec, unit, found, host):
            yield (
                f"cannot mount {spec.src} at {spec.path}: {found.source} ({found.fstype}) is mounted there; choose "
                "another path, or unmount that first"
            )
    else:
        yield from _unmountable(spec, unit, host)


def _unremovable(spec: MountSpec, host: MountHost, unit: UnitFile, found: Mounted | None) -> Findings:
    if spec.closed and unit.ours and not _is_mapped(unit):
        yield f"cannot close {spec.path}: what is mounted there is not encrypted; unmount it with state: absent"
    elif found is not None and not unit.ours:
        yield (
            f"cannot unmount {spec.path}: {found.source} is mounted there, and not by a unit of ours; unmount it "
            f"yourself (umount '{spec.path}')"
        )
    elif found is not None and (users := host.users(spec.path)):
        yield _used(spec.path, users)


def _used(path: str, users: t.Sequence[str]) -> str:
    return f"cannot unmount {path}: {some_of(users, 4)} use it; move or remove these first"


def _unmountable(spec: MountSpec, unit: UnitFile, host: MountHost) -> Findings:
    entries = host.entries(spec.path)
    if entries:
        yield (
            f"cannot mount {spec.src} at {spec.path}: the directory is not empty ({some_of(sorted(entries), 3)}), and "
            "the mount would hide what is in it; move it away, or choose another path"
        )
    if _is_remote(spec):
        return
    device = host.device(spec.src)
    if spec.passphrase:
        yield from _unopenable(spec, _mapped(unit), device, host)
    elif device is None:
        yield f"cannot mount {spec.src} at {spec.path}: there is no such device"
    elif (kind := host.filesystem(device)) != spec.fstype:
        content = host.content(device)
        if spec.build and content:
            yield _not_empty(spec.src, content)
        elif not spec.build:
            told = f"holds {kind}, not {spec.fstype}" if kind else content or "is empty; build: true makes a filesystem"
            yield f"cannot mount {spec.src} at {spec.path}: it {told}"


def _unopenable(spec: MountSpec, mapped: str, device: str | None, host: MountHost) -> Findings:
    cannot = f"cannot mount {spec.src} at {spec.path}"
    if device is None:
        yield from _uncreatable(spec, cannot, host)
    elif below := host.opened(mapped):
        if not _lies_on(below, device, host):
            yield f"{cannot}: {mapped} is open, and lies on {', '.join(below)}; close that (cryptsetup close {mapped})"
        elif not host.luks(device).unfinished and (kind := host.filesystem(mapped)) != spec.fstype:
            yield f"{cannot}: within its encryption, it holds {kind or 'no filesystem'}, not {spec.fstype}"
    elif held := host.holders(device):
        yield f"{cannot}: {', '.join(held)} has it; end that (cryptsetup close for one of LUKS, losetup -d for a loop)"
    elif host.filesystem(device) == _LUKS and not _is_keyless(device, host):
        if not host.is_opened_by(device, spec.passphrase):
            yield (
                f"{cannot}: the passphrase is not that of this LUKS device; set the one with which it was encrypted "
                "(cryptsetup luksDump shows how many it has)"
            )
    elif spec.is_image and host.filesystem(device) != _LUKS:
        yield f"{cannot}: it is a file without LUKS; choose a path where no file is"
    elif not spec.build:
        told = host.content(device) or "is empty"
        yield f"{cannot}: it {told}; build: true encrypts an empty device"
    elif host.filesystem(device) != _LUKS and (content := host.content(device)):
        yield _not_empty(spec.src, content)


def _uncreatable(spec: MountSpec, cannot: str, host: MountHost) -> Findings:
    directory = posixpath.dirname(spec.src)
    if not (spec.is_image and spec.build and spec.size_bytes):
        more = "file; build: true and size make it" if spec.is_image else "device"
        yield f"{cannot}: there is no such {more}"
    elif host.entries(directory) is None:
        yield f"{cannot}: there is no directory {directory}; create it, or mount the filesystem for the image"
    elif (free := host.free_bytes(spec.src)) < spec.size_bytes + _SPARE_BYTES:
        yield (
            f"{cannot}: {directory} has {bytes_text(free)} free, and the image takes "
            f"{bytes_text(spec.size_bytes + _SPARE_BYTES)}; make room, or set a smaller size"
        )


def _is_keyless(device: str, host: MountHost) -> bool:
    """True if a run of ours was killed before its LUKS device had a key: nothing can be in it."""
    luks = host.luks(device)
    return luks.unfinished and not luks.has_key


def _lies_on(below: list[str], device: str, host: MountHost) -> bool:
    """True if an open device is that of a LUKS device, or of the loop of an image file."""
    return [host.real(one) for one in below] == [host.real(device)] or below == host.holders(device)


def _mapped(unit: UnitFile) -> str:
    """The device of dm-crypt for a mount; its name is that of the unit, without what such names cannot have."""
    return _MAPPED + unit.name.rpartition(".")[0].replace("\\x", ".")


def _is_mapped(unit: UnitFile) -> bool:
    return str(_setting(unit.text or "", "What")).startswith(_MAPPED)


def _not_empty(device: str, content: str) -> str:
    return (
        f"cannot make a filesystem on {device}: it {content}; to use what is there, omit build; build only writes on "
        "empty devices, so to give up what is there, erase it yourself (wipefs)"
    )


def _is_remote(spec: MountSpec) -> bool:
    return spec.fstype in _NETWORK


def _same(spec: MountSpec, unit: UnitFile, found: Mounted, host: MountHost) -> bool:
    if _is_remote(spec):
        return _plain(spec.src) == _plain(found.source)
    device = host.device(spec.src)
    if spec.passphrase:
        mapped = _mapped(unit)
        is_it = host.real(found.source) == host.real(mapped)
        return device is not None and is_it and _lies_on(host.opened(mapped), device, host)
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
    text = _text(spec, unit)
    steps: list[MountStep] = []
    if found is None:
        steps += [*_opening(spec, _mapped(unit), host)] if spec.passphrase else [*_making(spec, host)]
        steps.append(MakeMountPoint(spec.path))
    if unit.text != text:
        steps.append(WriteUnit(spec.path, unit.path, text))
    if not unit.enabled and not spec.passphrase:  # the host has no key when it starts
        steps.append(EnableUnit(spec.path, unit.name))
    if found is None:
        steps.append(Mount(spec.path, unit.name, spec.src))
    waits = found is not None and unit.text not in (None, text)
    return Plan(
        tuple(steps),
        tuple(_changes(spec, unit, found, host)),
        (f"options of {spec.path} apply when it is mounted again: systemctl restart '{unit.name}'",) if waits else (),
    )


def _making(spec: MountSpec, host: MountHost) -> t.Iterator[MountStep]:
    """The filesystem of an empty device."""
    if not _is_remote(spec) and host.filesystem(str(host.device(spec.src))) is None:
        yield MakeFilesystem(spec.path, spec.src, spec.fstype)


def _opening(spec: MountSpec, mapped: str, host: MountHost) -> t.Iterator[MountStep]:
    """What is still to be done until a LUKS device is open, with a filesystem in it."""
    device = host.device(spec.src)
    is_new = device is None or host.filesystem(device) != _LUKS or _is_keyless(device, host)
    if device is None:
        yield CreateImage(spec.path, spec.src, spec.size_bytes, spec.passphrase)
    elif is_new:
        yield EncryptDevice(spec.path, spec.src, spec.passphrase)
    if not host.opened(mapped):
        yield OpenDevice(spec.path, spec.src, mapped, spec.passphrase)
    if is_new or host.luks(str(device)).unfinished:
        yield MakeFilesystem(spec.path, mapped, spec.fstype, spec.src)


def _absent(spec: MountSpec, host: MountHost) -> Plan[MountStep]:
    unit, found = host.unit(spec.path), host.mounted(spec.path)
    steps: list[MountStep] = [Unmount(spec.path, unit.name)] if found and unit.text is not None else []
    if host.opened(_mapped(unit)):
        steps.append(CloseDevice(spec.path, _mapped(unit)))
    if unit.text is not None and not spec.closed:
        steps.append(RemoveUnit(spec.path, unit.name, unit.path, unit.text))
    return Plan(tuple(steps), tuple(_changes(spec, unit, found, host)) if steps else ())


def _text(spec: MountSpec, unit: UnitFile) -> str:
    remote = _is_remote(spec) or "_netdev" in spec.options
    options = (*spec.options, *(("_netdev",) if _is_remote(spec) and "_netdev" not in spec.options else ()))
    src = _mapped(unit) if spec.passphrase else spec.src
    doubled = {
        key: value.replace("%", "%%") for key, value in (("src", src), ("path", spec.path), ("fstype", spec.fstype))
    }
    image = '"{}"'.format(spec.src.replace("%", "%%").replace('"', '\\"')) if spec.is_image else ""
    return _UNIT.format(
        mark=MARK,
        below=f"RequiresMountsFor={image}\n" if image else "",
        options="Options={}\n".format(",".join(options).replace("%", "%%")) if options else "",
        timeout=_TIMEOUT_S,
        target="remote-fs.target" if remote else "local-fs.target",
        **doubled,
    )


_SHOWN = {"src": "What", "fstype": "Type", "options": "Options"}


def _changes(spec: MountSpec, unit: UnitFile, found: Mounted | None, host: MountHost) -> t.Iterator[Change]:
    """Changes of the unit's settings, of what is open, and of what is mounted."""
    before, gone = unit.text or "", "" if spec.absent else _text(spec, unit)
    after = before if spec.closed else gone
    for field, key in _SHOWN.items():
        old, new = _setting(before, key), _setting(after, key)
        if old != new:
            yield Change(f"mounts[{spec.path}].{field}", old, new)
    is_open, will_be = bool(host.opened(_mapped(unit))), bool(spec.passphrase) and not spec.absent
    if is_open != will_be:
        yield Change(f"mounts[{spec.path}].open", is_open, will_be)
    is_mounted, will_be = found is not None, not spec.absent
    if is_mounted != will_be:
        yield Change(f"mounts[{spec.path}].mounted", is_mounted, will_be)


def _setting(text: str, key: str) -> str | None:
    found = re.search(f"^{key}=(.*)$", text, re.MULTILINE)
    return found.group(1) if found else None


def check_empty(step: MakeFilesystem | EncryptDevice, content: str | None, kind: str | None = None) -> None:
    """Raise Refused if the device that is to be written is not empty; a run that was killed may have made the
    filesystem in a new LUKS device already.
    """
    if content and not (isinstance(step, MakeFilesystem) and step.luks and kind == step.fstype):
        raise Refused(_not_empty(step.device, content))


def check_keyless(step: EncryptDevice, luks: Luks | None, content: str | None) -> None:
    """Raise Refused if the device that is to be encrypted has anything but a header of ours without a key."""
    if luks is None or not luks.unfinished or luks.has_key:
        check_empty(step, content)


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
