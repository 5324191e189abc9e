# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of this machine's kernel, its boot loader, and what sets them at its start."""

from __future__ import annotations

import glob
import os
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed
from ansible_collections.corral.virt.plugins.module_utils._host import files_systemd
from ansible_collections.corral.virt.plugins.module_utils._host.model_tuning import (
    ARGUMENTS,
    GRUB,
    GUESTS,
    KERNEL_CMDLINE,
    KSM,
    REBOOT,
    SYSCTL,
    THP,
    TMPFILES,
    HugePages,
    TuningFacts,
    TuningSpec,
    page_unit,
    proc_path,
)
from ansible_collections.corral.virt.plugins.module_utils._system import configuration
from ansible_collections.corral.virt.plugins.module_utils._system.command import SYSTEM_PATH, active, run
from ansible_collections.corral.virt.plugins.module_utils._system.durable import remove
from ansible_collections.corral.virt.plugins.module_utils._system.os_errors import remedy

_SYSCTL_DIRECTORIES = (
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
)
_GOVERNORS = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
_GRUB_CFG = "/boot/grub/grub.cfg"
_ENTRIES = ("/boot/loader/entries/*.conf", "/efi/loader/entries/*.conf", "/boot/efi/loader/entries/*.conf")
_IMAGES = ("/usr/lib/modules/{0}/vmlinuz", "/boot/vmlinuz-{0}")
_BOOT_LOADER_S = 600  # it may look for the systems of all disks


def facts(wanted: TuningSpec) -> TuningFacts:
    """What this machine has of what a plan may change."""
    debian = os.path.exists("/etc/debian_version")
    guests_file = GUESTS["Debian" if debian else ""]
    loader = _loader()
    units = glob.glob(page_unit(1024).replace("1M", "*"))
    files = (SYSCTL, TMPFILES, GRUB, ARGUMENTS, REBOOT, KERNEL_CMDLINE, guests_file, *units)
    governors = sorted(glob.glob(_GOVERNORS))
    paths = [*map(proc_path, wanted.sysctl), THP, KSM, *governors]
    names = [
        "libvirt-guests.service",
        "dev-hugepages.mount",
        *(os.path.basename(page_unit(one.size_kib)) for one in wanted.hugepages),
    ]
    found = files_systemd.units(names)
    return TuningFacts(
        texts={path: told for path in files if (told := text(path)) is not None},
        values={path: configuration.read(path) for path in paths if os.path.exists(path)},
        sysctl_files=tuple(_sysctl_files()),
        pages={path: pages(path) for path in _page_directories()},
        mounted_pages=frozenset(_mounted_pages()),
        default_page_kib=_of_meminfo("Hugepagesize"),
        memory_kib=_of_meminfo("MemTotal"),
        governors={path: tuple(_words(path.replace("_governor", "_available_governors"))) for path in governors},
        loader=loader,
        boot_arguments=_boot_arguments(loader),
        cmdline=frozenset(_words("/proc/cmdline")),
        kernels=tuple(_kernels()) if loader == "systemd-boot" else (),
        active=frozenset(name for name, unit in found.items() if unit.active == "active"),
        enabled=frozenset(name for name, unit in found.items() if unit.enabled),
        masked=frozenset(name for name, unit in found.items() if unit.masked),
        guests_file=guests_file,
        ksmtuned=active("ksmtuned.service"),
    )


def text(path: str) -> str | None:
    """The text of a file; None if there is none."""
    return configuration.read(path) if os.path.lexists(path) else None


def pages(directory: str) -> int:
    """Huge pages that the kernel keeps, in use or not."""
    count, surplus = (
        int(configuration.read(f"{directory}/{name}") or 0) for name in ("nr_hugepages", "surplus_hugepages")
    )
    return count - surplus


def set_value(paths: t.Sequence[str], value: str) -> None:
    """Write a value into files of the kernel."""
    for path in paths:
        try:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(value)
        except OSError as error:
            told = f"it takes no {value!r}; see `cat {path}`, or omit it" if error.errno == 22 else remedy(error, path)
            raise Failed(f"cannot set {path} to {value}: {error.strerror}; {told}") from error


def set_pages(wanted: HugePages) -> int:
    """Ask the kernel for huge pages; returns how many there are."""
    set_value([f"{wanted.directory}/nr_hugepages"], str(wanted.count))
    return pages(wanted.directory)


def update_boot_loader(command: t.Sequence[str]) -> None:
    """Make the entries of the boot loader anew, or change them."""
    run(*command, timeout_s=_BOOT_LOADER_S)


def start_unit(unit: str, *, enable: bool) -> None:
    """Start a unit, also one that was written just now."""
    run("systemctl", "daemon-reload")
    if enable:
        files_systemd.enable([unit])
    files_systemd.start(unit)


def stop_unit(unit: str) -> None:
    """Stop a unit, now and for the next start of the host."""
    files_systemd.stop(unit)
    run("systemctl", "disable", "--", unit)


def remove_file(path: str) -> None:
    """Remove a file of ours."""
    remove(path)
    if path.endswith(".mount"):
        run("systemctl", "daemon-reload")


def _words(path: str) -> list[str]:
    return configuration.read(path).split()


def _sysctl_files() -> t.Iterator[tuple[str, str]]:
    """Files as systemd reads them: in the order of their names, each from the first directory that has it."""
    found: dict[str, str] = {}
    for directory in _SYSCTL_DIRECTORIES:
        for path in glob.glob(f"{directory}/*.conf"):
            found.setdefault(os.path.basename(path), path)
    for name in sorted(found):
        yield found[name], configuration.read(found[name])


def _page_directories() -> list[str]:
    return sorted(
        glob.glob("/sys/kernel/mm/hugepages/hugepages-*kB") + glob.glob("/sys/devices/system/node/node*/hugepages/*")
    )


def _mounted_pages() -> t.Iterator[int]:
    """Sizes of pages, in KiB, with a mount."""
    for line in configuration.read("/proc/mounts").splitlines():
        fields = line.split()
        if fields[2] == "hugetlbfs":
            size = re.search(r"pagesize=([0-9]+)([KMG])", fields[3])
            yield int(size[1]) * 1024 ** "KMG".index(size[2]) if size else _of_meminfo("Hugepagesize")


def _of_meminfo(name: str) -> int:
    """A size in KiB; 0 if the kernel has none."""
    size = re.search(rf"^{name}: *([0-9]+) kB", configuration.read("/proc/meminfo"), re.MULTILINE)
    return int(size[1]) if size else 0


def _has(program: str) -> bool:
    return any(os.access(f"{directory}/{program}", os.X_OK) for directory in SYSTEM_PATH.split(":"))


def _loader() -> str:
    """The boot loader whose arguments we can set; empty if there is none."""
    if _has("grubby"):
        return "grubby"
    if _has("update-grub") and os.path.exists(_GRUB_CFG):
        return "grub"
    return "systemd-boot" if _has("kernel-install") and any(glob.glob(one) for one in _ENTRIES) else ""


def _boot_arguments(loader: str) -> frozenset[str]:
    """Arguments that all entries of the boot loader have."""
    lines: list[str] = []
    if loader == "grub":
        made = configuration.read(_GRUB_CFG).partition("### BEGIN /etc/grub.d/10_linux ###")[2]
        lines = re.findall(r"^\s*linux\S*\s+(.*)$", made.partition("### END /etc/grub.d/10_linux ###")[0], re.MULTILINE)
    elif loader == "grubby":
        lines = re.findall(r'^args="(.*)"$', run("grubby", "--info=ALL"), re.MULTILINE)
    elif loader:
        entries = [configuration.read(path) for pattern in _ENTRIES for path in glob.glob(pattern)]
        lines = [" ".join(re.findall(r"^options\s+(.*)$", entry, re.MULTILINE)) for entry in entries]
    each = [frozenset(line.split()) for line in lines]
    return frozenset.intersection(*each) if each else frozenset()


def _kernels() -> t.Iterator[tuple[str, str]]:
    """Versions of installed kernels, and their images."""
    for directory in sorted(glob.glob("/usr/lib/modules/*/")):
        version = os.path.basename(directory.rstrip("/"))
        image = next((path for one in _IMAGES if os.path.exists(path := one.format(version))), None)
        if image:
            yield version, image
