"""Bring a lab up, take it down. Both may be killed at any point: the next one converges."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from corral_lab import cgroups, dhcp, generated, host, image, kvm, machine, network, processes, template, uml, webserver
from corral_lab.places import CACHE, CHECKOUT, STATE, Lab, Problem, labs, locked, names
from corral_lab.shell import run, start, unmount
from corral_lab.tree import tree

BEGAN = time.monotonic()


@dataclass(frozen=True)
class Wanted:
    """What the user asked for: hosts and their releases, by name."""

    releases: Mapping[str, str]
    network: str
    mirror: str | None
    image: bool
    image_later: bool = False  # its server answers when it is built
    packages: Sequence[str] = ()
    subnet: int | None = None
    kvm: bool = False  # where it starts guests
    uml: bool = False  # hosts are no containers
    template: template.Template | None = None


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


def up(name: str, wanted: Wanted) -> Lab:
    """Have a lab running that holds the hosts asked for; it keeps those it has."""
    with locked(f"lab-{name}", waiting=f"waiting for another run on lab {name}"):
        processes.end(name, "build")
        lab = _claimed(name, wanted)
        _refuse_changes(lab, wanted)
        network.up(lab)
        dhcp.ensure(lab)
        if not lab.key.exists():
            lab.key.parent.mkdir(mode=0o700, exist_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {name}", "-f", lab.key)
        (lab.state / "logs").mkdir(exist_ok=True)
        pool = ThreadPoolExecutor()
        try:
            having = _image_later if wanted.image_later else _image
            picture = pool.submit(having, lab, wanted) if wanted.image else None
            _hosts_up(lab, wanted, pool)
            served = picture.result() if picture else None
        finally:
            processes.end(name, "build")  # on Ctrl-C; otherwise there is none left
            pool.shutdown(wait=False, cancel_futures=True)
        if served:
            webserver.ensure(lab, served.parent, sys.executable)
        generated.write_inventory(lab, image=served, mirror=wanted.mirror)
        host.keep_packages(lab)
    return lab


def down(name: str, *, of_others: bool = False) -> None:
    """Leave nothing of a lab but what is cached. One of another checkout is removed if nothing of it runs."""
    with locked(f"lab-{name}", waiting=f"waiting for another run on lab {name}"):
        ours = [lab for lab in labs() if lab.name == name]
        for lab in ours:
            if not of_others and processes.find(name):
                _refuse_another(lab, f"run it there, or `lab.py down --name {name} --of-others`")
        processes.end(name)
        state = STATE / name
        for lab in ours:
            host.keep_packages(lab)
            shutil.rmtree(lab.build, ignore_errors=True)
        for mount in _mounts(state):
            unmount(mount)
        network.down(name)
        if state.exists():
            shutil.rmtree(state)
        network.restore_forwarding()
        cgroups.remove(name)
        say(f"lab {name} is gone")


def purge_cache() -> None:
    """Forget all that was downloaded and built."""
    if names():
        raise Problem(f"the cache is in use by {', '.join(sorted(names()))}: first `lab.py down --all`")
    shutil.rmtree(CACHE, ignore_errors=True)
    say(f"{CACHE} is gone")


def find(name: str) -> Lab:
    for lab in labs():
        if lab.name == name:
            return lab
    raise Problem(f"there is no lab {name}: make it with `lab.py up --name {name}`")


def make_template(name: str, wanted: template.Template) -> None:
    """Make a template of a lab. Its hosts stop; `up` starts them again."""
    with locked(f"lab-{name}", waiting=f"waiting for another run on lab {name}"):
        template.make(find(name), wanted)


def _claimed(name: str, wanted: Wanted) -> Lab:
    for lab in labs():
        if lab.name == name:
            if template.mark(lab).exists():
                raise Problem(
                    f"lab {name} was given a template by a run that was ended: first `lab.py down --name {name}`"
                )
            if lab.checkout == CHECKOUT:
                return lab
            _refuse_another(lab, f"use another --name, or `lab.py down --name {name} --of-others`")
            adopted = Lab(name, CHECKOUT, lab.subnet)
            adopted.save()
            return adopted
    lab = network.claim(name, CHECKOUT, wanted.subnet)
    if wanted.template and template.begin(lab, wanted.template):
        say(f"lab {name} begins with the template {wanted.template.slot}")
    return lab


def _refuse_another(lab: Lab, remedy: str) -> None:
    """A lab belongs to the checkout that made it, as long as that is there."""
    if lab.checkout != CHECKOUT and lab.checkout.is_dir():
        raise Problem(f"lab {lab.name} belongs to {lab.checkout}: {remedy}")


def _refuse_changes(lab: Lab, wanted: Wanted) -> None:
    for name, existing in host.hosts(lab).items():
        release = wanted.releases.get(name, existing.release)
        if release != existing.release:
            raise Problem(f"{name} is a {existing.release} host, not {release}: first `lab.py down --name {lab.name}`")


def _image(lab: Lab, wanted: Wanted) -> Path:
    return image.image(mirror_url=wanted.mirror, lab=lab.name, say=say)


def _image_later(lab: Lab, wanted: Wanted) -> Path:
    """Where the image's file is or will be: a process of its own builds it, which goes on after us."""
    place = image.place(mirror_url=wanted.mirror)
    building = place.parent.name
    if not place.exists() and not processes.find(lab.name, building):
        mirror = ("--mirror", wanted.mirror) if wanted.mirror else ()
        program = CHECKOUT / "tests/lab/lab.py"
        start(
            sys.executable, program, "image", *mirror, mark=f"{lab.name}/{building}", log=webserver.image_log(lab.name)
        )
    return place


def _hosts_up(lab: Lab, wanted: Wanted, pool: ThreadPoolExecutor) -> None:
    known = host.hosts(lab)
    missing = {name: release for name, release in wanted.releases.items() if name not in known}
    if wanted.uml:
        uml.want(lab)
    packages = (*wanted.packages, *(uml.PACKAGES if uml.wanted(lab) else ()))
    trees: dict[str, Future[Path]] = {
        release: pool.submit(tree, release, packages=packages, mirror_url=wanted.mirror, lab=lab.name, say=say)
        for release in set(missing.values())
    }
    for name, release in missing.items():
        number = int(name.removeprefix("hyper"))
        made = host.make(
            lab, name, release=release, network=wanted.network, number=number, tree=trees[release].result()
        )
        say(f"{name}: {release}, {made.address}")
    known = host.hosts(lab)
    dead = [each for each in known.values() if not machine.running(lab, each)]
    if not dead:
        say(f"lab {lab.name} was running already")
    if len(dead) == len(known):
        network.drop_ports(lab)
    if dead:
        works = wanted.kvm and kvm.works()
        kvm.give(lab.state, given=works)
        if wanted.kvm:
            say("KVM starts guests here" if works else "KVM starts no guest here: guests are emulated, which is slow")
    for each in dead:
        (uml if uml.wanted(lab) else machine).boot(lab, each)
    host.add_names(lab)
    generated.write_ssh(lab)
    for name, waiting in [(each.name, pool.submit(machine.wait, lab, each)) for each in known.values()]:
        failed = waiting.result()
        say(f"{name} is up" + (f", but these units failed: {failed}" if failed else ""))


def _mounts(place: Path) -> list[str]:
    """Mount points below a place, the deepest first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{place}/")), key=len, reverse=True)
