"""What others wrote comes back as it was, and says of itself what the options can say: the test documents of libvirt
and virt-manager.

They are not ours to ship. CONTRIBUTING.md tells where they are; CORRAL_FOREIGN_XML names the folder that holds them, and
CORRAL_FOREIGN_URI a libvirt with QEMU where guests may be defined.
"""

from __future__ import annotations

import collections
import os
import re
import typing as t
from pathlib import Path

import libvirt
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_domain, xml_host, xml_validate
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import DisplayDefaults, GuestSpec
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest import plan
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported as import_of
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._network.plan_network import NETWORK
from ansible_collections.corral.virt.plugins.module_utils._noun import (
    run_noun,
    run_noun_info,
    run_noun_options,
    xml_document,
)
from ansible_collections.corral.virt.plugins.module_utils._noun.model_noun import Found
from ansible_collections.corral.virt.plugins.module_utils._noun.plan_noun_stages import Noun
from ansible_collections.corral.virt.plugins.module_utils._nwfilter.plan_nwfilter import NWFILTER
from ansible_collections.corral.virt.plugins.module_utils._secret.plan_secret import SECRET
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import Size, SizeOf
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool import POOL
from ansible_collections.corral.virt.plugins.module_utils._volume.plan_volume import VOLUME
from ansible_collections.corral.virt.plugins.module_utils._xml.row import Items, Many, Table, option_of

FOLDER, URI = os.environ.get("CORRAL_FOREIGN_XML"), os.environ.get("CORRAL_FOREIGN_URI")
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
        except (etree.XMLSyntaxError, OSError):
            continue  # a test of errors, or of an encoding that is none
        name = root.findtext("name") or ""
        if root.tag == tag and (tag != "domain" or (name and "/" not in name and root.find("os") is not None)):
            found[str(path.relative_to(t.cast(str, FOLDER)))] = root
    return found


def canonical(xml: str) -> str:
    """A document without what does not matter."""
    return str(etree.canonicalize(xml, strip_text=True))


def changes(xml: str, guest: GuestSpec) -> str:
    """What a graft makes of a document; empty when it is left as it was."""
    after = fields_domain.graft(xml, guest)
    if after.changes or xml_validate.problems(xml, guest, after):
        return "; ".join(map(str, (*after.changes, *xml_validate.problems(xml, guest, after))))
    return "" if canonical(after.xml) == canonical(xml) else "without a word"


def imported(xml: str) -> dict[str, t.Any]:
    """The options that describe a document."""
    output = {**import_of(xml, autostart=False).arguments, "name": "any"}
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate(output)
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


@pytest.mark.parametrize("noun", [NETWORK, NWFILTER, POOL, SECRET, VOLUME], ids=lambda noun: noun.schema.kind.name)
def test_all_of_a_noun_come_back(noun: Noun, capsys: pytest.CaptureFixture[str]) -> None:
    """As they were, also after an import as options was said to them."""
    found = documents(noun.shape.tag)
    wrong = {place: of_noun(noun, etree.tostring(root, encoding="unicode")) for place, root in found.items()}
    report(wrong, capsys)
    assert found and not any(wrong.values())


def of_noun(noun: Noun, xml: str) -> str:
    """What goes wrong with a document: nothing, a change or a crash."""
    try:
        return noun_changes(noun, xml, {}) or noun_changes(noun, xml, noun_import(noun, xml))
    except Exception as error:  # noqa: BLE001  (each kind is reported)
        return f"CRASH {error!r}"


def noun_import(noun: Noun, xml: str) -> t.Mapping[str, t.Any]:
    """The fields that the options of an import mean."""
    within = {"usage": "ceph"}.get(str(noun.schema.kind.within), "default") if noun.schema.kind.within else None
    output = run_noun_info.arguments(noun.schema, "any", Found("", xml=xml), within)
    result = ArgumentSpecValidator(run_noun_options.argument_spec(noun.schema)).validate(output)
    assert not result.error_messages
    return run_noun.spec(noun, result.validated_parameters).fields


def noun_changes(noun: Noun, xml: str, fields: t.Mapping[str, t.Any]) -> str:
    """What an edit makes of a document; empty when it is left as it was."""
    after = xml_document.edit(xml, fields, table=noun.schema.table, shape=noun.shape, finish=noun.finish)
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
            shares.append(
                values(import_of(etree.tostring(root, encoding="unicode"), autostart=False).arguments) / leaves(root)
            )
            refused.update(set(unsaid(fields_domain.DOMAIN, root)))
    with capsys.disabled():
        print(
            f"\n{len(shares)} documents of {' and '.join(OURS)}: {sum(shares) / len(shares):.0%} of their values are "
            "said on average"
        )
        for (field, value), count in refused.most_common(60):
            print(f"{count:6} {field}: {value}")


class Anything(set[str]):
    """Every network is there."""

    def __contains__(self, _name: object) -> bool:
        return True


class Nowhere:
    """A host without the guest, where every disk is."""

    uri = "qemu:///embed"

    def __init__(self, capabilities: str, version: int) -> None:
        self._capabilities, self._version = xml_host.host(capabilities), version

    def libvirt_version(self) -> int:
        """Of the libvirt that makes the guest."""
        return self._version

    def capabilities(self) -> dict[str, t.Any]:
        """As libvirt tells them."""
        return self._capabilities

    def disks(self, questions: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Their sizes; a disk that would be made anew is what must not be."""
        assert not {name for name, question in questions.items() if not isinstance(question, SizeOf)}, "a new disk"
        return {name: Size(2**30) for name in questions}

    def __getattr__(self, question: str) -> t.Callable[..., t.Any]:
        answers = {"links": (None, Anything()), "displays": DisplayDefaults(), "new_uuid": UUID}
        return lambda *_about: answers.get(question)


UUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"
EMULATOR = "/usr/bin/qemu-system-x86_64"
# What another guest has, or libvirt chooses for it.
OTHERS = re.compile(r"^/domain/(uuid|name|@type|metadata/[^/]*corral)|/alias/@name$|^/domain/devices/emulator$")
# With which libvirt 9 writes beyond its memory, or reads nowhere.
DEADLY = (
    "cpu/numa/cell/distances/sibling[@id >= count(../../../cell)]",
    "devices/hostdev[@type='scsi_host' and @rawio]",
)
UNDEFINE = 1 | 2 | 4  # with managed save, snapshots and UEFI variables


def defined(connection: t.Any, xml: str) -> str | Exception:
    """The definition as libvirt has it, or why it refuses."""
    try:
        domain = connection.defineXML(xml)
    except libvirt.libvirtError as error:
        return t.cast("Exception", error)
    kept = str(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE))
    domain.undefineFlags(UNDEFINE)
    return kept


def told(root: t.Any, where: str = "") -> t.Iterator[tuple[str, str]]:
    """Place and value of everything in a document."""
    place = f"{where}/{root.tag}"
    own = [(f"{place}/@{name}", value) for name, value in root.attrib.items()]
    own += [(place, (root.text or "").strip())] if (root.text or "").strip() or not (len(root) or root.attrib) else []
    yield from (pair for pair in own if not OTHERS.search(pair[0]))
    for child in root.iterchildren(tag=etree.Element):
        yield from told(child, place)


def lost(before: str, after: str) -> tuple[collections.Counter[str], int]:
    """How much of a guest is gone, by place, and how much there was."""
    was, now = (collections.Counter(told(etree.fromstring(xml))) for xml in (before, after))
    gone: collections.Counter[str] = collections.Counter()
    for (place, _value), count in (was - now).items():
        gone[place] += count
    return gone, sum(was.values())


@pytest.fixture(scope="module")
def connection() -> t.Any:
    """libvirt's QEMU driver."""
    libvirt.virEventRegisterDefaultImpl()
    libvirt.registerErrorHandler(lambda *_error: None, None)
    return libvirt.open(URI)


@pytest.fixture(scope="module")
def definitions(connection: t.Any) -> dict[str, str]:
    """The guests that libvirt takes, as it has them; one of those that say the same."""
    found = {}
    for place, root in documents().items():
        kind, emulator = root.find("os/type"), root.find("devices/emulator")
        if kind is None or root.get("type") not in ("kvm", "qemu") or kind.get("arch") not in (None, "x86_64"):
            continue
        if any(map(root.xpath, DEADLY)):
            continue
        root.set("type", "qemu")
        kind.set("arch", "x86_64")
        if emulator is not None:
            emulator.text = EMULATOR
        before = defined(connection, etree.tostring(root, encoding="unicode"))
        if isinstance(before, str):
            found[before.partition("</uuid>")[2]] = (place, before)
    return dict(found.values())


def made(connection: t.Any, said: t.Mapping[str, t.Any]) -> str | Exception:
    """What a host without the guest makes of arguments, or why it refuses them."""
    result = ArgumentSpecValidator(GUEST_OPTIONS).validate({**said, "name": "any"})
    host = t.cast("t.Any", Nowhere(connection.getCapabilities(), connection.getLibVersion()))
    try:
        planned = plan(wanted(result.validated_parameters), host).steps
    except VirtError as error:
        return error
    return defined(
        connection, next(step.xml for step in reversed(planned) if isinstance(step, plan_guest_steps.Define))
    )


@pytest.mark.skipif(not URI, reason="CORRAL_FOREIGN_URI names no libvirt")
@pytest.mark.parametrize("least", [False, True])
def test_every_guest_is_made_again(
    least: bool, connection: t.Any, definitions: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """From its import, by libvirt's QEMU driver: 97 of 100 values at least, and nobody but libvirt refuses one."""
    shares, gone, refused = list[float](), collections.Counter[str](), dict[str, Exception]()
    left = collections.Counter[str]()
    for place, before in definitions.items():
        told = import_of(before, autostart=False, least=least)
        left.update(one["why"] for one in told.not_imported)
        after = made(connection, told.arguments)
        if isinstance(after, Exception):
            refused[place] = after
            continue
        losses, values_there = lost(before, after)
        shares.append(1 - losses.total() / values_there)
        gone += losses
    with capsys.disabled():
        kept = sum(shares) / len(shares)
        print(f"\n{len(definitions)} guests, {len(shares)} made again; {kept:.1%} is kept on average")
        lines = [*(f"   refused {place}: {why}" for place, why in refused.items())]
        lines += [f"{count:6} not imported: {why}" for why, count in left.most_common()]
        print("\n".join([*lines, *(f"{count:6} {place}" for place, count in gone.most_common(40))]))
    assert len(shares) > 100 and sum(shares) / len(shares) > 0.97 and len(refused) < len(shares) / 100
    assert not [why for why in refused.values() if not isinstance(why, libvirt.libvirtError)]
