# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table and the XML of a network filter (https://libvirt.org/formatnwfilter.html)."""

from __future__ import annotations

import contextlib
import ipaddress
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._noun.fields_schema import Schema
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.model_nwfilter import MATCHES, NWFILTER_KIND
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import tree
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import Shape
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Many, Row, Table, silent_is

# A rule has no identity, and a piece of XML with a wide rule would count as there if a narrow one is: an option has it.
SHAPE = Shape("filter", ours=("uuid", "rule"), several=frozenset({"filterref", "parameter"}))

_PRIORITY = k.integer(-1000, 1000)
_DEFAULT_PRIORITY = 500  # of a rule


def _spelt(name: str, value: object) -> str:
    """A value as libvirt prints it."""
    words = ("no", "yes") if name == "match" else ("false", "true")
    text = words[value] if isinstance(value, bool) else str(value)
    if name.endswith(("macaddr", "macmask", "-address", "-address-mask")) and not text.startswith("$"):
        return ":".join(part.zfill(2) for part in text.lower().split(":"))
    if name.endswith("ipmask") and "." in text:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_network(f"0.0.0.0/{text}").prefixlen)
    return text


def _matches(protocol: str | None, given: t.Mapping[str, t.Any]) -> dict[str, str]:
    known = MATCHES.get(protocol or "", frozenset())
    if given and not known:
        raise ValueError("match requires protocol")
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{protocol} cannot match {name}; it can match {', '.join(sorted(known))}")
        if not isinstance(value, (str, int)) or value == "":
            raise ValueError(f"match: {name} must be a text or a number")
    spelt = {name: _spelt(name, value) for name, value in sorted(given.items())}
    return {name: value for name, value in spelt.items() if (name, value) != ("match", "yes")}


def _rule(value: t.Any) -> dict[str, t.Any]:
    """A rule as it is kept: without what is silent."""
    if not isinstance(value, dict):
        raise ValueError("must be a rule with action and direction")
    kept = {
        "action": value["action"],
        "direction": value["direction"],
        "priority": _PRIORITY.check(value.get("priority", _DEFAULT_PRIORITY)),
        "protocol": value.get("protocol"),
        "match": _matches(value.get("protocol"), value.get("match") or {}) or None,
        "statematch": False if value.get("statematch") is False else None,
    }
    return {key: one for key, one in kept.items() if one is not None}


_RULE = k.Kind(
    {
        "type": "dict",
        "options": {
            "action": {"type": "str", "required": True, "choices": ["accept", "continue", "drop", "reject", "return"]},
            "direction": {"type": "str", "required": True, "choices": ["in", "inout", "out"]},
            "priority": {"type": "int", "default": _DEFAULT_PRIORITY},
            "protocol": {"type": "str", "choices": sorted(MATCHES)},
            "match": {"type": "dict"},
            "statematch": {"type": "bool", "default": True},
        },
    },
    _rule,
)


class Rules(Many):
    """The rules of a filter, in order, each as a dictionary; one that no option can express as its text."""

    def read(self, element: tree.Element) -> t.Any:
        """A tuple of rules, or None if there are none."""
        return tuple(map(_read, element.findall(self.path))) or None

    def write(self, element: tree.Element, value: t.Any) -> None:
        """Replace all rules."""
        for found in element.findall(self.path):
            element.remove(found)
        for rule in value:
            _make(element, rule)

    def display(self, value: t.Any) -> t.Any:
        """Each rule as a line."""
        return value and tuple(map(_line, value))


def _read(element: tree.Element) -> dict[str, t.Any] | str:
    parts = list(element.iterchildren(tag=t.cast(t.Any, "*")))
    if len(parts) > 1 or any(len(part) for part in parts):
        return tree.text(element)
    rule = {
        **{key: element.get(key) for key in ("action", "direction", "priority") if element.get(key) is not None},
        "protocol": parts[0].tag if parts else None,
        "match": {name: value for part in parts for name, value in part.attrib.items()},
        "statematch": (element.get("statematch") or "").lower() not in ("false", "0"),
    }
    try:
        return _rule(rule)
    except (KeyError, ValueError):
        return tree.text(element)


def _make(root: tree.Element, rule: t.Mapping[str, t.Any]) -> None:
    element = tree.make(root, "rule", **{key: str(rule[key]) for key in ("action", "direction", "priority")})
    if rule.get("statematch") is False:
        element.set("statematch", "false")
    if rule.get("protocol"):
        tree.make(element, rule["protocol"], **rule.get("match", {}))


def _line(rule: t.Any) -> str:
    if not isinstance(rule, dict):
        return str(rule)
    matches = [f"{name}={value}" for name, value in (rule.get("match") or {}).items()]
    words = [rule["action"], rule["direction"], str(rule["priority"]), rule.get("protocol"), *matches]
    return " ".join(filter(None, [*words, "statematch=false" if rule.get("statematch") is False else None]))


class References(Many):
    """The filters that a filter includes, in order; one that stays keeps its parameters."""

    def write(self, element: tree.Element, value: t.Any) -> None:
        """Replace all names."""
        found: dict[str, list[tree.Element]] = {}
        for one in element.findall("filterref"):
            found.setdefault(one.get("filter"), []).append(one)
            element.remove(one)
        for name in value:
            if found.get(name):
                element.append(found[name].pop(0))
            else:
                tree.make(element, "filterref", filter=name)


def _drop_priority(element: tree.Element) -> None:
    """Without one, libvirt gives a filter the priority of its chain."""
    element.attrib.pop("priority", None)


_CHAIN = k.matching(
    r"root|(?=.{3,12}\Z)(mac|stp|vlan|arp|rarp|ipv4|ipv6)[A-Za-z0-9_.:-]*",
    "must be root, or begin with mac, stp, vlan, arp, rarp, ipv4 or ipv6 and have 12 letters, digits, _ . : - at most",
)

NWFILTER: Table = {
    "chain": Row("./@chain", _CHAIN, same=silent_is("root"), on_change=_drop_priority),
    "priority": Row("./@priority", _PRIORITY, same=silent_is(0)),
    "filterrefs": References("filterref/@filter", k.NAME),
    "rules": Rules("rule", _RULE),
}

NWFILTER_SCHEMA = Schema(NWFILTER_KIND, NWFILTER, ("present", "absent"), extras=("uuid", "xml", "force"))


def skeleton(spec: Spec) -> str:
    """The XML of a new filter."""
    root = tree.parse("<filter/>")
    root.set("name", spec.name)
    root.set("chain", "root")
    if spec.uuid:
        tree.make(root, "uuid").text = spec.uuid
    return tree.text(root)


def references(document: str) -> tuple[str, ...]:
    """The filters that a document of a filter names."""
    return tuple(NWFILTER["filterrefs"].read(tree.parse(document)) or ())


def named_by_guest(*documents: str) -> set[str]:
    """The filters that the documents of a guest name."""
    roots = map(tree.parse, documents)
    return {one.get("filter") for root in roots for one in root.iterfind("devices/interface/filterref")}
