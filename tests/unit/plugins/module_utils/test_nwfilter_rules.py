"""What is planned of a network filter, whatever the host."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_info, run_noun_options
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Define, NounPlan
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import plan
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.model_nwfilter import MATCHES
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.plan_nwfilter import NWFILTER

SCHEMA = Path("/usr/share/libvirt/schemas/nwfilter.rng")
UUID = "2ff4c3c5-8a3b-4f9d-9b5e-cc7cf3cbb8f2"
# As libvirt prints it.
THERE = f"""<filter name='a' chain='ipv4' priority='-700'>
  <uuid>{UUID}</uuid>
  <filterref filter='b'><parameter name='IP' value='192.0.2.1'/></filterref>
  <rule action='accept' direction='in' priority='500'>
    <tcp dstportstart='22'/>
  </rule>
  <filterref filter='c'/>
  <rule action='drop' direction='inout' priority='1000' statematch='false'/>
</filter>"""
SSH = {"action": "accept", "direction": "in", "protocol": "tcp", "match": {"dstportstart": 22}}
REST = {"action": "drop", "direction": "inout", "priority": 1000, "statematch": False}
DEFINE = "define nwfilter a"


@dataclasses.dataclass(frozen=True)
class Host:
    """A `NwfilterHost` that knows all its answers."""

    includes: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=lambda: {"b": (), "c": ()})
    interfaces: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def filters(self) -> dict[str, str]:
        return {
            name: "<filter>" + "".join(f"<filterref filter='{one}'/>" for one in named) + "</filter>"
            for name, named in self.includes.items()
        }

    def guests(self) -> list[tuple[str, tuple[str, ...]]]:
        form = "<domain><devices><interface><filterref filter='{}'/></interface></devices></domain>"
        return [(name, tuple(map(form.format, named))) for name, named in self.interfaces.items()]


def planned(there: str | None = None, host: Host | None = None, **options: t.Any) -> NounPlan:
    """The plan for a filter; `there`: its document."""
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NWFILTER.schema)).validate({"name": "a", **options})
    assert not result.error_messages, result.error_messages
    found = Found(UUID, xml=there, digest="d") if there else None
    return plan(NWFILTER, run_noun.spec(NWFILTER, result.validated_parameters), found, host or Host())


@pytest.mark.parametrize(
    ("there", "options", "steps"),
    [
        (None, {}, [DEFINE]),
        (None, {"chain": "ipv4-abcdefg"}, [f"{DEFINE} (chain ipv4-abcdefg)"]),
        (None, {"state": "absent"}, []),
        (THERE, {"state": "absent"}, ["undefine nwfilter a"]),
        (THERE, {"chain": "ipv4", "priority": -700, "filterrefs": ["b", "c"], "rules": [SSH, REST]}, []),
        (THERE, {"rules": [REST, SSH]}, [f"{DEFINE} (rules)"]),
        (THERE, {"rules": []}, [f"{DEFINE} (rules)"]),
        (THERE, {"filterrefs": ["c", "b"]}, [f"{DEFINE} (filterrefs)"]),
        (THERE, {"chain": "ipv6"}, [f"{DEFINE} (chain)"]),
        (THERE, {"priority": 0}, [f"{DEFINE} (priority)"]),
        ("<filter name='a' chain='root'/>", {"chain": "root", "priority": 0, "rules": [], "filterrefs": []}, []),
        (THERE, {"xml": "<filter><filterref filter='c'/></filter>"}, []),
        (THERE, {"xml": "<filter><filterref filter='d'/></filter>"}, [f"{DEFINE} (xml.filterref)"]),
    ],
)
def test_the_steps(there: str | None, options: dict[str, t.Any], steps: list[str]) -> None:
    assert [str(step) for step in planned(there, **options).steps] == steps


def document(made: NounPlan) -> t.Any:
    """The document that is defined."""
    (step,) = made.steps
    assert isinstance(step, Define)
    return etree.fromstring(step.xml)


def test_what_stays_keeps_its_parameters() -> None:
    after = document(planned(THERE, filterrefs=["d", "b"]))
    assert [(one.get("filter"), len(one)) for one in after.findall("filterref")] == [("d", 0), ("b", 1)]
    assert len(after.findall("rule")) == 2 and after.findtext("uuid") == UUID


def test_another_chain_has_another_priority() -> None:
    assert document(planned(THERE, chain="ipv6")).get("priority") is None
    assert document(planned(THERE, chain="ipv6", priority=-700)).get("priority") == "-700"


def test_values_as_libvirt_prints_them() -> None:
    match = {"srcmacaddr": "AA:BB:CC:DD:EE:F", "srcipaddr": "$IP", "dstipmask": "255.255.255.0", "match": False}
    (rule,) = planned(rules=[{**SSH, "match": match}]).after["rules"]  # type: ignore[index]
    assert rule["match"] == {"dstipmask": "24", "match": "no", "srcipaddr": "$IP", "srcmacaddr": "aa:bb:cc:dd:ee:0f"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "a b"}, "name: "),
        ({"chain": "tcp"}, "chain of nwfilter a: must be root"),
        ({"chain": "ipv4-abcdefgh"}, "chain of nwfilter a: must be root"),
        ({"priority": 1001}, "from -1000 to 1000"),
        ({"filterrefs": [""]}, "must not be empty"),
        ({"filterrefs": ["a/b"]}, "filterrefs of nwfilter a"),
        ({"rules": [{**SSH, "priority": 1001}]}, "from -1000 to 1000"),
        ({"rules": [{"action": "drop", "direction": "in", "priority": 1001}]}, "from -1000 to 1000"),
        ({"rules": [{"action": "drop", "direction": "in", "match": {"a": 1}}]}, "match requires protocol"),
        ({"rules": [{**SSH, "match": {"dstport": 22}}]}, "tcp cannot match dstport; it can match comment, "),
        ({"rules": [{**SSH, "protocol": "mac"}]}, "mac cannot match dstportstart"),
        ({"rules": [{**SSH, "match": {"comment": ""}}]}, "comment must be a text or a number"),
        ({"rules": [{**SSH, "match": {"comment": [1]}}]}, "comment must be a text or a number"),
        ({"xml": "<filter><rule action='drop' direction='in'/></filter>"}, "<rule>: it has its own option"),
        ({"xml": "<filter><filterref filter='b'/></filter>", "filterrefs": ["c"]}, "not both"),
    ],
)
def test_bad_values(options: dict[str, t.Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        planned(**options)


@pytest.mark.parametrize(
    ("host", "user"),
    [
        (Host({"a": (), "outer": ("b", "a")}), "nwfilter outer"),
        (Host(interfaces={"g": ("b", "a")}), "guest g"),
    ],
)
def test_one_that_is_named_stays(host: Host, user: str) -> None:
    with pytest.raises(Refused, match=f"named by {user}; give"):
        planned(THERE, host, state="absent")
    with pytest.raises(Refused, match=f"named by {user}; give"):
        planned(THERE, host, state="absent", force=True)
    assert planned(THERE, host, rules=[]).steps


def test_those_of_libvirt_stay() -> None:
    there = THERE.replace("name='a'", "name='clean-traffic'")
    cases: tuple[dict[str, t.Any], ...] = ({"rules": []}, {"state": "absent"})
    for options in cases:
        with pytest.raises(Refused, match="it comes with libvirt"):
            planned(there, name="clean-traffic", **options)
        assert planned(there, name="clean-traffic", force=True, **options).steps
    assert not planned(there, name="clean-traffic", chain="ipv4").steps
    with pytest.raises(Refused, match="cannot define nwfilter allow-arp"):
        planned(name="allow-arp")


def test_none_includes_itself() -> None:
    for host, included in ((Host(), "a"), (Host({"a": (), "b": ("c",), "c": ("a",)}), "b")):
        with pytest.raises(Refused, match="it would include itself"):
            planned(THERE, host, filterrefs=[included])
    assert planned(None, Host({"b": ("b",)}), filterrefs=["b"]).steps  # of others; libvirt has none such


def test_a_note_names_those_that_are_not_there() -> None:
    (note,) = planned(None, Host({"b": ("gone",)}), filterrefs=["b", "typo"]).notes
    assert "includes gone and typo" in note or "includes gone, typo" in note
    assert not planned(THERE, Host({}), filterrefs=["b", "c"]).notes  # nothing is done


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}")
def test_all_that_libvirt_matches_is_known() -> None:
    """libvirt's schema knows less than its code, but nothing else."""
    grammar, form = etree.parse(str(SCHEMA)).getroot(), "{http://relaxng.org/ns/structure/1.0}"
    defined = {one.get("name"): one for one in grammar.iter(f"{form}define")}

    def attributes(element: t.Any) -> set[str]:
        if element.tag == f"{form}attribute":
            return {element.get("name")}
        named = defined.get(element.get("name")) if element.tag == f"{form}ref" else None
        return set().union(*map(attributes, [*element, *([] if named is None else [named])]))

    found = {str(one.get("name")): attributes(one) for one in grammar.iter(f"{form}element")}
    assert MATCHES.keys() <= found.keys()
    assert {name: rest for name, words in MATCHES.items() if (rest := found[name] - words)} == {}


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}")
@pytest.mark.parametrize("protocol", sorted(MATCHES))
def test_libvirt_accepts_the_document(protocol: str) -> None:
    made = document(
        planned(uuid=UUID, chain="root", priority=7, filterrefs=["b"], rules=[REST, {**SSH, "match": {}, "protocol": protocol}])
    )  # fmt: skip
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(made), f"{schema.error_log}\n{etree.tostring(made)!r}"


@pytest.mark.parametrize(
    "there",
    [
        THERE,
        # as libvirt 9.0 prints its own
        f"""<filter name='a' chain='root'><uuid>{UUID}</uuid><filterref filter='b'/><rule action='accept'
        direction='out' priority='-650'><mac protocolid='ipv4'/></rule><filterref filter='c'/></filter>""",
        f"""<filter name='a' chain='ipv4-ip' priority='-710'><uuid>{UUID}</uuid><rule action='return' direction='out'
        priority='100'><ip srcipaddr='0.0.0.0' protocol='udp'/></rule><rule action='return' direction='out'
        priority='500'><ip srcipaddr='$IP'/></rule><rule action='drop' direction='out' priority='1000'/></filter>""",
    ],
)
def test_its_arguments_change_nothing(there: str) -> None:
    given = run_noun_info.arguments(NWFILTER.schema, "a", Found(UUID, xml=there))
    assert len(given["rules"]) == there.count("<rule ") and not planned(there, **given).steps


def test_a_rule_that_no_option_expresses_is_left_alone() -> None:
    there = THERE.replace("<tcp dstportstart='22'/>", "<tcp/><tcp/>")
    assert "rules" not in run_noun_info.arguments(NWFILTER.schema, "a", Found(UUID, xml=there))
    assert not planned(there, chain="ipv4").steps and planned(there, rules=[SSH, REST]).steps
