# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests with what the role guests adds to them."""

from __future__ import annotations

DOCUMENTATION = r"""
name: seeded_guests
short_description: Add seeds, tags and waits to guests
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the options of guests as M(corral.virt.virt_domains) takes them.
  - A new guest that is made from an image or from another guest gets a seed, unless it has C(cloud_init) of its own. A
    running guest with a seed is waited for. C(apart), C(together), C(host_groups) and C(requires) become tags, by which
    later runs know them.
positional: _input
options:
  _input:
    description:
      - Guests of one hypervisor, with the options of M(corral.virt.virt_domain), and those for their placement.
    type: list
    elements: dict
    required: true
  known:
    description: Guests that the hypervisor has, as M(corral.virt.virt_host_info) reports them.
    type: list
    elements: dict
    required: true
  user_data:
    description: User data of the seeds. Without it, guests get no seed.
    type: dict
  wait_for_ip:
    description: O(corral.virt.virt_domain#module:wait_for_ip) of guests that are waited for.
    type: str
    default: unknown
"""

EXAMPLES = r"""
- name: Create the guests
  corral.virt.virt_domains:
    domains: "{{ mine | corral.virt.seeded_guests(virt_host.host.guests, user_data={'ssh_authorized_keys': keys}) }}"
  vars:
    mine: "{{ placed.positions[inventory_hostname] | default([]) | map('extract', virt_guests) }}"
"""

RETURN = r"""
_value:
  description: Options of each guest.
  type: list
  elements: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils import _seeded


class FilterModule:
    """The filter of the same name."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filters by name."""
        return {"seeded_guests": seeded_guests}


def seeded_guests(
    guests: t.Iterable[t.Mapping[str, t.Any]],
    known: t.Iterable[t.Mapping[str, t.Any]],
    user_data: t.Mapping[str, t.Any] | None = None,
    wait_for_ip: str = "unknown",
) -> list[dict[str, t.Any]]:
    """Options of the guests, in their order."""
    there = {one["name"]: one for one in known}
    return [_seeded.seeded(one, there.get(one["name"]), user_data=user_data, wait_for_ip=wait_for_ip) for one in guests]
