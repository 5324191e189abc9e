"""`virt_writable`: whether QEMU's user can write, and what mends it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._storage import files_writable, plan_writable
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import Mounted
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_writable import Attempt

NFS = Mounted("nas:/x", "nfs4")
NOBODY = (65534, 65534)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (Attempt("/srv", "qemu", "answer", errno.ETIMEDOUT, NFS), "nas:/x did not answer within 30 s"),
        (Attempt("/srv", "qemu", "create", errno.EROFS, NFS), "export nas:/x with rw"),
        (Attempt("/srv", "qemu", "create", errno.EROFS, Mounted("/dev/a", "ext4", readonly=True)), "the option ro"),
        (Attempt("/srv", "qemu", "create", errno.EROFS, Mounted("/dev/a", "ext4")), "the log of the kernel"),
        (Attempt("/srv", "qemu", "create", errno.EACCES, NFS), "export it with no_root_squash"),
        (Attempt("/srv", "qemu", "own", errno.EACCES, NFS), "export it with no_root_squash"),
        (Attempt("/srv", "qemu", "create", errno.ENOENT), "root cannot create a file there (No such file"),
        (Attempt("/srv", "qemu", "write", errno.EACCES, closed="/srv"), "cannot enter /srv (`chmod o+x /srv`)"),
        (Attempt("/srv", "qemu", "own", errno.EACCES, Mounted("//nas/x", "cifs")), "mount it with uid=qemu"),
        (Attempt("/srv", "qemu", "write", errno.EACCES), "QEMU's user qemu cannot write its file (Permission denied)"),
        (Attempt("/srv", "qemu", on=NFS, boolean_off="virt_use_nfs"), "setsebool -P virt_use_nfs on"),
    ],
)
def test_each_reason_names_its_remedy(attempt: Attempt, reason: str) -> None:
    with pytest.raises(Refused, match="cannot") as error:
        plan_writable.decide([Attempt("/fine", "qemu"), attempt, attempt])
    assert str(error.value).count("guests cannot use disks in /srv: ") == 2 and reason in str(error.value)
    assert "/fine" not in str(error.value)


def test_a_full_filesystem_is_only_noted() -> None:
    full = Attempt("/srv", "qemu", "write", errno.ENOSPC, NFS)
    assert plan_writable.decide([Attempt("/fine", "qemu"), full]) == ["/srv is full: disks of guests cannot grow there"]
    with pytest.raises(BadInput, match="'srv' is not an absolute path"):
        plan_writable.check_paths(["/srv", "srv"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_a_file_is_written_as_the_user_and_removed(tmp_path: Path) -> None:
    for part in (tmp_path, *tmp_path.parents[:3]):
        if part != Path("/tmp"):
            part.chmod(0o711)
    place = tmp_path / "pool"
    place.mkdir()
    assert files_writable.attempt(str(place), NOBODY, [NOBODY[1]], 5) == ("", 0)
    place.chmod(0o700)
    assert files_writable.attempt(str(place), NOBODY, [NOBODY[1]], 5) == ("write", errno.EACCES)
    assert list(place.iterdir()) == []
    assert files_writable.attempt(str(place / "gone"), NOBODY, [NOBODY[1]], 5) == ("create", errno.ENOENT)
    assert files_writable.attempt("/proc", NOBODY, [NOBODY[1]], 5)[0] == "create"
    assert os.geteuid() == 0


def test_a_switch_of_selinux_counts_only_where_it_is_enforced(tmp_path: Path) -> None:
    assert not files_writable.boolean_is_off("virt_use_nfs", str(tmp_path))
    (tmp_path / "booleans").mkdir()
    for enforced, switch, off in (("1", "0 0", True), ("1", "1 1", False), ("0", "0 0", False)):
        (tmp_path / "enforce").write_text(enforced)
        (tmp_path / "booleans/virt_use_nfs").write_text(switch)
        assert files_writable.boolean_is_off("virt_use_nfs", str(tmp_path)) is off
