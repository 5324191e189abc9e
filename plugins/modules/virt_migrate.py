#!/usr/bin/python
# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest is on that host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: virt_migrate
short_description: A guest is on that host
version_added: 0.1.0
description:
  - Moves a guest to another hypervisor. Run it on the host that has the guest; a guest that is on O(dest) already is
    left alone.
  - A running or paused guest travels live and arrives paused. Exactly one copy is let run - at once when its process
    here is dead and libvirt wrote that it was given away, else after a look at both hosts. What libvirt returns decides
    nothing. A paused one stays so.
  - A guest that is off travels with its disks, its UEFI variables and its TPM state. It cannot be started on O(dest)
    before it is gone here.
  - Disks on local storage travel too, as what they are; holes stay holes. When the image a disk stands on is on the
    destination under the same path, only the disk's own data travels. The disks on the source are removed after the
    guest was seen on the destination.
  - The migration goes from host to host; the controller may go away. Running the task again ends in the same state.
    Ctrl-C ends the migration, and the guest stays where it is.
  - Everything that speaks against the move is reported at once, before anything is touched. In check mode that is all,
    with what would be moved and the rate at which the guest writes its memory; the diff shows the host.
author:
  - corral.virt contributors (@corral-virt)
extends_documentation_fragment:
  - corral.virt.connection
  - corral.virt.connection.attributes
options:
  name: {description: "Name of the guest.", type: str, required: true}
  dest:
    description: The destination's name or address, as the source reaches it and its certificate says.
    type: str
    required: true
  dest_uri:
    description: The destination's libvirt as the source reaches it. V(qemu+tls://DEST/system) when not given.
    type: str
  state:
    description:
      - V(aborted) ends a migration of the guest to O(dest) that is under way, and clears away what one that was
        interrupted had made there. In post-copy it is refused; the guest would be lost.
    type: str
    choices: [present, aborted]
    default: present
  transport:
    description:
      - How memory and disks travel. V(tls) is encrypted by QEMU and needs ports 49152-49215 on the destination.
      - V(tunnelled) goes through libvirt's own port 16514, for guests on shared storage. V(plain) is not encrypted.
    type: str
    choices: [tls, tunnelled, plain]
    default: tls
  storage:
    description:
      - V(auto) leaves disks on shared filesystems alone and copies the others, as little as possible.
      - V(shared) says that all disks are on shared storage; V(delta) refuses to copy what an image on the destination
        holds already; V(full) copies everything. When one disk of a running guest travels whole, all that libvirt
        copies do.
    type: str
    choices: [auto, shared, delta, full]
    default: auto
  disk_storage:
    description: O(storage) of single disks, by name or target.
    type: dict
    default: {}
  bandwidth:
    description: Limit in MiB/s for the memory, and for each disk. Holes of a disk that travels whole count.
    type: int
  max_downtime:
    description: Longest pause at the end, in milliseconds; QEMU's own limit (300) when not given.
    type: int
  auto_converge:
    description: Slow down a guest that changes its memory faster than it can be sent.
    type: bool
    default: true
  schedule:
    description:
      - What is done when passes over the memory do not get nearer to an end. V(minimal_downtime) allows 100 ms of
        pause, then up to 500 ms, then gives up. V(suspend_if_needed) then allows 5 s. V(postcopy) lets the guest run on
        the destination before all of it is there. V(very_large) begins with 300 ms and goes to 1.5 s, then 5 s.
      - Without it, QEMU goes on until O(timeout).
    type: str
    choices: [minimal_downtime, postcopy, suspend_if_needed, very_large]
  postcopy:
    description:
      - The guest goes on on the destination before all of it is there; what it misses is fetched. It always ends, but
        when one host fails meanwhile, the guest is lost; when the network does, it stops until that is back. It cannot
        arrive paused, so libvirt alone decides where it runs.
    type: bool
    default: false
  postcopy_after: {description: "Seconds after which O(postcopy) begins.", type: int}
  postcopy_after_passes:
    description: Passes over the memory after which O(postcopy) begins; one when nothing is said.
    type: int
  parallel: {description: "Number of connections for the memory; worth it above 10 Gbit/s.", type: int}
  compression:
    description: How memory is made smaller. V(xbzrle) for slow networks; V(zlib) and V(zstd) for O(parallel)
      connections.
    type: list
    elements: str
    choices: [xbzrle, zlib, zstd]
    default: []
  timeout: {description: "Seconds that it may take.", type: int, default: 1800}
  stall_timeout:
    description:
      - End the migration when nothing was sent for so many seconds although both hosts answer.
        The time does not count while one of them is silent, and never in post-copy.
        Raise it for a guest for which O(dest) allocates memory for a long time before the first byte (huge pages).
    type: int
    default: 120
  timeout_action:
    description:
      - What is done then. V(abort) leaves the guest where it is, V(suspend) pauses it until all of it has travelled,
        V(postcopy) as there. After as many seconds again it is aborted.
    type: str
    choices: [abort, suspend, postcopy]
    default: abort
  keep_source_storage:
    description: Keep the disks on the source after the guest has arrived.
    type: bool
    default: false
  reserve:
    description:
      - Room in each pool of O(dest) that stays free beside the disks that go there, as V(20GiB). When not given, the
        larger of 1 GiB and 5 % of the pool; V(0) is none.
    type: str
  assume_images:
    description: In check mode, count images that O(dest) lacks, and RV(images) tells, as brought there. A real run is
      not changed by it.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: It moves to hyper2
  corral.virt.virt_migrate:
    name: web1
    dest: hyper2
  delegate_to: hyper1

- name: Gently, over one open port, on shared storage
  corral.virt.virt_migrate: {name: web1, dest: hyper2, transport: tunnelled, bandwidth: 50}

- name: A busy guest; its data disk is on shared storage that libvirt does not know as such
  corral.virt.virt_migrate:
    name: db1
    dest: hyper2
    schedule: suspend_if_needed
    disk_storage: {data: shared}

- name: It stays where it is
  corral.virt.virt_migrate: {name: web1, dest: hyper2, state: aborted}
"""

RETURN = r"""
dest: {description: The destination., returned: success, type: str}
steps:
  description: What was done, or in check mode would be done, in order.
  returned: success
  type: list
  elements: str
mode:
  description: "V(live), V(cold) (a guest that is off, with its disks) or V(offline) (its definition alone)."
  returned: when it moves
  type: str
disks:
  description:
    - How each disk travels (C(how)) and C(why), with C(bytes_to_move); when it moved live, C(disk_bytes), as the sum
      has them.
  returned: when it moves
  type: list
  elements: dict
images:
  description: Images that the destination lacks, as options of M(corral.virt.virt_image). With them there, less would
    travel.
  returned: when it moves
  type: list
  elements: dict
bridges: {description: Bridges that it needs on the destination., returned: when it moves, type: list, elements: str}
bytes_to_move: {description: "Bytes of disk that travel, as far as known before.", returned: when it moves, type: int}
dirty_rate_mib_s:
  description: MiB of memory that the guest writes in a second, measured before it moves.
  returned: when it could be measured in time
  type: int
notes: {description: "What that means for the move.", returned: when it moves, type: list, elements: str}
bytes_sent: {description: Bytes of memory and disk that travelled., returned: when it moved live, type: int}
memory_bytes: {description: Bytes of memory that travelled., returned: when it moved live, type: int}
disk_bytes:
  description: Bytes of disk that travelled; holes that QEMU went through count.
  returned: when it moved live
  type: int
seconds: {description: Duration of the migration., returned: when it moved live, type: float}
downtime_ms: {description: Length of the pause as libvirt measured it., returned: when it moved live, type: int}
passes: {description: Passes over the memory., returned: when it moved live, type: int}
throttle_percent: {description: How much the guest was slowed down at most., returned: when it moved live, type: int}
measures:
  description: What was done on the way so that it ends, in order.
  returned: when it moved live
  type: list
  elements: str
"""

import contextlib

from ansible_collections.corral.virt.plugins.module_utils._files.detached import detach
from ansible_collections.corral.virt.plugins.module_utils._files.progress import Watch
from ansible_collections.corral.virt.plugins.module_utils._front import migrate, migrate_options
from ansible_collections.corral.virt.plugins.module_utils._front.ends import Ends
from ansible_collections.corral.virt.plugins.module_utils._front.module import URI_OPTION, Module, failures
from ansible_collections.corral.virt.plugins.module_utils._front.reach import reached
from ansible_collections.corral.virt.plugins.module_utils._plan.migrate_options import dest_uri
from ansible_collections.corral.virt.plugins.module_utils._run import Gate


def main() -> None:
    """Parameters in, one guest moved, result out."""
    module = Module(argument_spec={**URI_OPTION, **migrate_options.OPTIONS}, supports_check_mode=True)
    with failures(module), contextlib.ExitStack() as stack:
        detach("virt_migrate")
        there = dest_uri(module.params)
        ends = Ends(module.params["uri"], there, lambda uri: stack.enter_context(reached(uri, watched=True)))
        watch = Watch(module.params["name"])
        result = migrate.converge(ends, module.params, Gate(check_mode=module.check_mode), watch)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
