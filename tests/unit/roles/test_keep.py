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
OTHER = "0fd2c1a4-6c4e-4f6c-9a52-d0d8f3b0a001"
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
    assert keep.may_save(owner, HERE, active=active, ran=True) == decision
    if not active:  # nor is one that is off because it has migrated, if nobody owns it yet
        left = {"take": "wait", "keep": "give"}.get(decision, decision)
        assert keep.may_save(owner, HERE, active=False, left=True, ran=True) == left
    if uuid == HERE:
        assert keep.may_save(owner, HERE, active=active, left=True) == "keep", "claimed since, and about to start"


def test_a_definition_is_stale_if_another_host_has_claimed_the_guest_since(keep: t.Any) -> None:
    at_s = 1_000_000_000.0
    for uuid, why, defined_s, stale in (
        (THERE, "recovered from hyper1", at_s - 1, True),
        (THERE, "started by Pacemaker on hyper2", at_s - 1, True),
        (THERE, "recovered from hyper1", at_s, False),  # it moves here, or was defined anew
        (THERE, "recovered from hyper1", float("inf"), False),
        (THERE, "saved", at_s - 1, False),  # it came to that host by a migration
        ("", "released on hyper2", at_s - 1, False),
    ):
        assert keep.is_stale(keep.Owner("h", uuid, keep.utc(at_s), why), defined_s) == stale
    assert not keep.is_stale(keep.Owner("h", THERE, "yesterday", "claimed"), 0.0)


def test_the_history_tells_who_has_run_a_guest_and_why(keep: t.Any, tmp_path: Path) -> None:
    folder = keep.made_folder(str(tmp_path), UUID)
    for host, why in (
        ("a", "saved"),
        ("", "migrated"),
        ("b", "saved"),
        ("a", "recovering from b"),
        ("a", "recovered from b"),
        ("", "no longer defined on a"),
        ("a", "saved"),
    ):
        keep.write_owner(folder, keep.Owner(host, host and host * 36, f"at {why}", why))
    found = [tuple(one.values()) for one in keep.read_history(folder)]
    assert found == [
        ("at saved", "", "a", "saved"),
        ("at saved", "a", "b", "migrated"),
        ("at recovering from b", "b", "a", "recovered from b"),
    ]
    for number in range(30):
        keep.write_owner(folder, keep.Owner(f"h{number}", THERE, "now", "claimed"))
    assert [one["to"] for one in keep.read_history(folder)] == [f"h{number}" for number in range(20, 30)]
    Path(folder, "history").unlink()
    keep.write_owner(folder, keep.Owner("b", THERE, "now", "claimed"))
    assert keep.read_history(folder) == [{"at": "now", "from": "h29", "to": "b", "why": "claimed"}], (
        "of before there was one"
    )


class Libvirt:
    """A host with guests."""

    def __init__(self, *documents: str) -> None:
        self.documents, self.uuid, self.name, self.notes = [*documents], HERE, "hyper1", dict[str, t.Any]()
        self.active = self.left = False

    def guests(self, *, transient: bool = False) -> t.Iterator[tuple[str, bool, bool]]:
        return ((document, self.active, self.left) for document in self.documents)

    def undefine(self, uuid: str) -> None:
        self.documents = [one for one in self.documents if uuid not in one]

    def owner(self, why: str) -> t.Any:
        return sys.modules["corral_keep"].Owner(self.name, self.uuid, "2026-11-30T07:00:00Z", why)

    def remember(self, guests: t.Any, before: t.Any) -> None:
        keep = sys.modules["corral_keep"]
        guests = keep.with_others(guests, before, keep.state().get("guests") or {})
        Path(keep.STATE).write_text(json.dumps({"uuid": HERE, "guests": guests}))


@pytest.fixture
def shared(keep: t.Any, tmp_path: Path, monkeypatch: t.Any) -> Path:
    """A filesystem that hosts share; what the host has of its own is beside it."""
    (tmp_path / "mounts").write_text(f"a / ext4 rw 0 0\nb {tmp_path}/shared nfs4 rw 0 0\n")
    for name in ("MOUNTS", "STATE", "STATUS", "DEFINITIONS", "CIB", "COROSYNC", "TPMS", "RUNNING"):
        monkeypatch.setattr(keep, name, str(tmp_path / name.lower()))
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions/web1.xml").write_text("")
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def defined_at(shared: Path, at: str) -> None:
    at_s = time.mktime(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    os.utime(shared.parent / "definitions/web1.xml", (at_s, at_s))


def status(shared: Path) -> dict[str, t.Any]:
    """What reports read, which everybody may."""
    path = shared.parent / "status"
    assert path.stat().st_mode & 0o777 == 0o644
    return t.cast("dict[str, t.Any]", json.loads(path.read_text()))


def test_a_stale_definition_is_removed_and_its_text_stays(keep: t.Any, shared: Path) -> None:
    host = Libvirt(document(shared / "web1.qcow2"))
    assert [line["action"] for line in keep.save(host)] == ["take"]
    assert status(shared)[UUID]["owner"] == "hyper1 since 2026-11-30T07:00:00Z (saved)"
    folder = keep.store(str(shared), UUID)
    keep.write_owner(folder, keep.Owner("hyper2", THERE, "2026-11-30T08:00:00Z", "recovered from hyper1"))
    defined_at(shared, "2026-11-30T08:00:01Z")
    [line] = keep.save(host)
    assert line["action"] == "other" and "remove the definition here: virsh undefine web1" in line["problem"]
    assert status(shared)[UUID]["problem"] == line["problem"] and host.documents
    defined_at(shared, "2026-11-30T07:59:59Z")
    host.name = "hyper2"  # whose UUID has changed
    assert [line["action"] for line in keep.save(host)] == ["other"]
    host.name = "hyper1"
    assert [line["action"] for line in keep.save(host)] == ["removed"]
    assert not host.documents and status(shared) == {} and list(keep.save(host)) == []
    assert "<name>web1</name>" in Path(folder, "stale.xml").read_text() and keep.read_owner(folder).host == "hyper2"


def test_a_stale_definition_that_libvirt_keeps_is_told_with_the_command(
    keep: t.Any, shared: Path, monkeypatch: t.Any
) -> None:
    def refuse(_self: Libvirt, _uuid: str) -> None:
        raise keep.FailedError("Refusing to undefine while domain managed save image exists")

    monkeypatch.setattr(Libvirt, "undefine", refuse)
    folder = keep.made_folder(str(shared), UUID)
    keep.write_owner(folder, keep.Owner("hyper2", THERE, "2026-11-30T08:00:00Z", "recovered from hyper1"))
    defined_at(shared, "2026-11-30T07:59:59Z")
    [line] = keep.save(Libvirt(document(shared / "web1.qcow2")))
    assert (
        line["action"] == "other"
        and "managed save image exists; run virsh undefine web1 --keep-nvram" in line["problem"]
    )


def test_what_was_here_before_a_claim_does_not_replace_what_is_kept(keep: t.Any, shared: Path) -> None:
    """Between the claim and the definition, the program may be called to save."""
    old, new = document(shared / "web1.qcow2"), document(shared / "web1.qcow2", HA.replace("7", "8"))
    folder = keep.made_folder(str(shared), UUID)
    keep.write(f"{folder}/domain.xml", new.encode())
    keep.write_owner(folder, keep.Owner("hyper2", THERE, "2026-11-30T06:00:00Z", "saved"))
    host = Libvirt(old)
    assert [line["action"] for line in keep.save(host)] == ["other"]
    keep.claim(host, UUID, str(shared), "recovering from hyper2")
    defined_at(shared, "2026-11-30T05:00:00Z")
    for _again in range(2):
        assert [line["action"] for line in keep.save(host)] == ["claimed"]
    assert Path(folder, "domain.xml").read_text() == new
    defined_at(shared, "2026-11-30T07:00:01Z")
    assert [line["action"] for line in keep.save(host)] == ["keep"]
    assert Path(folder, "domain.xml").read_text() == old, "defined since, by whomever"


def test_two_runs_at_once_lose_nothing_of_what_the_other_has_noted(keep: t.Any) -> None:
    """A run that began before must not forget that the guest ran here: nobody would give it up when it leaves."""
    began, other = {"a": {"ran": ""}, "b": {}, "d": {}}, {"a": {"ran": "2026-1"}, "b": {}, "c": {}}
    mine = {"a": {"ran": ""}, "b": {"ran": "2026-1"}, "d": {}, "e": {}}
    assert keep.with_others(mine, began, other) == {
        "a": {"ran": "2026-1"},
        "b": {"ran": "2026-1"},
        "c": {"ran": ""},
        "e": {},
    }
    # The other one looked before the guest came back, and has noted last.
    assert keep.with_others({"a": {"ran": "2026-2"}}, {"a": {"ran": "2026-1"}}, {"a": {"ran": ""}}) == {
        "a": {"ran": "2026-2"}
    }


@pytest.mark.parametrize(("since", "action"), [("2026-11-30T07:00:00Z", "give"), ("2026-11-30T06:00:00Z", "keep")])
def test_a_guest_that_has_migrated_is_given_up_by_the_owner_on_which_it_ran(
    keep: t.Any, shared: Path, since: str, action: str
) -> None:
    """Not by one that has claimed it since, and is about to start it."""
    host = Libvirt(document(shared / "web1.qcow2"))
    host.active = True
    assert [line["action"] for line in keep.save(host)] == ["take"]
    keep.write_owner(keep.store(str(shared), UUID), keep.Owner("hyper1", HERE, since, "saved"))
    host.active, host.left = False, True
    assert [line["action"] for line in keep.save(host)] == [action]


@pytest.mark.parametrize("owned", [True, False])
def test_a_guest_that_has_migrated_before_anybody_owned_it_is_not_taken(keep: t.Any, shared: Path, owned: bool) -> None:
    """As after a drain, whose source has undefined it: the host where it runs would not get it any more."""
    host = Libvirt(document(shared / "web1.qcow2"))
    if owned:
        folder = keep.made_folder(str(shared), UUID)
        keep.write_owner(folder, keep.Owner("", "", "2026-11-30T06:00:00Z", "no longer defined on hyper2"))
    host.left = True
    assert [line["action"] for line in keep.save(host)] == ["wait"]
    host.left, host.active = False, True
    assert [line["action"] for line in keep.save(host)] == ["take"]


def test_a_claim_while_the_guest_runs_notes_that_it_ran(keep: t.Any, shared: Path) -> None:
    """It may have migrated here, and leave before the next save."""
    host = Libvirt(document(shared / "web1.qcow2"))
    assert [line["action"] for line in keep.save(host)] == ["take"]
    keep.write_owner(keep.store(str(shared), UUID), keep.Owner("hyper2", THERE, "2026-11-30T06:00:00Z", "saved"))
    (shared.parent / "running").mkdir()
    (shared.parent / "running/web1.pid").write_text("1")
    keep.claim(host, UUID, str(shared), "migrated by Pacemaker")
    host.left = True
    assert [line["action"] for line in keep.save(host)] == ["give"]


def test_a_disk_that_has_moved_leaves_no_second_definition(keep: t.Any, shared: Path, monkeypatch: t.Any) -> None:
    """Else a host could be given the old one, and two would write the disks that have stayed."""
    old, new = shared / "a", shared / "b"
    for each in (old, new):
        each.mkdir()
    host = Libvirt(document(old / "web1.qcow2"))
    assert [line["action"] for line in keep.save(host)] == ["take"]
    history = [{"at": "2026", "from": "hyper3", "to": "hyper1", "why": "recovered from hyper3"}]
    Path(keep.store(str(old), UUID), "history").write_text(json.dumps(history))
    host.documents = [document(new / "web1.qcow2")]
    for action in ("take", "keep"):
        assert [line["action"] for line in keep.save(host)] == [action]
        left = keep.read_owner(keep.store(str(old), UUID))
        assert (left.uuid, left.why) == ("", f"moved to {new}")
        assert keep.read_history(keep.store(str(new), UUID)) == history
    assert [line["directory"] for line in keep.show(host, str(old))] == []
    assert [line["directory"] for line in keep.show(host, str(new))] == [str(new)]
    host.uuid, host.name = THERE, "hyper2"
    keep.claim(host, UUID, str(old), "recovering from hyper1", [HERE])  # the name of the directory that Pacemaker knows
    assert keep.read_owner(keep.store(str(new), UUID)).host == "hyper2"
    here = keep.guest_of(document(new / "web1.qcow2"))
    stale = keep.guest_of(document(old / "web1.qcow2"))
    for guest, problem in ((here, ""), (stale, f"its disk has moved to {new}")):
        owners = {place: keep.read_owner(keep.store(place, UUID)) for place in guest.directories}
        assert keep.start_problem(guest, owners, THERE, arriving=False, why_unread="").startswith(problem)
    assert not keep.start_problem(here, {str(new): None, str(old): left}, THERE, arriving=False, why_unread="")
    # A host that comes back with the older definition: the owner of the new directory decides.
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(keep, "STATE", str(shared.parent / "state of another host"))
        other = Libvirt(document(old / "web1.qcow2"))
        assert [line["action"] for line in keep.save(other)] == ["other"]
    assert keep.read_owner(keep.store(str(old), UUID)).why == f"moved to {new}"
    # It is back, and nobody protects it any more: nobody keeps it from starting.
    owned = keep.read_owner(keep.store(str(new), UUID))
    keep.write_owner(keep.store(str(new), UUID), keep.Owner("", "", "2026", "no longer protected on hyper2"))
    owners = {place: one and keep.Owner(**one) for place, one in keep.owners_of(stale).items()}
    assert not keep.start_problem(stale, owners, THERE, arriving=False, why_unread="")
    keep.write_owner(keep.store(str(new), UUID), owned)
    host.documents = [document(old / "web1.qcow2")]  # and back
    assert [line["action"] for line in keep.save(host)] == ["take"]
    assert keep.current(str(new), UUID) == str(old) and keep.read_owner(keep.store(str(old), UUID)).uuid == THERE
    keep.write_owner(keep.store(str(old), UUID), keep.Owner("", "", "2026", f"moved to {new}"))
    with pytest.raises(keep.FailedError, match=r"which leads nowhere; corral-keep show lists guests"):
        keep.define(host, UUID, str(new))


def test_a_guest_that_runs_is_given_up_when_it_is_off(keep: t.Any, shared: Path) -> None:
    """But what is kept says at once that nobody may start it elsewhere."""
    host, folder = Libvirt(document(shared / "web1.qcow2")), Path(keep.store(str(shared), UUID))
    list(keep.save(host))
    host.documents, host.active = [document(shared / "web1.qcow2", ha="")], True
    for _again in range(2):
        assert [line["action"] for line in keep.save(host)] == ["unprotected"]
    assert (folder / "domain.xml").read_text() == host.documents[0] and keep.read_owner(str(folder)).uuid == HERE
    host.active = False
    assert [line["action"] for line in keep.save(host)] == ["released"]
    assert keep.read_owner(str(folder)).why == "no longer protected on hyper1"


def test_reports_learn_which_resource_of_pacemaker_starts_a_guest(keep: t.Any, shared: Path) -> None:
    host = Libvirt(
        document(shared / "web1.qcow2"), document("/local/w.raw").replace(UUID, OTHER).replace(">web1<", ">w<")
    )
    (shared.parent / "cib").write_text(
        "<cib><configuration><resources><group><primitive id='guest-web1' class='ocf' provider='corral' type='guest'>"
        f"<instance_attributes id='i'><nvpair id='u' name='uuid' value='{UUID}'/></instance_attributes></primitive></group>"
        "</resources></configuration></cib>"
    )
    list(keep.save(host))
    assert status(shared)[UUID]["resource"] == "", "this host has left the cluster"
    (shared.parent / "corosync").write_text("")
    list(keep.save(host))
    found = status(shared)
    assert found[UUID]["resource"] == "guest-web1" and found[UUID]["directory"] == str(shared)
    assert [one["to"] for one in found[UUID]["history"]] == ["hyper1"] and found[UUID]["problem"] == ""
    assert "is on ext4" in found[OTHER]["problem"]


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

        def remember(self, _guests: object, _before: object) -> None:
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
