#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A secret of libvirt."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_secret
short_description: Manage libvirt secrets
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Creates, changes and removes the secrets that libvirt keeps for guests, pools and volumes, such as the passphrase of
    an encrypted disk or the key of a Ceph user.
  - libvirt gives a secret no name. It is known by what it is used for (O(usage) and O(name)), and by its UUID.
  - A value is never shown, in no result, difference, log or process list. It is compared on the host.
  - libvirt keeps values of secrets that are not ephemeral in C(/etc/libvirt/secrets), readable by root only.
options:
  name:
    description:
      - What the secret is used for. For O(usage=volume) the path of the volume; for V(ceph) and V(tls) a name that
        definitions refer to, such as C(client.admin secret); for V(iscsi) the name of the target; for V(vtpm) a name.
      - For O(usage=none) the UUID of the secret.
    type: str
    required: true
  usage:
    description:
      - The kind of use. V(none) is for a secret that is known by its UUID only.
    type: str
    required: true
    choices: [ceph, iscsi, none, tls, volume, vtpm]
  uuid:
    description:
      - UUID for a new secret. By default it is derived from O(usage) and O(name), and so the same on every host,
        because definitions of guests name their secrets by UUID.
      - An existing secret keeps its UUID; another one is refused.
    type: str
  state:
    description:
      - V(present) - defined, with its value if O(value) is given.
      - V(absent) - unknown to libvirt. Refused while a guest or a pool of the host names it, unless O(force) is set.
    type: str
    choices: [present, absent]
    default: present
  value:
    description:
      - The value. It must not be empty. Keep it in a vault.
      - Omit it to leave the value as it is.
    type: str
  value_encoding:
    description: Whether O(value) is the value itself, or the value in Base64, for a value that is not text.
    type: str
    choices: [text, base64]
    default: text
  update_value:
    description:
      - V(on_change) - set the value if the secret has none, or another one. libvirt does not tell the value of a
        private secret; it is not set again, and a note says so.
      - V(always) - the same, but a private secret is set in each run, and reported as changed.
      - V(on_create) - set the value of a new secret only.
    type: str
    choices: [on_change, always, on_create]
    default: on_change
  description:
    description: A text for people. An empty text removes it.
    type: str
  ephemeral:
    description: Keep the secret in memory only, until libvirt's daemon ends. V(false) for a new secret by default.
    type: bool
  private:
    description:
      - Never let anybody read the value through libvirt. V(false) for a new secret by default.
      - A private secret stays private.
    type: bool
  force:
    description: Remove a secret although guests or pools name it.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
  - corral.virt.connection.seen
seealso:
  - module: corral.virt.virt_secret_info
  - module: corral.virt.virt_volume
"""

EXAMPLES = r"""
- name: Keep the passphrase of an encrypted volume
  corral.virt.virt_secret:
    name: /var/lib/libvirt/images/data.luks
    usage: volume
    description: Disk of the accounts
    value: "{{ vault_accounts_passphrase }}"
  register: passphrase

- name: Keep the key of a Ceph user, which nobody reads through libvirt
  corral.virt.virt_secret:
    name: client.libvirt secret
    usage: ceph
    private: true
    value: "{{ vault_ceph_key }}"
    value_encoding: base64
"""

RETURN = r"""
secret:
  description: The secret as it is, or in check mode would be, without its value. Null if it is absent.
  returned: success
  type: dict
  contains:
    name: {description: What it is used for., type: str, returned: always}
    usage: {description: Kind of use., type: str, returned: always}
    uuid: {description: UUID., type: str, returned: always}
    description: {description: Text for people., type: str, returned: if it has one}
    ephemeral: {description: Whether it is kept in memory only., type: bool, returned: always}
    private: {description: Whether nobody can read its value., type: bool, returned: always}
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample: [define secret /srv/a.luks of usage volume, set the value of secret /srv/a.luks of usage volume]
pending: {description: Always empty., returned: success, type: list, elements: str}
seen:
  description: Digest of what the steps were planned from, and of the steps; for O(seen) of a later run.
  returned: success
  type: str
notes: {description: Additional notes; also shown as warnings., returned: success, type: list, elements: str}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun_module
from ansible_collections.corral.virt.plugins.module_utils._noun.run_noun_options import argument_spec
from ansible_collections.corral.virt.plugins.module_utils._secret.libvirt_secret import API
from ansible_collections.corral.virt.plugins.module_utils._secret.plan_secret import SECRET

OPTIONS = {**URI_OPTION, **argument_spec(SECRET.schema)}


def main() -> None:
    """Entry point."""
    run_noun_module.run(SECRET, API, OPTIONS)


if __name__ == "__main__":
    main()
