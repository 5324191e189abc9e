"""What each option can reach: of every option of the catalogue at any depth, from the modules' own specifications."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import DICTS
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions, option_reach
from ansible_collections.corral.virt.roles.console.files.corral_console import offers, openapi, order, policy, run
from ansible_collections.corral.virt.roles.console.files.corral_console.policy import Request, Who

MODULES = ("virt_domain", "virt_migrate")
Spec = dict[str, t.Any]


def options(module: str) -> dict[str, Spec]:
    """With the keys of options that are a number or a dictionary."""
    found = {name: spec for name, spec in actions.options(module).items() if name != "networks"}
    more = {name: {"type": "dict", "options": keys} for name, keys in DICTS.items()} if module == "virt_domain" else {}
    return {**found, **more}


def leaves(spec: dict[str, Spec], way: tuple[str, ...] = ()) -> t.Iterator[tuple[tuple[str, ...], Spec]]:
    for name, each in spec.items():
        if each.get("options"):
            yield from leaves(each["options"], (*way, name))
        else:
            yield (*way, name), each


def request(action: str, way: tuple[str, ...], value: object) -> Request:
    """One that gives only this option, in the lists and dictionaries that hold it."""
    (module,) = {module for module in MODULES if way[0] in options(module) and module in modules(action)}
    specs: list[Spec] = []
    spec: Spec = {"options": options(module)}
    for name in way:
        spec = spec["options"][name]
        specs.append(spec)
    given: t.Any = value
    for inner, outer in zip(reversed(way[1:]), reversed(specs[:-1]), strict=True):
        given = [{inner: given}] if outer["type"] == "list" else {inner: given}
    return Request(action, arguments={way[0]: given}, bound=(way[0],), partial=True)


def modules(action: str) -> set[str]:
    found = actions.action(action)
    inside = {argument.options_of for argument in found.arguments.values() if argument.options_of}
    return inside | {found.options_of["module"]} if found.options_of else inside


def value(spec: Spec, place: str) -> object:
    """One that is not harmless."""
    if spec.get("choices"):
        return next((one for one in spec["choices"] if not option_reach.is_harmless(place, one)), spec["choices"][0])
    kind = spec.get("type", "str")
    if kind == "bool":
        return next((one for one in (True, False) if not option_reach.is_harmless(place, one)), True)
    samples = {"int": 7, "list": [7], "path": "/etc/shadow", "dict": {"x": "auto"}, "raw": 7}
    return samples.get(kind, "x")


CASES = [
    pytest.param(action, way, spec, id=f"{action}-{'.'.join(way)}")
    for action in ("create", "change", "migrate", "drain", "rebalance")
    for module in MODULES
    if module in modules(action)
    for way, spec in leaves(options(module))
]


@pytest.mark.parametrize(("action", "way", "spec"), CASES)
def test_a_pattern_for_a_parent_grants_nothing_that_reaches_further(
    action: str, way: tuple[str, ...], spec: Spec
) -> None:
    """Neither the pattern `*` of what holds an option, nor that for all options."""
    place = option_reach.canonical(".".join(way))
    asked = request(action, way, value(spec, place))
    kind = option_reach.table(action)[place]
    assert kind is not None

    def allowed(may: str = action, **rule: t.Any) -> bool:
        rules = policy.parsed([{"who": "user:a", "may": may, **rule}], offers.names())
        return not policy.refusal(rules, Who("a"), asked)

    # A limit is also one for what an amount holds.
    little = kind.within == "guest" or option_reach.is_harmless(place, value(spec, place))
    for parent in ("*", *((way[0],) if len(way) > 1 and way[0] not in DICTS else ())):
        assert allowed(arguments={parent: "*"}) == little, parent
    named: dict[str, t.Any] = (
        {"at_most": {place: 7}} if kind.within == "amount" else {"arguments": {".".join(way): "*"}}
    )
    assert allowed(**named) and allowed("*")
    if way[0] in ("hostdevs", "filesystems", "xml", "dest_uri", "loader", "nvram") or spec.get("type") == "path":
        assert kind.within == "host"


@pytest.mark.parametrize("name", actions.names())
def test_an_option_that_names_a_pool_reaches_a_pool(name: str) -> None:
    """Of any module, and of the playbooks: another team may store its disks there."""
    found = {place: kind for place, kind in option_reach.table(name).items() if kind}
    pools = {place for place in found if place.rpartition(".")[2] == "pool" or place.endswith("_pool")}
    assert {place for place in pools if found[place].name != "pool"} == set()


@pytest.mark.parametrize("action", ["migrate", "drain", "rebalance"])
def test_a_rule_names_the_pools_to_which_a_migration_copies_disks(action: str) -> None:
    def allowed(arguments: dict[str, t.Any], **granted: object) -> bool:
        rules = policy.parsed([{"who": "user:a", "may": action, "arguments": granted}], offers.names())
        request = Request(action, arguments=arguments, bound=tuple(arguments), partial=True)
        return not policy.refusal(rules, Who("a"), request)

    mine, theirs = {"disk_pool": {"root": "a-fast", "data": "a-slow"}}, {"disk_pool": {"root": "a-fast", "data": "b"}}
    assert not allowed({"pool": "b"}, **{"*": "*"}) and not allowed(mine, **{"*": "*"})
    assert allowed({"pool": "a-fast"}, pool="a-*") and not allowed({"pool": "b"}, pool="a-*")
    assert allowed(mine, disk_pool="a-*") and not allowed(theirs, disk_pool="a-*") and allowed(theirs, disk_pool="*")
    assert not allowed({"disk_pool": {"root": ["a-fast"]}}, disk_pool="a-*")
    assert not allowed({"reserve": "0"}, **{"*": "*"}) and allowed({"reserve": "20GiB"}, reserve="20GiB")


@pytest.mark.parametrize("option", ["colocate", "apart"])
def test_a_word_that_guests_share_reaches_those_that_have_it(option: str) -> None:
    """Pacemaker keeps them apart or together: one that a user may not touch could be moved, or stay off."""

    def allowed(*words: str, **granted: object) -> bool:
        rules = policy.parsed([{"who": "user:a", "may": "change", "arguments": granted}], offers.names())
        request = Request("change", arguments={"ha": {option: [*words]}}, bound=("ha",), partial=True)
        return not policy.refusal(rules, Who("a"), request)

    team = {f"ha.{option}": "team-a-*"}
    assert not allowed("db", ha="*") and not allowed("db", **{"*": "*"})
    assert allowed("team-a-db", **team) and not allowed("db", **team) and not allowed("team-a-db", "db", **team)


@pytest.mark.parametrize("name", actions.names())
def test_no_option_is_without_a_reach(name: str) -> None:
    """A new option needs a line in reach.yml; a line for an option that is gone needs to go."""
    action, table = actions.action(name), option_reach.table(name)
    for argument in action.arguments.values():
        assert argument.options_of or option_reach.place_of(action, argument.name) in table
    for module in modules(name):
        for way, _spec in leaves(options(module)):
            assert table[option_reach.canonical(".".join(way))], way
    assert set(option_reach.kinds()) >= {kind.name for kind in table.values() if kind}


def test_no_line_of_the_table_is_about_nothing() -> None:
    for module in MODULES:
        known = {".".join(way): spec for way, spec in leaves(options(module))} | dict.fromkeys(DICTS, Spec())
        declared = option_reach._declared(module)
        assert set(declared) <= {*known}
        assert not [place for place in declared if known[place].get("type") == "path"], "they reach a path"
    known = {".".join(way): spec for module in MODULES for way, spec in leaves(options(module))}
    for place, values in option_reach._file()["harmless"].items():
        assert set(values) <= set(known[place].get("choices", values)), place
    names = {name for action in actions.names() for name in actions.action(action).arguments}
    for place in option_reach._declared("arguments"):
        action, _dot, name = place.rpartition(".")
        assert name in (actions.action(action).arguments if action else names), place


def test_what_is_in_a_list_is_counted_in_every_list() -> None:
    assert option_reach.lists("create") >= {"disks", "interfaces", "hostdevs", "disks.network.hosts", "numa.cells"}


@pytest.mark.parametrize("module", MODULES)
def test_reading_options_changes_no_place(module: str) -> None:
    """What a module would read from a text is judged at the same place as when it is written as a structure."""
    for way, spec in leaves(options(module)):
        action = "create" if module == "virt_domain" else "migrate"
        asked = request(action, way, value(spec, ".".join(way)))
        found, problems = option_reach.read(module, asked.arguments)
        if not any(text.startswith("missing required") for text in problems.values()):
            places = [part.place for part in option_reach.parts(action, found)]
            assert option_reach.canonical(".".join(way)) in places, problems


def test_the_interface_describes_what_a_rule_must_name() -> None:
    schemas = openapi.document()["components"]["schemas"]
    for action in offers.names():
        told = {place for each in schemas[action]["properties"].values() for place in each.get("x-reaches", ())}
        given = {
            option_reach.place_of(actions.action(action), name).partition(".")[0]
            for name in schemas[action]["properties"]
        }
        far = {place for place, kind in option_reach.table(action).items() if kind and kind.within != "guest"}
        entry = actions.action(action).entry
        far -= {f"{entry.of}.{name}" for name in entry.fixed} if entry else set()  # nobody gives these
        assert told == {place for place in far if place.partition(".")[0] in given}
    assert schemas["create"]["properties"]["disks"]["x-reaches"]["disks.source"] == "a path on the host"


TEMPLATE = "{{ lookup('pipe', 'id') }}"


def scalars(node: yaml.Node) -> t.Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    for each in node.value if isinstance(node, (yaml.SequenceNode, yaml.MappingNode)) else ():
        for inner in each if isinstance(each, tuple) else (each,):
            yield from scalars(inner)


@pytest.mark.parametrize("inside", ["", "domain", "options"])
def test_no_text_in_an_option_is_a_template_at_any_depth(inside: str) -> None:
    """On the machine of the console, which has the key of all hypervisors."""
    tried = 0
    for way, spec in leaves(options("virt_domain")):
        text = TEMPLATE if spec.get("type", "str") in ("str", "path", "raw") and not spec.get("choices") else None
        if text is None or way[0] in ("name", "renamed_from", "host"):
            continue
        given = dict(request("create", way, text).arguments)
        document = {way[0]: {way[-1]: {TEMPLATE: [text]}}}
        for value in (given, document if way[0] == "cloud_init" else given):
            arguments = {"guest": "ci-1", **({inside: value} if inside and inside != way[0] else value)}
            try:
                made = order.order({"action": "create", "arguments": arguments}, (), ("hyper1",))
            except order.BadOrder:
                continue
            written = yaml.compose(run.variables({"values": made.values, "expected": []}, "hyper"))
            found = [node for node in scalars(t.cast(yaml.Node, written)) if "lookup" in node.value]
            assert found and {node.tag for node in found} == {"!unsafe"}, way
            tried += 1
    assert tried > 50
