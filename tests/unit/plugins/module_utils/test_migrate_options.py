"""Every option of a migration: what is refused says what to do instead, all of it at once; and each is shown at work in the lab."""

from __future__ import annotations

import ast
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.corral.virt.plugins.module_utils._core.errors import BadInput
from ansible_collections.corral.virt.plugins.module_utils._migration.model_migration import COPIED, Tuning
from ansible_collections.corral.virt.plugins.module_utils._migration.plan_migration_options import (
    check,
    check_all,
    check_local,
    dest_links,
    dest_uri,
    tuning,
)
from ansible_collections.corral.virt.plugins.module_utils._migration.run_migration_options import OPTIONS
from ansible_collections.corral.virt.plugins.plugin_utils._commands import actions

Said = dict[str, t.Any]
ROOT = Path(__file__).parents[4]
SHOWN = ("test_migrate.py", "test_migrate_options.py", "test_shared_pools.py", "test_source_gone.py")
NUMBERS = (
    "bandwidth",
    "max_downtime",
    "timeout",
    "stall_timeout",
    "parallel",
)  # and two that need `postcopy` beside them
POSTCOPY_AFTER = ("postcopy_after", "postcopy_after_passes")
ANY_TEXT = {"dest_uri", "dest_maintenance"}  # what is no URI, or nobody's, libvirt says
NAME = "is not a valid name; use letters, digits, '.', '_' and '-', start with a letter or digit, at most 63 characters"

NO_NAME = "is not a valid name; no guest has '/' or control characters in its name"

# Values that Ansible refuses by their type.
TYPES: dict[str, tuple[object, str]] = {
    **dict.fromkeys((*NUMBERS, *POSTCOPY_AFTER), ("some", "cannot be converted to an int")),
    **dict.fromkeys(("auto_converge", "postcopy", "keep_source_storage", "assume_images", "dest_gone"), ("some", "Valid booleans include")),
    "disk_storage": ("full", "dictionary requested"),
    "dest_links": ({"br0": True}, "cannot be converted to a list"),
    "state": ("moved", "must be one of: present, aborted"),
    "transport": ("ssh", "must be one of: tls, tunnelled, plain"),
    "storage": ("half", "must be one of: auto, shared, delta, full"),
    "schedule": ("never", "must be one of: minimal_downtime, postcopy, suspend_if_needed, very_large"),
    "timeout_action": ("kill", "must be one of: abort, suspend, postcopy"),
    "compression": (["lz4"], "must be one or more of: xbzrle, zlib, zstd"),
}  # fmt: skip

# Everything else that is refused, with the whole of what is said.
REFUSED: list[tuple[Said, str]] = [
    *[({"dest": value}, f"dest: {value!r} {NAME}") for value in ("a/b", "", "..", "-x", "x" * 64)],
    *[({"name": value}, f"name: {value!r} {NO_NAME}") for value in ("a/b", "", "..", "a\n")],
    *[({option: value}, f"{option}: must be at least 1, not {value}") for option in NUMBERS for value in (0, -1)],
    ({"reserve": "much"}, "reserve: cannot read 'much' as a size; write 512MiB, 8GiB or a number of GiB; 0 reserves nothing"),
    *[({"postcopy": True, option: 0}, f"{option}: must be at least 1, not 0") for option in POSTCOPY_AFTER],
    ({"disk_storage": {"vda": "half"}}, "disk_storage: vda cannot be 'half'; choose one of auto, shared, delta, full"),
    ({"disk_storage": {"data": None}}, "disk_storage: data cannot be None; choose one of auto, shared, delta, full"),
    *[
        ({"disk_pool": {"vda": value}}, "disk_pool: vda must be the name of a storage pool") for value in ("", None, 1)
    ],
    ({"pool": ""}, "pool: must be the name of a storage pool"),
    (
        {"transport": "tunnelled", "disk_pool": {"vda": "fast"}},
        "transport: a tunnel cannot carry a storage copy; use tls, or shared storage",
    ),
    *[
        ({"transport": "tunnelled", **copy}, "transport: a tunnel cannot carry a storage copy; use tls, or shared storage")
        for mode in COPIED
        for copy in ({"storage": mode}, {"disk_storage": {"vda": mode}})
    ],
    ({"transport": "tunnelled", "parallel": 2}, "parallel: a tunnel has one connection; use tls, or omit it"),
    *[
        ({"transport": "tunnelled", option: value}, f"{option}: a tunnel cannot carry post-copy; use tls, or omit it")
        for option, value in (("postcopy", True), ("schedule", "postcopy"), ("timeout_action", "postcopy"))
    ],
    *[({option: 3}, f"{option}: valid only with postcopy: true") for option in POSTCOPY_AFTER],
    ({"dest_gone": True}, "dest_gone: valid only with state: aborted, which ends what was begun"),
    (
        dict.fromkeys(POSTCOPY_AFTER, 3),
        "postcopy_after and postcopy_after_passes: valid only with postcopy: true",
    ),
    *[({"compression": [one]}, "compression: zlib and zstd require parallel connections; set parallel") for one in ("zlib", "zstd")],
    ({"compression": ["zlib", "zstd"], "parallel": 2}, "compression: zlib and zstd are mutually exclusive; omit one"),
    ({"compression": ["xbzrle"], "parallel": 2}, "compression: xbzrle and parallel are mutually exclusive; omit one"),
]  # fmt: skip


def problems(said: Said) -> list[str]:
    """What Ansible says of the options, and when it takes them, what we do."""
    result = ArgumentSpecValidator(OPTIONS).validate({"name": "web1", "dest": "hyper2", **said})
    if result.error_messages:
        return list(result.error_messages)
    try:
        check(result.validated_parameters)
    except BadInput as error:
        return error.problems
    return []


@pytest.mark.parametrize(("said", "told"), REFUSED, ids=lambda value: str(value)[:70])
def test_what_cannot_be_is_refused_with_what_to_do(said: Said, told: str) -> None:
    assert problems(said) == [told]


@pytest.mark.parametrize("option", TYPES)
def test_what_is_of_another_kind_is_refused_with_what_may_be(option: str) -> None:
    value, result = TYPES[option]
    (problem,) = problems({option: value})
    assert option in problem and result in problem


def test_all_of_it_is_told_at_once() -> None:
    apart: list[Said] = [
        {"name": "a/b"}, {"dest": "a/b"}, {"bandwidth": 0}, {"max_downtime": 0}, {"timeout": 0}, {"reserve": "much"}, {"disk_storage": {"vda": "half"}},
        {"postcopy_after": 5}, {"compression": ["zstd"]}, {"transport": "tunnelled", "storage": "full"},
    ]  # fmt: skip
    together = {option: value for output in apart for option, value in output.items()}
    assert sorted(problems(together)) == sorted(result for output in apart for result in problems(output))


def test_what_goes_together_is_taken() -> None:
    """Each rule has a way out: the one that its message names."""
    ways_out: list[Said] = [
        {"postcopy": True, **dict.fromkeys(POSTCOPY_AFTER, 3)}, {"parallel": 2, "compression": ["zlib"]}, {"compression": ["xbzrle"]},
        {"transport": "tunnelled", "storage": "shared", "disk_storage": {"vda": "shared"}}, {"parallel": 2, "transport": "tls"},
    ]  # fmt: skip
    least: list[Said] = [{option: 1} for option in NUMBERS]
    least += [{"postcopy": True, option: 1} for option in POSTCOPY_AFTER]
    for output in (*ways_out, *least):
        assert problems(output) == []


DEFAULTS = {option: spec.get("default") for option, spec in OPTIONS.items()}


def test_several_guests_are_checked_like_one() -> None:
    good, low = {**DEFAULTS, "name": "web1", "dest": "h2"}, {**DEFAULTS, "name": "db1", "dest": "h2", "timeout": 0}
    assert check(good) == "web1"
    check_all([("web1", good, [])], 1)
    with pytest.raises(BadInput, match="db1") as refused:
        check_all([("web1", good, []), ("db1", low, []), ("x", {}, ["no dictionary"]), ("web1", good, [])], 0)
    assert refused.value.problems == [
        "guests: db1: timeout: must be at least 1, not 0",
        "guests: x: no dictionary",
        "guests: web1 is given twice",
        "at_once: must be at least 1, not 0",
    ]


def test_a_guest_moves_from_the_host_that_has_it() -> None:
    for uri in ("qemu:///system", "test:///default"):
        check_local("web1", uri)
    with pytest.raises(BadInput, match=r"^uri: web1 can"):
        check_local("web1", "qemu+tls://h1/system")


def test_where_the_destination_is() -> None:
    assert dest_uri({"dest": "h2", "dest_uri": None}) == "qemu+tls://h2/system"
    assert dest_uri({"dest": "h2", "dest_uri": "qemu+ssh://h2/system"}) == "qemu+ssh://h2/system"


def test_what_is_said_of_the_transfer_reaches_it() -> None:
    output = {
        "transport": "plain",
        "bandwidth": 1,
        "max_downtime": 2,
        "auto_converge": False,
        "postcopy": True,
        "postcopy_after": 3,
        "postcopy_after_passes": 4,
        "parallel": 5,
        "compression": ["zstd"],
        "schedule": "very_large",
        "timeout": 6,
        "timeout_action": "suspend",
        "stall_timeout": 7,
    }
    assert tuning(output) == Tuning(
        transport="plain",
        bandwidth_mib_s=1,
        max_downtime_ms=2,
        auto_converge=False,
        postcopy=True,
        postcopy_after_s=3,
        postcopy_after_passes=4,
        parallel=5,
        compression=("zstd",),
        schedule="very_large",
        timeout_s=6,
        timeout_action="suspend",
        stall_timeout_s=7,
    )


OTHERS = (
    "run",
    "communicate",
    "until",
    "fixture",
    "sub",
    "play",
    "start",
)  # their arguments are no options of a migration


def said_in(path: Path) -> set[str]:
    """Names of arguments, and keys of mappings, that a test says to a migration."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    keys = {
        key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant)
    }
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in OTHERS
    ]
    return {word.arg for call in calls for word in call.keywords if word.arg} | {
        key for key in keys if isinstance(key, str)
    }


@pytest.mark.parametrize(
    ("told", "listed", "known"),
    [
        (None, None, None),
        (None, frozenset({"lo"}), frozenset({"lo"})),
        (["br0"], None, frozenset({"br0"})),
        ([], frozenset({"lo"}), frozenset()),
    ],
)
def test_links_that_are_told_are_those_of_the_destination(
    told: list[str] | None, listed: frozenset[str] | None, known: frozenset[str] | None
) -> None:
    assert dest_links({"dest_links": told}, listed) == known


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_has_a_bad_value_here_and_a_case_in_the_lab(option: str) -> None:
    assert option in {*ANY_TEXT, *TYPES, *(each for output, _told in REFUSED for each in output)}
    assert any(option in said_in(ROOT / "tests/lab" / name) for name in SHOWN)


def test_the_playbook_hands_each_on() -> None:
    """By its own name, and all together in `options`; its name and its destination are arguments of other names."""
    migrate, own = (
        actions.action("migrate"),
        {"name", "dest", "dest_links", "dest_maintenance", "dest_gone", "assume_images"},
    )
    assert {name for name, each in migrate.arguments.items() if each.option} == set(OPTIONS) - own
    assert set(actions.options("virt_migrate")) == set(OPTIONS)
    tasks = yaml.safe_load((ROOT / "playbooks/tasks/move.yml").read_text())
    handed = [task["corral.virt.virt_migrations"]["options"] for task in tasks if "corral.virt.virt_migrations" in task]
    assert len(handed) == 2 and all("virt_options" in each for each in handed)
