# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs: each is a directory, and a process of its own that survives a restart of this one.

`request.json` is what is to be done, `lock` is held by the process while it lives, `progress.json` and `log` grow, and
`result.json` is how it ended. So whatever happens to this process, the directories tell all that there is to know.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

from . import policy
from .config import PolicyConfig
from .durable import replace
from .order import Order
from .store import Store

__all__ = ["ACTIVE", "Busy", "Job", "Jobs"]

ACTIVE = ("waiting", "running")
_LOG_BYTES = 256 << 10  # of a log, at once


class Busy(Exception):
    """Another job has what this one needs."""


@dataclasses.dataclass
class Job:
    """One run of a playbook, as its directory has it."""

    directory: Path
    request: dict[str, t.Any]
    state: str = "waiting"
    progress: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    result: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    # A cache: the request that the policy judges, and the hosts for which it holds. Computing it takes milliseconds.
    asked: tuple[tuple[str, ...], policy.Request] | None = None

    @property
    def id(self) -> str:
        """Its name, which sorts by time."""
        return self.directory.name

    def look(self) -> bool:
        """Read the files of the job again; return whether anything has changed."""
        before = (self.state, self.progress, self.result)
        self.progress = _read(self.directory / "progress.json")
        running = _is_locked(self.directory / "lock")
        self.result = _read(
            self.directory / "result.json"
        )  # after the lock: the process writes it while it holds the lock
        if self.result and not running:
            self.state = self.result["state"]
        elif running:
            self.state = "running"
        else:
            self.state = "lost" if (self.directory / "lock").exists() else "waiting"
        return before != (self.state, self.progress, self.result)

    def summary(self) -> dict[str, t.Any]:
        """What lists and the live state show."""
        request = self.request
        return {
            **{key: request[key] for key in ("action", "guests", "hosts", "to", "creates", "user", "check", "created")},
            "id": self.id,
            "state": self.state,
            "started": self.progress.get("started"),
            "task": self.progress.get("task", ""),
            "lines": self.progress.get("lines", 0),
            "sequence": self.progress.get("sequence", 0) + (self.state not in ACTIVE),
            "cancelling": self.state in ACTIVE and (self.directory / "cancel").exists(),
            "ended": self.result.get("ended"),
            "changed": self.result.get("changed"),
            "error": self.result.get("error", "") or ("its process is gone" if self.state == "lost" else ""),
        }

    def details(self) -> dict[str, t.Any]:
        """The summary, and what only the page of the job shows: arguments, report and plan. Not its log."""
        shown = {
            name: "(hidden)" if name in self.request["secret"] else value
            for name, value in self.request["arguments"].items()
        }
        return {
            **self.summary(),
            "arguments": shown,
            "report": self.result.get("report", []),
            "plan": self.result.get("plan"),
        }

    def log(self, since: int) -> dict[str, t.Any]:
        """Whole lines from byte `since` on, and where the next one begins. A long log takes several calls."""
        ended = self.state not in ACTIVE
        try:
            with (self.directory / "log").open("rb") as file:
                file.seek(since)
                part = file.read(_LOG_BYTES)
        except FileNotFoundError:
            part = b""
        # A line that is longer than a part is told in pieces, and the last one when nothing can be added to it.
        if not (ended and len(part) < _LOG_BYTES):
            part = part[: part.rfind(b"\n") + 1] or (part if len(part) == _LOG_BYTES else b"")
        return {"lines": part.decode(errors="replace").splitlines(), "next": since + len(part), "ended": ended}


class Jobs:
    """All jobs that are kept. Several threads may call its methods."""

    def __init__(self, config: PolicyConfig, store: Store) -> None:
        self._config, self._store = config, store
        self._lock = threading.Lock()
        self._root = config.directory / "jobs"
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._jobs = {path.name: Job(path, _read(path / "request.json")) for path in sorted(self._root.iterdir())}
        for unfinished in [job_id for job_id, job in self._jobs.items() if not job.request]:
            shutil.rmtree(self._jobs.pop(unfinished).directory)  # the request was never confirmed to a client
        for job in self._jobs.values():
            job.look()
        self._store.update({f"job/{job.id}": job.summary() for job in self._jobs.values()})

    def get(self, job_id: str) -> Job | None:
        """The job with this ID, if there is one."""
        return self._jobs.get(job_id)

    def all(self) -> list[Job]:
        """All jobs, the newest first."""
        return sorted(self._jobs.values(), key=lambda job: job.id, reverse=True)

    def add(self, order: Order, user: str) -> Job:
        """Make a job, which starts when there is room; raises Busy."""
        with self._lock:
            if not order.check and (other := self._conflict(order)):
                what = f"{other.request['action']} of {other.request['user']}"
                raise Busy(f"job {other.id} ({what}) is not done; wait for it, or cancel it")
            now = time.time()
            job_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}"
            request = _request(order, user, now)
            directory = self._root / job_id
            directory.mkdir(mode=0o700)
            replace(directory / "request.json", json.dumps(request).encode())
            job = self._jobs[job_id] = Job(directory, request)
            self._store.update({f"job/{job_id}": job.summary()})
        self.look()
        return job

    def _conflict(self, order: Order) -> Job | None:
        exclusive, shared = set(order.exclusive), set(order.shared)
        for job in self._jobs.values():
            if job.state in ACTIVE and not job.request["check"]:
                theirs, both = set(job.request["exclusive"]), set(job.request["shared"])
                if exclusive & (theirs | both) or shared & theirs:
                    return job
        return None

    def cancel(self, job: Job) -> None:
        """Tell the process of a running job to end; end a waiting job at once."""
        with self._lock:
            if job.state == "waiting":
                result = {"state": "cancelled", "ended": int(time.time()), "error": "cancelled before it began"}
                replace(job.directory / "result.json", json.dumps(result).encode())
            elif job.state == "running":
                (job.directory / "cancel").touch()
        self.look()

    def look(self) -> None:
        """Read the state of unfinished jobs, and start waiting ones."""
        with self._lock:
            active = [job for job in self._jobs.values() if job.state in ACTIVE]
            for job in active:
                job.look()
            running = sum(job.state == "running" for job in active)
            for job in active:
                if job.state == "waiting" and running < self._config.at_once:
                    self._begin(job)
                    running += 1
            self._store.update({f"job/{job.id}": job.summary() for job in active})
            self._forget()

    def _begin(self, job: Job) -> None:
        """Start a job, or record why that failed."""
        try:
            self._start(job)
        except OSError as error:
            result = {"state": "failed", "ended": int(time.time()), "error": f"cannot start the job: {error}"}
            replace(job.directory / "result.json", json.dumps(result).encode())
            job.look()

    def _start(self, job: Job) -> None:
        """Start the process, which inherits the locked file: from now on the job is running."""
        lock = os.open(job.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with (job.directory / "process.log").open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-P", "-s", "-m", f"{__package__}.run", str(job.directory), str(lock)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=_environment(self._config),
                    pass_fds=[lock],
                    start_new_session=True,
                )
            threading.Thread(target=child.wait, daemon=True).start()  # reaps the process
        finally:
            os.close(lock)
        job.look()

    def _forget(self) -> None:
        """Remove finished jobs that are too old or too many."""
        ended = [job for job in self.all() if job.state not in ACTIVE]
        oldest = time.time() - self._config.kept_days * 86400
        for job in [*ended[self._config.kept_jobs :], *(job for job in ended if job.request["created"] < oldest)]:
            if self._jobs.pop(job.id, None):
                shutil.rmtree(job.directory)
                self._store.update({f"job/{job.id}": None})


def _request(order: Order, user: str, now: float) -> dict[str, t.Any]:
    return {
        "action": order.action,
        "arguments": order.arguments,
        "values": order.values,
        "secret": order.secret,
        "guests": [
            {"uuid": uuid, "name": name} for uuid, name in dict.fromkeys((one.uuid, one.name) for one in order.guests)
        ],
        "expected": [{key: getattr(one, key) for key in ("name", "uuid", "host", "tags")} for one in order.guests],
        "hosts": order.hosts,
        "to": order.values.get("to", order.values.get("host", "")),
        "creates": order.creates,
        "user": user,
        "check": order.check,
        "created": int(now),
        "exclusive": order.exclusive,
        "shared": order.shared,
    }


def _environment(config: PolicyConfig) -> dict[str, str]:
    """The whole environment of a job's process; ansible-runner writes it into a file."""
    return {
        "PATH": f"{config.ansible}:/usr/bin:/bin",
        "HOME": str(config.directory),
        "LANG": "C.UTF-8",
        # Resolved, because an update changes the links, and a running job must keep its version.
        "PYTHONPATH": ":".join(map(os.path.realpath, filter(None, os.environ.get("PYTHONPATH", "").split(":")))),
        "CORRAL_PROJECT": str(config.project.resolve()),
        "CORRAL_GROUP": config.group,
        "CORRAL_VARIABLES": str(config.variables),
        **config.environment,
    }


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _read(path: Path) -> dict[str, t.Any]:
    try:
        return t.cast("dict[str, t.Any]", json.loads(path.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
