"""Run make targets one after the other, all of them whatever fails, and print what each took.

Usage: stages.py TARGET... The exit code is 0 when all passed. Leaves build/test.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

REPORT = Path(__file__).parents[2] / "build/test.json"


def run(target: str) -> dict[str, object]:
    """Make one target."""
    print(f"\n== make {target}", flush=True)
    started = time.monotonic()
    code = subprocess.run(["make", target], check=False).returncode
    return {"name": target, "ok": code == 0, "seconds": round(time.monotonic() - started, 1)}


def main(targets: list[str]) -> int:
    """Run all and tell."""
    results = [run(target) for target in targets]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(results, indent=2) + "\n")
    print()
    for result in results:
        print(f"{'ok' if result['ok'] else 'FAILED':7} {result['name']:12} {result['seconds']:7} s")
    return 0 if all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("Interrupted")
