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

from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_graphics import GRAPHICS
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_live
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import DICTS, GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, every

_TEXTS = r"""
name: Name of the guest. It identifies the guest on the host. Letters, digits, C(.), C(_) and C(-); at most 63
  characters.
uuid: UUID of a new guest. Random by default. Cannot be changed later.
renamed_from:
  - Current name of the guest. The guest is renamed to O(name), unless a guest called O(name) already exists and none
    has the current name.
  - The guest must be off, and libvirt must hold no managed save, snapshots or checkpoints of it. With O(uuid), only the
    guest with that UUID is renamed.
  - UUID, disks, seed, MAC addresses and autostart stay the same, and so does the hostname inside the guest. The files
    of its disks keep their names, which begin with the old name of the guest; they still belong to it.
  - The module checks only this host for the new name. The playbook C(corral.virt.rename) checks all hosts, and also
    renames the guest's key in C(known_hosts).
state:
  - V(present) creates or changes the definition. A running guest keeps running, a paused guest stays paused, and a
    stopped guest stays stopped. That also holds after a restart (O(allow_restart)).
  - V(running), V(paused) and V(shutdown) also bring the guest into that state. V(shutdown) asks the guest to shut down
    (by ACPI, then by its agent) and waits O(wait_timeout) seconds.
  - V(destroyed) powers the guest off at once, without a shutdown.
  - V(absent) shuts the guest down and removes its definition with everything that libvirt stores for it (UEFI
    variables, TPM state, managed save, snapshots, checkpoints). It deletes the guest's own disks only with
    O(remove_storage=true).
  - V(reset) and V(rebooted) take effect each time the task runs.
clone_of:
  - Another guest of the same host. If the guest O(name) does not exist, it is created as a copy of the other guest,
    which must be off and is not changed. An existing guest is not created again.
  - The copy takes its definition from the other guest, including title, tags, login user, display passwords and host
    devices. Options of this task override parts of it. UUID, MAC addresses, display ports and firmware variables are
    new, so boot entries and enrolled keys are lost. TPM state, autostart, snapshots and C(apart-) tags are not copied.
  - Disks are copied in full, into the pools where they are. Both guests use the same media, read-only disks and
    shareable disks. Entries of O(disks) change the copies (O(disks[].size), O(disks[].pool), O(disks[].format)),
    replace them (O(disks[].image), O(disks[].source)) or leave them out (O(disks[].state=absent)).
  - The copy always gets a seed. With it, cloud-init sets the hostname, new SSH host keys, a new machine ID, and DHCP
    unless O(cloud_init.network_config) is set. Users and their keys stay. Network configuration that somebody wrote by
    hand stays too, and so does a seed of another tool; leave out its disk. Prepare systems without cloud-init first
    (C(sysprep), C(virt-sysprep)).
  - After an interrupted run, run the same task again, or remove the guest.
  - Excludes O(image), O(renamed_from), O(virt_type) and O(state=absent).
virt_type: How a new guest is run. V(auto) uses hardware virtualisation if the host offers it, and emulation otherwise.
title: Short description on one line, shown by management tools; V('') removes it.
description: Longer description; V('') removes it.
osinfo:
  - Operating system, as libosinfo calls it - an id such as V(http://debian.org/debian/13), or a short one such as
    V(debian13), V(ubuntu24.04) or V(win2k22). virt-manager and other tools read it from libvirt's metadata. V('')
    removes it.
  - For a new guest it also selects what its task does not set. Every system gets virtio devices, and V(q35) where the
    host has it. Windows gets a SATA disk and an C(e1000e) interface, because its setup has no virtio drivers, a clock
    in local time, Hyper-V features and a USB tablet; from Windows 11 and Windows Server 2025 on also
    O(firmware=efi), O(secure_boot) and a TPM 2.0. With O(loader) it selects no firmware, and with O(nvram) no
    O(secure_boot).
  - An image from the catalogue sets it for new guests of the role P(corral.virt.guests#role).
login_user:
  - The image's login user, stored in libvirt's metadata. The inventory plugin sets C(ansible_user) from it, unless
    the inventory sets C(ansible_user) itself. V('') removes it.
  - An image from the catalogue sets it for new guests of the role P(corral.virt.guests#role).
ha:
  - Protects the guest - when its host is dead, the playbook C(recover) of this collection starts it on another host.
    The role P(corral.virt.hypervisor#role) must keep definitions (C(hypervisor_keeps_definitions)) on all hosts that
    share its storage.
  - All disks must be on filesystems that all hosts mount (NFS, CephFS, GlusterFS, GFS2, OCFS2 and others), on block
    devices, or on the network, and at least one on such a filesystem. O(autostart=true) is refused, because a host that
    comes back must not start a guest that runs elsewhere.
ha.mode: V(restart) protects the guest; V(none) removes the protection and all options below. Required with them.
ha.priority: Guests with a higher priority start first. Without it, V(0).
ha.group: Word that reports show with the guest (playbook C(query)). It decides nothing; O(ha.colocate) and O(ha.apart)
  do.
ha.max_restarts: Most restarts on one host, then Pacemaker (P(corral.virt.cluster#role)) moves the guest to another one.
  Without it, there is no limit. C(recover) starts a guest once.
ha.monitor_agent:
  - Whether Pacemaker (P(corral.virt.cluster#role)) also asks the guest's agent each 20 seconds. A guest whose agent has
    answered since it booted, is connected, and then gives no answer three times in a row hangs, and is started again.
  - Requires the channel C(org.qemu.guest_agent.0), which a new guest has. C(recover) does not ask it.
ha.colocate: Words; guests with the same word that C(recover) places at once get one host. In a cluster with Pacemaker,
  they run on one host if it has room.
ha.apart: Words; guests with the same word that C(recover) places at once get different hosts. In a cluster with
  Pacemaker, they never run on one host.
ha.prefer: Hypervisors; C(recover) or Pacemaker chooses one of them if it has room.
vcpus:
  - Number of vCPUs, or a dictionary with the keys below. Required for a new guest.
  - A number changes the current count, and also the maximum if both were equal.
vcpus.maximum: Largest number of vCPUs without a restart
vcpus.current: Current number of vCPUs; an increase up to the maximum is hot-plugged, a decrease waits for the next boot
vcpus.placement: V(auto) lets numad choose the host CPUs
vcpus.cpuset: Host CPUs that the guest may use, such as V(0-3,8)
vcpus.topology.sockets: Sockets; the product of the topology must equal the maximum
vcpus.topology.dies: Dies per socket
vcpus.topology.clusters: Clusters per die
vcpus.topology.cores: Cores per die or cluster
vcpus.topology.threads: Threads per core
vcpus.iothreads: Number of IO threads for disks
vcpus.shares: Relative CPU weight of the guest when host CPUs are contended
vcpus.period_us: Period of the vCPU quota, in microseconds
vcpus.quota_us: Microseconds that each vCPU may run per period; V(-1) for no limit
vcpus.global_period_us: Period for the whole guest
vcpus.global_quota_us: Quota for the whole guest
vcpus.emulator_period_us: Period for QEMU's own threads
vcpus.emulator_quota_us: Quota for QEMU's own threads
vcpus.iothread_period_us: Period for IO threads
vcpus.iothread_quota_us: Quota for IO threads
vcpus.pinning: vCPU pinning, each entry with C(vcpu) and C(cpuset); a C(cpuset) of V('') removes the pin
vcpus.emulator_cpuset: Host CPUs for QEMU's own threads; V('') removes the pin
vcpus.iothread_pinning: IO thread pinning, each entry with C(iothread) and C(cpuset), which may be V('') as above
memory:
  - Memory in MiB, or with a unit (V(512MiB), V(4GiB)), or a dictionary with the keys below. Required for a new guest.
  - The sizes below use the same notation.
memory.maximum: Memory that the guest starts with
memory.current: Memory that the balloon leaves to the guest
memory.hotplug_maximum: Limit up to which memory modules can be plugged in; requires C(slots)
memory.slots: Slots for memory modules
memory.hugepages: Whether huge pages back the guest's memory
memory.hugepage_size: Size of the huge pages, such as V(2MiB) or V(1GiB)
memory.nosharepages: Whether to prevent the host from merging the guest's pages with others
memory.locked: Whether to lock the guest's pages in host memory; set C(hard_limit) with it
memory.source: What backs the guest's memory
memory.access: V(shared) is required for virtiofs
memory.allocation: When the memory is allocated
memory.allocation_threads: Number of threads that allocate the memory when the guest starts; requires
  C(allocation=immediate)
memory.discard: Whether to discard the memory content when the guest stops
memory.hard_limit: Maximum memory that QEMU may use; beyond it, the guest is killed
memory.soft_limit: Limit that is enforced when the host is short of memory
memory.swap_hard_limit: Maximum memory including swap
cpu: CPU model that the guest sees.
cpu.mode: By default a new guest gets V(host-model) with hardware virtualisation and V(maximum) with emulation.
  V(host-passthrough) binds the guest to hosts with the same CPU. M(corral.virt.virt_host_info) computes a model that
  several hosts can run.
cpu.model: CPU model with O(cpu.mode=custom).
cpu.fallback: Whether libvirt may use the nearest model if it does not know the given one.
cpu.vendor: Run the guest only on CPUs of this vendor.
cpu.match: How strictly the host CPU must match.
cpu.check: What libvirt verifies before the guest starts.
cpu.migratable: Omit features that cannot be migrated, with O(cpu.mode=host-passthrough) or V(maximum).
cpu.cache: CPU cache that the guest sees.
cpu.cache.mode: V(passthrough) shows the host's cache.
cpu.cache.level: Level of an emulated cache.
cpu.maxphysaddr: Width of physical addresses.
cpu.maxphysaddr.mode: How the width is determined.
cpu.maxphysaddr.bits: Width in bits.
cpu.features: CPU features in addition to those of the model.
cpu.features[].name: Name of the feature, such as C(vmx).
cpu.features[].policy: Whether the guest has the feature. Required for a new entry.
numa: NUMA topology of the guest, and the host nodes that provide its memory.
numa.cells: NUMA nodes of the guest. The sum of their memory is the guest's memory.
numa.cells[].id: Number of the node, starting at 0.
numa.cells[].cpus: vCPUs of the node.
numa.cells[].memory: Memory of the node. Required for a new entry.
numa.cells[].access: Whether other processes may share the node's memory.
numa.cells[].discard: Discard the memory content when the guest stops.
numa.cells[].distances: Distances to other nodes.
numa.cells[].distances[].id: Number of the other node.
numa.cells[].distances[].value: Distance; 10 is the distance of a node to itself.
numa.mode: How strictly the memory must come from O(numa.nodeset).
numa.nodeset: Host nodes that provide the memory. V('') removes them, and O(numa.mode) with them.
numa.placement: V(auto) lets numad choose the nodes.
numa.nodes: Memory placement for individual nodes of the guest.
numa.nodes[].cell: Node of the guest.
numa.nodes[].mode: How strictly the memory must come from the nodeset. Required for a new entry.
numa.nodes[].nodeset: Host nodes. Required for a new entry.
machine: Machine type. V(q35) and V(pc) match any version of the type.
firmware: Firmware of a new guest; libvirt chooses the files.
secure_boot: Boot only signed code, with the firmware vendor's keys enrolled. Requires O(firmware=efi).
loader: Explicit firmware file, instead of O(firmware).
loader.path: Path of the firmware file.
loader.type: V(pflash) for UEFI.
loader.readonly: The guest cannot write to the file.
loader.secure: The firmware implements secure boot.
nvram: Storage of the UEFI variables, if O(firmware) does not choose it.
nvram.path: Path of the variables file.
nvram.template: File from which the variables file is created.
boot: Boot settings of the guest.
boot.order: Device types in boot order. Excludes O(disks[].boot_order) and O(interfaces[].boot_order), which are more
  specific.
boot.menu: Show the firmware's boot menu.
boot.menu_timeout_ms: Duration of the boot menu, in milliseconds.
boot.reboot_timeout_ms: Milliseconds until the next attempt if no device could be booted; V(-1) for never.
boot.kernel: Kernel on the host that the guest boots directly; V('') boots from disk again.
boot.initrd: Initial RAM disk for O(boot.kernel).
boot.cmdline: Command line of O(boot.kernel).
features: Machine features.
features.acpi: ACPI. Enabled in a new guest.
features.apic: APIC. Enabled in a new guest.
features.pae: Physical address extension, for 32-bit guests.
features.smm: System management mode. Secure boot requires it, and libvirt then enables it.
features.vmport: VMware backdoor port; V(false) saves time in guests that probe for it.
features.pmu: Performance counters.
features.kvm_hidden: Hide KVM from the guest.
features.kvm_hint_dedicated: Tell the guest that its vCPUs run on dedicated host CPUs.
features.ioapic: Driver that emulates the interrupt controller.
features.hyperv: Hyper-V enlightenments for Windows guests.
features.hyperv.mode: V(passthrough) enables everything that the host supports.
features.hyperv.relaxed: Relaxed constraints on timers.
features.hyperv.vapic: Virtual APIC.
features.hyperv.vpindex: Virtual processor index.
features.hyperv.runtime: Processor time spent running guest code.
features.hyperv.synic: Synthetic interrupt controller.
features.hyperv.reset: Reset through the hypervisor.
features.hyperv.frequencies: Frequency registers.
features.hyperv.reenlightenment: Notification of migrations.
features.hyperv.tlbflush: TLB flush through the hypervisor.
features.hyperv.ipi: Inter-processor interrupts through the hypervisor.
features.hyperv.evmcs: Enlightened VMCS.
features.hyperv.avic: Hardware-virtualised interrupt controller.
features.hyperv.spinlocks: Notify the hypervisor of long spinlock waits.
features.hyperv.spinlocks_retries: Number of attempts before the notification.
features.hyperv.stimer: Synthetic timers.
features.hyperv.stimer_direct: Synthetic timers in direct mode, without messages.
features.hyperv.vendor_id: Hypervisor vendor ID that the guest sees.
clock: Hardware clock of the guest.
clock.offset: V(localtime) suits systems that keep local time in the hardware clock.
clock.timezone: Time zone with O(clock.offset=timezone).
clock.timers: Timers.
clock.timers[].name: Name of the timer.
clock.timers[].present: Whether the guest has the timer.
clock.timers[].tickpolicy: How missed ticks are handled.
clock.timers[].track: What the timer tracks.
clock.timers[].frequency: Frequency in hertz, for C(tsc).
clock.timers[].mode: How the timer is provided, for C(tsc).
on_poweroff: Action when the guest powers off.
on_reboot: Action when the guest reboots. V(destroy) suits installers.
stop_on_reboot: Short for O(on_reboot=destroy); V(false) is short for V(restart).
on_crash: Action when the guest crashes.
on_lockfailure: Action when a lock on the guest's storage is lost.
pm: Power management.
pm.suspend_to_mem: Whether the guest can suspend to memory.
pm.suspend_to_disk: Whether the guest can suspend to disk.
serial: The first serial port. For several ports, see O(serials).
serial.type: What the port is connected to. C(virsh console) opens V(pty).
serial.path: File, device or socket.
serial.append: Append to the file instead of truncating it.
serial.mode: V(bind) waits for a connection, V(connect) opens one.
serial.host: Address to listen on or to connect to, with V(tcp).
serial.service: TCP port.
serial.tls: Use TLS with the host's certificates for character devices.
serial.protocol: Whether to use the telnet protocol.
serial.log: File that also receives all output of the guest. If waiting for the guest fails, the error shows its last
  lines.
serial.log_append: Append to the log file instead of truncating it.
rng: Entropy device. A new guest has one.
rng.model: V(none) removes the device.
rng.backend: Source of entropy; V(builtin) is QEMU itself.
rng.source: File of the V(random) backend.
rng.rate_bytes: Maximum number of bytes per period.
rng.rate_period_ms: Period in milliseconds.
watchdog: Watchdog device.
watchdog.model: V(itco) requires libvirt 9.1; V(none) removes the device.
watchdog.action: Action when the guest stops resetting the watchdog.
video: Video device.
video.model: V(none) removes the device.
video.vram: Video memory.
video.ram: Size of the second memory region of V(qxl).
video.vgamem: Size of the framebuffer of V(qxl).
video.heads: Number of screens.
video.accel3d: 3D acceleration.
video.resolution: Initial resolution.
tpm: TPM device, emulated by swtpm by default; that requires the packages C(swtpm) and C(swtpm-tools) on the host.
tpm.model: V(none) removes the device; libvirt deletes its state when the guest is removed.
tpm.type: V(passthrough) assigns the host's TPM to this guest.
tpm.version: TPM version.
tpm.persistent_state: Keep the state of a transient guest.
tpm.path: Device on the host with O(tpm.type=passthrough).
sound: Sound device. A new guest has none.
sound.model: V(virtio) requires libvirt 10.4; V(none) removes the device.
balloon: Device that returns guest memory to the host.
balloon.model: V(none) for a guest whose memory never changes.
balloon.autodeflate: Return memory to the guest before the guest kills processes.
balloon.free_page_reporting: Return free pages to the host immediately.
balloon.stats_period_s: Interval at which the guest reports memory statistics; V(0) for never.
vsock: Socket between host and guest.
vsock.model: V(none) removes the device.
vsock.auto: Let libvirt choose the CID.
vsock.cid: Context ID (CID) of the guest, unique on the host.
panic: Device through which the guest reports a crash.
panic.model: V(pvpanic) requires libvirt 9.1; V(none) removes the device.
iommu: IOMMU of the guest.
iommu.model: V(none) removes the device.
controllers: Controllers, by type and index, if libvirt's defaults do not fit. The first disk on bus V(scsi) adds a
  C(virtio-scsi) controller.
controllers[].type: Controller type.
controllers[].index: Index among the controllers of this type, starting at 0.
controllers[].model: Model, such as C(virtio-scsi) or C(qemu-xhci).
controllers[].queues: Number of queues of a C(virtio-scsi) controller.
controllers[].iothread: IO thread that serves the controller.
controllers[].max_sectors: Maximum request size, in sectors.
controllers[].ports: Number of ports.
controllers[].vectors: Number of interrupt vectors.
disks:
  - Disks, by name. Unlisted disks stay unchanged.
  - A new guest without O(disks) gets one disk, C(system), of 8 GiB, or of the size of its image if that is larger.
disks[].name: Identifies the disk, and is part of the name of its file. For disks that the collection did not create,
  use the target (V(vda)).
disks[].state: V(absent) detaches the disk and keeps its file.
disks[].size: In GiB, or with a unit. A larger size grows the disk, even while the guest runs. A smaller size is refused
  (M(corral.virt.virt_image) can shrink the disk while the guest is off). A logical volume is rounded up to whole
  extents; other block devices do not grow while the guest is off. For existing disks outside storage pools, such as
  those on the network or NVMe devices, the size is refused, or ignored with a warning.
disks[].pool:
  - Storage pool of a new disk, of type C(dir), C(fs), C(netfs) or C(logical). Defaults to V(default).
  - In a pool of type C(logical) the disk is a logical volume with all its space, raw and filled with zeros; a copy of
    its image, if it has one. The module creates and grows these only on the hypervisor itself.
  - An existing disk that is in another pool stays there, with a note, unless O(move_disks) is set.
disks[].image: Image from which a new disk is created. An existing disk keeps its backing image.
disks[].image_pool: Pool of O(disks[].image). Defaults to O(disks[].pool); required where that is of type C(logical),
  which has no files.
disks[].thin_pool:
  - Thin pool in the volume group of O(disks[].pool), as RV(corral.virt.virt_pool_info#module:pools[].thin_pools) names
    it. The new disk is a thin volume, which takes room from that pool as the guest writes.
  - A disk is not created or grown in a thin pool that is not active, does not zero what it gives out, or whose data or
    metadata is more than 90 % full, or if all its volumes together would have more than four times its size. Placement
    keeps to the same limits.
  - An existing disk of that volume group stays what it is; M(corral.virt.virt_disk_move) moves it into a thin pool. One
    that O(move_disks) moves to O(disks[].pool) goes into this thin pool. A copy by O(clone_of) in the pool of its
    original is in the same one.
disks[].clone:
  - How the disk is created from O(disks[].image). V(overlay) stores the guest's writes in the disk, and reads
    everything else from the image.
  - V(copy) copies the whole image, so that the disk has no backing image; then O(disks[].format) can also be V(raw).
  - Defaults to V(overlay); to V(copy) in a pool of type C(logical), where that is the only way.
disks[].device: Device type. A C(lun) passes SCSI commands through to a block device.
disks[].source: An existing file, or a block device below C(/dev). Excludes O(disks[].image), O(disks[].clone) and
  O(disks[].size). V('') ejects the medium of a CD-ROM, also one that another option describes.
disks[].volume: An existing volume, as C(pool/volume). Without O(disks[].format), one that is a device is V(raw).
disks[].url: A medium or disk on the network; http, https, ftp, ftps, tftp, nbd or iscsi. For others, and for those that
  need a login, use O(disks[].network).
disks[].network:
  - A disk on the network that O(disks[].url) cannot describe. It excludes O(disks[].source), O(disks[].volume),
    O(disks[].url) and O(disks[].nvme). The disk exists already; the collection neither creates nor removes its content.
  - Changing where a disk is replaces its whole source, including the login. O(disks[].format) stays unchanged; a new
    disk is V(raw).
disks[].network.protocol: Protocol. Required, also to change another option of O(disks[].network).
disks[].network.name: Image in Ceph, as C(pool/image) or C(pool/namespace/image); export of an NBD server, which can
  have one without a name; or IQN and LUN of an iSCSI target, as C(iqn.2026-01.org.example:disk/1).
disks[].network.hosts: All servers; V(nbd) and V(iscsi) have one. A server that is not listed is removed. Without any,
  the Ceph monitors are those of O(disks[].network.config), by default C(/etc/ceph/ceph.conf) on the host.
disks[].network.hosts[].name: Host name or IP address.
disks[].network.hosts[].port: Port. Defaults to that of the protocol.
disks[].network.hosts[].state: V(absent) removes the server, as omitting it does.
disks[].network.socket: UNIX socket of an NBD server on the host. Excludes O(disks[].network.hosts).
disks[].network.tls: Whether the connection to the NBD server is encrypted; QEMU's configuration on the host has the
  certificates.
disks[].network.snapshot: Snapshot of the image. V('') for the image itself.
disks[].network.config: Configuration file of the Ceph cluster on the host.
disks[].network.initiator: IQN with which the guest logs in to the iSCSI target.
disks[].network.auth:
  - User who logs in. The secret itself is never part of the definition, and no option takes it; it is stored in
    libvirt on each host that runs the guest.
  - 'Describe the secret in a file: for Ceph C(<secret ephemeral="no" private="yes"><uuid>UUID</uuid><usage
    type="ceph"><name>NAME</name></usage></secret>). Define it with C(virsh secret-define FILE), and set its value
    with C(virsh secret-set-value UUID --file KEYFILE), where the file holds the value in base64 as C(ceph auth get-key)
    prints it.'
  - For iSCSI, the C(usage) of the secret has C(type="iscsi") and C(<target>NAME</target>). With C(--plain), the file
    holds the password itself, without a newline.
disks[].network.auth.username: Name of the user; for Ceph without C(client.). V('') removes the login.
disks[].network.auth.secret_uuid: UUID of libvirt's secret. Excludes O(disks[].network.auth.secret_usage).
disks[].network.auth.secret_usage: Usage name of libvirt's secret. Excludes O(disks[].network.auth.secret_uuid).
disks[].nvme:
  - An NVMe device of the host, which QEMU drives by itself. It excludes O(disks[].source), O(disks[].volume),
    O(disks[].url) and O(disks[].network).
  - Like a host device, it ties the guest to its host. While the guest runs, the host has no access to the device.
disks[].nvme.address: PCI address of the NVMe controller, as C(lspci -D) prints it. Required, also to change another
  option of O(disks[].nvme).
disks[].nvme.namespace: Namespace on the controller. Required for a new disk; the first one is V(1).
disks[].nvme.managed: Whether libvirt detaches the controller from the host's driver at start, and returns it when the
  guest stops. Defaults to V(true) for a disk that becomes an NVMe device.
disks[].startup_policy: Action if the medium is missing at start; for CD-ROMs and floppies.
disks[].format: Format of the file. Defaults to V(qcow2) for disks and V(raw) for media, block devices, NVMe devices and
  disks on the network.
disks[].bus: Bus. Defaults to V(virtio) for disks, V(sata) for CD-ROMs, V(scsi) for LUNs and V(fdc) for floppies.
disks[].target: Device name on the bus (V(vdb)). Defaults to the next free name.
disks[].rotation_rate: Rotations per minute reported to the guest; 1 for an SSD.
disks[].removable: Whether a USB disk is removable.
disks[].cache: Cache mode.
disks[].discard: Whether discarded blocks are returned to the host.
disks[].detect_zeroes: Whether QEMU detects writes of zeroes and stores them as holes.
disks[].io: QEMU's IO mode. V(io_uring) requires libvirt 6.3.
disks[].error_policy: Action when the host fails to read or write.
disks[].rerror_policy: Action when the host fails to read.
disks[].iothread: IO thread that serves the disk, with bus V(virtio).
disks[].queues: Number of queues, with bus V(virtio).
disks[].copy_on_read: Copy data that is read from the image into the disk.
disks[].serial: Serial number shown to the guest.
disks[].wwn: World wide name shown to the guest.
disks[].vendor: Vendor shown to the guest, with bus V(scsi).
disks[].product: Product shown to the guest, with bus V(scsi).
disks[].logical_block_size: Logical block size reported to the guest, in bytes.
disks[].physical_block_size: Physical block size reported to the guest, in bytes.
disks[].readonly: The guest cannot write to the disk.
disks[].shareable: Several guests may use the file at the same time.
disks[].transient: Discard writes when the guest stops.
disks[].boot_order: Position in the boot order.
disks[].iotune: Limits, in bytes and requests per second; V(0) for no limit. C(total) excludes C(read) and C(write).
disks[].iotune.*_max: Burst limit.
disks[].iotune.*_max_length: Maximum duration of a burst, in seconds.
disks[].iotune.*: Limit.
interfaces:
  - Network interfaces, by name. Unlisted interfaces stay unchanged.
  - A new guest without O(interfaces) gets one interface, C(eth0), on bridge C(br0).
interfaces[].name: Identifies the interface in the definition; not its name inside the guest. For interfaces that the
  collection did not create, use the MAC address.
interfaces[].state: V(absent) unplugs the interface.
interfaces[].type: Determined by O(interfaces[].bridge), O(interfaces[].network), O(interfaces[].device) or
  O(interfaces[].address) by default.
interfaces[].bridge: Bridge on the host.
interfaces[].network: libvirt virtual network.
interfaces[].portgroup: Port group of the virtual network.
interfaces[].device: Host network device below a macvtap device (type V(direct)).
interfaces[].mode: Mode of the macvtap device.
interfaces[].address: PCI address of a host network device to assign to the guest (type V(hostdev)).
interfaces[].managed: Let libvirt detach the device from the host and return it.
interfaces[].mac: MAC address. By default derived from the guest's UUID and the interface's name, so that it never
  changes.
interfaces[].model: Device model. Defaults to V(virtio).
interfaces[].driver: Backend that processes the packets.
interfaces[].queues: Number of queues of a virtio device.
interfaces[].mtu: MTU in bytes.
interfaces[].vlan: VLAN tags, if the bridge or network supports them; several tags make a trunk.
interfaces[].virtualport: Type of virtual switch port.
interfaces[].isolated: Isolate the guest from other isolated guests on the same bridge.
interfaces[].link: Whether the link is up.
interfaces[].filterref:
  - libvirt network filter. Start with C(clean-traffic), which is part of libvirt. It restricts the guest to sending
    with its own MAC and IP addresses.
  - Rules for C(mac), C(vlan), C(stp), C(arp), C(rarp), C(ip) and C(ipv6) always work. Rules for C(tcp), C(udp),
    C(icmp), C(all) and the like have no effect if the host's packet filter does not process bridged packets
    (C(net.bridge.bridge-nf-call-iptables) is 0). In that case the module refuses a filter that contains such rules or
    refers to such a filter.
interfaces[].filterref.name: Name of the filter.
interfaces[].filterref.parameters: Parameters of the filter.
interfaces[].filterref.parameters[].name: Name.
interfaces[].filterref.parameters[].value: Value.
interfaces[].trust_guest_rx_filters: Allow the guest to change its MAC address and receive filters.
interfaces[].target: Name of the device on the host.
interfaces[].boot_order: Position in the boot order.
interfaces[].guest_address: PCI address of the interface in the guest, from which systems derive its name (C(enp1s0)). A
  new interface gets one from libvirt.
interfaces[].bandwidth: Traffic limits.
interfaces[].bandwidth.inbound: Towards the guest.
interfaces[].bandwidth.outbound: From the guest.
interfaces[].bandwidth.*.average: Average rate in KiB per second.
interfaces[].bandwidth.*.peak: Peak rate in KiB per second during a burst.
interfaces[].bandwidth.*.burst: Size of a burst in KiB.
serials: Serial ports, by number.
serials[].port: Number of the port, starting at 0.
serials[].target: Port type.
consoles: Consoles in addition to the first serial port, by number.
consoles[].port: Number of the console, starting at 0.
consoles[].target: Console type.
channels: Channels between host and guest, by name. A new guest has one for the guest agent.
channels[].name: Name of the port in the guest; V(org.qemu.guest_agent.0) for the guest agent, V(com.redhat.spice.0) for
  SPICE.
channels[].type: What the channel is connected to.
inputs: Input devices, by type and bus. A tablet synchronises the pointer in a remote display.
inputs[].type: Device type.
inputs[].bus: Bus.
hostdevs: Host devices to assign to the guest.
hostdevs[].name: Identifies the device in the definition.
hostdevs[].type: Device type. Required for a new entry.
hostdevs[].address: PCI address.
hostdevs[].vendor: USB vendor ID.
hostdevs[].product: USB product ID.
hostdevs[].bus: USB bus number.
hostdevs[].device: USB device number.
hostdevs[].startup_policy: Action if the USB device is missing at start.
hostdevs[].managed: Let libvirt detach the device from the host and return it.
hostdevs[].boot_order: Position in the boot order.
"*.rom": Option ROM of the device.
"*.rom.bar": Whether the guest sees the ROM.
"*.rom.file": File to use as the ROM.
filesystems: Host directories that the guest can mount.
filesystems[].name: Mount tag in the guest.
filesystems[].source: Directory on the host. Required for a new entry.
filesystems[].driver: V(virtiofs), which requires O(memory) with C(access=shared), or V(path) for 9p.
filesystems[].accessmode: How file ownership and permissions are mapped, with V(path).
filesystems[].readonly: The guest cannot write to the directory.
filesystems[].queue: Queue length of V(virtiofs).
filesystems[].binary: Path of the virtiofsd program, instead of the installed one.
filesystems[].xattr: Whether to support extended attributes.
filesystems[].cache: What the guest may cache.
tags: Tags, stored in libvirt's metadata. The inventory creates groups from them. V([]) removes all tags.
graphics: Remote display. A new guest has none by default.
graphics.type: Protocol; V(none) removes the display.
graphics.listen: Listen address. Defaults to V(127.0.0.1) for a new display. A non-loopback address requires
  O(graphics.password), TLS, or O(graphics.allow_unprotected).
graphics.port: Port. By default, or with V(-1), libvirt chooses it.
graphics.tls_port: TLS port of V(spice).
graphics.tls: Allow V(spice) only over TLS. For V(vnc) the host sets this for all guests (C(vnc_tls) in C(qemu.conf)).
graphics.websocket: WebSocket port of V(vnc), for browsers; V(-1) lets libvirt choose it.
graphics.password: Password of the display. VNC uses only its first 8 characters.
graphics.allow_unprotected: Allow a display on a non-loopback address without a password and TLS. Anyone who can connect
  to its port then controls the guest's screen and keyboard. Without this option the module refuses. For an existing
  display that the task does not mention, it only warns. Not stored in the definition.
graphics.keymap: Keyboard layout of the viewer.
graphics.share_policy: What happens to connected viewers when another one connects, for V(vnc).
autostart: Start the guest when the host starts.
image:
  - Short for the image of the first new disk; without O(disks), of the only disk, C(system).
  - Used only to create the disk. An existing guest keeps its disk.
nic_profile: Name of a list in the variable C(virt_nic_profiles), whose entries are used as O(interfaces). An entry of
  the same name in O(interfaces) overrides individual fields; other entries are added.
disk_profile: Name of a list in the variable C(virt_disk_profiles), whose entries are used as O(disks). An entry of the
  same name in O(disks) overrides individual fields; other entries are added.
xml:
  - Settings that no option covers, as a fragment of libvirt's C(<domain>) XML. The module merges its elements into the
    definition before it applies the other options.
  - An existing element that already matches stays unchanged. An element that a domain has once is edited; a device or
    other repeatable element is added. Nothing is removed.
  - The diff hides passwords, secrets, tokens, cookies and URL queries. Ansible's own output of the task hides the whole
    value.
cloud_init:
  - Seed for cloud-init (NoCloud), on a read-only virtio disk. The module creates the guest's SSH host key with the
    seed, so that the key can be trusted before the first connection. If user data contains C(ssh_keys), the best of
    those (Ed25519, ECDSA, RSA) is trusted instead.
  - Each part can be a dictionary or YAML text. A value that a seed cannot hold is refused with its place.
cloud_init.user_data: User data. Text must begin with a line that cloud-init or cloudbase-init knows, such as
  C(#cloud-config), C(#!/bin/sh) or C(#ps1_sysnative), and is passed on unchanged.
cloud_init.vendor_data: Vendor data, in the same forms as user data except MIME. It shares its file with the guest's SSH
  host key; both take effect.
cloud_init.meta_data: Meta data. By default C(local-hostname) is the guest's name, and C(instance-id) is derived from
  the content.
cloud_init.network_config: Network configuration, version 1 or 2, also below a key C(network). Without it, cloud-init
  requests an address by DHCP.
cloud_init.method:
  - V(nocloud) creates a seed for cloud-init in the guest.
  - V(virt_customize) is for images without cloud-init. C(virt-customize) applies the same options to the guest's disk
    before its first start. It must be installed on the hypervisor (C(libguestfs-tools), on Enterprise Linux
    C(guestfs-tools)).
  - With V(virt_customize), user data is a C(#cloud-config) of C(hostname), C(fqdn), C(timezone), C(users),
    C(ssh_authorized_keys) (for root), C(ssh_keys), C(ssh_deletekeys), C(write_files), C(packages) and C(runcmd) (the
    last two run at the first boot). The network configuration is of version 2 with only C(ethernets), for netplan or
    NetworkManager. Anything that cannot be applied is refused.
cloud_init.on_change:
  - Action if these options differ from the seed that the guest was created with.
  - V(ignore) keeps the seed and reports the difference. V(next_boot) writes a new seed with a new instance-id, so that
    cloud-init runs again. V(refuse) fails.
cloud_init.schema:
  - Action if C(#cloud-config) user data or vendor data does not match cloud-init's own schema, such as C(runcmd) with a
    text, or a misspelled key. cloud-init reports this only in the log of the guest.
  - V(warn) warns, V(refuse) fails before anything is changed, V(ignore) does not check.
  - The schema is that of cloud-init 26.2. An image with another version may take more or fewer keys. The check runs on
    the controller and needs C(jsonschema) there; without it, a warning says that nothing was checked.
apply:
  - V(both) changes the definition and, where possible, the running guest. Remaining changes are listed in RV(pending).
  - V(next_boot) changes only the definition.
  - V(live) changes only the running guest, until it stops, and refuses changes that cannot be applied live.
allow_restart: Shut down a running guest and start it again if a change requires it. Otherwise such changes are listed
  in RV(pending).
move_disks:
  - Move existing disks that are in another pool than O(disks[].pool), even while the guest runs, as
    M(corral.virt.virt_disk_move) does. Without it, a note names each of them.
  - They move after all other changes. Not available with C(async).
snapshot:
  - V(before) takes a snapshot of an existing guest before this task changes it, with a name made from the time (UTC)
    such as V(before-20261128T150102Z). Nothing is changed if it cannot be taken, and none is taken if there is nothing
    to change. C(snapshot) of the result is its name, and the error of a change that fails has the command that goes
    back to it.
  - Delete it when all is well (M(corral.virt.virt_snapshot)). Not available with C(async).
force:
  - Power off a guest that does not shut down within O(wait_timeout), or reset one that does not reboot.
  - A guest that has no system is not waited for so long. If its agent is not connected, no more was read from its disks
    than firmware reads, and it has read and sent nothing since it was asked 10 seconds ago, it is powered off then.
    A note of the result tells what was seen of each guest that was powered off.
force_off: With O(state=absent), power off the guest at once, without asking it to shut down.
remove_storage:
  - With O(state=absent), also delete the disks that the collection created for this guest and that nobody else uses.
    The task is refused, and the guest stays, if such a disk is in an inactive storage pool, or exists but is in no
    pool.
  - The guest's record names each disk with the guest, the host and the file (inode, time of creation, and a mark of
    the collection). A disk is kept, with a note that has the reason and a command, if the record is that of another
    guest or host (a copied definition), if the guest does not have the disk any more, or if another file has its
    name. Entries that older versions wrote have only a path. They count after a run with another O(state) has found
    that the guest alone uses the disk; that run completes the record, once, as a change.
  - Right before a disk is deleted it is moved aside, into C(.corral/.removed) of its directory. There the task looks
    again who uses it, because shutting down a guest can take minutes. Used are disks of all guests of the host,
    running, stored and saved, their snapshots and backup jobs with all backing files, backing files of volumes, files
    of loop devices, and images that a QEMU process has open. A disk that is in use by then, or another file, is given
    back, and the task fails. What an interrupted task has moved aside the next removal with O(remove_storage=true)
    finishes or gives back.
  - With a C(uri) of another machine, and in pools that are no directories, nothing is moved. The users are asked
    again right before the deletion, but its files are not read, so an overlay outside its pools, or a link to a disk,
    is not seen.
keep_shared:
  - With O(remove_storage=true), keep disks on filesystems that other hosts may mount, such as NFS, with a note that has
    the command that deletes them. A guest of another host may use them, and be off.
  - The playbook C(corral.virt.purge) sets this where not all hypervisors have answered.
keep_removed_h:
  - With O(remove_storage=true), hours (V(0) to V(8760)) for which deleted disks are kept in C(.corral/.removed) of
    their directory, together with a note. V(0) deletes them at once. The next removal of a guest with its disks,
    restore in place or revert on the host deletes those whose time is over, unless they are in use again.
  - The time is over when it is by the host's clock, and the host has also been up for as long since then. Time before a
    reboot is not counted, and so a clock that jumps ahead deletes nothing.
  - To bring a disk back, move it to its old name (C(mv -n /PATH/.corral/.removed/NAME.disk /PATH/NAME)), run C(virsh
    pool-refresh POOL), and delete its note C(NAME.json). RV(corral.virt.virt_host_info#module:host.removed_disks) lists
    the disks with these commands.
  - It has no effect on disks that are not files in a directory pool of the machine on which the module runs.
wait: Wait until a shutdown or reboot is complete. V(false) only requests it.
wait_timeout: Seconds to wait for a shutdown, a reboot or an address. A guest that boots slowly on a busy host has more
  time for an address, until it has used as many seconds of CPU.
wait_for_ip:
  - Wait until the guest has an address, and record it in the guest's metadata, where the inventory plugin finds it. All
    guests of a call wait in parallel, after all other steps. Recording an address does not count as a change.
  - V(lease) queries libvirt's DHCP server, V(arp) the host's neighbour table, V(packets) the packets that the guest
    sends or gets from a DHCP server (captured at its interface, by root on the host itself), V(agent) the guest agent,
    and V(any) all of these. V(unknown) is like V(any), but does not wait for a guest whose address is set in its
    O(cloud_init) or was recorded since its last start. V(none) does not wait.
  - A guest can claim any address; see M(corral.virt.virt_addresses) for which addresses are accepted.
  - On a timeout, the error names the sources that were queried and describes the guest's last observed state. A lease
    outlives a reboot, so use V(agent) with O(state=rebooted). Other states than V(running) and V(rebooted) are refused,
    because no address can appear.
"""
_PORT = ("serials[]", "consoles[]", "channels[]")  # described as `serial` is
_LIVE = "Applied at once if the guest runs."
_FIXED = "Cannot be changed later."


_ROWS = {option: (field, row) for option, field, row in (*every(DOMAIN), *every(GRAPHICS, "graphics."))}


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
        found = "V(absent) removes it."
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
    if row and row.since:
        facts.append("Requires libvirt {}.{} or later.".format(*row.since))
    policy = plan_live.how(field)
    if policy == plan_live.FIXED:
        facts.append(_FIXED)
    elif policy not in (plan_live.NEXT_BOOT, plan_live.VCPUS) and (row is not None or path in ("title", "description")):
        facts.append(_LIVE)
    return facts


def _keys(option: str, texts: t.Mapping[str, t.Any]) -> list[str]:
    """The keys of a dictionary that a number may stand for: Ansible has no suboptions for those, so they are told in
    words.
    """
    lines = []
    for path, _field, row in every(DOMAIN):
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
      - Create the guest even if another host has, or may have, a guest of the same name.
      - By default the task first queries all hosts that run it, once for the task. The host that has the guest changes
        it; the other hosts return unchanged and name the host that has it.
      - The task fails on the affected hosts if no host has the guest and several would create it, if several hosts have
        it, or if a host that may have it does not answer.
      - A host that runs the task alone (C(--limit), C(run_once), C(delegate_to)) queries no other host, but does not
        create a guest that the inventory shows on another host.
      - The state C(absent) is applied on every host.
    type: bool
    default: false
"""


# Beside the class: checkers read the texts within it without running it.
ModuleDocFragment.DOCUMENTATION = _dumped(_FLAT)  # type: ignore[attr-defined]
ModuleDocFragment.DOMAINS = (  # type: ignore[attr-defined]
    _dumped(_MANY).replace("O(", "O(domains[].").replace("RV(pending)", "C(pending)")
)
