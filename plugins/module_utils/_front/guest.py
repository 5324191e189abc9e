# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Bring one guest to what was asked: fetch, graft, plan, gate, report. Shared by `virt_domain` and `virt_domains`."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing as t
import uuid

from ansible_collections.corral.virt.plugins.module_utils import _changes
from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._files import local, qemu
from ansible_collections.corral.virt.plugins.module_utils._front import disks, seeds
from ansible_collections.corral.virt.plugins.module_utils._front.module import Module
from ansible_collections.corral.virt.plugins.module_utils._libvirt import domain as doers
from ansible_collections.corral.virt.plugins.module_utils._libvirt import look, storage
from ansible_collections.corral.virt.plugins.module_utils._model.display import DisplayDefaults
from ansible_collections.corral.virt.plugins.module_utils._model.domain import Found, Grafted, Wanted
from ansible_collections.corral.virt.plugins.module_utils._plan import disk as disk_plans
from ansible_collections.corral.virt.plugins.module_utils._plan import display as displays
from ansible_collections.corral.virt.plugins.module_utils._plan import domain as plans
from ansible_collections.corral.virt.plugins.module_utils._plan import live, new_guest, steps
from ansible_collections.corral.virt.plugins.module_utils._plan import nwfilter as nwfilters
from ansible_collections.corral.virt.plugins.module_utils._plan import seeding as seedings
from ansible_collections.corral.virt.plugins.module_utils._plan.disk_facts import Known
from ansible_collections.corral.virt.plugins.module_utils._plan.problems import Problems
from ansible_collections.corral.virt.plugins.module_utils._run import Gate
from ansible_collections.corral.virt.plugins.module_utils._units import derived_mac
from ansible_collections.corral.virt.plugins.module_utils._xml import (
    caps,
    disk,
    domain,
    graphics,
    interface,
    merge,
    new,
    nwfilter,
    record,
    whole,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.sources import sources
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

__all__ = ["GuestModule", "converge"]


class GuestModule(Module):
    """A module that is told the secrets of guests. Of its arguments only their names go into the host's log.

    Ansible hides a secret there only where it stands as it was given, which it does not within a dictionary: line ends and quotes are
    written in another way.
    """

    def confidential(self) -> t.Iterator[str]:
        """Parts of its arguments that nobody may see."""
        yield from super().confidential()
        guests = self.params.get("domains") or [self.params]
        for guest in guests if isinstance(guests, list) else []:
            if isinstance(guest, dict) and isinstance(guest.get("xml"), str):
                yield from merge.secrets(guest["xml"])

    def _log_invocation(self) -> None:
        names = [str(guest["name"]) for guest in self.params.get("domains") or [self.params]]
        self.log(f"Invoked for {', '.join(map(ascii, names))}")


def converge(connection: t.Any, wanted: Wanted, gate: Gate) -> dict[str, t.Any]:
    """Do what `wanted` says and return the result for one guest; one with `awaits` is yet to be waited for."""
    with contextlib.ExitStack() as held:
        return _converge(connection, wanted, gate, held)


def _converge(connection: t.Any, wanted: Wanted, gate: Gate, held: contextlib.ExitStack) -> dict[str, t.Any]:
    found = look.find(connection, wanted.name)
    renamed = _renamed(connection, wanted, found) if wanted.renamed_from else None
    found = renamed[1] if renamed else found
    plans.check_state(wanted, found, moving=bool(found and record.read(found.xml).get("moving")))
    if wanted.state == "absent":
        plan, changes, key = _absent(connection, wanted, found), _gone(found), None
    else:
        if found is None:
            wanted = dataclasses.replace(wanted, uuid=wanted.uuid or str(uuid.uuid4()))
        plan, changes, key = _present(connection, wanted, found, held)
    if renamed:
        plan.steps.insert(0, renamed[0])
        changes = [Change("name", wanted.renamed_from, wanted.name), *changes]
    guest_uuid = found.uuid if found else wanted.uuid or ""
    gate.run(plan.steps, lambda step: _do(connection, guest_uuid, step))
    known = record.read(found.xml) if found else {}
    given = wanted.seed.addresses if wanted.seed else known.get("addresses", ())
    wait = plans.awaited(wanted, plan, given=given, seen=known.get("seen", ()))
    return {
        "name": wanted.name,
        "changed": any(step.changes for step in plan.steps),
        "steps": [str(step) for step in plan.steps if step.changes],
        "pending": plan.pending,
        "notes": plan.notes,
        "diff": _changes.diff([*changes, *_state_change(found, wanted, plan), *_autostart_change(found, plan)]),
        **gate.perform(lambda: {"awaits": {guest_uuid: wait}} if wait else {}, otherwise={}),
        **({"ssh_host_key": key} if key else {}),
    }


def _renamed(connection: t.Any, wanted: Wanted, found: Found | None) -> tuple[steps.Rename, Found] | None:
    """The step that renames the guest, and the guest as it will be then; None where there is nothing to rename."""
    former = look.find(connection, t.cast(str, wanted.renamed_from))
    keeps = look.keeps(connection, former.uuid) if former else ()
    step = plans.rename(wanted, found, former, keeps=keeps, memory=record.read(former.xml) if former else {})
    if step is None or former is None:
        return None
    return step, dataclasses.replace(former, name=wanted.name, xml=domain.renamed(former.xml, wanted.name))


def _present(
    connection: t.Any, wanted: Wanted, found: Found | None, held: contextlib.ExitStack
) -> tuple[plans.Plan, list[Change], str | None]:
    if found is None:
        wanted, base = _new(connection, wanted)
    else:
        base = found.xml
    memory = record.read(base) if found else {}
    wanted = plans.completed(wanted, domain.sizes(base) if found else {})
    wanted = _with_macs(wanted, found.uuid if found else t.cast(str, wanted.uuid))
    known = _known(found, memory)
    wanted = disk_plans.resumed(wanted, known)
    answers = disks.answers(connection, disk_plans.questions(wanted, known), held)
    making = disk_plans.plan(wanted, known, answers, caps.new_volume)
    site = seeds.answer(connection, wanted.name, seedings.question(wanted, known, making))
    seeding = seedings.plan(wanted, known, making, site, caps.new_volume)
    making = seeding.disks
    wanted = wanted.with_fields(disks=making.disks)
    remember = {**making.remember(known), **seeding.remember}
    stored = domain.graft(base, wanted, remember)
    Problems(whole.problems(base, wanted, stored)).refuse()
    if found:
        places = {change.where for change in stored.changes}
        at = ("", ".bridge", ".network")
        plugged = [item for item in wanted.interfaces or () if places & {f"interfaces[{item.name}]{field}" for field in at}]
        if plugged:
            new_guest.check_links(f"change {wanted.name}", plugged, *look.links(connection))
    _check_filters(connection, wanted, base, stored)
    here = connection.getURI() == "qemu:///system"
    open_displays = displays.check(
        wanted, graphics.displays(parse(base)), graphics.displays(parse(stored.xml)), qemu.displays() if here else DisplayDefaults()
    )
    unfinished = None
    if making.making:
        unfinished = domain.graft(base, wanted.with_fields(disks=making.unmade()), {**remember, "making": making.making}).xml
    now = _now(found, wanted, remember, memory)
    plan = plans.plan(
        wanted,
        found,
        stored,
        now,
        storage=making.steps,
        unfinished_xml=unfinished,
        seed_changed=seeding.rewritten,
        record_changed=bool(remember),
    )
    plan.notes += [*seeding.notes, *open_displays]
    if found and not found.active and stored.changes and "managed_save" in look.keeps(connection, found.uuid):
        plan.notes.append(
            f"{wanted.name} was saved with what it ran with: its next start goes on from there, and the changes wait for the one after "
            f"that; to drop what was saved: virsh managedsave-remove {wanted.name}"
        )
    changes = [*_changes_of(wanted, stored, now, plan), *making.changes]
    if found is None:  # what the skeleton said was never anybody's wish
        changes = [Change(change.where, None, change.after) for change in changes]
    if seeding.rewritten:
        changes.append(Change("cloud_init", str(memory.get("seed"))[:12], t.cast(t.Any, wanted.seed).digest[:12]))
    return plan, changes, remember.get("ssh_host_key") or memory.get("ssh_host_key")


def _known(found: Found | None, memory: t.Mapping[str, t.Any]) -> Known:
    """What the guest's definition and record tell of its disks."""
    if found is None:
        return Known()
    running = sources(found.live_xml) if found.live_xml else ()
    return Known.of(disk.by_name(found.xml), memory, running=running, active=found.active)


def _changes_of(wanted: Wanted, stored: Grafted, now: live.Now | None, plan: plans.Plan) -> list[Change]:
    """What the definition lacked, and what only the running guest did (an earlier run stored it), unless that goes on waiting."""
    running = now.running.changes if now and plan.steps else ()
    if wanted.apply == "live":
        return list(running)
    stored_places = {change.where for change in stored.changes}
    return [*stored.changes, *(change for change in running if change.where not in stored_places and str(change) not in plan.pending)]


def _new(connection: t.Any, wanted: Wanted) -> tuple[Wanted, str]:
    """Defaults of a guest that is made now: the seeds' profiles, one `system` disk of 8 GiB and `eth0` on `br0`."""
    wanted = new_guest.described(wanted)
    host = caps.host(look.capabilities(connection))
    arch = host["arch"]
    virt_type = new_guest.virt_type(wanted, host["virt_types"], arch)
    wanted = new_guest.equipped(wanted)
    new_guest.check_links(f"create {wanted.name}", wanted.interfaces or (), *look.links(connection))
    machine = new_guest.machine(wanted, host["machines"].get(arch, ()))
    return wanted, new.domain(name=wanted.name, uuid=t.cast(str, wanted.uuid), virt_type=virt_type, arch=arch, machine=machine)


def _check_filters(connection: t.Any, wanted: Wanted, before: str, stored: Grafted) -> None:
    """Network filters that the task speaks of, or brings with `xml`, exist here and do what they say."""
    known, spoken = interface.filters(parse(before)), {item.name for item in wanted.interfaces or () if item.fields.get("filterref.name")}
    asked = {name: one for name, one in interface.filters(parse(stored.xml)).items() if name in spoken or known.get(name) != one}
    found = look.filters(connection) if asked else None
    if found is not None:
        calls = local.bridge_calls() if connection.getURI() == "qemu:///system" else None
        Problems(nwfilters.problems(wanted.name, asked, dict(map(nwfilter.read, found)), calls)).refuse()


def _with_macs(wanted: Wanted, guest_uuid: str) -> Wanted:
    """A stable MAC for interfaces that are made now; those that exist keep theirs."""
    named = [dataclasses.replace(item, when_made={"mac": derived_mac(guest_uuid, item.name)}) for item in wanted.interfaces or ()]
    return wanted.with_fields(interfaces=tuple(named)) if named else wanted


def _now(found: Found | None, wanted: Wanted, remember: t.Mapping[str, t.Any], memory: t.Mapping[str, t.Any]) -> live.Now | None:
    """The live document after the same graft: its changes are what the running guest lacks."""
    if found is None or found.live_xml is None:
        return None
    running = domain.graft(found.live_xml, wanted, remember)
    if not running.changes:
        return live.Now(wanted, running, running, {})
    limits = {**domain.read_fields(found.live_xml), "asked_kib": memory.get("balloon_kib")}
    asked = record.update(found.live_xml, {**remember, "balloon_kib": wanted.fields.get("memory.current_kib")})
    return live.Now(wanted, running, domain.graft(found.live_xml, live.updates(wanted)), limits, asked)


def _absent(connection: t.Any, wanted: Wanted, found: Found | None) -> plans.Plan:
    uri = connection.getURI()
    if found is None:
        left_over = _left_over(connection, wanted.name) if wanted.remove_storage else ()
        return plans.absent(wanted, None, keeps=(), owned=(), in_use={}, left_over=left_over, uri=uri)
    memory = record.read(found.xml)
    unseeded = [path + seedings.UNSEEDED for path in memory.get("making") or ()]
    owned = (*memory.get("volumes", ()), *(path for path in unseeded if storage.volume_at(connection, path)))
    in_use = {**_users(connection, wanted.name, owned), **_not_his(found.xml)} if owned else {}
    keeps = (*look.keeps(connection, found.uuid), *domain.keeps(found.xml))
    return plans.absent(wanted, found, keeps=keeps, owned=owned, in_use=in_use, uri=uri)


def _not_his(xml: str) -> dict[str, str]:
    """Disks of a guest that others may have or that it never wrote; its seed is for it alone."""
    why = {"shareable": "it is shareable, and somebody else", "readonly": "it is read-only, and who wrote it"}
    disks = [item for item in disk.read_all(parse(xml)) if item.get("source") and item["name"] != "seed"]
    return {item["source"]: reason for field, reason in why.items() for item in disks if item.get(field)}


def _users(connection: t.Any, guest: str, owned: t.Collection[str]) -> dict[str, str]:
    """Who else needs images: other guests (running or defined), and images that stand on them."""
    users: dict[str, str] = {}
    for found in look.of_all(connection, look.found):
        if found.name != guest:
            paths = {*sources(found.xml), *(sources(found.live_xml) if found.live_xml else ())}
            users.update(dict.fromkeys(paths, f"guest {found.name}"))
    for volume in map(caps.volume, storage.all_volumes(connection)):
        if volume["backing_path"] in owned and volume["path"] not in owned:
            users[volume["backing_path"]] = f"image {volume['path']}"
    return users


def _left_over(connection: t.Any, guest: str) -> list[str]:
    """Images named as those of the guest are, which no guest uses."""
    ours = re.compile(rf"/{re.escape(guest)}-[^/]+\.(qcow2|img|iso)")
    volumes = map(caps.volume, storage.all_volumes(connection))
    paths = [volume["path"] for volume in volumes if ours.search(volume["path"] or "")]
    users = _users(connection, guest, paths) if paths else {}
    return [path for path in paths if path not in users]


def _gone(found: Found | None) -> list[Change]:
    return [] if found is None else [Change("state", found.state, "absent")]


def _state_change(found: Found | None, wanted: Wanted, plan: plans.Plan) -> list[Change]:
    after = {
        steps.Start: "paused" if wanted.state == "paused" else "running",
        steps.Resume: "running",
        steps.Suspend: "paused",
        steps.Destroy: "shutdown",
        steps.Shutdown: "shutdown",
    }
    told = [after[type(step)] for step in plan.steps if type(step) in after]
    before = found.state if found else "absent"
    if wanted.state == "absent" or not told or told[-1] == before:
        return [] if found or wanted.state == "absent" or told else [Change("state", "absent", "shutdown")]
    return [Change("state", before, told[-1])]


def _autostart_change(found: Found | None, plan: plans.Plan) -> list[Change]:
    return [Change("autostart", found and found.autostart, step.on) for step in plan.steps if isinstance(step, steps.SetAutostart)]


def _do(connection: t.Any, uuid: str, step: steps.Step) -> object:
    """Hand a step to the room that knows how."""
    if isinstance(step, (steps.WriteSeed, steps.Customize)):
        seeds.do(connection, step)
        return None
    return doers.do(connection, uuid, step)
