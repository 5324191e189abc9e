"""What is done in the web console's page: by dragging, by keys, by touch, by forms. The judge is virsh."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shlex
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from ansible_collections.corral.virt.tests.faults.boot_sector import boot_sector
from ansible_collections.corral.virt.tests.lab.console import (
    LOOKS,
    PASSWORD,
    PATIENCE_MS,
    Browsing,
    Site,
    browser,
    browsing,
    card,
    connected,
    violations,
    violations_in_both_schemes,
)
from ansible_collections.corral.virt.tests.lab.corral_lab.patience import until
from ansible_collections.corral.virt.tests.lab.hypervisors import (
    IMAGES,
    ROOT,
    hypervisors,
)

__all__ = ["browser", "browsing"]

pytestmark = pytest.mark.lab

LAB = Site("conact")
on = functools.partial(LAB.on, "hyper1")
USERS = [
    {"name": "alice", "password": PASSWORD, "groups": ["admins"]},
    {"name": "bob", "password": PASSWORD, "groups": ["web-team"]},
    {"name": "eve", "password": PASSWORD, "groups": []},
    {"name": "tim", "password": PASSWORD, "groups": ["ci-team"]},
]
POLICY: list[dict[str, t.Any]] = [
    {"who": "group:admins", "may": "*"},
    {"who": "group:web-team", "may": ["view", "start", "shutdown", "migrate", "console"], "guests": "web*"},
    {"who": "group:web-team", "may": "view"},
    {"who": "user:eve", "may": ["view", "audit"]},
    {
        "who": "group:ci-team",
        "may": ["create", "change", "purge"],
        "guests": "ci-*",
        "at_most": {"memory": "128MiB", "vcpus": 1, "disks": 2, "disks.size": "2GiB"},
        "arguments": {"image": "debian-*", "disks": "*", "interfaces": "*", "cloud_init": "*"},
    },
]
# It writes memory and its disk, and its firmware writes to both consoles. No guest's text is a script or a template.
GUEST = """<domain type='qemu'><name>{name}</name><title>&lt;img src=x onerror=alert(1)&gt; {{{{ 1 }}}}</title>
<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><bios useserial='yes'/></os>
<features><acpi/></features><devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{images}/{name}.qcow2'/><target dev='vda' bus='virtio'/></disk><serial type='pty'/>
<graphics type='vnc'><listen type='none'/></graphics><video><model type='vga'/></video></devices></domain>"""
NAMES = ("web1", "web2", "db1")
PAYLOAD_MIB = 300
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL0000000000000000000000000000000000000000000 me@example"
ONE_HOST = """name => { const cards = document.querySelectorAll(`.card[data-guest=${name}]`);
  return cards.length === 1 ? cards[0].dataset.host : ""; }"""
PROGRESS = "name => document.querySelector(`.card[data-guest=${name}] .progress`)?.dataset.migration || ''"
TALL = {"width": 1280, "height": 1400}


@pytest.fixture(scope="module", autouse=True)
def console() -> Iterator[str]:
    """Its URL."""
    with hypervisors("conact", hosts=2):
        LAB.install(console_users=USERS, console_policy=POLICY)
        on("nft add rule inet filter input tcp dport 8443 accept")
        for name in NAMES:
            make(name)
        yield LAB.url


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two guests on the first host that have no disk, so that they move in a moment."""
    names = ("pair1", "pair2")
    for name in names:
        xml = re.sub(r"<disk .*</disk>", "", GUEST.format(name=name, images=IMAGES), flags=re.DOTALL)
        on("virsh define /dev/stdin", given=xml)
        on(f"virsh start {name}")
    yield names
    for name in names:
        for host in LAB.state(name):
            LAB.on(host, f"virsh destroy {name} || true; virsh undefine {name}")


def make(name: str) -> None:
    """A guest with a disk of its own, which runs."""
    path = f"{IMAGES}/{name}.qcow2"
    code = base64.b64encode(boot_sector(20)).decode()
    raw = f"base64 -d >/var/tmp/{name}.raw && truncate -s 1G /var/tmp/{name}.raw"
    fill = f"qemu-io -c 'write -q -P 90 8M {PAYLOAD_MIB}M' {path}"
    on(f"{raw} && qemu-img convert -O qcow2 /var/tmp/{name}.raw {path} && {fill} && rm /var/tmp/{name}.raw", given=code)
    on("virsh define /dev/stdin", given=GUEST.format(name=name, images=IMAGES))
    on(f"virsh pool-refresh default && virsh start {name}")


def where(name: str) -> str:
    """The host on which a guest runs."""
    return next(host for host, state in LAB.state(name).items() if state == "running")


def other(host: str) -> str:
    return "hyper2" if host == "hyper1" else "hyper1"


def host_of(page: Page, name: str) -> Locator:
    return page.locator(f"section[data-group={name}]")


def post(page: Page, path: str, given: dict[str, t.Any]) -> tuple[int, dict[str, t.Any]]:
    """As the page would."""
    script = """async ([path, given]) => { const answer = await fetch(path, {method: "POST", body: JSON.stringify(given),
      headers: {"content-type": "application/json"}}); return [answer.status, await answer.json()]; }"""
    status, answer = page.evaluate(script, [path, given])
    return status, answer


def get(page: Page, path: str) -> t.Any:
    return page.evaluate("path => fetch(path).then((answer) => answer.json())", path)


def order(page: Page, action: str, name: str, **more: t.Any) -> tuple[int, dict[str, t.Any]]:
    given = {"action": action, "arguments": more, "guests": [LAB.uuid(name, where_defined(name))], "confirm": 1}
    return post(page, "/api/jobs", given)


def where_defined(name: str) -> str:
    return next(iter(LAB.state(name)))


def ended(page: Page, number: str) -> dict[str, t.Any]:
    """The job, when it is done."""
    found: dict[str, t.Any] = {}

    def done() -> bool:
        found.update(get(page, f"/api/jobs/{number}"))
        return found["state"] not in ("waiting", "running")

    until(done, PATIENCE_MS / 1000)
    return found


def shown_on(page: Page, name: str) -> str:
    """The host of a guest's card; empty while it has two."""
    return str(page.evaluate(ONE_HOST, name))


def is_on(page: Page, name: str, host: str) -> bool:
    return shown_on(page, name) == host


def confirm(page: Page, word: str) -> None:
    """Press the button of the dialog when what the action would do is shown."""
    page.get_by_role("dialog").get_by_role("button", name=word, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_guest_is_dragged_to_another_host_and_its_console_follows(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    source, dest = where("web1"), other(where("web1"))
    console = browsing.page(page.context)
    console.goto(f"{browsing.url}/#/console/{LAB.uuid('web1', source)}/vnc")
    connected(console, source)
    page.bring_to_front()
    card(page, "web1", source).drag_to(host_of(page, dest))
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Migrate web1 to {dest}")
    expect(dialog).to_contain_text("vda: ")  # what travels
    confirm(page, "Migrate")
    seen: set[str] = set()

    def arrived() -> bool:
        seen.add(page.evaluate(PROGRESS, "web1"))
        return shown_on(page, "web1") == dest

    until(arrived, PATIENCE_MS / 1000)
    assert len(seen - {""}) >= 3, seen
    assert LAB.state("web1") == {dest: "running"}
    connected(console, dest)


def test_refused_hosts_say_why_and_send_nothing(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    source = where("web1")
    on_dest = functools.partial(LAB.on, other(source))
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)

    def verdict(guest: str, target: str) -> str:
        place = host_of(page, target)
        card(page, guest, where(guest)).hover()
        page.mouse.down()
        box = t.cast("dict[str, float]", place.bounding_box())
        for step in range(3):  # as a hand moves
            page.mouse.move(box["x"] + 200, box["y"] + 20 + step)
        expect(place.locator("[data-verdict]")).to_be_visible()
        page.mouse.move(box["x"] + 200, box["y"] + 30)
        text = place.locator("[data-verdict]").inner_text()
        page.mouse.up()
        return text

    assert "web1 is there" in verdict("web1", source)
    mark = {"reason": "new fan", "since": "now"}
    on_dest("cat >/var/lib/libvirt/corral-maintenance.json", given=json.dumps(mark))
    LAB.on("hyper1", "systemctl restart corral-console")  # else it looks once in two minutes
    expect(host_of(page, other(source))).to_contain_text("In maintenance: new fan")
    assert "in maintenance: new fan" in verdict("web1", other(source))
    on_dest("rm /var/lib/libvirt/corral-maintenance.json")
    LAB.on("hyper1", "systemctl restart corral-console")
    expect(host_of(page, other(source))).not_to_contain_text("In maintenance")
    assert sent == [] and page.get_by_role("dialog").count() == 0
    browsing.problems.clear()  # the browser reports that the server was away
    limited = browsing.enter("bob", viewport=TALL)
    expect(card(limited, "db1", where("db1"))).to_be_visible()
    assert card(limited, "db1", where("db1")).get_attribute("draggable") is None
    assert order(limited, "migrate", "db1", to="hyper2")[0] == 403
    browsing.problems.clear()  # the browser reports the answer 403


@pytest.mark.deep
def test_a_guest_is_migrated_by_keys_alone(browsing: Browsing) -> None:
    page = browsing.enter()
    dest = other(where("web1"))
    expect(card(page, "web1", where("web1"))).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("web1")
    page.keyboard.press("Tab")
    page.locator("body").press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("m")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("radio", name=dest)).to_be_focused()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Migrate", exact=True)).to_be_enabled()
    dialog.get_by_role("button", name="Migrate", exact=True).focus()
    page.keyboard.press("Enter")
    until(lambda: shown_on(page, "web1") == dest, PATIENCE_MS / 1000)
    assert LAB.state("web1") == {dest: "running"}


@pytest.mark.deep
def test_a_guest_is_migrated_by_touch(browsing: Browsing) -> None:
    page = browsing.enter(**LOOKS["phone"])
    source, dest = where("web1"), other(where("web1"))
    card(page, "web1", source).get_by_role("button", name="Actions of web1").tap()
    page.get_by_role("menuitem", name="Migrate to").tap()
    page.get_by_role("radio", name=dest).tap()
    page.get_by_role("button", name="Show plan").tap()
    page.get_by_role("button", name="Migrate", exact=True).tap()
    until(lambda: shown_on(page, "web1") == dest, PATIENCE_MS / 1000)
    assert LAB.state("web1") == {dest: "running"}


def test_a_cancelled_migration_leaves_the_guest_running_where_it_was(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    source = where("web2")
    status, answer = order(page, "migrate", "web2", to=other(source), bandwidth="4")
    assert status == 201, answer
    progress = card(page, "web2", source).locator(".progress[data-migration]")
    expect(progress).to_be_visible()
    progress.get_by_role("button", name="Cancel").click()
    job = ended(page, answer["id"])
    assert job["state"] == "cancelled"
    until(lambda: LAB.state("web2") == {source: "running"})  # the other host removes what had arrived
    assert "None" in LAB.on(source, "virsh domjobinfo web2 | head -1")
    assert on("pgrep -c [a]nsible-playbook || true") == "0"
    page.goto(f"{browsing.url}/#/jobs/{answer['id']}")
    expect(page.locator("[data-job-state=cancelled]")).to_be_visible()
    expect(page.get_by_role("log", name="Log")).to_contain_text("PLAY")


@pytest.mark.deep
def test_two_browsers_drop_the_same_guest_and_one_job_is_made(browsing: Browsing) -> None:
    pages = [browsing.enter(viewport=TALL), browsing.enter("bob", viewport=TALL)]
    source, dest = where("web2"), other(where("web2"))
    made = get(pages[0], f"/api/jobs?guest={LAB.uuid('web2', source)}")
    before = {job["id"] for job in made if not job["check"]}
    for page in pages:
        page.bring_to_front()
        card(page, "web2", source).drag_to(host_of(page, dest))
        expect(page.get_by_role("button", name="Migrate", exact=True)).to_be_enabled()
    for page in pages:
        page.get_by_role("button", name="Migrate", exact=True).click()
    # The server refuses it, or the page does when it has heard of the first job before the click.
    refused = re.compile(r"job \S+ \(.+\) is not done|a job is at work on it")
    expect(pages[1].get_by_role("log", name="Messages")).to_contain_text(refused)
    until(lambda: shown_on(pages[0], "web2") == dest, PATIENCE_MS / 1000)
    after = {job["id"] for job in get(pages[0], f"/api/jobs?guest={LAB.uuid('web2', dest)}") if not job["check"]}
    assert len(after - before) == 1, "one of them is refused"
    browsing.problems.clear()  # the browser reports the answer 409


@pytest.mark.deep
def test_several_guests_are_chosen_and_acted_on_at_once(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    for name in ("web1", "web2"):
        card(page, name, where(name)).get_by_role("checkbox").check()
    chosen = page.get_by_role("region", name="Chosen guests")
    chosen.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Pause", exact=True).click()
    for name in ("web1", "web2"):
        expect(page.locator(f".card[data-guest={name}]")).to_have_attribute("data-state", "paused")
        assert list(LAB.state(name).values()) == ["paused"]
    ended(page, get(page, "/api/jobs?limit=1")[0]["id"])
    chosen.get_by_role("button", name="More").click()
    start = page.get_by_role("menuitem", name=re.compile("^Start"))
    expect(start).to_have_attribute("aria-disabled", "true")
    expect(start).to_contain_text("it runs already")
    page.get_by_role("menuitem", name="Resume", exact=True).click()
    for name in ("web1", "web2"):
        expect(page.locator(f".card[data-guest={name}]")).to_have_attribute("data-state", "running")
        assert list(LAB.state(name).values()) == ["running"]


@pytest.mark.deep
def test_several_guests_are_dragged_at_once(browsing: Browsing, pair: tuple[str, str]) -> None:
    page = browsing.enter(viewport=TALL)
    for name in pair:
        card(page, name).get_by_role("checkbox").check()
    card(page, pair[0]).drag_to(host_of(page, "hyper2"))
    expect(page.get_by_role("dialog")).to_contain_text("Migrate pair1, pair2 to hyper2")
    confirm(page, "Migrate")
    for name in pair:
        until(functools.partial(is_on, page, name, "hyper2"), PATIENCE_MS / 1000)
        assert LAB.state(name) == {"hyper2": "running"}
    for job in get(page, "/api/jobs?limit=2&state=running"):
        ended(page, job["id"])


@pytest.mark.deep
def test_a_job_is_run_again_and_its_end_is_told(browsing: Browsing, pair: tuple[str, str]) -> None:
    page, name = browsing.enter(viewport=TALL), pair[0]
    card(page, name).get_by_role("button", name=f"Actions of {name}").click()
    page.get_by_role("menuitem", name="Pause", exact=True).click()
    messages = page.get_by_role("log", name="Messages")
    expect(messages).to_contain_text(f"Pause {name}: done.")
    on(f"virsh resume {name}")
    first = get(page, "/api/jobs?limit=1")[0]
    page.goto(f"{browsing.url}/#/jobs/{first['id']}")
    page.get_by_role("button", name="Run again").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Pause again: {name}")
    assert get(page, "/api/jobs?limit=1")[0]["id"] == first["id"], "nothing is done before that is confirmed"
    confirm(page, "Pause")
    until(lambda: LAB.state(name) == {"hyper1": "paused"}, PATIENCE_MS / 1000)
    expect(page.locator("[data-job-state=succeeded]")).to_be_visible()
    second = get(page, "/api/jobs?limit=1")[0]
    assert (second["action"], second["guests"]) == ("pause", first["guests"]) and second["id"] != first["id"]
    eve = browsing.enter("eve")
    status, answer = post(eve, f"/api/jobs/{first['id']}/again", {})
    assert status == 403 and "eve may not pause" in answer["error"], "it is judged anew, for who asks"
    browsing.problems.clear()  # the browser reports the answer 403


def test_a_guest_is_created_by_the_form_and_purged_by_its_name(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    page.get_by_role("button", name="Create guest").click()
    dialog = page.get_by_role("dialog")
    plan = dialog.get_by_role("button", name="Show plan")
    plan.click()
    expect(dialog.locator("#field-guest-help")).to_contain_text("is required")
    dialog.locator("#field-guest").fill("bad name;{{ 1 }}")
    dialog.locator("#field-vcpus").fill("1")
    dialog.locator("#field-memory").fill("64MiB")
    dialog.locator("#field-size").fill("1536MiB")
    dialog.locator("#field-network").select_option("none")
    dialog.locator("#field-keys").fill(f"{KEY}\n")
    dialog.get_by_text("More options").click()
    dialog.locator("#field-description").fill("{{ lookup('pipe', 'touch /tmp/templated') }}")
    plan.click()
    expect(dialog.locator(".field.wrong #field-guest")).to_be_visible()
    dialog.locator("#field-guest").fill("new1")
    plan.click()
    expect(dialog.get_by_text("Where it would go, and how")).to_be_visible()
    confirm(page, "Create")
    made = page.locator(".card[data-guest=new1]")
    expect(made).to_have_attribute("data-state", "running")
    host = where("new1")
    assert "{{ lookup('pipe', 'touch /tmp/templated') }}" in LAB.on(host, "virsh desc new1")
    assert "templated" not in on("ls /tmp")
    disks = LAB.on(host, "virsh domblklist new1 | awk '/images/ {print $2}'").split()
    assert [LAB.on(host, f"grep -aclF '{KEY}' {disk} || true") for disk in disks].count(disks[-1]) == 1, "in the seed"
    assert '"virtual-size": 1610612736' in LAB.on(host, f"qemu-img info -U --output=json {disks[0]}")
    assert LAB.on(host, "virsh domiflist new1 | grep -c : || true") == "0"
    ended(page, get(page, "/api/jobs?limit=1")[0]["id"])
    browsing.problems.clear()  # the browser reports the answer 400
    made.get_by_role("button", name="Actions of new1").click()
    page.get_by_role("menuitem", name=re.compile("^Purge")).click()
    button = dialog.get_by_role("button", name="Purge")
    expect(dialog.get_by_text("What it would do")).to_be_visible()
    expect(button).to_be_disabled()
    dialog.get_by_label("Type new1 to confirm").fill("new1")
    confirm(page, "Purge")
    expect(made).to_have_count(0)
    assert LAB.state("new1") == {} and "new1" not in LAB.on(host, f"ls {IMAGES}")


@pytest.mark.deep
def test_a_guest_is_changed_by_the_form(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    host, before = where("web2"), LAB.on(where("web2"), "virsh desc web2 --title")
    card(page, "web2", host).get_by_role("button", name="Actions of web2").click()
    page.get_by_role("menuitem", name=re.compile("^Change")).click()
    dialog = page.get_by_role("dialog")
    title, tags, disk = (dialog.locator(f"[id='field-{name}']") for name in ("title", "tags", "disk vda"))
    expect(title).to_have_value(before)
    expect(dialog.get_by_role("button", name="Change")).to_be_disabled()
    title.fill("Builds, {{ 1 + 1 }}")
    tags.fill("ci, nightly")
    disk.fill("1536MiB")
    expect(dialog.locator(".plan")).to_contain_text("grow disk")
    confirm(page, "Change")
    expect(page.locator(".card[data-guest=web2]")).to_contain_text("nightly")
    assert ended(page, get(page, "/api/jobs?limit=1")[0]["id"])["state"] == "succeeded"
    assert LAB.on(host, "virsh desc web2 --title").strip() == "Builds, {{ 1 + 1 }}"
    assert re.findall("tag>([a-z]+)<", LAB.on(host, "virsh metadata web2 urn:corral:virt:guest:1")) == ["ci", "nightly"]
    size = LAB.on(host, "virsh domblkinfo web2 vda | awk '/Capacity/ {print $2}'")
    assert int(size) == 1536 * 2**20
    for place in ("--config", "--live"):
        LAB.on(host, f"virsh desc web2 {place} --title '{before.strip()}'")


@pytest.mark.deep
def test_a_host_is_drained_and_undrained(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    source = where("web1")
    dest = other(source)
    page.goto(f"{browsing.url}/#/host/{source}")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog").locator(".moves")).to_contain_text(f"web1 {source} → {dest}")
    confirm(page, "Drain")
    expect(page.get_by_role("status").get_by_text("In maintenance")).to_be_visible()
    assert LAB.on(source, "virsh list --name --all") == ""
    assert {where(name) for name in NAMES} == {dest}
    page.get_by_role("button", name="Undrain").click()
    expect(page.get_by_role("button", name="Drain", exact=True)).to_be_visible()
    assert "corral-maintenance" not in LAB.on(source, "ls /var/lib/libvirt")


@pytest.mark.deep
def test_rebalance_shows_arrows_and_does_them(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    page.get_by_role("button", name="Rebalance").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".plan")).to_be_visible()
    arrows = dialog.locator(".moves li").count()
    confirm(page, "Rebalance")
    job = ended(page, next(job["id"] for job in get(page, "/api/jobs") if not job["check"]))
    assert job["state"] == "succeeded" and job["action"] == "rebalance"
    assert len({where(name) for name in NAMES}) == (2 if arrows else 1)


WORDS = {"shutdown": "Shut down"}  # in menus; others are called as in the catalogue
MORE: dict[str, dict[str, t.Any]] = {"rename": {"to": "web9"}, "create": {"guest": "ci9"}, "change": {"title": "x"}}
MORE |= {name: {"disk": "data"} for name in ("add_disk", "remove_disk")}
MORE |= {name: {"nic": "eth1"} for name in ("add_nic", "remove_nic")} | {"insert_iso": {"iso": "/srv/a.iso"}}
MORE |= {name: {"volume": "a.qcow2", "size": "1GiB"} for name in ("create_volume", "resize_volume")}
MORE |= {"delete_volume": {"volume": "a.qcow2"}, "move_disk": {"disk": "system", "pool": "default"}}
MORE |= {"revert": {"snapshot": "a", "run": True}, "delete_snapshot": {"snapshot": "a"}}
MORE |= {"drain_pool": {"pool": "old", "to": ["default"]}}
MATRIX: dict[str, t.Callable[[str, str], bool]] = {
    "alice": lambda _action, _guest: True,
    "bob": lambda action, guest: action in ("start", "shutdown", "migrate") and guest.startswith("web"),
    "eve": lambda _action, _guest: False,
}


@pytest.mark.parametrize(
    "user", ["bob", *(pytest.param(user, marks=pytest.mark.deep) for user in MATRIX if user != "bob")]
)
def test_the_policy_holds_in_the_api_and_in_the_page(browsing: Browsing, user: str) -> None:
    """Every action of the catalogue on two guests: a check is made or refused, and the menu offers the same."""
    page = browsing.enter(user, viewport=TALL)
    everything = get(browsing.enter(), "/api/actions")  # of an administrator
    on_guests = [each for each in everything if each["object"] == "guest" and each["name"] != "create"]
    assert len(on_guests) >= 10
    for name in ("web1", "db1"):
        allowed = {each["name"] for each in on_guests if MATRIX[user](each["name"], name)}
        given = {"guests": [LAB.uuid(name, where(name))], "check": True}
        status = {
            each["name"]: post(
                page, "/api/jobs", {**given, "action": each["name"], "arguments": MORE.get(each["name"], {})}
            )[0]
            for each in on_guests
        }
        assert {action for action, code in status.items() if code != 403} == allowed, name
        card(page, name, where(name)).get_by_role("button", name=f"Actions of {name}").click()
        page.get_by_role("menu").wait_for()
        for action in status:
            item = page.get_by_role(
                "menuitem", name=re.compile(f"^{WORDS.get(action) or action.replace('_', ' ').capitalize()}")
            )
            offered = item.count() > 0 and "you may not" not in item.inner_text()
            assert offered == (action in allowed), (user, name, action)
        page.keyboard.press("Escape")
    for action in (each for each in everything if each["object"] != "guest" or each["name"] == "create"):
        asked = {
            "action": action["name"],
            "check": True,
            "hosts": ["hyper1"],
            "arguments": MORE.get(action["name"], {}),
        }
        may = MATRIX[user](action["name"], "")
        assert (post(page, "/api/jobs", asked)[0] != 403) == may, action["name"]
        button = page.get_by_role("button", name=re.compile(f"^{action['name'].capitalize()}|Actions of hyper1$"))
        assert (button.count() > 0) == may, action["name"]
    browsing.problems.clear()  # the browser reports the answers 403 and 400


def test_a_user_of_the_guides_policy_reaches_no_file_of_a_hypervisor(browsing: Browsing) -> None:
    """Nor the disk of a guest that they may not view, of which they learn nothing."""
    page = browsing.enter("tim")
    hosts = ("hyper1", "hyper2")
    look = "stat -c '%n %i %s %Y %a %U' /etc/shadow /etc/passwd; virsh list --all --name; ls -i " + IMAGES
    before = {host: LAB.on(host, look) for host in hosts}

    def create(*disks: dict[str, t.Any], **more: t.Any) -> tuple[int, dict[str, t.Any]]:
        given = {"guest": "ci-1", "memory": "64MiB", "vcpus": 1, "interfaces": [], "state": "present", "disks": disks}
        return post(page, "/api/jobs", {"action": "create", "arguments": {**given, **more}})

    for disk in (
        {"name": "system", "source": "/etc/shadow", "format": "raw"},
        {"name": "system", "source": f"{IMAGES}/db1.qcow2"},
        {"name": "system", "volume": "default/db1.qcow2"},
        {"name": "system", "image": "db1.qcow2"},
        {"name": "system", "size": "1000TiB"},
        {"name": "system", "network": {"protocol": "nbd", "name": "", "socket": "/run/libvirt/libvirt-sock"}},
    ):
        status, answer = create(disk)
        assert status == 403, (disk, answer)
    assert create({"name": "system", "size": "1GiB"}, clone_of="db1")[1] == {
        "error": "clone_of: there is no guest db1",
        "errors": {"clone_of": "there is no guest db1"},
    }
    assert {host: LAB.on(host, look) for host in hosts} == before
    status, answer = create({"name": "system", "size": "1GiB"}, host="hyper1")
    job = ended(page, answer["id"])
    assert status == 201 and job["state"] == "succeeded", job
    shown = json.dumps([job, get(page, f"/api/jobs/{answer['id']}/log")])
    assert "ci-1" in shown and not any(name in shown for name in NAMES)
    assert "1073741824" in on("virsh vol-dumpxml --pool default ci-1-system.qcow2")
    on("virsh undefine ci-1; virsh vol-delete --pool default ci-1-system.qcow2")
    browsing.problems.clear()  # the browser reports the answers 403 and 400


@pytest.mark.deep
@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.deep)])
def test_pages_and_dialogs_are_accessible(browsing: Browsing, look: str) -> None:
    page = browsing.enter(**LOOKS[look])
    seen = violations if look == "phone" else violations_in_both_schemes
    source = where("web1")
    expect(card(page, "web1", source)).to_be_visible()
    places = ["", f"guest/{source}/{LAB.uuid('web1', source)}", f"host/{source}", "jobs", "images", "audit", "users"]
    number = get(page, "/api/jobs?limit=1")[0]["id"]
    for place in [*places, "sessions", f"jobs/{number}"]:
        page.goto(f"{browsing.url}/#/{place}")
        expect(page.get_by_role("heading", level=1)).to_be_attached()
        page.wait_for_timeout(700)
        assert seen(page) == [], place
    page.goto(f"{browsing.url}/#/")
    card(page, "web1", source).get_by_role("button", name="Actions of web1").click()
    assert seen(page) == [], "menu"
    page.get_by_role("menuitem", name="Migrate to").click()
    expect(page.get_by_role("radio").first).to_be_visible()
    assert seen(page) == [], "migrate"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="List").click()
    assert seen(page) == [], "list"
    card(page, "web1", source).get_by_role("button", name="Actions of web1").click()
    page.get_by_role("menuitem", name="Change").click()
    expect(page.locator("#field-title")).to_be_visible()
    assert seen(page) == [], "change"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Create guest").click()
    page.get_by_text("More options").click()
    assert seen(page) == [], "create"


@pytest.mark.deep
def test_a_guest_that_is_off_is_cloned_where_it_is(browsing: Browsing) -> None:
    page = browsing.enter(viewport=TALL)
    host = where("db1")
    expect(page.get_by_role("button", name="Create guest")).to_be_visible()  # what can be done is known
    card(page, "db1", host).get_by_role("button", name="Actions of db1").click()
    clone = page.get_by_role("menuitem", name="Clone …")
    expect(clone).to_have_attribute("aria-disabled", "true")
    expect(clone).to_contain_text("it must be off; shut it down first")
    page.keyboard.press("Escape")
    LAB.on(host, "virsh destroy db1")
    expect(card(page, "db1", host)).to_have_attribute("data-state", "shutdown")
    card(page, "db1", host).get_by_role("button", name="Actions of db1").click()
    clone.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"It is made on {host}, where the original is")
    expect(dialog.locator("#field-memory")).to_have_count(0)
    dialog.locator("#field-guest").fill("copy1")
    dialog.locator("#field-state").select_option("shutdown")
    assert violations(page) == []
    dialog.get_by_role("button", name="Show plan").click()
    expect(dialog.get_by_text("Where it would go, and how")).to_be_visible()
    assert "copy1" not in LAB.on(host, "virsh list --all --name"), "a plan makes nothing"
    confirm(page, "Clone")
    ended(page, get(page, "/api/jobs?limit=1")[0]["id"])
    expect(card(page, "copy1", host)).to_have_attribute("data-state", "shutdown")
    assert LAB.on(host, "virsh domuuid copy1") != LAB.on(host, "virsh domuuid db1")
    first = "virsh domblklist {} --details | awk '$2 == \"disk\" {{print $4; exit}}'"
    disks = [LAB.on(host, first.format(name)) for name in ("db1", "copy1")]
    assert disks[0] != disks[1]
    assert "identical" in LAB.on(host, f"qemu-img compare {' '.join(disks)}")
    LAB.on(host, "virsh undefine copy1 --remove-all-storage && virsh start db1")


@pytest.mark.deep
def test_history_shows_what_a_guest_used(browsing: Browsing) -> None:
    page = browsing.enter()
    source = where("web1")
    page.goto(f"{browsing.url}/#/guest/{source}/{LAB.uuid('web1', source)}")
    expect(page.locator(".graph canvas").first).to_be_visible()
    found = get(page, f"/api/history/{source}/{LAB.uuid('web1', source)}?span=hour")
    assert max(filter(None, found["cpu"])) > 0 and max(filter(None, found["written"])) > 0
    on("systemctl restart corral-console")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    until(lambda: get(page, f"/api/history/{source}?span=hour")["at"])
    again = get(page, f"/api/history/{source}/{LAB.uuid('web1', source)}?span=hour")
    assert again["at"][: len(found["at"])] == found["at"], "a restart loses nothing"
    browsing.problems.clear()  # the browser reports that the server was away


MARKUP = "<img src=x onerror=alert(1)>"
# What a terminal may obey: a title, a link, the clipboard, a question, and text that is no markup.
SEQUENCES = f"\x1b]0;{MARKUP}\x07\x1b]8;;javascript:alert(2)\x07LINK\x1b]8;;\x07\x1b]52;c;YWxlcnQ=\x07 {MARKUP}<script>alert(3)</script>"
TURNED = "\u202e"  # the text after it is shown backwards
SUM = "{{ 90901 * 90907 }}"
COMPUTED = str(90901 * 90907)  # no clock, identifier or colour shows these digits
# It writes the text after it to its serial port, again and again.
WRITES = bytes.fromhex("31c08ed8be177cac84c074f8baf803eeb9ffffe2feebf0")
ESCAPED = MARKUP.replace("<", "&lt;").replace(">", "&gt;")
HOSTILE = f"""<domain type='qemu'><name>{ESCAPED}</name><title>{ESCAPED}{TURNED} {SUM}</title>
<description>{ESCAPED}{TURNED}</description><metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'>
<corral:tag>{ESCAPED}</corral:tag></corral:guest></metadata><memory unit='MiB'>64</memory>
<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='raw'/><source file='{IMAGES}/hostile.img'/><target dev='vda' bus='virtio'/></disk>
<serial type='pty'/><graphics type='vnc'><listen type='none'/></graphics><video><model type='vga'/></video></devices></domain>"""
POOL = f"<pool type='dir'><name>{ESCAPED}</name><target><path>/srv/hostile</path></target></pool>"
NETWORK = f"<network><name>{ESCAPED}</name><bridge name='virbr77'/></network>"


@pytest.fixture
def hostile() -> Iterator[str]:
    """The UUID of a guest whose every text is markup, on a host with an image, a pool and a network like that."""
    sector = (WRITES + SEQUENCES.encode() + b"\r\n\0").ljust(510, b"\0") + b"\x55\xaa"
    on(f"base64 -d >{IMAGES}/hostile.img", given=base64.b64encode(sector + bytes(1 << 20)).decode())
    content = f"{MARKUP}.0123456789ab.qcow2"
    on(f"cd {IMAGES} && qemu-img create -q -f qcow2 '{content}' 1M && ln -sf '{content}' '{MARKUP}.qcow2'")
    on("virsh pool-refresh default && mkdir -p /srv/hostile")
    for kind, xml in (("", HOSTILE), ("pool-", POOL), ("net-", NETWORK)):
        on(f"virsh {kind}define /dev/stdin", given=xml)
    on(f"virsh pool-start '{MARKUP}'; virsh start '{MARKUP}'")
    yield on(f"virsh domuuid '{MARKUP}'")
    on(f"virsh destroy '{MARKUP}'; virsh undefine '{MARKUP}'; virsh net-undefine '{MARKUP}'")
    on(f"virsh pool-destroy '{MARKUP}'; virsh pool-undefine '{MARKUP}'; rm -rf /srv/hostile {IMAGES}/hostile.img")
    on(f"cd {IMAGES} && rm -f '{content}' '{MARKUP}.qcow2' && virsh pool-refresh default")


def is_text(page: Page, *, times: int = 1) -> str:
    """What is shown, where markup is shown so many times and is none, and no script has run."""
    main = page.get_by_role("main")
    until(lambda: main.inner_text().count(MARKUP) >= times, PATIENCE_MS / 1000)
    assert page.locator("img[src=x], body script").count() == 0
    text = main.inner_text()
    assert TURNED not in text and COMPUTED not in text, text
    return text


def test_no_text_of_a_guest_or_a_host_is_more_than_text(browsing: Browsing, hostile: str) -> None:
    """Name, title, description and tags of a guest, images, pools and networks; dialogs and errors are problems."""
    page = browsing.enter()
    is_text(page, times=2)
    page.goto(f"{browsing.url}/#/guest/hyper1/{hostile}")
    expect(page.get_by_text("Description")).to_be_visible()
    is_text(page, times=4)
    page.goto(f"{browsing.url}/#/host/hyper1")
    expect(page.get_by_text("/srv/hostile")).to_be_visible()
    is_text(page, times=3)
    page.goto(f"{browsing.url}/#/images")
    is_text(page)
    page.goto(f"{browsing.url}/#/console/{hostile}/vnc")  # QEMU calls its desktop as the guest
    connected(page)
    is_text(page)
    assert page.title() == "corral.virt"


def test_a_serial_console_obeys_no_link_and_no_title(browsing: Browsing, hostile: str) -> None:
    page = browsing.enter()
    page.goto(f"{browsing.url}/#/console/{hostile}/serial")
    connected(page)
    expect(page.locator(".screen")).to_contain_text("<script>alert(3)</script>")
    area = t.cast("dict[str, float]", page.locator(".xterm-screen").bounding_box())
    for row in range(6):
        page.mouse.click(area["x"] + 12, area["y"] + 8 + 17 * row)
    assert page.locator("img[src=x], body script").count() == 0 and page.locator(".screen a").count() == 0
    assert page.title() == "corral.virt" and len(page.context.pages) == 1


def test_no_text_of_a_job_is_more_than_text(browsing: Browsing) -> None:
    """Its arguments, log, error, report and plan, as a module of a hostile host may have told them."""
    page = browsing.enter()
    asked = {"action": "drain", "arguments": {"reason": f"{MARKUP}{SUM}"}, "hosts": ["hyper2"], "check": True}
    status, answer = post(page, "/api/jobs", asked)
    assert status == 201, answer
    ended(page, answer["id"])
    directory = f"/var/lib/corral-console-jobs/jobs/{answer['id']}"
    told = f"{SEQUENCES}\x1b[31mred\x1b[0m{TURNED}"
    planned = {
        "virt_place": {"x": {"explained": [told]}},
        "virt_state": {"x": {"results": [{"name": told, "steps": [told]}]}},
    }
    on("systemctl stop corral-console-jobs")
    on(f"cat >>{directory}/log", given=f"{told}\n")
    result = {**json.loads(on(f"cat {directory}/result.json")), "error": told, "report": [told], "plan": planned}
    on(f"cat >{directory}/result.json", given=json.dumps(result))
    on("systemctl start corral-console-jobs")
    page.goto(f"{browsing.url}/#/jobs/{answer['id']}")
    page.reload()
    expect(page.get_by_role("log", name="Log")).to_contain_text("red")
    text = is_text(page, times=4)
    assert "\x1b" not in text and SUM in text and "LINK" in text
    browsing.problems[:] = [each for each in browsing.problems if "503" not in each]  # while the process was away


# As the user of the web process, confined as it is.
THIEF = """
import glob, json, os, socket

def ask(path, method="GET", document=None, **headers):
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(5)
        there.connect(json.load(open("/etc/corral-console/config.json"))["policy_socket"])
        body = json.dumps(document or {}).encode()
        more = {"content-type": "application/json", "content-length": len(body), "connection": "close", **headers}
        lines = [f"{method} {path} HTTP/1.1", "host: policy", *(f"{name}: {value}" for name, value in more.items())]
        there.sendall("\\r\\n".join([*lines, "", ""]).encode() + body)
        return int(there.recv(100).split()[1])

def can(use):
    try:
        use()
    except OSError:
        return False
    return True

secrets = ["/etc/shadow", "/etc/corral-console/tls/ca.key", "/etc/corral-console/tls/server.key", *(
    f"/var/lib/corral-console-jobs/{name}" for name in ("console.db", "ticket.key", "device.key", "jobs"))]
guest = {"uuid": "u", "name": "web1", "host": "hyper1", "state": "running", "tags": []}
order = {"request": {"action": "start", "guests": ["u"]}, "seen": [guest]}
claims = {"cookie": "__Host-corral=" + "a" * 43, "authorization": "Bearer " + "a" * 43, "x-corral-user": "alice"}
print(json.dumps({
    "reads": [path for path in secrets if can(lambda: os.listdir(path) if path.endswith("jobs") else open(path))],
    "writes": [path for path in ("/etc", "/usr/lib/corral-console", "/var/lib/corral-console-jobs", "/etc/corral-console")
               if os.access(path, os.W_OK)],
    "asks": {path: [ask(path), ask(path, **claims)] for path in ("/api/users", "/api/audit", "/api/jobs", "/api/sessions")},
    "orders": [ask("/api/jobs", "POST", order), ask("/api/jobs", "POST", order, **claims)],
    "tickets": ask("/api/tickets", "POST", {"request": {"uuid": "u", "kind": "vnc"}, "seen": [guest]}, **claims),
    "proxied": ask("/api/login/proxy", **{"x-remote-user": "alice"}),
    "relay": can(lambda: socket.socket(socket.AF_UNIX).connect("/run/corral-console-relay.sock")),
    "sees": [name for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())],
}))
"""


def test_a_stolen_web_process_is_nobody() -> None:
    """Beside what its users do: it reads no secret, gives no order, makes no ticket, and writes nowhere."""
    unit = "/run/systemd/system/thief.service"
    edits = "s#^ExecStart=.*#ExecStart=/usr/bin/python3 /usr/local/lib/thief.py#;s/^Restart=.*/Type=oneshot/;/^StateDirectory/d"
    on("cat >/usr/local/lib/thief.py", given=THIEF)
    counted = "select count(*) from audit where line not like '%login%'"
    code = f'import sqlite3; print(sqlite3.connect("console.db").execute("{counted}").fetchone()[0])'
    audit = f"cd /var/lib/corral-console-jobs && python3 -c {shlex.quote(code)}"
    before = on(audit)
    try:
        on(f"sed '{edits}' /etc/systemd/system/corral-console.service >{unit} && systemctl daemon-reload")
        on("systemctl start thief")
        told = json.loads(on("journalctl -u thief -o cat | grep '^{' | tail -1"))
    finally:
        on(f"rm -f {unit} /usr/local/lib/thief.py; systemctl daemon-reload")
    asks = told.pop("asks")
    assert len(asks) == 4 and all(answers == [401, 401] for answers in asks.values()), asks
    assert told == {
        "reads": [],
        "writes": [],
        "orders": [401, 401],
        "tickets": 401,
        "proxied": 404,
        "relay": False,
        "sees": [],
    }
    assert on(audit) == before


PICTURES = Path(os.environ.get("CORRAL_PICTURES") or ROOT / "build/console")
TAGS = "<metadata><corral:guest xmlns:corral='urn:corral:virt:guest:1'><corral:tag>{}</corral:tag></corral:guest></metadata>"
SHOWN = {
    "web1": ("Web shop, front", "web"),
    "web2": ("Web shop, front", "web"),
    "db1": ("Orders", "db"),
    "mail1": ("Mail relay", "mail"),
    "ci7": ("Builds", "ci"),
    "db2": ("Orders, copy", "db"),
}


@pytest.mark.deep
def test_pictures_of_the_pages(browsing: Browsing) -> None:
    """For the guide: CORRAL_PICTURES=docs/docsite/pictures; all of them, to look at, are left in build/console."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for index, (name, (title, tag)) in enumerate(SHOWN.items()):
        if name not in NAMES:
            xml = GUEST.format(name=name, images=IMAGES).replace("<os>", TAGS.format(tag) + "<os>", 1)
            LAB.on(f"hyper{index % 2 + 1}", "virsh define /dev/stdin", given=xml)
        LAB.on(where_defined(name), f"virsh desc {name} --config {'--live' * (name in NAMES)} --title '{title}'")
    for look, how in LOOKS.items():
        page = browsing.enter(**{"viewport": {"width": 1120, "height": 720}, **how})
        expect(page.locator(".card")).to_have_count(len(SHOWN))
        for session in get(page, "/api/sessions"):
            if not session["current"]:
                post(page, "/api/sessions/end", {"id": session["id"]})
        page.wait_for_timeout(4000)  # figures are differences
        take_pages(page, browsing.url, look)
        take_dialogs(page, browsing.url, look)
        if look != "phone":
            take_migration(page, look)
    for name in SHEETS:
        take_sheet(page, name)
    for name in SHOWN.keys() - set(NAMES):
        LAB.on(where_defined(name), f"virsh undefine {name}")


# Pages of which the guide shows all looks, side by side.
SHEETS = [
    "overview",
    "list",
    "guest",
    "host",
    "console",
    "jobs",
    "job",
    "images",
    "audit",
    "users",
    "account",
    "menu",
    "choose",
    "change",
    "create",
]
SHEET = """<!doctype html><style>body { margin: 0; padding: 8px; display: flex; gap: 8px; background: #888; width: fit-content; }
img { height: 360px; display: block; }</style>"""


def take_sheet(page: Page, name: str) -> None:
    """What has been taken of a page in all looks, in one picture."""
    sheet = page.context.new_page()
    files = [PICTURES / f"{name}-{look}.png" for look in LOOKS]
    shown = "".join(
        f'<img src="data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}">' for file in files
    )
    sheet.set_viewport_size({"width": 1700, "height": 500})
    sheet.set_content(SHEET + shown)
    sheet.locator("body").screenshot(path=PICTURES / f"page-{name}.png")
    sheet.close()


def take(page: Page, name: str, look: str) -> None:
    page.wait_for_timeout(600)
    page.screenshot(path=PICTURES / f"{name}-{look}.png")


def take_pages(page: Page, url: str, look: str) -> None:
    source = where("web1")
    number = next(job["id"] for job in get(page, "/api/jobs?state=succeeded") if job["action"] == "migrate")
    places = {"overview": "", "guest": f"guest/{source}/{LAB.uuid('web1', source)}", "host": f"host/{source}"}
    others = {"jobs": "jobs", "job": f"jobs/{number}", "images": "images", "audit": "audit", "users": "users"}
    others |= {"account": "sessions", "console": f"console/{LAB.uuid('web1', source)}/vnc"}
    for name, place in {**places, **others}.items():
        page.goto(f"{url}/#/{place}")
        page.wait_for_timeout(800)
        if name == "console":
            connected(page)
        take(page, name, look)
    page.goto(f"{url}/#/")
    page.get_by_role("button", name="List").click()
    take(page, "list", look)
    page.get_by_role("button", name="Cards").click()


def take_dialogs(page: Page, url: str, look: str) -> None:
    page.goto(f"{url}/#/")
    page.locator(".card[data-guest=web1] .more").click()
    take(page, "menu", look)
    page.get_by_role("menuitem", name="Migrate to").click()
    expect(page.get_by_role("radio").first).to_be_visible()
    take(page, "choose", look)
    page.keyboard.press("Escape")
    page.locator(".card[data-guest=web1] .more").click()
    page.get_by_role("menuitem", name="Change").click()
    page.locator("[id='field-disk vda']").fill("20GiB")
    expect(page.locator(".plan")).to_be_visible()
    take(page, "change", look)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Create guest").click()
    for name, value in {"guest": "web3", "vcpus": "2", "memory": "512MiB", "size": "20GiB"}.items():
        page.locator(f"#field-{name}").fill(value)
    page.get_by_role("dialog").get_by_role("button", name="Show plan").click()
    expect(page.locator(".plan")).to_be_visible()
    take(page, "create", look)
    page.keyboard.press("Escape")


def take_migration(page: Page, look: str) -> None:
    source = where("web1")
    place = t.cast("dict[str, float]", host_of(page, other(source)).bounding_box())
    card(page, "web1", source).hover()
    page.mouse.down()
    for step in range(4):
        page.mouse.move(place["x"] + 300, place["y"] + 24 + step)
    expect(host_of(page, other(source)).locator("[data-verdict]")).to_be_visible()
    page.mouse.move(place["x"] + 300, place["y"] + 30)
    take(page, "drag", look)
    page.mouse.up()
    expect(page.locator(".plan")).to_be_visible()
    take(page, "plan", look)
    confirm(page, "Migrate")
    until(lambda: int(page.evaluate(PROGRESS, "web1") or 0) > 10, PATIENCE_MS / 1000)
    page.screenshot(path=PICTURES / f"progress-{look}.png")
    until(lambda: shown_on(page, "web1") == other(source), PATIENCE_MS / 1000)
