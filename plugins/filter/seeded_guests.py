# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: guests with the options that the role guests adds."""

from __future__ import annotations

DOCUMENTATION = r"""
name: seeded_guests
short_description: Add seeds, tags and waits to guests
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the options of guests as M(corral.virt.virt_domains) takes them.
  - A new guest that is created from an image or from another guest gets a seed, unless it has its own C(cloud_init). A
    running guest with a seed also gets C(wait_for_ip). A new guest whose image is called by its name in the catalogue
    gets C(osinfo), C(login_user), C(vcpus), C(memory) and C(firmware) for that image, unless it sets them. C(apart),
    C(together), C(host_groups) and C(requires) become tags, from which later runs read them.
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
  names:
    description: Names that the guests must have, in this order. Otherwise the filter fails.
    type: list
    elements: str
  user_data:
    description: User data of the seeds. Without it, guests get no seed.
    type: dict
  wait_for_ip:
    description: O(corral.virt.virt_domain#module:wait_for_ip) of guests that are waited for.
    type: str
    default: unknown
  user:
    description: User that the user data creates, for whom a new guest's C(login_user) is set. Without it, that of the
      image in the catalogue.
    type: str
    default: ""
  arch:
    description: Architecture of the hypervisor.
    type: str
    default: ""
  catalogue:
    description: Images that the site adds to the catalogue, by name, as in C(virt_images_catalogue).
    type: dict
"""

EXAMPLES = r"""
- name: Create the guests
  corral.virt.virt_domains:
    domains: "{{ mine | corral.virt.seeded_guests(virt_host.host.guests, names=places, user_data=seed) }}"
  vars:
    seed: {ssh_authorized_keys: ["ssh-ed25519 AAAA me"]}
    places: "{{ placed.positions[inventory_hostname] | default({}) }}"
    mine: "{{ places.values() | map('extract', virt_guests) }}"
"""

RETURN = r"""
_value:
  description: Options of each guest.
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._guests import role_options
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


def seeded_guests(
    guests: t.Iterable[t.Mapping[str, t.Any]],
    known: t.Iterable[t.Mapping[str, t.Any]],
    names: t.Iterable[str] | None = None,
    user_data: t.Mapping[str, t.Any] | None = None,
    wait_for_ip: str = "unknown",
    user: str = "",
    arch: str = "",
    catalogue: t.Mapping[str, t.Any] | None = None,
) -> list[dict[str, t.Any]]:
    """Options of the guests, in order; raises AnsibleFilterError if their names differ from `names`."""
    guests = list(guests)
    if names is not None and (expected := list(names)) != (found := [str(one["name"]) for one in guests]):
        raise AnsibleFilterError(
            printable(
                f"cannot create {', '.join(expected)}: this hypervisor reads {', '.join(found)} instead; virt_guests "
                "must have the same guests in the same order for all hypervisors"
            )
        )
    there = {one["name"]: one for one in known}
    try:
        images = Catalogue.of({"virt_images_catalogue": catalogue})
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error
    site = role_options.RoleSettings(user_data, wait_for_ip, user, arch, images)
    return [role_options.seeded(one, there.get(one["name"]), site) for one in guests]


FilterModule = provided(seeded_guests=seeded_guests)
