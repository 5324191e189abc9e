"""The lab's hosts, seen and hurt from outside: what is done here happens in a host's own namespaces, so nothing else
can be hit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import libvirt
from corral_lab import processes

from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience

__all__ = ["IMAGES", "Host", "until"]

COMMAND_S = 300  # for one that hangs
IMAGES = "/var/lib/libvirt/images"
# What a run leaves on purpose, besides compiled code: locks, and answers that nobody has fetched.
NOTES = "find /run/corral -path '*/compiled' -prune -o -type f ! -name '*.lock' ! -name '*.answer' -print"
_NO_GUEST = "absent"
_PAUSED = {libvirt.VIR_DOMAIN_PAUSED_MIGRATION: "migrating", libvirt.VIR_DOMAIN_PAUSED_POSTCOPY: "post-copy"}
_CLEAN = ("env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")


def began(pid: int) -> str:
    """When a process has begun, in ticks since the boot (proc(5): starttime); empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


class Host:
    """One host of a lab, entered without its network."""

    def __init__(self, lab: str, name: str, address: str) -> None:
        self.lab, self.name, self.address = lab, name, address
        self._init: int | None = None
        self._began = ""  # when that process did: its number is that of another one after it
        self._connection: t.Any = None

    def apart(self) -> Host:
        """The same, for another thread: with a connection of its own."""
        return Host(self.lab, self.name, self.address)

    @property
    def init(self) -> int:
        """Its first process; another one after it was started again."""
        if self._init is None or not self._began or began(self._init) != self._began:
            self._init = processes.init_of(self.lab, self.name)
            self._began = began(self._init) if self._init else ""
        if self._init is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._init

    def path(self, path: str) -> Path:
        """A file of the host, as we reach it."""
        return Path(f"/proc/{self.init}/root{path}")

    def run(self, command: str, *, ok: bool = True, given: str | None = None) -> str:
        """A shell command in it: what it printed."""
        enter = ["nsenter", f"--target={self.init}", "--all", *_CLEAN]
        done = subprocess.run(
            [*enter, "sh", "-c", command], capture_output=True, text=True, check=False, timeout=COMMAND_S, input=given
        )
        if ok and done.returncode:
            raise RuntimeError(f"{self.name}: `{command}` ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def network(self, *command: str, given: str | None = None) -> None:
        """A command of this machine in its network."""
        subprocess.run(
            ["nsenter", f"--target={self.init}", "--net", *command],
            check=True,
            capture_output=True,
            text=True,
            input=given,
        )

    def find(self, program: str, *, with_open: str = "", uuid: str = "") -> list[int]:
        """Its processes of this name; only those that have that file open, or that are of the guest of that UUID."""
        return [pid for pid in self._pids() if _named(pid, program) and _opened(pid, with_open) and _given(pid, uuid)]

    def kill(self, pids: t.Iterable[int], number: int = signal.SIGKILL) -> int:
        """Send this signal to those that are the host's; how many there were."""
        hit = 0
        for pid in pids:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    if self._has(pid):
                        signal.pidfd_send_signal(handle, number)
                        hit += 1
                finally:
                    os.close(handle)
        return hit

    def holds(self, path: str) -> bool:
        """Whether a process of the host has the file open."""
        return any(_opened(pid, path) for pid in self._pids())

    def at_work(self) -> str:
        """For people: where the threads of our modules wait, and the answers that are not fetched."""
        return self.run(
            "ls -l /run/corral; for pid in $(pgrep virt_migrat); do ls -l /proc/$pid/fd; "
            "grep -s . /proc/$pid/task/*/comm /proc/$pid/task/*/wchan; done 2>&1; head -c 400 /run/corral/*.answer",
            ok=False,
        )

    def _pids(self) -> list[int]:
        return [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._has(int(entry.name))
        ]

    def _has(self, pid: int) -> bool:
        with contextlib.suppress(OSError, RuntimeError):  # it ended, or the host is switched off
            return Path(f"/proc/{pid}/ns/pid").readlink() == Path(f"/proc/{self.init}/ns/pid").readlink()
        return False

    # What its libvirt says of guests, each known by its UUID. The binding for looking often, virsh for judging.

    def look(self, uuid: str) -> tuple[str, dict[str, t.Any]]:
        """State of a guest and figures of its job; `absent` also when libvirt does not answer."""
        try:
            domain = self._libvirt().lookupByUUIDString(uuid)
            state, reason = domain.state()
            figures = _figures(domain) if state in (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED) else {}
        except (libvirt.libvirtError, RuntimeError):
            self._connection = None
            return _NO_GUEST, {}
        if state == libvirt.VIR_DOMAIN_PAUSED:
            return _PAUSED.get(reason, "paused"), figures
        return ("running" if state == libvirt.VIR_DOMAIN_RUNNING else "off"), figures

    def definition(self, uuid: str) -> str:
        """What it is at the moment; empty when it is not there."""
        with contextlib.suppress(libvirt.libvirtError):
            return str(self._libvirt().lookupByUUIDString(uuid).XMLDesc())
        return ""

    def define(self, xml: str) -> bool:
        """Another guest, in a few milliseconds; whether libvirt let it."""
        try:
            self._libvirt().defineXML(xml)
        except libvirt.libvirtError:
            self._connection = None
            return False
        return True

    def _libvirt(self) -> t.Any:
        if self._connection is None or not self._connection.isAlive():
            libvirt.registerErrorHandler(lambda _context, _error: None, None)
            self._connection = libvirt.open(f"qemu+unix:///system?socket={self.path('/run/libvirt/libvirt-sock')}")
        return self._connection

    def virsh(self, command: str, *, ok: bool = True) -> str:
        """As its administrator asks."""
        return self.run(f"virsh -q {command}", ok=ok)

    def state(self, uuid: str) -> str:
        """running, paused, shut off, ...; empty when it does not have that guest."""
        return self.virsh(f"domstate {uuid} 2>/dev/null", ok=False)

    def failed_by_itself(self, uuid: str) -> bool:
        """Whether the guest is off because QEMU found that it has an error."""
        said = self.story(uuid)
        return "(crashed)" in said and "Assertion `" in said

    def story(self, uuid: str) -> str:
        """For people: why a guest is in its state, and what its processes here said last."""
        names = f"$(virsh domname {uuid})*.log"
        said = self.run(
            f"virsh domstate --reason {uuid} 2>&1; tail -qn 4 /var/log/libvirt/qemu/{names}; "
            "journalctl -u libvirtd -qn 8 --no-pager -o short-precise",
            ok=False,
        )
        return f"{self.name}: {' | '.join(said.split(chr(10)))}"

    def records(self) -> list[str]:
        """Guests (UUID) with the record of a migration in what is stored or in what runs."""
        return [
            uuid
            for uuid in self._guests()
            if "moving" in self.virsh(f"dumpxml {uuid}; virsh dumpxml --inactive {uuid}", ok=False)
        ]

    def footprint(self) -> dict[str, list[str]]:
        """All that a migration could leave on it."""
        return {
            "files": self.run(
                f"find {IMAGES} /srv/small /srv/second -type f -printf '%p\\n' 2>/dev/null | sort", ok=False
            ).splitlines(),
            "definitions": self._guests(),
            "autostart": sorted(self.virsh("list --all --autostart --uuid").split()),
            "pools": sorted(self.virsh("pool-list --all --name").split()),
            "jobs": [uuid for uuid in self._guests() if self._at_work(uuid)],
            "records": self.records(),
            "processes": sorted(
                self.run("ps -C qemu-system-x86 -o args= | grep -oe '-uuid [^ ]*'", ok=False).splitlines()
            ),
            "notes": self.run(NOTES, ok=False).split(),
            "locks": [
                path.name for path in self.path("/run/corral").glob("*.lock") if self.holds(f"/run/corral/{path.name}")
            ],
        }

    def _guests(self) -> list[str]:
        return sorted(self.virsh("list --all --uuid").split())

    def _at_work(self, uuid: str) -> bool:
        return self.state(uuid) in ("running", "paused") and "None" not in self.virsh(
            f"domjobinfo {uuid} 2>&1", ok=False
        )


def _figures(domain: t.Any) -> dict[str, t.Any]:
    """Of its job; empty where it has none, and where it arrives: the source tells them."""
    with contextlib.suppress(libvirt.libvirtError):
        figures = domain.jobStats()
        return figures if figures.get("type") else {}
    return {}


def _named(pid: int, program: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith(program)
    return False


def _given(pid: int, uuid: str) -> bool:
    with contextlib.suppress(OSError):
        return uuid.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _opened(pid: int, path: str) -> bool:
    if not path:
        return True
    with contextlib.suppress(OSError):
        return any(entry.readlink() == Path(path) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def until(met: t.Callable[[], object], seconds: float, every_s: float = 0.2) -> bool:
    """Wait for it; whether it came about."""
    patience = Patience(seconds)
    while not met():
        if patience.is_over:
            return False
        time.sleep(every_s)
    return True
