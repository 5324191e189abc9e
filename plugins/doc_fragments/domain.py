# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a guest, once for `virt_domain` and once below `domains` of `virt_domains`.

Texts stand here. Types, choices, what a value must be and how it reaches a running guest come from the tables that
carry them out.
"""

from __future__ import annotations

import typing as t

import yaml

from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import DICTS, GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._front.options import option_of
from ansible_collections.corral.virt.plugins.module_utils._plan import live
from ansible_collections.corral.virt.plugins.module_utils._xml.domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._xml.graphics import GRAPHICS
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Row, Table

__all__ = ["ModuleDocFragment", "rows"]

_TEXTS = r"""
name: Name of the guest; its identity on the host. Letters, digits, C(.), C(_) and C(-); 63 at most.
uuid: UUID for a guest that is made. Chosen at random when not given. Cannot be changed later.
renamed_from:
  - Name that the guest has until now. It is renamed, unless a guest is called O(name) already and none is called that.
  - The guest must be off, and libvirt must keep nothing under its name (managed save, snapshots, checkpoints). With
    O(uuid), only the guest with that UUID is renamed.
  - UUID, disks, seed, MAC addresses and autostart stay as they are, and so does the hostname within the guest. Files of
    its disks keep their names, which begin with the old one; they go on belonging to it.
  - Only this host is asked which names are free. The playbook C(corral.virt.rename) asks all, and takes the guest's key
    in C(known_hosts) along.
state:
  - V(present) makes or changes the definition and leaves a running guest running, a stopped one stopped.
  - V(running), V(paused) and V(shutdown) also bring it there. V(shutdown) asks the guest (ACPI, then its agent) and
    waits O(wait_timeout) seconds.
  - V(destroyed) pulls the plug.
  - V(absent) shuts the guest down and removes its definition with all that libvirt keeps of it (UEFI variables, TPM
    state, managed save, snapshots, checkpoints), and its own disks only with O(remove_storage=true).
  - V(reset) and V(rebooted) are done each time they are asked for.
clone_of:
  - Another guest of the same host. When this guest does not exist yet, it is made as a copy of that one, which must be
    off and is not changed. A guest that exists is not made again.
  - The copy takes its definition from the other guest, including title, tags, display passwords and host devices.
    Options of this task override single parts. UUID, MAC addresses, display ports and firmware variables are new, so
    boot entries and enrolled keys are lost. TPM state, autostart, snapshots and C(apart-) tags are not copied.
  - Disks are copied in full, into the pools where they are. Both guests use the same media, read-only disks and
    shareable disks. Entries of O(disks) change the copies (O(disks[].size), O(disks[].pool), O(disks[].format)),
    replace them (O(disks[].image), O(disks[].source)) or leave them out (O(disks[].state=absent)).
  - The copy always gets a seed. With it, cloud-init sets the hostname, new SSH host keys, a new machine ID, and DHCP
    where O(cloud_init.network_config) is not given. Users and their keys stay. Network configuration that somebody
    wrote by hand stays too, and so does a seed of another tool; leave out its disk. Prepare systems without cloud-init
    before (C(sysprep), C(virt-sysprep)).
  - After an interrupted run, run the same task again, or remove the guest.
  - Excludes O(image), O(renamed_from), O(virt_type) and O(state=absent).
virt_type: How a guest that is made is run. V(auto) takes hardware virtualisation where the host offers it, else
  emulation.
title: Short text shown by tools, on one line; V('') removes it.
description: Longer text; V('') removes it.
vcpus:
  - Number of vCPUs, or a dictionary with the keys below. Needed to make a guest.
  - A number changes the current count; the maximum follows where the guest has no room to grow.
vcpus.maximum: How many the guest can have without a restart
vcpus.current: How many it has now; more are plugged in up to the maximum, fewer wait
vcpus.placement: V(auto) lets numad choose the processors
vcpus.cpuset: Processors of the host that may be used, as V(0-3,8)
vcpus.topology.sockets: Sockets; the product of the topology is the maximum
vcpus.topology.dies: Dies per socket (libvirt 6.1)
vcpus.topology.clusters: Clusters per die (libvirt 10.1)
vcpus.topology.cores: Cores per die or cluster
vcpus.topology.threads: Threads per core
vcpus.iothreads: Threads for the input and output of disks
vcpus.shares: Weight among all guests where processors are short
vcpus.period_us: Period in microseconds over which O(vcpus)'s quota is counted
vcpus.quota_us: Microseconds each vCPU may run per period; V(-1) for no limit
vcpus.global_period_us: The same for the whole guest
vcpus.global_quota_us: The same for the whole guest
vcpus.emulator_period_us: The same for QEMU's own threads
vcpus.emulator_quota_us: The same for QEMU's own threads
vcpus.iothread_period_us: The same for IO threads
vcpus.iothread_quota_us: The same for IO threads
vcpus.pinning: Pins, each with C(vcpu) and C(cpuset)
vcpus.emulator_cpuset: Processors for QEMU's own threads
vcpus.iothread_pinning: Pins of IO threads, each with C(iothread) and C(cpuset)
memory:
  - Memory in MiB, or with a unit (V(512MiB), V(4GiB)), or a dictionary with the keys below. Needed to make a guest.
  - Sizes below it are told the same way.
memory.maximum: What the guest is started with
memory.current: What the balloon leaves it
memory.hotplug_maximum: Up to where memory modules can be plugged in; needs C(slots)
memory.slots: Slots for memory modules
memory.hugepages: Whether huge pages back the guest
memory.hugepage_size: Size of these pages, as V(2MiB) or V(1GiB)
memory.nosharepages: Whether the host may not merge its pages with others
memory.locked: Whether its pages stay in the host's memory; set C(hard_limit) with it
memory.source: What backs the guest
memory.access: V(shared) is needed for virtiofs
memory.allocation: When it is taken
memory.discard: Whether its content is thrown away when the guest ends
memory.hard_limit: The most that QEMU may use; the guest is killed beyond it
memory.soft_limit: What is enforced when the host is short
memory.swap_hard_limit: The most with swap
cpu: CPU as the guest sees it.
cpu.mode: A guest that is made gets V(host-model) with hardware virtualisation and V(maximum) with emulation.
  V(host-passthrough) ties it to hosts of the same processor. A model that several hosts can run is worked out by
  M(corral.virt.virt_host_info).
cpu.model: Model with O(cpu.mode=custom).
cpu.fallback: Whether libvirt may take the nearest model where the named one is not known.
cpu.vendor: Run only on processors of this vendor.
cpu.match: How exactly the processor must fit.
cpu.check: What libvirt verifies before the guest starts.
cpu.migratable: Leave out what cannot be migrated, with O(cpu.mode=host-passthrough) or V(maximum).
cpu.cache: Processor cache as the guest sees it.
cpu.cache.mode: V(passthrough) shows the host's.
cpu.cache.level: Level of an emulated cache.
cpu.maxphysaddr: Width of physical addresses (libvirt 8.7).
cpu.maxphysaddr.mode: Where the width comes from.
cpu.maxphysaddr.bits: The width.
cpu.features: Features besides those of the model.
cpu.features[].name: Name, as C(vmx).
cpu.features[].policy: Whether the guest has it. Needed for one that is added.
numa: NUMA as the guest sees it, and where its memory comes from.
numa.cells: Nodes of the guest. Their sizes together are the guest's memory.
numa.cells[].id: Number of the node, from 0.
numa.cells[].cpus: Its vCPUs.
numa.cells[].memory: Its memory. Needed for one that is added.
numa.cells[].access: Whether other processes may share its memory.
numa.cells[].discard: Throw its content away when the guest ends.
numa.cells[].distances: Distances to other nodes.
numa.cells[].distances[].id: The other node.
numa.cells[].distances[].value: Distance; 10 is the node itself.
numa.mode: How strictly the memory comes from O(numa.nodeset).
numa.nodeset: Nodes of the host that memory comes from.
numa.placement: V(auto) lets numad choose.
numa.nodes: The same per node of the guest.
numa.nodes[].cell: Node of the guest.
numa.nodes[].mode: How strictly. Needed for one that is added.
numa.nodes[].nodeset: Nodes of the host. Needed for one that is added.
machine: Machine type. V(q35) or V(pc) are satisfied by any version of theirs.
firmware: Firmware of a guest that is made; libvirt chooses the files.
secure_boot: Only signed code is booted, with the keys of the firmware's maker enrolled. Needs O(firmware=efi).
loader: Firmware file chosen by hand, instead of O(firmware).
loader.path: The file.
loader.type: V(pflash) for UEFI.
loader.readonly: The guest cannot write it.
loader.secure: It implements secure boot.
nvram: Where UEFI variables are kept, when O(firmware) does not choose it.
nvram.path: The file.
nvram.template: What it is made from.
boot: How the guest boots.
boot.order: Kinds of devices in order. O(disks[].boot_order) and O(interfaces[].boot_order) are finer, and exclude it.
boot.menu: Show the firmware's boot menu.
boot.menu_timeout_ms: For how long.
boot.reboot_timeout_ms: When to try again after no device could be booted; V(-1) for never.
boot.kernel: Kernel on the host, booted directly; V('') goes back to the disk.
boot.initrd: Its initial RAM disk.
boot.cmdline: Its command line.
features: Features of the machine.
features.acpi: ACPI. A guest that is made has it.
features.apic: APIC. A guest that is made has it.
features.pae: Physical address extension, for 32-bit guests.
features.smm: System management mode; secure boot needs it and libvirt sets it then.
features.vmport: VMware's port; V(false) saves time in guests that look for it.
features.pmu: Performance counters.
features.kvm_hidden: Hide KVM from the guest.
features.kvm_hint_dedicated: Tell the guest that its vCPUs have processors of their own.
features.ioapic: Who emulates the interrupt controller.
features.hyperv: What Windows expects of a hypervisor.
features.hyperv.mode: V(passthrough) gives all that the host can (libvirt 8.0).
features.hyperv.relaxed: Relax constraints on timers.
features.hyperv.vapic: Virtual APIC.
features.hyperv.vpindex: Virtual processor index.
features.hyperv.runtime: Processor time spent.
features.hyperv.synic: Synthetic interrupt controller.
features.hyperv.reset: Reset by the hypervisor.
features.hyperv.frequencies: Frequency registers.
features.hyperv.reenlightenment: Notice of migration.
features.hyperv.tlbflush: TLB flush by the hypervisor.
features.hyperv.ipi: Interrupts between processors by the hypervisor.
features.hyperv.evmcs: Enlightened VMCS.
features.hyperv.avic: Virtual interrupt controller in hardware (libvirt 8.10).
features.hyperv.spinlocks: Tell the hypervisor of long spinlocks.
features.hyperv.spinlocks_retries: After how many tries.
features.hyperv.stimer: Synthetic timers.
features.hyperv.stimer_direct: Synthetic timers without messages.
features.hyperv.vendor_id: Name of the hypervisor as the guest sees it.
clock: The guest's hardware clock.
clock.offset: V(localtime) for systems that keep local time in hardware.
clock.timezone: Time zone with O(clock.offset=timezone).
clock.timers: Timers.
clock.timers[].name: Which.
clock.timers[].present: Whether the guest has it.
clock.timers[].tickpolicy: What becomes of ticks that were missed.
clock.timers[].track: What it follows.
clock.timers[].frequency: Hertz, for C(tsc).
clock.timers[].mode: How it is done, for C(tsc).
on_poweroff: What to do when the guest powers itself off.
on_reboot: What to do when the guest reboots. V(destroy) suits installers.
stop_on_reboot: Short for O(on_reboot=destroy), or V(restart) when V(false).
on_crash: What to do when the guest crashes.
on_lockfailure: What to do when a lock on its storage is lost.
pm: Power management.
pm.suspend_to_mem: Whether the guest can suspend to memory.
pm.suspend_to_disk: Whether the guest can suspend to disk.
serial: The first serial port. O(serials) speaks of several.
serial.type: What it is connected to. V(pty) is what C(virsh console) opens.
serial.path: File, device or socket.
serial.append: Keep what is in the file.
serial.mode: V(bind) waits for a connection, V(connect) makes it.
serial.host: Address to listen on or to connect to, with V(tcp).
serial.service: TCP port.
serial.tls: TLS on the connection, with the host's certificates for it.
serial.protocol: Whether telnet is spoken.
serial.log: File to which everything the guest prints is written besides; also what is shown when waiting for the guest
  fails.
serial.log_append: Keep what is in it.
rng: Entropy device. A guest that is made has one.
rng.model: V(none) takes it away.
rng.backend: Where entropy comes from; V(builtin) is QEMU itself.
rng.source: File with V(random).
rng.rate_bytes: At most so many bytes per period.
rng.rate_period_ms: The period.
watchdog: Watchdog device.
watchdog.model: V(itco) since libvirt 9.1; V(none) takes it away.
watchdog.action: What to do when the guest stops feeding it.
video: Video device.
video.model: V(none) for a guest without.
video.vram: Video memory.
video.ram: Second part of the memory of V(qxl).
video.vgamem: Size of the framebuffer of V(qxl).
video.heads: Screens.
video.accel3d: 3D acceleration.
video.resolution: Resolution to begin with.
tpm: TPM, emulated by swtpm unless said otherwise.
tpm.model: V(none) takes it away, with libvirt removing its state when the guest is removed.
tpm.type: V(passthrough) gives the host's own to this guest.
tpm.version: TPM version.
tpm.persistent_state: Keep the state of a guest that is not defined.
tpm.path: Device with O(tpm.type=passthrough).
sound: Sound device. A guest that is made has none.
sound.model: V(none) for a guest without.
balloon: The device that gives memory back to the host.
balloon.model: V(none) for a guest whose memory never changes.
balloon.autodeflate: Let the guest take memory back before it kills processes.
balloon.free_page_reporting: Give free pages back to the host at once.
balloon.stats_period_s: How often the guest reports its memory; V(0) for never.
vsock: Socket between host and guest.
vsock.model: V(none) takes it away.
vsock.auto: Let libvirt choose the number.
vsock.cid: The guest's number, one per host.
panic: The device by which a guest tells that it crashed.
panic.model: V(none) takes it away.
iommu: IOMMU of the guest.
iommu.model: V(none) takes it away.
controllers: Controllers, by type and index, where libvirt's own are not what is wanted. A C(virtio-scsi) one comes with
  the first disk on bus V(scsi).
controllers[].type: Kind of controller.
controllers[].index: Its number among its kind, from 0.
controllers[].model: Model, as C(virtio-scsi) or C(qemu-xhci).
controllers[].queues: Queues of a C(virtio-scsi) controller.
controllers[].iothread: IO thread that serves it.
controllers[].max_sectors: Largest request.
controllers[].ports: Ports.
controllers[].vectors: Interrupt vectors.
disks:
  - Disks, by name. Those not mentioned are left alone.
  - A guest that is made without O(disks) gets one, C(system), of 8 GiB or the size of its image if that is larger.
disks[].name: Identity of the disk; also part of the name of its file. For disks made by others, the target (V(vda))
  serves.
disks[].state: V(absent) detaches the disk; its file stays.
disks[].size: In GiB, or with a unit. A larger size grows the disk, also while the guest runs; a smaller one is refused
  (M(corral.virt.virt_image) can shrink it while the guest is off).
disks[].pool: Storage pool for a disk that is made. V(default) when not given.
disks[].image: Image in the pool from which a disk is made. A disk that is there keeps what it was made from.
disks[].clone:
  - How the disk is made from O(disks[].image). With V(overlay), what the guest writes goes into the disk, the rest is
    read from the image.
  - V(copy) takes all of the image, so that the disk stands on nothing; then O(disks[].format) can also be V(raw).
  - Follows as V(overlay) when not given.
disks[].device: Kind of device. A C(lun) passes SCSI commands through to a block device.
disks[].source: A file, or a block device below C(/dev), to use as it is. Excludes O(disks[].image), O(disks[].clone)
  and O(disks[].size). V('') ejects the medium of a CD-ROM.
disks[].volume: A volume to use as it is, as C(pool/volume).
disks[].url: A medium or disk on the network, over http, https, ftp, ftps, tftp, nbd or iscsi.
disks[].startup_policy: What to do when the medium is not there at start; for CD-ROMs and floppies.
disks[].format: Format of the file. V(qcow2) for disks and V(raw) for media and block devices when not given.
disks[].bus: Bus. V(virtio) for disks, V(sata) for CD-ROMs, V(scsi) for LUNs and V(fdc) for floppies when not given.
disks[].target: Device name on the bus (V(vdb)). The next free one when not given.
disks[].rotation_rate: Rotations per minute that the guest is told; 1 for an SSD.
disks[].removable: Whether a USB disk is removable.
disks[].cache: Cache mode.
disks[].discard: Whether discarded blocks are given back to the host.
disks[].detect_zeroes: Whether zeroes are written as holes.
disks[].io: How QEMU does the input and output. V(io_uring) since libvirt 6.3.
disks[].error_policy: What to do when the host cannot write or read.
disks[].rerror_policy: What to do when the host cannot read.
disks[].iothread: IO thread that serves the disk, with bus V(virtio).
disks[].queues: Queues, with bus V(virtio).
disks[].copy_on_read: Copy what is read from the image into the disk.
disks[].serial: Serial number shown to the guest.
disks[].wwn: World wide name shown to the guest.
disks[].vendor: Vendor shown to the guest, with bus V(scsi).
disks[].product: Product shown to the guest, with bus V(scsi).
disks[].logical_block_size: Block size in bytes that the guest is told.
disks[].physical_block_size: Physical block size in bytes that the guest is told.
disks[].readonly: The guest cannot write.
disks[].shareable: Several guests may use the file at once.
disks[].transient: Writes are thrown away when the guest ends.
disks[].boot_order: Place in the boot order.
disks[].iotune: Limits, in bytes and requests per second; V(0) for none. C(total) excludes C(read) and C(write).
disks[].iotune.*_max: Limit of a burst.
disks[].iotune.*_max_length: Seconds that a burst may last.
disks[].iotune.*: Limit.
interfaces:
  - Network interfaces, by name. Those not mentioned are left alone.
  - A guest that is made without O(interfaces) gets one, C(eth0), on bridge C(br0).
interfaces[].name: Identity of the interface in the definition; not its name inside the guest. For those made by others,
  the MAC address serves.
interfaces[].state: V(absent) unplugs the interface.
interfaces[].type: Follows from O(interfaces[].bridge), O(interfaces[].network), O(interfaces[].device) or
  O(interfaces[].address) when not given.
interfaces[].bridge: Bridge of the host.
interfaces[].network: Virtual network of libvirt.
interfaces[].portgroup: Port group of the virtual network.
interfaces[].device: Network device of the host that a macvtap device (type V(direct)) stands on.
interfaces[].mode: Mode of the macvtap device.
interfaces[].address: PCI address of a network device of the host that the guest gets as its own (type V(hostdev)).
interfaces[].managed: Let libvirt detach that device from the host and give it back.
interfaces[].mac: MAC address. Derived from the guest's UUID and the interface's name when not given, so it never
  changes.
interfaces[].model: Device model. V(virtio) when not given.
interfaces[].driver: Who moves the packets.
interfaces[].queues: Queues of a virtio device.
interfaces[].mtu: MTU in bytes.
interfaces[].vlan: VLAN tags, where the bridge or network supports them; more than one makes a trunk.
interfaces[].virtualport: Kind of virtual switch port.
interfaces[].isolated: Keep the guest from others on the same bridge.
interfaces[].link: Whether the cable is plugged in.
interfaces[].filterref:
  - Network filter of libvirt. C(clean-traffic), which comes with libvirt, is the one to begin with. It lets the guest
    send only with its own MAC and IP addresses.
  - Rules for C(mac), C(vlan), C(stp), C(arp), C(rarp), C(ip) and C(ipv6) always work. Rules for C(tcp), C(udp),
    C(icmp), C(all) and the like do nothing while the host's packet filter does not see bridged packets
    (C(net.bridge.bridge-nf-call-iptables) is 0). A filter with such rules, or one that refers to such a filter, is
    refused then.
interfaces[].filterref.name: Its name.
interfaces[].filterref.parameters: Its parameters.
interfaces[].filterref.parameters[].name: Name.
interfaces[].filterref.parameters[].value: Value.
interfaces[].trust_guest_rx_filters: Let the guest change its MAC address and filters.
interfaces[].target: Name of the device on the host.
interfaces[].boot_order: Place in the boot order.
interfaces[].bandwidth: Limits of the traffic.
interfaces[].bandwidth.inbound: Towards the guest.
interfaces[].bandwidth.outbound: From the guest.
interfaces[].bandwidth.*.average: KiB per second.
interfaces[].bandwidth.*.peak: KiB per second of a burst.
interfaces[].bandwidth.*.burst: KiB that a burst may have.
serials: Serial ports, by number.
serials[].port: Number of the port, from 0.
serials[].target: Kind of port.
consoles: Consoles besides the first serial port, by number.
consoles[].port: Number of the console, from 0.
consoles[].target: Kind of console.
channels: Channels between host and guest, by name. A guest that is made has one for the agent.
channels[].name: Name of the port in the guest; V(org.qemu.guest_agent.0) is the agent's, V(com.redhat.spice.0) SPICE's.
channels[].type: What it is connected to.
inputs: Input devices, by type and bus. A tablet lets the pointer follow in a remote display.
inputs[].type: Kind of device.
inputs[].bus: Bus.
hostdevs: Devices of the host that the guest gets as its own.
hostdevs[].name: Identity of the device in the definition.
hostdevs[].type: Kind of device. Needed for one that is added.
hostdevs[].address: PCI address.
hostdevs[].vendor: USB vendor.
hostdevs[].product: USB product.
hostdevs[].bus: USB bus number.
hostdevs[].device: USB device number.
hostdevs[].startup_policy: What to do when the USB device is not there at start.
hostdevs[].managed: Let libvirt detach the device from the host and give it back.
hostdevs[].boot_order: Place in the boot order.
"*.rom": The device's own firmware.
"*.rom.bar": Whether it is shown to the guest.
"*.rom.file": File to use instead.
filesystems: Directories of the host that the guest mounts.
filesystems[].name: Tag by which the guest mounts it.
filesystems[].source: Directory of the host. Needed for one that is added.
filesystems[].driver: V(virtiofs), which needs O(memory) with C(access=shared), or V(path) for 9p.
filesystems[].accessmode: Whose files the guest sees, with V(path).
filesystems[].readonly: The guest cannot write.
filesystems[].queue: Length of the queue of V(virtiofs).
filesystems[].binary: The program that serves it, instead of the installed one.
filesystems[].xattr: Extended attributes.
filesystems[].cache: What the guest may cache.
tags: Words kept in libvirt's metadata; the inventory makes groups of them. V([]) removes all.
graphics: Remote display. A guest that is made has none unless asked.
graphics.type: Protocol; V(none) removes the display.
graphics.listen: Address to listen on. V(127.0.0.1) when a display is made. Any other than loopback needs
  O(graphics.password), TLS, or O(graphics.allow_unprotected).
graphics.port: Port; V(-1) or nothing lets libvirt choose.
graphics.tls_port: Port for TLS, of V(spice).
graphics.tls: Allow V(spice) only over TLS. For V(vnc) the host decides for all guests (C(vnc_tls) in C(qemu.conf)).
graphics.websocket: Port for browsers, of V(vnc); V(-1) lets libvirt choose.
graphics.password: Password of the display; VNC looks at 8 characters only.
graphics.allow_unprotected: Let the display listen beyond loopback without password and TLS; whoever reaches its port
  has the guest's screen and keyboard. Refused otherwise. One that exists, and that the task does not mention, is only
  warned about. Not kept in the definition.
graphics.keymap: Keyboard map of the viewer.
graphics.share_policy: What becomes of other viewers when one connects, of V(vnc).
autostart: Start the guest with the host.
image:
  - Short for the image of the first disk that is made; without O(disks) the only one, C(system).
  - Used when the disk is made; a guest that exists keeps the disk it has.
nic_profile:
  - Name of a list in the variable C(virt_nic_profiles); its entries are used as O(interfaces). An entry of the same
    name in O(interfaces) overrides single fields of it, others are added.
disk_profile:
  - Name of a list in the variable C(virt_disk_profiles); its entries are used as O(disks). An entry of the same name in
    O(disks) overrides single fields of it, others are added.
xml:
  - What no option says, in libvirt's own words, as a piece of a C(<domain>) document. Its elements are made part of the
    definition, before the other options.
  - An element that is there with all that is said of it is left; one that a domain has once is edited; a device or
    other repeated element is added. Nothing is taken away.
  - In the difference, passwords, secrets, tokens, cookies and queries of URLs are hidden; in what Ansible tells of the
    task, all of it is.
cloud_init:
  - Seed for cloud-init (NoCloud), on a read-only virtio disk. The guest's SSH host key is made with it, so that it can
    be trusted before the first contact. Where user data brings C(ssh_keys), the best of those (Ed25519, ECDSA, RSA) is
    the trusted one instead.
  - Dictionaries and YAML text both serve.
cloud_init.user_data: User data; text must begin with a line such as C(#cloud-config).
cloud_init.vendor_data: Vendor data, in the forms of user data except MIME. It shares its file with the guest's SSH host
  key; both act.
cloud_init.meta_data: Meta data. C(local-hostname) is the guest's name and C(instance-id) follows the content when not
  given.
cloud_init.network_config: Network configuration, version 1 or 2, also below a key C(network). Without it cloud-init
  asks for an address by DHCP.
cloud_init.method:
  - V(nocloud) is a seed for cloud-init in the guest.
  - V(virt_customize) is for images without cloud-init. The same options are applied to the guest's disk before its
    first start by C(virt-customize), which the hypervisor must have (C(libguestfs-tools), on Enterprise Linux
    C(guestfs-tools)).
  - Then user data is a C(#cloud-config) of C(hostname), C(fqdn), C(timezone), C(users), C(ssh_authorized_keys)
    (root's), C(ssh_keys), C(ssh_deletekeys), C(write_files), C(packages) and C(runcmd) (the last two at the first
    boot), the network configuration is of version 2 and has only C(ethernets), for netplan or NetworkManager. What
    cannot be applied is refused.
cloud_init.on_change:
  - What to do when this differs from the seed the guest was made with.
  - V(ignore) leaves the seed alone and says so; V(next_boot) writes a new seed with a new instance-id, which makes
    cloud-init run again; V(refuse) fails.
apply:
  - V(both) changes the definition, and a running guest where that is possible; the rest is listed in RV(pending).
  - V(next_boot) changes only the definition.
  - V(live) changes only what runs, until the guest is stopped, and refuses what that cannot be done for.
allow_restart: Shut a running guest down and start it again when a change needs that. Otherwise such changes are listed
  in RV(pending).
force: Pull the plug of a guest that does not shut down within O(wait_timeout), or reset one that does not reboot.
remove_storage: With O(state=absent), also delete the disks that the collection made for this guest and that no other
  guest uses.
wait: Wait until a shutdown or reboot has happened. V(false) only asks for it.
wait_timeout: Seconds to wait for a shutdown, reboot or address.
wait_for_ip:
  - Wait until the guest has an address, and record it with the guest, where the inventory plugin finds it. All guests
    of a call wait side by side, after everything else is done. What is recorded so does not count as a change.
  - V(lease) asks libvirt's DHCP, V(arp) the host's neighbour table, V(packets) what the guest sends and is sent by a
    DHCP server (seen at its interface, by root on the host itself), V(agent) the guest agent, V(any) all of these.
    V(unknown) is the same, but does not wait for a guest whose address was given in its O(cloud_init), or was recorded
    since its last start. V(none) does not wait.
  - A guest can claim any address; see M(corral.virt.virt_addresses) for what is believed.
  - When time runs out it is said what was asked and what was seen of the guest. A lease outlives a reboot, so V(agent)
    is the one to ask with O(state=rebooted). With another O(state) no address can come, and it is refused.
"""
_PORT = ("serials[]", "consoles[]", "channels[]")  # described as `serial` is
_LIVE = "Applied at once where the guest runs."
_FIXED = "Cannot be changed later."


def rows(table: Table = DOMAIN, prefix: str = "") -> t.Iterator[tuple[str, str, Row]]:
    """Option, field and row of everything in a table."""
    for field, row in table.items():
        yield prefix + option_of(field), prefix + field, row
        if isinstance(row, Items):
            yield from rows(row.table, f"{prefix}{field}[].")


_ROWS = {option: (field, row) for option, field, row in (*rows(), *rows(GRAPHICS, "graphics."))}


def _text(path: str, texts: t.Mapping[str, t.Any]) -> list[str]:
    """What is said of an option: its own words, or those of a pattern of its place."""
    alike = [path]
    for port in _PORT:
        if path.startswith(port + "."):
            alike.append("serial." + path[len(port) + 1 :])
    parts = path.split(".")
    last = parts[-1]
    if "iotune" in parts[:-1]:
        alike.append("disks[].iotune.*" + next((end for end in ("_max_length", "_max") if last.endswith(end)), ""))
    if "rom" in parts:
        alike.append("*." + ".".join(parts[parts.index("rom") :]))
    if "bandwidth" in parts[:-1]:
        alike.append("interfaces[].bandwidth.*." + last)
    found = next((texts[one] for one in alike if one in texts), None)
    if found is None and last == "state":
        found = "V(absent) takes it away."
    if found is None:
        raise KeyError(f"{path} has no text")
    return [found] if isinstance(found, str) else list(found)


def _facts(path: str) -> list[str]:
    """What the tables know of an option: its form, and how it reaches a running guest."""
    field, row = _ROWS.get(path, (path, None))
    facts = (
        [f"{row.kind.must[0].upper()}{row.kind.must[1:]}."]
        if row and row.kind.must and not isinstance(row, Items)
        else []
    )
    policy = live.how(field)
    if policy == live.FIXED:
        facts.append(_FIXED)
    elif policy != live.NEXT_BOOT and (row is not None or path in ("title", "description")):
        facts.append(_LIVE)
    return facts


def _keys(option: str, texts: t.Mapping[str, t.Any]) -> list[str]:
    """The keys of a dictionary that a number may stand for: Ansible has no suboptions for those, so they are told in
    words.
    """
    lines = []
    for path, _field, row in rows():
        if path.startswith(option + ".") and "[]" not in path:
            choices = row.kind.option.get("choices")
            facts = [*([f"One of {', '.join(choices)}."] if choices else []), *_facts(path)]
            lines.append(
                " ".join([f"C({path[len(option) + 1 :]}) -", " ".join(_text(path, texts)).rstrip(".") + ".", *facts])
            )
    return lines


def _described(options: t.Mapping[str, t.Any], texts: t.Mapping[str, t.Any], prefix: str = "") -> dict[str, t.Any]:
    """Options with their texts, as Ansible documents them."""
    result: dict[str, t.Any] = {}
    for name, option in options.items():
        path = prefix + name
        entry = {
            key: value
            for key, value in option.items()
            if key in ("type", "elements", "choices", "default", "required", "aliases")
        }
        entry["description"] = _text(path, texts) + (_keys(name, texts) if path in DICTS else []) + _facts(path)
        if "options" in option:
            entry["suboptions"] = _described(
                option["options"], texts, path + ("[]." if option["type"] == "list" else ".")
            )
        result[name] = entry
    return result


def _dumped(options: t.Mapping[str, t.Any]) -> str:
    return yaml.safe_dump({"options": options}, sort_keys=False, width=10000)


_FLAT = _described(GUEST_OPTIONS, yaml.safe_load(_TEXTS))
_MANY = {
    "domains": {
        "description": "The guests.",
        "type": "list",
        "elements": "dict",
        "required": True,
        "suboptions": _FLAT,
    },
}


class ModuleDocFragment:
    """Option texts of a guest."""

    DUPLICATES = r"""
options:
  allow_duplicates:
    description:
      - Make the guest also when another host has a guest of that name, or may have one.
      - By default all hosts that run the task are asked first, once for the task. The host that has the guest changes
        it; the others return unchanged and say where it is.
      - The hosts concerned fail if no host has the guest and several would make it, if several have it, or if a host
        that may have it does not answer.
      - A host that runs the task alone (C(--limit), C(run_once), C(delegate_to)) asks no other host, but does not make
        a guest that the inventory shows on another one.
      - The state C(absent) is done on every host.
    type: bool
    default: false
"""


# Beside the class: checkers read the texts within it without running it.
ModuleDocFragment.DOCUMENTATION = _dumped(_FLAT)  # type: ignore[attr-defined]
ModuleDocFragment.DOMAINS = (  # type: ignore[attr-defined]
    _dumped(_MANY).replace("O(", "O(domains[].").replace("RV(pending)", "C(pending)")
)
