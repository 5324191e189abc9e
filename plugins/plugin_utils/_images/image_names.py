# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images by their names in the catalogue: their files in a pool, and options that follow for a guest. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.defaults import POOL
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue

_DISK = "8GiB"  # the size that a disk has where nobody says any
_SOURCES = ("url", "src", "origin", "catalogue")

Options = t.Mapping[str, t.Any]


def named(image: object, catalogue: Catalogue) -> str | None:
    """The image's name if it is in the catalogue, else None."""
    return image if isinstance(image, str) and image in catalogue.entries else None


def with_files(guest: Options, catalogue: Catalogue) -> dict[str, t.Any]:
    """The guest's options with files in place of its images' names, as `virt_domain` takes them."""
    found = {**guest, **_with_file(guest, catalogue)}
    if isinstance(guest.get("disks"), list):
        found["disks"] = [
            {**disk, **_with_file(disk, catalogue)} if isinstance(disk, dict) else disk for disk in guest["disks"]
        ]
    return found


def _with_file(of: Options, catalogue: Catalogue) -> dict[str, str]:
    name = named(of.get("image"), catalogue)
    if name:
        return {"image": catalogue.file_of(name)}
    iso = _iso(of, catalogue)
    return {"volume": f"{iso[1]}/{catalogue.file_of(iso[0])}"} if iso else {}


def _iso(of: Options, catalogue: Catalogue) -> tuple[str, str] | None:
    """Name and pool of the catalogue's ISO that is a disk's volume, `POOL/NAME`; None if it is no ISO."""
    pool, slash, name = str(of.get("volume") or "").partition("/")
    return (name, pool) if slash and catalogue.is_iso(name) else None


def described(guest: Options, catalogue: Catalogue, *, user: str = "", arch: str = "") -> dict[str, t.Any]:
    """A new guest with the options that follow from its first disk's image, unless given.

    `user` is the login of the role's seed, which replaces the image's own user; `arch` is the host's, if known.
    """
    name = next((name for name, _pool in _images(guest, catalogue)), None)
    login = {"login_user": user} if user and "login_user" not in guest and _takes_user(guest) else {}
    if name is None:
        return {**guest, **login}
    entry = catalogue.entries[name]
    least = entry.get("least", {})
    follows = {
        "osinfo": entry.get("osinfo"),
        "login_user": entry.get("user") if _takes_user(guest) else None,
        "vcpus": 1,
        "memory": least.get("memory") if not (guest.get("numa") or {}).get("cells") else None,
        "firmware": "efi" if arch == "aarch64" or entry.get("firmware") == "efi" else None,
        "disks": _disks(guest, least),
    }
    return {**{option: value for option, value in follows.items() if value}, **guest, **login}


def _disks(guest: Options, least: Options) -> list[dict[str, t.Any]] | None:
    """The system disk of a guest that lists none, if its image needs more than the default size; else None."""
    if guest.get("disks") is not None or guest.get("disk_profile") or not least.get("disk"):
        return None
    sizes = [units.bytes_of(size, bare="G", what="disk") for size in (least["disk"], _DISK)]
    return [{"name": "system", "size": least["disk"]}] if sizes[0] > sizes[1] else None


def _takes_user(guest: Options) -> bool:
    """True if the image's own user exists in the guest: its user data names no other users instead."""
    user_data = (guest.get("cloud_init") or {}).get("user_data")
    users = user_data.get("users") if isinstance(user_data, dict) else None
    return user_data is None or (isinstance(user_data, dict) and (users is None or "default" in users))


def problems(guest: Options, catalogue: Catalogue, files: t.Callable[[], t.Collection[str]]) -> list[str]:
    """Problems of the image names of a new guest; `files` returns the names that the site imports itself."""
    disks = [disk for disk in guest.get("disks") or () if isinstance(disk, dict)]
    words = {str(one["image"]) for one in (guest, *disks) if isinstance(one.get("image"), str)}
    strange = sorted(word for word in words - catalogue.entries.keys() if _is_name(word))
    known = files() if strange else ()
    isos = [
        f"image of {guest.get('name')}: {word} is an ISO, and no disk; list a drive for it: "
        f"disks: [{{name: cd, device: cdrom, volume: {POOL}/{word}}}]"
        for word in sorted(filter(catalogue.is_iso, words))
    ]
    return isos + [f"image of {guest.get('name')}: {catalogue.unknown(word)}" for word in strange if word not in known]


def _is_name(word: str) -> bool:
    """True if the word is a catalogue name and no file of a pool, which has a suffix."""
    has_suffix = bool(units.format_of(word)) or word.endswith(".iso")
    return bool(word) and "/" not in word and not word.startswith("~") and not has_suffix


def needed(guests: t.Iterable[Options], there: t.Collection[str], catalogue: Catalogue) -> list[dict[str, str]]:
    """Images that guests missing from `there` need, and ISOs that any needs: `name`, `pool` and `catalogue` name."""
    found = {
        (name, pool): {"name": catalogue.file_of(name), "pool": pool, "catalogue": name}
        for guest in guests
        if (guest.get("state") or "present") != "absent"
        for name, pool in (
            *_isos(guest, catalogue),
            *(() if guest.get("name") in there else _images(guest, catalogue)),
        )
    }
    return list(found.values())


def _isos(guest: Options, catalogue: Catalogue) -> list[tuple[str, str]]:
    """Names of the ISOs in the guest's drives, and their pools."""
    disks = [disk for disk in guest.get("disks") or () if isinstance(disk, dict) and disk.get("state") != "absent"]
    return [found for found in (_iso(disk, catalogue) for disk in disks) if found]


def _images(guest: Options, catalogue: Catalogue) -> list[tuple[str, str]]:
    """Names of the images that a new guest is created from, and their pools; the first disk's first."""
    disks = [disk for disk in guest.get("disks") or () if isinstance(disk, dict) and _is_made(disk)]
    first = {**(disks[0] if disks else {}), "image": guest.get("image")}
    names = [
        (named(one.get("image"), catalogue), str(one.get("image_pool") or one.get("pool") or POOL))
        for one in (first, *disks)
    ]
    return [(name, pool) for name, pool in names if name]


def _is_made(disk: Options) -> bool:
    """True if the disk may be created from an image, as the first such disk is from the guest's `image`."""
    return disk.get("state") != "absent" and disk.get("device", "disk") == "disk" and not any(map(disk.get, PLACES))


def listed(images: t.Iterable[object], catalogue: Catalogue) -> list[dict[str, t.Any]]:
    """Images as options of `virt_image`: a name of the catalogue alone is enough.

    Raises ValueError for a name that the catalogue lacks.
    """
    found = []
    for image in images:
        item = {"name": image} if isinstance(image, str) else dict(t.cast("Options", image))
        name = str(item.get("name") or "")
        if not any(item.get(source) for source in _SOURCES):
            if name in catalogue.entries:
                item |= {"name": catalogue.file_of(name), "catalogue": name}
            elif isinstance(image, str) or _is_name(name):
                raise ValueError(f"virt_images: {catalogue.unknown(name)}")
        found.append(item)
    return found


def chosen(
    names: t.Iterable[str], images: t.Iterable[Options], catalogue: Catalogue, *, strict: bool
) -> list[dict[str, t.Any]]:
    """The images of these names (files, or catalogue names) with their source, from the site or the catalogue.

    Raises ValueError for a name without a source; unless `strict`, it is left out.
    """
    ours = {catalogue.file_of(name): {"name": catalogue.file_of(name), "catalogue": name} for name in catalogue.entries}
    known: dict[str, Options] = {**ours, **{str(item.get("name")): item for item in images}}
    files = [catalogue.file_of(name) if name in catalogue.entries else name for name in names]
    strange = [name for name in files if name not in known]
    if strict and strange:
        raise ValueError(f"image: {catalogue.unknown(strange[0])}")
    return [dict(known[name]) for name in files if name in known]
