"""Make an image from a kiwi description: kiwi_image.py KIWI DESCRIPTION IMAGE [PROFILE...]. What kiwi makes stands beside IMAGE until then."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys

DISK = "disk_format_image", "disk_image", "filesystem_image"  # kiwi's names for its results, the best first
ENDINGS = ".qcow2", ".raw", ".raw.xz", ".img", ".img.xz"


def main(kiwi: str, description: str, image: str, *profiles: str) -> None:
    """Build, find what was built, and have it as the image."""
    target = os.path.join(os.path.dirname(image), "kiwi")
    chosen = [f"--profile={profile}" for profile in profiles]
    run(kiwi, *chosen, "system", "build", "--description", description, "--target-dir", target)
    become(unpacked(found(target)), image)


def found(target: str) -> str:
    """The disk among kiwi's results, as kiwi says; versions that do not say leave it in the target directory."""
    told = os.path.join(target, "kiwi.result.json")
    if os.path.exists(told):
        with open(told) as stream:
            results = json.load(stream)
        disks = [name_of(results[key]) for key in DISK if key in results]
        what = ", ".join(sorted(results))
    else:
        files = sorted(os.listdir(target))
        disks = [os.path.join(target, name) for ending in ENDINGS for name in files if name.endswith(ending)]
        what = ", ".join(files)
    if not disks:
        sys.exit(f"kiwi built no disk but {what or 'nothing'}: give the description's type image=\"oem\"")
    return disks[0]


def name_of(result: object) -> str:
    """The file of a result, which kiwi writes as an object or, in older versions, as a list that begins with it."""
    return str(result["filename"] if isinstance(result, dict) else result[0])  # type: ignore[index]


def unpacked(disk: str) -> str:
    """The disk without the compression around it."""
    if not disk.endswith(".xz"):
        return disk
    with lzma.open(disk) as packed, open(disk[:-3], "wb") as plain:
        shutil.copyfileobj(packed, plain, 1024 * 1024)
    return disk[:-3]


def become(disk: str, image: str) -> None:
    """Convert the disk into the format that the image's ending says."""
    qcow2 = image.endswith(".qcow2")
    run("qemu-img", "convert", *(["-c"] if qcow2 else []), "-O", "qcow2" if qcow2 else "raw", disk, image)


def run(*command: str) -> None:
    """Run a program, whose output is our own; end as it ends."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        sys.exit(f"{os.path.basename(command[0])} ended with {done.returncode}; its last lines above say why")


if __name__ == "__main__":
    main(*sys.argv[1:])
