# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest's requirements of its host, from its options. Pure."""

from __future__ import annotations

import collections
import functools
import operator
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import BRIDGE, POOL
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_host_devices
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import is_trusted_windows
from ansible_collections.corral.virt.plugins.module_utils._placement import model_placement

OWN = ("host", "apart", "together", "prefer", "host_groups", "requires")  # of a guest, for its placement alone
PROGRAMS = ("kernel", "libvirt", "qemu")  # whose versions a guest may require
_DISK = "8GiB"  # of a guest whose disks are not given


# Values that are newer than their options, and the first libvirt that does not refuse them.
RECENT_VALUES: tuple[tuple[str, str, tuple[int, int]], ...] = (
    ("watchdog.model", "itco", (9, 1)),
    ("panic.model", "pvpanic", (9, 1)),
    ("sound.model", "virtio", (10, 4)),
    ("disks[].io", "io_uring", (6, 3)),
)
_Counts = t.Callable[[t.Any], bool]  # of a value of an option
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")


def _images(item: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, object]]:
    """The images that the guest is created from, each with the option's name."""
    disks = item.get("disks")
    for what, of in [
        ("image", item),
        *((f"disk {disk.get('name')}", disk) for disk in disks or () if isinstance(disk, dict)),
    ]:
        if of.get("image"):
            yield what, of["image"]


def of(item: t.Mapping[str, t.Any], *, namesakes: t.Collection[str] = ()) -> model_placement.Guest:
    """The guest with its requirements; raises BadInput. `namesakes` are the UUIDs of the guests that have its name."""
    name = (units.check_existing_name if namesakes else units.check_name)(item.get("name"), what="guest name")
    vcpus, memory = item.get("vcpus"), item.get("memory")
    vcpus = vcpus.get("current") or vcpus.get("maximum") if isinstance(vcpus, dict) else vcpus
    memory = memory.get("maximum") or memory.get("current") if isinstance(memory, dict) else memory
    for what, image in _images(item):
        units.check_image(image, what=f"{what} of {name}")
    # Other runs know these groups by tags, so they are spelt as such: texts, and names.
    words = {
        option: frozenset(units.check_name(word, what=f"{option} of {name}") for word in _words(item.get(option)))
        for option in ("apart", "together")
    }
    ha = item["ha"] if isinstance(item.get("ha"), dict) else {}  # what is none, the module refuses
    interfaces, disks = _interfaces(item), _entries(item, "disks")
    bridges = [BRIDGE] if interfaces is None else [nic["bridge"] for nic in interfaces if nic.get("bridge")]
    local = [{"size": _DISK}] if disks is None else [disk for disk in disks if not any(map(disk.get, PLACES))]
    cpu = item.get("cpu")
    models = [cpu["model"]] if isinstance(cpu, dict) and cpu.get("model") else []
    return model_placement.Guest(
        name=name,
        vcpus=int(vcpus or 0),
        memory_mib=units.kib_of(memory, what=f"memory of {name}") // 1024 if memory else 0,
        host=item.get("host"),
        apart=words["apart"] | {*_words(ha.get("apart"))},
        together=words["together"],
        prefer=frozenset(_words(item.get("prefer"))),
        bridges=frozenset(bridges),
        networks=frozenset(nic["network"] for nic in interfaces or () if nic.get("network")),
        pools=frozenset(disk.get(option) or POOL for disk in local for option in _pool_options(disk)),
        thin_pools=frozenset(filter(None, map(_thin_pool, local))),
        disks=_sizes(local, name),
        machines=frozenset([item["machine"]] if item.get("machine") and not item.get("arch") else []),
        cpu_models=frozenset(models),
        platform=frozenset(() if item.get("arch") else _platform(item)),
        groups=frozenset(_words(item.get("host_groups"))),
        devices=tuple(sorted(_devices(item, name))),
        versions=_versions(item, name),
        uuid=_uuid(item, name, namesakes),
    )


def _uuid(item: t.Mapping[str, t.Any], name: str, namesakes: t.Collection[str]) -> str | None:
    """The UUID that chooses one of the guests of that name; None for another, which the guest's host refuses."""
    given = units.uuid_of(str(item["uuid"]), what=f"uuid of {name}") if item.get("uuid") else None
    return given if given in namesakes else None


def _devices(item: t.Mapping[str, t.Any], name: str) -> t.Iterator[str]:
    """Host devices that the guest's options name, in the hosts' spelling; without those that it can start without."""
    for one in _entries(item, "hostdevs") or ():
        if one.get("startup_policy") == "optional":
            continue
        if one.get("address"):
            yield f"pci {one['address']}"
        elif one.get("vendor") and one.get("product"):
            yield f"usb {one['vendor']}:{one['product']}"
        elif one.get("bus") and one.get("device"):
            yield f"usb {one['bus']}.{one['device']}"
    for nic in _interfaces(item) or ():
        if nic.get("address"):
            yield f"pci {nic['address']}"
    for disk in _entries(item, "disks") or ():
        if (disk.get("nvme") or {}).get("address"):
            yield f"pci {disk['nvme']['address']}"
    try:
        yield from xml_host_devices.devices_of(str(item.get("xml") or ""))
    except ValueError as error:
        raise BadInput(f"xml of {name}: {error}") from error


def _platform(item: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    """`efi` and `secure_boot` if libvirt chooses the firmware, `tpm` if emulated; Windows may default to both."""
    tpm, loader = item.get("tpm"), item.get("loader")
    windows = is_trusted_windows(str(item.get("osinfo") or "")) and item.get("firmware", "efi") == "efi"
    if (item.get("firmware") == "efi" or windows) and not (isinstance(loader, dict) and loader.get("path")):
        yield "efi"
        if str(item.get("secure_boot", windows)).lower() in ("true", "yes", "on", "1"):
            yield "secure_boot"
    if isinstance(tpm, dict):
        windows = False
        if tpm.get("model") != "none" and tpm.get("type", "emulator") == "emulator":
            yield "tpm"
    if windows:
        yield "tpm"


def _interfaces(item: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]] | None:
    found = _entries(item, "interfaces")
    return _entries(item, "networks") if found is None else found


def _entries(item: t.Mapping[str, t.Any], option: str) -> list[t.Mapping[str, t.Any]] | None:
    """Entries of a list option that are not absent; None if the option is not given."""
    given = item.get(option)
    return None if given is None else [one for one in given if one.get("state") != "absent"]


def _versions(item: t.Mapping[str, t.Any], name: str) -> tuple[tuple[str, str], ...]:
    """Versions that `requires` lists, and the libvirt versions that the guest's options need."""
    required = item.get("requires") or {}
    if not isinstance(required, dict):
        raise BadInput(f"requires of {name}: must be a dictionary such as {{qemu: '8.2'}}")
    problems = [
        f"requires of {name}: {program}: {version} is not a version of {', '.join(PROGRAMS)}"
        for program, version in required.items()
        if program not in PROGRAMS or not _VERSION.fullmatch(str(version))
    ]
    if problems:
        raise BadInput(problems)
    said = {**item, "interfaces": _interfaces(item)}
    newer = [
        ("libvirt", f"{major}.{minor}")
        for path, counts, (major, minor) in _recent()
        if _says(said, path.split("."), counts)
    ]
    return tuple(sorted({*((program, str(version)) for program, version in required.items()), *newer}))


@functools.cache
def _recent() -> tuple[tuple[str, _Counts, tuple[int, int]], ...]:
    """Options, a test for values that need a newer libvirt, and the first version that takes them."""
    from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN  # takes 40 ms
    from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row, every

    def more_than_silence(row: Row, value: t.Any) -> bool:
        return value not in (None, "") and not row.same(None, value)

    return (
        *(
            (path, functools.partial(more_than_silence, row), row.since)
            for path, _field, row in every(DOMAIN)
            if row.since
        ),
        *((path, functools.partial(operator.eq, value), since) for path, value, since in RECENT_VALUES),
    )


def _says(options: t.Any, path: t.Sequence[str], counts: _Counts) -> bool:
    """True if the options have a value at this path that counts."""
    if not path:
        return counts(options)
    if not isinstance(options, dict):
        return False
    key = path[0].removesuffix("[]")
    found = options.get(key)
    inner = found if isinstance(found, list) and path[0].endswith("[]") else [found]
    return any(_says(one, path[1:], counts) for one in inner)


def given_twice(names: t.Iterable[str], option: str) -> list[str]:
    """A problem for each name that is in a list more than once."""
    counts = collections.Counter(names)
    return [f"{option}: {name} is given twice" for name in sorted(counts) if counts[name] > 1]


def _words(value: t.Any) -> list[str]:
    """A list from one word or a list of words."""
    words = value if isinstance(value, list) else [value]
    return [] if value in (None, "") else [str(word) for word in words]


def _pool_options(disk: t.Mapping[str, t.Any]) -> t.Sequence[str]:
    """The options that name the pools that a new disk needs."""
    return ("pool", "image_pool") if disk.get("image_pool") else ("pool",)


def _thin_pool(disk: t.Mapping[str, t.Any]) -> str | None:
    """The thin pool of a disk with that of its volume group, as placement names it; None without one."""
    return f"{disk.get('pool') or POOL}/{disk['thin_pool']}" if disk.get("thin_pool") else None


def _sizes(disks: t.Iterable[t.Mapping[str, t.Any]], name: str) -> tuple[tuple[str, int], ...]:
    """MiB by pool, or by thin pool, of the disks with a given size."""
    sizes: dict[str, int] = {}
    for disk in disks:
        if disk.get("size"):
            pool = _thin_pool(disk) or disk.get("pool") or POOL
            sizes[pool] = sizes.get(pool, 0) + units.kib_of(disk["size"], what=f"disk size of {name}") // 1024
    return tuple(sorted(sizes.items()))
