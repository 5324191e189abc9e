# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""A guest that exists (made by hand, by virt-manager, by Salt) as the arguments of `virt_domain` that describe it.

Said to the guest they change nothing, and where it is not, they make it again.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._front.minimal import minimal
from ansible_collections.corral.virt.plugins.module_utils._front.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._model.domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._plan.display import beyond_loopback
from ansible_collections.corral.virt.plugins.module_utils._plan.guest_options import completed
from ansible_collections.corral.virt.plugins.module_utils._xml import (
    disk,
    domain,
    graphics,
    new,
    overlay,
    row,
    validate,
)
from ansible_collections.corral.virt.plugins.module_utils._xml.remainder import path_of, remainder, stripped
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Flag, Items, Presence
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse, text

__all__ = ["Import", "arguments", "imported", "less"]

_OF_SPICE = "devices/*[@type='spicevmc' or @type='spiceport'] | devices/audio[@type='spice']"


@dataclasses.dataclass(frozen=True)
class Import:
    """What a definition says: arguments, those that need a secret which is not told, and the rest."""

    arguments: dict[str, t.Any]
    withheld: dict[str, t.Any]
    not_imported: list[dict[str, str]]  # path and why, and which option of those withheld describes it


def arguments(xml: str, *, autostart: bool) -> dict[str, t.Any]:
    """The arguments alone."""
    return imported(xml, autostart=autostart).arguments


def imported(xml: str, *, autostart: bool, least: bool = False, uuid: bool = False) -> Import:
    """The options that describe the guest of a definition (with its secrets, which show that there are some).

    The `least` of them, without what defaults give; on request with its `uuid`.
    """
    root = parse(xml)
    display = graphics.first(root)
    shown = _display(display) if display is not None else {}
    withheld = {"graphics": shown} if display is not None and display.get("passwd") else {}
    left = _withhold(root, display if withheld else None)
    given = _given(root)
    if shown and root.find("devices/graphics") is display:
        given["graphics"] = shown
    given = _accepted({"name": root.findtext("name"), **given, "autostart": autostart})
    if root.get("type") in ("kvm", "qemu"):
        given["virt_type"] = root.get("type")
    given = _fitting(given, root)
    wish = stripped(domain.spelt_out(root))
    given = _completed(_with_absences(given, root), root, wish)
    left += _lost(given, root, wish)
    if least:
        given = minimal(given, lambda rest: _made(rest, root))
    return Import({**given, **({"uuid": root.findtext("uuid")} if uuid else {})}, withheld, left)


def _given(root: Element) -> dict[str, t.Any]:
    """What options say of it."""
    given = as_options(domain.DOMAIN, domain.read_fields(text(root)))
    given["disks"] = [entry for entry in given.get("disks", []) if entry["name"] != "seed"]
    given["interfaces"] = given.get("interfaces", [])
    if "serials" in given:
        given.pop("serial", None)
    # the others are serial ports
    given["consoles"] = [console for console in given.get("consoles", []) if console.get("target")]
    if "channels" in given and root.xpath("devices/channel[not(target/@name)]"):
        given["channels"] = [channel for channel in given["channels"] if channel["name"] != "None"]
    if root.find("os").get("firmware"):  # by which libvirt chooses the loader
        given.pop("loader", None)
        given.get("nvram", {}).pop("template", None)
    elif "loader" in given:
        given.pop("firmware", None)
        given.pop("secure_boot", None)
    return {option: value for option, value in given.items() if value not in ({}, None)}


def _display(display: Element) -> dict[str, t.Any]:
    """The options of the first display."""
    if display.get("type") not in ("vnc", "spice"):
        return {}
    shown = as_options(graphics.GRAPHICS, row.read(display, graphics.GRAPHICS))
    chosen = ("port", "tls_port") if shown.pop("autoport", False) else ()
    return {key: value for key, value in shown.items() if value != -1 and key not in chosen}


def _withhold(root: Element, withheld: Element | None) -> list[dict[str, str]]:
    """Take away what must not be made without a secret, and what hangs on it; say what that is.

    Of the display that an option describes without its secret, also which.
    """
    gone = {}
    for display in root.findall("devices/graphics"):
        if display.get("passwd"):
            gone[display] = "it has a password, and would be open without it"
        elif beyond_loopback(graphics.display(display)):
            gone[display] = "others than its host may reach it"
    if any(one.get("type") == "spice" for one in gone) and not _others(root, "spice", gone):
        gone.update(dict.fromkeys(root.xpath(_OF_SPICE), "it needs a display by SPICE"))
    for one in root.iter(t.cast(t.Any, "*")):
        if one.tag != "secret" and overlay.has_secret(one):
            # an argument of QEMU's is half of an option
            device = one.xpath("ancestor-or-self::*[parent::devices] | self::*[local-name()='arg']/..")
            gone.setdefault(device[0] if device else one, "it holds a secret")
    gone = {one: why for one, why in gone.items() if gone.keys().isdisjoint(one.iterancestors())}
    notes = [
        {"path": path_of(one), "why": why, **({"option": "graphics"} if one is withheld else {})}
        for one, why in gone.items()
    ]
    for one in gone:
        one.getparent().remove(one)
    return notes


def _others(root: Element, kind: str, gone: t.Container[Element]) -> bool:
    return any(one not in gone for one in root.findall(f"devices/graphics[@type='{kind}']"))


def _with_absences(given: dict[str, t.Any], root: Element) -> dict[str, t.Any]:
    """Also what a new guest would have and this one has not."""
    bare, found = (row.read(domain.spelt_out(one), domain.DOMAIN) for one in (_bare(given, root), root))
    for field, one in domain.DOMAIN.items():
        value: t.Any = None
        if isinstance(one, Items) and field != "consoles":
            names = [one.named(entry) for entry in found.get(field, ())]
            gone = [entry for entry in bare.get(field, ()) if one.named(entry) not in names]
            value = [{**{key: entry[key] for key in one.keys}, "state": "absent"} for entry in gone]
            value = [*given.get(field.split(".")[0], []), *value] if "." not in field and value else value
            if "." in field and value:
                value = [*_dig(given, field), *value]
        elif isinstance(one, Presence) and bare.get(field) and found.get(field) is None:
            value = "none"
        elif isinstance(one, Flag) and bare.get(field) and not found.get(field):
            value = False
        if value not in (None, []):
            *way, last = field.split(".")
            place = given
            for step in way:
                place = place.setdefault(step, {})
            place[last] = value
    return given


def _dig(given: dict[str, t.Any], field: str) -> list[t.Any]:
    place: t.Any = given
    for step in field.split("."):
        place = (place or {}).get(step)
    return place or []


def _bare(given: t.Mapping[str, t.Any], root: Element) -> Element:
    """A guest that is made now, before anything is said of it."""
    kind = root.find("os/type")
    return parse(
        new.domain(
            name=root.findtext("name"),
            uuid=root.findtext("uuid") or "",
            virt_type=root.get("type") or "",
            arch="" if kind is None else kind.get("arch") or "",
            machine="" if kind is None else kind.get("machine") or "",
            without=new.brought(given.get("xml")),
            ports=not any(one.get("type") == "pci" for one in given.get("controllers", ())),
        )
    )


def _made(given: t.Mapping[str, t.Any], root: Element) -> Element:
    """What the arguments make where the guest is not."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(given))
    return parse(domain.graft(text(_bare(given, root)), completed(wanted(result.validated_parameters), {})).xml)


def _completed(given: dict[str, t.Any], root: Element, wish: Element) -> dict[str, t.Any]:
    """The options with the rest beside them in libvirt's own words.

    A device that has no identity, or that both together do not make, is told in those words alone.
    """
    verbatim = {*_nowhere(given, wish), *_namesakes(wish)}
    given = _without(given, verbatim)
    while True:
        options = {option: value for option, value in given.items() if option != "xml"}
        made = _made(options, root)
        again = _with_like({one for one in _not_made(wish, made) if not overlay.identity(one)}, wish)
        if _without(options, again) == options:
            piece = remainder(wish, made, domain.SHAPE, verbatim)
            given = options if piece is None else {**options, "xml": text(piece)}
            again = {one for one in _not_made(wish, _made(given, root)) if one not in verbatim}
            if not again:
                return given
        verbatim |= again
        given = _without(given, again)


def _namesakes(wish: Element) -> list[Element]:
    """Interfaces that share a MAC address, and the like: no option tells them apart."""
    devices = [one for one in wish.findall("devices/*") if overlay.identity(one)]
    count = collections.Counter((one.tag, overlay.identity(one)) for one in devices)
    return [one for one in devices if count[one.tag, overlay.identity(one)] > 1]


def _with_like(devices: t.Collection[Element], wish: Element) -> set[Element]:
    """Also those that say the same, or have an identity and say the same and more."""
    alike = {overlay.signature_of(one): one for one in devices}
    found = {one for one in wish.findall("devices/*") if overlay.signature_of(one) in alike}
    others = [one for one in wish.findall("devices/*") if overlay.identity(one)]
    return found | {
        one for one in others for like in alike.values() if one.tag == like.tag and overlay.holds(one, like)
    }


def _nowhere(given: t.Mapping[str, t.Any], wish: Element) -> list[Element]:
    """Disks of which no option says where their bytes are: as an option, each would be a new one."""
    placed = {entry["name"] for entry in given.get("disks", []) if any(entry.get(option) for option in PLACES)}
    disks = [one for one in wish.findall("devices/disk") if one.get("device", "disk") in ("disk", "lun")]
    return [one for one in disks if disk.name_of(one) not in placed]


def _not_made(wish: Element, made: Element) -> list[Element]:
    """Devices that are not made."""
    there = overlay.Children(made.find("devices"))
    devices = wish.find("devices")
    return [] if devices is None else [one for one in overlay.told_apart_first(devices) if not there.has(one)]


def _without(given: t.Mapping[str, t.Any], devices: t.Collection[Element]) -> dict[str, t.Any]:
    """The options without what they say of some devices."""
    rest, tags = dict(given), {one.tag for one in devices}
    for field, one in domain.DOMAIN.items():
        option, tag = field.split(".")[0], f"{one.path}/".split("/")[1]
        if option not in rest or tag not in tags or not one.path.startswith("devices/"):
            continue
        if isinstance(one, Items):
            names = {one.name(device) for device in devices if device.tag == tag}
            kept = [entry for entry in rest[option] if one.named(entry) not in names or entry.get("state") == "absent"]
            rest[option] = kept
        else:
            rest.pop(option)
    if "graphics" in tags:
        rest.pop("graphics", None)
    return rest


def _lost(given: t.Mapping[str, t.Any], root: Element, wish: Element) -> list[dict[str, str]]:
    """What is not made by the arguments."""
    rest = remainder(wish, _made(given, root), domain.SHAPE)
    if rest is None:
        return []
    return [{"path": path_of(one), "why": "no option says it"} for one in rest.iter(t.cast(t.Any, "*")) if not len(one)]


def _accepted(given: dict[str, t.Any]) -> dict[str, t.Any]:
    """Without the options that are refused: libvirt takes what we do not."""
    if _fits(given):
        return given
    fitting: dict[str, t.Any] = {"name": given["name"]}
    for option in sorted(set(given) - {"name"}):
        if _fits({**fitting, option: given[option]}):
            fitting[option] = given[option]
    return fitting


def _fitting(given: dict[str, t.Any], root: Element) -> dict[str, t.Any]:
    """Without what is refused beside the other options of a new guest: libvirt holds what we refuse to make."""
    while True:
        result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(given))
        guest, bare = wanted(result.validated_parameters), text(_bare(given, root))
        misfits = validate.misfits(bare, guest, domain.graft(bare, completed(guest, {})))
        fewer = given
        for place, _reason in misfits:
            fewer = less(fewer, place)
        if fewer == given:
            return given
        given = fewer


def less(given: dict[str, t.Any], place: str, above: str = "") -> dict[str, t.Any]:
    """Without what a place names (`disks[vda].io`, `boot.cmdline`): the entry of a list, or else the option."""
    option, _brackets, name, within = re.fullmatch(r"(\w+)(\[(.*?)\])?\.?(.*)", place).groups()  # type: ignore[union-attr]
    where = f"{above}{option}"
    one, value, rest = domain.DOMAIN.get(where), given.get(option), {**given}
    rest.pop(option, None)
    if isinstance(value, dict) and within:
        return {**rest, option: less(value, within, f"{where}.")}
    if isinstance(value, list) and isinstance(one, Items) and name is not None:
        return {**rest, option: [entry for entry in value if one.named(entry) != name]}
    return rest


def _fits(given: t.Mapping[str, t.Any]) -> bool:
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(given))
    try:
        return not result.error_messages and bool(wanted(result.validated_parameters))
    except BadInput:
        return False
