"""The hook that libvirt runs before a guest starts: whom it refuses, and that nothing wrong with it refuses anybody."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import subprocess
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._guest import files_prerequisites
from ansible_collections.corral.virt.plugins.module_utils._host import (
    files_maintenance,
    files_start_block,
    files_systemd,
    plan_daemon,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_daemon import (
    MODULAR,
    MONOLITHIC,
    UNITS,
    DaemonFacts,
)
from ansible_collections.corral.virt.plugins.module_utils._host.model_unit import HOOK, HOOKED, Unit
from ansible_collections.corral.virt.plugins.module_utils._system import private
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, each

SCRIPT = (ROLES / "hypervisor/files/qemu_hook.sh").read_text()
WEB1, WEB2 = "5c1b0a52-90c4-4c8e-9a35-6a9f3d1d0001", "5c1b0a52-90c4-4c8e-9a35-6a9f3d1d0002"
GUEST = """<domain type='qemu' id='1'>
  <name>{name}</name>
  <uuid>{uuid}</uuid>
  {more}
  <memory unit='KiB'>65536</memory>
</domain>
"""


class Host:
    """A directory that the script takes for a host."""

    def __init__(self, root: Path) -> None:
        self.root, self.held, self.mark, self.boot = root, root / "corral/held", root / "mark.json", root / "boot_id"
        self.boot.write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
        self.script = root / "50-corral"
        self.path = "/usr/sbin:/usr/bin:/sbin:/bin"
        (root / "corral").mkdir(mode=0o700)
        self.install()

    def install(self) -> None:
        text = SCRIPT
        for name, here in {"held": self.held, "mark": self.mark, "boot": self.boot, "PATH": self.path}.items():
            [line] = [line for line in text.splitlines() if line.startswith(f"{name}=/")]
            text = text.replace(line, f"{name}={here}")
        self.script.write_text(text)
        self.script.chmod(0o755)

    def refuses(self, uuid: str = WEB1, *, name: str = "web1", operation: str = "prepare", more: str = "") -> str:
        """What it says to whoever starts that guest; empty where it lets it pass."""
        return self.given(GUEST.format(name=name, uuid=uuid, more=more), name=name, operation=operation)

    def given(self, document: str, *, name: str = "web1", operation: str = "prepare") -> str:
        done = subprocess.run(
            [self.script, name, operation, "begin", "-"],
            input=document,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, 1) and not done.stdout
        assert bool(done.stderr) == bool(done.returncode), done.stderr
        assert done.stderr.count("\n") == done.returncode, "one sentence"
        return done.stderr.strip()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path)
    monkeypatch.setattr(private, "place", lambda: str(tmp_path / "corral"))
    return found


@contextlib.contextmanager
def entry(host: Host, text: str, *, uuid: str = WEB1, lock: bool = True) -> Iterator[Path]:
    """An entry as somebody else may have written it."""
    host.held.mkdir(exist_ok=True)
    path = host.held / uuid
    path.write_text(text)
    with path.open() as stream:
        if lock:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield path


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_held_guest_does_not_start_and_all_others_do(host: Host) -> None:
    assert not host.refuses()
    with files_start_block.held(WEB1, "it is being migrated to hyper2"):
        told = host.refuses()
        assert not host.refuses(WEB2)
        assert stat.S_IMODE(host.held.stat().st_mode) == 0o700
    assert told == (
        "corral.virt: cannot start guest web1 here: it is being migrated to hyper2 "
        f"(process {os.getpid()}); wait until that run ends"
    )
    assert not host.refuses() and not any(host.held.iterdir())


def test_two_runs_do_not_hold_one_guest_and_the_second_says_why(host: Host) -> None:
    with files_start_block.held(WEB1, "it is being migrated to hyper2"):
        with pytest.raises(Refused, match=r"another run .* it is being migrated to hyper2 \(process \d+\); wait"):
            files_start_block.held(WEB1, "other").__enter__()
        assert host.refuses(), "the second took nothing from the first"


def test_a_run_that_fails_holds_nothing_after_it(host: Host) -> None:
    with pytest.raises(ZeroDivisionError), files_start_block.held(WEB1, "it is being migrated"):
        raise ZeroDivisionError
    assert not host.refuses() and not any(host.held.iterdir())


def test_many_starts_at_once_do_not_keep_a_run_from_holding_the_guest(host: Host) -> None:
    with entry(host, "", lock=False) as path, path.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)  # a hook that looks
        child = subprocess.Popen(["sleep", "0.2"], pass_fds=[stream.fileno()])
        stream.close()
        with files_start_block.held(WEB1, "it is being migrated"):
            assert host.refuses()
        child.wait()


def test_a_reason_is_one_line_whatever_is_in_it(host: Host) -> None:
    with files_start_block.held(WEB1, "it goes to a\nboot=x\x1b[31m = b"):
        assert "it goes to a boot=x [31m = b (process" in host.refuses()


@pytest.mark.parametrize("operation", ["start", "started", "stopped", "release", "migrate", "reconnect", "attach", ""])
def test_running_guests_and_what_else_libvirt_does_are_left_alone(host: Host, operation: str) -> None:
    host.mark.write_text("{}")
    with files_start_block.held(WEB1, "it is being migrated"):
        assert not host.refuses(operation=operation)


def _forged(uuid: str) -> list[str]:
    line = f"\n  <uuid>{uuid}</uuid>\n"
    return [
        f"<title>{line}</title>",
        f"<description>a{line}b</description>",
        f"<metadata><a:b xmlns:a='urn:a'><![CDATA[{line}]]></a:b></metadata>",
        f"<metadata><!--{line}--></metadata>",
    ]


@pytest.mark.parametrize("more", _forged(WEB1))
def test_what_users_write_in_a_definition_gets_no_guest_refused(host: Host, more: str) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        assert not host.refuses(WEB2, more=more)


@pytest.mark.parametrize("more", _forged(WEB2))
def test_what_users_write_in_a_definition_gets_no_guest_started(host: Host, more: str) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        assert host.refuses(WEB1, more=more)


@pytest.mark.parametrize("name", ["a b", "$(touch x)", "-n", "\x1b[31mred", "ä", "x;y", "*", "'", "%s"])
def test_a_name_is_shown_only_where_it_is_plain(host: Host, name: str) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        told = host.refuses(name=name)
    assert ("guest -n here" if name == "-n" else "this guest here") in told


@pytest.mark.parametrize(
    "document",
    [
        "",
        "no document",
        "<domain>",
        "<domain type='qemu'><name>web1</name><uuid>" + WEB1 + "</uuid></domain>",
        f"<domain>\n  <uuid>{WEB1}",
        f"<domain>\n  <uuid>../{WEB1}</uuid>\n</domain>",
        "<domain>\n  <uuid></uuid>\n</domain>",
        "<domain>\n  <uuid>*</uuid>\n</domain>",
        "\n" * 100_000 + f"  <uuid>{WEB1}</uuid>\n",
        "x" * 100_000,
        "\x00\x01",
    ],
)
def test_a_document_that_it_does_not_understand_lets_the_guest_pass(host: Host, document: str) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        assert not host.given(document)


def test_an_entry_that_nobody_holds_lets_the_guest_pass(host: Host) -> None:
    with entry(host, f"boot={boot()}\npid=1\nreason=it is being migrated\n", lock=False):
        assert not host.refuses()


def test_an_entry_of_an_earlier_boot_lets_the_guest_pass(host: Host) -> None:
    with entry(host, "boot=b7a0\npid=1\nreason=it is being migrated\n"):
        assert not host.refuses()


@pytest.mark.parametrize("text", ["", "boot=\n", "x", "\x00", "=\n" * 100, "pid=1\nreason=r\n"])
def test_an_entry_that_it_does_not_understand_lets_the_guest_pass(host: Host, text: str) -> None:
    with entry(host, text):
        assert not host.refuses()


def test_entries_that_are_no_files_let_the_guest_pass(host: Host) -> None:
    """None of them is waited for either."""
    host.held.mkdir()
    path = host.held / WEB1
    os.mkfifo(path)
    assert not host.refuses()
    path.unlink()
    path.mkdir()
    assert not host.refuses()
    path.rmdir()
    path.symlink_to("/nowhere")
    assert not host.refuses()
    shutil.rmtree(host.held)
    host.held.write_text("no directory")
    assert not host.refuses()


def test_without_flock_or_a_boot_id_the_guest_passes(host: Host) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        assert host.refuses()
        host.boot.unlink()
        assert not host.refuses()
        host.boot.write_text(boot())
        host.path = "/nowhere"
        host.install()
        assert not host.refuses()


@pytest.mark.skipif(os.geteuid() != 0, reason="drops its rights")
def test_a_list_that_it_may_not_read_lets_the_guest_pass(host: Host) -> None:
    with files_start_block.held(WEB1, "it is being migrated"):
        for each in (host.root, *host.root.parents):
            if each.owner() == "root" and str(each).startswith("/tmp/"):
                each.chmod(0o755)
        done = subprocess.run(
            [host.script, "web1", "prepare"],
            input=GUEST.format(name="web1", uuid=WEB1, more=""),
            text=True,
            user=65534,
            check=False,
            capture_output=True,
        )
    assert (done.returncode, done.stderr) == (0, "")


MARKED = {"bridges": [], "pools": ["default"], "reason": "new fan", "since": "2026-11-21T16:00:00Z", "host": "hyper1"}


def test_no_guest_starts_on_a_host_in_maintenance(host: Host) -> None:
    host.mark.write_text(json.dumps(MARKED))
    assert host.refuses(WEB2, name="web2") == (
        "corral.virt: cannot start guest web2 here: hyper1 is in maintenance (new fan) and takes no guests; to end that, "
        "run ansible-playbook corral.virt.undrain -e host=hyper1"
    )
    assert host.given("nobody reads it")
    host.mark.unlink()
    assert not host.refuses(WEB2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "half {",
        "\x00",
        json.dumps({**MARKED, "reason": 'a"b', "host": "ä"}),
        '{"reason": "\x1b[31m"}',
        "[" * 10_000,
    ],
)
def test_a_mark_counts_whatever_it_says_and_shows_only_plain_text(host: Host, text: str) -> None:
    host.mark.write_text(text)
    told = host.refuses()
    assert told.isprintable() and "this host is in maintenance and takes no guests" in told and "host=NAME" in told
    assert files_maintenance.read(str(host.mark)) is not None, "placement takes it for one, too"


def test_a_reason_cannot_forge_another_member(host: Host) -> None:
    host.mark.write_text(json.dumps({"reason": 'x", "host": "evil', "host": "hyper1"}))
    assert "evil" not in host.refuses() and "host=hyper1" in host.refuses()


def test_a_guest_that_passes_waits_a_few_milliseconds_at_most(host: Host) -> None:
    """Of starts of a process, which are what it costs."""
    with files_start_block.held(WEB1, "it is being migrated"):
        mine, others = (_median_s(lambda: host.refuses(WEB2)), _median_s(lambda: subprocess.run(["true"], check=True)))
    assert mine < others * 4 + 0.02


def _median_s(act: t.Callable[[], object], times: int = 15) -> float:
    found = []
    for _time in range(times):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return sorted(found)[times // 2]


def test_all_parts_speak_of_the_same_files() -> None:
    assert f"\nmark={files_maintenance.PATH}\n" in SCRIPT and "\nheld=/run/corral/held\n" in SCRIPT
    variables = (ROLES / "hypervisor/vars/main.yml").read_text()
    assert str(Path(HOOK).parent) in variables and Path(HOOK).name == "50-corral"
    assert all(HOOK in kind.reads[unit] for kind, unit in zip((MONOLITHIC, MODULAR), HOOKED, strict=True))


def test_our_hook_does_not_switch_off_what_a_start_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qemu.d").mkdir()
    monkeypatch.setattr(files_prerequisites, "_HOOKS", str(tmp_path))
    monkeypatch.setattr(files_prerequisites, "_OURS", HOOK.replace("/etc/libvirt/hooks", str(tmp_path)))
    for name, counts in {"50-corral": False, "60-devices": True}.items():
        (tmp_path / "qemu.d" / name).touch(0o755)
        assert files_prerequisites.has_hook() is counts


@pytest.mark.parametrize(
    ("installed", "libvirtd", "virtqemud", "expected"),
    [
        (100.0, Unit(exists=True, active="active", started=101.0), Unit(), True),
        (100.0, Unit(exists=True, active="active", started=99.0), Unit(), False),
        (None, Unit(exists=True, active="active", started=99.0), Unit(), False),
        (100.0, Unit(exists=True), Unit(exists=True, active="active", started=101.0), True),  # socket-activated
        (100.0, Unit(exists=True), Unit(exists=True, active="active", started=99.0), False),
        (100.0, Unit(exists=True, active="active", started=101.0), Unit(True, active="active", started=99.0), False),
        (100.0, Unit(), Unit(), False),
    ],
)
def test_a_daemon_that_started_before_the_hook_does_not_run_it(
    installed: float | None, libvirtd: Unit, virtqemud: Unit, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_systemd, "changed", lambda _path: installed)
    monkeypatch.setattr(files_systemd, "units", lambda names: dict(zip(names, (libvirtd, virtqemud), strict=True)))
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert files_start_block.hooked() is expected


VARS = [ROLES / "hypervisor/vars/main.yml"]


def test_a_libvirt_that_does_not_look_there_gets_no_hook(tmp_path: Path) -> None:
    """Of a bare host nobody knows in check mode; its packages are newer."""
    runs = {"9.0.0": True, "6.5.0": True, "6.4.0": False, "10.0.0\n": True, "": True}
    known = [{"__hypervisor_virsh": {"stdout": version}} for version in runs]
    assert each(tmp_path, "__hypervisor_hook_runs", VARS, known) == [*runs.values()]


def test_check_mode_tells_the_restart_for_a_hook(tmp_path: Path) -> None:
    skipped = {"changed": False, "skipped": True}
    cases: list[tuple[dict[str, bool], dict[str, bool], list[str]]] = [
        ({"changed": True}, skipped, [HOOK]),
        ({"changed": False}, {"changed": True}, [HOOK]),
        ({"changed": False}, {"changed": False}, []),
        (skipped, skipped, []),
    ]
    known = [{"__hypervisor_hooks_made": made, "__hypervisor_hook": script} for made, script, _promised in cases]
    promised = [told for *_case, told in cases]
    assert each(tmp_path, "__hypervisor_promised_hook", VARS, known, ["--check"]) == promised
    assert each(tmp_path, "__hypervisor_promised_hook", VARS, known) == [[]] * len(cases)


def test_a_daemon_is_restarted_for_a_hook_that_it_has_not_seen() -> None:
    """In check mode for one that would be installed or changed."""
    units = dict.fromkeys(UNITS, Unit()) | {"libvirtd.service": Unit(exists=True, active="active", started=100.0)}
    for changed, written, reasons in [
        ({HOOK: 99.0}, [], []),
        ({HOOK: 101.0}, [], [f"libvirtd.service, which started before {HOOK} was installed or changed"]),
        ({HOOK: 99.0}, [HOOK], [f"libvirtd.service, which started before {HOOK} was installed or changed"]),
        ({}, [], []),
    ]:
        facts = DaemonFacts(units, dict.fromkeys(MONOLITHIC.files, ""), changed)
        assert [str(each) for each in plan_daemon.due(MONOLITHIC, facts, written=written)] == reasons
