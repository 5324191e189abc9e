# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What ties a guest to a host, and the form in which its definition waits on another."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._xml.remote import NVME, has_medium
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, parse, text

__all__ = [
    "LOCAL_STATE",
    "cpu",
    "files",
    "has_agent",
    "is_reserved",
    "local_state",
    "needs",
    "released",
    "reserved",
]

# What QEMU writes beside disks, where its definition says so: the state of a TPM, the content of an NVDIMM, firmware
# with its variables, crash logs.
LOCAL_STATE = (
    "devices/tpm/backend[@type='emulator']/source/@path",
    "devices/pstore/path/text()",
    "os/varstore/@path",
    "devices/memory[(@model='nvdimm' or @model='virtio-pmem') and not(target/readonly)]/source/path/text()",
    "os/loader[@type='pflash' and not(@readonly='yes')]/text()",
)
_NVME = NVME["nvme.address"]
_WAITING = ".arriving"
_NO_KERNEL = "/"
_NVRAM = "/var/lib/libvirt/qemu/nvram"


def needs(xml: str) -> dict[str, t.Any]:
    """Memory, machine, processor, bridges, networks and host devices of a guest."""
    root = parse(xml)
    cpu_element = root.find("cpu")
    nics = root.findall("devices/interface")
    sources = [(nic.get("type"), nic.find("source")) for nic in nics if nic.find("source") is not None]
    return {
        "memory_mib": int(root.findtext("currentMemory") or root.findtext("memory")) // 1024,
        "machine": root.find("os/type").get("machine") or "",
        "virt_type": root.get("type"),
        "cpu_mode": "" if cpu_element is None else cpu_element.get("mode") or "custom",
        "bridges": tuple(sorted({source.get("bridge") for kind, source in sources if kind == "bridge"} - {None})),
        "links": tuple(sorted({source.get("dev") for kind, source in sources if kind == "direct"} - {None})),
        "networks": tuple(sorted({source.get("network") for kind, source in sources if kind == "network"})),
        "devices": tuple(_devices(root)),
    }


def _devices(root: Element) -> t.Iterator[str]:
    for device in root.findall("devices/hostdev"):
        yield f"a {device.get('type')} device"
    for nic in root.findall("devices/interface[@type='hostdev']"):
        yield f"the network device of {nic.find('mac').get('address')}"
    for shared in root.findall("devices/filesystem"):
        yield f"directory {shared.find('source').get('dir') or '?'}"
    for _memory in root.findall("devices/shmem"):
        yield "shared memory"
    for source in root.findall("devices/disk[@type='dir']/source"):
        yield f"directory {source.get('dir')}"
    for disk in root.findall("devices/disk[@type='nvme']"):
        address = _NVME.read(disk)
        yield f"the NVMe device {address}" if address else "an NVMe device"
    for disk in root.findall("devices/disk[@device='floppy']"):
        if has_medium(disk):
            yield "a floppy"


def cpu(xml: str) -> tuple[str | None, str | None, str]:
    """The processor a running guest was given (None where nobody named one), its machine, and the kind of its
    hypervisor.
    """
    root = parse(xml)
    found, kind = root.find("cpu"), root.find("os/type")
    has_model = found is not None and found.find("model") is not None
    return text(found) if has_model else None, kind.get("machine"), root.get("type")


def has_agent(xml: str) -> bool:
    """Whether something in a running guest listens on a channel to its host."""
    return parse(xml).find("devices/channel/target[@state='connected']") is not None


def files(xml: str) -> list[str]:
    """What a guest writes beside its disks: its UEFI variables, which libvirt keeps in a place of its own when
    nobody names one.
    """
    root = parse(xml)
    nvram, source = root.findtext("os/nvram"), root.find("os/nvram/source")
    if source is not None:
        nvram = source.get("file")
    elif not nvram and root.find("os").get("firmware") == "efi":
        nvram = f"{_NVRAM}/{root.findtext('name')}_VARS.fd"
    return [nvram] if nvram else []


def local_state(xml: str) -> list[str]:
    """Paths of what else a guest writes, and that a copy of its disks does not hold."""
    root = parse(xml)
    return [str(path) for place in LOCAL_STATE for path in root.xpath(place)]


def reserved(xml: str) -> str:
    """The definition so that nobody can start it: its kernel and its disks are files that do not exist.

    Each is needed: a guest may have no disk that is a file, or one that it starts without (`startupPolicy`); and while
    its disks are copied, they are not the guest's yet.
    """
    root = parse(xml)
    for source, place in _paths(root):
        source.set(place, source.get(place) + _WAITING)
    kernel = child(root.find("os"), "kernel")
    kernel.text = (kernel.text or _NO_KERNEL) + _WAITING
    return text(root)


def is_reserved(xml: str) -> bool:
    """Whether a definition waits so."""
    return str(parse(xml).findtext("os/kernel")).endswith(_WAITING)


def released(xml: str) -> str:
    """The definition as it was."""
    root = parse(xml)
    for source, place in _paths(root):
        source.set(place, source.get(place).removesuffix(_WAITING))
    kernel = root.find("os/kernel")
    if kernel is not None:
        kernel.text = (kernel.text or "").removesuffix(_WAITING)
        if kernel.text == _NO_KERNEL:
            root.find("os").remove(kernel)
    return text(root)


def _paths(root: Element) -> t.Iterator[tuple[Element, str]]:
    """Sources of disks that are a path of the host, and the attribute in which it stands."""
    for source in root.iterfind("devices/disk/source"):
        for place in ("file", "dev"):
            if source.get(place):
                yield source, place
