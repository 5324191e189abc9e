# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of Salt (`virt.running`, `virt.defined`, `virt.init`, `salt:control`) as arguments of `virt_domain`. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._salt import salt_devices
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_devices import Cloud
from ansible_collections.corral.virt.plugins.plugin_utils._salt.salt_mapping import NOT_QEMU, SaltPart, present

Guest = dict[str, t.Any]

_XML = "no option covers it; see the option xml"
_SEED = "cloud-init seeds guests here (variables guests_seed, guests_authorized_keys), and no Salt minion is installed"
_CLOUD_INIT = "it may hold secrets, and is not written; set cloud_init of the guest (user_data, network_config)"
_LOGIN = "no login of libvirt is written; where libvirt has another URI, set the host's variable virt_uri"


def guest(part: SaltPart, name: str, cloud: Cloud) -> Guest:
    """The arguments of the guest; what they cannot express is reported."""
    found: Guest = {"name": name, **_processors(part), **present(memory=_memory(part))}
    found.update(_machine(part))
    found.update(_numa(part, found.pop("numa", {})))
    found.update(_disks_and_interfaces(part, cloud))
    disks = [*found.get("disks", ()), *cloud.disk_profiles.get(found.get("disk_profile", ""), ())]
    if any(disk.get("bus") == "ide" for disk in disks):
        found.setdefault("machine", "pc")  # libvirt's choice for Salt; q35, which is ours, has no IDE
    found.update(present(graphics=salt_devices.graphics(part, name), serials=salt_devices.serials(part)))
    found.update(present(hostdevs=salt_devices.hostdevs(part)))
    found.update(part.rows(truths="autostart stop_on_reboot"))
    if part.truth("live") is False:
        found["apply"] = "next_boot"
    if part.raw("seed") is False:
        found["cloud_init"] = None  # the role guests seeds it otherwise
    part.skip(_SEED, "install", "pub_key", "priv_key", "seed_cmd", "config", "saltenv")
    part.skip(_CLOUD_INIT, "cloud_init")
    if (uri := part.text("connection")) and not uri.startswith("qemu"):
        part.refuse("connection", NOT_QEMU)
    elif uri:
        part.note("connection", _LOGIN)
    part.skip(_LOGIN, "username", "password")
    return found


def _processors(part: SaltPart) -> Guest:
    if not part.is_mapping("cpu"):
        return present(vcpus=part.number("cpu"))
    cpu = part.part("cpu")
    if cpu is None:
        return {}
    vcpus = cpu.rows(texts="placement cpuset", numbers="current maximum iothreads")
    if topology := cpu.part("topology"):
        vcpus["topology"] = topology.rows(numbers="sockets dies cores threads")
        topology.left()
    if tuning := cpu.part("tuning"):
        vcpus.update(_tuning(tuning))
    cells = [_cell(number, inner) for number, inner in cpu.named("numa")]
    found = present(
        vcpus=vcpus["maximum"] if set(vcpus) == {"maximum"} else vcpus,
        cpu=_model(cpu),
        numa={"cells": cells} if cells else None,
    )
    cpu.skip("which of them runs is libvirt's choice; set vcpus.current", "vcpus")
    cpu.left(_XML)
    return found


def _tuning(tuning: SaltPart) -> Guest:
    found = present(shares=tuning.number("shares"), emulator_cpuset=tuning.text("emulatorpin"))
    for who in ("", "global_", "emulator_", "iothread_"):
        for what in ("period", "quota"):
            found.update(present(**{f"{who}{what}_us": tuning.number(who + what)}))
    for key, option, item in (("vcpupin", "pinning", "vcpu"), ("iothreadpin", "iothread_pinning", "iothread")):
        if pins := tuning.numbered(key):
            found[option] = [{item: number, "cpuset": str(cpus)} for number, cpus in pins]
    tuning.left(_XML)
    return found


def _model(cpu: SaltPart) -> Guest:
    found = cpu.rows(texts="mode match check vendor")
    described = cpu.part("model") if cpu.is_mapping("model") else None
    if described:
        found.update(present(model=described.text("name"), fallback=described.text("fallback")))
        described.left(_XML)
    else:
        found.update(present(model=cpu.text("model")))
    if "model" in found:
        found.setdefault("mode", "custom")
    if cache := cpu.part("cache"):
        found["cache"] = cache.rows(texts="mode", numbers="level")
        cache.left()
    if features := cpu.part("features"):
        names = features.untaken()
        found["features"] = [{"name": name, "policy": features.text(name)} for name in names]
    return found


def _cell(number: str, part: SaltPart) -> Guest:
    found = {"id": _id(number), **part.rows(texts="cpus", truths="discard")}
    found.update(present(memory=part.mebibytes("memory"), access=part.text("memAccess")))
    if distances := part.numbered("distances"):
        found["distances"] = [{"id": other, "value": value} for other, value in distances]
    part.left(_XML)
    return found


def _id(number: str) -> int | str:
    """A key of Salt's as a number; other text stays, and is refused with the guest."""
    return int(number) if number.isdigit() else number


def _memory(part: SaltPart) -> t.Any:
    if not part.is_mapping("mem"):
        return part.mebibytes("mem")
    mem = part.part("mem")
    if mem is None:
        return None
    found = present(maximum=mem.mebibytes("boot"), hotplug_maximum=mem.mebibytes("max"))
    for key in ("current", "hard_limit", "soft_limit", "swap_hard_limit"):
        found.update(present(**{key: mem.mebibytes(key)}))
    if "current" in found:
        found.setdefault("maximum", found["current"])
    found.update(mem.rows(texts="source access allocation", numbers="slots", truths="nosharepages locked discard"))
    for number, page in enumerate(mem.parts("hugepages") or ()):
        if not number:
            found.update(present(hugepages=True, hugepage_size=page.mebibytes("size")))
        page.left("all memory has pages of one size here")
    mem.left(_XML)
    return found


def _machine(part: SaltPart) -> Guest:
    found: Guest = part.rows(texts="machine")
    for key in ("vm_type", "hypervisor"):
        if (kind := part.text(key)) in ("kvm", "qemu"):
            found["virt_type"] = kind
        elif kind is not None:
            part.refuse(key, f"{kind}: only kvm and qemu are supported")
    for key, same in (("os_type", "hvm"), ("arch", "x86_64")):
        if (value := part.text(key)) not in (None, same):
            part.refuse(key, f"{value}: no option sets it, and {same} is the default")
    if boot := part.part("boot"):
        found.update(_boot(boot))
    if loader := part.part("loader"):
        found.update(present(loader=loader.rows("path type", truths="readonly secure")))
        loader.left()
    if rng := part.part("rng"):
        found.update(present(rng=_rng(rng)))
    if order := part.texts("boot_dev"):
        found["boot"] = {**found.get("boot", {}), "order": order}
    if features := part.part("hypervisor_features"):
        found.update(present(features=present(kvm_hint_dedicated=features.truth("kvm-hint-dedicated"))))
        features.left()
    if clock := part.part("clock"):
        found.update(present(clock=_clock(clock)))
    return found


def _rng(rng: SaltPart) -> Guest:
    """The random number generator of salt:control, which calls the kind of backend the model."""
    found: Guest = {"model": "virtio", "backend": rng.text("model") or "random"}
    source = rng.text("backend") or "/dev/urandom"
    found.update(present(source=source if found["backend"] == "random" else None))
    if rate := rng.part("rate"):
        found.update(present(rate_bytes=rate.number("bytes"), rate_period_ms=rate.number("period")))
        rate.left()
    rng.left()
    return found


def _boot(boot: SaltPart) -> Guest:
    found: Guest = {"firmware": "efi"} if boot.truth("efi") else {}
    if loader := boot.text("loader"):
        found["loader"] = {"path": loader, "type": "pflash", "readonly": True}
    if template := boot.text("nvram"):
        found["nvram"] = {"template": template}
    direct = boot.rows(texts="kernel initrd cmdline")
    for key in [key for key in ("kernel", "initrd") if "://" in direct.get(key, "")]:
        boot.refuse(key, "it is not downloaded; put it on the hypervisor, and name its path")
        del direct[key]
    if "kernel" in direct:
        found["boot"] = direct
    elif direct:
        boot.note(" and ".join(direct), "left out, because there is no kernel on the hypervisor")
    boot.left()
    return found


def _clock(clock: SaltPart) -> Guest:
    found: Guest = {"offset": "localtime"} if clock.truth("utc") is False else {}
    if zone := clock.text("timezone"):
        found.update(offset="timezone", timezone=zone)
    timers = []
    for name, timer in clock.named("timers"):
        timers.append({"name": name, **timer.rows("track tickpolicy mode", "frequency", "present")})
        timer.left(_XML)
    clock.left(_XML)
    return {**found, "timers": timers} if timers else found


def _numa(part: SaltPart, found: Guest) -> Guest:
    """NUMA: where the memory comes from, beside the cells of the guest."""
    if numatune := part.part("numatune"):
        if memory := numatune.part("memory"):
            found.update(memory.rows(texts="mode nodeset"))
            memory.left()
        nodes = [(number, node, node.rows(texts="mode nodeset")) for number, node in numatune.named("memnodes")]
        for _number, node, _told in nodes:
            node.left()
        found.update(
            present(nodes=[{"cell": _id(number), **node_values} for number, _node, node_values in nodes] or None)
        )
        numatune.left()
    return present(numa=found)


def _disks_and_interfaces(part: SaltPart, cloud: Cloud) -> Guest:
    """Profiles, and devices beside them; a guest that names no profile has none."""
    disk_profile, known = _profile(part, ("disk_profile", "disk"), cloud.disk_profiles, _disk(part, cloud))
    nic_profile, cards = _profile(part, ("nic_profile", "nic"), cloud.nic_profiles, {"name": "eth0", "bridge": "br0"})
    disks = [found for one in part.parts("disks") or () if (found := salt_devices.disk(one, cloud, known))]
    nics = [found for one in part.parts("interfaces") or () if (found := salt_devices.interface(one, cards))]
    if any(set(salt_devices.PLUGS) & set(one) for one in nics if one["name"] in salt_devices.names_of(cards)):
        nic_profile = None  # an interface of the profile is plugged in elsewhere
    disks = disks if disk_profile else _by_name(known, disks)
    nics = nics if nic_profile else _by_name(cards, nics)
    if (directory := part.text("img_dest")) is not None:
        disks = _in_directory(part, directory, cloud, known, disks)
    _from_one_image(part, cloud, known, disks)
    return {
        **present(disk_profile=disk_profile, nic_profile=nic_profile),
        **({"disks": disks} if disks or not disk_profile else {}),
        **({"interfaces": nics} if nics or not nic_profile else {}),
    }


def _disk(part: SaltPart, cloud: Cloud) -> Guest:
    """The disk of Salt's own default profile."""
    where = salt_devices.pool(SaltPart([], part.file, part.path, {}), cloud)
    return {"name": "system", "size": "8GiB", **present(pool=where)}


def _profile(
    part: SaltPart, keys: t.Sequence[str], profiles: t.Mapping[str, list[Guest]], default: Guest
) -> tuple[str | None, list[Guest]]:
    """The profile that a guest names, and its devices; for an unknown profile, Salt's default device."""
    found: tuple[str | None, list[Guest]] = (None, [])
    for key in keys:
        name = part.text(key)
        if name in profiles:
            found = name, profiles[name or ""]
        elif name is not None:
            found = None, [default]
            if name != "default":
                part.note(key, f"there is no profile {name}; Salt takes its default then, and so does this")
    return found


def _by_name(below: t.Sequence[Guest], devices: list[Guest]) -> list[Guest]:
    """The profile's devices, overridden by the guest's own of the same names."""
    own = {one["name"]: one for one in devices}
    found = []
    for one in below:
        over = own.pop(one["name"], {})
        gone = salt_devices.PLUGS if set(salt_devices.PLUGS) & set(over) else ()
        found.append({**{key: value for key, value in one.items() if key not in gone}, **over})
    return found + list(own.values())


def _in_directory(
    part: SaltPart, directory: str, cloud: Cloud, known: t.Sequence[Guest], disks: list[Guest]
) -> list[Guest]:
    """All disks, moved to the pool of another directory, with their images."""
    where = salt_devices.pool_of(part, "img_dest", directory, cloud)
    if where is None:
        return disks
    own = {one["name"]: one for one in disks}
    found = []
    for one in [*known, *(one for one in disks if one["name"] not in salt_devices.names_of(known))]:
        disk = {**own.get(one["name"], {"name": one["name"]}), "pool": where}
        if image := own.get(one["name"], one).get("image"):
            cloud.bring(image, where)
        found.append({**one, **disk} if one["name"] in own else disk)
    return found


def _from_one_image(part: SaltPart, cloud: Cloud, known: t.Sequence[Guest], disks: list[Guest]) -> None:
    """Apply `image` beside the disks to the first disk, unless that has an image of its own."""
    image, overlay = part.text("image"), bool(part.truth("enable_qcow"))
    if not image:
        if overlay:
            part.note("enable_qcow", "only a disk that is created from an image is an overlay")
        return
    names = salt_devices.names_of([*known, *disks]) or ["system"]
    first = next((one for one in known if one["name"] == names[0]), {})
    disk = next((one for one in disks if one["name"] == names[0]), None)
    if first.get("image") or (disk or {}).get("image"):
        part.note("image", f"the disk {names[0]} has an image of its own, which Salt takes")
        return
    if disk is None:
        where = first.get("pool") if first else salt_devices.pool(part, cloud)
        disks.insert(0, disk := {"name": names[0], **present(pool=where)})
    salt_devices.from_image(part, image, cloud, disk, overlay=overlay)
