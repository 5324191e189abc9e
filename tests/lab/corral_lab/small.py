"""A small guest: boots on an emulated processor in seconds, answers to SSH, writes to its disk, obeys ACPI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from corral_lab import cache, mirror
from corral_lab.places import CACHE, CHECKOUT, Lab
from corral_lab.shell import run

RELEASE = "bookworm"
RECIPE = CHECKOUT / "tests/lab/small_guest.sh"
INIT = CHECKOUT / "tests/lab/small_init.sh"
HOST_KEY = "host_key.pub"
SIZE_MIB = 64
START = 2048 * 512  # of the partition, in bytes
# What extlinux reads.
FEATURES = "none,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize"
# The disk is made in a mount namespace of its own: $1 is its directory.
DISK = f"""set -eu
cd "$1"
truncate -s {SIZE_MIB}M disk.raw
printf 'label: dos\\nstart=2048, type=83, bootable\\n' | sfdisk -q disk.raw
dd if=/usr/lib/EXTLINUX/mbr.bin of=disk.raw bs=440 count=1 conv=notrunc status=none
mkfs.ext4 -q -F -b 4096 -O {FEATURES} -E offset={START} -d files disk.raw {SIZE_MIB - 1}M
mkdir mounted
mount -o loop,offset={START} disk.raw mounted
extlinux --install mounted >/dev/null 2>&1
umount mounted
"""
LOADER = (
    "DEFAULT linux\nPROMPT 0\nTIMEOUT 0\nLABEL linux\n  LINUX vmlinuz\n  INITRD initrd\n  APPEND console=ttyS0 quiet\n"
)


def image(lab: Lab, *, mirror_url: str | None, say: Callable[[str], None]) -> Path:
    """The lab's image for small guests, which let in whoever has the lab's key; beside it, their host key."""
    kernel = _kernel(mirror_url=mirror_url, lab=lab.name, say=say)
    place = lab.state / "small"
    if (place / "small.qcow2").exists():
        return place / "small.qcow2"
    run("rm", "-rf", place)
    (place / "files").mkdir(parents=True)
    for name in ("vmlinuz", "initrd"):
        run("cp", kernel / name, place / "files" / name)
    run("cp", kernel / HOST_KEY, place / HOST_KEY)
    (place / "files/extlinux.conf").write_text(LOADER)
    (place / "files/prefix").write_text(f"{lab.prefix}\n")
    (place / "files/authorized_keys").write_text(lab.key.with_suffix(".pub").read_text())
    cache.contained("sh", "-c", DISK, "disk", place, lab=lab.name, log=lab.state / "logs/small.log")
    run("qemu-img", "convert", "-O", "qcow2", place / "disk.raw", place / "new.qcow2")
    (place / "new.qcow2").rename(place / "small.qcow2")
    return place / "small.qcow2"


def _kernel(*, mirror_url: str | None, lab: str, say: Callable[[str], None]) -> Path:
    source = mirror.line_for(RELEASE, mirror=mirror_url)
    key = cache.key_of(RECIPE.read_text(), INIT.read_text(), source)

    def build(place: Path) -> None:
        cache.contained(RECIPE, source, RELEASE, place, lab=lab, log=CACHE / "logs/small.log")

    return cache.built("small", f"{RELEASE}-{key}", build, say=say)
