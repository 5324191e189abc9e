# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Option `xml`, the escape hatch: merges a piece of libvirt's XML into a definition."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, VirtError
from ansible_collections.corral.virt.plugins.module_utils._xml.names import OURS
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, alias_name, copied, parse


@dataclasses.dataclass(frozen=True)
class Shape:
    """How documents of a noun are structured."""

    tag: str
    ours: tuple[str, ...] = ("name", "uuid")  # have options of their own
    # Below one parent most elements stand once: they are edited. These are added beside their like, as is all in a
    # holder but what has an identity.
    several: frozenset[str] = frozenset()
    holders: tuple[str, ...] = ()


# What holds a secret: an attribute, element or pair of such a name, and what follows such a word in an argument.
_WORDS = r"passw(?:or)?d|passphrase|secret|token|cookie|credential|query|(?:private|session|api|access)[-_.]?key"
_NAMED = re.compile(rf"(?:.*[-_./])?(?:{_WORDS})s?(?:[-_./].*)?", re.IGNORECASE)
_FOLLOWS = re.compile(rf"((?:{_WORDS})[\w.-]*[=:]|\bdata=)([^\s,]+)", re.IGNORECASE)
_PAIRS = ("entry", "env", "initenv")  # their name tells what they hold
_KEPT = {"name", "type"}
IDENTITIES = {
    "disk": ("target", "dev"),
    "interface": ("mac", "address"),
    "channel": ("target", "name"),
    "filesystem": ("target", "dir"),
}
# Attributes that tell what is no device from its like: libvirt refuses a second one, or believes the last.
KEYS = {
    "feature": "name",
    "timer": "name",
    "vcpupin": "vcpu",
    "iothreadpin": "iothread",
    "cell": "id",
    "memnode": "cellid",
    "sibling": "id",
}
_SHARED = ("interface", "graphics")  # several may have the same identity
_ONLY = ("memballoon", "vsock", "iommu")  # devices of which a guest has one


def checked(xml: str, shape: Shape) -> str:
    """The text itself if it is a piece of this shape; raises ValueError with what it must be."""
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
    for kept in root.findall("metadata/*"):
        if kept.tag[:1] != "{" or kept.tag[1:].partition("}")[0] in OURS:
            raise ValueError("must not contain <metadata> of the collection, or without a namespace")
    return xml


def merge(root: Element, xml: str, shape: Shape) -> list[Change]:
    """Merge every element of `xml` into `root`; returns a change for each that was missing."""
    try:
        piece = parse(checked(xml, shape))
    except ValueError as error:
        raise BadInput(f"xml: {error}") from error
    changes: list[Change] = []
    _into(root, piece, "xml", changes, shape)
    return changes


def _into(parent: Element, piece: Element, where: str, changes: list[Change], shape: Shape) -> None:
    there = Children(parent)
    for wanted in told_apart_first(piece):
        tag = wanted.tag.rpartition("}")[2]
        place = f"{where}.{tag}"
        if wanted.tag not in shape.holders and there.has(wanted):
            continue
        several = parent.tag in shape.holders or tag in shape.several
        twin = there.twin(wanted) if several else there.first(wanted.tag)
        if twin is not None:
            _edit(twin, wanted, f"{place}[{identity(wanted)}]" if several else place, changes, shape)
            continue
        added = copied(wanted)
        parent.append(added)
        there.add(added)
        changes.append(Change(place, None, _shown(wanted)))


def _edit(found: Element, wanted: Element, where: str, changes: list[Change], shape: Shape) -> None:
    """Edit one element in place: attributes and text, then its children."""
    for name, value in wanted.attrib.items():
        if not _says(found, name, value):
            before = found.get(name)
            changes.append(
                Change(f"{where}.{name}", before and _display(found, before, name), _display(wanted, value, name))
            )
            found.set(name, value)
    text = _text(wanted)
    if text and _text(found) != text:
        changes.append(Change(where, _display(found, _text(found)) or None, _display(wanted, text)))
        found.text = text
    _into(found, wanted, where, changes, shape)


def told_apart_first(parent: Element) -> list[Element]:
    """The children of a parent; those with an identity first, as the others match what these leave."""
    return sorted(parent.iterchildren(tag=t.cast(t.Any, "*")), key=lambda one: not identity(one))


class Children:
    """The children of a parent, each matched to at most one wanted element."""

    def __init__(self, parent: Element) -> None:
        self._like: dict[object, list[Element]] = {}
        self._same: dict[object, list[Element]] = {}
        self._given: dict[Element, Element] = {}
        self._refused: set[object] = set()  # what is not there, and will not be: nothing free is ever added
        for one in parent:
            self._put(one)

    def _put(self, element: Element) -> None:
        for mark in (element.tag, *((element.tag, mark) for mark in (*_marks(element), *_words(element)))):
            self._like.setdefault(mark, []).append(element)
        self._same.setdefault(signature_of(element), []).append(element)

    def add(self, element: Element) -> None:
        """Add an element that is matched already."""
        self._put(element)
        self._given[element] = element

    def has(self, wanted: Element) -> bool:
        """True if the wanted element is there, perhaps with more in it, and not matched to another."""
        signature = signature_of(wanted)
        if signature in self._refused:
            return False
        same = self._same.get(signature)
        while same:
            one = same.pop()
            if one not in self._given:
                self._given[one] = wanted
                return True
        found = self._finds(wanted, set())
        if not found:
            self._refused.add(signature)
        return found

    def _finds(self, wanted: Element, tried: set[Element]) -> bool:
        """Match the element, if need be by matching others anew."""
        fits = [one for one in self._alike(wanted) if one not in tried and holds(one, wanted)]
        tried.update(fits)
        free = next((one for one in fits if one not in self._given), None)
        found = next((one for one in fits if self._finds(self._given[one], tried)), None) if free is None else free
        if found is not None:
            self._given[found] = wanted
        return found is not None

    def first(self, tag: str) -> Element | None:
        """The first child with this tag, or None."""
        return next(iter(self._like.get(tag, ())), None)

    def twin(self, wanted: Element) -> Element | None:
        """The child with the same identity; of devices that may share it, one that is not matched yet."""
        if not identity(wanted):
            return None
        shared = wanted.tag in _SHARED
        one = next((one for one in self._alike(wanted) if not shared or one not in self._given), None)
        if one is not None:
            self._given[one] = wanted
        return one

    def _alike(self, wanted: Element) -> t.Sequence[Element]:
        name = identity(wanted)
        if name:
            return self._like.get((wanted.tag, name), ())
        likes = [self._like.get((wanted.tag, word), ()) for word in _words(wanted)]
        return min(likes, key=len) if likes else self._like.get(wanted.tag, ())


def identity(element: Element) -> str | None:
    """What identifies an element among its like, whatever else changes: the user's alias, the target of a disk, the MAC
    address of an interface, the type of a display, the name of a feature. None if it has none.
    """
    return next(_marks(element), None)


def _marks(element: Element) -> t.Iterator[str | None]:
    if alias_name(element):
        yield alias_name(element)
    if element.tag in _ONLY:
        yield str(element.tag)
    elif element.tag in ("graphics", "sysinfo"):
        yield element.get("type")
    elif element.tag == "controller" and element.get("type") != "usb" and element.get("index"):
        yield f"{element.get('type')}-{element.get('index')}"  # USB's have companions
    elif element.tag in KEYS and element.get(KEYS[element.tag]):
        yield element.get(KEYS[element.tag])
    elif element.tag in IDENTITIES:
        tag, attribute = IDENTITIES[element.tag]
        found = element.find(tag)
        if found is not None and found.get(attribute):
            yield found.get(attribute).lower() if tag == "mac" else found.get(attribute)


def _words(element: Element) -> t.Iterator[tuple[str, ...]]:
    """Every attribute within an element, case-folded. An element that holds another has all of its words."""
    for one in element.iter(t.cast(t.Any, "*")):
        yield from ((one.tag, name, value.casefold()) for name, value in one.attrib.items())


def _text(element: Element) -> str:
    return (element.text or "").strip()


def signature_of(element: Element) -> object:
    """A value that is equal for elements with the same content, in any order."""
    parts = collections.Counter(signature_of(one) for one in element.iterchildren(tag=t.cast(t.Any, "*")))
    own = element.tag, frozenset(element.attrib.items()), _text(element)
    return own, frozenset(parts.items())


def _says(element: Element, attribute: str, value: str) -> bool:
    """True if an attribute has this value. libvirt prints MAC addresses in lower case."""
    found = element.get(attribute)
    return bool(found == value or (element.tag == "mac" and found is not None and found.lower() == value.lower()))


def holds(found: Element, wanted: Element) -> bool:
    """True if all that is wanted is in the element; more may be."""
    text = _text(wanted)
    return (
        all(_says(found, name, value) for name, value in wanted.attrib.items())
        and (not text or _text(found) == text)
        and all(
            any(holds(one, part) for one in found.findall(part.tag))
            for part in wanted.iterchildren(tag=t.cast(t.Any, "*"))
        )
    )


def _shown(element: Element) -> str:
    attributes = " ".join(f"{name}={_display(element, value, name)}" for name, value in element.attrib.items())
    return attributes or _display(element, _text(element)) or "present"


def _display(element: Element, value: str, *attribute: str) -> str:
    """The value of an attribute, or of the text, without secrets."""
    return "(hidden)" if value and _holds_secret(element, *attribute) else _FOLLOWS.sub(r"\1(hidden)", value)


def _holds_secret(element: Element, *attribute: str) -> bool:
    tag = element.tag.rpartition("}")[2]
    pair = [str(element.get("name"))] if tag in _PAIRS else ()
    return not _KEPT & set(attribute) and any(map(_NAMED.fullmatch, (*attribute, tag, *pair)))


def has_secret(element: Element) -> bool:
    """True if an attribute or the text of the element must not be shown."""
    return any(_secrets(element))


def secrets(xml: str) -> t.Iterator[str]:
    """The secrets in a piece of XML; none if it cannot be parsed."""
    with contextlib.suppress(VirtError):
        for element in parse(xml).iter(t.cast(t.Any, "*")):
            yield from _secrets(element)


def _secrets(element: Element) -> t.Iterator[str]:
    for *attribute, value in (*element.attrib.items(), (_text(element),)):
        if value and _holds_secret(element, *attribute):
            yield value
        yield from (found for _word, found in _FOLLOWS.findall(value))
