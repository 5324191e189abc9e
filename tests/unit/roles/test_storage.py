"""What the role storage installs, and which pools it checks for guests."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

FILES = [ROLES / "storage/vars/main.yml"]
DEBIAN = {
    **yaml.safe_load((ROLES / "storage/defaults/main.yml").read_text()),
    "ansible_facts": {"os_family": "Debian"},
}
NFS = {"path": "/srv/vm/", "src": "nas:/vm", "fstype": "nfs4"}


@pytest.mark.parametrize(
    ("known", "packages", "services"),
    [
        ({}, [], []),
        ({"storage_mounts": [NFS]}, ["nfs-common"], []),
        ({"storage_mounts": [{"path": "/a", "state": "absent"}]}, [], []),
        (
            {"storage_mounts": [{**NFS, "fstype": "smb3"}], "storage_clients": ["mpath"]},
            ["cifs-utils", "multipath-tools"],
            ["multipathd"],
        ),
        (
            {"storage_mounts": [{**NFS, "fstype": "xfs"}], "storage_pools": [{"name": "a", "type": "iscsi"}]},
            ["open-iscsi", "xfsprogs"],
            ["iscsid"],
        ),
    ],
)
def test_only_what_is_needed_is_installed(
    tmp_path: Path, known: dict[str, t.Any], packages: list[str], services: list[str]
) -> None:
    found = value(tmp_path, "[__storage_packages, __storage_services]", FILES, {**DEBIAN, **known})
    assert [sorted(found[0]), found[1]] == [packages, services]


def test_pools_on_mounts_are_checked_and_others_when_told(tmp_path: Path) -> None:
    pools = [
        {"name": "default", "path": "/var/lib/libvirt/images"},
        {"name": "below", "path": "/srv/vm/images"},
        {"name": "beside", "path": "/srv/vm2"},
        {"name": "iso", "path": "/srv/vm", "probe": False},
        {"name": "told", "path": "/data", "probe": True},
        {"name": "netfs", "path": "/srv/netfs", "type": "netfs"},
        {"name": "off", "path": "/srv/vm/off", "state": "inactive"},
        {"name": "gone", "path": "/srv/vm/gone", "state": "absent"},
        {"name": "vg0", "type": "logical"},
    ]
    known = {**DEBIAN, "storage_pools": pools, "storage_mounts": [NFS]}
    assert value(tmp_path, "__storage_probed", FILES, known) == ["/data", "/srv/netfs", "/srv/vm/images"]
    assert value(tmp_path, "__storage_probed", FILES, {**DEBIAN}) == []


# Of `semanage fcontext --list --locallist --noheading` on Enterprise Linux 9.
LABELS = """/data/guests(/.*)?                                 all files          system_u:object_r:svirt_home_t:s0
/srv/vm/local(/.*)?                                all files          system_u:object_r:virt_image_t:s0
"""


def test_directories_on_disks_of_the_host_are_labelled_for_guests_once(tmp_path: Path) -> None:
    pools = [
        {"name": "default", "path": "/var/lib/libvirt/images"},
        {"name": "nfs", "path": "/srv/vm/images"},
        {"name": "local", "path": "/srv/vm2/a.b c/"},
        {"name": "theirs", "path": "/data/guests", "type": "dir"},
        {"name": "fs", "path": "/srv/fs", "type": "fs"},
        {"name": "netfs", "path": "/srv/netfs", "type": "netfs"},
        {"name": "vg0", "type": "logical", "path": "/dev/vg0"},
        {"name": "gone", "path": "/srv/gone", "state": "absent"},
    ]
    local = {"path": "/srv/vm2", "src": "/dev/sdb1", "fstype": "ext4"}
    known = {**DEBIAN, "storage_pools": pools, "storage_mounts": [NFS, local]}
    assert value(tmp_path, "__storage_labelled", FILES, known) == ["/srv/vm2/a.b c", "/data/guests", "/srv/fs"]
    listed = {"__storage_labels": {"stdout_lines": LABELS.splitlines()}}
    assert value(tmp_path, "__storage_unlabelled", FILES, {**known, **listed}) == [
        r"/srv/vm2/a\.b.c(/.*)?",
        "/srv/fs(/.*)?",
    ]
    assert value(tmp_path, "__storage_labelled", FILES, DEBIAN) == []
