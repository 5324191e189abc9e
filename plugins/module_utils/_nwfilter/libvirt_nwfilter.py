# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt API of network filters."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotOffered
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi, guests
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.model_nwfilter import NWFILTER_KIND

NWFILTER_TYPE = ObjectType(NWFILTER_KIND, "network filter", "VIR_ERR_NO_NWFILTER", lookup="nwfilterLookup")


def nwfilters(connection: Connection) -> list[tuple[Ref, t.Any]]:
    """libvirt's network filters; none where the driver has none."""
    with contextlib.suppress(NotOffered), explained("list the network filters of", connection.getURI()):
        return [(NWFILTER_KIND.ref(one.name()), one) for one in connection.listAllNWFilters()]
    return []


@dataclasses.dataclass(frozen=True)
class _Host:
    """The `NwfilterHost` behind a connection."""

    connection: Connection

    def filters(self) -> dict[str, str]:
        with explained("read the network filters of", self.connection.getURI()):
            return {ref.name: one.XMLDesc(0) for ref, one in nwfilters(self.connection)}

    def guests(self) -> list[tuple[str, tuple[str, ...]]]:
        return guests(self.connection)


API = ObjectApi(NWFILTER_TYPE, define="nwfilterDefineXML", host=lambda connection, _spec: _Host(connection))
