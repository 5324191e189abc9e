"""A run that dies after any of its steps: the next one ends where an undisturbed one would have ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import sources
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._libvirt import definition
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.tests.contract.world import snapshot
from ansible_collections.corral.virt.tests.golden.case import HOST_URI
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience

GUEST: dict[str, t.Any] = {
    "name": "box1",
    "uuid": "6695eb01-f6a4-8304-79aa-97f2502e193f",
    "state": "running",
    "vcpus": 2,
    "memory": 512,
    "tags": ["web"],
    "autostart": True,
    "interfaces": [{"name": "eth0", "network": "lan"}],
    "disks": [{"name": "system", "size": 8}, {"name": "data", "size": 20}],
}


class Killed(BaseException):
    """The power went; nobody catches this."""


class DyingGate(Gate):
    """Lets some steps through, then dies before the next."""

    def __init__(self, steps: int) -> None:
        super().__init__(check_mode=False)
        self.left = steps

    def run(self, steps: t.Sequence[t.Any], do: t.Callable[[t.Any], object]) -> list[object]:
        """As the gate, until it dies."""

        def do_or_die(step: t.Any) -> object:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return do(step)

        return super().run(steps, do_or_die)


def plain(seen: dict[str, object]) -> dict[str, object]:
    """Guests and volumes, without the number libvirt counts running guests by."""
    return {
        key: re.sub(r"id='\d+'", "", str(value)) for key, value in seen.items() if key.startswith(("guest", "volume"))
    }


def steps_of(connection: t.Any, options: t.Mapping[str, t.Any]) -> list[str]:
    found = run_guest.converge(connection, run_guest_options.wanted(options), Gate(check_mode=True))["steps"]
    return t.cast("list[str]", found)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, object]:
    with opened(HOST_URI, events=True) as connection:
        run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
        return plain(snapshot(connection))


def test_the_guest_takes_steps_enough_to_die_between(connection: t.Any) -> None:
    steps = steps_of(connection, GUEST)
    assert [step.split()[0] for step in steps] == ["define", "create", "create", "define", "set", "start"]


@pytest.mark.parametrize("survived", range(6))
def test_next_run_ends_as_an_undisturbed_one(connection: t.Any, undisturbed: dict[str, object], survived: int) -> None:
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), DyingGate(survived))
    if survived < 4:
        states = [found.isActive() for found in connection.listAllDomains()]
        assert not any(states), "it never starts before its disks are complete"
    result = run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    assert result["changed"]
    assert plain(snapshot(connection)) == undisturbed
    again = run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    assert not again["changed"]
    assert again["steps"] == []


@pytest.mark.parametrize("survived", range(4))
def test_a_guest_of_the_default_profile_is_finished_too(connection: t.Any, survived: int) -> None:
    plain_guest = {key: value for key, value in GUEST.items() if key not in ("disks", "autostart")}
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(plain_guest), DyingGate(survived))
    run_guest.converge(connection, run_guest_options.wanted(plain_guest), Gate(check_mode=False))
    assert connection.lookupByName("box1").isActive()
    assert connection.storageVolLookupByPath("/var/lib/libvirt/images/box1-system.qcow2").info()[1] == 8 * 1024**3
    assert steps_of(connection, plain_guest) == []


@pytest.mark.parametrize("survived", range(2))
def test_added_disk_is_made_again_and_the_others_are_left(connection: t.Any, survived: int) -> None:
    run_guest.converge(connection, run_guest_options.wanted({**GUEST, "state": "shutdown"}), Gate(check_mode=False))
    before = {key: value for key, value in snapshot(connection).items() if key.startswith("volume")}
    more = {**GUEST, "state": "shutdown", "disks": [*GUEST["disks"], {"name": "logs", "size": 1}]}
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(more), DyingGate(survived + 1))
    steps = steps_of(connection, more)
    assert sum(step.startswith("create disk") for step in steps) == 1
    assert "box1-logs" in " ".join(steps)
    run_guest.converge(connection, run_guest_options.wanted(more), Gate(check_mode=False))
    after = snapshot(connection)
    assert {key: after[key] for key in before} == before
    assert steps_of(connection, more) == []


@pytest.mark.parametrize("survived", [1, 2, 3])
def test_nobody_can_start_a_guest_whose_disks_are_not_complete(connection: t.Any, survived: int) -> None:
    """What can be made anew was never booted from: the definition names files that are not there."""
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), DyingGate(survived))
    named = disk_sources(connection)
    assert len(named) == 2 and not set(named) & set(map(str, (volume.path() for volume in volumes(connection))))
    result = run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    assert sum(step.startswith("create disk") for step in result["steps"]) == 2
    assert set(disk_sources(connection)) <= {volume.path() for volume in volumes(connection)}
    assert steps_of(connection, GUEST) == []


def disk_sources(connection: t.Any) -> list[str]:
    return sources(connection.lookupByName("box1").XMLDesc(), lambda _pool, _volume: None)


def volumes(connection: t.Any) -> list[t.Any]:
    return t.cast("list[t.Any]", connection.storagePoolLookupByName("default").listAllVolumes())


def test_a_disk_that_the_running_guest_has_is_never_made_anew(connection: t.Any) -> None:
    run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    path = "/var/lib/libvirt/images/box1-system.qcow2"
    domain = connection.lookupByName("box1")
    domain.setMetadata(
        2, fields_record.update(domain.XMLDesc(), {"making": (path,)}), "corral", "urn:corral:virt:guest:1", 2
    )
    assert not [step for step in steps_of(connection, GUEST) if step.startswith("create")]


def test_a_copy_of_an_image_is_made_again(connection: t.Any) -> None:
    """Unlike an overlay it holds data from the first moment on."""
    copied = {**GUEST, "disks": [{"name": "system", "image": "debian-12.qcow2", "clone": "copy", "format": "raw"}]}
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(copied), DyingGate(2))
    assert [volume.name() for volume in volumes(connection)].count("box1-system.img") == 1
    assert [step.split()[0] for step in steps_of(connection, copied)] == ["define", "create", "define", "set", "start"]
    run_guest.converge(connection, run_guest_options.wanted(copied), Gate(check_mode=False))
    assert steps_of(connection, copied) == []


def foreign(connection: t.Any, name: str) -> None:
    """A volume that somebody else makes."""
    xml = f"<volume><name>{name}</name><capacity unit='MiB'>7</capacity></volume>"
    connection.storagePoolLookupByName("default").createXML(xml)


GONE = {"name": "box1", "state": "absent", "remove_storage": True}
REFUSAL = "{} exists already; another run may be creating it"


@pytest.mark.parametrize("survived", [1, 2])
def test_a_file_that_appears_before_its_disk_is_begun_is_somebody_elses(connection: t.Any, survived: int) -> None:
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), DyingGate(survived))
    foreign(connection, "box1-data.qcow2")
    before = snapshot(connection)
    for check_mode in (True, False):
        with pytest.raises(Refused, match=REFUSAL.format("box1-data.qcow2")):
            run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=check_mode))
    assert snapshot(connection) == before
    run_guest.converge(connection, run_guest_options.wanted(GONE), Gate(check_mode=False))
    names = [volume.name() for volume in volumes(connection)]
    assert "box1-data.qcow2" in names and "box1-system.qcow2" not in names


class CrowdedGate(Gate):
    """Somebody makes a file of that name just before a disk is made."""

    def __init__(self, connection: t.Any, name: str) -> None:
        super().__init__(check_mode=False)
        self.connection, self.name = connection, name

    def run(self, steps: t.Sequence[t.Any], do: t.Callable[[t.Any], object]) -> list[object]:
        """As the gate, in company."""

        def do_in_company(step: t.Any) -> object:
            if getattr(step, "path", "").endswith(self.name):
                foreign(self.connection, self.name)
            return do(step)

        return super().run(steps, do_in_company)


@pytest.mark.parametrize("name", ["box1-system.qcow2", "box1-data.qcow2"])
def test_a_file_that_comes_first_stays_its_owners(connection: t.Any, name: str) -> None:
    with pytest.raises(Failed, match=name):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), CrowdedGate(connection, name))
    with pytest.raises(Refused, match=REFUSAL.format(name)):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    volume = connection.storagePoolLookupByName("default").storageVolLookupByName(name)
    assert volume.info()[1] == 7 * 1024**2
    volume.delete()
    run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    assert steps_of(connection, GUEST) == []


def test_what_was_begun_stays_the_guests_when_it_fails(connection: t.Any) -> None:
    """The test driver makes the seed's volume, and cannot write to it."""
    seeded = {**GUEST, "cloud_init": {"user_data": {"hostname": "box1"}, "method": "nocloud"}}
    with pytest.raises(VirtError, match="write volume"):
        run_guest.converge(connection, run_guest_options.wanted(seeded), Gate(check_mode=False))
    assert "box1-seed.iso" in [volume.name() for volume in volumes(connection)]
    [entry] = fields_record.read(connection.lookupByName("box1").XMLDesc())["volumes"]
    assert (entry.path, entry.guest) == (
        "/var/lib/libvirt/images/box1-seed.iso",
        connection.lookupByName("box1").UUIDString(),
    )


def test_an_unfinished_guest_can_be_stopped_but_not_started(connection: t.Any) -> None:
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(GUEST), DyingGate(2))
    with pytest.raises(Refused, match="list its disks again"):
        run_guest.converge(
            connection, run_guest_options.wanted({"name": "box1", "state": "running"}), Gate(check_mode=False)
        )
    run_guest.converge(
        connection,
        run_guest_options.wanted({"name": "box1", "state": "destroyed", "tags": ["late"]}),
        Gate(check_mode=False),
    )
    assert "create disk" in " ".join(steps_of(connection, GUEST)), "what is missing is still known"


def test_a_guest_on_its_way_is_not_touched(connection: t.Any) -> None:
    run_guest.converge(connection, run_guest_options.wanted(GUEST), Gate(check_mode=False))
    domain = connection.lookupByName("box1")
    xml = domain.XMLDesc()
    definition.set_record(
        domain, fields_record.update(xml, {"moving": "hyper2"}), fields_record.update(xml, {"moving": "hyper2"})
    )
    domain.suspend()
    for state in ("running", "absent", "destroyed"):
        with pytest.raises(Refused, match="finish it with virt_migrate"):
            run_guest.converge(
                connection, run_guest_options.wanted({"name": "box1", "state": state}), Gate(check_mode=False)
            )
    assert domain.isActive()


OFFLINE: dict[str, t.Any] = {
    **GUEST,
    "disks": [{"name": "system", "image": "debian-12.qcow2"}],
    "cloud_init": {"method": "virt_customize", "user_data": {"hostname": "box1"}},
}
HALF = """#!/bin/sh
echo half >>"$TARGET"; echo $$ >"$TARGET.pid.new"; mv "$TARGET.pid.new" "$TARGET.pid"
exec sleep 300
"""
CUSTOMIZE = """
import sys
from ansible_collections.corral.virt.plugins.module_utils._seed import files_seed
files_seed.customize(sys.argv[1], [("hostname", "box1")], to=sys.argv[2])
"""


@pytest.fixture
def customizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `virt-customize` that writes half of what it should, says its PID, and goes on for long."""
    program = tmp_path / "bin/virt-customize"
    program.parent.mkdir()
    program.write_text(HALF)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TARGET", str(tmp_path / "disk.qcow2.unseeded"))
    return tmp_path / "disk.qcow2.unseeded"


def test_a_disk_killed_while_it_is_seeded_does_not_appear(customizer: Path) -> None:
    customizer.write_text("made\n")
    whole = customizer.with_suffix("")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".cache")}
    with subprocess.Popen([sys.executable, "-c", CUSTOMIZE, customizer, whole], env=environment) as run:
        output = Path(f"{customizer}.pid")
        while not output.exists():
            assert run.poll() is None
            time.sleep(0.05)
        run.kill()
    work = Path("/proc") / output.read_text().strip()
    patience = Patience(30)
    while work.exists() and "\nState:\tZ" not in (work / "status").read_text():
        assert not patience.is_over, "it is still at work on the disk, which the next run makes anew"
        time.sleep(0.05)
    assert customizer.read_text() == "made\nhalf\n" and not whole.exists()


@pytest.mark.usefixtures("customizer")
@pytest.mark.parametrize("survived", [1, 2])
def test_no_definition_names_a_disk_that_is_half_seeded(connection: t.Any, survived: int) -> None:
    steps = steps_of(connection, OFFLINE)
    assert [step.split()[0] for step in steps] == ["define", "create", "apply", "define", "set", "start"]
    with pytest.raises(Killed):
        run_guest.converge(connection, run_guest_options.wanted(OFFLINE), DyingGate(survived))
    named, there = disk_sources(connection), {volume.path() for volume in volumes(connection)}
    assert len(named) == 1 and not set(named) & there
    assert ("/var/lib/libvirt/images/box1-system.qcow2.unseeded" in there) == (survived == 2)
    assert steps_of(connection, OFFLINE)[1:] == steps[1:], "made and seeded anew"
    run_guest.converge(
        connection,
        run_guest_options.wanted({"name": "box1", "state": "absent", "remove_storage": True}),
        Gate(check_mode=False),
    )
    assert not [volume.name() for volume in volumes(connection) if "box1" in volume.name()], "nothing is left of it"
