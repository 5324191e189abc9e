"""A table in a guide that is made from what it is about, between two marks."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Table"]

GUIDES = Path(__file__).parents[2] / "docs/docsite/rst"
END = "\n..\n  End of the table.\n"


@dataclasses.dataclass(frozen=True)
class Table:
    """The table that a tool of this directory makes."""

    tool: str
    guide: Path
    head: Sequence[str]
    rows: Callable[[], Sequence[Sequence[str]]]
    part: str = ""  # of a tool that makes several

    def text(self) -> str:
        """Head and rows, as wide as they need to be."""
        lines = [self.head, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rule = "  ".join("=" * width for width in widths)
        head, *rows = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
        return "\n".join([rule, head, rule, *rows, rule]) + "\n"

    def written(self, guide: str) -> str:
        """The guide's text with the table as it is now."""
        part = f": {self.part}" if self.part else ""
        start = f"..\n  The table is made by tests/tools/{self.tool}.py{part}.\n\n"
        return re.sub(
            re.escape(start) + ".*?" + re.escape(END), lambda _match: start + self.text() + END, guide, flags=re.DOTALL
        )

    def main(self) -> None:
        """Print it; with `--write`, put it into the guide."""
        if "--write" in sys.argv:
            self.guide.write_text(self.written(self.guide.read_text()))
        else:
            print(self.text(), end="")
