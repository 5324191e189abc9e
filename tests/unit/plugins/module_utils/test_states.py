"""What is told of a host beside its guests, and what it has noted of those that are protected."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._guest import run_states
from ansible_collections.corral.virt.plugins.module_utils._host import files_corosync, files_ha_records


class _Libvirt:
    """A connection to a host without guests."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def getURI(self) -> str:  # noqa: N802
        """Where it leads."""
        return self._uri

    def getAllDomainStats(self, _kinds: int, _flags: int) -> list[t.Any]:  # noqa: N802
        """None."""
        return []


def described(uri: str, *, links: bool) -> dict[str, t.Any]:
    """What a host says."""
    return run_states.described(_Libvirt(uri), {"name": None, "tags": False, "links": links})


def test_links_are_those_of_the_host_of_the_guests() -> None:
    assert "lo" in described("qemu:///system", links=True)["links"]
    assert described("qemu+tls://hyper2/system", links=True) == {"domains": [], "links": None, "maintenance": None}
    assert described("qemu:///system", links=False) == {"domains": []}


def test_a_guest_is_protected_if_its_definition_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the host of the guests has noted, and only there."""
    found = [{"name": name, "uuid": name} for name in ("kept", "unfit", "plain")]
    monkeypatch.setattr(run_states, "of_guests", lambda *_connection, **_filters: found)
    notes = {"kept": {"problem": ""}, "unfit": {"problem": "its disk is on ext4"}}
    monkeypatch.setattr(files_ha_records, "kept", lambda: notes)
    for uri, protected in (("qemu:///system", ["kept"]), ("qemu+tls://hyper2/system", [])):
        assert [one["name"] for one in described(uri, links=False)["domains"] if one["protected"]] == protected


def refuse(*_file: t.Any, **_how: t.Any) -> t.NoReturn:
    """What root never meets."""
    raise PermissionError


def test_the_members_of_a_cluster_are_those_of_corosync(tmp_path: Path) -> None:
    path = tmp_path / "corosync.conf"
    assert files_corosync.members(str(path)) == {}
    nodes = (
        "node {\n\t\tname: a.b\n\t\tring0_addr: 10.0.0.1\n\t\tring1_addr: fd00::1\n\t}\n\tnode {\n\t\tname: c\n\t}\n"
    )
    path.write_text(f"totem {{\n\tcluster_name: x\n}}\nnodelist {{\n\t{nodes}}}\nquorum {{\n\tname: no\n}}\n")
    assert files_corosync.members(str(path)) == {"a.b": ["10.0.0.1", "fd00::1"], "c": []}


def test_what_a_host_notes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notes")
    assert files_ha_records.kept(path) == {} and files_ha_records.fencing(path) is None
    monkeypatch.setattr("builtins.open", refuse)
    assert files_ha_records.kept(path) == {}, "of a user who may only look"
    monkeypatch.undo()
    entry = {"at": "t", "from": "a", "to": "b", "why": "recovered from a"}
    Path(path).write_text(json.dumps({"u": {"directory": "/srv", "owner": "b", "history": [entry], "problem": ""}}))
    known = {"directory": "/srv", "owner": "b", "resource": "", "problem": "", "history": [entry]}
    assert files_ha_records.kept(path) == {"u": known}
    Path(path).write_text(json.dumps({"tested": "t", "devices": {"b": {"ok": False, "says": "", "why": "silent"}}}))
    assert files_ha_records.fencing(path) == {
        "tested": "t",
        "devices": {"b": {"ok": False, "says": "", "why": "silent"}},
    }
