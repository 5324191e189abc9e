# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests as hosts of an inventory: choice among namesakes, names, groups, variables and connections. Pure."""

from __future__ import annotations

import difflib
import functools
import hashlib
import ipaddress
import re
import shlex
import socket
import typing as t
import urllib.parse

from ansible_collections.corral.virt.plugins.module_utils._core.defaults import LIBVIRT_TLS
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.plugin_utils._inventory.known_hosts import is_key
from ansible_collections.corral.virt.plugins.plugin_utils._report.foreign_text import printable

GROUP = "guests"
PREFIX = "virt_"
STALE_GROUP = "guests_stale"
STATE_GROUPS = ("guests_running", "guests_paused", "guests_shutdown")  # always there: plays name them

Facts = dict[str, t.Any]
Guests = dict[str, tuple[str, Facts]]  # hypervisor and facts by the name that is shown
Namer = t.Callable[[str, Facts], str]  # of a hypervisor and the facts of its guest

# Ansible's ssh cannot be told where its options end, and asks DNS for a name without `ansible_host`.
_SAFE_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?", re.ASCII)
_LOGIN = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_ALIAS = re.compile(r"alias_.*_[0-9a-f]{16}", re.DOTALL)
ADDRESSES = 1 << 16  # whose one spelling is kept: each is compared several times
_LOST = 10  # hypervisors of one reason in one warning
_FIRST = ("running", "paused")
_PORTS = {
    "tls": LIBVIRT_TLS,
    "tcp": 16509,
    "": LIBVIRT_TLS,
}  # libvirt takes tls where a URI with a host names no transport


def host_name(name: str) -> str:
    """The guest's name if that is safe as a host's name, else an alias, which no guest can have as its name.

    An alias depends on the name alone: it is the same on every hypervisor and in every run.
    """
    if _SAFE_NAME.fullmatch(name) and not _ALIAS.fullmatch(name) and not _is_number(name):
        return name
    letters = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:40]
    return f"alias_{letters}_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"


def is_destination(host: str) -> bool:
    """True if ssh takes the text only as a host: a safe name, or an IP address."""
    return bool(_SAFE_NAME.fullmatch(host)) or ip(host) is not None


def destination(host: str) -> str:
    """The canonical spelling of a host's name or address."""
    return str(ip(host) or host.lower().rstrip("."))


def strangers(groups: t.Mapping[str, t.Sequence[str]]) -> dict[str, str]:
    """Hosts outside the group of guests, by canonical spelling: no guest may have such a name."""
    names = set(groups.get("all", ())) - set(groups.get(GROUP, ()))
    return {destination(name): name for name in sorted(names)}


def _is_number(name: str) -> bool:
    """True if the resolver takes the name for an address: `10.0.0.1`, and `127.1`, `0x7f.1` and `42` too."""
    try:
        socket.inet_aton(name)
    except OSError:
        return False
    return True


def own_name(_hypervisor: str, facts: Facts) -> str:
    """The guest's own name, or its alias."""
    return host_name(facts["name"])


def chosen(answers: t.Mapping[str, t.Sequence[Facts]], name_of: Namer = own_name) -> tuple[Guests, list[str]]:
    """Hypervisor and facts of every guest by its name in the inventory, and warnings about names that occur twice."""
    holders: dict[str, list[tuple[str, Facts]]] = {}
    for hypervisor in sorted(answers):
        for facts in answers[hypervisor]:
            holders.setdefault(name_of(hypervisor, facts), []).append((hypervisor, facts))
    for name, found in holders.items():
        holders[name] = _without_past(found)
    for found in holders.values():
        found.sort(key=lambda item: _rank(item[1]))
    names = sorted(holders)
    return {name: holders[name][0] for name in names}, [
        _twice(name, holders[name]) for name in names if holders[name][1:]
    ]


def _without_past(found: list[tuple[str, Facts]]) -> list[tuple[str, Facts]]:
    """The candidates without stale facts of a guest that is seen elsewhere now: it has moved."""
    seen = {facts["uuid"] for _hypervisor, facts in found if not facts.get("stale")}
    return [item for item in found if not item[1].get("stale") or item[1]["uuid"] not in seen]


def _rank(facts: Facts) -> int:
    if facts.get("stale"):
        return len(_FIRST) + 1
    return _FIRST.index(facts["state"]) if facts["state"] in _FIRST else len(_FIRST)


def is_active(facts: Facts) -> bool:
    """True if the guest was just seen running or paused."""
    return _rank(facts) < len(_FIRST)


def _twice(name: str, found: t.Sequence[tuple[str, Facts]]) -> str:
    running = [
        (hypervisor, facts) for hypervisor, facts in found if facts["state"] == "running" and not facts.get("stale")
    ]
    shown = f"the one on {found[0][0]} is shown"
    if not running[1:]:
        where = " and ".join(f"{hypervisor} ({facts['state']})" for hypervisor, facts in found)
        return f"guest {name} is on {where}; {shown}"
    where = " and ".join(hypervisor for hypervisor, _facts in running)
    if len({facts["uuid"] for _hypervisor, facts in running}) == 1:
        return (
            f"GUEST {name} RUNS TWICE, on {where}: two copies of one guest damage its disks; destroy the wrong one "
            f"now ({shown})"
        )
    return f"TWO GUESTS NAMED {name} RUN, on {where}: only one can be shown; rename the other ({shown})"


def variables(hypervisor: str, facts: Facts, address: str | None, prefix: str = PREFIX) -> dict[str, t.Any]:
    """Host variables of a guest. Without a known address there is no `ansible_host`: the guest's name may resolve.

    `prefix` applies to variables that the collection itself does not read.
    """
    known = {f"{prefix}{key}": facts[key] for key in ("state", "vcpus", "memory_mib", "macs", "addresses")}
    known |= {f"{prefix}title": printable(facts["title"]), f"{prefix}tags": list(map(printable, facts["tags"]))}
    if facts.get("stale"):
        known[f"{prefix}stale"] = True
    identity = {"virt_hypervisor": hypervisor, "virt_name": printable(facts["name"]), "virt_uuid": facts["uuid"]}
    return {**identity, **known, **({"ansible_host": address} if address else {})}


def groups(hypervisor: str, facts: Facts) -> list[str]:
    """Groups below `guests`, not yet in the letters Ansible allows. Stale facts give no state."""
    state = STALE_GROUP if facts.get("stale") else f"guests_{facts['state']}"
    return [f"on_{hypervisor}", state, *(f"tag_{tag}" for tag in facts["tags"])]


def login_group(facts: Facts) -> tuple[str, str] | None:
    """The group of guests with the same login user, and that user; None for an invalid or no user."""
    user = facts.get("login_user")
    return (f"guests_login_{user}", user) if isinstance(user, str) and _LOGIN.fullmatch(user) else None


def lost(reasons: t.Mapping[str, str], asked: int, stale: t.Container[str] = ()) -> str:
    """One warning about hypervisors that did not answer; empty if all did. `stale` ones have last known guests."""
    alike: dict[tuple[str, bool], list[str]] = {}
    for name in sorted(reasons):
        alike.setdefault((reasons[name], name in stale), []).append(name)
    shown = {False: "not shown", True: "shown as last known"}
    parts = [
        f"guests on {some_of(names, _LOST)} are {shown[past]}: {reason}"
        for (reason, past), names in sorted(alike.items(), key=lambda item: (-len(item[1]), item[1]))
    ]
    one = f"{len(reasons)} of {asked} hypervisors did not answer"
    return f"{one}; {'; '.join(parts)}" if parts else ""


def unknown(option: str, known: t.Collection[str]) -> str:
    """The message about an unknown option."""
    near = difflib.get_close_matches(option, sorted(known), 1)
    return f"{option} is not an option of this plugin{f'; did you mean {near[0]}?' if near else ''}"


def contradictions(options: t.Mapping[str, t.Any]) -> list[str]:
    """Problems of options that contradict each other, or have invalid values."""
    problems = []
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", options["hostvars_prefix"], re.ASCII):
        problems.append("hostvars_prefix must begin with a letter or _, and have letters, digits and _ only")
    if options["show_stale"] and not options["cache"]:
        problems.append("show_stale requires cache: true")
    elif options["show_stale"] and str(options["cache_plugin"]).rpartition(".")[2] == "memory":
        problems.append("show_stale requires a cache_plugin that keeps files, such as ansible.builtin.jsonfile")
    if options["connection"] == "agent" and any(options[name] for name in ("ca_file", "cert_file", "key_file")):
        problems.append("connection: agent requires pki_dir instead of ca_file, which the plugin reads only itself")
    return problems


@functools.lru_cache(maxsize=ADDRESSES)
def ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address, also of `ADDRESS/PREFIX`, in canonical form; None for other text and for one with a zone."""
    try:
        found = None if "%" in text else ipaddress.ip_interface(text).ip
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def ssh_args(known_hosts: str, name: str) -> str:
    """ssh arguments to check the guest's key in that file under its own name, without questions."""
    literal = known_hosts.replace("%", "%%")  # ssh's own placeholders
    options = (f'UserKnownHostsFile="{literal}"', f'HostKeyAlias="{name}"', "StrictHostKeyChecking=yes")
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def ssh_args_of_key(key: str, name: str) -> str:
    """ssh arguments to accept only this key and the machine's own `ssh_known_hosts`.

    The key is in the argument itself, because AWX runs a job elsewhere than it has read the inventory.
    """
    options = (
        "IgnoreUnknown=KnownHostsCommand",  # an ssh that is too old refuses the guest instead of the arguments
        f"KnownHostsCommand=/bin/echo {name} {key}",
        "UserKnownHostsFile=/dev/null",
        f'HostKeyAlias="{name}"',
        "StrictHostKeyChecking=yes",
    )
    return " ".join(f"-o {shlex.quote(option)}" for option in options)


def host_keys(answers: t.Mapping[str, t.Sequence[Facts]], name_of: Namer = own_name) -> dict[str, str]:
    """The recorded SSH host key of every guest by its shown name, unless hypervisors report different ones.

    Stale facts count only if there are no others.
    """
    now: dict[str, set[str]] = {}
    past: dict[str, set[str]] = {}
    for hypervisor, found in answers.items():
        for facts in found:
            claims = (past if facts.get("stale") else now).setdefault(name_of(hypervisor, facts), set())
            claims.update(filter(None, [facts["ssh_host_key"]]))
    return {name: key for name, keys in {**past, **now}.items() if len(keys) == 1 for key in keys if is_key(key)}


def in_uri(host: str) -> str:
    """A host name or address in the syntax of a URI."""
    return f"[{host}]" if ":" in host else host


def unattended(uri: str) -> str:
    """The URI with an ssh that never prompts: many connections share one terminal."""
    parts = urllib.parse.urlsplit(uri)
    if not parts.scheme.endswith("+ssh") or "no_tty=" in parts.query:
        return uri
    return parts._replace(query="&".join(filter(None, [parts.query, "no_tty=1"]))).geturl()


def endpoint(uri: str) -> tuple[str, int] | None:
    """Host and port that the URI connects to by TCP.

    None for sockets of this machine, and for ssh, which may have a configuration of its own.
    """
    parts = urllib.parse.urlsplit(uri)
    transport = parts.scheme.partition("+")[2]
    if not parts.hostname or transport not in _PORTS:
        return None
    return parts.hostname, parts.port or _PORTS[transport]
