# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter: the options of a guest, from the arguments of a playbook."""

from __future__ import annotations

DOCUMENTATION = r"""
name: guest_options
short_description: Select the options of a guest from the arguments of a playbook
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns the options of M(corral.virt.virt_domain) that are among the arguments of a playbook, those in C(options)
    and C(domain) included. C(domain) takes precedence. For the playbook V(migrate), returns those of
    M(corral.virt.virt_migrate).
  - Converts the options that M(corral.virt.virt_arguments) withholds, because they may hold secrets, in the same way.
    Fails for a value that cannot be converted.
positional: _input, action, withheld
options:
  _input:
    description: What M(corral.virt.virt_arguments) returned.
    type: dict
    required: true
  action:
    description: The playbook.
    type: str
    required: true
  withheld:
    description: The values of the options that M(corral.virt.virt_arguments) withholds, in the same order.
    type: list
    elements: raw
    required: true
"""

EXAMPLES = r"""
- name: Check the arguments
  corral.virt.virt_arguments:
    action: create
  register: asked

- name: Count the options
  ansible.builtin.debug:
    msg: "{{ asked | corral.virt.guest_options('create', query('ansible.builtin.vars', *asked.withheld)) | length }}"
"""

RETURN = r"""
_value:
  description: Options of one guest, without its name.
  type: dict
"""

import typing as t

from ansible.utils.vars import merge_hash

from ansible_collections.corral.virt.plugins.plugin_utils._commands import action_arguments, actions
from ansible_collections.corral.virt.plugins.plugin_utils._commands.provided_filters import provided


def guest_options(asked: t.Mapping[str, t.Any], action: str, withheld: t.Sequence[t.Any]) -> dict[str, t.Any]:
    """Options of one guest; `asked` has the checked arguments, and the names of the `withheld` values."""
    does, names = actions.action(action), asked["withheld"]
    converted = action_arguments.converted(does, dict(zip(names, withheld, strict=True)))
    values = {**asked["arguments"], **{name: converted[name] for name in names}}
    values = does.entry.folded(values) if does.entry else values
    module = does.options_of.get("module", "virt_domain")
    options = {name: value for name, value in values.items() if name in actions.options(module)}
    for inside in ("options", "domain"):
        options = merge_hash(options, values.get(inside) or {}, recursive=module == "virt_domain")
    return options


FilterModule = provided(guest_options=guest_options)
