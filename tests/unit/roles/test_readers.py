"""Keys that only read: what is a key, what its line says, and which users are ours."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.corral.virt.tests.unit.roles.playing import ROLES, value

FILES = [ROLES / "hypervisor/vars/main.yml"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOGjIiPjTqFQNAi9vdLhjC5sPQ3v00dwTmPVIkDGt0NG"
KEYS = [
    KEY,
    f"{KEY} inventory of me@example.org\n",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ==",
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI= awx",
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAA= token",
]
NO_KEYS = [
    "",
    "~/.ssh/id_ed25519.pub",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
    f"no-pty {KEY}",
    f'command="sh" {KEY}',
    f"{KEY}\n{KEY}",
    f"{KEY} me\n{KEY}",
    f"{KEY} me\r{KEY}",
    f"{KEY}\t",
    f"# {KEY}",
    "ssh-ed25519",
    "ssh-ed25519 secret",
    "ssh-dss AAAAB3NzaC1kc3MAAACBAM",
]
HOME, NAME = "/var/lib/corral-reader", "corral-reader"


def test_only_whole_public_keys_are_keys(tmp_path: Path) -> None:
    """What follows a line break would get in without the forced command."""
    refused = value(tmp_path, "__hypervisor_not_keys", FILES, {"hypervisor_readers": [*KEYS, *NO_KEYS]})
    assert refused == [text.strip() for text in NO_KEYS if text != f"{KEY}\t"]


def test_every_key_is_bound_to_the_command(tmp_path: Path) -> None:
    template = ROLES / "hypervisor/templates/authorized_keys.j2"
    lookup = f"lookup('ansible.builtin.template', '{template}')"
    lines = value(tmp_path, lookup, FILES, {"hypervisor_readers": [*KEYS, KEY]}).splitlines()
    assert lines[0].startswith("# ")
    assert lines[1:] == [f'restrict,command="/usr/bin/virt-ssh-helper -r qemu:///system" {key.strip()}' for key in KEYS]


def user(uid: int, home: str) -> list[str]:
    return ["x", str(uid), "100", "", home, "/bin/sh"]


OURS, FOREIGN, ROOT = user(990, HOME), user(1000, "/home/corral-reader"), user(0, HOME)


@pytest.mark.parametrize(
    ("local", "namesake", "readers", "leftovers", "foreign"),
    [
        ({}, None, [KEY], [], False),
        ({NAME: OURS}, OURS, [KEY], [], False),
        ({NAME: OURS}, OURS, [], [NAME], False),
        ({NAME: FOREIGN}, FOREIGN, [KEY], [], True),
        ({NAME: FOREIGN}, FOREIGN, [], [], True),
        ({}, FOREIGN, [KEY], [], True),
        ({"old": OURS}, None, [KEY], ["old"], False),
        ({"old": OURS, NAME: FOREIGN}, FOREIGN, [], ["old"], True),
        ({NAME: ROOT}, ROOT, [], [], True),
    ],
    ids=[
        "none",
        "ours",
        "emptied",
        "foreign",
        "foreign and emptied",
        "in LDAP",
        "renamed",
        "renamed and emptied",
        "root by another name",
    ],
)
def test_users_are_ours_by_their_home(
    tmp_path: Path,
    local: dict[str, t.Any],
    namesake: list[str] | None,
    readers: list[str],
    leftovers: list[str],
    foreign: bool,
) -> None:
    known = {
        "__hypervisor_users": {"ansible_facts": {"getent_passwd": {"daemon": user(1, "/usr/sbin"), **local}}},
        "__hypervisor_namesake": {"ansible_facts": {"getent_passwd": {NAME: namesake}}},
        "hypervisor_readers": readers,
        "hypervisor_reader_user": NAME,
    }
    expression = "[__hypervisor_reader_leftovers | map(attribute='key') | list, __hypervisor_foreign_reader]"
    assert value(tmp_path, expression, FILES, known) == [leftovers, foreign]


@pytest.mark.parametrize(
    ("local", "readers", "changed", "done"),
    [
        ({NAME: OURS}, [KEY], True, [[NAME], False, True]),
        ({NAME: OURS}, [KEY], False, [[], False, True]),
        ({NAME: OURS, "old": OURS}, [KEY], False, [["old"], False, True]),
        ({NAME: OURS}, [], False, [[NAME], True, True]),
        ({}, [], False, [[], False, False]),
        ({}, [KEY], True, [[], False, True]),
    ],
)
def test_who_loses_a_key_loses_the_connection(
    tmp_path: Path, local: dict[str, list[str]], readers: list[str], changed: bool, done: list[t.Any]
) -> None:
    """Whose connections end, whether keys and home are removed, and whether anything is done at all."""
    tasks = {
        task["name"]: task
        for name in ("reader_user", "readers")
        for task in yaml.safe_load((ROLES / f"hypervisor/tasks/{name}.yml").read_text())
    }
    known = {
        "__hypervisor_users": {"ansible_facts": {"getent_passwd": local}},
        "__hypervisor_keys": {"changed": changed},
        "hypervisor_readers": readers,
        "hypervisor_reader_user": NAME,
        "ended": tasks["End connections made with earlier keys"]["loop"],
    }
    removes, acts = (
        tasks[name]["when"] for name in ("Remove the keys and the home", "Grant or revoke read-only access")
    )
    expression = f"[ended | map(attribute='key') | list, ({removes}), ({acts})]"
    assert value(tmp_path, expression, FILES, known) == done
