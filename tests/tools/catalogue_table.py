"""The table of the catalogue's images, for the guide: made from the catalogue. `--write` puts it there."""

from __future__ import annotations

from urllib.parse import urlsplit

from ansible_collections.corral.virt.plugins.plugin_utils import _catalogue
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]


def rows() -> list[tuple[str, ...]]:
    """An image a row."""
    found: list[tuple[str, ...]] = []
    for name, entry in _catalogue.entries().items():
        image = _catalogue.resolve(name)
        signed = "yes" if image["signature"] else "no"
        found.append(
            (
                f"``{name}``",
                ", ".join(entry["arch"]),
                f"``{entry['user']}``",
                urlsplit(image["url"]).netloc,
                entry["algorithm"],
                signed,
            )
        )
    return found


HEAD = ("Name", "Architectures", "User", "From", "Checksums", "Signed")
TABLE = Table("catalogue_table", GUIDES / "guide_images.rst", HEAD, rows)

if __name__ == "__main__":
    TABLE.main()
