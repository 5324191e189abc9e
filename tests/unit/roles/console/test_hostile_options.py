"""Every option of every action, in every spelling, with values that reach far: what a limited user gets through is harmless.

The cases are made from the modules' own specifications. What passes is read as the module reads it, so the judge is
what would be done, and not what the console made of the request.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.filter.guest_options import guest_options
from ansible_collections.corral.virt.plugins.module_utils._core import units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import DICTS, GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._migration.run_migration_options import OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._commands import action_arguments, actions
from ansible_collections.corral.virt.roles.console.files.corral_console import offers, order, policy
from ansible_collections.corral.virt.roles.console.files.corral_console.order import Seen
from ansible_collections.corral.virt.roles.console.files.corral_console.policy import Who
from ansible_collections.corral.virt.tests.unit.roles.console.test_reach import Spec, modules, options

ROOT = Path(__file__).parents[4]
HOSTS = ("hyper1", "rack1-a")
GUEST = Seen("6695eb01-f6a4-8304-79aa-97f2502e193f", "ci-1", "rack1-a", "shutdown", ())
OWN = {"virt_domain": GUEST_OPTIONS, "virt_migrate": OPTIONS}
REACH: dict[str, t.Any] = yaml.safe_load((ROOT / "plugins/plugin_utils/_commands/reach.yml").read_text())
FAR = {name for name, kind in REACH["kinds"].items() if kind["within"] in ("site", "host")}
# Of a rule for one guest at least: the processors, the memory and the disks of an ordinary guest.
MOST = {"memory": "8GiB", "vcpus": 4, "disks": 4, "disks.size": "100GiB"}
MIB = 2**20


def guide() -> dict[str, t.Any]:
    """The rule for `create` of the guide's policy."""
    text = (ROOT / "docs/docsite/rst/guide_console.rst").read_text()
    blocks = [yaml.safe_load(each) for each in re.findall(r"code-block:: yaml\n\n((?:    .*\n|\n)+)", text)]
    rules = [rule for each in blocks for rule in each.get("console_policy", ()) if "at_most" in rule]
    (rule,) = rules
    assert rule["at_most"] == MOST
    return t.cast("dict[str, t.Any]", rule)


# By the action: the guide's rule, and the widest one that names nothing. `named` is what it grants beyond the guest.
WIDE = {"who": "user:tim", "guests": "ci-*", "at_most": MOST, "arguments": {"*": "*", "image": "debian-*"}}
TABLES: dict[str, list[dict[str, t.Any]]] = {"create": [{**guide(), "who": "user:tim"}]}


def rules(action: str) -> list[list[policy.Rule]]:
    most = MOST if action in ("create", "change") else {}
    image = {"image": "debian-*"} if action == "create" else {}
    wide = {**WIDE, "may": action, "at_most": most, "arguments": {"*": "*", **image}}
    if actions.action(action).kind == "host":
        del wide["guests"]
    return [policy.parsed([rule], offers.names()) for rule in (wide, *TABLES.get(action, ()))]


def places(spec: dict[str, Spec], way: tuple[str, ...] = ()) -> t.Iterator[tuple[tuple[str, ...], Spec]]:
    """Every option at any depth, those that hold others too."""
    for name, each in spec.items():
        yield (*way, name), each
        if each.get("options"):
            yield from places(each["options"], (*way, name))


def hostile(spec: Spec) -> list[object]:
    """Values that mean something to this option, in the forms in which they can be written."""
    kind = spec.get("type", "str")
    if kind == "bool":
        return [True, "yes", 1, False]
    if choices := spec.get("choices"):
        return [*choices, str(choices[0]).upper(), f" {choices[-1]}", [choices[-1]]]
    sizes = [2**40, "1000TiB", "1000000 gb", -1, "-1", 1e12, "\u0661\u0662", "99999999999999"]
    texts = ["/etc/shadow", "debian-12/../../etc/shadow", "$HOME/x", "x", ""]
    if kind in ("int", "float"):
        return sizes
    if kind == "list":
        return [["/etc/shadow"], "/etc/shadow,x", [7], {"x": 1}]
    if kind == "dict":
        return [{"source": "/etc/shadow"}, "source=/etc/shadow x=1", '{"source": "/etc/shadow"}']
    return [*texts, *sizes[:4], ["/etc/shadow"], {"current": "1000TiB"}, True]


def held(way: tuple[str, ...], module: str, value: object, spelled: t.Callable[[object], object]) -> object:
    """A value in all that holds it; each dictionary is `spelled` in some way."""
    specs: list[Spec] = []
    spec: Spec = {"options": options(module)}
    for name in way:
        spec = spec["options"][name]
        specs.append(spec)
    given = value
    for inner, outer in zip(reversed(way[1:]), reversed(specs[:-1]), strict=True):
        entry = {"name": "x", inner: given} if "name" in outer["options"] and inner != "name" else {inner: given}
        given = [spelled(entry)] if outer["type"] == "list" else spelled(entry)
    return given


def words(entry: object) -> object:
    """As Ansible's tasks may have a dictionary: key=value key=value."""
    return " ".join(
        f"{key}={json.dumps(value) if isinstance(value, (dict, list)) else value}"
        for key, value in t.cast("dict[str, t.Any]", entry).items()
    )


PLAIN: t.Callable[[object], object] = lambda entry: entry  # noqa: E731
SPELLINGS: tuple[t.Callable[[object], object], ...] = (
    PLAIN,
    json.dumps,
    words,
    yaml.safe_dump,
    lambda entry: [entry],
    str,
)


HOLDERS: tuple[t.Callable[[str, object], dict[str, t.Any]], ...] = (
    lambda name, whole: {name: json.dumps(whole)},
    lambda name, whole: {"domain": {name: whole}},
    lambda name, whole: {"options": json.dumps({name: whole})},
    lambda name, whole: {"domain": f"{name}={json.dumps(whole)}"},
    lambda name, whole: {"options": yaml.safe_dump({name: whole})},
)


def names(name: str, spec: Spec) -> list[str]:
    """What a module or a reader may take for the name."""
    same = [other for other, place in REACH["same"].items() if place == name]
    return [name, *spec.get("aliases", ()), *same, name.upper(), name.capitalize(), f" {name}", f"{name} "]


def asked(action: str) -> t.Iterator[dict[str, t.Any]]:
    """Requests: each option with each value, and each option in each spelling."""
    count = itertools.count()
    for module in modules(action):
        for way, spec in places(options(module)):
            values, all_of_them = hostile(spec), action != "change"  # which has the options of `create`
            for value in values if all_of_them else values[:2]:
                yield {way[0]: held(way, module, value, PLAIN)}
            for spelled in SPELLINGS:
                whole = held(way, module, values[0], spelled)
                yield {way[0]: whole}
                yield HOLDERS[next(count) % len(HOLDERS)](way[0], whole)
            for other in names(way[-1], spec)[1:] if all_of_them else ():
                plain = held(way, module, values[0], functools.partial(_renamed, way[-1], other))
                yield {way[0] if len(way) > 1 else other: plain}
                yield {"domain": {way[0] if len(way) > 1 else other: plain}}


def _renamed(name: str, to: str, entry: object) -> object:
    return {to if key == name else key: value for key, value in entry.items()} if isinstance(entry, dict) else entry


def module_reads(action: str, made: order.Order) -> dict[str, t.Any]:
    """The options of the module that the playbook calls, from the variables that the job gives it: as the module has them."""
    does = actions.action(action)
    module = does.options_of.get("module", "virt_domain")
    told = action_arguments.asked(does, {**made.values})
    names = action_arguments.withheld(does, told)
    merged = guest_options({"arguments": told, "withheld": names}, action, [made.values[name] for name in names])
    if "networks" in merged:
        merged["interfaces"] = merged.pop("networks")
    spec = {name: {**each, "required": False} for name, each in OWN[module].items()}
    known = {name: value for name, value in merged.items() if name in spec}
    result = ArgumentSpecValidator(spec).validate(known)
    if result.error_messages:
        return {}  # the module refuses it
    read = {name: result.validated_parameters[name] for name in known}
    for name in DICTS.keys() & read.keys() if module == "virt_domain" else ():
        value = read[name] if isinstance(read[name], dict) else {"current": read[name]}
        inner = ArgumentSpecValidator(DICTS[name]).validate(value)
        if inner.error_messages:
            return {}
        read[name] = inner.validated_parameters
    return read


def given(value: object, place: str) -> t.Iterator[tuple[str, t.Any]]:
    """Every option of what a module has read, by its place; those that were not given are None or their defaults."""
    several = value if isinstance(value, list) and any(isinstance(each, dict) for each in value) else [value]
    for each in several:
        if isinstance(each, dict):
            for key, inner in each.items():
                yield from given(inner, f"{place}.{key}" if place else str(key))
        elif each is not None:
            yield place, each


def kinds(module: str) -> dict[str, str]:
    """What the table says, by place: read here anew, so that no code of the console is believed."""
    found = {}
    for kind, several in REACH["others"][module].items():
        for parents, leaves in several.items():
            found.update(
                {f"{parent}.{name}" if parent else name: kind for parent in parents.split(", ") for name in leaves}
            )
    return found


def defaults(module: str) -> dict[str, t.Any]:
    return {".".join(way): spec.get("default") for way, spec in places(OWN[module])}


def too_far(module: str, read: t.Mapping[str, t.Any], rule: policy.Rule) -> list[tuple[str, t.Any]]:
    """What reaches beyond the guest, and the rule does not name."""
    table, usual, found = kinds(module), defaults(module), []
    for place, value in given(read, ""):
        if value == usual.get(place) or value in ([], {}):
            continue
        kind = table.get(place) or _around(table, place)
        harmless = any(value == one and type(value) is type(one) for one in REACH["harmless"].get(place, ()))
        name = REACH["same"].get(place, place)
        if (kind is None or kind in FAR) and not harmless and not _named(rule, name, value) and place != "name":
            found.append((place, value))
    return found


def _around(table: t.Mapping[str, str], place: str) -> str | None:
    """The kind of the option whose content is free, such as a document of cloud-init; an option of type `path` has none."""
    return next((kind for other, kind in table.items() if place.startswith(f"{other}.")), None)


def _named(rule: policy.Rule, place: str, value: t.Any) -> bool:
    patterns = rule.arguments.get(place)
    several = value if isinstance(value, list) else [value]
    return bool(patterns) and all(
        policy.matches(str(each), t.cast("tuple[str, ...]", patterns)) and ".." not in str(each) for each in several
    )


def amounts(read: t.Mapping[str, t.Any]) -> dict[str, float]:
    """What it takes of its host, in MiB and in processors."""

    def mib(value: object, bare: str = "M") -> float:
        try:
            return units.bytes_of(t.cast("int | str", value), bare=bare, what="x") / MIB
        except BadInput:  # the module refuses it
            return 0

    disks = [each for each in read.get("disks") or () if each.get("state") != "absent"]
    memory, vcpus = read.get("memory") or {}, read.get("vcpus") or {}
    topology = [part for part in (vcpus.get("topology") or {}).values() if part]
    many = 1
    for part in topology:
        many *= part
    cells = [each["memory"] for each in (read.get("numa") or {}).get("cells") or () if each.get("memory")]
    return {
        "disks": len(disks),
        "disks.size": sum(
            mib(each.get("size") or "8GiB", "G") for each in disks if not each.get("image") or each.get("size")
        ),
        "memory": max(
            [mib(each) for key, each in memory.items() if key in ("current", "maximum", "hotplug_maximum") and each]
            + [sum(map(mib, cells))]
        ),
        "vcpus": max([vcpus.get("current") or 0, vcpus.get("maximum") or 0, many if topology else 0]),
    }


LIMITS = {"disks": 4, "disks.size": 100 * 1024, "memory": 8 * 1024, "vcpus": 4}
BASE: dict[str, dict[str, t.Any]] = {
    "create": {"guest": "ci-1", "host": "rack1-a", "memory": "1GiB", "vcpus": 1},
    "migrate": {"to": "rack1-a"},
}


def attempts(action: str) -> t.Iterator[tuple[dict[str, t.Any], order.Order]]:
    """Requests that are orders: they hold what the module can be told."""
    does = actions.action(action)
    guests = () if does.creates or does.kind != "guest" else (GUEST,)
    for more in asked(action):
        arguments = {**BASE.get(action, {}), **more}
        for holder in ("domain", "options"):  # an option is given at one place
            inside = more.get(holder)
            arguments = {
                name: each for name, each in arguments.items() if name in more or not (inside and name in inside)
            }
        try:
            one = {"action": action, "arguments": arguments, "hosts": ["rack1-a"], "confirm": len(guests)}
            yield more, order.order(one, guests, HOSTS)
        except order.BadOrder:
            continue


@pytest.mark.parametrize("action", [name for name in offers.names() if modules(name)])
def test_nothing_that_reaches_further_passes_in_any_spelling(action: str) -> None:
    module = actions.action(action).options_of.get("module") or "virt_migrate"
    passed = tried = 0
    for request, made in attempts(action):
        tried += 1
        granting = [rule for (rule,) in rules(action) if not policy.refusal([rule], Who("tim"), made.request)]
        read = module_reads(action, made) if granting else {}
        passed += len(granting)
        for rule in granting:
            assert too_far(module, read, rule) == [], request
            if rule.at_most:
                assert {name: much for name, much in amounts(read).items() if much > LIMITS[name]} == {}, request
    assert tried > 20 and passed > 20
