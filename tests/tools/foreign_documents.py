"""Check that guests of others come back from their import: the test documents in the source package of libvirt, made
again by libvirt's QEMU driver. Root, Debian.

What is not installed is unpacked aside; nothing on this machine changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lab"))
from corral_lab.mirror import line_for  # noqa: E402 - the lab is no package of the collection

PLACE = ROOT / ".cache/foreign"
PACKAGE = "libvirt"
DRIVER = "libvirt-daemon-driver-qemu"
DRIVERS = "usr/lib/x86_64-linux-gnu/libvirt/connection-driver"
# Debian's libvirt looks for this user, whoever is configured.
ACCOUNTS = {
    "passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin",
    "group": "libvirt-qemu:x:64055:",
}
QEMU_CONF = 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\n'
BOUND = 'for each in passwd group; do mount --bind "$0/$each" "/etc/$each"; done; exec "$@"'


def main(arguments: t.Sequence[str]) -> int:
    """Run the test there."""
    if not (PLACE / "complete").exists():
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(parents=True)
        fetch()
        (PLACE / "complete").touch()
    for name, line in ACCOUNTS.items():
        there = Path("/etc", name).read_text()
        (PLACE / name).write_text(there if "libvirt-qemu:" in there else f"{there}{line}\n")
    embed = PLACE / "embed"
    (embed / "etc").mkdir(parents=True, exist_ok=True)
    (embed / "etc/qemu.conf").write_text(QEMU_CONF)
    environment = {
        **os.environ,
        "CORRAL_FOREIGN_XML": str(PLACE / "documents"),
        "CORRAL_FOREIGN_URI": f"qemu:///embed?root={embed}",
        "LIBVIRT_DRIVER_DIR": str(PLACE / "unpacked" / DRIVERS),
    }
    test = ("pytest", "-q", "tests/unit/test_foreign_documents.py", *arguments)
    command = ("unshare", "--mount", "sh", "-ec", BOUND, str(PLACE), *test)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def fetch() -> None:
    """Have the documents, and the driver."""
    lists, release = PLACE / "lists", _release()
    (lists / "partial").mkdir(parents=True)
    sources = PLACE / "sources.list"
    sources.write_text(line_for(release, mirror=None).replace("deb ", "deb-src ", 1) + "\n")
    options = [f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/dev/null", f"Dir::State::Lists={lists}"]
    apt = ("apt-get", "-qq", *(word for option in options for word in ("-o", option)))
    _run(*apt, "update")
    _run(*apt, "source", "--download-only", PACKAGE)
    _run("apt-get", "-qq", "download", DRIVER)
    [archive], [driver] = PLACE.glob("*.orig.tar.xz"), PLACE.glob("*.deb")
    (PLACE / "documents").mkdir()
    _run("tar", "-xJf", str(archive), "-C", "documents", "--wildcards", "*/tests/*.xml")
    _run("dpkg", "-x", str(driver), "unpacked")


def _release() -> str:
    told = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return told["VERSION_CODENAME"].strip('"')


def _run(*command: str) -> None:
    subprocess.run(command, cwd=PLACE, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
