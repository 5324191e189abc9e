"""What a machine must offer to hold a lab: all that is missing is said at once."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from corral_lab.places import Problem

PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh-keygen": "openssh-client",
    "dnsmasq": "dnsmasq-base",
    "nsenter": "util-linux",
}
IMAGE_PROGRAMS = {"qemu-img": "qemu-utils", "extlinux": "extlinux", "sfdisk": "fdisk", "mkfs.ext4": "e2fsprogs"}
DEVICES = ("/dev/net/tun", "/dev/fuse")


def check_machine() -> None:
    """Raise one Problem that lists what no package brings: before anything is built or downloaded."""
    _refuse(_problems_of_machine(image=True))


def check(*, image: bool) -> None:
    """Raise one Problem that lists everything missing."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    programs = PROGRAMS | (IMAGE_PROGRAMS if image else {})
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    problems = _problems_of_machine(image=image)
    if missing:
        problems.append(f"programs are missing: apt-get install --no-install-recommends {' '.join(missing)}")
    _refuse(problems)


def _problems_of_machine(*, image: bool) -> list[str]:
    if platform.system() != "Linux":
        raise Problem(f"the lab needs Linux, this is {platform.system()}: run it on a Debian 12 machine")
    problems = []
    if os.geteuid() != 0:
        problems.append("containers, bridges and mounts need root: run it with sudo, best on a machine kept for that")
    if image and platform.machine() != "x86_64":
        problems.append(f"its cloud image boots on x86_64 only, this is {platform.machine()}: use `up --no-image`")
    problems += [f"{device} is missing: load its kernel module" for device in DEVICES if not Path(device).exists()]
    return problems


def _refuse(problems: list[str]) -> None:
    if problems:
        raise Problem("the lab cannot work here:\n" + "\n".join(f"  - {problem}" for problem in problems))
