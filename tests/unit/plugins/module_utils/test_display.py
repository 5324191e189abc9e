"""Nobody's screen is opened to the network unless that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.corral.virt.plugins.module_utils._core.errors import Refused
from ansible_collections.corral.virt.plugins.module_utils._domain import fields_graphics
from ansible_collections.corral.virt.plugins.module_utils._domain.model_domain import (
    Display,
    DisplayDefaults,
    GuestSpec,
)
from ansible_collections.corral.virt.plugins.module_utils._guest import files_qemu
from ansible_collections.corral.virt.plugins.module_utils._guest.plan_guest_options import check_display
from ansible_collections.corral.virt.plugins.module_utils._guest.run_guest_arguments import imported
from ansible_collections.corral.virt.plugins.module_utils._xml.tree import parse

OPEN = Display("vnc", ("0.0.0.0",), password=False, tls=False)
LOCAL = Display("vnc", ("127.0.0.1",), password=False, tls=False)
SPICE = Display("spice", ("::",), password=False, tls=False)
NOWHERE = DisplayDefaults()

REFUSED = [
    # what the task says of graphics, before, after, what the host says
    ({"listen": "0.0.0.0"}, [], [OPEN], NOWHERE),
    ({"listen": "0.0.0.0"}, [LOCAL], [OPEN], NOWHERE),
    ({"keymap": "de"}, [OPEN], [OPEN], NOWHERE),
    ({"type": "spice"}, [LOCAL, SPICE], [LOCAL, SPICE], NOWHERE),
    ({"listen": "192.0.2.1"}, [], [Display("vnc", ("192.0.2.1",), password=False, tls=False)], NOWHERE),
    ({"listen": "hyper1"}, [], [Display("vnc", ("hyper1",), password=False, tls=False)], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", ("",), password=False, tls=False)], DisplayDefaults({"vnc": "0.0.0.0"})),
    ({"type": "vnc"}, [], [OPEN], DisplayDefaults(protected=frozenset({"spice"}))),
    (None, [], [OPEN], NOWHERE),  # by option xml
    (None, [LOCAL], [LOCAL, SPICE], NOWHERE),
    (None, [], [Display("vnc", ("0.0.0.0",), password=True, tls=False), SPICE], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", ("127.0.0.1", "network lan"), password=False, tls=False)], NOWHERE),
]


@pytest.mark.parametrize(("said", "before", "after", "host"), REFUSED)
def test_an_unprotected_display_is_not_opened_by_a_task(
    said: dict[str, str] | None, before: list[Display], after: list[Display], host: DisplayDefaults
) -> None:
    with pytest.raises(
        Refused, match=r"of web1 on .* has neither password nor TLS.*127\.0\.0\.1.*password.*allow_unprotected"
    ):
        check_display(GuestSpec("web1", graphics=said), before, after, lambda: host)
    assert check_display(GuestSpec("web1", graphics=said, allow_unprotected=True), before, after, lambda: host) == []


def test_a_host_is_not_asked_about_displays_that_nobody_else_reaches() -> None:
    assert check_display(GuestSpec("web1"), [], [LOCAL], lambda: pytest.fail("asked")) == []


QUIET = [
    ({"type": "vnc"}, [], [LOCAL], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", ("::1",), password=False, tls=False)], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", ("localhost",), password=False, tls=False)], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", ("",), password=False, tls=False)], NOWHERE),
    ({"type": "vnc"}, [], [Display("vnc", (), password=False, tls=False)], NOWHERE),  # a socket
    ({"type": "vnc"}, [], [Display("vnc", ("0.0.0.0",), password=True, tls=False)], NOWHERE),
    ({"type": "spice"}, [], [Display("spice", ("0.0.0.0",), password=False, tls=True)], NOWHERE),
    ({"type": "vnc"}, [], [OPEN], DisplayDefaults(protected=frozenset({"vnc"}))),
    ({"type": "none"}, [OPEN], [], NOWHERE),
]


@pytest.mark.parametrize(("said", "before", "after", "host"), QUIET)
def test_a_protected_display_is_nobodys_business(
    said: dict[str, str], before: list[Display], after: list[Display], host: DisplayDefaults
) -> None:
    assert check_display(GuestSpec("web1", graphics=said), before, after, lambda: host) == []


@pytest.mark.parametrize("said", [None, {"type": "spice"}])
def test_a_display_that_the_task_does_not_mention_is_only_warned_about(said: dict[str, str] | None) -> None:
    spice = Display("spice", ("127.0.0.1",), password=False, tls=False)
    (note,) = check_display(GuestSpec("web1", graphics=said), [OPEN, spice], [OPEN, spice], lambda: NOWHERE)
    assert note.startswith("vnc of web1 on 0.0.0.0 has neither password nor TLS: whoever reaches its port")


@pytest.mark.parametrize(
    ("xml", "display"),
    [
        ("<graphics type='vnc' listen='0.0.0.0' passwd='x'><listen type='address' address='0.0.0.0'/></graphics>",
         Display("vnc", ("0.0.0.0",), password=True, tls=False)),
        ("<graphics type='vnc' listen='::'/>", Display("vnc", ("::",), password=False, tls=False)),
        ("<graphics type='vnc' passwd=''><listen type='address'/></graphics>", Display("vnc", ("",), password=False, tls=False)),
        ("<graphics type='vnc' socket='/run/x'/>", Display("vnc", (), password=False, tls=False)),
        ("<graphics type='vnc'><listen type='socket' socket='/run/x'/></graphics>", Display("vnc", (), password=False, tls=False)),
        ("<graphics type='spice' defaultMode='secure'><listen type='network' network='lan'/></graphics>",
         Display("spice", ("network lan",), password=False, tls=True)),
    ],
)  # fmt: skip
def test_what_a_definition_says_of_a_display(xml: str, display: Display) -> None:
    assert fields_graphics.displays(parse(f"<domain><devices>{xml}<graphics type='sdl'/></devices></domain>")) == [
        display
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", DisplayDefaults()),
        ('#vnc_listen = "0.0.0.0"\n', DisplayDefaults()),
        ('vnc_listen = "0.0.0.0"\nvnc_listen = "127.0.0.1"\n', DisplayDefaults({"vnc": "0.0.0.0"})),
        ("vnc_tls = 1\nspice_sasl = 0\n", DisplayDefaults(protected=frozenset({"vnc"}))),
        ('vnc_password = ""\nspice_password = "x"\n', DisplayDefaults(protected=frozenset({"spice"}))),
    ],
)
def test_what_a_host_says_of_all_displays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, told: DisplayDefaults
) -> None:
    (tmp_path / "qemu.conf").write_text(text)
    monkeypatch.setattr(files_qemu, "_CONF", str(tmp_path / "qemu.conf"))
    assert files_qemu.displays() == told


@pytest.mark.parametrize(("address", "told"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_a_display_whose_password_cannot_be_seen_is_no_argument(address: str, told: bool) -> None:
    """Said to the guest, the arguments would be refused, or open it where its password is gone."""
    xml = f"""<domain type='kvm'><name>web1</name><memory>1024</memory><os><type>hvm</type></os><devices>
      <graphics type='vnc' autoport='yes'><listen type='address' address='{address}'/></graphics></devices></domain>"""
    assert ("graphics" in imported(xml, autostart=False).arguments) is told
