"""An archive with one disk becomes that disk; whatever else it contains reaches nothing on the host."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._image import run_image
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
MIB = 1024**2


class Host:
    """A pool, and a directory in which archives are made."""

    def __init__(self, root: Path, connection: t.Any) -> None:
        self.pool, self.sources, self.connection = root / "pool", root / "sources", connection

    def made(self, name: str, command: str) -> Path:
        """What a shell makes of the files there."""
        subprocess.run(command.format(name), shell=True, check=True, cwd=self.sources)
        return self.sources / name

    def fetch(self, source: Path, **options: t.Any) -> dict[str, t.Any]:
        """Import it as a raw image, so that bytes can be compared."""
        params = {name: option.get("default") for name, option in run_image.OPTIONS.items()}
        params.update(name="new.raw", src=str(source), remote_src=True, checksum="none", reserve="0")
        params.update(options)
        world = run_image.World(t.cast(t.Any, None), t.cast(t.Any, None))
        return run_image.converge(self.connection, params, Gate(check_mode=False), world)

    @property
    def files(self) -> list[str]:
        """All that is in the pool, hidden or not."""
        return sorted(str(path.relative_to(self.pool)) for path in self.pool.rglob("*") if path.name != "new.raw")


@pytest.fixture
def host(tmp_path: Path) -> t.Iterator[Host]:
    for name in ("pool", "sources"):
        (tmp_path / name).mkdir()
    (tmp_path / "node.xml").write_text(NODE.format(tmp_path / "pool"))
    with opened(f"test://{tmp_path / 'node.xml'}") as connection:
        yield Host(tmp_path, connection)


@pytest.fixture
def disk(host: Host) -> bytes:
    """A disk with a hole, and its files: raw, in other formats, and what a box contains beside it."""
    content = random.Random(1).randbytes(MIB) + bytes(3 * MIB) + random.Random(2).randbytes(MIB)
    raw = host.sources / "disk.raw"
    raw.write_bytes(content)
    with raw.open("r+b") as stream:
        stream.truncate(8 * MIB)
    for form, name in (("qcow2", "box.img"), ("vmdk", "box-disk001.vmdk")):
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", form, raw, host.sources / name], check=True)
    subprocess.run(["fallocate", "-d", raw], check=True)
    (host.sources / "metadata.json").write_text('{"provider": "libvirt", "format": "qcow2", "virtual_size": 1}')
    (host.sources / "Vagrantfile").write_text("Vagrant.configure('2') {}\n")
    return raw.read_bytes()


ARCHIVES = {
    "debian.tar": "tar -cf {0} disk.raw",
    "debian.tar.xz": "tar -cJf {0} disk.raw",
    "debian.tar.zst": "tar -c disk.raw | zstd -q -o {0}",
    "debian.tar.bz2": "tar -cjf {0} ./disk.raw",
    "debian.tgz": "tar -czf {0} disk.raw",
    "gce.tar.gz": "tar --format=oldgnu -Sczf {0} disk.raw",
    "sparse-gnu.tar": "tar --format=gnu -Scf {0} disk.raw",
    "sparse-posix.tar": "tar --format=posix -Scf {0} disk.raw",
    "sparse-0.1.tar": "tar --format=posix --sparse-version=0.1 -Scf {0} disk.raw",
    "old.tar": "tar --format=v7 -cf {0} disk.raw",
    "web.box": "tar -czf {0} ./metadata.json ./Vagrantfile ./box.img",
    "plain.box": "tar -cf {0} box.img metadata.json",
    "packed.box": "tar -cJf {0} metadata.json box.img",
    "appliance.ova": "tar -cf {0} metadata.json box-disk001.vmdk",
    "deep.tar": "mkdir -p a/b && cp disk.raw a/b && tar -cf {0} a",
    "mac.tar": "cp metadata.json ._disk.raw && tar -cf {0} ._disk.raw disk.raw",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_disk_in_an_archive_is_imported(host: Host, disk: bytes, name: str) -> None:
    if ".zst" in name and shutil.which("zstd") is None:
        pytest.skip("no zstd to pack with")
    result = host.fetch(host.made(name, ARCHIVES[name]))
    found = host.pool / "new.raw"
    assert result["changed"] and found.read_bytes() == disk
    assert found.stat().st_blocks * 512 < 4 * MIB, "zeros became holes"
    assert found.stat().st_mode & 0o777 == 0o444
    assert host.files == sorted([result["content"], f".{result['content']}.json", ".new.raw.json"])
    assert not host.fetch(host.sources / name)["changed"]


def test_the_checksum_is_that_of_the_archive(host: Host, disk: bytes) -> None:
    source = host.made("debian.tar.xz", ARCHIVES["debian.tar.xz"])
    digest = subprocess.run(["sha256sum", source], check=True, capture_output=True, text=True).stdout.split()[0]
    with pytest.raises(Failed, match="the file was changed or damaged"):
        host.fetch(source, checksum="sha256:" + "0" * 64)
    assert host.files == []
    assert host.fetch(source, checksum=f"sha256:{digest}")["content"] == f"new.{digest[:12]}.raw"
    assert not host.fetch(source, checksum=f"sha256:{digest}")["changed"]
    assert (host.pool / "new.raw").read_bytes() == disk


REFUSED = {
    "two.tar": (
        "cp disk.raw b.raw && tar -cf {0} disk.raw b.raw",
        "contains 2 disks, .* it contains disk.raw, b.raw; ",
    ),
    "none.box": (
        "tar -czf {0} metadata.json Vagrantfile",
        "contains no disks, .* it contains metadata.json, Vagrantfile",
    ),
    "empty.tar": ("tar -cf {0} -T /dev/null", "contains no disks, .* it contains nothing"),
    "link.tar": ("ln -s /etc/shadow evil && tar -cf {0} disk.raw evil", "contains the symbolic link evil, "),
    "linked.tar": ("ln -s /etc/shadow evil.raw && tar -cf {0} evil.raw", "contains the symbolic link evil.raw, "),
    "hard.tar": ("ln disk.raw same.raw && tar -cf {0} disk.raw same.raw", "contains the hard link same.raw, "),
    "pipe.tar": ("mkfifo pipe && tar -cf {0} pipe disk.raw", "contains the special file pipe, "),
    "many.tar": ("for n in $(seq 30); do touch f$n; done; tar -cf {0} f*", "contains no disks, .* and 20 more; "),
    "escape.tar": ("touch \"$(printf 'a\\033[2Jb')\" && tar -cf {0} a*", r"it contains a\\x1b\[2Jb; "),
    "page.box": ("echo '<!DOCTYPE html><html><body>Not found</body></html>' > {0}", "no disk, but text"),
    "inner.tar": ("tar -cf disk.img metadata.json && tar -cf {0} disk.img", "disk.img is no disk, but a tar archive"),
    "leaning.box": (
        "qemu-img create -q -f qcow2 -F raw -b /etc/passwd a.qcow2 1M && tar -cf {0} a.qcow2",
        r"it refers to another file \(/etc/passwd\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_archive_that_is_more_than_one_disk_is_refused(host: Host, disk: bytes, name: str) -> None:
    command, reason = REFUSED[name]
    source = host.made(name, command)
    with pytest.raises(Refused, match=rf"refusing image new\.raw: .*{reason}"):
        host.fetch(source)
    assert host.files == []


@pytest.mark.parametrize("name", ["/etc/corral-evil.raw", "../../corral-evil.raw", "a/../../corral-evil.raw"])
def test_no_path_in_an_archive_is_one_on_the_host(host: Host, disk: bytes, name: str) -> None:
    source = host.sources / "evil.tar"
    with tarfile.open(source, "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(disk)
        archive.addfile(member, io.BytesIO(disk))
    host.fetch(source)
    assert (host.pool / "new.raw").read_bytes() == disk
    assert not Path("/etc/corral-evil.raw").exists() and not list(host.pool.parent.rglob("corral-evil*"))


@pytest.mark.parametrize("beside", ["disk.raw", "notes.txt"])
def test_what_an_archive_declares_is_held_against_the_limit(host: Host, beside: str) -> None:
    """A few bytes can declare any size, in a hole or not."""
    source = host.sources / "bomb.tar"
    with tarfile.open(source, "w") as archive:
        member = tarfile.TarInfo(beside)
        member.size = 1024**4
        archive.addfile(member)
    with pytest.raises(Refused, match=r"refusing image new\.raw: it is larger than max_size, 256 GiB"):
        host.fetch(source)
    subprocess.run(["truncate", "-s", "300G", host.sources / "hole.raw"], check=True)
    with pytest.raises(Refused, match="it is larger than max_size, 256 GiB"):
        host.fetch(host.made("hole.tar", "tar -Scf {0} hole.raw"))
    (host.sources / "hole.raw").unlink()
    assert host.files == []


def header_of(size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo("x")
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME], ids=["x", "g", "L"])
def test_headers_of_an_archive_do_not_fill_the_memory(host: Host, kind: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept in memory, and may be of any size where they are compressed."""
    plain = host.sources / "bomb"
    plain.write_bytes(header_of(64 * MIB, kind))
    subprocess.run(["truncate", "-s", "80M", plain], check=True)
    with pytest.raises(Failed, match=r"cannot unpack .* as tar\.gz: its headers, or its end, are longer"):
        host.fetch(host.made("bomb.tar.gz", "gzip -c bomb > {0}"))
    assert not [name for name in host.files if name.endswith("unpacked")]


def test_a_crowd_of_files_is_refused(host: Host) -> None:
    source = host.made("crowd.tar", "mkdir c && (cd c && seq 1100 | xargs touch) && tar -cf {0} c")
    with pytest.raises(Failed, match="it contains more than 1000 files"):
        host.fetch(source)


@pytest.mark.parametrize("name", ["debian.tar", "debian.tar.xz", "debian.tgz", "debian.tar.bz2", "debian.tar.zst"])
def test_a_truncated_archive_is_refused_and_nothing_of_it_stays(host: Host, disk: bytes, name: str) -> None:
    if ".zst" in name and shutil.which("zstd") is None:
        pytest.skip("no zstd to pack with")
    source = host.made(name, ARCHIVES[name])
    os.truncate(source, source.stat().st_size // 2)
    with pytest.raises(Failed, match=r"cannot unpack .* as tar"):
        host.fetch(source)
    assert not [file for file in host.files if file.endswith("unpacked")] and not (host.pool / "new.raw").exists()


def test_what_is_no_archive_is_told(host: Host) -> None:
    (host.sources / "noise.tar").write_bytes(random.Random(3).randbytes(MIB))
    with pytest.raises(Failed, match=r"cannot unpack .* as tar: .*; the file is damaged, or packed in another way"):
        host.fetch(host.sources / "noise.tar")


def test_a_disk_with_the_name_of_an_archive_is_a_disk(host: Host, disk: bytes) -> None:
    shutil.copy(host.sources / "box.img", host.sources / "web.box")
    host.fetch(host.sources / "web.box")
    assert (host.pool / "new.raw").read_bytes() == disk
