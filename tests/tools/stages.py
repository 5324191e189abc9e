"""Run make targets, all of them whatever fails, and print what each took.

Usage: stages.py TARGET[,TARGET]... Targets with commas between them run side by side, two at a time, and the first of
them has the processors when it wants them; what each prints appears when it has ended, but for the longest (LIVE),
which prints as it goes. The exit code is 0 when all passed. Leaves build/test.json: a row for each stage, with its time
of processors (but that of the lab's hosts), and in it a row for each test file that the stage ran, with its slow tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPORT = Path(__file__).parents[2] / "build" / os.environ.get("CORRAL_TEST_REPORT", "test.json")
SLOWEST = 10  # files in the printed table
AT_ONCE = 2
LIVE = "test-lab"
NICE = 5  # a third of the processors where the first target wants all: lab tests that begin beside it must not starve


def files(lines: Iterable[str]) -> list[dict[str, Any]]:
    """What tests/conftest.py wrote, slowest file first; a file that several runs had a part of is one row."""
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        part = json.loads(line)
        row = rows.setdefault(part["name"], {"name": part["name"], "seconds": 0.0, "tests": 0, "slow": {}})
        row["seconds"] = round(row["seconds"] + part["seconds"], 2)
        row["tests"] += part["tests"]
        row["slow"].update(part["slow"])
    return sorted(rows.values(), key=lambda row: -row["seconds"])


def run(target: str, *, live: bool, nice: bool = False) -> dict[str, Any]:
    """Make one target; its output appears at once when it is `live`, else in one piece."""
    print(f"\n== make {target}" if live else f"== make {target} begins", flush=True)
    with tempfile.NamedTemporaryFile("r", prefix="corral-times-") as times:
        started = time.monotonic()
        out = None if live else subprocess.PIPE
        env = {**os.environ, "CORRAL_TEST_TIMES": times.name}
        command = ["nice", "-n", str(NICE), "make", target] if nice else ["make", target]
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out and subprocess.STDOUT, text=True)
        printed = process.stdout.read() if process.stdout else ""
        _, process.returncode, used = os.wait4(process.pid, 0)
        seconds = {"seconds": time.monotonic() - started, "processor_s": used.ru_utime + used.ru_stime}
        stage = {
            "name": target,
            "ok": process.returncode == 0,
            **{key: round(each, 1) for key, each in seconds.items()},
        }
        tested = files(times)
    if not live:
        print(f"\n== make {target}\n{printed}", flush=True)
    return {**stage, "files": tested} if tested else stage


def run_together(targets: list[str]) -> list[dict[str, Any]]:
    """Make some targets side by side, the first ones first."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(
            pool.map(
                lambda target: run(target, live=target == LIVE or len(targets) == 1, nice=target != targets[0]), targets
            )
        )


def table(stages: list[dict[str, Any]]) -> str:
    """Stages in their order, then the slowest test files of all."""
    lines = [
        f"{'ok' if stage['ok'] else 'FAILED':7} {stage['name']:12} {stage['seconds']:7.1f} s, {stage['processor_s']:7.1f} of processors"
        for stage in stages
    ]
    slowest = sorted((row for stage in stages for row in stage.get("files", [])), key=lambda row: -row["seconds"])[
        :SLOWEST
    ]
    return "\n".join([*lines, *(f"{row['seconds']:28.1f} s  {row['name']} ({row['tests']} tests)" for row in slowest)])


def clock() -> tuple[int, int]:
    """What all processors did since the machine started, in ticks: idle, and all."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def main(groups: list[str]) -> int:
    """Run all and tell."""
    started, (idle, ticks) = time.monotonic(), clock()
    results = [result for group in groups for result in run_together(group.split(","))]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(results, indent=2) + "\n")
    now_idle, now = clock()
    busy = 1 - (now_idle - idle) / max(1, now - ticks)
    print(f"\n{table(results)}\n{'':8}{'all':12} {time.monotonic() - started:7.1f} s, processors {busy:.0%} busy")
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Interrupted")
