# Copyright (c) corral.virt contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the collection and may change at any time.
"""The libvirt API of secrets."""

from __future__ import annotations

import dataclasses
import hmac
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._domain import libvirt_query
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._secret import plan_secret
from ansible_collections.corral.virt.plugins.module_utils._secret.fields_secret import SECRET_SCHEMA
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import Element, parse

__all__ = ["API", "SECRET_TYPE", "secrets"]

_NUMBERS = {"none": 0, "volume": 1, "ceph": 2, "iscsi": 3, "tls": 4, "vtpm": 5}  # virSecretUsageType


def _by_usage(connection: Connection, ref: Ref) -> t.Any:
    usage = ref.within.name if ref.within else "none"
    if usage == "none":
        return connection.secretLookupByUUIDString(ref.name)
    return connection.secretLookupByUsage(_NUMBERS[usage], ref.name)


def secrets(connection: Connection) -> list[tuple[Ref, t.Any]]:
    """libvirt's secret objects; none where the driver has no secrets."""
    words = {number: usage for usage, number in _NUMBERS.items()}
    with explained("list the secrets of", connection.getURI()):
        try:
            found = connection.listAllSecrets()
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_SUPPORT:
                raise
            found = []
        listed = [(one, words.get(one.usageType(), "none"), one.usageID(), one.UUIDString()) for one in found]
    kind = SECRET_SCHEMA.kind
    return [(kind.ref(name if usage != "none" else uuid, usage, uuid), one) for one, usage, name, uuid in listed]


@dataclasses.dataclass(frozen=True)
class _Host:
    """The `SecretHost` behind a connection."""

    connection: Connection
    ref: Ref

    def value(self, given: bytes) -> plan_secret.ValueState:
        with explained("read the value of secret", self.ref.name):
            try:
                value = _by_usage(self.connection, self.ref).value()
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_SECRET:
                    return "none"
                if error.get_error_code() in (libvirt.VIR_ERR_INVALID_SECRET, libvirt.VIR_ERR_OPERATION_DENIED):
                    return "private"
                raise
        return "same" if hmac.compare_digest(value, given) else "other"

    def users(self, uuid: str, usage: str, name: str) -> list[str]:
        named = [
            *((f"guest {guest}", xml) for guest, xml in libvirt_query.of_all(self.connection, _guest)),
            *((f"pool {pool}", xml) for pool, xml in self._storage()),
        ]
        return list(dict.fromkeys(user for user, xml in named if _names(parse(xml), uuid, usage, name)))

    def _storage(self) -> t.Iterator[tuple[str, str]]:
        with explained("list the storage pools of", self.connection.getURI()):
            for pool in self.connection.listAllStoragePools():
                yield pool.name(), pool.XMLDesc(0)


def _guest(domain: t.Any) -> tuple[str, str]:
    """The name of a guest, and all its documents in one."""
    found = libvirt_query.found(domain)
    return found.name, f"<all>{found.xml}{found.live_xml or ''}</all>"


def _names(root: Element, uuid: str, usage: str, name: str) -> bool:
    """True if a document names the secret, by its UUID or by its usage."""
    by_uuid = {one.get("uuid") for one in root.iter("secret")} | {one.get("secret") for one in root.iter("encryption")}
    by_usage = {(one.get("type"), one.get("usage")) for one in root.iter("secret")}
    return uuid in by_uuid or any(used == name and kind in (usage, "passphrase") for kind, used in by_usage)


def _told(_connection: Connection, spec: Spec) -> dict[type[t.Any], t.Callable[[t.Any, t.Any], object]]:
    return {plan_secret.SetValue: lambda secret, _step: secret.setValue(plan_secret.value_of(spec))}


SECRET_TYPE = ObjectType(SECRET_SCHEMA.kind, "secret", "VIR_ERR_NO_SECRET", lookup="secretLookup", by_name=_by_usage)
API = ObjectApi(
    SECRET_TYPE,
    define="secretDefineXML",
    host=lambda connection, spec: _Host(connection, SECRET_SCHEMA.kind.ref(spec.name, spec.within)),
    told=_told,
)
