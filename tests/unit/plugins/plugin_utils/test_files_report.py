"""Files of a backup in reports: what the module tells, as data and as a table."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, tables


def test_names_of_a_directory_are_listed() -> None:
    known = {"name": "hosts", "kind": "file", "size_bytes": 2048, "mode": "0644", "modified": "2026-11-24T17:03:10Z"}
    odd = {"name": "a\\x07", "kind": "unknown", "size_bytes": 0, "mode": "", "modified": ""}
    told: dict[str, t.Any] = {"name": "web1", "point": "p", "entries": [known, odd]}
    report = report_data.data("files", {"h1": told}, [], None)
    assert [line.split() for line in tables.text(report).splitlines()] == [
        ["HOST", "MODE", "KIND", "SIZE", "MODIFIED", "NAME"],
        ["h1", "0644", "file", "2.0", "KiB", "2026-11-24T17:03:10Z", "hosts"],
        ["h1", "-", "unknown", "-", "-", "a\\x07"],
    ]
    assert report_data.unreadable("files", {"h1": {"entries": [{"name": 1}]}}, None) == ["h1"]
