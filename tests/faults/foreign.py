"""What belongs to somebody else on the hosts that a guest can move to: planted, and afterwards the same by UUID,
inode, bytes and XML.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import typing as t
import uuid as uuids

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience
from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES
from ansible_collections.corral.virt.tests.tools.beside import Beside

if t.TYPE_CHECKING:
    from ansible_collections.corral.virt.tests.faults.guest import Guest
    from ansible_collections.corral.virt.tests.faults.hosts import Host

__all__ = ["Foreign", "Latecomers", "definition"]

_BASE = "{}.0badc0de0bad.qcow2"  # named like a content of virt_image, whose sum is another one
_DATA_BYTES = 96 * 1024
_EVERY_S, _PATIENCE_S = 0.01, 60
_GONE = "gone"


def definition(name: str, disk: str, uuid: str = "") -> str:
    """Of a guest without an operating system."""
    return f"""
    <domain type="qemu">
      <name>{name}</name>
      <uuid>{uuid or uuids.uuid4()}</uuid>
      <memory unit="MiB">16</memory>
      <os><type arch="x86_64" machine="q35">hvm</type></os>
      <devices>
        <disk type="file" device="disk"><driver name="qemu" type="raw"/><source file="{disk}"/><target dev="vda" bus="virtio"/></disk>
      </devices>
    </domain>
    """


class Foreign:
    """All of it on one host; each is looked at when it is planted, or kept as it is found, and again by `changed`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._was: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._was)

    def __contains__(self, what: str) -> bool:
        return what in self._was

    def plant(self, disk: str, tag: str, *, runs: bool = False) -> None:
        """Beside a disk: files, a base, a guest that is off, and one that its owner suspended."""
        self.file(f"{disk}.{tag}")
        self.file(f"{disk.removesuffix('.qcow2')}-{tag}.qcow2")
        self.file(f"{IMAGES}/{_BASE.format(tag)}")
        self.guest(f"{tag}-off", f"{disk}.{tag}")
        if runs:
            path = f"{IMAGES}/{tag}-runs.raw"
            self.file(path)
            self.guest(f"{tag}-runs", path, start="--paused")
            self.keep(path)  # libvirt has given it to QEMU

    def file(self, path: str) -> None:
        """Bytes that are found nowhere else."""
        self._host.path(path).write_bytes(os.urandom(_DATA_BYTES))
        self.keep(path)

    def guest(self, name: str, disk: str, *, start: str | None = None) -> str:
        """Defined; with `start`, flags of virsh, started. Its UUID."""
        uuid = str(uuids.uuid4())
        self._insist(lambda: self._host.define(definition(name, disk, uuid)), name)
        if start is not None:
            self._host.virsh(f"start {start} {uuid}")
        self.keep(uuid)
        return uuid

    def keep(self, what: str) -> None:
        """The file or the guest (UUID) is as it is to be."""
        self._insist(lambda: _GONE not in self._look(what).values(), what)
        self._was[what] = self._look(what)

    def changed(self) -> list[str]:
        """What is not as it was, and how."""
        found = []
        for what, was in self._was.items():
            now = self._look(what)
            found += [
                f"{what} of {self._host.name}: {key} was {was[key]}, is {now[key]}"
                for key in was
                if now[key] != was[key]
            ]
        return found

    def drop(self, what: str) -> list[str]:
        """Its owner removes it, if it has not; what had become of it until then."""
        if what not in self._was:  # it was put there twice
            return []
        changed = [line for line in self.changed() if line.startswith(f"{what} ")]
        del self._was[what]
        self._remove(what)
        return changed

    def remove(self) -> None:
        """All of it."""
        for what in self._was:
            self._remove(what)
        self._was.clear()
        self._host.run("for pool in $(virsh -q pool-list --name); do virsh -q pool-refresh $pool; done", ok=False)

    def _insist(self, done: t.Callable[[], bool], what: str) -> None:
        """The daemon may be dead at the moment, or stand still."""
        patience = Patience(_PATIENCE_S)
        while not done():
            if patience.is_over:
                raise RuntimeError(f"{self._host.name} does not take {what}")
            time.sleep(_EVERY_S)

    def _remove(self, what: str) -> None:
        if what.startswith("/"):
            self._host.path(what).unlink(missing_ok=True)
        else:
            self._host.run(f"virsh -q destroy {what}; virsh -q undefine {what}", ok=False)

    def _look(self, what: str) -> dict[str, str]:
        return self._file(what) if what.startswith("/") else self._guest(what)

    def _file(self, path: str) -> dict[str, str]:
        seen = dict.fromkeys(("inode", "bytes", "owner", "times"), _GONE)
        with contextlib.suppress(FileNotFoundError):
            its = self._host.path(path).stat()
            seen["inode"], seen["owner"] = str(its.st_ino), f"{its.st_uid}:{its.st_gid} {its.st_mode:o}"
            seen["times"] = f"{its.st_mtime_ns} {its.st_ctime_ns}"
            seen["bytes"] = hashlib.sha256(self._host.path(path).read_bytes()).hexdigest()
        return seen

    def _guest(self, uuid: str) -> dict[str, str]:
        result = {"state": f"domstate --reason {uuid}", "definition": f"dumpxml --inactive {uuid}"}
        result["autostart"] = f"dominfo {uuid} | grep Autostart"
        seen = {key: self._host.virsh(f"{command} 2>/dev/null", ok=False) or _GONE for key, command in result.items()}
        return {**seen, "process": str(self._host.find("qemu-system", uuid=uuid))}


class Latecomers(Beside):
    """The same, planted as soon as the move is recorded: after its preflight, in the middle of it."""

    def __init__(self, foreign: Foreign, source: Host, guests: t.Sequence[Guest]) -> None:
        super().__init__()
        self._foreign, self._source, self._guests = foreign, source, guests
        self.planted, self.error = False, ""

    def run(self) -> None:
        """Until it is done, or the block ends."""
        while not any("<corral:moving " in self._source.definition(guest.uuid) for guest in self._guests):
            if self.over.wait(_EVERY_S):
                return
        try:
            self._foreign.plant(self._guests[0].disk, "late")
            self.planted = True
        except (OSError, RuntimeError) as error:
            self.error = str(error)
