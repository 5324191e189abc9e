# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages that lead from a guest's options to a plan; they ask `GuestHost` for facts about the host."""

from __future__ import annotations

import dataclasses
import os.path
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import version
from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._core.units import check_name
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    fields_graphics,
    fields_interface,
    fields_record,
    xml_cloned,
    xml_host,
    xml_hotplug,
    xml_new,
    xml_summary,
    xml_validate,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest, Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    UNFINISHED_SUFFIX,
    Missing,
    Prerequisites,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_prerequisites import prerequisites
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import elements, sources, variables
from ansible_collections.corral.virt.plugins.module_utils._guest import (
    plan_changes,
    plan_cloning,
    plan_disk,
    plan_guest,
    plan_guest_options,
    plan_guest_steps,
    plan_host_questions,
    plan_live,
    plan_removal,
    plan_seeding,
    plan_start,
)
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_changes import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_host_questions import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_seeding import Seeding
from ansible_collections.corral.virt.plugins.module_utils._network import plan_nwfilter
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Start
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_disk_facts
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Known, Owner
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

# A guest that is removed: what it owns, what of that others use, and the plan.


def planned_removal(
    wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost
) -> GuestPlan:
    """The plan that removes the guest, and its disks if wanted; raises a refusal."""
    unfinished = host.unfinished_removals() if wanted.remove_storage else ()
    if found is None:
        left_over = _left_over_images(wanted.name, host) if wanted.remove_storage else ()
        return plan_removal.gone(wanted.name, left_over, unfinished, uri=host.uri)
    owner = plan_guest.owner_of(found, recorded, host)
    entries: tuple[OwnedVolume, ...] = tuple(recorded.get("volumes") or ())
    unseeded = [path + plan_seeding.UNSEEDED for path in recorded.get("making") or ()]
    told = [one.path for one in entries] if wanted.remove_storage else []
    disks = host.owned_disks((*told, *unseeded))
    left = [path for path in unseeded if not disks[path].gone]
    owner = dataclasses.replace(owner, disks=frozenset((*owner.disks, *left)))
    owned = (*entries, *map(owner.made, left))
    chains = host.own_chains(found) if wanted.remove_storage else ()
    others = plan_removal.unrecorded(chains, [one.path for one in owned])
    paths = [one.path for one in owned]
    in_use = {**host.users(paths, but=found.uuid), **plan_removal.shared(plan_guest.with_paths(found, host))}
    in_use = {**(host.users(others, but=found.uuid) if others else {}), **plan_removal.below(chains, others), **in_use}
    # The disk of a guest with snapshots is below the file that its definition names.
    owner = dataclasses.replace(owner, disks=frozenset((*owner.disks, *(path for chain in chains for path in chain))))
    managed_state = (*host.managed_state(found.uuid), *fields_domain.managed_state(found.xml))
    return plan_removal.absent(
        wanted,
        found,
        managed_state=managed_state,
        owned=owned,
        in_use=in_use,
        disks=disks,
        owner=owner,
        others=others,
        shared=_shared_disks(wanted, paths, host),
        unfinished=unfinished,
        uri=host.uri,
    )


def _shared_disks(wanted: GuestSpec, paths: t.Sequence[str], host: GuestHost) -> dict[str, str]:
    """Disks that stay because other hosts may mount their filesystem, with its kind, or that nobody here can tell."""
    if not (wanted.remove_storage and wanted.keep_shared):
        return {}
    kinds = host.shared_filesystems(tuple(paths))
    unknown = "a filesystem of another machine"
    return dict.fromkeys(paths, unknown) if kinds is None else {path: kind for path, kind in kinds.items() if kind}


def _left_over_images(guest: str, host: GuestHost) -> list[str]:
    """Images that are named like the guest's and that nothing uses."""
    paths = plan_removal.named_after(guest, host.volumes())
    users = host.users(paths)
    return [path for path in paths if path not in users]


# The disks that a guest has, and whose they are by its record.


def owner_of(found: FoundGuest, recorded: t.Mapping[str, t.Any], host: GuestHost) -> Owner:
    """The guest with its disks; of one that has no record the host is not asked."""
    if not recorded:
        return Owner(found.name, found.uuid, "")
    disks = [str(item.get("source") or "").removesuffix(UNFINISHED_SUFFIX) for item in with_paths(found, host)]
    return Owner(found.name, found.uuid, host.host_uuid(), frozenset(filter(None, disks)))


def with_paths(found: FoundGuest, host: GuestHost) -> list[dict[str, t.Any]]:
    """The guest's disks; a disk defined by pool and volume has its path as source."""
    return [
        {**item, "source": host.located(item["pool"], item["volume"])} if item.get("pool") else item
        for item in fields_disk.read_all(parse(found.xml))
    ]


def adopted(
    found: FoundGuest, recorded: t.Mapping[str, t.Any], owner: Owner, host: GuestHost
) -> tuple[OwnedVolume, ...] | None:
    """Entries of the guest's record, with older or foreign ones completed; None if none can be. Entries are completed
    only for disks that nobody but this guest uses.
    """
    entries = tuple(recorded.get("volumes") or ())
    paths = plan_disk_facts.incomplete(entries, owner, making=recorded.get("making") or ())
    files = host.identities(paths) if paths and not recorded.get("moving") else {}
    telling = [path for path in files if plan_disk_facts.tells(entries, path, files[path])]
    if not telling:
        return None
    in_use = {**host.users(telling, but=found.uuid), **plan_removal.shared(with_paths(found, host))}
    return plan_disk_facts.adopted(entries, owner, {path: files[path] for path in telling}, in_use)


# A guest that is a clone: the stages that a clone has beside those of every guest.


def created_clone(wanted: GuestSpec, uuid: str, host: GuestHost) -> tuple[GuestSpec, str, FoundGuest]:
    """The options of a new clone with their defaults, the document to edit, and the original."""
    original = _original(wanted, host)
    base = xml_cloned.document(original.xml, name=wanted.name, uuid=uuid)
    if wanted.interfaces:
        plan_guest_options.check_links(f"create {wanted.name}", wanted.interfaces, *host.links())
    wanted = plan_guest_options.completed(
        plan_cloning.described(wanted, xml_cloned.disks(original.xml)), fields_domain.sizes(base)
    )
    return _with_seed(plan_guest_options.with_macs(wanted, uuid), base, uuid, original), base, original


def existing_clone(
    wanted: GuestSpec, found: FoundGuest, recorded: t.Mapping[str, t.Any], known: Known, host: GuestHost
) -> tuple[GuestSpec, FoundGuest | None]:
    """The options of an existing clone with their defaults; the original if disks are still to be copied, else None."""
    original = None
    if recorded.get("copying"):
        if not wanted.clone_of:
            plan_cloning.refuse_half(wanted)
        original = _original(wanted, host)
        begun = {name: device.path for name, device in known.devices.items()}
        wanted = plan_cloning.resumed(wanted, original, xml_cloned.disks(original.xml), recorded, begun)
    wanted = plan_guest_options.with_macs(
        plan_guest_options.completed(wanted, fields_domain.sizes(found.xml)), found.uuid
    )
    if original or wanted.seed:
        wanted = _with_seed(wanted, found.xml, found.uuid, original)
    return wanted, original


def check_files(wanted: GuestSpec, original: FoundGuest, xml: str) -> None:
    """Raise Refused for files that the clone would share with its original."""
    plan_cloning.check_files(wanted, *map(xml_cloned.own_files, (original.xml, xml)))


def _original(wanted: GuestSpec, host: GuestHost) -> FoundGuest:
    found = host.find(t.cast(str, wanted.clone_of))
    if found is None:
        return plan_cloning.checked(wanted, None, managed_state=(), recorded={}, seed=False)
    recorded, seed = _recorded(found), "seed" in fields_disk.by_name(found.xml)
    return plan_cloning.checked(
        wanted, found, managed_state=host.managed_state(found.uuid), recorded=recorded, seed=seed
    )


def _with_seed(wanted: GuestSpec, base: str, uuid: str, original: FoundGuest | None) -> GuestSpec:
    """The guest with a seed for the interfaces of the clone."""
    nics = GuestSpec(wanted.name, fields={"interfaces": wanted.interfaces})
    macs = [nic.mac for nic in xml_summary.nics(parse(fields_domain.graft(base, nics).xml))]
    return plan_cloning.seeded(
        wanted, uuid=uuid, macs=macs, original=fields_record.read(original.xml) if original else None
    )


def _recorded(guest: FoundGuest) -> dict[str, t.Any]:
    """The record in the guest's stored definition."""
    return fields_record.own(fields_record.read(guest.xml), guest.uuid)


def takes_disks(wanted: GuestSpec) -> bool:
    """True if the guest may start to use disks that exist already."""
    named = any(item.places for item in wanted.disks or ())
    return wanted.state != "absent" and bool(named or wanted.clone_of or wanted.xml)


def plan(wanted: GuestSpec, host: GuestHost) -> GuestPlan:
    """The plan for one guest; raises NotFound, Refused or BadInput."""
    found = host.find(wanted.name)
    step, found = _renamed(wanted, found, host) if wanted.renamed_from else (None, found)
    recorded = _recorded(found) if found else {}
    plan_power.check_state(wanted, found, moving=bool(recorded.get("moving")))
    if wanted.state == "absent":
        stores = variables(parse(found.xml)) if found else ()
        in_use = host.users(stores, but=found.uuid) if found and stores else {}
        result = plan_removal.with_shared_variables(planned_removal(wanted, found, recorded, host), in_use)
    else:
        result = _plan_present(wanted, found, recorded, host)
    result = _identified(dataclasses.replace(result, found_xml=found.xml if found else None))
    if step is None:
        return result
    return dataclasses.replace(
        result, steps=(step, *result.steps), changes=(Change("name", wanted.renamed_from, wanted.name), *result.changes)
    )


def _identified(plan: GuestPlan) -> GuestPlan:
    """The plan with whom its steps are done to, and which definition was seen, in the steps that compare these."""
    compared = [step for step in plan.steps if isinstance(step, (plan_guest_steps.Define, plan_guest_steps.Undefine))]
    seen = fields_record.fingerprint(plan.found_xml) if compared and plan.found_xml else ""

    def identified(step: plan_guest_steps.GuestStep) -> plan_guest_steps.GuestStep:
        if isinstance(step, (plan_guest_steps.Define, plan_guest_steps.Undefine)):
            return dataclasses.replace(step, uuid=t.cast(str, plan.uuid), seen=seen)
        if isinstance(step, plan_guest_steps.WriteSeed):
            return dataclasses.replace(step, uuid=t.cast(str, plan.uuid))
        return step

    return dataclasses.replace(plan, steps=tuple(map(identified, plan.steps)))


def _renamed(
    wanted: GuestSpec, found: FoundGuest | None, host: GuestHost
) -> tuple[plan_guest_steps.Rename | None, FoundGuest | None]:
    """The step that renames the guest, and the guest as it is after that."""
    former = host.find(t.cast(str, wanted.renamed_from))
    managed_state = host.managed_state(former.uuid) if former else ()
    step = plan_changes.rename(
        wanted,
        found,
        former,
        managed_state=managed_state,
        recorded=_recorded(former) if former else {},
        snapshots=host.snapshots(former.uuid) if former and "snapshots" in managed_state else (),
    )
    if former is None:
        return None, found
    return step, dataclasses.replace(former, name=wanted.name, xml=fields_domain.renamed(former.xml, wanted.name))


# The stages: defaults, disks and seed, definition, checks, running definition, plan.


def _plan_present(
    wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost
) -> GuestPlan:
    if found is None or wanted.renamed_from:  # a guest that exists keeps its name
        check_name(wanted.name, what="name")
    subject = _subject(wanted, found, recorded, host)
    seed_plan = _plan_disks_and_seed(subject, host)
    definition = _edited_definition(subject, seed_plan)
    notes = [*_check_host(subject, definition, host), *_snapshot_notes(subject, seed_plan, definition, host)]
    misplaced = _misplaced(subject, host)
    now = _running_definition(subject, definition)
    result = plan_changes.plan(
        definition.wanted,
        found,
        definition.stored,
        now,
        storage=_claimed(seed_plan.disks.steps, definition.unfinished_xml, subject.known.owner),
        unfinished_xml=definition.unfinished_xml,
        seed_changed=seed_plan.rewritten,
        record_changed=bool(definition.remember),
    )
    _check_capacity(subject, definition, result, host)
    notes += [*_check_prerequisites(definition, result, found, host)]
    recorded = subject.recorded
    assigned = wanted.seed.addresses if wanted.seed else recorded.get("addresses", ())
    return dataclasses.replace(
        result,
        uuid=subject.uuid,
        changes=plan_changes.changes(
            definition.wanted, found, definition.stored, now, result, seed_plan, recorded.get("seed")
        ),
        notes=(*result.notes, *seed_plan.disks.notes, *seed_plan.notes, *notes, *_move_notes(wanted, misplaced)),
        misplaced=misplaced,
        wait=plan_changes.awaited(wanted, result, assigned=assigned, seen=recorded.get("seen", ())),
        ssh_host_key=definition.remember.get("ssh_host_key") or recorded.get("ssh_host_key"),
    )


def _misplaced(subject: _Subject, host: GuestHost) -> tuple[tuple[str, str, str], ...]:
    """The disks that the guest has in another pool than the options name, with that pool and the thin pool there."""
    found = []
    for item in subject.wanted.disks or ():
        device = subject.known.devices.get(item.name)
        if not (item.pool and device and item.state == "present") or device.path in subject.known.unfinished:
            continue
        there = device.volume and device.volume[0] == item.pool
        if device.path and not there:
            there = host.located(item.pool, os.path.basename(device.path)) == device.path
        if not there:
            found.append((item.name, item.pool, item.thin_pool or ""))
    return tuple(found)


def _move_notes(wanted: GuestSpec, misplaced: t.Iterable[tuple[str, str, str]]) -> t.Iterator[str]:
    for disk, pool, thin in misplaced if not wanted.move_disks else ():
        thin_pool = ["-e", f"thin_pool={thin}"] if thin else []
        move = shlex.join(["-e", f"guest={wanted.name}", "-e", f"disk={disk}", "-e", f"pool={pool}", *thin_pool])
        yield (
            f"disk {disk} of {wanted.name} is not in pool {pool}; to move it: ansible-playbook corral.virt.move_disk "
            f"{move}, or set move_disks: true"
        )


def _check_capacity(subject: _Subject, definition: _Definition, result: GuestPlan, host: GuestHost) -> None:
    """Raise Refused for a new guest that starts if others have taken its capacity since it was placed."""
    if subject.found or not any(isinstance(step, Start) for step in result.steps):
        return
    left = host.capacity(subject.uuid)
    if left is not None:
        sizes = fields_domain.sizes(definition.stored.xml)
        memory_mib = sizes["memory.maximum_kib"] // 1024
        plan_host_questions.check_capacity(
            subject.wanted.name, left, memory_mib=memory_mib, vcpus=sizes["vcpus.current"]
        )


def _check_prerequisites(
    definition: _Definition, result: GuestPlan, found: FoundGuest | None, host: GuestHost
) -> tuple[str, ...]:
    """Refuse prerequisites that libvirt would refuse on each run: it opens them when the guest starts or gets a device.

    A guest with a managed save image resumes with the definition in that image. Returns notes on what libvirt would
    refuse at the next start, and when the host starts.
    """
    plugged = [
        step for step in result.steps if isinstance(step, (plan_guest_steps.Attach, plan_guest_steps.UpdateDevice))
    ]
    starts = any(isinstance(step, Start) for step in result.steps)
    saved = starts and found and not found.active and "managed_save" in host.managed_state(found.uuid)
    documents = [definition.stored.xml] if starts and not saved else []
    each = [*map(_plug_prerequisites, plugged), *map(prerequisites, documents)]
    if found and saved and (saved_xml := host.saved_xml(found.uuid)):
        each.append(prerequisites(saved_xml, restored=True))
    if any(
        isinstance(step, plan_guest_steps.Define) for step in result.steps
    ):  # libvirt asks these before it stores one
        offers = prerequisites(definition.stored.xml).offers
        each.append(Prerequisites(offers=frozenset(offer for offer in offers if offer.what == "swtpm")))
    made = {step.path for step in result.steps if isinstance(step, plan_guest_steps.MAKING)}
    needed = plan_start.combined(each, made=made)
    missing = host.missing(needed) if starts or needed != Prerequisites() else Missing()
    verb = "change" if found else "define"
    plan_start.check("start" if starts else verb, definition.wanted.name, needed, missing)
    notes = () if starts else _next_start_notes(definition, result, found, made, host)
    if not any(isinstance(step, plan_guest_steps.SetAutostart) and step.on for step in result.steps):
        return notes
    networks = Prerequisites(networks=prerequisites(definition.stored.xml).networks)
    if (saved or not starts) and networks != Prerequisites():
        missing = host.missing(networks)
    return (*notes, *plan_start.autostart_notes(definition.wanted.name, missing))


def _next_start_notes(
    definition: _Definition, result: GuestPlan, found: FoundGuest | None, made: t.Collection[str], host: GuestHost
) -> tuple[str, ...]:
    """Notes on files that the definition newly names and that libvirt would not find at the next start."""
    if found is None or not any(isinstance(step, plan_guest_steps.Define) for step in result.steps):
        return ()
    needed = plan_start.added_files(prerequisites(definition.stored.xml), prerequisites(found.xml))
    needed = plan_start.combined([needed], made=made)
    if needed == Prerequisites() or (not found.active and "managed_save" in host.managed_state(found.uuid)):
        return ()
    return plan_start.next_start_notes(definition.wanted.name, needed, host.missing(needed))


def _plug_prerequisites(step: plan_guest_steps.Attach | plan_guest_steps.UpdateDevice) -> Prerequisites:
    needed = prerequisites(step.xml)
    return plan_start.of_update(needed, step.fields) if isinstance(step, plan_guest_steps.UpdateDevice) else needed


@dataclasses.dataclass(frozen=True)
class _Subject:
    """A guest with its defaults: its options, and what exists of it."""

    wanted: GuestSpec
    found: FoundGuest | None
    uuid: str
    base: str  # the document to edit
    recorded: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)  # our record of it
    known: Known = dataclasses.field(default_factory=Known)
    original: FoundGuest | None = None  # the guest of which it is a clone
    remember: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def _subject(wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost) -> _Subject:
    if found:
        return _existing_guest(wanted, found, recorded, host)
    return _guest_to_clone(wanted, host) if wanted.clone_of else _guest_to_create(wanted, host)


def _existing_guest(wanted: GuestSpec, found: FoundGuest, recorded: t.Mapping[str, t.Any], host: GuestHost) -> _Subject:
    running = sources(found.live_xml, host.located) if found.live_xml else ()
    owner = owner_of(found, recorded, host)
    owned = None if wanted.apply == "live" else adopted(found, recorded, owner, host)
    known = Known.of(
        fields_disk.by_name(found.xml), recorded, running=running, active=found.active, owner=owner, owned=owned
    )
    original = None
    if recorded.get("copy_of"):
        wanted, original = existing_clone(wanted, found, recorded, known, host)
    else:
        wanted = plan_guest_options.with_macs(
            plan_guest_options.completed(wanted, fields_domain.sizes(found.xml)), found.uuid
        )
    remember = {"copying": ()} if original else {}
    return _Subject(plan_disk.resumed(wanted, known), found, found.uuid, found.xml, recorded, known, original, remember)


def _guest_to_create(wanted: GuestSpec, host: GuestHost) -> _Subject:
    """A new guest with its defaults, such as a disk `system` of 8 GiB and an interface `eth0` on `br0`."""
    wanted, uuid = plan_guest_options.described(wanted), wanted.uuid or host.new_uuid()
    offer = host.capabilities()
    arch = offer["arch"]
    virt_type = plan_guest_options.virt_type(wanted, offer["virt_types"], arch)
    wanted = plan_guest_options.suited(plan_guest_options.equipped(wanted), xml_new.said(wanted.xml))
    plan_guest_options.check_links(f"create {wanted.name}", wanted.interfaces or (), *host.links())
    machine = plan_guest_options.machine(wanted, offer["machines"].get(arch, ()))
    ports = not any(item.name.startswith("pci-") for item in wanted.fields.get("controllers", ()))
    base = xml_new.domain(
        name=wanted.name,
        uuid=uuid,
        virt_type=virt_type,
        arch=arch,
        machine=machine,
        without=xml_new.brought(wanted.xml) | plan_guest_options.unwanted_devices(wanted),
        ports=ports,
    )
    known = Known(owner=Owner(wanted.name, uuid, host.host_uuid()))
    return _Subject(
        plan_guest_options.with_macs(plan_guest_options.completed(wanted, {}), uuid), None, uuid, base, known=known
    )


def _guest_to_clone(wanted: GuestSpec, host: GuestHost) -> _Subject:
    """A new clone: the definition of its original, with an identity and disks of its own."""

    uuid = wanted.uuid or host.new_uuid()
    wanted, base, original = created_clone(wanted, uuid, host)
    known = Known(owner=Owner(wanted.name, uuid, host.host_uuid()))
    return _Subject(wanted, None, uuid, base, known=known, original=original, remember={"copy_of": original.uuid})


def _plan_disks_and_seed(subject: _Subject, host: GuestHost) -> Seeding:
    """The plan for the guest's disks and its seed."""
    wanted, known = subject.wanted, subject.known

    def user_of(path: str) -> str | None:
        return host.users([path]).get(path)

    answers = host.disks(plan_disk.questions(wanted, known))
    disks = plan_disk.plan(wanted, known, answers, xml_host.new_volume, user_of)
    case = plan_seeding.seed_case(wanted, known, disks)
    site = host.seed(wanted.name, case.question)
    return plan_seeding.plan(wanted, known, disks, case, site, xml_host.new_volume, user_of)


@dataclasses.dataclass(frozen=True)
class _Definition:
    """The edited definition of a guest."""

    wanted: GuestSpec  # with the disks' sources
    remember: t.Mapping[str, t.Any]
    stored: Grafted
    unfinished_xml: str | None  # the definition while disks are being created


def _edited_definition(subject: _Subject, seed_plan: Seeding) -> _Definition:
    disks = seed_plan.disks
    wanted = subject.wanted.with_fields(disks=disks.disks)
    remember = {**disks.remember(subject.known), **seed_plan.remember, **subject.remember}
    stored = fields_domain.graft(subject.base, wanted, remember)
    Problems(xml_validate.problems(subject.base, wanted, stored)).refuse()
    unfinished = None
    if disks.making:
        copying = tuple(item.fields["source"] for item in disks.disks or () if item.copy_of)
        begun = {**remember, **disks.begun(subject.known), "copying": copying}
        unfinished = fields_domain.graft(subject.base, wanted.with_fields(disks=disks.unfinished()), begun).xml
    return _Definition(wanted, remember, stored, unfinished)


def _claimed(
    made: t.Sequence[plan_guest_steps.GuestStep], unfinished_xml: str | None, owner: Owner
) -> tuple[plan_guest_steps.GuestStep, ...]:
    """The steps; each that creates a file carries a claim: the records with and without that file."""
    if unfinished_xml is None:
        return tuple(made)
    claimed: list[plan_guest_steps.GuestStep] = []
    volumes = tuple(fields_record.read(unfinished_xml).get("volumes") or ())
    for step in made:
        if not isinstance(step, plan_guest_steps.MAKING) or step.replace:
            claimed.append(step)
            continue
        without, volumes = fields_record.update(unfinished_xml, {"volumes": volumes}), (*volumes, owner.made(step.path))
        claim = plan_guest_steps.Claim(without, fields_record.update(unfinished_xml, {"volumes": volumes}))
        claimed.append(dataclasses.replace(step, claim=claim))
    return tuple(claimed)


def _check_host(subject: _Subject, definition: _Definition, host: GuestHost) -> list[str]:
    """Check the requirements on the host; raises Refused, NotFound or BadInput; returns notes."""
    wanted, found, stored = definition.wanted, subject.found, definition.stored
    recent = xml_validate.recent(wanted, stored)
    if recent:
        Problems(version.too_old(wanted.name, recent, host.libvirt_version())).refuse()
    before, after = parse(subject.base), parse(stored.xml)
    connected = plan_guest_options.newly_connected(wanted, stored.changes) if found else []
    if connected:
        switched = fields_interface.switched(after)
        plan_guest_options.check_links(f"change {wanted.name}", connected, *host.links(), switched=switched)
    if subject.original:
        check_files(wanted, subject.original, stored.xml)
    _check_filters(wanted, fields_interface.filters(before), fields_interface.filters(after), host)
    if fields_domain.is_protected(after) and wanted.apply != "live":
        _check_protected(subject, after, host)
    notes = plan_guest_options.check_display(
        wanted, fields_graphics.displays(before), fields_graphics.displays(after), host.displays
    )
    if found and not found.active and stored.changes and "managed_save" in host.managed_state(found.uuid):
        notes.append(plan_changes.saved(wanted.name))
    return notes


def _check_protected(subject: _Subject, root: Element, host: GuestHost) -> None:
    """Check that another host can run the guest."""
    found = elements(root)
    files = [path for path in (one.get("file") for one in found) if path]
    by_pool = [str(one.get("volume")) for one in found if one.get("pool")]
    kinds = host.shared_filesystems(tuple(files))
    asked = subject.wanted.autostart
    autostart = asked if asked is not None else bool(subject.found and subject.found.autostart)
    Problems(plan_guest_options.protection_problems(subject.wanted.name, kinds, by_pool, autostart=autostart)).refuse()


def _snapshot_notes(subject: _Subject, seed_plan: Seeding, definition: _Definition, host: GuestHost) -> list[str]:
    """Notes on snapshots of a guest whose disks change, or of which a clone is made; raises Refused."""
    whose, name = subject.found or subject.original, subject.wanted.name
    growing = (plan_guest_steps.GrowDisk, plan_guest_steps.GrowLogicalVolume)
    grows = [step.path for step in seed_plan.disks.steps if isinstance(step, growing)]
    before, after = map(_written, (subject.base, definition.stored.xml))
    added = {target: path for target, path in after.items() if target not in before}
    removed = set(before.values()) - set(after.values())
    if whose is None or not (grows or added or removed) or "snapshots" not in host.managed_state(whose.uuid):
        return []
    snapshots = host.snapshots(whose.uuid)
    if subject.found is None:
        return plan_cloning.without_snapshots(whose.name, name, [one.name for one in snapshots])
    return [
        *plan_changes.grown(name, grows, snapshots),
        *plan_changes.attached(name, added, snapshots, removed=removed),
    ]


def _written(xml: str) -> dict[str, str]:
    """The disks of a definition that the guest writes: target -> source."""
    disks = [disk for disk in fields_disk.media(parse(xml)) if not disk.get("readonly")]
    return {str(disk["target"]): str(disk.get("source") or disk.get("volume")) for disk in disks}


def _check_filters(wanted: GuestSpec, before: dict[str, str], after: dict[str, str], host: GuestHost) -> None:
    """Check that the network filters in the options or in `xml` exist on the host and take effect."""
    stated = {item.name for item in wanted.interfaces or () if item.fields.get("filterref.name")}
    asked = {name: one for name, one in after.items() if name in stated or before.get(name) != one}
    there = host.filters() if asked else None
    if there is not None:
        Problems(
            plan_nwfilter.problems(wanted.name, asked, dict(map(xml_hotplug.read, there)), host.bridge_calls())
        ).refuse()


def _running_definition(subject: _Subject, definition: _Definition) -> plan_live.Now | None:
    """The live XML after the same graft: its changes are what the running guest lacks; None if it is not running."""
    wanted, found = definition.wanted, subject.found
    if found is None or found.live_xml is None:
        return None
    running = fields_domain.graft(found.live_xml, wanted, definition.remember)
    if not running.changes:
        return plan_live.Now(wanted, running, running, {})
    # A device that is defined already, and that the task only names, is not described by the task alone.
    running = fields_domain.graft(
        found.live_xml, fields_domain.as_defined(wanted, definition.stored.xml), definition.remember
    )
    limits = {**fields_domain.read_fields(found.live_xml), "asked_kib": subject.recorded.get("balloon_kib")}
    asked = fields_record.update(
        found.live_xml, {**definition.remember, "balloon_kib": wanted.fields.get("memory.current_kib")}
    )
    updated = fields_domain.graft(found.live_xml, plan_live.updates(wanted))
    plugs = {place: xml_hotplug.plug(running.devices[place]) for place in plan_live.comes_and_goes(running.changes)}
    return plan_live.Now(
        wanted, running, updated, limits, asked, plugs, xml_hotplug.buses(found.live_xml) if plugs else None
    )
