# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs: each is a directory, and a process of its own that survives a restart of this one.

`request.json` is what is to be done, `lock` is held by the process while it lives, `progress.json` and `log` grow, and
`result.json` is how it ended. So whatever happens to this process, the directories tell all that there is to know.
"""

from __future__ import annotations

import calendar
import collections
import contextlib
import dataclasses
import fcntl
import itertools
import logging
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

from . import policy, room, strict
from .config import PolicyConfig
from .durable import RESERVE, replace
from .order import Order, Others, Seen
from .store import Store

__all__ = ["ACTIVE", "LEAST_JOBS", "ROOM_MIB", "Busy", "Job", "Jobs", "TooMany", "Unrecorded"]

ACTIVE, _ENDED = ("waiting", "running"), ("succeeded", "failed", "cancelled")
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}", re.ASCII)
# The parts of a request. Those that are missing in one of another version are empty, except the first ones.
_NEEDED: dict[str, t.Any] = {"action": "", "user": "", "created": 0, "arguments": {}, "secret": []}
_OTHERS: dict[str, t.Any] = {name: [] for name in ("guests", "expected", "originals", "hosts", "exclusive", "shared")}
_PARTS = {**_NEEDED, **_OTHERS, "check": False, "creates": "", "values": {}}
_LOG = logging.getLogger(__name__)
_LOG_BYTES = 256 << 10  # of a log, at once


LEAST_JOBS = 100  # are kept whatever their age
_MOST_A_DAY = 50  # are removed for their age, or a tenth of them
ROOM_MIB = 16  # for a job's log, its plan and what Ansible writes meanwhile
_RESERVE_BYTES = 64 << 10


class Busy(Exception):
    """Another job has what this one needs."""

    def __init__(self, job: Job) -> None:
        what = f"{job.request['action']} of {job.request['user']}"
        super().__init__(f"job {job.id} ({what}) is not done; wait for it, or cancel it")
        self.job = job


class TooMany(Exception):
    """A user has as many jobs that have not ended as one may have."""


class Unrecorded(Exception):
    """There is no room for what is to be recorded; nothing was done."""


@dataclasses.dataclass
class Job:
    """One run of a playbook, as its directory has it."""

    directory: Path
    request: dict[str, t.Any]
    state: str = "waiting"
    unreadable: str = ""  # why its request cannot be read
    progress: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    result: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    # A cache: the request that the policy judges, and the hosts for which it holds. Computing it takes milliseconds.
    asked: tuple[tuple[str, ...], policy.Request] | None = None

    @property
    def id(self) -> str:
        """Its name, which sorts by the time that the clock said."""
        return self.directory.name

    @property
    def place(self) -> tuple[int, str]:
        """Its place in the order in which jobs were made, whatever the clock said."""
        return _whole(self.request.get("number")) or 0, self.id

    def asks(self, hosts: t.Collection[str]) -> tuple[dict[str, t.Any], tuple[Seen, ...], t.Collection[str], Others]:
        """What was asked for, the guests as they were then, the hypervisors and the guest that is copied, to be judged
        anew.
        """
        given = {**{key: self.request[key] for key in ("action", "arguments")}, "check": True}
        guests, originals = (
            tuple(Seen(one["uuid"], one["name"], one["host"], "", tuple(one.get("tags", []))) for one in kept)
            for kept in (self.request["expected"], self.request["originals"])
        )
        return given, guests, hosts, Others(originals=originals or None)

    def look(self) -> bool:
        """Read the files of the job again; return whether anything has changed."""
        before = (self.state, self.progress, self.result)
        self.progress = _read(self.directory / "progress.json")
        running = _is_locked(self.directory / "lock")
        self.result = _read(
            self.directory / "result.json"
        )  # after the lock: the process writes it while it holds the lock
        if running:
            self.state = "running"
        elif self.unreadable:
            self.state = "unreadable"
        elif self.result:
            self.state = self.result["state"] if self.result.get("state") in _ENDED else "unreadable"
        else:
            self.state = "lost" if (self.directory / "lock").exists() else "waiting"
        return before != (self.state, self.progress, self.result)

    def summary(self) -> dict[str, t.Any]:
        """What lists and the live state show."""
        request = self.request
        return {
            **{key: request[key] for key in ("action", "guests", "hosts", "to", "creates", "user", "check", "created")},
            "id": self.id,
            "omitted": request.get("omitted", []),  # of jobs of earlier versions nothing
            "state": self.state,
            "started": _whole(self.progress.get("started")),
            "task": str(self.progress.get("task", "")),
            "lines": _whole(self.progress.get("lines")) or 0,
            "sequence": (_whole(self.progress.get("sequence")) or 0) + (self.state not in ACTIVE),
            "cancelling": self.state in ACTIVE and (self.directory / "cancel").exists(),
            "ended": _whole(self.result.get("ended")),
            "changed": self.result.get("changed"),
            "error": self._error(),
        }

    def _error(self) -> str:
        if self.state == "lost":
            return "its process is gone"
        if self.state == "unreadable":
            reason = self.unreadable or f"result.json: {self.result.get('unreadable', 'it has no state')}"
            return f"cannot read the job: {reason}; look at {self.directory} on the console's machine"
        return str(self.result.get("error") or "")

    def details(self) -> dict[str, t.Any]:
        """The summary, and what only the page of the job shows: arguments, report and plan. Not its log."""
        shown = {
            name: "(hidden)" if name in self.request["secret"] else value
            for name, value in self.request["arguments"].items()
        }
        return {
            **self.summary(),
            "arguments": shown,
            "report": [str(line) for line in _list(self.result.get("report"))],
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
        except OSError as error:
            lines = [] if since else [f"(the log cannot be read: {error})"]
            return {"lines": lines, "next": max(since, 1), "ended": ended}
        # A line that is longer than a part is told in pieces, and the last one when nothing can be added to it.
        if not (ended and len(part) < _LOG_BYTES):
            part = part[: part.rfind(b"\n") + 1] or (part if len(part) == _LOG_BYTES else b"")
        return {"lines": part.decode(errors="replace").splitlines(), "next": since + len(part), "ended": ended}


class Jobs:
    """All jobs that are kept. Several threads may call its methods."""

    def __init__(
        self, config: PolicyConfig, store: Store, *, may_begin: t.Callable[[Job], str | None] = lambda _job: ""
    ) -> None:
        """`may_begin`: why a job that waits must not begin; empty when it may, None while nobody can tell."""
        self._config, self._store, self._may_begin = config, store, may_begin
        self._turns: dict[str, int] = {}  # when a job of a user was begun last
        self._lock = threading.Lock()
        self._root = config.directory / "jobs"
        self._jobs: dict[str, Job] = {}
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
            self._jobs = {path.name: found for path in sorted(self._root.iterdir()) if (found := _found(path))}
        except OSError as error:
            _LOG.error("cannot read jobs: %s", error)
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
        """Make a job, which starts when there is room; raises Busy, TooMany and Unrecorded."""
        with self._lock:
            self._check_quota(user, check=order.check)
            if not order.check and (other := self._conflict(order)):
                raise Busy(other)
            now = time.time()
            job_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(4)}"
            number = 1 + max((other.place[0] for other in self._jobs.values()), default=0)
            request = {**_request(order, user, now), "number": number}
            directory = self._root / job_id
            self._record(directory, request)
            job = self._jobs[job_id] = Job(directory, request)
            self._store.update({f"job/{job_id}": job.summary()})
        self.look()
        return job

    def _check_quota(self, user: str, *, check: bool) -> None:
        """Previews have one of their own, so that they keep nobody from acting."""
        theirs = sum(
            job.state in ACTIVE and job.request["user"] == user and job.request["check"] == check
            for job in self._jobs.values()
        )
        if theirs >= self._config.jobs_of_a_user:
            what = "previews" if check else "jobs"
            raise TooMany(f"{theirs} {what} of {user} have not ended; wait until one ends, or cancel one")

    def _record(self, directory: Path, request: t.Mapping[str, t.Any]) -> None:
        """Write the request, with room for the result. What is recorded in part is none."""
        problem = room.problem(self._root, ROOM_MIB)
        try:
            if not problem:
                directory.mkdir(mode=0o700, parents=True)
                with (directory / RESERVE).open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
                replace(directory / "request.json", strict.written(request))
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            problem = f"{error}; {remedy(error, str(directory), denied=room.DENIED)}"
        if problem:
            raise Unrecorded(f"cannot record the job, so it is not started: {problem}, and try again")

    def _conflict(self, order: Order) -> Job | None:
        exclusive, shared = set(order.exclusive), set(order.shared)
        for job in self._jobs.values():
            if job.state in ACTIVE and not job.request["check"]:
                theirs, both = set(job.request["exclusive"]), set(job.request["shared"])
                if exclusive & (theirs | both) or shared & theirs:
                    return job
        return None

    def cancel(self, job: Job) -> None:
        """Tell the process of a running job to end; end a waiting job at once. Raises Unrecorded."""
        try:
            with self._lock:
                if job.state == "waiting":
                    result = {"state": "cancelled", "ended": int(time.time()), "error": "cancelled before it began"}
                    _replace(job, result)
                elif job.state == "running":
                    (job.directory / "cancel").touch()
        except OSError as error:
            raise Unrecorded(
                f"cannot record that the job is cancelled: {error}; {remedy(error, denied=room.DENIED)}"
            ) from error
        self.look()

    def look(self) -> None:
        """Read the state of unfinished jobs, and start waiting ones."""
        with self._lock:
            active = [job for job in self._jobs.values() if job.state in ACTIVE]
            for job in active:
                job.look()
            for check, places in ((False, self._config.at_once), (True, self._config.previews_at_once)):
                self._begin_some([job for job in active if job.request["check"] == check], places)
            self._store.update({f"job/{job.id}": job.summary() for job in active})
            self._remove(self._too_many())

    def _begin_some(self, jobs: t.Sequence[Job], places: int) -> None:
        """Users take turns, and one alone leaves a quarter of several places to others."""
        running = collections.Counter(job.request["user"] for job in jobs if job.state == "running")
        of_one = max(1, places - max(1, places // 4))
        waiting: dict[str, list[Job]] = {}
        for job in jobs:
            if job.state == "waiting":
                waiting.setdefault(job.request["user"], []).append(job)
        while running.total() < places and (able := [user for user in waiting if running[user] < of_one]):
            user = min(able, key=lambda user: (running[user], self._turns.get(user, 0), jobs.index(waiting[user][0])))
            job = waiting[user].pop(0)
            if not waiting[user]:
                del waiting[user]
            if self._begin(job):
                running[user] += 1
                self._turns[user] = max(self._turns.values(), default=0) + 1

    def _begin(self, job: Job) -> bool:
        """Start a job, or record why that failed; False when it is not started. Without room it goes on waiting."""
        reason = None if room.problem(self._root, ROOM_MIB) else self._may_begin(job)
        if reason is None:
            return False
        try:
            if not reason:
                self._start(job)
                return True
            reason = f"not begun: {reason}"
        except OSError as error:
            reason = f"cannot start the job: {error}"
        _replace(job, {"state": "failed", "ended": int(time.time()), "error": reason})
        job.look()
        return False

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

    def _ended(self, *, check: bool) -> list[Job]:
        """Finished jobs, or finished previews, the newest first."""
        ended = [job for job in self._jobs.values() if job.state not in ACTIVE and job.request["check"] == check]
        return sorted(ended, key=lambda job: job.place, reverse=True)

    def _too_many(self) -> list[Job]:
        """Finished jobs beyond the number that is kept. Previews count apart: they push out no job."""
        return [job for check in (False, True) for job in self._ended(check=check)[self._config.kept_jobs :]]

    def forget(self, now: float) -> int:
        """Remove the oldest finished jobs that are too old, not all at once; how many. Called once a day.

        The newest ones stay whatever their age, and so do those that were made after one that is new enough.
        """
        limit = now - self._config.kept_days * 86400
        with self._lock:
            old = [
                job
                for check in (False, True)
                for job in itertools.takewhile(
                    lambda job: job.request["created"] < limit, reversed(self._ended(check=check)[LEAST_JOBS:])
                )
            ]
            found = old[: max(_MOST_A_DAY, len(self._jobs) // 10)]
            self._remove(found)
        if found:
            _LOG.info("removed %d jobs that are older than %d days", len(found), self._config.kept_days)
        return len(found)

    def _remove(self, jobs: t.Iterable[Job]) -> None:
        for job in jobs:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(job.directory)
            del self._jobs[job.id]
            self._store.update({f"job/{job.id}": None})


def _replace(job: Job, result: t.Mapping[str, t.Any]) -> None:
    """Write a result, in the room that is kept for it."""
    with contextlib.suppress(OSError):
        (job.directory / RESERVE).unlink(missing_ok=True)
    replace(job.directory / "result.json", strict.written(result))


def _request(order: Order, user: str, now: float) -> dict[str, t.Any]:
    return {
        "action": order.action,
        "arguments": order.arguments,
        "values": order.values,
        "secret": order.secret,
        "guests": [
            {"uuid": uuid, "name": name} for uuid, name in dict.fromkeys((one.uuid, one.name) for one in order.guests)
        ],
        "expected": [*map(_seen, order.guests)],
        "originals": [*map(_seen, order.originals)],
        "hosts": order.hosts,
        "to": order.values.get("to", order.values.get("host", "")),
        "creates": order.creates,
        "omitted": order.omitted,
        "user": user,
        "check": order.check,
        "created": int(now),
        "exclusive": order.exclusive,
        "shared": order.shared,
    }


def _seen(guest: Seen) -> dict[str, t.Any]:
    return {"name": guest.name, "uuid": guest.uuid, "host": guest.host, "tags": guest.tags}


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
        descriptor = os.open(path, os.O_RDONLY)  # the file system may be read-only
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
    """A file of a job, empty if there is none. Of one that cannot be read, why: another process may have written it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        return strict.Unreadable(str(error), "")
    found = strict.read(content)
    return found if isinstance(found, dict) else strict.Unreadable("it is no object", content.decode(errors="replace"))


def _found(path: Path) -> Job | None:
    """The job of a directory; None if it is none. One whose request cannot be read is kept, and shown as such."""
    if not _ID.fullmatch(path.name) or not path.is_dir():
        _LOG.warning("%s is no job; it is left as it is", path)
        return None
    found = _read(path / "request.json")
    if not found:
        shutil.rmtree(path, ignore_errors=True)  # the request was never confirmed to a client
        return None
    whole = {"to": "", **{name: empty for name, empty in _PARTS.items() if name not in _NEEDED}, **found}
    odd = [name for name, empty in _PARTS.items() if type(whole.get(name)) is not type(empty)]
    odd += [] if odd else _odd_guests(whole)
    if not odd:
        return Job(path, whole)
    reason = str(found.get("unreadable") or f"it has no valid {', '.join(odd)}")
    kept: dict[str, t.Any] = {name: whole[name] for name in ("action", "user") if name not in odd and name in whole}
    with contextlib.suppress(ValueError):
        kept["created"] = calendar.timegm(time.strptime(path.name[:15], "%Y%m%d-%H%M%S"))
    return Job(path, {"to": "", **_PARTS, **kept}, unreadable=f"request.json: {reason}")  # nothing that may be secret


def _odd_guests(request: t.Mapping[str, t.Any]) -> list[str]:
    good = {
        "guests": all(_is_guest(each, "name", "uuid") for each in request["guests"]),
        **{
            part: all(_is_guest(each, "name", "uuid", "host") for each in request[part])
            for part in ("expected", "originals")
        },
    }
    return [name for name, right in good.items() if not right]


def _is_guest(part: object, *texts: str) -> bool:
    return (
        isinstance(part, dict)
        and all(isinstance(part.get(name), str) for name in texts)
        and isinstance(part.get("tags", []), list)
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _list(value: object) -> list[t.Any]:
    return value if isinstance(value, list) else []
