#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read network filters of libvirt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_nwfilter_info
short_description: Read libvirt network filters
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the network filters of a host, with those that come with libvirt.
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only the filter with this name. The list is empty if the host has none.
    type: str
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_nwfilter) that describe each filter.
      - Applying these arguments changes nothing.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_nwfilter
"""

EXAMPLES = r"""
- name: Read which network filters the host has
  corral.virt.virt_nwfilter_info:
  register: found

- name: Show which of them have rules of their own
  ansible.builtin.debug:
    msg: "{{ found.nwfilters | selectattr('rules', 'defined') | map(attribute='name') }}"
"""

RETURN = r"""
nwfilters:
  description: The filters, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    chain: {description: Chain of its rules., type: str, returned: always}
    priority: {description: Priority of its chain., type: int, returned: if it has one}
    filterrefs: {description: Filters that it includes., type: list, elements: str, returned: if it has any}
    rules:
      description: Its rules, as the option of M(corral.virt.virt_nwfilter); left out if it cannot express one.
      type: list
      elements: dict
      returned: if it has any
    arguments:
      description: Arguments of M(corral.virt.virt_nwfilter) that describe the filter.
      type: dict
      returned: with O(arguments)
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_info
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.fields_nwfilter import NWFILTER_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.libvirt_nwfilter import NWFILTER_TYPE, nwfilters

OPTIONS = {**URI_OPTION, **run_noun_info.options(NWFILTER_SCHEMA)}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    rows = []
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            rows = run_noun_info.rows(NWFILTER_SCHEMA, NWFILTER_TYPE, nwfilters(connection), module.params)
    module.exit_json(changed=False, nwfilters=rows)


if __name__ == "__main__":
    main()
