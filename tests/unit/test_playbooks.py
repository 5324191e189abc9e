"""What playbooks hand on: to libvirt's modules where libvirt is, and to roles and modules what the user asked for."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools.payload import ROOT
from ansible_collections.corral.virt.tests.unit.roles.playing import value, values

ON_THIS_MACHINE = {"awx_setup", "build_image", "from_salt", "simulate"}
GROUP = set(yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]["virt"])
WHERE = {"group/corral.virt.virt": {"uri": "{{ virt_uri | default('qemu:///system') }}"}}
PLAYS: dict[str, dict[str, t.Any]] = {
    f"{path.stem}-{number}": play
    for path in sorted((ROOT / "playbooks").glob("*.yml"))
    for number, play in enumerate(yaml.safe_load(path.read_text()))
}


def used(tasks: t.Any, folder: Path, seen: set[Path]) -> Iterator[str]:
    """Modules of the collection that tasks call, with those of the files and roles that they include."""
    files: list[Path] = []
    for key, options in (item for task in tasks or () for item in task.items()):
        name = key.removeprefix("ansible.builtin.")
        if key.startswith("corral.virt."):
            yield key.rpartition(".")[2]
        elif name in ("include_tasks", "import_tasks"):
            included = options["file"] if isinstance(options, dict) else options
            files += folder.glob(re.sub(r"{{.*}}", "*", included))
        elif name in ("include_role", "import_role", "role"):
            role, entry = (options, "main") if name == "role" else (options["name"], options.get("tasks_from", "main"))
            files.append(ROOT / f"roles/{role.rpartition('.')[2]}/tasks/{entry}.yml")
        elif key in ("block", "rescue", "always"):
            yield from used(options, folder, seen)
    for file in (file for file in files if file not in seen):
        seen.add(file)
        yield from used(yaml.safe_load(file.read_text()), file.parent, seen)


@pytest.mark.parametrize("play", PLAYS.values(), ids=PLAYS)
def test_libvirt_is_asked_where_virt_uri_says(play: dict[str, t.Any]) -> None:
    parts = [play.get(key) for key in ("pre_tasks", "roles", "tasks", "post_tasks")]
    modules = {module for tasks in parts for module in used(tasks, ROOT / "playbooks", set())}
    assert play.get("module_defaults") == (WHERE if modules & GROUP else None), modules & GROUP


def test_every_play_of_a_group_asks_whether_it_has_hosts() -> None:
    first = {name.removesuffix("-0"): play["hosts"] for name, play in PLAYS.items() if name.endswith("-0")}
    assert {
        name for name, hosts in first.items() if "| corral.virt.group_with_hosts(groups" not in hosts
    } == ON_THIS_MACHINE


@pytest.mark.parametrize("action", ["build_image", "drain", "rebalance", "rolling_update", "undrain"])
def test_what_is_asked_for_reaches_the_role(action: str, tmp_path: Path) -> None:
    """Each by its name; a build is for a host, and the hosts of an update take turns."""
    *_before, last = yaml.safe_load((ROOT / f"playbooks/{action}.yml").read_text())
    *_before, include = last["tasks"]
    wanted = {*actions.action(action).arguments} - {"confirm", "build_host"}
    known = {"virt_asked": {"arguments": {name: name for name in wanted}}, "virt_host_name": "host"}
    expression = "{" + ", ".join(f"'{name}': {name}" for name in include["vars"]) + "}"
    found = value(tmp_path, expression, [], {**include["vars"], **known})
    found = {re.sub("^(maintenance|image_builder)_", "", name): each for name, each in found.items()}
    found = {"virt_group" if name == "group" else name: each for name, each in found.items()}
    if action == "rolling_update":
        assert found.pop("reason") == "upgrade"
    wanted -= {"virt_group"} if action in ("build_image", "rebalance") else set()  # the role asks whom the play is for
    assert found == {name: name for name in wanted}


def test_a_migration_is_ended_by_its_source_and_where_the_guest_is_if_that_is_gone(tmp_path: Path) -> None:
    *_before, move = yaml.safe_load((ROOT / "playbooks/tasks/move.yml").read_text())
    inventory = json.dumps({"all": {"hosts": {"h1": {}, "h2": {}}}})
    for source, state, gone, acts in [
        ("h1", "present", [], {"h1"}),  # it goes from h1 to h2
        ("h1", "aborted", ["h3"], {"h1"}),
        ("h2", "present", ["h3"], {"h1"}),  # it is there
        ("h2", "aborted", [], {"h1"}),
        ("h2", "aborted", ["h3"], {"h2"}),
    ]:
        asked = {"virt_options": {"state": state}, "virt_asked": {"arguments": {"gone": gone}}}
        known = {**move["vars"], **asked, "virt_source": source, "virt_dest": "h2"}
        found = values(tmp_path, move["when"], [], known, inventory, [])
        assert {host for host, right in found.items() if right} == acts, (source, state, gone)


def test_what_names_a_guest_and_hosts_is_no_option_of_its_migration(tmp_path: Path) -> None:
    [play] = yaml.safe_load((ROOT / "playbooks/migrate.yml").read_text())
    *_before, move = play["tasks"]
    own = {"guest": "web1", "to": "h2", "virt_group": "hyper", "gone": ["h9"], "confirm": ["h9"]}
    asked = {**own, "bandwidth": 50, "options": {"timeout": 600}}
    found = value(tmp_path, "virt_options", [], {**move["vars"], "virt_asked": {"arguments": asked, "withheld": []}})
    assert found == {"bandwidth": 50, "timeout": 600}


def restoring(
    folder: Path,
    there: t.Mapping[str, t.Sequence[tuple[str, str]]],
    arguments: t.Sequence[str] = (),
    passed: str | None = None,
    **asked: t.Any,
) -> tuple[list[bool], str, str]:
    """Which checks of a restore hold, what is told if one does not, and the hypervisor. `there` are names and UUIDs of
    guests by host, and all hosts have backups of db1 (u1) and web1 (u2), which had the name "then" one after the other.
    """
    [play] = yaml.safe_load((ROOT / "playbooks/restore.yml").read_text())
    check = next(task["ansible.builtin.assert"] for task in play["tasks"] if "no other" in task["name"])
    restore = next(task["corral.virt.virt_restore"] for task in play["tasks"] if "corral.virt.virt_restore" in task)
    points = [
        {"uuid": "u1", "points": [{"guest": "then"}, {"guest": "db1"}]},
        {"uuid": "u2", "points": [{"guest": "then"}, {"guest": "web1"}]},
    ]
    facts = {
        host: {"virt_found": {"domains": [{"name": name, "uuid": uuid} for name, uuid in guests]}}
        for host, guests in there.items()
    }
    chosen = {**facts, **{host: {**facts[host], "virt_backups": {"guests": points}} for host in facts}}
    known = {**play["vars"], "virt_asked": {"arguments": {"virt_group": "hyper", **asked}}, "told": check["fail_msg"]}
    known["given"] = restore["guest"]
    expression = f"[[{', '.join(f'({one})' for one in check['that'])}], told, __virt_host, given]"
    inventory = json.dumps({"hyper": {"hosts": chosen}})
    holds, told, host, given = value(folder, expression, [], known, host="h1", inventory=inventory, arguments=arguments)
    assert passed in (None, given), given
    return holds, " ".join(told.split()), host


def test_a_guest_is_restored_where_it_is_whatever_its_name_is_now(tmp_path: Path) -> None:
    """Else there were two of its UUID."""
    renamed = {"h1": [("web2", "u2")], "h2": []}
    holds, _told, host = restoring(tmp_path, renamed, guest="web1")
    assert all(holds) and host == "h1"
    holds, told, _host = restoring(tmp_path, renamed, guest="web1", host="h2")
    assert not all(holds) and "h1 has it as web2; restore it there (leave out host)" in told
    holds, _told, host = restoring(tmp_path, {**renamed, "h2": [("web1", "u9")]}, guest="web1")
    assert all(holds) and host == "h1", "another guest has its name now"
    holds, told, _host = restoring(tmp_path, {"h1": [("web1", "u9")], "h2": []}, guest="web1", host="h2")
    assert not all(holds) and "h1 has it; restore it there" in told, "its name is taken"
    holds, told, _host = restoring(tmp_path, renamed, guest="then")
    assert not all(holds) and "there are backups of 2 guests of that name; name one by its UUID" in told
    holds, _told, host = restoring(tmp_path, {"h1": [], "h2": []}, guest="web1", host="h2")
    assert all(holds) and host == "h2"
    holds, told, _host = restoring(tmp_path, {"h1": [], "h2": []}, guest="web1")
    assert not all(holds) and "no hypervisor has it; choose one: -e host=HOST" in told


def test_a_guest_is_restored_by_the_name_that_it_has_since_its_last_backup(tmp_path: Path) -> None:
    """The repository knows its UUID only."""
    renamed = {"h1": [("web1-new", "u2")], "h2": []}
    holds, _told, host = restoring(tmp_path, renamed, guest="web1-new", passed="u2")
    assert all(holds) and host == "h1"
    holds, _told, _host = restoring(tmp_path, renamed, guest="web1", passed="web1")
    assert all(holds), "the name in the repository"
    holds, _told, host = restoring(tmp_path, renamed, guest="web1-new", host="h2", new_name="web3", passed="u2")
    assert all(holds) and host == "h2", "as another guest elsewhere"
    holds, told, _host = restoring(tmp_path, {"h1": [("db1", "u2")], "h2": []}, guest="db1")
    assert not all(holds) and "there are backups of 2 guests of that name; name one by its UUID" in told
    holds, _told, _host = restoring(tmp_path, {"h1": [("new", "u9")], "h2": []}, guest="new", passed="new")
    assert all(holds), "virt_restore tells that it has no backup"


def test_backups_are_reported_of_a_guest_by_the_name_that_it_has_now(tmp_path: Path) -> None:
    [play] = yaml.safe_load((ROOT / "playbooks/backups.yml").read_text())
    report = next(task for task in play["tasks"] if "corral.virt.virt_report" in task)
    hosts = {"h1": [{"name": "web1", "uuid": "u2"}], "h2": [{"name": "web1", "uuid": "u2"}]}
    inventory = json.dumps(
        {"hyper": {"hosts": {host: {"virt_found": {"guests": found}} for host, found in hosts.items()}}}
    )
    known = {**report["vars"], "virt_asked": {"arguments": {"guest": "web1-new"}}, "omit": "omitted"}
    given = report["corral.virt.virt_report"]["guest"]
    assert value(tmp_path, "told", [], {**known, "told": given}, host="h1", inventory=inventory) == ["u2"]
    known["virt_asked"] = {"arguments": {}}
    assert "omit" in value(tmp_path, "told", [], {**known, "told": given}, host="h1", inventory=inventory)


def test_only_an_interrupted_instant_restore_has_the_new_name_already(tmp_path: Path) -> None:
    """On the hypervisor where it goes on; on another one, it is another guest."""
    there = {"h1": [("web1", "u2")], "h2": [], "h3": [("then", "u8")]}
    for asked, right in (
        ({"host": "h3", "instant": True}, True),
        ({"host": "h2", "instant": True}, False),
        ({"host": "h3"}, False),
        ({"host": "h2", "instant": True, "new_name": "free"}, True),
    ):
        holds, told, _host = restoring(
            tmp_path, there, (), **dict[str, t.Any](guest="web1", **{"new_name": "then", **asked})
        )
        assert all(holds) is right, asked
        assert right or "there is a guest then; choose another name" in told


def test_a_guest_may_be_on_a_hypervisor_that_is_left_out(tmp_path: Path) -> None:
    """`--limit` proves nothing; a dead one is named."""
    there: dict[str, list[tuple[str, str]]] = {"h1": [], "h2": [("web1", "u2")]}
    limit = ("--limit", "h1")
    holds, told, _host = restoring(tmp_path, there, limit, guest="web1", host="h1")
    assert not all(holds) and "--limit excludes h2, which may have it; omit --limit" in told
    assert all(restoring(tmp_path, there, limit, guest="web1", host="h1", gone=["h2"])[0])
    [play] = yaml.safe_load((ROOT / "playbooks/restore_group.yml").read_text())
    check = next(task["ansible.builtin.assert"] for task in play["tasks"] if "have answered" in task["name"])
    inventory = json.dumps({"hyper": {"hosts": {"h1": {}, "h2": {}}}})
    for gone, right in ([], False), (["h2"], True):
        asked = {"virt_group": "hyper", "tag": "shop", "gone": gone}
        known = {**play["vars"], "virt_asked": {"arguments": asked}, "told": check["fail_msg"]}
        expression = f"[({check['that']}), told]"
        holds, told = value(tmp_path, expression, [], known, host="h1", inventory=inventory, arguments=limit)
        assert holds is right and (right or "--limit excludes h2, which may have them; omit --limit" in told)


def test_a_recovery_knows_whom_it_has_not_asked(tmp_path: Path) -> None:
    """All of the group, but the dead host, and those that are gone."""
    [play] = yaml.safe_load((ROOT / "playbooks/recover.yml").read_text())
    decide = next(task for task in play["tasks"] if task["name"].startswith("Decide"))
    inventory = json.dumps({"hyper": {"hosts": {f"h{number}": {} for number in range(1, 6)}}})
    asked = {"virt_group": "hyper", "host": "h2", "gone": ["h3"]}
    known = {"hidden": decide["vars"]["__virt_told"]["hidden"], "virt_asked": {"arguments": asked}}
    found = value(tmp_path, "hidden", [], known, host="h1", inventory=inventory, arguments=("--limit", "h1,h4"))
    assert found == ["h5"]


def shown(shared: str | None, used_by: str | None, name: str = "a.qcow2") -> dict[str, t.Any]:
    """An image of `virt_image_info`, which has two contents."""
    users = {"a.1.qcow2": None, "a.2.qcow2": used_by}
    contents = [{"content": content, "path": f"/srv/{content}", "used_by": user} for content, user in users.items()]
    whose = {"name": name, "path": f"/srv/{name}", "content": "a.2.qcow2", "shared": shared}
    return {**whose, "contents": contents, "used": used_by is not None}


@pytest.mark.parametrize(
    ("shared", "asked"), [("nfs4", ["/srv/a.qcow2", "/srv/a.1.qcow2", "/srv/a.2.qcow2"]), (None, [])]
)
def test_all_hypervisors_are_asked_by_the_files_of_images_that_they_may_share(
    tmp_path: Path, shared: str | None, asked: list[str]
) -> None:
    """Whatever their pools: h2 has no such pool, and mounts what it is on elsewhere. Who does not answer is unasked."""
    [play] = yaml.safe_load((ROOT / "playbooks/images.yml").read_text())
    names = [task["name"] for task in play["tasks"]]
    at = next(at for at, name in enumerate(names) if name.startswith("Ask all hypervisors"))
    assert names[at + 1].startswith("Check that all hypervisors that share"), "who fails to answer counts as unasked"
    ask, [once] = (
        play["tasks"][at],
        [task for task in play["tasks"] if "virt_users" in task.get("ansible.builtin.set_fact", ())],
    )
    by_path = {"users": {"/srv/a.1.qcow2": "guest web1 at /mnt/a.1.qcow2", "/srv/a.qcow2": None}}
    found = {
        "h1": {"virt_found": {"images": [shown(shared, None)]}, "virt_by_path": {"users": {}}},
        "h2": {"virt_found": {"images": [], "missing": True}, "virt_by_path": by_path},
    }
    inventory = json.dumps({"hyper": {"hosts": found}})
    known = {**play["vars"], **ask["vars"], **once["vars"], **once["ansible.builtin.set_fact"]}
    known |= {"virt_asked": {"arguments": {"do": "prune", "pool": "default", "virt_group": "hyper"}}}
    files, kept = values(tmp_path, "[__virt_files, __virt_kept]", [], known, inventory, [])["h1"]
    assert files == asked and kept == (["a.qcow2"] if asked else [])


def test_the_room_for_all_restored_guests_together_is_checked_before_the_first(tmp_path: Path) -> None:
    [play] = yaml.safe_load((ROOT / "playbooks/restore_group.yml").read_text())
    [check] = [task for task in play["tasks"] if task["name"] == "Check that all of them can be restored"]

    def need(directory: str, filesystem: int, size: int) -> dict[str, t.Any]:
        return {"needs": [{"directory": directory, "filesystem": filesystem, "bytes": size, "room_bytes": 5 * 2**30}]}

    gib = 2**30
    fits, alone = [need("/a", 1, 3 * gib), need("/b", 2, 3 * gib)], [need("/a", 1, 9 * gib)]
    full = [need("/a", 1, 3 * gib), need("/b", 1, 3 * gib), {"msg": "no such point"}]
    found: dict[str, t.Any] = {"h1": {"virt_changed": {"results": fits}}, "h2": {"virt_changed": {"results": full}}}
    found |= {"h3": {"virt_changed": {"results": alone}}, "h4": {"virt_changed": {"results": []}}}
    known = {**check["vars"], "__virt_lost": []}
    inventory = json.dumps({"hyper": {"hosts": found}})
    told = values(tmp_path, "__virt_obstacles", [], known, inventory, [])["h1"]
    assert sorted(told) == ["h2 has room for 5.00 GB in /a, and the guests need 6.00 GB; make room", "no such point"]


@pytest.mark.parametrize(
    ("shared", "gone", "hosts", "asked", "elsewhere", "kept"),
    [
        ("nfs4", [], ["h1", "h2"], True, {"a.2.qcow2": "guest web1 on h2"}, ["a.qcow2"]),
        ("nfs4", [], ["h1"], False, {}, []),
        ("nfs4", ["h0"], ["h1"], False, {}, []),
        ("nfs4", ["h2"], ["h1"], True, {}, []),
        (None, [], ["h1"], True, {}, []),
        (None, [], ["h1", "h2"], True, {"a.2.qcow2": "guest web1 on h2"}, []),
    ],
)
def test_what_other_hosts_use_of_a_shared_pool_is_pruned_by_none(
    tmp_path: Path,
    shared: str | None,
    gone: list[str],
    hosts: list[str],
    asked: bool,
    elsewhere: dict[str, str],
    kept: list[str],
) -> None:
    """The module counts users elsewhere where the filesystem is shared, and all hosts must have answered then."""
    [play] = yaml.safe_load((ROOT / "playbooks/images.yml").read_text())
    [check] = [task for task in play["tasks"] if "that share the pool" in task["name"]]
    found = {"h1": shown(shared, None), "h2": shown(shared, "guest web1")}
    by_path: dict[str, t.Any] = {"virt_by_path": {}}
    group = {"hosts": {host: {"virt_found": {"images": [image]}, **by_path} for host, image in found.items()}}
    inventory = json.dumps({"all": {"children": {"hyper": group}}})
    arguments = {"do": "prune", "pool": "default", "virt_group": "hyper", "gone": gone}
    [once] = [task for task in play["tasks"] if "virt_users" in task.get("ansible.builtin.set_fact", ())]
    assert once["run_once"], "else hosts x hosts x images"
    known = {**play["vars"], **check["vars"], **once["vars"], **once["ansible.builtin.set_fact"]}
    known |= {"virt_asked": {"arguments": arguments}, "text": check["ansible.builtin.assert"]["fail_msg"]}
    told = (
        "{'asked': "
        + check["ansible.builtin.assert"]["that"]
        + ", 'elsewhere': __virt_elsewhere, 'kept': __virt_kept, "
        "'text': text}"
    )
    answer = values(tmp_path, told, [], known, inventory, ["--limit", ",".join(hosts)])["h1"]
    dead = ",".join([*gone, "h2"])
    assert asked or f"where it is dead: -e gone={dead} -e confirm={dead};" in answer["text"]
    del answer["text"]
    assert answer == {"asked": asked, "elsewhere": elsewhere, "kept": kept}


def test_a_pool_that_no_hypervisor_has_is_told_and_one_that_some_have_is_pruned(tmp_path: Path) -> None:
    [play] = yaml.safe_load((ROOT / "playbooks/images.yml").read_text())
    [check] = [task for task in play["tasks"] if "there are such images" in task["name"]]
    [read] = [task["corral.virt.virt_image_info"] for task in play["tasks"] if "corral.virt.virt_image_info" in task]
    asked = check["ansible.builtin.assert"]
    for do, with_pool, right in (("prune", {"h1"}, True), ("prune", set(), False), ("update", {"h1", "h2"}, True)):
        answers: dict[str, dict[str, t.Any]] = {
            host: {"images": [shown("nfs4", None)] if host in with_pool else []} for host in ("h1", "h2")
        }
        for host, answer in answers.items() if do == "prune" else ():
            answer["missing"] = host not in with_pool
        group = {"hosts": {host: {"virt_found": answer} for host, answer in answers.items()}}
        arguments = {"do": do, "pool": "images", "virt_group": "hyper"}
        known = {**play["vars"], **check["vars"], "virt_asked": {"arguments": arguments}}
        known |= {"told": asked["fail_msg"], "missing_ok": read["missing_ok"]}
        expression = f"[{asked['that']}, told, missing_ok]"
        inventory = json.dumps({"all": {"children": {"hyper": group}}})
        found, text, missing_ok = values(tmp_path, expression, [], known, inventory, [])["h1"]
        assert (found, missing_ok) == (right, do == "prune")
        assert right or text == "pool: no hypervisor has images; choose another: -e pool=NAME"


@pytest.mark.parametrize(
    ("user", "gone", "limit", "told"),
    [
        (None, [], "h1,h2", None),
        ("guest web1", [], "h1,h2", "it is on nfs4, and h2: guest web1 uses it; remove or detach it there first"),
        (
            None,
            [],
            "h1",
            "and h2 may use it, and did not tell; start it, or omit --limit; where it is dead: -e gone=h2",
        ),
        (None, ["h2"], "h1", None),
        (None, ["h0"], "h1", "or omit --limit; where it is dead: -e gone=h0,h2 -e confirm=h0,h2; where others"),
    ],
)
def test_a_volume_that_another_host_may_use_is_not_deleted(
    tmp_path: Path, user: str | None, gone: list[str], limit: str, told: str | None
) -> None:
    *_before, work = yaml.safe_load((ROOT / "playbooks/tasks/volume.yml").read_text())
    [check] = [task for task in work["block"] if "no other hypervisor uses" in task["name"]]
    there = {"virt_there": {"volumes": [{"identity": "/srv/a.qcow2", "shared": "nfs4"}]}}
    hosts = {host: {**there, "virt_elsewhere": {"users": {"/srv/a.qcow2": user}}} for host in ("h1", "h2")}
    inventory = json.dumps({"all": {"children": {"hyper": {"hosts": hosts}}}})
    arguments = {"host": "h1", "volume": "a.qcow2", "pool": "shared", "virt_group": "hyper", "gone": gone}
    known = {**work["vars"], **check["vars"], "virt_asked": {"arguments": arguments}, "virt_action": "delete_volume"}
    asked = check["ansible.builtin.assert"]
    expression, known["told"] = f"[{asked['that']}, told]", asked["fail_msg"]
    right, text = values(tmp_path, expression, [], known, inventory, ["--limit", limit])["h1"]
    assert right == (told is None) and (told or "") in text


def test_only_a_shared_volume_is_asked_of_other_hosts(tmp_path: Path) -> None:
    ask = yaml.safe_load((ROOT / "playbooks/tasks/volume.yml").read_text())[2]
    for action, shared, asked in [
        ("delete_volume", "nfs4", {"h2"}),
        ("resize_volume", "nfs4", {"h2"}),
        ("create_volume", "nfs4", set()),
        ("delete_volume", None, set()),
    ]:
        there = {"virt_there": {"volumes": [{"identity": "/srv/a.qcow2", "shared": shared}]}}
        inventory = json.dumps({"all": {"hosts": {"h1": there, "h2": {}}}})
        known = {**ask["vars"], "virt_asked": {"arguments": {"host": "h1"}}, "virt_action": action}
        found = values(tmp_path, ask["when"], [], known, inventory, [])
        assert {host for host, right in found.items() if right} == asked, (action, shared)


def test_the_console_is_let_in_with_its_own_keys_only(tmp_path: Path) -> None:
    """Without them a check goes on: its placeholder is written nowhere."""
    look, enter = PLAYS["console_server-2"]["tasks"]
    asked = look["ansible.builtin.assert"]["that"]
    for keys, flags, right in (({}, [], False), ({}, ["--check"], True), ({"console_public_keys": {}}, [], True)):
        inventory = json.dumps({"all": {"hosts": {"localhost": {}, "control": keys}}})
        known = {"console_host": "control"}
        assert value(tmp_path, asked, [], known, inventory=inventory, arguments=flags) is right
    assert "KEY" in enter["vars"]["console_public_keys"], "else there is nothing to look for"


def each_task(tasks: t.Any) -> Iterator[dict[str, t.Any]]:
    """With those of blocks."""
    for task in tasks:
        yield task
        yield from each_task(part for key in ("block", "rescue", "always") for part in task.get(key, ()))


def test_a_check_changes_nothing() -> None:
    """A module that could act is asked in check mode what it would do."""
    files = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/tasks/*.yml")]
    tasks = [task for file in files for task in each_task(yaml.safe_load(file.read_text()))]
    tasks += [task for play in PLAYS.values() for task in each_task(play.get("tasks", ()))]
    acting = {f"corral.virt.{name}" for name in GROUP | {"virt_tls", "virt_bridge"} if not name.endswith("_info")}
    checks = [task for task in tasks if acting & {*task} and re.match("Check|Ask|Refuse|Find out", task["name"])]
    assert len(checks) > 5 and [task["name"] for task in checks if task.get("check_mode") is not True] == []
