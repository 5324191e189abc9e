# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What binds a guest to a host, and the form in which its definition is reserved on another."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.fields_remote import NVME, has_medium
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_sources import variables
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop, parse, text

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


def needs(xml: str) -> dict[str, t.Any]:
    """Memory, machine, CPU, bridges and host devices that a guest needs."""
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
    """The CPU of a running guest (None if no model is named), its machine, and its virtualization type."""
    root = parse(xml)
    found, kind = root.find("cpu"), root.find("os/type")
    has_model = found is not None and found.find("model") is not None
    return text(found) if has_model else None, kind.get("machine"), root.get("type")


def has_agent(xml: str) -> bool:
    """True if an agent in the running guest has connected to a channel."""
    return parse(xml).find("devices/channel/target[@state='connected']") is not None


def files(xml: str) -> list[str]:
    """Files that a guest writes beside its disks: its UEFI variables."""
    return variables(parse(xml))


_LOADER, _TEMPLATE = "os/loader", "os/nvram[@template]"


def firmware(xml: str) -> tuple[str, str, str, str]:
    """The guest's firmware and the template of its variables (empty if not named), architecture and machine type."""
    root = parse(xml)
    kind, template = root.find("os/type"), root.find(_TEMPLATE)
    paths = (root.findtext(_LOADER) or "").strip(), "" if template is None else template.get("template")
    return (*paths, kind.get("arch") or "", kind.get("machine") or "")


def with_firmware(xml: str, paths: t.Mapping[str, str]) -> str:
    """The definition with firmware and template under the paths of another host."""
    if not paths:
        return xml
    root = parse(xml)
    for loader in root.iterfind(_LOADER):
        loader.text = paths.get((loader.text or "").strip(), loader.text)
    for nvram in root.iterfind(_TEMPLATE):
        nvram.set("template", paths.get(nvram.get("template"), nvram.get("template")))
    return text(root)


_KINDS = {"dev": "block", "file": "file"}


def with_disks(xml: str, paths: t.Mapping[str, str]) -> str:
    """The definition with disks under the paths of another host."""
    if not paths:
        return xml
    root = parse(xml)
    for source, place in _paths(root):
        path = paths.get(source.get(place), source.get(place))
        attribute = "dev" if path.startswith("/dev/") else "file"
        if path != source.get(place) and attribute != place:  # it becomes a file, or a block device
            del source.attrib[place]
            source.getparent().set("type", _KINDS[attribute])
            source.set(attribute, path)
        else:
            source.set(place, path)
    return text(root)


def local_state(xml: str) -> list[str]:
    """Paths of other files that a guest writes, and that a copy of its disks does not include."""
    root = parse(xml)
    return [str(path) for place in LOCAL_STATE for path in root.xpath(place)]


def arriving_name(uuid: str) -> str:
    """The name of a guest on the destination until it is known that nobody there has its UUID or its name."""
    return f"arriving-{uuid}"


def reserved(xml: str, name: str) -> str:
    """The definition under this name, which nobody can start: its kernel and its disks are files that do not exist.

    Each is needed: a guest may have no disk that is a file, or one that it starts without (`startupPolicy`); and while
    its disks are copied, they are not the guest's yet.
    """
    root = parse(xml)
    child(root, "name").text = name
    for source, place in _paths(root):
        source.set(place, source.get(place) + _WAITING)
    kernel = child(root.find("os"), "kernel")
    kernel.text = (kernel.text or _NO_KERNEL) + _WAITING
    return text(root)


def is_reserved(xml: str) -> bool:
    """True if a definition is reserved."""
    return str(parse(xml).findtext("os/kernel")).endswith(_WAITING)


def released(xml: str, live: str = "") -> str:
    """The original of a reserved definition; for a running guest, with the disks that it has now: its owner may have
    merged or taken a snapshot since it arrived.
    """
    root = parse(xml)
    for source, place in _paths(root):
        source.set(place, source.get(place).removesuffix(_WAITING))
    kernel = root.find("os/kernel")
    if kernel is not None:
        kernel.text = (kernel.text or "").removesuffix(_WAITING)
        if kernel.text == _NO_KERNEL:
            root.find("os").remove(kernel)
    nvram = root.find("os/nvram")
    if nvram is not None and nvram.text:  # newer libvirts name it after the guest as soon as they know the guest
        arriving = f"/{arriving_name(root.findtext('uuid') or '')}_VARS"
        nvram.text = nvram.text.replace(arriving, f"/{root.findtext('name')}_VARS")
    if live:
        _follow(root, parse(live))
    return text(root)


def _follow(root: Element, live: Element) -> None:
    """Give disks the files that the running guest has at their targets."""
    now = {disk.find("target").get("dev"): disk for disk in live.iterfind("devices/disk")}
    for disk in root.iterfind("devices/disk"):
        twin = now.get(disk.find("target").get("dev"))
        if twin is None or twin.get("type") != disk.get("type") or twin.find("source") is None:
            continue
        source, other = disk.find("source"), twin.find("source")
        moved = [place for place in ("file", "dev") if source is not None and source.get(place) != other.get(place)]
        for place in moved:
            source.set(place, other.get(place) or "")
        if moved:
            child(disk, "driver").set("type", twin.find("driver").get("type"))
            drop(disk.findall("backingStore"))


def _paths(root: Element) -> t.Iterator[tuple[Element, str]]:
    """Sources of disks with a path of the host, and the attribute that holds it."""
    for source in root.iterfind("devices/disk/source"):
        for place in ("file", "dev"):
            if source.get(place):
                yield source, place
