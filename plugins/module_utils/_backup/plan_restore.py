# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a guest is restored from a backup: in place, anew or under another name, and what must not be so. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import plan_instant_restore
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    DEFINITION,
    BackupDisk,
    BackupPoint,
    Repository,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup import Checkpoint
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    DefineRestored,
    ForgetCheckpoints,
    KeepPoint,
    PauseOnErrors,
    PutInPlace,
    ReleasePoint,
    RelinkDisk,
    RestoreDisk,
    RestoreState,
    ResumeRestored,
    StartRestored,
    SwappedDisk,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import (
    PointHost,
    PointSpec,
    check_whole,
    chosen,
    link_path,
    path_problems,
    seconds,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.xml_restored import (
    definition,
    pausing,
    read_only_files,
)
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text, check_existing_name, check_name
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import GuestDisk, without_chains
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_steps import Define
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep
from ansible_collections.corral.virt.plugins.module_utils._snapshot.plan_snapshot import GuestFilesHost
from ansible_collections.corral.virt.plugins.module_utils._storage.model_removed_disk import PARTS
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disposal import DeleteVolume, steps_and_notes
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory, directory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity, OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

RESTORED, ASIDE = ".restored", ".replaced"  # endings of a disk that is restored in place, and of the one before
_TPM, _NVRAM, _SEED = "tpm.tar", "nvram.fd", "seed.iso"
TPM_STATES, VARIABLES = "/var/lib/libvirt/swtpm", "/var/lib/libvirt/qemu/nvram"
SPARE_BYTES = 64 * 1024**2
_MOST_H = 24 * 366
_OWN_BRIDGE = ("isolated", "nat", "route", "open")  # forward modes of libvirt's networks


@dataclasses.dataclass(frozen=True)
class RestoreSpec(PointSpec):
    """What is asked for."""

    name: str | None = None  # of a new guest
    disks: tuple[str, ...] = ()  # targets; empty: all
    pool: str | None = None
    run: bool = False
    confirm: str | None = None
    keep_h: int = 168
    network: str | None = None  # for all interfaces of a guest that is not there yet
    instant: bool = False  # it runs on the point while its disks are copied


class RestoreNetwork(t.NamedTuple):
    """A libvirt network; `forward` is its mode, such as `isolated`, `macs` the MAC addresses of guests on it."""

    active: bool
    forward: str
    macs: t.Collection[str] = ()


class RestoreHost(PointHost, GuestFilesHost, t.Protocol):
    """The host of the restored guest, with the repository; files are those of this machine."""

    def text(self, path: str) -> str:
        """The content of a file of a point."""

    def guest_with(self, uuid: str) -> FoundGuest | None:
        """The guest with this UUID."""

    def checkpoints(self, uuid: str) -> list[Checkpoint]:
        """The checkpoints that libvirt knows."""

    def file_facts(self, path: str) -> tuple[int, int, int]:
        """Inode, time of the last write (ns) and device number of a file or directory."""

    def is_unfinished(self, path: str) -> bool:
        """True if an interrupted restore has left this file or directory."""

    def pool(self, name: str) -> PoolDirectory:
        """The pool with its directory; raises NotFound, or Refused if no disks can be made in it here."""

    def network(self, name: str) -> RestoreNetwork | None:
        """The libvirt network with this name."""

    def flat_size_bytes(self, path: str) -> int:
        """About the bytes that the content of a qcow2 takes without those below it."""

    def host_uuid(self) -> str:
        """The UUID of the host."""

    def new_uuid(self) -> str:
        """The UUID for a new guest; the same during a plan."""


class RoomNeed(t.NamedTuple):
    """What the new disks in one directory need."""

    directory: str
    filesystem: int  # its device number on the host
    bytes: int
    room_bytes: int  # that may be taken there


@dataclasses.dataclass(frozen=True)
class RestorePlan(Plan[GuestStep]):
    """How a guest is restored."""

    name: str = ""
    uuid: str = ""
    point: str = ""
    kept: tuple[str, ...] = ()  # paths of the replaced disks
    needs: tuple[RoomNeed, ...] = ()


@dataclasses.dataclass(frozen=True)
class RestoreScene:
    """A point, and where it is restored."""

    spec: RestoreSpec
    repository: Repository
    point: BackupPoint
    host: RestoreHost
    found: FoundGuest | None  # the guest of the point on this host, unless another name is asked for
    going: FoundGuest | None = None  # the restored guest, which stands on the point since an earlier run

    @property
    def name(self) -> str:
        """The name of the restored guest."""
        return self.spec.name or (self.found.name if self.found else self.point.guest)

    @property
    def uuid(self) -> str:
        """The UUID of the restored guest."""
        if self.going:
            return self.going.uuid
        return self.host.new_uuid() if self.spec.name else self.point.uuid

    @property
    def whose(self) -> tuple[str, str]:
        """Name and UUID, with which each step begins."""
        return self.name, self.uuid

    @property
    def disks(self) -> list[BackupDisk]:
        """The disks of the point that are asked for."""
        return [disk for disk in self.point.disks if not self.spec.disks or disk.target in self.spec.disks]

    @property
    def cannot(self) -> str:
        """How a refusal begins."""
        return f"cannot restore {self.name} from backup {self.point.id}"

    @property
    def folder(self) -> str:
        """The folder of the point."""
        return link_path(self.spec.repository, self.point, "").rstrip("/")


def scene(spec: RestoreSpec, host: RestoreHost) -> RestoreScene:
    """The point that is asked for; raises NotFound, or Refused."""
    repository, point = chosen(spec, host)
    seen = RestoreScene(spec, repository, point, host, None if spec.name else host.guest_with(point.uuid))
    there = host.guest(spec.name) if spec.name else seen.found
    folder = _stands_on(there)
    if not there or not folder or (spec.point is not None and spec.point != os.path.basename(folder)):
        return seen
    begun = next((one for one in repository.of(point.uuid) if folder == link_path(spec.repository, one, "")[:-1]), None)
    if begun is None or (not spec.name and any(host.exists(path + RESTORED) for path in _paths(seen, there))):
        return seen  # of another guest or repository, or its disks are not in place yet
    return dataclasses.replace(seen, point=begun, going=there)


def _stands_on(guest: FoundGuest | None) -> str | None:
    """The folder of the point that a guest stands on."""
    return xml_backup_record.within(parse(guest.xml)).stands_on if guest else None


def _paths(scene: RestoreScene, guest: FoundGuest) -> list[str]:
    return [str(disk.path) for disk in scene.host.disks(guest.xml)]


def plan(scene: RestoreScene) -> RestorePlan:
    """The plan; raises all refusals at once, those of the backup itself first."""
    unknown = [target for target in scene.spec.disks if not scene.point.disk(target)]
    if unknown:
        known = ", ".join(disk.target for disk in scene.point.disks)
        raise Refused(f"{scene.cannot}: it has no disk {', '.join(unknown)}; it has {known}")
    if scene.going:
        made = _going_on(scene, scene.going)
    else:
        check_whole(scene, read=not scene.spec.instant)
        made = _in_place(scene) if scene.found else _anew(scene)
        steps: list[GuestStep] = [StartRestored(*scene.whose)] if scene.spec.run or scene.spec.instant else []
        made = dataclasses.replace(made, steps=(*made.steps, *steps, *_ending(scene, made)))
    return dataclasses.replace(
        made,
        notes=(*made.notes, *_of_newer(scene)),
        name=scene.name,
        uuid=scene.uuid,
        point=scene.point.id,
    )


def _ending(scene: RestoreScene, made: RestorePlan) -> list[GuestStep]:
    """The steps after the start of a guest that stands on its point."""
    if not scene.spec.instant:
        return []
    targets = [step.target for step in made.steps if isinstance(step, RestoreDisk)]
    stops = next((step.stops for step in made.steps if isinstance(step, (PauseOnErrors, DefineRestored))), ())
    return plan_instant_restore.ending(scene.whose, scene.point, targets, scene.folder, stops)


def _going_on(scene: RestoreScene, guest: FoundGuest) -> RestorePlan:
    """The plan for a guest that an interrupted run has let stand on its point."""
    if not scene.spec.instant:
        raise Refused(f"{scene.cannot}: {xml_backup_record.HELD}; {xml_backup_record.held(guest.xml)}")
    above = os.path.dirname(scene.folder)
    noted = xml_backup_record.within(parse(guest.xml))
    steps: list[GuestStep] = [KeepPoint(*scene.whose, scene.point)]
    targets = list[str]()
    for disk in scene.host.disks(guest.xml):
        links = scene.host.chain(str(disk.path), disk.format) if disk.target in noted.disks else ()
        stands = any(os.path.dirname(os.path.dirname(link.path)) == above for link in links[1:2])
        if links and not stands and not guest.active:
            steps.append(RelinkDisk(*scene.whose, scene.point, disk.target, str(disk.path)))
        if links and (stands or not guest.active):
            targets.append(disk.target)
    if not guest.active:
        steps.append(StartRestored(*scene.whose))
    elif guest.state == "paused":
        steps.append(ResumeRestored(*scene.whose))
    return RestorePlan(
        (*steps, *plan_instant_restore.ending(scene.whose, scene.point, targets, scene.folder, noted.stops))
    )


def _of_newer(scene: RestoreScene) -> t.Iterator[str]:
    if scene.spec.point is None and scene.spec.at_s is None:
        for one in scene.repository.broken:
            if one.uuid == scene.point.uuid and one.id > scene.point.id and not one.id.endswith(".part"):
                yield f"backup {one.id} of {scene.point.guest} is newer and damaged: {one.why}"


def _anew(scene: RestoreScene) -> RestorePlan:
    """As a guest that is not there yet."""
    host, uuid = scene.host, scene.uuid
    refuse_all(list(_of_a_new_guest(scene)))
    then = host.text(link_path(scene.spec.repository, scene.point, DEFINITION))
    network = host.network(scene.spec.network) if scene.spec.network else None
    places = _places(scene)
    files = {disk.target: (places[disk.target], _form(scene, disk)) for disk in scene.disks}
    folder = os.path.dirname(next(iter(places.values())))
    states = {name: state_path(scene, name, path, folder) for path, name in scene.point.states}
    new = [*places.values(), *states.values()]
    refuse_all([*taken(scene, new), *_room(scene, scene.disks, places)])
    own = [path for path in (*places.values(), states.get(_SEED)) if path]
    xml = definition(
        then,
        name=scene.name,
        uuid=uuid,
        files=files,
        seed=states.get(_SEED),
        nvram=states.get(_NVRAM),
        volumes=[OwnedVolume(path, uuid, host.host_uuid()) for path in own],
        network=scene.spec.network,
        taken=network.macs if network else (),
        stands_on=scene.folder if scene.spec.instant else None,
    )
    steps: list[GuestStep] = [KeepPoint(*scene.whose, scene.point)] if scene.spec.instant else []
    steps += [_restore(scene, disk, places[disk.target], _form(scene, disk)) for disk in scene.disks]
    steps += [RestoreState(*scene.whose, scene.point, name, path) for name, path in states.items()]
    stops = xml_backup_record.within(parse(xml)).stops if scene.spec.instant else ()
    steps.append(DefineRestored(*scene.whose, xml, tuple(own), tuple(new), stops))
    missing = [path for path in read_only_files(then) if not host.exists(path)]
    notes = [f"{path}, which {scene.name} reads, is in no backup and not on this host" for path in missing]
    return RestorePlan(tuple(steps), notes=tuple(notes), needs=_needs(scene, scene.disks, places))


def _of_a_new_guest(scene: RestoreScene) -> t.Iterator[VirtError]:
    spec, other = scene.spec, scene.host.guest(scene.name)
    if other:
        choose = (
            "choose another name" if spec.name else f"rename it, or set name to restore {scene.name} as another guest"
        )
        yield Refused(f"{scene.cannot}: a guest with that name is here, whose UUID is {other.uuid}; {choose}")
    if spec.disks:
        yield Refused(f"{scene.cannot}: disks is only for a guest that is on this host; leave it out to restore all")
    if spec.network:
        yield from _of_the_network(scene, spec.network)


def _of_the_network(scene: RestoreScene, name: str) -> t.Iterator[VirtError]:
    """Why interfaces cannot be on a network with the MAC addresses of then."""
    found = scene.host.network(name)
    if found is None:
        yield NotFound(f"{scene.cannot}: there is no network {name}; create it (virt_network), or choose another one")
    elif not found.active:
        yield Refused(f"{scene.cannot}: network {name} is off; start it ({shlex.join(['virsh', 'net-start', name])})")
    elif found.forward not in _OWN_BRIDGE:
        yield Refused(
            f"{scene.cannot}: network {name} (forward mode {found.forward}) has no bridge of its own, and elsewhere "
            "frames of two guests with the same MAC address could meet; choose an isolated network"
        )


def disk_format(disk: BackupDisk) -> str:
    """The format of the new file of a disk."""
    return "raw" if disk.format == "raw" else "qcow2"


def _form(scene: RestoreScene, disk: BackupDisk) -> str:
    """The format of the new file of a disk: only a qcow2 stands on another file."""
    return "qcow2" if scene.spec.instant else disk_format(disk)


def _places(scene: RestoreScene) -> dict[str, str]:
    """The path of each new disk, by target; raises NotFound or Refused for a pool that has no files."""
    chosen, found = scene.spec.pool, dict[str, str]()
    for disk in scene.disks:
        before = os.path.dirname(disk.source)
        same = not chosen and not disk.source.startswith("/dev/") and before and scene.host.is_pooled(before)
        folder = before if same else directory(scene.host.pool(chosen or POOL), f"disks of {scene.name}")
        name = f"{scene.name}-{disk.target}.{_form(scene, disk)}"
        if (
            not scene.spec.name
            and _form(scene, disk) == disk_format(disk)
            and disk.source
            and not disk.source.startswith("/dev/")
        ):
            name = os.path.basename(disk.source)
        path = os.path.join(folder, name)
        if path in found.values():
            path = os.path.join(folder, f"{scene.name}-{disk.target}.{_form(scene, disk)}")
        found[disk.target] = path
    return found


def state_path(scene: RestoreScene, name: str, before: str, folder: str) -> str:
    """Where UEFI variables, TPM state or the seed of a new guest go."""
    same = not scene.spec.name
    if name == _TPM:
        return os.path.join(TPM_STATES, scene.uuid)
    if name == _NVRAM:
        stays = same and scene.host.exists(os.path.dirname(before))
        return before if stays else os.path.join(VARIABLES, f"{scene.name}_VARS.fd")
    if same and not scene.spec.pool and scene.host.is_pooled(os.path.dirname(before)):
        return before
    return os.path.join(folder, os.path.basename(before) if same else f"{scene.name}-seed.iso")


def _restore(scene: RestoreScene, disk: BackupDisk, path: str, form: str) -> RestoreDisk:
    leftover = scene.host.identity(path) if scene.host.exists(path) else None
    size = flat_size_bytes(scene, disk)
    return RestoreDisk(*scene.whose, scene.point, disk.target, path, form, size, leftover, scene.spec.instant)


def flat_size_bytes(scene: RestoreScene, disk: BackupDisk) -> int:
    """About the bytes that the new file of a disk takes."""
    return scene.host.flat_size_bytes(link_path(scene.spec.repository, scene.point, disk.file))


def taken(scene: RestoreScene, paths: t.Iterable[str]) -> t.Iterator[Refused]:
    """A refusal for each file that is there already and that no interrupted restore has left."""
    for path in paths:
        if not scene.host.exists(path):
            continue
        user = scene.host.other_user(path, "", ())
        if user:
            yield Refused(f"{scene.cannot}: {user} uses {path}; choose another name or pool")
        elif not scene.host.is_unfinished(path):
            move = shlex.join(["mv", path, path + ".old"])
            yield Refused(f"{scene.cannot}: {path} is there already; move it away ({move}), or choose another name")


def _room(scene: RestoreScene, disks: t.Iterable[BackupDisk], places: t.Mapping[str, str]) -> t.Iterator[Refused]:
    """A refusal for each directory in which the new files of these disks find no room."""
    needs = _needs(scene, disks, places)
    for one in needs:
        removed = os.path.join(one.directory, *PARTS)
        all_bytes = sum(each.bytes for each in needs if each.filesystem == one.filesystem)
        if one.room_bytes < all_bytes:
            kept = f" (removed disks are kept in {removed})" if scene.host.exists(removed) else ""
            yield Refused(
                f"{scene.cannot}: {one.directory} has {bytes_text(one.room_bytes + SPARE_BYTES)} free, and it needs "
                f"about {bytes_text(all_bytes + SPARE_BYTES)}; make room{kept}"
                f"{'' if scene.found else ', or choose another pool'}"
            )


def _needs(scene: RestoreScene, disks: t.Iterable[BackupDisk], places: t.Mapping[str, str]) -> tuple[RoomNeed, ...]:
    """What the new files of these disks take, by directory."""
    needs, host = dict[str, int](), scene.host
    for disk in disks:
        folder = os.path.dirname(places[disk.target])
        needs[folder] = needs.get(folder, 0) + flat_size_bytes(scene, disk)
    return tuple(
        RoomNeed(folder, host.file_facts(folder)[2], need, host.free_in(folder) - SPARE_BYTES)
        for folder, need in needs.items()
    )


def _in_place(scene: RestoreScene) -> RestorePlan:
    """With new disks for a guest that is on this host."""
    found, host = t.cast(FoundGuest, scene.found), scene.host
    now = {disk.target: disk for disk in host.disks(found.xml)}
    disks = [disk for disk in scene.disks if disk.target in now]
    refuse_all([*_of_the_guest(scene), *_of_the_disks(scene, [now[disk.target] for disk in disks])])
    paths = {disk.target: str(now[disk.target].path) for disk in disks}
    present = {path: host.identity(path) for path in paths.values() if host.exists(path)}
    places = {target: path + RESTORED for target, path in paths.items()}
    aside = {path: path + ASIDE for path in present}
    leftovers = {name: host.identity(name) for path, name in aside.items() if _is_left(scene, path, name)}
    refuse_all(
        [
            *_unconfirmed(scene, present),
            *taken(scene, places.values()),
            *_room(scene, disks, places),
        ]
    )
    swapped = tuple(SwappedDisk(path + RESTORED, path, path + ASIDE, present.get(path)) for path in paths.values())
    own = tuple(one.name for one in _checkpoints(scene))
    keep_h = scene.spec.keep_h
    finishing, told = steps_and_notes(found.name, host.unfinished_removals())
    steps: list[GuestStep] = [*finishing]
    steps += [KeepPoint(*scene.whose, scene.point)] if scene.spec.instant else []
    steps += [_restore(scene, disk, places[disk.target], now[disk.target].format) for disk in disks]
    steps += [DeleteVolume(found.name, name, known, keep_h=keep_h) for name, known in leftovers.items()]
    steps += [ForgetCheckpoints(*scene.whose, own, scene.repository.id)] if own else []
    former = xml_backup_record.within(parse(found.xml))
    if scene.spec.instant:
        stops = {*former.stops, *pausing(found.xml, paths)[1]}
        steps.append(PauseOnErrors(*scene.whose, scene.folder, tuple(paths), tuple(sorted(stops))))
    else:
        steps += _without_chains(scene, [now[disk.target] for disk in disks if paths[disk.target] in present])
    steps.append(PutInPlace(*scene.whose, swapped))
    if former.stands_on and not scene.spec.instant:
        steps.append(ReleasePoint(*scene.whose, former.stands_on, former.stops))
    steps += [DeleteVolume(found.name, aside[path], known, keep_h=keep_h) for path, known in present.items()]
    kept = tuple(present) if keep_h else ()
    return RestorePlan(tuple(steps), notes=(*_notes(scene, now), *told), kept=kept, needs=_needs(scene, disks, places))


def _is_left(scene: RestoreScene, path: str, name: str) -> bool:
    """True if the disk that an interrupted restore has replaced is still there under the name that it got; raises
    Refused if that is another file.
    """
    host = scene.host
    there, known = host.identity(path), host.identity(name)
    if not host.exists(name) or (known and there and known.is_same(there)):
        return False
    entries = fields_record.read(t.cast(FoundGuest, scene.found).xml).get("volumes") or ()
    mine = [one.identity for one in entries if one.path == name and one.is_of(scene.uuid, host.host_uuid())]
    if known and any(one and one.is_same(known) for one in mine):
        return True
    raise Refused(f"{scene.cannot}: {name} is in the way; move it ({shlex.join(['mv', name, name + '.old'])})")


def _without_chains(scene: RestoreScene, disks: t.Iterable[GuestDisk]) -> list[GuestStep]:
    """The step that defines the guest without the backing files of the replaced disks, if its definition names them."""
    found = t.cast(FoundGuest, scene.found)
    below = [link.path for disk in disks for link in scene.host.chain(str(disk.path), disk.format)[1:]]
    xml = without_chains(found.xml, below)
    seen = fields_record.fingerprint(found.xml)
    return [Define(found.name, xml, "its disks stand on no other file", found.uuid, seen)] if xml else []


def _of_the_guest(scene: RestoreScene) -> t.Iterator[VirtError]:
    found, spec, host, cannot = t.cast(FoundGuest, scene.found), scene.spec, scene.host, scene.cannot
    kept = host.kept(found.uuid)
    if found.active:
        stop = shlex.join(["ansible-playbook", "corral.virt.shutdown", "-e", f"guest={found.name}"])
        yield Refused(f"{cannot}: it is running; shut it down ({stop}), or set name to restore it as another guest")
    if not found.persistent:
        yield Refused(f"{cannot}: it is transient; define it first (virsh define)")
    if spec.pool:
        yield Refused(f"{cannot}: pool is only for new disks; this guest is here, and its disks stay where they are")
    if spec.network:
        yield Refused(f"{cannot}: network is only for a guest that is not here; to restore it as another one, set name")
    if "snapshots" in kept:
        delete = shlex.join(["virsh", "snapshot-delete", found.name, "NAME"])
        yield Refused(
            f"{cannot}: it has snapshots, which stand on its present disks; delete them first ({delete}), or set name "
            "to restore it as another guest"
        )
    if "managed_save" in kept:
        remove = shlex.join(["virsh", "managedsave-remove", found.name])
        yield Refused(f"{cannot}: its managed save image would not fit its disks any more; discard it first ({remove})")
    for one in _checkpoints(scene):
        if one.repository != scene.repository.id:
            forget = shlex.join(["virsh", "checkpoint-delete", found.name, one.name, "--metadata"])
            yield Refused(
                f"{cannot}: its checkpoint {one.name} is another program's, and its bitmap goes with the replaced "
                f"disk; delete it first ({forget})"
            )


def _checkpoints(scene: RestoreScene) -> list[Checkpoint]:
    has_some = "checkpoints" in scene.host.kept(scene.uuid)
    return scene.host.checkpoints(scene.uuid) if has_some else []


def _of_the_disks(scene: RestoreScene, disks: t.Sequence[GuestDisk]) -> t.Iterator[VirtError]:
    host, cannot = scene.host, scene.cannot
    if not disks:
        yield Refused(f"{cannot}: none of its disks is in the backup; set name to restore it as another guest")
    for disk in disks:
        what, instead = f"{cannot}: disk {disk.target}", "set name to restore it as another guest"
        if disk.path is None or disk.type == "block" or disk.path.startswith("/dev/"):
            yield Refused(f"{what} is no file now, and only files are replaced; {instead}, with its disks in pool")
        elif disk.encrypted or disk.format not in ("raw", "qcow2"):
            kind = "encrypted" if disk.encrypted else f"of format {disk.format}"
            yield Refused(f"{what} is {kind} now, and only raw and qcow2 files are replaced; {instead}")
        elif scene.spec.instant and disk.format != "qcow2":
            yield Refused(
                f"{what} is {disk.format}, and only qcow2 disks can stand on a backup; leave out instant, or {instead}"
            )
        elif not host.is_pooled(os.path.dirname(disk.path)):
            yield Refused(
                f"{cannot}: no active storage pool has its directory {os.path.dirname(disk.path)}; start that pool, or "
                f"create one there with virt_pool (path: {os.path.dirname(disk.path)})"
            )
        elif host.exists(disk.path) and host.identity(disk.path) is None:
            yield Refused(f"{what} is a link now ({disk.path}); let the guest's definition name the file itself")
        elif host.exists(disk.path):
            user = host.other_user(disk.path, scene.uuid, (disk.path,))
            if user:
                yield Refused(f"{what} is used by others, too ({user}); {instead}")


def _unconfirmed(scene: RestoreScene, present: t.Mapping[str, FileIdentity | None]) -> t.Iterator[VirtError]:
    if not present or scene.spec.confirm == scene.name:
        return
    hours = scene.spec.keep_h
    kept = f"they are kept aside for {hours} hours" if hours else "they are deleted"
    yield Refused(
        f"{scene.cannot}: this replaces {', '.join(present)} ({kept}); to confirm it, set confirm: {scene.name} "
        f"(playbook restore: -e confirm_guest={shlex.quote(scene.name)})"
    )


def _notes(scene: RestoreScene, now: t.Mapping[str, GuestDisk]) -> t.Iterator[str]:
    for disk in scene.disks:
        if disk.target not in now:
            yield f"disk {disk.target} of backup {scene.point.id} is left out: {scene.name} has no such disk any more"
    for target, present in now.items():
        if present.written and not scene.point.disk(target):
            yield f"disk {target} of {scene.name} stays as it is: backup {scene.point.id} is older than it"
    for path, name in scene.point.states:
        copy = link_path(scene.spec.repository, scene.point, name)
        yield f"{path} of {scene.name} stays as it is; as it was then, it is in {copy}"


def check_absent(step: DefineRestored, found: FoundGuest | None) -> None:
    """Raise Refused if somebody has defined the guest meanwhile."""
    if found:
        raise Refused(f"cannot define {step.guest}: a guest with its UUID or name is here by now; run again")


def check_present(
    step: PutInPlace, *, active: bool, found: t.Mapping[str, FileIdentity | None], written: t.Collection[str]
) -> None:
    """Raise Refused if the guest runs, or a disk is another file than the plan has seen, or somebody writes to it."""
    cannot = f"cannot put the restored disks of {step.guest} in place"
    if active or written:
        who = "it is running" if active else f"a process writes to {', '.join(sorted(written))}"
        raise Refused(
            f"{cannot}: {who} by now; shut it down ({shlex.join(['virsh', 'shutdown', step.guest])}); run again"
        )
    for disk in step.disks:
        known = found[disk.path]
        if known != disk.expected:
            raise Refused(f"{cannot}: {disk.path} is another file than this run has seen; run again")


def check_checkpoints(step: ForgetCheckpoints, found: t.Sequence[Checkpoint]) -> None:
    """Raise Refused if a checkpoint is somebody else's by now."""
    own = {one.name for one in found if one.repository == step.repository}
    others = sorted(set(step.names) - own)
    if others:
        raise Refused(f"cannot forget checkpoints of {step.guest}: {', '.join(others)} changed meanwhile; run again")


def checked(params: t.Mapping[str, t.Any]) -> RestoreSpec:
    """What is asked for; raises BadInput with every problem."""
    problems = Problems(_problems(params))
    problems.tried(lambda: check_existing_name(params["guest"], what="guest"))
    if params["name"] is not None:
        problems.tried(lambda: check_name(params["name"], what="name"))
    at_s = problems.read("at", lambda: seconds(params["at"])) if params["at"] is not None else None
    problems.refuse()
    return RestoreSpec(
        os.path.normpath(params["repository"]),
        params["guest"],
        params["point"],
        at_s,
        params["name"],
        tuple(params["disks"] or ()),
        params["pool"],
        params["run"],
        params["confirm"],
        params["keep_replaced_h"],
        params["network"],
        params["instant"],
    )


def _problems(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    yield from path_problems(params["repository"])
    if params["point"] is not None and params["at"] is not None:
        yield "at: use point or at, not both"
    if params["name"] is not None and params["disks"]:
        yield "disks: a guest with another name gets all disks; leave out name or disks"
    if params["job_timeout"] < 1:
        yield f"job_timeout: must be at least 1, not {params['job_timeout']}"
    if not 0 <= params["keep_replaced_h"] <= _MOST_H:
        yield f"keep_replaced_h: must be from 0 to {_MOST_H}, not {params['keep_replaced_h']}"
