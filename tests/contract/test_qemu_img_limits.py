"""An image that is made to exhaust the host exhausts one qemu-img."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._storage import files_qemu_img

LIMITS = f"""#!{sys.executable}
import json, resource
print(json.dumps([resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]))
"""
SPIN = "#!/bin/sh\nwhile :; do :; done\n"
EAT = (
    "#!/bin/sh\necho 'qemu-img: ../util/oslib-posix.c: failed to allocate 4294967296 bytes: Cannot allocate memory' "
    ">&2\nkill -ABRT $$\n"
)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run as qemu-img."""
    path = tmp_path / "bin/qemu-img"
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


def test_looking_at_an_image_is_limited_in_memory_and_time(program: Path) -> None:
    program.write_text(LIMITS)
    assert list(map(int, files_qemu_img.info("/srv/a.qcow2", "qcow2"))) == [1024**3, 30]


def test_work_on_an_image_is_limited_in_memory_alone(program: Path, tmp_path: Path) -> None:
    program.write_text(LIMITS.replace("print(", f"open({str(tmp_path / 'limits')!r}, 'w').write("))
    files_qemu_img.convert("/srv/a.qcow2", str(tmp_path / "b.raw"), from_format="qcow2", to_format="raw")
    assert (tmp_path / "limits").read_text() == f"[{4 * 1024**3}, -1]"


def test_an_image_that_takes_time_without_end_is_named_with_the_limit(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text(SPIN)
    monkeypatch.setattr(files_qemu_img, "_READ", files_qemu_img._Limits(1024**3, 1))
    with pytest.raises(
        Failed,
        match=r"cannot read image /srv/a\.qcow2: qemu-img reached its limit of 1 s of processor time; .*import it again",
    ):
        files_qemu_img.info("/srv/a.qcow2", "qcow2")


def test_an_image_that_takes_memory_without_end_is_named_with_the_limit(program: Path) -> None:
    program.write_text(EAT)
    with pytest.raises(
        Failed,
        match=r"cannot read image /srv/a\.qcow2: qemu-img reached its limit of 1 GiB of memory; .*import it again",
    ):
        files_qemu_img.info("/srv/a.qcow2", "qcow2")


def test_the_real_program_tells_that_memory_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.raw").write_bytes(bytes(1024))
    assert files_qemu_img.info(str(tmp_path / "a.raw"), "raw")["format"] == "raw"
    monkeypatch.setattr(files_qemu_img, "_READ", files_qemu_img._Limits(24 * 1024**2, 30))
    with pytest.raises(Failed, match=r"reached its limit of 24 MiB of memory"):
        files_qemu_img.info(str(tmp_path / "a.raw"), "raw")
