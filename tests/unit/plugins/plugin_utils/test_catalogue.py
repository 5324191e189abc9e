"""The catalogue of official images: the form of each of its entries, and what is made of them."""

from __future__ import annotations

import collections
import re
import string
import typing as t
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain.fields_domain import DOMAIN
from ansible_collections.corral.virt.plugins.plugin_utils._images import catalogue as _catalogue
from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.tests.tools import catalogue_addresses

KEYS = {"url", "sums", "signature", "algorithm", "arch", "user", "osinfo", "least"}
OPTIONAL = {"signature"}
OF_DISKS, OF_ISOS = {"user", "least", "osinfo"}, {"medium", "checksum"}
FIELDS = {"url": {"arch"}, "sums": {"arch", "file"}, "signature": {"arch", "file"}}
ADDRESS = re.compile(r"https://[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._+-]+)+")
LISTS = re.compile(r"SHA(256|512)SUMS|sha256sums\.txt|CHECKSUM|\S+-CHECKSUM|\S+\.(CHECKSUM|SHA256SUM|sha256)")
OURS = Catalogue()
EVERY = [(name, arch) for name, entry in OURS.entries.items() for arch in entry["arch"]]


def faults(entry: dict[str, t.Any]) -> list[str]:
    """What is wrong with the form of an entry, as words."""
    is_iso = entry.get("medium") == "iso"
    keys, optional = KEYS, OPTIONAL
    if is_iso:
        keys = (KEYS | OF_ISOS) - OF_DISKS - ({"sums", "algorithm"} if "checksum" in entry else set())
        optional = OPTIONAL | OF_ISOS
    found = [f"key {key}" for key in entry.keys() - keys] + [f"no {key}" for key in keys - optional - entry.keys()]
    for key, allowed in FIELDS.items():
        used = {
            field
            for _text, field, _spec, _conversion in string.Formatter().parse(entry.get(key, ""))
            if field is not None
        }
        found += [f"{key}: {{{field}}}" for field in used - allowed]
    if set(entry.get("arch", {})) - {"x86_64", "aarch64"} or not entry.get("arch"):
        found.append("arch")
    if entry.get("algorithm") not in ("sha256", "sha512") and entry.get("checksum") != "none":
        found.append("algorithm")
    if not re.fullmatch(r"[a-z][a-z-]*", entry.get("user", "none" if is_iso else "")):
        found.append("user")
    try:
        if not is_iso:
            DOMAIN["osinfo"].kind.check(entry.get("osinfo") or "none")
    except ValueError:
        found.append("osinfo")
    if set(entry.get("least", {})) != {"memory", "disk"} and not is_iso:
        found.append("least")
    return found


@pytest.mark.parametrize("name", OURS.entries)
def test_an_entry_has_its_form(name: str) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)?(-[0-9.]+(-[a-z-]+)?)?", name)
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
        ({"osinfo": "debain13"}, "osinfo"),
        ({"least": {"memory": "1GiB"}}, "least"),
        ({"medium": "dvd"}, "key medium"),
    ],
)
def test_a_bad_entry_would_be_seen(change: dict[str, t.Any], fault: str) -> None:
    assert faults({**_catalogue.entries()["debian-12"], **change}) == [fault]


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_every_image_resolves_to_addresses_side_by_side(name: str, arch: str) -> None:
    found = OURS.resolve(name, arch)
    algorithm, _colon, sums = found["checksum"].partition(":")
    is_iso = _catalogue.entries()[name].get("medium") == "iso"
    if is_iso and found["checksum"] == "none":
        assert ADDRESS.fullmatch(found["url"]) and found["signature"] is None
        return
    for address in (found["url"], sums, *([found["signature"]] if found["signature"] else [])):
        assert ADDRESS.fullmatch(address), address
        assert place(found["url"]).startswith(place(address)) if is_iso else place(address) == place(found["url"])
    assert found["url"].endswith(".iso" if is_iso else (".qcow2", ".img"))
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
    assert keys == [*_catalogue.entries()], "YAML takes the last of two equal keys, silently"
    urls = collections.Counter(url for _name, url in {(name, OURS.resolve(name, arch)["url"]) for name, arch in EVERY})
    assert [url for url, count in urls.items() if count > 1] == []


def test_an_image_and_all_that_belongs_to_it() -> None:
    assert OURS.resolve("ubuntu-24.04") == {
        "url": "https://cloud-images.ubuntu.com/releases/noble/release/ubuntu-24.04-server-cloudimg-amd64.img",
        "checksum": "sha256:https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS",
        "signature": "https://cloud-images.ubuntu.com/releases/noble/release/SHA256SUMS.gpg",
        "keyring": None,
        "user": "ubuntu",
    }
    assert OURS.resolve("debian-12")["signature"] is None
    assert OURS.resolve("fedora-44")["checksum"] == f"sha256:{OURS.resolve('fedora-44')['signature']}"


@pytest.mark.parametrize(("one", "other", "word"), [("x86_64", "amd64", "x86_64"), ("aarch64", "arm64", "aarch64")])
def test_both_spellings_of_an_architecture(one: str, other: str, word: str) -> None:
    assert OURS.resolve("rocky-9", one) == OURS.resolve("rocky-9", other)
    assert word in OURS.resolve("rocky-9", other)["url"]
    assert OURS.resolve("debian-13", one)["url"].endswith(("-amd64.qcow2", "-arm64.qcow2"))


def test_what_it_does_not_have_is_refused_with_what_it_has() -> None:
    with pytest.raises(ValueError, match=r"no image 'debian-99'; did you mean debian-\d+ or .*To add your own"):
        OURS.resolve("debian-99")
    with pytest.raises(ValueError, match=r"debian-12 for x86_64, aarch64, not for s390x"):
        OURS.resolve("debian-12", "s390x")


def test_a_name_that_is_like_no_other_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"no image 'plan9'; it has debian-11, .*opensuse-tumbleweed"):
        OURS.resolve("plan9")


MIRROR = "https://mirror.example.org/images"


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_with_a_mirror_nobody_else_is_asked(name: str, arch: str) -> None:
    found = Catalogue(mirror=MIRROR).resolve(name, arch)
    addresses = filter(None, [found["url"], found["checksum"].partition(":")[2], found["signature"]])
    assert all(address.startswith(f"{MIRROR}/") for address in addresses)
    assert found["url"].removeprefix(MIRROR) == urlsplit(OURS.resolve(name, arch)["url"]).path


def test_images_of_all_vendors_have_room_on_one_mirror() -> None:
    resolved = {(name, Catalogue(mirror=MIRROR).resolve(name, arch)["url"]) for name, arch in EVERY}
    urls = collections.Counter(url for _name, url in resolved)
    assert max(urls.values()) == 1


OWN = {"url": "https://ci.example.org/app-{arch}.qcow2", "sums": "https://ci.example.org/SHA256SUMS", "user": "app"}


def test_the_site_adds_images_and_changes_ours() -> None:
    site = {"app-1": OWN, "debian-13": {"user": "admin"}, "ubuntu-24.04": {"keyring": "/etc/keys/ubuntu.gpg"}}
    catalogue = Catalogue.of({"virt_images_catalogue": site, "virt_images_mirror": ""})
    assert catalogue.resolve("app-1", "aarch64")["url"] == "https://ci.example.org/app-aarch64.qcow2"
    assert catalogue.resolve("app-1")["checksum"] == "https://ci.example.org/SHA256SUMS"
    assert catalogue.resolve("debian-13")["user"] == "admin"
    assert catalogue.resolve("debian-13")["url"] == OURS.resolve("debian-13")["url"]
    assert catalogue.resolve("ubuntu-24.04")["keyring"] == "/etc/keys/ubuntu.gpg"
    assert catalogue.resolve("ubuntu-24.04")["signature"]


def test_an_image_from_elsewhere_is_not_verified_by_what_the_vendor_signs() -> None:
    site = {"ubuntu-24.04": {"url": "https://ci.example.org/noble.img", "checksum": "none"}}
    found = Catalogue.of({"virt_images_catalogue": site}).resolve("ubuntu-24.04")
    assert (found["url"], found["checksum"], found["signature"]) == ("https://ci.example.org/noble.img", "none", None)
    assert found["user"] == "ubuntu"


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"virt_images_catalogue": ["app"]}, "virt_images_catalogue: must be a dictionary"),
        ({"virt_images_catalogue": {"App": OWN}}, "virt_images_catalogue.App: a name has small letters"),
        ({"virt_images_catalogue": {"app.qcow2": OWN}}, "no suffix of a file"),
        ({"virt_images_catalogue": {"app": {"user": "app"}}}, "virt_images_catalogue.app.url: set it, and sums"),
        ({"virt_images_catalogue": {"app": {**OWN, "mirror": "x"}}}, "app.mirror: no such key; keys are"),
        ({"virt_images_catalogue": {"app": {**OWN, "url": "ftp://a/b"}}}, "app.url: must be an address"),
        ({"virt_images_catalogue": {"app": {**OWN, "url": "https://a/{version}"}}}, "{version} stands for nothing"),
        ({"virt_images_catalogue": {"app": {**OWN, "user": "a b"}}}, "app.user: must be a user name"),
        ({"virt_images_catalogue": {"app": {**OWN, "firmware": "uefi"}}}, "app.firmware: must be bios or efi"),
        ({"virt_images_catalogue": {"app": {**OWN, "least": {"memory": "much"}}}}, "least.memory"),
        ({"virt_images_mirror": "mirror.example.org"}, "virt_images_mirror: 'mirror.example.org' must be an address"),
    ],
)
def test_what_is_wrong_in_the_variables_of_a_site_is_said(variables: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        Catalogue.of(variables)


def test_an_address_that_died_and_a_list_without_its_image_are_found() -> None:
    """As the scheduled job finds them."""
    debian = "https://cloud.debian.org/images/cloud/trixie/latest/SHA512SUMS"
    lists = {debian: f"{'a' * 128}  debian-13-genericcloud-arm64.qcow2\n"}

    def ask(_method: str, address: str) -> bytes:
        if "almalinux" in address:
            raise OSError("404")
        return lists.get(address, "").encode()

    found = list(catalogue_addresses.problems(Catalogue(), ["debian-13", "almalinux-9"], ask))
    assert found[0] == f"debian-13 x86_64: {debian} does not have debian-13-genericcloud-amd64.qcow2"
    assert len(found) == 7 and all(line.startswith("almalinux-9 ") and "404" in line for line in found[1:])
    with pytest.raises(ValueError, match="did you mean"):
        list(catalogue_addresses.problems(Catalogue(), ["debain-13"], ask))
