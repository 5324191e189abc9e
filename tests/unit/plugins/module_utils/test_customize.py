"""A seed as commands of virt-customize; what its scripts do is run by a real shell here, and by a real guest in the lab."""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

from ansible_collections.corral.virt.plugins.module_utils._plan import customize
from ansible_collections.corral.virt.plugins.module_utils._plan import seed as seeds

SECRET = "hunter2"
NETWORK = {"version": 2, "ethernets": {"all": {"match": {"name": "e*"}, "addresses": ["192.0.2.7/24"], "gateway4": "192.0.2.1"}}}


def commands(**said: t.Any) -> dict[str, str]:
    seed = seeds.seed({"method": "virt_customize", **said}, guest="web1")
    return dict(customize.commands(seed, guest="web1", keys={"ed25519": "KEY"}))


def test_commands() -> None:
    told = commands(user_data={"timezone": "Europe/Rome", "packages": ["vim", "nano"], "runcmd": ["a | b", ["c", "d e"]]})
    assert told["hostname"] == "web1"
    assert (told["timezone"], told["firstboot-install"]) == ("Europe/Rome", "vim,nano")
    assert told["firstboot"] == "#!/bin/sh\na | b\nc 'd e'\n"


def test_secrets_stand_only_in_scripts() -> None:
    told = commands(user_data={"runcmd": [SECRET], "users": [{"name": "a", "plain_text_passwd": SECRET}]})
    assert [option for option, value in told.items() if SECRET in value] == ["firstboot", "run"]


def test_scripts_are_shell() -> None:
    user = {"name": "ops", "groups": "adm, users", "sudo": "ALL=(ALL) ALL", "passwd": "$6$x", "ssh_authorized_keys": ["k"], "gecos": "it's"}
    told = commands(user_data={"users": [user], "write_files": [{"path": "/a", "owner": "x y"}]}, network_config=NETWORK)
    subprocess.run(["sh", "-n"], input=told["run"], text=True, check=True)


def test_files_are_written_as_said(tmp_path: Path) -> None:
    files = [
        {"path": f"{tmp_path}/d/plain", "content": "it's $HOME\n", "permissions": "0640"},
        {"path": f"{tmp_path}/d/plain", "content": "more", "append": True, "permissions": 0o600},
        {"path": f"{tmp_path}/coded", "content": "aGk=", "encoding": "b64"},
    ]
    lines = commands(user_data={"ssh_deletekeys": False, "write_files": files})["run"].splitlines()
    own = "\n".join(line for line in lines if str(tmp_path) in line)
    subprocess.run(["sh", "-eu"], input=own, text=True, check=True)
    assert (tmp_path / "d/plain").read_text() == "it's $HOME\nmore"
    assert (tmp_path / "d/plain").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "coded").read_text() == "hi"
