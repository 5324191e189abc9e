# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the catalogue images that new guests need."""

from __future__ import annotations

DOCUMENTATION = r"""
name: images_of_guests
short_description: List the catalogue images that new guests need
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the images of the catalogue that new guests of a hypervisor are created from, as M(corral.virt.virt_image)
    takes them.
positional: _input, known
options:
  _input:
    description: Guests of one hypervisor, with the options of M(corral.virt.virt_domain).
    type: list
    elements: dict
    required: true
  known:
    description: Guests that the hypervisor has, as M(corral.virt.virt_host_info) reports them.
    type: list
    elements: dict
    required: true
  disk_profiles:
    description: Disks by the name of a guest's C(disk_profile), as in C(virt_disk_profiles).
    type: dict
  catalogue:
    description: Images that the site adds to the catalogue, by name, as in C(virt_images_catalogue).
    type: dict
"""

EXAMPLES = r"""
- name: Show the images of the guests
  ansible.builtin.debug:
    msg: "{{ mine | corral.virt.images_of_guests(virt_host.host.guests) }}"
  vars:
    mine: [{name: web1, image: debian-13}]
"""

RETURN = r"""
_value:
  description: Images, each with C(name), C(pool) and C(catalogue).
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._guests import preparation
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


def images_of_guests(
    guests: t.Iterable[t.Mapping[str, t.Any]],
    known: t.Iterable[t.Mapping[str, t.Any]],
    catalogue: t.Mapping[str, t.Any] | None = None,
    disk_profiles: t.Mapping[str, t.Any] | None = None,
) -> list[dict[str, t.Any]]:
    """Images that new guests need; raises AnsibleFilterError for invalid guests or catalogues."""
    try:
        images = Catalogue.of({"virt_images_catalogue": catalogue})
        whole = [
            preparation.with_profiles({**one, "nic_profile": None}, {"virt_disk_profiles": disk_profiles})
            for one in guests
        ]
        return image_names.needed(whole, {one["name"] for one in known}, images)
    except ValueError as error:
        raise AnsibleFilterError(printable(str(error))) from error


FilterModule = provided(images_of_guests=images_of_guests)
