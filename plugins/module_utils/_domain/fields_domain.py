# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of a domain as a whole. Source: https://libvirt.org/formatdomain.html"""

from __future__ import annotations

import copy
import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.list_item import Item
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_device,
    fields_disk,
    fields_graphics,
    fields_interface,
    fields_record,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Grafted, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay, row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import (
    ANY,
    Flag,
    Items,
    Many,
    Presence,
    Row,
    silent_is,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import (
    Element,
    child,
    copied,
    drop,
    make,
    parse,
    resolve,
    text,
)


def _same_machine(found: str | None, wanted: str) -> bool:
    """True if the machines match: `pc-q35-7.2` matches `q35`, as libvirt stores the version that it chose."""
    short = {"q35": "pc-q35-", "pc": "pc-i440fx-"}
    return found == wanted or bool(found and wanted in short and found.startswith(short[wanted]))


def _rounded(found: t.Any, wanted: int) -> bool:
    """True if the sizes match: libvirt rounds video memory up to a power of two."""
    return found == wanted or (isinstance(wanted, int) and bool(found == 1 << (wanted - 1).bit_length()))


def _same_source(found: str | None, wanted: str) -> bool:
    """True if the sources match: an empty one matches libvirt's defaults."""
    return found == wanted or (not wanted and found in (None, "/dev/random", "/dev/urandom"))


def _same_order(found: tuple[str, ...] | None, wanted: tuple[str, ...]) -> bool:
    """True if the boot orders match: an empty one matches libvirt's default."""
    return found == (wanted or ("hd",)) or not (found or wanted)


def _forget_cpu(root: Element) -> None:
    """Remove model, vendor, features and checks, which belong to the former mode."""
    cpu = child(root, "cpu")
    drop([found for tag in ("model", "vendor", "feature") for found in cpu.findall(tag)])
    for attribute in ("match", "check", "migratable"):
        cpu.attrib.pop(attribute, None)


def _forget_clock(root: Element) -> None:
    """Remove what belongs to the former offset: with an adjustment, libvirt reads any as variable."""
    for attribute in ("adjustment", "basis", "start"):
        child(root, "clock").attrib.pop(attribute, None)


def _forget_hyperv(root: Element) -> None:
    """Remove single features, which do not apply to the host's whole set."""
    drop(root.iterfind("features/hyperv/*"))


def _forget_video(root: Element) -> None:
    """Remove heads, acceleration and resolution, which belong to the former model."""
    for model in root.xpath("devices/video/model[@heads!='1']"):
        model.attrib.pop("heads")
    for part in ("acceleration", "resolution"):
        drop(root.findall(f"devices/video/model/{part}"))


def _forget_nvram(root: Element) -> None:
    """Remove a source of the variables, which would contradict the path."""
    for nvram in root.findall("os/nvram"):
        nvram.attrib.pop("type", None)
        drop(nvram.findall("source"))


class Firmware(Row):
    """`efi`: requested from libvirt by this word, or implied by a loader of type pflash."""

    def read(self, element: Element) -> t.Any:
        """bios or efi; None if nothing is set."""
        loader = element.find("os/loader")
        return super().read(element) or ("efi" if loader is not None and loader.get("type") == "pflash" else None)


class SecureBoot(Row):
    """Two features of the firmware that libvirt chooses: it refuses unsigned code, and has the keys enrolled."""

    _FEATURES = ("enrolled-keys", "secure-boot")

    def read(self, element: Element) -> t.Any:
        """True if secure boot is on; None if nothing is set."""
        found = {one.get("name"): one.get("enabled") for one in element.findall("os/firmware/feature")}
        if "secure-boot" in found:
            return found["secure-boot"] == "yes"
        loader = element.find("os/loader")
        return loader.get("secure") == "yes" if loader is not None and loader.get("secure") else None

    def write(self, element: Element, value: t.Any) -> None:
        """Request a firmware with both features, or with neither. Keys that only `xml` sets stay."""
        firmware = child(child(element, "os"), "firmware")
        there = [one for one in firmware.findall("feature") if one.get("name") in self._FEATURES]
        if any(one.get("name") == "secure-boot" for one in there):
            while there:
                firmware.remove(there.pop())
        for name in sorted({*self._FEATURES} - {one.get("name") for one in there}):
            firmware.append(firmware.makeelement("feature", {"enabled": "yes" if value else "no", "name": name}))


class Period(Row):
    """A number of seconds; 0 is written as no attribute."""

    def write(self, element: Element, value: t.Any) -> None:
        """Set the number, or remove it."""
        super().write(element, value or "")


class Resolution(Row):
    """`1280x720` for the two attributes of a resolution."""

    def read(self, element: Element) -> t.Any:
        """Width x height in pixels, or None."""
        found = element.find(self.path)
        return None if found is None else f"{found.get('x')}x{found.get('y')}"

    def write(self, element: Element, value: t.Any) -> None:
        """Set both attributes, or remove the element."""
        if value == "":
            drop(element.findall(self.path))
            return
        for step in self.path.split("/"):
            element = child(element, step)
        width, _by, height = value.partition("x")
        element.set("x", width)
        element.set("y", height)


# Of these, libosinfo's short id tells the id: `debian13` is http://debian.org/debian/13.
_OSINFO = {
    "almalinux": "almalinux.org/almalinux",
    "alpinelinux": "alpinelinux.org/alpinelinux",
    "centos": "centos.org/centos",
    "centos-stream": "centos.org/centos-stream",
    "debian": "debian.org/debian",
    "fedora": "fedoraproject.org/fedora",
    "freebsd": "freebsd.org/freebsd",
    "linux": "libosinfo.org/linux",
    "netbsd": "netbsd.org/netbsd",
    "ol": "oracle.com/ol",
    "openbsd": "openbsd.org/openbsd",
    "opensuse": "opensuse.org/opensuse",
    "rhel": "redhat.com/rhel",
    "rocky": "rockylinux.org/rocky",
    "ubuntu": "ubuntu.com/ubuntu",
    "win": "microsoft.com/win",
}
_OSINFO_MUST = (
    "must be an id of libosinfo such as http://debian.org/debian/13, or a short one such as debian13; "
    "`osinfo-query os` prints them"
)


def _osinfo(value: t.Any) -> str:
    """The libosinfo ID; for some systems derived from the short one."""
    text = str(value)
    if not text or re.fullmatch(r"https?://[A-Za-z0-9.-]+(/[A-Za-z0-9._-]+)+", text, re.ASCII):
        return text
    short = re.fullmatch(r"([a-z]+(?:-[a-z]+)??)-?(\d[a-z0-9.]*|tumbleweed|rawhide|testing)", text, re.ASCII)
    if not short or short.group(1) not in _OSINFO:
        raise ValueError(_OSINFO_MUST)
    return f"http://{_OSINFO[short.group(1)]}/{short.group(2)}"


_US = k.integer(1000, 1000000)
_QUOTA = k.integer(1000, 2**44 - 1, also=(-1, 0))
_COUNT = k.integer(1, 4096)
_ACTION = k.choice("destroy", "restart", "preserve", "rename-restart")
_MEMORY_MODE = k.choice("strict", "preferred", "interleave", "restrictive")
_ID = k.integer(0, 4095)
_SYSTEM = k.Kind({"type": "str"}, _osinfo, must=_OSINFO_MUST)
_LOGIN = k.matching(r"[a-z_][a-z0-9_-]{0,31}", "must be a user name of small letters, digits, '_' and '-'")
_HYPERV = (
    "relaxed",
    "vapic",
    "vpindex",
    "runtime",
    "synic",
    "reset",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
    "evmcs",
)
_CUSTOM = {"features.hyperv.mode": ("custom", None)}
_LOADER, _QXL, _TPM_HOST = {"loader.path": ANY}, {"video.model": ("qxl",)}, {"tpm.type": ("passthrough",)}
_VIRTIO = ("virtio", "virtio-transitional", "virtio-non-transitional")
_VIDEO = {"video.model": ("virtio", "vga", "qxl", "bochs", "cirrus", "ramfb")}
_BALLOON, _RNG, _VSOCK = {"balloon.model": _VIRTIO}, {"rng.model": _VIRTIO}, {"vsock.model": (*_VIRTIO, None)}
_TPM, _WATCHDOG = {"tpm.model": ("tpm-crb", "tpm-tis", None)}, {"watchdog.model": ("itco", "i6300esb", "ib700")}


def _first_serial(one: Row) -> Row:
    """The row of a port as a row of the first serial port."""
    valid_with, required_with = (
        {f"serial.{field}": values for field, values in rule.items()} for rule in (one.valid_with, one.required_with)
    )
    return dataclasses.replace(
        one, path=f"devices/serial/{one.path}".replace("./", ""), valid_with=valid_with, required_with=required_with
    )


_SEVERAL = {
    "feature", "timer", "vcpupin", "iothreadpin", "cell", "memnode",
    "boot", "arg", "env", "page", "sibling", "host", "tag", "sysinfo",
}  # fmt: skip
SHAPE = overlay.Shape("domain", several=frozenset(_SEVERAL), holders=("devices",))

_HA = "metadata/corral:guest/corral:ha"
_PROTECTED = {"ha.mode": ("restart",)}

DOMAIN: row.Table = {
    "title": Row("title", k.LINE),
    "description": Row("description"),
    "osinfo": Row("metadata/libosinfo:libosinfo/libosinfo:os/@id", _SYSTEM),
    "login_user": Row("metadata/corral:guest/corral:login/@user", _LOGIN),
    # whether and how another host runs it when its host is dead
    "ha.mode": Presence(f"{_HA}/@mode", k.choice("restart", "none"), element="/".join(map(resolve, _HA.split("/")))),
    "ha.priority": Row(f"{_HA}/@priority", k.integer(0, 1000), valid_with=_PROTECTED),
    "ha.group": Row(f"{_HA}/@group", k.WORD, valid_with=_PROTECTED),
    "ha.max_restarts": Row(f"{_HA}/@max-restarts", k.integer(0, 100), valid_with=_PROTECTED),
    "ha.monitor_agent": Row(f"{_HA}/@monitor-agent", k.YESNO, valid_with=_PROTECTED),
    "ha.colocate": Many(f"{_HA}/corral:colocate", k.NAME, valid_with=_PROTECTED),
    "ha.apart": Many(f"{_HA}/corral:apart", k.NAME, valid_with=_PROTECTED),
    "ha.prefer": Many(f"{_HA}/corral:prefer", k.NAME, valid_with=_PROTECTED),
    # processors
    "vcpus.maximum": Row("vcpu", _COUNT),
    "vcpus.current": Row("vcpu/@current", _COUNT),
    "vcpus.placement": Row("vcpu/@placement", k.choice("static", "auto")),
    "vcpus.cpuset": Row("vcpu/@cpuset", k.CPUSET, valid_with={"vcpus.placement": ("static", None)}),
    "vcpus.topology.sockets": Row("cpu/topology/@sockets", _COUNT),
    "vcpus.topology.dies": Row("cpu/topology/@dies", _COUNT, since=(6, 1)),
    # 10.1, but Enterprise Linux 9 has it in 10.0
    "vcpus.topology.clusters": Row("cpu/topology/@clusters", _COUNT, since=(10, 0)),
    "vcpus.topology.cores": Row("cpu/topology/@cores", _COUNT),
    "vcpus.topology.threads": Row("cpu/topology/@threads", _COUNT),
    "vcpus.iothreads": Row("iothreads", k.integer(0, 1024), same=silent_is(0)),
    "vcpus.shares": Row("cputune/shares", k.integer(2, 262144)),
    **{
        f"vcpus.{prefix}{what}_us": Row(f"cputune/{prefix}{what}", kind)
        for prefix in ("", "global_", "emulator_", "iothread_")
        for what, kind in (("period", _US), ("quota", _QUOTA))
    },
    "vcpus.pinning": Items(
        "cputune/vcpupin",
        table={"vcpu": Row("./@vcpu", _ID), "cpuset": Row("./@cpuset", k.CPUSET)},
        key="vcpu",
        needed=("cpuset",),
        shown=("cpuset",),
    ),
    "vcpus.emulator_cpuset": Row("cputune/emulatorpin/@cpuset", k.CPUSET),
    "vcpus.iothread_pinning": Items(
        "cputune/iothreadpin",
        table={"iothread": Row("./@iothread", k.integer(1)), "cpuset": Row("./@cpuset", k.CPUSET)},
        key="iothread",
        needed=("cpuset",),
        shown=("cpuset",),
    ),
    "cpu.mode": Row(
        "cpu/@mode", k.choice("host-model", "host-passthrough", "maximum", "custom"), on_change=_forget_cpu
    ),
    "cpu.model": Row(
        "cpu/model",
        k.WORD,
        valid_with={"cpu.mode": ("custom", "host-model", None)},
        required_with={"cpu.mode": ("custom",)},
    ),
    "cpu.fallback": Row("cpu/model/@fallback", k.choice("allow", "forbid"), valid_with={"cpu.model": ANY}),
    "cpu.vendor": Row("cpu/vendor", k.WORD, valid_with={"cpu.model": ANY}),
    "cpu.match": Row("cpu/@match", k.choice("minimum", "exact", "strict"), valid_with={"cpu.mode": ("custom",)}),
    "cpu.check": Row("cpu/@check", k.choice("none", "partial", "full"), valid_with={"cpu.mode": ANY}),
    "cpu.migratable": Row(
        "cpu/@migratable", k.ONOFF, valid_with={"cpu.mode": ("host-passthrough", "maximum")}, since=(6, 5)
    ),
    "cpu.cache.mode": Row("cpu/cache/@mode", k.choice("emulate", "passthrough", "disable")),
    "cpu.cache.level": Row("cpu/cache/@level", k.integer(1, 3), valid_with={"cpu.cache.mode": ("emulate",)}),
    "cpu.maxphysaddr.mode": Row("cpu/maxphysaddr/@mode", k.choice("passthrough", "emulate"), since=(8, 7)),
    "cpu.maxphysaddr.bits": Row(
        "cpu/maxphysaddr/@bits", k.integer(1, 64), valid_with={"cpu.maxphysaddr.mode": ("emulate",)}, since=(8, 7)
    ),
    "cpu.features": Items(
        "cpu/feature",
        table={
            "name": Row("./@name", k.WORD),
            "policy": Row("./@policy", k.choice("require", "disable", "optional", "force", "forbid")),
        },
        needed=("policy",),
        shown=("policy",),
        valid_with={"cpu.mode": ANY},
    ),
    # memory
    "memory.maximum_kib": Row("memory", k.KIB, unit="KiB"),
    "memory.current_kib": Row("currentMemory", k.KIB, unit="KiB"),
    "memory.hotplug_maximum_kib": Row("maxMemory", k.KIB, unit="KiB", valid_with={"memory.slots": ANY}),
    "memory.slots": Row("maxMemory/@slots", k.integer(1, 256), valid_with={"memory.hotplug_maximum_kib": ANY}),
    "memory.hugepages": Flag("memoryBacking/hugepages", k.ONOFF),
    "memory.hugepage_size_kib": Row(
        "memoryBacking/hugepages/page/@size", k.KIB, unit="KiB", valid_with={"memory.hugepages": (True,)}
    ),
    "memory.nosharepages": Flag("memoryBacking/nosharepages", k.ONOFF),
    "memory.locked": Flag("memoryBacking/locked", k.ONOFF),
    "memory.source": Row("memoryBacking/source/@type", k.choice("anonymous", "file", "memfd")),
    "memory.access": Row("memoryBacking/access/@mode", k.choice("shared", "private")),
    "memory.allocation": Row("memoryBacking/allocation/@mode", k.choice("immediate", "ondemand")),
    "memory.allocation_threads": Row(
        "memoryBacking/allocation/@threads", _COUNT, valid_with={"memory.allocation": ("immediate",)}, since=(8, 2)
    ),
    "memory.discard": Flag("memoryBacking/discard", k.ONOFF),
    "memory.hard_limit_kib": Row("memtune/hard_limit", k.KIB, unit="KiB"),
    "memory.soft_limit_kib": Row("memtune/soft_limit", k.KIB, unit="KiB"),
    "memory.swap_hard_limit_kib": Row("memtune/swap_hard_limit", k.KIB, unit="KiB"),
    "numa.cells": Items(
        "cpu/numa/cell",
        table={
            "id": Row("./@id", _ID),
            "cpus": Row("./@cpus", k.CPUSET),
            "memory_kib": Row("./@memory", k.KIB, unit="KiB"),
            "access": Row("./@memAccess", k.choice("shared", "private")),
            "discard": Row("./@discard", k.YESNO),
            "distances": Items(
                "distances/sibling",
                table={"id": Row("./@id", _ID), "value": Row("./@value", k.integer(10, 254))},
                key="id",
                needed=("value",),
                shown=("value",),
            ),
        },
        key="id",
        needed=("memory_kib",),
        shown=("cpus", "memory_kib"),
    ),
    "numa.mode": Row("numatune/memory/@mode", _MEMORY_MODE),
    "numa.nodeset": Row(
        "numatune/memory/@nodeset", k.CPUSET, valid_with={"numa.mode": ANY, "numa.placement": ("static", None)}
    ),
    "numa.placement": Row("numatune/memory/@placement", k.choice("static", "auto"), same=silent_is("static")),
    "numa.nodes": Items(
        "numatune/memnode",
        table={
            "cell": Row("./@cellid", _ID),
            "mode": Row("./@mode", _MEMORY_MODE),
            "nodeset": Row("./@nodeset", k.CPUSET),
        },
        key="cell",
        needed=("mode", "nodeset"),
        shown=("mode", "nodeset"),
    ),
    # machine, firmware, boot
    "machine": Row(
        "os/type/@machine", k.matching(r"[A-Za-z0-9_.-]{1,64}", "must be a machine such as q35"), same=_same_machine
    ),
    "firmware": Firmware("os/@firmware", k.choice("bios", "efi"), same=silent_is("bios")),
    "secure_boot": SecureBoot(
        "os/firmware", k.YESNO, same=silent_is(False), valid_with={"firmware": ("efi",)}, since=(7, 2)
    ),
    "loader.path": Row("os/loader", k.PATH),
    "loader.type": Row("os/loader/@type", k.choice("rom", "pflash"), valid_with=_LOADER),
    "loader.readonly": Row("os/loader/@readonly", k.YESNO, valid_with=_LOADER),
    "loader.secure": Row("os/loader/@secure", k.YESNO, valid_with=_LOADER),
    "nvram.path": Row("os/nvram", k.PATH, valid_with={"firmware": ("efi",)}, on_change=_forget_nvram),
    "nvram.template": Row("os/nvram/@template", k.PATH, valid_with=_LOADER),
    "boot.order": Many("os/boot/@dev", k.choice("hd", "cdrom", "network", "fd"), same=_same_order),
    "boot.menu": Row("os/bootmenu/@enable", k.YESNO),
    "boot.menu_timeout_ms": Row("os/bootmenu/@timeout", k.integer(0, 65535), valid_with={"boot.menu": (True,)}),
    "boot.reboot_timeout_ms": Row("os/bios/@rebootTimeout", k.integer(-1, 32767)),
    "boot.kernel": Row("os/kernel", k.PATH),
    "boot.initrd": Row("os/initrd", k.PATH, valid_with={"boot.kernel": ANY}),
    "boot.cmdline": Row("os/cmdline", k.LINE, valid_with={"boot.kernel": ANY}),
    "features.acpi": Flag("features/acpi", k.ONOFF),
    "features.apic": Flag("features/apic", k.ONOFF),
    "features.pae": Flag("features/pae", k.ONOFF),
    "features.smm": Row("features/smm/@state", k.ONOFF),
    "features.vmport": Row("features/vmport/@state", k.ONOFF),
    "features.pmu": Row("features/pmu/@state", k.ONOFF),
    "features.kvm_hidden": Row("features/kvm/hidden/@state", k.ONOFF),
    "features.kvm_hint_dedicated": Row("features/kvm/hint-dedicated/@state", k.ONOFF),
    "features.ioapic": Row("features/ioapic/@driver", k.choice("kvm", "qemu")),
    "features.hyperv.mode": Row(
        "features/hyperv/@mode", k.choice("custom", "passthrough"), on_change=_forget_hyperv, since=(8, 0)
    ),
    **{
        f"features.hyperv.{name}": Row(f"features/hyperv/{name}/@state", k.ONOFF, valid_with=_CUSTOM)
        for name in _HYPERV
    },
    "features.hyperv.avic": Row("features/hyperv/avic/@state", k.ONOFF, valid_with=_CUSTOM, since=(8, 10)),
    "features.hyperv.spinlocks": Row("features/hyperv/spinlocks/@state", k.ONOFF, valid_with=_CUSTOM),
    "features.hyperv.spinlocks_retries": Row(
        "features/hyperv/spinlocks/@retries", k.integer(4095), valid_with={"features.hyperv.spinlocks": (True,)}
    ),
    "features.hyperv.stimer": Row("features/hyperv/stimer/@state", k.ONOFF, valid_with=_CUSTOM),
    "features.hyperv.stimer_direct": Row(
        "features/hyperv/stimer/direct/@state",
        k.ONOFF,
        same=silent_is(False),
        valid_with={"features.hyperv.stimer": (True,)},
    ),
    "features.hyperv.vendor_id": Row(
        "features/hyperv/vendor_id/@value",
        k.matching(r"[ -+.-~-]{1,12}", "must be at most 12 printable characters without a comma"),
        valid_with=_CUSTOM,
    ),
    "clock.offset": Row("clock/@offset", k.choice("utc", "localtime", "timezone"), on_change=_forget_clock),
    "clock.timezone": Row(
        "clock/@timezone",
        k.matching(r"[A-Za-z0-9_]+(/[A-Za-z0-9_+-]+)*", "must be a time zone such as Europe/Paris"),
        valid_with={"clock.offset": ("timezone",)},
        required_with={"clock.offset": ("timezone",)},
    ),
    "clock.timers": Items(
        "clock/timer",
        table={
            "name": Row("./@name", k.choice("hpet", "kvmclock", "pit", "rtc", "tsc", "hypervclock", "armvtimer")),
            "present": Row("./@present", k.YESNO),
            "tickpolicy": Row("./@tickpolicy", k.choice("delay", "catchup", "merge", "discard")),
            "track": Row("./@track", k.choice("guest", "wall", "realtime"), valid_with={"name": ("rtc",)}),
            "frequency": Row("./@frequency", k.integer(1, 2**40), valid_with={"name": ("tsc",)}),
            "mode": Row(
                "./@mode", k.choice("auto", "native", "emulate", "paravirt", "smpsafe"), valid_with={"name": ("tsc",)}
            ),
        },
        shown=("present", "tickpolicy"),
    ),
    "on_poweroff": Row("on_poweroff", _ACTION),
    "on_reboot": Row("on_reboot", _ACTION),
    "on_crash": Row(
        "on_crash", k.choice("destroy", "restart", "preserve", "rename-restart", "coredump-destroy", "coredump-restart")
    ),
    "on_lockfailure": Row("on_lockfailure", k.choice("poweroff", "restart", "pause", "ignore")),
    "pm.suspend_to_mem": Row("pm/suspend-to-mem/@enabled", k.YESNO),
    "pm.suspend_to_disk": Row("pm/suspend-to-disk/@enabled", k.YESNO),
    # devices a guest has one of, or of which the first is meant
    **{f"serial.{field}": _first_serial(one) for field, one in fields_device.PORT.items()},
    "rng.model": Presence("devices/rng/@model", k.choice(*_VIRTIO, "none"), element="devices/rng"),
    "rng.backend": Row("devices/rng/backend/@model", k.choice("random", "builtin"), valid_with=_RNG),
    "rng.source": Row(
        "devices/rng/backend", k.PATH, same=_same_source, valid_with={**_RNG, "rng.backend": ("random",)}
    ),
    "rng.rate_bytes": Row("devices/rng/rate/@bytes", k.integer(1), valid_with=_RNG),
    "rng.rate_period_ms": Row("devices/rng/rate/@period", k.integer(1), valid_with={"rng.rate_bytes": ANY}),
    "watchdog.model": Presence(
        "devices/watchdog/@model", k.choice(*_WATCHDOG["watchdog.model"], "none"), element="devices/watchdog"
    ),
    "watchdog.action": Row(
        "devices/watchdog/@action",
        k.choice("reset", "shutdown", "poweroff", "pause", "none", "dump", "inject-nmi"),
        valid_with=_WATCHDOG,
    ),
    "video.model": Row("devices/video/model/@type", k.choice(*_VIDEO["video.model"], "none"), on_change=_forget_video),
    "video.vram_kib": Row("devices/video/model/@vram", k.KIB, same=_rounded, valid_with=_VIDEO),
    "video.ram_kib": Row("devices/video/model/@ram", k.KIB, same=_rounded, valid_with=_QXL),
    "video.vgamem_kib": Row("devices/video/model/@vgamem", k.KIB, same=_rounded, valid_with=_QXL),
    "video.heads": Row("devices/video/model/@heads", k.integer(1, 16), valid_with=_VIDEO),
    "video.accel3d": Row("devices/video/model/acceleration/@accel3d", k.YESNO, valid_with=_VIDEO),
    "video.resolution": Resolution(
        "devices/video/model/resolution",
        k.matching(r"[1-9]\d{1,4}x[1-9]\d{1,4}", "must be a resolution such as 1280x720"),
        valid_with={"video.model": ("virtio", "vga", "qxl", "bochs")},
    ),
    "tpm.model": Presence("devices/tpm/@model", k.choice("tpm-crb", "tpm-tis", "none"), element="devices/tpm"),
    "tpm.type": Row("devices/tpm/backend/@type", k.choice("emulator", "passthrough"), valid_with=_TPM),
    "tpm.version": Row("devices/tpm/backend/@version", k.choice("2.0", "1.2"), valid_with={"tpm.type": ("emulator",)}),
    "tpm.persistent_state": Row(
        "devices/tpm/backend/@persistent_state",
        k.YESNO,
        same=silent_is(False),
        valid_with={"tpm.type": ("emulator",)},
        since=(7, 0),
    ),
    "tpm.path": Row("devices/tpm/backend/device/@path", k.PATH, valid_with=_TPM_HOST, required_with=_TPM_HOST),
    "sound.model": Presence(
        "devices/sound/@model",
        k.choice("ich6", "ich7", "ich9", "ac97", "usb", "virtio", "sb16", "es1370", "pcspk", "none"),
        element="devices/sound",
    ),
    "balloon.model": Row("devices/memballoon/@model", k.choice(*_BALLOON["balloon.model"], "none")),
    "balloon.autodeflate": Row("devices/memballoon/@autodeflate", k.ONOFF, valid_with=_BALLOON),
    "balloon.free_page_reporting": Row(
        "devices/memballoon/@freePageReporting", k.ONOFF, valid_with=_BALLOON, since=(6, 9)
    ),
    "balloon.stats_period_s": Period(
        "devices/memballoon/stats/@period", k.integer(0, 3600), same=silent_is(0), valid_with=_BALLOON
    ),
    "vsock.model": Presence("devices/vsock/@model", k.choice(*_VIRTIO, "none"), element="devices/vsock"),
    "vsock.auto": Row("devices/vsock/cid/@auto", k.YESNO, valid_with=_VSOCK),
    "vsock.cid": Row("devices/vsock/cid/@address", k.integer(3, 2**32 - 1), valid_with=_VSOCK),
    "panic.model": Presence(
        "devices/panic/@model", k.choice("isa", "pvpanic", "hyperv", "none"), element="devices/panic"
    ),
    "iommu.model": Presence(
        "devices/iommu/@model", k.choice("intel", "virtio", "smmuv3", "none"), element="devices/iommu"
    ),
    # devices by name; what a disk hangs on comes before it
    "controllers": fields_device.CONTROLLERS,
    "disks": fields_disk.DISKS,
    "interfaces": fields_interface.INTERFACES,
    **fields_device.PORTS,
    "channels": fields_device.CHANNELS,
    "inputs": fields_device.INPUTS,
    "hostdevs": fields_device.HOSTDEVS,
    "filesystems": fields_device.FILESYSTEMS,
    "tags": Many("metadata/corral:guest/corral:tag", k.NAME),
}


def spelt_out(root: Element) -> Element:
    """A copy with the values that libvirt implies, so that a missing one is not a difference."""
    root = copy.deepcopy(root)
    vcpu, memory = root.find("vcpu"), root.find("memory")
    if vcpu is not None and vcpu.get("current") is None and vcpu.text:
        vcpu.set("current", vcpu.text)
    if memory is not None and root.find("currentMemory") is None:
        current = child(root, "currentMemory")
        current.text = memory.text
        if memory.get("unit"):
            current.set("unit", memory.get("unit"))
    return root


def read_fields(xml: str) -> dict[str, t.Any]:
    """Every field of DOMAIN that the definition sets."""
    return row.read(spelt_out(parse(xml)), DOMAIN)


def sizes(xml: str) -> dict[str, t.Any]:
    """Current and maximum vCPUs and memory."""
    root = spelt_out(parse(xml))
    return row.read(root, _SIZES)


def is_protected(root: Element) -> bool:
    """True if another host may run the guest when its host is dead (`ha`)."""
    return DOMAIN["ha.mode"].read(root) is not None


def renamed(xml: str, name: str) -> str:
    """The definition under another name."""
    root = parse(xml)
    child(root, "name").text = name
    return text(root)


_SIZES = {
    field: DOMAIN[field] for field in ("vcpus.current", "vcpus.maximum", "memory.current_kib", "memory.maximum_kib")
}


_PLUGGED = ("controllers", "disks", "interfaces", "hostdevs")  # what a guest can get while it runs


def graft(xml: str, wanted: GuestSpec, remembered: t.Mapping[str, t.Any] | None = None) -> Grafted:
    """Write the options and the fields to record into libvirt's XML.

    Addresses, aliases, unknown elements and everything that the user did not set survive.
    """
    found = parse(xml)
    root = spelt_out(found)
    changes = _merged(root, wanted.xml, wanted.fields) if wanted.xml else []
    changes += row.graft(root, DOMAIN, _without_mode(root, _with_controller(root, wanted.fields)))
    if wanted.graphics is not None:
        changes += fields_graphics.graft(root, wanted.graphics)
    if any(change.where.startswith("serials[") for change in changes) and root.find("devices/serial") is None:
        # from which libvirt would make the port anew
        drop(root.xpath("devices/console[target/@type='serial']"))
    if any(re.match(r"(serials|consoles)\[", change.where) for change in changes):
        _mirror(root)
    _finish(root)
    row.graft(
        root, fields_record.RECORD, remembered or {}
    )  # the collection's own record, which no option sets: not a change
    if not changes and not remembered:
        root = found
    devices = _devices(changes, root, found)
    return Grafted(
        xml=text(root),
        changes=tuple(changes),
        devices=devices,
        metadata=fields_record.document(root),
        osinfo=fields_record.document(root, "libosinfo:libosinfo"),
    )


def _merged(root: Element, xml: str, fields: row.Values) -> list[Change]:
    """Merge `xml`; a new device that options describe too also gets what every new one has."""
    before = set(root.iterfind("devices/*"))
    changes = overlay.merge(root, xml, SHAPE)
    added = set(root.iterfind("devices/*")) - before
    for field, one in DOMAIN.items():
        if added and isinstance(one, Items) and one.path.startswith("devices/") and fields.get(field):
            one.complete(root, fields[field], added)
    return changes


def _without_mode(root: Element, fields: row.Values) -> row.Values:
    """The fields that also remove `numa.mode` with its nodes, unless the user sets it or numad chooses nodes."""
    placement = fields.get("numa.placement") or DOMAIN["numa.placement"].read(root)
    goes = fields.get("numa.nodeset") == "" and "numa.mode" not in fields and placement != "auto"
    return {**fields, "numa.mode": ""} if goes else fields


def as_defined(wanted: GuestSpec, definition: str) -> GuestSpec:
    """The guest's options, in which a device to plug starts from its definition, without its address."""
    root = parse(definition)
    return wanted.with_fields(
        **{option: _as_defined(root, option, items) for option in _PLUGGED if (items := wanted.fields.get(option))}
    )


def _as_defined(root: Element, option: str, items: t.Sequence[Item]) -> tuple[Item, ...]:
    devices = t.cast(Items, DOMAIN[option])
    index = devices.index(root)
    pairs = [(item, devices.entry(index, item)) for item in items]
    return tuple(
        item if found is None else dataclasses.replace(item, template=text(_unplaced(found, item)))
        for item, found in pairs
    )


def _unplaced(found: Element, item: Item) -> Element:
    """A copy without its bus address, which another device may have in the running guest."""
    element = copied(found)
    address = None if item.fields.get("guest_address") else element.find("address")
    if address is not None:
        element.remove(address)
    return element


def _devices(changes: t.Iterable[Change], root: Element, found: Element) -> dict[str, str]:
    """The changed devices, by place (`disks[system]`, `graphics`): as they are, or as they were if removed."""
    matches = [re.match(r"(\w+)\[[^\]]*\]|graphics", change.where) for change in changes]
    places = {match.group(): match.group(1) for match in matches if match}
    lists = set(places.values())
    was, now = _by_place(found, lists), _by_place(root, lists)
    return {place: text(now.get(place, was.get(place))) for place in places if place in now or place in was}


def _by_place(root: Element, lists: t.Collection[str | None]) -> dict[str, Element]:
    """The devices of some lists of options, by place; of two with one name the first."""
    display = fields_graphics.first(root)
    found = {} if display is None else {"graphics": display}
    for option in lists:
        row_of = DOMAIN.get(option or "")
        for name, one in row_of.names(root) if isinstance(row_of, Items) else ():
            found.setdefault(f"{option}[{name}]", one)
    return found


def _mirror(root: Element) -> None:
    """Add the console that mirrors the first serial port: libvirt would insert it first and not renumber the others."""
    console = root.find("devices/console")
    if (
        console is not None
        and root.find("devices/serial") is not None
        and console.find("target[@type='virtio']") is not None
    ):
        mirror = make(console.getparent(), "console", type="pty")
        make(mirror, "target", type="serial", port="0")
        console.addprevious(mirror)


def _with_controller(root: Element, fields: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """Add a virtio-scsi controller for a disk on bus scsi: libvirt's default is a model of 1996 that few systems
    support.
    """
    scsi = [
        item
        for item in fields.get("disks", ())
        if item.state == "present" and "scsi" in (item.fields.get("bus"), _bus_of(item))
    ]
    index = fields_disk.DISKS.index(root)
    there = [fields_disk.DISKS.entry(index, item) for item in scsi]
    scsi = [item for item, found in zip(scsi, there) if found is None or fields_disk.DISK["bus"].read(found) != "scsi"]
    named = any(item.name.startswith("scsi-") for item in fields.get("controllers", ()))
    if not scsi or named or any(one.get("type") == "scsi" for one in root.findall("devices/controller")):
        return fields
    return {**fields, "controllers": (*fields.get("controllers", ()), Item("scsi-0", fields={"model": "virtio-scsi"}))}


def _bus_of(item: Item) -> str:
    return "scsi" if item.fields.get("device") == "lun" and not item.fields.get("bus") else ""


_IMPLIED = (
    ("devices/rng", "model", "virtio"),
    ("devices/rng/backend", "model", "random"),
    ("devices/tpm/backend", "type", "emulator"),
    ("devices/memballoon", "model", "virtio"),
    ("devices/serial", "type", "pty"),
    ("features/hyperv/vendor_id", "state", "on"),
    ("features/hyperv/spinlocks[@state='on']", "retries", "8191"),
)


def _finish(root: Element) -> None:
    """Set what single rows leave open but libvirt needs, and remove what contradicts them."""
    for kind in ("rng", "tpm"):
        for found in root.findall(f"devices/{kind}"):
            child(found, "backend")
    for place, attribute, value in _IMPLIED:
        for found in root.findall(place):
            if found.get(attribute) is None:
                found.set(attribute, value)
    _one_console(root)
    drop(root.findall("devices/video/model[@type='ramfb']/../address"))  # it has no place on a bus
    if root.find("devices/*/boot") is not None:
        # An order by device leaves no room for one by kind, which libvirt writes (`hd`) when nobody says anything.
        drop(root.findall("os/boot"))


def _one_console(root: Element) -> None:
    """Make the first console mirror the first serial port, as libvirt does not."""
    serial, console = root.find("devices/serial"), root.find("devices/console")
    if serial is None:
        return
    fields_device.normalise_port(serial)
    target = None if console is None else console.find("target")
    if console is not None and (target is None or target.get("type") in (None, "serial")):
        console.set("type", serial.get("type"))
        for tag in ("source", "protocol", "log"):
            drop(console.findall(tag))
            console.extend(copied(part) for part in serial.findall(tag))


def managed_state(xml: str) -> tuple[str, ...]:
    """What libvirt stores beside the definition because of it: UEFI variables, TPM state."""
    root = parse(xml)
    nvram = root.find("os/nvram") is not None or root.find("os").get("firmware") == "efi"
    return (*(["nvram"] if nvram else []), *(["tpm"] if root.find("devices/tpm") is not None else []))
