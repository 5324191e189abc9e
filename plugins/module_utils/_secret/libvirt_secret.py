# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libvirt API of secrets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hmac
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.errors import NotOffered
from ansible_collections.corral.virt.plugins.module_utils._core.object_ref import Ref
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import Connection, explained, libvirt
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi, guests
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_type import ObjectType
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import NounStep
from ansible_collections.corral.virt.plugins.module_utils._secret import plan_secret
from ansible_collections.corral.virt.plugins.module_utils._secret.model_secret import NUMBERS, SECRET_KIND, value_of


def _by_usage(connection: Connection, ref: Ref) -> t.Any:
    usage = ref.within.name if ref.within else "none"
    if usage == "none":
        return connection.secretLookupByUUIDString(ref.name)
    return connection.secretLookupByUsage(NUMBERS[usage], ref.name)


def secrets(connection: Connection) -> list[tuple[Ref, t.Any]]:
    """libvirt's secret objects; none where the driver has no secrets."""
    words = {number: usage for usage, number in NUMBERS.items()}
    listed, kind = [], SECRET_KIND
    with contextlib.suppress(NotOffered), explained("list the secrets of", connection.getURI()):
        found = connection.listAllSecrets()
        listed = [(one, words.get(one.usageType(), "none"), one.usageID(), one.UUIDString()) for one in found]
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

    def named(self, uuid: str) -> str | None:
        with explained("find secret", uuid):
            try:
                return f"secret {self.connection.secretLookupByUUIDString(uuid).usageID() or uuid}"
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_SECRET:
                    raise
        return None

    def documents(self) -> t.Iterator[tuple[str, str]]:
        for name, xmls in guests(self.connection):
            yield from ((f"guest {name}", xml) for xml in xmls)
        with explained("list the storage pools of", self.connection.getURI()):
            for pool in self.connection.listAllStoragePools():
                yield f"pool {pool.name()}", pool.XMLDesc(0)


_DOERS: dict[type[NounStep], t.Callable[[Spec, t.Any, t.Any], object]] = {
    plan_secret.SetValue: lambda spec, secret, _step: secret.setValue(value_of(spec))
}


def _told(_connection: Connection, spec: Spec) -> dict[type[NounStep], t.Callable[[t.Any, t.Any], object]]:
    return {kind: functools.partial(do, spec) for kind, do in _DOERS.items()}


SECRET_TYPE = ObjectType(SECRET_KIND, "secret", "VIR_ERR_NO_SECRET", lookup="secretLookup", by_name=_by_usage)
API = ObjectApi(
    SECRET_TYPE,
    define="secretDefineXML",
    host=lambda connection, spec: _Host(connection, SECRET_KIND.ref(spec.name, spec.within)),
    told=_told,
)
