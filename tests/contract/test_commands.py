"""The playbooks themselves, against libvirt's test driver: what they would do to whom, what they refuse, and how
they end.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.contract.play import Play, deep, defaults
from ansible_collections.corral.virt.tests.contract.test_inventory import guest
from ansible_collections.corral.virt.tests.golden.case import GOLDEN
from ansible_collections.corral.virt.tests.tools import payload, preloaded
from ansible_collections.corral.virt.tests.unit.test_playbooks import ON_THIS_MACHINE

pytestmark = pytest.mark.slow

HOST = (GOLDEN / "host.xml").read_text().replace("web1-", "other-")
Guests = dict[str, list[tuple[str, str, dict[str, list[str]]]]]
GUESTS: Guests = {
    "h1": [("web1", "running", {"tag": ["front"]}), ("web2", "shutdown", {"tag": ["front"]})],
    "h2": [("db1", "running", {})],
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGcTn9KpO4H0tB1aXk1jvGv7F2m0Tn3bF0fXhQkqk0aB"


def numbers(guests_of: Guests) -> dict[str, int]:
    """Of guests by name: those of the same name are copies of one."""
    names = sorted({name for guests in guests_of.values() for name, _state, _record in guests})
    return {name: number for number, name in enumerate(names)}


class Commands:
    """Two hosts with guests, and playbooks of the collection on them."""

    def __init__(self, place: Path, guests_of: Guests | None = None) -> None:
        self.place, self.code, self.known = place, 0, place / "known_hosts"
        hosts, number_of = {}, numbers(guests_of or GUESTS)
        for host, guests in (guests_of or GUESTS).items():
            path = place / f"{host}.xml"
            there = "".join(guest(number_of[name], name, state, record=record) for name, state, record in guests)
            path.write_text(HOST.replace("</node>", f"{there}</node>"))
            hosts[host] = {"virt_uri": f"test://{path}"}
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "gest": "the inventory's"}
        (place / "hosts.yml").write_text(json.dumps({"all": {"vars": local, "children": {"hyper": {"hosts": hosts}}}}))

    def do(self, action: str, *flags: str, **arguments: t.Any) -> str:
        """What a playbook printed, in one line."""
        words = ["ansible-playbook", "-i", "hosts.yml", f"corral.virt.{action}", "-e", json.dumps(arguments), *flags]
        environment = defaults(CORRAL_VIRT_KNOWN_HOSTS=str(self.known))
        done = preloaded.run(words, cwd=self.place, env=environment, timeout_s=120, given=None)
        self.code = done.returncode
        return re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("start", {"guest": "web2,db1"}, "h1 start web2 h2 db1 is already in that state"),
        deep("shutdown", {"tag": "front"}, "h1 shut down web1 web2 is already in that state"),
        deep("pause", {"guest": ["web1", "db*"]}, "h1 suspend web1 h2 suspend db1"),
        deep("resume", {"guest": "db1"}, "h2 db1 is already in that state"),
        deep("force_off", {"guest": "w*", "confirm": "2"}, "h1 destroy web1 web2 is already in that state"),
        deep("reset", {"guest": "db1"}, "h2 reset db1"),
        deep("reboot", {"guest": "db1"}, "h2 reboot db1"),
        ("purge", {"tag": "front", "confirm": 2, "force": "false"}, "h1 shut down web1 undefine web1 undefine web2"),
        ("console", {"guest": "web1"}, "h1 web1: it has no serial console"),
        deep("rename", {"guest": "web2", "to": "web9"}, "h1 rename web2 to web9"),
        ("change", {"guest": "web2,db1", "title": "Shop"}, "h1 define web2 (title) h2 define db1 (title)"),
        deep("change", {"guest": "web2", "domain": {"tags": ["blue"]}}, "h1 define web2 (tags"),
        (
            "create_volume",
            {"host": "h1", "volume": "data.raw", "size": "2GiB", "disk_format": "raw"},
            "h1 create volume data.raw of pool default (raw, 2GiB)",
        ),
        deep(
            "create_volume",
            {"host": "h2", "volume": "debian-12.qcow2", "size": "2GiB"},
            "h2 debian-12.qcow2 is already in that state",
        ),
        deep(
            "delete_volume",
            {"host": "h1", "volume": "taken-system.qcow2"},
            "h1 delete volume taken-system.qcow2 of pool",
        ),
    ],
)
def test_guests_are_acted_on_where_they_are(
    commands: Commands, action: str, arguments: dict[str, t.Any], told: str
) -> None:
    assert told in commands.do(action, **arguments) and commands.code == 0


@pytest.mark.parametrize(
    ("more", "flags", "waits"),
    [({"wait_for_login": "true"}, (), True), ({"wait_for_login": "true"}, ("--check",), False), ({}, (), False)],
    ids=["asked", "check mode", "not asked"],
)
def test_a_login_is_waited_for_where_it_is_asked_for(
    commands: Commands, more: dict[str, t.Any], flags: tuple[str, ...], waits: bool
) -> None:
    """The test driver tells an address, and every name is this machine here."""
    told = commands.do("start", *flags, guest="web1", **more)
    assert commands.code == 0 and "h1 web1 is already in that state" in told
    assert ("Reach the guests" in told) == waits and ("ok: [h1 -> web1(192.168.0." in told) == waits


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("create_volume", {"volume": "data.qcow2", "size": "20GiB"}, "create volume data.qcow2 of pool default (qcow2"),
        ("resize_volume", {"volume": "debian-12.qcow2", "size": "3GiB"}, "resize volume debian-12.qcow2 of pool"),
        ("delete_volume", {"volume": "debian-12.qcow2", "wipe": True}, "wipe and delete volume debian-12.qcow2 of"),
    ],
)
def test_check_mode_tells_what_becomes_of_a_volume(
    commands: Commands, action: str, arguments: dict[str, t.Any], told: str
) -> None:
    told_there = commands.do(action, "--check", "--diff", host="h1", **arguments)
    assert f"h1 {told}" in told_there and commands.code == 0
    assert action == "delete_volume" or re.search(f'[+] *"?capacity"?: "?{arguments["size"]}', told_there)


def test_pools_and_volumes_are_printed(commands: Commands) -> None:
    told = commands.do("pools")
    assert "HOST POOL TYPE STATE USED SIZE FREE PATH h1 default dir active [##...." in told and commands.code == 0
    told = commands.do("volumes", host="h2", pool="default")
    assert "h2 default debian-12.qcow2 qcow2 2.0 GiB 512.0 MiB -" in told and " h1 default" not in told
    told = commands.do("volumes", pool="defalt")
    assert "pool: none of h1, h2 has a storage pool defalt; choose one of default" in told and commands.code == 2


def test_the_commands_of_the_guide_about_volumes(tmp_path: Path) -> None:
    """One after the other, on a host that has the volume; the test driver forgets what was done."""
    guide = (payload.ROOT / "docs/docsite/rst/guide_commands.rst").read_text()
    section = guide.partition("\nVolumes and pools\n---")[2].partition("\n---")[0]
    shown = [shlex.split(line) for line in re.findall(r"^    \$ (ansible-playbook .*)$", section, re.MULTILINE)]
    assert [words[1] for words in shown] == [
        f"corral.virt.{action}" for action in ("pools", "create_volume", "resize_volume", "volumes", "delete_volume")
    ]
    here = Commands(tmp_path, {"hyper1": []})
    there = tmp_path / "hyper1.xml"
    text = there.read_text().replace("debian-12.qcow2", "data.qcow2")
    there.write_text(text.replace(str(2 * 1024**3), str(20 * 1024**3)))
    for _playbook, name, *options in shown:
        told = here.do(name.rpartition(".")[2], "--check", *options)
        assert here.code == 0 and ("data.qcow2" in told or name.endswith("pools")), told


def with_pools(place: Path) -> Commands:
    """A host with pools that are directories, and a guest that is off with two disks in one of them."""
    here, pools = Commands(place, {"hyper1": []}), ("default", "fast", "large")
    disks = ""
    for pool in pools:
        (place / pool).mkdir()
    for name, target in (("system", "vda"), ("data", "vdb")):
        path = place / f"default/db1-{name}.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"], check=True)
        disks += (
            f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{path}'/><target dev='{target}'/><alias "
            f"name='ua-{name}'/></disk>"
        )
    state = "<runstate xmlns='http://libvirt.org/schemas/domain/test/1.0'>5</runstate>"
    guest_xml = (
        "<domain type='test'><name>db1</name><memory>65536</memory><os><type>hvm</type></os>"
        f"<devices>{disks}</devices>{state}</domain>"
    )
    pools_xml = "".join(
        f"<pool type='dir'><name>{name}</name><target><path>{place / name}</path></target></pool>" for name in pools
    )
    (place / "hyper1.xml").write_text(f"<node>{pools_xml}{guest_xml}</node>")
    return here


def test_the_commands_of_the_guide_about_moves(tmp_path: Path) -> None:
    """Each tells its steps, and changes nothing."""
    guide = (payload.ROOT / "docs/docsite/rst/guide_commands.rst").read_text()
    section = guide.partition("\nMoving disks to another pool\n---")[2].partition("\n---")[0]
    shown = [shlex.split(line) for line in re.findall(r"^    \$ (ansible-playbook .*)$", section, re.MULTILINE)]
    assert [words[1] for words in shown] == ["corral.virt.move_disk", "corral.virt.drain_pool"]
    here = with_pools(tmp_path)
    for (_playbook, name, *options), disks in zip(shown, (["data"], ["data", "system"]), strict=True):
        told = here.do(name.rpartition(".")[2], "--check", *options)
        assert here.code == 0, told
        for disk in disks:
            assert f"disk {disk} of db1 to pool fast ({tmp_path}/fast/db1-{disk}.qcow2)" in told
            assert f"create disk {tmp_path}/fast/db1-{disk}.qcow2 copy disk {tmp_path}/default/db1-{disk}.qcow2" in told
        assert told.count(" to pool ") == len(disks) and [*(tmp_path / "fast").iterdir()] == []


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("move_disk", {"guest": "db2"}, "cannot find db2: none of hyper1 has it; did you mean db1 on hyper1?"),
        deep("move_disk", {"guest": "d*"}, "cannot find d*: none of hyper1 has it"),
        ("move_disk", {"disk": "dat", "pool": "fats"}, "no such disk; did you mean data?; cannot move disk dat of db1"),
        deep("drain_pool", {"to": "defaults"}, "there is no pool defaults here; did you mean default?"),
        ("drain_pool", {"host": "hyper"}, "host: hyper is not a host of the group hyper; did you mean hyper1?"),
    ],
)
def test_what_is_wrong_with_a_move_is_told(tmp_path: Path, action: str, arguments: dict[str, str], told: str) -> None:
    here = with_pools(tmp_path)
    good = {
        "move_disk": {"guest": "db1", "disk": "data", "pool": "fast"},
        "drain_pool": {"host": "hyper1", "pool": "default", "to": "fast"},
    }
    answer = here.do(action, "--check", **{**good[action], **arguments})
    assert told in answer and here.code == 2, answer


TEST_DRIVER = "http://libvirt.org/schemas/domain/test/1.0"


def with_snapshot(place: Path, name: str) -> Commands:
    """A host with a guest that is off; the test driver has a snapshot of its disk if the overlay exists."""
    here, disk = Commands(place, {"hyper1": []}), place / "web1.qcow2"
    if not disk.exists():
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1M"], check=True)
    overlay = place / f"web1-vda.{name}.qcow2"
    taken = overlay.exists()

    def definition(path: Path, more: str = "") -> str:
        devices = (
            f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{path}'/><target dev='vda'/></disk>"
        )
        return (
            "<domain type='test'><name>web1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid><memory>65536</memory>"
            f"<os><type>hvm</type></os><devices>{devices}</devices>{more}</domain>"
        )

    known = (
        f"<t:domainsnapshot xmlns:t='{TEST_DRIVER}'><name>{name}</name><state>shutoff</state><creationTime>1764342062"
        "</creationTime><disks><disk name='vda' snapshot='external' type='file'><driver type='qcow2'/><source "
        f"file='{overlay}'/></disk></disks>{definition(disk)}<active>1</active></t:domainsnapshot>"
    )
    state = f"<t:runstate xmlns:t='{TEST_DRIVER}'>5</t:runstate>{known if taken else ''}"
    pool = f"<pool type='dir'><name>default</name><target><path>{place}</path></target></pool>"
    guest_xml = definition(overlay if taken else disk, state)
    (place / "hyper1.xml").write_text(f"<node>{pool}{guest_xml}</node>")
    return here


def test_the_commands_of_the_guide_about_snapshots(tmp_path: Path) -> None:
    """Each tells its steps, and changes nothing; the snapshot is taken by hand, after the first command."""
    guide = (payload.ROOT / "docs/docsite/rst/guide_snapshots.rst").read_text()
    shown = [shlex.split(line) for line in re.findall(r"^    \$ (ansible-playbook .*)$", guide, re.MULTILINE)]
    assert [words[1].rpartition(".")[2] for words in shown] == ["snapshot", "snapshots", "revert", "delete_snapshot"]
    here, name = with_snapshot(tmp_path, "before-upgrade"), "before-upgrade"
    told = {}
    for _playbook, playbook, *options in shown:
        action = playbook.rpartition(".")[2]
        told[action] = here.do(action, "--check", *options)
        assert here.code == 0, told[action]
        if action == "snapshot":
            create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", f"{tmp_path}/web1.qcow2"]
            subprocess.run([*create, f"{tmp_path}/web1-vda.{name}.qcow2"], check=True)
            with_snapshot(tmp_path, name)
    assert f"take snapshot {name} of web1 (external)" in told["snapshot"]
    assert f"hyper1 web1 {name} 2025-11-28T15:01:02Z external" in told["snapshots"]
    assert f"define web1 (as of snapshot {name})" in told["revert"] and "start web1" in told["revert"]
    assert f"merge disk vda of snapshot {name} of web1" in told["delete_snapshot"]
    assert f"-e confirm_snapshot={name}" in here.do("revert", "--check", guest="web1", snapshot=name, run=True)
    assert here.code == 2


def test_a_disk_in_another_pool_than_its_description_names_is_told(tmp_path: Path) -> None:
    play = Play(tmp_path)
    with_pools(tmp_path)
    uri = f"test://{tmp_path}/hyper1.xml"
    play.hosts(hyper={"hyper1": {}})
    wanted = {"name": "db1", "disks": [{"name": "data", "pool": "fast"}, {"name": "system", "pool": "default"}]}
    for moves in (False, True):
        task = {**wanted, "uri": uri, "allow_duplicates": True, "move_disks": moves}
        told = play.run({"corral.virt.virt_domain": task, "register": "told"}, options=["--check"])["hyper1"]
        notes = " ".join(told["notes"])
        assert ("-e guest=db1 -e disk=data -e pool=fast, or set move_disks: true" in notes) != moves
        assert (told["changed"], "misplaced_disks" in told) == (moves, not moves) and "system" not in notes
        assert bool(told["steps"]) == moves and (not moves or f"{tmp_path}/fast/db1-data.qcow2" in told["steps"][0])


def test_without_the_snapshot_that_is_asked_for_before_nothing_changes(tmp_path: Path) -> None:
    play, uri = Play(tmp_path), f"test://{tmp_path}/hyper1.xml"
    with_pools(tmp_path)
    play.hosts(hyper={"hyper1": {}})
    wanted = {"name": "db1", "uri": uri, "allow_duplicates": True, "snapshot": "before"}

    def told(**more: t.Any) -> dict[str, t.Any]:
        task = {"corral.virt.virt_domain": {**wanted, **more}, "register": "told", "ignore_errors": True}
        return play.run(task, options=["--check"])["hyper1"]

    made = told(title="new")
    assert (
        made["steps"][1] == f"take snapshot {made['snapshot']} of db1 (external)" and "define db1" in made["steps"][-1]
    )
    same, invalid = told(), told(title="new", vcpus="many")
    assert not same.get("failed") and not same["changed"] and "snapshot" not in same
    assert invalid["failed"] and "there is no snapshot before: " in invalid["msg"] and "many" in invalid["msg"]
    assert "removed has none" in told(state="absent")["msg"]


def test_check_mode_tells_the_same(commands: Commands) -> None:
    assert "h1 start web2 h2 db1 is already in that state" in commands.do("start", "--check", guest="web2,db1")
    assert commands.code == 0


@pytest.mark.parametrize(
    ("action", "steps"), [("purge", "undefine web1 undefine web2"), deep("force_off", "destroy web1")]
)
def test_check_mode_asks_for_the_number_and_goes_on(commands: Commands, action: str, steps: str) -> None:
    told = commands.do(action, "--check", tag="front")
    asked = f"{action} would affect 2 guests (h1: web1, web2); to confirm: -e confirm=2"
    assert commands.code == 0 and told.count(asked) == 1 and steps in told, told
    assert f"{action} would affect 2 guests, not 3 (" in commands.do(action, "--check", tag="front", confirm=3)
    assert commands.code == 2, "a wrong number is refused in a real run, too"
    assert asked in commands.do(action, tag="front") and commands.code == 2


@pytest.mark.parametrize(
    ("action", "arguments", "told"),
    [
        ("start", {"guest": "web3"}, "cannot find web3: none of h1, h2 has it; did you mean web1 on h1, web2 on h1?"),
        (
            "delete_volume",
            {"host": "h1", "volume": "data"},
            "cannot find volume data of pool default on h1; to see all: ansible-playbook corral.virt.volumes -e host=h1",
        ),
        ("resize_volume", {"host": "h1", "volume": "debian-12.qcow2", "size": "1GiB"}, "shrink: true"),
        (
            "create_volume",
            {"host": "h1", "volume": "debian-12.qcow2", "size": "3GiB"},
            "cannot create volume debian-12.qcow2 of pool default on h1: it is there, with 2GiB; choose another name",
        ),
        ("volumes", {"host": "h3"}, "host: h3 is not a host of the group hyper; choose one of h1, h2"),
        ("change", {"guest": "web1", "domain": {"name": "db1"}}, "domain.name: change does not take it"),
        ("change", {"guest": "web1", "state": "absent"}, "state: change does not take it; it belongs to create"),
        ("change", {"guest": "web1", "memory": "lots"}, "memory"),
        deep("site", {"guest": "web1"}, "guest: site does not take it; it belongs to start"),
    ],
)
def test_what_is_refused_is_red(commands: Commands, action: str, arguments: dict[str, t.Any], told: str) -> None:
    output = commands.do(action, **arguments)
    assert told in output and commands.code == 2 and not re.search(r"changed=[1-9]", output)


def test_variables_of_the_inventory_pass(commands: Commands) -> None:
    assert "h1 start web2" in commands.do("start", guest="web2", gest="x") and commands.code == 0
    assert "gesst: start has no such argument; did you mean guest?" in commands.do("start", guest="web2", gesst="x")


def test_a_copy_is_purged_without_what_the_guest_may_have_on_a_hidden_host(commands: Commands) -> None:
    told = commands.do("purge", "--check", "--limit", "h1", guest="web2")
    kept = "h2 may have web2, too, and did not tell: disks on shared filesystems, and lines in known_hosts, are kept"
    assert kept in told and "h1 undefine web2" in told and commands.code == 0, told
    assert "did not tell" not in commands.do("purge", "--check", guest="web2")
    assert "did not tell" not in commands.do("start", "--limit", "h1", guest="web2")


def test_hosts_that_limit_hides_are_named(commands: Commands) -> None:
    assert "cannot find db1: none of h1 has it; --limit excludes h2" in commands.do(
        "start", "--limit", "h1", guest="db1"
    )
    assert commands.code == 2
    assert "cannot create new: none of h1 has it; --limit excludes h2" in commands.do(
        "create", "--limit", "h1", guest="new"
    )
    assert commands.code == 2


def test_a_host_that_does_not_answer_makes_it_red(commands: Commands) -> None:
    other = commands.place / "h2.xml"
    text = other.read_text()
    other.unlink()
    try:
        assert "cannot find db1: none of h1 has it; h2 could not be reached and may have it" in commands.do(
            "start", guest="db1"
        )
        assert "h1 start web2" in commands.do("start", guest="web2") and commands.code == 2
    finally:
        other.write_text(text)


def test_create_takes_options_by_name_and_shows_no_secret(commands: Commands) -> None:
    secret = "hunter22"
    graphics, domain = {"type": "vnc", "password": secret}, {"tags": ["front"], "disks": []}
    wish = {
        "guest": "new",
        "vcpus": "1",
        "memory": "64MiB",
        "autostart": "false",
        "interfaces": [],
        "guests_seed": "false",
    }
    for write in (lambda value: value, json.dumps):
        output = commands.do("create", "-vv", **wish, graphics=write(graphics), domain=write(domain))
        assert (
            commands.code == 0 and "define new (graphics, memory.current, memory.maximum, tags and 2 more)" in output
        ), output
        assert secret not in output and "reserved name" not in output and "set autostart" not in output


PLAYBOOKS = sorted({path.stem for path in (payload.ROOT / "playbooks").glob("*.yml")} - ON_THIS_MACHINE)


@pytest.mark.parametrize("action", [name if name in ("site", "start") else deep(name) for name in PLAYBOOKS])
def test_a_group_without_hosts_is_red(commands: Commands, action: str) -> None:
    output = commands.do(action, virt_group="hypr", guest="web1")
    assert (
        "virt_group: the inventory has no hosts in the group hypr; did you mean hyper?" in output and commands.code != 0
    )


def test_an_empty_inventory_is_red(commands: Commands) -> None:
    words = ["ansible-playbook", "-i", "/dev/null", "corral.virt.query"]
    done = preloaded.run(words, cwd=commands.place, env=defaults(), timeout_s=120, given=None)
    assert (
        done.returncode != 0
        and "the inventory has no hosts; specify another: -i INVENTORY" in done.stdout + done.stderr
    )
    assert (
        preloaded.run(
            [*words, "--syntax-check"], cwd=commands.place, env=defaults(), timeout_s=120, given=None
        ).returncode
        == 0
    )


def test_a_purged_guest_is_known_no_more(commands: Commands) -> None:
    commands.known.write_text(f"web1 {KEY}\ndb1 {KEY}\n")
    commands.do("purge", "--check", guest="web1")
    assert commands.known.read_text() == f"web1 {KEY}\ndb1 {KEY}\n"
    commands.do("purge", guest="web1")
    assert commands.known.read_text() == f"db1 {KEY}\n"


def test_a_renamed_guest_is_known_by_its_new_name(commands: Commands) -> None:
    commands.known.write_text(f"web2 {KEY}\ndb1 {KEY}\n")
    commands.do("rename", "--check", guest="web2", to="web9")
    assert commands.known.read_text() == f"web2 {KEY}\ndb1 {KEY}\n"
    commands.do("rename", guest="web2", to="web9")
    assert commands.code == 0 and commands.known.read_text() == f"web9 {KEY}\ndb1 {KEY}\n"


@pytest.mark.parametrize(
    ("action", "namesakes", "kept"),
    [
        ("purge", [], ["failed1", "theirs", "off1"]),
        ("change", [], ["web1", "failed1", "theirs", "off1"]),
        ("rename", [], ["failed1", "theirs", "web1"]),
        ("rename", ["off1"], ["web1", "failed1", "theirs", "off1"]),
    ],
)
def test_a_hypervisor_makes_no_other_guest_forgotten(
    action: str, namesakes: list[str], kept: list[str], tmp_path: Path
) -> None:
    """It says that it did something to theirs, which nobody asked for. The key of a name that another guest has, too, is
    anybody's.
    """
    play, known = Play(tmp_path), tmp_path / "known_hosts"
    known.write_text("".join(f"{name} {KEY}\n" for name in ("web1", "failed1", "theirs", "off1")))
    results: list[dict[str, t.Any]] = [{"name": "web1"}, {"name": "failed1", "failed": True}, {"name": "theirs"}]
    play.hosts(hyper={"h1": {"virt_changed": {"results": results}}, "h2": {"virt_changed": {"skipped": True}}})
    tasks = yaml.safe_load((payload.ROOT / "playbooks/tasks/change.yml").read_text())
    [update] = [task for task in tasks if "corral.virt.virt_known_hosts" in task]
    told = {"purge": {"state": "absent"}, "change": {}, "rename": {"renamed_from": "off1"}}[action]
    chosen = {"domains": {"h1": [{"name": name, **told} for name in ("web1", "failed1")]}, "namesakes": namesakes}
    play.run(update, vars={"virt_chosen": chosen, "guests_known_hosts": str(known)})
    assert sorted(line.split()[0] for line in known.read_text().splitlines()) == sorted(kept), play.stdout


def test_guests_with_odd_names_are_purged_to_the_end(tmp_path: Path) -> None:
    """They have no line of ours; one that is named as a line of the user's does not remove that."""
    play, known = Play(tmp_path), tmp_path / "known_hosts"
    known.write_text("".join(f"{name} {KEY}\n" for name in ("web1", "*", "web2")))
    names = ["twin1\u200b", "*", "a b", "web1"]
    play.hosts(hyper={"h1": {"virt_changed": {"results": [{"name": name} for name in names]}}})
    tasks = yaml.safe_load((payload.ROOT / "playbooks/tasks/change.yml").read_text())
    [update] = [task for task in tasks if "corral.virt.virt_known_hosts" in task]
    chosen = {"domains": {"h1": [{"name": name, "state": "absent"} for name in names]}, "namesakes": []}
    play.run(update, vars={"virt_chosen": chosen, "guests_known_hosts": str(known)})
    assert [line.split()[0] for line in known.read_text().splitlines()] == ["*", "web2"], play.stdout


def test_the_controller_is_not_become_on(commands: Commands) -> None:
    """On hosts a stand-in for sudo; on the controller none, so that a task there which goes through `become` is red."""
    sudo, asked = commands.place / "sudo", commands.place / "sudo.log"
    sudo.write_text(f'#!/bin/sh\necho >> {asked}\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    sudo.chmod(0o755)
    become = {
        "ansible_become": True,
        "ansible_become_user": "nobody",
        "ansible_become_exe": str(sudo),
        "ansible_pipelining": True,
    }
    inventory = json.loads((commands.place / "hosts.yml").read_text())
    nobody = {**inventory["all"]["vars"], "ansible_become": True, "ansible_become_exe": "/nonexistent/sudo"}
    for host in inventory["all"]["children"]["hyper"]["hosts"].values():
        host.update(become)
    (commands.place / "become.yml").write_text(json.dumps({"all": {**inventory["all"], "vars": nobody}}))
    commands.known.write_text(f"web1 {KEY}\ndb1 {KEY}\n")
    commands.do("purge", "-i", "become.yml", "-e", "ansible_become=true", guest="web1")
    assert commands.code == 0 and commands.known.read_text() == f"db1 {KEY}\n" and asked.exists()
    output = commands.do("create", "-i", "become.yml", **NEW)
    assert commands.code == 0, output


NEW: dict[str, t.Any] = {"guest": "new", "vcpus": 1, "memory": "64MiB", "interfaces": [], "domain": {"disks": []}}


@pytest.fixture
def dead(commands: Commands) -> tuple[str, ...]:
    """An inventory that has h9 too: a host whose ssh says why nobody answers."""
    ssh = commands.place / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host h9 port 22: Connection timed out' >&2\nexit 255\n")
    ssh.chmod(0o755)
    host = {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(ssh),
        "ansible_control_path_dir": str(commands.place),
    }
    (commands.place / "dead.yml").write_text(json.dumps({"hyper": {"hosts": {"h9": host}}}))
    return ("-i", "dead.yml")


def test_a_dead_host_is_passed_over_when_it_is_named_twice(commands: Commands, dead: tuple[str, ...]) -> None:
    assert "h9 could not be reached and may have it; where it is dead: -e gone=h9" in commands.do(
        "create", *dead, **NEW
    )
    assert (
        "Switch it off, and then: -e confirm=h9" in commands.do("create", *dead, **NEW, gone="h9")
        and commands.code == 2
    )
    output = commands.do("create", *dead, **NEW, gone="h9", confirm="h9")
    assert (
        commands.code == 0
        and "new -> h1: least loaded" in output
        and "changed=1" in output
        and "unreachable=1" not in output
    ), output
    told = commands.do("purge", "--check", *dead, guest="web2")
    assert "in known_hosts, are kept; where it is dead: -e gone=h9" in told, told
    told = commands.do("purge", "--check", *dead, guest="web2", gone="h9")
    assert "Switch it off, and then: -e confirm_gone=h9" in told and commands.code == 2
    told = commands.do("purge", "--check", *dead, guest="web2", gone="h9", confirm_gone="h9")
    assert "did not tell" not in told and "h1 undefine web2" in told and commands.code == 0, told
    for action, what in (("migrate", {"guest": "web1"}), ("drain", {"host": "h1"})):
        output = commands.do(action, "--check", *dead, **what, gone="h9", confirm="h9")
        assert "web1 -> h2: the only host that fits" in output and "h9" not in output, output


def test_a_host_that_answers_is_not_gone(commands: Commands) -> None:
    output = commands.do("create", **NEW, gone="h2", confirm="h2")
    assert "gone: h2 answers, so its guests may run" in output and commands.code == 2
    assert (
        "gone: h7 is not a host of the group hyper" in commands.do("create", **NEW, gone="h7", confirm="h7")
        and commands.code == 2
    )
    assert (
        "gone: it names all hosts of the group hyper" in commands.do("create", **NEW, gone="h1,h2")
        and commands.code != 0
    )


@pytest.mark.skipif(not shutil.which("script"), reason="needs script of util-linux")
def test_where_there_is_a_terminal_the_names_are_asked_for(commands: Commands, dead: tuple[str, ...]) -> None:
    words = [
        "ansible-playbook",
        "-i",
        "hosts.yml",
        *dead,
        "corral.virt.create",
        "-e",
        json.dumps({**NEW, "gone": "h9"}),
    ]
    for typed, code in (("h9", 0), ("yes", 2)):
        command = ["script", "-qefc", shlex.join(words), "/dev/null"]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=commands.place, env=defaults(), stdin=pipe, stdout=pipe, text=True
        ) as terminal:
            over = threading.Timer(100, terminal.kill)
            over.start()
            before = next((line for line in terminal.stdout or () if "Or type" in line), "")
            typist = threading.Thread(target=_type, args=(terminal, f"{typed}\n"), daemon=True)
            typist.start()
            output = before + (terminal.stdout.read() if terminal.stdout else "")
            over.cancel()
            typist.join()
        assert terminal.returncode == code, output


def _type(terminal: subprocess.Popen[str], text: str) -> None:
    """Until it ends: Ansible drops what was typed before it reads."""
    while terminal.poll() is None and terminal.stdin:
        with contextlib.suppress(OSError):
            terminal.stdin.write(text)
            terminal.stdin.flush()
        time.sleep(0.5)


def test_variables_beside_an_imported_playbook_are_arguments(commands: Commands) -> None:
    book = commands.place / "own.yml"
    book.write_text(json.dumps([{"import_playbook": "corral.virt.start", "vars": {"guest": "{{ 'web' ~ 2 }}"}}]))
    done = preloaded.run(
        ["ansible-playbook", "-i", "hosts.yml", "own.yml"],
        cwd=commands.place,
        env=defaults(),
        timeout_s=120,
        given=None,
    )
    assert done.returncode == 0 and "start web2" in done.stdout, done.stdout + done.stderr


def test_guests_are_imported(commands: Commands) -> None:
    """As a list, or a file for each; the same again changes nothing, and a file that says something else is kept."""
    out = commands.place / "import/guests.yml"
    output = commands.do("import", guest="*", out=str(out))
    assert commands.code == 0 and "changed=1 " in output, output
    written = yaml.safe_load(out.read_text())["virt_guests"]
    assert sorted(one["name"] for one in written) == ["db1", "web1", "web2"]
    assert "changed=0 " in commands.do("import", guest="*", out=str(out)) and commands.code == 0
    assert "it exists with other content" in commands.do("import", guest="web1", out=str(out))
    assert commands.code == 2 and len(yaml.safe_load(out.read_text())["virt_guests"]) == 3
    assert "changed=1 " in commands.do("import", "--check", guest="web1", out=str(out), replace="true")
    assert len(yaml.safe_load(out.read_text())["virt_guests"]) == 3
    commands.do("import", guest="web1", out=str(out), replace="true")
    assert [one["name"] for one in yaml.safe_load(out.read_text())["virt_guests"]] == ["web1"]
    commands.do("import", tag="front", out=str(commands.place / "vars"), form="host_vars", uuid="true")
    found = {path.name: yaml.safe_load(path.read_text())["virt_guest"] for path in (commands.place / "vars").iterdir()}
    assert sorted(found) == ["web1.yml", "web2.yml"] and found["web2.yml"]["uuid"].startswith("00000000-")


MOVING: Guests = {"h1": [("web1", "paused", {"moving": ["h2"]}), ("web2", "running", {})], "h2": []}


@pytest.mark.parametrize(
    ("action", "more", "done"),
    [("start", {}, "web2 is already in that state"), ("purge", {"confirm": 2}, "undefine web2")],
)
def test_work_that_is_left_is_red(action: str, more: dict[str, int], done: str, tmp_path: Path) -> None:
    """It is done for the other guests."""
    commands = Commands(tmp_path, MOVING)
    commands.known.write_text(f"web1 {KEY}\nweb2 {KEY}\n")
    output = commands.do(action, guest="web1,web2", **more)
    assert commands.code == 2 and done in output and "cannot bring web1 to state" in output, output
    known = [line.split()[0] for line in commands.known.read_text().splitlines()]
    assert known == (["web1", "web2"] if action == "start" else ["web1"])


def test_rebalancing_is_red_while_a_migration_is_open(tmp_path: Path) -> None:
    commands = Commands(tmp_path, MOVING)
    output = commands.do("rebalance")
    assert "web1: migrating to h2, now paused on h1; run the same command again" in output and commands.code == 2


FULL = {"guests_memory_overcommit": 0.01}


@pytest.mark.parametrize(
    ("action", "arguments", "told", "asked"),
    [
        ("drain", {"host": "h2"}, "***** db1 -> h1: the only host that fits ok:", ["h2"]),
        deep("undrain", {"host": "h2"}, "skipping: [h1]", []),
        deep("rebalance", {}, "imbalance 0.0: no move is worth it", []),
        deep("rolling_update", {}, "h1 failed; the hosts after it are unchanged.", ["h1", "h2"]),
        deep("rolling_update", {"host": "h1,h9"}, "-e host=NAME,NAME, out of h1, h2 (host: h1, h9)", ["h1"]),
        ("migrate", {"guest": "web1"}, "***** web1 -> h2: the only host that fits ok:", ["h1"]),
        ("migrate", {"guest": "web1", "to": "h2"}, "", ["h1"]),
        deep("migrate", {"guest": "web1", "to": "h1"}, "", ["h2"]),
        ("migrate", {"guest": "web1", **FULL}, "Cannot migrate web1: it needs 2 vcpus and 512 MiB, and no", ["h1"]),
    ],
)
def test_guests_are_moved_from_where_they_are(
    commands: Commands, action: str, arguments: dict[str, t.Any], told: str, asked: list[str]
) -> None:
    """libvirt's test driver moves nothing: a host that is asked to is red."""
    output = commands.do(action, "--check", **arguments)
    assert told in output and re.findall(r"fatal: \[(\w+)\]", output) == asked, output
    assert "to" not in arguments or "the only host that fits" not in output, "it was chosen"
    assert commands.code == (2 if asked else 0)


@pytest.mark.parametrize(("running_only", "leaves"), [("false", True), ("true", False)])
def test_guests_that_are_off_may_stay(commands: Commands, running_only: str, leaves: bool) -> None:
    """Then they are neither placed nor printed."""
    output = commands.do("drain", "--check", host="h1", running_only=running_only)
    assert "web1 -> h2: " in output and ("web2" in output) == leaves, output


GUESTS_OF_SITE = ("--start-at-task", "Check that the play has no serial")  # what is before makes hypervisors


def test_site_is_red_for_a_guest_that_nobody_can_reach(commands: Commands) -> None:
    """In check mode it does not run."""
    (commands.place / "guests.virt.yml").write_text('{"plugin": "corral.virt.virt", "uri": "{{ virt_uri }}"}')
    wanted = [{"name": "web2", "state": "running", "wait_for_ip": "any"}]
    words = ("-i", "guests.virt.yml", *GUESTS_OF_SITE)
    output = commands.do("site", *words, virt_guests=wanted)
    assert "web2 should run on h1, but the inventory has no address to reach it" in output and commands.code == 2
    assert "refresh.yml for h1 TASK" in output
    output = commands.do("site", "--check", *words, virt_guests=wanted)
    assert "changed: [h1]" in output and commands.code == 0, output


def test_check_mode_of_site_passes_over_hosts_without_libvirt(commands: Commands) -> None:
    """Bare hosts have none yet; in a real run it is an error."""
    inventory = json.loads((commands.place / "hosts.yml").read_text())
    inventory["all"]["children"]["hyper"]["hosts"]["h2"]["virt_uri"] = "test:///nowhere.xml"
    (commands.place / "bare.yml").write_text(json.dumps(inventory))
    told = "h2 is not a hypervisor yet: its images and guests cannot be predicted"
    output = commands.do("site", "--check", "-i", "bare.yml", *GUESTS_OF_SITE)
    assert told in output and "converge.yml for h1 TASK" in output and commands.code == 0
    output = commands.do("site", "-i", "bare.yml", *GUESTS_OF_SITE)
    assert "fatal: [h2]" in output and "cannot connect to test:///nowhere.xml" in output and commands.code == 2


WAITS: list[tuple[dict[str, t.Any], str]] = [
    ({"name": "web2"}, "cannot log in to web2 on h1 .*it is off there; SSH: .*corral.virt.start -e guest=web2"),
    ({"name": "nobody"}, "cannot log in to nobody on h1 .*it is not there; "),
    ({"name": "web1", "timeout": 1}, "cannot log in to web1 on h1 .*since its start: .*corral.virt.console"),
    ({"name": "web1", "hypervisor": "h9"}, "h9 is no host of this inventory"),
    ({"name": "web1", "timeout": 0}, "timeout: must be at least 1 s, not 0"),
]


def test_who_waits_for_a_guest_is_told_by_its_hypervisor_why_it_does_not_come(tmp_path: Path) -> None:
    """The task is delegated to the guest, as `create` does."""
    Commands(tmp_path)
    away = {"all": {"hosts": {"away": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}}}}
    (tmp_path / "away.yml").write_text(json.dumps(away))
    wait = {"hypervisor": "h1", "uri": "{{ hostvars.h1.virt_uri }}"}
    task = {"delegate_to": "away", "ignore_errors": True}
    tasks = [{**task, "corral.virt.virt_ready": {**wait, **options}} for options, _told in WAITS]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "h2", "gather_facts": False, "tasks": tasks}]))
    words = ["ansible-playbook", "-i", "hosts.yml", "-i", "away.yml", "play.yml"]
    done = preloaded.run(words, cwd=tmp_path, env=defaults(), timeout_s=120, given=None)
    answers = re.findall(r'^fatal: .*"msg": "(.*)"', done.stdout, re.MULTILINE)
    for answer, (_options, told) in zip(answers, WAITS, strict=True):
        assert re.search(told, answer), done.stdout
    done = preloaded.run([*words, "--check"], cwd=tmp_path, env=defaults(), timeout_s=120, given=None)
    assert done.stdout.count("skipping: [h2") == 3 and "cannot log in" not in done.stdout, done.stdout
