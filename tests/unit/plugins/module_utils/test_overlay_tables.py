"""What `xml` makes of a definition, as a table: the document afterwards, and the changes that are told."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import SHAPE
from ansible_collections.corral.virt.plugins.module_utils._xml import overlay
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse, text

Told = list[tuple[str, object, object]]


def content(root: t.Any) -> str:
    """What is in a document, without space between elements."""
    written = re.sub(r">\s+<", "><", text(root).strip())
    return re.sub(r"^<domain/>$|^<domain>|</domain>$", "", written)


def made(found: str, xml: str) -> tuple[str, Told]:
    """The content of the domain afterwards, and the changes."""
    root = parse(f"<domain>{found}</domain>")
    changes = overlay.merge(root, f"<domain>{xml}</domain>", SHAPE)
    return content(root), [(change.where, change.before, change.after) for change in changes]


def devices(*elements: str) -> str:
    return f"<devices>{''.join(elements)}</devices>"


DISK = "<disk><target dev='vda'/><driver cache='none'/></disk>"
MAC = "52:54:00:AA:bb:01"
NIC = f"<interface><mac address='{MAC.lower()}'/><model type='e1000'/></interface>"
# What is there, what xml says, what is there afterwards (empty: the same), the changes.
MERGED: list[tuple[str, str, str, t.Sequence[tuple[str, object, object]]]] = [
    # most elements stand once, and are edited: text and attributes
    ("<memory>1</memory>", "<memory>1</memory>", "", []),
    ("<memory>1</memory>", "<memory> 1 </memory>", "", []),
    ("<memory> 1 </memory>", "<memory>1</memory>", "<memory> 1 </memory>", []),
    ("<memory>1</memory>", "<memory>2</memory>", "<memory>2</memory>", [("xml.memory", "1", "2")]),
    ("<memory/>", "<memory>2</memory>", "<memory>2</memory>", [("xml.memory", None, "2")]),
    ("<memory>1</memory>", "<memory/>", "", []),
    ("<memory>1</memory>", "<memory unit='b'/>", '<memory unit="b">1</memory>', [("xml.memory.unit", None, "b")]),
    (
        "<memory unit='b'>1</memory>",
        "<memory unit='c'>2</memory>",
        '<memory unit="c">2</memory>',
        [("xml.memory.unit", "b", "c"), ("xml.memory", "1", "2")],
    ),
    ("", "<memory unit='b'/>", '<memory unit="b"/>', [("xml.memory", None, "unit=b")]),
    ("", "<memory>5</memory>", "<memory>5</memory>", [("xml.memory", None, "5")]),
    ("", "<os><boot/></os>", "<os><boot/></os>", [("xml.os", None, "present")]),
    (
        "<memory unit='b'>1</memory>",
        "<memory unit='c'> 1 </memory>",
        '<memory unit="c">1</memory>',
        [("xml.memory.unit", "b", "c")],
    ),
    # said in two pieces
    (
        "",
        "<memory unit='b'/><memory>5</memory>",
        '<memory unit="b">5</memory>',
        [("xml.memory", None, "unit=b"), ("xml.memory", None, "5")],
    ),
    # comments and instructions are no elements
    ("<os/>", "<os><!-- a --><?b c?></os>", "<os/>", []),
    ("<os><!-- a --></os>", "<os><bios/></os>", "<os><!-- a --><bios/></os>", [("xml.os.bios", None, "present")]),
    ("<os/>", "<os><!-- a --><?b c?><bios/></os>", "<os><bios/></os>", [("xml.os.bios", None, "present")]),
    (
        devices("<sound x='1'><codec type='a'/></sound>"),
        devices("<sound><!-- a --><?b c='d'?><codec type='a'/></sound>"),
        "",
        [],
    ),
    # MAC addresses are the same in letters of any size
    (devices(NIC), devices(f"<interface><mac address='{MAC}'/></interface>"), "", []),
    ("<os x='A'/>", "<os x='a'/>", '<os x="a"/>', [("xml.os.x", "A", "a")]),
    ("<mac address='A'/>", "<mac address='a'/>", '<mac address="A"/>', []),
    ("<mac/>", "<mac address='a'/>", '<mac address="a"/>', [("xml.mac.address", None, "a")]),
    ("<mac address='a'/>", "<mac address='B'/>", '<mac address="B"/>', [("xml.mac.address", "a", "B")]),
    (devices("<hub x='1'><mac address='a'/></hub>"), devices("<hub><mac address='A'/></hub>"), "", []),
    # what was added belongs to who wanted it
    (
        devices(),
        devices("<sound model='a'><codec type='b'/></sound>", "<sound model='a'/>"),
        devices('<sound model="a"><codec type="b"/></sound>', '<sound model="a"/>'),
        [("xml.devices.sound", None, "model=a"), ("xml.devices.sound", None, "model=a")],
    ),
    # a device with an identity edits its twin
    (
        devices(DISK),
        devices("<disk><target dev='vda'/><driver cache='unsafe'/></disk>"),
        devices('<disk><target dev="vda"/><driver cache="unsafe"/></disk>'),
        [("xml.devices.disk[vda].driver.cache", "none", "unsafe")],
    ),
    (
        devices(DISK),
        devices("<disk><target dev='vdb'/></disk>"),
        devices('<disk><target dev="vda"/><driver cache="none"/></disk>', '<disk><target dev="vdb"/></disk>'),
        [("xml.devices.disk", None, "present")],
    ),
    (
        devices(DISK),
        devices("<disk><target dev='vda'/><driver cache='unsafe'/></disk>", "<disk><target dev='vda'/><boot/></disk>"),
        devices('<disk><target dev="vda"/><driver cache="unsafe"/><boot/></disk>'),
        [
            ("xml.devices.disk[vda].driver.cache", "none", "unsafe"),
            ("xml.devices.disk[vda].boot", None, "present"),
        ],
    ),
    (
        devices(NIC),
        devices(f"<interface><mac address='{MAC}'/><model type='virtio'/></interface>"),
        devices(f'<interface><mac address="{MAC.lower()}"/><model type="virtio"/></interface>'),
        [(f"xml.devices.interface[{MAC.lower()}].model.type", "e1000", "virtio")],
    ),
    (
        devices("<channel type='pty'><target name='a'/></channel>"),
        devices("<channel type='unix'><target name='a'/></channel>"),
        devices('<channel type="unix"><target name="a"/></channel>'),
        [("xml.devices.channel[a].type", "pty", "unix")],
    ),
    (
        devices("<filesystem><target dir='a'/></filesystem>"),
        devices("<filesystem accessmode='mapped'><target dir='a'/></filesystem>"),
        devices('<filesystem accessmode="mapped"><target dir="a"/></filesystem>'),
        [("xml.devices.filesystem[a].accessmode", None, "mapped")],
    ),
    # a second of the same name is none: libvirt refuses it, or believes the last
    *(
        (
            f"<a><{tag} {key}='1' x='1'/><{tag} {key}='2'/></a>",
            f"<a><{tag} {key}='2' x='3'/><{tag} {key}='4'/></a>",
            f'<a><{tag} {key}="1" x="1"/><{tag} {key}="2" x="3"/><{tag} {key}="4"/></a>',
            [(f"xml.a.{tag}[2].x", None, "3"), (f"xml.a.{tag}", None, f"{key}=4")],
        )
        for tag, key in (
            ("feature", "name"),
            ("timer", "name"),
            ("vcpupin", "vcpu"),
            ("iothreadpin", "iothread"),
            ("cell", "id"),
            ("memnode", "cellid"),
            ("sibling", "id"),
        )
    ),
    (
        devices("<graphics type='vnc'/>"),
        devices("<graphics type='vnc' port='5'/>"),
        devices('<graphics type="vnc" port="5"/>'),
        [("xml.devices.graphics[vnc].port", None, "5")],
    ),
    (
        devices("<graphics type='vnc'/>"),
        devices("<graphics type='spice'/>"),
        devices('<graphics type="vnc"/>', '<graphics type="spice"/>'),
        [("xml.devices.graphics", None, "type=spice")],
    ),
    (devices("<graphics/>"), devices("<graphics port='5'/>"), devices("<graphics/>", '<graphics port="5"/>'),
     [("xml.devices.graphics", None, "port=5")]),
    (
        devices("<interface><mac/></interface>"),
        devices("<interface><mac check='no'/></interface>"),
        devices("<interface><mac/></interface>", '<interface><mac check="no"/></interface>'),
        [("xml.devices.interface", None, "present")],
    ),
    (
        "<sysinfo type='smbios'/>",
        "<sysinfo type='smbios'><bios/></sysinfo><sysinfo type='fwcfg'/>",
        '<sysinfo type="smbios"><bios/></sysinfo><sysinfo type="fwcfg"/>',
        [("xml.sysinfo[smbios].bios", None, "present"), ("xml.sysinfo", None, "type=fwcfg")],
    ),
    (
        devices("<controller type='scsi' index='0'/>"),
        devices("<controller type='scsi' index='0' model='x'/>"),
        devices('<controller type="scsi" index="0" model="x"/>'),
        [("xml.devices.controller[scsi-0].model", None, "x")],
    ),
    # companions of a USB controller share their index
    (
        devices("<controller type='usb' index='0'/>"),
        devices("<controller type='usb' index='0' model='x'/>"),
        devices('<controller type="usb" index="0"/>', '<controller type="usb" index="0" model="x"/>'),
        [("xml.devices.controller", None, "type=usb index=0 model=x")],
    ),
    (
        devices("<controller type='scsi'/>"),
        devices("<controller type='scsi' model='x'/>"),
        devices('<controller type="scsi"/>', '<controller type="scsi" model="x"/>'),
        [("xml.devices.controller", None, "type=scsi model=x")],
    ),
    *(
        (
            devices(f"<{tag} a='1'/>"),
            devices(f"<{tag} a='2'/>"),
            devices(f'<{tag} a="2"/>'),
            [(f"xml.devices.{tag}[{tag}].a", "1", "2")],
        )
        for tag in ("memballoon", "vsock", "iommu")
    ),
    # an index is no identity of what is no controller
    (devices("<sound type='a' index='1'/>"), devices("<sound type='a' index='1' x='2'/>"),
     devices('<sound type="a" index="1"/>', '<sound type="a" index="1" x="2"/>'),
     [("xml.devices.sound", None, "type=a index=1 x=2")]),
    # the alias that its user gave it comes first
    (
        devices("<sound model='a'><alias name='ua-x'/></sound>"),
        devices("<sound model='b'><alias name='ua-x'/></sound>"),
        devices('<sound model="b"><alias name="ua-x"/></sound>'),
        [("xml.devices.sound[x].model", "a", "b")],
    ),
    (
        devices("<disk x='1'><target dev='vda'/><alias name='ua-x'/></disk>", "<disk><target dev='vdb'/></disk>"),
        devices("<disk x='2'><target dev='vdb'/><alias name='ua-x'/></disk>"),
        devices('<disk x="2"><target dev="vdb"/><alias name="ua-x"/></disk>', '<disk><target dev="vdb"/></disk>'),
        [("xml.devices.disk[x].x", "1", "2"), ("xml.devices.disk[x].target.dev", "vda", "vdb")],
    ),
    # what has no identity is there as often as xml says it
    (devices("<sound/>"), devices("<sound/>"), "", []),
    (devices("<sound/>"), devices("<sound/>", "<sound/>"), devices("<sound/>", "<sound/>"),
     [("xml.devices.sound", None, "present")]),
    (devices("<sound/>", "<sound/>"), devices("<sound/>"), "", []),
    (devices("<sound a='1'/>"), devices("<sound/>"), "", []),
    (devices("<sound/>"), devices("<sound a='1'/>"), devices("<sound/>", '<sound a="1"/>'),
     [("xml.devices.sound", None, "a=1")]),
    # one that could serve both is left to the one who needs it
    (devices("<sound a='1'/>", "<sound a='1' b='2'/>"), devices("<sound a='1'/>", "<sound b='2'/>"), "", []),
    (devices("<sound a='1' b='2'/>", "<sound a='1'/>"), devices("<sound a='1'/>", "<sound b='2'/>"), "", []),
    (
        devices("<sound a='1' b='2' c='3'/>", "<sound a='1' c='3'/>"),
        devices("<sound a='1'/>", "<sound b='2'/>"),
        "",
        [],
    ),
    (
        devices("<disk><target dev='vda'/><driver cache='none' type='raw'/></disk>"),
        devices("<disk><target dev='vda'/><driver cache='unsafe'/></disk>", "<disk><driver type='raw'/></disk>"),
        devices(
            '<disk><target dev="vda"/><driver cache="unsafe" type="raw"/></disk>',
            '<disk><driver type="raw"/></disk>',
        ),
        [("xml.devices.disk[vda].driver.cache", "none", "unsafe"), ("xml.devices.disk", None, "present")],
    ),
    # what has an identity is found first
    (
        devices(NIC),
        devices("<interface><model type='e1000'/></interface>", f"<interface><mac address='{MAC}'/></interface>"),
        devices(NIC.replace("'", '"'), '<interface><model type="e1000"/></interface>'),
        [("xml.devices.interface", None, "present")],
    ),
    (devices("<hub type='usb'>x</hub>"), devices("<hub>x</hub>"), "", []),
    (devices("<hub>x</hub>"), devices("<hub>y</hub>"), devices("<hub>x</hub>", "<hub>y</hub>"),
     [("xml.devices.hub", None, "y")]),
    # two interfaces of one MAC address, two displays of one type
    (
        devices(NIC, NIC),
        devices(*(f"<interface trustGuestRxFilters='{on}'><mac address='{MAC}'/></interface>" for on in ("a", "b"))),
        devices(*(
            f'<interface trustGuestRxFilters="{on}"><mac address="{MAC.lower()}"/><model type="e1000"/></interface>'
            for on in ("a", "b")
        )),
        [(f"xml.devices.interface[{MAC.lower()}].trustGuestRxFilters", None, on) for on in ("a", "b")],
    ),
    (
        devices("<graphics type='vnc'/>"),
        devices("<graphics type='vnc' port='1'/>", "<graphics type='vnc' port='2'/>"),
        devices('<graphics type="vnc" port="1"/>', '<graphics type="vnc" port="2"/>'),
        [("xml.devices.graphics[vnc].port", None, "1"), ("xml.devices.graphics", None, "type=vnc port=2")],
    ),
    # of other namespaces, too
    (
        "<metadata/>",
        "<metadata><a:b xmlns:a='urn:a' c='1'/></metadata>",
        '<metadata><a:b xmlns:a="urn:a" c="1"/></metadata>',
        [("xml.metadata.b", None, "c=1")],
    ),
    # secrets are hidden, before and after
    (
        devices("<graphics type='vnc' passwd='old'/>"),
        devices("<graphics type='vnc' passwd='new'/>"),
        devices('<graphics type="vnc" passwd="new"/>'),
        [("xml.devices.graphics[vnc].passwd", "(hidden)", "(hidden)")],
    ),
    ("<os><secret>a</secret></os>", "<os><secret>b</secret></os>", "<os><secret>b</secret></os>",
     [("xml.os.secret", "(hidden)", "(hidden)")]),
    ("<os><secret/></os>", "<os><secret>b</secret></os>", "<os><secret>b</secret></os>",
     [("xml.os.secret", None, "(hidden)")]),
    ("", "<os secret=''/>", '<os secret=""/>', [("xml.os", None, "secret=")]),
    ("", "<sysinfo><entry name='password'>b</entry></sysinfo>", '<sysinfo><entry name="password">b</entry></sysinfo>',
     [("xml.sysinfo", None, "present")]),
    ("<os><smbios mode='a'/></os>", "<os><smbios mode='data=xyz'/></os>", '<os><smbios mode="data=xyz"/></os>',
     [("xml.os.smbios.mode", "a", "data=(hidden)")]),
    ("<os><auth type='secret'/></os>", "<os><auth type='token'/></os>", '<os><auth type="token"/></os>',
     [("xml.os.auth.type", "secret", "token")]),
]  # fmt: skip


@pytest.mark.parametrize(("found", "xml", "after", "changes"), MERGED)
def test_xml_becomes_part_of_the_definition(
    found: str, xml: str, after: str, changes: t.Sequence[tuple[str, object, object]]
) -> None:
    written, result = made(found, xml)
    assert result == changes
    assert written == (after or content(parse(f"<domain>{found}</domain>")))
    assert made(written, xml)[1] == [], "a second time changes nothing"


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        ("<!DOCTYPE domain><domain/>", "must not declare a document type or entities"),
        ("<domain/><!ENTITY a>", "must not declare a document type or entities"),
        ("<domain", "must be well-formed XML ("),
        ("<guest/>", "must be a <domain> element without attributes that contains the elements to add"),
        ("<domain type='kvm'/>", "must be a <domain> element without attributes"),
        ("<domain><name>a</name></domain>", "must not contain <name>: it has its own option"),
        ("<domain><uuid>a</uuid></domain>", "must not contain <uuid>: it has its own option"),
        ("<domain><metadata><a/></metadata></domain>", "must not contain <metadata> of the collection, or without"),
        *(
            (f"<domain><metadata><a xmlns='urn:corral:virt:{kind}:1'/></metadata></domain>", "must not contain <metadata>")
            for kind in ("guest", "seen")
        ),
    ],
)  # fmt: skip
def test_what_is_no_piece_of_a_definition_is_refused(xml: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        overlay.checked(xml, SHAPE)
    with pytest.raises(BadInput, match=re.escape(f"xml: {reason}")):
        overlay.merge(parse("<domain/>"), xml, SHAPE)


def test_shapes_have_a_name_and_nothing_else_of_their_own() -> None:
    shape = overlay.Shape("network")
    assert overlay.checked("<network><a/></network>", shape) == "<network><a/></network>"
    for own in ("name", "uuid"):
        with pytest.raises(ValueError, match=f"must not contain <{own}>"):
            overlay.checked(f"<network><{own}/></network>", shape)
    root = parse("<network><dns a='1'/></network>")
    assert [one.where for one in overlay.merge(root, "<network><dns a='2'/></network>", shape)] == ["xml.dns.a"]
    several = overlay.Shape("network", several=frozenset({"route"}))
    changes = overlay.merge(root, "<network><route/><route a='1'/></network>", several)
    assert [one.where for one in changes] == ["xml.route", "xml.route"]


# Found, wanted, whether all of it is there.
HELD = [
    ("<a/>", "<a/>", True),
    ("<a x='1'/>", "<a/>", True),
    ("<a/>", "<a x='1'/>", False),
    ("<a>t</a>", "<a/>", True),
    ("<a> t </a>", "<a>t</a>", True),
    ("<a/>", "<a>t</a>", False),
    ("<a>u</a>", "<a>t</a>", False),
    ("<a><b/><c/></a>", "<a><c/></a>", True),
    ("<a><b/></a>", "<a><!-- x --><b/></a>", True),
    ("<a><b x='1'/><b x='2'/></a>", "<a><b x='2'/></a>", True),
    ("<a><b x='1'/></a>", "<a><b x='2'/></a>", False),
    ("<a><b/></a>", "<a><c/></a>", False),
    ("<a><mac address='aB'/></a>", "<a><mac address='Ab'/></a>", True),
    ("<a><mac address='aB'/></a>", "<a><mac address='aC'/></a>", False),
    ("<a><MAC address='aB'/></a>", "<a><MAC address='Ab'/></a>", False),
]


@pytest.mark.parametrize(("found", "wanted", "there"), HELD)
def test_more_than_what_is_wanted_may_be_there(found: str, wanted: str, there: bool) -> None:
    assert overlay.holds(parse(found), parse(wanted)) is there


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("<a x='1' y='2'><b/><c/></a>", "<a y='2' x='1'><c/><!-- d --><b/></a>", True),
        ("<a> t </a>", "<a>t</a>", True),
        ("<a/>", "<a></a>", True),
        ("<a><b/></a>", "<a><b/><b/></a>", False),
        ("<a>t</a>", "<a/>", False),
        ("<a x='1'/>", "<a/>", False),
        ("<a/>", "<b/>", False),
    ],
)
def test_elements_that_say_the_same_have_one_signature(one: str, other: str, same: bool) -> None:
    assert (overlay.signature_of(parse(one)) == overlay.signature_of(parse(other))) is same


@pytest.mark.parametrize(
    ("xml", "secrets"),
    [
        ("<a passwd='x'/>", ["x"]),
        ("<a><my-token>x</my-token></a>", ["x"]),
        ("<a><private_key>x</private_key><key>y</key></a>", ["x"]),
        ("<a><entry name='passphrase'>x</entry><entry name='serial'>y</entry></a>", ["x"]),
        ("<a><env name='API-KEYS' value='x'/><initenv name='session_key'>y</initenv></a>", ["x", "y"]),
        ("<a><other name='passphrase'>x</other></a>", []),
        ("<a><secret type='ceph' name='x'/></a>", []),
        ("<a><q:arg xmlns:q='urn:q' value='fw,file=/x,password=y,data=z'/></a>", ["y", "z"]),
        ("<a xmlns:q='urn:q'><q:cookie>x</q:cookie></a>", ["x"]),
        ("<a>token:x</a>", ["x"]),
        ("<a><!-- token:x --></a>", []),
        ("<a", []),
    ],
)
def test_secrets_are_found_by_the_words_that_name_them(xml: str, secrets: list[str]) -> None:
    assert list(overlay.secrets(xml)) == secrets
    if secrets:
        assert any(overlay.has_secret(one) for one in parse(xml).iter("*"))
