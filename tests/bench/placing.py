"""Placing batches: seconds, and how many tight batches are placed whole, beside simpler rules and an exact solver.

A batch is made by filling hosts, so all of it is known to fit; the one who places it does not know how.
"""

from __future__ import annotations

import json
import random
import time
import typing as t

from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host, Policy
from ansible_collections.corral.virt.plugins.module_utils._placement.plan_placement import place
from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.bench.place import BUILD, run, say
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 0
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ()

LIMIT, EXACT, HAIL = "limit", "OR-Tools, exact", "hail 3.0"
TIMES = ((1_000, 100, 0.8, 0.5), (10_000, 1_000, 0.8, 10.0), (1_000, 100, 1.03, 1.0))  # guests, hosts, fill, seconds
BATCHES, SMALL, LUMPY = 60, 20, 40
LUMPY_FILL, LUMPY_TARGET = 0.92, 0.97
POLICY = Policy(cpu_overcommit=1.0)
CPUS, MEMORY_MIB = 64, 131072
MIXED = ((32, 65536), (64, 131072), (48, 262144), (96, 196608))
KINDS = ((1, 2048), (2, 4096), (4, 8192), (8, 16384), (2, 8192))
# What some guests ask for: the share of those that do, and how many groups there are for a guest.
TAGS: dict[str, dict[str, float]] = {
    "": {},
    ", 30 % apart": {"apart": 0.3},
    ", tagged": {"apart": 0.2, "together": 0.1, "prefer": 0.1},
}

HOW = """
Batches that are tried for each one that is placed whole: 1 is best. All fit, with 96 % of memory and vCPUs.
- first fit: the largest first, each on the first host that has room
- nova-like: each on the host with most free memory; proxmox-like: on the host that is loaded least by the larger share
- exact: CP-SAT of OR-Tools, at most 20 seconds a batch, for small batches
- hail: of Ganeti, for small batches; the largest first, shared disks, without its own checks of room for a loss
- mixed: hosts of four sizes, and each guest has a size of its own; tagged: some of them stay apart or together, or prefer
  hosts
- lumpy: a host has room for few guests, and the batch takes 92 % of memory and vCPUs
"""

_SPECS = ("memory-size", "cpu-count", "disk-size", "disk-count", "nic-count", "spindle-use")
_IPOLICY = {
    "minmax": [{"min": dict.fromkeys(_SPECS, 0), "max": dict.fromkeys(_SPECS, 2**20)}],
    "std": dict.fromkeys(_SPECS, 1), "disk-templates": ["sharedfile"], "vcpu-ratio": 1.0, "spindle-ratio": 1000.0,
}  # fmt: skip

Rule = t.Callable[[float, float, Guest], float]  # free shares of memory and vCPUs of a host; the lowest is taken
RULES: dict[str, Rule] = {
    "first fit": lambda _memory, _cpu, _guest: 0.0,
    "nova-like": lambda memory, _cpu, _guest: -memory,
    "proxmox-like": lambda memory, cpu, _guest: -min(memory, cpu),
}
SOLVER = """\
import json, sys
from ortools.sat.python import cp_model
solved = []
for cluster in json.load(open(sys.argv[1])):
    model = cp_model.CpModel()
    on = [[model.new_bool_var("") for _host in cluster["hosts"]] for _guest in cluster["guests"]]
    for row in on:
        model.add_exactly_one(row)
    for index, (cpus, memory) in enumerate(cluster["hosts"]):
        model.add(sum(guest[0] * row[index] for guest, row in zip(cluster["guests"], on)) <= cpus)
        model.add(sum(guest[1] * row[index] for guest, row in zip(cluster["guests"], on)) <= memory)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = 20
    solved.append(solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE))
print(json.dumps(solved))
"""


def rows() -> t.Iterator[Row]:
    """Measure."""
    print(HOW, flush=True)
    for guests, count, fill, limit_s in TIMES:
        name = f"place on {count} hosts, fill {fill:g}"
        yield Row(name, guests, _seconds(guests, count, fill), LIMIT, limit_s, "s", 1.0, "CPU")
    for guests, count, limit_s in ((1_000, 100, 0.5), (10_000, 1_000, 10.0)):
        for name, tags in TAGS.items():
            spent = _spent(*mixed(guests, count, 0.8, tags), Policy(cpu_overcommit=8))
            yield Row(f"place on {count} mixed hosts{name}", guests, spent, LIMIT, limit_s, "s", 1.0, "CPU")
    fits, exceeds = (min(_seconds(1_000, 100, fill) for _turn in range(3)) for fill in (0.8, 1.6))
    yield Row("refuse on 100 hosts, fill 1.6", 1_000, exceeds, "placing, fill 0.8", fits, "s", 1 / 3, "CPU")
    say(f"{BATCHES} tight batches")
    clusters = [tight(20, seed=seed) for seed in range(BATCHES)]
    mine = _tries([_whole(batch, hosts) for batch, hosts in clusters])
    for name, rule in RULES.items():
        theirs = _tries([_greedy(batch, hosts, rule) for batch, hosts in clusters])
        note = "" if theirs else "places none whole"
        yield Row(
            "place, tight batches", BATCHES, t.cast(float, mine), name, theirs, "tries", 1.0 if theirs else None, note
        )
    yield from _small()
    yield _lumpy()


def _seconds(guests: int, count: int, fill: float) -> float:
    """Processor seconds to place such a batch."""
    return _spent(*_spread(guests, count, fill), Policy())


def _spent(batch: t.Sequence[Guest], hosts: t.Sequence[Host], policy: Policy) -> float:
    started = time.process_time()
    placed = place(batch, hosts, policy=policy)
    spent = time.process_time() - started
    say(f"{sum(one.host is None for one in placed)} of {len(batch)} are left")
    return spent


def mixed(count: int, hosts: int, fill: float, tags: t.Mapping[str, float]) -> tuple[list[Guest], list[Host]]:
    """Hosts of several sizes, and guests of which none is as large as another; some of them with tags."""
    chance = random.Random(7)
    there = [Host(f"host{number:04d}", *chance.choice(MIXED)) for number in range(hosts)]
    kinds = [chance.choice(KINDS) for _number in range(count)]
    scale = sum(host.memory_mib for host in there) * fill / sum(memory for _vcpus, memory in kinds)

    def tagged() -> dict[str, t.Any]:
        words = {"apart": f"group{chance.randrange(count // 5)}", "together": f"pair{chance.randrange(count // 30)}"}
        words["prefer"] = chance.choice(there).name
        return {field: frozenset([words[field]]) for field, share in tags.items() if chance.random() < share}

    batch = [
        Guest(f"guest{number:05d}", vcpus, int(memory * scale * chance.uniform(0.8, 1.2)), **tagged())
        for number, (vcpus, memory) in enumerate(kinds)
    ]
    return batch, there


def lumpy(count: int, *, seed: int) -> tuple[list[Guest], list[Host]]:
    """Hosts of several sizes, and few guests for each that fill 92 % of its memory and vCPUs."""
    chance = random.Random(seed)
    sizes, hosts = list[tuple[int, int]](), list[Host]()
    for number in range(count):
        cpus, memory = chance.choice(MIXED)
        hosts.append(Host(f"host{number:02d}", cpus, memory))
        left = int(cpus * LUMPY_FILL), int(memory * LUMPY_FILL)
        while min(left) > 0:
            one = int(cpus * chance.uniform(0.2, 0.7)), int(memory * chance.uniform(0.2, 0.7))
            if left[0] - one[0] < 0.05 * cpus or left[1] - one[1] < 0.05 * memory:
                one = left  # the last one takes what is left
            sizes.append(one)
            left = left[0] - one[0], left[1] - one[1]
    chance.shuffle(sizes)
    return [Guest(f"guest{number}", *each) for number, each in enumerate(sizes)], hosts


def tight(count: int, *, seed: int) -> tuple[list[Guest], list[Host]]:
    """Hosts, and guests that fill 96 % of each by memory and by vCPUs at once."""
    chance = random.Random(seed)
    guests = list[tuple[int, int]]()
    for _host in range(count):
        cpus, memory = int(CPUS * 0.96), int(MEMORY_MIB * 0.96)
        while cpus > 0 and memory > 1024:
            vcpus = min(cpus, chance.choice((1, 2, 4, 8, 16)))
            size = min(memory, 1024 * chance.choice((1, 2, 4, 8, 16, 32)))
            if vcpus == cpus or size == memory:
                vcpus, size = cpus, memory  # the last one takes what is left
            guests.append((vcpus, size))
            cpus, memory = cpus - vcpus, memory - size
    chance.shuffle(guests)
    batch = [Guest(f"guest{number}", *sizes) for number, sizes in enumerate(guests)]
    return batch, [Host(f"host{number:02d}", CPUS, MEMORY_MIB) for number in range(count)]


def _spread(count: int, hosts: int, fill: float) -> tuple[list[Guest], list[Host]]:
    """Guests of some kinds that take that share of all memory."""
    chance = random.Random(1)
    kinds = [chance.choice(KINDS) for _number in range(count)]
    scale = MEMORY_MIB * hosts * fill / sum(memory for _vcpus, memory in kinds)
    batch = [Guest(f"guest{n:05d}", vcpus, int(memory * scale)) for n, (vcpus, memory) in enumerate(kinds)]
    return batch, [Host(f"host{number:04d}", CPUS, MEMORY_MIB) for number in range(hosts)]


def _whole(batch: t.Sequence[Guest], hosts: t.Sequence[Host]) -> bool:
    return all(one.host for one in place(batch, hosts, policy=POLICY))


def _greedy(batch: t.Sequence[Guest], hosts: t.Sequence[Host], rule: Rule) -> bool:
    """The largest first, each where the rule is lowest."""
    free = [[float(host.memory_mib), float(host.cpus)] for host in hosts]
    for guest in sorted(batch, key=lambda one: -max(one.memory_mib / MEMORY_MIB, one.vcpus / CPUS)):
        fitting = [item for item in free if item[0] >= guest.memory_mib and item[1] >= guest.vcpus]
        if not fitting:
            return False
        best = min(fitting, key=lambda item: rule(item[0] / MEMORY_MIB, item[1] / CPUS, guest))
        best[0], best[1] = best[0] - guest.memory_mib, best[1] - guest.vcpus
    return True


def _tries(whole: t.Sequence[bool]) -> float | None:
    return len(whole) / sum(whole) if any(whole) else None


def _small() -> t.Iterator[Row]:
    """Small batches, of which a solver says whether they fit."""
    say(f"{SMALL} small batches with an exact solver, and with hail")
    clusters = [tight(4, seed=1000 + seed) for seed in range(SMALL)]
    mine, theirs = _tries([_whole(batch, hosts) for batch, hosts in clusters]), _tries(_solved(clusters))
    yield Row("place, small batches", SMALL, t.cast(float, mine), EXACT, theirs, "tries", 0.95)
    hail = peers.ganeti("hail")
    placed = _tries([_allocated(batch, hosts, hail) for batch, hosts in clusters])
    note = "" if placed else "places none whole"
    yield Row("place, small batches", SMALL, t.cast(float, mine), HAIL, placed, "tries", 1.0 if placed else None, note)


def _solved(clusters: t.Sequence[tuple[t.Sequence[Guest], t.Sequence[Host]]]) -> list[bool]:
    """Which of these batches the solver places whole."""
    given = [
        {
            "hosts": [(host.cpus, host.memory_mib) for host in hosts],
            "guests": [(guest.vcpus, guest.memory_mib) for guest in batch],
        }
        for batch, hosts in clusters
    ]
    file = BUILD / "batches.json"
    file.write_text(json.dumps(given))
    return t.cast("list[bool]", json.loads(run(peers.ortools(), "-c", SOLVER, file).output))


def _lumpy() -> Row:
    """Of batches that can be placed whole, those that are."""
    say(f"{LUMPY} batches of large guests")
    clusters = [lumpy(5 + seed % 8, seed=seed) for seed in range(LUMPY)]
    feasible = [cluster for cluster, solved in zip(clusters, _solved(clusters), strict=True) if solved]
    mine = t.cast(float, _tries([_whole(batch, hosts) for batch, hosts in feasible]))
    return Row("place, lumpy batches on mixed hosts", len(feasible), mine, EXACT, 1.0, "tries", LUMPY_TARGET)


def _allocated(batch: t.Sequence[Guest], hosts: t.Sequence[Host], hail: t.Sequence[str]) -> bool:
    """Whether hail finds a host for each guest, the largest first."""
    largest = sorted(batch, key=lambda one: -max(one.memory_mib / MEMORY_MIB, one.vcpus / CPUS))
    group = {"name": "all", "alloc_policy": "preferred", "networks": [], "tags": [], "ipolicy": _IPOLICY}
    file = BUILD / "request.json"
    request = {
        "version": 2, "cluster_name": "bench", "cluster_tags": [], "enabled_hypervisors": ["kvm"], "ipolicy": _IPOLICY,
        "nodegroups": {"uuid-1": group},
        "nodes": {host.name: _node(host) for host in hosts},
        "instances": {},
        "request": {"type": "multi-allocate", "instances": [_instance(guest) for guest in largest]},
    }  # fmt: skip
    file.write_text(json.dumps(request))
    answer: dict[str, t.Any] = json.loads(run(*hail, "--no-capacity-checks", file).output)
    return bool(answer["success"])


def _node(host: Host) -> dict[str, t.Any]:
    return {
        "total_memory": host.memory_mib, "reserved_memory": 0, "free_memory": host.memory_mib,
        "total_disk": 10**7, "free_disk": 10**7, "total_spindles": 0, "free_spindles": 0,
        "total_cpus": host.cpus, "reserved_cpus": 0, "primary_ip": "192.0.2.1", "secondary_ip": "192.0.2.1",
        "tags": [], "group": "uuid-1", "offline": False, "drained": False, "master_candidate": True,
        "master_capable": True, "vm_capable": True, "i_pri_memory": 0, "i_pri_up_memory": 0,
        "ndparams": {"spindle_count": 1, "exclusive_storage": False, "cpu_speed": 1.0},
    }  # fmt: skip


def _instance(guest: Guest) -> dict[str, t.Any]:
    return {
        "type": "allocate", "name": guest.name, "memory": guest.memory_mib, "vcpus": guest.vcpus, "nics": [],
        "disks": [{"size": 1, "mode": "rw", "spindles": 0}], "disk_template": "sharedfile", "disk_space_total": 1,
        "hypervisor": "kvm", "os": "none", "tags": [], "required_nodes": 1, "spindle_use": 1,
    }  # fmt: skip
