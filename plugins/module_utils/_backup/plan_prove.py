# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which backups are proven, and how: restored to a guest that reaches nothing, which gives evidence. Pure."""

from __future__ import annotations

import dataclasses
import os.path
import re
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._backup import xml_proof
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    DEFINITION,
    Repository,
    is_proof_name,
    proof_name,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_steps import (
    BackupStep,
    RestoreDisk,
    RestoreState,
    StartRestored,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_repository import (
    check_whole,
    link_path,
    path_problems,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_restore import (
    SPARE_BYTES,
    TPM_STATES,
    VARIABLES,
    RestoreHost,
    RestoreScene,
    RestoreSpec,
    disk_format,
    flat_size_bytes,
    state_path,
    taken,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_restore import scene as restore_scene
from ansible_collections.corral.virt.plugins.module_utils._backup.xml_restored import definition, read_only_files
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems, refuse_all
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Plan
from ansible_collections.corral.virt.plugins.module_utils._core.units import bytes_text
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import GuestStep, Seen
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import directory

LOCK = "corral-proof"
ANOTHER_RUN = "cannot prove backups: another run does so on this host; wait for that run, and run again"
_SPARE_MEMORY_BYTES = 256 * 1024**2
_LOGIN = re.compile(rb"\blogin:")


@dataclasses.dataclass(frozen=True)
class ProofSpec:
    """What is asked for."""

    repository: str
    guests: tuple[str, ...] = ()  # names or UUIDs; empty: a sample of those of this host
    sample: int = 1
    evidence: str | None = None
    probe: str | None = None
    timeout_s: int = 600
    pool: str | None = None


class LeftProof(t.NamedTuple):
    """A guest that was made to prove a backup."""

    name: str
    uuid: str
    directory: str  # of its disks


class ProofHost(RestoreHost, t.Protocol):
    """The host on which backups are proven."""

    def memory_bytes(self, xml: str) -> int:
        """The memory of a guest with this definition."""

    def memory_free_bytes(self) -> int:
        """What new guests could have."""


@dataclasses.dataclass(frozen=True)
class BeginProof(BackupStep):
    """Define a guest that reaches nothing, and create the directory of its disks: the record in its definition tells
    later runs what this one has made.
    """

    template = "define {0.guest}, an isolated copy of {0.of}, with its disks in {0.directory}"
    xml: str = dataclasses.field(repr=False)
    directory: str
    of: str


@dataclasses.dataclass(frozen=True)
class Isolate(BackupStep):
    """Create a network that leads nowhere, until the host boots at most; its bridge is down, so no frame passes it."""

    template = "create network {0.guest}, whose bridge {0.bridge} is down"
    xml: str = dataclasses.field(repr=False)
    bridge: str


@dataclasses.dataclass(frozen=True)
class AwaitEvidence(BackupStep):
    """Wait until the guest shows that it works."""

    changes: t.ClassVar[bool] = False

    of: str
    evidence: str
    timeout_s: int
    probe: str = ""

    @property
    def waiting(self) -> str:
        """What is waited for, to be shown meanwhile."""
        return f"waiting for {_TOLD[self.evidence]} of {self.of}"

    def __str__(self) -> str:
        return f"wait for {_TOLD[self.evidence]} of {self.guest}"


_TOLD = {
    "agent": "an answer of the guest agent",
    "login": "a login prompt on the console",
    "probe": "success of the probe",
}


@dataclasses.dataclass(frozen=True)
class RemoveProof(BackupStep):
    """Switch off a guest that was made to prove a backup, and remove its network, its disks and its definition."""

    template = "remove {0.guest} with {0.directory} and its network"
    look: t.ClassVar[Look | None] = Look(
        at="UUID, name, and the sealed record that it is a proof, with the directory of its disks",
        holds="the lock of proofs on this host",
        leaves="the guest, with all that it has",
        by=("uuid", "directory"),
    )

    directory: str


@dataclasses.dataclass(frozen=True)
class RecordProof(BackupStep):
    """Record in the repository how the restore of a backup went."""

    template = "record the proof of backup {0.point} of {0.of}"
    point: str
    of: str


@dataclasses.dataclass(frozen=True)
class ProofPlan(Plan[GuestStep]):
    """How a backup is proven; the last steps are done whatever happens."""

    last: int = 0  # how many these are
    evidence: str = ""

    @property
    def closing(self) -> tuple[GuestStep, ...]:
        """The last steps, which are carried out also if others fail."""
        return self.steps[len(self.steps) - self.last :]


@dataclasses.dataclass(frozen=True)
class ProofScene(RestoreScene):
    """The newest point of a guest, and where it is proven."""

    @property
    def cannot(self) -> str:
        """How a refusal begins."""
        return f"cannot prove backup {self.point.id} of {self.point.guest}"


def bridge_of(name: str) -> str:
    """The bridge of a network of that name; the kernel allows 15 characters."""
    return "crlp" + name[-8:]


def log_of(name: str) -> str:
    """The file to which its console is logged."""
    return f"/var/log/libvirt/qemu/{name}.console.log"


def left(guests: t.Iterable[FoundGuest]) -> list[LeftProof]:
    """Guests that were made to prove a backup, by their name and a record with a directory of that name."""
    found = [(guest, xml_proof.directory_of(guest.xml)) for guest in guests if is_proof_name(guest.name)]
    return [
        LeftProof(guest.name, guest.uuid, where)
        for guest, where in found
        if where and os.path.basename(where) == f".{guest.name}"
    ]


def removals(found: t.Iterable[LeftProof]) -> list[RemoveProof]:
    """The steps that remove what an interrupted run has left."""
    return [RemoveProof(one.name, one.uuid, one.directory) for one in found]


def states_of(step: RemoveProof) -> tuple[str, str]:
    """Where its TPM state and its UEFI variables are restored."""
    return os.path.join(TPM_STATES, step.uuid), os.path.join(VARIABLES, f"{step.guest}_VARS.fd")


def check_left(step: RemoveProof, found: t.Sequence[LeftProof]) -> None:
    """Raise Refused if the guest is no proof, or another one."""
    if LeftProof(step.guest, step.uuid, step.directory) not in found:
        raise Refused(f"cannot remove {step.guest}: it is another guest by now, or was renamed; see what it is")


def sample(spec: ProofSpec, repository: Repository, known: t.Collection[str]) -> list[str]:
    """UUIDs of the guests whose backups are proven: those that are asked for, or of those on this host (`known` UUIDs)
    those whose last proof is missing or the oldest. Raises NotFound.
    """
    newest = {point.uuid: point for point in repository.points}  # oldest first
    if spec.guests:
        chosen = [uuid for uuid, point in newest.items() if {uuid, point.guest} & set(spec.guests)]
        there = {word for uuid in chosen for word in (uuid, newest[uuid].guest)}
        missing = [guest for guest in spec.guests if guest not in there]
        if missing:
            raise NotFound(
                f"cannot prove backups of {', '.join(missing)}: {spec.repository} has none; see which it has: "
                "ansible-playbook corral.virt.backups"
            )
        return chosen
    last = {
        uuid: max(
            (repository.proofs[one.id].ended_s for one in repository.of(uuid) if one.id in repository.proofs), default=0
        )
        for uuid in newest
        if uuid in known
    }
    return sorted(last, key=lambda uuid: (last[uuid], newest[uuid].guest, uuid))[: spec.sample]


def unproven(spec: ProofSpec, chosen: t.Collection[str]) -> t.Iterator[str]:
    """A note if there was nothing to prove."""
    if not chosen:
        yield f"no backup is proven: {spec.repository} has none of a guest of this host"


def scene(spec: ProofSpec, uuid: str, host: ProofHost) -> ProofScene:
    """The newest point of the guest with this UUID; raises NotFound, or Refused."""
    asked = RestoreSpec(spec.repository, uuid, name=proof_name(uuid), pool=spec.pool)
    found = restore_scene(asked, host)
    return ProofScene(found.spec, found.repository, found.point, host, None)


def plan(seen: ProofScene, spec: ProofSpec, removed: t.Collection[str] = ()) -> ProofPlan:
    """The plan; raises all refusals at once, those of the backup itself first. `removed` are UUIDs of guests that are
    gone before it begins.
    """
    check_whole(seen)
    host, whose = t.cast(ProofHost, seen.host), seen.whose
    folder = os.path.join(_room(seen), f".{seen.name}")
    places = {disk.target: os.path.join(folder, f"{disk.target}.{disk_format(disk)}") for disk in seen.point.disks}
    states = {name: state_path(seen, name, path, folder) for path, name in seen.point.states}
    made = _definition(seen, places, states)
    evidence = _evidence(spec, made)
    refuse_all(
        [*_in_the_way(seen, folder, states.values(), removed), *_unfit(seen, made, evidence), *_memory(seen, made.xml)]
    )
    xml = xml_proof.with_record(made.xml, of=seen.point.uuid, directory=folder)
    bridge = bridge_of(seen.name)
    steps: list[GuestStep] = [BeginProof(*whose, xml, folder, seen.point.guest)]
    steps += [
        RestoreDisk(
            *whose, seen.point, disk.target, places[disk.target], disk_format(disk), flat_size_bytes(seen, disk)
        )
        for disk in seen.point.disks
    ]
    steps += [RestoreState(*whose, seen.point, name, path) for name, path in states.items()]
    steps += [Isolate(*whose, xml_proof.network(seen.name, seen.uuid, bridge), bridge), StartRestored(*whose)]
    steps.append(AwaitEvidence(*whose, seen.point.guest, evidence, spec.timeout_s, spec.probe or ""))
    closing = (RemoveProof(*whose, folder), record(seen))
    missing = [path for path in read_only_files(made.xml) if not host.exists(path)]
    notes = [*made.notes, *(f"{path}, which it reads, is in no backup and not on this host" for path in missing)]
    told = tuple(f"proof of {seen.point.guest}: {note}" for note in notes)
    return ProofPlan((*steps, *closing), notes=told, last=len(closing), evidence=evidence)


def _definition(seen: ProofScene, places: t.Mapping[str, str], states: t.Mapping[str, str]) -> xml_proof.Isolated:
    """The stored definition, with the restored files and without what reaches others."""
    then = seen.host.text(link_path(seen.spec.repository, seen.point, DEFINITION))
    files = {disk.target: (places[disk.target], disk_format(disk)) for disk in seen.point.disks}
    nvram, seed = states.get("nvram.fd"), states.get("seed.iso")
    xml = definition(then, name=seen.name, uuid=seen.uuid, files=files, seed=seed, nvram=nvram, volumes=())
    return xml_proof.isolated(xml, name=seen.name, kept={*places.values(), *states.values()}, log=log_of(seen.name))


def _evidence(spec: ProofSpec, made: xml_proof.Isolated) -> str:
    if spec.evidence or spec.probe:
        return spec.evidence or "probe"
    return "agent" if made.has_agent else "login"


def failed(made: ProofPlan, seen: ProofScene, done: t.Collection[str], *, begun: bool) -> ProofPlan:
    """What was done of a plan that failed, and how it ends: if a guest was defined, it is removed."""
    closing = made.closing if begun else (record(seen),)
    steps = [step for step in made.steps if str(step) in done]
    return dataclasses.replace(made, steps=(*steps, *closing), last=len(closing))


def record(seen: ProofScene) -> RecordProof:
    """The step that records how it went, also if nothing could be begun."""
    return RecordProof(*seen.whose, seen.point.id, seen.point.guest)


def _room(seen: ProofScene) -> str:
    """The directory of a pool with room for all disks; raises NotFound, or Refused."""
    host, chosen = seen.host, seen.spec.pool
    before = [os.path.dirname(disk.source) for disk in seen.point.disks]
    own = [] if chosen else [one for one in before if one and not one.startswith("/dev") and host.is_pooled(one)]
    places = dict.fromkeys(own or [directory(host.pool(chosen or POOL), f"disks of {seen.name}")])
    need = sum(flat_size_bytes(seen, disk) for disk in seen.point.disks) + SPARE_BYTES
    free = {place: host.free_in(place) for place in places}
    found = next((place for place in places if free[place] >= need), None)
    if found is None:
        told = ", ".join(f"{place} has {bytes_text(free[place])} free" for place in places)
        raise Refused(
            f"{seen.cannot}: {told}, and it needs about {bytes_text(need)}; make room, or choose another pool"
        )
    return found


def _in_the_way(
    seen: ProofScene, folder: str, states: t.Iterable[str], removed: t.Collection[str]
) -> t.Iterator[VirtError]:
    other = seen.host.guest(seen.name)
    if other and other.uuid not in removed:
        yield Refused(f"{seen.cannot}: there is another guest {seen.name}; rename that guest")
    if seen.host.exists(folder) and not (other and other.uuid in removed):
        remove = shlex.join(["rm", "-r", folder])
        yield Refused(f"{seen.cannot}: {folder} is there, and no guest has it; remove it ({remove})")
    if not other:
        yield from taken(seen, states)


def _unfit(seen: ProofScene, made: xml_proof.Isolated, evidence: str) -> t.Iterator[Refused]:
    if evidence == "agent" and not made.has_agent:
        yield Refused(f"{seen.cannot}: its definition has no channel for a guest agent; use evidence: login or probe")
    if evidence == "login" and not made.has_console:
        yield Refused(
            f"{seen.cannot}: its definition has no serial console that could show a login prompt"
            f"{'' if made.has_agent else ', and no channel for a guest agent'}; use evidence: "
            f"{'agent' if made.has_agent else 'probe'}"
        )


def _memory(seen: ProofScene, xml: str) -> t.Iterator[Refused]:
    host = t.cast(ProofHost, seen.host)
    need, free = host.memory_bytes(xml) + _SPARE_MEMORY_BYTES, host.memory_free_bytes()
    if free < need:
        yield Refused(
            f"{seen.cannot}: this host has {bytes_text(free)} of memory free, and it needs {bytes_text(need)}; prove "
            "it when less runs here, or on another host that has the repository (playbook prove: -e host=HOST)"
        )


def has_login(console: bytes) -> bool:
    """True if the output of a console has a login prompt."""
    return bool(_LOGIN.search(console))


def check_waiting(step: AwaitEvidence, seen: Seen, elapsed_s: float, last: str, *, over: bool) -> None:
    """Raise Failed if the guest does not run any more, or its time is over; `last` is what the last attempt told."""
    if seen.state == "running" and not over:
        return
    told = "; ".join(word for word in (seen.facts(), last) if word)
    word = "off" if seen.state == "shutdown" else seen.state
    state = "" if seen.state == "running" else f": it is {word}"
    restore = shlex.join(["ansible-playbook", "corral.virt.restore", "-e", f"guest={step.of}", "-e", "new_name=NAME"])
    raise Failed(
        f"cannot prove the backup of {step.of}: {_TOLD[step.evidence]} did not come within {elapsed_s:.0f} s{state} "
        f"({told}); restore it under another name to see why ({restore})"
    )


def checked(params: t.Mapping[str, t.Any]) -> ProofSpec:
    """What is asked for; raises BadInput with every problem."""
    Problems(_problems(params)).refuse()
    return ProofSpec(
        os.path.normpath(params["repository"]),
        tuple(params["guests"] or ()),
        params["sample"],
        params["evidence"],
        params["probe"],
        params["timeout"],
        params["pool"],
    )


def _problems(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    yield from path_problems(params["repository"])
    if params["sample"] < 1:
        yield f"sample: must be at least 1, not {params['sample']}"
    if params["timeout"] < 1:
        yield f"timeout: must be at least 1, not {params['timeout']}"
    if (params["evidence"] == "probe") != bool(params["probe"]) and not (
        params["evidence"] is None and params["probe"]
    ):
        yield "probe: is the command of evidence: probe, and only of that; give both, or none"
