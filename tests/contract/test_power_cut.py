"""A source that loses power when its guest runs elsewhere already: what it still has of it goes, unless somebody
used it since.
"""

from __future__ import annotations

import os
import threading
import time
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._migration import run_send_guest
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import Move
from ansible_collections.corral.virt.tests.contract.two_hosts import Host, converge

UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
LET_RUN_S = 1_700_000_000


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Of the guest, as the source still has it: written before the guest was let run elsewhere."""
    path = tmp_path / "web1.qcow2"
    path.write_bytes(b"")
    os.utime(path, (LET_RUN_S - 1, LET_RUN_S - 1))
    return path


def cut_off(hosts: tuple[Host, Host], disk: Path, **more: t.Any) -> None:
    """After the boot: off on the source, running on the destination, and recorded on both."""
    memory = {
        "moving": "hyper2",
        "moving_from": "1111",
        "moving_made": (f"open 1 - {disk}",),
        "moving_autostart": "yes",
    }
    hosts[0].add("web1", UUID, "shutdown", **memory)
    hosts[1].add("web1", UUID, "running", **memory, **more)


def test_what_was_let_run_elsewhere_is_the_guest(hosts: tuple[Host, Host], disk: Path) -> None:
    cut_off(hosts, disk, moving_let_run=f"{LET_RUN_S}.000")
    assert converge(*hosts) == ""
    there = hosts[1].lookupByUUIDString(UUID)
    assert hosts[0].look(UUID) is None and there.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    assert there.autostart() and "moving" not in fields_record.read(there.XMLDesc())


def test_a_disk_that_was_written_since_is_not_given_up(hosts: tuple[Host, Host], disk: Path) -> None:
    """Its owner started it on the source after the boot."""
    cut_off(hosts, disk, moving_let_run=f"{LET_RUN_S}.000")
    os.utime(disk, (LET_RUN_S + 60, LET_RUN_S + 60))
    before = hosts[0].look(UUID), hosts[1].look(UUID)
    assert "it cannot be determined which is newer" in converge(*hosts)
    assert (hosts[0].look(UUID), hosts[1].look(UUID)) == before


def test_a_disk_that_cannot_be_seen_is_not_given_up(hosts: tuple[Host, Host], disk: Path) -> None:
    """The module runs on another machine than the source, say."""
    cut_off(hosts, disk, moving_let_run=f"{LET_RUN_S}.000")
    disk.unlink()
    assert "it cannot be determined which is newer" in converge(*hosts)
    assert hosts[0].look(UUID) is not None


def test_what_was_not_let_run_by_the_move_is_not_believed(hosts: tuple[Host, Host], disk: Path) -> None:
    cut_off(hosts, disk)
    before = hosts[0].look(UUID), hosts[1].look(UUID)
    assert "it cannot be determined which is newer" in converge(*hosts)
    assert (hosts[0].look(UUID), hosts[1].look(UUID)) == before


def test_when_it_was_let_run_is_recorded_there(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> None:
    _source, dest = hosts
    dest.add("web1", UUID, "paused", moving="hyper2", moving_from="1111")
    monkeypatch.setattr(files_qemu, "handed_over", lambda _name, _over: True)
    before = time.time()
    with run_send_guest._handed_over(dest, Move("web1", UUID, "hyper2", "there"), threading.Event()):
        pass
    there = dest.lookupByUUIDString(UUID)
    assert there.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    for flag in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
        recorded = float(fields_record.read(there.XMLDesc(flag))["moving_let_run"])  # rounded to milliseconds
        assert before - 1 < recorded <= time.time() + 0.001
