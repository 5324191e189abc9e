"""The action catalogue, and what is made of a playbook's variables."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.vars.reserved import get_reserved_names

from ansible_collections.corral.virt.plugins.filter.guest_options import guest_options
from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import ACTIONS, STATES
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_options import GUEST_OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._commands import action_arguments
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions as _actions

ROOT = Path(__file__).parents[4]
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
TYPES = {"str", "int", "float", "bool", "list", "dict", "raw", "path"}
KINDS = {"guest", "host", "image", "group", "pool", "volume", "disk", "snapshot", "AWX"}
STATES_SEEN = {"running", "paused", "crashed", "shutdown"}

Given = dict[str, t.Any]


def asked(action: str, given: Given, known: t.Collection[str] = ()) -> Given:
    """The converted arguments."""
    return action_arguments.asked(_actions.action(action), given, lambda: known)


def problems(action: str, given: Given, known: t.Collection[str] = ()) -> list[str]:
    """What is refused."""
    try:
        asked(action, given, known)
    except BadInput as error:
        return error.problems
    return []


def test_every_playbook_has_an_action_and_the_other_way_round() -> None:
    assert sorted(_actions.names()) == PLAYBOOKS


@pytest.mark.parametrize("name", _actions.names())
def test_an_action_is_well_formed(name: str) -> None:
    action = _actions.action(name)
    assert action.description and not action.description.endswith(".")
    assert action.kind in KINDS and set(action.from_states) <= STATES_SEEN
    assert action.domain.get("state", "present") in (*STATES, *ACTIONS)
    for argument in action.arguments.values():
        assert argument.spec["type"] in TYPES
        assert argument.kind is None or argument.kind in KINDS
        assert argument.option or argument.description.endswith(".")


@pytest.mark.parametrize("name", _actions.names())
def test_no_argument_has_a_name_that_ansible_reserves(name: str) -> None:
    """It warns of each; migrate takes `timeout` for those who gave it before there were `options`."""
    legacy = {"timeout"} if name == "migrate" else set()
    assert set(_actions.action(name).arguments) & get_reserved_names() == legacy


def test_what_a_guest_is_told_by_the_name_of_the_argument() -> None:
    """The table says which; they are those that virt_domain has."""
    every = [action for action in map(_actions.action, _actions.names()) if action.domain]
    output = {
        name for action in every for name in action.declared if not action.entry or name not in action.entry.options
    }
    assert set(_actions.domain_arguments()) == output & set(GUEST_OPTIONS)


def test_what_others_call_an_argument_leads_to_one() -> None:
    every = {name for action in _actions.names() for name in _actions.action(action).arguments}
    for name, entry in _actions.elsewhere().items():
        assert set(entry) == {"argument", "write"} and entry["argument"] in every, name


def test_the_module_documents_every_action() -> None:
    for module, actions in (("virt_arguments", _actions.names()), ("virt_find", None)):
        text = (ROOT / f"plugins/modules/{module}.py").read_text()
        choices = yaml.safe_load(text.split('r"""')[1].split('"""')[0])["options"]["action"]["choices"]
        found = [name for name in _actions.names() if "guest" in _actions.action(name).arguments]
        assert choices == (
            actions
            or [
                name
                for name in found
                if name not in ("query", "snapshots", "backups", "restore", "restore_files", "prove")
            ]
        )


CONVERTED: list[tuple[str, Given, Given]] = [
    ("start", {"guest": "web1"}, {"guest": ["web1"], "virt_group": "hyper"}),
    ("start", {"guest": "web1,db1"}, {"guest": ["web1", "db1"]}),
    ("start", {"guest": ["web1", "*-db"]}, {"guest": ["web1", "*-db"]}),
    ("start", {"guest": '["web1", "db1"]'}, {"guest": ["web1", "db1"]}),
    ("shutdown", {"tag": "front"}, {"tag": "front", "wait_timeout": 300, "force": False}),
    ("shutdown", {"tag": "front", "force": "false", "wait_timeout": "60"}, {"force": False, "wait_timeout": 60}),
    ("purge", {"guest": "web1"}, {"wait_timeout": 60, "force": True}),
    ("purge", {"guest": "w*", "confirm": "3"}, {"confirm": 3}),
    (
        "create",
        {"guest": "web1", "autostart": "no", "vcpus": "2"},
        {"autostart": False, "vcpus": "2", "state": "running"},
    ),
    (
        "create",
        {"guest": "web1", "disks": '[{"name": "a", "size": "1GiB"}]'},
        {"disks": [{"name": "a", "size": "1GiB"}]},
    ),
    ("create", {"guest": "web1", "networks": [{"name": "eth0"}]}, {"networks": [{"name": "eth0"}]}),
    (
        "create",
        {"guest": "web1", "disks": "- name: a\n  size: 1GiB\n- name: b"},
        {"disks": [{"name": "a", "size": "1GiB"}, {"name": "b"}]},
    ),
    ("create", {"guest": "web1", "cpu": "mode: custom\nmodel: qemu64"}, {"cpu": {"mode": "custom", "model": "qemu64"}}),
    ("start", {"guest": "- web1\n- db1"}, {"guest": ["web1", "db1"]}),
    ("start", {"guest": "[ab]*"}, {"guest": ["[ab]*"]}),
    ("start", {"guest": "", "tag": "front"}, {"tag": "front"}),
    ("migrate", {"guest": "Windows 10", "to": "h1"}, {"guest": "Windows 10"}),
    ("rebalance", {"stay": ["Windows 10"]}, {"stay": ["Windows 10"]}),
    ("snapshots", {"guest": "Windows 10"}, {"guest": "Windows 10"}),
    ("migrate", {"guest": "web1", "bandwidth": "50", "postcopy": "false"}, {"bandwidth": 50, "postcopy": False}),
    ("migrate", {"guest": "web1", "compression": "zlib,zstd"}, {"compression": ["zlib", "zstd"]}),
    ("drain", {"host": "h1", "running_only": "false"}, {"running_only": False, "at_once": 2, "reason": "drained"}),
    ("drain", {"host": "h1", "options": '{"bandwidth": 5}'}, {"options": {"bandwidth": 5}}),
    ("rebalance", {"stay": "db1,db2", "tolerance": "2.5"}, {"stay": ["db1", "db2"], "tolerance": 2.5}),
    ("build_image", {"image": "a.qcow2", "dest": "/srv", "rebuild": "0"}, {"rebuild": False, "install": True}),
    ("rotate_certificates", {"authority": "true"}, {"authority": True}),
    ("site", {"virt_group": "kvm"}, {"virt_group": "kvm"}),
    ("create_volume", {"host": "h1", "volume": "a", "size": 20}, {"size": "20", "pool": "default"}),
    ("move_disk", {"guest": "web1", "disk": "data", "pool": "fast", "bandwidth": "50"}, {"bandwidth": 50}),
    ("drain_pool", {"host": "h1", "pool": "old", "to": "fast,large"}, {"to": ["fast", "large"], "job_timeout": 3600}),
    ("delete_volume", {"host": "h1", "volume": "a", "pool": "data", "wipe": "yes"}, {"pool": "data", "wipe": True}),
    ("create", {"guest": "web1", "gone": "h7,h8", "confirm": "h7,h8"}, {"gone": ["h7", "h8"], "confirm": ["h7", "h8"]}),
    ("rename", {"guest": "web1", "to": "web2"}, {"guest": "web1", "to": "web2"}),
]


@pytest.mark.parametrize(("action", "given", "values"), CONVERTED, ids=str)
def test_texts_mean_what_they_say(action: str, given: Given, values: Given) -> None:
    found = asked(action, given)
    assert {name: found[name] for name in values} == values
    assert all(type(found[name]) is type(value) for name, value in values.items())


ALIASES = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(12))


@pytest.mark.parametrize(
    "text", [ALIASES, '{"a":' * 5000, "[" * 5000, "{a: " * 5000], ids=["aliases", "objects", "lists", "maps"]
)
def test_a_text_of_a_few_lines_does_not_stop_who_reads_it(text: str) -> None:
    """In the web console one process reads the requests of all users."""
    for argument in ("domain", "disks", "cloud_init"):
        assert problems("create", {"guest": "web1", argument: text}), argument


@pytest.mark.parametrize("empty", ["", " \n"], ids=repr)
@pytest.mark.parametrize("name", _actions.names())
def test_an_answer_that_nobody_gave_is_none(name: str, empty: str) -> None:
    """A web form sends an empty text for it, whatever its type."""
    action = _actions.action(name)
    needed = {key: "web1" for key, argument in action.arguments.items() if argument.required or key == "guest"}
    needed |= {"run": "true"} if "run" in needed else {}
    needed |= {"memory": "4GiB"} if action.partial and not action.entry else {}
    assert asked(name, {**dict.fromkeys(action.arguments, empty), **needed}) == asked(name, needed)


def test_an_option_that_is_not_given_is_not_said() -> None:
    assert set(asked("create", {"guest": "web1"})) == {"guest", "state", "virt_group"}
    assert set(asked("migrate", {"guest": "web1", "to": None})) == {"guest", "virt_group"}


REFUSED: list[tuple[str, Given, str]] = [
    ("start", {}, "guest: start requires a guest or a tag; write -e guest=NAME"),
    ("start", {"guest": "web1", "tag": "a"}, "tag: tag and guest are mutually exclusive; omit one"),
    ("start", {"guest": "a/b"}, "guest: 'a/b' is not a valid name"),
    ("create", {"guest": "-oProxyCommand=x"}, "guest: '-oProxyCommand=x' is not a valid name"),
    ("change", {"guest": "web1"}, "change requires an option to change; write -e memory=4GiB"),
    ("start", {"guest": ""}, "guest: start requires a guest or a tag; write -e guest=NAME"),
    ("drain", {"host": " "}, "host: drain requires this argument; write -e host=HOST"),
    ("start", {"guest": "web1,"}, "guest: '' is not a valid name"),
    ("create", {"guest": "a", "disks": "size: 1GiB"}, "Elements value for option 'disks' is of type str"),
    ("start", {"guest": "$(x)*"}, "guest: '$(x)*' is not a pattern"),
    ("create", {"guest": "w*"}, "guest: 'w*' is not a valid name"),
    ("drain", {}, "host: drain requires this argument; write -e host=HOST"),
    ("start", {"gest": "web1", "tag": "a"}, "gest: start has no such argument; did you mean guest?"),
    ("create", {"guest": "a", "vcpu": 2}, "vcpu: create has no such argument; did you mean vcpus?"),
    ("create", {"guest": "a", "memo": 2}, "memo: create has no such argument; did you mean memory?"),
    (
        "create",
        {"guest": "a", "guests_sed": 2},
        "guests_sed: create has no such argument; did you mean guests_seed?",
    ),
    (
        "create",
        {"guest": "a", "enable_vnc": True},
        'enable_vnc: create does not take it; write -e \'{"graphics": {"type": "vnc"}}\'',
    ),
    (
        "start",
        {"tag": "a", "enable_vnc": True},
        "enable_vnc: start does not take it; it belongs to create, change: write",
    ),
    ("start", {"tag": "a", "bandwidth": 5}, "bandwidth: start does not take it; it belongs to migrate"),
    ("list", {"guest": "a"}, "guest: list does not take it; it belongs to start, shutdown, "),
    (
        "create",
        {"guest": "a", "tags": ["b"]},
        'tags: Ansible reserves that name; write -e \'{"domain": {"tags": ...}}\'',
    ),
    (
        "create",
        {"guest": "a", "domain": {"vcpu": 1}},
        "domain.vcpu: virt_domain has no such option; did you mean vcpus?",
    ),
    (
        "create",
        {"guest": "a", "state": "absent"},
        "value of state must be one of: present, running, shutdown, paused, got: absent",
    ),
    (
        "create",
        {"guest": "a", "autostart": "perhaps"},
        "argument 'autostart' is of type str and we were unable to convert to bool",
    ),
    (
        "migrate",
        {"guest": "a", "storage": "half"},
        "value of storage must be one of: auto, shared, delta, full, got: half",
    ),
    (
        "migrate",
        {"guest": "a", "options": {"bandwith": 1}},
        "options.bandwith: virt_migrate has no such option; did you mean bandwidth?",
    ),
    (
        "drain",
        {"host": "h1", "options": {"dest_uri": "qemu+ssh://h9/system"}},
        "options.dest_uri: drain does not take it",
    ),
    ("rebalance", {"options": {"state": "aborted"}}, "options.state: rebalance does not take it"),
    ("migrate", {"guest": "a", "options": {"dest": "h9"}}, "options.dest: migrate does not take it"),
    ("shutdown", {"tag": "a", "wait_timeout": 0}, "wait_timeout: must be at least 1, not 0"),
    (
        "purge",
        {"tag": "a", "confirm": "some"},
        "argument 'confirm' is of type str and we were unable to convert to int",
    ),
    ("move_disk", {"guest": "web1", "disk": "data"}, "pool: move_disk requires this argument; write -e pool=POOL"),
    (
        "move_disk",
        {"guest": "a", "disk": "b", "pool": "c", "bandwidth": -1},
        "bandwidth: must be at least 0, not -1",
    ),
    ("drain_pool", {"host": "h1", "pool": "old"}, "to: drain_pool requires this argument; write -e to=TO"),
    ("delete_volume", {"host": "h1"}, "volume: delete_volume requires this argument; write -e volume=VOLUME"),
    ("resize_volume", {"host": "h1", "volume": "a"}, "size: resize_volume requires this argument; write -e size=SIZE"),
    (
        "pools",
        {"pool": "data"},
        "pool: pools does not take it; it belongs to add_disk, migrate, move_disk, restore, restore_group, prove, volumes",
    ),
    ("start", {"guest": "a", "virt_grup": "kvm"}, "virt_grup: start has no such argument; did you mean virt_group?"),
    ("awx_setup", {"awx_scm_ur1": "x"}, "awx_scm_ur1: awx_setup has no such argument; did you mean awx_scm_url?"),
]


@pytest.mark.parametrize(("action", "given", "told"), REFUSED, ids=str)
def test_what_is_wrong_is_refused_with_what_is_right(action: str, given: Given, told: str) -> None:
    (problem,) = problems(action, given)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (None, []),
        ("hyper1", []),
        ("hyper2", ["host: --limit excludes hyper2; omit --limit"]),
        ("hiper1", ["host: hiper1 is not a host of the group kvm; did you mean hyper1?"]),
        ("web", ["host: web is not a host of the group kvm; choose one of hyper1, hyper2"]),
    ],
)
def test_the_host_of_a_volume_must_be_there(host: str | None, told: list[str]) -> None:
    action, values = _actions.action("volumes"), {"virt_group": "kvm", "host": host}
    found = action_arguments.unknown_hosts(action, values, ["hyper1", "hyper2"], ["hyper1"])
    assert [str(problem) for problem in found] == told
    assert not [*action_arguments.unknown_hosts(_actions.action("drain"), values, [], [])], "its role looks itself"


def test_no_action_skips_the_host_that_it_is_for() -> None:
    """`--limit` without it would leave nothing to do, and nothing to fail."""
    look_themselves = {"drain", "recover", "console_server"}  # their hosts may be dead, or of another group
    found = {
        action.name
        for action in map(_actions.action, _actions.names())
        for argument in action.arguments.values()
        if argument.kind == "host" and argument.required and not argument.existing
    }
    assert found == look_themselves


def test_all_problems_are_told_at_once() -> None:
    result = problems("create", {"guest": "a/b", "vcpu": 1, "autostart": "perhaps", "domain": {"x": 1}})
    assert [each.split(":")[0].split(" is ")[0] for each in result] == [
        "vcpu",
        "argument 'autostart'",
        "guest",
        "domain.x",
    ]


WRITE_GUESTS = "write -e guest=NAME, -e guest=NAME,NAME, -e guest='PATTERN*' or -e tag=TAG"


def test_what_cannot_be_converted_is_told_with_the_rest() -> None:
    result = problems("purge", {"confirm": "some", "wait_timeout": "a while", "force": "perhaps"})
    assert sorted(each.partition(" is of type")[0] for each in result) == [
        "argument 'confirm'",
        "argument 'force'",
        "argument 'wait_timeout'",
        f"guest: purge requires a guest or a tag; {WRITE_GUESTS}",
    ]


def test_everything_that_is_missing_is_told() -> None:
    assert problems("change", {}) == [
        "change requires an option to change; write -e memory=4GiB, or another option of virt_domain",
        f"guest: change requires a guest or a tag; {WRITE_GUESTS}",
    ]
    assert problems("rename", {}) == [
        "guest: rename requires this argument; write -e guest=GUEST",
        "to: rename requires this argument; write -e to=TO",
    ]


def test_a_problem_knows_its_argument() -> None:
    with pytest.raises(action_arguments.BadArguments) as error:
        asked("create", {"guest": "a: b; write -e c", "domain": {"vcpu": 1}})
    guest, domain = error.value.found
    assert (guest.argument, domain.argument, domain.option) == ("guest", "domain", "vcpu")
    assert guest.text.startswith("'a: b; write -e c' is not a valid name;")
    assert str(guest) == f"guest: {guest.text}" and str(domain) == f"domain.vcpu: {domain.text}"


PASSING = {
    "ansible_user": "x",
    "awx_job_id": 1,
    "tower_job_id": 1,
    "semaphore_vars": {},
    "virt_images": [],
    "guests_seed": False,
}


def test_variables_of_others_pass() -> None:
    assert (
        problems("start", {"guest": "web1", **PASSING, "maintenance_cpu_overcommit": 2, "site_name": "x", "_own": 1})
        == []
    )


def test_a_variable_that_the_inventory_has_is_the_inventorys() -> None:
    given = {"guest": "web1", "gest": "x", "bandwidth": 3}
    assert len(problems("start", given)) == 2
    assert problems("start", given, known={"gest", "bandwidth"}) == []


# What a job of AWX is given: https://docs.ansible.com/projects/awx/en/24.6.1/userguide/job_templates.html
JOB = ("job_id", "job_launch_type", "job_template_id", "job_template_name", "project_revision", "project_scm_branch",
       "schedule_id", "schedule_name", "user_id", "user_name", "user_email", "user_first_name", "user_last_name",
       "inventory_id", "inventory_name", "execution_node", "workflow_job_id", "workflow_job_name", "webhook_payload",
       "workflow_job_launch_type", "workflow_job_schedule_id", "webhook_event_guid", "parent_job_id")  # fmt: skip


@pytest.mark.parametrize("action", _actions.names())
def test_variables_of_awx_jobs_pass(action: str) -> None:
    """Though some look like variables of the role awx."""
    given = {f"{prefix}_{name}": 1 for prefix in ("awx", "tower") for name in JOB}
    assert not [each for each in problems(action, given) if each.startswith(("awx_", "tower_"))]


def test_variables_of_the_plays_themselves_pass() -> None:
    """Those are among what a playbook's check of its arguments is given."""
    refused, seen = [], 0
    for action in _actions.names():
        plays = yaml.safe_load((ROOT / f"playbooks/{action}.yml").read_text())
        names = {name for play in plays for name in play.get("vars") or () if name.startswith("_")}
        seen += len(names)
        refused += [each for each in problems(action, dict.fromkeys(names, 1)) if each.split(":")[0] in names]
    assert seen and not refused


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"title": "x"}, {"title": "x"}),
        ('{"title": "x"}', {"title": "x"}),
        ('{\n\t"title": "\\ud83d\\ude00"}', {"title": "\N{GRINNING FACE}"}),
        ("{title: x}", {"title": "x"}),
        ("title=x", {"title": "x"}),
        ("title: x\n", {"title": "x"}),
        ("title: '{{ x }}'", {"title": "{{ x }}"}),
    ],
)
def test_a_dictionary_may_be_written_as_text(written: object, meant: dict[str, str]) -> None:
    asked = {"arguments": {"guest": "a", "gone": [], "vcpus": 2}, "withheld": ["xml", "domain"]}
    assert guest_options(asked, "create", ["{}", written]) == {"vcpus": 2, "xml": "{}", **meant}
    with pytest.raises(ValueError, match="shorter"):
        guest_options(asked, "create", ["{}"])


def test_what_domain_says_of_a_guest_wins() -> None:
    asked = {
        "arguments": {
            "vcpus": 2,
            "tag": "x",
            "memory": {"maximum": "2GiB", "current": "1GiB"},
            "options": {"vcpus": 3},
        },
        "withheld": ["domain"],
    }
    options = guest_options(asked, "create", [{"memory": {"current": "2GiB"}, "vcpus": 4}])
    assert options == {"vcpus": 4, "memory": {"maximum": "2GiB", "current": "2GiB"}}


def test_options_of_a_migration() -> None:
    """What is in `options` replaces what is said beside it, dictionaries as a whole."""
    asked = {
        "arguments": {
            "guest": "web1",
            "to": "h2",
            "virt_group": "hyper",
            "gone": ["h9"],
            "bandwidth": 50,
            "storage": "full",
            "disk_storage": {"vda": "shared"},
            "options": {"timeout": 600, "storage": "auto", "disk_storage": {"vdb": "delta"}},
        },
        "withheld": [],
    }
    assert guest_options(asked, "migrate", []) == {
        "bandwidth": 50,
        "timeout": 600,
        "storage": "auto",
        "disk_storage": {"vdb": "delta"},
    }


def test_a_value_that_cannot_be_converted_is_none() -> None:
    """The filter is given what was checked before; it does not pass on anything else."""
    with pytest.raises(BadInput, match="dictionary requested, could not parse"):
        guest_options({"arguments": {}, "withheld": ["domain"]}, "create", ["no dictionary"])


def test_what_may_hold_a_secret_is_not_shown() -> None:
    action = _actions.action("create")
    given = {"guest": "a", "cloud_init": {}, "xml": "<a/>", "domain": {}, "graphics": {}, "vcpus": 1}
    assert action_arguments.withheld(action, asked("create", given)) == ["cloud_init", "domain", "graphics", "xml"]
    assert action_arguments.withheld(_actions.action("migrate"), {"options": {}, "postcopy_after_passes": 1}) == []


@pytest.mark.parametrize("value", ["inf", "-Infinity", "nan", "1e999999999", "1_0e1_000", float("inf"), float("nan")])
def test_a_number_that_is_not_finite_is_refused_at_once(value: object) -> None:
    """Ansible fails on it, or computes for minutes."""
    assert problems("rebalance", {"max_moves": value}) == [f"max_moves: {str(value)!r} is not a finite number"]
    assert problems("rebalance", {"tolerance": value}) == [f"tolerance: {str(value)!r} is not a finite number"]
