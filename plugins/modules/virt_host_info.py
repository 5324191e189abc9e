#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a hypervisor."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_host_info
short_description: Read a hypervisor
version_added: 0.1.0
description:
  - Returns processors, memory (total, and free after its guests), capabilities, pools, networks, bridges, versions and
    a short list of guests. M(corral.virt.virt_place) uses this data.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.info
options:
  baseline:
    description:
      - C(domain_capabilities.host_model_xml) of other hypervisors, as returned by this module. RV(host.cpu_baseline) is
        then a CPU that these hypervisors and this one can all provide, so that guests with this CPU can migrate between
        them.
    type: list
    elements: str
    default: []
  cpu_seconds:
    description:
      - Seconds for which to measure how many processors each running guest keeps busy. V(0) measures nothing.
      - O(corral.virt.virt_balance#module:by) needs it for V(cpu_use).
    type: float
    default: 0
  validate:
    description:
      - Whether to run C(virt-host-validate qemu) on the host, and return its checks. They tell what the firmware, the
        kernel or its modules lack. The result V(fail) does not make the task fail.
    type: bool
    default: false
seealso:
  - module: corral.virt.virt_domain_info
  - module: corral.virt.virt_place
"""

EXAMPLES = r"""
- name: Read the hypervisor
  corral.virt.virt_host_info:
  register: virt_host

- name: Find a CPU that guests can have on all hypervisors
  corral.virt.virt_host_info:
    baseline: >-
      {{ groups.hyper | map('extract', hostvars, ['virt_host', 'host', 'domain_capabilities', 'host_model_xml'])
         | list }}
  run_once: true
  register: common

- name: Check the host's firmware and kernel
  corral.virt.virt_host_info:
    validate: true
  register: checked

- name: Require that each check passes
  ansible.builtin.assert:
    that: checked.host.validation | selectattr('result', 'eq', 'fail') | length == 0

- name: Use it for a guest
  corral.virt.virt_domain:
    name: web1
    cpu: "{{ common.host.cpu_baseline }}"
"""

RETURN = r"""
host:
  description: The hypervisor.
  returned: success
  type: dict
  contains:
    hostname: {description: Host name of the hypervisor., type: str, returned: always}
    uuid: {description: UUID by which libvirt distinguishes hosts., type: str, returned: always}
    uri: {description: URI of the connection., type: str, returned: always}
    cpus: {description: Logical processors., type: int, returned: always}
    sockets: {description: Number of CPU sockets., type: int, returned: always}
    cores: {description: Cores per socket., type: int, returned: always}
    threads: {description: Threads per core., type: int, returned: always}
    cpu_mhz:
      description: Clock rate of the processors in MHz; 0 if libvirt does not know it.
      type: int
      returned: always
    cpu_model: {description: CPU model., type: str, returned: always}
    cpu_baseline: {description: "Common CPU, as option O(corral.virt.virt_domain#module:cpu).", type: dict,
      returned: with O(baseline)}
    arch: {description: Architecture., type: str, returned: always}
    memory_mib: {description: Memory., type: int, returned: always}
    memory_reserved_mib: {description: Memory reserved for the host itself., type: int, returned: always}
    memory_used_mib: {description: Sum of the memory that running guests may use., type: int, returned: always}
    memory_free_mib: {description: Memory that is left for guests., type: int, returned: always}
    vcpus_used: {description: Sum of the vCPUs of running guests., type: int, returned: always}
    security_drivers:
      description:
        - Security drivers with which libvirt confines the guests. V(apparmor) and V(selinux) prevent a guest that
          escapes from QEMU from accessing the files of other guests; V(dac) only runs QEMU as a separate user.
      type: list
      elements: str
      returned: always
      sample: [apparmor, dac]
    virt_types: {description: 'V(kvm), V(qemu).', type: list, elements: str, returned: always}
    machines: {description: Machine types., type: list, elements: str, returned: always}
    domain_capabilities:
      description:
        - Capabilities that guests can use, of the machine type that new guests get. C(platform) lists V(efi),
          V(secure_boot) and V(tpm) if guests can have them, or libvirt does not tell - UEFI firmware, firmware with
          secure boot, both by the descriptors in C(/usr/share/qemu/firmware), and a TPM emulated by C(swtpm).
      type: dict
      returned: always
    libvirt_version: {description: Version of libvirt., type: str, returned: always}
    hypervisor_version: {description: Version of QEMU., type: str, returned: always}
    kernel_version:
      description: Version of the kernel; null with a remote connection.
      type: str
      returned: always
    devices:
      description:
        - Devices of the host that can be assigned to guests, V(pci 0000:06:00.0), V(usb 0x1d6b:0x0002), V(usb 1.4) (bus
          and device) and C(mdev) with its UUID; null if libvirt cannot list them.
      type: list
      elements: str
      returned: always
      sample: ["pci 0000:06:00.0", "usb 0x1d6b:0x0002"]
    bridges:
      description: Bridges of the host; null with a remote connection.
      type: list
      elements: str
      returned: always
    maintenance:
      description:
        - While the host is in maintenance, C(reason) and C(since), the C(id) of this maintenance, and C(by), what set
          it (V(drain) or V(upgrade)); the C(boot), C(bridges) and active C(pools) that the host had when it was marked,
          and the UUIDs of guests that were C(stopped) for it; otherwise null. The playbook drain sets it.
      type: dict
      returned: always
    fencing:
      description: When C(corral-cluster) has C(tested) the fence devices of the other members of the cluster, and of
        each of these C(devices), by the name of the member, whether it can be used (C(ok)), what it C(says) of the
        member, and C(why) it cannot be used. Null in no cluster, and with a remote connection.
      type: dict
      returned: always
      sample: {tested: "2026-11-30T07:00:00+00:00", devices: {hyper2: {ok: true, says: "on", why: ""}}}
    members:
      description: Names of the members of the host's cluster (role P(corral.virt.cluster#role)), itself among them;
        empty in no cluster; null with a remote connection.
      type: list
      elements: str
      returned: always
      sample: [hyper1, hyper2, hyper3]
    boot_id:
      description: Identity of the host's current boot, which changes when it reboots; null with a remote connection.
      type: str
      returned: always
    validation:
      description:
        - Checks of C(virt-host-validate), with the C(driver) (V(qemu)), the C(check), its C(result) (V(pass), V(warn),
          V(fail) or V(note)), and a C(hint) what to do. Null with a remote connection, and if the host does not have
          the program.
      type: list
      elements: dict
      returned: with O(validate)
      sample:
        - driver: qemu
          check: Checking if device /dev/vhost-net exists
          result: warn
          hint: Load the 'vhost_net' module to improve performance of virtio networking
    networks: {description: Virtual networks., type: list, elements: dict, returned: always}
    pools:
      description: Storage pools with capacity and free space in bytes. Directories with the same C(filesystem) share
        this space; it is null for other pools, and for directories that do not answer. Active volume groups have
        C(thin_pools), as RV(corral.virt.virt_pool_info#module:pools[].thin_pools).
      type: list
      elements: dict
      returned: always
    removed_disks:
      description:
        - Disks of removed guests that are still in C(.corral/.removed) of a pool's directory. Their time
          (O(corral.virt.virt_domain#module:keep_removed_h)) is not over, or the run that removed them was interrupted.
        - Always empty with a remote connection.
      type: list
      elements: dict
      returned: always
      contains:
        file: {description: Where the disk is now., type: str, returned: always}
        path: {description: Where it was., type: str, returned: always}
        guest: {description: Name of its guest., type: str, returned: always}
        guest_uuid: {description: UUID of its guest., type: str, returned: always}
        host_uuid: {description: UUID of the host that removed it., type: str, returned: always}
        size_bytes: {description: Size of the file., type: int, returned: always}
        since: {description: When it was removed (UTC)., type: str, returned: always}
        keep_until: {description: 'Until when it is kept, by the clock; null if not.', type: str, returned: always}
        removing: {description: Whether a run is removing it right now., type: bool, returned: always}
        note: {description: 'What happens to it, and the command that brings it back.', type: str, returned: always}
    guests:
      description:
        - Name, uuid, state, autostart, vcpus, memory_mib, disk_mib, bridges, networks, pools, machine, devices, tags,
          apart (words of its C(ha)), unfinished (being created), seeded (has a seed of this collection) and resource of
          every guest. C(resource) is what Pacemaker calls a guest that it runs; empty for others, and with a remote
          connection.
        - With O(cpu_seconds), also cpu_use, the number of processors that the guest keeps busy (null if libvirt does
          not know it).
        - While a migration record exists, also moving (destination host) and moving_from (UUID of the source host).
      type: list
      elements: dict
      returned: always
"""


import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._guest import run_describe_host
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_corosync,
    files_ha_records,
    files_maintenance,
)
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._system import boot

OPTIONS = {
    **URI_OPTION,
    "baseline": {"type": "list", "elements": "str", "default": []},
    "cpu_seconds": {"type": "float", "default": 0},
    "validate": {"type": "bool", "default": False},
}


def main() -> None:
    """Open, read, tell."""
    module = Module(argument_spec=OPTIONS, supports_check_mode=True)
    with failures(module):
        with opened(module.params["uri"]) as connection:  # read-only ones may not ask what guests can have
            host = run_describe_host.describe_host(connection, cpus=module.params["baseline"])
            if module.params["cpu_seconds"]:
                host = run_describe_host.with_cpu_use(connection, host, module.params["cpu_seconds"])
    here = host["bridges"] is not None  # behind a remote connection is another host
    own: dict[str, t.Any] = {
        "maintenance": files_maintenance.read() if here else None,
        "fencing": files_ha_records.fencing() if here else None,
        "members": sorted(files_corosync.members()) if here else None,
        "boot_id": boot.identity() if here else None,
    }
    if module.params["validate"]:
        own["validation"] = run_describe_host.validation() if here else None
    kept = files_ha_records.kept() if here else {}
    guests = [{**one, "resource": kept.get(one["uuid"], {}).get("resource", "")} for one in host["guests"]]
    module.exit_json(changed=False, host={**host, **own, "guests": guests})


if __name__ == "__main__":
    main()
