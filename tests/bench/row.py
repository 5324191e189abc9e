"""One figure beside a peer's, and the table of many."""

from __future__ import annotations

import dataclasses
import typing as t

HEADINGS = ("bench", "n", "ours", "peer", "peer's", "ratio", "target", "ok", "note")


@dataclasses.dataclass(frozen=True)
class Row:
    """What we need (`ours`) beside what a peer needs for the same work; less is better. A peer can be a limit, too."""

    name: str
    n: int
    ours: float
    peer: str
    peer_value: float | None  # None: it cannot run, and `note` says why
    unit: str
    target: float | None = None  # the least ratio that is asked for
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times what we need the peer needs: more is better."""
        return None if self.peer_value is None else self.peer_value / self.ours

    @property
    def ok(self) -> bool:
        """Whether the target is met; a target that could not be measured is not."""
        return self.target is None or (self.ratio is not None and self.ratio >= self.target)

    def data(self) -> dict[str, t.Any]:
        """The row for build/bench.json."""
        rounded = {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in dataclasses.asdict(self).items()
        }
        return {**rounded, "ratio": None if self.ratio is None else round(self.ratio, 3), "ok": self.ok}

    def cells(self) -> tuple[str, ...]:
        """The row for people."""

        def shown(value: float | None, form: str) -> str:
            return "-" if value is None else form.format(value)

        amount = f"{{:.{2 if self.unit == 's' else 1}f}} {self.unit}"
        ok = "" if self.target is None else ("ok" if self.ok else "MISSED")
        figures = (shown(self.peer_value, amount), shown(self.ratio, "{:.2f}"), shown(self.target, "{:g}"))
        return (self.name, str(self.n), amount.format(self.ours), self.peer, *figures, ok, self.note)


def table(rows: t.Sequence[Row]) -> str:
    """Rows in aligned columns."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
