"""Which guests an action is about: by name, list, pattern and tag; what is refused, and what is said then."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions
from ansible_collections.corral.virt.plugins.plugin_utils._commands.hosted_guests import (
    HostedGuest,
    Hosts,
    answers,
    copies,
)
from ansible_collections.corral.virt.plugins.plugin_utils._commands.selection import (
    check_expected,
    check_name,
    found,
    missing,
)

HOSTS = Hosts("hyper", ("h1", "h2"))
PARTLY = Hosts("hyper", ("h1", "h2"), silent=("h3",), hidden=("h4", "h5"))
GUESTS = (
    HostedGuest("h1", "web1", "u1", "running", ("front",)),
    HostedGuest("h1", "web2", "u2", "shutdown", ("front", "old")),
    HostedGuest("h2", "db1", "u3", "paused"),
    HostedGuest("h2", "web3", "u4", "crashed"),
)


def hit(action: str, there: t.Sequence[HostedGuest] = GUESTS, hosts: Hosts = HOSTS, **arguments: t.Any) -> list[str]:
    """`web1@h1` for each guest that is found."""
    return [f"{copy.name}@{copy.host}" for copy in found(actions.action(action), arguments, there, hosts)]


def refused(
    action: str, there: t.Sequence[HostedGuest] = GUESTS, hosts: Hosts = HOSTS, **arguments: t.Any
) -> list[str]:
    """What is said instead."""
    try:
        found(actions.action(action), arguments, there, hosts)
    except BadInput as error:
        return error.problems
    return []


FOUND: list[tuple[str, dict[str, t.Any], list[str]]] = [
    ("start", {"guest": ["web1"]}, ["web1@h1"]),
    ("start", {"guest": ["db1", "web1", "db1"]}, ["web1@h1", "db1@h2"]),
    ("start", {"guest": ["web*"]}, ["web1@h1", "web2@h1", "web3@h2"]),
    ("start", {"guest": ["web[13]", "db?"]}, ["web1@h1", "db1@h2", "web3@h2"]),
    ("start", {"guest": ["web[!3]", "web3"]}, ["web1@h1", "web2@h1", "web3@h2"]),
    ("start", {"tag": "front"}, ["web1@h1", "web2@h1"]),
    ("shutdown", {"guest": ["*"]}, ["web1@h1", "web2@h1", "db1@h2", "web3@h2"]),
    ("purge", {"guest": ["web1", "web2"]}, ["web1@h1", "web2@h1"]),
    ("purge", {"guest": ["web*"], "confirm": 3}, ["web1@h1", "web2@h1", "web3@h2"]),
    ("force_off", {"tag": "old", "confirm": 1}, ["web2@h1"]),
    ("migrate", {"guest": "web1", "to": "h9", "state": "aborted", "gone": ["h9"]}, ["web1@h1"]),
    ("resume", {"guest": ["db1", "web1"]}, ["web1@h1", "db1@h2"]),
    ("reset", {"guest": ["web3"]}, ["web3@h2"]),
    ("create", {"guest": "new"}, []),
    ("create", {"guest": "web1", "host": "h1"}, ["web1@h1"]),
    ("migrate", {"guest": "web1", "to": "h2"}, ["web1@h1"]),
    ("migrate", {"guest": "db1"}, ["db1@h2"]),
    ("rename", {"guest": "web2", "to": "web9"}, ["web2@h1"]),
]


@pytest.mark.parametrize(("action", "arguments", "guests"), FOUND, ids=str)
def test_guests_are_found_where_they_are(action: str, arguments: dict[str, t.Any], guests: list[str]) -> None:
    assert hit(action, **arguments) == guests


START = "start it: ansible-playbook corral.virt.start -e guest=web2"
REFUSED: list[tuple[str, dict[str, t.Any], str]] = [
    ("start", {"guest": ["web4"]}, "cannot find web4: none of h1, h2 has it; did you mean web1 on h1, web2 on h1, web3 on h2?"),
    ("start", {"guest": ["nothing"]}, "cannot find nothing: none of h1, h2 has it; to see all: ansible-playbook corral.virt.list"),
    ("start", {"guest": ["WEB*"]}, "no guest matches 'WEB*': none of h1, h2 has it"),
    ("start", {"tag": "back"}, "no guest has the tag back: none of h1, h2 has it; existing tags: front, old"),
    ("pause", {"guest": ["web2"]}, f"cannot pause web2: it is off on h1; {START}"),
    ("resume", {"guest": ["web2"]}, f"cannot resume web2: it is off on h1; {START}"),
    ("reboot", {"guest": ["web2"]}, f"cannot reboot web2: it is off on h1; {START}"),
    ("reset", {"guest": ["web2"]}, f"cannot reset web2: it is off on h1; {START}"),
    ("purge", {"guest": ["web*"]}, "purge would affect 3 guests (h1: web1, web2; h2: web3); to confirm: -e confirm=3"),
    ("purge", {"tag": "front", "confirm": 3}, "purge would affect 2 guests, not 3 (h1: web1, web2); to confirm: -e confirm=2"),
    ("force_off", {"guest": ["db1", "web?"]}, "force_off would affect 4 guests (h1: web1, web2; h2: db1, web3); to confirm: -e confirm=4"),
    ("create", {"guest": "web1", "host": "h2"},
     "cannot create web1 on h2: it is on h1; move it: ansible-playbook corral.virt.migrate -e guest=web1 -e to=h2"),
    ("create", {"guest": "new", "host": "h9"}, "host: h9 is not a host of the group hyper; choose one of h1, h2"),
    ("migrate", {"guest": "web9", "to": "h1"},
     "cannot migrate web9: none of h1, h2 has it; did you mean web1 on h1, web2 on h1, web3 on h2?"),
    ("rename", {"guest": "web1", "to": "web9"},
     "cannot rename web1: it is running on h1; shut it down: ansible-playbook corral.virt.shutdown -e guest=web1"),
    ("rename", {"guest": "web2", "to": "web2"}, "cannot rename web2 to web2: that is its current name; choose another name"),
    ("rename", {"guest": "web2", "to": "db1"}, "cannot rename web2 to db1: h2 has a guest with this name; choose another name"),
    ("rename", {"guest": "nothing", "to": "db1"},
     "cannot find nothing: none of h1, h2 has it; h2 has db1, so it may already have been renamed"),
    ("migrate", {"guest": "web1", "state": "aborted"}, "to: state=aborted ends the migration to one host; write -e to=HOST"),
    ("migrate", {"guest": "web1", "options": {"state": "aborted"}}, "to: state=aborted ends the migration to one host; write -e to=HOST"),
    ("migrate", {"guest": "web1", "to": "h9", "gone": ["h9"]}, "to: h9 is not a host of the group hyper; choose one of h1, h2"),
    ("migrate", {"guest": "web1", "to": "h9"}, "to: h9 is not a host of the group hyper; choose one of h1, h2"),
]  # fmt: skip


@pytest.mark.parametrize(("action", "arguments", "told"), REFUSED, ids=str)
def test_what_cannot_be_is_refused(action: str, arguments: dict[str, t.Any], told: str) -> None:
    assert refused(action, **arguments) == [told]


UNSEEN = "h3 could not be reached and may have it; --limit excludes h4, h5"


def test_hosts_that_were_not_asked_are_named() -> None:
    assert refused("start", hosts=PARTLY, guest=["nothing"]) == [
        f"cannot find nothing: none of h1, h2 has it; {UNSEEN}"
    ]
    assert refused("start", hosts=PARTLY, guest=["x*"]) == [f"no guest matches 'x*': none of h1, h2 has it; {UNSEEN}"]
    assert refused("create", hosts=PARTLY, guest="new") == [
        f"cannot create new: none of h1, h2 has it; {UNSEEN}; where it is dead: -e gone=h3 -e confirm=h3"
    ]
    [again] = refused("create", hosts=PARTLY, guest="new", gone=["h8"])
    assert again.endswith("where it is dead: -e gone=h8,h3 -e confirm=h8,h3")
    assert hit("create", hosts=PARTLY, guest="web1") == ["web1@h1"]
    dead = "where it is dead: -e gone=h3 -e confirm=h3"
    assert refused("rename", hosts=PARTLY, guest="web2", to="web9") == [
        f"cannot rename web2 to web9: for web9, none of h1, h2 has it; {UNSEEN}; {dead}"
    ]
    assert refused("rename", hosts=Hosts("hyper", ("h1", "h2"), hidden=("h4",)), guest="web2", to="web9") == [
        "cannot rename web2 to web9: for web9, none of h1, h2 has it; --limit excludes h4"
    ]
    assert refused("create", hosts=PARTLY, guest="new", host="h3") == ["cannot create new on h3: h3 was not reached"]
    assert refused("create", hosts=PARTLY, guest="new", host="h4") == [
        "cannot create new on h4: --limit excludes h4; omit --limit"
    ]
    assert refused("migrate", hosts=PARTLY, guest="web1", to="h3") == ["cannot migrate web1 to h3: h3 was not reached"]
    assert refused("start", there=[], hosts=Hosts("hyper", (), ("h1",)), guest=["a"]) == [
        "cannot find a: no hypervisor answered; h1 could not be reached and may have it"
    ]


def test_a_guest_that_may_be_missing_is_missed_only_where_every_hypervisor_was_asked() -> None:
    nobody: dict[str, t.Any] = {"guest": ["nothing", "x*"], "missing_ok": True}
    assert (
        hit("purge", guest=["nothing", "web1"], missing_ok=True) == ["web1@h1"]
        and hit("purge", **nobody, confirm=0) == []
    )
    assert missing(nobody, GUESTS) == ["nothing", "x*"] and missing({"guest": ["web1", "web*"]}, GUESTS) == []
    unasked = (
        Hosts("hyper", ("h1",), silent=("h2",)),
        Hosts("hyper", ("h1",), hidden=("h2",)),
        Hosts("hyper", (), ("h1",)),
    )
    assert all(len(refused("purge", hosts=hosts, **nobody)) == 2 for hosts in unasked)


def test_of_many_hosts_the_first_are_named() -> None:
    names = tuple(f"h{number:03d}" for number in range(100))
    (told,) = refused("start", hosts=Hosts("hyper", names[:60], hidden=names[60:]), guest=["nothing"])
    assert told.startswith("cannot find nothing: none of h000, h001, ")
    assert "h019 and 40 more has it; --limit excludes h060, " in told and told.endswith("h079 and 20 more")


def test_a_guest_does_not_take_the_name_of_another_host() -> None:
    hosts = Hosts("hyper", ("h1", "h2"), strangers={"firewall": "firewall"})
    (result,) = refused("rename", hosts=hosts, guest="web2", to="FIREWALL")
    assert result.startswith(
        "cannot rename web2 to FIREWALL: firewall is a host of this inventory outside the group guests"
    )


def test_of_two_guests_of_a_name_one_is_renamed() -> None:
    other, twin = HostedGuest("h2", "web2", "u9", "shutdown"), HostedGuest("h2", "web2", "u2", "shutdown")
    result = refused("rename", [*GUESTS, other], guest="web2", to="web9")
    assert result == [
        "web2 is on h1 (off) and on h2 (off); these are different guests: name the host with -e host=HOST"
    ]
    assert hit("rename", [*GUESTS, other], guest="web2", to="web9", host="h2") == ["web2@h2"]
    assert refused("rename", [*GUESTS, twin], guest="web2", to="web9", host="h2")[0].startswith(
        "web2 is on h1 (off) and on h2 (off); its migration is"
    )
    assert refused("rename", guest="web2", to="web9", host="h2") == [
        "cannot rename web2 to web9: it is on h1, and not on h2"
    ]


def test_nobody_chooses_between_two_of_a_name() -> None:
    other, copy = HostedGuest("h2", "web1", "u9", "shutdown"), HostedGuest("h2", "web1", "u1", "paused")
    for name in ("web1", "web1*"):
        assert refused("shutdown", [*GUESTS, other], guest=[name]) == [
            "web1 is on h1 (running) and on h2 (off); these are different guests: name the host with --limit"
        ]
    (result,) = refused("shutdown", [*GUESTS, copy], guest=["web1"])
    assert result.startswith(
        "web1 is on h1 (running) and on h2 (paused); its migration is in progress or was interrupted: finish"
    )
    assert refused("create", [*GUESTS, other], guest="web1")


def test_a_guest_that_another_host_knows_under_another_name_is_left_alone() -> None:
    """Its owner renamed one of two copies: the name tells one of them, and it may be the wrong one."""
    renamed = HostedGuest("h2", "renamed", "u1", "shutdown")
    for name in ("web1", "web1*"):
        (result,) = refused("purge", [*GUESTS, renamed], guest=[name], confirm=1)
        assert result.startswith("web1 is on h1 (running) and, as renamed, on h2 (off): both have the UUID u1;")
    (result,) = refused("change", [*GUESTS, renamed], guest=["renamed"])
    assert result.startswith("renamed is on h2 (off) and, as web1, on h1 (running)")
    assert not refused("purge", [*GUESTS, HostedGuest("h2", "other", "u5", "shutdown")], guest=["web1"])


def test_a_move_begins_where_the_guest_runs() -> None:
    copy = HostedGuest("h2", "web1", "u1", "paused")
    assert hit("migrate", [copy, *GUESTS], guest="web1", to="h2") == ["web1@h1"]
    assert hit("migrate", [HostedGuest("h1", "web1", "u1", "shutdown"), copy], guest="web1", to="h1") == ["web1@h2"]
    for uuid, why in (
        ("u1", "they have the same UUID, and no migration of it is recorded: undefine the wrong one, or "),
        ("u9", "these are different guests: "),
    ):
        off = [HostedGuest("h1", "web1", "u1", "shutdown"), HostedGuest("h2", "web1", uuid, "shutdown")]
        told = f"cannot migrate web1: it is on h1 (off) and on h2 (off); {why}name the host with --limit"
        assert refused("migrate", off, guest="web1", to="h2") == [told]
    recorded = [HostedGuest("h1", "web1", "u1", "shutdown"), HostedGuest("h2", "web1", "u1", "shutdown", moving=True)]
    assert hit("migrate", recorded, guest="web1", to="h1") == ["web1@h2"], "which is finished"
    twice = [GUESTS[0], HostedGuest("h2", "web1", "u1", "running")]
    assert refused("migrate", twice, guest="web1", to="h2") == [
        "cannot migrate web1: it runs on h1 and h2 at once; nothing was touched: compare both copies, then destroy the wrong one"
    ]
    twice[1] = HostedGuest("h2", "web1", "u9", "running")
    assert (
        "h1 and h2 have different guests with this name; rename one of them"
        in refused("migrate", twice, guest="web1")[0]
    )


@pytest.mark.parametrize(("clock", "apart"), [(1299.0, False), (1300.0, True), (700.0, True), (701.0, False)])
def test_clocks_of_a_move_agree(clock: float, apart: bool) -> None:
    hosts = Hosts("hyper", ("h1", "h2"), clocks={"h1": 1000.0, "h2": clock})
    if not apart:
        assert hit("migrate", hosts=hosts, guest="web1", to="h2") == ["web1@h1"]
    else:
        assert (
            "the clocks of h1 and h2 are 300 seconds apart" in refused("migrate", hosts=hosts, guest="web1", to="h2")[0]
        )


def test_a_clock_that_nobody_knows_is_no_difference() -> None:
    hosts = Hosts("hyper", ("h1", "h2"), clocks={"h1": 1000000000.0})
    assert hit("migrate", hosts=hosts, guest="web1", to="h2") == ["web1@h1"]


def test_all_problems_are_told_at_once() -> None:
    assert len(refused("start", guest=["a", "b", "x*"])) == 3
    assert len(refused("reset", tag="front")) == 2, "one is off, and nobody confirmed"
    assert len(refused("migrate", guest="nothing", to="h9")) == 2


def test_guests_whose_names_are_none_are_left_alone() -> None:
    domains = [
        {"name": name, "uuid": "u", "state": "running"}
        for name in ("a/b", "..", "", "Windows 10", "web1", "\x1b[2J", "a\nb")
    ]
    assert [copy.name for copy in copies({"h1": {"domains": domains}})] == ["Windows 10", "web1"]


def test_what_a_host_calls_its_guests_reaches_no_terminal() -> None:
    there = [HostedGuest("h1", "web1", "u1", "ru\x1bnning"), HostedGuest("h2", "web1", "u2", "off")]
    assert "\x1b" not in refused("start", there, guest=["web1"])[0]


GUEST: dict[str, t.Any] = {"name": "web1", "uuid": "u1", "state": "running", "tags": ["front"]}


@pytest.mark.parametrize(
    ("result", "answered"),
    [
        ({"domains": []}, True),
        ({"domains": [GUEST, {**GUEST, "tags": None}], "clock": 1.5}, True),
        ({"domains": [{**GUEST, "name": "no name of ours!"}]}, True),
        ({"domains": [GUEST], "failed": True}, False),
        ({"unreachable": True}, False),
        ("unreachable", False),
        (None, False),
    ],
    ids=str,
)
def test_who_answers(result: object, answered: bool) -> None:
    assert answers({"h1": result}) == ({"h1": result} if answered else {})


@pytest.mark.parametrize(
    "result",
    [
        *({"domains": [GUEST], "clock": odd} for odd in ("noon", float("nan"), float("inf"), -1, 10**400)),
        *({"domains": odd} for odd in (None, {"web1": GUEST}, ["web1"])),
        *(
            {"domains": [GUEST, {**GUEST, key: odd}]}
            for key in ("name", "uuid", "state")
            for odd in (None, 7, ["web1"])
        ),
        *({"domains": [{**GUEST, "tags": odd}]} for odd in ("front", [1], {"front": 1})),
    ],
    ids=lambda result: str(result)[-40:],
)
def test_an_answer_of_another_shape_is_refused(result: object) -> None:
    with pytest.raises(BadInput, match="its list of guests cannot be read") as caught:
        answers({"h1": result, "h2": {"domains": [GUEST]}, "h3": result})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["h1", "h3"]


def test_a_name_that_needs_quotes_is_written_as_json() -> None:
    there = (
        *GUESTS,
        HostedGuest("h1", "Windows 10", "u5", "running"),
        HostedGuest("h2", "{{ evil }}x", "u6", "running"),
    )
    [result] = refused("start", there, guest=["Windows"])
    assert result.endswith(
        """; did you mean Windows 10 on h1? Write such a name as JSON: -e '{"guest": ["Windows 10"]}'"""
    )
    [result] = refused("start", there, guest=["{{ evil }}"])
    assert result.endswith("did you mean {{ evil }}x on h2?")


def test_guests_of_a_host_that_was_read_whole() -> None:
    guest = {"name": "web1", "uuid": "u1", "state": "running", "tags": ["front"]}
    read = answers({"h1": {"host": {"guests": [guest]}}, "h2": {"host": {"guests": []}}, "h3": {"unreachable": True}})
    assert copies(read) == [HostedGuest("h1", "web1", "u1", "running", ("front",))] and set(read) == {"h1", "h2"}
    for odd in ("x", {}, {"guests": "x"}, None):
        with pytest.raises(BadInput, match="h1: its list of guests cannot be read; inspect the host"):
            answers({"h1": {"host": odd}})


def chosen(*guests: HostedGuest, **other: t.Any) -> list[dict[str, t.Any]]:
    """As the web console tells them."""
    return [{"name": one.name, "uuid": one.uuid, "host": one.host, "tags": list(one.tags), **other} for one in guests]


def differs(hit: t.Sequence[HostedGuest], expected: list[dict[str, t.Any]]) -> list[str]:
    try:
        check_expected(actions.action("reset"), hit, expected)
    except BadInput as error:
        return error.problems
    return []


def test_guests_are_those_that_were_chosen() -> None:
    web1, web2 = GUESTS[:2]
    assert differs([web1, web2], chosen(web2, web1)) == differs([], []) == []
    others: list[dict[str, t.Any]] = [{"uuid": "u9"}, {"host": "h2"}, {"tags": []}]
    for other in others:
        (problem,) = differs([web1], chosen(web1, **other))
        assert "cannot reset web1" in problem and "look again" in problem
        assert "u1" not in problem and "front" not in problem, "the other guest may be hidden from who chose"
    (problem,) = differs([web1, web2], chosen(web1))
    assert "web2" in problem, "a name that is a pattern hits more"
    (problem,) = differs([web1], chosen(web1, web2))
    assert "cannot reset web2: it is not on h1" in problem
    (problem,) = differs([web2], [{"name": "old", "uuid": web2.uuid, "host": "h1", "tags": []}])
    assert "cannot reset web2" in problem, "it has another name now"
    assert differs([web1], []), "nothing was chosen: the guest was not there when it was to be made"


@pytest.mark.parametrize(("what", "name"), [("creates", "create"), ("renames", "rename"), ("moves", "migrate")])
def test_what_the_catalogue_says_of_an_action_tells_how_its_guests_are_found(what: str, name: str) -> None:
    assert [one for one in actions.names() if getattr(actions.action(one), what)] == [name]


def test_who_has_a_name_is_not_told_to_who_chose_it() -> None:
    """A user of the web console may be one who may not view that guest."""
    new = {"create": {"guest": "web1"}, "rename": {"guest": "web2", "to": "web1"}}
    for name, arguments in new.items():
        with pytest.raises(BadInput, match="the name web1 is not available") as error:
            check_name(actions.action(name), arguments, GUESTS)
        assert error.value.problems == [f"cannot {name}: the name web1 is not available; choose another one"]
        check_name(actions.action(name), {**arguments, "guest": "new", "to": "new"}, GUESTS)
    check_name(actions.action("start"), {"guest": ["web1"]}, GUESTS)
