# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of secrets, and when a value is set. No step holds one."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Spec
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Case, NounPlan, NounStep
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._secret.fields_secret import (
    SECRET_SCHEMA,
    SHAPE,
    is_named,
    skeleton,
    uuid_of,
)
from ansible_collections.corral.virt.plugins.module_utils._secret.model_secret import value_of

_MOST_BYTES = 65536
Findings = t.Iterator[t.Union[VirtError, str]]


@dataclasses.dataclass(frozen=True)
class SetValue(NounStep):
    """Set the value of a secret; what it was before is lost. The value itself is in no step."""

    template = "set the value of {0.ref}"


ValueState = t.Literal["same", "other", "none", "private"]


class SecretHost(t.Protocol):
    """The host of a secret."""

    def value(self, given: bytes) -> ValueState:
        """How the secret's value compares with the given one; `private`: libvirt tells nobody."""

    def named(self, uuid: str) -> str | None:
        """The secret with this UUID, in words; None if there is none."""

    def documents(self) -> t.Iterable[tuple[str, str]]:
        """The documents of guests, stored and running, and of pools, each with its owner in words."""


def _problems(spec: Spec) -> t.Iterator[str]:
    try:
        if value_of(spec) == b"":
            yield f"value of secret {spec.name}: it must not be empty; omit it to leave the value alone"
        if len(value_of(spec) or b"") > _MOST_BYTES:
            yield f"value of secret {spec.name}: libvirt keeps at most {_MOST_BYTES} bytes"
        if spec.within == "none":
            units.uuid_of(spec.name, what="name")
    except BadInput as error:
        yield from error.problems
    if spec.within == "volume" and not spec.name.startswith("/"):
        yield f"name of secret {spec.name}: with usage volume it is the absolute path of the volume"


def _own(case: Case) -> list[NounStep]:
    given, update = value_of(case.spec), case.spec.own.get("update_value")
    if given is None:
        return []
    state = case.host.value(given) if case.found else "none"
    if state != "none" and update == "on_create":
        return []
    due = state in ("none", "other") or (state == "private" and update == "always")
    return [SetValue(case.ref(SECRET_SCHEMA.kind))] if due else []


def _takes_nobodys_uuid(case: Case, _plan: NounPlan) -> Findings:
    """Refuse a UUID that another secret has: libvirt would turn that one into this."""
    if case.spec.state == "absent" or case.found is not None:
        return
    other = case.host.named(uuid_of(case.spec))
    if other is not None:
        yield Refused(
            f"cannot create {case.ref(SECRET_SCHEMA.kind)}: {other} has the UUID {uuid_of(case.spec)}; choose another"
        )


def _stays_private(case: Case, _plan: NounPlan) -> Findings:
    if case.found and case.changed("private") and not case.stored.after.get("private"):
        yield Refused(
            f"cannot make {case.ref(SECRET_SCHEMA.kind)} readable: libvirt keeps a private secret private; omit "
            "private, or remove the secret and create it again with its value"
        )


def _tells_what_nobody_knows(case: Case, plan: NounPlan) -> Findings:
    """Note a value that may or may not be the given one, and a secret that comes without any."""
    given, ref = value_of(case.spec), case.ref(SECRET_SCHEMA.kind)
    sets = any(isinstance(step, SetValue) for step in plan.steps)
    if case.spec.state == "absent" or sets:
        return
    if case.found is None:
        yield f"{ref} has no value yet: what needs it cannot start; set value"
    elif given is not None and case.spec.own.get("update_value") == "on_change" and case.stored.before.get("private"):
        yield f"nobody can tell whether {ref} has the given value, as it is private; to set it: update_value: always"


def _keeps_its_users(case: Case, _plan: NounPlan) -> Findings:
    """Refuse to remove a secret that something names: it could not start, and its data would be unreadable."""
    if case.spec.state != "absent" or case.found is None or case.spec.force:
        return
    known = str(case.found.uuid), str(case.spec.within), case.spec.name
    users = {user for user, document in case.host.documents() if is_named(document, *known)}
    if users:
        yield Refused(
            f"cannot remove {case.ref(SECRET_SCHEMA.kind)}: {some_of(sorted(users), 4)} need it; remove these first, "
            "or set force: true if its value is kept elsewhere"
        )


SECRET = Noun(
    schema=SECRET_SCHEMA,
    shape=SHAPE,
    skeleton=skeleton,
    rules=(_takes_nobodys_uuid, _stays_private, _tells_what_nobody_knows, _keeps_its_users),
    made=lambda values: "(private)" if values.get("private") else "",
    shown=("description", "private"),
    own=_own,
    problems=_problems,
    row=lambda case, _plan: {"uuid": case.found.uuid if case.found else uuid_of(case.spec)},
)
