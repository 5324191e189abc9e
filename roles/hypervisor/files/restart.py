"""Restart daemons of libvirt that run with former settings, while no guest has a job. Runs on the host, from stdin.

    python3 - look|restart '{"daemons": {"libvirtd.service": ["/etc/libvirt/libvirtd.conf"]}, "sockets": {}, "deadline": 1234.5}'

A daemon is due when a file that it reads was changed after it started, when it failed, or when a socket that it is to have (`sockets`:
socket -> daemon) is not active. That is found on the host each time, so nothing is lost with a play that is killed before its restart.
`look` prints {"due": [texts], "jobs": [texts], "clock": monotonic seconds}. `restart` waits some seconds for the jobs and prints
{"restarted": [daemons], "jobs": [texts], "again": whether the deadline is still to come}. It is called until that is false.
"""

# ruff: noqa: PTH101, PTH102, PTH116, PTH208, T201

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
import threading
import time
import typing as t
from xml.etree import ElementTree

RUN = "/run/corral"  # of the collection's modules: plugins/module_utils/_files/private.py
ATTEMPT_S = 10  # each attempt is a line for the user, and a sign of life on the connection
POLL_S = 0.5
ANSWER_S = 30
STARTS = ("start", "restart")
STOP_ATTEMPTS = 5
# virDomainJobOperation
OPERATIONS = {
    1: "start",
    2: "save",
    3: "restore",
    4: "migration to this host",
    5: "migration to another host",
    6: "snapshot",
    7: "return to a snapshot",
    8: "dump",
    9: "backup",
    10: "removal of a snapshot",
}
# virDomainPausedReason: libvirt has paused the guest for its own work, and may report no job.
PAUSED_FOR = {2: "migration", 3: "save", 4: "dump", 9: "snapshot", 11: "start", 12: "migration to another host"}


class Problem(Exception):
    """Printed to the user as it is."""


class Due(t.NamedTuple):
    """A daemon that is to start again, and why."""

    unit: str
    reason: str
    active: str  # systemd's ActiveState
    files: t.Sequence[str]
    sockets: t.Sequence[str]

    @property
    def running(self) -> bool:
        return self.active not in ("inactive", "failed")


def main(verb: str, request: dict[str, t.Any]) -> None:
    if verb == "restart":
        print(json.dumps(restart(request)))
        return
    found = due(request)
    left = work() if any(each.running for each in found) else []
    print(json.dumps({"due": [f"{each.unit} {each.reason}" for each in found], "jobs": left, "clock": time.monotonic()}))


# What is due ---------------------------------------------------------------------------------------------------------


def due(request: dict[str, t.Any]) -> list[Due]:
    found = []
    for unit, files in request["daemons"].items():
        active, started = state(unit)
        runs = active not in ("inactive", "failed")
        # One that does not run reads its files when it starts.
        changed = [path for path in files if runs and changed_at(path) > started]
        sockets = [socket for socket, its in request.get("sockets", {}).items() if its == unit and state(socket)[0] != "active"]
        reasons = ["has failed"] if active == "failed" else []
        reasons += [f"started before {' and '.join(changed)} changed"] if changed else []
        reasons += [f"has no {' and '.join(sockets)}"] if sockets else []
        if reasons:
            found.append(Due(unit, ", ".join(reasons), active, files, sockets))
    return found


def state(unit: str) -> tuple[str, float]:
    """ActiveState, and when its process started, by the clock as it is now: somebody may have set it since."""
    shown = systemctl("show", "--property=ActiveState,ExecMainStartTimestampMonotonic", unit)
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    age_s = time.monotonic() - int(values.get("ExecMainStartTimestampMonotonic") or 0) / 1e6
    return values["ActiveState"], time.time() - age_s


def changed_at(path: str) -> float:
    """The time of the inode: unlike that of the content, no copy sets it back."""
    try:
        return os.stat(path).st_ctime
    except FileNotFoundError:
        return 0


def systemctl(*arguments: str) -> str:
    done = subprocess.run(("systemctl", *arguments), check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise Problem(f"systemctl {' '.join(arguments)}: {done.stderr.strip()}{journal(arguments[-1]) if arguments[0] in STARTS else ''}")
    return done.stdout


def journal(unit: str) -> str:
    """The end of a unit's log, as lines: systemctl says only that a start has failed."""
    command = ("journalctl", "--no-pager", "--lines=8", "--output=cat", "--unit", unit)
    try:
        told = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in told.stdout.splitlines())


# Jobs ----------------------------------------------------------------------------------------------------------------


def work() -> list[str]:
    """What a restart would break, as texts. A libvirt that does not answer may be at work."""
    answer: list[list[str]] = []

    def ask() -> None:
        try:
            answer.append([f"{domain.name()}: {text}" for domain in domains() for text in jobs(domain)])
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody knows the jobs
            answer.append([f"libvirt cannot be asked for jobs: {error}"])

    thread = threading.Thread(target=ask, daemon=True)  # calls of libvirt may wait for ever
    thread.start()
    thread.join(ANSWER_S)
    return answer[0] if answer else [f"libvirt did not tell its jobs within {ANSWER_S} s"]


def domains() -> list[t.Any]:
    import libvirt  # a host without it has no daemon that is due

    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    return list(libvirt.openReadOnly("qemu:///system").listAllDomains())


def jobs(domain: t.Any) -> list[str]:
    import libvirt

    try:
        if not domain.isActive():
            return []
        told = domain.jobStats()
        if told.get("type"):
            return [OPERATIONS.get(told.get("operation", 0), "job")]
        power, reason = domain.state()
        if power == libvirt.VIR_DOMAIN_PAUSED and reason in PAUSED_FOR:
            return [PAUSED_FOR[reason]]
        guest = ElementTree.fromstring(domain.XMLDesc())  # noqa: S314 - libvirt wrote it
        targets = [each.get("dev", "") for each in guest.iterfind("devices/disk/target")]
        return [f"block job on {target}" for target in targets if has_block_job(domain, target)]
    except libvirt.libvirtError as error:
        code = error.get_error_code()
        if code == libvirt.VIR_ERR_NO_DOMAIN:
            return []
        # Only the source of a migration tells of its job; or the guest is off by now.
        if code in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_OPERATION_UNSUPPORTED):
            return [OPERATIONS[4]] if is_active(domain) else []
        return [f"busy ({error.get_error_message()})"]


def has_block_job(domain: t.Any, target: str) -> bool:
    import libvirt

    try:
        return bool(domain.blockJobInfo(target, 0))
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_ERR_NO_DOMAIN):
            raise
        return False  # an empty drive, or a disk that was just removed


def is_active(domain: t.Any) -> bool:
    import libvirt

    try:
        return bool(domain.isActive())
    except libvirt.libvirtError:
        return False


# Restart -------------------------------------------------------------------------------------------------------------


def restart(request: dict[str, t.Any]) -> dict[str, t.Any]:
    end = min(time.monotonic() + ATTEMPT_S, request["deadline"])
    while True:
        found = due(request)
        runs = any(each.running for each in found)
        left = work() if runs else []
        if not left:
            with contextlib.ExitStack() as locks:
                # virt_migrate holds the guest's lock on the source from its first step to its last, also while libvirt has no job. With all
                # of them held here, none begins until the daemon is back. Nothing locks the destination, and other programs lock nothing:
                # what they begin between the second look and the restart, which are milliseconds apart, breaks.
                left = [*held_by_others(locks), *work()] if runs else []
                if not left:
                    for each in found:
                        start_again(each)
                    return {"restarted": [each.unit for each in found], "jobs": [], "again": False}
        if time.monotonic() >= end:
            return {"restarted": [], "jobs": left, "again": end < request["deadline"]}
        time.sleep(POLL_S)


def held_by_others(locks: contextlib.ExitStack) -> list[str]:
    """Take the locks of all guests; what holds those that cannot be taken, as texts."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(RUN, 0o700)
    folder = os.open(RUN, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    locks.callback(os.close, folder)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Problem(f"others than root can write to {RUN}: find out who made it, and remove it")
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a file for each guest
    moved = {name[: -len(".lock")] for name in os.listdir(folder) if name.endswith(".lock")}
    held = []
    for name in sorted({*moved, *(domain.name() for domain in domains())}):
        try:
            lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=folder)
        except OSError:
            continue  # virt_migrate cannot lock such a name either
        locks.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.append(f"{name}: a run of virt_migrate")
    return held


def start_again(each: Due) -> None:
    for path in each.files:
        if changed_at(path) > time.time():  # the clock was set back: it would be due until then
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))
    if each.active == "failed":
        systemctl("reset-failed", each.unit)
    for socket in each.sockets:
        start_socket(socket, each.unit)
    if each.active != "inactive":  # else it starts when somebody connects
        systemctl("start" if each.sockets else "restart", each.unit)


def start_socket(socket: str, unit: str) -> None:
    """A daemon takes its sockets when it starts; systemd refuses to add one to a daemon that runs."""
    for attempt in range(1, STOP_ATTEMPTS + 1):
        systemctl("stop", unit)
        try:
            systemctl("start", socket)
            return
        except Problem:  # somebody connected in between, which starts the daemon
            if attempt == STOP_ATTEMPTS:
                raise


if __name__ == "__main__":
    try:
        main(sys.argv[1], json.loads(sys.argv[2]))
    except (Problem, OSError) as problem:
        sys.exit(str(problem))
    sys.stdout.flush()
    os._exit(0)  # without waiting for a libvirt that does not answer
