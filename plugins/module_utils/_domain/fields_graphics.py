# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of the remote display."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Display
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Row, silent_is
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, drop, make

_PORT = k.integer(5900, 65535, also=(-1,))


class Tls(Row):
    """SPICE: all channels over TLS, or none forced to it."""

    def read(self, element: Element) -> t.Any:
        """True if only TLS is allowed; None for VNC, where the host decides for all guests."""
        return (
            element.get("defaultMode") == "secure"
            if element.get("type") == "spice" or element.get("defaultMode")
            else None
        )

    def write(self, element: Element, value: t.Any) -> None:
        """Set the default mode of the channels."""
        if value:
            element.set("defaultMode", "secure")
        else:
            element.attrib.pop("defaultMode", None)


def _forget_type(device: Element) -> None:
    """Remove SPICE's channels, compression, clipboard and so on, which do not apply to VNC."""
    device.attrib.pop("defaultMode", None)
    drop([part for part in device if part.tag != "listen"])


def _forget_expiry(device: Element) -> None:
    """The time until which the former password was valid, after which nobody is let in."""
    device.attrib.pop("passwdValidTo", None)


# Not a secret, whatever its name suggests to checkers.
_KEYMAP = k.matching(r"[a-z]{2}(-[a-z]{2})?", "must be a keymap such as en-us or de", no_log=False)
_SPICE, _VNC = {"type": ("spice",)}, {"type": ("vnc",)}
GRAPHICS: row.Table = {
    "type": Row("./@type", k.choice("vnc", "spice", "none"), on_change=_forget_type),
    "autoport": Row("./@autoport", k.YESNO, same=silent_is(False)),
    "port": Row("./@port", _PORT),
    "tls_port": Row("./@tlsPort", _PORT, valid_with=_SPICE),
    "tls": Tls("./@defaultMode", k.YESNO, same=silent_is(False), valid_with=_SPICE),
    "websocket": Row("./@websocket", _PORT, valid_with=_VNC),
    "listen": Row("listen/@address", k.HOST),
    "password": Row("./@passwd", k.LINE, secret=True, on_change=_forget_expiry),
    "keymap": Row("./@keymap", _KEYMAP),
    "share_policy": Row("./@sharePolicy", k.choice("allow-exclusive", "force-shared", "ignore"), valid_with=_VNC),
}


def check(values: row.Values) -> t.Iterator[tuple[str, str]]:
    """Further violations of a display: place and reason."""
    if values.get("type") == "vnc" and len(values.get("password") or "") > 8:
        yield "graphics.password", "VNC uses only 8 characters; set at most 8"


def read_all(root: Element) -> list[dict[str, t.Any]]:
    """Every display; the password is left out."""
    found = [row.read(device, GRAPHICS) for device in root.findall("devices/graphics")]
    return [{field: value for field, value in values.items() if field != "password"} for values in found]


def displays(root: Element) -> list[Display]:
    """Every display that listens, with what tells who can reach it."""
    return [display(device) for device in root.findall("devices/graphics") if device.get("type") in ("vnc", "spice")]


def display(device: Element) -> Display:
    """A display as `displays` returns it."""
    listens = [one.get("address") or "" for one in device.findall("listen[@type='address']")]
    listens += [
        one.get("address") or f"network {one.get('network')}" for one in device.findall("listen[@type='network']")
    ]
    if device.find("listen") is None and not device.get("socket"):
        listens.append(device.get("listen") or "")
    tls = device.get("type") == "spice" and device.get("defaultMode") == "secure"
    return Display(device.get("type"), tuple(listens), bool(device.get("passwd")), tls)


def first(root: Element, kind: str | None = None) -> Element | None:
    """The first display of this type, else the first; None if there is none."""
    found = root.findall("devices/graphics")
    return next((one for one in found if one.get("type") == kind), found[0] if found else None)


def graft(root: Element, wanted: t.Mapping[str, t.Any]) -> list[Change]:
    """Edit the display of the wanted type, else the first.

    Create it (on loopback) if there is none; remove all for type `none`.
    """
    devices = child(root, "devices")
    device = first(root, wanted.get("type"))
    if wanted.get("type") == "none":
        gone = devices.findall("graphics")
        drop(gone)
        return [Change("graphics", ", ".join(found.get("type") for found in gone), None)] if gone else []
    if device is None:
        device = make(devices, "graphics", type=wanted.get("type") or "vnc", autoport="yes")
        child(device, "listen").set("type", "address")
        row.graft(device, GRAPHICS, {"listen": "127.0.0.1", **wanted})
        return [Change("graphics", None, device.get("type"))]
    changes = row.graft(device, GRAPHICS, wanted, "graphics.")
    if any(change.where == "graphics.listen" for change in changes):
        # libvirt prints the address twice and refuses a definition in which the two differ.
        device.attrib.pop("listen", None)
        child(device, "listen").set("type", "address")
    return changes
