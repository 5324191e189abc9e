"""Which checks are made again: those of which something has changed since they passed."""

from __future__ import annotations

import importlib
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.tests.tools import passed

MADE = [
    sys.executable,
    "-c",
    "import pathlib, sys; p = pathlib.Path('made'); p.write_text((p.exists() and p.read_text() or '') + 'x')",
]


LATE = "def late():\n    from ansible_collections.corral.virt.plugins.b import (\n        one,\n        two,\n    )\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of three files."""
    monkeypatch.setattr(passed, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text(".cache\nmade\n")
    for name in ("a.yml", "docs/b.rst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def made(checkout: Path) -> int:
    """How often the command ran."""
    return len((checkout / "made").read_text()) if (checkout / "made").exists() else 0


def test_what_passed_is_made_again_when_it_changes(checkout: Path) -> None:
    words = ["lint", "*.yml", "docs", "--", *MADE]
    changes: list[t.Callable[[], object]] = [
        dict,
        lambda: (checkout / "docs/b.rst").write_text("new"),
        (checkout / "a.yml").unlink,
    ]
    for runs, change in enumerate(changes, start=1):
        change()
        assert (passed.main(words), made(checkout)) == (0, runs)
        assert (passed.main(words), made(checkout)) == (0, runs)
    (checkout / "docs/new.rst").touch()
    assert (passed.main(words), made(checkout)) == (0, 4)
    (checkout / "other").touch()
    assert (passed.main(words), made(checkout)) == (0, 4)


def test_another_command_is_another_check_and_what_fails_has_not_passed(checkout: Path) -> None:
    fails = [*MADE[:2], MADE[2] + "; sys.exit(3)"]
    for runs in (1, 2):
        assert (passed.main(["lint", "docs", "--", *fails]), made(checkout)) == (3, runs)
    assert (passed.main(["lint", "docs", "--", *MADE]), made(checkout)) == (0, 3)
    assert (passed.main(["lint", "docs", "--", *MADE, "word"]), made(checkout)) == (0, 4)


def test_what_changes_meanwhile_has_not_passed(checkout: Path) -> None:
    changes = [*MADE[:2], MADE[2] + "; pathlib.Path('docs/b.rst').write_text(p.read_text())"]
    for runs in (1, 2):
        assert (passed.main(["lint", "docs", "--", *changes]), made(checkout)) == (0, runs)


def test_importers_of_what_changed_are_tested_too(checkout: Path) -> None:
    ours = "ansible_collections.corral.virt.plugins"
    texts: dict[str, str] = {
        "plugins/a.py": "",
        "plugins/b.py": f"from {ours} import a\n",
        "plugins/c.py": f"from {ours}.other import x\nfrom {ours}.another import y\n{LATE}",
        "plugins/d.py": f"import {ours}.other\n",
        "plugins/room/__init__.py": "",
        "plugins/e.py": f"from {ours}.other import x\nfrom {ours} import d, room\n",
    }
    for name, text in texts.items():
        (checkout / name).parent.mkdir(exist_ok=True, parents=True)
        (checkout / name).write_text(text)
    assert passed.with_importers(["plugins/a.py", "docs/b.rst"], texts) == {
        "plugins/a.py",
        "plugins/b.py",
        "plugins/c.py",
        "docs/b.rst",
    }
    assert passed.with_importers(["plugins/room/__init__.py"], texts) == {"plugins/room/__init__.py", "plugins/e.py"}


@pytest.fixture
def tested(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[], list[list[str]]]:
    """Run the sanity tests; the files that they were given."""
    monkeypatch.syspath_prepend(passed.__file__.rpartition("/")[0])  # where it finds its own parts
    tool: t.Any = importlib.import_module("ansible_collections.corral.virt.tests.tools.offline_ansible_test")
    given: list[list[str]] = []
    monkeypatch.setattr(tool, "passed", passed)
    monkeypatch.setattr(tool, "ROOT", checkout)

    def noted(argv: list[str]) -> int:
        given.append(argv[2:])
        return 0

    monkeypatch.setattr(tool, "run", noted)

    def run() -> list[list[str]]:
        given.clear()
        assert tool.sanity(["sanity", "--local"]) == 0
        return list(given)

    return run


def test_sanity_tests_only_what_changed(checkout: Path, tested: t.Callable[[], list[list[str]]]) -> None:
    assert (tested(), tested()) == ([[]], [])
    (checkout / "docs/b.rst").write_text("new")
    assert (tested(), tested()) == ([["docs/b.rst"]], [])


@pytest.mark.parametrize(
    "change", [lambda to: (to / "a.yml").unlink(), lambda to: (to / "galaxy.yml").write_text("name: virt")]
)
def test_sanity_tests_everything(
    checkout: Path, tested: t.Callable[[], list[list[str]]], change: t.Callable[[Path], object]
) -> None:
    tested()
    change(checkout)
    assert tested() == [[]]
