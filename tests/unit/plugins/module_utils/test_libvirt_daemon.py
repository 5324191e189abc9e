"""`virt_daemon`: settings in blocks, which daemon is restarted and why, and what the restart waits for."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import os
import time
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_daemon,
    files_systemd,
    libvirt_daemon,
    plan_daemon,
    run_daemon,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import (
    LOCKD_CONF,
    LOCKD_SOCKET,
    MODULAR,
    MONOLITHIC,
    QEMU_CONF,
    UNITS,
    DaemonFacts,
    DaemonSpec,
    LeaseFacts,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import DueRestart, Unit
from ansible_collections.corral.virt.plugins.module_utils._host.plan_daemon import (
    EnableSockets,
    MakeLeases,
    RestartDaemons,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import WriteFile
from ansible_collections.corral.virt.plugins.module_utils._system import configuration, private

CONF = "/etc/libvirt/libvirtd.conf"
DAEMON, SOCKET, TLS = "libvirtd.service", "libvirtd.socket", "libvirtd-tls.socket"
NOW = 1_700_000_000.0
RUNS = Unit(exists=True, active="active", started=NOW)
LISTENS = Unit(exists=True, enabled=True, active="active")
THERE = (
    dict.fromkeys(UNITS, Unit()) | dict.fromkeys(MONOLITHIC.sockets, LISTENS) | {DAEMON: RUNS, TLS: Unit(exists=True)}
)
BEGIN, END = (f"# {mark} corral.virt.mine: the first of two equal settings wins\n" for mark in ("BEGIN", "END"))


def facts(text: str = "", changed: t.Mapping[str, float] | None = None, **units: Unit) -> DaemonFacts:
    """Of a host with libvirtd; `units` without their suffix, a dash as an underscore."""
    given = {
        f"{name.replace('_', '-')}.{'service' if name == 'libvirtd' else 'socket'}": unit
        for name, unit in units.items()
    }
    return DaemonFacts({**THERE, **given}, {CONF: text, QEMU_CONF: text}, changed or {})


def params(**given: t.Any) -> dict[str, t.Any]:
    return {name: option.get("default") for name, option in run_daemon.OPTIONS.items()} | given


def said(*refused: str, **given: t.Any) -> None:
    with pytest.raises(BadInput, match=":") as caught:
        plan_daemon.spec(params(**given))
    assert [problem.partition(":")[0] for problem in caught.value.problems] == list(refused)


# Settings ------------------------------------------------------------------------------------------------------------

LINES = "a = 1\n"
BLOCKS = [
    ("", LINES, f"{BEGIN}{LINES}{END}"),
    ("b = 2\n", LINES, f"{BEGIN}{LINES}{END}b = 2\n"),
    (f"b = 2\n{BEGIN}old\n{END}c = 3", LINES, f"b = 2\n{BEGIN}{LINES}{END}c = 3"),
    (f"b = 2\n{BEGIN}{END}", LINES, f"b = 2\n{BEGIN}{LINES}{END}"),
    (f"b = 2\n{BEGIN}old\n{END}c = 3\n", "", "b = 2\nc = 3\n"),
    (f"{BEGIN}old\n{END.rstrip()}", "", ""),
    ("b = 2\n", "", "b = 2\n"),
    (
        f"{BEGIN.replace('mine', 'minea')}old\n{END.replace('mine', 'minea')}",
        "",
        f"{BEGIN.replace('mine', 'minea')}old\n{END.replace('mine', 'minea')}",
    ),
]


@pytest.mark.parametrize(("text", "lines", "after"), BLOCKS)
def test_a_block_is_at_the_beginning_or_where_it_was(text: str, lines: str, after: str) -> None:
    assert plan_daemon.with_block(text, "mine", lines) == after
    assert plan_daemon.with_block(after, "mine", lines) == after
    assert plan_daemon.block(after, "mine") == (lines or None)


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}{BEGIN}", f"{BEGIN}a = 1\n"])
def test_half_a_block_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="one of the lines"):
        plan_daemon.with_block(text, "mine", LINES)


SETTINGS: list[tuple[t.Any, str]] = [
    (5, "5"),
    (True, "1"),
    (False, "0"),
    ("qcow2", '"qcow2"'),
    ("schön", '"schön"'),
    (["a", "b"], '["a", "b"]'),
    ([], "[]"),
]


@pytest.mark.parametrize(("value", "written"), SETTINGS)
def test_settings_are_written_as_libvirt_reads_them(value: t.Any, written: str) -> None:
    wanted = plan_daemon.spec(params(block="mine", daemon_settings={"b": value, "a": 1}))
    (step,), restart, (change,) = plan_daemon.decide(wanted, MONOLITHIC, facts("c = 3\n"))
    assert isinstance(step, WriteFile) and (step.path, step.mode) == (CONF, 0o644)
    assert step.content == f"{BEGIN}a = 1\nb = {written}\n{END}c = 3\n"
    assert (change.where, change.before, change.after) == (CONF, None, f"a = 1\nb = {written}\n")
    assert restart and restart.what == f"{DAEMON}, which runs with the former content of {CONF}"


UUID_SOURCE = 'host_uuid_source = "machine-id"\n'


@pytest.mark.parametrize(
    ("only_machine", "settings", "text", "added"),
    [
        (True, {}, "#host_uuid = 5\n", True),
        (True, {"a": 1}, f"{BEGIN}{UUID_SOURCE}{END}", True),  # ours is not that of somebody
        (True, {}, BEGIN.replace("mine", "pki") + "a = 1\n" + END.replace("mine", "pki"), True),
        (False, {}, "", False),
        (True, {"host_uuid": "x"}, "", False),
        (True, {"host_uuid_source": "smbios"}, "", False),
        (True, {}, 'host_uuid="x"\n', False),
        (True, {}, 'b = 1\n host_uuid_source = "smbios"\n', False),
    ],
)
def test_a_host_without_a_uuid_of_its_firmware_has_that_of_its_machine_id(
    only_machine: bool, settings: dict[str, t.Any], text: str, added: bool
) -> None:
    wanted = plan_daemon.spec(params(block="mine", daemon_settings=settings, machine_uuid=True))
    found = dataclasses.replace(facts(text), only_machine_uuid=only_machine)
    steps, _restart, _changes = plan_daemon.decide(wanted, MONOLITHIC, found)
    content = "".join(step.content for step in steps if isinstance(step, WriteFile)) or text
    assert (UUID_SOURCE in (plan_daemon.block(content, "mine") or "")) == added
    assert all(f"{name} = " in content for name in settings)
    said("machine_uuid", machine_uuid=True)


@pytest.mark.parametrize(
    ("firmware", "machine", "only_machine"),
    [
        (None, "0f" * 15 + "aa", True),
        ("03000200-0400-0500-0006-000700080009\n", "0f" * 15 + "aa", False),
        ("00000000-0000-0000-0000-000000000000\n", "0f" * 15 + "aa", True),  # libvirt does not take it either
        ("Not Specified\n", "0f" * 15 + "aa\n", True),
        (None, None, False),
        (None, "", False),
        (None, "uninitialized\n", False),
    ],
)
def test_which_uuid_a_host_has_is_read_as_libvirt_reads_it(
    firmware: str | None, machine: str | None, only_machine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("firmware", firmware), ("machine", machine)):
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(files_daemon, "_FIRMWARE", (str(tmp_path / "none"), str(tmp_path / "firmware")))
    monkeypatch.setattr(files_daemon, "_MACHINE", str(tmp_path / "machine"))
    assert files_daemon.has_only_machine_uuid() == only_machine


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", None, {}, 1.5, [1.5], [["a"]]])
def test_what_libvirt_cannot_read_is_refused(value: t.Any) -> None:
    said("daemon_settings", "qemu_settings", daemon_settings={"a": value}, qemu_settings={"a": value, "b": 1})


def test_all_problems_are_told_at_once() -> None:
    names = {"": 1, "A": 1, "a b": 1, "a\n": 1, 1: 1, "tls_allowed_dn_list": []}
    said(
        "block", *["daemon_settings"] * 5, "clients", "daemon_settings", "restart_timeout",
        block="A B", daemon_settings=names, clients=['O="x"'], restart_timeout=-1,
    )  # fmt: skip


def test_clients_may_be_a_setting_and_the_kind_of_daemons_is_what_is_said() -> None:
    wanted = plan_daemon.spec(params(daemon_settings={"tls_allowed_dn_list": ["O=x"]}, modular=True))
    assert wanted.clients is None and wanted.modular
    assert not plan_daemon.spec(params(modular=False)).modular


def test_passwords_are_known_as_such() -> None:
    settings = {"vnc_password": "one", "spice_passwd": "two", "user": "three", "x509_password_count": 4}
    assert [*plan_daemon.passwords({"daemon_settings": {"a_password": "zero"}, "qemu_settings": settings})] == [
        "zero",
        "one",
        "two",
    ]
    assert [*plan_daemon.passwords({"qemu_settings": "vnc_password=x"})] == []


def test_no_password_is_in_the_diff() -> None:
    """Not even one that was there before, of which no argument tells."""
    found = facts(f'{BEGIN}a = 1\nvnc_password = "former"\n{END}')
    for settings, after in (
        ({"a": 2, "vnc_password": "new"}, "a = 2\nvnc_password = (not shown)\n"),
        ({"a": 1, "vnc_password": "new"}, "a = 1\nvnc_password = (not shown)\n# another password\n"),
        ({}, None),
    ):
        steps, _restart, (change,) = plan_daemon.decide(
            plan_daemon.spec(params(block="mine", qemu_settings=settings)), MONOLITHIC, found
        )
        assert (change.before, change.after) == ("a = 1\nvnc_password = (not shown)\n", after)
        assert "new" not in "".join(map(str, [*steps, change])) and "former" not in "".join(map(str, [*steps, change]))


def test_a_masked_socket_is_refused() -> None:
    there = facts(libvirtd_admin=Unit(exists=True, masked=True))
    with pytest.raises(
        Refused, match=r"libvirtd-admin\.socket: masked on this host; run systemctl unmask libvirtd-admin\.socket"
    ):
        plan_daemon.decide(plan_daemon.spec(params(sockets=True)), MONOLITHIC, there)


def test_silence_leaves_everything_and_an_empty_block_goes() -> None:
    text = f"{BEGIN}a = 1\n{END}"
    assert plan_daemon.decide(plan_daemon.spec(params(block="mine")), MONOLITHIC, facts(text)) == ([], None, [])
    steps, _restart, changes = plan_daemon.decide(
        plan_daemon.spec(params(block="mine", qemu_settings={})), MONOLITHIC, facts(text)
    )
    assert steps == [WriteFile(QEMU_CONF, "", why="settings of mine", mode=0o600)]
    assert [(each.before, each.after) for each in changes] == [("a = 1\n", None)]


@pytest.mark.parametrize(
    ("found", "purge", "listed"),
    [
        ("", True, ["b", "c"]),
        ('tls_allowed_dn_list = ["a", "c"]\n', True, ["b", "c"]),
        ('tls_allowed_dn_list = ["a", "c"]\n', False, ["a", "b", "c"]),
        ("tls_allowed_dn_list = [nonsense]\n", False, ["b", "c"]),
        ("tls_allowed_dn_list = [1]\n", False, ["b", "c"]),
        ("", False, ["b", "c"]),
    ],
)
def test_clients_are_added_to_those_of_the_block_or_replace_them(found: str, purge: bool, listed: list[str]) -> None:
    other = 'tls_allowed_dn_list = ["other"]\n'
    wanted = plan_daemon.spec(params(block="mine", clients=["c", "b", "c"], purge_clients=purge))
    steps, _restart, _changes = plan_daemon.decide(wanted, MONOLITHIC, facts(f"{other}{BEGIN}{found}{END}{other}"))
    after = f"{other}{BEGIN}tls_allowed_dn_list = {listed}\n{END}{other}".replace("'", '"')
    assert [step.content for step in steps if isinstance(step, WriteFile)] == [after]


def test_clients_where_there_is_no_block_yet() -> None:
    wanted = plan_daemon.spec(params(block="mine", clients=["b"], purge_clients=False))
    (step,), _restart, _changes = plan_daemon.decide(wanted, MONOLITHIC, facts())
    assert isinstance(step, WriteFile) and step.content == f'{BEGIN}tls_allowed_dn_list = ["b"]\n{END}'


# Leases --------------------------------------------------------------------------------------------------------------

SHARED = "/srv/shared/.corral/leases"
# As libvirt 9.0 names that of /dev/loop142.
LEASE = "560b32981a4d267afb480dd0735ed2861304f3e851dfb1ed3299d54064c1fbea"


def leased(directory: str, found: LeaseFacts | None, text: str = "", **units: Unit) -> t.Any:
    there = dataclasses.replace(facts("", None, **units), texts={QEMU_CONF: text, LOCKD_CONF: text}, leases=found)
    return plan_daemon.decide(plan_daemon.spec(params(block="mine", leases=directory)), MONOLITHIC, there)


@pytest.mark.parametrize("directory", [True, False])
def test_leases_are_a_directory_two_settings_and_a_socket(directory: bool) -> None:
    """The directory comes first: libvirt does not start where it may not create it."""
    found = LeaseFacts(plugin=True, directory=directory, filesystem="nfs4")
    steps, restart, changes = leased(SHARED, found, virtlockd=Unit(exists=True))
    written = {step.path: step.content.splitlines()[1:-1] for step in steps if isinstance(step, WriteFile)}
    assert written == {QEMU_CONF: ['lock_manager = "lockd"'], LOCKD_CONF: [f'file_lockspace_dir = "{SHARED}"']}
    assert [each for each in steps[:1] if isinstance(each, MakeLeases)] == [MakeLeases(SHARED)] * (not directory)
    assert EnableSockets((LOCKD_SOCKET,)) in steps
    assert restart and [each.unit for each in restart.due] == [DAEMON]
    assert {each.where for each in changes} >= {QEMU_CONF, LOCKD_CONF}


def test_without_leases_both_settings_go_and_the_socket_stays() -> None:
    text = f"{BEGIN}lock_manager = 1\n{END}"
    steps, restart, _changes = leased("", None, text)
    assert [(step.path, step.content) for step in steps] == [(QEMU_CONF, ""), (LOCKD_CONF, "")] and restart


@pytest.mark.parametrize(
    ("found", "exists", "text"),
    [
        (LeaseFacts(plugin=False, directory=True, filesystem="nfs4"), True, "libvirt-daemon-plugin-lockd"),
        (LeaseFacts(plugin=True, directory=True, filesystem="nfs4"), False, "libvirt-daemon-lock"),
        (
            LeaseFacts(plugin=True, directory=True, filesystem=None),
            True,
            f"{SHARED}: it is on a filesystem of this host",
        ),
    ],
)
def test_leases_that_would_not_work_are_refused(found: LeaseFacts, exists: bool, text: str) -> None:
    with pytest.raises(Refused, match=text):
        leased(SHARED, found, virtlockd=Unit(exists=exists))


def test_leases_have_one_directory_and_one_option() -> None:
    said("leases", "qemu_settings", leases="shared", qemu_settings={"lock_manager": "sanlock"})


def test_a_lease_is_held_while_the_lock_manager_has_its_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_daemon, "_LOCKD_PID", str(tmp_path / "pid"))
    assert files_daemon.held_leases(str(tmp_path)) == set()
    (tmp_path / "pid").write_text(str(os.getpid()))
    folder = tmp_path / "a/leases"
    files_daemon.make_leases(str(folder))
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700, 0o700]
    with (folder / LEASE).open("w"), (tmp_path / "other").open("w"):
        assert files_daemon.held_leases(str(folder)) == {LEASE}
    assert files_daemon.held_leases(str(folder)) == set()
    with pytest.raises(Failed, match=f"cannot create {tmp_path}/pid/x"):
        files_daemon.make_leases(str(tmp_path / "pid/x"))


def test_guests_without_a_lease_for_each_disk_are_listed() -> None:
    disks = {"web": ["/dev/loop142", "/b"], "db": ["/dev/loop142"], "diskless": [], "app": ["/c"]}
    assert plan_daemon.unleased(disks, {LEASE, "of another guest"}) == ["app", "web"]
    assert libvirt_daemon.disks("test:///default") == {"test": ["/guest/diskimage1"]}


# Which daemons -------------------------------------------------------------------------------------------------------

ENABLED = {"exists": True, "enabled": True}
KINDS = [
    ({}, False, MONOLITHIC, False),
    ({}, True, MODULAR, False),
    ({"libvirtd.socket": ENABLED}, True, MONOLITHIC, True),
    ({"virtqemud.socket": ENABLED}, False, MODULAR, True),
    ({"libvirtd.socket": ENABLED, "virtqemud.socket": ENABLED}, True, MONOLITHIC, True),
    ({"libvirtd.socket": {"exists": True}, "virtqemud.socket": ENABLED}, False, MODULAR, True),
    ({"libvirtd.socket": {"exists": True}, "virtqemud.socket": {"exists": True}}, True, MODULAR, True),
    ({"libvirtd.socket": {"exists": True}, "virtqemud.socket": {"exists": True}}, False, MONOLITHIC, True),
]


@pytest.mark.parametrize(("units", "modular", "kind", "installed"), KINDS)
def test_the_daemons_are_those_that_are_enabled(
    units: dict[str, dict[str, t.Any]], modular: bool, kind: t.Any, installed: bool
) -> None:
    there = dict.fromkeys(UNITS, Unit()) | {name: Unit(**flags) for name, flags in units.items()}
    assert plan_daemon.daemons(there, modular=modular) is kind
    assert plan_daemon.installed(there) is installed


def test_modular_daemons_have_files_of_their_own() -> None:
    there = DaemonFacts(dict.fromkeys(UNITS, RUNS), dict.fromkeys(MODULAR.files, ""), {})
    wanted = plan_daemon.spec(params(block="mine", daemon_settings={"a": 1}, clients=["O=x"], qemu_settings={"q": 1}))
    steps, restart, _changes = plan_daemon.decide(wanted, MODULAR, there)
    written = {step.path: step.content.splitlines()[1:-1] for step in steps if isinstance(step, WriteFile)}
    proxy = ["a = 1", 'tls_allowed_dn_list = ["O=x"]']
    assert written == {
        "/etc/libvirt/virtqemud.conf": ["a = 1"],
        "/etc/libvirt/virtproxyd.conf": proxy,
        QEMU_CONF: ["q = 1"],
    }
    assert restart and [each.unit for each in restart.due] == ["virtqemud.service", "virtproxyd.service"]


@pytest.mark.parametrize("kind", [MONOLITHIC, MODULAR])
def test_each_socket_is_of_a_daemon_that_systemd_is_asked_for(kind: t.Any) -> None:
    assert {*kind.sockets, kind.tls_socket, *kind.sockets.values(), *kind.reads} <= {*UNITS}
    assert all(socket.startswith(unit.removesuffix(".service")) for socket, unit in kind.sockets.items())
    assert f"{kind.server}.service" in kind.sockets.values()


# What is due ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_s", "due"), [(-1, False), (0, False), (1, True), (3600, True)])
def test_a_daemon_is_due_when_it_started_before_its_file_changed(later_s: float, due: bool) -> None:
    found = plan_daemon.due(MONOLITHIC, facts(changed={CONF: NOW + later_s}))
    assert [each.reason for each in found] == [f"runs with the former content of {CONF}"] * due


def test_a_daemon_that_does_not_run_is_not_due_unless_it_failed() -> None:
    changed = {CONF: NOW + 1}
    assert not plan_daemon.due(MONOLITHIC, facts(changed=changed, libvirtd=Unit(exists=True, active="inactive")))
    (due,) = plan_daemon.due(MONOLITHIC, facts(changed=changed, libvirtd=Unit(exists=True, active="failed")))
    assert str(due) == f"{DAEMON}, which failed" and not due.runs


def test_a_host_without_libvirt_has_nothing_due() -> None:
    bare = DaemonFacts(dict.fromkeys(UNITS, Unit()), {CONF: "", QEMU_CONF: ""}, {})
    wanted = plan_daemon.spec(params(daemon_settings={"a": 1}, sockets=True, tls_port=True))
    steps, restart, _changes = plan_daemon.decide(wanted, MONOLITHIC, bare)
    assert [type(step) for step in steps] == [WriteFile] and restart is None


def test_sockets_are_enabled_and_those_that_do_not_listen_are_started() -> None:
    there = facts(libvirtd_ro=Unit(exists=True, active="active"), libvirtd_admin=Unit())
    steps, restart, changes = plan_daemon.decide(
        plan_daemon.spec(params(sockets=True, tls_port=True)), MONOLITHIC, there
    )
    assert steps == [EnableSockets(("libvirtd-ro.socket", TLS))]
    assert changes == [Change("libvirtd-ro.socket.enabled", False, True), Change(f"{TLS}.enabled", False, True)]
    assert restart and restart.due == (DueRestart(DAEMON, f"has no {TLS}", "active", MONOLITHIC.reads[DAEMON], (TLS,)),)
    assert plan_daemon.decide(plan_daemon.spec(params()), MONOLITHIC, there) == ([], None, [])


def test_sockets_are_enabled_with_what_is_written() -> None:
    wanted = plan_daemon.spec(params(block="mine", daemon_settings={"a": 1}, sockets=True))
    _steps, _restart, changes = plan_daemon.decide(
        wanted, MONOLITHIC, facts(libvirtd_ro=Unit(exists=True, active="active"))
    )
    assert [each.where for each in changes] == [CONF, "libvirtd-ro.socket.enabled"]


def test_only_the_daemon_of_a_socket_that_does_not_listen_is_due() -> None:
    units = dict.fromkeys(UNITS, RUNS) | {"virtqemud-admin.socket": Unit(exists=True, enabled=True)}
    there = DaemonFacts(units, dict.fromkeys(MODULAR.files, ""), {})
    found = plan_daemon.due(MODULAR, there, sockets=list(MODULAR.sockets))
    assert [str(each) for each in found] == ["virtqemud.service, which has no virtqemud-admin.socket"]


def test_a_file_that_is_not_there_has_not_changed() -> None:
    assert plan_daemon.due(MONOLITHIC, facts(libvirtd=Unit(exists=True, active="active", started=0))) == []


def test_what_a_check_run_was_promised_is_due_where_it_is_missing() -> None:
    program = "/usr/sbin/apparmor_parser"
    wanted = plan_daemon.spec(params(promised=[program, "/other"]))
    assert plan_daemon.decide(wanted, MONOLITHIC, facts(changed={program: NOW - 1}))[1] is None
    restart = plan_daemon.decide(wanted, MONOLITHIC, facts())[1]
    assert restart and program in restart.what and "/other" not in restart.what


# systemd -------------------------------------------------------------------------------------------------------------


class Systemd:
    """What systemctl is asked, and what it answers.

    `busy`: how often a socket is not started, as somebody has connected.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.busy = 0
        self.shown: dict[str, dict[str, t.Any]] = {}

    def __call__(self, _program: str, verb: str, *arguments: str) -> str:
        if verb == "show":
            return "\n".join(
                "".join(f"{key}={value}\n" for key, value in {"Id": unit, **self.shown.get(unit, {})}.items())
                for unit in arguments[2:]
            )
        self.calls.append(f"{verb} {' '.join(arguments[1:])}")
        if verb == "start" and arguments[-1].endswith(".socket") and self.busy:
            self.busy -= 1
            raise Failed("already active")
        return ""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(files_systemd, "run", found)
    monkeypatch.setattr(files_systemd, "answer", lambda *_command: "")
    return found


def test_units_are_what_systemd_shows(asked: Systemd) -> None:
    ago_us = int((time.monotonic() - 100) * 1e6)
    asked.shown = {
        DAEMON: {
            "LoadState": "loaded",
            "UnitFileState": "disabled",
            "ActiveState": "active",
            "ExecMainStartTimestampMonotonic": ago_us,
        },
        SOCKET: {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active"},
        "virtqemud.socket": {"LoadState": "not-found", "ActiveState": "inactive"},
        TLS: {"LoadState": "loaded", "UnitFileState": "static"},
        "libvirtd-ro.socket": {"LoadState": "masked", "UnitFileState": "masked"},
    }
    found = files_systemd.units([*asked.shown])
    assert found[TLS].enabled and not found[TLS].masked
    assert found["libvirtd-ro.socket"].masked and not found["libvirtd-ro.socket"].enabled
    assert found[DAEMON].runs and not found[DAEMON].enabled and abs(time.time() - 100 - found[DAEMON].started) < 5
    assert found[SOCKET].enabled and found[SOCKET].exists
    assert not found["virtqemud.socket"].exists and not found["virtqemud.socket"].runs


STARTS = [
    (DueRestart(DAEMON, "", "active"), [f"restart {DAEMON}"]),
    (DueRestart(DAEMON, "", "failed"), [f"reset-failed {DAEMON}", f"restart {DAEMON}"]),
    (DueRestart(DAEMON, "", "active", (), (TLS,)), [f"stop {DAEMON}", f"start {TLS}", f"start {DAEMON}"]),
    (DueRestart(DAEMON, "", "inactive", (), (TLS,)), [f"stop {DAEMON}", f"start {TLS}"]),
]


@pytest.mark.parametrize(("due", "calls"), STARTS)
def test_a_daemon_starts_again(asked: Systemd, due: DueRestart, calls: list[str]) -> None:
    files_systemd.restart(due)
    assert asked.calls == calls


def test_somebody_who_connects_while_the_socket_starts_starts_the_daemon(asked: Systemd) -> None:
    asked.busy = 2
    files_systemd.restart(DueRestart(DAEMON, "", "active", (), (TLS,)))
    assert asked.calls == [f"stop {DAEMON}", f"start {TLS}"] * 3 + [f"start {DAEMON}"]
    asked.busy = 5
    with pytest.raises(Failed, match="already active"):
        files_systemd.restart(DueRestart(DAEMON, "", "active", (), (TLS,)))


def test_a_clock_that_was_set_back_costs_one_restart(
    asked: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "libvirtd.conf"
    conf.write_text("")
    times = iter([time.time() + 3600, None])
    chmods: list[str] = []
    monkeypatch.setattr(files_systemd, "changed", lambda _path: next(times))
    monkeypatch.setattr(os, "chmod", lambda path, _mode: chmods.append(path))
    files_systemd.restart(DueRestart(DAEMON, "", "active", (str(conf),)))
    assert chmods == [str(conf)] and asked.calls == [f"restart {DAEMON}"]


def test_a_start_that_fails_says_what_the_daemon_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, does in (
        ("systemctl", "echo Job failed. >&2; exit 1"),
        ("journalctl", 'echo "$@"; echo port 16514 is taken'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(Failed, match="Job failed") as caught:
        files_systemd.restart(DueRestart(DAEMON, "", "active"))
    text = str(caught.value)
    assert "Job failed." in text and f"--unit={DAEMON}" in text and text.endswith("\n  port 16514 is taken")


# Jobs ----------------------------------------------------------------------------------------------------------------


class Domain:
    """A guest with what libvirt tells of it."""

    def __init__(self, **result: t.Any) -> None:
        self.told = {"isActive": 1, "jobStats": {"type": 0}, "state": [1, 1], "blockJobInfo": {}, **result}

    def name(self) -> str:
        return "web"

    def XMLDesc(self) -> str:  # noqa: N802
        return "<domain><devices><disk><target dev='vda'/></disk><disk><target dev='sda'/></disk></devices></domain>"

    def __getattr__(self, name: str) -> t.Callable[..., t.Any]:
        def answer(*_arguments: object) -> t.Any:
            found = self.told[name]
            if isinstance(found, int) and name != "isActive":
                error = libvirt.libvirtError("of libvirt")
                error.err = (found, 0, "of libvirt", 2)
                raise error
            return found

        return answer


class Libvirt:
    """A connection to it; each look at its guests finds the next ones, at last those of the end."""

    def __init__(self, *looks: t.Sequence[Domain], capabilities: str = "<capabilities/>") -> None:
        self.looks = itertools.chain(looks, itertools.repeat(looks[-1] if looks else []))
        self.capabilities = capabilities

    def listAllDomains(self) -> list[Domain]:  # noqa: N802
        return list(next(self.looks))

    def getCapabilities(self) -> str:  # noqa: N802
        return self.capabilities

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libvirt_daemon, "opened", lambda _uri, **_flags: contextlib.nullcontext(self))


BUSY: list[tuple[dict[str, t.Any], list[str]]] = [
    ({}, []),
    ({"jobStats": {"type": 2, "operation": 5}}, ["migration to another host"]),
    ({"jobStats": {"type": 2, "operation": 99}}, ["job"]),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_UNSUPPORTED}, ["migration to this host"]),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_INVALID}, ["migration to this host"]),
    ({"jobStats": libvirt.VIR_ERR_NO_DOMAIN}, []),
    ({"jobStats": libvirt.VIR_ERR_OPERATION_TIMEOUT}, ["busy (of libvirt)"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]}, ["migration"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP]}, ["start"]),
    ({"state": [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]}, []),
    ({"state": [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_MIGRATED]}, []),
    ({"blockJobInfo": {"type": 2}}, ["block job on vda", "block job on sda"]),
    ({"blockJobInfo": libvirt.VIR_ERR_INVALID_ARG}, []),
    ({"blockJobInfo": libvirt.VIR_ERR_OPERATION_TIMEOUT}, ["busy (of libvirt)"]),
    ({"isActive": 0, "jobStats": libvirt.VIR_ERR_OPERATION_INVALID}, []),
]


@pytest.mark.parametrize(("told", "jobs"), BUSY)
def test_jobs_are_what_libvirt_tells(told: dict[str, t.Any], jobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Libvirt([Domain(**told)]).connect(monkeypatch)
    assert libvirt_daemon.jobs() == [f"web: {job}" for job in jobs]


def test_constants_are_those_of_libvirt() -> None:
    for number, name in {
        2: "MIGRATION",
        3: "SAVE",
        4: "DUMP",
        9: "SNAPSHOT",
        11: "STARTING_UP",
        12: "POSTCOPY",
    }.items():
        assert getattr(libvirt, f"VIR_DOMAIN_PAUSED_{name}") == number and number in libvirt_daemon._PAUSED_FOR
    for number, name in {1: "START", 4: "MIGRATION_IN", 5: "MIGRATION_OUT", 7: "SNAPSHOT_REVERT", 9: "BACKUP"}.items():
        assert getattr(libvirt, f"VIR_DOMAIN_JOB_OPERATION_{name}") == number and number in libvirt_daemon._OPERATIONS


def test_a_libvirt_that_cannot_be_asked_may_be_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_uri: str, **_flags: bool) -> t.NoReturn:
        raise OSError("no socket")

    monkeypatch.setattr(libvirt_daemon, "opened", refuse)
    assert libvirt_daemon.jobs() == ["cannot query libvirt for jobs: no socket"]
    monkeypatch.setattr(libvirt_daemon, "opened", lambda _uri, **_flags: time.sleep(1))
    monkeypatch.setattr(libvirt_daemon, "_ANSWER_S", 0.05)
    assert "did not report its jobs" in libvirt_daemon.jobs()[0]


MODELS = [
    ([], []),
    (["none"], []),
    (["apparmor", "dac"], ["apparmor"]),
    (["selinux", "dac"], ["selinux"]),
    (["dac"], []),
]


@pytest.mark.parametrize(("models", "drivers"), MODELS)
def test_security_drivers_are_those_that_confine(
    models: list[str], drivers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"<secmodel><model>{model}</model></secmodel>" for model in models)
    Libvirt(capabilities=f"<capabilities><host>{text}</host></capabilities>").connect(monkeypatch)
    assert libvirt_daemon.security_drivers() == drivers
    monkeypatch.setattr(libvirt_daemon, "libvirt", None)
    assert libvirt_daemon.security_drivers() is None


# From options to a result --------------------------------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Systemd:
    """With a libvirtd that runs with former settings, and no guest; locks of guests are in `tmp_path`."""
    calls = Systemd()
    started = [RUNS]

    def restart(_each: DueRestart) -> None:
        calls.calls.append("start again")
        started[:] = [Unit(exists=True, active="active", started=NOW + 60)]

    monkeypatch.setattr(files_systemd, "units", lambda _names: {**THERE, DAEMON: started[0]})
    monkeypatch.setattr(files_systemd, "changed", lambda _path: NOW + 30)
    monkeypatch.setattr(files_systemd, "restart", restart)
    monkeypatch.setattr(configuration, "read", lambda _path: "")
    monkeypatch.setattr(run_daemon, "_POLL_S", 0.01)
    monkeypatch.setattr(private, "_SYSTEM", str(tmp_path / "run"))
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "run"))
    Libvirt().connect(monkeypatch)
    return calls


def converge(*, check_mode: bool = False, **given: t.Any) -> dict[str, t.Any]:
    return run_daemon.converge(params(**given), Gate(check_mode=check_mode))


def test_it_is_restarted_once(host: Systemd) -> None:
    predicted = converge(check_mode=True)
    assert predicted["changed"] and not host.calls and predicted["security_drivers"] is None
    made = converge()
    assert made["steps"] == predicted["steps"] == [f"restart {made['restart']}"] and host.calls == ["start again"]
    assert made["changed"] and made["security_drivers"] == [] and made["installed"] and made["server"] == "libvirtd"
    again = converge()
    assert not again["changed"] and again["restart"] is None and host.calls == ["start again"]


def test_a_restart_that_fails_lists_what_was_written(host: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_each: DueRestart) -> t.NoReturn:
        raise Failed("it does not start")

    monkeypatch.setattr(files_systemd, "restart", fail)
    monkeypatch.setattr(configuration, "write", lambda *_arguments, **_more: None)
    with pytest.raises(Failed, match=r"^it does not start \(already done: write .*\)$") as caught:
        converge(daemon_settings={"max_clients": 10})
    assert len(caught.value.done) == 1


def test_it_waits_for_jobs_and_tells_them_when_it_is_late(host: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    copying = [Domain(blockJobInfo={"type": 2})]
    Libvirt(copying).connect(monkeypatch)
    jobs = ["web: block job on vda", "web: block job on sda"]
    assert converge(check_mode=True)["jobs"] == jobs
    late = converge(restart_timeout=0)
    assert late["failed"] and late["jobs"] == jobs and not late["changed"] and late["steps"] == [] and not host.calls
    assert "not in effect yet" in late["msg"] and "; ".join(jobs) in late["msg"] and DAEMON in late["msg"]
    Libvirt(copying, copying, copying, []).connect(monkeypatch)
    assert converge(restart_timeout=10)["changed"] and host.calls == ["start again"]


def test_what_begins_between_two_looks_is_seen(host: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    Libvirt([], [], [], [Domain(blockJobInfo={"type": 2})]).connect(monkeypatch)  # plan, look, names, look again
    assert converge(restart_timeout=0)["failed"] and not host.calls


def test_runs_of_virt_migrate_are_waited_for_and_held_off(
    host: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Libvirt([Domain()]).connect(monkeypatch)
    (tmp_path / "run").mkdir(mode=0o700)
    taken: list[bool] = []

    def free(name: str) -> bool:
        with (tmp_path / f"run/{name}.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    with (tmp_path / "run/gone.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert converge(restart_timeout=0)["jobs"] == ["gone: a run of virt_migrate"]
    restart = files_systemd.restart

    def look_and_start(each: DueRestart) -> None:
        taken.extend([free("web"), free("gone")])
        restart(each)

    monkeypatch.setattr(files_systemd, "restart", look_and_start)
    assert converge()["changed"]
    assert taken == [False, False] and free("web") and free("gone")


def test_a_lock_that_nobody_can_take_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run/link.lock").symlink_to("/etc/passwd")
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "run"))
    with contextlib.ExitStack() as locks:
        assert files_daemon.held_by_others(["a/b", "x" * 300], locks) == []


def test_a_folder_of_others_is_refused(host: Systemd, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(Refused, match="cannot keep work files"):
        converge()
    assert not host.calls


def test_a_daemon_that_does_not_run_breaks_nothing(host: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_uri: str, **_flags: bool) -> t.NoReturn:
        raise Failed("no daemon")

    failed = {**THERE, DAEMON: Unit(exists=True, active="failed")}
    monkeypatch.setattr(files_systemd, "units", lambda _names: failed)
    monkeypatch.setattr(libvirt_daemon, "opened", refuse)
    assert converge(check_mode=True)["jobs"] == []
    with pytest.raises(Failed, match="no daemon"):  # it has started, and does not answer
        converge()
    assert host.calls == ["start again"]


@pytest.mark.parametrize(
    ("state", "jobs", "locked", "left_s", "following"),
    [
        ("failed", [], False, 0, "restart"),
        ("failed", ["web: job"], False, 9, "restart"),
        ("active", [], False, 0, "lock"),
        ("active", [], True, 0, "restart"),
        ("active", ["web: job"], False, 0.1, "wait"),
        ("active", ["web: job"], True, 0.1, "wait"),
        ("active", ["web: job"], False, 0, "give up"),
        ("active", ["web: job"], True, -1, "give up"),
    ],
)
def test_what_comes_next_on_the_way_to_a_restart(
    state: str, jobs: list[str], locked: bool, left_s: float, following: plan_daemon.Ahead
) -> None:
    restart = RestartDaemons((DueRestart(DAEMON, "x", state),))
    assert plan_daemon.ahead(restart, jobs, locked=locked, left_s=left_s) == following


def test_runs_and_jobs_are_told_together() -> None:
    assert plan_daemon.work(["web"], ["db: backup"]) == ["web: a run of virt_migrate", "db: backup"]
    assert plan_daemon.work([], []) == []


def test_steps_of_the_plan_have_a_text() -> None:
    due = (
        DueRestart(DAEMON, "failed", "failed"),
        DueRestart("virtproxyd.service", "has no virtproxyd-tls.socket", "active"),
    )
    assert (
        str(RestartDaemons(due))
        == "restart libvirtd.service, which failed and virtproxyd.service, which has no virtproxyd-tls.socket"
    )
    assert RestartDaemons(due).breaks_jobs and not RestartDaemons(due[:1]).breaks_jobs
    assert str(EnableSockets((TLS,))) == f"enable {TLS}"
    assert DaemonSpec(block="a").clients is None
