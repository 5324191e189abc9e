# Copyright (c) corral.virt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how a hypervisor's kernel is set now and at each start, and refuse what it cannot have."""

from __future__ import annotations

import dataclasses
import posixpath
import re
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._core.changes import Change
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput, Failed, Refused
from ansible_collections.corral.virt.plugins.module_utils._core.output import some_of
from ansible_collections.corral.virt.plugins.module_utils._core.step import Look, Plan
from ansible_collections.corral.virt.plugins.module_utils._host.model_tuning import (
    ARGUMENTS,
    GRUB,
    KERNEL_CMDLINE,
    KSM,
    MARK,
    REBOOT,
    SYSCTL,
    THP,
    TMPFILES,
    GuestsService,
    HugePages,
    TuningFacts,
    TuningSpec,
    owned,
    page_unit,
    proc_path,
    size_name,
)
from ansible_collections.corral.virt.plugins.module_utils._host.plan_host_steps import HostStep, WriteFile

_KEY = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_:@,-]+)+")
_VALUE = re.compile(r"[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*")
_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,:;/@+=%~-]+)?")
_PAGE = re.compile(r"([1-9][0-9]{0,4})([KMG])(iB)?")
_HOST_KIB = 512 * 1024  # without which a host hardly starts
_GIGANTIC_KIB = 1024**2  # which a kernel that runs finds no room for
_BLOCK = re.compile(r"^# BEGIN corral\.virt\n.*?^# END corral\.virt\n", re.DOTALL | re.MULTILINE)
_BRIDGE = "80-corral-bridge.conf"  # of the role bridge
_GOING = "# removed, until update-grub has run: "
_OF_GRUB = re.compile(rf'^GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX (.*)"$|^{_GOING}(.*)$', re.MULTILINE)
_SERVICE = "libvirt-guests.service"
_REBOOT = (
    "`ansible-playbook corral.virt.rolling_update` drains and reboots the hypervisors one after another "
    "(-e host=NAME: one of them)"
)
_NOTICE = f"{MARK}\n*** System restart required: the arguments of the kernel have changed ***\n"
_UNIT = """{mark}
[Unit]
Description=Huge pages of {size} for guests
# libvirt finds mounts when it starts.
Before=libvirtd.service virtqemud.service

[Mount]
What=hugetlbfs
Where=/dev/hugepages{size}
Type=hugetlbfs
Options=pagesize={size},mode=0755

[Install]
WantedBy=local-fs.target
"""


@dataclasses.dataclass(frozen=True)
class SetValue(HostStep):
    """Set a value of the running kernel."""

    template = "set {0.name} to {0.value} now"
    name: str
    paths: tuple[str, ...]
    value: str


@dataclasses.dataclass(frozen=True)
class SetPages(HostStep):
    """Ask the running kernel for huge pages."""

    template = "take {0.pages.count} huge pages of {0.pages} now"
    pages: HugePages


@dataclasses.dataclass(frozen=True)
class UpdateBootLoader(HostStep):
    """Have the boot loader give other arguments to kernels."""

    command: tuple[str, ...]

    def __str__(self) -> str:
        return f"run {' '.join(self.command)}"


@dataclasses.dataclass(frozen=True)
class StartUnit(HostStep):
    """Start a unit now, and (`enable`) at each start of the host."""

    unit: str
    enable: bool = True

    def __str__(self) -> str:
        return f"{'enable and start' if self.enable else 'start'} {self.unit}"


@dataclasses.dataclass(frozen=True)
class StopUnit(HostStep):
    """Stop a mount unit of ours; the kernel unmounts nothing that a guest uses."""

    template = "disable and stop {0.unit}"
    unit: str


@dataclasses.dataclass(frozen=True)
class RemoveFile(HostStep):
    """Remove a file of ours."""

    template = "remove {0.path}"
    look: t.ClassVar[Look | None] = Look(
        at="the text of the file", holds="", leaves="the file as others have changed it", by=("path", "text")
    )

    path: str
    text: str = dataclasses.field(repr=False)


Findings = t.Iterator[str]


def spec(params: t.Mapping[str, t.Any]) -> TuningSpec:
    """What the options ask for; raises BadInput with all problems."""
    problems: list[str] = []
    pages = tuple(one for given in params["hugepages"] or () if (one := _pages(given, problems)))
    found = TuningSpec(
        sysctl={str(key): _text(value) for key, value in (params["sysctl"] or {}).items()},
        hugepages=pages,
        kernel_arguments=tuple(params["kernel_arguments"] or ()),
        transparent_hugepages=params["transparent_hugepages"],
        ksm=params["ksm"],
        cpu_governor=params["cpu_governor"],
        libvirt_guests=_guests_service(params),
    )
    problems += [problem for find in (_bad_sysctl, _bad_pages, _bad_arguments, _bad_others) for problem in find(found)]
    if problems:
        raise BadInput(problems)
    return found


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else str(value)


def _pages(given: t.Mapping[str, t.Any], problems: list[str]) -> HugePages | None:
    size = _PAGE.fullmatch(str(given["size"]))
    if not size:
        problems.append(f"hugepages: size must be a size of the kernel's pages, such as 2M or 1G, not {given['size']}")
        return None
    return HugePages(int(size[1]) * 1024 ** "KMG".index(size[2]), given["count"], given.get("node"))


def _guests_service(params: t.Mapping[str, t.Any]) -> GuestsService | None:
    given = params["libvirt_guests"]
    return GuestsService(given, params["libvirt_guests_timeout"], params["libvirt_guests_parallel"]) if given else None


def _bad_sysctl(wanted: TuningSpec) -> Findings:
    for key, value in wanted.sysctl.items():
        if not _KEY.fullmatch(key):
            yield f"sysctl: {key!r} must be a key such as vm.swappiness (a list of all: sysctl -a)"
        elif not _VALUE.fullmatch(value):
            yield f"sysctl: {key} must have a value in one line, not {value!r}"
    if wanted.hugepages and (twice := {"vm.nr_hugepages", "vm/nr_hugepages"} & {*wanted.sysctl}):
        yield f"sysctl: {min(twice)} sets what hugepages sets; omit it"
    paths = [proc_path(key) for key in wanted.sysctl]
    yield from (f"sysctl: {key} is given in two spellings" for key in wanted.sysctl if paths.count(proc_path(key)) > 1)


def _bad_pages(wanted: TuningSpec) -> Findings:
    places = [(one.size_kib, one.node) for one in wanted.hugepages]
    for one in wanted.hugepages:
        if one.count < 0 or (one.node or 0) < 0:
            yield f"hugepages of {one}: count and node must not be negative"
        if places.count((one.size_kib, one.node)) > 1:
            yield f"hugepages of {one}: given twice"
        if one.node is None and any(size == one.size_kib and node is not None for size, node in places):
            yield f"hugepages of {one}: given with and without node; give all of that size a node"


def _bad_arguments(wanted: TuningSpec) -> Findings:
    for one in wanted.kernel_arguments:
        if not _ARGUMENT.fullmatch(one):
            yield f"kernel_arguments: {one!r} must be NAME or NAME=VALUE, without spaces, quotes and wildcards"
        elif wanted.kernel_arguments.count(one) > 1:
            yield f"kernel_arguments: {one} is given twice"
    names = {one.partition("=")[0] for one in wanted.kernel_arguments}
    if _of_pages(wanted) and names & {"hugepages", "hugepagesz"}:
        yield "kernel_arguments: hugepagesz and hugepages are written for pages in hugepages; give them in one place"


def _bad_others(wanted: TuningSpec) -> Findings:
    if wanted.cpu_governor is not None and not re.fullmatch("[a-z_]+", wanted.cpu_governor):
        yield f"cpu_governor: must be the name of a governor, such as performance, not {wanted.cpu_governor!r}"
    service = wanted.libvirt_guests
    if service and (service.timeout_s < 1 or service.parallel < 1):
        yield "libvirt_guests: its timeout and the number of guests at once must be at least 1"


def _of_pages(wanted: TuningSpec) -> tuple[str, ...]:
    """Arguments that reserve gigantic pages, wherever the kernel takes them; systemd moves them to their nodes."""
    counts: dict[int, int] = {}
    for one in wanted.hugepages:
        if one.size_kib >= _GIGANTIC_KIB:
            counts[one.size_kib] = counts.get(one.size_kib, 0) + one.count
    return tuple(
        argument
        for size, count in counts.items()
        if count
        for argument in (f"hugepagesz={size_name(size)}", f"hugepages={count}")
    )


def _arguments(wanted: TuningSpec) -> tuple[str, ...]:
    return (*wanted.kernel_arguments, *_of_pages(wanted))


def decide(wanted: TuningSpec, facts: TuningFacts) -> Plan[HostStep]:
    """The plan; raises Refused with all that speaks against it, before anything is touched."""
    refusals = list(_refusals(wanted, facts))
    if refusals:
        raise Refused("; ".join(refusals))
    files = {path: text for path, text in _files(wanted, facts).items() if facts.texts.get(path) != text}
    written, records = _file_steps(wanted, facts, files)
    values = [step for step in _values(wanted, facts) if _differ(step, facts)]
    pages = [SetPages(one) for one in wanted.hugepages if facts.pages[one.directory] != one.count]
    steps: list[HostStep] = [
        *written.values(),
        *_boot_loader(wanted, facts, changes_file=GRUB in files),
        *records,
        *_mounts(wanted, facts),
        *_service(wanted, facts),
        *values,
        *pages,
    ]
    return Plan(
        tuple(steps),
        (
            *(Change(path, facts.texts.get(path), text) for path, text in files.items()),
            *(Change(step.name, _current(facts.values[_differ(step, facts)[0]]), step.value) for step in values),
            *(
                Change(f"hugepages[{step.pages}]", facts.pages[step.pages.directory], step.pages.count)
                for step in pages
            ),
        ),
        tuple(_pending(wanted, facts, files)),
        tuple(_notes(wanted, facts)),
    )


def _file_steps(
    wanted: TuningSpec, facts: TuningFacts, files: t.Mapping[str, str | None]
) -> tuple[dict[str, HostStep], list[HostStep]]:
    """Steps by path, and those that change the records of what is in the entries of the boot loader, which come last.

    GRUB's file is one: while arguments go, it keeps them in a comment.
    """
    steps = {path: _write(path, text, facts) for path, text in files.items() if text or not path.endswith(".mount")}
    records = [steps.pop(ARGUMENTS)] if ARGUMENTS in steps else []
    going = _going(wanted, facts)
    if facts.loader == "grub" and going:
        meanwhile = _grub(_arguments(wanted), going)
        steps[GRUB] = WriteFile(GRUB, meanwhile or "", mode=None)
        records.append(_write(GRUB, files[GRUB], dataclasses.replace(facts, texts={GRUB: meanwhile or ""})))
    return steps, records


def lacking(wanted: TuningSpec, facts: TuningFacts) -> list[str]:
    """Arguments that the running kernel was not started with."""
    return [one for one in _arguments(wanted) if one not in facts.cmdline]


def _refusals(wanted: TuningSpec, facts: TuningFacts) -> Findings:
    for path, text in _files(wanted, facts).items():
        there = facts.texts.get(path)
        if text and there is not None and not owned(there) and path not in (facts.guests_file, KERNEL_CMDLINE):
            yield f"cannot write {path}: it is there, and is not ours; move it away, with what it sets"
    if _arguments(wanted) and not facts.loader:
        yield (
            f"cannot set kernel arguments ({' '.join(_arguments(wanted))}): this host has none of GRUB with "
            "update-grub, grubby, and systemd-boot with kernel-install; set them with the system's own tools, and omit "
            "them here"
        )
    sizes = sorted({path for path in facts.pages if path.startswith("/sys/kernel/mm/")})
    for one in wanted.hugepages:
        if one.directory not in facts.pages:
            there = some_of([size.rpartition("-")[2] for size in sizes], 4) or "none"
            yield f"cannot take huge pages of {one}: the kernel has no such ones (sizes: {there}); see `ls {_up(one)}`"
    asked_kib = sum(one.size_kib * one.count for one in wanted.hugepages)
    if asked_kib and facts.memory_kib and asked_kib > facts.memory_kib - _HOST_KIB:
        yield (
            f"cannot take {asked_kib // 1024} MiB of huge pages: the host has {facts.memory_kib // 1024} MiB, and "
            f"would hardly start with less than {_HOST_KIB // 1024} MiB of its own; ask for fewer"
        )
    for path, available in facts.governors.items() if wanted.cpu_governor else ():
        if wanted.cpu_governor not in available:
            yield (
                f"cannot set the CPU governor {wanted.cpu_governor}: the driver has {', '.join(available) or 'none'} "
                f"({path}); set one of them"
            )
            break
    yield from _against_bridge(wanted, facts)
    for step in (*_mounts(wanted, facts), *_service(wanted, facts)):
        if isinstance(step, StartUnit) and step.unit in facts.masked:
            yield f"cannot start {step.unit}: somebody has masked it; systemctl unmask {step.unit}"


def _against_bridge(wanted: TuningSpec, facts: TuningFacts) -> Findings:
    """A problem for each setting that the role bridge sets to another value in each run."""
    given = {proc_path(key): value for key, value in wanted.sysctl.items()}
    for path, text in facts.sysctl_files:
        if posixpath.basename(path) == _BRIDGE:
            for key, value in _set_by(text).items():
                ours = given.get(proc_path(key), value)
                if ours != value:
                    yield (
                        f"cannot set {key} to {ours}: the role bridge sets it to {value}; "
                        "set bridge_filter_guests: true"
                    )


def _up(pages: HugePages) -> str:
    return pages.directory.rpartition("/")[0]


def _files(wanted: TuningSpec, facts: TuningFacts) -> dict[str, str | None]:
    """The files of ours, with their texts; None for one that goes. A stranger's stays out of it."""
    arguments = _arguments(wanted)
    found: dict[str, str | None] = {
        SYSCTL: _lines(f"{key} = {value}" for key, value in wanted.sysctl.items()),
        TMPFILES: _lines(f"w {path} - - - - {value}" for path, value in _at_boot(wanted).items()),
        GRUB: _grub(arguments) if facts.loader == "grub" else None,
        ARGUMENTS: _lines(arguments) if facts.loader in ("grubby", "systemd-boot") else None,
        REBOOT: _NOTICE if lacking(wanted, facts) else None,
    }
    if facts.loader == "systemd-boot":
        found[KERNEL_CMDLINE] = _cmdline(arguments, facts)
    units = {path for path in facts.texts if path.startswith(page_unit(1024).partition("1M")[0])}
    found.update(dict.fromkeys(units))
    for size in {one.size_kib for one in wanted.hugepages if one.count}:
        path = page_unit(size)
        if size != facts.default_page_kib and (path in units or size not in facts.mounted_pages):
            found[path] = _UNIT.format(mark=MARK, size=size_name(size))
    found[facts.guests_file] = _guests_text(wanted.libvirt_guests, facts.texts.get(facts.guests_file))
    return {
        path: text
        for path, text in found.items()
        if text is not None or owned(facts.texts.get(path, "")) or (path == facts.guests_file and path in facts.texts)
        if path != REBOOT or path not in facts.texts or owned(facts.texts[path])
    }


def _lines(lines: t.Iterable[str]) -> str | None:
    found = list(lines)
    return "\n".join([MARK, *found, ""]) if found else None


def _grub(arguments: t.Sequence[str], going: t.Sequence[str] = ()) -> str | None:
    """GRUB's file of ours, with the arguments that its entries may have until it is updated."""
    lines = [f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {" ".join(arguments)}"'] if arguments else []
    return _lines([*lines, *([f"{_GOING}{' '.join(going)}"] if going else [])])


def _cmdline(arguments: t.Sequence[str], facts: TuningFacts) -> str | None:
    """The line from which kernel-install makes entries: without what was ours, with what is."""
    there = facts.texts.get(KERNEL_CMDLINE)
    if there is None and not arguments:
        return None
    words = there.split() if there is not None else [one for one in sorted(facts.cmdline) if not _is_of_entry(one)]
    ours = ours_before(facts)
    kept = [one for one in words if one not in ours and one not in arguments]
    made = " ".join([*kept, *arguments]) + "\n"
    return there if there is not None and there.split() == made.split() else made


def _is_of_entry(argument: str) -> bool:
    return argument.startswith(("BOOT_IMAGE=", "initrd=", "systemd.machine_id="))


def ours_before(facts: TuningFacts) -> list[str]:
    """Arguments that an earlier run has set."""
    text = facts.texts.get(GRUB if facts.loader == "grub" else ARGUMENTS, "")
    if not owned(text):
        return []
    if facts.loader == "grub":
        return [word for line in _OF_GRUB.finditer(text) for word in (line[1] or line[2]).split()]
    return text.splitlines()[1:]


def _going(wanted: TuningSpec, facts: TuningFacts) -> list[str]:
    """Arguments that an earlier run has set, and that entries of the boot loader may have until they are made anew."""
    return [one for one in ours_before(facts) if one not in _arguments(wanted)]


def _at_boot(wanted: TuningSpec) -> dict[str, str]:
    """What systemd writes when the host starts, by path."""
    found = {path: value for _name, path, value in _of_memory(wanted)}
    if wanted.cpu_governor:
        found["/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"] = wanted.cpu_governor
    return {**found, **{f"{one.directory}/nr_hugepages": str(one.count) for one in wanted.hugepages}}


def _of_memory(wanted: TuningSpec) -> list[tuple[str, str, str]]:
    """Memory settings as (option, path, value)."""
    ksm = None if wanted.ksm is None else str(int(wanted.ksm))
    found = (("transparent_hugepages", THP, wanted.transparent_hugepages), ("ksm", KSM, ksm))
    return [(name, path, value) for name, path, value in found if value is not None]


def _values(wanted: TuningSpec, facts: TuningFacts) -> list[SetValue]:
    """The settings that the running kernel has, as steps."""
    found = [(key, proc_path(key), value) for key, value in wanted.sysctl.items()] + _of_memory(wanted)
    steps = [SetValue(name, (path,), value) for name, path, value in found if path in facts.values]
    if wanted.cpu_governor and facts.governors:
        steps.append(SetValue("cpu_governor", tuple(facts.governors), wanted.cpu_governor))
    return steps


def _differ(step: SetValue, facts: TuningFacts) -> list[str]:
    """The files that have another value."""
    return [path for path in step.paths if _current(facts.values[path]) != " ".join(step.value.split())]


def _current(text: str) -> str:
    """The value in a file of the kernel, which may list all with the one that is set in brackets."""
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else " ".join(text.split())


def _write(path: str, text: str | None, facts: TuningFacts) -> HostStep:
    if not text:
        return RemoveFile(path, facts.texts[path])
    return WriteFile(path, text, mode=None if path in facts.texts else 0o644)


def _boot_loader(wanted: TuningSpec, facts: TuningFacts, *, changes_file: bool) -> list[HostStep]:
    """Bring our arguments into the entries of the boot loader, and those that were ours out of them."""
    arguments = _arguments(wanted)
    new = [one for one in arguments if one not in facts.boot_arguments]
    old = _going(wanted, facts)
    if not facts.loader or not (new or old or changes_file):
        return []
    if facts.loader == "grub":
        return [UpdateBootLoader(("update-grub",))]
    if facts.loader == "grubby":
        words = ([f"--remove-args={' '.join(old)}"] if old else []) + ([f"--args={' '.join(new)}"] if new else [])
        return [UpdateBootLoader(("grubby", "--update-kernel=ALL", *words))]
    return [UpdateBootLoader(("kernel-install", "add", version, image)) for version, image in facts.kernels]


def _mounts(wanted: TuningSpec, facts: TuningFacts) -> list[HostStep]:
    """Mounts in which libvirt makes the memory of guests."""
    steps: list[HostStep] = []
    files = _files(wanted, facts)
    for path in (one for one in files if one.endswith(".mount")):
        unit, text = path.rpartition("/")[2], files[path]
        if text is None:
            steps += [StopUnit(unit), RemoveFile(path, facts.texts[path])]
        elif unit not in facts.active or unit not in facts.enabled:
            steps.append(StartUnit(unit))
    default = facts.default_page_kib
    if default not in facts.mounted_pages and any(one.size_kib == default and one.count for one in wanted.hugepages):
        steps.append(StartUnit("dev-hugepages.mount", enable=False))
    return steps


def _guests_text(service: GuestsService | None, there: str | None) -> str | None:
    """The file of libvirt-guests.service with our block at its end, where it wins."""
    kept = _BLOCK.sub("", there or "")
    if service is None:
        return there and kept
    lines = {
        "ignore": ["URIS=''"],  # it looks at no guest: neither at shutdown nor at boot
        "shutdown": ["ON_BOOT=ignore", "ON_SHUTDOWN=shutdown"],
        "suspend": ["ON_BOOT=start", "ON_SHUTDOWN=suspend"],
    }[service.at_shutdown]
    if service.at_shutdown == "shutdown":
        lines += [f"PARALLEL_SHUTDOWN={service.parallel}", f"SHUTDOWN_TIMEOUT={service.timeout_s}"]
    begin = "" if not kept or kept.endswith("\n") else "\n"
    return "\n".join([f"{kept}{begin}# BEGIN corral.virt", *lines, "# END corral.virt", ""])


def _service(wanted: TuningSpec, facts: TuningFacts) -> list[HostStep]:
    asked = wanted.libvirt_guests is not None and wanted.libvirt_guests.at_shutdown != "ignore"
    is_on = _SERVICE in facts.active and _SERVICE in facts.enabled
    return [StartUnit(_SERVICE)] if asked and not is_on else []


def _set_by(text: str) -> dict[str, str]:
    """Keys and values of a file of sysctl.d."""
    found = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            found[key.strip().lstrip("-").strip()] = " ".join(value.split())
    return found


def _notes(wanted: TuningSpec, facts: TuningFacts) -> Findings:
    """What a setting meets on this host."""
    ours = {proc_path(key): (key, " ".join(value.split())) for key, value in wanted.sysctl.items()}
    for path, (key, _value) in ours.items():
        if path not in facts.values:
            module = (
                "; the kernel module br_netfilter, when it is loaded, gets it" if key.startswith("net.bridge") else ""
            )
            yield f"the running kernel has no {key}, so it is only set for the next start{module}"
    later = [(path, text) for path, text in facts.sysctl_files if posixpath.basename(path) > posixpath.basename(SYSCTL)]
    for file, text in later:
        for other, value in _set_by(text).items():
            key, given = ours.get(proc_path(other), ("", value))
            if given != value:
                yield f"{file} sets {key} to {value} at the next start, and wins over {given} here; remove that line"
    if wanted.cpu_governor and not facts.governors:
        yield f"no CPU governor is set: this host has no cpufreq, so {wanted.cpu_governor} has no meaning here"
    for name, path, _value in _of_memory(wanted):
        if path not in facts.values:
            yield f"{name} is not set: the running kernel has no {path}"
    if wanted.ksm is not None and facts.ksmtuned:
        yield "ksmtuned.service switches KSM as it sees fit, also against ksm; systemctl disable --now ksmtuned.service"


def _pending(wanted: TuningSpec, facts: TuningFacts, files: t.Mapping[str, str | None]) -> Findings:
    """What waits for a start of the host."""
    if missing := lacking(wanted, facts):
        yield f"a reboot is needed: the running kernel lacks {' '.join(missing)}; {_REBOOT}"
    gone = [one for path in (SYSCTL, TMPFILES) if path in files for one in _omitted(facts.texts.get(path), files[path])]
    if gone:
        yield f"{some_of(gone, 6)}: no longer set, and kept until the host is rebooted; {_REBOOT}"


def _omitted(before: str | None, now: str | None) -> list[str]:
    """What the lines of a file of ours set, and no longer do."""
    kept = {_subject(line) for line in (now or "").splitlines()}
    return [_subject(line) for line in (before or "").splitlines()[1:] if _subject(line) not in kept]


def _subject(line: str) -> str:
    """What a line of our files sets."""
    return line.split()[1] if line.startswith("w ") else line.partition(" = ")[0]


def check_text(step: RemoveFile, text: str | None) -> None:
    """Raise Refused if the file that is to be removed is not the one that was planned with."""
    if text != step.text:
        raise Refused(f"cannot remove {step.path}: it has changed since it was looked at; run this again")


def check_pages(step: SetPages, got: int) -> None:
    """Raise Failed if the kernel has not found as much memory in one piece."""
    if got < step.pages.count:
        raise Failed(
            f"cannot take {step.pages.count} huge pages of {step.pages}: the kernel gave {got}, as the rest of its "
            "memory is in use or in pieces; they are taken at the next start of the host, when memory is free: "
            "`ansible-playbook corral.virt.rolling_update -e host=NAME -e reboot=always`; or ask for fewer"
        )
