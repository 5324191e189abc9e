# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that hosts do not have in common."""

from __future__ import annotations

DOCUMENTATION = r"""
name: differing
short_description: Find variables that are not the same for all hosts
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - A task with C(run_once) reads the variables of one host. This filter finds those that other hosts have differently,
    which it would miss.
  - Variables are compared as they are written, so a template is the same for all hosts.
positional: _input
options:
  _input:
    description: Variables of all hosts, V(hostvars).
    type: dict
    required: true
  hosts:
    description: Names of the hosts.
    type: list
    elements: str
    required: true
  names:
    description: Names of the variables.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Check that all hypervisors have the same guests
  ansible.builtin.assert:
    that: hostvars | corral.virt.differing(groups.hyper, ['virt_guests']) | length == 0
  run_once: true
"""

RETURN = r"""
_value:
  description: Each variable that differs, with two hosts that have it differently.
  type: list
  elements: str
  sample: [virt_guests (hyper1, hyper3)]
"""

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils import _shares


class FilterModule:
    """The filter of the same name."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filters by name."""
        return {"differing": differing}


def differing(hostvars: t.Any, hosts: t.Iterable[str], names: t.Iterable[str]) -> list[str]:
    """Those of the variables, each with two of these hosts."""
    return _shares.differing({host: hostvars.raw_get(host) for host in hosts}, names)
