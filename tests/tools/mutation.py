"""Mutation testing of the code that decides: how many changes of it a fast test notices.

Usage: mutation.py, with the environment variables
  MUTATE   files instead of all, separated by spaces
  CHANGED  1: only lines that differ from the merge base with origin/main (on origin/main itself: from the commit
           before), with uncommitted work; or the commit to compare with

Tests are collected once, in one process. Each is run once under coverage, to know which tests run which line (kept in
.cache, and measured again where a test file changed, and for all when a source file did). Then each mutant gets a fork
of the process, in which the changed statement replaces the original in place, and those tests run, until one fails:
cases of tables first, and those first that run the fewest lines, as these are about little else. What BUDGET_S of tests
do not notice is tried again with AGAIN_S of others: those first that noticed another mutant of its file, then one of
each function. What survives that, or is run by no test, survives. A test that takes longer than SLOW_S does not count.
Seconds are those of the processor, so that a busy machine finds the same. No mutant is sampled or left out. Some do what
the original does, and survive any test. Leaves build/mutation.json.
"""

from __future__ import annotations

import ast
import builtins
import collections
import dataclasses
import functools
import gc
import hashlib
import importlib
import inspect
import itertools
import json
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import types
import typing as t
from pathlib import Path

import coverage
import pytest
from _pytest.runner import runtestprotocol
from mutants import Mutant, mutants

from ansible_collections.corral.virt.tests.tools import house

ROOT = Path(__file__).parents[2]
PACKAGE = "ansible_collections.corral.virt."
OURS = (PACKAGE, "tests.")  # modules that may hold a constant
REPORT, MEASURED = ROOT / "build/mutation.json", ROOT / ".cache/mutation.json"
BUDGET_S, AGAIN_S, CASE_S, SLOW_S = 3.0, 12.0, 0.03, 2.0
GRACE_S, WAITING = 5, 10  # a mutant may take longer than its tests did; one that waits, so many times longer
JOBS = 2
# Those of shipped code; what runs Ansible as a program of its own would notice nothing here, and what is slow asks no
# more than tables do.
PROGRAMS = ("detached", "modules", "watched")
IGNORED = [f"--ignore=tests/contract/test_{name}.py" for name in PROGRAMS]
TESTS = ("tests/unit/plugins", "tests/golden", "tests/contract", "-m", "not lab and not slow", *IGNORED)

Item = t.Any  # a collected test
Lines = dict[str, dict[int, set[str]]]  # file -> line -> tests that run it


def targets() -> list[str]:
    """The rooms that decide."""
    root = house.MODULE_UTILS.parents[1]
    return [str(path.relative_to(root)) for path in house.deciding()]


def git(*arguments: str) -> str:
    """What git answers; empty when it fails."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    ).stdout.strip()


def changed_lines(base: str, files: t.Sequence[str]) -> dict[str, set[int]]:
    """Lines of each file that are new or changed since a commit."""
    found: dict[str, set[int]] = collections.defaultdict(set)
    file = ""
    for line in git("diff", "-U0", "--no-color", base, "--", *files).splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            found[file] |= set(range(start, start + count))
    return found


def base_commit(wish: str) -> str:
    """The commit that CHANGED means."""
    if wish != "1":
        return wish
    head, base = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    return base if base and (base != head or git("status", "--porcelain", "--untracked-files=no")) else "HEAD~1"


@dataclasses.dataclass
class Outcome:
    """What became of one mutant."""

    mutant: Mutant
    status: str  # killed, timeout, survived, untested; untried when the run was ended before
    test: str = ""  # that noticed it


class Tests:
    """The collected tests: which of them run which line, and how long they take."""

    def __init__(self, items: t.Sequence[Item]) -> None:
        self.items = {item.nodeid: item for item in items}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.lines: Lines = {}
        self.reach: collections.Counter[str] = collections.Counter()  # how many lines a test runs

    def measure(self) -> None:
        """Run what was not run since it, or any source, was last changed."""
        known = self._known()
        by_file: dict[str, list[Item]] = collections.defaultdict(list)
        for item in self.items.values():
            by_file[item.nodeid.partition("::")[0]].append(item)
        hashes = {file: _digest([ROOT / file]) for file in by_file}
        new = sorted(
            (file for file in by_file if known.get(file, {}).get("hash") != hashes[file]),
            key=lambda file: -len(by_file[file]),
        )
        sources = self._sources()

        def done(number: int, result: object) -> None:
            if result is None:
                print(f"{new[number]} ended the process that ran it, and does not count", flush=True)
                return
            known[new[number]] = t.cast("dict[str, t.Any]", result)
            # an interrupted run goes on from here
            MEASURED.write_text(json.dumps({"sources": sources, "files": known}))

        _forked(
            [functools.partial(_measured, by_file[file], hashes[file]) for file in new], label="measured", done=done
        )
        for file in by_file:
            if file in known:
                self._take(known[file])

    def _take(self, measured: dict[str, t.Any]) -> None:
        names = list(measured["tests"])
        self.seconds.update(measured["tests"])
        self.failed += measured["failed"]
        for source, lines in measured["lines"].items():
            known = self.lines.setdefault(source, {})
            for line, numbers in lines.items():
                known.setdefault(int(line), set()).update(names[number] for number in numbers)
                self.reach.update(names[number] for number in numbers)

    def _sources(self) -> str:
        """Hash of all that may change what a test runs, other test files excepted."""
        paths = [path for folder in ("plugins", "tests") for path in (ROOT / folder).rglob("*") if path.is_file()]
        skipped = (".pyc",)
        return _digest(sorted(path for path in paths if path.suffix not in skipped and not _test_or_tool(path)))

    def _known(self) -> dict[str, t.Any]:
        if MEASURED.exists():
            known = json.loads(MEASURED.read_text())
            if known["sources"] == self._sources():
                return t.cast("dict[str, t.Any]", known["files"])
        return {}

    def of(self, mutant: Mutant) -> list[str]:
        """Those of the first try: cases of tables before what takes long, and of each those that run the fewest lines
        first, as these are about little else.
        """
        return self._within(
            BUDGET_S,
            ((self.seconds[test] > CASE_S, self.reach[test], self.seconds[test], test) for test in self._of(mutant)),
        )

    def others(self, mutant: Mutant, noticed: t.Container[str]) -> list[str]:
        """Those of the second try: first what noticed other mutants of the file, then one of each function."""
        rounds: collections.Counter[str] = collections.Counter()
        ranked = []
        for seconds, test in sorted((self.seconds[test], test) for test in self._of(mutant) - set(self.of(mutant))):
            function = test.partition("[")[0]
            ranked.append((test not in noticed, rounds[function], seconds, test))
            rounds[function] += 1
        return self._within(AGAIN_S, ranked)

    def _within(self, budget_s: float, ranked: t.Iterable[tuple[t.Any, ...]]) -> list[str]:
        tests = [rank[-1] for rank in sorted(ranked)]
        total = itertools.accumulate(self.seconds[test] for test in tests)
        return [test for test, seconds in zip(tests, total, strict=True) if seconds <= budget_s]

    def _of(self, mutant: Mutant) -> set[str]:
        """All that may notice it."""
        lines = self.lines.get(mutant.file, {})
        inside = mutant.kind == "function" or len(mutant.names) > 1
        # A signature and what runs on import are noticed by whatever uses the function or the module.
        reach = range(mutant.line, mutant.line + 1 + mutant.source.count("\n")) if mutant.kind == "function" else lines
        tests = (_running(lines, mutant) if inside else None) or set().union(*(lines.get(line, ()) for line in reach))
        # A function that only the import calls makes constants of the module, which whatever uses it notices. A
        # constant, and a field of a dataclass, has no line of its own, and may be used by those that import it.
        tests = tests or set().union(*lines.values())
        if not tests or mutant.kind in ("constant", "class"):
            tests |= self._of_users(mutant.file)
        return {test for test in tests if self.seconds.get(test, SLOW_S) < SLOW_S}

    def _of_users(self, file: str) -> set[str]:
        users = [source for source in self.lines if _imports(source, file)]
        stated = {test for test in self.seconds if _imports(test.partition("::")[0], file)}
        return stated.union(*(tests for user in users for tests in self.lines[user].values()))


@functools.cache
def _imports(source: str, file: str) -> bool:
    """Whether the one file imports the other."""
    return f"from {PACKAGE}{file.removesuffix('.py').replace('/', '.')} import " in (ROOT / source).read_text()


def _running(lines: dict[int, set[str]], mutant: Mutant) -> set[str]:
    """Tests that run its line, or the one before it in the same statement: a piece of a text has no line of its own."""
    spans = _statements(mutant.file)
    start = max((first for first, last in spans if first <= mutant.line <= last), default=mutant.line)
    return next((lines[line] for line in range(mutant.line, start - 1, -1) if line in lines), set())


@functools.cache
def _statements(file: str) -> list[tuple[int, int]]:
    """First and last line of each."""
    tree = ast.parse((ROOT / file).read_text())
    return [(node.lineno, node.end_lineno or node.lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _test_or_tool(path: Path) -> bool:
    return path.name.startswith("test_") or path.parent.name in ("tools", "lab", "bench", "faults")


def _digest(paths: t.Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(str(path).encode() + path.read_bytes() for path in paths)).hexdigest()


def _measured(items: t.Sequence[Item], digest: str) -> dict[str, t.Any]:
    """Run tests of one file under coverage: seconds of each, and the lines of the collection that each runs."""
    watch = coverage.Coverage(data_file=None, source=[str(ROOT / "plugins/module_utils")], config_file=False)
    seconds: dict[str, float] = {}
    failed = []
    watch.start()
    for item, following in zip(items, [*items[1:], None], strict=True):
        watch.switch_context(item.nodeid)
        started, worked = time.monotonic(), sum(os.times()[:4])
        passed = _passes(item, following)
        seconds[item.nodeid] = max(sum(os.times()[:4]) - worked, (time.monotonic() - started) / WAITING)
        if not passed:
            failed.append(item.nodeid)
            seconds.pop(item.nodeid)
    watch.stop()
    data, numbers = watch.get_data(), {test: number for number, test in enumerate(seconds)}
    lines = {}
    for source in data.measured_files():
        by_line = data.contexts_by_lineno(source).items()
        known = {str(line): sorted(numbers[test] for test in tests if test in numbers) for line, tests in by_line}
        lines[str(Path(source).resolve().relative_to(ROOT))] = {line: tests for line, tests in known.items() if tests}
    return {"hash": digest, "tests": seconds, "failed": failed, "lines": lines}


def _passes(item: Item, following: Item | None) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def _forked(
    jobs: t.Sequence[t.Callable[[], object]], *, label: str, done: t.Callable[[int, object], None] | None = None
) -> list[t.Any]:
    """Results of all jobs, each run in a fork of this process, JOBS at a time.

    None for one that did not end by itself.
    """
    results: list[t.Any] = [None] * len(jobs)
    running: dict[int, tuple[int, int, bytearray]] = {}  # pipe -> job, process, what it wrote
    todo, finished, shown = collections.deque(enumerate(jobs)), 0, 0.0
    signal.signal(signal.SIGTERM, lambda _signal, _frame: todo.clear())
    signal.signal(signal.SIGINT, lambda _signal, _frame: todo.clear())
    gc.freeze()
    while todo or running:
        while todo and len(running) < JOBS:
            number, job = todo.popleft()
            pipe, process = _fork(job)
            running[pipe] = (number, process, bytearray())
        for pipe in select.select(list(running), [], [])[0]:
            number, process, text = running[pipe]
            data = os.read(pipe, 1 << 20)
            text += data
            if data:
                continue
            os.close(pipe)
            os.waitpid(process, 0)
            del running[pipe]
            results[number] = json.loads(bytes(text)) if text else None
            finished += 1
            if done:
                done(number, results[number])
            if time.monotonic() - shown > 20 or finished == len(jobs):
                shown = time.monotonic()
                print(f"{label} {finished} of {len(jobs)}", flush=True)
    return results


def _fork(job: t.Callable[[], object]) -> tuple[int, int]:
    read, write = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process:
        os.close(write)
        return read, process
    code = 1
    try:
        os.close(read)
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        text = json.dumps(job()).encode()
        while text:
            text = text[os.write(write, text) :]
        code = 0
    finally:
        os._exit(code)


def _try(mutant: Mutant, tests: t.Sequence[Item], limit_s: int) -> str | None:
    """In a fork: the test that notices the mutant, or None.

    Takes itself down, with what it started, when it takes too long.
    """
    for clock, alarm, seconds in (
        (signal.ITIMER_PROF, signal.SIGPROF, limit_s),
        (signal.ITIMER_REAL, signal.SIGALRM, WAITING * limit_s),
    ):
        signal.signal(alarm, lambda _signal, _frame: os.killpg(0, signal.SIGKILL))
        signal.setitimer(clock, seconds)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        tests[0].config._tmp_path_factory._basetemp = Path(directory)
        try:
            apply(mutant)
        except Exception:  # noqa: BLE001 - the module cannot be imported with it
            return "import"
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            if not _passes(item, following):
                return str(item.nodeid)
    return ""


def apply(mutant: Mutant) -> None:
    """Replace the statement of the imported module in place: others hold its functions and classes already."""
    module = importlib.import_module(PACKAGE + mutant.file.removesuffix(".py").replace("/", "."))
    namespace = dict(vars(module))
    code = compile(mutant.source, mutant.file, "exec", flags=annotations_flag(), dont_inherit=True)
    builtins.exec(code, namespace)
    for name in mutant.names if mutant.kind == "constant" else mutant.names[:1]:
        old, new = vars(module)[name], namespace[name]
        if mutant.kind == "function":
            _replace_function(old, new)
        elif mutant.kind == "class":
            _replace_members(old, new)
        else:
            _replace_constant(name, old, new)
    if mutant.kind != "class":
        for name, source in _computed((ROOT / mutant.file).read_text(), set(mutant.names)):
            builtins.exec(compile(source, mutant.file, "exec", flags=annotations_flag(), dont_inherit=True), namespace)
            _replace_constant(name, vars(module)[name], namespace[name])


def _computed(source: str, changed: set[str]) -> t.Iterator[tuple[str, str]]:
    """Constants that the module computes from what changed when it is imported, in order, each with its statement."""
    for statement in ast.parse(source).body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        used = {node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name)}
        if isinstance(target, ast.Name) and target.id not in changed and used & changed:
            changed.add(target.id)
            yield target.id, ast.unparse(statement)


def _replace_constant(name: str, old: t.Any, new: t.Any) -> None:
    """In place where that can be: others hold it, also in constants of their own."""
    if isinstance(old, (dict, list, set)) and type(old) is type(new):
        old.clear()
        old.extend(new) if isinstance(old, list) else old.update(new)
    elif dataclasses.is_dataclass(old) and not isinstance(old, type) and type(old) is type(new):
        for field in dataclasses.fields(old):
            object.__setattr__(old, field.name, getattr(new, field.name))  # it may be frozen
    else:
        for module in [one for one in sys.modules.values() if getattr(one, "__name__", "").startswith(OURS)]:
            if vars(module).get(name) is old:
                setattr(module, name, new)


def annotations_flag() -> int:
    """Of `from __future__ import annotations`, which every file has."""
    import __future__

    return __future__.annotations.compiler_flag


def _replace_function(old: t.Any, new: t.Any) -> None:
    old, new = inspect.unwrap(old), inspect.unwrap(new)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _replace_members(old: type, new: type) -> None:
    for name, value in vars(new).items():
        if name in ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"):
            continue
        known = vars(old).get(name)
        plain = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if (
            isinstance(plain, types.FunctionType)
            and known is not None
            and name != "__init__"
            and not name.startswith("__dataclass")
        ):
            before = known.fget if isinstance(known, property) else getattr(known, "__func__", known)
            if isinstance(before, types.FunctionType) and before.__code__.co_freevars == plain.__code__.co_freevars:
                _replace_function(before, plain)
        elif (
            isinstance(plain, types.FunctionType)
            and known is not None
            and plain.__code__.co_freevars == known.__code__.co_freevars == ()
        ):
            _replace_function(known, plain)
        elif name == "__init__" or not name.startswith("_") or not callable(value):
            try:
                setattr(old, name, value)
            except (AttributeError, TypeError):
                continue


class Mutation:
    """A pytest plugin: instead of a run of the tests, a run of the mutants."""

    def __init__(self, files: t.Sequence[str], only: dict[str, set[int]] | None) -> None:
        self.files, self.only = files, only
        self.outcomes: list[Outcome] = []

    def pytest_collection(self) -> None:
        """Let hypothesis try the same examples each time."""
        import hypothesis  # its own plugin must come first

        hypothesis.settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
        hypothesis.settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the tests, then try each mutant."""
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        chosen = self._mutants()
        print(f"{len(chosen)} mutants of {len({mutant.file for mutant in chosen})} files", flush=True)
        if chosen:
            tests = Tests(session.items)
            tests.measure()
            if tests.failed:
                print(
                    f"{len(tests.failed)} tests fail without a mutant and do not count: {', '.join(tests.failed[:5])}"
                )
            self._try_all(tests, chosen)
        return True

    def _mutants(self) -> list[Mutant]:
        only = self.only
        arguments = [
            ((ROOT / file).read_text(), file, None if only is None else only.get(file, set())) for file in self.files
        ]
        with multiprocessing.get_context("fork").Pool(JOBS) as pool:
            return [mutant for found in pool.starmap(mutants, arguments, chunksize=1) for mutant in found]

    def _try_all(self, tests: Tests, chosen: t.Sequence[Mutant]) -> None:
        """With the tests of the first try; what survives them, with others. Nothing is after the run was ended."""
        self.outcomes = [Outcome(mutant, "untested") for mutant in chosen]
        tried = [(outcome, names) for outcome in self.outcomes if (names := tests.of(outcome.mutant))]
        for outcome, _names in tried:
            outcome.status = "untried"
        self._try_each(tests, tried, "tried")
        if not any(outcome.status == "untried" for outcome in self.outcomes):
            noticed = {(outcome.mutant.file, outcome.test) for outcome in self.outcomes}
            again = [
                (outcome, tests.others(outcome.mutant, {test for file, test in noticed if file == outcome.mutant.file}))
                for outcome in self.outcomes
                if outcome.status == "survived"
            ]
            self._try_each(tests, [(outcome, names) for outcome, names in again if names], "tried again")

    def _try_each(self, tests: Tests, tried: t.Sequence[tuple[Outcome, list[str]]], label: str) -> None:
        # by file: tests that noticed others, the last first
        noticed: dict[str, list[str]] = collections.defaultdict(list)

        def job(outcome: Outcome, names: list[str]) -> str | None:
            first = [name for name in noticed[outcome.mutant.file] if name in names]
            order = [*first, *(name for name in names if name not in first)]
            limit_s = GRACE_S + int(5 * sum(tests.seconds[name] for name in names))
            return _try(outcome.mutant, [tests.items[name] for name in order], limit_s)

        def done(number: int, result: object) -> None:
            outcome = tried[number][0]
            outcome.test = str(result or "")
            outcome.status = "timeout" if result is None else "killed" if result else "survived"
            if result:
                known = noticed[outcome.mutant.file]
                noticed[outcome.mutant.file] = [outcome.test, *(name for name in known if name != outcome.test)][:30]

        _forked([functools.partial(job, *each) for each in tried], label=label, done=done)


_COUNTED = ("mutants", "killed", "timeouts", "survived", "untested")


def report(outcomes: t.Sequence[Outcome], scope: str, seconds: float) -> dict[str, t.Any]:
    """Counts per file, and every survivor."""
    untried = sum(outcome.status == "untried" for outcome in outcomes)
    if untried:
        scope += f"; ended early: {untried} mutants were not tried and are not counted"
    outcomes = [outcome for outcome in outcomes if outcome.status != "untried"]
    files: dict[str, dict[str, t.Any]] = {}
    for outcome in outcomes:
        fresh: dict[str, t.Any] = {**dict.fromkeys(_COUNTED, 0), "score": 100.0, "survivors": []}
        row = files.setdefault(outcome.mutant.file, fresh)
        alive = outcome.status in ("survived", "untested")
        row["mutants"] += 1
        row["killed"] += not alive
        row["timeouts"] += outcome.status == "timeout"
        row["survived"] += alive
        row["untested"] += outcome.status == "untested"
        row["score"] = round(100 * row["killed"] / row["mutants"], 1)
        if alive:
            mutant = outcome.mutant
            result = {"line": mutant.line, "before": mutant.before, "after": mutant.after, "status": outcome.status}
            row["survivors"].append({"file": mutant.file, **result})
    total = {key: sum(row[key] for row in files.values()) for key in _COUNTED}
    score = round(100 * total["killed"] / total["mutants"], 1) if total["mutants"] else None
    return {"scope": scope, "seconds": round(seconds), "total": {**total, "score": score}, "files": files}


def show(result: dict[str, t.Any]) -> None:
    """Survivors, then the table."""
    for row in result["files"].values():
        for each in row["survivors"]:
            answer = " (no test runs this line)" if each["status"] == "untested" else ""
            print(f"{each['file']}:{each['line']}: {each['before']} -> {each['after']}{answer}")
    print(f"\n{'file':48} {'mutants':>7} {'killed':>7} {'survived':>8} {'score':>6}")
    for file, row in [*result["files"].items(), ("total", result["total"])]:
        name = file.removeprefix("plugins/module_utils/")
        print(
            f"{name:48} {row['mutants']:7} {row['killed']:7} {row['survived']:8} "
            f"{'-' if row['score'] is None else row['score']:>6}"
        )
    print(f"{result['scope']}; {result['seconds']} s; {REPORT.relative_to(ROOT)}")


def main() -> int:
    """Find the mutants, try them, report."""
    started = time.monotonic()
    os.chdir(ROOT)
    files = os.environ.get("MUTATE", "").split() or targets()
    wish, only, scope = os.environ.get("CHANGED", ""), None, "all lines"
    if wish:
        base = base_commit(wish)
        only, scope = changed_lines(base, files), f"lines changed since {git('rev-parse', '--short', base)}"
        files = [file for file in files if only.get(file)]
    mutation = Mutation(files, only)
    arguments = ["-q", "-s", "-p", "no:xdist", *TESTS]
    code = pytest.main(arguments, plugins=[mutation]) if files else 0
    result = report(mutation.outcomes, scope, time.monotonic() - started)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(result, indent=1) + "\n")
    show(result)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
