"""What role guests makes of its variables."""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles import playing
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value


def made_of(
    tmp_path: Path,
    name: str,
    *guests: dict[str, t.Any],
    keys: t.Sequence[str] = ("ssh-ed25519 AAAA me",),
    user: str = "",
) -> t.Any:
    """The role's variable of that name on localhost, which is to have these guests."""
    known = {
        "guests_user": user,
        "__guests_keys_in": keys,
        "virt_guests": guests,
        "virt_guest_defaults": {},
        "guests_seed": False,
        "guests_wait_for_ip": "unknown",
        "virt_images_catalogue": {},
        "virt_host": {"host": {"guests": []}},
        "__guests_placed": {"positions": {"localhost": {one["name"]: position for position, one in enumerate(guests)}}},
    }
    return value(tmp_path, name, [ROLES / "guests/vars/main.yml"], known)


@pytest.mark.parametrize(("keys", "closed"), [([], ["seeded", "more"]), (["ssh-ed25519 AAAA me"], [])])
def test_guests_that_let_nobody_in_are_named(tmp_path: Path, keys: list[str], closed: list[str]) -> None:
    seed = made_of(tmp_path, "__guests_user_data", keys=keys)
    guests: list[dict[str, t.Any]] = [
        {"name": "seeded", "cloud_init": {"user_data": seed}},
        {"name": "more", "cloud_init": {"user_data": seed, "network_config": {"version": 2}}},
        {"name": "own", "cloud_init": {"user_data": "#!/bin/sh\n"}},
        {"name": "never", "cloud_init": None},
        {"name": "there"},
    ]
    assert made_of(tmp_path, "__guests_closed", *guests, keys=keys) == closed


@pytest.mark.parametrize("user", ["", "admin"])
def test_a_seed_without_keys_is_a_valid_cloud_config(tmp_path: Path, user: str) -> None:
    """Cloud-init's schema takes no empty list of keys."""
    seed = made_of(tmp_path, "__guests_user_data", keys=[], user=user)
    assert "ssh_authorized_keys" not in json.dumps(seed)
    assert [one["name"] for one in seed.get("users", [])] == ([user] if user else [])


def test_whoever_runs_ansible_is_let_in_by_all_of_their_keys(tmp_path: Path) -> None:
    """A home without keys is none to warn about: the agent is asked."""
    for keys in (
        {},
        {
            "id_ed25519.pub": "ssh-ed25519 AAAA me\n",
            "id_b.pub": "no key",
            "id_rsa.pub": "ssh-rsa BBBB me",
            "other.pub": "ssh-rsa CC",
        },
    ):
        for name, text in keys.items():
            (playing.home() / ".ssh").mkdir(exist_ok=True)
            (playing.home() / ".ssh" / name).write_text(text)
        try:
            found = value(tmp_path, "__guests_own_keys", [ROLES / "guests/vars/main.yml"], {})
        finally:
            shutil.rmtree(playing.home() / ".ssh", ignore_errors=True)
        assert found == (["ssh-ed25519 AAAA me", "ssh-rsa BBBB me"] if keys else [])


@pytest.mark.parametrize(
    ("check", "images", "fetched", "promised", "there", "made"),
    [
        (False, True, True, [], [], True),
        (True, False, False, [], [], True),
        (True, True, False, [], [], False),
        (True, False, True, [], [], False),
        (True, False, False, ["new"], [], False),
        (True, True, False, ["new"], ["web1"], True),
    ],
)
def test_check_mode_predicts_no_guest_on_what_is_not_there_yet(
    tmp_path: Path, check: bool, images: bool, fetched: bool, promised: list[str], there: list[str], made: bool
) -> None:
    """It is shown as one to come; and images are imported into pools that are there."""
    files = [(ROLES / f"guests/tasks/{name}.yml").read_text() for name in ("converge", "images")]
    tasks = {task["name"]: task for text in files for task in yaml.safe_load(text)}
    creates = " and ".join(f"({condition})" for condition in tasks["Create the guests"]["when"])
    shown = tasks["Show the guests whose images or pools are not there yet"]["when"]
    known = {
        "__guests_is_chosen": True,
        "__guests_images": {"changed": images},
        "__guests_fetched": {"changed": fetched},
        "__guests_promised": promised,
        "__guests_here": [{"name": "web1"}],
        "__guests_there": there,
        "__guests_result": {} if made else {"skipped": True},
        "item": {"pool": "new"},
    }
    imports = [tasks[name]["when"] for name in ("Import the images", "Import the images that new guests name")]
    expression = f"[({creates}), ({shown}), ({imports[0]}), ({imports[1]})]"
    arguments = ["--check"] if check else []
    assert value(tmp_path, expression, [], known, arguments=arguments) == [made, not made, not promised, not promised]


def test_the_first_hypervisor_tells_of_unclear_guests(tmp_path: Path) -> None:
    """In check mode, the first host of the play may be none yet: a task on it alone would be skipped."""
    hosts = {
        "h1": {"virt_host": {"failed": True}},
        "h2": {"virt_host": {"host": {}}},
        "h3": {"virt_host": {"host": {}}},
        "h0": {},
    }
    inventory = json.dumps({"hyper": {"hosts": hosts}})
    files = [ROLES / "guests/vars/main.yml"]
    assert value(tmp_path, "__guests_first", files, {}, host="h3", inventory=inventory) == "h2"
    [tells] = [
        task
        for task in yaml.safe_load((ROLES / "guests/tasks/converge.yml").read_text())
        if "known of each" in task["name"]
    ]
    assert tells["when"] == "inventory_hostname == __guests_first"
