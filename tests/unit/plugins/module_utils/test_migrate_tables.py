"""Migration decisions as whole tables: what two observed ends mean, what libvirt is told, and what is done
afterwards.
"""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Volume
from ansible_collections.corral.virt.plugins.module_utils._migration import plan_outcome
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import (
    COPY,
    DELTA,
    FULL,
    SHARED,
    DiskMove,
    LeftDisk,
    Move,
    Observation,
    Tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migrate import (
    MakeDisk,
    MigrateStep,
    RemoveDisk,
    aborting,
    finish,
    finishing,
    may_switch,
    migrate_flags,
    remedy,
    steps,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_outcome import (
    Verdict,
    record_of_move,
    starts_with_host,
    superseded,
)
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import FileIdentity
from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed

UUID = "11111111-2222-3333-4444-555555555555"

DESTINATIONS = [
    "running", "paused", "shutdown", "crashed", "absent", "unreachable", "unknown", "incoming", "reserved", "postcopy", "migrated",
]  # fmt: skip
# Actions by source (rows) and destination (columns, as above). `-` is nothing, `~` means that libvirt may still decide.
ACTIONS = """
running     -            clean_dest   -          -          rolled_back   -~ - clean_dest  clean_dest  -  -
paused      clean_source clean_dest   -          -          resume_source -~ - clean_dest~ clean_dest  -  -
shutdown    -            -            -          -          rolled_back   -~ - clean_dest~ clean_dest  -  -
crashed     -            -            -          -          rolled_back   -~ - clean_dest~ clean_dest  -  -
absent      done         resume_dest  -          -          -             -~ - -~          finish_dest -  -
unreachable -~           -~           -~         -~         -~            -~ -~ -~         -~          -~ -~
unknown     -            -            -          -          -             -~ - -           -           -  -
incoming    -            -            -          -          -             -~ - -           -           -  -
reserved    -            -            -          -          -             -~ - -           -           -  -
postcopy    -~           -~           -~         -~         -~            -~ -~ -~         -~          -~ -~
migrated    clean_source resume_dest  -          -          -             -~ - -~          clean_dest  -  -
"""
# What differs for a guest that was paused before.
WAS_PAUSED = {
    ("paused", "running"): "-",
    ("paused", "absent"): "rolled_back",
    ("absent", "paused"): "done",
    ("migrated", "paused"): "clean_source",
}


def judge(source: str, dest: str, **more: t.Any) -> Verdict:
    """What two states mean."""
    return plan_outcome.judge(Observation(source, dest, **more))


def pairs() -> t.Iterator[tuple[str, str, str]]:
    """Source, destination and action of a guest that ran."""
    for line in ACTIONS.strip().splitlines():
        source, *actions = line.split()
        assert len(actions) == len(DESTINATIONS)
        for dest, action in zip(DESTINATIONS, actions):
            yield source, dest, action


def decided(source: str, dest: str, *, was_paused: bool, job_active: bool = False) -> str:
    """An action as the table writes it."""
    found = judge(source, dest, was_paused=was_paused, job_active=job_active)
    return ("-" if found.action == "nothing" else found.action) + ("~" if found.wait else "")


def test_judge_decides_as_the_whole_table_says() -> None:
    wrong = []
    for source, dest, action in pairs():
        for was_paused in (False, True):
            expected = WAS_PAUSED.get((source, dest), action) if was_paused else action
            found = decided(source, dest, was_paused=was_paused)
            if found != expected:
                wrong.append((source, dest, was_paused, found, expected))
            if decided(source, dest, was_paused=was_paused, job_active=True) != "-~":
                wrong.append((source, dest, was_paused, "acts while a job is active", "-~"))
    assert not wrong


def test_only_an_end_that_went_down_is_superseded() -> None:
    plain = {(source, dest): judge(source, dest, was_paused=False).action for source, dest, _action in pairs()}
    superseded = {ends: judge(*ends, was_paused=False, superseded=True).action for ends in plain}
    changed = {ends: action for ends, action in superseded.items() if action != plain[ends]}
    assert changed == {("shutdown", "running"): "clean_source", ("crashed", "running"): "clean_source"}


def test_judge_tells_of_a_job() -> None:
    assert "running a job" in judge("running", "absent", was_paused=False, job_active=True).meaning
    assert "postcopy-resume" in judge("postcopy", "running", was_paused=False, job_active=True).meaning


def disk(how: str, target: str = "vda", **more: t.Any) -> DiskMove:
    """A disk of 1 GiB; a volume is made for it unless it is shared."""
    path = f"/images/{target}.qcow2"
    volume = None if how == SHARED else Volume("default", f"{target}.qcow2", path, 1024**3)
    return DiskMove(target, path, how, "", volume, bytes_to_move=1024**3, **more)


def move(*disks: DiskMove, tuning: Tuning | None = None, **more: t.Any) -> Move:
    """A migration of web1 to hyper2."""
    return Move("web1", UUID, "hyper2", "qemu+tls://hyper2/system", tuning or Tuning(), disks=disks, **more)


LIVE = {"LIVE", "PEER2PEER", "UNDEFINE_SOURCE", "ABORT_ON_ERROR"}
PLAIN: dict[str, t.Any] = {"transport": "plain", "auto_converge": False}
URI = {"migrate_uri": "tcp://hyper2"}
# Tuning and disks, the flags besides LIVE, the parameters.
CALLS: list[tuple[dict[str, t.Any], list[DiskMove], set[str], dict[str, t.Any]]] = [
    ({}, [], {"TLS", "PAUSED", "AUTO_CONVERGE"}, {**URI, "tls.destination": "hyper2"}),
    (PLAIN, [], {"PAUSED"}, URI),
    ({**PLAIN, "transport": "tunnelled"}, [], {"PAUSED", "TUNNELLED"}, {}),
    ({**PLAIN, "parallel": 4}, [], {"PAUSED", "PARALLEL"}, {**URI, "parallel.connections": 4}),
    ({**PLAIN, "compression": ("xbzrle",)}, [], {"PAUSED", "COMPRESSED"}, {**URI, "compression": ["xbzrle"]}),
    ({**PLAIN, "bandwidth_mib_s": 100}, [], {"PAUSED"}, {**URI, "bandwidth": 100}),
    ({**PLAIN, "postcopy": True}, [], {"POSTCOPY"}, URI),
    ({**PLAIN, "schedule": "postcopy"}, [], {"POSTCOPY"}, URI),
    ({**PLAIN, "timeout_action": "postcopy"}, [], {"POSTCOPY"}, URI),
    ({**PLAIN, "schedule": "very_large", "timeout_action": "suspend"}, [], {"PAUSED"}, URI),
    (PLAIN, [disk(SHARED), disk(COPY, "vdb")], {"PAUSED"}, URI),
    (PLAIN, [disk(SHARED), disk(DELTA, "vdb")], {"PAUSED", "NON_SHARED_INC"}, {**URI, "migrate_disks": ["vdb"]}),
    (
        PLAIN,
        [disk(SHARED, vouched=True), disk(DELTA, "vdb")],  # libvirt is told to trust it
        {"PAUSED", "NON_SHARED_INC", "UNSAFE"},
        {**URI, "migrate_disks": ["vdb"]},
    ),
    (PLAIN, [disk(DELTA), disk(COPY, "vdb")], {"PAUSED", "NON_SHARED_INC"}, {**URI, "migrate_disks": ["vda"]}),
    (PLAIN, [disk(FULL), disk(DELTA, "vdb")], {"PAUSED", "NON_SHARED_INC"}, {**URI, "migrate_disks": ["vda", "vdb"]}),
    (
        PLAIN,
        [disk(FULL), disk(FULL, "vdb", flatten=True)],
        {"PAUSED", "NON_SHARED_DISK"},
        {**URI, "migrate_disks": ["vda", "vdb"]},
    ),
]


def test_libvirt_is_told_exactly_this() -> None:
    wrong: list[object] = []
    for tuning, disks, more, parameters in CALLS:
        wish = move(*disks, tuning=Tuning(**tuning))
        flags, found = migrate_flags(wish)
        if (set(flags), len(flags), found) != (LIVE | more, len(LIVE | more), parameters):
            wrong.append((tuning, [each.how for each in disks], flags, found))
        if may_switch(wish) != ("POSTCOPY" in more):
            wrong.append((tuning, "may_switch"))
    assert not wrong


def does(wish: Move, **more: t.Any) -> list[str]:
    """What is done after the arrival, with one disk left on the source."""
    return [f"{step.verb} {path_of(step)}".strip() for step in finish(wish, [LeftDisk("/images/vda.qcow2")], **more)]


def path_of(step: MigrateStep) -> str:
    """Of the file that it is done to."""
    return str(getattr(step, "path", ""))


def test_what_remains_after_the_arrival() -> None:
    remove = "removedisk /images/vda.qcow2"
    cases: list[tuple[Move, dict[str, bool], list[str]]] = [
        (move(), {}, [remove, "forget"]),
        (move(keep_source_storage=True), {}, ["forget"]),
        (move(autostart=True), {}, ["setautostartondest", remove, "forget"]),
        (move(), {"resume": True}, ["resumeondest", remove, "forget"]),
        (move(), {"define": True}, ["defineondest", remove, "forget"]),
        (
            move(autostart=True),
            {"define": True, "resume": True},
            ["resumeondest", "defineondest", "setautostartondest", remove, "forget"],
        ),
    ]
    assert [does(wish, **more) for wish, more, _expected in cases] == [expected for _wish, _more, expected in cases]
    assert [step.verb for step in finish(move(), [])] == ["forget"]
    assert all(
        step.move.guest == "web1" for step in finish(move(autostart=True), [LeftDisk("/a")], resume=True, define=True)
    )


@pytest.mark.parametrize(
    ("action", "reserved", "first"),
    [
        ("resume_dest", False, ["resumeondest"]),
        ("resume_dest", True, ["resumeondest", "defineondest"]),
        ("finish_dest", True, ["defineondest"]),
        ("clean_source", False, []),
        ("done", True, ["defineondest"]),
        ("done", False, []),
    ],
)
def test_what_remains_of_an_interrupted_run(action: str, reserved: bool, first: list[str]) -> None:
    found = [
        step.verb
        for step in finishing(
            move(), [LeftDisk("/a")], action, reserved=reserved, aside={"/b": ("/c/b", FileIdentity(7))}
        )
    ]
    assert found == [*first, "removedisk", "finishremoval", "forget"]


@pytest.mark.parametrize(
    ("autostart", "recorded", "starts"),
    [
        (False, {}, False),
        (True, {}, True),
        (False, {"moving": "hyper2", "moving_autostart": "yes"}, True),
        (False, {"moving": "hyper2", "moving_autostart": ""}, False),
        (False, {"moving": "", "moving_autostart": "yes"}, False),
    ],
)
def test_a_guest_that_was_held_back_starts_with_its_host(
    autostart: bool, recorded: dict[str, str], starts: bool
) -> None:
    assert starts_with_host(recorded, autostart=autostart) is starts


VARIABLES = (LeftDisk("/nvram", FileIdentity(7)),)


def test_variables_go_from_the_source_after_the_disks_by_what_they_were() -> None:
    planned = steps(move(disk(FULL), disk(COPY, "vdb"), variables=VARIABLES))
    removed = [(step.path, step.identity) for step in planned if isinstance(step, RemoveDisk)]
    assert removed == [("/images/vdb.qcow2", None), ("/images/vda.qcow2", None), ("/nvram", FileIdentity(7))]
    assert [step.verb for step in planned[-2:]] == ["removedisk", "forget"]


RECORDED = {
    "moving": "hyper2",
    "moving_from": "u1",
    "moving_seen": "",
    "moving_paused": "",
    "moving_autostart": "",
    "moving_suspends": "",
}


@pytest.mark.parametrize(
    ("moved", "recorded"),
    [
        (move(disk(FULL)), {"moving_goes": ("/images/vda.qcow2",)}),
        (move(disk(FULL), keep_source_storage=True), {}),
        (move(disk(FULL, delete_source=False)), {}),
        (move(disk(SHARED)), {}),
        (move(disk(FULL), variables=VARIABLES), {"moving_goes": ("/images/vda.qcow2", "7 - - /nvram")}),
        (move(disk(FULL), variables=VARIABLES, keep_source_storage=True), {}),
        (move(paused=True), {"moving_paused": "yes"}),
        (move(autostart=True), {"moving_autostart": "yes"}),
        (move(tuning=Tuning(timeout_action="suspend")), {"moving_suspends": "yes"}),
    ],
)
def test_what_is_recorded_before_anything_is_made(moved: Move, recorded: dict[str, t.Any]) -> None:
    moved = dataclasses.replace(moved, source_uuid="u1")
    whose = {"moving_seal": sealed(moved.uuid)}
    assert record_of_move(moved, {}) == {**RECORDED, **whose, "moving_goes": (), **recorded}


@pytest.mark.parametrize(
    "identity", [None, FileIdentity(7), FileIdentity(7, 1700000000123456789), FileIdentity(7, 5, "0badc0de")]
)
def test_what_file_goes_is_recorded(identity: FileIdentity | None) -> None:
    path = "/images/a b.qcow2"
    [text] = record_of_move(move(dataclasses.replace(disk(FULL), path=path)), {path: identity})["moving_goes"]
    assert LeftDisk.parse(text) == LeftDisk(path, identity)


def test_only_copied_disks_that_go_are_removed_from_the_source() -> None:
    disks = [disk(SHARED), disk(DELTA, "vdb"), disk(FULL, "vdc", delete_source=False), disk(COPY, "vdd")]
    found = [(step.verb, path_of(step)) for step in steps(move(*disks, files=("/nvram",)))]
    assert found == [
        ("record", ""), ("makedisk", "/images/vdb.qcow2"), ("makedisk", "/images/vdc.qcow2"), ("copydisk", "/images/vdd.qcow2"),
        ("copyfile", "/nvram"),
        ("reserve", ""), ("migrate", ""), ("defineondest", ""),
        ("removedisk", "/images/vdd.qcow2"), ("removedisk", "/images/vdb.qcow2"), ("forget", ""),
    ]  # fmt: skip
    off = [
        (step.verb, path_of(step)) for step in steps(move(disk(COPY, "vdd"), active=False, keep_source_storage=True))
    ]
    assert off == [
        ("record", ""),
        ("copydisk", "/images/vdd.qcow2"),
        ("reserve", ""),
        ("undefineonsource", ""),
        ("defineondest", ""),
        ("forget", ""),
    ]
    assert all(step.move.dest == "hyper2" and str(step) for step in steps(move(*disks)))


def test_a_running_guest_is_recorded_before_anything_is_made_and_the_sources_disks_go_last() -> None:
    verbs = [step.verb for step in steps(move(disk(DELTA), autostart=True))]
    assert verbs == [
        "record", "disableautostart", "makedisk", "reserve", "migrate", "defineondest", "setautostartondest", "removedisk",
        "forget",
    ]  # fmt: skip


def test_a_guest_that_is_off_cannot_be_started_in_two_places() -> None:
    verbs = [step.verb for step in steps(move(disk(COPY), active=False))]
    assert verbs == ["record", "copydisk", "reserve", "undefineonsource", "defineondest", "removedisk", "forget"]


def test_steps_name_what_they_do() -> None:
    based = disk(DELTA, "vdb")
    based = dataclasses.replace(
        based, volume=dataclasses.replace(t.cast(Volume, based.volume), backing_path="/images/base.qcow2")
    )
    texts = [str(step) for step in steps(move(disk(FULL), based, disk(COPY, "vdd")))]
    assert (
        "on /images/base.qcow2" in texts[2]
        and "base.qcow2" not in texts[1]
        and texts[3].startswith("copy /images/vdd.qcow2")
    )
    assert texts[5] == "migrate web1 to hyper2 (vda full, vdb delta)"
    assert "(no disks)" in str(steps(move())[2])
    [made] = [step for step in steps(move(based)) if isinstance(step, MakeDisk)]
    assert str(dataclasses.replace(made, disk=disk(FULL))) == "create an empty /images/vda.qcow2 on hyper2"
    nowhere = dataclasses.replace(made, disk=dataclasses.replace(based, volume=None))
    assert str(nowhere) == "create an empty /images/vdb.qcow2 on hyper2"


def test_steps_name_the_path_on_each_host() -> None:
    away = [
        dataclasses.replace(each, volume=dataclasses.replace(t.cast(Volume, each.volume), path=f"/b/{each.target}"))
        for each in (disk(FULL), disk(COPY, "vdd"))
    ]
    moved = move(*away, disk(FULL, "vdb"))
    texts = [str(step) for step in steps(moved)]
    assert texts[1] == "create an empty /b/vda on hyper2"
    assert texts[2] == "copy /images/vdd.qcow2 to hyper2 (/b/vdd)"
    assert "remove /images/vda.qcow2 from the source" in texts
    assert moved.renamed == {"/images/vda.qcow2": "/b/vda", "/images/vdd.qcow2": "/b/vdd"}


def test_every_step_says_what_it_does_to_which_guest() -> None:
    moved = dataclasses.replace(move(), files=("/nvram/web1.fd",))
    texts = [str(step) for step in (*steps(moved), *finish(moved, [], resume=True), *aborting(moved, job_active=True))]
    assert "copy /nvram/web1.fd to hyper2" in texts
    assert "resume web1 on hyper2" in texts
    assert texts[-1] == "abort the migration of web1"
    assert aborting(moved, job_active=False) == []
    [made] = [str(step) for step in steps(move(disk(FULL))) if "create" in str(step)]
    assert made == "create an empty /images/vda.qcow2 on hyper2"


def test_a_known_reason_gets_a_remedy() -> None:
    assert remedy("certificate has expired").startswith("certificate has expired (check both hosts' certificates")
    assert "vm.unprivileged_userfaultfd" in remedy("Postcopy is not supported")
    assert "transport: plain" in remedy("Unable to access credentials")
    assert remedy("No space left on device").startswith("No space left on device (")
    assert "shut the guest down" in remedy("Duplicate nodes with node-name='migration-vda-storage'")
    assert remedy("something else") == "something else"


@pytest.mark.parametrize(
    ("reason", "known"),
    [
        ("authentication failed: Failed to verify peer's certificate", True),
        ("The server certificate /etc/pki/libvirt/servercert.pem has expired", True),
        ("internal error: unable to execute QEMU command: The certificate hasn't got a known issuer", True),
        ("Certificate does not match the hostname hyper2", True),
        ("Verify failed: No certificate was found.", True),
        ("cannot open /srv/certificate/web.qcow2: Permission denied", False),
        ("cannot open /srv/certificate.qcow2: Permission denied", False),
        ("domain my-certificate-box is not running", False),
    ],
)
def test_the_word_certificate_is_not_taken_from_a_path_or_a_name(reason: str, *, known: bool) -> None:
    assert ("check both hosts' certificates" in remedy(reason)) == known


def test_the_more_particular_remedy_is_given() -> None:
    assert "free space" in remedy("cannot write the copy of a certificate: No space left on device")


def test_what_the_source_has_is_old_only_when_nobody_wrote_since() -> None:
    cases: list[tuple[float, list[float | None], bool]] = [
        (0, [], False),
        (0, [5], False),
        (9, [], True),
        (9, [9, 1], True),
        (9, [9, 9.5], False),
        (9, [1, None], False),
    ]
    assert [superseded(let_run_s, written_s) for let_run_s, written_s, _old in cases] == [old for *_case, old in cases]
