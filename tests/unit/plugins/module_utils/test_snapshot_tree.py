"""What is read of libvirt's snapshots, and the tree that they form."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.corral.virt.plugins.module_utils._domain.model_snapshot import Snapshot, SnapshotDisk, Tree
from ansible_collections.corral.virt.plugins.module_utils._domain.xml_snapshot import snapshot
from ansible_collections.corral.virt.plugins.module_utils._storage import run_snapshots

libvirt = pytest.importorskip("libvirt")

# as libvirt 9.0 tells it
DOCUMENT = """
<domainsnapshot>
  <name>before upgrade</name>
  <description>by hand</description>
  <state>disk-snapshot</state>
  <parent><name>first</name></parent>
  <creationTime>1795877646</creationTime>
  <memory snapshot='no'/>
  <disks>
    <disk name='vda' snapshot='external' type='file'>
      <driver type='qcow2'/><source file='/pool/web1.before'/>
    </disk>
    <disk name='vdb' snapshot='internal'/>
    <disk name='sda' snapshot='no'/>
  </disks>
  <domain type='qemu'><devices>
    <disk type='file' device='disk'><driver type='raw'/><source file='/pool/web1.raw'/><target dev='vda'/></disk>
    <disk type='volume' device='disk'><driver type='qcow2'/><source pool='p' volume='b'/><target dev='vdb'/></disk>
    <disk type='file' device='cdrom'><target dev='sda'/></disk>
  </devices></domain>
</domainsnapshot>
"""


def test_a_document_tells_the_files_of_each_disk() -> None:
    """Overlays are of the snapshot; the content of then is in what the disks had."""
    found = snapshot(DOCUMENT, lambda pool, volume: f"/{pool}/{volume}", current=True)
    assert found.disks == (
        SnapshotDisk("vda", "external", "/pool/web1.before", "qcow2", "/pool/web1.raw", "raw"),
        SnapshotDisk("vdb", "internal", None, None, "/p/b", "qcow2"),
        SnapshotDisk("sda", "no"),
    )
    assert (found.name, found.parent, found.created_s, found.state) == (
        "before upgrade",
        "first",
        1795877646,
        "disk-snapshot",
    )
    assert (found.kind, found.ran, found.current, found.files) == ("mixed", True, True, ("/pool/web1.before",))


def test_memory_makes_files_and_kinds() -> None:
    """A file with memory is of the snapshot, too."""
    document = DOCUMENT.replace("<memory snapshot='no'/>", "<memory snapshot='external' file='/pool/web1.memory'/>")
    found = snapshot(document.replace("'internal'", "'no'"), lambda _pool, _volume: None)
    assert (found.kind, found.files) == ("external", ("/pool/web1.before", "/pool/web1.memory"))


def tree(**parents: str | None) -> Tree:
    """A tree of names with their parents; the last is the current one."""
    last = list(parents)[-1]
    return Tree(Snapshot(name, n, parent, current=name == last) for n, (name, parent) in enumerate(parents.items()))


@pytest.mark.parametrize(
    ("parents", "ordered", "lineage"),
    [
        ({"a": None}, "a0", "a"),
        ({"a": None, "b": "a", "c": "b"}, "a0 b1 c2", "c b a"),
        ({"a": None, "b": "a", "c": "a"}, "a0 b1 c1", "c a"),  # a branch
        ({"b": "gone"}, "b0", "b"),  # its parent disappeared meanwhile
    ],
)
def test_parents_come_first(parents: dict[str, str | None], ordered: str, lineage: str) -> None:
    """And the present state stands on a line of them."""
    found = tree(**parents)
    assert " ".join(f"{one.name}{depth}" for depth, one in found.ordered) == ordered
    assert " ".join(one.name for one in found.lineage()) == lineage


def test_descendants_are_all_below() -> None:
    """Also those of other branches."""
    found = tree(a=None, b="a", c="b", d="a")
    assert [one.name for one in found.descendants("a")] == ["b", "d", "c"]
    assert found.children("d") == []


def test_a_chain_may_be_a_thousand_deep() -> None:
    """No function calls itself per level."""
    names = [f"s{n}" for n in range(1000)]
    parents: dict[str, str | None] = dict(zip(names, [None, *names]))
    assert len(tree(**parents).lineage()) == 1000


@pytest.fixture
def domain() -> t.Iterator[t.Any]:
    """A guest of libvirt's test driver, which all connections of a process share."""
    connection = libvirt.open("test:///default")
    found = connection.lookupByName("test")
    yield found
    for one in found.listAllSnapshots():
        one.delete()
    connection.close()


def test_all_names_are_read(domain: t.Any) -> None:
    """libvirt accepts almost any name."""
    names = ["a b", "-x", "line\nbreak", "ünïcode", "%s{{ 1 }}"]
    for name in names:
        xml = f"<domainsnapshot><name>{name}</name></domainsnapshot>"
        domain.snapshotCreateXML(xml)
    found = run_snapshots.tree(domain.connect(), domain.UUIDString())
    assert [one.name for one in reversed(found.lineage())] == names
    assert {one.memory for one in found.by_name.values()} == {"internal"}
