"""Images in a directory pool of the test driver: verified, published under their content's name, never half."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils.urls import open_url

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    BadInput,
    Failed,
    NotFound,
    Refused,
    Unverified,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import files_image, plan_image, run_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import files_qemu_img, libvirt_storage
from ansible_collections.corral.virt.plugins.module_utils._system import work_directory
from ansible_collections.corral.virt.tests.contract.signing import Gpg, signing
from ansible_collections.corral.virt.tests.contract.unreliable import Server, serving

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"


TIMEOUT_S = 1
DISK = "/disk.raw"


def opener(location: str, headers: t.Mapping[str, str]) -> t.Any:
    """As the module reads an address."""
    return open_url(location, headers=headers, timeout=TIMEOUT_S, decompress=False)


class Place(t.NamedTuple):
    """A pool, and somewhere to bring images from."""

    connection: t.Any
    pool: Path
    sources: Path

    def converge(
        self, *, check_mode: bool = False, meanwhile: t.Callable[[t.Any], object] = lambda _step: None, **output: t.Any
    ) -> dict[str, t.Any]:
        """As the module does; `meanwhile` is what others do before each step."""
        params = {
            **{name: option.get("default") for name, option in run_image.OPTIONS.items()},
            "name": "tiny.qcow2",
            **output,
        }
        if "src" in output:
            params["remote_src"] = True
        gate = Gate(check_mode=check_mode, meanwhile=meanwhile)
        return run_image.converge(self.connection, params, gate, run_image.World(opener, opened))

    def files(self) -> dict[str, str]:
        """What is in the pool: names, and where links point."""
        seen = [path for path in sorted(self.pool.iterdir()) if not path.name.startswith(".")]
        return {path.name: str(path.readlink()) if path.is_symlink() else "" for path in seen}

    def unfinished(self) -> list[str]:
        """What is kept of work that was begun."""
        return sorted(path.name for path in self.pool.glob(".corral/*/*") if path.name != "lock")


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
    output: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}"}

    checked = place.converge(check_mode=True, **output)
    assert place.files() == {}
    done = place.converge(**output)
    assert {**done, "part": checked["part"]} == checked
    assert (done["changed"], done["content"]) == (True, content)
    assert place.files() == {"tiny.qcow2": content, content: ""}
    assert digest(place.pool / content) == digest(source)
    assert (place.pool / content).stat().st_mode & 0o777 == 0o444

    again = place.converge(**output)
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


def test_an_image_that_is_removed_while_a_run_waits_to_prune_is_fetched(place: Place) -> None:
    """With `update: false` it stayed as it was, until somebody removed it."""
    source = place.sources / "tiny.qcow2"
    place.converge(src=str(source), checksum=f"sha256:{digest(source)}")
    make(source, "qcow2", "-o", "cluster_size=4096")
    output: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}"}
    new = place.converge(**output)["content"]
    results: list[dict[str, t.Any]] = []
    run = threading.Thread(target=lambda: results.append(place.converge(update=False, prune=True, **output)))
    with work_directory.locked(Image("tiny.qcow2", str(place.pool), "qcow2")):
        run.start()
        run.join(0.5)
        assert run.is_alive()
        for path in place.pool.glob("*tiny*"):
            path.unlink()
    run.join()
    assert [(one["content"], one["verified"]) for one in results] == [(new, True)]
    assert place.files() == {"tiny.qcow2": new, new: ""}


def test_a_file_that_appears_while_an_image_is_fetched_stays(place: Place) -> None:
    """A download takes hours, in which a colleague may create a disk of that name."""
    source, name = place.sources / "tiny.qcow2", place.pool / "tiny.qcow2"
    output: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}"}
    content = f"tiny.{digest(source)[:12]}.qcow2"

    def meanwhile(step: object) -> None:
        if isinstance(step, plan_image.Symlink):
            name.write_text("a colleague's")

    with pytest.raises(VirtError, match=rf"cannot point tiny.qcow2 to {content}: .*; it is kept; move it away"):
        place.converge(**output, meanwhile=meanwhile)
    assert name.read_text() == "a colleague's"
    assert place.files() == {"tiny.qcow2": "", content: ""}
    name.unlink()
    again = place.converge(**output)
    assert again["steps"] == [f"point tiny.qcow2 to {content}"], "it is not fetched again"

    def replaced(_step: object) -> None:
        name.unlink()
        name.write_text("a colleague's")

    with pytest.raises(VirtError, match=r"cannot remove tiny.qcow2: .* is a regular file by now"):
        place.converge(state="absent", meanwhile=replaced)
    assert name.read_text() == "a colleague's"


def test_a_name_that_something_gets_at_the_last_moment_is_not_replaced(place: Place) -> None:
    image = Image("tiny.qcow2", str(place.pool), "qcow2")
    with work_directory.locked(image):
        (place.pool / "tiny.qcow2").write_text("a colleague's")
        with pytest.raises(FileExistsError):
            files_image.point(image, "tiny.0123456789ab.qcow2")
    assert (place.pool / "tiny.qcow2").read_text() == "a colleague's"


def test_a_disk_that_is_based_on_the_name_meanwhile_keeps_its_data(place: Place) -> None:
    source = place.sources / "tiny.qcow2"
    old = place.converge(src=str(source), checksum=f"sha256:{digest(source)}")["content"]
    make(source, "qcow2", "-o", "cluster_size=4096")
    backing = f"<backingStore><path>{place.pool}/tiny.qcow2</path><format type='qcow2'/></backingStore>"

    def meanwhile(step: object) -> None:
        if isinstance(step, plan_image.Symlink):
            pool = place.connection.storagePoolLookupByName("default")
            pool.createXML(f"<volume><name>web.qcow2</name><capacity>512</capacity>{backing}</volume>")

    with pytest.raises(VirtError, match=f"is based on the name tiny.qcow2, not on {old}"):
        place.converge(src=str(source), checksum=f"sha256:{digest(source)}", meanwhile=meanwhile)
    assert place.files()["tiny.qcow2"] == old


def test_an_older_content_comes_beside_the_current_one(place: Place) -> None:
    """Asked for by disks that stand on it elsewhere; the name goes on pointing where it did."""
    source = place.sources / "tiny.qcow2"
    new = place.converge(src=str(source), checksum=f"sha256:{digest(source)}")["content"]
    make(source, "qcow2", "-o", "cluster_size=4096")
    output: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}", "current": False}
    checked = place.converge(check_mode=True, **output)
    old = place.converge(**output)
    assert checked["changed"] and checked["steps"] == old["steps"] and checked["diff"] == old["diff"]
    assert checked["content"] == old["content"] != new
    assert place.files() == {"tiny.qcow2": new, new: "", old["content"]: ""}
    assert not place.converge(**output)["changed"]
    for more in ({"checksum": None}, {"prune": True}, {"state": "absent"}):
        with pytest.raises(BadInput, match="current: false"):
            place.converge(**{**output, **more})


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
        ({"src": "/nowhere", "checksum": "none"}, Failed, r"^cannot read /nowhere: No such file"),
        ({"url": "https://example.org/x", "src": None}, BadInput, "nothing is downloaded unverified"),
        (
            {"url": "file:///etc/passwd", "src": None, "checksum": "none"},
            BadInput,
            "must begin with http:// or https://",
        ),
        ({"url": "https://example.org/x", "checksum": "none"}, BadInput, "url and src are mutually exclusive"),
        ({"name": "../tiny.qcow2", "checksum": "none"}, BadInput, "is not a valid name"),
        ({"name": "tiny", "checksum": "none"}, BadInput, "format of tiny is unclear"),
        ({"pool": "fast", "checksum": "none"}, NotFound, "cannot find storage pool fast"),
        ({"src": None, "checksum": None}, BadInput, "set its source with url"),
        (
            {"signature": "inline", "checksum": "none"},
            BadInput,
            "it signs a list of checksums.*; signature: set keyring",
        ),
        ({"keyring": "/keys", "checksum": "none"}, BadInput, "keyring: set signature"),
        ({"origin": "hyper1", "checksum": "none"}, BadInput, "src and origin are mutually exclusive"),
        ({"retries": -1, "checksum": "none"}, BadInput, "retries: must be at least 0, not -1"),
        ({"checksum": "md5:0"}, BadInput, "checksum: cannot read 'md5:0'; write sha256:<hex>"),
    ],
)
def test_what_is_refused_leaves_nothing(
    place: Place, said: dict[str, t.Any], kind: type[VirtError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        place.converge(**{"src": str(place.sources / "tiny.qcow2"), **said})
    assert place.files() == {}
    assert place.unfinished() == []


def test_an_image_that_leans_on_another_file_is_refused(place: Place) -> None:
    """Its reader would be given any file of the host as a backing file."""
    leaning = make(place.sources / "evil.qcow2", "qcow2", "-F", "raw", "-b", "/etc/passwd")
    with pytest.raises(Refused, match=r"it refers to another file \(/etc/passwd\)"):
        place.converge(src=str(leaning), checksum=f"sha256:{digest(leaning)}")
    assert place.files() == {}


def test_what_others_put_there_is_left_alone(place: Place) -> None:
    (place.pool / "tiny.qcow2").write_text("mine")
    for state in ("present", "absent"):
        with pytest.raises(Refused, match="this collection"):
            place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none", state=state)
    assert (place.pool / "tiny.qcow2").read_text() == "mine"


def _untouched(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced, written or given to others; who reads it changes only its access time."""
    found = path.stat()
    return found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("sourceless", [True, False])
def test_a_file_of_others_with_a_contents_name_is_no_image(place: Place, current: bool, sourceless: bool) -> None:
    """Its name promises a checksum that it does not have: nothing points to it, and it is neither replaced nor
    removed.
    """
    source = place.sources / "tiny.qcow2"
    theirs = place.pool / f"tiny.{digest(source)[:12]}.qcow2"
    theirs.write_text("mine")
    before = _untouched(theirs)
    output: dict[str, t.Any] = {
        "checksum": f"sha256:{digest(source)}",
        "current": current,
        **({} if sourceless else {"src": str(source)}),
    }
    for check_mode in (True, False):
        with pytest.raises(Unverified, match=r"cannot verify image .* did not import it; inspect it, and move it away"):
            place.converge(check_mode=check_mode, **output)
        gone = place.converge(check_mode=check_mode, state="absent")
        assert (
            gone["notes"] == [f"kept {theirs.name}: no manifest says that this collection imported it"]
            and not gone["changed"]
        )
    assert (theirs.read_text(), _untouched(theirs)) == ("mine", before)
    assert not (place.pool / "tiny.qcow2").is_symlink()


def test_a_copy_without_a_manifest_is_known_by_its_bytes(place: Place) -> None:
    source = place.sources / "tiny.qcow2"
    content = f"tiny.{digest(source)[:12]}.qcow2"
    (place.pool / content).write_bytes(source.read_bytes())
    output: dict[str, t.Any] = {"src": str(source), "checksum": f"sha256:{digest(source)}"}
    for check_mode in (True, False):
        assert place.converge(check_mode=check_mode, **output)["steps"] == [f"point tiny.qcow2 to {content}"]
    assert (place.pool / f".{content}.json").exists() and not place.converge(**output)["changed"]


def test_an_image_in_use_is_not_removed(place: Place) -> None:
    content = place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")["content"]
    backing = f"<backingStore><path>{place.pool / content}</path><format type='qcow2'/></backingStore>"
    pool = place.connection.storagePoolLookupByName("default")
    pool.createXML(f"<volume><name>web1-system.qcow2</name><capacity>1</capacity>{backing}</volume>")
    with pytest.raises(Refused, match=f"web1-system.qcow2 uses {content}"):
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

    monkeypatch.setattr(libvirt_storage, "refresh", refresh)
    for check_mode in (True, False):
        with pytest.raises(Refused, match=f"overlays/web9.qcow2 uses {content}"):
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
        f'RW 8 FLAT "{secret}" 0\n\nddb.virtualHWVersion = "4"\nddb.geometry.cylinders = "1"\nddb.geometry.heads = '
        '"16"\n'
        'ddb.geometry.sectors = "63"\nddb.adapterType = "ide"\n'
    )
    with pytest.raises(Refused, match=rf"it refers to another file \({secret}\)"):
        place.converge(src=str(evil), checksum="none")
    assert place.files() == {}


def test_an_image_of_a_format_nobody_publishes_is_refused(place: Place) -> None:
    with pytest.raises(Refused, match="its format qed is not one of qcow2, raw, vmdk, vdi, vhdx, vpc"):
        place.converge(src=str(make(place.sources / "old.qed", "qed")), checksum="none")
    assert place.files() == {}


@pytest.mark.parametrize(
    "more",
    [
        {"backing-filename": "/secret"},
        {"full-backing-filename": "/secret"},
        {"format-specific": {"type": "qcow2", "data": {"data-file": "/secret"}}},
        {"format-specific": {"type": "vmdk", "data": {"extents": [{"filename": "{path}"}, {"filename": "/secret"}]}}},
        {
            "children": [
                {
                    "name": "file",
                    "info": {"filename": "{path}", "children": [{"name": "file", "info": {"filename": "/secret"}}]},
                }
            ]
        },
        {"children": [{"name": "file", "info": {"filename": "json:{}"}}]},
    ],
    ids=str,
)
def test_whatever_qemu_img_says_of_other_files(
    place: Place, more: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        files_qemu_img,
        "info",
        lambda path, _form: json.loads(
            json.dumps({"filename": path, "format": "qcow2", **more}).replace("{path}", path)
        ),
    )
    with pytest.raises(Refused, match="it refers to another file"):
        place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")
    assert place.files() == {}


def test_a_vmdk_that_holds_its_own_data_is_converted(place: Place) -> None:
    place.converge(src=str(make(place.sources / "good.vmdk", "vmdk")), checksum="none")
    target = place.pool / "tiny.qcow2"
    assert (
        b'"format": "qcow2"'
        in subprocess.run(["qemu-img", "info", "--output=json", target], check=True, capture_output=True).stdout
    )


def test_removal_says_what_goes(place: Place) -> None:
    place.converge(src=str(place.sources / "tiny.qcow2"), checksum="none")
    before = place.files()["tiny.qcow2"]
    result = place.converge(state="absent")
    assert result["diff"] == {"before": {"image": before}, "after": {}}
    assert place.converge(name="nothing", state="absent")["changed"] is False


@pytest.fixture
def server() -> t.Iterator[Server]:
    """An image of half a megabyte, on loopback."""
    with serving({DISK: b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(16384))}) as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would be waited between tries, in seconds."""
    asked: list[float] = []
    own, slept = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        asked.append(seconds) if threading.get_ident() == own else slept(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return asked


def download(place: Place, server: Server, path: str = DISK, **output: t.Any) -> dict[str, t.Any]:
    """As the module does, verified by the right digest unless another is said."""
    checksum = f"sha256:{hashlib.sha256(server.files[DISK]).hexdigest()}"
    return place.converge(
        **{"name": "disk.raw", "url": server.url + path, "checksum": checksum, "retries": 2, **output}
    )


def is_whole(place: Place, server: Server) -> bool:
    """Whether the pool holds the image, and no rest of the work."""
    return (place.pool / "disk.raw").read_bytes() == server.files[DISK] and place.unfinished() == []


@pytest.mark.parametrize(
    ("trouble", "ranges"),
    [
        ({}, [None]),
        ({"errors": [500, 503]}, [None, None, None]),
        ({"errors": [429]}, [None, None]),
        ({"truncated": 1}, [None, "bytes=262144-"]),
        ({"truncated": 2}, [None, "bytes=262144-", "bytes=393216-"]),
        ({"stalled": 1}, [None, "bytes=262144-"]),
        ({"truncated": 1, "ranges": False}, [None, "bytes=262144-"]),
        ({"truncated": 1, "etag": None}, [None, "bytes=262144-"]),
        ({"truncated": 1, "shifted": 1}, [None, "bytes=262144-", None]),
    ],
    ids=str,
)
def test_a_server_on_a_bad_day(
    place: Place, server: Server, pauses: list[float], trouble: dict[str, t.Any], ranges: list[str | None]
) -> None:
    for name, value in trouble.items():
        setattr(server, name, value)
    assert download(place, server)["changed"]
    assert is_whole(place, server)
    assert server.ranges_asked(DISK) == ranges
    assert pauses == [2**number for number in range(len(ranges) - 1)]
    assert not download(place, server)["changed"]


def test_a_redirect_is_followed(place: Place, server: Server) -> None:
    assert download(place, server, f"/moved{DISK}")["changed"]
    assert is_whole(place, server)


@pytest.mark.parametrize(
    ("trouble", "said", "message", "kept"),
    [
        ({"errors": [404]}, {}, r"HTTP 404 Not Found; is the URL correct\?", 0),
        ({"errors": [403]}, {}, "HTTP 403 Forbidden", 0),
        ({"errors": [500] * 3}, {}, r"HTTP 500 .* \(tried 3 times\)", 0),
        (
            {"truncated": 9},
            {},
            r"it stopped after \d+ of 524288 bytes \(tried 3 times\); the \d+ bytes received are kept",
            458752,
        ),
        ({"truncated": 9, "ranges": False}, {}, r"it stopped after 262144 of 524288 bytes \(tried 3 times\)", 262144),
        ({"stalled": 9}, {"retries": 0}, r"timed out \(tried 1 times\)", 262144),
        ({"damaged": 9}, {}, r"refusing image disk.raw: .* has sha256 [0-9a-f]{64}, not", 0),
    ],
    ids=str,
)
def test_a_bad_day_that_does_not_end(
    place: Place,
    server: Server,
    pauses: list[float],
    trouble: dict[str, t.Any],
    said: dict[str, t.Any],
    message: str,
    kept: int,
) -> None:
    for name, value in trouble.items():
        setattr(server, name, value)
    with pytest.raises(Failed, match=message):
        download(place, server, **said)
    assert place.files() == {}
    parts = list(place.pool.glob(".corral/*/*.part"))
    assert sum(path.stat().st_size for path in parts) == kept, "what may go on is kept, what is wrong is not"
    assert len(pauses) <= 2

    # The next day: only what is missing comes.
    server.errors, server.truncated, server.stalled, server.damaged, server.ranges, server.sent_bytes = (
        [],
        0,
        0,
        0,
        True,
        0,
    )
    assert download(place, server)["changed"]
    assert is_whole(place, server)
    assert server.sent_bytes == len(server.files[DISK]) - kept


def test_a_download_that_was_whole_is_not_asked_for_again(
    place: Place, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files_image, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(place, server)
    monkeypatch.undo()
    assert place.files() == {}
    server.sent_bytes = 0
    assert download(place, server)["changed"]
    assert (server.sent_bytes, is_whole(place, server)) == (0, True)


@pytest.mark.parametrize("checksum", ["none", None])
@pytest.mark.parametrize("etag", ['"1"', '"2"', 'W/"2"', None])
def test_what_was_kept_of_another_version_is_not_used(
    place: Place, server: Server, checksum: str | None, etag: str | None
) -> None:
    """Without a checksum only the server can tell; with one, it is seen in the end."""
    output = {"checksum": checksum} if checksum else {}
    server.truncated, old = 1, server.files[DISK]
    with pytest.raises(Failed, match=r"^cannot fetch .* \(tried 1 times\)"):
        download(place, server, retries=0, **output)
    if etag != '"1"':
        server.files[DISK], server.etag = old[::-1], etag
    assert download(place, server, retries=0, **output)["changed"]
    assert is_whole(place, server)


def test_a_part_larger_than_the_image_is_thrown_away(place: Place, server: Server, pauses: list[float]) -> None:
    server.truncated = 1
    with pytest.raises(Failed, match=r"^cannot fetch .* \(tried 1 times\)"):
        download(place, server, retries=0)
    (part,) = place.pool.glob(".corral/*/*.part")
    part.write_bytes(bytes(len(server.files[DISK]) + 1))
    assert download(place, server)["changed"]
    assert is_whole(place, server)
    assert len(pauses) == 1


def test_a_name_that_resolves_to_nobody(place: Place, pauses: list[float]) -> None:
    with pytest.raises(
        Failed, match=r"cannot fetch http://127.0.0.1:1/x.raw: .*Connection refused.* \(tried 5 times\)"
    ):
        place.converge(name="x.raw", url="http://127.0.0.1:1/x.raw", checksum="none")
    assert (place.files(), pauses) == ({}, [1, 2, 4, 8])


HEX = {name: hashlib.new(name, b"x" * 100).hexdigest() for name in ("sha256", "sha512", "md5", "sha1")}
ANOTHER = "0" * 64
LISTS = {
    "Debian": f"{'0' * 128}  other.raw\n{HEX['sha512']}  disk.raw\n",
    "Ubuntu": f"{ANOTHER} *other.raw\n{HEX['sha256']} *disk.raw\n",
    "Fedora": f"# disk.raw: 100 bytes\nSHA256 (disk.raw) = {HEX['sha256']}\n",
    "CentOS": f"# disk.raw: 100 bytes\nSHA256 (disk.raw) = {HEX['sha256'].upper()}\nMD5 (disk.raw) = {HEX['md5']}\n",
    "AlmaLinux": f"{ANOTHER}  disk.raw.manifest\n{HEX['sha256']}  ./disk.raw\n",
    "openSUSE": f"{HEX['sha256']}  disk-15.6-Build7.raw\n",
    "alone": HEX["sha256"],
    "several": f"SHA1 (disk.raw) = {HEX['sha1']}\n{ANOTHER[:-1]}1  other\n{HEX['sha256']}  "
    f"disk.raw\r\n{HEX['sha512']}  disk.raw\n",
}


@pytest.mark.parametrize("vendor", LISTS)
def test_lists_of_checksums(place: Place, server: Server, vendor: str) -> None:
    server.files.update({DISK: b"x" * 100, f"{DISK}.sha256": LISTS[vendor].encode()})
    result = download(place, server, checksum=f"{server.url}{DISK}.sha256")
    algorithm = "sha512" if vendor in ("Debian", "several") else "sha256"
    assert result["checksum"] == f"{algorithm}:{HEX[algorithm]}"
    assert result["content"] == f"disk.{HEX[algorithm][:12]}.raw"
    assert is_whole(place, server)


def test_a_list_without_the_file(place: Place, server: Server) -> None:
    server.files["/SUMS"] = f"{HEX['sha256']}  other.raw\n{HEX['md5']}  disk.raw\n".encode()
    with pytest.raises(
        Failed, match=r"cannot verify .*disk.raw: .*/SUMS contains no sha512, sha384 or sha256 of disk.raw"
    ):
        download(place, server, checksum=f"{server.url}/SUMS")
    server.files["/SUMS"] = f"{hashlib.sha256(server.files[DISK]).hexdigest()}  disk.raw\n".encode()
    with pytest.raises(Failed, match=r"contains no sha512 of disk\.raw"):
        download(place, server, checksum=f"sha512:{server.url}/SUMS")
    assert download(place, server, checksum=f"sha256:{server.url}/SUMS")["changed"]


def test_a_new_version_in_the_list_is_fetched_and_the_old_one_pruned(place: Place, server: Server) -> None:
    def publish(body: bytes) -> str:
        server.files.update({DISK: body, "/SUMS": f"{hashlib.sha256(body).hexdigest()}  disk.raw\n".encode()})
        return f"disk.{hashlib.sha256(body).hexdigest()[:12]}.raw"

    output = {"checksum": f"{server.url}/SUMS"}
    first = publish(b"1" * 512)
    download(place, server, **output)
    second = publish(b"2" * 512)
    download(place, server, **output)
    assert place.files() == {"disk.raw": second, first: "", second: ""}
    third = publish(b"3" * 512)
    predicted = download(place, server, prune=True, check_mode=True, **output)
    done = download(place, server, prune=True, **output)
    assert {**done, "part": predicted["part"]} == predicted
    assert done["steps"][2:] == [f"remove {name}" for name in sorted([first, second])]
    assert place.files() == {"disk.raw": third, third: ""}
    assert not download(place, server, prune=True, **output)["changed"]
    assert {path.name for path in place.pool.iterdir()} == {"disk.raw", third, ".disk.raw.json", f".{third}.json"}


def test_a_failure_to_prune_lists_what_was_done(place: Place, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    old = download(place, server)["content"]
    server.files[DISK] = b"2" * 512
    monkeypatch.setattr(run_image, "remove", lambda path: Path(path, "x").unlink())
    with pytest.raises(
        Failed, match=rf"^cannot remove {old}: Not a directory: .*{old}/x; .*\(already done: "
    ) as caught:
        download(place, server, prune=True)
    new = place.files()["disk.raw"]
    assert len(caught.value.done) == 2 and new in caught.value.done[1] and new != old


def test_prune_keeps_what_disks_and_guests_stand_on(place: Place, server: Server) -> None:
    contents = []
    for number in (b"1", b"2", b"3", b"4"):
        server.files[DISK] = number * 512
        contents.append(download(place, server)["content"])
    first, second, _third, current = contents
    # One below an overlay in a pool, one below a disk that is in no pool, one used by nobody.
    backing = f"<backingStore><path>{place.pool / first}</path><format type='raw'/></backingStore>"
    pool = place.connection.storagePoolLookupByName("default")
    pool.createXML(f"<volume><name>web1-system.qcow2</name><capacity>512</capacity>{backing}</volume>")
    overlay = place.sources / "overlay.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", place.pool / second, overlay], check=True
    )
    source = f"<disk type='file'><source file='{overlay}'/><target dev='vda'/></disk>"
    place.connection.defineXML(
        f"<domain type='test'><name>web2</name><memory>8192</memory><os><type>hvm</type></os><devices>{source}</devices></domain>"
    )
    result = download(place, server, prune=True)
    assert result["notes"] == sorted(
        [
            f"kept {first}: {place.pool}/web1-system.qcow2 uses it",
            f"kept {second}: guest web2 uses it",
        ]
    )
    assert set(place.files()) == {"disk.raw", first, second, current}
    with pytest.raises(Refused, match="guest web2 uses"):
        download(place, server, state="absent", url=None, checksum=None)


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize("where", ["in the pool", "elsewhere", "running"])
def test_a_name_that_somebody_stands_on_stays_where_it_points(
    place: Place, server: Server, where: str, check_mode: bool
) -> None:
    """An overlay that names the link, not the content, would have another base."""
    server.files[DISK] = b"1" * 512
    first = download(place, server)["content"]
    name = place.pool / "disk.raw"
    if where == "in the pool":
        backing = f"<backingStore><path>{name}</path><format type='raw'/></backingStore>"
        pool = place.connection.storagePoolLookupByName("default")
        pool.createXML(f"<volume><name>web.qcow2</name><capacity>512</capacity>{backing}</volume>")
    else:
        overlay, link = place.sources / "overlay.qcow2", place.sources / "images"
        link.symlink_to(place.pool)
        base = "0" if where == "running" else link / "disk.raw"
        subprocess.run(
            ["qemu-img", "create", "-qu", "-f", "qcow2", "-F", "raw", "-b", base, overlay, "512"], check=True
        )
        below = f"<backingStore type='file'><format type='raw'/><source file='{link}/disk.raw'/></backingStore>"
        disk = f"<disk type='file'><source file='{overlay}'/>{below if where == 'running' else ''}<target dev='vda'/></disk>"
        guest = place.connection.defineXML(
            f"<domain type='test'><name>web2</name><memory>8192</memory><os><type>hvm</type></os><devices>{disk}</devices></domain>"
        )
        guest.create()
    server.files[DISK] = b"2" * 512
    why = f"is based on the name disk.raw, not on {first}, and would get other data"
    with pytest.raises(Refused, match=re.escape(why)):
        download(place, server, prune=True, check_mode=check_mode)
    assert str(name.readlink()) == first and set(place.files()) == {"disk.raw", first}
    download(place, server, current=False)
    assert str(name.readlink()) == first


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2", "zst"])
def test_packed(place: Place, server: Server, packing: str) -> None:
    tool = {"gz": "gzip", "xz": "xz", "bz2": "bzip2", "zst": "zstd"}[packing]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} to pack with")
    plain = server.files[DISK] + bytes(2 * 1024**2) + b"end of the disk"
    packed = subprocess.run([tool, "-c"], input=plain, capture_output=True, check=True).stdout
    server.files[f"{DISK}.{packing}"] = packed
    output = {"path": f"{DISK}.{packing}", "checksum": f"sha256:{hashlib.sha256(packed).hexdigest()}"}
    assert download(place, server, **output)["changed"]
    found = place.pool / "disk.raw"
    assert found.read_bytes() == plain
    assert found.stat().st_blocks * 512 < len(plain) - 1024**2, "zeros became a hole"
    assert place.unfinished() == []

    broken = packed[: len(packed) // 2]
    server.files[f"{DISK}.{packing}"] = broken
    with pytest.raises(Failed, match=rf"cannot unpack .* as {packing}: "):
        download(place, server, **{**output, "checksum": f"sha256:{hashlib.sha256(broken).hexdigest()}"})
    assert found.read_bytes() == plain


@pytest.mark.parametrize("name", [DISK, f"{DISK}.gz"])
def test_an_empty_source_is_refused(place: Place, server: Server, name: str) -> None:
    server.files[name] = b""
    output = {"path": name, "checksum": f"sha256:{hashlib.sha256(b'').hexdigest()}"}
    with pytest.raises(
        Failed, match=rf"^cannot fetch image disk.raw: .*{name} is empty; check what the source offers$"
    ):
        download(place, server, **output)
    assert place.unfinished() == []


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2", "zst"])
def test_a_damaged_archive_is_refused_and_nothing_of_it_stays(place: Place, server: Server, packing: str) -> None:
    """Its beginning is right, so that a piece of it is unpacked first."""
    tool = {"gz": "gzip", "xz": "xz", "bz2": "bzip2", "zst": "zstd"}[packing]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} to pack with")
    noise = os.urandom(3 * 1024**2)
    packed = bytearray(subprocess.run([tool, "-c"], input=noise, capture_output=True, check=True).stdout)
    middle = len(packed) * 2 // 3
    packed[middle : middle + 128 * 1024] = b"\xff" * 128 * 1024
    server.files[f"{DISK}.{packing}"] = bytes(packed)
    output = {"path": f"{DISK}.{packing}", "checksum": f"sha256:{hashlib.sha256(packed).hexdigest()}"}
    with pytest.raises(Failed, match=rf"cannot unpack .* as {packing}: "):
        download(place, server, **output)
    assert [name for name in place.unfinished() if name.endswith(".unpacked")] == []
    assert not (place.pool / "disk.raw").exists()


@pytest.mark.parametrize("form", ["qcow2", "vmdk", "vdi", "vhdx", "vpc"])
def test_every_format_is_converted(place: Place, form: str) -> None:
    source = make(place.sources / f"disk.{form}", form)
    subprocess.run(["qemu-io", "-f", form, "-c", "write -P 7 4k 64k", source], check=True, capture_output=True)
    place.converge(name="disk.raw", src=str(source))
    place.converge(name="disk.qcow2", src=str(source))
    for made, made_form in (("disk.raw", "raw"), ("disk.qcow2", "qcow2")):
        subprocess.run(
            ["qemu-img", "compare", "-q", "-f", form, "-F", made_form, source, place.pool / made], check=True
        )


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Gpg]:
    """GnuPG with a key of its own, as a vendor has."""
    if shutil.which("gpg") is None or shutil.which("gpgv") is None:
        pytest.skip("no gpg to sign with")
    with signing(tmp_path_factory.mktemp("gnupg"), "vendor", "stranger") as gpg:
        yield gpg


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("armoured", [False, True])
def test_a_signed_list(place: Place, server: Server, signer: Gpg, inline: bool, armoured: bool) -> None:
    sums = f"{hashlib.sha256(server.files[DISK]).hexdigest()}  disk.raw\n".encode()

    def publish(user: str) -> None:
        ways = ["--clearsign"] if inline else ["--detach-sign"]
        made = signer("--local-user", f"{user}@example.org", *ways, given=sums)
        server.files.update({"/SUMS": made} if inline else {"/SUMS": sums, "/SUMS.gpg": made})

    keys = signer("--armor", "--export", "vendor@example.org") if armoured else signer("--export", "vendor@example.org")
    ring = place.sources / "vendor.gpg"
    ring.write_bytes(keys)
    output = {
        "checksum": f"{server.url}/SUMS",
        "signature": "inline" if inline else f"{server.url}/SUMS.gpg",
        "keyring": keys.decode() if armoured else str(ring),
    }
    publish("stranger")
    with pytest.raises(
        Failed, match=r"refusing .*/SUMS: it has no good signature by a key in the keyring \(.*No public key"
    ):
        download(place, server, **output)
    publish("vendor")
    where = "/SUMS" if inline or not armoured else "/SUMS.gpg"
    whole = server.files[where]
    server.files[where] = whole.replace(b"disk.raw", b"disk.iso") if where == "/SUMS" else whole[:-3]
    with pytest.raises(Failed, match=r"refusing .*/SUMS: "):
        download(place, server, **output)
    assert place.files() == {}
    server.files[where] = whole
    assert download(place, server, **output)["changed"]
    assert is_whole(place, server)


def test_what_a_clearsigned_list_does_not_cover_is_not_believed(place: Place, server: Server, signer: Gpg) -> None:
    lie = f"{hashlib.sha256(server.files[DISK]).hexdigest()}  disk.raw\n".encode()
    truth = signer("--local-user", "vendor@example.org", "--clearsign", given=f"{ANOTHER}  disk.raw\n".encode())
    keys = signer("--armor", "--export", "vendor@example.org").decode()
    output = {"checksum": f"{server.url}/SUMS", "signature": "inline", "keyring": keys}
    for forged in (lie + truth, truth + lie):
        server.files["/SUMS"] = forged
        with pytest.raises(Failed, match=r"refusing image disk.raw: .*, not 0{64}|refusing http"):
            download(place, server, **output)
    assert place.files() == {}


@pytest.mark.parametrize("keyring", ["/nowhere", "-----BEGIN PGP PUBLIC KEY BLOCK-----\nrubbish"])
def test_a_keyring_that_is_none(place: Place, server: Server, keyring: str) -> None:
    server.files["/SUMS"] = b""
    with pytest.raises(BadInput, match=r"^keyring: "):
        download(place, server, checksum=f"{server.url}/SUMS", signature="inline", keyring=keyring)


def test_two_at_the_same_time_download_once(place: Place, server: Server) -> None:
    def other() -> None:
        with opened(place.connection.getURI()) as connection:
            results.append(download(Place(connection, place.pool, place.sources), server))

    server.slow_s = 0.5
    results: list[dict[str, t.Any]] = []
    threads = [threading.Thread(target=other) for _each in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result["changed"] for result in results) == [False, False, True]
    assert len({result["content"] for result in results}) == 1
    assert server.ranges_asked(DISK) == [None]
    assert is_whole(place, server)


@pytest.mark.parametrize("check_mode", [True, False], ids=["check", "run"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _path: None, "No such file or directory"),
        (Path.mkdir, "it is neither a file nor a block device"),
        (os.mkfifo, "it is neither a file nor a block device"),
    ],
    ids=["missing", "directory", "pipe"],
)
def test_a_file_that_cannot_be_read_is_refused_before_anything_is_touched(
    place: Place, make: t.Callable[[Path], t.Any], why: str, *, check_mode: bool
) -> None:
    source = place.sources / "gone.qcow2"
    make(source)
    with pytest.raises(Failed, match=f"cannot read {source}: {why}"):
        place.converge(src=str(source), checksum="none", check_mode=check_mode)
    assert place.files() == {}
