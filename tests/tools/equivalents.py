"""Mutants that no test can notice, as they do what the original does: `equivalents.yml`, each with the reason.

A mutant is known by its file, its function or constant, and its line before and after: that stays while other lines
come and go, and an edit of the line itself asks again.
"""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

import yaml

if t.TYPE_CHECKING:
    from mutants import Mutant

__all__ = ["LIST", "Equivalent", "key", "read"]

LIST = Path(__file__).with_name("equivalents.yml")

Key = tuple[str, str, str, str]


@dataclasses.dataclass(frozen=True)
class Equivalent:
    """One entry of the list."""

    file: str  # below plugins/module_utils/
    function: str  # or the class and its method, or the constant
    before: str
    after: str
    reason: str

    @property
    def key(self) -> Key:
        """What tells it from other mutants."""
        return f"plugins/module_utils/{self.file}", self.function, self.before, self.after


def key(mutant: Mutant) -> Key:
    """The same of a mutant."""
    return mutant.file, ".".join(mutant.names), mutant.before, mutant.after


def read(path: Path = LIST) -> dict[Key, Equivalent]:
    """The list."""
    entries = [Equivalent(**entry) for entry in yaml.safe_load(path.read_text()) or ()]
    return {entry.key: entry for entry in entries}
