# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read libvirt's XML of a host: capabilities, pools, volumes, networks."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, copied, drop, make, parse, text


def host(xml: str) -> dict[str, t.Any]:
    """UUID, arch, CPU model and vendor, security drivers, and domain types and machines of each guest arch."""
    root = parse(xml)
    model = root.find("host/cpu/model")
    return {
        "uuid": root.findtext("host/uuid"),
        "cpu_xml": _host_cpu(root),
        "arch": root.findtext("host/cpu/arch"),
        "cpu_model": None if model is None else model.text,
        "cpu_vendor": root.findtext("host/cpu/vendor"),
        "security_drivers": [model.text for model in root.findall("host/secmodel/model") if model.text != "none"],
        "virt_types": {
            arch.get("name"): [domain.get("type") for domain in arch.findall("domain")]
            for arch in root.findall("guest/arch")
        },
        "emulators": sorted({emulator.text for emulator in root.findall("guest/arch//emulator")}),
        "machines": {
            arch.get("name"): sorted({machine.text for machine in arch.iter("machine")})
            for arch in root.findall("guest/arch")
        },
    }


def _host_cpu(root: Element) -> str:
    """The host's CPU without what differs between two of a kind: its clock frequency."""
    cpu = root.find("host/cpu")
    if cpu is None:
        return ""
    plain = copied(cpu)
    drop(plain.findall("counter"))
    return text(plain)


def domain_capabilities(xml: str) -> dict[str, t.Any]:
    """What one virtualization type and machine offer: CPU modes, firmware, TPM, maximum vCPUs."""
    root = parse(xml)
    limit = root.find("vcpu")
    return {
        "machine": root.findtext("machine"),
        "vcpus_maximum": int(limit.get("max")) if limit is not None and limit.get("max") else None,
        "cpu_modes": [mode.get("name") for mode in root.findall("cpu/mode") if mode.get("supported") == "yes"],
        "cpu_models": [
            model.text for model in root.findall("cpu/mode[@name='custom']/model") if model.get("usable") != "no"
        ],
        "firmware": [value.text for value in root.findall("os/enum[@name='firmware']/value")],
        "tpm": root.find("devices/tpm[@supported='yes']") is not None,
        "platform": sorted(_platform(root)),
        "host_model_xml": _host_model(root),
    }


def _platform(root: Element) -> t.Iterator[str]:
    """What guests can request: efi, secure_boot, tpm. What libvirt does not report counts as available.

    libvirt reports firmware with secure boot by its need of SMM, which only x86 machines have.
    """
    firmware, secure = root.find("os/enum[@name='firmware']"), root.find("os/loader/enum[@name='secure']")
    backends = root.find("devices/tpm/enum[@name='backendModel']")
    has_efi = firmware is None or "efi" in [value.text for value in firmware]
    if has_efi:
        yield "efi"
        if root.findtext("arch") != "x86_64" or secure is None or "yes" in [value.text for value in secure]:
            yield "secure_boot"
    if backends is None or "emulator" in [value.text for value in backends]:
        yield "tpm"


def _host_model(root: Element) -> str | None:
    """The host's CPU as guests can have it, in the form that libvirt compares; None if there is none."""
    found = root.find("cpu/mode[@name='host-model'][@supported='yes']")
    if found is None or found.find("model") is None:
        return None
    cpu = parse("<cpu/>")
    cpu.extend(copied(part) for part in found if part.tag in ("model", "vendor", "feature"))
    return text(cpu)


def cpu_model(xml: str) -> dict[str, t.Any]:
    """A CPU as the suboptions of option `cpu`."""
    root = parse(xml)
    features = [{"name": one.get("name"), "policy": one.get("policy") or "require"} for one in root.findall("feature")]
    return {
        "mode": "custom",
        "match": root.get("match") or "exact",
        "model": root.findtext("model"),
        **({"features": features} if features else {}),
    }


def pool(xml: str) -> dict[str, t.Any]:
    """Type and target path of a storage pool."""
    root = parse(xml)
    return {"type": root.get("type"), "path": root.findtext("target/path")}


def volume_group(xml: str) -> str | None:
    """The volume group of a storage pool of type logical."""
    found: str | None = parse(xml).findtext("source/name")
    return found


def volume(xml: str) -> dict[str, t.Any]:
    """Path, format, sizes, times and backing file of a volume."""
    root = parse(xml)
    form = root.find("target/format")
    backing_format = root.find("backingStore/format")
    return {
        "path": root.findtext("target/path"),
        "key": root.findtext("key") or "",
        "format": "raw" if form is None else form.get("type"),
        "capacity_bytes": int(root.findtext("capacity") or 0),
        "allocation_bytes": int(root.findtext("allocation") or 0),
        "physical_bytes": int(root.findtext("physical") or root.findtext("capacity") or 0),  # length of the file
        "modified_s": float(root.findtext("target/timestamps/mtime") or 0),
        "changed": root.findtext("target/timestamps/ctime") or "",
        "changed_ns": _nanoseconds(root.findtext("target/timestamps/ctime") or "0"),
        "backing_path": root.findtext("backingStore/path"),
        "backing_format": None if backing_format is None else backing_format.get("type"),
    }


def _nanoseconds(text: str) -> int:
    seconds, _point, fraction = text.partition(".")
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def network(xml: str) -> dict[str, t.Any]:
    """Forward mode and bridge of a virtual network."""
    root = parse(xml)
    forward, bridge = root.find("forward"), root.find("bridge")
    return {
        "forward": "isolated" if forward is None else forward.get("mode") or "nat",
        "bridge": None if bridge is None else bridge.get("name"),
    }


def new_raw(name: str, size_bytes: int) -> str:
    """The XML of a small raw volume, for what the collection notes beside others."""
    return new_volume(Volume("", name, "", size_bytes, "raw"))


def new_volume(wanted: Volume) -> str:
    """The XML of a new volume, with its backing file if it has one; thin unless it tells what is allocated."""
    root = parse("<volume/>")
    make(root, "name").text = wanted.name
    make(root, "capacity", unit="bytes").text = str(wanted.capacity_bytes)
    make(root, "allocation", unit="bytes").text = str(wanted.allocation_bytes or 0)
    target = make(root, "target")
    make(target, "format", type=wanted.format)
    if wanted.format == "qcow2":
        make(target, "compat").text = "1.1"  # libvirt's own default is the format of 2010
    if wanted.backing_path:
        backing = make(root, "backingStore")
        make(backing, "path").text = wanted.backing_path
        make(backing, "format", type=wanted.backing_format or "qcow2")
    return text(root)


def device(path: str, nodes: t.Iterable[str], volume: str | None, pool: str | None) -> dict[str, t.Any] | None:
    """Size and names of the block device at this path, from the documents of the host's devices, of its volume and of
    that one's pool; None if none of them knows it. A volume that lies on one disk has the names of that, too.
    """
    known = [_node(root) for root in map(parse, nodes)]
    found = next((dict(one) for one in known if path in one["links"]), {})
    if volume and pool:
        root = parse(volume)
        below = {each.get("path") for each in root.iterfind("source/device")}
        names = [one["links"] for one in known if len(below) == 1 and below & {*one["links"]}]
        found = {
            "size_bytes": int(root.findtext("capacity") or 0),
            "links": (path, *sum(names, ())),
            **found,
            "pool_type": parse(pool).get("type"),
            "key": root.findtext("key") or "",
        }
    return found or None


def _node(root: Element) -> dict[str, t.Any]:
    """Size and names of one device of the host."""
    names = {one.text or "" for one in root.iterfind("devnode")} | {root.findtext("capability/block") or ""}
    return {"size_bytes": int(root.findtext("capability/size") or 0), "links": tuple(sorted(names - {""}))}


def pool_source(xml: str) -> dict[str, t.Any]:
    """Type of a pool, its servers, and its Ceph pool, Gluster volume with its directory, or target."""
    root = parse(xml)
    name = root.findtext("source/name") or ""
    paths = [one.get("path") or "" for place in ("source/device", "source/dir") for one in root.iterfind(place)]
    return {
        "type": root.get("type"),
        "servers": tuple(host.get("name") or "" for host in root.iterfind("source/host")),
        "name": " ".join(filter(None, [name, *paths])),
    }
