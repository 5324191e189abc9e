"""What becomes of a guest's seed, as tables: written, written anew, applied to its disk, left, or refused."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Refused
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import Disk, GuestSpec, Seed, Volume
from ansible_collections.corral.virt.plugins.module_utils._guest import plan_guest_steps, plan_seeding
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_disk import DiskPlan
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_customize, plan_seed
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_disk_facts import (
    NOBODY,
    Customizing,
    DiskDevice,
    Known,
    SeedDisk,
    SeedSite,
)
from ansible_collections.corral.virt.plugins.module_utils._storage.plan_pool_files import PoolDirectory
from ansible_collections.corral.virt.plugins.module_utils._system.model_identity import OwnedVolume

ISO, SYSTEM = "/images/web1-seed.iso", "/images/web1-system.qcow2"
KEY = ("(private)", "ssh-ed25519 AAAA")
SITE = SeedSite(
    KEY, PoolDirectory("default", "dir", "/images", here=True), exists=False, uri="qemu:///system", here=True
)
OVERLAY = plan_guest_steps.CreateVolume(
    "web1", Volume("default", "web1-system.qcow2", SYSTEM, 1, backing_path="/images/b"), "<volume/>"
)
EMPTY = plan_guest_steps.CreateVolume(
    "web1", Volume("default", "web1-data.qcow2", "/images/web1-data.qcow2", 1), "<volume/>"
)
NEW = DiskPlan((Disk("data"), Disk("system")), (EMPTY, OVERLAY), making=("/images/web1-data.qcow2", SYSTEM))
OLD = DiskPlan((Disk("system"),))


def seed(**output: t.Any) -> Seed:
    """As option `cloud_init` says it."""
    return plan_seed.seed({"user_data": {"hostname": "a"}, **output}, guest="web1")


NOCLOUD, OFFLINE = seed(), seed(method="virt_customize")


def wanted(what: Seed | None, **more: t.Any) -> GuestSpec:
    """A guest with that seed."""
    return GuestSpec("web1", seed=what, **more)


def own(*paths: str) -> tuple[OwnedVolume, ...]:
    """Entries of the guest's record."""
    return tuple(map(NOBODY.made, paths))


def known(digest: str | None = None, **more: t.Any) -> Known:
    """Of a guest that has a seed disk."""
    return Known({"seed": DiskDevice(ISO, "vdz")}, seed=digest, **more)


# who uses files on the host
USERS = {"/taken/web1-seed.iso": "guest web2"}


def xml_of(volume: Volume) -> str:
    """As `host_xml.new_volume` does it, shorter."""
    return f"<volume name='{volume.name}'/>"


def planned(
    what: Seed | None, of: Known, disks: DiskPlan, site: SeedSite | None = None, **more: t.Any
) -> plan_seeding.Seeding:
    """The plan for that seed."""
    spec = wanted(what, **more)
    return plan_seeding.plan(spec, of, disks, plan_seeding.seed_case(spec, of, disks), site, xml_of, USERS.get)


CASES = [
    ("nocloud", "ignore", True, None, "write"),
    ("nocloud", "refuse", True, "other", "write"),
    ("virt_customize", "ignore", True, None, "customize"),
    ("nocloud", "refuse", False, "same", "done"),
    ("virt_customize", "refuse", False, "same", "done"),
    ("nocloud", "ignore", False, "other", "ignored"),
    ("nocloud", "refuse", False, "other", "differs"),
    ("nocloud", "next_boot", False, "other", "rewrite"),
    ("virt_customize", "ignore", False, "other", "ignored"),
    ("virt_customize", "refuse", False, "other", "differs"),
    ("virt_customize", "ignore", False, None, "too late"),
    ("virt_customize", "refuse", False, None, "too late"),
]


@pytest.mark.parametrize(("method", "on_change", "first", "recorded", "case"), CASES)
def test_a_seed_is_one_case(method: str, on_change: str, first: bool, recorded: str | None, case: str) -> None:
    what = seed(method=method, on_change=on_change)
    assert plan_seeding.case_of(what, first=first, recorded=what.digest if recorded == "same" else recorded) == case


ANEW = dataclasses.replace(NOCLOUD, on_change="next_boot")
OWN_KEYS = dataclasses.replace(NOCLOUD, host_keys={"ed25519": "mine", "rsa": "other"})
WRITTEN = SeedDisk("default", "web1-seed.iso", "", ours=False)
AGAIN = SeedDisk("default", "web1-seed.iso", ISO, ours=True)
FAST = dataclasses.replace(OVERLAY, volume=dataclasses.replace(OVERLAY.volume, pool="fast"))
RESIZED = plan_guest_steps.WriteSeed("web1", Volume("slow", "a", "/slow/a", 1), {})
QUESTIONS: list[tuple[Seed | None, Known, DiskPlan, str, object]] = [
    (None, Known(), NEW, "unspoken", None),
    (NOCLOUD, Known(), NEW, "write", WRITTEN),
    (NOCLOUD, Known(), OLD, "write", WRITTEN),
    # where the first new disk is made
    (
        NOCLOUD,
        Known(),
        DiskPlan((Disk("a"), Disk("b", pool="fast"), Disk("c", pool="slow"))),
        "write",
        SeedDisk("fast", "web1-seed.iso", "", ours=False),
    ),
    (
        NOCLOUD,
        Known(),
        DiskPlan((Disk("system"),), (RESIZED, FAST)),
        "write",
        SeedDisk("fast", "web1-seed.iso", "", ours=False),
    ),
    (OWN_KEYS, Known(), NEW, "write", SeedDisk("default", "web1-seed.iso", "", ours=False, private="mine")),
    (NOCLOUD, known(NOCLOUD.digest), OLD, "done", None),
    (NOCLOUD, known("other"), OLD, "ignored", None),
    (ANEW, known("other"), OLD, "rewrite", AGAIN),
    # whatever the file is called
    (
        ANEW,
        Known({"seed": DiskDevice("/images/before.iso", "vdz")}, seed="other"),
        OLD,
        "rewrite",
        SeedDisk("default", "before.iso", "/images/before.iso", ours=True),
    ),
    (NOCLOUD, known(NOCLOUD.digest, owned=own(ISO), making=(ISO,)), OLD, "write", AGAIN),
    (NOCLOUD, known(NOCLOUD.digest, making=(ISO,)), OLD, "write", dataclasses.replace(AGAIN, ours=False)),
    (NOCLOUD, known(NOCLOUD.digest, making=(SYSTEM,)), OLD, "done", None),
    (OFFLINE, Known(), NEW, "customize", Customizing()),
    (dataclasses.replace(OFFLINE, host_keys={"rsa": "mine"}), Known(), NEW, "customize", Customizing("mine")),
    (OFFLINE, Known(), DiskPlan(steps=(EMPTY,)), "too late", None),
    (OFFLINE, Known(owned=own(SYSTEM), making=(SYSTEM,)), NEW, "customize", Customizing()),
    (OFFLINE, Known(owned=own(SYSTEM)), NEW, "too late", None),
]


@pytest.mark.parametrize(("what", "of", "disks", "name", "question"), QUESTIONS)
def test_no_more_is_asked_than_is_needed(
    what: Seed | None, of: Known, disks: DiskPlan, name: str, question: object
) -> None:
    case = plan_seeding.seed_case(wanted(what), of, disks)
    assert (case.name, case.question) == (name, question)


def test_what_may_be_done_about_another_seed() -> None:
    choices = GUEST_OPTIONS["cloud_init"]["options"]["on_change"]["choices"]
    assert choices == list(plan_seed.ON_CHANGE) == ["ignore", "next_boot", "refuse"]


def test_a_seed_is_written_before_the_disks_are_made() -> None:
    plan = planned(NOCLOUD, Known(), NEW, SITE)
    first, *rest = plan.disks.steps
    assert isinstance(first, plan_guest_steps.WriteSeed) and rest == [EMPTY, OVERLAY]
    assert (first.guest, first.volume, first.replace) == (
        "web1",
        Volume("default", "web1-seed.iso", ISO, 1, "raw"),
        False,
    )
    assert KEY[0] in first.files["vendor-data"] and plan.disks.making == (*NEW.making, ISO)
    assert [item.name for item in plan.disks.disks or ()] == ["data", "system", "seed"]
    assert (plan.disks.disks or ())[-1].fields == {"source": ISO, "format": "raw", "bus": "virtio", "readonly": True}
    instance = f"web1-{NOCLOUD.digest[:12]}"
    assert plan.remember == {"seed": NOCLOUD.digest, "instance_id": instance, "ssh_host_key": KEY[1], "addresses": ()}
    assert not plan.rewritten and plan.notes == ()


def test_a_changed_seed_takes_the_place_of_the_old_one() -> None:
    plan = planned(
        ANEW,
        known("other"),
        DiskPlan((Disk("seed"), Disk("system"))),
        dataclasses.replace(SITE, pool=None, exists=True),
    )
    [step] = plan.disks.steps
    assert plan.rewritten and isinstance(step, plan_guest_steps.WriteSeed) and step.replace and step.volume.path == ISO
    assert [item.name for item in plan.disks.disks or ()] == ["system", "seed"]
    assert not planned(NOCLOUD, known(making=(ISO,)), OLD, SITE).rewritten


def test_a_seed_is_applied_to_the_disk_under_another_name() -> None:
    plan = planned(OFFLINE, Known(), NEW, SITE)
    other, made, applied = plan.disks.steps
    assert (
        other is EMPTY
        and isinstance(made, plan_guest_steps.CreateVolume)
        and isinstance(applied, plan_guest_steps.Customize)
    )
    assert (made.volume.path, made.volume.name, made.replace) == (
        SYSTEM + ".unseeded",
        "web1-system.qcow2.unseeded",
        True,
    )
    assert made.xml == "<volume name='web1-system.qcow2.unseeded'/>"
    assert (applied.pool, applied.source, applied.path) == ("default", SYSTEM + ".unseeded", SYSTEM)
    assert (
        "KHByaXZhdGUp" in str(applied.commands)
        and plan.disks.making == NEW.making
        and plan.remember["ssh_host_key"] == KEY[1]
    )
    assert not applied.replace
    unnamed = seed(user_data={}, method="virt_customize")
    again = dataclasses.replace(NEW, steps=(EMPTY, dataclasses.replace(OVERLAY, replace=True)))
    [*_others, applied] = planned(unnamed, Known(), again, SITE).disks.steps
    assert isinstance(applied, plan_guest_steps.Customize) and applied.replace
    assert applied.commands == plan_customize.commands(unnamed, guest="web1", keys={"ed25519": KEY[0]})
    assert applied.commands != plan_customize.commands(unnamed, guest="web2", keys={"ed25519": KEY[0]})
    own = dataclasses.replace(OFFLINE, host_keys={"rsa": "mine"})
    last = planned(own, Known(), NEW, SITE).disks.steps[-1]
    assert (
        isinstance(last, plan_guest_steps.Customize)
        and "ssh_host_rsa_key" in str(last.commands)
        and "KHByaXZhdGUp" not in str(last.commands)
    )


REFUSALS: list[tuple[Seed, Known, DiskPlan, SeedSite | None, str]] = [
    (
        NOCLOUD,
        Known(),
        NEW,
        dataclasses.replace(SITE, exists=True),
        f"{ISO} exists already; another host may use it. If not, remove it",
    ),
    (
        NOCLOUD,
        Known(),
        NEW,
        dataclasses.replace(SITE, exists=True, pool=PoolDirectory("taken", "dir", "/taken", here=True)),
        "/taken/web1-seed.iso exists already, and guest web2 uses it; choose another name for the guest",
    ),
    (
        OFFLINE,
        Known(),
        NEW,
        dataclasses.replace(SITE, here=False, uri="qemu+ssh://a/system"),
        r"over qemu\+ssh://a/system: it needs the",
    ),
    (OFFLINE, known(), OLD, None, "none of its disks is created from an image now"),
    (
        dataclasses.replace(NOCLOUD, on_change="refuse"),
        known("other"),
        OLD,
        None,
        "set cloud_init.on_change to next_boot or ignore",
    ),
]


@pytest.mark.parametrize(("what", "of", "disks", "site", "why"), REFUSALS)
def test_what_is_refused(what: Seed, of: Known, disks: DiskPlan, site: SeedSite | None, why: str) -> None:
    with pytest.raises(Refused, match=why):
        planned(what, of, disks, site)


def test_a_seed_that_stays_changes_nothing() -> None:
    assert planned(NOCLOUD, known(NOCLOUD.digest), OLD) == plan_seeding.Seeding(OLD)
    note = (
        "cloud_init of web1 differs from the seed it was created with; nothing was done (cloud_init.on_change: ignore)"
    )
    assert planned(NOCLOUD, known("other"), OLD) == plan_seeding.Seeding(OLD, notes=(note,))


@pytest.mark.parametrize(
    ("state", "refused"), [("running", True), ("paused", True), ("rebooted", True), ("present", False)]
)
def test_a_seed_that_is_incomplete_and_not_spoken_of(state: str, refused: bool) -> None:
    of = known(making=(SYSTEM, ISO))
    if refused:
        with pytest.raises(
            Refused, match=f"an interrupted run left its seed {ISO} incomplete; set its cloud_init again"
        ):
            planned(None, of, OLD, state=state)
    else:
        assert planned(None, of, OLD, state=state).disks.left == (ISO,)
    assert planned(None, dataclasses.replace(of, active=True), OLD, state=state).disks.left == (ISO,)
    assert planned(None, of, DiskPlan(left=(ISO,)), state=state).disks.left == (ISO,)
    assert planned(None, known(making=(SYSTEM,)), OLD, state=state).disks.left == ()


def test_a_seed_names_its_guest_where_nothing_else_does() -> None:
    [step, *_rest] = planned(NOCLOUD, Known(), NEW, SITE).disks.steps
    assert isinstance(step, plan_guest_steps.WriteSeed) and '"local-hostname": "web1"' in step.files["meta-data"]
    *_others, made, applied = planned(OFFLINE, Known(), NEW, SITE).disks.steps
    assert (getattr(made, "guest", ""), getattr(applied, "guest", "")) == ("web1", "web1")


def test_a_name_that_cannot_be_a_file_gets_no_seed_but_may_have_one() -> None:
    odd = GuestSpec("a/b", seed=ANEW)
    with pytest.raises(BadInput, match="a new seed is named after its guest"):
        plan_seeding.seed_case(odd, Known(), NEW)
    assert plan_seeding.seed_case(odd, known("other"), OLD).question == AGAIN


def test_a_seed_that_nobody_has_asked_the_host_about_is_left() -> None:
    assert planned(NOCLOUD, Known(), NEW) == plan_seeding.Seeding(NEW)
    assert planned(OFFLINE, Known(), NEW) == plan_seeding.Seeding(NEW)
    assert planned(ANEW, known("other"), OLD, None) == plan_seeding.Seeding(OLD)
