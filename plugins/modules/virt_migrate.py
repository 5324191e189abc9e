#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest is on that host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_migrate
short_description: Migrate a guest to another hypervisor
version_added: 0.1.0
description:
  - Migrates a guest to another hypervisor. Run the module on the host that has the guest. If the guest is already on
    O(dest), the module changes nothing.
  - A running or paused guest is migrated live and arrives paused. Only one copy is ever resumed. The module resumes it
    at once if the source process is dead and libvirt recorded the handover, and otherwise after a check of both hosts.
    The result that libvirt returns does not decide this. A paused guest stays paused.
  - A guest that is off is migrated with its disks, its UEFI variables and its TPM state. It cannot be started on
    O(dest) before it is removed from the source.
  - A disk on storage of both hosts stays where it is, if something proves that it is the same there. The kind of its
    filesystem, its path, a device number and the name of a pool prove nothing. A disk on the network is never copied,
    and of block devices only a logical volume is.
  - Disks on local storage are copied in their own format and stay sparse. If the backing image of a disk is on the
    destination under the same path, only the disk's own data is copied. The disks on the source, and the file with the
    UEFI variables of a guest that runs, are removed after the guest was seen on the destination; a file that both hosts
    see stays.
  - Snapshots migrate with the guest, with all files that they name. A snapshot inside a disk that is copied while the
    guest runs is refused, and so is any if its disk would be copied without backing files or to another path.
  - The migration runs from host to host; it does not depend on the controller. Running the task again leads to the same
    state. Ctrl-C aborts the migration, and the guest stays on the source.
  - The destination is asked for everything that the definition needs to start, such as firmware, kernel, ROMs, shared
    directories, log directories, networks, devices and secrets. UEFI firmware that the destination has under another
    path is found by its descriptors. The content of shared directories is not copied.
  - All preflight failures are reported together, before anything is changed. Check mode only does the preflight, and
    reports what would be copied and the rate at which the guest writes its memory; the diff shows the host.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name: {description: "Name of the guest.", type: str, required: true}
  dest:
    description: Name or address of the destination, as the source reaches it and as in its certificate.
    type: str
    required: true
  dest_uri:
    description: libvirt URI of the destination as the source reaches it. Defaults to V(qemu+tls://DEST/system).
    type: str
  dest_links:
    description:
      - Network interfaces of O(dest), bridges among them, as M(corral.virt.virt_state_info) returns them. A guest whose
        bridges are not among them is refused.
      - Defaults to the interfaces that libvirt on O(dest) lists, without alternative names. On some distributions
        libvirt lists none, and the bridges are not checked.
    type: list
    elements: str
  dest_maintenance:
    description:
      - The reason why O(dest) is in maintenance, as M(corral.virt.virt_state_info) returns it. A guest does not migrate
        to a host in maintenance, and the module says so before it creates anything there.
      - Without this option, the hook of role P(corral.virt.hypervisor#role) on O(dest) still refuses a running guest.
    type: str
  state:
    description:
      - V(aborted) aborts a running migration of the guest to O(dest), and removes what an interrupted migration created
        there. It is refused in post-copy, because the guest would be lost.
      - On O(dest) itself, V(aborted) ends the migration of a guest that has arrived and run there, for when its source
        is gone for good and cannot end it.
    type: str
    choices: [present, aborted]
    default: present
  dest_gone:
    description:
      - With O(state=aborted), whether O(dest) is gone for good. Then the migration is forgotten, snapshots and
        autostart of the guest are put back, and it can migrate to another host.
      - It is refused while O(dest) answers, and if the guest may have run there.
    type: bool
    default: false
  transport:
    description:
      - How memory and disks are transferred. V(tls) is encrypted by QEMU and requires ports 49152-49215 on the
        destination.
      - V(tunnelled) uses libvirt's own port 16514, for guests on shared storage. V(plain) is not encrypted.
    type: str
    choices: [tls, tunnelled, plain]
    default: tls
  storage:
    description:
      - V(auto) skips disks on shared filesystems and on the network, and copies as little as possible of the others.
      - V(shared) declares that all disks are on shared storage. V(delta) refuses to copy data that an image on the
        destination already holds. V(full) copies everything. If one disk of a running guest is copied in full, all
        disks that libvirt copies are copied in full.
    type: str
    choices: [auto, shared, delta, full]
    default: auto
  disk_storage:
    description:
      - O(storage) for individual disks, by name or target. A disk on the network, and a block device that is no logical
        volume, take V(auto) or V(shared).
    type: dict
    default: {}
  pool:
    description:
      - Storage pool of O(dest) for all disks that are copied; an active one that is a directory (C(dir), C(fs) or
        C(netfs)), or for raw disks a volume group (C(logical)). Disks on shared storage, and those that the definition
        names by pool and volume, stay as they are.
      - Defaults to the pool of O(dest) with the directory that the disk has on the source, and for a logical volume to
        the pool C(logical) of the same name. Backing images must be there under the same path in any case.
    type: str
  disk_pool:
    description:
      - O(pool) for individual disks, by name or target. A disk that is named here is copied, also from shared storage.
      - Refused for a block device that is no logical volume, and for a disk that is on the network, named by pool and
        volume, or declared as shared.
    type: dict
    default: {}
  bandwidth:
    description: Limit in MiB/s for the memory, and for each disk. Holes count in a disk that is copied in full.
    type: int
  max_downtime:
    description: Maximum downtime at the end, in milliseconds. Defaults to QEMU's own limit (300).
    type: int
  auto_converge:
    description: Throttle a guest that changes its memory faster than it can be sent.
    type: bool
    default: true
  schedule:
    description:
      - Action when the memory passes do not converge. V(minimal_downtime) allows a downtime of 100 ms, then up to 500
        ms, then aborts. V(suspend_if_needed) does the same, but allows 5 s before it aborts. V(postcopy) resumes the
        guest on the destination before all of its memory is there. V(very_large) starts with 300 ms and goes up to 1.5
        s, then 5 s.
      - Without it, QEMU continues until O(timeout).
    type: str
    choices: [minimal_downtime, postcopy, suspend_if_needed, very_large]
  postcopy:
    description:
      - Resume the guest on the destination before all of its memory is there, and fetch missing pages on demand
        (post-copy). The migration then always completes. If a host fails meanwhile, the guest is lost; if the network
        fails, the guest stops until the network is back. The guest cannot arrive paused, so libvirt alone decides where
        it runs.
    type: bool
    default: false
  postcopy_after: {description: Seconds after which O(postcopy) starts., type: int}
  postcopy_after_passes:
    description: Passes over the memory after which O(postcopy) starts. Defaults to one.
    type: int
  parallel: {description: Number of connections for the memory; useful above 10 Gbit/s., type: int}
  compression:
    description: Compression of the memory. V(xbzrle) for slow networks; V(zlib) and V(zstd) for O(parallel)
      connections.
    type: list
    elements: str
    choices: [xbzrle, zlib, zstd]
    default: []
  timeout: {description: "Maximum duration of the migration, in seconds.", type: int, default: 1800}
  stall_timeout:
    description:
      - Abort the migration when no data was sent for this many seconds although both hosts answer. The time does not
        count while a host does not answer, and never in post-copy. Raise it for a guest for which O(dest) allocates
        memory for a long time before the first byte (huge pages).
    type: int
    default: 120
  timeout_action:
    description:
      - Action after O(timeout). V(abort) leaves the guest on the source. V(suspend) pauses it until all of its data is
        transferred. V(postcopy) acts like O(postcopy). After the same number of seconds again, the migration is
        aborted.
    type: str
    choices: [abort, suspend, postcopy]
    default: abort
  keep_source_storage:
    description: Keep the disks on the source after the migration. One that is copied from a filesystem that hosts share
      stays in any case, because guests of other hosts may stand on it.
    type: bool
    default: false
  reserve:
    description:
      - Space that must stay free in each pool of O(dest) after the disks are copied, such as V(20GiB). Defaults to 1
        GiB or 5 % of the pool, whichever is larger, and to nothing in a volume group; V(0) reserves nothing.
    type: str
  assume_images:
    description: In check mode, assume that images that O(dest) lacks, and that RV(images) lists, are already there.
      Does not affect a real run.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Migrate a guest to hyper2
  corral.virt.virt_migrate:
    name: web1
    dest: hyper2
  delegate_to: hyper1

- name: Migrate over one open port with limited bandwidth, on shared storage
  corral.virt.virt_migrate: {name: web1, dest: hyper2, transport: tunnelled, bandwidth: 50}

- name: Migrate a busy guest whose data disk is on storage that libvirt does not know to be shared
  corral.virt.virt_migrate:
    name: db1
    dest: hyper2
    schedule: suspend_if_needed
    disk_storage: {data: shared}

- name: Migrate a guest and put its data disk into another pool there
  corral.virt.virt_migrate:
    name: db1
    dest: hyper2
    disk_pool: {data: fast}

- name: Abort the migration
  corral.virt.virt_migrate: {name: web1, dest: hyper2, state: aborted}
"""

RETURN = r"""
dest: {description: The destination., returned: success, type: str}
steps:
  description: Steps that were done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
mode:
  description: V(live), V(cold) (a guest that is off, with its disks) or V(offline) (only its definition).
  returned: when it moves
  type: str
disks:
  description:
    - How each disk is transferred (C(how)) and C(why), with C(bytes_to_move) and its C(dest_path); after a live
      migration also C(disk_bytes), as counted in RV(disk_bytes).
  returned: when it moves
  type: list
  elements: dict
images:
  description: Images that the destination lacks, as options of M(corral.virt.virt_image). With these images there, less
    data would be copied.
  returned: when it moves
  type: list
  elements: dict
bridges:
  description: Bridges that the guest needs on the destination.
  returned: when it moves
  type: list
  elements: str
bytes_to_move: {description: "Bytes of disks to copy, as far as known in advance.", returned: when it moves, type: int}
dirty_rate_mib_s:
  description: Rate at which the guest writes its memory, in MiB per second, measured before the migration.
  returned: when it could be measured in time
  type: int
notes:
  description: Notes on the migration, such as whether it can converge.
  returned: when it moves, or with O(state=aborted)
  type: list
  elements: str
bytes_sent: {description: Bytes of memory and disks that were sent., returned: when it moved live, type: int}
memory_bytes: {description: Bytes of memory that were sent., returned: when it moved live, type: int}
disk_bytes:
  description: Bytes of disks that were sent; holes that QEMU processed count.
  returned: when it moved live
  type: int
seconds: {description: Duration of the migration., returned: when it moved live, type: float}
downtime_ms: {description: Downtime as measured by libvirt., returned: when it moved live, type: int}
passes: {description: Passes over the memory., returned: when it moved live, type: int}
throttle_percent: {description: Maximum throttling of the guest., returned: when it moved live, type: int}
measures:
  description: Measures that were taken so that the migration converges, in order.
  returned: when it moved live
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._core.run_module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._migration import run_migrate, run_migration_options
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import dest_uri
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._system.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.plugins.module_utils._tls.run_connect import reached


def main() -> None:
    """Parameters in, one guest moved, result out."""
    module = Module(argument_spec={**URI_OPTION, **run_migration_options.OPTIONS}, supports_check_mode=True)
    with failures(module), contextlib.ExitStack() as stack:
        detach("virt_migrate")
        there = dest_uri(module.params)
        ends = Endpoints(module.params["uri"], there, lambda uri: stack.enter_context(reached(uri, watched=True)))
        watch = ProgressWatch(module.params["name"])
        result = run_migrate.converge(ends, module.params, Gate(check_mode=module.check_mode), watch)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
