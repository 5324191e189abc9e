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
from ansible_collections.corral.virt.plugins.module_utils._front.options import words
from ansible_collections.corral.virt.plugins.module_utils._model.domain import PLACES
from ansible_collections.corral.virt.plugins.module_utils._plan.display import beyond_loopback
from ansible_collections.corral.virt.plugins.module_utils._plan.new_guest import completed
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
    said = _said(root)
    if shown and root.find("devices/graphics") is display:
        said["graphics"] = shown
    said = _accepted({"name": root.findtext("name"), **said, "autostart": autostart})
    if root.get("type") in ("kvm", "qemu"):
        said["virt_type"] = root.get("type")
    said = _fitting(said, root)
    wish = stripped(domain.spelt_out(root))
    said = _completed(_with_absences(said, root), root, wish)
    left += _lost(said, root, wish)
    if least:
        said = minimal(said, lambda rest: _made(rest, root))
    return Import({**said, **({"uuid": root.findtext("uuid")} if uuid else {})}, withheld, left)


def _said(root: Element) -> dict[str, t.Any]:
    """What options say of it."""
    said = words(domain.DOMAIN, domain.read_fields(text(root)))
    said["disks"] = [entry for entry in said.get("disks", []) if entry["name"] != "seed"]
    said["interfaces"] = said.get("interfaces", [])
    if "serials" in said:
        said.pop("serial", None)
    # the others are serial ports
    said["consoles"] = [console for console in said.get("consoles", []) if console.get("target")]
    if "channels" in said and root.xpath("devices/channel[not(target/@name)]"):
        said["channels"] = [channel for channel in said["channels"] if channel["name"] != "None"]
    if root.find("os").get("firmware"):  # by which libvirt chooses the loader
        said.pop("loader", None)
        said.get("nvram", {}).pop("template", None)
    elif "loader" in said:
        said.pop("firmware", None)
        said.pop("secure_boot", None)
    return {option: value for option, value in said.items() if value not in ({}, None)}


def _display(display: Element) -> dict[str, t.Any]:
    """The options of the first display."""
    if display.get("type") not in ("vnc", "spice"):
        return {}
    shown = words(graphics.GRAPHICS, row.read(display, graphics.GRAPHICS))
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
    told = [
        {"path": path_of(one), "why": why, **({"option": "graphics"} if one is withheld else {})}
        for one, why in gone.items()
    ]
    for one in gone:
        one.getparent().remove(one)
    return told


def _others(root: Element, kind: str, gone: t.Container[Element]) -> bool:
    return any(one not in gone for one in root.findall(f"devices/graphics[@type='{kind}']"))


def _with_absences(said: dict[str, t.Any], root: Element) -> dict[str, t.Any]:
    """Also what a new guest would have and this one has not."""
    bare, found = (row.read(domain.spelt_out(one), domain.DOMAIN) for one in (_bare(said, root), root))
    for field, one in domain.DOMAIN.items():
        value: t.Any = None
        if isinstance(one, Items) and field != "consoles":
            names = [one.named(entry) for entry in found.get(field, ())]
            gone = [entry for entry in bare.get(field, ()) if one.named(entry) not in names]
            value = [{**{key: entry[key] for key in one.keys}, "state": "absent"} for entry in gone]
            value = [*said.get(field.split(".")[0], []), *value] if "." not in field and value else value
            if "." in field and value:
                value = [*_dig(said, field), *value]
        elif isinstance(one, Presence) and bare.get(field) and found.get(field) is None:
            value = "none"
        elif isinstance(one, Flag) and bare.get(field) and not found.get(field):
            value = False
        if value not in (None, []):
            *way, last = field.split(".")
            place = said
            for step in way:
                place = place.setdefault(step, {})
            place[last] = value
    return said


def _dig(said: dict[str, t.Any], field: str) -> list[t.Any]:
    place: t.Any = said
    for step in field.split("."):
        place = (place or {}).get(step)
    return place or []


def _bare(said: t.Mapping[str, t.Any], root: Element) -> Element:
    """A guest that is made now, before anything is said of it."""
    kind = root.find("os/type")
    return parse(
        new.domain(
            name=root.findtext("name"),
            uuid=root.findtext("uuid") or "",
            virt_type=root.get("type") or "",
            arch="" if kind is None else kind.get("arch") or "",
            machine="" if kind is None else kind.get("machine") or "",
            without=new.brought(said.get("xml")),
            ports=not any(one.get("type") == "pci" for one in said.get("controllers", ())),
        )
    )


def _made(said: t.Mapping[str, t.Any], root: Element) -> Element:
    """What the arguments make where the guest is not."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
    return parse(domain.graft(text(_bare(said, root)), completed(wanted(result.validated_parameters), {})).xml)


def _completed(said: dict[str, t.Any], root: Element, wish: Element) -> dict[str, t.Any]:
    """The options with the rest beside them in libvirt's own words.

    A device that has no identity, or that both together do not make, is told in those words alone.
    """
    whole = {*_nowhere(said, wish), *_namesakes(wish)}
    said = _without(said, whole)
    while True:
        plain = {option: value for option, value in said.items() if option != "xml"}
        made = _made(plain, root)
        again = _with_like({one for one in _left(wish, made) if not overlay.identity(one)}, wish)
        if _without(plain, again) == plain:
            piece = remainder(wish, made, domain.SHAPE, whole)
            said = plain if piece is None else {**plain, "xml": text(piece)}
            again = {one for one in _left(wish, _made(said, root)) if one not in whole}
            if not again:
                return said
        whole |= again
        said = _without(said, again)


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


def _nowhere(said: t.Mapping[str, t.Any], wish: Element) -> list[Element]:
    """Disks of which no option says where their bytes are: as an option, each would be a new one."""
    told = {entry["name"] for entry in said.get("disks", []) if any(entry.get(option) for option in PLACES)}
    disks = [one for one in wish.findall("devices/disk") if one.get("device", "disk") in ("disk", "lun")]
    return [one for one in disks if disk.name_of(one) not in told]


def _left(wish: Element, made: Element) -> list[Element]:
    """Devices that are not made."""
    there = overlay.Children(made.find("devices"))
    devices = wish.find("devices")
    return [] if devices is None else [one for one in overlay.told_apart_first(devices) if not there.has(one)]


def _without(said: t.Mapping[str, t.Any], devices: t.Collection[Element]) -> dict[str, t.Any]:
    """The options without what they say of some devices."""
    rest, tags = dict(said), {one.tag for one in devices}
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


def _lost(said: t.Mapping[str, t.Any], root: Element, wish: Element) -> list[dict[str, str]]:
    """What is not made by the arguments."""
    rest = remainder(wish, _made(said, root), domain.SHAPE)
    if rest is None:
        return []
    return [{"path": path_of(one), "why": "no option says it"} for one in rest.iter(t.cast(t.Any, "*")) if not len(one)]


def _accepted(said: dict[str, t.Any]) -> dict[str, t.Any]:
    """Without the options that are refused: libvirt takes what we do not."""
    if _fits(said):
        return said
    fitting: dict[str, t.Any] = {"name": said["name"]}
    for option in sorted(set(said) - {"name"}):
        if _fits({**fitting, option: said[option]}):
            fitting[option] = said[option]
    return fitting


def _fitting(said: dict[str, t.Any], root: Element) -> dict[str, t.Any]:
    """Without what is refused beside the other options of a new guest: libvirt holds what we refuse to make."""
    while True:
        result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
        guest, bare = wanted(result.validated_parameters), text(_bare(said, root))
        misfits = validate.misfits(bare, guest, domain.graft(bare, completed(guest, {})))
        fewer = said
        for place, _reason in misfits:
            fewer = less(fewer, place)
        if fewer == said:
            return said
        said = fewer


def less(said: dict[str, t.Any], place: str, above: str = "") -> dict[str, t.Any]:
    """Without what a place names (`disks[vda].io`, `boot.cmdline`): the entry of a list, or else the option."""
    option, _, name, within = re.fullmatch(r"(\w+)(\[(.*?)\])?\.?(.*)", place).groups()  # type: ignore[union-attr]
    where = f"{above}{option}"
    one, value, rest = domain.DOMAIN.get(where), said.get(option), {**said}
    rest.pop(option, None)
    if isinstance(value, dict) and within:
        return {**rest, option: less(value, within, f"{where}.")}
    if isinstance(value, list) and isinstance(one, Items) and name is not None:
        return {**rest, option: [entry for entry in value if one.named(entry) != name]}
    return rest


def _fits(said: t.Mapping[str, t.Any]) -> bool:
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(dict(said))
    try:
        return not result.error_messages and bool(wanted(result.validated_parameters))
    except BadInput:
        return False
