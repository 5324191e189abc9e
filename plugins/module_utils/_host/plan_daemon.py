# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of libvirt's daemons, and which daemons must restart for them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import (
    LOCKD_CONF,
    LOCKD_SOCKET,
    MODULAR,
    MONOLITHIC,
    PRIVATE,
    QEMU_CONF,
    SECURITY_DRIVER,
    DaemonFacts,
    Daemons,
    DaemonSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import HOOK, DueRestart, Unit
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile

# The vocabulary of change of libvirt's daemons: plain data with a readable text.


@dataclasses.dataclass(frozen=True)
class EnableSockets(HostStep):
    """Enable sockets from the next boot on."""

    units: tuple[str, ...]

    def __str__(self) -> str:
        return f"enable {', '.join(self.units)}"


@dataclasses.dataclass(frozen=True)
class MakeLeases(HostStep):
    """Create the directory of leases, which only root may read."""

    template = "create {0.path}"
    path: str


@dataclasses.dataclass(frozen=True)
class RestartDaemons(HostStep):
    """Restart daemons while no guest has a job that would break; start the sockets that they lack."""

    template = "restart {0.what}"
    due: tuple[DueRestart, ...]

    @property
    def breaks_jobs(self) -> bool:
        """True if one of the daemons runs."""
        return any(each.runs for each in self.due)

    @property
    def what(self) -> str:
        """The daemons, and the reasons."""
        return " and ".join(map(str, self.due))


_BLOCK_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_SETTING = re.compile(r"[a-z][a-z0-9_]*")
_PASSWORD = re.compile(r"^(\S*passw\S* = ).*$", re.MULTILINE)
_CLIENTS = "tls_allowed_dn_list"
_LOCK_MANAGER = "lock_manager"
_UUIDS = {"host_uuid", "host_uuid_source"}

# What comes next on the way to a restart; `lock` all guests against runs of virt_migrate, and look again.
Ahead = t.Literal["lock", "restart", "wait", "give up"]


def spec(params: t.Mapping[str, t.Any]) -> DaemonSpec:
    """The requested settings; raises BadInput with every problem."""
    problems = []
    if not _BLOCK_NAME.fullmatch(params["block"]):
        problems.append(f"block: {params['block']!r} is not a valid name; use lower-case letters, digits and . _ -")
    for option in ("daemon_settings", "qemu_settings"):
        for name, value in (params[option] or {}).items():
            problems += [f"{option}: {problem}" for problem in _problems(name, value)]
    problems += [
        f"clients: {one!r} contains a character that libvirt cannot read"
        for one in params["clients"] or ()
        if not _is_text(one)
    ]
    if _CLIENTS in (params["daemon_settings"] or {}) and params["clients"] is not None:
        problems.append(f"daemon_settings: {_CLIENTS} is what `clients` sets; omit one of them")
    if params["machine_uuid"] and params["daemon_settings"] is None:
        problems.append("machine_uuid: is a setting of the daemon; specify daemon_settings, too ({} for no others)")
    if params["leases"] and not (params["leases"].startswith("/") and _is_text(params["leases"])):
        problems.append(f"leases: {params['leases']!r} is not an absolute path that libvirt can read")
    if _LOCK_MANAGER in (params["qemu_settings"] or {}) and params["leases"] is not None:
        problems.append(f"qemu_settings: {_LOCK_MANAGER} is what `leases` sets; omit one of them")
    if params["restart_timeout"] < 0:
        problems.append(f"restart_timeout: must be at least 0 seconds, not {params['restart_timeout']}")
    if problems:
        raise BadInput(problems)
    values = {one.name: params[one.name] for one in dataclasses.fields(DaemonSpec)}
    clients = None if values["clients"] is None else tuple(values["clients"])
    return DaemonSpec(**{**values, "clients": clients, "promised": tuple(values["promised"])})


def passwords(params: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """Values of settings that must not be shown."""
    for option in ("daemon_settings", "qemu_settings"):
        settings = params.get(option)
        for name, value in settings.items() if isinstance(settings, dict) else ():
            if "passw" in str(name) and isinstance(value, str):
                yield value


def installed(units: t.Mapping[str, Unit]) -> bool:
    """True if the host has a libvirt that systemd starts."""
    return any(units[name].exists for name in ("libvirtd.socket", "virtqemud.socket"))


def daemons(units: t.Mapping[str, Unit], *, modular: bool) -> Daemons:
    """The daemons that serve the host. If both kinds are enabled, libvirtd holds the sockets that clients use.

    `modular` decides if neither is enabled: nothing may be installed yet.
    """
    if units["libvirtd.socket"].enabled:
        return MONOLITHIC
    return MODULAR if units["virtqemud.socket"].enabled or modular else MONOLITHIC


def decide(
    wanted: DaemonSpec, there: Daemons, facts: DaemonFacts
) -> tuple[list[HostStep], RestartDaemons | None, list[Change]]:
    """Files to write and sockets to enable; daemons to restart when no guest has a job; and the changes."""
    steps: list[HostStep] = []
    changes: list[Change] = []
    if wanted.leases and installed(facts.units):
        steps += _lease_directory(wanted.leases, facts)
        changes += [Change(step.path, None, "directory") for step in steps if isinstance(step, MakeLeases)]
    for path, settings in _settings(wanted, there, facts).items():
        before, after = block(facts.texts[path], wanted.block), _lines(settings)
        text = with_block(facts.texts[path], wanted.block, after)
        if text != facts.texts[path]:
            steps.append(
                WriteFile(path, text, why=f"settings of {wanted.block}", mode=0o600 if path in PRIVATE else 0o644)
            )
            changes.append(Change(path, *_shown(before, after or None)))
    sockets = _sockets(wanted, there, facts)
    if masked := [socket for socket in sockets if facts.units[socket].masked]:
        raise Refused(
            f"cannot enable {', '.join(masked)}: masked on this host; run systemctl unmask {' '.join(masked)}"
        )
    disabled = [socket for socket in sockets if not facts.units[socket].enabled]
    if disabled:
        steps.append(EnableSockets(tuple(disabled)))
        changes += [Change(f"{socket}.enabled", False, True) for socket in disabled]
    # What an earlier task of a check run would have made is there in a real one. A package that changes may not be the
    # one with the program.
    written = [path for path in wanted.promised if path != SECURITY_DRIVER or path not in facts.changed]
    written += [step.path for step in steps if isinstance(step, WriteFile)]
    again = due(there, facts, written=written, sockets=sockets)
    return steps, RestartDaemons(tuple(again)) if again else None, changes


def late(restart: RestartDaemons, jobs: t.Sequence[str]) -> str:
    """The message that new settings are not in effect yet."""
    return (
        f"new settings of libvirt are not in effect yet: a restart of {restart.what} would break these running jobs: "
        f"{'; '.join(jobs)}. Run again when they have ended"
    )


def ahead(restart: RestartDaemons, jobs: t.Sequence[str], *, locked: bool, left_s: float) -> Ahead:
    """What to do, given the jobs of guests (`locked`: seen while no run can start one), and the time left.

    virt_migrate holds the guest's lock on the source from its first step to its last, also while libvirt has no job.
    While all locks are held here, none starts until the daemon is back. Nothing locks the destination, and other
    programs lock nothing: what they start in the milliseconds between the second look and the restart breaks.
    """
    if not restart.breaks_jobs:
        return "restart"
    if not jobs:
        return "restart" if locked else "lock"
    return "wait" if left_s > 0 else "give up"


def work(migrating: t.Iterable[str], jobs: t.Iterable[str]) -> list[str]:
    """All that a restart would break: migrations of other runs, and jobs."""
    return [*(f"{name}: a run of virt_migrate" for name in migrating), *jobs]


def due(
    there: Daemons, facts: DaemonFacts, *, written: t.Collection[str] = (), sockets: t.Collection[str] = ()
) -> list[DueRestart]:
    """Daemons that run with old settings, have failed, or lack a socket. `written`: files about to change.

    This is read from the host each time, so a killed run loses no restart.
    """
    found = []
    for unit in dict.fromkeys([*there.reads, *there.sockets.values()]):
        files, its = there.reads.get(unit, ()), facts.units[unit]
        # One that does not run reads its files when it starts.
        changed = [path for path in files if its.runs and (path in written or facts.changed.get(path, 0) > its.started)]
        lacks = [name for name in sockets if _daemon_of(name, there) == unit and facts.units[name].active != "active"]
        reasons = ["failed"] if its.active == "failed" else []
        settings = [path for path in changed if path != HOOK]
        reasons += [f"runs with the former content of {' and '.join(settings)}"] if settings else []
        reasons += [f"started before {HOOK} was installed or changed"] if HOOK in changed else []
        reasons += [f"has no {' and '.join(lacks)}"] if lacks else []
        if reasons:
            found.append(DueRestart(unit, ", ".join(reasons), its.active, files, tuple(lacks)))
    return found


def block(text: str, name: str) -> str | None:
    """The text between the marks of a block; None if there is no block."""
    found = _pattern(name).search(text)
    return found[1] if found else None


def with_block(text: str, name: str, lines: str) -> str:
    """The text with these lines in the block; a new block comes first. Without lines, the marks go, too.

    Raises Refused if only one mark is there.
    """
    begin, end = _marks(name)
    new = f"{begin}\n{lines}{end}\n" if lines else ""
    found = _pattern(name).search(text)
    if not found:
        if begin in text.splitlines() or end in text.splitlines():
            raise Refused(
                f"one of the lines {begin!r} and {end!r} is missing, or they are in the wrong order; correct that, or "
                "remove both"
            )
        return new + text
    return text[: found.start()] + new + text[found.end() :]


def _settings(wanted: DaemonSpec, there: Daemons, facts: DaemonFacts) -> dict[str, t.Mapping[str, t.Any]]:
    """Requested settings by the file that takes them."""
    found: dict[str, t.Mapping[str, t.Any]] = {}
    if wanted.daemon_settings is not None:
        for path in there.settings:
            uuid = {} if _has_uuid(wanted, facts, path) else {"host_uuid_source": "machine-id"}
            found[path] = {**uuid, **wanted.daemon_settings}
    if wanted.clients is not None:
        kept = () if wanted.purge_clients else _clients(block(facts.texts[there.tls_settings], wanted.block))
        found[there.tls_settings] = {**found.get(there.tls_settings, {}), _CLIENTS: sorted({*wanted.clients, *kept})}
    if wanted.qemu_settings is not None or wanted.leases is not None:
        lock = {_LOCK_MANAGER: "lockd"} if wanted.leases else {}
        found[QEMU_CONF] = {**(wanted.qemu_settings or {}), **lock}
    if wanted.leases is not None:
        found[LOCKD_CONF] = {"file_lockspace_dir": wanted.leases} if wanted.leases else {}
    return found


def _has_uuid(wanted: DaemonSpec, facts: DaemonFacts, path: str) -> bool:
    """True if libvirt finds the same UUID of the host at each start, or cannot be helped to one."""
    if not facts.only_machine_uuid or _UUIDS & {*(wanted.daemon_settings or {})}:
        return True
    return (
        re.search(rf"^\s*({'|'.join(_UUIDS)})\s*=", with_block(facts.texts[path], wanted.block, ""), re.M) is not None
    )


def _lease_directory(path: str, facts: DaemonFacts) -> list[HostStep]:
    """The directory of leases, if it is missing; raises Refused where leases would not work.

    libvirt's QEMU driver does not start without the plugin, and creates a missing directory where nothing is mounted.
    """
    there = facts.leases
    if there is None or not (there.plugin and facts.units[LOCKD_SOCKET].exists):
        raise Refused(
            "cannot keep leases: libvirt's lock manager is not installed here; install its packages "
            "(libvirt-daemon-lock and libvirt-daemon-plugin-lockd, where they are not part of libvirt-daemon-system)"
        )
    if there.filesystem is None:
        raise Refused(
            f"cannot keep leases in {path}: it is on a filesystem of this host alone, which no other host sees; "
            "mount the filesystem that has the disks there first"
        )
    return [] if there.directory else [MakeLeases(path)]


def unleased(disks: t.Mapping[str, t.Collection[str]], held: t.Collection[str]) -> list[str]:
    """Names of guests without a lease for each of their disks, of which libvirt names a lease by the SHA-256."""
    names = {
        guest: {hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest() for path in paths}
        for guest, paths in disks.items()
    }
    return sorted(guest for guest, leases in names.items() if not leases <= {*held})


def _sockets(wanted: DaemonSpec, there: Daemons, facts: DaemonFacts) -> list[str]:
    """Sockets that must be enabled and active; distributions put some into separate packages."""
    local = [name for name in there.sockets if wanted.sockets and facts.units[name].exists]
    if not installed(facts.units):
        return local
    return [*local, *([there.tls_socket] if wanted.tls_port else []), *([LOCKD_SOCKET] if wanted.leases else [])]


def _daemon_of(socket: str, there: Daemons) -> str:
    return there.sockets.get(socket, f"{there.server}.service")


def _clients(lines: str | None) -> list[str]:
    """Clients that a block of ours already admits."""
    found = re.search(rf"^{_CLIENTS} = (\[.*\])$", lines or "", re.MULTILINE)
    try:
        listed = json.loads(found[1]) if found else []
    except ValueError:
        return []
    return [one for one in listed if isinstance(one, str)]


def _lines(settings: t.Mapping[str, t.Any]) -> str:
    return "".join(
        f"{name} = {json.dumps(_as_number(settings[name]), ensure_ascii=False)}\n" for name in sorted(settings)
    )


def _shown(before: str | None, after: str | None) -> tuple[str | None, str | None]:
    """Blocks of settings without passwords, before and after; a changed password stays visible as a change."""
    hidden = [text and _PASSWORD.sub(r"\1(not shown)", text) for text in (before, after)]
    if hidden[0] == hidden[1]:
        hidden[1] = f"{hidden[1]}# another password\n"
    return hidden[0], hidden[1]


def _as_number(value: t.Any) -> t.Any:
    return int(value) if isinstance(value, bool) else value


def _problems(name: t.Any, value: t.Any) -> t.Iterator[str]:
    """Problems of a setting: libvirt takes numbers, texts without quotation marks, and lists of texts (virconf.c)."""
    if not isinstance(name, str) or not _SETTING.fullmatch(name):
        yield f"{name!r} is not a valid name of a setting"
    parts = value if isinstance(value, list) else [value]
    if not all(_is_text(part) if isinstance(part, str) else isinstance(part, int) for part in parts):
        yield (
            f"{name}: libvirt cannot read {value!r}; use a number, true, false, a string without quotation marks, or a "
            "list of strings"
        )


def _is_text(value: str) -> bool:
    return '"' not in value and "\\" not in value and value.isprintable()


def _marks(name: str) -> tuple[str, str]:
    begin, end = (f"# {mark} corral.virt.{name}: the first of two equal settings wins" for mark in ("BEGIN", "END"))
    return begin, end


def _pattern(name: str) -> re.Pattern[str]:
    begin, end = map(re.escape, _marks(name))
    return re.compile(rf"^{begin}\n(.*?)^{end}(?:\n|\Z)", re.MULTILINE | re.DOTALL)
