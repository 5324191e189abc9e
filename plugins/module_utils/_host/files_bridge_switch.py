# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try a network with a bridge, and take it back unless the controller confirms it in time.

This file is copied to the host's /run and runs there as a service of its own, which survives the
loss of the connection and the end of the module. So it imports nothing of the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import time
import typing as t

STATE = "/run/corral-bridge"
COMMAND_S = 60
AFTER_RELOAD_S = 20
GRACE_S = 3  # for the configuration to bring what it has
RESTORE_S = 45  # what configures links may take long on a busy host, and may take back what was added meanwhile
LEASE_S = 6  # for a DHCP server or a router to give its addresses again
POLL_S = 0.1
DELAY_S = 1.0  # lets the answer to the controller leave

Change = t.Mapping[str, t.Any]
Commands = t.Sequence[t.Sequence[str]]
Log = list[dict[str, str]]
Texts = dict[str, t.Optional[str]]
Settings = dict[str, list[str]]  # by what they are, each with the command that adds it; LINK is the link's name
LINK = "@link@"
RESOLV_CONF = "/etc/resolv.conf"
LEASED = ("dhcp", "ra")  # who bring their routes again, if they answer
OTHERS = ("kernel", *LEASED)


class Lease(t.NamedTuple):
    """Addresses that were given for a time, as `ip -j` shows them, and the routes that came with them."""

    since: float  # when they were read, in seconds of time.monotonic()
    rows: list[dict[str, t.Any]]
    routes: Settings


class SwitchFailed(Exception):
    """Why the bridge was rolled back."""


def main() -> None:
    """Run the switch, roll back on any error, and write result.json."""
    change = json.loads(read(f"{STATE}/change.json") or "{}")
    log: Log = []
    replaced: Texts = {}
    before: Settings = {}
    result: dict[str, t.Any] = {"ok": True}
    link = change["holder"] or change["port"]
    lease = Lease(0, [], {})
    try:
        lease = leased(link)
        switch(change, log, replaced, before)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the host must be reachable again
        rollback(change, log, replaced, before)
        differs = restore(link, before, lease, change, log)
        result = {"ok": False, "why": str(problem) or repr(problem), "differs": differs}
    write(f"{STATE}/result.json", json.dumps({**result, "log": log}))


def switch(change: Change, log: Log, replaced: Texts, settings: Settings) -> None:
    """Switch to the bridge; raises any error. The previous state goes to `replaced` and `settings`."""
    before = addresses(change["holder"] or change["port"])
    settings.update(settings_of(change["holder"] or change["port"]))
    time.sleep(DELAY_S)
    deadline = time.monotonic() + change["timeout_s"]
    attempt(change["down"], log)
    for path, text in change["trial"].items():
        write(path, text)
    attempt(change["up"], log, must=True, limit_s=max(GRACE_S, deadline - time.monotonic()))

    bridge, holder = change["bridge"], change["holder"] or change["bridge"]
    grace = time.monotonic() + min(GRACE_S, change["timeout_s"] / 3)

    def taken_over() -> bool:
        """True if the bridge has the addresses; settings that no configuration restores are added by hand."""
        if lacking(holder, settings):
            if time.monotonic() < grace:
                return False
            add(holder, settings, log)
        return has_taken_over(change, before)

    wait_for(taken_over, deadline, f"{bridge} lacks its port, or {holder} the addresses")
    wait_for(is_confirmed, deadline, "no connection came back over the bridge")
    for path, text in change["lasting"].items():
        replaced[path] = read(path)
        write(path, text)
    for path in change["trial"]:
        remove(path)
    attempt(change["reload"], log)
    deadline = time.monotonic() + AFTER_RELOAD_S
    grace = time.monotonic() + GRACE_S
    wait_for(taken_over, deadline, f"{bridge} lost its port again, or {holder} its addresses")
    if holder == bridge:
        drop_rules(change["port"], settings, log)


def rollback(change: Change, log: Log, replaced: Texts, settings: Settings) -> None:
    """Restore the host's configuration; continues after errors."""
    if not change["holder"]:
        drop_rules(change["bridge"], settings, log)
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


def drop_rules(link: str, settings: Settings, log: Log) -> None:
    """Delete a link's rules that are in `settings`: they belong to another link now."""
    there = settings_of(link)
    for what in there.keys() & settings.keys():
        if what.startswith("rule "):
            words = ["del" if word == "add" else word for word in there[what]]
            attempt([named(words, link)], log)


def restore(link: str, settings: Settings, lease: Lease, change: Change, log: Log) -> list[str]:
    """Bring the link up, and add settings that it does not bring; returns those still missing, with the commands to add
    them.

    Addresses of a server that does not answer are put back by hand until their time is over: it may be gone. Before
    that, `patience` keeps the link's owner from giving up, and from taking all addresses of the link with it. A command
    of `up_again` may wait for the server: it is left to itself, and goes on asking.
    """
    patience, is_leased = change["patience"], bool(rest_of(lease))
    attempt(change["up_again"], log, limit_s=GRACE_S if is_leased else COMMAND_S, leave=is_leased)
    began = asked = calm = time.monotonic()
    while time.monotonic() < min(began + RESTORE_S, calm + GRACE_S):
        if lacking(link, settings) or is_without(link, lease):
            calm = time.monotonic()  # what is there may be taken away again, while the link is configured anew
            if calm >= began + GRACE_S:
                add(link, settings, log)
        if patience and time.monotonic() >= asked + LEASE_S and is_without(link, lease):
            attempt(patience, log)
            patience, asked = (), asked + GRACE_S  # it may take addresses away once more
        elif time.monotonic() >= asked + LEASE_S and is_without(link, lease):
            attempt([named(words, link) for words in rest_of(lease).values()], log)
        time.sleep(POLL_S)
    if is_without(link, lease):
        settings = {**settings, **rest_of(lease)}
    return [f"{what} is not on {link} (`{' '.join(named(settings[what], link))}`)" for what in lacking(link, settings)]


def add(link: str, settings: Settings, log: Log) -> None:
    """Add the settings that a link lacks, in two passes: a route may require another one, or the configuration may have
    another one in its place.
    """
    for verb in ("add", "replace"):
        missing = [named(settings[what], link) for what in lacking(link, settings)]
        attempt([[*words[:3], verb, *words[4:]] if words[2:4] == ["route", "add"] else words for words in missing], log)


def lacking(link: str, settings: Settings) -> list[str]:
    """The settings that a link lacks."""
    if not settings:
        return []
    now = settings_of(link)
    return [what for what in settings if what not in now]


def named(words: t.Sequence[str], link: str) -> list[str]:
    """The command with the link's name filled in."""
    return [word.replace(LINK, link) for word in words]


def settings_of(link: str) -> Settings:
    """Addresses, routes, rules and DNS servers of a link that no kernel, DHCP or RA restores."""
    found: Settings = {}
    for row in addresses(link):
        if row.get("scope") == "global" and not row.get("dynamic"):
            found.update(address_of(row))
    for family in ("-4", "-6"):
        for line in lines_of("ip", family, "route", "show", "table", "all", "dev", link):
            found.update(route_of(line.split(), family))
        for line in lines_of("ip", "-o", family, "route", "show", "table", "all"):  # `dev` leaves out several next hops
            found.update(multipath_of(line.replace("\\", " ").split(), family, link))
        for line in lines_of("ip", family, "rule", "show"):
            found.update(rule_of(line.split(), family, link))
    for setting in ("dns", "domain"):
        for line in lines_of("resolvectl", setting, link):
            values = line.partition("): ")[2].split()
            if values:
                found[f"{setting} {' '.join(values)}"] = ["resolvectl", setting, LINK, *values]
    for words in map(str.split, (read(RESOLV_CONF) or "").splitlines()):
        if words[:1] == ["nameserver"] and words[1:] and not set(words[1]) - set("0123456789abcdefABCDEF:."):
            adds = f"echo nameserver {words[1]} >> {RESOLV_CONF}"
            found[f"nameserver {words[1]} of {RESOLV_CONF}"] = ["sh", "-c", adds]
    return found


def leased(link: str) -> Lease:
    """What DHCP or a router has given a link for a time."""
    rows = [row for row in addresses(link) if row.get("scope") == "global" and row.get("dynamic")]
    routes: Settings = {}
    for family in ("-4", "-6"):
        for line in lines_of("ip", family, "route", "show", "table", "all", "dev", link):
            routes.update(route_of(line.split(), family, of=LEASED))
    return Lease(time.monotonic(), rows, routes)


def rest_of(lease: Lease) -> Settings:
    """The addresses whose time is not over, for the rest of it, with their routes: the server gives others away."""
    found: Settings = {}
    passed_s = time.monotonic() - lease.since
    for row in lease.rows:
        valid_s, preferred_s = (int(row[f"{each}_life_time"] - passed_s) for each in ("valid", "preferred"))
        left = ["valid_lft", str(valid_s), "preferred_lft", str(max(0, preferred_s))]
        found.update({what: [*words, *left] for what, words in address_of(row).items() if valid_s > 0})
    return {**found, **lease.routes} if found else {}


def is_without(link: str, lease: Lease) -> bool:
    """True if a link that was given addresses has none, and the time of these is not over."""
    return bool(rest_of(lease)) and not any(row.get("scope") == "global" for row in addresses(link))


def address_of(row: t.Mapping[str, t.Any]) -> Settings:
    """The setting of one address from `ip -j`."""
    place = f"{row['local']}/{row['prefixlen']}"
    words = [row["local"], "peer", f"{row['address']}/{row['prefixlen']}"] if row.get("address") else [place]
    words += ["broadcast", row["broadcast"]] if row.get("broadcast") else []
    alias = str(row.get("label") or "").partition(":")[2]
    words += ["label", f"{LINK}:{alias}"] if alias else []
    return {f"address {place}": ["ip", "addr", "add", *words, "dev", LINK]}


def route_of(words: t.Sequence[str], family: str, *, of: t.Collection[str] = ()) -> Settings:
    """The setting of one route from `ip` without its device; empty for one that is restored by itself, or that is not
    `of` these.
    """
    special = ("local", "broadcast", "multicast", "anycast", "nexthop", "expires")
    stranger = not is_of(words, of) if of else is_of(words, OTHERS)
    if not words or stranger or any(word in special for word in words):
        return {}
    plain = plain_route(words)
    keys = [plain[at : at + 2] for at, word in enumerate(plain) if word in ("via", "table")]
    what = " ".join([plain[0], *(word for key in keys for word in key)])
    return {f"route {what}": ["ip", family, "route", "add", *plain, "dev", LINK]}


def multipath_of(words: t.Sequence[str], family: str, link: str) -> Settings:
    """The setting of a multipath route with a next hop on the link; it replaces what is left of the route."""
    if "nexthop" not in words or is_of(words, OTHERS):
        return {}
    hops = [at for at, word in enumerate(words) if word == "dev"]
    if all(words[at + 1 : at + 2] != [link] for at in hops):
        return {}
    moved = [LINK if at - 1 in hops and word == link else word for at, word in enumerate(words)]
    plain = plain_route(moved)
    keys = [plain[at : at + 2] for at, word in enumerate(plain) if word in ("via", "dev", "table")]
    what = " ".join([plain[0], *(word for key in keys for word in key)]).replace(LINK, "it")
    return {f"route {what}": ["ip", family, "route", "replace", *plain]}


def is_of(words: t.Sequence[str], owners: t.Collection[str]) -> bool:
    """True if a route is of one of these, such as dhcp."""
    return "proto" in words and words[words.index("proto") + 1] in owners


def plain_route(words: t.Sequence[str]) -> list[str]:
    """A route as it is added: without its state, and without the id of a next hop, which goes with the link."""
    numbers = [at for at, word in enumerate(words) if word == "nhid"]
    numbered = {*numbers, *(at + 1 for at in numbers)}
    return [word for at, word in enumerate(words) if word not in ("linkdown", "dead") and at not in numbered]


def rule_of(words: t.Sequence[str], family: str, link: str) -> Settings:
    """The setting of one rule that names the link; empty for any other."""
    ends = [at for at, word in enumerate(words) if word in ("iif", "oif") and words[at + 1 : at + 2] == [link]]
    if not ends:
        return {}
    plain = [LINK if at - 1 in ends else word for at, word in enumerate(words) if word != "[detached]"]
    what = " ".join(plain[1:]).replace(LINK, "it")
    return {f"rule {family} {what}": ["ip", family, "rule", "add", "prio", plain[0].rstrip(":"), *plain[1:]]}


def lines_of(*command: str) -> list[str]:
    """The output lines of a program; empty if it is missing or fails."""
    try:
        return run(command).splitlines()
    except SwitchFailed:
        return []


def is_confirmed() -> bool:
    """True if the controller has come back."""
    return os.path.exists(f"{STATE}/confirmed")


def has_taken_over(change: Change, before: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """True if the port is in the bridge, and the holder has the addresses; of dynamic ones (DHCP or RA), any."""
    now = {row["local"] for row in addresses(change["holder"] or change["bridge"])}
    static = {row["local"] for row in before if row["scope"] == "global" and not row.get("dynamic")}
    master = os.path.realpath(f"/sys/class/net/{change['port']}/master")
    return os.path.basename(master) == change["bridge"] and bool(now) >= bool(before) and static <= now


def addresses(link: str) -> list[dict[str, t.Any]]:
    """Addresses of a link from `ip -j`; empty if the link does not exist."""
    try:
        found = json.loads(run(["ip", "-j", "addr", "show", "dev", link]) or "[]")
    except SwitchFailed:
        return []
    return [row for each in found if each for row in each["addr_info"]]


def wait_for(condition: t.Callable[[], bool], deadline: float, problem: str) -> None:
    """Wait for a condition; raises SwitchFailed after the deadline."""
    while not condition():
        if time.monotonic() > deadline:
            raise SwitchFailed(problem)
        time.sleep(POLL_S)


def attempt(
    commands: Commands, log: Log, *, must: bool = False, limit_s: float = COMMAND_S, leave: bool = False
) -> None:
    """Run commands; failures are only logged, unless `must`."""
    for command in commands:
        try:
            printed = run(command, limit_s, leave=leave)
        except SwitchFailed as problem:
            log.append({"command": " ".join(command), "output": str(problem)})
            if must:
                raise
        else:
            log.append({"command": " ".join(command), "output": printed})


def run(command: t.Sequence[str], limit_s: float = COMMAND_S, *, leave: bool = False) -> str:
    """The output of a program; raises SwitchFailed. What takes longer ends with all that it has started, or is left to
    itself. Its output goes to files in memory, as a daemon may keep it open.
    """
    text = " ".join(command)
    with open(os.memfd_create("output"), "w+b") as output, open(os.memfd_create("errors"), "w+b") as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
            code = process.wait(limit_s)
        except OSError as error:
            raise SwitchFailed(f"{text} failed: {error}") from error
        except subprocess.TimeoutExpired:
            if not leave:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise SwitchFailed(f"{text} did not end within {limit_s:.0f} s") from None
        printed, complaint = map(written, (output, errors))
    if code:
        raise SwitchFailed(f"{text} failed: {(complaint or printed).strip()}")
    return printed


def written(stream: t.BinaryIO) -> str:
    """All that was written to a stream."""
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def read(path: str) -> str | None:
    """The text of a file; None if there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def write(path: str, text: str) -> None:
    """Replace a file atomically. netplan's and NetworkManager's may hold passwords: only root can ever read them."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    private = "/netplan/" in path or "/system-connections/" in path or path.startswith(STATE)
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
    """Write the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


if __name__ == "__main__":
    main()
