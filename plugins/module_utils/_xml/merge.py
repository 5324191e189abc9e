# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The escape hatch: a piece of a document in libvirt's own words is made part of the definition."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._changes import Change
from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, copied, parse

__all__ = ["Shape", "checked", "merge", "secrets"]


@dataclasses.dataclass(frozen=True)
class Shape:
    """How documents of a noun are built."""

    tag: str
    ours: tuple[str, ...] = ("name", "uuid", "metadata")  # have options of their own, or belong to us
    # Below one parent most elements stand once: they are edited. These are added beside their like, as is all in a
    # holder.
    several: frozenset[str] = frozenset()
    holders: tuple[str, ...] = ()


# What holds a secret: an attribute, element or pair of such a name, and what follows such a word in an argument.
_WORDS = r"passw(?:or)?d|passphrase|secret|token|cookie|credential|query|(?:private|session|api|access)[-_.]?key"
_NAMED = re.compile(rf"(?:.*[-_.])?(?:{_WORDS})(?:[-_.].*)?", re.IGNORECASE)
_FOLLOWS = re.compile(rf"((?:{_WORDS})[\w.-]*[=:]|\bdata=)([^\s,]+)", re.IGNORECASE)
_PAIRS = ("entry", "env", "initenv")  # their name tells what they hold
_KEPT = ("name", "type")


def checked(xml: str, shape: Shape) -> str:
    """The text itself when it is a piece of that shape; raises ValueError with what it must be."""
    if "<!DOCTYPE" in xml or "<!ENTITY" in xml:
        raise ValueError("must not declare a document type or entities")
    try:
        root = parse(xml)
    except Failed as error:
        raise ValueError(f"must be well-formed XML ({error})") from error
    if root.tag != shape.tag or root.attrib:
        raise ValueError(f"must be a <{shape.tag}> element without attributes that contains the elements to add")
    taken = [tag for tag in shape.ours if root.find(tag) is not None]
    if taken:
        raise ValueError(f"must not contain <{taken[0]}>: it has its own option")
    return xml


def merge(root: Element, xml: str, shape: Shape) -> list[Change]:
    """Make every element of `xml` part of `root`; a change for each that was not."""
    try:
        piece = parse(checked(xml, shape))
    except ValueError as error:
        raise BadInput(f"xml: {error}") from error
    changes: list[Change] = []
    _into(root, piece, "xml", changes, shape)
    return changes


def _into(parent: Element, piece: Element, where: str, changes: list[Change], shape: Shape) -> None:
    for wanted in piece.iterchildren(tag=t.cast(t.Any, "*")):
        tag = wanted.tag.rpartition("}")[2]
        place = f"{where}.{tag}"
        alike = parent.findall(wanted.tag)
        if any(_holds(one, wanted) for one in alike):
            continue
        several = parent.tag in shape.holders or tag in shape.several
        if several or not alike:
            parent.append(copied(wanted))
            changes.append(Change(place, None, _shown(wanted)))
            continue
        _edit(alike[0], wanted, place, changes, shape)


def _edit(found: Element, wanted: Element, where: str, changes: list[Change], shape: Shape) -> None:
    """One element in place: its attributes and text, then what is in it."""
    for name, value in wanted.attrib.items():
        if found.get(name) != value:
            before = found.get(name)
            changes.append(
                Change(f"{where}.{name}", before and _display(found, name, before), _display(wanted, name, value))
            )
            found.set(name, value)
    text = (wanted.text or "").strip()
    if text and (found.text or "").strip() != text:
        changes.append(
            Change(where, _display(found, "", (found.text or "").strip()) or None, _display(wanted, "", text))
        )
        found.text = text
    _into(found, wanted, where, changes, shape)


def _holds(found: Element, wanted: Element) -> bool:
    """Whether all that is wanted is there; more may be."""
    text = (wanted.text or "").strip()
    return (
        all(found.get(name) == value for name, value in wanted.attrib.items())
        and (not text or (found.text or "").strip() == text)
        and all(
            any(_holds(one, part) for one in found.findall(part.tag))
            for part in wanted.iterchildren(tag=t.cast(t.Any, "*"))
        )
    )


def _shown(element: Element) -> str:
    attributes = " ".join(f"{name}={_display(element, name, value)}" for name, value in element.attrib.items())
    return attributes or _display(element, "", (element.text or "").strip()) or "present"


def _display(element: Element, attribute: str, value: str) -> str:
    """The value of an attribute, or of the text, without what is secret."""
    return "(hidden)" if value and _holds_secret(element, attribute) else _FOLLOWS.sub(r"\1(hidden)", value)


def _holds_secret(element: Element, attribute: str) -> bool:
    tag = element.tag.rpartition("}")[2]
    names = (attribute, tag, element.get("name") or "" if tag in _PAIRS else "")
    return attribute not in _KEPT and any(map(_NAMED.fullmatch, names))


def secrets(xml: str) -> t.Iterator[str]:
    """What nobody may see of a piece of a document; nothing where it cannot be read."""
    with contextlib.suppress(VirtError):
        for element in parse(xml).iter(t.cast(t.Any, "*")):
            for attribute, value in (*element.attrib.items(), ("", (element.text or "").strip())):
                if _holds_secret(element, attribute):
                    yield value
                yield from (found for _word, found in _FOLLOWS.findall(value))
