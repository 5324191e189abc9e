# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of values, and how libvirt's XML spells them.

The option, its check, reading and writing come from one kind.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of value: `option` is Ansible's type; `check` returns the value to keep, or raises ValueError with what it
    must be.
    """

    option: t.Mapping[str, t.Any]
    check: t.Callable[[t.Any], t.Any] = lambda value: value
    parse: t.Callable[[str], object] = str
    text: t.Callable[[t.Any], str] = str
    must: str = ""  # what it must be, in words
    form: str = ""  # the regular expression of a text
    ends: tuple[int, int] | None = None  # the least and the greatest number


def matching(pattern: str, must: str, *, kind: str = "str", **option: t.Any) -> Kind:
    """A text of this form; the empty text, which removes a value, is valid too."""
    form = re.compile(pattern, re.ASCII)

    def check(value: t.Any) -> str:
        if value and not form.fullmatch(str(value)):
            raise ValueError(must)
        return str(value)

    return Kind({"type": kind, **option}, check, must=must, form=pattern)


def integer(low: int = 0, high: int = 2**31 - 1, *, also: t.Collection[int] = ()) -> Kind:
    """A whole number in a range."""

    must = f"must be a whole number from {low} to {high}"

    def check(value: t.Any) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or not (low <= number <= high or number in also):
            raise ValueError(must)
        return number

    return Kind({"type": "int"}, check, _lenient(int), must=must, ends=(low, high))


def choice(*values: str) -> Kind:
    """One of these words."""

    def check(value: t.Any) -> str:
        if value not in values:
            raise ValueError(f"must be one of {', '.join(values)}")
        return str(value)

    return Kind({"type": "str", "choices": list(values)}, check)


def _lenient(parse: t.Callable[[str], object]) -> t.Callable[[str], object]:
    """A parser that returns a text as it is if it cannot parse it, as a future libvirt may write new ones."""

    def read_value(raw: str) -> object:
        try:
            return parse(raw)
        except ValueError:
            return raw

    return read_value


def _boolean(yes: str, no: str) -> Kind:
    def check(value: t.Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    return Kind(
        {"type": "bool"}, check, lambda raw: {yes: True, no: False}.get(raw, raw), lambda value: yes if value else no
    )


def _of_units(read: t.Callable[..., t.Any], **option: t.Any) -> Kind:
    """A kind that `_core.units` reads; its message already names what it must be."""

    def check(value: t.Any) -> t.Any:
        try:
            return value if value == "" else read(value, what="")
        except BadInput as error:
            raise ValueError(str(error).lstrip(": ")) from error

    return Kind({"type": "str", **option}, check)


def _kib(value: t.Any) -> int:
    """An option in MiB or with a unit as KiB; values from XML are in KiB already, and parsed as int."""
    try:
        return units.kib_of(value, what="")
    except BadInput as error:
        raise ValueError(str(error).lstrip(": ")) from error


_PATH_MUST = "must be an absolute path without '..'"


def _path(value: t.Any) -> str:
    text = str(value)
    if text and (not text.startswith("/") or text == "/" or ".." in text.split("/")):
        raise ValueError(_PATH_MUST)
    return text


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\.?", re.ASCII)


def _host(value: t.Any) -> str:
    text = str(value)
    try:
        fits = bool(not text or _NAME.fullmatch(text) or (ipaddress.IPv6Address(text) and "%" not in text))
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(_HOST_MUST)
    return text


_HOST_MUST = "must be a host name or an IP address"


def _spelt_cpuset(raw: str) -> str:
    """A CPU set in our form: others write `0-5,^4` for `0-3,5`."""
    try:
        return units.cpuset_of(raw, what="")
    except BadInput:
        return raw


YESNO = _boolean("yes", "no")
ONOFF = _boolean("on", "off")
INT = integer()
KIB = Kind({"type": "raw"}, _kib, _lenient(int))
TEXT = Kind({"type": "str"})
LINE = matching(r"[^\n\t]*", "must be a single line")
WORD = matching(r"[A-Za-z0-9_.+:-]{1,64}", "must be a word of letters, digits and . _ + : -")
NAME = _of_units(units.check_name)
# The name of a secret is none.
SECRET_UUID = _of_units(units.uuid_of, no_log=False)
SECRET_USAGE = matching(r"[^/\n\t]+", "must be a single line without '/'", no_log=False)
TAG = matching(r"[A-Za-z0-9_.-]{1,36}", "must be at most 36 letters, digits, '.', '_' and '-'")
NIC = matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}", "must be the name of a network device, 15 characters at most")
ALIAS = matching(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", "must be a name of letters, digits, '_' and '-'; libvirt keeps no others"
)
MAC = _of_units(units.mac_of)
CPUSET = dataclasses.replace(_of_units(units.cpuset_of, type="raw"), parse=_spelt_cpuset)
HEX16 = matching(r"(0x)?[0-9a-fA-F]{16}", "must be 16 hexadecimal digits")
HOST = Kind({"type": "str"}, _host, must=_HOST_MUST)
PATH = Kind({"type": "path"}, _path, must=_PATH_MUST)
PCI = matching(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", "must be a PCI address as lspci -D prints it: 0000:06:00.0"
)
