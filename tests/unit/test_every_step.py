"""Every step of every noun has exactly one doer: none is reported as done because nobody knows it."""

from __future__ import annotations

import importlib
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.gate import Looked
from ansible_collections.corral.virt.plugins.module_utils._core.step import Step
from ansible_collections.corral.virt.plugins.module_utils._noun.libvirt_api import ObjectApi
from ansible_collections.corral.virt.tests.tools import payload

PLUGINS = payload.ROOT / "plugins"
ROOMS = ("module_utils", "modules", "plugin_utils", "action")

# What several steps have in common; nobody plans one.
BASES = {
    "_backup.plan_backup_steps.BackupStep",
    "_storage.plan_clone_steps.CloneStep",
    "_storage.plan_clone_steps._Sized",
    "_host.plan_host_steps.HostStep",
    "_image.plan_image.ImageStep",
    "_migration.plan_migrate.MigrateStep",
    "_migration.plan_migrate._OfDisk",
    "_migration.plan_migrate._OfSnapshots",
    "_noun.plan_noun.NounStep",
    "_power.plan_power_steps.GuestStep",
    "_storage.plan_mount.MountStep",
    "_snapshot.plan_snapshot_steps.SnapshotStep",
    "_storage.plan_disk_steps._OfVolume",
}

# Steps in no table: whoever passes them to the gate passes their doer with them.
WITH_THEIR_DOER = {
    "_authority.authorities.MakeAuthority": "the CA's directory is the state of the object that does it",
    "_authority.authorities.ProtectKey": "the same",
    "_authority.authority_records.Revoke": "the same",
    "_authority.authority_records.TakeOver": "the same",
    "_migration.plan_migrate.Abort": "it is done beside the run that it ends, which has the table",
    "_migration.plan_migrate.Clear": "it needs what was seen before it",
    "_migration.plan_migrate.GiveUp": "the same",
    "_migration.plan_migrate.Reconcile": "the same",
}

# Steps with several doers: each entry stands in as many tables.
SEVERAL = {
    "_host.plan_host_steps.WriteFile": (4, "a firewall's file is checked by its program, a daemon's has a mode"),
    "_noun.plan_noun.Start": (2, "a pool's directory may be missing"),
    "_tls.plan_tls.Request": (2, "a host sends its request away; the controller signs its own at once"),
    "_tls.plan_tls.SetMode": (2, "the files of a host, and those of the controller"),
    "_tls.plan_tls.SetTrust": (2, "the files of a host, and those of the controller"),
}


def _loaded() -> list[t.Any]:
    paths = [path for room in ROOMS for path in sorted((PLUGINS / room).rglob("*.py")) if path.name != "__init__.py"]
    return [
        importlib.import_module(payload.NAMESPACE + ".".join(path.relative_to(payload.ROOT).with_suffix("").parts))
        for path in paths
    ]


def name(kind: type) -> str:
    """How a class is called in the lists above."""
    return f"{kind.__module__.removeprefix(payload.NAMESPACE + 'plugins.')}.{kind.__qualname__}".removeprefix(
        "module_utils."
    ).removeprefix("plugin_utils.")


def _below(kind: type[Step]) -> set[type[Step]]:
    return {kind}.union(*map(_below, kind.__subclasses__()))


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(key, type) and issubclass(key, Step) for key in value)


def _tables(module: t.Any) -> t.Iterator[t.Mapping[t.Any, object]]:
    for value in vars(module).values():
        if _is_table(value):
            yield value
        if isinstance(value, ObjectApi) and value.own:
            yield value.own


MODULES = _loaded()
STEPS = sorted(_below(Step) - {Step}, key=name)
STEPS = [step for step in STEPS if step.__module__.startswith(payload.NAMESPACE + "plugins.")]


def doers() -> dict[type[Step], set[object]]:
    """Of each step; a table that contains another one, or is imported elsewhere, counts once."""
    found: dict[type[Step], set[object]] = {}
    for table in [table for module in MODULES for table in _tables(module)]:
        for step, doer in table.items():
            found.setdefault(step, set()).add(doer)
    return found


def test_a_step_has_a_text() -> None:
    silent = {step for step in STEPS if not step.template and step.__str__ is Step.__str__}
    assert {name(step) for step in silent} - set(BASES) == set(), "give it a template"


@pytest.mark.parametrize("step", STEPS, ids=name)
def test_a_step_has_one_doer(step: type[Step]) -> None:
    expected = 1
    if name(step) in BASES or name(step) in WITH_THEIR_DOER:
        expected = 0
    elif name(step) in SEVERAL:
        expected = SEVERAL[name(step)][0]
    found = len(doers().get(step, set()))
    assert found == expected, f"{name(step)} has {found} doers: give it a line in the table of its room"


def test_a_step_that_destroys_looks_again() -> None:
    """And only such a step: what a look is for stands with the step, where the guide's table is made from."""
    found = doers()
    careless = [
        name(step) for step in STEPS if step.look and not all(isinstance(doer, Looked) for doer in found.get(step, ()))
    ]
    assert careless == [], "give their doers a look: Looked(look, act)"
    idle = [
        name(step) for step in STEPS if not step.look and any(isinstance(doer, Looked) for doer in found.get(step, ()))
    ]
    assert idle == [], "say with the step what its doer looks at: look = Look(...)"


# Looks that compare nothing that their step carries. The list only gets shorter.
WITHOUT_IDENTITY = {
    "_storage.plan_clone_steps.Remove": "the plan of a disk without a guest does not ask which file it is",
}


def _has(kind: t.Any, field: str) -> bool:
    """Whether a step, or a value in it, has the field or property."""
    first, _dot, rest = field.partition(".")
    if not rest:
        return first in t.get_type_hints(kind) or isinstance(getattr(kind, first, None), property)
    return first in t.get_type_hints(kind) and _has(t.get_type_hints(kind)[first], rest)


def test_a_step_carries_what_its_look_compares() -> None:
    """Else a plan that is carried out later destroys what has the name by then."""
    looks = {name(step): (step, step.look.by) for step in STEPS if step.look}
    assert {step for step, (_kind, by) in looks.items() if not by} == set(WITHOUT_IDENTITY)
    assert [f"{step}.{field}" for step, (kind, by) in looks.items() for field in by if not _has(kind, field)] == []


def test_a_base_is_no_step_of_its_own() -> None:
    assert [name(step) for step in STEPS if name(step) in BASES and not step.__subclasses__()] == []


def test_the_lists_name_what_there_is() -> None:
    assert {*BASES, *WITH_THEIR_DOER, *SEVERAL} <= set(map(name, STEPS))


def test_tables_hold_nothing_but_steps() -> None:
    for module in MODULES:
        for table in _tables(module):
            assert set(table) <= set(STEPS) - {step for step in STEPS if name(step) in BASES}, module.__name__
