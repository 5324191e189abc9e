"""`virt_tuning`: what is written, set and run on a host, and what is refused before anything is touched."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.step import Plan
from ansible_collections.corral.virt.plugins.module_utils._host import model_tuning, plan_tuning
from ansible_collections.corral.virt.plugins.module_utils._host.model_tuning import (
    ARGUMENTS,
    GRUB,
    GUESTS,
    KERNEL_CMDLINE,
    KSM,
    MARK,
    REBOOT,
    SYSCTL,
    THP,
    TMPFILES,
    TuningFacts,
    pages_directory,
    proc_path,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile
from ansible_collections.corral.virt.plugins.module_utils._host.run_tuning import OPTIONS

SMALL, LARGE = 2048, 1024**2
SWAPPINESS = "/proc/sys/vm/swappiness"
GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
DEBIAN = GUESTS["Debian"]
HOST = TuningFacts(
    texts={DEBIAN: "# of the package\n#ON_BOOT=start\n"},
    values={
        SWAPPINESS: "60\n",
        THP: "always [madvise] never\n",
        KSM: "0\n",
        **{GOVERNOR.format(number): "powersave\n" for number in (0, 1)},
    },
    governors={GOVERNOR.format(number): ("performance", "powersave") for number in (0, 1)},
    pages={
        **{pages_directory(size, None): 0 for size in (SMALL, LARGE)},
        **{pages_directory(size, node): 0 for size in (SMALL, LARGE) for node in (0, 1)},
    },
    mounted_pages=frozenset({SMALL}),
    default_page_kib=SMALL,
    loader="grub",
    boot_arguments=frozenset({"ro", "quiet"}),
    cmdline=frozenset({"ro", "quiet", "BOOT_IMAGE=/vmlinuz"}),
    guests_file=DEBIAN,
)
ALL: dict[str, t.Any] = {
    "sysctl": {"vm.swappiness": 0},
    "hugepages": [{"size": "2M", "count": 512}],
    "kernel_arguments": ["intel_iommu=on"],
    "transparent_hugepages": "always",
    "ksm": True,
    "cpu_governor": "performance",
    "libvirt_guests": "shutdown",
}


def plan(facts: TuningFacts = HOST, **options: t.Any) -> Plan[HostStep]:
    """What would be done."""
    given = {name: spec.get("default") for name, spec in OPTIONS.items()} | options
    return plan_tuning.decide(plan_tuning.spec(given), facts)


def steps(facts: TuningFacts = HOST, **options: t.Any) -> list[str]:
    """The steps as a user reads them."""
    return [str(step) for step in plan(facts, **options).steps]


def after(facts: TuningFacts, made: Plan[HostStep], *, booted: bool = False) -> TuningFacts:
    """The host when the steps are done, as its kernel, systemd and boot loader see to it."""
    texts, values, pages = dict(facts.texts), dict(facts.values), dict(facts.pages)
    active, mounted = set(facts.active), set(facts.mounted_pages)
    for step in made.steps:
        if isinstance(step, WriteFile):
            texts[step.path] = step.content
        elif isinstance(step, plan_tuning.RemoveFile):
            del texts[step.path]
        elif isinstance(step, plan_tuning.SetValue):
            values.update(dict.fromkeys(step.paths, f"{step.value}\n"))
        elif isinstance(step, plan_tuning.SetPages):
            pages[step.pages.directory] = step.pages.count
        elif isinstance(step, plan_tuning.StartUnit):
            active.add(step.unit)
            mounted |= {LARGE} if "1G" in step.unit else set()
        elif isinstance(step, plan_tuning.StopUnit):
            active.discard(step.unit)
            mounted.discard(LARGE)
    found = dataclasses.replace(facts, texts=texts, values=values, pages=pages, mounted_pages=frozenset(mounted))
    ours = frozenset(plan_tuning.ours_before(found))
    new = (facts.boot_arguments - frozenset(plan_tuning.ours_before(facts))) | ours
    if booted:
        texts.pop(REBOOT, None)
    return dataclasses.replace(
        found,
        active=frozenset(active),
        enabled=frozenset(active),
        boot_arguments=new,
        cmdline=new | {"BOOT_IMAGE=/vmlinuz"} if booted else facts.cmdline,
    )


def refused(facts: TuningFacts = HOST, **options: t.Any) -> str:
    """Why nothing is done."""
    with pytest.raises(Refused, match="cannot") as error:
        plan(facts, **options)
    return str(error.value)


def bad(**options: t.Any) -> list[str]:
    """Problems of the options alone."""
    with pytest.raises(BadInput, match=r".") as error:
        plan(**options)
    return error.value.problems


def test_a_host_that_nothing_is_asked_of_stays_as_it_is() -> None:
    assert plan() == Plan()


def test_all_is_set_now_and_for_the_next_start() -> None:
    made = plan(**ALL)
    assert [str(step) for step in made.steps] == [
        f"write {SYSCTL}",
        f"write {TMPFILES}",
        f"write {GRUB}",
        f"write {REBOOT}",
        f"write {DEBIAN}",
        "run update-grub",
        "enable and start libvirt-guests.service",
        "set vm.swappiness to 0 now",
        "set transparent_hugepages to always now",
        "set ksm to 1 now",
        "set cpu_governor to performance now",
        "take 512 huge pages of 2M now",
    ]
    texts = {step.path: step.content for step in made.steps if isinstance(step, WriteFile)}
    assert texts[SYSCTL] == f"{MARK}\nvm.swappiness = 0\n"
    assert texts[TMPFILES].splitlines()[1:] == [
        f"w {THP} - - - - always",
        f"w {KSM} - - - - 1",
        "w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance",
        "w /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages - - - - 512",
    ]
    assert texts[GRUB] == f'{MARK}\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on"\n'
    assert texts[DEBIAN] == (
        "# of the package\n#ON_BOOT=start\n# BEGIN corral.virt\nON_BOOT=ignore\nON_SHUTDOWN=shutdown\n"
        "PARALLEL_SHUTDOWN=10\nSHUTDOWN_TIMEOUT=300\n# END corral.virt\n"
    )
    changed = {change.where: (change.before, change.after) for change in made.changes}
    assert changed["vm.swappiness"] == ("60", "0") and changed["hugepages[2M]"] == (0, 512)
    assert changed["transparent_hugepages"] == ("madvise", "always")
    assert "lacks intel_iommu=on" in made.pending[0] and "corral.virt.rolling_update" in made.pending[0]


@pytest.mark.parametrize("booted", [False, True])
def test_a_second_run_changes_nothing_and_what_is_omitted_goes(*, booted: bool) -> None:
    large = {**ALL, "hugepages": [{"size": "1G", "count": 2, "node": 1}]}
    for options in (ALL, large):
        host = after(HOST, plan(**options), booted=booted)
        assert steps(host, **options) == []
        assert bool(plan(host, **options).pending) != booted
        gone = plan(host)
        back = after(host, gone)
        assert back.texts == HOST.texts and back.boot_arguments == HOST.boot_arguments
        assert "run update-grub" in map(str, gone.steps)
        assert [text for text in gone.pending if "vm.swappiness, " in text and "until the host is rebooted" in text]
        assert plan(back) == Plan()


def test_pages_of_another_size_get_a_mount_and_are_reserved_at_the_start() -> None:
    asked = [{"size": "1G", "count": 3, "node": 0}, {"size": "1G", "count": 1, "node": 1}, {"size": "2M", "count": 8}]
    made = plan(hugepages=asked)
    unit = "/etc/systemd/system/dev-hugepages1G.mount"
    assert f"write {unit}" in map(str, made.steps) and "enable and start dev-hugepages1G.mount" in map(str, made.steps)
    assert "take 3 huge pages of 1G on node 0 now" in map(str, made.steps)
    texts = {step.path: step.content for step in made.steps if isinstance(step, WriteFile)}
    assert "Options=pagesize=1G," in texts[unit] and "hugepagesz=1G hugepages=4" in texts[GRUB]
    host = after(HOST, made, booted=True)
    assert steps(host)[-4:] == [
        "run update-grub",
        f"remove {GRUB}",
        "disable and stop dev-hugepages1G.mount",
        f"remove {unit}",
    ]
    mounted = dataclasses.replace(HOST, mounted_pages=frozenset({SMALL, LARGE}))  # by somebody else
    assert not [step for step in steps(mounted, hugepages=asked) if "mount" in step]
    bare = dataclasses.replace(HOST, mounted_pages=frozenset())
    assert "start dev-hugepages.mount" in steps(bare, hugepages=[{"size": "2M", "count": 8}])


def test_fewer_pages_than_asked_for_are_red() -> None:
    step = next(
        step for step in plan(hugepages=[{"size": "2M", "count": 9}]).steps if isinstance(step, plan_tuning.SetPages)
    )
    plan_tuning.check_pages(step, 9)
    with pytest.raises(Failed, match=r"the kernel gave 7.*reboot=always"):
        plan_tuning.check_pages(step, 7)


@pytest.mark.parametrize(
    ("loader", "removal", "addition"),
    [
        ("grubby", "--remove-args=intel_iommu=on", "--args=amd_iommu=on iommu=pt"),
        ("systemd-boot", "kernel-install add 6.1 /boot/vmlinuz-6.1", "kernel-install add 6.1 /boot/vmlinuz-6.1"),
    ],
)
def test_other_boot_loaders(loader: str, removal: str, addition: str) -> None:
    kernels = (("6.1", "/boot/vmlinuz-6.1"),)
    facts = dataclasses.replace(HOST, loader=loader, kernels=kernels)
    made = plan(facts, kernel_arguments=["intel_iommu=on"])
    host = after(facts, made, booted=True)
    assert host.texts[ARGUMENTS] == f"{MARK}\nintel_iommu=on\n"
    assert steps(host, kernel_arguments=["intel_iommu=on"]) == []
    changed = steps(host, kernel_arguments=["amd_iommu=on", "iommu=pt"])
    assert [step for step in changed if removal in step] and [step for step in changed if addition in step]
    assert changed[-1] == f"write {ARGUMENTS}"
    gone = after(host, plan(host))
    assert ARGUMENTS not in gone.texts and "intel_iommu=on" not in gone.texts.get(KERNEL_CMDLINE, "")


def test_the_line_of_kernel_install_keeps_what_others_have_in_it() -> None:
    facts = dataclasses.replace(HOST, loader="systemd-boot", texts={KERNEL_CMDLINE: "root=UUID=a  ro quiet\n"})
    host = after(facts, plan(facts, kernel_arguments=["iommu=pt"]))
    assert host.texts[KERNEL_CMDLINE] == "root=UUID=a ro quiet iommu=pt\n"
    assert after(host, plan(host)).texts[KERNEL_CMDLINE] == "root=UUID=a ro quiet\n"


def test_an_update_of_the_boot_loader_that_failed_is_made_up_for() -> None:
    host = after(HOST, plan(kernel_arguments=["iommu=pt"]))
    failed = dataclasses.replace(host, boot_arguments=HOST.boot_arguments)
    assert steps(failed, kernel_arguments=["iommu=pt"]) == ["run update-grub"]


def until_failure(facts: TuningFacts, made: Plan[HostStep], *, steps_done: int) -> TuningFacts:
    """The host when a run was killed, or its update of the boot loader has failed, after so many steps."""
    begun = after(facts, Plan(made.steps[:steps_done]))
    updated = any(isinstance(step, plan_tuning.UpdateBootLoader) for step in made.steps[:steps_done])
    return begun if updated else dataclasses.replace(begun, boot_arguments=facts.boot_arguments)


@pytest.mark.parametrize("loader", ["grub", "grubby", "systemd-boot"])
@pytest.mark.parametrize("left", [[], ["iommu=pt"], ["b=c"]])
def test_arguments_that_go_leave_the_entries_even_if_a_run_is_killed_at_any_step(loader: str, left: list[str]) -> None:
    kernels = tuple((version, f"/boot/vmlinuz-{version}") for version in ("6.1", "6.12"))
    facts = dataclasses.replace(HOST, loader=loader, kernels=kernels if loader == "systemd-boot" else ())
    host = after(facts, plan(facts, kernel_arguments=["intel_iommu=on", "iommu=pt"]), booted=True)
    made = plan(host, kernel_arguments=left)
    done = after(host, made)
    assert done.boot_arguments == facts.boot_arguments | {*left} and not plan(done, kernel_arguments=left).steps
    for number in range(len(made.steps)):
        killed = until_failure(host, made, steps_done=number)
        again = plan(killed, kernel_arguments=left)
        assert any(isinstance(step, plan_tuning.UpdateBootLoader) for step in again.steps), number
        assert after(killed, again) == done


def test_an_argument_that_some_entries_have_lost_leaves_the_others() -> None:
    """kernel-install has failed for the second kernel."""
    facts = dataclasses.replace(HOST, loader="systemd-boot", kernels=(("6.1", "/a"), ("6.12", "/b")))
    host = after(facts, plan(facts, kernel_arguments=["iommu=pt"]), booted=True)
    assert "run kernel-install add 6.12 /b" in steps(dataclasses.replace(host, boot_arguments=HOST.boot_arguments))


@pytest.mark.parametrize(
    ("mode", "lines"),
    [("ignore", ["URIS=''"]), ("suspend", ["ON_BOOT=start", "ON_SHUTDOWN=suspend"])],
)
def test_guests_when_the_host_stops(mode: str, lines: list[str]) -> None:
    made = plan(libvirt_guests=mode)
    text = after(HOST, made).texts[DEBIAN]
    assert text.splitlines()[2:] == ["# BEGIN corral.virt", *lines, "# END corral.virt"]
    assert ("enable and start libvirt-guests.service" in map(str, made.steps)) == (mode != "ignore")
    red_hat = dataclasses.replace(HOST, texts={}, guests_file=GUESTS[""])
    host = after(red_hat, plan(red_hat, libvirt_guests=mode))
    assert GUESTS[""] in host.texts and after(host, plan(host)).texts == {}


def test_what_has_no_effect_is_told() -> None:
    bare = dataclasses.replace(HOST, governors={}, values={SWAPPINESS: "0"}, ksmtuned=True)
    made = plan(bare, sysctl={"net.bridge.bridge-nf-call-arptables": 0}, cpu_governor="performance", ksm=False)
    text = " ".join(made.notes)
    assert "no net.bridge.bridge-nf-call-arptables" in text and "br_netfilter" in text
    assert "no cpufreq" in text and f"no {KSM}" in text and "ksmtuned" in text
    assert list(map(str, made.steps)) == [f"write {SYSCTL}", f"write {TMPFILES}"]


@pytest.mark.parametrize(
    ("file", "wins"),
    [("/etc/sysctl.d/99-sysctl.conf", True), ("/usr/lib/sysctl.d/10-a.conf", False), (SYSCTL, False)],
)
def test_a_file_that_wins_is_named(file: str, *, wins: bool) -> None:
    facts = dataclasses.replace(HOST, sysctl_files=((file, "# vm.swappiness=1\n-vm/swappiness =  10\nkernel.x=1\n"),))
    notes = plan(facts, sysctl={"vm.swappiness": 0}).notes
    assert [note for note in notes if f"{file} sets vm.swappiness to 10" in note] == list(notes) * wins
    assert bool(notes) == wins
    assert plan(facts, sysctl={"vm.swappiness": 10}).notes == ()


def test_what_others_have_is_not_replaced() -> None:
    theirs = dataclasses.replace(HOST, texts={SYSCTL: "a.b=1\n", REBOOT: "theirs\n", GRUB: "theirs\n"})
    assert "not ours" in refused(theirs, sysctl={"vm.swappiness": 0})
    assert plan(theirs) == Plan()
    held = dataclasses.replace(theirs, texts={REBOOT: "theirs\n"})
    assert steps(held, kernel_arguments=["a=b"]) == [f"write {GRUB}", "run update-grub"]


def test_what_a_host_cannot_have_is_refused_at_once() -> None:
    bridge = (("/etc/sysctl.d/80-corral-bridge.conf", "net.bridge.bridge-nf-call-iptables=0\n"),)
    facts = dataclasses.replace(HOST, loader="", sysctl_files=bridge)
    asked = {
        "kernel_arguments": ["iommu=pt"],
        "hugepages": [{"size": "16M", "count": 1}, {"size": "2M", "count": 1, "node": 7}],
        "cpu_governor": "fast",
        "sysctl": {"net.bridge.bridge-nf-call-iptables": True},
    }
    text = refused(facts, **asked)
    assert "none of GRUB" in text and "sizes: 1048576kB, 2048kB" in text and "2M on node 7" in text
    assert "performance, powersave" in text and "bridge_filter_guests: true" in text


def test_a_host_keeps_memory_of_its_own() -> None:
    facts = dataclasses.replace(HOST, memory_kib=2 * LARGE)
    assert "hardly start" in refused(facts, hugepages=[{"size": "2M", "count": 769}])
    assert steps(facts, hugepages=[{"size": "2M", "count": 768}])


def test_a_masked_unit_is_left_to_who_has_masked_it() -> None:
    masked = frozenset({"dev-hugepages.mount", "libvirt-guests.service"})
    facts = dataclasses.replace(HOST, mounted_pages=frozenset(), masked=masked)
    assert refused(facts, **ALL).count("; systemctl unmask ") == 2
    assert steps(facts, ksm=True) == [f"write {TMPFILES}", "set ksm to 1 now"]


def test_bad_input_is_refused_with_all_problems() -> None:
    assert len(bad(sysctl={"swappiness": 1, "vm.a": "", "vm.b": "1\nvm.c=1", "vm.x": 1, "vm/x": 2})) == 5
    pages = [{"size": "2 MB", "count": 1}, {"size": "2M", "count": -1}, {"size": "2M", "count": 1, "node": 0}]
    assert (
        len(bad(hugepages=[*pages, {"size": "1G", "count": 1, "node": 0}, {"size": "1G", "count": 2, "node": 0}])) == 5
    )
    assert len(bad(kernel_arguments=["a b", "$(reboot)", 'a="b"', "quiet", "quiet"])) == 5
    large = [{"size": "1G", "count": 1}]
    assert "in one place" in bad(kernel_arguments=["hugepages=4"], hugepages=large)[0]
    assert "omit it" in bad(sysctl={"vm.nr_hugepages": 1}, hugepages=large)[0]
    assert bad(cpu_governor="no good") and bad(libvirt_guests="shutdown", libvirt_guests_timeout=0)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.swappiness", SWAPPINESS),
        ("net/ipv4/conf/eth0.1/forwarding", "/proc/sys/net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "/proc/sys/net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_a_key_leads_to_its_file(key: str, path: str) -> None:
    assert proc_path(key) == path


def test_a_file_that_changes_meanwhile_is_not_removed() -> None:
    host = after(HOST, plan(ksm=True))
    step = next(step for step in plan(host).steps if isinstance(step, plan_tuning.RemoveFile))
    plan_tuning.check_text(step, host.texts[TMPFILES])
    with pytest.raises(Refused, match="run this again"):
        plan_tuning.check_text(step, "theirs\n")


def test_sizes_have_the_names_of_the_kernel() -> None:
    assert [model_tuning.size_name(size) for size in (64, 2048, LARGE)] == ["64K", "2M", "1G"]
