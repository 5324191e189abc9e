"""The table of the catalogue's images, for the guide: made from the catalogue. `--write` puts it there."""

from __future__ import annotations

from urllib.parse import urlsplit

from ansible_collections.corral.virt.plugins.plugin_utils._images.catalogue import Catalogue
from ansible_collections.corral.virt.tests.tools.guide_table import GUIDES, Table

__all__ = ["TABLE"]


def rows() -> list[tuple[str, ...]]:
    """An image a row."""
    found: list[tuple[str, ...]] = []
    catalogue = Catalogue()
    for name, entry in catalogue.entries.items():
        image = catalogue.resolve(name)
        signed = "yes" if image["signature"] else "no"
        found.append(
            (
                f"``{name}``",
                ", ".join(entry["arch"]),
                f"``{entry['user']}``" if "user" in entry else "(an ISO)",
                urlsplit(image["url"]).netloc,
                entry.get("algorithm", "none"),
                signed,
                f"``{entry['osinfo']}``" if "osinfo" in entry else "",
                *(entry.get("least", {}).get(key, "") for key in ("memory", "disk")),
            )
        )
    return found


HEAD = ("Name", "Architectures", "User", "From", "Checksums", "Signed", "osinfo", "Memory", "Disk")
TABLE = Table("catalogue_table", GUIDES / "guide_images.rst", HEAD, rows)

if __name__ == "__main__":
    TABLE.main()
