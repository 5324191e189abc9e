"""The page greys what the server would refuse: both read the same rules in the same way."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.roles.console.files.corral_console import policy

RIGHTS = Path(policy.__file__).parent / "static/rights.js"
PROGRAM = """import { may, setUser } from %s;
const cases = JSON.parse(await new Promise((done) => { let text = ""; process.stdin.on("data", (part) => (text += part)).on("end", () => done(text)); }));
console.log(JSON.stringify(cases.map(([rule, action, about]) => { setUser({ rules: [rule] }); return may(action, about); })));
"""
GUESTS: list[dict[str, t.Any]] = [
    {"name": name, "tags": tags, "host": "rack1-a"} for name in ("web1", "web[1]", "db.x") for tags in ([], ["ci"])
]
GUEST_PATTERNS: list[t.Any] = [
    None,
    "web*",
    "web[12]",
    "web[!1]",
    "web[[]1]",
    "*.x",
    "db?x",
    ["none", "web?"],
    "w[z-a]b",
    "[w",
]
TAG_PATTERNS: list[t.Any] = [None, "c?", ["x", "y"]]
HOST_PATTERNS: list[t.Any] = [None, "rack1-*", "rack[2-9]*"]
SELDOM: list[dict[str, t.Any]] = [{"host": "rack1-a"}, {"host": "rack2-b"}, {"everywhere": True}]


def rules() -> t.Iterator[dict[str, t.Any]]:
    for guests, tags, hosts in itertools.product(GUEST_PATTERNS, TAG_PATTERNS, HOST_PATTERNS):
        limits = {"guests": guests, "tags": tags, "hosts": hosts}
        yield {
            "who": "user:bob",
            "may": ["start", "migrate", "drain"],
            **{key: each for key, each in limits.items() if each},
        }


def cases() -> list[tuple[dict[str, t.Any], str, dict[str, t.Any], policy.Request]]:
    """A rule, an action, what the page asks about it, and what the server would be asked."""
    found: list[tuple[dict[str, t.Any], str, dict[str, t.Any], policy.Request]] = []
    for rule in rules():
        for given in GUESTS:
            guest = policy.Guest(given["name"], tuple(given["tags"]), given["host"])
            for action in ("start", "pause"):
                found.append((rule, action, {"guest": given}, policy.Request(action, (guest,), (guest.host,))))
            to_there = policy.Request("migrate", (guest,), ("rack2-b",))
            found.append((rule, "migrate", {"guest": given, "host": "rack2-b"}, to_there))
        for about in SELDOM:
            hosts = (about["host"],) if "host" in about else ()
            request = policy.Request("drain", hosts=hosts, everywhere="everywhere" in about)
            found.append((rule, "drain", about, request))
    return found


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, as npm does")
def test_the_page_and_the_server_read_rules_alike() -> None:
    asked = cases()
    program = PROGRAM % json.dumps(RIGHTS.as_uri())
    given = json.dumps([each[:3] for each in asked])
    command = ["node", "--input-type=module", "-e", program]
    done = subprocess.run(command, input=given, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    who = policy.Who("bob")
    right = [not policy.refusal(policy.parsed([rule]), who, request) for rule, _action, _about, request in asked]
    wrong = [(case[:3], server) for case, page, server in zip(asked, told, right, strict=True) if page != server]
    assert wrong == [] and len(set(right)) == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js, as npm does")
def test_a_form_does_not_ask_for_a_display_that_the_policy_refuses() -> None:
    limits: list[dict[str, t.Any]] = [
        {"may": "*"},
        {"may": ["create"]},
        {"may": ["create"], "arguments": {"graphics": "*"}},
        {"may": ["create"], "arguments": {"*": "*"}},
        {"may": ["create"], "arguments": {"disks": "*"}},
        {"may": ["start"], "arguments": {"graphics": "*"}},
    ]
    rules = [{"who": "user:bob", **each} for each in limits]
    program = PROGRAM.replace("{ may, setUser }", "{ mayGive, setUser }").replace(
        "may(action, about)", "mayGive(action, about)"
    )
    command = ["node", "--input-type=module", "-e", program % json.dumps(RIGHTS.as_uri())]
    given = json.dumps([(rule, "create", "graphics") for rule in rules])
    told = json.loads(subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout)
    wanted = {"graphics": {"type": "vnc"}}
    request = policy.Request("create", (policy.Guest("x"),), ("h",), wanted, ("graphics",))
    assert told == [not policy.refusal(policy.parsed([rule]), policy.Who("bob"), request) for rule in rules]
