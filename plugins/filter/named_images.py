# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: images by their names in the catalogue."""

from __future__ import annotations

DOCUMENTATION = r"""
name: named_images
short_description: Name images by the catalogue
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns images as M(corral.virt.virt_image) takes them. An image that is only a name, or has no source, and is in
    the catalogue gets C(catalogue), and the name of its file.
positional: _input
options:
  _input:
    description: Images as in C(virt_images).
    type: list
    elements: raw
    required: true
  catalogue:
    description: Images that the site adds to the catalogue, by name, as in C(virt_images_catalogue).
    type: dict
  names:
    description:
      - Return only these images, called by the names of their files or in the catalogue; an item of the list that has
        that name, or else the image of the catalogue.
    type: list
    elements: str
  strict:
    description: Fail for a name of O(names) that is neither in the list nor in the catalogue. V(false) leaves it out.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Show the files of images
  ansible.builtin.debug:
    msg: "{{ ['debian-13', {'name': 'own.qcow2', 'src': 'own.qcow2'}] | corral.virt.named_images }}"
"""

RETURN = r"""
_value:
  description: Images, each with C(name), and C(catalogue) or its source.
  type: list
  elements: dict
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_names
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable


def named_images(
    images: t.Iterable[t.Any],
    catalogue: t.Mapping[str, t.Any] | None = None,
    names: t.Iterable[str] | None = None,
    strict: bool = True,
) -> list[dict[str, t.Any]]:
    """Images as `virt_image` takes them; raises AnsibleFilterError for an unknown name."""
    try:
        known = Catalogue.of({"virt_images_catalogue": catalogue})
        found = image_names.listed(images, known)
        return found if names is None else image_names.chosen(names, found, known, strict=strict)
    except ValueError as error:
        raise AnsibleFilterError(printable(str(error))) from error


FilterModule = provided(named_images=named_images)
