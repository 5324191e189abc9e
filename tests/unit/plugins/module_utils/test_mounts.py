"""`virt_mounts`: what is mounted, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._storage import files_mount, plan_mount
from ansible_collections.corral.virt.plugins.module_utils._storage.model_mount import (
    MARK,
    Luks,
    Mounted,
    MountSpec,
    UnitFile,
)
from ansible_collections.corral.virt.plugins.module_utils._system import dm_crypt
from ansible_collections.corral.virt.plugins.module_utils._xml import stdlib_reader

NFS = {"path": "/srv/nfs", "src": "nas:/export", "fstype": "nfs", "options": ["hard"]}
DISK = {"path": "/srv/fast disk", "src": "/dev/disk/by-id/a", "fstype": "ext4"}
VAULT: dict[str, t.Any] = {
    "path": "/srv/my-vault",
    "src": "/dev/disk/by-id/a",
    "fstype": "ext4",
    "build": True,
    "passphrase": "a secret",
}
IMAGE: dict[str, t.Any] = {**VAULT, "src": "/srv/nas/vault.img", "size": "1GiB"}
MAPPED = "/dev/mapper/corral-srv-my.2dvault"
LUKS = "crypto_LUKS"
GIB = 1024**3
ABSENT = {"path": "/srv/nfs", "state": "absent"}


@dataclasses.dataclass
class Host:
    """A host on which nothing is mounted, and one device is empty."""

    unit_text: str | None = None
    read_from: str = ""
    enabled: bool = False
    there: Mounted | None = None
    line: int | None = None
    names: list[str] | None = None
    kind: str | None = None
    held: str | None = None
    device_there: bool = True
    used_by: list[str] = dataclasses.field(default_factory=list)
    links: dict[str, str] = dataclasses.field(default_factory=dict)
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    below: list[str] = dataclasses.field(default_factory=list)
    held_by: list[str] = dataclasses.field(default_factory=list)
    header: Luks = dataclasses.field(default_factory=Luks)
    right: str = "a secret"
    free: int = 2 * GIB

    def unit(self, path: str) -> UnitFile:
        name = path[1:].replace("-", "\\x2d").replace("/", "-").replace(" ", "\\x20") + ".mount"
        return UnitFile(name, f"/etc/systemd/system/{name}", self.unit_text, self.read_from, self.enabled)

    def mounted(self, _path: str) -> Mounted | None:
        return self.there

    def fstab(self, _path: str) -> int | None:
        return self.line

    def real(self, path: str) -> str:
        return self.links.get(path, path)

    def entries(self, _path: str) -> list[str] | None:
        return self.names

    def device(self, src: str) -> str | None:
        return src if self.device_there else None

    def filesystem(self, device: str) -> str | None:
        return self.kinds.get(device, self.kind)

    def opened(self, _device: str) -> list[str]:
        return self.below

    def holders(self, _device: str) -> list[str]:
        return self.held_by

    def luks(self, _device: str) -> Luks:
        return self.header

    def is_opened_by(self, _device: str, passphrase: str) -> bool:
        return passphrase == self.right

    def free_bytes(self, _file: str) -> int:
        return self.free

    def content(self, _device: str) -> str | None:
        return self.held

    def users(self, _path: str) -> list[str]:
        return self.used_by


def steps(host: Host, *mounts: dict[str, t.Any]) -> list[str]:
    """What would be done."""
    return [str(step) for step in plan_mount.decide(plan_mount.specs(mounts), host).steps]


def text(mount: dict[str, t.Any]) -> str:
    """The unit of a mount."""
    made = plan_mount.decide(plan_mount.specs([mount]), Host(kind="ext4")).steps
    return next(step.text for step in made if isinstance(step, plan_mount.WriteUnit))


def refused(host: Host, *mounts: dict[str, t.Any]) -> str:
    """Why nothing is done."""
    with pytest.raises(Refused, match="cannot") as error:
        steps(host, *mounts)
    return str(error.value)


def test_a_share_is_mounted_now_and_at_each_start() -> None:
    assert steps(Host(), NFS) == [
        "make mount point /srv/nfs",
        "write /etc/systemd/system/srv-nfs.mount",
        "enable srv-nfs.mount",
        "mount nas:/export at /srv/nfs",
    ]
    unit = text(NFS)
    assert unit.startswith(MARK + "\n[Unit]\n") and "WantedBy=remote-fs.target\n" in unit
    assert "What=nas:/export\nWhere=/srv/nfs\nType=nfs\nOptions=hard,_netdev\nTimeoutSec=45\n" in unit


@pytest.mark.parametrize("source", ["nas:/export", "nas:/export/"])
def test_what_is_mounted_as_it_should_be_is_left(source: str) -> None:
    host = Host(text(NFS), enabled=True, there=Mounted(source, "nfs4"))
    assert steps(host, NFS) == []
    assert steps(Host(there=host.there), NFS) == ["write /etc/systemd/system/srv-nfs.mount", "enable srv-nfs.mount"]


@pytest.mark.parametrize("src", ["hyper1:/vms", "hyper1:vms"])
def test_a_gluster_volume_has_two_spellings(src: str) -> None:
    mount = {"path": "/srv/vm-pool", "src": src, "fstype": "glusterfs"}
    assert steps(Host(text(mount), enabled=True, there=Mounted("hyper1:/vms", "fuse.glusterfs")), mount) == []


def test_new_options_wait_for_the_next_mount() -> None:
    host = Host(text({**NFS, "options": ["soft"]}), enabled=True, there=Mounted("nas:/export", "nfs4"))
    plan = plan_mount.decide(plan_mount.specs([NFS]), host)
    assert [str(step) for step in plan.steps] == ["write /etc/systemd/system/srv-nfs.mount"]
    assert [str(change) for change in plan.changes] == ["mounts[/srv/nfs].options: soft,_netdev -> hard,_netdev"]
    assert "systemctl restart 'srv-nfs.mount'" in plan.pending[0]


def test_a_device_is_local_unless_it_needs_the_network() -> None:
    assert "WantedBy=local-fs.target" in text(DISK) and "Options=" not in text(DISK)
    assert "WantedBy=remote-fs.target" in text({**DISK, "options": ["_netdev"]})
    assert "What=/dev/100%%" in text({**DISK, "src": "/dev/100%"})


def test_a_filesystem_is_made_on_an_empty_device_only() -> None:
    build = {**DISK, "build": True}
    assert steps(Host(), build)[0] == "make filesystem ext4 on /dev/disk/by-id/a"
    assert steps(Host(kind="ext4", held="holds ext4"), build) == steps(Host(kind="ext4", held="holds ext4"), DISK)
    assert not any("filesystem" in step for step in steps(Host(kind="ext4"), build))
    for held in ("holds gpt", "is in use by dm-0"):
        assert f"cannot make a filesystem on /dev/disk/by-id/a: it {held};" in refused(Host(held=held), build)
    assert "cannot make a filesystem" in refused(Host(kind="xfs", held="holds xfs"), build)
    assert "it is empty; build: true makes a filesystem" in refused(Host(), DISK)
    assert "it holds xfs, not ext4" in refused(Host(kind="xfs", held="holds xfs"), DISK)
    assert "there is no such device" in refused(Host(device_there=False), DISK)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (Host(names=["a.qcow2"]), "the directory is not empty (a.qcow2)"),
        (Host(there=Mounted("nas:/other", "nfs4")), "nas:/other (nfs4) is mounted there"),
        (Host(line=3), "line 3 of /etc/fstab mounts it"),
        (Host("[Mount]\n"), "/etc/systemd/system/srv-nfs.mount defines it, and is not ours"),
        (Host(read_from="/usr/lib/systemd/system/srv-nfs.mount"), "/usr/lib/systemd/system/srv-nfs.mount defines it"),
        (Host(links={"/srv/nfs": "/data"}), "a symbolic link leads to /data; set path: /data"),
    ],
)
def test_nothing_is_hidden_replaced_or_taken_from_others(host: Host, reason: str) -> None:
    assert reason in refused(host, NFS)


def test_a_device_is_compared_by_what_its_names_lead_to() -> None:
    host = Host(text(DISK), enabled=True, there=Mounted("/dev/sda", "ext4"), links={DISK["src"]: "/dev/sda"})
    assert steps(host, DISK) == []
    host.links = {DISK["src"]: "/dev/sdb"}
    assert "/dev/sda (ext4) is mounted there" in refused(host, DISK)


def test_only_our_own_mounts_are_removed_and_only_if_nobody_uses_them() -> None:
    there = Mounted("nas:/export", "nfs4")
    assert steps(Host(), ABSENT) == []
    assert steps(Host(text(NFS), there=there), ABSENT) == [
        "unmount /srv/nfs",
        "remove /etc/systemd/system/srv-nfs.mount",
    ]
    assert steps(Host(text(NFS)), ABSENT) == ["remove /etc/systemd/system/srv-nfs.mount"]
    assert "pool a, guest web1 use it" in refused(
        Host(text(NFS), there=there, used_by=["pool a", "guest web1"]), ABSENT
    )
    assert "not by a unit of ours" in refused(Host(there=there), ABSENT)
    assert "is not ours" in refused(Host("[Mount]\n", there=there), ABSENT)


def test_what_has_changed_since_the_plan_is_left() -> None:
    (step,) = plan_mount.decide(plan_mount.specs([ABSENT]), Host(text(NFS))).steps
    assert isinstance(step, plan_mount.RemoveUnit)
    plan_mount.check_ours(step, text(NFS))
    for other in (None, "[Mount]\n"):
        with pytest.raises(Refused, match="it has changed"):
            plan_mount.check_ours(step, other)
    made = plan_mount.MakeFilesystem("/srv", "/dev/a", "ext4")
    with pytest.raises(Refused, match="holds xfs"):
        plan_mount.check_empty(made, "holds xfs", "xfs")
    with pytest.raises(Refused, match="holds ext4"):
        plan_mount.check_empty(made, "holds ext4", "ext4")
    plan_mount.check_empty(dataclasses.replace(made, luks="/dev/b"), "holds ext4", "ext4")  # which a killed run made
    encrypted = plan_mount.EncryptDevice("/srv", "/dev/a", "x")
    for header, content in ((Luks(), "holds crypto_LUKS"), (Luks(unfinished=True), "holds crypto_LUKS"), (None, "gpt")):
        with pytest.raises(Refused, match="cannot make a filesystem on /dev/a"):
            plan_mount.check_keyless(encrypted, header, content)
    plan_mount.check_keyless(encrypted, Luks(unfinished=True, has_key=False), "holds crypto_LUKS")
    plan_mount.check_keyless(encrypted, None, None)
    with pytest.raises(Refused, match="pool a use"):
        plan_mount.check_unused("/srv", ["pool a"])


REST = ("make mount point /srv/my-vault", r"write /etc/systemd/system/srv-my\x2dvault.mount")
MOUNTS = "mount /dev/disk/by-id/a at /srv/my-vault"
OPENS = f"open /dev/disk/by-id/a as {MAPPED}"
ENCRYPTS, MAKES = "encrypt /dev/disk/by-id/a (LUKS2)", f"make filesystem ext4 on {MAPPED}"


@pytest.mark.parametrize(
    ("host", "first"),
    [
        (Host(), [ENCRYPTS, OPENS, MAKES]),
        (Host(kind=LUKS), [OPENS]),
        # what runs left that were killed: before there was a key, before the filesystem, and with all of it open
        (Host(kind=LUKS, header=Luks(unfinished=True, has_key=False), right=""), [ENCRYPTS, OPENS, MAKES]),
        (Host(kind=LUKS, header=Luks(unfinished=True)), [OPENS, MAKES]),
        (Host(kind=LUKS, header=Luks(unfinished=True), below=["/dev/disk/by-id/a"]), [MAKES]),
        (Host(kind=LUKS, kinds={MAPPED: "ext4"}, below=["/dev/disk/by-id/a"]), []),
    ],
)
def test_an_encrypted_device_is_opened_and_not_mounted_at_the_start(host: Host, first: list[str]) -> None:
    assert steps(host, VAULT) == [*first, *REST, MOUNTS]


def test_an_encrypted_image_gets_its_name_when_it_is_one() -> None:
    new = Host(device_there=False, names=[])
    assert steps(new, IMAGE) == [
        "create encrypted image /srv/nas/vault.img (1 GiB)",
        f"open /srv/nas/vault.img as {MAPPED}",
        *(MAKES, *REST, "mount /srv/nas/vault.img at /srv/my-vault"),
    ]
    made = plan_mount.decide(plan_mount.specs([IMAGE]), new)
    unit = next(step.text for step in made.steps if isinstance(step, plan_mount.WriteUnit))
    assert f'RequiresMountsFor="/srv/nas/vault.img"\n\n[Mount]\nWhat={MAPPED}\n' in unit
    assert "a secret" not in f"{made}{unit}"
    assert "no directory /srv/nas; create it" in refused(Host(device_there=False), IMAGE)
    assert "/srv/nas has 1 GiB free" in refused(Host(device_there=False, names=[], free=GIB), IMAGE)
    assert "build: true and size make it" in refused(Host(device_there=False, names=[]), {**IMAGE, "size": None})
    assert "it is a file without LUKS" in refused(Host(), IMAGE)
    there = Mounted(MAPPED, "ext4")
    assert steps(Host(unit, there=there, below=["/dev/loop3"], held_by=["/dev/loop3"]), IMAGE) == []


def test_what_is_open_and_mounted_is_left_closed_or_given_up() -> None:
    unit = text(VAULT)
    host = Host(unit, there=Mounted("/dev/dm-0", "ext4"), below=["/dev/sdb"])
    host.links = {MAPPED: "/dev/dm-0", VAULT["src"]: "/dev/sdb"}
    assert steps(host, VAULT) == []
    closing = ["unmount /srv/my-vault", f"close {MAPPED}"]
    for state, last in (("closed", []), ("absent", [r"remove /etc/systemd/system/srv-my\x2dvault.mount"])):
        gone = {"path": "/srv/my-vault", "state": state}
        plan = plan_mount.decide(plan_mount.specs([gone]), host)
        assert [str(step) for step in plan.steps] == [*closing, *last]
        assert {"mounts[/srv/my-vault].open: True -> False"} <= {str(change) for change in plan.changes}
        assert steps(Host(unit, below=["/dev/sdb"]), gone) == [closing[1], *last]
        assert steps(Host(unit), gone) == last and steps(Host(), gone) == []
        assert "pool a use it" in refused(dataclasses.replace(host, used_by=["pool a"]), gone)
    assert "is not encrypted; unmount it with state: absent" in refused(Host(text(NFS)), {**ABSENT, "state": "closed"})
    assert "is mounted there" in refused(dataclasses.replace(host, below=["/dev/sdc"]), VAULT)
    assert "is mounted there" in refused(host, {**DISK, "path": "/srv/my-vault"})


@pytest.mark.parametrize(
    ("host", "mount", "why"),
    [
        (Host(kind=LUKS, right="b"), VAULT, "the passphrase is not that of this LUKS device"),
        (Host(held="holds gpt"), VAULT, "cannot make a filesystem on /dev/disk/by-id/a: it holds gpt"),
        (Host(kind="xfs", held="holds xfs"), {**VAULT, "build": False}, "it holds xfs; build: true encrypts an empty"),
        (Host(), {**VAULT, "build": False}, "it is empty; build: true encrypts an empty device"),
        (Host(kind=LUKS, held_by=["/dev/mapper/other"]), VAULT, "/dev/mapper/other has it; end that"),
        (Host(below=["/dev/sdz"]), VAULT, f"{MAPPED} is open, and lies on /dev/sdz; close that"),
        (Host(kind=LUKS, kinds={MAPPED: "xfs"}, below=[VAULT["src"]]), VAULT, "within its encryption, it holds xfs"),
        (Host(device_there=False), VAULT, "there is no such device"),
        (Host(kind=LUKS, held="holds crypto_LUKS"), {**VAULT, "passphrase": None}, "it holds crypto_LUKS"),
    ],
)
def test_nothing_of_others_is_encrypted_or_opened(host: Host, mount: dict[str, t.Any], why: str) -> None:
    assert why in refused(host, mount)


def test_what_lies_below_a_filesystem_is_followed(tmp_path: Path) -> None:
    """As the kernel tells it in /sys: volumes on LUKS, LUKS on volumes, partitions, and an array with one open member."""
    blocks: dict[str, tuple[str, list[str]]] = {
        "254:0": ("CRYPT-LUKS2-1-a", ["8:1"]),
        "254:1": ("LVM-1", ["254:0"]),
        "254:2": ("LVM-2", ["8:1"]),
        "254:3": ("CRYPT-VERITY-1", ["8:1"]),
        "9:0": ("", ["254:0", "8:1"]),
        "9:1": ("", ["254:0", "254:1"]),
        "8:1": ("", []),
    }
    for number, (uuid, members) in blocks.items():
        (tmp_path / number / "slaves").mkdir(parents=True)
        (tmp_path / number / "dm").mkdir()
        (tmp_path / number / "dm/uuid").write_text(f"{uuid}\n")
        for each in members:
            (tmp_path / number / "slaves" / each).symlink_to(tmp_path / each)
    part = tmp_path / "254:1" / "part1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    (tmp_path / "254:4").symlink_to(part)
    expected = {"254:0": 1, "254:1": 1, "254:2": 0, "254:3": 0, "9:0": 0, "9:1": 1, "8:1": 0, "254:4": 1}
    assert {each: int(dm_crypt.is_encrypted(str(tmp_path / each))) for each in expected} == expected


def test_all_problems_are_told_at_once() -> None:
    both = refused(Host(names=["x"]), NFS, {**NFS, "path": "/srv/b"})
    assert "/srv/nfs" in both and "/srv/b" in both
    bad: list[dict[str, t.Any]] = [
        {"path": "srv"},
        {"path": "/"},
        {"path": "/a\nb", "src": "nas:/x", "fstype": "nfs"},
        {"path": "/b", "src": "nas", "fstype": "nfs"},
        {"path": "/c", "src": "sda", "fstype": "xfs"},
        {"path": "/d", "src": "//nas/x", "fstype": "cifs", "options": ["password=x", "x-systemd.automount"]},
        {"path": "/e", "src": "nas:/x", "fstype": "nfs", "build": True},
        {"path": "/e f", "src": "nas:/x", "fstype": "glusterfs"},
        {**NFS},
        {**NFS, "path": "/srv//nfs/"},
        {**VAULT, "path": "/f", "passphrase": "a\nb"},
        {**NFS, "path": "/g", "passphrase": "a secret"},
        {**VAULT, "path": "/h", "size": "1GiB"},
        {**IMAGE, "path": "/i", "size": "1MiB"},
        {**DISK, "path": "/j", "src": "/srv/a.img"},
        {**VAULT, "path": "/k", "passphrase": ""},
        {**IMAGE, "path": "/l", "size": "large"},
    ]
    with pytest.raises(BadInput, match="path of mount") as error:
        plan_mount.specs(bad)
    told = "\n".join(error.value.problems)
    for part in (
        "path of mount srv: must be",
        "path of mount /: must be",
        r"path of mount '/a\nb'",
        "src of mount /b: must be SERVER:/EXPORT",
        "src of mount /c: must be a device",
        "use credentials=FILE",
        "x-systemd options are for /etc/fstab",
        "build of mount /e: it makes ext4 or xfs, not nfs",
        "fails with a space",
        "/srv/nfs is given twice",
        "passphrase of mount /f: must be one line",
        "passphrase of mount /g: it encrypts a device or a file, not nfs",
        "size of mount /h: it is for an image file",
        "size of mount /i: must be at least 320 MiB",
        "src of mount /j: must be a device",
        "passphrase of mount /k: it is empty",
        "size of mount /l: cannot read 'large' as a size",
    ):
        assert part in told
    assert "password=x" not in told and "a secret" not in told


def test_what_is_closed_needs_no_passphrase() -> None:
    (spec,) = plan_mount.specs([{"path": "/srv/vault", "state": "closed", "passphrase": ""}])
    assert spec.closed and spec.absent


def test_outer_mounts_come_first_and_names_that_change_are_noted() -> None:
    inner = {**DISK, "path": "/srv/nfs/a", "src": "/dev/sdb"}
    plan = plan_mount.decide(plan_mount.specs([inner, NFS]), Host(kind="ext4"))
    assert [step.path for step in plan.steps if isinstance(step, plan_mount.Mount)] == ["/srv/nfs", "/srv/nfs/a"]
    assert "/dev/sdb of mount /srv/nfs/a can be another disk" in plan.notes[0]
    assert plan_mount.specs([DISK]) == [MountSpec("/srv/fast disk", "/dev/disk/by-id/a", "ext4")]


def test_inner_mounts_go_first() -> None:
    wanted = plan_mount.specs([ABSENT, {"path": "/srv/nfs/a", "state": "absent"}])
    assert [one.path for one in wanted] == ["/srv/nfs/a", "/srv/nfs"]


def test_the_tables_of_the_kernel_and_of_fstab_are_read(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "21 1 0:5 / / rw - ext4 /dev/root rw\n"
        "22 21 7:60 / /srv/fast\\040disk ro,noatime shared:9 - ext4 /dev/disk-a rw\n"
        "22 21 7:60 /a /srv/bind rw - ext4 /dev/disk-a rw\n"
        "23 21 0:9 / /srv/nfs rw - nfs4 old:/x rw\n24 21 0:9 / /srv/nfs rw shared:1 master:2 - nfs4 nas:/x rw\n"
    )
    assert files_mount.mounted("/srv/fast disk", str(table)) == Mounted("/dev/disk-a", "ext4", readonly=True)
    assert files_mount.mounted("/srv/nfs", str(table)) == Mounted("nas:/x", "nfs4")
    assert files_mount.mounted("/srv/bind", str(table)) == Mounted("/dev/disk-a[/a]", "ext4")
    assert files_mount.mounted("/srv", str(table)) is None
    fstab = tmp_path / "fstab"
    fstab.write_text("# nas:/x /srv/nfs nfs\n/dev/a / ext4\n\nnas:/x /srv/a\\040b/ nfs4\n")
    assert [files_mount.fstab(path, str(fstab)) for path in ("/srv/nfs", "/", "/srv/a b")] == [None, 2, 4]


@pytest.mark.parametrize(
    ("path", "named"), [("/srv", True), ("/srv/a", True), ("/srv/a/b.qcow2", True), ("/srv/b", False), ("/sr", False)]
)
def test_who_names_a_directory_or_what_is_below_it_uses_it(path: str, named: bool) -> None:
    for document in (
        "<domain><devices><disk><source file='/srv/a/b.qcow2'/></disk></devices></domain>",
        "<pool><target><path>/srv/a/b.qcow2</path></target></pool>",
    ):
        assert stdlib_reader.names(document, path) is named
