"""The operating system of a guest: the words that stand for libosinfo's ids, and what a new guest gets by it."""

from __future__ import annotations

import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_new
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_options

DATABASE = Path("/usr/share/osinfo/os")
WINDOWS = "http://microsoft.com/win/2k22"


def identifier(word: str) -> str:
    """The id that is stored."""
    return str(DOMAIN["osinfo"].kind.check(word))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("debian13", "http://debian.org/debian/13"),
        ("debiantesting", "http://debian.org/debian/testing"),
        ("ubuntu24.04", "http://ubuntu.com/ubuntu/24.04"),
        ("fedora42", "http://fedoraproject.org/fedora/42"),
        ("fedora-rawhide", "http://fedoraproject.org/fedora/rawhide"),
        ("centos7.0", "http://centos.org/centos/7.0"),
        ("centos-stream10", "http://centos.org/centos-stream/10"),
        ("almalinux10", "http://almalinux.org/almalinux/10"),
        ("rhel9.4", "http://redhat.com/rhel/9.4"),
        ("opensuse15.6", "http://opensuse.org/opensuse/15.6"),
        ("opensusetumbleweed", "http://opensuse.org/opensuse/tumbleweed"),
        ("win2k22", WINDOWS),
        ("http://archlinux.org/archlinux/rolling", "http://archlinux.org/archlinux/rolling"),
        ("", ""),
    ],
)
def test_a_short_word_is_the_id_that_other_programs_read(word: str, expected: str) -> None:
    assert identifier(word) == expected


@pytest.mark.parametrize(
    "word", ["debain13", "debian", "13", "http://", "http://a.org/x y", "javascript://a/b", "Debian13"]
)
def test_a_word_that_nobody_knows_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="must be an id of libosinfo"):
        identifier(word)


@pytest.mark.skipif(not DATABASE.exists(), reason="osinfo-db is not installed")
def test_words_are_as_in_the_database_of_libosinfo() -> None:
    known = dict(filter(None, map(_entry, DATABASE.glob("*/*.xml"))))
    taken = {}
    for word, found in known.items():
        try:
            taken[word] = (identifier(word), found)
        except ValueError:
            continue
    assert len(taken) > 300
    assert {word: pair for word, pair in taken.items() if pair[0] != pair[1]} == {}


def _entry(path: Path) -> tuple[str, str] | None:
    system = ElementTree.parse(path).getroot().find("os")
    return None if system is None else (system.findtext("short-id") or "", system.get("id") or "")


def suited(osinfo: str, **fields: t.Any) -> GuestSpec:
    """A new guest with what its operating system adds."""
    disks = (Disk("system"), Disk("cd", fields={"device": "cdrom"}), Disk("old", state="absent"))
    interfaces = (Item("eth0"), Item("eth1", fields={"model": "virtio"}))
    wanted = GuestSpec("w1").with_fields(osinfo=osinfo, disks=disks, interfaces=interfaces, **fields)
    return plan_guest_options.suited(wanted)


def test_systems_that_know_virtio_get_nothing_else() -> None:
    for one in ("http://debian.org/debian/13", "http://evil.org/microsoft.com/win/11", ""):
        found = suited(one)
        assert set(found.fields) <= {"osinfo", "disks", "interfaces"}
        assert not any(item.fields.keys() & {"bus"} for item in found.disks or ())


def test_windows_gets_devices_that_its_setup_knows_and_keeps_what_the_user_said() -> None:
    found = suited(WINDOWS, **{"clock.offset": "utc"})
    assert [disk.fields.get("bus") for disk in found.disks or ()] == ["sata", None, None]
    assert [nic.fields.get("model") for nic in found.interfaces or ()] == ["e1000e", "virtio"]
    assert found.fields["clock.offset"] == "utc" and "clock.timers" not in found.fields
    assert "firmware" not in found.fields


def test_a_windows_that_demands_a_trusted_machine_gets_one_unless_the_user_said_otherwise() -> None:
    found = suited("http://microsoft.com/win/11").fields
    assert (found["firmware"], found["secure_boot"], found["tpm.model"]) == ("efi", True, "tpm-crb")
    assert not suited("http://microsoft.com/win/11", firmware="bios").fields.keys() & {"secure_boot", "tpm.model"}
    assert suited("http://microsoft.com/win/11", **{"tpm.model": "tpm-tis"}).fields["tpm.model"] == "tpm-tis"


def test_a_windows_with_a_loader_by_hand_is_not_refused_for_firmware_that_nobody_asked_for() -> None:
    found = suited("http://microsoft.com/win/11", **{"loader.path": "/usr/share/OVMF/OVMF_CODE.fd"}).fields
    assert not found.keys() & {"firmware", "secure_boot"} and found["tpm.model"] == "tpm-crb"


def test_variables_of_firmware_are_not_given_to_another_one() -> None:
    found = suited("http://microsoft.com/win/11", firmware="efi", **{"nvram.path": "/v.fd"}).fields
    assert "secure_boot" not in found and found["firmware"] == "efi"


@pytest.mark.parametrize(
    ("piece", "left"),
    [
        ("<clock offset='utc'/>", "clock.offset"),
        ("<features><hyperv mode='passthrough'/></features>", "features.hyperv.relaxed"),
        ("<os><loader>/a</loader></os>", "firmware"),
        ("<os firmware='bios'/>", "firmware"),
        ("<os><firmware><feature enabled='no' name='secure-boot'/></firmware></os>", "secure_boot"),
        ("<devices><tpm model='tpm-tis'><backend type='external'/></tpm></devices>", "tpm.type"),
    ],
)
def test_what_xml_says_is_not_replaced_by_what_windows_needs(piece: str, left: str) -> None:
    wanted = GuestSpec("w1").with_fields(osinfo="http://microsoft.com/win/11", disks=(), interfaces=())
    assert left in plan_guest_options.suited(wanted, xml_new.said("<domain><title>a</title></domain>")).fields
    assert left not in plan_guest_options.suited(wanted, xml_new.said(f"<domain>{piece}</domain>")).fields
