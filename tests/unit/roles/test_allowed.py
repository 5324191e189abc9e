"""Whom libvirt's port admits: the hypervisors of the inventory and the controllers, each by its name."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

FILES = [ROLES / "pki" / part / "main.yml" for part in ("defaults", "vars")]
DN = "O=corral.virt,OU=libvirt,CN="


def inventory(*hosts: str, group: str = "hyper") -> str:
    return json.dumps({group: {"hosts": {host: {"ansible_connection": "local"} for host in hosts}}})


def admitted(
    tmp_path: Path, *hosts: str, group: str = "hyper", arguments: t.Sequence[str] = (), **known: t.Any
) -> list[str]:
    """Their common names."""
    arguments = ["-e", json.dumps(known), *arguments]
    listed = value(
        tmp_path,
        "__pki_allowed",
        FILES,
        {},
        host=hosts[0],
        inventory=inventory(*hosts, group=group),
        arguments=arguments,
    )
    assert all(name.startswith(DN) for name in listed)
    return sorted(name.removeprefix(DN) for name in listed)


def test_the_order_of_the_inventory_changes_nothing(tmp_path: Path) -> None:
    found = admitted(tmp_path, "hyper2", "Hyper1", "hyper1")
    assert found == admitted(tmp_path, "hyper1", "hyper2", "Hyper1") == ["Hyper1", "controller", "hyper1", "hyper2"]


@pytest.mark.parametrize(
    ("known", "controllers"),
    [
        ({}, ["controller"]),
        ({"pki_controllers": ["ci"]}, ["ci", "controller"]),
        ({"pki_controllers": ["ci"], "pki_controller": False}, ["ci"]),
        ({"pki_controllers": [], "pki_controller": "false"}, []),
    ],
)
def test_the_controller_that_gets_a_certificate_is_admitted(
    tmp_path: Path, known: dict[str, t.Any], controllers: list[str]
) -> None:
    assert admitted(tmp_path, "hyper1", **known) == [*controllers, "hyper1"]


@pytest.mark.parametrize(
    ("group", "arguments", "limited"),
    [
        ("hyper", (), False),
        ("hyper", ("--limit", "hyper1"), False),
        ("cloud", (), False),
        ("cloud", ("-e", "virt_group=cloud", "--limit", "hyper1"), False),
        ("cloud", ("--limit", "hyper1"), True),
    ],
)
def test_only_a_run_that_knows_all_removes(
    tmp_path: Path, group: str, arguments: tuple[str, ...], limited: bool
) -> None:
    given = inventory("hyper1", "hyper3", group=group)
    assert value(tmp_path, "__pki_limited", FILES, {}, host="hyper1", inventory=given, arguments=arguments) is limited
    known = ["controller", "hyper1"] if limited else ["controller", "hyper1", "hyper3"]
    assert admitted(tmp_path, "hyper1", "hyper3", group=group, arguments=arguments) == known


@pytest.mark.parametrize(
    ("limited", "known", "done"),
    [
        (False, {}, [True, True]),
        (True, {}, [False, False]),
        (False, {"pki_revoke_absent": "false"}, [False, True]),
        (True, {"pki_allowed": ["CN=h1"]}, [False, True]),
    ],
)
def test_who_may_be_left_out_is_neither_revoked_nor_shut_out(
    tmp_path: Path, limited: bool, known: dict[str, t.Any], done: list[bool]
) -> None:
    tasks = yaml.safe_load((ROLES / "pki/tasks/main.yml").read_text())
    [revokes] = [task["when"] for task in tasks if task["name"].startswith("Revoke certificates")]
    [options] = [task["corral.virt.virt_daemon"] for task in tasks if "corral.virt.virt_daemon" in task]
    given = {"pki_revoke_absent": True, "__pki_limited": limited, "purges": options["purge_clients"], **known}
    assert value(tmp_path, f"[({revokes}), purges]", [], given) == done


PATTERNS = ["web*", "web?", "web[1]", "a,CN=b", "web\\", "web=1", 'we"b', "web 1", "web\n", "", "wéb"]
NAMES = ["hyper1", "hyper-1.example.com", "hyper_1", "192.0.2.1", "2001:db8::1", "ci@example.com"]


@pytest.mark.parametrize("option", ["pki_hypervisors", "pki_controllers"])
def test_no_name_is_a_pattern(tmp_path: Path, option: str) -> None:
    given = ("-e", json.dumps({option: [*PATTERNS, *NAMES]}))
    assert value(tmp_path, "__pki_patterns", FILES, {}, arguments=given) == PATTERNS
