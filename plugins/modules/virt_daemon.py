#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings, sockets and clients of the daemons that libvirt is on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_daemon
short_description: Configure the libvirt daemons of a host and restart them when needed
version_added: 0.1.0
author:
  - corral.virt contributors (@corral-virt)
description:
  - Writes settings of the libvirt daemon and of its QEMU driver, each as a block at the beginning of its file, where
    they take precedence over later settings of the same name. The rest of the file stays unchanged.
  - Enables sockets of the daemon, so that systemd starts it when a client connects.
  - Restarts a daemon that runs with former settings, has failed, or lacks a socket. The module first waits until no
    guest has a job that a restart would break, such as a migration, a backup or a disk copy. Each run checks on the
    host whether a restart is due, so if a run is killed before the restart, the next run does it.
  - Supports the monolithic daemon C(libvirtd), and modular daemons such as C(virtqemud) and C(virtproxyd).
  - Without options, the module only reads.
options:
  block:
    description:
      - Name of the block of settings, used in its marker lines. Blocks with other names stay unchanged.
    type: str
    default: virt_daemon
  daemon_settings:
    description:
      - Settings of the daemon, for C(libvirtd.conf), or for C(virtqemud.conf) and C(virtproxyd.conf).
      - An empty dictionary removes the block. By default the files stay unchanged.
    type: dict
  machine_uuid:
    description:
      - Whether to have libvirt take the UUID of the host from C(/etc/machine-id) if the firmware has none, as on many
        ARM boards. By itself, libvirt makes another one each time that it starts there, and what is recorded with the
        UUID of a host, such as the owner of a guest, then seems to be from another host.
      - Added to O(daemon_settings), which must be specified, unless C(host_uuid) or C(host_uuid_source) is set there or
        in the file. Without a valid C(/etc/machine-id), nothing is added.
    type: bool
    default: false
  qemu_settings:
    description:
      - Settings of the QEMU driver, for C(qemu.conf).
      - An empty dictionary removes the block. By default the file stays unchanged.
      - Values of settings whose name contains C(passw), such as C(vnc_password), are not shown.
    type: dict
  leases:
    description:
      - Directory for leases of disks (libvirt's lock manager C(virtlockd)), on a filesystem that all hosts mount. A
        guest starts only if no guest on any of these hosts holds a lease of one of its writable disks. A lease
        belongs to the path of a file or block device, so paths must be the same on all hosts.
      - An empty string ends that. Guests that hold leases keep them until they stop. By default nothing is changed.
      - Takes effect when a guest starts or arrives. Running guests without a lease are in RV(unleased).
    type: path
  clients:
    description:
      - Distinguished names of the certificates that the TLS port admits (C(tls_allowed_dn_list)). libvirt treats them
        as patterns.
      - By default nothing is changed.
    type: list
    elements: str
  purge_clients:
    description:
      - Whether to admit only O(clients). With V(false), clients that the block already admits stay admitted.
    type: bool
    default: true
  sockets:
    description:
      - Whether to enable and start the sockets for clients on this host.
      - With V(false), they stay unchanged.
    type: bool
    default: false
  tls_port:
    description:
      - Whether to enable and start the socket of the TLS port. Its first start stops the daemon for a moment.
      - With V(false), it stays unchanged.
    type: bool
    default: false
  modular:
    description:
      - Whether to expect modular daemons if neither they nor C(libvirtd) are enabled.
    type: bool
    default: false
  promised:
    description:
      - Paths of files that an earlier task in check mode would change. The module treats a daemon that reads one of
        them at its start as one that will be restarted.
    type: list
    elements: path
    default: []
  restart_timeout:
    description:
      - Seconds to wait for jobs of guests to end. If jobs are still running after that, the module fails, and the
        daemon keeps its former settings.
    type: int
    default: 600
extends_documentation_fragment:
  - corral.virt.connection.attributes
attributes:
  diff_mode:
    description: Shows each block of settings and each socket that changes.
  platform:
    description: Linux with systemd.
seealso:
  - ref: corral.virt.hypervisor role <ansible_collections.corral.virt.hypervisor_role>
    description: Installs libvirt.
  - ref: corral.virt.pki role <ansible_collections.corral.virt.pki_role>
    description: Issues certificates, and sets which clients the TLS port admits.
"""

EXAMPLES = r"""
- name: Detect a dead peer within half a minute
  corral.virt.virt_daemon:
    daemon_settings: {keepalive_interval: 5, keepalive_count: 5}

- name: Log the output of QEMU, and wait up to an hour for jobs before a restart
  corral.virt.virt_daemon:
    block: logging
    qemu_settings: {stdio_handler: logd}
    restart_timeout: 3600

- name: Start no guest whose disk is in use on another host
  corral.virt.virt_daemon:
    block: leases
    leases: /srv/shared/.corral/leases

- name: Listen for TLS, and admit an additional client
  corral.virt.virt_daemon:
    clients: ["O=corral.virt,OU=libvirt,CN=ci"]
    purge_clients: false
    tls_port: true
"""

RETURN = r"""
installed:
  description: Whether the host has a libvirt daemon that systemd starts.
  returned: success
  type: bool
  sample: true
server:
  description: The daemon that serves TLS.
  returned: success
  type: str
  sample: libvirtd
hook:
  description: Whether the running daemon runs the hook of role P(corral.virt.hypervisor#role). It runs a hook that was
    there when it started.
  returned: success
  type: bool
  sample: true
security_drivers:
  description: Security drivers of the running daemon that confine guests. V(null) if the daemon was not queried.
  returned: success
  type: list
  elements: str
  sample: [apparmor]
restart:
  description: Unit that is restarted, and the reason. V(null) if nothing is restarted.
  returned: always
  type: str
  sample: libvirtd.service, which runs with the former content of /etc/libvirt/libvirtd.conf
unleased:
  description: Running guests that hold no lease of one of their writable disks. They get one at their next start.
  returned: with O(leases)
  type: list
  elements: str
  sample: [web1]
jobs:
  description: Jobs of guests that the restart waits for.
  returned: always
  type: list
  elements: str
  sample: ["web1: migration to another host"]
steps:
  description: Steps that were done, or in check mode would be done.
  returned: success
  type: list
  elements: str
  sample:
    - write /etc/libvirt/libvirtd.conf (settings of hypervisor)
    - restart libvirtd.service, which runs with the former content of /etc/libvirt/libvirtd.conf
"""

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host.plan_daemon import passwords
from ansible_collections.corral.virt.plugins.module_utils._host.run_daemon import OPTIONS, converge


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
