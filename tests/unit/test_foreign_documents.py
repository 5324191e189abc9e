"""What others wrote comes back as it was, and says of itself what the options can say: the test documents of libvirt
and virt-manager.

They are not ours to ship. CONTRIBUTING.md tells where they are; CORRAL_FOREIGN_XML names the folder that holds them.
"""

from __future__ import annotations

import collections
import os
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._front import noun, noun_arguments
from ansible_collections.corral.virt.plugins.module_utils._front.arguments import arguments
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._model.domain import GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._model.noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._xml import document, domain, whole
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Table, option_of

FOLDER = os.environ.get("CORRAL_FOREIGN_XML")
pytestmark = pytest.mark.skipif(not FOLDER, reason="CORRAL_FOREIGN_XML names no folder")

# What libvirt's QEMU driver printed for an architecture that we know: whatever is in there, an admin may want to say.
PRINTED = ("qemuxml2xmloutdata", "qemuxmlconfdata")
OURS = ("x86_64", "aarch64")


def documents(tag: str = "domain") -> dict[str, t.Any]:
    """Every file that holds a domain, or a document of another noun, by its place."""
    found = {}
    for path in sorted(Path(t.cast(str, FOLDER)).rglob("*.xml")):
        try:
            root = etree.parse(str(path)).getroot()
        except etree.XMLSyntaxError:
            continue  # a test of errors
        if root.tag == tag:
            found[str(path.relative_to(t.cast(str, FOLDER)))] = root
    return found


def canonical(xml: str) -> str:
    """A document without what does not matter."""
    return str(etree.canonicalize(xml, strip_text=True))


def changes(xml: str, guest: GuestSpec) -> str:
    """What a graft makes of a document; empty when it is left as it was."""
    after = domain.graft(xml, guest)
    if after.changes or whole.problems(xml, guest, after):
        return "; ".join(map(str, (*after.changes, *whole.problems(xml, guest, after))))
    return "" if canonical(after.xml) == canonical(xml) else "without a word"


def imported(xml: str) -> dict[str, t.Any]:
    """The options that describe a document."""
    said = {**arguments(xml, autostart=False), "name": "any"}
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(said)
    assert not result.error_messages
    return t.cast("dict[str, t.Any]", result.validated_parameters)


def outcome(xml: str) -> str:
    """What goes wrong with a document: nothing, a change or a crash."""
    try:
        return changes(xml, GuestSpec("any")) or changes(xml, wanted(imported(xml)))
    except Exception as error:  # noqa: BLE001  (each kind is reported)
        return f"CRASH {error!r}"


def test_all_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    found = documents()
    wrong = {place: outcome(etree.tostring(root, encoding="unicode")) for place, root in found.items()}
    report(wrong, capsys)
    assert found and not any(wrong.values())


def report(wrong: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """How many came back, and why the others did not."""
    failed = {place: reason for place, reason in wrong.items() if reason}
    with capsys.disabled():
        print(f"\n{len(wrong)} documents, {len(wrong) - len(failed)} exact")
        for reason, count in collections.Counter(reason[:150] for reason in failed.values()).most_common(40):
            print(f"{count:6} {reason}  ({next(place for place, one in failed.items() if one.startswith(reason))})")


def test_all_networks_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    """As they were, also after an import as options was said to them."""
    found = documents("network")
    wrong = {place: network(etree.tostring(root, encoding="unicode")) for place, root in found.items()}
    report(wrong, capsys)
    assert found and not any(wrong.values())


def network(xml: str) -> str:
    """What goes wrong with a network: nothing, a change or a crash."""
    try:
        return network_changes(xml, {}) or network_changes(xml, network_import(xml))
    except Exception as error:  # noqa: BLE001  (each kind is reported)
        return f"CRASH {error!r}"


def network_import(xml: str) -> t.Mapping[str, t.Any]:
    """The fields that the options of an import mean."""
    said = noun_arguments.arguments(NETWORK, "any", Found("", True, False, xml))
    result = ArgumentSpecValidator(noun.argument_spec(NETWORK)).validate(said)
    assert not result.error_messages
    return noun.spec(NETWORK, result.validated_parameters).fields


def network_changes(xml: str, fields: t.Mapping[str, t.Any]) -> str:
    """What an edit makes of a network; empty when it is left as it was."""
    after = document.edit(xml, fields, table=NETWORK.table, shape=NETWORK.shape, finish=NETWORK.finish)
    if after.changes:
        return "; ".join(map(str, after.changes))
    return "" if canonical(after.xml) == canonical(xml) else "without a word"


def leaves(root: t.Any) -> int:
    """Values in a document: attributes and texts."""
    return sum(len(element.attrib) + bool((element.text or "").strip()) for element in root.iter(t.cast(t.Any, "*")))


def values(said: object) -> int:
    """Values in options."""
    if isinstance(said, dict):
        return sum(values(one) for one in said.values())
    return sum(values(one) for one in said) if isinstance(said, list) else 1


def unsaid(table: Table, element: t.Any, where: str = "") -> t.Iterator[tuple[str, str]]:
    """Field and value of what is read but not of its kind, and so left out of an import."""
    for field, row in table.items():
        if isinstance(row, Items):
            for entry in row.elements(element):
                yield from unsaid(row.table, entry, f"{where}{field}[].")
            continue
        value = row.read(element)
        for one in value if isinstance(row, Many) and value else [value]:
            try:
                row.kind.check("" if one is None else f"{one}KiB" if option_of(field) != field else one)
            except ValueError:
                if one is not None:
                    yield where + field, str(one).strip()


def test_what_an_import_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Printed for who extends the tables; nothing to pass or fail."""
    shares, refused = [], collections.Counter[tuple[str, str]]()
    for place, root in documents().items():
        kind = root.find("os/type")
        if kind is not None and kind.get("arch") in OURS and any(folder in place for folder in PRINTED):
            shares.append(values(arguments(etree.tostring(root, encoding="unicode"), autostart=False)) / leaves(root))
            refused.update(set(unsaid(domain.DOMAIN, root)))
    with capsys.disabled():
        print(
            f"\n{len(shares)} documents of {' and '.join(OURS)}: {sum(shares) / len(shares):.0%} of their values are "
            "said on average"
        )
        for (field, value), count in refused.most_common(60):
            print(f"{count:6} {field}: {value}")
