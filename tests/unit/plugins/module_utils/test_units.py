"""Sizes, names and addresses: what is read, what is refused."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.corral.virt.plugins.module_utils._core import changes, units
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput

BINARY, DECIMAL = (
    {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4},
    {"K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4},
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 1024**2),
        ("8G", 8 * 1024**3),
        ("8GB", 8 * 1000**3),
        ("1.5 GiB", 1536 * 1024**2),
        ("  2 tib ", 2 * 1024**4),
        ("100B", 100),
        ("512", 512 * 1024**2),
        (512, 512 * 1024**2),
        ("0.5", 512 * 1024),
    ],
)
def test_sizes(text: int | str, size: int) -> None:
    assert units.bytes_of(text, bare="M", what="memory") == size


@pytest.mark.parametrize(
    "text",
    ["", "G", "-1", "0", "0.0001B", "1e3", "1,5G", "1 G B", "8Gb/s", "１２G", True, None, "0x10", "8GiBB", "1K\n2"],
)
def test_sizes_that_are_none(text: t.Any) -> None:
    with pytest.raises(BadInput, match=r"^memory of web1: "):
        units.bytes_of(text, bare="M", what="memory of web1")


# 2**23 TiB are 8 EiB: more than the limit
@given(st.integers(1, 2**23 - 1), st.sampled_from("KMGT"), st.sampled_from(["", " "]))
def test_sizes_are_whole_multiples(number: int, unit: str, space: str) -> None:
    for suffix, factors in (("", BINARY), ("iB", BINARY), ("B", DECIMAL)):
        for spelt in (unit + suffix, (unit + suffix).lower()):
            assert units.bytes_of(f"{number}{space}{spelt}", bare="G", what="x") == number * factors[unit]


@given(st.integers(1, 2**40))
def test_memory_is_never_rounded_down(size_bytes: int) -> None:
    kib = units.kib_of(f"{size_bytes}B", what="x")
    assert (kib - 1) * 1024 < size_bytes <= kib * 1024


@given(st.integers(1, 2**31))
def test_mebibytes_come_back(mib: int) -> None:
    assert units.bytes_of(changes.size_text(units.kib_of(mib, what="x")), bare="M", what="x") == mib * 1024**2


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 MiB"),
        (15_300_000, "14.6 MiB"),
        (128 * 1024**2, "128 MiB"),
        (512 * 1024**2, "512 MiB"),
        (900 * 1024**2, "900 MiB"),
        (1023 * 1024**2, "1023 MiB"),
        (1025 * 1024**2, "1025 MiB"),
        (1280 * 1024**2, "1280 MiB"),
        (2560 * 1024**2, "2.5 GiB"),
        (10239 * 1024**2, "10239 MiB"),
        (10241 * 1024**2, "10 GiB"),
        (37213 * 1024**2, "36.3 GiB"),
        (193 * 1024, "193 KiB"),
        (102, "102 B"),
        (1023, "1023 B"),
        (1025, "1 KiB"),
        (999 * 1024**2 + 1, "999 MiB"),
        (2 * 1024**4, "2 TiB"),
        (1536 * 1024**3, "1.5 TiB"),
        (2**63 - 1, "8388608 TiB"),
        (3 * 1024, "3 KiB"),
        (7, "7 B"),
        (8 * 1024**3, "8 GiB"),
        (1536 * 1024**2, "1.5 GiB"),
        (1024**4, "1 TiB"),
        (100 * 1024**3, "100 GiB"),
    ],
)
def test_sizes_in_messages(size: int, text: str) -> None:
    assert units.bytes_text(size) == text


@pytest.mark.parametrize("name", ["a", "A-1", "web1.example.org", "debian-12.qcow2", "0", "x" * 63, "a_b"])
def test_names(name: str) -> None:
    assert units.check_name(name, what="name") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "-a",
        "_a",
        "a/b",
        "../a",
        "a..b",
        "a b",
        "a\n",
        "a\x00",
        "<x/>",
        "a&b",
        "a'b",
        'a"b',
        "ä",
        "x" * 64,
        "$(a)",
        None,
        1,
    ],
)
def test_names_that_are_none(name: t.Any) -> None:
    with pytest.raises(BadInput, match=r"^name: .* is not a valid name; use letters"):
        units.check_name(name, what="name")


HARMFUL = "/\\ \t\n\0<>&'\"$`;|*?~{}()[]!#%=:"


def test_names_are_inert() -> None:
    """What passes can stand in a file name, a shell and an XML attribute."""
    passed: list[str] = []

    @example("web1")
    @given(st.text() | st.from_regex(r"[a-zA-Z0-9._-]{1,64}", fullmatch=True) | st.text("aZ0.-_" + HARMFUL, max_size=4))
    def run(name: str) -> None:
        try:
            units.check_name(name, what="name")
        except BadInput:
            return
        passed.append(name)
        assert name.isascii() and name[0].isalnum() and not set(name) & set(HARMFUL) and ".." not in name

    run()
    assert "web1" in passed, "every name was refused"


@given(st.binary(min_size=6, max_size=6), st.sampled_from(":-"), st.booleans())
def test_macs_come_back(raw: bytes, separator: str, upper: bool) -> None:
    text = separator.join(f"{byte:02x}" for byte in raw)
    spelt = f" {text.upper() if upper else text} "
    if raw[0] & 1:
        with pytest.raises(BadInput, match="not a unicast MAC"):
            units.mac_of(spelt, what="mac")
    else:
        assert units.mac_of(spelt, what="mac") == text.replace("-", ":")


@pytest.mark.parametrize(
    "mac", ["", "52:54:00:12:34", "52:54:00:12:34:5", "52:54:00:12:34:56:78", "g2:54:00:12:34:56", "525400123456"]
)
def test_macs_that_are_none(mac: str) -> None:
    with pytest.raises(BadInput, match=r"^mac: "):
        units.mac_of(mac, what="mac")


@given(st.uuids(), st.text(), st.text())
def test_derived_macs(uuid: t.Any, name: str, other: str) -> None:
    mac = units.derived_mac(str(uuid), name)
    assert units.mac_of(mac, what="mac") == mac and mac.startswith("52:54:00:")
    assert mac == units.derived_mac(str(uuid), name)
    assert (mac == units.derived_mac(str(uuid), other)) == (name == other)


@given(st.uuids())
def test_uuids_come_back(uuid: t.Any) -> None:
    for spelt in (str(uuid), str(uuid).upper(), uuid.hex, f"{{{uuid}}}"):
        assert units.uuid_of(spelt, what="uuid") == str(uuid)


@pytest.mark.parametrize(
    "uuid", ["", "1", "6695eb01-f6a4-8304-79aa-97f2502e193", "6695eb01-f6a4-8304-79aa-97f2502e193g"]
)
def test_uuids_that_are_none(uuid: str) -> None:
    with pytest.raises(BadInput, match=r"^uuid: .* is not a UUID"):
        units.uuid_of(uuid, what="uuid")


def test_what_passes_can_stand_in_xml() -> None:
    etree = pytest.importorskip("lxml.etree")
    passed: list[str] = []

    @example(["plain text", {"a": "of any language: äöü", "b": "two\nlines"}])
    @given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner)))
    def run(value: t.Any) -> None:
        if not units.control_characters(value, allowed="\n\t"):
            for text in texts(value):
                passed.append(text)
                element = etree.Element("x")
                element.text = text
                assert (etree.fromstring(etree.tostring(element)).text or "") == text

    run()
    assert {"plain text", "of any language: äöü", "two\nlines"} <= set(passed), "harmless text was refused"


def texts(value: t.Any) -> list[str]:
    """Every text inside."""
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [text for item in items for text in texts(item)]


def test_control_characters_are_located() -> None:
    value = {"disks": [{"name": "a"}, {"name": "b\x1b"}], "title": "x\ny"}
    assert units.control_characters(value) == [
        "disks[1].name: control characters cannot be stored; remove them",
        "title: control characters cannot be stored; remove them",
    ]
    assert len(units.control_characters(value, allowed="\n\t")) == 1


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x80", "\x85", "\x9b", "\x9f"])
def test_no_title_holds_what_a_terminal_obeys(character: str) -> None:
    assert units.control_characters({"title": f"a{character}b"}, allowed="\n\t")
    assert not units.control_characters({"title": "a\xa0\xfcb"}, allowed="\n\t")


@pytest.mark.parametrize("character", ["\ud800", "\udfff", "\ufffe", "\uffff"])
def test_no_text_holds_what_is_no_xml_character(character: str) -> None:
    assert units.control_characters(f"a{character}b", allowed="\n\t")
    assert not units.control_characters("a\ud7ff\ue000\ufffdb")


@pytest.mark.parametrize(
    ("image", "way"),
    [
        (
            "/root/debian.qcow2",
            "is a path, .* virt_image (name=debian.qcow2 src=/root/debian.qcow2) .* set the name: debian.qcow2",
        ),
        ("~/a.qcow2", "is a path, .* virt_image (name=a.qcow2 src=~/a.qcow2)"),
        (
            "https://example.org/b.img",
            "is a URL, .* virt_image (name=b.img url=https://example.org/b.img checksum=sha256:...)",
        ),
        ("a b", "is not a valid name"),
        (1, "is not a valid name"),
    ],
)
def test_a_file_is_no_name_of_an_image(image: object, way: str) -> None:
    with pytest.raises(BadInput, match=way.replace("(", r"\(").replace(")", r"\)")):
        units.check_image(image, what="image of web1")
    assert units.check_image("debian-12.qcow2", what="image") == "debian-12.qcow2"


@pytest.mark.parametrize(
    ("kib", "text"),
    [(5242880, "5GiB"), (1536 * 1024, "1536MiB"), (1024**3, "1TiB"), (1025, "1025KiB"), (1024, "1MiB"), (0, "0KiB")],
)
def test_sizes_are_shown_as_users_write_them(kib: int, text: str) -> None:
    assert changes.size_text(kib) == text
    assert not kib or units.kib_of(text, what="x") == kib


def test_a_change_is_told_in_the_words_of_the_options() -> None:
    change = changes.Change("memory.maximum_kib", None, 5242880)
    assert str(change) == "memory.maximum: (unset) -> 5GiB"
    assert changes.diff([change, changes.Change("vcpus.current", 1, 2)]) == {
        "before": {"vcpus.current": 1},
        "after": {"memory.maximum": "5GiB", "vcpus.current": 2},
    }
