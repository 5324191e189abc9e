# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the contents of images that other hosts use."""

from __future__ import annotations

DOCUMENTATION = r"""
name: used_elsewhere
short_description: List the contents of images that other hosts use
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the contents of images that disks or guests of other hosts use, with a user of each, as
    O(corral.virt.virt_image#module:used_elsewhere) takes them.
positional: _input, host, users
options:
  _input:
    description: What M(corral.virt.virt_image_info) returned, by host.
    type: dict
    required: true
  host:
    description: The host whose own users do not count. Without it, the users are returned for each host, by host.
    type: str
  users:
    description: What M(corral.virt.virt_volume_info) returned with O(corral.virt.virt_volume_info#module:users_of), by
      host, such as for hosts that have the files elsewhere.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Remove earlier contents that no host uses from a pool that the hosts share
  corral.virt.virt_image:
    name: debian-13.qcow2
    prune: true
    used_elsewhere: "{{ {'hyper2': hostvars.hyper2.found} | corral.virt.used_elsewhere(inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: A user of each content; without O(host), by host.
  type: dict
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided
from ansible_collections.corral.virt.plugins.plugin_utils._images import image_users


def used_elsewhere(
    results: t.Mapping[str, t.Any], host: str | None = None, users: t.Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """The users of contents on other hosts."""
    known = users or {}
    return image_users.elsewhere_of_all(results, known) if host is None else image_users.elsewhere(results, host, known)


FilterModule = provided(used_elsewhere=used_elsewhere)
