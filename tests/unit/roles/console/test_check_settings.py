"""What the role finds wrong with its settings, before it touches anything."""

from __future__ import annotations

import dataclasses
import io
import json
import typing as t

import pytest

from ansible_collections.corral.virt.roles.console.files import check_settings
from ansible_collections.corral.virt.roles.console.files.check_settings import Settings, problems

GOOD = Settings(
    python="3.11",
    system={"python_packages": ["python3-jinja2"]},
    python_packages="auto",
    hosts=["hyper1", "h-2.example_org"],
    inventory=["hyper1", "h-2.example_org", "web1"],
    policy=[{"who": "group:admins", "may": "*"}],
    proxy={},
    certificate=False,
    key=False,
)
NO_PACKAGES = {"python_packages": list[str]()}
OLD = "it needs Debian 12, Ubuntu 22.04, Enterprise Linux 9, openSUSE Leap 15.6, or newer; choose another machine"
NONE = "console_python_packages: the distribution has no such packages; use auto"
FILE = "console_audit_file: {} is no path of a file; use one such as /var/log/corral-console-jobs/audit.log"
SYSLOG = "console_audit_syslog: {} is no syslog; use /dev/log, udp://HOST:514 or tcp://HOST:514"
LIST = "console_hosts must be a list of names"
PROXY = "console_proxy needs user and user_header; set both, or remove console_proxy"
HALF = "give console_certificate and console_key together, or neither"


def strangers(names: str) -> str:
    """The problem of names that the inventory has not."""
    remedy = "add them to the inventory, or remove them from console_hosts"
    return f"console_hosts: not names of hosts in the inventory: {names}; {remedy}"


def odd(names: str) -> str:
    """The problem of names with other characters."""
    return f"console_hosts: use letters, digits and . _ - in names: {names}; rename these hosts"


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, []),
        ({"python": "3.13"}, []),
        ({"python": "4.0"}, []),
        ({"python": "3.10"}, [OLD]),
        ({"python": "3.9"}, [OLD]),
        ({"python": "2.11"}, [OLD]),
        ({"python": "0.0", "system": {}}, [OLD]),
        ({"python": "a shell says so: 3.12"}, [OLD]),
        ({"python_packages": "distribution"}, []),
        ({"python_packages": "distribution", "system": NO_PACKAGES}, [NONE]),
        ({"python_packages": "pinned", "system": NO_PACKAGES}, []),
        ({"python_packages": "auto", "system": NO_PACKAGES}, []),
        ({"python": "0.0", "python_packages": "distribution", "system": {}}, [OLD]),
        ({"hosts": []}, ["console_hosts is empty; list the hypervisors in the group hyper"]),
        ({"hosts": "hyper1"}, [LIST]),
        ({"hosts": None}, [LIST]),
        ({"hosts": ["hyper1", "hyper9", 7]}, [strangers("hyper9, 7")]),
        ({"hosts": ["h 1", "-h", "h\n"], "inventory": ["h 1", "-h", "h\n"]}, [odd("h 1, -h, h\n")]),
        ({"hosts": ["a b"]}, [strangers("a b"), odd("a b")]),
        ({"policy": None}, ["console_policy: a policy is a list of rules"]),
        ({"policy": []}, []),
        (
            {"policy": [{"who": "bob", "may": "start"}, {"who": "user:bob", "may": "strat"}]},
            [
                "console_policy: rule 1: who must be user:NAME or group:NAME; rule 2: may: there is no action strat",
            ],
        ),
        ({"proxy": {"user": "www-data", "user_header": "X-User"}}, []),
        ({"proxy": {"user": "www-data"}}, [PROXY]),
        ({"proxy": {"user": "", "user_header": "X-User"}}, [PROXY]),
        ({"proxy": {"user_header": "X-User", "groups_header": "X-Groups"}}, [PROXY]),
        ({"proxy": "user and user_header"}, [PROXY]),
        ({"audit_file": "/var/log/corral-console-jobs/audit.log", "audit_syslog": "tcp://[2001:db8::1]:6514"}, []),
        ({"audit_syslog": "/dev/log"}, []),
        ({"audit_syslog": "udp://log.example.org"}, []),
        ({"audit_syslog": "log.example.org"}, [SYSLOG.format("log.example.org")]),
        ({"audit_syslog": "tls://log.example.org"}, [SYSLOG.format("tls://log.example.org")]),
        ({"audit_file": "audit.log"}, [FILE.format("audit.log")]),
        ({"audit_file": "/audit.log"}, [FILE.format("/audit.log")]),
        ({"audit_file": "/var/log/../audit.log"}, [FILE.format("/var/log/../audit.log")]),
        ({"audit_file": "/var/a b/audit.log"}, [FILE.format("/var/a b/audit.log")]),
        ({"certificate": True, "key": True}, []),
        ({"certificate": True}, [HALF]),
        ({"key": True}, [HALF]),
        (
            {"python": "3.9", "hosts": ["hyper9"], "policy": {}, "proxy": {"user": "x"}, "key": True},
            [OLD, strangers("hyper9"), "console_policy: a policy is a list of rules", PROXY, HALF],
        ),
    ],
)
def test_everything_that_is_wrong_is_found_at_once(settings: dict[str, t.Any], found: list[str]) -> None:
    assert problems(dataclasses.replace(GOOD, **settings)) == found


@pytest.mark.parametrize(
    ("settings", "code", "printed"),
    [
        ({}, 0, ""),
        ({"hosts": ["a\nb"], "inventory": ["a\nb"], "key": True}, 2, odd(r"a\nb") + f"\n{HALF}\n"),
    ],
)
def test_each_problem_is_a_line(
    settings: dict[str, t.Any],
    code: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = dataclasses.asdict(dataclasses.replace(GOOD, **settings))
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given)))
    assert check_settings.main() == code
    assert capsys.readouterr().out == printed
