# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests that each hypervisor is to have."""

from __future__ import annotations

DOCUMENTATION = r"""
name: guests_by_host
short_description: Divide guests among the hypervisors that were chosen for them
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the options of each guest by hypervisor, as M(corral.virt.virt_domains) takes them.
  - Guests that are made from an image or from another guest get a seed, unless they say something of C(cloud_init)
    themselves. Seeded guests that run are waited for. C(apart), C(together), C(host_groups) and C(requires) become
    tags, by which later runs know them.
positional: _input
options:
  _input:
    description: Guests, with the options of M(corral.virt.virt_domain), and those for their placement.
    type: list
    elements: dict
    required: true
  placements:
    description: Hypervisor of each guest, as M(corral.virt.virt_place) returns it. Guests without one are left out.
    type: dict
    required: true
  hosts:
    description: Results of M(corral.virt.virt_host_info), by hypervisor.
    type: dict
    required: true
  user_data:
    description: What guests are seeded with. By default none is.
    type: dict
  wait_for_ip:
    description: O(corral.virt.virt_domain#module:wait_for_ip) of guests that are waited for.
    type: str
    default: unknown
"""

EXAMPLES = r"""
- name: Create the guests
  corral.virt.virt_domains:
    domains: "{{ (virt_guests | corral.virt.guests_by_host(placed.placements, hosts))[inventory_hostname] }}"
  vars:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"
"""

RETURN = r"""
_value:
  description: Options of its guests for each hypervisor that has some.
  type: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils import _shares


class FilterModule:
    """The filter of the same name."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filters by name."""
        return {"guests_by_host": guests_by_host}


def guests_by_host(
    guests: t.Iterable[t.Mapping[str, t.Any]],
    placements: t.Mapping[str, str],
    hosts: t.Mapping[str, t.Any],
    user_data: t.Mapping[str, t.Any] | None = None,
    wait_for_ip: str = "unknown",
) -> dict[str, list[dict[str, t.Any]]]:
    """Options of the guests by hypervisor."""
    reported = {name: result["host"] for name, result in hosts.items() if result.get("host")}
    return _shares.by_host(guests, placements, reported, user_data=user_data, wait_for_ip=wait_for_ip)
