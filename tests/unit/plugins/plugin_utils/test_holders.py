"""Which host works on a guest of a name."""

from __future__ import annotations

import pytest

from ansible_collections.corral.virt.plugins.plugin_utils._commands.guest_hosts import Asked, HolderVerdict, verdict

HAS, HAS_NOT, SILENT = Asked(frozenset(["web1"])), Asked(frozenset()), Asked(None, reason="no route")
WOULD = Asked(frozenset(), makes=frozenset(["web1"]))


@pytest.mark.parametrize(
    ("state", "asked", "shown_on", "outcome"),
    [
        ("running", {}, None, "go"),
        ("running", {}, "h1", "go"),
        ("running", {}, "h2", "the inventory shows it on h2"),
        ("running", {"h1": HAS}, "h2", "go"),
        ("running", {"h1": SILENT}, "h2", "the inventory shows it on h2"),
        ("running", {"h1": HAS, "h2": HAS_NOT}, None, "go"),
        ("running", {"h1": HAS, "h2": SILENT}, "h2", "go"),
        ("running", {"h1": HAS, "h2": HAS}, None, "cannot tell which web1 is meant: it is on h1 and h2"),
        ("running", {"h1": HAS_NOT, "h2": HAS, "h3": SILENT}, None, "web1 is on h2"),
        ("present", {"h1": WOULD, "h2": HAS, "h3": HAS, "h4": HAS}, None, "web1 is on h2, h3 and h4"),
        ("present", {"h1": WOULD, "h2": WOULD}, None, "none of h1 and h2 has it, and 2 hosts would create it"),
        ("present", {"h1": WOULD, "h2": HAS_NOT}, None, "go"),
        ("present", {"h1": WOULD, "h2": HAS_NOT}, "h2", "go"),  # the inventory is older than the answer
        ("present", {"h1": WOULD, "h2": HAS_NOT}, "h9", "the inventory shows it on h9"),
        ("present", {"h1": WOULD, "h2": SILENT}, None, "h2 could not be queried and may have it (h2: no route)"),
        ("present", {"h1": WOULD, "h2": SILENT}, "h2", "the inventory shows it on h2"),
        ("present", {"h1": SILENT, "h2": HAS}, None, "web1 is on h2"),
        ("rebooted", {"h1": HAS_NOT, "h2": HAS}, None, "web1 is on h2"),
        ("rebooted", {"h1": HAS_NOT, "h2": HAS_NOT}, None, "go"),
        ("absent", {"h1": HAS, "h2": HAS}, None, "go"),
    ],
)
def test_one_host_works_on_a_guest(state: str, asked: dict[str, Asked], shown_on: str | None, outcome: str) -> None:
    found = verdict("web1", state, "h1", asked, shown_on)
    assert found == HolderVerdict(go=True) if outcome == "go" else outcome in found.why and not found.go
    assert found.failed is not (found.go or found.why.startswith("web1 is on "))
    assert ("allow_duplicates: true" in found.why) is found.failed
