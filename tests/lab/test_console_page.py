"""What the web console's page says of what is odd, missing or revoked. The judge is virsh, or what the browser shows."""

from __future__ import annotations

import functools
import json
import re
import ssl
import typing as t
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from ansible_collections.corral.virt.plugins.module_utils._xml.names import sealed
from ansible_collections.corral.virt.tests.lab.console import (
    PASSWORD,
    Browsing,
    Site,
    browser,
    browsing,
    card,
    connected,
)
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import Patience
from ansible_collections.corral.virt.tests.lab.hypervisors import hypervisors

__all__ = ["browser", "browsing"]

pytestmark = [pytest.mark.lab, pytest.mark.deep]

LAB = Site("conpage")
on = functools.partial(LAB.on, "hyper1")
USERS = [
    {"name": "alice", "password": PASSWORD, "groups": ["admins"]},
    {"name": "bob", "password": PASSWORD, "groups": ["team"]},
]
POLICY: list[dict[str, t.Any]] = [{"who": "group:admins", "may": "*"}, {"who": "group:team", "may": "view"}]
# Neither a display nor a serial port.
GUEST = """<domain type='qemu'><name>{}</name><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain>"""
TWIN = "twin1\u200b"
IDLE_S = 90
TALL = {"width": 1280, "height": 1400}


@pytest.fixture(scope="module", autouse=True)
def console() -> Iterator[str]:
    """Its URL."""
    with hypervisors("conpage", hosts=1):
        LAB.install(console_users=USERS, console_policy=POLICY, console_session_idle=IDLE_S)
        on("nft add rule inet filter input tcp dport 8443 accept")
        for name in ("plain1", "twin1", TWIN):
            on(f"virsh undefine '{name}' || true")
            on("virsh define /dev/stdin", given=GUEST.format(name))
        on("virsh start plain1 || true")
        yield LAB.url
        on("virsh destroy plain1 || true")


def test_a_console_that_the_guest_does_not_have_is_grey_and_is_not_tried_again(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    tickets: list[str] = []
    page.on("request", lambda request: tickets.append(request.url) if "/api/tickets" in request.url else None)
    card(page, "plain1").get_by_role("button", name="Actions of plain1").click()
    for word in ("Display it has no VNC display", "Serial console it has no serial console"):
        item = page.get_by_role("menuitem", name=re.compile(f"^{word.replace(' it', '.*it')}"))
        expect(item).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Escape")
    card(page, "plain1").get_by_role("link", name="plain1").click()
    expect(page.get_by_role("button", name="Display")).to_be_disabled()
    page.goto(f"{LAB.url}/#/console/{LAB.uuid('plain1')}/vnc")
    expect(page.locator("#console-status")).to_have_text(re.compile("^the guest has no VNC display"))
    page.wait_for_timeout(5000)
    assert len(tickets) == 1 and page.get_by_role("button", name="Connect").is_visible()


def test_a_guest_that_the_form_makes_has_a_display_that_no_network_reaches(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    page.get_by_role("button", name="Create guest").click()
    dialog = page.get_by_role("dialog")
    for name, value in {"guest": "made1", "vcpus": "1", "memory": "64MiB", "size": "64MiB"}.items():
        dialog.locator(f"#field-{name}").fill(value)
        expect(dialog.locator(f"#field-{name}")).to_have_attribute("spellcheck", "false")
    dialog.locator("#field-network").select_option("none")
    dialog.get_by_role("button", name="Show plan").click()
    expect(dialog.get_by_text("Where it would go, and how")).to_be_visible()
    dialog.get_by_role("button", name="Create").click()
    made = page.locator(".card[data-guest=made1]")
    expect(made).to_have_attribute("data-state", "running")
    host = str(made.get_attribute("data-host"))
    assert LAB.on(host, "virsh vncdisplay made1").startswith("127.0.0.1:")
    page.goto(f"{LAB.url}/#/console/{LAB.uuid('made1', host)}/vnc")
    connected(page)
    LAB.on(host, "virsh destroy made1; virsh undefine made1 --nvram --remove-all-storage")


def test_the_last_backup_of_a_guest_is_shown_and_that_it_is_late(browsing: Browsing) -> None:
    noted = int(on("date +%s")) - 2 * 86400
    note = "virsh -q metadata plain1 urn:corral:virt:{0}:1 --key {1} --set '{2}' --config --live"
    on(note.format("guest", "corral", "<guest><tag>backup-24h</tag></guest>"))
    on(note.format("backup", "corral-backup", f'<guest seal="{sealed(LAB.uuid("plain1"))}" point="p" at="{noted}"/>'))
    page = browsing.enter(viewport=TALL)
    expect(card(page, "plain1").locator(".warn")).to_contain_text("backup: 2 days ago (late)")
    card(page, "plain1").get_by_role("link", name="plain1").click()
    expect(page.locator("span.warn", has_text="2 days ago (late)")).to_be_visible()
    on(note.format("guest", "corral", "<guest/>"))
    expect(page.locator("span.warn", has_text="2 days ago")).to_have_count(0)
    expect(page.get_by_text("2 days ago")).to_be_visible()


def test_what_protects_a_guest_is_shown_with_its_last_failover(browsing: Browsing) -> None:
    """From what corral-keep and corral-cluster note on the host, in place of which this test writes."""
    uuid = LAB.uuid("plain1")
    note = "virsh -q metadata plain1 urn:corral:virt:guest:1 --key corral --set '{}' --config --live"
    on(note.format('<guest><ha mode="restart" priority="5"/></guest>'))
    page = browsing.enter(viewport=TALL)
    card(page, "plain1").get_by_role("link", name="plain1").click()
    expect(
        page.get_by_text("restart, priority 5, by nobody, as far as is known: its definition is not kept")
    ).to_be_visible()
    last = {"at": "2026-11-30T07:00:00Z", "from": "hyper2", "to": "hyper1", "why": "recovered from hyper2"}
    kept = {"directory": "/srv/vms", "owner": "hyper1 since then", "resource": "guest-plain1", "history": [last]}
    on("cat >/var/lib/libvirt/corral-protected.json", given=json.dumps({uuid: {**kept, "problem": ""}}))
    devices = {"hyper2": {"ok": True, "says": "on"}, "hyper3": {"ok": False, "why": "no answer"}}
    test = {"node": "hyper1", "tested": "2026-11-30T07:00:00+00:00", "devices": devices}
    on(
        "mkdir -p /var/lib/corral-virt/cluster && cat >/var/lib/corral-virt/cluster/fencing.json",
        given=json.dumps(test),
    )
    page.goto(f"{LAB.url}/#/host/hyper1")
    on("systemctl restart corral-console")  # which reads anew; else it asks the host every two minutes
    expect(page.locator("span.warn", has_text="1 of 2 can be used, tested")).to_be_visible()
    page.goto(f"{LAB.url}/#/guest/hyper1/{uuid}")
    failover = "2026-11-30T07:00:00Z from hyper2 to hyper1: recovered from hyper2"
    for text in ("restart, priority 5, by Pacemaker (guest-plain1)", "/srv/vms/.corral/guests", failover):
        expect(page.get_by_text(text)).to_be_visible()
    browsing.problems.clear()  # the browser reports that the server was away
    on("rm /var/lib/libvirt/corral-protected.json /var/lib/corral-virt/cluster/fencing.json")
    on(note.format("<guest/>"))


def test_the_snapshots_of_a_guest_are_counted(browsing: Browsing) -> None:
    """Within a minute, as libvirt has no event of them."""
    images = "/var/lib/libvirt/images"
    disk = (
        f"<disk type='file'><driver name='qemu' type='qcow2'/><source file='{images}/kept1'/><target dev='vda'/></disk>"
    )
    on(f"qemu-img create -q -f qcow2 {images}/kept1 1M")
    on("virsh define /dev/stdin", given=GUEST.format("kept1").replace("</os>", f"</os><devices>{disk}</devices>"))
    page = browsing.enter(viewport=TALL)
    expect(card(page, "kept1")).to_be_visible()
    on(f"virsh snapshot-create-as kept1 before --disk-only --diskspec vda,file={images}/kept1.before")
    expect(card(page, "kept1")).to_contain_text("snapshots: 1, oldest", timeout=90_000)
    card(page, "kept1").get_by_role("link", name="kept1").click()
    expect(page.get_by_text("1, oldest")).to_be_visible()
    on(f"virsh undefine kept1 --snapshots-metadata; rm {images}/kept1*")


def test_names_that_look_alike_are_told_apart_where_it_matters(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    shown = "twin1⟨U+200B⟩"
    expect(page.locator(".card a.name", has_text=shown)).to_be_visible()
    expect(page.locator(".card a.name").first).to_have_attribute("draggable", "false")
    expect(page.get_by_role("button", name="Create guest")).to_be_visible()  # what can be done is known
    page.get_by_role("button", name=f"Actions of {shown}").click()
    page.get_by_role("menuitem", name=re.compile("^Purge")).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_contain_text(shown)
    expect(dialog.locator(".plan")).to_be_visible()
    typed, button = dialog.locator("#typed"), dialog.get_by_role("button", name="Purge")
    typed.fill("twin1")
    expect(button).to_be_disabled()
    typed.fill(shown)
    button.click()
    expect(page.locator(".card a.name", has_text=shown)).to_have_count(0)
    assert "twin1" in on("virsh list --all --name").split(), "the other one stays"


def test_addresses_that_lead_nowhere_end_in_words(browsing: Browsing) -> None:
    page = browsing.enter()
    page.goto(f"{LAB.url}/#/nothing/here")
    expect(page.get_by_text("There is no page nothing/here")).to_be_visible()
    page.goto(f"{LAB.url}/guest/hyper1/x")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.get_by_role("link", name="All hosts and guests").click()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    browsing.problems.clear()  # the browser reports the answer 404


def _me(token: str) -> dict[str, t.Any]:
    """What the server says to a program."""
    request = urllib.request.Request(f"{LAB.url}/api/me", headers={"authorization": f"Bearer {token}"})
    trusting = ssl.create_default_context(cadata=on("cat /etc/corral-console/tls/ca.crt"))
    with urllib.request.urlopen(request, context=trusting) as answer:
        return t.cast("dict[str, t.Any]", json.load(answer))


def test_sessions_and_tokens_are_ended_on_the_page_of_the_users(browsing: Browsing) -> None:
    bob = browsing.enter("bob")
    bob.goto(f"{LAB.url}/#/sessions")
    bob.get_by_label("Name of a new token").fill("nightly")
    bob.get_by_role("button", name="Make token").click()
    token = bob.locator("code.secret").inner_text()
    assert _me(token)["user"] == "bob"
    page = browsing.enter()
    page.goto(f"{LAB.url}/#/users")
    ends = page.get_by_role("button", name="End the token of bob: nightly")
    expect(ends.last).to_be_visible()
    count = ends.count()
    ends.last.click()
    expect(ends).to_have_count(count - 1)
    assert _me(token) == {}
    page.get_by_role("button", name=re.compile("session.* of bob")).first.click()
    expect(bob.get_by_label("Password")).to_be_visible()
    browsing.problems.clear()  # the browser reports answers 401


def _shows_login(page: Page) -> bool:
    return page.get_by_label("Password").is_visible()


def test_an_open_page_alone_does_not_keep_a_session_alive(browsing: Browsing) -> None:
    """Its stream, and what it asks by itself for a guest and its graphs, are no use; keys are."""
    idle, used = browsing.enter(viewport=TALL), browsing.enter(viewport=TALL)
    for page in (idle, used):
        page.goto(f"{LAB.url}/#/guest/hyper1/{LAB.uuid('plain1')}")
    patience = Patience(3 * IDLE_S)
    while not _shows_login(idle):
        assert not patience.is_over, "the page kept its session alive"
        used.keyboard.press("Shift")
        used.wait_for_timeout(5000)
    assert not _shows_login(used)
    browsing.problems.clear()  # the browser reports answers 401
