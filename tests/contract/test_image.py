"""Images in a directory pool of the test driver: verified, published under their content's name, never half."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._errors import BadInput, Failed, NotFound, Refused, VirtError
from ansible_collections.corral.virt.plugins.module_utils._front import image
from ansible_collections.corral.virt.plugins.module_utils._libvirt import storage
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._qemu_img import run as qemu_img
from ansible_collections.corral.virt.plugins.module_utils._run import Gate

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"


class Place(t.NamedTuple):
    """A pool, and somewhere to bring images from."""

    connection: t.Any
    pool: Path
    sources: Path

    def converge(self, *, check_mode: bool = False, **said: t.Any) -> dict[str, t.Any]:
        """As the module does."""
        params = {**{name: option.get("default") for name, option in image.OPTIONS.items()}, "name": "tiny.qcow2", **said}
        return image.converge(self.connection, params, Gate(check_mode=check_mode), lambda location: Path(location).open("rb"))

    def files(self) -> dict[str, str]:
        """What is in the pool: names, and where links point."""
        return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in sorted(self.pool.iterdir())}


@pytest.fixture
def place(tmp_path: Path) -> t.Iterator[Place]:
    """An empty pool, and a small image beside it."""
    pool, sources = tmp_path / "pool", tmp_path / "sources"
    pool.mkdir()
    sources.mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(pool))
    make(sources / "tiny.qcow2", "qcow2")
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        yield Place(connection, pool, sources)


def make(path: Path, form: str, *more: str) -> Path:
    """An image with something in it."""
    subprocess.run(["qemu-img", "create", "-q", "-f", form, *more, str(path), "1M"], check=True)
    return path


def digest(path: Path) -> str:
    """As SUMS files have it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_it_is_there_and_stays(place: Place) -> None:
    source = place.sources / "tiny.qcow2"
    content = f"tiny.{digest(source)[:12]}.qcow2"
    said: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}"}

    checked = place.converge(check_mode=True, **said)
    assert place.files() == {}
    done = place.converge(**said)
    assert done == checked
    assert (done["changed"], done["content"]) == (True, content)
    assert place.files() == {"tiny.qcow2": content, content: ""}
    assert digest(place.pool / content) == digest(source)
    assert (place.pool / content).stat().st_mode & 0o777 == 0o444

    again = place.converge(**said)
    assert (again["changed"], again["steps"], again["diff"]) == (False, [], {"before": {}, "after": {}})
    assert place.converge(check_mode=True, state="absent")["changed"] and place.files()
    assert place.converge(state="absent")["changed"] and not place.files()
    assert not place.converge(state="absent")["changed"]


def test_a_new_version_leaves_the_old_one_to_those_who_stand_on_it(place: Place) -> None:
    source = place.sources / "tiny.qcow2"
    old = place.converge(src=str(source), checksum=f"sha256:{digest(source)}")["content"]
    make(source, "qcow2", "-o", "cluster_size=4096")
    new = place.converge(src=str(source), checksum=f"sha256:{digest(source)}")["content"]
    assert old != new and place.files() == {"tiny.qcow2": new, old: "", new: ""}


@pytest.mark.parametrize("form", ["gnu", "bsd"])
def test_sums_files(place: Place, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, sums = place.sources / "tiny.qcow2", place.sources / "SUMS"
    sums.write_text(f"{digest(source)} *tiny.qcow2\n" if form == "gnu" else f"SHA256 (tiny.qcow2) = {digest(source)}\n")
    monkeypatch.setattr(image, "parse_checksum", lambda _text: (None, ("sha256", str(sums))))
    assert place.converge(src=str(source), checksum="sha256:https://example.org/SUMS")["changed"]
    sums.write_text("")
    with pytest.raises(Failed, match=r"cannot verify .*tiny.qcow2: .*SUMS holds no sha256 of tiny.qcow2"):
        place.converge(src=str(source), checksum="sha256:https://example.org/SUMS")


def test_packed_and_of_another_format(place: Place) -> None:
    raw = make(place.sources / "tiny.raw", "raw")
    packed = place.sources / "tiny.raw.gz"
    packed.write_bytes(gzip.compress(raw.read_bytes()))
    content = place.converge(src=str(packed), checksum=f"sha256:{digest(packed)}")["content"]
    assert place.files() == {"tiny.qcow2": content, content: ""}
    assert (place.pool / content).read_bytes().startswith(b"QFI\xfb")


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            {"checksum": "sha256:" + "0" * 64},
            Failed,
            r"^refusing image tiny.qcow2: .* has sha256 [0-9a-f]{64}, not 0{64}; the file was changed",
        ),
        ({"src": "/nowhere", "checksum": "none"}, Failed, r"^cannot fetch /nowhere to .*No such file"),
        ({"url": "https://example.org/x", "src": None}, BadInput, "nothing is downloaded unverified"),
        ({"url": "file:///etc/passwd", "src": None, "checksum": "none"}, BadInput, "must begin with http:// or https://"),
        ({"url": "https://example.org/x", "checksum": "none"}, BadInput, "url and src exclude each other"),
        ({"name": "../tiny.qcow2", "checksum": "none"}, BadInput, "is not a valid name"),
        ({"name": "tiny", "checksum": "none"}, BadInput, "format of tiny is unclear"),
        ({"pool": "fast", "checksum": "none"}, NotFound, "cannot find storage pool fast"),
        ({"src": None, "checksum": None}, BadInput, "say where it comes from"),
    ],
)
def test_what_is_refused_leaves_nothing(place: Place, said: dict[str, t.Any], kind: type[VirtError], message: str) -> None:
    with pytest.raises(kind, match=message):
        place.converge(**{"src": str(place.sources / "tiny.qcow2"), **said})
    assert place.files() == {}


def test_an_image_that_leans_on_another_file_is_refused(place: Place) -> None:
    """Its reader would be given any file of the host as a backing file."""
    leaning = make(place.sources / "evil.qcow2", "qcow2", "-F", "raw", "-b", "/etc/passwd")
    with pytest.raises(Refused, match=r"it refers to another file \(/etc/passwd\)"):
        place.converge(src=str(leaning), checksum=f"sha256:{digest(leaning)}")
    assert place.files() == {}


def test_what_others_put_there_is_left_alone(place: Place) -> None:
    (place.pool / "tiny.qcow2").write_text("mine")
    for state in ("present", "absent"):
        with pytest.raises(Refused, match="this collection did not put"):
            place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none", state=state)
    assert (place.pool / "tiny.qcow2").read_text() == "mine"


def test_an_image_in_use_is_not_removed(place: Place) -> None:
    content = place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")["content"]
    backing = f"<backingStore><path>{place.pool / content}</path><format type='qcow2'/></backingStore>"
    pool = place.connection.storagePoolLookupByName("default")
    pool.createXML(f"<volume><name>web1-system.qcow2</name><capacity>1</capacity>{backing}</volume>")
    with pytest.raises(Refused, match=f"web1-system.qcow2 stands on {content}"):
        place.converge(state="absent")


def test_removal_looks_again_and_in_every_pool(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host may have made an overlay on shared storage, under a name of its own for the pool."""
    content = place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")["content"]
    (place.sources / "same").symlink_to(place.pool)
    other = "<pool type='dir'><name>{0}</name><target><path>/{0}</path></target></pool>"
    for name in ("overlays", "off"):
        place.connection.storagePoolDefineXML(other.format(name))
    place.connection.storagePoolLookupByName("overlays").create()
    behind = [f"{place.sources / 'same'}/{content}"]

    def refresh(connection: t.Any, pool: str) -> None:
        found = connection.storagePoolLookupByName(pool)
        if pool == "overlays" and not found.listVolumes():
            backing = f"<backingStore><path>{behind[0]}</path><format type='qcow2'/></backingStore>"
            found.createXML(f"<volume><name>web9.qcow2</name><capacity>1</capacity>{backing}</volume>")

    monkeypatch.setattr(storage, "refresh", refresh)
    for check_mode in (True, False):
        with pytest.raises(Refused, match=f"overlays/web9.qcow2 stands on {content}"):
            place.converge(state="absent", check_mode=check_mode)
    assert content in place.files()

    # A file of the same name in another directory is another file.
    place.connection.storagePoolLookupByName("overlays").storageVolLookupByName("web9.qcow2").delete()
    behind[0] = f"/elsewhere/{content}"
    assert place.converge(state="absent")["changed"] and not place.files()


def test_an_image_that_reads_a_file_of_the_host_is_refused(place: Place) -> None:
    secret = place.sources / "secret"
    secret.write_bytes(b"x" * 4096)
    evil = place.sources / "evil.vmdk"
    evil.write_text(
        '# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType="monolithicFlat"\n\n'
        f'RW 8 FLAT "{secret}" 0\n\nddb.virtualHWVersion = "4"\nddb.geometry.cylinders = "1"\nddb.geometry.heads = "16"\n'
        'ddb.geometry.sectors = "63"\nddb.adapterType = "ide"\n'
    )
    with pytest.raises(Refused, match=rf"it refers to another file \({secret}\)"):
        place.converge(src=str(evil), checksum="none")
    assert place.files() == {}


def test_an_image_of_a_format_nobody_publishes_is_refused(place: Place) -> None:
    with pytest.raises(Refused, match="its format qed is none of qcow2, raw, vmdk, vdi, vhdx, vpc"):
        place.converge(src=str(make(place.sources / "old.qed", "qed")), checksum="none")
    assert place.files() == {}


@pytest.mark.parametrize(
    "more",
    [
        {"backing-filename": "/secret"},
        {"full-backing-filename": "/secret"},
        {"format-specific": {"type": "qcow2", "data": {"data-file": "/secret"}}},
        {"format-specific": {"type": "vmdk", "data": {"extents": [{"filename": "{path}"}, {"filename": "/secret"}]}}},
        {"children": [{"name": "file", "info": {"filename": "{path}", "children": [{"name": "file", "info": {"filename": "/secret"}}]}}]},
        {"children": [{"name": "file", "info": {"filename": "json:{}"}}]},
    ],
    ids=str,
)
def test_whatever_qemu_img_says_of_other_files(place: Place, more: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        qemu_img, "info", lambda path: json.loads(json.dumps({"filename": path, "format": "qcow2", **more}).replace("{path}", path))
    )
    with pytest.raises(Refused, match="it refers to another file"):
        place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")
    assert place.files() == {}


def test_a_vmdk_that_holds_its_own_data_is_converted(place: Place) -> None:
    place.converge(src=str(make(place.sources / "good.vmdk", "vmdk")), checksum="none")
    target = place.pool / "tiny.qcow2"
    assert b'"format": "qcow2"' in subprocess.run(["qemu-img", "info", "--output=json", target], check=True, capture_output=True).stdout


def test_removal_says_what_goes(place: Place) -> None:
    place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")
    before = place.files()["tiny.qcow2"]
    result = place.converge(state="absent")
    assert result["diff"] == {"before": {"image": before}, "after": {}}
    assert place.converge(name="nothing", state="absent")["changed"] is False
