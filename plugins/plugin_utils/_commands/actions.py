# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action catalogue: what each playbook does and which arguments it takes. Pure."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
import typing as t

from ansible.module_utils.common.yaml import yaml_load

_HERE = os.path.dirname(__file__)
FILE = os.path.join(_HERE, "actions.yml")

Spec = dict[str, t.Any]  # as Ansible's modules declare their options

_WORDS: Spec = {"type": "list", "elements": "str"}
_PLACEMENT: Spec = {  # of the role guests
    "host": {"type": "str"},
    "apart": _WORDS,
    "together": _WORDS,
    "prefer": _WORDS,
    "host_groups": _WORDS,
    "requires": {"type": "dict"},
}


@functools.cache
def options(module: str) -> Spec:
    """The options of a module.

    Only called for actions that take them: importing them takes a tenth of a second in each task's worker.
    """
    if module == "virt_migrate":
        from ansible_collections.corral.virt.plugins.module_utils._migration import run_migration_options

        return run_migration_options.OPTIONS
    if module != "virt_domain":
        raise KeyError(module)
    from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS

    return {**GUEST_OPTIONS, "networks": GUEST_OPTIONS["interfaces"], **_PLACEMENT}


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of a playbook: name, type and meaning."""

    name: str
    spec: Spec  # type, elements, choices, default: as Ansible's modules declare it
    description: str = ""
    required: bool = False
    minimum: int | None = None
    kind: str | None = None  # of what it names: guest, host, image, group, pool, volume, disk, snapshot
    existing: bool = False  # a guest that is there, whatever its name, or a host of the group
    options_of: str | None = None  # a module whose options this dictionary holds
    refused: t.Sequence[str] = ()  # options of that module that it must not hold
    option: bool = False  # an option of that module, under its own name

    @property
    def confidential(self) -> bool:
        """True if a part of the argument must not be shown."""
        inside = options(self.options_of) if self.options_of else {}
        return _hides(self.spec) or any(map(_hides, inside.values()))


@dataclasses.dataclass(frozen=True)
class ListEntry:
    """One entry of a list option of virt_domain, built from arguments."""

    of: str  # the list
    options: t.Mapping[str, str]  # of the entry, by argument
    fixed: t.Mapping[str, t.Any]  # what it has besides

    def places(self, argument: str) -> list[str]:
        """The places of the options that the argument can set."""
        option = self.options[argument]
        return [f"{self.of}.{each}" for each in (_MEDIA if option == _MEDIUM else (option,))]

    def folded(self, values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """The values, with the list in place of the arguments that make its entry."""
        entry = dict(self.fixed)
        for argument, option in self.options.items():
            if argument in values:
                entry |= _medium(values[argument]) if option == _MEDIUM else {option: values[argument]}
        return {**{name: value for name, value in values.items() if name not in self.options}, self.of: [entry]}


_MEDIUM, _MEDIA = "medium", ("source", "url", "volume")


def _medium(text: object) -> dict[str, t.Any]:
    """The medium of a drive as option and value: a path, a URL or a volume."""
    place = str(text)
    if place.startswith("/"):
        return {"source": place}
    if "://" in place:
        return {"url": place}
    return {"volume": place if "/" in place else f"default/{place}"}


@dataclasses.dataclass(frozen=True)
class PlaybookAction:
    """A playbook of the action catalogue."""

    name: str
    description: str
    kind: str
    verb: str  # in a sentence, before a guest's name
    domain: t.Mapping[str, t.Any]  # what it says of each guest
    from_states: tuple[str, ...]  # of guests that it acts on; empty for any
    declared: t.Mapping[str, t.Any]  # its arguments, as the catalogue says them
    entry: ListEntry | None
    options_of: t.Mapping[str, t.Any]  # a module whose options are arguments by their own names
    inside: str | None  # the argument that takes the same options as a dictionary
    only_inside: tuple[str, ...]
    refused: tuple[str, ...]  # options of that module that it does not take
    survey: tuple[str, ...]  # arguments that a job template asks for
    collections: tuple[str, ...]  # that it needs
    destructive: bool = False
    new_name: str = ""  # the argument with a name that a guest gets
    picks_host: str = ""  # the argument with a hypervisor, where it chooses one when none is given
    everywhere: bool = False  # whether it may act on all hypervisors and guests
    partial: bool = False  # whether options that are not given stay as they are
    template: bool = True  # whether there is a job template for it
    authority: bool = False  # whether it signs certificates

    @property
    def creates(self) -> bool:
        """True if the action creates the guest."""
        return self.new_name == "guest"

    @property
    def counts_guests(self) -> bool:
        """True if the number of its guests must be confirmed; other objects are named one by one."""
        return self.destructive and self.kind == "guest"

    @property
    def removes(self) -> bool:
        """True if the action removes guests."""
        return self.domain.get("state") == "absent"

    @property
    def renames(self) -> bool:
        """True if the action renames the guest."""
        return bool(self.new_name) and not self.creates

    @property
    def moves(self) -> bool:
        """True if the action moves the guest to the host that it picks."""
        return bool(self.picks_host) and not self.creates

    @functools.cached_property
    def arguments(self) -> dict[str, Argument]:
        """The arguments by name; computed on demand, as importing a module's options is slow."""
        own = {name: _argument(name, spec or {}) for name, spec in self.declared.items()}
        return {**_options(self.options_of), **own}


@functools.cache
def table(path: str) -> dict[str, t.Any]:
    """The content of a YAML file of the collection."""
    with open(path, encoding="utf-8") as stream:
        return t.cast("dict[str, t.Any]", yaml_load(stream))


def _catalogue() -> dict[str, t.Any]:
    return table(FILE)


def domain_arguments() -> list[str]:
    """Arguments that virt_domain takes under the same names."""
    return list(_catalogue()["domain_arguments"])


def offered() -> list[str]:
    """Names of the actions that the web console runs."""
    return list(_catalogue()["offered"])


def not_offered() -> list[str]:
    """Arguments that the web console never passes."""
    return list(_catalogue()["not_offered"])


def names() -> list[str]:
    """Names of the actions, in the catalogue's order."""
    return list(_catalogue()["actions"])


def elsewhere() -> dict[str, dict[str, str]]:
    """Arguments of other tools by name: our `argument`, and what to `write` here."""
    return t.cast("dict[str, dict[str, str]]", _catalogue()["elsewhere"])


@functools.cache
def action(name: str) -> PlaybookAction:
    """The action of that name; raises KeyError if there is none."""
    entry = _catalogue()["actions"][name]
    module = entry.get("options_of") or {}
    given = {"virt_group": None, **(entry.get("arguments") or {})}
    said = ("destructive", "new_name", "picks_host", "everywhere", "partial", "template", "authority")
    return PlaybookAction(
        name=name,
        description=entry["description"],
        kind=entry["kind"],
        verb=entry.get("verb") or name.replace("_", " "),
        domain=entry.get("domain") or {},
        from_states=tuple(entry.get("from") or ()),
        declared=given,
        entry=ListEntry(made["of"], made["options"], made.get("fixed") or {}) if (made := entry.get("entry")) else None,
        options_of=module,
        inside=module.get("inside"),
        only_inside=tuple(module.get("only_inside") or ()),
        refused=tuple(module.get("refused") or ()),
        survey=tuple(entry.get("survey") or (name for name in given if name != "virt_group")),
        collections=tuple(entry.get("collections") or ()),
        **{key: entry[key] for key in said if key in entry},
    )


def _argument(name: str, own: Spec) -> Argument:
    """An argument: the action's declaration over the one that all actions share.

    A declaration with a type of its own replaces the shared one.
    """
    common = {} if "type" in own else _catalogue()["arguments"].get(name, {})
    entry = {**common, **own}
    keys = ("description", "required", "minimum", "kind", "existing", "options_of", "refused")
    spec = {key: value for key, value in entry.items() if key not in keys}
    return Argument(name, spec, **{key: entry[key] for key in keys if key in entry})


def _options(module: t.Mapping[str, t.Any]) -> dict[str, Argument]:
    """Options of a module that are arguments by their own names."""
    if not module:
        return {}
    taken = {*module["only_inside"], *module["own"], *module.get("refused", ())}
    return {
        name: Argument(name, spec, option=True) for name, spec in options(module["module"]).items() if name not in taken
    }


def _hides(spec: t.Mapping[str, t.Any]) -> bool:
    return bool(spec.get("no_log")) or any(map(_hides, (spec.get("options") or {}).values()))


@functools.cache
def role_variables() -> frozenset[str]:
    """Variables of the collection's roles."""
    found: set[str] = set()
    for path in glob.glob(os.path.join(_HERE, "../../../roles/*/meta/argument_specs.yml")):
        entries = table(path)["argument_specs"].values()
        found |= {name for entry in entries for name in entry.get("options") or ()}
    return frozenset(found)
