"""The table of what options can reach, for the guide of the web console: made from reach.yml. `--write` puts it there."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.corral.virt.plugins.plugin_utils._commands import option_reach
from ansible_collections.corral.virt.plugins.plugin_utils._commands.option_reach import Reach
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]

ACTIONS = ("create", "change", "migrate", "drain", "create_volume")  # of the console


def rows() -> list[tuple[str, ...]]:
    """A kind a row, with the options that reach it."""
    known = {place: reach for action in ACTIONS for place, reach in option_reach.table(action).items()}
    found: list[tuple[str, ...]] = []
    for kind in option_reach.kinds().values():
        places = list(_shortest(known, kind))
        if places and kind.within not in ("guest", "amount"):
            found.append((kind.text, ", ".join(map(_option, places))))
    return found


def _shortest(known: dict[str, Reach | None], kind: Reach) -> Iterator[str]:
    """The options of a kind; where all in an option are of it, that one, with a dot at its end."""
    told: set[str] = set()
    for place in (one for one, reach in known.items() if reach == kind):
        holders = [
            holder
            for holder in option_reach.above(place)
            if {reach for one, reach in known.items() if one.startswith(f"{holder}.") and reach} == {kind}
            and not known.get(holder)
        ]
        name = f"{holders[-1]}." if holders else place
        if name not in told and name != "virt_group":
            told.add(name)
            yield name


def _option(name: str) -> str:
    if name.endswith("."):
        return f"all of ``{name[:-1]}``"
    values = option_reach.harmless(name)
    more = f" (not {', '.join(map(_value, values))})" if values else ""
    return f"``{name}``{more}"


def _value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else value
    return f"``{text}``" if text != "" else "empty"


HEAD = ("Reaches", "Options that a rule must name")
TABLE = Table("reach_table", GUIDES / "guide_console.rst", HEAD, rows)

if __name__ == "__main__":
    TABLE.main()
