# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse and print libvirt's XML; nothing from outside is ever resolved or pasted."""

from __future__ import annotations

import copy
import functools
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Unsupported
from ansible_collections.corral.virt.plugins.module_utils._xml.names import PREFIXES

try:
    from lxml import etree
except ImportError:  # the front says how to install it
    etree = None  # type: ignore[assignment]

Element = t.Any  # lxml's element; typed loosely because lxml ships no types to hosts


def parse(xml: str) -> Element:
    """The root element of libvirt's XML, for the caller to edit; raises Failed if it is not well-formed.

    The stages of a call read one document many times. It is parsed once; each gets a copy, which takes half the time.
    """
    return copied(_parsed(xml))


@functools.lru_cache(maxsize=8)
def _parsed(xml: str) -> Element:
    if etree is None:
        raise Unsupported("reading libvirt's XML needs lxml; install python3-lxml on this host")
    parser = etree.XMLParser(remove_blank_text=True, resolve_entities=False, no_network=True)
    try:
        return etree.fromstring(xml.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise Failed(f"cannot parse libvirt's XML: {error}") from error


def text(element: Element, *, without_namespaces: bool = False) -> str:
    """The element as text that libvirt reads, indented."""
    if without_namespaces:
        etree.cleanup_namespaces(element)
    return etree.tostring(element, pretty_print=True, encoding="unicode")


def canonical(element: Element) -> bytes:
    """The element in W3C Canonical XML, which is the same for equal documents."""
    return etree.tostring(element, method="c14n")


def resolve(tag: str) -> str:
    """`corral:tag` as lxml's `{namespace}tag`; other tags as they are."""
    prefix, colon, name = tag.partition(":")
    return f"{{{PREFIXES[prefix]}}}{name}" if colon else tag


def child(parent: Element, tag: str) -> Element:
    """The first child `tag`, created at the end of `parent` if there is none."""
    found = parent.find(resolve(tag))
    return make(parent, tag) if found is None else found


def make(parent: Element, tag: str, **attributes: str) -> Element:
    """Add a new last child to `parent`, and return it."""
    prefix = tag.partition(":")[0]
    nsmap = {prefix: PREFIXES[prefix]} if ":" in tag and parent.tag == "metadata" else None
    return etree.SubElement(parent, resolve(tag), attrib=attributes, nsmap=nsmap)


def drop(elements: t.Iterable[Element]) -> None:
    """Remove elements from their parents."""
    for one in list(elements):
        one.getparent().remove(one)


def copied(element: Element) -> Element:
    """A deep copy of the element, for another document."""
    return copy.deepcopy(element)


# The name that a user gave a device of a guest.


def alias_name(device: Element) -> str:
    """The name that the user gave a device, from our alias `ua-<name>`; empty if libvirt named it."""
    alias = device.find("alias")
    name = "" if alias is None else alias.get("name") or ""
    return name[len("ua-") :] if name.startswith("ua-") else ""
