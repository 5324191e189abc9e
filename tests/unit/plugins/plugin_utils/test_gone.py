"""Which hosts may be passed over as dead: those that give no sign of life, and are named twice."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.plugins.plugin_utils._inventory import dead_hosts


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("h1", ["h1"]),
        ("h1, h2,", ["h1", "h2"]),
        (["h1"], ["h1"]),
        ("[h1, 'h2']", ["h1", "h2"]),
        ('["h1"]', ["h1"]),
        (["h1", "h2, h3", ["h4"], ""], ["h1", "h2", "h3", "h4"]),
        ("", []),
        ([], []),
    ],
    ids=str,
)
def test_names_as_they_are_written(value: object, names: list[str]) -> None:
    assert dead_hosts.named(value) == names


def test_only_hosts_of_the_group_are_gone() -> None:
    assert [*dead_hosts.unknown(["h1"], "hyper", ["h1", "h2"])] == []
    output = [
        "gone: h9 is not a host of the group hyper; choose one of h1, h2",
        "gone: web1 is not a host of the group hyper; choose one of h1, h2",
    ]
    assert [*dead_hosts.unknown(["h9", "h1", "web1"], "hyper", ["h2", "h1"])] == output


@pytest.mark.parametrize(
    ("why", "alive"),
    [
        ("Failed to connect to the host via ssh: ssh: connect to host h1 port 22: Connection timed out", False),
        ("Failed to connect to the host via ssh: ssh: connect to host h1 port 22: No route to host", False),
        ("Failed to connect to the host via ssh: ssh: Could not resolve hostname h1: Name or service not known", False),
        (
            "channel 0: open failed: connect failed\nstdio forwarding failed\nConnection closed by UNKNOWN port 65535",
            False,
        ),
        ("Failed to connect to the host via ssh: connect to address h1 port 22: Host is down", False),
        ("Connection timed out during banner exchange\nConnection to 192.0.2.1 port 22 timed out", True),
        ("Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures", True),
        ("Unable to negotiate with 192.0.2.1 port 22: no matching key exchange method found", True),
        ("no answer within 60 s", True),
        ("", True),
        ("Failed to connect to the host via ssh: ops@h1: Permission denied (publickey,password).", True),
        ("ssh: connect to host h1 port 22: Connection refused", True),
        ("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 192.0.2.1 port 22", True),
        ("Connection closed by 192.0.2.1 port 22", True),
        ("Host key verification failed.", True),
        ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!", True),
    ],
)
def test_what_is_a_sign_of_life(why: str, alive: bool) -> None:
    output = [*dead_hosts.alive({"h1": why})]
    assert bool(output) is alive and all(
        one.startswith("gone: h1 may be alive (") and "\n" not in one for one in output
    )


def test_a_host_that_lets_us_in_is_not_gone() -> None:
    assert [*dead_hosts.alive({"h1": None, "h2": "No route to host"})] == [
        "gone: h1 answers, so its guests may run; remove it from gone"
    ]


@pytest.mark.parametrize(
    ("gone", "confirm", "said"),
    [
        ([], [], None),
        (["h1"], ["h1"], None),
        (["h1", "h2"], ["h2", "h1"], None),
        (["h1"], [], "Switch it off, and then: -e confirm=h1"),
        (["h1", "h2"], ["h1"], "Switch them off, and then: -e confirm=h1,h2, and not h1"),
        (["h1"], ["h1", "h2"], "Switch it off, and then: -e confirm=h1, and not h1,h2"),
        ([], ["h1"], "confirm: it repeats the names in gone, which is empty"),
    ],
    ids=str,
)
def test_names_are_said_twice(gone: list[str], confirm: list[str], said: str | None) -> None:
    found = dead_hosts.unconfirmed(gone, confirm)
    assert found is None if said is None else str(found).endswith(said)


def test_each_action_that_takes_dead_hosts_takes_their_names_again() -> None:
    """`confirm`, where that is not a number of guests."""
    for action in map(actions.action, actions.names()):
        if "gone" in action.arguments:
            again = action.arguments.get("confirm_gone") or action.arguments["confirm"]
            assert (again.spec["type"], again.kind) == ("list", "host"), action.name
    assert "-e confirm_gone=h1" in str(dead_hosts.unconfirmed(["h1"], [], "confirm_gone"))
