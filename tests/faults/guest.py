"""The guest that is moved: made on a host, judged by what it wrote."""

from __future__ import annotations

import dataclasses

from ansible_collections.corral.virt.tests.faults.boot_sector import COUNTER, SECTOR, boot_sector, count
from ansible_collections.corral.virt.tests.faults.hosts import IMAGES, Host, until

__all__ = ["BASE", "NAME", "PAYLOAD_MIB", "Guest", "make_base", "subjects"]

NAME = "subject"
PAYLOAD_MIB = 40
MEMORY_MIB = 64
PAGES_PER_TICK = 20  # 1.4 MiB/s
SIZE_MIB = 256
BASE = "tiny.qcow2"
_UUID = "5c1b0a52-90c4-4c8e-9a35-6a9f3d1d{:04}"
_JOURNAL_MIB, _PAYLOAD_AT_MIB, _PATTERN = 4, 8, 0x5A
_SECOND_MIB = 32
_SEEN_S = 20


def make_base(host: Host, directory: str) -> str:
    """An image that boots the guest; returns its sha256."""
    raw, image = f"{directory}/tiny.raw", f"{directory}/{BASE}"
    host.run(f"mkdir -p {directory}")
    host.path(raw).write_bytes(boot_sector(PAGES_PER_TICK))
    host.run(f"truncate -s {SIZE_MIB}M {raw}; qemu-img convert -O qcow2 {raw} {image}; rm {raw}")
    return host.run(f"sha256sum {image}").split()[0]


def subjects(kinds: str, base: str) -> list[Guest]:
    """A guest of each of these kinds."""
    made = [Guest(kind, base, uuid=_UUID.format(number)) for number, kind in enumerate(kinds.split(), 1)]
    return [dataclasses.replace(guest, name=NAME + guest.uuid[-1].replace("1", "")) for guest in made]


@dataclasses.dataclass
class Guest:
    """One of a kind of storage: `delta` stands on the base, `full` alone; `cold` is off, and stands alone."""

    kind: str
    base: str  # path of the base, the same on all hosts
    directory: str = IMAGES
    name: str = NAME
    bridge: str = "br0"
    uuid: str = _UUID.format(1)
    second: str = ""  # path of another disk, in another pool
    reads_second: bool = False  # and never writes to it
    autostart: bool = False
    written: int = 0

    @property
    def disk(self) -> str:
        """Its path, the same on all hosts."""
        return f"{self.directory}/{self.name}.qcow2"

    def make(self, host: Host) -> None:
        """Have it there, with data of its own; on, unless it is a cold one."""
        backing = f"-b {self.base} -F qcow2" if self.kind == "delta" else ""
        copy = f"qemu-img create -q -f qcow2 {backing} {self.disk} {SIZE_MIB}M"
        if self.kind != "delta":
            copy = f"qemu-img convert -O qcow2 {self.base} {self.disk}"
        host.run(copy)
        # What the journal is written into is there before: a host that dies forgets which clusters QEMU had just taken.
        journal = f"-c 'write -q -P 0 {SECTOR} {_JOURNAL_MIB * 2**20 - SECTOR}'"
        host.run(f"qemu-io {journal} -c 'write -q -P {_PATTERN} {_PAYLOAD_AT_MIB}M {PAYLOAD_MIB}M' {self.disk}")
        if self.second:
            host.run(f"qemu-img create -q -f qcow2 {self.second} 64M")
            host.run(f"qemu-io -c 'write -q -P {_PATTERN} 1M {_SECOND_MIB}M' {self.second}")
        host.run("for pool in $(virsh -q pool-list --name); do virsh -q pool-refresh $pool; done")
        host.run("virsh -q define /dev/stdin", given=self.xml())
        if self.autostart:
            host.virsh(f"autostart {self.uuid}")
        # A libvirtd that was killed numbers guests anew, and systemd may still have one of that number and name: each
        # try has another.
        if not until(lambda: host.virsh(f"start {self.uuid} 2>&1", ok=False) == "", _SEEN_S, every_s=1):
            host.virsh(f"start {self.uuid}")
        if not until(lambda: self.counter(host) > 40, _SEEN_S):
            raise RuntimeError(f"{self.name} did not begin to write on {host.name}")
        if self.kind == "cold":
            self.ends(host)
            if not until(lambda: host.state(self.uuid) == "shut off", _SEEN_S):
                raise RuntimeError(f"{self.name} did not switch itself off on {host.name}")
            self.written = self.on_disk(host)

    def xml(self) -> str:
        """What an administrator would define."""
        second = f'''<disk type="file" device="disk"><driver name="qemu" type="qcow2"/><source file="{self.second}"/>
          <target dev="vdb" bus="virtio"/>{"<readonly/>" if self.reads_second else ""}</disk>'''
        return f"""
        <domain type="qemu">
          <name>{self.name}</name>
          <uuid>{self.uuid}</uuid>
          <memory unit="MiB">{MEMORY_MIB}</memory>
          <vcpu>1</vcpu>
          <os><type arch="x86_64" machine="q35">hvm</type></os>
          <features><acpi/></features>
          <devices>
            <disk type="file" device="disk">
              <driver name="qemu" type="qcow2"/>
              <source file="{self.disk}"/>
              <target dev="vda" bus="virtio"/>
            </disk>
            {second if self.second else ""}
            <serial type="pty"/>
            <interface type="bridge"><source bridge="{self.bridge}"/><model type="virtio"/></interface>
          </devices>
        </domain>
        """

    def counter(self, host: Host) -> int:
        """The number that it writes next, read from its memory."""
        output = host.virsh(f"qemu-monitor-command {self.uuid} --hmp 'xp /1wx {COUNTER:#x}'", ok=False)
        word = output.rpartition(":")[2].strip()
        number = int(word, 16) if word.startswith("0x") else 0
        return number if number <= _JOURNAL_MIB * 2**20 // SECTOR else 0  # the BIOS had that memory before

    def ends(self, host: Host) -> None:
        """Have it switch itself off: through its serial port, as libvirt lets no key pass while it migrates."""
        with host.path(host.virsh(f"ttyconsole {self.uuid}")).open("wb", buffering=0) as line:
            line.write(b"x")
            # QEMU looks once a second whether somebody is there
            until(lambda: host.state(self.uuid) == "shut off", _SEEN_S)

    def on_disk(self, host: Host) -> int:
        """How many sectors stand on its disk, whole and in order, while it is off.

        Raises ValueError when it is not intact.
        """
        host.run(f"qemu-img check -q {self.disk}")
        host.run(f"qemu-io -r -c 'read -q -P {_PATTERN} {_PAYLOAD_AT_MIB}M {PAYLOAD_MIB}M' {self.disk}")
        if self.second:
            host.run(
                f"qemu-img check -q {self.second} && qemu-io -r -c 'read -q -P {_PATTERN} 1M {_SECOND_MIB}M' "
                f"{self.second}"
            )
        head = f"/tmp/{self.name}.head"
        host.run(f"qemu-img dd -f qcow2 -O raw bs=1M count={_JOURNAL_MIB} if={self.disk} of={head}")
        disk = host.path(head).read_bytes()
        host.run(f"rm {head}")
        return count(disk)

    def noted(self, host: Host) -> None:
        """Remember how far it has come."""
        self.written = max(self.written, self.counter(host) - 1)

    def stopped(self, host: Host) -> int:
        """Switch it off as it is, and say how many sectors stand there.

        All that it knows to have written must be among them.
        """
        if host.state(self.uuid) != "shut off":
            host.virsh(f"suspend {self.uuid}", ok=False)
            self.noted(host)
            host.virsh(f"destroy {self.uuid} --graceful")
        return self.on_disk(host)

    def remove(self, host: Host) -> None:
        """Nothing of it is left there."""
        host.virsh(f"destroy {self.uuid} 2>/dev/null", ok=False)
        host.virsh(f"undefine {self.uuid} --nvram --managed-save 2>/dev/null", ok=False)
        host.run(f"rm -f {self.disk} {self.second}; virsh -q pool-refresh default", ok=False)
