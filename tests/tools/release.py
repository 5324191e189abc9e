"""Make a release in a clean checkout: version, changelog, commit, signed tag, archive, list of licences, bill of materials. Usage: release.py [--check] VERSION

With `--check`, the tag is there, and only what is to be published is made: build/release/. Nothing is pushed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bill_of_materials

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build/release"
VERSION = re.compile(r"^version: .*$", re.MULTILINE)


def run(*argv: str | Path) -> str:
    """Standard output of a program that must succeed."""
    return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def refuse(version: str, *, check: bool) -> None:
    """Exit with all that speaks against it, before anything is written."""
    problems = []
    if not re.fullmatch(r"\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?", version):
        problems.append(f"{version} is no semantic version: write it as 1.0.0 or 1.0.0-rc.1")
    if run("git", "status", "--porcelain"):
        problems.append("the checkout has changes: commit them, or git stash")
    tags = run("git", "tag", "--list", f"v{version}").split()
    if tags and not check:
        problems.append(f"the tag v{version} exists: choose the next version")
    if check:
        named = VERSION.findall((ROOT / "galaxy.yml").read_text())
        if named != [f"version: {version}"]:
            problems.append(f"galaxy.yml says '{named[0]}': tag the commit that make release made")
    if problems:
        sys.exit(f"Cannot release {version}: " + "; ".join(problems))


def tag(version: str) -> None:
    """The commit of the release, with a signed tag."""
    galaxy = ROOT / "galaxy.yml"
    galaxy.write_text(VERSION.sub(f"version: {version}", galaxy.read_text()))
    run("antsibull-changelog", "release", "--version", version)
    run("git", "add", "--all")
    run("git", "commit", "--quiet", "--message", f"Release {version}")
    try:
        run("git", "tag", "--sign", f"v{version}", "--message", f"corral.virt {version}")
    except subprocess.CalledProcessError:
        sys.exit(
            f"The commit of {version} is made and has no tag: set user.signingkey, and run "
            f"git tag --sign v{version} && python tests/tools/release.py --check {version}; "
            "git reset --hard HEAD~1 takes the commit back"
        )


def build(version: str) -> None:
    """The archive, its checksum, the licence of each file (SPDX), and what it needs and carries of others (CycloneDX)."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    run("ansible-galaxy", "collection", "build", "--output-path", OUT)
    archive = OUT / f"corral-virt-{version}.tar.gz"
    (OUT / f"{archive.name}.sha256").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    bill_of_materials.write(archive)
    run("reuse", "spdx", "--output", OUT / f"corral-virt-{version}.spdx")


def main(words: list[str]) -> None:
    """Release what the words name."""
    check, version = "--check" in words, words[-1].removeprefix("v")
    refuse(version, check=check)
    if not check:
        tag(version)
    build(version)
    print(f"{OUT} has what is published" + ("" if check else f"; git push origin main v{version} publishes it"))


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    try:
        main(sys.argv[1:])
    except subprocess.CalledProcessError as error:
        sys.exit(f"Cannot release: {' '.join(map(str, error.cmd))} exited with {error.returncode}")
