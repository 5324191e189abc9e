"""Golden cases of virtual networks, below networks/: found and wanted in; document, changes and steps out.

  wanted.yml    options of `virt_network`
  found.xml     the definition; live.xml what runs; found.yml autostart, persistent
  host.yml      what surrounds it: bridges, version, users (guest: whether it runs), neighbours
expected: after.xml, changes.yml, steps.yml
"""

from __future__ import annotations

import collections
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core import changes as _changes
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._network.model_network import (
    Neighbour,
    NetworkHost,
    User,
)
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._noun import run_noun, run_noun_options, xml_document
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun import Define
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import plan
from ansible_collections.corral.virt.tests.golden.case import GOLDEN, Case, Outcome, normal
from ansible_collections.corral.virt.tests.golden.test_golden import (
    compare,
    fields,
    name_of,
    skip_newer,
    values,
)

SCHEMA = Path("/usr/share/libvirt/schemas/network.rng")
UUID = "5b52a9bb-7a3c-4d8b-9c5c-5a9f6a3f2a10"
CASES = [Case(f"networks/{path.parent.name}") for path in sorted(GOLDEN.glob("networks/*/wanted.yml"))]


def params(wanted: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Options as Ansible checks and completes them."""
    result = ArgumentSpecValidator(run_noun_options.argument_spec(NETWORK.schema)).validate(dict(wanted))
    assert not result.error_messages, result.error_messages
    return t.cast("dict[str, t.Any]", result.validated_parameters)


def host(case: Case) -> NetworkHost:
    """What surrounds the network."""
    output = case.data("host.yml")
    return NetworkHost(
        frozenset(output["bridges"]) if "bridges" in output else None,
        tuple(Neighbour(**{**one, "subnets": tuple(one["subnets"])}) for one in output.get("neighbours", ())),
        lambda: [User(name, running) for name, running in output.get("users", {}).items()],
        output.get("version", 9_000_000),
    )


def found(case: Case) -> Found | None:
    """What libvirt has."""
    xml = case.text("found.xml")
    more = {"persistent": True, "autostart": False, **case.data("found.yml")}
    return None if xml is None else Found(UUID, xml=xml, live_xml=case.text("live.xml"), **more)


def play(case: Case, there: Found | None, wanted: t.Mapping[str, t.Any]) -> Outcome:
    """What is planned."""
    try:
        done = plan(NETWORK, run_noun.spec(NETWORK, params(wanted)), there, host(case))
    except VirtError as error:
        return Outcome(None, {}, {type(error).__name__.lower(): str(error)})
    defined = [step.xml for step in done.steps if isinstance(step, Define)]
    kept = there.xml if there and wanted.get("state") != "absent" else None
    result = {"steps": [str(step) for step in done.steps], "pending": list(done.pending)}
    report = {key: value for key, value in {**result, "notes": list(done.notes)}.items() if value}
    after = defined[-1] if defined else kept
    changes = yaml.safe_load(yaml.safe_dump(listed(_changes.diff(done.changes))))
    return Outcome(after and normal(after), changes, report)


def listed(value: t.Any) -> t.Any:
    """As JSON would carry it."""
    if isinstance(value, dict):
        return {key: listed(one) for key, one in value.items()}
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_golden(case: Case, pytestconfig: pytest.Config) -> None:
    wanted = case.data("wanted.yml")
    outcome = play(case, found(case), wanted)
    compare(case, outcome, pytestconfig.getoption("--regenerate"))
    if outcome.after is None:
        return
    # Once more, on what it led to: off, then running.
    for live in (None, outcome.after):
        state = "active" if live else "inactive"
        autostart = wanted.get("autostart", outcome.changes["after"].get("autostart"))
        there = Found(UUID, True, bool(autostart), outcome.after, live)
        again = play(case, there, {**wanted, "state": state})
        assert not again.steps.get("steps") and not again.steps.get("pending")
        assert again.changes == {"before": {}, "after": {}}


@pytest.mark.skipif(not SCHEMA.exists(), reason=f"no {SCHEMA}")
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_libvirt_accepts_the_result(case: Case) -> None:
    after = case.text("after.xml")
    if after is None:
        return
    skip_newer(case.file("after.xml").parent.name)
    schema = etree.RelaxNG(etree.parse(str(SCHEMA)))
    assert schema.validate(etree.fromstring(after)), str(schema.error_log)


@pytest.mark.parametrize("case", [case for case in CASES if case.text("found.xml")], ids=name_of)
def test_silence_keeps_everything(case: Case) -> None:
    xml = t.cast(str, case.text("found.xml"))
    assert xml_document.edit(xml, {}, table=NETWORK.schema.table, shape=NETWORK.shape).xml == xml


@pytest.mark.parametrize(
    "kept",
    [
        "//*[namespace-uri()='http://libvirt.org/schemas/network/dnsmasq/1.0']",
        "/network/metadata",
        "//forwarder[@domain]",
        "//bootp",
        "/network/@ipv6",
    ],
)
def test_a_stranger_survives(kept: str) -> None:
    """What no option speaks of stays as others made it."""
    before, after = (
        etree.fromstring(t.cast(str, Case("networks/stranger").text(name))) for name in ("found.xml", "after.xml")
    )
    assert len(t.cast("list[t.Any]", before.xpath(kept))) > 0
    assert texts(before, kept) == texts(after, kept)


def texts(root: t.Any, path: str) -> list[str]:
    """What stands at a path."""
    return [
        str(one) if isinstance(one, str) else " ".join(etree.tostring(one, encoding="unicode").split())
        for one in root.xpath(path)
    ]


def test_every_row_is_exercised() -> None:
    """A new row needs a case."""
    written = collections.Counter[str]()
    for case in CASES:
        after, before = case.text("after.xml"), case.text("found.xml")
        known = set(values(etree.fromstring(before), NETWORK.schema.table)) if before else set()
        if after:
            made = set(values(etree.fromstring(after), NETWORK.schema.table)) - known
            written.update(field for field, _value in made)
    missing = sorted(set(fields(NETWORK.schema.table)) - set(written))
    assert not missing, (
        f"no golden case writes {', '.join(missing)}; add it to a wanted.yml of networks/, then: make golden CASE=name "
        "REGENERATE=1"
    )
