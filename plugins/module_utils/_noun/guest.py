# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest: the stages that lead from its options to a plan.

They ask `Host` for facts about the host.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest, Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._model.prerequisites import Missing, Prerequisites
from ansible_collections.corral.virt.plugins.module_utils._noun import guest_disks
from ansible_collections.corral.virt.plugins.module_utils._noun.host import GuestHost
from ansible_collections.corral.virt.plugins.module_utils._plan import (
    capacity,
    guest_options,
    live,
    power,
    rename,
    since,
    start,
    steps,
)
from ansible_collections.corral.virt.plugins.module_utils._plan import disk as disk_plans
from ansible_collections.corral.virt.plugins.module_utils._plan import display as displays
from ansible_collections.corral.virt.plugins.module_utils._plan import domain as plans
from ansible_collections.corral.virt.plugins.module_utils._plan import nwfilter as nwfilters
from ansible_collections.corral.virt.plugins.module_utils._plan import seeding as seedings
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import Known
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_record import Owner
from ansible_collections.corral.virt.plugins.module_utils._plan.domain import GuestPlan
from ansible_collections.corral.virt.plugins.module_utils._plan.power_steps import Start
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._plan.seeding import Seeding
from ansible_collections.corral.virt.plugins.module_utils._units import check_name
from ansible_collections.corral.virt.plugins.module_utils._xml import (
    disk,
    domain,
    graphics,
    host_xml,
    hotplug,
    interface,
    new,
    nwfilter,
    record,
    validate,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.prerequisites import prerequisites
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["plan", "takes_disks"]


def takes_disks(wanted: GuestSpec) -> bool:
    """Whether disks that exist may come into use by it."""
    named = any(item.places for item in wanted.disks or ())
    return wanted.state != "absent" and bool(named or wanted.clone_of or wanted.xml)


def plan(wanted: GuestSpec, host: GuestHost) -> GuestPlan:
    """The plan for one guest; raises a refusal."""
    found = host.find(wanted.name)
    step, found = _renamed(wanted, found, host) if wanted.renamed_from else (None, found)
    recorded = record.read(found.xml) if found else {}
    power.check_state(wanted, found, moving=bool(recorded.get("moving")))
    if wanted.state == "absent":
        # compiled only where it is needed
        from ansible_collections.corral.virt.plugins.module_utils._noun import guest_removal

        result = guest_removal.plan(wanted, found, recorded, host)
    else:
        result = _plan_present(wanted, found, recorded, host)
    result = dataclasses.replace(result, found_xml=found.xml if found else None)
    if step is None:
        return result
    return dataclasses.replace(
        result, steps=(step, *result.steps), changes=(Change("name", wanted.renamed_from, wanted.name), *result.changes)
    )


def _renamed(
    wanted: GuestSpec, found: FoundGuest | None, host: GuestHost
) -> tuple[steps.Rename | None, FoundGuest | None]:
    """The step that renames the guest, and the guest as it will be then."""
    former = host.find(t.cast(str, wanted.renamed_from))
    managed_state = host.managed_state(former.uuid) if former else ()
    step = rename.rename(
        wanted, found, former, managed_state=managed_state, recorded=record.read(former.xml) if former else {}
    )
    if former is None:
        return None, found
    return step, dataclasses.replace(former, name=wanted.name, xml=domain.renamed(former.xml, wanted.name))


# The stages: defaults, disks and seed, definition, checks, running definition, plan.


def _plan_present(
    wanted: GuestSpec, found: FoundGuest | None, recorded: t.Mapping[str, t.Any], host: GuestHost
) -> GuestPlan:
    if found is None or wanted.renamed_from:  # a guest that exists keeps its name
        check_name(wanted.name, what="name")
    subject = _subject(wanted, found, recorded, host)
    seed_plan = _plan_disks_and_seed(subject, host)
    definition = _edited_definition(subject, seed_plan)
    notes = _check_host(subject, definition, host)
    now = _running_definition(subject, definition)
    result = plans.plan(
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
        changes=plans.changes(
            definition.wanted, found, definition.stored, now, result, seed_plan, recorded.get("seed")
        ),
        notes=(*result.notes, *seed_plan.disks.notes, *seed_plan.notes, *notes),
        wait=plans.awaited(wanted, result, assigned=assigned, seen=recorded.get("seen", ())),
        ssh_host_key=definition.remember.get("ssh_host_key") or recorded.get("ssh_host_key"),
    )


def _check_capacity(subject: _Subject, definition: _Definition, result: GuestPlan, host: GuestHost) -> None:
    """Refuse to start a new guest if others have taken its capacity since it was placed."""
    if subject.found or not any(isinstance(step, Start) for step in result.steps):
        return
    left = host.capacity(subject.uuid)
    if left is not None:
        sizes = domain.sizes(definition.stored.xml)
        memory_mib = sizes["memory.maximum_kib"] // 1024
        capacity.check(subject.wanted.name, left, memory_mib=memory_mib, vcpus=sizes["vcpus.current"])


def _check_prerequisites(
    definition: _Definition, result: GuestPlan, found: FoundGuest | None, host: GuestHost
) -> tuple[str, ...]:
    """Refuse what libvirt would refuse on each run: it opens what there is not when the guest starts or gets it.

    A guest with a managed save image goes on with the definition in that.

    Returns notes on what it would refuse when the host starts.
    """
    plugged = [step for step in result.steps if isinstance(step, (steps.Attach, steps.UpdateDevice))]
    starts = any(isinstance(step, Start) for step in result.steps)
    saved = starts and found and not found.active and "managed_save" in host.managed_state(found.uuid)
    documents = [definition.stored.xml] if starts and not saved else []
    each = [*map(_plug_prerequisites, plugged), *map(prerequisites, documents)]
    if found and saved and (saved_xml := host.saved_xml(found.uuid)):
        each.append(prerequisites(saved_xml, restored=True))
    if any(isinstance(step, steps.Define) for step in result.steps):  # libvirt asks these before it stores one
        offers = prerequisites(definition.stored.xml).offers
        each.append(Prerequisites(offers=frozenset(offer for offer in offers if offer.what == "swtpm")))
    made = {step.path for step in result.steps if isinstance(step, steps.MAKING)}
    needed = start.combined(each, made=made)
    missing = host.missing(needed) if starts or needed != Prerequisites() else Missing()
    verb = "change" if found else "define"
    start.check("start" if starts else verb, definition.wanted.name, needed, missing)
    if not any(isinstance(step, steps.SetAutostart) and step.on for step in result.steps):
        return ()
    networks = Prerequisites(networks=prerequisites(definition.stored.xml).networks)
    if (saved or not starts) and networks != Prerequisites():
        missing = host.missing(networks)
    return start.autostart_notes(definition.wanted.name, missing)


def _plug_prerequisites(step: steps.Attach | steps.UpdateDevice) -> Prerequisites:
    needed = prerequisites(step.xml)
    return start.of_update(needed, step.fields) if isinstance(step, steps.UpdateDevice) else needed


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
    owner = guest_disks.owner(found, recorded, host)
    owned = None if wanted.apply == "live" else guest_disks.adopted(found, recorded, owner, host)
    known = Known.of(disk.by_name(found.xml), recorded, running=running, active=found.active, owner=owner, owned=owned)
    original = None
    if recorded.get("copy_of"):
        from ansible_collections.corral.virt.plugins.module_utils._noun import guest_clone  # as in `plan`

        wanted, original = guest_clone.existing(wanted, found, recorded, known, host)
    else:
        wanted = guest_options.with_macs(guest_options.completed(wanted, domain.sizes(found.xml)), found.uuid)
    remember = {"copying": ()} if original else {}
    return _Subject(
        disk_plans.resumed(wanted, known), found, found.uuid, found.xml, recorded, known, original, remember
    )


def _guest_to_create(wanted: GuestSpec, host: GuestHost) -> _Subject:
    """A new guest with its defaults, such as a disk `system` of 8 GiB and an interface `eth0` on `br0`."""
    wanted, uuid = guest_options.described(wanted), wanted.uuid or host.new_uuid()
    offer = host.capabilities()
    arch = offer["arch"]
    virt_type = guest_options.virt_type(wanted, offer["virt_types"], arch)
    wanted = guest_options.suited(guest_options.equipped(wanted), new.said(wanted.xml))
    guest_options.check_links(f"create {wanted.name}", wanted.interfaces or (), *host.links())
    machine = guest_options.machine(wanted, offer["machines"].get(arch, ()))
    ports = not any(item.name.startswith("pci-") for item in wanted.fields.get("controllers", ()))
    base = new.domain(
        name=wanted.name,
        uuid=uuid,
        virt_type=virt_type,
        arch=arch,
        machine=machine,
        without=new.brought(wanted.xml) | guest_options.unwanted_devices(wanted),
        ports=ports,
    )
    known = Known(owner=Owner(wanted.name, uuid, host.host_uuid()))
    return _Subject(guest_options.with_macs(guest_options.completed(wanted, {}), uuid), None, uuid, base, known=known)


def _guest_to_clone(wanted: GuestSpec, host: GuestHost) -> _Subject:
    """A new clone: the definition of its original, with an identity and disks of its own."""
    from ansible_collections.corral.virt.plugins.module_utils._noun import guest_clone  # as in `plan`

    uuid = wanted.uuid or host.new_uuid()
    wanted, base, original = guest_clone.created(wanted, uuid, host)
    known = Known(owner=Owner(wanted.name, uuid, host.host_uuid()))
    return _Subject(wanted, None, uuid, base, known=known, original=original, remember={"copy_of": original.uuid})


def _plan_disks_and_seed(subject: _Subject, host: GuestHost) -> Seeding:
    """The plan for its disks and its seed."""
    wanted, known = subject.wanted, subject.known
    answers = host.disks(disk_plans.questions(wanted, known))
    disks = disk_plans.plan(wanted, known, answers, host_xml.new_volume)
    case = seedings.seed_case(wanted, known, disks)
    site = host.seed(wanted.name, case.question)
    return seedings.plan(wanted, known, disks, case, site, host_xml.new_volume)


@dataclasses.dataclass(frozen=True)
class _Definition:
    """The edited definition."""

    wanted: GuestSpec  # with the disks' sources
    remember: t.Mapping[str, t.Any]
    stored: Grafted
    unfinished_xml: str | None  # the definition while disks are being created


def _edited_definition(subject: _Subject, seed_plan: Seeding) -> _Definition:
    disks = seed_plan.disks
    wanted = subject.wanted.with_fields(disks=disks.disks)
    remember = {**disks.remember(subject.known), **seed_plan.remember, **subject.remember}
    stored = domain.graft(subject.base, wanted, remember)
    Problems(validate.problems(subject.base, wanted, stored)).refuse()
    unfinished = None
    if disks.making:
        copying = tuple(item.fields["source"] for item in disks.disks or () if item.copy_of)
        begun = {**remember, **disks.begun(subject.known), "copying": copying}
        unfinished = domain.graft(subject.base, wanted.with_fields(disks=disks.unfinished()), begun).xml
    return _Definition(wanted, remember, stored, unfinished)


def _claimed(
    made: t.Sequence[steps.GuestStep], unfinished_xml: str | None, owner: Owner
) -> tuple[steps.GuestStep, ...]:
    """The steps, each with the record that what it makes is the guest's from then on."""
    if unfinished_xml is None:
        return tuple(made)
    claimed: list[steps.GuestStep] = []
    volumes = tuple(record.read(unfinished_xml).get("volumes") or ())
    for step in made:
        if not isinstance(step, steps.MAKING) or step.replace:
            claimed.append(step)
            continue
        without, volumes = record.update(unfinished_xml, {"volumes": volumes}), (*volumes, owner.made(step.path))
        claim = steps.Claim(without, record.update(unfinished_xml, {"volumes": volumes}))
        claimed.append(dataclasses.replace(step, claim=claim))
    return tuple(claimed)


def _check_host(subject: _Subject, definition: _Definition, host: GuestHost) -> list[str]:
    """Check the requirements on the host; raises a refusal, returns notes."""
    wanted, found, stored = definition.wanted, subject.found, definition.stored
    recent = validate.recent(wanted, stored)
    if recent:
        Problems(since.problems(wanted.name, recent, host.libvirt_version())).refuse()
    before, after = parse(subject.base), parse(stored.xml)
    connected = guest_options.newly_connected(wanted, stored.changes) if found else []
    if connected:
        switched = interface.switched(after)
        guest_options.check_links(f"change {wanted.name}", connected, *host.links(), switched=switched)
    if subject.original:
        from ansible_collections.corral.virt.plugins.module_utils._noun import guest_clone  # as in `plan`

        guest_clone.check_files(wanted, subject.original, stored.xml)
    _check_filters(wanted, interface.filters(before), interface.filters(after), host)
    notes = displays.check(wanted, graphics.displays(before), graphics.displays(after), host.displays)
    if found and not found.active and stored.changes and "managed_save" in host.managed_state(found.uuid):
        notes.append(plans.saved(wanted.name))
    return notes


def _check_filters(wanted: GuestSpec, before: dict[str, str], after: dict[str, str], host: GuestHost) -> None:
    """Check that the network filters in the options or in `xml` exist on the host and take effect."""
    stated = {item.name for item in wanted.interfaces or () if item.fields.get("filterref.name")}
    asked = {name: one for name, one in after.items() if name in stated or before.get(name) != one}
    there = host.filters() if asked else None
    if there is not None:
        Problems(nwfilters.problems(wanted.name, asked, dict(map(nwfilter.read, there)), host.bridge_calls())).refuse()


def _running_definition(subject: _Subject, definition: _Definition) -> live.Now | None:
    """The live document after the same graft: its changes are what the running guest lacks."""
    wanted, found = definition.wanted, subject.found
    if found is None or found.live_xml is None:
        return None
    running = domain.graft(found.live_xml, wanted, definition.remember)
    if not running.changes:
        return live.Now(wanted, running, running, {})
    # A device that is defined already, and that the task only names, is not described by the task alone.
    running = domain.graft(found.live_xml, domain.as_defined(wanted, definition.stored.xml), definition.remember)
    limits = {**domain.read_fields(found.live_xml), "asked_kib": subject.recorded.get("balloon_kib")}
    asked = record.update(
        found.live_xml, {**definition.remember, "balloon_kib": wanted.fields.get("memory.current_kib")}
    )
    updated = domain.graft(found.live_xml, live.updates(wanted))
    plugs = {place: hotplug.plug(running.devices[place]) for place in live.comes_and_goes(running.changes)}
    return live.Now(wanted, running, updated, limits, asked, plugs, hotplug.buses(found.live_xml) if plugs else None)
