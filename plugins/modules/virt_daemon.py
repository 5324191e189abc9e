#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings, sockets and clients of the daemons that libvirt is on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_daemon
short_description: The libvirt daemon of a host has these settings, and runs with them
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Writes settings of the libvirt daemon and of its QEMU driver, each as a block at the beginning of its file, where
    the first of two equal settings wins. The rest of the file is left alone.
  - Enables sockets of the daemon, so that systemd starts it when somebody connects.
  - Restarts a daemon that runs with former settings, has failed, or lacks a socket. It waits until no guest has a job
    that a restart would break, such as a migration, a backup or a copy of a disk. That a restart is due is found on the
    host each time, so a run that was killed before it is made up for by the next one.
  - Knows C(libvirtd), which serves all of libvirt, and the daemons C(virtqemud), C(virtproxyd) and others, of which
    each serves a part.
  - Without options, only reads.
options:
  block:
    description:
      - Name of the block of settings, in the lines around it. Blocks of other names are left alone.
    type: str
    default: virt_daemon
  daemon_settings:
    description:
      - Settings of the daemon, for C(libvirtd.conf), or for C(virtqemud.conf) and C(virtproxyd.conf).
      - An empty dictionary removes the block. When not given, the files are left alone.
    type: dict
  qemu_settings:
    description:
      - Settings of the QEMU driver, for C(qemu.conf).
      - An empty dictionary removes the block. When not given, the file is left alone.
      - Values of settings whose name says password, such as C(vnc_password), are not shown.
    type: dict
  clients:
    description:
      - Distinguished names of the certificates that the TLS port admits (C(tls_allowed_dn_list)). libvirt takes them as
        patterns.
      - When not given, nothing is changed.
    type: list
    elements: str
  purge_clients:
    description:
      - Whether only O(clients) are admitted. With V(false), those that the block admits already stay.
    type: bool
    default: true
  sockets:
    description:
      - Whether the sockets for clients of this host are to be enabled and active.
      - With V(false), they are left as they are.
    type: bool
    default: false
  tls_port:
    description:
      - Whether the socket of the TLS port is to be enabled and active. Its first start stops the daemon for a moment.
      - With V(false), it is left as it is.
    type: bool
    default: false
  modular:
    description:
      - Whether daemons of which each serves a part are expected where neither they nor C(libvirtd) are enabled.
    type: bool
    default: false
  promised:
    description:
      - Paths of files that an earlier task of a check run has promised. A daemon that reads one of them when it starts
        is taken for one that will be restarted.
    type: list
    elements: path
    default: []
  restart_timeout:
    description:
      - Seconds to wait for jobs of guests to end. When they go on after that, the module fails, and the daemon runs
        with former settings.
    type: int
    default: 600
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows each block of settings that changes, and each socket.
  platform:
    description: Linux with systemd.
seealso:
  - ref: corral.virt.hypervisor role <ansible_collections.corral.virt.hypervisor_role>
    description: Installs libvirt.
  - ref: corral.virt.pki role <ansible_collections.corral.virt.pki_role>
    description: Certificates, and whom the TLS port admits.
"""

EXAMPLES = r"""
- name: Notice a dead peer within half a minute
  corral.virt.virt_daemon:
    daemon_settings: {keepalive_interval: 5, keepalive_count: 5}

- name: Keep what QEMU prints, and let no restart break a job
  corral.virt.virt_daemon:
    block: logging
    qemu_settings: {stdio_handler: logd}
    restart_timeout: 3600

- name: Listen for TLS, and admit one more client
  corral.virt.virt_daemon:
    clients: ["O=corral.virt,OU=libvirt,CN=ci"]
    purge_clients: false
    tls_port: true
"""

RETURN = r"""
installed:
  description: Whether the host has a libvirt that systemd starts.
  returned: success
  type: bool
  sample: true
server:
  description: The daemon that serves TLS.
  returned: success
  type: str
  sample: libvirtd
security_drivers:
  description: Drivers of the running daemon that confine guests. V(null) when it was not asked.
  returned: success
  type: list
  elements: str
  sample: [apparmor]
restart:
  description: What is restarted and why. V(null) when nothing is.
  returned: always
  type: str
  sample: libvirtd.service, which runs with what /etc/libvirt/libvirtd.conf held before
jobs:
  description: Jobs of guests that the restart waits for.
  returned: always
  type: list
  elements: str
  sample: ["web1: migration to another host"]
steps:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample:
    - write /etc/libvirt/libvirtd.conf (settings of hypervisor)
    - restart libvirtd.service, which runs with what /etc/libvirt/libvirtd.conf held before
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._front.daemon import OPTIONS, converge
from ansible_collections.corral.virt.plugins.module_utils._front.module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._plan.daemon import passwords
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


class DaemonModule(Module):
    """Settings may be passwords, such as `vnc_password`."""

    def confidential(self) -> t.Iterator[str]:
        """Those, and what every module keeps to itself."""
        yield from super().confidential()
        yield from passwords(self.params)


def main() -> None:
    """Entry point."""
    module = DaemonModule(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        result = converge(module.params, Gate(check_mode=module.check_mode))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
