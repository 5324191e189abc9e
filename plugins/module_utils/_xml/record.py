# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""What the collection remembers of a guest, in libvirt's <metadata> under our namespace. It travels with the guest."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._model.domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml import row
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Many, Row
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, child, parse, resolve, text

__all__ = ["RECORD", "document", "of", "read", "update"]

RECORD: row.Table = {
    "seed": Row("metadata/corral:guest/corral:seed/@sha256"),
    "instance_id": Row("metadata/corral:guest/corral:seed/@instance-id"),
    "ssh_host_key": Row("metadata/corral:guest/corral:ssh-host-key"),
    "addresses": Many("metadata/corral:guest/corral:address"),
    "volumes": Many("metadata/corral:guest/corral:volume"),  # made by us, so ours to remove
    "balloon_kib": Row("metadata/corral:guest/corral:balloon/@kib", k.INT),  # asked of a guest that did not follow
    "copy_of": Row("metadata/corral:guest/corral:copy/@of"),  # UUID of the guest that it was made a copy of
    "copying": Many("metadata/corral:guest/corral:copying"),  # of the paths being made, those that are to be copies
    "making": Many("metadata/corral:guest/corral:making"),  # being made: not there, or not complete
    "moving": Row("metadata/corral:guest/corral:moving"),  # to which host
    "moving_from": Row("metadata/corral:guest/corral:moving/@from"),  # UUID of the host it comes from
    "moving_paused": Row("metadata/corral:guest/corral:moving/@paused"),  # it was paused before
    "moving_suspends": Row("metadata/corral:guest/corral:moving/@suspends"),  # the migration itself may suspend it
    "moving_autostart": Row("metadata/corral:guest/corral:moving/@autostart"),
    # when, by the source's clock: its copy had ended for good
    "moving_let_run": Row("metadata/corral:guest/corral:moving/@let-run"),
    "moving_made": Many("metadata/corral:guest/corral:moving-made"),  # what the move made there: `Made`
    "moving_goes": Many("metadata/corral:guest/corral:moving-goes"),  # what goes from the source when it has arrived
    "seen": Many("metadata/corral-seen:guest/corral-seen:at"),  # addresses at which it was seen: `Sighting`
}


def read(xml: str) -> dict[str, t.Any]:
    """Everything we remember of the guest."""
    return row.read(parse(xml), RECORD)


def of(guest: FoundGuest | None) -> dict[str, t.Any]:
    """The same of a guest, as it runs if it does; empty where there is none."""
    return read(guest.live_xml or guest.xml) if guest else {}


def document(root: Element) -> str:
    """Our whole element (tags included) as libvirt's metadata call takes it: without the namespace, which libvirt
    puts on itself.
    """
    mark = root.find("metadata/" + resolve("corral:guest"))
    if mark is None:
        return ""
    plain = copy.deepcopy(mark)
    for element in plain.iter():
        element.tag = element.tag.rpartition("}")[2]
    return text(plain, without_namespaces=True)


def update(xml: str, fields: t.Mapping[str, t.Any]) -> str:
    """Our element after `fields` were written into it."""
    root = parse(xml)
    child(root, "metadata")
    row.graft(root, RECORD, fields)
    return document(root)
