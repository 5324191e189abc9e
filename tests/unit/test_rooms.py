"""The rooms keep their doors: who may import whom, who may say which word, and how much travels to a host."""

from __future__ import annotations

import ast
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
STEPS = ["plan"]  # what a doer knows of plans: their steps
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
BRIEF = ("_xml/brief.py", "_xml/names.py")
BANNED_NAMES = {"utils", "common", "helper", "helpers", "manager", "base", "misc"}
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


def check_mode_reads(path: Path) -> int:
    """How often code reads `check_mode` off something."""
    reads = [node for node in ast.walk(payload.tree(path)) if isinstance(node, ast.Attribute)]
    return sum(read.attr in ("check_mode", "_check_mode") for read in reads)


def libraries(path: Path) -> set[str]:
    """Top-level packages a file imports from outside the collection and the standard library."""
    tops = {name.split(".")[0] for name in payload.imports(path) if not name.startswith(payload.NAMESPACE)}
    return tops - set(sys.stdlib_module_names) - {"", "__future__", "ansible_collections"}


def test_every_room_has_files() -> None:
    """Else the tests below look at nothing."""
    assert [place for place in ROOMS if not any(fnmatch.fnmatch(label(path), place) for path in FILES)] == []
    assert [role for role in ROLES if not house.files(role)] == []
    assert {house.subject(path) for path in house.files()} == set(house.FLOORS)


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
            if not (role in DOING and label(other).endswith(BRIEF))
        }
        assert not strangers, f"{label(path)} is of the role {role}, which may import only {allowed}"


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
    assert check_mode_reads(path) <= (1 if front else 0), f"{label(path)} must not ask for check mode: the gate does"
    if not front:
        assert "check_mode" not in identifiers(path), f"{label(path)} must not know check mode: the gate does"


def refusals(path: Path) -> set[str]:
    """Exceptions of ours that code makes and raises.

    `raise … from error` says in our words what somebody else has refused.
    """
    raised = [node.exc for node in ast.walk(payload.tree(path)) if isinstance(node, ast.Raise) and not node.cause]
    names = {call.func.id for call in raised if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    return {name for name in names if name in vars(_errors)}


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
    assert {label(path): refusals(path) for path in FRONTS if refusals(path)} == {}


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


# Doers: what they pass on has its remedy already, or it is the program's own text.
REMEDY_PASSED_ON = {
    "module_utils/_system/command.py:run": "what the program itself says",
    "module_utils/_system/locks.py:locked": "the text is the caller's, a plan",
    "module_utils/_host/files_systemd.py:_start": "the error of `systemctl`, with the end of the unit's log",
    "module_utils/_power/libvirt_power.py:_obeys": "`Shutdown.timeout_message` says it",
    "module_utils/_power/libvirt_power.py:_resume": "`Resume.io_error_message` says it",
    "module_utils/_power/libvirt_power.py:_shutdown": "`Shutdown.io_error_message` says it",
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
            named = isinstance(call.func, ast.Name) and call.func.id in REMEDIED
            if named and ";" not in literals(call.args[0], assigned):
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
    ],
)
def test_a_text_without_remedy_is_seen(code: str, *, remedied: bool) -> None:
    assert without_remedy(ast.parse(f"def f():\n    {code}")) == (set() if remedied else {"f"})


def test_every_refusal_says_what_to_do() -> None:
    """What failed, on which object, why; and the command or the option that mends it."""
    found = {f"{label(path)}:{name}" for path in house.files("plan") for name in without_remedy(payload.tree(path))}
    assert found == set(REMEDY_ELSEWHERE), "append the remedy after `;`, or take what is gone out of the list"


def test_every_failure_of_a_doer_says_what_to_do() -> None:
    """The same where something is done or read. What libvirt refuses it says itself, after the verb and the object."""
    found = {f"{label(path)}:{name}" for path in house.files(*DOING) for name in without_remedy(payload.tree(path))}
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


def asks_the_gate(tree: ast.AST) -> set[str]:
    """Functions that decide by what the gate returns, or by a variable that holds it, or that only ask it."""
    found = set()
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
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
    ],
)
def test_a_decision_by_the_gate_is_seen(code: str) -> None:
    assert asks_the_gate(ast.parse(f"def f():\n    {code}")) == {"f"}


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


def blind_runs(tree: ast.AST) -> set[str]:
    """Functions in which a later run of the gate does not know of the first."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
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
    "run_noun_arguments": "an import is checked as Ansible checks the module's arguments",
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


def public(body: t.Iterable[ast.stmt]) -> t.Iterator[ast.FunctionDef | ast.ClassDef]:
    """Functions and classes that others may use, and what these offer; of the answers to a protocol, that tells."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            answers = (ast.get_docstring(node) or "").startswith("The `")
            yield from public(node.body) if isinstance(node, ast.ClassDef) and not answers else ()


def test_what_is_public_says_what_it_is_for() -> None:
    nodes = [(path, node) for path in FILES for node in public(payload.tree(path).body)]
    assert nodes
    assert [f"{label(path)}:{node.name}" for path, node in nodes if not ast.get_docstring(node)] == []


def test_no_condition_stands_in_another_one() -> None:
    """`a if x else b if y else c` is a name, a table or a function with two returns."""
    conditions = [
        (path, node) for path in FILES for node in ast.walk(payload.tree(path)) if isinstance(node, ast.IfExp)
    ]
    nested = {
        f"{label(path)}:{node.lineno}"
        for path, node in conditions
        if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse))
    }
    assert nested == set()


def banned(path: Path) -> list[str]:
    """Words of a file's place and names of its classes that say nothing."""
    parts = set(path.relative_to(PLUGINS).with_suffix("").parts) - {"module_utils", "plugin_utils"}
    classes = [node.name for node in ast.walk(payload.tree(path)) if isinstance(node, ast.ClassDef)]
    words = {word for part in parts for word in part.split("_")} & BANNED_NAMES
    return sorted(words) + [name for name in classes if name.lower().endswith(tuple(BANNED_NAMES))]


def test_names_say_something() -> None:
    assert {label(path): banned(path) for path in FILES if banned(path)} == {}


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
    "virt_domain": 315,  # with all that is looked at before a disk or a definition goes, and the check of seeds
    "virt_domains": 315,  # and all that a definition may need of its host
    "virt_domain_info": 150,
    "virt_host_info": 62,  # with thin pools, and the notes on disks that are being removed
    "virt_image": 168,  # likewise, and every style of lists of checksums, and archives
}
BUDGETS_KIB |= {
    "virt_pool": 86,
    "virt_network": 92,  # with the addresses, routes and packet filter of the host
    "virt_network_info": 47,
    "virt_pool_info": 72,  # with the thin pools of volume groups
    "virt_nwfilter": 74,
    "virt_nwfilter_info": 64,
    "virt_disk_move": 238,  # with what goes on in the background, and logical volumes
    "virt_pool_drain": 243,
    "virt_backup": 139,
    "virt_backup_files": 58,
    "virt_backup_info": 58,
    "virt_snapshot": 275,  # with all that is looked at before a file or a definition goes
    "virt_restore": 347,  # with backups, copies of definitions, and all that is looked at before a disk goes
    "virt_prove": 360,  # with all of a restore
    "virt_snapshot_info": 62,
    "virt_secret": 73,
    "virt_secret_info": 70,
    "virt_volume": 159,  # with the snapshots inside it
    "virt_volume_info": 56,
    "virt_image_info": 74,
}  # nouns by table: rows, their options and the stages of a plan
# A move asks the destination for all that a start would ask for, and finds its firmware by the descriptors of both. It
# removes the UEFI variables that a running guest leaves behind, and looks before who has them. It compares what both
# hosts know of a block device, a pool or a server. It carries snapshots, with their files.
BUDGETS_KIB |= {"virt_migrate": 277, "virt_migrations": 277, "virt_tls": 47}
BUDGETS_KIB |= {
    "virt_state": 73,  # with what a guest does that is asked to shut down
    "virt_state_info": 19,  # who copies a definition copies its record: it tells whose it is
    "virt_bridge": 54,
    "virt_firewall": 36,
    "virt_daemon": 44,  # with leases
    "virt_mounts": 53,  # with encrypted devices and images
    "virt_tuning": 37,
    "virt_writable": 45,
    "virt_addresses": 52,
    "virt_query": 63,  # with what protects guests
}


@pytest.mark.parametrize("module", MODULES, ids=label)
def test_payload_stays_in_its_budget(module: Path) -> None:
    budget_kib, weight = BUDGETS_KIB.get(module.stem, DEFAULT_BUDGET_KIB), payload.payload(module)
    names = "\n".join(map(label, weight.files))
    assert weight.kib <= budget_kib, (
        f"{module.stem} brings {weight.kib:.0f} KiB to the host, its budget is {budget_kib} KiB:\n{names}"
    )
