"""Snapshots in reports: what the module tells, as data and as a table."""

from __future__ import annotations

import typing as t

from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk, Tree
from ansible_collections.corral.virt.plugins.module_utils._snapshot import plan_snapshot_info
from ansible_collections.corral.virt.plugins.plugin_utils._report import report_data, tables

DISK = SnapshotDisk("vda", "external", "/p/1", "qcow2", "/p/0", "qcow2")


def test_snapshots_are_shown_below_those_that_they_stand_on() -> None:
    tree = Tree([Snapshot("a", 0, disks=(DISK,)), Snapshot("b", 60, "a", current=True, disks=(DISK,))])
    found = plan_snapshot_info.described(tree, [], {"/p/1": 3 * 1024**2}, 120)
    told: dict[str, t.Any] = {"guests": [{"name": "web1", "snapshots": found}, {"name": "db1", "snapshots": []}]}
    report = report_data.data("snapshots", {"h1": told}, ["h2"], None)
    assert report["hosts"][0]["snapshots"][1]["parent"] == "a"
    assert [line.split() for line in tables.text(report).splitlines()[1:3]] == [
        ["h1", "web1", "a", "1970-01-01T00:00:00Z", "external", "3.0", "MiB", "-"],
        ["h1", "web1", "b", "1970-01-01T00:01:00Z", "external", "3.0", "MiB", "stands", "on", "it"],
    ]
    assert report_data.data("snapshots", {"h1": told}, [], ["db1"])["hosts"][0]["snapshots"] == []
    assert report_data.data("snapshots", {"h1": told}, [], ["nobody"])["hosts"] == [], "as of other reports"
    assert len(report_data.data("snapshots", {"h1": told}, [], ["web1"])["hosts"][0]["snapshots"]) == 2
    assert report_data.unreadable("snapshots", {"h1": {"guests": [{"name": 1}]}}, None) == ["h1"]
