"""Make an image from a kiwi description: kiwi_image.py KIWI DESCRIPTION IMAGE [PROFILE...].

What kiwi makes stands beside IMAGE.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
from pathlib import Path

RESULTS = "disk_format_image", "disk_image"  # kiwi's names for a disk, the better first
ENDINGS = ".qcow2", ".raw", ".raw.xz"


def main(kiwi: str, description: str, name: str, *profiles: str) -> None:
    """Build, find what was built, and have it as the image."""
    image = Path(name)
    target = image.parent / "kiwi"
    chosen = [f"--profile={profile}" for profile in profiles]
    run(kiwi, *chosen, "system", "build", "--description", description, "--target-dir", str(target))
    to = ["-c", "-O", "qcow2"] if image.suffix == ".qcow2" else ["-O", "raw"]
    run("qemu-img", "convert", *to, str(unpacked(disk(target))), name)


def disk(target: Path) -> Path:
    """The disk among kiwi's results: as kiwi tells; older versions only leave it in the target directory."""
    told = target / "kiwi.result.json"
    if told.exists():
        results = json.loads(told.read_text())
        disks = [Path(results[key]["filename"]) for key in RESULTS if key in results]
    else:
        disks = [path for ending in ENDINGS for path in sorted(target.glob(f"*{ending}"))]
    if not disks:
        built = ", ".join(sorted(path.name for path in target.iterdir() if path.is_file()))
        sys.exit(f'kiwi built no disk but {built or "nothing"}: choose a type with image="oem" in the description')
    return disks[0]


def unpacked(path: Path) -> Path:
    """A disk without the compression around it."""
    if path.suffix != ".xz":
        return path
    plain = path.with_suffix("")
    with lzma.open(path) as packed, plain.open("wb") as out:
        shutil.copyfileobj(packed, out)
    return plain


def run(*command: str) -> None:
    """Run a program, whose output is ours; end as it ends."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(f"{Path(command[0]).name} exited with {done.returncode}: see its last lines above")


if __name__ == "__main__":
    main(*sys.argv[1:])
