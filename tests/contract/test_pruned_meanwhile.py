"""Somebody makes a disk from an old content while somebody else prunes: two processes, in either order.

Judged by qemu-img.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._image import run_image, run_image_list
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._storage import plan_clone_spec, run_clone
from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._volume.run_volume_users import users
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

pytestmark = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="no qemu-img: install qemu-utils")
NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
VOLUME = "<volume><name>{}</name><capacity>1048576</capacity><target><format type='qcow2'/></target></volume>"
COMMAND = """
import json, sys
from ansible_collections.corral.virt.plugins.module_utils._core.errors import VirtError
from ansible_collections.corral.virt.tests.contract import test_pruned_meanwhile as here
try:
    print(json.dumps(here.converge(sys.argv[1], **json.loads(sys.argv[2]))))
except VirtError as error:
    print(json.dumps({"failed": str(error)}))
"""
TIMEOUT_S = 600


class Meanwhile(Gate):
    """Lets something happen when all is looked at and nothing is done yet."""

    def __init__(self, happen: t.Callable[[], object]) -> None:
        super().__init__(check_mode=False)
        self._happen = happen

    def run(self, steps: t.Sequence[t.Any], do: t.Callable[[t.Any], object]) -> list[object]:
        """As the gate, later."""
        if steps:
            self._happen()
        return super().run(steps, do)


def nowhere(*_asked: object) -> t.NoReturn:
    raise AssertionError("nothing is fetched here")


def converge(uri: str, gate: Gate | None = None, **output: t.Any) -> dict[str, t.Any]:
    """As virt_image does."""
    gate, known = gate or Gate(check_mode=False), {**run_image.OPTIONS, **run_clone.OPTIONS}
    params = {**{name: option.get("default") for name, option in known.items()}, **output}
    with opened(uri) as connection:
        if plan_clone_spec.concerns(params):
            return run_clone.converge(connection, params, gate, lambda *_phase: None)
        return run_image.converge(connection, params, gate, run_image.World(nowhere, opened))


def another(uri: str, **output: t.Any) -> subprocess.Popen[str]:
    """The same in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".cache")}
    command = [sys.executable, "-c", COMMAND, uri, json.dumps(output)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(process.communicate(timeout=TIMEOUT_S)[0]))


def waits(process: subprocess.Popen[str]) -> bool:
    """Whether it waits for a lock, as the kernel says."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    return any(str(process.pid) in fields for fields in waiting)


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, Path, str]:
    """A pool's URI, its directory, and a content to which the image's name does not point any more."""
    pool, source = tmp_path / "pool", tmp_path / "tiny.qcow2"
    pool.mkdir()
    node = tmp_path / "node.xml"
    node.write_text(NODE.format(pool))
    uri, contents = f"test://{node}", []
    for size in ("64k", "2M"):
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"cluster_size={size}", str(source), "4M"], check=True
        )
        result = converge(uri, name="tiny.qcow2", src=str(source), remote_src=True)
        contents.append(result["content"])
        if len(contents) == 1:
            (pool / "tiny.qcow2").unlink()  # so that it is brought anew
    old, new = contents
    assert old != new and (pool / old).is_file() and (pool / "tiny.qcow2").readlink() == Path(new)
    return uri, pool, old


@pytest.mark.parametrize("way", [{}, {"clone": "copy"}, {"state": "rebased"}], ids=["overlay", "copy", "rebased"])
def test_what_a_disk_is_being_made_from_is_kept(place: tuple[str, Path, str], way: dict[str, str]) -> None:
    uri, pool, old = place
    result: list[dict[str, t.Any]] = []
    if way.get("state"):
        converge(uri, name="disk.qcow2", image="tiny.qcow2")
    removals: tuple[dict[str, t.Any], ...] = ({"prune": True}, {"state": "absent"})
    gate = Meanwhile(lambda: result.extend(answer(another(uri, name="tiny.qcow2", **output)) for output in removals))
    made = converge(uri, gate, name="disk.qcow2", image=old, **way)
    assert made["changed"] and (pool / old).is_file()
    assert result[0]["notes"] == [f"kept {old}: a disk that is being created uses it"]
    assert f"a disk that is being created uses {old}" in result[1]["failed"]
    subprocess.run(["qemu-img", "info", "--backing-chain", str(pool / "disk.qcow2")], check=True, capture_output=True)


def test_what_a_guest_is_being_made_from_is_kept(place: tuple[str, Path, str]) -> None:
    uri, pool, old = place
    result: list[dict[str, t.Any]] = []
    wanted = {"name": "box1", "vcpus": 1, "memory": 64, "interfaces": [], "disks": [{"name": "system", "image": old}]}
    with opened(uri, events=True) as connection:
        connection.storagePoolLookupByName("default").createXML(VOLUME.format(old))
        gate = Meanwhile(lambda: result.append(answer(another(uri, name="tiny.qcow2", prune=True))))
        made = run_guest.converge(connection, run_guest_options.wanted(wanted), gate)
    assert made["changed"] and f"on {pool / old}" in " ".join(made["steps"])
    assert result[0]["notes"] == [f"kept {old}: a disk that is being created uses it"] and (pool / old).is_file()
    assert answer(another(uri, name="tiny.qcow2", prune=True))["steps"] == [f"remove {old}"], (
        "afterwards it is held no more"
    )


@pytest.mark.parametrize("removal", [{"prune": True}, {"state": "absent"}], ids=["prune", "absent"])
def test_nobody_begins_a_disk_on_what_is_being_removed(place: tuple[str, Path, str], removal: dict[str, t.Any]) -> None:
    uri, pool, old = place
    makers: list[subprocess.Popen[str]] = []

    def make() -> None:
        makers.append(another(uri, name="disk.qcow2", image=old))
        until(lambda: makers[0].poll() is not None or waits(makers[0]), TIMEOUT_S)

    assert converge(uri, Meanwhile(make), name="tiny.qcow2", **removal)["changed"]
    assert not (pool / old).exists()
    assert "there is no image" in answer(makers[0])["failed"]
    assert not (pool / "disk.qcow2").exists()


def test_a_name_that_is_pointed_elsewhere_meanwhile_is_followed(place: tuple[str, Path, str]) -> None:
    """Who waits for the lock of a content that goes then finds what the name points to."""
    uri, pool, old = place
    new = (pool / "tiny.qcow2").readlink()
    (pool / "tiny.qcow2").unlink()
    (pool / "tiny.qcow2").symlink_to(old)
    makers: list[subprocess.Popen[str]] = []
    (pool / "tiny.qcow2").rename(pool / "name.qcow2")  # the disk's maker goes by this name
    (pool / "tiny.qcow2").symlink_to(new)
    (pool / ".tiny.qcow2.json").unlink()
    (pool / ".tiny.qcow2.json").symlink_to(f".{new}.json")

    def make() -> None:
        makers.append(another(uri, name="disk.qcow2", image="name.qcow2"))
        while not waits(makers[0]):
            assert makers[0].poll() is None, "it did not wait"
            time.sleep(0.05)
        (pool / "next").symlink_to(new)
        (pool / "next").rename(pool / "name.qcow2")

    converge(uri, Meanwhile(make), name="tiny.qcow2", prune=True)
    assert not (pool / old).exists()
    assert answer(makers[0])["backing_file"] == str(pool / new)


def test_a_content_that_may_not_be_kept_is_not_used(place: tuple[str, Path, str]) -> None:
    uri, pool, old = place
    (pool / f".{old}.json").unlink()
    (pool / f".{old}.json").symlink_to(f".{old}.json")
    with pytest.raises(Failed, match=r"cannot keep image .* from being pruned"):
        converge(uri, name="disk.qcow2", image=old)
    assert not (pool / "disk.qcow2").exists()


@contextlib.contextmanager
def open_elsewhere(path: Path) -> t.Iterator[None]:
    """The file, as QEMU locks what a guest reads; on NFS its locks are seen by all hosts."""
    with path.open("rb") as stream:
        fcntl.fcntl(stream, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 100, 1, 0))
        yield


def test_what_a_process_of_any_host_has_open_is_kept(place: tuple[str, Path, str]) -> None:
    uri, pool, old = place
    user = "a QEMU process, perhaps on another host,"
    with open_elsewhere(pool / old):
        assert converge(uri, name="tiny.qcow2", prune=True)["notes"] == [f"kept {old}: {user} uses it"]
        with pytest.raises(Refused, match=f"{user} uses {old}"):
            converge(uri, name="tiny.qcow2", state="absent")
    assert converge(uri, name="tiny.qcow2", prune=True)["steps"] == [f"remove {old}"]


def test_what_is_opened_after_the_plan_is_kept(place: tuple[str, Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    uri, pool, old = place
    monkeypatch.setattr(run_image._Host, "opener", lambda _host, _content: None)
    with (
        open_elsewhere(pool / old),
        pytest.raises(Refused, match="perhaps on another host, uses it by now; it is kept"),
    ):
        converge(uri, name="tiny.qcow2", prune=True)
    assert (pool / old).is_file()


def test_on_a_shared_filesystem_nothing_goes_before_other_hosts_are_asked(
    place: tuple[str, Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, _pool, old = place
    monkeypatch.setattr(locks, "shared_filesystem", lambda _path: "nfs4")
    assert "guests of other hosts may use it" in converge(uri, name="tiny.qcow2", prune=True)["notes"][0]
    kept = converge(uri, name="tiny.qcow2", prune=True, used_elsewhere={old: "guest web1 on hyper2"})
    assert kept["notes"] == [f"kept {old}: guest web1 on hyper2 uses it"]
    assert converge(uri, name="tiny.qcow2", prune=True, used_elsewhere={})["steps"] == [f"remove {old}"]


def test_a_host_without_the_pool_has_no_images_where_that_is_allowed(place: tuple[str, Path, str]) -> None:
    uri, _pool, _old = place
    with opened(uri) as connection:
        there = run_image_list.described(connection, "default", missing_ok=True)
        assert there and there == run_image_list.described(connection, "default")
        assert run_image_list.described(connection, "other", missing_ok=True) is None
        with pytest.raises(NotFound, match="other"):
            run_image_list.described(connection, "other")
        connection.storagePoolLookupByName("default").destroy()
        with pytest.raises(Failed, match="not active"):
            run_image_list.described(connection, "default", missing_ok=True)


def test_where_files_are_that_hosts_may_share(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda1 / ext4 rw 0 0\nnas:/x /srv/two\\040words nfs4 rw 0 0\nauto.nas /net autofs rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
    )
    for path, kind, may in (("/srv/two words/a", "nfs4", True), ("/net/nas", None, True), ("/srv", None, False)):
        assert locks.shared_filesystem(path, str(mounts)) == kind
        assert locks.may_be_shared(path, str(mounts)) is may


def test_what_uses_a_file_is_asked_by_its_path(place: tuple[str, Path, str]) -> None:
    uri, pool, old = place
    with opened(uri) as connection:
        assert users(connection, [str(pool / old)]) == {str(pool / old): None}
        with pytest.raises(BadInput, match=r"^users_of: 'old' is not an absolute path$"):
            users(connection, ["/srv/a", "old"])
