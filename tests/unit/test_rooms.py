"""The rooms keep their doors: who may import whom, who may say which word, and how much travels to a host."""

from __future__ import annotations

import ast
import copy
import fnmatch
import re
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core import errors as _errors
from ansible_collections.corral.virt.tests.tools import house, payload

ROOT = payload.ROOT
PLUGINS = ROOT / "plugins"
UTILS = payload.NAMESPACE + "plugins.module_utils."

CORE = ["core", "model"]
STEPS = ["plan"]  # of these no functions: `test_doers_know_of_plans_their_steps`
ANYTHING = ["*"]

# Role of a file of module_utils -> (roles that it may import, libraries beside the standard one).
ROLES: dict[str, tuple[list[str], list[str]]] = {
    "core": (CORE, []),
    "model": (CORE, []),
    "xml": ([*CORE, "xml", "fields"], ["lxml"]),
    "fields": ([*CORE, "xml", "fields"], ["lxml"]),
    "plan": ([*CORE, "xml", "fields", "plan"], []),
    "libvirt": ([*CORE, *STEPS, "libvirt"], ["libvirt"]),
    "files": ([*CORE, *STEPS, "files"], ["cryptography", "guestfs", "pycdlib", "yaml"]),
    "run": (ANYTHING, ["ansible"]),
}
# Place below plugins/ of all others -> which libraries they may use.
ROOMS: dict[str, list[str]] = {
    "modules/*": ["ansible"],
    "action/*": ["ansible"],
    "inventory/*": ["ansible"],
    "filter/*": ["ansible"],
    "callback/*": ["ansible"],
    "plugin_utils/*": ["ansible", "cryptography", "jsonschema", "yaml"],
    "doc_fragments/*": ["yaml"],
}
# Documents are read in one place; what doers look at in one is there without its library.
WITHOUT_LXML = ("_xml/stdlib_reader.py", "_xml/names.py")
# Doers of libvirt with a doer of this machine. The list only gets shorter.
BESIDE_LIBVIRT = {
    ("module_utils/_storage/libvirt_storage.py", "module_utils/_system/stale_mounts.py"): (
        "libvirt waits without end in a directory whose server is gone: every refresh of a pool looks first"
    ),
}
BANNED_NAMES = {"utils", "common", "helper", "helpers", "manager", "base", "misc", "shared", "support", "tools"}
SHIPPED = ("modules", "module_utils")
DOING = ("libvirt", "files")  # roles that do: one verb, no choice

FILES = sorted(path for path in PLUGINS.rglob("*.py") if "__pycache__" not in path.parts)
MODULES = payload.modules()


def label(path: Path) -> str:
    """How a file is called in test names and messages."""
    return str(path.relative_to(PLUGINS))


def libraries_of(path: Path) -> list[str]:
    """The libraries of the room that a file stands in."""
    if role := house.role(path):
        return ROLES[role][1]
    rules = [rule for place, rule in ROOMS.items() if fnmatch.fnmatch(label(path), place)]
    assert rules, f"{label(path)} stands in no room: give its name a role of ROLES, or its place a row in ROOMS"
    return rules[0]


def identifiers(path: Path) -> set[str]:
    """Every name, attribute, argument and keyword that code uses; text and comments do not count."""
    used: set[str] = set()
    for node in ast.walk(payload.tree(path)):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, (ast.arg, ast.keyword)) and node.arg:
            used.add(node.arg)
    return used


def check_mode_reads(tree: ast.Module) -> int:
    """How often code reads `check_mode` off something, also by a text: `getattr(module, "check_mode")`."""
    words = ("check_mode", "_check_mode")
    reads = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return sum(word in words for word in (*reads, *texts))


@pytest.mark.parametrize(
    "code", ["module.check_mode", "self._check_mode", "getattr(module, 'check_mode')", "x['check_mode']"]
)
def test_a_read_of_check_mode_is_seen(code: str) -> None:
    assert check_mode_reads(ast.parse(code)) == 1


def libraries(path: Path) -> set[str]:
    """Top-level packages a file imports from outside the collection and the standard library."""
    tops = {name.split(".")[0] for name in payload.imports(path) if not name.startswith(payload.NAMESPACE)}
    return tops - set(sys.stdlib_module_names) - {"", "__future__", "ansible_collections"}


# What code that must not look at a machine may use of libraries: not its files, its programs and its network, nor its
# clock, its settings and its chance. Of some modules and classes only these names.
PATHS = {"basename", "dirname", "isabs", "join", "normpath", "split", "splitext"}
PURE: dict[str, set[str]] = {
    "datetime": {"datetime", "timedelta", "timezone"},
    "datetime.datetime": {"fromisoformat", "fromtimestamp", "strptime"},
    "lxml": {"etree"},
    "lxml.etree": {
        "QName", "SubElement", "XMLParser", "XMLSyntaxError", "_Comment", "_Element", "cleanup_namespaces", "fromstring",
        "iselement", "tostring",
    },
    "os": {"fspath", "path", "strerror"},
    "os.path": PATHS,
    "posixpath": PATHS,
    "sys": {"maxsize"},
    "types": {"MappingProxyType"},
    "uuid": {"NAMESPACE_URL", "UUID", "uuid5"},
    "xml.etree.ElementTree": {"Element", "ParseError", "SubElement", "fromstring", "tostring"},
}  # fmt: skip
PURE |= {
    name: set()
    for name in (
        "__future__", "base64", "binascii", "codecs", "collections", "configparser", "contextlib", "copy", "dataclasses",
        "difflib", "errno", "fnmatch", "functools", "hashlib", "ipaddress", "itertools", "json", "math", "operator", "re",
        "shlex", "struct", "typing", "urllib.parse", "xml.parsers.expat",
    )
}  # fmt: skip
DOES = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}  # built in


def is_pure(name: str) -> bool:
    """Whether code that looks at no machine may use a module of the standard library, or a name in one."""
    parts = name.split(".")
    known = next((".".join(parts[:end]) for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in PURE), None)
    following = name.removeprefix(f"{known}.").partition(".")[0]
    return known is not None and (name == known or not PURE[known] or following in PURE[known])


def of_the_machine(tree: ast.Module) -> set[str]:
    """Names of the standard library that code uses, and that look at the machine that it runs on."""
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and node.id in DOES}
    called: dict[str, str] = {}  # by the name in the code
    for node in nodes:
        if isinstance(node, ast.Import):
            used |= {one.name for one in node.names}
            called |= {one.asname or one.name.split(".")[0]: one.name if one.asname else "" for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(payload.NAMESPACE):
            used |= {f"{node.module}.{one.name}" for one in node.names}
            called |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in nodes:
        first, _dot, rest = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        if first in called and re.fullmatch(r"[\w.]+", rest):
            used.add(f"{called[first] or first}.{rest}")
    return {name for name in used if name in DOES or not is_pure(name)}


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/shadow')",
        "import subprocess",
        "from subprocess import run",
        "import os.path\nos.path.realpath(x)",
        "import os.path as places\nplaces.exists(x)",
        "from os import path\npath.lexists(x)",
        "from os.path import realpath as real",
        "import posixpath\nposixpath.realpath(x)",
        "import os\nos.getuid()",
        "import os\nx = os.environ['HOME']",
        "import pathlib",
        "import socket",
        "import time",
        "import datetime\ndatetime.datetime.now(datetime.timezone.utc)",
        "from datetime import datetime as moment\nmoment.today()",
        "import random",
        "import uuid\nuuid.uuid4()",
        "from lxml import etree\netree.parse(x)",
    ],
)
def test_a_look_at_the_machine_is_seen(code: str) -> None:
    assert of_the_machine(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "import os.path\nos.path.join(x, os.path.basename(y))",
        "import os\nos.strerror(2), os.fspath(x)",
        "import datetime\ndatetime.datetime.fromisoformat(x).timestamp()",
        "import json\njson.loads(x)",
        "path.exists(x)",
    ],
)
def test_what_looks_at_no_machine_is_free(code: str) -> None:
    assert not of_the_machine(ast.parse(code))


@pytest.mark.parametrize("path", house.files("model", "fields", "xml", "plan"), ids=label)
def test_who_decides_looks_at_no_machine(path: Path) -> None:
    """What a plan must know of one, a front or a doer asks it, and hands in."""
    assert of_the_machine(payload.tree(path)) == set()


def test_every_room_has_files() -> None:
    """Else the tests below look at nothing."""
    assert [place for place in ROOMS if not any(fnmatch.fnmatch(label(path), place) for path in FILES)] == []
    assert [role for role in ROLES if not house.files(role)] == []
    assert {house.subject(path) for path in house.files()} == set(house.FLOORS)


def test_files_that_decide_are_found_by_their_names() -> None:
    """`make mutation` changes them."""
    assert len(house.deciding()) > len(house.files("plan"))
    with pytest.raises(AssertionError, match="no file is called xml_chain"):
        house.named(("xml_sources", "xml_chain"))


def test_the_guide_draws_the_house_as_it_stands() -> None:
    guide = (payload.ROOT / "docs/docsite/rst/guide_internals.rst").read_text()
    assert re.findall(r"^    (_\w+)  +[a-z]", guide, re.M) == [*reversed(house.FLOORS)]


@pytest.mark.parametrize("path", FILES, ids=label)
def test_imports_stay_in_their_room(path: Path) -> None:
    outside = libraries_of(path)
    assert libraries(path) <= set(outside), f"{label(path)} may use of libraries only {outside}"
    if role := house.role(path):
        allowed = ROLES[role][0]
        strangers = {
            label(other)
            for other in house.imports(path)
            if not any(fnmatch.fnmatch(house.role(other), pattern) for pattern in allowed)
            if not (role in DOING and label(other).endswith(WITHOUT_LXML))
            and (label(path), label(other)) not in BESIDE_LIBVIRT
        }
        assert not strangers, f"{label(path)} is of the role {role}, which may import only {allowed}"


def decided_by(tree: ast.Module) -> set[str]:
    """Functions of plans that code uses; steps and other classes, and constants, begin with a capital letter."""
    plans: set[str] = set()
    used: set[str] = set()
    nodes = list(ast.walk(tree))
    for found in [node for node in nodes if isinstance(node, ast.ImportFrom)]:
        if re.search(r"\.plan_\w+$", found.module or ""):
            used |= {one.name for one in found.names}
        plans |= {one.asname or one.name for one in found.names if one.name.startswith("plan_")}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in plans:
            used.add(node.attr)
    return {name for name in used if name.lstrip("_")[:1].islower()}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from a.plan_b import decide", {"decide"}),
        ("from a import plan_b\nplan_b.decide(x)", {"decide"}),
        ("from a import plan_b as b\nx = b.decide", {"decide"}),
        ("from a.plan_b import Step, LIMIT_S", set()),
        ("from a import plan_b\nx = {plan_b.Step: do}, plan_b.Step.of(x)", set()),
    ],
)
def test_a_doer_that_lets_a_plan_decide_is_seen(code: str, found: set[str]) -> None:
    assert decided_by(ast.parse(code)) == found


def test_doers_know_of_plans_their_steps() -> None:
    """What a plan decides comes to a doer in a step."""
    found = {label(path): decided_by(payload.tree(path)) for path in house.files(*DOING)}
    assert {path: names for path, names in found.items() if names} == {}, (
        "let the step hold it, or move it to a `model_*`"
    )


def test_what_doers_need_beside_libvirt_is_there() -> None:
    found = {(label(path), label(other)) for path in house.files("libvirt") for other in house.imports(path)}
    assert [pair for pair in BESIDE_LIBVIRT if pair not in found] == []


@pytest.mark.parametrize("path", house.files(), ids=label)
def test_subjects_stand_on_each_other(path: Path) -> None:
    floor = house.FLOORS.index(house.subject(path))
    above = {label(other) for other in house.imports(path) if house.FLOORS.index(house.subject(other)) > floor}
    assert not above, f"{label(path)} may import only what is below it: move what both need down (FLOORS)"


def test_no_file_needs_itself() -> None:
    found = house.circles({path: house.imports(path) for path in FILES})
    assert [sorted(map(label, members)) for members in found] == [], "move what both need into one of them, or below"


@pytest.mark.parametrize(
    ("edges", "found"),
    [({1: [2], 2: [3], 3: []}, []), ({1: [2], 2: [1]}, [[1, 2]]), ({1: [2], 2: [3], 3: [4, 1], 4: []}, [[1, 2, 3]])],
)
def test_a_circle_is_seen(edges: dict[int, list[int]], found: list[list[int]]) -> None:
    assert house.circles(edges) == found


def between_folders(imports: t.Mapping[Path, t.Collection[Path]], root: Path) -> dict[str, set[str]]:
    """Folders below `root` -> the other ones there that their files import."""
    found: dict[str, set[str]] = {}
    for path, others in imports.items():
        if path.is_relative_to(root):
            near = {other.relative_to(root).parts[0] for other in others if other.is_relative_to(root)}
            folder = path.relative_to(root).parts[0]
            found.setdefault(folder, set()).update(near - {folder})
    return found


def test_no_subject_of_the_controller_needs_itself() -> None:
    found = house.circles(between_folders({path: house.imports(path) for path in FILES}, PLUGINS / "plugin_utils"))
    assert found == [], "move what both need into one of them, or below"


def test_a_circle_of_folders_is_seen() -> None:
    """Also where no file is in one."""
    room = Path("u")
    files = {
        room / "_a/x.py": [room / "_b/x.py"],
        room / "_b/y.py": [room / "_a/y.py"],
        room / "_a/y.py": [Path("m.py")],
    }
    assert house.circles(between_folders(files, room)) == [["_a", "_b"]]
    assert house.circles(between_folders(files | {room / "_b/y.py": [room / "_c/y.py"]}, room)) == []


def test_controller_code_is_not_shipped() -> None:
    shipped = [path for path in FILES if label(path).startswith(SHIPPED)]
    assert shipped
    assert [label(path) for path in shipped if any(".plugin_utils" in name for name in payload.imports(path))] == []


def test_imports_are_absolute() -> None:
    """Relative ones break when a module is found under its short name."""
    assert [label(path) for path in FILES if any(name.startswith(".") for name in payload.imports(path))] == []


@pytest.mark.parametrize("path", FILES, ids=label)
def test_only_the_gate_knows_check_mode(path: Path) -> None:
    """A front hands `module.check_mode` to the gate, once; nobody else reads it."""
    # the second asks a module first what it would do, and the third tells nobody that such a question was an act
    reports = ("progress_lines", "safe_results")  # the latter asks for what a module would do
    if label(path) in ("module_utils/_core/gate.py", *(f"plugin_utils/_report/{name}.py" for name in reports)):
        return
    if label(path) == "callback/report.py":
        return
    front = label(path).startswith(("modules/", "action/")) or house.role(path) == "run"
    assert check_mode_reads(payload.tree(path)) <= (1 if front else 0), (
        f"{label(path)} must not ask for check mode: the gate does"
    )
    if not front:
        assert "check_mode" not in identifiers(path), f"{label(path)} must not know check mode: the gate does"


OURS = {name for name, one in vars(_errors).items() if isinstance(one, type) and issubclass(one, Exception)}


def callee(call: ast.Call) -> str:
    """The last word of what is called: `Refused` of `_errors.Refused(...)`."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def refusals(tree: ast.Module) -> set[str]:
    """Exceptions of ours that code makes, or only names to raise them.

    `raise … from error` says in our words what somebody else has refused; `from None` says nobody has.
    """
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    passed_on = {node.exc for node in raised if node.cause and ast.unparse(node.cause) != "None"}
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in passed_on]
    bare = [node.exc for node in raised if isinstance(node.exc, (ast.Name, ast.Attribute)) and not node.cause]
    return ({callee(call) for call in made} | {ast.unparse(one).rpartition(".")[2] for one in bare}) & OURS


@pytest.mark.parametrize(
    ("code", "refuses"),
    [
        ("raise Refused('x')", True),
        ("raise _errors.Refused('x')", True),
        ("raise Refused('x') from None", True),
        ("raise Refused", True),
        ("error = _errors.Refused('x')\nraise error", True),
        ("raise Refused('x') from error", False),
        ("raise error", False),
        ("try: f()\nexcept Refused: g()", False),
    ],
)
def test_a_refusal_is_seen(code: str, *, refuses: bool) -> None:
    assert refusals(ast.parse(code)) == ({"Refused"} if refuses else set())


def test_exceptions_keep_their_names() -> None:
    """Else the tests below do not see them."""
    imports = [
        (path, node) for path in FILES for node in ast.walk(payload.tree(path)) if isinstance(node, ast.ImportFrom)
    ]
    named = [(label(path), one) for path, node in imports for one in node.names if one.name in OURS]
    assert named and [path for path, one in named if one.asname] == []


FRONTS = [path for path in FILES if label(path).startswith("modules/")] + house.files("run")

# Functions of fronts that put a problem into words. The list only gets shorter.
IN_WORDS = {
    "module_utils/_guest/run_guest_options.py:_dictionary": "what Ansible's own validator finds, with its place",
    "module_utils/_guest/run_guest_options.py:spec_problems": "the same",
    "module_utils/_guest/run_guest_options.py:wanted": "what the constraints of `_xml/` find, with its place",
    "module_utils/_noun/run_noun_options.py:fields": "the same",
    "module_utils/_xml/run_arguments.py:problem": "what a row's kind finds, with its place and value",
    "module_utils/_xml/run_arguments.py:items_of": "a name that comes twice is lost once the entries are read by name",
}


def names_in(expression: ast.AST) -> set[str]:
    """Names and attributes that an expression consists of."""
    parts = list(ast.walk(expression))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


def words_of_problems(tree: ast.AST) -> set[str]:
    """Functions named after the problems that they find, or that add a text of their own to a list of problems."""
    found = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        added: list[ast.AST] = []
        for node in ast.walk(function):
            if isinstance(node, ast.AugAssign) and "problems" in names_in(node.target):
                added.append(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                adds = node.func.attr in ("append", "extend", "insert") and "problems" in names_in(node.func)
                added += node.args if adds else []
        named = function.name.rpartition("_")[2] in ("problem", "problems")
        if named or any(isinstance(part, ast.JoinedStr) for one in added for part in ast.walk(one)):
            found.add(function.name)
    return found


def test_fronts_refuse_nothing() -> None:
    """A refusal is decided in a plan, where a table tests it."""
    found = {label(path): refusals(payload.tree(path)) for path in FRONTS}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "def f(): problems.append(f'{x} is wrong')",
        "def f(): problems.found += [f'{x} is wrong' for x in y]",
        "def f_problems(): yield 'wrong'",
    ],
)
def test_a_text_of_a_problem_is_seen(code: str) -> None:
    assert words_of_problems(ast.parse(code))


def test_fronts_put_no_problem_into_words() -> None:
    """They pass on what a plan or a table of `_xml/` says."""
    found = {f"{label(path)}:{name}" for path in FRONTS for name in words_of_problems(payload.tree(path))}
    assert found == set(IN_WORDS), "decide it in a plan, or take what is gone out of the list"


# What tells the user to do something. BadInput names the option and what it must be: that is its remedy.
REMEDIED = {"Failed", "NotFound", "NotMade", "Refused", "Timeout", "Unsupported", "Unverified"}

# Functions whose remedy stands in what they put together. The list only gets shorter.
REMEDY_ELSEWHERE = {
    "module_utils/_host/plan_bridge.py:port": "it joins what `_unfit` finds",
    "module_utils/_storage/plan_clone.py:_refuse_full": "`FreeSpace.problem` says it",
    "module_utils/_storage/plan_mount.py:check_empty": "`_not_empty` says it",
    "module_utils/_storage/plan_mount.py:check_unused": "`_used` says it",
    "module_utils/_host/plan_tuning.py:decide": "it joins refusals, each with its own",
    "module_utils/_storage/plan_mount.py:decide": "it joins refusals, each with its own",
    "module_utils/_storage/plan_writable.py:decide": "it joins what `_reason` says",
    "module_utils/_migration/plan_concurrent_changes.py:check_seen": "it joins what `stopped` says, and errors",
    "module_utils/_migration/plan_preflight.py:check": "it joins its findings",
    "module_utils/_tls/plan_tls.py:check_set": "it joins what `_set_problems` says",
    "module_utils/_migration/plan_outcome.py:check": "the table of what was seen says it",
    "module_utils/_migration/plan_outcome.py:check_arrived": "the same",
    "module_utils/_migration/plan_outcome.py:check_reconciled": "the same",
}


# Elsewhere: what is passed on has its remedy already, or it is the text of a program or a library.
REMEDY_PASSED_ON = {
    "module_utils/_core/gate.py:run": "the error of a step, with the steps before it",
    "module_utils/_core/problems.py:refuse_all": "it joins problems, each with its own",
    "module_utils/_system/model_free_space.py:check": "`FreeSpace.problem` says it",
    "module_utils/_system/model_free_space.py:refuse": "the text is the caller's, or `Bounds.problem` says it",
    "module_utils/_xml/tree.py:_parsed": "what lxml says of a document that libvirt has accepted",
    "plugin_utils/_inventory/hypervisors.py:_check_certificate": "`missing` says it",
    "plugin_utils/_inventory/hypervisors.py:_check_port": "one of many reasons in one warning, each for its hypervisor",
    "plugin_utils/_inventory/hypervisors.py:ask": "the same",
    "module_utils/_system/command.py:run": "what the program itself says",
    "module_utils/_system/locks.py:locked": "the text is the caller's, a plan",
    "module_utils/_host/files_systemd.py:_start": "the error of `systemctl`, with the end of the unit's log",
    "module_utils/_power/libvirt_power.py:_obeys": "`Shutdown.timeout_message` says it",
    "module_utils/_power/libvirt_power.py:_resume": "`Resume.io_error_message` says it",
    "module_utils/_power/libvirt_power.py:_shutdown": "`Shutdown.io_error_message` says it",
    "module_utils/_power/libvirt_power.py:_stays": "`GuestStep.moved_message` says it",
    "module_utils/_storage/libvirt_storage.py:create": "it passes an error on as one of another kind",
}


def literals(expression: ast.AST, assigned: t.Mapping[str, t.Sequence[ast.AST]], depth: int = 3) -> str:
    """All text that stands in an expression, and in what is assigned to the names that it holds; not what joins others."""
    parts, text = list(ast.walk(expression)), ""
    joiners = [part.value for part in parts if isinstance(part, ast.Attribute)]
    for part in parts:
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part not in joiners:
            text += part.value
        elif isinstance(part, ast.Name) and depth:
            text += "".join(literals(value, assigned, depth - 1) for value in assigned.get(part.id, ()))
    return text


def assignments(nodes: t.Iterable[ast.AST]) -> dict[str, list[ast.AST]]:
    """What is assigned to names."""
    found: dict[str, list[ast.AST]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in names_in(target):
                    found.setdefault(name, []).append(node.value)
    return found


def without_remedy(tree: ast.Module) -> set[str]:
    """Functions that make an exception whose text has no `;`, after which the remedy stands."""
    found = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        assigned = assignments([*tree.body, *ast.walk(function)])
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args]:
            if callee(call) in REMEDIED and ";" not in literals(call.args[0], assigned):
                found.add(function.name)
    return found


@pytest.mark.parametrize(
    ("code", "remedied"),
    [
        ("raise Refused(f'cannot start {x}: it is held')", False),
        ("raise Refused(f'cannot start {x}: it is held; release it')", True),
        ("why = 'it is held; release it'\n    return Failed(f'cannot start {x}: {why}')", True),
        ("raise Refused('; '.join(problems))", False),
        ("raise Refused(f'cannot start {x}: {why}; {remedy}')", True),
        ("raise BadInput('name: must be short')", True),
        ("raise _errors.Refused('it is held')", False),
        ("raise Refused('it is held') from None", False),
    ],
)
def test_a_text_without_remedy_is_seen(code: str, *, remedied: bool) -> None:
    assert without_remedy(ast.parse(f"def f():\n    {code}")) == (set() if remedied else {"f"})


def test_every_refusal_says_what_to_do() -> None:
    """What failed, on which object, why; and the command or the option that mends it."""
    found = {f"{label(path)}:{name}" for path in house.files("plan") for name in without_remedy(payload.tree(path))}
    assert found == set(REMEDY_ELSEWHERE), "append the remedy after `;`, or take what is gone out of the list"


def test_every_failure_says_what_to_do() -> None:
    """The same in all other files. What libvirt refuses it says itself, after the verb and the object."""
    others = sorted({*FILES} - {*house.files("plan")})
    found = {f"{label(path)}:{name}" for path in others for name in without_remedy(payload.tree(path))}
    assert found == set(REMEDY_PASSED_ON), "append the remedy after `;`, or take what is gone out of the list"


def is_call_of_gate(node: ast.AST, *methods: str) -> bool:
    """Whether code calls one of these methods, or any, of something called gate."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    if is_call_of_gate(owner, "after"):
        return not methods or node.func.attr in methods
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return name.lstrip("_") == "gate" and (not methods or node.func.attr in methods)


def is_gate(node: ast.AST | None, names: t.Container[str]) -> bool:
    """Whether an expression is something called gate, or one of these other names of it."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return isinstance(node, (ast.Name, ast.Attribute)) and (name.lstrip("_") == "gate" or name in names)


def with_one_gate(tree: ast.Module) -> ast.Module:
    """The code with `gate` for what else it calls the gate, and with `gate.run` for what it calls that."""
    nodes = list(ast.walk(tree))
    names = {node.arg for node in nodes if isinstance(node, ast.arg) and names_in(node.annotation or node) & {"Gate"}}
    methods: dict[str, str] = {}
    for _turn in range(3):  # the name of a name
        for node in [node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1]:
            target, value = node.targets[0], node.value
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            if name and is_gate(value, names):
                names.add(name)
            elif isinstance(target, ast.Name) and isinstance(value, ast.Attribute) and is_gate(value.value, names):
                methods[name] = value.attr

    class _OneGate(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if node.id in methods:
                return ast.Attribute(ast.Name("gate", ast.Load()), methods[node.id], ast.Load())
            return ast.Name("gate", node.ctx) if node.id in names else node

        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            self.generic_visit(node)
            return ast.Attribute(node.value, "gate", node.ctx) if node.attr in names else node

    return t.cast(ast.Module, _OneGate().visit(copy.deepcopy(tree))) if names or methods else tree


def decisions(function: ast.AST) -> list[ast.expr]:
    """Expressions whose truth decides what comes next or what is true."""
    found: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            found.append(node.test)
        elif isinstance(node, ast.BoolOp):
            found += node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found.append(node.operand)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
        elif isinstance(node, ast.Compare):
            found += [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool":
            found += node.args
    return found


PLANNED = ("after", "assumes", "foretell")  # a plan or a report is made of what they return


def of_the_gate(function: ast.AST) -> set[str]:
    """Variables that hold what the gate has returned, or something made of that."""
    assigned = [node for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.NamedExpr, ast.AnnAssign))]
    made: set[str] = set()
    given: set[str] = set()
    for _turn in assigned:
        for node in assigned:
            parts = list(ast.walk(node.value)) if node.value else []
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            if any(isinstance(part, ast.Name) and part.id in made for part in parts) or any(
                is_call_of_gate(part) and not is_call_of_gate(part, *PLANNED) for part in parts
            ):
                made |= names
            elif node.value and is_call_of_gate(node.value):
                given |= names
    return made | given


def reveals_check_mode(node: ast.AST) -> bool:
    """Whether code lets the gate call something that answers yes or no by itself."""
    functions = [*node.args, *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []
    bodies = [one.body for one in functions if isinstance(one, ast.Lambda)]
    answers = any(isinstance(body, ast.Constant) and isinstance(body.value, bool) for body in bodies)
    return answers and is_call_of_gate(node, "perform")


def asks_the_gate(tree: ast.Module) -> set[str]:
    """Functions that decide by what the gate returns, or by a variable that holds it, or that only ask it."""
    found = set()
    for function in [node for node in ast.walk(with_one_gate(tree)) if isinstance(node, ast.FunctionDef)]:
        names = of_the_gate(function)
        parts = [part for decision in decisions(function) for part in ast.walk(decision)]
        if any(map(reveals_check_mode, ast.walk(function))) or any(
            is_call_of_gate(part) or (isinstance(part, ast.Name) and part.id in names) for part in parts
        ):
            found.add(function.name)
    return found


@pytest.mark.parametrize(
    "code",
    [
        "if self._gate.run(steps, do): pass",
        "while gate.hold(stack, make): pass",
        "x = 1 if not gate.rehearse(look) else 2",
        "x = bool(self.gate.run(steps, do))",
        "x = steps and gate.run(steps, do)",
        "done = gate.run(steps, do)\n    return [1 for x in y if done]",
        "mine = gate.hold(stack, make)\n    return mine is not None",
        "comes = gate.perform(look, otherwise=look)\n    return 1 if here or comes else 2",
        "ran = gate.after(steps).run(more, do)\n    left = [x for y in ran for x in y]\n    return [1] if left else []",
        "return move(alone=gate.perform(lambda: True, otherwise=look))",
        "return not gate.assumes(look)",
        "held = gate.assumes(look)\n    return 1 if held else 2",
        "g = self.gate\n    if g.run(steps, do): pass",
        "g = self._gate\n    h = g\n    done = h.run(steps, do)\n    return bool(done)",
        "run = self.gate.run\n    if run(steps, do): pass",
        "self._doors = gate\n    if self._doors.run(steps, do): pass",
    ],
)
def test_a_decision_by_the_gate_is_seen(code: str) -> None:
    assert asks_the_gate(ast.parse(f"def f():\n    {code}")) == {"f"}


def test_a_parameter_is_the_gate_by_its_type() -> None:
    code = "def f(doors: Gate | None): return 1 if doors.run(steps, do) else 2"
    assert asks_the_gate(ast.parse(code)) == {"f"}
    assert asks_the_gate(ast.parse(code.replace("Gate", "Doors"))) == set()


@pytest.mark.parametrize(
    "code",
    [
        "return plan(held=gate.assumes(look))",
        "left = plan(gate.assumes(look))\n    return 1 if left else 2",
        "steps = [*first, *gate.foretell(later)]\n    return [1 for step in steps if step.changes]",
        "return gate.perform(lambda: f(1), otherwise=lambda: f(2))",
    ],
)
def test_what_a_plan_is_made_of_is_no_decision(code: str) -> None:
    assert asks_the_gate(ast.parse(f"def f():\n    {code}")) == set()


def test_nobody_asks_the_gate() -> None:
    """That is check mode under another name: the gate calls what differs, `perform(do, otherwise=...)`."""
    found = {
        label(path): asks_the_gate(payload.tree(path)) for path in FILES if label(path) != "module_utils/_core/gate.py"
    }
    assert {path: functions for path, functions in found.items() if functions} == {}


def blind_runs(tree: ast.Module) -> set[str]:
    """Functions in which a later run of the gate does not know of the first."""
    functions = [node for node in ast.walk(with_one_gate(tree)) if isinstance(node, ast.FunctionDef)]
    runs = {
        function.name: [part for part in ast.walk(function) if is_call_of_gate(part, "run")] for function in functions
    }
    return {
        name
        for name, calls in runs.items()
        if sum("after" not in names_in(t.cast(ast.Call, call).func) for call in calls) > 1
    }


def test_a_run_that_does_not_know_of_the_first_is_seen() -> None:
    code = "def f():\n    gate.run(a, do)\n    {}.run(b, do)"
    assert blind_runs(ast.parse(code.format("self.gate"))) == {"f"}
    assert blind_runs(ast.parse(code.format("self.gate.after(a)"))) == set()


def test_a_failure_lists_all_that_was_done() -> None:
    found = {label(path): blind_runs(payload.tree(path)) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}, "carry them out `after` the first ones"


# Fronts that need Ansible. All others, what reads and what converges, take a connection and plain values: other programs
# use them. The list only gets shorter.
WITH_ANSIBLE = {
    "run_guest_arguments": "an import is checked as Ansible checks the module's arguments",
    "run_guest_options": "Ansible checks the dictionaries that may also be a number",
    "run_guest_module": "an AnsibleModule",
    "run_noun_module": "an AnsibleModule",
    "run_noun_info": "arguments are checked as Ansible checks the module's",
    "run_migrations": "the options of each guest are checked as Ansible checks those of one",
    "run_module": "an AnsibleModule",
    "run_tls_arguments": "defaults from the environment",
}


def test_what_converges_is_free_of_ansible() -> None:
    fronts = house.files("run")
    needs = {
        front.stem for front in fronts for path in (front, *payload.closure(front)) if "ansible" in libraries(path)
    }
    assert needs == set(WITH_ANSIBLE), "hand it in, as `OptionCheck` is, or take what is gone out of the list"


def test_doers_parse_no_xml() -> None:
    """What a document says is read in one room, where its cases are tested."""
    doers = house.files(*DOING)
    assert (
        doers
        and [label(path) for path in doers if {name for name in payload.imports(path) if name.startswith("xml.")}] == []
    )


# Doers that choose by what an error says, as nothing else tells it. The list only gets shorter.
CHOSEN_BY_TEXT = {
    "module_utils/_storage/libvirt_storage.py:_made_empty": "qemu-img says only there that its clock showed nothing",
    "module_utils/_storage/libvirt_storage.py:_refresh": "libvirt's code of a pool in use is that of any internal error",
}


def says(expression: ast.AST, errors: t.Collection[str]) -> bool:
    """Whether an expression holds the text of an error, or what a program has written to stderr."""
    parts = list(ast.walk(expression))
    calls = [part for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)]
    of_error = [one for one in calls if t.cast(ast.Name, one.func).id in ("str", "repr") and names_in(one) & {*errors}]
    texts = {"get_error_message", "strerror", "stderr"}
    return bool(of_error) or any(isinstance(part, ast.Attribute) and part.attr in texts for part in parts)


def choices_by_text(tree: ast.AST) -> set[str]:
    """Functions that compare or search the text of an error."""
    found = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        nodes = list(ast.walk(function))
        errors = {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
        for node in nodes:
            compared: list[ast.AST] = [node] if isinstance(node, ast.Compare) else []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("startswith", "endswith", "find", "count", "index"):
                    compared.append(node.func.value)
                elif node.func.attr in ("search", "match", "fullmatch", "findall"):
                    compared += node.args
            if any(says(one, errors) for one in compared):
                found.add(function.name)
    return found


@pytest.mark.parametrize(
    "choice",
    [
        "'held' in str(error)",
        "error.get_error_message() == 'x'",
        "done.stderr.startswith('x')",
        "re.search('x', str(error))",
    ],
)
def test_a_choice_by_a_text_is_seen(choice: str) -> None:
    code = f"def f():\n    try: g()\n    except E as error:\n        if {choice}: h()"
    assert choices_by_text(ast.parse(code)) == {"f"}


def test_doers_choose_by_no_text() -> None:
    """Texts are for people: they change with versions and languages. What a doer raises has a class, or a code."""
    doers = house.files(*DOING)
    found = {f"{label(path)}:{name}" for path in doers for name in choices_by_text(payload.tree(path))}
    assert found == set(CHOSEN_BY_TEXT), "let it raise an exception of its own, or take what is gone out of the list"


# Plans that look for words in the text of an error. The list only gets shorter.
HINTED_BY_TEXT = {
    "module_utils/_migration/plan_migrate.py:remedy": "only a hint behind the text itself: a move is judged by what both hosts show",
}


def words_sought(tree: ast.AST) -> set[str]:
    """Functions that search what is called a reason or an error."""
    found = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            searched: list[ast.expr] = []
            if isinstance(node, ast.Compare) and any(isinstance(sign, (ast.In, ast.NotIn)) for sign in node.ops):
                searched = node.comparators
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                searched = [node.func.value, *node.args] if node.func.attr in ("search", "match", "startswith") else []
            if any(isinstance(one, ast.Name) and one.id in ("error", "message", "reason", "why") for one in searched):
                found.add(function.name)
    return found


@pytest.mark.parametrize("search", ["x in reason", "re.search(x, error)", "why.startswith(x)"])
def test_a_search_in_a_reason_is_seen(search: str) -> None:
    assert words_sought(ast.parse(f"def f(): return {search}")) == {"f"}


def test_plans_decide_by_no_text() -> None:
    plans = house.files("plan")
    found = {f"{label(path)}:{name}" for path in plans for name in words_sought(payload.tree(path))}
    assert found == set(HINTED_BY_TEXT), "decide by what is seen, or take what is gone out of the list"


LONGEST_FUNCTION = 40  # lines


def test_functions_are_read_at_a_glance() -> None:
    """Ruff counts their branches (C901)."""
    functions = [
        (path, node) for path in FILES for node in ast.walk(payload.tree(path)) if isinstance(node, ast.FunctionDef)
    ]
    lengths = {f"{label(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1 for path, node in functions}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


PROTOCOLS = {
    node.name
    for path in FILES
    for node in ast.walk(payload.tree(path))
    if isinstance(node, ast.ClassDef) and "t.Protocol" in map(ast.unparse, node.bases)
}


def public(body: t.Iterable[ast.stmt]) -> t.Iterator[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes that others may use, and what these offer; of the answers to a protocol, that tells."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            named = re.match(r"The `(\w+)`", ast.get_docstring(node) or "")
            answers = named is not None and named[1] in PROTOCOLS
            yield from public(node.body) if isinstance(node, ast.ClassDef) and not answers else ()


def test_what_is_public_says_what_it_is_for() -> None:
    nodes = [(path, node) for path in FILES for node in public(payload.tree(path).body)]
    assert nodes
    assert [f"{label(path)}:{node.name}" for path, node in nodes if not ast.get_docstring(node)] == []


def nested_conditions(tree: ast.Module) -> set[int]:
    """Lines of conditional expressions with another one anywhere in them."""
    conditions = [node for node in ast.walk(tree) if isinstance(node, ast.IfExp)]
    return {
        node.lineno
        for node in conditions
        if any(isinstance(part, ast.IfExp) for part in ast.walk(node) if part is not node)
    }


@pytest.mark.parametrize(
    "code", ["1 if a else 2 if b else 3", "1 if a else f(2 if b else 3)", "f'{1 if a else 2}' if b else 3"]
)
def test_a_condition_in_another_one_is_seen(code: str) -> None:
    assert nested_conditions(ast.parse(code)) == {1}


def test_no_condition_stands_in_another_one() -> None:
    """`a if x else f(b if y else c)` is a name, a table or a function with two returns."""
    nested = {f"{label(path)}:{line}" for path in FILES for line in nested_conditions(payload.tree(path))}
    assert nested == set()


def banned(place: str, tree: ast.Module) -> list[str]:
    """Words of a file's place and names of its classes that say nothing."""
    parts = set(Path(place).with_suffix("").parts) - {"module_utils", "plugin_utils"}
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    words = {word for part in parts for word in part.split("_")} & BANNED_NAMES
    return sorted(words) + [name for name in classes if name.lower().endswith(tuple(BANNED_NAMES))]


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("module_utils/_guest/plan_tools.py", ""),
        ("module_utils/_shared/plan_guest.py", ""),
        ("module_utils/_guest/plan_guest.py", "class GuestManager: pass"),
    ],
)
def test_a_name_that_says_nothing_is_seen(place: str, code: str) -> None:
    assert len(banned(place, ast.parse(code))) == 1


def test_names_say_something() -> None:
    found = {label(path): banned(label(path), payload.tree(path)) for path in FILES}
    assert {path: words for path, words in found.items() if words} == {}


OF_ANSIBLE = {"ActionModule", "CallbackModule", "FilterModule", "InventoryModule", "ModuleDocFragment"}


def bases(node: ast.ClassDef) -> set[str]:
    """The last words of the classes that a class derives from."""
    return {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases}


def test_a_name_is_that_of_one_class() -> None:
    """Steps are called by what they do, and written with their module."""
    classes = [
        (node.name, label(path))
        for path in FILES
        for node in payload.tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in OF_ANSIBLE
        if not any(base.endswith("Step") for base in bases(node))
    ]
    places: dict[str, list[str]] = {}
    for name, place in classes:
        places.setdefault(name, []).append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


SHORT = 60  # lines, of which the head takes a quarter
ALONE = "no other file of its role goes to the same modules: one of them would send more"
# Files that are short and have one importer, and why they are no part of another. The list only gets shorter.
SHORT_FILES = {
    "module_utils/_backup/libvirt_proof.py": ALONE,
    "module_utils/_core/digest.py": ALONE,
    "module_utils/_guest/run_guest_arguments.py": "Ansible is in it",
    "module_utils/_guest/run_query.py": ALONE,
    "module_utils/_guest/run_states.py": ALONE,
    "module_utils/_image/run_image_list.py": ALONE,
    "module_utils/_migration/run_migrations.py": "Ansible is in it",
    "module_utils/_network/libvirt_network_edit.py": ALONE,
    "module_utils/_network/run_network_verbs.py": ALONE,
    "module_utils/_noun/plan_noun_import.py": ALONE,
    "module_utils/_storage/libvirt_mount.py": ALONE,
    "module_utils/_storage/run_pool_verbs.py": ALONE,
    "module_utils/_storage/run_writable.py": ALONE,
    "module_utils/_system/loop_devices.py": ALONE,
    "module_utils/_volume/run_volume_users.py": ALONE,
    "plugin_utils/_commands/lock_holders.py": "a filter's, which needs nothing of the commands",
    "plugin_utils/_guests/guest_problems.py": "Ansible is in it",
    "plugin_utils/_guests/missing_arguments.py": "pure, beside a front",
    "plugin_utils/_images/image_users.py": "a filter's, which needs nothing of the catalogue",
    "plugin_utils/_report/expiry_warnings.py": "pure, beside an action",
}


def short_files(lines: t.Mapping[str, int], importers: t.Mapping[str, t.Collection[str]]) -> set[str]:
    """Files that are short, and that at most one other needs."""
    return {name for name, count in lines.items() if count < SHORT and len(importers.get(name, ())) < 2}


def test_a_short_file_is_seen() -> None:
    lines = {"a": 3, "b": 3, "c": 59, "d": 60}
    assert short_files(lines, {"b": ["x", "y"], "c": ["x"]}) == {"a", "c"}


def test_files_are_worth_opening() -> None:
    importers: dict[str, set[str]] = {}
    for path in FILES:
        for other in house.imports(path) - {path}:
            importers.setdefault(label(other), set()).add(label(path))
    files = [path for path in FILES if label(path).partition("/")[0] in ("module_utils", "plugin_utils")]
    lines = {label(path): len(path.read_text().splitlines()) for path in files if path.name != "__init__.py"}
    assert short_files(lines, importers) == set(SHORT_FILES), "move it to the file that needs it, or one of its role"


def test_packages_export_nothing() -> None:
    """What an __init__ imports travels with everyone who only passes through: there is none."""
    assert [label(path) for path in FILES if path.name == "__init__.py" and path.read_text().strip()] == []


def test_module_utils_are_private_python() -> None:
    """Only .py files reach a host; a name without underscore would be a promise to other collections."""
    room = PLUGINS / "module_utils"
    assert not [label(path) for path in room.rglob("*.*") if path.suffix not in (".py", ".pyc")]
    assert not [path.name for path in room.iterdir() if not path.name.startswith("_")]


# KiB that travel with each task, compressed, with a tenth of air: a budget at its last line rewards density. Two are
# what mends errors of the system. The whole
# model of a guest travels where guests are changed or described, else much less; of what runs on the controller, the
# documentation only.
DEFAULT_BUDGET_KIB = 3
BUDGETS_KIB = {
    "virt_domain": 319,  # with all that is looked at before a disk or a definition goes, and the check of seeds
    "virt_domains": 319,  # and all that a definition may need of its host
    "virt_domain_info": 151,
    "virt_host_info": 64,  # with thin pools, and the notes on disks that are being removed
    "virt_image": 172,  # likewise, and every style of lists of checksums, and archives
}
BUDGETS_KIB |= {
    "virt_pool": 88,
    "virt_network": 92,  # with the addresses, routes and packet filter of the host
    "virt_network_info": 47,
    "virt_pool_info": 74,  # with the thin pools of volume groups
    "virt_nwfilter": 74,
    "virt_nwfilter_info": 65,
    "virt_disk_move": 240,  # with what goes on in the background, and logical volumes
    "virt_pool_drain": 246,
    "virt_backup": 143,
    "virt_backup_files": 59,
    "virt_backup_info": 59,
    "virt_snapshot": 280,  # with all that is looked at before a file or a definition goes
    "virt_restore": 356,  # with backups, copies of definitions, and all that is looked at before a disk goes
    "virt_prove": 369,  # with all of a restore
    "virt_snapshot_info": 62,
    "virt_secret": 73,
    "virt_secret_info": 70,
    "virt_volume": 161,  # with the snapshots inside it
    "virt_volume_info": 97,  # with who uses a file on this host
    "virt_image_info": 79,
}  # nouns by table: rows, their options and the stages of a plan
# A move asks the destination for all that a start would ask for, and finds its firmware by the descriptors of both. It
# removes the UEFI variables that a running guest leaves behind, and looks before who has them. It compares what both
# hosts know of a block device, a pool or a server. It carries snapshots, with their files.
BUDGETS_KIB |= {"virt_migrate": 282, "virt_migrations": 281, "virt_tls": 48}
BUDGETS_KIB |= {
    "virt_state": 73,  # with what a guest does that is asked to shut down
    "virt_state_info": 19,  # who copies a definition copies its record: it tells whose it is
    "virt_bridge": 51,
    "virt_firewall": 37,
    "virt_daemon": 43,  # with leases
    "virt_mounts": 53,  # with encrypted devices and images
    "virt_tuning": 34,
    "virt_writable": 44,
    "virt_addresses": 53,
    "virt_query": 63,  # with what protects guests
}


@pytest.mark.parametrize("module", MODULES, ids=label)
def test_payload_stays_in_its_budget(module: Path) -> None:
    budget_kib, weight = BUDGETS_KIB.get(module.stem, DEFAULT_BUDGET_KIB), payload.payload(module)
    names = "\n".join(map(label, weight.files))
    assert weight.kib <= budget_kib, (
        f"{module.stem} brings {weight.kib:.0f} KiB to the host, its budget is {budget_kib} KiB:\n{names}"
    )
