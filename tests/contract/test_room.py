"""No image fills a pool: what is too large, or leaves too little room, is refused, and nothing of it is left."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import struct
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import files_disk, files_qemu_img, run_clone
from ansible_collections.corral.virt.plugins.module_utils._system import free_space
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import FreeSpace, reserve_of
from ansible_collections.corral.virt.tests.contract.test_image import DISK, Place, download, make
from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
MIB, GIB = 1024**2, 1024**3
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"


@pytest.fixture
def place(tmp_path: Path) -> t.Iterator[Place]:
    (tmp_path / "pool").mkdir()
    (tmp_path / "sources").mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(tmp_path / "pool"))
    with opened(f"test:///{tmp_path}/node.xml") as connection:
        yield Place(connection, tmp_path / "pool", tmp_path / "sources")


@pytest.fixture
def server() -> t.Iterator[Server]:
    with serving({DISK: os.urandom(2 * MIB)}) as running:
        yield running


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., None]:
    """Let a pool have so much room, in MiB; each further look finds the next, and the last stays."""

    def has(*amounts_mib: int) -> None:
        left = list(amounts_mib)

        def look(_directory: str, reserve_bytes: int | None) -> FreeSpace:
            return FreeSpace(100 * GIB, (left.pop(0) if len(left) > 1 else left[0]) * MIB, reserve_bytes)

        monkeypatch.setattr(free_space, "measure", look)

    return has


def nothing_is_left(place: Place) -> bool:
    return place.files() == {} and place.unfinished() == []


def packed(place: Place, content: bytes) -> Path:
    path = place.sources / "disk.raw.gz"
    path.write_bytes(gzip.compress(content))
    return path


def bomb(path: Path) -> Path:
    """A VDI of a few KiB in which every block of 256 MiB is the same one: it converts to all of them."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "vdi", str(path), "256M"], check=True)
    subprocess.run(["qemu-io", "-f", "vdi", "-c", "write -P 7 0 1M", str(path)], check=True, capture_output=True)
    with path.open("r+b") as image:
        image.seek(0x154)
        (blocks_at,) = struct.unpack("<I", image.read(4))
        image.seek(blocks_at)
        image.write(struct.pack("<I", 0) * 256)
        image.seek(0x184)
        image.write(struct.pack("<I", 256))
    return path


@pytest.mark.parametrize("way", ["known size", "unknown size", "unpacked", "virtual size", "converted", "file"])
def test_what_is_larger_than_max_size_is_refused_and_nothing_is_left(place: Place, server: Server, way: str) -> None:
    output: dict[str, t.Any] = {"name": "disk.raw", "checksum": "none", "max_size": "1MiB", "reserve": "0"}
    if way == "known size":
        output["url"] = server.url + DISK
    elif way == "unknown size":
        server.lengthless = True
        output["url"] = server.url + DISK
    elif way == "unpacked":
        output["src"] = str(packed(place, bytes(3 * MIB)))
    elif way == "virtual size":
        output |= {"name": "disk.qcow2", "src": str(make(place.sources / "disk.qcow2", "qcow2"))}
        subprocess.run(["qemu-img", "resize", "-q", "-f", "qcow2", output["src"], "2M"], check=True)
    elif way == "converted":
        subprocess.run(["qemu-img", "create", "-q", "-f", "vmdk", str(place.sources / "disk.vmdk"), "2M"], check=True)
        output |= {"name": "disk.qcow2", "src": str(place.sources / "disk.vmdk")}
    else:
        (place.sources / "disk.raw").write_bytes(bytes(2 * MIB))
        output["src"] = str(place.sources / "disk.raw")
    with pytest.raises(
        Refused, match=r"^refusing image disk\.\w+: it is larger than max_size, .* set a larger max_size"
    ):
        place.converge(**output)
    assert nothing_is_left(place)
    assert place.converge(**{**output, "max_size": "4MiB"})["changed"]


def test_a_download_that_does_not_fit_is_refused_before_it_comes(
    place: Place, server: Server, free: t.Callable[..., None]
) -> None:
    free(10)
    with pytest.raises(Refused, match=r"its pool has .* free, and 5 GiB must stay free \(reserve\); make room"):
        download(place, server)
    assert nothing_is_left(place) and server.asked == []
    for reserve, fits in (("9MiB", False), ("8MiB", True)):
        if fits:
            assert download(place, server, reserve=reserve)["changed"]
            continue
        with pytest.raises(Refused, match=r"must stay free \(reserve\)"):
            download(place, server, reserve=reserve)
        assert nothing_is_left(place)


@pytest.mark.parametrize("way", ["sent", "unpacked"])
def test_room_that_goes_meanwhile_ends_what_is_under_way(
    place: Place, server: Server, free: t.Callable[..., None], way: str
) -> None:
    """Whoever sends it need not say how large it is."""
    free(20 * 1024, 20 * 1024, 4 * 1024)
    content = os.urandom(MIB) * 40
    output: dict[str, t.Any] = {"name": "disk.raw", "checksum": "none"}
    if way == "sent":
        server.files[DISK], server.lengthless = content, True
        output["url"] = server.url + DISK
    else:
        output["src"] = str(packed(place, content))
    with pytest.raises(Refused, match=r"its pool has 4 GiB free, and 5 GiB must stay free"):
        place.converge(**output)
    assert nothing_is_left(place)


def test_a_conversion_that_does_not_fit_is_refused_before_it_begins(
    place: Place, free: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the image itself is."""
    source = bomb(place.sources / "disk.vdi")
    assert source.stat().st_blocks * 512 < 3 * MIB
    free(100)
    monkeypatch.setattr(files_qemu_img, "convert", lambda *_all, **_more: pytest.fail("it was converted"))
    with pytest.raises(Refused, match=r"256 MiB more is needed"):
        place.converge(name="disk.qcow2", src=str(source), checksum="none", reserve="0")
    assert nothing_is_left(place)


def cloned(place: Place, *, check_mode: bool = False, **output: t.Any) -> dict[str, t.Any]:
    params = {name: option.get("default") for name, option in run_clone.OPTIONS.items()}
    others = {"name": "web1.qcow2", "pool": "default", "format": None, "reserve": None}
    return run_clone.converge(
        place.connection, {**params, **others, **output}, Gate(check_mode=check_mode), lambda *_phase: None
    )


def test_a_disk_that_does_not_fit_is_refused_before_it_is_made(place: Place, free: t.Callable[..., None]) -> None:
    base = place.pool / "debian.0123456789ab.qcow2"
    make(base, "qcow2")
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -P 7 0 1M", str(base)], check=True, capture_output=True)
    free(5 * 1024 - 1)
    for how in ("overlay", "copy"):
        for check_mode in (True, False):
            with pytest.raises(Refused, match=r"cannot create disk web1\.\w+: .* 5 GiB must stay free"):
                cloned(
                    place,
                    image=base.name,
                    clone=how,
                    name="web1.img" if how == "copy" else "web1.qcow2",
                    check_mode=check_mode,
                )
    assert set(place.files()) == {base.name}
    free(5 * 1024)
    cloned(place, image=base.name)
    with pytest.raises(Refused, match=r"must stay free \(reserve\)"):
        cloned(place, image=base.name, clone="copy", name="web2.img")
    free(1)
    for check_mode in (True, False):
        make(place.pool / "other.qcow2", "qcow2")
        (place.pool / ".debian.0123456789ab.qcow2.json").write_text("{}")
        with pytest.raises(Refused, match=r"cannot rebase disk web1\.qcow2: .* and 5 GiB must stay free"):
            cloned(place, state="rebased", image="other.qcow2", check_mode=check_mode)


def test_a_copy_that_shares_its_blocks_needs_no_room(
    place: Place, free: t.Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(place.pool / "debian.qcow2", "qcow2")
    subprocess.run(
        ["qemu-io", "-f", "qcow2", "-c", "write -P 7 0 1M", str(place.pool / "debian.qcow2")],
        check=True,
        capture_output=True,
    )
    free(5 * 1024)
    monkeypatch.setattr(files_disk, "reflink", lambda path, to: bool(shutil.copyfile(path, to)))
    assert cloned(place, image="debian.qcow2", clone="copy")["changed"]


def test_the_reserve_is_the_larger_of_1_gib_and_5_percent() -> None:
    assert FreeSpace(10 * GIB, 0).kept_bytes == GIB and FreeSpace(100 * GIB, 0).kept_bytes == 5 * GIB
    assert FreeSpace(100 * GIB, 0, 0).kept_bytes == 0 and FreeSpace(100 * GIB, 3, 7).lacks(1) == 5
    assert (reserve_of(None), reserve_of("0"), reserve_of("2GiB"), reserve_of("3")) == (None, 0, 2 * GIB, 3 * GIB)
    with pytest.raises(BadInput, match=r"reserve: .*; 0 reserves nothing"):
        reserve_of("much")


def test_a_bad_size_is_told(place: Place) -> None:
    with pytest.raises(BadInput, match=r"max_size: cannot read 'x' as a size; .*"):
        place.converge(src="/x", checksum=f"sha256:{hashlib.sha256(b'').hexdigest()}", max_size="x")
    with pytest.raises(BadInput, match=r"reserve: cannot read"):
        cloned(place, image="debian.qcow2", reserve="x")
