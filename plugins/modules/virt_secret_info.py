#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read secrets of libvirt, without their values."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_secret_info
short_description: Read which libvirt secrets exist
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Returns which secrets libvirt keeps on a host and what they are used for, never their values.
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  name:
    description: Return only the secrets used for this. The list is empty if the host has none.
    type: str
  usage:
    description: Return only secrets for this kind of use, such as V(volume) or V(ceph).
    type: str
  arguments:
    description:
      - Also return the arguments of M(corral.virt.virt_secret) that describe each secret, except its value.
      - Applying these arguments changes nothing.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_secret
"""

EXAMPLES = r"""
- name: Read which secrets the host has
  corral.virt.virt_secret_info:
  register: found

- name: Show for which volumes it has a passphrase
  ansible.builtin.debug:
    msg: "{{ found.secrets | selectattr('usage', 'eq', 'volume') | map(attribute='name') }}"
"""

RETURN = r"""
secrets:
  description: The secrets, by usage and name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: "What it is used for; the UUID, if that is unknown.", type: str, returned: always}
    usage: {description: "Kind of use: ceph, iscsi, tls, volume, vtpm or none.", type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    description: {description: Text for people., type: str, returned: if it has one}
    ephemeral: {description: Whether it is kept in memory only., type: bool, returned: always}
    private: {description: Whether nobody can read its value., type: bool, returned: always}
    arguments:
      description: Arguments of M(corral.virt.virt_secret) that describe the secret.
      type: dict
      returned: with O(arguments)
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_info
from ansible_collections.corral.virt.plugins.module_utils._secret.fields_secret import SECRET_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._secret.libvirt_secret import SECRET_TYPE, secrets

OPTIONS = {**URI_OPTION, **run_noun_info.options(SECRET_SCHEMA)}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    rows = []
    with failures(module):
        with opened(module.params["uri"], readonly=True) as connection:
            rows = run_noun_info.rows(SECRET_SCHEMA, SECRET_TYPE, secrets(connection), module.params)
    module.exit_json(changed=False, secrets=rows)


if __name__ == "__main__":
    main()
