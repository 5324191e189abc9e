"""Whatever is said in whatever option is refused, or stands in the document as inert text."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_new
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import wanted
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_seed
from ansible_collections.corral.virt.plugins.module_utils._xml import kind as k
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.unit.plugins.module_utils import option_samples
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.examples import examples

EVIL = [
    "../../x",
    "a/b",
    "<x/>",
    "a\"b'&",
    "]]><x/>",
    "&xxe;",
    "a\x00",
    "\x1b[31m",
    "a\n",
    "\ud800",
    "{{ 7 * 7 }}",
    "-drive",
    "x\u202ey",
]
BROKEN = ("a\x00", "\x1b[31m", "\ud800")  # what XML cannot hold
NEVER_IN_NAMES = set("/<>&\"'\x00\x1b\n\ud800{}\u202e ")
GIVEN = ["name", "renamed_from", "clone_of"]  # of guests that are there, whoever named them
NAMES = [
    *GIVEN,
    "image",
    "tags",
    "disks.name",
    "disks.image",
    "disks.image_pool",
    "disks.thin_pool",
    "disks.pool",
    "interfaces.network",
    "interfaces.portgroup",
    "hostdevs.name",
]


def option_at(path: tuple[str, ...]) -> t.Mapping[str, t.Any]:
    """The option at a place."""
    options: t.Mapping[str, t.Any] = option_samples.OPTIONS
    for step in path[:-1]:
        options = options[step]["options"]
    return t.cast("t.Mapping[str, t.Any]", options[path[-1]])


def takes_text(path: tuple[str, ...]) -> bool:
    """Whether any text can be said there; `xml` is markup by its nature and has tests of its own."""
    option = option_at(path)
    return (
        option.get("elements", option["type"]) in ("str", "path", "raw")
        and "choices" not in option
        and path != ("xml",)
    )


def identity(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What an entry of a list must say."""
    values: dict[str, t.Any] = {"str": "a", "int": 0, "raw": 1, "path": "/a"}
    needed = {name: option for name, option in options.items() if option.get("required")}
    return {name: option.get("choices", [values[option["type"]]])[0] for name, option in needed.items()}


def saying(path: tuple[str, ...], value: object) -> dict[str, t.Any]:
    """Options of a guest with a value at one place."""
    root: dict[str, t.Any] = {"vcpus": 1, "memory": 64}
    place, options = root, option_samples.OPTIONS
    for step in path[:-1]:
        inner: dict[str, t.Any] = identity(options[step]["options"]) if options[step]["type"] == "list" else {}
        place[step] = [inner] if options[step]["type"] == "list" else inner
        place, options = inner, options[step]["options"]
    place[path[-1]] = [value] if options[path[-1]]["type"] == "list" else value
    return root


TEXTS = [path for path in option_samples.PLACES if takes_text(path)]
# Where text has no form: some of the above is taken.
FREE = {
    "title", "description", "cpu.model", "machine", "features.hyperv.vendor_id", "disks.volume", "disks.serial", "channels.name",
    "graphics.password",
}  # fmt: skip
PATHS = [path for path in TEXTS if option_at(path).get("elements", option_at(path)["type"]) == "path"]


def words_of(xml: str) -> set[str]:
    """Every text and attribute of a document."""
    found = etree.fromstring(xml).iter()
    return {word for one in found for word in (one.text or "", *(str(value) for value in one.attrib.values()))}


def stands(path: tuple[str, ...], value: str) -> bool:
    """Whether a value is taken at a place; it must stand there as inert text then."""
    try:
        guest = option_samples.understood(saying(path, value))
        after = option_samples.grafted(guest, option_samples.bases()["new"])
    except BadInput as error:
        assert all(problem.isprintable() for problem in error.problems), "an escape sequence reaches the terminal"
        return False
    if path[0] == "cloud_init":
        return True  # it goes into the seed, not into the document
    assert value not in BROKEN
    assert not (".".join(path) in NAMES and NEVER_IN_NAMES & set(value)), "a name holds what no name may hold"
    assert not etree.fromstring(after.xml).findall(".//x"), "a text became an element"
    kept = words_of(after.xml)
    assert value in kept or set(value.split("/")) <= kept or path == ("image",), "a text was changed on its way"
    assert not option_samples.grafted(guest, after.xml).changes, "what was written does not come back as it was"
    return True


@pytest.mark.parametrize("path", [path for path in TEXTS if path[0] not in GIVEN], ids=".".join)
def test_no_text_becomes_structure(path: tuple[str, ...]) -> None:
    taken = [value for value in EVIL if stands(path, value)]
    assert bool(taken) == (".".join(path) in FREE), (
        "a place for any text refuses all of them, or one for a form takes some"
    )


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_a_path_is_absolute_and_goes_nowhere_else(path: tuple[str, ...]) -> None:
    for value in ("x", "../x", "/a/../../etc/shadow", "/..", "/a\nb", "/a\x00b", "/", "a/b"):
        with pytest.raises(
            BadInput, match=rf"{path[-1]} of .*: (must be an absolute path without '\.\.'|control characters)"
        ):
            option_samples.understood(saying(path, value))


@pytest.mark.parametrize("place", NAMES)
def test_names_are_always_checked(place: str) -> None:
    *_list, option = place.split(".")
    for value in ("a/b", "../x", "<x/>", "a\n", "a\x00", *([] if place in GIVEN else ["a b"]), "..", "/etc/passwd"):
        with pytest.raises(
            BadInput, match=rf"^[^:]*{option}[^:]*: (must be|control characters|.* is not a valid name|.* is a path, )"
        ):
            option_samples.understood(saying(tuple(place.split(".")), value))


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("<domain", "xml of web1: must be well-formed XML"),
        ("<domain><name>x</name></domain>", "must not contain <name>: it has its own option"),
        ("<domain><uuid>x</uuid></domain>", "must not contain <uuid>"),
        ("<domain><metadata><x/></metadata></domain>", "must not contain <metadata> of the collection, or without"),
        (
            "<domain><metadata><guest xmlns='urn:corral:virt:guest:1'/></metadata></domain>",
            "must not contain <metadata> of the collection",
        ),
        ("<network/>", "must be a <domain> element without attributes"),
        ("<domain type='kvm'/>", "must be a <domain> element without attributes"),
        (
            '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><domain><title>&e;</title></domain>',
            "must not declare a document type",
        ),
        ("\x00", "well-formed"),
    ],
)
def test_the_escape_hatch_has_a_frame(xml: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        option_samples.understood({"xml": xml})


@pytest.mark.parametrize(
    ("options", "piece", "lacking"),
    [
        (
            {"disks": [{"name": "data", "source": "/data.qcow2"}]},
            "<disk><alias name='ua-data'/><blockio discard_granularity='4096'/></disk>",
            {"driver/@type": "qcow2", "target/@dev": "vda", "target/@bus": "virtio", "@device": "disk"},
        ),
        (
            {"disks": [{"name": "vdb", "source": "/data.qcow2"}]},
            "<disk><target dev='vdb'/><blockio discard_granularity='4096'/></disk>",
            {"driver/@type": "qcow2", "target/@dev": "vdb", "target/@bus": "virtio"},
        ),
        (
            {"interfaces": [{"name": "lan", "bridge": "br0"}]},
            "<interface><alias name='ua-lan'/><coalesce><rx><frames max='7'/></rx></coalesce></interface>",
            {"model/@type": "virtio", "@type": "bridge"},
        ),
        (
            {"hostdevs": [{"name": "gpu", "type": "pci", "address": "0000:00:01.0"}]},
            "<hostdev><alias name='ua-gpu'/><rom bar='off'/></hostdev>",
            {"@mode": "subsystem", "@managed": "yes"},
        ),
    ],
)
def test_a_new_device_that_xml_says_more_of_is_a_whole_one(
    options: dict[str, t.Any], piece: str, lacking: dict[str, str]
) -> None:
    """Without its driver, a qcow2 file would be a raw disk."""
    guest = option_samples.understood({**options, "xml": f"<domain><devices>{piece}</devices></domain>"})
    base = xml_new.domain(name="web1", uuid=option_samples.UUID, virt_type="kvm", arch="x86_64", machine="q35")
    after = option_samples.grafted(guest, base)
    [device] = parse(after.xml).xpath(f"devices/{parse(piece).tag}")
    assert {path: device.xpath(f"string({path})") for path in lacking} == lacking
    assert device.find(parse(piece)[-1].tag) is not None
    assert not option_samples.grafted(guest, after.xml).changes


@pytest.mark.parametrize("base", option_samples.bases())
def test_the_escape_hatch_adds_once(base: str) -> None:
    guest = option_samples.understood(
        {"xml": "<domain><features><pae/></features><devices><redirdev bus='usb' type='pty'/></devices></domain>"}
    )
    before = option_samples.bases()[base]
    after = option_samples.grafted(guest, before)
    assert after.xml.count("<redirdev") == before.count("<redirdev") + 1
    assert "<pae/>" in after.xml
    assert not option_samples.grafted(guest, after.xml).changes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vcpus": {"cores": 3}}, "vcpus.cores of web1: no such option; options are cpuset, current"),
        ({"vcpus": {"topology": {"books": 3}}}, r"vcpus.topology.books of web1: no such option"),
        ({"vcpus": {"placement": "x"}}, "placement"),
        ({"memory": "much"}, "memory.current of web1: cannot read 'much' as a size; write 512MiB"),
        ({"memory": {"swap": 1}}, "memory.swap of web1: no such option"),
        ({"disks": [{"name": "a"}, {"name": "a"}]}, "disks of web1: a is given twice; names must be unique"),
        (
            {"disks": [{"name": "a", "network": {"protocol": "nbd", "name": "x", "snapshot": "s"}}]},
            r"disks\[a\].network.snapshot of web1: it applies to network.protocol rbd, not nbd",
        ),
        (
            {"disks": [{"name": "a", "network": {"protocol": "rbd", "name": "x/y", "tls": True}}]},
            r"disks\[a\].network.tls of web1: it applies to network.protocol nbd, not rbd",
        ),
        (
            {"disks": [{"name": "a", "network": {"protocol": "rbd", "auth": {"secret_uuid": "b"}}}]},
            r"disks\[a\].network.auth.secret_uuid of web1: 'b' is not a UUID; write it as",
        ),
        (
            {"disks": [{"name": "a", "nvme": {"address": "01:00.0"}}]},
            r"disks\[a\].nvme.address of web1: must be a PCI address as lspci -D prints it: 0000:06:00.0",
        ),
        ({"disks": [{"name": "a", "source": "../a"}]}, "must be an absolute path without '..', not '../a'"),
        ({"disks": [{"name": "a", "url": "gopher://x/y"}]}, r"disks\[a\].url of web1: must be http://"),
        ({"interfaces": [{"name": "a", "mac": "01:00:00:00:00:00"}]}, "not a unicast MAC"),
        (
            {"interfaces": [{"name": "a", "bridge": "a-name-that-is-too-long"}]},
            "name of a network device, 15 characters at most",
        ),
        ({"graphics": {"type": "vnc", "password": "123456789"}}, "VNC uses only 8 characters; set at most 8"),
        (
            {"graphics": {"type": "vnc", "port": 80}},
            "graphics.port of web1: must be a whole number from 5900 to 65535, not 80",
        ),
        ({"secure_boot": True, "firmware": "bios"}, "secure_boot of web1: it applies to firmware efi, not bios"),
        ({"nic_profile": "office"}, "nic_profile of web1: profiles are merged on the controller"),
        ({"title": "a\nb"}, "title of web1: must be a single line"),
        ({"cloud_init": {"user_data": "hello"}}, "cloud-init ignores it without a first line"),
        ({"memory": {"maximum": 1, "current": 2}}, "memory.current of web1: 2MiB is above memory.maximum, 1MiB"),
        (
            {"stop_on_reboot": True, "on_reboot": "restart"},
            "stop_on_reboot of web1: it is short for on_reboot: destroy; set only one",
        ),
    ],
)
def test_refusals(options: dict[str, t.Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        option_samples.understood(options)


def test_all_that_is_wrong_is_said_at_once() -> None:
    options = {
        "vcpus": 0,
        "memory": "x",
        "uuid": "y",
        "disks": [{"name": "a/b"}, {"name": "c", "serial": "\n"}],
        "boot": {"kernel": "k"},
    }
    with pytest.raises(BadInput, match="of web1: ") as caught:
        option_samples.understood(options)
    result = " ".join(caught.value.problems)
    for about in ("vcpus.current of", "memory.current of", "uuid of", "disks[].name of", "serial", "boot.kernel of"):
        assert about in result, result


def test_secrets_are_marked() -> None:
    marked = {".".join(path) for path in option_samples.PLACES if option_at(path).get("no_log")}
    assert marked == {"xml", "graphics.password", *(f"cloud_init.{document}" for document in plan_seed.DOCUMENTS)}


def test_a_kind_that_has_a_form_says_it() -> None:
    assert k.PATH.must and k.WORD.must and k.integer(1, 2).must == "must be a whole number from 1 to 2"


@pytest.mark.parametrize(
    ("spoken", "means"),
    [
        (1, "1"),
        ("0,1", "0-1"),
        ("4,0-1", "0-1,4"),
        ("0-7,^3", "0-2,4-7"),
        ("0-7,^3,3", "0-7"),
        (" 2 , 3 - 4", "2-4"),
        ("007", "7"),
        ("12000", "12000"),
    ],
)
def test_a_cpuset_is_spelt_as_libvirt_spells_it(spoken: object, means: str) -> None:
    assert wanted({"name": "web1", "vcpus": {"cpuset": spoken}}).fields["vcpus.cpuset"] == means


@pytest.mark.parametrize(
    "spoken", ["a", "3-1", "1,^1", "^1,0-7", "0-7,^1-2", "0-", "0,", "1 2", True, "1;2", "16384", "0-9999999999"]
)
def test_nonsense_is_no_cpuset(spoken: object) -> None:
    with pytest.raises(BadInput, match=r"vcpus\.cpuset of web1"):
        wanted({"name": "web1", "vcpus": {"cpuset": spoken}})


@examples(100)
@given(st.lists(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)))
def test_a_cpuset_reads_back_as_it_was_written(cpus: list[int], out: set[int]) -> None:
    """However it is said, it means the same CPUs, and its own spelling stays as it is."""
    left = set(cpus) - out
    spoken = ",".join([*map(str, cpus), *(f"^{cpu}" for cpu in sorted(set(cpus) & out))])
    if not left:
        with pytest.raises(BadInput, match="leaves no CPU"):
            wanted({"name": "web1", "vcpus": {"cpuset": spoken}})
        return
    means = wanted({"name": "web1", "vcpus": {"cpuset": spoken}}).fields["vcpus.cpuset"]
    ends = [[int(end) for end in part.split("-")] for part in means.split(",")]
    assert {cpu for run in ends for cpu in range(run[0], run[-1] + 1)} == left
    assert wanted({"name": "web1", "vcpus": {"cpuset": means}}).fields["vcpus.cpuset"] == means
