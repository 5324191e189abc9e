# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a guest, once for `virt_domain` and once below `domains` of `virt_domains`."""

from __future__ import annotations

import textwrap

_GUEST = r"""
name:
  description:
    - Name of the guest; its identity on the host. Letters, digits, C(.), C(_) and C(-); 63 at most.
  type: str
  required: true
uuid:
  description:
    - UUID for a guest that is made. Chosen at random when not given. Cannot be changed later.
  type: str
state:
  description:
    - V(present) makes or changes the definition and leaves a running guest running, a stopped one stopped.
    - V(running), V(paused) and V(shutdown) also bring it there. V(shutdown) asks the guest (ACPI) and waits O(wait_timeout) seconds.
    - V(destroyed) pulls the plug.
    - V(absent) shuts the guest down and removes its definition, and its own disks only with O(remove_storage=true).
    - V(reset) and V(rebooted) are done each time they are asked for.
  type: str
  choices: [present, running, shutdown, destroyed, paused, absent, reset, rebooted]
  default: present
virt_type:
  description:
    - How a guest that is made is run. V(auto) takes hardware virtualisation where the host offers it, else emulation.
  type: str
  choices: [auto, kvm, qemu]
  default: auto
vcpus:
  description:
    - Number of vCPUs, or a dictionary of C(current), C(maximum), C(placement), C(cpuset), C(topology) (C(sockets), C(cores), C(threads)).
    - Needed to make a guest. A number changes the current count; the maximum follows where the guest has no room to grow.
    - Applied to a running guest up to its maximum; more waits for the next boot.
  type: raw
memory:
  description:
    - Memory in MiB, or with a unit (V(512MiB), V(4GiB)), or a dictionary of C(current) and C(maximum).
    - Needed to make a guest. Applied to a running guest (balloon) up to its maximum; more waits for the next boot.
  type: raw
cpu:
  description: CPU as the guest sees it.
  type: dict
  suboptions:
    mode:
      description: A guest that is made gets V(host-model) with hardware virtualisation and V(maximum) with emulation.
      type: str
      choices: [host-model, host-passthrough, maximum, custom]
    model:
      description: Model name with O(cpu.mode=custom).
      type: str
machine:
  description: Machine type. V(q35) or V(pc) are satisfied by any version of theirs.
  type: str
firmware:
  description: Firmware of a guest that is made. Cannot be changed later.
  type: str
  choices: [bios, efi]
tpm:
  description: An emulated TPM.
  type: dict
  suboptions:
    model:
      description: Device model.
      type: str
      choices: [tpm-crb, tpm-tis]
    version:
      description: TPM version.
      type: str
      choices: ['2.0', '1.2']
rng:
  description: Entropy device. A guest that is made has one.
  type: dict
  suboptions:
    model:
      description: Device model.
      type: str
      choices: [virtio]
    source:
      description: Where the host takes entropy from.
      type: str
watchdog:
  description: Watchdog device.
  type: dict
  suboptions:
    model:
      description: Device model; V(itco) since libvirt 9.1.
      type: str
      choices: [itco, i6300esb, ib700]
    action:
      description: What to do when the guest stops feeding it.
      type: str
      choices: [reset, shutdown, poweroff, pause, none, dump]
video:
  description: Video device.
  type: dict
  suboptions:
    model:
      description: Device model.
      type: str
      choices: [virtio, vga, qxl, bochs, none]
clock:
  description: The guest's hardware clock.
  type: dict
  suboptions:
    offset:
      description: V(localtime) for systems that keep local time in hardware.
      type: str
      choices: [utc, localtime]
on_poweroff:
  description: What to do when the guest powers itself off.
  type: str
  choices: [destroy, restart]
on_reboot:
  description: What to do when the guest reboots. V(destroy) suits installers.
  type: str
  choices: [destroy, restart]
on_crash:
  description: What to do when the guest crashes.
  type: str
  choices: [destroy, restart, preserve, coredump-destroy, coredump-restart]
title:
  description: Short text shown by tools; V('') removes it. Applied at once.
  type: str
description:
  description: Longer text; V('') removes it. Applied at once.
  type: str
tags:
  description: Words kept in libvirt's metadata; the inventory makes groups of them. V([]) removes all. Applied at once.
  type: list
  elements: str
autostart:
  description: Start the guest with the host.
  type: bool
image:
  description:
    - Short for the image of the only disk C(system) of a guest that is made. Not together with O(disks).
    - Used when the disk is made; a guest that exists keeps the disk it has.
  type: str
disks:
  description:
    - Disks, by name. Those not mentioned are left alone.
    - A guest that is made without O(disks) gets one, C(system), of 8 GiB or the size of its image if that is larger.
  type: list
  elements: dict
  suboptions:
    name:
      description: Identity of the disk; also part of the name of its file. For disks made by others, the target (V(vda)) serves.
      type: str
      required: true
    state:
      description: V(absent) detaches the disk; its file stays.
      type: str
      choices: [present, absent]
      default: present
    size:
      description:
        - In GiB, or with a unit. A larger size grows the disk, also while the guest runs; a smaller one is refused.
      type: raw
    pool:
      description: Storage pool for a disk that is made. V(default) when not given.
      type: str
    image:
      description: Image in the pool on which a disk that is made stands, as a copy-on-write overlay.
      type: str
    device:
      description: Kind of device.
      type: str
      choices: [disk, cdrom]
    source:
      description: A file to use as it is. Excludes O(disks[].image) and O(disks[].size).
      type: path
    format:
      description: Format of the file. V(qcow2) for disks and V(raw) for CD-ROMs when not given.
      type: str
      choices: [qcow2, raw]
    bus:
      description: Bus. V(virtio) for disks and V(sata) for CD-ROMs when not given.
      type: str
      choices: [virtio, scsi, sata, usb, ide]
    target:
      description: Device name on the bus (V(vdb)). The next free one when not given.
      type: str
    cache:
      description: Cache mode.
      type: str
      choices: [none, writethrough, writeback, directsync, unsafe]
    discard:
      description: Whether discarded blocks are given back to the host.
      type: str
      choices: [unmap, ignore]
    io:
      description: How QEMU does the input and output.
      type: str
      choices: [native, threads, io_uring]
    serial:
      description: Serial number shown to the guest.
      type: str
    readonly:
      description: The guest cannot write.
      type: bool
    shareable:
      description: Several guests may use the file at once.
      type: bool
    boot_order:
      description: Place in the boot order, from 1.
      type: int
interfaces:
  description:
    - Network interfaces, by name. Those not mentioned are left alone.
    - A guest that is made without O(interfaces) gets one, C(eth0), on bridge C(br0).
  type: list
  elements: dict
  aliases: [networks]
  suboptions:
    name:
      description: Identity of the interface in the definition; not its name inside the guest.
      type: str
      required: true
    state:
      description: V(absent) unplugs the interface.
      type: str
      choices: [present, absent]
      default: present
    type:
      description: Follows from O(interfaces[].bridge) or O(interfaces[].network) when not given.
      type: str
      choices: [bridge, network, user]
    bridge:
      description: Bridge of the host.
      type: str
    network:
      description: Virtual network of libvirt.
      type: str
    portgroup:
      description: Port group of the virtual network.
      type: str
    mac:
      description: MAC address. Derived from the guest's UUID and the interface's name when not given, so it never changes.
      type: str
    model:
      description: Device model. V(virtio) when not given.
      type: str
    mtu:
      description: MTU in bytes.
      type: int
    vlan:
      description: VLAN tag, where the bridge or network supports it.
      type: int
    link:
      description: Whether the cable is plugged in.
      type: str
      choices: [up, down]
    boot_order:
      description: Place in the boot order, from 1.
      type: int
graphics:
  description: Remote display. A guest that is made has none unless asked.
  type: dict
  suboptions:
    type:
      description: Protocol; V(none) removes the display.
      type: str
      choices: [vnc, spice, none]
    listen:
      description: Address to listen on. V(127.0.0.1) when a display is made.
      type: str
    port:
      description: Port, from 5900. Chosen by libvirt when not given.
      type: int
    password:
      description: Password of the display; VNC looks at 8 characters only.
      type: str
serial:
  description: The first serial port.
  type: dict
  suboptions:
    type:
      description: What it is connected to.
      type: str
      choices: [pty, file, dev]
    path:
      description: File or device.
      type: path
    log:
      description: File to which everything the guest prints is appended.
      type: path
cloud_init:
  description:
    - Seed for cloud-init (NoCloud), on a read-only virtio disk. The guest's SSH host key is made with it, so that it can be trusted
      before the first contact.
    - Dictionaries and YAML text both serve.
  type: dict
  suboptions:
    user_data:
      description: User data; text must begin with a line such as C(#cloud-config).
      type: raw
    meta_data:
      description: Meta data. C(local-hostname) is the guest's name and C(instance-id) follows the content when not given.
      type: raw
    network_config:
      description: Network configuration, version 1 or 2.
      type: raw
    on_change:
      description:
        - What to do when this differs from the seed the guest was made with.
        - V(ignore) leaves the seed alone and says so; V(next_boot) writes a new seed with a new instance-id, which makes cloud-init run
          again; V(refuse) fails.
      type: str
      choices: [ignore, next_boot, refuse]
      default: ignore
allow_restart:
  description: Shut a running guest down and start it again when a change needs that. Otherwise such changes are listed in RV(pending).
  type: bool
  default: false
force:
  description: Pull the plug of a guest that does not shut down within O(wait_timeout).
  type: bool
  default: false
remove_storage:
  description:
    - With O(state=absent), also delete the disks that the collection made for this guest and that no other guest uses.
  type: bool
  default: false
wait_timeout:
  description: Seconds to wait for a shutdown or an address.
  type: int
  default: 300
wait_for_ip:
  description:
    - Wait until the guest has an address, as known from V(lease) (libvirt's DHCP), V(arp) (the host's ARP table), V(agent) (the guest
      agent) or V(any) of these.
  type: str
  choices: [any, lease, arp, agent]
"""


class ModuleDocFragment:
    """Kept in step with plugins/module_utils/_front/domain_options.py; sanity compares them."""


ModuleDocFragment.DOCUMENTATION = "options:\n" + textwrap.indent(_GUEST, "  ")  # type: ignore[attr-defined]
ModuleDocFragment.DOMAINS = (  # type: ignore[attr-defined]
    "options:\n  domains:\n    description: The guests.\n    type: list\n    elements: dict\n    required: true\n    suboptions:\n"
    + textwrap.indent(_GUEST.replace("O(", "O(domains[].").replace("RV(pending)", "C(pending)"), "      ")
)
