"""The few things of libvirt's documents that doers look at."""

from __future__ import annotations

from ansible_collections.corral.virt.plugins.module_utils._domain import xml_backup_record
from ansible_collections.corral.virt.plugins.module_utils._xml.stdlib_reader import (
    Brief,
    alias,
    directory,
    guest,
    names,
    security_models,
    targets,
    writable,
)

GUEST = """<domain type='kvm'>
  <features><acpi/></features>
  <devices>
    <disk><target dev='vda'/></disk>
    <disk><target/></disk>
    <interface type='network'><source network='lan'/></interface>
    <interface type='network'><source network='lan'/></interface>
    <interface type='bridge'><source bridge='br0'/></interface>
    <serial type='pty'><log file='/log/serial'/></serial>
    <serial type='pty'><log/></serial>
    <serial type='file'><source path='/log/second'/></serial>
    <channel><target name='org.qemu.guest_agent.0' state='connected'/></channel>
  </devices>
</domain>"""


def test_a_guest() -> None:
    assert guest(GUEST) == Brief(True, "connected", frozenset({"lan"}), ("/log/serial", "/log/second"))
    assert guest("<domain><devices/></domain>") == Brief(False, None, frozenset(), ())


def test_an_agent_that_never_answered() -> None:
    assert guest(GUEST.replace(" state='connected'", "")).agent == "disconnected"
    assert guest(GUEST.replace("org.qemu.guest_agent.0", "com.redhat.spice.0")).agent is None


def test_disks() -> None:
    assert targets(GUEST) == ["vda", ""]


def test_how_events_call_a_device() -> None:
    assert alias("<disk><target dev='vda'/><alias name='ua-system'/></disk>") == "ua-system"
    assert [alias("<disk/>"), alias("<disk><alias/></disk>")] == ["", ""]


def test_where_volumes_of_a_pool_are() -> None:
    assert directory("<pool type='dir'><target><path>/srv/a</path></target></pool>") == "/srv/a"
    assert directory("<pool type='rbd'><source/></pool>") is None


def test_what_confines_qemu() -> None:
    models = "<secmodel><model>apparmor</model></secmodel><secmodel><model/></secmodel>"
    assert security_models(f"<capabilities><host>{models}</host></capabilities>") == ["apparmor", ""]


def test_disks_that_the_lock_manager_locks() -> None:
    disk = "<disk type='{0}' device='disk'><source {1}/>{2}</disk>"
    disks = "".join(
        disk.format(*each)
        for each in (
            ("file", "file='/a'", ""),
            ("block", "dev='/dev/b'", "<shareable/>"),
            ("file", "file='/iso'", "<readonly/>"),
            ("network", "protocol='rbd' name='p/c'", ""),
        )
    )
    assert writable(f"<domain><devices>{disks}<disk device='floppy'/></devices></domain>") == ["/a", "/dev/b"]


def test_a_guest_does_not_use_the_repository_of_its_backups() -> None:
    """Its filesystem can be unmounted; not while disks stand on a point there."""
    noted = xml_backup_record.BackupNote("p1", repository="/srv/backup")
    for note, used in ((noted, False), (noted._replace(stands_on="/srv/backup/u/p1"), True)):
        text = f"<domain><metadata>{xml_backup_record.document(note, 'u')}</metadata></domain>"
        assert names(text, "/srv/backup") is used
