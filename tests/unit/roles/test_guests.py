"""What role guests makes of its variables: each hypervisor's share of the guests, with the tags by which they stay
apart.
"""

from __future__ import annotations

import json
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.unit.roles import playing
from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value


def made_of(
    tmp_path: Path,
    name: str,
    *guests: dict[str, t.Any],
    there: dict[str, list[str]],
    keys: t.Sequence[str] = ("ssh-ed25519 AAAA me",),
    user: str = "",
) -> list[t.Any]:
    """The role's variable of that name on localhost, where `there` are guests already: name -> tags."""
    known = {
        "virt_guest_defaults": {},
        "virt_guests": guests,
        "guests_seed": True,
        "guests_user": user,
        "guests_wait_for_ip": "unknown",
        "__guests_keys_in": keys,
        "virt_host": {
            "host": {
                "guests": [{"name": name, "tags": tags, "unfinished": name == "half"} for name, tags in there.items()]
            }
        },
        "__guests_placed": {"placements": {guest["name"]: guest.get("host", "localhost") for guest in guests}},
    }
    return t.cast("list[t.Any]", value(tmp_path, name, [ROLES / "guests/vars/main.yml"], known))


def here(tmp_path: Path, *guests: dict[str, t.Any], there: dict[str, list[str]]) -> list[dict[str, t.Any]]:
    """Guests as localhost has them."""
    return made_of(tmp_path, "__guests_here", *guests, there=there)


def test_apart_becomes_a_tag_and_takes_none_away(tmp_path: Path) -> None:
    seen = here(
        tmp_path,
        {"name": "new", "apart": "web"},
        {"name": "tagged", "apart": 1, "tags": ["a", "apart-1"]},
        {"name": "kept", "apart": "web", "host": "localhost", "tags": None},
        {"name": "cleared", "apart": "web", "tags": []},
        {"name": "alone", "vcpus": 1},
        {"name": "elsewhere", "apart": "web", "host": "hyper2"},
        there={"kept": ["by-hand", "apart-old"], "cleared": ["by-hand"], "alone": ["by-hand"]},
    )
    assert seen == [
        {"name": "new", "tags": ["apart-web"]},
        {"name": "tagged", "tags": ["a", "apart-1"]},
        {"name": "kept", "tags": ["by-hand", "apart-web"]},
        {"name": "cleared", "tags": ["apart-web"]},
        {"name": "alone", "vcpus": 1},
    ]


def test_guests_from_an_image_are_seeded_when_they_are_made(tmp_path: Path) -> None:
    """What a guest says itself goes before, and one that is there is left as it is."""
    keys, own = {"user_data": {"ssh_authorized_keys": ["ssh-ed25519 AAAA me"]}}, {"user_data": "#!/bin/sh\n"}
    network = {"network_config": {"version": 2}}
    seen = here(
        tmp_path,
        {"name": "new", "image": "a"},
        {"name": "disk", "disks": [{"name": "system", "image": "a"}]},
        {"name": "half", "image": "a"},
        {"name": "there", "image": "a"},
        {"name": "empty", "disks": [{"name": "system"}]},
        {"name": "null", "image": None, "disks": [{"name": "system", "image": None}]},
        {"name": "own", "image": "a", "cloud_init": own},
        {"name": "static", "image": "a", "cloud_init": network},
        {"name": "never", "image": "a", "cloud_init": None},
        there={"half": [], "there": []},
    )
    assert {one["name"]: one.get("cloud_init") for one in seen} == {
        "new": keys, "disk": keys, "half": keys, "there": None, "empty": None, "null": None, "own": own, "static": {**network, **keys},
        "never": None,
    }  # fmt: skip


def test_seeded_guests_that_run_are_waited_for(tmp_path: Path) -> None:
    """Those that can be reached and say nothing else of it."""
    run = {"image": "a", "state": "running"}
    seen = here(
        tmp_path,
        {**run, "name": "new"},
        {**run, "name": "there", "cloud_init": {"user_data": "#!/bin/sh\n"}},
        {**run, "name": "never", "wait_for_ip": "none"},
        {**run, "name": "lease", "wait_for_ip": "lease"},
        {**run, "name": "unseeded", "cloud_init": None},
        {**run, "name": "alone", "interfaces": []},
        {**run, "name": "lonely", "networks": []},
        {**run, "name": "wired", "networks": [{"name": "eth0"}]},
        {**run, "name": "hasty", "wait": False},
        {"name": "defined", "image": "a"},
        {"name": "off", "image": "a", "state": "shutdown"},
        there={"there": []},
    )
    assert {one["name"]: one["wait_for_ip"] for one in seen if "wait_for_ip" in one} == {
        "new": "unknown", "there": "unknown", "never": "none", "lease": "lease", "wired": "unknown",
    }  # fmt: skip


@pytest.mark.parametrize(("keys", "closed"), [([], ["new", "static"]), (["ssh-ed25519 AAAA me"], [])])
def test_guests_that_let_nobody_in_are_named(tmp_path: Path, keys: list[str], closed: list[str]) -> None:
    guests: list[dict[str, t.Any]] = [
        {"name": "new", "image": "a"},
        {"name": "static", "image": "a", "cloud_init": {"network_config": {"version": 2}}},
        {"name": "own", "image": "a", "cloud_init": {"user_data": "#!/bin/sh\n"}},
        {"name": "never", "image": "a", "cloud_init": None},
        {"name": "empty", "disks": [{"name": "system"}]},
        {"name": "null", "disks": [{"name": "system", "image": None}]},
        {"name": "there", "image": "a"},
        {"name": "elsewhere", "image": "a", "host": "hyper2"},
    ]
    assert made_of(tmp_path, "__guests_closed", *guests, there={"there": []}, keys=keys) == closed


@pytest.mark.parametrize("user", ["", "admin"])
def test_a_seed_without_keys_is_a_valid_cloud_config(tmp_path: Path, user: str) -> None:
    """Cloud-init's schema takes no empty list of keys."""
    [new] = made_of(tmp_path, "__guests_here", {"name": "new", "image": "a"}, there={}, keys=[], user=user)
    assert "ssh_authorized_keys" not in json.dumps(new["cloud_init"])
    assert [one["name"] for one in new["cloud_init"]["user_data"].get("users", [])] == ([user] if user else [])


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
