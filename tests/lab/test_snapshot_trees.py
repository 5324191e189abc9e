"""Snapshots taken, gone back to and deleted at random: after each step the guest has the content that a model has, and at
the end its directory has what it had before. Judged by qemu-img and the bytes.
"""

from __future__ import annotations

import dataclasses
import os
import random
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.corral.virt.tests.lab.hypervisors import IMAGES, Hypervisors, hypervisors

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Hypervisors("trees")
HOSTS = {"hyper1": "libvirt 9.0", "hyper2": "libvirt 11.3, which goes back to snapshots that others stand on"}
STEPS = 30
PIECES = 8  # of 64 KiB, each filled with one byte
GUEST = {"name": "g", "vcpus": 1, "memory": "64MiB", "interfaces": [], "state": "present"}
DISKS = [{"name": "one", "size": "16MiB"}, {"name": "two", "size": "16MiB", "format": "raw"}]
DISK = "set -- $(virsh domblklist g | awk '/vda/ {print $2}')"


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Two hypervisors with different libvirts."""
    with hypervisors("trees", hosts=2, more=("--host", "hyper2=trixie")):
        yield


@dataclasses.dataclass
class Model:
    """What each snapshot holds, and what it stands on."""

    now: list[int]
    current: str | None = None
    content: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    parents: dict[str, str | None] = dataclasses.field(default_factory=dict)

    def lineage(self) -> list[str]:
        """The snapshots below the present state."""
        found, name = list[str](), self.current
        while name:
            found.append(name)
            name = self.parents[name]
        return found

    def forget(self, name: str) -> None:
        """One is merged: those on it stand on its parent."""
        parent = self.parents.pop(name)
        del self.content[name]
        self.parents = {one: parent if its == name else its for one, its in self.parents.items()}
        self.current = parent if self.current == name else self.current


def call(host: str, **options: t.Any) -> str | None:
    """Why it is not done; None if it is."""
    told: dict[str, t.Any] = {"corral.virt.virt_snapshot": {"guests": ["g"], **options}, "register": "told"}
    found = LAB.tell({**told, "ignore_errors": True}, hosts=host)[host]
    result = found["results"][0] if found.get("results") else found
    return str(result["msg"]) if found.get("failed") else None


def content(host: str) -> list[int]:
    """What the guest has in the first byte of each piece."""
    form = '$(qemu-img info -U --output json $1 | grep -q \'"format": "qcow2"\' && echo qcow2 || echo raw)'
    first = f"b = open('/root/x', 'rb').read({PIECES} << 16); print(*b[::65536])"
    told = LAB.on(host, f'{DISK}; qemu-img convert -U -f {form} -O raw $1 /root/x; python3 -c "{first}"')
    return [int(word) for word in told.split()]


@pytest.mark.parametrize("host", HOSTS)
def test_random_trees(host: str) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    chance = random.Random(seed)
    LAB.play({"corral.virt.virt_domain": {**GUEST, "disks": DISKS}}, hosts=host)
    files, model, done = LAB.on(host, f"ls {IMAGES}"), Model([0] * PIECES), list[str]()
    try:
        for number in range(STEPS):
            what = chance.choice(["take", "take", "revert", "delete"])
            name = chance.choice([*model.content]) if model.content else ""
            if chance.random() < 0.3:
                LAB.on(host, "virsh -q start g 2>/dev/null || virsh -q destroy g")
            if what == "take" or not name:
                LAB.on(host, "virsh -q destroy g; true")
                piece, value = chance.randrange(PIECES), 1 + number
                LAB.on(host, f"{DISK}; qemu-io -f qcow2 -c 'write -q -P {value} {piece * 64}k 64k' $1")
                model.now[piece] = value
                if chance.random() < 0.5:
                    LAB.on(host, "virsh -q start g")
                why = call(host, name=f"s{number}")
                assert why is None, why
                model.parents[f"s{number}"], model.current = model.current, f"s{number}"
                model.content[f"s{number}"] = list(model.now)
            elif what == "revert":
                why = call(host, name=name, state="reverted", run=chance.random() < 0.5, confirm=name)
                if why is None:
                    model.now, model.current = list(model.content[name]), name
                else:
                    assert host == "hyper1" and "needs libvirt 9.9" in why, why
            else:
                why = call(host, name=name, state="absent")
                if why is None:
                    model.forget(name)
                else:
                    assert ("first" in why and name in model.lineage()) or set(model.parents.values()) & {name}, why
            done.append(f"{what} {name or number}: {why or 'done'}")
            assert content(host) == model.now
            assert set(LAB.on(host, "virsh snapshot-list g --name").split()) == set(model.content)
        while model.content:
            gone = [name for name in model.content if call(host, name=name, state="absent") is None]
            assert gone, "some can always be deleted"
            for name in gone:
                model.forget(name)
            assert content(host) == model.now
        assert LAB.on(host, f"ls {IMAGES}") == files
    except AssertionError as error:
        raise AssertionError(f"SEED={seed}, after {done}: {error}") from error
    finally:
        LAB.on(
            host,
            f"virsh -q destroy g; virsh -q undefine g --snapshots-metadata; rm -rf {IMAGES}/g-* {IMAGES}/.corral; true",
        )
