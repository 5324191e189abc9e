# Managed by Ansible: role corral.virt.hypervisor.
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the definitions of protected guests (`ha` of virt_domain) beside their disks, with the host that may run each.

    corral-keep save                                  write what changed of the guests that are defined here
    corral-keep show [DIR]                            list the guests kept in DIR, or in all shared places known here
    corral-keep claim UUID DIR --because TEXT [--of HOST]...
                                                      make this host the owner; with --of, only from these: UUIDs of
                                                      hosts, their names, or nobody
    corral-keep define UUID DIR                       define a guest that this host owns, from what is kept
    corral-keep release UUID                          give a guest up; nobody starts it until a host claims it

save and show print JSON lines. Exit code 0: done; 1: failed, with one line on stderr; 3: refused, another host owns it.

DIR is the directory of the guest's first disk that is a file, on a filesystem that all hosts see. In
DIR/.corral/guests/UUID are `owner`, `history`, `domain.xml`, `nvram` and `tpm.tar`. A guest has one owner, which
changes under a lock, by one rename. As a hook of libvirt, the program refuses to start a guest that another host owns.
Then it calls no libvirt, which waits for it, and waits at most WITHIN_S for a filesystem.

save also undefines a guest that is off here, if another host has become its owner since it was defined here; its old
definition is then in `stale.xml`. For reports, it writes what protects each guest into a file that everybody can read.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import dataclasses
import fcntl
import io
import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import time
import typing as t
import xml.etree.ElementTree as ET

CONFIG = "/etc/corral-keep.json"  # the host's name in the inventory
STATE = "/var/lib/libvirt/corral-keep.json"  # the host's UUID, and the guests that it keeps
STATUS = "/var/lib/libvirt/corral-protected.json"  # for reports
DEFINITIONS = "/etc/libvirt/qemu"
CIB, COROSYNC = "/var/lib/pacemaker/cib/cib.xml", "/etc/corosync/corosync.conf"
ARRIVING = "/run/corral/arriving"
RUNNING = "/run/libvirt/qemu"
NVRAMS = "/var/lib/libvirt/qemu/nvram"
TPMS = "/var/lib/libvirt/swtpm"
MOUNTS = "/proc/self/mounts"
SAVE_SOON = ("systemctl", "start", "--no-block", "corral-keep.service")
HOOK = "60-corral-keep"
WITHIN_S = 5.0
LOCK_S = 20.0
ARRIVING_S = 60.0
OWNERS = 10  # in a history
CORRAL = "{urn:corral:virt:guest:1}"
SHARED = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "fuse.ceph",
    "fuse.glusterfs",
    "fuse.cephfs",
    "gfs2",
    "ocfs2",
    "lustre",
    "gpfs",
)  # as _system/locks.py has them
MIGRATED, RELEASED, RECOVERING, RECOVERED = "migrated", "released", "recovering", "recovered"
NOBODY, SAVED = "nobody", "saved"
MOVED = "moved to "  # begins why nobody owns a guest in a directory that its first disk has left; the new one follows
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class FailedError(Exception):
    """What could not be done, in one line."""


class OwnedElsewhereError(Exception):
    """Another host owns the guest."""


@dataclasses.dataclass(frozen=True)
class Owner:
    """The host that may run a guest; nobody without a UUID."""

    host: str
    uuid: str
    since: str
    why: str

    @property
    def text(self) -> str:
        """For messages."""
        return f"{self.host or NOBODY} since {self.since} ({self.why})"

    @property
    def waits(self) -> bool:
        """True if nobody owns it until it runs somewhere, or a host claims it."""
        return not self.uuid and (self.why == MIGRATED or self.why.startswith(RELEASED))


@dataclasses.dataclass(frozen=True)
class Guest:
    """What a definition tells of a guest."""

    name: str
    uuid: str
    protected: bool
    files: tuple[str, ...]  # its disks that are files
    media: tuple[str, ...]  # files that it needs beside them
    unknown: tuple[str, ...]  # targets of disks whose file only libvirt knows
    nvram: str
    needs: t.Mapping[str, t.Any]

    @property
    def directories(self) -> tuple[str, ...]:
        """Those of its disks; the first has its store."""
        return tuple(dict.fromkeys(map(os.path.dirname, self.files)))


def guest_of(document: str) -> Guest:
    """The guest of a definition; raises FailedError for what is none."""
    try:
        root = ET.fromstring(document)
    except ET.ParseError as error:
        raise FailedError(f"the definition is no XML: {error}") from error
    uuid = (root.findtext("uuid") or "").strip()
    if not _UUID.fullmatch(uuid):
        raise FailedError("the definition has no UUID")
    files: list[str] = []
    media: list[str] = []
    unknown: list[str] = []
    for disk in root.iterfind("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        if source is None or source.get("startupPolicy") == "optional":
            continue
        if source.get("file"):
            is_disk = disk.get("device", "disk") in ("disk", "lun")
            (files if is_disk else media).append(os.path.realpath(source.get("file", "")))
        elif disk.get("type") not in ("block", "network"):
            unknown.append("" if target is None else target.get("dev", ""))
    record = root.find(f"metadata/{CORRAL}guest")
    ha = None if record is None else record.find(f"{CORRAL}ha")
    memory = root.find("memory")
    units = {"b": 1, "bytes": 1, "KB": 10**3, "k": 2**10, "KiB": 2**10, "MB": 10**6, "M": 2**20, "MiB": 2**20}
    units.update({"GB": 10**9, "G": 2**30, "GiB": 2**30, "T": 2**40, "TiB": 2**40})
    size = 0 if memory is None else int(memory.text or 0) * units.get(memory.get("unit") or "KiB", 2**10)
    interfaces = [(nic.get("type", ""), nic.find("source")) for nic in root.iterfind("devices/interface")]
    kind, holder = root.find("os/type"), root if ha is None else ha
    needs = {
        "vcpus": int(root.findtext("vcpu") or 1),
        "memory_mib": -(-size // 2**20),
        "interfaces": [
            {kind: source.get(kind)}
            for kind, source in interfaces
            if source is not None and kind in ("bridge", "network")
        ],
        "tags": [] if record is None else [tag.text or "" for tag in record.iterfind(f"{CORRAL}tag")],
        "machine": "" if kind is None else kind.get("machine", ""),
        "priority": int(ha.get("priority") or 0) if ha is not None else 0,
        **{
            word: [one.text or "" for one in holder.iterfind(f"{CORRAL}{word}")]
            for word in ("apart", "colocate", "prefer")
        },
    }
    boot, source = root.find("os"), root.find("os/nvram/source")
    nvram = (root.findtext("os/nvram") or "").strip() if source is None else source.get("file", "")
    if not nvram and boot is not None and boot.get("firmware") == "efi":
        nvram = f"{NVRAMS}/{root.findtext('name')}_VARS.fd"
    return Guest(
        name=root.findtext("name") or "",
        uuid=uuid,
        protected=ha is not None,
        files=tuple(files),
        media=tuple(media),
        unknown=tuple(unknown),
        nvram=nvram,
        needs=needs,
    )


# Decisions, without looking at anything.


def may_save(owner: Owner | None, here: str, *, active: bool, left: bool = False, ran: bool = False) -> str:
    """What `save` may do: `keep` and `take` write, `give` it to the host where it runs, `wait` for that host, `other`
    owns it. `left`: it is off because it has migrated; `ran`: it ran here as this host's own.
    """
    if owner and owner.uuid:
        if owner.uuid != here:
            return "other"
        return "give" if left and ran else "keep"
    return "wait" if not active and (left or (owner and owner.waits)) else "take"


def is_stale(owner: Owner, defined_s: float) -> bool:
    """True if a host has claimed a guest since it was defined on this one."""
    if not owner.uuid or owner.why == SAVED:
        return False
    try:
        return defined_s < calendar.timegm(time.strptime(owner.since, _TIME))
    except ValueError:
        return False


def with_owner(
    history: t.Sequence[t.Mapping[str, str]], before: Owner | None, owner: Owner
) -> list[t.Mapping[str, str]]:
    """The history after a guest has got an owner; that nobody owns it for a while is not in it."""
    last = history[-1]["to"] if history else before.host if before else ""
    if owner.uuid and owner.host != last:
        why = before.why if before and not before.uuid and owner.why == SAVED else owner.why
        return [*history, {"at": owner.since, "from": last, "to": owner.host, "why": why}][-OWNERS:]
    if history and owner.why.startswith(RECOVERED):
        return [*history[:-1], {**history[-1], "why": owner.why}]
    return list(history)


def with_others(
    guests: t.Mapping[str, t.Any], before: t.Mapping[str, t.Any], now: t.Mapping[str, t.Any]
) -> dict[str, t.Any]:
    """Notes on guests, but of those of which the notes were changed meanwhile, these. That a guest ran here stays."""
    changed = {uuid for uuid in {*before, *now} if before.get(uuid) != now.get(uuid)}
    mine = {uuid: one for uuid, one in guests.items() if uuid not in changed}
    theirs = {uuid: one for uuid, one in now.items() if uuid in changed}
    both = {uuid: {**one, "ran": max(ran_since(one), ran_since(guests.get(uuid)))} for uuid, one in theirs.items()}
    return {**mine, **both}


def ran_since(note: t.Mapping[str, t.Any] | None) -> str:
    """Since when this host was the owner when the guest was last seen to run here; empty if it was not."""
    since = (note or {}).get("ran")
    return since if isinstance(since, str) else ""


def foreign(guest: Guest, others: t.Iterable[Guest]) -> str:
    """Why a guest cannot be defined beside others of this host: one has its name, or its UEFI variables."""
    for other in others:
        if other.uuid == guest.uuid:
            continue
        if other.name == guest.name:
            return f"another guest of this host is called {guest.name} ({other.uuid}); virsh domrename it"
        if guest.nvram and other.nvram == guest.nvram:
            return (
                f"guest {other.name} of this host has its UEFI variables in {guest.nvram}; give that one another file"
            )
    return ""


def start_problem(
    guest: Guest, owners: t.Mapping[str, Owner | None], here: str, *, arriving: bool, why_unread: str
) -> str:
    """Why libvirt must not start a guest here; empty if it may. `owners` are by directory of its disks."""
    if why_unread:
        # Without its disks a guest does not start anyway; of one that is not kept, this program has nothing to say.
        mend = f"make {' and '.join(guest.directories)} readable"
        return f"its owner is unknown, as {why_unread}; {mend}" if guest.protected else ""
    for directory, owner in owners.items():
        if owner is None or (here and owner.uuid == here) or arriving:
            continue
        if owner.why.startswith(MOVED) and directory == guest.directories[0]:
            return f"its disk has {owner.why}, and the definition here is older; if it is not: corral-keep save"
        if not owner.uuid and not owner.waits:
            continue
        claim = shlex.join(["corral-keep", "claim", guest.uuid, directory, "--because", "REASON"])
        return f"its owner is {owner.text}; if it runs nowhere else and that host is off: {claim}"
    return ""


# Files.


def utc(seconds: float | None = None) -> str:
    """A time as it is written."""
    return time.strftime(_TIME, time.gmtime(seconds))


def defined_s(name: str) -> float:
    """When a guest was last defined here; never, as far as is known, if libvirt has it elsewhere."""
    try:
        return os.stat(os.path.join(DEFINITIONS, f"{name}.xml")).st_mtime
    except OSError:
        return float("inf")


def mount_of(path: str) -> tuple[str, t.Sequence[str]]:
    """The kind and the options of the filesystem that has a path."""
    best, kind, options = "", "", ""
    with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _device, point, fstype, flags = line.split()[:4]
            point = point.replace("\\040", " ")
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind, options = point, fstype, flags
    return kind, options.split(",")


def unfit(guest: Guest) -> str:
    """Why a guest cannot be kept; empty if it can."""
    if not guest.files:
        return "none of its disks is a file; put one on a filesystem that all hosts mount"
    if guest.unknown:
        return f"disk {', '.join(guest.unknown)} is defined by its pool or its format; define it by its path"
    for path in (*guest.files, *guest.media):
        kind, options = mount_of(path)
        if kind not in SHARED:
            return f"{path} is on {kind or 'no filesystem'}, which other hosts do not see"
        if any(option in ("nolock", "local_lock=all", "local_lock=flock") for option in options):
            return f"the filesystem of {path} is mounted without locks between hosts ({','.join(options)})"
    return ""


def store(directory: str, uuid: str) -> str:
    """The folder of a guest."""
    if not _UUID.fullmatch(uuid):
        raise FailedError(f"{uuid} is no UUID")
    return os.path.join(directory, ".corral", "guests", uuid)


def current(directory: str, uuid: str) -> str:
    """The directory that has a guest's store now, also if its first disk has left the one that is named."""
    for _hop in range(OWNERS):
        folder = store(directory, uuid)
        owner = read_owner(folder)
        if owner is None or not owner.why.startswith(MOVED):
            return directory
        trusted(folder)
        directory = owner.why[len(MOVED) :]
    raise FailedError(f"{folder}/owner: its disk has {owner.why}, which leads nowhere; corral-keep show lists guests")


def made_folder(directory: str, uuid: str) -> str:
    """The folder of a guest, which is created; nobody but root may have written it."""
    folder = directory
    for part in (".corral", "guests", uuid):
        folder = os.path.join(folder, part)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            fsync(os.path.dirname(folder))
    trusted(folder)
    return store(directory, uuid)


def trusted(folder: str) -> None:
    """Raise FailedError if others than root could have written the folder of a guest."""
    for place in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        found = os.lstat(place)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise FailedError(
                f"{place} is not a directory of root alone (user {found.st_uid}, mode {found.st_mode & 0o7777:o}); an "
                "NFS server must export it with no_root_squash"
            )


def fsync(path: str) -> None:
    """Let a directory outlive a power cut."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write(path: str, content: bytes, mode: int = 0o600) -> None:
    """Replace a file at once."""
    part = path + ".part"
    opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(opened, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(part, path)
    fsync(os.path.dirname(path))


def read(path: str) -> bytes | None:
    """The content of a file; None if there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_owner(folder: str) -> Owner | None:
    """The owner of a guest; None if it has never had one."""
    content = read(os.path.join(folder, "owner"))
    if content is None:
        return None
    try:
        return Owner(**{name: str(value) for name, value in json.loads(content).items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise FailedError(f"{folder}/owner is unreadable: {error}") from error


def read_history(folder: str) -> list[t.Mapping[str, str]]:
    """The last owners of a guest: `at`, `from`, `to` and `why`, the oldest first."""
    content = read(os.path.join(folder, "history"))
    try:
        return [{key: str(one[key]) for key in ("at", "from", "to", "why")} for one in json.loads(content or b"[]")]
    except (ValueError, TypeError, KeyError):
        return []  # it decides nothing


def write_owner(folder: str, owner: Owner) -> None:
    """Replace the owner, and note that in the history."""
    before, history = read_owner(folder), read_history(folder)
    write(os.path.join(folder, "owner"), json.dumps(dataclasses.asdict(owner)).encode() + b"\n")
    found = with_owner(history, before, owner)
    if found != history:
        write(os.path.join(folder, "history"), json.dumps(found).encode() + b"\n")


@contextlib.contextmanager
def locked(folder: str, name: str = "lock") -> t.Iterator[None]:
    """Hold the lock in a folder, that of a guest against all hosts; the kernel releases it with the process."""
    opened = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        until = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise FailedError(f"{folder}/{name} is held by another run; try again") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(opened)


def state() -> dict[str, t.Any]:
    """What this host knows of itself."""
    content = read(STATE)
    try:
        return dict(json.loads(content)) if content else {}
    except ValueError:
        return {}


def resources() -> dict[str, str]:
    """The resources of Pacemaker by the UUIDs of their guests, if this host is a member of a cluster."""
    if not os.path.exists(COROSYNC):
        return {}
    try:
        root = ET.parse(CIB).getroot()
    except (OSError, ET.ParseError):
        return {}
    found = root.iterfind("configuration/resources//primitive[@provider='corral']")
    pairs = [(one.find("instance_attributes/nvpair[@name='uuid']"), one.get("id", "")) for one in found]
    return {pair.get("value", ""): name for pair, name in pairs if pair is not None}


def host_name() -> str:
    """This host's name in the inventory, or else its own."""
    content = read(CONFIG)
    try:
        return str(json.loads(content)["host"]) if content else socket.gethostname()
    except (ValueError, KeyError, TypeError) as error:
        raise FailedError(f"{CONFIG} is unreadable: {error}; run the role corral.virt.hypervisor") from error


def packed(directory: str) -> bytes | None:
    """A directory as tar, the same for the same content; None if there is none."""
    if not os.path.isdir(directory):
        return None
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(directory, arcname=".", filter=lambda one: None if one.name.endswith(".lock") else one)
    return stream.getvalue()


def unpack(content: bytes, directory: str) -> None:
    """Replace a directory by the content of a tar."""
    part, old = directory + ".corral-part", directory + ".corral-old"
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)
    os.makedirs(part, 0o711)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = tar.getmembers()
        if any(
            one.name.startswith("/") or ".." in one.name.split("/") or not (one.isreg() or one.isdir())
            for one in members
        ):
            raise FailedError("tpm.tar has other things than files")
        tar.extractall(part)  # noqa: S202 # files and directories below it
    if os.path.exists(directory):
        os.rename(directory, old)
    os.rename(part, directory)
    fsync(os.path.dirname(directory))
    shutil.rmtree(old, ignore_errors=True)


# libvirt.


class Host:
    """This host: its identity, and its guests."""

    def __init__(self) -> None:
        import libvirt  # the hook does without

        self.libvirt = libvirt
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        try:
            self.connection = libvirt.open("qemu:///system")
            capabilities = ET.fromstring(self.connection.getCapabilities())
        except libvirt.libvirtError as error:
            raise FailedError(f"libvirt does not answer: {error}") from error
        self.uuid, self.name = capabilities.findtext("host/uuid") or "", host_name()
        if not _UUID.fullmatch(self.uuid):
            raise FailedError("libvirt does not know the UUID of this host; set host_uuid in libvirtd.conf")

    def guests(self, *, transient: bool = False) -> t.Iterator[tuple[str, bool, bool]]:
        """The inactive definitions, whether each guest runs, and whether it is off because it has migrated."""
        which = 0 if transient else self.libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT
        left = [self.libvirt.VIR_DOMAIN_SHUTOFF, self.libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED]
        for domain in self.connection.listAllDomains(which):
            with contextlib.suppress(self.libvirt.libvirtError):  # undefined meanwhile
                yield domain.XMLDesc(self._whole), bool(domain.isActive()), domain.state() == left

    @property
    def _whole(self) -> int:
        return int(self.libvirt.VIR_DOMAIN_XML_INACTIVE | self.libvirt.VIR_DOMAIN_XML_SECURE)

    def undefine(self, uuid: str) -> None:
        """Undefine a guest; not one with a saved memory or snapshots. Its UEFI variables and its TPM stay."""
        flags = ("VIR_DOMAIN_UNDEFINE_KEEP_NVRAM", "VIR_DOMAIN_UNDEFINE_KEEP_TPM")  # the second since libvirt 8.9
        try:
            found = self.connection.lookupByUUIDString(uuid)
            found.undefineFlags(sum(getattr(self.libvirt, flag, 0) for flag in flags))
        except self.libvirt.libvirtError as error:
            raise FailedError(str(error)) from error

    def find(self, uuid: str) -> t.Any | None:
        """The guest with this UUID."""
        return next((one for one in self.connection.listAllDomains() if one.UUIDString() == uuid), None)

    def pools(self) -> t.Iterator[str]:
        """The directories of active pools."""
        for pool in self.connection.listAllStoragePools(self.libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE):
            path = ET.fromstring(pool.XMLDesc()).findtext("target/path")
            if path:
                yield os.path.realpath(path)

    def owner(self, why: str) -> Owner:
        """This host as an owner from now on."""
        return Owner(self.name, self.uuid, utc(), why)

    def remember(self, guests: t.Mapping[str, t.Any], before: t.Mapping[str, t.Any]) -> None:
        """Note this host's UUID and guests, for the hook; what another run has noted since `before` stays."""
        with locked(os.path.dirname(STATE), os.path.basename(STATE) + ".lock"):
            wanted = {"uuid": self.uuid, "guests": with_others(guests, before, state().get("guests") or {})}
            if state() != wanted:
                write(STATE, json.dumps(wanted).encode())


@dataclasses.dataclass
class Notes:
    """What this host has noted of its guests `before`, what it notes now, and what reports show; by UUID."""

    before: dict[str, t.Any]
    kept: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    status: dict[str, t.Any] = dataclasses.field(default_factory=dict)


def save(host: Host) -> t.Iterator[dict[str, t.Any]]:
    """Keep all guests that are defined here; what was done with each."""
    notes, there = Notes(dict(state().get("guests") or {})), set()
    before = dict(notes.before)
    host.remember(before, before)  # the hook needs the UUID before the first guest is owned
    for document, active, left in host.guests():
        guest = guest_of(document)
        there.add(guest.uuid)
        if guest.protected:
            yield save_noted(host, guest, document, notes, active=active, left=left)
        elif active and guest.uuid in notes.before:
            yield end_protection(host, guest, document, notes)
    for uuid, one in notes.before.items():
        if uuid in notes.kept:
            continue
        line = {"guest": one["name"], "uuid": uuid, "directory": one["directory"]}
        try:
            why = "no longer protected" if uuid in there else "no longer defined"
            line["action"] = give_up(host, uuid, one, why=f"{why} on {host.name}")
        except OwnedElsewhereError:
            line["action"] = "forgotten"
        except (FailedError, OSError) as error:
            line.update(action="failed", problem=str(error))
            notes.kept[uuid] = one
        yield line
    host.remember(notes.kept, before)
    managed = resources()
    status = {uuid: {**one, "resource": managed.get(uuid, "")} for uuid, one in notes.status.items()}
    content = json.dumps(status).encode() + b"\n"
    if read(STATUS) != content:
        write(STATUS, content, 0o644)


def end_protection(host: Host, guest: Guest, document: str, notes: Notes) -> dict[str, t.Any]:
    """Have what is kept say that a guest that runs is not protected any more; it is given up when it is off."""
    note = notes.kept[guest.uuid] = notes.before[guest.uuid]
    line = {"guest": guest.name, "uuid": guest.uuid, "directory": note["directory"], "action": "unprotected"}
    folder = store(note["directory"], guest.uuid)
    try:
        with locked(folder):
            owner, path = read_owner(folder), os.path.join(folder, "domain.xml")
            if owner and owner.uuid == host.uuid and read(path) != document.encode():
                write(path, document.encode())
    except (FailedError, OSError) as error:
        line.update(action="failed", problem=str(error))
    return line


def save_noted(host: Host, guest: Guest, document: str, notes: Notes, *, active: bool, left: bool) -> dict[str, t.Any]:
    """Keep one guest, and note it; what was done."""
    line, note = {"guest": guest.name, "uuid": guest.uuid}, notes.before.get(guest.uuid, {})
    since, claimed = ran_since(note), bool(note.get("claimed")) and not active
    try:
        line.update(save_guest(host, guest, document, active=active, left=left, ran=since, claimed=claimed))
        if line["action"] == "removed":
            notes.before.pop(guest.uuid, None)
            return line
        owner = read_owner(store(guest.directories[0], guest.uuid))
        if active and owner and owner.uuid == host.uuid:
            since = owner.since
        known = {"name": guest.name, "directory": guest.directories[0]}
        if line["action"] in ("keep", "take") and note and note["directory"] != known["directory"]:
            leave(host, guest, note["directory"])
        notes.kept[guest.uuid] = {**known, "ran": since, "claimed": line["action"] == "claimed"}
        notes.status[guest.uuid] = {**told(guest), "problem": line.get("problem", "")}
    except (FailedError, OSError) as error:
        line.update(action="failed", problem=str(error))
        notes.status[guest.uuid] = {"problem": str(error)}
        if note:
            notes.kept[guest.uuid] = note
    return line


def leave(host: Host, guest: Guest, directory: str) -> None:
    """Have a directory that the first disk of a guest has left lead to the one that has it now."""
    folder, now = store(directory, guest.uuid), store(guest.directories[0], guest.uuid)
    if not os.path.isdir(folder):
        return
    with locked(folder):
        owner, history = read_owner(folder), read_history(folder)
        if owner and owner.uuid == host.uuid:
            if history:
                write(os.path.join(now, "history"), json.dumps(history).encode() + b"\n")
            write_owner(folder, Owner("", "", utc(), MOVED + guest.directories[0]))


def told(guest: Guest) -> dict[str, t.Any]:
    """What reports show of a guest that is kept."""
    directory = guest.directories[0]
    folder = store(directory, guest.uuid)
    owner = read_owner(folder)
    return {"directory": directory, "owner": owner and owner.text, "history": read_history(folder)}


def save_guest(
    host: Host, guest: Guest, document: str, *, active: bool, left: bool, ran: str, claimed: bool
) -> dict[str, t.Any]:
    """Keep one guest; not the definition that was here before this host claimed the guest.

    `left`: it is off because it has migrated; `ran`: it was seen to run here when this host was its owner since then.
    """
    problem = unfit(guest)
    if problem:
        raise FailedError(problem)
    directory = guest.directories[0]
    folder = made_folder(directory, guest.uuid)
    with locked(folder):
        owner = read_owner(folder)
        if owner and owner.why.startswith(MOVED):  # who has it there decides; nobody there, and it comes back
            there = read_owner(store(current(directory, guest.uuid), guest.uuid))
            owner = there if there and there.uuid != host.uuid else owner
        decision = may_save(owner, host.uuid, active=active, left=left, ran=bool(owner and owner.since == ran))
        found: dict[str, t.Any] = {"directory": directory, "action": decision}
        if decision in ("other", "wait"):
            owner = owner or Owner("", "", utc(), MIGRATED)
            found["owner"] = dataclasses.asdict(owner)
            # By its name: a host that has got another UUID owns what it owned.
            if not active and owner.host != host.name and is_stale(owner, defined_s(guest.name)):
                return {**found, **remove_stale(host, guest, document, folder)}
            gone = shlex.join(["virsh", "undefine", guest.name, "--keep-nvram"])
            found["problem"] = (
                f"it runs here, and its owner is {owner.text}: if it has migrated, that host gives it up within a "
                "minute; else stop it on the host that must not run it"
                if active
                else f"its owner is {owner.text}; when it runs there, remove the definition here: {gone}"
            )
            return found
        if decision == "give":
            write_owner(folder, Owner("", "", utc(), MIGRATED))
            return found
        if decision == "keep" and owner and claimed and is_stale(owner, defined_s(guest.name)):
            return {**found, "action": "claimed"}
        parts = {"domain.xml": document.encode(), "nvram": read(guest.nvram) if guest.nvram else None}
        parts["tpm.tar"] = packed(os.path.join(TPMS, guest.uuid))
        wrote = []
        for name, content in parts.items():
            path = os.path.join(folder, name)
            if content is not None and read(path) != content:
                write(path, content)
                wrote.append(name)
        if owner is None or decision == "take":
            write_owner(folder, host.owner(SAVED))
        elif active and owner.why.startswith(RECOVERING):
            write_owner(folder, dataclasses.replace(owner, why=owner.why.replace(RECOVERING, RECOVERED, 1)))
        return {**found, "wrote": wrote}


def remove_stale(host: Host, guest: Guest, document: str, folder: str) -> dict[str, str]:
    """Undefine a guest that another host has claimed; what was done."""
    path, content = os.path.join(folder, "stale.xml"), document.encode()
    if read(path) != content:
        write(path, content)
    try:
        host.undefine(guest.uuid)
    except FailedError as error:
        flags = ("--keep-nvram", "--managed-save", "--snapshots-metadata", "--checkpoints-metadata")
        gone = shlex.join(["virsh", "undefine", guest.name, *flags])
        return {"problem": f"another host has claimed it, and cannot undefine it here: {error}; run {gone}"}
    return {"action": "removed"}


def show(host: Host, directory: str | None) -> t.Iterator[dict[str, t.Any]]:
    """What is kept in a directory, or in all that this host knows and that other hosts see."""
    guests = [(guest_of(document), active) for document, active, _left in host.guests(transient=True)]
    active = {one.uuid: runs for one, runs in guests}
    places = (
        [directory] if directory else [*host.pools(), *(place for one, _runs in guests for place in one.directories)]
    )
    for place in dict.fromkeys(places):
        root = os.path.join(place, ".corral", "guests")
        if not directory and (mount_of(place)[0] not in SHARED or not os.path.isdir(root)):
            continue
        for uuid in sorted(filter(_UUID.fullmatch, os.listdir(root))):
            folder, line = store(place, uuid), t.cast("dict[str, t.Any]", {"uuid": uuid, "directory": place})
            try:
                trusted(folder)
                owner, document = read_owner(folder), read(os.path.join(folder, "domain.xml"))
                if owner is None or document is None or owner.why.startswith(MOVED):
                    continue  # being saved for the first time, or kept elsewhere
                guest = guest_of(document.decode())
                if not guest.protected:
                    continue  # until it is off
                saved = utc(os.stat(os.path.join(folder, "domain.xml")).st_mtime)
                line.update(guest=guest.name, owner=dataclasses.asdict(owner), saved=saved, needs=guest.needs)
                line.update(host_uuid=host.uuid, defined=uuid in active, active=active.get(uuid, False))
                line.update(history=read_history(folder))
            except (FailedError, OSError) as error:
                line["problem"] = str(error)
            yield line


def claim(host: Host, uuid: str, directory: str, because: str, of: t.Collection[str] = ()) -> None:
    """Make this host the owner of a guest."""
    directory = current(directory, uuid)
    folder = store(directory, uuid)
    if not os.path.isdir(folder):
        os.stat(directory)  # of storage that does not answer: why
        raise FailedError(f"{folder} does not exist: the guest was never saved there; corral-keep show lists guests")
    trusted(folder)
    with locked(folder):
        owner = read_owner(folder)
        if owner and owner.uuid == host.uuid:
            return
        names = {owner.uuid, owner.host} if owner and owner.uuid else {NOBODY}
        if of and not names & {*of}:
            raise OwnedElsewhereError(f"its owner is {owner.text if owner else NOBODY}")
        before, mine = dict(state().get("guests") or {}), host.owner(because)
        known = dict(before)
        if uuid in known:
            runs = os.path.exists(os.path.join(RUNNING, known[uuid]["name"] + ".pid"))
            known[uuid] = {**known[uuid], "claimed": not runs, **({"ran": mine.since} if runs else {})}
        host.remember(known, before)
        write_owner(folder, mine)


def define(host: Host, uuid: str, directory: str) -> None:
    """Define a guest from what is kept, with its UEFI variables and its TPM."""
    folder = store(current(directory, uuid), uuid)
    if not os.path.isdir(folder):
        raise FailedError(f"{folder} does not exist: the guest was never saved there; corral-keep show lists guests")
    trusted(folder)
    with locked(folder):
        owner = read_owner(folder)
        if owner is None or owner.uuid != host.uuid:
            raise OwnedElsewhereError(f"its owner is {owner.text if owner else NOBODY}; claim it first")
        document = read(os.path.join(folder, "domain.xml"))
        if document is None:
            raise FailedError(f"{folder} has no domain.xml")
        guest = guest_of(document.decode())
        if guest.uuid != uuid:
            raise FailedError(f"{folder}/domain.xml is of another guest, {guest.uuid}")
        found = host.find(uuid)
        if found is not None and found.isActive():
            raise FailedError(f"{guest.name} runs here already")
        problem = foreign(guest, [guest_of(known) for known, _active, _left in host.guests(transient=True)])
        if problem:
            raise FailedError(problem)
        nvram, tpm = read(os.path.join(folder, "nvram")), read(os.path.join(folder, "tpm.tar"))
        if nvram is not None and guest.nvram:
            os.makedirs(os.path.dirname(guest.nvram), exist_ok=True)
            write(guest.nvram, nvram)
        if tpm is not None:
            os.makedirs(TPMS, 0o711, exist_ok=True)
            unpack(tpm, os.path.join(TPMS, uuid))
        try:
            host.connection.defineXML(document.decode()).setAutostart(0)
        except host.libvirt.libvirtError as error:
            raise FailedError(f"cannot define {guest.name}: {error}") from error


def give_up(host: Host, uuid: str, one: t.Mapping[str, str], *, why: str) -> str:
    """Let nobody own a guest that this host owns; what was done."""
    if os.path.exists(os.path.join(RUNNING, one["name"] + ".pid")):
        raise FailedError(f"{one['name']} runs here; stop it first")
    folder = store(one["directory"], uuid)
    if not os.path.isdir(folder):
        return "forgotten"
    with locked(folder):
        owner = read_owner(folder)
        if owner and owner.uuid != host.uuid:
            raise OwnedElsewhereError(f"its owner is {owner.text}")
        write_owner(folder, Owner("", "", utc(), why))
    return "released"


def release(host: Host, uuid: str) -> None:
    """Give a guest up."""
    one = (state().get("guests") or {}).get(uuid)
    if one is None:
        raise FailedError(f"this host keeps no guest {uuid}; corral-keep show lists guests")
    give_up(host, uuid, one, why=f"{RELEASED} on {host.name}")


# The hook.


def within(seconds: float, call: t.Callable[[], t.Any]) -> tuple[t.Any, str]:
    """What a call returns, as JSON can say it, or why it did not; a process of its own waits for a dead filesystem.

    Nobody waits for that process, which may not even be killed: so it must not have libvirt's pipes.
    """
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            try:
                answer = [call(), ""]
            except (FailedError, OSError, ValueError) as error:
                answer = [None, str(error)]
            os.write(writes, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(writes)
    content, until = b"", time.monotonic() + seconds
    while True:
        if not select.select([reads], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            return None, f"nothing answered within {seconds:g} s"
        piece = os.read(reads, 65536)
        content += piece
        if not piece:
            break
    try:
        result, problem = json.loads(content)
    except ValueError:
        return None, "the look at it ended early"
    return result, problem


def hook(operation: str, extra: str, document: str) -> str:
    """What libvirt calls; why it must not go on, or nothing."""
    try:
        guest = guest_of(document)
    except (FailedError, ValueError):
        return ""  # what it does not understand, it lets pass
    here = str(state().get("uuid") or "")
    mark = os.path.join(ARRIVING, guest.uuid)
    if operation == "migrate":  # before `prepare`, on the destination
        os.makedirs(ARRIVING, 0o700, exist_ok=True)
        with open(mark, "w", encoding="utf-8"):
            pass
    elif operation in ("started", "release"):
        if operation == "release" and extra == MIGRATED and here:  # later releases of libvirt tell it
            within(WITHIN_S, lambda: moved_away(guest, here))
        if guest.protected:
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # the timer does it within a minute
                subprocess.run(SAVE_SOON, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=WITHIN_S)
    elif operation == "prepare":
        arriving = os.path.exists(mark) and 0 <= time.time() - os.stat(mark).st_mtime <= ARRIVING_S
        with contextlib.suppress(FileNotFoundError):
            os.unlink(mark)
        found, problem = within(WITHIN_S, lambda: owners_of(guest))
        owners = {place: Owner(**one) if one else None for place, one in (found or {}).items()}
        return start_problem(guest, owners, here, arriving=arriving, why_unread=problem)
    return ""


def owners_of(guest: Guest) -> dict[str, t.Any]:
    """The owners that the directories of a guest's disks tell."""
    owners = {place: read_owner(store(place, guest.uuid)) for place in guest.directories}
    for place, owner in owners.items():
        if owner and owner.why.startswith(MOVED):
            there = read_owner(store(current(place, guest.uuid), guest.uuid))
            if there and not there.uuid and not there.waits:  # nobody has it there any more
                owners[place] = there
    return {place: owner and dataclasses.asdict(owner) for place, owner in owners.items()}


def moved_away(guest: Guest, here: str) -> None:
    """Give a guest up that has gone to another host, which takes it."""
    for place in guest.directories[:1]:
        folder = store(place, guest.uuid)
        if read_owner(folder) is not None:
            with locked(folder):
                owner = read_owner(folder)
                if owner and owner.uuid == here:
                    write_owner(folder, Owner("", "", utc(), MIGRATED))


def parsed(arguments: t.Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="corral-keep", description="Keep definitions of guests beside their disks.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("save")
    verbs.add_parser("show").add_argument("directory", nargs="?")
    for verb in ("claim", "define"):
        one = verbs.add_parser(verb)
        one.add_argument("uuid")
        one.add_argument("directory")
        if verb == "claim":
            one.add_argument("--because", required=True)
            one.add_argument("--of", action="append", default=[])
    verbs.add_parser("release").add_argument("uuid")
    return parser.parse_args(arguments)


def do(wanted: argparse.Namespace) -> int:
    """Do what the command line says."""
    host = Host()
    lines: t.Iterable[dict[str, t.Any]] = ()
    if wanted.verb == "save":
        lines = save(host)
    elif wanted.verb == "show":
        lines = show(host, wanted.directory and os.path.realpath(wanted.directory))
    elif wanted.verb == "claim":
        claim(host, wanted.uuid, os.path.realpath(wanted.directory), wanted.because, wanted.of)
    elif wanted.verb == "define":
        define(host, wanted.uuid, os.path.realpath(wanted.directory))
    else:
        release(host, wanted.uuid)
    failed = []
    for line in lines:
        print(json.dumps(line))
        if line.get("action") == "failed":
            failed.append(f"{line['guest']}: {line['problem']}")
    if failed:
        raise FailedError("; ".join(failed))
    return 0


def main(called: str, arguments: t.Sequence[str]) -> int:
    """A command, or libvirt's hook, by the name of the program."""
    if os.path.basename(called) == HOOK:
        problem = hook(arguments[1], arguments[3] if len(arguments) > 3 else "", sys.stdin.read())
        if problem:
            name = re.sub(r"[^0-9A-Za-z._-]", "?", arguments[0])
            print(f"corral.virt: cannot start guest {name} here: {problem}", file=sys.stderr)
        return 1 if problem else 0
    try:
        return do(parsed(arguments))
    except OwnedElsewhereError as error:
        print(f"corral-keep: refused: {error}", file=sys.stderr)
        return 3
    except (FailedError, OSError) as error:
        print(f"corral-keep: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], sys.argv[1:]))
