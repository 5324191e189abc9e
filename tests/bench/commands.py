"""What everyday commands take, beside `ansible -m ping`, an empty playbook, and virsh and qemu-img by hand over SSH."""

from __future__ import annotations

import dataclasses
import json
import re
import typing as t

from ansible_collections.corral.virt.tests.bench.place import BUILD, Failed, medians, on, run, say
from ansible_collections.corral.virt.tests.bench.row import Row

HOSTS = 3
CLOUD_IMAGE = False
ROLES: tuple[str, ...] = ("hypervisor", "bridge", "firewall", "pki", "storage")
GUESTS = 20
GUEST, IMAGE, IMAGES = "web1", "tiny.qcow2", "/var/lib/libvirt/images"
XML = f"/tmp/{GUEST}.xml"
DISK = f"{IMAGES}/{GUEST}-system.qcow2"
SEED = re.compile(r"<disk (?:(?!</disk>).)*-seed\.iso.*?</disk>", re.DOTALL)
BASE = f"$(ls {IMAGES}/tiny.*.qcow2 | head -1)"
PING, EMPTY, HAND, IDLE = "ansible -m ping", "an empty playbook", "by hand, over SSH", "as many idle tasks"
# How many seconds more than a ping a command may take.
MORE_S = {"list": 0.5, "query": 0.5, "start": 0.5, "create": 2.0, "purge": 1.5}
SITE_S = 15.0

HOW = f"""
{HOSTS} hypervisors with {GUESTS} guests; the guest {GUEST} has a disk on an image and no operating system. Seconds are those of the whole
command, medians; all connections are kept.
- {PING}: of all hosts
- {EMPTY}: ansible-playbook with one task that does nothing, on all hosts
- {HAND}: what somebody does who knows where the guest is: virsh, and qemu-img for its disk; no seed, nothing looked at before or after
- {IDLE}: a playbook with as many tasks as the command has; those that call hosts ping them, the others print a word
"""

WISH = {
    "guest": GUEST,
    "vcpus": 1,
    "memory": "64MiB",
    "disks": [{"name": "system", "image": IMAGE, "size": "64MiB"}],
    "host": "hyper1",
    "wait_for_ip": "none",
}
BY_HAND = {
    "list": "virsh list --all",
    "query": "virsh list --all --name | xargs -rn1 virsh dumpxml",
    "start": f"virsh start {GUEST}",
    "create": f"qemu-img create -q -f qcow2 -F qcow2 -b {BASE} {DISK} 64M && virsh define {XML} && virsh start {GUEST}",
    "migrate": f"virsh migrate --live --p2p --persistent --undefinesource --tls --copy-storage-all {GUEST} "
    "qemu+tls://hyper2/system",
    "purge": f"virsh undefine {GUEST} && rm {DISK}",
}


def rows() -> t.Iterator[Row]:
    """Our figures beside everybody's."""
    print(HOW)
    _prepare()
    (BUILD / "empty.json").write_text(
        json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": [{"ansible.builtin.meta": "noop"}]}])
    )
    ping_s, empty_s = medians(
        lambda: run("ansible", "hyper", "-m", "ansible.builtin.ping").seconds,
        lambda: run("ansible-playbook", BUILD / "empty.json").seconds,
    )
    say(f"{PING}: {ping_s:.2f} s; {EMPTY}: {empty_s:.2f} s")
    yield Row("command: empty", HOSTS, ping_s, EMPTY, empty_s, "s", None, "ours: ansible -m ping")
    shapes = _shapes()
    turns: list[dict[str, tuple[float, float]]] = [_turn() for _number in range(3)]
    for action in BY_HAND:
        ours_s, hand_s = (sorted(turn[action][who] for turn in turns)[1] for who in (0, 1))
        name = f"command: {action}"
        yield Row(name, 1, ours_s, HAND, hand_s, "s")
        if action in MORE_S:
            yield Row(name, 1, ours_s, f"{PING} + {MORE_S[action]} s", ping_s + MORE_S[action], "s", 1.0)
        if action in shapes:
            yield Row(name, 1, ours_s, IDLE, _idle_s(shapes[action]), "s", None, str(shapes[action]))
    (site_s,) = medians(_site)
    shape = Shape.of("corral.virt.site", *_site_words()[1:])
    yield Row("site, nothing to do", GUESTS, site_s, "limit", SITE_S, "s", 1.0, f"{HOSTS} hosts; {shape}")
    yield Row("site, nothing to do", GUESTS, site_s, IDLE, _idle_s(shape), "s")


@dataclasses.dataclass(frozen=True)
class Shape:
    """How many tasks a command has, how many of them call hosts, and how often they do."""

    tasks: int
    remote: int
    calls: int

    @classmethod
    def of(cls, playbook: str, *words: str) -> Shape:
        """The same, seen in a run."""
        _start, *tasks = re.split(
            r"^TASK ", run("ansible-playbook", playbook, *words, "-vvv").output, flags=re.MULTILINE
        )
        calls = [task.count("SSH: EXEC") for task in tasks]
        return cls(len(tasks), sum(map(bool, calls)), sum(calls))

    def __str__(self) -> str:
        return f"{self.tasks} tasks, {self.calls} calls of hosts"


def _shapes() -> dict[str, Shape]:
    """Of commands whose tasks are the same when there is nothing to do any more, and of what takes the guest away."""
    _command("create", **WISH)
    said = ("-e", json.dumps({"guest": GUEST}))
    found = {action: Shape.of(f"corral.virt.{action}") for action in ("list", "query")}
    found["start"] = Shape.of("corral.virt.start", *said)
    found["create"] = Shape.of("corral.virt.create", "-e", json.dumps(WISH))
    _power_off("hyper1")
    return {**found, "purge": Shape.of("corral.virt.purge", *said)}


def _idle_s(shape: Shape) -> float:
    """What Ansible itself takes for them: pings of all hosts, and tasks of the controller that print a word."""
    ping, word = {"ansible.builtin.ping": None}, {"ansible.builtin.debug": {"msg": "idle"}, "run_once": True}
    tasks: list[t.Any] = [ping] * shape.remote + [word] * (shape.tasks - shape.remote)
    (BUILD / "idle.json").write_text(json.dumps([{"hosts": "hyper", "gather_facts": False, "tasks": tasks}]))
    return medians(lambda: run("ansible-playbook", BUILD / "idle.json").seconds)[0]


def _prepare() -> None:
    """An image on the first host; guests, spread over all, that are defined and off."""
    on("hyper1", f"qemu-img create -q -f qcow2 /srv/{IMAGE} 64M")
    run(
        "ansible", "hyper1", "-m", "corral.virt.virt_image",
        "-a", json.dumps({"name": IMAGE, "src": f"/srv/{IMAGE}", "remote_src": True}),
    )  # fmt: skip
    wish = {"vcpus": 1, "memory": "64MiB", "disks": [], "state": "present"}
    (BUILD / "site.json").write_text(
        json.dumps({"virt_guests": [{"name": f"idle{number:02}", **wish} for number in range(GUESTS)]})
    )
    _site()
    if "changed=0" not in run("ansible-playbook", *_site_words()).output:
        raise Failed("the second run of site changes something")


def _turn() -> dict[str, tuple[float, float]]:
    """Each command once by us and once by hand: both begin and end without the guest."""
    ours = {"create": _command("create", **WISH)}
    xml = on("hyper1", f"virsh dumpxml {GUEST} --inactive --migratable").output
    _power_off("hyper1")
    ours |= {
        action: _command(action, **({"guest": GUEST} if action == "start" else {}))
        for action in ("list", "query", "start")
    }
    ours["migrate"] = _command("migrate", guest=GUEST, to="hyper2")
    _power_off("hyper2")
    ours["purge"] = _command("purge", guest=GUEST)
    on("hyper1", f"cat >{XML}", given=SEED.sub("", xml))  # which is gone with the guest
    hand = {"create": on("hyper1", BY_HAND["create"]).seconds}
    on("hyper1", f"virsh destroy {GUEST}")
    hand |= {action: on("hyper1", BY_HAND[action]).seconds for action in ("list", "query", "start")}
    on("hyper2", f"virsh -q list --all >/dev/null; qemu-img create -q -f qcow2 {DISK} 64M")
    hand["migrate"] = on("hyper1", BY_HAND["migrate"]).seconds
    on("hyper1", f"rm {DISK}")
    on("hyper2", f"virsh destroy {GUEST}")
    hand["purge"] = on("hyper2", BY_HAND["purge"]).seconds
    say(", ".join(f"{action} {ours[action]:.1f} / {hand[action]:.1f} s" for action in BY_HAND))
    return {action: (ours[action], hand[action]) for action in BY_HAND}


def _power_off(host: str) -> None:
    """It has no operating system, and would be waited for."""
    on(host, f"virsh destroy {GUEST}")


def _command(action: str, *flags: str, **arguments: t.Any) -> float:
    return run("ansible-playbook", f"corral.virt.{action}", "-e", json.dumps(arguments), *flags).seconds


def _site() -> float:
    return run("ansible-playbook", *_site_words()).seconds


def _site_words() -> tuple[str, ...]:
    return "corral.virt.site", "-e", f"@{BUILD}/site.json"
