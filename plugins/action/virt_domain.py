# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare the description of a guest on the controller, then run the module of the same name."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands import guest_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._commands.guest_names import Names
from ansible_collections.corral.virt.plugins.plugin_utils._guests import cloud_config, preparation
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._report import waiting
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable
from ansible_collections.corral.virt.plugins.plugin_utils._report.safe_results import UntrustedAction


class ActionModule(UntrustedAction):
    """Serves `virt_domain`, and `virt_domains` through its own file."""

    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module for the guests that this host should work on, with seeds as text.

        All other options stay as they are.
        """
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        problems: list[str] = []
        self._catalogue = self._read_catalogue(task_vars or {})
        if isinstance(arguments.get("domains"), list):
            arguments["domains"] = [self._prepared(one, task_vars, problems) for one in arguments["domains"]]
        else:
            arguments = self._prepared(arguments, task_vars, problems)
        if self._task.async_val and any(map(_moves_disks, _guests(arguments))):
            problems.append("move_disks: is not available with async; omit one of them")
        problems += preparation.snapshot_problems(_guests(arguments), in_background=bool(self._task.async_val))
        if problems:
            raise AnsibleActionFail("; ".join(problems))
        duplicates = boolean(arguments.get("allow_duplicates"), strict=False)  # the module says what it must be
        names = None if duplicates else Names(self, task_vars or {})
        decided, arguments = self._decided(arguments, names, task_vars or {}) if names else ({}, arguments)
        if decided and "domains" not in arguments:
            return {**result, "pending": [], "notes": [], "diff": [], **decided[0]}
        if decided and not arguments["domains"]:
            return {**result, **preparation.merged(decided, None)}
        taken = self._snapshots_before(arguments, task_vars or {})
        with waiting.lines(self._awaited(arguments, task_vars or {})):
            made = self._execute_module(module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val)
        if names and not made.get("failed"):
            names.made([str(one["name"]) for one in _guests(arguments) if _makes(one)])
        made = self._with_moved_disks(made, arguments, task_vars or {})
        preparation.add_snapshots(made, taken)
        return {**result, **(preparation.merged(decided, made) if decided else made)}

    def _with_moved_disks(
        self, made: dict[str, t.Any], arguments: dict[str, t.Any], task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        """The module's result, after the disks that are in other pools than they should be were moved."""
        moving = {str(one["name"]) for one in _guests(arguments) if _moves_disks(one)}
        for one in made.get("results", [made]) if moving else ():
            if one.get("name") in moving and not one.get("failed"):
                for disk in one.pop("misplaced_disks", ()):
                    told = self._moved(str(one["name"]), disk, arguments.get("uri"), task_vars)
                    preparation.add_move(made, one, told)
        return made

    def _snapshots_before(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """The result of `virt_snapshot` for the guests that this task is about to change; empty if it is for none.

        Raises AnsibleActionFail if one cannot be taken: nothing is changed then.
        """
        guests = (one for one in _guests(arguments) if isinstance(one, dict))
        asked = [str(one["name"]) for one in guests if one.get("snapshot") == "before"]
        if not asked:
            return {}
        planned = self._planned(module_args=arguments, task_vars=task_vars)
        if planned.get("failed"):
            raise AnsibleActionFail(f"nothing was changed, and there is no snapshot before: {planned.get('msg')}")
        changed = {one.get("name") for one in planned.get("results", [planned]) if one.get("changed")}
        uri = {"uri": arguments["uri"]} if arguments.get("uri") else {}
        known = self._execute_module("corral.virt.virt_state_info", module_args=uri, task_vars=task_vars)
        if known.get("failed"):
            raise AnsibleActionFail(f"nothing was changed, as there is no snapshot before: {known.get('msg')}")
        there = {domain["name"] for domain in known["domains"]}
        changing = [name for name in asked if name in changed & there]
        if not changing:
            return {}
        options = {"guests": changing, "name": preparation.snapshot_name(time.time()), **uri}
        taken = self._execute_module("corral.virt.virt_snapshot", module_args=options, task_vars=task_vars)
        if taken.get("failed"):
            raise AnsibleActionFail(f"nothing was changed, as there is no snapshot before: {taken.get('msg')}")
        return t.cast("dict[str, t.Any]", taken)

    def _moved(
        self, guest: str, disk: t.Mapping[str, t.Any], uri: str | None, task_vars: dict[str, t.Any]
    ) -> dict[str, t.Any]:
        """The result of `virt_disk_move`, with its progress shown."""
        task = self._task.copy()
        task.action = "corral.virt.virt_disk_move"
        options = {name: disk[name] for name in ("disk", "pool", "thin_pool") if name in disk}
        task.args = {"guest": guest, **options, **({"uri": uri} if uri else {})}
        action = self._shared_loader_obj.action_loader.get(
            task.action,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        return t.cast("dict[str, t.Any]", action.run(task_vars=task_vars))

    def _read_catalogue(self, task_vars: dict[str, t.Any]) -> Catalogue:
        try:
            return Catalogue.of(task_vars, self._templar.template)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error

    def _awaited(self, arguments: dict[str, t.Any], task_vars: dict[str, t.Any]) -> str | None:
        """The line to show while the host waits for guests; None in check mode, or in the background."""
        if self._task.check_mode or self._task.async_val:
            return None
        return waiting.waits(str(task_vars.get("inventory_hostname")), _guests(arguments))

    def _decided(
        self, arguments: dict[str, t.Any], names: Names, task_vars: dict[str, t.Any]
    ) -> tuple[preparation.Told, dict[str, t.Any]]:
        """Results of guests that this host must not work on, by their place in the list, and the other arguments."""
        guests = _guests(arguments)
        concerned = {str(one["name"]): one for one in guests if _is_asked(one)}
        here, decided, hostvars = (
            str(task_vars.get("inventory_hostname")),
            preparation.Told(),
            task_vars.get("hostvars") or {},
        )
        shown = {name: hostvars[name].get("virt_hypervisor") for name in concerned if name in hostvars}
        elsewhere = any(hypervisor not in (None, here) for hypervisor in shown.values())
        asked = names.asked(concerned, alone=elsewhere) if concerned else {}
        for place, one in enumerate(guests):
            name = str(one.get("name")) if isinstance(one, dict) else ""
            found = guest_hosts.verdict(name, _state(one), here, asked, shown.get(name)) if name in concerned else None
            if found and not found.go:
                decided[place] = {"name": name, "changed": False, "failed": found.failed, "msg": found.why, "steps": []}
        if not isinstance(arguments.get("domains"), list):
            return decided, arguments
        return decided, {**arguments, "domains": [one for place, one in enumerate(guests) if place not in decided]}

    def _prepared(self, guest: t.Any, task_vars: dict[str, t.Any] | None, problems: list[str]) -> t.Any:
        """The guest as it is sent to the host; problems are added to `problems`."""
        if not isinstance(guest, dict):
            return guest  # the module says what it must be
        profiles = {name: self._templar.template((task_vars or {}).get(name)) for name in preparation.PROFILES}
        steps: tuple[t.Callable[[t.Any], t.Any], ...] = (
            lambda one: preparation.with_profiles(one, profiles),
            lambda one: image_names.with_files(one, self._catalogue),
            _with_checked_seed,
            preparation.prepared,
        )
        for step in steps:
            try:
                guest = step(guest)
            except ValueError as error:
                problems.append(str(error))
        return guest


def _with_checked_seed(guest: dict[str, t.Any]) -> dict[str, t.Any]:
    cloud_config.check(guest, lambda sentence: Display().warning(str(printable(sentence))))
    return guest


def _guests(arguments: dict[str, t.Any]) -> list[t.Any]:
    found = arguments.get("domains", [arguments])
    return found if isinstance(found, list) else []  # the module says what it must be


def _moves_disks(guest: t.Any) -> bool:
    return isinstance(guest, dict) and bool(boolean(guest.get("move_disks") or False, strict=False))


def _state(guest: dict[str, t.Any]) -> str:
    return str(guest.get("state") or "present")


def _makes(guest: dict[str, t.Any]) -> bool:
    return _state(guest) in guest_hosts.MAKING_STATES


def _is_asked(guest: t.Any) -> bool:
    """True if other hosts matter for the guest; invalid guests are left to the module."""
    if not isinstance(guest, dict) or guest.get("name") is None or _state(guest) not in guest_hosts.ASKED_STATES:
        return False
    try:
        return bool(units.check_existing_name(str(guest["name"]), what="name"))
    except BadInput:
        return False
