"""Templates: labs as roles left them, for other labs to begin with. Hosts' addresses are fixed by then, so a template
is for one network; a lab with another one begins bare."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from corral_lab import host, processes
from corral_lab.host import Host
from corral_lab.places import CACHE, Lab, locked, write
from corral_lab.shell import run, unmount

AUTHORITY = "ca"  # what the roles make on the controller, below the lab's build directory


@dataclass(frozen=True)
class Template:
    """A place for a template, and what it is made from: a place has the latest."""

    slot: str
    key: str

    @property
    def place(self) -> Path:
        return CACHE / "templates" / self.slot


def begin(lab: Lab, template: Template) -> bool:
    """Give a new lab the template's hosts, keys and authority; False where there is no such template."""
    with locked(f"template-{template.slot}"):
        try:
            record = json.loads((template.place / "lab.json").read_text())
        except FileNotFoundError:
            return False
        hosts = [Host(**{**each, "tree": Path(each["tree"])}) for each in record["hosts"]]
        if (record["key"], record["subnet"]) != (template.key, lab.subnet) or not all(
            each.tree.is_dir() for each in hosts
        ):
            return False
        mark(lab).touch()
        _copy(template.place / "keys", lab.key.parent)
        _copy(template.place / AUTHORITY, lab.build / AUTHORITY)
        for each in hosts:
            _copy(template.place / each.name, each.place(lab) / "upper")
            host.fetch_packages(lab, each)
            write(each.place(lab) / "host.json", json.dumps(asdict(each), default=str))
        mark(lab).unlink()
        return True


def make(lab: Lab, template: Template) -> None:
    """Stop a lab's hosts and copy what they are, in place of the template that was there. `up` starts them again."""
    hosts = list(host.hosts(lab).values())
    for each in hosts:
        processes.end(lab.name, each.name)
        if each.root(lab).is_mount():
            unmount(each.root(lab))
    host.keep_packages(lab, away=True)
    with locked(f"template-{template.slot}"):
        for left in template.place.parent.glob(f".{template.slot}.*"):
            shutil.rmtree(left)
        new = template.place.with_name(f".{template.slot}.{os.getpid()}")
        new.mkdir(parents=True)
        _copy(lab.key.parent, new / "keys")
        _copy(lab.build / AUTHORITY, new / AUTHORITY)
        for each in hosts:
            _copy(each.place(lab) / "upper", new / each.name)
        record = {"key": template.key, "subnet": lab.subnet, "hosts": [asdict(each) for each in hosts]}
        write(new / "lab.json", json.dumps(record, default=str))
        shutil.rmtree(template.place, ignore_errors=True)
        new.rename(template.place)
    for each in hosts:
        host.fetch_packages(lab, each)


def mark(lab: Lab) -> Path:
    """Is there while a lab is given a template."""
    return lab.state / "beginning"


def _copy(source: Path, target: Path) -> None:
    """Copy a directory, if there is one, with all that the file system knows of its files: overlayfs keeps marks
    there.
    """
    shutil.rmtree(target, ignore_errors=True)
    if source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", "--reflink=auto", source, target)
