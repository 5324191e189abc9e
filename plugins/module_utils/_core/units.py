# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse and print sizes, names, MAC addresses and checksums. Names say if a size is in bytes or KiB."""

from __future__ import annotations

import hashlib
import re
import uuid
from fractions import Fraction

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput

SIZE_UNITS = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
_LARGEST_TENTHS = 102400  # 10240 of a unit: larger numbers are no longer read at a glance
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_MOST_BYTES = 2**63 - 1  # what libvirt, QEMU and file systems count sizes with
_LONG = 100  # characters of a value in a message
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:([KMGTPE]?)(iB|B)?)\s*$", re.IGNORECASE | re.ASCII)
# libvirt forbids "/" in names; we also forbid what breaks file names, shells, inventories and terminals.
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
# Guests that others made keep theirs.
_GIVEN = re.compile(r"[^/\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,255}")
# An immutable image: the first twelve digits of its source's checksum stand before its ending.
_CONTENT = re.compile(r"\.[0-9a-f]{12}(\.\w+)?$")
_FORMATS = {"qcow2": "qcow2", "raw": "raw", "img": "raw"}
_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


def bytes_of(value: int | str, *, bare: str, what: str) -> int:
    """Bytes of `8GiB`, `8G` (binary), `8GB` (decimal), or of a bare number in the unit `bare` ("M", "G").

    Raises BadInput naming `what`.
    """
    text = written(value)
    match = _SIZE.match(text if isinstance(value, int) else str(value))
    if isinstance(value, bool) or not match:
        raise BadInput(f"{what}: cannot read {text} as a size; write 512MiB, 8GiB or a number of {bare}iB")
    number, unit, suffix = match.group(1), (match.group(2) or "").upper(), (match.group(3) or "").lower()
    if not unit and not suffix:
        unit = bare
    # "GB" is decimal everywhere in libvirt and virt-install; "G" and "GiB" are binary.
    factor = 1000 if unit and suffix == "b" else 1024
    most = f"{what}: must be at most {_MOST_BYTES} bytes (8EiB less one byte), not {text}"
    if len(number) > _LONG:
        raise BadInput(most)
    size = int(Fraction(number) * factor ** _POWERS[unit])
    if size <= 0:
        raise BadInput(f"{what}: must be larger than zero, not {text}")
    if size > _MOST_BYTES:
        raise BadInput(most)
    return size


def written(value: object) -> str:
    """A value as Python writes it, for a message; a very long one is cut."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write a number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text)} characters)"


def kib_of(value: int | str, *, what: str) -> int:
    """A memory size in KiB; a bare number is MiB."""
    return (bytes_of(value, bare="M", what=what) + 1023) // 1024


def bytes_text(size_bytes: int) -> str:
    """A short size for messages: `8 GiB`, `1.5 GiB`, `128 MiB`.

    In the largest unit that needs at most one decimal; other sizes are rounded: `14.6 MiB`.
    """
    units = [unit for unit in SIZE_UNITS if size_bytes >= unit[1]]
    for unit, size in units:
        tenths, rest = divmod(size_bytes * 10, size)
        if not rest and tenths < _LARGEST_TENTHS:
            return f"{tenths // 10} {unit}" if tenths % 10 == 0 else f"{tenths / 10} {unit}"
    if not size_bytes:
        return "0 MiB"
    unit, size = units[0] if units else ("B", 1)
    amount = size_bytes / size
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def check_name(name: object, *, what: str) -> str:
    """The name itself if it is safe as a guest, volume and file name; raises BadInput."""
    if not isinstance(name, str) or not _NAME.match(name) or ".." in name:
        raise BadInput(
            f"{what}: {name!r} is not a valid name; use letters, digits, '.', '_' and '-', start with a letter or "
            "digit, at most 63 characters"
        )
    return name


def check_existing_name(name: object, *, what: str) -> str:
    """The name itself if libvirt may have a guest with it, whoever named it; raises BadInput."""
    if not isinstance(name, str) or not _GIVEN.fullmatch(name) or name in (".", ".."):
        raise BadInput(f"{what}: {name!r} is not a valid name; no guest has '/' or control characters in its name")
    return name


def check_image(name: object, *, what: str) -> str:
    """The name itself if an image in a pool can have it.

    Raises BadInput; for a path or a URL, the message says how to import the file.
    """
    if not isinstance(name, str) or not ("/" in name or name.startswith("~")):
        return check_name(name, what=what)
    option, file = ("url", "a URL") if "://" in name else ("src", "a path")
    ours = name.rstrip("/").rpartition("/")[2] or "NAME"
    more = " checksum=sha256:..." if option == "url" else ""
    raise BadInput(
        f"{what}: {name!r} is {file}, and an image is named as in its pool; import it with virt_image (name={ours} "
        f"{option}={name}{more}) or virt_images of role guests, and set the name: {ours}"
    )


def mac_of(value: str, *, what: str) -> str:
    """A MAC address in libvirt's form (lower case, colons); raises BadInput."""
    mac = value.strip().lower().replace("-", ":")
    if not _MAC.match(mac) or int(mac[:2], 16) & 1:
        raise BadInput(f"{what}: {value!r} is not a unicast MAC address; write it as 52:54:00:12:34:56")
    return mac


def derived_mac(uuid: str, name: str) -> str:
    """A stable MAC in QEMU's range for interface `name` of guest `uuid`: the same on every run and host."""
    digest = hashlib.sha256(f"{uuid}/{name}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])


def uuid_of(value: str, *, what: str) -> str:
    """A UUID in libvirt's form; raises BadInput."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise BadInput(f"{what}: {value!r} is not a UUID; write it as 6695eb01-f6a4-8304-79aa-97f2502e193f") from None


# C0, DEL, C1; and what is no XML character either: lone surrogates, U+FFFE and U+FFFF.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def control_characters(value: object, *, where: str = "", allowed: str = "") -> list[str]:
    """A problem for every text inside `value` that XML cannot hold or a terminal would obey (C0, DEL, C1)."""
    if isinstance(value, dict):
        parts = [
            control_characters(item, where=f"{where}.{key}" if where else str(key), allowed=allowed)
            for key, item in value.items()
        ]
        return [problem for part in parts for problem in part]
    if isinstance(value, (list, tuple)):
        parts = [
            control_characters(item, where=f"{where}[{index}]", allowed=allowed) for index, item in enumerate(value)
        ]
        return [problem for part in parts for problem in part]
    bad = isinstance(value, str) and set(_CONTROLS.findall(value)).difference(allowed)
    return [f"{where}: control characters cannot be stored; remove them"] if bad else []


def cpus_of(cpuset: str) -> set[int]:
    """The numbers of the CPUs in a set as libvirt prints it."""
    runs = [run.partition("-") for run in cpuset.split(",") if run]
    return {cpu for first, _dash, last in runs for cpu in range(int(first), int(last or first) + 1)}


def cpuset_of(value: object, *, what: str) -> str:
    """A CPU set as libvirt reads and prints it: `0-1,4` for `4,0,1`; `^N` removes a CPU from what precedes it.

    Raises BadInput.
    """
    cpus: set[int] = set()
    for part in str(value).split(","):
        match = re.fullmatch(r"\s*(?:(\^)(?!.*-))?(\d{1,5})\s*(?:-\s*(\d{1,5}))?\s*", part, re.ASCII)
        these = set(range(int(match.group(2)), int(match.group(3) or match.group(2)) + 1)) if match else set()
        out = bool(match and match.group(1))
        # libvirt's sets end at 16383. It lets ^N before N stand without effect; whoever writes that means something
        # else.
        if isinstance(value, bool) or not these or max(these) > 16383 or (out and not these <= cpus):
            raise BadInput(f"{what}: cannot read {written(value)} as a set of CPUs; write 0-3,8 or 0-7,^3")
        cpus = cpus - these if out else cpus | these
    if not cpus:
        raise BadInput(f"{what}: {value!r} leaves no CPU")
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def is_content(path: str) -> bool:
    """True if a file has the name of an image's immutable content, such as `debian-12.1a2b3c4d5e6f.qcow2`."""
    return bool(_CONTENT.search(path))


def image_of_content(name: str) -> str:
    """The image name of a content: `debian-12.qcow2`. Any other name is returned as it is."""
    return _CONTENT.sub(r"\1", name)


def format_of(name: str) -> str | None:
    """The format of a disk image, by the ending of its name; None if that is unknown."""
    return _FORMATS.get(name.rpartition(".")[2])


def age_text(age_s: int) -> str:
    """How old something is, in its largest unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if age_s >= 2 * length:
            return f"{age_s // length} {unit}"
    return f"{max(0, age_s)} seconds"
