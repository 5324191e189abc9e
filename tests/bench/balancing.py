"""Balancing clusters of 4 to 64 hosts beside Ganeti's hbal, on our measure and on its own, for each GiB that is moved.

Both get the same hosts and guests, as Ganeti's text format has them; disks are shared, so memory alone is moved.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._placement import plan_balance
from ansible_collections.corral.virt.plugins.module_utils._placement.model_placement import Guest, Host
from ansible_collections.corral.virt.tests.bench import peers
from ansible_collections.corral.virt.tests.bench.place import BUILD, Failed, run, say
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 0
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ()

SIZES = ((4, 10, 5), (8, 10, 5), (16, 10, 5), (64, 5, 1))  # hosts, guests of each, clusters; hbal takes a minute for 64
CPUS, MEMORY_MIB = 32, 65536
KINDS = ((1, 1024), (2, 2048), (2, 4096), (4, 8192))  # vCPUs and MiB
HBAL, LIMIT, LIMIT_S = "hbal 3.0", "limit", 5.0

HOW = """
GiB of memory that are moved for each point by which the imbalance falls: ours in percentage points, and hbal's own score.
- hbal: all disks on shared storage, as many moves as ours
- by guests: ours with `by: [memory, vcpus, guests]`. The score of hbal is for the most part the number of guests of each
  host, as it takes all guests to be equally busy, so it is compared with ours where that counts for both.
"""

BY = {"balance": plan_balance.BY, "balance by guests": (*plan_balance.BY, "guests")}
POLICY = "128,1,1,1,1,1|128,1,1,1,1,1;1048576,64,1048576,16,8,12|sharedfile|4.0|32.0"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts and where their guests are."""

    hosts: t.Sequence[Host]
    residents: t.Sequence[plan_balance.Resident]

    def moved(self, homes: t.Mapping[str, str]) -> Cluster:
        """The same with guests on other hosts."""
        residents = [dataclasses.replace(one, host=homes.get(one.guest.name, one.host)) for one in self.residents]
        return Cluster(_used(self.hosts, residents), residents)

    def imbalance(self) -> float:
        """Ours, in percentage points."""
        return plan_balance.imbalance(self.hosts)

    def moved_gib(self, homes: t.Mapping[str, str]) -> float:
        """Memory of guests whose host is another one then."""
        return sum(one.guest.memory_mib for one in self.residents if homes[one.guest.name] != one.host) / 1024

    def homes(self) -> dict[str, str]:
        """Hosts by guest."""
        return {one.guest.name: one.host for one in self.residents}

    def text(self) -> str:
        """In Ganeti's format: groups, nodes, instances, tags, policies."""
        used = {host.name: host.memory_used_mib for host in self.hosts}
        nodes = [
            f"{name}|{MEMORY_MIB}|0|{MEMORY_MIB - memory}|1000000|1000000|{CPUS}|N|uuid-1|1||N|0|1|1.0"
            for name, memory in used.items()
        ]
        guests = [
            f"{one.guest.name}|{one.guest.memory_mib}|1024|{one.guest.vcpus}|running|Y|{one.host}||sharedfile||1|1|N"
            for one in self.residents
        ]
        parts: tuple[list[str], ...] = (["all|uuid-1|preferred||"], nodes, guests, [], [f"|{POLICY}", f"all|{POLICY}"])
        return "\n\n".join("\n".join(part) for part in parts) + "\n"


def rows() -> t.Iterator[Row]:
    """Measure."""
    print(HOW, flush=True)
    hbal = peers.ganeti("hbal")
    for count, each, clusters in SIZES:
        say(f"{clusters} clusters of {count} hosts")
        yield from _compared(count, [made(count, each, seed=seed) for seed in range(clusters)], hbal)
    cluster = made(200, 10, seed=1)
    started = time.process_time()
    plan_balance.plan(cluster.hosts, cluster.residents)
    yield Row("balance on 200 hosts", 2000, time.process_time() - started, LIMIT, LIMIT_S, "s", 1.0, "CPU")


def made(count: int, each: int, *, seed: int) -> Cluster:
    """Guests at random, more on some hosts than on others."""
    chance = random.Random(seed)
    names = [f"node-{number:03d}" for number in range(count)]
    weights = [chance.choice((1, 1, 2, 3)) for _name in names]
    residents, free = list[plan_balance.Resident](), dict.fromkeys(names, MEMORY_MIB)
    for number in range(count * each):
        vcpus, memory_mib = chance.choice(KINDS)
        fitting = [(name, weight) for name, weight in zip(names, weights, strict=True) if free[name] > 2 * memory_mib]
        [home] = chance.choices([name for name, _weight in fitting], [weight for _name, weight in fitting])
        free[home] -= memory_mib
        residents.append(plan_balance.Resident(Guest(f"guest-{number}", vcpus, memory_mib), home))
    return Cluster(_used([Host(name, CPUS, MEMORY_MIB) for name in names], residents), residents)


def _used(hosts: t.Sequence[Host], residents: t.Sequence[plan_balance.Resident]) -> list[Host]:
    memory, vcpus = dict.fromkeys((host.name for host in hosts), 0), dict.fromkeys((host.name for host in hosts), 0)
    for one in residents:
        memory[one.host] += one.guest.memory_mib
        vcpus[one.host] += one.guest.vcpus
    return [dataclasses.replace(host, vcpus_used=vcpus[host.name], memory_used_mib=memory[host.name]) for host in hosts]


def _compared(count: int, clusters: t.Sequence[Cluster], hbal: t.Sequence[str]) -> t.Iterator[Row]:
    """What both pay for a point, over all these clusters."""
    gib, points = (collections.defaultdict[tuple[str, ...], float](float) for _each in range(2))
    for before in clusters:
        theirs: dict[int, dict[str, str]] = {}
        score = _score(before, hbal)
        for name, by in BY.items():
            moves = plan_balance.plan(before.hosts, before.residents, by=by)
            if len(moves) not in theirs:
                theirs[len(moves)] = _balanced(before, hbal, len(moves))
            homes = {**before.homes(), **{move.guest: move.dest for move in moves}}
            for who, then in (("ours", homes), ("hbal", theirs[len(moves)])):
                after = before.moved(then)
                gib[name, who] += before.moved_gib(then)
                points[name, who, "our imbalance"] += before.imbalance() - after.imbalance()
                points[name, who, "score of hbal"] += score - _score(after, hbal)
    for name, measure in itertools.product(BY, ("our imbalance", "score of hbal")):
        mine, other = (gib[name, who] / points[name, who, measure] for who in ("ours", "hbal"))
        target = 1.0 if measure == "our imbalance" or "guests" in BY[name] else None
        yield Row(f"{name}, {measure}", count, mine, HBAL, other, "GiB a point", target)


def _balanced(cluster: Cluster, hbal: t.Sequence[str], moves: int) -> dict[str, str]:
    """Where hbal puts the guests, with as many moves."""
    text = _written(cluster)
    run(*hbal, "-t", text, f"--save={text}", f"--max-length={moves}")
    saved = [line.split("|") for line in Path(f"{text}.balanced").read_text().splitlines()]
    return {line[0]: line[6] for line in saved if line[0].startswith("guest-")}


def _score(cluster: Cluster, hbal: t.Sequence[str]) -> float:
    """Of hbal; less is better."""
    printed = run(*hbal, "-t", _written(cluster), "--max-length=0").output
    found = re.search(r"[Ii]nitial score:? ([\d.]+)", printed)
    if found is None:
        raise Failed(f"hbal printed no score:\n{printed}")
    return float(found[1])


def _written(cluster: Cluster) -> Path:
    text = BUILD / "cluster"
    text.write_text(cluster.text())
    return text
