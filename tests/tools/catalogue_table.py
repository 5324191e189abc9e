"""The table of the catalogue's images, for the guide: made from the catalogue. `--write` puts it there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ansible_collections.corral.virt.plugins.plugin_utils import _catalogue

GUIDE = Path(__file__).parents[2] / "docs/docsite/rst/guide_images.rst"
MARKS = ("..\n  The table is made by tests/tools/catalogue_table.py.\n\n", "\n..\n  End of the table.\n")
HEAD = ("Name", "Architectures", "User", "From", "Checksums", "Signed")


def rows() -> list[tuple[str, ...]]:
    """An image a row."""
    found: list[tuple[str, ...]] = []
    for name, entry in _catalogue.entries().items():
        image = _catalogue.resolve(name)
        signed = "yes" if image["signature"] else "no"
        found.append(
            (f"``{name}``", ", ".join(entry["arch"]), f"``{entry['user']}``", urlsplit(image["url"]).netloc, entry["algorithm"], signed)
        )
    return found


def table() -> str:
    """All rows, as wide as they need to be."""
    widths = [max(len(row[column]) for row in [HEAD, *rows()]) for column in range(len(HEAD))]
    line = "  ".join("=" * width for width in widths)
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [HEAD, *rows()]]
    return "\n".join([line, texts[0], line, *texts[1:], line]) + "\n"


def written(text: str) -> str:
    """A guide with the table as it is now."""
    start, end = MARKS
    return re.sub(re.escape(start) + ".*?" + re.escape(end), lambda _match: start + table() + end, text, flags=re.DOTALL)


if __name__ == "__main__":
    if "--write" in sys.argv:
        GUIDE.write_text(written(GUIDE.read_text()))
    else:
        print(table(), end="")
