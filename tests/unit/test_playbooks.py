"""What playbooks hand on: to libvirt's modules where libvirt is, and to roles and modules what the user asked for."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.tests.tools.payload import ROOT
from ansible_collections.corral.virt.tests.unit.roles.playing import value

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


def test_what_names_a_guest_and_hosts_is_no_option_of_its_migration(tmp_path: Path) -> None:
    [play] = yaml.safe_load((ROOT / "playbooks/migrate.yml").read_text())
    *_before, move = play["tasks"]
    own = {"guest": "web1", "to": "h2", "virt_group": "hyper", "gone": ["h9"], "confirm": ["h9"]}
    asked = {**own, "bandwidth": 50, "options": {"timeout": 600}}
    found = value(tmp_path, "virt_options", [], {**move["vars"], "virt_asked": {"arguments": asked, "withheld": []}})
    assert found == {"bandwidth": 50, "timeout": 600}


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
