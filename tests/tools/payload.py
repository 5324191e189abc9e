"""What travels to a host with each module: the files of module_utils it drags in.

Follows imports as ansible-core does when it packs a module: every import statement anywhere, in functions and under
TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMESPACE = "ansible_collections.corral.virt."


# These run on the controller only, over what other modules returned and what the user said: nothing of them is sent to
# a host.
ON_THE_CONTROLLER = frozenset(
    {
        "virt_arguments",
        "virt_balance",
        "virt_find",
        "virt_from_salt",
        "virt_import",
        "virt_known_hosts",
        "virt_place",
        "virt_ready",
        "virt_report",
        "virt_simulate",
    }
)


@dataclasses.dataclass(frozen=True)
class Payload:
    """One module and all it needs from this collection."""

    module: str
    files: tuple[Path, ...]  # of module_utils, without the module itself
    lines: int
    kib: float  # compressed


@functools.cache
def tree(path: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text(), str(path))


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports, `from a import b` as both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Relative imports do not work in modules found under their short name: keep them visible as what they are.
            origin = "." * node.level + (node.module or "")
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def locate(name: str) -> Path | None:
    """The file of this collection that a dotted name stands for."""
    if not name.startswith(NAMESPACE):
        return None
    place = ROOT / name.removeprefix(NAMESPACE).replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def closure(path: Path) -> set[Path]:
    """All files of module_utils that a file needs, directly or not."""
    seen: set[Path] = set()
    todo = [path]
    while todo:
        found = {file for name in imports(todo.pop()) if (file := locate(name)) and "module_utils" in file.parts}
        todo += found - seen
        seen |= found
    return seen


def payload(module: Path) -> Payload:
    """Weigh one module."""
    shipped = sorted(closure(module))
    contents = [path.read_bytes() for path in (module, *shipped)]
    return Payload(
        module=module.stem,
        files=tuple(shipped),
        lines=sum(content.count(b"\n") for content in contents),
        kib=sum(len(zlib.compress(content)) for content in contents) / 1024,
    )


def modules() -> list[Path]:
    """The collection's modules."""
    return sorted(path for path in (ROOT / "plugins/modules").glob("*.py") if path.stem != "__init__")


def main() -> None:
    """Print the table."""
    print(f"{'module':20} {'files':>5} {'lines':>6} {'KiB':>5}")
    for module in modules():
        weight = payload(module)
        print(f"{weight.module:20} {len(weight.files):5} {weight.lines:6} {weight.kib:5.0f}")


if __name__ == "__main__":
    main()
