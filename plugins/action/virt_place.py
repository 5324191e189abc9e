# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose hypervisors for guests. Runs on the controller, on the hosts' reports."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_host_load import Load
from ansible_collections.corral.virt.plugins.plugin_utils._commands.controller_action import ControllerAction
from ansible_collections.corral.virt.plugins.plugin_utils._guests import (
    guest_problems,
    host_requirements,
    placed_guests,
    preparation,
)
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._placement import reported_hosts
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

OPTIONS: dict[str, t.Any] = {
    **reported_hosts.OPTIONS,
    "guests": {"type": "list", "elements": "dict", "default": []},
    "group": {"type": "list", "elements": "str"},
    "gone": {"type": "list", "elements": "str", "default": []},
    "leave": {"type": "list", "elements": "str", "default": []},
    "only": {"type": "list", "elements": "str"},
    "refused": {"type": "list", "elements": "dict", "default": []},
    "running_only": {"type": "bool", "default": False},
    "stay": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(ControllerAction):
    """Pure computation: it connects to no host, and changes nothing."""

    options, large = OPTIONS, "hosts"

    def answer(self, options: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Place all guests; fails with every refusal, and defers guests that unreached hosts may have."""
        profiles = {name: self._templar.template(variables.get(name)) for name in preparation.PROFILES}
        try:
            catalogue = Catalogue.of(variables, self._templar.template)
            options["guests"], unnamed = _named(options, catalogue, lambda: self._imported(variables))
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        wrong = [[*named, *found] for named, found in zip(unnamed, _wrong(options["guests"], profiles), strict=True)]
        options["guests"] = [
            item if known else preparation.with_profiles(item, profiles)
            for item, known in zip(options["guests"], wrong, strict=True)
        ]
        counting = reported_hosts.Counting.of(options["rules"], variables.get("groups"))
        asked = placed_guests.PlacementRequest.of(options, wrong, counting)
        placed = placed_guests.place_guests(asked, options, variables)
        result: dict[str, t.Any] = {
            "changed": False,
            **placed_guests.moving(asked, placed, options),
            **placed_guests.placements(asked, placed),
        }
        result["rooms"] = {host.name: _capacity(host, asked.policy) for host in asked.hosts}
        result["positions"] = placed_guests.positions(options["guests"], result["placements"])
        for item, line in zip(placed, result["explained"], strict=True):
            if item.host and not item.exists:
                terminal.say(line)
        refused = [
            item for item in placed if item.host is None and not item.deferred and item.guest not in asked.leaving
        ]
        if refused:
            result.update(failed=True, msg=printable(placed_guests.message(refused)))
        else:
            result["warnings"] = [
                *placed_guests.warnings(placed),
                *placed_guests.homeless_warnings(asked, options, placed),
            ]
        return result

    def _imported(self, variables: t.Mapping[str, t.Any]) -> set[str]:
        """Names of images that the site itself imports, also in a play that imports none."""
        host = (variables.get("hostvars") or {}).get(variables.get("inventory_hostname")) or {}
        lists = (self._templar.template(variables.get("virt_images")), host.get("virt_images"))
        return {str(image.get("name")) for images in lists for image in images or () if isinstance(image, dict)}


def _named(
    options: t.Mapping[str, t.Any], catalogue: Catalogue, files: t.Callable[[], t.Collection[str]]
) -> tuple[list[dict[str, t.Any]], list[list[str]]]:
    """The guests with the options that follow from their images, and problems of new guests' image names."""
    known = reported_hosts.usable(options["hosts"]).values()
    there = {guest["name"] for info in known for guest in info["guests"]}
    new = [one.get("name") not in there and one.get("state") != "absent" for one in options["guests"]]
    described = [
        image_names.described(one, catalogue) if is_new else one
        for one, is_new in zip(options["guests"], new, strict=True)
    ]
    return [image_names.with_files(one, catalogue) for one in described], [
        image_names.problems(one, catalogue, files) if is_new else []
        for one, is_new in zip(options["guests"], new, strict=True)
    ]


def _capacity(host: model_placement.Host, policy: model_placement.Policy) -> dict[str, int]:
    """The memory and vCPUs that all guests of a host may use together."""
    load = Load(host, policy)
    return {"memory_mib": int(load.memory_capacity), "vcpus": int(load.cpu_capacity)}


def _wrong(guests: t.Sequence[t.Mapping[str, t.Any]], profiles: t.Mapping[str, t.Any]) -> list[list[str]]:
    """Problems of each guest that its host would find only after importing images for it."""
    return [
        guest_problems.problems(
            {key: value for key, value in one.items() if key not in host_requirements.OWN}, profiles
        )
        for one in guests
    ]
