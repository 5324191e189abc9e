"""What another hypervisor says of an image is not believed: the bytes are."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import subprocess
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import (
    Failed,
    NotFound,
    Refused,
    Unverified,
    VirtError,
)
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import run_image
from ansible_collections.corral.virt.plugins.module_utils._image.files_image import read_manifest
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image, Manifest
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import explained, opened
from ansible_collections.corral.virt.plugins.module_utils._storage import libvirt_storage

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
PEER = object()  # a connection to it


@dataclasses.dataclass
class Hosts:
    """A pool here, and one of a peer that says what it wants."""

    connection: t.Any
    pool: Path
    peer: Path

    def offers(self, body: bytes, **lies: t.Any) -> str:
        """The peer has this image under its name; returns the sha256 of its bytes."""
        digest = hashlib.sha256(body).hexdigest()
        claimed = lies.get("checksum", f"sha256:{digest}")
        content = Image("tiny.qcow2", "", "qcow2").content_name(claimed.partition(":")[2])
        honest = Manifest(
            content, digest, len(body), "https://mirror.example.org/tiny.qcow2", claimed, "2026-01-01T00:00:00+00:00"
        )
        manifest = json.dumps({**dataclasses.asdict(honest), **lies})
        (self.peer / content).write_bytes(body)
        for name in (content, "tiny.qcow2"):
            (self.peer / f".{name}.json").write_text(manifest)
        return digest

    def converge(self, *, check_mode: bool = False, **output: t.Any) -> dict[str, t.Any]:
        params = {
            **{name: option.get("default") for name, option in run_image.OPTIONS.items()},
            "name": "tiny.qcow2",
            "origin": "hyper1",
        }
        world = run_image.World(t.cast(t.Any, None), lambda _uri: contextlib.nullcontext(PEER))
        return run_image.converge(self.connection, {**params, **output}, Gate(check_mode=check_mode), world)

    def untouched(self) -> bool:
        return not [path for path in self.pool.rglob("*") if path.is_file() and path.name != "lock"]


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Hosts]:
    pool, peer = tmp_path / "pool", tmp_path / "peer"
    pool.mkdir()
    peer.mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(pool))

    def read(_connection: t.Any, _pool: str, name: str, **_more: t.Any) -> bytes | None:
        return (peer / name).read_bytes() if (peer / name).exists() else None

    def receive(
        _connection: t.Any, _pool: str, name: str, offset: int, write: t.Callable[[bytes], None], _skip: t.Any
    ) -> None:
        write((peer / name).read_bytes()[offset:])

    refresh, volume_in = libvirt_storage.refresh, libvirt_storage.volume_in
    monkeypatch.setattr(libvirt_storage, "read", read)
    monkeypatch.setattr(libvirt_storage, "receive", receive)
    monkeypatch.setattr(
        libvirt_storage, "refresh", lambda connection, name: None if connection is PEER else refresh(connection, name)
    )
    monkeypatch.setattr(
        libvirt_storage, "volume_in", lambda where, *what: None if where is PEER else volume_in(where, *what)
    )
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        yield Hosts(connection, pool, peer)


def disk(folder: Path, *more: str) -> bytes:
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *more, str(folder / "made"), "1M"], check=True)
    made = folder / "made"
    body = made.read_bytes()
    made.unlink()
    return body


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_an_honest_peer_is_verified_by_the_sum_that_was_asked_for(hosts: Hosts, tmp_path: Path, algorithm: str) -> None:
    body = disk(tmp_path)
    wanted = f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"
    hosts.offers(body, checksum=wanted)
    planned, done = hosts.converge(check_mode=True, checksum=wanted), hosts.converge(checksum=wanted)
    assert planned["steps"] == done["steps"] and planned["verified"] and done["verified"]
    kept = read_manifest((hosts.pool / f".{done['content']}.json").read_text(), "")
    assert (kept.sha256, kept.checksum, kept.verified) == (hashlib.sha256(body).hexdigest(), wanted, True)
    assert not hosts.converge(checksum=wanted)["changed"]


def test_a_peer_that_lies_in_its_manifest_feeds_nothing(hosts: Hosts, tmp_path: Path) -> None:
    """The digest of what it sends stands in its manifest beside the sum that was asked for."""
    wanted = f"sha512:{hashlib.sha512(disk(tmp_path)).hexdigest()}"
    hosts.offers(disk(tmp_path, "-o", "cluster_size=4096"), checksum=wanted)
    with pytest.raises(
        Failed,
        match=r"has sha512 [0-9a-f]{128}, not .*: it was damaged there or in transit, or it is not what that host reports",
    ):
        hosts.converge(checksum=wanted)
    assert hosts.untouched()


def test_what_was_converted_there_is_taken_only_by_the_sum_of_its_bytes(hosts: Hosts, tmp_path: Path) -> None:
    wanted = f"sha256:{'a' * 64}"
    digest = hosts.offers(disk(tmp_path), checksum=wanted, as_published=False)
    for check_mode in (True, False):
        with pytest.raises(
            Unverified,
            match=r"it was unpacked or converted there, so its bytes cannot be compared with sha256:a{64}; import",
        ):
            hosts.converge(checksum=wanted, check_mode=check_mode)
    assert hosts.untouched()
    result = hosts.converge(checksum=f"sha256:{digest}")
    assert (result["content"], result["verified"]) == (f"tiny.{digest[:12]}.qcow2", True)


@pytest.mark.parametrize("as_published", [True, False])
def test_without_a_checksum_it_is_the_word_of_the_peer_and_said_so(
    hosts: Hosts, tmp_path: Path, as_published: bool
) -> None:
    """It is named for its own bytes, never for a source that nobody here has seen."""
    body = disk(tmp_path)
    digest = hashlib.sha256(body).hexdigest()
    hosts.offers(body, **({} if as_published else {"checksum": f"sha256:{'a' * 64}", "as_published": False}))
    result = hosts.converge()
    assert (result["content"], result["checksum"], result["verified"]) == (
        f"tiny.{digest[:12]}.qcow2",
        f"sha256:{digest}",
        False,
    )
    assert ["NOT verified: only qemu+tls://hyper1/system vouches for it" in text for text in result["warnings"]] == [
        True
    ]
    assert "NOT verified (only qemu+tls://hyper1/system vouches for it)" in result["steps"][0]


def test_what_a_peer_sends_is_inspected_although_its_sum_is_right(hosts: Hosts, tmp_path: Path) -> None:
    body = disk(tmp_path, "-u", "-b", "/etc/shadow", "-F", "raw")
    digest = hosts.offers(body)
    with pytest.raises(Refused, match=r"it refers to another file \(/etc/shadow\)"):
        hosts.converge(checksum=f"sha256:{digest}")
    digest = hosts.offers(bytes(4096))
    with pytest.raises(Refused, match="its name says qcow2, but its first bytes say raw"):
        hosts.converge(checksum=f"sha256:{digest}")
    digest = hosts.offers(disk(tmp_path))
    with pytest.raises(Refused, match="larger than max_size"):
        hosts.converge(checksum=f"sha256:{digest}", max_size="512KiB")
    assert hosts.untouched()


def test_no_word_of_a_peer_is_kept(hosts: Hosts, tmp_path: Path) -> None:
    body = disk(tmp_path)
    digest = hosts.offers(body, source="https://u:S3CRET@h/\x1b[31m", fetched="\x9bnow", more={"a": "S3CRET"}, inode=7)
    hosts.converge(checksum=f"sha256:{digest}")
    kept = (hosts.pool / ".tiny.qcow2.json").read_text()
    assert "S3CRET" not in kept and "u001b" not in kept and "u009b" not in kept
    assert json.loads(kept)["source"] == "qemu+tls://hyper1/system"


LIES: list[dict[str, t.Any]] = [
    {"bytes": "12"}, {"bytes": -1}, {"bytes": True}, {"sha256": "../../etc"}, {"sha256": None}, {"checksum": "none"}, {"checksum": 7},
    {"checksum": "https://example.org/SUMS"}, {"content": "../tiny.0123456789ab.qcow2"}, {"content": "/etc/shadow"}, {"content": 1},
    {"content": "other.0123456789ab.qcow2"}, {"inode": []},
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_manifest_that_is_none_is_refused(hosts: Hosts, tmp_path: Path, lie: dict[str, t.Any]) -> None:
    body = disk(tmp_path)
    digest = hosts.offers(body)
    for name in (f"tiny.{digest[:12]}.qcow2", "tiny.qcow2"):
        path = hosts.peer / f".{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **lie}))
    wishes: list[dict[str, t.Any]] = [{}, {"checksum": f"sha256:{digest}"}]
    for output in wishes:
        with pytest.raises(VirtError, match=r"cannot read the manifest of|refusing image tiny\.qcow2 from|contains no"):
            hosts.converge(**output)
    assert hosts.untouched()


def test_a_peer_without_it_is_told(hosts: Hosts) -> None:
    with pytest.raises(NotFound, match=r"its pool default contains no tiny\.qcow2 imported by virt_image"):
        hosts.converge()


def test_twelve_digits_make_no_image(hosts: Hosts, tmp_path: Path) -> None:
    """A content of the wanted name that was made from another source."""
    digest = hosts.offers(disk(tmp_path))
    hosts.converge(checksum=f"sha256:{digest}")
    wanted = f"sha256:{digest[:12]}{'0' * 52}"
    for check_mode in (True, False):
        with pytest.raises(Refused, match="which begins with the same digits; remove it"):
            hosts.converge(checksum=wanted, check_mode=check_mode)


def test_a_content_without_manifest_is_recognised_by_its_bytes_alone(hosts: Hosts, tmp_path: Path) -> None:
    body = disk(tmp_path)
    digest = hosts.offers(body)
    content = f"tiny.{digest[:12]}.qcow2"
    output: dict[str, t.Any] = {"checksum": f"sha256:{digest}", "current": False}
    (hosts.pool / content).write_bytes(body)
    assert hosts.converge(**output)["changed"] is False
    kept = read_manifest((hosts.pool / f".{content}.json").read_text(), "")
    assert (kept.source, kept.sha256) == ("qemu+tls://hyper1/system", digest)
    (hosts.pool / f".{content}.json").unlink()
    altered = body[:-1] + b"!"
    (hosts.pool / content).write_bytes(altered)
    # its manifest says that of the altered one
    hosts.offers(body, sha256=hashlib.sha256(altered).hexdigest(), bytes=len(altered))
    for check_mode in (True, False):
        with pytest.raises(Unverified, match="has other content, and this collection did not import it"):
            hosts.converge(check_mode=check_mode, **output)
    assert (hosts.pool / content).read_bytes() == altered


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (libvirt.VIR_ERR_SYSTEM_ERROR, "End of file while reading data: Input/output error"),
        (libvirt.VIR_ERR_INTERNAL_ERROR, "internal error: client socket is closed"),
        (libvirt.VIR_ERR_SYSTEM_ERROR, "Cannot write data: Broken pipe"),
    ],
)
def test_a_daemon_that_ended_is_not_told_as_a_broken_file(code: int, text: str) -> None:
    error = libvirt.libvirtError(text)
    error.err = (code, libvirt.VIR_FROM_RPC, text, 2, text, None, None, -1, -1)
    told = r"cannot read guest web1: .*; its libvirt daemon was restarted or has crashed .*run again"
    with pytest.raises(Failed, match=told), explained("read", "guest web1"):
        raise error


def test_a_job_that_libvirt_never_ends_is_told_with_what_ends_it() -> None:
    """Seen with libvirt 9.0: a guest was shut down in the moment in which its migration began."""
    held = "cannot acquire state change lock (held by monitor=remoteDispatchDomainMigratePerform3Params)"
    error = libvirt.libvirtError(held)
    error.err = (libvirt.VIR_ERR_OPERATION_TIMEOUT, libvirt.VIR_FROM_QEMU, held, 2, held, None, None, -1, -1)
    told = r"cannot set metadata of web1: .*; if nobody migrates it, restart the libvirt daemon of that host"
    with pytest.raises(Failed, match=told), explained("set metadata of", "web1"):
        raise error
