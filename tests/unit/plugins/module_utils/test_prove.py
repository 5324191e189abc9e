"""Which backups are proven, how, and that a restored guest reaches nothing."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._backup import (
    files_proof,
    files_repository,
    plan_backup_info,
    plan_prove,
    run_prove,
    xml_proof,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.model_backup import (
    BackupPoint,
    Proof,
    Repository,
    read_proof,
    text_of,
)
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_backup_info import BackupPolicy, KnownGuest
from ansible_collections.corral.virt.plugins.module_utils._backup.plan_prove import ProofPlan, ProofSpec
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, NotFound, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import FoundGuest
from ansible_collections.corral.virt.plugins.module_utils._power.plan_power_steps import Seen
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse
from ansible_collections.corral.virt.tests.unit.plugins.module_utils.test_restore import (
    FULL,
    NEW,
    NEXT,
    OTHER,
    POINTS,
    UUID,
    Host,
    disk,
    document,
)

MIB = 1024**2
NAME, FOLDER = "corral-proof-2ff4c3c5", "/i/.corral-proof-2ff4c3c5"
SERIAL = "<serial type='tcp'><source mode='bind' host='0.0.0.0' service='7000'/><protocol type='raw'/></serial>"
AGENT = "<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
DISKS = disk("vda", "/i/g.qcow2"), disk("vdb", "/i/g.raw", "raw")
PROVEN = Proof(1_795_700_000, "h", "agent", 12.5)


@dataclasses.dataclass
class Prover(Host):
    """A `ProofHost` that knows all its answers."""

    then: str = document(*DISKS, SERIAL)
    memory_free: int = 1024**3

    def memory_bytes(self, xml: str) -> int:
        return int(parse(xml).findtext("memory")) * 1024

    def memory_free_bytes(self) -> int:
        return self.memory_free


def planned(host: Prover, removed: t.Collection[str] = (), **options: t.Any) -> ProofPlan:
    """The plan."""
    spec = ProofSpec("/r", **options)
    return plan_prove.plan(plan_prove.scene(spec, UUID, host), spec, removed)


def test_a_backup_is_proven_by_a_guest_that_goes_again() -> None:
    made = planned(Prover(files=()))
    assert [str(step) for step in made.steps] == [
        f"define {NAME}, an isolated copy of g, with its disks in {FOLDER}",
        f"restore disk vda of {NAME} from backup {NEXT} to {FOLDER}/vda.qcow2 (2 MiB)",
        f"restore disk vdb of {NAME} from backup {NEXT} to {FOLDER}/vdb.raw (2 MiB)",
        f"create network {NAME}, whose bridge crlp2ff4c3c5 is down",
        f"start {NAME}",
        f"wait for a login prompt on the console of {NAME}",
        f"remove {NAME} with {FOLDER} and its network",
        f"record the proof of backup {NEXT} of g",
    ]
    assert made.closing == made.steps[-2:] and made.evidence == "login"
    assert planned(Prover(then=document(*DISKS, AGENT))).evidence == "agent"
    assert planned(Prover(then=document(*DISKS, AGENT)), probe="true").evidence == "probe"


def test_what_failed_is_removed_and_recorded() -> None:
    seen = plan_prove.scene(ProofSpec("/r"), UUID, Prover(files=()))
    made = plan_prove.plan(seen, ProofSpec("/r"))
    ended = plan_prove.failed(made, seen, [str(made.steps[0])], begun=True)
    assert ended.steps == (made.steps[0], *made.closing) and ended.closing == made.closing
    assert plan_prove.failed(made, seen, (), begun=False).steps == made.closing[1:], "nothing was defined"
    [only] = plan_prove.failed(ProofPlan(), seen, (), begun=False).steps
    assert str(only) == f"record the proof of backup {NEXT} of g", "also if it was refused"


def test_what_is_made_is_known_by_its_record() -> None:
    [begin, *_more] = planned(Prover(files=())).steps
    xml = t.cast(plan_prove.BeginProof, begin).xml
    found = FoundGuest(NAME, NEW, "off", True, False, xml)
    mine = plan_prove.left([found])
    [step] = plan_prove.removals(mine)
    assert (step.guest, step.uuid, step.directory) == (NAME, NEW, FOLDER)
    plan_prove.check_left(step, mine)
    for changed in (
        dataclasses.replace(found, name="kept"),
        dataclasses.replace(found, xml=xml.replace(NEW, OTHER)),  # a copy of the definition
        dataclasses.replace(found, xml=xml.replace(FOLDER, "/")),
        dataclasses.replace(found, xml=document()),
        dataclasses.replace(
            found, xml=xml_proof.with_record(document(), of=UUID, directory="/srv")
        ),  # sealed by somebody
    ):
        assert plan_prove.left([changed]) == []
        with pytest.raises(Refused, match="another guest by now"):
            plan_prove.check_left(step, plan_prove.left([changed]))


BRIDGED = (
    "<interface type='bridge'><source bridge='br0'/><virtualport type='openvswitch'/><vlan><tag id='7'/></vlan>"
    "<mac address='52:54:00:11:22:34'/><model type='e1000'/><filterref filter='f'/></interface>"
)
NICS = (
    BRIDGED,
    "<interface type='direct'><source dev='eth0' mode='bridge'/></interface>",
    "<interface type='hostdev' managed='yes'><source><address type='pci' slot='0x1'/></source></interface>",
    "<interface type='vhostuser'><source type='unix' path='/s' mode='client'/></interface>",
    "<interface type='user'><backend type='passt'/><portForward proto='tcp'/></interface>",
    "<interface type='ethernet'><script path='/etc/up'/><target dev='tap0' managed='no'/></interface>",
)


def test_no_interface_leads_out() -> None:
    made = xml_proof.isolated(document(*NICS, SERIAL), name=NAME, kept=(), log="/l")
    nics = parse(made.xml).findall("devices/interface")
    assert len(nics) == len(NICS) + 1
    for nic in nics:
        assert dict(nic.attrib) == {"type": "network"} and dict(nic.find("source").attrib) == {"network": NAME}
        assert {one.tag for one in nic} <= {"source", "mac", "model"}
    assert nics[0].find("model").get("type") == "e1000" and nics[2].find("model").get("type") == "virtio"
    network = parse(xml_proof.network(NAME, NEW, "b"))
    assert [network.find(one) for one in ("forward", "ip")] == [None, None]
    assert network.find("bridge").get("name") == "b" and network.find("dns").get("enable") == "no"


LEFT_OUT = (
    "<hostdev mode='subsystem' type='pci'><source><address slot='0x2'/></source></hostdev>",
    "<filesystem type='mount'><source dir='/srv'/><target dir='x'/></filesystem>",
    "<channel type='unix'><source mode='bind' path='/run/x'/><target type='virtio' name='x'/></channel>",
    "<shmem name='s'><model type='ivshmem-plain'/></shmem>",
    "<vsock model='virtio'><cid auto='yes'/></vsock>",
    "<tpm model='tpm-tis'><backend type='passthrough'/></tpm>",
    "<rng model='virtio'><backend model='egd' type='tcp'/></rng>",
    "<input type='passthrough'><source evdev='/dev/input/event1'/></input>",
    "<memory model='nvdimm'><source><path>/n</path></source></memory>",
    "<disk type='network' device='disk'><source protocol='rbd' name='p/i'/><target dev='vdc'/></disk>",
)
SILENTLY = (
    "<graphics type='vnc' listen='0.0.0.0'/>",
    "<channel type='spicevmc'><target type='virtio' name='com.redhat.spice.0'/></channel>",
    "<redirdev bus='usb' type='spicevmc'/>",
)
STAYS = (
    AGENT,
    "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>",
    "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>",
    "<disk type='file' device='disk'><source file='/i/ro'/><target dev='vdd'/><readonly/></disk>",
)


def test_what_reaches_the_host_or_others_is_left_out() -> None:
    own = (
        "<cputune><vcpupin vcpu='0' cpuset='1'/></cputune><memoryBacking><hugepages/></memoryBacking>"
        "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-netdev'/>"
        "</qemu:commandline><vcpu cpuset='0'>1</vcpu>"
    )
    cdrom = "<disk type='network' device='cdrom'><source protocol='https' name='x'/><target dev='sda'/></disk>"
    text = document(*DISKS, *LEFT_OUT, *SILENTLY, *STAYS, cdrom, SERIAL).replace("<devices>", f"{own}<devices>")
    made = xml_proof.isolated(text, name=NAME, kept=("/i/g.qcow2", "/i/g.raw"), log="/l")
    root = parse(made.xml)
    assert len(made.notes) == len(LEFT_OUT) + 1 and all("is left out" in note for note in made.notes)
    assert "commandline" in made.notes[0] and "vdc" in made.notes[-1]
    for gone in ("graphics", "redirdev", "hostdev", "filesystem", "shmem", "vsock", "input", "memory"):
        assert root.find(f"devices/{gone}") is None, gone
    for gone in ("cputune", "memoryBacking"):
        assert root.find(gone) is None
    assert "commandline" not in made.xml and root.find("vcpu").get("cpuset") is None
    kept = [one.find("target").get("dev") for one in root.findall("devices/disk")]
    assert kept == ["vda", "vdb", "vdd", "sda"] and root.find("devices/disk[@device='cdrom']/source") is None
    assert [len(root.findall(f"devices/{one}")) for one in ("channel", "tpm", "rng")] == [1, 1, 1]
    [serial] = root.findall("devices/serial")
    assert serial.get("type") == "pty" and [one.tag for one in serial] == ["log"]
    assert made.has_agent and made.has_console


@pytest.mark.parametrize(
    ("host", "options", "why"),
    [
        (
            Prover(damaged=("vda.qcow2",)),
            {},
            r"^cannot prove backup \S+ of g: .* is damaged: .*no other backup is whole",
        ),
        (Prover(memory_free=100 * MIB), {}, "100 MiB of memory free, and it needs 320 MiB; .*-e host=HOST"),
        (Prover(free=60 * MIB), {}, "/i has 60 MiB free, and it needs about 68 MiB; make room, or choose another pool"),
        (Prover(then=document(*DISKS)), {}, "no serial console .*, and no channel for a guest agent; use .*: probe"),
        (Prover(then=document(*DISKS, AGENT)), {"evidence": "login"}, "no serial console .*; use evidence: agent"),
        (Prover(), {"evidence": "agent"}, "no channel for a guest agent; use evidence: login or probe"),
        (Prover(others={NAME: OTHER}), {}, f"there is another guest {NAME}; rename that guest"),
        (Prover(files=(FOLDER,)), {}, rf"no guest has it; remove it \(rm -r {FOLDER}\)"),
        (Prover(pooled=()), {"pool": "vg"}, "vg"),
    ],
)
def test_what_cannot_be_proven(host: Prover, options: dict[str, t.Any], why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(host, **options)


def test_what_an_interrupted_run_left_is_not_in_the_way() -> None:
    assert planned(Prover(files=(FOLDER,), others={NAME: NEW}), removed=[NEW]).steps


def test_what_a_killed_restore_left_of_its_states_goes_with_a_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next proof has another UUID, and never looks there."""
    step = plan_prove.RemoveProof(NAME, NEW, FOLDER)
    assert plan_prove.states_of(step) == (
        f"/var/lib/libvirt/swtpm/{NEW}",
        f"/var/lib/libvirt/qemu/nvram/{NAME}_VARS.fd",
    )
    (tmp_path / "tpm.restoring").mkdir()
    (tmp_path / "nvram.restoring").touch()
    states = str(tmp_path / "tpm"), str(tmp_path / "nvram")
    monkeypatch.setattr(plan_prove, "states_of", lambda _step: states)
    for name in (
        *("libvirt_snapshot.stop", "libvirt_proof.remove_network", "files_proof.remove", "definition.undefine_by"),
        "libvirt_query.managed_state",
    ):
        monkeypatch.setattr(f"{run_prove.__name__}.{name}", lambda *_of: ())
    run_prove._Work(None, ProofSpec("/r"), t.cast(t.Any, None)).remove(step)
    assert list(tmp_path.iterdir()) == []


def chosen(proofs: dict[str, Proof], known: t.Collection[str] = (UUID, OTHER, NEW), **options: t.Any) -> list[str]:
    """The UUIDs of the sample, of guests g, a and b."""
    more = [dataclasses.replace(POINTS[1], id=f"20261126T03000{n}Z-0000000{n}", guest=g, uuid=u) for n, g, u in OTHERS]
    repository = Repository("r", (*POINTS, *more), proofs=proofs)
    return plan_prove.sample(ProofSpec("/r", **options), repository, known)


OTHERS = ((4, "b", OTHER), (5, "a", NEW))
FOURTH, FIFTH = (f"20261126T03000{n}Z-0000000{n}" for n in (4, 5))


def test_the_sample_goes_around() -> None:
    assert chosen({}, sample=9) == [NEW, OTHER, UUID], "by name"
    assert chosen({FIFTH: PROVEN}) == [OTHER]
    failed = dataclasses.replace(PROVEN, ended_s=PROVEN.ended_s + 1, why="it gave no evidence")
    assert chosen({FIFTH: PROVEN, FOURTH: failed}) == [UUID], "one that fails keeps nobody else from being proven"
    later = dataclasses.replace(PROVEN, ended_s=PROVEN.ended_s + 2)
    assert chosen({FIFTH: PROVEN, FOURTH: failed, FULL: later}, sample=2) == [NEW, OTHER], "an older point counts"
    assert chosen({}, known=[UUID], sample=3) == [UUID], "those of other hosts are proven there"
    assert chosen({}, known=[], guests=("a", UUID)) == [UUID, NEW], "or where they are asked for"
    with pytest.raises(NotFound, match="cannot prove backups of nobody: /r has none"):
        chosen({}, guests=("nobody", "a"))
    [note] = plan_prove.unproven(ProofSpec("/r"), chosen({}, known=[]))
    assert note == "no backup is proven: /r has none of a guest of this host"
    assert not list(plan_prove.unproven(ProofSpec("/r"), [UUID]))


def test_a_proof_stays_with_its_point(tmp_path: Path) -> None:
    point = BackupPoint(FULL, "g", UUID, 1, "h")
    place = Path(files_repository.begin(str(tmp_path), point, {}))
    files_repository.finish(str(tmp_path), point, (), lambda _done, _total: None)
    assert not place.exists()
    files_repository.write_proof(str(tmp_path), point, PROVEN)
    marker = '{"version": 1, "id": "r"}'
    assert files_repository.read(str(tmp_path), marker).proofs == {FULL: PROVEN}
    files_repository.delete(str(tmp_path), point)
    assert files_repository.read(str(tmp_path), marker).proofs == {}
    with pytest.raises(Failed, match=f"cannot record the proof of backup {FULL}"):
        files_repository.write_proof(str(tmp_path), point, PROVEN)
    assert read_proof(text_of(PROVEN)) == PROVEN
    for text in ("", "[]", "{}", text_of(PROVEN).replace('"version": 1', '"version": 2'), '{"version": 1}'):
        assert read_proof(text) is None


def told(
    proofs: dict[str, Proof], policy: BackupPolicy, known: t.Sequence[KnownGuest] = (KnownGuest("g", UUID),)
) -> list[str]:
    """The problems two days after the second point."""
    repository = Repository("r", POINTS, proofs=proofs)
    now_s = POINTS[1].created_s + 2 * 86400
    guests = plan_backup_info.described(repository, {}, now_s)
    return list(plan_backup_info.problems(repository, guests, known=known, now_s=now_s, policy=policy, wanted=None))


def test_a_policy_of_proofs() -> None:
    old = Proof(POINTS[1].created_s, "h", "login", 20.0)
    [missing] = told({}, BackupPolicy(None, 86400))
    assert missing.startswith("no backup of g was proven by a restore") and "corral.virt.prove -e guest=g" in missing
    assert told({NEXT: old}, BackupPolicy(None, 86400)) == [
        "the last proven restore of g is 2 days old, and one is due every 24 hours"
    ]
    assert told({FULL: old}, BackupPolicy(None, 3 * 86400)) == told({}, BackupPolicy()) == []
    failed = dataclasses.replace(old, why="no login came")
    problems = told({FULL: old, NEXT: failed}, BackupPolicy(None, 3 * 86400))
    assert [re.sub(r"\d{4}-\S+Z", "T", one) for one in problems] == [
        f"backup {NEXT} of g was not proven on T: no login came"
    ]
    assert told({FULL: failed}, BackupPolicy(None, 3 * 86400))[-1].startswith("no backup of g was proven")
    assert told({}, BackupPolicy(1, 1), [KnownGuest(NAME, NEW)]) == [], "a guest that proves a backup needs none"


def test_the_report_of_a_guest() -> None:
    proofs = {FULL: PROVEN, NEXT: dataclasses.replace(PROVEN, why="x", ended_s=PROVEN.ended_s + 9)}
    now_s = PROVEN.ended_s + 60
    [guest] = plan_backup_info.described(Repository("r", POINTS, proofs=proofs), {}, now_s)
    assert guest["chain"] == 2 and guest["full_reason"] is None
    assert guest["proven"] == {
        "point": FULL, "at": "2026-11-26T13:33:20Z", "age_s": 60, "evidence": "agent", "seconds": 12.5, "ok": True, "why": None,
    }  # fmt: skip
    assert [one["proof"]["ok"] for one in guest["points"]] == [True, False]


def test_a_wait_ends_with_what_was_seen() -> None:
    step = plan_prove.AwaitEvidence(NAME, NEW, "g", "login", 60)
    plan_prove.check_waiting(step, Seen(), 1.0, "", over=False)
    with pytest.raises(Failed, match=r"of g: a login prompt on the console did not come within 61 s \(.*console: boot"):
        plan_prove.check_waiting(step, Seen(console=("boot",)), 61.0, "", over=True)
    with pytest.raises(Failed, match=r"within 3 s: it is off \(.*the probe exited with 1"):
        plan_prove.check_waiting(step, Seen(state="shutdown"), 3.0, "the probe exited with 1", over=False)
    assert plan_prove.has_login(b"\x1b[0mDebian GNU/Linux 12 g ttyS0\r\n\r\ng login: ")
    assert not plan_prove.has_login(b"Starting systemd-logind.service - User Login Management")


def test_a_probe_knows_the_guest() -> None:
    assert files_proof.probe('test "$CORRAL_GUEST" = web1', {"CORRAL_GUEST": "web1"}) is None
    assert files_proof.probe("echo not yet; exit 3", {}) == "the probe exited with 3: not yet"


def test_bad_options_are_told_together() -> None:
    given = {
        "guests": None,
        "evidence": "probe",
        "probe": None,
        "pool": None,
        "repository": "b",
        "sample": 0,
        "timeout": 0,
    }
    with pytest.raises(
        BadInput, match=r"repository: .*; sample: .*; timeout: .*; probe: is the command of evidence: probe"
    ):
        plan_prove.checked(given)
    assert (
        plan_prove.checked({**given, "repository": "/b/", "sample": 1, "timeout": 1, "probe": "x"}).repository == "/b"
    )
