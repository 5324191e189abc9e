"""Whatever is said in whatever option is refused, or stands in the document as inert text."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._front.domain_options import GUEST_OPTIONS, wanted
from ansible_collections.corral.virt.plugins.module_utils._xml import domain, new

EVIL = ["../../x", "a/b", "<x/>", "a\"b'&", "]]><x/>", "&xxe;", "a\x00", "\x1b[31m", "a\n", "\ud800", "{{ 7 * 7 }}", "-drive", "x\u202ey"]
NAMES = ["name", "image", "tags", "disks.name", "disks.image", "disks.serial", "interfaces.name"]
NAMES += ["interfaces.bridge", "interfaces.network", "interfaces.portgroup"]
NEVER_IN_NAMES = set("/<>&\"'\x00\x1b\n\ud800{}\u202e ")


def places(options: t.Mapping[str, t.Any], prefix: tuple[str, ...] = ()) -> t.Iterator[tuple[str, ...]]:
    """The path of every option that takes free text."""
    for name, option in options.items():
        if "options" in option:
            yield from places(option["options"], (*prefix, name))
        elif option["type"] in ("str", "path", "raw", "list") and "choices" not in option:
            yield (*prefix, name)


def said(path: tuple[str, ...], value: object) -> dict[str, t.Any]:
    """Options of a guest with a value at one place; the rest as Ansible leaves it."""
    params: dict[str, t.Any] = {"name": "web1", "vcpus": 1, "memory": 64}
    if path == ("tags",):
        value = [value]
    if len(path) == 1:
        return {**params, path[0]: value}
    item: dict[str, t.Any] = {"type": "file"} if path == ("serial", "path") else {}
    item[path[1]] = value
    if GUEST_OPTIONS[path[0]]["type"] == "list":
        return {**params, path[0]: [{"name": "a", "state": "present", **item}]}
    return {**params, path[0]: item}


PLACES = list(places(GUEST_OPTIONS))


def elements(xml: str) -> list[str]:
    """Every element's name."""
    return [element.tag for element in etree.fromstring(xml).iter()]


@pytest.mark.parametrize("value", EVIL, ids=ascii)
@pytest.mark.parametrize("path", PLACES, ids=".".join)
def test_no_text_becomes_structure(path: tuple[str, ...], value: str) -> None:
    try:
        guest = wanted(said(path, value))
    except BadInput as error:
        assert all(problem.isprintable() or problem == value for problem in error.problems), "an escape sequence reaches the terminal"
        return
    assert not (".".join(path) in NAMES and NEVER_IN_NAMES & set(value)), "a name holds what no name may hold"
    base = new.domain(name=guest.name, uuid="6695eb01-f6a4-8304-79aa-97f2502e193f", virt_type="kvm", arch="x86_64", machine="q35")
    harmless = domain.graft(base, wanted(said(path, HARMLESS.get(path, "x"))), wanted(said(path, HARMLESS.get(path, "x"))).fields)
    after = domain.graft(base, guest, guest.fields)
    assert elements(after.xml) == elements(harmless.xml)
    again = domain.graft(after.xml, guest, guest.fields)
    assert not again.changes, "what was written does not come back as it was"


# What a harmless user says where not every text will do.
HARMLESS: dict[tuple[str, ...], t.Any] = {
    ("vcpus",): 1,
    ("memory",): 64,
    ("uuid",): "6695eb01-f6a4-8304-79aa-97f2502e193f",
    ("disks", "size"): 1,
    ("disks", "source"): "/x",
    ("interfaces", "mac"): "52:54:00:00:00:01",
    ("cloud_init", "user_data"): "#cloud-config",
    ("cloud_init", "meta_data"): {},
    ("cloud_init", "network_config"): {},
}


@pytest.mark.parametrize("path", PLACES, ids=".".join)
def test_the_harmless_passes(path: tuple[str, ...]) -> None:
    wanted(said(path, HARMLESS.get(path, "x")))


@pytest.mark.parametrize("value", ["a/b", "../x", "<x/>", "a\n", "a\x00", "a b", "..", ""], ids=ascii)
@pytest.mark.parametrize("place", NAMES)
def test_names_are_always_checked(place: str, value: str) -> None:
    if place == "image" and value == "":
        return  # nothing said
    with pytest.raises(BadInput):
        wanted(said(tuple(place.split(".")), value))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vcpus": 0}, "vcpus.current of web1: must be a whole number from 1, not 0"),
        ({"vcpus": True}, "whole number"),
        ({"vcpus": {"current": 3, "maximum": 2}}, "vcpus of web1: current 3 is above maximum 2"),
        ({"vcpus": {"cores": 3}}, "vcpus of web1: no such option cores; there are current"),
        ({"vcpus": {"topology": {"dies": 3}}}, "no such option topology.dies"),
        ({"vcpus": {"placement": "x"}}, "vcpus.placement of web1: must be static or auto, not 'x'"),
        ({"vcpus": {"placement": "auto", "cpuset": "0"}}, "placement auto chooses the processors itself"),
        ({"memory": "much"}, "memory of web1: cannot read 'much' as a size"),
        ({"memory": {"maximum": 1, "current": 2}}, "memory of web1: current is above maximum"),
        ({"memory": {"swap": 1}}, "memory of web1: no such option swap"),
        ({"disks": [{"name": "a"}, {"name": "a"}]}, "disk of web1: a is given twice"),
        ({"disks": [{"name": "seed"}]}, "belongs to the cloud-init seed"),
        ({"disks": [{"name": "a", "source": "/a", "size": 1}]}, "source uses a file as it is; it excludes image and size"),
        ({"disks": [{"name": "a", "source": "../a"}]}, "source of disk a of web1: '../a' is not an absolute path"),
        ({"serial": {"path": "/a"}}, "serial.path of web1: a path belongs to serial.type file or dev"),
        ({"disks": [], "image": "a"}, "with disks given, set disks"),
        ({"interfaces": [{"name": "a", "bridge": "b", "network": "c"}]}, "bridge and network exclude each other"),
        ({"interfaces": [{"name": "a", "mac": "01:00:00:00:00:00"}]}, "not a unicast MAC"),
        ({"graphics": {"password": "123456789"}}, "VNC looks at 8 characters only"),
        ({"graphics": {"port": 80}}, "must be 5900 to 65535, not 80"),
        ({"title": "a\nb"}, "libvirt refuses line breaks in a title"),
        ({"cloud_init": {"user_data": "hello"}}, "cloud-init ignores it without a first line"),
    ],
)
def test_refusals(options: dict[str, t.Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        wanted({"name": "web1", **options})


def test_secrets_are_marked() -> None:
    marked = {
        ".".join((*where, name))
        for where in ((), *{path[:-1] for path in PLACES})
        for name, option in level(where).items()
        if option.get("no_log")
    }
    assert marked == {"graphics.password", "cloud_init.user_data"}


def level(path: tuple[str, ...]) -> t.Mapping[str, t.Any]:
    """The options at a place."""
    options: t.Mapping[str, t.Any] = GUEST_OPTIONS
    for step in path:
        options = options[step]["options"]
    return options


@pytest.mark.parametrize(
    ("said", "means"),
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
def test_a_cpuset_is_spelt_as_libvirt_spells_it(said: object, means: str) -> None:
    assert wanted({"name": "web1", "vcpus": {"cpuset": said}}).fields["vcpus.cpuset"] == means


@pytest.mark.parametrize("said", ["", "a", "3-1", "1,^1", "^1,0-7", "0-7,^1-2", "0-", "0,", "1 2", True, "1;2", "16384", "0-9999999999"])
def test_nonsense_is_no_cpuset(said: object) -> None:
    with pytest.raises(BadInput, match=r"vcpus\.cpuset of web1"):
        wanted({"name": "web1", "vcpus": {"cpuset": said}})


@given(st.lists(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40)))
def test_a_cpuset_reads_back_as_it_was_written(cpus: list[int], out: set[int]) -> None:
    """However it is said, it means the same CPUs, and its own spelling stays as it is."""
    left = set(cpus) - out
    said = ",".join([*map(str, cpus), *(f"^{cpu}" for cpu in sorted(set(cpus) & out))])
    if not left:
        with pytest.raises(BadInput, match="leaves no CPU"):
            wanted({"name": "web1", "vcpus": {"cpuset": said}})
        return
    means = wanted({"name": "web1", "vcpus": {"cpuset": said}}).fields["vcpus.cpuset"]
    ends = [[int(end) for end in part.split("-")] for part in means.split(",")]
    assert {cpu for run in ends for cpu in range(run[0], run[-1] + 1)} == left
    assert wanted({"name": "web1", "vcpus": {"cpuset": means}}).fields["vcpus.cpuset"] == means
