"""Between plan and act the world moves: what a look compares, and that the gate lets nothing pass it."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate, Looked
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_record
from ansible_collections.corral.virt.plugins.module_utils._xml.names import PREFIXES

_GUEST = """<domain type='qemu'>
  <name>web1</name>
  <uuid>5c1b0a52-90c4-4c8e-9a35-6a9f3d1d0001</uuid>
  <title>a b</title>
  <metadata>{}</metadata>
  <devices><disk type='file' device='disk'><source file='{}'/><target dev='vda' bus='virtio'/></disk></devices>
</domain>"""
_THEIRS = "<app:x xmlns:app='https://example.org/app'>1</app:x>"


def _document(*metadata: str, disk: str = "/images/a.qcow2") -> str:
    return _GUEST.format("".join(metadata), disk)


def test_our_own_record_does_not_change_who_a_guest_is() -> None:
    prefixed = _document(_recorded())
    assert fields_record.read(prefixed)["moving"] == "hyper2"
    assert fields_record.fingerprint(prefixed) == fields_record.fingerprint(_document())
    assert fields_record.fingerprint(prefixed.replace("<metadata>", "<metadata>\n    ")) == fields_record.fingerprint(
        _document()
    )


def _recorded() -> str:
    space = PREFIXES["corral"]
    return f"<corral:guest xmlns:corral='{space}'><corral:moving>hyper2</corral:moving></corral:guest>"


@pytest.mark.parametrize(
    "other",
    [
        _document(disk="/images/a.s1"),
        _document(_THEIRS),
        _document().replace("a b", "ab"),
        _document().replace("web1", "web2"),
    ],
)
def test_any_other_change_does(other: str) -> None:
    assert fields_record.fingerprint(other) != fields_record.fingerprint(_document())


@dataclasses.dataclass(frozen=True)
class _Burn(Step):
    what: str

    def __str__(self) -> str:
        return f"burn {self.what}"


def _looked(present: t.Mapping[str, str], held: list[str], burnt: list[str]) -> Looked:
    @contextlib.contextmanager
    def look(step: _Burn) -> t.Iterator[None]:
        if present[step.what] != "as planned":
            raise Refused(f"{step.what} is not as planned")
        held.append(step.what)
        yield
        held.remove(step.what)

    return Looked(look, lambda step: burnt.append(step.what) if step.what in held else None)


def test_what_changed_after_the_plan_is_not_destroyed() -> None:
    world = {"a": "as planned", "b": "as planned"}
    held: list[str] = []
    burnt: list[str] = []

    def meanwhile(step: Step) -> None:
        if str(step) == "burn b":
            world["b"] = "somebody needs it"

    gate = Gate(check_mode=False, meanwhile=meanwhile)
    with pytest.raises(Failed, match=r"b is not as planned \(already done: burn a\)"):
        gate.run([_Burn("a"), _Burn("b")], _looked(world, held, burnt))
    assert (burnt, held) == (["a"], [])


def test_check_mode_lets_nobody_act_meanwhile() -> None:
    acted: list[Step] = []
    Gate(check_mode=True, meanwhile=acted.append).run([_Burn("a")], lambda _step: None)
    assert acted == []
