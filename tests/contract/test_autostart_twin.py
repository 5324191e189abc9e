"""The source never starts with its host what has left it, and starts again what stays."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record, xml_host_bindings
from ansible_collections.corral.virt.plugins.module_utils._migration import libvirt_migrate, run_migrate
from ansible_collections.corral.virt.plugins.module_utils._migration.run_endpoints import Endpoints
from ansible_collections.corral.virt.plugins.module_utils._system.progress import ProgressWatch
from ansible_collections.corral.virt.plugins.module_utils._xml import names
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, converge, options

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
FAILED = ("Connection reset by peer", 0.0)


class Killed(BaseException):
    """The module's end, or its host's."""


def guest(host: Host) -> t.Any:
    return host.lookupByUUIDString(UUID)


def sent(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch, *, killed: bool) -> list[tuple[bool, str]]:
    """What the source had set, and its record told, when the first byte was to move."""
    seen: list[tuple[bool, str]] = []

    def run(*_told: t.Any) -> tuple[str, float]:
        seen.append(
            (bool(guest(hosts[0]).autostart()), fields_record.read(guest(hosts[0]).XMLDesc())["moving_autostart"])
        )
        if killed:
            raise Killed
        return FAILED

    monkeypatch.setattr(libvirt_migrate, "run", run)
    return seen


def test_autostart_is_off_before_the_first_byte_and_back_when_the_guest_stays(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _dest = hosts
    source.add("web1", UUID, "running")
    guest(source).setAutostart(1)
    seen = sent(hosts, monkeypatch, killed=False)
    assert "Connection reset" in converge(*hosts)
    assert seen == [(False, "yes")]
    assert guest(source).autostart() and "moving" not in fields_record.read(guest(source).XMLDesc())


@pytest.mark.parametrize("next_run", ["aborted", "present"])
def test_autostart_outlasts_a_run_that_was_killed(
    hosts: tuple[Host, Host], next_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _dest = hosts
    source.add("web1", UUID, "running")
    guest(source).setAutostart(1)
    sent(hosts, monkeypatch, killed=True)
    with pytest.raises(Killed):
        converge(*hosts)
    assert not guest(source).autostart(), "nobody knows where it is"
    sent(hosts, monkeypatch, killed=False)
    converge(*hosts, state=next_run)
    assert guest(source).autostart()


def test_a_guest_that_is_off_takes_its_autostart_along(hosts: tuple[Host, Host]) -> None:
    source, dest = hosts
    source.add("web1", UUID, "shutdown")
    guest(source).setAutostart(1)
    assert converge(*hosts) == ""
    assert source.look(UUID) is None and guest(dest).autostart()


def test_a_guest_without_autostart_gets_none(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    source, _dest = hosts
    source.add("web1", UUID, "running")
    monkeypatch.setattr(libvirt_migrate, "run", lambda *_told: FAILED)
    converge(*hosts)
    assert not guest(source).autostart()


@pytest.mark.parametrize(
    ("state", "let_run", "refused"),
    [
        ("running", "", False),
        ("paused", "1700000000.0", False),
        ("shutdown", "1700000000.0", False),
        ("shutdown", "", False),
        ("reserved", "1700000000.0", False),
        ("paused", "", False),
        ("reserved", "", True),
    ],
)
def test_a_migration_whose_source_is_gone_is_ended_where_the_guest_is(
    hosts: tuple[Host, Host], state: str, let_run: str, refused: bool
) -> None:
    """It must have run there, or have its own definition: else what is there may be less than it had."""
    _source, dest = hosts
    moved = {"moving": "hyper2", "moving_from": "1111", "moving_seal": names.sealed(UUID), "moving_autostart": "yes"}
    dest.add("web1", UUID, state, **moved, moving_let_run=let_run)
    before = dest.look(UUID)
    told = converge(dest, dest, state="aborted")
    assert ("nothing shows that all of it came here" in told) == refused and bool(told) == refused
    if refused:
        assert dest.look(UUID) == before
        return
    recorded = fields_record.read(guest(dest).XMLDesc())
    assert not {"moving", "moving_let_run"} & {*recorded}, "else a source that comes back would be called superseded"
    assert guest(dest).autostart()
    assert not xml_host_bindings.is_reserved(guest(dest).XMLDesc()), "it could not be started"
    assert converge(dest, dest, state="aborted") == ""


def test_a_source_with_another_uuid_needs_no_destination_to_be_told_from_it(hosts: tuple[Host, Host]) -> None:
    """libvirt draws a new one at each start on a machine without SMBIOS."""
    source, _dest = hosts
    source.add("web1", UUID, "running", moving="hyper2", moving_from="earlier", moving_seal=names.sealed(UUID))

    def opened(end: str) -> Host:
        if end == "there":
            raise Failed("no route to host")
        return source

    endpoints, gate = Endpoints("here", "there", opened), Gate(check_mode=False)
    with pytest.raises(Failed, match="one host cannot be reached"):
        run_migrate.converge(endpoints, options(state="aborted"), gate, ProgressWatch("web1"))


@pytest.mark.parametrize(
    ("state", "answers", "told"),
    [
        ("running", False, ""),
        ("shutdown", False, ""),
        ("paused", False, ""),
        ("postcopy", False, "it is postcopy on the source, so it may have run on hyper2 since; "),
        ("incoming", False, "may have run on hyper2 since; .*switch it off here .virsh destroy web1., repeat this"),
        ("running", True, "hyper2 answers; abort it without dest_gone"),
    ],
)
def test_a_migration_whose_destination_is_gone_is_ended_where_the_guest_is(
    hosts: tuple[Host, Host], state: str, answers: bool, told: str
) -> None:
    """Else it could never migrate again. What may have run elsewhere is nobody's to resume."""
    source, dest = hosts
    moved = {"moving": "hyper2", "moving_from": "1111", "moving_seal": names.sealed(UUID), "moving_autostart": "yes"}
    source.add("web1", UUID, state, **moved, moving_made=("default box1.qcow2 /srv/box1.qcow2",))
    before = source.look(UUID)

    def opened(end: str) -> Host:
        if end == "there" and not answers:
            raise Failed("no route to host")
        return {"here": source, "there": dest}[end]

    def run(*, check_mode: bool) -> str:
        endpoints, gate = Endpoints("here", "there", opened), Gate(check_mode=check_mode)
        wanted = options(state="aborted", dest_gone=True)
        try:
            steps = run_migrate.converge(endpoints, wanted, gate, ProgressWatch("web1"))["steps"]
        except VirtError as error:
            return str(error)
        assert steps == ["forget the migration of web1 to hyper2, which is gone"]
        return ""

    for check_mode in (True, False):
        assert source.look(UUID) == before
        assert re.search(told, run(check_mode=check_mode)) if told else run(check_mode=check_mode) == ""
    if told:
        assert source.look(UUID) == before
        return
    assert "moving" not in fields_record.read(guest(source).XMLDesc()) and guest(source).autostart()
