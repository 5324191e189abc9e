"""Where a lab keeps its things, and what it is called."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CACHE = Path(os.environ.get("CORRAL_LAB_CACHE", "/var/cache/corral-lab"))
STATE = Path("/var/lib/corral-lab")
CHECKOUT = Path(__file__).resolve().parents[3]
NAME = re.compile(r"[a-z][a-z0-9]{0,7}")


class Problem(Exception):
    """Something the user can mend: the text says what and how."""


@dataclass(frozen=True)
class Lab:
    """One lab: its name, the checkout it belongs to and the third number of its network."""

    name: str
    checkout: Path
    subnet: int

    @property
    def state(self) -> Path:
        """Disks, keys and logs; survives the checkout."""
        return STATE / self.name

    @property
    def build(self) -> Path:
        """What the user of the lab reads: inventory, ssh_config."""
        return self.checkout / "build" / "lab" / self.name

    @property
    def bridge(self) -> str:
        return f"lab-{self.name}"

    @property
    def table(self) -> str:
        return f"corral-lab-{self.name}"

    @property
    def prefix(self) -> str:
        """The first three numbers of every address in this lab."""
        return f"10.86.{self.subnet}"

    @property
    def gateway(self) -> str:
        return f"{self.prefix}.1"

    @property
    def network(self) -> str:
        return f"{self.prefix}.0/24"

    @property
    def key(self) -> Path:
        return self.state / "keys" / "id_ed25519"

    def save(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        write(self.state / "lab.json", json.dumps(asdict(self), default=str))


def labs() -> list[Lab]:
    """Every lab of this machine, also of other checkouts."""
    found = (json.loads(path.read_text()) for path in sorted(STATE.glob("*/lab.json")))
    return [Lab(each["name"], Path(each["checkout"]), each["subnet"]) for each in found]


def names() -> set[str]:
    """Names of everything that has a directory, so that half-made labs are found too."""
    return {path.name for path in STATE.glob("*") if path.is_dir() and NAME.fullmatch(path.name)}


def write(path: Path, text: str, *, mode: int = 0o644) -> bool:
    """Write a whole file or nothing; tells whether it changed."""
    if path.is_file() and not path.is_symlink() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.chmod(mode)
    new.rename(path)
    return True


@contextlib.contextmanager
def locked(name: str, *, waiting: str = "") -> Iterator[None]:
    """Hold a lock of this machine; the kernel frees it when the process ends, however it ends."""
    path = Path("/run/lock") / f"corral-lab-{name}"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
