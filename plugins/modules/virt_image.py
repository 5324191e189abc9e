#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A disk image is in a pool."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_image
short_description: A disk image is in a storage pool
version_added: 0.1.0
description:
  - Brings an image into a pool that is a directory, verified before it becomes visible under its name.
  - The content is an immutable, read-only file whose name holds the checksum of its source (C(debian-12.1a2b3c4d5e6f.qcow2)); the
    image's name is a link to it. A newer version never rewrites the file under disks that stand on it.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name:
    description: Name of the image in the pool, with its ending.
    type: str
    required: true
  pool:
    description: Storage pool; a directory of the machine on which the module runs.
    type: str
    default: default
  state:
    description: V(absent) removes the image, unless a disk in an active pool of the host stands on it.
    type: str
    choices: [present, absent]
    default: present
  url:
    description:
      - Where to download it from (HTTP or HTTPS; proxies as the environment says). Files ending in C(.gz), C(.xz) or C(.bz2) are unpacked.
    type: str
  src:
    description: A file on the machine on which the module runs.
    type: path
  checksum:
    description:
      - V(sha256:<hex>), V(sha512:<hex>), or the URL of a published list (V(sha256:https://…/SHA256SUMS), V(https://…/SHA512SUMS)).
      - V(none) downloads unverified. A download without any is refused.
      - With a list, a new version is fetched when the list changes.
    type: str
  format:
    description: Format in the pool; follows from the ending of O(name) when not given. The source is converted when it differs.
    type: str
    choices: [qcow2, raw]
"""

EXAMPLES = r"""
- name: The current Debian 12 is in the pool
  corral.virt.virt_image:
    name: debian-12.qcow2
    url: https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
    checksum: https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS

- name: An image that lies on the host already
  corral.virt.virt_image:
    name: centos.qcow2
    src: /srv/incoming/centos.img
    checksum: sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0

- name: An image that no disk stands on any more is gone
  corral.virt.virt_image:
    name: debian-11.qcow2
    state: absent
"""

RETURN = r"""
name:
  description: Name of the image.
  returned: success
  type: str
path:
  description: Path under which the image is found.
  returned: success
  type: str
content:
  description: Name of the immutable file it points to.
  returned: when present
  type: str
steps:
  description: What was done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.corral.virt.plugins.module_utils._front import image
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, failures
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def _open(location: str):  # type: ignore[no-untyped-def]  # a response or a file, both readable
    if location.startswith(("http://", "https://")):
        return open_url(location, timeout=60, http_agent="corral.virt")
    return open(location, "rb")


def main() -> None:
    """Parameters in, one image in its place, result out."""
    module = AnsibleModule(argument_spec={**URI_OPTION, **image.OPTIONS}, supports_check_mode=True)
    with failures(module), opened(module.params["uri"]) as connection:
        result = image.converge(connection, module.params, Gate(check_mode=module.check_mode), _open)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
