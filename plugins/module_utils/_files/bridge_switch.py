# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""Try a network with a bridge, and take it back unless the controller confirms it in time.

This file is copied to the host's /run and runs there as a service of its own, which survives the
loss of the connection and the end of the module. So it imports nothing of the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import time
import typing as t

__all__ = ["main", "rollback", "switch"]

STATE = "/run/corral-bridge"
COMMAND_S = 60
AFTER_RELOAD_S = 20
POLL_S = 0.1
DELAY_S = 1.0  # lets the answer to the controller leave

Change = t.Mapping[str, t.Any]
Log = list[dict[str, str]]
Texts = dict[str, t.Optional[str]]


class SwitchFailed(Exception):
    """Why the bridge was taken back."""


def main() -> None:
    """Entry point; leaves result.json."""
    change = json.loads(read(f"{STATE}/change.json") or "{}")
    log: Log = []
    replaced: Texts = {}
    result: dict[str, t.Any] = {"ok": True}
    try:
        switch(change, log, replaced)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the host must be reachable again
        rollback(change, log, replaced)
        result = {"ok": False, "why": str(problem) or repr(problem)}
    write(f"{STATE}/result.json", json.dumps({**result, "log": log}))


def switch(change: Change, log: Log, replaced: Texts) -> None:
    """Raises whatever speaks against the bridge; `replaced` gets the texts of before."""
    before = static_addresses(change["port"])
    time.sleep(DELAY_S)
    deadline = time.monotonic() + change["timeout_s"]
    attempt(change["down"], log)
    for path, text in change["trial"].items():
        write(path, text)
    attempt(change["up"], log, must=True)

    def taken_over() -> bool:
        return has_taken_over(change, before)

    bridge = change["bridge"]
    wait_for(taken_over, deadline, f"{bridge} did not take over the addresses")
    wait_for(is_confirmed, deadline, "no connection came back over the bridge")
    for path, text in change["lasting"].items():
        replaced[path] = read(path)
        write(path, text)
    for path in change["trial"]:
        remove(path)
    attempt(change["reload"], log)
    deadline = time.monotonic() + AFTER_RELOAD_S
    wait_for(taken_over, deadline, f"{bridge} lost its addresses again")


def rollback(change: Change, log: Log, replaced: Texts) -> None:
    """Leave the host as it was before; goes on whatever fails."""
    for path, text in replaced.items():
        with contextlib.suppress(OSError):
            write(path, text) if text is not None else remove(path)
    if change["undo_in_trial"]:
        for path, text in change["trial"].items():
            with contextlib.suppress(OSError):
                write(path, text)
        attempt(change["undo_in_trial"], log)
    for path in change["trial"]:
        with contextlib.suppress(OSError):
            remove(path)
    attempt(change["undo"], log)


def is_confirmed() -> bool:
    """Whether the controller came back."""
    return os.path.exists(f"{STATE}/confirmed")


def has_taken_over(change: Change, before: t.Collection[str]) -> bool:
    """Whether the port is in the bridge, and the bridge has the addresses."""
    now = {row["local"] for row in addresses(change["bridge"])}
    master = os.path.realpath(f"/sys/class/net/{change['port']}/master")
    return os.path.basename(master) == change["bridge"] and bool(now) and set(before) <= now


def static_addresses(link: str) -> list[str]:
    """Addresses that no server could replace by others."""
    rows = [row for row in addresses(link) if row["scope"] == "global"]
    return [row["local"] for row in rows if not row.get("dynamic")]


def addresses(link: str) -> list[dict[str, t.Any]]:
    """As `ip` shows them; none of a link that is not there."""
    try:
        found = json.loads(run(["ip", "-j", "addr", "show", "dev", link]) or "[]")
    except SwitchFailed:
        return []
    return [row for each in found if each for row in each["addr_info"]]


def wait_for(condition: t.Callable[[], bool], deadline: float, problem: str) -> None:
    """Raises SwitchFailed when it does not come about in time."""
    while not condition():
        if time.monotonic() > deadline:
            raise SwitchFailed(problem)
        time.sleep(POLL_S)


def attempt(commands: t.Sequence[t.Sequence[str]], log: Log, *, must: bool = False) -> None:
    """Run commands; one that fails is only noted, unless it `must` not."""
    for command in commands:
        try:
            printed = run(command)
        except SwitchFailed as problem:
            log.append({"command": " ".join(command), "output": str(problem)})
            if must:
                raise
        else:
            log.append({"command": " ".join(command), "output": printed})


def run(command: t.Sequence[str]) -> str:
    """What a program printed; raises SwitchFailed."""
    text = " ".join(command)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SwitchFailed(f"{text} failed: {error}") from error
    if done.returncode:
        raise SwitchFailed(f"{text} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def read(path: str) -> str | None:
    """The text of a file; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    """Replace a file at once. netplan's may hold passwords: only root ever reads them."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    private = "/netplan/" in path or path.startswith(STATE)
    path = os.path.realpath(path) if os.path.isfile(path) else path
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.isfile(path) else 0o644
    aside = f"{path}.corral-new"
    remove(aside)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        os.fchmod(descriptor, 0o600 if private else mode)
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    os.replace(aside, path)
    sync(os.path.dirname(path))


def sync(folder: str) -> None:
    """Let a power cut keep the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


if __name__ == "__main__":
    main()
