#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the images of a pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_image_info
short_description: Read the images in a storage pool
version_added: 0.1.0
description:
  - Returns the images that M(corral.virt.virt_image) imported into a pool, their contents, and what uses each content.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  pool:
    description: Storage pool; a directory on the machine on which the module runs.
    type: str
    default: default
  missing_ok:
    description: A pool that the host does not have is no failure; it has no images then.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_image
"""

EXAMPLES = r"""
- name: Read the images
  corral.virt.virt_image_info:
  register: found

- name: Show those that nobody uses
  ansible.builtin.debug:
    msg: "{{ found.images | rejectattr('used') | map(attribute='name') }}"
"""

RETURN = r"""
missing:
  description: Whether the host does not have the pool.
  returned: with O(missing_ok)
  type: bool
images:
  description: The images, by name.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Name in the pool., type: str, returned: always}
    pool: {description: The pool., type: str, returned: always}
    path: {description: Path of the name., type: str, returned: always}
    shared: {description: 'Kind of the filesystem if other hosts may mount it, such as nfs4; null if it is local.',
      type: str, returned: always}
    content: {description: File that the name points to., type: str, returned: always}
    source: {description: 'Where it was fetched from, without user, password and query.', type: str, returned: always}
    checksum: {description: Digest of the source., type: str, returned: always}
    fetched: {description: 'When, in UTC.', type: str, returned: always}
    verified: {description: Whether it was verified by a checksum that nobody in transit can have written., type: bool,
      returned: always}
    used: {description: Whether a disk or a guest is based on any of its contents., type: bool, returned: always}
    contents:
      description: All contents, the current one and earlier ones.
      type: list
      elements: dict
      returned: always
      contains:
        content: {description: File name., type: str, returned: always}
        path: {description: Path of the file., type: str, returned: always}
        bytes: {description: Size of the file., type: int, returned: always}
        used_by: {description: 'A disk or guest that uses it; null if there is none.', type: str, returned: always}
"""

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._image import run_image_list
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

OPTIONS = {**URI_OPTION, "pool": {"type": "str", "default": POOL}, "missing_ok": {"type": "bool", "default": False}}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module), opened(module.params["uri"]) as connection:
        found = run_image_list.described(connection, module.params["pool"], missing_ok=module.params["missing_ok"])
    answer: dict[str, object] = {"missing": found is None} if module.params["missing_ok"] else {}
    module.exit_json(changed=False, images=found or [], **answer)


if __name__ == "__main__":
    main()
