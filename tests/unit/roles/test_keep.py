"""The program that keeps definitions beside the disks: whose a guest is, and which start libvirt's hook refuses."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._system import locks
from ansible_collections.corral.virt.plugins.module_utils._xml.names import CORRAL
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES

PROGRAM = ROLES / "hypervisor/files/corral_keep.py"
UUID, HERE, THERE = "6695eb01-f6a4-8304-79aa-97f2502e193f", "2baa1b06-db13-410e-952c-5cdfa5800c47", "d" * 36
GUEST = """<domain type='kvm'><name>web1</name><uuid>{uuid}</uuid>
<metadata><corral:guest xmlns:corral="urn:corral:virt:guest:1"><corral:tag>web</corral:tag>{ha}</corral:guest></metadata>
<memory unit='KiB'>65536</memory><vcpu>2</vcpu><os firmware='efi'><type machine='q35'>hvm</type></os><devices>
<disk type='file' device='cdrom'><source file='/iso/a.iso' startupPolicy='optional'/><target dev='sda'/></disk>
<disk type='file' device='disk'><source file='{disk}'/><target dev='vda'/></disk>
<interface type='bridge'><source bridge='br0'/></interface></devices></domain>"""
HA = "<corral:ha mode='restart' priority='7'><corral:apart>db</corral:apart></corral:ha>"


@pytest.fixture(scope="module")
def keep() -> t.Any:
    spec = importlib.util.spec_from_file_location("corral_keep", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["corral_keep"] = module
    spec.loader.exec_module(module)
    return module


def document(disk: Path | str = "/srv/web1.qcow2", ha: str = HA) -> str:
    return GUEST.format(uuid=UUID, disk=disk, ha=ha)


def test_it_speaks_as_the_collection_does(keep: t.Any) -> None:
    assert keep.SHARED == locks._SHARED and f"{{{CORRAL}}}" == keep.CORRAL


def test_a_definition_tells_what_another_host_needs(keep: t.Any) -> None:
    guest = keep.guest_of(document())
    assert guest.protected and guest.files == ("/srv/web1.qcow2",) and not guest.media
    assert guest.nvram == "/var/lib/libvirt/qemu/nvram/web1_VARS.fd"
    assert guest.needs == {
        "vcpus": 2,
        "memory_mib": 64,
        "interfaces": [{"bridge": "br0"}],
        "tags": ["web"],
        "machine": "q35",
        "priority": 7,
        "apart": ["db"],
        "colocate": [],
        "prefer": [],
    }
    assert not keep.guest_of(document(ha="")).protected
    with pytest.raises(keep.FailedError, match="no UUID"):
        keep.guest_of("<domain/>")


@pytest.mark.parametrize(
    ("uuid", "why", "active", "decision"),
    [
        (None, "", False, "take"),
        (HERE, "saved", False, "keep"),
        (THERE, "saved", False, "other"),
        (THERE, "saved", True, "other"),
        ("", "migrated", False, "wait"),
        ("", "migrated", True, "take"),
        ("", "released on hyper2", False, "wait"),
        ("", "released on hyper2", True, "take"),
        ("", "no longer defined on hyper2", False, "take"),
    ],
)
def test_a_guest_that_another_host_owns_is_never_taken(
    keep: t.Any, uuid: str | None, why: str, active: bool, decision: str
) -> None:
    owner = None if uuid is None else keep.Owner("h", uuid, "2026", why)
    assert keep.may_save(owner, HERE, active=active) == decision
    given = "give" if uuid == HERE else decision
    assert keep.may_save(owner, HERE, active=active, migrated=True) == given


@pytest.mark.parametrize(
    ("uuid", "why", "arriving", "refused"),
    [
        (None, "", False, False),
        (HERE, "saved", False, False),
        (THERE, "saved", False, True),
        (THERE, "saved", True, False),
        ("", "migrated", False, True),
        ("", "released on hyper2", False, True),
        ("", "no longer defined on hyper2", False, False),
    ],
)
def test_a_start_is_refused_where_another_host_owns_the_guest(
    keep: t.Any, uuid: str | None, why: str, arriving: bool, refused: bool
) -> None:
    owner = None if uuid is None else keep.Owner("hyper2", uuid, "2026", why)
    told = keep.start_problem(keep.guest_of(document()), {"/srv": owner}, HERE, arriving=arriving, why_unread="")
    assert bool(told) == refused and (not told or f"corral-keep claim {UUID} /srv" in told)


def test_a_guest_does_not_take_the_name_or_the_variables_of_another(keep: t.Any) -> None:
    guest = keep.guest_of(document())
    other = dataclasses.replace(guest, uuid=THERE)
    assert not keep.foreign(guest, [guest, dataclasses.replace(other, name="db1", nvram="")])
    assert f"is called web1 ({THERE})" in keep.foreign(guest, [dataclasses.replace(other, nvram="")])
    assert "guest db1 of this host has its UEFI variables" in keep.foreign(
        guest, [dataclasses.replace(other, name="db1")]
    )
    plain = dataclasses.replace(guest, nvram="")
    assert not keep.foreign(plain, [dataclasses.replace(other, name="db1", nvram="")])


def test_an_owner_that_cannot_be_read_keeps_only_a_protected_guest(keep: t.Any) -> None:
    for ha, refused in ((HA, True), ("", False)):
        told = keep.start_problem(keep.guest_of(document(ha=ha)), {}, HERE, arriving=False, why_unread="it hangs")
        assert bool(told) == refused
    unknown = keep.start_problem(
        keep.guest_of(document()), {"/srv": keep.Owner("h", HERE, "", "")}, "", arriving=False, why_unread=""
    )
    assert unknown, "a host that does not know itself owns nothing"


def test_a_guest_on_a_disk_of_this_host_alone_is_not_kept(keep: t.Any, tmp_path: Path, monkeypatch: t.Any) -> None:
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(keep, "MOUNTS", str(mounts))
    rows = {
        "ext4 rw": "is on ext4, which other hosts do not see",
        "nfs4 rw,local_lock=none": "",
        "nfs rw,nolock": "mounted without locks between hosts",
        "fuse.glusterfs rw": "",
    }
    for row, why in rows.items():
        mounts.write_text(f"a / ext4 rw 0 0\nb /srv {row} 0 0\n")
        assert why in keep.unfit(keep.guest_of(document())) and bool(keep.unfit(keep.guest_of(document()))) == bool(why)
    by_pool = document().replace(
        "type='file' device='disk'><source file='/srv/web1.qcow2'", "type='volume'><source pool='p'"
    )
    assert "disk vda is defined by its pool" in keep.unfit(
        keep.guest_of(
            by_pool.replace(
                "</devices>", document().partition("<devices>")[2].partition("</devices>")[0] + "</devices>"
            )
        )
    )


class Hook:
    """The program as libvirt's hook of a host, on a directory."""

    def __init__(self, keep: t.Any, root: Path) -> None:
        self.program, self.state, self.arriving = root / keep.HOOK, root / "state.json", root / "arriving"
        text = PROGRAM.read_text().replace(keep.STATE, str(self.state)).replace(keep.ARRIVING, str(self.arriving))
        self.program.write_text(text.replace("WITHIN_S = 5.0", "WITHIN_S = 1.0").replace('"systemctl"', '"true"'))
        self.state.write_text(json.dumps({"uuid": HERE, "guests": {}}))
        self.disk = root / "web1.qcow2"

    def __call__(self, operation: str = "prepare", extra: str = "-") -> str:
        words = [sys.executable, self.program, "web1", operation, "begin", extra]
        done = subprocess.run(words, input=document(self.disk), capture_output=True, text=True, timeout=60, check=False)
        assert bool(done.stderr) == bool(done.returncode) and not done.stdout
        return done.stderr


@pytest.fixture
def hook(keep: t.Any, tmp_path: Path) -> Hook:
    return Hook(keep, tmp_path)


def test_the_hook_refuses_a_start_and_lets_a_migration_in_once(keep: t.Any, hook: Hook, tmp_path: Path) -> None:
    assert not hook()
    folder = keep.made_folder(str(tmp_path), UUID)
    keep.write_owner(folder, keep.Owner("hyper2", THERE, "2026", "saved"))
    assert "cannot start guest web1 here: its owner is hyper2" in hook()
    assert not hook("migrate") and not hook(), "it arrives"
    assert "its owner is hyper2" in hook()
    assert not hook("migrate")
    [mark] = hook.arriving.iterdir()
    os.utime(mark, (1, 1))
    assert "its owner is hyper2" in hook(), "that was long ago"


def test_a_guest_that_has_migrated_is_given_up_by_its_owner_only(keep: t.Any, hook: Hook, tmp_path: Path) -> None:
    folder = keep.made_folder(str(tmp_path), UUID)
    for uuid, extra, after in ((HERE, "shutdown", HERE), (THERE, "migrated", THERE), (HERE, "migrated", "")):
        keep.write_owner(folder, keep.Owner("h", uuid, "2026", "saved"))
        assert not hook("release", extra) and keep.read_owner(folder).uuid == after
    assert "its owner is nobody" in hook(), "it runs elsewhere"


def test_a_dead_filesystem_does_not_hold_the_hook(keep: t.Any, hook: Hook, tmp_path: Path) -> None:
    os.mkfifo(Path(keep.made_folder(str(tmp_path), UUID)) / "owner")  # whoever opens it waits for ever
    begun = time.monotonic()
    assert "nothing answered within 1 s" in hook() and time.monotonic() - begun < 30


def test_of_many_that_claim_at_once_one_is_the_owner(keep: t.Any, tmp_path: Path, monkeypatch: t.Any) -> None:
    monkeypatch.setattr(keep, "STATE", str(tmp_path / "state"))
    folder = keep.made_folder(str(tmp_path), UUID)
    keep.write_owner(folder, keep.Owner("dead", THERE, "2026", "saved"))
    won, lost = list[str](), list[str]()

    @dataclasses.dataclass
    class Host:
        uuid: str

        def remember(self, _guests: object) -> None:
            """Nothing."""

        def owner(self, why: str) -> t.Any:
            return keep.Owner(self.uuid, self.uuid, "2026", why)

    def claims(host: Host) -> None:
        try:
            keep.claim(host, UUID, str(tmp_path), "recovering", [THERE])
            won.append(host.uuid)
        except keep.OwnedElsewhereError:
            lost.append(host.uuid)

    threads = [threading.Thread(target=claims, args=(Host(f"h{number}"),)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(won) == 1 and len(lost) == 7 and keep.read_owner(folder).uuid == won[0]
    keep.claim(Host("h9"), UUID, str(tmp_path), "started", ["nobody", "h8", won[0]])
    assert keep.read_owner(folder).uuid == "h9"
    with pytest.raises(keep.OwnedElsewhereError, match="its owner is h9"):
        keep.claim(Host("h1"), UUID, str(tmp_path), "started", ["nobody", "h8"])
    keep.write_owner(folder, keep.Owner("", "", "2026", "released on h9"))
    with pytest.raises(keep.OwnedElsewhereError, match="its owner is nobody"):
        keep.claim(Host("h1"), UUID, str(tmp_path), "recovering", ["", "h9"])
    keep.claim(Host("h1"), UUID, str(tmp_path), "started", ["nobody"])
    assert keep.read_owner(folder).uuid == "h1"


def test_nobody_but_root_may_have_written_what_is_kept(keep: t.Any, tmp_path: Path) -> None:
    folder = Path(keep.made_folder(str(tmp_path), UUID))
    folder.parent.chmod(0o777)
    with pytest.raises(keep.FailedError, match="not a directory of root alone"):
        keep.trusted(str(folder))
    shutil.rmtree(tmp_path / ".corral")
    (tmp_path / ".corral").symlink_to(tmp_path)
    with pytest.raises(keep.FailedError, match="not a directory of root alone"):
        keep.made_folder(str(tmp_path), UUID)
    with pytest.raises(keep.FailedError, match="is no UUID"):
        keep.store(str(tmp_path), "../x")


def test_a_tpm_comes_back_as_it_was(keep: t.Any, tmp_path: Path) -> None:
    state = tmp_path / "tpm/tpm2/tpm2-00.permall"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"secret")
    (state.parent / ".lock").write_text("")
    content = keep.packed(str(tmp_path / "tpm"))
    assert content == keep.packed(str(tmp_path / "tpm")) and keep.packed(str(tmp_path / "none")) is None
    state.write_bytes(b"old")
    keep.unpack(content, str(tmp_path / "tpm"))
    assert state.read_bytes() == b"secret" and not (state.parent / ".lock").exists()
    assert [one.name for one in tmp_path.iterdir()] == ["tpm"]
