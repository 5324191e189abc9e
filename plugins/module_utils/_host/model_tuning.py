# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a hypervisor's kernel and of the way its guests end, and what is found of them."""

from __future__ import annotations

import dataclasses
import re
import typing as t

MARK = "# Managed by corral.virt (virt_tuning): what you change here is lost."
SYSCTL = "/etc/sysctl.d/90-corral-tuning.conf"  # behind that of the role bridge
TMPFILES = "/etc/tmpfiles.d/corral-tuning.conf"
GRUB = "/etc/default/grub.d/90-corral-tuning.cfg"
ARGUMENTS = "/etc/corral-virt/kernel-arguments"  # which arguments are ours, where the boot loader has no file for them
KERNEL_CMDLINE = "/etc/kernel/cmdline"
REBOOT = "/run/reboot-required"  # also of the distribution's own tools; gone after the boot
GUESTS = {"Debian": "/etc/default/libvirt-guests", "": "/etc/sysconfig/libvirt-guests"}
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
KSM = "/sys/kernel/mm/ksm/run"


@dataclasses.dataclass(frozen=True)
class HugePages:
    """Huge pages of one size, on one NUMA node or wherever the kernel takes them."""

    size_kib: int
    count: int
    node: int | None = None

    @property
    def directory(self) -> str:
        """Where the kernel counts them."""
        return pages_directory(self.size_kib, self.node)

    def __str__(self) -> str:
        return size_name(self.size_kib) + ("" if self.node is None else f" on node {self.node}")


@dataclasses.dataclass(frozen=True)
class GuestsService:
    """What libvirt-guests.service does with guests when the host stops."""

    at_shutdown: str  # ignore, shutdown or suspend
    timeout_s: int
    parallel: int


@dataclasses.dataclass(frozen=True)
class TuningSpec:
    """What the user asks for; empty and None: nothing, so that ours goes."""

    sysctl: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    hugepages: tuple[HugePages, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    transparent_hugepages: str | None = None
    ksm: bool | None = None
    cpu_governor: str | None = None
    libvirt_guests: GuestsService | None = None


@dataclasses.dataclass(frozen=True)
class TuningFacts:
    """What the host has."""

    texts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # of files that a plan may write
    values: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # below /proc/sys and /sys, by path
    sysctl_files: tuple[tuple[str, str], ...] = ()  # paths and texts, in the order in which systemd applies them
    pages: t.Mapping[str, int] = dataclasses.field(default_factory=dict)  # by directory, without surplus ones
    mounted_pages: frozenset[int] = frozenset()  # sizes in KiB with a mount
    default_page_kib: int = 0
    memory_kib: int = 0  # of the host; 0: unknown
    governors: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # available ones, by path
    loader: str = ""  # grub, grubby, systemd-boot; empty: none that is known
    boot_arguments: frozenset[str] = frozenset()  # in all entries of the boot loader
    cmdline: frozenset[str] = frozenset()  # of the running kernel
    kernels: tuple[tuple[str, str], ...] = ()  # versions and images, for kernel-install
    active: frozenset[str] = frozenset()  # units that run
    enabled: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()
    guests_file: str = GUESTS[""]
    ksmtuned: bool = False


def owned(text: str) -> bool:
    """True if we wrote a file."""
    return text.startswith(MARK)


def size_name(size_kib: int) -> str:
    """A size of pages as the kernel's arguments have it: 2M, 1G."""
    for unit, size in (("G", 1024**2), ("M", 1024)):
        if size_kib % size == 0:
            return f"{size_kib // size}{unit}"
    return f"{size_kib}K"


def pages_directory(size_kib: int, node: int | None) -> str:
    """Where the kernel counts huge pages."""
    above = "/sys/kernel/mm" if node is None else f"/sys/devices/system/node/node{node}"
    return f"{above}/hugepages/hugepages-{size_kib}kB"


def page_unit(size_kib: int) -> str:
    """The file of our mount unit for pages of a size."""
    return f"/etc/systemd/system/dev-hugepages{size_name(size_kib)}.mount"


def proc_path(key: str) -> str:
    """The file of a key, whose first separator tells how to read it, as for sysctl(8)."""
    first = re.search("[./]", key)
    plain = key if first and first[0] == "/" else key.translate({ord("."): "/", ord("/"): "."})
    return f"/proc/sys/{plain}"
