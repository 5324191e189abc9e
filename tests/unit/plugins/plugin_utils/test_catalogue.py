"""The catalogue of official images: the form of each of its entries, and what is made of them."""

from __future__ import annotations

import collections
import re
import string
import typing as t
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils import _catalogue

KEYS = {"url", "sums", "signature", "algorithm", "arch", "user"}
OPTIONAL = {"signature"}
FIELDS = {"url": {"arch"}, "sums": {"arch", "file"}, "signature": {"arch", "file"}}
ADDRESS = re.compile(r"https://[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._+-]+)+")
LISTS = re.compile(r"SHA(256|512)SUMS|CHECKSUM|\S+-CHECKSUM|\S+\.(CHECKSUM|SHA256SUM|sha256)")
EVERY = [(name, arch) for name in _catalogue.names() for arch in _catalogue.entries()[name]["arch"]]


def faults(entry: dict[str, t.Any]) -> list[str]:
    """What is wrong with the form of an entry, as words."""
    found = [f"key {key}" for key in entry.keys() - KEYS] + [f"no {key}" for key in KEYS - OPTIONAL - entry.keys()]
    for key, allowed in FIELDS.items():
        used = {
            field
            for _text, field, _spec, _conversion in string.Formatter().parse(entry.get(key, ""))
            if field is not None
        }
        found += [f"{key}: {{{field}}}" for field in used - allowed]
    if set(entry.get("arch", {})) - {"x86_64", "aarch64"} or not entry.get("arch"):
        found.append("arch")
    if entry.get("algorithm") not in ("sha256", "sha512"):
        found.append("algorithm")
    if not re.fullmatch(r"[a-z][a-z-]*", entry.get("user", "")):
        found.append("user")
    return found


@pytest.mark.parametrize("name", _catalogue.names())
def test_an_entry_has_its_form(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)?(-[0-9.]+)?", name)
    assert not faults(_catalogue.entries()[name])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"checksum": "x"}, "key checksum"),
        ({"url": "https://a.org/{version}.qcow2"}, "url: {version}"),
        ({"url": "https://a.org/{}.qcow2"}, "url: {}"),
        ({"arch": {"riscv64": "riscv64"}}, "arch"),
        ({"algorithm": "md5"}, "algorithm"),
        ({"user": "root; rm"}, "user"),
    ],
)
def test_a_bad_entry_would_be_seen(change: dict[str, t.Any], fault: str) -> None:
    assert faults({**_catalogue.entries()["debian-12"], **change}) == [fault]


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_every_image_resolves_to_addresses_side_by_side(name: str, arch: str) -> None:
    found = _catalogue.resolve(name, arch)
    algorithm, _colon, sums = found["checksum"].partition(":")
    for address in (found["url"], sums, *([found["signature"]] if found["signature"] else [])):
        assert ADDRESS.fullmatch(address), address
        assert place(address) == place(found["url"])
    assert found["url"].endswith((".qcow2", ".img"))
    listed = sums.rpartition("/")[2]
    assert LISTS.fullmatch(listed)
    assert algorithm in listed.lower() or "CHECKSUM" in listed
    assert found["signature"] in (None, sums, f"{sums}.asc", f"{sums}.gpg")


def place(address: str) -> str:
    """The directory of an address, whichever of the vendor's servers has it."""
    split = urlsplit(address)
    return ".".join((split.hostname or "").split(".")[-2:]) + split.path.rpartition("/")[0]


def test_nothing_is_there_twice() -> None:
    keys = [
        line.partition(":")[0] for line in Path(_catalogue.FILE).read_text().splitlines() if re.match(r"[a-z]", line)
    ]
    assert keys == _catalogue.names(), "YAML takes the last of two equal keys, silently"
    urls = collections.Counter(_catalogue.resolve(name, arch)["url"] for name, arch in EVERY)
    assert [url for url, count in urls.items() if count > 1] == []


def test_an_image_and_all_that_belongs_to_it() -> None:
    assert _catalogue.resolve("ubuntu-24.04") == {
        "url": "https://cloud-images.ubuntu.com/releases/noble/release/ubuntu-24.04-server-cloudimg-amd64.img",
        "checksum": "sha256:https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS",
        "signature": "https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS.gpg",
        "user": "ubuntu",
    }
    assert _catalogue.resolve("debian-12")["signature"] is None
    assert _catalogue.resolve("fedora-44")["checksum"] == f"sha256:{_catalogue.resolve('fedora-44')['signature']}"


@pytest.mark.parametrize(("one", "other", "word"), [("x86_64", "amd64", "x86_64"), ("aarch64", "arm64", "aarch64")])
def test_both_spellings_of_an_architecture(one: str, other: str, word: str) -> None:
    assert _catalogue.resolve("rocky-9", one) == _catalogue.resolve("rocky-9", other)
    assert word in _catalogue.resolve("rocky-9", other)["url"]
    assert _catalogue.resolve("debian-13", one)["url"].endswith(("-amd64.qcow2", "-arm64.qcow2"))


def test_what_it_does_not_have_is_refused_with_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"no image 'debian-99': use one of debian-11, .*opensuse-tumbleweed"):
        _catalogue.resolve("debian-99")
    with pytest.raises(ValueError, match=r"debian-12 for x86_64, aarch64, not for s390x"):
        _catalogue.resolve("debian-12", "s390x")
