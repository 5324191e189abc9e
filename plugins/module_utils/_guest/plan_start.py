# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse a start, or a device for a running guest, that libvirt would refuse on each run. Pure."""

from __future__ import annotations

import dataclasses
import functools
import operator
import shlex
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_prerequisites import (
    UNFINISHED_SUFFIX,
    Missing,
    Prerequisites,
    Uplink,
)
from ansible_collections.corral.virt.plugins.module_utils._power import plan_power_steps


def combined(each: t.Iterable[Prerequisites], *, made: t.Collection[str] = ()) -> Prerequisites:
    """All prerequisites together, without files that are made before."""
    every = functools.reduce(operator.or_, each, Prerequisites())
    images = frozenset(image for image in every.images if image.place not in made)
    return dataclasses.replace(every, files=every.files.difference(made), images=images)


def added_files(needed: Prerequisites, before: Prerequisites) -> Prerequisites:
    """The files and volumes that are needed now and were not before."""
    files, volumes = needed.files - before.files, needed.volumes - before.volumes
    images = frozenset(image for image in needed.images if image.place in files | volumes)
    return dataclasses.replace(
        Prerequisites(files=files, volumes=volumes, images=images),
        media=needed.media & (files | volumes),
        special=needed.special & files,
        loaders=needed.loaders & files,
    )


def without(needed: Prerequisites, paths: t.Collection[str]) -> Prerequisites:
    """The prerequisites without files that are found elsewhere."""
    templates = {path: variables for path, variables in needed.templates.items() if path not in paths}
    return dataclasses.replace(needed, files=needed.files.difference(paths), templates=templates)


def of_update(needed: Prerequisites, fields: str) -> Prerequisites:
    """What an update of a running guest's device needs: nothing of its network, unless its connection changes."""
    if not all(field.startswith(_IN_PLACE) for field in fields.split(", ")):
        return needed
    nothing = frozenset[str]()
    return dataclasses.replace(needed, links=nothing, lower=nothing, switches=nothing, plugged=nothing)


_IN_PLACE = ("link", "filterref.", "bandwidth")


def check_steps(
    guest: str, made: t.Iterable[plan_power_steps.GuestStep], ask: t.Callable[[], tuple[Prerequisites, Missing]]
) -> None:
    """Check a start among the steps as `check` does; the host is asked only if there is one."""
    if any(isinstance(step, plan_power_steps.Start) for step in made):
        check("start", guest, *ask())


def check(verb: str, guest: str, needed: Prerequisites, missing: Missing) -> None:
    """Raise NotFound with all that the host lacks and the remedies; Refused for a start on a host in maintenance."""
    if verb == "start" and missing.maintenance is not None:
        raise Refused(
            f"cannot start {guest}: this host is in maintenance ({missing.maintenance}) and takes no guests; end that "
            "with playbook undrain, or migrate the guest to another host"
        )
    if verb != "start":  # the medium is not in the drive yet
        needed = dataclasses.replace(needed, media=frozenset[str]())
    found = problems(needed, missing)
    if found:
        reasons, remedies = (dict.fromkeys(texts) for texts in zip(*found))
        image = " from its managed save image" if needed.restored else ""
        told = [*remedies, *([_of_saved(guest)] if needed.restored else [])]
        raise NotFound(f"cannot {verb} {guest}{image}: {', and '.join(reasons)}; {'; '.join(told)}")


HERE = "this host"


def problems(needed: Prerequisites, missing: Missing, host: str = HERE) -> list[tuple[str, str]]:
    """Each prerequisite that a host lacks (the reason), with its remedy."""
    if missing == Missing():
        return []
    parts = (
        _networks,
        _uplinks,
        _links,
        _filters,
        _files,
        _directories,
        _helpers,
        _named,
        _volumes,
        _secrets,
        _devices,
    )
    return [each for part in parts for each in part(needed, missing, host)]


def _on(host: str) -> str:
    """ " on HOST"; empty for the host that the task runs on."""
    return "" if host == HERE else f" on {host}"


def _of_saved(guest: str) -> str:
    """The remedy for a start from a managed save image, which ignores the guest's definition."""
    edit, discard = (shlex.join(["virsh", verb, guest]) for verb in ("managedsave-edit", "managedsave-remove"))
    return f"`{edit}` changes what the image needs, `{discard}` discards it and what the guest was doing"


def autostart_notes(guest: str, missing: Missing) -> tuple[str, ...]:
    """Notes on networks that keep a guest from starting with the host: libvirt does not start them for it."""
    return tuple(
        f"{guest} starts with the host, and network {name}, which it needs, does not; {_lasting(name, missing)}"
        for name in sorted(missing.no_autostart)
    )


def _lasting(name: str, missing: Missing) -> str:
    """How to make a network start with the host; libvirt has no autostart for a transient one."""
    asked = "set autostart: true with virt_network"
    if name not in missing.transient:
        return f"{asked} (or `{shlex.join(['virsh', 'net-autostart', name])}`)"
    document = shlex.quote(f"{name}.xml")
    dump = f"{shlex.join(['virsh', 'net-dumpxml', name])} > {document}"
    then = f"virsh net-define {document}`, and `{shlex.join(['virsh', 'net-autostart', name])}"
    return f"it is transient: define it with virt_network and autostart: true (or `{dump}`, `{then}`)"


def next_start_notes(guest: str, needed: Prerequisites, missing: Missing) -> tuple[str, ...]:
    """Notes on what the next start of a guest needs and is missing; not refused, as it may appear until then."""
    return tuple(
        f"the next start of {guest} fails while {reason}; {remedy}" for reason, remedy in problems(needed, missing)
    )


Problems = t.Iterator["tuple[str, str]"]  # reason and remedy


def _networks(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name, there in sorted(missing.networks.items()):
        if there:
            start = shlex.join(["virsh", "net-start", name])
            reason = f"network {name} is not active{_on(host)}"
            yield reason, f"start it with virt_network (state: active) or `{start}`"
        else:
            yield f"{host} has no network {name}", "create the network with virt_network, or choose another"


def _uplinks(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    """Missing bridges and interfaces that active networks need."""
    for name, uplink in sorted(missing.uplinks.items()):
        if uplink.bridge in missing.links:
            yield f"network {name} has no bridge {uplink.bridge} on {host}", _bridge_remedy(name, uplink)
        elif uplink.interfaces and missing.links.issuperset(uplink.interfaces):
            remedy = f"connect or create one, or name one that exists in interfaces of network {name} with virt_network"
            yield f"network {name} has no network device {' or '.join(uplink.interfaces)} on {host}", remedy


def _bridge_remedy(name: str, uplink: Uplink) -> str:
    if uplink.is_own:
        kept, stop, start = (shlex.join(["virsh", verb, name]) for verb in ("net-dumpxml", "net-destroy", "net-start"))
        return (
            f"restart the network with virt_network (state: inactive, then active), or with `{stop}` and `{start}` (of "
            f"a transient one, keep the output of `{kept}` before)"
        )
    return f"create the bridge with role corral.virt.bridge, or name another in network {name} with virt_network"


def _links(needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name in sorted(missing.links & (needed.links | needed.switches)):
        makes = "create the bridge with role corral.virt.bridge"
        if name in needed.switches:
            makes = f"create the bridge of Open vSwitch (`{shlex.join(['ovs-vsctl', 'add-br', name])}`)"
        elif name in needed.lower:
            makes = "connect or create it (`ip -brief link` lists what there is)"
        yield f"{host} has no network device {name}", f"{makes}, or choose another for the interface"


def _filters(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name in sorted(missing.filters):
        remedy = "define it (`virsh nwfilter-define`), or choose another (`virsh nwfilter-list`) for the interface"
        yield f"{host} has no network filter {name}", remedy


def _files(needed: Prerequisites, missing: Missing, host: str) -> Problems:
    made = {template for template, variables in needed.templates.items() if variables not in missing.paths}
    for path in sorted(missing.paths & (needed.files | (needed.templates.keys() - made))):
        if path.endswith(UNFINISHED_SUFFIX):
            remedy = "list its disks again with virt_domain to finish creating them, or remove the guest"
            yield f"an interrupted run left {path[: -len(UNFINISHED_SUFFIX)]} incomplete", remedy
        else:
            yield f"{path} does not exist{_on(host)}", _file_remedy(path, needed, host)


def _file_remedy(path: str, needed: Prerequisites, host: str) -> str:
    if path in needed.loaders or path in needed.templates:
        return "install the package that has this firmware, or copy the file from a host that has it"
    if path in needed.contents and host != HERE:
        return "create the directory and copy what it holds, or mount it from storage that both hosts have"
    if path in needed.media:
        return f"put it there, or {_EJECT}"
    return "put it there, or take it out of the guest's definition"


_EJECT = "take it out of the drive with playbook eject"


def _directories(needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for path in sorted(missing.paths & needed.directories):
        remedy = f"create it (`{shlex.join(['mkdir', '-p', path])}`), or choose another in the guest's definition"
        yield f"directory {path}, for logs or sockets of the guest, does not exist{_on(host)}", remedy


def _helpers(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name in sorted(missing.helpers):
        yield f"{host} has no {name}", f"install package {name}"
    for offer in sorted(missing.offers):
        if offer.what == "swtpm":
            remedy = "install packages swtpm and swtpm-tools on it, or remove the TPM (tpm.model: none)"
            yield f"{host} has no swtpm, which emulates a TPM", remedy
        else:
            reason = f"{host} has no {offer.what} firmware for machine type {offer.machine}"
            yield reason, "install it (Debian: ovmf, qemu-efi-aarch64; Enterprise Linux: edk2-ovmf, edk2-aarch64)"


def _secrets(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name in sorted(missing.secrets):
        remedy = "define it and set its value (`virsh secret-define`, `virsh secret-set-value`)"
        yield f"libvirt{_on(host)} has no secret {name}", remedy


def _volumes(needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for (pool, name), reason in sorted(missing.volumes.items()):
        remedy = (
            f"create the volume, or start or refresh its pool (`{shlex.join(['virsh', 'pool-start', pool])}`, "
            f"`{shlex.join(['virsh', 'pool-refresh', pool])}`)"
        )
        remedy += f", or {_EJECT}" if (pool, name) in needed.media else ""
        yield f"volume {name} of pool {pool} is not found{_on(host)} ({reason})", remedy


def _named(_needed: Prerequisites, missing: Missing, _host: str) -> Problems:
    for path, (image, is_data) in sorted(missing.named.items()):
        if is_data:  # qemu-img names another only of an image that opens
            yield f"data file {path} of image {image} does not exist", "put it there, or restore both from a backup"
        else:
            rebase = shlex.join(["qemu-img", "rebase", "-u", "-F", "FORMAT", "-b", "PATH", image])
            reason = f"backing file {path} of image {image} does not exist"
            yield reason, f"put it there, or name its new place with `{rebase}`"


_LISTED = {"pci": "pci", "usb": "usb_device", "mdev": "mdev"}


def _devices(_needed: Prerequisites, missing: Missing, host: str) -> Problems:
    for name in sorted(missing.devices):
        there = f"`virsh nodedev-list --cap {_LISTED[name.partition(' ')[0]]}` lists what there is"
        yield f"{host} has no device {name}", f"plug in, enable or create it ({there}), or take it from the guest"
