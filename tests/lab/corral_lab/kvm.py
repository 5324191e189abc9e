"""Whether KVM starts guests here.

The device exists on machines where none starts, or one in ten and that slower than it is emulated: in some virtual
machines. In others, one starts until its boot loader enters protected mode and returns from an interrupt there.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from pathlib import Path

DEVICE = Path("/dev/kvm")
_QEMU = "qemu-system-x86_64"
_LEAST_S, _LONGEST_S = 2.0, 60.0  # on an idle machine, such a guest needs half a second
_PORT, _VALUE = 0xF4, 0x31
# At 0x7c00. The value goes to QEMU's debug-exit device, which ends QEMU with twice the value, and one.
_PROGRAM = bytes.fromhex(
    "fa 31c0 8ed8"  # cli; xor ax, ax; mov ds, ax
    "660f0116537c 660f011e597c"  # lgdt [0x7c53]; lidt [0x7c59]
    "0f20c0 0c01 0f22c0 ea1e7c0800"  # mov eax, cr0; or al, 1; mov cr0, eax; jmp 8:0x7c1e
    "66b81000 8ed8 8ed0 bc007c0000"  # mov ax, 16; mov ds, ax; mov ss, ax; mov esp, 0x7c00
    "cd00 b031 e6f4 f4 cf"  # int 0; mov al, _VALUE; out _PORT, al; hlt; 0x7c32, which handles the interrupt: iret
    "0000000000000000 ffff0000009acf00 ffff00000092cf00"  # 0x7c33: descriptors of no segment, code (8) and data (16)
    "327c0800008e0000"  # 0x7c4b: the gate of interrupt 0
    "1700337c0000 07004b7c0000"  # 0x7c53: limits and addresses of these tables
)


def works() -> bool:
    """Boot a guest of 512 bytes, which ends at once: with KVM in no more than twice the time of emulation."""
    if not DEVICE.exists() or not shutil.which(_QEMU):
        return False
    started = time.monotonic()
    emulated = boots("tcg", _LONGEST_S)
    return emulated and boots("kvm", max(_LEAST_S, 2 * (time.monotonic() - started)))


def node(folder: Path) -> Path:
    """Where a lab has the device again, for hosts whose groups have other numbers than this machine's."""
    return folder / "kvm"


def give(folder: Path, *, given: bool) -> None:
    """Have that device, or not."""
    path = node(folder)
    path.unlink(missing_ok=True)
    if given:
        os.mknod(path, stat.S_IFCHR | 0o600, DEVICE.stat().st_rdev)
        path.chmod(0o666)


def boots(accelerator: str, within_s: float) -> bool:
    """Whether the guest comes to its own end."""
    with tempfile.NamedTemporaryFile(prefix="corral-kvm-") as disk:
        disk.write(_PROGRAM.ljust(510, b"\0") + b"\x55\xaa")
        disk.flush()
        command = (
            _QEMU, "-accel", accelerator, "-machine", "pc", "-m", "32", "-nodefaults", "-display", "none", "-no-reboot",
            "-device", f"isa-debug-exit,iobase={_PORT:#x},iosize=4",
            "-drive", f"file={disk.name},format=raw,if=ide,snapshot=on",
        )  # fmt: skip
        try:
            done = subprocess.run(command, check=False, capture_output=True, timeout=within_s)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 2 * _VALUE + 1
