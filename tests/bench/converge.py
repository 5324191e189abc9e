"""Converging 1, 10 and 100 guests, the first time and again with nothing to do, beside others who can do that.

The guests are defined, not started: one vCPU, 64 MiB, one network interface on br0, no disk.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import jinja2
from corral_lab import processes

from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.bench.place import (
    BUILD,
    ENOUGH_S,
    NAME,
    Failed,
    Ran,
    medians,
    on,
    run,
    say,
    undefine_all,
)
from ansible_collections.corral.virt.tests.bench.row import Row

HERE = Path(__file__).parent
HOSTS = 1
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "bridge")
COUNTS = (1, 10, 100)
MEMORY_MIB, MEMORY_LIMIT_MB = 64, 80.0

OURS, PING, COMMUNITY = "virt_domains", "ansible -m ping", "community.libvirt.virt, looped"
SALT, SCRIPT = f"Salt {peers.SALT[0].partition('==')[2]}, virt.defined", "libvirt-python, a script"
# The least ratio, theirs to ours, with 100 guests and nothing to do.
TARGETS = {PING: 0.5, COMMUNITY: 20.0}

TEMPLATE = HERE / "guest.xml.j2"
LOOP = {"loop": "{{ guests }}", "loop_control": {"label": "{{ item.name }}"}}
GUEST = {option: f"{{{{ item.{option} }}}}" for option in ("name", "vcpus", "memory", "disks", "interfaces")}
DEFINE = {"command": "define", "xml": f"{{{{ lookup('ansible.builtin.template', '{TEMPLATE}') }}}}"}
SALT_OPTIONS = (
    "--local",
    "--config-dir",
    str(BUILD / "salt"),
    "--retcode-passthrough",
    "--out",
    "json",
    "--log-level",
    "error",
)

HOW = f"""
All make the same guests: {TEMPLATE.name} spells out what virt_domain makes of a few words. Only Salt's have fewer devices.
Seconds are those of the whole command: the median of what fits into {ENOUGH_S:.0f} s, so one measurement of what takes longer.
Before each first time virsh undefines all guests; afterwards it must list them all.
- all of Ansible: over one kept SSH connection
- {SCRIPT}: on the host, over one kept SSH connection
- {SALT}: salt-call --local, without SSH, beside the host on the same kernel, at the host's libvirt socket
"""

# Stands in for the host's Python, and notes how much memory its process had at most.
MEASURED_PYTHON = """\
#!/usr/bin/python3
import resource, subprocess, sys
code = subprocess.run(["/usr/bin/python3", *sys.argv[1:]]).returncode
with open("/run/peak_kib", "w") as peak:
    peak.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Somebody who can converge n guests, and says afterwards whether that changed something."""

    name: str
    prepare: t.Callable[[], object]
    converge: t.Callable[[int], Ran]
    changed: t.Callable[[str], bool]


@dataclasses.dataclass(frozen=True)
class Figure:
    """Seconds, or why there are none."""

    seconds: float | None
    note: str = ""


def rows() -> t.Iterator[Row]:
    """Our figures beside everybody's."""
    print(HOW)
    _write_guests()
    ours = _ansible(OURS, {"corral.virt.virt_domains": {"domains": "{{ guests }}"}})
    others = (
        _ansible("virt_domain, looped", {"corral.virt.virt_domain": GUEST, **LOOP}),
        _ansible(
            COMMUNITY, {"community.libvirt.virt": DEFINE, **LOOP}, prepare=lambda: peers.collection("community.libvirt")
        ),
        Contestant(SALT, _prepare_salt, _salt, _salt_changed),
        Contestant(SCRIPT, _prepare_script, _script, lambda output: bool(json.loads(output)["changed"])),
    )
    for n in COUNTS:
        first, again, ping = _compete(ours, n, lambda: run("ansible", "hyper1", "-m", "ansible.builtin.ping").seconds)
        results = {each.name: _figures(each, n) for each in others}
        yield from _versus("converge first", n, first, {name: figures[0] for name, figures in results.items()})
        yield from _versus(
            "converge no-op", n, again, {PING: ping, **{name: figures[1] for name, figures in results.items()}}
        )
    yield Row(
        "converge memory",
        COUNTS[-1],
        _peak_mb(BUILD / f"{OURS}.json", COUNTS[-1]),
        "limit",
        MEMORY_LIMIT_MB,
        "MB",
        target=1.0,
    )


def _versus(name: str, n: int, ours: Figure, theirs: t.Mapping[str, Figure]) -> t.Iterator[Row]:
    asked = TARGETS if (name, n) == ("converge no-op", COUNTS[-1]) else {}
    for peer, figure in theirs.items():
        notes = [f"{who} {note}" for who, note in (("ours", ours.note), ("peer", figure.note)) if note]
        yield Row(name, n, t.cast(float, ours.seconds), peer, figure.seconds, "s", asked.get(peer), "; ".join(notes))


def _figures(each: Contestant, n: int) -> list[Figure]:
    """First and again; a peer that cannot do it says why."""
    try:
        return _compete(each, n)
    except Failed as error:
        say(f"{each.name}: {error}")
        return [Figure(None, f"cannot run: {error.reason()}")] * 2


def _compete(each: Contestant, n: int, *beside: t.Callable[[], float]) -> list[Figure]:
    """The first time, again with nothing to do, and what is measured in turns with the latter."""
    reports: list[bool] = []

    def converge() -> float:
        ran = each.converge(n)
        reports.append(each.changed(ran.output))
        return ran.seconds

    def first() -> float:
        undefine_all()
        return converge()

    each.prepare()
    (first_s,) = medians(first)
    lines = _judge(n)
    reports.clear()
    again_s, *beside_s = medians(converge, *beside)
    note = "reports a change" if any(reports) else ""
    figures = f"first {first_s:.2f} s, no-op {again_s:.2f} s", f"{lines} lines of XML each", note
    say(f"{n:3} guests, {each.name}: {', '.join(filter(None, figures))}")
    return [Figure(first_s), Figure(again_s, note), *map(Figure, beside_s)]


def _judge(n: int) -> int:
    """virsh must know all n guests, the last one as asked for; how long its definition is."""
    names = on("hyper1", "virsh -q list --all --name").output.split()
    *_others, last = wanted = _guests(n)
    if sorted(names) != [guest["name"] for guest in wanted]:
        raise Failed(f"virsh lists {len(names)} guests, not the {n} asked for")
    xml = on("hyper1", f"virsh dumpxml --inactive {last['name']}").output
    (nic,) = last["interfaces"]
    parts = (
        "1</vcpu>",
        f"<memory unit='KiB'>{MEMORY_MIB * 1024}</memory>",
        f"<mac address='{nic['mac']}'/>",
        "<source bridge='br0'/>",
    )
    if lacking := [part for part in parts if part not in xml]:
        raise Failed(f"{last['name']} lacks {', '.join(lacking)}")
    return len(xml.splitlines())


def _guests(n: int) -> list[dict[str, t.Any]]:
    """What is asked of everybody."""
    return [
        {
            "name": f"bench{number:03}",
            "vcpus": 1,
            "memory": MEMORY_MIB,
            "disks": [],
            "interfaces": [{"name": "eth0", "bridge": "br0", "mac": f"52:54:00:be:00:{number:02x}"}],
        }
        for number in range(1, n + 1)
    ]


def _write_guests() -> None:
    for n in COUNTS:
        (BUILD / f"guests{n}.json").write_text(json.dumps({"guests": _guests(n)}))


def _ansible(name: str, task: t.Mapping[str, t.Any], *, prepare: t.Callable[[], object] = lambda: None) -> Contestant:
    """Somebody whose work is one task, looped or not."""
    playbook = BUILD / f"{name.split(',')[0]}.json"
    playbook.write_text(json.dumps([{"hosts": "hyper1", "gather_facts": False, "tasks": [task]}]))
    return Contestant(name, prepare, lambda n: _play(playbook, n), lambda output: "changed=0 " not in output)


def _play(playbook: Path, n: int, *arguments: str) -> Ran:
    return run("ansible-playbook", playbook, "--extra-vars", f"@{BUILD}/guests{n}.json", *arguments)


def _prepare_salt() -> None:
    """A minion without a master, at the host's libvirt socket as this machine sees it."""
    salt_call = peers.salt()
    socket = f"/proc/{processes.init_of(NAME, 'hyper1')}/root/run/libvirt/libvirt-sock"
    settings = {
        "root_dir": str(BUILD / "salt/root"),
        "file_client": "local",
        "id": "bench",
        "file_roots": {"base": [str(BUILD / "salt/states")]},
        "virt": {"connection": {"uri": f"qemu+unix:///system?socket={socket}"}},
    }
    (BUILD / "salt/states").mkdir(parents=True, exist_ok=True)
    (BUILD / "salt/minion").write_text(json.dumps(settings))
    for n in COUNTS:
        (BUILD / f"salt/states/guests{n}.sls").write_text(
            json.dumps({guest["name"]: _salt_state(guest) for guest in _guests(n)})
        )
    run(salt_call, *SALT_OPTIONS, "test.ping")


def _salt_state(guest: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    interfaces = [
        {"name": nic["name"], "type": "bridge", "source": nic["bridge"], "mac": nic["mac"]}
        for nic in guest["interfaces"]
    ]
    return {
        "virt.defined": [
            {"cpu": guest["vcpus"]},
            {"mem": guest["memory"]},
            {"vm_type": "qemu"},
            {"interfaces": interfaces},
        ]
    }


def _salt(n: int) -> Ran:
    return run(peers.salt(), *SALT_OPTIONS, "state.apply", f"guests{n}")


def _salt_changed(output: str) -> bool:
    return any(state["changes"] for state in json.loads(output)["local"].values())


def _prepare_script() -> None:
    on("hyper1", "cat > /run/script.py", given=(HERE / "script.py").read_text())


def _script(n: int) -> Ran:
    """Over a kept SSH connection as Ansible has it; the XML is made beforehand."""
    template = jinja2.Template(TEMPLATE.read_text())
    return on(
        "hyper1", "python3 /run/script.py", given=json.dumps([template.render(item=guest) for guest in _guests(n)])
    )


def _peak_mb(playbook: Path, n: int) -> float:
    """The most memory that the module's process has on the host, whether there is something to do or nothing."""
    on("hyper1", "cat > /run/measured_python && chmod +x /run/measured_python", given=MEASURED_PYTHON)
    undefine_all()
    peaks_kib = []
    for _turn in ("first", "no-op"):
        _play(playbook, n, "--extra-vars", "ansible_python_interpreter=/run/measured_python")
        peaks_kib.append(int(on("hyper1", "cat /run/peak_kib").output))
    return max(peaks_kib) * 1024 / 1e6
