"""The service that tries a bridge: it keeps it when it is confirmed, and else leaves the host as before."""

from __future__ import annotations

import ast
import json
import os
import stat
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._host import files_bridge_switch, model_bridge


class Host:
    """Commands that ran, and files below a folder."""

    def __init__(self, place: Path) -> None:
        self.place, self.ran = place, list[str]()
        self.fails: dict[str, str] = {}
        self.limits: dict[str, tuple[float, bool]] = {}
        self.held: dict[tuple[str, str], list[str]] = {}
        self.taken_over = True
        self.lost_after_reload = False
        self.trial, self.lasting = place / "run/trial", place / "etc/lasting"
        self.new, self.state = place / "etc/new", place / "state"
        self.lasting.parent.mkdir()
        self.lasting.write_text("old")
        self.lasting.chmod(0o640)

    def change(self, **more: t.Any) -> dict[str, t.Any]:
        known: dict[str, t.Any] = {
            "bridge": "br0",
            "port": "eth0",
            "holder": "",
            "timeout_s": 0.3,
            "trial": {str(self.trial): "tried"},
            "lasting": {str(self.lasting): "kept", str(self.new): "kept too"},
        }
        words = ("down", "up", "reload", "undo_in_trial", "undo", "up_again")
        return {**known, **{word: [[word]] for word in words}, "patience": [], **more}

    def run(self, command: t.Sequence[str], limit_s: float = 60, *, leave: bool = False) -> str:
        self.limits[command[0]] = (round(limit_s, 2), leave)
        text = " ".join(command)
        if command[0] in ("ip", "resolvectl"):
            return self.asked(command)
        self.ran.append(text + (" (trial)" if self.trial.exists() else ""))
        if text in self.fails:
            raise files_bridge_switch.SwitchFailed(self.fails[text])
        if text == "reload" and self.lost_after_reload:
            self.taken_over = False
        return "fine"

    def asked(self, command: t.Sequence[str]) -> str:
        """What `ip` answers for the port and the bridge, or does to them."""
        text = " ".join(command)
        if command[0] == "resolvectl":
            return ""
        if text.startswith("ip -j addr show dev "):
            rows = [{"scope": "global", **json.loads(one)} for one in self.holds(command[-1], "address")]
            return json.dumps([{"addr_info": rows}])
        if " show" in text:
            link = command[-1] if command[-2] == "dev" else ""
            return "\n".join(self.holds(link, " ".join(command[1:3])))
        self.ran.append(text)
        if text.startswith("ip addr add ") and text not in self.fails:
            local, _slash, prefix = command[3].partition("/")
            row = {"local": local, "prefixlen": int(prefix), "dynamic": "valid_lft" in command}
            link = command[command.index("dev") + 1]
            self.held.setdefault((link, "address"), []).append(json.dumps(row))
        elif command[2] == "route":
            routes = self.held.setdefault((command[-1], f"{command[1]} route"), [])
            same = [one for one in routes if one.split()[0] == command[4]]
            if same and command[3] == "add":
                raise files_bridge_switch.SwitchFailed("File exists")
            routes[:] = [one for one in routes if one not in same] + [" ".join(command[4:-2])]
        return ""

    def holds(self, link: str, what: str) -> list[str]:
        """What a link has."""
        return self.held.get((link, what), [])

    def serve(self, **more: t.Any) -> dict[str, t.Any]:
        """Run the service; its result."""
        self.state.mkdir()
        (self.state / "change.json").write_text(json.dumps(self.change(**more)))
        files_bridge_switch.main()
        return t.cast("dict[str, t.Any]", json.loads((self.state / "result.json").read_text()))

    def is_as_before(self) -> bool:
        text = self.lasting.read_text()
        return not self.trial.exists() and not self.new.exists() and text == "old"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setattr(files_bridge_switch, "STATE", str(host.state))
    monkeypatch.setattr(files_bridge_switch, "DELAY_S", 0)
    monkeypatch.setattr(files_bridge_switch, "AFTER_RELOAD_S", 0.3)
    monkeypatch.setattr(files_bridge_switch, "POLL_S", 0.01)
    monkeypatch.setattr(files_bridge_switch, "GRACE_S", 0.05)
    monkeypatch.setattr(files_bridge_switch, "LEASE_S", 0.1)
    monkeypatch.setattr(files_bridge_switch, "RESTORE_S", 0.2)
    monkeypatch.setattr(files_bridge_switch, "RESOLV_CONF", str(tmp_path / "resolv.conf"))
    monkeypatch.setattr(files_bridge_switch, "run", host.run)
    monkeypatch.setattr(files_bridge_switch, "has_taken_over", lambda _change, _before: host.taken_over)
    return host


def confirm(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as somebody waits for it."""
    monkeypatch.setattr(files_bridge_switch, "is_confirmed", host.trial.exists)


def test_a_bridge_that_is_confirmed_is_kept(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm(host, monkeypatch)
    result = host.serve()
    assert result["ok"] is True
    assert [one["command"] for one in result["log"]] == ["down", "up", "reload"]
    assert host.ran == ["down", "up (trial)", "reload"], "what lasts is tried without the trial"
    assert (host.lasting.read_text(), host.new.read_text()) == ("kept", "kept too")
    assert (host.lasting.stat().st_mode & 0o777, host.new.stat().st_mode & 0o777) == (0o640, 0o644)
    assert not host.trial.exists()


UNDONE = ["undo_in_trial (trial)", "undo", "up_again"]


def test_a_bridge_that_nobody_confirms_is_taken_back(host: Host) -> None:
    result = host.serve()
    assert (result["ok"], result["why"]) == (False, "no connection came back over the bridge")
    assert host.ran == ["down", "up (trial)", *UNDONE]
    assert host.is_as_before()


def test_a_bridge_that_takes_nothing_over_is_taken_back(host: Host) -> None:
    host.taken_over = False
    result = host.serve()
    assert result["why"] == "br0 lacks its port, or br0 the addresses"
    assert host.ran[2:] == UNDONE and host.is_as_before()


def test_a_network_that_does_not_come_up_is_taken_back(host: Host) -> None:
    host.fails = {"up": "up failed: no", "down": "down failed", "undo": "undo failed"}
    result = host.serve()
    assert result["why"] == "up failed: no"
    assert [one["output"] for one in result["log"]] == [
        "down failed",
        "up failed: no",
        "fine",
        "undo failed",
        "fine",
    ]
    assert host.is_as_before()


def test_files_that_last_are_taken_back_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the bridge works from the trial's files only."""
    confirm(host, monkeypatch)
    host.lost_after_reload = True
    result = host.serve()
    assert result["why"] == "br0 lost its port again, or br0 its addresses"
    assert host.ran[3:] == UNDONE, "the trial's files are there again for that"
    assert host.is_as_before() and host.lasting.stat().st_mode & 0o777 == 0o640


def test_whatever_fails_is_taken_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: half of the files cannot be written."""
    confirm(host, monkeypatch)
    (host.place / "file").write_text("")
    lasting = {str(host.lasting): "kept", str(host.place / "file/below"): "x"}
    result = host.serve(lasting=lasting)
    assert "Not a directory" in result["why"] or "File exists" in result["why"]
    assert host.ran[2:] == UNDONE and host.is_as_before()


def test_commands_that_need_no_trial_leave_none(host: Host) -> None:
    host.serve(undo_in_trial=[])
    assert host.ran[2:] == ["undo", "up_again"] and host.is_as_before()


ALIAS = json.dumps({"local": "192.0.2.6", "prefixlen": 24})


def test_what_somebody_added_by_hand_moves_to_the_bridge(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm(host, monkeypatch)
    host.held = {("eth0", "address"): [ALIAS], ("eth0", "-4 route"): ["198.51.100.0/24 via 192.0.2.9 linkdown"]}
    assert host.serve()["ok"] is True
    assert [one for one in host.ran if one.startswith("ip ")] == [
        "ip addr add 192.0.2.6/24 dev br0",
        "ip -4 route add 198.51.100.0/24 via 192.0.2.9 dev br0",
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_a_rollback_gives_back_what_was_there_and_says_what_is_not(host: Host, *, fails: bool) -> None:
    host.held = {("eth0", "address"): [ALIAS]}
    command = "ip addr add 192.0.2.6/24 dev eth0"
    ran = host.run

    def run(words: t.Sequence[str], *limits: float, **how: bool) -> str:
        if list(words) == ["up"]:
            host.held.clear()  # the configuration does not know it
        if " ".join(words) == command and fails:
            raise files_bridge_switch.SwitchFailed("no")
        return ran(words, *limits, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_bridge_switch, "run", run)
        result = host.serve()
    assert result["ok"] is False
    text = model_bridge.rolled_back(result)
    if fails:
        assert result["differs"] == [f"address 192.0.2.6/24 is not on eth0 (`{command}`)"]
        assert "the host is not as before: address 192.0.2.6/24 is not on eth0" in text
    else:
        assert command in host.ran and result["differs"] == []
        assert text.startswith("it was rolled back and the host is as before: ")


def test_what_is_taken_away_again_while_the_link_is_configured_anew_is_put_back(host: Host) -> None:
    """A service of the distribution flushes addresses a moment after its command has ended."""
    host.held = {("eth0", "address"): [ALIAS]}
    looks, holds = 0, host.holds

    def fewer(link: str, what: str) -> list[str]:
        nonlocal looks
        looks += "up_again" in host.ran and (link, what) == ("eth0", "address")
        if looks == 2:
            host.held.clear()
        return holds(link, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "holds", fewer)
        assert host.serve()["differs"] == []
    assert "ip addr add 192.0.2.6/24 dev eth0" in host.ran and looks > 2


def served_until_up(host: Host, *, patience: t.Sequence[str] = (), **left: list[str]) -> dict[str, t.Any]:
    """Serve on a host whose configuration brings only what is `left`."""
    ran = host.run

    def run(words: t.Sequence[str], *limits: float, **how: bool) -> str:
        if list(words) == ["up"]:
            host.held = {("eth0", what.replace("route", "-4 route")): list(lines) for what, lines in left.items()}
        return ran(words, *limits, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_bridge_switch, "run", run)
        return host.serve(patience=[[word] for word in patience])


LEASE = '{"local": "192.0.2.7", "prefixlen": 24, "dynamic": true, "valid_life_time": 600, "preferred_life_time": 300}'


def test_an_address_of_a_server_that_is_gone_is_put_back_for_its_time(host: Host) -> None:
    host.held = {("eth0", "address"): [LEASE], ("eth0", "-4 route"): ["default via 192.0.2.1 proto dhcp metric 100"]}
    result = served_until_up(host, patience=["wait for ever"])
    assert (result["ok"], result["differs"]) == (False, [])
    assert [one for one in host.ran if one.startswith(("ip ", "wait"))] == [
        "wait for ever",
        "ip addr add 192.0.2.7/24 dev eth0 valid_lft 599 preferred_lft 299",
        "ip -4 route add default via 192.0.2.1 proto dhcp metric 100 dev eth0",
    ]
    assert host.limits["up_again"] == (files_bridge_switch.GRACE_S, True), (
        "ifup waits for the server, and goes on asking"
    )


def test_a_trial_that_waits_for_its_server_ends_in_time(host: Host) -> None:
    host.fails = {"up": "up did not end"}
    host.serve(timeout_s=20.0)
    limit_s, leave = host.limits["up"]
    assert 19 < limit_s <= 20 and not leave
    assert host.limits["up_again"] == (files_bridge_switch.COMMAND_S, False), "nobody asks a server"


def test_an_address_whose_time_is_over_may_be_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = files_bridge_switch.Lease(1000.0, [json.loads(LEASE)], {"route default": ["ip", "route"]})
    monkeypatch.setattr(time, "monotonic", lambda: 1400.0)
    assert files_bridge_switch.rest_of(lease)["address 192.0.2.7/24"][-4:] == ["valid_lft", "200", "preferred_lft", "0"]
    monkeypatch.setattr(time, "monotonic", lambda: 1600.0)
    assert files_bridge_switch.rest_of(lease) == {}


def test_an_address_that_the_server_gives_again_is_its_own(host: Host) -> None:
    host.held = {("eth0", "address"): [LEASE]}
    assert served_until_up(host, address=[LEASE.replace("2.7", "2.8")])["differs"] == []
    assert [one for one in host.ran if one.startswith("ip ")] == []


def test_a_route_that_the_configuration_has_in_its_place_gives_way(host: Host) -> None:
    """Its file has another gateway than the host: it was changed, and never applied."""
    host.held = {("eth0", "-4 route"): ["default via 192.0.2.1 proto static"]}
    assert served_until_up(host, route=["default via 192.0.2.99 proto static"])["differs"] == []
    assert host.held["eth0", "-4 route"] == ["default via 192.0.2.1 proto static"]


@pytest.mark.parametrize(
    ("shown", "command"),
    [
        ("default via 192.0.2.1 onlink", "default via 192.0.2.1 onlink dev eth0"),
        ("198.51.100.0/24 via 192.0.2.9 table 7 metric 5 dead linkdown", "198.51.100.0/24 via 192.0.2.9 table 7 metric 5 dev eth0"),
        ("198.51.100.0/24 nhid 10 via 192.0.2.9", "198.51.100.0/24 via 192.0.2.9 dev eth0"),
        ("192.0.2.0/24 proto kernel scope link src 192.0.2.5", ""),
        ("default via 192.0.2.1 proto dhcp", ""),
        ("default via fe80::1 proto ra metric 100 expires 1700sec", ""),
        ("local 192.0.2.5 table local proto kernel", ""),
        ("nexthop via 192.0.2.1 weight 1", ""),
    ],
)  # fmt: skip
def test_routes_that_nobody_brings_again(shown: str, command: str) -> None:
    found = [" ".join(words) for words in files_bridge_switch.route_of(shown.split(), "-4").values()]
    assert found == ([f"ip -4 route add {command}".replace("eth0", files_bridge_switch.LINK)] if command else [])


ONE, TWO = "nexthop via 192.0.2.1 dev eth0 weight 1", "nexthop via 192.0.2.2 dev eth0 weight 2"
OTHER = "nexthop via 198.51.100.1 dev eth1 weight 1 onlink"
MULTIPATH = [
    # As `ip -o route show table all` prints it; what adds it to br0; what it is called.
    (f"10.9.0.0/16 proto static \\\t{ONE} \\\t{TWO} ", f"10.9.0.0/16 proto static {ONE} {TWO}", "10.9.0.0/16 via 192.0.2.1 dev it via 192.0.2.2 dev it"),
    (
        f"default table 7 metric 5 \\\t{ONE} \\\t{OTHER} ",
        f"default table 7 metric 5 {ONE} {OTHER}",
        "default table 7 via 192.0.2.1 dev it via 198.51.100.1 dev eth1",
    ),
    # Without its link, and over objects that are gone with it.
    (f"10.9.0.0/16 nhid 20 \\\t{ONE} dead linkdown \\\t{OTHER} ", f"10.9.0.0/16 {ONE} {OTHER}", "10.9.0.0/16 via 192.0.2.1 dev it via 198.51.100.1 dev eth1"),
    ("2001:db8::/32 metric 1024 pref medium\\\tnexthop via fe80::1 dev eth0 weight 1 \\\tnexthop via fe80::2 dev eth0 weight 1 ",
     "2001:db8::/32 metric 1024 pref medium nexthop via fe80::1 dev eth0 weight 1 nexthop via fe80::2 dev eth0 weight 1",
     "2001:db8::/32 via fe80::1 dev it via fe80::2 dev it"),
    # Others', and those of other links.
    (f"10.9.0.0/16 proto ra \\\t{ONE} \\\t{TWO} ", "", ""),
    (f"10.9.0.0/16 \\\t{OTHER} \\\t{OTHER} ", "", ""),
    ("10.9.0.0/16 via 192.0.2.1 dev eth0 ", "", ""),
    ("", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "command", "what"), MULTIPATH)
def test_a_route_over_several_next_hops_moves_as_a_whole(
    shown: str, command: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ip route show dev` leaves it out. What is left of it on another link is replaced, not added to."""
    asked = "-6" if "::" in shown else "-4"
    printed = {("ip", "-o", asked, "route", "show", "table", "all"): f"{shown}\n"}
    monkeypatch.setattr(files_bridge_switch, "run", lambda words, *_: printed.get(tuple(words), ""))
    monkeypatch.setattr(files_bridge_switch, "read", lambda _path: "")
    found = files_bridge_switch.settings_of("eth0")
    commands = {f"route {what}": f"ip {asked} route replace {command}".replace("eth0", "br0")} if command else {}
    assert {name: " ".join(files_bridge_switch.named(words, "br0")) for name, words in found.items()} == commands


def test_rules_that_name_the_link() -> None:
    words = ["32765:", "from", "all", "iif", "eth0", "[detached]", "lookup", "100"]
    found = files_bridge_switch.rule_of(words, "-4", "eth0")
    what, command = next(iter(found.items()))
    assert len(found) == 1 and what == "rule -4 from all iif it lookup 100"
    assert (
        " ".join(files_bridge_switch.named(command, "br0")) == "ip -4 rule add prio 32765 from all iif br0 lookup 100"
    )
    assert files_bridge_switch.rule_of(words, "-4", "eth") == {} == files_bridge_switch.rule_of([], "-4", "eth0")


def test_an_address_comes_back_as_it_was() -> None:
    row = {"local": "192.0.2.6", "prefixlen": 24, "broadcast": "192.0.2.255", "label": "eth0:1"}
    [command] = files_bridge_switch.address_of(row).values()
    told = "ip addr add 192.0.2.6/24 broadcast 192.0.2.255 label br0:1 dev br0"
    assert " ".join(files_bridge_switch.named(command, "br0")) == told
    [command] = files_bridge_switch.address_of({"local": "192.0.2.6", "prefixlen": 32, "address": "192.0.2.7"}).values()
    assert " ".join(command[:6]) == "ip addr add 192.0.2.6 peer 192.0.2.7/32"


ADDRESSES = [
    {"local": "192.0.2.1", "scope": "global"},
    {"local": "192.0.2.2", "scope": "global", "dynamic": True},
    {"local": "fe80::1", "scope": "link"},
]


def test_addresses_that_must_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.dumps([{}, {"addr_info": ADDRESSES}])
    monkeypatch.setattr(files_bridge_switch, "run", lambda _command: shown)
    assert files_bridge_switch.addresses("eth0") == ADDRESSES

    def fail(_command: t.Sequence[str]) -> str:
        raise files_bridge_switch.SwitchFailed("no such link")

    monkeypatch.setattr(files_bridge_switch, "run", fail)
    assert files_bridge_switch.addresses("eth0") == []


STATIC = {"local": "192.0.2.1", "scope": "global"}
DYNAMIC = {"local": "192.0.2.8", "scope": "global", "dynamic": True}
LINK_LOCAL = {"local": "fe80::1", "scope": "link"}


@pytest.mark.parametrize(
    ("master", "held", "before", "expected"),
    [
        ("br0", ["192.0.2.1", "fe80::1"], [STATIC], True),
        ("br0", ["192.0.2.9"], [DYNAMIC], True),
        ("br0", ["192.0.2.9"], [STATIC, DYNAMIC], False),
        ("br0", [], [DYNAMIC], False),
        ("br0", [], [LINK_LOCAL], False),
        ("br0", [], [], True),  # of a port that carries guests only
        ("master", ["192.0.2.1"], [], False),
        ("br1", ["192.0.2.1"], [STATIC], False),
    ],
)
def test_the_bridge_has_taken_over(
    master: str,
    held: list[str],
    before: list[dict[str, t.Any]],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os.path, "realpath", lambda _path: f"/sys/devices/virtual/net/{master}")
    rows = [{"local": one} for one in held]
    monkeypatch.setattr(files_bridge_switch, "addresses", lambda link: rows if link in ("br0", "eth0") else [])
    change = {"bridge": "br0", "port": "eth0.42", "holder": ""}
    for holder in ("", "eth0"):
        assert files_bridge_switch.has_taken_over({**change, "holder": holder}, before) is expected


def test_rules_of_a_link_that_keeps_its_addresses_stay(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    confirm(host, monkeypatch)
    rule = "99: from 192.0.2.0/24 iif eth0 lookup main"
    monkeypatch.setattr(files_bridge_switch, "lines_of", lambda *words: [rule] if "rule" in words else [])
    assert host.serve(port="eth0.42", holder="eth0")["ok"]
    assert "del" not in " ".join(host.ran)


def test_the_controller_says_that_it_came_back(host: Host) -> None:
    assert not files_bridge_switch.is_confirmed()
    host.state.mkdir()
    (host.state / "confirmed").touch()
    assert files_bridge_switch.is_confirmed()


def test_a_program_that_fails_says_why() -> None:
    assert files_bridge_switch.run(["echo", "fine"]) == "fine\n"
    for command, reason in (
        (["sh", "-c", "echo no >&2; exit 1"], "failed: no$"),
        (["corral-none"], "corral-none failed: .*No such file"),
    ):
        with pytest.raises(files_bridge_switch.SwitchFailed, match=reason):
            files_bridge_switch.run(command)


STARTS = "echo asking; (sleep 1; touch {}) & wait"


@pytest.mark.parametrize("leave", [False, True])
def test_a_program_that_takes_too_long(tmp_path: Path, *, leave: bool) -> None:
    """It ends with what it has started, or goes on without anybody who reads its output."""
    made = tmp_path / "made"
    with pytest.raises(files_bridge_switch.SwitchFailed, match="did not end within 0 s"):
        files_bridge_switch.run(["sh", "-c", STARTS.format(made)], 0.2, leave=leave)
    time.sleep(1.3)
    assert made.exists() is leave


def test_a_daemon_that_keeps_its_output_open_is_not_waited_for() -> None:
    began = time.monotonic()
    assert files_bridge_switch.run(["sh", "-c", "echo up; sleep 3 &"]) == "up\n"
    assert time.monotonic() < began + 2


@pytest.mark.parametrize(
    ("name", "mode", "expected"),
    [
        ("etc/NetworkManager/system-connections/a.nmconnection", None, 0o600),
        ("etc/netplan/50-wifi.yaml", 0o644, 0o600),
        ("interfaces", 0o640, 0o640),
        ("new", None, 0o644),
    ],
)
def test_nobody_reads_passwords_while_they_are_written(
    name: str, mode: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has its permissions when its first byte is written; a link that lies there is not followed."""
    modes: list[int] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        status = os.fstat(descriptor)
        # Last its folder, in which it has its name by then.
        modes.append(
            (stat.S_ISDIR(status.st_mode) and (tmp_path / name).read_text() == "password: secret")
            or status.st_mode & 0o777
        )
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    path, victim = tmp_path / name, tmp_path / "victim"
    path.parent.mkdir(parents=True, exist_ok=True)
    victim.write_text("kept")
    if mode is not None:
        path.write_text("old")
        path.chmod(mode)
    Path(f"{path}.corral-new").symlink_to(victim)
    files_bridge_switch.write(str(path), "password: secret")
    assert (modes, path.stat().st_mode & 0o777) == ([expected, True], expected)
    assert (path.read_text(), victim.read_text()) == ("password: secret", "kept")


def test_links_to_files_are_followed_and_others_replaced(tmp_path: Path) -> None:
    real, link, mask = (tmp_path / name for name in ("real", "link", "mask"))
    real.write_text("old")
    link.symlink_to(real)
    mask.symlink_to("/dev/null")
    for path in (link, mask):
        files_bridge_switch.write(str(path), "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert not mask.is_symlink() and mask.read_text() == "new"


def test_it_stands_alone() -> None:
    """It is copied to the host by itself."""
    assert files_bridge_switch.__file__
    assert (files_bridge_switch.STATE, "/run/corral-bridge") == (model_bridge.STATE, model_bridge.STATE)
    tree = ast.parse(Path(files_bridge_switch.__file__).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    named = {node.module or "" for node in found if isinstance(node, ast.ImportFrom)}
    named |= {alias.name for node in found if isinstance(node, ast.Import) for alias in node.names}
    if sys.version_info >= (3, 10):
        assert {name.split(".")[0] for name in named} <= {*sys.stdlib_module_names, "__future__"}
