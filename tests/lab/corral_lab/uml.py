"""A host that is a process with a Linux of its own (User-Mode Linux): it has what containers of this machine cannot
have, such as LVM. Its guests are emulated twice: a boot sector starts in seconds, a Debian does not.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from corral_lab.host import LINK, Host, mount
from corral_lab.places import Lab, Problem, write
from corral_lab.shell import run, start

PACKAGES = ("udev", "user-mode-linux")  # the kernel is a program of the tree, and is run on this machine
KERNEL, MODULES = "usr/bin/linux.uml", "usr/lib/uml/modules"
LOADED = ("dm-mod", "dm-snapshot", "dm-thin-pool", "loop")
MEMORY, DISK_BYTES = "1500M", 8 * 1024**3
# The kernel calls its network card vec0.
CARD = f"[Match]\nOriginalName=vec0\n\n[Link]\nName={LINK}\n"


def wanted(lab: Lab) -> bool:
    """True if the hosts of a lab have a Linux of their own."""
    return _mark(lab).exists()


def want(lab: Lab) -> None:
    """Record that they have."""
    _mark(lab).touch()


def boot(lab: Lab, host: Host) -> None:
    """Start a host's machine; it outlives us."""
    disk, card = host.place(lab) / "disk.img", f"u{lab.subnet}-{host.name}"
    if not disk.exists():
        _make_disk(lab, host, disk)
    run("ip", "tuntap", "add", "dev", card, "mode", "tap")
    run("ip", "link", "set", card, "master", lab.bridge, "up")
    log = lab.state / "logs" / f"{host.name}.log"
    process = start(
        *_preloaded(lab), host.tree / KERNEL, f"mem={MEMORY}", f"ubd0={disk}", "root=/dev/ubda", "rw",
        f"vec0:transport=tap,ifname={card},depth=128,gro=1", "con0=null,fd:1", "con=null", "ssl=null",
        f"uml_dir={host.place(lab)}", "umid=uml", mark=f"{lab.name}/{host.name}", log=log,
    )  # fmt: skip
    time.sleep(0.2)
    if process.poll() is not None:
        raise Problem(f"cannot start {host.name}: see {log}")


def _preloaded(lab: Lab) -> tuple[str, ...]:
    """What lets its kernel start on a processor with AMX; needs a C compiler."""
    if "amx_tile" not in Path("/proc/cpuinfo").read_text():
        return ()
    library = lab.state / "xstate.so"
    run("cc", "-O2", "-shared", "-fPIC", "-o", library, Path(__file__).with_name("xstate.c"), "-ldl")
    return "env", f"LD_PRELOAD={library}"


def _make_disk(lab: Lab, host: Host, disk: Path) -> None:
    """Its filesystem, from what a container would have."""
    mount(lab, host)
    root, new = host.root(lab), disk.with_suffix(".new")
    modules = root / "usr/lib/modules"
    modules.parent.mkdir(parents=True, exist_ok=True)
    if not modules.exists():
        modules.symlink_to(f"/{MODULES}")
    write(root / "etc/modules-load.d/lab.conf", "".join(f"{each}\n" for each in LOADED))
    write(root / "etc/systemd/network/10-lab.link", CARD)
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    with new.open("wb") as file:
        file.truncate(DISK_BYTES)
    run("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1", "-O", "^has_journal", "-d", root, new)
    new.rename(disk)


def _mark(lab: Lab) -> Path:
    return lab.state / "uml"
