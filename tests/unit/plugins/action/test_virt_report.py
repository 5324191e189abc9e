"""Which guests a report is about, decided by what the hosts answered and not by what there is to print."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.corral.virt.plugins.action import virt_report
from ansible_collections.corral.virt.plugins.plugin_utils._report import terminal

SNAPSHOT: dict[str, t.Any] = {
    "name": "before",
    "parent": None,
    **dict.fromkeys(("depth", "age_s", "size_bytes", "merge_bytes"), 0),
    **dict.fromkeys(("created", "description", "state", "kind"), ""),
    **dict.fromkeys(("current", "memory", "scheduled", "deleting"), False),
    "files": [],
}
WEB1 = {"name": "web1", "uuid": "u1", "snapshots": [SNAPSHOT]}
BARE = {"name": "bare", "uuid": "u2", "snapshots": []}
DOMAIN = {
    "name": "web1",
    "uuid": "u1",
    "state": "running",
    "vcpus": {"current": 1},
    "memory": {"current_mib": 1, "maximum_mib": 1},
    **{key: [] for key in ("graphics", "disks", "interfaces")},
}
SNAPSHOTS = {"h1": {"guests": [WEB1]}, "h2": {"guests": [BARE]}}
DOMAINS = {"h1": {"domains": [DOMAIN], "similar": []}}


class _Task:
    check_mode = False


def told(kind: str, results: t.Any, guest: list[str] | None, form: str = "table", **more: t.Any) -> str:
    action = object.__new__(virt_report.ActionModule)
    action._task = _Task()
    options = {"kind": kind, "results": results, "format": form, "guest": guest, "out": None, "group": [*results]}
    asked = more.pop("asked", [*results, *more.get("group", ())])
    return str(action.answer({**options, **more}, {"ansible_play_hosts_all": asked})["text"])


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "only_reports", lambda: True)


@pytest.mark.parametrize("form", ["seed", "table", "json"])
def test_a_guest_with_snapshots_without_and_one_that_is_nowhere(form: str) -> None:
    text = told("snapshots", SNAPSHOTS, ["web1"], form)
    assert "before" in text and "h2" not in text
    text = told("snapshots", SNAPSHOTS, ["bare"], form)
    assert "h2" in text and "before" not in text and "h1" not in text
    with pytest.raises(AnsibleActionFail, match=r"cannot find wbe1: none of h1, h2 has it; did you mean web1 on h1\?"):
        told("snapshots", SNAPSHOTS, ["web1", "wbe1"], form)


@pytest.mark.parametrize("form", ["seed", "table", "json"])
def test_a_host_that_was_not_asked_hides_no_typing_error(form: str) -> None:
    assert "web1" in told("query", DOMAINS, ["web1"], form, group=["h1", "h2", "h3"], asked=["h1", "h3"])
    with pytest.raises(AnsibleActionFail, match="h3 could not be reached and may have it; --limit excludes h2"):
        told("query", DOMAINS, ["wbe2"], form, group=["h1", "h2", "h3"], asked=["h1", "h3"])


def test_what_answered_is_shown_though_another_host_did_not() -> None:
    text = told("console", DOMAINS, ["web1", "db1"], "seed", group=["h1", "h2"], asked=["h1", "h2"])
    assert "web1" in text and "h2\n  (not reached: its guests are not shown)" in text


def test_a_host_that_limit_excludes_is_not_called_unreachable() -> None:
    for form, h2, h3 in (
        ("seed", "(excluded by --limit: its guests are not shown)", "(not reached: its guests are not shown)"),
        ("table", "excluded by --limit", "not reached"),
        ("json", '"reached": false,\n      "excluded": true', '"name": "h3",\n      "reached": false\n'),
    ):
        text = told("query", DOMAINS, None, form, group=["h1", "h2", "h3"], asked=["h1", "h3"])
        assert text.index("h2") < text.index(h2) < text.index("h3") and h3 in text


def test_a_name_that_a_host_knows_as_similar_is_offered_and_does_not_count_as_found() -> None:
    with pytest.raises(AnsibleActionFail, match="did you mean web1 on h1"):
        told("query", {"h1": {"domains": [], "similar": ["web1"]}}, ["wbe1"])
