"""Playbooks on 10, 50 and 100 hypervisors with fifty guests each: seconds, memory of the controller, and lines printed.

The hypervisors are libvirt's own test drivers, and the hosts this machine, so that what grows is the playbook's.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._guest import run_describe_host
from ansible_collections.corral.virt.plugins.module_utils._libvirt.connection import opened
from ansible_collections.corral.virt.tests.bench.inventory import Cloud, guest_name
from ansible_collections.corral.virt.tests.bench.place import BUILD, Failed, run, say
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 0
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ()

SIZES, GUESTS = (10, 50, 100), 50
FORKS = (5, 20, 50)
LIMIT = "limit"
ROOMY = 100.0  # libvirt's test driver has 3 GiB
RSS_MB, OVERHEAD_S, LINES = 400.0, 5.0, 2.0
SITE = "corral.virt.site"
FIRST = "Check that the play has no serial"  # task of site that test drivers can do, with all after it

HOW = f"""
Processor seconds of controller and modules, in user and kernel mode, and memory; forks: 8.
- query, create, site, drain: the playbooks; create and drain with --check, site with nothing to do, from its role guests on, as the
  roles before it are for real hosts. Test drivers cannot migrate, so drain ends with the refusal of its moves
- for each host of {SIZES[0]}: what a hypervisor costs in the smallest cluster; it must not cost more in a larger one
- MB: of the largest process; MB together: of all, what they share counted once
- forks: query with other forks
- choose: the action virt_place for all guests of one hypervisor
- lines: printed by the callback terse, for each host
- one dead: query, where the first hypervisor does not answer; a limit: query with --limit on one
"""
MEASURED = Path(__file__).with_name("measured.py")
REPORTED = "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'virt_host'))) }}"


@dataclasses.dataclass(frozen=True)
class Used:
    """What a command took."""

    cpu_s: float
    rss_mb: float  # of the largest process
    together_mb: float
    lines: int


def rows() -> t.Iterator[Row]:
    """Measure."""
    print(HOW, flush=True)
    costs: dict[tuple[str, int], float] = {}
    for count in SIZES:
        say(f"{count} hypervisors with {GUESTS} guests each")
        cloud = Cloud.made(BUILD / f"playbooks-{count}", count, GUESTS)
        hosts = _inventory(cloud)
        commands: dict[str, tuple[int, tuple[str, ...]]] = {
            "query": (0, ("corral.virt.query", "-e", "format=table")),
            "create": (0, ("corral.virt.create", "--check", "-e", json.dumps(_wish()))),
            "site": (0, (SITE, "--start-at-task", FIRST)),
            "drain": (2, ("corral.virt.drain", "--check", "-e", "host=h000")),
        }
        for name, (code, words) in commands.items():
            used = _measured(code, "-i", str(hosts), *words)
            costs[name, count] = used.cpu_s
            peer, title = f"for each host of {SIZES[0]}", f"{name} on {count} hosts"
            expected = costs[name, SIZES[0]] / SIZES[0] * count
            target = None if count == SIZES[0] else 1 / 1.2
            yield Row(title, count * GUESTS, used.cpu_s, peer, expected, "s", target, "CPU")
            yield Row(title, count * GUESTS, used.rss_mb, LIMIT, RSS_MB, "MB", 1.0)
            yield Row(title, count * GUESTS, used.together_mb, LIMIT, None, "MB together")
            if name == "create" and count == SIZES[-1]:
                yield Row(f"lines of {title}", count * GUESTS, used.lines / count, LIMIT, LINES, "a host", 1.0)
    yield _choose(cloud)
    yield from _fewer(cloud, costs["query", len(cloud.uris)])
    yield from _forks(cloud, costs["query", len(cloud.uris)])


def _forks(cloud: Cloud, usual_s: float) -> t.Iterator[Row]:
    """With fewer and more hypervisors at a time."""
    hosts = str(cloud.place / "hosts.json")
    for forks in FORKS:
        used = _measured(0, "-i", hosts, "corral.virt.query", "-e", "format=table", "--forks", str(forks))
        yield Row(f"query, forks {forks}", cloud.guests, used.cpu_s, "forks 8", usual_s, "s", None, "CPU")
        yield Row(f"query, forks {forks}", cloud.guests, used.together_mb, LIMIT, None, "MB together")


def _choose(cloud: Cloud) -> Row:
    """The action alone: what hypervisors report is in the inventory, and no module runs."""
    hosts = _inventory(cloud, reported=True)
    room = {"cpu_overcommit": ROOMY, "memory_overcommit": ROOMY}
    task = {"corral.virt.virt_place": {"leave": ["h000"], "hosts": REPORTED, **room}, "run_once": True}
    idle, chosen = (
        _play(cloud.place, hosts, name, each)
        for name, each in (("idle", {"ansible.builtin.meta": "noop"}), ("choose", task))
    )
    overhead, limit = chosen.cpu_s - idle.cpu_s, OVERHEAD_S
    return Row(f"choose on {len(cloud.uris)} hosts", cloud.guests, overhead, LIMIT, limit, "s", 1.0, "CPU")


def _fewer(cloud: Cloud, all_s: float) -> t.Iterator[Row]:
    """Where one hypervisor is dead, and where only one is asked."""
    query = ("-i", str(cloud.place / "hosts.json"), "corral.virt.query", "-e", "format=table")
    one = _measured(0, *query, "--limit", "h001")
    yield Row("query, a limit", GUESTS, one.cpu_s, "all", all_s, "s", 5.0, "CPU")
    document = (cloud.place / "h000.xml").read_text()
    (cloud.place / "h000.xml").unlink()
    dead = _measured(2, *query)
    (cloud.place / "h000.xml").write_text(document)
    yield Row("query, one dead", cloud.guests, dead.cpu_s, "all alive", all_s, "s", 1 / 1.2, "CPU")


def _wish() -> dict[str, t.Any]:
    return {"guest": "new1", "vcpus": 1, "memory": "1GiB", "state": "present", "disks": [], "interfaces": []}


def _inventory(cloud: Cloud, *, reported: bool = False) -> Path:
    """With `reported`, hosts have what virt_host_info would report of them."""
    hosts = {name: {"virt_uri": uri, **(_reported(uri) if reported else {})} for name, uri in cloud.uris.items()}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    room = {"guests_cpu_overcommit": ROOMY, "guests_memory_overcommit": ROOMY}
    guests = [
        {"name": guest_name(number + 1), "vcpus": 2, "memory": "2GiB", "state": "present"}
        for number in range(cloud.guests)
    ]
    common = {**local, **room, "virt_guests": guests, "guests_known_hosts": str(cloud.place / "known_hosts")}
    file = cloud.place / ("reported.json" if reported else "hosts.json")
    file.write_text(json.dumps({"hyper": {"hosts": hosts, "vars": common}}))
    return file


def _reported(uri: str) -> dict[str, t.Any]:
    with opened(uri) as connection:
        return {"virt_host": {"host": run_describe_host.describe_host(connection)}}


def _play(place: Path, hosts: Path, name: str, task: t.Mapping[str, t.Any]) -> Used:
    playbook = place / f"{name}.json"
    playbook.write_text(json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": [task]}]))
    return _measured(0, "-i", str(hosts), str(playbook))


def _measured(code: int, *words: str) -> Used:
    """Raises Failed where ansible-playbook ends with another code."""
    told = BUILD / "used.json"
    callback = "ANSIBLE_STDOUT_CALLBACK=corral.virt.terse"
    ran = run("env", callback, sys.executable, str(MEASURED), str(told), "ansible-playbook", *words)
    ended, cpu_s, rss_mb, together_mb = json.loads(told.read_text())
    if ended != code:
        raise Failed(
            f"`ansible-playbook {' '.join(words)}` ended with {ended} instead of {code}:\n{ran.output[-3000:]}"
        )
    return Used(cpu_s, rss_mb, together_mb, len(ran.output.splitlines()))
