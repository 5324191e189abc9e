"""What a guest or a publisher wrote into the first bytes of a file makes no host open another file."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import typing as t
from pathlib import Path

import libvirt
import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.gate import Gate
from ansible_collections.corral.virt.plugins.module_utils._domain import xml_sources
from ansible_collections.corral.virt.plugins.module_utils._guest import run_guest, run_guest_options
from ansible_collections.corral.virt.plugins.module_utils._image import run_image
from ansible_collections.corral.virt.plugins.module_utils._image.model_image import Image, ImageSpec, Source
from ansible_collections.corral.virt.plugins.module_utils._image.run_fetch import Fetching
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_disk_move_stages import as_defined
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrating_disk import (
    VolumeFile,
)
from ansible_collections.corral.virt.plugins.module_utils._storage import (
    files_header,
    plan_image_trust,
    run_clone,
    run_file_users,
    run_owned_disks,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.model_header import Header
from ansible_collections.corral.virt.plugins.module_utils._system import loop_devices
from ansible_collections.corral.virt.plugins.module_utils._system.model_free_space import Bounds
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until

NODE = "<node><pool type='dir'><name>default</name><target><path>{}</path></target></pool></node>"
GUEST = """<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='{form}'/><source file='{path}'/><target dev='vda' bus='virtio'/></disk>
</devices></domain>"""
VOLUME = "<volume><name>{}</name><capacity unit='M'>1</capacity><target><format type='{}'/></target></volume>"


@pytest.fixture(autouse=True)
def impatient() -> t.Iterator[None]:
    """Nobody waits for a pipe."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError("it waits for a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    (tmp_path / "pool").mkdir()
    return tmp_path / "pool"


@pytest.fixture
def connection(tmp_path: Path, pool: Path) -> t.Iterator[t.Any]:
    (tmp_path / "node.xml").write_text(NODE.format(pool))
    with opened(f"test://{tmp_path / 'node.xml'}", events=True) as found:
        yield found


@pytest.fixture
def nbd() -> t.Iterator[socket.socket]:
    """A listener; whoever connects is noticed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        yield listener


def qcow2(path: Path, backing: str = "", data: str = "") -> Path:
    """A file whose first bytes are those of a qcow2 that names others."""
    made = path.with_suffix(".made")
    more = ["-u", "-b", backing, "-F", "raw"] if backing else ["-o", f"data_file={data}"] if data else []
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *more, str(made), "1M"], check=True)
    made.rename(path)
    return path


def cloned(connection: t.Any, *, check_mode: bool = False, **output: t.Any) -> dict[str, t.Any]:
    known = {**run_image.OPTIONS, **run_clone.OPTIONS}
    params = {**{name: option.get("default") for name, option in known.items()}, "name": "disk.qcow2", **output}
    return run_clone.converge(connection, params, Gate(check_mode=check_mode), lambda *_phase: None)


def fetched(connection: t.Any, source: Path) -> dict[str, t.Any]:
    params = {name: option.get("default") for name, option in run_image.OPTIONS.items()}
    params.update(name="new.qcow2", src=str(source), remote_src=True, checksum="none")
    world = run_image.World(t.cast(t.Any, None), t.cast(t.Any, None))
    return run_image.converge(connection, params, Gate(check_mode=False), world)


@pytest.mark.parametrize(
    ("name", "form"), [("evil.img", "qcow2"), ("evil.raw", "qcow2"), ("evil.qcow2", "raw"), ("evil", "raw")]
)
@pytest.mark.parametrize("way", ["copy", "overlay"])
def test_virt_domain_takes_no_format_from_what_a_guest_wrote(connection: t.Any, name: str, form: str, way: str) -> None:
    """libvirt reads the format of a volume from its first bytes, too."""
    connection.storagePoolLookupByName("default").createXML(VOLUME.format(name, form))
    wish = {"name": "web2", "vcpus": 1, "memory": 64, "disks": [{"name": "system", "image": name, "clone": way}]}
    with pytest.raises(Refused, match=r"its name says|its name does not show"):
        run_guest.converge(connection, run_guest_options.wanted(wish), Gate(check_mode=False))
    assert connection.listAllDomains() == []


@pytest.mark.parametrize("below", ["/etc/shadow", "fifo", "nbd"])
def test_virt_domain_makes_no_guest_from_an_image_that_reads_the_host(
    connection: t.Any, pool: Path, below: str, nbd: socket.socket
) -> None:
    connection.storagePoolLookupByName("default").createXML(VOLUME.format("evil.qcow2", "qcow2"))
    qcow2(pool / "evil.qcow2", named(pool, below, nbd))
    for way in ("copy", "overlay"):
        wish = {
            "name": "web2",
            "vcpus": 1,
            "memory": 64,
            "disks": [{"name": "system", "image": "evil.qcow2", "clone": way}],
        }
        with pytest.raises(Refused, match=r"its backing file is .*, which is not an image from virt_image"):
            run_guest.converge(connection, run_guest_options.wanted(wish), Gate(check_mode=False))
    untouched(nbd)


def named(pool: Path, below: str, nbd: socket.socket) -> str:
    """What the image names."""
    if below == "fifo" and not (pool / "fifo").exists():
        os.mkfifo(pool / "fifo")
    return {"fifo": str(pool / "fifo"), "nbd": f"nbd://127.0.0.1:{nbd.getsockname()[1]}/x"}.get(below, below)


def untouched(nbd: socket.socket) -> None:
    with pytest.raises(TimeoutError):
        nbd.accept()


@pytest.mark.parametrize("below", ["/etc/shadow", "fifo", "nbd"])
@pytest.mark.parametrize("way", ["copy", "overlay"])
def test_virt_image_makes_no_disk_from_an_image_that_reads_the_host(
    connection: t.Any, pool: Path, below: str, way: str, nbd: socket.socket
) -> None:
    qcow2(pool / "evil.qcow2", named(pool, below, nbd))
    with pytest.raises(Refused, match=r"its backing file is .*, which is not an image from virt_image"):
        cloned(connection, image="evil.qcow2", clone=way)
    untouched(nbd)


def test_virt_image_makes_no_disk_from_data_in_another_file(connection: t.Any, pool: Path) -> None:
    qcow2(pool / "evil.qcow2", data=str(pool / "elsewhere"))
    (pool / "elsewhere").unlink()
    os.mkfifo(pool / "elsewhere")
    with pytest.raises(Refused, match="it keeps its data in another file"):
        cloned(connection, image="evil.qcow2", clone="copy")


@pytest.mark.parametrize("by", ["path", "volume"])
def test_a_disk_that_a_guest_has_as_raw_is_not_read_as_qcow2(connection: t.Any, pool: Path, by: str) -> None:
    """Whatever its name says: the guest wrote the header."""
    qcow2(pool / "evil.qcow2", "/etc/shadow")
    guest = GUEST.format(form="raw", path=pool / "evil.qcow2")
    if by == "volume":
        connection.storagePoolLookupByName("default").createXML(VOLUME.format("evil.qcow2", "raw"))
        guest = guest.replace("<disk type='file'", "<disk type='volume'")
        guest = guest.replace(f"file='{pool}/evil.qcow2'", "pool='default' volume='evil.qcow2'")
    connection.defineXML(guest)
    wishes: list[dict[str, t.Any]] = [{"state": "flattened"}, {"size": "1GiB"}]
    for output in wishes:
        with pytest.raises(Refused, match=r"cannot convert disk evil.qcow2 to qcow2: it is raw"):
            cloned(connection, name="evil.qcow2", **output)
    qcow2(pool / "evil.qcow2")
    with pytest.raises(Refused, match="a guest uses it as a raw disk"):
        cloned(connection, image="evil.qcow2", clone="copy")


def test_a_disk_that_no_guest_has_writes_to_no_other_file(connection: t.Any, pool: Path, tmp_path: Path) -> None:
    """It names a file that holds its data; a guest may have written that name."""
    qcow2(pool / "evil.qcow2", data=str(tmp_path / "data"))
    before = (tmp_path / "data").stat().st_size
    with pytest.raises(Refused, match=r"no guest on this host uses it, and only its own first bytes say"):
        cloned(connection, name="evil.qcow2", size="1GiB")
    assert (tmp_path / "data").stat().st_size == before


def test_an_image_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"cannot read image .*gone\.qcow2: No such file or directory"):
        files_header.read(str(tmp_path / "gone.qcow2"))


WORK: list[dict[str, t.Any]] = [
    {"state": "flattened"}, {"state": "rebased", "image": "good.qcow2"}, {"size": "1GiB"}, {"size": "512KiB", "allow_shrink": True},
]  # fmt: skip


@pytest.mark.parametrize("below", ["/etc/shadow", "fifo", "nbd", "json:{}", "other.qcow2", "between.qcow2"])
@pytest.mark.parametrize("said", WORK, ids=str)
@pytest.mark.parametrize("check_mode", [True, False])
def test_a_disk_that_no_guest_has_reads_nothing_that_only_itself_names(
    connection: t.Any, pool: Path, below: str, said: dict[str, t.Any], check_mode: bool, nbd: socket.socket
) -> None:
    """A guest may have had it as a raw disk, and is gone."""
    qcow2(pool / "good.qcow2")
    qcow2(pool / "other.qcow2")
    qcow2(pool / "between.qcow2", "debian.0123456789ab.qcow2")
    qcow2(pool / "debian.0123456789ab.qcow2")
    (pool / ".debian.0123456789ab.qcow2.json").write_text("{}")
    path = qcow2(pool / "evil.qcow2", named(pool, below, nbd))
    before = path.read_bytes()
    with pytest.raises(
        Refused, match=r"no guest on this host uses it, and only its own first bytes say that its backing file is"
    ):
        cloned(connection, check_mode=check_mode, name="evil.qcow2", **said)
    untouched(nbd)
    assert path.read_bytes() == before


@pytest.mark.parametrize("said", WORK, ids=str)
def test_a_disk_on_what_virt_image_brought_is_worked_on_without_a_guest(
    connection: t.Any, pool: Path, said: dict[str, t.Any]
) -> None:
    qcow2(pool / "good.qcow2")
    qcow2(pool / "debian.0123456789ab.qcow2")
    (pool / ".debian.0123456789ab.qcow2.json").write_text("{}")
    qcow2(pool / "web1.qcow2", "debian.0123456789ab.qcow2")
    below = ["-b", "debian.0123456789ab.qcow2", "-F", "qcow2"]
    subprocess.run(["qemu-img", "rebase", "-u", "-f", "qcow2", *below, pool / "web1.qcow2"], check=True)
    assert cloned(connection, name="web1.qcow2", **said)["changed"]


@pytest.mark.parametrize("below", ["/etc/shadow", "fifo", "nbd"])
@pytest.mark.parametrize("form", ["raw", "qcow2"])
def test_who_uses_an_image_is_found_without_opening_what_a_guest_names(
    connection: t.Any, pool: Path, below: str, form: str, nbd: socket.socket
) -> None:
    path = qcow2(pool / "evil.img", named(pool, below, nbd))
    connection.defineXML(GUEST.format(form=form, path=path))
    assert run_file_users.users(connection).inside(str(pool)).get("evil.img") == "guest web1"
    untouched(nbd)


@pytest.mark.parametrize(
    "below",
    [
        "pool/base.qcow2",
        'json:{{"driver": "qcow2", "file": {{"driver": "file", "filename": "{}"}}}}',
        'json:{{"file.filename":"{}"}}',
        'json:{{"driver": "file", "filename": "/\\u002f{}"}}',
    ],
)
def test_an_overlay_that_libvirt_does_not_list_holds_its_base(
    connection: t.Any, pool: Path, tmp_path: Path, below: str
) -> None:
    qcow2(pool / "base.qcow2")
    overlay = qcow2(tmp_path / "web1.qcow2", below.format(pool / "base.qcow2"))
    connection.defineXML(GUEST.format(form="qcow2", path=overlay))
    assert run_file_users.users(connection).inside(str(pool)) == {"base.qcow2": "guest web1"}


@pytest.mark.parametrize(
    ("place", "xml"),
    [
        ("<os><type>hvm</type>", "<os><type>hvm</type><kernel>{}</kernel>"),
        ("<os><type>hvm</type>", "<os><type>hvm</type><initrd>{}</initrd>"),
        ("<devices>", "<devices><memory model='nvdimm'><source><path>{}</path></source><target/></memory>"),
    ],
)
def test_files_beside_the_disks_are_in_use(place: str, xml: str, tmp_path: Path) -> None:
    text = "<domain><os><type>hvm</type></os><devices></devices></domain>"
    assert xml_sources.files(text) == []
    assert xml_sources.files(text.replace(place, xml.format(tmp_path / "a"))) == [str(tmp_path / "a")]


def test_a_kernel_is_in_use(connection: t.Any, pool: Path) -> None:
    guest = GUEST.format(form="raw", path=pool / "web1.img")
    connection.defineXML(guest.replace("</type>", f"</type><kernel>{pool}/vmlinuz</kernel>", 1))
    assert run_file_users.users(connection).inside(str(pool))["vmlinuz"] == "guest web1"


@pytest.mark.parametrize(("form", "believed"), [("raw", False), ("qcow2", True)])
def test_what_a_guest_writes_into_a_raw_disk_holds_nobodys_file(
    connection: t.Any, pool: Path, form: str, believed: bool
) -> None:
    """libvirt takes its first bytes for a header, and lists the file that they name as what the volume stands on."""
    backing = f"<backingStore><path>{pool}/base.qcow2</path><format type='qcow2'/></backingStore>"
    connection.storagePoolLookupByName("default").createXML(
        f"<volume><name>web1.img</name><capacity>512</capacity><target><format type='qcow2'/></target>{backing}</volume>"
    )
    connection.defineXML(GUEST.format(form=form, path=pool / "web1.img"))
    users = run_file_users.users(connection)
    assert ("base.qcow2" in users.inside(str(pool))) is believed
    assert (users.based_on(f"{pool}/base.qcow2") is not None) is believed
    other = GUEST.format(form="qcow2", path=pool / "web1.img").replace("web1<", "web2<")
    connection.defineXML(other)
    assert "base.qcow2" in run_file_users.users(connection).inside(str(pool)), "somebody reads it as an image"


def test_a_file_behind_a_loop_device_is_in_use(
    connection: t.Any, pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "sys/block/loop7/loop/backing_file"
    told.parent.mkdir(parents=True)
    told.write_text(f"{pool}/web1.img\n")
    (pool / "web1.img").touch()
    place = str(tmp_path / "sys/block/loop*/loop/backing_file")
    monkeypatch.setattr(loop_devices, "backing_files", functools.partial(loop_devices.backing_files, place))
    monkeypatch.setattr(run_file_users, "is_here", lambda _uri: True)
    assert run_file_users.users(connection).of(f"{pool}/web1.img") == "/dev/loop7"


def test_a_relative_base_is_beside_the_link_that_a_guest_names(connection: t.Any, pool: Path, tmp_path: Path) -> None:
    qcow2(pool / "base.qcow2")
    overlay = qcow2(tmp_path / "web1.qcow2", "base.qcow2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/web1.qcow2").symlink_to(overlay)
    (tmp_path / "links/base.qcow2").symlink_to(pool / "base.qcow2")
    connection.defineXML(GUEST.format(form="qcow2", path=tmp_path / "links/web1.qcow2"))
    assert run_file_users.users(connection).inside(str(pool)) == {"base.qcow2": "guest web1"}


def test_a_directory_is_one_by_whatever_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: stat(str(path).replace("/mounted", "/pool"), **how))
    (tmp_path / "pool").mkdir()
    users = run_file_users.Users(here=True)
    users.add(f"{tmp_path}/mounted/a.qcow2", "guest web1")
    assert users.of(f"{tmp_path}/pool/a.qcow2") == "guest web1"
    assert users.inside(f"{tmp_path}/pool") == {"a.qcow2": "guest web1"}


def test_disks_of_a_managed_save_image_are_in_use(
    connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those that the guest ran with, which its definition need not have."""
    saved = GUEST.format(form="qcow2", path=qcow2(pool / "attached.qcow2"))
    connection.defineXML(GUEST.format(form="qcow2", path=qcow2(pool / "web1.qcow2")))
    monkeypatch.setattr(libvirt.virDomain, "hasManagedSaveImage", lambda _domain: 1)
    monkeypatch.setattr(libvirt.virDomain, "managedSaveGetXMLDesc", lambda _domain: saved)
    assert run_file_users.users(connection).inside(str(pool)) == dict.fromkeys(
        ["attached.qcow2", "web1.qcow2"], "guest web1"
    )


def test_the_command_that_discards_a_broken_managed_save_can_be_pasted(
    connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_domain: object) -> str:
        raise libvirt.libvirtError("failed to read qemu header")

    named = GUEST.format(form="qcow2", path=qcow2(pool / "web1.qcow2")).replace(">web1<", ">web 1<")
    connection.defineXML(named)
    monkeypatch.setattr(libvirt.virDomain, "hasManagedSaveImage", lambda _domain: 1)
    monkeypatch.setattr(libvirt.virDomain, "managedSaveGetXMLDesc", broken)
    with pytest.raises(Failed, match="discard it with `virsh managedsave-remove 'web 1'`"):
        run_file_users.users(connection)


SNAPSHOT = "<domainsnapshot><name>before</name><state>shutoff</state>{}{}</domainsnapshot>"


def test_disks_of_snapshots_are_in_use(connection: t.Any, pool: Path) -> None:
    """The guest goes back to them, though its definition no longer names them."""
    domain = connection.defineXML(GUEST.format(form="qcow2", path=qcow2(pool / "before.qcow2")))
    domain.snapshotCreateXML(SNAPSHOT.format("", ""))
    qcow2(pool / "now.qcow2")
    connection.defineXML(domain.XMLDesc().replace("before.qcow2", "now.qcow2"))
    users = {"before.qcow2": "snapshot before of guest web1", "now.qcow2": "guest web1"}
    assert run_file_users.users(connection).inside(str(pool)) == users
    assert not run_file_users.users(connection, but=domain.UUIDString()).inside(str(pool))


@pytest.mark.parametrize("gone", [True, False])
def test_a_snapshot_may_go_while_it_is_read(
    connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    domain = connection.defineXML(GUEST.format(form="qcow2", path=qcow2(pool / "web1.qcow2")))
    domain.snapshotCreateXML(SNAPSHOT.format("", ""))
    read = libvirt.virDomainSnapshot.getXMLDesc

    def document(snapshot: t.Any, flags: int = 0) -> str:
        if not gone:
            raise libvirt.libvirtError("broken")
        snapshot.delete()
        return str(read(snapshot, flags))

    monkeypatch.setattr(libvirt.virDomainSnapshot, "getXMLDesc", document)
    with contextlib.nullcontext() if gone else pytest.raises(Failed, match="cannot read the snapshots of guest web1"):
        assert run_file_users.users(connection).inside(str(pool)) == {"web1.qcow2": "guest web1"}


def test_files_that_a_snapshot_is_in() -> None:
    disks = "<disks><disk name='vda'><source file='/srv/overlay'/></disk><disk name='vdb' snapshot='no'/></disks>"
    xml = SNAPSHOT.format("<memory snapshot='external' file='/srv/ram'/>", disks)
    inactive = "<inactiveDomain><devices><disk><source file='/srv/a'/></disk></devices></inactiveDomain>"
    kept = xml_sources.of_snapshot(xml.replace("<disks>", f"{inactive}<disks>"))
    assert [xml_sources.sources(one, lambda *_volume: None) for one in kept] == [
        ["/srv/a"],
        ["/srv/overlay", "/srv/ram"],
    ]


def test_files_of_a_backup_job_are_in_use(connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup = """<domainbackup mode='pull'><disks><disk name='vda' type='file'><driver type='qcow2'/>
    <scratch file='{0}/scratch'/></disk><disk name='vdb' type='file'><target file='{0}/copy'/></disk></disks></domainbackup>"""
    connection.defineXML(GUEST.format(form="qcow2", path=qcow2(pool / "web1.qcow2"))).create()
    assert run_file_users.users(connection).inside(str(pool)) == {"web1.qcow2": "guest web1"}
    monkeypatch.setattr(libvirt.virDomain, "backupGetXMLDesc", lambda _domain: backup.format(pool))
    found = run_file_users.users(connection).inside(str(pool))
    assert found == {"web1.qcow2": "guest web1", **dict.fromkeys(["scratch", "copy"], "the backup of guest web1")}


@pytest.mark.parametrize("name", ["data.raw", "{}/data.raw"])
def test_a_file_with_the_data_of_an_image_is_in_use(connection: t.Any, pool: Path, tmp_path: Path, name: str) -> None:
    spread = f"data_file={tmp_path}/data.raw,data_file_raw=on"
    overlay = tmp_path / "web1.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", spread, overlay, "1M"], check=True)
    subprocess.run(
        ["qemu-img", "amend", "-q", "-f", "qcow2", "-o", f"data_file={name.format(tmp_path)}", overlay], check=True
    )
    assert files_header.data_files(str(overlay)) == [f"{tmp_path}/data.raw"]
    assert not files_header.data_files(str(tmp_path / "data.raw")) and not files_header.data_files(
        str(tmp_path / "none")
    )
    domain = connection.defineXML(GUEST.format(form="qcow2", path=overlay))
    assert run_file_users.users(connection).of(f"{tmp_path}/data.raw") == "guest web1"
    connection.defineXML(domain.XMLDesc().replace("type='qcow2'", "type='raw'"))
    assert run_file_users.users(connection).of(f"{tmp_path}/data.raw") is None, "a guest wrote it"


def test_a_volume_uses_the_file_with_its_data(connection: t.Any, pool: Path) -> None:
    spread = f"data_file={pool}/data.raw,data_file_raw=on"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", spread, pool / "a.qcow2", "1M"], check=True)
    kept = (pool / "a.qcow2").read_bytes()
    (pool / "a.qcow2").unlink()
    connection.storagePoolLookupByName("default").createXML(VOLUME.format("a.qcow2", "qcow2"))
    (pool / "a.qcow2").write_bytes(kept)
    assert run_file_users.users(connection).inside(str(pool)) == {"data.raw": f"{pool}/a.qcow2"}
    assert not run_file_users.users(connection, without=[f"{pool}/a.qcow2"]).inside(str(pool))


def test_a_file_is_one_by_whatever_name(connection: t.Any, pool: Path, tmp_path: Path) -> None:
    """One that is mounted over another name has the same number, as one with a second link has."""
    os.link(qcow2(pool / "web1.qcow2"), tmp_path / "mounted.qcow2")
    connection.defineXML(GUEST.format(form="qcow2", path=tmp_path / "mounted.qcow2"))
    assert run_file_users.users(connection).of(f"{pool}/web1.qcow2") == "guest web1"


@pytest.mark.parametrize(("ending", "form"), [("raw", "vmdk"), ("img", "vdi"), ("qcow2", "vdi")])
def test_a_foreign_format_is_converted_only_where_the_source_says_so(
    connection: t.Any, pool: Path, tmp_path: Path, ending: str, form: str
) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", form, str(tmp_path / f"source.{ending}"), "1M"], check=True)
    with pytest.raises(
        Refused, match=f"its first bytes say {form}, and the name of its source, source.{ending}, does not"
    ):
        fetched(connection, tmp_path / f"source.{ending}")
    assert not (pool / "new.qcow2").is_symlink()


ARCHIVERS = {
    "disk.tar.xz": "tar -cJf {0} disk",
    "web.box": "tar -czf {0} disk",
    "tar.img": "tar -cf {0} disk",
    "tar.raw.xz": "tar -cJf {0} disk",
    "page.tar": "echo '<!DOCTYPE html><html><body>Not found</body></html>' > {0}",
    "disk.zip": "python3 -m zipfile -c {0} disk",
    "disk.img": "gzip -c disk > {0}",
    "page.img": "echo '<!DOCTYPE html><html><body>Not found</body></html>' > {0}",
    "pointer.raw": "printf 'version https://git-lfs.github.com/spec/v1\\nsize 8\\n' > {0}",
    "error.img": """echo '{{"error": "no such file"}}' > {0}""",
    "disk.qcow2": "cp disk {0}",
    # It measures how fast it derives keys, for 10 ms, and gives up where a busy machine lets it measure nothing.
    "luks.raw": "until qemu-img create -q --object secret,id=s,data=abc -f luks -o key-secret=s,iter-time=10 {0} 8M; "
    "do :; done",
    "luks.qcow2": "until qemu-img create -q --object secret,id=s,data=abc -f qcow2 "
    "-o encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10 {0} 8M; do :; done",
    "short.qcow2": "qemu-img convert -O qcow2 disk {0} && truncate -s 300K {0}",
    "shorter.qcow2": "qemu-img convert -O qcow2 disk {0} && truncate -s 100K {0}",
    "corrupt.qcow2": r"qemu-img create -q -f qcow2 {0} 8M && "
    r"printf '\\002' | dd of={0} bs=1 seek=79 conv=notrunc status=none",
}


@pytest.mark.parametrize("name", ARCHIVERS)
def test_what_is_no_whole_disk_is_refused(connection: t.Any, pool: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "disk").write_bytes(bytes(range(256)) * 4096)
    subprocess.run(ARCHIVERS[name].format(name), shell=True, check=True, cwd=tmp_path)
    with pytest.raises(Refused, match=r"refusing image new\.qcow2: "):
        fetched(connection, tmp_path / name)
    assert not (pool / "new.qcow2").is_symlink()


def test_a_fixed_vhd_is_imported_without_its_footer(connection: t.Any, pool: Path, tmp_path: Path) -> None:
    (tmp_path / "d.raw").write_bytes(bytes(4096) + bytes(range(256)) * 4080)
    options = "subformat=fixed,force_size=on"
    source = tmp_path / "azure.vhd"
    subprocess.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "vpc", "-o", options, str(tmp_path / "d.raw"), str(source)],
        check=True,
    )
    fetched(connection, source)
    compared = [
        "qemu-img",
        "compare",
        "-s",
        "-f",
        "raw",
        "-F",
        "qcow2",
        str(tmp_path / "d.raw"),
        str(pool / "new.qcow2"),
    ]
    subprocess.run(compared, check=True)


def test_a_source_that_names_a_pipe_is_refused_without_opening_it(connection: t.Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "evil.vmdk").write_text(f'# Disk DescriptorFile\nversion=1\nRW 8 FLAT "{tmp_path / "fifo"}" 0\n')
    with pytest.raises(Refused, match=r"it refers to another file \(.*/fifo\)"):
        fetched(connection, tmp_path / "evil.vmdk")
    qcow2(tmp_path / "data.qcow2", data=str(tmp_path / "data"))
    (tmp_path / "data").unlink()
    os.mkfifo(tmp_path / "data")
    with pytest.raises(Refused, match="it refers to another file"):
        fetched(connection, tmp_path / "data.qcow2")


def test_a_raw_disk_moves_as_raw_whatever_it_holds() -> None:
    """Else its move makes an overlay on a file that the guest chose."""
    probed = VolumeFile("qcow2", 1024, 512, "/srv/tiny.0123456789ab.qcow2", "qcow2", physical_bytes=4096)
    assert as_defined(probed, raw=True) == VolumeFile("raw", 4096, 512, physical_bytes=4096)
    assert as_defined(probed, raw=False) == probed


@pytest.mark.parametrize("form", ["qcow2", "raw", "vmdk", "vdi", "vhdx", "vpc", "qed", "parallels"])
def test_the_first_bytes_tell_what_qemu_would_find(tmp_path: Path, form: str) -> None:
    subprocess.run(["qemu-img", "create", "-q", "-f", form, str(tmp_path / "a"), "1M"], check=True)
    assert files_header.read(str(tmp_path / "a")) == Header(form)


@pytest.mark.parametrize("name", ["/srv/a.img", "/srv/a.raw"])
@pytest.mark.parametrize("form", ["qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "parallels"])
def test_a_raw_file_with_another_header_becomes_no_base(name: str, form: str) -> None:
    with pytest.raises(Refused, match=f"its name says raw, but its first bytes, .*, say {form}"):
        plan_image_trust.base("make a disk from", name, Header(form))


@pytest.mark.parametrize("kind", ["leaning", "another format"])
def test_what_another_hypervisor_sends_is_inspected(pool: Path, kind: str) -> None:
    received = pool / "part"
    if kind == "leaning":
        qcow2(received, "/etc/shadow")
    else:
        received.write_bytes(bytes(4096))
    source = Source("origin", "qemu+tls://hyper1/system")
    output = ImageSpec("new.qcow2", Bounds("new.qcow2", 1024**3))
    work = Fetching(Image("new.qcow2", str(pool), "qcow2", source), output, t.cast(t.Any, None))
    with pytest.raises(
        Refused, match=r"refers to another file \(/etc/shadow\)|its name says qcow2, but its first bytes say raw"
    ):
        work._inspect(str(received))
    assert not received.exists()


def test_a_disk_that_qemu_has_open_is_seen(connection: t.Any, pool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """qemu-io holds the lock that a guest's QEMU holds."""
    monkeypatch.setattr(run_owned_disks, "is_here", lambda _uri: True)
    path = str(pool / "web1.qcow2")
    subprocess.run(["qemu-img", "create", "-qf", "qcow2", path, "1M"], check=True)
    assert not run_owned_disks.look(connection, [path])[path].opened
    with subprocess.Popen(["qemu-io", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as holder:
        until(lambda: run_owned_disks.look(connection, [path])[path].opened)
        holder.communicate()
    assert not run_owned_disks.look(connection, [path])[path].opened
    assert not run_owned_disks.look(connection, [f"{pool}/none"])[f"{pool}/none"].opened
