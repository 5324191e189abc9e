#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take files out of a backup."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_backup_files
short_description: Take files out of a backup
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Writes files and directories that are inside the disks of a point that M(corral.virt.virt_backup) has made to a new
    directory of this host, or lists what a directory inside has. The guest is not needed, and the backup is only read.
  - libguestfs reads the disks, in an appliance with a kernel of its own, so that the host's kernel never sees the
    filesystems of the guest. It finds operating systems (Linux, Windows and others) with all that they mount, also on
    LVM.
  - Before that, the SHA-256 of each file of the backup that is needed is checked.
  - Each path keeps its place. C(/etc/nginx) is C(/etc/nginx) below O(dest). Hard links and holes are kept.
  - Nothing is written outside of O(dest), whatever names and links the guest has. Left out are links that are absolute
    or lead out of O(dest), devices, pipes, sockets, and names that lead out. RV(left_out) names them. Setuid, setgid
    and sticky bits, ACLs and extended attributes are never kept.
  - O(dest) gets its name when all files are on the disk. Only root can enter it.
  - Encrypted filesystems cannot be read.
  - This module must run on a host with the repository, or a copy of it. libvirt is not needed there.
options:
  repository:
    description: Directory of the repository.
    type: path
    required: true
  guest:
    description: Name or UUID of the guest in the repository. A name that several guests had is refused.
    type: str
    required: true
  point:
    description: ID of the point. By default the newest one.
    type: str
  at:
    description: A time such as V(2026-11-25T03:00:00Z). The newest point that is not after it is read. A time without
      an offset is UTC. Only one of O(point) and O(at) can be used.
    type: str
  paths:
    description: Absolute paths of files and directories inside the guest. Symbolic links on the way are followed inside
      the guest. Requires O(dest).
    type: list
    elements: str
  dest:
    description: Directory of this host for the files. It must not exist, or be empty. Its parent must exist.
    type: path
  list:
    description: Absolute path of a directory inside the guest, whose names are returned in RV(entries). Use it instead
      of O(paths).
    type: str
  disk:
    description: Target of the only disk to read, such as V(vdb). By default all disks are read, which a volume group
      on several of them needs.
    type: str
  filesystem:
    description: Device of the filesystem or of the operating system's root, as an error names it, such as
      V(/dev/sda1). Required if the disks have several systems, or several filesystems and no system. The first disk
      that is read is V(/dev/sda).
    type: str
  keep_owners:
    description: Whether files get the numeric owner and group, and the mode, that they have in the guest. By default
      they belong to root, who alone can read them.
    type: bool
    default: false
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Files are new, so there is nothing to compare.
    support: N/A
  platform:
    description: Linux. The module runs as root.
requirements:
  - libguestfs and its Python binding (C(python3-guestfs) on Debian and Ubuntu, C(python3-libguestfs) on EL and Fedora)
    on the machine on which the module runs
  - a Linux kernel in C(/boot) there, from which libguestfs builds its appliance
seealso:
  - module: corral.virt.virt_backup_info
  - module: corral.virt.virt_restore
"""

EXAMPLES = r"""
- name: See what is there
  corral.virt.virt_backup_files:
    repository: /srv/backup
    guest: web1
    list: /etc

- name: Take a directory out of the backup of the night
  corral.virt.virt_backup_files:
    repository: /srv/backup
    guest: web1
    at: "2026-11-25T03:00:00Z"
    paths: [/etc/nginx, /etc/hosts]
    dest: /root/restored

- name: Take files of a disk without an operating system
  corral.virt.virt_backup_files:
    repository: /srv/backup
    guest: db1
    disk: vdb
    paths: [/]
    dest: /srv/db1-then
    keep_owners: true
"""

RETURN = r"""
name: {description: Name of the guest in the point., type: str, returned: success}
uuid: {description: Its UUID., type: str, returned: success}
point: {description: ID of the point., type: str, returned: success}
entries:
  description: What the directory of O(list) has, by name; at most 10000 names. Empty without O(list).
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: The name. Control characters, and bytes that are not UTF-8, are shown as escapes.
      type: str
      returned: always
    kind:
      description: V(file), V(directory), V(link), V(other); V(unknown) if the name is not UTF-8.
      type: str
      returned: always
    size_bytes: {description: Size of a file., type: int, returned: always}
    mode: {description: Mode in octal., type: str, returned: always}
    modified: {description: "When it was changed last, in UTC.", type: str, returned: always}
files: {description: Number of files that were written., type: int, returned: not in check mode and not with O(list)}
size_bytes: {description: What they take together., type: int, returned: not in check mode and not with O(list)}
left_out:
  description: What was left out, each with the reason; at most 1000.
  type: list
  elements: str
  returned: not in check mode and not with O(list)
steps:
  description: Steps that were done, or in check mode would be.
  type: list
  elements: str
  returned: always
notes: {description: Additional notes; also shown as warnings., type: list, elements: str, returned: success}
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._backup import run_backup_files
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach

OPTIONS: dict[str, t.Any] = {
    "repository": {"type": "path", "required": True},
    "guest": {"type": "str", "required": True},
    "point": {"type": "str"},
    "at": {"type": "str"},
    "paths": {"type": "list", "elements": "str"},
    "dest": {"type": "path"},
    "list": {"type": "str"},
    "disk": {"type": "str"},
    "filesystem": {"type": "str"},
    "keep_owners": {"type": "bool", "default": False},
}


def main() -> None:
    """Entry point."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    result: dict[str, t.Any] = {"notes": []}
    with failures(module):
        detach("virt_backup_files")
        result = run_backup_files.read(module.params, Gate(check_mode=module.check_mode))
    module.end(result)


if __name__ == "__main__":
    main()
