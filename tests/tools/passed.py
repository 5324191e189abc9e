"""What a check has passed: files that have not changed since are not checked again. `make clean` forgets it.

Usage: passed.py NAME PATHSPEC... -- COMMAND...
Runs the command unless it passed before with the same words, the same packages of this environment and the same files
(git's pathspecs).
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = "ansible_collections.corral.virt."


@dataclasses.dataclass(frozen=True)
class Check:
    """A check with all that its answer depends on, but the files."""

    name: str
    words: Sequence[str]

    @property
    def _path(self) -> Path:
        return ROOT / f".cache/passed/{self.name}.json"

    @property
    def _key(self) -> str:
        packages = sorted(f"{each.name} {each.version}" for each in importlib.metadata.distributions())
        return hashlib.sha256("\0".join([sys.version, *self.words, *packages]).encode()).hexdigest()

    def passed(self) -> dict[str, str]:
        """The files that it passed with, by path: hashes."""
        try:
            known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return dict(known["files"]) if known["key"] == self._key else {}

    def note(self, files: Mapping[str, str]) -> None:
        """Remember that it passed."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"key": self._key, "files": files}))
        new.rename(self._path)


def hashes(paths: Iterable[Path]) -> dict[str, str]:
    """Of files, by their path in the checkout."""
    return {str(path.relative_to(ROOT)): _hash(path) for path in sorted(paths) if path.is_file()}


def _hash(path: Path) -> str:
    """Of all that git knows of a file."""
    kind = str(path.readlink()) if path.is_symlink() else f"{path.stat().st_mode & 0o111:o}"
    return hashlib.sha256(kind.encode() + b"\0" + path.read_bytes()).hexdigest()


def tracked(*pathspecs: str) -> list[Path]:
    """What git tracks or would track."""
    words = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--deduplicate", "--", *pathspecs]
    listing = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name] if listing.returncode == 0 else []


def with_importers(changed: Iterable[str], files: Iterable[str]) -> set[str]:
    """Changed files, and the Python files that import them, directly or not."""
    importers: dict[str, set[str]] = {}
    for file in files:
        for imported in _imports(ROOT / file) if file.endswith(".py") else ():
            importers.setdefault(imported, set()).add(file)
    found, todo = set(), list(changed)
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += importers.get(file, ())
    return found


def _imports(path: Path) -> set[str]:
    """Files of the collection that a file may import: a name may be a module or be in one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [each.name for each in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        found |= {name.removeprefix(OURS).replace(".", "/") for name in names if name.startswith(OURS)}
    return {each for name in found for each in (f"{name}.py", f"{name}/__init__.py")}


def main(words: list[str]) -> int:
    """Run a command, or say that it need not run."""
    split = words.index("--")
    name, pathspecs, command = words[0], words[1:split], words[split + 1 :]
    check, files = Check(name, command), hashes(tracked(*pathspecs))
    if files and check.passed() == files:  # without git, nobody knows
        print(f"{name}: nothing has changed since it passed")
        return 0
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code == 0 and files and files == hashes(tracked(*pathspecs)):
        check.note(files)
    return code


if __name__ == "__main__":
    if "--" not in sys.argv[2:]:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
