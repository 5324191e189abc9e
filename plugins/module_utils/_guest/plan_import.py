# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An existing guest (made by hand, virt-manager or Salt) as the `virt_domain` arguments that describe it.

Applied to the guest they change nothing; where it is missing, they create it again. The stages: withhold what needs a
secret, read the options, drop options that are refused alone and then together, add what a new guest would have and
this one lacks, put the rest into `xml`, and report what is lost.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import (
    fields_disk,
    fields_domain,
    fields_graphics,
    plan_snapshot_names,
    xml_new,
    xml_validate,
)
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import PLACES, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import (
    beyond_loopback,
    completed,
    suited,
)
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay, row
from ansible_collections.corral.virt.plugins.module_utils._xml.options import as_options
from ansible_collections.corral.virt.plugins.module_utils._xml.overlay import signature_of
from ansible_collections.corral.virt.plugins.module_utils._xml.remainder import path_of, remainder, stripped
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Flag, Items, Presence, Row, Table
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, drop, parse, text

Given = dict[str, t.Any]


# Arguments of a guest without what it has anyway: by the defaults of `virt_domain`, or of libvirt.
#
# It starts from a guest of which nearly nothing is said, and adds, round by round, what its document lacks.

Entries = list[Given]

# What libvirt writes where nobody says anything.
_LIBVIRT: t.Mapping[str, t.Any] = {
    "on_poweroff": "destroy",
    "on_reboot": "restart",
    "on_crash": "destroy",
    "balloon": {"model": "virtio"},
    "autostart": False,
}
_INSIDE = (("vcpus", "placement", "static"), ("serials", "target", "isa-serial"))
_INPUTS = ({"type": "mouse", "bus": "ps2"}, {"type": "keyboard", "bus": "ps2"})
_CONTROLLERS = ("ide", "sata", "fdc")  # it makes them for the disks that hang on them
_SPARE = [("0", "pcie-root"), *((str(number), "pcie-root-port") for number in range(1, 17))]  # of a bare guest
_STAY = ("name", "virt_type", "machine", "osinfo", "disks", "interfaces", "xml", "uuid")
_NUMBERS = ("vcpus", "memory")
_PLACE = ("device", "bus", *PLACES)  # without them, another disk is meant
_DISK = (("device", "disk"), ("bus", "virtio"))  # as a disk is anyway
_FIRST = ("type", "driver", "model", "mode", "bus")  # what others have anyway depends on them
_ROUNDS = 9  # an option inside an entry inside an option takes four


def minimal(given: Given, make: t.Callable[[Given], Element], told: t.Callable[[Element], Given]) -> Given:
    """The arguments without options that change nothing in the XML that `make` returns; `told` reads options from XML.

    Returns all arguments if fewer do not make the same.
    """
    given = _without_libvirts(copy.deepcopy(given))
    for option in _NUMBERS:
        sizes = given.get(option)
        if isinstance(sizes, dict) and set(sizes) == {"current", "maximum"} and sizes["current"] == sizes["maximum"]:
            given[option] = sizes["current"]
    complete = make(given)
    said, signature = told(complete), signature_of(complete)
    least = {option: _cores(option, value) for option, value in given.items() if option in _stay(given)}
    for _round in range(_ROUNDS):
        try:
            made = make(least)
        except BadInput:
            break
        if signature_of(made) == signature:
            return {option: least[option] for option in given if option in least}
        more = _with_lacking(least, given, said, told(made))
        if more == least:
            break
        least = more
    return given


def _stay(given: Given) -> tuple[str, ...]:
    """Options that are never left out, as others depend on them. With one PCI port listed, only listed ports exist."""
    ports = any(entry["type"] == "pci" for entry in given.get("controllers", ()))
    return (*_STAY, "controllers") if ports else _STAY


def _with_lacking(least: Given, given: Given, said: Given, told: Given) -> Given:
    """`least` with the options of `given` whose value a document (`told`) has not as required (`said`)."""
    more: Given = {}
    lacking = [option for option in given if said.get(option) != told.get(option)]
    first = [option for option in lacking if option in _FIRST and option not in least] or lacking
    for option, value in given.items():
        wanted, found = said.get(option), told.get(option)
        if option not in first:
            if option in least:
                more[option] = least[option]
        elif isinstance(value, dict):
            inner = [one if isinstance(one, dict) else {} for one in (least.get(option), wanted, found)]
            more[option] = _with_lacking(inner[0], value, *inner[1:])
        elif option in _LISTS and isinstance(value, list):
            lists = [one or [] for one in (least.get(option), wanted, found)]
            more[option] = _with_lacking_entries(option, lists[0], value, *lists[1:])
        else:
            more[option] = value
    return more


def _with_lacking_entries(option: str, least: Entries, given: Entries, said: Entries, told: Entries) -> Entries:
    """`_with_lacking` for a list: an entry that is missing starts with the keys that identify it."""
    keys = _LISTS[option].keys
    chosen, wanted, found = ({_name(keys, one): one for one in entries} for entries in (least, said, told))
    more = []
    for entry in given:
        name = _name(keys, entry)
        if wanted.get(name) == found.get(name):
            more += [chosen[name]] if name in chosen else []
        elif name in chosen:
            part = _with_lacking(chosen[name], entry, wanted.get(name, {}), found.get(name, {}))
            more.append({key: part[key] for key in entry if key in part})
        else:
            more.append(_core(option, entry))
    return more


def _name(keys: t.Iterable[str], entry: Given) -> tuple[t.Any, ...]:
    return tuple(entry.get(key) for key in keys)


def _cores(option: str, value: t.Any) -> t.Any:
    return [_core(option, entry) for entry in value] if option in _LISTS else value


def _core(option: str, entry: Given) -> Given:
    """The keys that identify an entry, and those without which it cannot be created."""
    one = _LISTS[option]
    kept = {*one.keys, *one.needed, "state", *(_PLACE if option == "disks" else ())}
    return {key: value for key, value in entry.items() if key in kept and (key, value) not in _DISK}


def _rows(table: Table) -> t.Iterator[tuple[str, Items]]:
    """All lists of entries in a table, by option."""
    for field, one in table.items():
        if isinstance(one, Items):
            yield field.rpartition(".")[2], one
            yield from _rows(one.table)


_LISTS: t.Mapping[str, Items] = dict(_rows(DOMAIN))


def _without_libvirts(given: Given) -> Given:
    """The arguments without what libvirt adds by itself."""
    for option, value in _LIBVIRT.items():
        if given.get(option) == value:
            given.pop(option)
    for option, key, value in _INSIDE:
        for entry in given[option] if isinstance(given.get(option), list) else [given.get(option) or {}]:
            if entry.get(key) == value:
                del entry[key]
    if "inputs" in given:  # none beside those: Windows would have a tablet where nothing is said
        given["inputs"] = [entry for entry in given["inputs"] if entry not in _INPUTS]
    added = _added_controllers(given) if "<controller" not in given.get("xml", "") else []
    given["controllers"] = [entry for entry in given.get("controllers", []) if entry not in added]
    return {option: value for option, value in given.items() if value != [] or option in (*_STAY, "inputs")}


def _added_controllers(given: Given) -> list[Given]:
    """Controllers that libvirt adds: for disks and channels, and the ports of a guest that lists none."""
    controllers = given.get("controllers", [])
    used = {disk.get("bus") for disk in given.get("disks", [])} & set(_CONTROLLERS)
    used |= {"virtio-serial"} if any(one.get("state") != "absent" for one in given.get("channels", [])) else set()
    added = [entry for entry in controllers if entry["type"] in used and len(entry) == 2]
    ports = [entry for entry in controllers if entry["type"] == "pci"]
    return [*added, *ports] if _are_spare(ports) else added


def _are_spare(ports: t.Sequence[Given]) -> bool:
    """True if these are the ports of a guest that was just created."""
    spare = [(str(entry["index"]), entry.get("model")) for entry in ports if "state" not in entry]
    return spare in ([], [("0", "pci-root")], _SPARE)


# What of a guest that exists is not made without a secret: it is taken out of its document, and named.

Reasons = dict[Element, str]

_OF_SPICE = "devices/*[@type='spicevmc' or @type='spiceport'] | devices/audio[@type='spice']"
# An argument of QEMU's is half of an option.
_DEVICE = "ancestor-or-self::*[parent::devices] | self::*[local-name()='arg']/.."


def withhold(root: Element, display: Element | None) -> list[dict[str, str]]:
    """Remove what must not be created without a secret, and what depends on it; returns a note on each.

    `display` is the one that an option describes without its secret; its note names that option.
    """
    gone = _displays(root)
    gone.update(_of_spice(root, gone))
    for one, why in _with_secrets(root).items():
        gone.setdefault(one, why)
    gone = {one: why for one, why in gone.items() if gone.keys().isdisjoint(one.iterancestors())}
    notes = [_note(one, why, described=one is display) for one, why in gone.items()]
    drop(gone)
    return notes


def _displays(root: Element) -> Reasons:
    """Displays that would be open to more people than they are now, each with the reason."""
    gone = {}
    for display in root.findall("devices/graphics"):
        if display.get("passwd"):
            gone[display] = "it has a password, and would be open without it"
        elif beyond_loopback(fields_graphics.display(display)):
            gone[display] = "others than its host may reach it"
    return gone


def _of_spice(root: Element, gone: Reasons) -> Reasons:
    """Devices that need a SPICE display, if the last one is removed."""
    left = [one for one in root.findall("devices/graphics[@type='spice']") if one not in gone]
    if left or not any(one.get("type") == "spice" for one in gone):
        return {}
    return dict.fromkeys(root.xpath(_OF_SPICE), "it needs a display by SPICE")


def _with_secrets(root: Element) -> Reasons:
    """Elements that hold a secret, or the device that contains one."""
    found = {}
    for one in root.iter(t.cast(t.Any, "*")):
        if one.tag != "secret" and overlay.has_secret(one):
            device = one.xpath(_DEVICE)
            found[device[0] if device else one] = "it holds a secret"
    return found


def _note(one: Element, why: str, *, described: bool) -> dict[str, str]:
    return {"path": path_of(one), "why": why, **({"option": "graphics"} if described else {})}


_SILENT = {"firmware": "bios", "secure_boot": False}  # what a guest has where nobody says it


@dataclasses.dataclass(frozen=True)
class OptionCheck:
    """How the options of a guest are checked where they are declared."""

    accepts: t.Callable[[t.Mapping[str, t.Any]], bool]  # none of them is refused
    spec: t.Callable[[t.Mapping[str, t.Any]], GuestSpec]  # what they ask for; raises BadInput


@dataclasses.dataclass(frozen=True)
class Import:
    """What a definition says: arguments, those withheld as they need a secret, and what is not imported."""

    arguments: Given
    withheld: Given
    not_imported: list[dict[str, str]]  # path and why, and which option of those withheld describes it


def imported(xml: str, options: OptionCheck, *, autostart: bool, least: bool = False, uuid: bool = False) -> Import:
    """The options that describe the guest of a definition, which includes its secrets.

    `least` leaves out what defaults give; `uuid` adds the UUID.
    """
    root = parse(xml)
    withheld, shown, left = _withheld(root)
    given = {"name": root.findtext("name"), **_given(root), **shown, "autostart": autostart}
    given = _accepted(given, options)
    if root.get("type") in ("kvm", "qemu"):
        given["virt_type"] = root.get("type")
    given = _fitting(given, root, options)
    wish = stripped(fields_domain.spelt_out(root))
    given = _whole(_with_absences(given, root, options), root, wish, options)
    left += _lost(given, root, wish, options)
    if least:
        given = minimal(given, lambda rest: _made(rest, root, options), _told)
    return Import({**given, **({"uuid": root.findtext("uuid")} if uuid else {})}, withheld, left)


def of_snapshots(names: t.Sequence[str]) -> list[dict[str, str]]:
    """What the arguments of a guest with these snapshots do not describe."""
    why = f"{plan_snapshot_names.named(names)}: the arguments name the file that is on top of each disk now"
    return [{"path": "/domainsnapshot", "why": why}] if names else []


def _withheld(root: Element) -> tuple[Given, Given, list[dict[str, str]]]:
    """Options that need a secret, options of a display without one, and notes on what the document loses."""
    display = fields_graphics.first(root)
    shown = _display(display) if display is not None else {}
    secret = display is not None and bool(display.get("passwd"))
    notes = withhold(root, display if secret else None)
    stays = bool(shown) and root.find("devices/graphics") is display
    return {"graphics": shown} if secret else {}, {"graphics": shown} if stays else {}, notes


def _display(display: Element) -> Given:
    """The options of a display; empty if it is neither VNC nor SPICE."""
    if display.get("type") not in ("vnc", "spice"):
        return {}
    shown = as_options(fields_graphics.GRAPHICS, row.read(display, fields_graphics.GRAPHICS))
    chosen = ("port", "tls_port") if shown.pop("autoport", False) else ()
    return {key: value for key, value in shown.items() if value != -1 and key not in chosen}


def _told(root: Element) -> Given:
    """The options that describe a document, its first display included."""
    told, display = (
        as_options(fields_domain.DOMAIN, row.read(fields_domain.spelt_out(root), fields_domain.DOMAIN)),
        fields_graphics.first(root),
    )
    return told if display is None else {**told, "graphics": _display(display)}


def _given(root: Element) -> Given:
    """The options that describe a document, as the module takes them."""
    given = as_options(fields_domain.DOMAIN, fields_domain.read_fields(text(root)))
    given["disks"] = [entry for entry in given.get("disks", []) if entry["name"] != "seed"]
    given["interfaces"] = given.get("interfaces", [])
    _leave_one_of_serials(given)
    if "channels" in given and root.xpath("devices/channel[not(target/@name)]"):
        given["channels"] = [channel for channel in given["channels"] if channel["name"] != "None"]
    _leave_one_of_firmware(given, by_libvirt=bool(root.find("os").get("firmware")))
    return {option: value for option, value in given.items() if value not in ({}, None)}


def _leave_one_of_serials(given: Given) -> None:
    if "serials" in given:
        given.pop("serial", None)
    # the others are serial ports
    given["consoles"] = [console for console in given.get("consoles", []) if console.get("target")]


def _leave_one_of_firmware(given: Given, *, by_libvirt: bool) -> None:
    """Keep the loader, or the options by which libvirt chooses it."""
    if by_libvirt:
        given.pop("loader", None)
        given.get("nvram", {}).pop("template", None)
    elif "loader" in given:
        given.pop("firmware", None)
        given.pop("secure_boot", None)


def _with_absences(given: Given, root: Element, options: OptionCheck) -> Given:
    """The options, also with what a new guest of this system would have and this one lacks."""
    bare, found = (
        row.read(fields_domain.spelt_out(one), fields_domain.DOMAIN) for one in (_made(given, root, options), root)
    )
    for field, one in fields_domain.DOMAIN.items():
        value = _absence(one, bare.get(field), found.get(field)) if field != "consoles" else None
        if field in _SILENT and bare.get(field) and found.get(field) is None:
            value = _SILENT[field]
        if value is not None:
            *way, last = field.split(".")
            place = given
            for step in way:
                place = place.setdefault(step, {})
            place[last] = [*(place.get(last) or []), *value] if isinstance(value, list) else value
    return given


def _absence(one: Row, bare: t.Any, found: t.Any) -> t.Any:
    """The value that says that a new guest's default is missing: list entries or a scalar; None if it is not."""
    if isinstance(one, Items):
        names = [one.named(entry) for entry in found or ()]
        gone = [entry for entry in bare or () if one.named(entry) not in names]
        return [{**{key: entry[key] for key in one.keys}, "state": "absent"} for entry in gone] or None
    if isinstance(one, Presence):
        return "none" if bare and found is None else None
    return False if isinstance(one, Flag) and bare and not found else None


def _bare(given: t.Mapping[str, t.Any], root: Element) -> Element:
    """A new guest before any option is applied."""
    kind = root.find("os/type")
    said = {} if kind is None else kind.attrib
    return parse(
        xml_new.domain(
            name="",
            uuid="",
            virt_type=root.get("type", ""),
            arch=said.get("arch", ""),
            machine=said.get("machine", ""),
            without=xml_new.brought(given.get("xml")),
            ports=not any(one.get("type") == "pci" for one in given.get("controllers", ())),
        )
    )


def _made(given: t.Mapping[str, t.Any], root: Element, options: OptionCheck) -> Element:
    """The document that the arguments create where the guest does not exist."""
    return parse(fields_domain.graft(text(_bare(given, root)), _new(given, options)).xml)


def _new(given: t.Mapping[str, t.Any], options: OptionCheck) -> GuestSpec:
    """A new guest, with what its operating system needs."""
    return completed(suited(options.spec(given), xml_new.said(given.get("xml"))), {})


def _whole(given: Given, root: Element, wish: Element, options: OptionCheck) -> Given:
    """The options with the rest in `xml`. Options that are refused beside the rest (the path of a pipe, where no option
    says pipe) move to the rest.
    """
    while True:
        complete = _completed(given, root, wish, options)
        fitting = _fitting(complete, root, options)
        if fitting == complete:
            return complete
        given = {option: value for option, value in fitting.items() if option != "xml"}


def _completed(given: Given, root: Element, wish: Element, options: OptionCheck) -> Given:
    """The options with the rest in `xml`.

    A device without an identity, or that options and rest together do not make, is described in `xml` alone.
    """
    verbatim = {*_nowhere(given, wish), *_namesakes(wish)}
    given = _without(given, verbatim)
    while True:
        said = {option: value for option, value in given.items() if option != "xml"}
        made = _made(said, root, options)
        again = _with_like({one for one in _not_made(wish, made) if not overlay.identity(one)}, wish)
        if _without(said, again) == said:
            piece = remainder(wish, made, fields_domain.SHAPE, verbatim)
            given = said if piece is None else {**said, "xml": text(piece)}
            again = {one for one in _not_made(wish, _made(given, root, options)) if one not in verbatim}
            if not again:
                return given
        verbatim |= again
        given = _without(given, again)


def _namesakes(wish: Element) -> list[Element]:
    """Interfaces that share a MAC address, and the like: options cannot tell them apart."""
    devices = [one for one in wish.findall("devices/*") if overlay.identity(one)]
    count = collections.Counter((one.tag, overlay.identity(one)) for one in devices)
    return [one for one in devices if count[one.tag, overlay.identity(one)] > 1]


def _with_like(devices: t.Collection[Element], wish: Element) -> set[Element]:
    """The devices, and all that say the same, or that have an identity and say the same and more."""
    alike = {overlay.signature_of(one): one for one in devices}
    found = {one for one in wish.findall("devices/*") if overlay.signature_of(one) in alike}
    others = [one for one in wish.findall("devices/*") if overlay.identity(one)]
    return found | {
        one for one in others for like in alike.values() if one.tag == like.tag and overlay.holds(one, like)
    }


def _nowhere(given: t.Mapping[str, t.Any], wish: Element) -> list[Element]:
    """Disks whose storage no option names: as an option, each would be a new one."""
    placed = {entry["name"] for entry in given.get("disks", []) if any(entry.get(option) for option in PLACES)}
    disks = [one for one in wish.findall("devices/disk") if one.get("device", "disk") in ("disk", "lun")]
    return [one for one in disks if fields_disk.name_of(one) not in placed]


def _not_made(wish: Element, made: Element) -> list[Element]:
    """Wished devices that `made` lacks."""
    there = overlay.Children(made.find("devices"))
    devices = wish.find("devices")
    return [] if devices is None else [one for one in overlay.told_apart_first(devices) if not there.has(one)]


def _without(given: t.Mapping[str, t.Any], devices: t.Collection[Element]) -> Given:
    """The options without what describes these devices."""
    rest, tags = dict(given), {one.tag for one in devices}
    for field, one in fields_domain.DOMAIN.items():
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


def _lost(given: t.Mapping[str, t.Any], root: Element, wish: Element, options: OptionCheck) -> list[dict[str, str]]:
    """Paths of elements that the arguments do not create."""
    rest = remainder(wish, _made(given, root, options), fields_domain.SHAPE)
    if rest is None:
        return []
    return [{"path": path_of(one), "why": "no option says it"} for one in rest.iter(t.cast(t.Any, "*")) if not len(one)]


def _accepted(given: Given, options: OptionCheck) -> Given:
    """The options without refused ones: libvirt accepts what we do not."""
    if options.accepts(given):
        return given
    fitting: Given = {"name": given["name"]}
    for option in sorted(set(given) - {"name"}):
        if options.accepts({**fitting, option: given[option]}):
            fitting[option] = given[option]
    return fitting


def _fitting(given: Given, root: Element, options: OptionCheck) -> Given:
    """The options without those refused together: libvirt stores what we refuse to create."""
    while True:
        guest, bare = _new(given, options), text(_bare(given, root))
        violations = xml_validate.violations(bare, guest, fields_domain.graft(bare, guest))
        fewer = given
        for place, _reason in violations:
            fewer = less(fewer, place)
        if fewer == given:
            return given
        given = fewer


def less(given: Given, place: str, above: str = "") -> Given:
    """The options without the one at a place (`disks[vda].io`, `boot.cmdline`): the list entry, or else the option."""
    option, _brackets, name, within = re.fullmatch(r"(\w+)(\[(.*?)\])?\.?(.*)", place).groups()  # type: ignore[union-attr]
    where = f"{above}{option}"
    one, value, rest = fields_domain.DOMAIN.get(where), given.get(option), {**given}
    rest.pop(option, None)
    if isinstance(value, dict) and within:
        return {**rest, option: less(value, within, f"{where}.")}
    if isinstance(value, list) and isinstance(one, Items) and name is not None:
        return {**rest, option: [entry for entry in value if one.named(entry) != name]}
    return rest
