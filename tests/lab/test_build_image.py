"""Images built by the playbook, judged by qemu-img, sha256sum, e2fsck and a look inside. Needs root, but no lab."""

from __future__ import annotations

import os
import re
import shutil
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import preloaded

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
START = 2048 * 512
BUILD_S = 600
NOT_THERE = [program for program in ("kiwi-ng", "rsync", "sgdisk") if not shutil.which(program)]
CUSTOMIZE = """#!/bin/sh -e
chroot "$1" sh -c 'command -v tree' > "$1/etc/customized"
"""


def run(*command: str | Path, ok: bool = True) -> str:
    """Run a command; what it printed."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = preloaded.run(command, cwd=ROOT, env=environment, timeout_s=BUILD_S, given=None)
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, f"{command} ended with {done.returncode}:\n{output[-6000:]}"
    return output


def playbook(*flags: str, ok: bool = True, **options: str | Path) -> str:
    """Build as a user would; what Ansible said, in one line."""
    output = [part for name, value in options.items() for part in ("-e", f"{name}={value}")]
    return re.sub(r"\s+", " ", run("ansible-playbook", "corral.virt.build_image", *output, *flags, ok=ok))


def changes(said: str) -> int:
    """How many tasks changed something."""
    return int(re.findall(r"changed=(\d+)", said)[0])


@contextmanager
def inside(image: Path, work: Path) -> Iterator[Path]:
    """The image's filesystem, checked and mounted read-only."""
    raw, root = work / "look.raw", work / "look"
    run("qemu-img", "convert", "-O", "raw", image, raw)
    run("e2fsck", "-fn", f"{raw}?offset={START}")
    root.mkdir()
    run("mount", "-o", f"loop,ro,offset={START}", raw, root)
    try:
        yield root
    finally:
        run("umount", root)
        root.rmdir()
        raw.unlink()


def fails(work: Path) -> Path:
    """A program that customizes for a while and then fails."""
    program = work / "fails.sh"
    program.write_text('#!/bin/sh\ntouch "$1/etc/half"\necho cannot reach the registry >&2\nexit 3\n')
    return program


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, t.Any]:
    """What every build here is asked for."""
    work = tmp_path_factory.mktemp("build")
    (work / "ours.sh").write_text(CUSTOMIZE)
    return {
        "image": "deb.qcow2",
        "release": "bookworm",
        "dest": work / "images",
        "packages": "tree",
        "customize": work / "ours.sh",
    }


@pytest.fixture(scope="module")
def built(asked: dict[str, t.Any]) -> Path:
    """The image, built where check mode saw nothing and a run that was killed had left something."""
    dest: Path = asked["dest"]
    assert "would build" in playbook("--check", **asked)
    assert not dest.exists()
    (dest / ".deb.qcow2.build/root").mkdir(parents=True)
    (dest / ".deb.qcow2.build/deb.qcow2").write_text("half")
    (dest / "SHA256SUMS").write_text(f"{'0' * 64}  other.qcow2\n{'1' * 64}  deb.qcow2\n")
    assert changes(playbook(**asked))
    return dest / "deb.qcow2"


@pytest.mark.deep
def test_the_image_and_its_sum_are_there_and_nothing_else(built: Path) -> None:
    assert sorted(path.name for path in built.parent.iterdir()) == ["SHA256SUMS", "deb.qcow2"]
    assert f"{'0' * 64}  other.qcow2" in (built.parent / "SHA256SUMS").read_text()
    digest = run("sha256sum", built).split()[0]
    assert f"{digest}  deb.qcow2" in (built.parent / "SHA256SUMS").read_text().splitlines()
    assert "No errors" in run("qemu-img", "check", built)
    info = run("qemu-img", "info", built)
    assert "file format: qcow2" in info and "compression type: zstd" in info
    assert "virtual size: 2 GiB" in info
    assert str(built.parent) not in run("losetup", "--list") + Path("/proc/self/mounts").read_text()


@pytest.mark.deep
def test_inside_is_a_general_cloud_image(built: Path, tmp_path: Path) -> None:
    with inside(built, tmp_path) as root:
        assert "VERSION_CODENAME=bookworm" in (root / "usr/lib/os-release").read_text()
        for program in (
            "usr/bin/cloud-init",
            "usr/sbin/sshd",
            "usr/bin/python3",
            "usr/sbin/qemu-ga",
            "usr/bin/growpart",
            "usr/sbin/netplan",
        ):
            assert (root / program).exists(), program
        for link in ("boot/vmlinuz", "boot/initrd.img"):
            assert (root / link).stat().st_size > 1024**2
        assert "C.UTF-8" in (root / "etc/cloud/cloud.cfg.d/10_image.cfg").read_text()
        assert "console=ttyS0" in (root / "boot/extlinux.conf").read_text()
        assert (root / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service").is_symlink()
        sources = (root / "etc/apt/sources.list").read_text()
        assert re.search(r"^deb \[signed-by=\S+\] \S+ bookworm main$", sources, re.MULTILINE)
        assert (root / "etc/customized").read_text() == "/usr/bin/tree\n"


@pytest.mark.deep
def test_inside_is_nothing_of_the_host_or_the_lab(built: Path, tmp_path: Path) -> None:
    with inside(built, tmp_path) as root:
        assert (root / "etc/machine-id").read_text() == ""
        assert (root / "etc/hostname").read_text() == "localhost\n"
        assert not list((root / "etc/ssh").glob("ssh_host_*"))
        assert not list((root / "etc/apt/apt.conf.d").glob("99*"))
        assert not list((root / "etc/cloud/cloud.cfg.d").glob("90_*"))
        assert not [
            path
            for path in (root / "etc/systemd/system").iterdir()
            if path.is_symlink() and str(path.readlink()) == "/dev/null"
        ]


@pytest.mark.deep
def test_again_changes_nothing_and_a_lost_sum_is_mended(built: Path, asked: dict[str, t.Any]) -> None:
    before = built.stat()
    assert changes(playbook(**asked)) == 0
    sums = (built.parent / "SHA256SUMS").read_text()
    (built.parent / "SHA256SUMS").write_text(sums.splitlines()[0] + "\n")
    assert changes(playbook(**asked)) == 1
    assert sorted((built.parent / "SHA256SUMS").read_text().splitlines()) == sorted(sums.splitlines())
    assert (built.stat().st_ino, built.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    output = playbook("--check", **asked, rebuild="true")
    assert "would build" in output
    assert changes(output) == 1


@pytest.mark.deep
def test_a_program_that_fails_leaves_the_old_image_and_nothing_else(
    built: Path, asked: dict[str, t.Any], tmp_path: Path
) -> None:
    digest = run("sha256sum", built)
    output = playbook(**{**asked, "customize": fails(tmp_path)}, rebuild="true", ok=False)
    assert "cannot reach the registry" in output
    assert run("sha256sum", built) == digest
    assert sorted(path.name for path in built.parent.iterdir()) == ["SHA256SUMS", "deb.qcow2"]
    assert str(built.parent) not in run("losetup", "--list") + Path("/proc/self/mounts").read_text()


@pytest.mark.deep
def test_a_first_build_that_fails_leaves_nothing(asked: dict[str, t.Any], tmp_path: Path) -> None:
    output = playbook(**{**asked, "dest": tmp_path / "images", "packages": "no-such-package"}, ok=False)
    assert "no-such-package" in output
    assert list((tmp_path / "images").iterdir()) == []


@pytest.mark.deep
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"image": "../x.qcow2", "release": "bookworm"}, ["not a name for an image"]),
        ({"dest": "images", "release": "Bookworm", "size": "3"}, ["not an absolute path", "not a release", "size"]),
        (
            {"release": "bookworm", "mirror": "ftp://x", "customize": "/nowhere/x"},
            ["not a mirror", "/nowhere/x does not exist"],
        ),
        ({"release": "bookworm", "description": "/srv"}, ["description does not apply to mmdebstrap"]),
        (
            {"builder": "kiwi", "kiwi": "/nowhere/kiwi-ng"},
            ["/nowhere/kiwi-ng does not run", "kiwi requires a description"],
        ),
        ({"builder": "kiwi", "description": "/proc/self"}, ["contains no config.xml"]),
        ({"release": "nosuchrelease", "image": "none.qcow2"}, ["found no mirror of nosuchrelease"]),
    ],
)
def test_what_cannot_be_built_is_refused_with_all_reasons(
    options: dict[str, str], says: list[str], tmp_path: Path
) -> None:
    output = playbook(**{"image": "a.qcow2", "dest": str(tmp_path), **options}, ok=False)
    for text in says:
        assert text in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
@pytest.mark.skipif(bool(NOT_THERE), reason=f"kiwi cannot build here without {', '.join(NOT_THERE)}")
def test_kiwi_builds_what_its_description_says(tmp_path: Path) -> None:
    mirrors = run(
        "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm"
    ).split()
    description = (Path(__file__).parent / "kiwi.xml").read_text().replace("MIRROR", mirrors[0])
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/config.xml").write_text(description)
    options: dict[str, t.Any] = {
        "image": "tiny.qcow2",
        "builder": "kiwi",
        "description": tmp_path / "tiny",
        "dest": tmp_path / "images",
    }
    assert changes(playbook(**options))
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["SHA256SUMS", "tiny.qcow2"]
    image = tmp_path / "images/tiny.qcow2"
    assert "No errors" in run("qemu-img", "check", image)
    assert run("sha256sum", image).split()[0] in (tmp_path / "images/SHA256SUMS").read_text()
    assert changes(playbook(**options)) == 0
