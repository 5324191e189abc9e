"""Run benches on a lab made for them, print a table and leave build/bench.json. Usage: bench.py [NAME]

A bench is a file beside this one and a row in BENCHES: it says how many HOSTS it needs (0: no lab) and which ROLES make
them, and yields its rows().
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import typing as t

from ansible_collections.corral.virt.tests.bench import (
    backups,
    balancing,
    commands,
    console,
    converge,
    images,
    inventory,
    migrate,
    place,
    placing,
    playbooks,
    snapshots,
    storage,
)
from ansible_collections.corral.virt.tests.bench.place import Failed, on, run, say
from ansible_collections.corral.virt.tests.bench.row import Row, table

REPORT = place.ROOT / "build/bench.json"


class Bench(t.Protocol):
    """What a bench's file has."""

    HOSTS: int
    CLOUD_IMAGE: bool  # whether it needs the lab's cloud image
    ROLES: tuple[str, ...]

    def rows(self) -> t.Iterator[Row]:
        """Measure."""


BENCHES: dict[str, Bench] = {
    "converge": converge,
    "images": images,
    "migrate": migrate,
    "commands": commands,
    "inventory": inventory,
    "place": placing,
    "balance": balancing,
    "playbooks": playbooks,
    "storage": storage,
    "snapshots": snapshots,
    "backups": backups,
    "console": console,
}


def measure(benches: t.Mapping[str, Bench]) -> t.Generator[Row]:
    """All rows; the lab goes whatever happens."""
    hosts = max(bench.HOSTS for bench in benches.values())
    place.prepare()
    with lab(benches, hosts) if hosts else contextlib.nullcontext():
        explain(hosts)
        for name, bench in benches.items():
            with part(f"bench {name}"):
                yield from bench.rows()


@contextlib.contextmanager
def lab(benches: t.Mapping[str, Bench], hosts: int) -> t.Iterator[None]:
    """Hypervisors for the length of a `with` block."""
    try:
        with part("bare hosts"):
            place.up(hosts, image=any(bench.CLOUD_IMAGE for bench in benches.values()))
        with part("the collection's roles make them hypervisors"):
            place.hypervisors(dict.fromkeys(role for bench in benches.values() for role in bench.ROLES))
        yield
    finally:
        with part("the lab is taken down"):
            place.down()


@contextlib.contextmanager
def part(title: str) -> t.Iterator[None]:
    """Say what begins, how busy the machine is, and how long it took."""
    started = time.monotonic()
    say(f"== {title} (load {os.getloadavg()[0]:.1f})")
    yield
    say(f"-- {title}: {time.monotonic() - started:.1f} s")


def explain(hosts: int) -> None:
    """What everybody runs on."""
    say(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, "
        f"{run('ansible', '--version').output.splitlines()[0]}{'; on the host:' if hosts else ''}"
    )
    if hosts:
        print(on("hyper1", "virsh version --daemon").output.strip())
    print(f"All that speaks through Ansible has this configuration:\n\n{place.SETTINGS}", flush=True)


def interrupt(*_ignored: object) -> None:
    """End in order, once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit("Interrupted")


def main(names: t.Sequence[str]) -> int:
    """Exit code 0 when all targets are met."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"There is no bench {unknown[0]}; there are: {', '.join(BENCHES)}")
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)
    rows, failed = list[Row](), ""
    with contextlib.closing(measure({name: BENCHES[name] for name in names or BENCHES})) as measuring:
        try:
            for row in measuring:
                rows.append(row)
                say("  ".join(row.cells()))  # an interrupted run has shown it
        except Failed as error:
            failed = f"Failed: {error}"
    REPORT.write_text(json.dumps([row.data() for row in rows], indent=2) + "\n")
    print(f"\n{table(rows)}\n\nratio: the peer's by ours; target: the least ratio asked for. Written to {REPORT}")
    if failed:
        sys.exit(f"{failed}\nWhat is above was measured before.")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
