# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalogue of cloud images and ISOs: address, verification and login user of each. Ours, and a site's."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
import string
import typing as t
import urllib.parse

import yaml

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput

FILE = os.path.join(os.path.dirname(__file__), "catalogue.yml")
VARIABLES = ("virt_images_catalogue", "virt_images_mirror")  # of the site
SPELLINGS = {"amd64": "x86_64", "arm64": "aarch64"}
_KEYS = {
    "url", "sums", "checksum", "signature", "keyring", "algorithm", "arch", "user", "osinfo", "least", "firmware",
    "medium",
}  # fmt: skip
_FIELDS = {"url": {"arch"}, "sums": {"arch", "file"}, "signature": {"arch", "file"}}
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}", re.ASCII)
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_NAMED = 5  # names in a message

Entry = t.Mapping[str, t.Any]


@functools.cache
def entries() -> dict[str, dict[str, t.Any]]:
    """The catalogue as its file has it."""
    with open(FILE, encoding="utf-8") as stream:
        return t.cast("dict[str, dict[str, t.Any]]", yaml.safe_load(stream))


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """Our images with those of the site, which may override ours; and a `mirror` of all of them."""

    site: t.Mapping[str, Entry] = dataclasses.field(default_factory=dict)
    mirror: str = ""

    @classmethod
    def of(
        cls, variables: t.Mapping[str, t.Any], render: t.Callable[[t.Any], t.Any] = lambda value: value
    ) -> Catalogue:
        """The catalogue of the site's variables, rendered; raises ValueError with every problem."""
        site, mirror = (render(variables.get(name)) for name in VARIABLES)
        found = [*_site_problems(site or {}), *_mirror_problems(mirror or "")]
        if found:
            raise ValueError("; ".join(found))
        return cls(site or {}, str(mirror or "").rstrip("/"))

    @functools.cached_property
    def entries(self) -> dict[str, dict[str, t.Any]]:
        """All images, by name."""
        ours = entries()
        return {name: _overlaid(ours.get(name, {}), self.site.get(name, {})) for name in {**ours, **self.site}}

    def is_iso(self, name: str) -> bool:
        """True if the image is an ISO, for a drive, and not a disk."""
        return name in self.entries and self.entries[name].get("medium") == "iso"

    def file_of(self, name: str) -> str:
        """The name that an image has in a pool."""
        return f"{name}.{'iso' if self.is_iso(name) else 'qcow2'}"

    def unknown(self, name: str) -> str:
        """The message about a name that the catalogue lacks."""
        near = difflib.get_close_matches(name, self.entries, _NAMED, 0.5)
        remedy = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(self.entries)}"
        return (
            f"the catalogue has no image {name!r}; {remedy} To add your own, set {VARIABLES[0]}, or name a file in the "
            "pool with its suffix (.qcow2, .raw, .img, .iso), which virt_images or virt_image imports"
        )

    def resolve(self, name: str, arch: str = "x86_64") -> dict[str, t.Any]:
        """The image's `url`, `checksum`, `signature` and `keyring` (or None), and `user`.

        Raises ValueError for a name or an architecture that the catalogue lacks.
        """
        if name not in self.entries:
            raise ValueError(self.unknown(name))
        entry = self.entries[name]
        words = entry.get("arch") or {arch: arch}
        word = words.get(SPELLINGS.get(arch, arch), words.get(arch))
        if word is None:
            raise ValueError(f"the catalogue has {name} for {', '.join(words)}, not for {arch}: set url and checksum")
        url = entry["url"].format(arch=word)
        place = {"arch": word, "file": url.rpartition("/")[2]}
        found = {key: entry.get(key) and self._at(entry[key].format(**place)) for key in ("sums", "signature")}
        sums = found["sums"] and ":".join(filter(None, (entry.get("algorithm"), found["sums"])))
        return {
            "url": self._at(url),
            "checksum": entry.get("checksum") or sums,
            "signature": found["signature"],
            "keyring": entry.get("keyring"),
            "user": entry.get("user"),
        }

    def _at(self, url: str) -> str:
        """The address of the same path on the mirror; without a mirror, the address itself."""
        return f"{self.mirror}{urllib.parse.urlsplit(url).path}" if self.mirror else url


def _overlaid(ours: Entry, site: Entry) -> dict[str, t.Any]:
    """Our entry with the site's values; an image from elsewhere loses our checksums and signatures."""
    kept = dict(ours) if "url" not in site else {key: ours[key] for key in ("user", "osinfo", "least") if key in ours}
    if "checksum" in site:
        kept = {key: value for key, value in kept.items() if key not in ("sums", "signature", "algorithm")}
    return {**kept, **site}


def _mirror_problems(mirror: object) -> t.Iterator[str]:
    if mirror and not (isinstance(mirror, str) and re.fullmatch(r"https?://[^\s?#]+", mirror)):
        yield f"{VARIABLES[1]}: {mirror!r} must be an address that begins with https:// or http://, without a query"


def _site_problems(site: object) -> t.Iterator[str]:
    """Problems of the site's entries, with their places."""
    if not isinstance(site, dict):
        yield f"{VARIABLES[0]}: must be a dictionary of images by name"
        return
    for name, entry in site.items():
        where = f"{VARIABLES[0]}.{name}"
        if not isinstance(name, str) or not _NAME.fullmatch(name) or units.format_of(name) or name.endswith(".iso"):
            yield f"{where}: a name has small letters, digits, '.' and '-', and no suffix of a file"
        if not isinstance(entry, dict):
            yield f"{where}: must be a dictionary with url, and sums or checksum"
            continue
        yield from (f"{where}.{reason}" for reason in _entry_problems(entry, new=str(name) not in entries()))


def _entry_problems(entry: Entry, *, new: bool) -> t.Iterator[str]:
    for key in sorted(map(str, entry.keys() - _KEYS)):
        yield f"{key}: no such key; keys are {', '.join(sorted(_KEYS))}"
    if (new or "url" in entry) and not ("url" in entry and entry.keys() & {"sums", "checksum"}):
        yield "url: set it, and sums (the address of a list) or checksum (a digest, a list, or none)"
    if "sums" in entry and "checksum" in entry:
        yield "sums: it and checksum are mutually exclusive"
    for key, allowed in _FIELDS.items():
        if key in entry:
            yield from (f"{key}: {reason}" for reason in _address_problems(entry[key], allowed))
    yield from _value_problems(entry)


def _value_problems(entry: Entry) -> t.Iterator[str]:
    for key in ("user", "osinfo", "checksum", "keyring", "algorithm"):
        if not isinstance(entry.get(key, ""), str):
            yield f"{key}: must be a text"
    if not _USER.fullmatch(str(entry.get("user", "user"))):
        yield "user: must be a user name of small letters, digits, '_' and '-'"
    if entry.get("firmware", "efi") not in ("bios", "efi"):
        yield "firmware: must be bios or efi"
    if entry.get("medium", "iso") != "iso":
        yield "medium: must be iso, or absent for the image of a disk"
    for key in ("arch", "least"):
        if not isinstance(entry.get(key, {}), dict):
            yield f"{key}: must be a dictionary"
            return
    for option in sorted(map(str, entry.get("least", {}).keys() - {"memory", "disk"})):
        yield f"least.{option}: no such key; keys are memory and disk"
    for option, size in entry.get("least", {}).items():
        try:
            units.bytes_of(size, bare="G", what=f"least.{option}")
        except BadInput as error:
            yield from error.problems


def _address_problems(text: object, allowed: t.Collection[str]) -> t.Iterator[str]:
    if not isinstance(text, str) or not text.startswith(("http://", "https://")):
        yield "must be an address that begins with https:// or http://"
        return
    try:
        used = {field for _text, field, _spec, _conversion in string.Formatter().parse(text) if field is not None}
    except ValueError as error:
        yield str(error)
        return
    yield from (f"{{{field}}} stands for nothing; known: {', '.join(sorted(allowed))}" for field in used - {*allowed})
