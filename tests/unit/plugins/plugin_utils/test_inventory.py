"""Guests as hosts: which of two, what they are called, and how to get in."""

from __future__ import annotations

import shlex
import string
import typing as t

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._inventory import guest_addresses, inventory_guests

ADDRESSES = ["fd00::5", "10.1.2.3/24", "192.168.0.5", "nonsense"]


def guest(name: str = "web1", state: str = "running", uuid: str = "1", **more: t.Any) -> dict[str, t.Any]:
    empty = {"title": "", "tags": [], "vcpus": 1, "memory_mib": 64, "macs": [], "addresses": [], "ssh_host_key": None}
    return {"name": name, "state": state, "uuid": uuid, **empty, **more}


@pytest.mark.parametrize(
    ("first", "second", "shown", "words"),
    [
        (guest(state="shutdown"), guest(), "b", "web1 is on b (running) and a (shutdown); the one on b is shown"),
        (guest(state="shutdown"), guest(state="paused"), "b", "web1 is on b (paused) and a (shutdown)"),
        (guest(), guest(state="paused"), "a", "web1 is on a (running) and b (paused)"),
        (guest(), guest(), "a", "GUEST web1 RUNS TWICE, on a and b"),
        (guest(), guest(uuid="2"), "a", "TWO GUESTS NAMED web1 RUN, on a and b"),
    ],
)
def test_one_of_two(first: dict[str, t.Any], second: dict[str, t.Any], shown: str, words: str) -> None:
    guests, warnings = inventory_guests.chosen({"b": [second, guest("alone")], "a": [first]})
    assert (list(guests), guests["web1"][0]) == (["alone", "web1"], shown)
    assert len(warnings) == 1 and words in warnings[0]


def stale(name: str = "web1", **more: t.Any) -> dict[str, t.Any]:
    return guest(name, stale=True, **more)


@pytest.mark.parametrize(
    ("first", "second", "shown", "said"),
    [
        pytest.param(stale(), guest(), "b", 0, id="it_has_moved"),
        pytest.param(stale(), guest(uuid="2"), "b", 1, id="another_of_that_name"),
        pytest.param(stale(), guest(uuid="2", state="shutdown"), "b", 1, id="what_is_seen_counts"),
        pytest.param(stale(), stale(uuid="2"), "a", 1, id="nobody_has_seen_either"),
    ],
)
def test_what_was_last_known_is_no_second_guest(
    first: dict[str, t.Any], second: dict[str, t.Any], shown: str, said: int
) -> None:
    guests, warnings = inventory_guests.chosen({"a": [first], "b": [second]})
    assert guests["web1"][0] == shown and len(warnings) == said and "RUN" not in "".join(warnings)


def test_stale_guests_are_in_no_group_of_a_state() -> None:
    assert inventory_guests.groups("hyper1", stale(tags=["web"])) == ["on_hyper1", "guests_stale", "tag_web"]
    assert inventory_guests.variables("hyper1", stale(), None)["virt_stale"] is True
    assert "virt_stale" not in inventory_guests.variables("hyper1", guest(), None)


def test_lost_hypervisors_are_one_sentence() -> None:
    reasons = {f"h{number:02d}": "refused" for number in range(12)} | {"x": "no answer", "y": "no answer"}
    assert inventory_guests.lost(reasons, 100, stale={"y"}) == (
        "14 of 100 hypervisors did not answer; guests on h00, h01, h02, h03, h04, h05, h06, h07, h08, h09 and 2 more "
        "are not shown: refused; guests on x are not shown: no answer; guests on y are shown as last known: no answer"
    )
    assert inventory_guests.lost({}, 100) == ""


SENSIBLE: dict[str, t.Any] = {
    "hostvars_prefix": "virt_",
    "show_stale": False,
    "cache": False,
    "cache_plugin": "memory",
    "connection": "ssh",
    "ca_file": None,
    "cert_file": None,
    "key_file": None,
}
FILES = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile"}


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({}, []),
        ({"hostvars_prefix": "_x1"}, []),
        ({"hostvars_prefix": ""}, ["hostvars_prefix must"]),
        ({"hostvars_prefix": "1x"}, ["hostvars_prefix must"]),
        ({"hostvars_prefix": "my-"}, ["hostvars_prefix must"]),
        ({"hostvars_prefix": "\u00e4_"}, ["hostvars_prefix must"]),
        ({"show_stale": True}, ["show_stale requires cache: true"]),
        ({"show_stale": True, **FILES}, []),
        ({"show_stale": True, "cache": True}, ["show_stale requires a cache_plugin that keeps files"]),
        (
            {"show_stale": True, **FILES, "cache_plugin": "ansible.builtin.memory"},
            ["show_stale requires a cache_plugin that keeps files"],
        ),
        ({"cache": True}, []),
        ({"connection": "agent"}, []),
        ({"key_file": "/x"}, []),
        ({"connection": "agent", "ca_file": "/x"}, ["connection: agent requires pki_dir"]),
        ({"connection": "agent", "cert_file": "/x"}, ["connection: agent requires pki_dir"]),
        (
            {"connection": "agent", "key_file": "/x", "show_stale": True, "hostvars_prefix": "-"},
            ["hostvars_prefix must", "show_stale requires cache", "connection: agent requires"],
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, t.Any], problems: list[str]) -> None:
    found = inventory_guests.contradictions({**SENSIBLE, **options})
    assert len(found) == len(problems)
    assert all(text.startswith(words) for text, words in zip(found, problems, strict=True))


def test_an_option_that_there_is_not() -> None:
    known = ["hosts", "timeout", "filters"]
    assert inventory_guests.unknown("filter", known) == "filter is not an option of this plugin; did you mean filters?"
    assert inventory_guests.unknown("xyz", known) == "xyz is not an option of this plugin"


def test_strangers_are_all_that_are_no_guests() -> None:
    groups = {"all": ["web1", "DB.example.", "010.0.0.1", "2001:DB8:0::1"], "guests": ["web1"]}
    assert inventory_guests.strangers(groups) == {
        "db.example": "DB.example.",
        "010.0.0.1": "010.0.0.1",
        "2001:db8::1": "2001:DB8:0::1",
    }
    assert inventory_guests.strangers({"all": ["a"]}) == {"a": "a"} and inventory_guests.strangers({}) == {}


def reached(
    *guests: dict[str, t.Any], foreign: dict[str, str] | None = None, prefer: tuple[str, ...] = ("ipv4", "ipv6")
) -> t.Any:
    """Addresses by guest, and what is said about the others; each guest is on a hypervisor of its own."""
    return guest_addresses.reached_at(
        {one["name"]: (f"hyper{n}", one) for n, one in enumerate(guests, 1)}, foreign or {}, prefer
    )


@pytest.mark.parametrize(
    ("prefer", "best"),
    [
        (("ipv4", "ipv6"), "10.1.2.3"),
        (("ipv6",), "fd00::5"),
        (("192.168.0.0/16", "ipv4"), "192.168.0.5"),
        (("172.16.0.0/12",), "fd00::5"),
    ],
)
def test_preferred_address(prefer: tuple[str, ...], best: str) -> None:
    assert reached(guest(addresses=ADDRESSES), prefer=prefer) == ({"web1": best}, [])


@pytest.mark.parametrize(
    "address",
    ["-oProxyCommand=id", "127.0.0.1", "::1", "::ffff:127.0.0.1", "::127.0.0.1", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
     "255.255.255.255", "169.254.1.1", "fe80::1", "fe80::1%eth0;id", "fd00::1%-oProxyCommand=id"],
)  # fmt: skip
def test_what_is_no_address_of_a_guest_leads_nowhere(address: str) -> None:
    assert reached(guest(addresses=[address])) == ({}, [])
    assert reached(guest(addresses=[address, "10.0.0.7"]))[0] == {"web1": "10.0.0.7"}


@pytest.mark.parametrize("address", ["192.0.2.1", "192.0.2.1/24", "::ffff:192.0.2.1"])
def test_no_guest_is_reached_at_the_address_of_another_host(address: str) -> None:
    found, warnings = reached(guest(addresses=[address]), foreign={"192.0.2.1": "firewall"})
    assert found == {}
    assert len(warnings) == 1 and warnings[0].startswith(
        "192.0.2.1, claimed by web1 on hyper1, belongs to firewall; not used as ansible_host"
    )


def test_an_address_that_two_running_guests_claim_is_of_neither() -> None:
    found, [warning] = reached(guest("web1", addresses=["10.0.0.5"]), guest("evil", addresses=["10.0.0.5", "10.0.0.6"]))
    assert found == {"evil": "10.0.0.6"}
    assert warning.startswith("10.0.0.5 is claimed by web1 on hyper1 and evil on hyper2; not used as ansible_host")


@pytest.mark.parametrize(
    ("web1", "web2", "owner"),
    [
        pytest.param([1, 100], [1, 200], "web2", id="seen there later"),
        pytest.param([2, 100], [1, 200], "web1", id="a DHCP server spoke for the other one"),
        pytest.param([3, 100], [3, 10**11], "web2", id="what is leased now is newer than what was recorded"),
        pytest.param([9, 0], [3, 10**11], "web1", id="given by the operator"),
        pytest.param([1, 100], [1, 100], None, id="nobody knows"),
        pytest.param([9, 0], [9, 0], None, id="given to both"),
    ],
)
def test_of_two_guests_at_one_address_the_better_witness_counts(
    web1: list[int], web2: list[int], owner: str | None
) -> None:
    known = {"web1": web1, "web2": web2}
    found, [warning] = reached(
        *(guest(name, addresses=["10.0.0.5"], worth={"10.0.0.5": worth}) for name, worth in known.items())
    )
    assert found == ({owner: "10.0.0.5"} if owner else {})
    other = "web1 on hyper1" if owner == "web2" else "web2 on hyper2"
    told = (
        f"10.0.0.5 of {other} now belongs to {owner}; look for these guests again: ansible-playbook corral.virt.query"
    )
    assert warning == told if owner else "10.0.0.5 is claimed by web1 on hyper1 and web2 on hyper2" in warning


def test_a_guest_that_is_off_leaves_its_address_to_one_that_runs() -> None:
    assert reached(guest("old", "shutdown", addresses=["10.0.0.5"]), guest("new", addresses=["10.0.0.5"])) == (
        {"new": "10.0.0.5"},
        [],
    )


@pytest.mark.parametrize("name", ["web1", "_x", "db.example.com", "a-b", "vm-525400123456", "10-web", "A"])
def test_names_that_are_safe_are_shown_as_they_are(name: str) -> None:
    assert inventory_guests.host_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=touch PWNED; echo ", "Windows 10", "a\n", "a\x9bb", "web\u0661", "", "10.0.0.1", "127.1", "0x7f.1", "42", "firewall.",
     "a" * 300, "root@firewall", "a:22", "a,b", "{{ 1 }}", "[a]", "!a", "~a", ".a"],
)  # fmt: skip
def test_what_ssh_or_ansible_would_read_otherwise_is_shown_under_an_alias(name: str) -> None:
    alias = inventory_guests.host_name(name)
    assert alias != name and alias.startswith("alias_") and alias == inventory_guests.host_name(name)
    assert set(alias) <= set(string.ascii_letters + string.digits + "_.-") and len(alias) < 70
    assert inventory_guests.host_name(alias) != alias  # a guest of that very name does not meet it


def test_different_names_have_different_aliases() -> None:
    assert (
        len(
            {
                inventory_guests.host_name(name)
                for name in ("Windows 10", "Windows_10", "Windows  10", "Windows 10 ", "Windows/10")
            }
        )
        == 5
    )


@pytest.mark.parametrize(
    ("host", "valid"),
    [("web1", True), ("10.0.0.1", True), ("fd00::1", True), ("-oX=y", False), ("a b", False), ("", False)],
)
def test_destinations(host: str, valid: bool) -> None:
    assert inventory_guests.is_destination(host) is valid


def test_control_characters_do_not_become_variables() -> None:
    shown = inventory_guests.variables("hyper1", guest("a\x9b31m", title="b\x1b]0;c\x07\x85", tags=["d\x9b"]), None)
    assert (shown["virt_name"], shown["virt_title"], shown["virt_tags"]) == (
        "a\\x9b31m",
        "b\\x1b]0;c\\x07\\x85",
        ["d\\x9b"],
    )


def test_groups() -> None:
    assert inventory_guests.groups("hyper1", guest(tags=["web", "eu"])) == [
        "on_hyper1",
        "guests_running",
        "tag_web",
        "tag_eu",
    ]


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGcTn9KpO4H0tB1aXk1jvGv7F2m0Tn3bF0fXhQkqk0aB"
OTHER_KEY = KEY.replace("GcT", "GcU")


@pytest.mark.parametrize(
    ("first", "second", "known"),
    [
        ([KEY], [], {"web1": KEY}),
        ([KEY], [KEY], {"web1": KEY}),  # while it moves
        ([KEY], [None], {"web1": KEY}),
        ([KEY], [OTHER_KEY], {}),  # one of them is not the guest
        ([None], [], {}),
        (["ssh-ed25519 AAAA\nweb2 ssh-ed25519 BBBB"], [], {}),
        (["ssh-ed25519 AAAA -oProxyCommand=id"], [], {}),
    ],
)
def test_keys_that_hypervisors_report(first: list[str | None], second: list[str | None], known: dict[str, str]) -> None:
    answers = {name: [guest(ssh_host_key=key) for key in keys] for name, keys in (("a", first), ("b", second))}
    assert inventory_guests.host_keys(answers) == known


def test_a_key_that_was_last_known_is_none_of_the_guest_that_has_the_name_now() -> None:
    past = guest(ssh_host_key=KEY, stale=True)
    for now, known in ((OTHER_KEY, {"web1": OTHER_KEY}), (None, {})):
        assert inventory_guests.host_keys({"a": [past], "b": [guest(ssh_host_key=now)]}) == known
    assert inventory_guests.host_keys({"a": [past]}) == {"web1": KEY}


def test_a_key_needs_no_file() -> None:
    words = shlex.split(inventory_guests.ssh_args_of_key(KEY, "web1"))
    assert words[::2] == ["-o"] * 5
    assert words[1::2] == [
        "IgnoreUnknown=KnownHostsCommand",
        f"KnownHostsCommand=/bin/echo web1 {KEY}",
        "UserKnownHostsFile=/dev/null",
        'HostKeyAlias="web1"',
        "StrictHostKeyChecking=yes",
    ]


def test_ssh_reads_back_what_was_meant() -> None:
    words = shlex.split(inventory_guests.ssh_args("/it's my/100% place", "web1"))
    assert words[1::2] == [
        'UserKnownHostsFile="/it\'s my/100%% place"',
        'HostKeyAlias="web1"',
        "StrictHostKeyChecking=yes",
    ]


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("qemu+tls://h1/system?pkipath=/x", ("h1", 16514)),
        ("qemu+tls://[fd00::1]:17000/system", ("fd00::1", 17000)),
        ("qemu+tcp://h1/system", ("h1", 16509)),
        ("qemu://h1/system", ("h1", 16514)),
        ("qemu+ssh://root@h1/system", None),
        ("qemu:///system", None),
        ("test:///default", None),
    ],
)
def test_where_a_uri_leads(uri: str, place: tuple[str, int] | None) -> None:
    assert inventory_guests.endpoint(uri) == place


@pytest.mark.parametrize(
    ("uri", "after"),
    [
        ("qemu+ssh://root@h1/system", "qemu+ssh://root@h1/system?no_tty=1"),
        ("qemu+ssh://h1/system?keyfile=/k", "qemu+ssh://h1/system?keyfile=/k&no_tty=1"),
        ("qemu+ssh://h1/system?no_tty=0", "qemu+ssh://h1/system?no_tty=0"),
        ("qemu+tls://h1/system", "qemu+tls://h1/system"),
    ],
)
def test_ssh_asks_nobody(uri: str, after: str) -> None:
    assert inventory_guests.unattended(uri) == after


def test_addresses_in_uris() -> None:
    assert [inventory_guests.in_uri(host) for host in ("h1", "10.0.0.1", "fd00::1")] == ["h1", "10.0.0.1", "[fd00::1]"]
