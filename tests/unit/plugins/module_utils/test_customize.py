"""A seed as commands of virt-customize.

What its scripts do is run by a real shell here, and by a real guest in the lab.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._seed import plan_customize, plan_seed

SECRET = "hunter2"
NETWORK = {
    "version": 2,
    "ethernets": {"all": {"match": {"name": "e*"}, "addresses": ["192.0.2.7/24"], "gateway4": "192.0.2.1"}},
}


def commands(**output: t.Any) -> dict[str, str]:
    seed = plan_seed.seed({"method": "virt_customize", **output}, guest="web1")
    return dict(plan_customize.commands(seed, guest="web1", keys={"ed25519": "KEY"}))


def test_commands() -> None:
    result = commands(
        user_data={"timezone": "Europe/Rome", "packages": ["vim", "nano"], "runcmd": ["a | b", ["c", "d e"]]}
    )
    assert result["hostname"] == "web1"
    assert (result["timezone"], result["firstboot-install"]) == ("Europe/Rome", "vim,nano")
    assert result["firstboot"] == "#!/bin/sh\na | b\nc 'd e'\n"


def test_secrets_stand_only_in_scripts() -> None:
    result = commands(user_data={"runcmd": [SECRET], "users": [{"name": "a", "plain_text_passwd": SECRET}]})
    assert [option for option, value in result.items() if SECRET in value] == ["firstboot", "run"]


def test_scripts_are_shell() -> None:
    user = {
        "name": "ops",
        "groups": "adm, users",
        "sudo": "ALL=(ALL) ALL",
        "passwd": "$6$x",
        "ssh_authorized_keys": ["k"],
        "gecos": "it's",
    }
    result = commands(
        user_data={"users": [user], "write_files": [{"path": "/a", "owner": "x y"}]}, network_config=NETWORK
    )
    subprocess.run(["sh", "-n"], input=result["run"], text=True, check=True)


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


def test_where_the_name_is_from() -> None:
    meta = {"local-hostname": "c"}
    assert commands(user_data={"hostname": "a", "fqdn": "b"}, meta_data=meta)["hostname"] == "a"
    assert commands(user_data={"fqdn": "b"}, meta_data=meta)["hostname"] == "b"
    assert commands(meta_data=meta)["hostname"] == "c"
    assert set(commands()) == {"hostname", "run"}


START = """#!/bin/sh
set -eu
[ ! -d /etc/cloud ] || touch /etc/cloud/cloud-init.disabled
chmod -f 700 /usr/lib/virt-sysprep || :
"""


def script(**output: t.Any) -> str:
    """What runs in the image, after its start; what it writes is in `{}`."""
    text = commands(**output)["run"]
    assert text.startswith(START)
    return re.sub(
        r"echo (\S*) \| base64 -d", lambda found: f"{{{base64.b64decode(found[1]).decode()}}}", text[len(START) :]
    )


def written(path: str, content: str, mode: str, more: str = "") -> str:
    place = f"{more}{path}"
    return f'(umask 022; mkdir -p "$(dirname {path})"); (umask 077; {{{content}}} >{place})\nchmod {mode} {path}\n'


HOST_KEY = written("/etc/ssh/ssh_host_ed25519_key", "KEY", "600")
KEYS = written('"$home/.ssh/authorized_keys"', "{}", "600", ">") + 'chmod 700 "$home/.ssh"; chown -R {}: "$home/.ssh"\n'


def keys(user: str, text: str) -> str:
    return f"home=$(getent passwd {user} | cut -d: -f6)\n" + KEYS.replace("{{}}", f"{{{text}}}").replace(
        "{}:", f"{user}:"
    )


SCRIPTS: list[tuple[dict[str, t.Any], str]] = [
    ({}, f"rm -f /etc/ssh/ssh_host_*\n{HOST_KEY}"),
    ({"ssh_deletekeys": False}, HOST_KEY),
    ({"users": {"name": "ops"}}, "id ops >/dev/null 2>&1 || useradd -m  ops\nusermod -L ops\n"),
    (
        {"users": [{"name": "a", "gecos": "it's", "shell": "/bin/sh", "uid": 1001, "lock_passwd": False}]},
        """id a >/dev/null 2>&1 || useradd -m -c 'it'"'"'s' -s /bin/sh -u 1001 a\n""",
    ),
    (
        {"users": [{"name": "a", "groups": "adm, w", "hashed_passwd": "$6$x", "passwd": "no", "lock_passwd": False}]},
        (
            "id a >/dev/null 2>&1 || useradd -m  a\n"
            "getent group adm >/dev/null || groupadd adm; usermod -aG adm a\ngetent group w >/dev/null || groupadd w; "
            "usermod -aG w a\n"
            "printf '%s\\n' 'a:$6$x' | chpasswd -e\n"
        ),
    ),
    (
        {"users": [{"name": "a", "groups": ["w w"], "plain_text_passwd": "p w"}]},
        (
            "id a >/dev/null 2>&1 || useradd -m  a\ngetent group 'w w' >/dev/null || groupadd 'w w'; usermod -aG 'w "
            "w' a\n"
            "printf '%s\\n' 'a:p w' | chpasswd\nusermod -L a\n"
        ),
    ),
    (
        {
            "users": [
                {"name": "a", "sudo": ["ALL=(ALL) ALL", "X"], "lock_passwd": False, "ssh_authorized_keys": ["k1", "k2"]}
            ]
        },
        "id a >/dev/null 2>&1 || useradd -m  a\n"
        + written("/etc/sudoers.d/90-corral-a", "a ALL=(ALL) ALL\na X\n", "440")
        + keys("a", "k1\nk2\n"),
    ),
    (
        {"users": [{"name": "a", "passwd": "$6$x", "lock_passwd": False}]},
        "id a >/dev/null 2>&1 || useradd -m  a\nprintf '%s\\n' 'a:$6$x' | chpasswd -e\n",
    ),
    ({"users": [{"name": "a", "sudo": False}]}, "id a >/dev/null 2>&1 || useradd -m  a\nusermod -L a\n"),
    ({"ssh_authorized_keys": "a key"}, keys("root", "a key\n")),
    (
        {
            "write_files": [
                {"path": "/x", "content": "c", "owner": "a:b"},
                {"path": "/y", "permissions": 0o755, "append": True},
            ]
        },
        written("/x", "c", "644") + "chown a:b /x\n" + written("/y", "", "755", ">"),
    ),
    (
        {
            "write_files": [
                {"path": "/x", "content": "Yw==", "encoding": "base64"},
                {"path": "/y", "content": "d", "encoding": "text/plain"},
            ]
        },
        written("/x", "c", "644") + written("/y", "d", "644"),
    ),
]


@pytest.mark.parametrize(("config", "expected"), SCRIPTS)
def test_what_runs_in_the_image(config: dict[str, t.Any], expected: str) -> None:
    output = script(user_data=config) if config else script()
    always = "" if "ssh_deletekeys" in config or not config else f"rm -f /etc/ssh/ssh_host_*\n{HOST_KEY}"
    assert output == always + expected


ALL_OF_A_NIC = {
    "match": {"name": "e*", "macaddress": "52:54:00:00:00:01"},
    "mtu": 9000,
    "dhcp6": True,
    "addresses": ["192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64"],
    "gateway4": "192.0.2.1",
    "gateway6": "2001:db8::1",
    "routes": [
        {"to": "198.51.100.0/24", "via": "192.0.2.9", "metric": 5},
        {"via": "192.0.2.3"},
        {"to": "2001:db8:1::/48", "via": "2001:db8::9"},
    ],
    "nameservers": {"addresses": ["192.0.2.53", "2001:db8::53", "192.0.2.54"], "search": ["a.example", "b.example"]},
}
ALL_OF_A_KEYFILE = """\
[match]
interface-name=e*
[ethernet]
mac-address=52:54:00:00:00:01
mtu=9000
[ipv4]
method=manual
address1=192.0.2.7/24
address2=192.0.2.8/24
route1=0.0.0.0/0,192.0.2.1
route2=198.51.100.0/24,192.0.2.9,5
route3=0.0.0.0/0,192.0.2.3
dns=192.0.2.53;192.0.2.54;
dns-search=a.example;b.example;
[ipv6]
method=auto
address1=2001:db8::7/64
route1=::/0,2001:db8::1
route2=2001:db8:1::/48,2001:db8::9
dns=2001:db8::53;
dns-search=a.example;b.example;
"""
NONE = "[ethernet]\n[ipv4]\nmethod={}\n[ipv6]\nmethod=ignore\n"
KEYFILES: list[tuple[dict[str, t.Any] | None, str]] = [
    (ALL_OF_A_NIC, ALL_OF_A_KEYFILE),
    ({"dhcp4": True}, f"[match]\ninterface-name=nic\n{NONE.format('auto')}"),
    (None, f"[match]\ninterface-name=nic\n{NONE.format('disabled')}"),
    (
        {"match": {"macaddress": "52:54:00:00:00:02"}, "nameservers": {"search": ["a"]}},
        NONE.format("disabled").replace("]\n", "]\nmac-address=52:54:00:00:00:02\n", 1),
    ),
]


@pytest.mark.parametrize(("nic", "expected"), KEYFILES)
def test_networks_as_either_program_reads_them(nic: dict[str, t.Any] | None, expected: str) -> None:
    network = {"version": 2, "ethernets": {"other": {"dhcp4": True}, "nic": nic}}
    output = script(network_config=network)[len(f"rm -f /etc/ssh/ssh_host_*\n{HOST_KEY}") :]
    other = (
        "[connection]\nid=corral "
        f"other\ntype=ethernet\nautoconnect-priority=100\n[match]\ninterface-name=other\n{NONE.format('auto')}"
    )
    ours = f"[connection]\nid=corral nic\ntype=ethernet\nautoconnect-priority=100\n{expected}"
    place = "/etc/NetworkManager/system-connections/corral-{}.nmconnection"
    assert output == (
        "if command -v netplan >/dev/null; then rm -f /etc/netplan/*.yaml\n"
        + written("/etc/netplan/50-corral.yaml", json.dumps({"network": network}, sort_keys=True), "600")
        + "elif command -v NetworkManager >/dev/null; then\n"
        + written(place.format(0), ours, "600")
        + written(place.format(1), other, "600")
        + "else echo 'no netplan or NetworkManager in the image' >&2; exit 1; fi\n"
    )


def test_a_route_needs_no_gateway() -> None:
    nic = {"routes": [{"to": "198.51.100.0/24", "metric": 5}]}
    assert "\nroute1=198.51.100.0/24,,5\n" in script(network_config={"version": 2, "ethernets": {"nic": nic}})


def test_a_network_without_interfaces_replaces_what_the_image_has() -> None:
    output = script(network_config={"version": 2, "renderer": "networkd"})
    assert "rm -f /etc/netplan/*.yaml" in output and ".nmconnection" not in output


def test_a_path_is_quoted_even_where_nobody_has_looked_at_it() -> None:
    seed = plan_seed.seed({"method": "virt_customize"}, guest="web1")
    seed = dataclasses.replace(seed, config={"write_files": [{"path": "/$(x) y"}]})
    assert ">'/$(x) y')\nchmod 644 '/$(x) y'" in dict(plan_customize.commands(seed, guest="web1", keys={}))["run"]


def test_all_that_can_be_done_without_cloud_init_is_taken() -> None:
    user: dict[str, t.Any] = dict.fromkeys(
        ("name", "gecos", "groups", "shell", "passwd", "hashed_passwd", "plain_text_passwd"), "a"
    )
    user |= {"uid": 7, "sudo": False, "lock_passwd": True, "ssh_authorized_keys": ["k"]}
    file: dict[str, t.Any] = dict.fromkeys(("path", "content", "owner", "permissions"), "a")
    file |= {"encoding": "text/plain", "append": True, "defer": True}
    config: dict[str, t.Any] = dict.fromkeys(("hostname", "fqdn", "timezone", "packages"), "a")
    config |= {"users": [user], "write_files": [file], "ssh_authorized_keys": ["k"], "runcmd": ["a"]}
    config |= {"ssh_keys": {"rsa_private": "x"}, "ssh_deletekeys": True, "package_update": True}
    network = {
        "version": 2,
        "renderer": "networkd",
        "ethernets": {"a": {**ALL_OF_A_NIC, "dhcp4": True, "optional": True}},
    }
    meta = {"local-hostname": "a", "instance-id": "i"}
    assert commands(user_data=config, meta_data=meta, network_config=network)


WHERE = "of web1: with method virt_customize"
REFUSED: list[tuple[dict[str, t.Any], list[str]]] = [
    (
        {"on_change": "next_boot"},
        ["cloud_init.on_change {} the disk is written once, before the first start; choose ignore or refuse"],
    ),
    ({"vendor_data": "#!/bin/sh\n"}, ["cloud_init.vendor_data {} it is not read; use user_data instead"]),
    ({"user_data": "#!/bin/sh\n"}, ["cloud_init.user_data {} it must be a #cloud-config"]),
    ({"network_config": {"version": 1, "config": []}}, ["cloud_init.network_config {} it must be of version 2"]),
    (
        {
            "user_data": {"swap": 1, "bootcmd": []},
            "meta_data": {"x": 1, "instance-id": "i"},
            "network_config": {"version": 2, "bonds": {}},
        },
        ["cloud_init {} these cannot be applied: bootcmd, meta_data.x, network_config.bonds, swap"],
    ),
    (
        {
            "user_data": {
                "users": ["default", {"name": "a", "ssh_import_id": 1}],
                "write_files": [{"path": "/a", "encoding": "gz"}],
            }
        },
        ["cloud_init {} these cannot be applied: users[].'default', users[].ssh_import_id, write_files[].encoding gz"],
    ),
    (
        {
            "network_config": {
                "version": 2,
                "ethernets": {"a": {"link-local": [], "match": {"driver": "x"}, "nameservers": {"y": 1}}, "b": None},
            }
        },
        [
            (
                "cloud_init {} these cannot be applied: network_config.ethernets.*.link-local, "
                "network_config.ethernets.*.match.driver, network_config.ethernets.*.nameservers.y"
            )
        ],
    ),
    (
        {
            "user_data": {
                "hostname": "a b",
                "fqdn": "e f",
                "timezone": "-x",
                "packages": ["vim", "a;b"],
                "users": [{"name": "$(x)"}],
                "write_files": [{"path": 7}],
            },
            "meta_data": {"local-hostname": "c d"},
        },
        [
            f"cloud_init {{}} {word} must be a word of letters, digits and ./_+:-"
            for word in ("'a b'", "'e f'", "'-x'", "'c d'", "'a;b'", "'$(x)'", "7")
        ],
    ),
]


@pytest.mark.parametrize(("said", "expected"), REFUSED)
def test_what_cannot_be_done_without_cloud_init(said: dict[str, t.Any], expected: list[str]) -> None:
    with pytest.raises(BadInput, match=WHERE) as caught:
        commands(**said)
    assert caught.value.problems == [text.format(WHERE) for text in expected]
